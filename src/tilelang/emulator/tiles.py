"""The text of operations on whole tiles.

What enters: a tile operation. What leaves: a call of its function in `ops`, with regions as
`Tile`s. On a buffer of which each thread, or each iteration of T.Parallel, has its own, the
operation is turned into loops over elements.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from tilelang.emulator import access, ops, patches, products, reduce, scalars, scaled, sparse
from tilelang.emulator.parallel import PRIVATE, memory
from tilelang.emulator.unit import Unit
from tilelang.emulator.values import tuple_text
from tilelang.errors import TileError, error
from tilelang.ir.expr import Binary, BinaryOp, Buffer, Cast, Expr, Load, Region, const, int_value
from tilelang.ir.node import Kind
from tilelang.ir.special import GemmSparse
from tilelang.ir.tile import Atomic, Copy, Fill, Gemm, Stmt, Store, TileOp

At = list[int]

OPS = {**ops.OPS, **reduce.OPS, **products.OPS, **patches.OPS, **sparse.OPS, **scaled.OPS}
"""The function of every node class that works on tiles."""


def no_meaning(stmt: Stmt) -> TileError:
    """The error for a statement of a machine's own."""
    pipes = type(stmt).__module__.startswith("tilelang.ir.ascend")
    return error(
        "target",
        f"the emulator has no meaning for {type(stmt).__name__}",
        stmt.loc,
        help="target='simulate:ascend910b' (or ascend950) has the cores and pipes of the chip"
        if pipes
        else "",
    )


def tile_op(u: Unit, stmt: TileOp) -> None:
    """Any operation on tiles."""
    if isinstance(stmt, Atomic) and isinstance(stmt.value, Expr) and _single(stmt.dst):
        u.begin(stmt.value, *stmt.dst.mins)
        access.atomic(u, stmt, u.bind(scalars.convert(u, u.expr(stmt.value), stmt.dst.dtype)))
        return
    in_parallel = u.domain.rank > 0 and not u.domain.threads
    if in_parallel or u.mask is not None or u.lanes.varies(*stmt.children()):
        u.statements(_by_elements(u, stmt))
        return
    fn = OPS.get(type(stmt))
    if fn is None:
        raise no_meaning(stmt)
    u.begin(*stmt.children())
    operands = [getattr(stmt, f.name) for f in stmt.fields() if f.metadata["kind"] is Kind.OPERAND]
    args = [operand(u, x) for x in operands]
    node = u.constant("op", stmt)
    extra = ", tf32=True" if isinstance(stmt, (Gemm, GemmSparse)) and u.tf32 else ""
    name = u.constant(type(stmt).__name__.lower(), fn, "op")
    call = f"{name}({node}, {', '.join(args)}{extra})"
    if u.checks is None:
        u.w.line(call)
    else:
        u.checks.tile_op(
            u,
            stmt,
            {id(x): t for x, t in zip(operands, args, strict=True) if t[:5] == "Tile("},
            call,
        )


def _single(region: Region) -> bool:
    return all(int_value(e) == 1 for e in region.extents)


def operand(u: Unit, value: Region | Buffer | Expr) -> str:
    """The text of an operand: a `Tile`, or a value. The scalars of a vector element are one more
    axis.
    """
    if isinstance(value, Region):
        lanes = value.dtype.lanes
        mins = tuple_text([*(u.expr(e).code for e in value.mins), *(["0"] if lanes > 1 else [])])
        extents = tuple_text(
            [*(u.expr(e).code for e in value.extents), *([str(lanes)] if lanes > 1 else [])]
        )
        name, place = u.storage(value.buffer).name, u.access_name(value.buffer, value.loc)
        return f"Tile({name}, {mins}, {extents}, {place})"
    if isinstance(value, Buffer):
        zeros = tuple_text("0" for _ in range(value.rank + value.dtype.is_vector))
        name = u.storage(value).name
        return f"Tile({name}, {zeros}, {name}.shape, {u.access_name(value)})"
    return u.expr(value).code


def _refused(u: Unit, stmt: TileOp) -> TileError:
    inside = (
        "inside T.Parallel"
        if not u.domain.threads
        else "where only some threads arrive, or where they disagree"
    )
    return error(
        "divergence",
        f"T.{type(stmt).__name__.lower()} is an operation of the whole block, {inside}",
        stmt.loc,
        expected="a place that all threads of the block reach together",
        help="move the operation out of the condition or loop, or write it for single elements",
    )


def _by_elements(u: Unit, stmt: TileOp) -> tuple[Stmt, ...]:
    """The operation as loops over elements, for operands of which each lane has its own."""
    regions = [r for r in stmt.children() if isinstance(r, Region)]
    if not any(memory(u, r.buffer) in PRIVATE and u.lanes.per_lane(r.buffer) for r in regions):
        raise _refused(u, stmt)
    if isinstance(stmt, Fill):
        filler = stmt.value
        return _each(stmt.dst, stmt, lambda at: filler, u)
    if isinstance(stmt, Copy):
        src, dst = stmt.src, stmt.dst
        source = _matched(stmt, [int_value(e) for e in dst.extents])
        return _each(dst, stmt, lambda at: _cast(_element(src, source(at)), dst), u)
    raise _refused(u, stmt)


def _cast(value: Expr, dst: Region) -> Expr:
    return value if value.dtype == dst.dtype else Cast(value, dst.dtype)


def _element(region: Region, at: list[int]) -> Load:
    return Load(region.buffer, _shifted(region, at), loc=region.loc)


def _shifted(region: Region, at: list[int]) -> tuple[Expr, ...]:
    return tuple(
        low if k == 0 else Binary(BinaryOp.ADD, low, const(k, low.dtype))
        for low, k in zip(region.mins, at, strict=True)
    )


def _each(region: Region, stmt: TileOp, value: Callable[[At], Expr], u: Unit) -> tuple[Stmt, ...]:
    shape = [int_value(e) for e in region.extents]
    known = [n for n in shape if n is not None]
    if len(known) != len(shape):
        raise _refused(u, stmt)
    return tuple(
        Store(region.buffer, _shifted(region, list(at)), value(list(at)), loc=stmt.loc)
        for at in itertools.product(*(range(n) for n in known))
    )


def _matched(stmt: Copy, shape: list[int | None]) -> Callable[[At], At]:
    """Where in the source the element for a place in the destination is, by the rule of `Copy`."""
    have = tuple(n if (n := int_value(e)) is not None else -1 for e in stmt.src.extents)
    want = tuple(n if n is not None else -1 for n in shape)
    fitted = ops.matching(have, want)
    if fitted is None or -1 in have:
        raise error(
            "shape",
            "the extents of T.copy do not fit together",
            stmt.loc,
            expected=str(want),
            got=str(have),
        )

    def source(at: At) -> At:
        kept = [k if n != 1 else 0 for k, n in zip(at, fitted, strict=True)]
        flat = 0
        for k, n in zip(kept, fitted, strict=True):
            flat = flat * n + k
        out: list[int] = []
        for n in reversed(have):
            out.append(flat % n)
            flat //= n
        return out[::-1]

    return source
