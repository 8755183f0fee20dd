"""Tensor Memory of a launch: who allocates and frees it, and what its products and copies become.

What enters: a function whose pipelines are loops. What leaves: one in which each buffer of Tensor
Memory has its columns, allocated and freed by one warp, and an address; products into it are
`AsyncGemm`s, each followed by the wait for it unless the author waits; copies are `TensorLoad`s and
`TensorStore`s between it and whole fragments. An `Annotate` of kind TENSORS says for each buffer
how it lies (`Cells`) and which variable has its address.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from tilelang.dtypes import DType
from tilelang.errors import Loc, TileError, error
from tilelang.ir.affine import bounds
from tilelang.ir.expr import Binary, BinaryOp, Buffer, Load, Region, Var, const
from tilelang.ir.scales import PairScaledGemm, ScaleCopy
from tilelang.ir.special import GemmBlockScaled
from tilelang.ir.sync import AsyncGemm, AsyncUnit, MmaArrive
from tilelang.ir.text import print_expr
from tilelang.ir.tile import (
    Alloc,
    Annotate,
    Block,
    Copy,
    Fill,
    Free,
    Function,
    Gemm,
    If,
    Launch,
    Let,
    Stmt,
    Store,
    SyncThreads,
    View,
)
from tilelang.isa.target import Capability, Target
from tilelang.layout.cells import ROWS, Cells, Lanes, from_key
from tilelang.passes.build import (
    Names,
    compare,
    map_bodies,
    map_statements,
    minus,
    static_extents,
    whole,
)
from tilelang.passes.issue import (
    KEPT,
    LANES_WRITTEN,
    TENSORS,
    Arm,
    Issue,
    Roles,
    TensorLoad,
    TensorStore,
)
from tilelang.passes.lower_copies import view_roots
from tilelang.passes.lower_parallel import statements
from tilelang.passes.simt.clusters import Clusters
from tilelang.passes.simt.launch import (
    WARP,
    Note,
    Tensor,
    Threads,
    noted,
    refused,
    static_shape,
)
from tilelang.passes.simt.operands import staged_product, strides
from tilelang.passes.simt.scaled_products import scale_columns, scaled_product, settled
from tilelang.passes.simt.small_floats import pack_operands
from tilelang.passes.simt.tcgen05 import awaited, is_pair, moved
from tilelang.passes.simt.tensor_views import placed_cells
from tilelang.passes.tensor_columns import Allocation, Columns, Order, columns_held, order_of
from tilelang.scopes import Memory

U32, U64, I32 = DType("uint32"), DType("uint64"), DType("int32")
_CLUSTER = ("barrier.cluster.arrive", "barrier.cluster.wait")


def tensor_memory(fn: Function, target: Target) -> Function:
    """Tensor Memory is planned, and what uses it waits for what it needs."""
    names, roots = Names(fn), view_roots(fn)
    notes: list[Note] = []

    def one(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, Launch):
            return None
        threads = Threads(fn, stmt, names, roots)
        body = _Planner(threads, target).lower(stmt.body)
        notes.extend(threads.notes)
        return (stmt.with_(body=body),)

    return noted(fn.with_(body=map_statements(fn.body, one)), notes)


def tensors_of(body: Block) -> dict[str, Tensor]:
    """The buffers in Tensor Memory of a launch, once they are planned."""
    return {
        buffer.name: Tensor(from_key(key), address)
        for s in statements(body)
        if isinstance(s, Annotate) and s.kind == TENSORS
        for buffer, key, address in zip(s.buffers, s.values, s.exprs, strict=True)
    }


@dataclass(frozen=True)
class _Tensor:
    """A buffer of Tensor Memory: how it lies, the columns that it asks for, and its address."""

    alloc: Alloc
    cells: Cells | None
    columns: int
    address: Var

    @property
    def buffer(self) -> Buffer:
        """The buffer."""
        return self.alloc.buffer


@dataclass(frozen=True)
class _Held:
    """Columns that are allocated at once, and where the hardware writes their address; `parts` are
    the buffers in them, each with the column that it begins at, the first one at 0. `over` is 1
    where the author has given them back, which the end of the block asks; None where it knows.
    """

    plan: Allocation
    place: Buffer
    parts: tuple[tuple[_Tensor, int], ...]
    over: Buffer | None

    @property
    def address(self) -> Var:
        """The address of the columns."""
        return self.parts[0][0].address

    @property
    def loc(self) -> Loc | None:
        """Where the widest buffer is allocated."""
        return self.plan.widest.loc

    @property
    def allocs(self) -> Block:
        """The allocations of the buffers."""
        more = () if self.over is None else (Alloc(self.over, loc=self.loc),)
        return (*(x.alloc for x, _ in self.parts), *more)


@dataclass
class _Part:
    """Threads that go through statements together, and how they wait for their products."""

    phases: list[Buffer] = field(default_factory=list[Buffer])
    turns: list[Buffer] = field(default_factory=list[Buffer])


@dataclass
class _Planner:
    """One launch."""

    t: Threads
    target: Target
    tensors: dict[str, _Tensor] = field(default_factory=dict[str, _Tensor])
    held: dict[str, _Held] = field(default_factory=dict[str, _Held])
    late: list[_Held] = field(default_factory=list[_Held])
    scales: dict[int, Buffer] = field(default_factory=dict[int, Buffer])
    authors: set[str] = field(default_factory=set[str])
    reading: dict[str, dict[str, Buffer]] = field(default_factory=dict[str, dict[str, Buffer]])
    barriers: list[Buffer] = field(default_factory=list[Buffer])
    owner: int = 0
    meets: bool = False
    pair: str = ""
    """The end of the names of rows, where blocks multiply in pairs."""

    def lower(self, body: Block) -> Block:
        """The body with its plan, or as it is where there is no Tensor Memory."""
        found = [
            s
            for s in statements(body)
            if isinstance(s, Alloc) and self.t.memory(s.buffer) is Memory.TMEM
        ]
        if not found:
            return body
        self.pair = ".cta2" if is_pair(body) else ""
        self.refuse(body, found)
        body = pack_operands(map_statements(body, lambda s: settled(s, self.t)), self.t)
        scales = [
            Alloc(self.scales_of(s), loc=s.loc)
            for s in statements(body)
            if isinstance(s, GemmBlockScaled) and self.t.memory(s.c.buffer) is Memory.TMEM
        ]
        found, body = [*scales, *found], (*scales, *body)
        for alloc in found:
            self.plan(alloc, body)
        self.authors = {
            s.barrier.buffer.name
            for s in statements(body)
            if isinstance(s, (AsyncGemm, MmaArrive)) and s.barrier is not None
        }
        self.reading = {name: _read_by(body, name, self.t) for name in self.authors}
        early, self.late = self.order(body)
        self.owner = self.owning_warp(body)
        roles = next((s for s in body if isinstance(s, Roles)), None)
        made = self.part(body if roles is None else roles.consumers)
        kept = [x for x in early if not x.plan.sure]
        made = (*made, *self.give_back(kept, None, met=_ends_by_meeting(made)))
        if roles is None:
            met = [Issue(row, (), ()) for row in _CLUSTER if self.meets]
            ready = Issue("fence.mbarrier_init", (), ())
            before = (*self.prologue(early, ready), SyncThreads(), *met)
            return (*before, *_addresses(early), *made)
        # Before the roles all threads meet, after their mbarriers have been set up too.
        known = (*_addresses(early), roles.with_(consumers=made))
        return (*self.prologue(early), *(x for s in body for x in (known if s is roles else (s,))))

    def scales_of(self, stmt: GemmBlockScaled) -> Buffer:
        """The Tensor Memory for the scales of a product."""
        columns = sum(scale_columns(stmt))
        made = self.t.names.buffer("scales", U32, (ROWS, columns), "shared.tmem")
        self.scales[id(stmt)] = made
        return made

    def refuse(self, body: Block, found: Sequence[Alloc]) -> None:
        """What the lowering does not have."""
        if self.t.count % WARP:
            raise error(
                "target",
                f"Tensor Memory in a block of {self.t.count} threads",
                found[0].loc,
                expected="whole warps: tcgen05 instructions are executed by all threads of a warp",
                got=f"{self.t.count} threads",
                help="use a multiple of 32 threads; copies of Tensor Memory need 128",
            )
        names = {a.buffer.name for a in found}
        names |= {view for view, root in self.t.roots.items() if root in names}
        for s in statements(body):
            if isinstance(s, (Gemm, AsyncGemm, GemmBlockScaled)) and s.c.buffer.name in names:
                self.refuse_type(s)
                for region in (s.a, s.c):
                    if region.buffer.name in names and not begins_a_band(region, self.t):
                        raise _inside_a_band(s, region)
                two = isinstance(s, PairScaledGemm) or (isinstance(s, AsyncGemm) and s.two_cta)
                if self.pair and not two:
                    raise _of_one_block(s, "a product")
            if isinstance(s, Arm):
                for product in statements(s.body):
                    if isinstance(product, PairScaledGemm):
                        raise _by_a_part(product)
            if isinstance(s, ScaleCopy) and self.pair and not s.two_cta:
                raise _of_one_block(s, "a copy of scales")

    def refuse_type(self, stmt: Gemm | AsyncGemm | GemmBlockScaled) -> None:
        """A product of types that the chip has no instruction for."""
        if stmt.a.dtype.is_integer and not self.target.supports(Capability.TCGEN05_INT8):
            raise error(
                "target",
                f"tcgen05 of {self.target} does not multiply {stmt.a.dtype}",
                stmt.loc,
                expected="floats, or a chip whose tcgen05 multiplies integers",
                got=f"{stmt.a.dtype} into {stmt.c.buffer.name}",
                help="accumulate in a fragment: T.gemm takes integers there",
            )

    # The plan ------------------------------------------------------------------------------------

    def order(self, body: Block) -> tuple[list[_Held], list[_Held]]:
        """What is allocated when the block begins, and what where it stands."""
        capacity = self.target.capacity(Memory.TMEM)
        assert capacity is not None

        def asked(alloc: Alloc) -> int | None:
            tensor = self.tensors.get(alloc.buffer.name)
            return None if tensor is None else tensor.columns

        given = Columns(asked, capacity.rounded, capacity.amount, self.t.roots)
        order = order_of(body, given)
        if self.scales:  # which the checks do not know
            self.refuse_scales(body, order, capacity.amount)
        early, late = ([self.hold(x) for x in found] for found in (order.first, order.later))
        self.held = {x.buffer.name: held for held in (*early, *late) for x, _ in held.parts}
        return early, late

    def refuse_scales(self, body: Block, order: Order, most: int) -> None:
        """Scales of products that have no room beside the buffers of the author."""
        product = next(s for s in statements(body) if id(s) in self.scales)
        held = columns_held(body, order)
        if held > most or order.wider is not None:
            raise error(
                "capacity",
                f"{held} columns of Tensor Memory are asked for with the scales of products,"
                f" {most} are available"
                if held > most
                else "an allocation of Tensor Memory is wider than that of the scales of products",
                product.loc if order.wider is None else order.wider.widest.loc,
                expected=f"at most {most} columns at once, none after narrower ones",
                got=f"{sum(_columns(b) for b in self.scales.values())} columns for scales",
                help="use smaller tiles, or do not allocate again after a T.deallocate_tmem",
            )

    def hold(self, plan: Allocation) -> _Held:
        """The columns of an allocation."""
        place = self.t.names.buffer(f"{plan.widest.buffer.name}_place", U32, (1,), "shared.dyn")
        parts = tuple((self.tensors[a.buffer.name], at) for a, at in plan.members)
        asked = bool(plan.freed) and not plan.sure
        over = self.t.names.buffer("given_back", I32, (1,), "local.var") if asked else None
        return _Held(plan, place, parts, over)

    def plan(self, alloc: Alloc, body: Block) -> None:
        """The columns of a buffer, and how it and its views lie there."""
        b = alloc.buffer
        asked, cells = placed_cells(alloc, body, self.t.roots, pair=bool(self.pair))
        made = _Tensor(alloc, cells[b.name], asked, self.t.names.var(f"{b.name}_at", U32))
        for name in cells:
            self.tensors[name] = replace(made, cells=cells[name])

    def owning_warp(self, body: Block) -> int:
        """The warp that allocates and frees: one that gets to every T.deallocate_tmem."""
        firsts = {
            arm.first // WARP
            for arm in statements(body)
            if isinstance(arm, Arm) and any(isinstance(s, Free) for s in statements(arm.body))
        }
        if len(firsts) > 1:
            free = next(s for s in statements(body) if isinstance(s, Free))
            raise error(
                "target",
                "T.deallocate_tmem by several parts of the block",
                free.loc,
                expected="one warp that allocates and frees all Tensor Memory of the block",
                help="free the buffers in one T.ws, or leave it to the end of the block",
            )
        return firsts.pop() if firsts else 0

    def by_owner(self, body: Block, loc: Loc | None) -> Stmt:
        """Statements of the warp that allocates."""
        warp = Binary(BinaryOp.FLOORDIV, self.t.flat, const(WARP))
        return If(compare(BinaryOp.EQ, warp, self.owner), body, loc=loc)

    # Allocation ----------------------------------------------------------------------------------

    def prologue(self, early: Sequence[_Held], *ready: Stmt) -> Block:
        """Allocation, and mbarriers, with what stands after they are set up."""
        out: list[Stmt] = [a for x in early for a in x.allocs]
        out += [Alloc(x.place, loc=x.loc) for x in early]
        steps: list[Stmt] = [self.allocated(x) for x in early]
        if not self.late:
            steps.append(Issue(f"tcgen05.relinquish_alloc_permit{self.pair}", (), ()))
        out.append(self.by_owner(tuple(steps), None))
        out += [Alloc(b) for b in self.barriers]
        init = [Issue("mbarrier.init", (_one(b),), (const(1),)) for b in self.barriers]
        if init:
            out.append(If(self.t.first(), (*init, *ready)))
        return tuple(out)

    def give_back(self, given: Sequence[_Held], loc: Loc | None, *, met: bool = False) -> Block:
        """Columns are freed, after everything that used them; `met` says that all threads of the
        cluster have just met.
        """
        if not given:
            return ()
        # A pair frees together, when neither of its blocks uses what the other has.
        rows = _CLUSTER if self.pair and not met else ()
        return (
            *(Issue(row, (), (), loc=loc) for row in rows),
            *(self.unused(x, loc) for x in given),
            self.by_owner(tuple(self.left(x, loc) for x in given), loc),
        )

    def unused(self, held: _Held, loc: Loc | None) -> Stmt:
        """A mark: nothing uses the buffers in these columns any more."""
        used = tuple(whole(x.buffer) for x, _ in held.parts)
        return Issue(LANES_WRITTEN, used, (), loc=loc)

    def free(self, stmt: Free, part: _Part) -> Block:
        """What an author frees, by the last one of those that are freed together: of a pair when
        its other block has got there, too.
        """
        name, loc = stmt.buffer.name, stmt.loc
        held = self.held[self.t.roots.get(name, name)]
        if all(x is not stmt for x in held.plan.freed):
            return ()
        owner = self.by_owner((*self.met(part, loc), self.freed(held, loc)), loc)
        said = () if held.over is None else (Store(held.over, (const(0),), const(1), loc=loc),)
        return (self.unused(held, loc), owner, *said)

    def met(self, part: _Part, loc: Loc | None) -> Block:
        """The warps that allocate in the two blocks of a pair wait for each other."""
        if not self.pair:
            return ()
        names = self.t.names
        turn = names.buffer("pair_turn", I32, (1,), "local.var")
        both = names.buffer("pair_met", U64, (1,), "shared.dyn")
        part.turns.append(turn)
        self.barriers.append(both)
        self.meets = True
        now = Load(turn, (const(0),))
        other = Binary(BinaryOp.BITXOR, Clusters(self.t).rank(), const(1))
        lane = Binary(BinaryOp.FLOORMOD, self.t.flat, const(WARP))
        arrive = Issue("mbarrier.arrive.cluster", (_one(both),), (other,), loc=loc)
        return (
            If(compare(BinaryOp.EQ, lane, 0), (arrive,), loc=loc),
            Issue("mbarrier.try_wait.parity.cluster", (), (_one(both), now), loc=loc),
            Store(turn, (const(0),), minus(const(1), now), loc=loc),
        )

    def left(self, held: _Held, loc: Loc | None) -> Stmt:
        """The end of an allocation, unless the author has given it back."""
        freed = self.freed(held, loc)
        if held.over is None:
            return freed
        return If(compare(BinaryOp.EQ, Load(held.over, (const(0),)), 0), (freed,), loc=loc)

    def allocated(self, x: _Held) -> Stmt:
        """The allocation of columns."""
        imm = (("columns", x.plan.taken),)
        return Issue(f"tcgen05.alloc{self.pair}", (_one(x.place),), (), imm=imm, loc=x.loc)

    def freed(self, x: _Held, loc: Loc | None) -> Stmt:
        """The end of an allocation."""
        imm = (("columns", x.plan.taken),)
        return Issue(f"tcgen05.dealloc{self.pair}", (), (x.address,), imm=imm, loc=loc)

    # Statements ----------------------------------------------------------------------------------

    def part(self, body: Block) -> Block:
        """Statements of threads that go through them together."""
        part = _Part()
        made = self.block(body, part)
        return (*(Alloc(b) for b in (*part.phases, *part.turns)), *made)

    def block(self, body: Block, part: _Part) -> Block:
        """Statements in order; what is allocated here after a free is freed where they end."""
        out: list[Stmt] = []
        mine: list[_Held] = []
        for stmt in body:
            here = [x for x in self.late if x.plan.earliest is stmt]
            out += [s for x in here for s in self.allocate(x, part)]
            mine += here
            out += self.statement(stmt, part)
        return (*out, *self.give_back([x for x in mine if not x.plan.sure], None))

    def statement(self, stmt: Stmt, part: _Part) -> Block:
        """One statement."""
        made: Block
        match stmt:
            case Alloc() if stmt.buffer.name in self.tensors:
                made = ()  # the block begins with it, or what stands before it
            case View() if stmt.buffer.name in self.tensors:
                x = self.tensors[stmt.buffer.name]
                made = (stmt, _lies([(stmt.buffer, x)]))
            case Free():
                made = self.free(stmt, part)
            case Gemm() if stmt.c.buffer.name in self.tensors:
                made = self.product(stmt, part)
            case GemmBlockScaled() if id(stmt) in self.scales:
                made = self.scaled(stmt, part)
            case Copy() if stmt.src.buffer.name in self.tensors:
                made = self.load(stmt)
            case Copy() | Fill() if stmt.dst.buffer.name in self.tensors:
                made = self.store(stmt)
            case Issue(row="mbarrier.try_wait.parity") if self.completes(stmt):
                made = (stmt, *awaited((), cast("Region", stmt.ins[0]), stmt.loc), *self.kept(stmt))
            case Issue(row="mbarrier.try_wait.parity.cluster") if self.completes(stmt):
                made = (stmt, *self.kept(stmt))
            case Arm():
                made = (stmt.with_(body=self.part(stmt.body)),)
            case _:
                made = (map_bodies(stmt, lambda b: self.block(b, part)),)
        return made

    def kept(self, stmt: Issue) -> Block:
        """A mark: the tiles of products that complete at the mbarrier are needed until here."""
        name = cast("Region", stmt.ins[0]).buffer.name
        found = tuple(whole(b) for b in self.reading.get(name, {}).values())
        return (Issue(KEPT, (), found, loc=stmt.loc),) if found else ()

    def completes(self, stmt: Issue) -> bool:
        """Whether products complete at the mbarrier that is waited for."""
        return isinstance(stmt.ins[0], Region) and stmt.ins[0].buffer.name in self.authors

    def allocate(self, x: _Held, part: _Part) -> Block:
        """An allocation where it stands; the others are made when the block begins."""
        return (
            *x.allocs,
            Alloc(x.place, loc=x.loc),
            self.by_owner((self.allocated(x), *self.met(part, x.loc)), x.loc),
            SyncThreads(loc=x.loc),
            *_addresses([x]),
        )

    def product(self, stmt: Gemm, part: _Part) -> Block:
        """A product, and the wait for it."""
        before, stmt = staged_product(stmt, self.t)
        done = self.done(part)
        issue = AsyncGemm(
            stmt.a,
            stmt.b,
            stmt.c,
            stmt.clear_accum,
            unit=AsyncUnit.TCGEN05,
            transpose_a=stmt.transpose_a,
            transpose_b=stmt.transpose_b,
            barrier=done,
            loc=stmt.loc,
        )
        return (*before, issue, *self.wait(part, done, (stmt.a, stmt.b, stmt.c), stmt.loc))

    def scaled(self, stmt: GemmBlockScaled, part: _Part) -> Block:
        """A block-scaled product, and the wait for it."""
        done = self.done(part)
        before, issue = scaled_product(stmt, self.t, self.scales[id(stmt)], done)
        words = (s.src for s in before if isinstance(s, ScaleCopy))
        used = (issue.a, issue.b, issue.c, issue.sfa, issue.sfb, *words)
        return (*before, issue, *self.wait(part, done, used, stmt.loc))

    def done(self, part: _Part) -> Region:
        """The mbarrier at which a product completes. Each has its own, so that threads need not
        have seen the end of one before another one ends.
        """
        done = self.t.names.buffer("product_done", U64, (1,), "shared.dyn")
        part.phases.append(self.t.names.buffer("product_phase", I32, (1,), "local.var"))
        self.barriers.append(done)
        return _one(done)

    def wait(self, part: _Part, done: Region, used: Sequence[Region], loc: Loc | None) -> Block:
        """Every thread waits until the product before is complete."""
        phase = Load(part.phases[-1], (const(0),))
        row = "mbarrier.try_wait.parity" + ".cluster" * bool(self.pair)
        return (
            Issue(row, (), (done, phase), loc=loc),
            *awaited(used, done, loc),
            Store(phase.buffer, (const(0),), minus(const(1), phase), loc=loc),
        )

    def load(self, stmt: Copy) -> Block:
        """A copy out of Tensor Memory, through a fragment that lies as it does."""
        part, loc = self.fragment(stmt.src), stmt.loc
        return (
            Alloc(part, loc=loc),
            TensorLoad(stmt.src, whole(part), loc=loc),
            stmt.with_(src=whole(part)),
        )

    def store(self, stmt: Copy | Fill) -> Block:
        """A copy into Tensor Memory, through a fragment that lies as it does."""
        part, loc = self.fragment(stmt.dst), stmt.loc
        return (
            Alloc(part, loc=loc),
            stmt.with_(dst=whole(part)),
            TensorStore(whole(part), stmt.dst, loc=loc),
        )

    def fragment(self, region: Region) -> Buffer:
        """A fragment for a part of Tensor Memory; raises for a part that no warp can copy."""
        extents = static_extents(region)
        cells = self.tensors[region.buffer.name].cells
        if extents is None:
            raise refused(region, "a copy of Tensor Memory whose size is known at run time only")
        fault = None if cells is None else copy_fault(region, cells, self.t)
        if cells is None or fault is not None:
            raise _no_copy(region, fault or "its rows do not lie in all lanes")
        shape = extents
        while len(shape) > 2 and shape[0] == 1:
            shape = shape[1:]
        return self.t.names.buffer(f"{region.buffer.name}_part", region.dtype, shape)


def _ends_by_meeting(body: Block) -> bool:
    return tuple(s.row for s in body[-2:] if isinstance(s, Issue)) == _CLUSTER


def _read_by(body: Block, barrier: str, t: Threads) -> dict[str, Buffer]:
    """The tiles that the unit may read until an author's mbarrier completes."""
    found: dict[str, Buffer] = {}
    for s in statements(body):
        if isinstance(s, ScaleCopy):
            found[s.src.buffer.name] = s.src.buffer
        elif isinstance(s, AsyncGemm) and (s.barrier is None or s.barrier.buffer.name == barrier):
            found |= {r.buffer.name: r.buffer for r in (s.a, s.b)}
    return {n: b for n, b in found.items() if t.memory(b) is Memory.SHARED}


