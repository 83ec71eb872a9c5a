"""`run --reference xla`: vectors that differ by a factor of size 1 are right, others are not."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.lax import fori_loop

import hlo2graph as h2g
from hlo2graph.inspect import session, vectors
from hlo2graph.inspect.compare import TOLERANCES, compare, same_bits
from hlo2graph.inspect.reference import host_results
from hlo2graph.inspect.report import check_text
from hlo2graph.inspect.session import Wishes, check_reference
from hlo2graph.inspect.vectors import makes_vectors, results_of_same_vectors
from hlo2graph.inspect.xla import xla_results
from hlo2graph.ops import OPS

MATRIX = np.random.default_rng(0).standard_normal((2, 6, 4)).astype(np.float32)
SQUARE = MATRIX[0, :4]


def svd(a, full=False):
    return jnp.linalg.svd(a, full_matrices=full)


def rebuilt(a):
    u, s, vt = svd(a)
    return (u * s[..., None, :]) @ vt, u.sum()


PROGRAMS = {
    "svd": (svd, MATRIX),
    "svd-complex": (svd, MATRIX + 1j * MATRIX[::-1]),
    "svd-one-more": (lambda a: svd(a, full=True), MATRIX[0, :5]),
    "svd-one-more-row": (lambda a: svd(a, full=True), MATRIX[0, :5].T),
    "eigh": (lambda a: jnp.linalg.eigh(a + a.T), SQUARE),
    "eigh-complex": (lambda a: jnp.linalg.eigh(a + a.T.conj()), SQUARE + 1j * SQUARE.T),
    "eig": (jnp.linalg.eig, SQUARE),
    "used-further": (rebuilt, MATRIX),
}


def lowered(function, *args):
    return h2g.parse(jax.jit(function).lower(*args).as_text("hlo"))


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_of_the_same_vectors_are_xlas(name):
    function, arg = PROGRAMS[name]
    module = lowered(function, arg)
    assert makes_vectors(module)
    found = results_of_same_vectors(module, [arg])
    plain = xla_results(module, [arg])
    assert same_bits(found.theirs, plain)
    for ours, theirs in zip(found.ours, found.theirs, strict=True):
        comparison = compare(ours, theirs, TOLERANCES["f32"])
        assert comparison.ok, comparison


def eigh_of(spoil):
    return PROGRAMS["eigh"], lambda made: (spoil(made[0]), *made[1:])


def svd_of(left, right):
    def spoil(made):
        return (*made[:2], left(made[2]), right(made[3]), *made[4:])

    return PROGRAMS["used-further"], spoil


def of_columns(array):
    """Turn vectors as another library may."""
    return array * np.array([1, -1, -1, 1], array.dtype)


def of_rows(array):
    return of_columns(array.swapaxes(-1, -2)).swapaxes(-1, -2)


CHOICES = {
    "columns": (True, *eigh_of(of_columns)),
    "longer": (False, *eigh_of(lambda v: v * np.float32(1.01))),
    "other-order": (False, *eigh_of(lambda v: v[:, ::-1])),
    "elements": (False, *eigh_of(of_rows)),
    "both-sides": (True, *svd_of(of_columns, of_rows)),
    "one-side": (False, *svd_of(of_columns, lambda v: v)),
}


@pytest.mark.parametrize("choice", CHOICES)
def test_other_signs_are_right_and_other_vectors_are_not(monkeypatch, choice):
    """XLA is the host here, but for what it makes of vectors."""
    right, (function, arg), spoil = CHOICES[choice]

    def rule(instr, operands, evaluator):
        return spoil(OPS["custom-call"].host(instr, operands, evaluator))

    for room in (session, vectors):
        monkeypatch.setattr(
            room, "xla_results", lambda *given: host_results(*given, {"custom-call": rule})
        )
    module = lowered(function, arg)
    executable = h2g.compile(module, "host")
    own, beside = check_reference(executable.plan, [arg], executable(arg), Wishes("xla"), module)
    assert own.ok
    assert beside.ok == right
    assert "XLA:CPU, given its signs" in check_text(beside)


@pytest.mark.slow
def test_what_runs_is_still_held_against_the_program_as_written():
    function, arg = PROGRAMS["eigh"]
    module = lowered(function, arg)
    executable = h2g.compile(module, "host")
    values, made = executable(arg)
    wrong = values, made[:, ::-1]
    own, beside = check_reference(executable.plan, [arg], wrong, Wishes("xla"), module)
    assert (own.ok, beside.ok) == (False, True)


def test_vectors_made_in_loops_are_not_told(monkeypatch):
    def loop(a):
        return fori_loop(0, 3, lambda _, x: jnp.linalg.eigh(x + x.T)[1], a)

    module = lowered(loop, SQUARE)
    assert makes_vectors(module)
    assert results_of_same_vectors(module, [SQUARE]) is None
    monkeypatch.setattr(session, "xla_results", lambda *_: (SQUARE,))
    executable = h2g.compile(module, "host")
    (check,) = check_reference(executable.plan, [SQUARE], executable(SQUARE), Wishes("xla"), module)
    assert "which may give vectors other signs, and does not tell those in loops" in check_text(
        check
    )
