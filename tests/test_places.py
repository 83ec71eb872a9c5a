"""What is known of places: of what counts along a dimension, sorted, moved or chosen."""

from __future__ import annotations

import pytest
from agreement import module
from rewriting import module_of, opcodes, rewritten

import hlo2graph
from hlo2graph.hlo import Literal
from hlo2graph.passes.simplify import simplify

LESS = """less { a = f32[] parameter(0) b = f32[] parameter(1) i = s32[] parameter(2)
  j = s32[] parameter(3) ROOT r = pred[] compare(a, b), direction=LT, type=TOTALORDER }"""
ALONG_ONE = (
    "offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, "
    "slice_sizes={1}"
)
OF_ROWS = (
    "offset_dims={}, collapsed_slice_dims={1}, start_index_map={1}, operand_batching_dims={0}, "
    "start_indices_batching_dims={0}, index_vector_dim=2, slice_sizes={1,1}"
)


def taken(dims: str, along: int, how: str, source: str = "x", iota: str = "") -> str:
    """Return what takes elements in the order of an argsort, as JAX writes it."""
    size = dims.split(",")[along]
    iota = iota or f"i = s32[{dims}] iota(), iota_dimension={along}"
    return module(
        f"x = f32[{dims}] parameter(0) y = f32[{dims}] parameter(1) {iota} "
        f"s = (f32[{dims}], s32[{dims}]) sort(x, i), dimensions={{{along}}}, to_apply=less "
        f"order = s32[{dims}] get-tuple-element(s), index=1 zero = s32[] constant(0) "
        f"zeros = s32[{dims}] broadcast(zero), dimensions={{}} "
        f"under = pred[{dims}] compare(order, zeros), direction=LT size = s32[] constant({size}) "
        f"sizes = s32[{dims}] broadcast(size), dimensions={{}} "
        f"turned = s32[{dims}] add(order, sizes) "
        f"at = s32[{dims}] select(under, turned, order) ats = s32[{dims},1] reshape(at) "
        f"ROOT r = f32[{dims}] gather({source}, ats), {how}",
        LESS,
    )


@pytest.mark.parametrize(
    "text",
    [
        taken("9", 0, ALONG_ONE),
        taken("4,9", 1, OF_ROWS),
        taken(
            "4,9",
            1,
            OF_ROWS,
            iota="k = s32[9] iota(), iota_dimension=0 i = s32[4,9] broadcast(k), dimensions={1}",
        ),
    ],
)
def test_what_is_taken_in_the_order_of_its_own_sort_is_the_sort(text):
    made = rewritten(hlo2graph.parse(text), simplify)
    assert "gather" not in opcodes(made.entry)
    assert made.entry.result.opcode == "get-tuple-element"
    assert made.entry.result.attrs["index"] == 0


@pytest.mark.parametrize(
    "text",
    [
        taken("9", 0, ALONG_ONE, source="y"),
        taken("9", 0, ALONG_ONE, iota="i = s32[9] constant({0,1,2,3,4,5,6,7,8})"),
        taken("4,4", 1, OF_ROWS, iota="i = s32[4,4] iota(), iota_dimension=0"),
        taken(
            "4,4",
            1,
            "offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, "
            "operand_batching_dims={1}, start_indices_batching_dims={1}, index_vector_dim=2, "
            "slice_sizes={1,1}",
        ),
    ],
)
def test_what_is_taken_in_other_orders_stays(text):
    assert "gather" in opcodes(rewritten(hlo2graph.parse(text), simplify).entry)


@pytest.mark.parametrize(
    ("test", "known"),
    [
        ("compare(i, zero), direction=LT", False),
        ("compare(i, zero), direction=GE", True),
        ("compare(zero, i), direction=GT", False),
        ("compare(i, last), direction=LE", True),
        ("compare(i, last), direction=GT", False),
        ("compare(i, last), direction=GE", None),
        ("compare(i, last), direction=EQ", None),
        ("compare(i, end), direction=EQ", False),
        ("compare(i, end), direction=NE", True),
        ("compare(i, end), direction=LT", True),
    ],
)
@pytest.mark.parametrize(
    "source",
    [
        "i = s8[7] iota(), iota_dimension=0",
        "k = s8[2,7] iota(), iota_dimension=1\nt = s8[7,2] transpose(k), dimensions={1,0}\n"
        "c = s8[7,1] slice(t), slice={[0:7], [1:2]}\ni = s8[7] reshape(c)",
    ],
)
def test_bounds_of_places_decide_tests(source, test, known):
    numbers = [("0", "zero"), ("6", "last"), ("7", "end")]
    lines = "\n".join(
        f"{name}.1 = s8[] constant({value})\n{name} = s8[7] broadcast({name}.1), dimensions={{}}"
        for value, name in numbers
    )
    made = rewritten(module_of(f"{source}\n{lines}\nr = pred[7] {test}"), simplify)
    root = made.entry.result
    assert (root.opcode == "compare") == (known is None)
    if known is not None:
        held = made.entry[root.operands[0]].payload
        assert isinstance(held, Literal)
        assert bool(held.array) == known


def test_places_that_wrap_have_no_bounds():
    text = "i = s8[200] iota(), iota_dimension=0\nz = s8[] constant(0)\n"
    text += "zs = s8[200] broadcast(z), dimensions={}\nr = pred[200] compare(i, zs), direction=LT"
    assert "compare" in opcodes(rewritten(module_of(text), simplify).entry)


def test_places_of_the_largest_are_no_less_than_none():
    text = (
        "x = f32[3,9] parameter(0)\nt = (f32[3,2], s32[3,2]) topk(x), k=2, largest=true\n"
        "i = s32[3,2] get-tuple-element(t), index=1\nz = s32[] constant(0)\n"
        "zs = s32[3,2] broadcast(z), dimensions={}\nr = pred[3,2] compare(i, zs), direction=LT"
    )
    assert "compare" not in opcodes(rewritten(module_of(text), simplify).entry)
