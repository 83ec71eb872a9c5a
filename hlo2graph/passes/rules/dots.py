"""Rules of dot and convolution: what lies around a product goes into its dimension numbers.

The products are the same, and what is summed; a machine may take the sums in another order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hlo2graph.hlo import (
    DTYPES,
    Attribute,
    DimLabels,
    Instruction,
    Layout,
    Shape,
    Window,
    WindowDim,
)
from hlo2graph.ops import OPS
from hlo2graph.ops.expect import integer
from hlo2graph.ops.matmul import product_of
from hlo2graph.ops.spec import Lowering
from hlo2graph.passes.draft import Draft
from hlo2graph.passes.rules.values import KEPT, Found, Rule, made, numbers

_BY_BYTES = frozenset({"bitcast", "custom-call", "fusion"})  # mean the bytes, as they lie
_SIDES = ("lhs", "rhs")
_ROLES = ("batch_dims", "contracting_dims")
_MIXED = ({"bf16", "f32"}, {"f16", "f32"}, {"bf16", "f16"})
_WIDENED = {("bf16", "f32"), ("f16", "f32"), ("s8", "s32")}  # every product is exact in the second


def dot(draft: Draft, instr: Instruction) -> Found:
    """Read operands before they are transposed or widened, and of one type."""
    if len(instr.operands) != 2 or "sparsity" in instr.attrs:
        return None
    if not numbers(instr, "lhs_contracting_dims"):
        return _outer(draft, instr)
    for side in range(2):
        found = _untransposed(draft, instr, side)
        if found is not None:
            return found
    return _narrow(draft, instr) or _alike(draft, instr)


def turned(draft: Draft, instr: Instruction) -> Found:
    """Multiply the other way round where that is the product as it is wanted: transposed."""
    [operand] = draft.operands(instr)
    if not _is_swappable(operand) or len(draft.users_of(operand.name)) > 1:
        return None
    lhs, rhs = operand.operands
    batch, summed = (len(numbers(operand, f"lhs_{role}")) for role in _ROLES)
    middle, rank = draft.shape(lhs).rank - summed, draft.shape(operand.name).rank
    wanted = (*range(batch), *range(middle, rank), *range(batch, middle))
    if not summed or numbers(instr) != wanted or not _may_be_row_major(draft, instr):
        return None
    attrs = {name: value for name, value in operand.attrs.items() if name not in KEPT}
    for role in _ROLES:
        for side, other in (_SIDES, _SIDES[::-1]):
            if (dims := numbers(operand, f"{other}_{role}")) or f"{side}_{role}" in attrs:
                attrs[f"{side}_{role}"] = dims
    assert isinstance(instr.shape, Shape)
    found = made(instr, "dot", (rhs, lhs), attrs)
    found = replace(found, shape=Shape(instr.shape.dtype, instr.shape.dims))
    return found if _is_as_good(draft, operand, found) else None


def _may_be_row_major(draft: Draft, instr: Instruction) -> bool:
    assert isinstance(instr.shape, Shape)
    return instr.shape.is_row_major or lies_freely(draft, instr.name)


def lies_freely(draft: Draft, name: str) -> bool:
    """Tell whether nothing depends on how a value lies: it is no result, nor are its bytes read."""
    return name != draft.root and all(
        user.opcode not in _BY_BYTES and OPS[user.opcode].lowering is Lowering.KERNEL
        for user in draft.users_of(name)
    )


def _is_swappable(dot: Instruction) -> bool:
    precisions = str(dot.attrs.get("operand_precision", "")).strip("{}").split(",")
    return (
        dot.opcode == "dot"
        and len(dot.operands) == 2
        and "sparsity" not in dot.attrs
        and len({text.strip() for text in precisions}) == 1
    )


def convolution(draft: Draft, instr: Instruction) -> Found:
    """Take a convolution whose windows are points, or all there is, for the product that it is."""
    labels = instr.attrs["dim_labels"]
    assert isinstance(labels, DimLabels)
    summed = _summed(draft, instr, labels)
    if summed is None:
        return _unturned(draft, instr, labels)
    source, kernel = instr.operands
    given = draft.shape(kernel)
    kept = {*"io", *summed}
    sides = [label for label in labels.rhs if label in kept]
    dims = tuple(given.dims[labels.rhs.index(label)] for label in sides)
    order = tuple(sides.index(labels.rhs[d]) for d in given.minor_to_major if labels.rhs[d] in kept)
    layout = None if given.is_row_major else Layout(order)  # the same bytes
    flat = draft.add(instr, "reshape", Shape(given.dtype, dims, layout), (kernel,))
    inner = [label for label in labels.lhs if label == "f" or label in summed]
    attrs: dict[str, Attribute] = {
        "lhs_contracting_dims": tuple(labels.lhs.index(label) for label in inner),
        "rhs_contracting_dims": tuple(sides.index("i" if x == "f" else x) for x in inner),
        **{k: v for k, v in instr.attrs.items() if k == "operand_precision"},
    }
    free = [*(label for label in labels.lhs if label not in inner), "f"]
    seen = [label for label in labels.out if label not in summed]
    wanted = tuple(free.index(label) for label in seen)
    turns, shape = list(wanted) != sorted(wanted), _without(instr, labels, seen)
    if not turns and not summed:
        return made(instr, "dot", (source, flat), attrs)
    sizes = tuple(shape.dims[seen.index(label)] for label in free)
    product = draft.add(instr, "dot", Shape(shape.dtype, sizes), (source, flat), attrs)
    turning: dict[str, Attribute] = {"dimensions": wanted}
    if not summed:
        return made(instr, "transpose", (product,), turning)
    if turns:
        product = draft.add(instr, "transpose", shape, (product,), turning)
    return made(instr, "reshape", (product,))


def _summed(draft: Draft, instr: Instruction, labels: DimLabels) -> str | None:
    """Return the spatial dimensions that a window is all of, where the others' are points."""
    window = instr.attrs.get("window", Window(()))
    assert isinstance(window, Window)
    groups = [integer(instr, f"{kind}_group_count", 1) for kind in ("feature", "batch")]
    if groups != [1, 1] or "?" in labels.lhs + labels.rhs + labels.out:
        return None
    source, out = draft.shape(instr.operands[0]), instr.shape
    assert isinstance(out, Shape)
    found = ""
    for number, dim in enumerate(window.dims):
        label = str(number)
        if replace(dim, reversal=False) == WindowDim(1):
            continue
        whole = source.dims[labels.lhs.index(label)] == dim.size > 0
        if not whole or out.dims[labels.out.index(label)] != 1:
            return None
        if replace(dim, stride=1) != WindowDim(dim.size):
            return None
        found += label
    return found


