"""Input arrays from a seed or from files, and results into files.

In .npz files the keys are argN and outN (leaf number N) or the leaves' names. NumPy's format has no
bfloat16, float8 or int4: such an array is stored as unsigned integers of its bytes' width, and an
array so stored is taken back where the program wants that type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from hlo2graph.atomic import replacing
from hlo2graph.backends.arguments import Leaf, check_argument
from hlo2graph.backends.randoms import random_array
from hlo2graph.errors import InputError, Note
from hlo2graph.ops.spec import Array

_RESULT = re.compile(r"out\d+", re.ASCII)
UNREADABLE = Exception  # broken bytes lead NumPy's, zipfile's and zlib's readers to many types


def random_inputs(leaves: Sequence[Leaf], seed: int) -> list[Array]:
    """Draw an array per leaf; it depends on the seed, the leaf's position and its shape alone."""
    return [
        random_array(leaf.shape, np.random.default_rng((seed, position)))
        for position, leaf in enumerate(leaves)
    ]


def load_inputs(
    path: Path, leaves: Sequence[Leaf], note: Callable[[str], None] = lambda _: None
) -> dict[int, Array]:
    """Read a .npz file: the arrays by leaf position. Leaves without a key are left out.

    Results that lie beside the inputs, as in files of known results, are stepped over; `note` is
    told so.
    Raises InputError where the file cannot be read, a key names no leaf, two name the same one,
    or an array does not fit.
    """
    found: dict[int, Array] = {}
    with _opened(path) as arrays:
        results = _results_beside(arrays, leaves)
        if results:
            note(f"{path}: results, which are no inputs, are left out: {_listed(results)}")
        for key in arrays:
            if key in results:
                continue
            position = find_leaf(key, leaves, "arg", str(path))
            if position in found:
                raise InputError(f"{path}: {key} is the second array for input {position}")
            found[position] = _fitting(_member(arrays, key, path), leaves, position, f"{path}: ")
    return found


def _results_beside(keys: Collection[str], leaves: Sequence[Leaf]) -> list[str]:
    """Return the keys that name results, where there are others too."""
    names = {leaf.name for leaf in leaves}
    results = [key for key in keys if _RESULT.fullmatch(key) and key not in names]
    return results if len(results) < len(keys) else []


def parse_inputs(options: Sequence[str], leaves: Sequence[Leaf]) -> dict[int, Array]:
    """Read what `parse_input` reads, several times: the arrays by leaf position.

    Raises InputError also where two are for the same leaf.
    """
    found: dict[int, Array] = {}
    for option in options:
        position, array = parse_input(option, leaves)
        if position in found:
            raise InputError(f"--input {option}: {leaves[position].name} is given twice")
        found[position] = array
    return found


def parse_input(option: str, leaves: Sequence[Leaf]) -> tuple[int, Array]:
    """Read `NAME=@x.npy`, where NAME is argN or a parameter's name: its position and array."""
    name, equals, where = option.partition("=")
    if not equals or not where.startswith("@") or not name or where == "@":
        raise InputError(f"an input is NAME=@file.npy, not {option!r}")
    position = find_leaf(name, leaves, "arg", "--input")
    path = Path(where[1:])
    try:
        with path.open("rb") as file:
            array = np.load(file, allow_pickle=False)
    except UNREADABLE as error:
        raise InputError(f"{path}: cannot be read as .npy: {_reason(error)}") from None
    if not isinstance(array, np.ndarray):
        raise InputError(f"{path}: holds several arrays; give it as --inputs {path}")
    return position, _fitting(array, leaves, position, f"{path}: ")


def find_leaf(key: str, leaves: Sequence[Leaf], prefix: str, where: str) -> int:
    """Return the position that `key` names: a leaf's name, or `prefix` and a number."""
    names = [leaf.name for leaf in leaves]
    if names.count(key) == 1:
        return names.index(key)
    digits = key.removeprefix(prefix)
    if digits != key and digits.isascii() and digits.isdigit() and int(digits) < len(leaves):
        return int(digits)
    raise InputError(
        f"{where}: {key} names no input; expected {prefix}0 to {prefix}{len(leaves) - 1}, "
        f"or one of {_listed(names)}"
        if leaves
        else f"{where}: {key} names no input; the program takes none",
        notes=_meant(key, names),
    )


def _meant(key: str, names: Sequence[str]) -> tuple[Note, ...]:
    """Say which name was perhaps meant: one with a number behind it, or one spelled alike."""
    numbered = [name for name in names if name.rpartition(".")[0] == key]
    close = numbered or get_close_matches(key, names, n=1)
    return (Note(f"perhaps {close[0]} was meant"),) if close else ()


def save_outputs(path: Path, outputs: Sequence[Array]) -> None:
    """Write results as out0, out1, ... to a .npz file, whole or not at all."""
    save_arrays(path, {f"out{i}": array for i, array in enumerate(outputs)})


def save_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays by name to a .npz file, whole or not at all."""
    stored = {name: _storable(array) for name, array in arrays.items()}
    try:
        with replacing(path) as whole:
            np.savez(whole, **stored)  # type: ignore[arg-type]  # taken for allow_pickle
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {_reason(error)}") from None


def _as_saved(array: Array, want: np.dtype[Any]) -> Array:
    """Return an array from a file as what it was before it was stored, if `want` is that."""
    stored = (np.dtype(f"u{want.itemsize}"), np.dtype(f"V{want.itemsize}"))  # ours, np.save's own
    return array.view(want) if _is_foreign(want) and array.dtype in stored else array


def _fitting(array: Array, leaves: Sequence[Leaf], position: int, where: str) -> Array:
    want = leaves[position].shape.dtype.numpy
    try:
        return check_argument(_as_saved(array, want), leaves[position], position)
    except InputError as error:
        raise InputError(where + error.message) from None


def _storable(array: Array) -> Array:
    return array.view(f"u{array.dtype.itemsize}") if _is_foreign(array.dtype) else array


def _is_foreign(dtype: np.dtype[Any]) -> bool:
    """One of ml_dtypes' types, which NumPy's file format does not know."""
    return dtype.isbuiltin == 2


@contextmanager
def _opened(path: Path) -> Iterator[Mapping[str, Array]]:
    with ExitStack() as stack:
        try:
            file = stack.enter_context(path.open("rb"))
            loaded = np.load(file, allow_pickle=False)
        except UNREADABLE as error:
            raise InputError(f"{path}: cannot be read as .npz: {_reason(error)}") from None
        if isinstance(loaded, np.ndarray):
            raise InputError(
                f"{path}: holds one array without a name; give it as --input NAME=@{path}"
            )
        yield stack.enter_context(loaded)


def _member(arrays: Mapping[str, Array], key: str, path: Path) -> Array:
    try:
        return arrays[key]
    except UNREADABLE as error:
        raise InputError(f"{path}: {key} cannot be read: {_reason(error)}") from None


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:12])
    return shown if len(names) <= 12 else f"{shown}, ... ({len(names)} in all)"


def _reason(error: BaseException) -> str:
    if isinstance(error, ValueError) and "pickle" in str(error):  # NumPy's word for unknown bytes
        return "it holds something else than arrays of numbers"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).splitlines()[0] if str(error) else type(error).__name__
