"""Buffer assignment: exact expectations on small programs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hlo2graph.errors import InputError
from hlo2graph.hlo import DTYPES, Literal, Shape
from hlo2graph.program.buffers import assign_buffers, overwrite
from hlo2graph.program.buffers.space import Block, Space
from hlo2graph.program.thunks import (
    Alias,
    Conditional,
    Copy,
    Fill,
    Hazard,
    Kernel,
    Library,
    Port,
    Program,
    Sequence,
    Slice,
    Value,
    While,
)
from tests.random_programs import LARGE, SMALL, computations, planned

SIZE = SMALL.size


def hazards(plan):
    return {(e.src, e.dst): e.hazard for e in plan.body.edges}


class Builder:
    """Programs by hand: `b.kernel(opcode, reads)` gives the value written."""

    def __init__(self, params=1, shape=SMALL):
        self.shape = shape
        self.count = 0
        self.thunks = []
        self.params = [self.value() for _ in range(params)]

    def value(self, shape=None):
        self.count += 1
        return Value(self.count, shape or self.shape, f"v{self.count}")

    def kernel(self, opcode, *reads, **more):
        written = self.value()
        name = f"{opcode}{len(reads)}_{self.shape.size}"
        self.thunks.append(Kernel(f"k{len(self.thunks)}", name, reads, (written,), **more))
        return written

    def add(self, thunk):
        self.thunks.append(thunk)
        return thunk

    def program(self, *results, aliases=(), constants=()):
        return Program(
            "hand",
            Sequence(tuple(self.thunks), tuple(self.params), results),
            tuple(Port(f"p{i}", v.shape) for i, v in enumerate(self.params)),
            tuple(Port(f"r{i}", v.shape) for i, v in enumerate(results)),
            constants,
            computations(),
            aliases,
        )


def chains(opcode, count=4, length=6):
    b = Builder()
    ends = []
    for _ in range(count):
        value = b.params[0]
        for _ in range(length):
            value = b.kernel(opcode, value)
        ends.append(value)
    return b.program(*ends)


@pytest.mark.parametrize(("opcode", "buffers_a_chain"), [("tanh", 1), ("reverse", 2)])
def test_chains_keep_their_width(opcode, buffers_a_chain):
    plan = planned(chains(opcode))
    assert plan.arena.size == 4 * buffers_a_chain * SIZE
    assert plan.arena.lower_bound == buffers_a_chain * SIZE
    assert plan.arena.sum == 20 * SIZE
    assert set(hazards(plan).values()) == {Hazard.RAW}
    assert len(plan.body.edges) == 20


def test_unlimited_reuse_serves_all_chains_from_one_buffer():
    plan = planned(chains("tanh"), max_buffer_reuse=-1)
    assert plan.arena.size == SIZE
    added = {pair: h for pair, h in hazards(plan).items() if h is not Hazard.RAW}
    assert added == {(5, 6): "reuse", (11, 12): "reuse", (17, 18): "reuse"}
    assert {e.slice for e in plan.body.edges if e.hazard == "reuse"} == {Slice(5, 0, SIZE)}


def test_reuse_once_hands_each_buffer_over_once():
    plan = planned(chains("tanh"), max_buffer_reuse=1)
    assert plan.arena.size == 2 * SIZE
    assert [h for h in hazards(plan).values() if h is not Hazard.RAW] == [Hazard.REUSE] * 2


@pytest.mark.parametrize(("budget", "size", "added"), [(4, 4, 0), (3, 3, 1), (2, 2, 2), (1, 1, 3)])
def test_budget_adds_as_few_edges_as_it_needs(budget, size, added):
    plan = planned(chains("tanh"), memory_budget=budget * SIZE)
    assert plan.arena.size == size * SIZE
    assert list(hazards(plan).values()).count(Hazard.REUSE) == added


def test_budget_that_cannot_be_met_names_what_holds_the_memory():
    with pytest.raises(InputError) as caught:
        planned(chains("reverse"), memory_budget=SIZE)
    assert caught.value.message == (
        "a memory budget of 256 bytes cannot be met: the least that the temporaries can be made "
        "to fit in is 512 bytes; 512 bytes are alive at once, held by v2 (256 bytes), "
        "v3 (256 bytes)"
    )


def test_serial_schedule_reuses_everything_and_labels_nothing():
    buffers = assign_buffers(chains("tanh"), schedule="serialize")
    assert buffers.arena.size == SIZE
    assert buffers.labels == {}


def shares(program, a, b, **policy):
    slices = assign_buffers(program, **policy).slices
    return slices[a.id] == slices[b.id]


def two_readers(opcode, shape=SMALL, ordered=False):
    """A value read twice: by `other`, then by the kernel that might overwrite it."""
    b = Builder(shape=shape)
    held = b.kernel("reverse", b.params[0])
    other = b.kernel("reverse", held)
    new = b.kernel(opcode, held, other) if ordered else b.kernel(opcode, held)
    end = b.kernel("concatenate", new, other)
    return b.program(end), held, new


def test_in_place_where_data_flow_orders_the_other_reader():
    program, held, new = two_readers("add", ordered=True)
    assert shares(program, held, new)


def test_not_in_place_where_another_reader_would_have_to_come_first():
    program, held, new = two_readers("tanh")
    assert not shares(program, held, new)


def test_large_value_is_overwritten_at_the_price_of_a_labelled_edge(monkeypatch):
    program, held, new = two_readers("tanh")
    monkeypatch.setattr(overwrite, "INPLACE_THRESHOLD", SIZE - 1)
    assert shares(program, held, new)
    assert hazards(planned(program))[1, 2] is Hazard.INPLACE


def test_threshold_is_bytes_saved_and_exclusive(monkeypatch):
    program, held, new = two_readers("tanh")
    monkeypatch.setattr(overwrite, "INPLACE_THRESHOLD", SIZE)
    assert not shares(program, held, new)


def test_kernel_that_reads_other_indices_is_not_in_place():
    program, held, new = two_readers("reverse")
    assert not shares(program, held, new)


def test_value_read_under_two_parameters_is_not_overwritten():
    b = Builder()
    held = b.kernel("reverse", b.params[0])
    new = b.kernel("add", held, held)
    program = b.program(b.kernel("reverse", new))
    assert not shares(program, held, new)


@pytest.mark.parametrize(("opcode", "shared"), [("tanh", False), ("dynamic-update-slice", True)])
def test_only_a_partial_update_moves_a_value_into_a_result(opcode, shared):
    b = Builder(params=2)
    held = b.kernel("reverse", b.params[0])
    reads = (held, b.params[1]) if opcode != "tanh" else (held,)
    new = b.kernel(opcode, *reads)
    assert shares(b.program(new), held, new) is shared


def test_parameter_is_never_written():
    b = Builder(params=2)
    new = b.kernel("dynamic-update-slice", *b.params)
    end = b.kernel("reverse", new)
    assert not shares(b.program(end), b.params[0], new)


def test_chain_of_updates_of_a_donated_parameter_stays_in_it():
    b = Builder(params=2)
    first = b.kernel("dynamic-update-slice", b.params[0], b.params[1])
    second = b.kernel("dynamic-update-slice", first, b.params[1])
    program = b.program(second, aliases=(Alias(0, 0, must=True),))
    buffers = assign_buffers(program)
    home = Slice(0, 0, SIZE)
    assert [buffers.slices[v.id] for v in (b.params[0], first, second)] == [home] * 3
    assert [a.kind for a in buffers.allocations] == ["parameter", "parameter"]
    assert buffers.aliases == ("result r0 in parameter p0, must: honoured",)


def test_may_alias_that_data_flow_does_not_allow_is_reported():
    b = Builder()
    first = b.kernel("tanh", b.params[0])
    second = b.kernel("reverse", b.params[0])
    program = b.program(first, second, aliases=(Alias(0, 0, must=False),))
    buffers = assign_buffers(program)
    assert buffers.slices[b.params[0].id] != buffers.slices[first.id]
    assert buffers.aliases == (
        "result r0 in parameter p0, may: not honoured: "
        "the parameter is still read when the result is written",
    )


def test_loop_state_is_one_buffer_and_temporaries_are_shared():
    b = Builder()
    init = b.kernel("reverse", b.params[0])
    param, state, temp, inner = (b.value() for _ in range(4))
    body = Sequence(
        (
            Kernel("b0", f"reverse1_{SIZE}", (param,), (temp,)),
            Kernel("b1", f"reverse1_{SIZE}", (temp,), (inner,)),
        ),
        (param,),
        (inner,),
    )
    seen, flag = b.value(), b.value()
    condition = Sequence((Kernel("c0", f"reverse1_{SIZE}", (seen,), (flag,)),), (seen,), (flag,))
    loop = b.add(While("loop", (init,), (state,), condition, body))
    program = b.program(b.kernel("reverse", state))
    buffers = assign_buffers(program)
    assert len({buffers.slices[v.id] for v in (init, param, inner, seen, state)}) == 1
    assert buffers.slices[temp.id] == buffers.slices[flag.id]
    assert buffers.arena.size == buffers.arena.lower_bound == 2 * SIZE
    assert hazards(planned(program)) == {(0, 1): Hazard.RAW, (1, 2): Hazard.RAW}
    assert isinstance(loop, While)


def test_branches_share_bytes_with_each_other_but_not_with_what_outlives_them():
    b = Builder()
    held = b.kernel("reverse", b.params[0])
    branches, temps = [], []
    for k in range(2):
        temp, out = b.value(), b.value()
        thunks = (
            Kernel(f"b{k}", f"reverse1_{SIZE}", (held,), (temp,)),
            Kernel(f"c{k}", f"reverse1_{SIZE}", (temp,), (out,)),
        )
        branches.append(Sequence(thunks, (), (out,)))
        temps.append(temp)
    result = b.value()
    b.add(Conditional("if", b.params[0], tuple(branches), (result,)))
    program = b.program(b.kernel("concatenate", result, held))
    buffers = assign_buffers(program)
    assert buffers.slices[temps[0].id] == buffers.slices[temps[1].id]
    assert buffers.slices[temps[0].id] != buffers.slices[held.id]
    assert buffers.arena.size == 3 * SIZE


def test_copy_that_got_one_slice_is_dropped_and_its_control_edges_stay():
    b = Builder()
    first = b.kernel("reverse", b.params[0])
    b.add(Fill("lonely", b"\0", b.value()))
    target = b.value()
    b.add(Copy("copy", first, target, after=("lonely",)))
    second = b.kernel("reverse", target)
    third = b.kernel("reverse", b.params[0], after=("copy",))
    plan = planned(b.program(second, third))
    assert [t.name for t in plan.body.thunks] == ["k0", "lonely", "k3", "k4"]
    assert hazards(plan) == {
        (0, 2): Hazard.RAW,
        (1, 2): Hazard.CONTROL,
        (0, 3): Hazard.CONTROL,
        (1, 3): Hazard.CONTROL,
    }


def test_workspace_is_free_again_for_what_follows_but_not_for_its_own_result():
    b = Builder()
    scratch, out = b.value(), b.value()
    b.add(Library("lib", f"reverse1_{SIZE}", (b.params[0],), (out,), (scratch,)))
    later = b.kernel("reverse", out)
    program = b.program(b.kernel("reverse", later))
    buffers = assign_buffers(program)
    assert buffers.slices[scratch.id] != buffers.slices[out.id]
    assert buffers.slices[scratch.id] == buffers.slices[later.id]


def test_allocations_are_parameters_constants_results_and_one_arena():
    b = Builder(params=2)
    constant = b.value()
    literal = Literal(SMALL, None)
    temp = b.kernel("concatenate", b.params[0], constant)
    end = b.kernel("reverse", temp)
    program = b.program(end, constants=((constant, literal),))
    buffers = assign_buffers(program)
    found = [(a.kind, a.owner, a.size) for a in buffers.allocations]
    assert found == [
        ("parameter", "p0", SIZE),
        ("parameter", "p1", SIZE),
        ("constant", "v3", SIZE),
        ("live-out", "r0", SIZE),
        ("temp", "", SIZE),
    ]
    assert buffers.allocations[2].literal is literal


def test_empty_value_has_a_slice_of_no_bytes():
    b = Builder(shape=Shape(DTYPES["f32"], (0,)))
    temp = b.value()
    b.add(Fill("fill", b"\0\0\0\0", temp))
    end = b.value()
    b.add(Copy("copy", temp, end))
    buffers = assign_buffers(b.program(end))
    assert buffers.slices[temp.id].size == 0


@pytest.mark.parametrize("wrong", [{"max_buffer_reuse": -2}, {"memory_budget": -1}])
def test_options_out_of_range(wrong):
    with pytest.raises(InputError):
        assign_buffers(chains("tanh"), **wrong)


def test_large_and_small_share_one_block():
    """A dead large value gives room to two small ones side by side."""
    b = Builder()
    large = b.value(LARGE)
    b.add(Fill("fill", b"\0\0\0\0", large))
    after = b.value()
    b.add(Kernel("shrink", f"reverse1_{SIZE}", (large,), (after,)))
    one = b.kernel("reverse", after)
    two = b.kernel("reverse", after)
    buffers = assign_buffers(b.program(b.kernel("concatenate", one, two)))
    assert buffers.arena.size == LARGE.size + SIZE
    assert {buffers.slices[v.id].offset for v in (one, two)} == {0, SIZE}


def test_a_small_buffer_keeps_no_room_from_large_ones_behind_it():
    b = Builder()
    small, first, second = b.kernel("reverse", b.params[0]), b.value(LARGE), b.value(LARGE)
    b.add(Kernel("first", f"reverse1_{SIZE}", (small,), (first,)))
    b.add(Kernel("second", f"reverse1_{LARGE.size}", (first,), (second,)))
    buffers = assign_buffers(b.program(b.kernel("reverse", second)))
    assert buffers.arena.size == buffers.arena.lower_bound == 2 * LARGE.size
    assert not buffers.labels


def test_assignment_is_the_same_every_time():
    program = replace(chains("reverse"), name="again")
    assert assign_buffers(program, max_buffer_reuse=1) == assign_buffers(
        program, max_buffer_reuse=1
    )


def test_blocks_spent_too_often_are_not_looked_at():
    """Thousands may be: a search that met each would make planning quadratic."""
    spent = [Block(k, k + 1, 1 << k, spent=1) for k in range(3)]
    fresh, newer = Block(8, 16, 1 << 3), Block(16, 24, 1 << 4)
    space = Space(1, [*spent, fresh, newer])
    assert space.unspent() == [fresh, newer]
    space.take([fresh], 8, 12)
    assert space.unspent() == [fresh._replace(start=12), newer]
    space.take([fresh._replace(start=12), newer], 12, 24)
    assert space.unspent() == []
    assert Space(-1, spent).unspent() == spent
