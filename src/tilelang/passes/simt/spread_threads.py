"""The work of a block spread over its threads.

What enters: a launch whose tile operations are parallel nests, reductions and products. What
leaves: what one thread does, still with buffers: fragments are register arrays (scope
`local.fragment`, one axis), nests are loops of one thread, and instructions are `Issue`s. What the
block does once (a store of single elements whose operands are the same for all threads) is done by
the first thread. There are no barriers yet but those that the author wrote; `synchronize` adds
them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar, cast

from tilelang.ir.expr import INT32, BinaryOp, Buffer, Expr, Load, Region, const, int_value
from tilelang.ir.node import Node
from tilelang.ir.scales import AsyncScaledGemm, ScaleCopy
from tilelang.ir.special import Collective
from tilelang.ir.sync import AsyncGemm, MmaArrive, NamedArrive, SyncWarp
from tilelang.ir.tile import (
    Alloc,
    Annotate,
    Block,
    For,
    Function,
    Gemm,
    If,
    Launch,
    Let,
    Parallel,
    Print,
    Reduce,
    Stmt,
    Store,
    StoreVector,
    SyncThreads,
    While,
)
from tilelang.isa.target import Target
from tilelang.layout.placement import Placement, conflict_free
from tilelang.layout.spread import Spread, agree
from tilelang.passes.build import Names, as_type, both, compare, map_bodies, map_statements
from tilelang.passes.issue import (
    ARM,
    FED,
    PLACEMENT,
    Arm,
    AsyncStore,
    Completed,
    Issue,
    Roles,
    Started,
    TensorLoad,
    TensorStore,
)
from tilelang.passes.lower_copies import view_roots
from tilelang.passes.lower_parallel import statements, written
from tilelang.passes.simt.arms import share_threads, used_in
from tilelang.passes.simt.collectives import FULL, lower_collective
from tilelang.passes.simt.explicit_products import explicit_waits
from tilelang.passes.simt.infer_layouts import infer_layouts
from tilelang.passes.simt.launch import Note, Threads, noted, refused, static_shape
from tilelang.passes.simt.matrix import Tensor, lower_tensor, tensor
from tilelang.passes.simt.nests import Nests, Storage
from tilelang.passes.simt.overlap import overlapped
from tilelang.passes.simt.products import plain_product
from tilelang.passes.simt.reductions import lower_reduce
from tilelang.passes.simt.software_pipeline import byte_size
from tilelang.passes.simt.tcgen05 import lower_arrival, lower_product, unit_tiles
from tilelang.passes.simt.tcgen05_roles import lower_issuers
from tilelang.passes.simt.tcgen05_scaled import lower_scale_copy, lower_scaled, operands_of
from tilelang.passes.simt.tensor_copies import placements
from tilelang.passes.simt.tensor_copies import tile_placement as box_placement
from tilelang.passes.simt.tensor_memory import tensors_of
from tilelang.passes.simt.tensor_moves import fragment_spread, lower_move
from tilelang.passes.simt.tma_store import is_possible
from tilelang.passes.simt.warp_specialize import PRODUCERS
from tilelang.passes.simt.warpgroup import (
    Group,
    group,
    lower_completed,
    lower_group,
    tile_placement,
)
from tilelang.passes.varying import Varying
from tilelang.scopes import Memory


def spread_threads(fn: Function, target: Target) -> Function:
    """Every statement is what one thread does; the notes are added to the function's `attrs`."""
    names, roots = Names(fn), view_roots(fn)
    notes: list[Note] = []

    def one(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, Launch):
            return None
        threads = Threads(fn, stmt, names, roots)
        roles = next((s for s in statements(stmt.body) if isinstance(s, Roles)), None)
        if roles is not None:
            threads.barrier = 1
        threads.tensors = tensors_of(stmt.body)
        threads.unit_tiles = unit_tiles(stmt.body) | _fed(stmt.body)
        threads.arrived = _arrived(stmt.body)
        threads.carried = _carried(stmt.body)
        body = _Part(threads, target, _own_allocations(threads, stmt.body), ()).lower()
        body = (*threads.outside, *body)
        notes.extend(threads.notes)
        extents = threads.extents
        if roles is not None:
            extents = (threads.count + roles.threads, 1, 1)
        return (stmt.with_(body=body, threads=extents),)

    made = fn.with_(body=map_statements(fn.body, one))
    return noted(made, notes)


S = TypeVar("S", bound=Stmt)

