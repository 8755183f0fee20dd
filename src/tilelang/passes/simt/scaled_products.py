"""Block-scaled products into Tensor Memory: their operands and scales in shared memory.

What enters: a `GemmBlockScaled`. What leaves: a `ScaledGemm`, after nests that put four-bit
elements into nibbles, and scales where the hardware reads them: for each 128 rows and four blocks
along K there are 32 x 4 words, word (r % 32, r // 32) with the scales of row r in its bytes (PTX
ISA, tcgen05: Block Scaling, Layout of the scale factors).
"""

from __future__ import annotations

from dataclasses import dataclass

from tilelang.dtypes import DType
from tilelang.errors import TileError, error
from tilelang.ir.affine import bounds
from tilelang.ir.expr import (
    Binary,
    BinaryOp,
    Bitcast,
    Buffer,
    Cast,
    Const,
    Expr,
    Region,
    Select,
    const,
)
from tilelang.ir.special import GemmBlockScaled
from tilelang.ir.tile import Alloc, Block, Gemm, Let, Parallel, Stmt, Store
from tilelang.passes.build import as_type, compare, element, plus, static_extents, times, whole
from tilelang.passes.issue import ScaledGemm
from tilelang.passes.lower_products import E8M0, Scales
from tilelang.passes.simt.launch import Threads
from tilelang.passes.simt.operands import staged_product

U4, U8, U32, I32 = DType("uint4"), DType("uint8"), DType("uint32"), DType("int32")
TYPES = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2", "float4_e2m1fn": "e2m1"}
ROWS, WORDS = 128, 4
"""Rows whose scales are copied together, and the cells that a lane has of them."""


@dataclass(frozen=True)
class Form:
    """A block-scaled kind: its name, the elements with one scale, those of one instruction, and
    the type of the scales.
    """

    kind: str
    block: int
    deep: int
    scale: str


EIGHT_BITS = Form("mxf8f6f4", 32, 32, "ue8m0")
FOUR_BITS = Form("mxf4", 32, 64, "ue8m0")
FOUR_BITS_BY_16 = Form("mxf4nvf4", 16, 64, "ue4m3")
FORMS = {form.kind: form for form in (EIGHT_BITS, FOUR_BITS, FOUR_BITS_BY_16)}


def _sizes(region: Region, *, turned: bool) -> tuple[int, int]:
    rows, columns = (static_extents(region) or (0, 0))[-2:]
    return (columns, rows) if turned else (rows, columns)


