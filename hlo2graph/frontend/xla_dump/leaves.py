"""Which array an operand is, through everything that only passes it on.

Buffer assignment lists an array under the instruction that makes it. Bitcasts, tuples, parameters
of called computations, loops that leave a part of their state alone and the like pass arrays on
without making any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hlo2graph.errors import InputError
from hlo2graph.frontend.xla_dump.model import Index, Leaf, XlaBuffers
from hlo2graph.hlo import AnyShape, Computation, Instruction, Kind, Module, Shape, TupleShape
from hlo2graph.program.thunks import Slice

Place = tuple[Computation, Instruction, Index]

RUNS = frozenset({"while", "conditional", "call", "async-start"})  # thunks of a computation
SAME = frozenset({"bitcast", "opt-barrier", "add-dependency", "domain", "copy-done"})
_VIEWS = frozenset({"bitcast", "get-tuple-element"})  # the parser names some of the latter itself
MOST_STEPS = 10_000  # on the way to an array; more go in circles


class Leaves:
    """Finds arrays of one module, and their bytes."""

    def __init__(self, module: Module, buffers: XlaBuffers) -> None:
        self._module, self._buffers = module, buffers
        self._callers: dict[str, tuple[Computation, Instruction]] = {}
        for computation in module.computations.values():
            for instr in computation.instructions:
                if instr.opcode in RUNS:
                    self._add_caller(computation, instr)

    def _add_caller(self, computation: Computation, instr: Instruction) -> None:
        for called in instr.called():
            if called in self._callers:
                other = self._callers[called][1].name
                raise InputError(
                    f"{other} and {instr.name} run the same computation, {called}: this is no "
                    "module that XLA has assigned buffers to",
                    instr.span,
                )
            self._callers[called] = (computation, instr)

    def of(self, computation: Computation, instr: Instruction) -> list[Leaf]:
        """Return the arrays of an instruction's result, tokens left out."""
        found = (self._follow((computation, instr, index)) for index in indices(instr.shape))
        return [leaf for leaf in found if leaf is not None]

    def part(self, computation: Computation, name: str, index: Index) -> Leaf | None:
        """Return one array of an instruction's result."""
        return self._follow((computation, computation[name], index))

    def slice(self, leaf: Leaf) -> Slice:
        """Return where an array lives."""
        return self._buffers.slices[leaf]

    def listed(self, leaf: Leaf) -> bool:
        """Buffer assignment has this array under this name."""
        return leaf in self._buffers.slices

    def _follow(self, place: Place) -> Leaf | None:
        at: Place | None = place
        for _ in range(MOST_STEPS):
            if at is None:
                break
            _, instr, index = at
            if instr.opcode not in _VIEWS and (instr.name, index) in self._buffers.slices:
                return instr.name, index
            if _is_token(instr.shape, index):
                return None
            at = self._step(at)
        _, instr, index = place
        where = f"{instr.name}{{{','.join(map(str, index))}}}" if index else instr.name
        raise InputError(
            f"the buffer assignment has no value for {where}: is it of the same module, and whole?"
        )

    def _step(self, place: Place) -> Place | None:
        computation, instr, index = place
        step = _STEPS.get(instr.opcode)
        if instr.opcode in SAME:
            return self._operand(computation, instr, 0, index)
        return step(self, computation, instr, index) if step else None

    def _operand(
        self, computation: Computation, instr: Instruction, number: int, index: Index
    ) -> Place | None:
        if number >= len(instr.operands):
            return None
        return computation, computation[instr.operands[number]], index

    def _element(self, c: Computation, i: Instruction, index: Index) -> Place | None:
        number = i.attrs.get("index")
        assert isinstance(number, int), "the parser checks the index of a get-tuple-element"
        return self._operand(c, i, 0, (number, *index))

    def _tuple(self, c: Computation, i: Instruction, index: Index) -> Place | None:
        return self._operand(c, i, index[0], index[1:]) if index else None

    def _parameter(self, c: Computation, i: Instruction, index: Index) -> Place | None:
        if c.name not in self._callers or not isinstance(i.payload, int):
            return None
        outside, caller = self._callers[c.name]
        number = i.payload
        if caller.opcode == "conditional":
            number = 1 + list(caller.called()).index(c.name)
        return self._operand(outside, caller, number, index)

    def _root(self, _: Computation, i: Instruction, index: Index) -> Place | None:
        """Go into the first computation that is called; all that are called give the same."""
        inner = self._module.computations[next(i.called())]
        return inner, inner.result, index

    def _while(self, c: Computation, i: Instruction, index: Index) -> Place | None:
        return self._operand(c, i, 0, index)  # state that no round changes

    def _start(self, c: Computation, i: Instruction, index: Index) -> Place | None:
        """Operands come first in the result of an async-start, then what it computes."""
        match index:
            case (0, number, *rest):
                return self._operand(c, i, number, tuple(rest))
            case (1, *rest) if any(i.called()):
                return self._root(c, i, tuple(rest))
            case _:
                return None

    def _update(self, c: Computation, i: Instruction, index: Index) -> Place | None:
        return self._operand(c, i, 0, index)

    def _done(self, c: Computation, i: Instruction, index: Index) -> Place | None:
        """Give what the start computes; some collectives' starts have that as their result."""
        start = c[i.operands[0]]
        if isinstance(start.shape, TupleShape) and not start.opcode.startswith("all-reduce"):
            return self._operand(c, i, 0, (1, *index))
        return self._operand(c, i, 0, index)


_Step = Callable[[Leaves, Computation, Instruction, Index], "Place | None"]
_STEPS: dict[str, _Step] = {
    "get-tuple-element": Leaves._element,
    "tuple": Leaves._tuple,
    "parameter": Leaves._parameter,
    "call": Leaves._root,
    "conditional": Leaves._root,
    "while": Leaves._while,
    "async-start": Leaves._start,
    "async-update": Leaves._update,
    "async-done": Leaves._done,
    "all-reduce-done": Leaves._done,
    "all-gather-done": Leaves._done,
    "collective-permute-done": Leaves._done,
}


def indices(shape: AnyShape, before: Index = ()) -> Iterator[Index]:
    """Yield the places of a shape's arrays."""
    if isinstance(shape, Shape):
        yield before
        return
    for number, part in enumerate(shape.parts):
        yield from indices(part, (*before, number))


def _is_token(shape: AnyShape, index: Index) -> bool:
    for number in index:
        if not isinstance(shape, TupleShape):
            return False
        shape = shape.parts[number]
    return isinstance(shape, Shape) and shape.dtype.kind is Kind.TOKEN
