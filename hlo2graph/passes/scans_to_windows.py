"""Write scans that fold one array by one associative computation as windows that accumulate.

In and out: a Module of the same meaning, where floats may be folded in another order, as the
attribute `is_associative` allows. It is what newer JAX makes of cumsum and its like; a window is
computed by many threads at once, the steps of a scan one after another.

The rule, all of it: one input and one carry; the computation works element by element and returns
its one value both as the output and as the carry; the first carry is one scalar everywhere, or the
computation is a single instruction that commutes, whose neutral element then stands in for it.
Backwards only the latter, as a window folds from its first element on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hlo2graph.hlo import (
    Computation,
    Instruction,
    Literal,
    Module,
    Shape,
    SliceDim,
    TupleShape,
    Window,
)
from hlo2graph.ops import OPS
from hlo2graph.ops.cumulative import cumulative
from hlo2graph.ops.expect import integer, integers
from hlo2graph.ops.folding import neutral_of
from hlo2graph.ops.scalar_region import COMMUTATIVE, binary_reducer
from hlo2graph.passes.sequences import sequences
from hlo2graph.passes.writer import Writer, all_names, fresh

_KEPT = ("control-predecessors", "frontend_attributes", "metadata")


def scans_to_windows(module: Module) -> Module:
    """Return `module` with a reduce-window for each such scan."""
    stepped, taken = sequences(module), all_names(module)
    regions = _Regions(module.computations, taken)
    computations: dict[str, Computation] = {}
    for name, computation in module.computations.items():
        if name in stepped and any(i.opcode == "scan" for i in computation.instructions):
            computation = _rewritten(computation, regions, taken)
        computations[name] = computation
    if not regions.made:
        return module
    return replace(module, computations=regions.made | computations)


def _rewritten(computation: Computation, regions: _Regions, taken: set[str]) -> Computation:
    known = {i.name: i for i in computation.instructions}
    lines: list[Instruction] = []
    for instr in computation.instructions:
        found = _window(instr, known, regions, taken) if instr.opcode == "scan" else None
        lines += found or [instr]
    return replace(computation, instructions=tuple(lines))


def _window(
    instr: Instruction, known: Mapping[str, Instruction], regions: _Regions, taken: set[str]
) -> list[Instruction] | None:
    """Return what stands for a scan, or None where a window does not."""
    if instr.attrs.get("is_associative") is not True or len(instr.operands) != 2:
        return None
    source, carry = (known[name] for name in instr.operands)
    if integer(instr, "num_carries") != 1 or not isinstance(instr.shape, TupleShape):
        return None
    (along,) = integers(instr, "dimensions")
    whole, last = instr.shape.parts
    assert isinstance(whole, Shape)
    assert isinstance(last, Shape)
    if not whole.elements or (region := regions.scalar(str(instr.attrs["to_apply"]))) is None:
        return None
    write = Writer(instr.name, taken)
    backwards = instr.attrs.get("is_reverse") is True
    opcode = binary_reducer(regions.made, region)
    commutes = opcode in COMMUTATIVE
    init = None if backwards and not commutes else _scalar(carry)
    if init is None and not commutes:
        return None
    length = whole.dims[along]
    window = Window(cumulative(whole.rank, along, length, backwards=backwards))
    start = init or write.literal(Literal(Shape(whole.dtype), neutral_of(str(opcode), whole.dtype)))
    summed = write.add("reduce-window", whole, (source.name, start), window=window, to_apply=region)
    if init is None:
        dims = tuple(d for d in range(whole.rank) if d != along)
        spread = write.add("broadcast", whole, (carry.name,), dimensions=dims)
        summed = write.add(str(opcode), whole, (spread, summed))
    at = 0 if backwards else length - 1
    taken_dims = [SliceDim(0, n) for n in whole.dims]
    taken_dims[along] = SliceDim(at, at + 1)
    row = replace(whole, dims=(*whole.dims[:along], 1, *whole.dims[along + 1 :]))
    cut = write.add("slice", row, (summed,), slice=tuple(taken_dims))
    ended = write.add("reshape", last, (cut,))
    kept = {name: instr.attrs[name] for name in _KEPT if name in instr.attrs}
    both = Instruction(instr.name, "tuple", instr.shape, (summed, ended), kept, span=instr.span)
    return [*write.lines, both]


def _scalar(carry: Instruction) -> str | None:
    """Return the scalar that all elements of a first carry are, by name."""
    if isinstance(carry.shape, Shape) and not carry.shape.dims:
        return carry.name
    if carry.opcode == "broadcast" and carry.attrs.get("dimensions", ()) == ():
        return carry.operands[0]
    return None


class _Regions:
    """Scans' computations as regions of scalars, which take the carry first: one for each."""

    def __init__(self, computations: Mapping[str, Computation], taken: set[str]) -> None:
        self._computations, self._taken = computations, taken
        self._found: dict[str, str | None] = {}
        self.made: dict[str, Computation] = {}

    def scalar(self, name: str) -> str | None:
        """Return the name of the region, or None where there is none."""
        if name not in self._found:
            made = _region(self._computations[name], fresh(f"{name}.scalar", self._taken))
            self._found[name] = None if made is None else made.name
            if made is not None:
                self.made[made.name] = made
        return self._found[name]


def _region(called: Computation, name: str) -> Computation | None:
    root = called.result
    results: Sequence[str] = root.operands if root.opcode == "tuple" else ()
    if len(results) != 2 or results[0] != results[1]:
        return None
    row = called.parameters[0].shape
    lines: list[Instruction] = []
    for instr in called.instructions:
        if instr is root:
            continue
        if not isinstance(instr.shape, Shape) or not _is_by_element(instr, row, called):
            return None
        number = instr.payload
        if instr.opcode == "parameter":
            assert isinstance(number, int)
            number = 1 - number
        lines.append(replace(instr, shape=Shape(instr.shape.dtype), payload=number))
    return Computation(name, tuple(lines), results[0])


def _is_by_element(instr: Instruction, row: object, called: Computation) -> bool:
    """Tell whether an instruction of a scan's computation does the same to each element."""
    assert isinstance(row, Shape)
    assert isinstance(instr.shape, Shape)
    if instr.shape.dims not in ((), row.dims):
        return False
    if instr.opcode == "parameter":
        return instr.shape == row
    if instr.opcode == "constant":
        return instr.shape.dims == ()
    if instr.opcode == "broadcast":
        (source,) = (called[name].shape for name in instr.operands)
        return isinstance(source, Shape) and source.dims == ()
    return OPS[instr.opcode].elementwise
