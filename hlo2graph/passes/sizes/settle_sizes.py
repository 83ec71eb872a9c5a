"""Turn arrays of a size that only a run knows into whole ones, and numbers beside them.

In: a Module, in which shapes as f32[<=8] and set-dimension-size may be. Out: one without, that
computes the same: each such array has all the elements of its bound; how many of them count is an
s32[], which goes where the array goes, through calls, loops and branches too. What lies behind
them is anything; whatever would see it, a reduce, a dot, a sort, sees what changes nothing.

A result leaves the program as an array of its bounds: first the elements that count, in order and
without gaps, then zeros. (XLA on the CPU leaves what lies behind to chance.)

A program with a bounded parameter, or with an operation that sizes cannot be followed through, is
left as it is: it can be planned, not run. A size that nothing bounds has no bytes to plan for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from hlo2graph.errors import UnsupportedError
from hlo2graph.hlo import UNBOUNDED, Computation, Instruction, Module, Shape, TupleShape
from hlo2graph.passes.draft import is_settled
from hlo2graph.passes.inline_calls import used_computations
from hlo2graph.passes.sizes.body import SIZE, Body
from hlo2graph.passes.sizes.calls import bundle, bundled
from hlo2graph.passes.sizes.packing import packed
from hlo2graph.passes.sizes.rules import CALLS, OF_TUPLES, RULES, is_about_sizes
from hlo2graph.passes.sizes.value import Pattern, UnfollowedError, Value, whole

DEEPEST = 80  # calls within calls; each takes some of Python's 1000 frames
_LAYOUT = "entry_computation_layout"


def settle_sizes(module: Module) -> Module:
    """Return `module` with whole arrays and their sizes in place of bounded ones.

    Raises:
        UnsupportedError: an array has a size that nothing bounds.
    """
    unsettled = _unsettled(module)
    if module.entry_name not in unsettled:
        return module
    _refuse_unbounded(module)
    if not all(is_settled(p.shape) for p in module.entry.parameters):
        return module
    settler = _Settler(module, unsettled)
    try:
        entry = settler.entry()
    except UnfollowedError:
        return module
    attrs = dict(module.attrs)
    if _LAYOUT in attrs:
        attrs[_LAYOUT] = re.sub(r"<=(?=\d)", "", attrs[_LAYOUT])
    computations = {**module.computations, **settler.made, entry.name: entry}
    ordered = _callees_first(computations, entry.name)
    return used_computations(replace(module, computations=ordered, attrs=attrs))


def _unsettled(module: Module) -> set[str]:
    """Return the computations in which, or in what they call, sizes are left to run time."""
    found = {
        name
        for name, computation in module.computations.items()
        if any(is_about_sizes(i) or not is_settled(i.shape) for i in computation.instructions)
    }
    if not found:
        return found
    for name, computation in _callees_first(module.computations, module.entry_name).items():
        if any(not found.isdisjoint(i.called()) for i in computation.instructions):
            found.add(name)
    return found


def _refuse_unbounded(module: Module) -> None:
    for computation in module.computations.values():
        for instr in computation.instructions:
            for leaf in instr.shape.leaves():
                if UNBOUNDED in leaf.dims:
                    message = f"{leaf.without_layout_text()} has a size that nothing bounds"
                    raise UnsupportedError(message, instr.span)


def _callees_first(computations: Mapping[str, Computation], entry: str) -> dict[str, Computation]:
    """Return what `entry` reaches in an order in which all that is called comes before."""
    ordered: dict[str, Computation] = {}
    pending = [entry]
    while pending:
        name = pending[-1]
        called = {c for i in computations[name].instructions for c in i.called()}
        missing = [c for c in sorted(called) if c not in ordered]
        if missing and name not in ordered:
            pending += missing
        else:
            ordered.setdefault(pending.pop(), computations[name])
    return ordered


class _Settler:
    """Rewrites computations, each once for the places in which it is given sizes."""

    def __init__(self, module: Module, unsettled: set[str]) -> None:
        self._module = module
        self._unsettled = unsettled
        self._taken = set(module.computations)
        self._known: dict[object, tuple[str, Pattern]] = {}
        self._depth = 0
        self.made: dict[str, Computation] = {}

    def entry(self) -> Computation:
        """Return the entry computation, its bounded results packed."""
        entry = self._module.entry
        body = self._body(entry)
        for instr in entry.instructions:
            if instr.opcode == "parameter":
                body.begin(instr)
                body.values[instr.name] = body.keep(instr, ())
            else:
                self._follow(body, instr)
        result = _Result(body)
        root = result.packed(body.values[entry.root])
        lines, root = result.under_old_names(root)
        return replace(entry, instructions=lines, root=root)

    def follow(
        self, name: str, patterns: tuple[Pattern, ...], wanted: Pattern | None, calls: bool
    ) -> tuple[str, Pattern]:
        """Rewrite a computation; `calls` tells that sizes come as parameters of their own."""
        if name not in self._unsettled and not any(patterns) and not wanted:
            return name, ()
        key = (name, patterns, wanted, calls)
        if key not in self._known:
            self._depth += 1
            computation = self._module.computations[name]
            if self._depth > DEEPEST:
                raise UnfollowedError(name)
            body = self._body(computation)
            _take(body, computation, patterns, calls)
            for instr in computation.instructions:
                if instr.opcode != "parameter":
                    self._follow(body, instr)
            result = body.values[computation.root]
            pattern = result.pattern if wanted is None else wanted
            root = bundle(body, result, pattern)
            made = replace(computation, instructions=tuple(body.lines), root=root)
            self._known[key] = self.add(made), pattern
            self._depth -= 1
        return self._known[key]

    def add(self, computation: Computation) -> str:
        """Add a computation, under a name of its own."""
        name, count = computation.name, 0
        while name in self._taken:
            count += 1
            name = f"{computation.name}.sized.{count}"
        self._taken.add(name)
        self.made[name] = replace(computation, name=name)
        return name

    def _body(self, computation: Computation) -> Body:
        names = [i.name for i in computation.instructions]
        return Body(names, self._module.computations, self.add)

    def _follow(self, body: Body, instr: Instruction) -> None:
        body.values[instr.name] = self._followed(body, instr, body.begin(instr))

    def _followed(self, body: Body, instr: Instruction, values: list[Value]) -> Value:
        sized = any(v.sizes for v in values)
        if (calls := CALLS.get(instr.opcode)) is not None:
            if not sized and self._unsettled.isdisjoint(instr.called()):
                return body.keep(instr, body.operands(values))
            as_parameters = instr.opcode in ("call", "fusion")
            return calls(body, instr, values, lambda n, p, w: self.follow(n, p, w, as_parameters))
        if not sized and not is_about_sizes(instr):
            if not self._unsettled.isdisjoint(instr.called()):
                raise UnfollowedError(instr.name)
            return body.keep(instr, body.operands(values))
        rule = RULES.get(instr.opcode)
        arrays = all(isinstance(v.shape, Shape) for v in values)
        if (
            rule is None
            or not (arrays or instr.opcode in OF_TUPLES)
            or any(min(s.dims, default=0) < 0 for s in instr.shape.leaves())
        ):
            raise UnfollowedError(instr.name)
        return rule(body, instr, values)


def _take(body: Body, computation: Computation, patterns: tuple[Pattern, ...], calls: bool) -> None:
    """Write the parameters with the sizes that they come with."""
    number = len(computation.parameters)
    for parameter, pattern in zip(computation.parameters, patterns, strict=True):
        body.begin(parameter)
        if calls or not pattern:
            sizes = {}
            for place in pattern:
                sizes[place] = body.parameter(SIZE, number)
                number += 1
            body.values[parameter.name] = body.keep(parameter, (), sizes)
        else:
            body.values[parameter.name] = _unbundled(body, parameter, pattern)


def _unbundled(body: Body, parameter: Instruction, pattern: Pattern) -> Value:
    """Write a parameter that has its sizes behind its parts."""
    shape = whole(parameter.shape)
    state = bundled(shape, len(pattern))
    start = len(state.parts) - len(pattern)
    is_tuple = isinstance(shape, TupleShape)
    if is_tuple:
        made = body.named(parameter, "parameter", state, (), {}, parameter.attrs, parameter.payload)
        name = made.name
    else:
        name = body.parameter(state, 0)
    sizes = {
        place: body.add("get-tuple-element", SIZE, [name], index=start + at)
        for at, place in enumerate(pattern)
    }
    if is_tuple:
        return Value(name, shape, sizes, extended=True)
    return body.named(parameter, "get-tuple-element", shape, [name], sizes, {"index": 0})


class _Result:
    """Packs the leaves of a result; each then has the name that the bounded array had."""

    def __init__(self, body: Body) -> None:
        self._body = body
        self._packed: dict[str, str] = {}

    def packed(self, value: Value) -> str:
        """Return the name of a result, its bounded leaves packed."""
        if not value.sizes:
            return self._body.operand(value)
        if isinstance(value.shape, Shape):
            if value.name not in self._packed:
                self._body.begin_like(value.name)
                self._packed[value.name] = packed(self._body, value)
            return self._packed[value.name]
        parts = zip(self._body.parts(value), value.shape.parts, strict=True)
        leaves = [Value(name, shape, value.part(k)) for k, (name, shape) in enumerate(parts)]
        names = [self.packed(leaf) for leaf in leaves]
        self._body.begin_like(value.name)
        return self._body.add("tuple", value.shape, names)

    def under_old_names(self, root: str) -> tuple[tuple[Instruction, ...], str]:
        """Return all lines and the root with the names of packed and bounded arrays exchanged."""
        names = {new: old for old, new in self._packed.items()} | self._packed
        lines = (
            replace(
                line,
                name=names.get(line.name, line.name),
                operands=tuple(names.get(o, o) for o in line.operands),
            )
            for line in self._body.lines
        )
        return tuple(lines), names.get(root, root)
