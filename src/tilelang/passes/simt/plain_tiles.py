"""Tile operations in the few forms that are then spread over threads.

What enters: a function of the tile stage without pipelines. What leaves: one whose tile operations
are parallel nests of element accesses, reductions from a whole fragment into a whole fragment, and
products that add to a whole fragment. What a thread does for itself (copies of arrays of its own,
or with operands that differ between threads) is a sequential loop.
"""

from __future__ import annotations

from typing import cast

from tilelang.dtypes import DType
from tilelang.errors import error
from tilelang.ir.expr import (
    BOOL,
    Buffer,
    Cast,
    Const,
    Expr,
    Region,
    Select,
    Var,
    const,
    int_value,
)
from tilelang.ir.special import Quantifier, ReducerUpdate, TestElements
from tilelang.ir.sync import AsyncCopy, CommitGroup, WaitGroup
from tilelang.ir.tile import (
    Alloc,
    Atomic,
    Block,
    Copy,
    Fill,
    For,
    Function,
    Gemm,
    If,
    Launch,
    Let,
    LoopKind,
    Parallel,
    Reduce,
    ReduceOp,
    Scan,
    Stmt,
    Store,
    TileOp,
    Transpose,
    While,
)
from tilelang.isa.target import Target
from tilelang.passes.build import (
    Names,
    element,
    get_scalar,
    loops_over,
    map_bodies,
    map_statements,
    parallel,
    place,
    plus,
    serial,
    shifted,
    static_extents,
    times,
    whole,
)
from tilelang.passes.canonicalize import BY_THREAD
from tilelang.passes.issue import Arm, AsyncStore, Issue, IssuedGemm
from tilelang.passes.lower_copies import (
    at_source,
    convert,
    is_single,
    lower_copies,
    match,
    view_roots,
)
from tilelang.passes.lower_parallel import statements
from tilelang.passes.lower_reducers import expand_update
from tilelang.passes.lower_reductions import expand_scan, identity, inner_type
from tilelang.passes.simt.launch import Threads, refused, static_shape
from tilelang.passes.varying import Varying

I32 = DType("int32")


def plain_tiles(fn: Function, target: Target) -> Function:
    """Only parallel nests, reductions and products of whole fragments are left of tiles."""
    names, roots = Names(fn), view_roots(fn)

    def one(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, Launch):
            return None
        return (stmt.with_(body=_Tiles(Threads(fn, stmt, names, roots)).block(stmt.body)),)

    return lower_copies(fn.with_(body=map_statements(fn.body, one)), target)