def _by_a_part(stmt: Stmt) -> TileError:
    return error(
        "divergence",
        "T.gemm_blockscaled(use_2cta=True) by a part of the block",
        stmt.loc,
        expected="a place that all threads of both blocks get to: they meet there",
        help="issue it: T.tcgen05_gemm_blockscaled(..., mbar=bar, use_2cta=True)",
    )


def _of_one_block(stmt: Stmt, what: str) -> TileError:
    return error(
        "target",
        f"{what} of one block in a kernel that has products of two",
        stmt.loc,
        expected="only products of two blocks: the hardware takes no others there",
        help="use T.tcgen05_gemm(..., use_2cta=True), and use_2cta=True for copies of scales too",
    )


def begins_a_band(region: Region, t: Threads) -> bool:
    """Whether the first row of a part of Tensor Memory lies in the first lane."""
    return bounds(region.mins[-2], strides(t)).divisible_by(ROWS)


def _inside_a_band(stmt: Stmt, region: Region) -> TileError:
    return error(
        "target",
        f"a product with rows of {region.buffer.name} that begin in the middle of the lanes",
        stmt.loc,
        expected=f"rows that begin at a multiple of {ROWS}: a row is a lane",
        got=f"rows from {print_expr(region.mins[-2])} on",
        help="begin at a multiple of it, or use several buffers",
    )


