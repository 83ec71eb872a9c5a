"""Cubins kept on disk: found again, never used when damaged, never in the way."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import hlo2graph as h2g
from hlo2graph.backends.cuda import builtin, cache, compiler, functions
from hlo2graph.backends.cuda.functions import compile_kernels, names_in, units_of
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.backends.cuda.source import KernelSource
from hlo2graph.errors import BackendError

TEXT = compiler.unit_text(['extern "C" __global__ void k(int* r0) {\n  r0[0] = 1;\n}\n'])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    pytest.importorskip("cuda.bindings.nvrtc")
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cubins"))
    return tmp_path / "cubins"


def compiled():
    return compiler.compile_cubin(TEXT, "sm_90")


def test_a_cubin_is_found_again(folder):
    first, second = compiled(), compiled()
    assert (first.cached, second.cached) == (False, True)
    assert first.cubin == second.cubin
    assert first.cubin.startswith(b"\x7fELF")


def test_each_architecture_has_its_own(folder):
    compiled()
    assert not compiler.compile_cubin(TEXT, "sm_80").cached


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: bytes(len(data)),
        lambda data: data[32:],
    ],
    ids=["empty", "cut", "flipped", "zeros", "undigested"],
)
def test_a_damaged_cubin_is_compiled_anew_and_replaced(folder, damage):
    want = compiled().cubin
    (entry,) = folder.iterdir()
    entry.write_bytes(damage(entry.read_bytes()))
    again = compiled()
    assert (again.cubin, again.cached) == (want, False)
    assert compiled().cached


def test_a_folder_that_cannot_be_is_no_error(folder):
    folder.write_text("a file")
    assert not compiled().cached
    assert not compiled().cached


def test_a_full_disk_leaves_nothing_behind(folder, monkeypatch):
    def replace(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", replace)
    assert not compiled().cached
    assert list(folder.iterdir()) == []


def test_a_user_without_a_home_has_no_cache(folder, monkeypatch):
    def home():
        raise RuntimeError("Could not determine home directory.")

    for name in (cache.VARIABLE, "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", home)
    assert cache.cache_folder() is None
    assert not compiled().cached


def test_a_home_is_written_out_as_a_shell_does(monkeypatch):
    monkeypatch.setenv(cache.VARIABLE, "~/kept")
    assert cache.cache_folder() == Path.home() / "kept"
    monkeypatch.setenv(cache.VARIABLE, "~no-such-user/kept")
    assert cache.cache_folder() == Path("~no-such-user/kept")


def test_many_at_once_leave_one_entry(folder):
    with ThreadPoolExecutor(8) as pool:
        found = {c.cubin for c in pool.map(lambda _: compiled(), range(16))}
    assert len(found) == 1
    assert len(list(folder.iterdir())) == 1


# ---- what is compiled together ------------------------------------------------------------------


def kernel(name, letters):
    body = "  r0[0] = 1;\n" * (letters // 13)
    return KernelSource(
        name, f'extern "C" __global__ void {name}(int* r0) {{\n{body}}}\n', (1,), 32
    )


def test_units_begin_as_soon_as_they_are_long_enough_and_grow():
    written = []

    def texts(lengths):
        for number, length in enumerate(lengths):
            written.append(length)
            yield f"{number:04}" + "x" * (length - 4)

    units = list(units_of(texts([3000, 4000, 1000, 6000, 200, 100])))
    assert [unit.count("x") for unit in units] == [3996, 3992, 5996, 292]
    written.clear()
    next(units_of(texts([9000] * 20)))
    assert written == [9000]
    units = list(units_of(texts([1000] * 1000)))
    lengths = [unit.count("x") for unit in units]
    assert lengths[:-1] == sorted(lengths[:-1])
    assert 90 < len(units) < 110
    assert list(units_of(["x" * 10**6, "x" * 10**6])) == [compiler.unit_text(["x" * 10**6])]
    assert list(units_of([])) == []


def test_a_routine_is_a_unit_of_its_own():
    short, routine = "hlo::add(x, y);", "hlo::factor_block<128, 512>(a);"
    found = list(units_of([short, routine, f"{routine} ", f"{short} "]))
    assert found == [
        compiler.unit_text(u) for u in ([routine], [f"{routine} "], [short, f"{short} "])
    ]


def test_what_belongs_to_no_hlo_is_compiled_once_and_is_last(monkeypatch):
    seen = []

    def compiled(units, arch):
        texts = list(units)
        seen.append(texts)
        return [compiler.Compiled(text.encode(), cached=False) for text in texts]

    monkeypatch.setattr(functions, "compile_units", compiled)
    monkeypatch.setattr(functions, "OWN", {})
    done = []
    for _ in range(2):
        *units, own = compile_kernels([kernel("k", 100)], "sm_90", lambda: done.append(1))
        assert len(units) == 1
        assert own.cubin == builtin.TEXT.encode()
    assert len(done) == 2
    assert sorted(len(units) for units in seen) == [1, 1, 2]


def test_what_belongs_to_no_hlo_is_begun_again_where_it_failed(monkeypatch):
    def compiled(units, arch):
        units = list(units)
        if builtin.TEXT in units and not done:
            raise BackendError("no compiler")
        return [compiler.Compiled(text.encode(), cached=False) for text in units]

    monkeypatch.setattr(functions, "compile_units", compiled)
    monkeypatch.setattr(functions, "OWN", {})
    done = []
    functions.begin_own("sm_90")
    with pytest.raises(BackendError, match="no compiler"):
        compile_kernels([kernel("k", 100)], "sm_90")
    done.append(1)
    _, own = compile_kernels([kernel("k", 100)], "sm_90")
    assert own.cubin == builtin.TEXT.encode()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # of threads
@pytest.mark.filterwarnings("ignore:.*fork:RuntimeWarning")  # JAX's, where another test loaded it
def test_no_process_is_forked_while_that_is_compiled(monkeypatch):
    def compiled(units, arch):
        time.sleep(0.1)
        return [compiler.Compiled(text.encode(), cached=False) for text in units]

    monkeypatch.setattr(functions, "compile_units", compiled)
    monkeypatch.setattr(functions, "OWN", {})
    functions.begin_own("sm_90")
    child = os.fork()
    if child == 0:
        os._exit(not functions.OWN["sm_90"].done())
    assert os.waitpid(child, 0)[1] == 0


NEGATIONS = """HloModule m
ENTRY e {
  x = f32[64] parameter(0)
  a = f32[64] negate(x)
  b = f32[64] negate(a)
  c = f32[64] negate(b)
  ROOT d = f32[64] negate(c)
}
"""


def test_kernels_with_bytes_of_their_own_and_in_place_are_one_where_their_texts_are(monkeypatch):
    found = kernels_of(h2g.plan(NEGATIONS, target="sm_90", fuse="none"))
    assert sorted(key.inplace for key in found) == [(), ((0, 0),)]
    (source,) = set(found.values())

    def compiled(units, arch):
        return [compiler.Compiled(text.encode(), cached=False) for text in units]

    monkeypatch.setattr(functions, "compile_units", compiled)
    monkeypatch.setattr(functions, "OWN", {})
    unit, _ = compile_kernels(tuple(found.values()), "sm_90")
    assert unit.cubin.decode().count(source.name) == 1


def test_units_hold_all_kernels(folder):
    sources = [kernel(f"k{n}", 3000 + 100 * n) for n in range(5)]
    *units, own = compile_kernels(sources, "sm_90")
    assert 1 < len(units) < len(sources)
    for source in sources:
        assert sum(source.name.encode() in names_in(unit.cubin) for unit in units) == 1
    assert {builtin.MOVE.encode(), builtin.NOTHING.encode()} < set(names_in(own.cubin))
