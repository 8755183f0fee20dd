"""Scalar functions: arithmetic with stated rounding, comparison, bits, maths of a few arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilelang import dtypes
from tilelang.dtypes import DType
from tilelang.errors import TileValueError, TileZeroDivisionError, error
from tilelang.ir.expr import BinaryOp, Const, Load, Var
from tilelang.language.buffers import here, plain
from tilelang.language.values import (
    Value,
    as_expr,
    binary,
    call,
    cast,
    constant,
    element_type,
    reinterpret,
    select,
)

__all__ = [
    "Select",
    "abs",
    "acos",
    "acosh",
    "align_up",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "cast",
    "cdiv",
    "ceil",
    "ceildiv",
    "clamp",
    "clz",
    "copysign",
    "cos",
    "cosh",
    "dynamic",
    "erf",
    "exp",
    "exp2",
    "exp10",
    "fabs",
    "floor",
    "floordiv",
    "floormod",
    "fma",
    "fmod",
    "fmul",
    "hypot",
    "if_then_else",
    "infinity",
    "isfinite",
    "isinf",
    "isnan",
    "ldexp",
    "log",
    "log1p",
    "log2",
    "log10",
    "max",
    "max_value",
    "min",
    "min_value",
    "nearbyint",
    "nextafter",
    "popcount",
    "pow",
    "reinterpret",
    "round",
    "rsqrt",
    "shift_left",
    "shift_right",
    "sigmoid",
    "sin",
    "sinh",
    "sqrt",
    "symbolic",
    "tan",
    "tanh",
    "trunc",
    "truncdiv",
    "truncmod",
]


def _unary(name: str, doc: str) -> Any:
    def fn(x: Any) -> Value:
        return call(name, x)

    fn.__name__ = fn.__qualname__ = name
    how = "Computed in float32 (float64 for float64) and rounded once; integers count as float32."
    fn.__doc__ = f"{doc} {how}"
    return fn


exp = _unary("exp", "e to the x.")
exp2 = _unary("exp2", "2 to the x.")
exp10 = _unary("exp10", "10 to the x.")
log = _unary("log", "Natural logarithm.")
log2 = _unary("log2", "Logarithm to base 2.")
log10 = _unary("log10", "Logarithm to base 10.")
log1p = _unary("log1p", "Natural logarithm of 1 + x.")
sqrt = _unary("sqrt", "Square root.")
rsqrt = _unary("rsqrt", "1 over the square root.")
sigmoid = _unary("sigmoid", "1 / (1 + exp(-x)).")
tanh = _unary("tanh", "Hyperbolic tangent.")
sin = _unary("sin", "Sine.")
cos = _unary("cos", "Cosine.")
tan = _unary("tan", "Tangent.")
sinh = _unary("sinh", "Hyperbolic sine.")
cosh = _unary("cosh", "Hyperbolic cosine.")
asin = _unary("asin", "Arc sine.")
acos = _unary("acos", "Arc cosine.")
atan = _unary("atan", "Arc tangent.")
asinh = _unary("asinh", "Inverse hyperbolic sine.")
acosh = _unary("acosh", "Inverse hyperbolic cosine.")
atanh = _unary("atanh", "Inverse hyperbolic tangent.")
erf = _unary("erf", "Error function.")


def _integral(name: str, x: Any) -> Value:
    e = as_expr(x)
    return Value(e) if e.dtype.kind in ("int", "uint") else call(name, x)


def floor(x: Any, span: Any = None) -> Value:
    """The greatest integral value not above x; identity on integers."""
    return _integral("floor", x)


def ceil(x: Any, span: Any = None) -> Value:
    """The least integral value not below x; identity on integers."""
    return _integral("ceil", x)


def trunc(x: Any, span: Any = None) -> Value:
    """x without its fraction; identity on integers."""
    return _integral("trunc", x)


def nearbyint(x: Any, span: Any = None) -> Value:
    """The nearest integral value, ties to even; identity on integers."""
    return _integral("round", x)


def round(x: Any, rounding_mode: str = "ties-to-even", span: Any = None) -> Value:
    """The nearest integral value; ties go to even, or away from zero with 'ties-away-from-zero'."""
    names = {"ties-to-even": "round", "ties-away-from-zero": "round_away"}
    if rounding_mode not in names:
        raise error(
            "value",
            "rounding_mode of T.round",
            here(),
            expected=", ".join(names),
            got=repr(rounding_mode),
        )
    return _integral(names[rounding_mode], x)


def abs(x: Any, span: Any = None) -> Value:
    """Absolute value of an integer or float; identity on unsigned."""
    return call("abs", x)


fabs = abs


def isnan(x: Any, span: Any = None) -> Value:
    """Whether x is NaN."""
    return call("isnan", x)


def isinf(x: Any, span: Any = None) -> Value:
    """Whether x is an infinity."""
    return call("isinf", x)


def isfinite(x: Any, span: Any = None) -> Value:
    """Whether x is neither NaN nor an infinity."""
    return call("isfinite", x)


def fmod(x: Any, y: Any) -> Value:
    """The C remainder of x by y, with the sign of x."""
    return call("fmod", x, y)


def atan2(x1: Any, x2: Any) -> Value:
    """The angle of the point (x2, x1)."""
    return call("atan2", x1, x2)


def hypot(x1: Any, x2: Any) -> Value:
    """The length of (x1, x2)."""
    return call("hypot", x1, x2)


def copysign(x1: Any, x2: Any) -> Value:
    """The magnitude of x1 with the sign of x2."""
    return call("copysign", x1, x2)


def nextafter(x1: Any, x2: Any) -> Value:
    """The next value after x1 toward x2."""
    return call("nextafter", x1, x2)


def ldexp(x1: Any, x2: Any) -> Value:
    """x1 times 2 to the x2."""
    return call("ldexp", x1, x2)


def fma(x: Any, y: Any, z: Any) -> Value:
    """x * y + z, rounded once; the operands have one dtype."""
    kinds = {as_expr(v).dtype for v in (x, y, z)}
    if len(kinds) != 1:
        raise error(
            "dtype",
            "T.fma of different types",
            here(),
            expected="one dtype",
            got=", ".join(sorted(kinds)),
        )
    return call("fma", x, y, z)


def fmul(x: Any, y: Any) -> Value:
    """x * y, rounded once and never contracted with an addition."""
    return call("fmul", x, y)


def pow(x: Any, y: Any, span: Any = None) -> Value:
    """x to the y.

    A non-negative integer literal is a chain of multiplications, so it works on integers too.
    """
    exponent = as_expr(y)
    if isinstance(exponent, Const) and exponent.dtype.kind == "int" and 0 <= exponent.value <= 64:
        base = Value(as_expr(x))
        out = Value(constant(1, base.expr.dtype))
        for n in range(int(exponent.value)):
            out = base if n == 0 else out * base
        return out
    return call("pow", x, y)


def max(a: Any, b: Any) -> Any:
    """The greater of two values, in their common dtype; a NaN operand is dropped.

    Two Python ints give an int.
    """
    return _both(BinaryOp.MAX, a, b)


def min(a: Any, b: Any) -> Any:
    """The lesser of two values, in their common dtype; a NaN operand is dropped.

    Two Python ints give an int.
    """
    return _both(BinaryOp.MIN, a, b)


class Known(int):
    """A Python int that answers as a constant of upstream's IR does."""

    @property
    def value(self) -> int:
        """The number."""
        return int(self)


