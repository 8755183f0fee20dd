"""The memories of a core group, and windows on them.

What enters: what a kernel uses of them. What leaves: bytes, no numbers before the first write.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tilelang.ir.expr import int_value
from tilelang.ir.thread import ON_CORE, Array, Declare, Kernel, Space
from tilelang.simulator.machine import Memory, Report, Shadow

UNWRITTEN = 0xFF
"""Bytes before the first write: NaN in every float format that has one."""

_LINE = 64
"""Bytes of a line of a cache."""


@dataclass(eq=False)
class Window:
    """An array in a memory: its first byte, and its elements. It equals itself alone."""

    name: str
    memory: Memory
    start: int
    dtype: np.dtype[Any]

    def scalar(self, index: int) -> Any:
        """An element as the scalar unit has it: a NumPy scalar for floats, else a Python number."""
        return self.cells[index]

    @cached_property
    def elements(self) -> npt.NDArray[Any]:
        """The elements from the first one to the end of the memory."""
        data = self.memory.data[self.start :]
        whole = data.size // self.dtype.itemsize * self.dtype.itemsize
        return data[:whole].view(self.dtype)

    @cached_property
    def count(self) -> int:
        """How many elements there are to the end of the memory."""
        return self.elements.size

    @cached_property
    def cells(self) -> memoryview | npt.NDArray[Any]:
        """The elements, of which one alone is read as `scalar` says: quicker than from an array."""
        return self.elements.data if self.dtype.kind in "iub" else self.elements


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


Ready = tuple[Callable[..., Any], Callable[[int], Any] | None]
"""An instruction with its operands in these memories: see `inorder`."""


class GroupMemories:
    """The memories of one group, made when they are first used. `ready` are the instructions whose
    operands have been found in them, each by where these lie.
    """

    def __init__(self, sizes: Sizes, report: Report, label: str, *, checked: bool) -> None:
        self._report = report
        self._made: dict[tuple[Space, int], Memory] = {}
        self._make: Callable[[str, int], Memory] = lambda name, size: fresh(
            name, size, report, checked=checked
        )
        self.sizes = sizes
        self.label = label
        self.ready: defaultdict[Any, dict[tuple[Any, ...], Ready]] = defaultdict(dict)
        self._windows: dict[tuple[str, int, int], Window] = {}

    def window(self, array: Array, offset: int, sub: int) -> Window:
        """An array in a memory; the same one each time."""
        key = (array.name, offset, sub)
        found = self._windows.get(key)
        if found is None:
            memory = self.of(array.space, sub)
            found = self._windows[key] = Window(array.name, memory, offset, array.type.numpy)
        return found

    def forget(self) -> None:
        """Have no numbers again, for the next group."""
        for memory in self._made.values():
            memory.data.fill(UNWRITTEN)

    def has(self, memory: Memory) -> bool:
        """Whether a memory is one of these, and not outside."""
        return memory in self._made.values()

    def of(self, space: Space, sub: int) -> Memory:
        """A memory of the cube core, or the UB of vector core `sub`."""
        key = (space, sub if space is Space.UB else 0)
        found = self._made.get(key)
        if found is None:
            own = f" of vector core {sub}" if space is Space.UB else ""
            name = f"{space.value.upper()}{own}{self.label}"
            found = self._made[key] = self._make(name, self.sizes[space])
        return found


class LaneMemories(GroupMemories):
    """The memories of several groups, of each the bytes of one group after those of another. What
    windows show is the first group.
    """

    def __init__(self, sizes: Sizes, report: Report, lanes: int) -> None:
        super().__init__(sizes, report, "", checked=False)
        self._make = self._lanes_of
        self.lanes = lanes
        self.each = np.arange(lanes)
        self._whole: dict[int, npt.NDArray[np.uint8]] = {}
        self._elements: dict[int, npt.NDArray[Any]] = {}

    def _lanes_of(self, name: str, size: int) -> Memory:
        pitch = -(-size // _LINE) * _LINE + _LINE  # lanes are not in the same sets of a cache
        whole = np.full((self.lanes, pitch), UNWRITTEN, np.uint8)
        made = Memory(name, whole[0, :size], self._report)
        self._whole[id(made)] = whole
        return made

    def has(self, memory: Memory) -> bool:
        """Whether a memory is one of these, and not outside."""
        return id(memory) in self._whole

    def whole(self, memory: Memory) -> npt.NDArray[np.uint8]:
        """The bytes of a memory, (lanes, bytes), and some more."""
        return self._whole[id(memory)]

    def elements(self, window: Window) -> npt.NDArray[Any]:
        """The elements from the first one of a window on, (lanes, elements)."""
        found = self._elements.get(id(window))
        if found is None:
            size = window.count * window.dtype.itemsize
            raw = self.whole(window.memory)[:, window.start : window.start + size]
            found = self._elements[id(window)] = raw.view(window.dtype)
        return found

    def forget(self) -> None:
        """Have no numbers again, for the next groups."""
        for whole in self._whole.values():
            whole.fill(UNWRITTEN)
