"""HLO text of a signature of a TensorFlow SavedModel; its weights are parameters, by name.

TensorFlow, which brings an XLA of its own, is loaded in another process.
"""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from hlo2graph.errors import BackendError, InputError
from hlo2graph.frontend.parse import parse
from hlo2graph.hlo import AnyShape, Computation, Instruction, Module
from hlo2graph.hlo.printer import format_module
from hlo2graph.importers import saved_model_worker
from hlo2graph.importers.convert import hlo_of_proto
from hlo2graph.importers.shapes import leaves_of

if TYPE_CHECKING:
    from hlo2graph.ops.spec import Array

_NO_NAME = re.compile(r"[^A-Za-z0-9_]+")
LONGEST_REASON = 600  # characters of TensorFlow's message that are passed on


@dataclass(frozen=True, slots=True)
class SavedModel:
    """HLO text, and the weights by the names of their parameters."""

    text: str
    weights: Mapping[str, Array]


def from_saved_model(
    folder: Path, signature: str | None, shapes: Sequence[AnyShape] | None
) -> SavedModel:
    """Return the HLO of a signature for inputs of `shapes`, in the order of their names.

    None for the only signature, or serving_default; None for the shapes that the model says.

    Raises:
        InputError: TensorFlow refuses the model, or it does not fit the shapes.
        BackendError: TensorFlow is not installed.
    """
    if not any((folder / name).is_file() for name in ("saved_model.pb", "saved_model.pbtxt")):
        raise InputError(f"{folder}: no SavedModel is here: it has no saved_model.pb")
    if find_spec("tensorflow") is None:
        raise BackendError("--saved-model takes TensorFlow: pip install 'hlo2graph[tf]'")
    given = None
    if shapes is not None:
        given = [(leaf.dims, leaf.dtype.numpy.name) for leaf in leaves_of(shapes)]
    found = _loaded(folder, signature, given)
    module = parse(hlo_of_proto(found["module"], str(folder)), str(folder))
    wanted = [*found["inputs"], *(name for name, _ in found["weights"])]
    module, names = _named(module, wanted)
    if len(names) != len(wanted):
        raise InputError(f"{folder}: XLA made {len(names)} parameters of {len(wanted)} inputs")
    first = len(found["inputs"])
    results = "".join(f"// result {k}: {name}\n" for k, name in enumerate(found["results"]))
    weights = dict(zip(names[first:], (array for _, array in found["weights"]), strict=True))
    return SavedModel(results + format_module(module), weights)


def _loaded(folder: Path, signature: str | None, given: Any) -> dict[str, Any]:
    with TemporaryDirectory(prefix="hlo2graph-") as name:
        target = Path(name) / "found"
        done = subprocess.run(
            [sys.executable, "-P", saved_model_worker.__file__],
            input=pickle.dumps((str(folder), signature, given, str(target))),
            env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"},
            capture_output=True,
            check=False,
        )
        if done.returncode or not target.exists():
            said = done.stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"]
            raise InputError(f"{folder}: {said[-1][:LONGEST_REASON]}")
        found: dict[str, Any] = pickle.loads(target.read_bytes())
        return found


def _named(module: Module, wanted: Sequence[str]) -> tuple[Module, list[str]]:
    """Return the module with its parameters called as `wanted`, and what they are called."""
    entry = module.entry
    taken = {i.name for i in entry.instructions if i.opcode != "parameter"}
    parameters = sorted(_parameters(entry), key=lambda i: _number(i))
    new: dict[str, str] = {}
    for parameter, name in zip(parameters, wanted, strict=False):
        plain = _NO_NAME.sub("_", name).strip("_") or "p"
        plain = f"_{plain}" if plain[0].isdigit() else plain
        unique, count = plain, 1
        while unique in taken:
            unique, count = f"{plain}.{count}", count + 1
        taken.add(unique)
        new[parameter.name] = unique
    renamed = tuple(_renamed(instr, new) for instr in entry.instructions)
    root = new.get(entry.root, entry.root)
    changed = Computation(entry.name, renamed, root, entry.execution_thread)
    computations = {**module.computations, entry.name: changed}
    return replace(module, computations=computations), [new[p.name] for p in parameters]


def _parameters(entry: Computation) -> Iterator[Instruction]:
    return (i for i in entry.instructions if i.opcode == "parameter")


def _number(parameter: Instruction) -> int:
    assert isinstance(parameter.payload, int)
    return parameter.payload


def _renamed(instr: Instruction, new: Mapping[str, str]) -> Instruction:
    return replace(
        instr,
        name=new.get(instr.name, instr.name),
        operands=tuple(new.get(name, name) for name in instr.operands),
    )
