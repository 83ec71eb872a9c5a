"""What is measured side by side: one program, built by hlo2graph and by XLA, ready to be called.

Both have their arguments on the device, and leave their results there.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hlo2graph.program.device_figures import DEVICES, MEASURED
from hlo2graph.program.thunks import Conditional, While
from hlo2graph.program.uses import walk
from tests.gpu.clock import DeviceClock

ALL = "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,WHILE,CONDITIONAL,COLLECTIVES,DYNAMIC_SLICE_FUSION"
XLA = {
    "xla": [],
    **{
        f"xla {mode}": [
            ("xla_gpu_enable_command_buffer", ALL),
            ("xla_gpu_command_buffer_scheduling_mode", mode),
            ("xla_gpu_graph_min_graph_size", "1"),
        ]
        for mode in ("LHS", "CONCURRENT")
    },
}
OURS: dict[str, dict] = {"hlo2graph": {}, "hlo2graph none": {"fuse": "none"}}
MOST_PATH = 8  # nodes of the longest way that are kept


class OurCall:
    """hlo2graph on arguments that lie in its own buffers."""

    def __init__(self, text: str, args: Sequence[np.ndarray], options: dict) -> None:
        import hlo2graph

        start = time.perf_counter()
        self.executable = hlo2graph.compile(text, "cuda", **options)
        self.compile = time.perf_counter() - start
        self.memory = self.executable.buffers.total  # XLA does not count the driver's either
        self.own = self.executable.put(*args)
        self.args = args
        self.clock = DeviceClock(self.executable)

    def call(self) -> None:
        self.executable(*self.own)

    def wait(self) -> None:
        self.executable.synchronize()

    def results(self) -> list:
        return [np.asarray(a) for a in self.executable.device_outputs]

    def bound(self, launch: float) -> dict:
        """Return the least time that the device needs, and where most of it goes.

        launch: seconds that a graph of the smallest kernel was seen to take. Machines of one kind
            differ in that by more than some programs take.
        """
        from hlo2graph.backends.host import HostExecutable
        from hlo2graph.inspect.budget.bound import bound

        exe = self.executable
        if exe.device.name not in MEASURED:
            return {}
        plan = replace(exe.plan, body=exe.graph_body)
        runs: Counter[int] | None = None
        if any(
            isinstance(t, Conditional) or (isinstance(t, While) and t.trip_count is None)
            for t in walk(plan.body)
        ):
            host = HostExecutable(plan)
            host.write_inputs(self.args)
            runs = Counter(id(stamp.thunk) for stamp in host.execute_stamped(1))
        measured = MEASURED[exe.device.name]
        here = replace(measured, launch=launch - measured.elementwise)
        known = plan, DEVICES["h200"], here, runs
        found, flat = bound(*known), bound(*known, flat=True)
        longest = sorted(found.path, key=lambda node: -node[1])[:MOST_PATH]
        return {
            "bound": found.seconds,
            "bound flat": flat.seconds,
            "path": longest,
            "nodes on path": len(found.path),
        }


class XlaCall:
    """XLA through jaxlib, on arguments that jax put on the device."""

    def __init__(self, text: str, args: Sequence[np.ndarray], overrides: list) -> None:
        import jax
        from jax._src.lib import xla_client
        from jaxlib._jax import DeviceList

        import hlo2graph
        from hlo2graph.hlo.aliases import io_aliases

        self.jax = jax
        device = jax.devices("gpu")[0]
        start = time.perf_counter()
        proto = xla_client.hlo.hlo_module_from_text(text)
        computation = xla_client.XlaComputation(proto.as_serialized_hlo_module_proto())
        options = xla_client.CompileOptions()
        options.env_option_overrides = overrides
        shapes = computation.program_shape().parameter_shapes()
        options.parameter_is_tupled_arguments = len(shapes) == 1 and shapes[0].is_tuple()
        mlir = xla_client._xla.mlir.xla_computation_to_mlir_module(computation)
        self.executable = device.client.compile_and_load(mlir, DeviceList((device,)), options)
        self.compile = time.perf_counter() - start
        stats = self.executable.get_compiled_memory_stats()
        self.memory = (
            stats.argument_size_in_bytes
            + stats.output_size_in_bytes
            + stats.temp_size_in_bytes
            - stats.alias_size_in_bytes
        )
        self.placed = [jax.device_put(a, device) for a in args]
        self.outs: list = []
        aliases = io_aliases(hlo2graph.parse(text))
        self.given_up = [(a.parameter, a.output_index[0] if a.output_index else 0) for a in aliases]

    def call(self) -> None:
        self.outs = self.executable.execute(self.placed)
        for parameter, output in self.given_up:  # whose array is gone: its result is the next one
            self.placed[parameter] = self.outs[output]

    def wait(self) -> None:
        self.jax.block_until_ready(self.outs)

    def results(self) -> list:
        return [np.asarray(a) for a in self.outs]


Contender = OurCall | XlaCall


def contenders(text: str, args: Sequence[np.ndarray]) -> dict:
    """Return what builds each contender, by name."""
    return {
        **{n: lambda o=o: OurCall(text, args, o) for n, o in OURS.items()},
        **{n: lambda o=o: XlaCall(text, args, o) for n, o in XLA.items()},
    }
