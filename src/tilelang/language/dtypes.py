"""`tilelang.language.dtypes`: the element types by name, as programs import them."""

from __future__ import annotations

import importlib
from typing import Any

from tilelang import dtypes as _table
from tilelang.language.names import (
    DTYPE_NAMES,
    AnyDType,
    dtype,
    get_tvm_dtype,
    is_f8f6f4_family,
    is_float4,
    is_float4_e2m1_unpacked,
    is_float4_e2m1fn,
    validate_gemm_ab_dtypes,
)

__all__ = [
    "AnyDType",
    "dtype",
    "get_tvm_dtype",
    "is_f8f6f4_family",
    "is_float4",
    "is_float4_e2m1_unpacked",
    "is_float4_e2m1fn",
    "resolve_torch_storage_dtype",
    "validate_gemm_ab_dtypes",
]


def resolve_torch_storage_dtype(value: Any) -> dtype:
    """The type of the storage that torch gives an element type: int8 for int4. Needs torch."""
    return dtype(get_tvm_dtype(value).as_torch())


def __getattr__(name: str) -> Any:
    if name in DTYPE_NAMES:
        return DTYPE_NAMES[name]
    if name == "_all_dtypes":
        return set(DTYPE_NAMES)
    if name == "_TORCH_DTYPE_TO_STR":  # torch is imported only for who asks for its types
        torch = importlib.import_module("torch")
        names = {row.torch for row in _table.ROWS.values() if row.torch}
        return {
            getattr(torch, n): str(dtype(getattr(torch, n))) for n in names if hasattr(torch, n)
        }
    raise AttributeError(name)
