"""The running sum and maximum of long rows: in blocks, with a carry from one block to the next.

`T.cumsum` and `T.cummax` scan a tile. A row that is longer is scanned tile by tile, and what the
tiles before gave is added (or compared) to every element of the next one.
"""

import numpy as np

import tilelang
import tilelang.language as T


@tilelang.jit
def running(X, what: str = "sum", rows: int = 4, width: int = 32, reverse: bool = False):
    """Y (M, N): the sum or maximum of each row of X (int32) up to a column, itself included.

    With `reverse`, from the column to the end.
    """
    M, N = T.const("M, N")
    X: T.Tensor[[M, N], T.int32]
    Y = T.empty((M, N), T.int32)
    start = 0 if what == "sum" else T.min_value(T.int32)  # changes nothing that it meets
    steps = T.ceildiv(N, width)

    with T.Kernel(T.ceildiv(M, rows), threads=128) as bx:
        S = T.alloc_shared((rows, width), T.int32)
        carry = T.alloc_fragment((rows,), T.int32)
        T.annotate_safe_value({X: start})  # what is read past the end
        T.fill(carry, start)
        for step in T.serial(steps):
            k = steps - 1 - step if reverse else step
            T.copy(X[bx * rows, k * width], S)
            if what == "sum":
                T.cumsum(S, dim=1, reverse=reverse)
            else:
                T.cummax(S, dim=1, reverse=reverse)
            for i, j in T.Parallel(rows, width):
                S[i, j] = S[i, j] + carry[i] if what == "sum" else T.max(S[i, j], carry[i])
            for i in T.Parallel(rows):
                carry[i] = S[i, 0 if reverse else width - 1]
            T.copy(S, Y[bx * rows, k * width])
    return Y


def main():
    """Rows that no tile divides, both ways, both operations."""
    M, N = 7, 100
    X = np.random.default_rng(0).integers(-1000, 1000, (M, N)).astype(np.int32)
    for what, scan in (("sum", np.add), ("max", np.maximum)):
        forward = running(X, what)
        backward = running(X, what, reverse=True)
        np.testing.assert_array_equal(forward, scan.accumulate(X, axis=1))
        np.testing.assert_array_equal(backward[:, ::-1], scan.accumulate(X[:, ::-1], axis=1))
    print(f"cumulative_scan: rows of {N} in tiles of 32, sums and maxima, both ways, exact")


if __name__ == "__main__":
    main()
