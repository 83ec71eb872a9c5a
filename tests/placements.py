"""Programs and random sequences of calls whose arrays move: for the fake driver and for a GPU."""

from __future__ import annotations

from random import Random

import numpy as np

from hlo2graph.backends.cuda.device_array import DeviceArray
from hlo2graph.inspect.compare import same_bits
from tests.blocks import Block, View, gathered
from tests.test_cuda_graph import DIAMOND, IF, LOOP, NESTED, SWITCH

DONATED = """
HloModule donated, input_output_alias={ {0}: (0, {}, may-alias) }

ENTRY main {
  s = f32[64] parameter(0)
  x = f32[64] parameter(1)
  y = f32[64] parameter(2)
  a = f32[64] add(s, x)
  b = f32[64] multiply(x, y)
  ROOT t = (f32[64], f32[64]) tuple(a, b)
}
"""

COPIES = """
HloModule copies

ENTRY main {
  x = f32[64] parameter(0)
  y = f32[64] parameter(1)
  zero = s8[] constant(3)
  z = s8[5] broadcast(zero), dimensions={}
  c = f32[64] copy(x)
  d = f32[64] subtract(y, x)
  ROOT t = (f32[64], f32[64], f32[64], s8[5]) tuple(x, c, d, z)
}
"""

MATMULS = """
HloModule matmuls

ENTRY main {
  x = f32[64,64] parameter(0)
  y = f32[64,64] parameter(1)
  d = f32[64,64] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT e = f32[64,64] add(d, y)
}
"""

ROOM = 1 << 15  # bytes that hold any argument, at any offset used here
PROGRAMS = {
    "diamond": DIAMOND,
    "loop": LOOP,
    "switch": SWITCH,
    "if": IF,
    "nested": NESTED,
    "donated": DONATED,
    "copies": COPIES,
    "matmuls": MATMULS,
}


def draw(exe, rng, reference):
    """Return small random arguments; integers steer loops and branches."""
    found = []
    for _, dtype, shape in exe.inputs:
        if dtype == np.bool_:
            found.append(np.bool_(rng.random() < 0.5))
        elif dtype.kind == "i":
            found.append(np.asarray(rng.randrange(-1, 4), dtype))
        else:
            found.append(reference.integers(-4, 5, shape).astype(dtype))  # sums of them are exact
    return found


