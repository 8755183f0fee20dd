"""What the threads of a warp or block do together, as loops over arrays of one value per thread.

What enters: a `Collective` that all threads reach together. What leaves: stores of each thread's
values, loops of the block over them, and each thread's result. A lane that does not exist is not
read: who would get its value keeps its own.
"""

from __future__ import annotations

from collections.abc import Callable

from tilelang.dtypes import DType
from tilelang.ir.expr import (
    BOOL,
    Binary,
    BinaryOp,
    Bitcast,
    Buffer,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Var,
    const,
    int_value,
)
from tilelang.ir.special import Collective
from tilelang.ir.tile import Alloc, Block, If, Let, Stmt, Store
from tilelang.passes.build import (
    Names,
    as_type,
    both,
    compare,
    get_scalar,
    minus,
    plus,
    serial,
    set_scalar,
    times,
    variable,
)

WARP = 32
I32, U32 = DType("int32"), DType("uint32")


def expand_collective(stmt: Collective, index: Expr, count: int, names: Names) -> Block:
    """The statements for a collective operation; the allocations among them belong in front.

    `index` is the place of a thread among the `count` threads of its block.
    """
    job = _Job(stmt, index, count, names)
    return _MAKERS[stmt.fn](job)


class _Job:
    """One operation."""

    def __init__(self, stmt: Collective, index: Expr, count: int, names: Names) -> None:
        self.stmt = stmt
        self.index = index
        self.count = count
        self.names = names
        self.loc = stmt.loc
        self.given = [self.array(f"given_{stmt.fn}", a.dtype) for a in stmt.args]
        self.out = self.array(f"result_{stmt.fn}", stmt.result.dtype)

    def array(self, hint: str, dtype: DType) -> Buffer:
        return self.names.buffer(hint, dtype, (self.count,), "shared.dyn")

    def around(self, middle: Block) -> Block:
        """Every thread's values are stored before, and its result, or that of all, loaded after."""
        allocs = (Alloc(b, loc=self.loc) for b in (*self.given, self.out))
        stores = (
            Store(b, (self.index,), a, loc=self.loc)
            for b, a in zip(self.given, self.stmt.args, strict=True)
        )
        at = self.index if self.stmt.differs else const(0)
        result = Let(self.stmt.result, Load(self.out, (at,)), loc=self.loc)
        return (*allocs, *stores, *middle, result)

    def each(self, value: Callable[[Var], Expr]) -> Block:
        """A result for each thread."""
        t = self.names.var("t")
        return (serial(t, self.count, (Store(self.out, (t,), value(t), loc=self.loc),), self.loc),)

    @property
    def mask(self) -> int:
        """The lanes that take part, as bits."""
        return self.stmt.params[-1] if self.stmt.params else 0xFFFFFFFF

    def named(self, lane: Expr) -> Expr:
        """Whether a lane is in the mask."""
        if self.mask & 0xFFFFFFFF == 0xFFFFFFFF:
            return Const(True, BOOL)
        bits = Const(self.mask & 0xFFFFFFFF, DType("int64"))
        bit = Binary(BinaryOp.SHR, bits, as_type(lane, DType("int64")))
        one = Const(1, DType("int64"))
        return Binary(BinaryOp.NE, Binary(BinaryOp.BITAND, bit, one), Const(0, DType("int64")))

    def by_group(self, size: int, start: Expr, step: Callable[[Expr, Buffer], Block]) -> Block:
        """Folds the values of each group of `size` threads; all its threads get the result."""
        base, k, total = self.names.var("w"), self.names.var("t"), variable
        acc, declare = total("fold", start.dtype, self.names, self.loc)
        last = Binary(BinaryOp.MIN, plus(base, size), const(self.count))
        again = self.names.var("t")
        result = as_type(get_scalar(acc), self.out.dtype)
        body: Block = (
            declare,
            set_scalar(acc, start, self.loc),
            serial(k, last, step(k, acc), self.loc, base),
            serial(again, last, (Store(self.out, (again,), result, loc=self.loc),), self.loc, base),
        )
        groups = serial(base, self.count, body, self.loc)
        return (groups.with_(step=const(size)),)


def _lane(t: Expr) -> Expr:
    return Binary(BinaryOp.FLOORMOD, t, const(WARP))


# Shuffles ----------------------------------------------------------------------------------------


