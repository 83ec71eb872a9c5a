"""`hlo2graph.jax`: functions of JAX as graphs, on the host, held against `jax.jit`."""

from __future__ import annotations

import importlib
import warnings
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo2graph.jax
from hlo2graph.backends.host import HostExecutable
from hlo2graph.errors import BackendError, HloError, InputError, UnsupportedError

X = jnp.linspace(-1.0, 1.0, 12, dtype=jnp.float32).reshape(3, 4)
W = jnp.full((4, 2), 0.5, jnp.float32)
TABLE = np.linspace(0.0, 1.0, 12, dtype=np.float32).reshape(3, 4)

jit = partial(hlo2graph.jax.jit, backend="host")


@pytest.fixture(autouse=True)
def narrow():
    with jax.enable_x64(False):
        yield


def words(array):
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    return np.asarray(array, np.float64)


def same(found, want):
    assert jax.tree.structure(found) == jax.tree.structure(want)
    for got, wanted in zip(jax.tree.leaves(found), jax.tree.leaves(want), strict=True):
        assert isinstance(got, jax.Array)
        assert (got.aval, got.committed) == (wanted.aval, wanted.committed)
        np.testing.assert_allclose(words(got), words(wanted), rtol=1e-5, atol=1e-6)


def loss(w, x):
    return jnp.mean(jnp.tanh(x @ w) ** 2)


