"""Sparse and block-scaled products, and convolution patches, as loops and plain products.

What enters: a function of the tile stage. What leaves: one without `GemmSparse`, `GemmBlockScaled`
and `Im2col`. A sparse operand is spread out, with one column for each place that a kept element may
have; a scaled operand is multiplied by its scales in float64, which holds the product of the two.
"""

from __future__ import annotations

from tilelang.dtypes import DType
from tilelang.errors import TileError, error
from tilelang.ir.expr import (
    Binary,
    BinaryOp,
    Bitcast,
    Cast,
    Expr,
    Load,
    Region,
    Select,
    Var,
    const,
    int_value,
)
from tilelang.ir.scales import PairScaledGemm
from tilelang.ir.special import GemmBlockScaled, GemmSparse, Im2col
from tilelang.ir.tile import Alloc, Block, Fill, Function, Gemm, Let, Stmt, Store
from tilelang.isa.sparsity import pattern
from tilelang.isa.target import Capability, Target
from tilelang.passes.build import (
    Names,
    as_type,
    both,
    compare,
    element,
    literal,
    loops_over,
    map_launches,
    map_statements,
    minus,
    parallel,
    place,
    plus,
    shifted,
    times,
    unsupported,
    whole,
)
from tilelang.scopes import Dialect, Memory, memory_of

F64, U8 = DType("float64"), DType("uint8")
E8M0, E4M3 = DType("float8_e8m0fnu"), DType("float8_e4m3fn")


def lower_products(fn: Function, target: Target) -> Function:
    """Only plain products are left, and scaled ones into Tensor Memory where the target has it."""
    names, dialect = Names(fn), Dialect(fn.dialect)
    scales = target.mode == "native" and target.supports(Capability.TCGEN05)

    def one(stmt: Stmt) -> Block | None:
        match stmt:
            case GemmSparse():
                return _sparse(stmt, names)
            case GemmBlockScaled():
                kept = scales and memory_of(dialect, stmt.c.buffer.scope) is Memory.TMEM
                if isinstance(stmt, PairScaledGemm) and not kept:
                    raise unsupported(stmt, "a product by the two blocks of a pair")
                return None if kept else _scaled(stmt, names)
            case Im2col():
                return _im2col(stmt, names)
            case _:
                return None

    return map_launches(fn, lambda body: map_statements(body, one))


def _div(a: Expr, b: Expr | int) -> Expr:
    return a if b == 1 else Binary(BinaryOp.FLOORDIV, a, _same(b, a))


def _mod(a: Expr, b: Expr | int) -> Expr:
    return Binary(BinaryOp.FLOORMOD, a, _same(b, a))


def _same(b: Expr | int, a: Expr) -> Expr:
    return as_type(const(b) if isinstance(b, int) else b, a.dtype)


def _sizes(r: Region, stmt: Stmt) -> tuple[int, int]:
    rows, columns = (int_value(e) for e in r.extents[-2:])
    if rows is None or columns is None:
        raise unsupported(stmt, "a product of runtime size of this kind")
    return rows, columns


def _at(r: Region, i: Expr, j: Expr, turned: bool) -> Load:
    """Element (i, j) of the last two axes, exchanged if the operand is turned."""
    lead = [const(0)] * (len(r.extents) - 2)
    return element(r, [*lead, *((j, i) if turned else (i, j))])


# Sparse ------------------------------------------------------------------------------------------


def _sparse(stmt: GemmSparse, names: Names) -> Block:
    loc, dtype = stmt.loc, stmt.a.dtype
    if dtype.bits > 32:
        raise error("dtype", f"a sparse product of {dtype}", loc)
    form = pattern(dtype)
    rows, kept = _sizes(stmt.a, stmt)
    rows, kept = (kept, rows) if stmt.transpose_a else (rows, kept)
    deep, wide = _sizes(stmt.b, stmt)
    deep, wide = (wide, deep) if stmt.transpose_b else (deep, wide)
    a = names.buffer("a_dense", dtype, (rows, deep * form.kept))
    b = names.buffer("b_again", stmt.b.dtype, (deep * form.kept, wide))
    each = form.bits // 2
    _check_metadata(stmt, rows, kept * form.bits)
    i, q = names.var("i"), names.var("k")
    code, column = names.var("code"), names.var("column")
    per_word = stmt.e.dtype.bits // 2
    first = times(q, each)
    word = _at(stmt.e, i, _div(first, per_word), stmt.transpose_e)
    bits = Bitcast(word, DType(f"uint{word.dtype.bits}")) if not word.dtype.is_uint else word
    wide_bits = as_type(bits, DType("uint64"))
    shift = as_type(times(_mod(first, per_word), 2), DType("uint64"))
    value = Binary(BinaryOp.BITAND, Binary(BinaryOp.SHR, wide_bits, shift), _u64(3))
    where = plus(times(_div(q, form.kept), form.group), _div(code, each))
    spread = Store(a, (i, column), _at(stmt.a, i, q, stmt.transpose_a), loc=loc)
    body: Block = (
        Let(code, Cast(value, DType("int32")), loc=loc),
        Let(column, plus(times(_mod(q, form.kept), deep), where), loc=loc),
        spread,
    )
    x, j = names.var("i"), names.var("j")
    copy = Store(b, (x, j), _at(stmt.b, _mod(x, max(deep, 1)), j, stmt.transpose_b), loc=loc)
    return (
        Alloc(a, loc=loc),
        Alloc(b, loc=loc),
        Fill(whole(a), literal(0, dtype), loc=loc),
        *parallel((i, q), (const(rows), const(kept)), body, loc),
        *parallel((x, j), (const(deep * form.kept), const(wide)), (copy,), loc),
        Gemm(whole(a), whole(b), stmt.c, stmt.clear_accum, loc=loc),
    )


