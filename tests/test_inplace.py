"""What a kernel may overwrite, judged by its computation alone."""

from __future__ import annotations

import pytest

from hlo2graph import plan
from hlo2graph.frontend import parse
from hlo2graph.hlo import DTYPES, Shape
from hlo2graph.program.buffers.lifetimes import Lifetimes
from hlo2graph.program.inplace import elementwise_updates, inplace_reads, partial_updates
from hlo2graph.program.thunks import Copy, Fill, Kernel, Library, Value

HEAD = """HloModule m

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY f {
  p = f32[4,4]{1,0} parameter(0)
  q = f32[4,4]{1,0} parameter(1)
  i = s32[] parameter(2)
  zero = f32[] constant(0)
"""

TURN = "t = f32[4,4]{1,0} transpose(p), dimensions={1,0}\n"
UPDATE = "u = f32[1,4]{1,0} slice(q), slice={[0:1], [0:4]}\n"


def pairs(body, find=inplace_reads):
    computations = parse(HEAD + body + "\n}").computations
    return find(Kernel("k", "f", (), ()), computations)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("ROOT r = f32[4,4]{1,0} tanh(p)", ((0, 0),)),
        ("ROOT r = f32[4,4]{1,0} add(p, q)", ((0, 0), (1, 0))),
        ("ROOT r = f32[4,4]{0,1} tanh(p)", ()),
        ("ROOT r = f16[4,4]{1,0} convert(p)", ()),
        ("ROOT r = s32[4,4]{1,0} convert(p)", ((0, 0),)),
        ("t = f32[4,4]{1,0} tanh(p)\nROOT r = f32[4,4]{1,0} multiply(t, q)", ((0, 0), (1, 0))),
        (TURN + "ROOT r = f32[4,4]{1,0} add(t, q)", ((1, 0),)),
        (TURN + "ROOT r = f32[4,4]{1,0} add(t, p)", ()),
        (
            "s = f32[4]{0} reduce(p, zero), dimensions={1}, to_apply=sum\n"
            "b = f32[4,4]{1,0} broadcast(s), dimensions={0}\n"
            "ROOT r = f32[4,4]{1,0} divide(p, b)",
            (),
        ),
        (
            "x = f32[1,4]{1,0} slice(p), slice={[0:1], [0:4]}\n"
            "n = f32[4,4]{1,0} negate(p)\n"
            "ROOT r = (f32[4,4]{1,0}, f32[1,4]{1,0}) tuple(n, x)",
            (),
        ),
        (
            "n = f32[4,4]{1,0} negate(p)\nt = f32[4,4]{1,0} tanh(q)\n"
            "ROOT r = (f32[4,4]{1,0}, f32[4,4]{1,0}) tuple(n, t)",
            ((0, 0), (1, 1)),
        ),
        (
            "n = f32[4,4]{1,0} negate(p)\nt = f32[4,4]{1,0} add(p, q)\n"
            "ROOT r = (f32[4,4]{1,0}, f32[4,4]{1,0}) tuple(n, t)",
            ((0, 0), (0, 1), (1, 1)),  # one pass: a thread reads before it stores
        ),
        (
            "n = f32[4,4]{1,0} negate(p)\nv = f32[16]{0} reshape(q)\nw = f32[16]{0} negate(v)\n"
            "t = f32[4,4]{1,0} add(p, q)\n"
            "ROOT r = (f32[4,4]{1,0}, f32[16]{0}, f32[4,4]{1,0}) tuple(n, w, t)",
            ((0, 0), (0, 2)),
        ),
        (
            "d = f32[4,4]{1,0} dot(q, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
            "n = f32[4,4]{1,0} add(p, d)\nt = f32[4,4]{1,0} multiply(p, d)\n"
            "ROOT r = (f32[4,4]{1,0}, f32[4,4]{1,0}) tuple(n, t)",
            (),
        ),
    ],
)
def test_elementwise(body, expected):
    assert pairs(body, elementwise_updates) == expected
    assert pairs(body, partial_updates) == ()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (UPDATE + "ROOT r = f32[4,4]{1,0} dynamic-update-slice(p, u, i, i)", ((0, 0),)),
        (
            UPDATE + "d = f32[4,4]{1,0} dynamic-update-slice(p, u, i, i)\n"
            "ROOT r = f32[16]{0} bitcast(d)",
            ((0, 0),),
        ),
        (
            "v = f32[16]{0} bitcast(p)\nw = f32[16]{0} bitcast(q)\n"
            "u = f32[2]{0} slice(w), slice={[3:5]}\n"
            "ROOT r = f32[16]{0} dynamic-update-slice(v, u, i)",
            ((0, 0),),
        ),
        (
            "u = f32[1,4]{1,0} slice(p), slice={[0:1], [0:4]}\n"
            "ROOT r = f32[4,4]{1,0} dynamic-update-slice(p, u, i, i)",
            (),
        ),
        (
            UPDATE + "n = f32[4,4]{1,0} negate(p)\n"
            "ROOT r = f32[4,4]{1,0} dynamic-update-slice(n, u, i, i)",
            (),
        ),
        (
            UPDATE + "d = f32[4,4]{1,0} dynamic-update-slice(p, u, i, i)\n"
            "ROOT r = f32[4,4]{1,0} transpose(d), dimensions={1,0}",
            (),
        ),
        (
            UPDATE + "d = f32[4,4]{1,0} dynamic-update-slice(p, u, i, i)\n"
            "t = f32[4,4]{1,0} transpose(d), dimensions={1,0}\n"
            "ROOT r = (f32[4,4]{1,0}, f32[4,4]{1,0}) tuple(d, t)",
            ((0, 0),),  # a thread computes what it reads of the update, or reads what stays
        ),
        (
            UPDATE + "d = f32[4,4]{1,0} dynamic-update-slice(p, u, i, i)\n"
            "ROOT r = (f32[4,4]{1,0}, f32[4,4]{1,0}) tuple(d, d)",
            (),
        ),
        (
            UPDATE + "d = f32[4,4]{1,0} dynamic-update-slice(p, u, i, i)\n"
            "s = f32[4,4]{1,0} dot(d, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
            "ROOT r = (f32[4,4]{1,0}, f32[4,4]{1,0}) tuple(d, s)",
            (),
        ),
        (
            "n = s32[1]{0} reshape(i)\nx = f32[4]{0} broadcast(zero), dimensions={}\n"
            "ROOT r = f32[4,4]{1,0} scatter(p, n, x), update_window_dims={0}, "
            "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=0, "
            "to_apply=sum",
            ((0, 0),),
        ),
    ],
)
def test_partial(body, expected):
    assert pairs(body, partial_updates) == expected
    assert pairs(body, elementwise_updates) == ()


