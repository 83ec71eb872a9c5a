"""The page: where things stand, what the data says, and how it behaves in a real browser."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from itertools import pairwise
from random import Random

import pytest
from browser import Browser, needs_browser
from conftest import SAMPLES
from plans import counting_loop, plan_of

import hlo2graph
from hlo2graph.inspect.durations import estimated
from hlo2graph.inspect.lifetimes import lifetimes
from hlo2graph.inspect.page import Choice, page
from hlo2graph.inspect.page.layers import GAP_X, Size, place
from hlo2graph.inspect.page.layout import lay_out
from hlo2graph.inspect.picture import picture_of_module, picture_of_plan, selected
from hlo2graph.inspect.timeline import lanes_of, simulated
from hlo2graph.program.live_bytes import peak_bytes
from hlo2graph.program.plan import AllocationKind
from hlo2graph.program.thunks import Copy, Edge, Hazard, Sequence, Slice

NASTY = [
    "</script><script>document.title='taken'</script>",
    "<img src=x onerror=\"document.title='taken'\">",
    "\"'`\\",
    "a\nb\tc\0d\u2028e",
    "\ud800",
    "<!--",
    "@@DATA@@",
    "&amp;",
    "__proto__",
    "é\U0001f600" * 30,
]


def sample_plan(name, **options):
    sample = next(s for s in SAMPLES if s.stem == name)
    module = hlo2graph.parse(sample.read_text(), sample.name)
    return module, hlo2graph.plan(module, **{"target": "host", **options})


def html_of(plan, module=None, **options):
    times = estimated(plan)
    picture = picture_of_plan(plan, seconds=times.total)
    return page(picture, plan=plan, module=module, durations=times, **options)


def chain(names):
    copies = [
        Copy(name, Slice(0, k * 16, 16), Slice(0, k * 16 + 16, 16)) for k, name in enumerate(names)
    ]
    edges = [Edge(k, k + 1, Hazard.RAW, Slice(0, k * 16 + 16, 16)) for k in range(len(copies) - 1)]
    return plan_of(Sequence(tuple(copies), edges=tuple(edges)), temp=16 * len(copies) + 16)


class Reader(HTMLParser):
    """Collects the tags, and the text of each script."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.scripts, self.title = [], [], ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        if self.cdata_elem == "script":
            self.scripts.append(data)
        if self.lasttag == "title":
            self.title += data

    @property
    def data(self):
        return json.loads(self.scripts[0])


# ***** layout *****


def test_arrows_lead_down_and_boxes_are_apart():
    rng = Random(0)
    for count in (1, 2, 30, 300):
        sizes = [Size(rng.uniform(20, 200), rng.uniform(10, 60)) for _ in range(count)]
        arrows = {
            (min(a, b), max(a, b))
            for a, b in ((rng.randrange(count), rng.randrange(count)) for _ in range(2 * count))
            if a != b
        }
        placed = place(sizes, sorted(arrows))
        for src, dst in arrows:
            assert placed.centres[src][1] < placed.centres[dst][1]
        rows = {}
        for (x, y), size in zip(placed.centres, sizes, strict=True):
            rows.setdefault(round(y, 3), []).append((x - size.width / 2, x + size.width / 2))
            assert x - size.width / 2 >= -0.01
            assert x + size.width / 2 <= placed.size.width + 0.01
        for row in rows.values():
            assert all(b[0] - a[1] >= GAP_X - 0.01 for a, b in pairwise(sorted(row)))
        for (src, dst), way in zip(sorted(arrows), placed.ways, strict=True):
            heights = [placed.centres[src][1], *(y for _, y in way), placed.centres[dst][1]]
            assert heights == sorted(heights)


def test_a_chain_stands_straight():
    placed = place([Size(50 + k, 20) for k in range(9)], [(k, k + 1) for k in range(8)])
    assert len({round(x, 6) for x, _ in placed.centres}) == 1


def test_no_row_is_endless():
    placed = place([Size(10, 10)] * 2000, [])
    assert placed.size.width < 10_000
    assert place([], []).size == Size(0.0, 0.0)


@pytest.mark.parametrize("name", ["loop", "switch", "copies_nested_loops", "join_then_loop"])
def test_what_is_inside_a_loop_stands_inside_its_box(name):
    sample = next(s for s in SAMPLES if s.stem == name)
    picture = picture_of_plan(hlo2graph.plan(sample.read_text()))
    layout = lay_out(picture)
    boxes = {**layout.nodes, **layout.groups}
    assert set(boxes) == {n.id for n in picture.nodes} | {g.id for g in picture.groups}
    for inner, outer in [
        *((n.id, n.group) for n in picture.nodes if n.group),
        *((g.id, g.owner) for g in picture.groups),
    ]:
        a, b = boxes[inner], boxes[outer]
        assert b.x <= a.x
        assert b.y <= a.y
        assert a.x + a.width <= b.x + b.width + 0.01
        assert a.y + a.height <= b.y + b.height + 0.01


