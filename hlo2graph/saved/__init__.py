"""Plans in files that need no parser and no compiler to run again: .h2g.

A file holds a plan, with the values of its constants; the module that it was made of, to check
results against, where that was given; and for a GPU the kernels' machine code for one or several
architectures. What a library would run has a kernel too: which of them runs is decided where the
file is loaded, as are the addresses. Nothing in it is code of Python; kernels are code all the
same, so load only what you would run.

container.py has the bytes, codec.py what they mean.
"""

from hlo2graph.saved.container import is_saved
from hlo2graph.saved.reading import Saved, load, read_saved
from hlo2graph.saved.writing import save

__all__ = ["Saved", "is_saved", "load", "read_saved", "save"]
