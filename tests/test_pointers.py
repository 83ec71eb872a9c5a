"""Strategies for arrays that move, on a CUDA driver that runs on the host."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import replace
from itertools import count, cycle
from random import Random
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest
from cuda.bindings import driver as real

import hlo2graph as h2g
from hlo2graph.backends.cuda import functions
from hlo2graph.backends.cuda.compiler import compile_units, unit_text
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.backends.cuda.pointers import STRATEGIES
from hlo2graph.backends.cuda.pointers.cache import KEPT
from hlo2graph.backends.cuda.pointers.costs import Costs
from hlo2graph.backends.cuda.pointers.reckoning import (
    BUILDING,
    LONGEST_HABIT,
    TRUSTED,
    Prices,
    Reckoning,
    Way,
)
from hlo2graph.backends.cuda.pointers.table_kernels import reading
from hlo2graph.inspect.compare import same_bits
from hlo2graph.options import POINTERS
from tests.blocks import put
from tests.fake_cuda import fake
from tests.placements import PROGRAMS, Caller, draw
from tests.test_cuda_graph import KNOWN, X, host

__all__ = ["fake"]  # a fixture


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_any_sequence_of_calls(fake, name, strategy):
    reference = h2g.compile(PROGRAMS[name], backend="host", fuse="none")
    for seed in range(3):
        for options in ({"library": True}, {"unroll_loops": "never", "multiprocessors": 0}):
            _, exe = fake(PROGRAMS[name], seed=seed, pointers=strategy, **options)
            caller = Caller(exe, reference, seed)
            for _ in range(15):
                caller.call()


@pytest.mark.parametrize("name", PROGRAMS)
def test_auto_is_right_whatever_it_chooses(fake, name):
    reference = h2g.compile(PROGRAMS[name], backend="host", fuse="none")
    _, exe = fake(PROGRAMS[name], pointers="auto", library=True)
    caller, rng = Caller(exe, reference, 5), Random(5)
    exe._loaded.table_kernels.begin()
    exe._loaded.table_kernels._beside.join()
    strategy, chosen = exe.strategies[0], []

    class AnyWay(Reckoning):
        def way(self, key, prices):
            ways = [Way.COPY, Way.BUILD]
            ways += [way if way in prices.there else BUILDING[way] for way in BUILDING]
            self.habit = rng.choice(ways)
            self.lasts = rng.randrange(4) if self.habit in (Way.COPY, *prices.there) else 0
            chosen.append(self.habit)
            return self.habit

    strategy._reckoning = AnyWay()
    for _ in range(80):
        caller.call()
    assert set(chosen) == set(Way)
    told = [int(n) for n in re.findall(r"(\d+) [a-z ]+", strategy.says.partition(" (")[0])]
    assert sum(told) == strategy.tally.launches


NODES = {
    "kernel": (PROGRAMS["diamond"], 0, "set kernel"),
    "copy": (PROGRAMS["copies"], 0, "set memcpy"),
    "product": (PROGRAMS["matmuls"], 0, "set child"),
    "loop": (PROGRAMS["loop"], 1, "set memcpy"),
    "nested": (PROGRAMS["nested"], 1, "set memcpy"),
    "branch": (PROGRAMS["switch"], 1, "set kernel"),
    "selector": (PROGRAMS["switch"], 0, "set kernel"),
}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kind", NODES)
def test_create_move_one_array_and_run_unchanged(fake, kind, strategy):
    """A run with new arrays, one with one of them exchanged, one with the same again."""
    program, moved, _ = NODES[kind]
    options = {"unroll_loops": "never", "library": True, "multiprocessors": 0}
    _, exe = fake(program, pointers=strategy, **options)
    caller = Caller(exe, h2g.compile(program, backend="host", fuse="none"), 0)
    values = draw(exe, caller.rng, caller.numbers)
    args = [put(v) for v in values]
    for turn in range(4):
        if turn == 1:
            args[moved] = put(values[moved])
        if turn == 3:
            args[moved].set(values[moved][...] * 0)
            values[moved] = np.asarray(values[moved] * 0)
        results = exe(*args)
        assert same_bits([np.asarray(r) for r in results], caller.reference(*values))


@pytest.mark.parametrize("kind", NODES)
def test_only_the_nodes_that_touch_it_are_updated(fake, kind):
    program, moved, call = NODES[kind]
    options = {"unroll_loops": "never", "library": True, "multiprocessors": 0}
    found, exe = fake(program, pointers="update", **options)
    args = [put(v) for v in draw(exe, Random(1), np.random.default_rng(1))]
    exe(*args)
    before = len(found.api)
    exe(*args)
    assert found.api[before:] == ["cuGraphLaunch"]
    args[moved] = put(args[moved].get())
    before = len(found.api)
    exe(*args)
    calls = found.api[before:]
    assert call in calls
    placement = list(exe.graph.placement)
    placement[moved] += 1
    assert len(calls) == exe.graph.nodes_to_move(tuple(placement)) + 1
    assert calls[-1] == "cuGraphLaunch"


def case(branches):
    """A switch of so many branches over one value; branch k adds k."""
    bodies = "".join(
        f"b{k} {{ x = f32[4] parameter(0)  c = f32[] constant({k})  "
        "d = f32[4] broadcast(c), dimensions={}  ROOT y = f32[4] add(x, d) }\n"
        for k in range(branches)
    )
    names = ", ".join(f"b{k}" for k in range(branches))
    xs = ", ".join(["x"] * branches)
    return (
        f"HloModule cases\n{bodies}ENTRY main {{\n  s = s32[] parameter(0)\n"
        "  x = f32[4] parameter(1)\n"
        f"  ROOT y = f32[4] conditional(s, {xs}), branch_computations={{{names}}}\n}}\n"
    )


@pytest.mark.parametrize("branches", range(1, 32))
def test_every_index_of_every_number_of_branches(fake, branches):
    for strategy, version in (("update", 13000), ("recapture", 12040)):
        _, exe = fake(case(branches), pointers=strategy, version=version)
        for index in range(-1, branches + 1):
            x = np.full(4, index, np.float32)
            (y,) = exe(put(np.asarray(index, np.int32)), put(x))
            taken = index if 0 <= index < branches else branches - 1
            assert np.array_equal(np.asarray(y), x + taken)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_counter_of_a_loop_starts_anew(fake, strategy):
    _, exe = fake(KNOWN, pointers=strategy, unroll_loops="never")
    for _ in range(3):
        n, y = exe(put(X))
        assert np.asarray(n) == 5
        assert np.array_equal(np.asarray(y), 32 * X)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_two_threads_at_once(fake, strategy):
    _, exe = fake(PROGRAMS["donated"], pointers=strategy)
    reference = h2g.compile(PROGRAMS["donated"], backend="host", fuse="none")
    lock, wrong = threading.Lock(), []

    def work(seed):
        caller = Caller(exe, reference, seed)
        for _ in range(10):
            try:
                with lock:  # the fake driver is no more than one thread's
                    caller.call()
            except AssertionError as error:
                wrong.append(str(error))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_refused_update_is_told_and_the_graph_instantiated_anew(fake):
    found, exe = fake(PROGRAMS["diamond"], pointers="update")
    found.fail["set kernel"] = [real.CUresult.CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE]
    (y,) = exe(put(X))
    assert np.array_equal(np.asarray(y), host(PROGRAMS["diamond"], X)[0])
    (note,) = exe.strategies[0].tally.notes
    assert re.search(r"CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE .*moving a \(<string>:\d+:3\)", note)
    assert found.api.count("cuGraphInstantiateWithParams") == 2


def test_a_refused_recapture_names_the_node(fake):
    found, exe = fake(PROGRAMS["diamond"], pointers="recapture")
    why = real.CUgraphExecUpdateResult.CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED
    found.cuGraphExecUpdate = lambda exec_, graph: refusal(found, why, graph)
    (y,) = exe(put(X))
    assert np.array_equal(np.asarray(y), host(PROGRAMS["diamond"], X)[0])
    (note,) = exe.strategies[0].tally.notes
    assert note.startswith(
        "cuGraphExecUpdate: CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED at b (<string>"
    )


def refusal(found, why, graph):
    nodes = found.graphs[int(graph)].nodes
    node = next(n for n in nodes.values() if n.name == "hlo_b")
    info = SimpleNamespace(result=why, errorNode=real.CUgraphNode(node.id), errorFromNode=None)
    return real.CUresult.CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, info


def test_the_cache_keeps_the_graphs_used_last(fake):
    found, exe = fake(PROGRAMS["diamond"], pointers="cache")
    arrays = [put(X + k) for k in range(KEPT + 3)]
    for x in arrays[: KEPT - 1]:
        exe(x)
    assert found.api.count("cuGraphInstantiateWithParams") == KEPT  # that of home, too
    before = len(found.api)
    for x in arrays[: KEPT - 1]:
        exe(x)
    assert set(found.api[before:]) == {"cuGraphLaunch"}
    for x in arrays[KEPT - 1 :]:
        exe(x)
    tally = exe.strategies[0].tally
    assert (tally.builds, tally.updates, tally.hits) == (KEPT - 1, 4, KEPT - 1)


def test_the_cache_keeps_fewer_where_there_is_no_room(fake):
    found, exe = fake(PROGRAMS["diamond"], pointers="cache")
    full = real.CUresult.CUDA_ERROR_OUT_OF_MEMORY
    found.fail["cuGraphInstantiateWithParams"] = [full, full]
    for k in range(3):
        (y,) = exe(put(X + k))
        assert np.array_equal(np.asarray(y), host(PROGRAMS["diamond"], X + k)[0])
    assert found.api.count("cuGraphInstantiateWithParams") == 3  # home, and two tries


def test_a_table_makes_a_move_one_copy(fake):
    found, exe = fake(PROGRAMS["diamond"], pointers="table")
    exe(put(X))
    before = len(found.api)
    (y,) = exe(put(X + 1))
    assert found.api[before:] == ["cuMemcpyHtoDAsync", "cuGraphLaunch"]
    assert np.array_equal(np.asarray(y), host(PROGRAMS["diamond"], X + 1)[0])


def test_a_kernel_that_reads_a_table():
    plan = h2g.plan(PROGRAMS["diamond"], target="sm_90", fuse="default")
    (source,) = kernels_of(plan).values()
    found = reading(source)
    assert found.name == f"{source.name}_at"
    head = (
        f"{found.name}(const unsigned long long* c0, unsigned long long o0, "
        "const unsigned long long* c1, unsigned long long o1) {\n"
    )
    assert head in found.text
    assert (
        f"{found.name}_body((const hlo::f32*)(c0 ? *c0 + o0 : o0), "
        "(hlo::f32*)(c1 ? *c1 + o1 : o1));" in found.text
    )
    (unit,) = compile_units([unit_text([source.text, found.text])], "sm_90")
    assert unit.cubin


def test_auto_builds_graphs_for_what_comes_again(fake):
    _, exe = fake(PROGRAMS["diamond"], pointers="auto")
    arrays = [put(X), put(X + 1)]
    for turn in range(4000):
        exe(arrays[turn % 2])
        if exe.strategies[0].tally.builds == 2:
            break
    strategy = exe.strategies[0]
    before = strategy.tally.hits
    exe(arrays[0])
    exe(arrays[1])
    exe(arrays[0])
    assert strategy.tally.hits - before >= 2
    assert re.search(r"\d+ ready, .* built \(.* us to update a node", strategy.says)


def test_auto_stops_copying_for_what_stays(fake):
    _, exe = fake(PROGRAMS["diamond"], pointers="auto")
    array, strategy = put(X), exe.strategies[0]
    for _ in range(4000):
        exe(array)
        if strategy.says.startswith("1 as it was"):
            break
    before = strategy.tally.copies
    exe(array)
    assert strategy.tally.copies == before > 0


DEAR = Costs(copy=1.0, byte=0.0, table=1e-6, build=1.5, update=1.0)  # but for tables


def test_auto_reads_a_table_where_moves_are_dear(fake):
    """Its kernels are compiled beside the calls, once; the first calls do without."""
    found, exe = fake(PROGRAMS["diamond"], pointers="auto")
    strategy = exe.strategies[0]
    arrays = [put(X + k) for k in range(200)]
    new = iter(arrays)
    while "table built" not in strategy.says:
        strategy._costs = replace(DEAR)
        x = next(new)
        (y,) = exe(x)
        assert np.array_equal(np.asarray(y), host(PROGRAMS["diamond"], x.get())[0])
    before = len(found.api)
    strategy._costs = replace(DEAR)
    exe(next(new))
    assert found.api[before:].count("cuMemcpyHtoDAsync") == 1
    assert "set kernel" not in found.api[before:]
    assert re.search(r"1 table built .*; kernels that read a table took \d+ ms", strategy.says)


def test_auto_does_without_a_table_whose_kernels_do_not_compile(fake, monkeypatch):
    _, exe = fake(PROGRAMS["diamond"], pointers="auto")
    strategy = exe.strategies[0]

    def refuse(units, arch):
        raise h2g.BackendError("no NVRTC here")

    monkeypatch.setattr(functions, "compile_units", refuse)
    arrays = [put(X + k) for k in range(100)]
    for x in arrays:
        strategy._costs = replace(DEAR)
        (y,) = exe(x)
        assert np.array_equal(np.asarray(y), host(PROGRAMS["diamond"], x.get())[0])
    assert strategy.says.endswith("; no kernels that read a table: no NVRTC here")


def test_what_costs_more_once_is_done_when_going_without_has_cost_as_much():
    dear = prices(copying=3, updating=9, building=50)
    meet, ways = meeting(), []
    while Way.BUILD not in ways:
        ways.append(meet((1,), dear))
    assert set(ways[:-1]) == {Way.COPY}
    assert TRUSTED * 50 / 3 < len(ways) <= 2 * 50 / 3 + LONGEST_HABIT
    cheap = prices(copying=30, updating=9, building=50)
    ways = [meet((new,), cheap) for new in range(20)]
    assert Way.BUILD_MOVER in ways
    assert Way.BUILD not in ways


def test_addresses_that_keep_coming_get_graphs_sooner():
    """Where nearly all come again, a part of a graph's cost is enough."""
    found = prices(copying=3, updating=9, building=300)

    def built(keys):
        meet, calls = meeting(), []
        while calls.count(Way.BUILD) < 4 and len(calls) < 2000:
            calls.append(meet((next(keys),), found))
        return len(calls), calls.count(Way.BUILD)

    calls, graphs = built(cycle(range(4)))
    assert graphs == 4
    assert calls < 4 * 300 / 3
    fresh = count(10)
    mixed = (1 if turn % 3 == 0 else next(fresh) for turn in count())
    calls, graphs = built(mixed)
    assert calls > 4 * 300 / 3


