"""A convolution on tensor cores whose places of a window share what they read.

A block computes a stretch of an image, of so many rows and columns. What lies under it, and around
it as far as windows reach, comes to shared memory once for some features; each place of the window
multiplies it from another place on. So what is read for one place of the window serves all. That
gains where no other block has work for a multiprocessor while one waits, or a group's sums are
short; narrow floats come fast enough as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.forms.products.convolution_product import ConvolutionProduct
from hlo2graph.backends.cuda.forms.products.image_tile import ImageTile, best_tile
from hlo2graph.backends.cuda.forms.products.product import Side
from hlo2graph.backends.cuda.forms.products.staged import StagedWriter
from hlo2graph.backends.cuda.forms.products.staged_operand import FOUR, Operand
from hlo2graph.backends.cuda.forms.products.staged_reader import Reader
from hlo2graph.backends.cuda.source import KernelSource
from hlo2graph.ops.device import Expr, Index

MOST_STAGES = 5  # of the kernel: chunks that are on the way, or are multiplied
LEAST_STAGES = 3


def image_kernel(form: Form) -> KernelSource | None:
    """Return the kernel, if what it reads lies in memory as it will in shared memory."""
    tile = best_tile(form)
    writer = _Writer(form, tile) if tile else None
    if writer is None or not (writer.is_possible and writer.gains):
        return None
    found = writer.kernel()
    return found if all(r.is_plain and r.is_sum for r in writer.readers) else None


class _Product(ConvolutionProduct):
    """The product with its rows ordered by blocks: images, stretches of them, places of such."""

    def __init__(self, form: Form, tile: ImageTile) -> None:
        super().__init__(form, clamps=False)
        self.tile = tile
        sizes = (tile.images, tile.down, tile.across, tile.rows)
        self.sides = (Side(0, sizes, is_deep=True).cut(tile.rows), self.sides[1].cut(tile.columns))

    def place(self, lhs: Index) -> tuple[Expr, Expr]:
        """Return the row and the column of the result that a row of the product is."""
        _, down, across, slot = lhs
        y, x = f"{slot} / {self.tile.width}", f"{slot} % {self.tile.width}"
        return f"({down} * {self.tile.height} + {y})", f"({across} * {self.tile.width} + {x})"

    def result(self, batch: Index, lhs: Index, rhs: Index) -> Index:
        """Return the index of a place and a feature."""
        y, x = self.place(lhs)
        parts = {"b": lhs[0], "0": y, "1": x}
        return super().result(batch, tuple(parts[label] for label in self._free), rhs)

    def read(self, emit: ElementEmitter, batch: Index, parts: dict[str, Expr]) -> Index:
        """Return the index of what is read, given its parts by their labels."""
        if self.batches:
            size = self._lhs.dims[self._labels.lhs.index("f")] // self.batches[0]
            parts["f"] = self._joined(emit, batch[0], parts["f"], size)
        return tuple(parts[label] for label in self._labels.lhs)


@dataclass(slots=True, kw_only=True)
class _Reader(Reader):
    """Reads what lies under a stretch and around it, place by place."""

    images: _Product
    image: Expr = ""
    first: Sequence[Expr] = ()  # row and column

    def place(self, batch: Index, start: Expr) -> None:
        """Write which image is read, and from where on."""
        del batch
        emit, tile = self.emit, self.images.tile
        number = emit.integer(f"{start} / {tile.rows}")
        self.image, down, across = emit.split(number, (tile.images, tile.down, tile.across))
        self.first = [
            emit.integer(f"{at} * {size * w.stride} - {w.pad_low}")
            for at, size, w in zip(
                (down, across), (tile.height, tile.width), tile.window, strict=True
            )
        ]
        emit.line(f"const int word_a = slot % {self.operand.abreast} * {FOUR};")

    def fetch(self, batch: Index, chunk: Expr) -> None:
        """Write how a team reads the features from `chunk` on, four words a thread at a time."""
        emit, tile, operand = self.emit, self.images.tile, self.operand
        head = f"int at = slot / {operand.abreast}; at < {prod(tile.reach)}; at += {operand.turn}"
        with emit.block(f"for ({head})"):
            y = emit.integer(f"{self.first[0]} + at / {tile.reach[1]}")
            x = emit.integer(f"{self.first[1]} + at % {tile.reach[1]}")
            limits = zip((y, x), tile.image, strict=True)
            inside = " && ".join(f"{place} >= 0 && {place} < {size}" for place, size in limits)
            values = self._side_by_side(batch, {"b": self.image, "0": y, "1": x}, chunk)
            tests = dict.fromkeys(values, inside)
            self.is_plain = self.is_plain and self._lie_together(values, tests)
            if self.is_plain:
                parameter, shape, index = emit.origins[values[0]]
                to = f"&to_a[{operand.place_of('at', 'word_a')}]"
                source = f"&p{parameter}[{emit.offset(shape, index)}]"
                emit.line(f"hlo::copy_four({to}, {source}, {inside});")

    def _side_by_side(self, batch: Index, parts: dict[str, Expr], chunk: Expr) -> dict[int, Expr]:
        """Return the features of a place that a thread reads, by their number."""
        emit, name = self.emit, self.form.instr.operands[0]
        first = emit.integer(f"{chunk} + word_a * {self.operand.per}")
        found: dict[int, Expr] = {}
        for k in range(self.operand.elements):
            feature = emit.integer(f"{first} + {k}") if k else first
            self._beside[feature] = first, k
            index = self.images.read(emit, batch, parts | {"f": feature})
            found[k] = emit.leaf(name, 0, index)
        return found


class _Writer(StagedWriter):
    """Its lhs is held place by place, for all places of the window."""

    def __init__(self, form: Form, tile: ImageTile) -> None:
        self.tile, self.images = tile, _Product(form, tile)
        super().__init__(form, self.images, LEAST_STAGES)
        self.parts = self.chunks // self.partners.all
        self.rounds = self.parts * tile.taps
        self.stages = min(tile.taps, MOST_STAGES, self._room(self.teams) // self.sides[1].size)

    @property
    def is_possible(self) -> bool:
        """Tell whether parts come out even, and what is held fits."""
        is_even = self.chunks % self.partners.all == 0
        return is_even and self.along_columns and self.stages >= LEAST_STAGES

    @property
    def gains(self) -> bool:
        """Tell whether it is faster than with operands that come for each place of the window."""
        return bool(self.product.batches) or (self.resident == 1 and self.dtype.name == "f32")

    def _held(self, teams: int) -> int:
        """Words of what lies under stretches: of the features that are multiplied, and the next."""
        return self.sides[0].size * (2 if self.chunks > self.cluster * teams else 1)

    def _room(self, teams: int) -> int:
        """Return how many words are left for chunks of the kernel, of each of so many teams."""
        blocks = max(1, min(self.resident, 2))
        return self.form.signature.device.shared // (4 * blocks * teams) - self._held(teams)

    @property
    def _words(self) -> int:
        return max(self._held(self.teams) + self.stages * self.sides[1].size, self._sums)

    def _tiled(self) -> tuple[Side, Side]:
        return self.images.sides

    def _operands(self, per: int) -> tuple[Operand, Operand]:
        depth = self.tile.chunk * self.tile.chunks
        read = Side(0, (depth,), is_deep=True, tile=prod(self.tile.reach))
        return (
            Operand(read, "a", per, self.team, self.tile.chunk),
            Operand(self.columns, "b", per, self.team, self.tile.chunk),
        )

    def _count_chunks(self) -> int:
        return self.tile.chunks

    def _count_teams(self) -> int:
        teams = 1
        while (
            self.chunks % (2 * teams * self.cluster) == 0
            and 2 * teams * self.team * self.resident <= self.most
            and self._room(2 * teams) >= LEAST_STAGES * self.sides[1].size
        ):
            teams *= 2
        return teams

    def _readers(self) -> tuple[Reader, Reader]:
        at_once = self.tile.chunk * self.partners.all
        given = self.form, self.emit, self.product
        a, b = self.sides
        return (
            _Reader(*given, a, at_once, copies=True, images=self.images),
            Reader(*given, b, at_once, copies=True),
        )

    def _place_readers(self) -> None:
        """Write where a thread's pieces of rows lie too, seen from the first place of a window."""
        super()._place_readers()
        emit, tile, high, a = self.emit, self.tile, self.span // 16, self.sides[0]
        emit.line(f"int row_a[{high}];")
        with self._unrolled("i", high):
            emit.line("const int row = span_a + 16 * i + lane / 8 % 2 * 8 + lane % 8;")
            (down, _), (across, width) = (
                (w.stride, size) for w, size in zip(tile.window, tile.reach, strict=True)
            )
            y, x = f"row / {tile.width} * {down * width}", f"row % {tile.width} * {across}"
            used = tile.height * tile.width
            place = f"({y} + {x}) * {a.stride}"
            place = f"(row < {used} ? {place} : 0)" if used < tile.rows else place
            emit.line(f"row_a[i] = {place} + lane / 16 * {FOUR};")

    def _piece_of_rows(self, row: Expr, step: Expr) -> Expr:
        del row
        return f"row_a[i] + ({step}) / {self.sides[0].per}"

    def _point_to_round(self) -> None:
        emit, taps, tile = self.emit, self.tile.taps, self.tile
        width, down = tile.window[1].size, tile.window[0].rhs_dilate * tile.reach[1]
        moved = f"(tap / {width} * {down} + tap % {width} * {tile.window[1].rhs_dilate})"
        emit.line(f"const int tap = round % {taps};")
        part = f"round / {taps} % 2 * {self.sides[0].size} + " if self.parts > 1 else ""
        emit.line(f"hlo::u32* const a = own + {part}{moved} * {self.sides[0].stride};")
        emit.line(f"hlo::u32* const b = own + {self._chunk_of('round')};")

    def _chunk_of(self, round_: str) -> str:
        """Return where a round's chunk of the kernel lies, among a team's words."""
        return f"{self._held(self.teams)} + {round_} % {self.stages} * {self.sides[1].size}"

    def _copy_next(self, ahead: int) -> None:
        """Write what is copied: a chunk of the kernel, and what lies under the stretch in time."""
        emit, taps = self.emit, self.tile.taps
        emit.binds_reads = False
        own = f"{self.partners.first(self.teams)}team"
        with emit.block("", ""):
            emit.line(f"const int tap = next % {taps}, part = next / {taps};")
            emit.line(f"hlo::u32* const to_b = own + {self._chunk_of('next')};")
            depth = self.tile.chunk * self.tile.chunks
            chunk = f"tap * {depth} + (part * {self.partners.all} + {own}) * {self.tile.chunk}"
            self.readers[1].fetch(self.batch, emit.integer(chunk))
            # The first with the first chunk; others when nobody multiplies what they lie over.
            later = f"tap == {ahead} && part + 1 < {self.parts} ? part + 1 : -1"
            emit.line(f"const int under = next == 0 ? 0 : {later if self.parts > 1 else -1};")
            with emit.block("if (under >= 0)"):
                emit.line(f"hlo::u32* const to_a = own + under % 2 * {self.sides[0].size};")
                chunk = f"(under * {self.partners.all} + {own}) * {self.tile.chunk}"
                self.readers[0].fetch(self.batch, emit.integer(chunk))
        emit.binds_reads = True

    def _tests(self, at: Sequence[Expr], sides: Sequence[Side]) -> list[Expr]:
        tile = self.tile
        *_, slot = lhs = self.emit.split(at[0], sides[0].sizes)
        used = tile.height * tile.width
        tests = super()._tests(at, sides)
        tests += [f"{slot} < {used}"] if used < tile.rows else []
        sizes = zip(self.images.place(lhs), tile.made, (tile.height, tile.width), strict=True)
        return tests + [f"{place} < {most}" for place, most, size in sizes if most % size]
