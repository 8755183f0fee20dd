"""Values: what a kernel author holds while a kernel is traced, and the operators on them.

A `Value` wraps a scalar expression and overloads Python's operators; the expression itself does
not. Operands are promoted to one dtype by `dtypes.promote`, conversions become `Cast` nodes, and
integer literals fold.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any
from typing import cast as cast_type

import numpy as np

from tilelang import dtypes
from tilelang.dtypes import DType
from tilelang.errors import (
    TileError,
    TileRuntimeError,
    TileTypeError,
    TileValueError,
    error,
    warning,
)
from tilelang.ir import build
from tilelang.ir.evaluate import evaluate
from tilelang.ir.expr import (
    BOOL,
    INT32,
    Binary,
    BinaryOp,
    Bitcast,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Pack,
    Select,
    Unary,
    UnaryOp,
    Var,
)
from tilelang.ir.functions import FUNCTIONS, Accepts, result_dtype

FLOAT32 = DType("float32")


class Value:
    """A scalar of one dtype, known or to be computed by the kernel."""

    __slots__ = ("_expr",)

    __array_ufunc__ = None  # a NumPy scalar on the left leaves the operation to this class

    def __init__(self, expr: Expr) -> None:
        self._expr = expr

    @property
    def expr(self) -> Expr:
        """The expression to compute."""
        return self._expr

    @property
    def dtype(self) -> DataType:
        """The element type."""
        return DataType(self.expr.dtype)

    @property
    def is_known(self) -> bool:
        """Whether the value is a number that is known while the kernel is traced."""
        return isinstance(self.expr, Const)

    def __add__(self, other: Any) -> Value:
        return binary(BinaryOp.ADD, self, other)

    def __radd__(self, other: Any) -> Value:
        return binary(BinaryOp.ADD, other, self)

    def __sub__(self, other: Any) -> Value:
        return binary(BinaryOp.SUB, self, other)

    def __rsub__(self, other: Any) -> Value:
        return binary(BinaryOp.SUB, other, self)

    def __mul__(self, other: Any) -> Value:
        return binary(BinaryOp.MUL, self, other)

    def __rmul__(self, other: Any) -> Value:
        return binary(BinaryOp.MUL, other, self)

    def __truediv__(self, other: Any) -> Value:
        return divide(self, other)

    def __rtruediv__(self, other: Any) -> Value:
        return divide(other, self)

    def __floordiv__(self, other: Any) -> Value:
        return binary(BinaryOp.FLOORDIV, self, other)

    def __rfloordiv__(self, other: Any) -> Value:
        return binary(BinaryOp.FLOORDIV, other, self)

    def __mod__(self, other: Any) -> Value:
        return binary(BinaryOp.FLOORMOD, self, other)

    def __rmod__(self, other: Any) -> Value:
        return binary(BinaryOp.FLOORMOD, other, self)

    def __and__(self, other: Any) -> Value:
        return binary(BinaryOp.BITAND, self, other)

    def __rand__(self, other: Any) -> Value:
        return binary(BinaryOp.BITAND, other, self)

    def __or__(self, other: Any) -> Value:
        return binary(BinaryOp.BITOR, self, other)

    def __ror__(self, other: Any) -> Value:
        return binary(BinaryOp.BITOR, other, self)

    def __xor__(self, other: Any) -> Value:
        return binary(BinaryOp.BITXOR, self, other)

    def __rxor__(self, other: Any) -> Value:
        return binary(BinaryOp.BITXOR, other, self)

    def __lshift__(self, other: Any) -> Value:
        return binary(BinaryOp.SHL, self, other)

    def __rlshift__(self, other: Any) -> Value:
        return binary(BinaryOp.SHL, other, self)

    def __rshift__(self, other: Any) -> Value:
        return binary(BinaryOp.SHR, self, other)

    def __rrshift__(self, other: Any) -> Value:
        return binary(BinaryOp.SHR, other, self)

    def __pow__(self, other: Any) -> Value:
        raise _refuse("dtype", "`**` is not an operator of the language", help="use `T.pow(x, y)`")

    __rpow__ = __pow__

    def __matmul__(self, other: Any) -> Value:
        raise _refuse("dtype", "`@` of single elements", help="use `T.gemm` on tiles")

    __rmatmul__ = __matmul__

    def __neg__(self) -> Value:
        e = self.expr
        if e.dtype.kind in ("uint", "bool"):
            raise _refuse(
                "dtype",
                f"`-` on a value of type {e.dtype}",
                expected="a signed integer or a float",
                got=str(e.dtype),
                help="cast it to a signed type first: `T.cast(x, 'int32')`",
            )
        return Value(fold(Unary(UnaryOp.NEG, e)))

    def __pos__(self) -> Value:
        return self

    def __invert__(self) -> Value:
        e = self.expr
        if e.dtype.kind == "bool":
            return Value(fold(Unary(UnaryOp.NOT, e)))
        _need_integers(BinaryOp.BITXOR, "~", e.dtype)
        return Value(fold(Unary(UnaryOp.BITNOT, e)))

    def __abs__(self) -> Value:
        return call("abs", self)

    def __lt__(self, other: Any) -> Value:
        return binary(BinaryOp.LT, self, other)

    def __le__(self, other: Any) -> Value:
        return binary(BinaryOp.LE, self, other)

    def __gt__(self, other: Any) -> Value:
        return binary(BinaryOp.GT, self, other)

    def __ge__(self, other: Any) -> Value:
        return binary(BinaryOp.GE, self, other)

    def __eq__(self, other: object) -> Any:
        return binary(BinaryOp.EQ, self, other) if is_scalar(other) else NotImplemented

    def __ne__(self, other: object) -> Any:
        return binary(BinaryOp.NE, self, other) if is_scalar(other) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.expr)

    def equal(self, other: Any) -> Value:
        """`self == other` as a value of the kernel, as upstream spells it."""
        return binary(BinaryOp.EQ, self, other)

    def astype(self, dtype: Any) -> Value:
        """This value converted to `dtype`."""
        return Value(convert(self.expr, element_type(dtype)))

    def __bool__(self) -> bool:
        e = self.expr
        if isinstance(e, Const):
            return bool(e.value)
        if isinstance(e, Binary) and e.op in (BinaryOp.EQ, BinaryOp.NE):
            # Python compares by itself in look-ups and between shapes: whether both are one value.
            same = e.a == e.b
            if same or _of_sizes(e):
                return same is (e.op is BinaryOp.EQ)
        raise _refuse(
            "syntax",
            "a value of the kernel has no truth value while the kernel is traced",
            cls=TileTypeError,
            help="use `if`, `and`, `or`, `not` and `==` directly in the kernel or a macro, where "
            "they become code of the kernel",
        )

    def __int__(self) -> int:
        return int(self._known("int"))

    def __index__(self) -> int:
        known = self._known("an index")
        if isinstance(known, float):
            raise _refuse(
                "dtype", "a float is not an index", got=str(self.dtype), expected="an integer"
            )
        return int(known)

    def __float__(self) -> float:
        return float(self._known("float"))

    def __iter__(self) -> Iterator[Value]:
        raise _refuse("syntax", "a scalar value cannot be iterated over", cls=TileTypeError)

    def _known(self, what: str) -> int | float | bool:
        if isinstance(self.expr, Const):
            return self.expr.value
        raise _refuse(
            "syntax",
            f"a value that the kernel computes is used as {what} while the kernel is traced",
            cls=TileTypeError,
            expected="a number that is known when the kernel is traced",
            help="pass the number as a Python value, or let only the kernel need it",
        )

    def __repr__(self) -> str:
        from tilelang.ir.text import print_expr  # only for debugging output

        return print_expr(self.expr)


def _of_sizes(e: Expr) -> bool:
    """Whether `e` is made of symbolic sizes of parameters and of numbers alone."""
    builder = build.current_or_none()
    for node in e.walk():
        if isinstance(node, Load):
            return False
        if isinstance(node, Var) and builder and builder.dynamic.get(node.name) != node:
            return False
    return True


class DataType(DType):
    """An element type as authors use it: a string, and callable to make a value of it."""

    def __call__(self, value: Any = None, *lanes: Any) -> Value:
        """`T.float16(x)`: `x` as this type.

        A number gives a constant, a value a cast, nothing a fresh variable. A vector type takes a
        value for each lane, or one for all of them.
        """
        if value is None:
            builder = build.current_or_none()
            return Value(builder.fresh_var("v", self) if builder else Var("v", self))
        if lanes or self.lanes > 1:
            return Value(packed((value, *lanes), self))
        if isinstance(value, Value):
            return Value(convert(value.expr, self))
        return Value(constant(value, self))


def element_type(x: Any) -> DType:
    """The element type that an author's value names; a located error for anything else."""
    try:
        return DType(dtypes.dtype(x))
    except ValueError as exc:
        raise _refuse("dtype", str(exc), cls=TileValueError) from None
    except TypeError as exc:
        raise _refuse("dtype", str(exc)) from None


