"""Random Programs over Values, and what they compute: once by value, once in a plan's bytes.

A kernel's result is a hash of its name and of the bytes it reads, so that any byte read too early
or too late shows in the results. Loops run once or twice, as their condition's bytes say.
"""

from __future__ import annotations

import hashlib
import random

from hypothesis import strategies as st

from hlo2graph.hlo import DTYPES, Computation, Instruction, Literal, Shape
from hlo2graph.program.bind import make_plan
from hlo2graph.program.buffers import assign_buffers
from hlo2graph.program.thunks import (
    Alias,
    Conditional,
    Copy,
    Fill,
    Kernel,
    Library,
    Port,
    Program,
    Sequence,
    Value,
    While,
)

SMALL, LARGE = Shape(DTYPES["f32"], (64,)), Shape(DTYPES["f32"], (192,))
ZERO = Instruction("zero", "constant", Shape(DTYPES["s32"]), payload=Literal(SMALL, None))


def _computation(opcode, arity, shape, *more):
    parameters = [Instruction(f"p{i}", "parameter", shape, payload=i) for i in range(arity)]
    names = tuple(p.name for p in parameters) + tuple(m.name for m in more)
    root = Instruction("root", opcode, shape, names)
    return Computation(f"{opcode}{arity}_{shape.size}", (*parameters, *more, root), "root")


def computations():
    """One that may work in place element by element, one in part, and one that may not."""
    made = [
        _computation(*row)
        for shape in (SMALL, LARGE)
        for row in (
            ("tanh", 1, shape),
            ("add", 2, shape),
            ("dynamic-update-slice", 2, shape, ZERO),
            ("reverse", 1, shape),
            ("concatenate", 2, shape),
        )
    ]
    return {c.name: c for c in made}


class Maker:
    """Draws programs; every value has an id of its own."""

    def __init__(self, draw):
        self.draw = draw
        self.values = 0
        self.names = 0

    def value(self, shape):
        self.values += 1
        return Value(self.values, shape, f"v{self.values}")

    def name(self, stem):
        self.names += 1
        return f"{stem}{self.names}"

    def pick(self, options):
        return self.draw(st.sampled_from(options))

    def sequence(self, visible, params, shapes, depth, most):
        """Return thunks over `visible` values, with results of `shapes`."""
        visible = [*visible, *params]
        thunks = []
        for _ in range(self.draw(st.integers(1, most))):
            thunk = self.thunk(visible, [t.name for t in thunks], depth)
            thunks.append(thunk)
            visible += self.made(thunk)
        results = []
        for shape in shapes:
            options = [v for v in visible if v.shape == shape]
            if not options:
                value = self.value(shape)
                thunks.append(Fill(self.name("fill"), b"\x07", value))
                options = [value]
            results.append(self.pick(options[-6:]))
        return Sequence(tuple(thunks), tuple(params), tuple(results))

    def made(self, thunk):
        match thunk:
            case Kernel() | Library():
                return thunk.writes
            case While() | Conditional():
                return thunk.results
            case _:
                return (thunk.target,)

    def thunk(self, visible, names, depth):
        kinds = ["kernel"] * 8 + ["library", "copy", "fill"]
        kind = self.pick(kinds + (["while", "conditional"] if depth else []))
        shape = self.pick([SMALL, SMALL, LARGE])
        after = (self.pick(names),) if names and self.draw(st.integers(0, 9)) == 0 else ()
        options = [v for v in visible if v.shape == shape]
        if kind == "fill" or not options:
            return Fill(self.name("fill"), b"\x01", self.value(shape), after)
        match kind:
            case "copy":
                return Copy(self.name("copy"), self.pick(options), self.value(shape), after)
            case "library":
                reads = tuple({self.pick(visible) for _ in range(2)})
                scratch = (self.value(LARGE),)
                return Library(
                    self.name("lib"), "reverse1_256", reads, (self.value(shape),), scratch, after
                )
            case "while":
                return self.loop(visible, depth, after)
            case "conditional":
                return self.choice(visible, depth, after)
        opcode, arity = self.pick(
            [("tanh", 1), ("add", 2), ("dynamic-update-slice", 2), ("reverse", 1)]
        )
        reads = tuple(self.pick(options[-8:]) for _ in range(arity))
        if len(set(reads)) < arity:
            opcode, reads = "reverse", reads[:1]
        name, computation = self.name("k"), f"{opcode}{len(reads)}_{shape.size}"
        effect = self.draw(st.integers(0, 9)) == 0
        return Kernel(name, computation, reads, (self.value(shape),), after, effect)

    def loop(self, visible, depth, after):
        inits = tuple(self.pick(visible[-8:]) for _ in range(self.draw(st.integers(1, 3))))
        shapes = [v.shape for v in inits]
        state = [self.value(s) for s in shapes]
        body = self.sequence(visible, [self.value(s) for s in shapes], shapes, depth - 1, 4)
        condition = self.sequence(visible, state, [SMALL], 0, 2)
        if condition.results[0] in (*visible, *state):
            flag = Fill(self.name("fill"), b"\x02", self.value(SMALL))
            condition = Sequence((*condition.thunks, flag), condition.params, (flag.target,))
        results = tuple(self.value(s) for s in shapes)
        return While(self.name("loop"), inits, results, condition, body, after=after)

    def choice(self, visible, depth, after):
        shapes = [self.pick([SMALL, LARGE]) for _ in range(self.draw(st.integers(1, 2)))]
        branches = tuple(
            self.sequence(visible, [], shapes, depth - 1, 3)
            for _ in range(self.draw(st.integers(1, 3)))
        )
        results = tuple(self.value(s) for s in shapes)
        return Conditional(self.name("if"), self.pick(visible), branches, results, after)


