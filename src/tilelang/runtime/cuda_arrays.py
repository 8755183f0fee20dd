"""Arrays of every framework on NVIDIA GPUs, without copies, and new ones of a framework.

What enters: torch CUDA tensors, anything with DLPack or the CUDA array interface (CuPy, JAX,
Numba), NumPy arrays. What leaves: a `DeviceArray`, an address with shape and strides; a NumPy array
as it is. A framework is looked at only when the program has imported it.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from tilelang.dtypes import DType
from tilelang.errors import TileError, TileTypeError, error
from tilelang.runtime.arrays import Array, adopt, describe_object

_CUDA = 2
"""kDLCUDA of dlpack.h."""
_CODES = {
    **{(0, b): f"int{b}" for b in (8, 16, 32, 64)},
    **{(1, b): f"uint{b}" for b in (8, 16, 32, 64)},
    **{(2, b): f"float{b}" for b in (16, 32, 64)},
    (4, 16): "bfloat16",
    (6, 8): "bool",
    (7, 8): "float8_e3m4",
    (9, 8): "float8_e4m3b11fnuz",
    (10, 8): "float8_e4m3fn",
    (11, 8): "float8_e4m3fnuz",
    (12, 8): "float8_e5m2",
    (13, 8): "float8_e5m2fnuz",
    (14, 8): "float8_e8m0fnu",
}
"""DLDataType's (code, bits) -> dtype."""


@dataclass(frozen=True)
class DeviceArray:
    """Elements on a device: address, shape, strides in bytes, bytes of an element.

    `owner` is what keeps the memory, an array of `framework` (empty for memory of our own).
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int
    device: int
    owner: Any
    framework: str = ""
    writeable: bool = True

    @property
    def size(self) -> int:
        """How many elements."""
        return math.prod(self.shape)

    @property
    def is_row_major(self) -> bool:
        """Whether the elements lie one after the other."""
        expected = row_major(self.shape, self.itemsize)
        pairs = zip(self.shape, self.strides, expected, strict=True)
        return self.size == 0 or all(n == 1 or s == e for n, s, e in pairs)


def row_major(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """The strides in bytes of elements that lie one after the other."""
    out, step = list[int](), itemsize
    for n in reversed(shape):
        out.append(step)
        step *= max(n, 1)
    return tuple(reversed(out))


def adopt_device(x: Any, where: str) -> Array:
    """`x` as a `DeviceArray`, or a NumPy array as it is; `where` names the parameter in messages.

    TileTypeError for what is neither, torch tensors of the host among them.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        return _from_torch(x, where)
    if isinstance(x, np.ndarray):
        return adopt(x, where)
    if hasattr(x, "__dlpack_device__"):
        return _from_dlpack(x, where)
    if hasattr(x, "__cuda_array_interface__"):
        return _from_interface(x, where)
    raise _refused(where, describe_object(x))


def _refused(where: str, got: str, **facts: Any) -> TileError:
    return error(
        "argument",
        f"{where} is not an array this kernel can use",
        cls=TileTypeError,
        expected="a torch CUDA tensor, a NumPy array, or an array on a GPU with DLPack or the CUDA"
        " array interface",
        got=got,
        **facts,
    )


def _made(storage: DeviceArray, dtype: DType, framework: str) -> Array:
    return Array(cast("Any", storage), dtype, framework)


def _from_torch(x: Any, where: str) -> Array:
    if not x.is_cuda:
        way_out = "this kernel runs on a GPU: pass `tensor.cuda()`"
        raise _refused(where, f"a torch tensor on {x.device}", help=way_out)
    if str(x.layout) != "torch.strided":
        way_out = "pass `tensor.to_dense()`"
        raise _refused(where, f"a torch tensor of layout {x.layout}", help=way_out)
    if x.is_conj() or x.is_neg():
        raise _refused(where, "a lazily negated tensor", help="pass `tensor.resolve_neg()`")
    try:
        dtype = DType(x.dtype)
    except (TypeError, ValueError):
        raise _refused(where, f"a torch tensor of dtype {x.dtype}") from None
    size = x.element_size()
    strides = tuple(s * size for s in x.stride())
    return _made(
        DeviceArray(x.data_ptr(), tuple(x.shape), strides, size, x.get_device(), x, "torch"),
        dtype,
        "torch",
    )


