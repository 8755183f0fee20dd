"""One instruction of a program, prepared: where its operands lie, what it means.

What enters: a row and the statement. What leaves: for values of its scalars, arrays that are the
memory itself, of the shapes that the row's `views` say, and for checks the bytes they cover.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tilelang.errors import InternalError, Loc, TileIndexError, error
from tilelang.ir.ascend import Pipe
from tilelang.ir.expr import Expr
from tilelang.ir.node import Effect
from tilelang.ir.thread import Instr, Slot, Space
from tilelang.isa.instr import InstrRow, Is
from tilelang.isa.target import Fact
from tilelang.simulator.ascend.memories import Window
from tilelang.targets.ascend.rows.build import COUNTS, PipeRow
from tilelang.targets.ascend.rows.vector import OutsideSource

Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Operand:
    """A slot: its name in the meaning, what happens to it, the alignment of its address, its
    element.
    """

    name: str
    effect: Effect
    align: int
    dtype: np.dtype[Any]
    count: int


@dataclass(frozen=True)
class View:
    """The elements of one operand, from its first byte on: shape, strides in bytes, the first and
    the last byte.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    low: int
    high: int
    empty: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "empty", 0 in self.shape)


@dataclass(frozen=True)
class Layout:
    """What an instruction does for given scalars: the parameters of the meaning, the views."""

    params: dict[str, Any]
    views: tuple[View, ...]


