"""Addresses of buffers, and buffers over addresses.

What enters: arrays of the program, and integers that stand for places in the memory of this
process. What leaves: addresses, and arrays over the memory at an address, or an error that says
that nothing readable lies there.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
from typing import Any

import numpy as np

from tilelang.emulator import access as places
from tilelang.emulator import scalars
from tilelang.emulator.storage import Access, Array, Index
from tilelang.emulator.unit import Unit
from tilelang.emulator.values import Storage, Val, tuple_text
from tilelang.errors import TileError, error
from tilelang.ir.expr import AddressOf
from tilelang.ir.special import MakeTensor

# -- text ------------------------------------------------------------------------------------------


def address_of(u: Unit, e: AddressOf) -> Val:
    """The text of the address of an element."""
    s = u.storage(e.buffer)
    if e.buffer.dtype.is_subbyte or s.scalar:
        what = "a variable" if s.scalar else f"an element of {e.buffer.dtype}"
        raise error(
            "dtype",
            f"the address of {what} ({e.buffer.name})",
            e.loc or u.w.loc,
            expected="a buffer whose elements are whole bytes",
        )
    p = places.place(u, s, e.indices)
    name = u.constant("address", address, "fn")
    code = f"{name}({s.name}, {places.index_text(u, p)})"
    return scalars.from_numpy(code, e.dtype, Val("", e.dtype, p.axes))


def make_tensor(u: Unit, stmt: MakeTensor) -> None:
    """A buffer over the memory at an address."""
    buffer = stmt.buffer
    if buffer.dtype.is_subbyte:
        raise error(
            "dtype",
            f"a tensor of {buffer.dtype} over an address",
            stmt.loc,
            expected="elements of whole bytes",
            help="make a tensor of uint8 and take the bits apart",
        )
    strides = buffer.strides or ()
    u.begin(stmt.address, *buffer.shape, *strides)
    at = u.expr(stmt.address)
    if at.axes:
        u.refuse_threads("the address of T.make_tensor differs from thread to thread")
    shape = [u.expr(n).code for n in buffer.shape]
    steps = "None" if buffer.strides is None else tuple_text(u.expr(n).code for n in strides)
    fn, name = u.constant("tensor_at", tensor_at, "fn"), u.w.name(buffer.name)
    u.w.line(f"{name} = {fn}({at.code}, {tuple_text(shape)}, {steps}, {u.access_name(buffer)})")
    u.stores[buffer.name] = Storage(name, buffer, u.access(buffer))
    if u.checks is not None:
        u.checks.born(u, u.stores[buffer.name], written=True)


# -- meaning ---------------------------------------------------------------------------------------


def address(array: Array, index: tuple[Index, ...]) -> Any:
    """The address of the element at an index, for each lane."""
    offset: Any = sum(
        (np.asarray(i, np.int64) * step for i, step in zip(index, array.strides, strict=False)),
        np.int64(0),
    )
    return np.uint64(array.ctypes.data) + np.asarray(offset).astype(np.uint64)


def tensor_at(
    start: int, shape: tuple[int, ...], strides: tuple[int, ...] | None, access: Access
) -> Array:
    """An array over the memory from `start` on; strides are in elements."""
    dtype = access.dtype
    lanes = (dtype.lanes,) if dtype.is_vector else ()
    if strides is None:
        strides = tuple(math.prod(shape[d + 1 :]) for d in range(len(shape)))
    item, full = dtype.numpy.itemsize, (*shape, *lanes)
    if 0 in full:
        return np.empty(full, dtype.numpy)
    steps = [step * dtype.bytes for step in strides] + [item] * len(lanes)
    reach = [step * (n - 1) for step, n in zip(steps, full, strict=True)]
    first, last = sum(min(r, 0) for r in reach), sum(max(r, 0) for r in reach)
    size = last - first + item
    if start <= 0 or not readable(start + first, size):
        raise _nowhere(start, size, access)
    memory = (ctypes.c_char * size).from_address(start + first)
    return np.ndarray(full, dtype.numpy, memoryview(memory), -first, steps)


def _nowhere(start: int, size: int, access: Access) -> TileError:
    return error(
        "argument",
        f"the address of {access.buffer.name} is not in the memory of this process",
        access.loc,
        expected=f"{size} bytes that this process may use",
        got=f"address {start:#x}",
        help="a kernel on the CPU takes addresses of arrays on the CPU: `x.cpu().data_ptr()`",
    )


_SAMPLES = 512


def readable(start: int, size: int) -> bool:
    """Whether this process may read `size` bytes from `start`: all pages, or 512 of them.

    The operating system is asked, by writing from there to a pipe; where it cannot be, true.
    """
    writev = getattr(os, "writev", None)
    if writev is None:
        return True
    page = mmap.PAGESIZE
    step = max(size // _SAMPLES // page * page, page)
    inner = range((start // page + 1) * page, start + size, step)
    places = sorted({start, start + size - 1, *inner})
    bytes_there = [memoryview((ctypes.c_char * 1).from_address(at)) for at in places]
    end, begin = os.pipe()
    try:
        return bool(writev(begin, bytes_there) == len(places))
    except OSError:
        return False
    finally:
        os.close(end)
        os.close(begin)
