"""What the text of a core calls, in either mode: storage, modes, elements, assertions.

What enters: a group, the kind of core and its number. What leaves: the methods that both
`inorder.InOrderCore` and `queued.QueuedCore` have, of which these complete the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilelang.errors import Loc, TileIndexError, TileRuntimeError, error
from tilelang.ir.ascend import Core as Kind
from tilelang.ir.ascend import VectorFunction
from tilelang.ir.thread import Array, Space
from tilelang.ir.tile import Assert
from tilelang.isa.target import SyncLimits
from tilelang.simulator.ascend.functions import run_function
from tilelang.simulator.ascend.instruction import Instruction, Layout
from tilelang.simulator.ascend.memories import UNWRITTEN, GroupMemories, Window
from tilelang.simulator.ascend.scalars import native
from tilelang.simulator.machine import Report, Who

Places = list[tuple[Window, int]]
Elements = npt.NDArray[Any]


@dataclass(frozen=True)
class Member:
    """A core of a launch: its group (a block), its kind, its number among those of the kind."""

    group: int
    kind: Kind
    sub: int

    def __hash__(self) -> int:
        """Quick, for flags are found by it."""
        return (self.group << 2) + (self.sub << 1) + (self.kind is Kind.CUBE)

    def __str__(self) -> str:
        own = "the cube core" if self.kind is Kind.CUBE else f"vector core {self.sub}"
        return f"{own} of block {self.group}"


class CoreBase:
    """One core of a group. `sub` is the number of a vector core, 0 on the cube core."""

    def __init__(self, member: Member, memories: GroupMemories, limits: SyncLimits) -> None:
        self.member = member
        self.kind = member.kind
        self.sub = member.sub
        self.memories = memories
        self.limits = limits
        self.atomic = ""
        self.modes: dict[str, Any] = {}

    @property
    def name(self) -> str:
        """What the core is called in reports."""
        return str(self.member)

    # Storage -------------------------------------------------------------------------------------

    def window(self, array: Array, offset: int) -> Window:
        """An array in a memory of the group."""
        return self.memories.window(array, offset, self.sub)

    def registers(self, array: Array, size: int, first: Any) -> list[Any]:
        """Scalars of the scalar unit."""
        if first is None:
            unknown = np.frombuffer(b"\xff" * array.type.numpy.itemsize, array.type.numpy)[0]
            first = native(unknown, array.type)
        return [first] * size

    # Scalars -------------------------------------------------------------------------------------

    def set_mode(self, name: str, value: Any) -> None:
        """A mode of what is issued from here on."""
        if name == "atomic":
            self.atomic = value
        else:
            self.modes[name] = value

    def require(self, cond: Any, stmt: Assert) -> None:
        """An assertion about what is in memory."""
        if not cond:
            self.fail(stmt)

    def fail(self, stmt: Assert) -> None:
        """An assertion does not hold."""
        cls = TileIndexError if stmt.kind == "bounds" else None
        if not stmt.kind:
            text = f"device assertion failed: {stmt.message}"
            raise error("value", text, stmt.loc, cls=TileRuntimeError, got=self.name)
        raise error(stmt.kind, stmt.message, stmt.loc, cls=cls, got=self.name)

    def element(self, window: Window, index: int, loc: Loc | None) -> int:
        """The index of an element that is inside."""
        start = window.start + index * window.dtype.itemsize
        if start < 0 or start + window.dtype.itemsize > window.memory.data.size:
            raise error(
                "bounds",
                f"an element outside of {window.memory.name}",
                loc,
                cls=TileIndexError,
                got=f"element {index} of {window.name}",
            )
        return start

    # Instructions --------------------------------------------------------------------------------

    def places(self, i: Instruction, layout: Layout, at: tuple[Any, ...], far: int) -> Places:
        """The windows of the slots, with their first elements."""
        found: Places = [
            (at[2 * k], far if k == i.far else at[2 * k + 1]) for k in range(len(i.slots))
        ]
        if i.row.remote:  # the output lies in the UB of another core
            window, index = found[0]
            memory = self.memories.of(Space.UB, int(layout.params["sub"]))
            found[0] = (Window(window.name, memory, window.start, window.dtype), index)
        return found

    def state(self, i: Instruction) -> dict[str, Any]:
        """The modes that an instruction sees, as they are when it is issued."""
        if i.row.stores:
            return {"atomic": self.atomic}
        if i.told:
            return {"copy_pad_value": self._pad(i)}
        return self._scale() if i.row.name == "v.cast" else self._product(i)

    def _pad(self, i: Instruction) -> Any:
        found = self.modes.get("copy_pad_value")
        if found is None:
            raise error(
                "uninitialised",
                "a copy(data_select=True) of which nothing has set what rows end with",
                i.loc,
                expected="T.ascend_set_copy_pad_value before it, on the same core",
                got=self.name,
            )
        return found

    def _scale(self) -> dict[str, Any]:
        scale = self.modes.get("deq_scale")
        return {} if scale is None else {"deq_scale": scale}

    def _product(self, i: Instruction) -> dict[str, Any]:
        return {"hf32": self.modes.get("hf32", 0)} if i.row.name == "mad" else {}

    def carried_out(
        self, function: VectorFunction, given: dict[str, Any], who: Callable[[int], Who]
    ) -> None:
        """Carry out a vector function: windows and scalars by name, and who touches memory."""
        windows = {k: v for k, v in given.items() if isinstance(v, Window)}
        names = {k: v for k, v in given.items() if k not in windows}
        report = next((w.memory.report for w in windows.values()), None)
        if report is not None:
            for line in run_function(function, names, _Windows(windows, report, who)):
                print(line)

    def print(self, message: str, *values: Any) -> None:
        """Print what a statement of the author says."""
        print(message, *values)

    def print_element(self, window: Window, index: int, imm: dict[str, Any]) -> None:
        """Print one element."""
        print(f"{imm['message']} {imm['buffer']}[{index}] = {window.scalar(index)}".strip())


@dataclass(frozen=True)
class _Windows:
    """What a vector function reads and writes: the windows that it is given."""

    windows: Mapping[str, Window]
    report: Report
    who: Callable[[int], Who]

    def load(self, array: Array, index: Elements, count: int, loc: Loc | None) -> Elements:
        """Neighbours from each index on."""
        at, window = self._at(array, index)
        who = self.who(self.report.site(loc, f"reads {array.name}"))
        return window.memory.load(at, window.dtype, count, who)

    def store(self, array: Array, index: Elements, value: Elements, loc: Loc | None) -> None:
        """Neighbouring elements from each index on."""
        at, window = self._at(array, index)
        who = self.who(self.report.site(loc, f"writes {array.name}"))
        window.memory.store(at, np.ascontiguousarray(value, window.dtype), who)

    def peek(self, array: Array, index: int, count: int) -> Elements:
        """Neighbours that nobody reads; behind the memory there are no numbers."""
        found = self.windows[array.name].elements[index : index + count]
        rest = np.full((count - found.size) * found.itemsize, UNWRITTEN, np.uint8)
        return np.concatenate([found, rest.view(found.dtype)])

    def _at(self, array: Array, index: Elements) -> tuple[npt.NDArray[np.int64], Window]:
        window = self.windows[array.name]
        return window.start + index.astype(np.int64) * window.dtype.itemsize, window
