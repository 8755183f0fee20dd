"""Tiles of L1 of which a copy from global memory fills the first part: the rest is zero.

What enters: a function of the adapter's dialect in which every buffer has its memory. What leaves:
the same with a fill of the whole tile before such a copy, as the adapter tree's copy clears a tile
that it begins and does not fill, so that a product may take it whole. A copy to another place of
the tile leaves the rest as it is. So does one that begins the tile where parts of it were written
since it was last read: the adapter tree would lose them.
"""

from __future__ import annotations

from tilelang.dtypes import DType
from tilelang.ir.expr import Region, const, int_value
from tilelang.ir.simplify import equal
from tilelang.ir.tile import Block, Copy, Fill, Function, Stmt
from tilelang.isa.target import Target
from tilelang.passes.ascend.effects import Effects
from tilelang.passes.build import literal, map_bodies, map_launches
from tilelang.scopes import Dialect, Memory

MATRIX = 2
"""The axes of a tile; those before them number tiles."""


def clear_tiles(fn: Function, target: Target) -> Function:
    """The function in which a tile of L1 that is filled in part is zero elsewhere."""
    del target
    if fn.dialect != Dialect.ADAPTER.value:
        return fn
    effects = Effects(fn)

    def block(body: Block) -> Block:
        out: list[Stmt] = []
        written: set[str] = set()
        for stmt in body:
            if isinstance(stmt, Copy) and stmt.dst.buffer.name not in written:
                tile = _begun(stmt, effects)
                if tile is not None:
                    zero = literal(0, DType(tile.buffer.dtype))
                    out.append(Fill(tile, zero, loc=stmt.loc))
            out.append(map_bodies(stmt, block))
            written = _parts(stmt, effects, written)
        return tuple(out)

    return map_launches(fn, block)


def _begun(stmt: Copy, effects: Effects) -> Region | None:
    """The tile of L1 that a copy from global memory begins and does not fill."""
    ends = effects.memory(stmt.src.buffer), effects.memory(stmt.dst.buffer)
    r = stmt.dst
    if ends != (Memory.GLOBAL, Memory.L1) or any(int_value(e) != 0 for e in r.mins):
        return None
    lead, shape = len(r.extents) - MATRIX, r.buffer.shape
    if lead < 0 or any(int_value(e) != 1 for e in r.extents[:lead]):
        return None
    if all(equal(a, b) for a, b in zip(r.extents[lead:], shape[lead:], strict=True)):
        return None
    ones = tuple(const(1) for _ in range(lead))
    return Region(r.buffer, r.mins, (*ones, *shape[lead:]), loc=r.loc)


def _parts(stmt: Stmt, effects: Effects, written: set[str]) -> set[str]:
    """The tiles of which parts are written, and not yet read, behind a statement."""
    touched: dict[str, list[bool]] = {}
    for a in effects.inside(stmt):
        if a.memory is Memory.L1:
            touched.setdefault(a.root.name, []).append(a.reads)
    read = {name for name, reads in touched.items() if any(reads)}
    return (written | touched.keys()) - read
