"""Which devices work together in a collective, read from its groups and pairs."""

from __future__ import annotations

import re
from collections import Counter

from hlo2graph.hlo import Instruction
from hlo2graph.ops.expect import refuse

_IOTA = re.compile(r"\[([\d,\s]+)\]\s*<=\s*\[")
_GROUP = re.compile(r"\{[-\d,\s]*\}")
_DEVICE = re.compile(r"-?\d+")


def group_sizes(instr: Instruction) -> dict[int, int]:
    """Return how many groups have how many devices; nothing where the text leaves groups out.

    Of a mesh they are left out too: which axes make the groups plays no part here.
    """
    text = str(instr.attrs.get("replica_groups", "{}"))
    if iota := _IOTA.match(text):
        groups, size = map(int, iota[1].split(","))
        return {size: groups} if groups else {}
    if not text.startswith("{"):
        return {}
    return Counter(len(_DEVICE.findall(group)) for group in _GROUP.findall(_inner(text)))


def check_groups(instr: Instruction) -> None:
    """Refuse listed groups that are empty, or that do not name each device once."""
    text = str(instr.attrs.get("replica_groups", "{}"))
    groups = [_DEVICE.findall(group) for group in _GROUP.findall(_inner(text))]
    if not all(groups) or 0 in group_sizes(instr):
        refuse(instr, f"has an empty group in replica_groups={text}")
    devices = sorted(int(device) for group in groups for device in group)
    for expected, device in enumerate(devices):
        if device < expected:
            refuse(instr, f"names device {device} twice in replica_groups={text}")
        if device > expected:
            refuse(instr, f"does not name device {expected} in replica_groups={text}")


def check_pairs(instr: Instruction) -> None:
    """Refuse a permutation in which a device sends, or is sent to, twice."""
    pairs = pairs_of(instr)
    for at, what in enumerate(("source", "target")):
        if len({pair[at] for pair in pairs}) != len(pairs):
            text = str(instr.attrs["source_target_pairs"])
            refuse(instr, f"names a {what} twice in source_target_pairs={text}")


def is_alone(instr: Instruction) -> bool:
    """Tell whether each group of `instr` is one device, and no pair has one but number 0 in it."""
    groups = str(instr.attrs.get("replica_groups", "{}"))
    pairs = str(instr.attrs.get("source_target_pairs", "{}"))
    if iota := _IOTA.match(groups):
        return int(iota[1].split(",")[-1]) == 1
    if not groups.startswith("{"):
        return False  # a mesh: several devices, or no reason to have one
    listed = [_DEVICE.findall(group) for group in _GROUP.findall(_inner(groups))]
    return all(len(group) == 1 for group in listed) and not set(_DEVICE.findall(pairs)) - {"0"}


def first_of_group(instr: Instruction) -> int:
    """Return the first device of the group that device 0 is in; in tiles and meshes it is first."""
    groups = str(instr.attrs.get("replica_groups", "{}"))
    if not groups.startswith("{"):
        return 0
    listed = (_DEVICE.findall(group) for group in _GROUP.findall(_inner(groups)))
    return next((int(group[0]) for group in listed if "0" in group), 0)


def pairs_of(instr: Instruction) -> tuple[tuple[int, int], ...]:
    """Return who sends to whom in a permutation."""
    devices = [int(d) for d in _DEVICE.findall(str(instr.attrs.get("source_target_pairs", "{}")))]
    return tuple(zip(devices[::2], devices[1::2], strict=False))


def _inner(text: str) -> str:
    return text.strip().removeprefix("{").removesuffix("}")
