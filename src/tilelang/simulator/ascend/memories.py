"""The memories of a core group, and windows on them.

What enters: the sizes of a chip. What leaves: bytes that hold no numbers before the first write.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilelang.ir.thread import Space
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

    @property
    def elements(self) -> npt.NDArray[Any]:
        """The elements from the first one to the end of the memory."""
        if self._typed is None:
            data = self.memory.data[self.start :]
            whole = data.size // self.dtype.itemsize * self.dtype.itemsize
            self._typed = data[:whole].view(self.dtype)
        return self._typed


@dataclass(frozen=True)
class Sizes:
    """The bytes of each memory of a group."""

    ub: int
    l1: int
    l0a: int
    l0b: int
    l0c: int

    def of(self, space: Space) -> int:
        """The bytes of one memory."""
        return int(getattr(self, space.value))


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
            found = self._made[key] = self._make(name, self.sizes.of(space))
        return found
