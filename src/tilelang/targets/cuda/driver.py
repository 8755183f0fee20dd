"""The CUDA driver: devices, modules, launches, memory, tensor maps.

What enters: cubins, and numbers (addresses, extents, streams as integers). What leaves: handles as
integers, or an error that names the kernel. The library of the driver is loaded at first use; its
functions are called as they are, the launch without giving up Python's lock, since that would cost
more than the call does. Structures and codes are those of cuda.h of CUDA 13.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilelang.dtypes import DType
from tilelang.errors import TileError, TileRuntimeError, error
from tilelang.targets.cuda.host import MapFacts

_NAMES = ("libcuda.so.1", "libcuda.so", "nvcuda.dll")

# CUfunction_attribute, CUlaunchAttributeID, CUdevice_attribute
_MAX_DYNAMIC_SHARED, _NON_PORTABLE_CLUSTER = 8, 14
_DEVICE_ORDINAL = 9
_COOPERATIVE, _CLUSTER, _PROGRAMMATIC = 2, 4, 6
_MAJOR, _MINOR, _SM_COUNT, _SHARED_OPTIN = 75, 76, 16, 97
NO_CONTEXT = 201
"""CUDA_ERROR_INVALID_CONTEXT."""
PORTABLE_CLUSTER = 8
STATIC_SHARED = 48 * 1024
"""Bytes of shared memory that a kernel may have without asking for more."""


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [
        ("grid_x", ctypes.c_uint),
        ("grid_y", ctypes.c_uint),
        ("grid_z", ctypes.c_uint),
        ("block_x", ctypes.c_uint),
        ("block_y", ctypes.c_uint),
        ("block_z", ctypes.c_uint),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attrs", ctypes.c_void_p),
        ("count", ctypes.c_uint),
    ]


class LaunchAttribute(ctypes.Structure):
    """CUlaunchAttribute; the value is 64 bytes, of which the first three words are used here."""

    _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_uint * 16)]


@dataclass(frozen=True)
class Device:
    """A device: its number, name, compute capability and number of SMs."""

    index: int
    name: str
    major: int
    minor: int
    cores: int

    @property
    def arch(self) -> str:
        """The architecture that a cubin for it is made for, as in sm_90a."""
        number = 10 * self.major + self.minor
        return f"sm_{number}{'a' if number >= 90 else ''}"


class Driver:
    """The driver's library and the contexts of devices, which are their primary ones."""

    def __init__(self) -> None:
        path = _found()
        self.library = ctypes.CDLL(path)
        self.quick = ctypes.PyDLL(path)
        self.launch_kernel = self.quick.cuLaunchKernelEx
        self.launch_kernel.argtypes = (ctypes.c_void_p,) * 4
        self._contexts: dict[int, int] = {}
        self._lock = threading.Lock()
        self.check(self.library.cuInit(0), "cuInit")

    def check(self, code: int, what: str) -> None:
        """Raise the error of a call that failed."""
        if code:
            raise self.failed(code, what)

    def failed(self, code: int, what: str) -> TileError:
        """The error of a driver's code."""
        name, text = ctypes.c_char_p(), ctypes.c_char_p()
        self.library.cuGetErrorName(code, ctypes.byref(name))
        self.library.cuGetErrorString(code, ctypes.byref(text))
        said = f"{(name.value or b'').decode()}: {(text.value or b'').decode()}"
        late = (
            "it may be of an earlier launch, and this process cannot use the device any more;"
            " target='emulate' checks every access"
        )
        return error(
            "target",
            f"{what} failed: {said}",
            cls=TileRuntimeError,
            got=f"error {code} of the CUDA driver",
            help=late if code in _LATE else "",
        )

    def _number(self, name: str, *args: Any) -> int:
        found = ctypes.c_int()
        self.check(getattr(self.library, name)(ctypes.byref(found), *args), name)
        return found.value

    # Devices -------------------------------------------------------------------------------------

    def count(self) -> int:
        """The number of devices."""
        return self._number("cuDeviceGetCount")

    @functools.cache  # noqa: B019 - there is one driver
    def device(self, index: int) -> Device:
        """The facts of a device."""
        handle = self._number("cuDeviceGet", index)
        name = ctypes.create_string_buffer(256)
        self.check(self.library.cuDeviceGetName(name, 256, handle), "cuDeviceGetName")
        numbers = [
            self._number("cuDeviceGetAttribute", attribute, handle)
            for attribute in (_MAJOR, _MINOR, _SM_COUNT)
        ]
        return Device(index, name.value.decode(), *numbers)

    def current(self) -> int:
        """The device of the calling thread's context; the first device where it has none."""
        context, found = ctypes.c_void_p(), ctypes.c_int()
        self.check(self.quick.cuCtxGetCurrent(ctypes.byref(context)), "cuCtxGetCurrent")
        if context.value is None:
            self.use(0)
            return 0
        self.check(self.quick.cuCtxGetDevice(ctypes.byref(found)), "cuCtxGetDevice")
        return found.value

    def use(self, index: int) -> None:
        """Make the primary context of a device current in the calling thread."""
        context = self._contexts.get(index)
        if context is None:
            handle, made = self._number("cuDeviceGet", index), ctypes.c_void_p()
            code = self.library.cuDevicePrimaryCtxRetain(ctypes.byref(made), handle)
            self.check(code, "cuDevicePrimaryCtxRetain")
            context = self._contexts[index] = made.value or 0
        self.check(self.quick.cuCtxSetCurrent(ctypes.c_void_p(context)), "cuCtxSetCurrent")

    def device_of(self, address: int) -> int:
        """The device on which memory is."""
        found = ctypes.c_int()
        code = self.quick.cuPointerGetAttribute(
            ctypes.byref(found), _DEVICE_ORDINAL, ctypes.c_uint64(address)
        )
        self.check(code, f"finding the device of 0x{address:x}")
        return found.value

    # Modules -------------------------------------------------------------------------------------

    def load(self, code: bytes) -> int:
        """Load a cubin into the current context."""
        module = ctypes.c_void_p()
        self.check(self.library.cuModuleLoadData(ctypes.byref(module), code), "loading a cubin")
        return module.value or 0

    def function(self, module: int, symbol: str, *, shared: int, cluster: int) -> int:
        """A kernel of a module, ready for this much dynamic shared memory and cluster size."""
        found = ctypes.c_void_p()
        code = self.library.cuModuleGetFunction(
            ctypes.byref(found), ctypes.c_void_p(module), symbol.encode()
        )
        self.check(code, f"finding the kernel {symbol}")
        if shared > STATIC_SHARED:
            what = f"{shared} bytes of shared memory for the kernel {symbol}"
            self.check(self.library.cuFuncSetAttribute(found, _MAX_DYNAMIC_SHARED, shared), what)
        if cluster > PORTABLE_CLUSTER:
            what = f"a cluster of {cluster} blocks for the kernel {symbol}"
            self.check(self.library.cuFuncSetAttribute(found, _NON_PORTABLE_CLUSTER, 1), what)
        return found.value or 0

    # Memory --------------------------------------------------------------------------------------

    def allocate(self, size: int, stream: int) -> int:
        """Memory of the current device, in the order of a stream; at least one byte."""
        found = ctypes.c_uint64()
        code = self.library.cuMemAllocAsync(
            ctypes.byref(found), ctypes.c_size_t(max(size, 1)), ctypes.c_void_p(stream)
        )
        self.check(code, f"allocating {size} bytes")
        return found.value

    def free(self, address: int, stream: int) -> None:
        """Give memory back, in the order of a stream."""
        code = self.library.cuMemFreeAsync(ctypes.c_uint64(address), ctypes.c_void_p(stream))
        self.check(code, "freeing memory")

    def fill(self, address: int, value: int, size: int, stream: int) -> None:
        """Set bytes, in the order of a stream."""
        if size:
            code = self.library.cuMemsetD8Async(
                ctypes.c_uint64(address), value, ctypes.c_size_t(size), ctypes.c_void_p(stream)
            )
            self.check(code, "filling memory")

    def copy_in(self, address: int, host: int, size: int, stream: int) -> None:
        """Bytes of the host to the device."""
        if size:
            code = self.library.cuMemcpyHtoDAsync_v2(
                ctypes.c_uint64(address), ctypes.c_void_p(host), ctypes.c_size_t(size),
                ctypes.c_void_p(stream),
            )  # fmt: skip
            self.check(code, "copying to the device")

    def copy_out(self, host: int, address: int, size: int, stream: int) -> None:
        """Bytes of the device to the host; they are there when this returns."""
        if size:
            code = self.library.cuMemcpyDtoHAsync_v2(
                ctypes.c_void_p(host), ctypes.c_uint64(address), ctypes.c_size_t(size),
                ctypes.c_void_p(stream),
            )  # fmt: skip
            self.check(code, "copying from the device")
            self.synchronize(stream)

    def pinned(self, size: int) -> int:
        """Zeroed memory of the host that every device may write to, for the life of the process."""
        found = ctypes.c_void_p()
        portable_mapped = 3
        code = self.library.cuMemHostAlloc(
            ctypes.byref(found), ctypes.c_size_t(size), portable_mapped
        )
        self.check(code, "allocating memory of the host")
        address = found.value or 0
        ctypes.memset(address, 0, size)
        return address

    # Streams -------------------------------------------------------------------------------------

    def synchronize(self, stream: int, what: str = "a launch") -> None:
        """Wait for all work of a stream."""
        self.check(self.library.cuStreamSynchronize(ctypes.c_void_p(stream)), what)

    def is_capturing(self, stream: int) -> bool:
        """Whether work given to a stream is recorded into a graph instead of run."""
        found = ctypes.c_int()
        code = self.quick.cuStreamIsCapturing(ctypes.c_void_p(stream), ctypes.byref(found))
        return not code and found.value != 0


