"""Which threads of a block a condition can hold for, as far as thread indices say.

What enters: a launch, its statements, and conditions. What leaves: for each condition the threads
that can take it, and what is left to decide among them. Threads are counted x fastest.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from tilelang.ir.affine import is_stable
from tilelang.ir.expr import BOOL, Binary, BinaryOp, Expr, Unary, UnaryOp, Var, const
from tilelang.ir.special import Collective
from tilelang.ir.sync import GROUP, WARP, WarpSpecialize
from tilelang.ir.tile import Launch, Let, Stmt
from tilelang.passes.check.domain import UnknownValueError, value_of
from tilelang.passes.check.walk import DEFAULT_THREADS, expand
from tilelang.scopes import Dialect

Truth = npt.NDArray[np.bool_]
Values = npt.NDArray[np.int64]

TRUE, FALSE = const(value=True, dtype=BOOL), const(value=False, dtype=BOOL)

_ANDS = frozenset({BinaryOp.AND, BinaryOp.BITAND})
_LOGICAL = _ANDS | {BinaryOp.OR, BinaryOp.BITOR}


def is_logical(e: Expr) -> bool:
    """Whether a condition is made of conditions: `and`, `or`, `not`."""
    match e:
        case Binary():
            return e.op in _LOGICAL and e.dtype.is_bool
        case Unary():
            return e.op is UnaryOp.NOT
        case _:
            return False


def extents_of(launch: Launch, dialect: Dialect) -> tuple[int, ...]:
    """The threads of a block along x, y and z, also where the author leaves them to the target."""
    default = DEFAULT_THREADS if dialect is Dialect.COMMON else 1
    return (*(launch.threads or (default,)), 1, 1)[:3]


class Threads:
    """What is known of every thread of a block before the program runs.

    `stmts` are the statements of the launch in order, at every depth: names that they bind to
    values of thread indices are known, too.
    """

    def __init__(self, launch: Launch, extents: tuple[int, ...], stmts: Iterable[Stmt]) -> None:
        self.extents = extents
        self.count = int(np.prod(extents))
        z, y, x = np.indices(extents[::-1], dtype=np.int64).reshape(3, -1)
        self._given: dict[Var, Values] = dict(zip(launch.thread_vars, (x, y, z), strict=False))
        self._parting = {v for v, n in zip(launch.thread_vars, extents, strict=False) if n > 1}
        self._lets: dict[Var, Expr] = {}
        self._known: dict[Expr, Values | None] = {}
        for stmt in stmts:
            if isinstance(stmt, Let) and is_stable(stmt.value):
                self._lets[stmt.var] = expand(stmt.value, self._lets)
            elif isinstance(stmt, Collective) and stmt.fn == "elect":
                size = stmt.params[0] or self.count
                self._given[stmt.result] = (np.arange(self.count) % size == 0).astype(np.int64)
                self._parting.add(stmt.result)

    def everyone(self) -> Truth:
        """All threads."""
        return np.ones(self.count, np.bool_)

    def values(self, e: Expr) -> Values | None:
        """The value of an integer expression in every thread; None where that is not known."""
        if e not in self._known:
            try:
                found = value_of(expand(e, self._lets), self._given)
                self._known[e] = np.broadcast_to(np.asarray(found, np.int64), (self.count,))
            except UnknownValueError:
                self._known[e] = None
        return self._known[e]

    def names_thread(self, e: Expr) -> bool:
        """Whether a thread index is in an expression, or in the names that it uses."""
        nodes = expand(e, self._lets).walk()
        return any(isinstance(n, Var) and n in self._parting for n in nodes)

    def can(self, cond: Expr, *, holds: bool = True) -> Truth:
        """The threads for which a condition can hold, or with `holds` False can fail."""
        match cond:
            case Unary(op=UnaryOp.NOT):
                return self.can(cond.a, holds=not holds)
            case Binary(op=op) if is_logical(cond):
                a, b = self.can(cond.a, holds=holds), self.can(cond.b, holds=holds)
                return a & b if (op in _ANDS) == holds else a | b
            case _:
                values = self.values(cond)
                return self.everyone() if values is None else (values != 0) == holds

    def left(self, cond: Expr, among: Truth) -> Expr:
        """What is left to decide of a condition for the threads `among`: `TRUE` or `FALSE` if that
        is what it is for all of them.
        """
        if not (self.can(cond, holds=False) & among).any():
            return TRUE
        if not (self.can(cond) & among).any():
            return FALSE
        match cond:
            case Unary(op=UnaryOp.NOT):
                return Unary(UnaryOp.NOT, self.left(cond.a, among))
            case Binary(op=op) if is_logical(cond):
                a, b = self.left(cond.a, among), self.left(cond.b, among)
                neutral = TRUE if op in _ANDS else FALSE
                if neutral in (a, b):
                    return b if a == neutral else a
                return Binary(op, a, b)
            case _:
                return cond

    def groups(self, stmt: WarpSpecialize) -> Truth:
        """The threads of some warp groups."""
        return np.isin(np.arange(self.count) // GROUP, stmt.groups)

    def warps(self, truth: Truth) -> tuple[Truth, Truth]:
        """For each warp, whether some and whether all of its threads are meant."""
        starts = np.arange(0, self.count, WARP)
        return np.logical_or.reduceat(truth, starts), np.logical_and.reduceat(truth, starts)

    def whole(self, truth: Truth) -> bool:
        """Whether each warp is meant as a whole or not at all."""
        some, every = self.warps(truth)
        return bool((some == every).all())


def ranges(truth: Truth) -> list[tuple[int, int]]:
    """The threads that are meant as ranges: the first of each, and the one after its last."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], truth.astype(np.int8), [0]])))
    return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]
