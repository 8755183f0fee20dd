"""Flash decoding: one query per head against a long cache, the cache split over blocks.

The first launch gives a partial output and its log-sum-exp for each split, in a workspace; the
second one combines them. Without the split, a batch of one would keep a handful of blocks busy.
"""

import numpy as np

import tilelang
import tilelang.language as T

LOG2_E = 1.4426950408889634


@tilelang.jit(out_idx=-1)
def flash_decoding(batch, heads, kv_heads, D, splits=4, block=64):
    """A kernel for one step of decoding; `Lengths` (batch) says how much of the cache is filled.

    Q (batch, heads, D), K and V (batch, capacity, kv_heads, D), O like Q. The heads that share a
    head of K and V are the rows of one tile.
    """
    capacity = T.dynamic("capacity")
    group = heads // kv_heads
    scale = D**-0.5 * LOG2_E

    @T.prim_func
    def kernel(
        Q: T.Tensor((batch, heads, D), "float16"),
        K: T.Tensor((batch, capacity, kv_heads, D), "float16"),
        V: T.Tensor((batch, capacity, kv_heads, D), "float16"),
        Lengths: T.Tensor((batch,), "int32"),
        O: T.Tensor((batch, heads, D), "float16"),
    ):
        partial = T.alloc_global((batch, splits, heads, D), "float32")
        weight = T.alloc_global((batch, splits, heads), "float32")  # log2 of the sum, -inf if empty

        with T.Kernel(splits, kv_heads, batch, threads=128) as (split, kv_head, b):
            q = T.alloc_shared((group, D), "float16")
            k = T.alloc_shared((block, D), "float16")
            v = T.alloc_shared((block, D), "float16")
            p = T.alloc_fragment((group, block), "float16")
            s = T.alloc_fragment((group, block), "float32")
            out = T.alloc_fragment((group, D), "float32")
            peak, before, part, total = (T.alloc_fragment((group,), "float32") for _ in range(4))
            length = Lengths[b]
            share = T.ceildiv(T.ceildiv(length, splits), block) * block
            start = split * share
            end = T.min(length, start + share)
            T.copy(Q[b, kv_head * group : (kv_head + 1) * group, :], q)
            T.clear(out)
            T.clear(total)
            T.fill(peak, -T.infinity("float32"))
            for step in T.serial(T.ceildiv(T.max(end - start, 0), block)):
                at = start + step * block
                T.copy(K[b, at : at + block, kv_head, :], k)
                T.gemm(q, k, s, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(group, block):
                    s[i, j] = T.if_then_else(at + j < end, s[i, j], -T.infinity("float32"))
                T.copy(peak, before)
                T.reduce_max(s, peak, dim=1, clear=False)
                for i, j in T.Parallel(group, block):
                    s[i, j] = T.exp2((s[i, j] - peak[i]) * scale)
                T.reduce_sum(s, part, dim=1)
                for i in T.Parallel(group):
                    total[i] = total[i] * T.exp2((before[i] - peak[i]) * scale) + part[i]
                for i, j in T.Parallel(group, D):
                    out[i, j] = out[i, j] * T.exp2((before[i] - peak[i]) * scale)
                T.copy(s, p)
                T.copy(V[b, at : at + block, kv_head, :], v)
                T.gemm(p, v, out)
            for i, j in T.Parallel(group, D):
                partial[b, split, kv_head * group + i, j] = T.if_then_else(
                    total[i] > 0, out[i, j] / total[i], 0.0
                )
            for i in T.Parallel(group):
                weight[b, split, kv_head * group + i] = T.log2(total[i]) + peak[i] * scale

        with T.Kernel(heads, batch, threads=128) as (head, b):
            acc = T.alloc_fragment((D,), "float32")
            peak = T.alloc_var("float32", init=-T.infinity("float32"))
            total = T.alloc_var("float32", init=0.0)
            for n in T.serial(splits):
                peak = T.max(peak, weight[b, n, head])
            T.clear(acc)
            for n in T.serial(splits):
                share_of = T.exp2(weight[b, n, head] - peak)
                total = total + share_of
                for j in T.Parallel(D):
                    acc[j] += share_of * partial[b, n, head, j]
            for j in T.Parallel(D):
                O[b, head, j] = acc[j] / total

    return kernel


def reference(Q, K, V, lengths):
    """The same in NumPy, in float64."""
    out = np.zeros(Q.shape)
    group = Q.shape[1] // K.shape[2]
    for b, n in enumerate(lengths):
        for h in range(Q.shape[1]):
            s = K[b, :n, h // group].astype(np.float64) @ Q[b, h] / np.sqrt(Q.shape[2])
            p = np.exp(s - s.max())
            out[b, h] = p / p.sum() @ V[b, :n, h // group].astype(np.float64)
    return out


def problem(lengths, capacity, heads, kv_heads, D, seed=0):
    """Random Q, K and V, and the lengths."""
    random = np.random.default_rng(seed)
    shapes = (len(lengths), heads, D), *[(len(lengths), capacity, kv_heads, D)] * 2
    q, k, v = (random.normal(size=shape).astype(np.float16) for shape in shapes)
    return q, k, v, np.array(lengths, np.int32)


def main():
    """Two caches of different length, 8 heads on 2, in 4 splits."""
    args = problem((500, 129), 512, 8, 2, 64)
    O = flash_decoding(2, 8, 2, 64)(*args)
    np.testing.assert_allclose(O, reference(*args), atol=2e-3)
    print("flash_decoding: caches of 500 and 129, 8 heads on 2, 4 splits; within 2e-3")


if __name__ == "__main__":
    main()
