"""Small programs that bring each device rule and each kernel form to its edges."""

from __future__ import annotations

from agreement import ARGMAX, module, scalar_region
from kernel_layouts import LAYOUTS

ADD = scalar_region("add", "add", "f32")
MAXIMUM = scalar_region("max", "maximum", "f32")
LATER = "later { a = f32[] parameter(0) ROOT b = f32[] parameter(1) }\n"
FIRST = (
    "first { a = f32[] parameter(0) b = f32[] parameter(1) c = s32[] parameter(2) "
    "d = s32[] parameter(3) ROOT r = pred[] compare(a, b), direction=LT }\n"
)
DOWN = (
    "down { a = s8[] parameter(0) b = s8[] parameter(1) "
    "ROOT r = pred[] compare(a, b), direction=GT }\n"
)


def _scatter(dims: str, indices: str, updates: str, rest: str, region: str) -> str:
    return module(
        f"""
        x = f32[{dims}] parameter(0) raw = s32[{indices}] parameter(1)
        u = f32[{updates}] parameter(2)
        ROOT r = f32[{dims}] scatter(x, raw, u), {rest}, to_apply={region}""",
        ADD,
        LATER,
    )


def _solve(dtype: str, left: str, lower: str, transpose: str, unit: str) -> str:
    dims = "2,5,3" if left == "true" else "2,3,5"
    three = "(3, 1)" if dtype == "c64" else "3"
    return module(
        f"""
        raw = {dtype}[2,5,5] parameter(0) b = {dtype}[{dims}] parameter(1)
        three = {dtype}[] constant({three})
        threes = {dtype}[2,5,5] broadcast(three), dimensions={{}}
        i = s32[5,5] iota(), iota_dimension=0 j = s32[5,5] iota(), iota_dimension=1
        on = pred[5,5] compare(i, j), direction=EQ
        ons = pred[2,5,5] broadcast(on), dimensions={{1,2}}
        a = {dtype}[2,5,5] select(ons, threes, raw)
        ROOT r = {dtype}[{dims}] triangular-solve(a, b), left_side={left}, lower={lower},
          transpose_a={transpose}, unit_diagonal={unit}"""
    )


def _cholesky(dtype: str, lower: str) -> str:
    return module(
        f"""
        a = {dtype}[2,6,6] parameter(0)
        t = {dtype}[2,6,6] dot(a, a), lhs_batch_dims={{0}}, rhs_batch_dims={{0}},
          lhs_contracting_dims={{2}}, rhs_contracting_dims={{2}}
        nine = {dtype}[] constant(9) nines = {dtype}[2,6,6] broadcast(nine), dimensions={{}}
        i = s32[6,6] iota(), iota_dimension=0 j = s32[6,6] iota(), iota_dimension=1
        on = pred[6,6] compare(i, j), direction=EQ
        ons = pred[2,6,6] broadcast(on), dimensions={{1,2}}
        zero = {dtype}[] constant(0) zeros = {dtype}[2,6,6] broadcast(zero), dimensions={{}}
        d = {dtype}[2,6,6] select(ons, nines, zeros) s = {dtype}[2,6,6] add(t, d)
        ROOT r = {dtype}[2,6,6] cholesky(s), lower={lower}"""
    )


def _fft(kind: str, source: str, target: str, length: str) -> str:
    return module(
        f"x = {source} parameter(0) "
        f"ROOT r = {target} fft(x), fft_type={kind}, fft_length={{{length}}}"
    )


def _bits(dtype: str, dims: str, algorithm: str, state: int) -> str:
    return module(
        f"s = u64[{state}] parameter(0) ROOT r = (u64[{state}], {dtype}[{dims}]) "
        f"rng-bit-generator(s), algorithm={algorithm}"
    )


def _rounded_dot(dtype: str, m: int, k: int, n: int, result: str) -> str:
    """Factors that are no whole numbers, in a type that the result does not have."""
    return module(
        f"a = {dtype}[{m},{k}] parameter(0) b = {dtype}[{k},{n}] parameter(1) "
        f"ROOT r = {result}[{m},{n}] dot(a, b), {PLAIN}"
    )


