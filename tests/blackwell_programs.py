"""Programs with accumulators in Tensor Memory, and what they must give by NumPy: products of every
type by one block and by pairs of blocks, attention, and a step of latent attention (MLA).
"""

from typing import Any

import ml_dtypes
import numpy as np

import tilelang.language as T
from example_run import load
from simulator_kernels import Subject

TOTALS = {
    "float16": "float32",
    "bfloat16": "float32",
    "float32": "float32",
    "float8_e4m3fn": "float32",
    "float8_e5m2": "float32",
    "int8": "int32",
    "uint8": "int32",
}
"""The types that tcgen05 multiplies without scales, with the type of their sums."""


def factor(rows: int, columns: int, dtype: str, seed: int) -> np.ndarray:
    """Small integers, of which every sum is exact."""
    low = 0 if dtype == "uint8" else -3
    numbers = np.random.default_rng(seed).integers(low, 4, (rows, columns))
    return numbers.astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))


def gemm(m: int, n: int, k: int, tiles: tuple[int, int, int], dtype: str, stages: int = 3) -> Any:
    """C = A @ B.T, each tile by one block."""
    bm, bn, bk = tiles
    total = TOTALS[dtype]

    @T.prim_func
    def kernel(
        A: T.Tensor((m, k), dtype),
        B: T.Tensor((n, k), dtype),
        C: T.Tensor((m, n), total),
    ):
        with T.Kernel(T.ceildiv(n, bn), T.ceildiv(m, bm), threads=256) as (bx, by):
            a, b = T.alloc_shared((bm, bk), dtype), T.alloc_shared((bn, bk), dtype)
            c, out = T.alloc_tmem((bm, bn), total), T.alloc_fragment((bm, bn), total)
            for ko in T.Pipelined(T.ceildiv(k, bk), num_stages=stages):
                T.copy(A[by * bm, ko * bk], a)
                T.copy(B[bx * bn, ko * bk], b)
                T.gemm(a, b, c, transpose_B=True, clear_accum=ko == 0)
            T.copy(c, out)
            T.copy(out, C[by * bm, bx * bn])

    return kernel


