"""Whether instructions that a file gave are such as the parser makes, and are legal.

The first is: each attribute is of its kind, constants have values and parameters numbers. The
second is what running them from their HLO takes: operands come before their users, and the shapes
are those that follow from theirs. It takes no parser, as the frontend's verify does.
"""

from __future__ import annotations

from collections.abc import Mapping

from hlo2graph.hlo import KINDS, AnyShape, AttrKind, Computation, Instruction, Literal, Raw
from hlo2graph.hlo.attributes import DimLabels, PaddingDim, SliceDim, Window
from hlo2graph.ops import OPS
from hlo2graph.saved.typed import Fits, fits

_OF_KIND: Mapping[AttrKind, Fits] = {
    AttrKind.INT: fits(int),
    AttrKind.FLOAT: fits(int | float),
    AttrKind.BOOL: fits(bool),
    **dict.fromkeys((AttrKind.WORD, AttrKind.STRING, AttrKind.COMPUTATION), fits(str)),
    AttrKind.INTS: fits(tuple[int, ...]),
    **dict.fromkeys((AttrKind.COMPUTATIONS, AttrKind.INSTRUCTIONS), fits(tuple[str, ...])),
    AttrKind.WINDOW: fits(Window),
    AttrKind.DIM_LABELS: fits(DimLabels),
    AttrKind.PADDING: fits(tuple[PaddingDim, ...]),
    AttrKind.SLICE: fits(tuple[SliceDim, ...]),
    AttrKind.SHAPE: fits(AnyShape),
    AttrKind.SHAPES: fits(tuple[AnyShape, ...]),
    AttrKind.RAW: fits(Raw),
}


def check_computations(computations: Mapping[str, Computation]) -> None:
    """Check computations by name. Raises ValueError, which names what does not fit."""
    for name, computation in computations.items():
        numbers = [parameter.payload for parameter in computation.parameters]
        is_whole = computation.root in computation and numbers == list(range(len(numbers)))
        if name != computation.name or not is_whole:
            raise ValueError(f"{name} cannot be so")
        for instruction in computation.instructions:
            if not (_has_payload(instruction) and _has_attributes(instruction)):
                raise ValueError(f"{instruction.name} of {name} cannot be so")


def check_legal(computations: Mapping[str, Computation]) -> None:
    """Check computations that may call those before them.

    Raises:
        ValueError, KeyError: one is not legal; an HloError is as good.
    """
    known: dict[str, Computation] = {}
    for name, computation in computations.items():
        shapes: dict[str, AnyShape] = {}
        for instruction in computation.instructions:
            if instruction.name in shapes or not _is_legal(instruction, shapes, known):
                raise ValueError(f"{instruction.name} of {name} is not legal")
            shapes[instruction.name] = instruction.shape
        known[name] = computation


def _is_legal(
    instruction: Instruction, shapes: Mapping[str, AnyShape], known: Mapping[str, Computation]
) -> bool:
    spec, count = OPS[instruction.opcode], len(instruction.operands)
    least, most = (spec.arity, spec.arity) if isinstance(spec.arity, int) else spec.arity
    if count < least or (most is not None and count > most) or not _has_order(instruction.shape):
        return False
    if any(called not in known for called in instruction.called()):
        return False
    operands = [shapes[name] for name in instruction.operands]
    return spec.infer(instruction, operands, known).compatible(instruction.shape)


def _has_order(shape: AnyShape) -> bool:
    return all(sorted(s.minor_to_major) == list(range(s.rank)) for s in shape.leaves())


def _has_payload(instruction: Instruction) -> bool:
    payload = instruction.payload
    match instruction.opcode:
        case "parameter":
            return type(payload) is int and payload >= 0
        case "constant":
            return isinstance(payload, Literal | tuple)
        case _:
            return payload is None


def _has_attributes(instruction: Instruction) -> bool:
    return all(
        isinstance(value, Raw) or _OF_KIND[KINDS[name]](value)
        for name, value in instruction.attrs.items()
    )
