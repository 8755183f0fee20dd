"""Random numbers of threads, for a target that has threads.

What enters: a function of the tile stage. What leaves: one without `RngInit` and `RngNext`. The
arithmetic is that of `passes/lower_random.py`; a stream is variables of its thread. Bits and
uniform numbers are cuRAND's; normal numbers of float32 agree to the last places.
"""

from __future__ import annotations

from tilelang.ir.expr import const
from tilelang.ir.tile import Block, Function, Launch, Parallel, Stmt, Store
from tilelang.isa.target import Target
from tilelang.passes.build import Names, map_statements
from tilelang.passes.lower_random import F32, Streams, uses_streams
from tilelang.passes.simt.launch import refused


def lower_thread_random(fn: Function, target: Target) -> Function:
    """No random numbers but as arithmetic."""
    del target
    names = Names(fn)

    def one(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, Launch) or not uses_streams(stmt.body):
            return None
        return (stmt.with_(body=_OwnStreams(stmt, names, 1, const(0)).body()),)

    return fn.with_(body=map_statements(fn.body, one))


class _OwnStreams(Streams):
    """The stream of each thread, in its registers."""

    scope = "local.var"
    wide = F32  # functions of float64 cost a GPU much

    def none_started(self) -> Stmt:
        return Store(self.started, (const(0),), const(0), loc=self.launch.loc)

    def nest(self, stmt: Parallel) -> Stmt:
        raise refused(stmt, "a random number in T.Parallel")
