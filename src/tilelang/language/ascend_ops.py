"""Copies and products of the mainline Ascend dialect: the common ones with the machine's own forms.

A copy that the common `T.copy` can say is the common node; what needs a transfer of the hardware
(a transpose, a pad value, halves for the two vector cores) is a `Transfer`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilelang.dtypes import DType
from tilelang.errors import TileValueError
from tilelang.ir import ascend, tile
from tilelang.ir.expr import Bitcast, Cast, Expr, Region, const, int_value
from tilelang.ir.simplify import equal, simplify
from tilelang.language.arguments import (
    choice,
    hints,
    integer,
    known,
    launch_of,
    launched,
    note,
    number,
    place,
    refuse,
)
from tilelang.language.arguments import memory as memory_of
from tilelang.language.ascend import VECTOR_CORES
from tilelang.language.buffers import BufferRef, here, plain, whole
from tilelang.language.shapes import check_match, shape_text
from tilelang.language.tileops import GemmWarpPolicy, check_product, matched, matrix, region_of
from tilelang.language.values import Value, as_expr, condition
from tilelang.scopes import Memory

# Cache policies of loads and of stores (CANN asc-devkit, asc_load_l2_cache_mode and
# asc_store_l2_cache_mode); a name may be given by its end.
L2_CACHE: dict[str, int] = {
    "NORMAL_FV": 0, "NORMAL_LV": 1, "NORMAL_PERS": 2, "NORMAL_PREF": 3, "NOTALLOC_KEEP": 4,
    "NOTALLOC_CLEAN": 5, "NOTALLOC_DROP": 6, "IDS_FV": 8, "IDS_LV": 9, "IDS_PERS": 10,
    "IDS_PREF": 11, "EXCLUSIV_FV": 12, "EXCLUSIV_LV": 13, "EXCLUSIV_PERS": 14,
    "EXCLUSIV_PREF": 15, "INVALID": 16, "NORMAL_RED": 3, "NOTALLOC_CI": 4, "NOTALLOC_PW": 5,
    "NOTALLOC_PI": 6, "NOTALLOC_RED": 7, "WBH_FV": 8, "WBH_LV": 9, "WBH_PERS": 10, "WBH_RED": 11,
    "WTS_FV": 12, "WTS_LV": 13, "WTS_PERS": 14, "WTS_RED": 15,
}  # fmt: skip
_UNIT_FLAGS = (0, 2, 3)


def _cache(given: Any, what: str) -> int | None:
    if given is None:
        return None
    if isinstance(given, str):
        word = given.upper()
        found = [code for name, code in L2_CACHE.items() if word == name or word.endswith(name)]
        if found:
            return found[0]
    elif isinstance(given, int) and not isinstance(given, bool) and 0 <= given <= 16:
        return given
    raise refuse(
        "value",
        f"the l2_cache_ctrl of {what}",
        cls=TileValueError,
        expected=f"0 to 16, or one of {', '.join(L2_CACHE)}",
        got=repr(given),
    )


def unit_flag(given: Any, what: str) -> int | None:
    """0: flags order product and drain; 2 and 3: the hardware does, for the parts of a tile."""
    if given is None:
        return None
    value = known(given, f"the unit_flag_ctrl of {what}", 0, 3)
    if value not in _UNIT_FLAGS:
        raise refuse("value", f"the unit_flag_ctrl of {what}", expected="0, 2 or 3", got=str(value))
    return value


def _count(shape: Sequence[Expr]) -> Expr:
    total: Any = 1
    for e in shape:
        total = total * plain(e)
    return as_expr(total)


def _regions(src: Any, dst: Any) -> tuple[Region, Region, bool]:
    """Both sides, and whether their axes match; of whole buffers only the counts need to."""
    if not (isinstance(src, BufferRef) and isinstance(dst, BufferRef)):
        return (*matched(src, dst, "T.copy"), True)
    a, b = whole(src.buffer), whole(dst.buffer)
    if not equal(_count(a.extents), _count(b.extents)):
        raise refuse(
            "shape",
            f"T.copy from {src.name} to {dst.name}, which have different numbers of elements",
            cls=TileValueError,
            expected=shape_text(b.extents),
            got=shape_text(a.extents),
            help="copy a slice of the larger one",
        )
    kept = [[e for e in r.extents if int_value(e) != 1] for r in (a, b)]
    fits = len(kept[0]) == len(kept[1]) and all(
        equal(x, y) for x, y in zip(kept[0], kept[1], strict=True)
    )
    if fits:
        check_match(a, b, "T.copy")
    return a, b, fits


def copy(
    src: Any,
    dst: Any,
    *,
    coalesced_width: int | None = None,
    transpose: bool = False,
    l2_cache_ctrl: Any = None,
    unit_flag_ctrl: Any = None,
    sub_blockid: Any = None,
    pad_value: Any = None,
    data_select: bool = False,
    annotations: dict[str, Any] | None = None,
    loop_layout: Any = None,
) -> None:
    """Copy `src` to `dst`, converting the dtype by value; two whole buffers need equally many
    elements only.

    `transpose` exchanges the axes on the way from global memory to L1. `pad_value` fills what a
    row in UB has beyond the tensor, and its end up to 32 bytes; `data_select` fills that end with
    the value of the last `ascend_set_copy_pad_value`. `sub_blockid` is the vector core that gets a
    tile of L0C. The rest are hints.
    """
    what = "T.copy"
    builder = launched(what)
    if data_select and pad_value is not None:
        raise refuse(
            "option",
            "T.copy with pad_value and data_select, which both say what a row ends with",
            cls=TileValueError,
            expected="one of them",
        )
    a, b, fits = _turned(src, dst) if transpose else _regions(src, dst)
    notes = hints(
        annotations,
        coalesced_width=coalesced_width,
        l2_cache_ctrl=_cache(l2_cache_ctrl, what),
        unit_flag_ctrl=unit_flag(unit_flag_ctrl, what),
        loop_layout=loop_layout,
    )
    pad = None if pad_value is None else _pad(a, b, pad_value)
    sub = None if sub_blockid is None else integer(sub_blockid, "the sub_blockid of T.copy")
    if sub is not None:
        _path(a, b, "T.copy(sub_blockid=...)", (Memory.L0C, Memory.UB))
    if data_select:
        _path(a, b, "T.copy(data_select=True)", (Memory.GLOBAL, Memory.UB))
    if fits and not transpose and pad is None and sub is None and not data_select:
        builder.emit(tile.Copy(a, b, hints=notes, loc=here()))
        return
    builder.emit(
        ascend.Transfer(
            a,
            b,
            transpose=transpose,
            pad=pad,
            sub=sub,
            padded=data_select,
            hints=notes,
            loc=here(),
        )
    )


def _path(a: Region, b: Region, what: str, *paths: tuple[Memory, Memory]) -> None:
    found = (memory_of(a.buffer), memory_of(b.buffer))
    if found not in paths:
        raise refuse(
            "scope",
            f"{what} from {found[0].title} to {found[1].title}",
            cls=TileValueError,
            expected=" or ".join(f"{x.title} to {y.title}" for x, y in paths),
            got=f"{found[0].title} to {found[1].title}",
        )


def _turned(src: Any, dst: Any) -> tuple[Region, Region, bool]:
    """The sides of a transposing copy: (N, K) of global memory into (K, N) of L1."""
    b = region_of(dst, "the destination of T.copy")
    *_, rows, columns = b.extents if len(b.extents) > 1 else (None, None)
    if rows is None or columns is None:
        raise refuse("shape", "T.copy(transpose=True) of one axis", expected="two axes")
    a = region_of(src, "the source of T.copy")
    corner = isinstance(src, Value)
    if corner:
        ones = a.extents[:-2]
        a = Region(a.buffer, a.mins, (*ones, columns, rows), loc=a.loc)
    if not (equal(a.extents[-2], columns) and equal(a.extents[-1], rows)):
        raise refuse(
            "shape",
            "T.copy(transpose=True)",
            cls=TileValueError,
            expected=f"a source of ({plain(columns)}, {plain(rows)})",
            got=shape_text(a.extents),
        )
    _path(a, b, "T.copy(transpose=True)", (Memory.GLOBAL, Memory.L1))
    return a, b, True


def _pad(a: Region, b: Region, value: Any) -> Expr:
    _path(a, b, "T.copy(pad_value=...)", (Memory.GLOBAL, Memory.UB))
    return number(value, "the pad_value of T.copy", b.buffer.dtype)


# CANN asc-devkit, asc_set_copy_pad_val: elements of 8, 16 and 32 bits.
_PADS = (
    *("int8", "uint8", "int16", "uint16", "float16", "bfloat16", "int32", "uint32", "float32"),
)


def ascend_set_copy_pad_value(value: Any, dtype: Any = None) -> None:
    """The number that later `copy(data_select=True)` of this core end rows of UB with.

    `dtype` is that of the copies' elements; a number of Python needs it.
    """
    what = "T.ascend_set_copy_pad_value"
    builder = launched(what)
    own = str(value.expr.dtype) if isinstance(value, Value) else None
    if dtype is None and own is None:
        raise refuse(
            "dtype",
            f"{what} of a number without dtype",
            cls=TileValueError,
            expected=f"dtype, one of {', '.join(_PADS)}",
        )
    element = DType(choice(str(dtype or own), f"the dtype of {what}", _PADS))
    bits = DType(f"uint{element.bits}")
    raw = Bitcast(number(value, f"the value of {what}", element), bits)
    builder.emit(ascend.SetMode("copy_pad_value", simplify(Cast(raw, DType("uint32"))), loc=here()))


def ascend_nd2nz_post_copy(
    dst: Any, src: Any, rows: Any, cols: Any, full_rows: Any, dst_dtype: Any
) -> None:
    """Copy a tile that lies in UB as fractals, [cols / C0][rows + 1][C0], into L1.

    `dst` is the tile's first element, in a buffer of `full_rows` rows.
    """
    what = "T.ascend_nd2nz_post_copy"
    builder = launched(what)
    to, corner = place(dst, f"the dst of {what}")
    start, first = place(src, f"the src of {what}")
    r, c, full = (known(x, f"a size of {what}", 1, 1 << 16) for x in (rows, cols, full_rows))
    c0 = 32 * 8 // to.dtype.bits
    ones = tuple(const(1) for _ in corner[:-2])
    b = Region(to, corner, (*ones, const(r), const(c)), loc=here())
    count = -(-c // c0) * (r + 1) * c0
    whole_rows = int_value(to.shape[-2]) if len(to.shape) > 1 else None
    a = whole(start) if any(int_value(e) != 0 for e in first[:-1]) or len(first) > 1 else None
    if a is None:
        a = Region(start, first, (const(count),), loc=here())
    _path(a, b, what, (Memory.UB, Memory.L1))
    fits = a.buffer.rank == 1 or (int_value(_count(a.extents)) == count and _is_start(first))
    if not fits or whole_rows != full or c % c0:
        raise refuse(
            "shape",
            f"{what} of {r} x {c} elements",
            cls=TileValueError,
            expected=f"columns in a multiple of {c0}, full_rows = {whole_rows}, those of {to.name},"
            f" and {count} elements of {start.name}: one free row for each {c0} columns",
            got=f"{r} x {c}, full_rows = {full}",
        )
    if str(start.dtype) != str(to.dtype) or str(DType(dst_dtype)) != str(to.dtype):
        raise refuse(
            "dtype",
            f"{what} of {start.dtype} as {dst_dtype}",
            cls=TileValueError,
            expected=str(to.dtype),
        )
    builder.emit(ascend.Transfer(a, b, blocks=True, loc=here()))


def _is_start(indices: Sequence[Expr]) -> bool:
    return all(int_value(e) == 0 for e in indices)


# Halves for the two vector cores -----------------------------------------------------------------

_SPLITS = ((-2, "m"), (-1, "n"))
_BY_HARDWARE = (Memory.L0C, Memory.UB)
_BY_ADDRESS = ((Memory.GLOBAL, Memory.UB), (Memory.UB, Memory.GLOBAL), (Memory.UB, Memory.L1))


def _is_half(x: Expr, y: Expr) -> bool:
    """Whether one of the two is twice the other."""
    return equal(as_expr(plain(x) * 2), y) or equal(x, as_expr(plain(y) * 2))


def _split_axis(a: Region, b: Region) -> tuple[int, str]:
    """The axis along which one side is half of the other."""
    ranks = (len(a.extents), len(b.extents))
    if 1 in ranks and ranks != (1, 1):
        raise refuse(
            "shape",
            "T.dual_copy between one axis and several",
            cls=TileValueError,
            expected="two sides of one axis, or of two and more",
            got=f"{ranks[0]} and {ranks[1]} axes",
        )
    splits = _SPLITS[1:] if ranks == (1, 1) else _SPLITS
    found: list[tuple[int, str]] = []
    for left, right in ((a.extents, b.extents), (a.buffer.shape, b.buffer.shape)):
        found = [(axis, word) for axis, word in splits if _is_half(left[axis], right[axis])]
        if len(found) == 1:
            return found[0]
    raise refuse(
        "shape",
        "T.dual_copy cannot tell how a tile is divided between the two vector cores",
        cls=TileValueError,
        expected="one of the last two axes on one side half of that on the other",
        got=f"{shape_text(a.extents)} and {shape_text(b.extents)}",
    )


def dual_copy(src: Any, dst: Any, *, unit_flag_ctrl: Any = None, l2_cache_ctrl: Any = 0) -> None:
    """Copy between a tile and its halves, one for each vector core of the group.

    The larger side is the whole tile; the other is what each core has of it: half of the rows or
    half of the columns. From L0C to UB the hardware does it, without a conversion of dtype; from
    or to global memory, and from UB to L1, each core copies its own half.
    """
    what = "T.dual_copy"
    builder = launched(what)
    a, b = region_of(src, f"the source of {what}"), region_of(dst, f"the destination of {what}")
    axis, word = _split_axis(a, b)
    notes = hints(
        None,
        unit_flag_ctrl=unit_flag(unit_flag_ctrl, what),
        l2_cache_ctrl=_cache(l2_cache_ctrl, what),
    )
    _path(a, b, what, _BY_HARDWARE, *_BY_ADDRESS)
    if memory_of(a.buffer) is Memory.L0C:
        _check_hardware_split(a, b, word)
        builder.emit(ascend.Transfer(a, b, split=word, hints=notes, loc=here()))
        return
    a, b = _own_half(a, b, axis)
    builder.emit(tile.Copy(a, b, hints=notes, loc=here()))


def _check_hardware_split(a: Region, b: Region, word: str) -> None:
    if a.buffer.dtype != b.buffer.dtype:
        raise refuse(
            "dtype",
            "T.dual_copy from L0C with a conversion, which the hardware lacks for two destinations",
            cls=TileValueError,
            expected=str(a.buffer.dtype),
            got=str(b.buffer.dtype),
            help="convert in a vector function after the copy",
        )
    columns = int_value(a.extents[-1])
    if word == "n" and columns is not None and columns % 32:
        raise refuse(
            "shape",
            "T.dual_copy of halves of the columns",
            cls=TileValueError,
            expected="columns in a multiple of 32",
            got=str(columns),
        )


def _own_half(a: Region, b: Region, axis: int) -> tuple[Region, Region]:
    """The larger side narrowed to the half of the vector core that runs this."""
    core = Value(vector_core())
    doubled = equal(a.extents[axis], as_expr(plain(b.extents[axis]) * 2))
    large, small = (a, b) if doubled else (b, a)
    half = small.extents[axis]
    at = axis % len(large.extents)
    mins, extents = list(large.mins), list(large.extents)
    mins[at] = simplify(as_expr(Value(mins[at]) + core * plain(half)))
    extents[at] = half
    narrowed = Region(large.buffer, tuple(mins), tuple(extents), loc=large.loc)
    return (narrowed, small) if doubled else (small, narrowed)


def vector_core() -> Expr:
    """The number of the vector core that runs this, in its group."""
    launch = launch_of("T.dual_copy")
    if launch.sub is None:
        launch.threads = launch.threads or (VECTOR_CORES,)
    return launch.vector_core


# Products ----------------------------------------------------------------------------------------


def gemm(
    A: Any,
    B: Any,
    C: Any,
    transpose_A: bool = False,
    transpose_B: bool = False,
    policy: GemmWarpPolicy = GemmWarpPolicy.Square,
    clear_accum: Any = False,
    unit_flag_ctrl: Any = None,
    annotations: dict[str, Any] | None = None,
) -> None:
    """`C += op(A) @ op(B)` on the cube, C in L0C.

    From L1, A is (M, K) and B is (N, K) with `transpose_B=True`. From L0A and L0B any transpose is
    possible; the extents of the slices are the sizes that are multiplied, and begin at zero.
    """
    what = "T.gemm"
    builder = launched(what)
    given = dict(annotations or {})
    flag = unit_flag(given.pop("unit_flag_ctrl", unit_flag_ctrl), what)
    note(given, what)
    a, b, c = matrix(A, "A"), matrix(B, "B"), matrix(C, "C")
    check_homes(a, b, c, bool(transpose_A), bool(transpose_B))
    check_product(a, b, c, transpose_A, transpose_B)
    builder.emit(
        tile.Gemm(
            a,
            b,
            c,
            condition(clear_accum),
            transpose_a=bool(transpose_A),
            transpose_b=bool(transpose_B),
            policy=int(policy),
            hints=hints(None, unit_flag_ctrl=flag),
            loc=here(),
        )
    )


_HOMES = ((Memory.L1, Memory.L1, Memory.L0C), (Memory.L0A, Memory.L0B, Memory.L0C))


def check_homes(a: Region, b: Region, c: Region, ta: bool, tb: bool, name: str = "T.gemm") -> None:
    """Refuse operands in memories that the cube does not multiply from."""
    homes = tuple(memory_of(r.buffer) for r in (a, b, c))
    if homes not in _HOMES:
        raise refuse(
            "scope",
            f"{name} of {', '.join(m.title for m in homes)}",
            expected="L1, L1 into L0C, or L0A, L0B into L0C",
            got=", ".join(r.buffer.scope for r in (a, b, c)),
        )
    if homes[0] is Memory.L1 and (ta or not tb):
        raise refuse(
            "option",
            f"{name} from L1 reads A as (M, K) and B as (N, K) only",
            expected="transpose_A=False, transpose_B=True",
            got=f"transpose_A={ta}, transpose_B={tb}",
            help="T.copy(..., transpose=True) turns a tile on its way to L1; or load L0A and L0B"
            " yourself",
        )
    if homes[0] is Memory.L0A:
        for r in (a, b):
            if any(int_value(e) != 0 for e in r.mins[-2:]):
                raise refuse(
                    "shape",
                    f"a slice of {r.buffer.name} as an operand of {name}",
                    cls=TileValueError,
                    expected="one that begins at zero in its last two axes",
                )
