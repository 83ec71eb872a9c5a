"""Communication between devices on a device that is alone, planned and run, as XLA runs it."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec
from lowering import ADD, lowered, names, opcodes
from needs import needs_gxx
from xla import run_xla

import hlo2graph
from hlo2graph.backends.cuda.support import check_support
from hlo2graph.backends.host import HostExecutable
from hlo2graph.errors import InputError, UnsupportedError
from hlo2graph.frontend import parse, verify
from hlo2graph.ops.evaluate import HostEvaluator
from hlo2graph.program.lower import lower
from hlo2graph.program.thunks import Collective, Fill, Kernel
from tests.emulation import EmulatedExecutable, Kernels
from tests.fake_cuda import fake

__all__ = ["fake"]  # a fixture

X = np.arange(1, 5, dtype=np.float32)
ALONE = (
    "f32[4] all-reduce(x), replica_groups={}, to_apply=add",
    "f32[4] all-reduce(x), to_apply=add",
    "f32[4] all-reduce(x), replica_groups={{0}}, to_apply=add",
    "f32[4] all-reduce(x), channel_id=1, replica_groups=[1,1]<=[1], "
    "use_global_device_ids=true, to_apply=add",
    "f32[4] all-gather(x), dimensions={0}, replica_groups={}",
    "f32[4] reduce-scatter(x), dimensions={0}, replica_groups={{0}}, to_apply=add",
    "f32[4] all-to-all(x), dimensions={0}, replica_groups={{0}}",
    "f32[4] collective-broadcast(x), replica_groups={{0}}",
    "f32[4] collective-permute(x), source_target_pairs={{0,0}}",
)
SEVERAL = {
    "f32[8] all-gather(x), dimensions={0}, replica_groups={}": "[1,2]<=[2]",
    "f32[1] reduce-scatter(x), dimensions={0}, replica_groups={}, to_apply=add": "[1,4]<=[4]",
    "f32[8] all-gather(x), dimensions={0}, replica_groups={{0,1}}": "{{0,1}}",
    "f32[8] all-gather(x), dimensions={0}, replica_groups=[1,2]<=[2]": "[1,2]<=[2]",
    "f32[4] all-to-all(x), dimensions={0}, replica_groups={{0,1}}": "{{0,1}}",
    "f32[4] collective-broadcast(x), replica_groups={{1,0}}": "{{1,0}}",
    "f32[4] collective-permute(x), source_target_pairs={{1,0}}": None,
    "f32[4] collective-permute(x), source_target_pairs={{0,1},{1,0}}": None,
}
AMONG = (
    "f32[4] all-reduce(x), replica_groups={{0,1}}, to_apply=add",
    "f32[4] all-reduce(x), channel_id=1, replica_groups={{1,0},{2,3}}, "
    "use_global_device_ids=true, to_apply=add",
    "f32[4] all-reduce(x), replica_groups=[1,2]<=[2], to_apply=add",
    "f32[4] all-gather(x), dimensions={0}, replica_groups={{0},{1}}",
    "f32[4] collective-permute(x), source_target_pairs={{0,1},{1,2}}",
    "f32[4] collective-permute(x), source_target_pairs={{0,0},{1,2}}",
)
RAGGED = """
  y = f32[6,2] parameter(1)
  starts = s64[3] parameter(2)
  sizes = s64[3] parameter(3)
  places = s64[3] parameter(4)
  ROOT r = f32[6,2] ragged-all-to-all(x, y, starts, sizes, places, sizes), replica_groups={{0}}
"""
PAIR = """
  r = f32[4] all-reduce-start(x), replica_groups={}, to_apply=add
  g = (f32[4], f32[4]) all-gather-start(x), replica_groups={{0}}, dimensions={0}
  p = (f32[4], f32[4], u32[], u32[]) collective-permute-start(x), source_target_pairs={}
  rd = f32[4] all-reduce-done(r)
  gd = f32[4] all-gather-done(g)
  pd = f32[4] collective-permute-done(p)
  replica = u32[] replica-id()
  ROOT t = (f32[4], f32[4], f32[4], u32[]) tuple(rd, gd, pd, replica)
