"""Turn each scan into a loop, which every backend can run step by step.

In and out: a Module of the same meaning. The loop's state is the step, the inputs, the carries and
the outputs so far; a step cuts its slices out of the inputs, calls the scan's computation and puts
the slices that it gets into the outputs. Scans inside kernels stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from hlo2graph.hlo import (
    DTYPES,
    AnyShape,
    Computation,
    Instruction,
    Module,
    Shape,
    TupleShape,
)
from hlo2graph.hlo.dtype import S32
from hlo2graph.ops.expect import integer, integers, result_parts
from hlo2graph.passes.sequences import sequences
from hlo2graph.passes.writer import Writer, all_names, fresh

_STEP, _PRED = Shape(S32), Shape(DTYPES["pred"])


def expand_scans(module: Module) -> Module:
    """Return `module` with a loop for each scan whose steps can be thunks."""
    stepped = sequences(module)
    scanning = {
        name
        for name, computation in module.computations.items()
        if name in stepped and any(i.opcode == "scan" for i in computation.instructions)
    }
    if not scanning:
        return module
    taken = all_names(module)
    computations: dict[str, Computation] = {}
    for name, computation in module.computations.items():
        if name in scanning:
            added, computation = _expanded(computation, module.computations, taken)
            computations |= added
        computations[name] = computation
    return replace(module, computations=computations)


def _expanded(
    computation: Computation, known: Mapping[str, Computation], taken: set[str]
) -> tuple[dict[str, Computation], Computation]:
    """Return the loops' computations and `computation` with the loops in it."""
    added: dict[str, Computation] = {}
    kept: list[Instruction] = []
    for instr in computation.instructions:
        if instr.opcode != "scan":
            kept.append(instr)
            continue
        operands = tuple(computation[o].shape for o in instr.operands)
        scan = _Scan(instr, operands, known[str(instr.attrs["to_apply"])])
        condition, body = scan.condition(taken), scan.body(taken)
        added |= {condition.name: condition, body.name: body}
        kept += scan.loop(condition.name, body.name, taken)
    return added, replace(computation, instructions=tuple(kept))


