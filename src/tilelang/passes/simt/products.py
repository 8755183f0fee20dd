"""Products that no matrix instruction computes, as multiplications and additions of single threads.

What enters: a product that adds to a whole fragment. What leaves: a parallel nest over the elements
of the fragment, each with a loop along K. Every type, shape and transposition has this form.
"""

from __future__ import annotations

from tilelang.dtypes import DType
from tilelang.ir.expr import (
    Binary,
    BinaryOp,
    Bitcast,
    Const,
    Expr,
    Load,
    Region,
    Select,
    const,
)
from tilelang.ir.tile import Block, Gemm, Let, Parallel, Store
from tilelang.isa.target import Target
from tilelang.passes.build import (
    Names,
    as_type,
    element,
    get_scalar,
    literal,
    serial,
    set_scalar,
    variable,
)
from tilelang.passes.lower_reductions import inner_type

_CUT = Const(0xFFFFE000, DType("uint32"))
"""The bits of a float32 that a TF32 multiplier looks at."""


def plain_product(stmt: Gemm, target: Target, names: Names) -> Block:
    """A product as a nest."""
    c, loc = stmt.c, stmt.loc
    inner = inner_type(c.dtype)
    if c.dtype.name == "float64" or "float64" in (stmt.a.dtype.name, stmt.b.dtype.name):
        inner = DType("float64")
    i, j = names.var("i"), names.var("j")
    k = names.var("k", stmt.a.extents[-1].dtype)
    tf32 = target.fp32_gemm == "tf32" and inner.name == "float32"

    def operand(region: Region, row: Expr, column: Expr, turned: bool) -> Expr:
        first, second = (column, row) if turned else (row, column)
        lead = [const(0)] * (len(region.extents) - 2)
        x = element(region, (*lead, first, second))
        if x.dtype.is_float and not inner.is_float:
            return as_type(as_type(x, c.dtype), inner)
        if tf32 and x.dtype.name == "float32":
            bits = Binary(BinaryOp.BITAND, Bitcast(x, DType("uint32")), _CUT)
            return Bitcast(bits, DType("float32"))
        return as_type(x, inner)

    total, declare = variable("total", inner, names, loc)
    start = clear_value(stmt, Load(c.buffer, (i, j), loc=loc), inner)
    a, b = names.var("a", inner), names.var("b", inner)
    step: Block = (
        Let(a, operand(stmt.a, i, k, stmt.transpose_a), loc=loc),
        Let(b, operand(stmt.b, k, j, stmt.transpose_b), loc=loc),
        set_scalar(
            total,
            Binary(BinaryOp.ADD, get_scalar(total), Binary(BinaryOp.MUL, a, b)),
            loc,
        ),
    )
    depth = stmt.a.extents[-2 if stmt.transpose_a else -1]
    body: Block = (
        declare,
        set_scalar(total, start, loc),
        serial(k, depth, step, loc),
        Store(c.buffer, (i, j), as_type(get_scalar(total), c.dtype), loc=loc),
    )
    return (Parallel((i, j), c.extents, body, loc=loc),)


def clear_value(stmt: Gemm, old: Expr, inner: DType) -> Expr:
    """What a sum starts from."""
    zero = literal(0, inner)
    if isinstance(stmt.clear_accum, Const):
        return zero if stmt.clear_accum.value else as_type(old, inner)
    return Select(stmt.clear_accum, zero, as_type(old, inner))
