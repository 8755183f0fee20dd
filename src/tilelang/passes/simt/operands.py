"""Where the operands of products of tcgen05 lie in shared memory.

What enters: the regions of a product into Tensor Memory. What leaves: their `Placement` and where
descriptors begin, or why they cannot lie so; operands of which that is true are copied into tiles
of their own first. Layouts are those of the PTX ISA, tcgen05: Canonical layouts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from tilelang.ir.affine import Ranges, bounds
from tilelang.ir.expr import (
    BinaryOp,
    Expr,
    Region,
    Select,
    Var,
    const,
    int_value,
)
from tilelang.ir.interval import Interval, interval
from tilelang.ir.tile import Alloc, Block, For, Gemm, Parallel, Stmt, Store
from tilelang.layout.placement import GROUP, Placement, paneled
from tilelang.passes.build import compare, element, literal, static_extents
from tilelang.passes.lower_parallel import statements
from tilelang.passes.simt.launch import Threads, static_shape
from tilelang.scopes import Memory

DEPTH_BITS = 256
"""Bits of a row of A that one instruction multiplies, where elements lie as they are."""


@dataclass(frozen=True)
class Operand:
    """A matrix in shared memory: `turned` where its rows lie along K."""

    region: Region
    placement: Placement
    turned: bool

    @property
    def wide(self) -> int:
        """Bytes of a row of a panel, the span of the swizzle."""
        return self.placement.span * GROUP

    @property
    def leading(self) -> int:
        """Bytes from a panel to the next one; not looked at where rows lie along M or N."""
        return self.placement.rows * self.wide if self.turned else GROUP

    @property
    def stride(self) -> int:
        """Bytes from 8 rows to the next 8."""
        return 8 * self.wide

    def moved(self, deep: int) -> int:
        """Bytes from the first element to that `deep` elements further along K."""
        if self.turned:
            return deep * self.wide
        return self._column(self.first + deep) - self._column(self.first)

    @property
    def first(self) -> int:
        """The first column, as far as it counts within a panel."""
        return (int_value(self.region.mins[-1]) or 0) % self.placement.panel

    def _column(self, column: int) -> int:
        """Bytes before a column, in a row whose groups the swizzle leaves in place."""
        size = column * self.region.dtype.bits // 8
        return size // self.wide * self.placement.rows * self.wide + size % self.wide


def operand(region: Region, t: Threads, *, turned: bool) -> Operand | str:
    """A matrix in shared memory as tcgen05 reads it, or why it does not lie so."""
    found = _placement(region, t)
    if isinstance(found, str):
        return found
    if turned and region.dtype.bits == 32:
        return f"32-bit elements of {region.buffer.name} lie along M or N"
    why = next(_origin_faults(region, found, strides(t), turned=turned), None)
    return why or Operand(region, found, turned)


def _placement(region: Region, t: Threads) -> Placement | str:
    buffer, bits = region.buffer, region.dtype.bits
    shape, extents, name = static_shape(buffer), static_extents(region), buffer.name
    if t.memory(buffer) is not Memory.SHARED or shape is None or len(shape) < 2:
        return f"{name} is no matrix in shared memory"
    if buffer.strides is not None or name in {*t.roots, *t.roots.values()}:
        return f"another view of {name} exists"
    if extents is None or any(n != 1 for n in extents[:-2]):
        return f"the part of {name} has a size that is known at run time only"
    rows, columns = shape[-2:]
    found = paneled(rows, columns, bits)
    # Each 8 rows of a panel repeat the pattern; arrays of a KiB or more begin where it does.
    if found is None or rows % 8 or math.prod(shape) * bits // 8 < 1024:
        return f"{rows} x {columns} {region.dtype} of {name} do not fill panels with a swizzle"
    return found


def strides(t: Threads) -> Ranges:
    """What is known of the variables of loops that go on by more than 1."""
    out: dict[Var, Interval] = {}
    for s in statements(t.launch.body):
        if isinstance(s, For) and s.step is not None:
            start, step = int_value(s.start), int_value(s.step)
            if start is not None and step is not None and step > 1:
                out[s.var] = interval(start, None, step, start % step)
    return out


def _origin_faults(region: Region, p: Placement, ranges: Ranges, *, turned: bool) -> Iterator[str]:
    """Why a descriptor cannot begin where a part does."""
    deep = p.panel if turned else DEPTH_BITS // region.dtype.bits
    low, wide = region.mins[-1], (static_extents(region) or (p.panel,))[-1]
    # A part that begins at a place known at run time only lies in one panel.
    within = wide if not turned and p.panel % wide == 0 and wide % deep == 0 else p.panel
    step = deep if int_value(low) is not None else within
    for at, unit, axis in ((region.mins[-2], 8, "row"), (low, step, "column")):
        if not bounds(at, ranges).divisible_by(unit):
            yield f"the first {axis} of the part of {region.buffer.name} is no multiple of {unit}"


def depth(stmt: Gemm) -> int:
    """Elements along K that one instruction multiplies."""
    return DEPTH_BITS // stmt.b.dtype.bits


def reads_tiles(stmt: Stmt, t: Threads) -> bool:
    """Whether a statement is a product into Tensor Memory of which the unit reads the operands in
    shared memory where they are, and no thread does.
    """
    if type(stmt) is not Gemm or t.memory(stmt.c.buffer) is not Memory.TMEM:
        return False
    k = (static_extents(stmt.b) or (0, 0))[-1 if stmt.transpose_b else -2]
    sides = ((stmt.a, stmt.transpose_a), (stmt.b, not stmt.transpose_b))
    return k % depth(stmt) == 0 and all(
        region.dtype.bits >= 8 and isinstance(operand(region, t, turned=turned), Operand)
        for region, turned in sides
        if t.memory(region.buffer) is Memory.SHARED
    )


def staged_product(stmt: Gemm, t: Threads) -> tuple[Block, Gemm]:
    """A product whose operands in shared memory lie as tcgen05 reads them, and the copies that
    this needs. K is filled with zeros to a multiple of what an instruction multiplies.
    """
    deep = depth(stmt)
    k = (static_extents(stmt.b) or (0, 0))[-1 if stmt.transpose_b else -2]
    short = k % deep != 0
    before: list[Stmt] = []
    changes: dict[str, object] = {}
    for name, turned in (("a", stmt.transpose_a), ("b", not stmt.transpose_b)):
        region: Region = getattr(stmt, name)
        if t.memory(region.buffer) is not Memory.SHARED:
            continue
        found = operand(region, t, turned=turned)
        if isinstance(found, Operand) and not short:
            continue
        why = f"K = {k} is no multiple of {deep}" if isinstance(found, Operand) else found
        t.note("staged", f"{region.buffer.name} is copied for the product: {why}", stmt.loc)
        changes[name], copies = _copied(region, t, turned=turned, deep=-(-k // deep) * deep)
        before += copies
        changes[f"transpose_{name}"] = name == "b"
    return tuple(before), stmt.with_(**changes) if changes else stmt


def _copied(region: Region, t: Threads, *, turned: bool, deep: int) -> tuple[Region, Block]:
    """A tile whose rows lie along M or N, `deep` elements each, with the elements of a region."""
    extents = static_extents(region) or (0, 0)
    many, k = (extents[-1], extents[-2]) if turned else (extents[-2], extents[-1])
    rows = -(-many // 8) * 8
    while rows * deep * region.dtype.bits // 8 % 1024:
        rows += 8
    tile = t.names.buffer(f"{region.buffer.name}_tile", region.dtype, (rows, deep), "shared.dyn")
    i, j = t.names.var("i"), t.names.var("j")
    lead: list[Expr] = [const(0)] * (len(extents) - 2)
    value: Expr = element(region, [*lead, j, i] if turned else [*lead, i, j])
    if k != deep:
        inside = compare(BinaryOp.LT, j, k)
        value = Select(inside, value, literal(0, region.dtype), lazy=True)
    store = Store(tile, (i, j), value, loc=region.loc)
    nest = Parallel((i, j), (const(many), const(deep)), (store,), loc=region.loc)
    part = Region(tile, (const(0), const(0)), nest.extents, loc=region.loc)
    return part, (Alloc(tile, loc=region.loc), nest)
