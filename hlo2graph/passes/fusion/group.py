"""A group: instructions that become one kernel, judged by the cost rule."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from hlo2graph.hlo import Instruction, Shape
from hlo2graph.ops.custom_lapack import factors_block
from hlo2graph.ops.expect import integers
from hlo2graph.ops.region import MOST_COLUMNS, Columns, Folding, Loop, Own, Region, Rows, region_of
from hlo2graph.passes.figures import LAUNCH_NS
from hlo2graph.passes.fusion.body import Body
from hlo2graph.passes.fusion.cost import (
    MOST_AGAIN,
    MOST_FED,
    MOST_INSTRUCTIONS,
    TOO_LONG,
    Cost,
    too_large,
)
from hlo2graph.passes.fusion.facts import IN_PLACE, accumulates
from hlo2graph.passes.fusion.sheet import Sheet, Table, buffer_path

AGAIN = "a dear instruction would be computed more than once"
UPDATED = "it would read, at another index, a buffer that it updates in place"
COPIED = "a product's kernel would copy what it updates"
FED = "what goes into a product is computed for each tile of it: only what reads one array may be"
NO_FORM = "no kernel form does both: {} and {}"
SPACES = "a kernel folds the same dimensions throughout: here they are {}, there {}"
STAGES = "a fold along columns is whole when its kernel has ended, and the other one waits for it"
LONG = "rows of {:,} elements are too long to be kept from one fold to the other"
ROWS = "what waits for a fold along rows keeps to its row, and what is between these does not"
ACROSS = "one block, which has a matrix or rows to itself, would read it across the grain"
SLOWER = "it would take longer than both alone"


_IN_WORDS = {
    "cholesky": "a factor",
    "custom-call": "a call",
    "dot": "a product",
    "fft": "a transform",
    "topk": "a top-k",
    "triangular-solve": "a solve",
}
MOST_ACROSS = 64  # rows of a matrix that may be read so by a block that factors it


@dataclass(frozen=True, eq=False, slots=True)
class Group:
    """Members that become one kernel; `results` are those needed outside, in program order.

    `sheet` has what they need.
    """

    members: frozenset[str]
    results: tuple[str, ...]
    region: Region | None
    sheet: Sheet
    cost: Cost

    @property
    def inputs(self) -> Collection[str]:
        """The names of what it reads."""
        return self.sheet.inputs

    @property
    def form(self) -> str:
        """What kind of kernel it is, in words."""
        match self.region:
            case Loop():
                return "a loop over elements"
            case Rows():
                return "a fold along rows"
            case Columns():
                return "a fold along columns"
            case Own(hero):
                opcode = self.sheet.table.body[hero].opcode
                return f"{_IN_WORDS.get(opcode, f'a {opcode}')} ({hero})"
            case _:
                return "no form of its own"


class Judge:
    """Decides by the cost rule which instructions of one body make a good kernel."""

    def __init__(self, body: Body) -> None:
        self.body = body
        self.facts = Table(body)
        self.apart: frozenset[str] = frozenset()  # what no kernel computes for many elements again
        self._alone: dict[str, Group] = {}
        self._refused: dict[tuple[Group, Group], str] = {}

    def alone(self, name: str) -> Group:
        """Return the group of one instruction."""
        if name not in self._alone:
            self._alone[name] = self._weigh(frozenset({name}), (name,))
        return self._alone[name]

    def whole(self, members: frozenset[str], results: tuple[str, ...]) -> Group:
        """Return the group of these members, whatever it costs."""
        return self._weigh(members, results)

    def with_producer(self, group: Group, name: str) -> Group | str:
        """Return `group` with what makes one of its operands, or why that is no good kernel."""
        if name in group.sheet.fed and self._reads_much(name):
            return FED  # behind what makes its operands it may be computed once
        members = group.members | {name}
        if self.facts[name].is_hero or group.cost.in_place:
            whole = self._weigh(members, group.results)
        else:  # what its operands are made of is nothing to a kernel's form
            sheet = group.sheet.copy()
            sheet.add(name)
            whole = Group(members, group.results, group.region, sheet, sheet.cost())
        if whole.region is None:
            return NO_FORM.format(group.form, self.alone(name).form)
        return self._refusal((group,), whole) or whole

    def is_worth(self, name: str, time: int) -> bool:
        """Tell whether it takes less than `time` more not to make `name` by a kernel of its own."""
        return time <= LAUNCH_NS * self.facts[name].has_work or time <= self.alone(name).cost.time

    def union(self, one: Group, other: Group, results: Iterable[str]) -> Group | str:
        """Return both groups as one, with these results, or why that is no good kernel."""
        known = self._refused.get((one, other))
        if known is not None:
            return known
        if self._are_of_two_forms(one, other):
            return self._no_form(one, other)
        shared = len(one.members & other.members)
        if one.cost.instructions + other.cost.instructions - shared > MOST_INSTRUCTIONS:
            return TOO_LONG
        members = one.members | other.members
        whole = self._weigh(members, tuple(self.body.in_order(results)))
        refusal = self._refusal((one, other), whole) or (FED if self._feeds_much(whole) else None)
        if refusal is not None:
            self._refused[one, other] = refusal
        return refusal or whole

    def _arrays(self, name: str) -> int:
        """Return how many arrays an instruction reads, scalars and what is free left out."""
        read = (ask.operand for ask in self.facts[name].asks)
        return sum(self.facts[o].elements > 1 for o in read if o not in self.body.free)

    def _weigh(self, members: frozenset[str], results: tuple[str, ...]) -> Group:
        region: Region | None = Loop()
        if any(self.facts[name].is_hero for name in members):
            region = region_of(self.body.outline(members, results, "candidate").computation)
        sheet = Sheet.of(self.facts, members, results, region)
        return Group(members, results, region, sheet, sheet.cost())

    def _refusal(self, parts: Sequence[Group], whole: Group) -> str | None:
        """Return why `whole` is no good kernel in the place of its parts, in words."""
        if whole.region is None:
            return self._no_form(parts[0], parts[-1])
        if limit := too_large(whole.cost):
            return limit
        if whole.cost.again > max(MOST_AGAIN, *(part.cost.again for part in parts)):
            return AGAIN
        if any(
            whole.sheet.needed(n)[0] > self.facts[n].elements for n in self.apart & whole.members
        ):
            return AGAIN
        if self._loses_place(parts, whole):
            return UPDATED
        return self._refused_by(whole.region, whole) if isinstance(whole.region, Own) else None

    def _refused_by(self, own: Own, whole: Group) -> str | None:
        """Return why a hero's form is not to be given all of `whole`."""
        if own.updates and self._copies(whole):
            return COPIED
        return ACROSS if self._reads_across(whole, own.hero) else None

    def _reads_across(self, group: Group, hero: str) -> bool:
        """Tell whether arrays that lie across are met by a hero for which they must lie along.

        So they must for a block that factors a large matrix, and for what accumulates.
        """
        instr = self.body[hero]
        is_factor = instr.opcode == "cholesky" or factors_block(instr)
        is_large = next(instr.shape.leaves()).dims[-1] > MOST_ACROSS
        turned = any(_turns(self.body, self.body[name]) for name in group.members)
        return turned and ((is_factor and is_large) or accumulates(instr))

    def _copies(self, group: Group) -> bool:
        """Tell whether what one of the results updates has to stay as it is."""
        updates = (name for name in group.results if self.body[name].opcode in IN_PLACE)
        return any(buffer_path(self.body, name)[-1] in self.body.kept for name in updates)

    def _feeds_much(self, group: Group) -> bool:
        """Tell whether more goes into a product, for each tile again, than is worth a launch."""
        fed = group.sheet.fed & group.members
        return any(group.sheet.needed(n)[0] > MOST_FED and self._reads_much(n) for n in fed)

    def _reads_much(self, name: str) -> bool:
        """Tell whether an element takes more than one of one array."""
        return self._arrays(name) > 1 or self.facts[name].is_fold

    def _loses_place(self, parts: Sequence[Group], whole: Group) -> bool:
        """Tell whether an update in place is none any more: what it updates is read elsewhere.

        An update of what the kernel itself computes is none from the start, which is a matter of
        cost; but not of what is itself updated in place.
        """
        before = frozenset[str]().union(*(part.cost.in_place for part in parts))
        for name in before.difference(whole.cost.in_place).intersection(whole.results):
            source = self.body[self.body[name].operands[0]]
            if source.name not in whole.members or source.opcode in IN_PLACE:
                return True
        return False

    def _are_of_two_forms(self, one: Group, other: Group) -> bool:
        """Tell whether a look at both regions is enough.

        A form of a hero's own takes no other hero, but dots others, and folds have one index only
        in one space.
        """
        ours, theirs = one.region, other.region
        if isinstance(ours, Loop) or isinstance(theirs, Loop):
            return False
        if isinstance(ours, Folding) and isinstance(theirs, Folding):
            return type(ours) is not type(theirs) or not ours.space.same(theirs.space)
        if isinstance(ours, Own) and isinstance(theirs, Own):
            return any(self.body[own.hero].opcode != "dot" for own in (ours, theirs))
        return True

    def _no_form(self, one: Group, other: Group) -> str:
        """Return why no kernel form does what both do; of two folds, what parts them."""
        ours, theirs = one.region, other.region
        if not (isinstance(ours, Folding) and isinstance(theirs, Folding)):
            return NO_FORM.format(one.form, other.form)
        if not ours.space.same(theirs.space):
            return SPACES.format(ours.space, theirs.space)
        if isinstance(ours, Columns):
            leaves = (name for name in one.results for _ in self.body[name].shape.leaves())
            waits = zip(leaves, ours.waits, strict=True)
            is_asked = any(late and name in other.inputs for name, late in waits)
            return STAGES if is_asked else NO_FORM.format(one.form, other.form)
        columns = ours.space.shape.elements // max(1, ours.results)
        return LONG.format(columns) if columns > MOST_COLUMNS else ROWS


def _turns(body: Body, instr: Instruction) -> bool:
    """Tell whether the elements of a result and of an operand lie in another order."""
    if not isinstance(instr.shape, Shape) or instr.opcode == "broadcast":
        return False
    order = instr.shape.minor_to_major
    if instr.opcode == "transpose":
        order = tuple(integers(instr, "dimensions")[d] for d in order)
    shapes = (body[name].shape for name in instr.operands)
    return any(
        isinstance(shape, Shape) and shape.rank == len(order) and shape.minor_to_major != order
        for shape in shapes
    )
