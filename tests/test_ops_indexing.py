"""gather and scatter against XLA over random dimension numbers, and what they refuse."""

import random
from dataclasses import dataclass

import numpy as np
import pytest
from agreement import agree, module, refused, run_host, scalar_region


@dataclass(frozen=True)
class Case:
    """Legal dimension numbers, drawn from a seed; indices reach out of bounds."""

    operand: list[int]
    indices: list[int]
    slices: list[int]
    vector_dim: int
    mapped: list[int]
    dropped: list[int]
    batching: list[int]
    paired: list[int]
    window: list[int]

    @property
    def result(self) -> list[int]:
        """The dimensions of a gather's result and of a scatter's updates."""
        kept = [
            n for d, n in enumerate(self.slices) if d not in self.dropped and d not in self.batching
        ]
        batch = [n for d, n in enumerate(self.indices) if d != self.vector_dim]
        rank = len(kept) + len(batch)
        return [(kept if d in self.window else batch).pop(0) for d in range(rank)]


def draw_case(seed: int) -> Case:
    r = random.Random(seed)
    rank = r.randint(1, 4)
    operand = [r.randint(1, 4) for _ in range(rank)]
    dims = list(range(rank))
    r.shuffle(dims)
    batched = r.choice([0, 0, 1]) if rank > 1 else 0
    batching, rest = sorted(dims[:batched]), dims[batched:]
    mapped = rest[: r.randint(1, len(rest))]
    dropped = sorted(d for d in rest if r.random() < 0.5)
    slices = [1 if d in dropped or d in batching else r.randint(1, operand[d]) for d in range(rank)]
    batch = [r.randint(1, 3) for _ in range(r.randint(1, 3))]
    paired = r.sample(range(len(batch)), batched)
    for dim, source in zip(batching, paired, strict=True):
        batch[source] = operand[dim]
    vector_dim = r.randint(0, len(batch))
    indices = [*batch[:vector_dim], len(mapped), *batch[vector_dim:]]
    paired = [p + (p >= vector_dim) for p in paired]
    if len(mapped) == 1 and r.random() < 0.4:
        vector_dim, indices = len(batch), batch
        paired = [batch.index(operand[d]) for d in batching] if batching else []
    kept = rank - len(dropped) - batched
    window = sorted(r.sample(range(kept + len(batch)), kept))
    return Case(operand, indices, slices, vector_dim, mapped, dropped, batching, paired, window)


def braced(dims: list[int]) -> str:
    return "{" + ",".join(map(str, dims)) + "}"


def listed(dims: list[int]) -> str:
    return ",".join(map(str, dims))


def gather(case: Case, index_type: str) -> str:
    batching = (
        f"operand_batching_dims={braced(case.batching)}, "
        f"start_indices_batching_dims={braced(case.paired)}, "
    )
    return module(
        f"x = f32[{listed(case.operand)}] parameter(0) "
        f"i = {index_type}[{listed(case.indices)}] parameter(1) "
        f"ROOT r = f32[{listed(case.result)}] gather(x, i), offset_dims={braced(case.window)}, "
        f"collapsed_slice_dims={braced(case.dropped)}, start_index_map={braced(case.mapped)}, "
        f"{batching if case.batching else ''}"
        f"index_vector_dim={case.vector_dim}, slice_sizes={braced(case.slices)}"
    )


def scatter_attributes(case: Case) -> str:
    batching = (
        f"input_batching_dims={braced(case.batching)}, "
        f"scatter_indices_batching_dims={braced(case.paired)}, "
    )
    return (
        f"update_window_dims={braced(case.window)}, inserted_window_dims={braced(case.dropped)}, "
        f"scatter_dims_to_operand_dims={braced(case.mapped)}, "
        f"{batching if case.batching else ''}index_vector_dim={case.vector_dim}, to_apply=region"
    )


def scatter(case: Case, dtype: str, index_type: str, region: str) -> str:
    return module(
        f"x = {dtype}[{listed(case.operand)}] parameter(0) "
        f"i = {index_type}[{listed(case.indices)}] parameter(1) "
        f"u = {dtype}[{listed(case.result)}] parameter(2) "
        f"ROOT r = {dtype}[{listed(case.operand)}] scatter(x, i, u), {scatter_attributes(case)}",
        region,
    )


@pytest.mark.parametrize("seed", range(40))
def test_gather(seed):
    agree(gather(draw_case(seed), ["s32", "s64", "u32", "s8", "u64"][seed % 5]), tolerance=0)


def test_gather_of_a_scalar():
    text = (
        "x = f32[3] parameter(0) i = s32[1] parameter(1) ROOT r = f32[] gather(x, i), "
        "offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=0, "
        "slice_sizes={1}"
    )
    (got,) = agree(module(text), [np.float32([4, 5, 6]), np.int32([1])], tolerance=0)
    assert got.shape == ()
    assert got == 5


def test_gather_clamps():
    case = Case([5], [4, 1], [2], 1, [0], [], [], [], [1])
    x, i = np.arange(5, dtype=np.float32), np.array([[-7], [2], [3], [99]], np.int32)
    (got,) = agree(gather(case, "s32"), [x, i], tolerance=0)
    assert got.tolist() == [[0, 1], [2, 3], [3, 4], [3, 4]]


