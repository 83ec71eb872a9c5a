"""Turn transforms that no block does into several that blocks do, with what is between them.

In and out: a Module of the same meaning. A transform of several dimensions is one of each. A long
line is cut in two: n = n1 n2 numbers, as n1 rows of n2, are transformed along their columns, turned
by the n-th root of one to the power of row times column, and transformed along their rows, which
are then the columns of the result. Where n has a large prime in it, Bluestein's identity
jk = (j^2 + k^2 - (j - k)^2) / 2 makes a convolution of it, of a length that is easy. Real lines
become complex ones, of half as many numbers where they are even. Nothing moves in memory for that:
a transform reads and writes along any dimension.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isqrt, pi

from hlo2graph.hlo import DTYPES, Computation, DType, Instruction, Module, Shape
from hlo2graph.ops.expect import integers
from hlo2graph.ops.fft_lines import SHORTEST, fits, fits_block, radices
from hlo2graph.passes.draft import Draft, is_settled
from hlo2graph.passes.large.arrays import Arrays, laid_out, resized
from hlo2graph.passes.redraft import redraft

MOST_ACROSS = 2048  # numbers of a part of a line: blocks take several side by side
_EASY = (1, 3, 5, 9, 15)  # times a power of two, lengths of convolutions
_S32, _S64 = DTYPES["s32"], DTYPES["s64"]
_LARGEST_SQUARE = isqrt(2**31 - 1)
_REAL_OF = {"c64": DTYPES["f32"], "c128": DTYPES["f64"]}
_COMPLEX_OF = {"f32": DTYPES["c64"], "f64": DTYPES["c128"]}


def split_ffts(module: Module) -> Module:
    """Return `module` with transforms of one dimension that a block does."""
    return redraft(module, "fft", _split)


def _split(draft: Draft) -> Computation:
    for instr in [i for i in draft.instructions.values() if i.opcode == "fft"]:
        source = draft.shape(instr.operands[0])
        assert isinstance(instr.shape, Shape)
        some = source.elements and instr.shape.elements
        if some and is_settled(source) and draft.is_pure(instr) and not _is_done(instr, source):
            _Transform(Arrays(draft, instr)).write()
    return draft.done()


def _is_done(instr: Instruction, source: Shape) -> bool:
    lengths = integers(instr, "fft_length")
    short = lengths[-1] < SHORTEST
    return len(lengths) == 1 and (short or fits_block(instr, source.dtype))


@dataclass(frozen=True, slots=True)
class _Transform:
    """Writes what stands for one transform."""

    to: Arrays

    def write(self) -> None:
        """Put the steps into the transform's place."""
        to, instr = self.to, self.to.like
        lengths, kind = integers(instr, "fft_length"), str(instr.attrs["fft_type"])
        name = instr.operands[0]
        last = to.shape(name).rank - 1
        backwards = kind in ("IFFT", "IRFFT")
        if kind == "RFFT":
            name = self._of_reals(name, lengths[-1])
        elif kind != "IRFFT":
            name = self._line(name, backwards)
        for dim in range(last - len(lengths) + 1, last):
            turned = self._line(to.exchanged(name, dim, last), backwards)
            name = to.exchanged(turned, dim, last)
        if kind == "IRFFT":
            name = self._to_reals(name, lengths[-1])
        to.end(name)

    # ---- complex lines ----------------------------------------------------------------------

    def _line(self, name: str, backwards: bool) -> str:
        """Transform along the last dimension, of any length."""
        shape = self.to.shape(name)
        length = shape.dims[-1]
        if length < SHORTEST or fits(length, shape.dtype.size):
            return self._fft(name, backwards)
        parts = _parts(length)
        if parts is None:
            return self._by_convolution(name, backwards)
        return self._by_parts(name, parts, backwards)

    def _fft(self, name: str, backwards: bool, *, across: bool = False) -> str:
        """Transform lines that blocks do; `across` lets the two last dimensions change places."""
        shape = self.to.shape(name)
        if across:
            last = shape.rank - 1
            places = {last: last - 1, last - 1: last}
            order = [places.get(d, d) for d in shape.minor_to_major]
            shape = laid_out(shape, shape.dims, order)
        kind = "IFFT" if backwards else "FFT"
        lengths = (shape.dims[-1],)
        return self.to.add("fft", shape, (name,), fft_type=kind, fft_length=lengths)

    def _by_parts(self, name: str, parts: int, backwards: bool) -> str:
        to = self.to
        shape = to.shape(name)
        length, last = shape.dims[-1], shape.rank
        columns = to.exchanged(to.parted(name, last - 1, parts), last - 1, last)
        found = self._line(columns, backwards)
        number = _S32 if length < 2**31 else _S64
        grid = replace(to.shape(found), dtype=number)
        step = to.apply("multiply", to.iota(grid, last - 1), to.iota(grid, last))
        found = to.apply("multiply", found, self._turns(step, length, backwards, shape.dtype))
        rows = to.exchanged(found, last - 1, last)
        if fits(length // parts, shape.dtype.size):
            found = self._fft(rows, backwards, across=True)
        else:
            found = self._line(rows, backwards)
        return to.merged(to.exchanged(found, last - 1, last), last - 1)

    def _by_convolution(self, name: str, backwards: bool) -> str:
        to = self.to
        shape = to.shape(name)
        length, last = shape.dims[-1], shape.rank - 1
        chirp = self._chirp(shape, last, length, backwards)
        size = min(c << max(0, -(-(2 * length - 1) // c) - 1).bit_length() for c in _EASY)
        turned = to.extended(to.apply("multiply", name, chirp), last, size)
        left = self._line(turned, backwards=False)
        right = self._line(self._filter(shape.dtype, length, size, backwards), backwards=False)
        right = to.broadcast(right, to.shape(left), (last,))
        both = self._line(to.apply("multiply", left, right), backwards=True)
        found = to.apply("multiply", to.cut(both, last, 0, length), chirp)
        if backwards:
            found = to.apply("multiply", found, to.like_filled(found, 1 / length))
        return found

    def _filter(self, dtype: DType, length: int, size: int, backwards: bool) -> str:
        """Return what is folded with: the chirp turned the other way, to both sides of 0."""
        to = self.to
        places = Shape(_number_for(length), (size,))
        place = to.iota(places, 0)
        near = to.apply("minimum", place, to.apply("subtract", to.filled(places, size), place))
        chirp = self._chirp_at(near, length, not backwards, dtype)
        inside = to.compare(near, "LT", to.filled(places, length))
        return to.apply("select", inside, chirp, to.like_filled(chirp, 0))

    def _chirp(self, shape: Shape, dim: int, length: int, backwards: bool) -> str:
        place = self.to.iota(replace(shape, dtype=_number_for(length)), dim)
        return self._chirp_at(place, length, backwards, shape.dtype)

    def _chirp_at(self, place: str, length: int, backwards: bool, dtype: DType) -> str:
        """Return e to the i pi place^2 / length, or its conjugate."""
        to = self.to
        square = to.apply("multiply", place, place)
        step = to.apply("remainder", square, to.like_filled(square, 2 * length))
        return self._turns(step, 2 * length, backwards, dtype)

    def _turns(self, step: str, whole: int, backwards: bool, dtype: DType) -> str:
        """Return e to the i 2 pi step / whole, or its conjugate, for steps below `whole`.

        Angles are at most half a turn, which rounds them least.
        """
        to, real = self.to, _REAL_OF[dtype.name]
        far = to.compare(step, "GT", to.like_filled(step, whole // 2))
        less = to.apply("subtract", step, to.like_filled(step, whole))
        near = to.apply("convert", to.apply("select", far, less, step), to=real)
        unit = (2 if backwards else -2) * pi / whole
        angle = to.apply("multiply", near, to.like_filled(near, unit))
        return to.apply("complex", to.apply("cosine", angle), to.apply("sine", angle), to=dtype)

    # ---- real lines -------------------------------------------------------------------------

    def _of_reals(self, name: str, length: int) -> str:
        """Transform real lines; the second half, which mirrors the first, is left out."""
        to = self.to
        shape = to.shape(name)
        last, dtype = shape.rank - 1, _COMPLEX_OF[shape.dtype.name]
        half = length // 2
        direct = replace(to.like, attrs={"fft_type": "RFFT", "fft_length": (length,)})
        if _is_done(direct, shape):
            kept = resized(replace(shape, dtype=dtype), last, half + 1)
            return to.add("fft", kept, (name,), **direct.attrs)
        if length % 2:
            numbers = to.apply("complex", name, to.like_filled(name, 0), to=dtype)
            return to.cut(self._line(numbers, backwards=False), last, 0, half + 1)
        pairs = [to.cut(name, last, k, length, 2) for k in (0, 1)]
        found = self._line(to.apply("complex", *pairs, to=dtype), backwards=False)
        low = to.join((found, to.cut(found, last, 0, 1)), last)
        even, odd = self._even_and_odd(low)
        step = to.iota(replace(to.shape(odd), dtype=_number_for(1)), last)
        turned = to.apply("multiply", odd, self._turns(step, length, False, dtype))
        real = to.apply("add", self._part("real", even), self._part("imag", turned))
        imag = to.apply("subtract", self._part("imag", even), self._part("real", turned))
        return to.apply("complex", real, imag, to=dtype)

    def _to_reals(self, name: str, length: int) -> str:
        """Transform half of what real lines have come of back to them."""
        to = self.to
        shape = to.shape(name)
        last, half, real = shape.rank - 1, length // 2, _REAL_OF[shape.dtype.name]
        direct = replace(to.like, attrs={"fft_type": "IRFFT", "fft_length": (length,)})
        if _is_done(direct, shape):
            kept = resized(replace(shape, dtype=real), last, length)
            return to.add("fft", kept, (name,), **direct.attrs)
        if length % 2:
            mirrored = self._conjugate(self._reversed(to.cut(name, last, 1, half + 1)))
            return self._part("real", self._line(to.join((name, mirrored), last), backwards=True))
        even, odd = self._even_and_odd(self._with_real_ends(name))
        even, odd = (to.cut(x, last, 0, half) for x in (even, odd))
        step = to.iota(replace(to.shape(odd), dtype=_number_for(1)), last)
        turned = to.apply("multiply", odd, self._turns(step, length, True, shape.dtype))
        re = to.apply("subtract", self._part("real", even), self._part("imag", turned))
        im = to.apply("add", self._part("imag", even), self._part("real", turned))
        pairs = self._line(to.apply("complex", re, im, to=shape.dtype), backwards=True)
        parts = [self._beside(self._part(p, pairs)) for p in ("real", "imag")]
        return to.merged(to.join(parts, last + 1), last)

    def _even_and_odd(self, name: str) -> tuple[str, str]:
        """Return half the sum of each element and its mirrored conjugate, and of the difference."""
        to = self.to
        mirrored = self._conjugate(self._reversed(name))
        half = to.like_filled(name, 0.5)
        return (
            to.apply("multiply", to.apply("add", name, mirrored), half),
            to.apply("multiply", to.apply("subtract", name, mirrored), half),
        )

    def _with_real_ends(self, name: str) -> str:
        """Return lines whose first and last elements, real in what comes of reals, are so."""
        to = self.to
        real, imag = (self._part(p, name) for p in ("real", "imag"))
        last = to.shape(name).rank - 1
        place = to.iota(replace(to.shape(imag), dtype=_number_for(1)), last)
        first = to.compare(place, "EQ", to.like_filled(place, 0))
        end = to.compare(place, "EQ", to.like_filled(place, to.shape(name).dims[-1] - 1))
        none = to.like_filled(imag, 0)
        kept = to.apply("select", first, none, to.apply("select", end, none, imag))
        return to.apply("complex", real, kept, to=to.shape(name).dtype)

    def _beside(self, name: str) -> str:
        """Return a view with one more dimension, of one element, at the end."""
        shape = self.to.shape(name)
        order = [shape.rank, *shape.minor_to_major]
        return self.to.add("reshape", laid_out(shape, (*shape.dims, 1), order), (name,))

    def _reversed(self, name: str) -> str:
        shape = self.to.shape(name)
        return self.to.add("reverse", shape, (name,), dimensions=(shape.rank - 1,))

    def _conjugate(self, name: str) -> str:
        real, imag = (self._part(p, name) for p in ("real", "imag"))
        negative = self.to.apply("negate", imag)
        return self.to.apply("complex", real, negative, to=self.to.shape(name).dtype)

    def _part(self, opcode: str, name: str) -> str:
        return self.to.apply(opcode, name, to=_REAL_OF[self.to.shape(name).dtype.name])


def _parts(length: int) -> int | None:
    """Return into how many rows a line is cut; None where it has a large prime."""
    if radices(length) is None:
        return None
    wanted = isqrt(length) if length <= MOST_ACROSS**2 else round(length ** (1 / 3))
    fitting = [n for n in range(2, min(MOST_ACROSS, length - 1) + 1) if length % n == 0]
    return min(fitting, key=lambda n: (length // n > MOST_ACROSS, abs(n - wanted)))


def _number_for(length: int) -> DType:
    """Return an integer type that holds squares of what is below `length`."""
    return _S32 if length <= _LARGEST_SQUARE else _S64
