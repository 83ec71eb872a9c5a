"""Plans in graphs in part: which thunks, in which order, and with the results of one graph."""

from __future__ import annotations

import json
from random import Random

import numpy as np
import pytest
from cuda.bindings import driver as real

import hlo2graph as h2g
from hlo2graph.backends.cuda.partial.cut import arranged
from hlo2graph.backends.cuda.partial.policy import KINDS, Policy
from hlo2graph.backends.cuda.pointers import STRATEGIES
from hlo2graph.errors import BackendError, InputError
from hlo2graph.inspect.captured import Captured
from hlo2graph.inspect.compare import same_bits
from hlo2graph.inspect.cuda_session import run_cuda_session
from hlo2graph.inspect.report import report_text
from hlo2graph.inspect.report_json import report_json
from hlo2graph.inspect.session import Wishes
from hlo2graph.inspect.timing import Budget
from tests.blocks import put
from tests.fake_cuda import FakeLibrary, fake
from tests.placements import PROGRAMS, Caller
from tests.test_cuda_graph import DIAMOND, KNOWN, X, host

__all__ = ["fake"]  # a fixture

CAPTURES = ("temps", "loops:0", "-while,-conditional", "kernel", "-kernel", "temps,-copy")


def random_order(rng, count):
    """Return who waits for whom, which a graph may hold, and sizes."""
    waits = [
        sorted(rng.sample(range(k), min(k, rng.choice((0, 1, 1, 2))))) if k else []
        for k in range(count)
    ]
    return waits, [rng.random() < 0.6 for _ in range(count)], [rng.choice((1, 1, 3)) for _ in waits]


@pytest.mark.parametrize("seed", range(60))
def test_runs_are_a_valid_order_of_the_whole(seed):
    rng = Random(seed)
    waits, held, sizes = random_order(rng, rng.randrange(30))
    least = rng.choice((1, 2, 5))
    runs = list(arranged(waits, held, sizes, least))
    order = [k for _, run in runs for k in run]
    assert sorted(order) == list(range(len(waits)))
    place = {k: at for at, k in enumerate(order)}
    assert all(place[b] < place[k] for k, before in enumerate(waits) for b in before)
    for is_held, run in runs:
        if is_held:
            assert all(held[k] for k in run)
            assert sum(sizes[k] for k in run) >= least
    if least == 1:
        assert {k for is_held, run in runs if is_held for k in run} == {
            k for k, one in enumerate(held) if one
        }


def graphs(waits, held, least=1):
    return [run for is_held, run in arranged(waits, held, [1] * len(waits), least) if is_held]


def test_thunks_move_past_each_other_to_make_graphs_large():
    # a, lone, b, lone, c: nothing waits, so that all that graphs hold is one
    assert graphs([[], [], [], [], []], [True, False, True, False, True]) == [[0, 2, 4]]


def test_a_graph_ends_where_a_lone_thunk_must_run():
    assert graphs([[], [0], [1]], [True, False, True]) == [[0], [2]]


def test_the_first_part_is_whichever_makes_fewer_graphs():
    # 0 is lone and first; 1 needs nothing, 2 needs 0
    assert graphs([[], [], [0]], [False, True, True]) == [[1, 2]]
    # 0 is in a graph and 1 behind it alone; a lone 2 must not part 0 from 3
    assert graphs([[], [0], [], [2, 0]], [True, False, False, True]) == [[0, 3]]


def test_what_is_too_small_for_a_graph_joins_a_later_one():
    # 0 could run first, but 2 and 3 wait for the lone 1
    assert graphs([[], [], [1], [1, 0]], [True, False, True, True], least=2) == [[0, 2, 3]]
    held = [True, False, True, True, True]
    assert graphs([[], [0], [1], [1], []], held, least=3) == [[2, 3, 4]]


def test_more_in_graphs_is_worth_more_than_fewer_graphs():
    # 1 needs the lone 0, and 3 too: if the first run were a graph, 2 would be in it by itself
    assert graphs([[], [0], [], [0]], [False, True, True, True], least=2) == [[1, 2, 3]]
    # begun with lone thunks, 0 and 3 are one graph of two; a graph of 0 alone is too small
    waits, held = [[], [], [1], [0, 2]], [True, False, False, True]
    assert graphs(waits, held, least=2) == [[0, 3]]