class _Scan:
    """One scan: what its loop holds from step to step."""

    def __init__(
        self, instr: Instruction, operands: tuple[AnyShape, ...], called: Computation
    ) -> None:
        self.instr, self.called = instr, called
        given = len(operands) - integer(instr, "num_carries")
        self.inputs, self.carries = _arrays(operands[:given]), _arrays(operands[given:])
        self.outputs = _arrays(instr.shape.leaves())[: -len(self.carries) or None]
        (self.along,) = integers(instr, "dimensions")
        self.count = [*self.inputs, *self.outputs][0].dims[self.along]
        self.state = TupleShape((_STEP, *self.inputs, *self.carries, *self.outputs))

    def loop(self, condition: str, body: str, taken: set[str]) -> list[Instruction]:
        """Return the instructions that stand for the scan."""
        write, instr = Writer(self.instr.name, taken), self.instr
        blanks = [
            write.add("broadcast", shape, [write.constant(shape, 0)], dimensions=())
            for shape in self.outputs
        ]
        first = [write.constant(_STEP, 0), *instr.operands, *blanks]
        state = write.add("tuple", self.state, first)
        kept = {k: instr.attrs[k] for k in ("metadata", "control-predecessors") if k in instr.attrs}
        loop = write.add("while", self.state, [state], condition=condition, body=body)
        at = len(write.lines) - 1
        write.lines[at] = replace(
            write.lines[at], attrs={**write.lines[at].attrs, **kept}, span=instr.span
        )
        held = write.parts(loop, self.state.parts)[1 + len(self.inputs) :]
        many, shapes = len(self.carries), [*self.outputs, *self.carries]
        results = [
            _laid_out(write, name, shape, wanted)
            for name, shape, wanted in zip(
                [*held[many:], *held[:many]], shapes, _arrays(instr.shape.leaves()), strict=True
            )
        ]
        if isinstance(instr.shape, TupleShape):
            names = {r: fresh(f"{instr.name}.{k}", taken) for k, r in enumerate(results)}
            whole = Instruction(
                instr.name, "tuple", instr.shape, tuple(names.values()), span=instr.span
            )
            return [*(_named(i, names) for i in write.lines), whole]
        return [_named(i, {results[0]: instr.name}) for i in write.lines]

    def condition(self, taken: set[str]) -> Computation:
        """Return the computation that tells whether there is another step."""
        write = Writer(f"{self.instr.name}.more", taken)
        state = write.parameter(self.state, 0)
        step = write.add("get-tuple-element", _STEP, [state], index=0)
        count = write.constant(_STEP, self.count)
        root = write.add("compare", _PRED, [step, count], direction="LT")
        return write.ended(root, fresh(f"{self.instr.name}.condition", taken))

    def body(self, taken: set[str]) -> Computation:
        """Return the computation of one step."""
        write = Writer(f"{self.instr.name}.step", taken)
        state = write.parameter(self.state, 0)
        step, *held = write.parts(state, self.state.parts)
        number = step
        if self.instr.attrs.get("is_reverse") is True:
            last = write.constant(_STEP, self.count - 1)
            number = write.add("subtract", _STEP, [last, step])
        inputs, others = held[: len(self.inputs)], held[len(self.inputs) :]
        carries, outputs = others[: len(self.carries)], others[len(self.carries) :]
        slices = [
            self._slice(write, array, shape, number, parameter.shape)
            for array, shape, parameter in zip(
                inputs, self.inputs, self.called.parameters, strict=False
            )
        ]
        result = self.called.result.shape
        found = write.add("call", result, [*slices, *carries], to_apply=self.called.name)
        parts = [found]
        if isinstance(result, TupleShape):
            parts = write.parts(found, result.parts)
        shapes = _arrays(result_parts(self.called))
        grown = [
            self._update(write, array, shape, number, part)
            for array, shape, part in zip(outputs, self.outputs, parts, strict=False)
        ]
        kept = len(grown)
        carried = [
            _laid_out(write, part, found_shape, shape)
            for part, found_shape, shape in zip(
                parts[kept:], shapes[kept:], self.carries, strict=True
            )
        ]
        following = write.add("add", _STEP, [step, write.constant(_STEP, 1)])
        root = write.add("tuple", self.state, [following, *inputs, *carried, *grown])
        return write.ended(root, fresh(f"{self.instr.name}.body", taken))

    def _slice(self, write: Writer, array: str, shape: Shape, number: str, wanted: AnyShape) -> str:
        row = self._row(shape)
        starts = self._starts(write, shape, number)
        cut = write.add("dynamic-slice", row, [array, *starts], dynamic_slice_sizes=row.dims)
        return write.add("reshape", wanted, [cut])

    def _update(self, write: Writer, array: str, shape: Shape, number: str, part: str) -> str:
        row = write.add("reshape", self._row(shape), [part])
        return write.add(
            "dynamic-update-slice", shape, [array, row, *self._starts(write, shape, number)]
        )

    def _row(self, shape: Shape) -> Shape:
        dims = (*shape.dims[: self.along], 1, *shape.dims[self.along + 1 :])
        return replace(shape, dims=dims)

    def _starts(self, write: Writer, shape: Shape, number: str) -> list[str]:
        zero = write.constant(_STEP, 0)
        return [number if dim == self.along else zero for dim in range(shape.rank)]


def _named(instr: Instruction, names: Mapping[str, str]) -> Instruction:
    return replace(instr, name=names.get(instr.name, instr.name))


def _laid_out(write: Writer, name: str, shape: Shape, wanted: Shape) -> str:
    """Return the array in the loop's layout."""
    if shape.minor_to_major == wanted.minor_to_major:
        return name
    return write.add("copy", wanted, [name])


def _arrays(shapes: Sequence[AnyShape] | Iterator[Shape]) -> tuple[Shape, ...]:
    return tuple(shape for shape in shapes if isinstance(shape, Shape))
