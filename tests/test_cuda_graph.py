"""Plans on a CUDA driver that runs on the host: graph, chain and serial stream."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cuda.bindings import driver as real

import hlo2graph as h2g
from hlo2graph.backends.cuda.support import check_support
from hlo2graph.errors import BackendError, UnsupportedError
from hlo2graph.inspect.compare import same_bits
from hlo2graph.program.stats import plan_stats
from tests import fake_cuda
from tests.fake_cuda import FakeDriver, fake

__all__ = ["fake"]  # a fixture


def host(program, *args):
    return h2g.compile(program, backend="host", fuse="none")(*args)


DIAMOND = """
HloModule diamond

ENTRY main {
  x = f32[4] parameter(0)
  a = f32[4] negate(x)
  b = f32[4] exponential(a)
  c = f32[4] tanh(a)
  ROOT d = f32[4] add(b, c)
}
"""

LOOP = """
HloModule loop

body {
  p = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  v = f32[4] get-tuple-element(p), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  w = f32[4] add(v, v)
  ROOT t = (s32[], f32[4]) tuple(next, w)
}

condition {
  p = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(5)
  ROOT less = pred[] compare(i, n), direction=LT
}

ENTRY main {
  start = s32[] parameter(0)
  x = f32[4] parameter(1)
  init = (s32[], f32[4]) tuple(start, x)
  ROOT out = (s32[], f32[4]) while(init), condition=condition, body=body
}
"""
KNOWN = LOOP.replace("start = s32[] parameter(0)", "start = s32[] constant(0)").replace(
    "parameter(1)", "parameter(0)"
)

SWITCH = """
HloModule switch

double { x = f32[4] parameter(0)  ROOT y = f32[4] add(x, x) }
same   { x = f32[4] parameter(0)  ROOT y = f32[4] copy(x) }
minus  { x = f32[4] parameter(0)  ROOT y = f32[4] negate(x) }

ENTRY main {
  s = s32[] parameter(0)
  x = f32[4] parameter(1)
  ROOT y = f32[4] conditional(s, x, x, x), branch_computations={double, same, minus}
}
"""

IF = """
HloModule if

yes { x = f32[4] parameter(0)  ROOT y = f32[4] add(x, x) }
no  { x = f32[4] parameter(0)  ROOT y = f32[4] parameter(0) }

ENTRY main {
  s = pred[] parameter(0)
  x = f32[4] parameter(1)
  ROOT y = f32[4] conditional(s, x, x), true_computation=yes, false_computation=no
}
""".replace(
    "no  { x = f32[4] parameter(0)  ROOT y = f32[4] parameter(0) }",
    "no  { ROOT y = f32[4] parameter(0) }",
)

NESTED = """
HloModule nested

more { x = f32[4] parameter(0)  ROOT y = f32[4] add(x, x) }
less { x = f32[4] parameter(0)  ROOT y = f32[4] negate(x) }

