"""Operations that move elements, against XLA on the CPU."""

import numpy as np
import pytest
from single import infer, instruction, on_host, one_call, run_text
from xla import run_xla

from hlo2graph.errors import HloError
from hlo2graph.frontend import parse, verify
from hlo2graph.hlo import DTYPES, PaddingDim, Shape
from hlo2graph.ops import OPS

# name: result and call, over a f32[3,4], b f32[3,2], s f32[], i s32[], j s32[], v s32[4]
CALLS = {
    "broadcast scalar": "f32[2,3] broadcast(s), dimensions={}",
    "broadcast rows": "f32[3,5,4] broadcast(a), dimensions={0,2}",
    "broadcast columns": "f32[4,3,4] broadcast(a), dimensions={1,2}",
    "broadcast crosswise": "f32[4,3] broadcast(a), dimensions={1,0}",
    "reshape": "f32[2,6] reshape(a)",
    "transpose": "f32[4,3] transpose(a), dimensions={1,0}",
    "reverse": "f32[3,4] reverse(a), dimensions={0,1}",
    "slice": "f32[2,2] slice(a), slice={[1:3], [0:4:3]}",
    "empty slice": "f32[0,4] slice(a), slice={[1:1], [0:4]}",
    "pad": "f32[5,7] pad(a, s), padding=1_1x1_2",
    "pad inside": "f32[7,13] pad(a, s), padding=0_0_2x1_2_2",
    "pad negative": "f32[2,2] pad(a, s), padding=-1_0x-1_-1",
    "pad negative inside": "f32[5,5] pad(a, s), padding=-1_1_1x-3_-2_2",
    "pad away": "f32[3,4] pad(a, s), padding=-3_3x-5_5",
    "pad far away": "f32[2,4] pad(a, s), padding=-5_4x0_0",
    "concatenate": "f32[3,6] concatenate(a, b), dimensions={1}",
    "iota": "f32[3,4] iota(), iota_dimension=1",
    "iota of bytes": "s8[300] iota(), iota_dimension=0",
    "iota of nibbles": "u4[20] iota(), iota_dimension=0",
    "iota of bf16": "bf16[300] iota(), iota_dimension=0",
    "iota of complex": "c64[3] iota(), iota_dimension=0",
    "dynamic-slice": "f32[2,3] dynamic-slice(a, i, j), dynamic_slice_sizes={2,3}",
    "dynamic-slice by vector": "s32[2] dynamic-slice(v, i), dynamic_slice_sizes={2}",
    "dynamic-update-slice": "f32[3,4] dynamic-update-slice(a, b, i, j)",
    "select": "f32[3,4] select(q, a, a)",
    "copy": "f32[3,4]{0,1} copy(a)",
    "get-dimension-size": "s32[] get-dimension-size(a), dimensions={1}",
}
HEAD = """HloModule m
ENTRY e {
  a = f32[3,4] parameter(0)
  b = f32[3,2] parameter(1)
  s = f32[] parameter(2)
  i = s32[] parameter(3)
  j = s32[] parameter(4)
  v = s32[4] parameter(5)
  q = pred[] parameter(6)
"""


@pytest.mark.parametrize("starts", [(0, 1), (-3, 9), (2, -1), (2147483647, -2147483648)], ids=str)
def test_calls_agree_with_xla(starts: tuple[int, int]) -> None:
    rng = np.random.default_rng(5)
    arguments = [
        rng.standard_normal((3, 4), np.float32),
        rng.standard_normal((3, 2), np.float32),
        np.float32(7),
        *(np.array(start, np.int32) for start in starts),
        np.arange(4, dtype=np.int32),
        np.array(True),
    ]
    arguments = [np.asarray(a) for a in arguments]
    lines = "".join(f"  r{k} = {call}\n" for k, call in enumerate(CALLS.values()))
    results = ", ".join(f"r{k}" for k in range(len(CALLS)))
    shapes = ", ".join(call.split(" ")[0] for call in CALLS.values())
    text = f"{HEAD}{lines}  ROOT t = ({shapes}) tuple({results})\n}}"
    for name, got, want in zip(
        CALLS, run_text(text, arguments), run_xla(text, arguments), strict=True
    ):
        assert got.dtype == want.dtype, name
        np.testing.assert_array_equal(got, want, err_msg=name)


