"""Plans in files that need no parser and no compiler to run again: .h2g.

A file holds a plan, with the values of its constants; the module that it was made of, to check
results against, where that was given; and for a GPU the kernels' machine code for one or several
architectures. What a library would run has a kernel too: which of them runs is decided where the
file is loaded, as are the addresses. Nothing in it is code of Python; kernels are code all the
same, so load only what you would run.

`writing` has `save`, `reading` has `load`; container.py has the bytes, codec.py what they mean.
"""
