"""Operations of `T.tile` that step through UB in repeats: 8 blocks of 32 bytes each, of which
`mask` elements take part.

What enters: an author's call with the strides of AscendC's repeats. What leaves: one operation on
runs of elements. Blocks and repeats that follow each other are what is built; other strides are
refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tilelang.errors import TileError, error
from tilelang.ir import tile
from tilelang.ir.expr import Binary, BinaryOp, Expr, Region, const, int_value
from tilelang.ir.simplify import equal, simplify
from tilelang.language.adapter import adapter_builder
from tilelang.language.adapter_tile import FUNCTIONS as ON_TILES
from tilelang.language.adapter_tile import (
    REFUSED,
    agree,
    elements,
    elements_of,
    emit,
    fill,
    first,
    flattened,
    gather_mask,
    tile_of,
)
from tilelang.language.alloc import alloc_ub
from tilelang.language.arguments import choice, integer, known
from tilelang.language.buffers import RegionRef, alias, here
from tilelang.language.later import Namespace
from tilelang.language.shapes import shape_text
from tilelang.language.values import Value

BLOCK = 32
"""Bytes of a block."""
BLOCKS = 8
"""Blocks of a repeat."""
REPEATS = 255


def _bad(kind: str, message: str, **facts: Any) -> TileError:
    return error(kind, message, here(), **facts)


def _product(a: Expr, b: int) -> Expr:
    return simplify(Binary(BinaryOp.MUL, a, const(b, a.dtype)))


def _repeats(count: Any, what: str) -> Expr:
    """The number of repeats; one that is known is checked against the width of the field."""
    e = simplify(integer(count, f"the repeats of {what}"))
    return const(known(count, f"the repeats of {what}", 0, REPEATS)) if int_value(e) else e


def _dense(what: str, times: Expr, **strides: tuple[Any, int]) -> None:
    """Blocks and repeats that follow each other; the stride of one repeat means nothing."""
    for name, (given, wanted) in strides.items():
        stride = known(given, f"the {name.replace('_', ' ')} of {what}", 0, (1 << 16) - 1)
        unused = int_value(times) == 1 and name.endswith("repeats")
        if stride != wanted and not unused:
            raise _bad(
                "option",
                f"{what} with {name.replace('_', ' ')} {stride}",
                expected=str(wanted),
                got=str(stride),
                help="copy the elements together first",
            )


def _matrix(run: Region, columns: int, what: str) -> Region:
    """A run of elements as rows of `columns`."""
    flat, start = flattened(run, what)
    total = flat.buffer.shape[0]
    size = const(columns, total.dtype)
    low = simplify(Binary(BinaryOp.FLOORDIV, start, size))
    if not equal(_product(low, columns), start):
        raise _bad(
            "layout",
            f"{what}: {run.buffer.name} does not begin at a row of {columns} elements",
            expected=f"a multiple of {columns} elements before it",
        )
    shape = simplify(Binary(BinaryOp.FLOORDIV, total, size)), size
    view = alias(flat.buffer, shape, flat.buffer.dtype).buffer
    rows = simplify(Binary(BinaryOp.FLOORDIV, elements(run), size))
    return Region(view, (low, const(0)), (rows, size), loc=run.loc)


def _lanes(r: Region, unit: int = BLOCK * BLOCKS) -> int:
    """Elements in so many bytes."""
    return unit // r.dtype.bytes


def brcb_experiment(
    dst: Any, src: Any, repeat_times: Any, dst_blk_stride: Any, dst_repeat_stride: Any
) -> None:
    """Fill a block of 32 bytes of `dst` with each of `8 * repeat_times` elements of `src`."""
    what = "T.tile.brcb_experiment"
    times = _repeats(repeat_times, what)
    _dense(
        what,
        times,
        stride_of_blocks=(dst_blk_stride, 1),
        stride_of_repeats=(dst_repeat_stride, BLOCKS),
    )
    d, s = tile_of(dst, f"the destination of {what}"), tile_of(src, f"the source of {what}")
    many, lanes = _product(times, BLOCKS), _lanes(d, BLOCK)
    column = _matrix(first(s, _value(many), what), 1, what)
    filled = _matrix(first(d, _value(_product(many, lanes)), what), lanes, what)
    if s.dtype != d.dtype:
        raise _bad("dtype", f"{what} of {s.dtype} into {d.dtype}", expected=str(d.dtype))
    emit("brcb_experiment", "brcb", filled, [column])


def _value(e: Expr) -> Any:
    """An expression as an argument."""
    number = int_value(e)
    return Value(e) if number is None else number


def gatherb(
    dst: Any,
    src0: Any,
    offset: Any,
    repeat_time: Any,
    dst_blk_stride: Any,
    dst_rep_stride: Any,
) -> None:
    """The blocks of 32 bytes of `src0` at the bytes that `8 * repeat_time` offsets name."""
    what = "T.tile.gatherb"
    times = _repeats(repeat_time, what)
    _dense(
        what,
        times,
        stride_of_blocks=(dst_blk_stride, 1),
        stride_of_repeats=(dst_rep_stride, BLOCKS),
    )
    d, s = tile_of(dst, f"the destination of {what}"), tile_of(src0, f"the source of {what}")
    at = tile_of(offset, f"the offsets of {what}")
    if s.dtype != d.dtype or at.dtype.kind not in ("int", "uint") or at.dtype.bits != 32:
        raise _bad(
            "dtype",
            f"{what} of {s.dtype} at {at.dtype} into {d.dtype}",
            expected=f"{d.dtype} at uint32 offsets in bytes",
            got=f"{s.dtype}, {at.dtype}",
        )
    many = _product(times, BLOCKS)
    emit(
        "gatherb",
        "gatherb",
        first(d, _value(_product(many, _lanes(d, BLOCK))), what),
        [s, first(at, _value(many), what)],
    )


def _block_reduce(op: str) -> Callable[..., None]:
    name = f"block_reduce_{op}"

    def fn(
        dst: Any,
        src: Any,
        repeat: Any,
        mask: Any,
        dstRepStride: Any,
        srcBlkStride: Any,
        srcRepStride: Any,
    ) -> None:
        what = f"T.tile.{name}"
        d, s = tile_of(dst, f"the destination of {what}"), tile_of(src, f"the source of {what}")
        times, taking = _run_of(what, s, repeat, mask, (srcBlkStride, srcRepStride))
        _dense(what, times, stride_of_result_repeats=(dstRepStride, 1))
        lanes = _lanes(s, BLOCK)
        if taking % lanes:
            raise _bad("option", f"the mask of {what}", expected=f"a multiple of {lanes}")
        blocks = _product(times, taking // lanes)
        if s.dtype != d.dtype:
            raise _bad("dtype", f"{what} of {s.dtype} into {d.dtype}", expected=str(d.dtype))
        emit(
            name,
            name,
            first(d, _value(blocks), what),
            [first(s, _value(_product(times, taking)), what)],
        )

    return _named(fn, name, f"The {op} of each block of 32 bytes, packed.")


def _run_of(
    what: str, src: Region, repeat: Any, mask: Any, strides: tuple[Any, Any]
) -> tuple[Expr, int]:
    """The repeats of a source, and how many elements of each take part: all up to the next repeat,
    unless there is one alone.
    """
    times = _repeats(repeat, what)
    lanes, per = _lanes(src), _lanes(src, BLOCK)
    taking = known(mask, f"the mask of {what}", 1, lanes)
    _dense(what, times, stride_of_blocks=(strides[0], 1))
    pitch = known(strides[1], f"the stride of repeats of {what}", 0, (1 << 16) - 1) * per
    if pitch != taking and int_value(times) != 1:
        raise _bad(
            "option",
            f"{what} of {taking} elements in repeats of {pitch}",
            expected=f"repeats that follow each other: {per} elements for each block of the stride",
            got=f"{taking} and {strides[1]}",
        )
    return times, taking


ORDERS = ("ORDER_VALUE_INDEX", "ORDER_ONLY_VALUE")


def _whole_reduce(op: tile.ReduceOp) -> Callable[..., None]:
    name = f"wholereduce{op.value}"

    def fn(
        dst: Any,
        src: Any,
        mask: Any,
        repeattimes: Any,
        dstrepstride: Any,
        srcblkstride: Any,
        srcrepstride: Any,
        ReduceOrder: str = ORDERS[0],
    ) -> None:
        what = f"T.tile.{name}"
        adapter_builder(what)
        d, s = tile_of(dst, f"the destination of {what}"), tile_of(src, f"the source of {what}")
        order = choice(ReduceOrder, f"the order of {what}", ORDERS)
        times, taking = _run_of(what, s, repeattimes, mask, (srcblkstride, srcrepstride))
        _dense(what, times, stride_of_result_repeats=(dstrepstride, 1))
        if s.dtype != d.dtype:
            raise _bad("dtype", f"{what} of {s.dtype} into {d.dtype}", expected=str(d.dtype))
        source = _matrix(first(s, _value(_product(times, taking)), what), taking, what)
        if op is tile.ReduceOp.SUM or order != ORDERS[0]:
            _reduced(op, source, first(d, _value(times), what))
            return
        emit(name, f"whole_reduce_{op.value}", first(d, _value(_product(times, 2)), what), [source])

    if op is tile.ReduceOp.SUM:

        def total(
            dst: Any,
            src: Any,
            mask: Any,
            repeattimes: Any,
            dstrepstride: Any,
            srcblkstride: Any,
            srcrepstride: Any,
        ) -> None:
            fn(dst, src, mask, repeattimes, dstrepstride, srcblkstride, srcrepstride)

        return _named(total, name, "The sum of the elements of each repeat, packed.")
    return _named(
        fn,
        name,
        f"The {op.value} of each repeat and, as bits, its first place; or the former alone.",
    )


def _reduced(op: tile.ReduceOp, src: Region, dst: Region, axis: int = 1) -> None:
    """The results along an axis of `src`, by default one for each row."""
    builder = adapter_builder("T.tile")
    builder.emit(tile.Reduce(op, src, dst, axis, clear=True, loc=here()))


def sub_experiment(dst: Any, src0: Any, src1: Any, count: Any) -> None:
    """`dst = src0 - src1` of the first `count` elements."""
    what = "T.tile.sub_experiment"
    d, a, b = (first(tile_of(x, f"a tile of {what}"), count, what) for x in (dst, src0, src1))
    agree("sub_experiment", d, [a, b])
    emit("sub_experiment", "sub", d, [a, b])


def reduce_sum_experiment(dst: Any, src: Any, count: Any) -> None:
    """The sum of the first `count` elements, into the first of `dst`."""
    what = "T.tile.reduce_sum_experiment"
    many = known(count, f"the count of {what}", 1, 1 << 20)
    d, s = tile_of(dst, f"the destination of {what}"), tile_of(src, f"the source of {what}")
    _sums(what, d, first(s, many, what), (1, many, many))


def reduce_sum_mask_experiment(
    dst: Any, src: Any, mask: Any, repeatTime: Any, srcRepStride: Any
) -> None:
    """The sum of the first `mask` elements of each of `repeatTime` repeats of `src`, which begin
    `srcRepStride` blocks of 32 bytes apart, into the first element of `dst`.
    """
    what = "T.tile.reduce_sum_mask_experiment"
    d, s = tile_of(dst, f"the destination of {what}"), tile_of(src, f"the source of {what}")
    if s.dtype != d.dtype:
        raise _bad("dtype", f"{what} of {s.dtype} into {d.dtype}", expected=str(d.dtype))
    many = known(repeatTime, f"the repeats of {what}", 1, REPEATS)
    taking = known(mask, f"the mask of {what}", 1, _lanes(s))
    part, total = _columns(s, many, srcRepStride, (0, taking), what), first(d, 1, what)
    if many > 1:
        sums = _scratch(d, many)
        _reduced(tile.ReduceOp.SUM, part, sums)
        part = sums
    _reduced(tile.ReduceOp.SUM, part, total, axis=len(part.extents) - 1)


def _columns(run: Region, many: int, stride: Any, taken: tuple[int, int], what: str) -> Region:
    """The elements `taken` (from the first, so many) of each of `many` repeats, `stride` blocks
    apart.
    """
    low, count = taken
    if many == 1:
        return _slice(run, low, count, what)
    pitch = known(stride, f"the stride of repeats of {what}", 1, REPEATS) * _lanes(run, BLOCK)
    if low + count > pitch:
        raise _bad(
            "option",
            f"{what}: repeats of {low + count} elements begin {pitch} apart",
            expected="repeats that do not overlap",
        )
    rows = _matrix(run, pitch, what)
    at = simplify(Binary(BinaryOp.ADD, rows.mins[1], const(low)))
    return Region(rows.buffer, (rows.mins[0], at), (const(many), const(count)), loc=run.loc)


def fill_experiment(
    dst: Any,
    value: Any,
    mask: Any,
    repeatTimes: Any,
    dstBlockStride: Any,
    dstRepeatStride: Any,
) -> None:
    """Set those of the 64 elements of each repeat to `value` whose bit of `mask[0]` is set, lowest
    first. Repeats begin `dstRepeatStride` blocks of 32 bytes apart.
    """
    what = "T.tile.fill_experiment"
    d = tile_of(dst, f"the destination of {what}")
    if d.dtype.bits != 32:
        raise _bad(
            "dtype",
            f"{what} of {d.dtype}",
            expected="elements of 32 bits: a repeat has 64 of them, and the mask 64 bits",
            got=str(d.dtype),
            help="T.tile.fill of a slice",
        )
    many = known(repeatTimes, f"the repeats of {what}", 1, REPEATS)
    bits = known(mask[0], f"the mask of {what}", 0, (1 << 64) - 1)
    _dense(what, const(many), stride_of_blocks=(dstBlockStride, 1))
    for run in re.finditer("1+", f"{bits:064b}"[::-1]):
        taken = (run.start(), run.end() - run.start())
        if taken[0] % _lanes(d, BLOCK):
            raise _bad(
                "option",
                f"{what}: the mask {bits:#x} names elements from {taken[0]} on",
                expected=f"from a multiple of {_lanes(d, BLOCK)} on: a block of 32 bytes",
                help="T.tile.select between two tiles takes any bits",
            )
        fill(RegionRef(_columns(d, many, dstRepeatStride, taken, what)), value)


def gathermask_experiment(
    dst: Any,
    src0: Any,
    src1Pattern: Any,
    reduceMode: bool,
    mask: Any,
    GatherMaskParams: Any,
    rsvdCnt: Any,
) -> None:
    """The elements of one repeat of `src0` whose bit of `src1Pattern` is set, packed to the front
    of `dst`: of 256 bytes, or with `reduceMode` of `mask` elements. `rsvdCnt` is not changed.
    """
    del rsvdCnt
    what = "T.tile.gathermask_experiment"
    s = tile_of(src0, f"the source of {what}")
    blocks, times, *_ = (known(x, f"a number of {what}", 0, 1 << 16) for x in GatherMaskParams)
    _dense(what, const(1), stride_of_blocks=(blocks, 1))
    if times != 1:
        raise _bad(
            "option",
            f"{what} in {times} repeats",
            expected="1: each repeat has blocks of its own in the pattern",
            got=str(times),
            help="with reduceMode one repeat may have any number of elements",
        )
    count = known(mask, f"the mask of {what}", 1, 1 << 20) if reduceMode else _lanes(s)
    gather_mask(dst, RegionRef(first(s, count, what)), src1Pattern)


def sum_experiment(dst: Any, src: Any, sumParams: Any) -> None:
    """`[rows, pitch, n]`: the sums of the first `n` elements of each row, packed."""
    what = "T.tile.sum_experiment"
    sizes = tuple(known(x, f"a size of {what}", 1, 1 << 20) for x in sumParams)
    if len(sizes) != 3 or sizes[2] > sizes[1]:
        raise _bad("option", f"the sizes of {what}", expected="[rows, pitch, n], n <= pitch")
    d, s = tile_of(dst, f"the destination of {what}"), tile_of(src, f"the source of {what}")
    _sums(what, d, first(s, sizes[0] * sizes[1], what), (sizes[0], sizes[1], sizes[2]))


def _sums(what: str, dst: Region, src: Region, sizes: tuple[int, int, int]) -> None:
    rows, pitch, n = sizes
    if src.dtype != dst.dtype:
        raise _bad("dtype", f"{what} of {src.dtype} into {dst.dtype}", expected=str(dst.dtype))
    if not equal(elements(src), elements_of((const(rows), const(pitch)))):
        raise _bad("shape", f"{what} of {shape_text(src.extents)}", expected=f"{rows} x {pitch}")
    if rows == 1:
        row = first(src, n, what)
        _reduced(tile.ReduceOp.SUM, row, first(dst, 1, what), axis=len(row.extents) - 1)
        return
    whole = _matrix(src, pitch, what)
    part = Region(whole.buffer, whole.mins, (whole.extents[0], const(n)), loc=src.loc)
    _reduced(tile.ReduceOp.SUM, part, first(dst, rows, what))


def bilinear_interpolation(
    dst: Any,
    src0: Any,
    src0_offset: Any,
    src1: Any,
    mask: Any,
    h_repeat: Any,
    repeat_mode: bool,
    dst_blk_stride: Any,
    v_r_offset: Any,
    v_repeat: Any,
) -> None:
    """Sums of `h_repeat` weighted lines of 8 blocks of `src0`, `v_repeat` of them `v_r_offset`
    elements apart. Offsets in bytes name the blocks; with `repeat_mode` each block has a weight of
    `src1`, else each line.

    It is made of gathered blocks, products and sums, each rounded, as AscendC makes it.
    """
    what = "T.tile.bilinear_interpolation"
    d, table = tile_of(dst, f"the destination of {what}"), tile_of(src0, f"the source of {what}")
    weights, at = (tile_of(x, f"an operand of {what}") for x in (src1, src0_offset))
    if {d.dtype.name, table.dtype.name, weights.dtype.name} != {"float16"}:
        raise _bad("dtype", f"{what} of {table.dtype}", expected="float16", got=str(d.dtype))
    line = _lanes(d)
    across, down = (known(x, f"the repeats of {what}", 1, REPEATS) for x in (h_repeat, v_repeat))
    _dense(what, const(2), stride_of_blocks=(dst_blk_stride, 1), mask=(mask, line))
    step = known(v_r_offset, f"the offset of {what}", line, (1 << 16) - 1)
    lines, blocks = across * down, across * down * BLOCKS
    taken, spread = (_scratch(d, lines * line) for _ in range(2))
    gatherb(RegionRef(taken), src0, RegionRef(first(at, blocks, what)), lines, 1, BLOCKS)
    if repeat_mode:
        of = first(weights, blocks, what)
        emit("brcb_experiment", "brcb", _matrix(spread, line // BLOCKS, what), [of])
        emit("mul", "mul", taken, [taken, spread])
    else:
        rows = _matrix(taken, line, what)
        emit("row_expand_mul", "row_expand_mul", rows, [rows, first(weights, lines, what)])
    for k in range(down):
        out = _slice(d, k * step, line, what)
        parts = [_slice(taken, (k * across + i) * line, line, what) for i in range(across)]
        adapter_builder(what).emit(tile.Copy(parts[0], out, loc=here()))
        for part in parts[1:]:
            emit("add", "add", out, [out, part])


def _scratch(like: Region, count: int) -> Region:
    return tile_of(alloc_ub((count,), like.dtype), "a scratch tile")


def _slice(run: Region, start: int, count: int, what: str) -> Region:
    """`count` elements of a run, from `start` on."""
    flat, low = flattened(run, what)
    begin = simplify(Binary(BinaryOp.ADD, low, const(start, low.dtype)))
    return Region(flat.buffer, (begin,), (const(count),), loc=run.loc)


def _named(fn: Callable[..., None], name: str, doc: str) -> Callable[..., None]:
    fn.__name__ = fn.__qualname__ = name
    fn.__doc__ = doc
    return fn


FUNCTIONS: dict[str, Callable[..., None]] = {
    function.__name__: function
    for function in (
        *(
            brcb_experiment,
            bilinear_interpolation,
            gatherb,
            sub_experiment,
            reduce_sum_experiment,
            reduce_sum_mask_experiment,
            sum_experiment,
            fill_experiment,
            gathermask_experiment,
        ),
        *(_block_reduce(op) for op in ("max", "min", "sum")),
        *(_whole_reduce(op) for op in (tile.ReduceOp.MAX, tile.ReduceOp.MIN, tile.ReduceOp.SUM)),
    )
}

namespace = Namespace("T.tile", REFUSED, {**ON_TILES, **FUNCTIONS})
"""`T.tile`."""