def test_what_is_too_small_is_enqueued_alone():
    assert graphs([[], [0], [1]], [True, False, True], least=2) == []


@pytest.mark.parametrize("capture", CAPTURES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_any_sequence_of_calls_in_part(fake, name, capture):
    """As whole graphs do, whatever deals with arrays that move."""
    reference = h2g.compile(PROGRAMS[name], backend="host", fuse="none")
    for seed, strategy in enumerate(STRATEGIES):
        options = {"library": seed % 2 == 0, "unroll_loops": ("auto", "never")[seed % 3 == 0]}
        _, exe = fake(
            PROGRAMS[name],
            seed=seed,
            pointers=strategy,
            capture=f"{capture},min:{1 + seed % 3}",
            **options,
        )
        caller = Caller(exe, reference, seed)
        for _ in range(4):
            caller.call()


# ---- policies ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("all", Policy()),
        ("temps", Policy(only_stable=True, least=2)),
        ("loops:7", Policy(rounds=7, least=2)),
        ("kernel,copy", Policy(frozenset({"kernel", "copy"}), least=2)),
        ("-while,min:5", Policy(frozenset(KINDS) - {"while"}, least=5)),
        ("all,-while,+while", Policy()),
        ("temps,-library,min:1", Policy(frozenset(KINDS) - {"library"}, only_stable=True)),
        ("all,min:3", Policy(least=3)),
        ("min:0", Policy()),
    ],
)
def test_policies(text, policy):
    assert Policy.of(text) == policy


@pytest.mark.parametrize(
    "text", ["", "none", "-temps", "loops", "loops:", "loops:x", "min:-1", "loops:" + 30 * "9"]
)
def test_what_is_no_policy(text):
    with pytest.raises(InputError, match="capture is all, temps, loops:N"):
        h2g.compile(DIAMOND, "host", capture=text)


def reasons(program, capture):
    captured = Captured.of(h2g.plan(program, target="sm_90", fuse="none"), capture)
    return {part.thunk.name: part.why for _, part in captured.alone}, captured


def test_lone_thunks_have_reasons():
    found, captured = reasons(DIAMOND, "temps,min:1")
    assert found == {
        "a": "touches parameter x, which a caller may move",
        "d": "touches result d, which a caller may move",
    }
    assert captured.head == "1 graph of 2 thunks; 2 thunks enqueued by themselves"
    assert list(captured.lines()) == [
        "kernel a: touches parameter x, which a caller may move",
        "graph 0: b, c",
        "kernel d: touches result d, which a caller may move",
    ]
    assert reasons(DIAMOND, "temps,min:3")[0]["b"] == "would be in a graph of fewer than 3 thunks"
    assert set(reasons(DIAMOND, "-kernel")[0].values()) == {"is a kernel"}


def test_loops_of_enough_rounds_are_graphs():
    found, captured = reasons(KNOWN, "loops:4")
    assert set(found.values()) == {"is in no loop of over 4 rounds"}
    assert len(captured.graphs) == 1
    assert "has 5 rounds, not over 5" in reasons(KNOWN, "loops:5")[0].values()
    assert "has a trip count that is not known" in reasons(PROGRAMS["loop"], "loops:0")[0].values()


def test_what_a_loop_holds_keeps_it_out():
    found, captured = reasons(PROGRAMS["nested"], "-conditional,min:1")
    holds = [why for why in found.values() if why.startswith("holds ")]
    assert holds
    assert holds[0].endswith(", which is a conditional")
    assert captured.graphs


def test_a_conditional_with_one_branch_that_no_graph_holds():
    text = APART.replace("no { v = f32[4] parameter(0)  ROOT w = f32[4] abs(v) }", LOOPING)
    _, captured = reasons(text, "-while,min:1")
    whys = [part.why for _, part in captured.alone]
    assert whys[0] == "holds c/w, which is a while"
    assert "is a while" in whys
    homes = {where for where, part in captured.parts if part in captured.graphs}
    assert {"", "c/branch_0", "c/branch_1/c/w/body"} <= homes


