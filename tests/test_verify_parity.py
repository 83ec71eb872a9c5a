"""What XLA's parser or verifier refuses is refused, and what it compiles is taken."""

from __future__ import annotations

import numpy as np
import pytest
from xla import run_xla

import hlo2graph
from hlo2graph.errors import HloError, UnsupportedError, VerifyError
from hlo2graph.frontend import parse, verify

_TEXT = """\
HloModule m
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
adds { a = s32[] parameter(0)  b = s32[] parameter(1)  ROOT r = s32[] add(a, b) }
add_in_tuple { a = f32[] parameter(0)  b = f32[] parameter(1)
  c = f32[] add(a, b)  ROOT r = (f32[]) tuple(c) }
lt { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = pred[] compare(a, b), direction=LT }
neg { a = f32[4] parameter(0)  ROOT r = f32[4] negate(a) }
twice { a = f32[4] parameter(0)  b = f32[4] add(a, a)  ROOT r = f32[4] add(b, b) }
neg5 { a = f32[5] parameter(0)  ROOT r = f32[5] negate(a) }
no { a = f32[4] parameter(0)  ROOT r = pred[] constant(false) }
zero { a = f32[4] parameter(0)  ROOT r = f32[] constant(0) }
ENTRY e {
  x = f32[4] parameter(0)
  y = s32[4] parameter(1)
  m = f32[4,6] parameter(2)
  n = f32[6,4] parameter(3)
  p = pred[] parameter(4)
  i = s32[] parameter(5)
  f = f32[] parameter(6)
  img = f32[1,8,8,3] parameter(7)
  ker = f32[3,3,3,5] parameter(8)
  pv = pred[4] parameter(9)
  c = c64[4] parameter(10)
  u = u32[4] parameter(11)
  t = (f32[4], s32[4]) tuple(x, y)
  LINES
}
"""
_GATHER = "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1"
_SCATTER = "update_window_dims={1}, inserted_window_dims={0}, index_vector_dim=1"
_CONV = "f32[1,6,6,5] convolution(img, ker), window={size=3x3}, dim_labels="
_CALL = 'custom-call(x), custom_call_target="t", '
ONE_DEVICE = "replica_groups={}, to_apply=add"
TAKEN = (
    "pred[4] add(pv, pv)",
    "u32[4] negate(u)",
    "f32[4] real(x)",
    "f32[4] clamp(f, x, f)",
    "f32[4,6] reduce(m, f), dimensions={}, to_apply=add",
    "f32[4] reduce(m, f), dimensions={1}, to_apply=add",
    "f64[4,4] dot(m, n), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    f"{_CONV}b01f_01io->b01f",
    f"f32[4,6] gather(m, y), {_GATHER}, slice_sizes={{1,6}}",
    f"f32[4,6] scatter(m, y, m), {_SCATTER}, scatter_dims_to_operand_dims={{0}}, to_apply=add",
    "f32[4] while(x), condition=no, body=neg",
    "f32[4] conditional(p, x, x), true_computation=neg, false_computation=neg",
    "f32[4] conditional(i, x, x), branch_computations={neg, neg}",
    "f32[4] fusion(x), kind=kLoop, calls=neg",
    f"f32[4] all-reduce(x), {ONE_DEVICE}",
    "c64[3] fft(x), fft_type=RFFT, fft_length={4}",
    "f16[4,2] bitcast-convert(y)",
    "pred[4] compare(c, c), direction=LT",
    "c64[4] clamp(c, c, c)",
    "f32[4] map(x, x), dimensions={1}, to_apply=add",
    "f32[4] all-reduce(x), replica_groups={}, to_apply=add_in_tuple",
    "u32[4] rng-bit-generator(u64[2] constant({1, 2})), algorithm=rng_three_fry",
    *(
        f"f32[4,6] negate(m), sharding={{{sharding}}}"
        for sharding in (
            *("replicated", "devices=[2,1]0,1", "devices=[2,2]<=[2,2]T(1,0)", "maximal device=0"),
            *("devices=[2,1,2]0,1,2,3 last_tile_dim_replicate", 'manual metadata={op_name="}{"}'),
            "devices=[1,2,2]<=[4] last_tile_dims={manual}",
        )
    ),
    "(f32[4], s32[4]) tuple(x, y), sharding={{devices=[2]0,1}, {replicated}}",
    "(f32[4], s32[4]) tuple(x, y), sharding={replicated}",
)
REFUSED = (
    *("f32[5] add(x, x)", "f32[4] add(x, f)", "f16[4] add(x, x)", "pred[4] subtract(pv, pv)"),
    *("pred[4] negate(pv)", "s32[4] exponential(y)", "s32[4] floor(y)", "c64[4] floor(c)"),
    *("f32[4] not(x)", "f32[4] and(x, x)", "f32[4] shift-left(x, x)", "s32[4] atan2(y, y)"),
    *("c64[4] complex(y, y)", "c64[4] real(c)", "f32[4] popcnt(x)", "pred[4] is-finite(y)"),
    *("f32[4] compare(x, x), direction=LT", "pred[4] compare(x, y), direction=LT"),
    *("f32[4] select(x, x, x)", "f32[4] select(pv, x, f)", "f32[4] select(pv, x, y)"),
    *("f32[4] clamp(x, f, x)", "s32[4] clamp(f, y, f)"),
    *("f16[5] convert(x)", "f16[2,2] convert(x)"),
    *("f32[4,6] broadcast(x), dimensions={1}", "f32[4,4] broadcast(x), dimensions={0,0}"),
    *("f32[4,6] broadcast(x), dimensions={2}", "f16[4,6] broadcast(x), dimensions={0}"),
    *("f32[23] reshape(m)", "f16[24] reshape(m)", "f32[5] bitcast-convert(y)"),
    *("f32[4,6] transpose(m), dimensions={1,0}", "f32[6,4] transpose(m), dimensions={0,0}"),
    *("f32[4,6] reverse(m), dimensions={0,0}", "f32[4,6] reverse(m), dimensions={2}"),
    *(
        "f32[6] reduce(m, f), dimensions={1}, to_apply=add",
        "f32[4] reduce(m, f), dimensions={1,1}, to_apply=add",
        "f32[4] reduce(m, f), dimensions={2}, to_apply=add",
        "f32[4] reduce(m, x), dimensions={1}, to_apply=add",
        "f32[4] reduce(m, i), dimensions={1}, to_apply=add",
        "f32[4] reduce(m, f), dimensions={1}, to_apply=lt",
    ),
    *(
        "f32[4,4] dot(m, m), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        "f32[6,6] dot(m, n), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        "f32[4,4] dot(m, n), lhs_contracting_dims={1,0}, rhs_contracting_dims={0}",
        "f32[4] dot(m, n), lhs_batch_dims={1}, rhs_batch_dims={0}, lhs_contracting_dims={1}, "
        "rhs_contracting_dims={0}",
        "f32[4,4] dot(m, n), lhs_contracting_dims={2}, rhs_contracting_dims={0}",
    ),
    *(f"{_CONV}{labels}" for labels in ("b01f_01oi->b01f", "b0f_0io->b0f", "b00f_01io->b01f")),
    *(f"{_CONV}b01f_01io->b01f, {n}_group_count=2" for n in ("feature", "batch")),
    *("f32[4] get-tuple-element(t), index=2", "f32[4] get-tuple-element(t), index=1"),
    *("(f32[4], s32[4]) tuple(x, x)", "f32[4] get-tuple-element(x), index=0"),
    *("f32[4] call(m), to_apply=neg", "f32[5] call(x), to_apply=neg"),
    *(
        "f32[4] while(x), condition=zero, body=neg",
        "f32[4] while(x), condition=no, body=neg5",
        "s32[4] while(y), condition=no, body=neg",
    ),
    *(
        "f32[4] conditional(f, x, x), true_computation=neg, false_computation=neg",
        "f32[4] conditional(p, x, x), true_computation=neg, false_computation=neg5",
        "f32[4] conditional(i, x), branch_computations={neg, neg}",
        "f32[4] conditional(u, x, x), branch_computations={neg, neg}",
    ),
    *("f32[4] map(x), dimensions={0}, to_apply=add", "s32[4] map(x, x), to_apply=add"),
    *(
        "f32[4] sort(x), dimensions={1}, to_apply=lt",
        "f32[4] sort(x), dimensions={0}, to_apply=add",
    ),
    *("f32[4] iota(), iota_dimension=1", "f32[] iota(), iota_dimension=0"),
    *("s32[4] rng(f, f), distribution=rng_uniform", "f32[4] rng(x, x), distribution=rng_uniform"),
    *("f16[4] bitcast-convert(y)", "f16[2,4] bitcast-convert(y)", "c64[4] reduce-precision(c)"),
    *("f32[9] concatenate(x, x), dimensions={0}", "f32[8] concatenate(x, y), dimensions={0}"),
    *("f32[4] slice(x), slice={[1:5]}", "f32[2] slice(x), slice={[0:4:0]}"),
    *("f32[5] dynamic-slice(x, i), dynamic_slice_sizes={5}", "f32[4] pad(x, i), padding=0_0"),
    *("f32[2] dynamic-slice(x, f), dynamic_slice_sizes={2}", "f32[0] pad(x, f), padding=-3_-3"),
    *("f32[4] dynamic-update-slice(x, y, i)", "f32[4] fft(x), fft_type=FFT, fft_length={4}"),
    *("f32[4] reduce-window(x, f), to_apply=add", "f32[4,6] cholesky(m)", "f16[4] copy(x)"),
    *(f"f32[4,6] gather(m, y), {_GATHER}, slice_sizes={sizes}" for sizes in ("{2,6}", "{1,7}")),
    f"f32[4,6] gather(m, x), {_GATHER}, slice_sizes={{1,6}}",
    f"f32[4,6] scatter(m, x, m), {_SCATTER}, scatter_dims_to_operand_dims={{0}}, to_apply=add",
    f"f32[4,6] scatter(m, y, n), {_SCATTER}, scatter_dims_to_operand_dims={{0}}, to_apply=add",
    f"f32[4,6] scatter(m, y, m), {_SCATTER}, scatter_dims_to_operand_dims={{0,0}}, to_apply=add",
    *("f32[4]{1,0} negate(x)", "f32[4,6]{1,1} negate(m)", "f32[4,6]{0} negate(m)"),
    *("f32[4] fusion(x, x), kind=kLoop, calls=neg", "f32[4] fusion(m), kind=kLoop, calls=neg"),
    *(
        f"f32[4] {_CALL}operand_layout_constraints={{{shapes}}}"
        for shapes in ("f32[4]{0}, f32[4]{0}", "f32[5]{0}")
    ),
    *(
        f"f32[4] {_CALL}output_to_operand_aliasing={{{alias}}}"
        for alias in ("{}: (1, {})", "{0}: (0, {})", "{}: (0, {0})")
    ),
    f"f32[5] {_CALL}output_to_operand_aliasing={{{{}}: (0, {{}})}}",
    *(
        f"f32[4] all-reduce(x), replica_groups={groups}, to_apply=add"
        for groups in ("{{}}", "{{0},{0}}", "{{1}}", "{{0,0}}")
    ),
    "f32[4] all-reduce(x), replica_groups={}, to_apply=lt",
    "f32[4] all-reduce(x), replica_groups={}, to_apply=adds",
    f"f32[4] all-reduce(x), use_global_device_ids=true, {ONE_DEVICE}",
    f"f32[4] all-reduce(x), channel_id=1, use_global_device_ids=true, {ONE_DEVICE}",
    "f32[4] all-gather(x), use_global_device_ids=true, replica_groups={{0}}, dimensions={0}",
    "f32[8] all-gather(x), replica_groups={{0,1,2}}, dimensions={0}",
    "f32[4] all-gather(x), replica_groups={{0,1},{2}}, dimensions={0}",
    "f32[2] reduce-scatter(x), replica_groups={{0,1,2,3}}, dimensions={0}, to_apply=add",
    "(f32[4], f32[4]) all-to-all(x, x), replica_groups={}",
    "f32[4] all-to-all(x), replica_groups={{0,1,2}}, dimensions={0}",
    *(
        f"f32[4] collective-permute(x), source_target_pairs={pairs}"
        for pairs in ("{{0,0},{0,0}}", "{{0,1},{0,2}}", "{{0,1},{2,1}}", "{{0,-1}}")
    ),
    *(
        f"f32[4,6] negate(m), sharding={{{sharding}}}"
        for sharding in (
            *("devices=[2]0,1", "devices=[2,1,1]0,1", "devices=[2,2]0,1,2", "devices=[2,1]0,0"),
            *("devices=[2,2]<=[2]", "{replicated}", "{replicated}, {replicated}", ""),
        )
    ),
    *("c128[4] bitcast-convert(c)", "c64[2] bitcast-convert(c)"),
    *("f32[4] async-done(x)", "f32[4] copy-done(x)", "f32[4] all-reduce-done(x)"),
    *("f32[4] all-gather-done(t)", "f32[4] collective-permute-done(t)"),
)
# XLA ends the process over these.
DEADLY = {
    "f32[23] reshape(m)",
    "f32[4] get-tuple-element(t), index=2",
    "f32[4] get-tuple-element(x), index=0",
    "f32[4] fusion(x, x), kind=kLoop, calls=neg",
}
# XLA refuses shardings of tuples only where they are results.
SHARDED_TUPLES = (
    *("{{replicated}}", "{{replicated}, {replicated}, {replicated}}"),
    "{{devices=[2,1]0,1}, {replicated}}",
)
# XLA on the CPU compiles no program with these, right or wrong.
PAIRS = {
    "s = (f32[4], f32[4], u32[]) copy-start(x)  ROOT d = f32[4] copy-done(s)": None,
    "s = (f32[4], f32[4]) all-gather-start(x), dimensions={0}  "
    "ROOT d = f32[4] collective-permute-done(s)": (
        "needs the result of collective-permute-start, got that of all-gather-start"
    ),
    "s = (f32[4], f32[4], u32[]) copy-start(x)  ROOT d = f32[4] get-tuple-element(s), index=0": (
        "reads s, which only copy-done may"
    ),
    "s = (f32[4], f32[4], u32[]) copy-start(x)  a = f32[4] copy-done(s)  "
    "ROOT d = f32[4] copy-done(s)": "s was ended before",
    "s = (f32[4], f32[4], u32[]) copy-start(x)  ROOT d = f32[4] negate(x)": (
        "is never ended by copy-done"
    ),
    "s = ((f32[4]), f32[4], s32[]) async-start(x), calls=twice  ROOT d = f32[4] async-done(s)": (
        "twice may have nothing but parameters and its root"
    ),
    "k = token[] after-all()  s = (f32[4], u32[], token[]) send(x, k), channel_id=1  "
    "ROOT d = (f32[4], token[]) recv-done(s), channel_id=1": "needs the result of recv",
}


