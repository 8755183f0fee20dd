"""Expressions as C++: scalars as nested text, vectors by lane or by word.

What enters: expressions of the thread stage. What leaves: their text. A load of several elements
needs a line of its own, which comes before the statement at hand; so does the choice between two
values whose loads must not both happen.

Integers wrap, so sums are made on unsigned types unless their bounds show that they fit. An index
of an access is inside its array, and sums in it are exact: there signed sums are right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilelang.dtypes import DType
from tilelang.dtypes.storage import to_bits
from tilelang.errors import InternalError
from tilelang.ir.affine import Analysis, is_countable
from tilelang.ir.expr import (
    Binary,
    BinaryOp,
    Bitcast,
    Call,
    Cast,
    Const,
    Expr,
    Lane,
    Pack,
    Select,
    Unary,
    UnaryOp,
    Var,
    int_value,
)
from tilelang.ir.functions import FUNCTIONS, Gives
from tilelang.ir.interval import Interval
from tilelang.ir.thread import Addr, Elem
from tilelang.targets.cuda import functions, vectors
from tilelang.targets.cuda.conversions import F32, Conversions
from tilelang.targets.cuda.places import Memory, Place, pointer, raw_bits, shared_address
from tilelang.targets.cuda.text import Code
from tilelang.targets.cuda.types import access_bytes, computes_in, value_type
from tilelang.targets.cuda.vectors import Vector, of_lanes, of_words

_RING = (BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL)
_I64 = DType("int64")


class Expressions:
    """The expressions of one kernel: what names mean, and what is known about integers."""

    def __init__(self, code: Code, conversions: Conversions) -> None:
        self.code = code
        self.conversions = conversions
        self.used = conversions.used
        self.memory = Memory(code, self.used)
        self.vars: dict[str, str] = {}
        self.vectors: dict[str, Vector] = {}
        self.places: dict[str, Place] = {}
        self.ranges: dict[Var, Interval] = {}
        self.known = Analysis(self.ranges, wraps=True)

    def place(self, name: str) -> Place:
        """Where an array is."""
        found = self.places.get(name)
        if found is None:
            raise InternalError(f"the array {name} has no place")
        return found

    # Scalars -------------------------------------------------------------------------------------

    def of(self, e: Expr) -> str:
        """A scalar expression."""
        if e.dtype.lanes != 1:
            raise InternalError(f"{e.dtype} where a scalar is expected")
        return _SCALARS[type(e)](self, e)

    def index(self, e: Expr) -> str:
        """An index inside its array."""
        known = int_value(e)
        if known is not None:
            return str(known)
        match e:
            case Binary(op=op) if op in _RING and e.dtype.is_int and e.dtype.bits >= 32:
                return f"({self.index(e.a)} {op.value} {self.index(e.b)})"
            case Cast(type=t) if t == _I64 and e.a.dtype.is_int and e.a.dtype.bits == 32:
                return f"i64({self.index(e.a)})"
            case _:
                return self.of(e)

    def _const(self, e: Const) -> str:
        return constant(e.value, e.type)

    def _var(self, e: Var) -> str:
        return self.vars[e.name]

    def _binary(self, e: Binary) -> str:
        if e.op in _RING and is_countable(e.dtype) and self._fits(e):
            return f"({self.of(e.a)} {e.op.value} {self.of(e.b)})"
        short = self._division(e) or self._shift(e)
        return short or self.binary(e.op, self.of(e.a), self.of(e.b), e.a.dtype)

    def _fits(self, e: Binary) -> bool:
        """Whether a sum or product of int32 or int64 is known not to wrap."""
        if not e.dtype.is_int or e.dtype.bits < 32:
            return False
        a, b = self.known.bounds(e.a), self.known.bounds(e.b)
        if None in (a.lo, a.hi, b.lo, b.hi):
            return False
        corners = [_RESULT[e.op](x, y) for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
        return e.dtype.min <= min(corners) and max(corners) <= e.dtype.max

    def _division(self, e: Binary) -> str:
        """A floor division that needs no correction: by a power of two, or of known signs."""
        if e.op not in (BinaryOp.FLOORDIV, BinaryOp.FLOORMOD) or not e.a.dtype.is_int:
            return ""
        if e.a.dtype.bits < 32:
            return ""
        by, quotient = int_value(e.b), e.op is BinaryOp.FLOORDIV
        if by is not None and by > 0 and by & (by - 1) == 0:
            a, shift = self.of(e.a), by.bit_length() - 1
            return f"({a} >> {shift})" if quotient else f"({a} & {constant(by - 1, e.a.dtype)})"
        a, b = self.known.bounds(e.a), self.known.bounds(e.b)
        if a.lo is not None and a.lo >= 0 and b.lo is not None and b.lo > 0:
            return f"({self.of(e.a)} {'/' if quotient else '%'} {self.of(e.b)})"
        return ""

    def _shift(self, e: Binary) -> str:
        """A shift by a number that is less than the width."""
        by, dtype = int_value(e.b), e.a.dtype
        if by is None or not 0 <= by < dtype.bits or dtype.bits < 32:
            return ""
        if e.op is BinaryOp.SHR:
            return f"({self.of(e.a)} >> {by})"
        if e.op is BinaryOp.SHL:
            return f"{value_type(dtype)}(u{dtype.bits}({self.of(e.a)}) << {by})"
        return ""

    def binary(self, op: BinaryOp, a: str, b: str, dtype: DType) -> str:
        """`op` on two scalars of `dtype`."""
        if dtype.is_bool:
            return f"({a} {functions.BOOL_OPERATORS[op]} {b})"
        if dtype.is_float:
            inner = computes_in(dtype)
            a, b = self.widened(a, dtype), self.widened(b, dtype)
            if op.is_compare:
                return f"({a} {op.value} {b})"
            text = functions.float_operator(op, a, b, inner, self.used)
            return self.narrowed(text, dtype)
        if op.is_compare:
            return f"({a} {op.value} {b})"
        if dtype.is_subbyte:
            wide = DType("int32")
            text = functions.integer_operator(op, f"i32({a})", f"i32({b})", wide, self.used)
            return self.conversions.cast(text, wide, dtype)
        return functions.integer_operator(op, a, b, dtype, self.used)

    def widened(self, x: str, dtype: DType) -> str:
        """A float in the type that is computed in."""
        return x if dtype.bits == 64 else self.conversions.to_f32(x, dtype)

    def narrowed(self, x: str, dtype: DType, rounding: str = "") -> str:
        """A computed float in its own type, rounded once."""
        return x if dtype.bits == 64 else self.conversions.cast(x, F32, dtype, rounding)

    def _unary(self, e: Unary) -> str:
        return self.unary(e.op, self.of(e.a), e.a.dtype)

    def unary(self, op: UnaryOp, a: str, dtype: DType) -> str:
        """`op` on a scalar of `dtype`."""
        if op is UnaryOp.NOT or dtype.is_bool:
            return f"(!{a})"
        if dtype.is_float:
            return self.narrowed(f"(-{self.widened(a, dtype)})", dtype)
        if op is UnaryOp.BITNOT:
            ones = constant(-1 if dtype.is_int else dtype.max, dtype)
            return self.binary(BinaryOp.BITXOR, a, ones, dtype)
        return self.binary(BinaryOp.SUB, constant(0, dtype), a, dtype)

    def _cast(self, e: Cast) -> str:
        rbits = "" if e.rbits is None else self.of(e.rbits)
        return self.conversions.cast(
            self.of(e.a), e.a.dtype, e.type, e.rounding, saturate=e.saturate, rbits=rbits
        )

    def _bitcast(self, e: Bitcast) -> str:
        if e.a.dtype.lanes != 1:
            return of_words(e.type, 1, self.vector(e.a).words).lanes[0]
        return self.bitcast(self.of(e.a), e.a.dtype, e.type)

    def bitcast(self, x: str, src: DType, dst: DType) -> str:
        """The bits of a scalar as another type of the same size."""
        if value_type(src) == value_type(dst):
            return x
        raw = raw_bits(src, x)
        if dst.bits == 64:
            return vectors.wide_of_bits(dst, raw)
        return vectors.lane_of_bits(dst, raw if src.bits == 32 else f"u32({raw})")

    def _call(self, e: Call) -> str:
        return self.call(e, [self.of(a) for a in e.args])

    def call(self, e: Call, args: Sequence[str]) -> str:
        """A pure function of scalars."""
        row, dtype = FUNCTIONS[e.fn], e.args[0].dtype.base
        if not dtype.is_float:
            return functions.integer_function(e.fn, args, dtype, self.used)
        inner = computes_in(dtype)
        wide = [self.widened(a, dtype) for a in args]
        if e.fn.startswith("ieee_"):
            mode = str(e.params[0]) if e.params else "rn"
            text = functions.ieee(e.fn.removeprefix("ieee_"), wide, mode, inner, self.used)
            return self.narrowed(text, dtype, "" if dtype.bits == 64 else _PTX_MODES[mode])
        name = "exp2 normal" if e.fn == "exp2" and e.params == ("normal",) else e.fn
        text = functions.float_function(name, wide, inner, self.used)
        return text if row.gives is Gives.BOOL else self.narrowed(text, dtype)

    def _elem(self, e: Elem) -> str:
        place = self.place(e.array.name)
        return self.memory.read(place, self.index(e.index), dict(e.hints))

    def _addr(self, e: Addr) -> str:
        place, index = self.place(e.array.name), self.index(e.index)
        if e.type.is_handle:
            return f"reinterpret_cast<u64>({pointer(place, index)})"
        return f"({shared_address(place, index, self.used)})"

    def _lane(self, e: Lane) -> str:
        return self.vector(e.a).lanes[e.lane]

    def _select(self, e: Select) -> str:
        cond = self.of(e.cond)
        t, before_t = self._apart(e.t)
        f, before_f = self._apart(e.f)
        if not before_t and not before_f:
            return f"({cond} ? {t} : {f})"
        name = self.code.name()
        self.code.add(f"{value_type(e.dtype)} {name};")
        self._either(cond, [*before_t, f"{name} = {t};"], [*before_f, f"{name} = {f};"])
        return name

    def _apart(self, e: Expr) -> tuple[str, list[str]]:
        """A scalar and the lines that it needs before it, which are not in the code yet."""
        first = len(self.code.lines)
        text = self.of(e)
        before = [line.text for line in self.code.lines[first:]]
        del self.code.lines[first:]
        return text, before

    def _either(self, cond: str, then: Sequence[str], orelse: Sequence[str]) -> None:
        with self.code.braces(f"if ({cond})", "} else {"):
            for line in then:
                self.code.add(line)
        self.code.depth += 1
        for line in orelse:
            self.code.add(line)
        self.code.depth -= 1
        self.code.add("}")

    # Vectors -------------------------------------------------------------------------------------

    def vector(self, e: Expr) -> Vector:  # noqa: PLR0911 - one case for each kind of expression
        """An expression of several lanes (or a scalar, as one lane)."""
        if e.dtype.lanes == 1:
            return of_lanes(e.dtype, [self.of(e)])
        base, count = e.dtype.base, e.dtype.lanes
        match e:
            case Var():
                return self.vectors[e.name]
            case Const():
                return of_lanes(base, [constant(e.value, base)] * count)
            case Elem():
                align = e.align or access_bytes(e.dtype)
                place = self.place(e.array.name)
                index = self.index(e.index)
                return self.memory.read_vector(place, index, count, align, dict(e.hints))
            case Pack():
                return self._pack(e, base, count)
            case Select():
                return self._select_vector(e)
            case Cast():
                return self._cast_vector(e, base)
            case Bitcast():
                return of_words(base, count, self.vector(e.a).words)
            case Binary():
                pairs = zip(self.vector(e.a).lanes, self.vector(e.b).lanes, strict=True)
                return of_lanes(base, [self.binary(e.op, a, b, e.a.dtype.base) for a, b in pairs])
            case Unary():
                lanes = self.vector(e.a).lanes
                return of_lanes(base, [self.unary(e.op, a, e.a.dtype.base) for a in lanes])
            case Call():
                columns = zip(*(self.vector(a).lanes for a in e.args), strict=True)
                return of_lanes(base, [self.call(e, args) for args in columns])
            case _:
                raise InternalError(f"no CUDA code for a vector by {type(e).__name__}")

    def _pack(self, e: Pack, base: DType, count: int) -> Vector:
        if len(e.lanes) == 1:
            return of_lanes(base, [self.of(e.lanes[0])] * count)
        casts = [x for x in e.lanes if isinstance(x, Cast) and x.a.dtype == F32 and _plain(x)]
        if len(casts) == count:
            return self._converted([self.of(x.a) for x in casts], F32, base)
        return of_lanes(base, [self.of(x) for x in e.lanes])

    def _cast_vector(self, e: Cast, base: DType) -> Vector:
        src = e.a.dtype.base
        lanes = self.vector(e.a).lanes
        if _plain(e):
            return self._converted(lanes, src, base)
        rbits = [""] * len(lanes) if e.rbits is None else self.vector(e.rbits).lanes
        cast = self.conversions.cast
        return of_lanes(
            base,
            [
                cast(x, src, base, e.rounding, saturate=e.saturate, rbits=r)
                for x, r in zip(lanes, rbits, strict=True)
            ],
        )

    def _converted(self, lanes: Sequence[str], src: DType, dst: DType) -> Vector:
        """Lanes converted with the type's own rounding, several at a time where one can."""
        cast, count = self.conversions, len(lanes)
        if src == F32 and count % 2 == 0 and cast.pair("", "", dst):
            pairs = zip(lanes[::2], lanes[1::2], strict=True)
            return of_words(dst, count, [cast.pair(x, y, dst) or "" for x, y in pairs])
        if src == F32 and count % 4 == 0 and cast.quad(["", "", "", ""], dst):
            quads = [lanes[k : k + 4] for k in range(0, count, 4)]
            return of_words(dst, count, [f"({cast.quad(q, dst)})" for q in quads])
        return of_lanes(dst, [cast.cast(x, src, dst) for x in lanes])

    def _select_vector(self, e: Select) -> Vector:
        if e.cond.dtype.lanes > 1:
            rows = (self.vector(x).lanes for x in (e.cond, e.t, e.f))
            return of_lanes(e.dtype, [f"({c} ? {t} : {f})" for c, t, f in zip(*rows, strict=True)])
        cond = self.of(e.cond)
        names: list[str] = []
        arms: list[list[str]] = []
        for arm in (e.t, e.f):
            first = len(self.code.lines)
            words = self.vector(arm).words
            lines = [line.text for line in self.code.lines[first:]]
            del self.code.lines[first:]
            names = names or [self.code.name() for _ in words]
            lines += [f"{n} = {w};" for n, w in zip(names, words, strict=True)]
            arms.append(lines)
        self.code.add(f"u32 {', '.join(names)};")
        self._either(cond, arms[0], arms[1])
        return of_words(e.dtype, e.dtype.lanes, names)

    def frozen(self, value: Vector) -> Vector:
        """The vector with each word or lane computed here, once."""
        texts = value.by_word if value.by_word is not None else value.lanes
        kind = "u32" if value.by_word is not None else value_type(value.dtype)
        names: list[str] = []
        for text in texts:
            name = self.code.name()
            self.code.add(f"const {kind} {name} = {text};")
            names.append(name)
        if value.by_word is not None:
            return of_words(value.dtype, value.count, names)
        return of_lanes(value.dtype, names)


