"""The text of scalar expressions.

What enters: expressions of the IR. What leaves: `Val`s. An expression whose parts must not all be
evaluated (a lazy select) becomes statements before the one that uses it; everything else is one
line of Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilelang.dtypes import DType
from tilelang.dtypes.convert import cast as cast_values
from tilelang.dtypes.convert import converter
from tilelang.dtypes.storage import from_bits, to_bits
from tilelang.emulator import access, arithmetic, numerics
from tilelang.emulator.lanes import nodes_of
from tilelang.emulator.unit import Unit
from tilelang.emulator.values import Val, full_range, integer, value
from tilelang.errors import error
from tilelang.ir.expr import (
    BOOL,
    AtomicLoad,
    Binary,
    Bitcast,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Unary,
    Var,
)


def emit(u: Unit, e: Expr) -> Val:
    """The text of `e`. Its operands come from `u.expr`, which knows what was emitted before."""
    translate = _EXPRESSIONS.get(type(e))
    if translate is None:
        raise TypeError(f"no translation for {type(e).__name__}")
    return translate(u, e)


def _binary(u: Unit, e: Binary) -> Val:
    a, b = u.expr(e.a), u.expr(e.b)
    if u.checks is not None:
        u.checks.divisor(u, e.op, a, b)
    return arithmetic.binary(u, e.op, a, b)


def constant(u: Unit, number: int | float | bool, dtype: DType) -> Val:
    """A literal."""
    if dtype.is_bool:
        return Val(str(bool(number)), BOOL, atom=True)
    if dtype.is_integer or dtype.is_handle:
        return integer(int(number), dtype)
    exactly = converter(DType("float64"), dtype, saturate=False)  # infinity is a value too
    scalar = exactly(np.array(float(number)))[()]
    return Val(u.constant("c", scalar, (dtype, float(number).hex())), dtype, atom=True)


def scalar_type(u: Unit, dtype: DType) -> str:
    """The name of the NumPy type of one element."""
    name = dtype.numpy.name
    if name == "bool":
        return "bool_"
    if name not in u.w.namespace:
        u.w.define(**{name: dtype.numpy.type})
    return name


def as_numpy(u: Unit, v: Val) -> str:
    """The text of a value as a NumPy scalar or array of its type."""
    if v.uniform and not v.dtype.is_float:
        return f"{scalar_type(u, v.dtype)}({v.code})"
    return v.code


def from_numpy(code: str, dtype: DType, like: Val) -> Val:
    """A NumPy result as a value: of the block, a Python int or bool."""
    if like.axes:
        return value(code, dtype, like.axes, atom=True)
    if dtype.is_float:
        return value(f"{code}[()]", dtype, atom=True)
    return value(f"{'bool' if dtype.is_bool else 'int'}({code})", dtype, atom=True)


def _cast(u: Unit, e: Cast) -> Val:
    a = u.expr(e.a)
    if e.rounding == "rs":
        if e.rbits is None:
            raise error(
                "value", "stochastic rounding needs random bits", e.loc or u.w.loc, expected="rbits"
            )
        bits = u.expr(e.rbits)
        src, dst = (u.constant("dtype", d, d) for d in (a.dtype, e.type))
        like = Val("", e.type, a.axes | bits.axes)
        fn = u.constant("cast_values", cast_values, "cast")
        shaped = (
            f"{as_numpy(u, a)}"
            if a.axes >= bits.axes
            else f"broadcast_to({as_numpy(u, a)}, {bits.text}.shape)"
        )
        code = f"{fn}({shaped}, {src}, {dst}, 'rs', {e.saturate}, {as_numpy(u, bits)})"
        return from_numpy(code, e.type, like)
    return convert(u, a, e.type, e.rounding, e.saturate)


def convert(u: Unit, a: Val, dst: DType, rounding: str = "rn", saturate: bool = True) -> Val:
    """`a` converted by value."""
    src = a.dtype
    if src == dst:
        return a
    if a.uniform:
        known = _convert_int(u, a, dst) if not src.is_float else None
        if known is not None:
            return known
    name = u.constant(
        "cast", converter(src, dst, rounding, saturate), (src, dst, rounding, saturate)
    )
    out = from_numpy(f"{name}({as_numpy(u, a)})", dst, a)
    low, high = (a.low, a.high) if src.is_integer else full_range(dst)
    least, most = full_range(dst)
    fits = dst.is_integer and src.is_integer and least <= low and high <= most
    alias = a.alias and src.numpy == dst.numpy
    return Val(
        out.code, dst, out.axes, low if fits else least, high if fits else most, alias, atom=True
    )


def _convert_int(u: Unit, a: Val, dst: DType) -> Val | None:
    """A Python int or bool in another type, where that needs no table."""
    if dst.is_bool:
        return Val(f"{a.text} != 0", BOOL)
    if dst.is_integer:
        if a.dtype.is_bool:
            return Val(f"int({a.code})", dst, low=0, high=1, atom=True)
        out = arithmetic.ranged(a.code, dst, a.low, a.high, a)
        return Val(out.code, dst, low=out.low, high=out.high, atom=a.atom and out.code == a.code)
    exact = a.dtype.is_bool or max(abs(a.low), abs(a.high)) <= 1 << 53
    if exact and dst.name in ("float32", "float64", "float16"):
        return Val(f"{scalar_type(u, dst)}({a.code})", dst, atom=True)
    return None


def _bitcast(u: Unit, a: Val, dst: DType) -> Val:
    if a.dtype == dst:
        return a
    if a.dtype.bits != dst.bits:
        raise error("dtype", f"a bitcast from {a.dtype} to {dst}, which differ in size", u.w.loc)
    if a.dtype.is_subbyte:
        src, to = (u.constant("dtype", d, d) for d in (a.dtype, dst))
        u.w.define(from_bits=from_bits, to_bits=to_bits)
        return from_numpy(f"from_bits(to_bits(asarray({as_numpy(u, a)}), {src}), {to})", dst, a)
    given = as_numpy(u, a)
    viewed = f"{a.text if given == a.code else given}.view({scalar_type(u, dst)})"
    out = from_numpy(viewed, dst, a)
    if not out.axes and dst.is_float:
        return value(viewed, dst, atom=True)
    return Val(out.code, dst, out.axes, out.low, out.high, a.alias, atom=True)


def _select(u: Unit, e: Select) -> Val:
    cond = u.expr(e.cond)
    loads = any(isinstance(n, Load) for n in nodes_of(e.t, e.f))
    if e.lazy and loads:
        return _lazy_select(u, e, cond)
    t, f = u.expr(e.t), u.expr(e.f)
    if loads and not cond.axes:
        t, f = u.bind(t), u.bind(f)
    return choose(u, cond, t, f)


def choose(u: Unit, cond: Val, t: Val, f: Val) -> Val:
    """`t` where `cond` holds, else `f`, both evaluated."""
    axes = cond.axes | t.axes | f.axes
    low, high = min(t.low, f.low), max(t.high, f.high)
    if cond.uniform:
        # Where one side has lanes, the other may not be a Python number: it must wrap as they do.
        yes, no = (as_numpy(u, v) for v in (t, f)) if axes else (t.text, f.text)
        code = f"({yes}) if {cond.text} else ({no})"
        return Val(code, t.dtype, axes, low, high, t.alias or f.alias)
    held = f"({cond.code})[..., None]" if t.dtype.is_vector else cond.code
    code = f"where({held}, {as_numpy(u, t)}, {as_numpy(u, f)})"
    return Val(code, t.dtype, axes, low, high, atom=True)


def _lazy_select(u: Unit, e: Select, cond: Val) -> Val:
    """A select one of whose arms reads memory: only the arm taken is evaluated, by the lanes that
    take it.
    """
    cond = u.bind(cond)
    if cond.uniform:
        name = u.w.fresh("t")
        with u.w.block(f"if {cond.code}:"):
            t = _arm(u, e.t, name, u.mask, number=True)
        with u.w.block("else:"):
            f = _arm(u, e.f, name, u.mask, number=True)
        if t.uniform != f.uniform:  # as in `choose`
            u.w.define(asarray=np.asarray)
            u.w.line(f"{name} = asarray({name}, {scalar_type(u, t.dtype)})")
        low, high = min(t.low, f.low), max(t.high, f.high)
        return Val(name, t.dtype, t.axes | f.axes, low, high, t.alias or f.alias, atom=True)
    arms: list[Val] = []
    for arm, taken in ((e.t, cond), (e.f, Val(f"~{cond.text}", BOOL, cond.axes))):
        if not any(isinstance(n, Load) and u.on_chip(n.buffer) for n in nodes_of(arm)):
            arms.append(_arm(u, arm, "", u.both(u.mask, taken)))
            continue
        name = u.w.fresh("t")
        mask = u.bind(u.both(u.mask, taken) or taken, "m")
        with u.w.block(f"if {mask.code}.any():"):
            chosen = _arm(u, arm, name, mask)
        with u.w.block("else:"):
            u.w.line(f"{name} = {_zero(u, chosen.dtype)}")
        arms.append(chosen.named(name))
    return choose(u, cond, arms[0], arms[1])


def _zero(u: Unit, dtype: DType) -> str:
    return constant(u, 0, dtype).code


def _arm(u: Unit, e: Expr, name: str, mask: Val | None, *, number: bool = False) -> Val:
    """One arm, for the lanes of `mask`; bound to `name` if there is one. What it computes is not
    known outside.

    A value of the block is then a value of NumPy, or, with `number`, still one of Python.
    """
    before = dict(u.memo), dict(u.affines)
    with u.under(mask):
        v = u.expr(e)
    u.memo, u.affines = before
    if name:
        u.w.line(f"{name} = {v.code if number else as_numpy(u, v)}")
        return v.named(name)
    return v


def _call(u: Unit, e: Call) -> Val:
    args = [u.expr(a) for a in e.args]
    axes = frozenset[int]().union(*(a.axes for a in args))
    source = args[0].dtype if args else e.type
    fn = numerics.function(e.fn, source, e.params)
    name = u.constant(e.fn, fn, (e.fn, source, e.params))
    like = Val("", e.type, axes)
    return from_numpy(f"{name}({', '.join(as_numpy(u, a) for a in args)})", e.type, like)


_EXPRESSIONS: dict[type[Expr], Callable[[Unit, Any], Val]] = {
    Const: lambda u, e: constant(u, e.value, e.type),
    Var: lambda u, e: u.var(e),
    Load: access.load,
    AtomicLoad: access.load,
    Binary: _binary,
    Unary: lambda u, e: arithmetic.unary(u, e.op, u.expr(e.a)),
    Cast: _cast,
    Bitcast: lambda u, e: _bitcast(u, u.expr(e.a), e.type),
    Select: _select,
    Call: _call,
}
"""How each kind of scalar expression is translated."""