def _without(instr: Instruction, labels: DimLabels, seen: Sequence[str]) -> Shape:
    """Return the result's shape, of the dimensions in `seen` alone."""
    assert isinstance(instr.shape, Shape)
    return Shape(
        instr.shape.dtype, tuple(instr.shape.dims[labels.out.index(label)] for label in seen)
    )


def _unturned(draft: Draft, instr: Instruction, labels: DimLabels) -> Found:
    """Read a kernel before it is reversed, if no feature changes its place."""
    window = instr.attrs.get("window", Window(()))
    assert isinstance(window, Window)
    turned = draft[instr.operands[1]]
    places = [labels.rhs[d] for d in numbers(turned)] if turned.opcode == "reverse" else []
    if not places or not all(label.isdigit() for label in places):
        return None
    dims = tuple(
        replace(dim, reversal=dim.reversal != (str(d) in places))
        for d, dim in enumerate(window.dims)
    )
    operands = (instr.operands[0], turned.operands[0])
    return replace(instr, operands=operands, attrs={**instr.attrs, "window": Window(dims)})


def _untransposed(draft: Draft, instr: Instruction, side: int) -> Found:
    """Read one operand before a transpose that keeps the order of the dimensions left free.

    Not where a library could multiply with strides after the transpose, but not before it.
    """
    turned = draft[instr.operands[side]]
    if turned.opcode != "transpose":
        return None
    order = numbers(turned)
    used = {f"{_SIDES[side]}_{role}": numbers(instr, f"{_SIDES[side]}_{role}") for role in _ROLES}
    taken = {d for dims in used.values() for d in dims}
    free = [order[d] for d in range(len(order)) if d not in taken]
    if free != sorted(free):
        return None
    moved = {name: tuple(order[d] for d in dims) for name, dims in used.items() if dims}
    operands = list(instr.operands)
    operands[side] = turned.operands[0]
    found = replace(instr, operands=tuple(operands), attrs={**instr.attrs, **moved})
    return found if _is_as_good(draft, instr, found) else None