@pytest.mark.parametrize("name", ["u8", "u32", "s8", "s64", "u64"])
def test_start_indices_of_any_integer_type_are_clamped(name: str) -> None:
    dtype = DTYPES[name]
    x, top = np.arange(10, dtype=np.float32), np.iinfo(dtype.numpy).max
    text = f"""HloModule m
ENTRY e {{
  x = f32[10] parameter(0)
  i = {name}[] parameter(1)
  ROOT r = f32[3] dynamic-slice(x, i), dynamic_slice_sizes={{3}}
}}"""
    for start, first in ((2, 2), (top, 7)):
        [got] = run_text(text, [x, np.array(start, dtype.numpy)])
        assert got.tolist() == [first, first + 1, first + 2]


def test_older_form_of_start_indices_is_one_vector() -> None:
    text = """HloModule m
ENTRY e {
  x = f32[3,4] parameter(0)
  at = s32[2] parameter(1)
  u = f32[1,1] parameter(2)
  part = f32[1,2] dynamic-slice(x, at), dynamic_slice_sizes={1,2}
  whole = f32[3,4] dynamic-update-slice(x, u, at)
  ROOT t = (f32[1,2], f32[3,4]) tuple(part, whole)
}"""
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    part, whole = run_text(text, [x, np.array([1, 3], np.int32), np.full((1, 1), -1, np.float32)])
    assert part.tolist() == [[6, 7]]
    assert whole[1, 3] == -1
    assert x[1, 3] == 7  # the operand itself is never written


@pytest.mark.parametrize(
    ("operand", "result", "want"),
    [
        ("f32[2,3]{1,0}", "f32[3,2]{1,0}", [[0, 1], [2, 3], [4, 5]]),
        ("f32[2,3]{1,0}", "f32[3,2]{0,1}", [[0, 3], [1, 4], [2, 5]]),
        ("f32[2,3]{0,1}", "f32[6]{0}", [0, 3, 1, 4, 2, 5]),
        ("f32[2,3]{0,1}", "f32[2,3]{0,1}", [[0, 1, 2], [3, 4, 5]]),
        ("f32[1,6]{1,0}", "f32[6,1]{0,1}", [[0], [1], [2], [3], [4], [5]]),
    ],
)
def test_bitcast_keeps_the_bytes_in_their_layout(operand: str, result: str, want: list) -> None:
    dims = (2, 3) if "2,3" in operand else (1, 6)
    x = np.arange(6, dtype=np.float32).reshape(dims)
    text = (
        f"HloModule m\nENTRY e {{\n x = {operand} parameter(0)\n ROOT r = {result} bitcast(x)\n}}"
    )
    [got] = run_text(text, [x])
    assert got.tolist() == want


def test_bitcast_may_change_the_type() -> None:
    text = "HloModule m\nENTRY e {\n x = f32[2] parameter(0)\n ROOT r = s32[2] bitcast(x)\n}"
    [got] = run_text(text, [np.array([1, -0.0], np.float32)])
    assert got.tolist() == [0x3F800000, -(2**31)]


@pytest.mark.parametrize("name", ["s4", "bf16", "f8e5m2", "c64", "pred"])
def test_every_type_can_be_moved(name: str) -> None:
    dtype = DTYPES[name]
    x = np.arange(6).reshape(2, 3).astype(np.int8).astype(dtype.numpy)
    zero = np.zeros((), dtype.numpy)
    padded = on_host(
        "pad",
        Shape(dtype, (3, 3)),
        [x, zero],
        [dtype, dtype],
        padding=(PaddingDim(0, 1), PaddingDim(0, 0)),
    )
    assert padded[:2].tobytes() == x.tobytes()
    turned = on_host("reverse", Shape(dtype, (2, 3)), [x], [dtype], dimensions=(1,))
    assert turned[:, ::-1].tobytes() == x.tobytes()
    joined = on_host("concatenate", Shape(dtype, (4, 3)), [x, x], [dtype, dtype], dimensions=(0,))
    assert joined[2:].tobytes() == x.tobytes()


