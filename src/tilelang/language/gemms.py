"""Products beyond `T.gemm`: 2:4 sparse, block-scaled, four-element dot products, and the patches
of a convolution. All of them are synchronous.
"""

from __future__ import annotations

from typing import Any

from tilelang.dtypes import DType
from tilelang.errors import TileValueError
from tilelang.ir.expr import Binary, BinaryOp, Cast, Expr, Load, Region, const, int_value
from tilelang.ir.scales import PairScaledGemm
from tilelang.ir.special import GemmBlockScaled, GemmSparse, Im2col
from tilelang.ir.tile import Store
from tilelang.isa.sparsity import pattern
from tilelang.language.arguments import (
    Place,
    eviction,
    in_memory,
    integer,
    known,
    launched,
    note,
    place,
    refuse,
)
from tilelang.language.buffers import here
from tilelang.language.tileops import (
    GemmWarpPolicy,
    arrive_after,
    matrix,
    narrow,
    operands,
    region_of,
    shape_text,
)
from tilelang.language.values import condition
from tilelang.scopes import Memory

_INT32 = DType("int32")


def _turned(region: Region, transpose: bool) -> list[int]:
    rows, columns = (int_value(e) or 0 for e in region.extents[-2:])
    return [columns, rows] if transpose else [rows, columns]


def _shape_error(name: str, what: str, expected: Any, got: Any) -> Exception:
    return refuse(
        "shape", f"{name}: {what}", cls=TileValueError, expected=str(expected), got=str(got)
    )


