"""How a plan runs on a GPU, chosen when it is compiled."""

from __future__ import annotations

from dataclasses import dataclass

from hlo2graph.options import MATMUL_PRECISIONS, POINTERS, check_choice, check_rounds


@dataclass(frozen=True, slots=True)
class Choices:
    """The keywords of `compile` with these names, checked.

    `matmul_precision` is in the kernels; `load` may choose the others anew.
    """

    matmul_precision: str = "default"
    unroll_loops: str = "auto"
    pointers: str = "copy"

    def __post_init__(self) -> None:
        check_choice("matmul_precision", self.matmul_precision, MATMUL_PRECISIONS)
        check_rounds("unroll_loops", self.unroll_loops)
        check_choice("pointers", self.pointers, POINTERS)

    @property
    def is_precise(self) -> bool:
        """Products of f32 keep all bits of their operands."""
        return self.matmul_precision != "default"
