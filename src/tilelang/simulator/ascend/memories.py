"""The memories of a core group, and windows on them.

What enters: what a kernel uses of them. What leaves: bytes, no numbers before the first write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilelang.ir.expr import int_value
from tilelang.ir.thread import ON_CORE, Declare, Kernel, Space
from tilelang.simulator.machine import Memory, Report, Shadow

UNWRITTEN = 0xFF
"""Bytes before the first write: NaN in every float format that has one."""


@dataclass
class Window:
    """An array in a memory: its first byte, and its elements."""

    name: str
    memory: Memory
    start: int
    dtype: np.dtype[Any]
    _typed: npt.NDArray[Any] | None = None

    def scalar(self, index: int) -> Any:
        """An element as the scalar unit has it: a NumPy scalar for floats, else a Python number."""
        found = self.elements[index]
        return found.item() if self.dtype.kind in "iub" else found

    @property
    def elements(self) -> npt.NDArray[Any]:
        """The elements from the first one to the end of the memory."""
        if self._typed is None:
            data = self.memory.data[self.start :]
            whole = data.size // self.dtype.itemsize * self.dtype.itemsize
            self._typed = data[:whole].view(self.dtype)
        return self._typed


Sizes = Mapping[Space, int]
"""The bytes of each memory of a group that a kernel uses, from the first one on."""


def used(kernel: Kernel) -> Sizes:
    """What the arrays of a kernel take. An access behind them is outside, although the memory goes
    on.
    """
    found: dict[Space, int] = dict.fromkeys(ON_CORE, 0)
    for node in kernel.walk():
        if isinstance(node, Declare) and node.array.space in found:
            count = int_value(node.array.size) if node.array.size is not None else 0
            end = (node.offset or 0) + (count or 0) * node.array.type.numpy.itemsize
            found[node.array.space] = max(found[node.array.space], end)
    return found


def fresh(name: str, size: int, report: Report, *, checked: bool) -> Memory:
    """A memory that nobody has written."""
    data = np.full(size, UNWRITTEN, np.uint8)
    shadow = Shadow(name, size, report) if checked else None
    return Memory(name, data, report, shadow=shadow)


class GroupMemories:
    """The memories of one group, made when they are first used."""

    def __init__(self, sizes: Sizes, report: Report, label: str, *, checked: bool) -> None:
        self._made: dict[tuple[Space, int], Memory] = {}
        self._make: Callable[[str, int], Memory] = lambda name, size: fresh(
            name, size, report, checked=checked
        )
        self.sizes = sizes
        self.label = label

    def of(self, space: Space, sub: int) -> Memory:
        """A memory of the cube core, or the UB of vector core `sub`."""
        key = (space, sub if space is Space.UB else 0)
        found = self._made.get(key)
        if found is None:
            own = f" of vector core {sub}" if space is Space.UB else ""
            name = f"{space.value.upper()}{own}{self.label}"
            found = self._made[key] = self._make(name, self.sizes[space])
        return found
