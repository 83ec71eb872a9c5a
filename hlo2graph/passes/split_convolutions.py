"""Sum in two steps what a convolution sums up with most of the device idle.

In and out: a Module of the same meaning; a machine may take the sums in another order. A kernel's
gradient has few results, each a sum over all places of all images. Its input features, there the
images, are cut into groups; a convolution of as many feature groups sums each, and a reduce the
groups' sums. The kernel is laid out for that by a transpose, which the convolution reads through:
together they are a fusion, so that nothing else takes the transpose in.

The rule, all of it: there are fewer than BLOCKS tiles of TILE places by TILE features, at least
FEWEST of both, and each sum is of FEWEST_STEPS products or more. Where the groups' sums are SMALL
beside what is read, there are as many groups as fill BLOCKS, or twice as many, of at least
LEAST_STEPS. Elsewhere blocks that lie together share a sum, CLUSTER of them, each of tiles half as
wide, and there are as many groups as make them twice BLOCKS at most.
"""

from __future__ import annotations

from dataclasses import replace

from hlo2graph.hlo import DTYPES, Attribute, Computation, DimLabels, Instruction, Module, Shape
from hlo2graph.ops.expect import integer
from hlo2graph.ops.kernel_gradient import tap_rows
from hlo2graph.ops.large_gpu import MULTIPROCESSORS
from hlo2graph.ops.own_dot import takes_tensor_cores
from hlo2graph.passes.draft import Draft, is_settled
from hlo2graph.passes.redraft import redraft
from hlo2graph.passes.split_steps import Regions, become_sum

BLOCKS = MULTIPROCESSORS // 2  # more would take more memory for less
MOST_BLOCKS = 6 * BLOCKS
CLUSTER = 2
SMALL = 1 / 4
TILE = 64
FEWEST = 16
FEWEST_STEPS = 2048
LEAST_STEPS = 256
WIDE = DTYPES["f32"]


def split_convolutions(module: Module, cluster: int = CLUSTER) -> Module:
    """Return `module` with convolutions of few results and long sums taken apart.

    cluster: blocks that may share a sum.
    """
    regions = Regions(module)

    def rewrite(draft: Draft) -> Computation:
        for instr in [i for i in draft.instructions.values() if i.opcode == "convolution"]:
            if draft.is_pure(instr) and (groups := _groups(draft, instr, cluster)) > 1:
                _Split(draft, instr, groups).write(regions)
        return draft.done()

    return regions.added_to(redraft(module, "convolution", rewrite))


def _labels(instr: Instruction) -> DimLabels:
    held = instr.attrs["dim_labels"]
    assert isinstance(held, DimLabels)
    return held


def _groups(draft: Draft, instr: Instruction, cluster: int) -> int:
    """Return into how many groups the input features are cut; 1 leaves them whole."""
    lhs, rhs = (draft.shape(name) for name in instr.operands)
    out, labels = instr.shape, _labels(instr)
    assert isinstance(out, Shape)
    counts = [integer(instr, f"{kind}_group_count", 1) for kind in ("feature", "batch")]
    settled = all(is_settled(shape) for shape in (lhs, rhs, out))
    if counts != [1, 1] or not settled or not out.elements or not out.is_row_major:
        return 1
    if not takes_tensor_cores(instr, lhs, rhs):
        return 1
    columns = rhs.dims[labels.rhs.index("o")]
    rows, steps = out.elements // columns, rhs.elements // columns
    if min(rows, columns) < FEWEST or steps < FEWEST_STEPS:
        return 1
    cut = tap_rows(instr, lhs, rhs)
    tiles, half = (
        replace(cut, inputs=min(cut.inputs, size), outputs=min(cut.outputs, size)).tiles
        if cut
        else -(-rows // size) * -(-columns // size)
        for size in (TILE, TILE // 2)
    )
    features = rhs.dims[labels.rhs.index("i")]
    small = int(SMALL * (lhs.size + rhs.size) / (out.elements * WIDE.size))
    most = min(MOST_BLOCKS // tiles, small)
    if most * tiles < BLOCKS:
        most = 2 * BLOCKS // (cluster * half)
    most = min(most, steps // LEAST_STEPS, features)
    found = (n for n in range(2, most + 1) if features % n == 0)
    return min(found, key=lambda n: (_rounds(n * tiles) / n, n), default=1)


def _rounds(blocks: int) -> int:
    """Return how many blocks the busiest multiprocessor has."""
    return -(-blocks // (2 * BLOCKS))


class _Split:
    def __init__(self, draft: Draft, instr: Instruction, groups: int) -> None:
        self.draft, self.instr, self.groups = draft, instr, groups
        self.labels = _labels(instr)

    def write(self, regions: Regions) -> None:
        """Put the sum of the groups' sums in the convolution's place."""
        draft, instr, out = self.draft, self.instr, self.instr.shape
        assert isinstance(out, Shape)
        at = self.labels.out.index("f")
        dims = list(out.dims)
        dims[at] *= self.groups
        attrs = {**instr.attrs, "feature_group_count": self.groups}
        given = (instr.operands[0], self._cut(instr.operands[1]))
        lhs, kernel = (
            Instruction(f"{name}.{number}", "parameter", draft.shape(name), payload=number)
            for number, name in enumerate(given)
        )
        turned = self._turned(kernel)
        whole = Shape(WIDE, tuple(dims))
        operands = (lhs.name, turned[-1].name)
        parts = Instruction(f"{instr.name}.parts", "convolution", whole, operands, attrs)
        called = regions.outlined(f"groups_of_{instr.name}", (lhs, kernel, *turned, parts))
        calling: dict[str, Attribute] = {"kind": "kCustom", "calls": called}
        found = draft.add(instr, "fusion", whole, given, calling)
        each = (*out.dims[:at], self.groups, *out.dims[at:])
        found = draft.add(instr, "reshape", Shape(WIDE, each), (found,))
        become_sum(draft, instr, found, (at,), regions)

    def _cut(self, name: str) -> str:
        """Return the kernel with the groups of its input features as a dimension of their own."""
        shape, at = self.draft.shape(name), self.labels.rhs.index("i")
        each = (self.groups, shape.dims[at] // self.groups)
        cut = Shape(shape.dtype, (*shape.dims[:at], *each, *shape.dims[at + 1 :]))
        return self.draft.add(self.instr, "reshape", cut, (name,))

    def _turned(self, kernel: Instruction) -> tuple[Instruction, Instruction]:
        """Return how the groups of input features come to be among the output features."""
        cut, labels = kernel.shape, self.labels.rhs
        assert isinstance(cut, Shape)
        inner, outer = labels.index("i"), labels.index("o")
        order = [d for d in range(cut.rank) if d != inner]
        order.insert(order.index(outer + (outer > inner)), inner)
        dims = tuple(cut.dims[d] for d in order)
        name, attrs = self.instr.name, {"dimensions": tuple(order)}
        shape = Shape(cut.dtype, dims)
        turned = Instruction(f"{name}.turned", "transpose", shape, (kernel.name,), attrs)
        at = order.index(inner)
        joined = Shape(cut.dtype, (*dims[:at], dims[at] * dims[at + 1], *dims[at + 2 :]))
        return turned, Instruction(f"{name}.kernel", "reshape", joined, (turned.name,))
