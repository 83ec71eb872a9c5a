"""What the forms of products write: results at a product's index, and what a loop keeps beside.

Those are updates of arrays by such results, and scalars that one thread makes. An update writes in
its array's own bytes; where it was given others, all that it does not change is copied there.
"""

from __future__ import annotations

from hlo2graph.backends.cuda.ctypes import storage_type, stored
from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.hlo import Instruction, Shape
from hlo2graph.ops.device import Expr, Index
from hlo2graph.ops.device_shaping import clamped
from hlo2graph.ops.expect import written


class Results:
    """Writes the results of a form's computation."""

    def __init__(self, form: Form, emit: ElementEmitter) -> None:
        self._form, self._emit = form, emit
        dims = written(form.instr).dims
        numbers = [n for n in range(len(form.results)) if n not in form.updates]
        self._plain = [n for n in numbers if form.results[n].dims == dims]
        self._lone = [n for n in numbers if form.results[n].dims != dims]

    def read_more(self) -> bool:
        """Tell whether they read arrays, beside what the products are made of."""
        computation = self._form.computation
        seen = {form.instr.name for form in self._form.each}
        pending = [computation.root]
        while pending:
            name = pending.pop()
            if computation[name].opcode == "parameter":
                return True
            if name not in seen:
                seen.add(name)
                pending += computation[name].operands
        return False

    def at(self, index: Index) -> list[tuple[int, str]]:
        """Write what is made at the product's `index`; return the lines that store it.

        Each comes with the number of its result.
        """
        emit, form = self._emit, self._form
        found = []
        for number in self._plain:
            value = emit.leaf(form.computation.root, number, index)
            found.append(store_of(emit, form, number, index, value))
        for number in form.updates:
            update = self._update(number)
            source, place = form.computation[update.operands[1]], index
            value = emit.leaf(self._value(source).name, 0, index)
            live = iter(i for i, n in zip(index, written(form.instr).dims, strict=True) if n != 1)
            place = tuple("0" if n == 1 else next(live) for n in _array(source).dims)
            starts = self._starts(number)
            moved = tuple(_sum(emit, start, i) for start, i in zip(starts, place, strict=True))
            found.append(store_of(emit, form, number, moved, value))
        return found

    def beside(self, blocks: int, threads: int) -> None:
        """Write what has no index of the product; the kernel has so many blocks and threads."""
        emit, form = self._emit, self._form
        for number in self._lone:
            with emit.block(f"if ({emit.block_index} == 0 && threadIdx.x == 0)"):
                index = ("0",) * form.results[number].rank
                value = emit.leaf(form.computation.root, number, index)
                emit.line(store_of(emit, form, number, index, value)[1])
        written_over = {result for _, result in form.inplace}
        for number in form.updates:
            if number not in written_over:
                self._copy(number, blocks, threads)

    def _copy(self, number: int, blocks: int, threads: int) -> None:
        """Write how all that an update leaves as it was comes to its place in the result."""
        emit, leaf = self._emit, self._form.results[number]
        update = self._update(number)
        at, first = emit.fresh("at"), f"{emit.block_index} * {threads} + threadIdx.x"
        head = f"for ({emit.index_type} {at} = {first}; {at} < {leaf.elements}; "
        with emit.block(f"{head}{at} += {blocks * threads})"):
            index = emit.element_at(at, leaf)
            sizes = _array(self._form.computation[update.operands[1]]).dims
            inside = [
                f"{i} >= {start} && {i} < {start} + {size}"
                for i, start, size, whole in zip(
                    index, self._starts(number), sizes, leaf.dims, strict=True
                )
                if size != whole
            ]
            with emit.block(f"if (!({' && '.join(inside) or 'true'}))"):
                value = emit.leaf(update.operands[0], 0, index)
                emit.line(store_of(emit, self._form, number, index, value)[1])

    def _update(self, number: int) -> Instruction:
        root = self._form.computation.result
        name = root.operands[number] if root.opcode == "tuple" else root.name
        return self._form.computation[name]

    def _starts(self, number: int) -> Index:
        emit, update = self._emit, self._update(number)
        sizes = _array(self._form.computation[update.operands[1]]).dims
        return tuple(clamped(emit.operands_of(update), 2, self._form.results[number], sizes))

    def _value(self, instr: Instruction) -> Instruction:
        """Return what has the product's dimensions, behind which only a view of it is written."""
        while _array(instr).dims != written(self._form.instr).dims:
            instr = self._form.computation[instr.operands[0]]
        return instr


def store_of(
    emit: ElementEmitter, form: Form, number: int, index: Index, value: Expr
) -> tuple[int, str]:
    """Write a result's value as it is stored; return the result's number and the line to do it."""
    leaf, held = form.results[number], emit.fresh("w")
    emit.line(f"const {storage_type(leaf.dtype)} {held} = {stored(leaf.dtype, value)};")
    return number, f"r{number}[{emit.offset(leaf, index)}] = {held};"


def _sum(emit: ElementEmitter, start: Expr, index: Expr) -> Expr:
    return index if start == "0" else emit.integer(f"{start} + {index}")


def _array(instr: Instruction) -> Shape:
    assert isinstance(instr.shape, Shape)
    return instr.shape
