"""Compiled files: what is read back is what was written, and nothing else is read."""

from __future__ import annotations

import copy
import json
from random import Random

import numpy as np
import pytest
from conftest import RUNNABLE, SAMPLES

import hlo2graph as h2g
from hlo2graph.backends.cuda import functions, prepared
from hlo2graph.backends.cuda.compiler import Compiled
from hlo2graph.backends.cuda.prepared import loads_on
from hlo2graph.errors import BackendError, HloError, InputError, UnsupportedError
from hlo2graph.hlo import Module
from hlo2graph.inspect.arrays import random_inputs
from hlo2graph.inspect.compare import same_bits
from hlo2graph.options import POINTERS
from hlo2graph.saved import kernels as saved_kernels
from hlo2graph.saved.container import (
    Section,
    read_container,
    write_container,
)
from hlo2graph.saved.reading import read_saved
from tests.fake_cuda import fake
from tests.placements import PROGRAMS
from tests.test_cuda_graph import DIAMOND, KNOWN, LOOP, X

__all__ = ["fake"]  # a fixture

WEIGHTS = """
HloModule weights

ENTRY main {
  x = f32[2] parameter(0)
  w = f32[2,3]{0,1} constant({ {1, 2, 3}, {4, nan, -0} })
  b = bf16[3] constant({1, 2, inf})
  s = s4[3] constant({1, -8, 7})
  e = f32[0] constant({})
  y = f32[3] dot(x, w), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  c = f32[3] convert(b)
  d = f32[3] convert(s)
  z = f32[3] add(y, c)
  ROOT out = (f32[3], f32[0], bf16[3]) tuple(z, e, b)
}
"""
ELIDED = "HloModule m\nENTRY e {\n  x = f32[99] constant({...})\n  ROOT y = f32[99] negate(x)\n}\n"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.h2g"


@pytest.fixture
def small(path):
    """Return the bytes of a file."""
    h2g.save(h2g.plan(DIAMOND, target="host"), path, module=h2g.parse(DIAMOND))
    return path.read_bytes()


@pytest.fixture
def without_nvrtc(monkeypatch):
    """Compile to the name of the architecture and a number."""

    def units(texts, arch):
        return [
            Compiled(f"{arch} {k}".encode() * (k + 1), cached=False) for k, _ in enumerate(texts)
        ]

    monkeypatch.setattr(functions, "compile_units", units)
    monkeypatch.setattr(functions, "OWN", {})


def text_of(path):
    text = path.read_text()
    return text.split("// -----")[0] if path.suffix == ".hlo" else text


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda p: p.stem)
def test_plan_and_module_are_what_was_written(sample, path):
    text = text_of(sample)
    module = h2g.parse(text) if sample.suffix == ".hlo" else None
    for target in ("host", "sm_90") if module else (None,):
        plan = h2g.plan(module or text, **({"target": target} if target else {}))
        h2g.save(plan, path, module=module, arches=())
        found = read_saved(path.read_bytes(), "model.h2g")
        assert found.plan == plan
        assert str(found.plan) == str(plan)
        assert found.module == module
        assert str(found.module) == str(module)


@pytest.mark.parametrize("sample", RUNNABLE[::6], ids=lambda p: p.stem)
def test_runs_to_the_same_bits(sample, path):
    executable = h2g.compile(text_of(sample), "host")
    args = random_inputs(executable.plan.inputs, 0)
    h2g.save(executable, path)
    loaded = h2g.load(path)
    assert same_bits(loaded(*args), executable(*args))
    assert (loaded.inputs, loaded.outputs) == (executable.inputs, executable.outputs)


def test_constants_keep_their_bits(path):
    rng = np.random.default_rng(0)
    big = rng.standard_normal((40, 50)).astype("f4")
    rows = ", ".join("{" + ", ".join(f"{v:.9g}" for v in row) + "}" for row in big)
    text = WEIGHTS.replace(
        "ROOT", f"big = f32[40,50] constant({{ {rows} }})\n  two = f32[40,50] add(big, big)\n  ROOT"
    )
    text = text.replace("(f32[3],", "(f32[40,50], f32[3],").replace("tuple(z", "tuple(two, z")
    executable = h2g.compile(text, "host")
    h2g.save(executable, path, module=h2g.parse(text))
    size = path.stat().st_size
    assert big.nbytes < size < 1.5 * big.nbytes, "equal constants stand there once"
    x = np.ones(2, "f4")
    assert same_bits(h2g.load(path)(x), executable(x))
    assert same_bits(h2g.load(path)(x)[:1], [big + big])


