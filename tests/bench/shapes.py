"""HLO of any size in a few shapes, for measuring how cost grows.

chain: each instruction reads the last one. wide: all read the same, joined by a tree. joined:
blocks of four branches that join. layered: each reads two of the layer before. transformer:
blocks of dots, reductions and elementwise work over weights, with residuals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

UNARY = ("exponential", "negate", "sine", "tanh")
LAYER = 32


def program(shape: str, instructions: int) -> str:
    """Return HLO of about that many instructions."""
    return "\n".join([f"HloModule {shape}", "", *SHAPES[shape](instructions), "}", ""])


def _unary(name: str, number: int, operand: str) -> str:
    return f"  {name} = f32[64]{{0}} {UNARY[number % len(UNARY)]}({operand})"


def _add(name: str, left: str, right: str) -> str:
    return f"  {name} = f32[64]{{0}} add({left}, {right})"


def _chain(instructions: int) -> Iterator[str]:
    yield "ENTRY main {"
    yield "  v.0 = f32[64]{0} parameter(0)"
    for k in range(1, instructions - 1):
        yield _unary(f"v.{k}", k, f"v.{k - 1}")
    yield f"  ROOT out = f32[64]{{0}} negate(v.{instructions - 2})"


def _tree(level: list[str]) -> Iterator[str]:
    """Add up `level`, pair by pair, into the root."""
    depth = 0
    while len(level) > 2:
        pairs = list(zip(level[::2], level[1::2], strict=False))
        odd = level[len(pairs) * 2 :]
        level = [f"s.{depth}.{k}" for k in range(len(pairs))]
        yield from (_add(name, *pair) for name, pair in zip(level, pairs, strict=True))
        level += odd
        depth += 1
    yield f"  ROOT out = f32[64]{{0}} add({level[0]}, {level[-1]})"


def _wide(instructions: int) -> Iterator[str]:
    yield "ENTRY main {"
    yield "  x = f32[64]{0} parameter(0)"
    leaves = [f"v.{k}" for k in range(instructions // 2)]
    for k, name in enumerate(leaves):
        yield _unary(name, k, "x")
    yield from _tree(leaves)


def _joined(instructions: int) -> Iterator[str]:
    yield "ENTRY main {"
    yield "  block.0 = f32[64]{0} parameter(0)"
    blocks = instructions // 11
    for k in range(blocks):
        for branch in range(4):
            yield _unary(f"a.{k}.{branch}", branch, f"block.{k}")
            yield f"  b.{k}.{branch} = f32[64]{{0}} abs(a.{k}.{branch})"
        for side in (0, 1):
            yield _add(f"c.{k}.{side}", f"b.{k}.{2 * side}", f"b.{k}.{2 * side + 1}")
        yield _add(f"block.{k + 1}", f"c.{k}.0", f"c.{k}.1")
    yield f"  ROOT out = f32[64]{{0}} negate(block.{blocks})"


def _layered(instructions: int) -> Iterator[str]:
    yield "ENTRY main {"
    yield "  x = f32[64]{0} parameter(0)"
    yield from (_unary(f"v.0.{k}", k, "x") for k in range(LAYER))
    layers = max(1, instructions // LAYER - 1)
    for layer in range(1, layers):
        for k in range(LAYER):
            other = (k * 7 + layer) % LAYER
            yield _add(f"v.{layer}.{k}", f"v.{layer - 1}.{k}", f"v.{layer - 1}.{other}")
    yield from _tree([f"v.{layers - 1}.{k}" for k in range(LAYER)])


def _transformer(instructions: int) -> Iterator[str]:
    yield "sum {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)"
    yield "  ROOT c = f32[] add(a, b)\n}\n\nENTRY main {"
    yield "  block.0 = f32[8,64]{1,0} parameter(0)"
    yield from (f"  w.{k} = f32[64,64]{{1,0}} parameter({k + 1})" for k in range(5))
    yield "  zero = f32[] constant(0)"
    contract = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    scores = "lhs_contracting_dims={1}, rhs_contracting_dims={1}"
    blocks = max(1, instructions // 16)
    for b in range(blocks):
        for k, part in enumerate("qkv"):
            yield f"  {part}.{b} = f32[8,64]{{1,0}} dot(block.{b}, w.{k}), {contract}"
        yield f"  s.{b} = f32[8,8]{{1,0}} dot(q.{b}, k.{b}), {scores}"
        yield f"  e.{b} = f32[8,8]{{1,0}} exponential(s.{b})"
        yield f"  r.{b} = f32[8]{{0}} reduce(e.{b}, zero), dimensions={{1}}, to_apply=sum"
        yield f"  d.{b} = f32[8,8]{{1,0}} broadcast(r.{b}), dimensions={{0}}"
        yield f"  p.{b} = f32[8,8]{{1,0}} divide(e.{b}, d.{b})"
        yield f"  o.{b} = f32[8,64]{{1,0}} dot(p.{b}, v.{b}), {contract}"
        yield f"  m.{b} = f32[8,64]{{1,0}} add(o.{b}, block.{b})"
        yield f"  f.{b} = f32[8,64]{{1,0}} dot(m.{b}, w.3), {contract}"
        yield f"  g.{b} = f32[8,64]{{1,0}} tanh(f.{b})"
        yield f"  h.{b} = f32[8,64]{{1,0}} dot(g.{b}, w.4), {contract}"
        yield f"  i.{b} = f32[8,64]{{1,0}} multiply(h.{b}, f.{b})"
        yield f"  j.{b} = f32[8,64]{{1,0}} subtract(i.{b}, o.{b})"
        yield f"  block.{b + 1} = f32[8,64]{{1,0}} add(j.{b}, m.{b})"
    yield f"  ROOT out = f32[8,64]{{1,0}} negate(block.{blocks})"


SHAPES: dict[str, Callable[[int], Iterator[str]]] = {
    "chain": _chain,
    "wide": _wide,
    "joined": _joined,
    "layered": _layered,
    "transformer": _transformer,
}