def _shuffle(job: _Job) -> Block:
    kind, width = job.stmt.fn, job.stmt.params[0]

    def value(t: Var) -> Expr:
        lane = _lane(t)
        # The instruction takes five bits.
        other = Binary(BinaryOp.FLOORMOD, as_type(Load(job.given[1], (t,)), I32), const(WARP))
        base = times(Binary(BinaryOp.FLOORDIV, lane, const(width)), width)
        upper = plus(base, width)
        match kind:
            case "shfl_sync":
                source = plus(base, Binary(BinaryOp.FLOORMOD, other, const(width)))
                legal: list[Expr] = []
            case "shfl_up":
                source = minus(lane, other)
                legal = [compare(BinaryOp.GE, source, base)]
            case "shfl_down":
                source = plus(lane, other)
                legal = [compare(BinaryOp.LT, source, upper)]
            case _:
                source = Binary(BinaryOp.BITXOR, lane, other)
                legal = [compare(BinaryOp.LT, source, upper)]
        legal += [compare(BinaryOp.GE, source, 0), compare(BinaryOp.LT, source, WARP)]
        there = plus(minus(t, lane), source)
        legal.append(compare(BinaryOp.LT, there, job.count))
        own = Load(job.given[0], (t,))
        return Select(both(legal), Load(job.given[0], (there,)), own, lazy=True)

    return job.around(job.each(value))


# Votes, matches, reductions ----------------------------------------------------------------------


def _truth(job: _Job, t: Expr) -> Expr:
    x = Load(job.given[0], (t,))
    return x if x.dtype.is_bool else Cast(x, BOOL)


def _count(job: _Job, t: Expr, size: int) -> Expr:
    holds = _truth(job, t)
    if size == WARP:
        holds = both((holds, job.named(_lane(t))))
    return Select(holds, const(1), const(0))


def _any(job: _Job) -> Block:
    size = WARP if job.stmt.fn == "any_sync" else job.count

    def step(t: Expr, acc: Buffer) -> Block:
        joined = Binary(BinaryOp.BITOR, get_scalar(acc), _count(job, t, size))
        return (set_scalar(acc, joined, job.loc),)

    return job.around(job.by_group(size, const(0), step))


def _all(job: _Job) -> Block:
    size = WARP if job.stmt.fn == "all_sync" else job.count

    def step(t: Expr, acc: Buffer) -> Block:
        holds = _truth(job, t)
        if size == WARP and int_value(job.named(_lane(t))) is None:
            named = job.named(_lane(t))
            if not isinstance(named, Const):
                holds = Select(named, holds, Const(True, BOOL))
        one = Select(holds, const(1), const(0))
        return (set_scalar(acc, Binary(BinaryOp.BITAND, get_scalar(acc), one), job.loc),)

    return job.around(job.by_group(size, const(1), step))


def _ballot(job: _Job) -> Block:
    wide = DType("uint64")

    def step(t: Expr, acc: Buffer) -> Block:
        holds = Const(True, BOOL) if not job.given else both((_truth(job, t), job.named(_lane(t))))
        bit = Binary(BinaryOp.SHL, Const(1, wide), as_type(_lane(t), wide))
        value = Select(holds, bit, Const(0, wide))
        return (set_scalar(acc, Binary(BinaryOp.BITOR, get_scalar(acc), value), job.loc),)

    return job.around(job.by_group(WARP, Const(0, wide), step))


def _over_lanes(
    job: _Job, into: Buffer, start: Expr, step: Callable[[Expr, Expr, Buffer], Expr]
) -> Block:
    """Gives each thread `step(t, lane, acc)` folded over the lanes of its warp that exist and that
    the mask names.
    """
    t, lane = job.names.var("t"), job.names.var("lane")
    acc, declare = variable("fold", start.dtype, job.names, job.loc)
    taken = both((compare(BinaryOp.LT, _lane_of_warp(t, lane), job.count), job.named(lane)))
    more: Block = (set_scalar(acc, step(t, lane, acc), job.loc),)
    body: Block = (
        declare,
        set_scalar(acc, start, job.loc),
        serial(lane, WARP, (If(taken, more, loc=job.loc),), job.loc),
        Store(into, (t,), get_scalar(acc), loc=job.loc),
    )
    return (serial(t, job.count, body, job.loc),)


def _lane_of_warp(t: Expr, lane: Expr) -> Expr:
    return plus(minus(t, _lane(t)), lane)


def _equal_lanes(job: _Job, into: Buffer) -> Block:
    """The lanes that hold the same bits as a thread, as bits."""
    given = job.given[0]

    def word(t: Expr) -> Expr:
        x = Load(given, (t,))
        return Bitcast(x, DType(f"uint{x.dtype.bits}")) if x.dtype.is_float else x

    def step(t: Expr, lane: Expr, acc: Buffer) -> Expr:
        same = compare(BinaryOp.EQ, word(t), word(_lane_of_warp(t, lane)))
        bit = Binary(BinaryOp.SHL, Const(1, U32), as_type(lane, U32))
        joined = Binary(BinaryOp.BITOR, get_scalar(acc), bit)
        return Select(same, joined, get_scalar(acc))

    return _over_lanes(job, into, Const(0, U32), step)


def _match_any(job: _Job) -> Block:
    return job.around(_equal_lanes(job, job.out))


