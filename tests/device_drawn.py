"""Random pipelined kernels for many threads, and the ways of lowering them that must agree.

What leaves: `drawn(seed)`, a kernel with tiles that a loop copies ahead, and its arguments: small
whole numbers, so that every sum is exact in any order; `ways(seed)`, numbers of stages and threads
with and without warp specialisation; `program`, a kernel lowered in one of these ways.
"""

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import tilelang.language as T
from tilelang.ir.node import Node
from tilelang.ir.thread import Program
from tilelang.ir.tile import Function, Launch, Pipelined
from tilelang.isa.target import Target
from tilelang.passes.pipeline import MANY_THREADS
from tilelang.passes.simt.warp_specialize import warp_specialize

STAGES = (0, 1, 2, 3, 4)
THREADS = (64, 96, 128, 160, 192, 256, 320, 384)
TRIPS = (0, 1, 2, 2, 3, 5, 7)
PAIRS = (
    ("float16", "float32"), ("float16", "float32"), ("bfloat16", "float32"), ("int8", "int32"),
    ("float8_e4m3fn", "float32"), ("float8_e5m2", "float32"), ("float32", "float32"),
    ("float16", "float16"), ("float64", "float64"),
)  # fmt: skip


@dataclass(frozen=True)
class Way:
    """How a kernel is lowered: nothing of it may change a result."""

    stages: int
    threads: int
    specialize: bool


