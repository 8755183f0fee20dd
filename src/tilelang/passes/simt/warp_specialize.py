"""Pipelined loops with the Tensor Memory Accelerator: one warp issues copies, warpgroups compute.

What enters: a function with pipelined loops. What leaves: one in which the launches whose loops
allow it have roles: a warpgroup of its own, of which one thread issues the tensor copies of all
rounds, and the threads that the author asked for, which do everything else. mbarriers hand tiles
over and back: `full` completes when the bytes of a stage have come, `empty` when every consumer
warp has read it. Loops that do not allow it are left to `software_pipeline`, and the report says
why. Results do not change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import cast

from tilelang.dtypes import DType
from tilelang.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Expr,
    Load,
    Region,
    const,
    int_value,
)
from tilelang.ir.scales import PairScaledGemm
from tilelang.ir.special import GemmBlockScaled
from tilelang.ir.sync import AsyncGemm
from tilelang.ir.tile import (
    Alloc,
    Annotate,
    Block,
    Break,
    Continue,
    Copy,
    For,
    Function,
    Gemm,
    If,
    Launch,
    Let,
    Pipelined,
    Stmt,
    Store,
    SyncThreads,
    ThreadReturn,
    While,
)
from tilelang.isa.target import Capability, Target
from tilelang.passes.build import (
    Names,
    Renamer,
    as_type,
    compare,
    map_bodies,
    map_statements,
    minus,
    plus,
)
from tilelang.passes.issue import Arm, Handover, Issue, Roles
from tilelang.passes.lower_copies import view_roots
from tilelang.passes.lower_parallel import statements, written
from tilelang.passes.simt.ahead import Ahead, way_to
from tilelang.passes.simt.launch import WARP, Note, Threads, noted
from tilelang.passes.simt.operands import reads_tiles
from tilelang.passes.simt.persistent import STAGES, free_bytes, result_bytes
from tilelang.passes.simt.software_pipeline import byte_size
from tilelang.passes.simt.stages import (
    Declined,
    Plan,
    awaited,
    in_stage,
    plan,
    staged_buffer,
    unusual,
)
from tilelang.passes.simt.switches import is_off
from tilelang.passes.simt.tcgen05_roles import Issuer, issued, issuer
from tilelang.passes.simt.tensor_copies import Boxes, array_faults, boxes, may_lie

PRODUCERS = 128
"""Threads of the warpgroup that issues copies."""

PRODUCTS = (Gemm, AsyncGemm, GemmBlockScaled)
"""What makes a loop worth a warp that copies ahead."""

U64, I32 = DType("uint64"), DType("int32")


def warp_specialize(fn: Function, target: Target) -> Function:
    """Launches with tensor copies in their pipelined loops get roles."""
    names, roots = Names(fn), view_roots(fn)
    notes: list[Note] = []
    params = {p.buffer.name for p in fn.params if p.buffer is not None and not p.pointer}

    def one(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, Launch):
            return None
        threads = Threads(fn, stmt, names, roots)
        body = _Specialize(threads, target, params).lower(stmt.body)
        notes.extend(threads.notes)
        return (stmt.with_(body=body),)

    return noted(fn.with_(body=map_statements(fn.body, one)), notes)


@dataclass(frozen=True)
class _Tile:
    """A tile that tensor copies bring: the copy, and the buffer with a place for each stage."""

    copy: Copy
    buffer: Buffer

    def region(self, stage: Expr) -> Region:
        """The tile of a stage."""
        dst = self.copy.dst
        return Region(self.buffer, (stage, *dst.mins), (const(1), *dst.extents), loc=dst.loc)

    def boxes(self, stage: Expr, copy: Renamer | None = None) -> Boxes:
        """The boxes of a stage; they exist, since `faults` has found nothing."""
        src = self.copy.src
        found = boxes(self.region(stage), src if copy is None else cast("Region", copy.of(src)))
        assert isinstance(found, Boxes)
        return found


@dataclass(frozen=True)
class _Batch:
    """Tiles that are handed over together, and the statements between which they are read: by the
    tensor cores alone (`unit`), of whose products the first thread issues all, or by all warps.
    """

    tiles: tuple[_Tile, ...]
    first: int
    last: int
    full: Buffer
    empty: Buffer
    unit: bool = False

    @property
    def bytes(self) -> int:
        """The bytes of one stage."""
        return sum(byte_size(t.copy.dst.buffer) for t in self.tiles)


@dataclass(frozen=True)
class _Loop:
    """A loop whose copies are tensor copies."""

    plan: Plan
    batches: tuple[_Batch, ...]
    stages: int
    count: Buffer | None
    mine: Buffer | None
    issuer: Issuer | None = None


_Make = Callable[[_Loop, Renamer], Block]


class _Specialize:
    """One launch."""

    def __init__(self, threads: Threads, target: Target, params: set[str]) -> None:
        self.t, self.target, self.params = threads, target, params
        self.names = threads.names
        body = threads.launch.body
        self.multiplied = {
            r.buffer.name for s in statements(body) if isinstance(s, PRODUCTS) for r in (s.a, s.b)
        }
        self.ahead = Ahead(body, threads)

    def lower(self, body: Block) -> Block:
        """The body with roles, or as it is."""
        loops = [s for s in statements(body) if isinstance(s, Pipelined) and s.num_stages > 1]
        if not loops:
            return body
        why = next(self.unfit(body, loops), None)
        if why is not None:
            self.t.note("declined", f"not warp-specialised: {why.reason}", why.loc)
            return body
        found: dict[int, _Loop] = {}
        for loop in loops:
            made = self.prepared(body, loop, len(loops))
            if isinstance(made, Declined):
                self.t.note("declined", f"not warp-specialised: {made.reason}", made.loc)
                return body
            found[id(loop)] = made
        for loop in loops:
            made = found[id(loop)]
            text = f"{made.stages} stages of tensor copies"
            text += ", products by a warp of their own" * (made.issuer is not None)
            self.t.note("specialised", text, loop.loc)
        return self.roles(body, found)

    # What allows it ------------------------------------------------------------------------------

    def unfit(self, body: Block, loops: list[Pipelined]) -> Iterator[Declined]:
        """What rules roles out for the launch."""
        at = loops[0].loc
        for name in ("warp-specialize", "tma"):
            if is_off(self.t.fn, name):
                yield Declined(at, f"{name} is left out")
        needed = (Capability.TMA, Capability.MBARRIER, Capability.SETMAXNREG)
        if not all(self.target.supports(c) for c in needed):
            yield Declined(at, "the chip has no tensor copies")
        if self.t.count % PRODUCERS or self.t.extents[1:] != (1, 1):
            yield Declined(at, f"{self.t.count} threads are no whole warpgroups")
        if self.t.count + PRODUCERS > 1024:
            yield Declined(at, "there is no room for another warpgroup")
        for s in statements(body):
            why = self.stray(s)
            if why is not None:
                yield Declined(s.loc, why)
        if not any(isinstance(s, PRODUCTS) for loop in loops for s in statements(loop.body)):
            yield Declined(at, "nothing is multiplied in the loop")
        for loop in loops:
            fault = way_to(body, loop, self.ahead)
            if fault is not None:
                yield Declined(loop.loc, fault)

    def stray(self, s: Stmt) -> str | None:
        """Why a producer cannot follow the threads past a statement."""
        if isinstance(s, (ThreadReturn, Break, Continue)):
            return "a loop may be left before its end"
        if isinstance(s, While) and not self.ahead.knows(s.cond):
            return "how often a loop runs depends on what the kernel computes"
        meets = isinstance(s, Issue) and s.row.startswith(("barrier.cluster", "grid.sync"))
        if meets or isinstance(s, PairScaledGemm):
            return "threads meet others than those of the block"
        if isinstance(s, Arm) or (isinstance(s, SyncThreads) and s.barrier_id is not None):
            return "the author has given threads roles of their own"
        return None

    def prepared(self, body: Block, loop: Pipelined, among: int) -> _Loop | Declined:
        """A loop with its barriers, if all of its copies are tensor copies."""
        found = plan(loop, self.t, body)
        if isinstance(found, Declined):
            return found
        why = next(self.faults(found), None)
        if why is not None:
            return why
        stages = self.stages(body, found, among)
        if stages < 2:
            return Declined(loop.loc, "shared memory has no room for stages")
        tiles = [_Tile(c, staged_buffer(c.dst.buffer, stages)) for c in found.ahead]
        nested = not any(s is loop for s in body)
        counts = [
            self.names.buffer(hint, I32, (1,), "local.var") if nested else None
            for hint in ("rounds", "rounds")
        ]
        batches = self.batches(found, tiles, stages)
        own = issuer(found.rest, self.t, self.ahead.knows, nested=nested)
        return _Loop(found, batches, stages, counts[0], counts[1], own)

    def faults(self, found: Plan) -> Iterator[Declined]:
        """Why the copies of a loop are no tensor copies."""
        odd = unusual(found.loop.body, {b.name: b for b in found.tiles})
        if odd is not None:
            yield Declined(odd.loc, "a tile is used as a whole buffer")
        changed = {b.name for s in statements(found.rest) for b in written(s)}
        own = {s.var.name for s in found.lets}
        for node in (*(c.src for c in found.ahead), *(s.value for s in found.lets)):
            if not self.ahead.knows(node, own):
                why = "what is copied depends on what the kernel computes"
                yield Declined(found.loop.loc, why)
        for copy in found.ahead:
            if copy.dst.buffer.name in changed:
                yield Declined(copy.loc, f"{copy.dst.buffer.name} is written after it is copied")
            name, hints = copy.src.buffer.name, dict(copy.hints)
            if hints.get("disable_tma") or hints.get("prefer_instruction", "tma") != "tma":
                yield Declined(copy.loc, "T.copy asks for no tensor copy")
            if name in self.ahead.changed:
                yield Declined(copy.loc, f"{name} is written in the kernel")
            made = boxes(staged_region(copy.dst), copy.src)
            if isinstance(made, str):
                yield Declined(copy.loc, made)
            elif not may_lie(made, self.multiplied):
                yield Declined(copy.loc, f"products want {copy.dst.buffer.name} to lie otherwise")
            for why in array_faults(copy.src.buffer, self.params, self.t.launch.body):
                yield Declined(copy.loc, why)

    def stages(self, body: Block, found: Plan, among: int) -> int:
        """How many stages there is room for: beside a result, if the next tile comes meanwhile."""
        tiles = {b.name: byte_size(b) for b in found.tiles}
        each, asked = max(1, sum(tiles.values())), found.loop.num_stages
        free = free_bytes(body, {*tiles, *_later(body, found.loop)}, self.t, self.target)
        stays = not any(s is found.loop for s in body)
        for kept in (result_bytes(body, self.t) if stays else 0, 0):
            fits = 1 + max(0, free - kept - each) // among // each
            if fits >= min(STAGES, asked):
                break
        return min(asked, fits)

    def batches(self, found: Plan, tiles: list[_Tile], stages: int) -> tuple[_Batch, ...]:
        """Tiles by the statements between which they are read."""
        spans: dict[tuple[int, int, bool], list[_Tile]] = {}
        for tile in tiles:
            uses = [
                k
                for k, s in enumerate(found.rest)
                if any(isinstance(n, Buffer) and n.name == tile.buffer.name for n in s.walk())
                and not isinstance(s, Alloc)
            ]
            uses += [
                awaited(found.rest, s) or k
                for k, s in enumerate(found.rest)
                if isinstance(s, AsyncGemm) and k in uses
            ]
            first, last = (uses[0], max(uses)) if uses else (0, 0)
            unit = bool(uses) and all(reads_tiles(found.rest[k], self.t) for k in uses)
            spans.setdefault((first, last, unit), []).append(tile)
        return tuple(
            _Batch(
                tuple(group),
                first,
                last,
                self.names.buffer("full", U64, (stages,), "shared.dyn"),
                self.names.buffer("empty", U64, (stages,), "shared.dyn"),
                unit,
            )
            for (first, last, unit), group in spans.items()
        )

    # Roles ---------------------------------------------------------------------------------------

    def roles(self, body: Block, found: dict[int, _Loop]) -> Block:
        """The two roles, the barriers and the tiles."""
        tiles = {
            t.buffer.name: t.buffer for x in found.values() for b in x.batches for t in b.tiles
        }
        batches = [(x, b) for x in found.values() for b in x.batches]
        allocs = [Alloc(buffer) for buffer in tiles.values()]
        lies = [x for _, b in batches for t in b.tiles for x in t.boxes(const(0)).lies()]
        barriers = [Alloc(x) for _, b in batches for x in (b.full, b.empty)]
        warps = self.t.count // WARP
        issuers = [x.issuer for x in found.values() if x.issuer is not None]
        barriers += [Alloc(b) for i in issuers for b in i.barriers]
        start: list[Stmt] = [s for i in issuers for s in i.setup(warps)]
        for x, b in batches:
            for stage in range(x.stages):
                at = _barrier(b.full, const(stage))
                start.append(Issue("mbarrier.init", (at,), (const(1),)))
                at = _barrier(b.empty, const(stage))
                readers = 1 if b.unit or x.issuer is not None else warps
                start.append(Issue("mbarrier.init", (at,), (const(readers),)))
        start.append(Issue("fence.mbarrier_init", (), ()))
        everyone = (("id", 0), ("threads", self.t.count + PRODUCERS))
        kept = self.consumers(body, found, set(tiles))
        work = self.producers(body, found)
        at = [compare(BinaryOp.EQ, self.t.index, self.t.count + k * WARP) for k in range(2)]
        second = (If(at[1], self.multipliers(body, found)),) if issuers else ()
        roles = Roles(kept, (If(at[0], work, orelse=second),), threads=PRODUCERS)
        return (
            *lies,
            *allocs,
            *barriers,
            If(self.t.first(), tuple(start)),
            Issue("barrier.sync", (), (), imm=everyone),
            roles,
        )

    def rounds(self, x: _Loop, k: Expr, count: Buffer | None) -> Expr:
        """The number of the round since the kernel began."""
        if count is not None:
            return Load(count, (const(0),))
        start = x.plan.loop.start
        k = as_type(k, I32)
        return k if int_value(start) == 0 else minus(k, as_type(start, I32))

    def turn(self, x: _Loop, k: Expr, count: Buffer | None) -> tuple[Block, Expr, Expr]:
        """The stage of a round, and the parity of the barriers when it is filled."""
        stage, parity = self.names.var("stage"), self.names.var("parity")
        number = self.rounds(x, k, count)
        trip = Binary(BinaryOp.FLOORDIV, number, const(x.stages))
        lets = (
            Let(stage, Binary(BinaryOp.FLOORMOD, number, const(x.stages))),
            Let(parity, Binary(BinaryOp.FLOORMOD, trip, const(2))),
        )
        return lets, stage, parity

    def consumers(self, body: Block, found: dict[int, _Loop], tiles: set[str]) -> Block:
        """Everything but the copies."""
        counts = [c for x in found.values() for c in (x.mine, x.issuer and x.issuer.mine)]
        out: list[Stmt] = [Alloc(c) for c in counts if c is not None]
        for s in body:
            out += self.consumer(s, found, tiles)
        return tuple(out)

    def consumer(self, stmt: Stmt, found: dict[int, _Loop], tiles: set[str]) -> Block:
        """One statement of the consumers."""
        if isinstance(stmt, Alloc) and stmt.buffer.name in tiles:
            return ()
        x = found.get(id(stmt))
        if x is None:

            def inner(b: Block) -> Block:
                return tuple(y for s in b for y in self.consumer(s, found, tiles))

            return (map_bodies(stmt, inner),)
        loop = x.plan.loop
        if x.issuer is not None:
            brought = tuple(t.region(const(0)) for b in x.batches for t in b.tiles)
            return x.issuer.wait(self.t, loop, brought)
        lets, stage, parity = self.turn(x, loop.var, x.mine)
        buffers = {t.buffer.name: t.buffer for b in x.batches for t in b.tiles}
        inside: list[Stmt] = list(lets)
        for k, s in enumerate(x.plan.rest):
            if isinstance(s, Alloc) and s.buffer.name in tiles:
                continue
            for b in x.batches:
                if b.first == k:
                    full = _barrier(b.full, stage)
                    wait = Issue("mbarrier.try_wait.parity", (), (full, parity), loc=s.loc)
                    inside.append(If(self.t.first(), (wait,), loc=s.loc) if b.unit else wait)
            inside.append(in_stage(s, buffers, stage))
            for b in x.batches:
                if b.last == k:
                    inside += self.release(b, stage, s)
        if x.mine is not None:
            inside.append(_add_one(x.mine))
        return (For(loop.var, loop.start, loop.stop, tuple(inside), loc=loop.loc),)

    def release(self, b: _Batch, stage: Expr, stmt: Stmt) -> Block:
        """Every warp says that it has read a stage, or one thread that the unit has."""
        arrive = Issue("mbarrier.arrive", (_barrier(b.empty, stage),), (), loc=stmt.loc)
        body: Block = (If(self.t.first(), (arrive,), loc=stmt.loc),)
        if not b.unit:
            lane = Binary(BinaryOp.FLOORMOD, self.t.index, const(WARP))
            body = (
                Issue("bar.warp.sync", (), (), imm=(("mask", 0xFFFFFFFF),), loc=stmt.loc),
                If(compare(BinaryOp.EQ, lane, 0), (arrive,), loc=stmt.loc),
            )
        return (Handover(tuple(t.region(stage) for t in b.tiles), body, loc=stmt.loc),)

    def producers(self, body: Block, found: dict[int, _Loop]) -> Block:
        """The copies, and the control flow around them."""
        counts = [Alloc(x.count) for x in found.values() if x.count is not None]
        return (*counts, *self.slice(body, found, Renamer(self.names), self.issue_loop))

    def multipliers(self, body: Block, found: dict[int, _Loop]) -> Block:
        """The products of loops that have an issuer, and the control flow around them."""
        own = {k: x for k, x in found.items() if x.issuer is not None}
        counts = [c for x in own.values() for c in (x.count, x.issuer and x.issuer.theirs)]
        copy = Renamer(self.names)
        fresh = [cast("Stmt", copy.of(Alloc(c))) for c in counts if c is not None]
        return (*fresh, *self.slice(body, own, copy, self.multiply_loop))

    def slice(self, body: Block, found: dict[int, _Loop], copy: Renamer, make: _Make) -> Block:
        """The statements that a producer needs of a block; `make` gives those of a loop."""
        out: list[Stmt] = []
        ahead = self.ahead
        for stmt in body:
            x = found.get(id(stmt))
            if x is not None:
                out += make(x, copy)
            elif isinstance(stmt, Let) and ahead.knows(stmt.value):
                var = copy.bind(stmt.var)
                out.append(Let(var, cast("Expr", copy.of(stmt.value)), loc=stmt.loc))
            elif isinstance(stmt, (If, For, While)) and (
                ahead.matters(stmt) or any(id(s) in found for s in statements((stmt,)))
            ):
                out.append(self.around(stmt, found, copy, make))
            elif isinstance(stmt, (Alloc, Store)) and stmt.buffer.name in ahead.followed:
                out.append(cast("Stmt", copy.of(stmt)))
            elif isinstance(stmt, Issue) and stmt.row == "griddepcontrol.wait":
                out.append(stmt)
        return tuple(out)

    def around(
        self, stmt: If | For | While, found: dict[int, _Loop], copy: Renamer, make: _Make
    ) -> Stmt:
        """Control flow around the loops."""
        if isinstance(stmt, While):
            cond = cast("Expr", copy.of(stmt.cond))
            return stmt.with_(cond=cond, body=self.slice(stmt.body, found, copy, make))
        if isinstance(stmt, If):
            return stmt.with_(
                cond=copy.of(stmt.cond),
                then=self.slice(stmt.then, found, copy, make),
                orelse=self.slice(stmt.orelse, found, copy, make),
            )
        start, stop = copy.of(stmt.start), copy.of(stmt.stop)
        var = copy.bind(stmt.var)
        body = self.slice(stmt.body, found, copy, make)
        return stmt.with_(var=var, start=start, stop=stop, body=body)

    def issue_loop(self, x: _Loop, copy: Renamer) -> Block:
        """All copies of a loop, stage after stage."""
        loop = x.plan.loop
        start, stop = (cast("Expr", copy.of(e)) for e in (loop.start, loop.stop))
        var = copy.bind(loop.var)
        bound = x.plan.loop.with_(start=start)
        own = _Loop(Plan(bound, (), (), (), ()), x.batches, x.stages, x.count, x.mine)
        lets, stage, parity = self.turn(own, var, x.count)
        inside: list[Stmt] = list(lets)
        for s in x.plan.lets:
            fresh = copy.bind(s.var)
            inside.append(Let(fresh, cast("Expr", copy.of(s.value)), loc=s.loc))
        for b in x.batches:
            loc = b.tiles[0].copy.loc
            empty, full = _barrier(b.empty, stage), _barrier(b.full, stage)
            other = Binary(BinaryOp.BITXOR, parity, const(1))
            inside.append(Issue("mbarrier.try_wait.parity", (), (empty, other), loc=loc))
            size = const(b.bytes)
            inside.append(Issue("mbarrier.arrive.expect_tx", (full,), (size,), loc=loc))
            for tile in b.tiles:
                inside += tile.boxes(stage, copy).loads(full, tile.copy)
        if x.count is not None:
            inside.append(_add_one(x.count))
        return (For(var, start, stop, tuple(inside), loc=loop.loc),)

    def multiply_loop(self, x: _Loop, copy: Renamer) -> Block:
        """All products of a loop, by the thread that issues them; they give the stages back."""
        loop, own = x.plan.loop, x.issuer
        assert own is not None
        count = None if x.count is None else cast("Buffer", copy.of(x.count))
        start, stop = (cast("Expr", copy.of(e)) for e in (loop.start, loop.stop))
        var = copy.bind(loop.var)
        plan = Plan(loop.with_(start=start), (), (), (), ())
        lets, stage, parity = self.turn(replace(x, plan=plan), var, count)
        buffers = {t.buffer.name: t.buffer for b in x.batches for t in b.tiles}
        inside: list[Stmt] = list(lets)
        for k, s in enumerate(x.plan.rest):
            for b in x.batches:
                if b.first == k:
                    full = _barrier(b.full, stage)
                    inside.append(Issue("mbarrier.try_wait.parity", (), (full, parity), loc=s.loc))
            if isinstance(s, Let):
                fresh = copy.bind(s.var)
                inside.append(Let(fresh, cast("Expr", copy.of(s.value)), loc=s.loc))
            elif isinstance(s, Gemm):
                inside.append(issued(cast("Gemm", copy.of(in_stage(s, buffers, stage)))))
            for b in x.batches:
                if b.last == k:
                    empty = _barrier(b.empty, stage)
                    inside.append(Issue("tcgen05.commit", (empty,), (), loc=s.loc))
        if count is not None:
            inside.append(_add_one(count))
        rounds = For(var, start, stop, tuple(inside), loc=loop.loc)
        around = (*own.begin(loop), rounds, *own.end(loop))
        return tuple(cast("Stmt", copy.of(s)) if s is not rounds else s for s in around)


def staged_region(region: Region) -> Region:
    """A region as it is where its buffer has several stages."""
    zero, one = const(0), const(1)
    buffer = staged_buffer(region.buffer, 2)
    return Region(buffer, (zero, *region.mins), (one, *region.extents), loc=region.loc)


def _later(body: Block, loop: Pipelined) -> set[str]:
    """The buffers that are used after a loop only, and so may lie where its tiles were."""
    at = next((k for k, s in enumerate(body) if s is loop), None)
    if at is None:
        return set()
    names: list[set[str]] = [set(), set()]
    for k, stmt in enumerate(body):
        if not isinstance(stmt, (Alloc, Annotate)):
            names[k > at] |= {n.name for n in stmt.walk() if isinstance(n, Buffer)}
    return names[1] - names[0]


def _barrier(buffer: Buffer, stage: Expr) -> Region:
    return Region(buffer, (stage,), (const(1),))


def _add_one(count: Buffer) -> Stmt:
    return Store(count, (const(0),), plus(Load(count, (const(0),)), 1))
