"""Copies, products, reductions and the rest of the Ascend adapter dialect.

What enters: the author's calls in a kernel that `T.Kernel(..., is_npu=True)` launches. What leaves:
nodes of the tile stage; a plain `Copy`, `Gemm` or `Reduce` where it says all. The memories of the
operands decide the path of a copy and the kind of a product, so the checks of a target judge those.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

from tilelang.dtypes import DType
from tilelang.errors import TileError, TileTypeError, TileValueError, error
from tilelang.ir import ascend, build, tile
from tilelang.ir.build import Builder
from tilelang.ir.expr import Expr, Region, const, int_value
from tilelang.ir.simplify import equal, simplify
from tilelang.language import loops
from tilelang.language.adapter import adapter_builder
from tilelang.language.adapter_tile import ON_VECTOR, check_cast, tile_of
from tilelang.language.arguments import known, memory, number
from tilelang.language.buffers import BufferRef, RegionRef, alias, here
from tilelang.language.loops import LoopFrame
from tilelang.language.maths import ceildiv, if_then_else
from tilelang.language.maths import min as smaller
from tilelang.language.shapes import extent, same_extent, shape_text
from tilelang.language.tileops import check_product, matched, matrix, region_of
from tilelang.language.values import Value, condition, describe, element_type
from tilelang.scopes import Dialect

MATRIX = 2
"""Axes of a matrix: the last two of a tile."""


def _bad(kind: str, message: str, **facts: Any) -> TileError:
    return error(kind, message, here(), **facts)


# Copies ------------------------------------------------------------------------------------------


def copy(
    src: Any,
    dst: Any,
    enable_relu: bool = False,
    transpose: bool | None = False,
    pad_value: Any = None,
) -> None:
    """Copy a tile, converting the dtype by value; the memories of the two decide the path.

    Each is a buffer, a slice, or an element, which stands for the tile that begins there.
    `enable_relu` replaces negative values by zero (from L0C). `transpose` exchanges the last two
    axes (L1 to L0A or L0B). Elements of `dst` for which `src` has none, beyond the end of a global
    tensor or of a shorter slice of it, become `pad_value`, zero without it.
    """
    builder = adapter_builder("T.copy")
    src, dst = _first_row(src, dst), _first_row(dst, src)
    if transpose:
        a, b = _transposed(src, dst)
    elif (part := _part(src, dst)) is not None:
        a, b = part
        if a.buffer.scope == "global":  # the rest of the tile is padded
            rest = 0 if pad_value is None else pad_value
            tile_ = region_of(dst, "the destination of T.copy")
            builder.emit(tile.Fill(tile_, number(rest, "pad_value", DType(b.dtype)), loc=here()))
    else:
        a, b = matched(src, dst, "T.copy")
    if a.dtype != b.dtype and all(memory(r.buffer) in ON_VECTOR for r in (a, b)):
        check_cast(a, b, "", "T.copy")
    if not (enable_relu or transpose or pad_value is not None):
        builder.emit(tile.Copy(a, b, loc=here()))
        return
    pad = None if pad_value is None else number(pad_value, "pad_value", DType(b.dtype))
    builder.emit(
        ascend.Transfer(
            a, b, relu=bool(enable_relu), transpose=bool(transpose), pad=pad, loc=here()
        )
    )


def _first_row(x: Any, other: Any) -> Any:
    """Of a tile `x` beside an element of a tensor with fewer axes: its first row, or matrix."""
    if not isinstance(other, Value) or isinstance(x, Value):
        return x
    near = region_of(x, "an argument of T.copy")
    rank = region_of(other, "an argument of T.copy").buffer.rank
    rest = len(near.extents) - rank
    if rest <= 0 or all(int_value(e) == 1 for e in near.extents[:rest]):
        return x
    extents = (*[const(1)] * rest, *near.extents[rest:])
    return RegionRef(Region(near.buffer, near.mins, extents, loc=near.loc))


def _part(src: Any, dst: Any) -> tuple[Region, Region] | None:
    """The part of a tile that a slice of global memory of another extent fills, or is given; None
    where all extents agree.

    A slice whose extent is known only when the kernel runs may be shorter than the tile.
    """
    if isinstance(src, Value) or isinstance(dst, Value):
        return None  # an element takes the extents of the other side
    a, b = region_of(src, "the source of T.copy"), region_of(dst, "the destination of T.copy")
    loads = a.buffer.scope == "global" and b.buffer.scope != "global"
    stores = b.buffer.scope == "global" and a.buffer.scope != "global"
    far, near = (a, b) if loads else (b, a)
    wide = [k for k, e in enumerate(near.extents) if int_value(e) != 1]
    given = [e for e in far.extents if int_value(e) != 1]
    if not (loads or stores) or len(wide) != len(given):
        return None
    pairs = [
        (k, e) for k, e in zip(wide, given, strict=True) if not same_extent(near.extents[k], e)
    ]
    if not pairs or any(_longer(e, near.extents[k]) for k, e in pairs):
        return None
    extents = list(near.extents)
    for k, e in pairs:
        extents[k] = e
    near = Region(near.buffer, near.mins, tuple(extents), loc=near.loc)
    return (far, near) if loads else (near, far)


def _longer(e: Expr, of: Expr) -> bool:
    """Whether an extent is known to be longer than another."""
    a, b = int_value(simplify(e)), int_value(of)
    return a is not None and b is not None and a > b


def _transposed(src: Any, dst: Any) -> tuple[Region, Region]:
    """The operands of a copy that exchanges the last two axes."""
    b = region_of(dst, "the destination of T.copy")
    a = region_of(src, "the source of T.copy")
    if isinstance(src, Value):  # an element stands for the tile that begins there
        turned = (*a.extents[:-MATRIX], b.extents[-1], b.extents[-2])
        a = Region(a.buffer, a.mins, turned, loc=a.loc)
    pairs = zip(a.extents[-MATRIX:], reversed(b.extents[-MATRIX:]), strict=False)
    if min(len(a.extents), len(b.extents)) < MATRIX or not all(equal(x, y) for x, y in pairs):
        raise _bad(
            "shape",
            f"T.copy(transpose=True) of {shape_text(a.extents)} into {shape_text(b.extents)}",
            expected="a matrix and its transpose",
            got=f"{shape_text(a.extents)} and {shape_text(b.extents)}",
        )
    return a, b


# Products ----------------------------------------------------------------------------------------


def gemm_v0(
    A: Any, B: Any, C: Any, transpose_A: bool = False, transpose_B: bool = False, init: Any = False
) -> None:
    """`C += op(A) @ op(B)` of tiles in L1 into one of L0C; `init` (bool or value) starts from zero.

    A is (M, K), or (K, M) with `transpose_A`; B is (K, N), or (N, K) with `transpose_B`. The last
    two axes are the matrix, the others have extent 1.
    """
    _product("gemm_v0", (A, B, C), (bool(transpose_A), bool(transpose_B)), init)


def mma(A: Any, B: Any, C: Any, init: Any = False) -> None:
    """`C += A @ B` of tiles in L0A and L0B into one of L0C; `init` (bool or value) starts from
    zero.
    """
    _product("mma", (A, B, C), (False, False), init)


def _product(
    name: str, operands: tuple[Any, Any, Any], turned: tuple[bool, bool], init: Any
) -> None:
    builder = adapter_builder(f"T.{name}")
    a, b, c = (matrix(x, letter, f"T.{name}") for x, letter in zip(operands, "ABC", strict=True))
    check_product(a, b, c, *turned, f"T.{name}")
    builder.emit(
        tile.Gemm(
            a, b, c, condition(init), transpose_a=turned[0], transpose_b=turned[1], loc=here()
        )
    )


# Reductions --------------------------------------------------------------------------------------


def _options(name: str, args: Sequence[Any], clear: Any, real_shape: Any) -> tuple[bool, Any]:
    """`clear` and `real_shape`, each by keyword or, in any order, by position after `dim`."""
    given: dict[str, Any] = {}
    named = {"clear": clear, "real_shape": real_shape}
    for x in args:
        key = "clear" if isinstance(x, bool) else "real_shape"
        if not isinstance(x, (bool, list, tuple)) or key in given or named[key] is not None:
            raise _bad(
                "option",
                f"T.{name}: an argument after dim",
                cls=TileTypeError,
                expected="clear, a bool, and real_shape, a list, once each",
                got=type(cast("object", x)).__name__,
            )
        given[key] = x
    start = given.get("clear", True if clear is None else clear)
    if not isinstance(start, bool):
        raise _bad("option", f"clear of T.{name}", cls=TileTypeError, expected="True or False")
    return start, given.get("real_shape", real_shape)


def _narrowed(src: Region, real_shape: Any, name: str) -> Region:
    """The logical part of a padded tile: its last two extents are `real_shape`, 0 for all."""
    if real_shape is None:
        return src
    sizes = [extent(x, f"real_shape of T.{name}") for x in real_shape]
    if len(sizes) != MATRIX or len(src.extents) < MATRIX:
        raise _bad(
            "shape",
            f"real_shape of T.{name}",
            cls=TileValueError,
            expected="two extents, of a tile with two axes or more",
            got=shape_text(sizes),
        )
    out = list(src.extents)
    for k, size in zip((-2, -1), sizes, strict=True):
        asked, have = int_value(size), int_value(src.extents[k])
        if asked is not None and have is not None and asked > have:
            raise _bad(
                "shape",
                f"real_shape of T.{name} is larger than the tile",
                cls=TileValueError,
                expected=f"at most {have}",
                got=str(asked),
            )
        out[k] = src.extents[k] if asked == 0 else size
    return Region(src.buffer, src.mins, tuple(out), loc=src.loc)


def _axis(src: Region, dim: Any, name: str) -> int:
    """The axis of a reduction: the only one, or one of the last two, counted from the front."""
    rank = len(src.extents)
    last = min(rank, MATRIX)
    fits = isinstance(dim, int) and not isinstance(dim, bool) and -last <= dim < last
    if not fits or any(int_value(e) != 1 for e in src.extents[:-MATRIX]):
        raise _bad(
            "shape",
            f"T.{name} of {shape_text(src.extents)} along axis {dim}",
            cls=TileValueError,
            expected=f"axis {-last} to {last - 1} of the last {last} axes, the others of extent 1",
            got=f"axis {dim}",
        )
    return rank - last + dim % last


def _result(dst: Region, src: Region, axis: int, name: str) -> Region:
    """Where the results go: a tile of as many elements, or the front of a longer row."""
    kept = [e for n, e in enumerate(src.extents) if n != axis and int_value(e) != 1]
    wide = [e for e in dst.extents if int_value(e) != 1]
    if len(kept) == len(wide) and all(equal(a, b) for a, b in zip(kept, wide, strict=True)):
        return dst
    asked = kept[0] if kept else const(1)
    have = wide[0] if wide else const(1)
    fits = len(kept) <= 1 and len(wide) <= 1 and wide[:1] == list(dst.extents[-1:])
    a, b = int_value(simplify(asked)), int_value(have)
    if not fits or (a is not None and b is not None and a > b):
        raise _bad(
            "shape",
            f"the result of T.{name} of {shape_text(src.extents)} along axis {axis}",
            cls=TileValueError,
            expected=f"{shape_text(kept or [const(1)])}, or a row with room for it",
            got=shape_text(dst.extents),
        )
    return Region(dst.buffer, dst.mins, (*dst.extents[:-1], asked), loc=dst.loc)


def _reduce(
    op: tile.ReduceOp, tiles: tuple[Any, Any], dim: Any, args: Sequence[Any], named: tuple[Any, Any]
) -> None:
    name = f"reduce_{op.value}"
    builder = adapter_builder(f"T.{name}")
    start, real_shape = _options(name, args, *named)
    src = _narrowed(tile_of(tiles[0], f"the source of T.{name}"), real_shape, name)
    axis = _axis(src, dim, name)
    dst = _result(tile_of(tiles[1], f"the result of T.{name}"), src, axis, name)
    if src.dtype != dst.dtype:
        raise _bad("dtype", f"T.{name} of {src.dtype} into {dst.dtype}", expected=str(src.dtype))
    if src.dtype.name not in ascend.REDUCED:
        raise _bad(
            "dtype",
            f"T.{name} of {src.dtype}",
            expected=f"{', '.join(ascend.REDUCED)} (AscendC Reduce{op.value.title()} on A2, A3)",
            got=str(src.dtype),
            help="convert the tile with T.tile.cast first",
        )
    builder.emit(tile.Reduce(op, src, dst, axis, clear=start, loc=here()))


def reduce_sum(
    buffer: Any, out: Any, dim: int = -1, *args: Any, clear: Any = None, real_shape: Any = None
) -> None:
    """Sum along `dim` of the last two axes into `out`, which has the reduced shape, keeps an axis
    of extent 1, or is a row with room for the results.

    `real_shape` is the logical part of a padded tile. Without `clear` the old contents of `out`
    are added. ValueError for shapes that do not fit.
    """
    _reduce(tile.ReduceOp.SUM, (buffer, out), dim, args, (clear, real_shape))


def reduce_max(
    buffer: Any, out: Any, dim: int = -1, *args: Any, clear: Any = None, real_shape: Any = None
) -> None:
    """Maximum along `dim`; see `reduce_sum`."""
    _reduce(tile.ReduceOp.MAX, (buffer, out), dim, args, (clear, real_shape))


def reduce_min(
    buffer: Any, out: Any, dim: int = -1, *args: Any, clear: Any = None, real_shape: Any = None
) -> None:
    """Minimum along `dim`; see `reduce_sum`."""
    _reduce(tile.ReduceOp.MIN, (buffer, out), dim, args, (clear, real_shape))


# Loops -------------------------------------------------------------------------------------------


def Pipelined(
    start: Any,
    stop: Any = None,
    num_stages: Any = 0,
    order: Sequence[int] | None = None,
    stage: Sequence[int] | None = None,
    sync: Any = None,
    group: Any = None,
    cross_interval: Any = 1,
) -> LoopFrame:
    """A sequential loop whose copies, or whose work on the cube core, may run `num_stages` rounds
    ahead; the result is that of the plain loop.

    `cross_interval` is how many rounds the cores may share one flag for; it changes no result.
    """
    every = known(cross_interval, "cross_interval of T.Pipelined", 1, 1 << 16)
    if sync or group:
        raise _bad(
            "option",
            "`sync` and `group` of T.Pipelined",
            help="leave them out: the order between statements follows from what they touch",
        )
    notes = {"cross_interval": every} if every > 1 else None
    return loops.Pipelined(start, stop, num_stages, order, stage, annotations=notes)


def use_swizzle(
    cid: Any,
    m: Any,
    n: Any,
    k: Any,
    block_m: Any,
    block_n: Any,
    off: int = 1,
    dir: int = 0,
    in_loop: bool = False,
) -> Value:
    """The tile that group `cid` works on when tiles of an (m, n) product are dealt out in panels of
    `off` rows (`dir=0`) or columns (1) that wind to and fro; numbers beyond the last stay.

    The order is that of Catlass's GemmIdentityBlockSwizzle.
    """
    adapter_builder("T.use_swizzle")
    wide = known(off, "off of T.use_swizzle", 1, 1 << 20)
    by_columns = known(dir, "dir of T.use_swizzle", 0, 1) == 1
    rows, columns = ceildiv(m, block_m), ceildiv(n, block_n)
    lead, other = (columns, rows) if by_columns else (rows, columns)
    panel = cid // (wide * other)
    inside = cid % (wide * other)
    width = smaller(wide, lead - panel * wide)
    along = panel * wide + inside % width
    across = inside // width
    wound = if_then_else(panel % 2 == 1, other - across - 1, across)
    found = wound * columns + along if by_columns else along * columns + wound
    return if_then_else(cid < rows * columns, found, cid)


# The rest ----------------------------------------------------------------------------------------


def reinterpretcast(dst: Any, src: Any, casttype: str) -> None:
    """From here on `dst` is a second name for the storage of `src`, with the dtype `casttype`.

    What `dst` was given before is not kept, so a `dst` that is in use already is refused.
    """
    builder = adapter_builder("T.reinterpretcast")
    for x in (dst, src):
        if not isinstance(x, BufferRef):
            raise _bad("shape", f"T.reinterpretcast of {describe(x)}", expected="two buffers")
    if any(isinstance(s, tile.View) and s.buffer == dst.buffer for s in builder.statements):
        raise _bad("scope", f"{dst.name} is a second name for a storage already")
    element = element_type(_CTYPES.get(casttype, casttype))
    if element != dst.buffer.dtype:
        raise _bad(
            "dtype",
            f"T.reinterpretcast to {casttype} into {dst.name}",
            expected=f"the element type of {dst.name}, {dst.buffer.dtype}",
            got=casttype,
        )
    if builder.is_written(dst.buffer):
        raise _bad(
            "name",
            f"{dst.name} is used before T.reinterpretcast makes it a second name",
            help=f"move the call before the first use of {dst.name}, or use another buffer",
        )
    dst.buffer = alias(src.buffer, dst.buffer.shape, element).buffer


_CTYPES = {
    "half": "float16",
    "float": "float32",
    "int": "int32",
    "bfloat16_t": "bfloat16",
    **{f"{kind}{bits}_t": f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
}


def printf(format_str: str, *args: Any) -> None:
    """Print from the kernel: the text of `format_str` up to each argument, and the argument."""
    builder = _printing("T.printf")
    parts = re.split(r"%[-+ #0]*\d*(?:\.\d+)?[hlL]*[diuoxXfFeEgGcsp]", str(format_str))
    if len(parts) != len(args) + 1:
        raise _bad(
            "value",
            f"T.printf of {len(args)} arguments",
            expected=f"{len(parts) - 1}, one for each conversion of the format",
            got=str(len(args)),
        )
    for text, x in zip(parts, args, strict=False):
        value: Any = x.buffer if isinstance(x, BufferRef) else None
        if value is None and not isinstance(x, str):
            value = number(x, "an argument of T.printf")
        message = text.strip() if value is not None else f"{text}{x}".strip()
        _print(builder, tile.Print(value=value, message=message, loc=here()))
    if parts[-1].strip() or not args:
        _print(builder, tile.Print(message=parts[-1].strip(), loc=here()))


def _printing(what: str) -> Builder:
    """The builder of a kernel of the adapter; outside a launch too."""
    builder = build.current(what)
    outside = builder.launch is None and builder.dialect == Dialect.ADAPTER.value
    return builder if outside else adapter_builder(what)


def _print(builder: Builder, stmt: tile.Print) -> None:
    """Emit a message. What is outside the launch is printed by every core, before its work or after
    it.
    """
    if builder.launch is not None:
        builder.emit(stmt)
        return
    launches = builder.retract(lambda s: isinstance(s, tile.Launch))
    for launch in launches[:-1]:
        builder.emit(launch)
    last = launches[-1] if launches else None
    if isinstance(last, tile.Launch):
        builder.emit(last.with_(body=(*last.body, stmt)))
    else:
        builder.emit(stmt)


def dump_tensor(tensor: Any, desc: int, dump_size: Any, shape_info: Any = ()) -> None:
    """Print a buffer under the number `desc`; all of it, of which `dump_size` elements were asked
    for.
    """
    builder = _printing("T.dump_tensor")
    if not isinstance(tensor, BufferRef):
        raise _bad("dtype", f"T.dump_tensor of {describe(tensor)}", expected="a buffer")
    label = known(desc, "the number of T.dump_tensor", 0, 2**32 - 1)
    _print(builder, tile.Print(value=tensor.buffer, message=f"desc={label}", loc=here()))