_LATE = frozenset({700, 702, 710, 714, 715, 716, 717, 718, 719})
"""Errors of a kernel that ran: they are found at a later call, and they stay."""


def _found() -> str:
    for name in _NAMES:
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return name
    raise error(
        "target",
        "there is no CUDA driver on this machine",
        expected=f"the library {_NAMES[0]}, which comes with NVIDIA's driver",
        got="none",
        help="target='cpu' or 'emulate:sm_90a' runs the kernel without a GPU",
    )


@functools.cache
def driver() -> Driver:
    """The driver; raises where there is none or it finds no device."""
    return Driver()


def why_unusable() -> str:
    """Why no device can be used; empty if one can."""
    try:
        return "" if driver().count() else "the CUDA driver finds no device"
    except TileError as e:
        return e.diagnostics[0].message


# Launches ----------------------------------------------------------------------------------------


def attributes(
    *, cluster: Sequence[int] = (), cooperative: bool = False, overlaps: bool = False
) -> ctypes.Array[LaunchAttribute] | None:
    """The attributes of a launch; None for a plain one."""
    wanted: list[tuple[int, tuple[int, ...]]] = []
    if cooperative:
        wanted.append((_COOPERATIVE, (1,)))
    if cluster:
        wanted.append((_CLUSTER, (*cluster, 1, 1)[:3]))
    if overlaps:
        wanted.append((_PROGRAMMATIC, (1,)))
    if not wanted:
        return None
    made = (LaunchAttribute * len(wanted))()
    for slot, (number, words) in zip(made, wanted, strict=True):
        slot.id = number
        for k, word in enumerate(words):
            slot.value[k] = word
    return made


