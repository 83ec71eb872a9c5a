"""Checks that shardings, kept as text, fit their shapes, and those of a loop's state each other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from math import prod
from typing import NoReturn

import numpy as np

from hlo2graph.errors import VerifyError
from hlo2graph.hlo import AnyShape, Computation, Instruction, Kind, Shape

_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"')
_BRACE = re.compile(r"[{}]")
_METADATA = re.compile(r"metadata=\{(?:[^{}]|\{[^{}]*\})*\}")
_INTEGER = re.compile(r"\d+")
_TILES = re.compile(
    r"devices=\[(?P<tiles>[^\]]*)\]\s*(?:<=\s*\[(?P<iota>[^\]]*)\]"
    r"(?:\s*T\((?P<order>[^)]*)\))?|(?P<listed>[\d,\s]*))"
)
_SUBGROUPS = re.compile(r"last_tile_dims=\{([^}]*)\}")
_MOST_LISTED = 1 << 20  # devices
# What these are sharded by is what they send or are given, not what they return.
_OTHERS = frozenset({"infeed", "outfeed", "recv", "recv-done", "send", "send-done"})


def check_sharding_fits(instr: Instruction) -> None:
    """Raise a VerifyError where the sharding is of other dimensions, or other leaves."""
    if "sharding" not in instr.attrs or instr.opcode in _OTHERS:
        return
    text = _STRING.sub("", str(instr.attrs["sharding"]))
    if not re.match(r"\{\s*[{}]", text):
        _check_single(instr, text, instr.shape)
        return
    if isinstance(instr.shape, Shape):
        _refuse(instr, f"has a tuple's sharding, but returns {instr.shape.without_layout_text()}")
    leaves, parts = list(instr.shape.leaves()), list(_parts(text))
    if len(parts) != len(leaves) and leaves:
        _refuse(instr, f"has shardings for {len(parts)} leaves, but returns {len(leaves)}")
    for leaf, part in zip(leaves, parts, strict=False):
        _check_single(instr, part, leaf)


def check_shardings_agree(computation: Computation, known: Mapping[str, Computation]) -> None:
    """Raise a VerifyError where a loop or a choice is sharded otherwise than what it calls."""
    for instr in computation.instructions:
        if instr.opcode == "while":
            condition, body = (known[str(instr.attrs[name])] for name in ("condition", "body"))
            _check_agree(instr, [body.result, *body.parameters, *condition.parameters])
        elif instr.opcode == "conditional":
            _check_agree(instr, [known[name].result for name in instr.called()])


def _check_agree(instr: Instruction, others: Iterable[Instruction]) -> None:
    sharded = [other for other in (instr, *others) if "sharding" in other.attrs]
    for other in sharded[1:]:
        if _normal(other) != _normal(sharded[0]):
            said = f"{other.attrs['sharding']}, {sharded[0].name} {sharded[0].attrs['sharding']}"
            _refuse(instr, f"has parts sharded differently: {other.name} {said}")


def _normal(instr: Instruction) -> tuple[object, ...]:
    """Return what the sharding of each leaf is, however it is written."""
    text = _METADATA.sub("", _STRING.sub("", str(instr.attrs["sharding"])))
    is_tuple = re.match(r"\{\s*[{}]", text)
    parts = list(_parts(text)) if is_tuple else [text] * instr.shape.leaf_count
    return tuple(_tiling(part) or re.sub(r"[\s,]", "", part) for part in parts)


def _tiling(text: str) -> tuple[object, ...] | None:
    """Return tiles, devices and subgroups of a sharding that has them and no named axes."""
    tiled = _TILES.search(text)
    if tiled is None:
        return None
    devices = _integers(tiled["listed"] or "")
    if tiled["iota"] is not None:
        dims = _integers(tiled["iota"])
        order = _integers(tiled["order"] or "") or list(range(len(dims)))
        if prod(dims) > _MOST_LISTED or sorted(order) != list(range(len(dims))):
            return None
        devices = np.arange(prod(dims)).reshape(dims).transpose(order).reshape(-1).tolist()
    return (*_integers(tiled["tiles"]), "of", *devices, _subgroups(text))


def _parts(text: str) -> Iterator[str]:
    """Yield the shardings in braces inside those of a tuple's."""
    depth = start = 0
    for brace in _BRACE.finditer(text):
        if brace[0] == "}":
            if depth == 2:
                yield text[start : brace.end()]
            depth -= 1
        else:
            depth += 1
            if depth == 2:
                start = brace.start()


def _check_single(instr: Instruction, text: str, shape: AnyShape) -> None:
    tiled = _TILES.search(text)
    if tiled is None:
        return
    tiles = _integers(tiled["tiles"])
    devices = _integers(tiled["listed"] or "")
    if len(set(devices)) != len(devices):
        _refuse(instr, f"names a device twice in {text}")
    count = len(devices) if tiled["iota"] is None else prod(_integers(tiled["iota"]))
    if count != prod(tiles):
        _refuse(instr, f"has {prod(tiles)} tiles for {count} devices in {text}")
    if not isinstance(shape, Shape) or shape.dtype.kind in (Kind.TOKEN, Kind.OPAQUE):
        return
    rank = len(tiles) - _subgroups(text)
    if rank != shape.rank and prod(tiles[:rank]) > 1:  # one tile is no tiling
        _refuse(instr, f"tiles {rank} dimensions of {shape.without_layout_text()} in {text}")


def _subgroups(text: str) -> int:
    """Return how many of the last tile dimensions are none of the array's."""
    if named := _SUBGROUPS.search(text):
        return len([name for name in named[1].split(",") if name.strip()])
    return int("last_tile_dim_replicate" in text)


def _integers(text: str) -> list[int]:
    return [int(number) for number in _INTEGER.findall(text)]


def _refuse(instr: Instruction, message: str) -> NoReturn:
    raise VerifyError(f"sharding: {instr.name} {message}", instr.span)
