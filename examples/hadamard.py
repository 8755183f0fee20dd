"""The Walsh-Hadamard transform of each row, by log2(N) rounds of sums and differences.

Round h replaces each pair (a, b) that lies h apart by (a + b, a - b). The rounds are known when the
kernel is traced, so the loop over them is Python's, and each one is a parallel loop of its own.
"""

import numpy as np

import tilelang
import tilelang.language as T


@tilelang.jit
def hadamard(X, rows: int = 4):
    """Y (M, N) = X @ H / sqrt(N) in fp32, for N a power of two; `rows` rows per block."""
    M, N = T.const("M, N")
    X: T.Tensor[[M, N], T.float32]
    Y = T.empty((M, N), T.float32)

    with T.Kernel(T.ceildiv(M, rows), threads=128) as bx:
        S = T.alloc_shared((rows, N), T.float32)
        T.copy(X[bx * rows, 0], S)
        for h in [1 << bit for bit in range(N.bit_length() - 1)]:  # 1, 2, 4, ..., N / 2
            for i, pair, j in T.Parallel(rows, N // (2 * h), h):
                first = pair * 2 * h + j
                a = S[i, first]
                b = S[i, first + h]
                S[i, first] = a + b
                S[i, first + h] = a - b
        for i, j in T.Parallel(rows, N):
            S[i, j] = S[i, j] * N**-0.5
        T.copy(S, Y[bx * rows, 0])
    return Y


def transform(X):
    """The transform of rows of any length, filled up with zeros to a power of two."""
    N = 1 << (X.shape[1] - 1).bit_length()
    wide = np.zeros((X.shape[0], N), np.float32)
    wide[:, : X.shape[1]] = X
    return hadamard(wide)


def matrix(N):
    """The Hadamard matrix in NumPy: entry (i, j) is -1 to the number of bits that i and j share."""
    i = np.arange(N)
    shared = i[:, None] & i
    parity = np.zeros((N, N), int)
    for bit in range(N.bit_length()):
        parity ^= shared >> bit & 1
    return 1 - 2 * parity


def main():
    """Rows of 64 and rows of 100, of integers: the sums are exact."""
    random = np.random.default_rng(0)
    for M, N in ((40, 64), (7, 100)):
        X = random.integers(-100, 101, (M, N)).astype(np.float32)
        Y = transform(X)
        length = Y.shape[1]
        expected = X @ matrix(length)[:N].astype(np.float32) * np.float32(length**-0.5)
        np.testing.assert_array_equal(Y, expected)
    print("hadamard: rows of 64 and of 100 (filled up to 128), exact")


if __name__ == "__main__":
    main()
