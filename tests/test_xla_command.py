"""`hlo2graph xla` on dumps of XLA's: what it prints, what it compares, and what it refuses."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from contextlib import suppress

import pytest
from conftest import ROOT, SAMPLES
from xla_dumps import BRANCHES, CHAINS, CHAINS_LOG, LOOP, SORT

import hlo2graph
from hlo2graph.frontend.xla_dump import (
    build_thunks,
    dumps_called,
    find_dumps,
    parse_assignment,
    parse_printed,
    parse_sequence,
)
from hlo2graph.inspect.xla_graph.graph import Mode
from hlo2graph.inspect.xla_graph.report import report_on

ALL = pytest.mark.parametrize("dump", [CHAINS, LOOP, SORT, BRANCHES])

OTHER_LOG = """\
Execution graph: ExecutionGraph: 1 nodes, #source_nodes=1 #sink_nodes=1, is_sequential=true
node 0 (priority=0): in=[] out=[]
"""
CHAINS_TEXT = """\
jit_f   1 graph of XLA's, mode lhs
                             thunks  graphs  edges  raw  reuse  false  width  path   temp
  XLA, lhs                        4       1      3    2      1      1      1     4  256 B
  XLA, by its buffers alone       4       1      3    2      1      1      1     4  256 B
  ours, of XLA's kernels          4       1      2    2      0      0      2     2  512 B
  ours                            1       1      0    0      0      0      1     1    0 B
  note: the dump does not say XLA's mode: taken for lhs; --mode names another

graph: 4 nodes, 3 edges, 1 false
  n0: kernel a, priority=3, reads={0[0:256]}, writes={4[0:256]}
  n1: kernel b, priority=2, reads={4[0:256]}, writes={1[0:256]}
  n2: kernel c, priority=1, reads={0[0:256]}, writes={4[0:256]}
  n3: kernel d, priority=0, reads={4[0:256]}, writes={2[0:256]}
  edge n0 -> n1, raw 4[0:256]
  edge n1 -> n2, reuse 4[0:256]; unordered in ours
  edge n2 -> n3, raw 4[0:256]
