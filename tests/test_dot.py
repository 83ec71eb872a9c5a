"""Plans as Graphviz graphs: what is in them, and that other tools read them."""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import replace

import networkx
import pytest
from hypothesis import given, settings
from plans import F32X4, counting_loop, plan_of, plans

from hlo2graph.errors import BackendError, InputError
from hlo2graph.inspect.dot import dot
from hlo2graph.inspect.dot_labels import quoted, shortened
from hlo2graph.inspect.render import render
from hlo2graph.program.thunks import Copy, Edge, Fill, Hazard, Kernel, Sequence, Slice

needs_dot = pytest.mark.skipif(not shutil.which("dot"), reason="Graphviz's program dot is missing")
GRAPH = """\
digraph "test" {
  graph [label="test\\n3 thunks, 2 edges (2 raw), width 2; in all 7 thunks, 3 edges\\n\
critical path 2 (bold), arena 1.02 kB", \
labelloc=t, compound=true, fontname="Helvetica", fontsize=11];
  node [shape=box, style=filled, fontname="Helvetica", fontsize=10];
  edge [fontname="Helvetica", fontsize=8];
  t0 [label="zero.6\\nfill 4 B with 00 00 00 00\\n-> 1[0:4]", tooltip="zero.6", \
fillcolor="#f6f6f6", penwidth=2.5, color="#c0392b"];
  t1 [label="copy.7\\ncopy 16 B\\n0[0:16] -> 2[0:16]\\na b.py:3", tooltip="f", \
fillcolor="#ececec"];
  t2 [label="loop.5\\nwhile, 3 times", tooltip="loop.5", fillcolor="#dcf0dc", penwidth=2.5, \
color="#c0392b"];
  t3 [label="lt.1\\nkernel: compare\\npred[]\\n1[0:4] -> 3[0:1]", tooltip="lt.1", \
fillcolor="#dceaf7"];
  t4 [label="add.2\\nkernel: add\\ns32[]\\n1[0:4] -> 1[0:4]", tooltip="add.2", \
fillcolor="#dceaf7"];
  t5 [label="neg.3\\nkernel: negate\\nf32[4]\\n2[0:16] -> 3[256:272]", tooltip="neg.3", \
fillcolor="#dceaf7"];
  t6 [label="copy.4\\ncopy 16 B\\n3[256:272] -> 2[0:16]", tooltip="copy.4", fillcolor="#ececec"];
  subgraph cluster_t2 {
    graph [label="while loop.5", style=rounded, color="#5d9c5d"];
    t2;
    subgraph cluster_t2_condition {
      graph [label="condition", style=dashed, color="#999999"];
      t3;
    }
    subgraph cluster_t2_body {
      graph [label="body", style=dashed, color="#999999"];
      t4;
      t5;
      t6;
    }
  }
  t0 -> t2 [label=" raw 4 B", tooltip="raw 1[0:4]", color="#333333", penwidth=2.5, \
lhead=cluster_t2];
  t1 -> t2 [label=" raw 16 B", tooltip="raw 2[0:16]", color="#333333", lhead=cluster_t2];
  t5 -> t6 [label=" raw 16 B", tooltip="raw 3[256:272]", color="#333333"];
}
"""


def read_back(text):
    """Return the graph as networkx reads it, through pydot."""
    import pydot

    (graph,) = pydot.graph_from_dot_data(text)
    return networkx.nx_pydot.from_pydot(graph)


def chain(names, hazard=Hazard.RAW):
    bytes_ = Slice(0, 0, 16)
    thunks = tuple(Copy(name, bytes_, bytes_, metadata=f'{{op_name="{name}"}}') for name in names)
    used = None if hazard in (Hazard.CONTROL, Hazard.EFFECT, Hazard.ORDER) else bytes_
    edges = tuple(Edge(i, i + 1, hazard, used) for i in range(len(thunks) - 1))
    return plan_of(Sequence(thunks, edges=edges))


def test_graph_of_a_loop():
    assert dot(counting_loop()) == GRAPH


def test_depth_0_shows_the_outermost_sequence_alone():
    text = dot(counting_loop(), depth=0)
    assert "subgraph" not in text
    assert "t3" not in text
    assert "1[0:4] 2[0:16] 3[0:1] +1" in text
    assert r"\ncondition: 1 thunk\nbody: 3 thunks" in text


@pytest.mark.parametrize("name", ["loop.5", "loop.5/body"])
def test_one_computation(name):
    text = dot(counting_loop(), computation=name)
    assert re.findall(r"^  (t\d+) \[", text, re.MULTILINE) == ["t4", "t5", "t6"]
    assert "t5 -> t6" in text


def test_limit_draws_the_first_and_says_so():
    text = dot(chain("abcde"), limit=2)
    assert re.findall(r"^  (\w+) \[", text, re.MULTILINE)[3:] == ["t0", "t1", "more"]
    assert 'label="3 more nodes not drawn"' in text
    assert re.findall(r"t\d -> t\d", text) == ["t0 -> t1"]
    assert "more" not in dot(chain("abcde"), limit=5)


