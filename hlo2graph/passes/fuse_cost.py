"""The cost rule of fusion: what a kernel takes, in nanoseconds, and what it may not do.

A kernel takes LAUNCH_NS, and then the longer of two: its bytes at BYTES_EACH_NS, its work at
STEPS_EACH_NS. Kernels are put together where that makes the sum smaller. The figures are those of
today's data-centre GPUs, of every target alike, so that a plan depends on its program alone.

- Bytes: what is read of each parameter (at most all of it, of a slice only what it takes), and each
  result; of an update in place the update. Read across the grain, a folding kernel's bytes count
  GRAIN times.
- Work: each instruction's weight times the elements of it that are computed, those computed again
  included: for a broadcast, a window, another loop over other dimensions.
- What is dear (transcendental functions, folds) is computed once; again only MOST_AGAIN elements.
- A kernel has at most MOST_INSTRUCTIONS, which written out are at most MOST_WRITTEN (what is needed
  at two indices is written twice), and MOST_ARRAYS parameters and results: eight bytes each of the
  4 KB that a kernel's arguments may take.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod

from hlo2graph.hlo import AnyShape, Computation, DimLabels, Instruction, Shape
from hlo2graph.ops import OPS
from hlo2graph.ops.device_folds import window_dims
from hlo2graph.ops.expect import integers
from hlo2graph.ops.region import Columns, Loop, Region, Rows
from hlo2graph.passes.fuse_body import VIEWS

LAUNCH_NS = 1000
BYTES_EACH_NS = 4000
STEPS_EACH_NS = 20000
GRAIN = 4
PRODUCTS_EACH_NS = 100_000  # of a library, on tensor cores
LOOP_NS = 10_000  # of a loop or a branch, whatever it does
MOST_AGAIN = 4096
MOST_INSTRUCTIONS = 256
MOST_WRITTEN = 1024
MOST_ARRAYS = 128

FOLDS = frozenset(
    {"convolution", "dot", "fft", "ragged-dot", "reduce", "reduce-window", "scaled-dot"}
    | {"select-and-scatter"}
)
STEPPED = frozenset({"call", "conditional", "scan", "while"})
IN_PLACE = frozenset({"dynamic-update-slice", "scatter"})
NO_WORK = VIEWS | {"constant", "parameter", "tuple"}
_DEAR = frozenset(
    {"acos", "acosh", "asin", "asinh", "atan2", "atanh", "cbrt", "cosh", "cosine", "erf"}
    | {"exponential", "exponential-minus-one", "log", "log-plus-one", "logistic", "power"}
    | {"sine", "sinh", "tan", "tanh"}
)
_SLOW = frozenset({"divide", "remainder", "rsqrt", "sqrt"})
_SCATTER_BLOCKS = 1024  # each of which looks at all indices
_DOT_TILE = 16  # results that share what is computed of an operand


@dataclass(frozen=True, slots=True)
class Cost:
    """What a kernel takes.

    bytes: read and written in memory.
    work: cheap operations.
    again: elements of dear instructions that are computed more than once.
    instructions, arrays: how many the kernel has; arrays are parameters and results.
    written: instructions, those needed at several indices once for each.
    in_place: the results that are updates of a parameter in its own bytes.
    """

    bytes: int
    work: int
    again: int
    instructions: int
    arrays: int
    written: int
    in_place: frozenset[str]

    @property
    def time(self) -> int:
        """Nanoseconds, launching included; nothing where only views are left."""
        if not self.instructions:
            return 0
        return LAUNCH_NS + max(self.bytes // BYTES_EACH_NS, self.work // STEPS_EACH_NS)


NOTHING = Cost(0, 0, 0, 0, 0, 0, frozenset())


def is_dear(instr: Instruction) -> bool:
    """Tell whether `instr` is never computed twice, but for a few elements."""
    return instr.opcode in _DEAR or instr.opcode in FOLDS


def cost_of(computation: Computation, region: Region | None) -> Cost:
    """Return what the kernel of `computation` takes in the form that `region` says."""
    needs = _Needs.of(computation, region)
    work = again = written = size = 0
    for instr in computation.instructions:
        if instr.opcode in NO_WORK:
            continue
        size += 1
        count = needs.elements[instr.name]
        work += count * _weight(computation, instr)
        written += needs.copies[instr.name]
        if is_dear(instr):
            again += max(0, count - elements_of(instr))
    traffic = sum(_read(p, needs) for p in computation.parameters)
    traffic += sum(_written(computation, r, needs.in_place) for r in results_of(computation))
    arrays = len(computation.parameters) + computation.result.shape.leaf_count
    return Cost(traffic, work, again, size, arrays, written, needs.in_place)


def results_of(computation: Computation) -> tuple[Instruction, ...]:
    """Return the instructions that are the results: the root, or a root tuple's operands."""
    root = computation.result
    if root.opcode != "tuple":
        return (root,)
    return tuple(computation[name] for name in root.operands)


