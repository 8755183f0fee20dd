"""Attention, forward: softmax(Q K^T / sqrt(D)) V in one pass over K and V.

Full or causal, with fewer heads of K and V than of Q (GQA), with sequences of different lengths
laid end to end, and with attention sinks: one learned logit per head that takes part in the sum of
the softmax and brings no value. The log-sum-exp of each row is a second result, for the backward
pass.
"""

from itertools import pairwise

import numpy as np

import tilelang
import tilelang.language as T

LOG2_E = 1.4426950408889634


@T.macro
def online_softmax(scores, peak, total, scaling, part, scale):
    """Turn scores into exponentials against a running maximum; `scaling` is for what is summed so
    far.
    """
    rows, columns = scores.shape
    T.copy(peak, scaling)
    T.reduce_max(scores, peak, dim=1, clear=False)
    for i in T.Parallel(rows):
        # A row without any score so far keeps its sum of 0.
        scaling[i] = T.if_then_else(
            peak[i] == -T.infinity("float32"), 1.0, T.exp2((scaling[i] - peak[i]) * scale)
        )
    for i, j in T.Parallel(rows, columns):
        scores[i, j] = T.if_then_else(
            scores[i, j] == -T.infinity("float32"), 0.0, T.exp2((scores[i, j] - peak[i]) * scale)
        )
    T.reduce_sum(scores, part, dim=1)
    for i in T.Parallel(rows):
        total[i] = total[i] * scaling[i] + part[i]


@tilelang.jit(out_idx=[5, 6])
def attention(heads, kv_heads, D, causal=False, sinks=False, tiles=(64, 64), num_stages=2):
    """A kernel for sequences laid end to end: Q (tokens, heads, D), K and V (tokens, kv_heads, D).

    `Starts` (batch + 1) has the first token of each sequence, and the end. `Sink` (heads) is read
    with `sinks` only. Results: O like Q, and the log-sum-exp (tokens, heads), natural logarithm.
    """
    BM, BN = tiles
    scale = D**-0.5 * LOG2_E
    tokens, batch_1 = T.dynamic("tokens, batch_1")

    @T.prim_func
    def kernel(
        Q: T.Tensor((tokens, heads, D), "float16"),
        K: T.Tensor((tokens, kv_heads, D), "float16"),
        V: T.Tensor((tokens, kv_heads, D), "float16"),
        Starts: T.Tensor((batch_1,), "int32"),
        Sink: T.Tensor((heads,), "float32"),
        O: T.Tensor((tokens, heads, D), "float16"),
        LSE: T.Tensor((tokens, heads), "float32"),
    ):
        with T.Kernel(T.ceildiv(tokens, BM), heads, batch_1 - 1, threads=128) as (block, head, seq):
            first, length = Starts[seq], Starts[seq + 1] - Starts[seq]
            kv_head = head // (heads // kv_heads)
            if block * BM < length:
                q = T.alloc_shared((BM, D), "float16")
                k = T.alloc_shared((BN, D), "float16")
                v = T.alloc_shared((BN, D), "float16")
                p = T.alloc_fragment((BM, BN), "float16")
                scores = T.alloc_fragment((BM, BN), "float32")
                out = T.alloc_fragment((BM, D), "float32")
                peak, total, scaling, part = (T.alloc_fragment((BM,), "float32") for _ in range(4))
                T.copy(Q[first + block * BM : first + (block + 1) * BM, head, :], q)
                T.clear(out)
                T.clear(total)
                T.fill(peak, -T.infinity("float32"))
                last = T.min(length, (block + 1) * BM) if causal else length
                for step in T.Pipelined(T.ceildiv(last, BN), num_stages=num_stages):
                    T.copy(K[first + step * BN : first + (step + 1) * BN, kv_head, :], k)
                    T.gemm(q, k, scores, transpose_B=True, clear_accum=True)
                    for i, j in T.Parallel(BM, BN):
                        row, column = block * BM + i, step * BN + j
                        seen = column <= row if causal else column >= 0
                        scores[i, j] = T.if_then_else(
                            seen and column < length, scores[i, j], -T.infinity("float32")
                        )
                    online_softmax(scores, peak, total, scaling, part, scale)
                    for i, j in T.Parallel(BM, D):
                        out[i, j] = out[i, j] * scaling[i]
                    T.copy(scores, p)
                    T.copy(V[first + step * BN : first + (step + 1) * BN, kv_head, :], v)
                    # The rows of V past the end belong to the next sequence; their weight is 0.
                    for i, j in T.Parallel(BN, D):
                        if step * BN + i >= length:
                            v[i, j] = 0
                    T.gemm(p, v, out)
                if sinks:
                    for i in T.Parallel(BM):
                        total[i] += T.exp2((Sink[head] * D**0.5 - peak[i]) * scale)
                for i, j in T.Parallel(BM, D):
                    if block * BM + i < length:
                        O[first + block * BM + i, head, j] = out[i, j] / total[i]
                for i in T.Parallel(BM):
                    if block * BM + i < length:
                        LSE[first + block * BM + i, head] = T.log(total[i]) + peak[i] * D**-0.5

    return kernel


def reference(Q, K, V, starts, causal=False, sink=None):
    """The same in NumPy, in float64, one sequence and head after the other."""
    Q, K, V = (x.astype(np.float64) for x in (Q, K, V))
    out, lse = np.zeros_like(Q), np.zeros(Q.shape[:2])
    group = Q.shape[1] // K.shape[1]
    for first, end in pairwise(starts):
        for head in range(Q.shape[1]):
            s = Q[first:end, head] @ K[first:end, head // group].T / np.sqrt(Q.shape[2])
            if causal:
                s[np.triu_indices(len(s), 1)] = -np.inf
            more = s if sink is None else np.c_[s, np.full(len(s), float(sink[head]))]
            peak = more.max(axis=1, keepdims=True, initial=-np.inf)
            total = np.exp(more - peak).sum(axis=1, keepdims=True)
            out[first:end, head] = np.exp(s - peak) / total @ V[first:end, head // group]
            lse[first:end, head] = (np.log(total) + peak)[:, 0]
    return out, lse


def problem(lengths, heads, kv_heads, D, seed=0):
    """Random Q, K, V, starts and sinks for sequences of these lengths."""
    random = np.random.default_rng(seed)
    tokens = sum(lengths)
    q, k, v = (
        random.normal(size=(tokens, h, D)).astype(np.float16) for h in (heads, kv_heads, kv_heads)
    )
    starts = np.cumsum([0, *lengths]).astype(np.int32)
    return q, k, v, starts, random.normal(size=heads).astype(np.float32)


def main():
    """Two sequences, causal, 4 heads on 2 of K and V, with sinks."""
    args = problem((100, 37), 4, 2, 64)
    O, LSE = attention(4, 2, 64, causal=True, sinks=True)(*args)
    out, lse = reference(*args[:4], causal=True, sink=args[4])
    np.testing.assert_allclose(O, out, atol=5e-3)
    np.testing.assert_allclose(LSE, lse, atol=5e-3)
    print("attention_forward: causal, 4 heads on 2, lengths 100 and 37, with sinks; within 5e-3")


if __name__ == "__main__":
    main()
