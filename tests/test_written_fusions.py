"""Whatever a written fusion holds, it runs on a GPU too: as a kernel, or taken apart."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_modules import random_module
from random_operations import random_arguments, random_operation

import hlo2graph as h2g
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.backends.cuda.support import check_support
from hlo2graph.backends.host import HostExecutable
from hlo2graph.hlo import DTYPES, Computation, Instruction, Literal, Module, Shape, TupleShape
from hlo2graph.hlo.printer import format_module
from hlo2graph.inspect.compare import compare, tolerance_for
from hlo2graph.passes.call_asyncs import call_asyncs

WORD = Shape(DTYPES["s32"])


def fused(module: Module) -> list[Instruction]:
    return [_call(module, "fusion", {"kind": "kCustom", "calls": module.entry_name})]


def called(module: Module) -> list[Instruction]:
    return [_call(module, "call", {"to_apply": module.entry_name})]


def held_back(module: Module) -> list[Instruction]:
    """What uses the call stands in the same kernel, if that is one."""
    *_, call = fused(module)
    return [call, Instruction("held", "opt-barrier", call.shape, (call.name,))]


def paired(module: Module) -> list[Instruction]:
    start = _call(module, "async-start", {"calls": module.entry_name})
    given = TupleShape(tuple(p.shape for p in module.entry.parameters))
    start = replace(start, shape=TupleShape((given, start.shape, WORD)))
    update = Instruction("update", "async-update", start.shape, (start.name,))
    return [start, update, Instruction("done", "async-done", start.shape.parts[1], ("update",))]


def chosen(module: Module) -> list[Instruction]:
    """A conditional whose branch takes a tuple, so that it has a fusion of a tuple too."""
    one = Instruction("one", "constant", WORD, payload=Literal(WORD, np.int32(1)))
    names = tuple(p.name for p in module.entry.parameters)
    whole = TupleShape(tuple(p.shape for p in module.entry.parameters))
    given = Instruction("given", "tuple", whole, names)
    branch = {"branch_computations": (f"of_tuple_{module.entry_name}",)}
    operands = (one.name, given.name)
    return [
        one,
        given,
        Instruction("chosen", "conditional", module.entry.result.shape, operands, branch),
    ]


def of_tuple(module: Module) -> Computation:
    """Return the entry as a fusion within a computation that takes a tuple."""
    whole = TupleShape(tuple(p.shape for p in module.entry.parameters))
    held = Instruction("held", "parameter", whole, payload=0)
    parts = [
        Instruction(p.name, "get-tuple-element", p.shape, ("held",), {"index": k})
        for k, p in enumerate(module.entry.parameters)
    ]
    [fusion] = fused(module)
    return Computation(f"of_tuple_{module.entry_name}", (held, *parts, fusion), fusion.name)


def _call(module: Module, opcode: str, attrs: dict) -> Instruction:
    names = tuple(p.name for p in module.entry.parameters)
    return Instruction("around", opcode, module.entry.result.shape, names, attrs)


def around(module: Module, way, name: str) -> Module:
    """Return a module whose entry, `name`, does what the module's does in another way."""
    added = way(module)
    computations = dict(module.computations)
    if way is chosen:
        inner = of_tuple(module)
        computations[inner.name] = inner
    instructions = (*module.entry.parameters, *added)
    computations[name] = Computation(name, instructions, added[-1].name)
    return replace(module, computations=computations, entry_name=name, attrs={})


@settings(
    max_examples=60,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
@given(st.integers(0, 2**32))
def test_any_written_fusion_has_kernels_and_the_same_results(seed):
    rnd = Random(seed)
    text = random_module(rnd, 4) if rnd.random() < 0.3 else random_operation(rnd)
    module, args = h2g.parse(text), random_arguments(text, rnd)
    want = HostExecutable(h2g.plan(module))(*args)
    # What an async-start calls has nothing but its root.
    ways = [*rnd.choices((fused, held_back, called, chosen), k=2), fused, paired]
    if rnd.random() < 0.5:
        ways.append(fused)
    for number, way in enumerate(ways):
        module = around(module, way, f"around_{number}")
    module = h2g.parse(format_module(module))
    for target, fuse in (("host", "none"), ("sm_90", "none"), ("sm_90", "default")):
        plan = h2g.plan(module, target=target, fuse=fuse)
        if target != "host":
            check_support(plan)
            kernels_of(plan)
        got = HostExecutable(plan)(*args)
        for ours, theirs, bound in zip(got, want, plan.outputs, strict=True):
            found = compare(ours, theirs, tolerance_for(bound.shape.dtype), bound.name)
            assert found.ok, f"{found}\n{text}"


PAIR = """HloModule m
double { x = f32[4] parameter(0)
  ROOT y = f32[4] add(x, x) }
ENTRY main { p = f32[4] parameter(0)
  start = ((f32[4]), f32[4], s32[]) async-start(p), calls=double
  beside = f32[4] negate(p), control-predecessors={start}
  update = ((f32[4]), f32[4], s32[]) async-update(start)
  behind = f32[4] abs(p), control-predecessors={update, start}
  end = f32[4] async-done(update)
  ROOT r = (f32[4], f32[4], f32[4]) tuple(end, beside, behind) }
"""


def test_a_pair_becomes_a_call_of_its_ends_name():
    entry = call_asyncs(h2g.parse(PAIR)).entry
    assert [i.opcode for i in entry.instructions] == ["parameter", "call", "negate", "abs", "tuple"]
    assert entry["end"].attrs == {"to_apply": "double"}
    for name in ("beside", "behind"):
        assert entry[name].attrs == {"control-predecessors": ("end",)}


@pytest.mark.parametrize("name", ["end", "beside"])
def test_what_was_begun_is_named_by_its_end(name):
    plan = h2g.plan(PAIR)
    assert name in [bound.name for bound in plan.outputs]