def test_explain_lists_graphs_and_lone_thunks(cli, tmp_path):
    path = tmp_path / "apart.hlo"
    path.write_text(APART)
    args = "explain", path, "--why-not-graph", "--target", "sm_90", "--fuse", "none"
    code, out, _ = cli(*args, "--capture", "-conditional,min:1")
    assert code == 0
    assert out == (
        "apart, in all 5 thunks: 4 graphs of 1, 1, 1 and 1 thunks; 1 thunk enqueued by itself\n"
        "  graph 0: a\n"
        "  conditional c: is a conditional\n"
        "    graph 1: w\n"
        "    graph 2: c/w\n"
        "  graph 3: d\n"
    )
    code, out, _ = cli(*args, "--capture=-conditional,min:1", "--json", "-")
    found = json.loads(out)
    assert [graph["where"] for graph in found["graphs"]] == ["", "c/branch_0", "c/branch_1", ""]
    assert found["alone"][0]["why"] == "is a conditional"
    assert cli(*args)[1] == "apart, in all 5 thunks: one graph\n"


def test_explain_names_conditions_that_nobody_asks(cli):
    args = "explain", "samples/loop.hlo", "--why-not-graph", "--target", "sm_90", "--fuse", "none"
    code, out, _ = cli(*args, "--capture=-while,min:1")
    assert code == 0
    assert [line for line in out.splitlines() if "runs nowhere" in line] == [
        "  again runs nowhere: the rounds of while are known"
    ]
    assert (
        "again"
        in json.loads(cli(*args, "--capture=-while,min:1", "--json", "-")[1])["without_node"]
    )


def test_explain_refuses_what_is_no_policy(cli):
    code, _, err = cli("explain", "samples/loop.hlo", "--why-not-graph", "--capture", "tmps")
    assert code == 2
    assert "capture is all, temps, loops:N, min:N, or kinds of thunks" in err
    code, _, err = cli("explain", "samples/loop.hlo", "--critical-path", "--capture", "temps")
    assert code == 2
    assert "--capture is for --why-not-graph" in err


# ---- what is launched ----------------------------------------------------------------------------


def test_lone_thunks_and_graphs_take_turns(fake):
    found, exe = fake(DIAMOND, capture="temps", pointers="update")
    x = put(X)
    exe(x)
    found.launched.clear()
    before = len(found.api)
    (y,) = exe(x)
    assert found.api[before:] == ["cuGraphLaunch"]
    assert [found.launched[0], found.launched[-1]] == ["hlo_a", "hlo_d"]
    assert np.array_equal(np.asarray(y), host(DIAMOND, X)[0])


def test_a_move_updates_no_node_where_graphs_hold_temporaries_alone(fake):
    for strategy in STRATEGIES:
        found, exe = fake(DIAMOND, capture="temps", pointers=strategy)
        built = found.api.count("cuGraphInstantiateWithParams")
        for k in range(5):
            (y,) = exe(put(X + k))
            assert np.array_equal(np.asarray(y), host(DIAMOND, X + k)[0])
        assert "set kernel" not in found.api
        assert found.api.count("cuGraphInstantiateWithParams") == built


APART = """
HloModule apart

yes { v = f32[4] parameter(0)  ROOT w = f32[4] negate(v) }

no { v = f32[4] parameter(0)  ROOT w = f32[4] abs(v) }

ENTRY main {
  x = f32[4] parameter(0)
  s = pred[] parameter(1)
  a = f32[4] exponential(x)
  c = f32[4] conditional(s, a, a), true_computation=yes, false_computation=no
  ROOT d = f32[4] add(c, x)
}
"""


LOOPING = """\
going { v = f32[4] parameter(0)  s = f32[1] slice(v), slice={[0:1]}  t = f32[] reshape(s)
  z = f32[] constant(9)  ROOT c = pred[] compare(t, z), direction=LT }

body { v = f32[4] parameter(0)  o = f32[] constant(1)  b = f32[4] broadcast(o), dimensions={}
  ROOT w = f32[4] add(v, b) }

no { v = f32[4] parameter(0)  ROOT w = f32[4] while(v), condition=going, body=body }"""


