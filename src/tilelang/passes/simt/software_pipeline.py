"""Pipelined loops with `cp.async`: copies are issued rounds before their data is used.

What enters: a function with pipelined loops. What leaves: plain loops. Where a loop's copies may be
done ahead, their tiles have one place for each stage; the first copies are issued before the loop,
and each round waits for its own data, issues the copies of the round `stages - 1` later, and goes
on. The number of rounds may be anything. What cannot be done ahead stays where it is, and the
report says why. Results do not change.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from tilelang.ir.expr import BinaryOp, Buffer, Expr, const
from tilelang.ir.sync import AsyncCopy, CommitGroup, WaitGroup
from tilelang.ir.tile import (
    Alloc,
    Annotate,
    Block,
    Copy,
    For,
    Function,
    If,
    Launch,
    Let,
    Pipelined,
    Stmt,
)
from tilelang.isa.target import Capability, Target
from tilelang.passes.build import (
    Names,
    Renamer,
    as_type,
    compare,
    map_bodies,
    map_statements,
    plus,
    serial,
)
from tilelang.passes.lower_copies import view_roots
from tilelang.passes.lower_parallel import statements
from tilelang.passes.simt.launch import Note, Threads, noted, static_shape
from tilelang.passes.simt.stages import (
    Declined,
    Plan,
    allocations,
    in_stage,
    plan,
    stage_of,
    staged_buffer,
    unusual,
)
from tilelang.passes.simt.switches import is_off
from tilelang.scopes import Memory

MOST_STAGES = 8


def software_pipeline(fn: Function, target: Target) -> Function:
    """No pipelined loops: copies issued ahead where that is possible."""
    names, roots = Names(fn), view_roots(fn)
    notes: list[Note] = []

    def one(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, Launch):
            return None
        threads = Threads(fn, stmt, names, roots)
        body = _Pipelines(threads, target).lower(stmt.body)
        notes.extend(threads.notes)
        return (stmt.with_(body=body),)

    return noted(fn.with_(body=map_statements(fn.body, one)), notes)


class _Pipelines:
    """One launch."""

    def __init__(self, threads: Threads, target: Target) -> None:
        self.t, self.target = threads, target
        self.names = threads.names

    def lower(self, body: Block) -> Block:
        """The body without pipelined loops, the first ones first."""
        while True:
            loop = next((s for s in statements(body) if isinstance(s, Pipelined)), None)
            if loop is None:
                return body
            body = self.one(body, loop)

    def one(self, body: Block, loop: Pipelined) -> Block:
        """The body without one of its pipelined loops."""
        found = self.planned(body, loop)
        if isinstance(found, Declined):
            if loop.num_stages > 1:
                self.t.note("declined", f"not pipelined: {found.reason}", found.loc)
            plain = For(loop.var, loop.start, loop.stop, loop.body, loc=loop.loc)
            return map_statements(body, lambda s: (plain,) if s is loop else None)
        stages = self.stages(body, found)
        if stages < 2:
            self.t.note("declined", "not pipelined: shared memory has no room for stages", loop.loc)
            plain = For(loop.var, loop.start, loop.stop, loop.body, loc=loop.loc)
            return map_statements(body, lambda s: (plain,) if s is loop else None)
        self.t.note("pipelined", f"{stages} stages with cp.async", loop.loc)
        tiles = {b.name: staged_buffer(b, stages) for b in found.tiles}
        made = self.pipelined(found, tiles, stages)
        return self.replaced(body, loop, made, tiles)

    def planned(self, body: Block, loop: Pipelined) -> Plan | Declined:
        """What of a loop is done ahead."""
        why = next(self.faults(loop), None)
        if why is not None:
            return Declined(loop.loc, why)
        found = plan(loop, self.t, body)
        if isinstance(found, Declined):
            return found
        odd = unusual(loop.body, {b.name: b for b in found.tiles})
        return found if odd is None else Declined(odd.loc, "a tile is used as a whole buffer")

    def faults(self, loop: Pipelined) -> Iterator[str]:
        """Why nothing of a loop is copied ahead, whatever it copies."""
        if loop.num_stages < 2:
            yield "one stage"
        if not self.target.supports(Capability.CP_ASYNC):
            yield "the chip has no cp.async"
        if is_off(self.t.fn, "cp-async"):
            yield "cp.async is left out"
        if any(isinstance(s, (AsyncCopy, CommitGroup, WaitGroup)) for s in statements(loop.body)):
            yield "groups of cp.async copies are counted in the loop"

    def stages(self, body: Block, found: Plan) -> int:
        """How many stages there is room for."""
        capacity = self.target.capacity(Memory.SHARED)
        stages = min(found.loop.num_stages, MOST_STAGES)
        if capacity is None:
            return stages
        total = sum(
            byte_size(a.buffer)
            for a in allocations(body)
            if self.t.memory(a.buffer) is Memory.SHARED
        )
        each = sum(byte_size(b) for b in found.tiles)
        room = max(0, capacity.amount - total - 2048)
        return min(stages, 1 + room // max(1, each))

    def replaced(
        self, body: Block, loop: Pipelined, made: Block, tiles: dict[str, Buffer]
    ) -> Block:
        """The body with the loop replaced, and its tiles allocated with their stages."""

        def one(stmt: Stmt) -> Block | None:
            if isinstance(stmt, Alloc) and stmt.buffer.name in tiles:
                return (stmt.with_(buffer=tiles[stmt.buffer.name]),)
            if isinstance(stmt, Annotate) and any(b.name in tiles for b in stmt.buffers):
                return ()
            return None

        def swap(block: Block) -> Block:
            out: list[Stmt] = []
            for s in block:
                if s is loop:
                    inside = [
                        a for a in loop.body if isinstance(a, Alloc) and a.buffer.name in tiles
                    ]
                    out += [a.with_(buffer=tiles[a.buffer.name]) for a in inside]
                    out += made
                else:
                    out.append(map_bodies(s, swap))
            return tuple(out)

        return map_statements(swap(body), one)

    # The loop ------------------------------------------------------------------------------------

    def pipelined(self, found: Plan, tiles: dict[str, Buffer], stages: int) -> Block:
        """The first copies, and the loop. In its last round all of its copies are complete: the
        groups that may still be under way are empty.
        """
        loop = found.loop
        var, loc = loop.var, loop.loc
        first = self.names.var("ahead", var.type)
        begin = plus(as_type(loop.start, var.type), first)
        before: Block = (
            self.issue(found, tiles, stages, begin, as_type(loop.stop, var.type)),
            CommitGroup(loc=loc),
        )
        later = plus(var, as_type(const(stages - 1), var.type))
        stage = stage_of(loop, var, stages)
        inside = tuple(
            in_stage(s, tiles, stage)
            for s in found.rest
            if not (isinstance(s, Alloc) and s.buffer.name in tiles)
        )
        body: Block = (
            WaitGroup(const(stages - 2), loc=loc),
            self.issue(found, tiles, stages, later, as_type(loop.stop, var.type)),
            CommitGroup(loc=loc),
            *inside,
        )
        return (
            serial(first, stages - 1, before, loc),
            For(var, loop.start, loop.stop, body, loc=loc),
        )

    def issue(
        self, found: Plan, tiles: dict[str, Buffer], stages: int, k: Expr, stop: Expr
    ) -> Stmt:
        """The copies of round `k`, if there is one."""
        loop = found.loop
        at = self.names.var(f"{loop.var.name}_ahead", loop.var.type)
        copy = Renamer(self.names)
        copy.map[loop.var.name] = at
        lets = [cast("Stmt", copy.of(s)) for s in found.lets]
        stage = stage_of(loop, at, stages)
        copies: list[Stmt] = []
        for c in found.ahead:
            moved = cast("Copy", copy.of(in_stage(c, tiles, stage)))
            copies.append(AsyncCopy(moved.src, moved.dst, commit=False, loc=c.loc))
        body = (Let(at, k, loc=loop.loc), *lets, *copies)
        return If(compare(BinaryOp.LT, k, stop), body, loc=loop.loc)


def byte_size(buffer: Buffer) -> int:
    """The size of a buffer of constant extents."""
    shape = static_shape(buffer) or ()
    size = buffer.dtype.bytes
    for n in shape:
        size *= n
    return size
