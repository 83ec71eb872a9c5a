"""The call that gives the first of candidates and where these stood."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import module, refused

import hlo2graph
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.backends.host import HostExecutable
from hlo2graph.errors import UnsupportedError

CONFIG = '{"top_places": {"k": 2, "largest": true}}'


def call(config: str = CONFIG, operands: str = "x, p", shape: str = "(f32[2,2], s32[2,2])") -> str:
    return module(
        "x = f32[2,5] parameter(0) p = s32[2,5] parameter(1) "
        f'ROOT r = {shape} custom-call({operands}), custom_call_target="hlo2graph$top_places", '
        f"backend_config={config}"
    )


def test_places_come_with_the_values_and_equals_in_order():
    x = np.array([[1, 3, 2, 3, 0], [-1, -2, -0.0, 0.0, -5]], np.float32)
    places = np.array([[70, 60, 50, 40, 30], [5, 6, 7, 8, 9]], np.int32)
    values, at = HostExecutable(hlo2graph.plan(call(), target="host"))(x, places)
    assert values.tolist() == [[3, 3], [0, 0]]
    assert at.tolist() == [[60, 40], [8, 7]]
    least = CONFIG.replace("true", "false")
    _, at = HostExecutable(hlo2graph.plan(call(least), target="host"))(x, places)
    assert at.tolist() == [[30, 70], [9, 6]]
    (source,) = kernels_of(hlo2graph.plan(call(), target="sm_90")).values()
    assert "take_few" in source.text


def test_calls_are_checked():
    refused(call(operands="x"), "takes values and places")
    refused(call(operands="x, x"), "as many places")
    refused(call(operands="p, p").replace('"k": 2', '"k": 6'), "k=6 is out of range")


@pytest.mark.parametrize("config", ["{}", CONFIG.replace("2", "true"), CONFIG.replace("true", "1")])
def test_calls_that_say_nothing_sensible_are_refused_by_name(config):
    with pytest.raises(UnsupportedError, match="k and largest"):
        hlo2graph.compile(call(config), backend="host")