FUNCTIONS = {
    "tree": (lambda p, x: {"y": x @ p["w"], "none": [p["b"], (x.sum(),)]}, {"w": W, "b": None}, X),
    "closed-over": (lambda x: x * TABLE + jnp.asarray(TABLE).sum(), X),
    "weak": (lambda n: (n * 2, n + 1.0), 3),
    "numbers": (lambda a, b, c: (a + b, c), 1, 2.5, True),
    "complex": (lambda c: jnp.abs(c * 1j), 1 + 2j),
    "bfloat16": (lambda x: x.astype(jnp.bfloat16) * 3, X),
    "bfloat16-in": (lambda x: x + 1, X.astype(jnp.bfloat16)),
    "float8": (lambda x: x.astype(jnp.float8_e4m3fn), X),
    "integers": (lambda x: (x.astype(jnp.int8), x.astype(jnp.uint32) // 2), X * 10),
    "predicates": (lambda x: x > 0, X),
    "key": (lambda k: (jax.random.split(k), jax.random.normal(k, (5,))), jax.random.key(3)),
    "old-key": (lambda k: jax.random.uniform(k, (5,)), jax.random.PRNGKey(3)),
    "keys-in-tree": (lambda t: jax.random.fold_in(t["k"][1], 7), {"k": [X, jax.random.key(1)]}),
    "gradient": (jax.value_and_grad(loss), W, X),
    "hessian": (jax.hessian(loss), W, X),
    "vmap": (jax.vmap(lambda x: jnp.sort(x)[::-1]), X),
    "scan": (lambda x: jax.lax.scan(lambda c, y: (c + y, c * y), jnp.zeros(4), x), X),
    "while": (lambda n: jax.lax.while_loop(lambda v: v < 100, lambda v: v * 2, n), jnp.int32(3)),
    "cond": (lambda x: jax.lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x), X),
    "linear-algebra": (lambda x: jnp.linalg.cholesky(x @ x.T + jnp.eye(3)), X),
    "inner-jit": (lambda x: jax.jit(lambda y: y + 1)(x) * jax.jit(jnp.sin)(x), X),
    "no-arguments": (lambda: jnp.arange(4),),
    "no-results": (lambda x: None, X),
    "argument-as-result": (lambda x: (x, x), X),
    "unused": (lambda x, y: y * 2, X, W),
    "empty": (lambda x: x.sum(0), jnp.zeros((0, 3), jnp.float32)),
    "numpy": (lambda x, y: x + y, TABLE, np.float64(1)),
    "scalars": (lambda x: x.sum(), X),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_equals_jax_jit(name):
    f, *args = FUNCTIONS[name]
    found = jit(f)
    want = jax.jit(f)(*args)
    same(found(*args), want)
    same(found(*args), want)
    (program,) = found._programs.values()
    assert isinstance(program.executable, HostExecutable)


def test_double_precision_is_a_program_of_its_own():
    f = jit(lambda x: x / 3 + 1)
    narrow = f(np.float64([1, 2]))
    with jax.enable_x64(True):
        wide = f(np.float64([1, 2]))
        same(wide, jax.jit(f.__wrapped__)(np.float64([1, 2])))
    assert (narrow.dtype, wide.dtype) == (jnp.float32, jnp.float64)
    assert len(f._programs) == 2


@pytest.mark.parametrize(
    ("args", "programs"),
    [
        ([(X,), (X + 1,), (np.asarray(X),)], 1),
        ([(X,), (W,)], 2),
        ([(X,), (X.astype(jnp.bfloat16),)], 2),
        ([(3.0,), (4.0,), (jnp.float32(4),)], 2),
        ([([X, X],), ((X, X),)], 2),
        ([(X, None), (X, X)], 2),
    ],
    ids=("same", "shape", "dtype", "weak-type", "container", "none"),
)
def test_compiles_anew_for_each_kind_of_arguments(args, programs):
    f = jit(lambda *a: jax.tree.map(lambda leaf: leaf * 2, a))
    for given in args:
        same(f(*given), jax.jit(f.__wrapped__)(*given))
    assert len(f._programs) == programs


STATIC = [
    {"static_argnums": 1},
    {"static_argnums": (-1,)},
    {"static_argnames": "power"},
    {"static_argnames": ["power"]},
]


@pytest.mark.parametrize("flags", STATIC, ids=str)
def test_static_arguments(flags):
    def f(x, power=2):
        return x**power if isinstance(power, int) else x

    found = jit(f, **flags)
    for power in (2, 3, 2):
        same(found(X, power), X**power)
    if flags.get("static_argnums") != (-1,):
        same(found(X, power=3), X**3)
        same(found(power=3, x=X), X**3)
    assert all(program is not None for program in found._programs.values())


def test_static_arguments_of_equal_value_but_other_type():
    f = jit(lambda x, n: x * (2 if type(n) is int else 3), static_argnums=1)
    same((f(X, 1), f(X, 1.0), f(X, True)), (X * 2, X * 3, X * 3))


def test_static_arguments_must_be_hashable():
    with pytest.raises(ValueError, match="hashable"):
        jit(lambda x, n: x, static_argnums=1)(X, [])


def test_donated_arguments_are_gone():
    f = jit(lambda x, y: (x + y["a"], y["b"]), donate_argnums=0, donate_argnames="y")
    x, y = X + 0, {"a": X + 1, "b": X + 2}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Some donated buffers were not usable")
        found = f(x, y=y)
    same(found[0], X + X + 1)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves((x, y)))
    same(f(np.asarray(X), y={"a": X + 1, "b": X + 2})[0], X + X + 1)


def test_arguments_are_not_written():
    f = jit(lambda x: x.at[0].set(5.0))
    x = X + 0
    f(x)
    same(x, X + 0)


def test_what_is_closed_over_is_kept_as_it_was():
    table = np.ones(4, np.float32)
    f = jit(lambda x: x * table)
    f(X)
    table[:] = 5
    same(f(X), X)


def test_functions_that_call_themselves():
    @partial(jit, static_argnums=0)
    def factorial(n):
        return jnp.int32(1) if n == 0 else n * factorial(n - 1)

    for _ in range(2):
        assert factorial(5) == 120
        assert factorial(3) == 6


def test_results_keep_their_values():
    f = jit(lambda x: x * 2)
    kept = [f(X + k) for k in range(4)]
    for k, found in enumerate(kept):
        same(found, (X + k) * 2)


def test_is_a_decorator():
    @jit
    def plain(x):
        """Double."""
        return x * 2

    @jit(static_argnums=0)
    def flagged(n, x):
        return x * n

    assert (plain.__name__, plain.__doc__) == ("plain", "Double.")
    same((plain(X), flagged(3, X)), (X * 2, X * 3))


def test_methods():
    class Model:
        scale = 3.0

        @partial(jit, static_argnums=0)
        def __call__(self, x):
            return x * self.scale

    same(Model()(X), X * 3)
    assert isinstance(Model.__dict__["__call__"], hlo2graph.jax.GraphFunction)


@pytest.mark.parametrize(
    "transform",
    [
        lambda f: jax.grad(lambda x: f(x).sum())(X),
        lambda f: jax.vmap(f)(X),
        lambda f: jax.jit(lambda x: f(x) + 1)(X),
        lambda f: jit(lambda x: f(x) + 1)(X),
        lambda f: jax.jvp(f, (X,), (X,)),
    ],
    ids=("grad", "vmap", "jit", "ours", "jvp"),
)
def test_inside_transformations(transform):
    f = jit(lambda x: jnp.sin(x) * x)
    same(transform(f), transform(jax.jit(f.__wrapped__)))
    assert not f._programs


@pytest.mark.parametrize(
    ("f", "reason"),
    [
        (lambda x: jax.debug.callback(lambda _: None, x) or x + 1, "it has side effects: Debug"),
        (
            lambda x: jax.pure_callback(lambda v: v, jax.ShapeDtypeStruct(x.shape, x.dtype), x) + 1,
            "callback",
        ),
    ],
    ids=("effect", "callback"),
)
def test_what_cannot_run_runs_with_jax_and_says_so_once(f, reason):
    found = jit(f)
    with pytest.warns(UserWarning, match=f"runs with jax.jit, not as a graph of ours: .*{reason}"):
        same(found(X), X + 1)
    same(found(X), X + 1)
    same(found(X + 1), X + 2)
    with pytest.raises(UnsupportedError, match=reason):
        hlo2graph.jax.compile(found, X)


def test_arrays_on_several_devices_are_jaxs(monkeypatch):
    class Several:
        device_set = frozenset({1, 2})

    several = Several()
    monkeypatch.setattr("hlo2graph.jax.function.place_of", lambda _: several)
    f = jit(lambda x: x + 1)
    with pytest.warns(UserWarning, match="its arguments are on several devices"):
        same(f(X), X + 1)
    assert not f._programs


def test_arrays_on_another_device_are_brought(monkeypatch):
    elsewhere = object()
    monkeypatch.setattr("hlo2graph.jax.function.place_of", lambda _: elsewhere)
    f = jit(lambda x: x + 1)
    same(f(X), X + 1)
    assert f._programs


def test_without_jax_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ImportError, match="pip install 'hlo2graph"):
        importlib.reload(hlo2graph.jax)


