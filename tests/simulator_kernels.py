"""Kernels for the tests of the simulator: a pipelined product and attention, with their results."""

from __future__ import annotations

from typing import Any

import numpy as np

import tilelang.language as T
from simulator_build import built
from tilelang.ir.thread import Program
from tilelang.isa.target import parse_target
from tilelang.passes.pipeline import lower
from tilelang.simulator.gpu import SimulatedProgram
from tilelang.targets import CHIPS


class Subject:
    """A program with arguments; `result` is the name and the type of the array that it computes,
    `want` what that must be.
    """

    def __init__(
        self,
        kernel: Any,
        arch: str,
        args: dict[str, Any],
        want: np.ndarray,
        atol: float,
        result: tuple[str, str] = ("Out", "float16"),
    ):
        self.program: Program = lower(kernel.ir, parse_target(f"cuda -arch={arch}", CHIPS))
        self.args, self.want, self.atol = args, want, atol
        self.result = result

    def fresh(self) -> dict[str, Any]:
        """The arguments, with an output that nobody has written."""
        name, dtype = self.result
        unwritten = np.nan if np.dtype(dtype).kind == "f" else np.iinfo(dtype).min
        return {**self.args, name: np.full(self.want.shape, unwritten, dtype)}

    def is_right(self, args: dict[str, Any]) -> bool:
        """Whether the output is what it must be."""
        got = args[self.result[0]].astype(np.float64)
        return bool(np.allclose(got, self.want, rtol=0, atol=self.atol))

    def simulated(self, program: Program | None = None) -> SimulatedProgram:
        """This program, or one like it, on the simulator."""
        return built(program or self.program)


def product(arch: str, M=64, N=64, K=128, tiles=(64, 64, 32), stages=2, threads=128) -> Subject:
    """A @ B in fp16 with sums in fp32."""
    BM, BN, BK = tiles

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        Out: T.Tensor((M, N), "float16"),
    ):
        with T.Kernel(T.ceildiv(N, BN), T.ceildiv(M, BM), threads=threads) as (bx, by):
            a = T.alloc_shared((BM, BK), "float16")
            b = T.alloc_shared((BK, BN), "float16")
            c = T.alloc_fragment((BM, BN), "float32")
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, BK), num_stages=stages):
                T.copy(A[by * BM, k * BK], a)
                T.copy(B[k * BK, bx * BN], b)
                T.gemm(a, b, c)
            T.copy(c, Out[by * BM, bx * BN])

    rng = np.random.default_rng(0)
    a = rng.integers(-3, 4, (M, K)).astype(np.float16)
    b = rng.integers(-3, 4, (K, N)).astype(np.float16)
    return Subject(kernel, arch, {"A": a, "B": b}, a.astype(np.float64) @ b, 0.0)


def tensor_memory(arch: str, M=128, N=64, K=128, depth=32, stages=2, threads=128) -> Subject:
    """A @ B with its sums in Tensor Memory."""

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        Out: T.Tensor((M, N), "float16"),
    ):
        with T.Kernel(1, threads=threads):
            a = T.alloc_shared((M, depth), "float16")
            b = T.alloc_shared((depth, N), "float16")
            c = T.alloc_tmem((M, N), "float32")
            f = T.alloc_fragment((M, N), "float32")
            for k in T.Pipelined(K // depth, num_stages=stages):
                T.copy(A[0, k * depth], a)
                T.copy(B[k * depth, 0], b)
                T.gemm(a, b, c, clear_accum=k == 0)
            T.copy(c, f)
            T.copy(f, Out)

    return Subject(kernel, arch, *_factors(M, N, K))


def in_turn(arch: str, M=128, N=32, K=160, depth=32) -> Subject:
    """A @ B, each round's part in Tensor Memory and their sum in registers: products and threads
    take turns.
    """

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        Out: T.Tensor((M, N), "float16"),
    ):
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((M, depth), "float16"), T.alloc_shared((depth, N), "float16")
            c = T.alloc_tmem((M, N), "float32")
            f, total = (T.alloc_fragment((M, N), "float32") for _ in range(2))
            T.fill(total, 0)
            for k in T.Pipelined(K // depth, num_stages=2):
                T.copy(A[0, k * depth], a)
                T.copy(B[k * depth, 0], b)
                T.gemm(a, b, c, clear_accum=True)
                T.copy(c, f)
                for i, j in T.Parallel(M, N):
                    total[i, j] += f[i, j]
            T.copy(total, Out)

    return Subject(kernel, arch, *_factors(M, N, K))


def left_operand(arch: str, M=128, N=32, K=64) -> Subject:
    """A @ B with A in Tensor Memory, where threads put it."""

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        Out: T.Tensor((M, N), "float16"),
    ):
        with T.Kernel(1, threads=128):
            b, f = T.alloc_shared((K, N), "float16"), T.alloc_fragment((M, K), "float16")
            a, c = T.alloc_tmem((M, K), "float16"), T.alloc_tmem((M, N), "float32")
            out = T.alloc_fragment((M, N), "float32")
            T.copy(B, b)
            T.copy(A, f)
            T.copy(f, a)
            T.gemm(a, b, c, clear_accum=True)
            T.copy(c, out)
            T.copy(out, Out)

    return Subject(kernel, arch, *_factors(M, N, K))