def _u64(value: int) -> Expr:
    return literal(value, DType("uint64"))


def _check_metadata(stmt: GemmSparse, rows: int, bits: int) -> None:
    e = stmt.e
    tall, words = _sizes(e, stmt)
    tall, words = (words, tall) if stmt.transpose_e else (tall, words)
    if tall != rows or words * e.dtype.bits != bits:
        raise error(
            "shape",
            "the metadata of T.gemm_sp do not fit A",
            stmt.loc,
            expected=f"{rows} x {bits} bits for A of {stmt.a.dtype}",
            got=f"{tall} x {words * e.dtype.bits} bits of {e.dtype}",
        )


# Block-scaled ------------------------------------------------------------------------------------


def _scaled(stmt: GemmBlockScaled, names: Names) -> Block:
    loc = stmt.loc
    m, k = _sizes(stmt.a, stmt)
    m, k = (k, m) if stmt.transpose_a else (m, k)
    deep, n = _sizes(stmt.b, stmt)
    deep, n = (n, deep) if stmt.transpose_b else (deep, n)
    start = names.var("k_start", DType("int32"))
    out: list[Stmt] = [Let(start, as_type(stmt.k_start, start.dtype), loc=loc)]
    a = names.buffer("a_scaled", F64, (m, k))
    b = names.buffer("b_scaled", F64, (deep, n))
    for buffer, rows_first in ((a, True), (b, False)):
        operand, scales = (stmt.a, stmt.sfa) if rows_first else (stmt.b, stmt.sfb)
        turned = stmt.transpose_a if rows_first else stmt.transpose_b
        grain = stmt.granularity_a if rows_first else stmt.granularity_b
        i, j = names.var("i"), names.var("j")
        row, step = (i, j) if rows_first else (j, i)
        block = _div(plus(step, start), grain)
        scale = Scales(stmt, scales, operand.dtype, grain, m if rows_first else n).at(row, block)
        value = Binary(BinaryOp.MUL, Cast(_at(operand, i, j, turned), F64), scale)
        store = Store(buffer, (i, j), value, loc=loc)
        out += [Alloc(buffer, loc=loc), *parallel((i, j), buffer.shape, (store,), loc)]
    out.append(Gemm(whole(a), whole(b), stmt.c, stmt.clear_accum, loc=loc))
    return tuple(out)


