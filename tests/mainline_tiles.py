"""Programs of the mainline Ascend dialect with operations on tiles of UB outside of vector
functions, tiles that are cut at places known when the kernel runs, and drains with a conversion by
a factor; `tests/mainline_kernels.py` has them among its own.
"""

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
