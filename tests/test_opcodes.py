"""No opcode of HLO is missing, without a rule, or pinned by no test; OPCODES.md says so."""

from __future__ import annotations

import difflib
import subprocess
import sys

import pytest
from opcodes import COMMAND, FILE, HLO, device, families, host, pinned_by, table

from hlo2graph.ops import OPS
from hlo2graph.ops.spec import Lowering

STATED = {"talks to a host program that is not there"}  # why an opcode has no rule
ASK_XLA = """
import os, sys
from jax._src.lib import xla_client
TEXT = "HloModule m\\nENTRY e {{ a = f32[] parameter(0)\\n ROOT r = f32[] {} ]"
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
for opcode in sys.argv[1:]:
    if os.fork():
        if os.wait()[1] == 7 << 8:
            print(opcode)
        continue
    try:
        xla_client.hlo.hlo_module_from_text(TEXT.format(opcode))
    except Exception as error:
        os._exit(7 if "Unknown opcode" in str(error) else 0)
"""


def test_the_table_is_as_the_code_is():
    held, now = FILE.read_text(), table()
    difference = difflib.unified_diff(held.splitlines(), now.splitlines(), "held", "now", "", "")
    assert held == now, "\n".join([*difference, f"if this is meant, run {COMMAND}"])


def test_no_opcode_is_missing():
    assert sorted(HLO ^ OPS.keys()) == []


def test_xla_knows_the_opcodes_and_no_other():
    """XLA's parser dies of some of them, which says that it knows them too."""
    command = [sys.executable, "-c", ASK_XLA, *sorted(HLO), "no-opcode"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["no-opcode"]


@pytest.mark.parametrize("opcode", sorted(HLO))
def test_every_opcode_is_pinned(opcode):
    assert pinned_by(opcode), "no test runs it"


@pytest.mark.parametrize("opcode", sorted(HLO))
def test_every_opcode_has_rules_or_a_reason(opcode):
    spec = OPS[opcode]
    assert families()[opcode]
    ways = {"NumPy", "NumPy; some refused", "by target"}
    assert host(spec) in (STATED if spec.lowering is Lowering.HOST_IO else ways)
    known = ("element", "kernel", "taken apart", "by target")
    assert device(spec).startswith(known) or device(spec) in STATED


def test_what_no_test_has_is_found():
    assert pinned_by("no-opcode") == []
