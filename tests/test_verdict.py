"""What the timings on a GPU say in words."""

from dataclasses import replace

import pytest

from hlo2graph.inspect.timing import Budget, Mode, Sample, measure
from hlo2graph.inspect.verdict import cuda_verdict


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
    text = " ".join(cuda_verdict(timings, 1e-3, 8))
    assert "10.00 times as fast as the serial stream" in text
    assert ("2.00 us less" in text and "--schedule serialize" in text) is says


def test_the_verdict_on_a_gpu_says_what_it_doubts():
    timings = measure(
        Steady(serial=100e-6, chain=20e-6, graph=10e-6), Budget(0.0, 1.0, iterations=20)
    )
    doubted = replace(timings, doubts=("graph: noisy",))
    assert "Unreliable: graph: noisy." in cuda_verdict(doubted, 1e-3, 8)
