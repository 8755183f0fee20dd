"""Calls of the language outside a kernel's source: a launch to call them in, and what they emit."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import tilelang.language as T
from tilelang.dtypes import DType
from tilelang.errors import Loc
from tilelang.ir.build import CURRENT, Builder
from tilelang.ir.expr import Buffer, Var, const
from tilelang.ir.text import print_stmt
from tilelang.ir.tile import Launch, Stmt
from tilelang.language.buffers import BufferRef
from tilelang.language.values import Value

HERE = Loc("kernel.py", 7, 9, 20, "kernel")


_ALLOCATED: dict[str, Callable[[], Any]] = {
    "s": lambda: T.alloc_shared((64, 64), "float16"),
    "s2": lambda: T.alloc_shared((64, 64), "float16"),
    "c": lambda: T.alloc_fragment((64, 64), "float32"),
    "r": lambda: T.alloc_fragment((64,), "float32"),
    "t": lambda: T.alloc_tmem((64, 64), "float32"),
    "bar": lambda: T.alloc_barrier([1, 128]),
    "cbar": lambda: T.alloc_cluster_barrier(1),
    "v": lambda: T.alloc_local((4,), "float32"),
}


def _parameter(builder: Builder, name: str, dtype: str, *shape: int) -> BufferRef:
    buffer = Buffer(builder.unique(name), DType(dtype), tuple(const(n) for n in shape))
    builder.define(buffer)
    return BufferRef(buffer)


def _scalar(builder: Builder, name: str, dtype: str) -> Value:
    var = Var(builder.unique(name), DType(dtype))
    builder.define(var)
    return Value(var)


def _things(b: Builder) -> SimpleNamespace:
    """What a call may need: A, B, F, I8 in global memory; s, s2 shared; c, r fragments; t Tensor
    Memory; bar, cbar barriers; v local; scalars x, y (float32), h (float16), i (int32), u (uint32),
    p (a pointer), and pair (float16x2).
    """
    found = SimpleNamespace(
        A=_parameter(b, "A", "float16", 64, 64),
        B=_parameter(b, "B", "float32", 64, 64),
        F=_parameter(b, "F", "int32", 16),
        I8=_parameter(b, "I8", "int8", 64),
        img=_parameter(b, "img", "float16", 2, 9, 9, 8),
    )
    for name, dtype in (("x", "float32"), ("y", "float32"), ("h", "float16"), ("i", "int32")):
        setattr(found, name, _scalar(b, name, dtype))
    for name, dtype in (("u", "uint32"), ("p", "handle"), ("pair", "float16x2")):
        setattr(found, name, _scalar(b, name, dtype))
    return found


def _allocations(k: SimpleNamespace, b: Builder) -> None:
    for name, make in _ALLOCATED.items():
        b.hints.insert(0, name)
        setattr(k, name, make())


def emitted(
    call: Callable[[Any], Any], *, threads: Any = 256, cluster: Any = 2, grid: Any = (8,)
) -> list[Stmt]:
    """The statements that `call(things)` emits in a launch, but for the allocations before it."""
    builder = Builder("kernel", loc=HERE)
    token = CURRENT.set(builder)
    try:
        things = _things(builder)
        with T.Kernel(*grid, threads=threads, cluster_dims=cluster):
            _allocations(things, builder)
            call(things)
        (launch,) = builder.statements
    finally:
        CURRENT.reset(token)
    assert isinstance(launch, Launch)
    return list(launch.body[len(_ALLOCATED) :])


def text(call: Callable[[Any], Any], **launch: Any) -> str:
    """The text form of what `call` emits."""
    return "\n".join(print_stmt(s) for s in emitted(call, **launch))
