"""What programs of the Ascend adapter tree import besides the language.

What enters: the questions and layouts that its public programs ask for. What leaves: answers that
hold here. A layout never changes a result; the order of fractals on chip is the compiler's.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from tilelang.dtypes import DType
from tilelang.errors import TileTypeError, error
from tilelang.language.buffers import BufferRef
from tilelang.layout import Layout
from tilelang.options import options_from
from tilelang.runtime.cache import Store

FRACTAL, C0_BYTES = 16, 32
"""Rows of a fractal, and the bytes of each (tilelang-ascend, tl_templates/ascend/common.h)."""


def clear_cache() -> None:
    """Remove the compiled kernels of the cache folder (`TILELANG_CACHE_DIR`)."""
    Store(options_from(None, os.environ).cache_dir).clear()


def determine_platform(platform: str = "auto") -> str:
    """The platform that kernels are compiled for: what is asked for, else TL_PLATFORM, else that of
    the NPU which a loaded torch has, else A3.
    """
    asked = platform if platform != "auto" else os.environ.get("TL_PLATFORM", "")
    npu = getattr(sys.modules.get("torch"), "npu", None)
    if asked or npu is None or not npu.is_available():
        return asked or "A3"
    name = str(npu.get_device_properties(npu.current_device()).name).upper()
    return next((of for part, of in _PLATFORMS.items() if part in name), "A3")


_PLATFORMS = {"910B": "A2", "910_93": "A3", "910C": "A3", "950": "A5", "910_95": "A5", "910": "A2"}


def _matrix(buf: Any, what: str) -> tuple[list[Any], int]:
    if not isinstance(buf, BufferRef) or buf.ndim < 2:
        raise error(
            "layout",
            f"{what} of {type(buf).__name__}",
            cls=TileTypeError,
            expected="a buffer with two axes or more",
        )
    return list(buf.shape), C0_BYTES // (DType(buf.dtype).bits // 8)


def make_zn_layout(buf: Any) -> Layout:
    """The layout zN of a matrix: `[column/C0][row/16][row%16][column%C0]`."""
    shape, c0 = _matrix(buf, "make_zn_layout")

    def placed(*at: Any) -> tuple[Any, ...]:
        *lead, i, j = at
        return (*lead, j // c0, i // FRACTAL, i % FRACTAL, j % c0)

    return Layout(shape, placed, "zN")


def make_nz_layout(buf: Any) -> Layout:
    """The layout nZ of a matrix: `[row/C0][column/16][column%16][row%C0]`."""
    shape, c0 = _matrix(buf, "make_nz_layout")

    def placed(*at: Any) -> tuple[Any, ...]:
        *lead, i, j = at
        return (*lead, i // c0, j // FRACTAL, j % FRACTAL, i % c0)

    return Layout(shape, placed, "nZ")


def make_col_major_layout(buf: Any) -> Layout:
    """The layout of a matrix whose columns follow each other."""
    shape, _ = _matrix(buf, "make_col_major_layout")
    return Layout(shape, lambda *at: (*at[:-2], at[-1], at[-2]), "column major")
