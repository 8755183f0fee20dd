"""Nests, reductions and copies inside SIMD functions, as operations on vector registers.

What enters: `VectorFunction`s of kind SIMD as the author wrote them. What leaves: their bodies with
loops over registers in the place of `Parallel`, `Reduce`, `Copy` and `Fill`. The last axis of a
nest goes over the elements of a register; what is left over of it has a predicate. A value that is
the same for all elements of the axis is a scalar, spread by `vdup`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tilelang.dtypes import DType
from tilelang.errors import TileError, error
from tilelang.ir.ascend import VectorFunction, VectorKind
from tilelang.ir.ascend_simd import PREDICATE, SimdOp, lanes_of, register
from tilelang.ir.expr import (
    AddressOf,
    Binary,
    BinaryOp,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Region,
    Select,
    Unary,
    UnaryOp,
    Var,
    const,
    int_value,
)
from tilelang.ir.node import Node
from tilelang.ir.simplify import simplify, substitute
from tilelang.ir.tile import (
    Alloc,
    Block,
    Copy,
    Fill,
    Function,
    Parallel,
    Reduce,
    ReduceOp,
    Stmt,
    Store,
)
from tilelang.isa.target import Target
from tilelang.passes.build import (
    Names,
    literal,
    map_bodies,
    map_statements,
    minus,
    plus,
    serial,
    times,
)
from tilelang.passes.lower_reductions import identity

_BINARY = {
    BinaryOp.ADD: "vadd", BinaryOp.SUB: "vsub", BinaryOp.MUL: "vmul", BinaryOp.DIV: "vdiv",
    BinaryOp.MIN: "vmin", BinaryOp.MAX: "vmax", BinaryOp.BITAND: "vand", BinaryOp.BITOR: "vor",
    BinaryOp.BITXOR: "vxor", BinaryOp.SHL: "vshl", BinaryOp.SHR: "vshr",
}  # fmt: skip
_COMPARE = {
    BinaryOp.EQ: "eq", BinaryOp.NE: "ne", BinaryOp.GT: "gt", BinaryOp.GE: "ge",
    BinaryOp.LT: "lt", BinaryOp.LE: "le",
}  # fmt: skip
_CALLS = {"sqrt": "vsqrt", "exp": "vexp", "log": "vln", "abs": "vabs"}
_REDUCE = {
    ReduceOp.SUM: ("vcadd", "vadd"),
    ReduceOp.MAX: ("vcmax", "vmax"),
    ReduceOp.MIN: ("vcmin", "vmin"),
}
_WIDTHS = (8, 16, 32)


def vectorize_functions(fn: Function, target: Target) -> Function:
    """SIMD functions work on registers alone."""
    del target
    names = Names(fn)

    def one(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, VectorFunction) or stmt.kind is not VectorKind.SIMD:
            return None
        body = map_statements(stmt.body, lambda s: _registers(s, names))
        return (stmt.with_(body=_merged(body)),)

    return fn.with_(body=map_statements(fn.body, one))


def _merged(body: Block) -> Block:
    """Operations that keep elements of the register that they are assigned to know it."""
    out: list[Stmt] = []
    for k, stmt in enumerate(body):
        if not isinstance(stmt, SimdOp) or not stmt.merges:
            out.append(map_bodies(stmt, _merged))
            continue
        after = body[k + 1] if k + 1 < len(body) else None
        if not isinstance(after, Store) or after.value != stmt.results[0]:
            raise error(
                "value",
                f"the result of T.simd.{stmt.op}(mode='MODE_MERGING') is not assigned to a register"
                " whose elements stay",
                stmt.loc,
                expected="an assignment to one of T.simd.alloc_var or T.simd.alloc_local",
                help="r = T.simd.alloc_var(dtype) first, then r = the operation",
            )
        old = Load(after.buffer, after.indices, loc=stmt.loc)
        out.append(stmt.with_(merges=False, old=old))
    return tuple(out)


def _registers(stmt: Stmt, names: Names) -> Block | None:
    match stmt:
        case Parallel():
            return _Nest(names, stmt).lower()
        case Reduce():
            return _reduction(names, stmt)
        case Copy():
            return _copy(names, stmt)
        case Fill():
            return _fill(names, stmt)
        case _:
            return None


def _refused(stmt: Node, what: str, **facts: Any) -> TileError:
    return error(
        "target",
        f"{what} in T.SimdVF",
        stmt.loc,
        help="write it with T.simd, or in T.SimtVF",
        **facts,
    )


@dataclass
class _Writer:
    """Operations on registers, in order. `count` is how many elements of the axis are active."""

    names: Names
    stmt: Stmt
    out: list[Stmt] = field(default_factory=list[Stmt])
    masks: dict[int, Expr] = field(default_factory=dict[int, Expr])
    count: Expr | None = None

    def op(
        self, name: str, *args: Expr, result: DType | None, footprint: int = 0, **imm: Any
    ) -> Var:
        """One operation, and the register that it gives."""
        made = (self.names.var("v", result),) if result is not None else ()
        self.out.append(
            SimdOp(
                name,
                args,
                results=made,
                footprint=footprint,
                imm=tuple(sorted(imm.items())),
                loc=self.stmt.loc,
            )
        )
        return made[0] if made else Var("", DType("int32"))

    def mask(self, dtype: DType) -> Expr:
        """The predicate of the active elements."""
        width = max(dtype.base.bits, 8)
        if width not in self.masks:
            if self.count is None:
                made = self.op("pset", result=PREDICATE, width=width, dist="PAT_ALL")
            else:
                count = Cast(self.count, DType("uint32"))
                made = self.op("update_mask", count, result=PREDICATE, width=width)
            self.masks[width] = made
        return self.masks[width]

    def load(self, at: AddressOf) -> Expr:
        """Neighbouring elements."""
        element = at.buffer.dtype
        lanes = lanes_of(element)
        return self.op("vld", at, result=register(element), footprint=lanes, dist="NORM")

    def spread(self, value: Expr) -> Expr:
        """A scalar in every element."""
        return self.op("vdup", value, self.mask(value.dtype), result=register(value.dtype))

    def store(self, at: AddressOf, value: Expr, dist: str = "") -> None:
        """A register into UB."""
        width = max(value.dtype.base.bits, 8)
        lanes = 1 if dist else value.dtype.lanes
        word = f"{dist or 'NORM'}_B{width}"
        mask = self.mask(value.dtype)
        self.op("vsts", at, value, mask, result=None, footprint=lanes, dist=word)


def _chunks(writer_of: Any, size: Expr, lanes: int, names: Names, stmt: Stmt) -> Block:
    """`writer_of(start, count)` for each register's worth of an axis; `count` None means all."""
    whole = int_value(size)
    if whole is None:
        raise _refused(stmt, "an axis whose length is known only when the kernel runs")
    full, rest = divmod(whole, lanes)
    out: list[Stmt] = []
    if full == 1:
        out += writer_of(const(0), None)
    elif full:
        chunk = names.var("chunk")
        out.append(serial(chunk, full, writer_of(times(chunk, lanes), None), stmt.loc))
    if rest:
        out += writer_of(const(full * lanes), const(rest))
    return tuple(out)


