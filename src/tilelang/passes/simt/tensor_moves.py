"""Loads and stores between Tensor Memory and the registers of fragments.

What enters: a `TensorLoad` or `TensorStore`, and the register array of its fragment. What leaves:
`tcgen05.ld` or `tcgen05.st` by every warp, on the 32 lanes that it reaches, and the wait for them.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilelang.dtypes import DType
from tilelang.ir.expr import Binary, BinaryOp, Buffer, Const, Expr, Region, const
from tilelang.ir.tile import Block, If, Let, Stmt
from tilelang.layout.cells import LANES_OF_WARP, WARPGROUP, Cells, Lanes
from tilelang.layout.spread import Spread
from tilelang.passes.build import as_type, compare, plus, static_extents, times
from tilelang.passes.issue import LANES_READ, LANES_WRITTEN, Issue, Span, TensorLoad, TensorStore
from tilelang.passes.simt.launch import Threads, refused
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
    batches = 1
    for n in extents[:-2]:
        batches *= n
    parts = cells.parts(columns, t.count)
    own = columns // parts // cells.in_cell
    share: Expr = times(t.digit(WARPGROUP, parts), own) if parts > 1 else const(0)
    segments = cells.segments(columns, t.count)
    each = sum(size for _, size in segments)
    for batch in range(batches):
        for first, size in segments:
            at = (batch * each + first) * cells.per
            before = batch * cells.step + cells.cells_before(first)
            yield Span(registers, const(at), size * cells.per), plus(share, before)


def _mark(region: Region, cells: Cells, t: Threads, *, load: bool) -> Stmt:
    """What a thread moves: its row, or the rows of its warp."""
    mins, extents = list(region.mins), list(region.extents)
    if cells.lanes is Lanes.HALF:
        mins[-2], extents[-2] = times(t.digit(32, 4), 16), const(16)
    else:
        mins[-2], extents[-2] = t.digit(1, cells.rows), const(1)
    part = Region(region.buffer, tuple(mins), tuple(extents), loc=region.loc)
    return Issue(LANES_READ, (), (part,)) if load else Issue(LANES_WRITTEN, (part,), ())
