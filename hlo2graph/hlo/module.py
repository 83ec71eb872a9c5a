"""The program as parsed: a module of computations of instructions, all immutable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from hlo2graph.errors import Span
from hlo2graph.hlo.attributes import Attribute
from hlo2graph.hlo.literal import AnyLiteral
from hlo2graph.hlo.shape import AnyShape

NO_ATTRS: Mapping[str, Attribute] = MappingProxyType({})
CALLING_ATTRS = (
    "to_apply",
    "calls",
    "condition",
    "body",
    "select",
    "scatter",
    "true_computation",
    "false_computation",
    "branch_computations",
    "called_computations",
)


@dataclass(frozen=True, slots=True)
class Instruction:
    """`name = shape opcode(operands), attrs`. Operands are names in the same computation.

    `payload` is a parameter's number or a constant's literal. Attributes stay in written order;
    hlo.attributes says what each holds. The span and the operands' spelling play no part in
    equality.
    """

    name: str
    opcode: str
    shape: AnyShape
    operands: tuple[str, ...] = ()
    attrs: Mapping[str, Attribute] = field(default_factory=lambda: NO_ATTRS)
    payload: int | AnyLiteral | None = None
    span: Span | None = field(default=None, compare=False, repr=False)

    def reading(self, operands: tuple[str, ...], name: str | None = None) -> Instruction:
        """Return the instruction with other operands; passes ask for thousands of these.

        name: another one for it too. `replace` takes three times as long.
        """
        return Instruction(
            name or self.name,
            self.opcode,
            self.shape,
            operands,
            self.attrs,
            self.payload,
            self.span,
        )

    def called(self) -> Iterator[str]:
        """Yield the names of the computations that this instruction calls, in order."""
        if self.attrs.keys().isdisjoint(CALLING_ATTRS):
            return
        for attr in CALLING_ATTRS:
            held = self.attrs.get(attr)
            if isinstance(held, str):
                yield held
            elif isinstance(held, tuple):
                yield from (name for name in held if isinstance(name, str))


@dataclass(frozen=True, slots=True)
class Computation:
    """Instructions in an order in which operands precede users; `root` names the result."""

    name: str
    instructions: tuple[Instruction, ...]
    root: str
    execution_thread: str | None = None
    span: Span | None = field(default=None, compare=False, repr=False)
    _by_name: dict[str, Instruction] = field(
        init=False, compare=False, repr=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        self._by_name.update((i.name, i) for i in self.instructions)

    def __getitem__(self, name: str) -> Instruction:
        return self._by_name[name]

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    @property
    def result(self) -> Instruction:
        """The root instruction."""
        return self._by_name[self.root]

    @property
    def parameters(self) -> tuple[Instruction, ...]:
        """The parameters by number."""
        found = [i for i in self.instructions if i.opcode == "parameter"]
        return tuple(sorted(found, key=lambda i: i.payload if isinstance(i.payload, int) else 0))


@dataclass(frozen=True, slots=True)
class Module:
    """A parsed program: computations by name, callees before callers, as written.

    `attrs` are the header's (`is_scheduled`, `input_output_alias`, ... kept as text); `tables` is
    the text of the FileNames, FunctionNames, FileLocations and StackFrames tables.
    """

    name: str
    computations: Mapping[str, Computation]
    entry_name: str
    attrs: Mapping[str, str] = field(default_factory=dict)
    tables: str = ""
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def entry(self) -> Computation:
        """The computation that the module runs."""
        return self.computations[self.entry_name]

    @property
    def is_scheduled(self) -> bool:
        """XLA has scheduled it: the written order is the order to run in."""
        return self.attrs.get("is_scheduled") == "true"

    def __repr__(self) -> str:
        count = sum(len(c.instructions) for c in self.computations.values())
        held = f"computations={len(self.computations)}, instructions={count}"
        return f"<Module {self.name}, {held}>"

    def __str__(self) -> str:
        """Return the module as canonical HLO text."""
        from hlo2graph.hlo.printer import format_module

        return format_module(self)
