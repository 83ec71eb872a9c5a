"""Which files of a folder are XLA's dump of which module.

XLA names them `module_0001.jit_f.sm_9.0a_gpu_after_optimizations.txt` and the like; the number says
what belongs together. Files without it (`after_optimizations.txt`) are one dump.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hlo2graph.errors import InputError, Note

ENDS = {
    "optimized": ("after_optimizations.txt",),
    "assignment": ("buffer-assignment.txt",),
    "sequence": ("thunk_sequence_after_thunk_passes.txt", "thunk_sequence.txt"),
    "before": ("before_optimizations.txt",),
    "options": (".debug_options", "debug_options.txt", "debug_options"),
}
REQUIRED = ("optimized", "assignment")
_NUMBER = re.compile(r"(module_\d+)\.")
_TARGET = re.compile(r"\bsm_(\d+)\.(\d+)|\b(cpu)_")
_MODE = re.compile(r"xla_gpu_command_buffer_scheduling_mode: *(\w+)")


@dataclass(frozen=True, slots=True)
class Dump:
    """The files of one module; `folder` is where they lie, `number` as in `module_0001`."""

    folder: Path
    number: str
    optimized: Path
    assignment: Path
    sequence: Path | None
    before: Path | None
    options: Path | None

    @property
    def target(self) -> str | None:
        """What XLA compiled for, host, sm_80 or sm_90, where the names of the files say so."""
        found = _TARGET.search(self.optimized.name)
        if not found:
            return None
        if found[3]:
            return "host"
        return "sm_80" if int(found[1]) < 9 else "sm_90"

    @property
    def names(self) -> tuple[str, ...]:
        """What it may be asked for by: the module's name, its number, both, the files', a folder.

        Those come first that people use.
        """
        stem = self.optimized.name.removesuffix(ENDS["optimized"][0])
        found = _TARGET.search(stem)
        name = stem[: found.start() if found else None].removeprefix(self.number).strip("._")
        both = f"{self.number}.{name}"
        known = (name, self.number, both, stem, stem.strip("._"), self.optimized.name)
        return (*(each for each in known if each.strip("._")), str(self.folder), self.folder.name)

    @property
    def mode(self) -> str | None:
        """The scheduling mode that XLA's options name, where they are dumped."""
        if self.options is None:
            return None
        found = _MODE.search(self.options.read_text(errors="replace"))
        return found[1].lower() if found else None


def find_dumps(paths: Iterable[Path]) -> tuple[Dump, ...]:
    """Return the dumps in folders, or among files, in the order of their names.

    Where a folder holds none itself, its subfolders are looked through, as XLA's users often have
    one for each run.

    Raises InputError where there is none, or a file of one is missing.
    """
    given = list(paths)
    groups: dict[tuple[Path, str], dict[str, Path]] = {}
    for path in given:
        for file in _files(path) if path.is_dir() else [path]:
            if part := _part(file.name):
                number = _NUMBER.match(file.name)
                group = groups.setdefault((file.parent, number[1] if number else ""), {})
                _add(group, part, file)
    whole = [
        _dump(folder, number, group)
        for (folder, number), group in sorted(groups.items())
        if all(part in group for part in REQUIRED)
    ]
    if not whole:
        raise _incomplete(given, groups)
    return tuple(whole)


def dumps_called(dumps: Iterable[Dump], wanted: str) -> tuple[Dump, ...]:
    """Return the dumps of that name. Raises InputError where there is none; it names the others."""
    held = tuple(dumps)
    fitting = tuple(d for d in held if wanted in d.names)
    fitting = fitting or tuple(d for d in held if f".{wanted}." in d.optimized.name)
    if not fitting:
        count = Counter(name for dump in held for name in set(dump.names))
        offered = (next((n for n in d.names if count[n] == 1), d.names[0]) for d in held)
        raise InputError(f"no module {wanted} here; there are {', '.join(dict.fromkeys(offered))}")
    return fitting


def _files(folder: Path) -> list[Path]:
    """Return the files in a folder, and in those below it where none there is of a dump."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    if any(_part(file.name) for file in files):
        return files
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _part(name: str) -> str | None:
    return next((part for part, ends in ENDS.items() if name.endswith(ends)), None)


def _add(group: dict[str, Path], part: str, file: Path) -> None:
    """Keep the file whose ending is the first named of its part."""
    held = group.get(part)
    rank = {end: at for at, end in enumerate(ENDS[part])}
    if held is None or _rank(file, rank) < _rank(held, rank):
        group[part] = file


def _rank(file: Path, rank: dict[str, int]) -> int:
    return min(at for end, at in rank.items() if file.name.endswith(end))


def _dump(folder: Path, number: str, group: dict[str, Path]) -> Dump:
    optional = (group.get(part) for part in ("sequence", "before", "options"))
    return Dump(folder, number, group["optimized"], group["assignment"], *optional)


def _incomplete(given: list[Path], groups: dict[tuple[Path, str], dict[str, Path]]) -> InputError:
    named = ", ".join(map(str, given))
    how = Note("XLA_FLAGS='--xla_dump_to=DIR --xla_dump_hlo_as_text' writes them")
    for group in groups.values():
        for part in REQUIRED:
            if part not in group:
                found = ", ".join(sorted(file.name for file in group.values()))
                return InputError(
                    f"{named}: no file that ends with {ENDS[part][0]}; beside it lies {found}",
                    notes=(how,),
                )
    return InputError(f"{named}: no dump of XLA's here", notes=(how,))
