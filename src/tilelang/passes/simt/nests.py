"""Parallel nests as what one thread does of them.

What enters: a nest, the layout of its iterations, and where fragments lie. What leaves: loops over
the digits of the layout that count among registers, unrolled, the last one in lockstep where it
walks neighbouring elements. A fragment whose layout does not go with the nest is copied through
shared memory around it, and the report says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from tilelang.ir.affine import bounds
from tilelang.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Const,
    Expr,
    Load,
    LoadVector,
    Var,
    const,
    int_value,
)
from tilelang.ir.interval import interval
from tilelang.ir.node import Node
from tilelang.ir.tile import (
    Alloc,
    Annotate,
    Atomic,
    Block,
    For,
    If,
    Launch,
    Let,
    LoopKind,
    Parallel,
    Stmt,
    Store,
    StoreVector,
    While,
)
from tilelang.layout.placement import conflict_free
from tilelang.layout.spread import Digit, Spread
from tilelang.passes.build import (
    as_type,
    both,
    compare,
    loops_over,
    map_statements,
    minus,
    place,
    plus,
    serial,
    times,
)
from tilelang.passes.issue import PLACEMENT, Issue
from tilelang.passes.lower_parallel import in_lockstep, own_variables, statements, written
from tilelang.passes.simt.infer_layouts import (
    Axes,
    Layouts,
    Nest,
    Starts,
    Use,
    accesses,
    direct,
    nest_of,
    nest_spread,
    walked,
)
from tilelang.passes.simt.launch import Threads
from tilelang.passes.simt.tensor_copies import Boxes
from tilelang.passes.simt.tma_store import Result, handed_over, have_been_read
from tilelang.passes.split_threads import replace_vars
from tilelang.scopes import Memory

MOST_UNROLLED = 32
"""Rounds of a nest without registers that are unrolled; more are a loop."""


@dataclass
class Storage:
    """Where fragments lie: flat register arrays, one place for each register of a thread."""

    threads: Threads
    layouts: Layouts
    registers: dict[str, Buffer] = field(default_factory=dict[str, Buffer])

    def declare(self, buffer: Buffer, spread: Spread) -> Buffer:
        """The register array of a fragment."""
        made = buffer.with_(shape=(const(max(1, spread.registers)),))
        self.layouts.of[buffer.name] = spread
        self.registers[buffer.name] = made
        return made

    def fragment(self, hint: str, dtype: Any, spread: Spread) -> tuple[Buffer, Alloc]:
        """A new fragment of the layout given, and the declaration of its registers."""
        buffer = self.threads.names.buffer(hint, dtype, spread.shape)
        return buffer, Alloc(self.declare(buffer, spread))


@dataclass
class Walk:
    """The iterations of one thread: for each axis of the tile, its index as an expression and the
    part of it that counts among registers; the loops; and the conditions of being inside.
    """

    spread: Spread
    index: list[Expr]
    part: list[Expr]
    loops: list[tuple[Digit, Var]]

    def slot(self, spread: Spread, axes: Axes, starts: Starts = ()) -> Expr:
        """The register of the element that the iteration walks in a fragment of this layout, from
        `starts` on.
        """
        total: Expr = const(0)
        known = {(d.axis, d.size, d.weight): v for d, v in self.loops}
        for d, stride in zip(spread.register_digits, spread.register_strides(), strict=True):
            axis, start = axes[d.axis], starts[d.axis] if starts else None
            if axis is None:
                continue
            if start is not None:
                digit = _const_div(start, d.weight) if d.weight > 1 else start
                if d.weight * d.size < spread.reach(d.axis):
                    digit = Binary(BinaryOp.FLOORMOD, digit, const(d.size))
                total = plus(total, times(digit, stride))
                if d.weight >= self.spread.shape[axis]:
                    continue
            digit = known.get((axis, d.size, d.weight))
            total = plus(total, times(self.digit(axis, d) if digit is None else digit, stride))
        return total

    def digit(self, axis: int, d: Digit) -> Expr:
        """A digit of another layout along an axis, from the part that counts among registers."""
        out = self.part[axis]
        if d.weight > 1:
            out = _const_div(out, d.weight)
        if d.weight * d.size < self.spread.reach(axis):
            out = Binary(BinaryOp.FLOORMOD, out, const(d.size))
        return out

    def inside(self, *, but_last: bool) -> list[Expr]:
        """What must hold for the iteration to exist. With `but_last`, the last loop stays inside a
        group that exists wholly or not at all.
        """
        out: list[Expr] = []
        for axis, extent in enumerate(self.spread.shape):
            if not self.spread.is_padded(axis):
                continue
            index = self.index[axis]
            if but_last:
                index = cast("Expr", replace_in(index, {self.loops[-1][1].name: const(0)}))
            out.append(compare(BinaryOp.LT, index, extent))
        return out


def _const_div(e: Expr, by: int) -> Expr:
    value = int_value(e)
    return const(value // by) if value is not None else Binary(BinaryOp.FLOORDIV, e, const(by))


def replace_in(node: Node, values: Mapping[str, Expr]) -> Node:
    """An expression with variables replaced by name."""
    if isinstance(node, Var):
        return values.get(node.name, node)
    return node.rewrite(lambda n: values.get(n.name) if isinstance(n, Var) else None)


def walk(t: Threads, spread: Spread, hint: str = "i") -> Walk:
    """New variables for the iterations of one thread over a tile."""
    index: list[Expr] = []
    part: list[Expr] = []
    loops = [(d, t.names.var(f"{hint}r{d.axis}")) for d in spread.register_digits]
    for axis in range(len(spread.shape)):
        base: Expr = const(0)
        for d in spread.thread_digits:
            if d.axis == axis and d.size > 1:
                base = plus(base, times(t.digit(d.thread, d.size), d.weight))
        base = t.named(base, f"{hint}{axis}")
        rest: Expr = const(0)
        for d, v in loops:
            if d.axis == axis and d.size > 1:
                rest = plus(rest, times(v, d.weight))
        index.append(plus(base, rest))
        part.append(rest)
    return Walk(spread, index, part, [(d, v) for d, v in loops if d.size > 1])


FEWEST_ROUNDS = 4
"""With fewer results one after the other, threads store them sooner than tensor copies do."""


def _rounds(loop: Stmt, launch: Launch) -> float:
    """The most rounds of a loop, as far as they are known."""
    if not isinstance(loop, For):
        return 1 if not isinstance(loop, While) else math.inf
    sizes = {v: int_value(e) for v, e in zip(launch.vars, launch.grid, strict=True)}
    ranges = {v: interval(0, n - 1) for v, n in sizes.items() if n}
    most = bounds(minus(loop.stop, loop.start), ranges).hi
    return math.inf if most is None or loop.step is not None else most


class Nests:
    """Writes the nests of one launch."""

    def __init__(
        self,
        storage: Storage,
        room: Callable[[Sequence[Block], int], int],
        *,
        tensor_stores: bool = False,
    ) -> None:
        self.s = storage
        self.room = room
        self.tensor_stores = tensor_stores
        self.outside: list[Stmt] = []
        self.later: list[Block] = []
        self.depth = 0
        self.rounds: float = 1
        self.t = storage.threads
        self.names = storage.threads.names

    @contextmanager
    def inside(self, stmt: Stmt) -> Generator[None]:
        """What is written of the bodies of a statement."""
        depth, rounds = self.depth, self.rounds
        self.depth += isinstance(stmt, (For, While))
        self.rounds *= _rounds(stmt, self.t.launch)
        yield
        self.depth, self.rounds = depth, rounds

    def lower(self, stmt: Parallel) -> Block:
        """A nest as what one thread does."""
        if not stmt.body:
            return ()
        stmt, apart = self.own_variables(stmt)
        if not apart:
            self.t.note("declined", "iterations share a variable: one thread runs them", stmt.loc)
            return self.by_one_thread(stmt)
        if self.fills_private(stmt):
            return self.by_each_thread(stmt)
        nest = nest_of(stmt, self.t)
        spread = nest_spread(nest, self.s.layouts, self.t.count, default=True)
        if spread is not None and self.is_scattered(stmt, nest, spread):
            return self.through_shared(stmt, spread)
        alone = spread is not None and spread.is_replicated and self.is_in_place(stmt)
        staged = self.staged(stmt, nest.uses, None if alone else spread)
        body = self.renamed(stmt.body, staged)
        before = [s for b in staged.values() for s in self.fill(b[0], b[1], stmt)]
        after = [s for b in staged.values() if b[2] for s in self.copy(b[1], b[0], stmt)]
        if spread is None:
            middle = self.runtime_nest(stmt, body)
        else:
            middle = self.static_nest(stmt, body, nest.uses, spread)
        return (*before, *middle, *after)

    def own_variables(self, stmt: Parallel) -> tuple[Parallel, bool]:
        """Variables from outside that iterations set become one per iteration."""
        if all(int_value(e) == 1 for e in stmt.extents):
            return stmt, True
        body, apart = own_variables(stmt, self.names, self.t.roots, self.t.dialect)
        return stmt.with_(body=body), apart

    def is_in_place(self, stmt: Parallel) -> bool:
        """Whether a nest reads what it writes where others see it: threads that hold the same
        elements would see each other's writes.
        """
        outer = [a for a, _ in accesses(stmt.body) if not self.t.is_private(a.buffer)]
        seen = [a for a in outer if not self.t.is_fragment(a.buffer)]
        read = {a.buffer.name for a in seen if isinstance(a, (Load, LoadVector))}
        return any(a.buffer.name in read for a in seen if not isinstance(a, (Load, LoadVector)))

    def fills_private(self, stmt: Parallel) -> bool:
        """Whether iterations write places of their own in an array that each thread has."""
        inside = {s.buffer.name for s in statements(stmt.body) if isinstance(s, Alloc)}
        return any(
            self.t.is_private(b) and b.name not in inside
            for s in statements(stmt.body)
            for b in written(s)
        )

    # Results in neighbouring groups ---------------------------------------------------------------

    def is_scattered(self, stmt: Parallel, nest: Nest, spread: Spread) -> bool:
        """Whether a nest only stores to global memory, in smaller groups of neighbours than a
        thread can write at once, and there is room to bring them together.
        """
        store = stmt.body[0]
        if len(stmt.body) != 1 or type(store) is not Store or not nest.uses or len(stmt.vars) < 2:
            return False
        if self.t.memory(store.buffer) is not Memory.GLOBAL or store.buffer.dtype.is_subbyte:
            return False
        bits = store.buffer.dtype.bits
        group, last = 128 // max(bits, 8), len(stmt.vars) - 1
        run = [d.size for d in spread.register_digits if d.axis == last and d.weight == 1]
        neighbours = store.indices[-1]
        walks = {n for n in neighbours.walk() if isinstance(n, Var)} & set(stmt.vars)
        alone = all(stmt.vars[-1] not in i.walk() for i in store.indices[:-1])
        whole = spread.shape[-1] % group == 0 and spread.shape[-2] % 8 == 0
        size = math.prod(spread.shape) * bits // 8
        return (
            whole
            and math.prod(run) * bits < 128
            and walks == {stmt.vars[-1]}
            and alone
            and math.prod(spread.shape) >= group * self.t.count
            and size <= self.room(self.later, self.depth)
        )

    def through_shared(self, stmt: Parallel, spread: Spread) -> Block:
        """The values through shared memory, so that tensor copies store them, or each thread 16
        neighbouring bytes.
        """
        store, loc = cast("Store", stmt.body[0]), stmt.loc
        dtype = store.buffer.dtype
        stage = self.names.buffer(f"{store.buffer.name}_part", dtype, spread.shape, "shared.dyn")
        placement = conflict_free(spread.shape[-2], spread.shape[-1], dtype.bits)
        lies = () if placement is None else (placement.key(),)
        self.t.note("staged", f"{store.buffer.name} is stored through shared memory", loc)
        value = store.value if store.value.dtype == dtype else Cast(store.value, dtype)
        first = stmt.with_(body=(Store(stage, tuple(stmt.vars), value, loc=store.loc),))
        fresh = {v.name: self.names.var(v.name, v.type) for v in stmt.vars}
        at = tuple(cast("Expr", replace_in(i, fresh)) for i in store.indices)
        there = tuple(fresh[v.name] for v in stmt.vars)
        second = Store(store.buffer, at, Load(stage, there), loc=store.loc)
        nest = Parallel(there, stmt.extents, (second,), loc=loc)
        worth = self.tensor_stores and self.rounds >= FEWEST_ROUNDS
        found = Result(nest, second, stage).boxes(self.t) if worth else None
        if found is not None:
            self.t.note("stored", f"{store.buffer.name} by tensor copies", loc)
            handed = self.handed_over(found, nest)
            made = (Alloc(stage, loc=loc), *found.lies())
            # The tile of a round is waited for only when it is written again.
            self.outside += made
            return (have_been_read(nest), *self.lower(first), *handed)
        return (
            Alloc(stage, loc=loc),
            Annotate(PLACEMENT, buffers=(stage,) * len(lies), values=lies),
            *self.lower(first),
            *self.lower(nest),
        )

    def handed_over(self, found: Boxes, stmt: Stmt) -> Block:
        """The first thread has a tile stored that all have written."""
        imm = (("id", self.t.barrier), ("threads", self.t.count))
        return (
            Issue("fence.proxy.async", (), (), loc=stmt.loc),
            Issue("barrier.sync", (), (), imm=imm, loc=stmt.loc),
            *handed_over(found, self.t, stmt, waits=False),
        )

    def around(self, body: Block) -> Block:
        """A body in which all nests are written, after the tiles that are read from round to round;
        they have been read before it ends.
        """
        return (*self.outside, *body, have_been_read()) if self.outside else body

    # Fragments of another layout -----------------------------------------------------------------

    def staged(
        self, stmt: Parallel, uses: Sequence[Use], spread: Spread | None
    ) -> dict[str, tuple[Buffer, Buffer, bool]]:
        """For each fragment that does not go with the nest: it, its copy, whether it is written."""
        out: dict[str, tuple[Buffer, Buffer, bool]] = {}
        for use in uses:
            name = use.buffer.name
            own = self.s.layouts.of.get(name)
            if own is None or (spread is not None and direct(use, own, spread)):
                continue
            copy = (
                out[name][1]
                if name in out
                else self.names.buffer(f"{name}_shared", use.buffer.dtype, own.shape, "shared.dyn")
            )
            out[name] = (use.buffer, copy, any(u.writes for u in uses if u.buffer.name == name))
        for buffer, _, _ in out.values():
            self.t.note(
                "conversion",
                f"{buffer.name} goes through shared memory: its layout is not that of this loop",
                stmt.loc,
            )
        return out

    def renamed(self, body: Block, staged: Mapping[str, tuple[Buffer, Buffer, bool]]) -> Block:
        """Statements that use the copies."""
        if not staged:
            return body

        def one(n: Node) -> Node | None:
            if isinstance(n, Buffer) and n.name in staged:
                return staged[n.name][1]
            return None

        return tuple(s.rewrite(one) for s in body)

    def fill(self, source: Buffer, copy: Buffer, stmt: Stmt) -> Block:
        """The copy, with the contents of the fragment."""
        return (Alloc(copy, loc=stmt.loc), *self.copy(source, copy, stmt))

    def copy(self, src: Buffer, dst: Buffer, stmt: Stmt) -> Block:
        """Every element of one buffer into another, by the layout of the one that is spread."""
        loops = loops_over(src.shape, self.names)
        at = tuple(place(loops, src.shape))
        real = [(v, e) for v, e in zip(loops, src.shape, strict=True) if v is not None]
        if not real:
            real = [(self.names.var("i"), const(1))]
        store = Store(dst, at, Load(src, at), loc=stmt.loc)
        return self.lower(
            Parallel(tuple(v for v, _ in real), tuple(e for _, e in real), (store,), loc=stmt.loc)
        )

    # Nests of constant extents -------------------------------------------------------------------

    def static_nest(
        self, stmt: Parallel, body: Block, uses: Sequence[Use], spread: Spread
    ) -> Block:
        """The iterations of one thread."""
        if 0 in spread.shape:
            return ()
        w = walk(self.t, spread)
        values = {v.name: as_type(e, v.type) for v, e in zip(stmt.vars, w.index, strict=True)}
        parts = dict(zip(stmt.vars, range(len(stmt.vars)), strict=True))
        body, touches = self.in_registers(body, w, parts)
        body = tuple(replace_vars(s, values) for s in body)
        body, guard = self.by_owner(body, spread)
        out = self.loops(stmt, w, body, touches)
        if guard is not None:
            out = (If(guard, out, loc=stmt.loc),)
        return out

    def in_registers(self, body: Block, w: Walk, axes: Mapping[Var, int]) -> tuple[Block, bool]:
        """Accesses to fragments become accesses to registers; whether there are any."""
        touched = False

        def at(buffer: Buffer, indices: Sequence[Expr]) -> tuple[Expr, ...]:
            nonlocal touched
            touched = True
            found, starts = walked(indices, list(axes), self.t.unrolled)
            nowhere = (None,) * len(indices)
            return (w.slot(self.s.layouts.of[buffer.name], found or nowhere, starts or nowhere),)

        def one(n: Node) -> Node | None:
            if isinstance(n, (Load, Store)) and n.buffer.name in self.s.registers:
                where = at(n.buffer, n.indices)
                return n.with_(buffer=self.s.registers[n.buffer.name], indices=where)
            return None

        made: list[Stmt] = []
        for s in body:
            inner = s.rewrite(one)
            made.append(cast("Stmt", one(inner) or inner))
        return tuple(made), touched

    def by_owner(self, body: Block, spread: Spread) -> tuple[Block, Expr | None]:
        """What others see is done by one of the threads that hold an element."""
        if not spread.is_replicated:
            return body, None
        guard = self.t.owns(spread.replica_parts())

        def seen(s: Stmt) -> bool:
            return isinstance(s, (Store, StoreVector, Atomic)) and not (
                self.t.is_private(_target(s)) or self.t.is_fragment(_target(s))
            )

        inside = {s.buffer.name for s in statements(body) if isinstance(s, Alloc)}
        writes = [
            s
            for s in statements(body)
            if isinstance(s, (Store, StoreVector, Atomic)) and _target(s).name not in inside
        ]
        if writes and all(seen(s) for s in writes):
            return body, guard

        def one(s: Stmt) -> Block | None:
            return (If(guard, (s,), loc=s.loc),) if seen(s) else None

        return map_statements(body, one), None

    def loops(self, stmt: Parallel, w: Walk, body: Block, touches: bool) -> Block:
        """The loops over register digits around the body."""
        loc = stmt.loc
        last = w.loops[-1] if w.loops else None
        vector = (
            last is not None
            and last[0].weight == 1
            and last[0].axis == len(w.spread.shape) - 1
            and w.spread.shape[-1] % last[0].size == 0
            and last[0].size <= 16
            and in_lockstep(body)
        )
        rounds = w.spread.registers // (last[0].size if vector and last is not None else 1)
        plain = LoopKind.UNROLL if touches or rounds <= MOST_UNROLLED else LoopKind.SERIAL
        inside = w.inside(but_last=vector)
        out = body
        for k, (d, v) in reversed(list(enumerate(w.loops))):
            if not (vector and k == len(w.loops) - 1) and inside and k == len(w.loops) - 1:
                out = (If(both(inside), out, loc=loc),)
                inside = []
            kind = LoopKind.VECTORIZED if vector and k == len(w.loops) - 1 else plain
            out = (For(v, Const(0, v.type), Const(d.size, v.type), out, kind=kind, loc=loc),)
            if kind is LoopKind.VECTORIZED and inside:
                out = (If(both(inside), out, loc=loc),)
                inside = []
        return (If(both(inside), out, loc=loc),) if inside else out

    # Other nests ---------------------------------------------------------------------------------

    def runtime_nest(self, stmt: Parallel, body: Block) -> Block:
        """Iterations of a nest whose extents are known at run time: one after the other of each
        thread, the last axis fastest.
        """
        total: Expr = const(1)
        for extent in stmt.extents:
            total = times(total, extent)
        loc = stmt.loc
        count = self.names.var("count", total.dtype)
        r = self.names.var("r", total.dtype)
        flat = self.names.var("flat", total.dtype)
        lets: list[Stmt] = [Let(flat, plus(r, as_type(self.t.index, total.dtype)), loc=loc)]
        rest: Expr = flat
        values: dict[str, Expr] = {}
        for axis in range(len(stmt.vars) - 1, -1, -1):
            v, extent = stmt.vars[axis], as_type(stmt.extents[axis], total.dtype)
            here = rest if axis == 0 else Binary(BinaryOp.FLOORMOD, rest, extent)
            fresh = self.names.var(v.name, v.type)
            lets.append(Let(fresh, as_type(here, v.type), loc=loc))
            values[v.name] = fresh
            rest = Binary(BinaryOp.FLOORDIV, rest, extent)
        inner = tuple(replace_vars(s, values) for s in body)
        fact = [
            compare(BinaryOp.LT, values[v.name], e)
            for v, e in zip(stmt.vars, stmt.extents, strict=True)
        ]
        guard = If(both([compare(BinaryOp.LT, flat, count), *fact[1:]]), inner, loc=loc)
        loop = For(
            r,
            Const(0, r.type),
            count,
            (*lets, guard),
            step=Const(self.t.count, r.type),
            loc=loc,
        )
        return (Let(count, total, loc=loc), loop)

    def by_one_thread(self, stmt: Parallel) -> Block:
        """All iterations by the first thread, in order."""
        staged = self.staged(stmt, nest_of(stmt, self.t).uses, None)
        before = [s for b in staged.values() for s in self.fill(b[0], b[1], stmt)]
        after = [s for b in staged.values() if b[2] for s in self.copy(b[1], b[0], stmt)]
        body = self.serial_loops(stmt, self.renamed(stmt.body, staged))
        return (*before, If(self.t.first(), body, loc=stmt.loc), *after)

    def by_each_thread(self, stmt: Parallel) -> Block:
        """All iterations by every thread, for an array that each of them has; what others see is
        written by the first.
        """
        staged = self.staged(stmt, nest_of(stmt, self.t).uses, None)
        before = [s for b in staged.values() for s in self.fill(b[0], b[1], stmt)]
        after = [s for b in staged.values() if b[2] for s in self.copy(b[1], b[0], stmt)]

        def one(s: Stmt) -> Block | None:
            if isinstance(s, (Store, StoreVector, Atomic)) and not self.t.is_private(_target(s)):
                return (If(self.t.first(), (s,), loc=s.loc),)
            return None

        body = map_statements(self.renamed(stmt.body, staged), one)
        return (*before, *self.serial_loops(stmt, body), *after)

    def serial_loops(self, stmt: Parallel, body: Block) -> Block:
        """The iterations one after the other."""
        for var, extent in reversed(list(zip(stmt.vars, stmt.extents, strict=True))):
            body = (serial(var, extent, body, stmt.loc),)
        return body


def _target(s: Store | StoreVector | Atomic) -> Buffer:
    return s.dst.buffer if isinstance(s, Atomic) else s.buffer
