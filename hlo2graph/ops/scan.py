"""scan: a computation run along a dimension, which carries values from one step to the next.

Operands are inputs, then the carries' first values; `num_carries` says how many those are. Each
step is given a slice of each input and the carries, and returns a slice of each output and the
carries. The result holds the outputs, then the last carries.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hlo2graph.hlo import AnyShape, Instruction, Shape
from hlo2graph.ops.device import NoDevice
from hlo2graph.ops.expect import (
    as_arrays,
    callee,
    host_arrays,
    integer,
    integers,
    refuse,
    require,
    result_parts,
    same,
    takes,
)
from hlo2graph.ops.reduction import as_result, result_types, results_of
from hlo2graph.ops.spec import Array, Computations, Evaluator, HostValue, OpSpec


def _along(instr: Instruction) -> int:
    dims = integers(instr, "dimensions")
    require(instr, len(dims) == 1 and dims[0] >= 0, "takes exactly one dimension")
    return dims[0]


def _without(instr: Instruction, shape: Shape, along: int) -> Shape:
    if along >= shape.rank:
        refuse(instr, f"dimensions has {along}, out of range for rank {shape.rank}")
    return Shape(shape.dtype, (*shape.dims[:along], *shape.dims[along + 1 :]))


def _infer(instr: Instruction, operands: Sequence[AnyShape], known: Computations) -> AnyShape:
    along, carried = _along(instr), integer(instr, "num_carries")
    shapes = as_arrays(instr, operands)
    require(
        instr,
        0 <= carried <= len(shapes),
        f"carries {carried} values, but has {len(shapes)} operands",
    )
    inputs, carries = shapes[: len(shapes) - carried], shapes[len(shapes) - carried :]
    called = callee(instr, "to_apply", known)
    takes(instr, called, [*(_without(instr, shape, along) for shape in inputs), *carries])
    parts = as_arrays(instr, result_parts(called))
    if len(parts) < carried:
        refuse(instr, f"carries {carried} values, but {called.name} returns {len(parts)}")
    outputs, last = parts[: len(parts) - carried], parts[len(parts) - carried :]
    for shape, first in zip(last, carries, strict=True):
        same(instr, shape, first, f"a carry that {called.name} returns")
    count = _steps(instr, inputs, outputs, along)
    grown = [_with(instr, shape, along, count) for shape in outputs]
    return results_of([*grown, *carries], instr)


def _with(instr: Instruction, shape: Shape, along: int, count: int) -> Shape:
    if along > shape.rank:
        refuse(instr, f"dimensions has {along}, out of range for an output of rank {shape.rank}")
    return Shape(shape.dtype, (*shape.dims[:along], count, *shape.dims[along:]))


def _steps(
    instr: Instruction, inputs: Sequence[Shape], outputs: Sequence[Shape], along: int
) -> int:
    """Return how many steps the inputs have; without any, as many as the written outputs."""
    counts = {shape.dims[along] for shape in inputs}
    if not inputs and outputs:
        counts = {s.dims[along] for s in result_types(instr)[: len(outputs)] if s.rank > along}
    if len(counts) != 1:
        refuse(instr, f"needs inputs of one size along dimension {along}, got {sorted(counts)}")
    return counts.pop()


def _scan(instr: Instruction, operands: Sequence[HostValue], evaluate: Evaluator) -> HostValue:
    arrays, types = host_arrays(operands), result_types(instr)
    along, carried = _along(instr), integer(instr, "num_carries")
    inputs, carries = arrays[: len(arrays) - carried], arrays[len(arrays) - carried :]
    outputs = [np.empty(s.dims, s.dtype.numpy) for s in types[: len(types) - carried]]
    rows = [np.moveaxis(array, along, 0) for array in inputs]
    targets = [np.moveaxis(array, along, 0) for array in outputs]
    count = len([*rows, *targets][0])
    steps = range(count - 1, -1, -1) if instr.attrs.get("is_reverse") is True else range(count)
    for step in steps:
        given = [np.asarray(row[step]) for row in rows]
        found = evaluate(str(instr.attrs["to_apply"]), [*given, *carries])
        parts: tuple[Array, ...] = host_arrays(found if isinstance(found, tuple) else (found,))
        for target, part in zip(targets, parts, strict=False):
            target[step] = part
        carries = parts[len(outputs) :]
    return as_result(instr, [*outputs, *carries])


SCAN = OpSpec(
    "scan",
    (1, None),
    _infer,
    _scan,
    frozenset({"dimensions", "is_associative", "is_reverse", "num_carries", "to_apply"}),
    required=frozenset({"dimensions", "num_carries", "to_apply"}),
    device=NoDevice("becomes a loop, which cannot stand inside a kernel"),
)
