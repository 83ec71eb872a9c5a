"""HLO protos and snapshots: what is inside is found by content, and broken ones are refused."""

from __future__ import annotations

import contextlib
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jaxlib import _hlo

from hlo2graph.errors import HloError
from hlo2graph.importers import convert, to_hlo
from hlo2graph.importers.literals import TYPES, arrays_of
from hlo2graph.importers.protos import peel
from hlo2graph.importers.wire import WireError
from tests import wire
from tests.conftest import ADD

MODULE = _hlo.hlo_module_from_text(ADD).as_serialized_hlo_module_proto()
X, Y = np.float32([1, 2, 3, 4]), np.float32([10, 20, 30, 40])
ARGUMENTS = (wire.f32(X), wire.f32(Y))


def loaded(path):
    with np.load(path) as arrays:
        return arrays["out0"]


@pytest.mark.parametrize(
    ("data", "arguments"),
    [
        (MODULE, 0),
        (wire.field(1, MODULE), 0),
        (wire.field(1, MODULE) + wire.field(3, b""), 0),
        (wire.snapshot(MODULE), 0),
        (wire.snapshot(MODULE, *ARGUMENTS) + wire.field(4, b"Host"), 2),
        (wire.unoptimized(MODULE, *ARGUMENTS), 2),
    ],
    ids=("HloModuleProto", "HloProto", "with-buffers", "snapshot", "with-literals", "unoptimized"),
)
def test_finds_the_module(data, arguments):
    peeled = peel(data)
    assert peeled.module == MODULE
    assert len(peeled.arguments) == arguments


def test_commands_take_protos(cli, add, tmp_path):
    for name in ("model.pb", "model"):
        path = tmp_path / name
        path.write_bytes(wire.field(1, MODULE))
        code, out, err = cli("plan", path)
        assert (code, err) == (0, "")
        assert out.splitlines()[-1] == cli("plan", add)[1].splitlines()[-1]


def test_a_snapshots_literals_are_the_inputs(cli, tmp_path):
    path, results, other = tmp_path / "s.pb", tmp_path / "y.npz", tmp_path / "x.npy"
    path.write_bytes(wire.snapshot(MODULE, *ARGUMENTS))
    quick = ("--duration", "0", "--save-outputs", results)
    code, out, _ = cli("run", path, *quick)
    assert code == 0
    assert "inputs given" in out
    np.testing.assert_array_equal(loaded(results), X + Y)
    np.save(other, X * 100)
    assert cli("run", path, *quick, "--input", f"arg0=@{other}")[0] == 0
    np.testing.assert_array_equal(loaded(results), X * 100 + Y)


def test_literals_that_do_not_fit_are_refused(cli, tmp_path):
    path = tmp_path / "s.pb"
    path.write_bytes(wire.snapshot(MODULE, wire.f32(X), wire.f32(Y[:2])))
    code, _, err = cli("run", path)
    assert code == 2
    assert "input 1 (y) is f32[4]" in err