def _dot(dtype: str, lhs: str, rhs: str, result: str, attrs: str) -> str:
    return module(
        f"a = {dtype}[{lhs} parameter(0) b = {dtype}[{rhs} parameter(1) "
        f"ROOT r = {dtype}[{result} dot(a, b), {attrs}"
    )


def long_fusion(length: int) -> str:
    """Return a fusion of `length` instructions in a row, every other one at another index."""
    lines, last = [], "p"
    for k in range(length):
        opcode = "negate" if k % 2 else "reverse"
        attrs = "" if k % 2 else ", dimensions={0}"
        root = "ROOT " if k + 1 == length else ""
        lines.append(f"  {root}i{k} = f32[4] {opcode}({last}){attrs}")
        last = f"i{k}"
    body = "fused {\n  p = f32[4] parameter(0)\n" + "\n".join(lines) + "\n}"
    return module(
        "x = f32[4] parameter(0) ROOT r = f32[4] fusion(x), kind=kLoop, calls=fused", body
    )


def shared_fusion(depth: int) -> str:
    """Return a fusion whose every value is used twice: 2^depth paths, `depth` instructions."""
    lines = [f"  d{k + 1} = f32[4] add(d{k}, d{k})" for k in range(depth)]
    body = "fused {\n  d0 = f32[4] parameter(0)\n" + "\n".join(lines)
    body += f"\n  ROOT r = f32[4] negate(d{depth})\n}}"
    return module(
        "x = f32[4] parameter(0) ROOT r = f32[4] fusion(x), kind=kLoop, calls=fused", body
    )


BATCH = "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}"
PLAIN = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
NORM = "epsilon=0.001, feature_index=1"

