"""The names of the element types: `T.float16`, `T.int8`, `T.float16x2`, ... made from the one table of dtypes."""

from __future__ import annotations

from tilelang import dtypes
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