def _match_all(job: _Job) -> Block:
    """All agree if each named lane sees all named lanes."""
    equal = job.array("equal", U32)
    mask = job.mask & 0xFFFFFFFF
    last = mask & ((1 << (job.count % WARP or WARP)) - 1)

    def everyone(t: Expr) -> Expr:
        whole = compare(BinaryOp.LE, _lane_of_warp(t, const(WARP)), job.count)
        return Select(whole, Const(mask, U32), Const(last, U32))

    def step(t: Expr, lane: Expr, acc: Buffer) -> Expr:
        seen = compare(BinaryOp.EQ, Load(equal, (_lane_of_warp(t, lane),)), everyone(t))
        return Select(seen, get_scalar(acc), Const(0, U32))

    t = job.names.var("t")
    agreed = Binary(BinaryOp.NE, Load(job.out, (t,)), Const(0, U32))
    result = Select(agreed, everyone(t), Const(0, U32))
    return job.around(
        (
            Alloc(equal, loc=job.loc),
            *_equal_lanes(job, equal),
            *_over_lanes(job, job.out, Const(1, U32), step),
            serial(t, job.count, (Store(job.out, (t,), result, loc=job.loc),), job.loc),
        )
    )


def _block_count(job: _Job) -> Block:
    def step(t: Expr, acc: Buffer) -> Block:
        return (set_scalar(acc, plus(get_scalar(acc), _count(job, t, 0)), job.loc),)

    return job.around(job.by_group(job.count, const(0), step))


_FOLDS = {
    "warp_reduce_sum": BinaryOp.ADD,
    "warp_reduce_max": BinaryOp.MAX,
    "warp_reduce_min": BinaryOp.MIN,
    "warp_reduce_bitand": BinaryOp.BITAND,
    "warp_reduce_bitor": BinaryOp.BITOR,
}


def _reduce(job: _Job) -> Block:
    """A butterfly over the warp, as the hardware adds: partners 16, 8, 4, 2 and 1 lanes away.

    Lanes that do not exist are left out: they hold what their first partner that exists gives them.
    """
    op, dtype = _FOLDS[job.stmt.fn], job.out.dtype
    whole = -(-job.count // WARP) * WARP
    tail = (1 << (job.count % WARP or WARP)) - 1
    stages = [job.names.buffer("partner", dtype, (whole,), "shared.dyn") for _ in range(2)]
    steps: list[Stmt] = [Alloc(b, loc=job.loc) for b in stages]
    t = job.names.var("t")
    first = Store(stages[0], (t,), Load(job.given[0], (t,)), loc=job.loc)
    steps.append(serial(t, job.count, (first,), job.loc))
    for distance in (16, 8, 4, 2, 1):
        t, (source, into) = job.names.var("t"), stages
        there = Binary(BinaryOp.BITXOR, t, const(distance))
        own, other = Load(source, (t,)), Load(source, (there,))
        mine, theirs = (_exists(x, tail, whole) for x in (t, there))
        joined = Select(theirs, Binary(op, own, other), own)
        value = Select(mine, joined, other)
        steps.append(serial(t, whole, (Store(into, (t,), value, loc=job.loc),), job.loc))
        tail = _with_partners(tail, distance)
        stages.reverse()
    return job.around((*steps, *job.each(lambda t: Load(stages[0], (t,)))))


def _exists(t: Expr, tail: int, whole: int) -> Expr:
    """Whether a thread of the last warp, of which `tail` are there, or of another one is there."""
    if tail == 0xFFFFFFFF:
        return Const(True, BOOL)
    bit = Binary(BinaryOp.SHR, Const(tail, U32), as_type(_lane(t), U32))
    there = Binary(BinaryOp.EQ, Binary(BinaryOp.BITAND, bit, Const(1, U32)), Const(1, U32))
    return Binary(BinaryOp.OR, compare(BinaryOp.LT, t, whole - WARP), there)


def _with_partners(lanes: int, distance: int) -> int:
    """The lanes that are there, or whose partner is."""
    return sum(1 << k for k in range(WARP) if lanes >> k & 1 or lanes >> (k ^ distance) & 1)


def _elect(job: _Job) -> Block:
    size = max(job.stmt.params[0] // WARP, 1) * WARP

    def value(t: Var) -> Expr:
        return compare(BinaryOp.EQ, Binary(BinaryOp.FLOORMOD, t, const(size)), 0)

    return job.around(job.each(value))


_MAKERS: dict[str, Callable[[_Job], Block]] = {
    **dict.fromkeys(("shfl_sync", "shfl_xor", "shfl_up", "shfl_down"), _shuffle),
    **dict.fromkeys(("any_sync", "syncthreads_or"), _any),
    **dict.fromkeys(("all_sync", "syncthreads_and"), _all),
    **dict.fromkeys(("ballot_sync", "activemask"), _ballot),
    **dict.fromkeys(_FOLDS, _reduce),
    "match_any_sync": _match_any,
    "match_all_sync": _match_all,
    "syncthreads_count": _block_count,
    "elect": _elect,
}