@pytest.mark.parametrize("hazard", Hazard)
def test_every_hazard_has_a_label_and_data_edges_are_raw(hazard):
    plan = chain("ab", hazard)
    has_bytes = plan.body.edges[0].slice is not None
    assert f'label=" {hazard}{" 16 B" if has_bytes else ""}"' in dot(plan)
    assert ("->" in dot(plan, edges="data").replace("] -> ", "")) is (hazard is Hazard.RAW)


def test_hazards_look_different():
    styles = {re.search(r"t0 -> t1 .*(color=\S+ ?\S*)", dot(chain("ab", h)))[1] for h in Hazard}
    assert len(styles) == len(Hazard)


def test_what_a_kernel_does():
    x, y = Slice(0, 0, 16), Slice(0, 16, 16)
    text = dot(plan_of(Sequence((Kernel("k", "both", (x,), (x, y)),))))
    assert r"kernel: negate\n(f32[4], f32[4])\n0[0:16] -> 0[0:16] 0[16:32]" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"edges": "some"}, "edges is one of all, data"),
        ({"depth": -1}, "depth is 0 or more"),
        ({"limit": 0}, "limit is 1 or more"),
        ({"computation": "loop.6"}, "perhaps loop.5 was meant"),
        ({"computation": "x"}, "there are loop.5/condition, loop.5/body, loop.5"),
    ],
)
def test_options_that_fit_nothing(options, message):
    with pytest.raises(InputError, match=re.escape(message)):
        dot(counting_loop(), **options)


def test_quoting_and_lengths():
    assert quoted('a"b\\c\n<d>{e|f}') == r'"a\"b\\c\n<d>{e|f}"'
    assert quoted("a&lt;b & c\0\u2028\ud800") == '"a&amp;lt;b & c   "'
    assert shortened("x" * 60) == "x" * 60
    assert len(shortened("x" * 61)) == 59


NASTY = ['q"uote', "back\\", "a<b>{c|d}", "x" * 30_000, "&amp;", "é\U0001f600", "t0", "node", "\\N"]


def test_no_line_is_long():
    assert max(map(len, dot(chain(NASTY)).splitlines())) < 1000


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # pydot's own, of pyparsing
@pytest.mark.parametrize("plan", [chain(NASTY), counting_loop()], ids=["nasty", "loop"])
def test_networkx_reads_it_back(plan):
    graph = read_back(dot(plan))
    counts = [len(plan.body.thunks), len(plan.body.edges)]
    if plan == counting_loop():
        counts = [7, 3]
    assert [graph.number_of_nodes(), graph.number_of_edges()] == counts
    assert set(graph) == {f"t{i}" for i in range(counts[0])}
    for number, thunk in enumerate(plan.body.thunks):
        label = graph.nodes[f"t{number}"]["label"]
        assert label.startswith(quoted(shortened(thunk.name))[:-1] + r"\n")


@settings(max_examples=60)
@given(plans())
def test_any_plan_is_drawn_with_short_lines_and_balanced_braces(plan):
    text = dot(replace(plan, aliases=()))
    outside = re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', text)
    assert outside.count('"') % 2 == 0
    assert outside.count("{") == outside.count("}")
    assert max(map(len, text.split("\n"))) < 1000


@needs_dot
@pytest.mark.parametrize("plan", [chain(NASTY), counting_loop()], ids=["nasty", "loop"])
def test_graphviz_draws_it(plan):
    picture = render(dot(plan), "svg").decode()
    assert picture.count('class="node"') == dot(plan).count("fillcolor=")
    assert picture.count('class="edge"') == len(re.findall(r"^  t\d+ -> ", dot(plan), re.MULTILINE))
    assert "Helvetica" in picture
    assert render(dot(plan), "png").startswith(b"\x89PNG")


def test_a_format_that_is_none():
    with pytest.raises(InputError, match=r"\.pdf, \.html, by the file.s suffix, not \.bmp"):
        render("digraph {}", "bmp")


def test_a_graph_too_large_to_draw():
    large = dot(chain([f"c{i}" for i in range(4000)]))
    with pytest.raises(InputError, match="--fold, --around NAME, --limit 1000"):
        render(large, "svg")


def test_without_the_package_or_the_program(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BackendError, match="apt-get install graphviz"):
        render("digraph {}", "svg")
    monkeypatch.setitem(sys.modules, "graphviz", None)
    with pytest.raises(BackendError, match=r"pip install 'hlo2graph\[draw\]'"):
        render("digraph {}", "svg")


@needs_dot
def test_a_graph_that_graphviz_refuses():
    with pytest.raises(BackendError, match="Graphviz failed"):
        render("digraph {", "svg")


def test_fill_without_bytes_read():
    text = dot(plan_of(Sequence((Fill("z", b"\0", Slice(0, 0, 2048)),)), inputs=(("x", F32X4),)))
    assert r'label="z\nfill 2.05 kB with 00\n-> 0[0:2048]"' in text
