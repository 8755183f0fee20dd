"""Products of MX tiles, and the scales on their way to them.

What enters: `GemmBlockScaled` statements, copies of scales into L1, and from there into the slots
that belong to tiles of L0A and L0B. What leaves: rows `gm.l1.scales`, `l1.l0a.scales`,
`l1.l0b.scales`, `mad.scaled`. The slot of a tile is at a sixteenth of its address (tilelang 0.1.15,
tl_templates/ascend/gemm.h, kSFAddrDiv).
"""

from __future__ import annotations

from dataclasses import dataclass

from tilelang.ir.ascend import Transfer
from tilelang.ir.expr import Binary, BinaryOp, Const, Expr, Region, const, int_value
from tilelang.ir.simplify import simplify
from tilelang.ir.special import GemmBlockScaled
from tilelang.ir.thread import Array, Declare, Instr, Slot, Space
from tilelang.ir.tile import Block, Stmt
from tilelang.passes.accesses import Place
from tilelang.passes.ascend.lower_cube import FromL1, Sizes, accumulator, sizes_of
from tilelang.passes.ascend.mark_scales import PAIRS
from tilelang.passes.ascend.step import Matrix, Step
from tilelang.passes.ascend.storage import FRACTAL, SCALE_UNIT, tile_of
from tilelang.passes.build import plus, times
from tilelang.scopes import Memory

SLOT_SHARE = 16
"""Bytes of a tile for one of its slot."""

_K_OF_UNIT = 64
"""Elements of K that one unit of scales covers: two scales."""


@dataclass(frozen=True)
class Scales:
    """A part of a buffer of scales: its first unit, its rows, its units along K, and the units from
    one 16 rows of the buffer to the next.
    """

    place: Place
    index: Expr
    rows: Expr
    units: int
    pitch: int
    pack: int

    def slot(self, units: Expr | int = 0) -> Slot:
        """The first scale, some units further along K."""
        step = times(units, FRACTAL * self.pack)
        return Slot(self.place.array, plus(self.index, step), 1)


