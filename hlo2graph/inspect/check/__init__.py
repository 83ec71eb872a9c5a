"""Proof that a plan is right, by means of its own: nothing here asks the code that made it."""

from hlo2graph.inspect.check.finding import Finding, Kind
from hlo2graph.inspect.check.proof import Proof, prove

__all__ = ["Finding", "Kind", "Proof", "prove"]