def test_elided_constants_stay_elided_or_have_the_values_they_were_given(path):
    plan = h2g.plan(ELIDED, target="host")
    h2g.save(plan, path)
    with pytest.raises(UnsupportedError, match="elides"):
        h2g.load(path)
    assert not h2g.load(path, elided="zeros")()[0].any()
    executable = h2g.compile(ELIDED, "host", elided="random:3")
    h2g.save(executable, path)
    assert same_bits(h2g.load(path)(), executable())


# ---- on a GPU -----------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", POINTERS)
@pytest.mark.parametrize("name", ["diamond", "loop", "switch", "donated", "matmuls"])
def test_loads_on_a_gpu_without_compiling(name, strategy, fake, path, monkeypatch):
    _, executable = fake(PROGRAMS[name], pointers=strategy, library=True)
    args = random_inputs(executable.plan.inputs, 1)
    want = executable(*args)
    h2g.save(executable, path)
    monkeypatch.setattr(functions, "compile_units", None)
    monkeypatch.setattr(prepared, "kernels_of", None)
    loaded = h2g.load(path)
    assert loaded.choices.pointers == strategy
    assert same_bits(loaded(*args), want)
    assert same_bits(loaded(*args), want)


def test_what_a_library_would_run_has_a_kernel(fake, path):
    _, executable = fake(PROGRAMS["matmuls"], library=True)
    assert executable.products
    args = random_inputs(executable.plan.inputs, 1)
    h2g.save(executable, path)
    from hlo2graph.backends.cuda import products

    products.library = lambda: None  # the fixture puts it back
    loaded = h2g.load(path)
    assert not loaded.products
    assert same_bits(loaded(*args), executable(*args))
    assert "our own kernels" in loaded.notes[0]


def test_loading_may_choose_anew_but_for_what_is_in_the_kernels(fake, path):
    known = LOOP.replace("x = f32[4] parameter(1)", "x = f32[4] parameter(0)")
    known = known.replace("start = s32[] parameter(0)", "start = s32[] constant(0)")
    _, executable = fake(known, unroll_loops="never", matmul_precision="highest")
    h2g.save(executable, path)
    assert h2g.load(path).unrolled == ()
    loaded = h2g.load(path, unroll_loops="9", pointers="update")
    assert loaded.unrolled
    assert loaded.choices.pointers == "update"
    assert loaded.precise
    with pytest.raises(InputError, match="unroll_loops is auto, never or"):
        h2g.load(path, unroll_loops="some")
    with pytest.raises(InputError, match="for matmul_precision highest, not default: compile"):
        h2g.load(path, matmul_precision="default")
    with pytest.raises(InputError, match="capture is all"):
        h2g.load(path, capture="some")
    with pytest.raises(InputError, match="backend is one of"):
        h2g.load(path, "gpu")


def test_kernels_for_another_gpu(fake, path, without_nvrtc):
    plan = h2g.plan(DIAMOND, target="sm_80", fuse="none")
    h2g.save(plan, path, arches=("sm_80", "sm_100", "sm_80"))
    fake(DIAMOND, arch=90)
    with pytest.raises(
        InputError,
        match=r"for sm_80, sm_100; this GPU is sm_90: .*--arch sm_90 \(in Python arches=",
    ):
        h2g.load(path)
    fake(DIAMOND, arch=86)
    (want,) = h2g.compile(DIAMOND, "host")(X)
    assert np.allclose(h2g.load(path)(X)[0], want)
    header = read_container(path.read_bytes(), "").header
    assert header["arches"] == ["sm_80", "sm_100"]


