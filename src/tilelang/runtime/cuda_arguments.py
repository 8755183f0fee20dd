"""Arguments of a launch on a GPU.

What enters and leaves is as in `arguments`; the storage of a tensor is a `DeviceArray`. A NumPy
array is copied to the device before the launch and, where the kernel writes it, back after it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from tilelang.dtypes import DType
from tilelang.errors import TileError, TileTypeError
from tilelang.ir.tile import Param
from tilelang.runtime.arguments import Bound, Given, Signature, declared, is_packed
from tilelang.runtime.arrays import (
    Array,
    allocate,
    pack_rows,
    packed_shape,
    packed_type,
    unpack_rows,
)
from tilelang.runtime.cuda_arrays import (
    DeviceArray,
    adopt_device,
    allocate_device,
    current_stream,
    row_major,
)
from tilelang.targets.cuda.driver import driver

ALIGN = 16
"""Bytes to which kernels take the first element of a tensor to be aligned."""


@dataclass(frozen=True)
class Packed:
    """Elements of fewer than 8 bits in bytes: their type, shape in elements, and framework."""

    dtype: DType
    shape: tuple[int, ...]
    framework: str


class CudaSignature(Signature):
    """The parameters of a function, prepared for arguments on a GPU."""

    def _adopt(self, value: Any, where: str) -> Array:
        return adopt_device(value, where)

    def _framework(self, arrays: Sequence[Given]) -> str:
        if arrays:
            return super()._framework(arrays)
        torch = sys.modules.get("torch")
        return "torch" if torch is not None and torch.cuda.is_available() else "numpy"

    def _storage(self, g: Given, bound: Bound) -> Any:
        p, storage = g.param, cast("Any", g.array.storage)
        written = p.name in self._written
        if isinstance(storage, np.ndarray):
            return self._copied_in(g, cast("Any", storage), bound, written=written)
        if written and not storage.writeable:
            raise self._bad(
                p,
                "the kernel writes to a read-only array",
                expected="a writeable array",
                got="a read-only array",
            )
        self._same_device(p, storage, bound)
        if is_packed(declared(p)[0], g.array):
            if not storage.is_row_major:
                raise self._bad(p, "packed elements with gaps", expected="row-major", got="gaps")
            packed = Packed(declared(p)[0], g.shape, g.array.framework)
            return self._unpacked_on_host(packed, storage, bound, written=written)
        dense = p.buffer is None or p.buffer.strides is not None or storage.is_row_major
        if dense and storage.address % ALIGN == 0:
            return storage
        return self._straightened(p, g.array, bound, written=written)

    def _same_device(self, p: Param, storage: DeviceArray, bound: Bound) -> None:
        known = [v for v in bound.values.values() if isinstance(v, DeviceArray)]
        if known and known[0].device != storage.device:
            raise self._bad(
                p,
                "arrays on different devices",
                expected=f"device {known[0].device}, as the arrays before it",
                got=f"device {storage.device}",
            )

    def _straightened(self, p: Param, array: Array, bound: Bound, *, written: bool) -> DeviceArray:
        """A copy without gaps and aligned; what is written is copied back after the launch."""
        storage = cast("DeviceArray", array.storage)
        if array.framework != "torch" or (p.buffer is not None and p.buffer.strides is not None):
            gaps = "with gaps between its elements" if not storage.is_row_major else "not aligned"
            raise self._bad(
                p,
                f"an array that is {gaps}",
                expected=f"row-major elements, the first aligned to {ALIGN} bytes",
                got=f"strides {storage.strides} in bytes, address 0x{storage.address:x}",
                cls=TileTypeError,
                way_out="pass a copy without gaps",
            )
        source = storage.owner
        copy = source.contiguous() if storage.address % ALIGN == 0 else source.clone().contiguous()
        if written:
            bound.finish.append(lambda: source.copy_(copy))
        strides = row_major(storage.shape, storage.itemsize)
        return DeviceArray(
            copy.data_ptr(), storage.shape, strides, storage.itemsize, storage.device, copy, "torch"
        )

    # NumPy ---------------------------------------------------------------------------------------

    def _copied_in(self, g: Given, array: Any, bound: Bound, *, written: bool) -> DeviceArray:
        """A copy on the device of an array of the host, copied back where it is written."""
        # All that is asked of an array of the host, and its storage in the kernel's own type.
        host = super()._storage(
            Given(g.param, Array(array, g.array.dtype, "numpy"), g.shape), bound
        )
        plain = np.ascontiguousarray(host)
        device = _Temporary(plain.nbytes, self._device(bound))
        device.fill_from(plain)
        if written:

            def back() -> None:
                device.copy_to(plain, self._stream(bound, device))
                if plain is not host:
                    np.copyto(host, plain)

            bound.finish.insert(0, back)
        return device.array(plain.shape, plain.itemsize)

    def _unpacked_on_host(
        self, p: Packed, storage: DeviceArray, bound: Bound, *, written: bool
    ) -> DeviceArray:
        """One element to a byte, made on the host of packed ones; packed again after the launch."""
        raw = np.empty(storage.shape, np.uint8)
        stream = current_stream(p.framework, storage.device)
        api = driver()
        api.copy_out(raw.ctypes.data, storage.address, raw.nbytes, stream)
        plain = unpack_rows(raw, p.shape, p.dtype)
        device = _Temporary(plain.nbytes, storage.device)
        device.fill_from(plain)
        if written:

            def back() -> None:
                device.copy_to(plain, stream)
                packed = np.ascontiguousarray(pack_rows(plain, p.dtype))
                api.copy_in(storage.address, packed.ctypes.data, packed.nbytes, stream)
                api.synchronize(stream)

            bound.finish.insert(0, back)
        return device.array(plain.shape, plain.itemsize)

    def _device(self, bound: Bound) -> int:
        known = [v.device for v in bound.values.values() if isinstance(v, DeviceArray)]
        return known[0] if known else driver().current()

    def _stream(self, bound: Bound, memory: _Temporary) -> int:
        """Where the launch is."""
        return current_stream(bound.framework, memory.device)

    # Outputs -------------------------------------------------------------------------------------

    def _output(self, dtype: DType, extents: Sequence[int], bound: Bound) -> tuple[Any, Any]:
        lanes = [dtype.lanes] if dtype.lanes > 1 else []
        device = self._device(bound)
        if bound.framework == "numpy":
            return self._host_output(dtype.base, [*extents, *lanes], bound)
        if dtype.bits < 8 and extents:
            kind = packed_type(dtype, bound.framework)
            width = packed_shape(extents, dtype)
            result = allocate_device(width, kind, bound.framework, device)
            storage = cast("DeviceArray", adopt_device(result, "an output").storage)
            packed = Packed(dtype, tuple(extents), bound.framework)
            return result, self._unpacked_on_host(packed, storage, bound, written=True)
        result = allocate_device([*extents, *lanes], dtype.base, bound.framework, device)
        return result, adopt_device(result, "an output").storage

    def _host_output(self, dtype: DType, shape: Sequence[int], bound: Bound) -> tuple[Any, Any]:
        result, plain = allocate(shape, dtype, "numpy")
        device = _Temporary(plain.nbytes, self._device(bound))
        bound.finish.insert(0, lambda: device.copy_to(plain, self._stream(bound, device)))
        return result, device.array(plain.shape, plain.itemsize)


class _Temporary:
    """Memory of a device for one call, in the order of CUDA's own stream."""

    def __init__(self, size: int, device: int) -> None:
        self.api = driver()
        self.device = device
        self.size = size
        self.api.use(device)
        self.address = self.api.allocate(size, 0)

    def fill_from(self, array: Any) -> None:
        """Copy an array of the host here; it is here when this returns, for every stream."""
        self.api.copy_in(self.address, array.ctypes.data, self.size, 0)
        self.api.synchronize(0)

    def copy_to(self, array: Any, stream: int) -> None:
        """Copy what is here after all work of `stream` to an array of the host."""
        self.api.copy_out(array.ctypes.data, self.address, self.size, stream)

    def array(self, shape: tuple[int, ...], itemsize: int) -> DeviceArray:
        """This memory as elements; it goes back when nothing holds them."""
        strides = row_major(shape, itemsize)
        return DeviceArray(self.address, shape, strides, itemsize, self.device, self)

    def __del__(self) -> None:
        if getattr(self, "address", 0):
            with contextlib.suppress(
                TileError
            ):  # after an error of the device nothing can be freed
                self.api.free(self.address, 0)
