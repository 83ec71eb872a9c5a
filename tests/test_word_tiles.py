"""Transpositions of narrow elements whose rows begin anywhere in a word: by words all the same."""

from __future__ import annotations

import pytest
from needs import needs_gxx

from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.program.device_figures import DeviceFigures
from tests.emulation.agreement import agree_exactly
from tests.emulation.plans import planned

FIGURES = DeviceFigures(0, 0, 0, 1 << 10)  # shared memory for no piece


def listed(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))


def module(dtype: str, dims: tuple[int, ...], *lines: str) -> str:
    head = f"HloModule m\nENTRY e {{\nx = {dtype}[{listed(dims)}] parameter(0)\n"
    return head + "\n".join(lines) + "\n}\n"


def turned(dtype: str, dims: tuple[int, ...], order: tuple[int, ...]) -> str:
    result = listed(tuple(dims[d] for d in order))
    call = f"transpose(x), dimensions={{{listed(order)}}}"
    return module(dtype, dims, f"ROOT r = {dtype}[{result}] {call}")


TURNED = (
    ("u8", (321, 137), (1, 0)),
    ("u8", (301, 5, 45), (1, 2, 0)),
    ("u8", (131, 7, 35), (2, 0, 1)),
    ("s8", (101, 3, 45), (2, 1, 0)),
    ("u8", (2, 130, 131), (0, 2, 1)),
    ("u8", (171, 1, 37), (2, 1, 0)),
    ("u8", (45, 5, 101), (1, 2, 0)),
    ("bf16", (161, 137), (1, 0)),
    ("bf16", (131, 7, 35), (2, 0, 1)),
    ("f16", (3, 67, 101), (0, 2, 1)),
)
WORDS = {f"{dtype} {dims} {order}": turned(dtype, dims, order) for dtype, dims, order in TURNED} | {
    "reshaped": module(
        "f16",
        (101, 5, 45),
        "y = f16[101,225] reshape(x)",
        "ROOT r = f16[225,101] transpose(y), dimensions={1,0}",
    )
}
ELEMENTS = {
    "whole words": turned("bf16", (132, 128), (1, 0)),
    "wide": turned("f32", (131, 127), (1, 0)),
    "computed": module(
        "u8",
        (131, 127),
        "n = u8[131,127] not(x)",
        "ROOT r = u8[127,131] transpose(n), dimensions={1,0}",
    ),
    "a part": module(
        "u8",
        (131, 130),
        "s = u8[131,127] slice(x), slice={[0:131], [0:127]}",
        "ROOT r = u8[127,131] transpose(s), dimensions={1,0}",
    ),
}


@pytest.fixture(scope="module")
def plans():
    with planned(WORDS | ELEMENTS, FIGURES, WORDS) as found:
        yield found


@needs_gxx
@pytest.mark.parametrize("name", WORDS)
def test_words_are_turned_as_on_the_host(plans, name):
    found, kernels = plans
    plan = found[name]
    (source,) = kernels_of(plan).values()
    assert "hlo::turn_square" in source.text
    agree_exactly(plan, kernels)


@pytest.mark.parametrize("name", ELEMENTS)
def test_others_are_turned_element_by_element(plans, name):
    (source,) = kernels_of(plans[0][name]).values()
    assert "hlo::turn_square" not in source.text
