"""The mainline Ascend dialect (chip 950): its launch and its allocation functions; everything else
is common.
"""

from __future__ import annotations

from typing import Any

from tilelang.errors import error
from tilelang.language.alloc import declare_buffer
from tilelang.language.buffers import BufferRef, here
from tilelang.language.launch import KernelLaunchFrame
from tilelang.scopes import Dialect


def Kernel(*blocks: Any, prelude: str | None = None) -> KernelLaunchFrame:
    """Launch on `blocks` cores: exactly one extent, no threads."""
    if prelude is not None:
        raise error(
            "target", "prelude= needs a target that compiles C source", here(), help="leave it out"
        )
    if len(blocks) != 1:
        raise error(
            "shape",
            f"the Ascend dialect's Kernel with {len(blocks)} extents",
            here(),
            expected="one extent, the number of cores",
            got=str(len(blocks)),
        )
    return KernelLaunchFrame(blocks, None, dialect=Dialect.ASCEND)


def _tile(function: str, shape: Any, dtype: Any, scope: str | None) -> BufferRef:
    return BufferRef(declare_buffer(Dialect.ASCEND, function, shape, dtype, scope))


def alloc_shared(shape: Any, dtype: Any, scope: str = "shared.dyn") -> BufferRef:
    """Unified Buffer (UB) of the vector core; a bool buffer keeps the scope given."""
    return _tile("alloc_shared", shape, dtype, scope)


def alloc_l1(shape: Any, dtype: Any, scope: str = "shared.l1") -> BufferRef:
    """L1 buffer of the cube core."""
    return _tile("alloc_l1", shape, dtype, scope)


def alloc_l0a(shape: Any, dtype: Any, scope: str = "shared.l0a") -> BufferRef:
    """L0A, the left operand of the cube; the consuming gemm decides the layout."""
    return _tile("alloc_l0a", shape, dtype, scope)


def alloc_l0b(shape: Any, dtype: Any, scope: str = "shared.l0b") -> BufferRef:
    """L0B, the right operand of the cube; the consuming gemm decides the layout."""
    return _tile("alloc_l0b", shape, dtype, scope)


def alloc_l0c(shape: Any, dtype: Any, scope: str = "shared.l0c", layout: bool = True) -> BufferRef:
    """L0C, the accumulator of the cube, in its fractal layout."""
    if layout is not True:
        raise error(
            "option",
            "alloc_l0c(layout=False)",
            here(),
            expected="the fractal layout",
            help="leave `layout` out",
        )
    return _tile("alloc_l0c", shape, dtype, scope)
