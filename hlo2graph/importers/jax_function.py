"""HLO text of a function of JAX, in a module of the user's or serialized by `jax.export`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import reduce
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from types import FrameType
from typing import Any

from hlo2graph.errors import BackendError, InputError
from hlo2graph.hlo import AnyShape, Shape
from hlo2graph.importers.flat import exported_module
from hlo2graph.importers.shapes import leaves_of
from hlo2graph.importers.worker import printed

WIDE = ("s64", "u64", "f64", "c128")  # what JAX narrows, unless it is told not to


def from_function(target: str, shapes: Sequence[AnyShape]) -> str:
    """Return the HLO of `module:function` for arguments of `shapes`, tuples as such.

    Modules are looked for in the current folder too. A function may be jitted already.

    Raises:
        InputError: there is no such function, or it cannot be traced for these.
        BackendError: jax is not installed.
    """
    _need_jax()
    function = _found(target)
    lower = getattr(function, "lower", None)
    _hide_callers()

    def lowered(args: Sequence[Any]) -> Any:
        import jax

        return (lower or jax.jit(function, keep_unused=True).lower)(*args)

    return _lowered(lowered, [_described(shape) for shape in shapes], shapes, target)


def from_exported(data: bytes, shapes: Sequence[AnyShape], filename: str) -> str:
    """Return the HLO of what `jax.export` serialized, for arguments whose leaves have `shapes`.

    Raises:
        InputError: it is none of these, or does not take such arguments.
        BackendError: jax is not installed.
    """
    if exported_module(data) is None:
        raise InputError(f"{filename}: --shapes is for what jax.export serialized; this is not")
    _need_jax()
    from jax import export, jit, tree

    try:
        exported = export.deserialize(bytearray(data))
    except Exception as error:  # broken bytes lead FlatBuffers' reader to many types
        raise InputError(f"{filename}: {_reason(error)}") from None

    def lowered(leaves: Sequence[Any]) -> Any:
        args, kwargs = tree.unflatten(exported.in_tree, leaves)
        platforms = exported.platforms[:1]
        return (
            jit(exported.call, keep_unused=True)
            .trace(*args, **kwargs)
            .lower(lowering_platforms=platforms)
        )

    leaves = [_described(leaf) for leaf in leaves_of(shapes)]
    return _lowered(lowered, leaves, shapes, filename)


def _need_jax() -> None:
    if find_spec("jax") is None:
        raise BackendError("this takes jax: pip install 'hlo2graph[jax]'")


def _hide_callers() -> None:
    """Keep the files of whoever asks out of the stack frames that JAX writes into a program."""
    from jax.extend.source_info_util import register_exclusion

    frame: FrameType | None = sys._getframe()
    while frame is not None:
        register_exclusion(frame.f_code.co_filename)
        frame = frame.f_back


def _found(target: str) -> Callable[..., Any]:
    """Import what `module:function` names."""
    module, _, names = target.partition(":")
    if not module or not names:
        raise InputError(f"--jax takes module:function, not {target!r}")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        found = reduce(getattr, names.split("."), import_module(module))
    except Exception as error:  # the module may raise anything
        raise InputError(f"--jax {target}: {_reason(error)}") from None
    if not callable(found):
        raise InputError(f"--jax {target} is no function but {type(found).__name__}")
    return found


def _described(shape: AnyShape) -> Any:
    """Return a shape as JAX has it: an array's, or a tuple of such."""
    from jax import ShapeDtypeStruct

    if isinstance(shape, Shape):
        return ShapeDtypeStruct(shape.dims, shape.dtype.numpy)
    return tuple(map(_described, shape.parts))


def _lowered(
    lower: Callable[[Sequence[Any]], Any],
    args: Sequence[Any],
    shapes: Sequence[AnyShape],
    what: str,
) -> str:
    import jax

    is_wide = any(leaf.dtype.name in WIDE for leaf in leaves_of(shapes))
    try:
        with jax.enable_x64(is_wide or bool(jax.config.jax_enable_x64)):
            return _text(lower(args).compiler_ir("stablehlo"))
    except Exception as error:  # the function may raise anything
        given = ",".join(shape.without_layout_text() for shape in shapes) or "no arguments"
        raise InputError(f"{what} cannot be lowered for {given}: {_reason(error)}") from None


def _text(module: Any) -> str:
    """Return the HLO of a StableHLO module of JAX's, in which some sizes may be inferred."""
    from jaxlib import _jax

    bytecode = BytesIO()
    module.operation.write_bytecode(bytecode)
    settled = _jax.mlir.refine_polymorphic_shapes(bytecode.getvalue(), enable_shardy=True)
    computation = _jax.mlir.mlir_module_to_xla_computation(
        settled, use_tuple_args=False, return_tuple=False
    )
    return printed(computation.as_serialized_hlo_module_proto())


def _reason(error: Exception) -> str:
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
