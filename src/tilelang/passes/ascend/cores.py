"""What a mainline kernel leaves open: how many vector cores run it, and sums that begin at zero.

What enters: a function as an author wrote it. What leaves: launches that say how many vector cores
of a group take part, and products that clear their accumulator themselves: nothing fills L0C.
"""

from __future__ import annotations

from tilelang.errors import error
from tilelang.ir.ascend import CoreRegion
from tilelang.ir.expr import (
    BOOL,
    Binary,
    BinaryOp,
    Buffer,
    Const,
    Expr,
    Region,
    int_value,
)
from tilelang.ir.tile import (
    Alloc,
    Block,
    Fill,
    For,
    Function,
    Launch,
    Pipelined,
    Stmt,
)
from tilelang.isa.target import Target
from tilelang.passes.ascend.effects import PRODUCTS
from tilelang.passes.ascend.lower_cube import Product
from tilelang.passes.build import map_bodies, map_statements, whole
from tilelang.scopes import Dialect, Memory, memory_of

_ON_CUBE = (Memory.L1, Memory.L0A, Memory.L0B, Memory.L0C)
_PAIR = 2


def choose_cores(fn: Function, target: Target) -> Function:
    """A mainline launch without work for the cube core runs on one vector core for each block."""
    del target
    if fn.dialect != Dialect.ASCEND.value:
        return fn

    def one(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, Launch) or stmt.threads is not None:
            return None
        mixed = any(
            isinstance(n, CoreRegion)
            or (isinstance(n, Alloc) and memory_of(Dialect.ASCEND, n.buffer.scope) in _ON_CUBE)
            for n in stmt.walk()
        )
        return (stmt.with_(threads=(_PAIR if mixed else 1,)),)

    return fn.with_(body=map_statements(fn.body, one))


def clear_accumulators(fn: Function, target: Target) -> Function:
    """A tile of L0C that is set to zero before its products is cleared by the first of them."""
    del target
    return fn.with_(body=_Accumulators(Dialect(fn.dialect)).block(fn.body))


class _Accumulators:
    """One function."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect

    def block(self, body: Block) -> Block:
        """Statements in order; a fill goes to the product behind it."""
        out: list[Stmt] = [map_bodies(s, self.block) for s in body]
        k = 0
        while k < len(out):
            stmt = out[k]
            if isinstance(stmt, Fill) and self.is_accumulator(stmt.dst):
                out[k + 1 :] = self.handed(stmt, out[k + 1 :])
                del out[k]
            else:
                k += 1
        return tuple(out)

    def is_accumulator(self, r: Region) -> bool:
        """Whether a region is all of a tile in L0C."""
        in_l0c = memory_of(self.dialect, r.buffer.scope) is Memory.L0C
        return in_l0c and r == whole(r.buffer).with_(loc=r.loc)

    def handed(self, fill: Fill, rest: list[Stmt]) -> list[Stmt]:
        """What follows, with the first product cleared."""
        value = fill.value
        if not isinstance(value, Const) or value.value != 0:
            raise self.refused(fill, "L0C is filled with something else than zero")
        for k, stmt in enumerate(rest):
            if not _touches(stmt, fill.dst.buffer):
                continue
            made = self.cleared(stmt, fill)
            return [*rest[:k], made, *rest[k + 1 :]]
        return rest

    def cleared(self, stmt: Stmt, fill: Fill) -> Stmt:
        """The statement that first touches the tile after it is set to zero."""
        if isinstance(stmt, PRODUCTS):
            return self.product(stmt, Const(True, BOOL), fill)
        if isinstance(stmt, (For, Pipelined)) and _runs(stmt):
            first = Binary(BinaryOp.EQ, stmt.var, stmt.start)
            inside = [s for s in stmt.body if _touches(s, fill.dst.buffer)]
            if len(inside) == 1 and isinstance(inside[0], PRODUCTS):
                made = self.product(inside[0], first, fill)
                body = tuple(made if s is inside[0] else s for s in stmt.body)
                return stmt.with_(body=body)
        raise self.refused(fill, "no product of the same tile follows directly")

    def product(self, stmt: Product, first: Expr, fill: Fill) -> Product:
        """A product that begins at zero where `first` holds."""
        if stmt.c != fill.dst.with_(loc=stmt.c.loc):
            raise self.refused(fill, "the product behind it covers another part of the tile")
        clear = stmt.clear_accum
        known = clear.value if isinstance(clear, Const) else None
        if known is True:
            return stmt
        made = first if known is False else Binary(BinaryOp.OR, clear, first)
        return stmt.with_(clear_accum=made)

    def refused(self, fill: Fill, why: str) -> Exception:
        """Nothing on the chip fills L0C."""
        return error(
            "scope",
            f"{fill.dst.buffer.name} is set to zero, and nothing fills L0C: {why}",
            fill.loc,
            expected="a product that starts from zero",
            help="T.gemm(..., clear_accum=...)",
        )


def _runs(stmt: For | Pipelined) -> bool:
    """Whether a loop has a round for certain."""
    first, last = int_value(stmt.start), int_value(stmt.stop)
    step = stmt.step if isinstance(stmt, For) else None
    return step is None and first is not None and last is not None and first < last


def _touches(stmt: Stmt, buffer: Buffer) -> bool:
    """Whether a statement uses a buffer."""
    if isinstance(stmt, Alloc):
        return False
    return any(isinstance(n, Buffer) and n.name == buffer.name for n in stmt.walk())