"""


def test_the_command_sets_xla_beside_ours(cli, tmp_path):
    code, out, _ = cli("xla", CHAINS.into(tmp_path))
    assert code == 0
    assert out == CHAINS_TEXT


def test_the_dump_among_the_samples_is_that_one(cli):
    code, out, _ = cli("xla", SAMPLES[0].parent / "xla_dump")
    assert (code, out) == (0, CHAINS_TEXT)


def test_the_command_holds_xlas_own_print_against_it(cli, tmp_path):
    CHAINS.into(tmp_path)
    log = tmp_path / "xla.log"
    log.write_text(CHAINS_LOG)
    code, out, _ = cli("xla", tmp_path, "--against", log, "--summary")
    assert code == 0
    assert "same: XLA itself prints the same 1 graph" in out
    log.write_text(f"{OTHER_LOG}{CHAINS_LOG}{OTHER_LOG}")
    code, out, _ = cli("xla", tmp_path, "--against", log, "--summary")
    assert code == 0  # the graphs of other modules are passed over
    log.write_text(CHAINS_LOG.replace("in=[NodeEdge {kind: execution, id: 1}]", "in=[]"))
    code, out, _ = cli("xla", tmp_path, "--against", log, "--summary")
    assert code == 1
    assert "graph 0: XLA has no edge 1 -> 2" in out
    log.write_text(CHAINS_LOG.replace("priority=2", "priority=9"))
    code, out, _ = cli("xla", tmp_path, "--against", log, "--summary")
    assert code == 1
    assert "the edges are XLA's, the priorities are not" in out


def test_json_has_the_same_and_says_its_schema(cli, tmp_path):
    code, out, _ = cli("xla", LOOP.into(tmp_path), "--mode", "concurrent", "--json", "-")
    found = json.loads(out)
    assert code == 0
    assert found["schema"] == {"name": "hlo2graph.xla", "version": 1}
    assert found["mode"] == "concurrent"
    assert [side["label"] for side in found["sides"]] == [
        "XLA, concurrent",
        "ours, of XLA's kernels",
    ]
    assert [u["kind"] for u in found["unordered"]] == ["index", "control"]
    assert found["graphs"][1]["nodes"][0]["kind"] == "dynamic-slice"
    assert found["same"] is None
    assert [e["ours"] for g in found["graphs"] for e in g["edges"]] == []
    _, out, _ = cli("xla", BRANCHES.into(tmp_path / "sub"), "--json", "-")
    edges = [e for g in json.loads(out)["graphs"] for e in g["edges"]]
    assert (edges[0]["hazard"], edges[0]["ours"]) == ("raw", True)


def test_several_modules_in_one_folder_are_told_apart(cli, tmp_path):
    CHAINS.into(tmp_path)
    LOOP.into(tmp_path, "module_0002.jit_loop.sm_8.0_gpu_")
    assert [d.target for d in find_dumps([tmp_path])] == ["sm_90", "sm_80"]
    code, out, _ = cli("xla", tmp_path)
    assert code == 0
    assert "jit_f " in out
    assert "jit_loop " in out
    assert "edge n0" not in out  # of several only the tables
    code, out, _ = cli("xla", tmp_path, "--module", "jit_loop")
    assert "jit_f " not in out
    code, _, err = cli("xla", tmp_path, "--module", "jit_g")
    assert code == 2
    assert "no module jit_g here; there are jit_f, jit_loop\n" in err


def stem(name, target="sm_9.0a_gpu_"):
    return f"{name}.{target}"


@pytest.mark.parametrize(
    "places",
    [
        {"": [stem("module_0001.jit_f"), stem("module_0002.jit_f.1")]},
        {"": [stem("module_0001.jit_f"), stem("module_0002.jit_f")]},
        {"": [stem("module_0001.jit_f", "cpu_"), stem("module_0002.jit_g", "gfx942_gpu_")]},
        {"one": [""], "two": [""]},
        {"one": [stem("module_0001.jit_f")], "two": [stem("module_0001.jit_f")]},
    ],
)
def test_every_module_that_is_offered_is_taken(cli, tmp_path, places):
    for folder, stems in places.items():
        for each in stems:
            CHAINS.into(tmp_path / folder, each)
    code, _, err = cli("xla", tmp_path, "--module", "no_such")
    assert code == 2
    offered = err.strip().rpartition("there are ")[2].split(", ")
    assert len(offered) == 2
    outputs = [cli("xla", tmp_path, "--module", name) for name in offered]
    assert all((code, err) == (0, "") for code, _, err in outputs)
    assert all(out.count("jit_f ") == 1 for _, out, _ in outputs)
    (first, *_) = find_dumps([tmp_path])
    assert all(first in dumps_called(find_dumps([tmp_path]), name) for name in first.names)


def test_the_dumped_options_say_the_mode(cli, tmp_path):
    CHAINS.into(tmp_path)
    options = tmp_path / "module_0001.jit_f.debug_options"
    options.write_text("xla_gpu_command_buffer_scheduling_mode: CONCURRENT\n")
    _, out, _ = cli("xla", tmp_path, "--summary")
    assert "mode concurrent" in out


def test_another_sequence_than_the_rules_give_is_said(cli, tmp_path):
    CHAINS.into(tmp_path)
    sequence = tmp_path / "module_0001.jit_f.thunk_sequence_after_thunk_passes.txt"
    sequence.write_text("001: kMemset [source | sink]\n")
    code, out, _ = cli("xla", tmp_path)
    assert code == 0
    assert "note: XLA's thunk sequence is not the one that the rules here give" in out
    assert "graph: 4 nodes" in out


BROKEN = [
    ("allocation 0: size 256", "allocation 0: 256", "expected `allocation N: size BYTES, KIND`"),
    ("<1 a @0>", "a", "expected `value: <N NAME @COLOR>"),
    (
        "(size=256,offset=0): f32[64]{0}\nallocation 1",
        "(size=256,offset=9): f\nallocation 1",
        "past",
    ),
    (" value: <1 a @0> (size=256,offset=0): f32[64]{0}\n", "", "no value for a: is it of the same"),
    ("allocation", "location", "a value before any allocation"),
]


@pytest.mark.parametrize(("old", "new", "said"), BROKEN)
def test_a_broken_assignment_is_an_error_with_its_place(cli, tmp_path, old, new, said):
    CHAINS.into(tmp_path)
    file = tmp_path / "module_0001.jit_f.sm_9.0a_gpu_after_optimizations-buffer-assignment.txt"
    assert old in CHAINS.assignment
    file.write_text(CHAINS.assignment.replace(old, new))
    code, _, err = cli("xla", tmp_path)
    assert code == 2
    assert said in err


def test_other_broken_files_are_errors(cli, tmp_path):
    with pytest.raises(hlo2graph.HloError, match="this is no buffer assignment"):
        parse_assignment("hello\n")
    with pytest.raises(hlo2graph.HloError, match="expected a thunk"):
        parse_sequence("nonsense\n")
    with pytest.raises(hlo2graph.HloError, match="belongs to no loop"):
        parse_sequence("001: kCopy x\n  body:\n")
    with pytest.raises(hlo2graph.HloError, match="4 nodes should follow, 3 do"):
        parse_printed(CHAINS_LOG.rpartition("node 3")[0])
    code, _, err = cli("xla", tmp_path)
    assert code == 2
    assert "no dump of XLA's here" in err
    (tmp_path / "after_optimizations.txt").write_text(CHAINS.optimized)
    code, _, err = cli("xla", tmp_path)
    assert code == 2
    assert "no file that ends with buffer-assignment.txt" in err


def test_a_computation_that_runs_in_two_places_is_refused():
    twice = BRANCHES.optimized.replace("{%first, %second}", "{%first, %first}")
    buffers = parse_assignment(BRANCHES.assignment)
    with pytest.raises(hlo2graph.HloError, match="choice and choice run the same computation"):
        build_thunks(hlo2graph.parse(twice), buffers)


def broken(text, random_):
    """Return `text` with a few characters, words or lines lost, doubled or exchanged."""
    parts = re.findall(r"\n|[\w.%]+|[^\w.%\n]", text)
    for _ in range(random_.randrange(1, 4)):
        at, other = random_.randrange(len(parts)), random_.randrange(len(parts))
        match random_.randrange(4):
            case 0:
                del parts[at]
            case 1:
                parts.insert(at, parts[other])
            case 2:
                parts[at], parts[other] = parts[other], parts[at]
            case _:
                parts[at] = random_.choice(["0", "7", "{", "}", "99999999999999999999", "%x", ","])
    return "".join(parts)


@ALL
def test_no_broken_dump_gives_anything_but_an_error_with_words(dump):
    random_ = random.Random(11)
    for _ in range(150):
        texts = [dump.optimized, dump.assignment, dump.sequence]
        which = random_.randrange(3)
        texts[which] = broken(texts[which], random_)
        with suppress(hlo2graph.HloError):
            module = hlo2graph.parse(texts[0])
            buffers = parse_assignment(texts[1])
            thunks = build_thunks(module, buffers)
            report_on(module.name, thunks, parse_sequence(texts[2]), buffers, Mode.CONCURRENT)


def test_ours_that_cannot_be_planned_is_said(cli, tmp_path):
    CHAINS.into(tmp_path)
    (tmp_path / "module_0001.jit_f.before_optimizations.txt").write_text("HloModule broken\n")
    code, out, _ = cli("xla", tmp_path)
    assert code == 0
    assert "note: ours: not planned" in out


PROGRAM = """
import jax, jax.numpy as jnp
def f(x):
    y = jax.lax.fori_loop(0, 3, lambda i, s: jnp.tanh(s @ s) + i, x)
    return jax.lax.cond(y.sum() > 0, jnp.sin, jnp.cos, y), jnp.sort(x, axis=0)
