"""`T.tile.*` of the Ascend adapter dialect: operations of the vector units on tiles in UB.

What enters: an author's call, destination first. What leaves: one node, a `VectorOp` of the row of
`ir/ascend.py` where the operation has one. `FUNCTIONS` has every name
that is built, `REFUSED` lists the rest of the dialect's. Elementwise operations walk their
regions row-major, and a scalar (or one element of a buffer) counts for every element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilelang.dtypes import DType
from tilelang.errors import TileError, error
from tilelang.ir import ascend, tile
from tilelang.ir.expr import Binary, BinaryOp, Cast, Expr, Load, Region, const, int_value
from tilelang.ir.simplify import equal, simplify
from tilelang.language.adapter import adapter_builder
from tilelang.language.alloc import alloc_ub
from tilelang.language.arguments import choice, known, memory, number
from tilelang.language.buffers import BufferRef, RegionRef, alias, here
from tilelang.language.shapes import shape_text
from tilelang.language.tileops import matched, region_of
from tilelang.language.values import Value, describe, is_scalar
from tilelang.scopes import Memory

UINT8 = DType("uint8")
ON_VECTOR = (Memory.UB, Memory.UB_OR_L1)


def _bad(kind: str, message: str, **facts: Any) -> TileError:
    return error(kind, message, here(), **facts)


# Arguments ---------------------------------------------------------------------------------------


def elements(region: Region) -> Expr:
    """The number of elements of a region."""
    total: Expr = const(1)
    for e in region.extents:
        total = simplify(Binary(BinaryOp.MUL, total, e))
    return total


def tile_of(x: Any, what: str) -> Region:
    """A buffer, slice or element of UB as a region."""
    adapter_builder(what.rpartition(" of ")[2])
    region = region_of(x, what)
    if memory(region.buffer) not in ON_VECTOR:
        raise _bad(
            "scope",
            f"{what} is {region.buffer.name}, which is in {memory(region.buffer).title}",
            expected="a tile in the Unified Buffer (UB)",
            got=f"{memory(region.buffer).title} ({region.buffer.scope})",
            help="copy it into a buffer of T.alloc_ub first",
        )
    return region


def source(x: Any, dtype: DType, what: str) -> Region | Expr:
    """A tile, or a scalar (also one element of a buffer) converted to `dtype`."""
    if isinstance(x, (BufferRef, RegionRef)):
        return tile_of(x, what)
    if is_scalar(x):
        return number(x, what, dtype)
    raise _bad("dtype", f"{what} is {describe(x)}", expected="a tile or a scalar", got=describe(x))


def first(region: Region, count: Any, what: str) -> Region:
    """The first `count` elements of a region, row-major; the whole where it has as many."""
    many = number(count, f"the count of {what}")
    if equal(elements(region), many):
        return region
    inner = simplify(many)
    if all(int_value(e) == 1 for e in region.extents[:-1]):
        return Region(region.buffer, region.mins, (*region.extents[:-1], inner), loc=region.loc)
    flat, start = flattened(region, what)
    return Region(flat.buffer, (start,), (inner,), loc=region.loc)


def flattened(region: Region, what: str) -> tuple[BufferRef, Expr]:
    """A region whose elements lie side by side: its buffer as one axis, and where it begins."""
    buffer = region.buffer
    wide = [k for k, e in enumerate(region.extents) if int_value(e) != 1]
    inside = range(wide[0] + 1 if wide else buffer.rank, buffer.rank)
    if not all(equal(region.extents[k], buffer.shape[k]) for k in inside):
        raise _bad(
            "shape",
            f"{what} counts elements of a slice of {buffer.name} that lie apart",
            expected="a slice of whole rows",
            got=shape_text(region.extents),
        )
    total: Expr = const(1)
    start: Expr = const(0)
    for size, low in zip(buffer.shape, region.mins, strict=True):
        total = simplify(Binary(BinaryOp.MUL, total, size))
        start = simplify(Binary(BinaryOp.ADD, Binary(BinaryOp.MUL, start, size), low))
    flat = BufferRef(buffer) if buffer.rank == 1 else alias(buffer, (total,), buffer.dtype)
    return flat, start


def agree(name: str, dst: Region, srcs: Sequence[Region | Expr]) -> None:
    """Refuse sources of another dtype or another number of elements than `dst`."""
    for n, src in enumerate(srcs):
        if not isinstance(src, Region):
            continue
        which = f"source {n} of T.tile.{name}"
        if src.dtype != dst.dtype:
            raise _bad(
                "dtype",
                f"{which} is {src.dtype}, its destination {dst.dtype}",
                expected=str(dst.dtype),
                got=str(src.dtype),
                help="convert it with T.tile.cast first",
            )
        _same_count(which, src, dst)


def _same_count(which: str, src: Region, dst: Region) -> None:
    a, b = int_value(elements(src)), int_value(elements(dst))
    if a is not None and b is not None and a != b:
        raise _bad(
            "shape",
            f"{which} has another number of elements than its destination {dst.buffer.name}",
            expected=f"{b} elements, {shape_text(dst.extents)}",
            got=f"{a} elements, {shape_text(src.extents)}",
        )


def emit(
    name: str, op: str, dst: Region, srcs: Sequence[Region | Expr], **imm: str | int | bool
) -> None:
    """Emit one vector operation."""
    builder = adapter_builder(f"T.tile.{name}")
    given = tuple((k, v) for k, v in imm.items())
    builder.emit(ascend.VectorOp(op, dst, tuple(srcs), imm=given, loc=here()))


# Families ----------------------------------------------------------------------------------------


def _unary(name: str, op: str) -> Callable[..., None]:
    def fn(dst: Any, src0: Any) -> None:
        d = tile_of(dst, f"the destination of T.tile.{name}")
        s = tile_of(src0, f"the source of T.tile.{name}")
        agree(name, d, [s])
        emit(name, op, d, [s])

    return fn


def _binary(name: str, op: str) -> Callable[..., None]:
    def fn(dst: Any, src0: Any, src1: Any) -> None:
        d = tile_of(dst, f"the destination of T.tile.{name}")
        a = tile_of(src0, f"source 0 of T.tile.{name}")
        b = source(src1, d.dtype, f"source 1 of T.tile.{name}")
        agree(name, d, [a, b])
        emit(name, op, d, [a, b])

    return fn


def _scalar(name: str, op: str) -> Callable[..., None]:
    def fn(dst: Any, src0: Any, scalar_value: Any) -> None:
        d = tile_of(dst, f"the destination of T.tile.{name}")
        a = tile_of(src0, f"the source of T.tile.{name}")
        agree(name, d, [a])
        emit(name, op, d, [a, number(scalar_value, f"the scalar of T.tile.{name}", d.dtype)])

    return fn


def _counted(name: str, op: str, scalars: int = 0) -> Callable[..., None]:
    """`(dst, src, scalars..., count)`."""

    def fn(dst: Any, src: Any, *rest: Any) -> None:
        what = f"T.tile.{name}"
        if len(rest) != scalars + 1:
            raise _bad("option", f"{what} of {len(rest) + 2} arguments", expected=str(scalars + 3))
        d = first(tile_of(dst, f"the destination of {what}"), rest[-1], what)
        s = first(tile_of(src, f"the source of {what}"), rest[-1], what)
        agree(name, d, [s])
        numbers = [number(x, f"a scalar of {what}", d.dtype) for x in rest[:-1]]
        emit(name, op, d, [s, *numbers])

    return fn


def _row_expand(name: str, op: str) -> Callable[..., None]:
    def fn(dst: Any, src0: Any, src1: Any, tmp: Any = None) -> None:
        what = f"T.tile.{name}"
        d, a = tile_of(dst, f"the destination of {what}"), tile_of(src0, f"source 0 of {what}")
        row = tile_of(src1, f"source 1 of {what}")
        agree(name, d, [a])
        if tmp is None and name.endswith("_experiment") and _is_filled(row, d):
            _row_blocks(name, op.removeprefix("row_expand_"), d, a, row)
            return
        rows = simplify(Binary(BinaryOp.MUL, elements(row), d.extents[-1]))
        if row.dtype != d.dtype or not equal(rows, elements(d)):
            raise _bad(
                "shape",
                f"source 1 of {what} is {row.dtype}{shape_text(row.extents)}",
                expected=f"one {d.dtype} for each row of {shape_text(d.extents)}",
                got=f"{row.dtype}{shape_text(row.extents)}",
            )
        if tmp is not None:
            tile_of(tmp, f"the scratch of {what}")  # the operation needs none here
        emit(name, op, d, [a, row])

    return fn


def _is_filled(row: Region, d: Region) -> bool:
    """Whether a tile has a block of 32 bytes for each row, as T.tile.brcb_experiment makes it."""
    lanes, shape = 32 // d.dtype.bytes, [e for e in row.extents if int_value(e) != 1]
    return len(shape) == 2 and int_value(shape[1]) == lanes and equal(shape[0], d.extents[-2])


def _row_blocks(name: str, op: str, d: Region, a: Region, row: Region) -> None:
    """Every block of a row with the one block that `row` has for it."""
    lanes, columns = int_value(row.extents[-1]) or 1, int_value(d.extents[-1])
    if columns is None or columns % lanes:
        raise _bad(
            "shape",
            f"T.tile.{name} of rows of {shape_text(d.extents[-1:])}",
            expected=f"a multiple of {lanes} elements",
        )
    for k in range(columns // lanes):
        dst, src = (_columns(r, k * lanes, lanes) for r in (d, a))
        emit(name, op, dst, [src, row])


def _columns(r: Region, start: int, count: int) -> Region:
    """`count` columns of a region."""
    low = simplify(Binary(BinaryOp.ADD, r.mins[-1], const(start, r.mins[-1].dtype)))
    return Region(r.buffer, (*r.mins[:-1], low), (*r.extents[:-1], const(count)), loc=r.loc)


# Operations with a shape of their own ------------------------------------------------------------


def fill(buffer: Any, value: Any) -> None:
    """Set every element of a tile to `value`, a scalar or a tile of one element, converted to its
    dtype.
    """
    builder = adapter_builder("T.tile.fill")
    dst = tile_of(buffer, "the destination of T.tile.fill")
    what = "the value of T.tile.fill"
    if isinstance(value, (BufferRef, RegionRef)):
        one = tile_of(value, what)
        if all(int_value(e) == 1 for e in one.extents):
            value = Value(Load(one.buffer, one.mins))
    builder.emit(tile.Fill(dst, number(value, what, DType(dst.dtype)), loc=here()))


def clear(buffer: Any) -> None:
    """Set every element of a tile to zero."""
    fill(buffer, 0)


def axpy(dst: Any, src0: Any, scalar_value: Any) -> None:
    """`dst += scalar_value * src0`; the source and the scalar may be float16 beside float32."""
    d, a = (
        tile_of(dst, "the destination of T.tile.axpy"),
        tile_of(src0, "the source of T.tile.axpy"),
    )
    scale = number(scalar_value, "the scalar of T.tile.axpy", a.dtype)
    (a,) = _beside(d, [a])
    agree("axpy", d, [a])
    emit("axpy", "axpy", d, [a, scale if scale.dtype == d.dtype else Cast(scale, d.dtype)])


def _beside(dst: Region, srcs: Sequence[Region]) -> list[Region]:
    """Sources for an operation that adds products to `dst`: of float16 beside float32 they are
    converted, and products of two are exact then.
    """
    if dst.dtype.name != "float32" or any(s.dtype.name != "float16" for s in srcs):
        return list(srcs)
    return [_converted(s, dst.dtype) for s in srcs]


def _converted(src: Region, dtype: DType) -> Region:
    """A tile of UB with the elements of `src`, as another type."""
    made = region_of(alloc_ub([Value(e) for e in src.extents], dtype), "a scratch tile")
    adapter_builder("T.tile").emit(ascend.Transfer(src, made, rounding="CAST_NONE", loc=here()))
    return made


def cast(dst: Any, src: Any, mode: str, count: Any) -> None:
    """Convert the first `count` elements of `src` to the dtype of `dst`, rounding by `mode`."""
    builder = adapter_builder("T.tile.cast")
    rounding = choice(mode, "the mode of T.tile.cast", ascend.ROUNDINGS)
    d = first(tile_of(dst, "the destination of T.tile.cast"), count, "T.tile.cast")
    s = first(tile_of(src, "the source of T.tile.cast"), count, "T.tile.cast")
    check_cast(s, d, rounding, "T.tile.cast")
    builder.emit(ascend.Transfer(s, d, rounding=rounding, loc=here()))


def check_cast(src: Region, dst: Region, rounding: str, what: str) -> None:
    """Refuse a conversion, or a mode of one, that the vector units do not have; "" is any mode."""
    known = ascend.VECTOR_CASTS.get(src.dtype.name, {})
    modes = known.get(dst.dtype.name, ())
    if src.dtype == dst.dtype and not modes:
        return
    if not modes or (rounding and rounding not in modes):
        raise _bad(
            "dtype",
            f"{what} of {src.dtype} to {dst.dtype}{f' by {rounding}' if modes else ''}",
            expected=f"{', '.join(modes or known) or 'nothing'} (AscendC Cast, on A2 and A3)",
            got=rounding if modes else str(dst.dtype),
            help="" if modes else "go by way of another type",
        )


def round(out: Any, buffer: Any, count: Any) -> None:
    """Round the first `count` elements to integral values, ties to even."""
    _counted("round", "round")(out, buffer, count)


COMPARISONS = ("EQ", "NE", "GT", "GE", "LT", "LE")


def _mask(x: Any, values: Region, what: str) -> Region:
    """A mask: bytes (or larger integers) with one bit for each of `values`."""
    mask = tile_of(x, what)
    bits, many = int_value(elements(mask)), int_value(elements(values))
    room = None if bits is None else bits * mask.dtype.bits
    if not mask.dtype.is_integer or (room is not None and many is not None and room < many):
        raise _bad(
            "shape",
            f"{what} is {mask.dtype}{shape_text(mask.extents)}",
            expected=f"integers with a bit for each of {shape_text(values.extents)}",
            got=f"{mask.dtype}{shape_text(mask.extents)}",
        )
    return mask


def compare(dst: Any, src0: Any, src1: Any, mode: str) -> None:
    """Set the bit of each element for which `src0 <mode> src1` holds; bits are packed, lowest
    first, into the bytes of `dst`. Modes are EQ, NE, GT, GE, LT and LE.
    """
    how = choice(mode, "the mode of T.tile.compare", COMPARISONS)
    a = tile_of(src0, "source 0 of T.tile.compare")
    b = source(src1, a.dtype, "source 1 of T.tile.compare")
    d = _mask(dst, a, "the destination of T.tile.compare")
    agree("compare", a, [b])
    emit("compare", "compare", d, [a, b], mode=how)


SELECTIONS = ("VSEL_CMPMASK_SPR", "VSEL_TENSOR_SCALAR_MODE", "VSEL_TENSOR_TENSOR_MODE")


def select(dst: Any, selMask: Any, src0: Any, src1: Any, selMode: str) -> None:
    """`src0` where the element's bit of `selMask` is set, else `src1`.

    `src1` is a scalar in the mode VSEL_TENSOR_SCALAR_MODE alone.
    """
    how = choice(selMode, "the mode of T.tile.select", SELECTIONS)
    d = tile_of(dst, "the destination of T.tile.select")
    a = tile_of(src0, "source 0 of T.tile.select")
    b = source(src1, d.dtype, "source 1 of T.tile.select")
    if isinstance(b, Region) == (how == SELECTIONS[1]):
        wanted = "a scalar" if how == SELECTIONS[1] else "a tile"
        raise _bad("option", f"source 1 of T.tile.select in mode {how}", expected=wanted)
    agree("select", d, [a, b])
    mask = _mask(selMask, d, "the mask of T.tile.select")
    emit("select", "select", d, [mask, a, b], mode=how)


def gather(dst: Any, src: Any, src_offset: Any, src_base_addr: Any) -> None:
    """`dst[i]` is the element of `src` at byte `src_base_addr + src_offset[i]`.

    As many elements as the smaller of `dst` and `src_offset` has.
    """
    what = "T.tile.gather"
    d, s = tile_of(dst, f"the destination of {what}"), tile_of(src, f"the source of {what}")
    at = tile_of(src_offset, f"the offsets of {what}")
    if s.dtype != d.dtype or at.dtype.kind not in ("int", "uint") or at.dtype.bits != 32:
        raise _bad(
            "dtype",
            f"{what} of {s.dtype} at {at.dtype} into {d.dtype}",
            expected=f"{d.dtype} at uint32 offsets in bytes",
            got=f"{s.dtype}, {at.dtype}",
        )
    a, b = int_value(elements(d)), int_value(elements(at))
    if a is not None and b is not None and a != b:
        d, at = first(d, min(a, b), what), first(at, min(a, b), what)
    emit("gather", "gather", d, [s, at, number(src_base_addr, f"the base of {what}")])


PATTERNS = ("P0101", "P1010", "P0001", "P0010", "P0100", "P1000", "P1111")


def gather_mask(dst: Any, src: Any, src1Pattern: Any) -> None:
    """The elements of `src` that a pattern (P0101 takes the even ones) or a mask of uint32 bits
    names, packed to the front of `dst`.
    """
    what = "T.tile.gather_mask"
    d, s = tile_of(dst, f"the destination of {what}"), tile_of(src, f"the source of {what}")
    if isinstance(src1Pattern, str):
        pattern = choice(src1Pattern, f"the pattern of {what}", PATTERNS)
        emit("gather_mask", "gather_mask", d, [s], pattern=pattern)
        return
    emit("gather_mask", "gather_mask", d, [s, _mask(src1Pattern, s, f"the mask of {what}")])


def createvecindex(dst: Any, firstValue: Any) -> None:
    """`firstValue, firstValue + 1, ...` over the tile."""
    d = tile_of(dst, "the destination of T.tile.createvecindex")
    value = number(firstValue, "the first value of T.tile.createvecindex", d.dtype)
    emit("createvecindex", "createvecindex", d, [value])


def arith_progression(buffer: Any, first_value: Any, diff_value: Any, count: Any) -> None:
    """`first_value, first_value + diff_value, ...`, `count` of them."""
    what = "T.tile.arith_progression"
    d = first(tile_of(buffer, f"the destination of {what}"), count, what)
    numbers = [number(x, f"a value of {what}", d.dtype) for x in (first_value, diff_value)]
    emit("arith_progression", "arith_progression", d, numbers)


def broadcast(dst: Any, src: Any, axis: Any = None) -> None:
    """Repeat `src` over `dst` along `axis` (0 or 1 of the last two): one row down the rows, or one
    column across. Without `axis`, the one along which `src` has extent 1.
    """
    what = "T.tile.broadcast"
    d, s = tile_of(dst, f"the destination of {what}"), tile_of(src, f"the source of {what}")
    along = None if axis is None else known(axis, f"the axis of {what}", 0, 1)
    if s.dtype != d.dtype:
        raise _bad("dtype", f"{what} of {s.dtype} into {d.dtype}", expected=str(d.dtype))
    emit("broadcast", "broadcast", d, [_column_or_row(s, d, along, what)])


def _column_or_row(s: Region, d: Region, along: int | None, what: str) -> Region:
    """The source of a broadcast with the axes of its destination, of extent 1 where it repeats."""
    rows, columns = ([const(1)] * 2 + list(d.extents))[-2:]
    count = elements(s)
    shapes = {0: (const(1), columns), 1: (rows, const(1))}
    fits = [k for k in (0, 1) if along in (None, k) and equal(count, elements_of(shapes[k]))]
    written = [k for k in fits if _ends(s, shapes[k])]
    chosen = (written or fits)[:1]
    if equal(count, elements(d)):
        return s
    if int_value(count) == 1:
        chosen = [0]
        shapes = {0: (const(1), const(1))}
    if not chosen:
        raise _bad(
            "shape",
            f"{what} of {shape_text(s.extents)} over {shape_text(d.extents)}",
            expected=f"{shape_text(shapes[0])} or {shape_text(shapes[1])}",
            got=shape_text(s.extents),
        )
    shape = shapes[chosen[0]]
    if _ends(s, shape):
        return s
    flat, start = flattened(s, what)
    view = alias(flat.buffer, _folded(flat.buffer.shape[0], shape), flat.buffer.dtype)
    first_row = simplify(Binary(BinaryOp.FLOORDIV, start, elements_of(shape)))
    low = (first_row, const(0)) if chosen[0] == 0 else (start, const(0))
    return Region(view.buffer, low, shape, loc=s.loc)


def _folded(total: Expr, shape: tuple[Expr, Expr]) -> tuple[Expr, Expr]:
    """`total` elements as a matrix with the columns of `shape`."""
    return simplify(Binary(BinaryOp.FLOORDIV, total, shape[1])), shape[1]


def elements_of(shape: Sequence[Expr]) -> Expr:
    """The number of elements of a shape."""
    total: Expr = const(1)
    for e in shape:
        total = simplify(Binary(BinaryOp.MUL, total, e))
    return total


def _ends(region: Region, shape: tuple[Expr, Expr]) -> bool:
    """Whether the last two extents are those of `shape`, and the others 1."""
    lead, last = region.extents[:-2], region.extents[-2:]
    return (
        len(last) == 2
        and all(int_value(e) == 1 for e in lead)
        and all(equal(a, b) for a, b in zip(last, shape, strict=True))
    )


def transpose(dst: Any, src: Any) -> None:
    """`dst[j, i] = src[i, j]`."""
    what = "T.tile.transpose"
    d, s = tile_of(dst, f"the destination of {what}"), tile_of(src, f"the source of {what}")
    agree("transpose", d, [s])
    emit("transpose", "transpose", d, [s])


def mul_add_dst(dst: Any, src0: Any, src1: Any) -> None:
    """`dst += src0 * src1`; the sources may be float16 beside float32."""
    d = tile_of(dst, "the destination of T.tile.mul_add_dst")
    a, b = _beside(d, [tile_of(x, "a source of T.tile.mul_add_dst") for x in (src0, src1)])
    agree("mul_add_dst", d, [a, b])
    emit("mul_add_dst", "mul_add_dst", d, [a, b])


def atomic_add(dst: Any, src: Any) -> None:
    """Add a tile of UB or L0C to a tile of global memory, each element in one piece."""
    builder = adapter_builder("T.tile.atomic_add")
    s, d = matched(src, dst, "T.tile.atomic_add")
    if d.buffer.scope != "global" or s.buffer.scope == "global":
        raise _bad(
            "scope",
            f"T.tile.atomic_add of {s.buffer.name} to {d.buffer.name}",
            expected="a tile on chip added to global memory",
            got=f"{memory(s.buffer).title} and {memory(d.buffer).title}",
        )
    builder.emit(tile.Atomic(tile.AtomicOp.ADD, d, s, loc=here()))


# Sorting -----------------------------------------------------------------------------------------


def sort32(dst: Any, src0: Any, src1: Any) -> None:
    """Pairs (value, index) of `src0` and `src1`, each 32 sorted downwards."""
    d = tile_of(dst, "the destination of T.tile.sort32")
    emit("sort32", "sort32", d, [tile_of(x, "a source of T.tile.sort32") for x in (src0, src1)])


def sort(dst: Any, src: Any, actual_num: Any) -> None:
    """Pairs (value, position) of the first `actual_num` elements of `src`, sorted downwards."""
    d, s = tile_of(dst, "the destination of T.tile.sort"), tile_of(src, "the source of T.tile.sort")
    emit("sort", "sort", d, [s, number(actual_num, "the count of T.tile.sort")])


def merge_sort(dst: Any, src0: Any, src1: Any, src2: Any = None, src3: Any = None) -> None:
    """Two to four sorted lists of pairs (value, index), merged downwards."""
    given = [x for x in (src0, src1, src2, src3) if x is not None]
    d = tile_of(dst, "the destination of T.tile.merge_sort")
    emit("merge_sort", "merge_sort", d, [tile_of(x, "a list of T.tile.merge_sort") for x in given])


def topk(dst: Any, src: Any, K: Any, actual_num: Any) -> None:
    """The first `K` pairs (value, position) of `T.tile.sort` of `actual_num` elements."""
    d, s = tile_of(dst, "the destination of T.tile.topk"), tile_of(src, "the source of T.tile.topk")
    emit("topk", "topk", d, [s, *(number(x, "a count of T.tile.topk") for x in (K, actual_num))])


# The namespace -----------------------------------------------------------------------------------


def _named(name: str, function: Callable[..., None], doc: str) -> Callable[..., None]:
    """A function of a family under its own name, with its own sentence."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc[:1].upper() + doc[1:]
    return function


