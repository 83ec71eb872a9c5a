"""Program to Program: every value that must live at two places gets its Copy thunk."""

from hlo2graph.program.copies.place import place_copies

__all__ = ["place_copies"]
