"""Products of tcgen05: which instructions they are, and the statements of one thread.

What enters: an `AsyncGemm` of the unit TCGEN05, whose result lies in Tensor Memory. What leaves:
marks of what the hardware reads and changes, and the instructions, issued by the first of the
threads that get there. Shapes and types are those of the PTX ISA, tcgen05.mma: Kinds, Matrix
Shape; what does not fit is an error at the product.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilelang.dtypes import DType
from tilelang.errors import Loc, TileError, error
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
from tilelang.ir.scales import PairScaledGemm, ScaleCopy
from tilelang.ir.sync import AsyncGemm, AsyncUnit, MmaArrive
from tilelang.ir.tile import Block, If, Stmt
from tilelang.layout.cells import Cells, Lanes
from tilelang.passes.build import as_type, both, compare, plus, static_extents, times
from tilelang.passes.issue import DONE, LANES_READ, READ, WRITTEN, Issue
from tilelang.passes.lower_parallel import statements
from tilelang.passes.simt.clusters import Clusters
from tilelang.passes.simt.launch import Tensor, Threads
from tilelang.passes.simt.operands import DEPTH_BITS, Operand, operand

U32, U64 = DType("uint32"), DType("uint64")
TYPES = {
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "tf32",
    "float8_e4m3fn": "e4m3",
    "float8_e4m3": "e4m3",
    "float8_e5m2": "e5m2",
    "int8": "s8",
    "uint8": "u8",
}
KINDS = {"f16": "f16", "bf16": "f16", "tf32": "tf32", "e4m3": "f8f6f4", "e5m2": "f8f6f4"}
TOTALS = {
    "f16": ("float32", "float16"),
    "bf16": ("float32",),
    "tf32": ("float32",),
    "e4m3": ("float32", "float16"),
    "e5m2": ("float32", "float16"),
    "s8": ("int32",),
    "u8": ("int32",),
}
"""The types of the result that go with each type of A."""

WIDEST = 256
"""Columns of the result of one instruction."""


@dataclass(frozen=True)
class Product:
    """A product by instructions of `kind`, `n` columns of the result each, for each of `bands` of
    rows.
    """

    stmt: AsyncGemm
    kind: str
    left: str
    right: str
    m: int
    n: int
    columns: int
    k: int
    c: Tensor
    a: Operand | Tensor
    b: Operand
    bands: int

    @property
    def deep(self) -> int:
        """Elements along K that one instruction multiplies."""
        return DEPTH_BITS // self.stmt.b.dtype.bits

    @property
    def row(self) -> str:
        """The row of the instruction."""
        pair = ".cta2" if self.stmt.two_cta else ""
        source = "" if isinstance(self.a, Operand) else ".ts"
        return f"tcgen05.mma{pair}.{self.kind}{source}"


def product(stmt: AsyncGemm, t: Threads) -> Product:
    """How a product is made; raises a located error where there is no instruction for it."""
    a, b, c = stmt.a, stmt.b, stmt.c
    left, right = TYPES.get(a.dtype.name, ""), TYPES.get(b.dtype.name, "")
    kind = "i8" if left in ("s8", "u8") else KINDS.get(left, "")
    other = "i8" if right in ("s8", "u8") else KINDS.get(right, "")
    mixed = left != right and kind not in ("f8f6f4", "i8")
    if not kind or kind != other or mixed or c.dtype.name not in TOTALS[left]:
        raise _no_instruction(
            stmt,
            f"{a.dtype} by {b.dtype} into {c.dtype}",
            "fp16, bf16, fp32 (as TF32) or fp8 into fp32, fp16 or fp8 into fp16, int8 into int32",
        )
    total = t.tensors.get(c.buffer.name)
    if total is None:
        raise _no_instruction(stmt, f"{c.buffer.name} has other rows", "128 or 64 rows")
    m, columns = (static_extents(c) or (0, 0))[-2:]
    k = (static_extents(b) or (0, 0))[-1 if stmt.transpose_b else -2]
    deep = DEPTH_BITS // b.dtype.bits
    rows = total.cells.rows
    if m % rows or not m or k % deep or not k:
        raise _no_instruction(
            stmt, f"{m} x {columns} x {k}", f"{rows} rows, K a multiple of {deep}"
        )
    n = _width(columns, total.cells, kind) if not stmt.two_cta else _width_of_pair(columns)
    if n is None:
        legal = "a multiple of 32, of at most 256 columns" if stmt.two_cta else ""
        raise _no_instruction(stmt, f"N = {columns}", legal or _widths(total.cells, kind))
    blocks = 2 if stmt.two_cta else 1
    if stmt.two_cta:
        _check_pair(stmt, total, t)
    lower = _tensor_operand(stmt, t) if a.buffer.name in t.tensors else None
    upper = lower or shared_operand(stmt, a, t, turned=stmt.transpose_a)
    lies = shared_operand(stmt, b, t, turned=not stmt.transpose_b)
    word = (blocks * rows, n)
    return Product(stmt, kind, left, right, *word, columns, k, total, upper, lies, m // rows)


def is_pair(body: Block) -> bool:
    """Whether blocks multiply in pairs: then all that a kernel does with tcgen05 is of the pair."""
    return any(
        isinstance(s, PairScaledGemm) or (isinstance(s, (AsyncGemm, ScaleCopy)) and s.two_cta)
        for s in statements(body)
    )


def check_cluster(stmt: Stmt, t: Threads) -> None:
    """A cluster has pairs of blocks; raises if it does not."""
    if math.prod(t.launch.cluster) % 2:
        raise error(
            "target",
            f"a product of two blocks, in a cluster of {math.prod(t.launch.cluster)}",
            stmt.loc,
            expected="a cluster of 2 blocks, or of pairs of them",
            help="launch it by T.ClusterKernel(..., cluster_dims=2)",
        )


def _check_pair(stmt: AsyncGemm, total: Tensor, t: Threads) -> None:
    """A pair of blocks can multiply; raises if it cannot."""
    check_cluster(stmt, t)
    whole = static_extents(stmt.c) == tuple(int_value(n) for n in stmt.c.buffer.shape)
    if total.cells.lanes is Lanes.FOLDED and not whole:
        raise _no_instruction(stmt, f"a part of {stmt.c.buffer.name}", "all of it")


def _width_of_pair(columns: int) -> int | None:
    """The columns of the result of a pair, each block of which has half of B."""
    return columns if columns in range(32, WIDEST + 1, 32) else None


def _no_instruction(stmt: AsyncGemm, got: str, expected: str) -> TileError:
    return error(
        "target",
        f"no instruction of tcgen05 multiplies into {stmt.c.buffer.name} what is asked for",
        stmt.loc,
        expected=expected,
        got=got,
        help="use other tiles, or accumulate in a fragment: T.gemm takes any shape there",
    )


def shared_operand(stmt: Stmt, region: Region, t: Threads, *, turned: bool) -> Operand:
    """An operand in shared memory; raises if it does not lie as tcgen05 reads it."""
    found = operand(region, t, turned=turned)
    if isinstance(found, Operand):
        return found
    raise error(
        "target",
        f"tcgen05 cannot read {region.buffer.name} as it lies: {found}",
        stmt.loc,
        expected="rows of 32, 64 or a multiple of 128 bytes, and parts that begin with them",
        help="T.gemm copies such an operand into a tile of its own",
    )


def _tensor_operand(stmt: AsyncGemm, t: Threads) -> Tensor:
    """A in Tensor Memory: its rows lie in lanes, its elements packed along the columns."""
    found, total = (t.tensors[r.buffer.name] for r in (stmt.a, stmt.c))
    rows, wanted = ((static_extents(r) or (0, 0))[-2] for r in (stmt.a, stmt.c))
    if stmt.transpose_a or rows != wanted or found.cells.rows != total.cells.rows:
        raise _no_instruction(stmt, f"A is {rows} rows in Tensor Memory", "the rows of the result")
    return found


def _legal(kind: str, cells: Cells) -> tuple[int, ...]:
    """The columns that one instruction can have (PTX ISA, tcgen05: Matrix Shape)."""
    if cells.lanes is Lanes.FULL:
        return tuple(range(16, WIDEST + 1, 16))
    return (8, 16, 24, *range(32, 257, 16)) if kind == "i8" else tuple(range(8, WIDEST + 1, 8))


def _widths(cells: Cells, kind: str) -> str:
    legal = _legal(kind, cells)
    return f"a multiple of {legal[0]}, in equal parts of at most {WIDEST} columns"


def _width(columns: int, cells: Cells, kind: str) -> int | None:
    """The widest instruction of which a whole number makes up the columns."""
    legal = set(_legal(kind, cells))
    for count in range(-(-columns // WIDEST), columns // 8 + 1):
        if columns % count == 0 and columns // count in legal:
            return columns // count
    return None


def shared_operands(stmt: AsyncGemm, t: Threads) -> list[Operand]:
    """The operands of a product that lie in shared memory."""
    if stmt.unit is not AsyncUnit.TCGEN05:
        return []
    job = product(stmt, t)
    return [x for x in (job.a, job.b) if isinstance(x, Operand)]


def unit_tiles(body: Block) -> frozenset[str]:
    """The names of the buffers that products of tcgen05 read."""
    found: set[str] = set()
    for s in statements(body):
        if isinstance(s, AsyncGemm) and s.unit is AsyncUnit.TCGEN05:
            found |= {s.a.buffer.name, s.b.buffer.name}
        elif isinstance(s, ScaleCopy):
            found.add(s.src.buffer.name)
    return frozenset(found)


# Statements --------------------------------------------------------------------------------------


def lower_product(stmt: AsyncGemm, t: Threads, arrived: frozenset[str]) -> Block:
    """What one thread does of a product; writes of the tiles in `arrived` are ordered before what
    the unit reads, so that no fence is needed here.
    """
    return _Writer(product(stmt, t), t, arrived).lower()


def issued_product(stmt: AsyncGemm, t: Threads) -> Block:
    """What one thread does that issues a product by itself, in a part of its own."""
    return tuple(_Writer(product(stmt, t), t, frozenset()).steps())


def issuer(t: Threads, *, pair: bool) -> Expr:
    """Whether a thread issues an operation: the first one, of a pair that of its first block."""
    if not pair:
        return t.first()
    rank = Clusters(t).rank()
    leads = compare(BinaryOp.EQ, Binary(BinaryOp.FLOORMOD, rank, const(2)), 0)
    return both((t.first(), leads))


def lower_arrival(stmt: MmaArrive, t: Threads) -> Block:
    """The mbarrier is arrived at when all products before are complete."""
    mark = Issue(WRITTEN, (stmt.barrier,), (), loc=stmt.loc)
    pair = "cta2" if is_pair(t.launch.body) else ""
    done = commit(stmt.barrier, stmt, pair, t if stmt.two_cta else None)
    return (mark, If(t.first(), (done,), loc=stmt.loc))


def awaited(used: Sequence[Region], barrier: Region, loc: Loc | None) -> Block:
    """Marks that stand after the wait for products: what they used is free, and no product may
    complete at the mbarrier again before all threads have got here, since a wait knows a phase
    by its parity only.
    """
    return (
        Issue(DONE, (), (*used, barrier), loc=loc),
        Issue(LANES_READ, (), (barrier,), loc=loc),
    )


def commit(barrier: Region, stmt: Stmt, group: str = "", pair: Threads | None = None) -> Stmt:
    """The mbarrier is arrived at when all products of the thread before are complete; with `pair`
    those of both blocks.
    """
    row = f"tcgen05.commit.{group}".removesuffix(".")
    if pair is None:
        return Issue(row, (barrier,), (), loc=stmt.loc)
    blocks = Binary(BinaryOp.SHL, const(3), Clusters(pair).leader())
    if blocks.b == const(0):
        blocks = const(3)
    return Issue(f"{row}.multicast", (barrier,), (as_type(blocks, U32),), loc=stmt.loc)


def address(tensor: Tensor, region: Region) -> Expr:
    """The address of the first element of a part of Tensor Memory."""
    cells = tensor.cells
    batch: Expr = const(0)
    for low, extent in zip(region.mins[:-2], region.buffer.shape[:-2], strict=True):
        batch = plus(times(batch, extent), low)
    if cells.bands > 1:
        band = Binary(BinaryOp.FLOORDIV, region.mins[-2], const(cells.rows))
        known = int_value(region.mins[-2])
        band = band if known is None else const(known // cells.rows)
        batch = plus(times(batch, cells.bands), band)
    column = region.mins[-1]
    if cells.in_cell > 1:
        column = Binary(BinaryOp.FLOORDIV, column, Const(cells.in_cell, column.dtype))
    return moved(tensor.address, plus(times(batch, cells.step), column))


def moved(at: Expr, cells: Expr | int) -> Expr:
    """An address some cells further along the columns."""
    by = as_type(const(cells) if isinstance(cells, int) else cells, U32)
    return at if by == Const(0, U32) else Binary(BinaryOp.ADD, at, by)


class _Writer:
    """One product."""

    def __init__(self, job: Product, t: Threads, arrived: frozenset[str]) -> None:
        self.job, self.t, self.stmt = job, t, job.stmt
        self.arrived = arrived
        self.loc = job.stmt.loc

    def lower(self) -> Block:
        """Fences and marks by every thread, the instructions by the first one."""
        stmt = self.stmt
        tiles = [x.region for x in (self.job.a, self.job.b) if isinstance(x, Operand)]
        out: list[Stmt] = []
        if any(r.buffer.name not in self.arrived for r in tiles):
            out.append(Issue("fence.proxy.async", (), (), loc=self.loc))
        out += [Issue(READ, (), (r,), loc=self.loc) for r in (stmt.a, stmt.b)]
        changed = (stmt.c,) if stmt.barrier is None else (stmt.c, stmt.barrier)
        out.append(Issue(WRITTEN, changed, (), loc=self.loc))
        first = issuer(self.t, pair=stmt.two_cta)
        return (*out, If(first, tuple(self.steps()), loc=self.loc))

    def steps(self) -> Iterator[Stmt]:
        """Descriptors, one instruction for each step along K, each band of rows and each part of N,
        and the arrival when they are complete.
        """
        job, stmt = self.job, self.stmt
        word = self.t.names.var("word", U32)
        imm = (
            ("d", {"float32": "f32", "float16": "f16", "int32": "s32"}[stmt.c.dtype.name]),
            ("a", job.left),
            ("b", job.right),
            ("m", job.m),
            ("n", job.n),
            ("trans_a", isinstance(job.a, Operand) and job.a.turned),
            ("trans_b", job.b.turned),
        )
        yield Issue("tcgen05.instruction", (), (), results=(word,), imm=imm, loc=self.loc)
        lefts: list[Var] = []
        for band in range(job.bands if isinstance(job.a, Operand) else 0):
            assert isinstance(job.a, Operand)
            lefts.append(self.t.names.var("matrix", U64))
            yield descriptor(job.a, band * job.c.cells.rows, lefts[-1])
        for part in range(job.columns // job.n):
            b_first = self.t.names.var("matrix", U64)
            yield descriptor(job.b, part * job.n, b_first)
            for band in range(job.bands):
                a_first = lefts[band] if lefts else None
                for step in range(job.k // job.deep):
                    yield self.instruction((band, part, step), (a_first, b_first, word))
        if stmt.barrier is not None:
            pair = stmt.two_cta
            yield commit(stmt.barrier, stmt, "cta2" * pair, self.t if pair else None)

    def instruction(self, at: tuple[int, int, int], words: tuple[Var | None, Var, Var]) -> Stmt:
        """The instruction for a band of rows, a part of N and a step along K."""
        job, stmt = self.job, self.stmt
        band, part, step = at
        a_first, b_first, word = words
        scale: Expr = Const(True, BOOL)
        if step == 0:
            clear = stmt.clear_accum
            whole = Const(not clear.value, BOOL) if isinstance(clear, Const) else None
            scale = whole or Unary(UnaryOp.NOT, clear)
        if isinstance(job.a, Operand) and a_first is not None:
            a = further(a_first, job.a.moved(step * job.deep))
        else:
            assert isinstance(job.a, Tensor)
            deep = band * job.a.cells.step + step * DEPTH_BITS // 32
            a = moved(address(job.a, stmt.a), deep)
        b = further(b_first, job.b.moved(step * job.deep))
        c = moved(address(job.c, stmt.c), band * job.c.cells.step + part * job.n)
        return Issue(job.row, (), (c, a, b, word, scale), loc=self.loc)


def descriptor(x: Operand, low: int, result: Var) -> Stmt:
    """The descriptor of a matrix from row (column, where it is turned) `low` on."""
    mins = list(x.region.mins)
    axis = -1 if x.turned else -2
    mins[axis] = plus(mins[axis], low)
    ones = (*[const(1)] * (len(mins) - 1), const(x.placement.group))
    first = Region(x.region.buffer, tuple(mins), ones, loc=x.region.loc)
    imm = (("swizzle", x.wide), ("leading", x.leading), ("stride", x.stride))
    return Issue("tcgen05.descriptor", (), (first,), results=(result,), imm=imm, loc=x.region.loc)


def further(first: Var, size: int) -> Expr:
    """A descriptor `size` bytes further on."""
    return Binary(BinaryOp.ADD, first, Const(size // 16, U64)) if size else first
