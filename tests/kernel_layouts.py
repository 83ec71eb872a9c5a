"""Programs whose operands and results lie differently, or leave a kernel form little room."""

from __future__ import annotations

from agreement import module, scalar_region

ADD = scalar_region("add", "add", "f32")
SCATTER = (
    "update_window_dims={1,2}, inserted_window_dims={}, scatter_dims_to_operand_dims={0,1}, "
    "index_vector_dim=1, to_apply="
)


def _sums(count: int, dtype: str) -> str:
    """Return a region that adds `count` pairs."""
    terms = " ".join(
        f"a{k} = {dtype}[] parameter({k}) b{k} = {dtype}[] parameter({k + count}) "
        f"c{k} = {dtype}[] add(a{k}, b{k})"
        for k in range(count)
    )
    scalars, names = ", ".join([f"{dtype}[]"] * count), ", ".join(f"c{k}" for k in range(count))
    return f"sums {{ {terms} ROOT t = ({scalars}) tuple({names}) }}\n"


def _many(count: int, dtype: str, shape: str, result: str, unit: str, call: str) -> str:
    """Return a fold of `count` operands; `call` is its opcode, then its attributes."""
    opcode, _, attrs = call.partition(" ")
    operands = " ".join(f"x{k} = {dtype}[{shape}] parameter({k})" for k in range(count))
    names = ", ".join([f"x{k}" for k in range(count)] + ["z"] * count)
    results = ", ".join([f"{dtype}[{result}]"] * count)
    return module(
        f"{operands} z = {dtype}[] constant({unit}) "
        f"ROOT r = ({results}) {opcode}({names}), {attrs}, to_apply=sums",
        _sums(count, dtype),
    )


def nested_fusions(depth: int) -> str:
    """Return fusions in each other, `depth` of them, each at another index than the next."""
    inner = "fused0 { x = f32[4] parameter(0) ROOT y = f32[4] negate(x) }\n"
    others = [
        f"fused{k} {{ x = f32[4] parameter(0) y = f32[4] reverse(x), dimensions={{0}} "
        f"ROOT z = f32[4] fusion(y), kind=kLoop, calls=fused{k - 1} }}\n"
        for k in range(1, depth)
    ]
    entry = f"x = f32[4] parameter(0) ROOT r = f32[4] fusion(x), kind=kLoop, calls=fused{depth - 1}"
    return module(entry, inner, *others)


LAYOUTS: dict[str, str] = {
    "scatter-turned": module(
        "x = f32[9,8]{0,1} parameter(0) i = s32[6,2] parameter(1) u = f32[6,3,2] parameter(2) "
        f"ROOT r = f32[9,8]{{1,0}} scatter(x, i, u), {SCATTER}add",
        ADD,
    ),
    "scatter-turned-slabs": module(
        "x = f32[700,600]{0,1} parameter(0) i = s32[2,2] constant({{0, 3}, {1, 0}}) "
        "u = f32[2,699,500] parameter(1) "
        f"ROOT r = f32[700,600]{{1,0}} scatter(x, i, u), {SCATTER}add",
        ADD,
    ),
    "scatter-turned-pairs": module(
        "x = f32[6,4]{0,1} parameter(0) k = f32[6,4] parameter(1) "
        "i = s32[3,2] constant({{0, 1}, {4, 0}, {1, 2}}) u = f32[3,2,2] parameter(2) "
        "v = f32[3,2,2] parameter(3) "
        f"ROOT r = (f32[6,4]{{1,0}}, f32[6,4]{{0,1}}) scatter(x, k, i, u, v), {SCATTER}sums",
        _sums(2, "f32"),
    ),
    "scatter-into-one": module(
        "x = f32[1] parameter(0) i = s32[1] parameter(1) u = f32[1] parameter(2) "
        "ROOT r = f32[1] scatter(x, i, u), update_window_dims={0}, inserted_window_dims={}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=0, to_apply=add",
        ADD,
    ),
    "cholesky-turned": module(
        "x = f64[2,5]{1,0} parameter(0) t = f64[5,5] dot(x, x), lhs_contracting_dims={0}, "
        "rhs_contracting_dims={0} nine = f64[] constant(9) "
        "i = s32[5,5] iota(), iota_dimension=0 j = s32[5,5] iota(), iota_dimension=1 "
        "on = pred[5,5] compare(i, j), direction=EQ "
        "nines = f64[5,5] broadcast(nine), dimensions={} "
        "d = f64[5,5] add(t, nines) a = f64[5,5]{0,1} select(on, d, t) "
        "ROOT r = f64[5,5]{1,0} cholesky(a), lower=true"
    ),
    "solve-turned": module(
        "x = f64[4,4] parameter(0) b = f64[4,3]{0,1} parameter(1) "
        "i = s32[4,4] iota(), iota_dimension=0 j = s32[4,4] iota(), iota_dimension=1 "
        "on = pred[4,4] compare(i, j), direction=EQ nine = f64[] constant(9) "
        "nines = f64[4,4] broadcast(nine), dimensions={} a = f64[4,4] select(on, nines, x) "
        "ROOT r = f64[4,3]{1,0} triangular-solve(a, b), left_side=true, lower=true, "
        "transpose_a=NO_TRANSPOSE"
    ),
    # In windows that are in order already nothing is merged, and the next window comes at once.
    "sort-nearly-sorted": module(
        "i = s32[5000] iota(), iota_dimension=0 early = s32[] constant(4990) "
        "bound = s32[5000] broadcast(early), dimensions={} "
        "shift = s32[] constant(4900) shifts = s32[5000] broadcast(shift), dimensions={} "
        "late = pred[5000] compare(i, bound), direction=GE low = s32[5000] subtract(i, shifts) "
        "x = s32[5000] select(late, low, i) "
        "ROOT r = s32[5000] sort(x), dimensions={0}, to_apply=down",
        "down { a = s32[] parameter(0) b = s32[] parameter(1) "
        "ROOT r = pred[] compare(a, b), direction=LT }\n",
    ),
    "reduce-columns-of-eight": _many(8, "f64", "64,40", "40", "0", "reduce dimensions={0}"),
    "reduce-rows-of-fifteen": _many(15, "f64", "5000", "", "0", "reduce dimensions={0}"),
    "scan-of-eight": _many(
        8, "c128", "600", "600", "(0, 0)", "reduce-window window={size=600 pad=599_0}"
    ),
}
