"""Functions of one float as a GPU computes them, in place of the simulator's own.

What enters: a `Call` of the thread stage. What leaves: a function from arrays to arrays that runs
it on the first device, through the code that the compiler makes of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import cuda_build
from tilelang.dtypes import DType
from tilelang.ir.expr import Binary, BinaryOp, Call, Const, Expr, Var
from tilelang.ir.thread import Argument, Array, Elem, Kernel, Program, Write
from tilelang.ir.tile import For
from tilelang.simulator import values

I32, F32 = DType("int32"), DType("float32")
THREADS, EACH = 128, 64
COUNT = THREADS * EACH
"""Elements of one launch."""


def _number(n: int) -> Const:
    return Const(n, I32)


def _program(e: Call) -> Program:
    """`y[i] = f(x[i])` for `COUNT` elements."""
    x, y = (Array(name, F32, _number(COUNT), align=16) for name in "xy")
    bx, tx, i = Var("bx", I32), Var("tx", I32), Var("i", I32)
    at: Expr = Binary(BinaryOp.ADD, tx, Binary(BinaryOp.MUL, i, _number(THREADS)))
    body = Write(y, at, Call(e.fn, (Elem(x, at, F32),), F32, params=e.params))
    loop = For(i, _number(0), _number(EACH), (body,))
    kernel = Kernel("function", (x, y), (_number(1),), (THREADS,), (bx,), (tx,), (loop,))
    args = tuple(Argument(a.name, array=a, shape=(_number(COUNT),)) for a in (x, y))
    return Program("function", args, (), (kernel,))


@contextmanager
def taken_from_the_device() -> Iterator[set[str]]:
    """In it, simulated programs get functions of one float32 from the device; their names."""
    own = values.pure
    built: dict[Any, Any] = {}
    names: set[str] = set()

    def pure(e: Call) -> values.Function:
        if len(e.args) != 1 or e.args[0].dtype != F32 or e.type != F32:
            return own(e)
        names.add(e.fn)
        key = (e.fn, e.params)
        if key not in built:
            built[key] = cuda_build.built(_program(e))
        return lambda x: _mapped(built[key], np.asarray(x, np.float32))

    values.pure = pure
    try:
        yield names
    finally:
        values.pure = own


def _mapped(program: Any, x: np.ndarray) -> np.ndarray:
    flat = x.reshape(-1)
    padded = np.zeros(-(-flat.size // COUNT) * COUNT, np.float32)
    padded[: flat.size] = flat
    for part in padded.reshape(-1, COUNT):
        found = {"x": part.copy(), "y": np.zeros(COUNT, np.float32)}
        cuda_build.run(program, found)
        part[:] = found["y"]
    return padded[: flat.size].reshape(x.shape)[()]