def scales_of(step: Step, r: Region) -> Scales:
    """A region of scales in L1 or of a slot."""
    tile = tile_of(r.buffer, step.memory(r), step.stmt)
    at = step.access.place(r.buffer)
    mins = step.access.indices(r.mins, None, step.env)
    extents = [step.expr(e) for e in r.extents]
    step.access.require(at, step.access.unproved(at, mins, step.env, extents), None)
    pack = SCALE_UNIT // r.buffer.dtype.bytes
    columns = int_value(extents[-1])
    if columns is None or columns % pack:
        raise step.fault(
            "shape",
            f"{columns} scales of each row of {r.buffer.name}",
            expected="whole pairs: two scales of 8 bits are one unit",
            help="pad the axis with scales of 1 (127)",
        )
    number: Expr = const(0)
    for low, size in zip(mins[:-2], r.buffer.shape[:-2], strict=True):
        number = plus(times(number, size), low)
    apart, pitch = tile.elements, tile.padded_columns // pack
    owner = step.shared.scaled.get(r.buffer.name)
    if owner is not None:  # in a slot they follow each other
        own = tile_of(owner, step.shared.memory(owner), step.stmt)
        apart = own.elements * owner.dtype.bytes // SLOT_SHARE // r.buffer.dtype.bytes
        pitch = columns // pack
    row, column = mins[-2:]
    step.whole(row, FRACTAL, r.buffer, "row")
    step.whole(column, pack, r.buffer, "column")
    blocks = simplify(Binary(BinaryOp.FLOORDIV, row, Const(FRACTAL, row.dtype)), step.env)
    units = simplify(Binary(BinaryOp.FLOORDIV, column, Const(pack, column.dtype)), step.env)
    offset = plus(times(blocks, pitch), units)
    index = plus(times(number, apart), times(offset, FRACTAL * pack))
    made = simplify(plus(at.offset, index), step.env)
    return Scales(at, made, extents[-2], columns // pack, pitch, pack)


# Copies -------------------------------------------------------------------------------------------


def gm_to_l1(step: Step, stmt: Transfer) -> Block:
    """Scales from global memory, 16 rows by 16 rows."""
    m = scales_of(step, stmt.dst)
    box = step.box(stmt.src)
    if stmt.transpose or stmt.pad is not None:
        raise step.fault("option", "a copy of scales with transpose or pad_value")
    rows, columns = step.two_axes(box, m.rows, const(m.units * m.pack))
    fits = step.same(rows.extent, m.rows) and int_value(columns.extent) == m.units * m.pack
    if not fits or int_value(columns.stride) != 1:
        raise step.fault("shape", "the two sides of a copy of scales do not match")
    if columns.valid is not None:
        raise step.fault(
            "shape",
            f"scales of {stmt.src.buffer.name} that may end inside the tile",
            expected="all scales of a row: K in whole tiles",
            help="pad the axis with scales of 1 (127)",
        )
    sizes = (rows.inside, const(m.units), rows.stride, m.rows, const(m.pitch))
    return (step.instr("gm.l1.scales", m.slot(), step.slot(box), *sizes, pack=m.pack),)


def to_slot(step: Step, stmt: Transfer) -> Block:
    """Scales from L1 into the slot of a tile."""
    src, dst = scales_of(step, stmt.src), scales_of(step, stmt.dst)
    if not step.same(src.rows, dst.rows) or src.units != dst.units:
        raise step.fault("shape", "the scales in L1 and the slot of the tile do not match")
    side = "l0a" if step.memory(stmt.dst) is Memory.L0A_SCALE else "l0b"
    return (_load(step, side, src.slot(), dst.slot(), src, src.units),)


def _load(step: Step, side: str, src: Slot, dst: Slot, of: Scales, units: Expr | int) -> Instr:
    return step.instr(f"l1.{side}.scales", dst, src, of.rows, units, of.pitch, pack=of.pack)


# Products -----------------------------------------------------------------------------------------


def gemm_scaled(step: Step, stmt: GemmBlockScaled) -> Block:
    """A product of MX tiles."""
    packed = stmt.a.dtype == PAIRS
    if packed and (stmt.transpose_a or not stmt.transpose_b):
        raise step.fault(
            "option",
            "a product of fp4 tiles of which two neighbours are not neighbours along K",
            expected="transpose_A=False, transpose_B=True",
        )
    if step.memory(stmt.a) is Memory.L1:
        return _ScaledFromL1(step, stmt).block()
    a, b = step.matrix(stmt.a), step.matrix(stmt.b)
    for operand in (a, b):
        step.from_origin(operand)
    sizes = sizes_of(step, stmt, a, b, step.matrix(stmt.c, wide=FRACTAL))
    c = accumulator(step, stmt.c, sizes)
    scales = [scales_of(step, r) for r in (stmt.sfa, stmt.sfb)]
    slots = (a.slot, b.slot, *(s.slot() for s in scales))
    init = step.expr(stmt.clear_accum)
    return (_mad(step, c, slots, init, sizes, scales[0].pack),)


def _mad(
    step: Step, c: Matrix, slots: tuple[Slot, ...], init: Expr, sizes: Sizes, pack: int
) -> Instr:
    counts = (sizes.m, sizes.n, sizes.k, const(c.tile.padded_rows))
    packed = slots[0].array.type == PAIRS
    imm = {"c0": 32, "pack": pack, "packed": packed}
    return step.instr("mad.scaled", c.slot, *slots, init, *counts, **imm)


class _ScaledFromL1(FromL1):
    """Operands and scales in L1."""

    def __init__(self, step: Step, stmt: GemmBlockScaled) -> None:
        self.packed = stmt.a.dtype == PAIRS
        self.scales = tuple(scales_of(step, r) for r in (stmt.sfa, stmt.sfb))
        if len({s.pack for s in self.scales}) > 1:
            raise step.fault(
                "dtype", "scales of 8 bits for one operand and of 16 for the other", expected="one"
            )
        super().__init__(step, stmt)

    @property
    def grain(self) -> int:
        """Storage elements of K that one unit of scales covers."""
        return _K_OF_UNIT // 2 if self.packed else _K_OF_UNIT

    def halves(self) -> tuple[tuple[Array, Array], Block]:
        """The slots too."""
        tiles, declared = super().halves()
        made: list[Array] = []
        more: list[Stmt] = []
        for tile, stmt, scales, space in zip(
            tiles, declared, self.scales, (Space.L0A_SCALE, Space.L0B_SCALE), strict=True
        ):
            assert isinstance(stmt, Declare)
            dtype = scales.place.array.type
            room = (int_value(tile.size or const(0)) or 0) * tile.type.bytes
            size = const(room // SLOT_SHARE // dtype.bytes)
            name = self.step.shared.names.name(space.value)
            array = Array(name, dtype, size, space=space, align=32)
            made.append(array)
            more.append(Declare(array, offset=(stmt.offset or 0) // SLOT_SHARE, loc=self.loc))
        self.slots = tuple(made)
        return tiles, (*declared, *more)

    def scale_slots(self, tiles: tuple[Slot, Slot]) -> list[Slot]:
        """The slots of the tiles of one round."""
        out: list[Slot] = []
        for tile, array in zip(tiles, self.slots, strict=True):
            ratio = SLOT_SHARE * array.type.bytes // tile.array.type.bytes
            index = Binary(BinaryOp.FLOORDIV, tile.index, Const(ratio, tile.index.dtype))
            out.append(Slot(array, simplify(index, self.step.env), 1))
        return out

    def more_loads(self, kk: Expr, k: Expr, tiles: tuple[Slot, Slot]) -> list[Stmt]:
        """The scales of one part of K."""
        done = times(kk, self.chunk // self.grain)
        units = simplify(Binary(BinaryOp.FLOORDIV, k, Const(self.grain, k.dtype)), self.step.env)
        slots = self.scale_slots(tiles)
        return [
            _load(self.step, side, s.slot(done), slot, s, units)
            for side, s, slot in zip(("l0a", "l0b"), self.scales, slots, strict=True)
        ]

    def product(self, tiles: tuple[Slot, Slot], init: Expr, sizes: Sizes) -> Instr:
        """The product of one part of K."""
        slots = (*tiles, *self.scale_slots(tiles))
        return _mad(self.step, self.c, slots, init, sizes, self.scales[0].pack)