def test_folded_layers_have_a_frame():
    plan = hlo2graph.plan(
        "HloModule m\nENTRY e {\n  x0 = f32[8] parameter(0)\n"
        + "".join(f"  y{k} = f32[8] sine(x{k})\n  x{k + 1} = f32[8] tanh(y{k})\n" for k in range(5))
        + "  ROOT r = f32[8] negate(x5)\n}"
    )
    picture = selected(picture_of_plan(plan), fold=True)
    layout = lay_out(picture)
    (frame,) = layout.groups.values()
    held = [layout.nodes[n.id] for n in picture.nodes if n.group]
    assert len(held) == 2
    assert all(frame.x <= r.x and r.y + r.height <= frame.y + frame.height for r in held)


# ***** memory and time *****


@pytest.mark.parametrize("options", [{}, {"max_buffer_reuse": -1}, {"target": "sm_90"}], ids=str)
@pytest.mark.parametrize("sample", [s for s in SAMPLES if s.suffix == ".hlo"], ids=lambda s: s.stem)
def test_most_live_bytes_are_those_that_the_plan_counts(sample, options):
    plan = hlo2graph.plan(sample.read_text(), **{"target": "host", **options})
    temps = {i: a.size for i, a in enumerate(plan.allocations) if a.kind is AllocationKind.TEMP}
    assert max(lifetimes(plan).live_bytes(), default=0) == peak_bytes(plan.body, temps)


def test_values_of_a_loop_are_held_all_through_it():
    found = lifetimes(counting_loop())
    assert found.order == (0, 1, 2, 3, 4, 5, 6)
    spans = {(v.thunk, str(v.slice)): (v.first, v.last) for v in found.values}
    # Of the loop only the predicate and the negated copy are temporaries.
    assert spans == {(3, "3[0:1]"): (3, 3), (5, "3[256:272]"): (5, 6)}


def test_what_a_later_round_reads_is_held():
    _, plan = sample_plan("loop")
    found = lifetimes(plan)
    last = len(found.order) - 1
    counter = [v for v in found.values if v.slice.size == 4]
    assert max(v.last for v in counter) == last


def test_lanes_hold_one_thing_at_a_time():
    rng = Random(1)
    spans = [(s := rng.uniform(0, 9), s + rng.uniform(0, 2)) for _ in range(300)]
    lanes = lanes_of(spans)
    for lane in set(lanes):
        held = sorted(s for s, k in zip(spans, lanes, strict=True) if k == lane)
        assert all(a[1] <= b[0] for a, b in pairwise(held))
    most = max(sum(a <= s < b for a, b in spans) for s, _ in spans)
    assert max(lanes) + 1 == most


def test_a_simulation_keeps_every_edge_and_waits_for_nothing_else():
    _, plan = sample_plan("attention")
    times = estimated(plan)
    bars = {bar.id: bar for bar in simulated(plan, times)}
    for edge in plan.body.edges:
        assert bars[edge.src].end <= bars[edge.dst].start
    for at in range(len(plan.body.thunks)):
        ends = [bars[e.src].end for e in plan.body.edges if e.dst == at]
        assert bars[at].start == max(ends, default=0.0)


def test_a_loop_takes_its_rounds():
    bars = {bar.id: bar for bar in simulated(counting_loop(50), estimated(counting_loop(50)))}
    one = bars[6].end - bars[3].start
    assert bars[2].end - bars[2].start == pytest.approx(50 * one)
    assert bars[3].start == bars[2].start


# ***** the file *****


def test_one_file_that_refers_to_no_other():
    module, plan = sample_plan("attention")
    read = Reader(html_of(plan, module))
    for tag, attributes in read.tags:
        assert tag not in ("link", "img", "iframe", "base")
        assert not {"src", "href"} & set(attributes)
    policy = next(a["content"] for t, a in read.tags if "http-equiv" in a)
    assert "default-src 'none'" in policy
    assert not re.search(r"https?:|url\(|@import|innerHTML|eval\(", html_of(plan, module))


def test_names_end_nothing():
    read = Reader(html_of(chain(NASTY)))
    assert len(read.scripts) == 2
    assert [node["lines"][0] for node in read.data["nodes"]] == [
        node.name for node in picture_of_plan(chain(NASTY)).nodes
    ]
    assert html_of(chain(NASTY)).isascii() or "\ud800" not in html_of(chain(NASTY))
    html_of(chain(NASTY)).encode()


