"""`jit`: a function that compiles itself for each kind of arguments that it meets."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Hashable
from threading import Lock
from types import MethodType
from typing import Any, NamedTuple

import jax
from jax._src.config import trace_context
from jax._src.core import trace_state_clean

from hlo2graph.errors import BackendError, HloError, InputError
from hlo2graph.jax.leaves import PLAIN, devices_of, is_tracer, kind_of, place_of
from hlo2graph.jax.program import CompiledFunction, platform_for
from hlo2graph.jax.static import Names, Positions, StaticArguments
from hlo2graph.options import BACKENDS, check_choice, check_keywords
from hlo2graph.pipeline import COMPILE_KEYWORDS

BY_NUMPY = (
    "is run by NumPy, there being no GPU here that JAX and hlo2graph both know: to try it out, not "
    'for speed; backend="host" asks for that'
)
_SAID_BY_ANY: set[str] = set()  # what holds for all functions is said of the first


def jit(
    f: Callable[..., Any] | None = None,
    *,
    static_argnums: Positions = None,
    static_argnames: Names = None,
    donate_argnums: Positions = None,
    donate_argnames: Names = None,
    backend: str = "auto",
    **options: Any,
) -> Any:
    """Return `f` as a function that runs as one graph, compiled anew for each kind of arguments.

    static_argnums, static_argnames, donate_argnums, donate_argnames: as for `jax.jit`.
    backend: cuda, host, or auto, the best there is here.
    options: as for `hlo2graph.compile`: the planning flags, matmul_precision, unroll_loops, and
        pointers, which is auto here.
    What cannot run as a graph runs with `jax.jit`; a warning says so once, and why. Calls with
    arguments that JAX is transforming (inside `jax.grad`, `jax.vmap`, another `jit`) are JAX's too:
    apply this outermost, as in `jit(jax.grad(f))`.
    Without `f`, as in `@jit(static_argnums=1)`, returns what takes `f`.

    Raises:
        InputError: there is no such backend.
        TypeError: there is no such option.
    """
    check_choice("backend", backend, BACKENDS)
    flags: dict[str, Any] = {
        "static_argnums": static_argnums,
        "static_argnames": static_argnames,
        "donate_argnums": donate_argnums,
        "donate_argnames": donate_argnames,
    }
    known = COMPILE_KEYWORDS - {"filename"} | flags.keys()
    check_keywords("hlo2graph.jax.jit", options, known)
    if f is None:
        return functools.partial(jit, **flags, backend=backend, **options)
    return GraphFunction(f, flags, backend, {"pointers": "auto"} | options)


def compile(f: Callable[..., Any], *args: Any, **kwargs: Any) -> CompiledFunction:
    """Compile `f`, a function or what `jit` returned, for arguments like these, at once.

    `jax.ShapeDtypeStruct`s may stand for arrays.
    Raises HloError where it cannot run here, BackendError where the backend is not there.
    """
    function: GraphFunction = f if isinstance(f, GraphFunction) else jit(f)
    return function.compile(*args, **kwargs)


class GraphFunction:
    """What `jit` returns: call it as the function."""

    def __init__(
        self,
        f: Callable[..., Any],
        flags: dict[str, Any],
        backend: str,
        options: dict[str, Any],
    ) -> None:
        functools.update_wrapper(self, f)
        self._f = f
        self._jitted = jax.jit(f, **flags)
        self._backend, self._options = backend, options
        self._static = StaticArguments(f, flags["static_argnums"], flags["static_argnames"])
        self._has_static = bool(self._static)
        self._programs: dict[Hashable, CompiledFunction | None] = {}  # by types
        self._calls: dict[Hashable, _Call] = {}  # by types, and by where the arrays are
        self._compiling = Lock()
        self._said: set[str] = set()

    def __repr__(self) -> str:
        return f"<hlo2graph.jax.jit of {self._f!r}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function."""
        static: Hashable = ()
        rest, named = args, kwargs
        try:
            if self._has_static:
                rest, named, static = self._static.split(args, kwargs)
            leaves, tree = jax.tree.flatten((rest, named))
            if PLAIN.issuperset(map(type, leaves)):
                kinds = tuple([leaf.aval for leaf in leaves])
            elif any(map(is_tracer, leaves)):
                return self._jitted(*args, **kwargs)
            else:
                kinds = tuple(map(kind_of, leaves))
            places = tuple(map(place_of, leaves))
        except TypeError:  # no argument for JAX either, which says more of it
            return self._jitted(*args, **kwargs)
        types = (tree, static, trace_context(), kinds)
        call = self._calls.get((types, places))
        if call is None:
            if not trace_state_clean():  # another is compiling, perhaps this one, which calls it
                return self._jitted(*args, **kwargs)
            call = self._calls[types, places] = self._meet(types, places, args, kwargs)
        if call.program is None:
            return self._jitted(*args, **kwargs)
        return call.program.run(leaves, is_here=call.is_here)

    def __get__(self, owner: Any, _: type | None = None) -> Any:
        """Bind to an object, where this is a method."""
        return self if owner is None else MethodType(self, owner)

    def compile(self, *args: Any, **kwargs: Any) -> CompiledFunction:
        """Compile for arguments like these; see `compile`."""
        traced = self._jitted.trace(*args, **kwargs)
        return CompiledFunction(traced, platform_for(self._backend), self._options)

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """Lower with JAX, as `jax.jit(f).lower` does."""
        return self._jitted.lower(*args, **kwargs)

    def _meet(self, types: Hashable, places: tuple[Any, ...], args: Any, kwargs: Any) -> _Call:
        """Find the program for arguments of a kind that was not met before."""
        used = {device for place in places for device in devices_of(place)}
        if len(used) > 1:
            self._say("its arguments are on several devices")
            return _Call(None, False)
        with self._compiling:
            if types not in self._programs:
                self._programs[types] = self._compiled(args, kwargs)
        program = self._programs[types]
        return _Call(program, program is not None and used <= {program.device})

    def _compiled(self, args: Any, kwargs: Any) -> CompiledFunction | None:
        """Compile; None where JAX must run it."""
        platform = platform_for(self._backend)
        if jax.config.jax_disable_jit:
            return None
        traced = self._jitted.trace(*args, **kwargs)
        try:
            found = CompiledFunction(traced, platform, self._options)
            if platform == "cpu" and self._backend == "auto":
                self._warn(BY_NUMPY, _SAID_BY_ANY)
            return found
        except InputError:  # an option that is none
            raise
        except HloError as error:
            self._say("; ".join([error.message, *(note.message for note in error.notes)]))
        except BackendError as error:
            self._say(str(error))
        return None

    def _say(self, reason: str) -> None:
        """Say once why JAX runs the function."""
        self._warn(f"runs with jax.jit, not as a graph of ours: {reason}", self._said, inner=1)

    def _warn(self, what: str, said: set[str], inner: int = 0) -> None:
        """Say what becomes of the function, at the place of its call, if it is not in `said`."""
        if what not in said:
            said.add(what)
            name = getattr(self, "__name__", "the function")
            warnings.warn(f"{name} {what}", stacklevel=5 + inner)


class _Call(NamedTuple):
    """What runs calls of one kind; None: JAX does. `is_here`: their arrays are on its device."""

    program: CompiledFunction | None
    is_here: bool
