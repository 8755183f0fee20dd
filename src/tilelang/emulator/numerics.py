"""The meaning of operators and pure functions on values: the function table, and what the generated
text calls.

What enters: NumPy values of one element type. What leaves: results of the same type, rounded once.
Functions compute in float32, in float64 for float64 operands; those that NumPy has no float32 form
of, and those whose exact result is asked for, compute wider. No operation traps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilelang.dtypes import DType
from tilelang.dtypes.convert import converter
from tilelang.emulator import ieee
from tilelang.emulator.storage import Array
from tilelang.ir.functions import FUNCTIONS, Accepts, Gives

Function = Callable[..., Any]
Unary = Callable[[Any], Any]

F32, F64 = DType("float32"), DType("float64")

# Python ints of the block -------------------------------------------------------------------------


def int_floordiv(a: int, b: int) -> int:
    """Floor quotient; 0 for a zero divisor."""
    return a // b if b else 0


def int_floormod(a: int, b: int) -> int:
    """Remainder with the sign of the divisor; 0 for a zero divisor."""
    return a % b if b else 0


def int_truncdiv(a: int, b: int) -> int:
    """Quotient towards zero; 0 for a zero divisor."""
    if b == 0:
        return 0
    return a // b if (a < 0) == (b < 0) else -(-a // b)


def int_truncmod(a: int, b: int) -> int:
    """Remainder with the sign of the dividend; 0 for a zero divisor."""
    return a - b * int_truncdiv(a, b)


def int_shl(a: int, b: int, bits: int) -> int:
    """Left shift; 0 for a count that is not in [0, bits)."""
    return a << b if 0 <= b < bits else 0


def int_shr(a: int, b: int, bits: int) -> int:
    """Right shift; the sign alone for a count that is not in [0, bits)."""
    return a >> b if 0 <= b < bits else -(a < 0)


# Arrays -------------------------------------------------------------------------------------------


def truncdiv(a: Any, b: Any) -> Array:
    """Integer quotient towards zero; 0 for a zero divisor."""
    quotient = np.floor_divide(a, b)
    inexact = (quotient * b != a) & ((np.less(a, 0)) != (np.less(b, 0))) & np.not_equal(b, 0)
    return quotient + inexact.astype(quotient.dtype)


def truncmod(a: Any, b: Any) -> Array:
    """Integer remainder with the sign of the dividend; 0 for a zero divisor."""
    rest = a - truncdiv(a, b) * b
    return rest * np.not_equal(b, 0)


def float_truncdiv(a: Any, b: Any) -> Any:
    """Quotient towards zero, as a float."""
    return np.trunc(a / b)


TEXT_NAMES: dict[str, Any] = {
    "int_floordiv": int_floordiv,
    "int_floormod": int_floormod,
    "int_truncdiv": int_truncdiv,
    "int_truncmod": int_truncmod,
    "int_shl": int_shl,
    "int_shr": int_shr,
    "truncdiv": truncdiv,
    "truncmod": truncmod,
    "float_truncdiv": float_truncdiv,
    "floor_divide": np.floor_divide,
    "remainder": np.remainder,
    "fmod": np.fmod,
    "fmin": np.fmin,
    "fmax": np.fmax,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "where": np.where,
    "copyto": np.copyto,
    "broadcast_to": np.broadcast_to,
}
"""What the generated text may call by name, beside memory and tile operations."""


# The function table -------------------------------------------------------------------------------


def function(name: str, dtype: DType, params: tuple[Any, ...] = ()) -> Function:
    """The implementation of `Call(name)` on operands of `dtype`: arrays or NumPy scalars in, the
    same out.
    """
    row = FUNCTIONS[name]
    if name.startswith("ieee_"):
        mode = str(params[0]) if params else "rn"
        return ieee.operation(name.removeprefix("ieee_"), dtype, mode)
    if name in _INT and not (row.accepts is Accepts.NUMBER and dtype.is_float):
        return _integers(_INT[name], dtype, row.gives)
    if name in _EXACT:
        return _exact(_EXACT[name], dtype, row.gives is Gives.BOOL)
    if name == "fma":
        return ieee.operation("fma", dtype)
    return _rounded(_FLOAT[name], dtype)


def _in(dtype: DType, wide: DType) -> Function:
    """The operand in the type that is computed in."""
    return _same if dtype.numpy == wide.numpy else converter(dtype, wide)


def _same(x: Any) -> Any:
    return x


def _rounded(fn: Function, dtype: DType, inner: DType | None = None) -> Function:
    """`fn` in `inner` (float32, or float64 for float64 operands), rounded once to `dtype`."""
    wide = inner or (F64 if dtype.name == "float64" else F32)
    enter = _in(dtype, wide)
    leave = converter(wide, dtype)
    if dtype == wide:
        return fn
    return lambda *xs: leave(np.asarray(fn(*(enter(x) for x in xs)), wide.numpy))


def _exact(fn: Function, dtype: DType, gives_bool: bool) -> Function:
    """A function whose result is a value of the operand's type, or a bool; nothing is rounded."""
    if dtype.name in ("float16", "float32", "float64"):
        return fn
    enter = _in(dtype, F32)
    leave = converter(F32, dtype, "", saturate=False)

    def apply(x: Any) -> Any:
        result = fn(enter(x))
        return result if gives_bool else leave(np.asarray(result, np.float32))

    return apply


