"""Fourier transforms: lines in a block, and those taken apart because no block does them."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from agreement import module
from needs import needs_gxx
from ptxas import spilt
from rewriting import rewritten

import hlo2graph
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.inspect.arrays import random_inputs
from hlo2graph.ops.fft_lines import radices
from hlo2graph.passes.large.split_ffts import split_ffts
from tests.emulation import Kernels
from tests.emulation.agreement import both_ways

NUMPY = {"FFT": np.fft.fftn, "IFFT": np.fft.ifftn, "RFFT": np.fft.rfftn, "IRFFT": np.fft.irfftn}


def fft(kind: str, source: str, target: str, *lengths: int) -> str:
    held = ",".join(map(str, lengths))
    return module(
        f"x = {source} parameter(0) "
        f"ROOT r = {target} fft(x), fft_type={kind}, fft_length={{{held}}}"
    )


def line(kind: str, length: int, real: str = "f32", layouts: tuple[str, str] = ("", "")) -> str:
    """Return transforms of 7 by 3 lines."""
    number = {"f32": "c64", "f64": "c128"}[real]
    whole, half = f"7,3,{length}", f"7,3,{length // 2 + 1}"
    source = {"RFFT": f"{real}[{whole}]", "IRFFT": f"{number}[{half}]"}.get(kind)
    target = {"RFFT": f"{number}[{half}]", "IRFFT": f"{real}[{whole}]"}.get(kind)
    plain = f"{number}[{whole}]"
    return fft(kind, (source or plain) + layouts[0], (target or plain) + layouts[1], length)


ACROSS, ALONG = "{1,2,0}", "{2,1,0}"
LINES = [line("FFT", n) for n in (2, 3, 5, 7, 8, 16, 31, 60, 210, 512, 2048)]
LINES += [line(kind, n) for kind in ("RFFT", "IRFFT") for n in (2, 6, 9, 30, 128)]
LINES += [line("IFFT", n, "f64") for n in (45, 64)]
LINES += [
    line(kind, 24, layouts=(source, target))
    for kind in NUMPY
    for source, target in ((ACROSS, ACROSS), (ALONG, ACROSS), (ACROSS, ALONG))
]
APART = [
    fft("FFT", "c64[16384]", "c64[16384]", 16384),
    fft("IFFT", "c64[2,15000]", "c64[2,15000]", 15000),
    fft("FFT", "c64[2,127]", "c64[2,127]", 127),
    fft("IFFT", "c64[2,127]{0,1}", "c64[2,127]{1,0}", 127),
    fft("FFT", "c64[4,6,8]", "c64[4,6,8]", 4, 6, 8),
    fft("RFFT", "f64[3,4,10]", "c128[3,4,6]", 3, 4, 10),
    fft("IRFFT", "c64[3,4,6]", "f32[3,4,10]", 4, 10),
    fft("RFFT", "f32[20000]", "c64[10001]", 20000),
    fft("IRFFT", "c64[10001]", "f32[20000]", 20000),
    fft("RFFT", "f32[2,131]", "c64[2,66]", 131),
    fft("IRFFT", "c64[2,66]", "f32[2,131]", 131),
]


@cache
def emulated():
    plans = {text: hlo2graph.plan(text, target="sm_90") for text in (*LINES, *APART)}
    return plans, Kernels(list(plans.values()))


@pytest.mark.slow
@needs_gxx
@pytest.mark.parametrize("text", [*LINES, *APART], ids=lambda t: t.split("ROOT")[1][5:-2])
def test_transforms_are_as_accurate_as_their_type(text):
    plans, kernels = emulated()
    plan = plans[text]
    (given,) = random_inputs(plan.inputs, 0)
    (got,) = both_ways(plan, kernels, (given,))
    transform = hlo2graph.parse(text).entry.result
    lengths = transform.attrs["fft_length"]
    axes = tuple(range(given.ndim - len(lengths), given.ndim))
    wide = given.astype(np.complex128 if given.dtype.kind == "c" else np.float64)
    want = NUMPY[transform.attrs["fft_type"]](wide, lengths, axes)
    error = np.abs(got - want).max() / np.sqrt((np.abs(want) ** 2).mean())
    assert error < (3e-6 if got.dtype.name in ("complex64", "float32") else 1e-14)


@pytest.mark.parametrize("text", APART, ids=lambda t: t.split("ROOT")[1][5:-2])
def test_what_is_taken_apart_stays_legal_and_right(text):
    parsed = hlo2graph.parse(text)
    made = rewritten(parsed, split_ffts, exact=False)
    ffts = [i for i in made.entry.instructions if i.opcode == "fft"]
    assert len(ffts) > 1
    assert all(len(i.attrs["fft_length"]) == 1 for i in ffts)


def test_what_blocks_do_stays_as_it_is():
    for text in LINES:
        parsed = hlo2graph.parse(text)
        assert split_ffts(parsed) is parsed


def test_long_lines_take_two_kernels():
    plan = hlo2graph.plan(APART[0], target="sm_90")
    assert len(plan.body.thunks) == 2


def test_radices():
    assert radices(1024) == (16, 8, 8)
    assert radices(360) == (5, 3, 3, 8)
    assert radices(31 * 31) == (31, 31)
    assert radices(37) is None
    assert radices(1) is None


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_lines_stay_in_registers(arch):
    for text in (line("FFT", 2048), line("IFFT", 4096, "f64"), line("RFFT", 900)):
        (source,) = kernels_of(hlo2graph.plan(text, target=arch)).values()
        assert spilt(source.text, arch) == 0
