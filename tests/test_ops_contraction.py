"""dot, ragged-dot and convolution against XLA, and ragged-dot, which XLA:CPU lacks, by hand."""

import numpy as np
import pytest
from agreement import agree, module, refused, run_host

TOLERANCE = {"bf16": 5e-2, "f16": 1e-2, "f8e4m3fn": 0.6}
DOTS = [  # lhs, rhs, result, attributes
    ("5,3", "3,4", "5,4", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
    (
        "2,5,3",
        "3,2,4",
        "2,5,4",
        "lhs_batch_dims={0}, rhs_batch_dims={1}, "
        "lhs_contracting_dims={2}, rhs_contracting_dims={0}",
    ),
    ("5", "5", "", "lhs_contracting_dims={0}, rhs_contracting_dims={0}"),
    ("2,3,4", "4,3,2", "3,3", "lhs_contracting_dims={0,2}, rhs_contracting_dims={2,0}"),
    ("5,0", "0,4", "5,4", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
]
TYPES = [
    ("f32", "f32", "f32"),
    ("f64", "f64", "f64"),
    ("bf16", "bf16", "bf16"),
    ("bf16", "bf16", "f32"),
    ("f16", "f16", "f16"),
    ("f8e4m3fn", "f8e5m2", "f32"),
    ("c64", "c64", "c64"),
    ("s32", "s32", "s32"),
    ("s64", "s64", "s64"),
    ("s8", "s8", "s32"),
    ("s8", "u8", "s32"),
    ("s32", "s32", "s8"),
    ("s32", "s32", "f32"),
    ("f32", "s32", "f32"),
    ("pred", "pred", "pred"),
    ("pred", "pred", "s32"),
]


@pytest.mark.parametrize(("left", "right", "result"), TYPES)
def test_types(left, right, result):
    entry = (
        f"x = {left}[2,5,3] parameter(0) y = {right}[2,3,4] parameter(1) "
        f"ROOT r = {result}[2,5,4] dot(x, y), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, "
        "lhs_contracting_dims={2}, rhs_contracting_dims={1}"
    )
    agree(module(entry), tolerance=TOLERANCE.get(result, 1e-5))


@pytest.mark.parametrize(("left", "right", "result", "attributes"), DOTS)
@pytest.mark.parametrize("dtype", ["f32", "s32"])
def test_dimensions(dtype, left, right, result, attributes):
    entry = (
        f"x = {dtype}[{left}] parameter(0) y = {dtype}[{right}] parameter(1) "
        f"ROOT r = {dtype}[{result}] dot(x, y), {attributes}"
    )
    agree(module(entry))


def test_outer_product():
    entry = "x = f32[5] parameter(0) y = f32[4] parameter(1) ROOT r = f32[5,4] dot(x, y)"
    agree(module(entry))


def test_integers_wrap():
    """Sums beyond 2^53 must wrap, not round."""
    entry = (
        "x = s32[1,3] parameter(0) y = s32[3,1] parameter(1) "
        "ROOT r = s32[1,1] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    )
    x = np.full((1, 3), 2**31 - 1, np.int32)
    (got,) = agree(module(entry), [x, x.T.copy()], tolerance=0)
    assert got.item() == 3


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ("lhs_contracting_dims={1}, rhs_contracting_dims={1}", "contracting dimensions differ"),
        ("lhs_contracting_dims={1}", "lhs has 1 contracting dimensions, rhs 0"),
        ("lhs_contracting_dims={2}, rhs_contracting_dims={0}", "out of range for rank 2"),
        (
            "lhs_batch_dims={1}, rhs_batch_dims={0}, "
            "lhs_contracting_dims={1}, rhs_contracting_dims={0}",
            "both batch and contract",
        ),
    ],
)
def test_dot_refusals(attributes, message):
    entry = (
        "x = f32[5,3] parameter(0) y = f32[3,4] parameter(1) "
        f"ROOT r = f32[5,4] dot(x, y), {attributes}"
    )
    refused(module(entry), message)


def ragged(shapes: str, result: str, attributes: str) -> str:
    left, right, sizes = shapes.split()
    return module(
        f"x = {left} parameter(0) y = {right} parameter(1) g = {sizes} parameter(2) "
        f"ROOT r = {result} ragged-dot(x, y, g), {attributes}"
    )


def numbers(*dims: int) -> np.ndarray:
    return np.random.default_rng(len(dims)).standard_normal(dims).astype(np.float32)


@pytest.mark.parametrize("sizes", [[4, 3, 4], [2, 0, 3], [0, 11, 0]])
def test_ragged_rows(sizes):
    """Each group of rows has a right side of its own; rows beyond all groups give zero."""
    text = ragged(
        "f32[11,5] f32[3,5,7] s64[3]",
        "f32[11,7]",
        "lhs_contracting_dims={1}, rhs_contracting_dims={1}, "
        "lhs_ragged_dims={0}, rhs_group_dims={0}",
    )
    x, y = numbers(11, 5), numbers(3, 5, 7)
    (got,) = run_host(text, [x, y, np.array(sizes)])
    owner = np.repeat(np.arange(3), sizes)
    want = np.zeros((11, 7), np.float32)
    for row, group in enumerate(owner):
        want[row] = x[row] @ y[group]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_ragged_rows_of_each_batch():
    text = ragged(
        "f32[2,11,5] f32[3,5,7] s32[2,3]",
        "f32[2,11,7]",
        "lhs_contracting_dims={2}, rhs_contracting_dims={1}, "
        "lhs_ragged_dims={1}, rhs_group_dims={0}",
    )
    x, y = numbers(2, 11, 5), numbers(3, 5, 7)
    sizes = np.array([[4, 3, 4], [1, 1, 1]], np.int32)
    (got,) = run_host(text, [x, y, sizes])
    want = np.zeros((2, 11, 7), np.float32)
    for batch in range(2):
        for row, group in enumerate(np.repeat(np.arange(3), sizes[batch])):
            want[batch, row] = x[batch, row] @ y[group]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_ragged_contraction_gives_one_product_a_group():
    text = ragged(
        "f32[5,11] f32[11,7] s64[3]",
        "f32[3,5,7]",
        "lhs_contracting_dims={1}, rhs_contracting_dims={0}, lhs_ragged_dims={1}",
    )
    x, y = numbers(5, 11), numbers(11, 7)
    (got,) = run_host(text, [x, y, np.array([4, 0, 5])])
    want = [x[:, :4] @ y[:4], np.zeros((5, 7)), x[:, 4:9] @ y[4:9]]
    np.testing.assert_allclose(got, np.stack(want), rtol=1e-5, atol=1e-5)


def test_ragged_batch_is_a_plain_dot():
    text = ragged(
        "f32[11,4,5] f32[11,5,7] s64[3]",
        "f32[11,4,7]",
        "lhs_batch_dims={0}, rhs_batch_dims={0}, "
        "lhs_contracting_dims={2}, rhs_contracting_dims={1}, lhs_ragged_dims={0}",
    )
    x, y = numbers(11, 4, 5), numbers(11, 5, 7)
    (got,) = run_host(text, [x, y, np.array([4, 3, 4])])
    np.testing.assert_allclose(got, x @ y, rtol=1e-5, atol=1e-5)


def test_ragged_groups_must_match():
    text = ragged(
        "f32[11,5] f32[4,5,7] s64[3]",
        "f32[11,7]",
        "lhs_contracting_dims={1}, rhs_contracting_dims={1}, "
        "lhs_ragged_dims={0}, rhs_group_dims={0}",
    )
    refused(text, "rhs has 4 groups, the group sizes 3")


CONVOLUTIONS = [  # lhs, rhs, result, window, labels, groups
    ("2,6,7,3", "3,2,3,4", "2,3,7,4", "size=3x2 stride=2x1 pad=1_1x0_1", "b01f_01io->b01f", ""),
    (
        "2,3,6,7",
        "4,3,3,2",
        "2,4,6,21",
        "size=3x2 stride=2x1 pad=3_1x2_1 lhs_dilate=2x3 rhs_dilate=2x1",
        "bf01_oi01->bf01",
        "",
    ),
    (
        "2,3,6,7",
        "4,3,3,2",
        "10,5,2,4",
        "size=3x2 pad=-1_2x0_-1 lhs_dilate=2x1",
        "bf01_oi01->01bf",
        "",
    ),
    (
        "2,3,6,7",
        "4,3,3,2",
        "4,6,6,2",
        "size=3x2 pad=1_1x0_0 rhs_reversal=1x1",
        "bf01_oi01->f01b",
        "",
    ),
    ("2,6,6,7", "4,3,3,2", "2,4,4,6", "size=3x2", "bf01_oi01->bf01", "feature_group_count=2"),
    ("4,3,6,7", "6,3,3,2", "2,6,4,6", "size=3x2", "bf01_oi01->bf01", "batch_group_count=2"),
    ("2,9,3", "3,3,4", "2,9,4", "size=3 pad=2_2 rhs_dilate=2", "b0f_0io->b0f", ""),
    ("1,4,5,6,2", "2,3,2,2,3", "1,4,5,5,3", "size=2x3x2 pad=1_0x1_1x0_0", "b012f_012io->b012f", ""),
    ("2,2,3", "5,3,4", "2,0,4", "size=5", "b0f_0io->b0f", ""),
]


@pytest.mark.parametrize("dtype", ["f32", "s32", "bf16", "c64"])
@pytest.mark.parametrize(("left", "right", "result", "window", "labels", "groups"), CONVOLUTIONS)
def test_convolution(dtype, left, right, result, window, labels, groups):
    entry = (
        f"x = {dtype}[{left}] parameter(0) y = {dtype}[{right}] parameter(1) "
        f"ROOT r = {dtype}[{result}] convolution(x, y), window={{{window}}}, dim_labels={labels}"
    )
    agree(module(f"{entry}, {groups}" if groups else entry), tolerance=TOLERANCE.get(dtype, 1e-4))


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ("window={size=3}, dim_labels=b01f_01io->b01f", "window has 1 dimensions for 2 spatial"),
        ("window={size=2x2}, dim_labels=b01f_01io->b01f", r"spatial dimensions are \[3, 2\]"),
        ("window={size=3x2}", "needs the attribute dim_labels"),
        ("window={size=3x2}, dim_labels=b0f_0io->b0f", "window has|do not fit"),
        (
            "window={size=3x2}, dim_labels=b01f_01io->b01f, feature_group_count=3",
            "lhs has 3 features, the kernel takes 3 in 3 groups",
        ),
        (
            "window={size=3x2}, dim_labels=b01f_01io->b01f, batch_group_count=3",
            "must be a multiple of 3",
        ),
    ],
)
def test_convolution_refusals(attributes, message):
    entry = (
        "x = f32[2,6,7,3] parameter(0) y = f32[3,2,3,4] parameter(1) "
        f"ROOT r = f32[2,4,6,4] convolution(x, y), {attributes}"
    )
    refused(module(entry), message)
