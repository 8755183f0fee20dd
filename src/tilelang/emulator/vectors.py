"""The text of vector expressions: values of several scalars, packed, computed with and taken apart.

What enters: expressions of the IR. What leaves: `Val`s. A vector value is an array with one more
axis at the end, for its scalars; operators and functions apply to each of them. Everything else
goes to `scalars`.
"""

from __future__ import annotations

from dataclasses import replace

from tilelang.dtypes import DType
from tilelang.emulator import access, arithmetic, neighbours, numerics, pointers, scalars
from tilelang.emulator.neighbours import Span, bits_of
from tilelang.emulator.storage import poison
from tilelang.emulator.unit import Unit
from tilelang.emulator.values import UNIFORM, Axes, Val, tuple_text, value
from tilelang.errors import TileError, error
from tilelang.ir.expr import (
    AddressOf,
    Binary,
    Bitcast,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    Lane,
    Load,
    LoadVector,
    Pack,
    Unary,
)
from tilelang.ir.tile import Store, StoreVector

_SCALARS: Axes = frozenset({-1})
"""An axis that no domain has: with it, the text of a vector is that of an array."""


def emit(u: Unit, e: Expr) -> Val:
    """The text of any expression."""
    match e:
        case LoadVector():
            return _load(u, e.buffer, e.indices, _span(u, e.buffer, e.type), e.pred)
        case Lane():
            return lane_of(u, u.expr(e.a), e.lane)
        case AddressOf():
            return pointers.address_of(u, e)
        case Binary() if e.a.dtype.is_vector and (e.op.is_compare or e.op.is_logical):
            raise error(
                "dtype",
                f"{e.a.dtype} {e.op.value} {e.b.dtype}",
                e.loc or u.w.loc,
                expected="numbers of one lane",
                help="compare the lanes one by one: T.extract_lane(x, 0)",
            )
        case Bitcast() if e.type.is_vector or e.a.dtype.is_vector:
            return _bitcast(u, u.expr(e.a), e.type)
        case _:
            return _vector(u, e) if e.dtype.is_vector else scalars.emit(u, e)


def _vector(u: Unit, e: Expr) -> Val:
    match e:
        case Pack():
            return _pack(u, [u.expr(lane) for lane in e.lanes], e.type)
        case Const():
            return constant(u, e.value, e.type)
        case Load():
            return _load_element(u, e)
        case Binary():
            a, b = u.expr(e.a), u.expr(e.b)
            out = arithmetic.binary(u, e.op, _array(a), _array(b))
        case Unary():
            out = arithmetic.unary(u, e.op, _array(u.expr(e.a)))
        case Cast():
            out = _cast(u, e)
        case Call():
            out = _call(u, e)
        case _:
            return scalars.emit(u, e)
    return _whole(out, e.dtype)


def _array(v: Val) -> Val:
    """A vector as an array of its scalars."""
    return replace(v, dtype=v.dtype.base, axes=v.axes | _SCALARS)


def _whole(v: Val, dtype: DType) -> Val:
    """An array of scalars as a vector."""
    return replace(v, dtype=dtype, axes=v.axes - _SCALARS, low=0, high=0)


def _cast(u: Unit, e: Cast) -> Val:
    if e.rounding == "rs":
        raise error(
            "dtype",
            f"stochastic rounding of a vector ({e.type})",
            e.loc or u.w.loc,
            help="convert its lanes one by one",
        )
    return scalars.convert(u, _array(u.expr(e.a)), e.type.base, e.rounding, e.saturate)


def _call(u: Unit, e: Call) -> Val:
    args = [u.expr(a) for a in e.args]
    source = args[0].dtype.base
    fn = numerics.function(e.fn, source, e.params)
    name = u.constant(e.fn, fn, (e.fn, source, e.params))
    axes = _SCALARS.union(*(a.axes for a in args))
    return value(f"{name}({', '.join(a.code for a in args)})", e.type.base, axes, atom=True)


def _pack(u: Unit, lanes: list[Val], dtype: DType) -> Val:
    axes = UNIFORM.union(*(v.axes for v in lanes))
    return _joined(u, [scalars.as_numpy(u, v) for v in lanes], dtype, axes)


def _joined(u: Unit, parts: list[str], dtype: DType, axes: Axes) -> Val:
    name = u.constant("packed", neighbours.packed, "fn")
    trail = "," if len(parts) == 1 else ""
    code = f"{name}(({', '.join(parts)}{trail}), {u.constant('dtype', dtype, dtype)})"
    return Val(code, dtype, axes, atom=True)


def lane_of(u: Unit, a: Val, lane: int) -> Val:
    """One lane of a vector."""
    if not 0 <= lane < a.dtype.lanes:
        raise error("bounds", f"lane {lane} of {a.dtype}", u.w.loc)
    like = Val("", a.dtype.base, a.axes)
    return scalars.from_numpy(f"{a.text}[..., {lane}]", a.dtype.base, like)


def _bitcast(u: Unit, a: Val, dtype: DType) -> Val:
    if bits_of(a.dtype) != bits_of(dtype):
        raise error("dtype", f"a bitcast from {a.dtype} to {dtype}, which differ in size", u.w.loc)
    name = u.constant("as_value", neighbours.as_value, "fn")
    src, dst = (u.constant("dtype", d, d) for d in (a.dtype, dtype))
    code = f"{name}({scalars.as_numpy(u, a)}, {src}, {dst})"
    like = Val("", dtype, a.axes)
    return (
        Val(code, dtype, a.axes, atom=True)
        if dtype.is_vector
        else scalars.from_numpy(code, dtype, like)
    )


