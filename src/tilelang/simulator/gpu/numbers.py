"""Elements of matrices as numbers: exact in float64 or int64, and back, rounded once.

What enters: elements in the storage of a dtype and the PTX name of their type. What leaves: numbers
for a product, or elements.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilelang.dtypes import DType
from tilelang.dtypes.convert import converter

Values = npt.NDArray[Any]

TYPES = {
    "f16": "float16",
    "bf16": "bfloat16",
    "tf32": "float32",
    "f32": "float32",
    "f64": "float64",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "e2m3": "float6_e2m3fn",
    "e3m2": "float6_e3m2fn",
    "e2m1": "float4_e2m1fn",
    "e8m0": "float8_e8m0fnu",
    "s8": "int8",
    "u8": "uint8",
    "s32": "int32",
}
"""The dtype of each of PTX's element types."""

_TF32 = np.uint32(0xFFFFE000)


def dtype_of(name: str) -> DType:
    """The dtype of a PTX element type."""
    return DType(TYPES[name])


def widened(x: Values, name: str) -> Values:
    """Elements as numbers; tf32 has no low bits."""
    if name == "tf32":
        cut = np.ascontiguousarray(x).view(np.uint32) & _TF32
        return cut.view(np.float32).astype(np.float64)
    dtype = dtype_of(name)
    wide = "float64" if dtype.is_float else "int64"
    return converter(dtype, DType(wide))(np.asarray(x, dtype.numpy))


def narrowed(x: Values, name: str) -> Values:
    """Numbers as elements; integers wrap."""
    dtype = dtype_of(name)
    wide = "float64" if dtype.is_float else "int64"
    return converter(DType(wide), dtype)(x)
