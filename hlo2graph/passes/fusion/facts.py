"""What the cost rule needs to know of one instruction, wherever it stands."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from hlo2graph.hlo import DimLabels, Instruction, Shape
from hlo2graph.ops import OPS
from hlo2graph.ops.cumulative import scanned_dim
from hlo2graph.ops.device_folds import window_dims
from hlo2graph.ops.expect import integers
from hlo2graph.ops.region import FEWEST, needs_own_kernel
from hlo2graph.passes.fusion.body import VIEWS, Body

IN_PLACE = frozenset({"dynamic-update-slice", "scatter"})
NO_WORK = VIEWS | {"constant", "parameter", "tuple"}
FOLDS = frozenset(
    {"convolution", "dot", "ragged-dot", "reduce", "reduce-window", "scaled-dot"}
    | {"select-and-scatter"}
)
_ALONE = frozenset({"reduce", "reduce-window", "select-and-scatter"})  # if short, for a thread
_TRANSCENDENTAL = frozenset(
    {"acos", "acosh", "asin", "asinh", "atan2", "atanh", "cbrt", "cosh", "cosine", "erf"}
    | {"exponential", "exponential-minus-one", "log", "log-plus-one", "logistic", "power"}
    | {"sine", "sinh", "tan", "tanh"}
)
SHORT_FOLD = 16  # steps
_WEIGHTS = {  # of other instructions 1, but for folds
    **dict.fromkeys(_TRANSCENDENTAL, 16),
    **dict.fromkeys(("divide", "remainder", "rsqrt", "sqrt"), 8),
    "broadcast": 0,
}
_READ_WEIGHT = 3  # of a step of a short fold, which each reader reads anew, from the cache
_FFT_WEIGHT = 4  # for each doubling of the length
_SCATTER_BLOCKS = 1024  # each of which looks at all indices
_MOVES = frozenset({"reshape", "reverse", "transpose"})  # that a convolution reads through
_TILE = 16  # results that share what is computed of an operand


@dataclass(frozen=True, slots=True)
class Ask:
    """An operand: how many of its elements one element takes, and whether at another index."""

    operand: str
    fan: float
    moves: bool


@dataclass(frozen=True, slots=True)
class Facts:
    """Of one instruction.

    elements: of its largest leaf. bytes: that it has. read: that a kernel reads of it, which will
    take in a broadcast. weight: the cheap operations that one of them takes.
    is_dear: transcendental, or a fold. is_fold: of more than a few steps.
    is_hero: it may decide for the kernel's form.
    varies: its last bits depend on the kernel: threads fold in an order that the form decides.
    turns: it reads its operand across the grain, along another dimension than lies in memory.
    """

    elements: int
    bytes: int
    read: int
    weight: int
    has_work: bool
    is_dear: bool
    is_fold: bool
    is_hero: bool
    varies: bool
    turns: bool
    asks: tuple[Ask, ...]


def facts_of(body: Body, name: str) -> Facts:
    """Return the facts of an instruction of `body`."""
    instr = body[name]
    elements = _elements(instr)
    is_fold = instr.opcode in FOLDS and not _is_short(body, instr, elements)
    return Facts(
        elements,
        instr.shape.size,
        (body[instr.operands[0]] if instr.opcode == "broadcast" else instr).shape.size,
        _weight(body, instr, elements),
        instr.opcode not in NO_WORK,
        is_fold or instr.opcode in _TRANSCENDENTAL or instr.opcode == "fft",
        is_fold,
        instr.opcode in FOLDS or instr.opcode == "fft" or needs_own_kernel(instr),
        _varies(body, instr, elements),
        _turns(body, instr),
        _asks(body, instr, elements),
    )


def accumulates(instr: Instruction) -> bool:
    """Tell whether a kernel reads each element once, along rows, and folds it into all behind."""
    return instr.opcode == "reduce-window" and scanned_dim(instr) is not None


def _is_short(body: Body, instr: Instruction, elements: int) -> bool:
    """Tell whether a fold has so few steps that each element that reads it may do it for itself.

    So have those of parts, where few results were folded in two steps.
    """
    return instr.opcode == "reduce" and _fan(body, instr, 0, max(1, elements)) <= SHORT_FOLD


def _varies(body: Body, instr: Instruction, elements: int) -> bool:
    """Tell whether two kernels may compute it with other last bits.

    A thread that folds alone does so in the order of the elements, in any kernel.
    """
    if instr.opcode not in FOLDS | {"fft"}:
        return False
    called = set(instr.called())
    if called and called <= body.exact:
        return False
    alone = instr.opcode in _ALONE and _fan(body, instr, 0, max(1, elements)) < FEWEST
    rounds = any(s.dtype.is_float or s.dtype.is_complex for s in instr.shape.leaves())
    return rounds and not alone


def _elements(instr: Instruction) -> int:
    return max((leaf.elements for leaf in instr.shape.leaves()), default=0)


def _asks(body: Body, instr: Instruction, elements: int) -> tuple[Ask, ...]:
    if instr.opcode in ("tuple", "parameter", "constant"):
        return ()
    if OPS[instr.opcode].elementwise or instr.opcode == "get-tuple-element":
        return tuple(Ask(operand, 1, moves=False) for operand in dict.fromkeys(instr.operands))
    own = max(1, elements)
    once = accumulates(instr)
    return tuple(
        Ask(operand, 1 if once else _fan(body, instr, number, own), moves=True)
        for number, operand in enumerate(instr.operands)
    )


def _fan(body: Body, instr: Instruction, number: int, own: int) -> float:
    """Return how many elements of operand `number` one of the `own` elements takes."""
    opcode, share = instr.opcode, _elements(body[instr.operands[number]]) / own
    if opcode in FOLDS:
        return _folded(body, instr, number, share)
    if opcode in ("concatenate", "fft", "pad", "sort"):
        return min(1.0, share)
    if opcode == "dynamic-update-slice" and number == 1:
        return share
    if opcode == "scatter":
        indices = number == len(instr.operands) // 2
        return share * (min(_SCATTER_BLOCKS, -(-own // 256)) if indices else 1)
    return 1


def _folded(body: Body, instr: Instruction, number: int, share: float) -> float:
    """Return how many elements of operand `number` are folded into one result."""
    match instr.opcode:
        case "reduce":
            return max(1, share) if number < len(instr.operands) // 2 else 1
        case "reduce-window" | "select-and-scatter":
            return prod(w.size for w in window_dims(instr))
        case "convolution" if not _is_read_through(body, body[instr.operands[number]]):
            return _products(body, instr)
        case "dot" | "convolution":
            return max(1, _products(body, instr) / _TILE)
        case _:
            return _products(body, instr)


def _is_read_through(body: Body, instr: Instruction) -> bool:
    """Tell whether a convolution reads through it, neighbours beside each other as before."""
    return instr.opcode in _MOVES and not _turns(body, instr)


def _products(body: Body, instr: Instruction) -> float:
    """Return how many products make one element."""
    shapes = [body[o].shape for o in instr.operands[:2]]
    lhs, rhs = shapes[0], shapes[-1]
    assert isinstance(lhs, Shape)
    assert isinstance(rhs, Shape)
    match instr.opcode:
        case "dot":
            return prod(lhs.dims[d] for d in integers(instr, "lhs_contracting_dims", ()))
        case "convolution":
            labels = instr.attrs["dim_labels"]
            assert isinstance(labels, DimLabels)
            return rhs.elements / max(1, rhs.dims[labels.rhs.index("o")])
        case _:
            return max(lhs.dims, default=1)


def _weight(body: Body, instr: Instruction, elements: int) -> int:
    """Return the cheap operations that one element takes."""
    if (weight := _WEIGHTS.get(instr.opcode)) is not None:
        return weight
    if instr.opcode in ("reduce", "reduce-window", "select-and-scatter"):
        steps = max(1, int(_fan(body, instr, 0, max(1, elements))))
        return steps * (_READ_WEIGHT if steps <= SHORT_FOLD else 1)
    if instr.opcode in FOLDS:
        return 2 * max(1, int(_products(body, instr)))
    if instr.opcode == "fft":
        return _FFT_WEIGHT * max(integers(instr, "fft_length")).bit_length()
    return 1


def _turns(body: Body, instr: Instruction) -> bool:
    if instr.opcode != "transpose":
        return False
    source, target = body[instr.operands[0]].shape, instr.shape
    assert isinstance(source, Shape)
    assert isinstance(target, Shape)
    order = integers(instr, "dimensions")
    stored = [order[d] for d in target.minor_to_major if target.dims[d] != 1]
    before = [d for d in source.minor_to_major if source.dims[d] != 1]
    return stored[:1] != before[:1]
