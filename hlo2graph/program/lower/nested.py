"""Running a computation through the rules, and the two opcodes that keep sequences of their own."""

from __future__ import annotations

from collections.abc import Sequence

from hlo2graph.hlo import Computation, Instruction
from hlo2graph.ops.trip_count import trip_count
from hlo2graph.program.lower.leaf import Leaf, Leaves, leaf_names
from hlo2graph.program.lower.rules import Rule, rule_for
from hlo2graph.program.lower.sequence import Builder, Frame, metadata
from hlo2graph.program.thunks import Conditional, Value, While


def lower_sequence(
    builder: Builder, computation: Computation, arguments: Sequence[Leaves], site: str
) -> Leaves:
    """Lower `computation`, and what it calls, into `builder`; return the leaves of its result."""
    stack = [Frame(computation, arguments, site)]
    while True:
        frame = stack[-1]
        callee = _advance(builder, frame)
        if callee is not None:
            stack.append(callee)
            continue
        stack.pop()
        leaves = frame.env[frame.computation.root]
        if not stack:
            return leaves
        _finish(builder, stack[-1], leaves, frame.began)


def _advance(builder: Builder, frame: Frame) -> Frame | None:
    """Go on to the frame's end, or to a call, whose frame is returned."""
    instructions = frame.computation.instructions
    while frame.at < len(instructions):
        instr = instructions[frame.at]
        began = len(builder.thunks)
        rule = _NESTING.get(instr.opcode) or rule_for(instr)
        found = rule(builder, frame, instr)
        if isinstance(found, Frame):
            found.began = began
            return found
        _finish(builder, frame, found, began)
    return None


def _finish(builder: Builder, frame: Frame, leaves: Leaves, began: int) -> None:
    """Note the result of the instruction that the frame is at, and step behind it."""
    instr = frame.computation.instructions[frame.at]
    if "control-predecessors" in instr.attrs and len(builder.thunks) == began:
        after = builder.controls(instr, frame)
        leaves = tuple(leaf._replace(after=(*leaf.after, *after)) for leaf in leaves)
    frame.env[instr.name] = leaves
    if instr.name in frame.watched:
        frame.anchors[instr.name] = builder.anchor(leaves, began)
    frame.at += 1


def _while(builder: Builder, frame: Frame, instr: Instruction) -> Leaves:
    """Lower a loop; what its body passes on is no state, but the init itself wherever it is."""
    computations = builder.shared.module.computations
    condition, body = (computations[str(instr.attrs[role])] for role in ("condition", "body"))
    inits = frame.env[instr.operands[0]]
    passed = builder.shared.calls.passed[body.name]
    state = [i for i, leaf in enumerate(inits) if not leaf.is_token and passed[i] != i]
    name = builder.name(instr, frame)

    tester, tested = _with_state(builder, instr, condition, inits, state)
    [test] = lower_sequence(tester, condition, [tested], name)
    worker, given = _with_state(builder, instr, body, inits, state)
    leaves = lower_sequence(worker, body, [given], name)
    changed = (worker.laid_out(leaves[i], inits[i].shape, body.root, name) for i in state)
    results = _fresh_leaves(builder, instr.name, instr, inits, state)
    waits = builder.after(instr, frame)
    loop = While(
        name,
        _values(builder, inits, state),
        _values(builder, results, state),
        tester.sequence(_values(builder, tested, state), (tester.buffer(test),)),
        worker.sequence(_values(builder, given, state), tuple(changed)),
        trip_count(instr, inits, computations),
        tuple(dict.fromkeys((*waits, *builder.wait((*tester.outer, *worker.outer))))),
        metadata(instr),
        instr.span,
    )
    builder.emit(loop)
    return tuple(leaf._replace(after=(name,)) if leaf.is_token else leaf for leaf in results)


def _with_state(
    builder: Builder, loop: Instruction, computation: Computation, inits: Leaves, state: list[int]
) -> tuple[Builder, Leaves]:
    """Begin a loop's condition or body: state has new values, the rest is captured."""
    [parameter] = computation.parameters
    return builder.inner(loop), _fresh_leaves(builder, parameter.name, parameter, inits, state)


def _fresh_leaves(
    builder: Builder, name: str, like: Instruction, leaves: Leaves, state: list[int]
) -> Leaves:
    """Return `leaves` with new values at the positions `state`."""
    found = list(leaves)
    origins = list(leaf_names(name, like.shape))
    for i in state:
        shape = leaves[i].shape
        found[i] = Leaf(shape, builder.shared.fresh(shape, origins[i]))
    return tuple(found)


def _values(builder: Builder, leaves: Leaves, state: list[int]) -> tuple[Value, ...]:
    return tuple(builder.buffer(leaves[i]) for i in state)


def _conditional(builder: Builder, frame: Frame, instr: Instruction) -> Leaves:
    """Lower a conditional; its branches use their arguments where those lie."""
    [selector], *arguments = (frame.env[operand] for operand in instr.operands)
    name = builder.name(instr, frame)
    results = builder.results(instr, name)
    branches = []
    outer: list[str] = []
    for callee, argument in zip(_branches(instr), arguments, strict=True):
        computation = builder.shared.module.computations[callee]
        inner = builder.inner(instr)
        leaves = lower_sequence(inner, computation, [argument], name)
        given = (
            inner.laid_out(leaf, result.shape, computation.root, name)
            for leaf, result in zip(leaves, results, strict=True)
            if not leaf.is_token
        )
        branches.append(inner.sequence((), tuple(given)))
        outer += inner.outer
    waits = builder.after(instr, frame)
    builder.emit(
        Conditional(
            name,
            builder.buffer(selector),
            tuple(branches),
            tuple(leaf.value for leaf in results if leaf.value is not None),
            tuple(dict.fromkeys((*waits, *builder.wait(outer)))),
            metadata(instr),
            instr.span,
        )
    )
    return results


def _branches(instr: Instruction) -> list[str]:
    """Return the branches in order: what is chosen by true comes first."""
    pair = [instr.attrs.get(role) for role in ("true_computation", "false_computation")]
    named = [name for name in pair if isinstance(name, str)]
    return named or list(instr.called())


_NESTING: dict[str, Rule] = {"while": _while, "conditional": _conditional}