PROGRAMS: dict[str, str] = LAYOUTS | {
    "sort-long": module(
        "x = f32[2,5000] parameter(0) i = s32[2,5000] iota(), iota_dimension=1 "
        "ROOT r = (f32[2,5000], s32[2,5000]) sort(x, i), dimensions={1}, to_apply=first",
        FIRST,
    ),
    "sort-columns": module(
        "x = f32[7,33] parameter(0) i = s32[7,33] iota(), iota_dimension=0 "
        "ROOT r = (f32[7,33], s32[7,33]) sort(x, i), dimensions={0}, to_apply=first",
        FIRST,
    ),
    "sort-equals": module(
        "x = s8[3000,2] parameter(0) ROOT r = s8[3000,2] sort(x), dimensions={0}, to_apply=down",
        DOWN,
    ),
    "sort-fused": module(
        "x = f32[9] parameter(0) ROOT r = (f32[9], s32[9]) fusion(x), kind=kLoop, calls=fused",
        FIRST,
        "fused { p = f32[9] parameter(0) n = f32[9] negate(p) i = s32[9] iota(), iota_dimension=0 "
        "ROOT s = (f32[9], s32[9]) sort(n, i), dimensions={0}, to_apply=first }",
    ),
    "topk": module(
        "x = f32[3,700] parameter(0) ROOT r = (f32[3,40], s32[3,40]) topk(x), k=40, largest=true"
    ),
    "topk-many": module(
        "x = f32[2,1600] parameter(0) ROOT r = (f32[2,1100], s32[2,1100]) "
        "topk(x), k=1100, largest=false"
    ),
    "topk-ties": module(
        "x = s8[2,300] parameter(0) ROOT r = (s8[2,300], s32[2,300]) topk(x), k=300, largest=true"
    ),
    "scatter-scalars": _scatter(
        "500",
        "900,1",
        "900",
        "update_window_dims={}, "
        "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1",
        "add",
    ),
    "scatter-windows": _scatter(
        "8,9",
        "6,2",
        "6,3,2",
        "update_window_dims={1,2}, "
        "inserted_window_dims={}, scatter_dims_to_operand_dims={0,1}, index_vector_dim=1",
        "add",
    ),
    "scatter-last-wins": _scatter(
        "9,5",
        "7",
        "7,5",
        "update_window_dims={1}, "
        "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1",
        "later",
    ),
    "scatter-batched": _scatter(
        "3,9",
        "3,4,1",
        "3,4",
        "update_window_dims={}, "
        "inserted_window_dims={1}, input_batching_dims={0}, scatter_indices_batching_dims={0}, "
        "scatter_dims_to_operand_dims={1}, index_vector_dim=2",
        "add",
    ),
    "scatter-pairs": module(
        "x = f32[6] parameter(0) k = s32[6] parameter(1) i = s32[5,1] parameter(2) "
        "u = f32[5] parameter(3) v = s32[5] parameter(4) "
        "ROOT r = (f32[6], s32[6]) scatter(x, k, i, u, v), update_window_dims={}, "
        "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
        "to_apply=pick",
        ARGMAX.replace("largest", "pick").replace(
            "i = s32[] parameter(1) b = f32[] parameter(2)",
            "i = s32[] parameter(1) b = f32[] parameter(2)",
        ),
    ),
    "scatter-wide-rows": _scatter(
        "40,600",
        "9,1",
        "9,600",
        "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
        "index_vector_dim=1",
        "add",
    ),
    "topk-doubles": module(
        "x = f64[2,90] parameter(0) ROOT r = (f64[2,7], s32[2,7]) topk(x), k=7, largest=false"
    ),
    "topk-of-a-long-row": module(
        "x = s8[1,8300] parameter(0) ROOT r = (s8[1,70], s32[1,70]) topk(x), k=70, largest=true"
    ),
    "topk-few-halves": module(
        "x = f16[3,900] parameter(0) ROOT r = (f16[3,2], s32[3,2]) topk(x), k=2, largest=true"
    ),
    "topk-few-ties": module(
        "x = u4[5,70] parameter(0) ROOT r = (u4[5,6], s32[5,6]) topk(x), k=6, largest=false"
    ),
    "dot-one-row": _dot("f32", "1,300]", "300,50]", "1,50]", PLAIN),
    "dot-one-column": _dot("bf16", "70,200]", "200,1]", "70,1]", PLAIN),
    "dot-few-results": _dot("c64", "2,64]", "64,3]{0,1}", "2,3]", PLAIN),
    "dot-long-sum": _dot("f32", "3,2000]", "2000,2]", "3,2]", PLAIN),
    "reduce-to-one": module(
        "x = f32[70,90] parameter(0) z = f32[] constant(0.5) ROOT r = f32[] reduce(x, z), "
        "dimensions={0,1}, to_apply=add",
        ADD,
    ),
    "reduce-columns": module(
        "x = f32[300,5] parameter(0) z = f32[] constant(0.5) ROOT r = f32[5] reduce(x, z), "
        "dimensions={0}, to_apply=add",
        ADD,
    ),
    "cumulative-sum": module(
        "x = f32[1500,2] parameter(0) z = f32[] constant(0) "
        "ROOT r = f32[1500,2] reduce-window(x, z), window={size=1500x1 pad=1499_0x0_0}, "
        "to_apply=add",
        ADD,
    ),
    "cumulative-max-backwards": module(
        "x = f32[2,70] parameter(0) z = f32[] constant(-inf) "
        "ROOT r = f32[2,70] reduce-window(x, z), window={size=1x70 pad=0_0x0_69}, to_apply=max",
        MAXIMUM,
    ),
    "dot-tiled-batched": _dot("f32", "3,70,50]", "3,50,33]", "3,70,33]", BATCH),
    "dot-tiled-bf16": _dot("bf16", "40,90]", "90,17]{0,1}", "40,17]", PLAIN),
    "dot-tiled-s8": _dot("s8", "20,30]", "30,20]", "20,20]", PLAIN),
    "dot-tiled-c64": _dot("c64", "20,30]", "30,20]", "20,20]", PLAIN),
    "dot-tiled-s4": _dot("s4", "16,16]", "16,16]", "16,16]", PLAIN),
    "cholesky-of-none": module(
        "a = f32[0,2,2] parameter(0) ROOT r = f32[0,2,2] cholesky(a), lower=true"
    ),
    "dot-to-integers-small": _rounded_dot("f32", 2, 5, 3, "s32"),
    "dot-to-integers-row": _rounded_dot("bf16", 1, 300, 5, "s64"),
    "dot-to-integers-few": _rounded_dot("f32", 2, 64, 300, "s32"),
    "dot-to-integers-tiled": _rounded_dot("f64", 40, 50, 33, "s16"),
    "dot-to-floats-tiled": _rounded_dot("f64", 40, 50, 33, "f32"),
    "convolution-to-integers": module(
        "a = f32[1,5,5,3] parameter(0) b = f32[3,3,3,4] parameter(1) "
        "ROOT r = s32[1,3,3,4] convolution(a, b), window={size=3x3}, dim_labels=b01f_01io->b01f"
    ),
    "dot-epilogue": module(
        "a = f32[33,40] parameter(0) b = f32[40,20] parameter(1) c = f32[33,20] parameter(2) "
        "ROOT r = f32[33,20] fusion(a, b, c), kind=kOutput, calls=fused",
        "fused { a = f32[33,40] parameter(0) b = f32[40,20] parameter(1) c = f32[33,20] "
        "parameter(2) n = f32[33,40] negate(a) d = f32[33,20] dot(n, b), " + PLAIN + " "
        "ROOT s = f32[33,20] add(d, c) }",
    ),
    "reduce-epilogue": module(
        "x = f32[9,300] parameter(0) ROOT r = (f32[9], f32[9]) fusion(x), kind=kInput, calls=fused",
        ADD,
        "fused { x = f32[9,300] parameter(0) z = f32[] constant(1) s = f32[9] reduce(x, z), "
        "dimensions={1}, to_apply=add n = f32[9] negate(s) ROOT t = (f32[9], f32[9]) tuple(n, s) }",
    ),
    "nested-fusion": module(
        "x = f32[6] parameter(0) ROOT r = f32[6] fusion(x), kind=kLoop, calls=outer",
        "inner { p = f32[6] parameter(0) q = f32[6] parameter(1) "
        "d = f32[6] subtract(p, q) m = f32[6] multiply(p, q) "
        "ROOT t = (f32[6], f32[6]) tuple(d, m) }",
        "outer { x = f32[6] parameter(0) c = f32[6] constant({1, -2, inf, 4, nan, 6}) "
        "i = (f32[6], f32[6]) fusion(x, c), kind=kLoop, calls=inner "
        "a = f32[6] get-tuple-element(i), index=0 b = f32[6] get-tuple-element(i), index=1 "
        "v = f32[6] reverse(b), dimensions={0} ROOT s = f32[6] add(a, v) }",
    ),
    "array-constants": module(
        "x = s32[3] parameter(0) ROOT r = (f16[3], c128[2], s4[3], pred[3]) fusion(x), kind=kLoop, "
        "calls=fused",
        "fused { x = s32[3] parameter(0) h = f16[3] constant({1, inf, -0}) "
        "z = c128[2] constant({(1, 2), (inf, -3)}) s = s4[3] constant({-8, 7, 1}) "
        "p = pred[3] constant({true, false, true}) nh = f16[3] negate(h) nz = c128[2] negate(z) "
        "ns = s4[3] add(s, s) np = pred[3] not(p) "
        "ROOT t = (f16[3], c128[2], s4[3], pred[3]) tuple(nh, nz, ns, np) }",
    ),
    "update-in-place": module(
        "x = f32[8,3] parameter(0) u = f32[2,3] parameter(1) i = s32[] parameter(2) "
        "z = s32[] constant(0) n = f32[8,3] negate(x) "
        "d = f32[8,3] dynamic-update-slice(n, u, i, z) ROOT e = f32[8,3] exponential(d)"
    ),
    "starts-in-a-vector": module(
        "x = f32[8,3] parameter(0) i = s32[2] parameter(1) u = f32[2,2] parameter(2) "
        "s = f32[4,2] dynamic-slice(x, i), dynamic_slice_sizes={4,2} "
        "d = f32[8,3] dynamic-update-slice(x, u, i) "
        "ROOT t = (f32[4,2], f32[8,3]) tuple(s, d)"
    ),
    "bitcast-widths": module(
        "x = f32[3] parameter(0) y = s8[5] parameter(1) "
        "h = u16[3,2] bitcast-convert(x) b = u8[3,2,2] bitcast-convert(h) "
        "n = s4[5,2] bitcast-convert(y) back = s8[5] bitcast-convert(n) "
        "b2 = u8[3,4] reshape(b) w = u32[3] bitcast-convert(b2) "
        "ROOT t = (u16[3,2], u8[3,2,2], s4[5,2], s8[5], u32[3]) tuple(h, b, n, back, w)"
    ),
    "select-and-scatter": module(
        "x = f32[7,6] parameter(0) s = f32[3,3] parameter(1) z = f32[] constant(0.5) "
        "ROOT r = f32[7,6] select-and-scatter(x, s, z), window={size=3x2 stride=2x2}, "
        "select=larger, scatter=add",
        ADD,
        "larger { a = f32[] parameter(0) b = f32[] parameter(1) "
        "ROOT r = pred[] compare(a, b), direction=GE }",
    ),
    "select-and-scatter-overlap": module(
        "x = f32[8] parameter(0) s = f32[8] parameter(1) z = f32[] constant(0) "
        "ROOT r = f32[8] select-and-scatter(x, s, z), window={size=3 pad=1_1}, "
        "select=larger, scatter=add",
        ADD,
        "larger { a = f32[] parameter(0) b = f32[] parameter(1) "
        "ROOT r = pred[] compare(a, b), direction=GE }",
    ),
    "batch-norm-training": module(
        "x = f32[4,3,5] parameter(0) s = f32[3] parameter(1) o = f32[3] parameter(2) "
        f"ROOT r = (f32[4,3,5], f32[3], f32[3]) batch-norm-training(x, s, o), {NORM}"
    ),
    "batch-norm-grad": module(
        "x = f32[4,3,5] parameter(0) s = f32[3] parameter(1) m = f32[3] parameter(2) "
        "raw = f32[3] parameter(3) g = f32[4,3,5] parameter(4) v = f32[3] abs(raw) "
        f"ROOT r = (f32[4,3,5], f32[3], f32[3]) batch-norm-grad(x, s, m, v, g), {NORM}"
    ),
    "batch-norm-bf16": module(
        "x = bf16[4,3,5] parameter(0) s = bf16[3] parameter(1) o = bf16[3] parameter(2) "
        f"ROOT r = (bf16[4,3,5], bf16[3], bf16[3]) batch-norm-training(x, s, o), {NORM}"
    ),
    "cholesky-lower": _cholesky("f32", "true"),
    "cholesky-upper": _cholesky("f64", "false"),
    "cholesky-indefinite": module(
        "a = f32[2,3,3] parameter(0) n = f32[2,3,3] negate(a) b = f32[2,3,3] multiply(a, n) "
        "ROOT r = f32[2,3,3] cholesky(b), lower=true"
    ),
    "ragged-dot-rows": module(
        "a = f32[7,4] parameter(0) b = f32[3,4,5] parameter(1) g = s32[3] constant({2, 4, 0}) "
        "ROOT r = f32[7,5] ragged-dot(a, b, g), lhs_contracting_dims={1}, "
        "rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}"
    ),
    "ragged-dot-steps": module(
        "a = f32[5,7] parameter(0) b = f32[7,4] parameter(1) g = s32[3] constant({2, 4, 1}) "
        "ROOT r = f32[3,5,4] ragged-dot(a, b, g), lhs_contracting_dims={1}, "
        "rhs_contracting_dims={0}, lhs_ragged_dims={1}"
    ),
    "scaled-dot": module(
        "a = bf16[3,8] parameter(0) b = f32[8,5] parameter(1) s = f32[3,2] parameter(2) "
        "t = bf16[] parameter(3) ROOT r = f32[3,5] scaled-dot(a, b, s, t), "
        "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    ),
    "complex-order": module(
        "a = c64[40] parameter(0) b = c64[40] parameter(1) "
        "x = c64[40] maximum(a, b) n = c64[40] minimum(a, b) "
        "ROOT t = (c64[40], c64[40]) tuple(x, n)"
    ),
    "precision": module(
        "a = f32[60] parameter(0) b = f64[60] parameter(1) c = f16[60] parameter(2) "
        "d = bf16[60] parameter(3) e = f8e4m3fn[60] parameter(4) "
        "ra = f32[60] reduce-precision(a), exponent_bits=5, mantissa_bits=10 "
        "rb = f64[60] reduce-precision(b), exponent_bits=8, mantissa_bits=3 "
        "rc = f16[60] reduce-precision(c), exponent_bits=5, mantissa_bits=3 "
        "rd = bf16[60] reduce-precision(d), exponent_bits=2, mantissa_bits=0 "
        "re = f8e4m3fn[60] reduce-precision(e), exponent_bits=3, mantissa_bits=2 "
        "ROOT t = (f32[60], f64[60], f16[60], bf16[60], f8e4m3fn[60]) tuple(ra, rb, rc, rd, re)"
    ),
    "stochastic": module(
        "a = f32[90] parameter(0) u = u32[90] parameter(1) b = f16[90] parameter(2) "
        "v = u16[90] parameter(3) h = bf16[90] stochastic-convert(a, u) "
        "i = s8[90] stochastic-convert(a, u) q = f8e5m2[90] stochastic-convert(b, v) "
        "ROOT t = (bf16[90], s8[90], f8e5m2[90]) tuple(h, i, q)"
    ),
    "no-elements": module(
        "x = f32[0,3] parameter(0) z = f32[] constant(2) ROOT r = f32[3] reduce(x, z), "
        "dimensions={0}, to_apply=add",
        ADD,
    ),
    "shared-values": shared_fusion(60),
}
PROGRAMS |= {
    f"solve-{dtype}-{left}-{lower}-{transpose}-{unit}": _solve(dtype, left, lower, transpose, unit)
    for dtype, left, lower, transpose, unit in (
        ("f32", "true", "true", "NO_TRANSPOSE", "false"),
        ("f32", "true", "false", "TRANSPOSE", "true"),
        ("f64", "false", "true", "TRANSPOSE", "false"),
        ("f32", "false", "false", "NO_TRANSPOSE", "false"),
        ("c64", "true", "true", "ADJOINT", "false"),
        ("c64", "false", "false", "ADJOINT", "true"),
    )
}
PROGRAMS |= {
    f"fft-{kind}-{length}".replace(",", "x"): _fft(kind, source, target, length)
    for kind, source, target, length in (
        ("FFT", "c64[2,12]", "c64[2,12]", "12"),
        ("IFFT", "c128[3,4,5]", "c128[3,4,5]", "4,5"),
        ("RFFT", "f32[2,9]", "c64[2,5]", "9"),
        ("RFFT", "f64[4,3,8]", "c128[4,3,5]", "4,3,8"),
        ("IRFFT", "c64[2,5]", "f32[2,9]", "9"),
        ("IRFFT", "c64[3,4,5]", "f32[3,4,8]", "3,4,8"),
    )
}
PROGRAMS |= {
    f"bits-{algorithm}-{dtype}-{dims or 'scalar'}".replace(",", "x"): _bits(
        dtype, dims, algorithm, state
    )
    for algorithm, state in (("rng_three_fry", 2), ("rng_philox", 3), ("rng_default", 2))
    for dtype, dims in (
        ("u32", "5,6"),
        ("u64", "7"),
        ("u16", "3,5"),
        ("f32", "8"),
        ("s4", "9"),
        ("u8", ""),
    )
}
