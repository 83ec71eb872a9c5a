"""Runs a Plan with NumPy over the byte arena: in program order, any order, or on a thread pool."""

from hlo2graph.backends.host.executable import HostExecutable

__all__ = ["HostExecutable"]
