"""Random operations that few programs have: asynchronous forms, scans, custom calls, rng."""

from __future__ import annotations

from random_shapes import Shaping

_HYPERBOLIC = ("acos", "acosh", "asin", "asinh", "atanh", "cosh", "sinh")
# XLA:CPU has these functions of what it widens first, and of nothing else.
_NARROW = ("bf16", "f8e3m4", "f8e4m3", "f8e4m3b11fnuz", "f8e4m3fn", "f8e5m2", "f4e2m1fn")
_SCANNED = """\
  c = {0}[{1}] parameter({2})
  x = {0}[{1}] parameter({3})
  next = {0}[{1}] {4}(c, x)
  out = {0}[{1}] subtract(next, x)
  ROOT both = ({0}[{1}], {0}[{1}]) tuple(out, next)
"""


class Rare(Shaping):
    """Each public method writes one operation."""

    def hyperbolic(self) -> None:
        x = self.array(self.pick(_NARROW))
        self.root(x.dtype, x.dims, f"{self.pick(_HYPERBOLIC)}({x.name})")

    def scan(self) -> None:
        dims = tuple(n + 1 for n in self.sizes(least=1))
        x = self.given(self.pick(("f32", "s32", "f64", "u8")), dims)
        along = self.rnd.randrange(len(x.dims))
        row = (*x.dims[:along], *x.dims[along + 1 :])
        start = self.given(x.dtype, row)
        sizes = ",".join(map(str, row))
        opcode = self.pick(("add", "maximum", "subtract"))
        region = self.computation("step", _SCANNED.format(x.dtype, sizes, 1, 0, opcode))
        backwards = ", is_reverse=true" if self.chance(0.5) else ""
        call = f"scan({x.name}, {start.name}), dimensions={{{along}}}, num_carries=1{backwards}"
        self.several([(x.dtype, x.dims), (x.dtype, row)], f"{call}, to_apply={region}")

    def asynchronous(self) -> None:
        """Write a start and its end at length, with a collective inside: XLA:CPU has no other."""
        x = self.given("f32", tuple(n + 1 for n in self.sizes(least=1)))
        shape = f"f32[{','.join(map(str, x.dims))}]"
        add = self.region("f32", "add")
        call = self.pick(
            (
                f"all-reduce(p), replica_groups={{}}, to_apply={add}",
                f"reduce-scatter(p), replica_groups={{{{0}}}}, dimensions={{0}}, to_apply={add}",
                "all-gather(p), replica_groups={{0}}, dimensions={0}",
                "all-to-all(p), replica_groups={{0}}, dimensions={0}",
                "collective-permute(p), source_target_pairs={{0,0}}",
            )
        )
        body = f"  p = {shape} parameter(0)\n  ROOT r = {shape} {call}\n"
        inside = self.computation("beside", body)
        held = f"(({shape}), {shape})"
        self.lines.append(f"begun = {held} async-start({x.name}), calls={inside}")
        self.root(x.dtype, x.dims, "async-done(begun)")

    def top(self) -> None:
        """Write the custom call that stands for a top-k on the CPU."""
        rows, columns = self.rnd.randint(1, 4), self.rnd.randint(1, 9)
        x = self.given("f32", (rows, columns))
        dims = (rows, self.rnd.randint(1, columns))
        pairs = ("f32", "f32", "s32", "s32")
        given = "".join(f"  q{k} = {d}[] parameter({k})\n" for k, d in enumerate(pairs))
        order = "  ROOT r = pred[] compare(q0, q1), direction=GT, type=TOTALORDER\n"
        region = self.computation("greater", given + order)
        call = f'custom-call({x.name}), custom_call_target="TopK", called_computations={{{region}}}'
        self.several([("f32", dims), ("s32", dims)], call)

    def marked(self) -> None:
        """Write what only marks: a sharding, a domain, a barrier, a composite call."""
        x = self.array(self.pick(("f32", "s8", "pred", "c64", "f8e5m2")))
        kind = 'kind="sharding", entry={maximal device=0}, exit={maximal device=0}'
        target = 'custom_call_target="Sharding", sharding={replicated}'
        shape = f"{x.dtype}[{','.join(map(str, x.dims))}]"
        same = self.computation("same", f"  p = {shape} parameter(0)\n  ROOT r = {shape} copy(p)\n")
        self.root(
            x.dtype,
            x.dims,
            self.pick(
                (
                    f"custom-call({x.name}), {target}",
                    f"domain({x.name}), domain={{{kind}}}",
                    f"opt-barrier({x.name})",
                    f"call({x.name}), to_apply={same}",
                )
            ),
        )

    def dynamic_reshape(self) -> None:
        """Write one whose sizes are the bounds, or a first size that is less."""
        x = self.given("s32", (self.rnd.randint(1, 4), self.rnd.randint(1, 4)))
        bounds = (x.dims[0] * x.dims[1],) if self.chance(0.5) else x.dims[::-1]
        sizes = [f"size{k} = s32[] constant({n})" for k, n in enumerate(bounds)]
        names = ", ".join(f"size{k}" for k in range(len(bounds)))
        shape = f"s32[{','.join(f'<={n}' for n in bounds)}]"
        self.lines += [*sizes, f"turned = {shape} dynamic-reshape({x.name}, {names})"]
        self._total("turned", bounds)

    def _total(self, name: str, dims: tuple[int, ...]) -> None:
        self.lines.append("zero = s32[] constant(0)")
        folded, region = self.braced(range(len(dims))), self.region("s32", "add")
        self.root("s32", (), f"reduce({name}, zero), dimensions={folded}, to_apply={region}")

    def numbers(self) -> None:
        """Write random numbers, whose bits are not pinned, and then what is known of them."""
        dims = self.sizes()
        dtype = self.pick(("f32", "f64", "s32", "u64"))
        self.lines += [
            f"low = {dtype}[] constant(1)",
            f"high = {dtype}[] constant(2)",
            f"drawn = {self.shape(dtype, dims)} rng(low, high), distribution=rng_uniform",
        ]
        self.root(dtype, dims, f"{'floor' if dtype[0] == 'f' else 'copy'}(drawn)")

    def state(self) -> None:
        delta = self.rnd.randint(1, 9)
        self.lines.append(f"before = u64[2] rng-get-and-update-state(), delta={delta}")
        call = f"rng-get-and-update-state(), delta={delta}, control-predecessors={{before}}"
        self.root("u64", (2,), call)