def _refuse(
    kind: str, message: str, *, cls: type[TileError] | None = None, **facts: Any
) -> TileError:
    builder = build.current_or_none()
    return error(kind, message, builder.loc if builder else None, cls=cls, **facts)


def fold(e: Expr) -> Expr:
    """`e`, or its value where all operands are literals."""
    if all(isinstance(child, Const) for child in e.children()):
        value = evaluate(e)
        if value is not None:
            return Const(value, DType(e.dtype))
    return e


def is_scalar(x: object) -> bool:
    """Whether `x` can stand as a scalar: a number, a bool or a `Value`."""
    return isinstance(x, (int, float, bool, Value, np.generic, Expr))


def constant(value: Any, dtype: DType) -> Const:
    """A literal of a given dtype: rounded, wrapped or saturated by the rules of a cast."""
    if isinstance(value, np.generic):
        value = cast_type("Any", value.item())
    if isinstance(value, str) and dtype.kind == "float" and value in ("inf", "-inf", "nan"):
        value = float(value)
    if not isinstance(value, (int, float)):
        raise _refuse(
            "dtype",
            f"cannot make a {dtype} of {type(value).__name__}",
            expected="a number or a value of the kernel",
            got=repr(value)[:60],
        )
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64 and dtype.kind != "float":
        raise _refuse(
            "dtype",
            f"the integer {str(value)[:40]} fits no type",
            expected="-2**63 to 2**64 - 1",
            got=str(value)[:40],
        )
    return Const(dtypes.const_value(value, dtype), DType(dtype))