"""


def module(body: str, header: str = "HloModule m\n") -> str:
    return f"{header}{ADD}ENTRY e {{\n  x = f32[4] parameter(0)\n{body}\n}}\n"


@pytest.mark.parametrize("call", ALONE)
def test_what_goes_out_comes_back_without_a_thunk(call: str) -> None:
    text = module(f"ROOT y = {call}")
    program = lower(verify(parse(text)))
    assert program.body.thunks == ()
    assert program.body.results == program.body.params
    [found] = hlo2graph.compile(text, backend="host")(X)
    np.testing.assert_array_equal(found, X)
    if "broadcast" not in call:  # XLA has none on the CPU
        np.testing.assert_array_equal(found, run_xla(text, [X])[0])


@pytest.mark.parametrize(("call", "groups"), SEVERAL.items(), ids=SEVERAL)
def test_several_devices_are_planned_and_refused(call: str, groups: str) -> None:
    text = module(f"ROOT y = {call}")
    program = lower(verify(parse(text)))
    [thunk] = program.body.thunks
    assert isinstance(thunk, Collective)
    assert program.computations[thunk.computation].result.attrs.get("replica_groups") == groups
    with pytest.raises(UnsupportedError, match="needs data of other devices"):
        hlo2graph.compile(text, backend="host")


IN_PLACE = """
  zero = s32[] constant(0)
  at = (s32[]) tuple(zero)
  ROOT y = f32[4] collective-permute(x, x, at, at), source_target_pairs={{0,0}}, slice_sizes={{2}}
"""


@pytest.mark.parametrize("target", ["host", "sm_90"])
def test_slices_sent_in_place_are_planned_and_refused_for_what_they_are(target: str) -> None:
    plan = hlo2graph.plan(module(IN_PLACE), target=target)
    check = check_support if target == "sm_90" else HostExecutable
    with pytest.raises(UnsupportedError, match="collective-permute: sends slices into part"):
        check(plan)


HEADERS = ("", ", replica_count=4", ", replica_count=2, num_partitions=2", ", num_partitions=4")


@pytest.mark.parametrize("header", HEADERS)
def test_a_program_for_several_devices_runs_as_replica_0_of_one(header: str) -> None:
    """So XLA runs it, whose compile options, not the header, say how many devices there are."""
    for call in AMONG:
        text = module(f"ROOT y = {call}", f"HloModule m{header}\n")
        [want] = run_xla(text, [X])
        executable = hlo2graph.compile(text, backend="host")
        np.testing.assert_array_equal(executable(X)[0], want)
        parsed = verify(parse(text))
        np.testing.assert_array_equal(HostEvaluator(parsed.computations)("e", [X]), want)
        assert len(executable.caveats) == len(lower(parsed).body.thunks)


TOGETHER = """
  n = f32[3,2] parameter(1)
  r = (f32[4], f32[3,2]) all-reduce(x, n), replica_groups={}, to_apply=add
  x1 = f32[4] get-tuple-element(r), index=0
  n1 = f32[3,2] get-tuple-element(r), index=1
  b = f32[4] collective-broadcast(x1), replica_groups={{0,1}}
  s = f32[4] all-reduce(b), replica_groups=[1,2]<=[2], to_apply=add
  p = (f32[4], f32[3,2]) collective-permute(s, n1), source_target_pairs={{0,1}}
  p1 = f32[4] get-tuple-element(p), index=0
  p2 = f32[3,2] get-tuple-element(p), index=1
  i = u32[] partition-id()
  ROOT t = (f32[4], f32[3,2], f32[4], f32[3,2], u32[]) tuple(s, n1, p1, p2, i)