def text_of(call: str) -> str:
    return _TEXT.replace("LINES", f"ROOT result = {call}")


def zeros() -> list[np.ndarray]:
    f32, s32 = np.float32, np.int32
    return [
        *(np.zeros(4, f32), np.zeros(4, s32), np.zeros((4, 6), f32), np.zeros((6, 4), f32)),
        *(np.zeros((), bool), np.zeros((), s32), np.zeros((), f32)),
        *(np.zeros((1, 8, 8, 3), f32), np.zeros((3, 3, 3, 5), f32)),
        *(np.zeros(4, bool), np.zeros(4, np.complex64), np.zeros(4, np.uint32)),
    ]


@pytest.mark.parametrize("call", TAKEN)
def test_what_xla_runs_is_taken(call: str) -> None:
    verify(parse(text_of(call)))
    run_xla(text_of(call), zeros())


@pytest.mark.parametrize("call", REFUSED)
def test_what_xla_refuses_is_refused(call: str) -> None:
    with pytest.raises(HloError):
        verify(parse(text_of(call)))
    if call not in DEADLY:
        with pytest.raises((RuntimeError, ValueError)):
            run_xla(text_of(call), zeros())


@pytest.mark.parametrize("sharding", SHARDED_TUPLES)
def test_shardings_of_tuples_fit(sharding: str) -> None:
    text = text_of(f"(f32[4], s32[4]) tuple(x, y), sharding={sharding}")
    with pytest.raises(VerifyError, match="sharding: result"):
        verify(parse(text))
    with pytest.raises((RuntimeError, ValueError)):
        run_xla(text, zeros())


