"""Input arrays by seed and from files, results into files."""

import os

import ml_dtypes
import numpy as np
import pytest

from hlo2graph.errors import InputError
from hlo2graph.hlo import DTYPES, Shape
from hlo2graph.inspect.arrays import (
    find_leaf,
    load_inputs,
    parse_input,
    parse_inputs,
    random_inputs,
    save_outputs,
)
from hlo2graph.program.thunks import Port


def port(name, dtype, *dims):
    return Port(name, Shape(DTYPES[dtype], dims))


PORTS = (port("x", "f32", 2, 3), port("w.1", "bf16", 4), port("n", "s32"))
X = np.arange(6, dtype=np.float32).reshape(2, 3)
W = np.arange(4).astype(ml_dtypes.bfloat16)


@pytest.mark.parametrize("name", [n for n in DTYPES if n not in ("token", "opaque")])
def test_random_inputs_have_the_type_and_vary(name):
    (found,) = random_inputs([port("x", name, 64, 8)], 0)
    assert (found.dtype, found.shape) == (DTYPES[name].numpy, (64, 8))
    assert len(np.unique(found.view(np.uint8))) > 1 or name == "s1"  # 0 is s1's only number >= 0


def test_random_inputs_depend_on_seed_and_position_alone():
    once, again = random_inputs(PORTS, 3), random_inputs(PORTS, 3)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(once, again, strict=True))
    assert random_inputs(PORTS[:1], 3)[0].tobytes() == once[0].tobytes()
    assert random_inputs(PORTS, 4)[0].tobytes() != once[0].tobytes()
    twice = random_inputs([PORTS[0], PORTS[0]], 3)
    assert twice[0].tobytes() != twice[1].tobytes()


def test_random_distributions():
    f, s, u, p = random_inputs([port("x", d, 4000) for d in ("f32", "s32", "u1", "pred")], 1)
    assert abs(f.mean()) < 0.1
    assert abs(f.std() - 1) < 0.1
    assert set(s.tolist()) == set(range(8))
    assert set(u.astype(int).tolist()) == {0, 1}
    assert 1800 < np.count_nonzero(p) < 2200


def test_load_by_argument_number_and_by_name(tmp_path):
    path = tmp_path / "in.npz"
    np.savez(path, arg0=X, n=np.int32(7))
    found = load_inputs(path, PORTS)
    assert set(found) == {0, 2}
    assert (found[0] == X).all()
    assert found[2] == 7


def test_results_beside_inputs_are_stepped_over(tmp_path):
    path, notes = tmp_path / "in.npz", []
    np.savez(path, arg0=X, out0=X, out1=X)
    assert set(load_inputs(path, PORTS, notes.append)) == {0}
    assert notes == [f"{path}: results, which are no inputs, are left out: out0, out1"]
    np.savez(path, out0=X)
    with pytest.raises(InputError, match="out0 names no input"):
        load_inputs(path, PORTS)


def test_an_input_given_twice(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, X)
    name = PORTS[0].name
    assert set(parse_inputs([f"{name}=@{path}"], PORTS)) == {0}
    with pytest.raises(InputError, match=f"{name} is given twice"):
        parse_inputs([f"{name}=@{path}", f"arg0=@{path}"], PORTS)


def test_types_that_numpy_lacks_go_through_unsigned_integers(tmp_path):
    path = tmp_path / "in.npz"
    for stored in (W.view(np.uint16), W):  # ours, and what np.savez makes of it (void)
        np.savez(path, **{"w.1": stored})
        found = load_inputs(path, PORTS)[1]
        assert found.dtype == ml_dtypes.bfloat16
        assert (found == W).all()


def test_results_come_back_as_inputs(tmp_path):
    path = tmp_path / "out.npz"
    narrow = np.arange(4).astype(ml_dtypes.int4)
    save_outputs(path, [X, W, narrow])
    with np.load(path) as held:
        assert sorted(held) == ["out0", "out1", "out2"]
        assert (held["out0"] == X).all()
        assert (held["out1"].view(ml_dtypes.bfloat16) == W).all()
        assert (held["out2"].view(ml_dtypes.int4) == narrow).all()
    assert [p.name for p in tmp_path.iterdir()] == ["out.npz"]


