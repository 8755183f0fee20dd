"""Blocks with more rounds begin before those with fewer.

What enters: a function of the tile stage. What leaves: one whose launches number their blocks
backwards along an axis along which pipelined loops get longer, as those of causal attention do: the
hardware begins blocks in the order of their numbers, and a long one that begins last would run
alone. Launches whose blocks are ordered by the author, or print their number, stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilelang.ir.expr import Binary, BinaryOp, Cast, Expr, Var, const, int_value
from tilelang.ir.tile import (
    Annotate,
    Block,
    Function,
    Launch,
    Let,
    Pipelined,
    Print,
    Stmt,
)
from tilelang.isa.target import Target
from tilelang.passes.build import Names, as_type, map_statements, minus
from tilelang.passes.lower_parallel import statements
from tilelang.passes.simt.launch import Note, Threads, noted


def order_blocks(fn: Function, target: Target) -> Function:
    """Launches begin with their longest blocks."""
    del target
    names = Names(fn)
    notes: list[Note] = []

    def one(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, Launch):
            return None
        loops = [s for s in statements(stmt.body) if isinstance(s, Pipelined)]
        if not loops or stmt.cluster or any(_is_ordered(s) for s in statements(stmt.body)):
            return None
        lets = {s.var: s.value for s in statements(stmt.body) if isinstance(s, Let)}
        made = stmt
        for axis, v in enumerate(stmt.vars):
            if all(_longer(loop, v, lets) for loop in loops):
                made = _backwards(made, axis, names)
        if made is not stmt:
            threads = Threads(fn, stmt, names, {})
            threads.note("ordered", "blocks with more rounds begin first", loops[0].loc)
            notes.extend(threads.notes)
        return (made,)

    return noted(fn.with_(body=map_statements(fn.body, one)), notes)


def _is_ordered(stmt: Stmt) -> bool:
    return isinstance(stmt, Print) or (isinstance(stmt, Annotate) and stmt.kind == "swizzle")


def _longer(loop: Pipelined, v: Var, lets: Mapping[Var, Expr]) -> bool:
    """Whether a loop has more rounds in blocks further along an axis."""
    return _slope(loop.start, v, lets) == 0 and _slope(loop.stop, v, lets) == 1


def _slope(e: Expr, v: Var, lets: Mapping[Var, Expr]) -> int | None:
    """1 if a value never falls while `v` grows, -1 if it never grows, 0 if it stays, None if
    neither is known. What wraps does not matter: only the order of blocks depends on it.
    """
    if e == v:
        return 1
    if isinstance(e, Var) and e in lets:
        return _slope(lets[e], v, lets)
    if isinstance(e, Cast):
        return _slope(e.a, v, lets)
    if all(_slope(a, v, lets) == 0 for a in e.children() if isinstance(a, Expr)):
        return 0
    return _slope_of(e, v, lets) if isinstance(e, Binary) else None


def _slope_of(e: Binary, v: Var, lets: Mapping[Var, Expr]) -> int | None:
    a, b = _slope(e.a, v, lets), _slope(e.b, v, lets)
    if a is None or b is None:
        return None
    by = int_value(e.b) if e.op in (BinaryOp.MUL, BinaryOp.FLOORDIV) else None
    if by is not None:
        return (by > 0) * a - (by < 0) * a
    if e.op is BinaryOp.SUB:
        b = -b
    if e.op in (BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MIN, BinaryOp.MAX):
        return None if a * b < 0 else a or b
    return None


def _backwards(launch: Launch, axis: int, names: Names) -> Launch:
    """The launch with its blocks along an axis numbered from the last one on."""
    v, extent = launch.vars[axis], launch.grid[axis]
    fresh = names.var(f"{v.name}_back", v.type)
    last = minus(as_type(extent, v.type), as_type(const(1), v.type))
    vars_ = (*launch.vars[:axis], fresh, *launch.vars[axis + 1 :])
    let = Let(v, minus(last, fresh), loc=launch.loc)
    return launch.with_(vars=vars_, body=(let, *launch.body))
