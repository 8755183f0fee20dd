"""The event ids that the flags of a program leave free.

What enters: a function and how many ids a pair of pipes has. What leaves: ids for flags that
lowering adds.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilelang.ir.ascend import Pipe, SetFlag, WaitFlag
from tilelang.ir.expr import Binary, BinaryOp, Expr, int_value
from tilelang.ir.tile import Function


class EventIds:
    """The event ids that the author's flags leave free, by pair of pipes."""

    def __init__(self, fn: Function, limit: int) -> None:
        self.limit = limit
        self.used: dict[tuple[Pipe, Pipe], set[int]] = {}
        for stmt in _flags(fn):
            taken = self.used.setdefault((stmt.src, stmt.dst), set())
            taken.update(_values(stmt.id, limit))

    def two(self, src: Pipe, dst: Pipe) -> tuple[int, int]:
        """Two ids for the pair. Where none is left, the last two are shared with the author."""
        taken = self.used.get((src, dst), set())
        free = [e for e in range(self.limit) if e not in taken]
        if len(free) < 2:
            free = [self.limit - 2, self.limit - 1]
        return free[0], free[1]


def _flags(fn: Function) -> Iterator[SetFlag | WaitFlag]:
    for node in fn.walk():
        if isinstance(node, (SetFlag, WaitFlag)):
            yield node


def _values(e: Expr, limit: int) -> Iterator[int]:
    """The ids that an expression may have: all below the modulus of a remainder, else all."""
    known = int_value(e)
    if known is not None:
        yield known
        return
    most = limit
    if isinstance(e, Binary) and e.op is BinaryOp.FLOORMOD and (n := int_value(e.b)) is not None:
        most = min(limit, n)
    yield from range(most)
