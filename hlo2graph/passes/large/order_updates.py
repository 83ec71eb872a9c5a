"""Let the many updates of a scatter be folded by many threads, with the same bits each time.

In and out: a Module of the same meaning. Where updates may come in any order, each thread takes
one, but for that the result must lie where the operand does: what else reads, and what is not ours
to write over, is copied by a kernel of its own; what is made for the scatter is kept out of its
fusion. Where order matters, updates of rows are sorted by what they update, which keeps the order
of those of one row; threads then find theirs side by side, where a row has many in chunks that are
folded before (fold_chunks.py). Where elements are few, each looks at all updates for its own; very
many that are added to elements are made such that no order matters.
Updates that are few, or whose windows may overlap in other ways, stay as they are, but for a large
result, which is copied by a kernel of its own too.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from hlo2graph.hlo import (
    DTYPES,
    Attribute,
    Computation,
    DType,
    Instruction,
    Module,
    Shape,
    TupleShape,
)
from hlo2graph.hlo.dtype import S32
from hlo2graph.ops.expect import integer, integers
from hlo2graph.ops.free_scatter import folds_freely, is_of_rows
from hlo2graph.passes.draft import Draft, is_settled
from hlo2graph.passes.large.arrays import Arrays
from hlo2graph.passes.large.compared_sums import compares, write_compared
from hlo2graph.passes.large.exact_sums import ExactSums, sums_exactly
from hlo2graph.passes.large.fold_chunks import takes_chunks, write_chunks
from hlo2graph.passes.names import Names
from hlo2graph.passes.redraft import redraft

FREE = 512  # updates, from which on a thread each is worth a copy
ORDERED = 4096  # from which on sorting them is
MERGED = 1 << 15  # updates, more than which are sorted by digits where two are all that rows have
COPIED = 256  # the same of a large operand, which what looks for them copies, or fills, on the way
WORTH_LOOKING = 12 << 20  # bytes of such an operand, at least
LARGE = 64 << 20  # bytes of an operand, more than which another kernel copies sooner
_S64 = DTYPES["s64"]


def order_updates(module: Module) -> Module:
    """Return `module` with scatters of many updates made ready for many threads."""
    regions = _Regions(module)

    def rewrite(draft: Draft) -> Computation:
        regions.sorted.clear()
        for instr in [i for i in draft.instructions.values() if i.opcode == "scatter"]:
            shapes = [draft.shape(o) for o in instr.operands]
            if draft.is_pure(instr) and all(s.elements and is_settled(s) for s in shapes):
                _prepare(draft, instr, shapes, regions)
                _fold_chunks(draft, draft[instr.name])
        return draft.done()

    made = redraft(module, "scatter", rewrite)
    if not regions.made:
        return made
    return replace(made, computations=regions.made | dict(made.computations))


def _prepare(draft: Draft, instr: Instruction, shapes: list[Shape], regions: _Regions) -> None:
    count = len(shapes) // 2
    update = shapes[count + 1]
    window = integers(instr, "update_window_dims", ())
    batch = [n for d, n in enumerate(update.dims) if d not in window]
    if folds_freely(instr, draft.computations):
        if prod(batch) >= FREE:
            _in_place(draft, instr, count, regions)
        return
    if compares(instr, shapes, draft.computations):
        write_compared(Arrays(draft, instr))
        return
    trailing = tuple(range(len(batch), update.rank)) == window
    is_sorted = instr.attrs.get("indices_are_sorted") is True
    copies = _is_put_first(draft, instr, regions) and shapes[0].size > WORTH_LOOKING
    if prod(batch) < (COPIED if copies else ORDERED) or is_sorted or not trailing:
        if not is_sorted and shapes[0].size > LARGE:
            _in_place(draft, instr, count, regions)
        return
    if sums_exactly(instr, shapes, draft.computations):
        folds = regions.fold("maximum", S32), regions.fold("add", _S64)
        for name in ExactSums(Arrays(draft, instr), *folds).write():
            _in_place(draft, draft[name], 1, regions)
        return
    if is_of_rows(instr, shapes[0], update):
        _Sorted(Arrays(draft, instr), shapes, prod(batch)).write(regions)


def _is_put_first(draft: Draft, instr: Instruction, regions: _Regions) -> bool:
    """Tell whether a scatter's result is a copy of what must stay, or one value, before updates."""
    operand = draft[instr.operands[0]]
    return operand.opcode == "broadcast" or not regions.may_write(draft, operand)


