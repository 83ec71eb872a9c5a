"""Library calls of XLA:GPU's dumps, against HLO's own operations and JAX."""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import arguments_of, leaves, misfits, module, run_host
from needs import needs_gxx

import hlo2graph
from hlo2graph.backends.cuda.support import check_support
from hlo2graph.backends.host import HostExecutable
from hlo2graph.errors import UnsupportedError, VerifyError
from hlo2graph.program.text.plan import format_plan
from tests.emulation import EmulatedExecutable, Kernels

X, W = "x = f32[4,6]{1,0} parameter(0)", "w = f32[6,8]{1,0} parameter(1)"
PRODUCT = "d = f32[4,8] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}"


def gemm(operands: str, result: str = "f32[4,8]", target: str = "$lt$matmul", **config) -> str:
    """Return the call of a matrix product; the numbers of dimensions are strings, as XLA's are."""
    dims = {
        "lhs_contracting_dimensions": ["1"],
        "rhs_contracting_dimensions": ["0"],
        "lhs_batch_dimensions": [],
        "rhs_batch_dimensions": [],
    }
    held = {"alpha_real": 1, "beta": 0, "dot_dimension_numbers": dims, **config}
    text = json.dumps({"gemm_backend_config": held})
    return (
        f"call = ({result}, s8[16]) custom-call({operands}), "
        f'custom_call_target="__cublas{target}", backend_config={text}'
    )


def first(call: str, result: str = "f32[4,8]") -> str:
    return f"{call} ROOT r = {result} get-tuple-element(call), index=0"


