"""Mutates texts for a while: `python tests/fuzz/text.py SECONDS [SEED] [FILE ...]`.

Each text must be planned, and its plan's text read back as the same plan, or refused by an
HloError, within TIMEOUT seconds of this process. What fails is made small and written to
fuzz-failures/, to be looked at again by

    hlo2graph plan FILE
"""

from __future__ import annotations

import random
import signal
import sys
import time
import traceback
from functools import partial
from pathlib import Path

from mutate import mutate
from shrink import shrink_text

import hlo2graph as h2g
from hlo2graph.errors import HloError
from hlo2graph.frontend.thunks import is_thunk_sequence
from hlo2graph.options import PlanOptions
from hlo2graph.program.text.plan import format_plan

ROOT = Path(__file__).parents[2]
FAILURES = Path("fuzz-failures")
TIMEOUT = 20
LONGEST_REPORT = 20_000
OPTIONS: tuple[PlanOptions, ...] = (
    {},
    {"fuse": "default"},
    {"max_buffer_reuse": -1},
    {"schedule": "serialize"},
)


def tried(text: str, options: PlanOptions) -> bool | str:
    """Return whether the text was planned, or what kind of failure there was."""
    signal.setitimer(signal.ITIMER_PROF, TIMEOUT)
    try:
        return attempt(text, options)
    except Exception as error:  # whatever it is, it is what we look for
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _fails(options: PlanOptions, kind: str, text: str) -> bool:
    return tried(text, options) == kind


def _keep(name: str, text: str) -> Path:
    FAILURES.mkdir(exist_ok=True)
    path = FAILURES / f"{name}.txt"
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    return path


def attempt(text: str, options: PlanOptions) -> bool:
    """Return whether the text was planned; HloError is the other good end."""
    try:
        plan = h2g.plan(text, **({} if is_thunk_sequence(text) else options))
    except HloError as error:
        report = str(error)
    else:
        assert h2g.plan(format_plan(plan)) == plan
        return True
    assert len(report) < LONGEST_REPORT, "a report must be readable"
    return False


def expired(*_: object) -> None:
    raise TimeoutError(f"took more than {TIMEOUT} s")


def main(seconds: float, seed: int, files: list[Path]) -> int:
    texts = [path.read_text(encoding="utf-8", errors="surrogateescape") for path in files]
    rng = random.Random(seed)
    signal.signal(signal.SIGPROF, expired)
    end = time.monotonic() + seconds
    tries = planned = 0
    failures: dict[str, int] = {}
    while time.monotonic() < end:
        text = mutate(rng.choice(texts), texts, rng)
        tries += 1
        options = rng.choice(OPTIONS)
        found = tried(text, options)
        planned += found is True
        if isinstance(found, str):
            failures[found] = failures.get(found, 0) + 1
            if failures[found] == 1:
                least = shrink_text(text, partial(_fails, options, found))
                print(f"{found}: {_keep(f'{seed}-{tries}', least)} {options or ''}", flush=True)
    print(f"seed {seed}: {tries} texts, {planned} planned, {sum(failures.values())} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    given = sys.argv[1:] or ["60"]
    chosen = int(given[1]) if len(given) > 1 else random.SystemRandom().randrange(10**6)
    found = [Path(name) for name in given[2:]]
    found = found or [p for p in sorted((ROOT / "samples").iterdir()) if p.is_file()]
    sys.exit(main(float(given[0]), chosen, found))
