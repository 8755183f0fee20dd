"""Attention of one head in the mainline Ascend dialect: ordered by the automatic schedule, and by
flags of the author's.
"""

import tilelang.ascend.language as T


def attention(S, L, D, bn):
    """Flash attention of one head: scores on the cube core, the running softmax on the vector
    cores, and the order of all of it by the automatic schedule.
    """
    half = S // 2
    scale = D**-0.5

    @T.prim_func
    def kernel(
        Q: T.Tensor((S, D), "float16"),
        K: T.Tensor((L, D), "float16"),
        V: T.Tensor((D, L), "float16"),
        O: T.Tensor((S, D), "float32"),
    ):
        with T.Kernel(1):
            q = T.alloc_l1((S, D), "float16")
            k = T.alloc_l1((bn, D), "float16")
            v = T.alloc_l1((D, bn), "float16")
            p = T.alloc_l1((S, bn), "float16")
            scores = T.alloc_l0c((S, bn), "float32")
            part = T.alloc_l0c((S, D), "float32")
            x = T.alloc_shared((half, bn), "float32")
            e = T.alloc_shared((half, bn), "float16")
            y = T.alloc_shared((half, D), "float32")
            o = T.alloc_shared((half, D), "float32")
            top = T.alloc_shared((half,), "float32")
            total = T.alloc_shared((half,), "float32")
            kept = T.alloc_shared((half,), "float32")
            T.copy(Q, q)
            with T.SimtVF(threads=64):
                for i, j in T.Parallel(half, D):
                    o[i, j] = 0.0
                for i in T.Parallel(half):
                    top[i] = -1e30
                    total[i] = 0.0
            for n in T.serial(L // bn):
                T.copy(K[n * bn, 0], k)
                T.gemm(q, k, scores, transpose_B=True, clear_accum=True)
                T.dual_copy(scores, x)
                with T.SimtVF(threads=64):
                    f = T.alloc_fragment((half, bn), "float32")
                    m = T.alloc_fragment((half,), "float32")
                    t = T.alloc_fragment((half,), "float32")
                    for i, j in T.Parallel(half, bn):
                        f[i, j] = x[i, j] * scale
                    T.reduce_max(f, m, dim=1)
                    for i in T.Parallel(half):
                        m[i] = T.max(m[i], top[i])
                    for i, j in T.Parallel(half, bn):
                        f[i, j] = T.exp(f[i, j] - m[i])
                    T.reduce_sum(f, t, dim=1)
                    for i in T.Parallel(half):
                        kept[i] = T.exp(top[i] - m[i])
                        total[i] = total[i] * kept[i] + t[i]
                        top[i] = m[i]
                    T.copy(f, e)
                T.dual_copy(e, p)
                T.copy(V[0, n * bn], v)
                T.gemm(p, v, part, transpose_B=True, clear_accum=True)
                T.dual_copy(part, y)
                with T.SimtVF(threads=64):
                    for i, j in T.Parallel(half, D):
                        o[i, j] = o[i, j] * kept[i] + y[i, j]
            with T.SimtVF(threads=64):
                for i, j in T.Parallel(half, D):
                    o[i, j] = o[i, j] / total[i]
            T.dual_copy(o, O)

    return kernel


def attention_by_hand(S, L, D, bn):
    """As `attention`, with a program for each kind of core and all order by hand.

    Across cores: 0 scores are in UB, 1 weights are in L1, 2 a part of the output is in UB; 3, 4 and
    5 give back the scores' and the part's places in UB, and the weights' in L1.
    """
    half, rounds = S // 2, L // bn
    scale = D**-0.5

    @T.prim_func
    def kernel(
        Q: T.Tensor((S, D), "float16"),
        K: T.Tensor((L, D), "float16"),
        V: T.Tensor((D, L), "float16"),
        O: T.Tensor((S, D), "float32"),
    ):
        with T.MixedKernel(1):
            q = T.alloc_l1((S, D), "float16")
            k = T.alloc_l1((bn, D), "float16")
            v = T.alloc_l1((D, bn), "float16")
            p = T.alloc_l1((S, bn), "float16")
            scores = T.alloc_l0c((S, bn), "float32")
            part = T.alloc_l0c((S, D), "float32")
            x = T.alloc_shared((half, bn), "float32")
            e = T.alloc_shared((half, bn), "float16")
            y = T.alloc_shared((half, D), "float32")
            o = T.alloc_shared((half, D), "float32")
            top = T.alloc_shared((half,), "float32")
            total = T.alloc_shared((half,), "float32")
            kept = T.alloc_shared((half,), "float32")
            with T.Cube():
                T.copy(Q, q)
                for n in T.serial(rounds):
                    if n > 0:  # K and V of the last round have been loaded into L0
                        T.ascend_wait_flag("MTE1_MTE2", 2)
                    T.copy(K[n * bn, 0], k)
                    T.copy(V[0, n * bn], v)
                    T.ascend_set_flag("MTE2_MTE1", 2)
                    T.ascend_wait_flag("MTE2_MTE1", 2)
                    if n > 0:
                        T.ascend_wait_flag("FIX_M", 2)
                    T.gemm(q, k, scores, transpose_B=True, clear_accum=True)
                    T.ascend_set_flag("M_FIX", 2)
                    T.ascend_wait_flag("M_FIX", 2)
                    if n > 0:
                        T.ascend_cross_core_wait_flag(2, "PIPE_FIX", 3)
                    T.dual_copy(scores, x)
                    T.ascend_cross_core_set_flag(2, "PIPE_FIX", 0)
                    T.ascend_cross_core_wait_flag(2, "PIPE_MTE1", 1)
                    T.gemm(p, v, part, transpose_B=True, clear_accum=True)
                    T.ascend_set_flag("M_FIX", 3)
                    T.ascend_wait_flag("M_FIX", 3)
                    if n > 0:
                        T.ascend_cross_core_wait_flag(2, "PIPE_FIX", 4)
                    T.dual_copy(part, y)
                    T.ascend_cross_core_set_flag(2, "PIPE_FIX", 2)
                    if n < rounds - 1:
                        T.ascend_set_flag("MTE1_MTE2", 2)
                        T.ascend_set_flag("FIX_M", 2)
                        T.ascend_cross_core_set_flag(2, "PIPE_MTE1", 5)
            with T.Vector():
                with T.SimtVF(threads=64):
                    for i, j in T.Parallel(half, D):
                        o[i, j] = 0.0
                    for i in T.Parallel(half):
                        top[i] = -1e30
                        total[i] = 0.0
                for n in T.serial(rounds):
                    T.ascend_cross_core_wait_flag(2, "PIPE_V", 0)
                    if n > 0:
                        T.ascend_wait_flag("MTE3_V", 2)
                    with T.SimtVF(threads=64):
                        f = T.alloc_fragment((half, bn), "float32")
                        m = T.alloc_fragment((half,), "float32")
                        t = T.alloc_fragment((half,), "float32")
                        for i, j in T.Parallel(half, bn):
                            f[i, j] = x[i, j] * scale
                        T.reduce_max(f, m, dim=1)
                        for i in T.Parallel(half):
                            m[i] = T.max(m[i], top[i])
                        for i, j in T.Parallel(half, bn):
                            f[i, j] = T.exp(f[i, j] - m[i])
                        T.reduce_sum(f, t, dim=1)
                        for i in T.Parallel(half):
                            kept[i] = T.exp(top[i] - m[i])
                            total[i] = total[i] * kept[i] + t[i]
                            top[i] = m[i]
                        T.copy(f, e)
                    T.ascend_set_flag("V_MTE3", 2)
                    T.ascend_wait_flag("V_MTE3", 2)
                    if n > 0:
                        T.ascend_cross_core_wait_flag(2, "PIPE_MTE3", 5)
                    T.dual_copy(e, p)
                    T.ascend_cross_core_set_flag(2, "PIPE_MTE3", 1)
                    T.ascend_cross_core_wait_flag(2, "PIPE_V", 2)
                    with T.SimtVF(threads=64):
                        for i, j in T.Parallel(half, D):
                            o[i, j] = o[i, j] * kept[i] + y[i, j]
                    if n < rounds - 1:
                        T.ascend_set_flag("MTE3_V", 2)
                        T.ascend_cross_core_set_flag(2, "PIPE_V", 3)
                        T.ascend_cross_core_set_flag(2, "PIPE_V", 4)
                with T.SimtVF(threads=64):
                    for i, j in T.Parallel(half, D):
                        o[i, j] = o[i, j] / total[i]
                T.ascend_set_flag("V_MTE3", 3)
                T.ascend_wait_flag("V_MTE3", 3)
                T.dual_copy(o, O)

    return kernel
