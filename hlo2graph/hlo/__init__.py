"""HLO as pure data: element types, shapes, literals, attributes, modules and their printing."""

from hlo2graph.hlo.attributes import (
    KINDS,
    Attribute,
    AttrKind,
    DimLabels,
    PaddingDim,
    Raw,
    SliceDim,
    Window,
    WindowDim,
)
from hlo2graph.hlo.dtype import DTYPES, DType, Kind
from hlo2graph.hlo.literal import AnyLiteral, Literal
from hlo2graph.hlo.module import Computation, Instruction, Module
from hlo2graph.hlo.shape import UNBOUNDED, AnyShape, Layout, Shape, TupleShape

__all__ = [
    "DTYPES",
    "KINDS",
    "UNBOUNDED",
    "AnyLiteral",
    "AnyShape",
    "AttrKind",
    "Attribute",
    "Computation",
    "DType",
    "DimLabels",
    "Instruction",
    "Kind",
    "Layout",
    "Literal",
    "Module",
    "PaddingDim",
    "Raw",
    "Shape",
    "SliceDim",
    "TupleShape",
    "Window",
    "WindowDim",
]
