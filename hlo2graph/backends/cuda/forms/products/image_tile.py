"""Stretches of images that blocks compute, and which are best: staged_image.py."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod

from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.forms.products.product import minor_dim
from hlo2graph.hlo import DimLabels, WindowDim
from hlo2graph.ops.device_folds import window_dims
from hlo2graph.ops.expect import integer, written

ROWS = (128, 64, 32)  # places of a tile, those that a stretch does not fill included
COLUMNS = (64, 32)  # features of a tile
TAPS = range(3, 50)  # places of a window
CHUNKS = (32, 16)  # words of features that a team has of a place at once
WIDEST = 96 << 10  # bytes of what lies under a stretch, of one chunk
PRODUCTS = 512  # of tensor cores of a multiprocessor in a cycle
BYTES = 32  # that come to a multiprocessor in a cycle


@dataclass(frozen=True, slots=True)
class ImageTile:
    """`height` by `width` places of a result by `columns` features.

    rows: as many as `height` by `width`, or more that are idle. down, across: stretches of an
    image. image: rows and columns of what is read; made: of the result. chunk: features of a
    place, of those of a group, that are in shared memory at once.
    """

    height: int
    width: int
    rows: int
    columns: int
    images: int
    image: tuple[int, int]
    made: tuple[int, int]
    window: tuple[WindowDim, WindowDim]
    chunk: int
    chunks: int

    @property
    def down(self) -> int:
        """Stretches of an image below one another."""
        return -(-self.made[0] // self.height)

    @property
    def across(self) -> int:
        """Stretches of an image beside one another."""
        return -(-self.made[1] // self.width)

    @property
    def taps(self) -> int:
        """Places of the window."""
        return prod(w.size for w in self.window)

    @property
    def reach(self) -> tuple[int, int]:
        """Rows and columns that lie under a stretch, and around it as far as windows reach."""
        height, width = (
            (size - 1) * w.stride + (w.size - 1) * w.rhs_dilate + 1
            for size, w in zip((self.height, self.width), self.window, strict=True)
        )
        return height, width

    def cycles(self, multiprocessors: int, columns: int, size: int) -> float:
        """Return about how long the busiest multiprocessor takes for `columns` features.

        size: bytes of an element.
        """
        blocks = self.images * self.down * self.across * -(-columns // self.columns)
        depth = self.chunk * self.chunks
        products = self.rows * self.columns * self.taps * depth / PRODUCTS * size / 4
        read = depth * size * (prod(self.reach) + self.columns * self.taps)
        return -(-blocks // multiprocessors) * (products + read / BYTES)


def best_tile(form: Form) -> ImageTile | None:
    """Return the tile that takes least, if blocks may compute stretches of images."""
    instr, lhs, out = form.instr, form.shape(0), written(form.instr)
    labels, window = instr.attrs["dim_labels"], window_dims(instr)
    assert isinstance(labels, DimLabels)
    minor = minor_dim(lhs)
    if len(window) != 2 or minor is None or labels.lhs[minor] != "f":
        return None
    if prod(w.size for w in window) not in TAPS:
        return None
    if integer(instr, "batch_group_count", 1) > 1 or any(w.lhs_dilate > 1 for w in window):
        return None
    image, made = (
        (shape.dims[held.index("0")], shape.dims[held.index("1")])
        for shape, held in ((lhs, labels.lhs), (out, labels.out))
    )
    groups = integer(instr, "feature_group_count", 1)
    depth, per = lhs.dims[minor] // groups, 4 // lhs.dtype.size
    chunk = next((n * per for n in CHUNKS if depth % (n * per) == 0), 0)
    if not chunk:
        return None
    columns = out.dims[labels.out.index("f")] // groups
    found = []
    for rows, wide in product(ROWS, COLUMNS):
        across = -(-made[1] // rows)
        width = -(-made[1] // across)
        height = min(rows // width, made[0])
        images = lhs.dims[labels.lhs.index("b")]
        tile = ImageTile(
            height, width, rows, wide, images, image, made, window, chunk, depth // chunk
        )
        if prod(tile.reach) * chunk * lhs.dtype.size <= WIDEST:
            found.append(tile)
    multiprocessors = form.signature.device.multiprocessors // groups or 1
    cost = {t: t.cycles(multiprocessors, columns, lhs.dtype.size) for t in found}
    return min(found, key=lambda tile: cost[tile], default=None)
