"""Tests in which another program takes part: skipped where it is missing, but never in CI."""

from __future__ import annotations

import os
import shutil

import pytest

needs_gxx = pytest.mark.skipif(
    not shutil.which("g++") and not os.environ.get("CI"), reason="g++ compiles the kernels"
)
