"""Tests in which another program takes part: skipped where it is missing, but never in CI."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec

import pytest

needs_gxx = pytest.mark.skipif(
    not shutil.which("g++") and not os.environ.get("CI"), reason="g++ compiles the kernels"
)


def needs(package: str) -> pytest.MarkDecorator:
    """Skip where a framework is missing, unless it is frameworks that are to be tested."""
    wanted = os.environ.get("HLO2GRAPH_TEST_FRAMEWORKS")
    return pytest.mark.skipif(
        find_spec(package) is None and not wanted, reason=f"{package} is not installed"
    )