class Caller:
    """Calls an executable with arrays in all sorts of places.

    Each result must be what `reference` gives for the same arrays from the host, bit for bit.
    """

    def __init__(self, exe, reference, seed):
        self.exe, self.reference = exe, reference
        self.rng = Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.blocks = [[Block(ROOM) for _ in exe.inputs] for _ in range(3)]
        self.turn = 0
        self.results = None

    def call(self):
        """Make one call of a random kind."""
        values = draw(self.exe, self.rng, self.numbers)
        kinds = (self.stay, self.rotate, self.swap, self.overlap, self.renew)
        kinds += (self.mixed, self.feed_back, self.own, self.unaligned)
        args, values = self.rng.choice(kinds)(values)
        args = self.ours(args) if self.rng.random() < 0.5 else args
        out, donate = self.outputs(), self.rng.random() < 0.3
        want = self.reference(*values)
        got = self.exe.run(args, out=out, donate=donate)
        found = gathered((*got, *args))
        self.check(got, found[: len(got)], want, out)
        self.results = got if out is None else None
        donated = set(self.exe.plan.donated) if donate else set()
        touched = [a for k, a in enumerate(args) if k in donated]
        touched += [] if isinstance(out, (str, type(None))) else [o for o in out if o is not None]
        for arg, value, held in zip(args, values, found[len(got) :], strict=True):
            if is_callers(arg) and not any(meets(arg, other) for other in touched):
                assert np.array_equal(held, value, equal_nan=True), "an argument was written"

    def check(self, got, found, want, out):
        assert same_bits(found, want), (found, want)
        if isinstance(out, list):
            for given, result in zip(out, got, strict=True):
                assert given is None or given is result

    def outputs(self):
        """Return where results shall go: home, to fresh memory, or to arrays, some in the way."""
        kind = self.rng.randrange(4)
        if kind < 2:
            return (None, "fresh")[kind]
        found = []
        blocks = list(self.blocks[0])  # where arguments may lie too
        self.rng.shuffle(blocks)
        for _, dtype, shape in self.exe.outputs:
            offset = self.rng.choice((0, 0, dtype.itemsize, 16))
            near = blocks.pop() if blocks and self.rng.random() < 0.5 else Block(ROOM)
            found.append(View(near, dtype, shape, offset))
        if kind == 3:
            found[self.rng.randrange(len(found))] = None
        return found

    def ours(self, args):
        """Give arrays of ours instead of others that lie in the same places."""
        exe, found = self.exe, []
        for arg, leaf in zip(args, exe.plan.inputs, strict=True):
            if isinstance(arg, View):
                arg = DeviceArray(arg.address, leaf.shape, exe.device, exe.stream, arg.block)
            found.append(arg)
        return found

    def stay(self, values):
        return [b.view(v) for b, v in zip(self.blocks[0], values, strict=True)], values

    def rotate(self, values):
        self.turn = (self.turn + 1) % len(self.blocks)
        return [b.view(v) for b, v in zip(self.blocks[self.turn], values, strict=True)], values

    def swap(self, values):
        """Exchange the memory of two arguments."""
        blocks = list(self.blocks[0])
        a, b = self.rng.randrange(len(blocks)), self.rng.randrange(len(blocks))
        blocks[a], blocks[b] = blocks[b], blocks[a]
        return [b.view(v) for b, v in zip(blocks, values, strict=True)], values

    def overlap(self, values):
        """Put arguments of one type at places that share bytes, by whole aligned words or less."""
        block, found, seen = Block(2 * ROOM), [], {}
        for value in values:
            step = self.rng.choice((0, 4, 16, 64)) if value.dtype.itemsize == 4 else 0
            at = seen.get(value.dtype, len(seen) * ROOM // 2) + step
            seen[value.dtype] = at
            found.append(block.view(value, at))
        return found, [a.get() for a in found]

    def renew(self, values):
        """Free memory and take some of the same size, which mostly comes to lie there again."""
        self.blocks[1] = []
        self.blocks[1] = [Block(ROOM) for _ in values]
        return [b.view(v) for b, v in zip(self.blocks[1], values, strict=True)], values

    def mixed(self, values):
        """Let some come from the host."""
        args, _ = self.rotate(values)
        return [v if self.rng.random() < 0.5 else a for v, a in zip(values, args, strict=True)], (
            values
        )

    def feed_back(self, values):
        """Give a result that lies in the executable's own memory as an argument."""
        args, values = self.stay(values)
        values = list(values)
        for result in self.results or ():
            for k, value in enumerate(values):
                fits = (value.dtype, value.shape) == (result.dtype, result.shape)
                if fits and self.rng.random() < 0.7:
                    args[k], values[k] = result, np.asarray(result)
        return args, values

    def own(self, values):
        """Give the executable's own input buffers, some of them exchanged."""
        args = list(self.exe.put(*values))
        values = list(values)
        a, b = self.rng.randrange(len(args)), self.rng.randrange(len(args))
        if (values[a].dtype, values[a].shape) == (values[b].dtype, values[b].shape):
            args[a], args[b] = args[b], args[a]
            values[a], values[b] = values[b], values[a]
        if self.rng.random() < 0.5:
            k = self.rng.randrange(len(args))
            args[k] = values[k]
        return args, values

    def unaligned(self, values):
        return [
            b.view(v, v.dtype.itemsize) for b, v in zip(self.blocks[2], values, strict=True)
        ], values


def is_callers(array):
    """An array is on the device, in memory that is not the executable's."""
    return isinstance(array, View) or isinstance(getattr(array, "home", None), Block)


def meets(a, b):
    """Two arrays on the device share a byte."""
    if isinstance(b, np.ndarray):
        return False
    return a.address < b.address + bytes_of(b) and b.address < a.address + bytes_of(a)


def bytes_of(array):
    return array.dtype.itemsize * int(np.prod(array.shape, dtype=int))
