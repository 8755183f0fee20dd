"""The order in which a launch visits its grid (`T.use_swizzle`).

What enters: a function as the author wrote it. What leaves: one whose launches of two axes with a
swizzle compute their block indices so, that blocks that run at the same time lie in a panel of some
rows (or columns) of the grid and share what they read in the L2 cache. Only which block does what
changes.
"""

from __future__ import annotations

from tilelang.ir.expr import Binary, BinaryOp, Expr, Select, Var, const
from tilelang.ir.tile import Annotate, Block, Function, Launch, Let, Stmt
from tilelang.isa.target import Target
from tilelang.passes.build import Names, as_type, compare, map_statements, minus, plus, times
from tilelang.passes.simt.launch import Note, Threads, noted


def rasterize(fn: Function, target: Target) -> Function:
    """Launches with a swizzle visit their grid in panels."""
    del target
    names = Names(fn)
    notes: list[Note] = []

    def one(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, Launch):
            return None
        wishes = [s for s in stmt.body if isinstance(s, Annotate) and s.kind == "swizzle"]
        if not wishes:
            return None
        wish = wishes[0]
        threads = Threads(fn, stmt, names, {})
        if len(stmt.grid) != 2 or stmt.cluster:
            threads.note("declined", "T.use_swizzle of a grid that has not two axes", wish.loc)
            notes.extend(threads.notes)
            return None
        panel, order = wish.values[0], wish.values[1]
        threads.note("rasterised", f"in panels of {panel} {order}s", wish.loc)
        notes.extend(threads.notes)
        return (_paneled(stmt, names, int(panel), by_rows=order == "row"),)

    return noted(fn.with_(body=map_statements(fn.body, one)), notes)


def _div(a: Expr, b: Expr) -> Expr:
    return Binary(BinaryOp.FLOORDIV, a, b)


def _mod(a: Expr, b: Expr) -> Expr:
    return Binary(BinaryOp.FLOORMOD, a, b)


def _paneled(launch: Launch, names: Names, panel: int, *, by_rows: bool) -> Launch:
    """The launch with computed block indices: panels one after the other, to and fro along them."""
    x, y = (names.var(f"grid_{axis}", v.type) for axis, v in zip("xy", launch.vars, strict=True))
    wide, high = (as_type(e, v.type) for e, v in zip(launch.grid, launch.vars, strict=True))
    along, across = (wide, high) if by_rows else (high, wide)
    lets: list[Stmt] = []

    def let(hint: str, value: Expr) -> Var:
        name = names.var(hint, x.type)
        lets.append(Let(name, value, loc=launch.loc))
        return name

    number = let("number", plus(x, times(y, wide)))
    size = let("panel_size", times(along, panel))
    which = let("panel", _div(number, size))
    inside = let("inside", minus(number, times(which, size)))
    left = minus(across, times(which, panel))
    lines = let("lines", Binary(BinaryOp.MIN, as_type(const(panel), x.type), left))
    step = let("step", _div(inside, lines))
    back = minus(minus(along, 1), step)
    place = Select(compare(BinaryOp.EQ, _mod(which, as_type(const(2), x.type)), 0), step, back)
    line = plus(minus(inside, times(step, lines)), times(which, panel))
    found = (place, line) if by_rows else (line, place)
    for v, value, extent in zip(launch.vars, found, (wide, high), strict=True):
        zero = as_type(const(0), v.type)
        clamped = Binary(BinaryOp.MIN, value, minus(extent, 1))
        lets.append(Let(v, Binary(BinaryOp.MAX, clamped, zero), loc=launch.loc))
    return launch.with_(vars=(x, y), body=(*lets, *launch.body))
