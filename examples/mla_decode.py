"""Decoding with multi-head latent attention, in two kernels.

All heads share one compressed cache: D numbers that serve as keys and as values, and R more of the
rotary part, which serve as keys only. The first kernel makes partial results for each split of the
cache, the second combines them.
"""

import numpy as np

import tilelang
import tilelang.language as T

LOG2_E = 1.4426950408889634


@tilelang.jit
def mla_partial(batch, heads, D, R, splits=2, block=64, block_heads=32):
    """A kernel for the partial outputs (batch, splits, heads, D) and their log2-sums."""
    capacity = T.dynamic("capacity")
    scale = (D + R) ** -0.5 * LOG2_E

    @T.prim_func
    def kernel(
        Q: T.Tensor((batch, heads, D), "float16"),
        QRope: T.Tensor((batch, heads, R), "float16"),
        KV: T.Tensor((batch, capacity, D), "float16"),
        KRope: T.Tensor((batch, capacity, R), "float16"),
        Partial: T.Tensor((batch, splits, heads, D), "float32"),
        Weight: T.Tensor((batch, splits, heads), "float32"),
    ):
        with T.Kernel(T.ceildiv(heads, block_heads), splits, batch, threads=256) as (hb, split, b):
            q = T.alloc_shared((block_heads, D), "float16")
            qr = T.alloc_shared((block_heads, R), "float16")
            kv = T.alloc_shared((block, D), "float16")
            kr = T.alloc_shared((block, R), "float16")
            p = T.alloc_shared((block_heads, block), "float16")
            s = T.alloc_fragment((block_heads, block), "float32")
            out = T.alloc_fragment((block_heads, D), "float32")
            peak, before, part, total = (
                T.alloc_fragment((block_heads,), "float32") for _ in range(4)
            )
            share = T.ceildiv(T.ceildiv(capacity, splits), block) * block
            start = split * share
            end = T.min(capacity, start + share)
            T.copy(Q[b, hb * block_heads : (hb + 1) * block_heads, :], q)
            T.copy(QRope[b, hb * block_heads : (hb + 1) * block_heads, :], qr)
            T.clear(out)
            T.clear(total)
            T.fill(peak, -T.infinity("float32"))
            for step in T.Pipelined(T.ceildiv(T.max(end - start, 0), block), num_stages=2):
                at = start + step * block
                T.copy(KV[b, at : at + block, :], kv)
                T.copy(KRope[b, at : at + block, :], kr)
                T.gemm(q, kv, s, transpose_B=True, clear_accum=True)
                T.gemm(qr, kr, s, transpose_B=True)
                for i, j in T.Parallel(block_heads, block):
                    s[i, j] = T.if_then_else(at + j < end, s[i, j], -T.infinity("float32"))
                T.copy(peak, before)
                T.reduce_max(s, peak, dim=1, clear=False)
                for i, j in T.Parallel(block_heads, block):
                    s[i, j] = T.exp2((s[i, j] - peak[i]) * scale)
                T.reduce_sum(s, part, dim=1)
                for i in T.Parallel(block_heads):
                    total[i] = total[i] * T.exp2((before[i] - peak[i]) * scale) + part[i]
                for i, j in T.Parallel(block_heads, D):
                    out[i, j] = out[i, j] * T.exp2((before[i] - peak[i]) * scale)
                T.copy(s, p)
                T.gemm(p, kv, out)
            for i, j in T.Parallel(block_heads, D):
                out[i, j] = T.if_then_else(total[i] > 0, out[i, j] / total[i], 0.0)
            for i in T.Parallel(block_heads):
                total[i] = T.log2(total[i]) + peak[i] * scale
            T.copy(out, Partial[b, split, hb * block_heads : (hb + 1) * block_heads, :])
            T.copy(total, Weight[b, split, hb * block_heads : (hb + 1) * block_heads])

    return kernel


@tilelang.jit(out_idx=-1)
def mla_combine(batch, heads, D, splits=2):
    """A kernel for O (batch, heads, D) from the partial outputs and their log2-sums."""

    @T.prim_func
    def kernel(
        Partial: T.Tensor((batch, splits, heads, D), "float32"),
        Weight: T.Tensor((batch, splits, heads), "float32"),
        O: T.Tensor((batch, heads, D), "float16"),
    ):
        with T.Kernel(heads, batch, threads=128) as (head, b):
            acc = T.alloc_fragment((D,), "float32")
            peak = T.alloc_var("float32", init=-T.infinity("float32"))
            total = T.alloc_var("float32", init=0.0)
            for n in T.serial(splits):
                peak = T.max(peak, Weight[b, n, head])
            T.clear(acc)
            for n in T.serial(splits):
                share = T.exp2(Weight[b, n, head] - peak)
                total = total + share
                for j in T.Parallel(D):
                    acc[j] += share * Partial[b, n, head, j]
            for j in T.Parallel(D):
                O[b, head, j] = acc[j] / total

    return kernel


def mla_decode(Q, QRope, KV, KRope, splits=2, **tiles):
    """Both kernels, one after the other, on NumPy arrays."""
    (batch, heads, D), R = Q.shape, QRope.shape[2]
    partial = np.empty((batch, splits, heads, D), np.float32)
    weight = np.empty((batch, splits, heads), np.float32)
    mla_partial(batch, heads, D, R, splits, **tiles)(Q, QRope, KV, KRope, partial, weight)
    return mla_combine(batch, heads, D, splits)(partial, weight)


def reference(Q, QRope, KV, KRope):
    """The same in NumPy, in float64."""
    q = np.concatenate([Q, QRope], axis=2).astype(np.float64)
    k = np.concatenate([KV, KRope], axis=2).astype(np.float64)
    s = np.einsum("bhd,bnd->bhn", q, k) / np.sqrt(q.shape[2])
    p = np.exp(s - s.max(axis=2, keepdims=True))
    p /= p.sum(axis=2, keepdims=True)
    return np.einsum("bhn,bnd->bhd", p, KV.astype(np.float64))


def problem(batch, heads, D, R, capacity, seed=0):
    """Random queries and cache."""
    random = np.random.default_rng(seed)
    shapes = (batch, heads, D), (batch, heads, R), (batch, capacity, D), (batch, capacity, R)
    return tuple(random.normal(size=shape).astype(np.float16) * 0.5 for shape in shapes)


def main():
    """16 heads on one cache of 300 entries of 128 + 32."""
    args = problem(2, 16, 128, 32, 300)
    O = mla_decode(*args)
    np.testing.assert_allclose(O, reference(*args), atol=2e-3)
    print("mla_decode: 16 heads, a cache of 300 x (128 + 32), 2 splits; within 2e-3")


if __name__ == "__main__":
    main()