def pair(m, n, k, tiles, *, dtype="bfloat16", turned=False, stages=2, cluster=2) -> Any:
    """The product by pairs of blocks: each has its rows of A and of C and half of B, which lies as
    (n, k) where it is `turned`; the first block issues for both.
    """
    (bm, bn, bk), total = tiles, TOTALS[dtype]

    @T.prim_func
    def kernel(
        A: T.Tensor((m, k), dtype),
        B: T.Tensor((n, k) if turned else (k, n), dtype),
        C: T.Tensor((m, n), total),
    ):
        with T.ClusterKernel(m // bm, threads=256, cluster_dims=cluster) as bx:
            a = T.alloc_shared((stages, bm, bk), dtype)
            b = T.alloc_shared((stages, bn // 2, bk) if turned else (stages, bk, bn // 2), dtype)
            c = T.alloc_tmem((bm, bn), total)
            out = T.alloc_fragment((bm, bn), total)
            loaded = T.alloc_cluster_barrier([32 * 2] * stages)
            consumed = T.alloc_cluster_barrier([1] * stages)
            full = T.alloc_cluster_barrier([1])
            tx = T.get_thread_binding()
            cta = T.block_rank_in_cluster() % 2
            if tx < 32:
                for ko in T.serial(k // bk):
                    s = ko % stages
                    T.mbarrier_wait_parity(consumed[s], ko // stages % 2 ^ 1)
                    T.tma_copy(A[bx * bm, ko * bk], a[s, :, :], barrier=loaded[s])
                    if turned:
                        T.tma_copy(B[cta * (bn // 2), ko * bk], b[s, :, :], barrier=loaded[s])
                    else:
                        T.tma_copy(B[ko * bk, cta * (bn // 2)], b[s, :, :], barrier=loaded[s])
                    T.mbarrier_arrive(loaded[s], T.block_rank_in_cluster() // 2 * 2)
            elif tx < 64 and cta == 0:
                for ko in T.serial(k // bk):
                    s = ko % stages
                    T.mbarrier_wait_parity(loaded[s], ko // stages % 2)
                    T.tcgen05_gemm(
                        a[s, :, :],
                        b[s, :, :],
                        c,
                        transpose_B=turned,
                        mbar=consumed[s],
                        clear_accum=ko == 0,
                        use_2cta=True,
                    )
                T.tcgen05_mma_arrive(full, arrive_2cta=True)
            with T.ws(1):
                T.mbarrier_wait_parity(full, 0)
                T.copy(c, out)
                T.copy(out, C[bx * bm, 0])

    return kernel


def attention(tokens: int, deep: int) -> Any:
    """softmax(Q @ K.T) @ V in base 2 for 128 rows, the sums of both products in Tensor Memory."""
    rows, each = 128, 64

    @T.prim_func
    def kernel(
        Q: T.Tensor((rows, deep), "float16"),
        K: T.Tensor((tokens, deep), "float16"),
        V: T.Tensor((tokens, deep), "float16"),
        O: T.Tensor((rows, deep), "float32"),
    ):
        with T.Kernel(1, threads=128):
            q = T.alloc_shared((rows, deep), "float16")
            k, v = (T.alloc_shared((each, deep), "float16") for _ in range(2))
            s_t = T.alloc_tmem((rows, each), "float32")
            p_t = T.alloc_tmem((rows, each), "float16")
            o_t = T.alloc_tmem((rows, deep), "float32")
            s, o, part = (T.alloc_fragment((rows, n), "float32") for n in (each, deep, deep))
            p = T.alloc_fragment((rows, each), "float16")
            top, before, total, add = (T.alloc_fragment((rows,), "float32") for _ in range(4))
            T.copy(Q, q)
            T.fill(o, 0)
            T.fill(total, 0)
            T.fill(top, -T.infinity("float32"))
            for n in T.Pipelined(tokens // each, num_stages=2):
                T.copy(K[n * each, 0], k)
                T.copy(V[n * each, 0], v)
                T.gemm(q, k, s_t, transpose_B=True, clear_accum=True)
                T.copy(s_t, s)
                T.copy(top, before)
                T.reduce_max(s, top, dim=1, clear=False)
                for i, j in T.Parallel(rows, each):
                    s[i, j] = T.exp2(s[i, j] - top[i])
                T.reduce_sum(s, add, dim=1)
                for i in T.Parallel(rows):
                    total[i] = total[i] * T.exp2(before[i] - top[i]) + add[i]
                T.copy(s, p)
                T.copy(p, p_t)
                T.gemm(p_t, v, o_t, clear_accum=True)
                T.copy(o_t, part)
                for i, j in T.Parallel(rows, deep):
                    o[i, j] = o[i, j] * T.exp2(before[i] - top[i]) + part[i, j]
            for i, j in T.Parallel(rows, deep):
                o[i, j] = o[i, j] / total[i]
            T.copy(o, O)

    return kernel


def latent(tokens: int, deep: int, turned: int, part: int) -> Any:
    """One step of decoding by latent attention (MLA) for 128 heads: keys are `deep` latent and
    `turned` rotated elements, values the latent ones, `part` of which a block makes.
    """
    each, heads = 64, 128
    scale = 1.4426950408889634 / (deep + turned) ** 0.5

    @T.prim_func
    def kernel(
        Q: T.Tensor((1, heads, deep), "float16"),
        QR: T.Tensor((1, heads, turned), "float16"),
        KV: T.Tensor((1, tokens, deep), "float16"),
        KR: T.Tensor((1, tokens, turned), "float16"),
        O: T.Tensor((1, heads, deep), "float32"),
    ):
        with T.Kernel(deep // part, 1, threads=256) as (bx, bz):
            q, qr = (
                T.alloc_shared((heads, deep), "float16"),
                T.alloc_shared((heads, turned), "float16"),
            )
            kv, kr = (
                T.alloc_shared((each, deep), "float16"),
                T.alloc_shared((each, turned), "float16"),
            )
            s_t = T.alloc_tmem((heads, each), "float32")
            p_t = T.alloc_tmem((heads, each), "float16")
            o_t = T.alloc_tmem((heads, part), "float32")
            s = T.alloc_fragment((heads, each), "float32")
            p = T.alloc_fragment((heads, each), "float16")
            o = T.alloc_fragment((heads, part), "float32")
            top, before, total, add = (T.alloc_fragment((heads,), "float32") for _ in range(4))
            T.copy(Q[bz, 0, 0], q)
            T.copy(QR[bz, 0, 0], qr)
            T.fill(o_t, 0)
            T.fill(total, 0)
            T.fill(top, -T.infinity("float32"))
            for n in T.serial(tokens // each):
                T.copy(KV[bz, n * each, 0], kv)
                T.copy(KR[bz, n * each, 0], kr)
                T.gemm(q, kv, s_t, transpose_B=True, clear_accum=True)
                T.gemm(qr, kr, s_t, transpose_B=True)
                T.copy(s_t, s)
                T.copy(top, before)
                T.reduce_max(s, top, dim=1, clear=False)
                for i, j in T.Parallel(heads, each):
                    s[i, j] = T.exp2((s[i, j] - top[i]) * scale)
                T.reduce_sum(s, add, dim=1)
                for i in T.Parallel(heads):
                    before[i] = T.exp2((before[i] - top[i]) * scale)
                    total[i] = total[i] * before[i] + add[i]
                T.copy(s, p)
                T.copy(p, p_t)
                T.copy(o_t, o)
                for i, j in T.Parallel(heads, part):
                    o[i, j] *= before[i]
                T.copy(o, o_t)
                T.gemm(p_t, kv[:, bx * part : (bx + 1) * part], o_t)
            T.copy(o_t, o)
            for i, j in T.Parallel(heads, part):
                O[bz, i, bx * part + j] = o[i, j] / total[i]

    return kernel


def product(arch: str, dtype: str, *, blocks: int) -> Subject:
    """A product whose tiles `blocks` blocks make together; of one block they hang over the edge."""
    m, n, k = (256, 32, 96) if blocks == 2 else (136, 40, 96)
    tiles = (128, 32, 32)
    a, b = factor(m, k, dtype, 0), factor(n, k, dtype, 1)
    kernel = (
        gemm(m, n, k, tiles, dtype)
        if blocks == 1
        else pair(m, n, k, tiles, dtype=dtype, turned=True)
    )
    want = a.astype(np.float64) @ b.astype(np.float64).T
    return Subject(kernel, arch, {"A": a, "B": b}, want, 0.0, result=("C", TOTALS[dtype]))


def accumulator(arch: str, columns: int) -> Subject:
    """The product of the tour of memory scopes, with so many columns of Tensor Memory."""
    a, b = factor(128, 32, "float16", 0), factor(32, columns, "float16", 1)
    kernel = load("alloc_scopes").accumulate_in_tensor_memory(128, columns, 32)
    want = a.astype(np.float64) @ b.astype(np.float64)
    return Subject(kernel, arch, {"A": a, "B": b}, want, 0.0, result=("C", "float32"))


def softmax(x: np.ndarray) -> np.ndarray:
    """Softmax of the rows in base 2."""
    powers = np.exp2(x - x.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def attention_forward(arch: str) -> Subject:
    """Attention over three rounds of keys."""
    random = np.random.default_rng(7)
    q, k, v = (random.standard_normal((n, 64)).astype("f2") for n in (128, 192, 192))
    exact = [x.astype("f8") for x in (q, k, v)]
    want = softmax(exact[0] @ exact[1].T) @ exact[2]
    args = {"Q": q, "K": k, "V": v}
    return Subject(attention(192, 64), arch, args, want, 5e-3, result=("O", "float32"))


def mla_decode(arch: str) -> Subject:
    """A step of decoding over two rounds of latent keys, its values in two blocks."""
    random = np.random.default_rng(1)
    shapes = {"Q": (128, 128), "QR": (128, 64), "KV": (128, 128), "KR": (128, 64)}
    args = {k: random.standard_normal((1, *v)).astype("f2") for k, v in shapes.items()}
    q, qr, kv, kr = (x[0].astype("f8") for x in args.values())
    scale = 1.4426950408889634 / (128 + 64) ** 0.5
    want = softmax((q @ kv.T + qr @ kr.T) * scale) @ kv
    return Subject(latent(128, 128, 64, 64), arch, args, want[None], 5e-3, result=("O", "float32"))
