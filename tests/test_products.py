"""Dots as strided matrix products: found, or left to our own kernels; read right columns first."""

import numpy as np
import pytest

import hlo2graph as h2g
from hlo2graph.backends.cuda.blas import _exchanged, _leading, _needs_exchange, _operand
from hlo2graph.ops.matmul import Matrix, matmul_of
from hlo2graph.program.thunks import Library
from hlo2graph.program.use_libraries import WORKSPACE_BYTES
from tests.products import CUTS, arrangements, dot_text


def product(text: str):
    return matmul_of(h2g.parse(text).entry)


def stored(array: np.ndarray, shape) -> np.ndarray:
    """Return the elements in the order in which they lie in memory."""
    return np.ascontiguousarray(array.transpose(shape.minor_to_major[::-1])).reshape(-1)


def at(flat: np.ndarray, batch: int, matrix: Matrix) -> np.ndarray:
    """Return a batch's matrix, read by strides."""
    size = flat.itemsize
    strides = tuple(
        size * s for s in (matrix.batch_stride, matrix.row_stride, matrix.column_stride)
    )
    dims = (batch, matrix.rows, matrix.columns)
    return np.lib.stride_tricks.as_strided(flat, dims, strides)


def columns_first(flat: np.ndarray, batch: int, matrix: Matrix) -> np.ndarray:
    """Return the same as cuBLASLt reads it: columns `ld` apart, transposed where it says so."""
    seen = _operand(matrix)
    size = flat.itemsize
    view = np.lib.stride_tricks.as_strided(
        flat,
        (batch, seen.rows, seen.columns),
        (size * matrix.batch_stride, size, size * seen.ld),
    )
    return view.transpose(0, 2, 1) if seen.transposed else view


@pytest.mark.parametrize("text", arrangements())
def test_every_arrangement_is_read_where_it_lies(text):
    module, found = h2g.parse(text), product(text)
    (a, b), root = module.entry.parameters, module.entry.result
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(p.shape.dims).astype(np.float32) for p in (a, b)]
    (want,) = h2g.compile(module, "host")(*args)
    assert found is not None
    lhs, rhs = (stored(x, p.shape) for x, p in zip(args, (a, b), strict=True))
    out = at(lhs, found.batch, found.lhs) @ at(rhs, found.batch, found.rhs)
    held = at(stored(want, root.shape), found.batch, found.out)
    np.testing.assert_allclose(out, held, rtol=1e-4, atol=1e-4)

    if _needs_exchange(found.out):
        found, lhs, rhs = _exchanged(found), rhs, lhs
        held = held.transpose(0, 2, 1)
    out = columns_first(lhs, found.batch, found.lhs) @ columns_first(rhs, found.batch, found.rhs)
    np.testing.assert_allclose(out, held, rtol=1e-4, atol=1e-4)
    assert _leading(found.out) >= found.m


def test_dimensions_that_do_not_lie_one_inside_the_other_are_left_alone():
    assert product(dot_text("mkb", "bkn", ("mkb", "bkn", "bmn"))) is None
    split = (
        "HloModule m\nENTRY main {\n  a = f32[5,64,8] parameter(0)\n  b = f32[64,24] parameter(1)\n"
        "  ROOT d = f32[5,8,24] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n}\n"
    )
    assert product(split) is None


@pytest.mark.parametrize(
    ("lhs", "rhs", "out", "dims"),
    [
        ("f32[5,8,6,7]", "f32[9,8]", "f32[5,6,7,9]{2,1,3,0}", (1, 1)),
        ("f32[5,8,6,7]", "f32[8,9]", "f32[5,6,7,9]", (1, 0)),
        ("f32[9,8]", "f32[5,8,42]", "f32[9,5,42]{2,0,1}", (1, 1)),
        ("f32[8,9]", "f32[5,8,42]", "f32[9,5,42]", (0, 1)),
    ],
)
def test_many_products_share_an_operand(lhs, rhs, out, dims):
    module = h2g.parse(
        f"HloModule m\nENTRY main {{\n  a = {lhs} parameter(0)\n  b = {rhs} parameter(1)\n"
        f"  ROOT d = {out} dot(a, b), lhs_contracting_dims={{{dims[0]}}}, "
        f"rhs_contracting_dims={{{dims[1]}}}\n}}\n"
    )
    found, root = matmul_of(module.entry), module.entry.result
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(p.shape.dims).astype(np.float32) for p in module.entry.parameters]
    (want,) = h2g.compile(module, "host")(*args)
    a, b = (x.reshape(-1) for x in args)
    assert found is not None
    assert found.batch == 5
    assert 0 in (found.lhs.batch_stride, found.rhs.batch_stride)
    held = at(stored(want, root.shape), found.batch, found.out)
    got = at(a, found.batch, found.lhs) @ at(b, found.batch, found.rhs)
    np.testing.assert_allclose(got, held, rtol=1e-4, atol=1e-4)