def packed(values: tuple[Any, ...], dtype: DType) -> Expr:
    """A vector of these lanes, each converted to the scalar type; one scalar fills all lanes."""
    if len(values) == 1 and as_expr(values[0]).dtype.lanes > 1:
        return convert(as_expr(values[0]), dtype)
    if len(values) not in (1, dtype.lanes):
        raise _refuse(
            "dtype",
            f"{dtype} of {len(values)} values",
            expected=f"{dtype.lanes} values, or one for all lanes" if dtype.lanes > 1 else "one",
            got=str(len(values)),
        )
    return Pack(tuple(as_expr(v, DType(dtype.base)) for v in values), DType(dtype))


def as_expr(x: Any, dtype: DType | None = None) -> Expr:
    """`x` as an expression, of type `dtype` where given.

    A Python number is int32, float32 or bool; an int that int32 does not hold is int64 or uint64.
    """
    if isinstance(x, Value):
        e = x.expr
    elif isinstance(x, Expr):
        e = x
    elif isinstance(x, (bool, int, float, np.generic)):
        if dtype is None:
            return constant(x, _literal_dtype(cast_type("Any", x)))
        if dtype.lanes > 1:
            return packed((cast_type("Any", x),), dtype)
        made = constant(x, dtype)
        _note_misfit(cast_type("Any", x), made)
        return made
    else:
        raise _not_scalar(x)
    return e if dtype is None else convert(e, dtype)