def test_a_failed_save_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "out.npz"
    path.write_text("old")

    def full(*_args, **_named):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(InputError, match=r"out\.npz: cannot be written: No space left"):
        save_outputs(path, [X])
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["out.npz"]


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="No such file or directory"):
        save_outputs(tmp_path / "no" / "out.npz", [X])


@pytest.mark.skipif(os.name != "posix", reason="POSIX permissions")
def test_saved_files_have_ordinary_permissions(tmp_path):
    save_outputs(tmp_path / "out.npz", [X])
    (tmp_path / "plain").touch()
    assert (tmp_path / "out.npz").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"y": X}, r"y names no input; expected arg0 to arg2, or one of x, w\.1, n"),
        ({"arg3": X}, "arg3 names no input"),
        ({"arg0": X, "x": X}, r"is the second array for input 0"),
        (
            {"x": X.T.copy()},
            r"input 0 \(x\) is f32\[2,3\], so it takes shape \(2, 3\), got \(3, 2\)",
        ),
        ({"x": X.astype(np.float64)}, "takes dtype float32, got float64"),
        ({"x": X.view(np.uint32)}, "takes dtype float32, got uint32"),
        ({"x": np.array([{}])}, "x cannot be read"),
    ],
)
def test_arrays_that_do_not_fit(tmp_path, arrays, message):
    path = tmp_path / "in.npz"
    np.savez(path, **arrays)
    with pytest.raises(InputError, match=message) as found:
        load_inputs(path, PORTS)
    assert str(path) in found.value.message


@pytest.mark.parametrize(
    ("key", "meant"), [("w", "w.1"), ("w1", "w.1"), ("weights", None), ("arg7", None)]
)
def test_a_name_that_is_none_brings_the_likeliest_to_mind(key, meant):
    with pytest.raises(InputError, match="names no input") as found:
        find_leaf(key, PORTS, "arg", "--input")
    assert [n.message for n in found.value.notes] == [f"perhaps {meant} was meant"] * bool(meant)


@pytest.mark.parametrize(
    "content", [b"", b"HloModule m", b"PK\x03\x04 broken", b"\x93NUMPY\x01\x00\xff\xff"]
)
def test_files_that_are_no_npz(tmp_path, content):
    path = tmp_path / "in.npz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"cannot be read as \.npz") as found:
        load_inputs(path, PORTS)
    assert "pickle" not in found.value.message


def test_a_missing_file(tmp_path):
    with pytest.raises(InputError, match=r"in\.npz: cannot be read .* No such file"):
        load_inputs(tmp_path / "in.npz", PORTS)


def test_a_damaged_npz_member(tmp_path):
    path = tmp_path / "in.npz"
    np.savez_compressed(path, x=X)
    data = bytearray(path.read_bytes())
    data[60:90] = b"\xff" * 30
    path.write_bytes(data)
    with pytest.raises(InputError, match="cannot be read"):
        load_inputs(path, PORTS)


def test_npy_given_for_npz_and_the_reverse(tmp_path):
    np.save(tmp_path / "x.npy", X)
    np.savez(tmp_path / "x.npz", x=X)
    with pytest.raises(InputError, match="holds one array without a name; give it as --input"):
        load_inputs(tmp_path / "x.npy", PORTS)
    with pytest.raises(InputError, match="holds several arrays; give it as --inputs"):
        parse_input(f"x=@{tmp_path / 'x.npz'}", PORTS)


def test_input_option(tmp_path):
    path = tmp_path / "x=1.npy"
    np.save(path, X)
    for name in ("x", "arg0"):
        position, found = parse_input(f"{name}=@{path}", PORTS)
        assert position == 0
        assert (found == X).all()
    with pytest.raises(InputError, match="takes dtype int32, got float32"):
        parse_input(f"n=@{path}", PORTS)


@pytest.mark.parametrize("option", ["x", "x=", "x=file.npy", "=@x.npy", ""])
def test_input_options_that_are_none(option):
    with pytest.raises(InputError, match=r"an input is NAME=@file\.npy"):
        parse_input(option, PORTS)


def test_a_program_without_inputs_says_so(tmp_path):
    np.savez(tmp_path / "in.npz", x=X)
    with pytest.raises(InputError, match="the program takes none"):
        load_inputs(tmp_path / "in.npz", ())