class _Tiles:
    """One launch."""

    def __init__(self, threads: Threads) -> None:
        self.t = threads
        self.names = threads.names
        launch = threads.launch
        axes = zip(launch.thread_vars, threads.extents, strict=True)
        seeds = [v for v, n in axes if n > 1]
        self.varying = Varying(launch.body, seeds, threads.is_private, threads.roots)

    def block(self, body: Block) -> Block:
        """Statements in order."""
        out: list[Stmt] = []
        for stmt in body:
            out += self.statement(stmt)
        return tuple(out)

    def statement(self, stmt: Stmt) -> Block:
        """One statement; a nest is left to the spreading of nests."""
        made: Block
        match stmt:
            case Parallel():
                made = self.nest(stmt)
            case Copy() | Fill() | Transpose():
                made = self.moved(stmt)
            case Atomic() if not is_single(stmt.dst) or isinstance(stmt.value, Region):
                made = self.atomic(stmt)
            case Reduce():
                made = self.reduce(stmt)
            case AsyncCopy():
                made = self.ahead(stmt)
            case CommitGroup():
                made = (Issue("cp.async.commit_group", (), (), loc=stmt.loc),)
            case WaitGroup():
                imm = (("count", int_value(stmt.count) or 0),)
                made = (Issue("cp.async.wait_group", (), (), imm=imm, loc=stmt.loc),)
            case Arm():
                made = (self.arm(stmt),)
            case Gemm():
                made = self.gemm(stmt)
            case Scan():
                made = self.block(expand_scan(stmt, self.names, self.t.roots, nested=True))
            case TestElements():
                made = self.test(stmt)
            case _:
                made = (map_bodies(stmt, self.block),)
        return made

    def arm(self, stmt: Arm) -> Stmt:
        """A part of the block."""
        whole_block, self.t = self.t, self.t.arm(stmt.first, stmt.count, 0)
        made = map_bodies(stmt, self.block)
        self.t = whole_block
        return made

    def by_thread(self, stmt: Copy | Fill) -> bool:
        """Whether each thread carries a copy out for itself."""
        regions = [n for n in stmt.children() if isinstance(n, Region)]
        if self.t.is_private(stmt.dst.buffer):
            return True
        if not self.varying.node(*stmt.children()):
            return False
        own = any(self.varying.own_instance(r.buffer) for r in regions)
        if own or (isinstance(stmt, Copy) and stmt.hints == BY_THREAD):
            return True
        raise error(
            "divergence",
            f"T.{type(stmt).__name__.lower()} is done by all threads of the block together, but "
            "its operands differ between threads",
            stmt.loc,
            expected="a place that all threads reach together, with the same operands",
            help='move it out of the condition or loop, or run the kernel with target="emulate"',
        )

    def moved(self, stmt: Copy | Fill | Transpose) -> Block:
        """A copy or fill: by each thread, or of one element of a fragment, or left as it is.

        One element is copied in a nest: its place may be computed, in another thread's registers.
        """
        if not isinstance(stmt, Transpose) and self.by_thread(stmt):
            return self.own_loops(stmt)
        regions = [n for n in stmt.children() if isinstance(n, Region)]
        single = all(int_value(n) == 1 for n in stmt.dst.extents)
        if not single or not any(self.t.is_fragment(r.buffer) for r in regions):
            return (stmt,)
        plain = Copy(stmt.src, stmt.dst, loc=stmt.loc) if isinstance(stmt, Transpose) else stmt
        *checks, store = self.own_loops(plain)
        return (*checks, *parallel((self.names.var("once", I32),), (const(1),), (store,), stmt.loc))

    def own_loops(self, stmt: Copy | Fill) -> Block:
        """A copy or fill by each thread."""
        dst, loc = stmt.dst, stmt.loc
        checks: Block = ()
        loops = loops_over(dst.extents, self.names)
        at = place(loops, dst.extents)
        if isinstance(stmt, Copy):
            found, checks = match(stmt.src.extents, dst.extents, "T.copy", loc)
            value = convert(element(stmt.src, at_source(found, stmt.src, at)), dst)
        else:
            value = stmt.value
        body: Block = (Store(dst.buffer, shifted(dst, at), value, loc=loc),)
        for var, extent in reversed(list(zip(loops, dst.extents, strict=True))):
            if var is not None:
                body = (serial(var, extent, body, loc),)
        return (*checks, *body)

    def ahead(self, stmt: AsyncCopy) -> Block:
        """A copy that may be under way until its group is waited for."""
        src, dst, loc = stmt.src, stmt.dst, stmt.loc
        found, checks = match(src.extents, dst.extents, "T.copy", loc)
        loops = loops_over(dst.extents, self.names)
        at = place(loops, dst.extents)
        value = convert(element(src, at_source(found, src, at)), dst)
        store = AsyncStore(dst.buffer, shifted(dst, at), value, loc=loc)
        if not self.varying.node(*stmt.children()):
            return (*checks, *parallel(loops, dst.extents, (store,), loc))
        body: Block = (store,)  # each thread for itself, in one piece if elements are neighbours
        for k, (v, extent) in reversed(list(enumerate(zip(loops, dst.extents, strict=True)))):
            kind = LoopKind.VECTORIZED if k == len(loops) - 1 else LoopKind.SERIAL
            body = body if v is None else (serial(v, extent, body, loc).with_(kind=kind),)
        return (*checks, *body)

    def nest(self, stmt: Parallel) -> Block:
        """Nests inside nests are loops of one iteration."""

        def inner(s: Stmt) -> Block | None:
            if not isinstance(s, Parallel):
                return None
            body = s.body
            for var, extent in reversed(list(zip(s.vars, s.extents, strict=True))):
                body = (serial(var, extent, body, s.loc),)
            return body

        body = map_statements(stmt.body, inner)
        for s in statements(body):
            if isinstance(s, TileOp) and not (isinstance(s, Atomic) and isinstance(s.value, Expr)):
                raise refused(s, f"T.{type(s).__name__} inside T.Parallel")
        made = stmt.with_(body=body)
        return _Contributions(self.t).nest(made)

    # Operations ----------------------------------------------------------------------------------

    def atomic(self, stmt: Atomic) -> Block:
        """Every element updated by one iteration."""
        dst, value = stmt.dst, stmt.value
        checks: Block = ()
        loops = loops_over(dst.extents, self.names)
        at = place(loops, dst.extents)
        if isinstance(value, Region):
            found, checks = match(value.extents, dst.extents, "the atomic operation", stmt.loc)
            given = convert(element(value, at_source(found, value, at)), dst)
        else:
            given = convert(value, dst)
        ones = tuple(const(1) for _ in dst.mins)
        one = Region(dst.buffer, shifted(dst, at), ones, loc=dst.loc)
        update = stmt.with_(dst=one, value=given, hints=())
        if not any(loops) and not self.varying.node(*stmt.children()):
            once = (self.names.var("once", I32),)  # by the block, and not by each of its threads
            return (*checks, *parallel(once, ones[:1], (update,), stmt.loc))
        return (*checks, *parallel(loops, dst.extents, (update,), stmt.loc))

    def fragment(self, region: Region, hint: str) -> Buffer:
        """A new fragment of the extents of a region."""
        extents = static_extents(region)
        if extents is None:
            raise refused(region, "an operation on a region whose size is known at run time only")
        return self.names.buffer(f"{region.buffer.name}_{hint}", region.dtype, extents)

    def is_whole(self, region: Region) -> bool:
        """Whether a region is all of a fragment."""
        shape, extents = static_shape(region.buffer), static_extents(region)
        return (
            self.t.is_fragment(region.buffer)
            and region.buffer.name not in self.t.roots
            and region.buffer.name not in self.t.roots.values()
            and shape == extents
            and all(int_value(low) == 0 for low in region.mins)
        )

    def reduce(self, stmt: Reduce) -> Block:
        """A reduction between whole fragments, and copies around it."""
        before, after = list[Stmt](), list[Stmt]()
        src, dst = stmt.src, stmt.dst
        if not self.is_whole(src) or src.buffer.name == dst.buffer.name:
            made = self.fragment(src, "part")
            before += [Alloc(made, loc=stmt.loc), Copy(src, whole(made), loc=stmt.loc)]
            src = whole(made)
        if not self.is_whole(dst):
            made = self.fragment(dst, "result")
            before.append(Alloc(made, loc=stmt.loc))
            if not stmt.clear:
                before.append(Copy(dst, whole(made), loc=stmt.loc))
            after.append(Copy(whole(made), dst, loc=stmt.loc))
            dst = whole(made)
        return (*before, stmt.with_(src=src, dst=dst), *after)

    def gemm(self, stmt: Gemm) -> Block:
        """A product that adds to a whole fragment, and copies around it."""
        c = stmt.c
        if self.is_whole(c) and len(c.extents) == 2:
            return (stmt,)
        if isinstance(stmt, IssuedGemm):
            stmt = stmt.at_once()
        extents = static_extents(c)
        if extents is None or any(n != 1 for n in extents[:-2]):
            raise refused(stmt, "T.gemm into a region whose size is known at run time only")
        made = self.names.buffer(f"{c.buffer.name}_sum", c.dtype, extents[-2:])
        inside = Region(c.buffer, c.mins, c.extents, loc=c.loc)
        before: list[Stmt] = [Alloc(made, loc=stmt.loc)]
        if stmt.clear_accum != Const(True, BOOL):
            before.append(Copy(inside, whole(made), loc=stmt.loc))
        after = Copy(whole(made), inside, loc=stmt.loc)
        return (*before, stmt.with_(c=whole(made)), after)

    def test(self, stmt: TestElements) -> Block:
        """A reduction of truth values, whose result every thread gets."""
        src, loc = stmt.src, stmt.loc
        extents = static_extents(src)
        if extents is None:
            raise refused(stmt, "a test of elements whose number is known at run time only")
        count = max(1, _product(extents))
        some = stmt.quantifier is Quantifier.ANY
        truth = self.names.buffer("truth", I32, (count,))
        found = self.names.buffer("found", I32, (1,))
        loops = loops_over(src.extents, self.names)
        at = place(loops, src.extents)
        x = element(src, at)
        holds = x if x.dtype.is_bool else Cast(x, BOOL)
        flat: Expr = const(0)
        for k, n in zip(at, extents, strict=True):
            flat = _flat(flat, n, k)
        store = Store(truth, (flat,), Select(holds, const(1), const(0)), loc=loc)
        start = () if count == _product(extents) else (Fill(whole(truth), const(int(not some))),)
        op = ReduceOp.BITOR if some else ReduceOp.BITAND
        return (
            Alloc(truth, loc=loc),
            Alloc(found, loc=loc),
            *start,
            *parallel(loops, src.extents, (store,), loc),
            Reduce(op, whole(truth), whole(found), 0, loc=loc),
            Let(stmt.result, Cast(get_scalar(found), BOOL), loc=loc),
        )


