"""Mutates texts for a while: `python tests/fuzz/text.py SECONDS [SEED] [FILE ...]`.

Each text must be planned, and its plan's text read back as the same plan, or refused by an
HloError, within TIMEOUT seconds of this process. What fails is written to fuzz-failures/.
"""

from __future__ import annotations

import random
import signal
import sys
import time
import traceback
from pathlib import Path

from mutate import mutate

import hlo2graph as h2g
from hlo2graph.errors import HloError
from hlo2graph.frontend.thunks import is_thunk_sequence
from hlo2graph.program.text.plan import format_plan

ROOT = Path(__file__).parents[2]
FAILURES = Path("fuzz-failures")
TIMEOUT = 20
LONGEST_REPORT = 20_000
OPTIONS = ({}, {"fuse": "default"}, {"max_buffer_reuse": -1}, {"schedule": "serialize"})


def attempt(text: str, rng: random.Random) -> bool:
    """Return whether the text was planned; HloError is the other good end."""
    try:
        plan = h2g.plan(text, **({} if is_thunk_sequence(text) else rng.choice(OPTIONS)))
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
        signal.setitimer(signal.ITIMER_PROF, TIMEOUT)
        try:
            planned += attempt(text, rng)
        except Exception as error:  # whatever it is, it is what we look for
            last = traceback.extract_tb(error.__traceback__)[-1]
            kind = f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}"
            failures[kind] = failures.get(kind, 0) + 1
            if failures[kind] == 1:
                FAILURES.mkdir(exist_ok=True)
                path = FAILURES / f"{seed}-{tries}.txt"
                path.write_text(text, encoding="utf-8", errors="surrogateescape")
                print(f"{kind}: {path}", flush=True)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    print(f"seed {seed}: {tries} texts, {planned} planned, {sum(failures.values())} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    given = sys.argv[1:] or ["60"]
    chosen = int(given[1]) if len(given) > 1 else random.SystemRandom().randrange(10**6)
    found = [Path(name) for name in given[2:]]
    found = found or [p for p in sorted((ROOT / "samples").iterdir()) if p.is_file()]
    sys.exit(main(float(given[0]), chosen, found))
