"""What an instruction's attributes hold once read, and which kind each attribute name has.

A value is one of: int, float, bool; a `str` for a word (`direction=LT` gives "LT") or the name of
one computation or instruction, without `%`; a tuple of ints (`dimensions={0,1}`); a tuple of names;
or one of the classes below. `KINDS` says which; `Raw` keeps text that nothing here interprets.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

from hlo2graph.hlo.shape import AnyShape


class Raw(str):
    """Text kept verbatim: sharding, metadata, backend_config, ..."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class WindowDim:
    """One dimension of a window, as `window={size=3 stride=2 pad=1_1 ...}` gives it."""

    size: int
    stride: int = 1
    pad_low: int = 0
    pad_high: int = 0
    lhs_dilate: int = 1
    rhs_dilate: int = 1
    reversal: bool = False


@dataclass(frozen=True, slots=True)
class Window:
    """A window over the spatial dimensions, in order."""

    dims: tuple[WindowDim, ...]


@dataclass(frozen=True, slots=True)
class DimLabels:
    """`b01f_01io->b01f`: which dimension of lhs, rhs and result plays which part.

    Each string has one letter or digit a dimension: `b` batch, `f` feature, `i`/`o` kernel input
    and output feature, digits the spatial dimensions, `?` a dimension of no part.
    """

    lhs: str
    rhs: str
    out: str


@dataclass(frozen=True, slots=True)
class PaddingDim:
    """`low_high_interior` of one dimension; low and high may be negative."""

    low: int
    high: int
    interior: int = 0


@dataclass(frozen=True, slots=True)
class SliceDim:
    """`[start:limit:stride]` of one dimension."""

    start: int
    limit: int
    stride: int = 1


class AttrKind(Enum):
    """How an attribute's text is read."""

    INT = auto()
    FLOAT = auto()
    BOOL = auto()
    WORD = auto()  # an enumerator: str
    STRING = auto()  # quoted: str without the quotes, escapes undone
    INTS = auto()  # {0,1}: tuple[int, ...]
    COMPUTATION = auto()  # %name: str
    COMPUTATIONS = auto()  # {%a, %b}: tuple[str, ...]
    INSTRUCTIONS = auto()  # {%a, %b}: tuple[str, ...]
    WINDOW = auto()
    DIM_LABELS = auto()
    PADDING = auto()  # tuple[PaddingDim, ...]
    SLICE = auto()  # tuple[SliceDim, ...]
    SHAPE = auto()
    SHAPES = auto()  # {f32[2]{0}, ...}: tuple[AnyShape, ...]
    RAW = auto()


Attribute: TypeAlias = (
    int
    | float
    | bool
    | str
    | tuple[int, ...]
    | tuple[str, ...]
    | Window
    | DimLabels
    | tuple[PaddingDim, ...]
    | tuple[SliceDim, ...]
    | AnyShape
    | tuple[AnyShape, ...]
)

