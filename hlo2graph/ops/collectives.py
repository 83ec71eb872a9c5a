"""Communication between devices, which runs where the device is alone.

Shapes follow OpenXLA's operation page. The start of an asynchronous pair holds what its done
hands out: all-reduce-start its result, the others a tuple of operands and results; modules that
were exported from MLIR have the result alone there too.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo2graph.hlo import AnyShape, Instruction, Shape, TupleShape
from hlo2graph.ops import one_device
from hlo2graph.ops.asynchronous import second_part
from hlo2graph.ops.device import INLINED, ByInstruction
from hlo2graph.ops.expect import (
    as_array,
    as_arrays,
    callee,
    dimension,
    refuse,
    result_parts,
    same,
    takes,
    tuple_of,
)
from hlo2graph.ops.groups import check_groups, check_pairs
from hlo2graph.ops.spec import (
    Computations,
    Evaluator,
    HostRule,
    HostValue,
    Infer,
    Lowering,
    OpSpec,
)


def _first(_: Instruction, operands: Sequence[HostValue], __: Evaluator) -> HostValue:
    return operands[0]


def _joined(parts: Sequence[AnyShape]) -> AnyShape:
    return parts[0] if len(parts) == 1 else TupleShape(tuple(parts))


def _bare(shape: Shape) -> Shape:
    return shape.with_layout(None)


def _all_reduce(instr: Instruction, operands: Sequence[AnyShape], known: Computations) -> AnyShape:
    shapes = as_arrays(instr, operands)
    _check_reducer(instr, shapes, known)
    return _joined([_bare(shape) for shape in shapes])


def _check_reducer(instr: Instruction, shapes: Sequence[Shape], known: Computations) -> None:
    """Require (T[], T[]) -> T[] or (T[]); T may be wider than the operands, to add up in."""
    called = callee(instr, "to_apply", known)
    parts = result_parts(called)
    if len(parts) != 1:
        refuse(instr, f"needs a scalar of {called.name}, which gives {called.result.shape}")
    scalar = Shape(as_array(instr, parts[0], f"result of {called.name}").dtype)
    same(instr, parts[0], scalar, f"the result of {called.name}")
    takes(instr, called, (scalar, scalar))
    for shape in shapes:
        if shape.dtype.kind is not scalar.dtype.kind:
            refuse(instr, f"adds up {shape.dtype} by {called.name}, which takes {scalar.dtype}")


def _resized(instr: Instruction, shape: Shape, result: Shape, *, grow: bool) -> Shape:
    """Return `shape` with the attribute's dimension as many times as long, or as short, as written.

    Whether that is the size of the groups depends on the module's header, which plays no part here.
    """
    along = dimension(instr, "dimensions", shape.rank)
    wide, narrow = (result, shape) if grow else (shape, result)
    if wide.rank != narrow.rank or not narrow.dims[along]:
        return shape.with_layout(None)
    count = max(1, -(-wide.dims[along] // narrow.dims[along]))
    if not grow and shape.dims[along] % count:
        refuse(
            instr,
            f"cannot split the {shape.dims[along]} elements of dimension {along} among {count}",
        )
    dims = list(shape.dims)
    dims[along] = dims[along] * count if grow else dims[along] // count
    return Shape(shape.dtype, tuple(dims))


def _results(instr: Instruction, shape: AnyShape, count: int) -> tuple[Shape, ...]:
    """Return the array shapes of a result that is a tuple where there are several operands."""
    parts = (shape,) if count == 1 else tuple_of(instr, shape).parts
    if len(parts) != count:
        refuse(instr, f"has {count} operands, but {len(parts)} results")
    return as_arrays(instr, parts)


def _all_gather(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> AnyShape:
    return _gathered(instr, operands, instr.shape)


def _gathered(
    instr: Instruction, operands: Sequence[AnyShape], result: AnyShape, *, grow: bool = True
) -> AnyShape:
    shapes = as_arrays(instr, operands)
    results = _results(instr, result, len(shapes))
    pairs = zip(shapes, results, strict=True)
    return _joined([_resized(instr, *pair, grow=grow) for pair in pairs])


def _all_gather_start(
    instr: Instruction, operands: Sequence[AnyShape], _: Computations
) -> AnyShape:
    if isinstance(instr.shape, Shape):
        return _gathered(instr, operands, instr.shape)
    parts = tuple_of(instr, instr.shape, least=2).parts
    return TupleShape((_joined(operands), _gathered(instr, operands, parts[1]), *parts[2:]))


def _reduce_scatter(
    instr: Instruction, operands: Sequence[AnyShape], known: Computations
) -> AnyShape:
    _check_reducer(instr, as_arrays(instr, operands), known)
    return _gathered(instr, operands, instr.shape, grow=False)


def _all_to_all(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> AnyShape:
    shapes = as_arrays(instr, operands)
    if "dimensions" in instr.attrs:
        if len(shapes) != 1:
            refuse(instr, f"along a dimension takes one operand, got {len(shapes)}")
        dimension(instr, "dimensions", shapes[0].rank)
        return _bare(shapes[0])
    for shape in shapes[1:]:
        same(instr, shape, shapes[0], "each operand")
    return TupleShape(tuple(_bare(shape) for shape in shapes))


def _ragged(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> AnyShape:
    given, target, *counts = as_arrays(instr, operands)
    if given.dtype is not target.dtype or given.dims[1:] != target.dims[1:]:
        refuse(instr, f"needs an operand and a result that match, got {given} and {target}")
    for shape in counts[1:]:
        same(instr, shape, counts[0], "its offsets and sizes")
    return _bare(target)


def _permuted(operands: Sequence[AnyShape], instr: Instruction) -> AnyShape:
    """Return the result; in place there are four operands: source, target and where in each."""
    if len(operands) == 4 and "slice_sizes" in instr.attrs:
        return operands[1]
    return _joined(as_arrays(instr, operands))


def _permute(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> AnyShape:
    return _permuted(operands, instr)


def _permute_start(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> AnyShape:
    if isinstance(instr.shape, Shape):
        return _permuted(operands, instr)
    parts = tuple_of(instr, instr.shape, least=2).parts
    taken = operands[:1] if "slice_sizes" in instr.attrs else operands
    return TupleShape((_joined(taken), _permuted(operands, instr), *parts[2:]))


def _broadcast(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> AnyShape:
    return _joined(as_arrays(instr, operands))


def _same_as_operands(_: Instruction, operands: Sequence[AnyShape], __: Computations) -> AnyShape:
    return _joined(operands)


def _second_part(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> AnyShape:
    if isinstance(operands[0], Shape):
        return operands[0]
    return tuple_of(instr, operands[0], least=2).parts[1]


def _checked(infer: Infer) -> Infer:
    """Return `infer`, which looks at the groups or pairs first."""

    def rule(instr: Instruction, operands: Sequence[AnyShape], known: Computations) -> AnyShape:
        check_groups(instr)
        if "slice_sizes" not in instr.attrs:
            check_pairs(instr)
        return infer(instr, operands, known)

    return rule


def _collective(
    opcode: str,
    arity: int | tuple[int, int | None],
    infer: Infer,
    *attrs: str,
    required: tuple[str, ...] = (),
) -> OpSpec:
    return OpSpec(
        opcode,
        arity,
        _checked(infer),
        one_device.host,
        frozenset(attrs),
        Lowering.COLLECTIVE,
        required=frozenset(required),
        effect=True,
        why_not=one_device.why_not,
        device=ByInstruction(one_device.device),
    )


def _done(opcode: str, infer: Infer, host: HostRule) -> OpSpec:
    """Describe an end: whether it can run was decided where it was started."""
    return OpSpec(
        opcode, 1, infer, host, frozenset(), Lowering.COLLECTIVE, effect=True, device=INLINED
    )


_SOME = (1, None)
_GROUPS = ("channel_id", "replica_groups")
_PLACED = (*_GROUPS, "constrain_layout", "dimensions")
_GATHER = (*_PLACED, "use_global_device_ids")
_REDUCE = (*_GROUPS, "constrain_layout", "use_global_device_ids", "to_apply", "mode")
_PERMUTE = ("channel_id", "source_target_pairs", "slice_sizes")

COLLECTIVES: tuple[OpSpec, ...] = (
    _collective("all-gather", _SOME, _all_gather, *_GATHER, required=("dimensions",)),
    _collective("all-gather-start", _SOME, _all_gather_start, *_GATHER, required=("dimensions",)),
    _done("all-gather-done", _second_part, second_part),
    _collective("all-reduce", _SOME, _all_reduce, *_REDUCE, required=("to_apply",)),
    _collective("all-reduce-start", _SOME, _all_reduce, *_REDUCE, required=("to_apply",)),
    _done("all-reduce-done", _same_as_operands, _first),
    _collective(
        "reduce-scatter",
        _SOME,
        _reduce_scatter,
        *_REDUCE,
        "dimensions",
        required=("dimensions", "to_apply"),
    ),
    _collective("all-to-all", _SOME, _all_to_all, *_PLACED),
    _collective("ragged-all-to-all", 6, _ragged, *_GROUPS, "dimensions"),
    _collective("collective-broadcast", _SOME, _broadcast, *_GROUPS),
    _collective(
        "collective-permute", _SOME, _permute, *_PERMUTE, required=("source_target_pairs",)
    ),
    _collective(
        "collective-permute-start",
        _SOME,
        _permute_start,
        *_PERMUTE,
        required=("source_target_pairs",),
    ),
    _done("collective-permute-done", _second_part, second_part),
)
