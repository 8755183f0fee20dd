"""One tile operation on its way to instructions: what every kind of operation needs.

What enters: the operation, and what its lowering knows. What leaves: regions as axes with strides
and the part of them that is inside, slots of matrices in fractals, instructions, located errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilelang.errors import TileError, error
from tilelang.ir.bounds import Env, prove
from tilelang.ir.expr import Binary, BinaryOp, Buffer, Const, Expr, Region, Select, const, int_value
from tilelang.ir.simplify import simplify
from tilelang.ir.thread import Instr, Slot
from tilelang.ir.tile import Block, Stmt
from tilelang.ir.verify_thread import may_be_aligned
from tilelang.isa.target import Target
from tilelang.passes.accesses import Access, Accesses, Place
from tilelang.passes.ascend.event_ids import EventIds
from tilelang.passes.ascend.storage import FRACTAL, Tile, c0_of, tile_of
from tilelang.passes.build import Names, both, compare, minus, plus, serial, times
from tilelang.scopes import Memory

BLOCK = 32
"""Bytes: what addresses in UB and L1 are a multiple of (`Machine`)."""


@dataclass(frozen=True)
class Shared:
    """What the operations of one function share. `turned` are the L0 buffers whose rows run along
    the axis that is summed over, for A, or across it, for B (`lower_cube.orientations`). `ids` are
    the event ids that are free, `own_order` is `settings.orders_products`, `alone` says that no
    product runs before another, `scaled` is the tile whose scales each handle names.
    """

    acc: Accesses
    names: Names
    target: Target
    memory: Callable[[Buffer], Memory]
    addresses: Mapping[str, int]
    turned: Mapping[str, bool]
    ids: EventIds
    own_order: bool
    alone: bool
    scaled: Mapping[str, Buffer]


@dataclass(frozen=True)
class Axis:
    """An axis of a region: how many elements, how far apart, and how many of them are inside (None:
    all).
    """

    extent: Expr
    stride: Expr
    valid: Expr | None = None

    @property
    def inside(self) -> Expr:
        """How many elements are inside."""
        return self.extent if self.valid is None else self.valid


@dataclass(frozen=True)
class Box:
    """A region as its first element and its axes, outermost first, those of extent 1 left out."""

    place: Place
    first: Expr
    axes: tuple[Axis, ...]


class Step:
    """One operation that is being lowered."""

    def __init__(self, shared: Shared, stmt: Stmt, env: Env) -> None:
        self.shared = shared
        self.stmt = stmt
        self.env = env
        self.access: Access = shared.acc.begin(env)

    # Short forms ---------------------------------------------------------------------------------

    def memory(self, r: Region) -> Memory:
        """The memory of a region."""
        return self.shared.memory(r.buffer)

    def expr(self, e: Expr) -> Expr:
        """A scalar of the thread stage."""
        return simplify(self.access.expr(e), self.env)

    def proved(self, cond: Expr) -> bool:
        """Whether a condition is known to hold."""
        return prove(cond, self.env) is True

    def same(self, a: Expr, b: Expr) -> bool:
        """Whether two numbers are known to be equal."""
        m, n = int_value(a), int_value(b)
        if m is not None and n is not None:
            return m == n
        return a == b or self.proved(compare(BinaryOp.EQ, a, b))

    def instr(self, row: str, out: Slot, *ins: Slot | Expr | int, **imm: Any) -> Instr:
        """An instruction: the slot that is written, then what is read; numbers are counts."""
        read = tuple(const(x) if isinstance(x, int) else x for x in ins)
        return Instr(row, (out,), read, imm=tuple(imm.items()), loc=self.stmt.loc)

    def fault(self, kind: str, message: str, **facts: Any) -> TileError:
        """A located error at the statement."""
        return error(kind, message, self.stmt.loc, **facts)

    # Regions -------------------------------------------------------------------------------------

    def box(self, r: Region) -> Box:
        """A region of global memory or of UB. On chip it must be inside."""
        at = self.access.place(r.buffer)
        mins = self.access.indices(r.mins, None, self.env)
        extents = [self.expr(e) for e in r.extents]
        if at.on_chip:
            self.access.require(at, self.access.unproved(at, mins, self.env, extents), None)
        axes: list[Axis] = []
        guards: list[Expr] = []
        for low, extent, stride, size in zip(
            mins, extents, at.strides(), r.buffer.shape, strict=True
        ):
            valid = None if at.on_chip else self.valid(low, extent, self.expr(size))
            if int_value(extent) != 1:
                axes.append(Axis(extent, simplify(self.access.expr(stride), self.env), valid))
            elif valid is not None:
                guards.append(compare(BinaryOp.LT, low, self.expr(size)))
        box = Box(at, self.access.index(at, mins, self.env), tuple(axes))
        return self._cut(box, both(guards)) if guards else box

    def valid(self, low: Expr, extent: Expr, size: Expr) -> Expr | None:
        """How many of `extent` elements from `low` on are inside; None for all."""
        if self.proved(compare(BinaryOp.LE, plus(low, extent), size)):
            return None
        room = minus(size, low)
        room = Binary(BinaryOp.MAX, room, Const(0, room.dtype))
        wide = plus(extent, Const(0, room.dtype))
        wide = wide if wide.dtype == room.dtype else plus(Const(0, room.dtype), wide)
        return simplify(Binary(BinaryOp.MIN, room, wide), self.env)

    def shaped(self, box: Box, extents: Sequence[Expr]) -> Box | None:
        """The same elements with these extents, where axes can be joined or parted so."""
        left = list(box.axes)
        out: list[Axis] = []
        for wanted in reversed(extents):
            if int_value(wanted) == 1:
                continue
            found = self._take(left, wanted)
            if found is None:
                return None
            out.insert(0, found)
        return replace(box, axes=tuple(out)) if not left else None

    def two_axes(self, box: Box, rows: Expr, columns: Expr) -> tuple[Axis, Axis]:
        """A box as a matrix of rows and columns."""
        one = Axis(const(1), const(1))
        shaped = self.shaped(box, [rows, columns])
        if shaped is None and len(box.axes) <= 2:
            shaped = box
        if shaped is None or len(shaped.axes) > 2:
            raise self.fault(
                "shape",
                "the source of a tile in fractals is no matrix",
                expected=f"rows and columns as in {box.place.buffer.name}",
                got=extents_of(box),
            )
        axes = list(shaped.axes)
        if len(axes) == 2:
            return axes[0], axes[1]
        if not axes:
            return one, one
        if int_value(columns) == 1 and int_value(rows) != 1:
            return axes[0], one
        return Axis(const(1), axes[0].extent), axes[0]

    def _take(self, left: list[Axis], wanted: Expr) -> Axis | None:
        """The innermost `wanted` elements of what is left."""
        if not left:
            return None
        axis = left.pop()
        while not self.same(axis.extent, wanted):
            have, need = int_value(axis.extent), int_value(wanted)
            step = int_value(axis.stride)
            if have is None or need is None or step is None or axis.valid is not None:
                return None
            if have % need == 0:
                left.append(Axis(const(have // need), const(step * need)))
                return Axis(wanted, axis.stride)
            outer = left.pop() if left else None
            if outer is None or outer.valid is not None:
                return None
            if int_value(outer.stride) != step * have or (more := int_value(outer.extent)) is None:
                return None
            axis = Axis(const(have * more), axis.stride)
        return axis

    def joined(self, boxes: Sequence[Box]) -> list[Box]:
        """Boxes of equal extents with as few axes as possible: neighbours that follow each other
        without a gap in every box become one.
        """
        axes = [list(b.axes) for b in boxes]
        k = len(axes[0]) - 1
        while k > 0:
            pairs = [(a[k - 1], a[k]) for a in axes]
            if all(self._follows(outer, inner) for outer, inner in pairs):
                for a, (outer, inner) in zip(axes, pairs, strict=True):
                    extent = times(outer.extent, inner.extent)
                    a[k - 1 : k + 1] = [Axis(simplify(extent, self.env), inner.stride)]
            k -= 1
        return [replace(b, axes=tuple(a)) for b, a in zip(boxes, axes, strict=True)]

    def _follows(self, outer: Axis, inner: Axis) -> bool:
        if outer.valid is not None or inner.valid is not None:
            return False
        return self.same(simplify(times(inner.extent, inner.stride), self.env), outer.stride)

    def rows(
        self, boxes: Sequence[Box], body: Callable[[list[Box]], Block], *, stops: bool = True
    ) -> Block:
        """`body` for boxes of two axes, in loops over the axes before; the last has stride 1.

        Where the first box is inside only in part, a loop `stops` there, or else goes on with
        nothing inside.
        """
        depth = len(boxes[0].axes)
        if any(depth and int_value(b.axes[-1].stride) != 1 for b in boxes):
            one = Axis(const(1), const(1))
            boxes = [replace(b, axes=(*b.axes, one)) for b in boxes]
            depth += 1
        while depth < 2:
            boxes = [replace(b, axes=(self._row_of(b), *b.axes)) for b in boxes]
            depth += 1
        if depth == 2:
            return body(list(boxes))
        return self._loop(boxes, body, stops=stops)

    @staticmethod
    def _row_of(b: Box) -> Axis:
        """One row: its pitch is its length."""
        return Axis(const(1), b.axes[-1].extent if b.axes else const(1))

    def _loop(
        self, boxes: Sequence[Box], body: Callable[[list[Box]], Block], *, stops: bool
    ) -> Block:
        outer = [b.axes[0] for b in boxes]
        var = self.shared.names.var("r", outer[0].extent.dtype)
        inner = [
            replace(b, first=plus(b.first, times(var, a.stride)), axes=b.axes[1:])
            for b, a in zip(boxes, outer, strict=True)
        ]
        stop = outer[0].extent
        valid = outer[0].valid
        if valid is not None and stops:
            stop = valid
        elif valid is not None:
            inner[0] = self._cut(inner[0], compare(BinaryOp.LT, var, valid))
        self.env = self.env.enter_extents([var], [stop])
        return (serial(var, stop, self.rows(inner, body, stops=stops), self.stmt.loc),)

    @staticmethod
    def _cut(box: Box, holds: Expr) -> Box:
        """The box with nothing inside unless a condition holds."""
        *lead, last = box.axes or (Axis(const(1), const(1)),)
        inside = last.inside
        kept = Binary(BinaryOp.MUL, inside, _number(holds, inside))
        return replace(box, axes=(*lead, replace(last, valid=kept)))

    # Slots ---------------------------------------------------------------------------------------

    def slot(self, box: Box, align: int = 0) -> Slot:
        """The first element of a box. On chip its address is a multiple of `align` bytes."""
        index = simplify(box.first, self.env)
        array = box.place.array
        if align and not may_be_aligned(array, index, align, self.env):
            raise self.misaligned(box.place.buffer, align, "it starts between two blocks")
        return Slot(array, index, 1)

    def pitch(self, box: Box, axis: Axis, align: int = 0) -> Expr:
        """The distance of two rows."""
        size = int_value(axis.stride)
        one_row = int_value(axis.extent) == 1
        if align and not one_row and size is not None:
            item = box.place.array.type.bytes
            if size * item % align:
                raise self.misaligned(
                    box.place.buffer, align, f"its rows are {size * item} bytes apart"
                )
        return axis.stride

    def misaligned(self, buffer: Buffer, align: int, why: str) -> TileError:
        """The error for an operand that does not begin at a block."""
        chip = self.shared.target.chip
        memory = self.shared.memory(buffer)
        fact = chip.alignments.get(memory) if chip is not None else None
        return self.fault(
            "layout",
            f"the operand in {buffer.name} is not aligned: {why}",
            expected=f"a multiple of {align} bytes"
            + (f" in the {memory.title} ({fact.source})" if fact else ""),
            help="pad the rows of the buffer, or let the region begin elsewhere",
        )

    def matrix(self, r: Region, *, wide: int = 0) -> Matrix:
        """A region of a matrix in fractals. The first column is a multiple of `wide` (C0)."""
        memory = self.memory(r)
        buffer = r.buffer
        at = self.access.place(buffer)
        tile = tile_of(buffer, memory, self.stmt)
        mins = self.access.indices(r.mins, None, self.env)
        extents = [self.expr(e) for e in r.extents]
        self.access.require(at, self.access.unproved(at, mins, self.env, extents), None)
        number: Expr = const(0)
        for low, extent, size in zip(mins[:-2], extents[:-2], buffer.shape[:-2], strict=True):
            if int_value(extent) != 1:
                raise self.fault(
                    "shape",
                    f"several matrices of {buffer.name} at once",
                    expected="an extent of 1 in all axes but the last two",
                )
            number = plus(times(number, size), low)
        row, column = mins[-2:]
        c0 = wide or c0_of(buffer)
        self.whole(column, c0, buffer, "column")
        offset = plus(times(number, tile.elements), times(row, c0))
        block = simplify(Binary(BinaryOp.FLOORDIV, column, Const(c0, column.dtype)), self.env)
        offset = plus(offset, times(block, tile.padded_rows * c0))
        index = simplify(plus(at.offset, offset), self.env)
        return Matrix(at, tile, index, (row, column), extents[-2], extents[-1], c0)

    def whole(self, e: Expr, step: int, buffer: Buffer, what: str) -> None:
        """A place that is a multiple of `step`."""
        known = self.env.bounds(e)
        if math.gcd(known.modulus, step) != step and known.lo != known.hi:
            whole = False
        else:
            whole = (
                known.residue % step == 0 if known.lo != known.hi else (known.lo or 0) % step == 0
            )
        if not whole:
            raise self.fault(
                "layout",
                f"a region of {buffer.name} begins inside a fractal",
                expected=f"a first {what} that is a multiple of {step}",
            )

    def whole_rows(self, m: Matrix) -> None:
        """A load of L0 begins with a whole fractal."""
        self.whole(m.origin[0], FRACTAL, m.place.buffer, "row")

    def from_origin(self, m: Matrix) -> None:
        """An operand of a product begins at its first row and column."""
        if any(int_value(e) != 0 for e in m.origin):
            raise self.fault(
                "layout",
                f"a part of {m.place.buffer.name} that does not begin at its first element",
                expected="a region from row 0 and column 0: its fractals follow each other",
            )


@dataclass(frozen=True)
class Matrix:
    """A part of a matrix in fractals, from element `index` of its array on."""

    place: Place
    tile: Tile
    index: Expr
    origin: tuple[Expr, Expr]
    rows: Expr
    columns: Expr
    c0: int

    @property
    def slot(self) -> Slot:
        """Its first element."""
        return Slot(self.place.array, self.index, 1)

    def moved(self, rows: Expr | int = 0, blocks: Expr | int = 0) -> Slot:
        """The element some rows below and some blocks of C0 columns to the right."""
        down = times(const(self.c0), rows)
        right = times(const(self.tile.padded_rows * self.c0), blocks)
        return Slot(self.place.array, plus(plus(self.index, down), right), 1)


def _number(cond: Expr, like: Expr) -> Expr:
    return Select(cond, Const(1, like.dtype), Const(0, like.dtype))


def extents_of(box: Box) -> str:
    """The extents of a box, in a message."""
    known = (int_value(a.extent) for a in box.axes)
    return str(tuple("?" if n is None else n for n in known))
