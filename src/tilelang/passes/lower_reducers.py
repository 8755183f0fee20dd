"""Reducers and tests over elements as ordinary buffers and loops.

What enters: a function of the tile stage. What leaves: one in which a reducer is a buffer of the
type that is combined in, set to the identity where it is opened and copied out where it is closed;
`T.any_of` and `T.all_of` are loops. A contribution stays a `ReducerUpdate` until its parallel loop
has become sequential loops (`expand_update`), since it carries from one iteration to the next.
"""

from __future__ import annotations

from tilelang.dtypes import DType
from tilelang.ir.expr import (
    Buffer,
    Cast,
    Const,
    Expr,
    Load,
    Unary,
    UnaryOp,
)
from tilelang.ir.special import (
    Quantifier,
    ReducerFinalize,
    ReducerInit,
    ReducerUpdate,
    TestElements,
)
from tilelang.ir.tile import Alloc, Block, Function, If, Let, ReduceOp, Stmt, Store
from tilelang.isa.target import Target
from tilelang.passes.build import (
    Names,
    as_type,
    element,
    get_scalar,
    loops_over,
    map_launches,
    map_statements,
    parallel,
    place,
    serial,
    set_scalar,
    shifted,
    variable,
    whole,
)
from tilelang.passes.lower_copies import at_source, match
from tilelang.passes.lower_reductions import Fold, identity, inner_type
from tilelang.scopes import Dialect, Memory, memory_of

BOOL = DType("bool")


def lower_tests(fn: Function, target: Target) -> Function:
    """No tests over elements: loops that look at each."""
    del target
    names = Names(fn)

    def one(stmt: Stmt) -> Block | None:
        return _test(stmt, names) if isinstance(stmt, TestElements) else None

    return map_launches(fn, lambda body: map_statements(body, one))


def _test(stmt: TestElements, names: Names) -> Block:
    src, loc = stmt.src, stmt.loc
    some = stmt.quantifier is Quantifier.ANY
    found, declare = variable("found", BOOL, names, loc)
    loops = loops_over(src.extents, names)
    x = element(src, place(loops, src.extents))
    truth = x if x.dtype.is_bool else Cast(x, BOOL)
    cond = truth if some else Unary(UnaryOp.NOT, truth)
    body: Block = (If(cond, (set_scalar(found, Const(some, BOOL), loc),), loc=loc),)
    for var, extent in reversed(list(zip(loops, src.extents, strict=True))):
        if var is not None:
            body = (serial(var, extent, body, loc),)
    start = set_scalar(found, Const(not some, BOOL), loc)
    return (declare, start, *body, Let(stmt.result, get_scalar(found), loc=loc))


def lower_reducers(fn: Function, target: Target) -> Function:
    """No reducers but contributions to buffers."""
    del target
    return _Reducers(fn).lower()


class _Reducers:
    """All reducers of a function."""

    def __init__(self, fn: Function) -> None:
        self.fn = fn
        self.names = Names(fn)
        self.dialect = Dialect(fn.dialect)
        self.wide: dict[str, Buffer] = {}

    def lower(self) -> Function:
        fn = map_launches(self.fn, lambda body: map_statements(body, self.opened))
        return map_launches(fn, lambda body: map_statements(body, self.one))

    def opened(self, stmt: Stmt) -> Block | None:
        """A reducer's own storage, in the type that is combined in."""
        if not isinstance(stmt, Alloc):
            return None
        b = stmt.buffer
        if memory_of(self.dialect, b.scope) is not Memory.REDUCER:
            return None
        wide = b.with_(type=inner_type(b.dtype), scope="local.fragment")
        self.wide[b.name] = wide
        return (stmt.with_(buffer=wide),)

    def one(self, stmt: Stmt) -> Block | None:
        match stmt:
            case ReducerInit():
                return self.init(stmt)
            case ReducerUpdate() if stmt.reducer.name in self.wide:
                wide = self.wide[stmt.reducer.name]
                value = self.fold(stmt.op, stmt.reducer.dtype).enter(stmt.value)
                return (stmt.with_(reducer=wide, value=value),)
            case ReducerUpdate():
                return None
            case ReducerFinalize():
                return self.finalize(stmt)
            case _:
                return None

    def fold(self, op: ReduceOp, dtype: DType) -> Fold:
        return Fold(op, dtype, False, self.names)

    def init(self, stmt: ReducerInit) -> Block:
        reducer = stmt.reducer
        into = self.wide.get(reducer.name, reducer)
        first = identity(stmt.op, reducer.dtype)
        before: Block = ()
        if stmt.init is not None:
            start, declare = variable("start", first.dtype, self.names, stmt.loc)
            entered = as_type(as_type(stmt.init, reducer.dtype), first.dtype)
            fold = self.fold(stmt.op, reducer.dtype)
            zero = Const(0, DType("int32"))
            before = (declare, *fold.join(first, entered, start, zero))
            first = get_scalar(start)
        loops = loops_over(into.shape, self.names)
        at = place(loops, into.shape)
        store = Store(into, tuple(at), as_type(first, into.dtype), loc=stmt.loc)
        return (*before, *parallel(loops, into.shape, (store,), stmt.loc))

    def finalize(self, stmt: ReducerFinalize) -> Block:
        reducer, dst = stmt.reducer, stmt.dst
        own = self.wide.get(reducer.name)
        if own is None and dst.buffer == reducer:
            return ()
        source = own or reducer
        found, checks = match(source.shape, dst.extents, "the reducer", stmt.loc)
        loops = loops_over(dst.extents, self.names)
        at = place(loops, dst.extents)
        region = whole(source)
        value: Expr = Load(source, tuple(at_source(found, region, at)), loc=stmt.loc)
        value = as_type(as_type(value, reducer.dtype), dst.dtype)
        store = Store(dst.buffer, shifted(dst, at), value, loc=stmt.loc)
        return (*checks, *parallel(loops, dst.extents, (store,), stmt.loc))


def expand_update(stmt: ReducerUpdate, names: Names) -> Block:
    """A contribution as a load, the combination and a store."""
    reducer = stmt.reducer
    fold = Fold(stmt.op, reducer.dtype, False, names)
    total, declare = variable("total", fold.inner, names, stmt.loc)
    old = as_type(Load(reducer, stmt.indices, loc=stmt.loc), fold.inner)
    zero = Const(0, DType("int32"))
    value = fold.enter(stmt.value)
    result = fold.leave(get_scalar(total))
    return (
        declare,
        *fold.join(old, value, total, zero),
        Store(reducer, stmt.indices, result, loc=stmt.loc),
    )