def _is_as_good(draft: Draft, before: Instruction, after: Instruction) -> bool:
    return _is_product(draft, after) or not _is_product(draft, before)


def _is_product(draft: Draft, instr: Instruction) -> bool:
    assert isinstance(instr.shape, Shape)
    lhs, rhs = (draft.shape(name) for name in instr.operands)
    return instr.shape.elements > 0 and product_of(instr, lhs, rhs, instr.shape) is not None


def _narrow(draft: Draft, instr: Instruction) -> Found:
    """Multiply what was widened as it was before: the products are exact in the result's type."""
    operands = draft.operands(instr)
    if any(o.opcode != "convert" for o in operands):
        return None
    types = {_type(draft, o.operands[0]) for o in operands}
    wide = {_type(draft, o.name) for o in operands} | {_type(draft, instr.name)}
    pairs: Sequence[tuple[str, str]] = [(a, b) for a in types for b in wide]
    if len(pairs) != 1 or pairs[0] not in _WIDENED:
        return None
    return replace(instr, operands=tuple(o.operands[0] for o in operands))


def _outer(draft: Draft, instr: Instruction) -> Found:
    """Multiply element by element where nothing is summed."""
    assert isinstance(instr.shape, Shape)
    shapes = [draft.shape(name) for name in instr.operands]
    types = {shape.dtype.name for shape in shapes}
    if len({*types, instr.shape.dtype.name}) > 1 and instr.shape.dtype.name != "f32":
        return None
    if "algorithm" in instr.attrs or not types <= {"bf16", "f16", "f32", instr.shape.dtype.name}:
        return None
    spread, free = [], len(numbers(instr, "lhs_batch_dims"))
    for side, name, shape in zip(_SIDES, instr.operands, shapes, strict=True):
        together, dims = numbers(instr, f"{side}_batch_dims"), []
        for dim in range(shape.rank):
            dims.append(together.index(dim) if dim in together else free)
            free += dim not in together
        wide = replace(shape, dtype=instr.shape.dtype)
        if shape.dtype is not wide.dtype:
            name = draft.add(instr, "convert", wide, (name,))
        attrs: dict[str, Attribute] = {"dimensions": tuple(dims)}
        spread.append(draft.add(instr, "broadcast", instr.shape, (name,), attrs))
    return made(instr, "multiply", spread)


def _alike(draft: Draft, instr: Instruction) -> Found:
    """Widen the narrower of two floats: no library, and no tensor core, takes both as they are."""
    shapes = [draft.shape(name) for name in instr.operands]
    if "algorithm" in instr.attrs or {s.dtype.name for s in shapes} not in _MIXED:
        return None
    wide = DTYPES["f32"]
    operands = [
        name
        if shape.dtype is wide
        else draft.add(instr, "convert", replace(shape, dtype=wide), (name,))
        for name, shape in zip(instr.operands, shapes, strict=True)
    ]
    return replace(instr, operands=tuple(operands))


def _type(draft: Draft, name: str) -> str:
    return draft.shape(name).dtype.name


DOTS: dict[str, Rule] = {"convolution": convolution, "dot": dot}
