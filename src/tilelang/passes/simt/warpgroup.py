"""Products by `wgmma`: how warpgroups divide a product, which layouts and placements that dictates,
and the instructions.

What enters: a product that adds to a whole fragment, on a chip with wgmma. What leaves: a `Group`
that says how it is done, or why not, and the statements of one thread. Layouts of accumulators and
of A in registers are those of the PTX ISA, section 9.7.15.5; matrices in shared memory lie in
panels of 128 bytes with the hardware's swizzle, and descriptors follow section 9.7.15.5.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tilelang.dtypes import DType
from tilelang.ir.expr import (
    BOOL,
    Binary,
    BinaryOp,
    Buffer,
    Const,
    Expr,
    Region,
    Unary,
    UnaryOp,
    Var,
    const,
    int_value,
)
from tilelang.ir.tile import Assert, Block, Gemm, Print, Stmt
from tilelang.isa.target import Capability, Target
from tilelang.layout.placement import GROUP, Placement, paneled
from tilelang.layout.spread import Digit, Spread
from tilelang.passes.build import plus, static_extents, times
from tilelang.passes.issue import READ, Completed, Issue, Span
from tilelang.passes.lower_parallel import statements
from tilelang.passes.simt.launch import Threads, static_shape
from tilelang.passes.simt.switches import is_off
from tilelang.scopes import Memory

WARPS = 4
GROUP_THREADS = 128
U64 = DType("uint64")
_TYPES = {
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "tf32",
    "int8": "s8",
    "uint8": "u8",
    "float8_e4m3fn": "e4m3",
    "float8_e4m3": "e4m3",
    "float8_e5m2": "e5m2",
}
_TOTALS = {"float32": "f32", "float16": "f16", "int32": "s32"}
_INTS = (8, 16, 24, *range(32, 257, 16))


@dataclass(frozen=True)
class Group:
    """A product by wgmma: `down` by `across` warpgroups, each with `blocks` of 64 rows and `n`
    columns at once.
    """

    stmt: Gemm
    row: str
    m: int
    n_all: int
    k: int
    deep: int
    down: int
    across: int
    threads: int

    @property
    def name(self) -> str:
        """The row of the instruction."""
        return self.row

    @property
    def blocks(self) -> int:
        """Blocks of 64 rows of each warpgroup."""
        return self.m // (64 * self.down)

    @property
    def n(self) -> int:
        """Columns of each warpgroup."""
        return self.n_all // self.across

    @property
    def count(self) -> int:
        """Accumulators of one instruction in each thread."""
        return self.n // 2

    def result(self) -> Spread:
        """The layout of the accumulators."""
        digits = [
            Digit(0, self.blocks, 64),
            Digit(1, self.n // 8, 8),
            Digit(0, 2, 8),
            Digit(1, 2, 1),
            Digit(1, 4, 2, 1),
            Digit(0, 8, 1, 4),
            Digit(0, WARPS, 16, 32),
            Digit(0, self.down, 64 * self.blocks, GROUP_THREADS),
            Digit(1, self.across, self.n, GROUP_THREADS * self.down),
        ]
        return Spread((self.m, self.n_all), self.threads, tuple(d for d in digits if d.size > 1))

    def left(self) -> Spread:
        """The layout of A where it is in registers."""
        packed = 32 // self.stmt.a.dtype.bits
        digits = [
            Digit(0, self.blocks, 64),
            Digit(1, self.k // self.deep, self.deep),
            Digit(1, 2, 4 * packed),
            Digit(0, 2, 8),
            Digit(1, packed, 1),
            Digit(1, 4, packed, 1),
            Digit(0, 8, 1, 4),
            Digit(0, WARPS, 16, 32),
            Digit(0, self.down, 64 * self.blocks, GROUP_THREADS),
        ]
        return Spread((self.m, self.k), self.threads, tuple(d for d in digits if d.size > 1))


def tile_placement(region: Region, t: Threads) -> Placement | None:
    """The panels in which a tile lies for wgmma; None where it cannot lie so."""
    buffer = region.buffer
    shape = static_shape(buffer)
    if t.memory(buffer) is not Memory.SHARED or shape is None or len(shape) < 2:
        return None
    if buffer.strides is not None or buffer.name in {*t.roots, *t.roots.values()}:
        return None
    rows, columns = shape[-2:]
    extents = static_extents(region)
    whole = extents is not None and extents[-2:] == (rows, columns)
    if not whole or any(int_value(m) != 0 for m in region.mins[-2:]):
        return None
    found = paneled(rows, columns, buffer.dtype.bits)
    if found is None or rows % 8 or rows * columns * buffer.dtype.bits // 8 % 1024:
        return None
    return found


def group(stmt: Gemm, t: Threads, target: Target, *, by_rows: bool) -> Group | str:
    """The product by wgmma, or why there is none."""
    fault = next(_left_out(t, target), None) or next(_faults(stmt, t), None)
    if fault is not None:
        return fault
    a, b, c = stmt.a, stmt.b, stmt.c
    m, n = (static_extents(c) or (0, 0))[-2:]
    k = (static_extents(a) or (0,))[-2 if stmt.transpose_a else -1]
    deep = 256 // a.dtype.bits
    if m % 64 or n % 8 or k % deep or not k:
        return f"wgmma does not divide {m} x {n} x {k}"
    found = _divided(stmt, m // 64, n, t.count // GROUP_THREADS, by_rows)
    if found is None:
        return f"{t.count // GROUP_THREADS} warpgroups do not divide {m} x {n}"
    down, across = found
    kind = f"{_TOTALS[c.dtype.name]}.{_TYPES[a.dtype.name]}.{_TYPES[b.dtype.name]}"
    suffix = ".rs" if t.is_fragment(a.buffer) else ""
    row = f"wgmma.m64n{n // across}k{deep}.{kind}{suffix}"
    return Group(stmt, row, m, n, k, deep, down, across, t.count)


def _left_out(t: Threads, target: Target) -> Iterator[str]:
    """What rules wgmma out for all products of a launch."""
    if not target.supports(Capability.WGMMA):
        yield "the chip has no wgmma"
    if is_off(t.fn, "wgmma"):
        yield "wgmma is left out"
    if any(isinstance(s, (Print, Assert)) for s in statements(t.launch.body)):
        yield "wgmma would wait where the kernel calls functions, to print or to report"


def _faults(stmt: Gemm, t: Threads) -> Iterator[str]:
    """What rules wgmma out, but for the extents."""
    a, b, c = stmt.a, stmt.b, stmt.c
    names = (a.dtype.name, b.dtype.name)
    if names[0] not in _TYPES or names[1] not in _TYPES or c.dtype.name not in _TOTALS:
        yield "wgmma does not multiply these types"
        return
    narrow = {"float16": ("float32", "float16"), "bfloat16": ("float32",), "float32": ("float32",)}
    whole = names[0] in ("int8", "uint8")
    totals = ("int32",) if whole else narrow.get(names[0], ("float32",))
    same = names[0] == names[1] or (a.dtype.bits == 8 and whole == (names[1] in ("int8", "uint8")))
    if c.dtype.name not in totals or not same or a.dtype.bits != b.dtype.bits:
        yield "wgmma does not multiply these types"
    if t.count % GROUP_THREADS:
        yield f"{t.count} threads are no whole warpgroups"
    if t.is_fragment(a.buffer):
        shape = static_shape(a.buffer)
        if stmt.transpose_a or shape != static_extents(a):
            yield "A in registers is transposed, or a part of a fragment"
    elif tile_placement(a, t) is None:
        yield "A cannot lie in panels of 128 bytes"
    if tile_placement(b, t) is None:
        yield "B cannot lie in panels of 128 bytes"
    for region, turned in ((a, stmt.transpose_a), (b, not stmt.transpose_b)):
        if not turned or t.is_fragment(region.buffer):
            continue
        p = tile_placement(region, t)
        if region.dtype.bits != 16 or p is None or p.span != 8:
            yield "wgmma transposes 16-bit types in panels of 128 bytes only"


def _divided(stmt: Gemm, blocks: int, n: int, groups: int, by_rows: bool) -> tuple[int, int] | None:
    """How many warpgroups go along M and N: along M if that divides, since an instruction is then
    wider.
    """
    whole = stmt.a.dtype.name in ("int8", "uint8")
    found: list[tuple[int, int, int]] = []
    for down in range(1, groups + 1):
        if groups % down or blocks % down:
            continue
        across = groups // down
        if n % across or not _legal(n // across, whole):
            continue
        if by_rows and across > 1:
            continue
        found.append((across, down, across))
    return min(found)[1:] if found else None


def _legal(n: int, whole: bool) -> bool:
    return n in _INTS if whole else n % 8 == 0 and 8 <= n <= 256


# Statements --------------------------------------------------------------------------------------


def lower_group(
    job: Group, t: Threads, registers: Mapping[str, Buffer], arrived: frozenset[str]
) -> Block:
    """What one thread does to begin a product; of the tiles in `arrived` all writes are ordered
    before what the unit reads, so that no fence is needed here.
    """
    return _Writer(job, t, registers, arrived).lower()


def lower_completed(stmt: Completed, registers: Mapping[str, Buffer]) -> Block:
    """The wait for products. Their registers are given back, and tiles count as read until here."""
    imm = (("count", stmt.count),)
    out: list[Stmt] = [Issue("wgmma.wait_group", (), (), imm=imm, loc=stmt.loc)]
    for buffer in stmt.fragments:
        mine = registers[buffer.name]
        span = Span(mine, const(0), int_value(mine.shape[0]) or 0)
        out.append(Issue("wgmma.ready", (span,), (), loc=stmt.loc))
    return (*out, *(Issue(READ, (), (r,), loc=stmt.loc) for r in stmt.tiles))


class _Writer:
    """One product."""

    def __init__(
        self, job: Group, t: Threads, registers: Mapping[str, Buffer], arrived: frozenset[str]
    ) -> None:
        self.job, self.t, self.stmt = job, t, job.stmt
        self.loc = job.stmt.loc
        self.registers, self.arrived = registers, arrived
        self.c = registers[job.stmt.c.buffer.name]
        self.row = t.digit(GROUP_THREADS, job.down) if job.down > 1 else const(0)
        self.column = t.digit(GROUP_THREADS * job.down, job.across) if job.across > 1 else const(0)

    def lower(self) -> Block:
        """Fences, descriptors, and the products of all steps along K."""
        job, stmt = self.job, self.stmt
        own_a = stmt.a.buffer.name in self.registers
        tiles = [stmt.b] if own_a else [stmt.a, stmt.b]
        out: list[Stmt] = []
        if any(r.buffer.name not in self.arrived for r in tiles):
            out.append(Issue("fence.proxy.async", (), (), loc=self.loc))
        b_first = self.descriptor(stmt.b, times(self.column, job.n), not stmt.transpose_b, out)
        a_first: list[Var] = []
        if not own_a:
            for block in range(job.blocks):
                low = plus(times(self.row, 64 * job.blocks), 64 * block)
                a_first.append(self.descriptor(stmt.a, low, stmt.transpose_a, out))
        out.append(Issue("wgmma.fence", (), (), loc=self.loc))
        out += [
            self.product(step, block, a_first, b_first)
            for step in range(job.k // job.deep)
            for block in range(job.blocks)
        ]
        out.append(Issue("wgmma.commit_group", (), (), loc=self.loc))
        return tuple(out)

    def product(self, step: int, block: int, a_first: list[Var], b_first: Var) -> Stmt:
        """One instruction."""
        job, stmt = self.job, self.stmt
        b = self.moved(b_first, stmt.b, step, not stmt.transpose_b)
        scale: Expr = Const(True, BOOL)
        if step == 0:
            clear = stmt.clear_accum
            if isinstance(clear, Const):
                scale = Const(not clear.value, BOOL)
            else:
                scale = Unary(UnaryOp.NOT, clear)
        sixteen = stmt.a.dtype.bits == 16
        imm: tuple[tuple[str, bool], ...] = ()
        if a_first:
            a: Expr | Span = self.moved(a_first[block], stmt.a, step, stmt.transpose_a)
            if sixteen:
                imm = (("trans_a", stmt.transpose_a), ("trans_b", not stmt.transpose_b))
        else:
            count = 4 * (32 // stmt.a.dtype.bits)
            steps = job.k // job.deep
            a = Span(
                self.registers[stmt.a.buffer.name], const((block * steps + step) * count), count
            )
            if sixteen:
                imm = (("trans_b", not stmt.transpose_b),)
        into = Span(self.c, const(block * job.count), job.count)
        return Issue(job.row, (into,), (a, b, scale), imm=imm, loc=self.loc)

    def placed(self, region: Region) -> Placement:
        """The placement of a tile, which `group` has found."""
        found = tile_placement(region, self.t)
        assert found is not None
        return found

    def descriptor(self, region: Region, low: Expr, turned: bool, out: list[Stmt]) -> Var:
        """The descriptor of a matrix from `low` on along M or N. The whole tile counts as read
        here, so that barriers stand before it.
        """
        p = self.placed(region)
        wide = p.span * GROUP
        lead = region.mins[:-2]
        zero = const(0)
        at = (*lead, zero, low) if turned else (*lead, low, zero)
        result = self.t.names.var("matrix", U64)
        leading = p.rows * wide if turned else GROUP
        imm = (("swizzle", wide), ("leading", leading), ("stride", 8 * wide))
        group = Region(region.buffer, at, (*[const(1)] * (len(at) - 1), const(p.group)))
        out.append(self.read(region))
        out.append(
            Issue("wgmma.descriptor", (), (group,), results=(result,), imm=imm, loc=self.loc)
        )
        return result

    def read(self, region: Region) -> Stmt:
        """Marks the whole tile as read."""
        return Issue(READ, (), (region,), loc=self.loc)

    def moved(self, first: Var, region: Region, step: int, turned: bool) -> Expr:
        """A descriptor some steps further along K."""
        p = self.placed(region)
        wide = p.span * GROUP
        if turned:
            offset = step * self.job.deep * wide
        else:
            size = step * self.job.deep * region.dtype.bits // 8
            offset = size // wide * p.rows * wide + size % wide
        if offset == 0:
            return first
        return Binary(BinaryOp.ADD, first, Const(offset // 16, U64))
