"""A histogram: each block counts in shared memory, and adds its counts to those of all at the end.

Many elements may fall into one bin, so both are atomic: an ordinary `+=` in a parallel loop would
be a race, and is refused.
"""

import numpy as np

import tilelang
import tilelang.language as T


@tilelang.jit
def histogram(X, Counts, low: float, high: float, chunk: int = 256):
    """Adds to Counts (bins,) how many of X (N,) lie in each of the equal parts of [low, high)."""
    N, bins = T.const("N, bins")
    X: T.Tensor[[N], T.float32]
    Counts: T.Tensor[[bins], T.int32]

    with T.Kernel(T.ceildiv(N, chunk), threads=128) as bx:
        own = T.alloc_shared((bins,), T.int32)
        T.clear(own)
        for i in T.Parallel(chunk):
            if bx * chunk + i < N:
                x = X[bx * chunk + i]
                if low <= x < high:  # not so for a NaN
                    part = T.cast((x - low) * (bins / (high - low)), T.int32)
                    # Rounding may bring a number just below `high` up to it.
                    T.atomic_add(own[T.min(part, bins - 1)], 1)
        T.atomic_add(Counts, own)


def main():
    """Numbers on a grid, so that every bin is clear; some lie outside, and one is NaN."""
    N, bins = 1000, 24
    X = (np.random.default_rng(0).integers(-40, 41, N) / 8).astype(np.float32)
    X[100] = np.nan
    counts = np.zeros(bins, np.int32)
    histogram(X, counts, low=-3.0, high=3.0)
    inside = X[(X >= -3) & (X < 3)]
    expected = np.histogram(inside, bins, range=(-3.0, 3.0))[0]
    np.testing.assert_array_equal(counts, expected)
    print(f"histogram: {N} numbers, {counts.sum()} of them in {bins} bins, exact")


if __name__ == "__main__":
    main()