REGIONS = {
    "add": ("f32", scalar_region("region", "add", "f32")),
    "add narrow": ("bf16", scalar_region("region", "add", "bf16")),
    "add complex": ("c64", scalar_region("region", "add", "c64")),
    "maximum": ("s32", scalar_region("region", "maximum", "s32")),
    "or": ("pred", scalar_region("region", "or", "pred")),
    "replace": ("f32", "region { a = f32[] parameter(0) ROOT b = f32[] parameter(1) }"),
    "any": (
        "f32",
        "region { a = f32[] parameter(0) b = f32[] parameter(1) h = f32[] multiply(a, a) "
        "ROOT r = f32[] subtract(h, b) }",
    ),
}


@pytest.mark.parametrize("seed", range(100, 110))
@pytest.mark.parametrize("name", REGIONS)
def test_scatter(name, seed):
    dtype, region = REGIONS[name]
    text = scatter(draw_case(seed), dtype, ["s32", "s64", "u32"][seed % 3], region)
    agree(text, tolerance=3e-2 if dtype == "bf16" else 1e-5)


@pytest.mark.parametrize("seed", range(200, 208))
def test_scatter_of_two_operands(seed):
    case = draw_case(seed)
    operand, updates = f"f32[{listed(case.operand)}]", f"f32[{listed(case.result)}]"
    region = (
        "region { a = f32[] parameter(0) b = f32[] parameter(1) c = f32[] parameter(2) "
        "d = f32[] parameter(3) e = f32[] add(a, d) f = f32[] subtract(b, c) "
        "ROOT r = (f32[], f32[]) tuple(e, f) }"
    )
    entry = (
        f"x = {operand} parameter(0) y = {operand} parameter(1) "
        f"i = s32[{listed(case.indices)}] parameter(2) "
        f"u = {updates} parameter(3) v = {updates} parameter(4) "
        f"ROOT r = ({operand}, {operand}) scatter(x, y, i, u, v), {scatter_attributes(case)}"
    )
    agree(module(entry, region))


ROWS = Case([4], [6, 1], [1], 1, [0], [0], [], [], [])


def test_scatter_leaves_out_what_is_outside():
    x, u = np.zeros(4, np.float32), np.arange(1, 7, dtype=np.float32)
    i = np.array([[-1], [0], [4], [3], [0], [2**31 - 1]], np.int32)
    (got,) = agree(scatter(ROWS, "f32", "s32", REGIONS["add"][1]), [x, i, u], tolerance=0)
    assert got.tolist() == [7, 0, 0, 4]


def test_scatter_leaves_out_whole_windows():
    case = Case([5], [2, 1], [3], 1, [0], [], [], [], [1])
    x, u = np.zeros(5, np.float32), np.ones((2, 3), np.float32)
    i = np.array([[3], [2]], np.int32)
    (got,) = agree(scatter(case, "f32", "s32", REGIONS["add"][1]), [x, i, u], tolerance=0)
    assert got.tolist() == [0, 0, 1, 1, 1]


@pytest.mark.parametrize("name", ["replace", "any"])
def test_equal_indices_go_in_order(name):
    x = np.array([3, 1, 1, 1], np.float32)
    i, u = np.zeros((6, 1), np.int32), np.arange(2, 8, dtype=np.float32)
    (got,) = agree(scatter(ROWS, "f32", "s32", REGIONS[name][1]), [x, i, u])
    want = np.float32(3)
    for update in u:
        want = update if name == "replace" else want * want - update
    np.testing.assert_allclose(got[0], want, rtol=1e-6)


def test_scatter_does_not_change_its_operand():
    x, u = np.zeros(4, np.float32), np.ones(6, np.float32)
    run_host(scatter(ROWS, "f32", "s32", REGIONS["add"][1]), [x, np.zeros((6, 1), np.int32), u])
    assert not x.any()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("offset_dims={1}", "offset_dims={2}", "offset_dims has 2, out of range for rank 2"),
        ("offset_dims={1}", "offset_dims={0,1}", "offset_dims has 2 dimensions, the slices 1"),
        ("slice_sizes={1,8}", "slice_sizes={2,8}", "slice size of collapsed dimension 0 must be 1"),
        ("slice_sizes={1,8}", "slice_sizes={1,9}", "slice size 9 is out of range for dimension 1"),
        ("slice_sizes={1,8}", "slice_sizes={1}", "one size a dimension"),
        ("start_index_map={0}", "start_index_map={0,1}", "names 2 dimensions, index vectors"),
        ("start_index_map={0}", "start_index_map={2}", "start_index_map has 2, out of range"),
        ("index_vector_dim=1", "index_vector_dim=3", "index_vector_dim=3 is out of range"),
        ("s32[5,1]", "f32[5,1]", "indices must be integers"),
    ],
)
def test_gather_refusals(old, new, message):
    text = module(
        "x = f32[16,8] parameter(0) i = s32[5,1] parameter(1) ROOT r = f32[5,8] gather(x, i), "
        "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, "
        "slice_sizes={1,8}"
    )
    assert old in text
    refused(text.replace(old, new), message)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("u = f32[5,8]", "u = f32[5,9]", "wider at 1 than the operand"),
        ("u = f32[5,8]", "u = f32[4,8]", r"other dimensions must be \[5\]"),
        ("u = f32[5,8]", "u = s32[5,8]", "updates must have the operand's element type"),
        ("update_window_dims={1}", "update_window_dims={0,1}", "update_window_dims has 2"),
        ("inserted_window_dims={0}", "inserted_window_dims={5}", "out of range for rank 2"),
    ],
)
def test_scatter_refusals(old, new, message):
    text = module(
        "x = f32[16,8] parameter(0) i = s32[5,1] parameter(1) u = f32[5,8] parameter(2) "
        "ROOT r = f32[16,8] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=region",
        REGIONS["add"][1],
    )
    assert old in text
    refused(text.replace(old, new), message)
