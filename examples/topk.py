"""The k largest of each row, and where they are: k times the maximum, which is then taken out.

Of equal numbers the first one counts. Rows are whole in a fragment; what lies past the end of a row
is filled with the least number, so it is never chosen.
"""

import numpy as np

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-2, -1])
def topk(M, N, k, rows=8):
    """A kernel for values (M, k) fp32, in falling order, and their columns (M, k) int32."""
    if not 0 < k <= N:
        raise ValueError(f"the {k} largest of {N} numbers")

    @T.prim_func
    def kernel(
        X: T.Tensor((M, N), "float32"),
        Values: T.Tensor((M, k), "float32"),
        Columns: T.Tensor((M, k), "int32"),
    ):
        with T.Kernel(T.ceildiv(M, rows), threads=128) as bx:
            x = T.alloc_fragment((rows, N), "float32")
            where = T.alloc_fragment((rows, N), "int32")
            top = T.alloc_fragment((rows,), "float32")
            first = T.alloc_fragment((rows,), "int32")
            T.annotate_safe_value({X: -T.infinity("float32")})  # what rows past the end read as
            T.copy(X[bx * rows, 0], x)
            for n in T.serial(k):
                T.reduce_max(x, top, dim=1)
                for i, j in T.Parallel(rows, N):
                    where[i, j] = T.if_then_else(x[i, j] == top[i], j, N)
                T.reduce_min(where, first, dim=1)
                for i, j in T.Parallel(rows, N):
                    if j == first[i]:
                        x[i, j] = -T.infinity("float32")
                for i in T.Parallel(rows):
                    if bx * rows + i < M:
                        Values[bx * rows + i, n] = top[i]
                        Columns[bx * rows + i, n] = first[i]

    return kernel


def reference(X, k):
    """The same in NumPy: a stable sort keeps equal numbers in order."""
    columns = np.argsort(-X, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(X, columns, 1), columns


def main():
    """Few different numbers, so that many are equal."""
    M, N, k = 100, 127, 5
    X = np.random.default_rng(0).integers(-20, 21, (M, N)).astype(np.float32)
    for got, expected in zip(topk(M, N, k)(X), reference(X, k), strict=True):
        np.testing.assert_array_equal(got, expected)
    print(f"topk: the {k} largest of {N} in {M} rows, values and columns exact")


if __name__ == "__main__":
    main()
