"""Reductions of fragments: within a thread, then between the lanes of a warp, then through shared
memory once.

What enters: a reduction of a whole fragment into a whole fragment. What leaves: each thread's
partial results, butterfly shuffles over thread digits that lie within a warp, one exchange through
shared memory for those that do not, and the result in every thread that holds it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from tilelang.dtypes import DType
from tilelang.errors import Loc, error
from tilelang.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Call,
    Expr,
    Load,
    Select,
    Var,
    const,
)
from tilelang.ir.tile import (
    Alloc,
    Block,
    For,
    If,
    LoopKind,
    Parallel,
    Reduce,
    ReduceOp,
    Stmt,
    Store,
)
from tilelang.layout.spread import Digit, coalesced
from tilelang.passes.build import as_type, both, compare, minus, plus, times
from tilelang.passes.issue import Issue
from tilelang.passes.lower_reductions import Fold, identity
from tilelang.passes.simt.infer_layouts import reduced_spread
from tilelang.passes.simt.launch import WARP, static_shape
from tilelang.passes.simt.nests import Nests, Walk, walk

FULL = 0xFFFFFFFF

LONG, MOST_WAYS = 16, 4
"""From so many elements of a thread on, up to so many partial results are kept side by side."""
BITS = {
    ReduceOp.BITAND: BinaryOp.BITAND,
    ReduceOp.BITOR: BinaryOp.BITOR,
    ReduceOp.BITXOR: BinaryOp.BITXOR,
    ReduceOp.SUM: BinaryOp.ADD,
    ReduceOp.ABSSUM: BinaryOp.ADD,
    ReduceOp.MAX: BinaryOp.MAX,
    ReduceOp.ABSMAX: BinaryOp.MAX,
    ReduceOp.MIN: BinaryOp.MIN,
}


def lower_reduce(nests: Nests, stmt: Reduce) -> Block:
    """The statements of one thread for a reduction."""
    if stmt.op in (ReduceOp.BITAND, ReduceOp.BITOR, ReduceOp.BITXOR) and (
        stmt.src.dtype.is_float or stmt.dst.dtype.is_float
    ):
        raise error(
            "dtype",
            f"a bitwise reduction of {stmt.src.dtype}",
            stmt.loc,
            expected="integers or bool",
        )
    return _Job(nests, stmt).lower()


class _Job:
    """One reduction."""

    def __init__(self, nests: Nests, stmt: Reduce) -> None:
        self.n, self.t, self.stmt = nests, nests.t, stmt
        self.loc = stmt.loc
        layouts = nests.s.layouts
        self.src, self.dst = stmt.src.buffer, stmt.dst.buffer
        shape = static_shape(self.src) or ()
        self.axis = stmt.dim % len(shape)
        self.spread = layouts.of.get(self.src.name) or coalesced(shape, self.t.count, 1)
        self.fold = Fold(stmt.op, stmt.dst.dtype, stmt.nan_propagate, self.t.names)
        self.kept = tuple(d for d in self.spread.register_digits if d.axis != self.axis)
        self.count = math.prod(d.size for d in self.kept)
        self.ways = self.side_by_side()

    def lower(self) -> Block:
        """Partial results, their exchange, and the result."""
        acc = self.t.names.buffer("partial", self.fold.inner, (self.count * self.ways,))
        first = identity(self.stmt.op, self.fold.dtype)
        out: list[Stmt] = [Alloc(acc, loc=self.loc)]
        k = self.t.names.var("k")
        start = Store(acc, (k,), first, loc=self.loc)
        out.append(unrolled(k, self.count * self.ways, (start,), self.loc))
        out += self.own_elements(acc)
        out += self.together(acc)
        across = [d for d in self.spread.on(self.axis) if d.thread]
        far: list[Digit] = []
        for d in across:
            near = self.in_warp(d)
            if near > 1:
                out += self.shuffles(acc, replace(d, size=near))
            if near < d.size:
                far.append(replace(d, size=d.size // near, thread=d.thread * near))
        if far:
            out += self.exchange(acc, far)
        return (*out, *self.finish(acc))

    def side_by_side(self) -> int:
        """How many partial results of each result there are, so that an operation need not wait
        for the one before.
        """
        mine = [d for d in self.spread.register_digits if d.axis == self.axis]
        if math.prod(d.size for d in mine) < LONG:
            return 1
        return math.gcd(mine[-1].size, MOST_WAYS)

    def together(self, acc: Buffer) -> Block:
        """The partial results of each result, joined into the first one."""
        out: list[Stmt] = []
        ways = self.ways
        while ways > 1:
            ways //= 2
            for way in range(ways):

                def one(k: Expr, way: int = way, ways: int = ways) -> Block:
                    into = plus(k, way * self.count)
                    other = Load(acc, (plus(k, (way + ways) * self.count),))
                    return (
                        Store(acc, (into,), self.joined(Load(acc, (into,)), other), loc=self.loc),
                    )

                out += self.each(one)
        return tuple(out)

    def each(self, make: Callable[[Expr], Block]) -> Block:
        """Statements for each result of the thread."""
        if self.count == 1:
            return make(const(0))
        k = self.t.names.var("k")
        return (unrolled(k, self.count, make(k), self.loc),)

    def joined(self, old: Expr, new: Expr) -> Expr:
        """`old op new`; `new` is evaluated twice where NaN counts."""
        op = BITS[self.stmt.op]
        if self.stmt.nan_propagate and op in (BinaryOp.MIN, BinaryOp.MAX) and new.dtype.is_float:
            better = Binary(BinaryOp.LT if op is BinaryOp.MIN else BinaryOp.GT, new, old)
            better = Binary(BinaryOp.OR, better, Call("isnan", (new,), DType("bool")))
            return Select(better, new, old)
        return Binary(op, old, new)

    def own_elements(self, acc: Buffer) -> Block:
        """Each element that the thread holds joins its result."""
        w = walk(self.t, self.spread)
        in_registers = self.src.name in self.n.s.registers
        if in_registers:
            every = tuple(range(len(self.spread.shape)))
            x: Expr = Load(
                self.n.s.registers[self.src.name], (w.slot(self.spread, every),), loc=self.loc
            )
            axes = [self.axis]
        else:
            x = Load(self.src, tuple(w.index), loc=self.loc)
            axes = list(range(len(self.spread.shape)))
        inside = [
            compare(BinaryOp.LT, w.index[a], self.spread.shape[a])
            for a in axes
            if self.spread.is_padded(a)
        ]
        k = self.result_index(w)
        value = self.fold.enter(x)
        body: Block = (Store(acc, (k,), self.joined(Load(acc, (k,)), value), loc=self.loc),)
        if inside:
            body = (If(both(inside), body, loc=self.loc),)
        for d, v in reversed(w.loops):
            body = (unrolled(v, d.size, body, self.loc),)
        return body

    def result_index(self, w: Walk) -> Expr:
        """The number of the result that the iteration's element joins."""
        stride, total = 1, const(0)
        at = {id(d): v for d, v in w.loops}
        for d in reversed(self.kept):
            if id(d) in at:
                total = plus(times(at[id(d)], stride), total)
            stride *= d.size
        if self.ways > 1:
            mine = [(d, v) for d, v in w.loops if d.axis == self.axis]
            way = Binary(BinaryOp.FLOORMOD, mine[-1][1], const(self.ways))
            total = plus(total, times(way, self.count))
        return total

    # Between threads -----------------------------------------------------------------------------

    def in_warp(self, d: Digit) -> int:
        """How many values of a thread digit, the fastest ones, shuffles walk."""
        if d.thread & (d.thread - 1) or self.t.count % WARP or d.thread >= WARP:
            return 1
        return math.gcd(d.size, WARP // d.thread)

    def shuffles(self, acc: Buffer, d: Digit) -> Block:
        """A butterfly over the lanes of one digit."""
        out: list[Stmt] = []
        distance = d.thread
        while distance < d.thread * d.size:
            imm = (("width", WARP), ("mask", FULL))
            offset = const(distance)

            def one(
                k: Expr, offset: Expr = offset, imm: tuple[tuple[str, int], ...] = imm
            ) -> Block:
                other = self.t.names.var("other", acc.dtype)
                mine = Load(acc, (k,))
                shuffle = Issue(
                    "shfl.sync.bfly", (), (mine, offset), results=(other,), imm=imm, loc=self.loc
                )
                return (shuffle, Store(acc, (k,), self.joined(mine, other), loc=self.loc))

            out += self.each(one)
            distance *= 2
        return tuple(out)

    def exchange(self, acc: Buffer, far: list[Digit]) -> Block:
        """Partial results through shared memory, once: those of every thread, or of the first one
        of each warp where a whole warp has the same.
        """
        near = math.prod(self.in_warp(d) for d in self.spread.on(self.axis) if d.thread)
        each = WARP if near == WARP else 1
        count, names = self.t.count // each, self.t.names
        shared = names.buffer("exchange", acc.dtype, (self.count * count,), "shared.dyn")
        mine = self.t.digit(each, 0)
        used = max(d.thread * d.size for d in self.spread.thread_digits) // each
        home = Binary(BinaryOp.FLOORMOD, mine, const(used)) if used < count else mine
        for d in far:
            part = times(self.t.digit(d.thread, d.size), d.thread // each)
            home = const(0) if part == home else minus(home, part)
        base = self.t.named(home, "home")
        put = self.each(
            lambda k: (
                Store(shared, (plus(times(k, count), mine),), Load(acc, (k,)), loc=self.loc),
            )
        )
        if each > 1:
            put = (If(compare(BinaryOp.EQ, self.t.digit(1, each), 0), put, loc=self.loc),)

        def one(k: Expr) -> Block:
            loops = [(names.var("p"), d) for d in far]
            at: Expr = plus(times(k, count), base)
            for v, d in loops:
                at = plus(at, times(v, d.thread // each))
            new = Load(shared, (at,))
            body: Block = (Store(acc, (k,), self.joined(Load(acc, (k,)), new), loc=self.loc),)
            for v, d in loops:
                body = (unrolled(v, d.size, body, self.loc),)
            start = identity(self.stmt.op, self.fold.dtype)
            return (Store(acc, (k,), start, loc=self.loc), *body)

        return (Alloc(shared, loc=self.loc), *put, *self.each(one))

    # The result ----------------------------------------------------------------------------------

    def finish(self, acc: Buffer) -> Block:
        """The results in their type, joined with the old contents unless these are cleared."""
        shape = static_shape(self.dst) or ()
        axes = reduced_spread(self.spread, self.stmt.dim, shape)
        storage = self.n.s
        total, declare = storage.fragment("total", self.fold.inner, axes)
        registers = storage.registers[total.name]
        kept = self.each(lambda k: (Store(registers, (k,), Load(acc, (k,)), loc=self.loc),))
        loops = [self.t.names.var("i") for _ in shape] or [self.t.names.var("i")]
        at = tuple(loops[: len(shape)])
        value: Expr = Load(total, at)
        if not self.stmt.clear:
            old = as_type(Load(self.dst, at, loc=self.loc), self.fold.inner)
            value = self.joined(value, old)
        store = Store(self.dst, at, self.fold.leave(value), loc=self.loc)
        extents = tuple(const(n) for n in shape) or (const(1),)
        nest = Parallel(tuple(loops), extents, (store,), loc=self.loc)
        return (declare, *kept, *self.n.lower(nest))


def unrolled(v: Var, count: int, body: Block, loc: Loc | None) -> For:
    """An unrolled loop from 0."""
    return For(v, const(0), const(count), body, kind=LoopKind.UNROLL, loc=loc)
