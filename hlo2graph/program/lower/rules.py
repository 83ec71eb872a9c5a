"""What each instruction becomes: thunks, a view, a computation to inline, or nothing at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from hlo2graph.hlo import AnyShape, Instruction, Literal, Module, Shape, TupleShape
from hlo2graph.ops import OPS
from hlo2graph.ops.custom_call import less_workspace
from hlo2graph.ops.effects import has_effect
from hlo2graph.ops.groups import is_alone
from hlo2graph.ops.one_device import sends_nothing, why_not, with_devices
from hlo2graph.ops.spec import Lowering
from hlo2graph.ops.views import is_view, same_order
from hlo2graph.program.lower.calls import called, is_inlined, part_range
from hlo2graph.program.lower.leaf import Leaf, Leaves, leaf_names
from hlo2graph.program.lower.sequence import Builder, Frame, metadata
from hlo2graph.program.thunks import Collective, Copy, Fill, Kernel, Value

Rule: TypeAlias = Callable[[Builder, Frame, Instruction], "Leaves | Frame"]

FILLS = (1, 2, 4, 8, 16)  # bytes of an element that a Fill can repeat


def rule_for(instr: Instruction) -> Rule:
    """Return the rule for any instruction but a loop or a conditional."""
    opcode = instr.opcode
    if found := _RULES.get(opcode):
        return found
    if opcode.endswith(("-done", "-update")):
        return _same
    if opcode.endswith("-start"):
        return _start
    spec = OPS.get(opcode)
    if spec is not None and spec.lowering is Lowering.COLLECTIVE:
        return _between_devices
    if spec is not None and spec.lowering is Lowering.HOST_IO:
        return _collective
    return _kernel


def _parameter(_: Builder, frame: Frame, instr: Instruction) -> Leaves:
    assert isinstance(instr.payload, int)
    return frame.arguments[instr.payload]


def _constant(_: Builder, __: Frame, instr: Instruction) -> Leaves:
    literals = _literals(instr.payload)
    names = leaf_names(instr.name, instr.shape)
    return tuple(
        Leaf(held.shape, literal=held, name=name)
        for held, name in zip(literals, names, strict=True)
    )


def _literals(payload: object) -> list[Literal]:
    if isinstance(payload, tuple):
        return [literal for part in payload for literal in _literals(part)]
    assert isinstance(payload, Literal)
    return [payload]


def _same(_: Builder, frame: Frame, instr: Instruction) -> Leaves:
    return frame.env[instr.operands[0]]


def _tuple(_: Builder, frame: Frame, instr: Instruction) -> Leaves:
    return tuple(leaf for operand in instr.operands for leaf in frame.env[operand])


def _element(_: Builder, frame: Frame, instr: Instruction) -> Leaves:
    index = instr.attrs["index"]
    assert isinstance(index, int)
    [operand] = instr.operands
    first, last = part_range(frame.computation[operand].shape, index)
    return frame.env[operand][first:last]


def _after_all(_: Builder, frame: Frame, instr: Instruction) -> Leaves:
    assert isinstance(instr.shape, Shape)
    held = (name for o in instr.operands for leaf in frame.env[o] for name in leaf.after)
    return (Leaf(instr.shape, after=tuple(dict.fromkeys(held))),)


def _add_dependency(_: Builder, frame: Frame, instr: Instruction) -> Leaves:
    data, *others = (frame.env[operand] for operand in instr.operands)
    after = tuple(name for leaves in others for leaf in leaves for name in leaf.after)
    return tuple(leaf._replace(after=(*leaf.after, *after)) for leaf in data)


def inlined(builder: Builder, frame: Frame, instr: Instruction) -> Frame:
    """Return the frame of the computation that `instr` calls."""
    callee = builder.shared.module.computations[next(instr.called())]
    arguments = [frame.env[operand] for operand in instr.operands]
    return Frame(callee, arguments, instr.name, builder.controls(instr, frame))


def _view(builder: Builder, frame: Frame, instr: Instruction) -> Leaves:
    [leaf] = frame.env[instr.operands[0]]
    if is_view(instr, leaf.shape):
        assert isinstance(instr.shape, Shape)
        return (builder.view(leaf, instr.shape),)
    return _kernel(builder, frame, instr)


def _broadcast(builder: Builder, frame: Frame, instr: Instruction) -> Leaves:
    [leaf] = frame.env[instr.operands[0]]
    literal = leaf.literal
    if literal is None or literal.array is None or leaf.shape.elements != 1:
        return _view(builder, frame, instr)
    pattern = literal.array.tobytes()
    if len(pattern) not in FILLS:
        return _kernel(builder, frame, instr)
    name = builder.name(instr, frame)
    [result] = builder.results(instr, name)
    after = builder.after(instr, frame)
    builder.emit(Fill(name, pattern, builder.buffer(result), after, metadata(instr), instr.span))
    return (result,)


def _copy(builder: Builder, frame: Frame, instr: Instruction) -> Leaves:
    """Copy bytes; a copy into another layout is a kernel, that of a tuple or token the same."""
    operand = frame.env[instr.operands[0]]
    if not isinstance(instr.shape, Shape) or operand[0].is_token:
        return _handed_on(builder, frame, instr, operand)
    if not same_order(operand[0].shape, instr.shape):
        return _kernel(builder, frame, instr)
    name = builder.name(instr, frame)
    [result] = builder.results(instr, name)
    source, target = builder.buffer(operand[0]), builder.buffer(result)
    after = builder.after(instr, frame)
    builder.emit(Copy(name, source, target, after, metadata(instr), instr.span))
    return (result,)


def _start(builder: Builder, frame: Frame, instr: Instruction) -> Leaves | Frame:
    """Lower the start of an asynchronous operation as the whole of it; `done` gives its result."""
    opcode = instr.opcode.removesuffix("-start")
    shape: AnyShape = instr.shape
    if opcode != "all-reduce" and isinstance(shape, TupleShape):
        shape = shape.parts[0 if opcode == "copy" else 1]
    whole = replace(instr, opcode=opcode, shape=shape)
    return rule_for(whole)(builder, frame, whole)


def _fusion(builder: Builder, frame: Frame, instr: Instruction) -> Leaves | Frame:
    """One kernel; fusion of tuples, which kernels don't take, is inlined as a call."""
    if is_inlined(frame.computation, instr):
        return inlined(builder, frame, instr)
    computation = builder.shared.pool.fused(str(instr.attrs["calls"]))
    name = builder.name(instr, frame)
    effect = _has_effect(builder, instr)
    given = (frame.env[operand][0] for operand in instr.operands)
    reads = tuple(
        builder.laid_out(leaf, parameter.shape, parameter.name, instr.name)
        for leaf, parameter in zip(given, computation.parameters, strict=True)
        if isinstance(parameter.shape, Shape)
    )
    results = builder.results(replace(instr, shape=computation.result.shape), name)
    after = builder.after(instr, frame, effect)
    builder.emit(
        Kernel(
            name,
            computation.name,
            reads,
            _values(results),
            after,
            effect,
            metadata(instr),
            instr.span,
        )
    )
    return results


