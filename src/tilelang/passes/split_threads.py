"""Code that names threads, as loops over the threads between barriers.

What enters: a launch whose statements use thread indices. What leaves: one that does not.
Statements of threads between two places where all threads meet (a barrier, an operation of the
block) are a region, which runs for one thread after the other; what a thread keeps from one region
to the next gets a place for each thread. Control flow around a meeting must be the same for all
threads; what cannot be split is refused by name.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tilelang.errors import TileError, error
from tilelang.ir.affine import is_stable
from tilelang.ir.expr import (
    BOOL,
    AddressOf,
    Binary,
    BinaryOp,
    Buffer,
    Const,
    Expr,
    Load,
    LoadVector,
    Region,
    Var,
    const,
)
from tilelang.ir.node import Node
from tilelang.ir.special import Collective, TestElements
from tilelang.ir.sync import SyncWarp
from tilelang.ir.tile import (
    Alloc,
    Atomic,
    Block,
    Break,
    Continue,
    Copy,
    Fill,
    For,
    Function,
    If,
    Launch,
    Let,
    LoopKind,
    Parallel,
    Print,
    Stmt,
    Store,
    StoreVector,
    SyncThreads,
    ThreadReturn,
    TileOp,
    View,
    While,
)
from tilelang.isa.target import Target
from tilelang.passes.build import Names, map_statements
from tilelang.passes.canonicalize import BY_THREAD
from tilelang.passes.check.program import op_name
from tilelang.passes.collectives import expand_collective
from tilelang.passes.lower_copies import is_single, view_roots
from tilelang.passes.lower_parallel import blocks, in_lockstep, own_nodes, statements
from tilelang.passes.threads import thread_axes, thread_index
from tilelang.passes.varying import Varying
from tilelang.scopes import Dialect, Memory, memory_of


def split_threads(fn: Function, target: Target) -> Function:
    """No statement names a thread, and there are no barriers of a block."""
    del target
    names, roots = Names(fn), view_roots(fn)

    def one(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, Launch):
            return None
        return (stmt.with_(body=ThreadCode(fn, stmt, names, roots).split()),)

    return fn.with_(body=map_statements(fn.body, one))


class Role(enum.Enum):
    """Who carries out a statement."""

    BLOCK = "the block, once"
    THREAD = "each thread"
    MEETING = "all threads together"


@dataclass
class _Region:
    """Statements of threads between two meetings."""

    body: list[Stmt] = field(default_factory=list[Stmt])


@dataclass
class _Nest:
    """A statement of the block with regions inside it."""

    stmt: Stmt
    inner: dict[str, list[_Item]]


_Item = Stmt | _Region | _Nest
_BARRIERS = (SyncThreads, SyncWarp)


class ThreadCode:
    """One launch."""

    def __init__(self, fn: Function, launch: Launch, names: Names, roots: dict[str, str]) -> None:
        self.launch = launch
        self.names = names
        self.dialect = Dialect(fn.dialect)
        self.axes = thread_axes(launch, self.dialect)
        self.count = math.prod(n for _, n in self.axes)
        seeds = [v for v, n in self.axes if n > 1]
        self.varying = Varying(launch.body, seeds, self.is_private, roots)
        self.regions: list[_Region] = []
        self.allocs: list[Stmt] = []
        self.expanded: dict[str, Buffer] = {}

    def is_private(self, buffer: Buffer) -> bool:
        """Whether a thread may have a buffer of its own."""
        return memory_of(self.dialect, buffer.scope) in (Memory.LOCAL, Memory.VAR)

    def split(self) -> Block:
        """The body without threads."""
        body = self.launch.body
        if not any(isinstance(s, Collective) or self.differs(s) for s in statements(body)):
            zeros = {v.name: Const(0, v.type) for v in self.launch.thread_vars}
            plain = map_statements(body, lambda s: () if isinstance(s, _BARRIERS) else None)
            return tuple(replace_vars(s, zeros) for s in plain)
        items = self.items(_returns_last(body, self))
        keep = _Kept(self)
        out = self.emitted(items, keep)
        return (*keep.allocs, *self.allocs, *out)

    # Who does what -------------------------------------------------------------------------------

    def role(self, stmt: Stmt) -> Role:
        """Who carries out a statement, those inside it included."""
        inside = list(statements((stmt,)))
        if isinstance(stmt, Parallel):
            return self.block_role(stmt)
        if any(self.meets(s) for s in inside if not self.in_parallel(stmt, s)):
            return Role.MEETING
        return Role.THREAD if self.differs(stmt) else Role.BLOCK

    def block_role(self, stmt: Stmt) -> Role:
        """That of an operation of the block, whose operands must be the same in all threads."""
        if self.varying.node(stmt):
            raise self.divergent(stmt, "uses a value that differs between threads")
        return Role.MEETING

    def in_parallel(self, stmt: Stmt, inner: Stmt) -> bool:
        """Whether `inner` is an iteration's statement; the loop itself meets."""
        return any(
            isinstance(s, Parallel)
            and s is not inner
            and any(x is inner for x in statements(s.body))
            for s in statements((stmt,))
        )

    def meets(self, stmt: Stmt) -> bool:
        """Whether all threads carry out a statement together."""
        if isinstance(stmt, (*_BARRIERS, Collective, Parallel)):
            return True
        if not isinstance(stmt, (TileOp, TestElements)):
            return False
        if isinstance(stmt, Atomic) and is_single(stmt.dst) and isinstance(stmt.value, Expr):
            return False
        regions = [n for n in stmt.children() if isinstance(n, Region)]
        if not self.varying.node(*stmt.children()):
            return True
        own = any(self.varying.own_instance(r.buffer) for r in regions)
        if isinstance(stmt, Copy) and stmt.hints == BY_THREAD:
            return False
        if own and isinstance(stmt, (Copy, Fill)):
            return False
        if own:
            raise self.divergent(stmt, "its operands differ between threads")
        raise error(
            "divergence",
            f"{op_name(stmt)} is done by all threads of the block together, but its operands"
            " differ between threads",
            stmt.loc,
            expected="the same operands in all threads",
            help="write it for single elements",
        )

    def differs(self, stmt: Stmt) -> bool:
        """Whether the threads do different things, or each its own."""
        for s in statements((stmt,)):
            if self.count > 1 and isinstance(s, Atomic):
                return True
            if self.varying.head(s):
                return True
            bound = [s.var] if isinstance(s, Let) else []
            if any(v.name in self.varying.names for v in bound):
                return True
            if isinstance(s, (Alloc, View)) and self.varying.own_instance(s.buffer):
                return True
        return False

    def divergent(self, stmt: Stmt, why: str) -> TileError:
        """The error for a meeting that not all threads come to alike."""
        # A wait for an mbarrier is a meeting of all threads here.
        barrier = isinstance(stmt, SyncThreads)
        name = "T.sync_threads or T.mbarrier_wait_parity" if barrier else op_name(stmt)
        return error(
            "target",
            f"{name} is done by all threads of the block together, but {why}",
            stmt.loc,
            expected="a place that all threads of the block reach together, with the same operands",
            help='move it out of the condition or loop, or run the kernel with target="emulate"',
        )

    # Regions -------------------------------------------------------------------------------------

    def items(self, body: Block) -> list[_Item]:
        """Statements of the block, and regions between them."""
        out: list[_Item] = []
        run: _Region | None = None
        for stmt in body:
            for s in self.simple_parts(stmt):
                role = self.role(s)
                if role is Role.THREAD:
                    if run is None:
                        run = _Region()
                    run.body.append(s)
                    continue
                movable = (isinstance(s, Let) and is_stable(s.value)) or (
                    isinstance(s, Alloc) and s.init is None
                )
                if run is not None and not (role is Role.BLOCK and movable):
                    out.append(self.closed(run))
                    run = None
                out += [s] if role is Role.BLOCK else self.meeting(s)
        if run is not None:
            out.append(self.closed(run))
        return out

    def simple_parts(self, stmt: Stmt) -> Block:
        """A collective operation as what threads and the block do; another statement alone."""
        if not isinstance(stmt, Collective):
            return (stmt,)
        parts = expand_collective(stmt, self.thread_index(), self.count, self.names)
        self.allocs += [s for s in parts if isinstance(s, Alloc)]
        if stmt.differs:
            self.varying.names.add(stmt.result.name)
        return tuple(s for s in parts if not isinstance(s, Alloc))

    def closed(self, run: _Region) -> _Region:
        """A region that is done."""
        self.regions.append(run)
        return run

    def meeting(self, stmt: Stmt) -> list[_Item]:
        """A statement that all threads reach together."""
        if isinstance(stmt, SyncThreads) and stmt.arrive_count is not None:
            raise self.divergent(stmt, "it counts only some of them")
        if isinstance(stmt, _BARRIERS):
            return []
        if isinstance(stmt, (TileOp, Parallel, TestElements)):
            return [stmt]
        if not isinstance(stmt, (If, For, While)):
            return [stmt]  # what has no lowering is refused by name later
        heads = [stmt.cond] if isinstance(stmt, (If, While)) else [stmt.start, stmt.stop]
        if self.varying.node(*heads):
            raise self.divergent(self.first_meeting(stmt), "only some threads get there")
        if not isinstance(stmt, If) and self.varying.leaves_apart(stmt.body):
            raise self.divergent(
                self.first_meeting(stmt), "some threads leave the loop before others"
            )
        names = ("then", "orelse") if isinstance(stmt, If) else ("body",)
        return [_Nest(stmt, {n: self.items(getattr(stmt, n)) for n in names})]

    def first_meeting(self, stmt: Stmt) -> Stmt:
        """The first statement inside that all threads carry out together."""
        return next(s for s in statements((stmt,)) if self.meets(s))

    def thread_index(self) -> Expr:
        """The place of a thread in its block."""
        return thread_index(self.axes)

    # Emission ------------------------------------------------------------------------------------

    def emitted(self, items: list[_Item], keep: _Kept) -> Block:
        """Statements and regions, the latter as loops over threads."""
        out: list[Stmt] = []
        for item in items:
            if isinstance(item, _Region):
                out += self.loops(keep.body(item))
            elif isinstance(item, _Nest):
                out.append(
                    item.stmt.with_(**{n: self.emitted(i, keep) for n, i in item.inner.items()})
                )
            else:
                out.append(item)
        return tuple(out)

    def loops(self, body: Block) -> Block:
        """One region for all threads."""
        values: dict[str, Expr] = {}
        loops: list[tuple[Var, int]] = []
        for var, extent in self.axes:
            if extent > 1:
                loops.append((self.names.var(var.name, var.type), extent))
                values[var.name] = loops[-1][0]
            else:
                values[var.name] = Const(0, var.type)
        body = map_statements(body, self.told)
        body = tuple(replace_vars(s, values) for s in body)
        body = without_returns(body, self.names)
        lockstep = in_lockstep(body)
        for k, (var, extent) in enumerate(loops):
            kind = LoopKind.VECTORIZED if k == 0 and lockstep else LoopKind.SERIAL
            first, last = Const(0, var.type), Const(extent, var.type)
            body = (For(var, first, last, body, kind=kind, loc=self.launch.loc),)
        return body

    def told(self, stmt: Stmt) -> Block | None:
        """A print that says which thread prints."""
        if not isinstance(stmt, Print) or stmt.thread:
            return None
        return (stmt.with_(thread=tuple(v for v, _ in self.axes)),)