def copy_fault(region: Region, cells: Cells, t: Threads) -> str | None:
    """Why the threads cannot copy a part of Tensor Memory."""
    extents = static_extents(region) or (0, 0)
    if extents[-2] % cells.rows:
        return f"{extents[-2]} of its {cells.bands * cells.rows} rows are copied"
    if not begins_a_band(region, t):
        return f"rows from {print_expr(region.mins[-2])} on begin in the middle of the lanes"
    if cells.lanes is Lanes.FOLDED and extents[-1] != cells.columns:
        return f"{extents[-1]} of its {cells.columns} columns are copied"
    if extents[-1] % cells.group:
        return f"{extents[-1]} columns of {region.dtype} are no multiple of {cells.group}"
    if t.count < 128:
        return f"{t.count} threads reach only the lanes of {t.count // WARP} warps"
    return None


def _no_copy(region: Region, why: str) -> TileError:
    return error(
        "target",
        f"a copy of {region.buffer.name} in Tensor Memory cannot be made: {why}",
        region.loc,
        expected="all 128 (or 64) rows, or whole bands of 128, by at least 128 threads: each warp"
        " reaches 32 lanes",
        got=f"{tuple(static_extents(region) or ())} of {region.buffer.name}",
        help="copy all rows into a fragment and use a part of that",
    )


def _addresses(found: Sequence[_Held]) -> Block:
    """The addresses as variables, and how the buffers lie."""
    made: list[Stmt] = []
    for held in found:
        for x, at in held.parts:
            first = moved(held.address, at) if at else Load(held.place, (const(0),))
            made.append(Let(x.address, first, loc=x.alloc.loc))
    return (*made, _lies([(x.buffer, x) for held in found for x, _ in held.parts]))


def _lies(found: Sequence[tuple[Buffer, _Tensor]]) -> Stmt:
    """How buffers lie, where a whole number of warps has their rows."""
    known = [(b, x, x.cells) for b, x in found if x.cells is not None]
    return Annotate(
        TENSORS,
        buffers=tuple(b for b, _, _ in known),
        values=tuple(cells.key() for _, _, cells in known),
        exprs=tuple(x.address for _, x, _ in known),
    )


def _columns(buffer: Buffer) -> int:
    return (static_shape(buffer) or (0,))[-1]


def _one(buffer: Buffer) -> Region:
    return Region(buffer, (const(0),), (const(1),))
