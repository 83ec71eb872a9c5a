"""The process that loads TensorFlow: `python saved_model_worker.py`, arguments on stdin.

They are a pickled tuple: the model's folder, the signature's name or None, the inputs' shapes and
dtypes or None, and the file to write. What goes there is pickled too: the HLO proto, and names for
its parameters and results; the weights are the last parameters. What is wrong goes to stderr.
"""

from __future__ import annotations

import pickle
import sys
from typing import Any


class Refused(Exception):
    """The request does not fit the model."""


def _serve(folder: str, name: str | None, given: Any, target: str) -> None:
    import tensorflow as tf

    model = tf.saved_model.load(folder)
    signature = _signature(model, name)
    inputs = dict(sorted(signature.structured_input_signature[1].items()))
    specs = _specs(tf, inputs, given)

    def call(*args: Any) -> Any:
        return signature(**dict(zip(inputs, args, strict=True)))

    compiled = tf.function(call, jit_compile=True, autograph=False)
    concrete = compiled.get_concrete_function(*specs)
    ir = compiled.experimental_get_compiler_ir(*specs)
    variables = {id(variable.handle): variable for variable in signature.variables}
    weights = []
    for number, captured in enumerate(concrete.captured_inputs):
        variable = variables.get(id(captured))
        if variable is not None:
            weights.append((variable.name.partition(":")[0], variable.numpy()))
        elif captured.dtype == tf.resource:
            raise Refused("it reads a resource that is no variable, a table perhaps")
        else:
            weights.append((f"constant_{number}", captured.numpy()))
    found = {
        "module": ir(stage="hlo_serialized"),
        "inputs": list(inputs),
        "weights": weights,
        "results": sorted(concrete.structured_outputs),
    }
    with open(target, "wb") as file:
        pickle.dump(found, file)


def _signature(model: Any, name: str | None) -> Any:
    there = list(model.signatures)
    if name is None:
        name = there[0] if len(there) == 1 else "serving_default"
    if name not in there:
        raise Refused(f"it has no signature {name}; --signature is one of {', '.join(there)}")
    return model.signatures[name]


def _specs(tf: Any, inputs: dict[str, Any], given: Any) -> list[Any]:
    """Return what the inputs are, their open sizes settled by `given`."""
    described = ", ".join(f"{name} {spec.dtype.name}{spec.shape}" for name, spec in inputs.items())
    if given is None:
        if any(not spec.shape.is_fully_defined() for spec in inputs.values()):
            raise Refused(f"sizes are open; give --shapes for its inputs: {described}")
        return list(inputs.values())
    found = [tf.TensorSpec(dims, tf.as_dtype(dtype)) for dims, dtype in given]
    fits = len(found) == len(inputs) and all(
        want.shape.is_compatible_with(got.shape) and want.dtype == got.dtype
        for want, got in zip(inputs.values(), found, strict=True)
    )
    if not fits:
        raise Refused(f"--shapes do not fit its inputs: {described}")
    return found


if __name__ == "__main__":
    try:
        _serve(*pickle.load(sys.stdin.buffer))
    except Refused as refusal:
        sys.exit(str(refusal))
    except Exception as error:  # whatever TensorFlow raises: its text is all that is wanted of it
        sys.exit(f"TensorFlow: {type(error).__name__}: {error}".strip().partition("\n")[0])