def test_the_mover_takes_what_is_dear_to_copy_and_what_stays():
    has_mover = prices(copying=30, updating=9, building=5000, there={Way.UPDATE})
    meet = meeting()
    assert {meet((k,), has_mover) for k in range(9)} == {Way.UPDATE}
    is_dear = prices(copying=3, updating=9, building=5000, there={Way.UPDATE})
    meet, ways = meeting(), []
    while Way.UPDATE not in ways:
        ways.append(meet((0,), is_dear))
    assert 3 <= len(ways) <= 3 + LONGEST_HABIT
    meet = meeting()
    assert {meet((k,), is_dear) for k in range(99)} == {Way.COPY}


def test_the_table_takes_what_is_dear_to_copy_and_to_update():
    found = prices(copying=20, updating=30, tabling=9, building=50)
    meet, ways = meeting(), []
    while Way.BUILD_TABLE not in ways:
        ways.append(meet((len(ways),), found))
    assert set(ways[:-1]) == {Way.COPY}
    assert TRUSTED * 50 / 11 < len(ways) <= 2 * 50 / 11 + LONGEST_HABIT
    both = prices(copying=20, updating=30, tabling=9, building=5000, there={Way.UPDATE, Way.TABLE})
    meet = meeting()
    assert {meet((k,), both) for k in range(99)} == {Way.TABLE}


