"""What holds the scales of MX products, and tiles of fp4 as the bytes that they are.

What enters: a function with products of scaled tiles. What leaves: buffers of L1 that hold scales
have a scope of their own, since these lie in another order than tiles (`storage.tile_of`); buffers
of fp4 are buffers of bytes, two elements in each, the first one low. A product of bytes is one of
fp4 from here on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tilelang.dtypes import DType
from tilelang.errors import TileError, error
from tilelang.ir.ascend import Transfer
from tilelang.ir.expr import (
    AddressOf,
    Binary,
    BinaryOp,
    Buffer,
    Const,
    Expr,
    Load,
    Region,
    int_value,
)
from tilelang.ir.node import Node
from tilelang.ir.simplify import simplify
from tilelang.ir.special import GemmBlockScaled
from tilelang.ir.tile import Alloc, Copy, Fill, Function, Gemm, Param, Stmt, Store, View
from tilelang.isa.target import Target
from tilelang.scopes import L1_SCALES, Dialect, Memory, memory_of

PAIRS = DType("uint8")
"""The type of two elements of fp4."""

_FP4 = "float4_e2m1fn"
_HANDLES = (Memory.L0A_SCALE, Memory.L0B_SCALE)


def mark_scales(fn: Function, target: Target) -> Function:
    """The function with its scales marked, and without fp4."""
    del target
    if fn.dialect != Dialect.ASCEND.value:
        return fn
    scales = {b.name for b in _scales(fn)}
    for stmt in fn.walk():
        if isinstance(stmt, (Gemm, GemmBlockScaled)):
            mixed = next((r for r in (stmt.a, stmt.b) if r.buffer.name in scales), None)
            if mixed is not None:
                raise error(
                    "layout",
                    f"{mixed.buffer.name} holds the scales of one product and is an operand of"
                    " another",
                    stmt.loc,
                    expected="one use: scales lie in another order than the elements of a tile",
                    help="copy the tile into a second buffer for one of them",
                )

    def marked(b: Buffer) -> Buffer:
        return b.with_(scope=L1_SCALES) if b.name in scales else b

    fn = _with_buffers(fn, marked) if scales else fn
    return _without_fp4(fn)


def _scales(fn: Function) -> Iterator[Buffer]:
    """The buffers of L1 that hold scales: those of a product, and the sources of handles."""
    for stmt in fn.walk():
        used: tuple[Region, ...] = ()
        if isinstance(stmt, GemmBlockScaled):
            used = (stmt.sfa, stmt.sfb)
        elif isinstance(stmt, (Copy, Transfer)) and _memory(stmt.dst.buffer) in _HANDLES:
            used = (stmt.src,)
        yield from (r.buffer for r in used if _memory(r.buffer) is Memory.L1)


def _memory(buffer: Buffer) -> Memory:
    return memory_of(Dialect.ASCEND, buffer.scope)


def _with_buffers(fn: Function, new: Callable[[Buffer], Buffer]) -> Function:
    """The function with other buffers, also where they are declared."""

    def one(node: Node) -> Node | None:
        if isinstance(node, Buffer):
            return new(node)
        if isinstance(node, (Alloc, View)):
            return node.with_(buffer=new(node.buffer))
        if isinstance(node, Param) and node.buffer is not None:
            return node.with_(buffer=new(node.buffer))
        return None

    return fn.rewrite(one)


# fp4 ----------------------------------------------------------------------------------------------


def _without_fp4(fn: Function) -> Function:
    names = {n.name for n in _declared(fn) if n.dtype == _FP4}
    if not names:
        return fn
    for stmt in fn.walk():
        if isinstance(stmt, Stmt):
            _check(stmt, names)

    def halved(r: Node) -> Node | None:
        if not isinstance(r, Region) or r.buffer.name not in names:
            return None
        mins, extents = (_half_of_last(e, r) for e in (r.mins, r.extents))
        return r.with_(mins=mins, extents=extents)

    def packed(b: Buffer) -> Buffer:
        if b.name not in names:
            return b
        return b.with_(type=PAIRS, shape=_half_of_last(b.shape, b))

    return _with_buffers(fn.rewrite(halved), packed)


def _declared(fn: Function) -> Iterator[Buffer]:
    for node in fn.walk():
        if isinstance(node, (Alloc, View, Param)) and node.buffer is not None:
            yield node.buffer


def _check(stmt: Stmt, names: set[str]) -> None:
    """Refuse what works on single elements, which have no address."""
    fine = isinstance(stmt, (Copy, GemmBlockScaled, Alloc))
    for node in stmt.walk() if not fine else ():
        single = isinstance(node, (Load, AddressOf, Store)) and node.buffer.name in names
        tiles = isinstance(node, (Transfer, Fill)) and node.dst.buffer.name in names
        if single or tiles or (isinstance(node, View) and node.source.name in names):
            raise error(
                "target",
                f"an operation on elements of {_FP4}, two of which share a byte",
                node.loc or stmt.loc,
                expected="T.copy of whole tiles, and T.gemm_blockscaled",
            )


def _half_of_last(sizes: tuple[Expr, ...], at: Node) -> tuple[Expr, ...]:
    *lead, last = sizes
    two = Const(2, DType(last.dtype))
    if int_value(simplify(Binary(BinaryOp.FLOORMOD, last, two))) != 0:
        raise _odd(last, at)
    return (*lead, simplify(Binary(BinaryOp.FLOORDIV, last, two)))


def _odd(size: Expr, at: Node) -> TileError:
    known = int_value(size)
    return error(
        "shape",
        f"a tile of {_FP4} of which a row ends or begins inside a byte",
        at.loc,
        expected="an even number of elements in the last axis, at an even place",
        got="a number that is known only when the kernel runs" if known is None else str(known),
    )