# -- memory ----------------------------------------------------------------------------------------


def _span(u: Unit, buffer: Buffer, dtype: DType) -> Span:
    found = neighbours.span(buffer.dtype, dtype)
    if found is None:
        raise _unfit(u, buffer, dtype)
    return found


def _unfit(u: Unit, buffer: Buffer, dtype: DType) -> TileError:
    return error(
        "dtype",
        f"{dtype} in {buffer.name}, which holds {buffer.dtype}",
        u.w.loc,
        expected="a value that covers whole elements, and whole bytes",
        got=f"{bits_of(dtype)} bits over elements of {bits_of(buffer.dtype)} bits",
    )


def _load_element(u: Unit, e: Load) -> Val:
    s = u.storage(e.buffer)
    if s.scalar:
        return Val(s.name, e.buffer.dtype, atom=True)
    return _load(u, e.buffer, e.indices, Span(e.buffer.dtype, e.buffer.dtype, 1), None)


def _load(u: Unit, buffer: Buffer, indices: tuple[Expr, ...], span: Span, pred: Expr | None) -> Val:
    s = u.storage(buffer)
    p = access.place(u, s, indices)
    held = u.expr(pred) if pred is not None else None
    axes = p.axes | (held.axes if held is not None else UNIFORM)
    if u.checks is not None and pred is None:
        u.checks.reach(u, p, u.access_name(buffer), span.count, write=False)
    name = u.constant("load_vector", neighbours.load, "fn")
    mask = u.mask_text if axes else "None"
    where = held.code if held is not None else "None"
    at, place = access.index_text(u, p), u.access_name(buffer)
    code = f"{name}({s.name}, {at}, {place}, {u.constant('span', span, span)}, {mask}, {where})"
    like = Val("", span.value, axes)
    if span.value.is_vector:
        return Val(code, span.value, axes, atom=True)
    return scalars.from_numpy(code, span.value, like)


def store_element(u: Unit, stmt: Store) -> None:
    """A store of a vector into a buffer of vectors."""
    u.begin(stmt.value, *stmt.indices)
    v = u.expr(stmt.value)
    s = u.storage(stmt.buffer)
    if s.scalar:
        u.w.line(f"{s.name} = {v.code}")
        return
    _store(u, stmt, v, Span(stmt.buffer.dtype, stmt.buffer.dtype, 1))


def store(u: Unit, stmt: StoreVector) -> None:
    """A store of a value over neighbouring elements."""
    u.begin(stmt.value, *stmt.indices, stmt.pred)
    v = u.bind(u.expr(stmt.value))
    span = _span(u, stmt.buffer, v.dtype)
    pred = u.expr(stmt.pred) if stmt.pred is not None else None
    if pred is None:
        _store(u, stmt, v, span)
    elif pred.uniform:
        with u.w.block(f"if {pred.code}:"):
            _store(u, stmt, v, span)
    else:
        with u.under(u.bind(u.both(u.mask, pred) or pred, "m")):
            _store(u, stmt, v, span)


def _store(u: Unit, stmt: Store | StoreVector, v: Val, span: Span) -> None:
    s = u.storage(stmt.buffer)
    p = access.place(u, s, stmt.indices)
    if u.checks is not None:
        u.checks.reach(u, p, u.access_name(stmt.buffer), span.count, write=True)
    name = u.constant("store_vector", neighbours.store, "fn")
    lanes = f"({u.mask_text}, {u.domain.shape})"
    at, place = access.index_text(u, p), u.access_name(stmt.buffer)
    code = v.code if v.dtype.is_vector else scalars.as_numpy(u, v)
    u.w.line(f"{name}({s.name}, {at}, {code}, {lanes}, {place}, {u.constant('span', span, span)})")


# -- storage ---------------------------------------------------------------------------------------


def constant(u: Unit, number: int | float | bool, dtype: DType) -> Val:
    """A literal of any dtype; a vector has it in every lane."""
    one = scalars.constant(u, number, dtype.base)
    return _pack(u, [one], dtype) if dtype.is_vector else one


def undefined(u: Unit, dtype: DType) -> Val:
    """A vector that holds what memory holds before the first write."""
    bad = Val(u.constant("undefined", poison(dtype), dtype), dtype.base, atom=True)
    return _joined(u, [bad.code], dtype, UNIFORM)


def shape_text(u: Unit, dtype: DType, extents: tuple[Expr, ...]) -> str:
    """The text of the shape of the array behind a buffer."""
    lanes = [str(dtype.lanes)] if dtype.is_vector else []
    return tuple_text([*(u.expr(e).code for e in extents), *lanes])


def strides_text(u: Unit, dtype: DType, strides: tuple[Expr, ...] | None) -> str:
    """The text of the strides of the array behind a buffer, in scalars; None is row-major."""
    if strides is None:
        return "None"
    lanes = ["1"] if dtype.is_vector else []
    return tuple_text([*(scaled(u.expr(e).text, dtype) for e in strides), *lanes])


def scaled(elements: str, dtype: DType) -> str:
    """The text of a number of elements as a number of scalars."""
    return f"{elements} * {dtype.lanes}" if dtype.is_vector else elements
