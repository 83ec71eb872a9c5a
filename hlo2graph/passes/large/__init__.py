"""Passes that take apart what one block, or one thread, would do too slowly alone."""

from hlo2graph.passes.large.order_updates import order_updates
from hlo2graph.passes.large.split_factors import split_factors
from hlo2graph.passes.large.split_ffts import split_ffts
from hlo2graph.passes.large.split_lus import split_lus
from hlo2graph.passes.large.split_reflections import split_reflections
from hlo2graph.passes.large.split_scans import split_scans
from hlo2graph.passes.large.split_sorts import split_sorts
from hlo2graph.passes.large.split_tops import split_tops

SPLIT_LARGE = (
    order_updates,
    split_lus,
    split_reflections,
    split_factors,
    split_ffts,
    split_tops,
    split_sorts,
    split_scans,
)
"""In this order: what one makes, another may take apart."""

__all__ = ["SPLIT_LARGE"]
