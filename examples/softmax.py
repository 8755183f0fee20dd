"""Softmax of long rows: one pass keeps a running maximum and sum, a second one writes.

When a later tile brings a greater maximum, the sum so far is rescaled. So a row may be longer than
any tile, and no exponential overflows.
"""

import numpy as np

import tilelang
import tilelang.language as T

LOG2_E = 1.4426950408889634


@tilelang.jit(out_idx=-1)
def softmax(rows, columns, dtype="float16", tile=(4, 128)):
    """A kernel for Y (rows, columns) = softmax(X) along the columns, in fp32 inside."""
    BM, BN = tile

    @T.prim_func
    def kernel(X: T.Tensor((rows, columns), dtype), Y: T.Tensor((rows, columns), dtype)):
        with T.Kernel(T.ceildiv(rows, BM), threads=128) as block:
            x = T.alloc_fragment((BM, BN), "float32")
            peak = T.alloc_fragment((BM,), "float32")
            before = T.alloc_fragment((BM,), "float32")
            part = T.alloc_fragment((BM,), "float32")
            total = T.alloc_fragment((BM,), "float32")
            T.annotate_safe_value({X: -T.infinity(dtype)})  # past the end, nothing is added
            T.fill(peak, -T.infinity("float32"))
            T.clear(total)
            for k in T.serial(T.ceildiv(columns, BN)):
                T.copy(X[block * BM, k * BN], x)
                T.copy(peak, before)
                T.reduce_max(x, peak, dim=1, clear=False)
                for i, j in T.Parallel(BM, BN):
                    x[i, j] = T.exp2((x[i, j] - peak[i]) * LOG2_E)
                T.reduce_sum(x, part, dim=1)
                for i in T.Parallel(BM):
                    total[i] = total[i] * T.exp2((before[i] - peak[i]) * LOG2_E) + part[i]
            for k in T.serial(T.ceildiv(columns, BN)):
                T.copy(X[block * BM, k * BN], x)
                for i, j in T.Parallel(BM, BN):
                    x[i, j] = T.exp2((x[i, j] - peak[i]) * LOG2_E) / total[i]
                T.copy(x, Y[block * BM, k * BN])

    return kernel


def reference(x):
    """The same in NumPy, in float64."""
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True).astype(np.float64))
    return e / e.sum(axis=1, keepdims=True)


def main():
    """Rows of 1000 in tiles of 128."""
    X = np.random.default_rng(0).normal(size=(10, 1000)).astype(np.float16) * 5
    Y = softmax(*X.shape)(X)
    error = np.abs(Y - reference(X)).max()
    assert error < 1e-3
    print(f"softmax: {X.shape[0]} rows of {X.shape[1]}, greatest error {error:.1e}")


if __name__ == "__main__":
    main()