def _custom_call(builder: Builder, frame: Frame, instr: Instruction) -> Leaves:
    """Run the call without its workspace, which is zeros to whoever looks at it."""
    part = less_workspace(instr)
    leaves = _kernel(builder, frame, part)
    names = tuple(leaf_names(instr.name, instr.shape))[len(leaves) :]
    rest = tuple(instr.shape.leaves())[len(leaves) :]
    return leaves + tuple(
        Leaf(shape, literal=_blank(shape), name=name)
        for shape, name in zip(rest, names, strict=True)
    )


def _blank(shape: Shape) -> Literal:
    return Literal(shape, np.broadcast_to(np.zeros((), shape.dtype.numpy), shape.dims))


def _kernel(builder: Builder, frame: Frame, instr: Instruction) -> Leaves:
    computation, reads = _wrap(builder, frame, instr)
    name = builder.name(instr, frame)
    effect = _has_effect(builder, instr)
    results = builder.results(instr, name)
    after = builder.after(instr, frame, effect)
    builder.emit(
        Kernel(
            name, computation, reads, _values(results), after, effect, metadata(instr), instr.span
        )
    )
    return results


def _collective(builder: Builder, frame: Frame, instr: Instruction) -> Leaves:
    computation, reads = _wrap(builder, frame, instr)
    name = builder.name(instr, frame)
    results = builder.results(instr, name)
    after = builder.after(instr, frame, effect=True)
    builder.emit(
        Collective(name, computation, reads, _values(results), after, metadata(instr), instr.span)
    )
    return results


