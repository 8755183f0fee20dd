"""Tiles in shared memory as boxes that tensor copies move (the Tensor Memory Accelerator).

What enters: a region of a shared buffer and one of a global array. What leaves: `Boxes`: how the
tile lies then, and the instructions that load or store it, or why there are none. Limits are those
of cuTensorMapEncodeTiled (CUDA driver API, "Tensor Map Object Management"): boxes of at most 256
along an axis, arrays of at most 5 axes whose rows are multiples of 16 bytes, tiles at multiples of
128 bytes, of 1024 where the hardware exchanges groups. A copy moves whole boxes: elements outside
of the array arrive as zeros, and are not stored.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from tilelang.dtypes import DType
from tilelang.ir.expr import Buffer, Const, Expr, Region, const, int_value
from tilelang.ir.tile import Annotate, Block, Stmt
from tilelang.layout.placement import GROUP, Placement, paneled
from tilelang.passes.build import as_type, plus, static_extents
from tilelang.passes.issue import PLACEMENT, Issue, TensorBox
from tilelang.passes.lower_parallel import statements
from tilelang.passes.simt.launch import static_shape

BOX = 256
"""The greatest extent of a box."""

RANKS = 5
"""The most axes of an array."""

ALIGN, SWIZZLED = 128, 1024
"""Bytes: where a box may begin in shared memory, and where arrays begin that are as large."""

MOST = 32
"""Boxes of one tile; a tile of more is copied otherwise."""

I32 = DType("int32")

Immediates = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Placed:
    """A tile that tensor copies move, its place in a global array, and how it lies."""

    tile: Region
    place: Region
    placement: Placement

    @property
    def swizzle(self) -> int:
        """The bytes within which the hardware exchanges groups of 16, 0 for none."""
        return self.placement.span * GROUP if self.placement.span > 1 else 0

    def lies(self) -> Block:
        """What says how the tile lies; nothing of a buffer of one axis, which lies in order."""
        if self.tile.buffer.rank == 1:
            return ()
        key = self.placement.key()
        return (Annotate(PLACEMENT, buffers=(self.tile.buffer,), values=(key,)),)


@dataclass(frozen=True)
class Boxes(Placed):
    """A tile that is a set of boxes. `axes` are the axes of the array along which the tile is
    longer than 1, `own` those of the tile; `box` the extents of a box along them.
    """

    axes: tuple[int, ...]
    own: tuple[int, ...]
    box: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """What all boxes move, elements outside of the array counted."""
        return math.prod(static_extents(self.tile) or ()) * self.tile.dtype.bytes

    def parts(self) -> Iterator[tuple[TensorBox, Region, tuple[Expr, ...]]]:
        """Each box: of which kind, where in the tile, and at which coordinates, innermost first."""
        extents = [1] * self.place.buffer.rank
        for axis, size in zip(self.axes, self.box, strict=True):
            extents[axis] = size
        kind = TensorBox(self.place.buffer, tuple(extents), self.swizzle)
        whole = [int_value(self.tile.extents[k]) or 0 for k in self.own]
        starts = (range(0, n, size) for n, size in zip(whole, self.box, strict=True))
        for start in itertools.product(*starts):
            at = [as_type(m, I32) for m in self.place.mins]
            mins = list(self.tile.mins)
            sizes: list[Expr] = [const(1)] * len(mins)
            for k, first in enumerate(start):
                at[self.axes[k]] = plus(at[self.axes[k]], first)
                mins[self.own[k]] = plus(mins[self.own[k]], first)
                sizes[self.own[k]] = const(self.box[k])
            part = Region(self.tile.buffer, tuple(mins), tuple(sizes), loc=self.tile.loc)
            yield kind, part, tuple(reversed(at))

    def loads(
        self,
        barrier: Region,
        stmt: Stmt,
        imm: Immediates = (),
        blocks: int = 0,
        leader: Expr | None = None,
    ) -> Block:
        """The copies into shared memory, which complete on an mbarrier; `blocks` is the mask of
        those of a cluster that receive them, 0 for the block itself; the mbarrier is that of the
        block `leader` of a pair if there is one.
        """
        row = f"cp.async.bulk.tensor.{self.place.buffer.rank}d.load" + ".multicast" * (blocks > 0)
        more: tuple[Expr, ...] = (Const(blocks, DType("uint16")),) if blocks else ()
        if leader is not None:
            row, more = f"{row}.cta2", (leader,)
        return tuple(
            Issue(row, (part, barrier), (kind, *at, *more), imm=imm, loc=stmt.loc)
            for kind, part, at in self.parts()
        )

    def stores(self, stmt: Stmt, imm: Immediates = ()) -> Block:
        """The copies into the global array, in the open bulk group of the thread."""
        row = f"cp.async.bulk.tensor.{self.place.buffer.rank}d.store"
        return tuple(
            Issue(row, (), (kind, part, *at), imm=imm, loc=stmt.loc)
            for kind, part, at in self.parts()
        )


class FourRows(Placed):
    """A tile of four rows that lie anywhere in a matrix; `place` is all rows of its columns."""

    def parts(self, rows: tuple[Expr, ...]) -> Iterator[tuple[TensorBox, Region, tuple[Expr, ...]]]:
        """Each copy: of which kind, where in the tile, and its coordinates: the first column, then
        the rows. The box of the tensor map has one row (PTX ISA, "Tiled mode").
        """
        width = self.placement.panel
        kind = TensorBox(self.place.buffer, (1, width), self.swizzle)
        named = tuple(as_type(r, I32) for r in rows)
        for start in range(0, self.placement.columns, width):
            part = Region(
                self.tile.buffer,
                (const(0), const(start)),
                (const(4), const(width)),
                loc=self.tile.loc,
            )
            yield kind, part, (plus(as_type(self.place.mins[1], I32), start), *named)


def four_rows(tile: Region, place: Region) -> FourRows | str:
    """How the tile of four rows lies, or why tensor copies cannot move it. Rows lie one after the
    other, in panels where they are wider than a box.
    """
    buffer = tile.buffer
    columns = int_value(buffer.shape[1]) or 0
    size = buffer.dtype.bytes
    shown = f"{buffer.name}, a tile of 4 x {columns} {buffer.dtype},"
    if buffer.strides is not None or buffer.dtype.is_subbyte or buffer.dtype.is_vector:
        return f"{buffer.name} has strides, or elements that are smaller than a byte or vectors"
    if columns * size % GROUP or columns * size < ALIGN // 4:
        return f"{shown} has rows that are no multiple of {GROUP} bytes of at least {ALIGN // 4}"
    width = _part(columns, ALIGN // 4 // size)
    if not width or columns // width > MOST:
        return f"{shown} has no parts of at most {BOX} columns and a multiple of {ALIGN // 4} bytes"
    return FourRows(tile, place, Placement(4, columns, GROUP // size, 1, width))


def boxes(tile: Region, place: Region) -> Boxes | str:
    """The boxes of a tile, or why it has none."""
    fault = next(_faults(tile, place), None)
    if fault is not None:
        return fault
    extents = static_extents(tile) or ()
    own = tuple(k for k, n in enumerate(extents) if n != 1)
    axes = tuple(k for k, n in enumerate(place.extents) if int_value(n) != 1)
    placement = tile_placement(tile.buffer, own)
    shown = f"a tile of {' x '.join(str(extents[k]) for k in own)} {tile.dtype}"
    if placement is None:
        return f"{shown} has no box"
    box = [1] * len(own)
    box[-1] = _part(placement.panel, ALIGN // tile.dtype.bytes)
    if len(own) > 1:
        box[-2] = _part(placement.rows, 8)
    if 0 in box or math.prod(extents[k] // n for k, n in zip(own, box, strict=True)) > MOST:
        return f"{shown} has too many boxes"
    return Boxes(tile, place, placement, axes, own, tuple(box))


def _faults(tile: Region, place: Region) -> Iterator[str]:
    """Why a region of a shared buffer is no box of an array, but for its size."""
    name, extents = tile.buffer.name, static_extents(tile)
    if extents is None or tile.buffer.strides is not None or tile.dtype != place.dtype:
        yield f"{name} has strides, a size known at run time only, or another type"
        return
    own = [k for k, n in enumerate(extents) if n != 1]
    there = [(k, int_value(n)) for k, n in enumerate(place.extents) if int_value(n) != 1]
    if not own or [extents[k] for k in own] != [n for _, n in there]:
        yield f"{name} is no box of {place.buffer.name}"
    elif there[-1][0] != place.buffer.rank - 1:
        yield f"the rows of {name} are not neighbours in {place.buffer.name}"
    elif not all(_covers(tile, k) for k in own[-2:]):
        yield f"a part of the rows of {name} is copied"


def _covers(region: Region, axis: int) -> bool:
    size = int_value(region.buffer.shape[axis])
    return int_value(region.mins[axis]) == 0 and int_value(region.extents[axis]) == size


def _part(extent: int, unit: int) -> int:
    """The largest extent of a box that divides an axis into multiples of `unit`; 0 if none does."""
    if extent <= BOX:
        return extent
    return max((n for n in range(unit, BOX + 1, unit) if extent % n == 0), default=0)


def tile_placement(buffer: Buffer, own: tuple[int, ...]) -> Placement | None:
    """How a buffer lies if tensor copies move its parts along the axes `own`, the last two of which
    (the last one, if it is alone) are whole. None where no box has such parts.
    """
    shape, size = static_shape(buffer), buffer.dtype.bytes
    last = len(shape or ()) - 1
    if shape is None or buffer.dtype.is_subbyte or buffer.dtype.is_vector or own[-1] != last:
        return None
    columns = shape[-1]
    if len(own) == 1:
        unit = GROUP if len(shape) == 1 else ALIGN  # rows of a matrix begin at multiples
        return None if columns * size % unit else _row_major(1, columns, size)
    if own[-2] != last - 1:
        return None
    rows = shape[-2]
    found = paneled(rows, columns, buffer.dtype.bits)
    if found is not None:
        # The hardware exchanges groups by the address: parts begin where the pattern does.
        return None if rows % 8 or math.prod(shape) * size < SWIZZLED else found
    fits = columns <= BOX and columns * size % GROUP == 0 and rows * columns * size % ALIGN == 0
    return _row_major(rows, columns, size) if fits else None


def placements(body: Block) -> dict[str, Placement]:
    """How buffers lie of which that is settled."""
    return {
        b.name: Placement(*key)
        for s in statements(body)
        if isinstance(s, Annotate) and s.kind == PLACEMENT
        for b, key in zip(s.buffers, s.values, strict=True)
    }


def may_lie(found: Placed, multiplied: Collection[str]) -> bool:
    """Whether the tile may lie as tensor copies want it: products want theirs in panels."""
    buffer = found.tile.buffer
    shape = static_shape(buffer) or ()
    if buffer.name not in multiplied or len(shape) < 2:
        return True
    return paneled(shape[-2], shape[-1], buffer.dtype.bits) in (None, found.placement)


def _row_major(rows: int, columns: int, size: int) -> Placement:
    return Placement(rows, columns, max(1, GROUP // size), 1, columns)


def array_faults(buffer: Buffer, params: Collection[str], body: Block) -> Iterator[str]:
    """Why tensor copies cannot move parts of a global array; `body` is what the launch does."""
    name, dtype = buffer.name, buffer.dtype
    if name not in params or buffer.strides is not None:
        yield f"{name} is no parameter without strides"
    if not 1 <= buffer.rank <= RANKS or dtype.is_subbyte or dtype.is_vector:
        yield f"a tensor copy cannot move parts of {name}"
    if _safe_value(body, name):
        yield f"{name} has a safe value other than 0"
    inner = 1
    for extent in reversed(buffer.shape[1:]):
        value = int_value(extent)
        if value is None:
            yield f"the rows of {name} have a length that is known at run time only"
        inner *= value or 1
        if inner * dtype.bits // 8 % GROUP:
            yield f"the rows of {name} are no multiple of 16 bytes"


def _safe_value(body: Block, name: str) -> bool:
    return any(
        isinstance(s, Annotate)
        and s.kind == "safe_value"
        and any(b.name == name for b in s.buffers)
        for s in statements(body)
    )
