"""The operations of a whole block on tiles: copy, fill, gemm, reductions, scans, transpose.

Each function states shapes, dtypes and errors, resolves its arguments to regions, refuses what
does not fit, and emits one node. Hints are kept on the node; they choose how, never what.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

from tilelang.dtypes import DType
from tilelang.errors import TileError, error, warning
from tilelang.ir import build, tile
from tilelang.ir.build import Builder
from tilelang.ir.expr import Buffer, Expr, Load, Region, const, int_value
from tilelang.ir.sync import MmaArrive
from tilelang.language.arguments import MOST, eviction, hints, known, note
from tilelang.language.buffers import (
    BufferRef,
    RegionRef,
    VarRef,
    alias,
    check_on_chip,
    here,
    plain,
    whole,
)
from tilelang.language.shapes import check_match, same_extent, shape_of, shape_text
from tilelang.language.values import Value, as_expr, condition, describe, element_type, is_scalar
from tilelang.scopes import Dialect, Memory, memory_of


class GemmWarpPolicy(enum.IntEnum):
    """How warps are spread over the M and N axes of a product; never changes the result."""

    Square = 0
    FullRow = 1
    FullCol = 2


def _bad(kind: str, message: str, **facts: Any) -> TileError:
    return error(kind, message, here(), **facts)


def region_of(x: Any, what: str) -> Region:
    """A buffer, slice, variable or element as a region (an element has extents 1)."""
    if isinstance(x, BufferRef):
        return whole(x.buffer)
    if isinstance(x, VarRef):
        return whole(x.buffer)
    if isinstance(x, RegionRef):
        return x.region
    if isinstance(x, Value) and isinstance(x.expr, Load):
        load = x.expr
        return Region(load.buffer, load.indices, tuple(const(1) for _ in load.indices), loc=here())
    raise _bad(
        "dtype",
        f"{what} is {describe(x)}",
        expected="a buffer, a slice of one, or an element as its corner",
        got=describe(x),
    )


def _is_head(x: Any) -> bool:
    """Whether `x` is an element, which stands for a tile that begins there."""
    return isinstance(x, Value) and not isinstance(x, VarRef) and isinstance(x.expr, Load)


def _borrow(head: Region, extents: Sequence[Expr], what: str) -> Region:
    """The region that begins at `head` and takes `extents`, aligned to the last axes."""
    rank = head.buffer.rank
    wanted = list(extents)
    while len(wanted) > rank and int_value(wanted[0]) == 1:
        wanted.pop(0)
    if len(wanted) > rank:
        raise _bad(
            "shape",
            f"a tile of shape {shape_text(extents)} does not fit {what} {head.buffer.name},"
            f" which has {rank} axes",
            expected=f"at most {rank} axes",
            got=str(len(wanted)),
        )
    full = [const(1)] * (rank - len(wanted)) + wanted
    for axis, (low, size) in enumerate(zip(head.mins, full, strict=True)):
        check_on_chip(head.buffer, axis, low, size)
    return Region(head.buffer, head.mins, tuple(full), loc=head.loc)


def matched(src: Any, dst: Any, op: str) -> tuple[Region, Region]:
    """Both arguments of `op` as regions with matching extents."""
    a, b = region_of(src, f"the source of {op}"), region_of(dst, f"the destination of {op}")
    if _is_head(src) and not _is_head(dst):
        a = _borrow(a, b.extents, "the source")
    elif _is_head(dst) and not _is_head(src):
        b = _borrow(b, a.extents, "the destination")
    check_match(a, b, op)
    return a, b


def _policy(policy: Any) -> int:
    try:
        return int(GemmWarpPolicy(policy))
    except ValueError:
        words = ", ".join(f"GemmWarpPolicy.{p.name}" for p in GemmWarpPolicy)
        raise _bad("option", "the policy of T.gemm", expected=words, got=repr(policy)) from None


def copy(
    src: Any,
    dst: Any,
    *,
    coalesced_width: int | None = None,
    disable_tma: bool = False,
    eviction_policy: str | None = None,
    prefer_instruction: str | None = None,
    annotations: dict[str, Any] | None = None,
    loop_layout: Any = None,
) -> None:
    """Copy `src` to `dst`, converting the dtype by value.

    Each is a buffer, a slice, or an element, which stands for the tile that begins there and takes
    the other side's extents. From an element to an element without hints is a store, also inside of
    T.Parallel and for one thread. In global memory, reads outside give 0 (or the annotated safe
    value) and writes outside do nothing. The keywords are hints and never change the result. Raises
    for extents that do not match.
    """
    builder = build.current("T.copy")
    if prefer_instruction not in (None, "tma", "cp_async", "sync"):
        raise _bad(
            "option",
            "prefer_instruction of T.copy",
            expected="'tma', 'cp_async' or 'sync'",
            got=repr(prefer_instruction),
        )
    if prefer_instruction == "tma" and disable_tma:
        raise _bad(
            "option",
            "T.copy with prefer_instruction='tma' and disable_tma=True",
            help="drop one of the two",
        )
    a, b = matched(src, dst, "T.copy")
    eviction(eviction_policy, "T.copy")
    notes = hints(
        annotations,
        coalesced_width=coalesced_width,
        disable_tma=disable_tma,
        eviction_policy=eviction_policy,
        prefer_instruction=prefer_instruction,
        loop_layout=loop_layout,
    )
    if _is_head(src) and _is_head(dst) and not notes and builder.dialect == Dialect.COMMON.value:
        value = as_expr(src, DType(b.dtype))
        builder.emit(tile.Store(b.buffer, b.mins, value, loc=here()))
    else:
        builder.emit(tile.Copy(a, b, hints=notes, loc=here()))


def fill(buffer: Any, value: Any, annotations: dict[str, Any] | None = None) -> None:
    """Set every element of a buffer, slice or variable to `value`, converted to its dtype."""
    builder = build.current("T.fill")
    note(annotations, "T.fill")
    dst = region_of(buffer, "the destination of T.fill")
    if not is_scalar(value):
        raise _bad("dtype", "the value of T.fill", expected="a scalar", got=describe(value))
    builder.emit(tile.Fill(dst, as_expr(value, DType(dst.dtype)), loc=here()))


def clear(buffer: Any, annotations: dict[str, Any] | None = None) -> None:
    """Set every element of a buffer, slice or variable to zero."""
    fill(buffer, 0, annotations)


def matrix(x: Any, letter: str, name: str = "T.gemm") -> Region:
    """Operand `letter` of the product `name`: the last two axes of a region, of known extents."""
    region = region_of(x, f"operand {letter} of {name}")
    if region.buffer.rank < 2:
        raise _bad(
            "shape",
            f"operand {letter} of {name} has one axis",
            expected="a matrix",
            got=shape_text(region.extents),
        )
    for e in region.extents[:-2]:
        if int_value(e) != 1:
            raise _bad(
                "shape",
                f"operand {letter} of {name} is not one matrix",
                expected="leading extents of 1",
                got=shape_text(region.extents),
                help=f"take one matrix of it: `{region.buffer.name}[k, :, :]`",
            )
    for e in region.extents[-2:]:
        if int_value(e) is None:
            raise _bad(
                "shape",
                f"operand {letter} of {name} has a size that is not known at compile time",
            )
    return region


def gemm(
    A: Any,
    B: Any,
    C: Any,
    transpose_A: bool = False,
    transpose_B: bool = False,
    policy: GemmWarpPolicy = GemmWarpPolicy.Square,
    clear_accum: Any = False,
    mbar: Any = None,
    annotations: dict[str, Any] | None = None,
) -> None:
    """`C += op(A) @ op(B)` on tiles, accumulated in the dtype of C; `clear_accum` (bool or value)
    starts from zero.

    A is (M, K), or (K, M) with `transpose_A`; B is (K, N), or (N, K) with `transpose_B`; C is (M,
    N). All extents are static. T.gemm waits by itself; with C in Tensor Memory it then completes
    an arrival of `mbar`, if given. Raises for shapes that do not fit or element types without a
    product.
    """
    builder = build.current("T.gemm")
    note(annotations, "T.gemm")
    a, b, c = matrix(A, "A"), matrix(B, "B"), matrix(C, "C")
    check_product(a, b, c, transpose_A, transpose_B)
    builder.emit(
        tile.Gemm(
            a,
            b,
            c,
            condition(clear_accum),
            transpose_a=bool(transpose_A),
            transpose_b=bool(transpose_B),
            policy=_policy(policy),
            loc=here(),
        )
    )
    if mbar is not None:
        arrive_after(builder, c, mbar)


def arrive_after(builder: Builder, c: Region, mbar: Any) -> None:
    """Products into Tensor Memory complete on the author's barrier; those of registers
    have none.
    """
    if memory_of(Dialect(builder.dialect), c.buffer.scope) is Memory.TMEM:
        builder.emit(MmaArrive(region_of(mbar, "the mbar of T.gemm"), loc=here()))
        return
    builder.warnings.append(
        warning(
            "option",
            f"T.gemm into {c.buffer.name} does not use its mbar",
            here(),
            help="leave `mbar` out: it belongs to products into Tensor Memory",
        )
    )


def operands(
    given: Sequence[Any], turned: Sequence[Any], name: str, *, pair: bool = False
) -> tuple[Region, Region, Region]:
    """A, B and C of a product as matrices whose shapes and dtypes agree.

    `turned` says whether A and B are transposed, and `pair` is as in `check_product`.
    """
    a, b, c = (matrix(x, letter, name) for x, letter in zip(given, "ABC", strict=True))
    ta, tb = (bool(t) for t in turned)
    check_product(a, b, c, ta, tb, name, pair=pair)
    return a, b, c


def narrow(x: Region, name: str) -> None:
    """Refuse an operand of a block-scaled product with other elements than floats of 8 bits or
    fewer.
    """
    if x.dtype.kind != "float" or x.dtype.bits > 8:
        raise _bad(
            "dtype", f"{name} of {x.dtype}", expected="floats of 8 bits or fewer", got=str(x.dtype)
        )


def check_product(
    a: Region, b: Region, c: Region, ta: bool, tb: bool, name: str = "T.gemm", *, pair: bool = False
) -> None:
    """Refuse operands whose shapes or dtypes have no product.

    Of a pair of blocks (`pair`), each holds half of the columns of B.
    """
    m, k = (plain(e) for e in (reversed(a.extents[-2:]) if ta else a.extents[-2:]))
    kb, n = (plain(e) for e in (reversed(b.extents[-2:]) if tb else b.extents[-2:]))
    cm, cn = (plain(e) for e in c.extents[-2:])
    n = n * 2 if pair else n
    for axis, left, right, sides in (
        ("M", m, cm, "A and C"),
        ("N", n, cn, "B and C"),
        ("K", k, kb, "A and B"),
    ):
        if left != right:
            raise _bad(
                "shape",
                f"{name} {axis} shape check failed: {sides} differ",
                label=f"A {shape_text(a.extents)}, B {shape_text(b.extents)},"
                f" C {shape_text(c.extents)}",
                expected=f"one extent for {axis}",
                got=f"{left} and {right}",
                help="`transpose_A=True` reads A as (K, M), `transpose_B=True` reads B as (N, K)",
            )
    kinds = {"float" if r.dtype.kind == "float" else "int" for r in (a, b)}
    accum = "float" if c.dtype.kind == "float" else "int"
    if any(
        r.dtype.kind not in ("float", "int", "uint") or r.dtype.lanes != 1 for r in (a, b, c)
    ) or kinds != {accum}:
        raise _bad(
            "dtype",
            f"{name} of {a.dtype} by {b.dtype} into {c.dtype}",
            expected="floats into a float, or integers into an integer",
            got=f"{a.dtype}, {b.dtype}, {c.dtype}",
        )


# -- reductions and scans --------------------------------------------------------------------------


def _axis(dim: Any, rank: int, what: str) -> int:
    if isinstance(dim, bool) or not isinstance(dim, int) or not -rank <= dim < rank:
        raise _bad(
            "shape", f"axis {dim} of {what}", expected=f"-{rank} to {rank - 1}", got=repr(dim)
        )
    return dim % rank


def reduce(
    buffer: Any,
    out: Any,
    reduce_type: str,
    dim: int,
    clear: bool,
    batch: int = 1,
    annotations: dict[str, Any] | None = None,
) -> None:
    """Reduce `buffer` along `dim` into `out`, in the dtype of `out`.

    `out` has the shape of `buffer` without `dim`, or with 1 there ((1,) for one axis). With
    `clear=False` the old value of `out` is combined in exactly once. The annotation `enable_fadd2`
    (sums of two at once) changes nothing. ValueError for another shape or an unknown `reduce_type`.
    """
    _reduce(buffer, out, reduce_type, dim, (clear, batch, False), annotations)


def _reduce(
    buffer: Any,
    out: Any,
    reduce_type: str,
    dim: int,
    settings: tuple[Any, int, Any],
    annotations: dict[str, Any] | None,
) -> None:
    clear, batch, nan_propagate = settings
    known(batch, f"the batch of T.reduce_{reduce_type}", 1, MOST)
    builder = build.current(f"T.reduce_{reduce_type}")
    try:
        op = tile.ReduceOp(reduce_type)
    except ValueError:
        words = ", ".join(o.value for o in tile.ReduceOp)
        raise _bad(
            "value", f"unknown reduction {reduce_type!r}", expected=words, got=repr(reduce_type)
        ) from None
    note(annotations, f"T.reduce_{reduce_type}", "enable_fadd2")  # sums of two: the same ones
    src, dst = (
        region_of(buffer, "the source of a reduction"),
        region_of(out, "the result of a reduction"),
    )
    axis = _axis(dim, src.buffer.rank, f"a reduction of {src.buffer.name}")
    _check_reduced(src, dst, axis)
    _check_reduce_dtype(op, src, dst, nan_propagate)
    builder.emit(
        tile.Reduce(
            op,
            src,
            dst,
            axis,
            clear=bool(clear),
            nan_propagate=bool(nan_propagate),
            batch=batch,
            loc=here(),
        )
    )


def _check_reduced(src: Region, dst: Region, axis: int) -> None:
    kept = [e for n, e in enumerate(src.extents) if n != axis]
    with_one = [const(1) if n == axis else e for n, e in enumerate(src.extents)]
    allowed = [with_one, kept or [const(1)]]
    if not any(_same_shape(dst.extents, shape) for shape in allowed):
        raise _bad(
            "shape",
            f"the result of a reduction of {src.buffer.name} {shape_text(src.extents)} along axis"
            f" {axis}",
            expected=" or ".join(shape_text(s) for s in reversed(allowed)),
            got=shape_text(dst.extents),
        )


def _same_shape(a: Sequence[Expr], b: Sequence[Expr]) -> bool:
    return len(a) == len(b) and all(same_extent(x, y) for x, y in zip(a, b, strict=True))


_BITWISE = frozenset({tile.ReduceOp.BITAND, tile.ReduceOp.BITOR, tile.ReduceOp.BITXOR})
_MINMAX = frozenset({tile.ReduceOp.MAX, tile.ReduceOp.MIN, tile.ReduceOp.ABSMAX})


def _check_reduce_dtype(op: tile.ReduceOp, src: Region, dst: Region, nan_propagate: bool) -> None:
    if op in _BITWISE and (src.dtype.kind == "float" or dst.dtype.kind == "float"):
        raise _bad(
            "dtype",
            f"T.reduce_{op.value} of {src.dtype} into {dst.dtype}",
            expected="integer or bool elements",
            got=f"{src.dtype} and {dst.dtype}",
            help="`T.reinterpret` gives the bits of a float as an integer",
        )
    if nan_propagate and (op not in _MINMAX or src.dtype.kind != "float"):
        raise _bad(
            "option",
            f"nan_propagate of T.reduce_{op.value} of {src.dtype}",
            expected="max, min or absmax of floats",
            got=f"{op.value} of {src.dtype}",
            help="leave it out: there is no NaN to propagate, or it propagates already",
        )


def reduce_sum(
    buffer: Any,
    out: Any,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    annotations: dict[str, Any] | None = None,
) -> None:
    """Sum along `dim`; see `reduce`."""
    reduce(buffer, out, "sum", dim, clear, batch, annotations)


def reduce_max(
    buffer: Any,
    out: Any,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    nan_propagate: bool = False,
    annotations: dict[str, Any] | None = None,
) -> None:
    """Maximum along `dim`, from -inf (or the least integer); NaN is dropped unless
    `nan_propagate`. See `reduce`.
    """
    _reduce(buffer, out, "max", dim, (clear, batch, nan_propagate), annotations)


def reduce_min(
    buffer: Any,
    out: Any,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    nan_propagate: bool = False,
    annotations: dict[str, Any] | None = None,
) -> None:
    """Minimum along `dim`, from +inf (or the greatest integer); NaN is dropped unless
    `nan_propagate`. See `reduce`.
    """
    _reduce(buffer, out, "min", dim, (clear, batch, nan_propagate), annotations)


def reduce_abssum(
    buffer: Any, out: Any, dim: int = -1, batch: int = 1, annotations: dict[str, Any] | None = None
) -> None:
    """Sum of absolute values along `dim`; always ignores the old value of `out`. See `reduce`."""
    reduce(buffer, out, "abssum", dim, True, batch, annotations)


def reduce_absmax(
    buffer: Any,
    out: Any,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    nan_propagate: bool = False,
    annotations: dict[str, Any] | None = None,
) -> None:
    """Maximum of absolute values along `dim`, from 0. See `reduce`."""
    _reduce(buffer, out, "absmax", dim, (clear, batch, nan_propagate), annotations)


def reduce_bitand(
    buffer: Any,
    out: Any,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    annotations: dict[str, Any] | None = None,
) -> None:
    """Bitwise and along `dim`, of integers or bools. See `reduce`."""
    reduce(buffer, out, "bitand", dim, clear, batch, annotations)


def reduce_bitor(
    buffer: Any,
    out: Any,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    annotations: dict[str, Any] | None = None,
) -> None:
    """Bitwise or along `dim`, of integers or bools. See `reduce`."""
    reduce(buffer, out, "bitor", dim, clear, batch, annotations)


def reduce_bitxor(
    buffer: Any,
    out: Any,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    annotations: dict[str, Any] | None = None,
) -> None:
    """Bitwise exclusive or along `dim`, of integers or bools. See `reduce`."""
    reduce(buffer, out, "bitxor", dim, clear, batch, annotations)


def _scan(
    op: tile.ScanOp, src: Any, dst: Any, dim: int, reverse: bool, annotations: dict[str, Any] | None
) -> None:
    builder = build.current(f"T.{op.value}")
    note(annotations, f"T.{op.value}")
    a = region_of(src, f"the source of T.{op.value}")
    b = a if dst is None else region_of(dst, f"the result of T.{op.value}")
    axis = _axis(dim, a.buffer.rank, f"T.{op.value} of {a.buffer.name}")
    if not _same_shape(a.extents, b.extents):
        raise _bad(
            "shape",
            f"the result of T.{op.value}",
            expected=shape_text(a.extents),
            got=shape_text(b.extents),
        )
    builder.emit(tile.Scan(op, a, b, axis, reverse=bool(reverse), loc=here()))


def cumsum(
    src: Any,
    dst: Any = None,
    dim: int = 0,
    reverse: bool = False,
    annotations: dict[str, Any] | None = None,
) -> None:
    """Inclusive running sum along `dim` (from the end with `reverse`) into `dst`, or in place."""
    _scan(tile.ScanOp.SUM, src, dst, dim, reverse, annotations)


def cummax(
    src: Any,
    dst: Any = None,
    dim: int = 0,
    reverse: bool = False,
    annotations: dict[str, Any] | None = None,
) -> None:
    """Inclusive running maximum along `dim` (from the end with `reverse`) into `dst`, or
    in place.
    """
    _scan(tile.ScanOp.MAX, src, dst, dim, reverse, annotations)


def transpose(src: Any, dst: Any, annotations: dict[str, Any] | None = None) -> None:
    """`dst[..., j, i] = src[..., i, j]`: exchanges the last two axes; leading axes stay."""
    builder = build.current("T.transpose")
    note(annotations, "T.transpose")
    a, b = region_of(src, "the source of T.transpose"), region_of(dst, "the result of T.transpose")
    if len(a.extents) < 2:
        raise _bad(
            "shape",
            "T.transpose of a tile with one axis",
            expected="at least 2 axes",
            got=shape_text(a.extents),
        )
    turned = (*a.extents[:-2], a.extents[-1], a.extents[-2])
    if not _same_shape(turned, b.extents):
        raise _bad(
            "shape",
            "the result of T.transpose",
            expected=shape_text(turned),
            got=shape_text(b.extents),
        )
    builder.emit(tile.Transpose(a, b, loc=here()))


def deallocate_tmem(tmem: Any) -> None:
    """Free a Tensor Memory buffer before the end of the block."""
    builder = build.current("T.deallocate_tmem")
    if not isinstance(tmem, BufferRef):
        raise _bad(
            "scope", "T.deallocate_tmem", expected="a buffer of T.alloc_tmem", got=describe(tmem)
        )
    builder.emit(tile.Free(tmem.buffer, loc=here()))


# -- views -----------------------------------------------------------------------------------------


def reshape(src: Any, shape: Any) -> BufferRef:
    """A second name for the storage of `src` with another shape of as many elements, in row-major
    order.
    """
    return view(src, shape)


def view(src: Any, shape: Any = None, dtype: Any = None, strides: Any = None) -> BufferRef:
    """A second name for the storage of `src` with another shape and dtype of as many bits.

    Without `shape`, the last axis is scaled by the ratio of the element sizes. ValueError where
    the bits differ.
    """
    build.current("T.view")
    if not isinstance(src, BufferRef):
        raise _bad("shape", f"T.view of {describe(src)}", expected="a buffer", got=describe(src))
    if strides is not None:
        raise _bad(
            "shape",
            "T.view(strides=...) is not supported",
            help="leave `strides` out for a row-major view",
        )
    element = DType(src.buffer.dtype if dtype is None else element_type(dtype))
    extents = src.buffer.shape if shape is None else shape_of(shape, "T.view")
    if shape is None and element.bits != src.buffer.dtype.bits:
        extents = _rescaled(src.buffer, element)
    return alias(src.buffer, extents, element)


def _rescaled(buffer: Buffer, element: DType) -> tuple[Expr, ...]:
    last = int_value(buffer.shape[-1])
    if last is None or last * buffer.dtype.bits % element.bits:
        raise _bad(
            "shape",
            f"the last axis of {buffer.name} does not hold whole elements of {element}",
            got=shape_text(buffer.shape),
        )
    return (*buffer.shape[:-1], const(last * buffer.dtype.bits // element.bits))
