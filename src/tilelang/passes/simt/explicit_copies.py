"""Copies of the author's that are under way until they are waited for: `T.tma_copy`, and
`T.tma_gather4` and `T.tma_scatter4` of four rows.

What enters: one of these and the threads that reach it together. What leaves: what its leader does:
it adds the bytes to what the mbarrier expects and issues the loads, or issues the stores and closes
their group. Where the tile or the array has no boxes, these threads copy it at once, and the report
says why. In both forms the author's arrivals and waits mean the same. Copies of four rows are
instructions that the author names: where there is none, they are errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import cast

from tilelang.dtypes import DType
from tilelang.errors import error
from tilelang.ir.expr import Binary, BinaryOp, Buffer, Expr, Region, const, int_value
from tilelang.ir.sync import AsyncGemm, TmaCopy, TmaGather4, TmaScatter4
from tilelang.ir.tile import Annotate, Block, Copy, Gemm, If, Stmt, SyncThreads
from tilelang.isa.target import Capability, Target
from tilelang.passes.build import compare
from tilelang.passes.issue import FED, Issue
from tilelang.passes.lower_parallel import own_nodes, statements, written
from tilelang.passes.simt.clusters import Clusters, is_remote
from tilelang.passes.simt.launch import Threads
from tilelang.passes.simt.switches import is_off
from tilelang.passes.simt.tensor_copies import (
    Boxes,
    Placed,
    array_faults,
    boxes,
    four_rows,
    may_lie,
    placements,
)
from tilelang.scopes import Memory

U8, U64 = DType("uint8"), DType("uint64")

COPIES = (TmaCopy, TmaGather4, TmaScatter4)


class ExplicitCopies:
    """The tensor copies of one launch."""

    def __init__(self, t: Threads, target: Target, clusters: Clusters) -> None:
        self.t, self.clusters, self.target = t, clusters, target
        self.possible = target.supports(Capability.TMA) and not is_off(t.fn, "tma")
        body = t.launch.body
        self.params = {p.buffer.name for p in t.fn.params if p.buffer is not None and not p.pointer}
        self.stored = {
            b.name for s in statements(body) if not isinstance(s, COPIES) for b in written(s)
        }
        self.used = {
            n.name
            for s in statements(body)
            if not isinstance(s, (*COPIES, Annotate))
            for n in own_nodes(s)
            if isinstance(n, Buffer)
        }
        self.multiplied = {
            r.buffer.name
            for s in statements(body)
            if isinstance(s, (Gemm, AsyncGemm))
            for r in (s.a, s.b)
        }
        self.placed = placements(body)
        self.chosen: dict[str, Placed] = {}
        self.fed: dict[str, Buffer] = {}
        self.issues_stores = False

    def before(self) -> Iterator[Stmt]:
        """How the tiles lie that tensor copies move, and which ones they read."""
        for found in self.chosen.values():
            yield from found.lies()
        if self.fed:
            yield Annotate(FED, buffers=tuple(self.fed.values()))

    def after(self) -> Block:
        """A block ends when its tiles have been read."""
        if not self.issues_stores:
            return ()
        return (Issue("cp.async.bulk.wait_group.read", (), (), imm=(("count", 0),)),)

    def lower(self, stmt: TmaCopy, part: Threads) -> Block:
        """One copy by the threads of a part."""
        load = stmt.barrier is not None
        tile, place = (stmt.dst, stmt.src) if load else (stmt.src, stmt.dst)
        found = boxes(_as_bytes(tile), _as_bytes(place))
        left_out = () if self.possible else ("tensor copies are left out",)
        faults = chain(left_out, self.faults(found, load=load), self.tile_faults(found))
        fault = next(faults, None)
        if tile.buffer.name in self.multiplied and tile.dtype.is_float4():
            fault = f"the elements of {tile.buffer.name} are packed for a product"
        if fault is not None or isinstance(found, str):
            self.t.note("declined", f"T.tma_copy is done by the threads at once: {fault}", stmt.loc)
            return self.at_once(stmt, part)
        self.chosen.setdefault(tile.buffer.name, found)
        imm = cache_of(stmt)
        leader = self.leader(stmt, part)
        if stmt.barrier is None:
            closed = Issue("cp.async.bulk.commit_group", (), (), loc=stmt.loc)
            return self.store(stmt, found, leader, (*found.stores(stmt, imm), closed))
        bar = bits(stmt.barrier)
        expected = Issue("mbarrier.expect_tx", (bar,), (const(found.bytes),), loc=stmt.loc)
        if self.is_for_pair(stmt):
            there = self.clusters.leader()
            ins = (const(found.bytes), there)
            expected = Issue("mbarrier.expect_tx.cluster", (bar,), ins, loc=stmt.loc)
            body = found.loads(bar, stmt, imm, leader=there)
        elif self.is_shared(stmt):
            body = self.shared(stmt, found, bar, imm)
        else:
            body = found.loads(bar, stmt, imm)
        body = (expected, *body)
        return body if leader is None else (If(leader, body, loc=stmt.loc),)

    def rows(self, stmt: TmaGather4 | TmaScatter4, part: Threads) -> Block:
        """A copy of four rows by the threads of a part, of which the first issues it."""
        load = isinstance(stmt, TmaGather4)
        tile, place = (stmt.dst, stmt.src) if load else (stmt.src, stmt.dst)
        found = four_rows(tile, place)
        name = "T.tma_gather4" if load else "T.tma_scatter4"
        fault = next(chain(self.faults(found, load=load), self.tile_faults(found)), None)
        if fault is not None or isinstance(found, str):
            raise error(
                "async",
                f"{name} has no instruction here: {fault}",
                stmt.loc,
                expected="a tile and a parameter as docs/blackwell.md says",
                help="copy the rows one by one with T.copy",
            )
        self.chosen.setdefault(tile.buffer.name, found)
        leader, imm = part.first() if part.count > 1 else None, cache_of(stmt)
        if not isinstance(stmt, TmaGather4):
            row = "cp.async.bulk.tensor.2d.scatter4"
            body = tuple(
                Issue(row, (), (kind, region, *at), imm=imm, loc=stmt.loc)
                for kind, region, at in found.parts(stmt.rows)
            )
            return self.store(stmt, found, leader, body)
        bar = bits(stmt.barrier)
        body = tuple(
            Issue(
                "cp.async.bulk.tensor.2d.gather4",
                (region, bar),
                (kind, *at),
                imm=imm,
                loc=stmt.loc,
            )
            for kind, region, at in found.parts(stmt.rows)
        )
        return body if leader is None else (If(leader, body, loc=stmt.loc),)

    def is_for_pair(self, stmt: TmaCopy) -> bool:
        """Whether a load completes on the mbarrier of the first block of a pair."""
        return (
            not stmt.cluster_mask
            and stmt.barrier is not None
            and is_remote(self.t, stmt.barrier)
            and self.target.supports(Capability.TCGEN05)
        )

    def is_shared(self, stmt: TmaCopy) -> bool:
        """Whether several blocks receive a tile."""
        return stmt.cluster_mask.bit_count() > 1 and not self.clusters.alone

    def shared(
        self, stmt: TmaCopy, found: Boxes, bar: Region, imm: tuple[tuple[str, str], ...]
    ) -> Block:
        """A load that the blocks of a mask receive: the first of them issues it, each expects its
        bytes. A block outside of the mask loads for itself.
        """
        mask, rank = stmt.cluster_mask, self.clusters.rank()
        first = (mask & -mask).bit_length() - 1
        mine = compare(BinaryOp.EQ, rank, first)
        once = If(mine, found.loads(bar, stmt, imm, blocks=mask), loc=stmt.loc)
        if mask == (1 << self.clusters.size) - 1:
            return (once,)
        alone = found.loads(bar, stmt, imm)
        return (If(self.clusters.is_named(mask), (once,), orelse=alone, loc=stmt.loc),)

    def store(self, stmt: Stmt, found: Placed, leader: Expr | None, body: Block) -> Block:
        """A store: what all have written is ordered before, by each thread that writes the tile."""
        self.issues_stores = True
        self.fed[found.tile.buffer.name] = found.tile.buffer
        if leader is None:
            return (Issue("fence.proxy.async", (), (), loc=stmt.loc), *body)
        return (
            Issue("fence.proxy.async", (), (), loc=stmt.loc),
            SyncThreads(loc=stmt.loc),
            If(leader, body, loc=stmt.loc),
        )

    def leader(self, stmt: TmaCopy, part: Threads) -> Expr | None:
        """Whether a thread issues the copy: the first one, or one of each so many. None where the
        thread is alone.
        """
        if part.count == 1:
            return None
        scope = dict(stmt.hints).get("leader_scope_threads")
        if scope is None or scope >= part.count:
            return part.first()
        return compare(BinaryOp.EQ, Binary(BinaryOp.FLOORMOD, part.flat, const(scope)), 0)

    def at_once(self, stmt: TmaCopy, part: Threads) -> Block:
        """A copy made by the threads that get there: after it they meet, so that any of them may
        arrive for all, and what they wrote is ordered before what the units of the chip read.
        """
        copy: Block = (Copy(stmt.src, stmt.dst, loc=stmt.loc),)
        if stmt.cluster_mask:
            copy = self.clusters.to_several(stmt)
        fence = Issue("fence.proxy.async", (), (), loc=stmt.loc)
        fences = (fence,) if stmt.barrier is not None and self.possible else ()
        meet = (SyncThreads(loc=stmt.loc),) if part.count > 1 else ()
        return (*copy, *fences, *meet)

    def faults(self, found: Placed | str, *, load: bool) -> Iterator[str]:
        """Why a tensor copy cannot move the tile."""
        if isinstance(found, str):
            yield found
            return
        array = found.place.buffer
        yield from array_faults(array, self.params, self.t.launch.body)
        if array.name in (self.stored if load else self.used):
            yield f"the kernel uses {array.name} otherwise too"

    def tile_faults(self, found: Placed | str) -> Iterator[str]:
        """Why the tile cannot lie as tensor copies want it."""
        if isinstance(found, str):
            return
        name = found.tile.buffer.name
        known = self.placed.get(name)
        if name in self.chosen:
            known = self.chosen[name].placement
        if self.t.memory(found.tile.buffer) is not Memory.SHARED:
            yield f"{name} is not in shared memory"
        if name in self.t.roots or name in self.t.roots.values():
            yield f"another view of {name} exists"
        elif known not in (None, found.placement) or not may_lie(found, self.multiplied):
            yield f"{name} has to lie otherwise"


def _as_bytes(region: Region) -> Region:
    """A region of elements that take a byte each, though they are smaller, as one of bytes."""
    dtype = region.dtype
    small = dtype.is_subbyte or dtype.is_float4_e2m1_unpacked()
    return region.with_(buffer=region.buffer.with_(type=U8)) if small else region


def expected_once(body: Block) -> Block:
    """Statements in which loads that follow each other, by one thread and on one mbarrier, say
    once how many bytes it expects.
    """
    out: list[Stmt] = []
    for stmt in body:
        before, now = (_expected(s) for s in (out[-1] if out else None, stmt))
        if before is None or now is None or before[:2] != now[:2]:
            out.append(stmt)
            continue
        first, last = cast("If", out[-1]), cast("If", stmt)
        expect = cast("Issue", first.then[0])
        ins = (const(before[2] + now[2]), *expect.ins[1:])
        out[-1] = first.with_(then=(expect.with_(ins=ins), *first.then[1:], *last.then[1:]))
    return tuple(out)


def _expected(stmt: Stmt | None) -> tuple[Expr, tuple[object, ...], int] | None:
    """By whom, where, and how many bytes a load makes an mbarrier expect, if it is one."""
    issue = next(iter(stmt.then), None) if isinstance(stmt, If) and not stmt.orelse else None
    if not isinstance(stmt, If) or not isinstance(issue, Issue):
        return None
    size = int_value(cast("Expr", issue.ins[0])) if issue.ins else None
    if not issue.row.startswith("mbarrier.expect_tx") or size is None:
        return None
    where = (issue.row, issue.outs[0], *issue.ins[1:])
    return stmt.cond, where, size


def cache_of(stmt: TmaCopy | TmaGather4 | TmaScatter4) -> tuple[tuple[str, str], ...]:
    """How L2 keeps what a copy moves, as an instruction says it."""
    cache = dict(stmt.hints).get("eviction_policy")
    return (("cache", cache),) if cache else ()


def bits(barrier: Region) -> Region:
    """An mbarrier as the 64 bits that it takes."""
    return barrier.with_(buffer=barrier.buffer.with_(type=U64, scope="shared.dyn"))
