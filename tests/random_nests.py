"""Random computations within modules: loops, branches, calls, fusions, tuples of tuples, pairs.

A part of the writer in random_modules.py, whose values, shapes and lines these work on.
"""

from __future__ import annotations

from random_values import Value, braced


class Nests:
    """Writes what calls computations, and what holds tuples in tuples."""

    def computation(
        self, leaves: list[Value], counts: bool, depth: int, wanted: list[Value]
    ) -> str:
        """Write a computation from one tuple to another; return its name."""
        name, lines = self.fresh("body"), []
        lines.append(f"s = ({', '.join(map(self.shape, leaves))}) parameter(0)")
        values: list[Value] = []
        for k, leaf in enumerate(leaves):
            self.add(lines, values, leaf, f"get-tuple-element(s), index={k}")
        counter = values[0]
        given = list(values)
        self.block(lines, values, 4, depth - 1)
        results = [self.fitting(lines, values, given, leaf) for leaf in wanted]
        if counts:
            one = self.constant(lines, "s32", 1)
            results[0] = self.add(lines, values, counter, f"add({counter.name}, {one.name})")
        shapes, names = ", ".join(map(self.shape, results)), ", ".join(r.name for r in results)
        lines.append(f"ROOT r = ({shapes}) tuple({names})")
        self.computations.append(f"{name} {braced(lines)}")
        return name

    def fitting(
        self, lines: list[str], values: list[Value], given: list[Value], wanted: Value
    ) -> Value:
        made = [v for v in values if v[1:] == wanted[1:]]
        if not made:
            scalar = self.constant(lines, wanted.dtype, 1)
            return self.add(lines, values, wanted, f"broadcast({scalar.name}), dimensions={{}}")
        held = [v for v in given if v[1:] == wanted[1:]]
        return self.rnd.choice(held) if held and self.rnd.random() < 0.4 else self.any(made)

    def _loop(self, lines: list[str], values: list[Value], depth: int) -> None:
        start = self.constant(lines, "s32", 0)
        held = [start, *(self.any(values) for _ in range(self.rnd.randint(0, 3)))]
        body = self.computation(held, True, depth, held)
        condition = self.fresh("condition")
        self.computations.append(
            f"{condition} {{\n  s = ({', '.join(map(self.shape, held))}) parameter(0)\n"
            f"  i = s32[] get-tuple-element(s), index=0\n"
            f"  n = s32[] constant({self.rnd.randint(0, 3)})\n"
            f"  ROOT r = pred[] compare(i, n), direction=LT\n}}\n"
        )
        init = self.tuple(lines, held)
        self.pick(lines, values, held, f"while({init}), condition={condition}, body={body}")

    def _choice(self, lines: list[str], values: list[Value], depth: int) -> None:
        wanted = [self.any(values) for _ in range(self.rnd.randint(1, 3))]
        selectors = [v for v in values if v[1:] in (("s32", ()), ("pred", ()))]
        chosen = self.any(selectors) if selectors else self.constant(lines, "s32", 1)
        count = 2 if chosen.dtype == "pred" else self.rnd.randint(1, 3)
        arguments, branches = [], []
        for _ in range(count):
            held = [self.any(values) for _ in range(self.rnd.randint(1, 3))]
            branches.append(self.computation(held, False, depth, wanted))
            arguments.append(self.tuple(lines, held))
        call = f"conditional({chosen.name}, {', '.join(arguments)})"
        if chosen.dtype == "pred":
            call += f", true_computation={branches[0]}, false_computation={branches[1]}"
        else:
            call += f", branch_computations={{{', '.join(branches)}}}"
        self.pick(lines, values, wanted, call)

    def _call(self, lines: list[str], values: list[Value], depth: int) -> None:
        held = [self.any(values) for _ in range(self.rnd.randint(1, 3))]
        wanted = [self.any(values) for _ in range(self.rnd.randint(1, 2))]
        callee = self.computation(held, False, depth, wanted)
        self.pick(lines, values, wanted, f"call({self.tuple(lines, held)}), to_apply={callee}")

    def _fusion(self, lines: list[str], values: list[Value], _: int) -> None:
        """Write a fusion of operations without tuples, of one result or of several."""
        given = [self.any(values) for _ in range(self.rnd.randint(1, 3))]
        name = self.fresh("fused")
        held = [v._replace(name=f"{name}_p{k}") for k, v in enumerate(given)]
        inner = [f"{v.name} = {self.shape(v)} parameter({k})" for k, v in enumerate(held)]
        known = list(held)
        for _ in range(self.rnd.randint(1, 4)):
            getattr(self, f"_{self.rnd.choice(FUSED)}")(inner, known, 0)
        results = [self.any(known) for _ in range(self.rnd.choice((1, 1, 2)))]
        names = ", ".join(v.name for v in given)
        call = f"fusion({names}), kind=kLoop, calls={name}"
        if len(results) == 1:
            inner.append(f"ROOT r = {self.shape(results[0])} copy({results[0].name})")
            self.add(lines, values, results[0], call)
        else:
            shapes = ", ".join(map(self.shape, results))
            inner.append(f"ROOT r = ({shapes}) tuple({', '.join(r.name for r in results)})")
            self.pick(lines, values, results, call)
        self.computations.append(f"{name} {braced(inner)}")

    def _nest(self, lines: list[str], values: list[Value], _: int) -> None:
        """Write a tuple of tuples, hand it through a barrier, and take leaves out again."""
        inside = [self.any(values) for _ in range(self.rnd.randint(1, 3))]
        beside = self.any(values)
        pair = f"({', '.join(map(self.shape, inside))})"
        whole = f"({self.shape(beside)}, {pair}, ())"
        inner, empty, outer = self.tuple(lines, inside), self.tuple(lines, []), self.fresh("outer")
        lines.append(f"{outer} = {whole} tuple({beside.name}, {inner}, {empty})")
        held, taken = self.fresh("held"), self.fresh("taken")
        lines.append(f"{held} = {whole} opt-barrier({outer})")
        lines.append(f"{taken} = {pair} get-tuple-element({held}), index=1")
        for k, leaf in enumerate(inside):
            self.add(lines, values, leaf, f"get-tuple-element({taken}), index={k}")
        self.add(lines, values, beside, f"get-tuple-element({held}), index=0")

    def _ordered(self, lines: list[str], values: list[Value], _: int) -> None:
        """Write a token, and a value that waits for it."""
        token = self.fresh("token")
        lines.append(f"{token} = token[] after-all()")
        a = self.any(values)
        self.add(lines, values, a, f"add-dependency({a.name}, {token})")

    def _reduced(self, lines: list[str], values: list[Value], _: int) -> None:
        """Write a sum among devices, of which one is there; at once, or begun and ended."""
        a = self.any(values)
        if a.dtype not in REDUCED:
            return
        groups = self.rnd.choice(("{}", "{{0}}", "[2,1]<=[2]"))  # XLA counts who is not there
        tail = f"replica_groups={groups}, to_apply={self.region(a.dtype, 'add')}"
        way = self.rnd.randrange(3 if 0 not in a.dims else 1)  # XLA lets no empty one begin
        if way == 0:
            self.add(lines, values, a, f"all-reduce({a.name}), {tail}")
            return
        begun = self.fresh("begun")
        if way == 1:
            lines.append(f"{begun} = {self.shape(a)} all-reduce-start({a.name}), {tail}")
            self.add(lines, values, a, f"all-reduce-done({begun})")
            return
        beside, shape = self.fresh("beside"), self.shape(a)
        body = [f"p = {shape} parameter(0)", f"ROOT r = {shape} all-reduce(p), {tail}"]
        self.computations.append(f"{beside} {braced(body)}")
        lines.append(f"{begun} = (({shape}), {shape}) async-start({a.name}), calls={beside}")
        plain = f"{self.fresh('ended')} = {shape} async-done({begun})"
        lines.append(plain)
        self.add(lines, values, a, f"copy({plain.partition(' ')[0]})")


REDUCED = ("f32", "s32", "f64", "u8", "s64")
FUSED = (
    *("binary", "unary", "compare", "convert", "fill", "reverse", "transpose", "reshape"),
    *("concatenate", "update", "scatter", "reduce"),
)
