"""Quantisation to fp8 with a scale per token: each row, or each group of a row, fills the range.

The scale is the largest magnitude over 448, the largest number of e4m3. The row of a token may be
longer than a tile: the first pass over it finds the scale, the second one divides.
"""

import ml_dtypes
import numpy as np

import tilelang
import tilelang.language as T

LARGEST = 448.0
LEAST = 1e-4  # of the magnitude, so that a row of zeros has a scale to divide by


@tilelang.jit
def per_token(X, rows: int = 8, width: int = 64):
    """Q (M, N) e4m3 and a scale for each row, so that X is about Q * scale; tiles of `width`."""
    M, N = T.const("M, N")
    X: T.Tensor[[M, N], T.float16]
    Q = T.empty((M, N), T.float8_e4m3fn)
    Scale = T.empty((M,), T.float32)

    with T.Kernel(T.ceildiv(M, rows), threads=128) as bx:
        x = T.alloc_fragment((rows, width), T.float32)
        q = T.alloc_fragment((rows, width), T.float8_e4m3fn)
        most = T.alloc_fragment((rows,), T.float32)
        T.fill(most, LEAST)
        for k in T.serial(T.ceildiv(N, width)):
            T.copy(X[bx * rows, k * width], x)  # past the end come zeros, which change no maximum
            T.reduce_absmax(x, most, dim=1, clear=False)
        for i in T.Parallel(rows):
            most[i] = most[i] / LARGEST
        for k in T.serial(T.ceildiv(N, width)):
            T.copy(X[bx * rows, k * width], x)
            for i, j in T.Parallel(rows, width):
                q[i, j] = T.clamp(x[i, j] / most[i], -LARGEST, LARGEST)
            T.copy(q, Q[bx * rows, k * width])
        T.copy(most, Scale[bx * rows])
    return Q, Scale


@tilelang.jit
def per_group(X, group: int = 32, rows: int = 8):
    """Q (M, N) e4m3 and Scale (M, groups): one for each `group` neighbours of a row."""
    M, N = T.const("M, N")
    X: T.Tensor[[M, N], T.float16]
    Q = T.empty((M, N), T.float8_e4m3fn)
    Scale = T.empty((M, T.ceildiv(N, group)), T.float32)

    with T.Kernel(T.ceildiv(N, group), T.ceildiv(M, rows), threads=128) as (bx, by):
        x = T.alloc_fragment((rows, group), T.float32)
        q = T.alloc_fragment((rows, group), T.float8_e4m3fn)
        scale = T.alloc_fragment((rows,), T.float32)
        T.copy(X[by * rows, bx * group], x)
        T.reduce_absmax(x, scale, dim=1)
        for i in T.Parallel(rows):
            scale[i] = T.max(scale[i], LEAST) / LARGEST
            if by * rows + i < M:
                Scale[by * rows + i, bx] = scale[i]
        for i, j in T.Parallel(rows, group):
            q[i, j] = T.clamp(x[i, j] / scale[i], -LARGEST, LARGEST)
        T.copy(q, Q[by * rows, bx * group])
    return Q, Scale


def reference(X, group):
    """Q and Scale in NumPy, by the same fp32 operations."""
    M, N = X.shape
    groups = -(-N // group)
    wide = np.zeros((M, groups * group), np.float32)
    wide[:, :N] = X
    wide = wide.reshape(M, groups, group)
    most = np.maximum(abs(wide).max(-1, initial=0), np.float32(LEAST))
    scale = most / np.float32(LARGEST)
    scaled = (wide / scale[..., None]).clip(-LARGEST, LARGEST)
    return scaled.reshape(M, -1)[:, :N].astype(ml_dtypes.float8_e4m3fn), scale


def main():
    """Rows of very different sizes; one of them is zero."""
    M, N = 40, 100
    random = np.random.default_rng(0)
    X = random.standard_normal((M, N)) * np.exp(3 * random.standard_normal((M, 1)))
    X[7] = 0
    X = X.astype(np.float16)
    for (Q, scale), group in ((per_token(X), N), (per_group(X, 32), 32)):
        expected, scales = reference(X, group)
        np.testing.assert_array_equal(Q.view(np.uint8), expected.view(np.uint8))
        np.testing.assert_array_equal(scale.reshape(scales.shape), scales)
    print(f"quantize_fp8_per_token: {M}x{N}, per row and per group of 32, equal bits")


if __name__ == "__main__":
    main()
