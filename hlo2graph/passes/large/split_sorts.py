"""Take long sorts apart into steps that many blocks do at once.

In and out: a Module of the same meaning. Windows of a row are sorted first; then runs are merged,
or several joined, until one is left; or elements are sorted by one digit after the other of their
keys (sort_steps.py, digits.py).

So that every block finds the same place for an element, the comparator must order all that it is
given: where it compares floats by value, NaNs are made one number above all others. Without that
HLO leaves open where they go.
Short sorts are given such comparators too: a block has a faster way for these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from hlo2graph.hlo import (
    DTYPES,
    Computation,
    Instruction,
    Literal,
    Module,
    Shape,
)
from hlo2graph.ops.expect import integers
from hlo2graph.ops.sort_digits import WIDEST, Chunks
from hlo2graph.ops.sort_key import SortKey, sort_key, sort_keys
from hlo2graph.ops.sort_runs import (
    Runs,
    counts,
    orders_all,
    orders_by_value,
    too_wide,
    window_for,
)
from hlo2graph.passes.draft import Draft, is_settled
from hlo2graph.passes.large.digits import (
    KeyDigits,
    digits_of,
    digits_of_keys,
    sort_by_digits,
)
from hlo2graph.passes.large.sort_steps import LongSort
from hlo2graph.passes.names import Names
from hlo2graph.passes.redraft import redraft

_PRED = DTYPES["pred"]
MOST_BYTES = 32  # of all operands' elements that a thread keeps while it sorts by digits


def split_sorts(module: Module) -> Module:
    """Return `module` with long sorts taken apart."""
    orders = _Orders(module.computations)

    def rewrite(draft: Draft) -> Computation:
        for instr in [i for i in draft.instructions.values() if i.opcode == "sort"]:
            comparator = str(instr.attrs["to_apply"])
            if not _is_known(draft, instr) or not orders.may_write(comparator):
                continue
            total = orders.total(comparator)
            sort, key = _long_sort(draft, instr), orders.key(total)
            steps = sort.steps()
            is_counted = key is not None and counts(sort.rows, sort.length)
            if chunks := _chunks(sort, instr, orders.keys(total), has_key=key is not None):
                sort_by_digits(draft, instr, chunks, orders.digits(total))
            elif len(steps) > 1 and not is_counted:
                _split(draft, instr, steps, total)
            elif total != comparator:
                attrs = {**instr.attrs, "to_apply": total}
                draft.become(instr.name, replace(instr, attrs=attrs))
        return draft.done()

    made = redraft(module, "sort", rewrite)
    if not orders.made:
        return made
    return replace(made, computations=orders.made | dict(made.computations))


def _is_known(draft: Draft, instr: Instruction) -> bool:
    settled = all(is_settled(draft.shape(o)) for o in instr.operands)
    some = draft.shape(instr.operands[0]).elements
    return bool(some) and settled and draft.is_pure(instr) and not too_wide(instr.shape)


def _long_sort(draft: Draft, instr: Instruction) -> LongSort:
    (along,) = integers(instr, "dimensions")
    shape = draft.shape(instr.operands[0])
    length = shape.dims[along]
    return LongSort(along, shape.elements // length, length, window_for(instr.shape, length))


def _chunks(
    sort: LongSort, instr: Instruction, keys: tuple[SortKey, ...], *, has_key: bool
) -> Chunks | None:
    """Return how elements are taken that are sorted by digits, where that is best."""
    leaves = list(instr.shape.leaves())
    sizes = [leaf.dtype.size for leaf in leaves]
    alike = all(leaf.minor_to_major[0] == sort.along for leaf in leaves)
    if sum(sizes) > MOST_BYTES or max(sizes) > WIDEST or not alike:
        return None
    return sort.chunks(digits_of(keys), has_key=has_key)


def _split(draft: Draft, instr: Instruction, steps: list[Runs], comparator: str) -> None:
    """Put the steps into a sort's place."""
    operands = instr.operands
    for runs in steps[:-1]:
        attrs = {**runs.attrs(), "to_apply": comparator}
        name = draft.add(instr, "custom-call", instr.shape, operands, attrs)
        operands = draft.leaves(instr, name)
    last = {**instr.attrs, **steps[-1].attrs(), "to_apply": comparator}
    for name in ("dimensions", "is_stable"):
        last.pop(name, None)
    draft.become(instr.name, replace(instr, opcode="custom-call", operands=operands, attrs=last))


