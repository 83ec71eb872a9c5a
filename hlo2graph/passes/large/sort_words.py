"""Sorts by one key, as sorts of words: a key and, in the lower half, where the element stood.

Words are all different, so that their order is the stable one, and one comparison of whole numbers
tells it. What is sorted is fetched at the end, from where the words say that it stood.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hlo2graph.hlo import DTYPES, Computation, Instruction, Literal, Shape, TupleShape
from hlo2graph.hlo.dtype import S32
from hlo2graph.ops.sort_key import SortKey
from hlo2graph.passes.draft import Draft
from hlo2graph.passes.large.arrays import Arrays
from hlo2graph.passes.rules.values import add_filled

U64 = DTYPES["u64"]
_S64 = DTYPES["s64"]
_BITS = {"f16": DTYPES["s16"], "bf16": DTYPES["s16"], "f32": S32}  # of floats, as whole numbers
_MOST = (1 << 31) - 1  # elements, whose places are counted in 32 bits
_HALF = 32  # bits of a key


def rising_words(name: str) -> Computation:
    """Return the comparator of words."""
    word = Shape(U64)
    lines = [Instruction(n, "parameter", word, payload=k) for k, n in enumerate("ab")]
    attrs = {"direction": "LT"}
    lines.append(Instruction("r", "compare", Shape(DTYPES["pred"]), ("a", "b"), attrs))
    return Computation(name, tuple(lines), "r")


def suits_words(draft: Draft, instr: Instruction, along: int, key: SortKey) -> bool:
    """Tell whether words can be made of keys, and rows lie in memory as they would."""
    dtype = key.dtype
    shapes = [draft.shape(o) for o in instr.operands]
    rows = list(reversed(range(shapes[0].rank)))
    return (
        (dtype.is_integer or dtype.name in _BITS)
        and along == rows[0]
        and shapes[0].elements <= _MOST
        and all(list(s.minor_to_major) == rows for s in shapes)
        and all(list(leaf.minor_to_major) == rows for leaf in instr.shape.leaves())
    )


@dataclass(frozen=True, slots=True)
class SortWords:
    """Writes words for a sort, and what it gives from them when they are sorted."""

    to: Arrays
    key: SortKey

    def words(self) -> str:
        """Return an array of words."""
        to = self.to
        number = self._number(self._key())
        if not self.key.rises:
            number = to.apply("subtract", to.like_filled(number, (1 << _HALF) - 1), number)
        high = to.apply("shift-left", number, to.like_filled(number, _HALF))
        shape = to.shape(high)
        return to.apply("or", high, to.iota(shape, shape.rank - 1))

    def end(self, words: str) -> None:
        """Put what the sort gives, as sorted words tell it, into its place."""
        to, like = self.to, self.to.like
        last = to.shape(words).rank - 1
        half = to.like_filled(words, (1 << _HALF) - 1)
        places = to.apply("convert", to.apply("and", words, half), to=S32)
        if not isinstance(like.shape, TupleShape):
            to.end(self._fetched(like.operands[0], places))
            return
        wanted = self._wanted()
        parts: list[str] = []
        for number, name in enumerate(like.operands):
            source = to.draft[name]
            if number not in wanted:
                parts.append(name)
            elif source.opcode == "iota" and source.attrs.get("iota_dimension") == last:
                dtype = to.shape(name).dtype
                parts.append(places if dtype is S32 else to.apply("convert", places, to=dtype))
            else:
                parts.append(self._fetched(name, places))
        kept = ("metadata", "control-predecessors")
        attrs = {name: held for name, held in like.attrs.items() if name in kept}
        made = replace(like, opcode="tuple", operands=tuple(parts), attrs=attrs)
        to.draft.become(like.name, made)

    def _wanted(self) -> set[int]:
        """Return which of the arrays that the sort gives are looked at."""
        draft, like = self.to.draft, self.to.like
        users = draft.users_of(like.name)
        if like.name == draft.root or any(u.opcode != "get-tuple-element" for u in users):
            return set(range(len(like.operands)))
        return {int(str(u.attrs["index"])) for u in users}

    def _key(self) -> str:
        """Return the key of each element."""
        to, computation = self.to, self.key.computation
        found: dict[str, str] = {}
        for instr in computation.instructions:
            if instr.opcode == "parameter":
                assert isinstance(instr.payload, int)
                found[instr.name] = to.like.operands[instr.payload // 2]
            elif instr.opcode == "constant":
                assert isinstance(instr.payload, Literal)
                assert isinstance(instr.shape, Shape)
                assert instr.payload.array is not None
                whole = replace(to.shape(to.like.operands[0]), dtype=instr.shape.dtype)
                found[instr.name] = add_filled(to.draft, to.like, whole, instr.payload.array)
            elif all(operand in found for operand in instr.operands):
                assert isinstance(instr.shape, Shape)
                operands = [found[operand] for operand in instr.operands]
                whole = replace(to.shape(operands[0]), dtype=instr.shape.dtype)
                found[instr.name] = to.add(instr.opcode, whole, operands, **instr.attrs)
        return found[computation.root]

    def _number(self, key: str) -> str:
        """Return whole numbers below 2^32 in the order of the keys; of floats, the total one."""
        to, dtype = self.to, self.to.shape(key).dtype
        if dtype.name in _BITS:
            key = to.apply("bitcast-convert", key, to=_BITS[dtype.name])
            sign = to.apply("shift-right-arithmetic", key, to.like_filled(key, dtype.bits - 1))
            turn = to.apply("and", sign, to.like_filled(key, (1 << (dtype.bits - 1)) - 1))
            key = to.apply("xor", key, turn)
        elif not dtype.name.startswith("s"):
            return to.apply("convert", key, to=U64)
        wide = to.apply("convert", key, to=_S64)
        moved = to.apply("add", wide, to.like_filled(wide, 1 << (_HALF - 1)))
        return to.apply("convert", moved, to=U64)

    def _fetched(self, name: str, places: str) -> str:
        """Return the elements of the same row that stood at `places`."""
        to = self.to
        shape, step = to.shape(name), places
        stride = shape.dims[-1]
        for dim in reversed(range(shape.rank - 1)):
            row = to.iota(to.shape(places), dim)
            step = to.apply("add", step, to.apply("multiply", row, to.like_filled(row, stride)))
            stride *= shape.dims[dim]
        flat = name
        if shape.rank > 1:
            flat = to.add("reshape", Shape(shape.dtype, (shape.elements,)), (name,))
        return to.add(
            "gather",
            shape,
            (flat, step),
            offset_dims=(),
            collapsed_slice_dims=(0,),
            start_index_map=(0,),
            index_vector_dim=shape.rank,
            slice_sizes=(1,),
        )