REFUSED = {
    "f32[4,2] broadcast(f32[3] a), dimensions={0}": "puts 3 elements into dimension 0 of 4",
    "f32[4,3] broadcast(f32[3] a), dimensions={2}": ("dimensions has 2, out of range for rank 2"),
    "f32[14] reshape(f32[3,5] a)": (
        "cannot turn the 15 elements of f32[3,5] into the 14 of f32[14]"
    ),
    "f32[5,3] transpose(f32[3,5] a), dimensions={1,1}": (
        "names a dimension twice in dimensions: {1,1}"
    ),
    "f32[5,3] transpose(f32[3,5] a), dimensions={1}": "needs 2 dimensions, got 1",
    "f32[3] reverse(f32[3] a), dimensions={1}": "dimensions has 1, out of range for rank 1",
    "f32[4] slice(f32[3] a), slice={[0:4]}": "takes [0:4] of dimension 0, which has 3",
    "f32[3] slice(f32[3] a), slice={[0:3:0]}": "needs a positive stride, got 0",
    "f32[3] slice(f32[3,1] a), slice={[0:3]}": "with 2 ranges, got 1",
    "f32[5] pad(f32[3] a, s32[] b), padding=1_1": (
        "needs f32[] as the value to pad with, got s32[]"
    ),
    "f32[0] pad(f32[3] a, f32[] b), padding=-2_-2": "leaves -1 elements in dimension 0",
    "f32[6] concatenate(f32[3] a, f32[3,1] b), dimensions={0}": "that differ only in dimension 0",
    "f32[6] concatenate(f32[3] a, s32[3] b), dimensions={0}": "got f32[3], s32[3]",
    "pred[3] iota(), iota_dimension=0": "needs numbers as its result, got pred[3]",
    "s32[3] iota(), iota_dimension=1": "iota_dimension has 1, out of range",
    "f32[4] bitcast(f32[3] a)": "f32[3] has 12, f32[4] has 16",
    "f32[1] dynamic-slice(f32[3] a, f32[] i), dynamic_slice_sizes={1}": (
        "needs integers as start indices"
    ),
    "f32[4] dynamic-slice(f32[3] a, s32[] i), dynamic_slice_sizes={4}": (
        "takes 4 of the 3 elements"
    ),
    "f32[1,1] dynamic-slice(f32[3,3] a, s32[] i, s64[] j), dynamic_slice_sizes={1,1}": (
        "mixes start indices of s32 and s64"
    ),
    "f32[3] dynamic-update-slice(f32[3] a, f32[4] b, s32[] i)": (
        "puts 4 elements into dimension 0 of 3"
    ),
    "f32[3] dynamic-update-slice(f32[3] a, s32[1] b, s32[] i)": (
        "needs an operand and an update of one type and rank"
    ),
    "f32[<=3] set-dimension-size(f32[3] a, s64[] n), dimensions={0}": (
        "expects s32[] as the size, got s64[]"
    ),
    "s32[] get-dimension-size(f32[3] a), dimensions={0,1}": (
        "needs one dimension in the attribute dimensions"
    ),
    "f32[<=2,<=3] dynamic-reshape(f32[6] a, s32[] n)": "takes an array and 2 sizes, got 2 operands",
}


@pytest.mark.parametrize(("call", "message"), REFUSED.items(), ids=REFUSED)
def test_refusals(call: str, message: str) -> None:
    with pytest.raises(HloError) as caught:  # some forms XLA's parser refuses, or dies of, itself
        verify(parse(one_call(call)))
    assert message in caught.value.message
    assert caught.value.span is not None


def test_dynamic_dimensions_are_carried_along() -> None:
    assert infer("set-dimension-size", ["s32[8,2]", "s32[]"], dimensions=(0,)) == "s32[<=8,2]"
    assert infer("transpose", ["s32[<=8,2]"], dimensions=(1, 0)) == "s32[2,<=8]"
    assert infer("reverse", ["s32[<=8]"], dimensions=(0,)) == "s32[<=8]"
    assert infer("concatenate", ["s32[2,<=8]", "s32[2,8]"], dimensions=(0,)) == "s32[4,<=8]"
    reshaped = infer("dynamic-reshape", ["s32[<=6]", "s32[]", "s32[]"], "s32[<=2,3]")
    assert reshaped == "s32[<=2,3]"


def test_what_has_a_dynamic_size_is_not_run() -> None:
    dynamic = Shape(DTYPES["s32"], (8,), dynamic=(0,))
    for opcode in ("set-dimension-size", "dynamic-reshape"):
        why = OPS[opcode].why_not
        assert "known only at run time" in (why(instruction(opcode, dynamic, 2)) or "")
        assert why(instruction(opcode, Shape(DTYPES["s32"], (8,)), 2)) is None
