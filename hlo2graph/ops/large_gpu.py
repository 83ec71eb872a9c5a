"""What a large GPU is taken to be, where plans depend on their programs alone, not on a target.

Kernels, which are a target's, are divided by its own figures: program.device_figures.
"""

MULTIPROCESSORS = 132  # of an H200: as many blocks run at once, or several times as many
SHARED_BYTES = 48 * 1024  # of a block, on any GPU, without asking for more
