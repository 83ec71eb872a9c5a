"""Passes that take apart what one block, or one thread, would do too slowly alone."""

from hlo2graph.passes.large.split_ffts import split_ffts

SPLIT_LARGE = (split_ffts,)
"""In this order: what one makes, another may take apart."""

__all__ = ["SPLIT_LARGE"]
