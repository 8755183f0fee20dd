"""Loops whose products one warp issues, while others copy ahead and yet others use the results.

What enters: a loop in which tiles are only multiplied into Tensor Memory. What leaves: an `Issuer`:
the statements of the thread that issues the products, and of the threads that wait for them.
`ready` completes when every warp of the latter is done with what the products change or read,
`done` when the products of all rounds are complete. A stage is given back by the products that read
it (`tcgen05.commit`), so no thread waits for a product of one round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tilelang.dtypes import DType
from tilelang.ir.expr import Binary, BinaryOp, Buffer, Expr, Load, Region, const
from tilelang.ir.node import Node
from tilelang.ir.sync import AsyncGemm, AsyncUnit
from tilelang.ir.tile import Alloc, Block, Gemm, If, Let, Stmt, Store
from tilelang.passes.build import compare, map_statements, plus
from tilelang.passes.issue import DONE, Issue
from tilelang.passes.simt.launch import WARP, Threads
from tilelang.passes.simt.tcgen05 import issued_product
from tilelang.scopes import Memory

U64, I32 = DType("uint64"), DType("int32")
WAIT = "mbarrier.try_wait.parity"


@dataclass(frozen=True)
class Issuer:
    """The hand-over of one loop. A loop that is reached several times has counters: `theirs` of the
    thread that issues, `mine` of those that wait.
    """

    ready: Buffer
    done: Buffer
    theirs: Buffer | None
    mine: Buffer | None

    @property
    def barriers(self) -> tuple[Buffer, Buffer]:
        """The mbarriers."""
        return (self.ready, self.done)

    def setup(self, warps: int) -> Block:
        """The mbarriers are set up for that many warps that wait."""
        return (
            Issue("mbarrier.init", (_one(self.ready),), (const(warps),)),
            Issue("mbarrier.init", (_one(self.done),), (const(1),)),
        )

    def begin(self, stmt: Stmt) -> Block:
        """Before the first round, by the thread that issues."""
        return (Issue(WAIT, (), (_one(self.ready), _parity(self.theirs)), loc=stmt.loc),)

    def end(self, stmt: Stmt) -> Block:
        """After the last round, by the thread that issues."""
        commit = Issue("tcgen05.commit", (_one(self.done),), (), loc=stmt.loc)
        return (commit, *_next(self.theirs))

    def wait(self, t: Threads, stmt: Stmt, tiles: tuple[Region, ...]) -> Block:
        """In the place of the loop, by the threads that wait. They do not use `tiles` themselves,
        but keep nothing else in their place until here.
        """
        lane = Binary(BinaryOp.FLOORMOD, t.index, const(WARP))
        arrive = Issue("mbarrier.arrive", (_one(self.ready),), (), loc=stmt.loc)
        return (
            Issue("bar.warp.sync", (), (), imm=(("mask", 0xFFFFFFFF),), loc=stmt.loc),
            If(compare(BinaryOp.EQ, lane, 0), (arrive,), loc=stmt.loc),
            Issue(WAIT, (), (_one(self.done), _parity(self.mine)), loc=stmt.loc),
            Issue(DONE, (), tiles, loc=stmt.loc),
            *_next(self.mine),
        )


def issuer(
    rest: Block, t: Threads, knows: Callable[[Node], bool], *, nested: bool
) -> Issuer | None:
    """The hand-over of a loop with these statements, if all they do is to multiply tiles."""
    products = [s for s in rest if type(s) is Gemm]
    if not products or not all(_is_issued(s, t, knows) for s in rest):
        return None
    names = t.names

    def counter() -> Buffer | None:
        return names.buffer("visits", I32, (1,), "local.var") if nested else None

    ready, done = (names.buffer(n, U64, (1,), "shared.dyn") for n in ("ready", "multiplied"))
    return Issuer(ready, done, counter(), counter())


def _is_issued(stmt: Stmt, t: Threads, knows: Callable[[Node], bool]) -> bool:
    """Whether the thread that issues products can do a statement by itself."""
    if isinstance(stmt, Let):
        return knows(stmt.value)
    if isinstance(stmt, Alloc):
        return t.memory(stmt.buffer) is Memory.SHARED
    if type(stmt) is not Gemm:
        return False
    return t.memory(stmt.c.buffer) is Memory.TMEM and knows(stmt.clear_accum)


def issued(stmt: Gemm) -> AsyncGemm:
    """A product that is not waited for where it stands."""
    return AsyncGemm(
        stmt.a,
        stmt.b,
        stmt.c,
        stmt.clear_accum,
        unit=AsyncUnit.TCGEN05,
        transpose_a=stmt.transpose_a,
        transpose_b=stmt.transpose_b,
        loc=stmt.loc,
    )


def lower_issuers(body: Block, t: Threads) -> Block:
    """Statements of threads that issue by themselves, with their products as instructions."""

    def one(stmt: Stmt) -> Block | None:
        return issued_product(stmt, t) if isinstance(stmt, AsyncGemm) else None

    return map_statements(body, one)


def _one(buffer: Buffer) -> Region:
    return Region(buffer, (const(0),), (const(1),))


def _parity(count: Buffer | None) -> Expr:
    """The parity of a phase, by how often the loop was reached before."""
    if count is None:
        return const(0)
    return Binary(BinaryOp.FLOORMOD, Load(count, (const(0),)), const(2))


def _next(count: Buffer | None) -> Iterator[Stmt]:
    if count is not None:
        yield Store(count, (const(0),), plus(Load(count, (const(0),)), 1))