@pytest.mark.parametrize("failing", [1, 2])
def test_a_failed_move_is_made_up_for(fake, failing):
    """The first graph has moved, or has not, when one cannot: the next call finds both in place."""
    found, exe = fake(APART, capture="-conditional,min:1", pointers="update")
    assert len(exe.graph.graphs) == 4  # a, the branches, d
    chosen, blocks = put(np.bool_(True)), [put(X), put(X + 1)]
    want = [host(APART, X + k, np.bool_(True))[0] for k in range(2)]
    assert np.array_equal(np.asarray(exe(blocks[0], chosen)[0]), want[0])
    set_params, calls = found.set_params, []

    def refusing(*given):
        calls.append(given)
        refused = real.CUresult.CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE
        return refused if len(calls) == failing else set_params(*given)

    found.set_params = refusing
    found.fail["cuGraphInstantiateWithParams"] = [real.CUresult.CUDA_ERROR_UNKNOWN]
    with pytest.raises(BackendError, match="CUDA_ERROR_UNKNOWN"):
        exe(blocks[1], chosen)
    for k in (0, 1, 0):
        assert np.array_equal(np.asarray(exe(blocks[k], chosen)[0]), want[k])


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("capture", ["all", "temps"])
def test_runs_over_its_own_memory_between_calls(fake, strategy, capture):
    _, exe = fake(DIAMOND, capture=capture, pointers=strategy)
    x = put(X)
    for turn in range(3):
        for _ in range(2):
            x.set(X + turn)
            assert np.array_equal(np.asarray(exe(x)[0]), host(DIAMOND, X + turn)[0])
        exe.write_inputs([X * 0])
        exe.execute("graph")
        assert np.array_equal(exe.read_outputs()[0], host(DIAMOND, X * 0)[0])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_one_instance_serves_several_streams(fake, strategy):
    _, exe = fake(APART, capture="temps,-conditional,min:1", pointers=strategy, instances=2)
    arrays, chosen = [put(X + k) for k in range(3)], [put(np.bool_(b)) for b in (True, False)]
    for turn in range(24):
        stream = (None, 71, 72, 73, 74)[turn * 7 % 5]
        x, yes = arrays[turn % 3], turn % 2
        (y,) = exe.run([x, chosen[yes]], stream=stream, out="fresh")
        assert same_bits([np.asarray(y)], host(APART, X + turn % 3, np.bool_(not yes)))


def test_the_bodies_of_loops_that_the_host_steers_are_graphs(fake):
    found, exe = fake(PROGRAMS["loop"], capture="-while,min:1")
    found.api.clear()
    results = exe(np.asarray(2, np.int32), X)
    assert found.api.count("cuGraphLaunch") > 3
    assert same_bits(results, host(PROGRAMS["loop"], np.int32(2), X))


def test_nobody_waits_for_loops_of_known_rounds(fake, monkeypatch):
    waits = []
    library = FakeLibrary.cuStreamSynchronize
    monkeypatch.setattr(
        FakeLibrary, "cuStreamSynchronize", lambda *args: waits.append(1) or library(*args)
    )
    for program, asked in ((KNOWN, 0), (PROGRAMS["loop"], 4)):
        found, exe = fake(program, capture="-while,min:1")
        args = [np.asarray(2, np.int32)] * (program != KNOWN) + [X]
        want = host(program, *args)
        for mode in ("serial", "graph"):
            exe.write_inputs(args)
            exe.poison()
            waits.clear()
            found.api.clear()
            exe.enqueue(mode)
            assert len(waits) == asked
            assert same_bits(exe.read_outputs(), want)
    assert found.api.count("cuGraphLaunch") > 3


def test_a_run_says_how_it_is_parted_and_what_it_holds(fake):
    _, exe = fake(PROGRAMS["loop"], capture="-while,min:1", temporaries="shared")
    args = [np.asarray(2, np.int32), X]
    wishes = Wishes(budget=Budget(0.0, 0.01, 2, (50,)))
    report, _ = run_cuda_session(exe, args, wishes, module=h2g.parse(PROGRAMS["loop"]))
    assert report.ok
    text = report_text(report)
    assert "capture -while,min:1 · temporaries shared" in text
    assert "  is a while" not in text
    assert " is a while\n" in text
    assert "graphs, the other thunks one by one" in text
    assert "shared by loop" in text
    document = report_json(report)
    assert document["captured"]["alone"][0]["why"] == "is a while"
    assert document["memory"]["shared"] > 0
    assert document["memory"]["graphs"] == 3