def test_without_jit_it_runs_eagerly():
    seen = []
    f = jit(lambda x: seen.append(type(x)) or x + 1)
    with jax.disable_jit():
        same(f(X), X + 1)
    assert not issubclass(seen[0], jax.core.Tracer)


def test_errors_are_jaxs_own():
    with pytest.raises(TypeError, match="Error interpreting argument"):
        jit(lambda x: x)("text")
    with pytest.raises(TypeError, match="incompatible shapes"):
        jit(jnp.add)(X, W)
    with pytest.raises(ZeroDivisionError):
        jit(lambda x: 1 / 0)(X)


def test_options_that_are_none():
    with pytest.raises(InputError, match="fuse is one of"):
        jit(jnp.sin, fuse="all")(X)
    with pytest.raises(InputError, match="backend is one of"):
        hlo2graph.jax.jit(jnp.sin, backend="gpu")
    with pytest.raises(TypeError, match=r"hlo2graph\.jax\.jit\(\) has no keyword unheard_of"):
        hlo2graph.jax.jit(jnp.sin, unheard_of=1)
    with pytest.raises(TypeError, match="did you mean static_argnums"):
        hlo2graph.jax.jit(static_argnum=0)


def test_numpy_in_the_place_of_a_gpu_is_said_once(monkeypatch):
    monkeypatch.setattr("hlo2graph.jax.function.platform_for", lambda _: "cpu")
    monkeypatch.setattr("hlo2graph.jax.function._SAID_BY_ANY", set())
    found = hlo2graph.jax.jit(jnp.sin)
    with pytest.warns(UserWarning, match="sin is run by NumPy, there being no GPU"):
        found(X)
    same(found(X[:1]), jnp.sin(X[:1]))
    same(hlo2graph.jax.jit(jnp.cos)(X), jnp.cos(X))  # once in a process: a warning is an error


def test_what_jax_runs_is_not_said_to_be_run_by_numpy(monkeypatch):
    monkeypatch.setattr("hlo2graph.jax.function.platform_for", lambda _: "cpu")
    said = set()
    monkeypatch.setattr("hlo2graph.jax.function._SAID_BY_ANY", said)
    shape = jax.ShapeDtypeStruct(X.shape, X.dtype)
    found = hlo2graph.jax.jit(lambda x: jax.pure_callback(lambda v: v, shape, x) + 1)
    with pytest.warns(UserWarning, match="runs with jax.jit"):  # and nothing else: an error
        same(found(X), X + 1)
    assert not said


def test_what_jit_and_compile_return_say_briefly_what_they_are():
    def step(x):
        return x + 1

    assert repr(hlo2graph.jax.jit(step)).startswith("<hlo2graph.jax.jit of <function ")
    found = repr(hlo2graph.jax.compile(jit(step), X))
    assert found == (
        "<CompiledFunction on <HostExecutable of <Plan jit_step for host, thunks=2, edges=1>>>"
    )


def test_a_backend_that_is_not_there_is_an_error():
    with pytest.raises(BackendError):
        hlo2graph.jax.jit(jnp.sin, backend="cuda")(X)


def test_compile():
    found = hlo2graph.jax.compile(jit(loss), jax.ShapeDtypeStruct(W.shape, W.dtype), X)
    same(found(W, X), jax.jit(loss)(W, X))
    same(found(np.asarray(W), X), jax.jit(loss)(W, X))
    assert found.text.startswith("HloModule jit_loss")
    assert [shape for _, _, shape in found.executable.inputs] == [(4, 2), (3, 4)]
    with pytest.raises(InputError, match=r"compiled for float32\[4,2\] as leaf 0, got float32\[3,"):
        found(X, X)
    with pytest.raises(InputError, match="compiled for arguments"):
        found(W)


def test_compile_of_a_plain_function_and_static_arguments():
    f = jit(lambda x, n: x * n, static_argnums=1)
    same(hlo2graph.jax.compile(f, X, 3)(X), X * 3)
    assert isinstance(hlo2graph.jax.compile(jnp.sin, X), hlo2graph.jax.CompiledFunction)


def test_constants_are_parameters_in_front():
    table = jnp.arange(5000.0)
    found = hlo2graph.jax.compile(jit(lambda x: x + table), table)
    assert len(found.executable.inputs) == 2
    assert len(found.text) < 10_000
    same(found(table), table * 2)


def test_lower_is_jaxs():
    assert "stablehlo.sine" in jit(jnp.sin).lower(X).as_text()


def test_errors_are_of_the_package():
    assert issubclass(UnsupportedError, HloError)
