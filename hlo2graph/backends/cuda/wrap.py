"""A kernel with other arguments: the body of one becomes a function that the new one calls."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from hlo2graph.backends.cuda.source import KernelSource

HEAD = re.compile(
    r'extern "C" __global__ void '
    r"(?P<bounds>__launch_bounds__\([\d, ]+\)(?: __cluster_dims__\(\d+\))?)\n"
    r"(?P<name>\w+)\((?P<parameters>[^)]*)\) \{"
)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A pointer that a kernel takes: `const hlo::f32*` and `p0`."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type} {self.name}"


@dataclass(frozen=True, slots=True)
class Outer:
    """The kernel around a body: what it takes, and its lines, in which `{body}` stands for it."""

    parameters: tuple[str, ...]
    lines: tuple[str, ...]


def wrapped(
    source: KernelSource, name: str, outer: Callable[[tuple[Parameter, ...]], Outer]
) -> KernelSource:
    """Return a kernel called `name`, launched alike, that runs the body of `source`.

    `outer` is given the parameters of `source`.
    """
    found = HEAD.search(source.text)
    assert found, f"{source.name} has another head"
    given = [p for p in found["parameters"].split(", ") if p]
    parameters = tuple(Parameter(p[: p.rindex("*") + 1], p[p.rindex("*") + 2 :]) for p in given)
    body, around = f"{name}_body", outer(parameters)
    lines = "".join(f"  {line}\n".replace("{body}", body) for line in around.lines)
    text = (
        f"{source.text[: found.start()]}"
        f"__device__ __forceinline__ void {body}({found['parameters']}) {{"
        f"{source.text[found.end() :]}"
        f'extern "C" __global__ void {found["bounds"]}\n'
        f"{name}({', '.join(around.parameters)}) {{\n{lines}}}\n"
    )
    return replace(source, name=name, text=text)
