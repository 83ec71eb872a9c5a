"""Random gathers, scatters, transforms and triangular systems."""

from __future__ import annotations

from typing import NamedTuple

from random_elements import NARROW
from random_shapes import Operand, Shaping

_DTYPES = ("f32", "f64", "bf16", "f16", "s32", "s8", "u8", "s4", "pred", "c64", *NARROW)


class _Map(NamedTuple):
    """Which dimensions of an operand are indexed, batched, dropped; and the indices' shape."""

    operand: Operand
    indices: Operand
    mapped: list[int]
    dropped: list[int]
    batching: list[int]
    paired: list[int]
    vector: int
    batch: tuple[int, ...]

    def windows(self) -> list[int]:
        """Return the dimensions that a slice keeps."""
        gone = self.dropped + self.batching
        return [d for d in range(len(self.operand.dims)) if d not in gone]


class Indexing(Shaping):
    """Each public method writes one operation."""

    def gather(self) -> None:
        it = self._map(self.pick(_DTYPES))
        dims = it.operand.dims
        ones = it.dropped + it.batching
        sizes = [min(n, 1) if d in ones else self.rnd.randint(0, n) for d, n in enumerate(dims)]
        offsets, result = self._interleaved(it, [sizes[d] for d in it.windows()])
        attrs = {
            "offset_dims": offsets,
            "collapsed_slice_dims": it.dropped,
            "start_index_map": it.mapped,
            "operand_batching_dims": it.batching,
            "start_indices_batching_dims": it.paired,
            "slice_sizes": sizes,
        }
        call = f"gather({it.operand.name}, {it.indices.name}), {self._attrs(attrs)}"
        self.root(it.operand.dtype, result, f"{call}, index_vector_dim={it.vector}")

    def scatter(self) -> None:
        # At least one is indexed: XLA would fold all updates in, some more than once.
        it = self._map(self.pick(("f32", "s32", "u8", "s8", "f64", "pred")), 1)
        dims = it.operand.dims
        sizes = [self.rnd.randint(0, dims[d]) for d in it.windows()]
        windows, shape = self._interleaved(it, sizes)
        updates = self.given(it.operand.dtype, shape)
        attrs = {
            "update_window_dims": windows,
            "inserted_window_dims": it.dropped,
            "scatter_dims_to_operand_dims": it.mapped,
            "input_batching_dims": it.batching,
            "scatter_indices_batching_dims": it.paired,
        }
        opcodes = ("or", "and") if it.operand.dtype == "pred" else ("add", "maximum", "minimum")
        region = self.region(it.operand.dtype, self.pick(opcodes))
        names = ", ".join((it.operand.name, it.indices.name, updates.name))
        call = f"scatter({names}), {self._attrs(attrs)}, index_vector_dim={it.vector}"
        self.root(it.operand.dtype, dims, f"{call}, to_apply={region}")

    def _map(self, dtype: str, least: int = 0) -> _Map:
        """Draw a map of at least so many dimensions that are indexed."""
        dims = tuple(self.rnd.randint(1, 4) for _ in range(self.rnd.randint(1, 4)))
        order = self.rnd.sample(range(len(dims)), len(dims))
        batched = sorted(order[: self.pick((0, 0, 1, 2)) if len(dims) > 2 else 0])
        rest = [d for d in order if d not in batched]
        mapped = rest[: self.rnd.randint(least, len(rest))]
        dropped = sorted(d for d in rest if self.chance(0.4))
        batch = [dims[d] for d in batched]
        batch += [self.rnd.randint(1, 3) for _ in range(self.rnd.randint(0, 2))]
        places = self.rnd.sample(range(len(batch)), len(batch))
        shape = [batch[places.index(k)] for k in range(len(batch))]
        paired = [places[k] for k in range(len(batched))]
        vector = self.rnd.randint(0, len(shape))
        sizes = (*shape[:vector], len(mapped), *shape[vector:])
        if len(mapped) == 1 and self.chance(0.3):  # the vector's dimension may be left out
            vector, sizes = len(shape), tuple(shape)
        paired = [k + (k >= vector and len(sizes) > len(shape)) for k in paired]
        operand = self.given(dtype, dims)
        indices = self.given(self.pick(("s32", "s64", "u32", "s8")), sizes)
        return _Map(operand, indices, mapped, dropped, batched, paired, vector, tuple(shape))

    def _interleaved(self, it: _Map, window: list[int]) -> tuple[list[int], tuple[int, ...]]:
        """Return which of the result's dimensions are the window's, and all their sizes."""
        rank = len(window) + len(it.batch)
        places = sorted(self.rnd.sample(range(rank), len(window)))
        inner, outer = iter(window), iter(it.batch)
        return places, tuple(next(inner) if d in places else next(outer) for d in range(rank))

    def _attrs(self, attrs: dict[str, list[int]]) -> str:
        return ", ".join(f"{name}={self.braced(value)}" for name, value in attrs.items())

    def fft(self) -> None:
        lead = tuple(self.rnd.randint(1, 3) for _ in range(self.rnd.randint(0, 2)))
        lengths = tuple(self.rnd.randint(1, 9) for _ in range(self.rnd.randint(1, 3)))
        kind = self.pick(("FFT", "IFFT", "RFFT", "IRFFT"))
        real, whole = self.pick((("f32", "c64"), ("f64", "c128")))
        half = (*lead, *lengths[:-1], lengths[-1] // 2 + 1)
        full = (*lead, *lengths)
        x = self.given(real if kind == "RFFT" else whole, half if kind == "IRFFT" else full)
        result = half if kind == "RFFT" else full
        call = f"fft({x.name}), fft_type={kind}, fft_length={self.braced(lengths)}"
        self.root(real if kind == "IRFFT" else whole, result, call)

    def cholesky(self) -> None:
        matrix = self._solvable()
        lower = self.pick(("true", "false"))
        call = f"cholesky({matrix.name}), lower={lower}"
        side = self._kept_half(matrix, lower, call)
        self.root(matrix.dtype, matrix.dims, side)

    def triangular_solve(self) -> None:
        matrix = self._solvable()
        left = self.chance(0.5)
        size, width = matrix.dims[-1], self.rnd.randint(1, 3)
        b = self.given(matrix.dtype, (*matrix.dims[:-2], *((size, width)[:: 1 if left else -1])))
        flags = {name: self.pick(("true", "false")) for name in ("lower", "unit_diagonal")}
        turned = self.pick(("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"))
        listed = ", ".join(f"{name}={value}" for name, value in flags.items())
        call = (
            f"triangular-solve({matrix.name}, {b.name}), left_side={str(left).lower()}, {listed}, "
            f"transpose_a={turned}"
        )
        self.root(matrix.dtype, b.dims, call)

    def _solvable(self) -> Operand:
        """Write a symmetric matrix, or several, with a large diagonal."""
        lead, size = self.sizes(0, 1), self.rnd.randint(1, 4)
        dims = (*lead, size, size)
        x = self.given(self.pick(("f32", "f64")), dims)
        last, shape = len(dims) - 1, f"[{','.join(map(str, dims))}]"
        order = self.braced([*range(len(lead)), last, last - 1])
        self.lines += [
            f"turned = {x.dtype}{shape} transpose({x.name}), dimensions={order}",
            f"twice = {x.dtype}{shape} add({x.name}, turned)",
            f"row = s32{shape} iota(), iota_dimension={last - 1}",
            f"column = s32{shape} iota(), iota_dimension={last}",
            f"diagonal = pred{shape} compare(row, column), direction=EQ",
            f"large = {x.dtype}[] constant(40)",
            f"wide = {x.dtype}{shape} broadcast(large), dimensions={{}}",
            f"matrix = {x.dtype}{shape} select(diagonal, wide, twice)",
        ]
        return Operand("matrix", x.dtype, dims)

    def _kept_half(self, matrix: Operand, lower: str, call: str) -> str:
        """Write the factor; return its half that is pinned, zeros for the other."""
        shape = f"{matrix.dtype}[{','.join(map(str, matrix.dims))}]"
        way = "GE" if lower == "true" else "LE"
        self.lines += [
            f"factor = {shape} {call}",
            f"zero = {matrix.dtype}[] constant(0)",
            f"zeros = {shape} broadcast(zero), dimensions={{}}",
            f"half = pred{shape.removeprefix(matrix.dtype)} compare(row, column), direction={way}",
        ]
        return "select(half, factor, zeros)"
