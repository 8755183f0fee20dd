"""The mainline Ascend dialect (chip 950): its launches and its allocation functions."""

from __future__ import annotations

from typing import Any

from tilelang.errors import TileValueError, error
from tilelang.ir.expr import int_value
from tilelang.ir.tile import Annotate
from tilelang.language.alloc import declare_buffer
from tilelang.language.arguments import known, launched, memory, refuse
from tilelang.language.buffers import BufferRef, here
from tilelang.language.launch import KernelLaunchFrame
from tilelang.language.shapes import shape_of, shape_text
from tilelang.language.values import Value, element_type
from tilelang.scopes import Dialect, Memory

VECTOR_CORES = 2
"""The vector cores of a group on the 950."""


def _one_extent(function: str, blocks: tuple[Any, ...], prelude: str | None) -> None:
    if prelude is not None:
        raise error(
            "target", "prelude= needs a target that compiles C source", here(), help="leave it out"
        )
    if len(blocks) != 1:
        raise error(
            "shape",
            f"the Ascend dialect's {function} with {len(blocks)} extents",
            here(),
            expected="one extent, the number of cores",
            got=str(len(blocks)),
        )


def Kernel(*blocks: Any, prelude: str | None = None) -> KernelLaunchFrame:
    """Launch on `blocks` cores: exactly one extent, no threads.

    What runs on the cube core and what on the vector cores follows from the memories used.
    """
    _one_extent("Kernel", blocks, prelude)
    return KernelLaunchFrame(blocks, None, dialect=Dialect.ASCEND)


class MixedLaunchFrame(KernelLaunchFrame):
    """`with T.MixedKernel(n) as (bx, sid):` - a launch that also gives the vector core's number."""

    def check_names(self, count: int | None, loc: Any) -> None:
        """Two names: the block and the vector core."""
        if count not in (None, 2):
            raise error(
                "shape",
                f"T.MixedKernel gives 2 names, {count} are bound",
                loc,
                cls=TileValueError,
                help="with T.MixedKernel(n) as (bx, sid):",
            )

    def __enter__(self) -> list[Value]:
        super().__enter__()
        launch = self._builder.launch
        assert launch is not None
        return [Value(launch.vars[0]), Value(launch.thread_vars[0])]


def MixedKernel(*blocks: Any, sids: int = VECTOR_CORES, prelude: str | None = None) -> Any:
    """Launch `blocks` groups of a cube core and two vector cores; gives the block and the number of
    the vector core.

    With `sids=1` the second vector core of each group does nothing.
    """
    _one_extent("MixedKernel", blocks, prelude)
    count = known(sids, "the sids of T.MixedKernel", 1, VECTOR_CORES)
    return MixedLaunchFrame(blocks, count, dialect=Dialect.ASCEND)


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


# One E8M0 scale covers 32 elements of K (OCP Microscaling Formats 1.0, MXFP8).
SCALED_BY_ONE = 32


def _scales(function: str, tile: Any, home: Memory, dtype: Any, shape: Any) -> BufferRef:
    """The handle on a tile's scales: its leading axes and rows, one scale for 32 elements of K."""
    if not isinstance(tile, BufferRef) or memory(tile.buffer) is not home:
        raise refuse(
            "scope",
            f"T.{function} of something else than a tile in {home.title}",
            cls=TileValueError,
            expected=f"the buffer of T.{function.removesuffix('_sf')}",
        )
    element = element_type(dtype)
    if element.bits not in (8, 16) or element.lanes != 1:
        raise refuse(
            "dtype",
            f"T.{function} of {element}",
            cls=TileValueError,
            expected="8-bit scales, or 16 bits that hold two",
            got=str(element),
        )
    *leading, rows, depth = tile.buffer.shape
    if shape is None:
        packed = SCALED_BY_ONE * element.bits // 8
        k = int_value(depth) or 0
        if k % packed:
            raise refuse(
                "shape",
                f"T.{function} of a tile with K = {k}",
                cls=TileValueError,
                expected=f"a multiple of {packed}, the elements for one {element}",
                help="give sf_shape= for a transposed tile",
            )
        shape = (*(int_value(e) for e in leading), int_value(rows), k // packed)
    extents = shape_of(shape, f"T.{function}")
    if len(extents) != len(tile.buffer.shape) or extents[:-2] != tuple(leading):
        raise refuse(
            "shape",
            f"the sf_shape of T.{function}",
            cls=TileValueError,
            expected="the leading axes of the tile, and two more",
            got=shape_text(extents),
        )
    made = _tile(function, shape, dtype, None)
    note = Annotate(
        "scales_of", buffers=(made.buffer, tile.buffer), values=(None, None), loc=here()
    )
    launched(f"T.{function}").emit(note)
    return made


def alloc_l0a_sf(buf: Any, sf_dtype: Any = "uint16", sf_shape: Any = None) -> BufferRef:
    """The scales of a tile in L0A: a handle without storage of its own."""
    return _scales("alloc_l0a_sf", buf, Memory.L0A, sf_dtype, sf_shape)


def alloc_l0b_sf(buf: Any, sf_dtype: Any = "uint16", sf_shape: Any = None) -> BufferRef:
    """The scales of a tile in L0B: a handle without storage of its own."""
    return _scales("alloc_l0b_sf", buf, Memory.L0B, sf_dtype, sf_shape)