KINDS: dict[str, AttrKind] = {
    "algorithm": AttrKind.WORD,  # of rng-bit-generator and dot
    "api_version": AttrKind.WORD,
    "async_execution_thread": AttrKind.STRING,
    "backend_config": AttrKind.RAW,
    "base_dilation": AttrKind.INTS,
    "batch_group_count": AttrKind.INT,
    "body": AttrKind.COMPUTATION,
    "branch_computations": AttrKind.COMPUTATIONS,
    "called_computations": AttrKind.COMPUTATIONS,
    "calls": AttrKind.COMPUTATION,
    "channel_id": AttrKind.INT,
    "collapsed_slice_dims": AttrKind.INTS,
    "comparison_type": AttrKind.WORD,
    "condition": AttrKind.COMPUTATION,
    "constrain_layout": AttrKind.BOOL,
    "control-predecessors": AttrKind.INSTRUCTIONS,
    "convolution_kind": AttrKind.WORD,
    "cross_program_prefetch_index": AttrKind.INT,
    "custom_call_has_side_effect": AttrKind.BOOL,
    "custom_call_schedule": AttrKind.WORD,
    "custom_call_target": AttrKind.STRING,
    "delta": AttrKind.INT,
    "dim_labels": AttrKind.DIM_LABELS,
    "dimensions": AttrKind.INTS,
    "direction": AttrKind.WORD,
    "distribution": AttrKind.WORD,
    "domain": AttrKind.RAW,
    "dynamic_slice_sizes": AttrKind.INTS,
    "entry": AttrKind.INT,
    "epsilon": AttrKind.FLOAT,
    "exponent_bits": AttrKind.INT,
    "false_computation": AttrKind.COMPUTATION,
    "feature_group_count": AttrKind.INT,
    "feature_index": AttrKind.INT,
    "fft_length": AttrKind.INTS,
    "fft_type": AttrKind.WORD,
    "frontend_attributes": AttrKind.RAW,
    "index": AttrKind.INT,
    "index_vector_dim": AttrKind.INT,
    "indices_are_sorted": AttrKind.BOOL,
    "infeed_config": AttrKind.STRING,
    "iota_dimension": AttrKind.INT,
    "is_associative": AttrKind.BOOL,
    "is_composite": AttrKind.BOOL,
    "is_cross_program_prefetch": AttrKind.BOOL,
    "is_host_transfer": AttrKind.BOOL,
    "is_reverse": AttrKind.BOOL,
    "is_stable": AttrKind.BOOL,
    "k": AttrKind.INT,
    "kind": AttrKind.WORD,
    "largest": AttrKind.BOOL,
    "left_side": AttrKind.BOOL,
    "lhs_batch_dims": AttrKind.INTS,
    "lhs_contracting_dims": AttrKind.INTS,
    "lhs_ragged_dims": AttrKind.INTS,
    "literal": AttrKind.RAW,
    "lower": AttrKind.BOOL,
    "mantissa_bits": AttrKind.INT,
    "metadata": AttrKind.RAW,
    "mode": AttrKind.WORD,
    "num_carries": AttrKind.INT,
    "offset_dims": AttrKind.INTS,
    "operand_batching_dims": AttrKind.INTS,
    "operand_layout_constraints": AttrKind.SHAPES,
    "operand_precision": AttrKind.RAW,
    "order": AttrKind.WORD,
    "origin": AttrKind.RAW,
    "outfeed_config": AttrKind.STRING,
    "outfeed_shape": AttrKind.SHAPE,
    "output_to_operand_aliasing": AttrKind.RAW,
    "padding": AttrKind.PADDING,
    "padding_type": AttrKind.WORD,
    "parameter_replication": AttrKind.RAW,
    "replica_groups": AttrKind.RAW,
    "result_accuracy": AttrKind.RAW,
    "rhs_batch_dims": AttrKind.INTS,
    "rhs_contracting_dims": AttrKind.INTS,
    "rhs_group_dims": AttrKind.INTS,
    "rng_bit_generator_algorithm": AttrKind.WORD,
    "scatter": AttrKind.COMPUTATION,
    "scatter_dims_to_operand_dims": AttrKind.INTS,
    "schedule": AttrKind.WORD,
    "select": AttrKind.COMPUTATION,
    "sharding": AttrKind.RAW,
    "slice": AttrKind.SLICE,
    "slice_sizes": AttrKind.INTS,
    "source_target_pairs": AttrKind.RAW,
    "sparsity": AttrKind.RAW,
    "sparsity_config": AttrKind.RAW,
    "split_dimension": AttrKind.INT,
    "start_index_map": AttrKind.INTS,
    "start_indices_batching_dims": AttrKind.INTS,
    "inferred_dimension": AttrKind.INT,
    "input_batching_dims": AttrKind.INTS,
    "inserted_window_dims": AttrKind.INTS,
    "scatter_indices_batching_dims": AttrKind.INTS,
    "statistics": AttrKind.RAW,
    "to_apply": AttrKind.COMPUTATION,
    "transpose_a": AttrKind.WORD,
    "true_computation": AttrKind.COMPUTATION,
    "type": AttrKind.WORD,
    "unique_indices": AttrKind.BOOL,
    "unit_diagonal": AttrKind.BOOL,
    "update_window_dims": AttrKind.INTS,
    "use_global_device_ids": AttrKind.BOOL,
    "window": AttrKind.WINDOW,
}