@pytest.mark.parametrize(("lines", "message"), PAIRS.items(), ids=PAIRS)
def test_ends_stand_at_their_starts(lines: str, message: str | None) -> None:
    module = parse(_TEXT.replace("LINES", lines.replace("  ", "\n  ")))
    if message is None:
        verify(module)
        return
    with pytest.raises(VerifyError) as caught:
        verify(module)
    assert message in caught.value.message


_AT = "{a = f32[4] parameter(0)  ROOT r = f32[4] negate(a)%s}%s"
# What the StableHLO that XLA compiles these from does not hold: the verifier of HLO alone sees it.
LOST = {
    "f32[4] call(x), to_apply=other": "on the thread main, but calls other of host",
    "f32[4] fusion(x), kind=kLoop, calls=other": "on the thread main, but calls other of host",
    "f32[4] while(x), condition=no, body=split, sharding={replicated}": "sharded differently",
    "f32[4] while(x), condition=no, body=split, sharding={devices=[2] <= [2]}": None,
    "f32[4] while(x), condition=no, body=split": None,
    "f32[4] conditional(p, x, x), true_computation=split, false_computation=whole": (
        "sharded differently"
    ),
    # XLA compiles these for one device, which its options choose, not the header.
    "f32[4] all-reduce(x), replica_groups={{0,1}}, to_apply=add": None,
    "f32[4] all-reduce(x), replica_groups=[2,2]<=[4], to_apply=add": None,
    "f32[4] all-reduce(x), replica_groups={{0,1}}, channel_id=1, to_apply=add": None,
    "f32[8] all-gather(x), replica_groups={}, dimensions={0}": None,
    "f32[4] collective-permute(x), source_target_pairs={{0,4}}": None,
    "f32[16] all-gather(x), replica_groups={}, dimensions={0}": None,
    "f32[8] all-gather(x), replica_groups={{0,1,2,3}}, dimensions={0}": (
        "4 elements into 8 in a group of 4"
    ),
    "f32[4] all-reduce(x), channel_id=1, use_global_device_ids=true, to_apply=add": (
        "needs its replica_groups"
    ),
}