BULK = "cp.async.bulk"
"""How the rows of bulk copies begin; their first out is the tile that they bring."""

REGISTERS = 65536
"""32-bit registers of an SM."""

ARMS = "tile.arms"
"""A mark in the place of an arm, while the rest of its block is looked at."""

LAST_BARRIER = 15
"""The last named barrier; arms take them from here on downwards, authors from the first one on."""

MOST_SHARED = 48 * 1024
"""Bytes of shared memory that every chip has for a block."""

SLACK = 4096
"""Bytes kept free for what passes need, such as barriers and exchanges."""

FEW, MOST_REGISTERS = 24, 240
"""Registers of a thread that only issues copies, the least that `setmaxnreg` gives, and the most
that one takes which multiplies.
"""


def _fed(body: Block) -> frozenset[str]:
    """The tiles that tensor copies read."""
    marks = [s for s in statements(body) if isinstance(s, Annotate) and s.kind == FED]
    return frozenset(b.name for s in marks for b in s.buffers)


def _arrived(body: Block) -> frozenset[str]:
    """The tiles that tensor copies alone write."""
    loads = [s for s in statements(body) if isinstance(s, Issue) and s.row.startswith(BULK)]
    found = {s.outs[0].buffer.name for s in loads if s.outs}
    return frozenset(
        found - {b.name for s in statements(body) if not isinstance(s, Issue) for b in written(s)}
    )


_WRITES = (Parallel, Store, StoreVector)
"""Statements that a fence follows where they write what a unit reads."""


def _fenced(threads: Threads, body: Block) -> frozenset[str]:
    """The tiles that the unit reads and that, in any part of the block, only such statements and
    tensor copies write.
    """
    plain: set[str] = set()
    other: set[str] = set()
    for s in statements(body):
        names = {b.name for b in written(s)}
        if isinstance(s, Issue) and s.row == "mapa":
            names = {r.buffer.name for r in s.ins if isinstance(r, Region)}
        elif isinstance(s, Issue) and s.row.startswith(BULK):
            names = set[str]()
        (plain if type(s) in (Store, StoreVector) else other).update(names)
    return frozenset(threads.unit_tiles & plain - other)


def _carried(body: Block) -> frozenset[str]:
    """What arms inside of loops use."""
    loops = [s for s in statements(body) if isinstance(s, (For, While))]
    arms = [s for loop in loops for s in statements(loop.body) if isinstance(s, Arm)]
    return frozenset(name for a in arms for name in used_in(a.body))


def _own_allocations(threads: Threads, body: Block) -> Block:
    """The body, with fragments that one range of threads alone uses allocated in its first arm;
    those of several arms of the range are `kept` from one to the next.
    """
    arms = [s for s in statements(body) if isinstance(s, Arm)]
    if not arms:
        return body
    outside = map_statements(body, lambda s: () if isinstance(s, (Arm, Alloc)) else None)
    used = used_in(outside)
    own: dict[int, list[Stmt]] = {}
    moved: set[str] = set()
    for stmt in statements(body):
        if isinstance(stmt, Alloc) and threads.is_fragment(stmt.buffer):
            name = stmt.buffer.name
            users = [a for a in arms if name in used_in(a.body)]
            if len({(a.first, a.count) for a in users}) == 1 and name not in used:
                own.setdefault(id(users[0]), []).append(stmt)
                moved.add(name)
                threads.carried |= {name} if len(users) > 1 else set()
                threads.kept |= {name} if len(users) > 1 else set()

    def swap(block: Block) -> Block:
        out: list[Stmt] = []
        for s in block:
            if isinstance(s, Alloc) and s.buffer.name in moved:
                continue
            inner = map_bodies(s, swap)
            if isinstance(inner, Arm):
                inner = inner.with_(body=(*own.get(id(s), ()), *inner.body))
            out.append(inner)
        return tuple(out)

    return swap(body)