def left_operands(arch: str, M=128, N=32, K=160, depth=32) -> Subject:
    """A @ B in a pipeline that brings A for the threads, which put it into Tensor Memory, and B for
    the products.
    """

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        Out: T.Tensor((M, N), "float16"),
    ):
        with T.Kernel(1, threads=128):
            s, b = T.alloc_shared((M, depth), "float16"), T.alloc_shared((depth, N), "float16")
            a, c = T.alloc_tmem((M, depth), "float16"), T.alloc_tmem((M, N), "float32")
            f, out = T.alloc_fragment((M, depth), "float16"), T.alloc_fragment((M, N), "float32")
            for k in T.Pipelined(K // depth, num_stages=2):
                T.copy(A[0, k * depth], s)
                T.copy(B[k * depth, 0], b)
                T.copy(s, f)
                T.copy(f, a)
                T.gemm(a, b, c, clear_accum=k == 0)
            T.copy(c, out)
            T.copy(out, Out)

    return Subject(kernel, arch, *_factors(M, N, K))


def by_hand(arch: str, tiles=5, N=32, K=64, depth=32) -> Subject:
    """A @ B by a warp that copies, one that multiplies and four that store, as an author spells it
    out; results take turns in two places.
    """
    M = 128

    @T.prim_func
    def kernel(
        A: T.Tensor((tiles * M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        Out: T.Tensor((tiles * M, N), "float16"),
    ):
        with T.Kernel(1, threads=256):
            a = T.alloc_shared((2, M, depth), "float16")
            b = T.alloc_shared((2, depth, N), "float16")
            c, f = T.alloc_tmem((2, M, N), "float32"), T.alloc_fragment((M, N), "float32")
            loaded, used = T.alloc_barrier([32, 32]), T.alloc_barrier([1, 1])
            full, empty = T.alloc_barrier([1, 1]), T.alloc_barrier([128, 128])
            tx = T.get_thread_binding()
            if tx < 32:
                for m in T.serial(tiles):
                    for k in T.serial(K // depth):
                        n = m * (K // depth) + k
                        T.mbarrier_wait_parity(used[n % 2], ((n // 2) & 1) ^ 1)
                        rows, deep = slice(m * M, m * M + M), slice(k * depth, k * depth + depth)
                        T.tma_copy(A[rows, deep], a[n % 2, :, :], barrier=loaded[n % 2])
                        T.tma_copy(B[deep, :], b[n % 2, :, :], barrier=loaded[n % 2])
                        T.mbarrier_arrive(loaded[n % 2])
            elif tx < 64:
                for m in T.serial(tiles):
                    T.mbarrier_wait_parity(empty[m & 1], ((m // 2) & 1) ^ 1)
                    for k in T.serial(K // depth):
                        n = m * (K // depth) + k
                        T.mbarrier_wait_parity(loaded[n % 2], (n // 2) & 1)
                        left, right, to = a[n % 2, :, :], b[n % 2, :, :], c[m & 1, :, :]
                        T.tcgen05_gemm(left, right, to, mbar=used[n % 2], clear_accum=k == 0)
                    T.tcgen05_mma_arrive(full[m & 1])
            elif tx >= 128:
                for m in T.serial(tiles):
                    T.mbarrier_wait_parity(full[m & 1], (m // 2) & 1)
                    T.copy(c[m & 1, :, :], f)
                    T.mbarrier_arrive(empty[m & 1])
                    T.copy(f, Out[m * M, 0])

    return Subject(kernel, arch, *_factors(tiles * M, N, K))


def _factors(M: int, N: int, K: int) -> tuple[dict[str, Any], np.ndarray, float]:
    """Two factors of small integers, their product, and how far off a result may be."""
    rng = np.random.default_rng(0)
    a = rng.integers(-3, 4, (M, K)).astype(np.float16)
    b = rng.integers(-3, 4, (K, N)).astype(np.float16)
    return {"A": a, "B": b}, a.astype(np.float64) @ b, 0.0


def attention(arch: str, length=128, depth=32, tiles=(64, 32), stages=2, threads=128) -> Subject:
    """softmax(scale * Q @ K.T) @ V, in blocks of rows."""
    BM, BN = tiles
    scale = 0.18

    @T.prim_func
    def kernel(
        Q: T.Tensor((length, depth), "float16"),
        K: T.Tensor((length, depth), "float16"),
        V: T.Tensor((length, depth), "float16"),
        Out: T.Tensor((length, depth), "float16"),
    ):
        with T.Kernel(T.ceildiv(length, BM), threads=threads) as bx:
            q = T.alloc_shared((BM, depth), "float16")
            k = T.alloc_shared((BN, depth), "float16")
            v = T.alloc_shared((BN, depth), "float16")
            s = T.alloc_fragment((BM, BN), "float32")
            p = T.alloc_fragment((BM, BN), "float16")
            o = T.alloc_fragment((BM, depth), "float32")
            top = T.alloc_fragment((BM,), "float32")
            before = T.alloc_fragment((BM,), "float32")
            part = T.alloc_fragment((BM,), "float32")
            total = T.alloc_fragment((BM,), "float32")
            T.copy(Q[bx * BM, 0], q)
            T.clear(o)
            T.clear(total)
            T.fill(top, -T.infinity("float32"))
            for j in T.Pipelined(T.ceildiv(length, BN), num_stages=stages):
                T.copy(K[j * BN, 0], k)
                T.clear(s)
                T.gemm(q, k, s, transpose_B=True)
                T.copy(V[j * BN, 0], v)
                T.copy(top, before)
                T.reduce_max(s, top, dim=1, clear=False)
                for r, c in T.Parallel(BM, BN):
                    s[r, c] = T.exp2((s[r, c] - top[r]) * scale)
                T.reduce_sum(s, part, dim=1)
                for r in T.Parallel(BM):
                    total[r] = total[r] * T.exp2((before[r] - top[r]) * scale) + part[r]
                T.copy(s, p)
                for r, c in T.Parallel(BM, depth):
                    o[r, c] *= T.exp2((before[r] - top[r]) * scale)
                T.gemm(p, v, o)
            for r, c in T.Parallel(BM, depth):
                o[r, c] /= total[r]
            T.copy(o, Out[bx * BM, 0])

    return Subject(kernel, arch, *_attended(length, length, depth, scale), 5e-3)


def attention_in_tensor_memory(arch: str, length=256, depth=32, each=64) -> Subject:
    """softmax(scale * Q @ K.T) @ V of 128 rows; all but Q, K and V is in Tensor Memory."""
    M, scale = 128, 0.18

    @T.prim_func
    def kernel(
        Q: T.Tensor((M, depth), "float16"),
        K: T.Tensor((length, depth), "float16"),
        V: T.Tensor((length, depth), "float16"),
        Out: T.Tensor((M, depth), "float16"),
    ):
        with T.Kernel(1, threads=128):
            q = T.alloc_shared((M, depth), "float16")
            k, v = (T.alloc_shared((each, depth), "float16") for _ in range(2))
            scores, weights = T.alloc_tmem((M, each), "float32"), T.alloc_tmem((M, each), "float16")
            result = T.alloc_tmem((M, depth), "float32")
            s, p = T.alloc_fragment((M, each), "float32"), T.alloc_fragment((M, each), "float16")
            o, now = (T.alloc_fragment((M, depth), "float32") for _ in range(2))
            top, before, total, part = (T.alloc_fragment((M,), "float32") for _ in range(4))
            T.copy(Q, q)
            T.clear(o)
            T.clear(total)
            T.fill(top, -T.infinity("float32"))
            for j in T.Pipelined(length // each, num_stages=2):
                T.copy(K[j * each, 0], k)
                T.copy(V[j * each, 0], v)
                T.gemm(q, k, scores, transpose_B=True, clear_accum=True)
                T.copy(scores, s)
                T.copy(top, before)
                T.reduce_max(s, top, dim=1, clear=False)
                for r, c in T.Parallel(M, each):
                    s[r, c] = T.exp2((s[r, c] - top[r]) * scale)
                T.reduce_sum(s, part, dim=1)
                for r in T.Parallel(M):
                    total[r] = total[r] * T.exp2((before[r] - top[r]) * scale) + part[r]
                T.copy(s, p)
                T.copy(p, weights)
                T.gemm(weights, v, result, clear_accum=True)
                T.copy(result, now)
                for r, c in T.Parallel(M, depth):
                    o[r, c] = o[r, c] * T.exp2((before[r] - top[r]) * scale) + now[r, c]
            for r, c in T.Parallel(M, depth):
                o[r, c] /= total[r]
            T.copy(o, Out)

    return Subject(kernel, arch, *_attended(M, length, depth, scale), 5e-3)


def _attended(
    rows: int, length: int, depth: int, scale: float
) -> tuple[dict[str, Any], np.ndarray]:
    """Random Q, K and V, and softmax(scale * Q @ K.T) @ V."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(n, depth)).astype(np.float16) for n in (rows, length, length))
    x = np.exp2((q.astype(np.float64) @ k.astype(np.float64).T) * scale)
    want = (x / x.sum(axis=1, keepdims=True)) @ v.astype(np.float64)
    return {"Q": q, "K": k, "V": v}, want
