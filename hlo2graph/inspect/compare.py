"""Comparing results with a reference, and the one table of tolerances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hlo2graph.hlo import DType
from hlo2graph.ops.spec import Array


@dataclass(frozen=True, slots=True)
class Tolerance:
    """An element is right if |got - want| <= absolute + relative * size.

    size is |want|, or the median of all |want| if that is more: the error of a sum that cancels
    has the size of its terms, of which the other results give an idea.
    """

    relative: float
    absolute: float

    @property
    def is_exact(self) -> bool:
        """Only equal values will do (and NaN for NaN)."""
        return not self.relative and not self.absolute

    def __str__(self) -> str:
        if self.is_exact:
            return "none"
        return f"{self.relative:.3g} relative + {self.absolute:.3g} absolute"


EXACT = Tolerance(0.0, 0.0)
WIDE = 0.1  # of the largest value: what may differ by more is held against little

# A float's tolerance is a few hundred rounding steps (a few tens for narrow types, whose arithmetic
# is often done in float32 and rounded once). Sums in another order and other libraries'
# transcendentals stay within that; a wrong element, index or order of operands does not. The
# absolute part is for results that are zero but for rounding.
#
# The host rounds to a narrow type after every instruction, a kernel keeps float32 up to results.
# Where terms cancel, as at the end of a layer norm, the host's own error has the size of the terms'
# last bits: the host's results in float32 are what to judge such a kernel by.
TOLERANCES: dict[str, Tolerance] = {
    "f64": Tolerance(1e-10, 1e-10),
    "c128": Tolerance(1e-10, 1e-10),
    "f32": Tolerance(1e-4, 1e-5),
    "c64": Tolerance(1e-4, 1e-5),
    "f16": Tolerance(1e-2, 1e-3),
    "bf16": Tolerance(4e-2, 1e-2),
    "f8e3m4": Tolerance(0.125, 0.0625),
    "f8e4m3": Tolerance(0.25, 0.0625),
    "f8e4m3fn": Tolerance(0.25, 0.0625),
    "f8e4m3fnuz": Tolerance(0.25, 0.0625),
    "f8e4m3b11fnuz": Tolerance(0.25, 0.0625),
    "f8e5m2": Tolerance(0.5, 0.125),
    "f8e5m2fnuz": Tolerance(0.5, 0.125),
    "f8e8m0fnu": Tolerance(1.0, 0.0),  # only powers of two: the neighbour is twice as large
    "f6e2m3fn": Tolerance(0.25, 0.25),
    "f6e3m2fn": Tolerance(0.25, 0.125),
    "f4e2m1fn": Tolerance(0.5, 0.5),
}

# dot and convolution with TF32 operands keep 10 bits of mantissa, as float16 does.
TF32 = Tolerance(1e-2, 1e-2)


def tolerance_for(
    dtype: DType,
    *,
    tf32: bool = False,
    relative: float | None = None,
    absolute: float | None = None,
) -> Tolerance:
    """Return what a result of `dtype` may differ by; integers and pred not at all.

    `relative` and `absolute` are the user's and replace the table's, for floats.
    """
    found = TOLERANCES.get(dtype.name)
    if found is None:
        return EXACT
    if tf32 and dtype.name in ("f32", "c64"):
        found = TF32
    if relative is not None:
        found = replace(found, relative=relative)
    if absolute is not None:
        found = replace(found, absolute=absolute)
    return found


@dataclass(frozen=True, slots=True)
class Comparison:
    """How one result compares with its reference.

    `worst` is the largest |got - want| (infinite where one is NaN and the other not), `at` the
    index of the first wrong element, `reach` the largest finite |want|.
    """

    name: str
    tolerance: Tolerance
    elements: int
    wrong: int
    worst: float
    at: tuple[int, ...] | None = None
    got: str = ""
    want: str = ""
    reach: float = 0.0

    @property
    def is_wide(self) -> bool:
        """Being within the tolerance says little: it is much of the values themselves."""
        return self.tolerance.absolute > WIDE * self.reach

    @property
    def ok(self) -> bool:
        """Every element is within the tolerance."""
        return not self.wrong

    def __str__(self) -> str:
        if self.wrong:
            index = ",".join(map(str, self.at or ()))
            return (
                f"{self.name}: {self.wrong:,} of {self.elements:,} elements differ, first at "
                f"[{index}]: {self.got}, expected {self.want} (largest difference "
                f"{self.worst:.3g}, allowed {self.tolerance})"
            )
        if not self.worst:
            return f"{self.name}: equal"
        return f"{self.name}: equal within {self.tolerance} (largest difference {self.worst:.2g})"


def compare(got: Array, want: Array, tolerance: Tolerance, name: str = "result") -> Comparison:
    """Compare element by element. NaN equals NaN, and an infinity only itself."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return Comparison(
            name,
            tolerance,
            want.size,
            max(want.size, 1),
            np.inf,
            got=f"{got.dtype.name}{list(got.shape)}",
            want=f"{want.dtype.name}{list(want.shape)}",
        )
    with np.errstate(all="ignore"):
        error = _errors(got, want)
        allowed = tolerance.absolute + tolerance.relative * _sizes(want)
        wrong = ~(error <= np.where(np.isfinite(allowed), allowed, 0.0))
    bad = int(np.count_nonzero(wrong))
    worst = float(np.max(error, initial=0.0))
    if not bad:
        return Comparison(name, tolerance, got.size, 0, worst, reach=reach_of(want))
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
    return Comparison(name, tolerance, got.size, bad, worst, at, str(got[at]), str(want[at]))


def same_bits(got: Sequence[Array], want: Sequence[Array]) -> bool:
    """Equal bit for bit, NaN payloads and signs of zero included."""
    return len(got) == len(want) and all(
        g.dtype == w.dtype and g.shape == w.shape and g.tobytes() == w.tobytes()
        for g, w in zip(got, want, strict=True)
    )


def _errors(got: Array, want: Array) -> Array:
    """Return |got - want| as float64: 0 where both are equal or NaN, inf where one is NaN."""
    if got.dtype.kind in "biu":
        same = got == want
        found: Array = np.abs(got.astype(np.longdouble) - want.astype(np.longdouble))
        return np.where(same, 0.0, np.maximum(found, 1.0)).astype(np.float64)
    wide_got, wide_want = _wide(got), _wide(want)
    same = (wide_got == wide_want) | (np.isnan(wide_got) & np.isnan(wide_want))
    found = np.abs(wide_got - wide_want)
    return np.where(same, 0.0, np.where(np.isnan(found), np.inf, found))


def _sizes(want: Array) -> Array:
    found: Array = np.abs(_wide(want))
    finite = found[np.isfinite(found)]
    return np.maximum(found, np.median(finite)) if finite.size else found


def _wide(array: Array) -> Array:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def reach_of(array: Array) -> float:
    """Return how far finite elements are from 0 at most."""
    sizes = np.abs(_wide(array))
    return float(np.max(sizes[np.isfinite(sizes)], initial=0.0))


def furthest(got: Array, want: Array) -> float:
    """Return how far elements are apart at most, those left out where it is no finite distance."""
    with np.errstate(all="ignore"):
        apart = np.abs(got.astype(np.complex128) - want.astype(np.complex128))
    return float(np.max(apart[np.isfinite(apart)], initial=0.0))
