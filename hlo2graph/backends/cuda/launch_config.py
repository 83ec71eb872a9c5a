"""Launches into a stream, with arguments that are made ready once.

cuLaunchKernelEx takes four arguments where cuLaunchKernel takes eleven, and ctypes takes its time
over each: this is what keeps the serial stream from waiting for Python.
"""

from __future__ import annotations

from ctypes import Structure, byref, c_uint, c_void_p
from typing import Any, ClassVar

from hlo2graph.backends.cuda.driver import Bound, bound


class LaunchConfig(Structure):
    """CUlaunchConfig: blocks, threads of a block, bytes of dynamic shared memory, the stream."""

    _fields_: ClassVar = [
        *((f"grid_{axis}", c_uint) for axis in "xyz"),
        *((f"block_{axis}", c_uint) for axis in "xyz"),
        ("shared_bytes", c_uint),
        ("stream", c_void_p),
        ("attributes", c_void_p),
        ("attribute_count", c_uint),
    ]


def launch_call(
    config: LaunchConfig, function: Any, parameters: int, place: str, keep: object
) -> Bound:
    """Return the launch; `parameters` is the address of an array of pointers to its arguments.

    What `config` holds when the launch is made counts. `place` is for errors, and `keep` is what
    the arguments need to live.
    """
    return bound(
        "cuLaunchKernelEx",
        byref(config),
        c_void_p(int(function)),
        c_void_p(parameters),
        None,
        place=place,
        keep=(config, keep),
    )
