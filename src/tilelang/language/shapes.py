"""Extents and shapes: an author's numbers as integer expressions, and whether two tiles fit.

What enters: numbers, values, sequences of them, regions. What leaves: integer expressions, or a
located error that says what was expected.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from tilelang.errors import Loc, error
from tilelang.ir import build
from tilelang.ir.expr import Expr, Load, Region, Var, const, int_value
from tilelang.ir.node import Node
from tilelang.ir.simplify import equal, simplify
from tilelang.language.values import Value, as_expr, describe, is_scalar


def here() -> Loc | None:
    """The author's current location, None outside a trace."""
    builder = build.current_or_none()
    return builder.loc if builder else None


def plain(e: Expr) -> int | Value:
    """An extent as a Python int where it is known, else as a value."""
    known = int_value(e)
    return Value(e) if known is None else known


_NO_EXTENT: tuple[type[Any], ...] = (bool, float, np.floating, np.bool_)


def extent(x: Any, what: str = "an extent") -> Expr:
    """`x` as an integer expression; a located error for anything else."""
    if not is_scalar(x) or isinstance(x, _NO_EXTENT):
        raise error(
            "shape", f"{what} is {describe(x)}", here(), expected="an integer", got=_text(x)
        )
    e = as_expr(x)
    if e.dtype.kind not in ("int", "uint"):
        raise error(
            "shape", f"{what} has type {e.dtype}", here(), expected="an integer", got=str(e.dtype)
        )
    return e


def _text(x: object) -> str:
    return repr(x)[:60]


def shape_of(shape: Any, what: str = "a shape") -> tuple[Expr, ...]:
    """A shape argument: an int, a scalar value, or a sequence of them."""
    if not is_scalar(shape) and (isinstance(shape, str) or not hasattr(shape, "__iter__")):
        raise error(
            "shape",
            f"the shape of {what} is {describe(shape)}",
            here(),
            expected="an integer, or a tuple or list of them",
            got=_text(shape),
        )
    items: Sequence[Any] = [shape] if is_scalar(shape) else list(shape)
    out = tuple(simplify(extent(x, f"an extent of {what}")) for x in items)
    for e in out:
        known = int_value(e)
        if known is not None and known < 0:
            raise error(
                "shape", f"an extent of {what} is negative", here(), expected=">= 0", got=str(known)
            )
    return out


def shape_text(exprs: Sequence[Expr]) -> str:
    """Extents as the author would write them."""
    inside = ", ".join(str(plain(e)) for e in exprs)
    return f"({inside},)" if len(exprs) == 1 else f"({inside})"


def same_extent(a: Expr, b: Expr) -> bool:
    """Whether two extents of one statement are proved to be one number.

    The statement computes all of them at once, so an element that both read is one value.
    """
    found = as_values(a, b)
    return equal(found[0], found[1])


def as_values(*exprs: Expr) -> list[Expr]:
    """The expressions with each element that is read replaced by a variable of its own."""
    reads: dict[Node, Var] = {}

    def named(n: Node) -> Node | None:
        return reads.setdefault(n, Var(f"?{len(reads)}", n.dtype)) if isinstance(n, Load) else None

    return cast("list[Expr]", [named(e) or e.rewrite(named) for e in exprs])


def check_match(a: Region, b: Region, op: str) -> None:
    """Refuse a source `a` that does not fit the destination `b`.

    Axes longer than 1 agree pairwise. Where one side has more of them, axes are matched from the
    last, and the source repeats along an axis where its extent is 1.
    """
    x, y = _wide(a), _wide(b)
    same_rank = len(x) == len(y)
    pairs = list(zip(x, y, strict=True)) if same_rank else _right_aligned(a, b)
    for left, right in pairs:
        if same_extent(left, right) or (int_value(left) == 1 and not same_rank):
            continue
        sides = [f"{r.buffer.name} {shape_text(r.extents)}" for r in (a, b)]
        raise error(
            "shape",
            f"{op} between tiles of different shape",
            here(),
            label=" and ".join(sides),
            expected=f"equal extents, or 1 in the source; {plain(right)} here",
            got=str(plain(left)),
            help="slice the larger side: `T.copy(A[0:n], tile[0:n])`",
        )


def _wide(region: Region) -> list[Expr]:
    return [e for e in region.extents if int_value(e) != 1]


def _right_aligned(a: Region, b: Region) -> list[tuple[Expr, Expr]]:
    size = max(len(a.extents), len(b.extents))
    x, y = ([const(1)] * (size - len(r.extents)) + list(r.extents) for r in (a, b))
    return list(zip(x, y, strict=True))