class _Part:
    """The work of a launch, or of an arm of it, over its threads."""

    def __init__(
        self, threads: Threads, target: Target, body: Block, beside: Sequence[Block]
    ) -> None:
        """`beside` are the statements of all arms that have fragments of this one, itself included
        and in order, if there are others.
        """
        self.t, self.target = threads, target
        self.names = threads.names
        launch = threads.launch
        self.arms: list[Arm] = []
        number = next((k for k, b in enumerate(beside) if b is body), 0)
        body = self.set_aside(body)
        self.products: dict[Gemm, Tensor | Group] = {}
        whole = launch.body
        self.placed = set(placements(whole))
        self.apart = any(isinstance(s, Arm) for s in statements(whole))
        self.arrived = threads.arrived
        self.wanted: dict[str, Spread] = {}
        parts = (*beside[:number], body, *beside[number + 1 :])
        together = [self.prepared(b) for b in parts]
        body = together[number]
        seeds = [v for v, n in zip(launch.thread_vars, threads.extents, strict=True) if n > 1]
        self.varying = Varying(body, seeds, threads.is_private, threads.roots)
        every = tuple(s for b in together for s in b)
        self.layouts = infer_layouts(threads, every, self.wanted)
        ahead = {s.buffer.name for s in statements(body) if isinstance(s, AsyncStore)}
        tiles = {
            r.buffer.name
            for g, job in self.products.items()
            for r in (g.a, g.b)
            if isinstance(job, Group) and not threads.is_fragment(r.buffer)
        }
        self.fed = (tiles | threads.unit_tiles) - self.arrived - ahead
        here = {b.name for s in statements(body) for b in written(s)}
        self.ordered = self.arrived | frozenset(self.fed & here) | _fenced(threads, whole)
        self.body = body
        self.storage = Storage(threads, self.layouts)
        self.storage.registers |= {n: b for n, b in threads.kept_in.items() if n in used_in(body)}
        stores = is_possible(threads.fn, target)
        self.nests = Nests(self.storage, self.room(), tensor_stores=stores)

    def set_aside(self, body: Block) -> Block:
        """The body with a mark in the place of each arm."""

        def one(stmt: Stmt) -> Block | None:
            if not isinstance(stmt, Arm):
                return None
            self.arms.append(stmt)
            return (Issue(ARMS, (), (), imm=(("number", len(self.arms) - 1),), loc=stmt.loc),)

        return map_statements(body, one)

    def prepared(self, body: Block) -> Block:
        """Statements whose products and copies are chosen, and what they want of fragments."""
        body = self.expanded(body)
        groups = {s for s, job in self.products.items() if isinstance(job, Group)}
        body = explicit_waits(body, groups, self.t)
        return overlapped(body, self.products, self.t, self.registers())

    def in_arms(self, marks: Sequence[Stmt]) -> Block:
        """The statements of arms that follow each other, one of which a thread takes; arms that
        share threads stand one after the other.
        """
        arms = [self.arms[int(dict(cast("Issue", mark).imm)["number"])] for mark in marks]
        for k, arm in enumerate(arms):
            if any(share_threads(arm, x) for x in arms[:k]):
                return (*self.in_arms(marks[:k]), *self.in_arms(marks[k:]))
        out: Block = ()
        for arm in reversed(arms):
            threads = self.t.arm(arm.first, arm.count, self.barrier_of(arm))
            part = _Part(threads, self.target, arm.body, self.beside(arm))
            facts = (
                ("first", arm.first),
                ("threads", arm.count),
                ("id", threads.barrier),
            )
            begin = Issue(ARM, (), (), imm=facts, loc=arm.loc)
            mine = both(
                [
                    compare(BinaryOp.GE, self.t.flat, arm.first),
                    compare(BinaryOp.LT, self.t.flat, arm.first + arm.count),
                ]
            )
            out = (If(mine, (begin, *part.lower()), orelse=out, loc=arm.loc),)
        return out

    def beside(self, arm: Arm) -> list[Block]:
        """The statements of arms that have a fragment in common with an arm, itself included."""
        mine = used_in(arm.body) & self.t.kept
        return [x.body for x in self.arms if used_in(x.body) & mine] if mine else []

    def barrier_of(self, arm: Arm) -> int:
        """The barrier at which the threads of an arm meet: none that the author names, or that
        others have.
        """
        mine, taken = (arm.first, arm.count), self.t.barriers
        if mine in taken:
            return taken[mine]
        named = {
            int_value(s.barrier_id)
            for s in statements(self.t.launch.body)
            if isinstance(s, (SyncThreads, NamedArrive)) and s.barrier_id is not None
        }
        used = {*named, *taken.values()}
        free = [k for k in range(LAST_BARRIER, 0, -1) if k not in used]
        if not free:
            raise refused(
                arm, f"a block of more than {len(taken)} parts with barriers of their own"
            )
        taken[mine] = free[0]
        return free[0]

    def room(self) -> Callable[[Sequence[Block], int], int]:
        """How many bytes of shared memory are free, given the statements still to come and the
        number of loops around.
        """
        capacity = self.target.capacity(Memory.SHARED)
        most = MOST_SHARED if capacity is None else capacity.amount
        arms = [s for s in statements(self.t.launch.body) if isinstance(s, Arm)]
        sizes = {
            s.buffer.name: byte_size(s.buffer)
            for s in statements(self.t.launch.body if arms else self.body)
            if isinstance(s, Alloc) and self.t.memory(s.buffer) is Memory.SHARED
        }
        if arms:  # each has its share of what nobody uses at any time
            share = (most - sum(sizes.values()) - SLACK) // len(arms)
            return lambda later, depth: share

        def free(later: Sequence[Block], depth: int) -> int:
            if depth:
                return most - sum(sizes.values()) - SLACK
            used = {n.name for b in later for s in b for n in s.walk() if isinstance(n, Buffer)}
            return most - sum(size for name, size in sizes.items() if name in used) - SLACK

        return free

    def expanded(self, body: Block) -> Block:
        """Copies of Tensor Memory and products with an instruction say how their fragments lie;
        other products become nests.
        """
        for s in statements(body):
            if isinstance(s, (TensorLoad, TensorStore)):
                name, spread = fragment_spread(s, self.t)
                self.wanted[name] = spread
        products = [s for s in statements(body) if isinstance(s, Gemm)]
        by_rows = any(self.t.is_fragment(s.a.buffer) for s in products)

        def one(stmt: Stmt) -> Block | None:
            if not isinstance(stmt, Gemm):
                return None
            why: list[str] = []
            for choose in (group, tensor):
                found = choose(stmt, self.t, self.target, by_rows=by_rows)
                if isinstance(found, str):
                    why.append(found)
                elif self.dictate(found):
                    self.products[stmt] = found
                    self.t.note("product", f"by {found.name}", stmt.loc)
                    return None
                else:
                    why.append("another product has dictated the layout")
            self.t.note("product", f"multiplied by single threads: {why[-1]}", stmt.loc)
            return plain_product(stmt, self.target, self.names)

        return map_statements(body, one)

    def dictate(self, job: Tensor | Group) -> bool:
        """Take the layouts of a product as settled, if no other product has settled others."""
        wanted = {job.stmt.c.buffer.name: job.result()}
        if self.t.is_fragment(job.stmt.a.buffer):
            wanted[job.stmt.a.buffer.name] = job.left()
        if any(not agree(self.wanted.get(n, s), s) for n, s in wanted.items()):
            return False
        self.wanted |= wanted
        return True

    def lower(self) -> Block:
        """The body of one thread."""
        body = self.block(self.body, apart=False)
        return (*self.placements(), *self.t.lets(), *self.nests.around(body))

    def placements(self) -> Block:
        """How the operands of products lie in shared memory."""
        found: dict[str, tuple[Buffer, Placement]] = {}
        viewed = {*self.t.roots, *self.t.roots.values()}
        for stmt in statements(self.body):
            if isinstance(stmt, AsyncGemm):
                found |= {
                    x.region.buffer.name: (x.region.buffer, x.placement)
                    for x in operands_of(stmt, self.t)
                    if x.region.buffer.name not in self.placed
                }
        for stmt, job in self.products.items():
            for region in (stmt.a, stmt.b):
                buffer, shape = region.buffer, static_shape(region.buffer)
                if self.t.is_fragment(buffer) or shape is None or len(shape) < 2:
                    continue
                made = (
                    tile_placement(region, self.t)
                    if isinstance(job, Group)
                    else self.for_warps(buffer, shape)
                )
                fits = buffer.strides is None and buffer.name not in {*viewed, *self.placed}
                known = found.get(buffer.name)
                if made is not None and fits and (known is None or isinstance(job, Group)):
                    found[buffer.name] = (buffer, made)
        if not found:
            return ()
        buffers = tuple(b for b, _ in found.values())
        keys = tuple(p.key() for _, p in found.values())
        return (Annotate(PLACEMENT, buffers=buffers, values=keys),)

    def for_warps(self, buffer: Buffer, shape: tuple[int, ...]) -> Placement | None:
        """How a tile lies for products of warps; where parts of the block may read it in different
        ways, as products of warpgroups want it.
        """
        matrix = (len(shape) - 2, len(shape) - 1)
        found = box_placement(buffer, matrix) if self.apart else None
        return found or conflict_free(shape[-2], shape[-1], buffer.dtype.bits)

    # Statements ----------------------------------------------------------------------------------

    def block(self, body: Block, *, apart: bool) -> Block:
        """Statements in order; `apart` says that only some threads may get here."""
        out: list[Stmt] = []
        marks: list[Stmt] = []
        for k, stmt in enumerate(body):
            if isinstance(stmt, Issue) and stmt.row == ARMS:
                marks.append(stmt)
                continue
            out += self.in_arms(marks)
            marks = []
            self.nests.later.append(body[k + 1 :])
            out += self.statement(stmt, apart)
            self.nests.later.pop()
            if self.feeds_unit(stmt) and not self.is_ordered_by(body[k + 1 :]):
                out.append(Issue("fence.proxy.async", (), (), loc=stmt.loc))
        return (*out, *self.in_arms(marks))

    def feeds_unit(self, stmt: Stmt) -> bool:
        """Whether a statement writes a tile that wgmma reads: each thread then orders its writes
        before what the unit reads after the next barrier.
        """
        if not isinstance(stmt, _WRITES):
            return False
        return any(b.name in self.fed for s in statements((stmt,)) for b in written(s))

    def is_ordered_by(self, rest: Block) -> bool:
        """Whether a fence follows before anybody is told of what was written."""
        for stmt in rest:
            if isinstance(stmt, Issue):
                return stmt.row == "fence.proxy.async"
            if self.feeds_unit(stmt):
                return True
            if not isinstance(stmt, (*_WRITES, Alloc, Annotate, Let)):
                return False
        return False

    def statement(self, stmt: Stmt, apart: bool) -> Block:
        """One statement."""
        made: Block
        match stmt:
            case Parallel():
                made = self.nests.lower(stmt)
            case Reduce():
                made = lower_reduce(self.nests, stmt)
            case Roles():
                made = self.roles(stmt)
            case Collective():
                made = lower_collective(self.loaded(stmt), self.t)
            case SyncThreads() | SyncWarp():
                made = (self.barrier(stmt),)
            case NamedArrive():
                made = (self.arrival(stmt),)
            case If() | For() | While():
                made = self.control(stmt, apart)
            case Store() | StoreVector() | Print():
                made = self.single(stmt, apart)
            case Started():
                made = self.block(stmt.body, apart=apart)
            case _:
                unit = self.unit(stmt)
                made = self.other(stmt, apart) if unit is None else unit
        return made

    def unit(self, stmt: Stmt) -> Block | None:
        """A statement of the matrix units; None for others."""
        registers = self.storage.registers
        match stmt:
            case Gemm():
                made = self.product(stmt)
            case Completed():
                made = lower_completed(stmt, registers)
            case AsyncScaledGemm():
                made = lower_scaled(stmt, self.t, self.ordered)
            case ScaleCopy():
                made = lower_scale_copy(stmt, self.t, self.ordered)
            case AsyncGemm():
                made = lower_product(stmt, self.t, self.ordered)
            case MmaArrive():
                made = lower_arrival(stmt, self.t)
            case TensorLoad():
                made = lower_move(stmt, self.t, registers[stmt.dst.buffer.name])
            case TensorStore():
                made = lower_move(stmt, self.t, registers[stmt.src.buffer.name])
            case _:
                made = None
        return made

    def other(self, stmt: Stmt, apart: bool) -> Block:
        """A statement that stays as it is, but for the storage of fragments."""
        if isinstance(stmt, Alloc) and stmt.buffer.name in self.layouts.of:
            spread = self.layouts.of[stmt.buffer.name]
            made = stmt.with_(buffer=self.storage.declare(stmt.buffer, spread))
            if stmt.buffer.name in self.t.carried:
                self.t.outside.append(made)
                self.t.kept_in[stmt.buffer.name] = made.buffer
                return ()
            return (made,)
        return (self.loaded(map_bodies(stmt, lambda b: self.block(b, apart=apart))),)

    def product(self, stmt: Gemm) -> Block:
        """A product by its instruction."""
        job = self.products[stmt]
        if isinstance(job, Group):
            return lower_group(job, self.t, self.storage.registers, self.ordered)
        return lower_tensor(job, self.t, self.storage.registers)

    def roles(self, stmt: Roles) -> Block:
        """Consumers and producers; the registers of the latter go to the accumulators of wgmma."""
        consumers = self.block(stmt.consumers, apart=False)
        producers = lower_issuers(stmt.producers, self.t)
        units = any(isinstance(job, Group) for job in self.products.values())
        if units and self.t.count > stmt.threads:
            more = (("step", "inc"), ("registers", self.registers()))
            less = (("step", "dec"), ("registers", FEW))
            consumers = (Issue("setmaxnreg", (), (), imm=more), *consumers)
            producers = (Issue("setmaxnreg", (), (), imm=less), *producers)
        begin = (("first", 0), ("threads", self.t.count), ("id", self.t.barrier))
        consumers = (Issue(ARM, (), (), imm=begin), *consumers)
        # Producers stand first, so that what consumers need after their loops can lie where tiles
        # of loops were, all of which have then been handed over.
        others = compare(BinaryOp.GE, self.t.index, self.t.count)
        return (If(others, producers, orelse=consumers, loc=stmt.loc),)

    def registers(self) -> int:
        """How many registers each thread has that multiplies; a warpgroup that only issues copies
        needs few.
        """
        # They come from what the block got when it began, which is rounded down for each thread.
        every = self.t.count + PRODUCERS
        pool = REGISTERS // every // 8 * 8 * every
        share = (pool - FEW * PRODUCERS) // max(self.t.count, 1) // 8 * 8
        return min(share, MOST_REGISTERS)

    def control(self, stmt: If | For | While, apart: bool) -> Block:
        """Control flow around statements."""
        if isinstance(stmt, If):
            inside = apart or self.varying.node(stmt.cond)
        else:
            inside = apart or self.varying.head(stmt) or self.varying.leaves_apart(stmt.body)
        with self.nests.inside(stmt):
            lowered = map_bodies(stmt, lambda b: self.block(b, apart=inside))
        return (self.loaded(lowered),)

    def barrier(self, stmt: SyncThreads | SyncWarp) -> Stmt:
        """The barrier that the author wrote."""
        if isinstance(stmt, SyncWarp):
            mask = FULL if stmt.mask is None else int_value(stmt.mask)
            if mask is None:
                raise refused(stmt, "T.sync_warp with a mask known at run time only")
            return Issue("bar.warp.sync", (), (), imm=(("mask", mask & FULL),), loc=stmt.loc)
        number = self.t.barrier if stmt.barrier_id is None else int_value(stmt.barrier_id)
        count = self.t.count if stmt.arrive_count is None else int_value(stmt.arrive_count)
        if number is not None and count is not None:
            imm = (("id", number), ("threads", count))
            return Issue("barrier.sync", (), (), imm=imm, loc=stmt.loc)
        given = (stmt.barrier_id or const(self.t.barrier), stmt.arrive_count or const(self.t.count))
        return Issue(
            "barrier.sync.value", (), tuple(as_type(x, INT32) for x in given), loc=stmt.loc
        )

    def arrival(self, stmt: NamedArrive) -> Stmt:
        """An arrival at a barrier without a wait."""
        number, count = int_value(stmt.barrier_id), int_value(stmt.thread_count)
        if number is not None and count is not None:
            imm = (("id", number), ("threads", count))
            return Issue("barrier.arrive", (), (), imm=imm, loc=stmt.loc)
        given = (as_type(x, INT32) for x in (stmt.barrier_id, stmt.thread_count))
        return Issue("barrier.arrive.value", (), tuple(given), loc=stmt.loc)

    def single(self, stmt: Store | StoreVector | Print, apart: bool) -> Block:
        """Single elements: by each thread where threads differ, else by the first one."""
        made = self.loaded(stmt)
        if isinstance(stmt, (Store, StoreVector)):
            if stmt.buffer.name in self.storage.registers:
                return (made,)
            if self.t.is_private(stmt.buffer):
                return (made,)
        if apart or self.varying.head(stmt) or self.t.count == 1:
            return (made,)
        return (If(self.t.first(), (made,), loc=stmt.loc),)

    def loaded(self, stmt: S) -> S:
        """A statement whose own accesses to fragments are accesses to registers that every thread
        holds.
        """

        def slot(buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
            flat = 0
            for i, n in zip(indices, self.layouts.of[buffer.name].shape, strict=True):
                flat = flat * n + (int_value(i) or 0)
            return (const(flat),)

        def one(n: Node) -> Node | None:
            if isinstance(n, (Load, Store)) and self.is_whole(n.buffer):
                registers = self.storage.registers[n.buffer.name]
                return n.with_(buffer=registers, indices=slot(n.buffer, n.indices))
            return None

        made = stmt.rewrite(one)
        return cast("S", one(made) or made)

    def is_whole(self, buffer: Buffer) -> bool:
        """Whether a buffer is a fragment whose accesses are not rewritten yet."""
        made = self.storage.registers.get(buffer.name)
        return made is not None and made != buffer
