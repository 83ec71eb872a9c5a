"""XLA on the CPU as the oracle of tests: `run_xla(text, arguments)`."""

from collections.abc import Sequence

import jax
import numpy as np
from jax._src.lib import xla_client as xc
from jaxlib._jax import DeviceList

jax.config.update("jax_enable_x64", True)


def run_xla(text: str, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Compile and run HLO text. Operands come as parameters: XLA dies on a constant 1 / 0."""
    module = xc.hlo.hlo_module_from_text(text)
    computation = xc.XlaComputation(module.as_serialized_hlo_module_proto())
    device = jax.devices("cpu")[0]
    mlir = xc._xla.mlir.xla_computation_to_mlir_module(computation)
    loaded = device.client.compile_and_load(mlir, DeviceList((device,)), xc.CompileOptions())
    results = loaded.execute([jax.device_put(a, device) for a in arguments])
    return [np.asarray(r) for r in results]
