"""XLA's thunks, rebuilt from the optimised module and the buffer assignment.

In: a scheduled module and where its arrays live. Out: the thunks of its entry, loops and branches
nested, each with the slices that XLA counts as read and written. The rules are XLA's:

- An instruction that makes no bytes has no thunk: parameters, constants, tuples and views.
- All else is one thunk that reads its operands' arrays and writes its own, workspaces included.
- A loop or conditional uses what is inside it, and its predicate or selector.
- A sort is made in place: one copy for each operand that lies elsewhere than its result, then it.
- Of a dynamic-slice fusion, the index operands and the base of an update are not counted as read.
- An asynchronous computation stands where it starts.
- A loop or conditional stays outside of a graph with anything in it that no graph can hold, or a
  slice, whose place changes from round to round.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from hlo2graph.frontend.xla_dump.leaves import Leaves
from hlo2graph.frontend.xla_dump.model import Leaf, XlaBuffers, XlaKind, XlaThunk
from hlo2graph.frontend.xla_dump.slicing import copies, counted_operands, is_dynamic_slice
from hlo2graph.hlo import Computation, Instruction, Module
from hlo2graph.program.thunks import Slice

NO_BYTES = frozenset(
    {
        *("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all"),
        *("opt-barrier", "add-dependency", "domain", "async-update"),
    }
)
DONE = frozenset(
    {
        *("async-done", "copy-done", "all-reduce-done", "all-gather-done"),
        "collective-permute-done",
    }
)
NEVER_CAPTURED = frozenset(
    {
        *("fft", "triangular-solve", "infeed", "outfeed"),
        *("send", "recv", "send-done", "recv-done"),
    }
)
NEVER_CAPTURED_TARGETS = ("__cudnn$conv", "__cusolver$cholesky", "__cub$")
GRAPH = "command_buffer"  # how the computations are called that an older XLA made for its graphs
LIBRARIES = ("__cublas", "__cudnn")


def build_thunks(module: Module, buffers: XlaBuffers) -> tuple[XlaThunk, ...]:
    """Return the entry's thunks in the order of the schedule. Raises InputError."""
    return _Builder(module, Leaves(module, buffers)).sequence(module.entry)