class _Orders:
    """Comparators that order NaNs too, by the names of those that do not say where they go."""

    def __init__(self, computations: Mapping[str, Computation]) -> None:
        self._computations = computations
        self._names = Names(computations)
        self._found: dict[str, str] = {}
        self.made: dict[str, Computation] = {}
        self._digits: dict[str, list[KeyDigits]] = {}

    def total(self, name: str) -> str:
        """Return the name of a comparator like `name`."""
        if name not in self._found:
            computation = self._computations[name]
            if not orders_all(self._computations, name):
                fresh = self._names.fresh(f"{name}.total")
                self.made[fresh] = self._written(computation, fresh)
                self._found[name] = fresh
            else:
                self._found[name] = name
        return self._found[name]

    def key(self, name: str) -> SortKey | None:
        """Return the key that a comparator compares, if that is all that it does."""
        return sort_key(self._known(name), name)

    def keys(self, name: str) -> tuple[SortKey, ...]:
        """Return the keys that a comparator compares one after the other, if it does no more."""
        return sort_keys(self._known(name), name)

    def digits(self, name: str) -> list[KeyDigits]:
        """Return what gives the digits of an element that a comparator compares."""
        if name not in self._digits:
            self._digits[name] = list(digits_of_keys(self.keys(name), self._names, name))
            for key in self._digits[name]:
                self.made |= {c.name: c for c in (key.region, key.counted)}
        return self._digits[name]

    def _known(self, name: str) -> Mapping[str, Computation]:
        return self.made if name in self.made else self._computations

    def may_write(self, name: str) -> bool:
        """Tell whether a comparator calls nothing that would have to be written too."""
        return not any(True for i in self._computations[name].instructions for _ in i.called())

    def _written(self, computation: Computation, name: str) -> Computation:
        """Return the comparator with each comparison by value as one in total order."""
        names = Names(i.name for i in computation.instructions)
        lines: list[Instruction] = []
        for instr in computation.instructions:
            if orders_by_value(computation, instr):
                shape = _scalar(computation, instr.operands[0])
                keys = tuple(_key(o, shape, names, lines) for o in instr.operands)
                attrs = {**instr.attrs, "type": "TOTALORDER"}
                instr = replace(instr, operands=keys, attrs=attrs)
            lines.append(instr)
        return replace(computation, name=name, instructions=tuple(lines))


def _scalar(computation: Computation, name: str) -> Shape:
    shape = computation[name].shape
    assert isinstance(shape, Shape)
    return shape


def _key(value: str, shape: Shape, names: Names, lines: list[Instruction]) -> str:
    """Write a value with one zero and one NaN; return its name."""

    def add(opcode: str, of: Shape, operands: tuple[str, ...], **more: object) -> str:
        name = names.fresh(f"{value}.{opcode}")
        lines.append(Instruction(name, opcode, of, operands, **more))  # type: ignore[arg-type]
        return name

    def constant(number: float) -> str:
        array = np.asarray(number).astype(shape.dtype.numpy)
        return add("constant", shape, (), payload=Literal(shape, array))

    flag, zero = Shape(_PRED), constant(0.0)
    is_zero = add("compare", flag, (value, zero), attrs={"direction": "EQ"})
    merged = add("select", shape, (is_zero, zero, value))
    is_nan = add("compare", flag, (value, value), attrs={"direction": "NE"})
    return add("select", shape, (is_nan, constant(float("nan")), merged))
