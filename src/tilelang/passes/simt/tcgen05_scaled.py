"""The instructions of block-scaled products: scales are copied to Tensor Memory, then multiplied.

What enters: a `ScaledGemm`. What leaves: what one thread issues: `tcgen05.cp` for each 128 rows and
four blocks along K, which puts words into the same four columns of the lanes of every warp, then
the products, which wait for these copies by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilelang.dtypes import DType
from tilelang.ir.expr import BOOL, Const, Expr, Region, Unary, UnaryOp, Var, const
from tilelang.ir.sync import AsyncGemm
from tilelang.ir.tile import Block, If, Stmt
from tilelang.passes.build import static_extents
from tilelang.passes.issue import READ, WRITTEN, Issue, ScaledGemm
from tilelang.passes.simt.launch import Threads
from tilelang.passes.simt.operands import Operand
from tilelang.passes.simt.scaled_products import FORMS, ROWS, WORDS
from tilelang.passes.simt.tcgen05 import (
    WIDEST,
    address,
    commit,
    descriptor,
    further,
    moved,
    shared_operand,
    shared_operands,
)

U32, U64 = DType("uint32"), DType("uint64")
BYTES = ROWS * WORDS
"""Bytes that one copy moves, and the distance between the words of 8 lanes and the next 8."""
STRIDE = 128


def operands_of(stmt: AsyncGemm | ScaledGemm, t: Threads) -> list[Operand]:
    """The matrices in shared memory that a product of tcgen05 reads."""
    if isinstance(stmt, AsyncGemm):
        return shared_operands(stmt, t)
    return [
        shared_operand(stmt, stmt.a, t, turned=stmt.transpose_a),
        shared_operand(stmt, stmt.b, t, turned=not stmt.transpose_b),
    ]


def lower_scaled(stmt: ScaledGemm, t: Threads, arrived: frozenset[str]) -> Block:
    """What one thread does of a product; writes of the tiles in `arrived` are ordered before what
    the unit reads.
    """
    tiles = (stmt.a, stmt.b, stmt.scales_a, stmt.scales_b)
    out: list[Stmt] = []
    if any(r.buffer.name not in arrived for r in tiles):
        out.append(Issue("fence.proxy.async", (), (), loc=stmt.loc))
    out += [Issue(READ, (), (r,), loc=stmt.loc) for r in tiles]
    out.append(Issue(WRITTEN, (stmt.c, stmt.scales, stmt.barrier), (), loc=stmt.loc))
    steps = tuple(_Writer(stmt, t).steps())
    return (*out, If(t.first(), steps, loc=stmt.loc))


class _Writer:
    """One product."""

    def __init__(self, stmt: ScaledGemm, t: Threads) -> None:
        self.stmt, self.t = stmt, t
        self.form = FORMS[stmt.kind]
        self.a, self.b = operands_of(stmt, t)
        self.n = (static_extents(stmt.c) or (0, 0))[-1]
        rows, deep = (static_extents(self.b.region) or (0, 0))[-2:]
        self.k = (rows if self.b.turned else deep) * (8 // self.bits)
        self.chunks = -(-self.n // ROWS)
        self.groups = -(-self.k // (WORDS * self.form.block))
        self.c = t.tensors[stmt.c.buffer.name]
        self.scales = t.tensors[stmt.scales.buffer.name]

    @property
    def bits(self) -> int:
        """Bits of an element."""
        return 4 if self.form.deep == 64 else 8

    def steps(self) -> Iterator[Stmt]:
        """Copies of scales, products, and the arrival when they are complete."""
        stmt, t = self.stmt, self.t
        yield from self.copies(stmt.scales_a, 0, 1)
        yield from self.copies(stmt.scales_b, self.groups * WORDS, self.chunks)
        a_first = t.names.var("matrix", U64)
        yield descriptor(self.a, 0, a_first)
        for low in range(0, self.n, WIDEST):
            n = min(WIDEST, self.n - low)
            b_first = t.names.var("matrix", U64)
            yield descriptor(self.b, low, b_first)
            words: dict[int, Var] = {}
            for step in range(self.k // self.form.deep):
                at = step * self.form.deep // self.form.block % WORDS
                if at not in words:
                    words[at] = t.names.var("word", U32)
                    yield self.word(n, at, words[at])
                yield self.product(step, low, (a_first, b_first, words[at]))
        yield commit(stmt.barrier, stmt)

    def copies(self, words: Region, first: int, chunks: int) -> Iterator[Stmt]:
        """Scales from shared to Tensor Memory."""
        for k in range(self.groups * chunks):
            source = self.t.names.var("words", U64)
            at = Region(words.buffer, (const(k * ROWS),), (const(WORDS),), loc=words.loc)
            imm = (("swizzle", 0), ("leading", 0), ("stride", STRIDE))
            yield Issue("tcgen05.descriptor", (), (at,), results=(source,), imm=imm)
            to = moved(self.scales.address, first + k * WORDS)
            yield Issue("tcgen05.cp.32x128b.warpx4", (), (to, source), loc=self.stmt.loc)

    def word(self, n: int, at: int, result: Var) -> Stmt:
        """The instruction word of products whose scales begin at this byte."""
        left, right, scale = self.stmt.types
        imm = (
            ("kind", self.form.kind),
            ("a", left),
            ("b", right),
            ("scale", scale),
            ("m", ROWS),
            ("n", n),
            ("trans_a", self.a.turned),
            ("trans_b", self.b.turned),
            ("scale_a_at", at),
            ("scale_b_at", at),
        )
        row = "tcgen05.instruction.scaled"
        return Issue(row, (), (), results=(result,), imm=imm, loc=self.stmt.loc)

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
        group = step * form.deep // (form.block * WORDS)
        above = self.groups * WORDS + (group * self.chunks + low // ROWS) * WORDS
        ins = (
            moved(address(self.c, stmt.c), low),
            further(a_first, self.a.moved(deep)),
            further(b_first, self.b.moved(deep)),
            word,
            moved(self.scales.address, group * WORDS),
            moved(self.scales.address, above),
            scale,
        )
        size = {32: "1X", 64: "2X"}[form.deep] if form.block == 32 else "4X"
        return Issue(f"tcgen05.mma.{form.kind}.scale_{size}", (), ins, loc=stmt.loc)