class _Builder:
    def __init__(self, module: Module, leaves: Leaves) -> None:
        self._module, self._leaves = module, leaves

    def sequence(self, computation: Computation) -> tuple[XlaThunk, ...]:
        """Return the thunks of a computation."""
        return tuple(
            thunk for i in computation.instructions for thunk in self._thunks(computation, i)
        )

    def _thunks(self, computation: Computation, instr: Instruction) -> Iterator[XlaThunk]:
        if instr.opcode in NO_BYTES:
            return
        if instr.opcode in DONE:
            yield XlaThunk(instr.name, XlaKind.DONE)
        elif instr.opcode == "while":
            yield self._while(computation, instr)
        elif instr.opcode == "conditional":
            yield self._conditional(computation, instr)
        elif instr.opcode == "call":
            called = self._module.computations[next(instr.called())]
            graph = called.name if called.name.startswith(GRAPH) else ""
            for thunk in self.sequence(called):
                yield replace(thunk, graph=graph) if graph else thunk
        elif instr.opcode == "async-start" and any(instr.called()):
            inner = self.sequence(self._module.computations[next(instr.called())])
            yield self._holding(instr, XlaKind.START, (("", inner),))
        elif instr.opcode == "sort" or self._hero(instr) == "sort":
            yield from self._sort(computation, instr)
        else:
            yield self._plain(computation, instr)

    def _plain(self, computation: Computation, instr: Instruction) -> XlaThunk:
        operands = [self._operand(computation, name) for name in instr.operands]
        made = self._leaves.of(computation, instr)
        counted = [True] * len(operands)
        inside: tuple[tuple[str, tuple[XlaThunk, ...]], ...] = ()
        if is_dynamic_slice(instr):
            called = self._module.computations[next(instr.called())]
            counted = counted_operands(called, len(operands))
            held = (XlaThunk(name, XlaKind.COPY) for name in copies(called))
            inside = (("", tuple(held)),)
        read = [
            leaf for leaves, seen in zip(operands, counted, strict=True) if seen for leaf in leaves
        ]
        taken = [leaf for leaves in operands for leaf in leaves]
        written = self._slices(made)
        unseen = set(self._slices(taken)) - set(self._slices(read)) - set(written)
        return XlaThunk(
            instr.name,
            _kind(instr),
            self._slices(read),
            written,
            tuple(sorted(unseen)),
            frozenset(taken),
            frozenset(made),
            after=_after(instr),
            inside=inside,
            captured=_is_captured(instr),
        )

    def _sort(self, computation: Computation, instr: Instruction) -> Iterator[XlaThunk]:
        """Yield the copies into the results' bytes, and the sort of those."""
        whole = self._plain(computation, instr)
        results = self._leaves.of(computation, instr)
        for number, (source, result) in enumerate(
            zip(self._sorted(computation, instr), results, strict=False)
        ):
            if source is None or self._leaves.slice(source) == self._leaves.slice(result):
                continue
            yield XlaThunk(
                f"{instr.name}.copy{number}",
                XlaKind.COPY,
                self._slices([source]),
                self._slices([result]),
                takes=frozenset({source}),
                makes=frozenset({result}),
            )
        yield XlaThunk(
            instr.name,
            whole.kind,
            whole.writes,
            whole.writes,
            takes=whole.takes | whole.makes,
            makes=whole.makes,
            after=whole.after,
        )

    def _sorted(self, computation: Computation, instr: Instruction) -> Iterator[Leaf | None]:
        """Yield for each operand of the sort the array that it is, None for one made inside."""
        if instr.opcode == "sort":
            for name in instr.operands:
                yield self._leaves.part(computation, name, ())
            return
        called = self._module.computations[next(instr.called())]
        for name in called.result.operands:
            inner = called[name]
            while inner.opcode in ("bitcast", "copy"):
                inner = called[inner.operands[0]]
            if inner.opcode == "parameter" and isinstance(inner.payload, int):
                yield self._leaves.part(computation, instr.operands[inner.payload], ())
            else:
                yield None

    def _while(self, computation: Computation, instr: Instruction) -> XlaThunk:
        names = [instr.attrs["condition"], instr.attrs["body"]]
        condition, body = (self._module.computations[str(name)] for name in names)
        inside = (
            ("condition", self.sequence(condition)),
            ("body", self._rounds(body)),
        )
        changed = [leaf for leaf in self._leaves.of(computation, instr) if leaf[0] == instr.name]
        state = [
            leaf
            for _, index in changed
            if (leaf := self._leaves.part(computation, instr.operands[0], index)) is not None
        ]
        predicate = self._slices(self._leaves.of(condition, condition.result))
        return self._holding(
            instr,
            XlaKind.WHILE,
            inside,
            reads=predicate,
            takes=state,
            makes=changed,
            state=state,
            own={leaf[0] for leaf in self._parameters(condition, body)},
        )

    def _rounds(self, body: Computation) -> tuple[XlaThunk, ...]:
        """Return the body's thunks, each with the state of the round before that it replaces."""
        replaced: dict[Leaf, set[Leaf]] = {}
        held = (self._leaves.of(body, instr) for instr in (body.parameters[0], body.result))
        for old, new in zip(*held, strict=True):
            if old != new:
                replaced.setdefault(new, set()).add(old)
        return tuple(self._with_state(thunk, replaced) for thunk in self.sequence(body))

    def _with_state(self, thunk: XlaThunk, replaced: dict[Leaf, set[Leaf]]) -> XlaThunk:
        old = {leaf for made in thunk.makes for leaf in replaced.get(made, ())}
        return replace(thunk, state=thunk.state | old) if old else thunk

    def _parameters(self, *computations: Computation) -> list[Leaf]:
        found = [leaf for c in computations for leaf in self._leaves.of(c, c.parameters[0])]
        return [leaf for leaf in found if leaf[0] in {c.parameters[0].name for c in computations}]

    def _conditional(self, computation: Computation, instr: Instruction) -> XlaThunk:
        branches = [self.sequence(self._module.computations[name]) for name in instr.called()]
        selector = self._operand(computation, instr.operands[0])
        made = [leaf for leaf in self._leaves.of(computation, instr) if leaf[0] == instr.name]
        return self._holding(
            instr,
            XlaKind.CONDITIONAL,
            tuple((f"branch_{number}", branch) for number, branch in enumerate(branches)),
            reads=self._slices(selector),
            takes=selector,
            makes=made,
        )

    def _holding(
        self,
        instr: Instruction,
        kind: XlaKind,
        inside: tuple[tuple[str, tuple[XlaThunk, ...]], ...],
        *,
        reads: Iterable[Slice] = (),
        takes: Iterable[Leaf] = (),
        makes: Iterable[Leaf] = (),
        state: Iterable[Leaf] = (),
        own: Iterable[str] = (),
    ) -> XlaThunk:
        """Return a thunk that uses what its nested ones use; `own` are its parameters' names."""
        nested = [thunk for _, sequence in inside for thunk in sequence]
        made = frozenset(leaf for thunk in nested for leaf in thunk.makes)
        taken = frozenset(leaf for thunk in nested for leaf in thunk.takes) - made
        outside = frozenset(leaf for leaf in taken if leaf[0] not in set(own))
        return XlaThunk(
            instr.name,
            kind,
            _once((*reads, *(s for thunk in nested for s in thunk.reads))),
            _once(s for thunk in nested for s in thunk.writes),
            _once(s for thunk in nested for s in thunk.unseen),
            outside | frozenset(takes),
            frozenset(makes) | made,
            frozenset(state),
            _after(instr),
            inside,
            all(thunk.captured and thunk.kind is not XlaKind.SLICE for thunk in nested),
        )

    def _operand(self, computation: Computation, name: str) -> list[Leaf]:
        return self._leaves.of(computation, computation[name])

    def _slices(self, leaves: Iterable[Leaf]) -> tuple[Slice, ...]:
        return _once(self._leaves.slice(leaf) for leaf in leaves)

    def _hero(self, instr: Instruction) -> str:
        """Return the opcode of a fusion's root, of anything else nothing."""
        if instr.opcode != "fusion":
            return ""
        return self._module.computations[next(instr.called())].result.opcode


def _once(slices: Iterable[Slice]) -> tuple[Slice, ...]:
    return tuple(dict.fromkeys(slices))


def _after(instr: Instruction) -> tuple[str, ...]:
    held = instr.attrs.get("control-predecessors", ())
    assert isinstance(held, tuple), "the parser gives names"
    return tuple(name for name in held if isinstance(name, str))


def _target(instr: Instruction) -> str:
    return str(instr.attrs.get("custom_call_target", ""))


def _kind(instr: Instruction) -> XlaKind:
    if instr.opcode in ("copy", "copy-start"):
        return XlaKind.COPY
    if is_dynamic_slice(instr):
        return XlaKind.SLICE
    return XlaKind.LIBRARY if _target(instr).startswith(LIBRARIES) else XlaKind.KERNEL


def _is_captured(instr: Instruction) -> bool:
    if instr.opcode in NEVER_CAPTURED:
        return False
    return not _target(instr).startswith(NEVER_CAPTURED_TARGETS)
