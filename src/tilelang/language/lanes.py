"""Indices that are vectors: one element for each lane.

What enters: the parts of an index, one of which may be a vector (`T.Ramp`, say). What leaves: the
parts for each lane, with lanes that turn out negative counted from the end.
"""

from __future__ import annotations

from typing import Any

from tilelang import dtypes
from tilelang.errors import TileTypeError, error
from tilelang.ir import build
from tilelang.ir.bounds import bounds
from tilelang.ir.expr import Binary, BinaryOp, Buffer, Const, Expr, Lane, Pack, Select
from tilelang.ir.simplify import simplify
from tilelang.language.shapes import here
from tilelang.language.values import Value, as_expr


def each_lane(buffer: Buffer, parts: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """The indices of each lane where one index is a vector; none where no index is. TypeError for
    two vectors, and for elements that are vectors.
    """
    wide = [k for k, p in enumerate(parts) if isinstance(p, Value) and p.expr.dtype.lanes > 1]
    if not wide:
        return []
    if len(wide) > 1 or buffer.dtype.lanes > 1:
        raise error(
            "dtype",
            f"{buffer.name} is indexed by a vector",
            here(),
            cls=TileTypeError,
            expected="one vector among the indices, and elements that are no vectors",
        )
    (at,) = wide
    vector = parts[at].expr
    lanes = vector.lanes if isinstance(vector, Pack) else ()
    if len(lanes) != vector.dtype.lanes:  # not written out, or one value for all
        lanes = tuple(Lane(vector, k) for k in range(vector.dtype.lanes))
    ends = [_from_either_end(buffer, at, x) for x in lanes]
    return [(*parts[:at], Value(x), *parts[at + 1 :]) for x in ends]


def _from_either_end(buffer: Buffer, axis: int, lane: Expr) -> Expr:
    builder = build.current_or_none()
    known = bounds(lane, builder.ranges if builder else {}, wraps=False)
    if lane.dtype.kind != "int" or axis >= buffer.rank or (known.lo is not None and known.lo >= 0):
        return lane
    if known.hi is not None and known.hi < 0:  # as any other index
        return lane
    index, size = same_width(lane, buffer.shape[axis])
    from_end = simplify(Binary(BinaryOp.ADD, index, size))
    return Select(Binary(BinaryOp.LT, index, Const(0, index.dtype)), from_end, index)


def same_width(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """Both in the wider of their types."""
    if a.dtype == b.dtype:
        return a, b
    common = dtypes.promote(a.dtype, b.dtype)
    return as_expr(a, common), as_expr(b, common)
