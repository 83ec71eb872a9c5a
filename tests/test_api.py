"""The public Python API: what is in it, and how it deals with what it is given."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from conftest import ROOT, SAMPLES

import hlo2graph as h2g
from hlo2graph.backends.cuda.choices import CudaOptions
from hlo2graph.errors import BackendError, InputError, ParseError, VerifyError
from hlo2graph.options import PlanOptions, flags_of

ADD = """\
HloModule add
ENTRY main {
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  s = f32[4] add(x, y)
  ROOT out = (f32[4], f32[4]) tuple(s, x)
}
"""


def test_names():
    errors = {"HloError", "InputError", "BackendError"}
    made = {"parse", "plan", "compile", "save", "load"}
    memory = {"graph_memory", "set_graph_budget"}
    assert set(h2g.__all__) == made | memory | errors | {"__version__"}
    assert h2g.BackendError is BackendError
    assert set(h2g.__all__) <= set(dir(h2g))
    with pytest.raises(AttributeError, match="no attribute 'lower'"):
        h2g.lower  # noqa: B018


def test_import_is_light():
    code = (
        "import sys, hlo2graph; hlo2graph.__version__; "
        "print([m for m in ('numpy', 'lark', 'click', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_parse_gives_a_module():
    module = h2g.parse(ADD, filename="add.hlo")
    assert module.name == "add"
    assert [i.opcode for i in module.entry.instructions][-1] == "tuple"


def test_repr_is_brief():
    module = h2g.parse(ADD)
    made = h2g.plan(module, target="host")
    assert repr(module).startswith(f"<Module {module.name}, computations=")
    assert repr(made).startswith(f"<Plan {module.name} for host, thunks=")
    assert repr(h2g.compile(made)) == f"<HostExecutable of {made!r}>"


def test_str_gives_text_that_reads_back():
    module = h2g.parse(ADD)
    assert h2g.parse(str(module)) == module
    assert str(h2g.plan(str(module))) == str(h2g.plan(ADD))


def test_errors_name_the_file_and_the_place():
    with pytest.raises(h2g.HloError, match=r"add\.hlo:5:") as caught:
        h2g.parse(ADD.replace("add(x, y)", "add(x, z)"), filename="add.hlo")
    assert isinstance(caught.value, ParseError)


@pytest.mark.parametrize("given", [None, 42, b"HloModule m", object()])
def test_what_is_no_program_is_named(given):
    wanted = f"not {type(given).__name__}; in JAX, lowered"
    for call in (h2g.parse, h2g.plan, h2g.compile):
        with pytest.raises(InputError, match=wanted):
            call(given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memory_budget": "64 apples"}, "memory_budget: '64 apples' is no size"),
        ({"memory_budget": 1.5}, "memory_budget is a number of bytes, not 1.5"),
        ({"memory_budget": -1}, "memory_budget is a number of bytes, not -1"),
        ({"max_buffer_reuse": 1.5}, "max_buffer_reuse is -1, 0 or more, not 1.5"),
    ],
)
def test_planning_options_that_are_no_counts(options, message):
    with pytest.raises(InputError, match=message):
        h2g.plan(ADD, **options)


def test_a_memory_budget_may_have_a_unit():
    text = (SAMPLES[0].parent / "attention.hlo").read_text()
    assert str(h2g.plan(text, memory_budget="9KiB")) == str(h2g.plan(text, memory_budget=9216))
    assert str(h2g.plan(text, memory_budget="9KiB")) != str(h2g.plan(text))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: h2g.plan(ADD, fues="none"), r"hlo2graph\.plan.*keyword fues; did you mean fuse\?"),
        (
            lambda: h2g.plan(ADD, foo=1),
            r"hlo2graph\.plan\(\) has no keyword foo; there are filename, fuse, ",
        ),
        (lambda: h2g.compile(ADD, pointer="copy"), r"hlo2graph\.compile.*did you mean pointers\?"),
        (
            lambda: h2g.save(h2g.plan(ADD), "x.h2g", foo=1),
            r"hlo2graph\.save\(\) has no keyword foo",
        ),
    ],
)
def test_keywords_that_there_are_not(call, said):
    with pytest.raises(TypeError, match=said):
        call()


@pytest.mark.parametrize("call", [h2g.parse, h2g.plan, h2g.compile])
@pytest.mark.parametrize("given", ["some/x.h2g", Path("x.h2g")])
def test_a_compiled_file_is_for_load(call, given):
    with pytest.raises(InputError, match=r"x\.h2g names a compiled file: hlo2graph\.load runs it"):
        call(given)


def test_verify_can_be_left_out():
    wrong = ADD.replace("y = f32[4]", "y = f32[5]")
    assert h2g.parse(wrong, verify=False).name == "add"
    with pytest.raises(VerifyError):
        h2g.parse(wrong)
    with pytest.raises(VerifyError):
        h2g.plan(h2g.parse(wrong, verify=False))


@pytest.mark.parametrize("form", ["text", "module", "plan", "thunk sequence"])
def test_compile_takes_every_form_of_a_program(form):
    from hlo2graph.program.text.plan import format_plan

    program = {
        "text": lambda: ADD,
        "module": lambda: h2g.parse(ADD),
        "plan": lambda: h2g.plan(ADD),
        "thunk sequence": lambda: format_plan(h2g.plan(ADD)),
    }[form]()
    executable = h2g.compile(program)
    f32 = np.dtype(np.float32)
    assert [tuple(leaf)[1:] for leaf in executable.inputs] == [(f32, (4,))] * 2
    assert [leaf[0] for leaf in executable.inputs] == ["x", "y"]
    assert [tuple(leaf)[1:] for leaf in executable.outputs] == [(f32, (4,))] * 2
    x, y = np.arange(4, dtype=f32), np.ones(4, f32)
    for _ in range(2):
        total, same = executable(x, y)
        np.testing.assert_array_equal(total, [1, 2, 3, 4])
        np.testing.assert_array_equal(same, x)
    total[:] = 7  # results are the caller's own
    np.testing.assert_array_equal(executable(x, y)[0], [1, 2, 3, 4])


def test_narrow_types_are_those_of_ml_dtypes():
    executable = h2g.compile("HloModule m ENTRY e { ROOT x = bf16[2] parameter(0) }")
    assert executable.inputs[0][1] == ml_dtypes.bfloat16
    (out,) = executable(np.array([1.5, 2], ml_dtypes.bfloat16))
    assert out.dtype == ml_dtypes.bfloat16


def test_a_donated_argument_is_not_written():
    text = (ROOT / "samples" / "alias_accumulate.hlo").read_text()
    executable = h2g.compile(text)
    state, x = np.full(64, 2, np.float32), np.ones(64, np.float32)
    total, scaled = executable(state, x)
    np.testing.assert_array_equal(total, np.full(64, 3))
    np.testing.assert_array_equal(scaled, np.full(64, 2))
    np.testing.assert_array_equal(state, np.full(64, 2))


@pytest.mark.parametrize(
    "args",
    [
        (np.zeros(4, np.float32),),
        (np.zeros(5, np.float32), np.zeros(4, np.float32)),
        (np.zeros(4, np.float64), np.zeros(4, np.float32)),
        ("text", np.zeros(4, np.float32)),
        (None, None),
    ],
)
def test_arguments_that_do_not_fit(args):
    with pytest.raises(InputError):
        h2g.compile(ADD)(*args)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"target": "sm_1"}, "target is one of auto, host"),
        ({"fuse": "all"}, "fuse is one of"),
        ({"schedule": "random"}, "schedule is one of"),
        ({"max_buffer_reuse": -2}, "max_buffer_reuse"),
        ({"memory_budget": -1}, "memory_budget"),
        ({"backend": "tpu"}, "backend is one of"),
        ({"matmul_precision": "low"}, "matmul_precision is one of"),
        ({"elided": "ones"}, "zeros or random:SEED"),
    ],
)
def test_options_that_do_not_exist(options, said):
    with pytest.raises(InputError, match=said):
        h2g.compile(ADD, **options)


def test_planning_options_do_not_apply_to_a_plan():
    with pytest.raises(InputError, match=r"--max-buffer-reuse.*planned already"):
        h2g.plan(h2g.plan(ADD), max_buffer_reuse=-1)


def test_auto_takes_what_is_there(monkeypatch):
    def no_gpu():
        raise BackendError("no driver here")

    monkeypatch.setattr("hlo2graph.pipeline.cuda_target", no_gpu)
    assert type(h2g.compile(ADD)).__name__ == "HostExecutable"
    with pytest.raises(BackendError, match="no driver here"):
        h2g.compile(ADD, backend="cuda")


def test_observer_sees_the_stages_in_order():
    seen: list[str] = []
    h2g.plan(ADD, target="sm_90", observe=lambda name, text: seen.append(name) or text[0])
    assert seen == [
        *(
            "parse",
            "verify",
            "fuse",
            "lower",
            "drop_dead",
            "use_libraries",
            "place_copies",
            "buffers",
            "plan",
        )
    ]


def test_target_decides_fusion_unless_told():
    plans = {
        (target, fuse): h2g.plan(ADD, target=target, fuse=fuse)
        for target in ("host", "sm_90")
        for fuse in (None, "none", "default")
    }
    assert {key: (p.target, p.fuse) for key, p in plans.items()} == {
        ("host", None): ("host", "none"),
        ("host", "none"): ("host", "none"),
        ("host", "default"): ("host", "default"),
        ("sm_90", None): ("sm_90", "default"),
        ("sm_90", "none"): ("sm_90", "none"),
        ("sm_90", "default"): ("sm_90", "default"),
    }


def test_to_json_is_json():
    document = h2g.plan(ADD).to_json()
    assert json.loads(json.dumps(document)) == document
    assert set(document) >= {"module", "allocations", "thunks", "edges", "stats", "target", "fuse"}


def test_a_byte_order_mark_that_was_kept_is_no_part_of_the_text():
    assert h2g.parse("\ufeff" + ADD) == h2g.parse(ADD)
    with pytest.raises(ParseError, match=r"<string>:2:\d+: error"):
        h2g.parse("\ufeffHloModule add\nENTER main {\n}\n")


def test_a_host_executable_says_what_it_holds_and_takes_what_put_gives():
    """As one on a GPU, so that code for either runs on both."""
    executable = h2g.compile(ADD, backend="host")
    memory = executable.memory
    assert (memory.parameters, memory.results) == (32, 32)
    assert memory.total == 64
    assert (memory.instances, memory.graphs, memory.driver) == (1, 0, 0)
    x = np.ones(4, np.float32)
    arrays = executable.put(x, x)
    assert all(np.array_equal(a, x) for a in arrays)
    assert np.array_equal(executable(*arrays)[0], x + x)
    with pytest.raises(InputError, match="input 1"):
        executable.put(x, np.ones(5, np.float32))


KEYWORDS = {*PlanOptions.__annotations__, *CudaOptions.__annotations__, "backend", "elided", "arch"}


@pytest.mark.parametrize("room", ["backends", "frontend", "jax", "passes", "program", "saved"])
def test_errors_that_name_a_flag_name_the_keyword_too(room):
    """Whoever calls `compile` has no flags to give."""
    known = re.compile("|".join(f"{flag}\\b" for flag in map(flag_of, sorted(KEYWORDS))))
    for path in (ROOT / "hlo2graph" / room).rglob("*.py"):
        tree = ast.parse(path.read_text())
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        told = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, documented) and ast.get_docstring(node) is not None
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                parts = [part for part in node.values if isinstance(part, ast.Constant)]
                told |= set(map(id, parts))
                text = "".join(str(part.value) for part in parts)
            elif isinstance(node, ast.Constant) and id(node) not in told:
                text = str(node.value)
            else:
                continue
            assert not known.search(text) or "(in Python" in text, f"{path}:{node.lineno}"


def flag_of(name):
    return flags_of([name])


def test_the_way_out_is_named_as_flag_and_as_keyword():
    text = "HloModule m\nENTRY e { ROOT c = f32[4] constant({...}) }"
    with pytest.raises(h2g.HloError) as found:
        h2g.compile(text, "host")
    way = "--elided zeros (in Python elided='zeros')"
    assert way in "\n".join(note.message for note in found.value.notes)
    assert h2g.compile(text, "host", elided="zeros")()[0].shape == (4,)


@pytest.mark.parametrize(
    ("program", "options", "said"),
    [
        ("no HLO at all", {}, r"<string>:1:1: error: "),
        (ADD.replace("add(x", "add(nobody"), {}, r":\d+:\d+: error: no instruction here is named"),
        (ADD, {"fuse": "all"}, "fuse is one of"),
        (ADD, {"pointers": "none"}, "pointers is one of"),
        (ADD, {"memory_budget": "much"}, "memory_budget"),
        (ADD, {"elided": "ones"}, "zeros or random:SEED"),
        ("HloModule m\nENTRY e { ROOT c = f32[4] constant({...}) }", {}, "elides the value of c"),
        (h2g.plan(ADD, target="host"), {"fuse": "none"}, r"--fuse \(in Python fuse=\): a thunk"),
        (17, {}, "a program is"),
    ],
)
def test_a_mistake_is_said_before_the_gpu_that_is_missing(monkeypatch, program, options, said):
    def no_gpu():
        raise BackendError("no driver here")

    monkeypatch.setattr("hlo2graph.pipeline.cuda_target", no_gpu)
    with pytest.raises(h2g.HloError, match=said):
        h2g.compile(program, "cuda", **options)
    with pytest.raises(BackendError, match="no driver here"):
        h2g.compile(ADD, "cuda")


def test_a_mistake_in_a_file_is_said_before_the_gpu_that_is_missing(tmp_path):
    text = "HloModule m\nENTRY e { ROOT c = f32[4] constant({...}) }"
    h2g.save(h2g.plan(text, target="sm_90"), tmp_path / "m.h2g", arches=())
    with pytest.raises(h2g.HloError, match="elides the value of c"):
        h2g.load(tmp_path / "m.h2g")
    with pytest.raises(BackendError):
        h2g.load(tmp_path / "m.h2g", elided="zeros")
