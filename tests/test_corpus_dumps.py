"""The comparison of XLA's dumps names a rounding that XLA left out, and hides nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from corpus_dumps import check

import hlo2graph

PROGRAM = """HloModule program
ENTRY e {
  x = f16[8] parameter(0)
  low = f8e4m3fn[8] convert(x)
  ROOT r = f32[8] convert(low)
}
"""
WITHOUT = """HloModule made, is_scheduled=true
ENTRY e {
  x = f16[8] parameter(0)
  ROOT r = f32[8] convert(x)
}
"""
OTHER = """HloModule made, is_scheduled=true
ENTRY e {
  x = f16[8] parameter(0)
  n = f16[8] negate(x)
  ROOT r = f32[8] convert(n)
}
"""


@pytest.fixture
def program(tmp_path):
    """A program with its results, at inputs that the rounding changes."""
    path = tmp_path / "program.hlo"
    path.write_text(PROGRAM)
    x = np.linspace(-1, 1, 8, dtype=np.float16)
    np.savez(tmp_path / "program.npz", arg0=x, out0=hlo2graph.compile(PROGRAM)(x)[0])
    return path


@pytest.mark.parametrize(
    ("made", "wrong", "why"),
    [
        (PROGRAM, "", ""),
        (WITHOUT, "elements differ", "left out the rounding to f8e4m3fn: program.hlo without it"),
        (OTHER, "elements differ", ""),
        ("HloModule made\n", "unsupported", ""),
    ],
)
def test_a_difference_is_named(tmp_path, program, made, wrong, why):
    dump = tmp_path / "after_optimizations.txt"
    dump.write_text(made)
    found = check(dump, program)
    assert wrong in found[0]
    assert bool(wrong) == bool(found[0])
    assert why in found[1]
    assert bool(why) == bool(found[1])
