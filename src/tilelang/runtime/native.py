"""Programs that run as machine code of the CPU.

What enters: what `targets/cpu` built of a program. What leaves: a `NativeProgram`, called with the
storage of its arguments by name. A launch that fails raises the error of the assertion that did not
hold, at its place in the author's file; the process goes on.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, ClassVar

import numpy as np

from tilelang.dtypes import DType
from tilelang.dtypes.storage import from_bits
from tilelang.errors import TileIndexError, TileRuntimeError, error
from tilelang.options import options_from
from tilelang.runtime.cache import Entry, Store
from tilelang.runtime.identity import compiler, digest
from tilelang.targets.cpu.built import Built, Failure, Printed
from tilelang.targets.cpu.llvm import Library, machine, optimise
from tilelang.targets.cpu.record import SHOW, Control
from tilelang.targets.cpu.workers import OUT_OF_MEMORY, Workers, compiled, module_text

Pack = Callable[[Any], int]
"""A scalar as the low bits of its slot."""


_POOL: list[Workers] = []


def workers() -> Workers:
    """The workers of this process, for all kernels.

    Threads that launch first at the same time may make one each; the first that is there counts.
    """
    if not _POOL:
        _POOL.append(_pool())
    return _POOL[0]


def _pool() -> Workers:
    """A pool. Its code is kept as that of kernels is."""
    options = options_from(None, os.environ)
    if options.disable_cache:
        return Workers(compiled())
    store, name = Store(options.cache_dir), digest([compiler(), *machine(), module_text()])
    entry = store.get(name)
    if entry is None:
        entry = Entry({"kernel": "workers", "target": "cpu, its workers"}, {"code": compiled()})
        store.put(name, entry)
    return Workers(entry.blobs["code"])


class NativeProgram:
    """A program in memory. `source` is its LLVM IR."""

    native: ClassVar[bool] = True

    def __init__(self, built: Built, code: bytes) -> None:
        self.built = built
        self._library = Library(code)
        prototype = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
        self._run = prototype(self._library.address("run"))
        self._slots = ctypes.c_uint64 * len(built.slots)
        self._packs: Sequence[Pack | None] = [
            None if dtype is None else packer(dtype) for _, dtype in built.slots
        ]
        self._idle: list[_Launch] = []

    @property
    def source(self) -> str:
        """The LLVM IR, before optimisation."""
        return self.built.text

    @property
    def assembly(self) -> str:
        """The processor's instructions."""
        return assembly(self.built)

    def run(self, args: Mapping[str, Any]) -> None:
        """Run it on the storage of the arguments, numbers for scalars and sizes.

        Raises the error of an assertion that does not hold.
        """
        slots: list[int] = []
        for (name, _), pack in zip(self.built.slots, self._packs, strict=True):
            value = args[name]
            if pack is not None:
                slots.append(pack(value))
            else:
                slots.append(0 if value is None else address_of(value))
        self.call(slots)

    def call(self, slots: Sequence[int]) -> None:
        """Run it on slots that are filled already: addresses, and the bits of scalars."""
        try:
            control = self._idle.pop()
        except IndexError:  # not asked for before: another thread may be calling too
            control = _Launch(self.built.prints)
        if self.built.prints:
            status = self._printing(control, slots)
        else:
            status = self._run(ctypes.addressof(control), self._slots(*slots))
        if status:
            where = tuple(control.block)
            control.status = 0
            self._idle.append(control)
            raise failed(self._failure(status), where)
        self._idle.append(control)

    def _printing(self, control: _Launch, slots: Sequence[int]) -> int:
        """A launch that calls back to print. What is raised meanwhile is raised when it returns."""
        with interrupts_later():
            status: int = self._run(ctypes.addressof(control), self._slots(*slots))
        lost, control.printer.raised = control.printer.raised, None
        if lost is not None:
            raise lost
        return status

    def _failure(self, status: int) -> Failure:
        """What the number of a failure means: the workers' own, or an assertion's."""
        if status == OUT_OF_MEMORY:
            return Failure(
                "there is no memory for the buffers on chip of a block", None, "capacity"
            )
        return self.built.failures[status - 1]


