"""reduce and map: a region folded along dimensions, or applied element by element.

Follows the OpenXLA sections Reduce and Map. The order of folding is row-major in the reduced
dimensions; narrow floats under a simple region accumulate in float32, as XLA:CPU does.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from hlo2graph.hlo import AnyShape, Instruction, Shape, TupleShape
from hlo2graph.ops import device_folds as device
from hlo2graph.ops.device_compute import map_
from hlo2graph.ops.expect import (
    as_arrays,
    callee,
    dimensions,
    folds,
    host_arrays,
    integers,
    require,
    takes_scalars,
)
from hlo2graph.ops.folding import fold_leading, fold_windows, region_fold, simple_ufunc
from hlo2graph.ops.scalar_region import is_elementwise_region
from hlo2graph.ops.spec import Array, Computations, Evaluator, HostValue, OpSpec
from hlo2graph.ops.widening import compute_dtype


def split_inputs(
    instr: Instruction, operands: Sequence[AnyShape]
) -> tuple[tuple[Shape, ...], tuple[Shape, ...]]:
    """Return inputs and init values, checked: n arrays of equal dimensions, then n scalars."""
    arrays = as_arrays(instr, operands)
    require(
        instr,
        len(arrays) % 2 == 0,
        f"takes as many init values as inputs, got {len(arrays)} operands",
    )
    inputs, inits = arrays[: len(arrays) // 2], arrays[len(arrays) // 2 :]
    for number, (value, init) in enumerate(zip(inputs, inits, strict=True)):
        require(
            instr,
            value.dims == inputs[0].dims,
            f"inputs must have equal dimensions, got {inputs[0]} and {value}",
        )
        require(
            instr,
            not init.dims and init.dtype is value.dtype,
            f"init value {number} must be {value.dtype}[], got {init}",
        )
    return inputs, inits


def results_of(types: Sequence[AnyShape], instr: Instruction) -> AnyShape:
    """Return one array's shape alone, several as a tuple; a written 1-tuple stays one."""
    one_tuple = isinstance(instr.shape, TupleShape) and len(instr.shape.parts) == 1
    return types[0] if len(types) == 1 and not one_tuple else TupleShape(tuple(types))


def result_types(instr: Instruction) -> tuple[Shape, ...]:
    """Return the leaves of the instruction's shape."""
    return tuple(instr.shape.leaves())


def as_result(instr: Instruction, arrays: Sequence[Array]) -> HostValue:
    """Return the arrays, in the result's element types, as the result's shape has them."""
    cast = [
        np.ascontiguousarray(a, dtype=s.dtype.numpy).reshape(s.dims)
        for a, s in zip(arrays, result_types(instr), strict=True)
    ]
    return tuple(cast) if isinstance(instr.shape, TupleShape) else cast[0]


def _infer_reduce(
    instr: Instruction, operands: Sequence[AnyShape], computations: Computations
) -> AnyShape:
    inputs, _ = split_inputs(instr, operands)
    reduced = dimensions(instr, "dimensions", inputs[0].rank, needed=True)
    kept = tuple(n for d, n in enumerate(inputs[0].dims) if d not in reduced)
    folds(instr, "to_apply", computations, [s.dtype for s in inputs])
    return results_of([Shape(s.dtype, kept) for s in inputs], instr)


def _reduce(instr: Instruction, operands: Sequence[HostValue], evaluate: Evaluator) -> HostValue:
    arrays = host_arrays(operands)
    inputs, inits = arrays[: len(arrays) // 2], arrays[len(arrays) // 2 :]
    dims = tuple(sorted(integers(instr, "dimensions", ())))
    name = str(instr.attrs["to_apply"])
    dtype = result_types(instr)[0].dtype
    ufunc = simple_ufunc(evaluate, name) if len(inputs) == 1 else None
    if ufunc is not None:
        work = compute_dtype(dtype)
        total = ufunc.reduce(
            inputs[0].astype(work, copy=False), axis=dims, dtype=work, initial=inits[0].astype(work)
        )
        return as_result(instr, [np.asarray(total)])
    kept = [d for d in range(inputs[0].ndim) if d not in dims]
    fold = region_fold(evaluate, name)
    turned = [a.transpose(*dims, *kept) for a in inputs]
    if len(inputs) == 1:
        return as_result(instr, [fold_windows(fold, inits[0], turned[0], len(dims))])
    shape = tuple(inputs[0].shape[d] for d in kept)
    steps = prod(inputs[0].shape[d] for d in dims)
    rows = [a.reshape(steps, *shape) for a in turned]
    return as_result(instr, fold_leading(fold, [np.broadcast_to(i, shape) for i in inits], rows))


def _infer_map(
    instr: Instruction, operands: Sequence[AnyShape], computations: Computations
) -> AnyShape:
    # XLA maps all dimensions, whatever the attribute names.
    arrays = as_arrays(instr, operands)
    first = arrays[0]
    for other in arrays[1:]:
        require(
            instr,
            other.dims == first.dims,
            f"operands must have equal dimensions, got {first} and {other}",
        )
    called = callee(instr, "to_apply", computations)
    takes_scalars(instr, called, "to_apply", [a.dtype for a in arrays])
    result = called.result.shape
    require(
        instr,
        isinstance(result, Shape) and not result.dims,
        f"to_apply={called.name} must return a scalar, it returns {result}",
    )
    assert isinstance(result, Shape)
    return Shape(result.dtype, first.dims)


def _map(instr: Instruction, operands: Sequence[HostValue], evaluate: Evaluator) -> HostValue:
    arrays = host_arrays(operands)
    name = str(instr.attrs["to_apply"])
    shape = arrays[0].shape
    if is_elementwise_region(evaluate.computations, name):
        return as_result(instr, [np.broadcast_to(np.asarray(evaluate(name, arrays)), shape)])
    values = [evaluate(name, [np.asarray(a[at]) for a in arrays]) for at in np.ndindex(shape)]
    result = np.array(values, dtype=result_types(instr)[0].dtype.numpy)
    return as_result(instr, [result])


REDUCTION = (
    OpSpec(
        "reduce",
        (2, None),
        _infer_reduce,
        _reduce,
        frozenset({"dimensions", "to_apply"}),
        required=frozenset({"dimensions", "to_apply"}),
        device=device.reduce,
    ),
    OpSpec(
        "map",
        (1, None),
        _infer_map,
        _map,
        frozenset({"dimensions", "to_apply"}),
        required=frozenset({"to_apply"}),
        device=map_,
    ),
)
