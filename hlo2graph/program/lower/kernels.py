"""The computations that kernels run: lone instructions wrapped, equal computations shared.

Two computations are equal when they differ in names, in metadata and other text without effect, and
in the order of what does not depend on each other only; the first one met gives its name.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from hlo2graph.hlo import (
    AnyLiteral,
    AnyShape,
    Attribute,
    Computation,
    Instruction,
    Literal,
    Shape,
    TupleShape,
)
from hlo2graph.hlo.module import CALLING_ATTRS
from hlo2graph.ops.folded_chunks import chunk_of
from hlo2graph.program.lower.calls import called
from hlo2graph.program.lower.leaf import Leaf
from hlo2graph.program.lower.wrap import NAMED, Input, wrapping
from hlo2graph.program.thunks import Value

_Key: TypeAlias = tuple[Hashable, ...]
_WITHOUT_EFFECT = frozenset(
    {
        "async_execution_thread",
        "control-predecessors",
        "metadata",
        "origin",
        "sharding",
        "statistics",
    }
)
_FOR_CUSTOM_CALLS = frozenset({"backend_config", "frontend_attributes"})
_CALLING = frozenset(CALLING_ATTRS)


class KernelPool:
    """Gives kernels their computations, each once; `gather` returns those in use."""

    def __init__(self, module_computations: Mapping[str, Computation]) -> None:
        self._source = module_computations
        self._canonical: dict[str, str] = {}  # a module's computation -> the one that stands for it
        self._by_key: dict[_Key, str] = {}
        self._wrapped: dict[_Key, str] = {}
        self._known: dict[str, Computation] = {}
        self._counts: dict[str, int] = {}

    def fused(self, name: str) -> Computation:
        """Return the computation that stands for the module's computation `name`."""
        return self._known[self._stand_in(name)]

    def wrap(
        self, instr: Instruction, operands: Sequence[tuple[AnyShape, Sequence[Leaf]]]
    ) -> tuple[str, tuple[Leaf, ...]]:
        """Return a computation of just `instr`, and which leaves its parameters are.

        A value read twice is one parameter, unless it is read under two shapes. Scalar constants
        become constants of the computation; tokens are made inside. The result's leaves are those
        of `instr` less its tokens.
        """
        reads: dict[tuple[Value | None, Hashable], tuple[int, Leaf]] = {}
        inputs: list[Input] = []
        for leaf in (leaf for _, leaves in operands for leaf in leaves):
            if leaf.is_token:
                inputs.append(None)
            elif leaf.is_scalar_constant:
                inputs.append(leaf.literal)
            else:
                identity = (leaf.value, _shape_key(leaf.shape))
                inputs.append(reads.setdefault(identity, (len(reads), leaf))[0])
        key = (
            instr.name if instr.opcode in NAMED else instr.opcode,
            _shape_key(instr.shape),
            self._attrs_key(instr),
            tuple(inputs),
            tuple(shape_key for _, shape_key in reads),
            tuple(_shape_key(shape) for shape, _ in operands if isinstance(shape, TupleShape)),
        )
        leaves = tuple(leaf for _, leaf in reads.values())
        name = self._wrapped.get(key)
        if name is None:
            name = self._fresh(f"wrapped_{instr.opcode.replace('-', '_')}")
            self._wrapped[key] = name
            self._known[name] = wrapping(
                name,
                replace(instr, attrs=self._attrs(instr), span=None),
                [leaf.shape for leaf in leaves],
                [shape for shape, _ in operands],
                inputs,
            )
        return name, leaves

    def gather(self, names: Iterable[str]) -> dict[str, Computation]:
        """Return these computations and all that they call, callees first."""
        found: dict[str, Computation] = {}
        stack = list(dict.fromkeys(names))[::-1]
        while stack:
            name = stack[-1]
            missing = [c for c in _callees(self._known[name]) if c not in found]
            if name in found or not missing:
                found.setdefault(name, self._known[stack.pop()])
            else:
                stack.extend(reversed(missing))
        return found

    def _fresh(self, stem: str) -> str:
        """Return `stem`, `stem.1`, ...: a name that the module does not have."""
        while True:
            count = self._counts.get(stem, 0)
            self._counts[stem] = count + 1
            name = f"{stem}.{count}" if count else stem
            if name not in self._source:
                return name

    def _stand_in(self, name: str) -> str:
        """Return the name of the first computation met that equals `name`."""
        stack = [name]
        while stack:
            top = stack[-1]
            missing = [c for c in _callees(self._source[top]) if c not in self._canonical]
            if top not in self._canonical and missing:
                stack.extend(missing)
                continue
            if top not in self._canonical:
                self._intern(self._source[top])
            stack.pop()
        return self._canonical[name]

    def _intern(self, computation: Computation) -> None:
        instructions = _as_reached(computation)
        numbers = {instr.name: i for i, instr in enumerate(instructions)}
        key: _Key = (
            numbers[computation.root],
            *(
                (
                    instr.name if instr.opcode in NAMED else instr.opcode,
                    _shape_key(instr.shape),
                    tuple(numbers[o] for o in instr.operands),
                    self._attrs_key(instr),
                    _payload_key(instr.payload),
                )
                for instr in instructions
            ),
        )
        name = self._by_key.setdefault(key, computation.name)
        self._canonical[computation.name] = name
        if name == computation.name:
            renamed = tuple(map(self._renamed, computation.instructions))
            self._known[name] = replace(computation, instructions=renamed)

    def _attrs_key(self, instr: Instruction) -> _Key:
        if not instr.attrs:
            return ()
        return tuple(sorted(self._attrs(instr).items(), key=lambda item: item[0]))

    def _attrs(self, instr: Instruction) -> dict[str, Attribute]:
        """Return the attributes that have an effect, with the computations that stand in."""
        kept = {}
        for name, held in instr.attrs.items():
            configures = instr.opcode == "custom-call" or chunk_of(instr) is not None
            if name in _WITHOUT_EFFECT or (name in _FOR_CUSTOM_CALLS and not configures):
                continue
            kept[name] = self._stand_ins(held) if name in _CALLING else held
        return kept

    def _stand_ins(self, held: Attribute) -> Attribute:
        if isinstance(held, str):
            return self._stand_in(held)
        assert isinstance(held, tuple)
        return tuple(self._stand_in(name) for name in held if isinstance(name, str))

    def _renamed(self, instr: Instruction) -> Instruction:
        if _CALLING.isdisjoint(instr.attrs):
            return instr
        attrs = {
            name: self._stand_ins(held) if name in _CALLING else held
            for name, held in instr.attrs.items()
        }
        return instr if attrs == instr.attrs else replace(instr, attrs=attrs)


def _as_reached(computation: Computation) -> list[Instruction]:
    """Return the instructions as the root reaches them, operands first, then all others."""
    found: dict[str, Instruction] = {}
    stack = [computation.root]
    while stack:
        instr = computation[stack[-1]]
        waiting = [o for o in instr.operands if o not in found]
        if instr.name in found or not waiting:
            found.setdefault(stack.pop(), instr)
        else:
            stack.extend(reversed(waiting))
    return [*found.values(), *(i for i in computation.instructions if i.name not in found)]


def _callees(computation: Computation) -> list[str]:
    return [name for instr in computation.instructions for name in called(instr)]


def _shape_key(shape: AnyShape) -> Hashable:
    """Return what a shape means: an unwritten layout is the row-major one."""
    if isinstance(shape, Shape):
        return (shape.dtype.name, shape.dims, shape.minor_to_major, shape.dynamic)
    return tuple(map(_shape_key, shape.parts))


def _payload_key(payload: int | AnyLiteral | None) -> Hashable:
    """Return a literal's own key; what was elided equals nothing else."""
    if isinstance(payload, tuple):
        return tuple(map(_payload_key, payload))
    if isinstance(payload, Literal) and payload.is_elided:
        return id(payload)
    return payload
