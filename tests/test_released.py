"""Files that released versions stored are read, and mean what they meant.

A folder of tests/released that has been tagged never changes. Where one of these tests fails, the
change breaks files that users have: see "What keeps working" in the README.

The files of 0.1.0 were written by the tree of commit 6e185e3, the last that wrote to that version's
section of the changelog: what [0.2.0] lists came after it. It had neither compiled files nor
schemas, and of the commands that print JSON only plan and run.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from conftest import ROOT
from jsonschema import Draft202012Validator

import hlo2graph as h2g
from hlo2graph.inspect.compare import same_bits
from hlo2graph.saved.container import read_container
from hlo2graph.saved.kernels import kernels_for
from hlo2graph.saved.reading import read_saved
from hlo2graph.schemas import names, schema
from tests.fake_cuda import fake
from tests.store_release import STORED, store

__all__ = ["fake"]  # a fixture

RELEASED = ROOT / "tests" / "released"
VERSIONS = sorted(p.name for p in RELEASED.iterdir())
PLANS = [p.relative_to(RELEASED) for p in sorted(RELEASED.glob("*/*.thunks"))]
SAVED = [p.relative_to(RELEASED) for p in sorted(RELEASED.glob("*/*.h2g"))]
DOCUMENTS = [p.relative_to(RELEASED) for p in sorted(RELEASED.glob("*/*.json"))]
BEFORE_SCHEMAS = {"0.1.0"}


def arrays(path):
    with np.load(path) as found:
        return [found[name] for name in found.files]


def results(plan, path):
    """Return the stored results of a plan, types that .npz files cannot say restored."""
    kinds = [bound.shape.dtype.numpy for bound in plan.outputs]
    return [a if a.dtype == k else a.view(k) for a, k in zip(arrays(path), kinds, strict=True)]


def test_this_version_is_stored():
    assert h2g.__version__ in VERSIONS, "run python -m tests.store_release"


def check_results(path, plan, executable):
    """Hold what `executable` gives against what the release of the file at `path` computed."""
    folder, name = RELEASED / path.parent, path.name.partition(".")[0]
    found = executable(*arrays(folder / f"{name}.in.npz"))
    want = results(plan, folder / f"{name}.out.npz")
    if plan.target == "host":
        assert same_bits(found, want)
    for got, wanted in zip(found, want, strict=True):
        assert np.allclose(got.astype("c16"), wanted.astype("c16"), 1e-5, equal_nan=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_all_programs_are_stored(version):
    kinds = {"hlo", "host.thunks", "sm_90.thunks", "in.npz", "out.npz"}
    if version not in BEFORE_SCHEMAS:
        kinds |= {"host.h2g", "sm_90.h2g"}
    stored = {p.name for p in (RELEASED / version).iterdir() if p.suffix != ".json"}
    assert stored == {f"{name}.{kind}" for name in STORED for kind in kinds}


@pytest.mark.parametrize("path", PLANS, ids=str)
def test_plans_as_text(path):
    plan = h2g.plan((RELEASED / path).read_text(), filename=str(path))
    assert path.name.endswith(f".{plan.target}.thunks")
    check_results(path, plan, h2g.compile(plan, "host"))


@pytest.mark.parametrize("path", SAVED, ids=str)
def test_compiled_files(path):
    whole, name = RELEASED / path, path.name.partition(".")[0]
    saved = read_saved(whole.read_bytes(), str(path))
    assert saved.plan == h2g.plan(whole.with_suffix(".thunks").read_text())
    assert saved.module == h2g.parse((whole.parent / f"{name}.hlo").read_text())
    check_results(path, saved.plan, saved.load("host"))


@pytest.mark.parametrize("path", [p for p in SAVED if "sm_90" in p.name], ids=str)
def test_kernels_fit_the_thunks(path):
    container = read_container((RELEASED / path).read_bytes(), str(path))
    found = kernels_for(container, "sm_90")
    assert all(unit.cubin.startswith(b"\x7fELF") for unit in found.units)
    code = b"".join(unit.cubin for unit in found.units)
    for source in found.sources.values():
        assert source.name.encode() in code
        assert source.threads >= 1


@pytest.mark.parametrize("path", [p for p in SAVED if p.name == "copies.sm_90.h2g"], ids=str)
def test_compiled_files_load_on_a_gpu(path, fake, monkeypatch):
    fake(STORED["copies"][0])
    path = RELEASED / path
    args = arrays(path.with_name("copies.in.npz"))
    executable = h2g.load(path)
    assert same_bits(executable(*args), results(executable.plan, path.with_name("copies.out.npz")))


@pytest.mark.parametrize("path", DOCUMENTS, ids=str)
def test_documents(path):
    """A document of an earlier release is one of its version of the schema still.

    One from before there were schemas may lack members; those it has mean what they meant.
    """
    document = json.loads((RELEASED / path).read_text())
    found = schema(document["schema"]["name"].removeprefix("hlo2graph."))
    if document["schema"] == {
        key: held["const"] for key, held in found["properties"]["schema"]["properties"].items()
    }:
        wrong = list(Draft202012Validator(found).iter_errors(document))
        if path.parent.name in BEFORE_SCHEMAS:
            wrong = [error for error in wrong if error.validator != "required"]
        assert not wrong


def test_all_kinds_of_document_are_stored():
    without = {"pointers"}  # takes a GPU
    stored = {p.stem for p in DOCUMENTS if p.parent.name == h2g.__version__}
    assert stored == set(names()) - without


def test_storing(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.store_release.COMMANDS", {})
    monkeypatch.setattr("tests.store_release.STORED", {"copies": STORED["copies"]})
    monkeypatch.setattr("tests.store_release._run", lambda *_: None)
    store(tmp_path)
    stored = {p.name for p in (RELEASED / h2g.__version__).glob("copies.*")}
    assert {p.name for p in tmp_path.iterdir()} == stored