"""
SAID = (
    "all-reduce, 2 times, is among 2 devices: run as one replica, it returns what it is given",
    "collective-broadcast is among 2 devices: run as one replica, it returns what it is given",
    "collective-permute is among 2 devices: run as one replica, it returns zeros, as nobody "
    "sends to it",
    "partition-id gives 0: the program runs as one replica, in one partition",
)


N = np.arange(6, dtype=np.float32).reshape(3, 2)
WANTED = (X, N, np.zeros_like(X), np.zeros_like(N), np.uint32(0))


def test_what_is_among_devices_runs_on_both_backends_and_is_said(fake) -> None:
    text = module(TOGETHER, "HloModule m, replica_count=2\n")
    _, device = fake(text)
    for executable in (hlo2graph.compile(text, backend="host"), device):
        for found, want in zip(executable(X, N), WANTED, strict=True):
            np.testing.assert_array_equal(found, want)
        assert executable.caveats == SAID


@pytest.mark.parametrize("command", [("run", "--duration", "0s"), ("check", "--runs", "1")])
def test_what_runs_a_program_says_what_is_among_devices(cli, tmp_path: Path, command) -> None:
    path = tmp_path / "m.hlo"
    path.write_text(module(TOGETHER, "HloModule m, replica_count=2\n"))
    code, out, err = cli(*command, path, "--json", "-")
    assert code == 0
    assert json.loads(out)["caveats"] == list(SAID)
    assert err == "".join(f"note: {said}\n" for said in SAID)


def test_a_proof_alone_runs_nothing_and_says_nothing(cli, tmp_path: Path) -> None:
    path = tmp_path / "m.hlo"
    path.write_text(module(TOGETHER, "HloModule m, replica_count=2\n"))
    code, out, err = cli("check", path, "--runs", "0", "--json", "-")
    assert (code, json.loads(out)["caveats"], err) == (0, [], "")


def test_the_lab_of_pointers_says_it_before_it_calls(cli, tmp_path: Path, monkeypatch) -> None:
    def no_gpu(*_, **__):
        raise InputError("no GPU here")

    monkeypatch.setattr("hlo2graph.pipeline.cuda_target", lambda: "sm_90")
    monkeypatch.setattr("hlo2graph.inspect.pointers.lab.run_lab", no_gpu)
    path = tmp_path / "m.hlo"
    path.write_text(module(TOGETHER, "HloModule m, replica_count=2\n"))
    _, _, err = cli("pointers", path)
    assert err.startswith("".join(f"note: {said}\n" for said in SAID))


def ragged() -> tuple[str, list[np.ndarray], np.ndarray]:
    """Return a program, its arguments (a block is cut off at the end) and its result."""
    text = module(RAGGED).replace("x = f32[4]", "x = f32[5,2]")
    rows = np.arange(10, dtype=np.float32).reshape(5, 2)
    target = np.full((6, 2), 99, np.float32)
    starts, sizes, places = ([3, 0, 1], [2, 1, 3], [0, 2, 4])
    want = target.copy()
    want[0:2], want[2:3], want[4:6] = rows[3:5], rows[0:1], rows[1:3]
    return text, [rows, target, *(np.array(v) for v in (starts, sizes, places))], want


def test_ragged_rows_move_within_the_device() -> None:
    """XLA:CPU dies of this one, so the definition is written out."""
    text, given, want = ragged()
    [found] = hlo2graph.compile(text, backend="host")(*given)
    np.testing.assert_array_equal(found, want)


@pytest.mark.slow
@needs_gxx
def test_what_is_among_devices_runs_in_kernels() -> None:
    plan = hlo2graph.plan(module(TOGETHER), target="sm_90", fuse="none")
    for found, want in zip(EmulatedExecutable(plan)(X, N), WANTED, strict=True):
        np.testing.assert_array_equal(found, want)


@pytest.mark.slow
@needs_gxx
def test_ragged_rows_move_within_a_kernel() -> None:
    text, given, want = ragged()
    plan = hlo2graph.plan(text, target="sm_90")
    [found] = EmulatedExecutable(plan, Kernels([plan]))(*given)
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize(
    ("header", "channel", "thunks"),
    [
        ("replica_count=2", "", 1),
        ("num_partitions=2", "", 0),
        ("num_partitions=2", "channel_id=1, ", 1),
        ("replica_count=1, num_partitions=1", "channel_id=1, ", 0),
    ],
)
def test_the_header_says_who_is_in_an_empty_group(header: str, channel: str, thunks: int) -> None:
    text = module(
        f"ROOT y = f32[4] all-reduce(x), {channel}replica_groups={{}}, to_apply=add",
        f"HloModule m, {header}\n",
    )
    assert len(lower(verify(parse(text))).body.thunks) == thunks


@pytest.mark.parametrize(
    "start",
    [
        "collective-permute-start(x), source_target_pairs={{0,0}}",
        "collective-permute-start(x), channel_id=1, source_target_pairs={{0,1},{1,2}}",
        "all-gather-start(x), dimensions={0}, replica_groups={{0}}",
    ],
)
def test_a_start_may_have_the_shape_of_its_result(start: str) -> None:
    """So the text is that StableHLO is exported as, and XLA runs it."""
    done = f"{start.partition('-start')[0]}-done"
    text = module(f"s = f32[4] {start}\n ROOT d = f32[4] {done}(s)")
    [want] = run_xla(text, [X])
    [found] = hlo2graph.compile(text, backend="host")(X)
    np.testing.assert_array_equal(found, want)
    evaluated = HostEvaluator(verify(parse(text)).computations)("e", [X])
    np.testing.assert_array_equal(evaluated, want)


def test_starts_and_ends_give_what_the_whole_gives() -> None:
    text = module(PAIR)
    expected = [X, X, np.zeros(4, np.float32), np.uint32(0)]
    parsed = verify(parse(text))
    evaluated = HostEvaluator(parsed.computations)("e", [X])
    run = hlo2graph.compile(text, backend="host")(X)
    assert isinstance(evaluated, tuple)
    for found in (evaluated, run):
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_device_to_which_nobody_sends_gets_zeros() -> None:
    program = lowered(
        """x = f32[4] parameter(0)
        w = s32[2] parameter(1)
        ROOT p = (f32[4], s32[2]) collective-permute(x, w), source_target_pairs={}"""
    )
    assert [type(t) for t in program.body.thunks] == [Fill, Fill]
    assert names(program) == ["p", "p.1"]


def test_the_result_may_have_another_layout() -> None:
    program = lowered(
        """x = f32[2,3]{1,0} parameter(0)
        ROOT p = f32[2,3]{0,1} collective-broadcast(x), replica_groups={{0}}"""
    )
    [copy] = program.body.thunks
    assert isinstance(copy, Kernel)
    assert opcodes(program, copy.computation) == ["parameter", "copy"]


def test_control_goes_through_what_has_no_thunk() -> None:
    program = lowered(
        """x = f32[4] parameter(0)
        a = f32[4] negate(x)
        r = f32[4] all-reduce(x), replica_groups={}, to_apply=add, control-predecessors={a}
        b = f32[4] abs(x), control-predecessors={r}
        ROOT t = (f32[4], f32[4]) tuple(a, b)""",
        computations=ADD,
    )
    assert [(t.name, t.after) for t in program.body.thunks] == [("a", ()), ("b", ("a",))]


def test_a_step_that_jax_spreads_over_one_device_runs() -> None:
    def step(x: jax.Array) -> jax.Array:
        whole = jax.lax.all_gather(x, "d", tiled=True)
        part = jax.lax.psum_scatter(whole, "d", tiled=True)
        turned = jax.lax.ppermute(jax.lax.all_to_all(part, "d", 0, 0, tiled=True), "d", [(0, 0)])
        nothing = jax.lax.ppermute(turned, "d", [])
        return jax.lax.psum(turned * 2, "d") + jax.lax.axis_index("d") + nothing

    spread = {"in_specs": PartitionSpec("d"), "out_specs": PartitionSpec("d"), "check_vma": False}
    mesh = Mesh(np.array(jax.devices()[:1]), ("d",))
    lowered_step = jax.jit(jax.shard_map(step, mesh=mesh, **spread)).lower(X)
    for text in (
        lowered_step.compiler_ir("hlo").as_hlo_text(),
        lowered_step.compile().as_text(),
    ):
        [found] = hlo2graph.compile(text, backend="host")(X)
        np.testing.assert_array_equal(found, X * 2)


@pytest.mark.parametrize("target", ["LayoutConstraint", "xla.sdy.PropagationBarrier", "Sharding"])
def test_a_mark_of_where_a_value_is_changes_nothing(target: str) -> None:
    text = module(f'ROOT y = f32[4] custom-call(x), custom_call_target="{target}"')
    [found] = hlo2graph.compile(text, backend="host")(X)
    np.testing.assert_array_equal(found, run_xla(text, [X])[0])


def test_a_thousand_million_groups_take_no_time() -> None:
    groups = "replica_groups=[1000000000,1]<=[1000000000]"
    text = module(f"ROOT y = f32[4] all-reduce(x), {groups}, to_apply=add")
    np.testing.assert_array_equal(hlo2graph.compile(text, backend="host")(X)[0], X)
