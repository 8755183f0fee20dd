"""The mainline Ascend dialect (chip 950): its launch and allocation functions, and the common names
unchanged.
"""

from __future__ import annotations

from typing import Any

from tilelang import language as _common
from tilelang.language.ascend import (
    Kernel,
    alloc_l0a,
    alloc_l0b,
    alloc_l0c,
    alloc_l1,
    alloc_shared,
)
from tilelang.scopes import Dialect, dialects_of

__all__ = ["Kernel", "alloc_l0a", "alloc_l0b", "alloc_l0c", "alloc_l1", "alloc_shared"]


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    if dialects_of(name) and Dialect.ASCEND not in dialects_of(name):
        _common.missing(name, "tilelang.ascend.language", Dialect.ASCEND)
    return getattr(_common, name)


def __dir__() -> list[str]:
    return sorted({*__all__, *dir(_common)})
