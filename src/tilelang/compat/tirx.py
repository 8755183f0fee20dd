"""The scalar expressions of `tvm.tirx` that programs compute with: constants, conversions, the bits
of a value as another type, choices. What leaves are the values of the language itself.
"""

from __future__ import annotations

from typing import Any

from tilelang.dtypes import DType
from tilelang.language import maths
from tilelang.language.raw import Cast
from tilelang.language.values import Value, constant, reinterpret

PrimExpr = Value


def const(value: Any, dtype: Any = None, span: Any = None) -> Value:
    """A number of a dtype: without one int32, float32 or bool as the number is."""
    if dtype is None:
        whole = "bool" if isinstance(value, bool) else "int32"
        dtype = "float32" if isinstance(value, float) else whole
    return Value(constant(value, DType(dtype)))


Select, Min, Max = maths.Select, maths.min, maths.max

__all__ = ["Cast", "Max", "Min", "PrimExpr", "Select", "const", "reinterpret"]