def test_what_a_node_says():
    module, plan = sample_plan("attention")
    data = Reader(html_of(plan, module)).data
    node = next(n for n in data["nodes"] if n["lines"][0] == "masked")
    about = dict(node["about"])
    assert about["Thunk"][0] == f"{node['id']}: kernel masked"
    assert "select(" in data["texts"][about["HLO"]]
    assert "__global__" in data["texts"][about["CUDA C++"]]
    assert any(line.endswith("of the arena") for line in about["Reads"])


def test_what_an_edge_says():
    module, plan = sample_plan("mlp", max_buffer_reuse=-1)
    data = Reader(html_of(plan, module)).data
    kinds = {edge["reason"]: edge for edge in data["edges"]}
    assert kinds["reuse"]["artefact"]
    assert not kinds["raw"]["artefact"]
    assert any("needs" in line and "of its own" in line for line in kinds["reuse"]["why"])
    assert any("reads what" in line for line in kinds["raw"]["why"])


def test_a_plan_that_cuda_refuses_says_so():
    module, plan = sample_plan("collectives")
    node = next(n for n in Reader(html_of(plan, module)).data["nodes"] if n["kind"] == "collective")
    held = dict(node["about"])["CUDA C++"]
    assert isinstance(held, int) or "there are no kernels" in held[0]


def test_a_large_constant_is_not_written_out():
    text = "HloModule m\nENTRY e {{\n  ROOT c = f32[2000] constant({{{}}})\n}}".format(
        ", ".join(["1"] * 2000)
    )
    module = hlo2graph.parse(text)
    html = page(picture_of_module(module), plan=None, module=module, durations=None)
    assert any("constant({...})" in text for text in Reader(html).data["texts"])


# ***** in a browser *****