class _Nest:
    """One parallel nest: loops over all axes but the last, which goes over registers."""

    def __init__(self, names: Names, stmt: Parallel) -> None:
        self.names, self.stmt = names, stmt
        self.inner = stmt.vars[-1]
        stores = [s for s in stmt.body if isinstance(s, Store)]
        if len(stores) != len(stmt.body) or not stores:
            raise _refused(stmt, "a T.Parallel loop with more than stores of single elements")
        self.stores = stores
        widths = {s.buffer.dtype.bits for s in stores}
        for s in stores:
            widths |= {n.buffer.dtype.bits for n in s.value.walk() if isinstance(n, Load)}
        if len(widths) != 1 or next(iter(widths)) not in _WIDTHS:
            raise _refused(stmt, "a T.Parallel loop over elements of different sizes")
        self.lanes = lanes_of(stores[0].buffer.dtype)

    def lower(self) -> Block:
        """The loops."""
        body = _chunks(self.chunk, self.stmt.extents[-1], self.lanes, self.names, self.stmt)
        axes = list(zip(self.stmt.vars[:-1], self.stmt.extents[:-1], strict=True))
        for var, extent in reversed(axes):
            body = (serial(var, extent, body, self.stmt.loc),)
        return body

    def chunk(self, start: Expr, count: Expr | None) -> Block:
        """One register's worth of the last axis."""
        w = _Writer(self.names, self.stmt, count=count)
        for s in self.stores:
            value = self.value(w, s.value, start)
            w.store(self.address(s.buffer, s.indices, start, s), value)
        return tuple(w.out)

    def varies(self, e: Node) -> bool:
        """Whether a value differs between the elements of the last axis."""
        return any(isinstance(n, Var) and n.name == self.inner.name for n in e.walk())

    def address(
        self, buffer: Buffer, indices: tuple[Expr, ...], start: Expr, at: Node
    ) -> AddressOf:
        """The element at which a register's worth of neighbours begins."""
        if any(self.varies(e) for e in indices[:-1]):
            raise _refused(self.stmt, "a loop whose elements are not neighbours in memory")
        first = substitute(indices[-1], {self.inner: const(0)})
        second = substitute(indices[-1], {self.inner: const(1)})
        step = int_value(simplify(minus(second, first)))
        if step != 1:
            raise _refused(
                self.stmt, "a loop whose elements are not neighbours in memory", got=f"step {step}"
            )
        last = simplify(plus(first, start))
        return AddressOf(buffer, (*indices[:-1], last), loc=at.loc)

    def value(self, w: _Writer, e: Expr, start: Expr) -> Expr:
        """An expression on registers."""
        if not self.varies(e):
            return w.spread(e)
        match e:
            case Load():
                return w.load(self.address(e.buffer, e.indices, start, e))
            case Binary() if e.op in _BINARY:
                a, b = (self.value(w, x, start) for x in (e.a, e.b))
                return w.op(_BINARY[e.op], a, b, w.mask(a.dtype), result=a.dtype)
            case Unary(op=UnaryOp.NEG):
                a = self.value(w, e.a, start)
                return w.op("vneg", a, w.mask(a.dtype), result=a.dtype)
            case Call() if e.fn in _CALLS and len(e.args) == 1:
                a = self.value(w, e.args[0], start)
                return w.op(_CALLS[e.fn], a, w.mask(a.dtype), result=a.dtype)
            case Select() if isinstance(e.cond, Binary) and e.cond.op in _COMPARE:
                a, b = (self.value(w, x, start) for x in (e.cond.a, e.cond.b))
                word = _COMPARE[e.cond.op]
                chosen = w.op("vcmp", a, b, w.mask(a.dtype), result=PREDICATE, op=word)
                t, f = (self.value(w, x, start) for x in (e.t, e.f))
                return w.op("vsel", t, f, chosen, result=t.dtype)
            case _:
                raise _refused(self.stmt, f"{_spelled(e)} of a T.Parallel loop")