def test_takes_the_newest_kernels_that_fit(fake, path, without_nvrtc):
    h2g.save(
        h2g.plan(DIAMOND, target="sm_80", fuse="none"), path, arches=("sm_80", "sm_86", "sm_89")
    )
    container = read_container(path.read_bytes(), "m")
    found = saved_kernels.kernels_for(container, "sm_87")
    assert found.arch == "sm_86"
    assert len(found.units) > 1
    assert all(unit.cubin.startswith(b"sm_86 ") for unit in found.units)


@pytest.mark.parametrize(
    ("made", "there", "fits"),
    [
        ("sm_80", "sm_80", True),
        ("sm_80", "sm_86", True),
        ("sm_86", "sm_80", False),
        ("sm_80", "sm_90", False),
        ("sm_100", "sm_103", True),
        ("sm_100", "sm_120", False),
        ("sm_90a", "sm_90", True),
        ("sm_100a", "sm_103", False),
        ("sm_100f", "sm_103", True),
    ],
)
def test_machine_code_runs_on_its_own_major_version(made, there, fits):
    assert loads_on(made, there) is fits


def test_kernels_of_another_version(fake, path, without_nvrtc, monkeypatch):
    monkeypatch.setattr(saved_kernels, "KERNELS_VERSION", 9)
    h2g.save(h2g.plan(DIAMOND, target="sm_90"), path)
    monkeypatch.undo()
    fake(DIAMOND)
    with pytest.raises(InputError, match="kernels are of version 9, written by hlo2graph"):
        h2g.load(path)
    assert h2g.load(path, "host").plan.target == "sm_90"


def test_where_there_is_no_gpu_it_says_what_is_missing(path, without_nvrtc):
    h2g.save(h2g.plan(DIAMOND, target="sm_90"), path)
    with pytest.raises(BackendError, match=r"kernels for sm_90, and .*--backend host"):
        h2g.load(path)
    assert same_bits(h2g.load(path, "host")(X), h2g.compile(DIAMOND, "host", fuse="default")(X))


def test_real_kernels(path):
    h2g.save(h2g.plan(DIAMOND, target="sm_90"), path, arches=("sm_90",))
    container = read_container(path.read_bytes(), "m")
    units = saved_kernels.kernels_for(container, "sm_90").units
    assert all(unit.cubin.startswith(b"\x7fELF") for unit in units)
    assert "nvrtc" in container.header


# ---- what is refused ------------------------------------------------------------------------


def test_a_byte_that_changed_is_found_wherever_it_is(small):
    for at in range(len(small)):
        broken = bytearray(small)
        broken[at] ^= 1 << at % 8
        with pytest.raises(InputError, match=r"damaged|cut off|no \.h2g file"):
            read_saved(bytes(broken), "model.h2g")


def test_a_file_that_is_cut_off_or_too_long(small):
    for size in range(len(small)):
        with pytest.raises(InputError, match=r"cut off|no \.h2g file"):
            read_saved(small[:size], "model.h2g")
    with pytest.raises(InputError, match=r"damaged: .* bytes, where"):
        read_saved(small + b"\0", "model.h2g")


@pytest.mark.parametrize(("version", "what"), [(2, "update hlo2graph, or compile"), (0, "compile")])
def test_another_version_says_who_wrote_it(version, what, path, monkeypatch):
    monkeypatch.setattr("hlo2graph.saved.container.VERSION", version)
    monkeypatch.setattr("hlo2graph.saved.writing.WRITER", "hlo2graph 7.0")
    h2g.save(h2g.plan(DIAMOND, target="host"), path)
    monkeypatch.undo()
    message = f"model.h2g: format version {version}, written by hlo2graph 7.0; .* version 1: {what}"
    with pytest.raises(InputError, match=message):
        h2g.load(path)


def rewritten(data, path, change):
    """Return a file like `data`, whole, after `change` of what its sections say."""
    held = read_container(data, "")
    told = {k: held.json(k) for k in held.header["sections"] if k in ("plan", "shared", "module")}
    header = {k: v for k, v in held.header.items() if k not in ("writer", "sections")}
    change(told, header)
    sections = {k: Section([json.dumps(v).encode()]) for k, v in told.items()}
    write_container(path, "hlo2graph 0.2.0", header, {"data": Section([b""]), **sections})
    return path.read_bytes()


