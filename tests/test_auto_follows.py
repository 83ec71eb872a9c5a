"""Auto follows how arrays move, in a world whose costs are known: no clock, no device."""

from __future__ import annotations

import re
from itertools import count, cycle
from random import Random

import pytest

from hlo2graph.backends.cuda.pointers import auto as auto_module
from hlo2graph.backends.cuda.pointers.cache import KEPT
from hlo2graph.backends.cuda.pointers.costs import READ, Costs
from hlo2graph.backends.cuda.pointers.strategy import Site

CALLS = 1200  # of one pattern before the next
PORTS = 3
LAUNCH = 5e-6  # seconds


class World:
    """Seconds of each thing that a strategy does; `now` is what all took so far.

    The driver does half of an update when the graph is launched.
    """

    def __init__(self, copy=20e-6, update=4e-6, nodes=4, table=6e-6, build=700e-6):
        self.copy, self.update, self.nodes = copy, update, nodes
        self.table, self.build, self.read = table, build, READ * nodes
        self.now = 0.0
        self.launching = 0.0  # besides: it takes the same whatever is chosen


class Graph:
    refusals, size, holder, matters = (), 0, None, tuple(range(PORTS))

    def __init__(self, world, placement):
        self.world, self.placement = world, placement
        self.build_seconds = world.build
        self.put_off = 0.0
        world.now += world.build

    def launch_on(self, stream):
        self.world.launching += LAUNCH
        self.world.now += self.put_off
        self.put_off = 0.0

    def nodes_to_move(self, placement):
        return self.world.nodes * (placement != self.placement)

    def move(self, placement):
        nodes = self.nodes_to_move(placement)
        self.put_off += nodes * self.world.update / 2
        self.world.now += nodes * self.world.update / 2
        self.placement = placement
        return nodes


class Tabled(Graph):
    def __init__(self, site):
        super().__init__(site.graph.world, site.home)
        self.write_seconds = self.world.table

    def launch_on(self, stream):
        super().launch_on(stream)
        self.world.now += self.world.read

    def nodes_to_move(self, placement):
        return 0

    def move(self, placement):
        self.world.now += self.world.table * (placement != self.placement)
        self.placement = placement
        return 0


class Home:
    def __init__(self, site, tally):
        self.site = site

    def sizes(self, placement):
        return (1, 0)

    def run(self, graph, placement, stream):
        graph.move(self.site.home)
        graph.launch_on(stream)
        graph.world.now += graph.world.copy
        return graph.world.copy, 1, LAUNCH


class Beside:
    says, failed, are_ready = "", False, False

    def begin(self):
        self.are_ready = True


@pytest.fixture
def auto(monkeypatch):
    """Return a function that makes an Auto in a world."""

    def made(world):
        costs = Costs(world.copy, 0.0, world.table, world.build)
        for name, stub in {
            "Tabled": Tabled,
            "Home": Home,
            "perf_counter": lambda: world.now + world.launching,
            "measured": lambda *_: costs,
            "build_if_room": lambda site, placement: site.build(placement),
            "if_room": lambda site, build: build(),
        }.items():
            monkeypatch.setattr(auto_module, name, stub)
        home = tuple(range(PORTS))
        graph = Graph(world, home)
        return auto_module.Auto(
            Site(home, home, graph, lambda to: Graph(world, to), None, Beside(), None)
        )

    return made


def placed(number):
    return tuple(1000 * number + port for port in range(PORTS))


def patterns():
    fresh, rng = count(100), Random(0)
    few, many = cycle(range(2, 6)), cycle(range(20, 36))
    return {
        "stay": lambda: placed(1),
        "rotate": lambda: placed(next(few)),
        "new": lambda: placed(next(fresh)),
        "mixed": lambda: placed(2 + rng.randrange(4) if rng.random() < 0.5 else next(fresh)),
        "many": lambda: placed(next(many)),
    }


def alone(world, calls):
    """Return what the best of the other strategies would have taken, graphs being there."""
    moves = sum(a != b for a, b in zip(calls, [None, *calls], strict=False))
    kept, missed = [], 0
    for call in calls:
        missed += call not in kept
        kept = [*(k for k in kept if k != call), call][-KEPT:]
    return min(
        world.copy * len(calls),
        world.update * world.nodes * moves,
        world.table * moves + world.read * len(calls),
        world.update * world.nodes * missed,
    )


WORLDS = {
    "small": {},
    "small arrays": {"copy": 12e-6},
    "few nodes": {"table": 12e-6, "nodes": 2},
    "many nodes": {"nodes": 17},
    "put off": {"update": 5e-6, "nodes": 2, "table": 7e-6},
    "large arrays": {"copy": 300e-6},
    "large graph": {"nodes": 300, "table": 40e-6, "build": 9e-3},
}
ORDERS = ("stay new rotate new stay", "new stay", "rotate new mixed rotate stay many new")


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", WORLDS)
def test_auto_is_as_good_as_the_best_whatever_came_before(auto, kind, order):
    world, moves = World(**WORLDS[kind]), patterns()
    strategy = auto(world)
    for pattern in order.split():
        calls = [moves[pattern]() for _ in range(CALLS)]
        begun = world.now
        for call in calls:
            strategy.launch(call, None)
        late = [moves[pattern]() for _ in range(CALLS // 2)]
        after = world.now
        for call in late:
            strategy.launch(call, None)
        assert world.now - after <= 1.1 * alone(world, late) + 0.5e-6 * len(late), pattern
        learning = after - begun - alone(world, calls)
        assert learning <= 2.5 * KEPT * world.build, pattern


def test_what_stays_reads_a_table_no_longer(auto):
    world, moves = World(nodes=17), patterns()
    strategy = auto(world)
    for _ in range(CALLS):
        strategy.launch(moves["new"](), None)
    assert strategy._followed is strategy._tabled is not None
    for _ in range(CALLS):
        strategy.launch(moves["stay"](), None)
    before = world.now
    for _ in range(10):
        strategy.launch(moves["stay"](), None)
    assert world.now == before


def test_graphs_that_are_ready_are_taken_while_others_are_followed(auto):
    world, moves = World(), patterns()
    strategy = auto(world)
    for pattern in ("rotate", "new"):
        for _ in range(CALLS):
            strategy.launch(moves[pattern](), None)
    hits = strategy.tally.hits
    for _ in range(20):
        strategy.launch(moves["rotate"](), None)
        strategy.launch(moves["new"](), None)
    assert strategy.tally.hits - hits >= 15


def test_tally_and_words_agree(auto):
    world, moves, rng = World(), patterns(), Random(1)
    strategy = auto(world)
    for _ in range(3000):
        strategy.launch(moves[rng.choice(list(moves))](), None)
        told = re.findall(r"([\d,]+) [a-z ]+", strategy.says.partition(" (")[0])
        assert sum(int(n.replace(",", "")) for n in told) == strategy.tally.launches