def _spelled(e: Expr) -> str:
    if isinstance(e, Call):
        return f"T.{e.fn}"
    if isinstance(e, Cast):
        return f"a conversion to {e.type}"
    return "an expression"


def _at(region: Region, *offsets: Expr) -> AddressOf:
    """An element of a region, by offsets along its last axes."""
    moved = list(region.mins)
    for back, offset in enumerate(reversed(offsets), 1):
        moved[-back] = simplify(plus(moved[-back], offset))
    return AddressOf(region.buffer, tuple(moved), loc=region.loc)


def _reduction(names: Names, stmt: Reduce) -> Block:
    """Rows by `vcadd` (or its like) of each register; columns by adding up registers."""
    ops = _REDUCE.get(stmt.op)
    src, dst = stmt.src, stmt.dst
    shape = [int_value(e) for e in src.extents]
    if ops is None or len(shape) not in (1, 2) or None in shape or src.dtype != dst.dtype:
        raise _refused(
            stmt,
            f"T.reduce_{stmt.op.value} of {src.dtype} into {dst.dtype} along axis {stmt.dim}",
            expected="a sum, maximum or minimum of one or two axes, in one type",
        )
    if stmt.dim == len(shape) - 1:
        return _rows(names, stmt, ops)
    return _columns(names, stmt, ops[1])


