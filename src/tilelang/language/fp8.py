"""`tilelang.language.fp8`: the 8-bit float of a format, as programs import it."""

from __future__ import annotations

from typing import Any

from tilelang.language.arguments import choice
from tilelang.language.values import DataType

_FORMATS = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}


def determine_fp8_type(fp8_format: str = "e4m3") -> DataType:
    """The type for 'e4m3' or 'e5m2'; ValueError for another format."""
    return DataType(_FORMATS[choice(fp8_format, "the fp8 format", _FORMATS)])


def determine_torch_fp8_type(fp8_format: str = "e4m3") -> Any:
    """The torch dtype for 'e4m3' or 'e5m2'; TypeError where torch has none."""
    return determine_fp8_type(fp8_format).as_torch()