def _family(make: Callable[[str, str], Callable[..., None]], names: str) -> list[Any]:
    """Functions for `name` or `name=op`, each documented by the row of its operation."""
    found: list[Callable[..., None]] = []
    for word in names.split():
        name, _, op = word.partition("=")
        fn = ascend.VECTOR_OPS[op or name]
        found.append(_named(name, make(name, fn.name), f"{fn.doc} (AscendC {fn.source})."))
    return found


def _counts(name: str, op: str, scalars: int, doc: str) -> Callable[..., None]:
    return _named(name, _counted(name, op, scalars), doc)


FUNCTIONS: dict[str, Callable[..., None]] = {
    function.__name__: function
    for function in (
        *_family(_unary, "exp ln abs reciprocal sqrt rsqrt relu bitwise_not sigmoid silu sin cos"),
        *_family(_binary, "add sub mul div max min bitwise_and bitwise_or bitwise_xor pow"),
        *_family(_scalar, "leaky_relu bitwise_lshift bitwise_rshift"),
        *_family(
            _row_expand,
            "row_expand_mul row_expand_mul_experiment=row_expand_mul"
            " row_expand_sub_experiment=row_expand_sub row_expand_div_experiment=row_expand_div",
        ),
        _counts("clamp", "clamp", 2, "`(out, x, low, high, count)`: min(max(x, low), high)."),
        _counts("clamp_max", "min", 1, "`(out, x, high, count)`: min(x, high)."),
        _counts("clamp_min", "max", 1, "`(out, x, low, count)`: max(x, low)."),
        _counts("abs_experiment", "abs", 0, "`(dst, x, count)`: the absolute value."),
        _counts("mins_experiment", "min", 1, "`(dst, x, scalar, count)`: min(x, scalar)."),
        *(fill, clear, axpy, cast, round, compare, select, gather, gather_mask),
        *(createvecindex, arith_progression, broadcast, transpose, mul_add_dst, atomic_add),
        *(sort32, sort, merge_sort, topk),
    )
}

REFUSED = """
    brcb init_sort_buf datacachecleanandinvalid_experiment
"""
