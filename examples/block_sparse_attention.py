"""Attention that skips blocks: a table says which block of keys each block of queries looks at.

Skipping is control flow of the kernel: a block whose table says no is neither loaded nor
multiplied.
"""

import numpy as np

import tilelang
import tilelang.language as T

LOG2_E = 1.4426950408889634


@tilelang.jit(out_idx=-1)
def block_sparse_attention(heads, S, D, block=64):
    """A kernel for O (heads, S, D); `Mask` (heads, blocks, blocks) is true where a block counts.

    A row that sees no block at all gives 0.
    """
    blocks = -(-S // block)
    scale = D**-0.5 * LOG2_E

    @T.prim_func
    def kernel(
        Q: T.Tensor((heads, S, D), "float16"),
        K: T.Tensor((heads, S, D), "float16"),
        V: T.Tensor((heads, S, D), "float16"),
        Mask: T.Tensor((heads, blocks, blocks), "bool"),
        O: T.Tensor((heads, S, D), "float16"),
    ):
        with T.Kernel(blocks, heads, threads=128) as (row, head):
            q = T.alloc_shared((block, D), "float16")
            k = T.alloc_shared((block, D), "float16")
            v = T.alloc_shared((block, D), "float16")
            p = T.alloc_fragment((block, block), "float16")
            s = T.alloc_fragment((block, block), "float32")
            out = T.alloc_fragment((block, D), "float32")
            peak, before, part, total = (T.alloc_fragment((block,), "float32") for _ in range(4))
            T.copy(Q[head, row * block : (row + 1) * block, :], q)
            T.clear(out)
            T.clear(total)
            T.fill(peak, -T.infinity("float32"))
            for column in T.serial(blocks):
                if Mask[head, row, column]:
                    T.copy(K[head, column * block : (column + 1) * block, :], k)
                    T.gemm(q, k, s, transpose_B=True, clear_accum=True)
                    for i, j in T.Parallel(block, block):
                        s[i, j] = T.if_then_else(
                            column * block + j < S, s[i, j], -T.infinity("float32")
                        )
                    T.copy(peak, before)
                    T.reduce_max(s, peak, dim=1, clear=False)
                    for i, j in T.Parallel(block, block):
                        s[i, j] = T.exp2((s[i, j] - peak[i]) * scale)
                    T.reduce_sum(s, part, dim=1)
                    for i in T.Parallel(block):
                        total[i] = total[i] * T.exp2((before[i] - peak[i]) * scale) + part[i]
                    for i, j in T.Parallel(block, D):
                        out[i, j] = out[i, j] * T.exp2((before[i] - peak[i]) * scale)
                    T.copy(s, p)
                    T.copy(V[head, column * block : (column + 1) * block, :], v)
                    T.gemm(p, v, out)
            for i, j in T.Parallel(block, D):
                out[i, j] = T.if_then_else(total[i] > 0, out[i, j] / total[i], 0.0)
            T.copy(out, O[head, row * block : (row + 1) * block, :])

    return kernel


def reference(Q, K, V, mask, block=64):
    """The same in NumPy, in float64."""
    S, D = Q.shape[1:]
    seen = np.repeat(np.repeat(mask, block, axis=1), block, axis=2)[:, :S, :S]
    s = np.einsum("hid,hjd->hij", Q.astype(np.float64), K.astype(np.float64)) / np.sqrt(D)
    s = np.where(seen, s, -np.inf)
    with np.errstate(invalid="ignore"):
        p = np.exp(s - s.max(axis=2, keepdims=True))
        p = np.nan_to_num(p / p.sum(axis=2, keepdims=True))
    return np.einsum("hij,hjd->hid", p, V.astype(np.float64))


def problem(heads, S, D, block=64, seed=0):
    """Random Q, K, V and table; the last block of queries of the first head sees nothing."""
    random = np.random.default_rng(seed)
    q, k, v = (random.normal(size=(heads, S, D)).astype(np.float16) for _ in range(3))
    blocks = -(-S // block)
    mask = random.random((heads, blocks, blocks)) < 0.5
    mask[0, -1] = False
    return q, k, v, mask


def main():
    """Half of the blocks of 300 keys."""
    args = problem(2, 300, 64)
    O = block_sparse_attention(2, 300, 64)(*args)
    np.testing.assert_allclose(O, reference(*args), atol=5e-3)
    print(f"block_sparse_attention: {args[3].sum()} of {args[3].size} blocks, within 5e-3")


if __name__ == "__main__":
    main()
