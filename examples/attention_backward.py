"""Attention, backward: dQ, dK and dV from dO, recomputing the weights from the log-sum-exp.

A first launch makes delta = sum(O * dO) per row. The second one owns a tile of K and V per block,
walks over the rows that see it, keeps dK and dV in registers, and adds to dQ with atomics. Full or
causal, with fewer heads of K and V than of Q: then several blocks add to one dK and dV.
"""

import numpy as np
from attention_forward import LOG2_E, attention, reference

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[6, 7, 8])
def attention_backward(heads, kv_heads, S, D, causal=False, tiles=(32, 64)):
    """A kernel for one sequence of S tokens: dQ (S, heads, D), dK and dV (S, kv_heads, D), fp32."""
    BM, BN = tiles
    group = heads // kv_heads
    rows = -(-S // BM)
    scale = D**-0.5

    @T.prim_func
    def kernel(
        Q: T.Tensor((S, heads, D), "float16"),
        K: T.Tensor((S, kv_heads, D), "float16"),
        V: T.Tensor((S, kv_heads, D), "float16"),
        O: T.Tensor((S, heads, D), "float16"),
        dO: T.Tensor((S, heads, D), "float16"),
        LSE: T.Tensor((S, heads), "float32"),
        dQ: T.Tensor((S, heads, D), "float32"),
        dK: T.Tensor((S, kv_heads, D), "float32"),
        dV: T.Tensor((S, kv_heads, D), "float32"),
    ):
        Delta = T.alloc_global((S, heads), "float32")

        with T.Kernel(T.ceildiv(S, BM), heads, threads=128) as (block, head):
            o = T.alloc_fragment((BM, D), "float32")
            do = T.alloc_fragment((BM, D), "float32")
            delta = T.alloc_fragment((BM,), "float32")
            T.copy(O[block * BM : (block + 1) * BM, head, :], o)
            T.copy(dO[block * BM : (block + 1) * BM, head, :], do)
            for i, j in T.Parallel(BM, D):
                o[i, j] = o[i, j] * do[i, j]
            T.reduce_sum(o, delta, dim=1)
            T.copy(delta, Delta[block * BM : (block + 1) * BM, head])
            T.fill(dQ[block * BM : (block + 1) * BM, head, :], 0)

        with T.Kernel(T.ceildiv(S, BN), kv_heads, threads=128) as (block, kv_head):
            T.fill(dK[block * BN : (block + 1) * BN, kv_head, :], 0)
            T.fill(dV[block * BN : (block + 1) * BN, kv_head, :], 0)

        with T.Kernel(T.ceildiv(S, BN), heads, threads=128) as (block, head):
            q = T.alloc_shared((BM, D), "float16")
            k = T.alloc_shared((BN, D), "float16")
            v = T.alloc_shared((BN, D), "float16")
            do = T.alloc_shared((BM, D), "float16")
            p = T.alloc_shared((BM, BN), "float16")
            ds = T.alloc_shared((BM, BN), "float16")
            s = T.alloc_fragment((BM, BN), "float32")
            dp = T.alloc_fragment((BM, BN), "float32")
            dq = T.alloc_fragment((BM, D), "float32")
            dk = T.alloc_fragment((BN, D), "float32")
            dv = T.alloc_fragment((BN, D), "float32")
            kv_head = head // group
            T.copy(K[block * BN : (block + 1) * BN, kv_head, :], k)
            T.copy(V[block * BN : (block + 1) * BN, kv_head, :], v)
            T.clear(dk)
            T.clear(dv)
            first = block * BN // BM if causal else 0  # rows above see nothing of this tile
            for step in T.serial(first, rows):
                T.copy(Q[step * BM : (step + 1) * BM, head, :], q)
                T.copy(dO[step * BM : (step + 1) * BM, head, :], do)
                T.gemm(q, k, s, transpose_B=True, clear_accum=True)
                T.gemm(do, v, dp, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(BM, BN):
                    row, column = step * BM + i, block * BN + j
                    seen = row < S and column < S and (column <= row if causal else column >= 0)
                    s[i, j] = T.if_then_else(
                        seen, T.exp2((s[i, j] * scale - LSE[row, head]) * LOG2_E), 0.0
                    )
                    dp[i, j] = T.if_then_else(
                        seen, s[i, j] * (dp[i, j] - Delta[row, head]) * scale, 0.0
                    )
                T.copy(s, p)
                T.copy(dp, ds)
                T.gemm(p, do, dv, transpose_A=True)
                T.gemm(ds, q, dk, transpose_A=True)
                T.gemm(ds, k, dq, clear_accum=True)
                T.atomic_add(dQ[step * BM : (step + 1) * BM, head, :], dq)
            T.atomic_add(dK[block * BN : (block + 1) * BN, kv_head, :], dk)
            T.atomic_add(dV[block * BN : (block + 1) * BN, kv_head, :], dv)

    return kernel


def backward_reference(Q, K, V, dO, causal=False):
    """The same in NumPy, in float64."""
    Q, K, V, dO = (x.astype(np.float64) for x in (Q, K, V, dO))
    group, scale = Q.shape[1] // K.shape[1], Q.shape[2] ** -0.5
    dQ, dK, dV = np.zeros_like(Q), np.zeros_like(K), np.zeros_like(V)
    for h in range(Q.shape[1]):
        g = h // group
        s = Q[:, h] @ K[:, g].T * scale
        if causal:
            s[np.triu_indices(len(s), 1)] = -np.inf
        p = np.exp(s - s.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        dp = dO[:, h] @ V[:, g].T
        ds = p * (dp - (dp * p).sum(axis=1, keepdims=True)) * scale
        dQ[:, h] = ds @ K[:, g]
        dK[:, g] += ds.T @ Q[:, h]
        dV[:, g] += p.T @ dO[:, h]
    return dQ, dK, dV


def gradients(Q, K, V, dO, causal=False, **tiles):
    """Forward and backward on NumPy arrays of one sequence; gives dQ, dK and dV."""
    (S, heads, D), kv_heads = Q.shape, K.shape[1]
    starts = np.array([0, S], np.int32)
    no_sink = np.zeros(heads, np.float32)
    O, LSE = attention(heads, kv_heads, D, causal=causal)(Q, K, V, starts, no_sink)
    return attention_backward(heads, kv_heads, S, D, causal, **tiles)(Q, K, V, O, dO, LSE)


def problem(S, heads, kv_heads, D, seed=0):
    """Random Q, K, V and dO."""
    random = np.random.default_rng(seed)
    return tuple(
        random.normal(size=(S, h, D)).astype(np.float16) for h in (heads, kv_heads, kv_heads, heads)
    )


def main():
    """100 tokens, causal, 4 heads on 2."""
    args = problem(100, 4, 2, 64)
    for got, want in zip(
        gradients(*args, causal=True), backward_reference(*args, causal=True), strict=True
    ):
        np.testing.assert_allclose(got, want, atol=3e-2)
    out, _ = reference(*args[:3], [0, 100], causal=True)
    print(f"attention_backward: dQ, dK, dV of {out.shape}, causal, within 3e-2 of float64")


if __name__ == "__main__":
    main()
