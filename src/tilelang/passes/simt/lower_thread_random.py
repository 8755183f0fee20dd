"""Random numbers of threads, for a target that has threads.

What enters: a function of the tile stage. What leaves: one without `RngInit` and `RngNext`. The
arithmetic is that of `passes/lower_random.py`; a stream is variables of its thread. Bits and
uniform numbers are cuRAND's; normal numbers of float32 agree to the last places.
"""

from __future__ import annotations

import math

from tilelang.ir.expr import BinaryOp, Buffer, Expr, Load, const, int_value
from tilelang.ir.special import RngInit, RngNext
from tilelang.ir.tile import Alloc, Block, Function, If, Launch, Let, Parallel, Stmt, Store
from tilelang.isa.target import Target
from tilelang.passes.build import (
    Names,
    compare,
    map_statements,
    plus,
    serial,
    statements,
    times,
)
from tilelang.passes.check.walk import DEFAULT_THREADS
from tilelang.passes.lower_random import F32, Streams, iteration, uses_streams
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
    """The stream of each thread, in its registers.

    What a nest draws is drawn before it, into shared memory, since its iterations are carried out
    by any threads.
    """

    scope = "local.var"
    wide = F32  # functions of float64 cost a GPU much

    def __init__(self, launch: Launch, names: Names, count: int, thread: Expr) -> None:
        super().__init__(launch, names, count, thread)
        self.drawn: list[Buffer] = []

    def body(self) -> Block:
        """The statements of the launch, with the memory for what nests draw."""
        made = super().body()
        return (*(Alloc(b, loc=self.launch.loc) for b in self.drawn), *made)

    def none_started(self) -> Stmt:
        return Store(self.started, (const(0),), const(0), loc=self.launch.loc)

    def nest(self, stmt: Parallel) -> Block:
        """A parallel nest that draws, and before it the draws of each thread."""
        extents = [int_value(e) for e in stmt.extents]
        draws = [s for s in stmt.body if isinstance(s, RngNext)]
        every = sum(isinstance(s, (RngNext, RngInit)) for s in statements(stmt.body))
        if every != len(draws) or None in extents:
            raise refused(stmt, "a random number under a condition or a loop in T.Parallel")
        count = math.prod(n for n in extents if n is not None)
        before: list[Stmt] = []
        kept: dict[RngNext, Buffer] = {}
        for draw in draws:
            buffer = self.names.buffer("drawn", draw.result.dtype, (count,), "shared.dyn")
            self.drawn.append(buffer)
            kept[draw] = buffer
            before += self.block((self._turns(draw, buffer, count),), self.thread)
        at = iteration(stmt)
        body = tuple(
            Let(s.result, Load(kept[s], (at,)), loc=s.loc) if isinstance(s, RngNext) else s
            for s in stmt.body
        )
        return (*before, stmt.with_(body=body))

    def _turns(self, draw: RngNext, buffer: Buffer, count: int) -> Stmt:
        """Each thread draws for its iterations: of n threads every n-th one."""
        threads = self.launch.threads or (DEFAULT_THREADS,)
        first: Expr = const(0)
        for var, extent in reversed(list(zip(self.launch.thread_vars, threads, strict=False))):
            first = plus(times(first, extent), var)
        turn, total = self.names.var("turn"), math.prod(threads)
        at = plus(times(turn, total), first)
        value = self.names.var("drawn_value", draw.result.dtype)
        body: Block = (
            draw.with_(result=value),
            Store(buffer, (at,), value, loc=draw.loc),
        )
        guarded = If(compare(BinaryOp.LT, at, count), body, loc=draw.loc)
        return serial(turn, -(-count // total), (guarded,), draw.loc)
