"""f6e2m3fn and f6e3m2fn, which XLA's parser knows and XLA:CPU does not run: by their definition."""

import numpy as np
import pytest

import hlo2graph as h2g
from hlo2graph.backends.host import HostExecutable
from hlo2graph.hlo import DTYPES
from tests.emulation import EmulatedExecutable

TYPES = {"f6e2m3fn": (3, 1), "f6e3m2fn": (2, 3)}  # bits of the mantissa, bias of the exponent
CONVERT = """HloModule m
ENTRY main {{ p = f32[{count}] parameter(0)
  q = {dtype}[64] parameter(1)
  narrow = {dtype}[{count}] convert(p)
  wide = f32[64] convert(q)
  sum = {dtype}[64] add(q, q)
  ROOT r = ({dtype}[{count}], f32[64], {dtype}[64]) tuple(narrow, wide, sum) }}
"""


def values(dtype):
    """Return the 64 numbers by their bits: sign, exponent, mantissa; none is special."""
    mantissa, bias = TYPES[dtype]
    found = []
    for bits in range(64):
        high, low = divmod(bits & 31, 1 << mantissa)
        part = low / (1 << mantissa)
        size = 2.0 ** (high - bias) * (1 + part) if high else 2.0 ** (1 - bias) * part
        found.append(-size if bits >> 5 else size)
    return np.array(found, np.float32)


def nearest(numbers, dtype):
    """Return the bits of the nearest one of each, of two as near the one whose last bit is 0."""
    table = np.abs(values(dtype)[:32])
    away = np.abs(np.abs(numbers.astype(float))[:, None] - table)
    bits = np.argmin(away + np.arange(32) % 2 * 1e-12, axis=1)
    return bits + 32 * np.signbit(numbers)


@pytest.mark.parametrize("run", [HostExecutable, EmulatedExecutable])
@pytest.mark.parametrize("dtype", TYPES)
def test_numbers_are_rounded_to_the_nearest(dtype, run):
    held = values(dtype)
    between = (held[:-1] + held[1:]) / 2
    numbers = np.concatenate([held, between, np.nextafter(between, np.float32(99)), [99, -99]])
    numbers = numbers.astype(np.float32)
    every = np.arange(64, dtype=np.uint8).view(DTYPES[dtype].numpy)
    target = "host" if run is HostExecutable else "sm_90"
    plan = h2g.plan(CONVERT.format(dtype=dtype, count=len(numbers)), target=target)
    narrow, wide, doubled = run(plan)(numbers, every)
    assert np.array_equal(narrow.view(np.uint8), nearest(numbers, dtype))
    assert np.array_equal(wide, held)
    assert np.array_equal(doubled.view(np.uint8), nearest(held * 2, dtype))


@pytest.mark.parametrize("dtype", TYPES)
def test_literals_are_read_and_printed(dtype):
    text = f"HloModule m\nENTRY e {{ ROOT c = {dtype}[3] constant({{0.5, -1.75, 1e9}}) }}"
    module = h2g.parse(text)
    most = values(dtype).max()
    assert [float(x) for x in module.entry.result.payload.array] == [0.5, -1.75, most]
    assert h2g.parse(str(module)).entry == module.entry
