"""Tests in this folder need a GPU; elsewhere they are skipped, and `make gpu` says so."""

from __future__ import annotations

import os

import pytest

from hlo2graph.errors import BackendError
from hlo2graph.pipeline import cuda_target

# JAX would take most of the device's memory, and several processes run these tests at once.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def pytest_collection_modifyitems(items):
    try:
        cuda_target()
    except BackendError as error:
        for item in items:
            if "tests/gpu/" in item.path.as_posix():
                item.add_marker(pytest.mark.skip(reason=f"no GPU: {error}"))