inner_body {
  p = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  v = f32[4] get-tuple-element(p), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  two = s32[] constant(2)
  odd = s32[] remainder(i, two)
  zero = s32[] constant(0)
  is_odd = pred[] compare(odd, zero), direction=NE
  w = f32[4] conditional(is_odd, v, v), true_computation=more, false_computation=less
  ROOT t = (s32[], f32[4]) tuple(next, w)
}
inner_condition {
  p = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT
}
outer_body {
  p = (s32[], f32[4]) parameter(0)
  k = s32[] get-tuple-element(p), index=0
  v = f32[4] get-tuple-element(p), index=1
  zero = s32[] constant(0)
  init = (s32[], f32[4]) tuple(zero, v)
  ran = (s32[], f32[4]) while(init), condition=inner_condition, body=inner_body
  w = f32[4] get-tuple-element(ran), index=1
  one = s32[] constant(1)
  next = s32[] add(k, one)
  ROOT t = (s32[], f32[4]) tuple(next, w)
}
outer_condition {
  p = (s32[], f32[4]) parameter(0)
  k = s32[] get-tuple-element(p), index=0
  n = s32[] constant(4)
  ROOT c = pred[] compare(k, n), direction=LT
}
ENTRY main {
  start = s32[] parameter(0)
  x = f32[4] parameter(1)
  init = (s32[], f32[4]) tuple(start, x)
  ROOT out = (s32[], f32[4]) while(init), condition=outer_condition, body=outer_body
}
"""

X = np.arange(4, dtype=np.float32)


def node_edges(graph):
    """Return the edges of a fake graph as pairs of kernel names."""
    nodes = graph.nodes
    return {(nodes[a].name, n.name) for n in nodes.values() for a in n.after}


def graph_of(found, exe):
    return found.graphs[int(exe.graph.graph)]


def agree(exe, *args):
    """Run in all three modes; return the results, which have the same bits."""
    results = []
    for mode in ("serial", "chain", "graph", "graph"):
        exe.write_inputs(args)
        exe.poison()
        exe.execute(mode)
        results.append(exe.read_outputs())
    assert all(same_bits(r, results[0]) for r in results)
    return results[0]


def test_edges_are_the_plans(fake):
    found, exe = fake(DIAMOND)
    assert node_edges(graph_of(found, exe)) == {
        ("hlo_a", "hlo_b"),
        ("hlo_a", "hlo_c"),
        ("hlo_b", "hlo_d"),
        ("hlo_c", "hlo_d"),
    }
    assert (exe.graph.nodes, exe.graph.edges) == (4, 4)


@pytest.mark.parametrize(
    ("options", "early"),
    [
        ({}, True),
        ({"arch": 80}, False),  # kernels cannot wait there
        ({"version": 12020}, False),  # the driver knows no such edges
        ({"multiprocessors": 0}, False),  # a block leaves no room for the next kernel
    ],
)
def test_small_kernels_are_put_on_the_device_early(fake, options, early):
    found, exe = fake(DIAMOND, **options)
    graph = graph_of(found, exe)
    assert len(node_edges(graph)) == 4
    for node in graph.nodes.values():
        assert node.early == (node.after if early else ())


@pytest.mark.parametrize(
    ("blocks", "is_bare", "early"),
    [(1000, True, True), (1000, False, False), (2000, True, False)],  # 1,056 blocks fit at once
)
def test_so_are_wide_ones_that_share_no_memory(fake, monkeypatch, blocks, is_bare, early):
    given = fake_cuda.without_text

    def wide(*args, **options):
        change = {"grid": (blocks, 1, 1), "threads": 256, "is_bare": is_bare}
        return {key: replace(source, **change) for key, source in given(*args, **options).items()}

    monkeypatch.setattr(fake_cuda, "without_text", wide)
    found, exe = fake(DIAMOND)
    for node in graph_of(found, exe).nodes.values():
        assert node.early == (node.after if early else ())


def test_a_chain_graph_has_a_chain_of_edges(fake):
    found, exe = fake(DIAMOND)
    chain = found.graphs[int(exe.chain.graph)]
    assert node_edges(chain) == {("hlo_a", "hlo_b"), ("hlo_b", "hlo_c"), ("hlo_c", "hlo_d")}


def test_numpy_in_numpy_out(fake):
    _, exe = fake(DIAMOND)
    (got,) = exe(X)
    (want,) = host(DIAMOND, X)
    assert np.array_equal(got, want)
    assert isinstance(got, np.ndarray)


@pytest.mark.parametrize("start", [0, 3, 5, 9])
def test_a_loop_runs_until_its_condition_fails(fake, start):
    _, exe = fake(LOOP)
    args = np.int32(start), X
    assert same_bits(agree(exe, *args), host(LOOP, *args))


def test_a_known_trip_count_is_written_out(fake):
    found, exe = fake(KNOWN)
    graph = graph_of(found, exe)
    assert exe.unrolled == ("out (5 rounds)",)
    assert all(n.kind != "conditional" for n in graph.nodes.values())
    assert same_bits(agree(exe, X), host(KNOWN, X))
    assert "written out round by round: out (5 rounds)" in exe.notes


@pytest.mark.parametrize(("wish", "loops"), [("never", 1), ("4", 1), ("5", 0), ("auto", 0)])
def test_unrolling_as_asked_for(fake, wish, loops):
    found, exe = fake(KNOWN, unroll_loops=wish)
    kinds = [n.kind for n in graph_of(found, exe).nodes.values()]
    assert kinds.count("conditional") == loops
    assert same_bits(agree(exe, X), host(KNOWN, X))


@pytest.mark.parametrize("trips", [1000, 1001, 1079])
def test_a_long_loop_gets_several_rounds_a_body(fake, trips):
    """Two thunks a round are more than may be written out: 128 rounds a body, those over before."""
    text = KNOWN.replace("constant(5)", f"constant({trips})").replace("add(v, v)", "negate(v)")
    found, exe = fake(text)
    assert exe.unrolled == (f"out (128 of {trips} rounds at a time)",)
    assert same_bits(agree(exe, X), host(text, X))
    kinds = [n.kind for n in graph_of(found, exe).nodes.values()]
    assert kinds.count("conditional") == 1


def test_unrolling_must_be_a_choice(fake):
    with pytest.raises(h2g.HloError, match="auto, never or a number"):
        fake(KNOWN, unroll_loops="some")


@pytest.mark.parametrize("version", [12040, 13000])
@pytest.mark.parametrize("selector", [-7, 0, 1, 2, 3, 1000])
def test_a_selector_out_of_range_takes_the_last_branch(fake, selector, version):
    _, exe = fake(SWITCH, version=version)
    args = np.int32(selector), X
    assert same_bits(agree(exe, *args), host(SWITCH, *args))


@pytest.mark.parametrize("version", [12040, 13000])
@pytest.mark.parametrize("chosen", [True, False])
def test_if_and_else(fake, chosen, version):
    _, exe = fake(IF, version=version)
    args = np.bool_(chosen), X
    assert same_bits(agree(exe, *args), host(IF, *args))


def test_an_old_driver_is_said_aloud(fake):
    _, exe = fake(SWITCH, version=12040)
    assert exe.notes == ("y became 3 IF nodes: driver 12.4 has no SWITCH nodes (12.8 has)",)


def test_a_driver_without_loops_is_refused(fake):
    with pytest.raises(BackendError, match=r"out \(.*needs WHILE nodes.*driver 12\.3; this one is"):
        fake(LOOP, version=12000)


def test_a_failed_call_names_api_result_and_instruction(fake, monkeypatch):
    fail = {"cuGraphAddKernelNode": real.CUresult.CUDA_ERROR_INVALID_VALUE}
    monkeypatch.setattr(FakeDriver, "fail", fail, raising=False)
    monkeypatch.setattr(
        FakeDriver, "__setattr__", lambda s, k, v: k == "fail" or object.__setattr__(s, k, v)
    )
    message = r"cuGraphAddKernelNode: CUDA_ERROR_INVALID_VALUE \(words\), adding a \(<string>:6:3\)"
    with pytest.raises(BackendError, match=message):
        fake(DIAMOND)


def test_out_of_memory_is_tried_once_more(fake, monkeypatch):
    full = real.CUresult.CUDA_ERROR_OUT_OF_MEMORY
    monkeypatch.setattr(FakeDriver, "fail", {"cuGraphInstantiateWithParams": [full]}, raising=False)
    monkeypatch.setattr(
        FakeDriver, "__setattr__", lambda s, k, v: k == "fail" or object.__setattr__(s, k, v)
    )
    found, _ = fake(DIAMOND)
    assert found.api[:3] == [
        "cuGraphInstantiateWithParams",
        "cuDeviceGraphMemTrim",
        "cuGraphInstantiateWithParams",
    ]


def test_what_cannot_run_is_refused_by_name():
    text = """