def test_other_thunks():
    a, b = (Value(n, Shape(DTYPES["f32"], (4,)), "v") for n in range(2))
    assert inplace_reads(Copy("c", a, b), {}) == ((0, 0),)
    assert inplace_reads(Fill("f", b"\0", a), {}) == ()
    assert inplace_reads(Library("l", "f", (a,), (b,)), {}) == ()


def compared(length: int, monkeypatch) -> int:
    """Plan a chain that reads its own reductions; return how often two lives were compared."""
    calls = []
    ends_before = Lifetimes.ends_before

    def counted(self, a, b):
        calls.append((a, b))
        return ends_before(self, a, b)

    monkeypatch.setattr(Lifetimes, "ends_before", counted)
    lines = ["x0 = f32[4,4]{1,0} tanh(p)"]
    for k in range(length):
        lines += [
            f"r{k} = f32[4]{{0}} reduce(x{k}, zero), dimensions={{1}}, to_apply=sum",
            f"b{k} = f32[4,4]{{1,0}} broadcast(r{k}), dimensions={{0}}",
            f"x{k + 1} = f32[4,4]{{1,0}} subtract(x{k}, b{k})",
        ]
    plan(HEAD + "\n".join(lines) + "\n}", target="host", fuse="none")
    monkeypatch.undo()
    return len(calls)


def test_a_long_chain_is_not_compared_with_all_before_it(monkeypatch):
    assert compared(200, monkeypatch) < 6 * compared(50, monkeypatch)
