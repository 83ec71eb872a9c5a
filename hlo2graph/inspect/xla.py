"""XLA:CPU's results for a module, through the jaxlib that is installed.

XLA ends the whole process on some programs, so it gets one of its own: this file, run as a
module, reads FOLDER/program.hlo and FOLDER/args and writes FOLDER/results.
"""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from hlo2graph.errors import BackendError
from hlo2graph.hlo import Computation, Instruction, Module, Shape
from hlo2graph.hlo.printer import format_module
from hlo2graph.ops.spec import Array

RAISED = re.compile(r"[\w.]*Error: ")
LONGEST_REASON = 400  # characters of XLA's message that are passed on


def xla_results(module: Module, args: Sequence[Array]) -> tuple[Array, ...]:
    """Compile and run the module with XLA:CPU; leaves in and out, as with an executable.

    Raises BackendError where jax is not installed, or where XLA refuses the program or dies of it.
    """
    if find_spec("jax") is None:
        raise BackendError("--reference xla needs jax: pip install 'hlo2graph[jax]'")
    with TemporaryDirectory(prefix="hlo2graph-") as name:
        folder = Path(name)
        (folder / "program.hlo").write_text(format_module(_as_xla_takes_it(module)))
        (folder / "args").write_bytes(pickle.dumps(tuple(args)))
        done = subprocess.run(
            [sys.executable, "-m", "hlo2graph.inspect.xla", name],
            env=os.environ | {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode:
            raise BackendError(f"XLA does not run {module.name}: {_reason(done)}")
        results: tuple[Array, ...] = pickle.loads((folder / "results").read_bytes())
        return results


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    raised = [line for line in lines if RAISED.match(line)]  # more may follow, XLA's own notes
    said = (raised or lines or ["it said nothing"])[-1][:LONGEST_REASON]
    return f"signal {-done.returncode}: {said}" if done.returncode < 0 else said


def _as_xla_takes_it(module: Module) -> Module:
    """Return the module with nothing that XLA takes only from its own passes.

    Its fusions become calls, and bitcasts, whose layouts it would choose anew, moves of elements.
    """
    rewritten = {name: _rewritten(c) for name, c in module.computations.items()}
    return replace(module, computations=rewritten)


def _rewritten(computation: Computation) -> Computation:
    instructions = chain.from_iterable(
        _for_xla(instr, computation) for instr in computation.instructions
    )
    return replace(computation, instructions=tuple(instructions))


def _for_xla(instr: Instruction, computation: Computation) -> tuple[Instruction, ...]:
    match instr.opcode:
        case "fusion":
            return (_call(instr),)
        case "bitcast":
            return _moves(instr, computation)
        case _:
            return (instr,)


def _call(fusion: Instruction) -> Instruction:
    return replace(fusion, opcode="call", attrs={"to_apply": fusion.attrs["calls"]})


def _moves(bitcast: Instruction, computation: Computation) -> tuple[Instruction, ...]:
    """Return the bitcast as a reshape of the elements as they lie, after one of their bits."""
    (name,) = bitcast.operands
    source, target = computation[name].shape, bitcast.shape
    assert isinstance(source, Shape)
    assert isinstance(target, Shape)
    moves: list[Instruction] = []
    if source.dtype is not target.dtype:
        if source.dtype.size != target.dtype.size:  # which changes dimensions too
            return (bitcast,)
        source = replace(source, dtype=target.dtype)
        read = _fresh(bitcast, "read", computation)
        moves.append(_move("bitcast-convert", read, source, name))
        name = read
    if not source.is_row_major:
        lain, order = _fresh(bitcast, "lain", computation), source.minor_to_major[::-1]
        moves.append(_move("transpose", lain, _stored(source), name, order))
        name = lain
    if target.is_row_major:
        return (*moves, _move("reshape", bitcast.name, target.with_layout(None), name))
    shaped = _fresh(bitcast, "shaped", computation)
    moves.append(_move("reshape", shaped, _stored(target), name))
    order = target.minor_to_major[::-1]
    back = tuple(order.index(dim) for dim in range(target.rank))
    return (*moves, _move("transpose", bitcast.name, target.with_layout(None), shaped, back))


def _move(
    opcode: str, name: str, shape: Shape, operand: str, order: tuple[int, ...] | None = None
) -> Instruction:
    attrs = {} if order is None else {"dimensions": order}
    return Instruction(name, opcode, shape, (operand,), attrs)


def _stored(shape: Shape) -> Shape:
    """Return the shape with its dimensions in the order in which they lie, most major first."""
    return Shape(shape.dtype, tuple(shape.dims[dim] for dim in shape.minor_to_major[::-1]))


def _fresh(bitcast: Instruction, step: str, computation: Computation) -> str:
    name = f"{bitcast.name}.{step}"
    while name in computation:
        name += "_"
    return name


def _serve(folder: Path) -> None:
    """Do the work in the process that XLA may end."""
    import jax
    from jax._src.lib import xla_client
    from jaxlib._jax import DeviceList

    jax.config.update("jax_enable_x64", True)
    text = (folder / "program.hlo").read_text()
    if '"lapack_' in text:
        from jaxlib.lapack import prepare_lapack_call

        prepare_lapack_call("potrf", np.dtype(np.float32))  # makes all of LAPACK ready to be called
    proto = xla_client.hlo.hlo_module_from_text(text)
    computation = xla_client.XlaComputation(proto.as_serialized_hlo_module_proto())
    parameters = computation.program_shape().parameter_shapes()
    options = xla_client.CompileOptions()
    options.parameter_is_tupled_arguments = len(parameters) == 1 and parameters[0].is_tuple()
    device = jax.devices("cpu")[0]
    executable = device.client.compile_and_load(
        xla_client._xla.mlir.xla_computation_to_mlir_module(computation),
        DeviceList((device,)),
        options,
    )
    args = [jax.device_put(a, device) for a in pickle.loads((folder / "args").read_bytes())]
    results = tuple(np.asarray(result) for result in executable.execute(args))
    (folder / "results").write_bytes(pickle.dumps(results))


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
