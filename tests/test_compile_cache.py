"""Cubins kept on disk: found again, never used when damaged, never in the way."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hlo2graph.backends.cuda import cache, compiler

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


def test_many_at_once_leave_one_entry(folder):
    with ThreadPoolExecutor(8) as pool:
        found = {c.cubin for c in pool.map(lambda _: compiled(), range(16))}
    assert len(found) == 1
    assert len(list(folder.iterdir())) == 1
