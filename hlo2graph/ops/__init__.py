"""The one op table: an OpSpec per opcode, a file per family."""

from hlo2graph.ops.asynchronous import ASYNCHRONOUS
from hlo2graph.ops.collectives import COLLECTIVES
from hlo2graph.ops.conversion import CONVERSION
from hlo2graph.ops.convolution import CONVOLUTION
from hlo2graph.ops.custom_call import CUSTOM_CALL
from hlo2graph.ops.dot import DOT
from hlo2graph.ops.dynamic import DYNAMIC
from hlo2graph.ops.elementwise import ELEMENTWISE
from hlo2graph.ops.fft import FFT
from hlo2graph.ops.gather import GATHER
from hlo2graph.ops.host_io import HOST_IO
from hlo2graph.ops.linalg import LINALG
from hlo2graph.ops.normalization import NORMALIZATION
from hlo2graph.ops.ragged_dot import RAGGED_DOT
from hlo2graph.ops.random import RANDOM
from hlo2graph.ops.reduction import REDUCTION
from hlo2graph.ops.scaled_dot import SCALED_DOT
from hlo2graph.ops.scan import SCAN
from hlo2graph.ops.scatter import SCATTER
from hlo2graph.ops.selection import SELECTION
from hlo2graph.ops.shaping import SHAPING
from hlo2graph.ops.sorting import SORTING
from hlo2graph.ops.spec import OpSpec
from hlo2graph.ops.structure import STRUCTURE
from hlo2graph.ops.window import WINDOW

FAMILIES: tuple[tuple[OpSpec, ...], ...] = (
    (DOT, RAGGED_DOT, SCALED_DOT),
    CONVOLUTION,
    CUSTOM_CALL,
    FFT,
    (GATHER, SCATTER),
    (SCAN,),
    LINALG,
    NORMALIZATION,
    RANDOM,
    REDUCTION,
    SORTING,
    WINDOW,
    ASYNCHRONOUS,
    COLLECTIVES,
    CONVERSION,
    DYNAMIC,
    ELEMENTWISE,
    HOST_IO,
    SELECTION,
    SHAPING,
    STRUCTURE,
)
OPS: dict[str, OpSpec] = {spec.opcode: spec for family in FAMILIES for spec in family}

__all__ = ["FAMILIES", "OPS"]