def same(ours: str, plain: str, tolerance: float = 1e-5) -> None:
    """Require that two modules of the same parameters give the same results."""
    arguments = arguments_of(plain)
    for got, want in zip(run_host(ours, arguments), run_host(plain, arguments), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


BIAS = "b = f32[8] parameter(2) bs = f32[4,8] broadcast(b), dimensions={1}"
HALF = "half = f32[] constant(0.5) halves = f32[4,8] broadcast(half), dimensions={}"
ONE = "one = f32[] constant(1) ones = f32[4,8] broadcast(one), dimensions={}"
ZERO = "zero = f32[] constant(0) zeros = f32[4,8] broadcast(zero), dimensions={}"
RELU = f"{ZERO} ROOT r = f32[4,8] maximum(v, zeros)"
SILU = "l = f32[4,8] logistic(v) ROOT r = f32[4,8] multiply(v, l)"
GELU = f"""{HALF} {ONE}
  cube = f32[] constant(0.044715) cubes = f32[4,8] broadcast(cube), dimensions={{}}
  slope = f32[] constant(0.7978845608) slopes = f32[4,8] broadcast(slope), dimensions={{}}
  v2 = f32[4,8] multiply(v, v) v3 = f32[4,8] multiply(v2, v) c3 = f32[4,8] multiply(v3, cubes)
  sum = f32[4,8] add(v, c3) t = f32[4,8] multiply(sum, slopes) th = f32[4,8] tanh(t)
  p = f32[4,8] add(th, ones) q = f32[4,8] multiply(p, v) ROOT r = f32[4,8] multiply(q, halves)"""
PLAIN = "ROOT r = f32[4,8] copy(v)"
EPILOGUES = {"DEFAULT": PLAIN, "RELU": RELU, "GELU": GELU, "SILU": SILU}


@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_epilogues(epilogue):
    ours = module(f"{X} {W} {first(gemm('x, w', epilogue=epilogue))}")
    same(ours, module(f"{X} {W} {PRODUCT} v = f32[4,8] copy(d) {EPILOGUES[epilogue]}"))


@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_epilogues_with_bias(epilogue):
    name = "BIAS" if epilogue == "DEFAULT" else f"BIAS_{epilogue}"
    call = first(gemm("x, w, b", epilogue=name))
    ours = module(f"{X} {W} b = f32[8] parameter(2) {call}")
    same(ours, module(f"{X} {W} {BIAS} {PRODUCT} v = f32[4,8] add(d, bs) {EPILOGUES[epilogue]}"))


@pytest.mark.parametrize("bias", ["", "BIAS_"])
def test_gelu_keeps_what_it_was_given(bias):
    shape = "f32[4,8], f32[4,8]"
    parameter = "b = f32[8] parameter(2)" if bias else ""
    call = gemm("x, w, b" if bias else "x, w", shape, epilogue=f"{bias}GELU_AUX")
    ours = module(f"{X} {W} {parameter} {call} ROOT r = f32[4,8] get-tuple-element(call), index=1")
    added = f"{BIAS} ROOT v = f32[4,8] add(d, bs)" if bias else "ROOT v = f32[4,8] copy(d)"
    same(ours, module(f"{X} {W} {PRODUCT} {added}"))


@pytest.mark.parametrize("target", ["$gemm", "$lt$matmul"])
def test_alpha_beta_and_c(target):
    call = first(gemm("x, w, c", target=target, alpha_real=0.5, beta=2))
    ours = module(f"{X} {W} c = f32[4,8] parameter(2) {call}")
    plain = f"""{X} {W} c = f32[4,8] parameter(2) {PRODUCT} {HALF}
      scaled = f32[4,8] multiply(d, halves) c2 = f32[4,8] add(c, c)
      ROOT r = f32[4,8] add(scaled, c2)"""
    same(ours, module(plain))


def test_the_bias_lies_along_the_fastest_dimension():
    call = gemm("x, w, b", "f32[4,8]{0,1}", epilogue="BIAS")
    ours = module(f"{X} {W} b = f32[4] parameter(2) {first(call, 'f32[4,8]{0,1}')}")
    plain = "b = f32[4] parameter(2) bs = f32[4,8] broadcast(b), dimensions={0}"
    same(ours, module(f"{X} {W} {plain} {PRODUCT} ROOT r = f32[4,8] add(d, bs)"))


def test_batches_and_older_forms_of_the_configuration():
    dims = {
        "lhs_contracting_dimensions": ["2"],
        "rhs_contracting_dimensions": ["1"],
        "lhs_batch_dimensions": ["0"],
        "rhs_batch_dimensions": [0],
    }
    parameters = "x = f16[3,4,6] parameter(0) w = f16[3,6,2] parameter(1)"
    config = json.dumps(json.dumps({"alpha_real": 1, "beta": 0, "dot_dimension_numbers": dims}))
    ours = (
        f"{parameters} ROOT r = f16[3,4,2] custom-call(x, w), "
        f'custom_call_target="__cublas$gemm", backend_config={config}'
    )
    plain = (
        f"{parameters} ROOT r = f16[3,4,2] dot(x, w), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, "
        "lhs_contracting_dims={2}, rhs_contracting_dims={1}"
    )
    same(module(ours), module(plain), 1e-3)


def test_integers_and_complex_numbers():
    integers = "x = s8[4,6] parameter(0) w = s8[6,8] parameter(1)"
    result = "s32[4,8]"
    ours = module(f"{integers} {first(gemm('x, w', result), result)}")
    same(ours, module(f"{integers} ROOT {PRODUCT.replace('f32', 's32')}"), 0)
    numbers, result = "x = c64[4,6] parameter(0) w = c64[6,8] parameter(1)", "c64[4,8]"
    ours = module(f"{numbers} {first(gemm('x, w', result, alpha_real=0, alpha_imag=1), result)}")
    plain = f"""{numbers} {PRODUCT.replace("f32", "c64")} i = c64[] constant((0, 1))
      is = c64[4,8] broadcast(i), dimensions={{}} ROOT r = c64[4,8] multiply(d, is)"""
    same(ours, module(plain))


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (gemm("x, w", epilogue="DRELU"), "the epilogue DRELU is not known"),
        (gemm("x, w", epilogue="RELU_AUX"), "the epilogue RELU_AUX is not known"),
        (gemm("x, w", beta=1), "it takes 3 operands"),
        (gemm("x, w", alpha_real=10**400), "finite numbers"),
        (gemm("x, w", dot_dimension_numbers=7), "no gemm_backend_config"),
        (
            gemm("x, w", epilogue="GELU_AUX").replace("(f32[4,8], s8[16])", "(f32[4,8])"),
            "gives 2 arr",
        ),
        (gemm("x, w").split(", backend")[0], "no gemm_backend_config"),
        (gemm("x, w").split("={")[0] + "={}", "no gemm_backend_config"),
        (gemm("x, w", target="$lt$matmul$f8"), "2 operands and 2 to 4 scales"),
    ],
)
def test_what_a_matrix_product_cannot_mean_is_refused_by_name(call, reason):
    text = module(f"{X} {W} {first(call)}")
    with pytest.raises(UnsupportedError, match="__cublas") as caught:
        hlo2graph.compile(hlo2graph.parse(text), backend="host")
    assert reason in str(caught.value)


def test_shapes_that_do_not_fit_are_refused():
    misfits(module(f"{X} {W} {first(gemm('x, w', 'f32[4,9]'), 'f32[4,9]')}"), "result 0")
    misfits(module(f"{X} {W} {first(gemm('x, x'))}"), "contracting dimensions differ")
    misfits(module(f"{X} {W} {first(gemm('x, w, x', beta=1))}"), "C must have")
    misfits(module(f"{X} {W} {first(gemm('x, w, x', epilogue='BIAS'))}"), "bias")


