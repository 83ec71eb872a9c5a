"""Random communication between devices, of which one is there: replica 0 of one."""

from __future__ import annotations

from random_shapes import Operand, Shaping

_ALONE = ("{{0}}", "{{0},{1}}", "[1,1]<=[1]", "[2,1]<=[2]")
_AMONG = (
    *("{{0,1}}", "{{1,0},{2,3}}", "{{0},{1,2}}", "[1,2]<=[2]", "[2,2]<=[2,2]T(1,0)"),
    *("mesh['a'=2] {'a'}", "mesh['a'=2,'b'=4] {'b'}"),
)
_PAIRS = ("{}", "{{0,0}}", "{{0,1}}", "{{1,2}}", "{{0,0},{1,1}}", "{{0,1},{1,2}}")


class Devices(Shaping):
    """Each public method writes one operation."""

    def all_reduce(self) -> None:
        dtype = self.pick(("s32", "f32", "u8", "pred", "bf16", "c64"))
        x = self.given(dtype, self.sizes())
        region = self.region(dtype, "or" if dtype == "pred" else "add")
        where = self._groups(_ALONE + _AMONG)
        self.root(dtype, x.dims, f"all-reduce({x.name}), {where}, to_apply={region}")

    def all_reduce_several(self) -> None:
        x, y = self.array("f32"), self.array("f32")
        region, groups = self.region("f32", "add"), self.pick(_ALONE + _AMONG)
        call = f"all-reduce({x.name}, {y.name}), replica_groups={groups}, to_apply={region}"
        self.several([("f32", x.dims), ("f32", y.dims)], call)

    def all_gather(self) -> None:
        x = self._filled(self.pick(("s32", "bf16", "pred")))
        along = self.rnd.randrange(len(x.dims))
        call = f"all-gather({x.name}), {self._groups(_ALONE)}, dimensions={{{along}}}"
        self.root(x.dtype, x.dims, call)

    def reduce_scatter(self) -> None:
        x = self._filled(self.pick(("s32", "f32")))
        along, region = self.rnd.randrange(len(x.dims)), self.region(x.dtype, "add")
        tail = f"{self._groups(_ALONE)}, dimensions={{{along}}}, to_apply={region}"
        self.root(x.dtype, x.dims, f"reduce-scatter({x.name}), {tail}")

    def all_to_all(self) -> None:
        x = self._filled("f32")
        along, groups = self.rnd.randrange(len(x.dims)), self.pick(_ALONE)
        call = f"all-to-all({x.name}), replica_groups={groups}, dimensions={{{along}}}"
        self.root("f32", x.dims, call)

    def collective_permute(self) -> None:
        x = self.array(self.pick(("s32", "f32", "u8")))
        self.root(x.dtype, x.dims, f"collective-permute({x.name}), {self._pairs()}")

    def started(self) -> None:
        """Write one of a pair: XLA has the start of each on the CPU."""
        x = self._filled("f32")
        shape = self.shape(x.dtype, x.dims)
        region, pairs = self.region("f32", "add"), self._pairs()
        name, result, tail = self.pick(
            (
                ("all-reduce", shape, f"{self._groups(_AMONG)}, to_apply={region}"),
                ("all-gather", f"({shape}, {shape})", f"{self._groups(_ALONE)}, dimensions={{0}}"),
                ("collective-permute", f"({shape}, {shape})", pairs),
                ("collective-permute", f"({shape}, {shape}, u32[], u32[])", pairs),
            )
        )
        self.lines.append(f"begun = {result} {name}-start({x.name}), {tail}")
        self.root(x.dtype, x.dims, f"{name}-done(begun)")

    def device_number(self) -> None:
        self.root("u32", (), self.pick(("replica-id()", "partition-id()")))

    def _filled(self, dtype: str) -> Operand:
        return self.given(dtype, tuple(n + 1 for n in self.sizes(least=1)))

    def _groups(self, choices: tuple[str, ...]) -> str:
        """Return who works together, and how they are counted."""
        counted = self.pick(("", "channel_id=1, ", "channel_id=1, use_global_device_ids=true, "))
        some = choices if "global" in counted else ("{}", *choices)
        return f"{counted}replica_groups={self.pick(some)}"

    def _pairs(self) -> str:
        return f"{self.pick(('', 'channel_id=1, '))}source_target_pairs={self.pick(_PAIRS)}"
