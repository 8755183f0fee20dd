"""Programs in the mainline Ascend dialect, and what they compute; most leave all order to the
automatic schedule.

Each function gives a kernel; `Program` is a case with its pass configs.
"""

from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from ascend_verify.kernels import rms_norm

import tilelang.ascend.language as T
from ascend_kernels import Case
from mainline_attention import attention, attention_by_hand
from mainline_tiles import MATHS, cut_rows, drained, maths, maths_answer, tiles

BY_HAND = {"tl.enable_auto_schedule": False}
FP8 = ml_dtypes.float8_e4m3fn


@dataclass(frozen=True)
class Program(Case):
    """A case, and the options that it is compiled with."""

    configs: dict[str, Any] = field(default_factory=dict)


# ---- Vector functions ---------------------------------------------------------------------------


def add_threads(M, N, rows, dtype="float32"):
    """Elementwise by threads; the last tiles of both axes are cut."""

    @T.prim_func
    def kernel(A: T.Tensor((M, N), dtype), B: T.Tensor((M, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, rows)) as bx:
            a = T.alloc_shared((rows, 64), dtype)
            b = T.alloc_shared((rows, 64), dtype)
            for j in T.Pipelined(T.ceildiv(N, 64), num_stages=2):
                T.copy(A[bx * rows, j * 64], a)
                T.copy(B[bx * rows, j * 64], b)
                with T.SimtVF(threads=128):
                    for r, c in T.Parallel(rows, 64):
                        a[r, c] = a[r, c] + b[r, c]
                T.copy(a, C[bx * rows, j * 64])

    return kernel


def add_ping_pong(n, tile):
    """Two buffers in turn, flags by hand: the loads of a round run beside the sums of the last."""

    @T.prim_func
    def kernel(
        A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32"), C: T.Tensor((n,), "float32")
    ):
        with T.Kernel(1):
            a = T.alloc_shared((2, tile), "float32")
            b = T.alloc_shared((2, tile), "float32")
            for k in T.serial(2):
                T.ascend_set_flag("MTE3_MTE2", k)
            for j in T.serial(n // tile):
                T.ascend_wait_flag("MTE3_MTE2", j % 2)
                T.copy(A[j * tile : j * tile + tile], a[j % 2, :])
                T.copy(B[j * tile : j * tile + tile], b[j % 2, :])
                T.ascend_set_flag("MTE2_V", j % 2)
                T.ascend_wait_flag("MTE2_V", j % 2)
                with T.SimdVF():
                    for i in T.serial(tile // 64):
                        x = T.simd.vld(a[j % 2, i * 64])
                        y = T.simd.vld(b[j % 2, i * 64])
                        T.simd.vsts(a[j % 2, i * 64], T.simd.vadd(x, y))
                T.ascend_set_flag("V_MTE3", j % 2)
                T.ascend_wait_flag("V_MTE3", j % 2)
                T.copy(a[j % 2, :], C[j * tile : j * tile + tile])
                T.ascend_set_flag("MTE3_MTE2", j % 2)
            for k in T.serial(2):
                T.ascend_wait_flag("MTE3_MTE2", k)

    return kernel


def softmax(M, N, rows):
    """Over rows, which threads hold in registers."""

    @T.prim_func
    def kernel(A: T.Tensor((M, N), "float16"), B: T.Tensor((M, N), "float16")):
        with T.Kernel(M // rows) as bx:
            a = T.alloc_shared((rows, N), "float16")
            T.copy(A[bx * rows, 0], a)
            with T.SimtVF(threads=64):
                x = T.alloc_fragment((rows, N), "float32")
                top = T.alloc_fragment((rows,), "float32")
                total = T.alloc_fragment((rows,), "float32")
                T.copy(a, x)
                T.reduce_max(x, top, dim=1)
                for i, j in T.Parallel(rows, N):
                    x[i, j] = T.exp(x[i, j] - top[i])
                T.reduce_sum(x, total, dim=1)
                for i, j in T.Parallel(rows, N):
                    x[i, j] = x[i, j] / total[i]
                T.copy(x, a)
            T.copy(a, B[bx * rows, 0])

    return kernel


def layer_norm(M, N, rows):
    """Mean and variance over rows, then scale and shift; two rounds for each core."""

    @T.prim_func
    def kernel(
        A: T.Tensor((M, N), "float32"),
        G: T.Tensor((N,), "float32"),
        H: T.Tensor((N,), "float32"),
        B: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(M // rows // 2) as bx:
            a = T.alloc_shared((rows, N), "float32")
            b = T.alloc_shared((rows, N), "float32")
            g = T.alloc_shared((N,), "float32")
            h = T.alloc_shared((N,), "float32")
            T.copy(G, g)
            T.copy(H, h)
            for k in T.Pipelined(2, num_stages=2):
                T.copy(A[(bx * 2 + k) * rows, 0], a)
                with T.SimtVF(threads=128):
                    x = T.alloc_fragment((rows, N), "float32")
                    y = T.alloc_fragment((rows, N), "float32")
                    mean = T.alloc_fragment((rows,), "float32")
                    spread = T.alloc_fragment((rows,), "float32")
                    T.copy(a, x)
                    T.reduce_sum(x, mean, dim=1)
                    for i, j in T.Parallel(rows, N):
                        x[i, j] = x[i, j] - mean[i] / N
                    for i, j in T.Parallel(rows, N):
                        y[i, j] = x[i, j] * x[i, j]
                    T.reduce_sum(y, spread, dim=1)
                    for i, j in T.Parallel(rows, N):
                        x[i, j] = x[i, j] * T.rsqrt(spread[i] / N + 1e-5) * g[j] + h[j]
                    T.copy(x, b)
                T.copy(b, B[(bx * 2 + k) * rows, 0])

    return kernel


def row_sums(M, N):
    """Reductions on registers, of rows that end within one."""

    @T.prim_func
    def kernel(
        A: T.Tensor((M, N), "float32"), S: T.Tensor((M,), "float32"), X: T.Tensor((M,), "float32")
    ):
        with T.Kernel(1):
            a = T.alloc_shared((M, N), "float32")
            s = T.alloc_shared((M,), "float32")
            x = T.alloc_shared((M,), "float32")
            T.copy(A, a)
            with T.SimdVF():
                T.reduce_sum(a, s, dim=1)
                T.reduce_max(a, x, dim=1)
            T.copy(s, S)
            T.copy(x, X)

    return kernel


def column_sums(M, N):
    """A register for each 64 columns, which takes one row after the other."""

    @T.prim_func
    def kernel(A: T.Tensor((M, N), "float32"), S: T.Tensor((N,), "float32")):
        with T.Kernel(1):
            a = T.alloc_shared((M, N), "float32")
            s = T.alloc_shared((N,), "float32")
            T.copy(A, a)
            with T.SimdVF():
                T.reduce_sum(a, s, dim=0)
            T.copy(s, S)

    return kernel


def rope(M, N):
    """Halves of a row exchange places: each thread gathers its partner."""

    @T.prim_func
    def kernel(
        A: T.Tensor((M, N), "float32"),
        C: T.Tensor((M, N), "float32"),
        S: T.Tensor((M, N), "float32"),
        I: T.Tensor((N,), "int32"),
        B: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(1):
            a = T.alloc_shared((M, N), "float32")
            c = T.alloc_shared((M, N), "float32")
            s = T.alloc_shared((M, N), "float32")
            at = T.alloc_shared((N,), "int32")
            b = T.alloc_shared((M, N), "float32")
            T.copy(A, a)
            T.copy(C, c)
            T.copy(S, s)
            T.copy(I, at)
            with T.SimtVF(threads=64):
                for i, j in T.Parallel(M, N):
                    b[i, j] = a[i, j] * c[i, j] + a[i, at[j]] * s[i, j]
            T.copy(b, B)

    return kernel


# ---- Products -----------------------------------------------------------------------------------


def gemm(M, N, K, tile, dtype="float16", acc="float32", out="float32"):
    """From L1, with a loop over K; M, N and K may end within a tile."""
    bm, bn, bk = tile
    columns = T.ceildiv(N, bn)

    @T.prim_func
    def kernel(A: T.Tensor((M, K), dtype), B: T.Tensor((N, K), dtype), C: T.Tensor((M, N), out)):
        with T.Kernel(T.ceildiv(M, bm) * columns) as bx:
            a = T.alloc_l1((bm, bk), dtype)
            b = T.alloc_l1((bn, bk), dtype)
            c = T.alloc_l0c((bm, bn), acc)
            for k in T.Pipelined(T.ceildiv(K, bk), num_stages=2):
                T.copy(A[bx // columns * bm, k * bk], a)
                T.copy(B[bx % columns * bn, k * bk], b)
                T.gemm(a, b, c, transpose_B=True, clear_accum=k == 0)
            T.copy(c, C[bx // columns * bm, bx % columns * bn])

    return kernel


def gemm_persistent(M, N, K, tile, cores):
    """Each core takes the tiles that fall to it, the last wave is not full."""
    bm, bn, bk = tile
    rows, columns = T.ceildiv(M, bm), T.ceildiv(N, bn)

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "bfloat16"),
        B: T.Tensor((N, K), "bfloat16"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(cores) as bx:
            a = T.alloc_l1((bm, bk), "bfloat16")
            b = T.alloc_l1((bn, bk), "bfloat16")
            c = T.alloc_l0c((bm, bn), "float32")
            for i, j in T.Persistent([rows, columns], cores, bx):
                for k in T.serial(T.ceildiv(K, bk)):
                    T.copy(A[i * bm, k * bk], a)
                    T.copy(B[j * bn, k * bk], b)
                    T.gemm(a, b, c, transpose_B=True, clear_accum=k == 0)
                T.copy(c, C[i * bm, j * bn])

    return kernel


def gemm_split_k(M, N, K, parts):
    """The parts of K are added up in global memory."""
    part = K // parts

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((N, K), "float16"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(parts) as bx:
            a = T.alloc_l1((M, part), "float16")
            b = T.alloc_l1((N, part), "float16")
            c = T.alloc_l0c((M, N), "float32")
            T.copy(A[0, bx * part], a)
            T.copy(B[0, bx * part], b)
            T.gemm(a, b, c, transpose_B=True, clear_accum=True)
            T.set_atomic("add", "float32")
            T.copy(c, C)
            T.set_atomic_none()

    return kernel


def gemm_relu(M, N, K, bm, bk):
    """The cube core multiplies, each vector core does half of the rows."""

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((N, K), "float16"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(M // bm) as bx:
            a = T.alloc_l1((bm, bk), "float16")
            b = T.alloc_l1((N, bk), "float16")
            c = T.alloc_l0c((bm, N), "float32")
            u = T.alloc_shared((bm // 2, N), "float32")
            for k in T.Pipelined(K // bk, num_stages=2):
                T.copy(A[bx * bm, k * bk], a)
                T.copy(B[0, k * bk], b)
                T.gemm(a, b, c, transpose_B=True, clear_accum=k == 0)
            T.dual_copy(c, u)
            with T.SimtVF(threads=128):
                for i, j in T.Parallel(bm // 2, N):
                    u[i, j] = T.max(u[i, j], 0.0)
            T.dual_copy(u, C[bx * bm : bx * bm + bm, :])

    return kernel


def gemm_int8(M, N, K):
    """Products of int8, scaled by row and column on the vector cores."""

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "int8"),
        B: T.Tensor((N, K), "int8"),
        R: T.Tensor((M,), "float32"),
        S: T.Tensor((N,), "float32"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(1):
            a = T.alloc_l1((M, K), "int8")
            b = T.alloc_l1((N, K), "int8")
            c = T.alloc_l0c((M, N), "int32")
            u = T.alloc_shared((M // 2, N), "int32")
            r = T.alloc_shared((M // 2,), "float32")
            s = T.alloc_shared((N,), "float32")
            o = T.alloc_shared((M // 2, N), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, transpose_B=True, clear_accum=True)
            T.dual_copy(c, u)
            T.dual_copy(R, r)
            T.copy(S, s)
            with T.SimtVF(threads=128):
                for i, j in T.Parallel(M // 2, N):
                    o[i, j] = T.cast(u[i, j], "float32") * r[i] * s[j]
            T.dual_copy(o, C)

    return kernel


# ---- Cases --------------------------------------------------------------------------------------


def _floats(rng, *shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


def _zeros(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


def _wide(x):
    return x.astype(np.float32)


def _two(*shape):
    return lambda r: {"A": _floats(r, *shape), "B": _floats(r, *shape), "C": _zeros(*shape)}


def _sum(x):
    return {"C": x["A"] + x["B"]}


def _pair(M, N, K, dtype=np.float16, out=np.float32):
    return lambda r: {
        "A": _floats(r, M, K, dtype=dtype),
        "B": _floats(r, N, K, dtype=dtype),
        "C": _zeros(M, N, dtype=out),
    }


def _product(x):
    return {"C": _wide(x["A"]) @ _wide(x["B"]).T}


def _softmax(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def _normed(x):
    a = x["A"]
    centred = a - a.mean(1, keepdims=True)
    return {"B": centred / np.sqrt(a.var(1, keepdims=True) + 1e-5) * x["G"] + x["H"]}


def _rope_inputs(M, N):
    def inputs(rng):
        angle = np.outer(np.arange(M), 1.0 / 10 ** np.linspace(0, 2, N // 2))
        sine = np.sin(angle)
        return {
            "A": _floats(rng, M, N),
            "C": np.tile(np.cos(angle), 2).astype(np.float32),
            "S": np.hstack([-sine, sine]).astype(np.float32),
            "I": np.roll(np.arange(N), N // 2).astype(np.int32),
            "B": _zeros(M, N),
        }

    return inputs


def _int8_inputs(M, N, K):
    return lambda r: {
        "A": r.integers(-128, 128, (M, K)).astype(np.int8),
        "B": r.integers(-128, 128, (N, K)).astype(np.int8),
        "R": _floats(r, M),
        "S": _floats(r, N),
        "C": _zeros(M, N),
    }


def _attention_inputs(S, L, D):
    return lambda r: {
        "Q": _floats(r, S, D, dtype=np.float16),
        "K": _floats(r, L, D, dtype=np.float16),
        "V": _floats(r, D, L, dtype=np.float16),
        "O": _zeros(S, D),
    }


def _attended(x):
    q, k, v = (_wide(x[n]) for n in "QKV")
    return {"O": _softmax(q @ k.T / np.sqrt(q.shape[1])) @ v.T}


def _of_tiles(x):
    a, b = x["A"], x["B"]
    c = np.exp(np.minimum(a, 1)) * b - np.abs(a) / 3
    most = c.max(1)
    c = np.where(a > b, c, most[:, None])
    return {"C": c, "H": c.astype(np.float16), "S": most}


def _cut(n, length, dtype):
    def wanted(x):
        out = np.zeros((2, length), dtype)
        flat = out.reshape(-1)
        flat[: min(n, 2 * length)] = x["A"][: 2 * length]
        return {"B": out}

    return Program(
        f"cut_{dtype}",
        cut_rows(n, length, dtype),
        lambda r: {"A": r.integers(-99, 99, n).astype(dtype), "B": _zeros(2, length, dtype=dtype)},
        wanted,
    )


def _drained(m, n, k, source, target):
    kind = np.dtype(getattr(ml_dtypes, target, target))

    def wanted(x):
        made = x["A"].astype(np.float64) @ x["B"].astype(np.float64).T
        return {"C": np.clip(np.rint(made), -128, 127) if target == "int8" else made.astype(kind)}

    def draw(r):
        a, b = (r.integers(-3, 4, (rows, k)).astype(source) for rows in (m, n))
        return {"A": a, "B": b, "C": _zeros(m, n, dtype=kind)}

    return Program(f"drain_{source}_{target}", drained(m, n, k, source, target), draw, wanted)


def _whole_tiles() -> list[Program]:
    return [
        Program(
            "tiles",
            tiles(24, 104),
            lambda r: {
                **{name: _floats(r, 24, 104) for name in "AB"},
                "C": _zeros(24, 104),
                "H": _zeros(24, 104, dtype=np.float16),
                "S": _zeros(24),
            },
            _of_tiles,
            2e-3,
        ),
        _cut(100, 64, "int64"),
        _cut(100, 72, "float32"),
        _drained(48, 32, 32, "int8", "float16"),
        _drained(48, 32, 32, "int8", "int8"),
        _drained(32, 48, 32, "float16", "float8_e4m3fn"),
        Program(
            "maths",
            maths(128),
            lambda r: {
                "A": r.uniform(-0.9, 0.9, 128).astype(np.float32),
                "I": r.integers(-(2**31), 2**31, 128).astype(np.int32),
                "C": _zeros(len(MATHS) + 3, 128),
                "H": _zeros(128, dtype=np.float16),
                "K": _zeros(5, 128, dtype=np.int32),
            },
            maths_answer,
            1e-3,
        ),
    ]


def programs() -> list[Program]:
    return [
        *_whole_tiles(),
        Program("add_threads", add_threads(40, 100, 16), _two(40, 100), _sum),
        Program("add_ping_pong", add_ping_pong(640, 128), _two(640), _sum, configs=BY_HAND),
        Program(
            "softmax",
            softmax(24, 96, 8),
            lambda r: {
                "A": _floats(r, 24, 96, dtype=np.float16),
                "B": _zeros(24, 96, dtype=np.float16),
            },
            lambda x: {"B": _softmax(_wide(x["A"]))},
            2e-3,
        ),
        Program(
            "layer_norm",
            layer_norm(32, 48, 8),
            lambda r: {
                "A": _floats(r, 32, 48),
                "G": _floats(r, 48),
                "H": _floats(r, 48),
                "B": _zeros(32, 48),
            },
            _normed,
            1e-5,
        ),
        Program(
            "rms_norm",
            rms_norm(48, 96, 8),
            lambda r: {"A": _floats(r, 48, 96), "B": _zeros(48, 96)},
            lambda x: {"B": x["A"] / np.sqrt((x["A"] ** 2).mean(1, keepdims=True) + 1e-6)},
            1e-5,
        ),
        Program(
            "row_sums",
            row_sums(24, 104),
            lambda r: {"A": _floats(r, 24, 104), "S": _zeros(24), "X": _zeros(24)},
            lambda x: {"S": x["A"].sum(1), "X": x["A"].max(1)},
            1e-4,
        ),
        Program(
            "column_sums",
            column_sums(24, 104),
            lambda r: {"A": _floats(r, 24, 104), "S": _zeros(104)},
            lambda x: {"S": x["A"].sum(0)},
            1e-5,
        ),
        Program(
            "rope",
            rope(16, 40),
            _rope_inputs(16, 40),
            lambda x: {"B": x["A"] * x["C"] + x["A"][:, x["I"]] * x["S"]},
            1e-6,
        ),
        Program("gemm", gemm(64, 48, 96, (32, 48, 32)), _pair(64, 48, 96), _product, 1e-3),
        Program(
            "gemm_cut",
            gemm(40, 100, 56, (32, 64, 32), "bfloat16", out="bfloat16"),
            _pair(40, 100, 56, ml_dtypes.bfloat16, ml_dtypes.bfloat16),
            _product,
            0.05,
        ),
        Program(
            "gemm_fp8",
            gemm(32, 32, 64, (32, 32, 32), "float8_e4m3fn"),
            _pair(32, 32, 64, FP8),
            _product,
            1e-3,
        ),
        Program(
            "gemm_persistent",
            gemm_persistent(72, 100, 48, (32, 32, 32), 5),
            _pair(72, 100, 48, ml_dtypes.bfloat16),
            _product,
            1e-3,
        ),
        Program("split_k", gemm_split_k(32, 48, 128, 4), _pair(32, 48, 128), _product, 1e-3),
        Program(
            "gemm_relu",
            gemm_relu(64, 48, 64, 32, 32),
            _pair(64, 48, 64),
            lambda x: {"C": np.maximum(_product(x)["C"], 0)},
            1e-3,
        ),
        Program(
            "gemm_int8",
            gemm_int8(32, 48, 96),
            _int8_inputs(32, 48, 96),
            lambda x: {
                "C": (x["A"].astype(np.int32) @ x["B"].astype(np.int32).T)
                * x["R"][:, None]
                * x["S"]
            },
            1e-4,
        ),
        Program(
            "attention_by_hand",
            attention_by_hand(32, 96, 48, 32),
            _attention_inputs(32, 96, 48),
            _attended,
            2e-3,
            BY_HAND,
        ),
        Program(
            "attention", attention(32, 96, 48, 32), _attention_inputs(32, 96, 48), _attended, 2e-3
        ),
    ]