@dataclass(eq=False)
class Instruction:
    """One instruction of the text. Of its scalars, in the order of the statement, `counts` decide
    the views, and `data` are only computed with: for each the name and its place.

    The text hands over a tuple of each slot's window and first element and of the counts; the data
    by name; and, by itself, the first element of the slot that is in global memory (`far`, -1 for
    none), since the rest is mostly the same each time.

    Of several blocks at once: `apart` says that memory decides where operands lie or how large they
    are, so that this may differ, `loose` that memory decides where the one in global memory lies.
    """

    row: PipeRow
    loc: Loc | None
    slots: tuple[Operand, ...]
    counts: tuple[tuple[str, int], ...]
    data: tuple[tuple[str, int], ...]
    imm: dict[str, Any]
    meaning: Callable[..., Any] | None
    far: int
    apart: bool = False
    loose: bool = False
    layouts: dict[tuple[Any, ...], Layout] = field(default_factory=dict[tuple[Any, ...], Layout])

    @staticmethod
    def of(row: InstrRow, stmt: Instr) -> Instruction:
        """Prepare a statement."""
        if not isinstance(row, PipeRow):
            raise InternalError(f"{row.name} is no instruction of an Ascend core")
        slots: list[Operand] = []
        counts: list[tuple[str, int]] = []
        data: list[tuple[str, int]] = []
        far = -1
        for o, node in zip((*row.outs, *row.ins), (*stmt.outs, *stmt.ins), strict=True):
            if o.kind is Is.SLOT and isinstance(node, Slot):
                dtype = node.array.type.numpy
                if node.array.space is Space.GLOBAL and far < 0:
                    far = len(slots)
                slots.append(Operand(o.name, o.effect, o.align, dtype, node.count))
            elif isinstance(node, Expr):
                kind = counts if o.dtypes == COUNTS else data
                kind.append((o.name, len(counts) + len(data)))
        return Instruction(
            row,
            stmt.loc,
            tuple(slots),
            tuple(counts),
            tuple(data),
            dict(stmt.imm),
            row.meaning,
            far,
        )

    def __post_init__(self) -> None:
        self.pipe: Pipe = self.row.pipe
        self.queue: str = self.pipe.value
        self.pair: tuple[Any, Any] = (self.imm.get("src"), self.imm.get("dst"))
        self.numbers: set[str] = {o.name for o in self.row.ins if o.kind is Is.VALUE and o.like}
        self.stores_far: bool = self.far >= 0 and Effect.WRITE in self.slots[self.far].effect
        self.told: bool = self.row.name == "gm.ub.end"  # fails unless its mode is set
        self.moded: bool = self.row.stores or self.told or self.row.name in ("mad", "v.cast")

    def deciding(self, data: dict[str, Any] | None) -> list[Any]:
        """The scalars that are not numbers like the elements of an operand."""
        return [x for name, x in data.items() if name not in self.numbers] if data else []

    @property
    def stores_outside(self) -> bool:
        """Whether what it writes is in global memory."""
        return bool(self.row.outs) and self.row.outs[0].spaces == (Space.GLOBAL,)

    def __str__(self) -> str:
        return self.row.name

    def layout(self, at: tuple[Any, ...], data: dict[str, Any] | None = None) -> Layout:
        """The views for these scalars; the same counts give the same views."""
        key = at[2 * len(self.slots) :]
        found = self.layouts.get(key)
        if found is None:
            found = self.layouts[key] = self._layout(key)
        return Layout({**found.params, **data}, found.views) if data else found

    def _layout(self, values: tuple[Any, ...]) -> Layout:
        names = (name for name, _ in self.counts)
        params = {**self.imm, **dict(zip(names, values, strict=True))}
        strided = self.row.views(params) if self.row.views is not None else {}
        views: list[View] = []
        for slot in self.slots:
            shape, strides = strided.get(slot.name, ((slot.count,), (1,)))
            if min(shape, default=0) < 0:
                raise error(
                    "shape",
                    f"{self.row.name} of a negative number of elements",
                    self.loc,
                    got=f"{slot.name} of shape {shape}",
                )
            size = slot.dtype.itemsize
            steps = tuple(s * size for s in strides)
            ends = [(n - 1) * s for n, s in zip(shape, steps, strict=True)]
            low, high = sum(min(e, 0) for e in ends), sum(max(e, 0) for e in ends) + size
            views.append(View(tuple(shape), steps, low, high))
        return Layout(params, tuple(views))

    def arrays(self, layout: Layout, places: Sequence[tuple[Window, int]]) -> dict[str, Any]:
        """The operands as arrays: windows of memory, with the first element of each."""
        return {
            slot.name: self.array(slot, view, window, index)
            for slot, view, (window, index) in zip(self.slots, layout.views, places, strict=True)
        }

    def array(self, slot: Operand, view: View, window: Window, index: int) -> npt.NDArray[Any]:
        """An operand as an array, from an element of a window on."""
        start = window.start + index * slot.dtype.itemsize
        if view.empty:
            return np.zeros(view.shape, slot.dtype)
        if slot.align and start % slot.align:
            raise self._misaligned(slot, start)
        if start + view.low < 0 or start + view.high > window.memory.data.size:
            raise self._outside(slot, window, start, view)
        return np.ndarray(view.shape, slot.dtype, window.memory.data, start, view.strides)

    def run(self, arrays: dict[str, Any], params: dict[str, Any]) -> None:
        """Do it. What a meaning finds wrong with the data is an error at the author's line."""
        assert self.meaning is not None
        try:
            self.meaning(**arrays, **params)
        except OutsideSource as e:
            raise self.outside_source(e) from None

    def outside_source(self, e: OutsideSource) -> Exception:
        """What a meaning found."""
        return error("bounds", f"{self.row.name}: {e}", self.loc, cls=TileIndexError)

    def check_id(self, number: int, limit: Fact | None, what: str) -> None:
        """An id that the chip has."""
        if limit is not None and 0 <= number < limit.value:
            return
        known = "none" if limit is None else f"0 to {limit.value - 1} ({limit.source})"
        raise error("value", f"{what} {number}", self.loc, expected=known, got=str(number))

    def _misaligned(self, slot: Operand, start: int) -> Exception:
        return error(
            "layout",
            f"{slot.name} of {self.row.name} is not aligned",
            self.loc,
            expected=f"a multiple of {slot.align} bytes ({self.row.source})",
            got=f"byte {start}",
        )

    def _outside(self, slot: Operand, window: Window, start: int, view: View) -> Exception:
        return error(
            "bounds",
            f"{self.row.name} leaves {window.memory.name} by {window.name}",
            self.loc,
            cls=TileIndexError,
            expected=f"bytes 0 to {window.memory.data.size}",
            got=f"bytes {start + view.low} to {start + view.high} ({slot.name})",
        )


def runs_of(view: View, itemsize: int) -> tuple[Places, int]:
    """The bytes of a view as runs of the same length: where these begin, from its first byte on."""
    length = itemsize
    shape, strides = list(view.shape), list(view.strides)
    while shape and strides[-1] == length:
        length *= shape.pop()
        strides.pop()
    places = np.zeros(1, np.int64)
    for n, step in zip(shape, strides, strict=True):
        if step == 0 or n == 1:
            continue
        places = (places[:, None] + np.arange(n) * step).reshape(-1)
    return places, length


def bytes_of(view: View, start: int, itemsize: int) -> Places | slice:
    """The bytes of a view that begins at `start`."""
    places, length = runs_of(view, itemsize)
    if places.size == 1:
        return slice(start + int(places[0]), start + int(places[0]) + length)
    return (start + places[:, None] + np.arange(length)).reshape(-1)