READY = "document.getElementById('side').textContent.length > 0"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    found = Browser(tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


def opened(browser, tmp_path, html):
    path = tmp_path / "page.html"
    path.write_text(html, encoding="utf-8")
    browser.open(path)
    assert browser.run(READY)
    return browser


def on_node(browser, at):
    """Return where a node is on the screen: the middle of its upper edge, a little below."""
    return browser.run(
        f"(() => {{ const [x, y, w] = nodes[{at}].box;"
        "const [px, py] = view.toScreen(x + w / 2, y);"
        "const r = view.canvas.getBoundingClientRect(); return [r.left + px, r.top + py + 3]; })()"
    )


def on_edge(browser, at):
    return browser.run(
        f"(() => {{ const [px, py] = view.toScreen(...view.middle({at}));"
        "const r = view.canvas.getBoundingClientRect(); return [r.left + px, r.top + py]; })()"
    )


def side(browser):
    return browser.run("document.getElementById('side').innerText")


@needs_browser
@pytest.mark.slow
def test_click_a_node_then_an_edge_then_a_neighbour(browser, tmp_path):
    module, plan = sample_plan("mlp", max_buffer_reuse=-1)
    opened(browser, tmp_path, html_of(plan, module))
    browser.click(*on_node(browser, 2))
    shown = side(browser)
    assert "t2: kernel sum1" in shown
    assert "add(%" in shown
    assert "6[0:512]" in shown
    assert "Waits for (2)".upper() in shown.upper()
    browser.run("document.querySelector('details.cuda-c-').open = true")
    assert "__global__" in side(browser)
    data = Reader(html_of(plan, module)).data
    at = next(k for k, e in enumerate(data["edges"]) if e["reason"] == "reuse")
    browser.click(*on_edge(browser, at))
    assert "An artefact" in side(browser)
    assert "of its own" in side(browser)
    browser.run("document.querySelector('#side p button').click()")
    assert f"{data['nodes'][data['edges'][at]['src']]['id']}:" in side(browser)
    assert browser.errors == []
    assert [r for r in browser.requests if not r.startswith("file:")] == []
    assert len(browser.requests) == 1
    assert browser.screenshot().startswith(b"\x89PNG")


@needs_browser
@pytest.mark.slow
def test_pan_zoom_fit_and_search(browser, tmp_path):
    module, plan = sample_plan("attention")
    opened(browser, tmp_path, html_of(plan, module))
    scale, x = browser.run("[view.scale, view.x]")
    browser.drag(800, 400, 120, 30)
    assert browser.run("view.x") == pytest.approx(x + 120)
    assert browser.run("view.selected") is None
    before = browser.run("(300 - view.x) / view.scale")
    top = browser.run("view.canvas.getBoundingClientRect().top")
    browser.wheel(300, 200 + top, -400)
    assert browser.run("view.scale") > 1.5 * scale
    assert browser.run("(300 - view.x) / view.scale") == pytest.approx(before, abs=1)
    browser.press("f")
    assert browser.run("[view.scale, view.x]") == pytest.approx([scale, x])
    browser.press("/")
    browser.type("mask")
    assert browser.run("document.getElementById('matches').textContent") == "1 node"
    browser.press("Enter")
    assert "kernel masked" in side(browser)
    middle = browser.run("nodes[view.selected.node].box")
    shown = browser.run("view.window(0)")
    assert shown[0] < middle[0]
    assert middle[0] + middle[2] < shown[2]
    browser.run("search.blur()")
    browser.press("Escape")
    assert "How to look around".upper() in side(browser).upper()
    assert browser.errors == []


@needs_browser
@pytest.mark.slow
def test_memory_timeline_and_curve(browser, tmp_path):
    module, plan = sample_plan("attention")
    small = hlo2graph.plan(module, target="host", max_buffer_reuse=-1)
    choices = (Choice("small", small, False), Choice("wide", plan, True))
    opened(browser, tmp_path, html_of(plan, module, choices=choices))
    canvas = "panels.canvas.getBoundingClientRect()"
    box = browser.run(
        f"(() => {{ const r = {canvas}; const b = valueBox(data.memory.values[2]);"
        "return [r.left + b[0] + b[2] / 2, r.top + b[1] + b[3] / 2]; })()"
    )
    browser.click(*box)
    wanted = browser.run("data.memory.values[2][4]")
    assert browser.run("nodes[view.selected.node].thunks[0]") == wanted
    browser.run("document.querySelector('[data-panel=timeline]').click()")
    browser.settle()
    bar = browser.run(
        f"(() => {{ const r = {canvas}; const b = barBox(data.timeline.bars[5]);"
        "return [r.left + b[0] + b[2] / 2, r.top + b[1] + b[3] / 2]; })()"
    )
    browser.click(*bar)
    assert browser.run("nodes[view.selected.node].thunks[0]") == browser.run(
        "data.timeline.bars[5][0]"
    )
    browser.run("document.querySelector('[data-panel=curve]').click()")
    browser.settle()
    assert "wide (shown above)" in browser.run("document.getElementById('choice').textContent")
    browser.run(
        "(() => { const s = document.getElementById('slider'); s.value = '0';"
        "s.dispatchEvent(new Event('input')); })()"
    )
    text = browser.run("document.getElementById('choice').textContent")
    assert text.startswith("small\narena ")
    assert "only to save memory" in text
    spot = browser.run(
        f"(() => {{ const r = {canvas}; const [x, y] = panels.spots[1];"
        "return [r.left + x, r.top + y]; })()"
    )
    browser.click(*spot)
    assert browser.run("panels.choice") == 1
    assert browser.errors == []


@needs_browser
@pytest.mark.slow
def test_text_of_the_program_stays_text(browser, tmp_path):
    plan = chain(NASTY)
    opened(browser, tmp_path, html_of(plan))
    for at in range(len(NASTY)):
        browser.run(f"select({{node: {at}}})")
        assert browser.run("document.title") == "test"
        assert browser.run("document.querySelectorAll('#side img, #side script').length") == 0
    assert "</script><script>" in browser.run(
        "(select({node: 0}), document.getElementById('side').textContent)"
    )
    assert browser.errors == []


@needs_browser
@pytest.mark.slow
def test_ten_thousand_nodes(browser, tmp_path):
    rng = Random(2)
    count = 10_000
    copies = tuple(Copy(f"c{k}", Slice(0, 0, 16), Slice(0, 16 * k + 16, 16)) for k in range(count))
    pairs = sorted({(rng.randrange(max(0, k - 60), k), k) for k in range(1, count) for _ in "ab"})
    edges = tuple(Edge(a, b, Hazard.RAW, Slice(0, 16 * a + 16, 16)) for a, b in pairs)
    plan = plan_of(Sequence(copies, edges=edges), temp=16 * count + 16)
    opened(browser, tmp_path, html_of(plan))
    assert browser.run("view.drawn.nodes") == count
    browser.run("(select({node: 7000}), view.scale = 1, view.centre(7000))")
    browser.settle()
    drawn = browser.run("view.drawn")
    assert 0 < drawn["nodes"] < 200  # only what is in sight
    browser.click(*on_node(browser, 7000))
    assert "t7000: copy c7000" in side(browser)
    browser.press("/")
    browser.type("c123")
    assert browser.run("hits.length") == 11  # c123, c1230 to c1239
    assert browser.errors == []
