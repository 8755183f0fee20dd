"""The control record: what a launch and the code that it runs tell each other.

What enters: places in IR where something is to be told. What leaves: loads and stores at the
record's fields. `Control` is the same layout for Python.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from tilelang.targets.cpu.text import Code, Value, element_of, int_bits, number


class Control(ctypes.Structure):
    """One per launch in flight.

    `status` is 0, or the number of the failure that stopped the launch; workers take no more blocks
    then. `block` is the block that failed. `launch` is the address of the workers' entry, `show`
    that of the callback that prints, `threads` how many workers may take part.
    """

    _fields_ = [
        ("status", ctypes.c_int32),
        ("block", ctypes.c_int32 * 3),
        ("launch", ctypes.c_void_p),
        ("show", ctypes.c_void_p),
        ("threads", ctypes.c_int32),
    ]


SHOW = ctypes.CFUNCTYPE(
    None,
    ctypes.c_int32,
    ctypes.c_uint64,
    ctypes.c_int64,
    *(6 * [ctypes.c_int32]),
)
"""The callback that prints: number of the print, bits of the value, index in a buffer, block and
thread.
"""


@dataclass(frozen=True)
class Where:
    """The indices of a block, and of a thread of it, x first; those that are left out are 0."""

    block: Sequence[Value]
    thread: Sequence[Value] = ()


class Record:
    """The record in a function that has its address."""

    def __init__(self, at: Value) -> None:
        self.at = at

    def field(self, code: Code, name: str, kind: str) -> Value:
        """The value of a field."""
        return code.load(kind, self._place(code, name))

    def _place(self, code: Code, name: str) -> Value:
        return code.gep(self.at, "i8", number("i64", getattr(Control, name).offset))

    def fail(self, code: Code, failure: int, block: Sequence[Value]) -> None:
        """Note a failure, unless another worker was first."""
        status = self._place(code, "status")
        pair = code.value(
            "{ i32, i1 }", f"cmpxchg ptr {status}, i32 0, i32 {failure} acq_rel monotonic"
        )
        first, noted = code.label("first"), code.label("noted")
        code.branch(code.value("i1", f"extractvalue {pair.typed}, 1"), first, noted)
        code.place(first)
        at = self._place(code, "block")
        for k, index in enumerate(block):
            code.store(_narrow(code, index), code.gep(at, "i32", number("i64", k)))
        code.place(noted)

    def stopped(self, code: Code) -> Value:
        """Whether the launch has failed."""
        status = code.value("i32", f"load atomic i32, ptr {self.at} monotonic, align 4")
        return code.compare("ne", status, number("i32", 0))

    def show(
        self, code: Code, what: int, value: Value | None, index: Value | int, where: Where
    ) -> None:
        """Print a value as its bits, or a message alone."""
        bits = number("i64", 0) if value is None else _bits(code, value)
        place = number("i64", index) if isinstance(index, int) else index
        corner: list[Value] = []
        for indices in (where.block, where.thread):
            corner += [_narrow(code, b) for b in indices]
            corner += [number("i32", 0)] * (-len(corner) % 3)
        corner += [number("i32", 0)] * (6 - len(corner))
        fn = self.field(code, "show", "ptr")
        code.call_void(fn.text, [number("i32", what), bits, place, *corner])


def _bits(code: Code, value: Value) -> Value:
    kind = element_of(value.type)
    if kind in ("float", "double"):
        value = code.cast("bitcast", value, "i32" if kind == "float" else "i64")
    return value if int_bits(value.type) == 64 else code.cast("zext", value, "i64")


def _narrow(code: Code, index: Value) -> Value:
    return index if index.type == "i32" else code.cast("trunc", index, "i32")
