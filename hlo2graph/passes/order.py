"""Which passes rewrite a module, in their order."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from hlo2graph.hlo import Module
from hlo2graph.passes.attend import attend
from hlo2graph.passes.call_asyncs import call_asyncs
from hlo2graph.passes.copy_early import copy_early
from hlo2graph.passes.cut_dots import cut_dots
from hlo2graph.passes.drop_barriers import drop_barriers
from hlo2graph.passes.expand_choleskys import expand_choleskys
from hlo2graph.passes.expand_depthwise import expand_depthwise
from hlo2graph.passes.expand_inner_products import expand_inner_products
from hlo2graph.passes.expand_normalizations import expand_normalizations
from hlo2graph.passes.expand_scans import expand_scans
from hlo2graph.passes.expand_sorts import expand_sorts
from hlo2graph.passes.fusion.fuse import fuse
from hlo2graph.passes.fusion.unfuse import unfuse_middles
from hlo2graph.passes.inline_calls import inline_calls
from hlo2graph.passes.large import SPLIT_LARGE
from hlo2graph.passes.lay_out_dots import lay_out_dots
from hlo2graph.passes.lay_out_images import lay_out_images
from hlo2graph.passes.loops.double_rounds import double_rounds
from hlo2graph.passes.loops.guard_rounds import guard_rounds
from hlo2graph.passes.loops.own_inits import own_inits
from hlo2graph.passes.loops.simplify_loops import simplify_loops
from hlo2graph.passes.loops.sweep_rounds import sweep_rounds
from hlo2graph.passes.part_dots import part_dots
from hlo2graph.passes.repeat_inits import repeat_inits
from hlo2graph.passes.round_compared import round_compared
from hlo2graph.passes.scans_to_windows import scans_to_windows
from hlo2graph.passes.side_by_side import side_by_side
from hlo2graph.passes.simplify import simplify
from hlo2graph.passes.sizes.settle_sizes import settle_sizes
from hlo2graph.passes.split_convolutions import split_convolutions
from hlo2graph.passes.split_dots import split_dots
from hlo2graph.passes.split_reductions import split_reductions
from hlo2graph.passes.turn_images import turn_images

Pass: TypeAlias = Callable[[Module], Module]

EXPANSIONS: tuple[Pass, ...] = (
    *(
        call_asyncs,
        unfuse_middles,
        settle_sizes,
        scans_to_windows,
        expand_scans,
        expand_sorts,
        expand_choleskys,
        repeat_inits,
    ),
)
PASSES: dict[str, tuple[Pass, ...]] = {
    "none": EXPANSIONS,
    "default": (
        *EXPANSIONS,
        *(inline_calls, expand_normalizations, expand_depthwise, turn_images),
        *(simplify, simplify_loops),
        *(lay_out_dots, lay_out_images, drop_barriers, sweep_rounds, double_rounds, guard_rounds),
        expand_inner_products,
        *(
            part_dots,
            own_inits,
            copy_early,
            attend,
            *SPLIT_LARGE,
            split_convolutions,
            split_dots,
            split_reductions,
            cut_dots,
            round_compared,
            fuse,
            side_by_side,
        ),
    ),
}
