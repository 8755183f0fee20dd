"""Reductions and scans as loops over elements, with the partial results spelled out.

What enters: a function of the tile stage. What leaves: one without `Reduce` and `Scan`. Floats of
16 bits and fewer are combined in float32 and rounded once. Along the last axis a reduction keeps
`PARTIAL` partial results side by side, so that no emitter needs leave to reassociate; along another
axis a whole row of results advances together.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from tilelang.dtypes import DType
from tilelang.errors import error
from tilelang.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Call,
    Cast,
    Expr,
    Load,
    Region,
    Select,
    Var,
    const,
    int_value,
)
from tilelang.ir.tile import (
    Alloc,
    Block,
    For,
    Function,
    If,
    Let,
    Reduce,
    ReduceOp,
    Scan,
    ScanOp,
    Stmt,
    Store,
)
from tilelang.isa.target import Target
from tilelang.passes.build import (
    Names,
    as_type,
    compare,
    element,
    get_scalar,
    lanes,
    literal,
    loops_over,
    map_launches,
    map_statements,
    minus,
    parallel,
    place,
    plus,
    serial,
    set_scalar,
    shifted,
    static_extents,
    unsupported,
    variable,
)
from tilelang.passes.lower_copies import apart, match, staged, view_roots

PARTIAL = (64, 16)
"""How many partial results a reduction along the last axis keeps: the first that the axis fills.

64 hide the latency of an addition with 8 to 16 lanes in a register; more would spill.
"""

F32, I32 = DType("float32"), DType("int32")


def lower_reductions(fn: Function, target: Target) -> Function:
    """Every reduction and scan becomes loops over elements."""
    del target
    names = Names(fn)
    roots = view_roots(fn)

    def one(stmt: Stmt) -> Block | None:
        if isinstance(stmt, Reduce):
            return _reduce(stmt, names, roots)
        return expand_scan(stmt, names, roots) if isinstance(stmt, Scan) else None

    return map_launches(fn, lambda body: map_statements(body, one))


# What is combined --------------------------------------------------------------------------------


def inner_type(dtype: DType) -> DType:
    """The type that values of `dtype` are combined in."""
    if dtype.is_float:
        return dtype if dtype.name in ("float32", "float64") else F32
    return I32 if dtype.is_bool or dtype.is_subbyte else dtype


def identity(op: ReduceOp, dtype: DType) -> Expr:
    """What an empty reduction gives, in the type it is combined in."""
    inner = inner_type(dtype)
    match op:
        case ReduceOp.MAX:
            value = float("-inf") if dtype.is_float else dtype.min
        case ReduceOp.MIN:
            value = float("inf") if dtype.is_float else dtype.max
        case ReduceOp.BITAND:
            every = inner.max if dtype.is_uint and not dtype.is_subbyte else -1
            value = 1 if dtype.is_bool else every
        case _:
            value = 0
    return literal(value, inner)


@dataclass(frozen=True)
class Fold:
    """How an element joins a result: `op`, in the type `inner` of results of type `dtype`."""

    op: ReduceOp
    dtype: DType
    nan: bool
    names: Names

    @property
    def inner(self) -> DType:
        """The type that is combined in."""
        return inner_type(self.dtype)

    def enter(self, x: Expr) -> Expr:
        """An element by value in the result's type, but kept in the wider type."""
        if x.dtype.is_float and self.dtype.is_float:
            x = as_type(x, self.inner)
        else:
            x = as_type(as_type(x, self.dtype), self.inner)
        if self.op in (ReduceOp.ABSSUM, ReduceOp.ABSMAX):
            x = Call("abs", (x,), x.dtype)
        return x

    def leave(self, x: Expr) -> Expr:
        """A result in its own type."""
        return x if x.dtype == self.dtype else Cast(x, self.dtype)

    def join(self, old: Expr, new: Expr, into: Buffer, at: Expr) -> Block:
        """`into[at] = old op new`. A NaN in `new` is dropped by max and min unless it is kept;
        `old` holds one only if it is kept.
        """
        store = _BITS.get(self.op)
        if self.op in (ReduceOp.SUM, ReduceOp.ABSSUM):
            store = BinaryOp.ADD
        extreme = BinaryOp.MIN if self.op is ReduceOp.MIN else BinaryOp.MAX
        if store is not None or not self.inner.is_float:
            return (Store(into, (at,), Binary(store or extreme, old, new)),)
        x = self.names.var("x", self.inner)
        better = Binary(BinaryOp.LT if extreme is BinaryOp.MIN else BinaryOp.GT, x, old)
        if self.nan:
            better = Binary(BinaryOp.OR, better, Call("isnan", (x,), DType("bool")))
        return (Let(x, new), Store(into, (at,), Select(better, x, old)))


