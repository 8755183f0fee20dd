"""The threads of a block: their indices, and the place of a thread among them.

What enters: a launch. What leaves: its axes, and the index of a thread as one number.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilelang.ir.expr import Expr, Var, const
from tilelang.ir.tile import Launch
from tilelang.passes.build import plus, times
from tilelang.passes.check.walk import DEFAULT_THREADS
from tilelang.scopes import Dialect

Axes = Sequence[tuple[Var, int]]


def thread_axes(launch: Launch, dialect: Dialect) -> list[tuple[Var, int]]:
    """The three thread indices with their extents."""
    default = DEFAULT_THREADS if dialect is Dialect.COMMON else 1
    extents = (*(launch.threads or (default,)), 1, 1)[:3]
    return list(zip(launch.thread_vars, extents, strict=True))


def thread_index(axes: Axes) -> Expr:
    """The place of a thread in its block, x fastest."""
    total: Expr = const(0)
    for var, extent in reversed(axes):
        total = plus(times(total, extent), var if extent > 1 else 0)
    return total