def replace_vars(stmt: Stmt, values: Mapping[str, Expr]) -> Stmt:
    """A statement with variables replaced by name."""
    if not values:
        return stmt
    return stmt.rewrite(lambda n: values.get(n.name) if isinstance(n, Var) else None)


# What threads keep -------------------------------------------------------------------------------


class _Kept:
    """What a thread keeps from one region to another: names computed anew or put into an array with
    a place for each thread, and buffers of a thread's own with one more axis.
    """

    def __init__(self, threads: ThreadCode) -> None:
        self.threads = threads
        self.allocs: list[Stmt] = []
        self.defined: dict[str, tuple[_Region, Let]] = {}
        self.spilled: dict[str, Buffer] = {}
        self.expanded: dict[str, Buffer] = {}
        for region in threads.regions:
            for stmt in region.body:
                if isinstance(stmt, Let):
                    self.defined[stmt.var.name] = (region, stmt)
        for region in threads.regions:
            for name in self.outside_names(region):
                if not self.repeatable(self.defined[name][1]):
                    self.spill(self.defined[name][1])
        self.expand()

    def outside_names(self, region: _Region) -> list[str]:
        """Names that a region uses and another one defines."""
        used = dict.fromkeys(n.name for s in region.body for n in s.walk() if isinstance(n, Var))
        return [n for n in used if n in self.defined and self.defined[n][0] is not region]

    def repeatable(self, let: Let) -> bool:
        """Whether a name can be computed again, with the same result."""
        if not is_stable(let.value):
            return False
        names = [n.name for n in let.value.walk() if isinstance(n, Var)]
        return all(self.repeatable(self.defined[n][1]) for n in names if n in self.defined)

    def spill(self, let: Let) -> None:
        """Give a name a place for each thread."""
        name = let.var.name
        if name not in self.spilled:
            made = self.threads.names.buffer(
                f"each_{name}", let.var.type, (self.threads.count,), "shared.dyn"
            )
            self.spilled[name] = made
            self.allocs.append(Alloc(made, loc=let.loc))

    def expand(self) -> None:
        """Give the buffers that several regions use a place for each thread."""
        homes: dict[str, list[_Region]] = {}
        allocs: dict[str, tuple[_Region, Alloc]] = {}
        for region in self.threads.regions:
            for stmt in statements(tuple(region.body)):
                if isinstance(stmt, Alloc):
                    allocs[stmt.buffer.name] = (region, stmt)
            for name in {b.name for s in region.body for b in _buffers(s)}:
                homes.setdefault(name, []).append(region)
        for name, (region, stmt) in allocs.items():
            b = stmt.buffer
            if all(r is region for r in homes.get(name, [])):
                continue
            self.refuse_views(name)
            shape = (const(self.threads.count), *b.shape)
            made = Buffer(
                self.threads.names.name(f"each_{name}"),
                b.dtype,
                shape,
                scope="shared.dyn",
                loc=b.loc,
            )
            self.expanded[name] = made
            self.allocs.append(Alloc(made, loc=stmt.loc))

    def refuse_views(self, name: str) -> None:
        for stmt in statements(self.threads.launch.body):
            views = isinstance(stmt, View) and name in (stmt.source.name, stmt.buffer.name)
            address = any(
                isinstance(n, AddressOf) and n.buffer.name == name for n in own_nodes(stmt)
            )
            whole = (
                isinstance(stmt, Print)
                and isinstance(stmt.value, Buffer)
                and stmt.value.name == name
            )
            if views or address or whole:
                raise error(
                    "target",
                    f"{name}, of which every thread has its own, is used across a barrier by its "
                    f"{'address' if address else 'name'}",
                    stmt.loc,
                    expected="loads and stores of its elements",
                    help='run the kernel with target="emulate", which has it',
                )

    def body(self, region: _Region) -> Block:
        """The statements of a region, with what they need from other regions."""
        index = self.threads.thread_index()
        names = self.outside_names(region)
        again = self.repeated([n for n in names if n not in self.spilled])
        values: dict[str, Expr] = {}
        before: list[Stmt] = []
        for name in names:
            if name in self.spilled:
                fresh = self.threads.names.var(name, self.spilled[name].dtype)
                values[name] = fresh
                load = Load(self.spilled[name], (index,))
                before.append(Let(fresh, load, loc=self.defined[name][1].loc))
        for let in again:
            fresh = self.threads.names.var(let.var.name, let.var.type)
            value = let.value
            if values:
                value = value.rewrite(lambda n: values.get(n.name) if isinstance(n, Var) else None)
                value = values.get(value.name, value) if isinstance(value, Var) else value
            before.append(Let(fresh, value, loc=let.loc))
            values[let.var.name] = fresh
        out = list(before)
        for stmt in region.body:
            out += self.kept(replace_vars(stmt, values), index)
        return tuple(out)

    def repeated(self, names: list[str]) -> list[Let]:
        """The definitions of names and of the names in them, in order."""
        found: dict[str, Let] = {}

        def need(name: str) -> None:
            let = self.defined[name][1]
            for n in let.value.walk():
                if isinstance(n, Var) and n.name in self.defined:
                    need(n.name)
            found.setdefault(name, let)

        for name in names:
            need(name)
        return list(found.values())

    def kept(self, stmt: Stmt, index: Expr) -> Block:
        """A statement that keeps what other regions need."""
        stmt = self.with_place(stmt, index)
        if isinstance(stmt, Alloc) and stmt.buffer.name in self.expanded:
            return self.first_value(stmt, index)
        spilled = self.spilled.get(stmt.var.name) if isinstance(stmt, Let) else None
        if spilled is None or not isinstance(stmt, Let):
            return (stmt,)
        return (stmt, Store(spilled, (index,), stmt.var, loc=stmt.loc))

    def first_value(self, stmt: Alloc, index: Expr) -> Block:
        b = self.expanded[stmt.buffer.name]
        value = stmt.init
        if value is None:
            if memory_of(self.threads.dialect, stmt.buffer.scope) is not Memory.VAR:
                return ()
            value = Const(False if b.dtype.is_bool else 0.0 if b.dtype.is_float else 0, b.dtype)
        at = (index, *(const(0) for _ in stmt.buffer.shape))
        return (Store(b, at, value, loc=stmt.loc),)

    def with_place(self, stmt: Stmt, index: Expr) -> Stmt:
        """A statement that uses the thread's own place in expanded buffers."""
        if not self.expanded:
            return stmt

        def one(node: Node) -> Node | None:
            if not isinstance(node, (Load, LoadVector, Store, StoreVector, Region)):
                return None
            other = self.expanded.get(node.buffer.name)
            if other is None:
                return None
            if isinstance(node, Region):
                mins, extents = (index, *node.mins), (const(1), *node.extents)
                return node.with_(buffer=other, mins=mins, extents=extents)
            return node.with_(buffer=other, indices=(index, *node.indices))

        inner = stmt.rewrite(one)
        found = one(inner)
        return found if isinstance(found, Stmt) else inner


