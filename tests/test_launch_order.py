"""The order in which a graph's nodes are added, and what is put in front of them."""

from __future__ import annotations

from collections.abc import Collection

from hypothesis import given
from hypothesis import strategies as st

from hlo2graph.backends.cuda.launch_order import FEWEST_SOURCES, launch_order
from hlo2graph.backends.cuda.steps import KernelStep, StepSequence


def sequence(
    *before: tuple[int, ...], light: Collection[int] = (), long: Collection[int] = ()
) -> StepSequence:
    steps = [
        KernelStep(str(k), "", None, (1, 1, 1), 1, 0, (), k in light, is_long=k in long)
        for k in range(len(before))
    ]
    return StepSequence(tuple(steps), before)


def laid_out(given: StepSequence) -> tuple[list[tuple[str, list[str]]], bool]:
    order = launch_order(given)
    names = [step.name for step in order.sequence.steps]
    waits = [sorted(names[p] for p in before) for before in order.sequence.predecessors]
    return list(zip(names, waits, strict=True)), order.has_start


def test_equal_sources_come_behind_a_start_node():
    assert laid_out(sequence((), (), (), (0, 1, 2))) == (
        [("0", []), ("1", []), ("2", []), ("3", ["0", "1", "2"])],
        True,
    )


def test_two_equal_sources_need_none():
    found, has_start = laid_out(sequence((), (), (0, 1)))
    assert found == [("0", []), ("1", []), ("2", ["0", "1"])]
    assert not has_start


def test_sources_that_can_wait_come_behind_the_one_that_cannot():
    """0 and 1 only feed the last step; 2 begins the longest way."""
    found, has_start = laid_out(sequence((), (), (), (2,), (0, 1, 3)))
    assert found == [("2", []), ("0", ["2"]), ("1", ["2"]), ("3", ["2"]), ("4", ["0", "1", "3"])]
    assert not has_start


def test_kernels_do_not_wait_for_a_source_that_takes_many_steps():
    before = ((), (), (), (2,), (0, 1, 3))
    found, has_start = laid_out(sequence(*before, long={2}))
    assert found == [("2", []), ("0", []), ("1", []), ("3", ["2"]), ("4", ["0", "1", "3"])]
    assert not has_start
    found, _ = laid_out(sequence(*before, long={2}, light={1}))
    assert ("1", ["2"]) in found
    found, has_start = laid_out(sequence((), (), (), (), (3,), (0, 1, 2, 4), long={3}))
    assert [waits for _, waits in found[:4]] == [[]] * 4
    assert has_start


def test_a_light_source_comes_where_it_is_needed():
    """0 and 1 begin the longest way; 2 is for the last step alone, and runs beside 4, behind 3."""
    before = ((), (), (), (0, 1), (3,), (2, 4))
    found, has_start = laid_out(sequence(*before, light={2}))
    assert ("2", ["3"]) in found
    assert not has_start
    found, has_start = laid_out(sequence(*before))
    assert ("2", []) in found
    assert has_start


def test_nothing_is_in_front_of_one_source_or_none():
    assert laid_out(sequence((), (0,))) == ([("0", []), ("1", ["0"])], False)
    assert laid_out(sequence()) == ([], False)


@given(st.lists(st.sets(st.integers(0, 30)), max_size=20), st.sets(st.integers(0, 19)))
def test_it_keeps_every_edge_and_lengthens_no_way(wishes, light):
    before = [tuple(sorted(p for p in wish if p < k)) for k, wish in enumerate(wishes)]
    given = sequence(*before, light=light)
    order = launch_order(given)
    position = {int(step.name): at for at, step in enumerate(order.sequence.steps)}
    assert sorted(position) == list(range(len(wishes)))
    for k, before in enumerate(given.predecessors):
        kept = {position[p] for p in before}
        assert kept <= set(order.sequence.predecessors[position[k]])
        assert all(p < position[k] for p in order.sequence.predecessors[position[k]])
    assert depth(order.sequence) == depth(given)
    sources = sum(not before for before in order.sequence.predecessors)
    assert order.has_start == (sources >= FEWEST_SOURCES)


def depth(given: StepSequence) -> int:
    found: list[int] = []
    for before in given.predecessors:
        found.append(1 + max((found[p] for p in before), default=0))
    return max(found, default=0)
