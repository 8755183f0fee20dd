"""Copies, fills, transposes and updates of tiles as loops over elements.

What enters: a function of the tile stage. What leaves: one without `Copy`, `Fill`, `Transpose` and
region-wide `Atomic`: parallel nests of loads and stores, whose bounds mean the same for single
elements. A source that overlaps its destination is read into a buffer of its own first.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilelang.errors import Loc, TileError, error
from tilelang.ir.expr import (
    Binary,
    BinaryOp,
    Cast,
    Const,
    Expr,
    Region,
    Var,
    const,
    int_value,
)
from tilelang.ir.simplify import equal
from tilelang.ir.tile import (
    Alloc,
    Assert,
    Atomic,
    Block,
    Copy,
    Fill,
    Function,
    Let,
    Stmt,
    Store,
    Transpose,
    View,
)
from tilelang.isa.target import Target
from tilelang.passes.build import (
    Names,
    element,
    loops_over,
    map_launches,
    map_statements,
    parallel,
    place,
    serial,
    shifted,
    statements,
    static_extents,
    unsupported,
    whole,
)

Match = list[int | None]
"""For each axis of the source, the axis of the destination that walks along it; None stays put."""


def lower_copies(fn: Function, target: Target) -> Function:
    """Every tile copy, fill, transpose and atomic update becomes loops over elements."""
    del target
    names = Names(fn)
    roots = view_roots(fn)

    def one(stmt: Stmt) -> Block | None:
        match stmt:
            case Copy():
                return copy_loops(stmt, names, roots)
            case Fill():
                return fill_loops(stmt, names)
            case Transpose():
                return _transpose(stmt, names, roots)
            case Atomic() if not is_single(stmt.dst) or isinstance(stmt.value, Region):
                return _atomic(stmt, names)
            case _:
                return None

    return map_launches(fn, lambda body: map_statements(body, one))


def view_roots(fn: Function) -> dict[str, str]:
    """For every view, the buffer whose storage it shares."""
    roots: dict[str, str] = {}
    for stmt in statements(fn.body):
        if isinstance(stmt, View):
            roots[stmt.buffer.name] = roots.get(stmt.source.name, stmt.source.name)
    return roots


def is_single(region: Region) -> bool:
    """Whether a region is one element."""
    return all(int_value(e) == 1 for e in region.extents)


def apart(src: Region, dst: Region, roots: dict[str, str]) -> bool:
    """Whether writing `dst` element by element cannot change what is still to be read of `src`."""
    a, b = src.buffer.name, dst.buffer.name
    if roots.get(a, a) != roots.get(b, b):
        return True
    if a != b or len(src.mins) != len(dst.mins):
        return False
    same = all(equal(x, y) for x, y in zip(src.mins, dst.mins, strict=True))
    if same and all(equal(x, y) for x, y in zip(src.extents, dst.extents, strict=True)):
        return True
    return any(
        _below(x, n, y) or _below(y, m, x)
        for x, n, y, m in zip(src.mins, src.extents, dst.mins, dst.extents, strict=True)
    )


def _below(low: Expr, extent: Expr, other: Expr) -> bool:
    """Whether an axis that starts at `low` ends before `other`."""
    start, count, there = int_value(low), int_value(extent), int_value(other)
    if start is None or count is None or there is None:
        return False
    return start + count <= there


def staged(src: Region, names: Names, loc: Loc | None) -> tuple[Block, Region]:
    """Statements that read a region into a buffer of its own, and that buffer."""
    extents = static_extents(src)
    if extents is None:
        raise unsupported(src, "an operation on overlapping regions of runtime size")
    copy = names.buffer(f"{src.buffer.name}_copy", src.dtype, extents)
    loops = loops_over(src.extents, names)
    at = place(loops, src.extents)
    store = Store(copy, tuple(at), element(src, at), loc=loc)
    return (Alloc(copy, loc=loc), *parallel(loops, src.extents, (store,), loc)), whole(copy)


# Matching extents --------------------------------------------------------------------------------


def match(
    src: Sequence[Expr], dst: Sequence[Expr], what: str, loc: Loc | None
) -> tuple[Match, Block]:
    """How the axes of a source belong to those of a destination, by the rule of `Copy`.

    The statements check at run time what is not known before.
    """
    long_src = [k for k, e in enumerate(src) if int_value(e) != 1]
    long_dst = [k for k, e in enumerate(dst) if int_value(e) != 1]
    found: Match = [None] * len(src)
    pairs = list(zip(long_src, long_dst, strict=False))
    if len(long_src) == len(long_dst) and all(_may_agree(src[a], dst[b]) for a, b in pairs):
        for a, b in pairs:
            found[a] = b
        return found, _checks(src, dst, pairs, what, loc)
    shift = len(dst) - len(src)
    pairs = [(a, a + shift) for a in long_src]
    if any(b < 0 or not _may_agree(src[a], dst[b]) for a, b in pairs):
        raise _mismatch(src, dst, what, loc)
    for a, b in pairs:
        found[a] = b
    return found, _checks(src, dst, pairs, what, loc)


def _may_agree(a: Expr, b: Expr) -> bool:
    m, n = int_value(a), int_value(b)
    return m is None or n is None or m == n


def _checks(
    src: Sequence[Expr],
    dst: Sequence[Expr],
    pairs: Sequence[tuple[int, int]],
    what: str,
    loc: Loc | None,
) -> Block:
    out: list[Stmt] = []
    for a, b in pairs:
        if not equal(src[a], dst[b]):
            x, y = src[a], dst[b]
            cond = Binary(BinaryOp.EQ, Cast(x, y.dtype) if x.dtype != y.dtype else x, y)
            message = f"the extents of {what} do not fit together"
            out.append(Assert(cond, message=message, kind="shape", loc=loc))
    return tuple(out)


def _mismatch(src: Sequence[Expr], dst: Sequence[Expr], what: str, loc: Loc | None) -> TileError:
    def shown(extents: Sequence[Expr]) -> str:
        return "(" + ", ".join(str(int_value(e) or "?") for e in extents) + ")"

    return error(
        "shape",
        f"the extents of {what} do not fit together",
        loc,
        expected=f"extents {shown(dst)} after axes of extent 1 drop out",
        got=shown(src),
    )


def at_source(found: Match, src: Region, at: Sequence[Expr]) -> list[Expr]:
    """The place in the source that belongs to a place in the destination."""
    return [
        Const(0, src.extents[k].dtype) if axis is None else at[axis] for k, axis in enumerate(found)
    ]


# The operations ----------------------------------------------------------------------------------


def convert(value: Expr, region: Region) -> Expr:
    """A value in the dtype of a region."""
    return value if value.dtype == region.dtype else Cast(value, region.dtype)


def copy_loops(stmt: Copy, names: Names, roots: dict[str, str]) -> Block:
    """A copy as a nest over elements; `roots` are what the views are views of."""
    src, dst = stmt.src, stmt.dst
    before: Block = ()
    if not apart(src, dst, roots):
        before, src = staged(src, names, stmt.loc)
    found, checks = match(src.extents, dst.extents, "T.copy", stmt.loc)
    loops = loops_over(dst.extents, names)
    at = place(loops, dst.extents)
    value = convert(element(src, at_source(found, src, at)), dst)
    store = Store(dst.buffer, shifted(dst, at), value, loc=stmt.loc)
    return (*before, *checks, *parallel(loops, dst.extents, (store,), stmt.loc))


def fill_loops(stmt: Fill, names: Names) -> Block:
    """A fill as a nest over elements."""
    dst, value = stmt.dst, stmt.value
    before: Block = ()
    if not isinstance(value, (Const, Var)):
        var = names.var("value", value.dtype)
        before, value = (Let(var, value, loc=stmt.loc),), var
    loops = loops_over(dst.extents, names)
    at = place(loops, dst.extents)
    store = Store(dst.buffer, shifted(dst, at), value, loc=stmt.loc)
    return (*before, *parallel(loops, dst.extents, (store,), stmt.loc))


def _transpose(stmt: Transpose, names: Names, roots: dict[str, str]) -> Block:
    src, dst = stmt.src, stmt.dst
    before: Block = ()
    a, b = src.buffer.name, dst.buffer.name
    if roots.get(a, a) == roots.get(b, b):
        before, src = staged(src, names, stmt.loc)
    turned = (*src.extents[:-2], src.extents[-1], src.extents[-2])
    found, checks = match(turned, dst.extents, "T.transpose", stmt.loc)
    loops = loops_over(dst.extents, names)
    at = place(loops, dst.extents)
    there = [Const(0, e.dtype) if k is None else at[k] for k, e in zip(found, turned, strict=True)]
    there[-1], there[-2] = there[-2], there[-1]
    store = Store(dst.buffer, shifted(dst, at), convert(element(src, there), dst), loc=stmt.loc)
    return (*before, *checks, *parallel(loops, dst.extents, (store,), stmt.loc))


def _atomic(stmt: Atomic, names: Names) -> Block:
    """One update after the other; there is no order to keep, and nothing to gain from lanes."""
    dst, value = stmt.dst, stmt.value
    checks: Block = ()
    loops = loops_over(dst.extents, names)
    at = place(loops, dst.extents)
    if isinstance(value, Region):
        found, checks = match(value.extents, dst.extents, "the atomic operation", stmt.loc)
        given = convert(element(value, at_source(found, value, at)), dst)
    else:
        given = convert(value, dst)
    ones = tuple(const(1) for _ in dst.mins)
    one = Region(dst.buffer, shifted(dst, at), ones, loc=dst.loc)
    body: Block = (stmt.with_(dst=one, value=given),)
    for var, extent in reversed(list(zip(loops, dst.extents, strict=True))):
        if var is not None:
            body = (serial(var, extent, body, stmt.loc),)
    return (*checks, *body)