def _both(op: BinaryOp, a: Any, b: Any) -> Any:
    value = binary(op, a, b)
    return Known(plain(value.expr)) if isinstance(a, int) and isinstance(b, int) else value


def clamp(dst: Any, min_val: Any, max_val: Any) -> Value:
    """min(max(x, lo), hi); a NaN in any operand gives NaN, lo > hi gives hi."""
    kinds = [as_expr(v).dtype.kind for v in (dst, min_val, max_val)]
    return call("clamp" if "float" in kinds else "iclamp", dst, min_val, max_val)


def if_then_else(cond: Any, t: Any, f: Any, span: Any = None) -> Value:
    """`t` where `cond` holds, else `f`; loads of the arm not taken do not happen."""
    return select(cond, t, f, lazy=True)


def Select(condition: Any, true_value: Any, false_value: Any, span: Any = None) -> Value:
    """`true_value` where `condition` holds, else `false_value`; both are evaluated."""
    return select(condition, true_value, false_value, lazy=False)


def max_value(dtype: Any, span: Any = None) -> Value:
    """The greatest finite value of a type."""
    d = element_type(dtype)
    return Value(constant(_limit("greatest value", dtypes.max_value, d), d))


def min_value(dtype: Any, span: Any = None) -> Value:
    """The least finite value of a type."""
    d = element_type(dtype)
    return Value(constant(_limit("least value", dtypes.min_value, d), d))


def infinity(dtype: Any, span: Any = None) -> Value:
    """Positive infinity of a float type; ValueError for a type without one."""
    d = element_type(dtype)
    return Value(Const(_limit("infinity", dtypes.infinity, d), d))  # a cast of one may saturate


