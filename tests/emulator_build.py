"""A small builder of tile-stage functions, for tests of the emulator that must not depend on the
frontend.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilelang.dtypes import DType
from tilelang.emulator import Program, translate
from tilelang.errors import Loc, TileError
from tilelang.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Call,
    Const,
    Expr,
    Load,
    Region,
    Var,
    const,
)
from tilelang.ir.tile import Function, Launch, Param, Stmt, Store

I32, I64, F16, F32, F64, BOOL = (
    DType(n) for n in ("int32", "int64", "float16", "float32", "float64", "bool")
)
TX, TY, TZ = (Var(n, I32) for n in ("tx", "ty", "tz"))


def e(x: Any, dtype: DType = I32) -> Expr:
    """A number as a literal; an expression as it is."""
    return x if isinstance(x, Expr) else Const(x, dtype)


def op(symbol: str, a: Any, b: Any) -> Expr:
    """`a symbol b`; a number takes the type of the other operand."""
    like = a.dtype if isinstance(a, Expr) else b.dtype
    return Binary(BinaryOp(symbol), e(a, like), e(b, like))


def add(*xs: Any) -> Expr:
    """The sum."""
    total = xs[0]
    for x in xs[1:]:
        total = op("+", total, x)
    return total


def mul(a: Any, b: Any) -> Expr:
    """The product."""
    return op("*", a, b)


def call(fn: str, *args: Expr, gives: DType | None = None, params: tuple[Any, ...] = ()) -> Call:
    """A function of the table."""
    return Call(fn, args, gives or args[0].dtype, params=params)


def buf(name: str, dtype: Any, *shape: Any, scope: str = "global", **kw: Any) -> Buffer:
    """A buffer."""
    return Buffer(name, DType(dtype), tuple(e(n) for n in shape), scope=scope, **kw)


def ld(b: Buffer, *at: Any) -> Load:
    """A load."""
    return Load(b, tuple(e(i) for i in at), loc=here())


def st(b: Buffer, *at_value: Any) -> Store:
    """A store: indices, then the value."""
    *at, value = at_value
    return Store(b, tuple(e(i) for i in at), e(value, b.dtype), loc=here())


def reg(b: Buffer, *mins: Any, ext: tuple[Any, ...] | None = None) -> Region:
    """A region; the whole buffer without arguments."""
    at = tuple(e(m) for m in mins) or tuple(const(0) for _ in b.shape)
    return Region(b, at, tuple(e(x) for x in ext) if ext is not None else b.shape, loc=here())


def var(name: str, dtype: DType = I32) -> Var:
    """A variable."""
    return Var(name, dtype)


def line_of(found: Any) -> int:
    """The line of a finding or of a node; it must have one."""
    assert found.loc is not None
    return found.loc.line


def here() -> Loc:
    """The caller's line in the test."""
    import sys

    frame = sys._getframe(2)
    return Loc(frame.f_code.co_filename, frame.f_lineno)


def kernel(
    bufs: list[Buffer],
    *body: Stmt,
    grid: tuple[Any, ...] = (1,),
    vars: tuple[Var, ...] = (),  # noqa: A002 - the field's name
    threads: tuple[int, ...] | None = (1,),
    dynamic: tuple[Var, ...] = (),
    dialect: str = "common",
    scalars: tuple[Var, ...] = (),
) -> Function:
    """A function with one launch."""
    names = vars or tuple(var(f"b{'xyz'[k]}") for k in range(len(grid)))
    launch = Launch(tuple(e(g) for g in grid), names, (TX, TY, TZ), body, threads=threads)
    params = [Param(b.name, buffer=b) for b in bufs] + [Param(v.name, var=v) for v in scalars]
    return Function("kernel", tuple(params), dynamic, (launch,), dialect=dialect)


def _checked(fn: Function, tf32: bool) -> Program | None:
    """The program under the dynamic check; None where the check does not follow it."""
    try:
        return translate(fn, tf32=tf32, checked=True)
    except TileError as refused:
        if refused.diagnostics[0].kind != "target":
            raise
        return None


def run(fn: Function, tf32: Any = False, **args: Any) -> Any:
    """Run a function; the arrays are changed in place."""
    small = all(np.size(a) <= 64 for a in args.values())
    copies = (
        {n: a.copy() if isinstance(a, np.ndarray) else a for n, a in args.items()}
        if small
        else None
    )
    program = translate(fn, tf32=tf32)
    out = program.run(args)
    checked = _checked(fn, tf32) if copies is not None else None
    if copies is not None and checked is not None:  # a checked run computes the same
        checked.run(copies)
        for name, a in args.items():
            if isinstance(a, np.ndarray):
                assert a.tobytes() == copies[name].tobytes(), f"{name} differs in a checked run"
    return out


def same(got: np.ndarray, want: np.ndarray) -> None:
    """Equal shapes, types and elements; NaN equals NaN."""
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)