def gemm_sp(
    A_sparse: Any,
    E: Any,
    B: Any,
    C: Any,
    transpose_A: bool = False,
    transpose_E: bool = False,
    transpose_B: bool = False,
    policy: GemmWarpPolicy = GemmWarpPolicy.Square,
    clear_accum: Any = False,
    wg_wait: int = 0,
    annotations: dict[str, Any] | None = None,
) -> None:
    """`C += A @ op(B)` where every four neighbours along K of A hold two values: A_sparse is (M,
    K/2).

    E is the metadata, (M, K / its bits) integers: two bits per kept element, its place among the
    four, lowest bits first. `transpose_*` exchange the axes of A_sparse, E and B. T.gemm_sp waits
    by itself (`wg_wait=0`). ValueError for shapes that do not fit.
    """
    name = "T.gemm_sp"
    builder = launched(name)
    note(annotations, name)
    if wg_wait != 0:
        raise refuse("option", f"wg_wait of {name}", expected="0: it waits", got=repr(wg_wait))
    a, e, b, c = (
        matrix(x, letter, name) for x, letter in zip((A_sparse, E, B, C), "AEBC", strict=True)
    )
    (m, half), (rows, words) = _turned(a, transpose_A), _turned(e, transpose_E)
    (k, n), (cm, cn) = _turned(b, transpose_B), _turned(c, False)
    if (m, n, half * 2) != (cm, cn, k):
        shapes = f"A {shape_text(a.extents)}, B {shape_text(b.extents)}, C {shape_text(c.extents)}"
        raise _shape_error(name, "A is (M, K/2), B (K, N), C (M, N)", "extents that agree", shapes)
    if e.dtype.kind not in ("int", "uint"):
        raise refuse("dtype", f"the metadata of {name}", expected="integers", got=str(e.dtype))
    if a.dtype.bits > 32:
        raise refuse("dtype", f"{name} of {a.dtype}", expected="elements of at most 32 bits")
    bits = pattern(a.dtype).bits
    if (rows, words * e.dtype.bits) != (m, half * bits):
        expected = (m, half * bits // e.dtype.bits)
        raise _shape_error(
            name, f"the shape of the metadata E of {e.dtype}", expected, (rows, words)
        )
    builder.emit(
        GemmSparse(
            a,
            e,
            b,
            c,
            condition(clear_accum),
            transpose_a=bool(transpose_A),
            transpose_e=bool(transpose_E),
            transpose_b=bool(transpose_B),
            policy=int(GemmWarpPolicy(policy)),
            loc=here(),
        )
    )


def _scaled(
    name: str,
    given: tuple[Any, Any, Any, Any, Any],
    transposes: tuple[Any, Any],
    policy: Any,
    clear_accum: Any,
    scaling: tuple[Any, Any, Any, Any],
    *,
    pair: bool = False,
) -> Region:
    builder = launched(name)
    a, b, c = operands(given[:3], transposes, name, pair=pair)
    if pair:
        in_memory(c.buffer, f"operand C of {name}(use_2cta=True)", Memory.TMEM)
    k_start, grain_a, grain_b, layout = scaling
    if layout not in (None, "rowmajor"):
        raise refuse(
            "target",
            f"sf_layout={layout!r} of {name} needs the native CUDA target",
            expected="None or 'rowmajor': one row of scales per row of A (column of B)",
        )
    for x in (a, b):
        narrow(x, name)
    sfa, sfb = (
        region_of(x, f"the scales {letter} of {name}")
        for x, letter in zip(given[3:], ("SFA", "SFB"), strict=True)
    )
    product = PairScaledGemm if pair else GemmBlockScaled
    builder.emit(
        product(
            a,
            b,
            c,
            sfa,
            sfb,
            condition(clear_accum),
            integer(k_start, f"the k_start of {name}"),
            known(grain_a, f"the sf_a_granularity_k of {name}", 1, 1 << 16),
            known(grain_b, f"the sf_b_granularity_k of {name}", 1, 1 << 16),
            transpose_a=bool(transposes[0]),
            transpose_b=bool(transposes[1]),
            policy=int(GemmWarpPolicy(policy)),
            loc=here(),
        )
    )
    return c


def gemm_blockscaled(
    A: Any,
    B: Any,
    C: Any,
    SFA: Any,
    SFB: Any,
    transpose_A: bool = False,
    transpose_B: bool = False,
    policy: GemmWarpPolicy = GemmWarpPolicy.Square,
    clear_accum: Any = False,
    *,
    k_start: Any,
    sf_a_granularity_k: int,
    sf_b_granularity_k: int,
    mbar: Any = None,
    use_2cta: bool = False,
    sf_layout: str | None = None,
    annotations: dict[str, Any] | None = None,
) -> None:
    """`T.gemm` of floats of at most 8 bits, each scaled per row (column) and block of K.

    SFA is (M, scales), SFB (N, scales): element k of the tile is multiplied by scale
    `(k_start + k) // granularity` of its row. `mbar` as in `T.gemm`. `use_2cta` makes the two
    blocks of a pair do it together, all of their threads: each holds its rows of A and C, half of
    the columns of B, and the scales of all columns.
    """
    name = "T.gemm_blockscaled"
    note(annotations, name)
    scaling = (k_start, sf_a_granularity_k, sf_b_granularity_k, sf_layout)
    given, flags = (A, B, C, SFA, SFB), (transpose_A, transpose_B)
    c = _scaled(name, given, flags, policy, clear_accum, scaling, pair=bool(use_2cta))
    if mbar is not None:
        arrive_after(launched(name), c, mbar)


def mma_gemm_blockscaled(
    A: Any,
    B: Any,
    C: Any,
    SFA: Any,
    SFB: Any,
    transpose_A: bool = False,
    transpose_B: bool = False,
    policy: GemmWarpPolicy = GemmWarpPolicy.Square,
    clear_accum: Any = False,
    *,
    k_start: Any,
    sf_a_granularity_k: int,
    sf_b_granularity_k: int,
    sf_layout: str | None = None,
) -> None:
    """`gemm_blockscaled` by warp-level products."""
    name = "T.mma_gemm_blockscaled"
    scaling = (k_start, sf_a_granularity_k, sf_b_granularity_k, sf_layout)
    given = (A, B, C, SFA, SFB)
    _scaled(name, given, (transpose_A, transpose_B), policy, clear_accum, scaling)


# -- dot products of four --------------------------------------------------------------------------


def _four(at: Place, what: str, dtype: str) -> list[Expr]:
    """Four neighbouring elements from a place on, as int32."""
    buffer, indices = at
    if buffer.dtype != dtype:
        raise refuse(
            "dtype",
            f"{what} of T.dp4a has type {buffer.dtype}",
            cls=TileValueError,
            expected=dtype,
            got=str(buffer.dtype),
        )
    out: list[Expr] = []
    for n in range(4):
        step = const(n, indices[-1].dtype)
        last = indices[-1] if n == 0 else Binary(BinaryOp.ADD, indices[-1], step)
        out.append(Cast(Load(buffer, (*indices[:-1], last), loc=here()), _INT32))
    return out


def dp4a(A: Any, B: Any, C: Any) -> None:
    """`C += A[0] * B[0] + ... + A[3] * B[3]`: four int8 from each place, into one int32; it wraps.

    Each argument is an element, a buffer (its start) or a pointer. ValueError for other dtypes.
    """
    builder = launched("T.dp4a")
    target = place(C, "C of T.dp4a")
    buffer, indices = target
    if buffer.dtype != _INT32:
        raise refuse(
            "dtype",
            f"C of T.dp4a has type {buffer.dtype}",
            cls=TileValueError,
            expected="int32",
            got=str(buffer.dtype),
        )
    total: Expr = Load(buffer, indices, loc=here())
    pairs = zip(
        _four(place(A, "A of T.dp4a"), "A", "int8"),
        _four(place(B, "B of T.dp4a"), "B", "int8"),
        strict=True,
    )
    for x, y in pairs:
        total = Binary(BinaryOp.ADD, total, Binary(BinaryOp.MUL, x, y))
    builder.emit(Store(buffer, indices, total, loc=here()))


# -- convolution -----------------------------------------------------------------------------------


def im2col(
    img: Any,
    col: Any,
    nhw_step: Any,
    c_step: Any,
    kernel: int,
    stride: int,
    dilation: int,
    pad: int,
    eviction_policy: str | None = None,
    annotations: dict[str, Any] | None = None,
) -> None:
    """Gather patches of an image (N, H, W, C) into the tile `col` (rows, columns); zero outside.

    Row r is output pixel `nhw_step * rows + r` of the flattened (N, H_out, W_out), column c
    element `c_step * columns + c` of the flattened (kernel, kernel, C) patch. `kernel`, `stride`,
    `dilation` and `pad` are elements, the same along H and W. `eviction_policy` changes no result.
    """
    name = "T.im2col"
    builder = launched(name)
    image, tile = region_of(img, f"the image of {name}"), region_of(col, f"the tile of {name}")
    if image.buffer.rank != 4:
        raise _shape_error(
            name, "the image has another shape", "(N, H, W, C)", shape_text(image.extents)
        )
    if sum(int_value(x) != 1 for x in tile.extents[:-2]) or tile.buffer.rank < 2:
        raise _shape_error(
            name, "the tile has another shape", "(rows, columns)", shape_text(tile.extents)
        )
    if image.dtype != tile.dtype:
        raise refuse("dtype", f"{name} from {image.dtype} to {tile.dtype}", expected="one dtype")
    eviction(eviction_policy, name)
    note(annotations, name)
    builder.emit(
        Im2col(
            image,
            tile,
            integer(nhw_step, f"the nhw_step of {name}"),
            integer(c_step, f"the c_step of {name}"),
            known(kernel, f"the kernel of {name}", 1, 1 << 16),
            known(stride, f"the stride of {name}", 1, 1 << 16),
            known(dilation, f"the dilation of {name}", 1, 1 << 16),
            known(pad, f"the pad of {name}", 0, 1 << 16),
            loc=here(),
        )
    )


c2d_im2col = im2col