HloModule sums, replica_count=2
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
ENTRY main {
  x = f32[8] parameter(0)
  y = f32[4] reduce-scatter(x), replica_groups={{0,1}}, dimensions={0}, to_apply=sum
  ROOT z = f32[2] reduce-scatter(y), replica_groups={{0,1}}, dimensions={0}, to_apply=sum
}
"""
    with pytest.raises(UnsupportedError, match=r"of sums\n.*6:3: note: reduce-scatter, 2 times"):
        check_support(h2g.plan(text, target="sm_90"))


def test_zero_sized_thunks_are_no_nodes(fake):
    text = """
HloModule nothing
ENTRY main {
  x = f32[0] parameter(0)
  y = f32[4] parameter(1)
  a = f32[0] negate(x)
  b = f32[0] exponential(a)
  c = f32[4] negate(y), control-predecessors={b}
  ROOT t = (f32[0], f32[4]) tuple(b, c)
}
"""
    found, exe = fake(text)
    assert [n.name for n in graph_of(found, exe).nodes.values()] == ["hlo_c"]
    args = np.zeros(0, np.float32), X
    assert same_bits(agree(exe, *args), host(text, *args))


def test_waiting_goes_through_a_zero_sized_thunk(fake):
    text = """
HloModule through
ENTRY main {
  x = f32[0] parameter(0)
  y = f32[4] parameter(1)
  a = f32[4] negate(y)
  b = f32[0] negate(x), control-predecessors={a}
  c = f32[4] exponential(y), control-predecessors={b}
  ROOT t = (f32[4], f32[0], f32[4]) tuple(a, b, c)
}
"""
    found, exe = fake(text)
    assert node_edges(graph_of(found, exe)) == {("hlo_a", "hlo_c")}


def test_fills_of_every_width(fake):
    text = """
