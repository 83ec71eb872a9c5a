"""Random HLO programs, and what they mean with every operation left uninterpreted.

An operation's result is a tree: its opcode over its operands' trees. Loops run as often, and
conditionals take the branch, that the digits in their names say. Three readings have to agree: the
HLO text, the lowered program with a cell per value, and, once copies are placed, the program with a
cell per group of values that are to share a buffer.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy as np

from hlo2graph.hlo import Computation, Instruction, Literal, Module
from hlo2graph.program.inplace import inplace_reads
from hlo2graph.program.thunks import (
    Collective,
    Conditional,
    Copy,
    Fill,
    Kernel,
    Library,
    Program,
    Sequence,
    Thunk,
    Value,
    While,
)
from hlo2graph.program.uses import nested, reads, writes

Tree = object


def random_module(rnd: random.Random) -> str:
    """Return the text of a program of loops, conditionals and calls over arrays of one shape."""
    return _Writer(rnd).module()


class _Writer:
    def __init__(self, rnd: random.Random) -> None:
        self.rnd = rnd
        self.array = f"f32[{rnd.choice([4, 65536])}]{{0}}"
        self.computations: list[str] = []
        self.count = 0

    def module(self) -> str:
        inputs = self.rnd.randint(1, 3)
        lines = [f"p{k} = {self.array} parameter({k})" for k in range(inputs)]
        values = [f"p{k}" for k in range(inputs)]
        lines += self.block(values, 0)
        roots = [self.pick(values) for _ in range(self.rnd.randint(1, 3))]
        lines.append(
            f"ROOT {self.fresh('root')} = {self.tuple(len(roots))} tuple({', '.join(roots)})"
        )
        head = "HloModule m"
        if self.rnd.random() < 0.3:
            head += ", is_scheduled=true"
        aliases = [
            f"{{{k}}}: ({p}, {{}}, {self.rnd.choice(['may', 'must'])}-alias)"
            for k, p in zip(range(len(roots)), self.rnd.sample(range(inputs), inputs), strict=False)
            if self.rnd.random() < 0.5
        ]
        if aliases:
            head += f", input_output_alias={{ {', '.join(aliases)} }}"
        entry = f"ENTRY {self.fresh('main')} {{\n  " + "\n  ".join(lines) + "\n}\n"
        return "\n".join([head, "", *self.computations, entry])

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}_{self.count}"

    def pick(self, values: list[str]) -> str:
        return self.rnd.choice(values[-6:] if self.rnd.random() < 0.8 else values)

    def tuple(self, n: int) -> str:
        return f"({', '.join([self.array] * n)})"

    def block(self, values: list[str], depth: int) -> list[str]:
        """Write some instructions; add to `values` what they give."""
        lines: list[str] = []
        for _ in range(self.rnd.randint(0, 5 if depth else 7)):
            kinds = ["add", "add", "reverse", "reverse", "copy", "fill", "constant"]
            if depth < 3:
                kinds += ["while", "while", "conditional", "call"]
            lines += getattr(self, f"_{self.rnd.choice(kinds)}")(values, depth)
        return lines

    def _add(self, values: list[str], _: int) -> list[str]:
        a, b = self.pick(values), self.pick(values)
        return [self.new(values, "add", f"{self.array} add({a}, {b})")]

    def _reverse(self, values: list[str], _: int) -> list[str]:
        a = self.pick(values)
        return [self.new(values, "reverse", f"{self.array} reverse({a}), dimensions={{0}}")]

    def _copy(self, values: list[str], _: int) -> list[str]:
        return [self.new(values, "copy", f"{self.array} copy({self.pick(values)})")]

    def _fill(self, values: list[str], _: int) -> list[str]:
        scalar = self.fresh("scalar")
        return [
            f"{scalar} = f32[] constant({self.rnd.randint(0, 3)})",
            self.new(values, "fill", f"{self.array} broadcast({scalar}), dimensions={{}}"),
        ]

    def _constant(self, values: list[str], depth: int) -> list[str]:
        if "65536" in self.array:
            return self._fill(values, depth)
        given = ", ".join(str(self.rnd.randint(0, 1)) for _ in range(4))
        return [self.new(values, "constant", f"{self.array} constant({{{given}}})")]

    def _call(self, values: list[str], depth: int) -> list[str]:
        given = [self.pick(values) for _ in range(self.rnd.randint(1, 2))]
        inner = [f"q{k}" for k in range(len(given))]
        lines = [f"q{k} = {self.array} parameter({k})" for k in range(len(given))]
        callee = self.computation(lines, inner, depth, lambda: [self.pick(inner)])
        return [
            self.new(values, "call", f"{self.array} call({', '.join(given)}), to_apply={callee}")
        ]

    def _while(self, values: list[str], depth: int) -> list[str]:
        n = self.rnd.randint(1, 4)
        init, loop = self.fresh("init"), self.fresh("while")
        given = ", ".join(self.pick(values) for _ in range(n))
        body = self.state(n)
        inner = body[1]
        callee = self.computation(
            body[0], inner, depth, lambda: [self.pick(inner) for _ in range(n)], always_tuple=True
        )
        condition = self.condition(n)
        lines = [
            f"{init} = {self.tuple(n)} tuple({given})",
            f"{loop} = {self.tuple(n)} while({init}), condition={condition}, body={callee}",
        ]
        return lines + [
            self.new(values, "gte", f"{self.array} get-tuple-element({loop}), index={k}")
            for k in range(n)
        ]

    def _conditional(self, values: list[str], depth: int) -> list[str]:
        n = self.rnd.randint(1, 2)
        args, branches = [], []
        lines: list[str] = []
        for _ in range(2):
            given = [self.pick(values) for _ in range(2)]
            arg = self.fresh("arg")
            lines.append(f"{arg} = {self.tuple(2)} tuple({', '.join(given)})")
            args.append(arg)
            header, inner = self.state(2)
            branches.append(
                self.computation(
                    header,
                    inner,
                    depth,
                    lambda inner=inner: [self.pick(inner) for _ in range(n)],
                    always_tuple=True,
                )
            )
        selector, cond = self.fresh("selector"), self.fresh("conditional")
        lines += self.scalar(selector, values)
        lines.append(
            f"{cond} = {self.tuple(n)} conditional({selector}, {args[0]}, {args[1]}), "
            f"true_computation={branches[0]}, false_computation={branches[1]}"
        )
        return lines + [
            self.new(values, "gte", f"{self.array} get-tuple-element({cond}), index={k}")
            for k in range(n)
        ]

    def new(self, values: list[str], stem: str, text: str) -> str:
        name = self.fresh(stem)
        values.append(name)
        return f"{name} = {text}"

    def state(self, n: int) -> tuple[list[str], list[str]]:
        """Return the lines that take a tuple parameter apart, and the names of its parts."""
        names = [self.fresh("part") for _ in range(n)]
        parameter = self.fresh("state")
        lines = [f"{parameter} = {self.tuple(n)} parameter(0)"]
        lines += [
            f"{name} = {self.array} get-tuple-element({parameter}), index={k}"
            for k, name in enumerate(names)
        ]
        return lines, names

    def scalar(self, name: str, values: list[str]) -> list[str]:
        part, number = self.fresh("slice"), self.fresh("number")
        return [
            f"{part} = f32[1]{{0}} slice({self.pick(values)}), slice={{[0:1]}}",
            f"{number} = f32[] reshape({part})",
            f"{name} = pred[] compare({number}, {number}), direction=EQ",
        ]

    def condition(self, n: int) -> str:
        lines, names = self.state(n)
        root = self.fresh("again")
        tested = self.scalar(root, names)
        tested[-1] = f"ROOT {tested[-1]}"
        name = self.fresh("condition")
        self.computations.append(f"{name} {{\n  " + "\n  ".join(lines + tested) + "\n}\n")
        return name

    def computation(
        self,
        header: list[str],
        values: list[str],
        depth: int,
        roots: Callable[[], list[str]],
        always_tuple: bool = False,
    ) -> str:
        lines = header + self.block(values, depth + 1)
        found = roots()
        if always_tuple:
            root = self.fresh("root")
            lines.append(f"ROOT {root} = {self.tuple(len(found))} tuple({', '.join(found)})")
        else:
            lines = [f"ROOT {line}" if line.startswith(f"{found[0]} =") else line for line in lines]
        name = self.fresh("computation")
        self.computations.append(f"{name} {{\n  " + "\n  ".join(lines) + "\n}\n")
        return name


def choice(name: str, options: int) -> int:
    """Return what the digits behind a name's last `_` choose."""
    return int(name.rpartition("_")[2].split(".")[0]) % options


