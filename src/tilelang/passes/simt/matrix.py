"""Products by `mma.sync`: how warps divide a product, which layouts that dictates, and the
instructions.

What enters: a product that adds to a whole fragment. What leaves: a `Tensor` that says whether an
instruction fits, with the layouts of the accumulators (and of an operand in registers), and the
statements of one thread. Layouts of operands and accumulators are those of the PTX ISA, section
9.7.14.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tilelang.ir.expr import (
    BOOL,
    Binary,
    BinaryOp,
    Buffer,
    Const,
    Expr,
    Load,
    Region,
    Var,
    const,
    int_value,
)
from tilelang.ir.tile import Alloc, Block, For, Gemm, If, LoopKind, Stmt, Store
from tilelang.isa.target import Capability, Target
from tilelang.layout.spread import Digit, Spread
from tilelang.passes.build import literal, plus, static_extents, times
from tilelang.passes.issue import Issue, Span
from tilelang.passes.simt.launch import WARP, Threads
from tilelang.scopes import Memory

ROW_POLICY, COLUMN_POLICY = 1, 2
"""Values of `Gemm.policy`: all warps along M, or along N."""


@dataclass(frozen=True)
class Shape:
    """One instruction: `m` rows, 8 columns, `k` deep; elements of A and B in each 32 bits (64 for
    float64), and groups of them along K.
    """

    row: str
    m: int
    k: int
    packed: int
    deep: int

    @property
    def tall(self) -> int:
        """How many groups of 8 rows there are."""
        return self.m // 8

    @property
    def a_count(self) -> int:
        """Elements of A that each lane holds."""
        return self.packed * self.tall * self.deep

    @property
    def b_count(self) -> int:
        """Elements of B that each lane holds."""
        return self.packed * self.deep

    @property
    def c_count(self) -> int:
        """Elements of the result that each lane holds."""
        return 2 * self.tall


def _floats(name: str, short: str, total: str) -> dict[tuple[str, str, str], tuple[Shape, ...]]:
    kind = {"float32": "f32", "float16": "f16"}[total]
    return {
        (name, name, total): tuple(
            Shape(f"mma.m16n8k{k}.{kind}.{short}.{short}.{kind}", 16, k, 2, k // 8) for k in (16, 8)
        )
    }


_INTS = {"int8": "s8", "uint8": "u8"}
_FP8 = {"float8_e4m3fn": "e4m3", "float8_e4m3": "e4m3", "float8_e5m2": "e5m2"}
SHAPES: dict[tuple[str, str, str], tuple[Shape, ...]] = {
    **_floats("float16", "f16", "float32"),
    **_floats("float16", "f16", "float16"),
    **_floats("bfloat16", "bf16", "float32"),
    ("float32", "float32", "float32"): tuple(
        Shape(f"mma.m16n8k{k}.f32.tf32.tf32.f32", 16, k, 1, k // 4) for k in (8, 4)
    ),
    ("float64", "float64", "float64"): (Shape("mma.m8n8k4.f64.f64.f64.f64", 8, 4, 1, 1),),
    **{
        (a, b, "int32"): tuple(
            Shape(f"mma.m16n8k{k}.s32.{x}.{y}.s32", 16, k, 4, k // 16) for k in (32, 16)
        )
        for a, x in _INTS.items()
        for b, y in _INTS.items()
    },
    **{
        (a, b, "float32"): (Shape(f"mma.m16n8k32.f32.{x}.{y}.f32", 16, 32, 4, 2),)
        for a, x in _FP8.items()
        for b, y in _FP8.items()
    },
}
"""The instructions for the types of A, B and the result, the deepest first."""


@dataclass(frozen=True)
class Tensor:
    """A product by one instruction, `rows` by `columns` warps."""

    stmt: Gemm
    shape: Shape
    m: int
    n: int
    k: int
    rows: int
    columns: int
    threads: int

    @property
    def name(self) -> str:
        """The row of the instruction."""
        return self.shape.row

    @property
    def down(self) -> int:
        """Instructions along M for each warp."""
        return self.m // (self.shape.m * self.rows)

    @property
    def across(self) -> int:
        """Instructions along N for each warp."""
        return self.n // (8 * self.columns)

    def result(self) -> Spread:
        """The layout of the accumulators."""
        s = self.shape
        digits = [
            Digit(0, self.down, s.m),
            Digit(1, self.across, 8),
            Digit(0, s.tall, 8),
            Digit(1, 2, 1),
            *self.lanes(),
            Digit(0, self.rows, s.m * self.down, WARP),
            Digit(1, self.columns, 8 * self.across, WARP * self.rows),
        ]
        return Spread((self.m, self.n), self.threads, _real(digits))

    def left(self) -> Spread:
        """The layout of A where it is in registers."""
        s = self.shape
        digits = [
            Digit(0, self.down, s.m),
            Digit(1, self.k // s.k, s.k),
            Digit(1, s.deep, 4 * s.packed),
            Digit(0, s.tall, 8),
            Digit(1, s.packed, 1),
            Digit(0, 8, 1, 4),
            Digit(1, 4, s.packed, 1),
            Digit(0, self.rows, s.m * self.down, WARP),
        ]
        return Spread((self.m, self.k), self.threads, _real(digits))

    def lanes(self) -> tuple[Digit, Digit]:
        """The lanes of a warp over 8 rows and 4 pairs of columns of the result."""
        return Digit(0, 8, 1, 4), Digit(1, 4, 2, 1)


def _real(digits: Iterable[Digit]) -> tuple[Digit, ...]:
    return tuple(d for d in digits if d.size > 1)


def tensor(stmt: Gemm, t: Threads, target: Target, *, by_rows: bool) -> Tensor | str:
    """The product by an instruction, or why there is none.

    `by_rows` asks for all warps along M, so that a row of the result stays within one warp.
    """
    fault = next(_faults(stmt, t, target), None)
    if fault is not None:
        return fault
    m, n = (static_extents(stmt.c) or (0, 0))[-2:]
    k = (static_extents(stmt.a) or (0, 0))[-2 if stmt.transpose_a else -1]
    for shape in SHAPES[_types(stmt)]:
        if m % shape.m == 0 and n % 8 == 0 and k % shape.k == 0 and k:
            rows, columns = _warps(stmt.policy, m // shape.m, n // 8, t.count // WARP, by_rows)
            return Tensor(stmt, shape, m, n, k, rows, columns, t.count)
    return f"no instruction divides {m} x {n} x {k}"


def _types(stmt: Gemm) -> tuple[str, str, str]:
    return (stmt.a.dtype.name, stmt.b.dtype.name, stmt.c.dtype.name)


def _faults(stmt: Gemm, t: Threads, target: Target) -> Iterator[str]:
    """What rules an instruction out, but for the extents."""
    a, b, key = stmt.a, stmt.b, _types(stmt)
    if not target.supports(Capability.MMA_SYNC):
        yield "the chip has no mma.sync"
    if key not in SHAPES:
        yield f"no instruction multiplies {key[0]} by {key[1]} into {key[2]}"
    if key == ("float32", "float32", "float32") and target.fp32_gemm != "tf32":
        yield "fp32 is multiplied in full precision"
    if a.dtype.name in _FP8 and not target.supports(Capability.FP8):
        yield "the chip has no products of 8-bit floats"
    if any(static_extents(r) is None for r in (a, b, stmt.c)):
        yield "the extents are known at run time only"
    if t.count % WARP:
        yield f"{t.count} threads are no whole warps"
    if t.is_fragment(b.buffer) or not _on_chip(t, a) or not _on_chip(t, b):
        yield "an operand is neither in shared memory nor A in registers"
    if t.is_fragment(a.buffer) and (stmt.transpose_a or not _is_all(a)):
        yield "A in registers is transposed, or a part of a fragment"


def _on_chip(t: Threads, region: Region) -> bool:
    return t.is_fragment(region.buffer) or t.memory(region.buffer) is Memory.SHARED


def _is_all(region: Region) -> bool:
    shape = [int_value(e) for e in region.buffer.shape]
    return len(shape) == 2 and shape == [int_value(e) for e in region.extents]


def _warps(policy: int, rows: int, columns: int, warps: int, by_rows: bool) -> tuple[int, int]:
    """How many warps go along M and N: all of them if that divides the product, as square as can
    be unless the policy says otherwise.
    """
    found: list[tuple[tuple[int, ...], int, int]] = []
    for down in range(1, warps + 1):
        for across in range(1, warps // down + 1):
            if rows % down or columns % across or warps % (down * across):
                continue
            loads = 16 * rows // down + 8 * columns // across
            wish = 0
            if policy == ROW_POLICY or (by_rows and policy != COLUMN_POLICY):
                wish = across
            elif policy == COLUMN_POLICY:
                wish = down
            found.append(((-down * across, wish, loads), down, across))
    _, down, across = min(found)
    return down, across


# Statements --------------------------------------------------------------------------------------


def lower_tensor(job: Tensor, t: Threads, registers: dict[str, Buffer]) -> Block:
    """What one thread does of a product."""
    return _Writer(job, t, registers).lower()


class _Writer:
    """One product."""

    def __init__(self, job: Tensor, t: Threads, registers: dict[str, Buffer]) -> None:
        self.job, self.t, self.stmt = job, t, job.stmt
        self.s = job.shape
        self.loc = job.stmt.loc
        self.registers = registers
        self.c = registers[job.stmt.c.buffer.name]
        self.lane = t.digit(1, WARP)
        self.warp_row = t.digit(WARP, job.rows) if job.rows > 1 else const(0)
        self.warp_column = t.digit(WARP * job.rows, job.columns) if job.columns > 1 else const(0)

    def lower(self) -> Block:
        """The loads of operands and the products, step by step along K."""
        job, s = self.job, self.s
        a_buffer, b_buffer = self.stmt.a.buffer, self.stmt.b.buffer
        own_a = a_buffer.name in self.registers
        b = self.t.names.buffer("b_part", b_buffer.dtype, (job.across * s.b_count,))
        out: list[Stmt] = [*self.cleared(), Alloc(b, loc=self.loc)]
        if own_a:
            a = self.registers[a_buffer.name]
        else:
            a = self.t.names.buffer("a_part", a_buffer.dtype, (job.down * s.a_count,))
            out.append(Alloc(a, loc=self.loc))
        kk = self.t.names.var("kk")
        steps = job.k // s.k
        body: list[Stmt] = []
        if not own_a:
            body += self.load_a(a, kk)
        body += self.load_b(b, kk)
        i, j = self.t.names.var("mi"), self.t.names.var("ni")
        first = times(i, s.a_count)
        if own_a:
            first = times(plus(times(i, steps), kk), s.a_count)
        product = Issue(
            s.row,
            (Span(self.c, times(plus(times(i, job.across), j), s.c_count), s.c_count),),
            (Span(a, first, s.a_count), Span(b, times(j, s.b_count), s.b_count)),
            loc=self.loc,
        )
        body.append(self.loop(i, job.down, (self.loop(j, job.across, (product,)),)))
        out.append(self.loop(kk, steps, tuple(body), unroll=own_a or steps <= 8))
        return tuple(out)

    def loop(self, var: Var, count: int, body: Block, *, unroll: bool = True) -> For:
        """A loop from 0."""
        kind = LoopKind.UNROLL if unroll else LoopKind.SERIAL
        return For(var, const(0), const(count), body, kind=kind, loc=self.loc)

    def cleared(self) -> Block:
        """The accumulators set to zero, where that is asked for."""
        clear = self.stmt.clear_accum
        if clear == Const(False, BOOL):
            return ()
        k = self.t.names.var("z")
        count = int_value(self.c.shape[0]) or 0
        zero = literal(0, self.c.dtype)
        fill = self.loop(k, count, (Store(self.c, (k,), zero, loc=self.loc),))
        return (fill,) if clear == Const(True, BOOL) else (If(clear, (fill,), loc=self.loc),)

    # Operands ------------------------------------------------------------------------------------

    def quarter(self, count: int) -> tuple[Expr, Expr]:
        """The matrix of 8 rows whose address this lane gives, and the row."""
        row = Binary(BinaryOp.FLOORMOD, self.lane, const(8))
        which = Binary(BinaryOp.FLOORDIV, self.lane, const(8))
        if count < 4:
            which = Binary(BinaryOp.FLOORMOD, which, const(count))
        return (const(0) if count == 1 else which), row

    def load_a(self, a: Buffer, kk: Expr) -> Block:
        """The operand A of all instructions along M."""
        s, region, turned = self.s, self.stmt.a, self.stmt.transpose_a
        i = self.t.names.var("mi")
        top = plus(times(self.warp_row, s.m * self.job.down), times(i, s.m))
        if not self.by_matrix(region, turned):
            body = self.gather(
                a, region, turned, (top, times(kk, s.k)), times(i, s.a_count), s.tall
            )
            return (self.loop(i, self.job.down, body),)
        which, row = self.quarter(s.tall * s.deep)
        high = Binary(BinaryOp.FLOORMOD, which, const(s.tall))
        far = Binary(BinaryOp.FLOORDIV, which, const(s.tall)) if s.deep > 1 else const(0)
        load = self.matrix(
            a,
            region,
            (top, times(kk, s.k)),
            (times(i, s.a_count), s.tall * s.deep),
            (high, far, row, turned),
        )
        return (self.loop(i, self.job.down, (load,)),)

    def load_b(self, b: Buffer, kk: Expr) -> Block:
        """The operand B of all instructions along N."""
        s, region = self.s, self.stmt.b
        turned = not self.stmt.transpose_b
        base = times(self.warp_column, 8 * self.job.across)
        if not self.by_matrix(region, turned):
            j = self.t.names.var("ni")
            left = plus(base, times(j, 8))
            body = self.gather(b, region, turned, (left, times(kk, s.k)), times(j, s.b_count), 1)
            return (self.loop(j, self.job.across, body),)
        out: list[Stmt] = []
        pairs, rest = divmod(self.job.across, 2)
        for start, count, many in ((0, pairs, 2), (pairs * 2, rest, 1)):
            if not count:
                continue
            j = self.t.names.var("ni")
            which, row = self.quarter(s.deep * many)
            far = Binary(BinaryOp.FLOORMOD, which, const(s.deep)) if s.deep > 1 else const(0)
            right = Binary(BinaryOp.FLOORDIV, which, const(s.deep)) if many > 1 else const(0)
            left = plus(plus(base, times(j, 8 * many)), 8 * start)
            load = self.matrix(
                b,
                region,
                (left, times(kk, s.k)),
                (plus(times(j, many * s.b_count), start * s.b_count), s.deep * many),
                (right, far, row, turned),
            )
            out.append(self.loop(j, count, (load,)))
        return tuple(out)

    def by_matrix(self, region: Region, turned: bool) -> bool:
        """Whether `ldmatrix` can read the operand: its rows begin at multiples of 16 bytes."""
        bits = region.dtype.bits
        if bits == 64 or (turned and bits != 16):
            return False
        group = 128 // bits
        sizes = [int_value(e) for e in region.buffer.shape]
        low = int_value(region.mins[-1])
        if low is None or low % group or region.buffer.strides is not None:
            return False
        return sizes[-1] is not None and sizes[-1] % group == 0

    def matrix(
        self,
        into: Buffer,
        region: Region,
        start: tuple[Expr, Expr],
        place: tuple[Expr, int],
        lane: tuple[Expr, Expr, Expr, bool],
    ) -> Stmt:
        """One `ldmatrix`: `start` is the place along M (or N) and K, `lane` the matrix and row of
        the address that this lane gives.
        """
        across, far, row, turned = lane
        group = 128 // region.dtype.bits
        slot, count = place
        if turned:
            first = plus(start[1], plus(times(far, 8), row))
            second = plus(start[0], times(across, 8))
        else:
            first = plus(start[0], plus(times(across, 8), row))
            second = plus(start[1], times(far, group))
        source = _at(region, first, second, group)
        width = count * (32 // region.dtype.bits)
        return Issue(
            f"ldmatrix.x{count}.b16",
            (Span(into, slot, width),),
            (source,),
            imm=(("trans", turned),),
            loc=self.loc,
        )

    def gather(
        self,
        into: Buffer,
        region: Region,
        turned: bool,
        start: tuple[Expr, Expr],
        slot: Expr,
        tall: int,
    ) -> Block:
        """The elements of an operand one by one."""
        s = self.s
        group = Binary(BinaryOp.FLOORDIV, self.lane, const(4))
        member = Binary(BinaryOp.FLOORMOD, self.lane, const(4))
        out: list[Stmt] = []
        for n in range(s.deep * tall * s.packed):
            v, rest = n % s.packed, n // s.packed
            high, far = rest % tall, rest // tall
            line = plus(start[0], plus(group, 8 * high))
            deep = plus(start[1], plus(times(member, s.packed), v + far * 4 * s.packed))
            first, second = (deep, line) if turned else (line, deep)
            lows = _indices(region, first, second)
            out.append(
                Store(
                    into, (plus(slot, n),), Load(region.buffer, lows, loc=region.loc), loc=self.loc
                )
            )
        return tuple(out)


def _indices(region: Region, first: Expr, second: Expr) -> tuple[Expr, ...]:
    lead = region.mins[:-2]
    return (*lead, plus(region.mins[-2], first), plus(region.mins[-1], second))


def _at(region: Region, first: Expr, second: Expr, count: int) -> Region:
    ones = [const(1)] * (len(region.extents) - 1)
    return Region(region.buffer, _indices(region, first, second), (*ones, const(count)))
