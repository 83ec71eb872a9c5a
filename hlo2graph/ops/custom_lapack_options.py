"""Options of linear algebra calls, in LAPACK's spelling and in that of the GPU's libraries.

LAPACK's are characters: `{uplo = 76 : ui8}` is 'L'. Others are words: `{lower = true}`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

from hlo2graph.hlo import Instruction
from hlo2graph.ops.custom_target import integer_config, result_leaves, target_of, word_config

Allowed: TypeAlias = Mapping[str, tuple[str, ...]]
_NUMBER = r" *(-?\d{1,9}) *"
_LISTED = re.compile(rf"{_NUMBER},{_NUMBER},{_NUMBER}, *(\d+(?:\.\d*)?(?:[eE][+-]?\d{{1,3}})?) *")
Reader: TypeAlias = Callable[[Instruction, Allowed], "dict[str, str] | str"]


def characters(instr: Instruction, allowed: Allowed) -> dict[str, str] | str:
    """Return the options that LAPACK's routine has, or what is wrong with them."""
    config = integer_config(instr)
    held = {k: chr(n) for k, n in config.items() if 0 < n < 128} | word_config(instr)
    found = _whole(instr, config) or _chosen(held, allowed)
    if isinstance(found, dict) and found.get("mode") == "N" and "S" in allowed["mode"]:
        found["size"] = _room(instr)
    return found


def _room(instr: Instruction) -> str:
    """Return the mode that the results have room for where no vectors are computed."""
    leaves = result_leaves(instr)
    fits = len(leaves) > 3 and all(len(leaf.dims) > 1 for leaf in (leaves[0], *leaves[2:4]))
    least = min(leaves[0].dims[-2:]) if fits else None
    return "S" if least and (leaves[2].dims[-1], leaves[3].dims[-2]) == (least, least) else "A"


def _whole(instr: Instruction, config: Mapping[str, int]) -> str | None:
    """Return why a part of a matrix cannot be worked on: only gehrd has such options."""
    leaves = result_leaves(instr)
    rows = leaves[0].dims[-1] if leaves and leaves[0].dims else 0
    if config.get("low", 1) == 1 and config.get("high", rows) == rows:
        return None
    return "works on part of a matrix"


def _chosen(held: Mapping[str, str], allowed: Allowed) -> dict[str, str] | str:
    found = {}
    for name, words in allowed.items():
        found[name] = held.get(name, "")
        if found[name] not in words:
            return f"needs {name} in its backend_config, the code of one of {', '.join(words)}"
    return found


def solver_options(instr: Instruction, allowed: Allowed) -> dict[str, str] | str:
    """Return the options of the GPU's library as LAPACK's, or what is wrong with them.

    For singular values also `size`, the mode that the results have room for, `layout`, the order
    and form of the vectors, and `room`.
    """
    held = word_config(instr)
    if "lower" in held:
        held["uplo"] = "L" if held["lower"] == "true" else "U"
    if "uplo" in allowed and "mode" in allowed:
        held["mode"] = "V"
    for side in ("left", "right"):
        if f"compute_{side}" in allowed and side in held:
            held[f"compute_{side}"] = "V" if held[side] == "true" else "N"
    singular = _singular(instr, held) if "S" in allowed.get("mode", ()) else {}
    found = _chosen(held | singular, allowed)
    return found if isinstance(found, str) else found | singular


def listed_options(instr: Instruction, _: Allowed) -> dict[str, str] | str:
    """Return the options of XLA's own call for eigenvectors: `1,1,100,1e-6`.

    Whether the lower triangle counts, whether values rise, the most rounds, and how near zero, as a
    part of the whole, what is off the diagonal has to come.
    """
    found = _LISTED.fullmatch(str(instr.attrs.get("backend_config", "")).strip('"'))
    if found is None:
        return "needs four numbers in its backend_config, such as 1,1,100,1e-6"
    lower, sort, rounds, tolerance = found.groups()
    return {
        "uplo": "L" if int(lower) else "U",
        "mode": "V",
        "sort": "S" if int(sort) else "N",
        "rounds": rounds,
        "tolerance": tolerance,
    }


def _singular(instr: Instruction, held: Mapping[str, str]) -> dict[str, str]:
    if "compute_uv" not in held or "full_matrices" not in held:
        return {}
    jacobi = target_of(instr).endswith(("solver_gesvdj_ffi", "solver_gesvdp_ffi"))
    computed = held["compute_uv"] == "true"
    full = "A" if held["full_matrices"] == "true" else "S"
    layout = "V" if jacobi else "T" if held.get("transposed") == "true" else "U"
    found = {"mode": full if computed else "N", "size": full, "layout": layout}
    return found if computed or jacobi else found | {"room": "none"}