def scale_columns(stmt: GemmBlockScaled) -> tuple[int, int]:
    """The columns of Tensor Memory for the scales of A and of B; raises for a product without an
    instruction.
    """
    form = form_of(stmt)
    n, k = _sizes(stmt.b, turned=not stmt.transpose_b)
    groups = -(-k // (WORDS * form.block))
    return groups * WORDS, groups * WORDS * -(-n // ROWS)


def form_of(stmt: GemmBlockScaled) -> Form:
    """The kind of instruction for a product."""
    m, k = _sizes(stmt.a, turned=stmt.transpose_a)
    n, _ = _sizes(stmt.b, turned=not stmt.transpose_b)
    meanings = [
        Scales(stmt, scales, operand.dtype, grain, rows).meaning
        for scales, operand, grain, rows in (
            (stmt.sfa, stmt.a, stmt.granularity_a, m),
            (stmt.sfb, stmt.b, stmt.granularity_b, n),
        )
    ]
    bits = {stmt.a.dtype.bits, stmt.b.dtype.bits}
    by_power = all(x == E8M0 for x in meanings)
    known = stmt.a.dtype.name in TYPES and stmt.b.dtype.name in TYPES
    form = None
    if bits == {8} and by_power:
        form = EIGHT_BITS
    elif bits == {4}:
        form = FOUR_BITS if by_power else FOUR_BITS_BY_16
    if not known or form is None or stmt.c.dtype.name != "float32" or meanings[0] != meanings[1]:
        types = ", ".join(x.dtype.name for x in (stmt.a, stmt.b, stmt.sfa, stmt.sfb, stmt.c))
        raise _refused(stmt, types, "two operands of fp8 with E8M0 scales, or of fp4, into fp32")
    grains = (stmt.granularity_a, stmt.granularity_b)
    if any(g % form.block for g in grains) or not bounds(stmt.k_start, {}).divisible_by(form.block):
        raise _refused(
            stmt,
            f"scales of {grains[0]} and {grains[1]} elements",
            f"scales of multiples of {form.block} elements, and such a k_start",
        )
    if m != ROWS:
        raise _refused(stmt, f"M = {m}", f"M = {ROWS}")
    del k
    return form


def _refused(stmt: GemmBlockScaled, got: str, expected: str) -> TileError:
    return error(
        "target",
        f"no instruction of tcgen05 multiplies into {stmt.c.buffer.name} what is asked for",
        stmt.loc,
        expected=expected,
        got=got,
        help="accumulate in a fragment: T.gemm_blockscaled takes any shape and scale there",
    )


def scaled_product(
    stmt: GemmBlockScaled, t: Threads, scales: Buffer, done: Region
) -> tuple[Block, ScaledGemm]:
    """The product, and what must be done before it."""
    form, loc = form_of(stmt), stmt.loc
    job = _Job(stmt, form, t)
    start = t.names.var("k_start", I32)
    before: list[Stmt] = [Let(start, as_type(stmt.k_start, I32), loc=loc)]
    plain = Gemm(
        stmt.a,
        stmt.b,
        stmt.c,
        stmt.clear_accum,
        transpose_a=stmt.transpose_a,
        transpose_b=stmt.transpose_b,
        loc=loc,
    )
    if form is EIGHT_BITS:
        copies, plain = staged_product(plain, t)
        before += copies
    else:
        for name, turned in (("a", stmt.transpose_a), ("b", not stmt.transpose_b)):
            region, copies = job.packed(getattr(stmt, name), turned=turned)
            before += copies
            plain = plain.with_(**{name: region, f"transpose_{name}": name == "b"})
    tiles: list[Buffer] = []
    for left in (True, False):
        tile, copies = job.words(start, left=left)
        tiles.append(tile)
        before += copies
    product = ScaledGemm(
        plain.a,
        plain.b,
        plain.c,
        whole(tiles[0]),
        whole(tiles[1]),
        whole(scales),
        stmt.clear_accum,
        done,
        kind=form.kind,
        types=(TYPES[stmt.a.dtype.name], TYPES[stmt.b.dtype.name], form.scale),
        transpose_a=plain.transpose_a,
        transpose_b=plain.transpose_b,
        loc=loc,
    )
    return tuple(before), product


@dataclass(frozen=True)
class _Job:
    """The tiles of one product."""

    stmt: GemmBlockScaled
    form: Form
    t: Threads

    def packed(self, region: Region, *, turned: bool) -> tuple[Region, Block]:
        """Elements of four bits, two in a byte, the first one in the low nibble; the rows of the
        tile lie along M or N, filled with zeros to whole instructions.
        """
        loc, names = region.loc, self.t.names
        many, k = _sizes(region, turned=turned)
        deep = -(-k // self.form.deep) * self.form.deep
        rows = -(-many // 64) * 64
        tile = names.buffer(f"{region.buffer.name}_nibbles", U8, (rows, deep // 2), "shared.dyn")
        i, j = names.var("i"), names.var("j")
        lead: list[Expr] = [const(0)] * (len(region.extents) - 2)

        def nibble(half: int) -> Expr:
            at = plus(times(j, 2), half)
            place = [*lead, at, i] if turned else [*lead, i, at]
            code: Expr = Cast(Bitcast(element(region, place), U4), U32)
            if k != deep:
                code = Select(compare(BinaryOp.LT, at, k), code, Const(0, U32), lazy=True)
            return code

        high = Binary(BinaryOp.SHL, nibble(1), Const(4, U32))
        byte = Cast(Binary(BinaryOp.BITOR, nibble(0), high), U8)
        store = Store(tile, (i, j), byte, loc=loc)
        nest = Parallel((i, j), (const(many), const(deep // 2)), (store,), loc=loc)
        part = Region(tile, (const(0), const(0)), nest.extents, loc=loc)
        return part, (Alloc(tile, loc=loc), nest)

    def words(self, start: Expr, *, left: bool) -> tuple[Buffer, Block]:
        """The scales of an operand as words, for each four blocks of K those of all rows."""
        stmt, loc, names = self.stmt, self.stmt.loc, self.t.names
        region = stmt.sfa if left else stmt.sfb
        operand = stmt.a if left else stmt.b
        turned = stmt.transpose_a if left else not stmt.transpose_b
        grain = stmt.granularity_a if left else stmt.granularity_b
        many, k = _sizes(operand, turned=turned)
        blocks = -(-k // self.form.block)
        groups, chunks = -(-blocks // WORDS), -(-many // ROWS)
        scales = Scales(stmt, region, operand.dtype, grain, many)
        tile = names.buffer(f"{region.buffer.name}_words", U32, (groups * chunks * ROWS,))
        tile = tile.with_(scope="shared.dyn")
        r, g = names.var("r"), names.var("g")
        word: Expr = Const(0, U32)
        for byte in range(WORDS):
            block = plus(times(g, WORDS), byte)
            at = Binary(BinaryOp.FLOORDIV, plus(times(block, self.form.block), start), const(grain))
            code: Expr = Cast(scales.code(r, at), U32)
            inside = compare(BinaryOp.LT, block, blocks)
            code = Select(inside, code, Const(0, U32), lazy=True)
            word = Binary(BinaryOp.BITOR, word, Binary(BinaryOp.SHL, code, Const(8 * byte, U32)))
        chunk = Binary(BinaryOp.FLOORDIV, r, const(ROWS))
        lane = Binary(BinaryOp.FLOORMOD, r, const(32))
        cell = Binary(BinaryOp.FLOORMOD, Binary(BinaryOp.FLOORDIV, r, const(32)), const(WORDS))
        place = times(plus(times(g, chunks), chunk), ROWS)
        place = plus(place, plus(times(lane, WORDS), cell))
        if many % ROWS:  # rows that are copied, and that no product reads
            word = Select(compare(BinaryOp.LT, r, many), word, Const(0, U32), lazy=True)
        store = Store(tile, (place,), word, loc=loc)
        nest = Parallel((r, g), (const(chunks * ROWS), const(groups)), (store,), loc=loc)
        return tile, (Alloc(tile, loc=loc), nest)