HloModule fills
ENTRY main {
  a = s8[] constant(7)
  b = bf16[] constant(1.5)
  c = f32[] constant(2.5)
  d = f64[] constant(3.1)
  e = c128[] constant((1, 2.2))
  f = f64[] constant(0)
  ba = s8[5] broadcast(a), dimensions={}
  bb = bf16[5] broadcast(b), dimensions={}
  bc = f32[5] broadcast(c), dimensions={}
  bd = f64[5] broadcast(d), dimensions={}
  be = c128[5] broadcast(e), dimensions={}
  bf = f64[5] broadcast(f), dimensions={}
  bg = s8[300001] broadcast(a), dimensions={}
  bh = bf16[8] broadcast(b), dimensions={}
  ROOT t = (s8[5], bf16[5], f32[5], f64[5], c128[5], f64[5], s8[300001], bf16[8])
    tuple(ba, bb, bc, bd, be, bf, bg, bh)
}
"""
    found, exe = fake(text)
    assert same_bits(agree(exe), host(text))
    kinds = [n.kind for n in graph_of(found, exe).nodes.values()]
    assert (kinds.count("kernel"), kinds.count("memset")) == (7 + 1, 1)  # and a start node


def test_nested_loops_and_branches(fake):
    for wish in ("never", "auto"):
        for seed in range(3):
            _, exe = fake(NESTED, seed=seed, unroll_loops=wish)
            for start in (0, 2, 4):
                args = np.int32(start), X + 1
                assert same_bits(agree(exe, *args), host(NESTED, *args))


def test_own_device_arrays_are_not_copied(fake):
    found, exe = fake(DIAMOND)
    (x,) = exe.put(X)
    before = len(found.api)
    (y,) = exe(x)
    assert found.api[before:] == ["cuGraphLaunch"]
    assert exe(x)[0] is y
    assert np.array_equal(np.asarray(y), host(DIAMOND, X)[0])
    assert np.array_equal(np.asarray(x), X)


def test_device_arrays_go_from_one_executable_to_another(fake):
    _, exe = fake(DIAMOND)
    exe.put(X)
    (y,) = exe(*exe.device_inputs)
    (z,) = exe(y)
    assert np.array_equal(np.asarray(z), host(DIAMOND, *host(DIAMOND, X))[0])


def test_a_device_array_must_fit(fake):
    _, exe = fake(LOOP)
    inputs = exe.put(np.int32(0), X)
    with pytest.raises(h2g.HloError, match=r"input 0 .* takes dtype int32, got float32"):
        exe(inputs[1], inputs[1])
    with pytest.raises(h2g.HloError, match="the program takes 2 inputs"):
        exe(inputs[1])


def test_timing_has_all_three_modes(fake):
    from hlo2graph.inspect.cuda_runner import CudaRunner
    from hlo2graph.inspect.timing import Budget, measure
    from hlo2graph.inspect.verdict import cuda_verdict

    _, exe = fake(DIAMOND)
    budget = Budget(warmup=0.0, duration=0.05, iterations=8)
    timings = measure(CudaRunner(exe, (X,), cold_l2=True), budget)
    assert [m.mode.name for m in timings.modes] == ["serial", "chain", "graph"]
    assert all(m.enqueue and m.device for m in timings.modes)
    assert cuda_verdict(timings, 0.001, plan_stats(exe.plan), exe.serial.is_steered)
    assert not exe.serial.is_steered
    assert fake(LOOP)[1].serial.is_steered


def test_a_session_checks_and_reports(fake):
    from hlo2graph.inspect.cuda_session import run_cuda_session
    from hlo2graph.inspect.report import report_text
    from hlo2graph.inspect.session import Wishes

    _, exe = fake(DIAMOND)
    report, _ = run_cuda_session(exe, (X,), Wishes(), module=h2g.parse(DIAMOND))
    assert report.ok
    assert len(report.checks) == 5
    assert report.checks[-1].how == "calls with arrays that move (copy)"
    assert "cuda: Fake GPU, sm_90, driver 13.0" in report_text(report)


def test_a_profile_has_every_launch_in_loops_too(fake):
    from hlo2graph.inspect.profile import profile, profile_text

    found, exe = fake(LOOP)
    found.stamped = True
    taken = profile(exe, (np.int32(0), X))
    launches = {n.name: n.launches for n in taken.totals}
    assert launches == {"less": 6, "next": 5, "w": 5}
    assert all(n.each == pytest.approx(500e-9) for n in taken.totals)
    assert "less" in profile_text(taken)


def test_a_stamped_kernel_is_the_same_between_two_stamps():
    from hlo2graph.backends.cuda.stamps import stamped
    from hlo2graph.inspect.kernel_text import kernels_of

    (source,) = kernels_of(h2g.plan(DIAMOND, target="sm_90", fuse="default")).values()
    found = stamped(source)
    assert (found.grid, found.threads, found.name) == (source.grid, source.threads, source.name)
    assert f"void {source.name}_body(const hlo::f32* p0, hlo::f32* r0) {{" in found.text
    assert f"{source.name}(const hlo::f32* p0, hlo::f32* r0, hlo::Stamps* stamps) {{" in found.text
    assert f"{source.name}_body(p0, r0);" in found.text
