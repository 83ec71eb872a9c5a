"""The run report: its lines, its verdict in words, its JSON."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from conftest import SAMPLES

import hlo2graph as h2g
from hlo2graph.hlo import DTYPES, Shape
from hlo2graph.inspect.compare import Tolerance, compare
from hlo2graph.inspect.figures import bytes_text, columns, plural, time_text
from hlo2graph.inspect.profile import SHOWN as PROFILED
from hlo2graph.inspect.profile import longest_thunk
from hlo2graph.inspect.report import SHOWN, RunReport, Stage, check_text, report_text
from hlo2graph.inspect.report_json import report_json
from hlo2graph.inspect.self_check import Check
from hlo2graph.inspect.summary import summarise_result
from hlo2graph.inspect.timing import Mode, Sample, summarise
from hlo2graph.inspect.verdict import Longest, host_verdict
from hlo2graph.program.stats import plan_stats

QUICK = ("--backend", "host", "--duration", "0", "--reference", "none")
TWO_CHAINS = """
HloModule two_chains
ENTRY main (x: f32[8], y: f32[8]) -> (f32[8], f32[8]) {
  x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  a = f32[8] exponential(x)
  b = f32[8] sine(a)
  c = f32[8] cosine(y)
  d = f32[8] tanh(c)
  ROOT t = (f32[8], f32[8]) tuple(b, d)
}
"""

STATS = plan_stats(h2g.plan(TWO_CHAINS, target="host"))


def timings(serial, graph, rounds=20):
    modes = (Mode("serial", "one thread"), Mode("graph", "2 threads"))
    return summarise(modes, [[Sample(serial)] * rounds, [Sample(graph)] * rounds], (50.0, 99.0))


@pytest.fixture
def report():
    plan = h2g.plan(TWO_CHAINS)
    ones = np.ones(8, np.float32)
    return RunReport(
        plan=plan,
        stats=plan_stats(plan),
        backend="host",
        machine="NumPy",
        seed=3,
        results=tuple(summarise_result(b.name, b.shape, ones) for b in plan.outputs),
        checks=(Check("program order", 4, True, how="4 random orders"),),
        stages=(Stage("parse", 0.002), Stage("plan", 0.001)),
        timings=timings(1e-3, 0.5e-3),
    )


def test_the_text_holds_every_part(report):
    text = report_text(report)
    for part in (
        "two_chains   host: NumPy · fuse none · concurrent · seed 3",
        "inputs   2, 64 B: x f32[8], y f32[8]",
        "1 to 1, mean 1",
        "check    compared with no reference, only with itself",
        "         same bits as program order in 4 random orders",
        "plan     4 thunks, 2 edges (2 raw), width 2, critical path 2",
        "built    parse 2.00 ms, plan 1.00 ms; together 3.00 ms",
        "latency p50",
        "2.00x  (2.00 to 2.00)",
        "The pool is faster: 2.00 times as fast as one thread (2.00 to 2.00), 500 us less a run.",
    ):
        assert part in text
    assert "Unreliable" not in text
    assert all(len(line) <= 100 and line == line.rstrip() for line in text.splitlines())


def test_table_rows_name_their_mode_and_align(report):
    lines = report_text(report).splitlines()
    at = next(i for i, line in enumerate(lines) if "latency p50" in line)
    head, *rows = lines[at : at + 3]
    assert [row.split()[0] for row in rows] == ["serial", "graph"]
    ends = {re.search(r"\d (ms|us)", row).end() for row in rows}
    assert ends == {re.search("latency p50", head).end()}


def test_columns_of_a_backend_with_a_device(report):
    modes = (Mode("serial", "stream"), Mode("graph", "DAG"))
    samples = [[Sample(3e-6, enqueue=1e-6, device=2e-6)] * 9, [Sample(2e-6)] * 9]
    found = replace(report, timings=summarise(modes, samples, (50.0,)), verdict=("Launch-bound.",))
    lines = report_text(found).splitlines()
    head = next(line for line in lines if "enqueue" in line)
    assert head.index("enqueue") < head.index("device") < head.index("latency p50")
    serial = next(line for line in lines if "stream" in line)
    assert "1.00 us" in serial
    assert "2.00 us" in serial
    assert "Launch-bound." in lines[-1]


def test_a_failed_check_fails_the_report(report):
    wrong = compare(np.float32([1, 2]), np.float32([1, 3]), Tolerance(0, 0), "out0")
    found = replace(report, checks=(Check.of("XLA:CPU", (wrong,)), *report.checks))
    assert report.ok
    assert not found.ok
    assert "FAILED: not XLA:CPU: out0: 1 of 2 elements differ, first at [1]" in report_text(found)
    bits = replace(report, checks=(Check("program order", 4, False, how="4 random orders"),))
    assert "FAILED: other bits than program order in 4 random orders" in report_text(bits)


def test_a_check_within_a_tolerance(report):
    near = compare(np.float32([1.001]), np.float32([1]), Tolerance(0.01, 0.05), "out0")
    found = replace(report, checks=(Check.of("XLA:CPU", (near,)),))
    line = "equal to XLA:CPU within 0.01 relative + 0.05 absolute (largest difference 0.001)"
    assert line in report_text(found)


def test_a_wide_tolerance_is_called_so_and_has_three_digits(report):
    near = compare(np.float32([1.001]), np.float32([1]), Tolerance(0.01, 0.123456), "out0")
    text = check_text(Check.of("XLA:CPU", (near,)))
    assert "within 0.01 relative + 0.123 absolute" in text
    assert text.endswith("(largest difference 0.001; wide for out0, whose largest value is 1)")


def test_a_check_that_tells_nothing_is_not_called_equal(report):
    near = compare(np.float32([1.5]), np.float32([1]), Tolerance(0.01, 4), "out0")
    check = Check.of("XLA:CPU", (near,), "a last bit moves all")
    text = check_text(check)
    assert text.startswith("not comparable with XLA:CPU: a last bit moves all. ")
    assert text.endswith("The largest difference is 0.5, the largest value 1")
    found = replace(report, checks=(check,))
    assert found.ok
    assert report_json(found)["checks"][0]["vague"] == "a last bit moves all"


def test_a_report_without_a_reference_says_so(report):
    alone = replace(report, checks=(Check("program order", 4, True, how="4 random orders"),))
    text = report_text(alone)
    assert "check    compared with no reference, only with itself\n" in text
    assert "no reference" not in report_text(replace(report, checks=()))


def test_long_lists_are_capped(report):
    one = report.results[0]
    found = report_text(replace(report, results=(replace(one, nans=1),) * (SHOWN + 5)))
    assert found.count("mean 1, 1 NaN") == SHOWN
    assert "and 5 more, with 5 NaN" in found


def test_without_timings_checks_or_stages(report):
    text = report_text(replace(report, timings=None, checks=(), stages=(), seed=None))
    assert "inputs given" in text
    for label in ("check", "built", "latency", "pool"):
        assert label not in text


SHAPE = Shape(DTYPES["f32"], (4,))


@pytest.mark.parametrize(
    ("values", "shape", "said"),
    [
        ([1.5, 2.5, 3.5, 4.5], SHAPE, "1.5 to 4.5, mean 3"),
        ([np.nan, np.inf, 1, 3], SHAPE, "1 to 3, mean 2, 1 NaN, 1 infinite"),
        ([np.nan] * 4, SHAPE, "nothing finite, 4 NaN"),
        (7.25, Shape(DTYPES["f32"], ()), "7.25"),
        ([], Shape(DTYPES["f32"], (0,)), "empty"),
        ([3 + 4j], Shape(DTYPES["c64"], (1,)), "|x| 5"),
        ([True, False], Shape(DTYPES["pred"], (2,)), "0 to 1, mean 0.5"),
        ([-8, 7], Shape(DTYPES["s4"], (2,)), "-8 to 7, mean -0.5"),
        ([1, 2.0**99], Shape(DTYPES["bf16"], (2,)), "1 to 6.338e+29, mean 3.169e+29"),
    ],
)
def test_results_in_one_line(values, shape, said):
    array = np.array(values).astype(shape.dtype.numpy)
    assert str(summarise_result("out", shape, array)) == said


@pytest.mark.parametrize(
    ("serial", "graph", "thunks", "widest", "said"),
    [
        (1.0, 0.5, 8, 4, "The pool is faster: 2.00 times as fast"),
        (1.0, 0.5, 8, 4, "Up to 4 thunks can overlap"),
        (1.0, 2.0, 8, 4, "The pool is slower: it takes 2.00 times as long"),
        (1.0, 2.0, 8, 4, "1.00 s more a run"),
        (
            1e-4,
            2e-4,
            100,
            9,
            "1.00 us each on average, but handing them to other threads costs",
        ),
        (1e-4, 1e-4, 100, 9, "handing them to other threads costs as much as that gains"),
        (1.0, 2.0, 8, 4, "at 125 ms each on average, but one already keeps busy what they share"),
        (1.0, 2.0, 1, 1, "There is one thunk: there is nothing"),
        (1.0, 1.0, 8, 4, "No difference that 20 rounds can tell"),
        (1.0, 1.0, 8, 1, "one chain: there is nothing to run side by side"),
    ],
)
def test_the_verdict(serial, graph, thunks, widest, said):
    stats = replace(STATS, nodes=thunks, nodes_in_all=thunks, widest=widest)
    assert said in host_verdict(timings(serial, graph), stats)[0]


def test_the_verdict_names_what_takes_most_of_the_time():
    stats = replace(STATS, nodes=8, nodes_in_all=8, widest=4)
    most = Longest("sort.1", 0.92)
    (slower,) = host_verdict(timings(1.0, 2.0), stats, most)
    assert slower.endswith("125 ms each on average, but sort.1 alone takes 92% of the time.")
    (faster,) = host_verdict(timings(1.0, 0.5), stats, most)
    assert faster.endswith("125 ms each on average; sort.1 alone takes 92% of the time.")
    assert "sort.1" not in host_verdict(timings(1.0, 2.0), stats, Longest("sort.1", 0.2))[0]


def test_the_thunk_that_takes_longest_is_found():
    executable = h2g.compile(
        """HloModule m