def _identity(op: ReduceOp, dtype: DType) -> Expr:
    """What a reduction begins with, in the type of its elements."""
    value = identity(op, dtype)
    if value.dtype == dtype:
        return value
    assert isinstance(value, Const)
    return literal(value.value, dtype)


def _rows(names: Names, stmt: Reduce, ops: tuple[str, str]) -> Block:
    src, dst = stmt.src, stmt.dst
    element, lanes = src.dtype, lanes_of(src.dtype)
    count = int_value(src.extents[-1]) or 0
    row = names.var("row")
    two = len(src.extents) == 2
    kept = len(dst.extents) == 2 and two
    out_at = _at(dst, row, const(0)) if kept else _at(dst, row) if two else _at(dst, const(0))
    w = _Writer(names, stmt)
    if stmt.clear:
        total: Expr = w.spread(_identity(stmt.op, element))
    else:
        total = w.load(out_at)
    full, rest = divmod(count, lanes)
    for k in range(full + bool(rest)):
        if k == full:
            w.masks, w.count = {}, const(rest)
        at = _at(src, row, const(k * lanes)) if two else _at(src, const(k * lanes))
        part = w.load(at)
        one = w.op(ops[0], part, w.mask(element), result=part.dtype)
        w.masks, w.count = {}, None
        total = w.op(ops[1], total, one, w.mask(element), result=total.dtype)
    w.store(out_at, total, "ONEPT")
    if not two:
        return tuple(w.out)
    return (serial(row, src.extents[0], tuple(w.out), stmt.loc),)


def _columns(names: Names, stmt: Reduce, combine: str) -> Block:
    src, dst = stmt.src, stmt.dst
    kept = len(dst.extents) == 2

    def chunk(start: Expr, count: Expr | None) -> Block:
        out_at = _at(dst, const(0), start) if kept else _at(dst, start)
        w = _Writer(names, stmt, count=count)
        total = names.buffer("total", register(src.dtype), (1,), "local.var")
        first = w.spread(_identity(stmt.op, src.dtype)) if stmt.clear else w.load(out_at)
        held = Load(total, (const(0),))
        w.out.append(_declared(total, stmt))
        w.out.append(Store(total, (const(0),), first, loc=stmt.loc))
        row = names.var("row")
        inner = _Writer(names, stmt, masks=dict(w.masks), count=count)
        part = inner.load(_at(src, row, start))
        made = inner.op(combine, held, part, inner.mask(src.dtype), result=part.dtype)
        inner.out.append(Store(total, (const(0),), made, loc=stmt.loc))
        w.out.append(serial(row, src.extents[0], tuple(inner.out), stmt.loc))
        w.store(out_at, held)
        return tuple(w.out)

    return _chunks(chunk, src.extents[-1], lanes_of(src.dtype), names, stmt)


def _declared(buffer: Buffer, stmt: Stmt) -> Stmt:
    return Alloc(buffer, loc=stmt.loc)


def _flat_nest(names: Names, stmt: Copy | Fill, value: Any) -> Block:
    """A nest over the axes of the destination."""
    dst = stmt.dst
    axes = [names.var("i") for _ in dst.extents]
    indices = tuple(simplify(plus(low, v)) for low, v in zip(dst.mins, axes, strict=True))
    store = Store(dst.buffer, indices, value(axes), loc=stmt.loc)
    return _Nest(names, Parallel(tuple(axes), dst.extents, (store,), loc=stmt.loc)).lower()


def _copy(names: Names, stmt: Copy) -> Block:
    src, dst = stmt.src, stmt.dst
    if src.dtype != dst.dtype or len(src.extents) != len(dst.extents):
        raise _refused(stmt, "T.copy with a conversion or between other axes")

    def value(axes: list[Var]) -> Expr:
        indices = tuple(simplify(plus(low, v)) for low, v in zip(src.mins, axes, strict=True))
        return Load(src.buffer, indices, loc=stmt.loc)

    return _flat_nest(names, stmt, value)


def _fill(names: Names, stmt: Fill) -> Block:
    def value(axes: list[Var]) -> Expr:
        del axes
        return stmt.value

    return _flat_nest(names, stmt, value)