class Draw:
    """Choices of one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def pick(self, *options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def whole(self, *shape: int, dtype: str) -> np.ndarray:
        kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
        return self.rng.integers(-2, 3, shape).astype(np.float32).astype(kind)


def drawn(seed: int) -> tuple[Function, dict[str, Any]]:
    """The kernel of a seed, with the arrays and sizes to call it with."""
    draw = Draw(seed)
    make = draw.pick(_product, _product, _two_products, _carried, _rows)
    fn, args = make(draw)
    return fn.ir, args


def ways(seed: int, count: int) -> list[Way]:
    """`count` ways of lowering the kernel of a seed."""
    draw = Draw(seed + 1_000_003)
    return [
        Way(draw.pick(*STAGES), draw.pick(*THREADS), draw.pick(True, True, False))
        for _ in range(count)
    ]


def in_way(fn: Function, way: Way) -> Function:
    """The kernel with the stages and threads of a way."""
    return fn.with_(body=tuple(_set(s, way) for s in fn.body))


def program(fn: Function, way: Way, target: Target) -> Program:
    """The kernel, lowered for a target in one of the ways."""
    at: Any = in_way(fn, way)
    for one in MANY_THREADS:
        if one is not warp_specialize or way.specialize:
            at = one(at, target)
    return at


def _set(node: Any, way: Way) -> Any:
    if isinstance(node, tuple):
        return tuple(_set(x, way) for x in node)
    if not isinstance(node, Node):
        return node
    changed: dict[str, Any] = {}
    if isinstance(node, Launch):
        changed["threads"] = (way.threads,)
    if isinstance(node, Pipelined):
        changed["num_stages"] = way.stages
    for name in ("body", "then", "orelse"):
        if hasattr(node, name):
            changed[name] = _set(getattr(node, name), way)
    return node.with_(**changed) if changed else node


# Kernels ------------------------------------------------------------------------------------------


def _product(draw: Draw) -> tuple[Any, dict[str, Any]]:
    """C = A B + C0 in tiles, operands turned or not; the number of rounds may be an argument."""
    dtype, total = draw.pick(*PAIRS)
    bm, bn = draw.pick(16, 24, 40, 64, 64, 100, 128, 128), draw.pick(8, 24, 40, 64, 64, 96, 128)
    bk = draw.pick(16, 32, 48, 64, 64, 128)
    trips, ragged = draw.pick(*TRIPS), draw.pick(0, 0, 1, 5)
    m, n, k = bm * draw.pick(1, 2) - ragged, bn * draw.pick(1, 2) - ragged, max(1, trips * bk)
    ta, tb, dynamic = draw.pick(True, False), draw.pick(True, False), draw.pick(True, False)
    rounds = T.dynamic("rounds") if dynamic else trips
    middle, cleared = draw.pick(True, False), draw.pick(True, False)

    @T.prim_func
    def kernel(
        A: T.Tensor((k, m) if ta else (m, k), dtype),
        B: T.Tensor((n, k) if tb else (k, n), dtype),
        N: T.Tensor((rounds,), "int32"),
        C: T.Tensor((m, n), total),
    ):
        with T.Kernel(T.ceildiv(n, bn), T.ceildiv(m, bm), threads=128) as (bx, by):
            a = T.alloc_shared((bk, bm) if ta else (bm, bk), dtype)
            b = T.alloc_shared((bn, bk) if tb else (bk, bn), dtype)
            c = T.alloc_fragment((bm, bn), total)
            if cleared:
                T.clear(c)
            else:
                T.copy(C[by * bm, bx * bn], c)
            for i in T.Pipelined(rounds, num_stages=2):
                if ta:
                    T.copy(A[i * bk, by * bm], a)
                else:
                    T.copy(A[by * bm, i * bk], a)
                if tb:
                    T.copy(B[bx * bn, i * bk], b)
                else:
                    T.copy(B[i * bk, bx * bn], b)
                T.gemm(a, b, c, transpose_A=ta, transpose_B=tb)
            if middle:
                s = T.alloc_shared((bm, bn), total)
                T.copy(c, s)
                T.copy(s, C[by * bm, bx * bn])
            else:
                T.copy(c, C[by * bm, bx * bn])

    args = {
        "A": draw.whole(*((k, m) if ta else (m, k)), dtype=dtype),
        "B": draw.whole(*((n, k) if tb else (k, n)), dtype=dtype),
        "N": np.zeros(trips, np.int32),
        "C": draw.whole(m, n, dtype=total),
    }
    return kernel, args | ({"rounds": trips} if dynamic else {})


def _two_products(draw: Draw) -> tuple[Any, dict[str, Any]]:
    """The shape of attention without its exponentials: P = Q K^T, kept small; O = s O + P V."""
    dtype = draw.pick("float16", "bfloat16")
    bm, bn, d = draw.pick(64, 64, 128, 40), draw.pick(32, 64, 64, 128), draw.pick(32, 64, 128)
    trips, edge = draw.pick(*TRIPS), draw.pick(True, False)
    keys = max(1, trips * bn)

    @T.prim_func
    def kernel(
        Q: T.Tensor((2 * bm, d), dtype),
        K: T.Tensor((keys, d), dtype),
        V: T.Tensor((keys, d), dtype),
        O: T.Tensor((2 * bm, d), "float32"),
        S: T.Tensor((2 * bm,), "float32"),
    ):
        with T.Kernel(2, threads=128) as b:
            q = T.alloc_shared((bm, d), dtype)
            ks = T.alloc_shared((bn, d), dtype)
            v = T.alloc_shared((bn, d), dtype)
            p = T.alloc_fragment((bm, bn), "float32")
            half = T.alloc_fragment((bm, bn), dtype)
            o = T.alloc_fragment((bm, d), "float32")
            top = T.alloc_fragment((bm,), "float32")
            most = T.alloc_fragment((bm,), "float32")
            T.copy(Q[b * bm, 0], q)
            T.clear(o)
            T.clear(most)
            last = T.min(trips, b + 1) if edge else trips
            for i in T.Pipelined(last, num_stages=2):
                T.copy(K[i * bn, 0], ks)
                T.clear(p)
                T.gemm(q, ks, p, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.reduce_max(p, top, dim=1)
                for r in T.Parallel(bm):
                    most[r] = T.max(most[r], top[r])
                for r, c in T.Parallel(bm, bn):
                    p[r, c] = T.if_then_else(p[r, c] > top[r] - 4.0, 1.0, -1.0)
                T.copy(p, half)
                for r, c in T.Parallel(bm, d):
                    o[r, c] = o[r, c] * T.if_then_else(top[r] < 30.0, 1.0, 0.5)
                T.copy(V[i * bn, 0], v)
                T.gemm(half, v, o, policy=T.GemmWarpPolicy.FullRow)
            T.copy(o, O[b * bm, 0])
            T.copy(most, S[b * bm])

    shapes = {"Q": (2 * bm, d), "K": (keys, d), "V": (keys, d)}
    args: dict[str, Any] = {x: draw.whole(*s, dtype=dtype) for x, s in shapes.items()}
    args |= {"O": np.zeros((2 * bm, d), np.float32), "S": np.zeros(2 * bm, np.float32)}
    return kernel, args


def _carried(draw: Draw) -> tuple[Any, dict[str, Any]]:
    """Rounds that use what the one before has left; a condition may leave one out."""
    dtype = draw.pick("float32", "float16", "int32", "int8")
    m, n = draw.pick(1, 8, 16, 32, 33, 64), draw.pick(16, 24, 40, 64, 128, 127)
    trips, scope = draw.pick(*TRIPS), draw.pick("alloc_shared", "alloc_fragment")
    skip, two = draw.pick(True, False), draw.pick(True, False)
    rows = max(1, trips * m)

    @T.prim_func
    def kernel(
        A: T.Tensor((rows, n), dtype), B: T.Tensor((rows, n), dtype), C: T.Tensor((m, n), "int32")
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((m, n), dtype)
            b = T.alloc_shared((m, n), dtype)
            c = getattr(T, scope)((m, n), "int32")
            T.clear(c)
            for i in T.Pipelined(trips, num_stages=2):
                T.copy(A[i * m, 0], a)
                for r, x in T.Parallel(m, n):
                    if not skip or i != 1:
                        c[r, x] = c[r, x] * 2 % 1021 + T.cast(a[r, x], "int32")
                if two:
                    T.copy(B[i * m, 0], b)
                    for r, x in T.Parallel(m, n):
                        c[r, x] = T.max(c[r, x], T.cast(b[r, n - 1 - x], "int32")) - i
            T.copy(c, C)

    args = {x: draw.whole(rows, n, dtype=dtype) for x in "AB"}
    return kernel, {**args, "C": np.zeros((m, n), np.int32)}


def _rows(draw: Draw) -> tuple[Any, dict[str, Any]]:
    """Rounds that read and write global memory: sums and greatest of rows, and the rows doubled."""
    m, n = draw.pick(1, 4, 16, 24, 64), draw.pick(8, 40, 64, 96, 127, 128, 256)
    trips, dtype = draw.pick(*TRIPS), draw.pick("float32", "float16", "bfloat16")
    shared, blocks = draw.pick(True, False), draw.pick(1, 3)
    rows = max(1, blocks * trips * m - draw.pick(0, 0, 1))

    @T.prim_func
    def kernel(
        A: T.Tensor((rows, n), dtype), B: T.Tensor((rows, n), dtype), S: T.Tensor((rows,), dtype)
    ):
        with T.Kernel(blocks, threads=128) as block:
            a = T.alloc_shared((m, n), dtype) if shared else T.alloc_fragment((m, n), dtype)
            f = T.alloc_fragment((m, n), "float32")
            s = T.alloc_fragment((m,), "float32")
            for i in T.Pipelined(trips, num_stages=2):
                T.copy(A[(block * trips + i) * m, 0], a)
                T.copy(a, f)
                T.reduce_sum(f, s, dim=1)
                for r, x in T.Parallel(m, n):
                    f[r, x] = f[r, x] * 2.0 + T.max(s[r], -8.0)
                T.copy(f, B[(block * trips + i) * m, 0])
                T.copy(s, S[(block * trips + i) * m])

    zeros = {"B": (rows, n), "S": (rows,)}
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    return kernel, {"A": draw.whole(rows, n, dtype=dtype)} | {
        x: np.zeros(s, kind) for x, s in zeros.items()
    }