_ROUNDING = 0.06  # of the largest number of a type: what beyond it still rounds to it


def _note_misfit(given: Any, made: Const) -> None:
    """Warn where a number becomes another one because its type is too small for it."""
    dtype = made.dtype
    x: float = cast_type("Any", given).item() if isinstance(given, np.generic) else given
    if dtype.is_bool or not (dtype.is_integer or math.isfinite(x)):
        return
    low, high = dtype.min, dtype.max
    if dtype.is_integer:
        ones = (1 << dtype.bits) - 1  # all bits set, however the type reads them
        fits = math.isfinite(x) and (low <= int(x) <= high or x in (-1, ones))
    else:
        near = abs(x - float(made.value)) <= _ROUNDING * float(high)
        fits = abs(x) <= high or near
    if not fits:
        _warn(
            f"{x} does not fit {dtype}",
            expected=f"a number from {low} to {high}",
            got=f"{x}, which becomes {made.value}",
            help="T.cast(x, dtype) says that it is meant",
        )


def _warn(message: str, **facts: Any) -> None:
    """Leave a warning at the current place, once."""
    builder = build.current_or_none()
    found = None if builder is None else warning("value", message, builder.loc, **facts)
    if builder is not None and found is not None and found not in builder.warnings:
        builder.warnings.append(found)


def _literal_dtype(x: Any) -> DType:
    try:
        return dtypes.literal_dtype(x)
    except (TypeError, ValueError) as exc:
        raise _refuse("dtype", str(exc)) from None


def _not_scalar(x: Any) -> TileError:
    return _refuse(
        "dtype",
        f"expected a scalar, got {describe(x)}",
        expected="a number or a value of the kernel",
        got=describe(x),
        help="index a buffer to get an element: `buffer[i]`",
    )


_KINDS = {
    "BufferRef": "buffer", "RegionRef": "a slice of", "VarRef": "variable", "NoneType": "None",
    "LoopFrame": "a loop", "Unusable": "a name without a value",
}  # fmt: skip


def describe(x: Any) -> str:
    """What `x` is, in words for a message."""
    kind = _KINDS.get(type(x).__name__, type(x).__name__)
    if isinstance(x, Value) and kind != "variable":
        return f"a value of type {x.dtype}"
    name = getattr(x, "name", None) if kind != "a name without a value" else None
    return f"{kind} {name}" if isinstance(name, str) else kind


def convert(e: Expr, dtype: DType) -> Expr:
    """`e` as `dtype`; nothing where it has it already."""
    if e.dtype == dtype:
        return e
    if e.dtype.kind == "handle" or dtype.kind == "handle":
        raise _refuse(
            "dtype", f"cannot convert {e.dtype} to {dtype}", help="use `T.reinterpret` for bits"
        )
    if e.dtype.lanes != dtype.lanes:
        if e.dtype.lanes == 1:
            return packed((e,), dtype)
        raise _refuse(
            "dtype",
            f"cannot convert {e.dtype} to {dtype}",
            expected=f"a value of {dtype.lanes} lanes",
            got=f"{e.dtype.lanes} lanes",
            help="`T.extract_lane(x, 0)` takes one lane, `T.reinterpret` the bits",
        )
    return fold(Cast(e, DType(dtype)))


_SYMBOLIC_INTS = frozenset(
    {
        BinaryOp.BITAND,
        BinaryOp.BITOR,
        BinaryOp.BITXOR,
        BinaryOp.SHL,
        BinaryOp.SHR,
        BinaryOp.TRUNCDIV,
        BinaryOp.TRUNCMOD,
    }
)
_DIVISIONS = frozenset({BinaryOp.FLOORDIV, BinaryOp.FLOORMOD, BinaryOp.TRUNCDIV, BinaryOp.TRUNCMOD})
_BITWISE = frozenset({BinaryOp.BITAND, BinaryOp.BITOR, BinaryOp.BITXOR})
_BITS = _BITWISE | {BinaryOp.SHL, BinaryOp.SHR}
_LOGICAL_OF_BITWISE = {
    BinaryOp.BITAND: BinaryOp.AND,
    BinaryOp.BITOR: BinaryOp.OR,
    BinaryOp.BITXOR: BinaryOp.NE,
}