def _fold_chunks(draft: Draft, instr: Instruction) -> None:
    """Fold chunks of sorted updates first, where these are many."""
    if instr.opcode == "scatter" and takes_chunks(
        instr, [draft.shape(o) for o in instr.operands], draft.computations
    ):
        write_chunks(Arrays(draft, instr))


def _in_place(draft: Draft, instr: Instruction, count: int, regions: _Regions) -> None:
    """Give a scatter operands that nothing else reads, and that fusion keeps apart from it."""
    operands = list(instr.operands)
    for number, name in enumerate(operands[:count]):
        operand = draft[name]
        alone = len(draft.users_of(name)) == 1 and operands.count(name) == 1
        if operand.opcode in ("fusion", "opt-barrier") and alone:
            continue
        shape = draft.shape(name)
        if alone and regions.may_write(draft, operand):
            operands[number] = draft.add(instr, "opt-barrier", shape, (name,))
            continue
        attrs: dict[str, Attribute] = {"kind": "kLoop", "calls": regions.copy(shape)}
        operands[number] = draft.add(instr, "fusion", shape, (name,), attrs)
    if tuple(operands) != instr.operands:
        draft.become(instr.name, replace(instr, operands=tuple(operands)))


class _Sorted:
    """Writes a scatter whose updates come in the order of the rows that they update."""

    def __init__(self, to: Arrays, shapes: list[Shape], updates: int) -> None:
        self.to, self.shapes, self.updates = to, shapes, updates
        self.count = len(shapes) // 2
        mapped = integers(to.like, "scatter_dims_to_operand_dims", ())
        self.mapped = tuple(sorted(mapped))
        self.columns = [mapped.index(d) for d in self.mapped]  # of the index vectors
        self.sizes = [shapes[0].dims[d] for d in self.mapped]
        bits, rows = shapes[self.count].dtype.bits, prod(self.sizes)
        self.number: DType = S32 if bits <= 32 and rows < 2**31 - 1 else _S64
        by_digits = updates > MERGED and rows <= 0xFFFF
        self.key = DTYPES["u16"] if by_digits else self.number

    def write(self, regions: _Regions) -> None:
        """Put it into the scatter's place."""
        to, instr = self.to, self.to.like
        vector = integer(instr, "index_vector_dim")
        rows = instr.operands[self.count], vector, tuple(self.columns), tuple(self.sizes)
        if rows not in regions.sorted:
            regions.sorted[rows] = self._sort(regions)
        key, order = regions.sorted[rows]
        updates = [self._ordered(o, order) for o in instr.operands[self.count + 1 :]]
        operands = (*instr.operands[: self.count], self._vectors(key), *updates)
        window = len(integers(instr, "update_window_dims", ()))
        named: dict[str, Attribute] = {
            "update_window_dims": tuple(range(1, window + 1)),
            "scatter_dims_to_operand_dims": self.mapped,
            "index_vector_dim": 1,
            "indices_are_sorted": True,
        }
        attrs = {**instr.attrs, **named}
        to.draft.become(instr.name, replace(instr, operands=operands, attrs=attrs))

    def _sort(self, regions: _Regions) -> tuple[str, str]:
        """Return the updates' rows in rising order, and which updates those are."""
        to, instr = self.to, self.to.like
        keys = Shape(self.key, (self.updates,))
        places = Shape(S32 if self.updates < 2**31 else _S64, keys.dims)
        both = TupleShape((keys, places))
        attrs: dict[str, Attribute] = {"dimensions": (0,), "is_stable": True}
        found = to.draft.add(
            instr,
            "sort",
            both,
            (self._keys(keys), to.iota(places, 0)),
            {**attrs, "to_apply": regions.order(keys.dtype, places.dtype)},
        )
        key, order = to.draft.leaves(instr, found)
        return key, order

    def _keys(self, keys: Shape) -> str:
        """Return each update's row as one number; behind all of them where it is outside."""
        to = self.to
        indices = self.shapes[self.count]
        along = integer(to.like, "index_vector_dim")
        number, inside, stride = "", "", prod(self.sizes)
        for column, size in zip(self.columns, self.sizes, strict=True):
            part = to.like.operands[self.count]
            if along < indices.rank:
                part = to.cut(part, along, column, column + 1)
            part = to.add("reshape", Shape(indices.dtype, keys.dims), (part,))
            if indices.dtype is not self.number:
                part = to.apply("convert", part, to=self.number)
            stride //= size
            fits = to.apply(
                "and",
                to.compare(part, "GE", to.like_filled(part, 0)),
                to.compare(part, "LT", to.like_filled(part, size)),
            )
            step = to.apply("multiply", part, to.like_filled(part, stride)) if stride > 1 else part
            number = to.apply("add", number, step) if number else step
            inside = to.apply("and", inside, fits) if inside else fits
        number = to.apply("select", inside, number, to.like_filled(number, prod(self.sizes)))
        return number if self.key is self.number else to.apply("convert", number, to=self.key)

    def _vectors(self, key: str) -> str:
        """Return rows as index vectors; what is behind all rows is outside of them still."""
        to, stride = self.to, prod(self.sizes)
        parts = []
        for k, size in enumerate(self.sizes):
            stride //= size
            part = to.apply("divide", key, to.like_filled(key, stride)) if stride > 1 else key
            if k:
                part = to.apply("remainder", part, to.like_filled(part, size))
            parts.append(to.add("reshape", Shape(self.key, (self.updates, 1)), (part,)))
        return to.join(parts, 1) if len(parts) > 1 else parts[0]

    def _ordered(self, name: str, order: str) -> str:
        """Return updates, one after the other, in another order."""
        to, update = self.to, self.to.shape(name)
        window = update.dims[update.rank - len(integers(to.like, "update_window_dims", ())) :]
        flat = Shape(update.dtype, (self.updates, *window))
        return to.add(
            "gather",
            flat,
            (to.add("reshape", flat, (name,)), order),
            offset_dims=tuple(range(1, flat.rank)),
            collapsed_slice_dims=(0,),
            start_index_map=(0,),
            index_vector_dim=1,
            slice_sizes=(1, *window),
        )


