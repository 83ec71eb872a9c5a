"""Turning images around large convolutions, so that the features of a place lie side by side.

In and out: a Module of the same meaning, in which images of features, rows and columns are images
of rows, columns and features. A convolution on tensor cores sums over features: where these are
last, they come to shared memory sixteen bytes at a time, else element by element. Elementwise work,
windows, folds and convolutions are written anew on turned images; to and from all else there are
transposes, most of which meet one another and vanish.

The rule, all of it: all images, as many and as large as those of a convolution of FEWEST_FLOPS on
tensor cores, not of points, without groups, of FEWEST features or more on both sides, and as those
that windows make of such. What multiplies points reads images as they lie.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import TypeAlias

from hlo2graph.hlo import Attribute, Computation, DimLabels, Instruction, Module, Shape, Window
from hlo2graph.ops import OPS
from hlo2graph.ops.expect import integer, integers
from hlo2graph.ops.own_dot import takes_tensor_cores
from hlo2graph.passes.draft import Draft, is_settled
from hlo2graph.passes.redraft import redraft

FEWEST_FLOPS = 1 << 28
FEWEST = 32
TURNED = (0, 2, 3, 1)  # of each dimension of a turned image: which one it was
BACK = (0, 3, 1, 2)

_WINDOWS = frozenset({"reduce-window", "select-and-scatter"})
_Images: TypeAlias = tuple[int, int, int]  # how many, rows, columns


def turn_images(module: Module) -> Module:
    """Return `module` with the images of large convolutions turned."""
    return redraft(module, "convolution", _turned)


def _turned(draft: Draft) -> Computation:
    instructions = list(draft.instructions.values())
    sizes = {size for i in instructions if i.opcode == "convolution" for size in _of(draft, i)}
    for instr in instructions if sizes else ():
        if instr.opcode in _WINDOWS and _size(draft.shape(instr.operands[0])) in sizes:
            sizes |= {size for size in map(_size, instr.shape.leaves()) if size}
    turning = _Turning(draft, frozenset(sizes))
    for instr in instructions if sizes else ():
        turning.write(draft[instr.name])
    return draft.done()


def _of(draft: Draft, instr: Instruction) -> Iterator[_Images]:
    """Yield the sizes of the images of a large convolution: what it reads, and makes or reads."""
    lhs, rhs = (draft.shape(name) for name in instr.operands)
    out, labels = instr.shape, _labels(instr)
    assert isinstance(out, Shape)
    groups = [integer(instr, f"{kind}_group_count", 1) for kind in ("feature", "batch")]
    if groups != [1, 1] or len(labels.lhs) != 4 or not takes_tensor_cores(instr, lhs, rhs):
        return
    window, made = (
        prod(shape.dims[held.index(d)] for d in "01")
        for shape, held in ((rhs, labels.rhs), (out, labels.out))
    )
    other = (rhs, labels.rhs) if window > made else (out, labels.out)
    images = [shape for shape, held in ((lhs, labels.lhs), other) if held[2:] == "01"]
    flops = 2 * out.elements * rhs.elements // max(1, rhs.dims[labels.rhs.index("o")])
    if min(window, made) > 1 and flops >= FEWEST_FLOPS and all(s.dims[1] >= FEWEST for s in images):
        yield from (size for size in map(_size, images) if size)


def _size(shape: Shape) -> _Images | None:
    """Return how many images of what size an array is, if it lies as it is numbered."""
    if shape.rank != 4 or not is_settled(shape) or not shape.is_row_major:
        return None
    return shape.dims[0], shape.dims[2], shape.dims[3]


class _Turning:
    """Writes instructions anew; `_found` has the turned image of each that was."""

    def __init__(self, draft: Draft, sizes: frozenset[_Images]) -> None:
        self._draft, self._sizes = draft, sizes
        self._found: dict[str, str] = {}

    def write(self, instr: Instruction) -> None:
        """Turn an image, or what an instruction reads of such."""
        if not self._draft.is_pure(instr):
            return
        match instr.opcode:
            case "convolution":
                self._convolution(instr)
            case "reduce" if len(instr.operands) == 2 and self._is_image(instr.operands[0]):
                self._reduce(instr)
            case "broadcast" if self._is_image(instr.name):
                dims = tuple(TURNED.index(d) for d in integers(instr, "dimensions", ()))
                if list(dims) == sorted(dims):
                    self._become(instr, instr.operands, {**instr.attrs, "dimensions": dims})
            case opcode if opcode in _WINDOWS and self._is_image(instr.name):
                self._window(instr)
            case opcode if OPS[opcode].elementwise and self._is_image(instr.name):
                self._elementwise(instr)
            case _:
                pass

    def _is_image(self, name: str) -> bool:
        shape = self._draft[name].shape
        return isinstance(shape, Shape) and _size(shape) in self._sizes

    def _turn(self, name: str) -> str:
        """Return a turned image; where nothing was written of it yet, by a transpose."""
        if name not in self._found:
            attrs: dict[str, Attribute] = {"dimensions": TURNED}
            shape = _permuted(self._draft.shape(name))
            made = self._draft.add(self._draft[name], "transpose", shape, (name,), attrs)
            self._found[name] = made
        return self._found[name]

    def _become(
        self, instr: Instruction, operands: tuple[str, ...], attrs: Mapping[str, Attribute]
    ) -> None:
        """Write the turned image, and let the image be that, turned back."""
        assert isinstance(instr.shape, Shape)
        made = self._draft.add(instr, instr.opcode, _permuted(instr.shape), operands, attrs)
        self._found[instr.name] = made
        back: dict[str, Attribute] = {"dimensions": BACK}
        back |= {k: v for k, v in instr.attrs.items() if k == "metadata"}
        self._draft.become(
            instr.name, replace(instr, opcode="transpose", operands=(made,), attrs=back)
        )

    def _elementwise(self, instr: Instruction) -> None:
        shapes = [self._draft[o].shape for o in instr.operands]
        assert isinstance(instr.shape, Shape)
        dims = instr.shape.dims
        if all(isinstance(s, Shape) and s.dims in (dims, ()) for s in shapes):
            operands = tuple(
                self._turn(o) if self._draft.shape(o).dims else o for o in instr.operands
            )
            self._become(instr, operands, instr.attrs)

    def _window(self, instr: Instruction) -> None:
        window, images = instr.attrs["window"], [o for o in instr.operands if self._is_image(o)]
        assert isinstance(window, Window)
        inits = [o for o in instr.operands if not self._draft.shape(o).dims]
        if len(images) + len(inits) == len(instr.operands):
            turned = Window(tuple(window.dims[d] for d in TURNED))
            operands = tuple(self._turn(o) if o in images else o for o in instr.operands)
            self._become(instr, operands, {**instr.attrs, "window": turned})

    def _reduce(self, instr: Instruction) -> None:
        dims = sorted(TURNED.index(d) for d in integers(instr, "dimensions"))
        kept = [TURNED[d] for d in range(len(TURNED)) if d not in dims]
        if kept == sorted(kept):
            operands = (self._turn(instr.operands[0]), instr.operands[1])
            attrs = {**instr.attrs, "dimensions": tuple(dims)}
            self._draft.become(instr.name, replace(instr, operands=operands, attrs=attrs))

    def _convolution(self, instr: Instruction) -> None:
        """Turn what of its operands and its result are images of its own places."""
        labels, operands = _labels(instr), list(instr.operands)
        names = {"lhs": operands[0], "rhs": operands[1], "out": instr.name}
        held = {side: getattr(labels, side) for side in names}
        turned = [s for s, name in names.items() if held[s][2:] == "01" and self._is_image(name)]
        held |= {side: "".join(held[side][d] for d in TURNED) for side in turned}
        operands = [self._turn(names[s]) if s in turned else names[s] for s in ("lhs", "rhs")]
        attrs = {**instr.attrs, "dim_labels": DimLabels(**held)}
        if "out" in turned:
            self._become(instr, tuple(operands), attrs)
        elif turned:
            made = replace(instr, operands=tuple(operands), attrs=attrs)
            self._draft.become(instr.name, made)


def _permuted(shape: Shape) -> Shape:
    return Shape(shape.dtype, tuple(shape.dims[d] for d in TURNED))


def _labels(instr: Instruction) -> DimLabels:
    held = instr.attrs["dim_labels"]
    assert isinstance(held, DimLabels)
    return held
