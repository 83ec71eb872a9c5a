"""A .h2g file to a plan, and to what runs it: nothing is parsed, planned or compiled."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, Unpack

from hlo2graph.backends.cuda.choices import Choices, CudaOptions
from hlo2graph.backends.cuda.support import input_first
from hlo2graph.backends.host import HostExecutable
from hlo2graph.collector import paused
from hlo2graph.errors import BackendError, InputError
from hlo2graph.hlo import Module
from hlo2graph.options import BACKENDS, check_choice, check_keywords, chosen
from hlo2graph.program.plan import Plan
from hlo2graph.saved.choices import checked, options_of
from hlo2graph.saved.codec import Decoder
from hlo2graph.saved.container import Container, read_container
from hlo2graph.saved.sound import check_sound
from hlo2graph.saved.sound_hlo import check_computations, check_legal

if TYPE_CHECKING:
    from hlo2graph.backends.cuda.executable import CudaExecutable

T = TypeVar("T", Plan, Module)
# What decoding something else than we write comes to.
UNREADABLE = (
    *(LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError),
    zlib.error,
)


def load(
    path: str | os.PathLike[str],
    backend: str = "auto",
    *,
    elided: str | None = None,
    **options: Unpack[CudaOptions],
) -> HostExecutable | CudaExecutable:
    """Return what runs a .h2g file, as `compile` does for a program.

    backend: auto is what the file's plan is for: the host, or a GPU. host runs any with NumPy.
    elided, options: as for `compile`; options that are left out are those the file was compiled
        with, and matmul_precision cannot be another.
    Raises HloError: the file is none, damaged, or of another version or architecture; BackendError
    where the backend is not there; and OSError.
    """
    saved = read_saved(Path(path).read_bytes(), os.fspath(path))
    return saved.load(backend, elided=elided, **options)


def read_saved(data: bytes, filename: str) -> Saved:
    """Return what a .h2g file holds, given its bytes. Raises InputError."""
    return Saved(read_container(data, filename))


class Saved:
    """A file that was read: its plan, and what is loaded when it is asked for."""

    def __init__(self, container: Container) -> None:
        """Read the plan.

        Raises:
            InputError: it is not what this release reads.
        """
        self._container = container
        self.filename = container.filename
        with self._reading():
            held = container.json("shared")
            self._decode = Decoder(held["fields"], container.section("data"), held["shared"])
            self.plan = self._of(Plan, "plan")
            check_sound(self.plan)
            self.choices = checked(Choices(**container.header["choices"]))
            self.arches = tuple(map(str, container.header["arches"]))

    @cached_property
    def module(self) -> Module | None:
        """What the plan was made of, where the file has it."""
        with self._reading():
            if "module" not in self._container.header["sections"]:
                return None
            found = self._of(Module, "module")
            check_computations(found.computations)
            _ = found.entry
            return found

    def load(
        self,
        backend: str = "auto",
        *,
        elided: str | None = None,
        **options: Unpack[CudaOptions],
    ) -> HostExecutable | CudaExecutable:
        """Return what runs the plan; see `hlo2graph.load`."""
        check_keywords("hlo2graph.load", options, CudaOptions.__annotations__)
        check_choice("backend", backend, BACKENDS)
        choices = checked(replace(self.choices, **options))
        if choices.matmul_precision != self.choices.matmul_precision and self.arches:
            raise InputError(
                f"{self.filename}: its kernels are for matmul_precision "
                f"{self.choices.matmul_precision}, not {choices.matmul_precision}: compile the "
                "program anew"
            )
        if backend == "host" or (backend == "auto" and self.plan.target == "host"):
            with self._reading():
                check_legal(self.plan.computations)
                return HostExecutable(self.plan, elided=elided)
        try:
            with input_first(lambda: self.plan, elided):
                return self._on_cuda(elided, choices)
        except BackendError as error:
            kernels = f"kernels for {', '.join(self.arches)}" if self.arches else "no kernels yet"
            raise BackendError(
                f"{self.filename} is a plan for {self.plan.target} with {kernels}, and {error}; "
                f"with {chosen('backend', 'host')} it runs here, with NumPy"
            ) from error

    def _on_cuda(self, elided: str | None, choices: Choices) -> CudaExecutable:
        from hlo2graph.backends.cuda.driver import open_device
        from hlo2graph.backends.cuda.executable import CudaExecutable

        kernels = None
        if self.arches:
            from hlo2graph.saved.kernels import kernels_for

            device = open_device()
            with self._reading():
                kernels = kernels_for(self._container, device.arch)
        with self._reading():
            return CudaExecutable(self.plan, elided=elided, kernels=kernels, **options_of(choices))

    def _of(self, wanted: type[T], section: str) -> T:
        held = self._container.json(section)
        with paused():
            found = self._decode(held)
        if not isinstance(found, wanted):
            raise TypeError(f"the {section} is a {type(found).__name__}")
        return found

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Say which file it is, and who wrote it, where it holds something else than we write."""
        try:
            yield
        except UNREADABLE as error:
            writer = self._container.header.get("writer", "another release")
            raise InputError(
                f"{self.filename}: written by {writer}, and not as this release reads it "
                f"({type(error).__name__}: {error}): compile the program anew"
            ) from error