ENTRY main {
  a = f32[300,300] parameter(0)
  x = f32[4] parameter(1)
  big = f32[300,300] dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  small = f32[4] sine(x)
  ROOT t = (f32[300,300], f32[4]) tuple(big, small)
}""",
        backend="host",
    )
    arrays = [np.zeros(shape, dtype) for _, dtype, shape in executable.inputs]
    found = longest_thunk(executable, arrays)
    assert found is not None
    assert (found.name in ("big", "small"), 0.5 <= found.share <= 1) == (True, True)


NESTED = """
HloModule nested
body {{
  s = (s32[], f32[8], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[8] get-tuple-element(s), index=1
  y = f32[8] get-tuple-element(s), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  a = f32[8] exponential({0})
  b = f32[8] sine({1})
  ROOT t = (s32[], f32[8], f32[8]) tuple({2}, a, b)
}}
condition {{
  s = (s32[], f32[8], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[8] get-tuple-element(s), index=1
  end = s32[] constant(50)
  ROOT less = pred[] compare(i, end), direction=LT
}}
ENTRY main {{
  p = (s32[], f32[8], f32[8]) parameter(0)
  ROOT w = (s32[], f32[8], f32[8]) while(p), condition=condition, body=body
}}
"""


def test_the_verdict_counts_what_overlaps_inside_a_loop_and_no_time_of_a_thunk():
    """How often a loop's thunks run is not known: the loop is no thunk of so much time."""
    stats = plan_stats(h2g.plan(NESTED.format("x", "y", "next"), target="host"))
    assert (stats.width, stats.widest) != (1, 1)
    (found,) = host_verdict(timings(1.0, 2.0), stats)
    assert f"Up to {stats.widest} thunks could overlap, but handing them" in found
    assert " each" not in found
    assert "Up to" in host_verdict(timings(1.0, 0.5), stats)[0]


def test_the_verdict_says_one_chain_only_where_loops_are_chains_too():
    stats = replace(STATS, nodes=1, nodes_in_all=4, width=1, widest=1)
    (found,) = host_verdict(timings(1.0, 2.0), stats)
    assert "The thunks form one chain, in loops and branches too: there is nothing to run" in found
    assert "chain" not in host_verdict(timings(1.0, 2.0), replace(stats, widest=2))[0]


def test_what_is_saved_is_compared_within_rounds():
    """A slow spell that meets all modes does not make the difference contradict the ratio."""
    modes = (Mode("serial", ""), Mode("graph", ""))
    spell = [1.0] * 11 + [10.0] * 10
    late = [1.0] * 10 + [10.0] * 11
    serial = [Sample(s) for s in spell]
    graph = [Sample(s * 1.25) for s in spell[:10] + late[10:]]
    found = host_verdict(summarise(modes, [serial, graph], (50.0,)), STATS)[0]
    assert "takes 1.25 times as long" in found
    assert "2.50 s more a run" in found  # where the medians are 11.5 s apart


def test_one_round_has_no_interval(report):
    text = report_text(replace(report, timings=timings(1.0, 0.5, rounds=1), verdict=()))
    row = next(line for line in text.splitlines() if line.lstrip().startswith("graph "))
    assert row.endswith("2.00x")


def test_one_round_decides_nothing():
    (found,) = host_verdict(timings(1.0, 0.5, rounds=1), STATS)
    assert found.startswith("Unreliable: only 1 round")


def test_json_has_the_schema_and_is_json(report):
    bad = compare(np.float32([np.nan]), np.float32([1]), Tolerance(0.5, 0), "out0")
    found = report_json(replace(report, checks=(Check.of("XLA:CPU", (bad,)), *report.checks)))
    held = json.loads(json.dumps(found, allow_nan=False))
    assert held["schema"] == {"name": "hlo2graph.run", "version": 1}
    assert held["plan"]["hazards"] == {"raw": 2}
    assert held["inputs"][0] == {"name": "x", "dtype": "f32", "shape": [8], "bytes": 32}
    assert held["outputs"][0]["mean"] == 1.0
    assert held["checks"][0]["results"][0]["worst"] == "Infinity"
    assert [c["bit_equal"] for c in held["checks"]] == [None, True]
    assert held["ok"] is False
    assert [m["name"] for m in held["timing"]["modes"]] == ["serial", "graph"]
    assert held["timing"]["modes"][1]["ratio"]["value"] == 2.0
    assert held["timing"]["modes"][0]["percentiles"] == {"50": 1e-3, "99": 1e-3}
    assert held["verdict"]


def test_json_without_timings(report):
    assert report_json(replace(report, timings=None))["timing"] is None


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (65536, "65.5 kB"), (4_200_000, "4.20 MB")],
)
def test_bytes(count, text):
    assert bytes_text(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.00 ns"),
        (2e-7, "200 ns"),
        (4.12e-5, "41.2 us"),
        (0.99996e-3, "1.00 ms"),
        (0.0123, "12.3 ms"),
        (75.0, "75.0 s"),
    ],
)
def test_times(seconds, text):
    assert time_text(seconds) == text