jax.jit(f).lower(jnp.ones((8, 8))).compile()
"""


def test_a_dump_of_the_xla_that_is_installed(cli, tmp_path):
    flags = f"--xla_dump_to={tmp_path} --xla_dump_hlo_as_text"
    env = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", PROGRAM], env=env, check=True, capture_output=True)
    code, out, err = cli("xla", tmp_path, "--module", "jit_f", "--json", "-")
    assert code == 0, err
    found = json.loads(out)
    assert found["mode"] == "concurrent"
    assert not found["notes"]
    assert found["sides"][0]["edges"] > 3
    assert any("/body" in graph["in"] for graph in found["graphs"])


@pytest.mark.parametrize("content", [b"", b"# a title\n", b"\x00\xff\x7fELF", b"HloModule m\n"])
def test_a_log_without_graphs_is_refused(cli, tmp_path, content):
    log = tmp_path / "log.txt"
    log.write_bytes(content)
    code, _, err = cli("xla", ROOT / "samples" / "xla_dump", "--against", log)
    assert code == 2
    assert f"{log}:1:1: error: no graph of XLA's" in err


def test_dumps_in_subfolders_are_found(cli, tmp_path):
    for name, dump in (("one", CHAINS), ("two/deep", SORT)):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        dump.into(folder)
    assert len(find_dumps([tmp_path])) == 2
    _, out, _ = cli("xla", tmp_path)  # several modules, of one name perhaps: each with its file
    assert out.count("after_optimizations.txt\n") == 2
    assert f"  {tmp_path / 'one'}/" in out
    found = json.loads(cli("xla", tmp_path, "--json", "-")[1])
    assert all(part["file"] in out for part in found)
    code, out, _ = cli("xla", tmp_path / "one")
    assert (code, out) == (0, CHAINS_TEXT)
    assert "does not say" not in cli("xla", tmp_path / "one", "--mode", "lhs")[1]
    CHAINS.into(tmp_path)
    assert [dump.folder for dump in find_dumps([tmp_path])] == [tmp_path]


def test_a_module_that_is_given_is_one_and_is_named_where_it_is_another(cli, tmp_path):
    dump, bad = ROOT / "samples" / "xla_dump", tmp_path / "bad.hlo"
    bad.write_bytes(bytes(range(256)))
    code, out, err = cli("xla", dump, "--before", bad)
    assert (code, out) == (2, "")
    assert "this is binary data" in err
    code, out, _ = cli("xla", dump, "--before", ROOT / "samples" / "mlp.hlo")
    assert code == 0
    assert "mlp.hlo is mlp, not jit_f: perhaps another program" in out
    (before,) = dump.glob("*before*")
    assert "perhaps" not in cli("xla", dump, "--before", before)[1]
