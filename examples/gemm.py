"""A matrix product C = op(A) @ op(B): every layout of the operands, and many element types.

The layout is two letters, one for A and one for B: N as written, T transposed in memory. Nothing is
transposed on the way: the tile is copied as it lies, and `T.gemm` is told how to read it.
"""

import ml_dtypes
import numpy as np

import tilelang
import tilelang.language as T

# What is multiplied, and in what the products are summed.
SUMS = {
    "float16": "float32",
    "bfloat16": "float32",
    "float8_e4m3fn": "float32",
    "int8": "int32",
    "float32": "float32",
    "float64": "float64",
}
LAYOUTS = ("NN", "NT", "TN", "TT")


@tilelang.jit(out_idx=-1)
def gemm(M, N, K, dtype="float16", layout="NN", tiles=(64, 64, 32)):
    """A kernel for C (M, N) = op(A) @ op(B); `tiles` are the rows, columns and depth of a step."""
    BM, BN, BK = tiles
    turn_a, turn_b = (letter == "T" for letter in layout)

    @T.prim_func
    def kernel(
        A: T.Tensor((K, M) if turn_a else (M, K), dtype),
        B: T.Tensor((N, K) if turn_b else (K, N), dtype),
        C: T.Tensor((M, N), SUMS[dtype]),
    ):
        with T.Kernel(T.ceildiv(N, BN), T.ceildiv(M, BM), threads=128) as (bx, by):
            A_s = T.alloc_shared((BK, BM) if turn_a else (BM, BK), dtype)
            B_s = T.alloc_shared((BN, BK) if turn_b else (BK, BN), dtype)
            C_f = T.alloc_fragment((BM, BN), SUMS[dtype])
            T.clear(C_f)
            for k in T.Pipelined(T.ceildiv(K, BK), num_stages=3):
                # The layout is known when the kernel is traced: one of the two copies remains.
                if turn_a:
                    T.copy(A[k * BK, by * BM], A_s)
                else:
                    T.copy(A[by * BM, k * BK], A_s)
                if turn_b:
                    T.copy(B[bx * BN, k * BK], B_s)
                else:
                    T.copy(B[k * BK, bx * BN], B_s)
                T.gemm(A_s, B_s, C_f, transpose_A=turn_a, transpose_B=turn_b)
            T.copy(C_f, C[by * BM, bx * BN])

    return kernel


def numpy_type(name):
    """The NumPy type of an element type; ml_dtypes has those that NumPy lacks."""
    return np.dtype(getattr(ml_dtypes, name, name))


def operands(M, N, K, dtype, layout, seed=0):
    """Random small integers, which every type has exactly, as A and B and as their product."""
    random = np.random.default_rng(seed)
    a, b = random.integers(-4, 5, (M, K)), random.integers(-4, 5, (K, N))
    given = [
        np.ascontiguousarray(x.T if letter == "T" else x).astype(numpy_type(dtype))
        for x, letter in zip((a, b), layout, strict=True)
    ]
    return *given, a @ b


def main():
    """Every type, and every layout, at a size that no tile divides."""
    M, N, K = 100, 72, 40
    cases = [(dtype, "NN") for dtype in SUMS] + [("float16", layout) for layout in LAYOUTS]
    for dtype, layout in cases:
        A, B, expected = operands(M, N, K, dtype, layout)
        C = gemm(M, N, K, dtype, layout)(A, B)
        np.testing.assert_array_equal(C, expected)  # every sum of small integers is exact
    print(f"gemm: {len(SUMS)} types and {len(LAYOUTS)} layouts at {M}x{N}x{K}, all exact")


if __name__ == "__main__":
    main()