# ---- convolutions ------------------------------------------------------------------------------

LABELS = ("NHWC", "HWIO", "NHWC")
CASES = {  # strides, padding, kernel dilation, groups
    "plain": ((1, 1), ((1, 1), (1, 1)), (1, 1), 1),
    "strided": ((2, 3), ((1, 1), (0, 2)), (1, 1), 1),
    "dilated": ((1, 2), ((2, 1), (2, 2)), (2, 1), 1),
    "grouped": ((2, 1), ((0, 1), (1, 0)), (1, 2), 2),
}


def conv(target: str, case: str, operands: str, result: str, config: str = "{}") -> str:
    strides, padding, dilation, groups = CASES[case]
    pads = "x".join(f"{low}_{high}" for low, high in padding)
    stride, dilate = ("x".join(map(str, n)) for n in (strides, dilation))
    return (
        f"call = ({result}, u8[0]) custom-call({operands}), "
        f"window={{size=3x2 stride={stride} pad={pads} rhs_dilate={dilate}}}, "
        f"dim_labels=b01f_01io->b01f, feature_group_count={groups}, "
        f'custom_call_target="__cudnn${target}", '
        f'backend_config={{"cudnn_conv_backend_config":{config}}}'
    )


def forward(case: str):
    strides, padding, dilation, groups = CASES[case]
    return lambda x, w: jax.lax.conv_general_dilated(
        x, w, strides, padding, (1, 1), dilation, LABELS, groups
    )


