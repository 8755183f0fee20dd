"""How long each statement keeps each pipe, roughly, from the chip's table of costs.

What enters: a statement of the tile stage. What leaves: cycles by agent. Sizes that are known only
when the kernel runs, and rounds of loops, count as `ROUNDS`: these numbers choose between orders
and are no times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilelang.ir.ascend import Core, Pipe, Transfer, VectorFunction, VectorKind, VectorOp
from tilelang.ir.ascend_simd import SimdOp
from tilelang.ir.expr import Expr, Region, int_value
from tilelang.ir.simplify import simplify
from tilelang.ir.tile import (
    Atomic,
    Block,
    Copy,
    For,
    Function,
    Gemm,
    Pipelined,
    Stmt,
    While,
)
from tilelang.ir.walk import bodies
from tilelang.isa.target import Costs, Rate
from tilelang.passes.ascend.effects import Agent, Effects
from tilelang.passes.build import minus
from tilelang.scopes import Memory

ROUNDS = 8
"""The most rounds of a loop that count: by then it goes on as it will."""

SPECIAL = frozenset({"exp", "ln", "sqrt", "rsqrt", "sigmoid", "silu", "sin", "cos", "pow"})
DIVIDE = frozenset({"div", "reciprocal", "row_expand_div"})


@dataclass(frozen=True)
class Span:
    """How long a pipe is kept, and after how long the work is done."""

    busy: int
    done: int

    def and_then(self, other: Span) -> Span:
        """One after the other."""
        return Span(self.busy + other.busy, max(self.done, self.busy + other.done))


_MOVED = (Copy, Transfer, Atomic)
_LANES = 64
"""Threads or elements of 4 bytes in one vector instruction."""


class Pace:
    """The cycles of the statements of one function."""

    def __init__(self, fn: Function, costs: Costs) -> None:
        self.effects = Effects(fn)
        self.costs = costs
        self._known: dict[tuple[int, Core | None], tuple[Stmt, dict[Agent, Span]]] = {}

    def of(self, stmt: Stmt, core: Core | None = None) -> dict[Agent, Span]:
        """What a statement takes itself, without those inside it; worked out once."""
        known = self._known.get((id(stmt), core))
        if known is None:  # the statement is kept, so nothing else gets its id
            known = self._known[id(stmt), core] = stmt, self._own(stmt, core)
        return dict(known[1])

    def _own(self, stmt: Stmt, core: Core | None) -> dict[Agent, Span]:
        touched = self.effects.of(stmt, core)
        found: dict[Agent, Span] = {}
        for by in dict.fromkeys([*self.effects.agents(stmt), *(a.by for a in touched)]):
            if by.pipe is Pipe.S:
                cycles = self.costs.scalar * sum(a.by == by for a in touched)
                found[by] = Span(cycles, cycles)
            else:
                found[by] = self._span(stmt, by)
        return found

    def inside(self, stmt: Stmt, core: Core | None = None) -> dict[Agent, Span]:
        """What a statement and all those inside it take, in all rounds."""
        total = self.of(stmt, core)
        if isinstance(stmt, VectorFunction):
            return total
        count = rounds(stmt)
        for one in (s for body in bodies(stmt) for s in body):
            for by, span in self.inside(one, core).items():
                all_rounds = Span(span.busy * count, span.busy * (count - 1) + span.done)
                total[by] = total.get(by, Span(0, 0)).and_then(all_rounds)
        return total

    def _span(self, stmt: Stmt, by: Agent) -> Span:
        """One statement on a pipe other than the scalar unit's."""
        if isinstance(stmt, VectorFunction):
            cycles = max(stmt.latency, _function(stmt, self.costs))
            return Span(cycles, cycles)
        if isinstance(stmt, Gemm):
            return self._product(stmt, by)
        if isinstance(stmt, _MOVED):
            src = stmt.value if isinstance(stmt, Atomic) else stmt.src
            at = self.effects.memory(src.buffer) if isinstance(src, Region) else Memory.UB
            rate = self.costs.moves.get((at, self.effects.memory(stmt.dst.buffer)))
            ends = [r for r in (src, stmt.dst) if isinstance(r, Region)]
            return _span(rate or self.costs.vector["plain"], min(map(_bytes, ends)))
        kind = "plain"
        if isinstance(stmt, VectorOp):
            kind = "special" if stmt.op in SPECIAL else "divide" if stmt.op in DIVIDE else kind
        regions = [n for _, n in stmt.effects() if isinstance(n, Region)]
        return _span(self.costs.vector[kind], max(map(_bytes, regions), default=0))

    def _product(self, stmt: Gemm, by: Agent) -> Span:
        """The loads of L0A and L0B, or the sums."""
        if by.pipe is not Pipe.M:
            a, b = (self.costs.moves[Memory.L1, m] for m in (Memory.L0A, Memory.L0B))
            return _span(a, _bytes(stmt.a)).and_then(_span(b, _bytes(stmt.b)))
        m, n = (_number(e) for e in stmt.c.extents[-2:])
        k = _number(stmt.a.extents[-2 if stmt.transpose_a else -1])
        rate = self.costs.cube.get(stmt.a.dtype.name, self.costs.cube[""])
        return _span(rate, 2 * m * n * k)


def _span(rate: Rate, units: int) -> Span:
    busy = rate.busy(units)
    return Span(busy, busy + rate.latency)


def rounds(stmt: Stmt) -> int:
    """How often the body of a statement counts."""
    if isinstance(stmt, (For, Pipelined)):
        count = int_value(simplify(minus(stmt.stop, stmt.start)))
        step = int_value(stmt.step) if isinstance(stmt, For) and stmt.step is not None else 1
        if count is None or not step:
            return ROUNDS
        return max(0, min(ROUNDS, -(-count // step)))
    return ROUNDS if isinstance(stmt, While) else 1


def _number(e: Expr) -> int:
    known = int_value(e)
    return ROUNDS if known is None else known


def _bytes(r: Region) -> int:
    return math.prod(map(_number, r.extents)) * r.buffer.dtype.bits * r.buffer.dtype.lanes // 8


def _function(stmt: VectorFunction, costs: Costs) -> int:
    """A function of the vector core: its instructions, each for a register of elements."""
    if stmt.kind is VectorKind.SIMD:
        return _instructions(stmt.body)
    groups = -(-math.prod(stmt.threads) // _LANES)
    each = costs.vector["plain"].busy(4 * _LANES)
    return each * groups * _instructions(stmt.body)


def _instructions(body: Block) -> int:
    """The instructions of a body, over all rounds of its loops."""
    total = 0
    for stmt in body:
        inner = [_instructions(b) for b in bodies(stmt)]
        if inner:
            trips = (
                int_value(simplify(minus(stmt.stop, stmt.start))) if isinstance(stmt, For) else 1
            )
            total += sum(inner) * (ROUNDS if trips is None else trips)
        elif isinstance(stmt, SimdOp):
            total += 1
        else:
            total += sum(isinstance(n, Expr) for n in stmt.walk()) // 2
    return total