def prices(*, copying, updating, building, tabling=None, there=()):
    moving = {Way.UPDATE: updating} | ({} if tabling is None else {Way.TABLE: tabling})
    return Prices(copying, moving, building, frozenset(there), has_room=True)


def meeting():
    """Return what meets keys as auto does: by a new reckoning, or by the habit of the last."""
    reckoning, left = Reckoning(), 0

    def meet(key, prices):
        nonlocal left
        if left:
            left -= 1
            return reckoning.habit
        way = reckoning.way(key, prices)
        left = reckoning.lasts
        return way

    return meet


def test_the_options_name_the_strategies():
    assert set(POINTERS) == set(STRATEGIES)


def test_the_lab_has_a_row_for_each_strategy_and_pattern(fake):
    from hlo2graph.inspect.pointers.lab import PATTERNS, Verdict, run_lab
    from hlo2graph.inspect.pointers.report import lab_json, lab_text

    _, exe = fake(PROGRAMS["donated"])
    args = [np.ones(64, np.float32)] * 3
    lab = run_lab(exe.plan, args, moves=40, sets=3)
    assert [(r.strategy, r.pattern) for r in lab.rows] == [
        (s, p) for p in PATTERNS for s in STRATEGIES
    ]
    rows = {(r.strategy, r.pattern): r for r in lab.rows}
    assert rows["update", "stay"].updates < rows["update", "new"].updates == 2
    assert (
        rows["copy", "new"].copied == 2 * 256
    )  # what it overwrites is copied whatever the strategy
    assert rows["table", "new"].updates == 0
    assert rows["cache", "rotate"].graphs == 4
    for row in lab.rows:
        assert row.learning >= 40
        assert row.interval[0] <= row.ratio <= row.interval[1]
    text = lab_text(lab)
    assert "donated: 3 nodes" in text or "donated: 2 nodes" in text
    assert "40 calls a row that count, of each of 3 executables" in text
    assert "auto, all in all: " in text
    for pattern in PATTERNS:
        assert f"auto, {pattern}: {lab.verdict(pattern)}, " in text
    document = json.loads(json.dumps(lab_json(lab)))
    assert set(document["verdicts"].values()) <= set(Verdict)
    assert document["rows"][0]["pattern"] == "stay"


def test_the_lab_as_a_command(fake, cli, tmp_path):
    fake(PROGRAMS["diamond"], fuse="default")
    path = tmp_path / "diamond.hlo"
    path.write_text(PROGRAMS["diamond"])
    code, out, err = cli("pointers", path, "--moves", "40", "--sets", "2", "--json", "-")
    assert code == 0, err
    assert json.loads(out)["name"] == "diamond"
    picture = tmp_path / "lab.svg"
    code, out, err = cli("pointers", path, "--moves", "40", "-o", picture)
    assert (code, out) == (0, ""), err
    texts = [e.text for e in ElementTree.parse(picture).iter() if e.tag.endswith("text")]
    assert [texts.count(name) for name in STRATEGIES] == [3] * len(STRATEGIES)
    assert sum("times the best" in text for text in texts) == 3 * len(STRATEGIES)
