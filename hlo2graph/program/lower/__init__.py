"""Module to Program: flat thunks over values, no tuples, calls or views."""

from hlo2graph.program.lower.module import lower

__all__ = ["lower"]
