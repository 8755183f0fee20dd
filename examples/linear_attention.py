"""Linear attention in chunks: o_t = q_t S_t with S_t = decay S_(t-1) + k_t^T v_t.

Inside a chunk, products do the work of the recurrence; from chunk to chunk, the state S is carried
in registers. So the time is linear in the length, and nearly all of it is in products.
"""

import numpy as np

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[4, 5])
def linear_attention(heads, length, DK, DV, chunk=64):
    """A kernel for O (heads, length, DV) and the last state (heads, DK, DV).

    Q and K (heads, length, DK), V (heads, length, DV), `LogDecay` (heads), the logarithm to base 2.
    """

    @T.prim_func
    def kernel(
        Q: T.Tensor((heads, length, DK), "float16"),
        K: T.Tensor((heads, length, DK), "float16"),
        V: T.Tensor((heads, length, DV), "float16"),
        LogDecay: T.Tensor((heads,), "float32"),
        O: T.Tensor((heads, length, DV), "float16"),
        State: T.Tensor((heads, DK, DV), "float32"),
    ):
        with T.Kernel(heads, threads=128) as head:
            q = T.alloc_shared((chunk, DK), "float16")
            k = T.alloc_shared((chunk, DK), "float16")
            v = T.alloc_shared((chunk, DV), "float16")
            k_f = T.alloc_fragment((chunk, DK), "float32")
            k_scaled = T.alloc_shared((chunk, DK), "float32")
            q_scaled = T.alloc_shared((chunk, DK), "float32")
            v_f = T.alloc_shared((chunk, DV), "float32")
            s = T.alloc_fragment((chunk, chunk), "float32")
            p = T.alloc_shared((chunk, chunk), "float32")
            out = T.alloc_fragment((chunk, DV), "float32")
            state = T.alloc_fragment((DK, DV), "float32")
            state_s = T.alloc_shared((DK, DV), "float32")
            rate = LogDecay[head]
            T.clear(state)
            for step in T.serial(T.ceildiv(length, chunk)):
                at = step * chunk
                size = T.min(chunk, length - at)
                T.copy(Q[head, at : at + chunk, :], q)
                T.copy(K[head, at : at + chunk, :], k)
                T.copy(V[head, at : at + chunk, :], v)
                T.copy(v, v_f)
                # Within the chunk: row i sees column j <= i, faded by i - j steps.
                T.gemm(q, k, s, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(chunk, chunk):
                    p[i, j] = T.if_then_else(j <= i, s[i, j] * T.exp2(rate * (i - j)), 0.0)
                T.gemm(p, v_f, out, clear_accum=True)
                # From before the chunk: the state, faded by i + 1 steps.
                for i, j in T.Parallel(chunk, DK):
                    q_scaled[i, j] = T.cast(q[i, j], "float32") * T.exp2(rate * (i + 1))
                T.copy(state, state_s)
                T.gemm(q_scaled, state_s, out)
                T.copy(out, O[head, at : at + chunk, :])
                # The state after the chunk; rows past the end are 0 and add nothing.
                T.copy(k, k_f)
                for i, j in T.Parallel(chunk, DK):
                    k_scaled[i, j] = T.if_then_else(
                        i < size, k_f[i, j] * T.exp2(rate * (size - 1 - i)), 0.0
                    )
                for i, j in T.Parallel(DK, DV):
                    state[i, j] = state[i, j] * T.exp2(rate * size)
                T.gemm(k_scaled, v_f, state, transpose_A=True)
            T.copy(state, State[head, :, :])

    return kernel


def reference(Q, K, V, log_decay):
    """The recurrence itself in NumPy, in float64."""
    Q, K, V = (x.astype(np.float64) for x in (Q, K, V))
    out = np.zeros(V.shape)
    state = np.zeros((Q.shape[0], Q.shape[2], V.shape[2]))
    for t in range(Q.shape[1]):
        fade = 2.0 ** log_decay.astype(np.float64)[:, None, None]
        state = fade * state + K[:, t, :, None] * V[:, t, None, :]
        out[:, t] = np.einsum("hk,hkv->hv", Q[:, t], state)
    return out, state


def problem(heads, length, DK, DV, seed=0):
    """Random Q, K, V, and decays between 1/2 and nearly 1."""
    random = np.random.default_rng(seed)
    q, k, v = (random.normal(size=(heads, length, d)).astype(np.float16) / 4 for d in (DK, DK, DV))
    return q, k, v, -random.random(heads).astype(np.float32)


def main():
    """300 steps in chunks of 64."""
    args = problem(2, 300, 64, 48)
    O, state = linear_attention(2, 300, 64, 48)(*args)
    out, last = reference(*args)
    np.testing.assert_allclose(O, out, atol=5e-3)
    np.testing.assert_allclose(state, last, atol=5e-3)
    print("linear_attention: 300 steps in chunks of 64, output and state within 5e-3")


if __name__ == "__main__":
    main()
