"""Products of which only parts are looked at, part by part: the gates of an LSTM, or of a GRU.

In and out: a Module of the same meaning. Where a product, or a sum of products, is cut into equal
parts that meet again element by element, each part is multiplied by itself, by the part of the
operand that it comes from. So one kernel can compute all of an element's products and what is made
of them: `go_together` says whether it will, and what it would not take in stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hlo2graph.hlo import Attribute, Computation, Instruction, Module, Shape, SliceDim
from hlo2graph.ops import OPS
from hlo2graph.ops.own_dot import go_together
from hlo2graph.passes.draft import Draft
from hlo2graph.passes.redraft import redraft
from hlo2graph.passes.rules.values import numbers, ranges_of

MOST_INSTRUCTIONS = 32  # between a product and where it is cut


def part_dots(module: Module) -> Module:
    """Return `module` with such products multiplied part by part."""
    return redraft(module, "dot", _parted)


def _parted(draft: Draft) -> Computation:
    for name in tuple(draft.instructions):
        if name in draft and isinstance(draft[name].shape, Shape):
            cuts = draft.users_of(name)
            dim = _cut_dim(draft, name, cuts)
            if dim is not None and _meet(draft, cuts):
                _part(draft, name, cuts, dim)
    return draft.done()


def _cut_dim(draft: Draft, name: str, cuts: Sequence[Instruction]) -> int | None:
    """Return the dimension along which slices cut all of an array into equal parts, if they do."""
    whole = draft.shape(name).dims
    if len(cuts) < 2 or name == draft.root or any(cut.opcode != "slice" for cut in cuts):
        return None
    ranges = [ranges_of(cut) for cut in cuts]
    dims = {d for r in ranges for d, n in enumerate(whole) if r[d] != SliceDim(0, n)}
    if len(dims) != 1:
        return None
    [dim] = dims
    each, rest = divmod(whole[dim], len(cuts))
    parts = sorted((r[dim].start, r[dim].limit, r[dim].stride) for r in ranges)
    whole_parts = [(k * each, (k + 1) * each, 1) for k in range(len(cuts))]
    return dim if not rest and parts == whole_parts else None


def _meet(draft: Draft, cuts: Sequence[Instruction]) -> bool:
    """Tell whether something is made of all parts element by element, and each of no else."""
    reached: list[set[str]] = []
    for cut in cuts:
        found = {cut.name}
        pending = [cut.name]
        while pending:
            for user in draft.users_of(pending.pop()):
                same = _is_elementwise(user) and _dims(user) == _dims(cut)
                if same and user.name not in found:
                    found.add(user.name)
                    pending.append(user.name)
        if any(user.name not in found for user in draft.users_of(cut.name)):
            return False
        reached.append(found)
    return bool(set.intersection(*reached))


def _is_elementwise(instr: Instruction) -> bool:
    return OPS[instr.opcode].elementwise and isinstance(instr.shape, Shape)


def _dims(instr: Instruction) -> tuple[int, ...]:
    assert isinstance(instr.shape, Shape)
    return instr.shape.dims


def _part(draft: Draft, name: str, cuts: Sequence[Instruction], dim: int) -> None:
    """Make each part by itself, if it has products in it that go together."""
    tree = _tree(draft, name)
    parting = _Parting(draft, dim, tree)
    dots = [parting.dot(draft[n], cuts[0]) for n in tree if parting.side(draft[n]) is not None]
    if dots and go_together(dots * len(cuts)):
        for cut in cuts:
            draft.redirect(cut.name, parting.part(name, cut, {}))


def _tree(draft: Draft, name: str) -> frozenset[str]:
    """Return what a value is made of element by element, and nothing else looks at."""
    found = {name}
    pending = [name]
    while pending and len(found) < MOST_INSTRUCTIONS:
        instr = draft[pending.pop()]
        if _is_elementwise(instr) and draft.is_pure(instr):
            inner = (o for o in instr.operands if _is_inner(draft, o, instr))
            fresh = [o for o in inner if o not in found]
            found.update(fresh)
            pending += fresh
    return frozenset(found)


def _is_inner(draft: Draft, name: str, user: Instruction) -> bool:
    """Tell whether a value is looked at by `user` alone, or costs nothing."""
    users = [instr.name for instr in draft.users_of(name)]
    return users == [user.name] or draft[name].opcode == "broadcast"


@dataclass(frozen=True, slots=True)
class _Parting:
    """Makes parts, along dimension `dim`, of the values of a tree."""

    draft: Draft
    dim: int
    tree: frozenset[str]

    def dot(self, instr: Instruction, cut: Instruction) -> tuple[Instruction, Shape, Shape]:
        """Return what one part's product is, with the shapes of its operands."""
        side = self.side(instr)
        assert side is not None
        shapes = [self.draft.shape(operand) for operand in instr.operands]
        shapes[side[0]] = _resized(shapes[side[0]], side[1], self._size(cut))
        out = _resized(self.draft.shape(instr.name), self.dim, self._size(cut))
        return replace(instr, shape=out), shapes[0], shapes[1]

    def part(self, name: str, cut: Instruction, known: dict[str, str]) -> str:
        """Return the part of a value that `cut` has of it; `known` are those it has already."""
        if name not in known:
            known[name] = self._part(name, cut, known)
        return known[name]

    def _part(self, name: str, cut: Instruction, known: dict[str, str]) -> str:
        draft, instr = self.draft, self.draft[name]
        shape = _resized(draft.shape(name), self.dim, self._size(cut))
        if (side := self.side(instr)) is not None:
            operands = list(instr.operands)
            operands[side[0]] = self._sliced(instr, operands[side[0]], side[1], cut)
            return draft.add(instr, "dot", shape, operands, instr.attrs)
        if instr.opcode == "broadcast":
            return self._broadcast(instr, shape, cut)
        if name in self.tree and _is_elementwise(instr) and draft.is_pure(instr):
            operands = [
                self.part(o, cut, known) if o in self.tree else self._cut(instr, o, cut)
                for o in instr.operands
            ]
            return draft.add(instr, instr.opcode, shape, operands, instr.attrs)
        return self._cut(instr, name, cut)

    def _cut(self, like: Instruction, name: str, cut: Instruction) -> str:
        return self._sliced(like, name, self.dim, cut) if self.draft.shape(name).rank else name

    def _sliced(self, like: Instruction, name: str, dim: int, cut: Instruction) -> str:
        """Add a slice of an operand along one of its dimensions."""
        shape = self.draft.shape(name)
        ranges: list[SliceDim] = [SliceDim(0, n) for n in shape.dims]
        ranges[dim] = ranges_of(cut)[self.dim]
        sliced = _resized(shape, dim, self._size(cut))
        return self.draft.add(like, "slice", sliced, (name,), {"slice": tuple(ranges)})

    def _broadcast(self, instr: Instruction, shape: Shape, cut: Instruction) -> str:
        places = numbers(instr)
        source = instr.operands[0]
        if self.dim in places:
            source = self._sliced(instr, source, places.index(self.dim), cut)
        attrs: dict[str, Attribute] = {"dimensions": places}
        return self.draft.add(instr, "broadcast", shape, (source,), attrs)

    def _size(self, cut: Instruction) -> int:
        part = ranges_of(cut)[self.dim]
        return part.limit - part.start

    def side(self, instr: Instruction) -> tuple[int, int] | None:
        """Return which operand of a dot the dimension comes from, and which one it is there."""
        if instr.opcode != "dot" or len(instr.operands) != 2 or not self.draft.is_pure(instr):
            return None
        batch = len(numbers(instr, "lhs_batch_dims"))
        places = [
            (side, dim)
            for side, operand in enumerate(instr.operands)
            for dim in _free_dims(instr, side, self.draft.shape(operand).rank)
        ]
        return places[self.dim - batch] if self.dim >= batch else None


def _free_dims(dot: Instruction, side: int, rank: int) -> list[int]:
    name = ("lhs", "rhs")[side]
    taken = numbers(dot, f"{name}_batch_dims") + numbers(dot, f"{name}_contracting_dims")
    return [d for d in range(rank) if d not in taken]


def _resized(shape: Shape, dim: int, size: int) -> Shape:
    dims = (*shape.dims[:dim], size, *shape.dims[dim + 1 :])
    return replace(shape, dims=dims)