def _integers(fn: Function, dtype: DType, gives: Gives) -> Function:
    """A function of integers; `fn` gets int64 or uint64 values and the number of bits."""
    wide = np.uint64 if dtype.is_uint or dtype.is_bool else np.int64
    target = np.int32 if gives is Gives.INT32 else dtype.numpy
    return lambda *xs: np.asarray(
        fn(*(np.asarray(x).astype(wide) for x in xs), bits=dtype.bits)
    ).astype(target)


# Floats


def _via64(fn: Function) -> Function:
    """Compute in float64: NumPy's float32 form is missing or loose."""
    return lambda *xs: np.asarray(fn(*(np.asarray(x).astype(np.float64) for x in xs))).astype(
        np.asarray(xs[0]).dtype
    )


_erf64 = np.frompyfunc(math.erf, 1, 1)


def _erf(x: Any) -> Any:
    return np.asarray(_erf64(x), np.float64)


def _exp10(x: Any) -> Any:
    return np.power(10.0, x)


def _rsqrt(x: Any) -> Any:
    return 1.0 / np.sqrt(x)


def _sigmoid(x: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-x))


def _round_away(x: Any) -> Any:
    whole: Any = np.trunc(x)
    away = np.abs(whole) + (np.abs(x - whole) >= 0.5)
    return np.copysign(away, x)


def _clamp(x: Any, low: Any, high: Any) -> Any:
    return np.minimum(np.maximum(x, low), high)


def _ldexp(x: Any, y: Any) -> Any:
    return np.ldexp(
        x, np.clip(np.nan_to_num(np.asarray(y, np.float64)), -5000, 5000).astype(np.int32)
    )


_FLOAT: dict[str, Function] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "exp10": _via64(_exp10),
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": _via64(_erf),
    "rsqrt": _via64(_rsqrt),
    "sigmoid": _via64(_sigmoid),
    "fast_rcp": np.reciprocal,
    "fmod": np.fmod,
    "pow": np.power,
    "atan2": np.arctan2,
    "hypot": np.hypot,
    "nextafter": np.nextafter,
    "ldexp": _ldexp,
    "fmul": np.multiply,
    "clamp": _clamp,
    "copysign": np.copysign,
}

_EXACT: dict[str, Function] = {
    "abs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.rint,
    "round_away": _round_away,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
}


# Integers


def _popcount(x: Array, bits: int) -> Array:
    return np.bitwise_count(x.astype(np.uint64) & _word(bits))


def _word(bits: int) -> np.uint64:
    return np.uint64((1 << bits) - 1)


def _clz(x: Array, bits: int) -> Array:
    word = x.astype(np.uint64) & _word(bits)
    for shift in (1, 2, 4, 8, 16, 32):
        word = word | (word >> np.uint64(shift))
    return bits - np.bitwise_count(word).astype(np.int64)


def _ffs(x: Array, bits: int) -> Array:
    word = x.astype(np.uint64) & _word(bits)
    below = (word & (np.uint64(0) - word)) - np.uint64(1)
    return np.where(word == 0, 0, np.bitwise_count(below & _word(bits)).astype(np.int64) + 1)


def _fns(x: Array, base: Array, offset: Array, bits: int) -> Array:
    """The position of the set bit that is `offset`-th from `base`, upwards or downwards; -1 if
    there is none.
    """

    def one(word: int, start: int, nth: int) -> int:
        word &= (1 << bits) - 1
        step = -1 if nth < 0 else 1
        left = abs(nth)
        if nth == 0:
            return start if 0 <= start < bits and word >> start & 1 else (1 << bits) - 1
        position = start
        while 0 <= position < bits:
            left -= word >> position & 1
            if left == 0:
                return position
            position += step
        return (1 << bits) - 1

    signed = np.asarray(offset).astype(np.uint32).view(np.int32)
    shape = np.broadcast_shapes(x.shape, base.shape, signed.shape)
    found = [
        one(int(a), int(b), int(c))
        for a, b, c in zip(
            *(np.broadcast_to(v, shape).ravel() for v in (x, base, signed)), strict=True
        )
    ]
    return np.array(found, np.uint64).reshape(shape)


def _iabs(x: Array, bits: int) -> Array:
    return np.abs(x)


def _iclamp(x: Array, low: Array, high: Array, bits: int) -> Array:
    return np.minimum(np.maximum(x, low), high)


_INT: dict[str, Function] = {
    "popcount": _popcount,
    "clz": _clz,
    "ffs": _ffs,
    "fns": _fns,
    "abs": _iabs,
    "iclamp": _iclamp,
}