_BITS = {
    ReduceOp.BITAND: BinaryOp.BITAND,
    ReduceOp.BITOR: BinaryOp.BITOR,
    ReduceOp.BITXOR: BinaryOp.BITXOR,
}


# Reductions --------------------------------------------------------------------------------------


def _reduce(stmt: Reduce, names: Names, roots: dict[str, str]) -> Block:
    src, dst = stmt.src, stmt.dst
    if stmt.op in _BITS and (src.dtype.is_float or dst.dtype.is_float):
        raise error(
            "dtype",
            f"a bitwise reduction of {src.dtype}",
            stmt.loc,
            expected="integers or bool",
        )
    before: Block = ()
    if not apart(src, dst, roots):
        before, src = staged(src, names, stmt.loc)
    fold = Fold(stmt.op, dst.dtype, stmt.nan_propagate, names)
    axis = stmt.dim % len(src.extents)
    last = max((k for k, e in enumerate(src.extents) if int_value(e) != 1), default=axis)
    kept_is_static = static_extents(_without(src, axis)) is not None
    job = _Job(stmt, src, dst, fold, axis, names)
    if axis >= last or not kept_is_static:
        return (*before, *job.along_rows())
    return (*before, *job.across_rows(last))


def _without(region: Region, axis: int) -> Region:
    keep = [k for k in range(len(region.extents)) if k != axis]
    return Region(
        region.buffer,
        tuple(region.mins[k] for k in keep),
        tuple(region.extents[k] for k in keep),
    )