_RESULT: dict[BinaryOp, Callable[[Any, Any], Any]] = {
    BinaryOp.ADD: lambda x, y: x + y,
    BinaryOp.SUB: lambda x, y: x - y,
    BinaryOp.MUL: lambda x, y: x * y,
}
_PTX_MODES = {"rn": "rn", "rz": "rz", "ru": "rp", "rd": "rm", "rp": "rp", "rm": "rm"}

_SCALARS: dict[type[Expr], Callable[[Expressions, Any], str]] = {
    Const: Expressions._const,  # pyright: ignore[reportPrivateUsage]
    Var: Expressions._var,  # pyright: ignore[reportPrivateUsage]
    Binary: Expressions._binary,  # pyright: ignore[reportPrivateUsage]
    Unary: Expressions._unary,  # pyright: ignore[reportPrivateUsage]
    Cast: Expressions._cast,  # pyright: ignore[reportPrivateUsage]
    Bitcast: Expressions._bitcast,  # pyright: ignore[reportPrivateUsage]
    Call: Expressions._call,  # pyright: ignore[reportPrivateUsage]
    Elem: Expressions._elem,  # pyright: ignore[reportPrivateUsage]
    Addr: Expressions._addr,  # pyright: ignore[reportPrivateUsage]
    Lane: Expressions._lane,  # pyright: ignore[reportPrivateUsage]
    Select: Expressions._select,  # pyright: ignore[reportPrivateUsage]
}