class _Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("kind", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    ]


def framework_of(x: Any) -> str:
    """The package that an array is from."""
    name = type(x).__module__.partition(".")[0]
    return "jax" if name == "jaxlib" else name


def _from_dlpack(x: Any, where: str) -> Array:
    kind, device = x.__dlpack_device__()
    if int(kind) != _CUDA:
        raise _refused(where, f"a {describe_object(x)} that is not in the memory of a CUDA device")
    framework = framework_of(x)
    if framework == "jax":
        x.block_until_ready()
    try:
        capsule = x.__dlpack__(stream=current_stream(framework, int(device)) or 1)
    except (BufferError, RuntimeError, TypeError, ValueError) as exc:
        got = f"a {describe_object(x)} that DLPack cannot share: {exc}"
        raise _refused(where, got) from None
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    found = ctypes.cast(pointer(capsule, b"dltensor"), ctypes.POINTER(_Tensor)).contents
    name = _CODES.get((found.code, found.bits))
    if name is None or found.lanes != 1:
        raise _refused(where, f"elements of DLPack's type ({found.code}, {found.bits} bits)")
    dtype = DType(name)
    size = dtype.numpy.itemsize
    shape = tuple(found.shape[k] for k in range(found.rank))
    given = bool(found.strides)
    strides = (
        tuple(found.strides[k] * size for k in range(found.rank))
        if given
        else row_major(shape, size)
    )
    address = (found.data or 0) + found.offset
    storage = DeviceArray(address, shape, strides, size, int(device), (x, capsule), framework)
    return _made(storage, dtype, framework)


def _from_interface(x: Any, where: str) -> Array:
    facts = x.__cuda_array_interface__
    try:
        dtype = DType(np.dtype(facts["typestr"]))
    except (TypeError, ValueError):
        raise _refused(where, f"elements of type {facts['typestr']}") from None
    address, read_only = facts["data"]
    shape, size = tuple(facts["shape"]), dtype.numpy.itemsize
    strides = facts.get("strides") or row_major(shape, size)
    device = _device_of(address or 0)
    framework = framework_of(x)
    at = (address or 0, shape, tuple(strides), size, device)
    return _made(DeviceArray(*at, x, framework, writeable=not read_only), dtype, framework)


def _device_of(address: int) -> int:
    from tilelang.targets.cuda.driver import driver  # loads the driver, so only where there is one

    return driver().device_of(address) if address else driver().current()


# Streams and new arrays --------------------------------------------------------------------------


def current_stream(framework: str, device: int) -> int:
    """The stream into which the caller's framework puts its work on a device; 0 is CUDA's own."""
    if framework == "torch":
        return int(sys.modules["torch"]._C._cuda_getCurrentRawStream(device))
    if framework == "cupy":
        cupy = sys.modules["cupy"]
        with cupy.cuda.Device(device):
            return int(cupy.cuda.get_current_stream().ptr)
    return 0


def allocate_device(shape: Sequence[int], dtype: DType, framework: str, device: int) -> Any:
    """A new array of `framework` on a device, with undefined contents."""
    module = sys.modules.get(framework)
    if module is not None and framework == "torch":
        return module.empty(tuple(shape), dtype=dtype.as_torch(), device=f"cuda:{device}")
    if module is not None and framework == "cupy":
        with module.cuda.Device(device):
            return module.empty(tuple(shape), dtype.numpy)
    if module is not None and framework == "jax":
        made = module.numpy.zeros(tuple(shape), dtype.numpy, device=module.devices("cuda")[device])
        return made.block_until_ready()
    raise error(
        "argument",
        f"an output cannot be made as an array of {framework}",
        cls=TileTypeError,
        expected="torch, CuPy, JAX or NumPy",
        got=framework,
        help="pass the output yourself",
    )
