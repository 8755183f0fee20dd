"""First values of accumulators: masks are computed only for tiles that they divide.

What enters: a function of the tile stage. What leaves: the same function, in which a product that
follows a nest that gives all of its accumulators 0 where a condition holds, and something else
elsewhere, takes zero for them if the condition holds in the whole tile; the nest is left out then.
A causal mask divides one tile of a row in this way and leaves the others alone. A product whose
accumulators were cleared before clears them itself. Results do not change.

A condition that is a comparison of sums holds in the whole tile if it holds at the corner where it
is hardest. That needs sums that do not overflow, which ranges prove; else the nest stays.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import cast

from tilelang.ir.affine import Form, is_stable
from tilelang.ir.bounds import Env
from tilelang.ir.expr import (
    BOOL,
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Const,
    Expr,
    Region,
    Select,
    Unary,
    UnaryOp,
    Var,
    int_value,
)
from tilelang.ir.tile import (
    Block,
    Fill,
    Function,
    Gemm,
    If,
    Launch,
    Let,
    Parallel,
    Stmt,
    Store,
)
from tilelang.isa.target import Target
from tilelang.passes.accesses import add_up
from tilelang.passes.build import Names, map_bodies, map_statements
from tilelang.passes.lower_copies import view_roots
from tilelang.passes.simt.launch import Note, Threads, noted, static_shape
from tilelang.passes.varying import Varying

_ORDER = {BinaryOp.LT: 1, BinaryOp.LE: 1, BinaryOp.GT: -1, BinaryOp.GE: -1}
"""Comparisons that are hardest where the left side is largest (1) or smallest."""


def first_values(fn: Function, target: Target) -> Function:
    """Accumulators are given first values only where that is no zero."""
    del target
    names, roots = Names(fn), view_roots(fn)
    notes: list[Note] = []

    def one(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, Launch):
            return None
        threads = Threads(fn, stmt, names, roots)
        inside = Env.of_function(fn).enter_launch(stmt)
        body = _Launch(threads).block(stmt.body, inside)
        notes.extend(threads.notes)
        return (stmt.with_(body=body),)

    return noted(fn.with_(body=map_statements(fn.body, one)), notes)


class _Launch:
    """One launch."""

    def __init__(self, threads: Threads) -> None:
        self.t = threads
        launch = threads.launch
        axes = zip(launch.thread_vars, threads.extents, strict=True)
        seeds = [v for v, n in axes if n > 1]
        self.varying = Varying(launch.body, seeds, threads.is_private, threads.roots)

    def block(self, body: Block, env: Env) -> Block:
        """Statements in order."""
        out: list[Stmt] = []
        clears: dict[int, Expr] = {}
        for k, stmt in enumerate(body):
            at = _product_after(body, k, self.t.roots)
            if at is not None:
                made, clear = self.first(stmt, env)
                if clear is not None:
                    clears[at] = clear
                    out += made
                    env = env.after(stmt)
                    continue
            inside = env.enter(stmt)
            kept = map_bodies(stmt, lambda b, inside=inside: self.block(b, inside))
            out.append(kept.with_(clear_accum=clears[k]) if k in clears else kept)
            env = env.after(stmt)
        return tuple(out)

    def first(self, stmt: Stmt, env: Env) -> tuple[Block, Expr | None]:
        """What is left of the statement that gives accumulators their first values, and when the
        product clears them instead; None where it is to stay.
        """
        if isinstance(stmt, Fill):
            return ((), Const(True, BOOL)) if _is_zero(stmt.value) else ((stmt,), None)
        nest = cast("Parallel", stmt)
        value = cast("Store", nest.body[0]).value
        if not isinstance(value, Select) or not _is_zero(value.t):
            return (stmt,), None
        found = self.everywhere(value.cond, nest, env)
        if isinstance(found, str):
            self.t.note("declined", f"a mask is computed for every tile: {found}", stmt.loc)
            return (stmt,), None
        self.t.note("mask", "computed for tiles that it divides", stmt.loc)
        name = self.t.names.var("unmasked", BOOL)
        rest = If(Unary(UnaryOp.NOT, name), (nest,), loc=stmt.loc)
        return (Let(name, found, loc=stmt.loc), rest), name

    def everywhere(self, cond: Expr, nest: Parallel, env: Env) -> Expr | str:
        """What says that a condition holds in all iterations of a nest, or why nothing does."""
        if isinstance(cond, Binary) and cond.op is BinaryOp.AND:
            a, b = (self.everywhere(x, nest, env) for x in (cond.a, cond.b))
            if isinstance(a, str) or isinstance(b, str):
                return a if isinstance(a, str) else b
            return Binary(BinaryOp.AND, a, b)
        if self.varying.node(cond):
            return "it differs between threads"
        if not is_stable(cond):
            return "it reads memory"
        return cond if nest.vars and not _uses(cond, nest) else _corner(cond, nest, env.enter(nest))


def _uses(e: Expr, nest: Parallel) -> bool:
    return any(v in nest.vars for v in e.walk())


def _corner(cond: Expr, nest: Parallel, env: Env) -> Expr | str:
    """A comparison where it is hardest, or why it is not known where that is."""
    if not isinstance(cond, Binary) or cond.op not in _ORDER:
        return "it is no comparison of sums"
    most = _ORDER[cond.op]
    a, b = _extreme(cond.a, nest, env, most), _extreme(cond.b, nest, env, -most)
    if a is None or b is None:
        return "what it compares is no sum, or may overflow"
    return Binary(cond.op, a, b)


def _extreme(e: Expr, nest: Parallel, env: Env, want: int) -> Expr | None:
    """The largest (`want` 1) or smallest value of a sum over a nest; None if that is not known."""
    extents = dict(zip(nest.vars, nest.extents, strict=True))
    form = env.linear(e)
    for atom, factor in form.terms.items():
        if isinstance(atom, Var) and atom in extents:
            extent = int_value(extents[atom])
            if not extent:
                return None
            far = extent - 1 if factor * want > 0 else 0
            form = form.plus(Form({atom: 1}, -far), -factor)
        elif _uses(atom, nest):
            return None
    return add_up(form, e.dtype)


def _product_after(body: Block, k: int, roots: Mapping[str, str]) -> int | None:
    """Where the product is that first touches the accumulators that a statement fills."""
    filled = _filled(body[k])
    if filled is None or filled.name in roots or filled.name in roots.values():
        return None
    for at in range(k + 1, len(body)):
        stmt = body[at]
        if not any(n.name == filled.name for n in stmt.walk() if isinstance(n, Buffer)):
            continue
        adds = isinstance(stmt, Gemm) and stmt.c.buffer.name == filled.name
        others = (*stmt.a.walk(), *stmt.b.walk()) if isinstance(stmt, Gemm) else ()
        again = any(isinstance(n, Buffer) and n.name == filled.name for n in others)
        fresh = isinstance(stmt, Gemm) and stmt.clear_accum == Const(False, BOOL)
        whole = isinstance(stmt, Gemm) and _is_whole(stmt.c)
        return at if adds and fresh and whole and not again else None
    return None


def _filled(stmt: Stmt) -> Buffer | None:
    """The buffer that a fill or a nest gives one value for each element."""
    if isinstance(stmt, Fill):
        return stmt.dst.buffer if _is_whole(stmt.dst) else None
    if not isinstance(stmt, Parallel) or len(stmt.body) != 1:
        return None
    store = stmt.body[0]
    if type(store) is not Store or store.indices != stmt.vars:
        return None
    shape = static_shape(store.buffer)
    same = shape == tuple(int_value(e) for e in stmt.extents)
    return store.buffer if same and shape is not None else None


def _is_whole(region: Region) -> bool:
    shape = static_shape(region.buffer)
    return (
        shape is not None
        and shape == tuple(int_value(e) for e in region.extents)
        and all(int_value(m) == 0 for m in region.mins)
    )


def _is_zero(e: Expr) -> bool:
    """Whether a value is the zero that a cleared accumulator holds."""
    if isinstance(e, Cast):
        return _is_zero(e.a)
    return isinstance(e, Const) and e.value == 0 and math.copysign(1, e.value) > 0