def _buffers(stmt: Stmt) -> Iterator[Buffer]:
    for node in stmt.walk():
        if isinstance(node, Buffer):
            yield node
        elif isinstance(node, (Alloc, View)):
            yield node.buffer


# Returns -----------------------------------------------------------------------------------------


def _returns_last(body: Block, threads: ThreadCode) -> Block:
    """The body, in which nothing follows a return of some threads but statements of threads.

    Those that follow join the region of the return: they are put under a condition that holds.
    """
    for k, stmt in enumerate(body):
        some = isinstance(stmt, ThreadReturn) or any(
            isinstance(s, ThreadReturn) for s in statements((stmt,))
        )
        if not some or threads.role(stmt) is Role.BLOCK:
            continue
        rest = body[k + 1 :]
        meeting = next((s for s in statements((stmt, *rest)) if threads.meets(s)), None)
        if meeting is not None:
            raise threads.divergent(meeting, "some threads may have returned")
        return (*body[:k], If(Const(True, BOOL), (stmt, *rest), loc=stmt.loc))
    return body


def without_returns(body: Block, names: Names) -> Block:
    """A region's statements, which end the thread's round of the loop over threads instead."""
    if not any(isinstance(s, ThreadReturn) for s in statements(body)):
        return body
    gone = names.buffer("gone", const(0).dtype, (1,), "local.var")
    return (Alloc(gone), *_Leaving(gone).block(body, 0))


class _Leaving:
    def __init__(self, gone: Buffer) -> None:
        self.gone = gone

    def block(self, body: Block, loops: int) -> Block:
        """Statements inside so many loops of the thread."""
        out: list[Stmt] = []
        for stmt in body:
            if isinstance(stmt, ThreadReturn):
                out.append(Store(self.gone, (const(0),), const(1), loc=stmt.loc))
                out.append((Break if loops else Continue)(loc=stmt.loc))
                continue
            inner = loops + isinstance(stmt, (For, While))
            had = any(isinstance(s, ThreadReturn) for b in blocks(stmt) for s in statements(b))
            changes = {
                f: self.block(getattr(stmt, f), inner)
                for f in ("body", "then", "orelse")
                if hasattr(stmt, f)
            }
            out.append(stmt.with_(**changes) if changes else stmt)
            if had and isinstance(stmt, (For, While)):
                cond = Binary(BinaryOp.NE, Load(self.gone, (const(0),)), const(0))
                leave = (Break if loops else Continue)(loc=stmt.loc)
                out.append(If(cond, (leave,), loc=stmt.loc))
        return tuple(out)