class _Regions:
    """Computations that are called: comparators of keys with a place each, and copies."""

    def __init__(self, module: Module) -> None:
        self._entry = module.entry_name
        self._keeps = not {"buffer_donor", "input_output_alias"}.intersection(module.attrs)
        self._names = Names(module.computations)
        self._found: dict[tuple[str, str], str] = {}
        self.made: dict[str, Computation] = {}
        self.sorted: dict[tuple[object, ...], tuple[str, str]] = {}  # by indices, of one draft

    def may_write(self, draft: Draft, operand: Instruction) -> bool:
        """Tell whether the program, and not its caller alone, may write over an array."""
        while operand.opcode in ("bitcast", "reshape"):
            operand = draft[operand.operands[0]]
        if operand.opcode == "constant":
            return False
        mine = draft.computation.name != self._entry or operand.opcode != "parameter"
        return mine or not self._keeps

    def copy(self, shape: Shape) -> str:
        """Return the name of a computation that copies an array."""
        key = "copy", str(shape)
        if key not in self._found:
            given = Instruction("given", "parameter", shape, payload=0)
            self._add(key, "copy", [given, Instruction("r", "copy", shape, ("given",))])
        return self._found[key]

    def fold(self, opcode: str, dtype: DType) -> str:
        """Return the name of a computation of two scalars."""
        key = opcode, dtype.name
        if key not in self._found:
            shape = Shape(dtype)
            lines = [Instruction(n, "parameter", shape, payload=k) for k, n in enumerate("ab")]
            lines.append(Instruction("r", opcode, shape, ("a", "b")))
            self._add(key, f"{opcode}_{dtype}", lines)
        return self._found[key]

    def order(self, key: DType, place: DType) -> str:
        """Return the name of the comparator by rising keys."""
        types = key.name, place.name
        if types not in self._found:
            shapes = (Shape(key), Shape(key), Shape(place), Shape(place))
            lines = [
                Instruction(n, "parameter", s, payload=k)
                for k, (n, s) in enumerate(zip("abij", shapes, strict=True))
            ]
            flag = Shape(DTYPES["pred"])
            lines.append(Instruction("r", "compare", flag, ("a", "b"), {"direction": "LT"}))
            self._add(types, f"rising_{key}_{place}", lines)
        return self._found[types]

    def _add(self, key: tuple[str, str], stem: str, lines: list[Instruction]) -> None:
        name = self._names.fresh(stem)
        self._found[key] = name
        self.made[name] = Computation(name, tuple(lines), "r")
