"""Operators on values of lanes: one NumPy scalar for all lanes, or an array with the lanes last.

What enters: values in the storage of their dtype. What leaves: the same, rounded or wrapped once.
A vector has its elements along the first axis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilelang.dtypes import DType
from tilelang.dtypes.convert import cast as cast_values
from tilelang.dtypes.convert import converter
from tilelang.dtypes.storage import from_bits, to_bits
from tilelang.emulator import numerics
from tilelang.errors import InternalError
from tilelang.ir.expr import BinaryOp, Bitcast, Call, Cast

Function = Callable[..., Any]

INFIX = frozenset(map(BinaryOp, ("+", "-", "*", "&", "|", "^", "==", "!=", "<", "<=", ">", ">=")))
"""The operators that mean the same, written by their symbols, in NumPy."""


def _floordiv(a: Any, b: Any) -> Any:
    return np.where(b == 0, 0, np.floor_divide(a, np.where(b == 0, 1, b)))


def _floormod(a: Any, b: Any) -> Any:
    return np.where(b == 0, 0, np.mod(a, np.where(b == 0, 1, b)))


_ANY: dict[BinaryOp, Function] = {
    BinaryOp.ADD: np.add,
    BinaryOp.SUB: np.subtract,
    BinaryOp.MUL: np.multiply,
    BinaryOp.DIV: np.divide,
    BinaryOp.MIN: np.minimum,
    BinaryOp.MAX: np.maximum,
    BinaryOp.BITAND: np.bitwise_and,
    BinaryOp.BITOR: np.bitwise_or,
    BinaryOp.BITXOR: np.bitwise_xor,
    BinaryOp.EQ: np.equal,
    BinaryOp.NE: np.not_equal,
    BinaryOp.LT: np.less,
    BinaryOp.LE: np.less_equal,
    BinaryOp.GT: np.greater,
    BinaryOp.GE: np.greater_equal,
    BinaryOp.AND: np.logical_and,
    BinaryOp.OR: np.logical_or,
}
_INT: dict[BinaryOp, Function] = {
    BinaryOp.FLOORDIV: _floordiv,
    BinaryOp.FLOORMOD: _floormod,
    BinaryOp.TRUNCDIV: numerics.truncdiv,
    BinaryOp.TRUNCMOD: numerics.truncmod,
}
_FLOAT: dict[BinaryOp, Function] = {
    BinaryOp.FLOORDIV: np.floor_divide,
    BinaryOp.FLOORMOD: np.remainder,
    BinaryOp.TRUNCDIV: numerics.float_truncdiv,
    BinaryOp.TRUNCMOD: np.fmod,
    BinaryOp.MIN: np.fmin,
    BinaryOp.MAX: np.fmax,
}
_BOOL: dict[BinaryOp, Function] = {
    BinaryOp.MIN: np.logical_and,
    BinaryOp.MAX: np.logical_or,
}
NATIVE = frozenset({"float32", "float64"})
"""The floats that a thread computes with; others are widened by the lowering."""


def binary(op: BinaryOp, dtype: DType) -> Function:
    """The function of an operator on operands of `dtype`."""
    if op.is_compare or op.is_logical:
        return _ANY[op]
    if op in (BinaryOp.SHL, BinaryOp.SHR):
        return _shift(op, dtype.base)
    if dtype.is_float and dtype.base.name not in NATIVE:
        raise InternalError(f"a thread computes with {dtype}")
    table = _BOOL if dtype.is_bool else _FLOAT if dtype.is_float else _INT
    function = table.get(op) or _ANY[op]
    if function in (_floordiv, _floormod):
        return _stored(function, dtype.base)
    return function


def _stored(function: Function, dtype: DType) -> Function:
    """The function with its result in the storage of a dtype."""
    storage = dtype.numpy

    def stored(*args: Any) -> Any:
        return np.asarray(function(*args)).astype(storage)

    return stored


def _shift(op: BinaryOp, dtype: DType) -> Function:
    bits, storage = dtype.bits, dtype.numpy
    move = np.left_shift if op is BinaryOp.SHL else np.right_shift
    signed = op is BinaryOp.SHR and not dtype.is_uint

    def shift(a: Any, b: Any) -> Any:
        inside = (b >= 0) & (b < bits)
        moved = move(a, np.where(inside, b, 0).astype(storage))
        out = np.where(a < 0, -1, 0) if signed else 0
        return np.where(inside, moved, out).astype(storage)

    return shift


def conversion(e: Cast) -> Function:
    """The function of a cast; one that rounds by random bits takes these as well."""
    source, target = e.a.dtype.base, e.type.base
    if e.rounding == "rs":

        def by_bits(x: Any, bits: Any) -> Any:
            given = np.asarray(x, source.numpy)
            return cast_values(given, source, target, "rs", e.saturate, np.asarray(bits))

        return by_bits
    convert = converter(source, target, e.rounding, e.saturate)

    def converted(x: Any) -> Any:
        return convert(np.asarray(x, source.numpy))

    return converted


def same_bits(e: Bitcast) -> Function:
    """The function that reads bits as another type."""
    source, target = e.a.dtype, e.type
    if source.lanes == 1 and target.lanes == 1:
        width = f"u{target.numpy.itemsize}"

        def scalars(x: Any) -> Any:
            return from_bits(to_bits(np.asarray(x, source.numpy), source).astype(width), target)

        return scalars
    storage = target.base.numpy

    def vectors(x: Any) -> Any:
        columns = np.asarray(x, source.base.numpy).reshape(source.lanes, -1)
        found = np.ascontiguousarray(columns.T).view(storage).T
        return found if target.lanes > 1 else found[0]

    return vectors


def pure(e: Call) -> Function:
    """The function of the table in `ir/functions.py`."""
    source = (e.args[0].dtype if e.args else e.type).base
    function = numerics.function(e.fn, source, e.params)
    return _stored(function, e.type.base)


def pack(lanes: int, *parts: Any) -> Any:
    """A vector of scalars; one is repeated."""
    if len(parts) == 1:
        return np.repeat(np.atleast_1d(parts[0])[None], lanes, axis=0)
    return np.stack(np.broadcast_arrays(*(np.atleast_1d(p) for p in parts)))