def meaning(module: Module, arguments: list[Tree]) -> tuple[Tree, ...]:
    """Read the HLO text itself; return the leaves of its result."""
    found = run_computation(module.computations, module.entry, arguments)
    return found if isinstance(found, tuple) and found[:1] != ("op",) else (found,)


def run_computation(
    computations: dict[str, Computation], computation: Computation, arguments: list[Tree]
) -> Tree:
    """Return the tree, or tuple of trees in a list, that a computation gives."""
    env: dict[str, Tree] = {}
    for instr in computation.instructions:
        env[instr.name] = _instruction(
            computations, instr, [env[o] for o in instr.operands], arguments
        )
    return env[computation.root]


def _instruction(
    computations: dict[str, Computation],
    instr: Instruction,
    operands: list[Tree],
    arguments: list[Tree],
) -> Tree:
    match instr.opcode:
        case "parameter":
            return arguments[instr.payload]
        case "constant":
            return literal_tree(instr.payload)
        case "tuple":
            return tuple(operands)
        case "get-tuple-element":
            return operands[0][instr.attrs["index"]]
        case "copy" | "reshape":
            return operands[0]
        case "call":
            return run_computation(computations, computations[instr.attrs["to_apply"]], operands)
        case "while":
            state = operands[0]
            for _ in range(choice(instr.name, 3)):
                state = run_computation(computations, computations[instr.attrs["body"]], [state])
            return state
        case "conditional":
            taken = choice(instr.name, 2)
            branch = instr.attrs[("true_computation", "false_computation")[taken]]
            return run_computation(computations, computations[branch], [operands[1 + taken]])
        case opcode:
            return ("op", hash((opcode, *operands)))


