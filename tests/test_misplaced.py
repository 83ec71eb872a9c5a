"""Arrays of a hand-written plan that do not lie on whole elements: cuda refuses them."""

from __future__ import annotations

import pytest

import hlo2graph as h2g
from hlo2graph.backends.cuda.support import check_support
from hlo2graph.errors import UnsupportedError

TWO = """HloModule m
ENTRY e {{
x = {dtype}[4] parameter(0)
y = {dtype}[4] add(x, x)
ROOT r = {dtype}[4] multiply(y, y)
}}
"""


def moved(dtype: str, by: int) -> h2g.Plan:
    """Return a plan whose temporary begins `by` bytes into the arena."""
    text = str(h2g.plan(TWO.format(dtype=dtype), target="sm_90", fuse="none"))
    size = {"u8": 4, "f32": 16, "c64": 32, "c128": 64}[dtype]
    assert f"2[0:{size}]" in text
    return h2g.plan(text.replace(f"2[0:{size}]", f"2[{by}:{by + size}]"))


@pytest.mark.parametrize(("dtype", "by"), [("f32", 2), ("c64", 4), ("c128", 4)])
def test_parts_of_elements_apart_are_refused(dtype, by):
    with pytest.raises(
        UnsupportedError, match=rf"y has a {dtype}\[4\] at byte {by} of allocation 2"
    ):
        check_support(moved(dtype, by))


@pytest.mark.parametrize(("dtype", "by"), [("u8", 3), ("f32", 4), ("c64", 8), ("c128", 8)])
def test_whole_elements_apart_are_fine(dtype, by):
    check_support(moved(dtype, by))
