"""Run a plan's CUDA kernels on the CPU, to test their text where there is no GPU."""

from tests.emulation.emulator import EmulatedExecutable, Kernels

__all__ = ["EmulatedExecutable", "Kernels"]
