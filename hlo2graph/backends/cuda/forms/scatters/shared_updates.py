"""The scatter form of very many updates, in any order, of few elements.

A block folds its share of them into elements of its own in shared memory, where threads that meet
wait for less, and then these into the result.
"""

from __future__ import annotations

from hlo2graph.backends.cuda.ctypes import compute_type, storage_type
from hlo2graph.backends.cuda.forms.scatters.updates import Updates
from hlo2graph.backends.cuda.literals import array_words
from hlo2graph.backends.cuda.source import KernelSource
from hlo2graph.hlo import Literal, Shape
from hlo2graph.ops.device import Expr
from hlo2graph.ops.folding import UFUNCS, neutral_of
from hlo2graph.ops.scalar_region import binary_reducer

THREADS = 256
MOST_BYTES = 32 << 10  # of the elements
FEWEST, FEWEST_EACH = 1 << 16, 16  # updates, in all and on average
LEAST, MORE = 2048, 4  # updates of a block: so many, and so many for each element
BLOCKS_EACH = 2  # of a multiprocessor, at most
_BY_MEMORY = {  # what changes an element that others change too, without looking at it first
    "add": "add_atomically",
    "maximum": "raise_atomically",
    "minimum": "lower_atomically",
}


def shares(updates: Updates) -> bool:
    """Tell whether blocks fold updates among themselves first."""
    elements, total = updates.operand.elements, updates.updates * updates.window
    few = updates.operand.size <= MOST_BYTES
    many = total >= max(FEWEST, FEWEST_EACH * elements)
    unique = updates.form.instr.attrs.get("unique_indices") is True
    return few and many and not unique and _opcode(updates) in UFUNCS


def shared_kernel(updates: Updates) -> KernelSource:
    """Return the kernel of a scatter whose updates may come in any order."""
    emit, form, leaf = updates.emit, updates.form, updates.form.results[0]
    total, elements = updates.updates * updates.window, leaf.elements
    most = BLOCKS_EACH * form.signature.device.multiprocessors
    blocks = min(most, max(1, total // max(LEAST, MORE * elements)))
    opcode, kind, index = _opcode(updates), storage_type(leaf.dtype), emit.index_type
    assert opcode is not None
    unit, bits = array_words(Literal(Shape(leaf.dtype), neutral_of(opcode, leaf.dtype)))
    emit.line(f"__shared__ {kind} own[{elements}];")
    emit.line(f"const {kind} none = hlo::bits_as<{kind}>(({unit}){bits});")
    every = f"for (int k = threadIdx.x; k < {elements}; k += {THREADS})"
    emit.line(f"{every} own[k] = none;")
    emit.line("__syncthreads();")
    first = f"{emit.block_index} * {THREADS} + threadIdx.x"
    emit.line("#pragma unroll 4")
    with emit.block(f"for ({index} at = {first}; at < {total}; at += {blocks * THREADS})"):
        fold_update(updates, "at", "own")
    emit.line("__syncthreads();")
    with emit.block(every):
        emit.line(f"const {kind} mine = own[k];")
        with emit.block("if (mine != none)"):
            fold_atomically(updates, "r0 + k", ["mine"])
    return form.source(emit, blocks, THREADS)


def fold_update(updates: Updates, number: Expr, into: Expr) -> None:
    """Fold an element of the updates into the array at `into`, while others do so too."""
    emit = updates.emit
    split = emit.split(number, (*updates.batch, *updates.sizes))
    batch, inner = split[: len(updates.batch)], split[len(updates.batch) :]
    given = updates.given(batch, inner)  # read with the index, not behind the test of it
    tests, start = updates.place_of(list(batch))
    with emit.block(f"if ({' && '.join(tests) or 'true'})"):
        place = emit.integer(" + ".join([start, *updates.inner_terms(inner)]))
        if updates.form.instr.attrs.get("unique_indices") is True:
            places = updates.places(place)
            updates.store(places, updates.folded(updates.held(places), given))
        else:
            fold_atomically(updates, f"{into} + {updates.places(place)[0]}", given)


def fold_atomically(updates: Updates, at: Expr, given: list[Expr]) -> None:
    """Fold a value into what lies at an address, while others do so too."""
    emit, form = updates.emit, updates.form
    opcode = _opcode(updates)
    if opcode in _BY_MEMORY:
        emit.line(f"hlo::{_BY_MEMORY[opcode]}({at}, {given[0]});")
        return
    kind = compute_type(form.results[0].dtype)
    with emit.block(f"const auto fold = [&]({kind} held) -> {kind}", ";"):
        (found,) = updates.folded(["held"], given)
        emit.line(f"return {found};")
    emit.line(f"hlo::fold_atomically({at}, fold);")


def _opcode(updates: Updates) -> str | None:
    return binary_reducer(updates.form.computations, str(updates.form.instr.attrs["to_apply"]))