def promoted(a: Any, b: Any) -> tuple[Expr, Expr]:
    """Both operands as expressions of their common dtype."""
    x, y = as_expr(a), as_expr(b)
    common = common_type(x.dtype, y.dtype)
    return convert(x, common), convert(y, common)


def _of_one_width(a: Any, b: Any) -> tuple[Any, Any]:
    """The operands of a bitwise operator or shift: a Python int takes the integer type of the other
    operand where that holds it (a negative one wraps in an unsigned type), and int32 otherwise.
    """
    return _with_type_of(a, b), _with_type_of(b, a)


def _with_type_of(x: Any, other: Any) -> Any:
    if isinstance(x, bool) or not isinstance(x, int) or isinstance(other, (int, float)):
        return x
    dtype = as_expr(other).dtype
    if dtype.kind not in ("int", "uint") or dtype.lanes > 1:
        return x
    wraps = dtype.kind == "uint" and x < 0
    return constant(x, dtype) if wraps or dtype.min <= x <= dtype.max else x


def common_type(a: DType, b: DType) -> DType:
    """The type in which an operation on these two is done; a located error where there is none."""
    try:
        return dtypes.promote(a, b)
    except (TypeError, ValueError) as exc:
        raise _refuse("dtype", str(exc)) from None


def binary(op: BinaryOp, a: Any, b: Any) -> Value:
    """`a op b` with promotion. Bitwise operators on bools are logical."""
    if not is_scalar(a) or not is_scalar(b):
        raise _not_scalar(b if is_scalar(a) else a)
    x, y = promoted(*(_of_one_width(a, b) if op in _BITS else (a, b)))
    if x.dtype.kind == "bool":
        if op in _LOGICAL_OF_BITWISE:
            return Value(fold(Binary(_LOGICAL_OF_BITWISE[op], x, y)))
        if not (op.is_compare or op.is_logical):
            x, y = convert(x, INT32), convert(y, INT32)
    if op in _SYMBOLIC_INTS:
        _need_integers(op, op.value, x.dtype)
    if op in _DIVISIONS and isinstance(y, Const) and y.dtype.is_integer and y.value == 0:
        _warn(
            "an integer is divided by zero",
            expected="a divisor other than 0",
            got="0, so that the value is unspecified",
        )
    return Value(fold(Binary(op, x, y)))


def _need_integers(op: BinaryOp, spelling: str, dtype: DType) -> None:
    if dtype.kind not in ("int", "uint"):
        raise _refuse(
            "dtype",
            f"`{spelling}` on values of type {dtype}",
            expected="integers",
            got=str(dtype),
            help="`T.reinterpret(x, 'uint32')` gives the bits of a float" if op in _BITWISE else "",
        )


def divide(a: Any, b: Any) -> Value:
    """`a / b`. Signed integers are refused: neither C nor Python division is plainly meant."""
    x, y = promoted(a, b)
    if x.dtype.kind in ("int", "bool"):
        raise _refuse(
            "dtype",
            f"`/` on signed integers ({x.dtype})",
            cls=TileRuntimeError,
            expected="floats, or a division that says how it rounds",
            help="use `//` (floor), `T.truncdiv` (toward zero), `T.ceildiv` (up), "
            "or cast to a float first",
        )
    op = BinaryOp.TRUNCDIV if x.dtype.kind == "uint" else BinaryOp.DIV
    return Value(fold(Binary(op, x, y)))


def condition(x: Any) -> Expr:
    """`x` as a bool: a number is true where it is not zero."""
    e = as_expr(x)
    if e.dtype.kind == "bool":
        return e
    return fold(Binary(BinaryOp.NE, e, constant(0, e.dtype)))