def images(case: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return x, w, and something of the shape of y."""
    rng, groups = np.random.default_rng(0), CASES[case][3]
    x = rng.standard_normal((2, 8, 9, 4)).astype(np.float32)
    w = rng.standard_normal((3, 2, 4 // groups, 6)).astype(np.float32)
    y = forward(case)(x, w)
    return x, w, rng.standard_normal(y.shape).astype(np.float32)


def text_of(array: np.ndarray) -> str:
    return f"f32[{','.join(map(str, array.shape))}]"


def conv_module(target: str, case: str, given: list[np.ndarray], result, config: str = "{}"):
    parameters = [f"p{k} = {text_of(a)} parameter({k})" for k, a in enumerate(given)]
    names = ", ".join(f"p{k}" for k in range(len(given)))
    call = conv(target, case, names, text_of(result), config)
    return module(f"{' '.join(parameters)} {first(call, text_of(result))}")


def call_conv(target: str, case: str, given: list[np.ndarray], result, config: str = "{}"):
    (got,) = run_host(conv_module(target, case, given, result, config), given)
    return got


@pytest.mark.parametrize("case", CASES)
def test_convolutions_and_their_gradients(case):
    x, w, dy = images(case)
    y, gradients = jax.vjp(forward(case), x, w)
    dx, dw = gradients(jnp.asarray(dy))
    close = {"rtol": 1e-4, "atol": 1e-4}
    np.testing.assert_allclose(call_conv("convForward", case, [x, w], y), y, **close)
    np.testing.assert_allclose(call_conv("convBackwardInput", case, [dy, w], x), dx, **close)
    np.testing.assert_allclose(call_conv("convBackwardFilter", case, [x, dy], w), dw, **close)


@pytest.mark.parametrize(
    ("mode", "activation"),
    [
        ("kNone", lambda v: v),
        ("kRelu", jax.nn.relu),
        ("kRelu6", jax.nn.relu6),
        ("kElu", jax.nn.elu),
        ("kLeakyRelu", lambda v: jax.nn.leaky_relu(v, 0.25)),
    ],
)
def test_fused_convolution(mode, activation):
    x, w, side = images("strided")
    bias = np.arange(6, dtype=np.float32)
    config = json.dumps(
        {
            "conv_result_scale": 0.5,
            "side_input_scale": 2,
            "activation_mode": mode,
            "leakyrelu_alpha": 0.25,
        }
    )
    plain = 0.5 * forward("strided")(x, w) + bias
    for given, want in (([], plain), ([side], plain + 2 * side)):
        given = [x, w, bias, *given]
        got = call_conv("convBiasActivationForward", "strided", given, side, config)
        np.testing.assert_allclose(got, activation(want), rtol=1e-4, atol=1e-4)


def test_workspace_is_zero_and_takes_no_memory_unless_it_is_read():
    text = module(f"{X} {W} {first(gemm('x, w'))}")
    plan = hlo2graph.plan(text)
    assert [type(t).__name__ for t in plan.body.thunks] == ["Kernel"]
    assert all(a.kind != "temp" or not a.size for a in plan.allocations)
    assert sum(len(t.writes) for t in plan.body.thunks) == 1
    read = module(f"{X} {W} {gemm('x, w')} ROOT r = s8[16] get-tuple-element(call), index=1")
    (workspace,) = run_compiled(read)
    assert workspace.tolist() == [0] * 16


def run_compiled(text: str) -> list[np.ndarray]:
    got = hlo2graph.compile(hlo2graph.parse(text), backend="host")(*arguments_of(text))
    return leaves(tuple(got) if isinstance(got, tuple | list) else got)


# ---- on the device -----------------------------------------------------------------------------


def on_device() -> dict[str, str]:
    """Return modules of calls that run on the device, each with all of its results."""
    bias, c = "b = f32[8] parameter(2)", "c = f32[4,8] parameter(2)"
    aux = gemm("x, w, b", "f32[4,8], f32[4,8]", epilogue="BIAS_GELU_AUX")
    parts = f"{first(aux)[:-1]}0"
    numbers = "x = c64[4,6] parameter(0) w = c64[6,8] parameter(1)"
    imaginary = first(gemm("x, w", "c64[4,8]", alpha_real=0, alpha_imag=1), "c64[4,8]")
    small = "x = s8[4,6] parameter(0) w = s8[6,8] parameter(1)"
    found = {
        "aux-0": module(f"{X} {W} {bias} {parts}"),
        "aux-1": module(f"{X} {W} {bias} {parts[:-1]}1"),
        "beta": module(f"{X} {W} {c} {first(gemm('x, w, c', alpha_real=0.5, beta=2))}"),
        "complex": module(f"{numbers} {imaginary}"),
        "integers": module(f"{small} {first(gemm('x, w', 's32[4,8]', beta=0), 's32[4,8]')}"),
    }
    for word in EPILOGUES:
        name = "BIAS" if word == "DEFAULT" else f"BIAS_{word}"
        call = first(gemm("x, w, b", epilogue=name))
        found[name] = module(f"{X} {W} {bias} {call}")
    for case in CASES:
        x, w, y = images(case)
        found[f"forward-{case}"] = conv_module("convForward", case, [x, w], y)
        found[f"filter-{case}"] = conv_module("convBackwardFilter", case, [x, y], w)
        if case != "grouped":
            found[f"input-{case}"] = conv_module("convBackwardInput", case, [y, w], x)
    x, w, side = images("strided")
    for mode in ("kNone", "kRelu", "kRelu6", "kElu", "kLeakyRelu"):
        scales = {"conv_result_scale": 0.5, "side_input_scale": 2, "leakyrelu_alpha": 0.25}
        config = json.dumps({**scales, "activation_mode": mode})
        given = [x, w, np.ones(6), side]
        text = conv_module("convBiasActivationForward", "strided", given, side, config)
        found[mode] = text
    return found


@pytest.mark.slow
@needs_gxx
def test_the_device_agrees_with_the_host():
    texts = on_device()
    plans = {name: hlo2graph.plan(text, target="sm_90") for name, text in texts.items()}
    kernels = Kernels(list(plans.values()))
    for name, plan in plans.items():
        arguments = arguments_of(texts[name])
        got, want = EmulatedExecutable(plan, kernels)(*arguments), HostExecutable(plan)(*arguments)
        for ours, theirs in zip(got, want, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4, err_msg=name)


def test_what_runs_on_the_host_only_is_refused_by_name():
    x, w, y = images("grouped")
    text = conv_module("convBackwardInput", "grouped", [y, w], x)
    with pytest.raises(UnsupportedError, match="grouped convolution"):
        check_support(hlo2graph.plan(text, target="sm_90"))


def test_what_a_library_makes_of_its_operands_is_no_matter_of_legal_hlo():
    """XLA's tests, and tools that cut modules apart, write calls that no library would take."""
    text = module(
        f"{X} {W} ROOT r = (f32[4,7], s8[16]) custom-call(x, x), "
        'custom_call_target="__cudnn$convForward", dim_labels=bf_io->bf'
    )
    assert hlo2graph.parse(text).entry.result.opcode == "custom-call"
    misfits(text, "the kernel takes")


def test_a_thunk_sequence_is_held_to_it_too():
    call = "ROOT r = (f32[4,9], s32[4,9]) custom-call(x), custom_call_target="
    planned = format_plan(hlo2graph.plan(module(f'{X} {call}"other"')))
    with pytest.raises(VerifyError, match="TopK returns"):
        hlo2graph.plan(planned.replace("other", "TopK"))