def _between_devices(builder: Builder, frame: Frame, instr: Instruction) -> Leaves:
    """Do without a thunk where the device is alone: what it gets is what it gives."""
    operands = [frame.computation[o].shape for o in instr.operands]
    instr = with_devices(instr, operands, _devices(builder.shared.module, instr))
    if not is_alone(instr) or why_not(instr) is not None:
        return _collective(builder, frame, instr)
    if instr.opcode == "ragged-all-to-all":
        return _kernel(builder, frame, instr)
    if sends_nothing(instr):
        return _zero_fills(builder, frame, instr)
    given = tuple(leaf for operand in instr.operands for leaf in frame.env[operand])
    return _handed_on(builder, frame, instr, given)


def _handed_on(builder: Builder, frame: Frame, instr: Instruction, given: Leaves) -> Leaves:
    """Give what is given, in the layouts of the result."""
    controls = builder.controls(instr, frame)
    parts = zip(given, instr.shape.leaves(), leaf_names(instr.name, instr.shape), strict=True)
    return tuple(
        _in_layout(builder, leaf._replace(after=(*leaf.after, *controls)), shape, name, instr)
        for leaf, shape, name in parts
    )


def _devices(module: Module, instr: Instruction) -> int:
    """Return how many devices are in a group that is left out; a channel joins partitions too."""
    return _replicas(module) * (_partitions(module) if "channel_id" in instr.attrs else 1)


def _replicas(module: Module) -> int:
    return int(module.attrs.get("replica_count", 1))


def _partitions(module: Module) -> int:
    return int(module.attrs.get("num_partitions", 1))


def _in_layout(builder: Builder, leaf: Leaf, shape: Shape, name: str, instr: Instruction) -> Leaf:
    if leaf.is_token:
        return leaf
    if same_order(leaf.shape, shape):
        return builder.view(leaf, shape)
    return Leaf(shape, builder.laid_out(leaf, shape, name, instr.name), after=leaf.after)


def _zero_fills(builder: Builder, frame: Frame, instr: Instruction) -> Leaves:
    name = builder.name(instr, frame)
    results = builder.results(instr, name)
    after = builder.after(instr, frame)
    for at, result in enumerate(results):
        thunk = builder.shared.unique(f"{name}.{at}", instr.name) if at else name
        target = builder.buffer(result)
        builder.emit(Fill(thunk, b"\0", target, after, metadata(instr), instr.span))
    return results


def _communicated(_: Builder, frame: Frame, instr: Instruction) -> Leaves:
    """End a send or receive, which holds its data, a number and a token."""
    *data, _number, token = frame.env[instr.operands[0]]
    return (*data, token) if instr.opcode == "recv-done" else (token,)


def _wrap(builder: Builder, frame: Frame, instr: Instruction) -> tuple[str, tuple[Value, ...]]:
    operands = [
        (frame.computation[o].shape, tuple(map(builder.buffered, frame.env[o])))
        for o in instr.operands
    ]
    computation, reads = builder.shared.pool.wrap(instr, operands)
    return computation, tuple(map(builder.buffer, reads))


def _values(leaves: Leaves) -> tuple[Value, ...]:
    return tuple(leaf.value for leaf in leaves if leaf.value is not None)


def _has_effect(builder: Builder, instr: Instruction) -> bool:
    effects = builder.shared.calls.effects
    return has_effect(instr) or any(callee in effects for callee in called(instr))


_RULES: dict[str, Rule] = {
    "add-dependency": _add_dependency,
    "after-all": _after_all,
    "async-start": inlined,
    "bitcast": _view,
    "bitcast-convert": _view,
    "broadcast": _broadcast,
    "call": inlined,
    "constant": _constant,
    "copy": _copy,
    "custom-call": _custom_call,
    "domain": _same,
    "fusion": _fusion,
    "get-tuple-element": _element,
    "opt-barrier": _same,
    "parameter": _parameter,
    "recv-done": _communicated,
    "reshape": _view,
    "send-done": _communicated,
    "transpose": _view,
    "tuple": _tuple,
}
