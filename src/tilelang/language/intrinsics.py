"""Scalar functions by their device names: stated rounding, fast forms, bit search; and tests of
whole buffers.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from tilelang.dtypes import DType
from tilelang.errors import TileTypeError
from tilelang.ir.expr import BOOL, Expr
from tilelang.ir.special import Quantifier, TestElements
from tilelang.language.arguments import choice, integer, launched, number, refuse
from tilelang.language.buffers import here
from tilelang.language.tileops import region_of
from tilelang.language.values import Value, as_expr, call, condition

ROUNDINGS = ("rn", "rz", "ru", "rd")
_UINT32 = DType("uint32")


def _floats(name: str, operands: Sequence[Any], widths: Sequence[int]) -> list[Expr]:
    exprs = [number(x, f"an operand of {name}") for x in operands]
    for e in exprs:
        if e.dtype.kind != "float" or e.dtype.bits not in widths:
            raise refuse(
                "dtype",
                f"{name} of a value of type {e.dtype}",
                cls=TileTypeError,
                expected=" or ".join(f"float{w}" for w in widths),
                got=str(e.dtype),
                help="`T.cast(x, 'float32')`",
            )
    return exprs


def _ieee(name: str, fn: str, rounding_mode: Any, *operands: Any) -> Value:
    mode = choice(rounding_mode, f"the rounding_mode of T.{name}", ROUNDINGS)
    exprs = _floats(f"T.{name}", operands, (16, 32, 64))
    half = max(e.dtype.bits for e in exprs) == 16
    if half and mode != "rn":
        raise refuse(
            "value",
            f"T.{name} of a value of type {exprs[0].dtype} with rounding {mode}",
            expected="Only rounding mode 'rn' is available for half precision",
            got=repr(mode),
            help="`T.cast(x, 'float32')`",
        )
    return call(f"ieee_{fn}", *(Value(e) for e in exprs), params=(mode,))


def ieee_add(x: Any, y: Any, rounding_mode: str = "rn") -> Value:
    """x + y in float16, bfloat16, float32 or float64, rounded once: rn (even), rz (to zero), ru
    (up), rd (down); types of 16 bits have rn alone.
    """
    return _ieee("ieee_add", "add", rounding_mode, x, y)


def ieee_sub(x: Any, y: Any, rounding_mode: str = "rn") -> Value:
    """x - y; see `ieee_add`."""
    return _ieee("ieee_sub", "sub", rounding_mode, x, y)


def ieee_mul(x: Any, y: Any, rounding_mode: str = "rn") -> Value:
    """x * y; see `ieee_add`."""
    return _ieee("ieee_mul", "mul", rounding_mode, x, y)


def ieee_fmaf(x: Any, y: Any, z: Any, rounding_mode: str = "rn") -> Value:
    """x * y + z, rounded once; see `ieee_add`."""
    return _ieee("ieee_fmaf", "fma", rounding_mode, x, y, z)


def ieee_frcp(x: Any, rounding_mode: str = "rn") -> Value:
    """1 / x; see `ieee_add`."""
    return _ieee("ieee_frcp", "rcp", rounding_mode, x)


def ieee_fsqrt(x: Any, rounding_mode: str = "rn") -> Value:
    """The square root of x; see `ieee_add`."""
    return _ieee("ieee_fsqrt", "sqrt", rounding_mode, x)


def ieee_frsqrt(x: Any) -> Value:
    """1 over the square root of x, rounded to nearest even; see `ieee_add`."""
    return _ieee("ieee_frsqrt", "rsqrt", "rn", x)


def ieee_fdiv(x: Any, y: Any, rounding_mode: str = "rn") -> Value:
    """x / y; see `ieee_add`."""
    return _ieee("ieee_fdiv", "div", rounding_mode, x, y)


def _fast(fn: str) -> Any:
    def apply(x: Any) -> Value:
        e = number(x, f"the operand of T.__{fn}")
        if e.dtype.kind != "float":
            raise refuse(
                "dtype",
                f"T.__{fn} of a value of type {e.dtype}",
                cls=TileTypeError,
                expected="a float",
                got=str(e.dtype),
            )
        return call(fn, Value(e))

    apply.__name__ = apply.__qualname__ = f"__{fn}"
    apply.__doc__ = f"{fn}(x) of a float, within the error of the device's fast form."
    return apply


fast_exp = _fast("exp")
fast_exp10 = _fast("exp10")
fast_log = _fast("log")
fast_log2 = _fast("log2")
fast_log10 = _fast("log10")
fast_sin = _fast("sin")
fast_cos = _fast("cos")
fast_tan = _fast("tan")


def fast_rcp(x: Any) -> Value:
    """1 / x of a float32, within the error of the device's approximate reciprocal."""
    return call("fast_rcp", *(Value(e) for e in _floats("T.fast_rcp", (x,), (32,))))


def find_first_set(value: Any) -> Value:
    """The 1-based position of the lowest one bit of an integer (int32); 0 for 0."""
    return call("ffs", value)


def find_nth_set(mask: Any, base: Any, offset: Any) -> Value:
    """The position (uint32) of the `offset`-th one bit of a 32-bit mask, counted from bit `base`.

    Upward for a positive offset, downward for a negative one, `base` itself for 0; 0xFFFFFFFF where
    there is none (CUDA `__fns`).
    """
    words = ("mask", "base", "offset")
    parts = [
        integer(x, f"the {word} of T.__fns", _UINT32)
        for x, word in zip((mask, base, offset), words, strict=True)
    ]
    return call("fns", *(Value(p) for p in parts))


def likely(cond: Any, span: Any = None) -> Value:
    """The condition itself; a hint that it usually holds."""
    return Value(condition(cond))


def index_to_coordinates(index: Any, shape: Any) -> list[Any]:
    """The coordinates of element `index` of an array of `shape`, in row-major order."""
    rest = index if isinstance(index, int) else Value(as_expr(index))
    coordinates: list[Any] = []
    for size in reversed(list(shape)):
        coordinates.insert(0, rest % size)
        rest = rest // size
    return coordinates


def _test(name: str, quantifier: Quantifier, buffer: Any) -> Value:
    builder = launched(name)
    region = region_of(buffer, f"the operand of {name}")
    result = builder.fresh_var(builder.name_hint(quantifier.value), BOOL)
    builder.emit(TestElements(quantifier, region, result, loc=here()))
    builder.define(result)
    return Value(result)


def any_of(buffer: Any) -> Value:
    """Whether some element of a buffer or slice is not zero."""
    return _test("T.any_of", Quantifier.ANY, buffer)


def all_of(buffer: Any) -> Value:
    """Whether no element of a buffer or slice is zero."""
    return _test("T.all_of", Quantifier.ALL, buffer)


def __getattr__(name: str) -> Any:
    """Upstream's module of this name has all that is CUDA's own, which are names of `T` here."""
    if name.startswith("_"):
        raise AttributeError(name)
    return getattr(sys.modules["tilelang.language"], name)