def updated_in_place(computation: Computation) -> frozenset[str]:
    """Return the results that update a parameter which nothing else in `computation` reads."""
    reads: dict[str, int] = {}
    for instr in computation.instructions:
        for operand in instr.operands:
            reads[operand] = reads.get(operand, 0) + 1
    found = set()
    for result in results_of(computation):
        if result.opcode not in IN_PLACE:
            continue
        source = computation[result.operands[0]]
        path = [source.name]
        while source.opcode in VIEWS:
            source = computation[source.operands[0]]
            path.append(source.name)
        if source.opcode == "parameter" and all(reads[name] == 1 for name in path):
            found.add(result.name)
    return frozenset(found)


@dataclass(slots=True)
class _Needs:
    """How many elements of each instruction are computed, and at how many places in the text."""

    computation: Computation
    region: Region | None
    in_place: frozenset[str]
    elements: dict[str, int] = field(default_factory=dict)
    copies: dict[str, int] = field(default_factory=dict)
    turned: set[str] = field(default_factory=set)  # read across the grain
    _same: dict[str, tuple[int, int]] = field(default_factory=dict)  # at their users' own index

    @staticmethod
    def of(computation: Computation, region: Region | None) -> _Needs:
        """Return what the results of `computation` need."""
        found = _Needs(computation, region, updated_in_place(computation))
        once = _computed_once(computation, region)
        for result in results_of(computation):
            found._same[result.name] = elements_of(result), 1
        for instr in reversed(computation.instructions):
            elements, copies = found._same.get(instr.name, (0, 0))
            elements += found.elements.get(instr.name, 0)
            if instr.name in once:
                elements = min(elements, elements_of(instr))
            found.elements[instr.name] = elements
            found.copies[instr.name] = copies + found.copies.get(instr.name, 0)
            found._ask(instr)
        return found

    def _ask(self, instr: Instruction) -> None:
        """Add what `instr` needs of its operands."""
        elements, copies = self.elements[instr.name], self.copies[instr.name]
        turns = instr.name in self.turned or _turns(self.computation, instr)
        # A fold's form has each value of a row at hand, for the folds and for what follows.
        folded = instr.opcode == "reduce" and isinstance(self.region, Rows | Columns)
        for operand, fan, moves in _demands(self.computation, instr):
            if instr.name in self.in_place and operand == instr.operands[0]:
                continue
            asked = int(elements * fan)
            if moves and not folded:
                self.elements[operand] = self.elements.get(operand, 0) + asked
                self.copies[operand] = self.copies.get(operand, 0) + copies
            else:
                before = self._same.get(operand, (0, 0))
                self._same[operand] = max(before[0], asked), max(before[1], copies)
            if turns:
                self.turned.add(operand)


def _computed_once(computation: Computation, region: Region | None) -> set[str]:
    """Return the folds, and what waits for one and is as small as its result.

    A loop does it all again for each element that needs it.
    """
    if region is None or isinstance(region, Loop):
        return set()
    rows = region.results if isinstance(region, Rows | Columns) else 0
    waiting: set[str] = set()
    found: set[str] = set()
    for instr in computation.instructions:
        if instr.opcode in FOLDS:
            waiting.add(instr.name)
            found.add(instr.name)
        elif not waiting.isdisjoint(instr.operands):
            waiting.add(instr.name)
            if elements_of(instr) <= rows:
                found.add(instr.name)
    return found


def _demands(computation: Computation, instr: Instruction) -> Iterator[tuple[str, float, bool]]:
    """Yield each operand, how many of its elements one of `instr`'s takes, and if elsewhere."""
    spec = OPS[instr.opcode]
    if instr.opcode in ("tuple", "parameter", "constant"):
        return
    if spec.elementwise or instr.opcode in ("get-tuple-element", "copy"):
        for operand in dict.fromkeys(instr.operands):
            yield operand, 1, False
        return
    own = max(1, elements_of(instr))
    for number, operand in enumerate(instr.operands):
        yield operand, _fan(computation, instr, number, own), True


