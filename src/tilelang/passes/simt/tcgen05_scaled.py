"""The instructions of block-scaled products of tcgen05, and of copies of their scales.

What enters: a `ScaleCopy` or an `AsyncScaledGemm`. What leaves: marks of what the hardware reads
and changes, and what one thread issues: `tcgen05.cp` for each 128 words, and products, which wait
for the copies of the same thread by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilelang.dtypes import DType
from tilelang.errors import error
from tilelang.ir.affine import bounds
from tilelang.ir.expr import (
    BOOL,
    Binary,
    BinaryOp,
    Const,
    Expr,
    Region,
    Unary,
    UnaryOp,
    Var,
    const,
    int_value,
)
from tilelang.ir.scales import AsyncScaledGemm, ScaleCopy
from tilelang.ir.sync import AsyncGemm
from tilelang.ir.tile import Block, If, Let, Stmt
from tilelang.passes.build import as_type, plus, static_extents
from tilelang.passes.issue import READ, WRITTEN, Issue
from tilelang.passes.simt.launch import Threads
from tilelang.passes.simt.operands import Operand
from tilelang.passes.simt.scaled_products import FORMS, ROWS, WORDS
from tilelang.passes.simt.tcgen05 import (
    WIDEST,
    address,
    commit,
    descriptor,
    further,
    issuer,
    moved,
    shared_operand,
    shared_operands,
)

U32, U64, I32 = DType("uint32"), DType("uint64"), DType("int32")
STRIDE = 128
"""Bytes from the words of 8 lanes to those of the next 8."""


def operands_of(stmt: AsyncGemm, t: Threads) -> list[Operand]:
    """The matrices in shared memory that a product of tcgen05 reads."""
    if not isinstance(stmt, AsyncScaledGemm):
        return shared_operands(stmt, t)
    right = shared_operand(stmt, stmt.b, t, turned=not stmt.transpose_b)
    if stmt.a.buffer.name in t.tensors:
        return [right]
    return [shared_operand(stmt, stmt.a, t, turned=stmt.transpose_a), right]


def lower_scale_copy(stmt: ScaleCopy, t: Threads, arrived: frozenset[str]) -> Block:
    """What one thread does of a copy; writes of the tiles in `arrived` are ordered before what the
    unit reads.
    """
    steps = tuple(_copies(stmt, t))
    return (
        *_marks((stmt.src,), (stmt.dst,), arrived, stmt),
        If(issuer(t, pair=stmt.two_cta), steps, loc=stmt.loc),
    )


def lower_scaled(stmt: AsyncScaledGemm, t: Threads, arrived: frozenset[str]) -> Block:
    """What one thread does of a product, with `arrived` as above."""
    assert stmt.barrier is not None
    reads, changes = (stmt.a, stmt.b, stmt.sfa, stmt.sfb), (stmt.c, stmt.barrier)
    steps = tuple(_Writer(stmt, t).steps())
    tensors = {r.buffer.name for r in reads if r.buffer.name in t.tensors}
    return (
        *_marks(reads, changes, arrived | tensors, stmt),
        If(issuer(t, pair=stmt.two_cta), steps, loc=stmt.loc),
    )


def _marks(
    reads: tuple[Region, ...], changes: tuple[Region, ...], arrived: frozenset[str], stmt: Stmt
) -> Iterator[Stmt]:
    if any(r.buffer.name not in arrived for r in reads):
        yield Issue("fence.proxy.async", (), (), loc=stmt.loc)
    for r in reads:
        yield Issue(READ, (), (r,), loc=stmt.loc)
    yield Issue(WRITTEN, changes, (), loc=stmt.loc)


def _copies(stmt: ScaleCopy, t: Threads) -> Iterator[Stmt]:
    """Words from shared to Tensor Memory, each 128 by an instruction."""
    src, row = stmt.src, "tcgen05.cp.cta2" if stmt.two_cta else "tcgen05.cp"
    low, wide = src.mins[-1], (static_extents(src) or (0,))[-1]
    if not bounds(low, {}).divisible_by(WORDS):
        raise error(
            "target",
            f"tcgen05 cannot copy scales from a part of {src.buffer.name} that begins anywhere",
            stmt.loc,
            expected=f"a part that begins at a multiple of {WORDS} words, which is 16 bytes",
            help="give each part of the scales a row of its own",
        )
    to = address(t.tensors[stmt.dst.buffer.name], stmt.dst)
    for k in range((static_extents(stmt.dst) or (0,))[-1] // WORDS):
        mins = list(src.mins)
        mins[-1] = plus(low, k * ROWS % wide)
        for axis, begin in enumerate(_row(src, k * ROWS // wide)):
            mins[axis] = plus(mins[axis], begin)
        at = Region(
            src.buffer, tuple(mins), (*[const(1)] * (len(mins) - 1), const(WORDS)), loc=src.loc
        )
        source = t.names.var("words", U64)
        imm = (("swizzle", 0), ("leading", 0), ("stride", STRIDE))
        yield Issue("tcgen05.descriptor", (), (at,), results=(source,), imm=imm, loc=stmt.loc)
        ins = (moved(to, k * WORDS), source)
        yield Issue(f"{row}.32x128b.warpx4", (), ins, loc=stmt.loc)


def _row(region: Region, number: int) -> list[int]:
    """A row of a region as places along all axes but the last."""
    out: list[int] = []
    for extent in reversed((static_extents(region) or (1,))[:-1]):
        out.insert(0, number % extent)
        number //= extent
    return out


class _Writer:
    """One product."""

    def __init__(self, stmt: AsyncScaledGemm, t: Threads) -> None:
        self.stmt, self.t = stmt, t
        self.form = FORMS[stmt.kind]
        *tiles, self.b = operands_of(stmt, t)
        self.a = tiles[0] if tiles else None
        self.n = (static_extents(stmt.c) or (0, 0))[-1]
        rows, deep = (static_extents(self.b.region) or (0, 0))[-2:]
        self.k = (rows if self.b.turned else deep) * (8 // self.bits)
        self.chunks = -(-self.n // ROWS)
        self.c = t.tensors[stmt.c.buffer.name]
        self.left, self.right = (
            address(t.tensors[sf.buffer.name], sf) for sf in (stmt.sfa, stmt.sfb)
        )
        self.plain: dict[int, Var] = {}
        self.words: dict[tuple[int, tuple[Expr, Expr]], Var] = {}

    @property
    def bits(self) -> int:
        """Bits of an element."""
        return 4 if self.form.deep == 64 else 8

    def steps(self) -> Iterator[Stmt]:
        """Products, and the arrival when they are complete."""
        stmt, t = self.stmt, self.t
        start = stmt.k_start
        if int_value(start) is None:
            named = t.names.var("k_start", I32)
            yield Let(named, as_type(start, I32), loc=stmt.loc)
            start = named
        a_first = t.names.var("matrix", U64)
        if self.a is not None:
            yield descriptor(self.a, 0, a_first)
        for low in range(0, self.n, WIDEST):
            n = min(WIDEST, self.n - low)
            b_first = t.names.var("matrix", U64)
            yield descriptor(self.b, low, b_first)
            for step in range(self.k // self.form.deep):
                at = (
                    self.byte(start, step, stmt.granularity_a),
                    self.byte(start, step, stmt.granularity_b),
                )
                yield from self.word(n, at)
                yield self.product(step, low, (a_first, b_first, self.words[n, at]))
        assert stmt.barrier is not None
        yield commit(stmt.barrier, stmt, "cta2" * stmt.two_cta, t if stmt.two_cta else None)

    def byte(self, start: Expr, step: int, grain: int) -> Expr:
        """Where in their words the scales of a step begin."""
        first = step * self.form.deep
        if bounds(self.stmt.k_start, {}).divisible_by(grain):
            block = plus(_over(start, grain), first // grain % WORDS)
        else:
            block = _over(plus(start, first), grain)
        value = int_value(block)
        if value is not None:
            return const(value % WORDS)
        return Binary(BinaryOp.FLOORMOD, block, const(WORDS))

    def word(self, n: int, at: tuple[Expr, Expr]) -> Iterator[Stmt]:
        """The instruction word of products whose scales begin at these bytes."""
        if (n, at) in self.words:
            return
        known = [int_value(e) for e in at]
        constant = None not in known
        left, right, scale = self.stmt.types
        imm = (
            ("kind", self.form.kind),
            ("a", left),
            ("b", right),
            ("scale", scale),
            ("m", ROWS * (2 if self.stmt.two_cta else 1)),
            ("n", n),
            ("trans_a", self.a is not None and self.a.turned),
            ("trans_b", self.b.turned),
            ("scale_a_at", known[0] if constant else 0),
            ("scale_b_at", known[1] if constant else 0),
        )
        row, loc, names = "tcgen05.instruction.scaled", self.stmt.loc, self.t.names
        word = self.words[n, at] = names.var("word", U32)
        if constant:
            yield Issue(row, (), (), results=(word,), imm=imm, loc=loc)
            return
        if n not in self.plain:
            self.plain[n] = names.var("word", U32)
            yield Issue(row, (), (), results=(self.plain[n],), imm=imm, loc=loc)
        ins = (self.plain[n], *(as_type(e, U32) for e in at))
        yield Issue(f"{row}.at", (), ins, results=(word,), loc=loc)

    def product(self, step: int, low: int, words: tuple[Var, Var, Var]) -> Stmt:
        """One instruction."""
        stmt, form = self.stmt, self.form
        a_first, b_first, word = words
        scale: Expr = Const(True, BOOL)
        if step == 0:
            clear = stmt.clear_accum
            known = Const(not clear.value, BOOL) if isinstance(clear, Const) else None
            scale = known or Unary(UnaryOp.NOT, clear)
        deep = step * form.deep * self.bits // 8
        group = step * form.deep // (form.block * WORDS) % stmt.groups
        above = (group * self.chunks + low // ROWS) * WORDS
        ins = (
            moved(address(self.c, stmt.c), low),
            self.left_operand(a_first, deep),
            further(b_first, self.b.moved(deep)),
            word,
            moved(self.left, group * WORDS),
            moved(self.right, above),
            scale,
        )
        size = {32: "1X", 64: "2X"}[form.deep] if form.block == 32 else "4X"
        pair = ".cta2" if stmt.two_cta else ""
        source = "" if self.a is not None else ".ts"
        row = f"tcgen05.mma{pair}.{form.kind}{source}.scale_{size}"
        return Issue(row, (), ins, loc=stmt.loc)

    def left_operand(self, first: Var, deep: int) -> Expr:
        """A from a byte of its rows on: a descriptor, or an address in Tensor Memory."""
        if self.a is not None:
            return further(first, self.a.moved(deep))
        a = self.stmt.a
        return moved(address(self.t.tensors[a.buffer.name], a), deep // 4)


def _over(e: Expr, by: int) -> Expr:
    value = int_value(e)
    if value is not None:
        return const(value // by)
    return Binary(BinaryOp.FLOORDIV, e, const(by))
