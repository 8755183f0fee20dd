"""The names of the element types: `T.float16`, `T.int8`, `T.float16x2`, ... made from the one
table of dtypes; and questions about types.
"""

from __future__ import annotations

from typing import Any

from tilelang import dtypes
from tilelang.language.arguments import refuse
from tilelang.language.values import DataType

_SHORT = ("half", "double", "float", "int", "long", "short", "uint")

DTYPE_NAMES: dict[str, DataType] = {
    **{row.name: DataType(row.name) for row in dtypes.ROWS.values()},
    **{
        f"{row.name}x{n}": DataType(f"{row.name}x{n}")
        for row in dtypes.ROWS.values()
        for n in dtypes.LANES
        if row.name != "handle"
    },
    **{name: DataType(name) for name in _SHORT},
}

dtype = DataType
"""`T.dtype`: the class of types; `T.dtype(x)` takes a name, a Python, NumPy or torch type."""

AnyDType = Any
"""Whatever `T.dtype` takes."""


def get_tvm_dtype(value: Any) -> DataType:
    """`T.dtype(value)`."""
    return DataType(dtypes.dtype(value))


def is_float4(value: Any) -> bool:
    """Whether a type is a 4-bit float, packed or one to a byte."""
    return get_tvm_dtype(value).is_float4()


def is_float4_e2m1fn(value: Any) -> bool:
    """Whether a type is the 4-bit float packed two to a byte."""
    return get_tvm_dtype(value).is_float4_e2m1fn()


def is_float4_e2m1_unpacked(value: Any) -> bool:
    """Whether a type is the 4-bit float stored one to a byte."""
    return get_tvm_dtype(value).is_float4_e2m1_unpacked()


def is_f8f6f4_family(value: Any) -> bool:
    """Whether a type is a float of 8, 6 or 4 bits."""
    element = get_tvm_dtype(value)
    return element.is_float8 or element.is_float6 or element.is_float4()


def validate_gemm_ab_dtypes(
    a_dtype: Any, b_dtype: Any, *, a_in_tmem: bool = False, allow_f8f6f4_mixed: bool = False
) -> None:
    """ValueError for two operand types that no hardware product takes together."""
    mixed = allow_f8f6f4_mixed and is_f8f6f4_family(a_dtype) and is_f8f6f4_family(b_dtype)
    if not a_in_tmem and get_tvm_dtype(a_dtype) != get_tvm_dtype(b_dtype) and not mixed:
        raise refuse(
            "value",
            f"a product of {a_dtype} and {b_dtype}",
            expected="one type, or floats of 8, 6 and 4 bits where the hardware mixes them",
            got=f"{a_dtype} and {b_dtype}",
        )
