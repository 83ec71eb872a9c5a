"""Processes that compile beside this one: the same code, and nothing lost where they end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hlo2graph.backends.cuda import cache, compiler
from hlo2graph.backends.cuda.helpers import Helper, Helpers, most_helpers
from hlo2graph.backends.cuda.nvrtc import Nvrtc, Refused

TEXT = '#include "h.cuh"\nextern "C" __global__ void k(int* r0) {\n  r0[0] = NUMBER;\n}\n'
HEADERS = (("h.cuh", "#define NUMBER 1\n"),)
ASKED = (TEXT, HEADERS, ("--gpu-architecture=sm_90", "--minimal"), "CUBIN")
WRONG = (TEXT, (("h.cuh", ""),), *ASKED[2:])
NAMELESS = (*ASKED[:2], ("--no-such-option",), "CUBIN")


@pytest.fixture(scope="module")
def library():
    pytest.importorskip("cuda.bindings.nvrtc")
    return compiler._library()


@pytest.fixture
def helpers(library, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    found = Helpers()
    found.start(library)
    yield found
    found.end()


def test_compile_as_this_process_does(helpers, library):
    here = Nvrtc(library)
    assert helpers.compile(ASKED) == here.compile(*ASKED)
    for asked in (WRONG, NAMELESS):
        with pytest.raises(Refused) as refused:
            here.compile(*asked)
        assert helpers.compile(asked) == str(refused.value)
    assert 'identifier "NUMBER" is undefined' in helpers.compile(WRONG)
    assert helpers.compile((*ASKED[:2], ("--gpu-architecture=compute_90",), "PTX")).endswith(b"\0")


def test_are_as_many_as_there_are_other_processors(library, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    found = Helpers()
    assert len(found) == 0
    assert found.compile(ASKED) is None
    for _ in range(2):
        found.start(library)
        assert len(found) == 2
    found.end()
    assert len(found) == 0


def test_one_that_ended_is_not_asked_again(helpers, library):
    (helper,) = helpers._all
    os.kill(helper._process.pid, signal.SIGKILL)
    helper._process.wait()
    assert helpers.compile(ASKED) is None
    assert len(helpers) == 0
    helpers.start(library)
    assert helpers.compile(ASKED).startswith(b"\x7fELF")
    os.kill(helpers._all[0]._process.pid, signal.SIGKILL)
    helpers._all[0]._process.wait()
    helpers.start(library)
    assert helpers.compile(ASKED).startswith(b"\x7fELF")


def test_do_without_where_none_can_be(library, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    found = Helpers()
    found.start("no library")
    assert found.compile(ASKED) is None
    monkeypatch.setattr("hlo2graph.backends.cuda.helpers.get_executable", lambda: "/no/python")
    found.start(library)
    assert len(found) == 0


def test_a_program_that_holds_python_is_not_started_again(library, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert most_helpers() == 1
    with monkeypatch.context() as patched:
        patched.setattr(sys, "frozen", True, raising=False)
        assert most_helpers() == 0
    monkeypatch.setattr("hlo2graph.backends.cuda.helpers.get_executable", lambda: None)
    assert most_helpers() == 0


def test_wait_however_long_others_wait_at_sockets(library, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    socket.setdefaulttimeout(1e-3)
    found = Helpers()
    try:
        found.start(library)
        assert found.compile(ASKED).startswith(b"\x7fELF")
    finally:
        socket.setdefaulttimeout(None)
        found.end()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # of threads
@pytest.mark.filterwarnings("ignore:.*fork:RuntimeWarning")  # JAX's, where another test loaded it
def test_a_forked_process_has_none_of_them(helpers):
    child = os.fork()
    if child == 0:
        helpers.leave()
        os._exit(len(helpers) + (helpers.compile(ASKED) is not None))
    assert os.waitpid(child, 0)[1] == 0
    assert helpers.compile(ASKED).startswith(b"\x7fELF")


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # of threads
@pytest.mark.filterwarnings("ignore:.*fork:RuntimeWarning")  # JAX's, where another test loaded it
def test_a_process_forked_while_one_compiles_leaves_that_alone(helpers):
    with ThreadPoolExecutor(1) as pool:
        for _ in range(3):
            asked = pool.submit(helpers.compile, ASKED)
            child = os.fork()
            if child == 0:
                helpers.leave()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            assert asked.result().startswith(b"\x7fELF")


def test_an_interrupt_leaves_no_answer_for_who_asks_next(helpers, monkeypatch):
    def interrupted(self, asked):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Helper, "compile", interrupted)
        with pytest.raises(KeyboardInterrupt):
            helpers.compile(ASKED)
    assert len(helpers) == 0


def test_end_with_the_process(library):
    code = (
        "from hlo2graph.backends.cuda import compiler\n"
        "from hlo2graph.backends.cuda.helpers import HELPERS\n"
        "import os; os.cpu_count = lambda: 2\n"
        "compiler.start_helpers()\n"
        "print(HELPERS._all[0]._process.pid)\n"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)


def test_end_in_the_middle_of_a_text_where_the_process_is_killed(library):
    code = (
        "from hlo2graph.backends.cuda.helpers import Helper\n"
        "import sys\n"
        f"helper = Helper({library!r})\n"
        "print(helper._process.pid, flush=True)\n"
        "lines = ''.join(f'r[{i}] = sinf(r[{i + 1}]) * r[{i + 2}];' for i in range(2000))\n"
        "text = 'extern \"C\" __global__ void k(float* r) {' + lines + '}'\n"
        "helper.compile((text, (('', ''),), ('-arch=sm_90',), 'CUBIN'))\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        pid = int(process.stdout.readline())
        time.sleep(0.5)
        process.kill()
        process.wait()
        assert wait_until(lambda: has_ended(pid))


def has_ended(pid: int) -> bool:
    """Tell whether a process is no more, or waits for whoever looks after orphans."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return True
    return state == "Z"


def wait_until(is_so) -> bool:
    end = time.monotonic() + 10
    while not is_so() and time.monotonic() < end:
        time.sleep(0.02)
    return is_so()


def test_none_is_started_where_all_is_kept(library, tmp_path, monkeypatch):
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    unit = 'extern "C" __global__ void k(int* r0) { r0[0] = 1; }'
    for is_kept in (False, True):
        monkeypatch.setattr(compiler, "HELPERS", helpers := Helpers())
        (found,) = compiler.compile_units([unit], "sm_90")
        assert (found.cached, len(helpers)) == (is_kept, not is_kept)
        helpers.end()


def test_one_that_does_not_begin_is_waited_for_once(library, monkeypatch, tmp_path):
    slow = tmp_path / "python"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    module = "hlo2graph.backends.cuda.helpers"
    monkeypatch.setattr(f"{module}.get_executable", lambda: str(slow))
    monkeypatch.setattr(f"{module}.READY_S", 0.1)
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    found = Helpers()
    found.start(library)
    assert len(found) == 2
    assert found.compile(ASKED) is None
    assert len(found) == 0
    found.start(library)
    assert len(found) == 0


def test_there_are_none_under_a_tool_that_follows_processes(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    before = most_helpers()
    monkeypatch.setenv("CUDA_INJECTION64_PATH", "libsanitizer-collection.so")
    assert (before, most_helpers()) == (2, 0)
