"""The process that XLA may end: `python worker.py mlir|proto`.

Reads a program on stdin and writes HLO text on stdout; what is wrong with it goes to stderr. It is
run as a file, not as a module, so that nothing in the folder it starts in takes a library's place.
"""

from __future__ import annotations

import sys


def printed(proto: bytes) -> str:
    """Return the text of a serialized HloModuleProto, constants whole."""
    from jaxlib import _hlo

    options = _hlo.HloPrintOptions()
    options.print_large_constants = True
    text: str = _hlo.HloModule.from_serialized_hlo_module_proto(proto).to_string(options)
    return text


def _serve(kind: str) -> None:
    from jaxlib import _jax

    given = sys.stdin.buffer.read()
    if kind == "mlir":
        given = _jax.mlir.mlir_module_to_xla_computation(
            given, use_tuple_args=False, return_tuple=False
        ).as_serialized_hlo_module_proto()
    sys.stdout.buffer.write(printed(given).encode(errors="surrogateescape"))


if __name__ == "__main__":
    try:
        _serve(sys.argv[1])
    except Exception as error:  # whatever jaxlib raises: its text is all that is wanted of it
        sys.exit(str(error))