@st.composite
def programs(draw, depth=2, most=10, aliased=True):
    """Draw a Program as `lower` makes it, before `place_copies`."""
    maker = Maker(draw)
    params = [maker.value(draw(st.sampled_from([SMALL, LARGE]))) for _ in range(3)]
    constant = maker.value(SMALL)
    shapes = [draw(st.sampled_from([SMALL, LARGE])) for _ in range(draw(st.integers(1, 3)))]
    body = maker.sequence([constant], params, shapes, depth, most)
    aliases = []
    for k, shape in enumerate(shapes):
        taken = {alias.input for alias in aliases}
        fitting = [i for i, p in enumerate(params) if p.shape == shape and i not in taken]
        if aliased and fitting and draw(st.booleans()):
            aliases.append(Alias(k, draw(st.sampled_from(fitting)), draw(st.booleans())))
    return Program(
        "random",
        body,
        tuple(Port(f"p{i}", p.shape) for i, p in enumerate(params)),
        tuple(Port(f"r{k}", s) for k, s in enumerate(shapes)),
        ((constant, Literal(SMALL, None)),),
        computations(),
        tuple(aliases),
    )


def planned(program, **policy):
    buffers = assign_buffers(program, **policy)
    schedule = policy.get("schedule", "concurrent")
    return make_plan(program, buffers, target="host", fuse="none", schedule=schedule)


def _hash(name, leaf, contents, size):
    seed = hashlib.blake2b(repr((name, leaf, contents)).encode(), digest_size=16).digest()
    return (seed * (size // 16 + 1))[:size]


def contents_of(index, size):
    """Return what parameter or constant `index` holds."""
    return _hash("given", index, (), size)


def _again(flag, runs):
    return runs < 1 + (flag[0] & 1)


def by_value(program):
    """Return the contents of the results, each value having a place of its own."""
    known = {}
    for index, value in enumerate((*program.body.params, *(v for v, _ in program.constants))):
        known[value.id] = contents_of(index, value.shape.size)
    _run_values(program.body, known)
    return [known[v.id] for v in program.body.results]


def _run_values(sequence, known):
    for thunk in sequence.thunks:
        match thunk:
            case Kernel() | Library():
                contents = tuple(known[v.id] for v in thunk.reads)
                for leaf, v in enumerate(thunk.writes):
                    known[v.id] = _hash(thunk.name, leaf, contents, v.shape.size)
            case Copy():
                known[thunk.target.id] = known[thunk.source.id]
            case Fill():
                known[thunk.target.id] = thunk.pattern * thunk.target.shape.size
            case While():
                _run_loop(thunk, known)
            case Conditional():
                chosen = known[thunk.selector.id][0] % len(thunk.branches)
                _run_values(thunk.branches[chosen], known)
                for result, v in zip(thunk.results, thunk.branches[chosen].results, strict=True):
                    known[result.id] = known[v.id]


def _run_loop(loop, known):
    state, runs = [known[v.id] for v in loop.inits], 0
    while True:
        known |= zip((v.id for v in loop.condition.params), state, strict=True)
        _run_values(loop.condition, known)
        if not _again(known[loop.condition.results[0].id], runs):
            break
        known |= zip((v.id for v in loop.body.params), state, strict=True)
        _run_values(loop.body, known)
        state, runs = [known[v.id] for v in loop.body.results], runs + 1
    known |= zip((v.id for v in loop.results), state, strict=True)


class Memory:
    """A plan's allocations; runs its thunks in any order that the edges allow."""

    def __init__(self, plan, seed):
        self.random = random.Random(seed)
        self.bytes = [bytearray(self.random.randbytes(a.size)) for a in plan.allocations]
        constants = [i for i, a in enumerate(plan.allocations) if a.kind == "constant"]
        for index, bound in enumerate(plan.inputs):
            self[bound.slice] = contents_of(index, bound.slice.size)
        for index, allocation in enumerate(constants, len(plan.inputs)):
            size = plan.allocations[allocation].size
            self.bytes[allocation][:] = contents_of(index, size)
        self.run(plan.body)
        self.results = [self[bound.slice] for bound in plan.outputs]

    def __getitem__(self, held):
        return bytes(self.bytes[held.allocation][held.offset : held.end])

    def __setitem__(self, held, content):
        assert len(content) == held.size
        self.bytes[held.allocation][held.offset : held.end] = content

    def run(self, sequence):
        waiting = [set() for _ in sequence.thunks]
        for edge in sequence.edges:
            waiting[edge.dst].add(edge.src)
        left = set(range(len(sequence.thunks)))
        while left:
            ready = sorted(i for i in left if not waiting[i] & left)
            chosen = self.random.choice(ready)
            left.discard(chosen)
            self.do(sequence.thunks[chosen])

    def do(self, thunk):
        match thunk:
            case Kernel() | Library():
                contents = tuple(self[s] for s in thunk.reads)
                for held in getattr(thunk, "workspace", ()):
                    self[held] = self.random.randbytes(held.size)
                for leaf, held in enumerate(thunk.writes):
                    self[held] = _hash(thunk.name, leaf, contents, held.size)
            case Copy():
                self[thunk.target] = self[thunk.source]
            case Fill():
                self[thunk.target] = thunk.pattern * thunk.target.size
            case While():
                runs = 0
                while True:
                    self.run(thunk.condition)
                    if not _again(self[thunk.condition.results[0]], runs):
                        break
                    self.run(thunk.body)
                    runs += 1
            case Conditional():
                self.run(thunk.branches[self[thunk.selector][0] % len(thunk.branches)])