@pytest.mark.slow
def test_reads_what_xla_dumps(cli, tmp_path):
    program = (
        "import jax, numpy as np\n"
        "x = jax.device_put(np.arange(6, dtype=np.int32).reshape(2, 3))\n"
        "jax.jit(lambda x: (x * 3).sum(0))(x)"
    )
    flags = f"--xla_dump_hlo_snapshots --xla_dump_hlo_as_proto --xla_dump_to={tmp_path}"
    subprocess.run(
        [sys.executable, "-c", program],
        env={"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        check=True,
        capture_output=True,
    )
    (path,) = tmp_path.glob("*lambda*.snapshot.*.pb")
    results = tmp_path / "y.npz"
    assert cli("run", path, "--duration", "0", "--save-outputs", results)[0] == 0
    np.testing.assert_array_equal(loaded(results), [9, 15, 21])
    (path,) = tmp_path.glob("*lambda*.before_optimizations.hlo.pb")
    assert cli("plan", path)[0] == 0


@pytest.mark.parametrize("number", TYPES, ids=[dtype.name for dtype, _ in TYPES.values()])
def test_reads_literals_of_every_type(number):
    dtype, at = TYPES[number]
    want = np.array([1, 0, 1, 1, 0, 1]).astype(dtype.numpy).reshape(2, 3)
    if dtype.name in ("s4", "s8", "s16", "s32", "s64"):
        want[1] = np.array([-1, -2, -8]).astype(dtype.numpy)
    if dtype.name in ("pred", "s32", "s64", "u32", "u64"):
        values = b"".join(wire.varint(int(v)) for v in want.ravel())
    elif dtype.bits < 8 and dtype.name[0] in "su":
        values = bytes(int(v) & (1 << dtype.bits) - 1 for v in want.ravel())
    else:
        values = want.tobytes()
    (found,) = arrays_of(memoryview(wire.literal(number, at, values, (2, 3))))
    assert found.dtype == dtype.numpy
    assert found.tobytes() == want.tobytes()


def test_literals_are_what_xla_writes():
    text = "HloModule m\nENTRY e {\n ROOT c = s4[3] constant({1, -8, 7})\n}"
    module = _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    at = module.index(wire.field(21, b"\x01\x08\x07"))
    shape = wire.field(1, wire.shape(21, (3,)))
    (found,) = arrays_of(memoryview(shape + module[at : at + 6]))
    assert found.tolist() == np.array([1, -8, 7]).astype(ml_dtypes.int4).tolist()


def test_literals_lie_as_their_layout_says():
    want = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    stored = want.transpose(1, 0, 2).tobytes()  # dimension 1 is the most major
    (found,) = arrays_of(memoryview(wire.literal(11, 8, stored, (2, 3, 4), (2, 0, 1))))
    np.testing.assert_array_equal(found, want)


def test_large_varints():
    want = np.array([2**63 - 1, -(2**63), 127, 128, 0], np.int64)
    values = b"".join(wire.varint(int(v)) for v in want)
    (found,) = arrays_of(memoryview(wire.literal(5, 5, values, (5,))))
    np.testing.assert_array_equal(found, want)


def test_tuples_give_their_leaves():
    parts = wire.field(10, wire.f32(X)) + wire.field(10, wire.f32(Y))
    nested = wire.field(1, wire.shape(13)) + parts
    found = list(arrays_of(memoryview(nested)))
    np.testing.assert_array_equal(found, [X, Y])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (MODULE[: len(MODULE) // 2], "it ends inside a field"),
        (MODULE + b"\x0a", "it ends inside a number"),
        (wire.field(1, wire.field(1, wire.field(1, MODULE))) + b"\0", "a field has number 0"),
        (wire.field(1, wire.field(1, wire.field(1, MODULE))), "it holds no HLO module"),
        (wire.snapshot(MODULE, wire.literal(11, 8, X.tobytes(), (5,))), "5 elements holds 4"),
        (wire.snapshot(MODULE, wire.literal(11, 8, X.tobytes()[:-1], (4,))), "inside an element"),
        (wire.snapshot(MODULE, wire.literal(99, 8, b"", (4,))), "of element type 99"),
        (wire.snapshot(MODULE, wire.literal(11, 8, b"", (0, 2**62, 2**62))), "of dimensions"),
        (wire.snapshot(MODULE, wire.literal(11, 8, X.tobytes(), (4,), (3,))), "layout is none"),
        (wire.snapshot(MODULE, wire.literal(4, 4, b"\x80" * 12 + b"\1", (1,))), "is too long"),
        (wire.snapshot(MODULE, wire.literal(4, 4, b"\x80", (1,))), "ends inside a number"),
    ],
)
def test_broken_protos_are_refused(data, reason):
    with pytest.raises(HloError, match=f"this is no whole HLO proto: .*{reason}"):
        to_hlo(data, "f.pb")


def test_tuples_nested_too_deeply_are_refused():
    nested = wire.f32(X)
    for _ in range(5000):
        nested = wire.field(1, wire.shape(13)) + wire.field(10, nested)
    with pytest.raises(WireError, match="too deeply"):
        list(arrays_of(memoryview(nested)))


def test_what_jaxlib_refuses_is_an_error(cli, tmp_path):
    path = tmp_path / "f.pb"
    path.write_bytes(MODULE.replace(b"parameter", b"parametre"))
    code, _, err = cli("plan", path)
    assert code == 2
    assert err.startswith(f"error: {path}: this is ")


@given(st.binary(max_size=60), st.booleans())
def test_any_bytes_are_a_program_or_refused(data, begins_like_one):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(convert, "_converted", lambda *_: "")
        with contextlib.suppress(HloError):
            to_hlo(b"\x0a" * begins_like_one + data)


@given(st.integers(0, len(MODULE) + 60), st.binary(min_size=1, max_size=3))
def test_snapshots_with_spoiled_bytes(at, spoiled):
    whole = wire.snapshot(MODULE, *ARGUMENTS)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(convert, "_converted", lambda *_: "")
        with contextlib.suppress(HloError):
            to_hlo(whole[:at] + spoiled + whole[at + len(spoiled) :])