def test_a_target_decides_who_multiplies():
    text = dot_text("mk", "kn", ("mk", "kn", "mn"), m=768, k=768, n=768)
    host, gpu = (h2g.plan(text, target=t).body.thunks for t in ("host", "sm_90"))
    assert not any(isinstance(t, Library) for t in host)
    (call,) = gpu
    assert isinstance(call, Library)
    assert [w.size for w in call.workspace] == [WORKSPACE_BYTES]


def test_products_that_run_at_once_have_workspaces_of_their_own():
    body = "".join(
        f"  d{k} = f32[768,768] dot(a, a), lhs_contracting_dims={{{k % 2}}}, "
        f"rhs_contracting_dims={{0}}\n"
        for k in range(2)
    )
    text = (
        f"HloModule two\nENTRY main {{\n  a = f32[768,768] parameter(0)\n{body}"
        "  ROOT t = (f32[768,768], f32[768,768]) tuple(d0, d1)\n}\n"
    )
    plan = h2g.plan(text, target="sm_90")
    one, other = (t.workspace[0] for t in plan.body.thunks)
    assert not one.overlaps(other)
    assert not plan.body.edges


@pytest.mark.parametrize(
    ("sizes", "fuse", "library"),
    [
        ({"m": 128, "n": 128, "k": 8}, "none", False),
        ({"m": 2, "n": 2, "k": 40}, "none", False),
        ({"m": 128, "n": 128, "k": 128}, "none", True),
        ({"m": 128, "n": 128, "k": 128}, "default", False),
        ({"m": 8, "n": 8, "k": 8192}, "default", False),
        ({"m": 2048, "n": 1024, "k": 128}, "default", True),
        ({"m": 512, "n": 544, "k": 512}, "default", True),
        ({"m": 512, "n": 543, "k": 512}, "default", False),  # lines are of odd length
        ({"m": 1024, "n": 543, "k": 512}, "default", True),
        ({"m": 1, "n": 8192, "k": 8192}, "default", False),
        ({"m": 1, "n": 8192, "k": 8192}, "none", True),
    ],
)
def test_small_products_stay_kernels(sizes, fuse, library):
    text = dot_text("mk", "kn", ("mk", "kn", "mn"), **sizes)
    plan = h2g.plan(text, target="sm_90", fuse=fuse)
    assert any(isinstance(t, Library) for t in plan.body.thunks) == library


@pytest.mark.parametrize("name", CUTS)
def test_a_library_reads_slices_where_they_lie(name):
    body, reads = CUTS[name]
    module = h2g.parse(f"HloModule m\nENTRY main {{\n{body}\n}}\n")
    plan = h2g.plan(module, target="sm_90")
    (call,) = plan.body.thunks
    assert isinstance(call, Library)
    assert len(call.reads) == reads
    found = matmul_of(plan.computations[call.computation])
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(b.shape.dims).astype(np.float32) for b in plan.inputs]
    (want,) = h2g.compile(module, "host")(*args)
    (got,) = h2g.compile(plan, "host")(*args)
    np.testing.assert_array_equal(got, want)
    by_slice = {b.slice: x.reshape(-1) for b, x in zip(plan.inputs, args, strict=True)}
    lhs, rhs = (
        at(by_slice[read][matrix.offset :], found.batch, matrix)
        for read, matrix in zip((call.reads * 2)[:2], (found.lhs, found.rhs), strict=True)
    )
    held = at(want.reshape(-1), found.batch, found.out)
    np.testing.assert_allclose(lhs @ rhs, held, rtol=1e-3, atol=1e-3)


def test_what_no_library_can_read_is_cut_out_first():
    """Neither rows nor columns of every other element lie side by side."""
    text = (
        "HloModule m\nENTRY main {\nx = f32[640,1024] parameter(0)\n"
        "w = f32[512,640] parameter(1)\n"
        "s = f32[640,512] slice(x), slice={[0:640], [0:1024:2]}\n"
        "ROOT r = f32[640,640] dot(s, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n}\n"
    )
    kinds = [type(t) for t in h2g.plan(text, target="sm_90").body.thunks]
    assert kinds[1:] == [Library]
    assert len(kinds) == 2