@dataclass
class _Job:
    """One reduction."""

    stmt: Reduce
    src: Region
    dst: Region
    fold: Fold
    axis: int
    names: Names

    def along_rows(self) -> Block:
        """One result after the other, each with its partial results side by side."""
        loops, at = self.kept()
        n = self.src.extents[self.axis]
        loc = self.stmt.loc
        total, declare = variable("total", self.fold.inner, self.names, loc)
        body: Block = (
            declare,
            set_scalar(total, identity(self.stmt.op, self.fold.dtype), loc),
            *self.partial(total, at, n),
            *self.finish(get_scalar(total), at),
        )
        for var, extent in reversed(list(zip(loops, self.src.extents, strict=True))):
            if var is not None:
                body = (serial(var, extent, body, loc),)
        return body

    def kept(self) -> tuple[list[Var | None], list[Expr]]:
        """The loops over the axes that stay, and the place they give (0 along the other)."""
        loops = list(loops_over(self.src.extents, self.names))
        loops[self.axis] = None
        return loops, place(loops, self.src.extents)

    def value(self, at: Sequence[Expr], k: Expr) -> Expr:
        """The element at `k` along the axis."""
        there = [k if i == self.axis else a for i, a in enumerate(at)]
        return self.fold.enter(element(self.src, there))

    def partial(self, total: Buffer, at: Sequence[Expr], n: Expr) -> Block:
        """Combines `n` elements into `total`, which holds the identity."""
        known = int_value(n)
        widths = [w for w in PARTIAL if known is None or known >= w]
        loc = self.stmt.loc
        out: list[Stmt] = []
        done: Expr = as_type(const(0), n.dtype)
        acc = self.names.buffer("partial", self.fold.inner, (max([1, *widths]),), "local")
        if widths:
            first = identity(self.stmt.op, self.fold.dtype)
            lane = self.names.var("l")
            start = lanes(lane, widths[0], (Store(acc, (lane,), first),), loc)
            out += [Alloc(acc, loc=loc), start]
        for width, narrower in itertools.pairwise([*widths, 1]):
            stop = self.whole_rounds(out, n, width)
            out += self.rounds(acc, at, (done, stop), width)
            out += self.halves(acc, width, narrower)
            done = stop
        if widths:
            out.append(set_scalar(total, Load(acc, (const(0),)), loc))
        if known is None or int_value(done) != known:
            k = self.names.var("k", n.dtype)
            out.append(serial(k, n, self.step(total, const(0), at, k), loc, done))
        return tuple(out)

    def whole_rounds(self, out: list[Stmt], n: Expr, width: int) -> Expr:
        """The largest multiple of `width` that is not above `n`."""
        known = int_value(n)
        if known is not None:
            return as_type(const(known // width * width), n.dtype)
        size = as_type(const(width), n.dtype)
        stop = self.names.var("whole", n.dtype)
        value = Binary(BinaryOp.MUL, Binary(BinaryOp.FLOORDIV, n, size), size)
        out.append(Let(stop, value, loc=self.stmt.loc))
        return stop

    def rounds(self, acc: Buffer, at: Sequence[Expr], span: tuple[Expr, Expr], width: int) -> Block:
        """Elements from `span[0]` to `span[1]` join the partial results, `width` at a time."""
        first, stop = span
        if first == stop:
            return ()
        loc, dtype = self.stmt.loc, stop.dtype
        k, lane = self.names.var("k", dtype), self.names.var("l", dtype)
        one = lanes(lane, width, self.step(acc, lane, at, plus(k, lane)), loc)
        return (For(k, first, stop, (one,), step=as_type(const(width), dtype), loc=loc),)

    def step(self, into: Buffer, slot: Expr, at: Sequence[Expr], k: Expr) -> Block:
        """One element joins `into[slot]`."""
        return self.fold.join(Load(into, (slot,)), self.value(at, k), into, slot)

    def halves(self, acc: Buffer, width: int, until: int) -> Block:
        """Combines the partial results pairwise, the upper half with the lower one, until so many
        are left.
        """
        out: list[Stmt] = []
        while width > until:
            width //= 2
            lane = self.names.var("l")
            upper = Load(acc, (plus(lane, width),))
            body = self.fold.join(Load(acc, (lane,)), upper, acc, lane)
            out.append(lanes(lane, width, body, self.stmt.loc))
        return tuple(out)

    def across_rows(self, last: int) -> Block:
        """All results of the last axis advance together, row by row."""
        loops, at = self.kept()
        loc = self.stmt.loc
        lane = loops[last]
        size = int_value(self.src.extents[last])
        if lane is None or size is None:
            raise unsupported(self.stmt, "a reduction of a runtime extent")
        row = self.names.buffer("row", self.fold.inner, (size,), "local.fragment")
        k = self.names.var("k", self.src.extents[self.axis].dtype)
        first = identity(self.stmt.op, self.fold.dtype)
        again = self.names.var("j", lane.dtype)
        begin = self.names.var("j", lane.dtype)
        there = [lane if v is lane else a for v, a in zip(loops, at, strict=True)]
        final = [again if v is lane else a for v, a in zip(loops, at, strict=True)]
        body: Block = (
            lanes(begin, size, (Store(row, (begin,), first),), loc),
            serial(
                k,
                self.src.extents[self.axis],
                (lanes(lane, size, self.step(row, lane, there, k), loc),),
                loc,
            ),
            lanes(again, size, self.finish(Load(row, (again,)), final), loc),
        )
        for var, extent in reversed(list(zip(loops, self.src.extents, strict=True))):
            if var is not None and var is not lane:
                body = (serial(var, extent, body, loc),)
        return (Alloc(row, loc=loc), *body)

    def finish(self, result: Expr, at: Sequence[Expr]) -> Block:
        """Writes a result, combined with the old contents unless they are cleared."""
        there = self.destination(at)
        indices = shifted(self.dst, there)
        loc = self.stmt.loc
        if self.stmt.clear:
            return (Store(self.dst.buffer, indices, self.fold.leave(result), loc=loc),)
        total, declare = variable("sum", self.fold.inner, self.names, loc)
        old = as_type(element(self.dst, there), self.fold.inner)
        return (
            declare,
            *self.fold.join(result, old, total, const(0)),
            Store(self.dst.buffer, indices, self.fold.leave(get_scalar(total)), loc=loc),
        )

    def destination(self, at: Sequence[Expr]) -> list[Expr]:
        """The place of a result: with the axis, or without it."""
        ones = [const(1) if k == self.axis else e for k, e in enumerate(self.src.extents)]
        found, _ = match(ones, self.dst.extents, "the reduction", self.stmt.loc)
        out: list[Expr] = [const(0)] * len(self.dst.extents)
        for k, axis in enumerate(found):
            if axis is not None:
                out[axis] = at[k]
        unmatched = [
            k for k, e in enumerate(self.dst.extents) if int_value(e) != 1 and k not in found
        ]
        if unmatched:
            raise unsupported(self.stmt, "a reduction that repeats its result")
        return out


# Scans -------------------------------------------------------------------------------------------


def expand_scan(stmt: Scan, names: Names, roots: dict[str, str], *, nested: bool = False) -> Block:
    """A scan as a parallel nest over the other axes with a loop along its own; with `nested`, a
    nest of one iteration where there are no other axes.
    """
    src, dst = stmt.src, stmt.dst
    before: Block = ()
    if not apart(src, dst, roots):
        before, src = staged(src, names, stmt.loc)
    found, checks = match(src.extents, dst.extents, "the scan", stmt.loc)
    axis = stmt.dim % len(src.extents)
    inner = inner_type(dst.dtype)
    loops = list(loops_over(src.extents, names))
    n = src.extents[axis]
    k = names.var("k", n.dtype)
    loops[axis] = None
    run, declare = variable("running", inner, names, stmt.loc)
    along = minus(minus(n, 1), k) if stmt.reverse else k
    at = [along if i == axis else a for i, a in enumerate(place(loops, src.extents))]
    fold = Fold(ReduceOp.SUM, dst.dtype, False, names)
    value = fold.enter(element(src, at))
    op = BinaryOp.ADD if stmt.op is ScanOp.SUM else BinaryOp.MAX
    there: list[Expr] = [const(0)] * len(dst.extents)
    for i, to in enumerate(found):
        if to is not None:
            there[to] = at[i]
    fresh = names.var("x", inner)
    body: Block = (
        declare,
        set_scalar(run, literal(0, inner), stmt.loc),
        serial(
            k,
            n,
            (
                Let(fresh, value, loc=stmt.loc),
                If(
                    compare(BinaryOp.EQ, k, 0),
                    (set_scalar(run, fresh, stmt.loc),),
                    orelse=(set_scalar(run, Binary(op, get_scalar(run), fresh), stmt.loc),),
                ),
                Store(dst.buffer, shifted(dst, there), fold.leave(get_scalar(run)), loc=stmt.loc),
            ),
            stmt.loc,
        ),
    )
    extents: Sequence[Expr] = src.extents
    if nested and not any(loops):
        loops, extents = [names.var("once", n.dtype)], [as_type(const(1), n.dtype)]
    return (*before, *checks, *parallel(loops, extents, body, stmt.loc))