def logical(op: BinaryOp, a: Any, b: Any) -> Value:
    """`a and b` / `a or b` on conditions."""
    return Value(fold(Binary(op, condition(a), condition(b))))


def logical_not(a: Any) -> Value:
    """`not a` on a condition."""
    return Value(fold(Unary(UnaryOp.NOT, condition(a))))


def select(cond: Any, t: Any, f: Any, *, lazy: bool) -> Value:
    """`t` where `cond` holds, else `f`, in their common dtype."""
    x, y = promoted(t, f)
    c = condition(cond)
    if isinstance(c, Const):
        return Value(x if c.value else y)
    return Value(Select(c, x, y, lazy=lazy))


def call(fn: str, *args: Any, params: tuple[Any, ...] = ()) -> Value:
    """A function of `ir.functions` on operands promoted to one dtype.

    Integers become float32 where it needs floats; a float where it needs integers is an error.
    """
    row = FUNCTIONS[fn]
    operands = [as_expr(a) for a in args]
    common = operands[0].dtype
    for e in operands[1:]:
        common = common_type(common, e.dtype)
    if row.accepts is Accepts.FLOAT and common.kind != "float":
        common = FLOAT32
    if row.accepts is Accepts.INT and common.kind not in ("int", "uint"):
        raise _refuse("dtype", f"{fn} needs integers", expected="integers", got=str(common))
    converted = tuple(convert(e, common) for e in operands)
    return Value(Call(fn, converted, result_dtype(fn, [common]), params=params))


def cast(
    value: Any,
    dtype: Any,
    round: str = "",
    sat: bool = True,
    rbits: Any = None,
    span: Any = None,
) -> Value:
    """Convert a scalar by value.

    `round` is one of '', rn, rz, rp, rm, rs ('' is the type's own mode; float to integer always
    goes toward zero); rs needs `rbits`, a uint32. With `sat`, narrow floats saturate. ValueError
    for another rounding.
    """
    target = element_type(dtype)
    if round not in ("", "rn", "rz", "rp", "rm", "rs"):
        raise _refuse(
            "value", f"unknown rounding {round!r}", expected="'', 'rn', 'rz', 'rp', 'rm' or 'rs'"
        )
    if (round == "rs") != (rbits is not None):
        raise _refuse(
            "value",
            "rounding 'rs' and `rbits` go together",
            got=f"round={round!r}, rbits={rbits!r}",
        )
    e = as_expr(value)
    plain = round == "" and sat and rbits is None
    if plain:
        return Value(convert(e, target))
    bits = None if rbits is None else as_expr(rbits, DType("uint32"))
    return Value(Cast(e, target, rounding=round, saturate=bool(sat), rbits=bits))


def reinterpret(value: Any, dtype: Any, span: Any = None) -> Value:
    """The bits of a scalar as another dtype of the same size; of one that is smaller than a byte
    also as a byte, whose upper bits are 0, and from there, without them.

    The older order of upstream, `(dtype, value)`, is accepted.
    """
    if isinstance(value, str) and not isinstance(dtype, str):
        value, dtype = dtype, value
    target = element_type(dtype)
    e = as_expr(value)
    ends = (DType(e.dtype), target)
    small = next((d for d in ends if d.is_subbyte and d.is_scalar), None)
    if small is not None and any(d.bits == 8 and d.is_integer and d.is_scalar for d in ends):
        code = DType(f"uint{small.bits}")
        e = Cast(e if small is target else _bits(e, code), code if small is target else target)
        return Value(_bits(e, target))
    if e.dtype.bits * e.dtype.lanes != target.bits * target.lanes:
        raise _refuse(
            "dtype",
            f"cannot reinterpret {e.dtype} as {target}",
            expected=f"a type of {e.dtype.bits * e.dtype.lanes} bits",
            got=f"{target.bits * target.lanes} bits",
        )
    return Value(_bits(e, target))


def _bits(e: Expr, dtype: DType) -> Expr:
    return e if e.dtype == dtype else Bitcast(e, dtype)


def truth() -> Const:
    """The literal True."""
    return Const(True, BOOL)
