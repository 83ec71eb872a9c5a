"""Which operands of a thunk may share their bytes with its results.

This looks at the thunk alone: what else reads those bytes, and when, is buffer assignment's part.
A fusion may write over a parameter only if it never reads that parameter at an index other than
the one being written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from hlo2graph.hlo import Computation, Instruction, Shape
from hlo2graph.ops import OPS
from hlo2graph.ops.region import Loop, SideBySide, region_of
from hlo2graph.program.thunks import Copy, Kernel, R, Thunk

INPLACE_THRESHOLD = 4 << 20
"""Bytes a value must save before writing in place may make a thunk wait for other readers.

Not writing a 4 MiB update in place costs a copy of about 2 us at the 4 TB/s of today's devices,
which is what waiting for one more kernel costs; below that the wait is the dearer of the two.
"""

Pairs = tuple[tuple[int, int], ...]


def inplace_reads(thunk: Thunk[R], computations: Mapping[str, Computation]) -> Pairs:
    """Return (index in reads, index in writes) of each result that may overwrite an operand."""
    return partial_updates(thunk, computations) + elementwise_updates(thunk, computations)


def partial_updates(thunk: Thunk[R], computations: Mapping[str, Computation]) -> Pairs:
    """Return the pairs that keep most of the operand: dynamic-update-slice, scatter, copies.

    Not in place, such a thunk would first have to copy the operand whole.
    """
    match thunk:
        case Copy():
            return ((0, 0),)
        case Kernel():
            return _of_all_parts(computations[thunk.computation], computations, _partial)
        case _:
            return ()


def elementwise_updates(thunk: Thunk[R], computations: Mapping[str, Computation]) -> Pairs:
    """Return the pairs in which element i of the operand is read for element i of results only."""
    if not isinstance(thunk, Kernel):
        return ()
    return _of_all_parts(computations[thunk.computation], computations, _elementwise)


def _of_all_parts(
    body: Computation, computations: Mapping[str, Computation], find: Callable[[Computation], Pairs]
) -> Pairs:
    """Return the pairs of `body`, and those of its parts side by side.

    What a part overwrites, no other may read: they run at the same time.
    """
    found = find(body)
    region = region_of(body) if body.result.opcode == "tuple" else None
    if not isinstance(region, SideBySide):
        return found
    users = _users(body)
    first = 0
    for name in region.parts:
        part = body[name]
        for operand, leaf in find(computations[next(part.called())]):
            parameter = body[part.operands[operand]]
            if len(users[parameter.name]) == 1:
                found += ((_number(parameter), first + leaf),)
        first += part.shape.leaf_count
    return found


def _partial(body: Computation) -> Pairs:
    users = _users(body)
    return tuple(
        (operand, leaf)
        for leaf, root in enumerate(_roots(body))
        for operand in _updated_parameters(body, root, users)
    )


def _elementwise(body: Computation) -> Pairs:
    users = _users(body)
    roots = _roots(body)
    found: list[tuple[int, int]] = []
    for operand, parameter in enumerate(body.parameters):
        reached = _reached_elementwise(body, parameter, users)
        if reached is None:
            continue
        leaves = [leaf for leaf, root in enumerate(roots) if root.name in reached]
        # A second root may be stored by another pass than the first, which has overwritten it.
        if len(leaves) == 1 or _is_one_pass(body, [roots[leaf] for leaf in leaves]):
            same = (leaf for leaf in leaves if _same_bytes(parameter, roots[leaf]))
            found += ((operand, leaf) for leaf in same)
    return tuple(found)


def _is_one_pass(body: Computation, roots: Sequence[Instruction]) -> bool:
    """Tell whether one thread reads all that an element of each root needs, and then stores."""
    dims = {leaf.dims for root in roots for leaf in root.shape.leaves()}
    return len(dims) == 1 and isinstance(region_of(body), Loop)


def _users(body: Computation) -> dict[str, list[Instruction]]:
    """Map each name to the instructions that use it, once for each use."""
    users: dict[str, list[Instruction]] = {i.name: [] for i in body.instructions}
    for instruction in body.instructions:
        for operand in instruction.operands:
            users[operand].append(instruction)
    return users


def _roots(body: Computation) -> tuple[Instruction, ...]:
    """Return the instruction behind each result leaf; one with several leaves stands alone."""

    def leaves(instruction: Instruction) -> Iterator[Instruction]:
        if instruction.opcode == "tuple":
            for operand in instruction.operands:
                yield from leaves(body[operand])
        else:
            yield from (instruction for _ in instruction.shape.leaves())

    return tuple(leaves(body.result))


def _updated_parameters(
    body: Computation, root: Instruction, users: Mapping[str, list[Instruction]]
) -> Iterator[int]:
    """Yield the number of each parameter whose bytes `root` may keep and update in part."""
    update, chain = _behind_bitcasts(body, root)
    spec = OPS.get(update.opcode)
    if spec is None or spec.elementwise or not isinstance(update.shape, Shape):
        return
    if not all(_is_one_result(body, users[name], update, chain) for name in chain):
        return
    for index in spec.inplace:
        operand = body[update.operands[index]]
        source, path = _behind_bitcasts(body, operand)
        read_once = all(len(users[name]) == 1 for name in path)
        if source.opcode == "parameter" and read_once and _same_bytes(operand, update):
            yield _number(source)


def _is_one_result(
    body: Computation, users: Sequence[Instruction], update: Instruction, chain: Sequence[str]
) -> bool:
    """Tell whether what is updated is one result, and whoever else looks at it may.

    A thread of a loop that looks at an updated array computes what is updated, and reads of it
    only what nobody writes.
    """
    inside = [u for u in users if u.name not in chain and u is not body.result]
    is_loop = update.opcode == "dynamic-update-slice" and isinstance(region_of(body), Loop)
    return len(users) - len(inside) <= 1 and (not inside or is_loop)


def _behind_bitcasts(
    body: Computation, instruction: Instruction
) -> tuple[Instruction, tuple[str, ...]]:
    """Return what `instruction` is under its bitcasts, and every name on the way."""
    path = [instruction.name]
    while instruction.opcode == "bitcast":
        instruction = body[instruction.operands[0]]
        path.append(instruction.name)
    return instruction, tuple(path)


def _reached_elementwise(
    body: Computation, parameter: Instruction, users: Mapping[str, list[Instruction]]
) -> set[str] | None:
    """Return what depends on `parameter`, or None where any of it looks at another index."""
    reached = {parameter.name}
    waiting = [parameter]
    while waiting:
        for user in users[waiting.pop().name]:
            if user.opcode == "tuple" or user.name in reached:
                continue
            if not _same_index(user, parameter):
                return None
            reached.add(user.name)
            waiting.append(user)
    return reached if body.root in reached or body.result.opcode == "tuple" else None


def _same_index(user: Instruction, parameter: Instruction) -> bool:
    """Element i of `user` depends on element i of its operand, which has parameter's dimensions."""
    spec = OPS.get(user.opcode)
    return (
        spec is not None
        and (spec.elementwise or user.opcode == "copy")
        and isinstance(user.shape, Shape)
        and isinstance(parameter.shape, Shape)
        and user.shape.dims == parameter.shape.dims
    )


def _same_bytes(a: Instruction, b: Instruction) -> bool:
    """Element i lies at the same bytes in both."""
    return (
        isinstance(a.shape, Shape)
        and isinstance(b.shape, Shape)
        and a.shape.dims == b.shape.dims
        and a.shape.dtype.size == b.shape.dtype.size
        and a.shape.minor_to_major == b.shape.minor_to_major
    )


def _number(parameter: Instruction) -> int:
    assert isinstance(parameter.payload, int), "a parameter's payload is its number"
    return parameter.payload
