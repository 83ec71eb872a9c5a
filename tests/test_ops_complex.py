"""Complex numbers with infinite parts: as XLA on the CPU has it, on the host and on the device."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from needs import needs_gxx
from xla import run_xla

import hlo2graph
from tests.emulation import EmulatedExecutable, Kernels

PARTS = (0.0, -0.0, 1.0, -3.0, np.inf, -np.inf, np.nan)
VALUES = np.array([complex(a, b) for a, b in itertools.product(PARTS, PARTS)])
SINGLE = (
    *("exponential-minus-one", "log", "log-plus-one", "logistic", "rsqrt", "sqrt", "tan", "tanh"),
)


def text(dtype: str) -> str:
    n = len(VALUES)
    lines = "\n".join(f"  r{k} = {dtype}[{n}] {name}(p)" for k, name in enumerate(SINGLE))
    names = ", ".join(f"r{k}" for k in range(len(SINGLE)))
    shapes = f"{dtype}[{n}], " * len(SINGLE)
    return f"""HloModule m
ENTRY e {{
  p = {dtype}[{n}] parameter(0)
  x = {dtype}[{n},{n}] parameter(1)
  y = {dtype}[{n},{n}] parameter(2)
  quotient = {dtype}[{n},{n}] divide(x, y)
  power = {dtype}[{n},{n}] power(x, y)
{lines}
  ROOT t = ({shapes}{dtype}[{n},{n}], {dtype}[{n},{n}]) tuple({names}, quotient, power)
}}"""


def arguments(dtype: str) -> list[np.ndarray]:
    values = VALUES.astype(np.complex64 if dtype == "c64" else np.complex128)
    return [values, *np.meshgrid(values, values)]


def agree(got, want) -> None:
    for mine, its in zip(got, want, strict=True):
        for part in ("real", "imag"):
            a, b = getattr(np.asarray(mine), part), getattr(np.asarray(its), part)
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["c64", "c128"])
def test_the_host_agrees_with_xla(dtype: str) -> None:
    given = arguments(dtype)
    got = hlo2graph.compile(text(dtype), backend="host")(*given)
    agree(got, run_xla(text(dtype), given))


@pytest.mark.slow
@needs_gxx
def test_the_device_agrees_with_the_host() -> None:
    given, plan = arguments("c64"), hlo2graph.plan(text("c64"), target="sm_90")
    got = EmulatedExecutable(plan, Kernels([plan]))(*given)
    agree(got, hlo2graph.compile(text("c64"), backend="host")(*given))
