"""Triangular systems in steps: blocks of the diagonal, in the order of substitution."""

from __future__ import annotations

from hlo2graph.hlo import DTYPES, Attribute, Shape
from hlo2graph.hlo.attributes import Raw
from hlo2graph.ops.linalg import largest_block
from hlo2graph.passes.large.arrays import Arrays

BELOW: dict[str, Attribute] = {
    "left_side": False,
    "lower": True,
    "unit_diagonal": False,
    "transpose_a": "ADJOINT",
}
"""How what is below a lower factor comes of the factor."""

_EXACT = Raw("{highest,highest}")
_REAL_OF = {"c64": DTYPES["f32"], "c128": DTYPES["f64"]}


def solved(to: Arrays, a: str, b: str, how: dict[str, Attribute]) -> str:
    """Return the solution of a system, as a triangular-solve of these attributes has it.

    What is taken out of the rows that are next is a product of its own, as for factors.
    """
    system = _System(to, a, how)
    size, block = to.shape(a).dims[-1], largest_block(to.shape(a).dtype)
    ranges = [(start, min(start + block, size)) for start in range(0, size, block)]
    if system.upwards:
        ranges.reverse()
    along = to.shape(b).rank - (2 if system.left else 1)
    part, rest = to.cut(b, along, *ranges[0]), b
    begin = 0  # of the rows that `rest` has
    found: list[str] = []
    for number, mine in enumerate(ranges):
        triangle = to.part(a, mine, mine)
        found.append(to.add("triangular-solve", to.shape(part), (triangle, part), **how))
        if number + 1 == len(ranges):
            break
        following = ranges[number + 1]
        far = (0, following[0]) if system.upwards else (following[1], size)
        near = to.cut(rest, along, following[0] - begin, following[1] - begin)
        part = system.less(near, following, mine, found[-1])
        if far[0] < far[1]:
            rest = to.cut(rest, along, far[0] - begin, far[1] - begin)
            rest = system.less(rest, far, mine, found[-1])
            begin = far[0]
    return to.join(found[::-1] if system.upwards else found, along) if found[1:] else found[0]


class _System:
    """The triangle of op(a) x = b, or of x op(a) = b."""

    def __init__(self, to: Arrays, a: str, how: dict[str, Attribute]) -> None:
        self.to, self.a = to, a
        self.left = bool(how.get("left_side", False))
        self.turned = how["transpose_a"] != "NO_TRANSPOSE"
        self.conjugate = how["transpose_a"] == "ADJOINT"
        lower = bool(how.get("lower", False)) != self.turned  # op(a) is
        self.upwards = lower != self.left

    def less(self, b: str, rows: tuple[int, int], known: tuple[int, int], solved: str) -> str:
        """Return these rows of b less what they need of the rows of x that are known."""
        to, last = self.to, self.to.shape(b).rank - 1
        # op(a) has b's rows and x's as columns, or the other way round.
        held = (rows, known) if self.left != self.turned else (known, rows)
        factor = to.part(self.a, *held)
        if self.conjugate:
            factor = conjugate(to, factor)
        if self.left:
            operands, dims = (factor, solved), (last - 1 if self.turned else last, last - 1)
        else:
            operands, dims = (solved, factor), (last, last if self.turned else last - 1)
        return to.apply("subtract", b, product(to, operands, dims, to.shape(b)))


def less(to: Arrays, name: str, one: str, other: str) -> str:
    """Return `name` less one times the adjoint of the other."""
    last = to.shape(name).rank - 1
    operands = one, conjugate(to, other)
    return to.apply("subtract", name, product(to, operands, (last, last), to.shape(name)))


def product(to: Arrays, operands: tuple[str, str], dims: tuple[int, int], shape: Shape) -> str:
    """Return the product of matrices along a dimension of each, as exact as their type."""
    batch = tuple(range(shape.rank - 2))
    attrs: dict[str, Attribute] = {"lhs_batch_dims": batch, "rhs_batch_dims": batch}
    return to.add(
        "dot",
        shape,
        operands,
        **(attrs if batch else {}),
        lhs_contracting_dims=dims[:1],
        rhs_contracting_dims=dims[1:],
        operand_precision=_EXACT,
    )


def real_part(to: Arrays, name: str) -> str:
    """Return the real parts of an array."""
    dtype = to.shape(name).dtype
    return to.apply("real", name, to=_REAL_OF[dtype.name]) if dtype.is_complex else name


def conjugate(to: Arrays, name: str) -> str:
    """Return the conjugates of an array."""
    dtype = to.shape(name).dtype
    if not dtype.is_complex:
        return name
    imag = to.apply("negate", to.apply("imag", name, to=_REAL_OF[dtype.name]))
    return to.apply("complex", real_part(to, name), imag, to=dtype)