def _limit(what: str, find: Callable[[DType], bool | int | float], d: DType) -> bool | int | float:
    try:
        return find(d)
    except (TypeError, ValueError) as exc:
        cls = TileValueError if isinstance(exc, ValueError) else None
        raise error("dtype", f"the {what} of {d}: {exc}", here(), cls=cls, got=str(d)) from None


def ceildiv(lhs: Any, rhs: Any, span: Any = None) -> Any:
    """lhs / rhs rounded up, for any signs; an int where both are ints.

    ZeroDivisionError for ints divided by 0.
    """
    if isinstance(lhs, int) and isinstance(rhs, int):
        if rhs == 0:
            raise error(
                "value",
                "T.ceildiv divides by zero",
                here(),
                cls=TileZeroDivisionError,
                expected="a divisor other than 0",
                got=f"T.ceildiv({lhs}, 0)",
            )
        return -(-lhs // rhs)
    a, b = Value(as_expr(lhs)), Value(as_expr(rhs))
    if a.expr.dtype.kind == "uint" or b.expr.dtype.kind == "uint":
        rest = binary(BinaryOp.FLOORMOD, a, b) != 0
        return a // b + rest.astype("uint8")
    # floor(a / b) + (a % b != 0) never overflows, unlike (a + b - 1) // b, and is right for a
    # negative divisor.
    if (
        isinstance(b.expr, Const)
        and isinstance(b.expr.value, int)
        and b.expr.value > 0
        and _is_size(a)
    ):
        return (a + (b.expr.value - 1)) // b
    return a // b + ((a % b) != 0).astype("int32")


def _is_size(a: Value) -> bool:
    """Whether a value is made of symbolic sizes alone, which are far from overflow."""
    nodes = list(a.expr.walk())
    return any(isinstance(n, Var) for n in nodes) and not any(isinstance(n, Load) for n in nodes)


cdiv = ceildiv


def align_up(x: Any, y: Any) -> Any:
    """The least multiple of y not below x."""
    return ceildiv(x, y) * y


def floordiv(a: Any, b: Any, span: Any = None) -> Value:
    """a / b rounded down."""
    return binary(BinaryOp.FLOORDIV, a, b)


def floormod(a: Any, b: Any, span: Any = None) -> Value:
    """a - floordiv(a, b) * b: the remainder with the sign of b."""
    return binary(BinaryOp.FLOORMOD, a, b)


def truncdiv(a: Any, b: Any, span: Any = None) -> Value:
    """a / b rounded toward zero, on integers."""
    return binary(BinaryOp.TRUNCDIV, a, b)


def truncmod(a: Any, b: Any, span: Any = None) -> Value:
    """a - truncdiv(a, b) * b: the remainder with the sign of a."""
    return binary(BinaryOp.TRUNCMOD, a, b)


def shift_left(x: Any, y: Any, span: Any = None) -> Value:
    """x << y; a count of the width or more gives 0."""
    return binary(BinaryOp.SHL, x, y)


def shift_right(x: Any, y: Any, span: Any = None) -> Value:
    """x >> y, arithmetic for signed and logical for unsigned types."""
    return binary(BinaryOp.SHR, x, y)


def bitwise_and(x: Any, y: Any, span: Any = None) -> Value:
    """x & y."""
    return binary(BinaryOp.BITAND, x, y)


def bitwise_or(x: Any, y: Any, span: Any = None) -> Value:
    """x | y."""
    return binary(BinaryOp.BITOR, x, y)


def bitwise_xor(x: Any, y: Any, span: Any = None) -> Value:
    """x ^ y."""
    return binary(BinaryOp.BITXOR, x, y)


def bitwise_not(x: Any, span: Any = None) -> Value:
    """~x."""
    return ~Value(as_expr(x))


def popcount(x: Any) -> Value:
    """The number of one bits of an integer."""
    return call("popcount", x)


def clz(x: Any) -> Value:
    """The number of leading zero bits of an integer; its width for 0."""
    return call("clz", x)


def dynamic(name: Any, dtype: Any = "int32") -> Any:
    """Symbolic sizes: `T.dynamic("m")`, or several with "m, n" or "m n".

    Launch binds them from the shapes of the arguments.
    """
    names = name.replace(",", " ").split() if isinstance(name, str) else []
    kind = element_type(dtype)
    wrong = [n for n in names if not n.isidentifier()]
    if wrong or not names or kind.kind not in ("int", "uint"):
        raise error(
            "value",
            "T.dynamic makes symbolic sizes",
            here(),
            expected="names such as 'm' or 'm, n', of an integer type",
            got=f"{name!r}, {kind}",
        )
    values = [Value(Var(n, kind)) for n in names]
    return values[0] if len(values) == 1 else tuple(values)


symbolic = dynamic
