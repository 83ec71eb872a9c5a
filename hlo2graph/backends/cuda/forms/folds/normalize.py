"""The batch-norm form: a block takes a feature, sums it up, then writes all its elements."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TypeAlias

from hlo2graph.backends.cuda.ctypes import compute_type, stored
from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.source import KernelSource
from hlo2graph.ops.device import Expr, Index
from hlo2graph.ops.device_compute import epsilon
from hlo2graph.ops.expect import integer

THREADS = 256

_Term: TypeAlias = Callable[[Index], Expr]  # what is made of the element at an index


def batch_norm_kernel(form: Form) -> KernelSource:
    """Return the kernel of batch-norm-training or batch-norm-grad."""
    writer = _Writer(form, form.emitter())
    if form.instr.opcode == "batch-norm-training":
        writer.training()
    else:
        writer.gradient()
    features = form.shape(0).dims[writer.feature]
    return form.source(writer.emit, max(1, features), THREADS)


class _Writer:
    def __init__(self, form: Form, emit: ElementEmitter) -> None:
        self.form, self.emit = form, emit
        self.feature = integer(form.instr, "feature_index")
        self.shape = form.shape(0)
        self.others = [d for d in range(self.shape.rank) if d != self.feature]
        self.count = prod(self.shape.dims[d] for d in self.others)
        self.type = compute_type(self.shape.dtype)

    def training(self) -> None:
        """Write mean and variance, then the normalised elements."""
        self._sum("total", lambda at: self._value(0, at))
        self.emit.line(f"const {self.type} mean = total / {self.count};")
        self._sum("squares", lambda at: f"hlo::squared({self._value(0, at)} - mean)")
        self.emit.line(f"const {self.type} variance = squares / {self.count};")
        scale, offset = self._of_feature(1), self._of_feature(2)
        root = f"hlo::sqrt(variance + {epsilon(self.form.instr)})"
        self.emit.line(f"const {self.type} root = {root};")
        self._store_all(lambda at: f"({self._value(0, at)} - mean) / root * {scale} + {offset}")
        self._store_features("mean", "variance")

    def gradient(self) -> None:
        """Write the gradients of the operand, of scale and of offset."""
        scale, mean, variance = (self._of_feature(k) for k in (1, 2, 3))
        root = f"1 / hlo::sqrt({variance} + {epsilon(self.form.instr)})"
        self.emit.line(f"const {self.type} root = {root};")
        self._sum("to_offset", lambda at: self._value(4, at))
        self._sum(
            "to_scale",
            lambda at: f"{self._value(4, at)} * (({self._value(0, at)} - {mean}) * root)",
        )

        def to_value(at: Index) -> Expr:
            normal = f"({self._value(0, at)} - {mean}) * root"
            spread = f"(to_offset + {normal} * to_scale) / {self.count}"
            return f"{scale} * root * ({self._value(4, at)} - {spread})"

        self._store_all(to_value)
        self._store_features("to_scale", "to_offset")

    def _value(self, operand: int, index: Index) -> Expr:
        return self.emit.leaf(self.form.instr.operands[operand], 0, index)

    def _of_feature(self, operand: int) -> Expr:
        return self._value(operand, ("blockIdx.x",))

    def _index(self) -> Index:
        at = self.emit.split("at", [self.shape.dims[d] for d in self.others])
        place = dict(zip(self.others, at, strict=True)) | {self.feature: "(int)blockIdx.x"}
        return tuple(place[d] for d in range(self.shape.rank))

    def _loop(self) -> str:
        kind = self.emit.index_type
        return f"for ({kind} at = threadIdx.x; at < {self.count}; at += {THREADS})"

    def _sum(self, name: str, term: _Term) -> None:
        """Declare `name`, the sum of a term over the feature, for all threads."""
        self.emit.line(f"{self.type} {name} = 0;")
        with self.emit.block(self._loop()):
            self.emit.line(f"{name} += {term(self._index())};")
        self.emit.line(f"{name} = hlo::block_sum<{THREADS}>({name});")

    def _store_all(self, value: _Term) -> None:
        result = self.form.results[0]
        with self.emit.block(self._loop()):
            index = self._index()
            found = value(index)
            self.emit.line(
                f"r0[{self.emit.offset(result, index)}] = {stored(result.dtype, found)};"
            )

    def _store_features(self, *names: str) -> None:
        with self.emit.block("if (threadIdx.x == 0)"):
            for number, name in enumerate(names, 1):
                value = stored(self.form.results[number].dtype, name)
                self.emit.line(f"r{number}[blockIdx.x] = {value};")
