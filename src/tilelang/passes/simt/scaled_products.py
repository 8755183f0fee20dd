"""Block-scaled products into Tensor Memory: which kind they are, and their operands and scales.

What enters: a `GemmBlockScaled`, or an `AsyncScaledGemm` of the author. What leaves: an
`AsyncScaledGemm` of a kind that the hardware has. For the former there are nests before it that put
four-bit elements into nibbles, and scales into words as `ScaleCopy` reads them, and such copies.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilelang.dtypes import DType
from tilelang.errors import TileError, error
from tilelang.ir.affine import bounds
from tilelang.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Const,
    Expr,
    Region,
    Select,
    const,
    int_value,
)
from tilelang.ir.scales import (
    SCALE_COLUMNS,
    SCALE_LANES,
    SCALED_ROWS,
    AsyncScaledGemm,
    PairScaledGemm,
    ScaleCopy,
)
from tilelang.ir.special import GemmBlockScaled
from tilelang.ir.sync import AsyncUnit
from tilelang.ir.tile import Alloc, Block, Gemm, Let, Parallel, Stmt, Store
from tilelang.passes.build import as_type, compare, element, plus, static_extents, times, whole
from tilelang.passes.issue import Issue
from tilelang.passes.lower_products import E4M3, E8M0, Scales
from tilelang.passes.simt.launch import Threads
from tilelang.passes.simt.operands import staged_product
from tilelang.passes.simt.small_floats import code, packed_bytes
from tilelang.passes.simt.tcgen05 import check_cluster

U8, U32, I32 = DType("uint8"), DType("uint32"), DType("int32")
TYPES = {
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
    "float4_e2m1fn": "e2m1",
    "float4_e2m1_unpacked": "e2m1",
}
ROWS, WORDS = SCALED_ROWS, SCALE_COLUMNS


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
    _, k = _sizes(stmt.b, turned=not stmt.transpose_b)
    n = (static_extents(stmt.c) or (0,))[-1]
    groups = -(-k // (WORDS * form.block))
    return groups * WORDS, groups * WORDS * -(-n // ROWS)


def meanings_of(stmt: GemmBlockScaled | AsyncScaledGemm) -> list[DType]:
    """What the codes of the scales of A and of B mean."""
    grains = stmt.granularity_a, stmt.granularity_b
    if isinstance(stmt, AsyncScaledGemm):
        small = stmt.a.dtype.bits == 4 and stmt.b.dtype.bits == 4
        return [E4M3 if small and grain == 16 else E8M0 for grain in grains]
    sides = zip((stmt.sfa, stmt.sfb), (stmt.a, stmt.b), grains, stmt.c.extents[-2:], strict=True)
    return [
        Scales(stmt, scales, operand.dtype, grain, int_value(rows) or 0).meaning
        for scales, operand, grain, rows in sides
    ]


def form_of(stmt: GemmBlockScaled | AsyncScaledGemm) -> Form:
    """The kind of instruction for a product."""
    m, _ = _sizes(stmt.a, turned=stmt.transpose_a)
    meanings = meanings_of(stmt)
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
    if isinstance(stmt, AsyncScaledGemm) and form.deep != form.block:
        # The words are the author's, so each instruction finds its scales side by side there.
        whole_steps = bounds(stmt.k_start, {}).divisible_by(form.deep)
        if form is not EIGHT_BITS and (grains != (form.block,) * 2 or not whole_steps):
            raise _refused(
                stmt,
                f"scales of {grains[0]} and {grains[1]} elements of fp4",
                f"scales of {form.block} elements, and a k_start of multiples of {form.deep}",
            )
    if m != ROWS:
        raise _refused(stmt, f"M = {m}", _rows(stmt))
    if stmt.a.buffer.scope == "shared.tmem" and (form is not EIGHT_BITS or stmt.transpose_a):
        raise _refused(
            stmt,
            f"{stmt.a.dtype} in Tensor Memory" + ", transposed" * stmt.transpose_a,
            "A of 8-bit floats there, its rows along K: elements of 4 bits are packed on their way"
            " into shared memory alone",
        )
    n, widths = (static_extents(stmt.c) or (0,))[-1], _widths(stmt)
    if n % widths.step or not n or n > widths.stop:
        raise _refused(stmt, f"N = {n}", f"a multiple of {widths.step}, at most {widths.stop}")
    return form


def _rows(stmt: GemmBlockScaled | AsyncScaledGemm) -> str:
    """The rows of a block, and why there are no others (PTX ISA, tcgen05.mma: Matrix Shape)."""
    if is_of_pair(stmt):
        return f"M = {ROWS} in each block; with 64 the scales of B lie otherwise: that is not built"
    return f"M = {ROWS}: kinds with scales have no other for one block (PTX ISA, tcgen05.mma)"


def _widths(stmt: GemmBlockScaled | AsyncScaledGemm) -> range:
    """The columns of results that instructions can make (PTX ISA, tcgen05: Matrix Shape, and N
    shape for 8-bit transpose B); those of one block are made by several.
    """
    step = 8 if stmt.transpose_b or stmt.b.dtype.bits < 8 else 16
    pair = is_of_pair(stmt)
    return range(0, 256, 2 * step) if pair else range(0, 512, step)


def is_of_pair(stmt: GemmBlockScaled | AsyncScaledGemm) -> bool:
    """Whether two blocks multiply."""
    return stmt.two_cta if isinstance(stmt, AsyncScaledGemm) else isinstance(stmt, PairScaledGemm)


def settled(stmt: Stmt, t: Threads) -> Block | None:
    """A product of the author with the kind of its instructions; None for other statements."""
    if not isinstance(stmt, AsyncScaledGemm):
        return None
    if stmt.two_cta:
        check_cluster(stmt, t)
    form = form_of(stmt)
    types = (TYPES[stmt.a.dtype.name], TYPES[stmt.b.dtype.name], form.scale)
    return (stmt.with_(kind=form.kind, types=types),)


def _refused(stmt: GemmBlockScaled | AsyncScaledGemm, got: str, expected: str) -> TileError:
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
) -> tuple[Block, AsyncScaledGemm]:
    """The product, and what must be done before it; `scales` is Tensor Memory for the scales."""
    form, loc, pair = form_of(stmt), stmt.loc, is_of_pair(stmt)
    if pair:
        check_cluster(stmt, t)
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
    left, right = scale_columns(stmt)
    cells = [_columns(scales, 0, left), _columns(scales, left, right)]
    # What the other block has is there, too, when both have met.
    meet = ("barrier.cluster.arrive", "barrier.cluster.wait")
    issues: list[Stmt] = [Issue(row, (), (), loc=loc) for row in meet if pair]
    for at in cells:
        tile, copies = job.words(start, left=at is cells[0])
        before += copies
        issues.append(ScaleCopy(whole(tile), at, two_cta=pair, loc=loc))
    product = AsyncScaledGemm(
        plain.a,
        plain.b,
        plain.c,
        stmt.clear_accum,
        AsyncUnit.TCGEN05,
        sfa=cells[0],
        sfb=cells[1],
        k_start=const(0),
        granularity_a=form.block,
        granularity_b=form.block,
        groups=left // WORDS,
        kind=form.kind,
        types=(TYPES[stmt.a.dtype.name], TYPES[stmt.b.dtype.name], form.scale),
        transpose_a=plain.transpose_a,
        transpose_b=plain.transpose_b,
        barrier=done,
        two_cta=pair,
        loc=loc,
    )
    return (*before, *issues), product


def _columns(scales: Buffer, low: int, wide: int) -> Region:
    return Region(scales, (const(0), const(low)), (const(SCALE_LANES * 4), const(wide)))


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

        def nibble(at: Expr) -> Expr:
            found = code(element(region, [*lead, at, i] if turned else [*lead, i, at]))
            if k == deep:
                return found
            return Select(compare(BinaryOp.LT, at, k), found, Const(0, U32), lazy=True)

        store = Store(tile, (i, j), packed_bytes(nibble, j), loc=loc)
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
        _, k = _sizes(operand, turned=turned)
        many = (static_extents(stmt.c) or (0, 0))[-2 if left else -1]
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
