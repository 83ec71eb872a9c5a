"""The README's table of thunks beside XLA's counts what is launched, and nothing twice."""

from __future__ import annotations

import pytest
from kernel_counts import table, xla_thunks

PROGRAM = """HloModule program
ENTRY e {
  x = f32[8] parameter(0)
  y = f32[8] exponential(x)
  z = f32[8] reverse(y), dimensions={0}
  w = f32[8] cosine(z)
  ROOT r = f32[8] reverse(w), dimensions={0}
}
"""
LOOP = """001: kCopy [source | next=002 (1)] kCopy
002: kWhile [prev=001 (1) | sink]
condition:
    003: kCustomKernel [source | sink] compare
  body:
    004: kAsyncStart [source | sink] stream=computation_stream[0], async_id=4
        005: kDynamicSliceFusion [source | sink] params=1, results=1
            006: kCopy [source | sink] kCopy
    007: kDynamicSliceFusion [source | sink] params=1, results=1
        008: kCopy [source | sink] kCopy
    009: kAsyncDone [source | sink] async_id=4
"""


def test_work_is_counted_once(tmp_path):
    (tmp_path / "sequence.txt").write_text(LOOP)
    assert xla_thunks(tmp_path / "sequence.txt") == 5


@pytest.fixture
def dumps(tmp_path):
    for mode, lines in (("LHS", 3), ("LHS_cublaslt", 2)):
        folder = tmp_path / "dumps" / "program" / mode
        folder.mkdir(parents=True)
        text = "".join(f"{i:03}: kCustomKernel kernel\n" for i in range(lines))
        (folder / "thunk_sequence.txt").write_text(text)
    return tmp_path / "dumps"


def test_a_row_holds_all_counts(dumps, tmp_path):
    (tmp_path / "program.hlo").write_text(PROGRAM)
    assert table(dumps, tmp_path).splitlines()[2:] == ["| program | 3 | 2 | 4 | 1 |"]
