"""Comparing with XLA where singular vectors or eigenvectors are made: each is free by a factor.

A vector may be multiplied by any number of size 1 (a sign, where it is real), singular vectors of
both sides together, and libraries choose differently. So XLA says which vectors it chose, and the
module is evaluated once more with its own vectors turned to these: what it then makes of them must
be what XLA makes. A vector that is another one stays another one, and is found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from hlo2graph.hlo import Instruction, Module, Shape, TupleShape
from hlo2graph.inspect.reference import host_results
from hlo2graph.inspect.xla import xla_results
from hlo2graph.ops import OPS
from hlo2graph.ops.custom_lapack import call_of
from hlo2graph.ops.custom_target import target_of
from hlo2graph.ops.spec import Array, Evaluator, HostValue
from hlo2graph.passes.inline_calls import inline_calls
from hlo2graph.passes.names import Names


@dataclass(frozen=True, slots=True)
class SameVectors:
    """Results of a module with XLA's choice of vectors: as it is evaluated here, and XLA's."""

    ours: tuple[Array, ...]
    theirs: tuple[Array, ...]


@dataclass(frozen=True, slots=True)
class _Vectors:
    """Which result of a call has vectors in its columns.

    partner: the result whose rows are those of the other side, which are turned the other way;
    rows that have no column are free by themselves.
    """

    columns: int
    partner: int | None = None


_SINGULAR = (_Vectors(2, partner=3),)
_FREE: Mapping[str, tuple[_Vectors, ...]] = {
    "gesdd": _SINGULAR,
    "gesvd": _SINGULAR,
    "syevd": (_Vectors(0),),
    "heevd": (_Vectors(0),),
    "geev": (_Vectors(-3), _Vectors(-2)),
}


def makes_vectors(module: Module) -> bool:
    """Tell whether some result may depend on the factors that vectors are free by."""
    return any(_free(i) for c in module.computations.values() for i in c.instructions)


def results_of_same_vectors(module: Module, args: Sequence[Array]) -> SameVectors | None:
    """Return what the module makes of XLA's choice of vectors, here and in XLA.

    None where vectors are made in loops or branches, of which XLA cannot say what it chose, or
    where the result has tuples in tuples.
    """
    module = inline_calls(module)
    calls = [i for i in module.entry.instructions if _free(i)]
    inside = (c for c in module.computations.values() if c is not module.entry)
    if any(_free(i) for c in inside for i in c.instructions) or _depth(module) > 1:
        return None
    first = module.entry.result.shape.leaf_count
    found = iter(xla_results(_telling(module, calls), args))
    theirs = tuple(islice(found, first))
    chosen = {call.name: tuple(islice(found, call.shape.leaf_count)) for call in calls}

    def rule(instr: Instruction, operands: Sequence[HostValue], ev: Evaluator) -> HostValue:
        made = OPS["custom-call"].host(instr, operands, ev)
        if instr.name not in chosen:
            return made
        assert isinstance(made, tuple)
        ours = [np.array(leaf) for leaf in made]
        _turn(ours, chosen[instr.name], _free(instr))
        return tuple(ours)

    return SameVectors(host_results(module, args, {"custom-call": rule}), theirs)


def _depth(module: Module) -> int:
    shape = module.entry.result.shape
    return shape.depth if isinstance(shape, TupleShape) else 0


def _free(instr: Instruction) -> tuple[_Vectors, ...]:
    call = call_of(instr)
    if call is None or not target_of(instr).startswith("lapack_"):  # what XLA:CPU runs
        return ()
    return _FREE.get(call.name, ())


def _telling(module: Module, calls: Sequence[Instruction]) -> Module:
    """Return the module with the results of these calls behind its own, all in one tuple."""
    entry = module.entry
    fresh = Names(i.name for i in entry.instructions).fresh
    shown: list[Instruction] = []  # each result, by an instruction that is no tuple
    parts: list[Instruction] = []
    for of in (entry.result, *calls):
        if isinstance(of.shape, Shape):
            shown.append(of)
            continue
        for index, shape in enumerate(of.shape.leaves()):
            name = fresh(f"{of.name}.{index}")
            parts.append(
                Instruction(name, "get-tuple-element", shape, (of.name,), {"index": index})
            )
            shown.append(parts[-1])
    told = TupleShape(tuple(part.shape for part in shown))
    root = Instruction(fresh("told"), "tuple", told, tuple(part.name for part in shown))
    made = replace(entry, instructions=(*entry.instructions, *parts, root), root=root.name)
    attrs = {key: held for key, held in module.attrs.items() if key == "is_scheduled"}
    return replace(module, computations={**module.computations, entry.name: made}, attrs=attrs)


def _turn(ours: list[Array], theirs: Sequence[Array], free: tuple[_Vectors, ...]) -> None:
    """Multiply each of our vectors by the number of size 1 that brings it nearest to theirs."""
    for vectors in free:
        held = ours[vectors.columns]
        factors = _factors(held, theirs[vectors.columns])
        held *= factors[..., None, :]
        if vectors.partner is not None:
            rows = ours[vectors.partner].swapaxes(-1, -2)
            alone = _factors(rows, theirs[vectors.partner].swapaxes(-1, -2))
            count = min(factors.shape[-1], alone.shape[-1])
            alone[..., :count] = factors[..., :count].conj()
            rows *= alone[..., None, :]


def _factors(ours: Array, theirs: Array) -> Array:
    """Return for each column of ours the number; 1 where a column says none."""
    with np.errstate(all="ignore"):
        products = np.sum(ours.conj() * theirs, axis=-2)
        factors = products / np.abs(products)
    return np.where(np.isfinite(factors), factors, 1).astype(ours.dtype)