def _fan(computation: Computation, instr: Instruction, number: int, own: int) -> float:
    """Return how many elements of operand `number` one of the `own` elements takes."""
    opcode, share = instr.opcode, elements_of(computation[instr.operands[number]]) / own
    if opcode in FOLDS:
        return _folded(computation, instr, number, own)
    if opcode in ("concatenate", "pad", "sort"):
        return min(1.0, share)
    if opcode == "dynamic-update-slice" and number == 1:
        return share
    if opcode == "scatter":
        indices = number == len(instr.operands) // 2
        return share * (min(_SCATTER_BLOCKS, -(-own // 256)) if indices else 1)
    return 1


def _folded(computation: Computation, instr: Instruction, number: int, own: int) -> float:
    """Return how many elements of operand `number` are folded into one result."""
    match instr.opcode:
        case "reduce":
            inputs = number < len(instr.operands) // 2
            return max(1, elements_of(computation[instr.operands[number]]) / own) if inputs else 1
        case "reduce-window" | "select-and-scatter":
            return prod(w.size for w in window_dims(instr))
        case "dot":
            return max(1, _steps(computation, instr) / _DOT_TILE)
        case _:
            return _steps(computation, instr)


def _steps(computation: Computation, instr: Instruction) -> float:
    """Return how many products make one element."""
    shapes = [computation[o].shape for o in instr.operands[:2]]
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


def _weight(computation: Computation, instr: Instruction) -> int:
    """Return the cheap operations that one element takes."""
    if instr.opcode in _DEAR:
        return 16
    if instr.opcode in _SLOW:
        return 8
    if instr.opcode == "reduce":
        count = len(instr.operands) // 2
        return int(sum(_fan(computation, instr, k, elements_of(instr) or 1) for k in range(count)))
    if instr.opcode in FOLDS:
        return 2 * int(_steps(computation, instr))
    return 1


def _turns(computation: Computation, instr: Instruction) -> bool:
    """Tell whether `instr` reads its operand across the grain: another dimension is the minor."""
    source = computation[instr.operands[0]].shape if instr.operands else None
    target = instr.shape
    if instr.opcode != "transpose" or not isinstance(source, Shape):
        return False
    assert isinstance(target, Shape)
    order = integers(instr, "dimensions")
    stored = [order[d] for d in target.minor_to_major if target.dims[d] != 1]
    before = [d for d in source.minor_to_major if source.dims[d] != 1]
    return stored[:1] != before[:1]


def _read(parameter: Instruction, needs: _Needs) -> int:
    assert isinstance(parameter.shape, Shape)
    count = min(needs.elements[parameter.name], parameter.shape.elements)
    across = parameter.name in needs.turned and isinstance(needs.region, Rows | Columns)
    return count * parameter.shape.dtype.size * (GRAIN if across else 1)


def _written(computation: Computation, result: Instruction, in_place: frozenset[str]) -> int:
    if result.name in in_place:
        update = computation[result.operands[1 if result.opcode != "scatter" else -1]]
        return update.shape.size
    return result.shape.size


def elements_of(instr: Instruction) -> int:
    """Return the elements of the largest leaf."""
    return max((leaf.elements for leaf in instr.shape.leaves()), default=0)


def time_outside(instr: Instruction, operands: Sequence[AnyShape]) -> int:
    """Return the nanoseconds of what is not ours to fuse: a library's product, a loop, a call."""
    if instr.opcode in STEPPED:
        return LOOP_NS
    moved = sum(shape.size for shape in (instr.shape, *operands)) // BYTES_EACH_NS
    if instr.opcode != "dot":
        return LAUNCH_NS + moved
    lhs = operands[0]
    assert isinstance(lhs, Shape)
    steps = prod(lhs.dims[d] for d in integers(instr, "lhs_contracting_dims", ()))
    return LAUNCH_NS + max(moved, elements_of(instr) * steps // PRODUCTS_EACH_NS)


def too_large(cost: Cost) -> str | None:
    """Return which limit of a kernel's size is broken, in words."""
    if cost.instructions > MOST_INSTRUCTIONS:
        return f"the kernel would have more than {MOST_INSTRUCTIONS} instructions"
    if cost.arrays > MOST_ARRAYS:
        return f"the kernel would have more than {MOST_ARRAYS} arrays"
    if cost.written > MOST_WRITTEN:
        return f"the kernel would be written out to more than {MOST_WRITTEN} instructions"
    return None