def _plain(e: Cast) -> bool:
    return e.saturate and e.rounding in ("", e.type.base.row.rounding)


def constant(value: float, dtype: DType) -> str:  # noqa: PLR0911 - one case for each kind
    """A literal of a scalar dtype."""
    if dtype.is_bool:
        return "true" if value else "false"
    if dtype.is_float:
        return _float_constant(float(value), dtype)
    number = int(value)
    if dtype.bits == 64:
        suffix = "ull" if dtype.is_uint or dtype.is_handle else "ll"
        if number == -(1 << 63):
            return "(-9223372036854775807ll - 1)"
        return f"{number}{suffix}" if number >= 0 else f"({number}{suffix})"
    if dtype.bits < 32:
        return f"{value_type(dtype)}({number})"
    if dtype.is_uint:
        return f"{number}u"
    if number == -(1 << 31):
        return "(-2147483647 - 1)"
    return str(number) if number >= 0 else f"({number})"


def _float_constant(value: float, dtype: DType) -> str:
    if value_type(dtype) == "double":
        if math.isfinite(value):
            return repr(value) if value >= 0 and not _negative_zero(value) else f"({value!r})"
        bits = int(np.float64(value).view(np.int64)) & ((1 << 64) - 1)
        return f"__longlong_as_double(i64(0x{bits:X}ull))"
    if value_type(dtype) == "float":
        if math.isfinite(value):
            return f"{value!r}f" if value >= 0 and not _negative_zero(value) else f"({value!r}f)"
        return f"__uint_as_float(0x{int(np.float32(value).view(np.uint32)):X}u)"
    array = np.asarray(value, np.float64).astype(dtype.numpy)
    word = int(to_bits(array.reshape(1), dtype)[0])
    return f"{value_type(dtype)}(0x{word:X})"


def _negative_zero(value: float) -> bool:
    return value == 0 and math.copysign(1, value) < 0