def _product(extents: tuple[int, ...]) -> int:
    out = 1
    for n in extents:
        out *= n
    return out


def _flat(total: Expr, extent: int, index: Expr) -> Expr:
    return plus(times(total, extent), index)


def made_in_order(nest: Parallel) -> bool:
    """Whether one thread makes the contributions of a nest to reducers: those at places that are
    not given by distinct variables of the nest, those in loops, and those of a nest whose size is
    not known. Then the nest is code of one thread, and what it uses cannot be in registers.
    """
    updates = _updates(nest.body)
    loops = [s for s in statements(nest.body) if isinstance(s, (For, While))]
    if any(int_value(e) is None for e in nest.extents) or any(_updates((s,)) for s in loops):
        return bool(updates)
    return not all(_walks(nest, u) for u in updates)


def _updates(body: Block) -> list[ReducerUpdate]:
    return [s for s in statements(body) if isinstance(s, ReducerUpdate)]


def _walks(nest: Parallel, update: ReducerUpdate) -> bool:
    """Whether the place of a contribution is given by distinct variables of the nest."""
    found = [i for i in update.indices if int_value(i) is None]
    return all(i in nest.vars for i in found) and len(set(found)) == len(found)


class _Contributions:
    """Contributions to reducers in a nest, as reductions of the values of all iterations."""

    def __init__(self, threads: Threads) -> None:
        self.t = threads
        self.names = threads.names

    def ahead(self, stmt: AsyncCopy) -> Block:
        """A copy that may be under way until its group is waited for."""
        src, dst, loc = stmt.src, stmt.dst, stmt.loc
        found, checks = match(src.extents, dst.extents, "T.copy", loc)
        loops = loops_over(dst.extents, self.names)
        at = place(loops, dst.extents)
        value = convert(element(src, at_source(found, src, at)), dst)
        store = AsyncStore(dst.buffer, shifted(dst, at), value, loc=loc)
        return (*checks, *parallel(loops, dst.extents, (store,), loc))

    def nest(self, stmt: Parallel) -> Block:
        """A nest without contributions, and what is done before and after it."""
        if not _updates(stmt.body):
            return (stmt,)
        if made_in_order(stmt):
            return self.in_order(stmt)
        before, after = list[Stmt](), list[Stmt]()
        shape = tuple(cast("list[int]", [int_value(e) for e in stmt.extents]))

        def one(s: Stmt) -> Block | None:
            return (
                self.update(s, stmt, shape, before, after) if isinstance(s, ReducerUpdate) else None
            )

        body = map_statements(stmt.body, one)
        return (*before, stmt.with_(body=body), *after)

    def in_order(self, stmt: Parallel) -> Block:
        """One thread makes all contributions."""
        self.t.note(
            "declined",
            "contributions to a reducer at computed places: one thread makes them in order",
            stmt.loc,
        )
        body = map_statements(
            stmt.body,
            lambda s: expand_update(s, self.names) if isinstance(s, ReducerUpdate) else None,
        )
        for var, extent in reversed(list(zip(stmt.vars, stmt.extents, strict=True))):
            body = (serial(var, extent, body, stmt.loc),)
        return (If(self.t.first(), body, loc=stmt.loc),)

    def update(
        self,
        s: ReducerUpdate,
        nest: Parallel,
        shape: tuple[int, ...],
        before: list[Stmt],
        after: list[Stmt],
    ) -> Block:
        """A contribution: its value is kept, and joined to the reducer after the nest."""
        loc, reducer = s.loc, s.reducer
        values = self.names.buffer(f"{reducer.name}_given", s.value.dtype, shape)
        first = identity(s.op, reducer.dtype)
        before += [Alloc(values, loc=loc)]
        if any(isinstance(x, If) for x in statements(nest.body)):
            start = first if first.dtype == values.dtype else Cast(first, values.dtype)
            before.append(Fill(whole(values), start, loc=loc))
        source, kept = values, list(range(len(shape)))
        walked = [nest.vars.index(i) for i in s.indices if i in nest.vars]
        for axis in range(len(shape) - 1, -1, -1):
            if axis in walked:
                continue
            kept.remove(axis)
            extents = [shape[k] for k in kept] or [1]
            smaller = self.names.buffer(
                f"{reducer.name}_joined", inner_type(reducer.dtype), extents
            )
            dim = len([k for k in kept if k < axis])
            after += [
                Alloc(smaller, loc=loc),
                Reduce(s.op, whole(source), whole(smaller), dim, loc=loc),
            ]
            source = smaller
        after += self.join(s, nest, source, kept)
        return (Store(values, tuple(nest.vars), s.value, loc=loc),)

    def join(self, s: ReducerUpdate, nest: Parallel, source: Buffer, kept: list[int]) -> Block:
        """The joined contributions are added to the reducer."""
        fresh = {nest.vars[k]: self.names.var("i", nest.vars[k].type) for k in kept}
        at = tuple(fresh[nest.vars[k]] for k in kept) or (const(0),)
        indices = tuple(fresh.get(i, i) if isinstance(i, Var) else i for i in s.indices)
        value = element(whole(source), at)
        given = s.with_(indices=indices, value=value)
        body = expand_update(given, self.names)
        if not kept:
            one = self.names.var("i")
            return (Parallel((one,), (const(1),), body, loc=s.loc),)
        extents = tuple(nest.extents[k] for k in kept)
        return (Parallel(tuple(fresh[nest.vars[k]] for k in kept), extents, body, loc=s.loc),)
