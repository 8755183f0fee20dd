"""What a launch hands to the driver, without one: arguments in memory, grids, plans."""

import ctypes
import struct

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.dtypes import DType
from tilelang.errors import TileError
from tilelang.runtime import cuda, cuda_arguments, cuda_arrays, cuda_plan
from tilelang.targets.cuda.driver import Device, LaunchConfig, attributes
from tilelang.targets.cuda.nvrtc import is_installed
from tilelang.targets.cuda.program import KernelFacts

needs_nvrtc = pytest.mark.skipif(not is_installed(), reason="NVRTC is not installed")


class FakeDriver:
    """Notes launches: the grid, the stream, and the words at the kernel's parameters."""

    def __init__(self):
        self.launches = []
        self.words = 0
        function = ctypes.CFUNCTYPE(ctypes.c_int, *(ctypes.c_void_p,) * 4)
        self.launch_kernel = function(self._launch)

    def _launch(self, config, handle, params, extra):
        c = LaunchConfig.from_address(config)
        places = (ctypes.c_void_p * self.words).from_address(params)
        words = [ctypes.c_uint64.from_address(p).value for p in places]
        self.launches.append(((c.grid_x, c.grid_y, c.grid_z), c.block_x, c.stream or 0, words))
        return 0

    def current(self):
        return -1

    def use(self, index):
        pass

    def load(self, code):
        return 1

    def function(self, module, symbol, *, shared, cluster):
        return 2

    def device(self, index):
        return Device(index, "none", 9, 0, 132)

    def is_capturing(self, stream):
        return False


def prepared(*params):
    facts = KernelFacts("k", "k", params, (32,), (), 0)
    return cuda.Prepared(facts, 7)


def at(kernel, k, form):
    place = kernel.pointers[k]
    return struct.unpack(form, ctypes.string_at(place, struct.calcsize(form)))[0]


def test_arguments_lie_where_their_types_want_them():
    kinds = [None, "bool", "float16", "int64", "map", "float32", "int8", "float64", "uint16"]
    params = [DType(k) if k not in (None, "map") else k for k in kinds]
    kernel = prepared(*params)
    tensor_map = bytes(range(128))
    values = [1 << 60, True, 0x3C00, -5, tensor_map, 1.5, -3, 2.25, 65535]
    kernel.packing.pack_into(kernel.block, 0, *values)
    assert [at(kernel, k, f) for k, f in enumerate(["Q", "?", "H", "q"])] == values[:4]
    assert ctypes.string_at(kernel.pointers[4], 128) == tensor_map
    assert [at(kernel, k + 5, f) for k, f in enumerate(["f", "b", "d", "H"])] == values[5:]
    sizes = [8, 1, 2, 8, 64, 4, 1, 8, 2]
    assert all(kernel.pointers[k] % size == 0 for k, size in enumerate(sizes))


def test_attributes_of_a_launch():
    assert attributes() is None
    made = attributes(cluster=(2,), cooperative=True, overlaps=True)
    assert made is not None
    assert [(a.id, list(a.value[:3])) for a in made] == [
        (2, [1, 0, 0]),
        (4, [2, 1, 1]),
        (6, [1, 0, 0]),
    ]


def scale(columns=40):
    n = T.dynamic("n")

    @T.prim_func
    def main(
        A: T.Tensor((n, columns), "float32"), x: T.float32, B: T.Tensor((n, columns), "float32")
    ):
        with T.Kernel(T.ceildiv(n, 8), threads=64) as bx:
            for i, j in T.Parallel(8, columns):
                B[bx * 8 + i, j] = A[bx * 8 + i, j] * x

    return main


@pytest.fixture
def fake(monkeypatch, torch):
    """Host tensors of torch stand for those of a device; kernels are launched by nobody."""
    driver = FakeDriver()
    for module in (cuda, cuda_arguments, cuda_plan):
        monkeypatch.setattr(module, "driver", lambda: driver)
    plain = cuda_arrays.DeviceArray

    def adopted(x, where):
        size = x.element_size()
        strides = tuple(s * size for s in x.stride())
        made = plain(x.data_ptr(), tuple(x.shape), strides, size, x.get_device(), x, "torch")
        return cuda_arrays.Array(made, DType(x.dtype), "torch")

    monkeypatch.setattr(cuda_arguments, "adopt_device", adopted)
    monkeypatch.setattr(cuda, "current_stream", lambda *_: 9)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 9, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: -1, raising=False)
    return driver


@needs_nvrtc
def test_a_call_by_its_plan_is_that_of_a_call_bound_in_full(fake, torch):
    kernel = tilelang.compile(scale(), target="cuda:sm_90a")
    fake.words = len(kernel._program.built.kernels[0].params)
    a, b = (torch.zeros(20, 40) for _ in range(2))
    for x in (1.5, 2.5, 3.5):
        kernel(a, x, b)
    first, *later = fake.launches
    assert first[:3] == ((3, 1, 1), 64, 9)
    assert kernel._plans.attempt != kernel._plans.other
    for launch, x in zip(later, (2.5, 3.5), strict=True):
        assert launch[:3] == first[:3]
        changed = [k for k, (u, v) in enumerate(zip(launch[3], first[3], strict=True)) if u != v]
        words = [struct.unpack("<ff", struct.pack("<Q", launch[3][k]))[0] for k in changed]
        assert words == [x]


@needs_nvrtc
def test_arguments_that_look_otherwise_have_a_plan_of_their_own(fake, torch):
    kernel = tilelang.compile(scale(), target="cuda:sm_90a")
    fake.words = len(kernel._program.built.kernels[0].params)
    grids = []
    for n in (8, 80, 8, 80, 0, 8):
        fake.launches.clear()
        kernel(torch.zeros(n, 40), 1.0, torch.zeros(n, 40))
        grids.append([launch[0] for launch in fake.launches])
    assert grids == [[(1, 1, 1)], [(10, 1, 1)], [(1, 1, 1)], [(10, 1, 1)], [], [(1, 1, 1)]]
    with pytest.raises(TileError, match="shape mismatch"):
        kernel(torch.zeros(8, 40), 1.0, torch.zeros(8, 39))


def choosing():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), times: T.int32):
        if times == 0:
            with T.Kernel(1, threads=64) as bx:
                for i in T.Parallel(64):
                    A[i] = 0.0
        else:
            with T.Kernel(2, threads=32) as bx:
                for i in T.Parallel(32):
                    A[bx * 32 + i] = A[bx * 32 + i] * times

    return main


@needs_nvrtc
def test_a_launch_that_depends_on_a_number_is_decided_in_each_call(fake, torch):
    kernel = tilelang.compile(choosing(), target="cuda:sm_90a")
    fake.words = 1
    a = torch.zeros(64)
    grids = []
    for times in (0, 0, 5, 5, 0):
        fake.launches.clear()
        kernel(a, times)
        grids.append([launch[0][0] for launch in fake.launches])
    assert grids == [[1], [1], [2], [2], [1]]


@needs_nvrtc
def test_without_a_driver_a_kernel_is_compiled_and_its_call_says_why_not(monkeypatch):
    monkeypatch.setattr("tilelang.targets.cuda.driver._NAMES", ("libno-such-driver.so",))
    for module in (cuda, cuda_arguments):
        module.driver.cache_clear()
    kernel = tilelang.compile(scale(24), target="cuda:sm_90a")
    a = np.zeros((8, 24), np.float32)
    with pytest.raises(TileError, match=r"no CUDA driver on this machine(.|\n)*emulate:sm_90a"):
        kernel(a, 1.0, a)
    cuda.driver.cache_clear()
