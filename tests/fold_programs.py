"""Programs whose one kernel folds rows or columns: normalisations and statistics, by shape.

`fold_program(form, dtype, dims, reduced, layout)` returns the text of a module of one fusion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

_REGIONS = """
add { a = T[] parameter(0) b = T[] parameter(1) ROOT r = T[] add(a, b) }
mul { a = T[] parameter(0) b = T[] parameter(1) ROOT r = T[] multiply(a, b) }
most { a = T[] parameter(0) b = T[] parameter(1) ROOT r = T[] maximum(a, b) }
best { a = T[] parameter(0) i = s32[] parameter(1) b = T[] parameter(2) j = s32[] parameter(3)
  more = pred[] compare(a, b), direction=GT
  same = pred[] compare(a, b), direction=EQ
  before = pred[] compare(i, j), direction=LT
  tie = pred[] and(same, before)
  left = pred[] or(more, tie)
  m = T[] select(left, a, b) n = s32[] select(left, i, j)
  ROOT t = (T[], s32[]) tuple(m, n) }
"""


def regions(dtype: str) -> str:
    """Return computations that fold elements of a type: add, mul, most, best."""
    return _REGIONS.replace("T[", f"{dtype}[")


def fold_program(
    form: str, dtype: str, dims: Sequence[int], reduced: Sequence[int], layout: str = ""
) -> str:
    """Return a module whose entry is one fusion, of the form named, over dims."""
    body, result, operands = FORMS[form](_Shapes(dtype, tuple(dims), tuple(reduced), layout))
    parameters = [f"p{k} = {shape} parameter({k})" for k, shape in enumerate(operands)]
    names = ", ".join(f"p{k}" for k in range(len(operands)))
    head = "\n  ".join(parameters)
    return f"""HloModule m
{regions(dtype)}
fused {{
  {head}
{body}
}}
ENTRY e {{
  {head}
  ROOT f = {result} fusion({names}), kind=kInput, calls=fused
}}
"""


class _Shapes:
    """The shapes of a form, as text."""

    def __init__(
        self, dtype: str, dims: tuple[int, ...], reduced: tuple[int, ...], layout: str
    ) -> None:
        kept = [d for d in range(len(dims)) if d not in reduced]
        self.dtype = dtype
        self.full_dims = ",".join(map(str, dims))
        self.full = f"{dtype}[{self.full_dims}]{layout}"
        self.row_dims = ",".join(str(dims[d]) for d in kept)
        self.row = f"{dtype}[{self.row_dims}]"
        self.count = 1
        for d in reduced:
            self.count *= dims[d]
        self.reduced = f"dimensions={{{','.join(map(str, reduced))}}}"
        self.kept = f"dimensions={{{','.join(map(str, kept))}}}"
        self.axis = reduced[-1]
        self.column = f"{dtype}[{dims[self.axis]}]"
        self.axis_size = dims[self.axis]

    def fold(self, name: str, of: str, start: str, region: str) -> str:
        return f"  {name} = {self.row} reduce({of}, {start}), {self.reduced}, to_apply={region}\n"

    def spread(self, name: str, of: str) -> str:
        return f"  {name} = {self.full} broadcast({of}), {self.kept}\n"

    def full_op(self, name: str, opcode: str, *operands: str) -> str:
        return f"  {name} = {self.full} {opcode}({', '.join(operands)})\n"

    def row_op(self, name: str, opcode: str, *operands: str) -> str:
        return f"  {name} = {self.row} {opcode}({', '.join(operands)})\n"

    def scalar(self, name: str, value: object) -> str:
        return f"  {name} = {self.dtype}[] constant({value})\n"

    def row_scalar(self, name: str, value: object) -> str:
        made = self.scalar(f"{name}.0", value)
        return made + f"  {name} = {self.row} broadcast({name}.0), dimensions={{}}\n"

    def along_axis(self, name: str, of: str) -> str:
        return f"  {name} = {self.full} broadcast({of}), dimensions={{{self.axis}}}\n"


_Form = tuple[str, str, list[str]]


def _sum(s: _Shapes) -> _Form:
    body = s.scalar("zero", 2) + s.full_op("n", "abs", "p0")
    return body + s.fold("ROOT r", "n", "zero", "add"), s.row, [s.full]


def _product(s: _Shapes) -> _Form:
    body = s.scalar("one", 1) + s.full_op("c", "cosine", "p0") + s.full_op("n", "add", "c", "c")
    body += s.full_op("q", "divide", "n", "c") + s.full_op("h", "divide", "q", "n")
    return body + s.fold("ROOT r", "h", "one", "mul"), s.row, [s.full]


def _two_sums(s: _Shapes) -> _Form:
    body = (
        s.scalar("zero", 0) + s.row_scalar("n", s.count) + s.full_op("x2", "multiply", "p0", "p0")
    )
    body += s.fold("a", "p0", "zero", "add") + s.fold("b", "x2", "zero", "add")
    body += s.row_op("mean", "divide", "a", "n") + s.row_op("square", "divide", "b", "n")
    body += s.row_op("mm", "multiply", "mean", "mean") + s.row_op("var", "subtract", "square", "mm")
    body += s.full_op("t", "tanh", "p0")
    result = f"({s.row}, {s.full}, {s.row})"
    return f"{body}  ROOT r = {result} tuple(mean, t, var)", result, [s.full]


def _softmax(s: _Shapes) -> _Form:
    body = s.scalar("low", "-inf") + s.scalar("zero", 0) + s.fold("top", "p0", "low", "most")
    body += s.spread("tops", "top") + s.full_op("less", "subtract", "p0", "tops")
    body += s.full_op("grown", "exponential", "less") + s.fold("sum", "grown", "zero", "add")
    body += s.spread("sums", "sum") + s.full_op("ROOT r", "divide", "grown", "sums")
    return body, s.full, [s.full]


def _log_softmax(s: _Shapes) -> _Form:
    body = s.scalar("low", "-inf") + s.scalar("zero", 0) + s.fold("top", "p0", "low", "most")
    body += s.spread("tops", "top") + s.full_op("less", "subtract", "p0", "tops")
    body += s.full_op("grown", "exponential", "less") + s.fold("sum", "grown", "zero", "add")
    body += s.row_op("log", "log", "sum") + s.spread("logs", "log")
    body += s.full_op("out", "subtract", "less", "logs")
    result = f"({s.full}, {s.row})"
    return f"{body}  ROOT r = {result} tuple(out, log)", result, [s.full]


def _layer_norm(s: _Shapes) -> _Form:
    body = s.scalar("zero", 0) + s.row_scalar("n", s.count) + s.row_scalar("e", 1e-3)
    body += s.fold("sum", "p0", "zero", "add") + s.row_op("mean", "divide", "sum", "n")
    body += s.spread("means", "mean") + s.full_op("d", "subtract", "p0", "means")
    body += s.full_op("d2", "multiply", "d", "d") + s.fold("sum2", "d2", "zero", "add")
    body += s.row_op("var", "divide", "sum2", "n") + s.row_op("safe", "add", "var", "e")
    body += s.row_op("scale", "rsqrt", "safe") + s.spread("scales", "scale")
    body += s.full_op("y", "multiply", "d", "scales")
    body += s.along_axis("gs", "p1") + s.along_axis("bs", "p2")
    body += s.full_op("z", "multiply", "y", "gs") + s.full_op("ROOT r", "add", "z", "bs")
    return body, s.full, [s.full, s.column, s.column]


def _rms_norm(s: _Shapes) -> _Form:
    body = s.scalar("zero", 0) + s.row_scalar("n", s.count) + s.row_scalar("e", 1e-3)
    body += s.full_op("x", "add", "p0", "p1") + s.full_op("x2", "multiply", "x", "x")
    body += s.fold("sum", "x2", "zero", "add") + s.row_op("mean", "divide", "sum", "n")
    body += s.row_op("safe", "add", "mean", "e") + s.row_op("scale", "rsqrt", "safe")
    body += s.spread("scales", "scale") + s.full_op("y", "multiply", "x", "scales")
    result = f"({s.full}, {s.full})"
    return f"{body}  ROOT r = {result} tuple(x, y)", result, [s.full, s.full]


def _arg_max(s: _Shapes) -> _Form:
    body = s.scalar("low", "-inf") + "  zero = s32[] constant(0)\n"
    body += f"  i = s32[{s.full_dims}] iota(), iota_dimension={s.axis}\n"
    pair = f"({s.row}, s32[{s.row_dims}])"
    body += f"  ROOT m = {pair} reduce(p0, i, low, zero), {s.reduced}, to_apply=best"
    return body, pair, [s.full]


def _looked_up(s: _Shapes) -> _Form:
    """Sums of a table's elements, at places that are read; branches between the loads."""
    body = s.scalar("zero", 0) + f"  turned = {s.full} reverse(p0), {s.reduced}\n"
    body += s.full_op("size", "abs", "turned")
    body += f"  at = s32[{s.full_dims}] convert(size)\n"
    rank = len(s.full_dims.split(","))
    body += (
        f"  taken = {s.full} gather(p1, at), offset_dims={{}}, collapsed_slice_dims={{0}}, "
        f"start_index_map={{0}}, index_vector_dim={rank}, slice_sizes={{1}}\n"
    )
    body += f"  i = s32[{s.full_dims}] iota(), iota_dimension={s.axis}\n"
    body += "  three.0 = s32[] constant(3)\n"
    body += f"  three = s32[{s.full_dims}] broadcast(three.0), dimensions={{}}\n"
    body += f"  first = pred[{s.full_dims}] compare(i, three), direction=LT\n"
    body += s.full_op("other", "tanh", "p0") + s.full_op("largest", "maximum", "other", "taken")
    body += s.full_op("v", "select", "first", "largest", "size") + s.fold("r", "v", "zero", "add")
    result = f"({s.row}, {s.full})"
    return f"{body}  ROOT t = {result} tuple(r, taken)", result, [s.full, f"{s.dtype}[3]"]


def _reshaped(s: _Shapes) -> _Form:
    """What waits for the totals goes on in other dimensions, row by row."""
    body = s.scalar("zero", 0) + s.full_op("n", "abs", "p0") + s.fold("sum", "n", "zero", "add")
    body += s.spread("sums", "sum") + s.full_op("part", "divide", "n", "sums")
    count = 1
    for n in s.full_dims.split(","):
        count *= int(n)
    flat = f"{s.dtype}[{count}]"
    body += f"  flat = {flat} reshape(part)\n  out = {flat} multiply(flat, p1)\n"
    rows = f"{s.dtype}[1,{count // s.count},1]"
    body += f"  rows = {rows} reshape(sum)\n  logs = {rows} log(rows)\n"
    result = f"({flat}, {rows})"
    return f"{body}  ROOT t = {result} tuple(out, logs)", result, [s.full, flat]


FORMS: dict[str, Callable[[_Shapes], _Form]] = {
    "sum": _sum,
    "product": _product,
    "two_sums": _two_sums,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "arg_max": _arg_max,
    "looked_up": _looked_up,
    "reshaped": _reshaped,
}
