"""Programs in the dialect of the Ascend adapter that leave flags, addresses and cores to the
compiler, and one that does all by hand.

Each function gives a kernel; `Program` has how it is compiled, its arguments, and the answer in
NumPy. Outputs are allocated by the call.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tilelang.language as T

AUTO = {
    f"tl.ascend_{name}": True
    for name in ("auto_sync", "memory_planning", "auto_cv_combine", "auto_cross_core_sync")
}


@dataclass(frozen=True)
class Program:
    """A kernel, the arguments of a call, and what it gives."""

    name: str
    kernel: Any
    inputs: Callable[[np.random.Generator], list[Any]]
    answer: Callable[..., Any]
    tolerance: float = 1e-5
    settings: dict[str, Any] = field(default_factory=dict)

    def arguments(self, seed: int = 0) -> list[Any]:
        """The inputs of a call."""
        return self.inputs(np.random.default_rng(seed))


def floats(*shapes, dtype=np.float32):
    """Random arrays of these shapes."""
    return lambda rng: [rng.standard_normal(s).astype(dtype) for s in shapes]


# ---- Vector cores --------------------------------------------------------------------------------


def softmax(M, N, width, rows=8):
    """Rows of N elements in tiles of `width`, the rest padded with the least number."""

    @T.prim_func
    def kernel(A: T.Tensor((M, N), "float32"), B: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(M, 2 * rows), is_npu=True) as (cid, vid):
            row = cid * 2 * rows + vid * rows
            x = T.alloc_ub((rows, width), "float32")
            most = T.alloc_ub((rows,), "float32")
            total = T.alloc_ub((rows,), "float32")
            T.copy(A[row, 0], x, pad_value=-T.infinity("float32"))
            T.reduce_max(x, most, dim=-1)
            for i, j in T.Parallel(rows, width):
                x[i, j] = T.exp(x[i, j] - most[i])
            T.reduce_sum(x, total, dim=-1, real_shape=[rows, N])
            for i, j in T.Parallel(rows, width):
                x[i, j] = x[i, j] / total[i]
            T.copy(x, B[row, 0])

    return kernel


def rms_norm(M, N, rows=8, eps=1e-5):
    """Rows by the root of their mean square, times a weight for each column."""

    @T.prim_func
    def kernel(
        A: T.Tensor((M, N), "float32"), W: T.Tensor((N,), "float32"), B: T.Tensor((M, N), "float32")
    ):
        with T.Kernel(T.ceildiv(M, 2 * rows), is_npu=True) as (cid, vid):
            row = cid * 2 * rows + vid * rows
            x = T.alloc_ub((rows, N), "float32")
            square = T.alloc_ub((rows, N), "float32")
            weight = T.alloc_ub((N,), "float32")
            scale = T.alloc_ub((rows, 1), "float32")
            T.copy(A[row, 0], x)
            T.copy(W, weight)
            T.tile.mul(square, x, x)
            T.reduce_sum(square, scale, dim=-1)
            T.tile.mul(scale, scale, 1.0 / N)
            T.tile.add(scale, scale, eps)
            T.tile.rsqrt(scale, scale)
            T.tile.broadcast(square, scale)
            T.tile.mul(x, x, square)
            for i, j in T.Parallel(rows, N):
                x[i, j] = x[i, j] * weight[j]
            T.copy(x, B[row, 0])

    return kernel


def layer_norm(M, N, rows=8, eps=1e-5):
    """Rows less their mean, by their deviation; one row after the other by its scalars."""

    @T.prim_func
    def kernel(A: T.Tensor((M, N), "float32"), B: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(M, 2 * rows), is_npu=True) as (cid, vid):
            row = cid * 2 * rows + vid * rows
            x = T.alloc_ub((rows, N), "float32")
            square = T.alloc_ub((rows, N), "float32")
            mean = T.alloc_ub((rows,), "float32")
            spread = T.alloc_ub((rows,), "float32")
            T.copy(A[row, 0], x)
            T.reduce_sum(x, mean, dim=-1)
            T.tile.mul(mean, mean, 1.0 / N)
            for i in T.serial(rows):
                T.tile.sub(x[i, :], x[i, :], mean[i])
            T.tile.mul(square, x, x)
            T.reduce_sum(square, spread, dim=-1)
            for i in T.Parallel(rows):
                spread[i] = T.sqrt(spread[i] / N + eps)
            for i in T.serial(rows):
                T.tile.div(x[i, :], x[i, :], spread[i])
            T.copy(x, B[row, 0])

    return kernel


def reductions(rows, width, real):
    """The largest, the least and the sum of the logical part of a padded tile, by rows and columns;
    the sum goes on from what was there.
    """

    @T.prim_func
    def kernel(
        A: T.Tensor((rows, width), "float32"),
        most: T.Tensor((width,), "float32"),
        least: T.Tensor((width,), "float32"),
        total: T.Tensor((rows,), "float32"),
    ):
        with T.Kernel(1, is_npu=True) as (_, vid):
            x = T.alloc_ub((rows, width), "float32")
            a = T.alloc_ub((width,), "float32")
            b = T.alloc_ub((width,), "float32")
            c = T.alloc_ub((rows,), "float32")
            if vid == 0:
                T.tile.fill(a, -1.0)
                T.tile.fill(b, -1.0)
                T.tile.fill(c, 3.0)
                T.copy(A, x)
                T.reduce_max(x, a, dim=-1, real_shape=real)
                T.reduce_min(x, b, dim=0, real_shape=[real[0], width])
                T.reduce_sum(x, c, dim=-1, clear=False, real_shape=[0, real[1]])
                T.copy(a, most)
                T.copy(b, least)
                T.copy(c, total)

    return kernel


def _reductions_answer(real):
    def answer(x):
        rows, columns = real
        most = np.full(x.shape[1], -1, np.float32)
        most[:rows] = x[:rows, :columns].max(1)
        return [most, x[:rows].min(0), 3 + x[:, :columns].sum(1)]

    return answer


def rope(M, D):
    """Pairs of neighbours turned by an angle for each column: the partner is gathered."""

    @T.prim_func
    def kernel(
        X: T.Tensor((M, D), "float32"),
        C: T.Tensor((M, D), "float32"),
        S: T.Tensor((M, D), "float32"),
        Y: T.Tensor((M, D), "float32"),
    ):
        with T.Kernel(M // 2, is_npu=True) as (cid, vid):
            row = cid * 2 + vid
            x = T.alloc_ub((1, D), "float32")
            turned = T.alloc_ub((1, D), "float32")
            cos = T.alloc_ub((1, D), "float32")
            sin = T.alloc_ub((1, D), "float32")
            index = T.alloc_ub((1, D), "int32")
            one = T.alloc_ub((1, D), "int32")
            offset = T.alloc_ub((1, D), "uint32")
            T.copy(X[row, 0], x)
            T.copy(C[row, 0], cos)
            T.copy(S[row, 0], sin)
            T.tile.createvecindex(index, 0)
            T.tile.fill(one, 1)
            T.tile.bitwise_xor(index, index, one)
            T.tile.mul(index, index, 4)
            T.reinterpretcast(offset, index, "uint32_t")
            T.tile.gather(turned, x, offset, 0)
            T.tile.mul(x, x, cos)
            T.tile.mul_add_dst(x, turned, sin)
            T.copy(x, Y[row, 0])

    return kernel


def _rope_inputs(M, D):
    def inputs(rng):
        angle = rng.standard_normal((M, D // 2)).repeat(2, axis=1)
        sign = np.where(np.arange(D) % 2 == 0, -1, 1)
        x = rng.standard_normal((M, D))
        return [a.astype(np.float32) for a in (x, np.cos(angle), np.sin(angle) * sign)]

    return inputs


def _rope_answer(x, cos, sin):
    partner = x.reshape(x.shape[0], -1, 2)[:, :, ::-1].reshape(x.shape)
    return x * cos + partner * sin


# ---- Cube cores ----------------------------------------------------------------------------------


def gemm_persistent(M, N, K, tile, groups, dtype="float16"):
    """Tiles of the product dealt out to a few groups; the last ones are cut."""
    bm, bn, bk = tile

    @T.prim_func
    def kernel(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(groups, is_npu=True) as (cid, _):
            a = T.alloc_shared((bm, bk), dtype)
            b = T.alloc_shared((bk, bn), dtype)
            c = T.alloc_fragment((bm, bn), "float32")
            for x, y in T.Persistent([T.ceildiv(M, bm), T.ceildiv(N, bn)], groups, cid):
                for k in T.Pipelined(T.ceildiv(K, bk), num_stages=2):
                    T.copy(A[x * bm, k * bk], a)
                    T.copy(B[k * bk, y * bn], b)
                    T.gemm_v0(a, b, c, init=(k == 0))
                T.copy(c, C[x * bm, y * bn])

    return kernel


def gemm_split_k(M, N, K, parts, dtype="float16"):
    """Each group multiplies a part of K and adds its product to the result."""
    step = K // parts

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), "float")
    ):
        with T.Kernel(parts, is_npu=True) as (cid, _):
            a = T.alloc_shared((M, step), dtype)
            b = T.alloc_shared((step, N), dtype)
            c = T.alloc_fragment((M, N), "float32")
            T.copy(A[0, cid * step], a)
            T.copy(B[cid * step, 0], b)
            T.gemm_v0(a, b, c, init=True)
            T.tile.atomic_add(C, c)

    return kernel


# ---- Cube and vector cores -----------------------------------------------------------------------


def gemm_relu(M, N, K, tile, threads, dtype="float16"):
    """A product that never leaves the chip before its negative values are zero; the rows of a tile
    are split over `threads` vector cores.
    """
    bm, bn, bk = tile

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), "float")
    ):
        with T.Kernel(M // bm * (N // bn), threads=threads, is_npu=True) as (cid):
            x, y = cid // (N // bn), cid % (N // bn)
            a = T.alloc_shared((bm, bk), dtype)
            b = T.alloc_shared((bk, bn), dtype)
            c = T.alloc_fragment((bm, bn), "float32")
            d = T.alloc_shared((bm, bn), "float32")
            for k in T.serial(T.ceildiv(K, bk)):
                T.copy(A[x * bm, k * bk], a)
                T.copy(B[k * bk, y * bn], b)
                T.gemm_v0(a, b, c, init=(k == 0))
            T.copy(c, d)
            for i, j in T.Parallel(bm, bn):
                d[i, j] = T.max(d[i, j], 0.0)
            T.copy(d, C[x * bm, y * bn])

    return kernel


def gemm_int8(M, N, K, tile):
    """int8 times int8 in int32, by a scale for each column in float32."""
    bm, bn, bk = tile
    half = bm // 2

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "int8"),
        B: T.Tensor((K, N), "int8"),
        scale: T.Tensor((N,), "float32"),
        C: T.Tensor((M, N), "float32"),
        W: T.Tensor((M // bm * (N // bn), bm, bn), "int32"),
    ):
        with T.Kernel(M // bm * (N // bn), is_npu=True) as (cid, vid):
            x, y = cid // (N // bn), cid % (N // bn)
            a = T.alloc_L1((bm, bk), "int8")
            b = T.alloc_L1((bk, bn), "int8")
            c = T.alloc_L0C((bm, bn), "int32")
            whole = T.alloc_ub((half, bn), "int32")
            part = T.alloc_ub((half, bn), "float32")
            by = T.alloc_ub((bn,), "float32")
            for k in T.serial(T.ceildiv(K, bk)):
                T.copy(A[x * bm, k * bk], a)
                T.copy(B[k * bk, y * bn], b)
                T.gemm_v0(a, b, c, init=(k == 0))
            T.copy(c, W[cid, :, :])
            T.copy(W[cid, vid * half : vid * half + half, :], whole)
            T.copy(scale[y * bn], by)
            T.tile.cast(part, whole, "CAST_RINT", half * bn)
            for i, j in T.Parallel(half, bn):
                part[i, j] = part[i, j] * by[j]
            T.copy(part, C[x * bm + vid * half, y * bn])

    return kernel


def _int8_inputs(M, N, K):
    def inputs(rng):
        a, b = (rng.integers(-128, 128, s).astype(np.int8) for s in ((M, K), (K, N)))
        return [a, b, rng.standard_normal(N).astype(np.float32)]

    return inputs


def attention(S, H, D, rows, columns, stages):  # noqa: PLR0915 - one kernel
    """Flash attention in the developer's mode: nothing but tiles and what is done to them."""
    shape = (H, S, D)

    @T.prim_func
    def kernel(
        Q: T.Tensor(shape, "float16"),
        K: T.Tensor(shape, "float16"),
        V: T.Tensor(shape, "float16"),
        Out: T.Tensor(shape, "float16"),
    ):
        with T.Kernel(S // rows * H, threads=2, is_npu=True) as (cid):
            x, h = cid % (S // rows) * rows, cid // (S // rows)
            q = T.alloc_shared((rows, D), "float16")
            k = T.alloc_shared((columns, D), "float16")
            v = T.alloc_shared((columns, D), "float16")
            p = T.alloc_shared((rows, columns), "float16")
            score = T.alloc_fragment((rows, columns), "float32")
            product = T.alloc_fragment((rows, D), "float32")
            s = T.alloc_shared((rows, columns), "float32")
            half = T.alloc_shared((rows, columns), "float16")
            most = T.alloc_shared((rows,), "float32")
            before = T.alloc_shared((rows,), "float32")
            total = T.alloc_shared((rows,), "float32")
            part = T.alloc_shared((rows,), "float32")
            acc = T.alloc_shared((rows, D), "float32")
            new = T.alloc_shared((rows, D), "float32")
            out = T.alloc_shared((rows, D), "float16")
            T.tile.fill(acc, 0.0)
            T.tile.fill(total, 0.0)
            T.tile.fill(most, -(2.0**30))
            T.copy(Q[h, x : x + rows, :], q)
            for step in T.Pipelined(T.ceildiv(S, columns), num_stages=stages):
                T.copy(K[h, step * columns : (step + 1) * columns, :], k)
                T.gemm_v0(q, k, score, transpose_B=True, init=True)
                T.copy(score, s)
                T.copy(most, before)
                T.tile.mul(s, s, D**-0.5)
                T.reduce_max(s, most, dim=-1)
                T.tile.max(most, most, before)
                T.tile.sub(before, before, most)
                T.tile.exp(before, before)
                for i, j in T.Parallel(rows, columns):
                    s[i, j] = T.exp(s[i, j] - most[i])
                T.reduce_sum(s, part, dim=-1)
                T.tile.mul(total, total, before)
                T.tile.add(total, total, part)
                T.copy(s, half)
                T.copy(half, p)
                T.copy(V[h, step * columns : (step + 1) * columns, :], v)
                T.gemm_v0(p, v, product, init=True)
                T.copy(product, new)
                for i in T.serial(rows):
                    T.tile.mul(acc[i, :], acc[i, :], before[i])
                T.tile.add(acc, acc, new)
            for i, j in T.Parallel(rows, D):
                acc[i, j] = acc[i, j] / total[i]
            T.copy(acc, out)
            T.copy(out, Out[h, x : x + rows, :])

    return kernel


def attention_expert(S, D, rows, columns):  # noqa: PLR0915 - one kernel
    """Flash attention with cores, flags, addresses and workspaces by hand."""
    groups, half, steps = S // rows, rows // 2, S // columns

    @T.prim_func
    def kernel(  # noqa: PLR0915 - every flag is written out
        Q: T.Tensor((S, D), "float16"),
        K: T.Tensor((S, D), "float16"),
        V: T.Tensor((S, D), "float16"),
        Out: T.Tensor((S, D), "float16"),
        scores: T.Tensor((groups, rows, columns), "float32"),
        weights: T.Tensor((groups, rows, columns), "float16"),
        products: T.Tensor((groups, rows, D), "float32"),
    ):
        with T.Kernel(groups, is_npu=True) as (cid, vid):
            q = T.alloc_L1((rows, D), "float16")
            k = T.alloc_L1((columns, D), "float16")
            v = T.alloc_L1((columns, D), "float16")
            p = T.alloc_L1((rows, columns), "float16")
            score = T.alloc_L0C((rows, columns), "float32")
            product = T.alloc_L0C((rows, D), "float32")
            s = T.alloc_ub((half, columns), "float32")
            w = T.alloc_ub((half, columns), "float16")
            most = T.alloc_ub((half,), "float32")
            before = T.alloc_ub((half,), "float32")
            total = T.alloc_ub((half,), "float32")
            part = T.alloc_ub((half,), "float32")
            acc = T.alloc_ub((half, D), "float32")
            new = T.alloc_ub((half, D), "float32")
            out = T.alloc_ub((half, D), "float16")
            mine = vid * half
            with T.Scope("C"):
                T.copy(Q[cid * rows : (cid + 1) * rows, :], q)
                T.set_flag("mte1", "mte2", 0)
                T.set_flag("mte1", "mte2", 1)
                for i in T.serial(steps):
                    T.wait_flag("mte1", "mte2", 0)
                    T.copy(K[i * columns : (i + 1) * columns, :], k)
                    T.set_flag("mte2", "mte1", 0)
                    T.wait_flag("mte2", "mte1", 0)
                    T.gemm_v0(q, k, score, transpose_B=True, init=True)
                    T.set_flag("mte1", "mte2", 0)
                    T.set_flag("m", "fix", 0)
                    T.wait_flag("m", "fix", 0)
                    T.copy(score, scores[cid, :, :])
                    T.set_cross_flag("FIX", 0)
                    T.wait_cross_flag(1)
                    T.wait_flag("mte1", "mte2", 1)
                    T.copy(weights[cid, :, :], p)
                    T.copy(V[i * columns : (i + 1) * columns, :], v)
                    T.set_flag("mte2", "mte1", 1)
                    T.wait_flag("mte2", "mte1", 1)
                    T.gemm_v0(p, v, product, init=True)
                    T.set_flag("mte1", "mte2", 1)
                    T.set_flag("m", "fix", 1)
                    T.wait_flag("m", "fix", 1)
                    T.copy(product, products[cid, :, :])
                    T.set_cross_flag("FIX", 2)
                    T.wait_cross_flag(3)
                T.wait_flag("mte1", "mte2", 0)
                T.wait_flag("mte1", "mte2", 1)
            with T.Scope("V"):
                T.tile.fill(acc, 0.0)
                T.tile.fill(total, 0.0)
                T.tile.fill(most, -(2.0**30))
                for _ in T.serial(steps):
                    T.wait_cross_flag(0)
                    T.copy(scores[cid, mine : mine + half, :], s)
                    T.barrier_all()
                    T.copy(most, before)
                    T.tile.mul(s, s, D**-0.5)
                    T.reduce_max(s, most, dim=-1)
                    T.tile.max(most, most, before)
                    T.tile.sub(before, before, most)
                    T.tile.exp(before, before)
                    T.barrier_all()
                    for r in T.serial(half):
                        T.tile.sub(s[r, :], s[r, :], most[r])
                    T.tile.exp(s, s)
                    T.reduce_sum(s, part, dim=-1)
                    T.tile.mul(total, total, before)
                    T.tile.add(total, total, part)
                    T.copy(s, w)
                    T.barrier_all()
                    T.copy(w, weights[cid, mine : mine + half, :])
                    T.set_cross_flag("MTE3", 1)
                    T.wait_cross_flag(2)
                    T.copy(products[cid, mine : mine + half, :], new)
                    T.barrier_all()
                    for r in T.serial(half):
                        T.tile.mul(acc[r, :], acc[r, :], before[r])
                    T.tile.add(acc, acc, new)
                    T.barrier_all()
                    T.set_cross_flag("MTE2", 3)
                for r in T.serial(half):
                    T.tile.div(acc[r, :], acc[r, :], total[r])
                T.copy(acc, out)
                T.barrier_all()
                T.copy(out, Out[cid * rows + mine : cid * rows + mine + half, :])

    return kernel


# ---- Answers -------------------------------------------------------------------------------------


def attention_of_two_loops(S, D, rows, columns):
    """Attention as the cores see it: a loop of the cube core, then one of the vector cores, which
    exchange three workspaces in every round.
    """
    half, rounds = rows // 2, S // columns

    @T.prim_func
    def kernel(
        Q: T.Tensor((S, D), "float16"),
        K: T.Tensor((S, D), "float16"),
        V: T.Tensor((S, D), "float16"),
        Out: T.Tensor((S, D), "float32"),
        scores: T.Tensor((S // rows, rows, columns), "float32"),
        weights: T.Tensor((S // rows, rows, columns), "float16"),
        sums: T.Tensor((S // rows, rows, D), "float32"),
    ):
        with T.Kernel(S // rows, is_npu=True) as (cid, vid):
            q = T.alloc_L1((rows, D), "float16")
            k = T.alloc_L1((columns, D), "float16")
            v = T.alloc_L1((columns, D), "float16")
            p = T.alloc_L1((rows, columns), "float16")
            score = T.alloc_L0C((rows, columns), "float32")
            product = T.alloc_L0C((rows, D), "float32")
            s = T.alloc_ub((half, columns), "float32")
            s_half = T.alloc_ub((half, columns), "float16")
            total = T.alloc_ub((half,), "float32")
            part = T.alloc_ub((half,), "float32")
            acc = T.alloc_ub((half, D), "float32")
            new = T.alloc_ub((half, D), "float32")
            mine = vid * half
            T.copy(Q[cid * rows, 0], q)
            for i in T.serial(rounds):
                T.copy(K[i * columns, 0], k)
                T.gemm_v0(q, k, score, transpose_B=True, init=True)
                T.copy(score, scores[cid, :, :])
                T.copy(weights[cid, :, :], p)
                T.copy(V[i * columns, 0], v)
                T.gemm_v0(p, v, product, init=True)
                T.copy(product, sums[cid, :, :])
            T.tile.fill(acc, 0.0)
            T.tile.fill(total, 0.0)
            for _ in T.serial(rounds):
                T.copy(scores[cid, mine : mine + half, :], s)
                T.tile.mul(s, s, D**-0.5)
                T.tile.exp(s, s)
                T.reduce_sum(s, part, dim=-1)
                T.tile.add(total, total, part)
                T.copy(s, s_half)
                T.copy(s_half, weights[cid, mine : mine + half, :])
                T.copy(sums[cid, mine : mine + half, :], new)
                T.tile.add(acc, acc, new)
            for r in range(half):
                T.tile.div(acc[r, :], acc[r, :], total[r])
            T.copy(acc, Out[cid * rows + mine : cid * rows + mine + half, :])

    return kernel


def _softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _rms_norm(x, w):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w


def _layer_norm(x):
    y = x - x.mean(-1, keepdims=True)
    return y / np.sqrt((y * y).mean(-1, keepdims=True) + 1e-5)


def _product(a, b):
    return a.astype(np.float32) @ b.astype(np.float32)


def _attention(q, k, v):
    q, k, v = (x.astype(np.float32) for x in (q, k, v))
    return _softmax(q @ np.swapaxes(k, -1, -2) * q.shape[-1] ** -0.5) @ v


def _half(*shapes):
    return floats(*shapes, dtype=np.float16)


def programs() -> list[Program]:
    """Small programs of every kind, with cut tiles and odd sizes."""
    auto = {"pass_configs": AUTO}
    out = {"out_idx": [-1], **auto}
    heads = (2, 96, 32)
    return [
        Program("softmax", softmax(40, 100, 104), floats((40, 100)), _softmax, settings=out),
        Program("rms_norm", rms_norm(24, 96), floats((24, 96), (96,)), _rms_norm, settings=out),
        Program("layer_norm", layer_norm(40, 48), floats((40, 48)), _layer_norm, settings=out),
        Program(
            "reductions",
            reductions(8, 24, [5, 20]),
            floats((8, 24)),
            _reductions_answer((5, 20)),
            settings={"out_idx": [1, 2, 3], **auto},
        ),
        Program("rope", rope(6, 48), _rope_inputs(6, 48), _rope_answer, settings=out),
        Program(
            "gemm_persistent",
            gemm_persistent(100, 72, 96, (32, 48, 32), 3),
            _half((100, 96), (96, 72)),
            _product,
            0.02,
            out,
        ),
        Program(
            "gemm_relu",
            gemm_relu(64, 96, 40, (32, 48, 40), 2),
            _half((64, 40), (40, 96)),
            lambda a, b: np.maximum(_product(a, b), 0),
            1e-3,
            out,
        ),
        Program(
            "gemm_relu_one_vector_core",
            gemm_relu(32, 48, 32, (32, 48, 32), 1),
            _half((32, 32), (32, 48)),
            lambda a, b: np.maximum(_product(a, b), 0),
            1e-3,
            out,
        ),
        Program(
            "gemm_int8",
            gemm_int8(64, 64, 96, (32, 32, 32)),
            _int8_inputs(64, 64, 96),
            lambda a, b, s: (a.astype(np.int32) @ b.astype(np.int32)).astype(np.float32) * s,
            settings={"out_idx": [3], "workspace_idx": [4], **auto},
        ),
        Program(
            "attention",
            attention(96, 2, 32, 32, 32, 2),
            _half(heads, heads, heads),
            _attention,
            2e-3,
            out,
        ),
        Program(
            "attention_of_two_loops",
            attention_of_two_loops(96, 32, 32, 32),
            _half((96, 32), (96, 32), (96, 32)),
            _attention,
            2e-3,
            {"out_idx": [3], "workspace_idx": [4, 5, 6], **auto},
        ),
        Program(
            "attention_expert",
            attention_expert(64, 32, 32, 32),
            _half((64, 32), (64, 32), (64, 32)),
            _attention,
            2e-3,
            {"out_idx": [3], "workspace_idx": [4, 5, 6]},
        ),
    ]
