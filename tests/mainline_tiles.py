"""Programs of the mainline Ascend dialect with operations on tiles of UB outside of vector
functions, tiles that are cut at places known when the kernel runs, drains with a conversion by a
factor, and functions of numbers; `tests/mainline_kernels.py` has them among its own.
"""

import numpy as np

import tilelang.ascend.language as T


def tiles(m, n):
    """Elementwise operations, comparisons, conversions, and reductions of whole tiles."""

    @T.prim_func
    def kernel(
        A: T.Tensor((m, n), "float32"),
        B: T.Tensor((m, n), "float32"),
        C: T.Tensor((m, n), "float32"),
        H: T.Tensor((m, n), "float16"),
        S: T.Tensor((m,), "float32"),
    ):
        with T.Kernel(1):
            a, b = T.alloc_shared((m, n), "float32"), T.alloc_shared((m, n), "float32")
            c, h = T.alloc_shared((m, n), "float32"), T.alloc_shared((m, n), "float16")
            s = T.alloc_shared((m,), "float32")
            T.copy(A, a)
            T.copy(B, b)
            for i, j in T.Parallel(m, n):
                c[i, j] = T.exp(T.min(a[i, j], 1.0)) * b[i, j] - T.abs(a[i, j]) / 3.0
            T.reduce_max(c, s, dim=1)
            for i, j in T.Parallel(m, n):
                c[i, j] = T.if_then_else(a[i, j] > b[i, j], c[i, j], s[i])
            for i, j in T.Parallel(m, n):
                h[i, j] = T.cast(c[i, j], "float16")
            T.copy(c, C)
            T.copy(h, H)
            T.copy(s, S)

    return kernel


def cut_rows(n, length, dtype):
    """One tile of a length known when the kernel runs, of a type of 64 bits or less."""

    @T.prim_func
    def kernel(A: T.Tensor((n,), dtype), B: T.Tensor((2, length), dtype)):
        with T.Kernel(1):
            a = T.alloc_shared((length,), dtype)
            for k in T.serial(2):
                T.copy(A[k * length], a)
                T.copy(a, B[k, 0:length])

    return kernel


def drained(m, n, k, source, target):
    """A product that is converted on its way out of L0C."""
    wide = "int32" if source == "int8" else "float32"

    @T.prim_func
    def kernel(
        A: T.Tensor((m, k), source), B: T.Tensor((n, k), source), C: T.Tensor((m, n), target)
    ):
        with T.Kernel(1):
            a, b = T.alloc_l1((m, k), source), T.alloc_l1((n, k), source)
            c = T.alloc_l0c((m, n), wide)
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, transpose_B=True, clear_accum=True)
            T.copy(c, C)

    return kernel


MATHS = ("exp10", "log1p", "sigmoid", "asin", "acos", "atan", "tanh", "asinh", "atanh")


def maths(n):
    """Functions of numbers by threads, a row for each, also of halves; tests and counts of bits."""

    @T.prim_func
    def kernel(
        A: T.Tensor((n,), "float32"),
        I: T.Tensor((n,), "int32"),
        C: T.Tensor((len(MATHS) + 3, n), "float32"),
        H: T.Tensor((n,), "float16"),
        K: T.Tensor((5, n), "int32"),
    ):
        with T.Kernel(1):
            a, i = T.alloc_shared((n,), "float32"), T.alloc_shared((n,), "int32")
            c = T.alloc_shared((len(MATHS) + 3, n), "float32")
            h, k = T.alloc_shared((n,), "float16"), T.alloc_shared((5, n), "int32")
            T.copy(A, a)
            T.copy(I, i)
            with T.SimtVF(threads=64):
                for j in T.Parallel(n):
                    for row, name in enumerate(MATHS):
                        c[row, j] = getattr(T, name)(a[j])
                    c[len(MATHS), j] = T.fmod(a[j], 0.25)
                    c[len(MATHS) + 1, j] = T.atan2(a[j], a[n - 1 - j])
                    c[len(MATHS) + 2, j] = T.copysign(a[n - 1 - j], a[j])
                    h[j] = T.tanh(T.cast(a[j], "float16"))
                    k[0, j] = T.popcount(i[j])
                    k[1, j] = T.clz(i[j])
                    k[2, j] = T.cast(T.isnan(a[j]), "int32")
                    k[3, j] = T.cast(T.isinf(a[j] / (a[j] - a[j])), "int32")
                    k[4, j] = T.popcount(T.cast(i[j], "int8"))
            T.copy(c, C)
            T.copy(h, H)
            T.copy(k, K)

    return kernel


def maths_answer(x):
    """What `maths` gives, in float64."""
    a, i = x["A"].astype(np.float64), x["I"]
    named = {
        "exp10": lambda v: 10**v, "sigmoid": lambda v: 1 / (1 + np.exp(-v)), "asin": np.arcsin,
        "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh, "atanh": np.arctanh,
    }  # fmt: skip
    rows = [(named[name] if name in named else getattr(np, name))(a) for name in MATHS]
    rows += [np.fmod(a, 0.25), np.arctan2(a, a[::-1]), np.copysign(a[::-1], a)]
    bits = np.unpackbits(i.view(np.uint8).reshape(-1, 4), axis=1, bitorder="little")
    high = np.array([31 - (np.flatnonzero(b).max() if b.any() else -1) for b in bits])
    counts = [bits.sum(1), high, np.zeros_like(i), a != 0, bits[:, :8].sum(1)]
    return {
        "C": np.stack(rows),
        "H": np.tanh(x["A"].astype(np.float16).astype(np.float32)),
        "K": np.stack(counts).astype(np.int32),
    }
