"""How long an instruction's kernel takes, roughly, and how much of a device it fills.

By the figures of passes/figures.py, there to compare ways through a graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hlo2graph.hlo import Computation, Instruction, Shape
from hlo2graph.ops import OPS
from hlo2graph.ops.custom_lapack import call_of, factors_block
from hlo2graph.ops.device import NoDevice, device_of
from hlo2graph.ops.expect import integers
from hlo2graph.ops.matmul import matmul_of
from hlo2graph.ops.own_dot import runs_as_own_kernel
from hlo2graph.ops.region import Attention, Columns, Own, Region, Rows, SideBySide, region_of
from hlo2graph.ops.spec import Lowering
from hlo2graph.passes.figures import (
    BYTES_EACH_NS,
    CALL_NS,
    FOLD_NS,
    LAUNCH_NS,
    LOOP_NS,
    OWN_NS,
    PRODUCT_STEP_NS,
    library_ns,
    steps_of,
)

THREADS = 256  # of a block
TILE = 32  # side of a dot's tile that a block computes
FREE = frozenset({"parameter", "constant", "bitcast", "reshape"})


@dataclass(frozen=True, slots=True)
class Estimate:
    """`time`, in nanoseconds, is 0 for what makes no kernel. `joins`: it may be a part of one."""

    time: int
    blocks: int = 0
    joins: bool = False


NOTHING = Estimate(0)


def estimate(
    instr: Instruction, computation: Computation, computations: Mapping[str, Computation]
) -> Estimate:
    """Return the estimate for an instruction of a computation that becomes thunks."""
    match instr.opcode:
        case "while" | "scan" | "conditional" | "call":
            return Estimate(LOOP_NS)
        case "fusion":
            called = computations[next(instr.called())]
            product = matmul_of(called)
            root = called.result
            if product and not runs_as_own_kernel(root, *_shapes(root, called)[:2]):
                return Estimate(CALL_NS + _moving(instr, computation))
            return _of_region(instr, region_of(called), computation, called)
        case _:
            return _alone(instr, computation)


def _alone(instr: Instruction, computation: Computation) -> Estimate:
    spec = OPS[instr.opcode]
    if spec.lowering is not Lowering.KERNEL or _is_free(instr, computation):
        return NOTHING
    no_kernel = isinstance(device_of(spec.device, instr), NoDevice)
    if spec.effect or no_kernel or instr.opcode == "custom-call":
        return Estimate(CALL_NS)
    if instr.opcode == "dot" and not runs_as_own_kernel(instr, *_shapes(instr, computation)[:2]):
        return Estimate(library_ns(instr, _shapes(instr, computation)))
    return _of_region(instr, _region(instr, computation), computation, computation)


def _region(instr: Instruction, computation: Computation) -> Region | None:
    """Return the region of the computation that lowering will make of a lone instruction."""
    operands = [
        Instruction(name, "parameter", computation[name].shape, payload=number)
        for number, name in enumerate(dict.fromkeys(instr.operands))
    ]
    return region_of(Computation(instr.name, (*operands, instr), instr.name))


def _of_region(
    instr: Instruction, region: Region | None, outside: Computation, inside: Computation
) -> Estimate:
    moving = LAUNCH_NS + _moving(instr, outside)
    match region:
        case None:
            return Estimate(moving + OWN_NS)
        case SideBySide():
            return Estimate(moving)
        case Rows() | Columns():
            blocks = _blocks(region.results * region.steps)
            return Estimate(moving + FOLD_NS, blocks, joins=True)
        case Own(hero):
            return _of_hero(inside[hero], moving, inside)
        case Attention(weighing):
            dots = (inside[weighing.scores], inside[weighing.product])
            return Estimate(sum(_of_hero(dot, moving, inside).time for dot in dots))
        case _:
            counts = [leaf.elements for leaf in instr.shape.leaves()]
            return Estimate(moving, _blocks(max(counts, default=0)), joins=True)


def _of_hero(hero: Instruction, moving: int, inside: Computation) -> Estimate:
    shapes = [*_shapes(hero, inside), *hero.shape.leaves()]
    if hero.opcode != "dot":
        joins = call_of(hero) is None or factors_block(hero)  # others take all registers they can
        return Estimate(moving + OWN_NS, _blocks(max(s.elements for s in shapes)), joins)
    lhs, out = shapes[0], shapes[-1]
    steps = steps_of(hero, lhs)
    return Estimate(
        moving + FOLD_NS + PRODUCT_STEP_NS * steps, -(-out.elements // TILE**2), joins=True
    )


def _blocks(elements: int) -> int:
    return max(1, -(-elements // THREADS))


def _moving(instr: Instruction, computation: Computation) -> int:
    shapes = [*_shapes(instr, computation), *instr.shape.leaves()]
    return sum(shape.size for shape in shapes) // BYTES_EACH_NS


def _shapes(instr: Instruction, computation: Computation) -> list[Shape]:
    """Return the array leaves of the operands."""
    return [leaf for o in instr.operands for leaf in computation[o].shape.leaves()]


def _is_free(instr: Instruction, computation: Computation) -> bool:
    """Tell whether the result has its operand's bytes, or is known."""
    if instr.opcode in FREE:
        return True
    if instr.opcode not in ("broadcast", "transpose", "bitcast-convert"):
        return False
    source = computation[instr.operands[0]].shape
    assert isinstance(source, Shape)
    assert isinstance(instr.shape, Shape)
    if instr.opcode == "transpose":
        moved = [d for d in integers(instr, "dimensions") if source.dims[d] != 1]
        return moved == sorted(moved)
    known = computation[instr.operands[0]].opcode == "constant"
    return source.elements == instr.shape.elements and not known