def literal_tree(literal: Literal) -> Tree:
    if literal.shape.dims:
        return ("op", hash(literal.array.tobytes()))
    return ("op", hash(("scalar", literal.array.tobytes())))


class Cells:
    """Runs a program with a cell per value, or per group of values where `of` says so."""

    def __init__(self, program: Program, of: Callable[[Value], int], shared: bool) -> None:
        self.program = program
        self.of = of
        self.shared = shared
        self.held: dict[int, Tree] = {}
        self.given = {of(v) for v in program.body.params} | {of(v) for v, _ in program.constants}
        if shared:
            self.given -= {of(program.body.params[a.input]) for a in program.aliases}

    def run(self, arguments: list[Tree]) -> tuple[Tree, ...]:
        for value, tree in zip(self.program.body.params, arguments, strict=True):
            self.held[self.of(value)] = tree
        for value, literal in self.program.constants:
            self.held[self.of(value)] = literal_tree(literal)
        self.sequence(self.program.body)
        return tuple(self.held[self.of(v)] for v in self.program.body.results)

    def sequence(self, sequence: Sequence[Value]) -> None:
        for thunk in sequence.thunks:
            self.thunk(thunk)

    def read(self, values: tuple[Value, ...]) -> list[Tree]:
        return [self.held[self.of(v)] for v in values]

    def write(self, values: tuple[Value, ...], trees: list[Tree]) -> None:
        for value, tree in zip(values, trees, strict=True):
            assert self.of(value) not in self.given, f"{value} is written, but not ours"
            self.held[self.of(value)] = tree

    def thunk(self, thunk: Thunk[Value]) -> None:
        match thunk:
            case Kernel():
                self.kernel(thunk)
            case Copy():
                self.write((thunk.target,), self.read((thunk.source,)))
            case Fill():
                scalar = ("op", hash(("scalar", np.frombuffer(thunk.pattern, "f4").tobytes())))
                self.write((thunk.target,), [("op", hash(("broadcast", scalar)))])
            case While():
                self.loop(thunk)
            case Conditional():
                branch = thunk.branches[choice(thunk.name, 2)]
                self.sequence(branch)
                self.move(branch.results, thunk.results)
            case Library() | Collective():
                raise NotImplementedError

    def kernel(self, thunk: Kernel[Value]) -> None:
        if self.shared:
            allowed = inplace_reads(thunk, self.program.computations)
            for i, read in enumerate(thunk.reads):
                for k, written in enumerate(thunk.writes):
                    assert self.of(read) != self.of(written) or (i, k) in allowed, thunk.name
        computation = self.program.computations[thunk.computation]
        tree = run_computation(self.program.computations, computation, self.read(thunk.reads))
        self.write(thunk.writes, [tree])

    def loop(self, thunk: While[Value]) -> None:
        self.move(thunk.inits, thunk.body.params)
        for _ in range(choice(thunk.name, 3)):
            self.test(thunk)
            self.sequence(thunk.body)
            self.move(thunk.body.results, thunk.body.params)
        self.test(thunk)
        self.move(thunk.body.params, thunk.results)

    def test(self, thunk: While[Value]) -> None:
        self.move(thunk.body.params, thunk.condition.params)
        self.sequence(thunk.condition)

    def move(self, sources: tuple[Value, ...], targets: tuple[Value, ...]) -> None:
        """Hand values on; where cells are shared there is nothing to move."""
        if self.shared:
            assert [self.of(v) for v in sources] == [self.of(v) for v in targets]
        else:
            self.write(targets, self.read(sources))


def groups(program: Program) -> dict[int, int]:
    """Return the group of each value id: those that structure alone makes one buffer."""
    parent: dict[int, int] = {}

    def find(v: int) -> int:
        parent.setdefault(v, v)
        while parent[v] != v:
            v = parent[v]
        return v

    for together in _together(program.body):
        for value in together:
            parent[find(value.id)] = find(together[0].id)
    for alias in program.aliases:
        if alias.must:
            shared = program.body.params[alias.input], program.body.results[alias.output]
            parent[find(shared[1].id)] = find(shared[0].id)
    for value in (*program.body.params, *program.body.results):
        find(value.id)
    return {v: find(v) for v in parent}


def _together(sequence: Sequence[Value]) -> Iterator[tuple[Value, ...]]:
    """Yield the values that are one buffer, each value in some tuple at least."""
    for thunk in sequence.thunks:
        yield from ((value,) for value in (*reads(thunk), *writes(thunk)))
        match thunk:
            case While(inits=inits, results=results, body=body, condition=condition):
                yield from zip(
                    inits, body.params, body.results, condition.params, results, strict=True
                )
            case Conditional(results=results, branches=branches):
                yield from zip(results, *(b.results for b in branches), strict=True)
        for _, inner in nested(thunk):
            yield from _together(inner)