@pytest.mark.parametrize(("call", "message"), LOST.items(), ids=LOST)
def test_threads_shardings_and_devices_agree(call: str, message: str | None) -> None:
    named = {
        "other": ("", ', execution_thread="host"'),
        "split": (", sharding={devices=[2]0,1}", ""),
        "whole": (", sharding={replicated}", ""),
    }
    more = "".join(f"{name} {_AT % parts}\n" for name, parts in named.items()) + "ENTRY"
    text = text_of(call).replace("HloModule m", "HloModule m, replica_count=4")
    module = parse(text.replace("ENTRY", more))
    if message is None:
        verify(module)
        return
    with pytest.raises(VerifyError) as caught:
        verify(module)
    assert message in caught.value.message


def test_a_size_that_nothing_bounds_is_legal_and_cannot_be_planned() -> None:
    module = parse("ENTRY e { a = f32[?,2] parameter(0) ROOT r = f32[?,2] negate(a) }")
    verify(module)
    for target in ("host", "sm_90"):
        with pytest.raises(UnsupportedError, match=r"f32\[\?,2\] has a size that nothing bounds"):
            hlo2graph.plan(module, target=target)


def test_an_array_and_a_buffer_of_it_share_bytes() -> None:
    alias = "output_to_operand_aliasing={{}: (0, {})}"
    pinned = f'b(f32[%d]) custom-call(x), custom_call_target="Pin", {alias}'
    text = f"ENTRY e {{ x = f32[4] parameter(0)  ROOT r = {pinned} }}"
    verify(parse(text % 4))
    with pytest.raises(VerifyError, match=r"aliases f32\[4\] with b\(f32\[5\]\)"):
        verify(parse(text % 5))


def test_marks_of_what_is_spread_over_devices_change_shapes() -> None:
    call = 'f32[2] custom-call(x), custom_call_target="SPMDFullToShardShape", sharding={manual}'
    text = text_of(call)
    verify(parse(text))
    with pytest.raises(UnsupportedError, match=r"makes f32\[2\] of f32\[4\]"):
        hlo2graph.compile(text, backend="host")
