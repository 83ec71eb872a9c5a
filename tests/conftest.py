"""What all tests share: the samples, and golden files."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SAMPLES = sorted(p for p in (ROOT / "samples").iterdir() if p.suffix in (".hlo", ".thunks"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden files anew; not in CI"
    )
