"""The form of fusions side by side: ranges of one launch's blocks, each range one part's.

Each part is written in the form that it would have alone, those that follow one pattern but once.
Parts whose texts are equal, but for the literals in them, share one text: the block's number picks
their pointers and literals. The block
has the threads of the widest part; those that a part has no use for return at once, which its
barriers then do not wait for. Tiles are chosen as if each part had an equal share of the device.
Shared arrays of different texts lie on top of each other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from hlo2graph.backends.cuda.ctypes import storage_type
from hlo2graph.backends.cuda.forms.pattern import pattern_of
from hlo2graph.backends.cuda.source import KernelSource, Signature, signature_of
from hlo2graph.backends.cuda.tuples import width_of
from hlo2graph.hlo import Computation, Instruction
from hlo2graph.ops.region import SideBySide

Pairs = tuple[tuple[int, int], ...]
_Literal = tuple[str, str, str]  # type, name, value
Write = Callable[[Signature, Computation, Pairs], KernelSource]

_LITERAL = re.compile(r"( *)const ([\w:]+(?: long)?) (v\d+) = (-?[\w.+-]+);")
_ARRAY = re.compile(r"\b([pr]\d+)\b")
_NAME = re.compile(r"[a-z]+\d+(?:_\d+)*")  # lanes have numbers behind
_SHARED = re.compile(
    r"( *)__shared__ ((?:__align__\(\d+\) )?"
    r"(?:const )?(?:hlo::\w+|float|double|int|long long)) (.*);"
)
_SHARED_NAME = re.compile(r"(\w+)((?:\[[^\]]*\])+)")


@dataclass(frozen=True, slots=True)
class _PartSignature(Signature):
    """The signature of a part, whose text is the lines of its body."""

    def declare(
        self,
        body: Sequence[str],
        threads: int,
        *,
        wide: bool = False,
        resident: int = 0,
        cluster: int = 1,
    ) -> str:
        """Return the body."""
        del threads, resident, cluster  # the block has the threads of the widest part
        return "\n".join(self.following([*(self._alignment() if wide else ()), *body]))


@dataclass(frozen=True, slots=True)
class _Part:
    """One part: its text, with its literals taken out, and which arrays of the kernel it has."""

    lines: tuple[str, ...]
    literals: tuple[_Literal, ...]
    pointers: tuple[tuple[str, str], ...]  # declaration in the part, array of the kernel
    blocks: int
    threads: int
    shared_bytes: int
    tf32: bool

    @property
    def shape(self) -> tuple[object, ...]:
        """What parts that share a text have in common."""
        types = tuple((ctype, name) for ctype, name, _ in self.literals)
        declared = tuple(declaration for declaration, _ in self.pointers)
        return self.lines, types, declared, self.blocks, self.threads


def side_by_side_kernel(
    region: SideBySide,
    computation: Computation,
    computations: Mapping[str, Computation],
    signature: Signature,
    inplace: Pairs,
    write: Write,
) -> KernelSource:
    """Return the kernel of all parts; `write` gives the one that a part would have alone."""
    share = max(1, signature.device.multiprocessors // len(region.parts))
    signature = replace(signature, device=replace(signature.device, multiprocessors=share))
    parts = []
    writer = _Writer(write)
    first = 0  # result leaf of the next part
    for name in region.parts:
        site = computation[name]
        called = computations[next(iter(site.called()))]
        parts.append(_part(site, computation, called, first, signature, inplace, writer))
        first += width_of(site)
    alike: dict[tuple[object, ...], list[_Part]] = {}
    for part in parts:
        alike.setdefault(part.shape, []).append(part)
    threads = max(part.threads for part in parts)
    return KernelSource(
        signature.name,
        _text(signature, list(alike.values()), threads),
        (sum(part.blocks for part in parts), 1, 1),
        threads,
        max(part.shared_bytes for part in parts),
        any(part.tf32 for part in parts),
    )


def _part(
    site: Instruction,
    computation: Computation,
    called: Computation,
    first: int,
    whole: Signature,
    inplace: Pairs,
    writer: _Writer,
) -> _Part:
    reads = [computation[name].payload for name in site.operands]
    arrays = {f"p{k}": f"p{number}" for k, number in enumerate(reads)}
    arrays |= {f"r{k}": f"r{first + k}" for k in range(width_of(site))}
    misaligned = frozenset(mine for mine, array in arrays.items() if array in whole.misaligned)
    still = frozenset(mine for mine, array in arrays.items() if array in whole.still)
    device = replace(whole.device, cluster=1)  # blocks of one part alone could not be one
    own = signature_of("part", called, device, misaligned, precise=whole.precise, still=still)
    signature = _PartSignature(*(getattr(own, field.name) for field in fields(own)))
    pairs = tuple(
        (k, r - first)
        for p, r in inplace
        for k, number in enumerate(reads)
        if number == p and 0 <= r - first < width_of(site)
    )
    source, lines, literals = writer(signature, called, pairs)
    declared = [
        (f"const {storage_type(s.dtype)}* part_p{k}", arrays[f"p{k}"])
        for k, s in enumerate(own.parameters)
    ]
    declared += [
        (f"{storage_type(s.dtype)}* part_r{k}", arrays[f"r{k}"]) for k, s in enumerate(own.results)
    ]
    blocks, _, _ = source.grid
    return _Part(
        lines,
        literals,
        tuple(declared),
        blocks,
        source.threads,
        source.shared_bytes,
        source.tf32,
    )


class _Writer:
    """Writes parts, those of one pattern and of arrays that lie alike but once."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._known: dict[Hashable, tuple[KernelSource, tuple[str, ...], tuple[_Literal, ...]]] = {}

    def __call__(
        self, signature: Signature, called: Computation, inplace: Pairs
    ) -> tuple[KernelSource, tuple[str, ...], tuple[_Literal, ...]]:
        """Return a part's kernel, its lines without literals, and the literals."""
        pattern = pattern_of(called)
        key = pattern.key, inplace, signature.misaligned, signature.still
        if key not in self._known:
            source = self._write(signature, pattern.computation, inplace)
            lines, others = _without_literals(source.text.split("\n"), len(pattern.literals))
            self._known[key] = source, lines, others
        source, lines, others = self._known[key]
        return source, lines, (*(x for x in pattern.literals if x[1] in source.text), *others)


