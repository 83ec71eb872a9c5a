"""How a plan runs on a GPU, chosen when it is compiled and kept in the file."""

from __future__ import annotations

from dataclasses import asdict
from typing import cast

from hlo2graph.backends.cuda.choices import Choices, CudaOptions
from hlo2graph.backends.cuda.partial.policy import Policy
from hlo2graph.options import MATMUL_PRECISIONS, POINTERS, TEMPORARIES, check_choice, check_rounds


def checked(choices: Choices) -> Choices:
    """Return the choices.

    Raises:
        InputError: one is none that there is.
        TypeError: one is of another type.
    """
    for name, value in asdict(choices).items():
        if not isinstance(value, type(getattr(Choices(), name))):
            raise TypeError(f"{name} is {value!r}")
    check_choice("matmul_precision", choices.matmul_precision, MATMUL_PRECISIONS)
    check_rounds("unroll_loops", choices.unroll_loops)
    check_choice("pointers", choices.pointers, POINTERS)
    Policy.of(choices.capture)
    check_choice("temporaries", choices.temporaries, TEMPORARIES)
    return choices


def options_of(choices: Choices) -> CudaOptions:
    """Return the choices as keywords."""
    return cast(CudaOptions, asdict(choices))
