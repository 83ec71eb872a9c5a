"""Random communication between devices, of which there is one."""

from __future__ import annotations

from random_shapes import Shaping


class Devices(Shaping):
    """Each public method writes one operation."""

    def all_reduce(self) -> None:
        dtype = self.pick(("s32", "f32", "u8", "pred"))
        x = self.given(dtype, self.sizes())
        region = self.region(dtype, "or" if dtype == "pred" else "add")
        call = f"all-reduce({x.name}), replica_groups={{}}, to_apply={region}"
        self.root(dtype, x.dims, call)

    def all_gather(self) -> None:
        x = self.given("s32", tuple(n + 1 for n in self.sizes(least=1)))
        along = self.rnd.randrange(len(x.dims))
        call = f"all-gather({x.name}), replica_groups={{{{0}}}}, dimensions={{{along}}}"
        self.root(x.dtype, x.dims, call)

    def reduce_scatter(self) -> None:
        x = self.given("s32", tuple(n + 1 for n in self.sizes(least=1)))
        along, region = self.rnd.randrange(len(x.dims)), self.region("s32", "add")
        tail = f"replica_groups={{{{0}}}}, dimensions={{{along}}}, to_apply={region}"
        self.root("s32", x.dims, f"reduce-scatter({x.name}), {tail}")

    def all_to_all(self) -> None:
        x = self.given("f32", tuple(n + 1 for n in self.sizes(least=1)))
        along = self.rnd.randrange(len(x.dims))
        call = f"all-to-all({x.name}), replica_groups={{{{0}}}}, dimensions={{{along}}}"
        self.root("f32", x.dims, call)

    def collective_permute(self) -> None:
        x = self.array(self.pick(("s32", "f32", "u8")))
        self.root(x.dtype, x.dims, f"collective-permute({x.name}), source_target_pairs={{{{0,0}}}}")

    def started(self) -> None:
        """Write one of a pair: XLA has the start of each on the CPU."""
        x = self.given("f32", tuple(n + 1 for n in self.sizes(least=1)))
        shape = self.shape(x.dtype, x.dims)
        region = self.region("f32", "add")
        name, result, tail = self.pick(
            (
                ("all-reduce", shape, f"replica_groups={{{{0}}}}, to_apply={region}"),
                ("all-gather", f"({shape}, {shape})", "replica_groups={{0}}, dimensions={0}"),
                ("collective-permute", f"({shape}, {shape})", "source_target_pairs={{0,0}}"),
            )
        )
        self.lines.append(f"begun = {result} {name}-start({x.name}), {tail}")
        self.root(x.dtype, x.dims, f"{name}-done(begun)")

    def device_number(self) -> None:
        self.root("u32", (), self.pick(("replica-id()", "partition-id()")))
