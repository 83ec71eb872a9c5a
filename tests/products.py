"""Dots in every arrangement of dimensions and layouts, for tests with and without a GPU."""

from __future__ import annotations

import itertools

SIZES = {"b": 3, "m": 40, "k": 64, "n": 24}


CUTS = {  # dots with operands that are cut out of others, and how many of those there are
    "heads": (
        "x = f32[640,1536] parameter(0)\n"
        "q = f32[640,512] slice(x), slice={[0:640], [0:512]}\n"
        "k = f32[640,512] slice(x), slice={[0:640], [512:1024]}\n"
        "qs = f32[640,8,64] reshape(q)\nks = f32[640,8,64] reshape(k)\n"
        "ROOT r = f32[8,640,640] dot(qs, ks), lhs_batch_dims={1}, rhs_batch_dims={1}, "
        "lhs_contracting_dims={2}, rhs_contracting_dims={2}",
        1,
    ),
    "one-of-two": (
        "x = f32[720,512] parameter(0)\nw = f32[640,512] parameter(1)\n"
        "s = f32[640,512] slice(x), slice={[64:704], [0:512]}\n"
        "ROOT r = f32[640,640] dot(w, s), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
        2,
    ),
    "every-other-row": (
        "x = f32[1280,512] parameter(0)\nw = f32[512,640] parameter(1)\n"
        "s = f32[640,512] slice(x), slice={[0:1280:2], [0:512]}\n"
        "ROOT r = f32[640,640] dot(s, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        2,
    ),
}


def dot_text(
    lhs: str, rhs: str, layouts: tuple[str, str, str], dtype: str = "f32", out: str = "", **sizes
) -> str:
    """Return a module of one dot.

    lhs and rhs name their dimensions in order, `bmk` and `bkn` in any; layouts give, for lhs, rhs
    and result, the dimensions from major to minor. Without `b` there is no batch. `out` is the
    result's element type where it differs.
    """
    size = SIZES | sizes
    kept = "".join(c for c in "bmn" if c in lhs + rhs)
    shapes = [
        f"{element}[{','.join(str(size[c]) for c in dims)}]"
        f"{{{','.join(str(dims.index(c)) for c in reversed(layout))}}}"
        for element, dims, layout in zip(
            (dtype, dtype, out or dtype), (lhs, rhs, kept), layouts, strict=True
        )
    ]
    attrs = [
        f"lhs_contracting_dims={{{lhs.index('k')}}}",
        f"rhs_contracting_dims={{{rhs.index('k')}}}",
    ]
    if "b" in lhs:
        attrs += [f"lhs_batch_dims={{{lhs.index('b')}}}", f"rhs_batch_dims={{{rhs.index('b')}}}"]
    a, b, c = shapes
    return (
        f"HloModule dots\nENTRY main {{\n  a = {a} parameter(0)\n  b = {b} parameter(1)\n"
        f"  ROOT d = {c} dot(a, b), {', '.join(attrs)}\n}}\n"
    )


def arrangements() -> list[str]:
    """Return modules of one dot: all orders of dimensions, and all layouts of three of them."""
    texts = [
        dot_text("".join(lhs), "".join(rhs), ("".join(lhs), "".join(rhs), out))
        for lhs in itertools.permutations("mk")
        for rhs in itertools.permutations("kn")
        for out in ("mn", "nm")
    ]
    texts += [
        dot_text("".join(lhs), rhs, ("".join(lhs), rhs, out))
        for lhs in itertools.permutations("bmk")
        if lhs[-1] != "b"  # rows and columns with neither side by side: no library reads that
        for rhs in ("bkn", "nbk", "kbn")
        for out in ("bmn", "bnm", "mbn")
    ]
    texts.append(dot_text("mk", "kn", ("mk", "kn", "mn"), m=1, k=4096, n=64))
    texts.append(dot_text("mk", "kn", ("km", "nk", "mn"), m=64, k=4096, n=1))
    texts.append(dot_text("km", "nk", ("km", "nk", "nm"), m=1, k=8192, n=17))
    return texts
