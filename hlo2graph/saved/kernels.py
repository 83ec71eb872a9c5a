"""The kernels of a .h2g file: how each is launched, and machine code by architecture."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from hlo2graph.backends.cuda.choices import Choices
from hlo2graph.backends.cuda.compiler import Compiled, nvrtc_version
from hlo2graph.backends.cuda.kernels import KernelKey
from hlo2graph.backends.cuda.prepared import (
    KERNELS_VERSION,
    LAUNCHABLE,
    Prepared,
    loads_on,
    number_of,
    prepared,
)
from hlo2graph.backends.cuda.source import KernelSource
from hlo2graph.errors import InputError
from hlo2graph.program.plan import Plan
from hlo2graph.saved.codec import Decoder, Encoder
from hlo2graph.saved.container import Container, Section

CLASSES = (KernelKey, KernelSource)


def versions() -> dict[str, object]:
    """Return what the header says of how kernels were made."""
    return {"kernels": KERNELS_VERSION, "nvrtc": nvrtc_version()}


def kernel_sections(plan: Plan, arches: Sequence[str], choices: Choices) -> dict[str, Section]:
    """Compile the kernels of `plan` for each of `arches`.

    Raises:
        UnsupportedError: for operations that have no device code, all at once.
        InputError: NVRTC knows no such architecture.
        BackendError: NVRTC is missing.
    """
    made = [
        prepared(
            plan,
            arch,
            precise=choices.matmul_precision != "default",
            table=choices.pointers == "table",
        )
        for arch in arches
    ]
    encoder = Encoder(CLASSES)
    sources = [[encoder(key), encoder(source)] for key, source in made[0].sources.items()]
    units = {one.arch: [_sizes(one.units), _sizes(one.table_units)] for one in made}
    text = json.dumps({"fields": encoder.fields, "sources": sources, "units": units})
    code = {
        f"code {one.arch}": Section([unit.cubin for unit in (*one.units, *one.table_units)])
        for one in made
    }
    return {"kernels": Section([text.encode()]), **code}


def kernels_for(container: Container, device: str) -> Prepared:
    """Return the kernels that run on a `device` (sm_90).

    Raises:
        InputError: there are none, or they are of a version that this release cannot launch.
    """
    header = container.header
    if header.get("kernels") not in LAUNCHABLE:
        raise InputError(
            f"{container.filename}: its kernels are of version {header.get('kernels')}, written by "
            f"{header['writer']}; this release launches version {KERNELS_VERSION}: compile the "
            "program anew"
        )
    fitting = [arch for arch in header["arches"] if loads_on(arch, device)]
    if not fitting:
        raise InputError(
            f"{container.filename}: its kernels are for {', '.join(header['arches'])}; this GPU is "
            f"{device}: compile the program anew, with --arch {device} (in Python "
            f"arches=['{device}'])"
        )
    arch = max(fitting, key=number_of)
    held = container.json("kernels")
    decode = Decoder(held["fields"], b"", classes=CLASSES)
    sources = {decode(key): decode(source) for key, source in held["sources"]}
    plain, table = held["units"][arch]
    code = _cut(container.section(f"code {arch}"), [*plain, *table])
    units = [Compiled(bytes(cubin), cached=True) for cubin in code]
    return Prepared(arch, sources, tuple(units[: len(plain)]), tuple(units[len(plain) :]))


def _sizes(units: Sequence[Compiled]) -> list[int]:
    return [len(unit.cubin) for unit in units]


def _cut(code: bytes | memoryview, sizes: Sequence[int]) -> Iterator[bytes | memoryview]:
    at = 0
    for size in sizes:
        yield code[at : at + size]
        at += size
    if at != len(code):
        raise ValueError(f"{len(code)} bytes of machine code, not {at}")