# Tensor maps -------------------------------------------------------------------------------------

_ELEMENTS = {
    "float16": 6,
    "float32": 7,
    "float64": 8,
    "bfloat16": 9,
    "tfloat32": 11,
    "int32": 3,
    "int64": 5,
    "uint64": 4,
}
_BY_BITS = {8: 0, 16: 1, 32: 2, 64: 4}
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
_PROMOTIONS = {0: 0, 64: 1, 128: 2, 256: 3}


def encode_tensor_map(
    m: MapFacts, address: int, dims: Sequence[int], strides: Sequence[int]
) -> bytes:
    """The 128 bytes of a CUtensorMap; axes are innermost first, `strides` in bytes.

    Raises an error that names the map where the driver refuses it.
    """
    rank = len(dims)
    made = (ctypes.c_byte * 192)()
    start = (ctypes.addressof(made) + 63) & ~63  # the object is aligned to 64 bytes
    bits = 8 * DType(m.dtype).numpy.itemsize
    code = driver().library.cuTensorMapEncodeTiled(
        ctypes.c_void_p(start),
        _ELEMENTS.get(m.dtype, _BY_BITS[bits]),
        rank,
        ctypes.c_void_p(address),
        (ctypes.c_uint64 * rank)(*dims),
        (ctypes.c_uint64 * max(1, rank - 1))(*strides),
        (ctypes.c_uint32 * rank)(*m.box),
        (ctypes.c_uint32 * rank)(*([1] * rank)),
        0,
        _SWIZZLES[m.swizzle],
        _PROMOTIONS[m.l2_promotion],
        int(m.nan_fill),
    )
    if code:
        raise error(
            "argument",
            f"the tensor {m.array} cannot be copied by the Tensor Memory Accelerator",
            cls=TileRuntimeError,
            expected="a base and strides that are multiples of 16 bytes, extents above 0",
            got=f"address 0x{address:x}, extents {tuple(dims)}, strides {tuple(strides)} in bytes",
        )
    return ctypes.string_at(start, 128)
