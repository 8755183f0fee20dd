"""Threads of a kernel with Tensor Memory end together: columns are given back by a whole warp, when
nobody uses them any more.

What enters: a function of the tile stage. What leaves: one in which such a launch has no return:
what follows one is under the condition that the thread has not returned. Where the return stands
under a condition of its own, outside of loops, that is its negation, so that a condition on the
thread index still names the threads that go on; else a variable says it.
"""

from __future__ import annotations

from tilelang.ir.expr import Binary, BinaryOp, Buffer, Load, Unary, UnaryOp, const
from tilelang.ir.tile import (
    Alloc,
    Block,
    Break,
    For,
    Function,
    If,
    Launch,
    Stmt,
    Store,
    ThreadReturn,
    While,
)
from tilelang.isa.target import Target
from tilelang.passes.build import Names, map_statements
from tilelang.passes.lower_parallel import statements
from tilelang.scopes import Dialect, Memory, memory_of


def end_together(fn: Function, target: Target) -> Function:
    """No thread of a launch with Tensor Memory returns before its end."""
    del target
    names, dialect = Names(fn), Dialect(fn.dialect)

    def one(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, Launch) or not _returns(stmt.body):
            return None
        allocs = (s.buffer.scope for s in statements(stmt.body) if isinstance(s, Alloc))
        if all(memory_of(dialect, scope) is not Memory.TMEM for scope in allocs):
            return None
        return (stmt.with_(body=_Ends(names).lower(stmt.body)),)

    return fn.with_(body=map_statements(fn.body, one))


def _returns(body: Block) -> bool:
    return any(isinstance(s, ThreadReturn) for s in statements(body))


def _always(body: Block) -> bool:
    """Whether every thread that gets here returns."""
    return any(
        isinstance(s, ThreadReturn) or (isinstance(s, If) and _always(s.then) and _always(s.orelse))
        for s in body
    )


class _Ends:
    """One launch; `gone` is set where a thread has returned, and `asked` says that it is needed."""

    def __init__(self, names: Names) -> None:
        self.gone: Buffer = names.buffer("gone", const(0).dtype, (1,), "local.var")
        self.asked: bool = False

    def lower(self, body: Block) -> Block:
        """The body without returns."""
        made = self.block(body, 0)
        if self.asked:
            return (Alloc(self.gone), *made)
        return map_statements(made, lambda s: () if self.is_set(s) else None)

    def is_set(self, stmt: Stmt) -> bool:
        """Whether a statement says that the thread has returned."""
        return isinstance(stmt, Store) and stmt.buffer.name == self.gone.name

    def block(self, body: Block, loops: int) -> Block:
        """Statements inside so many loops."""
        out: list[Stmt] = []
        for k, stmt in enumerate(body):
            if isinstance(stmt, ThreadReturn):
                out.append(Store(self.gone, (const(0),), const(1), loc=stmt.loc))
                return (*out, Break(loc=stmt.loc)) if loops else tuple(out)
            if not _returns((stmt,)):
                out.append(stmt)
                continue
            rest = body[k + 1 :]
            if isinstance(stmt, If) and not loops and (_always(stmt.then) or _always(stmt.orelse)):
                return (*out, *self.parted(stmt, rest))
            inner = loops + isinstance(stmt, (For, While))
            changes = {
                f: self.block(getattr(stmt, f), inner)
                for f in ("body", "then", "orelse")
                if hasattr(stmt, f)
            }
            out.append(stmt.with_(**changes))
            if loops and isinstance(stmt, (For, While)):
                out.append(If(self.left(BinaryOp.NE), (Break(loc=stmt.loc),), loc=stmt.loc))
            elif not loops and rest:
                allocs, rest = _allocs_first(self.block(rest, 0))
                here = If(self.left(BinaryOp.EQ), rest, loc=rest[0].loc if rest else stmt.loc)
                return (*out, *allocs, *((here,) if rest else ()))
        return tuple(out)

    def parted(self, stmt: If, rest: Block) -> Block:
        """A condition one of whose ways ends; what follows is a part of the other."""
        then, orelse = stmt.then, stmt.orelse
        if _always(then):
            orelse = (*orelse, *rest)
        else:
            then = (*then, *rest)
        first, then = _allocs_first(self.block(then, 0))
        second, orelse = _allocs_first(self.block(orelse, 0))
        allocs = (*first, *second)
        if any(not self.is_set(s) for s in then):
            return (*allocs, stmt.with_(then=then, orelse=orelse))
        cond, marks = Unary(UnaryOp.NOT, stmt.cond), then
        if not orelse:
            return (*allocs, stmt.with_(then=marks))
        # Which threads go on is said first: they may be those of a part of the block.
        return (*allocs, If(cond, orelse, orelse=marks, loc=stmt.loc))

    def left(self, op: BinaryOp) -> Binary:
        """Whether the thread has returned (NE), or not (EQ)."""
        self.asked = True
        return Binary(op, Load(self.gone, (const(0),)), const(0))


def _allocs_first(body: Block) -> tuple[Block, Block]:
    """Memory that a part of the threads allocates is memory of the block; the rest."""
    allocs = tuple(s for s in body if isinstance(s, Alloc) and s.init is None)
    return allocs, tuple(s for s in body if s not in allocs)
