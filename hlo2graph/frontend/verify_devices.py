"""Checks collectives against the module's header: which devices there are, and how many a group.

A header that gives neither `replica_count` nor `num_partitions` says nothing: text is often written
without them, and XLA lets it pass. So does it where compile options, not the header, say that there
is one device: what is legal then is legal here, whatever the header.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

from hlo2graph.errors import VerifyError
from hlo2graph.hlo import AnyShape, Instruction, Module, Shape
from hlo2graph.ops.expect import integers
from hlo2graph.ops.groups import group_sizes, pairs_of

_BY_DEVICE = frozenset(
    {"all-gather", "all-gather-start", "all-reduce", "all-reduce-start", "reduce-scatter"}
)  # that may have use_global_device_ids
_GROUPED = _BY_DEVICE | {"all-to-all", "collective-broadcast", "ragged-all-to-all"}
_PERMUTING = frozenset({"collective-permute", "collective-permute-start"})
_CHECKED = _GROUPED | _PERMUTING


def check_devices(module: Module) -> None:
    """Raise a VerifyError for a collective that does not fit the devices there are."""
    checkers = (_Checker(module.attrs), _Checker({}))
    for computation in module.computations.values():
        for instr in computation.instructions:
            if instr.opcode in _CHECKED:
                _check(instr, computation[instr.operands[0]].shape, checkers)


def _check(instr: Instruction, operand: AnyShape, checkers: Sequence[_Checker]) -> None:
    """Raise what the first checker says, unless another lets the collective pass."""
    faults = []
    for checker in checkers:
        try:
            checker.check(instr, operand)
        except VerifyError as fault:
            faults.append(fault)
        else:
            return
    raise faults[0]


class _Checker:
    """Knows how many devices there are, by what a collective counts."""

    def __init__(self, attrs: Mapping[str, str]) -> None:
        replicas = int(attrs.get("replica_count", 1))
        self._partitions = int(attrs.get("num_partitions", 1))
        self._devices = {
            "cross_replica": replicas,
            "cross_replica_and_partition": replicas,
            "cross_partition": self._partitions,
            "flattened_id": replicas * self._partitions,
        }

    def check(self, instr: Instruction, operand: AnyShape) -> None:
        """Raise a VerifyError where groups, pairs or sizes do not fit the devices."""
        if instr.opcode in _PERMUTING:
            self._check_pairs(instr)
            return
        size = self._group_size(instr)
        if isinstance(operand, Shape):
            _check_size(instr, operand, size)

    def _group_size(self, instr: Instruction) -> int:
        """Return how many devices are in a group, the groups checked."""
        mode = _mode(instr)
        sizes = group_sizes(instr)
        devices = self._devices[mode]
        groups = f"replica_groups={instr.attrs.get('replica_groups', '{}')}"
        if not sizes and mode == "flattened_id" and groups.endswith("{}"):
            _refuse(instr, "has use_global_device_ids, and so needs its replica_groups")
        if len(sizes) > 1 and not instr.opcode.startswith("all-reduce"):
            _refuse(instr, f"needs groups of one size, got {groups}")
        grouped = sum(size * count for size, count in sizes.items())
        if sizes and devices not in (1, grouped):
            _refuse(instr, f"groups {grouped} devices of {devices} in {groups}")
        size = next(iter(sizes), devices)
        return size * self._partitions if mode == "cross_replica_and_partition" else size

    def _check_pairs(self, instr: Instruction) -> None:
        """Check that the devices of a permutation exist."""
        limit = self._devices[_mode(instr)]
        for pair in pairs_of(instr):
            for device in pair:
                if device < 0 or 1 < limit <= device:
                    pairs = instr.attrs["source_target_pairs"]
                    _refuse(instr, f"names no device by {device} in source_target_pairs={pairs}")


def _mode(instr: Instruction) -> str:
    """Return what the numbers of a collective count."""
    held = instr.attrs.get("mode")
    if isinstance(held, str):
        return held
    is_global = instr.attrs.get("use_global_device_ids") is True
    if "channel_id" not in instr.attrs:
        if is_global:
            _refuse(instr, "has use_global_device_ids, and so needs a channel_id")
        return "cross_replica"
    if instr.opcode not in _BY_DEVICE:
        return "cross_partition"
    return "flattened_id" if is_global else "cross_replica_and_partition"


def _check_size(instr: Instruction, operand: Shape, size: int) -> None:
    """Check that data are split, or put together, by as many as are in a group."""
    along = integers(instr, "dimensions", ())
    if instr.opcode == "all-to-all":
        parts = operand.dims[along[0]] if along else len(instr.operands)
        if along and parts % size:
            _refuse(instr, f"cannot split {parts} elements among {size} devices")
        if not along and parts != size:
            _refuse(instr, f"needs an operand for each of {size} devices, got {parts}")
    elif size > 1 and instr.opcode in _BY_DEVICE and along:
        result = list(instr.shape.leaves())[-len(instr.operands)]
        found = operand.dims[along[0]], result.dims[along[0]]
        narrow, wide = found if "gather" in instr.opcode else found[::-1]
        if -(-wide // max(1, narrow)) != size:
            _refuse(instr, f"turns {found[0]} elements into {found[1]} in a group of {size}")


def _refuse(instr: Instruction, message: str) -> NoReturn:
    raise VerifyError(f"{instr.opcode}: {message}", instr.span)
