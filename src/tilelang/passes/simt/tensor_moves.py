"""Loads and stores between Tensor Memory and the registers of fragments.

What enters: a `TensorLoad` or `TensorStore`, and the register array of its fragment. What leaves:
`tcgen05.ld` or `tcgen05.st` by every warp, on the 32 lanes that it reaches, and the wait for them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tilelang.dtypes import DType
from tilelang.ir.expr import Binary, BinaryOp, Buffer, Const, Expr, Region, const
from tilelang.ir.tile import Block, If, Let, Stmt
from tilelang.layout.cells import LANES_OF_WARP, WARPGROUP, Cells, Lanes
from tilelang.layout.spread import Spread
from tilelang.passes.build import as_type, compare, plus, static_extents, times
from tilelang.passes.issue import LANES_READ, LANES_WRITTEN, Issue, Span, TensorLoad, TensorStore
from tilelang.passes.simt.launch import Threads, refused, static_shape
from tilelang.passes.simt.tcgen05 import address, moved

U32 = DType("uint32")
LANE_BITS = 16
"""The lane is in the upper bits of an address from here on."""


def fragment_spread(stmt: TensorLoad | TensorStore, t: Threads) -> tuple[str, Spread]:
    """The fragment of a copy, and the layout that it must have."""
    load = isinstance(stmt, TensorLoad)
    tensor, part = (stmt.src, stmt.dst) if load else (stmt.dst, stmt.src)
    shape = static_extents(part) or ()
    if t.base % WARPGROUP:
        raise refused(
            stmt, "a copy of Tensor Memory by threads whose first is in the middle of a warpgroup"
        )
    return part.buffer.name, t.tensors[tensor.buffer.name].cells.spread(shape, t.count)


def lower_move(stmt: TensorLoad | TensorStore, t: Threads, registers: Buffer) -> Block:
    """What one thread does of a copy."""
    load = isinstance(stmt, TensorLoad)
    region = stmt.src if load else stmt.dst
    loc = stmt.loc
    tensor = t.tensors[region.buffer.name]
    cells = tensor.cells
    base = t.names.var("lanes", U32)
    first = Binary(BinaryOp.ADD, address(tensor, region), _lane(t))
    name = "ld" if load else "st"
    moves: list[Stmt] = []
    for span, cell in _segments(region, cells, t, registers):
        words = span.count // cells.per
        shape = f"16x256b.x{words // 4}" if cells.lanes is Lanes.HALF else f"32x32b.x{words}"
        row = f"tcgen05.{name}.{shape}{'.half' if cells.halves else ''}"
        at = moved(base, cell)
        outs, ins = ((span,), (at,)) if load else ((), (at, span))
        moves.append(Issue(row, outs, ins, loc=loc))
    moves.append(Issue(f"tcgen05.wait.{name}", (), (), loc=loc))
    share = cells.parts((static_extents(region) or (0,))[-1], t.count) * WARPGROUP
    made: Block = tuple(moves)
    if not load and share < t.count:  # the other threads hold the same
        made = (If(compare(BinaryOp.LT, t.index, share), made, loc=loc),)
    return (_mark(region, cells, t, load=load), Let(base, first, loc=loc), *made)


def _lane(t: Threads) -> Expr:
    """The first lane that the warp reaches, as a part of an address."""
    warp = Binary(BinaryOp.FLOORMOD, Binary(BinaryOp.FLOORDIV, t.flat, const(32)), const(4))
    return Binary(BinaryOp.MUL, as_type(warp, U32), Const(LANES_OF_WARP << LANE_BITS, U32))


def _segments(
    region: Region, cells: Cells, t: Threads, registers: Buffer
) -> Iterator[tuple[Span, Expr]]:
    """The registers of each instruction, and the cells before those that it moves."""
    extents = static_extents(region) or (0, 0)
    columns = extents[-1]
    parts = cells.parts(columns, t.count)
    own = columns // parts // cells.in_cell
    share: Expr = times(t.digit(WARPGROUP, parts), own) if parts > 1 else const(0)
    segments = cells.segments(columns, t.count)
    each = sum(size for _, size in segments)
    for number, matrix in enumerate(_matrices(region, cells)):
        for first, size in segments:
            at = (number * each + first) * cells.per
            before = matrix * cells.step + cells.cells_before(first)
            yield Span(registers, const(at), size * cells.per), plus(share, before)


def _matrices(region: Region, cells: Cells) -> Iterator[int]:
    """The bands of a part, by their numbers from its first one on."""
    extents, shape = static_extents(region) or (0, 0), static_shape(region.buffer) or (0, 0)
    counts = (*extents[:-2], extents[-2] // cells.rows)
    for place in itertools.product(*(range(n) for n in counts)):
        number = 0
        for k, n in zip(place, (*shape[:-2], cells.bands), strict=True):
            number = number * n + k
        yield number


def _mark(region: Region, cells: Cells, t: Threads, *, load: bool) -> Stmt:
    """What a thread moves: its row of each band, or the rows of its warp."""
    if cells.lanes is Lanes.HALF:
        row, count = times(t.digit(32, 4), 16), 16
    else:
        row, count = t.digit(1, cells.rows), 1
    lead, low, wide = region.mins[:-2], region.mins[-2], region.extents
    parts = tuple(
        Region(
            region.buffer,
            (*lead, plus(plus(row, low), band), region.mins[-1]),
            (*wide[:-2], const(count), wide[-1]),
            loc=region.loc,
        )
        for band in range(0, (static_extents(region) or (0, 0))[-2], cells.rows)
    )
    return Issue(LANES_READ, (), parts) if load else Issue(LANES_WRITTEN, parts, ())