JUNK = [None, 5, -1, 1 << 70, True, 0.5, "x", "", [], {}, [0], [[0, 0]], {"=": 99}, {"=": 0}]
JUNK += [{"Plan": []}, {"map": 3}, {"map": [[0, 1]]}, {"dtype": "f3"}, {"dtype": "f32"}]
JUNK += [{"enum": ["Hazard", "raw"]}, {"set": ["x"]}, {"bytes": "00"}, {"raw": "text"}, {"raw": 7}]
JUNK += [{"Slice": [0, 0, 1 << 20]}, {"Slice": [0, -4, 4]}, {"Slice": ["0", 0, 4]}]


@pytest.mark.parametrize("program", [DIAMOND, WEIGHTS, KNOWN], ids=["diamond", "weights", "loop"])
@pytest.mark.parametrize("seed", range(4))
def test_what_nobody_writes_is_no_traceback(program, seed, path):
    """One value of a file is another, and the checksum is right: it is refused, or runs."""
    h2g.save(h2g.plan(program, target="host"), path, module=h2g.parse(program))
    original, rng = path.read_bytes(), Random(seed)

    def places(node):
        for key in range(len(node)) if isinstance(node, list) else list(node):
            yield node, key
            if isinstance(node[key], dict | list):
                yield from places(node[key])

    def change(told, header):
        found = [*places(told), *places(header)]
        node, key = rng.choice(found)
        other, its = rng.choice(found)
        node[key] = copy.deepcopy(rng.choice([*JUNK, other[its], other[its], other[its]]))

    refused = 0
    for _ in range(60):
        try:
            saved = read_saved(rewritten(original, path, change), "model.h2g")
            assert str(saved.plan)
            assert saved.module is None or str(saved.module)
            executable = saved.load("host")
            executable(*(np.ones(shape, dtype) for _, dtype, shape in executable.inputs))
        except HloError:
            refused += 1
    assert refused > 15


def test_what_is_nested_too_deep(small, path):
    held = read_container(small, "")
    sections = {name: Section([held.section(name)]) for name in held.header["sections"]}
    sections["plan"] = Section([b"[" * 5000 + b"]" * 5000])
    header = {k: v for k, v in held.header.items() if k not in ("writer", "sections")}
    write_container(path, "hlo2graph 0.2.0", header, sections)
    with pytest.raises(InputError, match="not as this release reads it"):
        h2g.load(path)


def test_fields_that_came_or_went_since(small, path):
    def older(told, _):
        fields = told["shared"]["fields"]["Plan"]
        told["plan"]["Plan"].pop(fields.index("aliases"))
        fields.remove("aliases")

    assert read_saved(rewritten(small, path, older), "m").plan == read_saved(small, "m").plan

    def newer(told, _):
        told["shared"]["fields"]["Plan"].append("colour")
        told["plan"]["Plan"].append("red")

    with pytest.raises(InputError, match=r"written by hlo2graph 0\.2\.0.*Plan has no colour here"):
        read_saved(rewritten(small, path, newer), "m")

    def bare(told, _):
        fields = told["shared"]["fields"]["Plan"]
        told["plan"]["Plan"].pop(fields.index("body"))
        fields.remove("body")

    with pytest.raises(InputError, match="Plan has a body here"):
        read_saved(rewritten(small, path, bare), "m")


@pytest.mark.parametrize("what", [DIAMOND, None, h2g.parse(DIAMOND)])
def test_save_takes_a_plan(what, path):
    with pytest.raises(InputError, match=f"save takes a plan or .*, not {type(what).__name__}"):
        h2g.save(what, path)
    assert not path.exists()


def test_nothing_is_left_where_writing_fails(path, without_nvrtc, monkeypatch):
    path.write_bytes(b"before")
    monkeypatch.setattr("pathlib.Path.replace", None)
    with pytest.raises(TypeError):
        h2g.save(h2g.plan(DIAMOND, target="sm_90"), path)
    assert path.read_bytes() == b"before"
    assert list(path.parent.iterdir()) == [path]


def test_module_is_a_module(small):
    assert isinstance(read_saved(small, "m").module, Module)