class Scales:
    """The scales of one operand: their codes, and what these mean."""

    def __init__(
        self, stmt: GemmBlockScaled, sf: Region, operand: DType, grain: int, rows: int
    ) -> None:
        self.sf = sf
        self.dtype = sf.dtype
        sizes = [int_value(e) for e in sf.extents]
        known = [s for s in sizes if s is not None]
        total = 1
        for s in known:
            total *= s
        self.columns = 1 if total == rows else known[-1] if known else 0
        if len(known) != len(sizes) or self.columns == 0 or total != rows * self.columns:
            raise _bad_scales(stmt, sf, rows)
        self.meaning = self.read_as(stmt, operand, grain)

    def read_as(self, stmt: GemmBlockScaled, operand: DType, grain: int) -> DType:
        """What the code words mean."""
        for known in (E8M0, E4M3):
            if known.row.encoding == self.dtype.row.encoding:
                return known
        if self.dtype.is_uint and self.dtype.bits in (8, 16, 32):
            return E4M3 if operand.bits == 4 and grain == 16 else E8M0
        raise error(
            "dtype",
            f"scales of type {self.dtype}",
            stmt.loc,
            expected="float8_e8m0fnu, float8_e4m3fn, uint8 code words, or uint32 of four",
        )

    def at(self, row: Expr, block: Expr) -> Expr:
        """The scale of a row and block, as float64."""
        return Cast(Bitcast(self.code(row, block), self.meaning), F64)

    def code(self, row: Expr, block: Expr) -> Expr:
        """The code of a row and block, as uint8."""
        per_word = self.dtype.bits // 8
        byte = _mod(block, self.columns * per_word)
        word = element(self.sf, self.place(row, _div(byte, per_word)))
        code: Expr = word
        if self.dtype.bits == 8 and not self.dtype.is_uint:
            code = Bitcast(word, U8)
        elif per_word > 1:
            shift = as_type(times(_mod(byte, per_word), 8), self.dtype)
            code = Cast(
                Binary(
                    BinaryOp.BITAND, Binary(BinaryOp.SHR, word, shift), literal(255, self.dtype)
                ),
                U8,
            )
        if self.meaning == E4M3:
            code = Binary(BinaryOp.BITAND, code, literal(0x7F, U8))
        return code

    def place(self, row: Expr, column: Expr) -> list[Expr]:
        """A row and column as a place in all axes of the region, in row-major order."""
        flat = plus(times(row, self.columns), column)
        out: list[Expr] = []
        for extent in reversed(self.sf.extents):
            size = int_value(extent) or 1
            out.insert(0, const(0) if size == 1 else _mod(flat, size))
            flat = _div(flat, size)
        return out


def _bad_scales(stmt: GemmBlockScaled, sf: Region, rows: int) -> TileError:
    shape = ", ".join(str(int_value(e)) for e in sf.extents)
    return error(
        "shape",
        f"the scales {sf.buffer.name} of T.gemm_blockscaled",
        stmt.loc,
        expected=f"one row of scales for each of {rows} rows (columns of B)",
        got=f"{sf.dtype} ({shape})",
    )


# Patches -----------------------------------------------------------------------------------------


def _im2col(stmt: Im2col, names: Names) -> Block:
    if len(stmt.image.extents) != 4:
        raise error(
            "shape",
            "the image of T.im2col",
            stmt.loc,
            expected="(N, H, W, C)",
            got=f"{len(stmt.image.extents)} axes",
        )
    col, loc = stmt.col, stmt.loc
    loops = loops_over(col.extents, names)
    at = place(loops, col.extents)
    rows, columns = col.extents[-2:]
    pixel = names.var("pixel")
    part = names.var("part")
    value = _pixel(stmt, pixel, part)
    body: Block = (
        Let(pixel, plus(times(as_type(stmt.nhw_step, pixel.dtype), rows), at[-2]), loc=loc),
        Let(part, plus(times(as_type(stmt.c_step, part.dtype), columns), at[-1]), loc=loc),
        Store(col.buffer, shifted(col, at), as_type(value, col.dtype), loc=loc),
    )
    return parallel(loops, col.extents, body, loc)


def _pixel(stmt: Im2col, pixel: Var, part: Var) -> Expr:
    """One element of the matrix of patches; zero outside of the image and of the matrix."""
    count, height, width, channels = stmt.image.extents
    reach = stmt.dilation * (stmt.kernel - 1) + 1
    high, wide = (_outputs(size, stmt, reach) for size in (height, width))
    taps = times(const(stmt.kernel * stmt.kernel), channels)
    n = _div(pixel, times(high, wide))
    y, x = _mod(_div(pixel, wide), high), _mod(pixel, wide)
    c = _mod(part, channels)
    tap = _div(part, channels)
    ky, kx = _div(tap, stmt.kernel), _mod(tap, stmt.kernel)
    row = minus(plus(times(y, stmt.stride), times(ky, stmt.dilation)), stmt.pad)
    column = minus(plus(times(x, stmt.stride), times(kx, stmt.dilation)), stmt.pad)
    inside = both(
        [
            compare(BinaryOp.GE, pixel, 0),
            compare(BinaryOp.LT, pixel, times(count, times(high, wide))),
            compare(BinaryOp.GE, part, 0),
            compare(BinaryOp.LT, part, taps),
            compare(BinaryOp.GE, row, 0),
            compare(BinaryOp.LT, row, height),
            compare(BinaryOp.GE, column, 0),
            compare(BinaryOp.LT, column, width),
        ]
    )
    zero = literal(0, stmt.image.dtype)
    return Select(inside, element(stmt.image, (n, row, column, c)), zero, lazy=True)


def _outputs(size: Expr, stmt: Im2col, reach: int) -> Expr:
    """How many places the kernel has along an axis."""
    room = _div(minus(plus(size, 2 * stmt.pad), reach), stmt.stride)
    return Binary(BinaryOp.MAX, plus(room, 1), _same(0, size))