def test_plurals_and_columns():
    assert [plural(n, "edge") for n in (0, 1, 1200)] == ["0 edges", "1 edge", "1,200 edges"]
    assert plural(2, "branch") == "2 branches"
    assert columns([("a", "1"), ("long", "22")], left=1) == ["a      1", "long  22"]


def test_a_profile_says_where_its_other_nodes_are(cli, tmp_path):
    sample, file = SAMPLES[0].parent / "bounded_sizes.hlo", tmp_path / "all.json"
    _, out, _ = cli("run", sample, *QUICK, "--profile", "nodes", "--json", file)
    nodes = json.loads(file.read_text())["profile"]["nodes"]
    rest = len(nodes) - PROFILED
    assert rest > 0
    assert re.search(rf"\n  and {rest} more, \S+ \ws together; --json FILE lists all\n$", out)
    _, few, _ = cli("run", SAMPLES[0].parent / "loop.hlo", *QUICK, "--profile", "nodes")
    assert "lists all" not in few
    _, told, _ = cli("run", "--help")
    assert f"the {PROFILED} that took" in " ".join(told.split())


def test_the_last_column_is_named_where_medians_say_the_opposite(report):
    modes = (Mode("serial", ""), Mode("graph", ""))
    samples = [[Sample(t) for t in held] for held in ([1.0, 3.0, 2.0] * 7, [0.9, 2.5, 10.0] * 7)]
    odd = summarise(modes, samples, (50.0,))
    assert odd.ratios[1].value > 1
    assert odd["graph"].median > odd["serial"].median
    named = "last column: times as fast as serial in the same round, their median"
    assert named in report_text(replace(report, timings=odd))
    assert "last column" not in report_text(replace(report, timings=timings(1.0, 0.5)))