class _Launch(Control):
    """The record of one launch at a time. What prints runs on one thread, in order."""

    def __init__(self, prints: Sequence[Printed]) -> None:
        super().__init__()
        self.printer = _Printer(prints)
        self.callback = SHOW(self.printer.show)
        self.launch = workers().launch_address()
        self.show = ctypes.cast(self.callback, ctypes.c_void_p).value
        self.threads = 1 if prints else workers().threads()


class _Printer:
    """What native code calls to print. Nothing can be raised through that code, so the first
    exception of a launch is kept, and nothing is printed after it.
    """

    def __init__(self, prints: Sequence[Printed]) -> None:
        self._prints = prints
        self.raised: BaseException | None = None

    def show(self, what: int, bits: int, index: int, *where: int) -> None:
        """Print a line."""
        if self.raised is None:
            try:
                print(printed(self._prints[what], bits, index, where[:3], where[3:]))
            except BaseException as e:  # raised when the launch returns
                self.raised = e


@contextmanager
def interrupts_later() -> Generator[None, None, None]:
    """Ctrl-C is honoured at the end. In a callback from native code Python would only report it.

    Signals are the main thread's; in others this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    before = signal.getsignal(signal.SIGINT)
    if not callable(before):
        yield
        return
    signal.signal(signal.SIGINT, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        before(*came[0])


def assembly(built: Built) -> str:
    """The processor's instructions. From the text anew: making code changes the module."""
    return optimise(built.text, vectorise=built.vectorise).assembly()


def packer(dtype: DType) -> Pack:
    """The function that gives the bits of a scalar of `dtype`."""
    if dtype.is_float:
        sized = {4: "<f", 8: "<d"}.get(dtype.numpy.itemsize)
        if sized is None:
            return lambda x: int(np.asarray(x, dtype.numpy).view(f"u{dtype.numpy.itemsize}"))
        word = sized.replace("f", "I").replace("d", "Q")
        return lambda x: struct.unpack(word, struct.pack(sized, x))[0]
    mask = (1 << 64) - 1
    return lambda x: int(x) & mask


def address_of(value: Any) -> int:
    """Where an array begins, or an address given as a number."""
    return int(value.ctypes.data) if isinstance(value, np.ndarray) else int(value)


def failed(failure: Failure, block: tuple[int, int, int]) -> Exception:
    """The error of an assertion that did not hold in a block."""
    where = f"block {block}"
    if not failure.kind:
        said = f": {failure.message}" if failure.message else ""
        return error(
            "value",
            f"device assertion failed{said}",
            failure.loc,
            cls=TileRuntimeError,
            got=where,
        )
    if failure.kind == "bounds":
        return error(
            "bounds",
            failure.message,
            failure.loc,
            cls=TileIndexError,
            got=where,
            help="target='emulate' says which index it was, and of which thread",
        )
    return error(failure.kind, failure.message, failure.loc, got=where)


def printed(
    what: Printed,
    bits: int,
    index: int,
    block: tuple[int, ...],
    thread: tuple[int, ...] = (0, 0, 0),
) -> str:
    """The line that one print makes, as the emulator prints it."""
    head = f"msg='{what.message}' BlockIdx={block}, ThreadIdx={thread}"
    if not what.dtype:
        return head
    dtype = DType(what.dtype)
    word = np.array(bits & ((1 << (8 * dtype.numpy.itemsize)) - 1), np.uint64)
    value = from_bits(word, dtype)[()]
    if what.buffer:
        return f"{head}: buffer={what.buffer}, index={index}, dtype={dtype} value={value}"
    return f"{head}: dtype={dtype} value={value}"