def _without_literals(
    lines: Sequence[str], named: int
) -> tuple[tuple[str, ...], tuple[_Literal, ...]]:
    """Return the lines with a name for each literal that is a local's value; so many have one.

    Arrays and the block's number get the names that they have in a part.
    """
    found: list[str] = []
    literals: list[_Literal] = []
    for written in lines:
        line = _ARRAY.sub(r"part_\1", written).replace("blockIdx.x", "part_block")
        match = _LITERAL.fullmatch(line)
        if match is None or _NAME.fullmatch(match[4]):
            found.append(line)
            continue
        name = f"literal{named + len(literals)}"
        literals.append((match[2], name, match[4]))
        found.append(f"{match[1]}const {match[2]} {match[3]} = {name};")
    return tuple(found), tuple(literals)


def _text(signature: Signature, alike: Sequence[Sequence[_Part]], threads: int) -> str:
    """Return the kernel's definition."""
    ranges: list[str] = []
    shared: list[str] = []
    begin = 0
    for number, parts in enumerate(alike):
        members, lines = _shared_out(parts[0].lines, f"parts_shared.part{number}")
        if members:
            shared.append(f"    struct {{ {' '.join(members)} }} part{number};")
        end = begin + sum(part.blocks for part in parts)
        ranges += _range(parts, begin, end, lines, threads, last=number + 1 == len(alike))
        begin = end
    union = ["  __shared__ union {", *shared, "  } parts_shared;"] if shared else []
    return signature.declare([*union, *ranges], threads)


def _range(
    parts: Sequence[_Part], begin: int, end: int, lines: Sequence[str], threads: int, *, last: bool
) -> Iterator[str]:
    """Yield the lines of one range of blocks, in which `parts` stand one after the other."""
    first, *others = parts
    yield "  {" if last else f"  if (blockIdx.x < {end}) {{"
    if first.threads < threads:
        yield f"    if (threadIdx.x >= {first.threads}) return;"
    at = f"blockIdx.x - {begin}" if begin else "blockIdx.x"
    if others:
        yield f"    const unsigned int part_at = {at}, part_block = part_at % {first.blocks};"
    else:
        yield f"    const unsigned int part_block = {at};"
    for k, (declaration, array) in enumerate(first.pointers):
        same = all(part.pointers[k][1] == array for part in others)
        yield f"    {declaration} = {array};" if same else f"    {declaration};"
    for k, (ctype, name, value) in enumerate(first.literals):
        same = all(part.literals[k][2] == value for part in others)
        yield f"    {ctype} {name} = {value};" if same else f"    {ctype} {name};"
    if others:
        yield f"    switch (part_at / {first.blocks}) {{"
        for number, part in enumerate(parts):
            case = "default" if part is parts[-1] else f"case {number}"
            yield f"      {case}: {_chosen(parts, part)}break;"
        yield "    }"
    yield from (f"  {line}" for line in lines)
    if not last:
        yield "    return;"
    yield "  }"


def _chosen(parts: Sequence[_Part], part: _Part) -> str:
    """Return the assignments of what is not the same in all parts."""
    found = ""
    for k, (declaration, array) in enumerate(part.pointers):
        if any(other.pointers[k][1] != array for other in parts):
            found += f"{declaration.rpartition(' ')[2]} = {array}; "
    for k, (_, name, value) in enumerate(part.literals):
        if any(other.literals[k][2] != value for other in parts):
            found += f"{name} = {value}; "
    return found


def _shared_out(lines: Sequence[str], place: str) -> tuple[list[str], list[str]]:
    """Return the members of a struct of the shared arrays, and the lines that refer to it."""
    members: list[str] = []
    found: list[str] = []
    for line in lines:
        match = _SHARED.fullmatch(line)
        if match is None:
            found.append(line)
            continue
        for name, sizes in _SHARED_NAME.findall(match[3]):
            member = f"s{len(members)}"
            members.append(f"{match[2]} {member}{sizes};")
            found.append(f"{match[1]}auto& {name} = {place}.{member};")
    return members, found
