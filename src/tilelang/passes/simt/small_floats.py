"""Tiles of 4-bit floats in shared memory, packed as the tensor cores read them.

What enters: the statements of a launch, of whose products with scales the kinds are settled. What
leaves: the same, where the operands of 4 bits of products that the author issues are bytes: two
elements in each, or, in products with 8-bit floats, 16 elements in the first 8 of 16 bytes (PTX
ISA, tcgen05: Packing formats). Copies into them pack; what else uses them is an error.
"""

from __future__ import annotations

from collections.abc import Callable

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
    const,
    int_value,
)
from tilelang.ir.scales import AsyncScaledGemm
from tilelang.ir.tile import Alloc, Block, Copy, Parallel, Stmt, Store
from tilelang.passes.build import (
    as_type,
    element,
    map_statements,
    plus,
    static_extents,
    times,
)
from tilelang.passes.lower_parallel import own_nodes, statements
from tilelang.passes.simt.launch import Threads

U4, U8, U32, F4 = DType("uint4"), DType("uint8"), DType("uint32"), DType("float4_e2m1fn")
HALF = 8
"""Bytes of elements in each 16 of a tile that is multiplied with 8-bit floats."""


def packed_bytes(value: Callable[[Expr], Expr], at: Expr) -> Expr:
    """Two elements as a byte, the first in the low nibble; `value` gives an element's code."""
    high = Binary(BinaryOp.SHL, value(plus(times(at, 2), 1)), Const(4, U32))
    return Cast(Binary(BinaryOp.BITOR, value(times(at, 2)), high), U8)


def code(x: Expr) -> Expr:
    """The four bits of a float, as uint32."""
    return Cast(Bitcast(as_type(x, F4), U4), U32)


def pack_operands(body: Block, t: Threads) -> Block:
    """The statements with tiles of bytes."""
    tiles: dict[str, _Tile] = {}
    for s in statements(body):
        for region in (s.a, s.b) if isinstance(s, AsyncScaledGemm) else ():
            if region.dtype.numpy == F4.numpy:
                tiles[region.buffer.name] = _Tile(region.buffer, region.dtype.bits == 4, t)

    def one(stmt: Stmt) -> Block | None:
        if isinstance(stmt, Alloc):
            found = tiles.get(stmt.buffer.name)
            return None if found is None else (stmt.with_(buffer=found.bytes),)
        used = {n.name for n in own_nodes(stmt) if isinstance(n, Buffer)} & tiles.keys()
        if not used:
            return None
        match stmt:
            case Copy() if stmt.src.buffer.name not in used:
                return tiles[stmt.dst.buffer.name].copied(stmt)
            case AsyncScaledGemm():
                a, b = (
                    tiles[r.buffer.name].operand(r, stmt, turned=turned)
                    if r.buffer.name in used
                    else r
                    for r, turned in ((stmt.a, stmt.transpose_a), (stmt.b, not stmt.transpose_b))
                )
                return (stmt.with_(a=a, b=b),)
            case _:
                raise _misused(stmt, sorted(used)[0])

    return map_statements(body, one) if tiles else body


class _Tile:
    """A buffer of 4-bit floats; `dense` where all of its bits are elements."""

    def __init__(self, buffer: Buffer, dense: bool, t: Threads) -> None:
        self.t, self.dense = t, dense
        *lead, columns = buffer.shape
        self.bytes = buffer.with_(type=U8, shape=(*lead, self.halved(columns)))

    def halved(self, e: Expr) -> Expr:
        """Where an element lies, counted in bytes from the first of its row."""
        value = int_value(e)
        if not self.dense:
            return e
        return Binary(BinaryOp.FLOORDIV, e, const(2)) if value is None else const(value // 2)

    def part(self, region: Region, stmt: Stmt) -> Region:
        """A part of the tile as bytes."""
        low, wide = region.mins[-1], region.extents[-1]
        step = 2 if self.dense else 2 * HALF
        if not all(bounds(e, {}).divisible_by(step) for e in (low, wide)):
            raise error(
                "target",
                f"a part of {region.buffer.name}, whose elements of 4 bits are packed",
                stmt.loc,
                expected=f"columns that begin at a multiple of {step} and are as many",
                help="use other tiles",
            )
        mins, extents = ((*x[:-1], self.halved(x[-1])) for x in (region.mins, region.extents))
        return Region(self.bytes, mins, extents, loc=region.loc)

    def operand(self, region: Region, stmt: Stmt, *, turned: bool) -> Region:
        """The operand of a product."""
        if turned:
            raise error(
                "target",
                f"elements of 4 bits of {region.buffer.name} lie along M or N",
                stmt.loc,
                expected="rows along K: A of (M, K), and B of (N, K) with transpose_B=True",
            )
        return self.part(region, stmt)

    def copied(self, stmt: Copy) -> Block:
        """A copy into the tile, which packs."""
        src, dst = stmt.src, self.part(stmt.dst, stmt)
        there, here = static_extents(stmt.dst), static_extents(src)
        long = [n for n in there or () if n != 1]
        if there is None or here is None or long != [n for n in here if n != 1]:
            raise _misused(stmt, dst.buffer.name)
        names = [self.t.names.var("i") for _ in long]
        sizes = [*long[:-1], long[-1] // 2]
        byte = names[-1]

        def value(at: Expr) -> Expr:
            index = iter([*names[:-1], at])
            return code(element(src, [next(index) if n != 1 else const(0) for n in here]))

        where = iter([*names[:-1], byte if self.dense else _spaced(byte)])
        place = [next(where) if n != 1 else const(0) for n in there]
        at = tuple(plus(low, k) for low, k in zip(dst.mins, place, strict=True))
        store = Store(dst.buffer, at, packed_bytes(value, byte), loc=stmt.loc)
        extents = tuple(const(n) for n in sizes)
        return (Parallel(tuple(names), extents, (store,), loc=stmt.loc),)


def _spaced(byte: Expr) -> Expr:
    """The place of a byte where each 8 are followed by 8 that nobody reads."""
    group = Binary(BinaryOp.FLOORDIV, byte, const(HALF))
    return plus(times(group, 2 * HALF), Binary(BinaryOp.FLOORMOD, byte, const(HALF)))


def _misused(stmt: Stmt, name: str) -> TileError:
    return error(
        "target",
        f"{name}, whose elements of 4 bits are packed for T.tcgen05_gemm_blockscaled, is used"
        " otherwise",
        stmt.loc,
        expected="copies into it, and such products",
        help="copy the elements to a tile of its own for the product",
    )
