"""What the timings on a GPU say in words."""

from dataclasses import replace

import pytest

import hlo2graph as h2g
from hlo2graph.inspect.timing import Budget, Mode, Sample, measure
from hlo2graph.inspect.verdict import cuda_verdict
from hlo2graph.program.stats import plan_stats

STATS = plan_stats(
    h2g.plan(
        """
HloModule two
ENTRY main {
  x = f32[8] parameter(0)
  a = f32[8] exponential(x)
  b = f32[8] sine(x)
  ROOT t = (f32[8], f32[8]) tuple(a, b)
}
""",
        target="host",
    )
)


class Steady:
    """Runs that take set times: serial, chain and graph."""

    modes = tuple(Mode(name, name) for name in ("serial", "chain", "graph"))

    def __init__(self, **latencies: float):
        self.latencies = latencies

    def prepare(self, mode):
        pass

    def launch(self, mode):
        latency = self.latencies[mode.name]
        return Sample(latency, latency / 2, latency / 2)


@pytest.mark.parametrize(("chain", "says"), [(20e-6, False), (12e-6, False), (8e-6, True)])
def test_the_verdict_names_the_chain_where_it_is_the_better_way(chain, says):
    runner = Steady(serial=100e-6, chain=chain, graph=10e-6)
    timings = measure(runner, Budget(warmup=0.0, duration=1.0, iterations=20))
    text = " ".join(cuda_verdict(timings, 1e-3, STATS, False))
    assert "10.00 times as fast as the serial stream" in text
    assert ("2.00 us less" in text and "--schedule serialize" in text) is says


def test_the_verdict_on_a_gpu_says_what_it_doubts():
    timings = measure(
        Steady(serial=100e-6, chain=20e-6, graph=10e-6), Budget(0.0, 1.0, iterations=20)
    )
    doubted = replace(timings, doubts=("graph: noisy",))
    assert "Unreliable: graph: noisy." in cuda_verdict(doubted, 1e-3, STATS, False)


@pytest.mark.parametrize("steered", [False, True])
def test_a_stream_that_the_host_steers_is_called_neither_bound(steered):
    """Enqueueing it ends with its last decision: that is no time of launching alone."""
    timings = measure(
        Steady(serial=100e-6, chain=20e-6, graph=10e-6), Budget(0.0, 1.0, iterations=20)
    )
    text = cuda_verdict(timings, 1e-3, STATS, steered)[0]
    assert ("-bound" in text) is not steered
    assert ("waits for each decision of a loop or branch" in text) is steered


@pytest.mark.parametrize(
    ("widest", "in_all", "says"), [(1, 4, "in loops and branches too"), (3, 4, "Of up to 3")]
)
def test_what_overlaps_inside_loops_counts(widest, in_all, says):
    timings = measure(
        Steady(serial=100e-6, chain=20e-6, graph=10e-6), Budget(0.0, 1.0, iterations=20)
    )
    stats = replace(STATS, nodes=1, nodes_in_all=in_all, width=1, widest=widest)
    assert says in cuda_verdict(timings, 1e-3, stats, False)[0]
