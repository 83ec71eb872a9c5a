"""Whole modules on the host and by XLA: `agree(text)` draws arguments, runs both and compares."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from xla import run_xla

import hlo2graph
from hlo2graph.errors import ParseError, VerifyError
from hlo2graph.hlo import Shape
from hlo2graph.ops.evaluate import HostEvaluator
from hlo2graph.ops.spec import Array, HostValue


def scalar_region(name: str, opcode: str, dtype: str) -> str:
    """Return a computation that is one binary instruction."""
    return (
        f"{name} {{ a = {dtype}[] parameter(0) b = {dtype}[] parameter(1) "
        f"ROOT r = {dtype}[] {opcode}(a, b) }}\n"
    )


ARGMAX = """largest {
  a = f32[] parameter(0) i = s32[] parameter(1) b = f32[] parameter(2) j = s32[] parameter(3)
  keep = pred[] compare(a, b), direction=GE
  value = f32[] select(keep, a, b) at = s32[] select(keep, i, j)
  ROOT r = (f32[], s32[]) tuple(value, at)
}
"""


def module(entry: str, *regions: str) -> str:
    """Return a module's text from its regions and the body of its entry."""
    return "\n".join(["HloModule m", *regions, f"ENTRY e {{ {entry} }}"])


def draw(shape: Shape, rng: np.random.Generator) -> Array:
    """Return small integers, or normal numbers."""
    dtype = shape.dtype
    if dtype.name == "pred":
        return rng.integers(0, 2, shape.dims).astype(np.bool_)
    if dtype.is_integer:
        low = -3 if dtype.name.startswith("s") else 0
        return rng.integers(low, 8, shape.dims).astype(dtype.numpy)
    values = rng.standard_normal(shape.dims)
    if dtype.is_complex:
        values = values + 1j * rng.standard_normal(shape.dims)
    return values.astype(dtype.numpy)


def leaves(value: HostValue) -> list[Array]:
    if isinstance(value, tuple):
        return [leaf for part in value for leaf in leaves(part)]
    return [value]


def run_host(text: str, arguments: Sequence[Array]) -> list[Array]:
    """Return the result leaves; the parameters must be arrays."""
    parsed = hlo2graph.parse(text)
    return leaves(HostEvaluator(parsed.computations)(parsed.entry_name, arguments))


def arguments_of(text: str, seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [draw(p.shape, rng) for p in hlo2graph.parse(text).entry.parameters]


def agree(
    text: str, arguments: Sequence[Array] | None = None, tolerance: float = 1e-5
) -> list[Array]:
    """Require the host's results to be XLA's, bit for bit where `tolerance` is 0; return them."""
    arguments = arguments_of(text) if arguments is None else arguments
    ours, theirs = run_host(text, arguments), run_xla(text, arguments)
    assert len(ours) == len(theirs)
    for got, want in zip(ours, theirs, strict=True):
        assert got.shape == want.shape
        if tolerance == 0:
            assert got.tobytes() == want.tobytes()
            continue
        assert got.dtype == want.dtype
        wide = np.complex128 if got.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(
            got.astype(wide), want.astype(wide), rtol=tolerance, atol=tolerance
        )
    return ours


def refused(text: str, message: str) -> None:
    """Require that parsing or verifying says `message` and points into the text."""
    with pytest.raises((ParseError, VerifyError), match=message) as caught:
        hlo2graph.parse(text)
    assert caught.value.span is not None


def misfits(text: str, message: str) -> None:
    """Require that planning says `message` of a call in legal HLO, and points into the text."""
    module = hlo2graph.parse(text)
    with pytest.raises(VerifyError, match=message) as caught:
        hlo2graph.plan(module)
    assert caught.value.span is not None
