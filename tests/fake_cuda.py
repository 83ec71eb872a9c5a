"""A CUDA driver that runs on the host: memory is host memory, kernels are evaluated with NumPy.

It executes graphs as CUDA would, in a random order that the dependencies allow, conditional nodes
included, and refuses what CUDA refuses: a dependency given twice, a node of another graph, a
conditional handle of another graph, an empty body on an old driver.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from itertools import count
from random import Random
from typing import ClassVar

import numpy as np
import pytest
from cuda.bindings import driver as real

import hlo2graph
import hlo2graph.inspect.cuda_session
from hlo2graph.backends.cuda import (
    builtin,
    cache,
    driver,
    executable,
    functions,
    prepared,
    products,
    stamps,
)
from hlo2graph.backends.cuda.compiler import Compiled
from hlo2graph.backends.cuda.copier import Moves
from hlo2graph.backends.cuda.kernels import key_of
from hlo2graph.backends.cuda.pointers.table_kernels import SUFFIX
from hlo2graph.backends.cuda.source import KernelSource, cpp_name
from hlo2graph.backends.cuda.stamps import LAUNCHES
from hlo2graph.ops.evaluate import HostEvaluator
from hlo2graph.program.uses import computing
from tests.fake_graphs import BAD, OK, FakeGraphs
from tests.fake_memory import FakeMemory

ROOM = "hlo2graph.backends.cuda.", "hlo2graph.inspect."


FILL_WIDTHS = {name: width for width, name in builtin.FILLS.items()}
NUMBERS = count(1001)  # of all fakes: one may destroy what an earlier one made


class FakeDriver(FakeGraphs, FakeMemory):
    """Stands for `cuda.bindings.driver`; what it does not have is the real module's."""

    memory: ClassVar[dict] = {}  # of all fakes: one may free what an earlier one allocated

    def __init__(
        self, version: int = 13000, seed: int = 0, arch: int = 90, multiprocessors: int = 132
    ) -> None:
        self.version, self.arch, self.multiprocessors = version, arch, multiprocessors
        self.rng = Random(seed)
        self.functions: dict[int, str] = {}
        FakeGraphs.__init__(self)
        FakeMemory.__init__(self)
        self.launched: list[str] = []
        self.api: list[str] = []
        self.fail: dict[str, object] = {}
        self.stamped = False  # kernels take one more argument, the place for time stamps
        self.clock = 10_000
        self.shapes: dict[str, tuple] = {}
        self.evaluators: dict[str, HostEvaluator] = {}

    def __getattr__(self, name: str):
        return getattr(real, name)

    def load(self, plan) -> None:
        """Know the kernels of `plan`; those of several must have names of their own."""
        evaluator = HostEvaluator(plan.computations)
        for key, source in without_text(plan).items():
            computation = plan.computations[key.computation]
            shapes = [leaf for p in computation.parameters for leaf in p.shape.leaves()]
            self.evaluators[source.name] = evaluator
            self.shapes[source.name] = (
                key.computation,
                shapes,
                list(computation.result.shape.leaves()),
            )

    def _next(self) -> int:
        return next(NUMBERS)

    # ---- device -------------------------------------------------------------------------------

    def cuInit(self, flags):
        return (OK,)

    def cuDeviceGetCount(self):
        return OK, 1

    def cuDeviceGet(self, ordinal):
        return OK, real.CUdevice(ordinal)

    def cuDevicePrimaryCtxRetain(self, device):
        return OK, real.CUcontext(7)

    def cuCtxGetCurrent(self):
        return OK, real.CUcontext(7)

    def cuCtxSetCurrent(self, context):
        return (OK,)

    def cuDeviceGetAttribute(self, which, device):
        names = real.CUdevice_attribute
        major = names.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
        minor = names.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR
        count = names.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
        known = {major: self.arch // 10, minor: self.arch % 10, count: self.multiprocessors}
        return OK, known.get(which, 1024)

    def cuDeviceGetName(self, length, device):
        return OK, b"Fake GPU\0\0"

    def cuDriverGetVersion(self):
        return OK, self.version

    def cuDeviceTotalMem(self, device):
        return OK, 1 << 30

    def cuDeviceGraphMemTrim(self, device):
        self.api.append("cuDeviceGraphMemTrim")
        return (OK,)

    def cuGetErrorString(self, status):
        return OK, b"words"

    # ---- memory -------------------------------------------------------------------------------

    def _allocate(self, size):
        block = (ctypes.c_ubyte * (size + 256))()
        address = -(-ctypes.addressof(block) // 256) * 256
        self.memory[address] = block
        return address

    def cuMemAlloc(self, size):
        if failures := self.fail.get("cuMemAlloc"):
            return failures.pop(0), None
        return OK, real.CUdeviceptr(self._allocate(size))

    def cuMemFree(self, address):
        del self.memory[int(address)]
        return (OK,)

    def cuMemHostAlloc(self, size, flags):
        return OK, self._allocate(size)

    def cuMemHostGetDevicePointer(self, address, flags):
        return OK, real.CUdeviceptr(address)

    def cuMemFreeHost(self, address):
        del self.memory[int(address)]
        return (OK,)

    def cuPointerGetAttribute(self, which, address):
        return (OK, 0) if self.is_live(int(address), 1) else (BAD, None)

    def is_live(self, address, size):
        """Memory that was allocated, by anybody here, and not yet freed."""
        held = [(start, start + len(block)) for start, block in list(self.memory.items())]
        found = [end for start, end in held if start <= address < end]
        if not found or size <= max(found) - address:
            return bool(found)
        return self.is_live(max(found), address + size - max(found))  # in the piece behind it

    def cuMemcpyHtoD(self, target, source, size):
        ctypes.memmove(int(target), int(source), size)
        return (OK,)

    cuMemcpyDtoH = cuMemcpyHtoD

    def cuMemcpyHtoDAsync(self, target, source, size, stream):
        return self.cuMemcpyHtoD(target, source, size)

    cuMemcpyDtoDAsync = cuMemcpyHtoDAsync

    def cuMemsetD32Async(self, target, value, count, stream):
        self._fill(int(target), value, 4, count)
        return (OK,)

    def cuMemsetD8(self, target, value, count):
        self._fill(int(target), value, 1, count)
        return (OK,)

    def cuCtxSynchronize(self):
        return (OK,)

    def cuMemsetD8Async(self, target, value, count, stream):
        self._fill(int(target), value, 1, count)
        return (OK,)

    def _fill(self, target, value, size, count):
        array = (ctypes.c_ubyte * (size * count)).from_address(target)
        np.frombuffer(array, f"u{size}")[:] = value

    # ---- streams, events, modules --------------------------------------------------------------

    def cuStreamCreate(self, flags):
        return OK, real.CUstream(self._next())

    def cuStreamSynchronize(self, stream):
        return (OK,)

    cuStreamDestroy = cuEventDestroy = cuEventSynchronize = cuModuleUnload = cuStreamSynchronize
    cuStreamQuery = cuEventQuery = cuStreamSynchronize

    def cuEventCreate(self, flags):
        return OK, real.CUevent(self._next())

    def cuEventRecord(self, event, stream):
        return (OK,)

    def cuEventElapsedTime(self, start, end):
        return OK, 0.001

    def cuStreamWaitEvent(self, stream, event, flags):
        return (OK,)

    def cuModuleLoadData(self, image):
        return OK, real.CUmodule(self._next())

    def cuModuleGetFunction(self, module, name):
        known = {id: found for found, id in ((v, k) for k, v in self.functions.items())}
        for id, found in known.items():
            if found == name.decode():
                return OK, real.CUfunction(id)
        id = self._next()
        self.functions[id] = name.decode()
        return OK, real.CUfunction(id)

    def cuFuncSetAttribute(self, function, attribute, value):
        return (OK,)

    # ---- kernels ------------------------------------------------------------------------------

    def _arity(self, name):
        if name in self.shapes:
            _, reads, writes = self.shapes[name]
            return len(reads) + len(writes) + self.stamped
        if name.removesuffix(SUFFIX) in self.shapes:
            return 2 * self._arity(name.removesuffix(SUFFIX))
        return {
            builtin.NOTHING: 0,
            builtin.FILLS[16]: 4,
            builtin.SET_IF_IS: 4,
            builtin.SET_SWITCH_IS: 4,
        }.get(name, 3)

    def kernel(self, function, pointers):
        """Return what a launch of `function` does; the arguments are read now, as CUDA does."""
        name = self.functions[function]
        count = self._arity(name)
        places = (ctypes.c_uint64 * max(count, 1)).from_address(pointers) if count else ()
        values = [ctypes.c_uint64.from_address(places[k]).value for k in range(count)]
        return name, lambda: self._run(name, values)

    def _run(self, name, values):
        self.launched.append(name)
        if name in self.shapes:
            if self.stamped:
                *values, place = values
                self._stamp(place)
            return self._evaluate(name, values)
        if name == builtin.NOTHING:
            return None
        if name.removesuffix(SUFFIX) in self.shapes:
            found = [
                (ctypes.c_uint64.from_address(cell).value if cell else 0) + offset
                for cell, offset in zip(values[::2], values[1::2], strict=True)
            ]
            return self._evaluate(name.removesuffix(SUFFIX), found)
        if name in FILL_WIDTHS:
            target, count, *words = values
            width = FILL_WIDTHS[name]
            element = b"".join(word.to_bytes(8, "little") for word in words)[:width]
            assert target % min(width, 8) == 0
            assert self.is_live(target, count * width)
            ctypes.memmove(target, element * count, count * width)
            return None
        handle, selector, branches, *single = values
        if name in (builtin.SET_WHILE, builtin.SET_IF, builtin.SET_IF_IS):
            found = int(ctypes.c_ubyte.from_address(selector).value != 0)
            chosen = 0 if found else 1
        else:
            found = ctypes.c_int.from_address(selector).value
            found = chosen = found if 0 <= found < branches else branches - 1
        self.conditions[handle] = int(chosen == single[0]) if single else found
        return None

    def move(self, pointers, rows):
        moves = Moves.from_address(ctypes.c_uint64.from_address(pointers).value)
        for row in range(rows):
            source, target, size = moves.source[row], moves.target[row], moves.size[row]
            assert self.is_live(source, size)
            assert self.is_live(target, size)
            ctypes.memmove(target, source, size)

    def _stamp(self, address):
        launches = ctypes.c_uint32.from_address(address)
        row = (ctypes.c_uint64 * 2).from_address(address + 8 + 16 * (launches.value % LAUNCHES))
        row[:] = self.clock, self.clock + 500
        self.clock += 700
        launches.value += 1

    def _evaluate(self, name, values):
        computation, reads, writes = self.shapes[name]
        sources = [
            self._view(a, s).copy() for a, s in zip(values[: len(reads)], reads, strict=True)
        ]
        result = self.evaluators[name](computation, sources)
        flat = list(_leaves(result))
        for address, shape, found in zip(values[len(reads) :], writes, flat, strict=True):
            if shape.elements:
                self._view(address, shape)[...] = found

    def _view(self, address, shape):
        if not shape.elements:
            return np.empty(shape.dims, shape.dtype.numpy)
        strides, step = [0] * shape.rank, shape.dtype.numpy.itemsize
        for dim in shape.minor_to_major:
            strides[dim] = step
            step *= shape.dims[dim]
        assert self.is_live(address, shape.size), "a kernel got an address that is not allocated"
        buffer = (ctypes.c_ubyte * shape.size).from_address(address)
        return np.ndarray(shape.dims, shape.dtype.numpy, buffer, 0, strides)


class FakeLibrary:
    """Stands for the driver library as ctypes sees it."""

    def __init__(self, driver: FakeDriver) -> None:
        self.driver = driver

    def cuLaunchKernelEx(self, config, function, parameters, extra):
        if self.driver.functions[function.value] == builtin.MOVE:
            self.driver.move(parameters.value, config._obj.grid_y)
            return 0
        _, run = self.driver.kernel(function.value, parameters.value)
        run()
        return 0

    def cuMemcpyDtoDAsync_v2(self, target, source, size, stream):
        ctypes.memmove(target.value, source.value, size.value)
        return 0

    cuMemcpyDtoHAsync_v2 = cuMemcpyDtoDAsync_v2

    def cuMemcpyHtoDAsync_v2(self, target, source, size, stream):
        self.driver.api.append("cuMemcpyHtoDAsync")
        ctypes.memmove(target.value, source.value, size.value)
        return 0

    def cuMemsetD8Async(self, target, value, count, stream):
        self.driver._fill(target.value, value.value, 1, count.value)
        return 0

    def cuMemsetD16Async(self, target, value, count, stream):
        self.driver._fill(target.value, value.value, 2, count.value)
        return 0

    def cuMemsetD32Async(self, target, value, count, stream):
        self.driver._fill(target.value, value.value, 4, count.value)
        return 0

    def cuGraphLaunch(self, exec_, stream):
        self.driver.api.append("cuGraphLaunch")
        if failures := self.driver.fail.get("cuGraphLaunch"):
            return int(failures.pop(0))
        self.driver.run_exec(exec_.value)
        return 0

    def cuGraphExecKernelNodeSetParams_v2(self, exec_, node, params):
        return int(self.driver.set_params("kernel", exec_.value, node.value, params.value))

    def cuGraphExecMemcpyNodeSetParams(self, exec_, node, params, context):
        return int(self.driver.set_params("memcpy", exec_.value, node.value, params.value))

    def cuGraphExecMemsetNodeSetParams(self, exec_, node, params, context):
        return int(self.driver.set_params("memset", exec_.value, node.value, params.value))

    def cuStreamSynchronize(self, stream):
        return 0

    def cuEventRecord(self, event, stream):
        return 0

    def cuEventQuery(self, event):
        return int(self.driver.cuEventQuery(event)[0])

    def cuCtxRecordEvent(self, context, event):
        return 0

    def cuStreamWaitEvent(self, stream, event, flags):
        self.driver.api.append("cuStreamWaitEvent")
        return 0

    def cuStreamWaitValue32_v2(self, stream, address, value, flags):
        return 0


class FakeProduct:
    """Stands for cuBLASLt's plan of a product of square matrices of f32, row by row."""

    driver: ClassVar[FakeDriver]

    def __init__(self, product, *, precise, workspace):
        self.side = product.m

    def launch(self, lhs, rhs, out, workspace, stream):
        def run():
            count = self.side**2
            for address in (lhs, rhs, out):
                assert self.driver.is_live(address, 4 * count)
            a, b, c = ((ctypes.c_float * count).from_address(x) for x in (lhs, rhs, out))
            a, b, c = (np.frombuffer(x, "f4").reshape(self.side, -1) for x in (a, b, c))
            c[:] = a @ b

        self.driver.enqueue(stream, run, "product")


DRIVERS = FakeDriver, type(real)


@pytest.fixture
def fake(monkeypatch):
    """Return a function that puts a fake driver in place and makes an executable for it."""
    monkeypatch.setenv(cache.VARIABLE, "")  # plans are not to be found where kernels are real

    def use(
        program,
        version=13000,
        seed=0,
        fuse="none",
        arch=90,
        multiprocessors=132,
        library=False,
        **options,
    ):
        found = FakeProduct.driver = FakeDriver(version, seed, arch, multiprocessors)
        for name, module in list(sys.modules.items()):
            if name.startswith(ROOM) and isinstance(vars(module).get("cuda"), DRIVERS):
                monkeypatch.setattr(module, "cuda", found)
        monkeypatch.setattr(driver, "_library", lambda: FakeLibrary(found))
        monkeypatch.setattr(prepared, "write_kernels", writing_no_text)
        monkeypatch.setattr(products, "library", lambda: library or None)
        monkeypatch.setattr(products, "BlasPlan", FakeProduct)
        monkeypatch.setattr(executable, "check_support", lambda _: None)
        monkeypatch.setattr(functions, "compile_units", without_code)
        monkeypatch.setattr(functions, "OWN", {})
        monkeypatch.setattr(stamps, "kernels_of", without_text)
        driver.open_device.cache_clear()
        plan = hlo2graph.plan(program, target="sm_90", fuse=fuse)
        found.load(plan)
        return found, executable.CudaExecutable(plan, **options)

    yield use
    gc.collect()  # what holds device memory frees it while its driver is there
    driver.open_device.cache_clear()


def without_code(units, arch):
    """Return a module for each unit, which the driver does not look into."""
    return [Compiled(b"", cached=False) for _ in units]


def writing_no_text(plan, without, **options):
    yield from without_text(plan, without, **options).items()


def without_text(plan, without=(), *, precise=False, known=None):
    """Return a kernel for every computation, whether or not it has C++: nobody compiles it."""
    found, taken = {}, set()
    for thunk in computing(plan.body):
        if key_of(thunk) not in found:
            name = cpp_name(thunk.name, taken)
            text = f'extern "C" __global__ void __launch_bounds__(1)\n{name}() {{\n}}\n'
            found[key_of(thunk)] = KernelSource(name, text, (1, 1, 1), 1)
    return found


def _leaves(value):
    if isinstance(value, tuple):
        for part in value:
            yield from _leaves(part)
    else:
        yield value
