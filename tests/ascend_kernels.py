"""Kernels for Ascend core groups in the adapter's spelling, with flags by hand, and what they
compute.

Each function gives a kernel; `Case` has the arguments that it takes and the answer in NumPy.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import tilelang.language as T

Arrays = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A kernel, its arguments (outputs are zeros), and the answer of each output."""

    name: str
    kernel: Any
    inputs: Callable[[np.random.Generator], Arrays]
    answers: Callable[[Arrays], Arrays]
    tolerance: float = 0.0

    def arguments(self, seed: int = 0) -> Arrays:
        """Arguments by name."""
        return self.inputs(np.random.default_rng(seed))


def _floats(rng, *shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


# ---- Vector cores ------------------------------------------------------------------------------


def add(M, N, block_M, block_N, dtype="float32"):
    """Elementwise, a barrier of all pipes between the steps; the last tiles may be cut."""
    columns = T.ceildiv(N, block_N)
    half = block_M // 2

    @T.prim_func
    def kernel(A: T.Tensor((M, N), dtype), B: T.Tensor((M, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, block_M) * columns, is_npu=True) as (cid, vid):
            row = cid // columns * block_M + vid * half
            column = cid % columns * block_N
            a = T.alloc_ub((half, block_N), dtype)
            b = T.alloc_ub((half, block_N), dtype)
            T.annotate_address({a: 0, b: half * block_N * 4})
            with T.Scope("V"):
                T.copy(A[row : row + half, column : column + block_N], a)
                T.copy(B[row : row + half, column : column + block_N], b)
                T.barrier_all()
                T.tile.add(a, a, b)
                T.barrier_all()
                T.copy(a, C[row : row + half, column : column + block_N])

    return kernel


def add_ping_pong(M, N, rows, dtype="float32"):
    """Elementwise: the tile of the next round is loaded while this one is added, by flags."""

    @T.prim_func
    def kernel(A: T.Tensor((M, N), dtype), B: T.Tensor((M, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(1, is_npu=True) as (_, vid):
            a = T.alloc_ub((2, rows, N), dtype)
            b = T.alloc_ub((2, rows, N), dtype)
            c = T.alloc_ub((2, rows, N), dtype)
            T.annotate_address({a: 0, b: 2 * rows * N * 4, c: 4 * rows * N * 4})
            with T.Scope("V"):
                T.set_flag("mte3", "mte2", 0)
                T.set_flag("mte3", "mte2", 1)
                for k in T.serial(M // rows // 2):
                    row = (2 * k + vid) * rows
                    T.wait_flag("mte3", "mte2", k % 2)
                    T.copy(A[row : row + rows, 0:N], a[k % 2, :, :])
                    T.copy(B[row : row + rows, 0:N], b[k % 2, :, :])
                    T.set_flag("mte2", "v", k % 2)
                    T.wait_flag("mte2", "v", k % 2)
                    T.tile.add(c[k % 2, :, :], a[k % 2, :, :], b[k % 2, :, :])
                    T.set_flag("v", "mte3", k % 2)
                    T.wait_flag("v", "mte3", k % 2)
                    T.copy(c[k % 2, :, :], C[row : row + rows, 0:N])
                    T.set_flag("mte3", "mte2", k % 2)
                T.wait_flag("mte3", "mte2", 0)
                T.wait_flag("mte3", "mte2", 1)

    return kernel


# ---- The cube core -----------------------------------------------------------------------------


def gemm(M, N, K, tile, dtype="float16", acc="float32", out="float16", trans=(False, False)):
    """A product from L1; the last tiles may be cut."""
    bm, bn, bk = tile
    columns = T.ceildiv(N, bn)
    ta, tb = trans
    a_shape, b_shape = ((K, M) if ta else (M, K)), ((N, K) if tb else (K, N))
    a_tile, b_tile = ((bk, bm) if ta else (bm, bk)), ((bn, bk) if tb else (bk, bn))

    @T.prim_func
    def kernel(A: T.Tensor(a_shape, dtype), B: T.Tensor(b_shape, dtype), C: T.Tensor((M, N), out)):
        with T.Kernel(T.ceildiv(M, bm) * columns, is_npu=True) as (cid, _):
            x = cid // columns * bm
            y = cid % columns * bn
            a = T.alloc_L1(a_tile, dtype)
            b = T.alloc_L1(b_tile, dtype)
            c = T.alloc_L0C((bm, bn), acc)
            T.annotate_address({a: 0, b: 65536, c: 0})
            with T.Scope("C"):
                for k in T.serial(T.ceildiv(K, bk)):
                    if ta:
                        T.copy(A[k * bk : k * bk + bk, x : x + bm], a)
                    else:
                        T.copy(A[x : x + bm, k * bk : k * bk + bk], a)
                    if tb:
                        T.copy(B[y : y + bn, k * bk : k * bk + bk], b)
                    else:
                        T.copy(B[k * bk : k * bk + bk, y : y + bn], b)
                    T.gemm_v0(a, b, c, transpose_A=ta, transpose_B=tb, init=(k == 0))
                T.barrier_all()
                T.copy(c, C[x : x + bm, y : y + bn])

    return kernel


def gemm_l0(M, N, K, bk, trans, dtype="float16"):
    """A product by L0A and L0B, loads and products by turns of two halves; flags by hand."""
    ta, tb = trans
    a_shape, b_shape = ((K, M) if ta else (M, K)), ((N, K) if tb else (K, N))

    @T.prim_func
    def kernel(
        A: T.Tensor(a_shape, dtype), B: T.Tensor(b_shape, dtype), C: T.Tensor((M, N), "float32")
    ):
        with T.Kernel(1, is_npu=True) as (_cid, _):
            a1 = T.alloc_L1(a_shape, dtype)
            b1 = T.alloc_L1(b_shape, dtype)
            a0 = T.alloc_L0A((2, M, bk), dtype)
            b0 = T.alloc_L0B((2, bk, N), dtype)
            c = T.alloc_L0C((M, N), "float32")
            T.annotate_address({a1: 0, b1: 131072, a0: 0, b0: 0, c: 0})
            with T.Scope("C"):
                T.copy(A, a1)
                T.copy(B, b1)
                T.set_flag("mte2", "mte1", 0)
                T.set_flag("m", "mte1", 0)
                T.set_flag("m", "mte1", 1)
                T.wait_flag("mte2", "mte1", 0)
                for k in T.serial(K // bk):
                    T.wait_flag("m", "mte1", k % 2)
                    if ta:
                        T.copy(a1[k * bk : k * bk + bk, 0:M], a0[k % 2, :, :], transpose=True)
                    else:
                        T.copy(a1[0:M, k * bk : k * bk + bk], a0[k % 2, :, :])
                    if tb:
                        T.copy(b1[0:N, k * bk : k * bk + bk], b0[k % 2, :, :], transpose=True)
                    else:
                        T.copy(b1[k * bk : k * bk + bk, 0:N], b0[k % 2, :, :])
                    T.set_flag("mte1", "m", k % 2)
                    T.wait_flag("mte1", "m", k % 2)
                    T.mma(a0[k % 2, :, :], b0[k % 2, :, :], c, init=(k == 0))
                    T.set_flag("m", "mte1", k % 2)
                T.wait_flag("m", "mte1", 0)
                T.wait_flag("m", "mte1", 1)
                T.set_flag("m", "fix", 0)
                T.wait_flag("m", "fix", 0)
                T.copy(c, C)

    return kernel


def gemm_split_k(M, N, K, parts, dtype="float16"):
    """Parts of K in blocks of their own, added up in global memory."""
    part = K // parts

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), "float32")
    ):
        with T.Kernel(parts, is_npu=True) as (cid, _):
            a = T.alloc_L1((M, part), dtype)
            b = T.alloc_L1((part, N), dtype)
            c = T.alloc_L0C((M, N), "float32")
            T.annotate_address({a: 0, b: 65536, c: 0})
            with T.Scope("C"):
                T.copy(A[0:M, cid * part : cid * part + part], a)
                T.copy(B[cid * part : cid * part + part, 0:N], b)
                T.gemm_v0(a, b, c, init=True)
                T.tile.atomic_add(C, c)

    return kernel


# ---- Both --------------------------------------------------------------------------------------


def gemm_relu(M, N, K, rounds, dtype="float16"):
    """Products on the cube core, ReLU on both vector cores, through global memory and flags."""
    half = M // 2

    @T.prim_func
    def kernel(
        A: T.Tensor((rounds, M, K), dtype),
        B: T.Tensor((K, N), dtype),
        W: T.Tensor((M, N), "float32"),
        C: T.Tensor((rounds, M, N), "float32"),
    ):
        with T.Kernel(1, is_npu=True) as (_, vid):
            a = T.alloc_L1((M, K), dtype)
            b = T.alloc_L1((K, N), dtype)
            c = T.alloc_L0C((M, N), "float32")
            u = T.alloc_ub((half, N), "float32")
            T.annotate_address({a: 0, b: 65536, c: 0, u: 0})
            with T.Scope("C"):
                T.copy(B, b)
                for k in T.serial(rounds):
                    T.copy(A[k, :, :], a)
                    T.gemm_v0(a, b, c, init=True)
                    T.wait_cross_flag(1)
                    T.copy(c, W)
                    T.set_cross_flag("FIX", 0)
                T.wait_cross_flag(1)
            with T.Scope("V"):
                T.set_cross_flag("MTE3", 1)
                for k in T.serial(rounds):
                    T.wait_cross_flag(0)
                    T.copy(W[vid * half : vid * half + half, :], u)
                    T.set_flag("mte2", "v", 0)
                    T.set_cross_flag("MTE2", 1)
                    T.wait_flag("mte2", "v", 0)
                    T.tile.relu(u, u)
                    T.set_flag("v", "mte3", 0)
                    T.wait_flag("v", "mte3", 0)
                    T.copy(u, C[k, vid * half : vid * half + half, :])
                    T.set_flag("mte3", "mte2", 0)
                    T.wait_flag("mte3", "mte2", 0)

    return kernel


# ---- The cases ---------------------------------------------------------------------------------


def _pair(M, N):
    def inputs(rng):
        return {
            "A": _floats(rng, M, N),
            "B": _floats(rng, M, N),
            "C": np.zeros((M, N), np.float32),
        }

    return inputs


def _product(M, N, K, trans=(False, False), out=np.float32, dtype=np.float16):
    def inputs(rng):
        a, b = (K, M) if trans[0] else (M, K), (N, K) if trans[1] else (K, N)
        if dtype == np.int8:
            small = [rng.integers(-9, 9, s).astype(np.int8) for s in (a, b)]
            return {"A": small[0], "B": small[1], "C": np.zeros((M, N), out)}
        a, b = _floats(rng, *a, dtype=dtype), _floats(rng, *b, dtype=dtype)
        return {"A": a, "B": b, "C": np.zeros((M, N), out)}

    def answers(x):
        wide = np.int32 if dtype == np.int8 else np.float32
        a, b = x["A"].astype(wide), x["B"].astype(wide)
        c = (a.T if trans[0] else a) @ (b.T if trans[1] else b)
        return {"C": c.astype(out)}

    return inputs, answers


def _relu_inputs(M, N, K, rounds):
    def inputs(rng):
        return {
            "A": _floats(rng, rounds, M, K, dtype=np.float16),
            "B": _floats(rng, K, N, dtype=np.float16),
            "W": np.zeros((M, N), np.float32),
            "C": np.zeros((rounds, M, N), np.float32),
        }

    return inputs


TRANSPOSES = [(False, False), (False, True), (True, False), (True, True)]


def cases() -> list[Case]:
    """Small cases of every kind: odd sizes, cut tiles, all transposes, three element types."""

    def added(x):
        return {"C": x["A"] + x["B"]}

    found = [
        Case("add", add(64, 96, 32, 48), _pair(64, 96), added),
        Case("add_cut", add(40, 100, 32, 64), _pair(40, 100), added),
        Case("add_ping_pong", add_ping_pong(48, 40, 8), _pair(48, 40), added),
        Case("gemm", gemm(64, 48, 96, (32, 48, 32)), *_product(64, 48, 96, out=np.float16), 0.02),
        Case(
            "gemm_cut",
            gemm(40, 100, 50, (32, 64, 32)),
            *_product(40, 100, 50, out=np.float16),
            0.02,
        ),
        Case(
            "gemm_float32",
            gemm(32, 48, 24, (32, 48, 24), "float32", out="float32"),
            *_product(32, 48, 24, dtype=np.float32),
            1e-4,
        ),
        Case(
            "gemm_int8",
            gemm(32, 64, 96, (32, 32, 96), "int8", "int32", "int32"),
            *_product(32, 64, 96, out=np.int32, dtype=np.int8),
        ),
        Case("split_k", gemm_split_k(32, 48, 96, 2), *_product(32, 48, 96), 1e-3),
        Case(
            "gemm_relu",
            gemm_relu(32, 48, 40, 2),
            _relu_inputs(32, 48, 40, 2),
            lambda x: {"C": np.maximum(x["A"].astype(np.float32) @ x["B"].astype(np.float32), 0)},
            1e-3,
        ),
    ]
    for trans in TRANSPOSES:
        name = "".join("t" if t else "n" for t in trans)
        found.append(
            Case(
                f"gemm_{name}",
                gemm(32, 48, 160, (32, 48, 160), out="float32", trans=trans),
                *_product(32, 48, 160, trans),
                1e-3,
            )
        )
        found.append(
            Case(
                f"gemm_l0_{name}",
                gemm_l0(32, 48, 96, 32, trans),
                *_product(32, 48, 96, trans),
                1e-3,
            )
        )
    return found
