"""A tour of the memory scopes: what each allocation function gives, on CUDA, Blackwell and Ascend.

Each stop is a kernel. It runs where a chip can run it, and is compared with NumPy; what it takes of
the chip's memories is printed, and so is the message of every chip that refuses it. Nothing here
needs a GPU or an NPU: the chips are emulated.
"""

import sys

import numpy as np

import tilelang
import tilelang.ascend.language as TA
import tilelang.language as T
from tilelang.errors import TileError

# ---- The common dialect: CUDA, and the CPU -------------------------------------------------------


def scaled_product(M, N, K, BM=128, BN=128, BK=32):
    """C = alpha * A @ B, with all four scopes that any GPU has."""

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, BN), T.ceildiv(M, BM), threads=128) as (bx, by):
            A_s = T.alloc_shared((BM, BK), "float16")  # shared.dyn: seen by the whole block
            B_s = T.alloc_shared((BK, BN), "float16")
            C_f = T.alloc_fragment((BM, BN), "float32")  # local.fragment: spread over the threads
            powers = T.alloc_local((4,), "float32")  # local: an array of each thread's own
            alpha = T.alloc_var("float32", init=0.5)  # local.var: one scalar
            for p in T.serial(4):
                powers[p] = alpha
                alpha = alpha * alpha
            T.clear(C_f)
            for k in T.Pipelined(T.ceildiv(K, BK), num_stages=3):
                T.copy(A[by * BM, k * BK], A_s)
                T.copy(B[k * BK, bx * BN], B_s)
                T.gemm(A_s, B_s, C_f)
            for i, j in T.Parallel(BM, BN):
                C_f[i, j] = C_f[i, j] * powers[1]
            T.copy(C_f, C[by * BM, bx * BN])

    return kernel


def workspace(N, shared_by_blocks=False):
    """Y = X, by way of a workspace in global memory: one row for each block, or one for all."""
    rows = 1 if shared_by_blocks else -(-N // 128)

    @T.prim_func
    def kernel(X: T.Tensor((N,), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, 128), threads=128) as bx:
            ws = T.alloc_global((rows, 128), "float32")  # global: allocated for each launch
            for i in T.Parallel(128):
                ws[bx % rows, i] = X[bx * 128 + i]
            for i in T.Parallel(128):
                Y[bx * 128 + i] = ws[bx % rows, i]

    return kernel


def accumulate_in_tensor_memory(M, N, K):
    """C = A @ B with the accumulator in Tensor Memory, as Blackwell has it."""

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(1, threads=128):
            A_s = T.alloc_shared((M, K), "float16")
            B_s = T.alloc_shared((K, N), "float16")
            C_t = T.alloc_tmem((M, N), "float32")  # shared.tmem: only tcgen05 instructions reach it
            C_f = T.alloc_fragment((M, N), "float32")
            T.copy(A, A_s)
            T.copy(B, B_s)
            T.gemm(A_s, B_s, C_t, clear_accum=True)
            T.copy(C_t, C_f)  # so a fragment brings the result out
            T.copy(C_f, C)

    return kernel


def store_into_tensor_memory(M, N):
    """What Tensor Memory does not do: it has no stores of single elements."""

    @T.prim_func
    def kernel(C: T.Tensor((M, N), "float32")):
        with T.Kernel(1, threads=128):
            C_t = T.alloc_tmem((M, N), "float32")
            for i, j in T.Parallel(M, N):
                C_t[i, j] = 0.0

    return kernel


# ---- The mainline Ascend dialect: the 950 --------------------------------------------------------


def cube_and_vector(M, N, K, BM=128):
    """C = A @ B^T on the cube core, and a row of ones from the vector core."""

    @TA.prim_func
    def kernel(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((N, K), "float16"),
        C: T.Tensor((M, N), "float32"),
        ones: T.Tensor((N,), "float32"),
    ):
        with TA.Kernel(-(-M // BM)) as bx:
            A_l1 = TA.alloc_l1((BM, K), "float16")  # shared.l1: the cube core's own store
            B_l1 = TA.alloc_l1((N, K), "float16")
            C_l0c = TA.alloc_l0c((BM, N), "float32")  # shared.l0c: its accumulator
            row = TA.alloc_shared((N,), "float32")  # shared.dyn is the vector core's UB here
            TA.copy(A[bx * BM, 0], A_l1)
            TA.copy(B, B_l1)
            TA.clear(C_l0c)
            TA.gemm(A_l1, B_l1, C_l0c, transpose_B=True)
            TA.copy(C_l0c, C[bx * BM, 0])
            if bx == 0:
                TA.fill(row, 1.0)
                TA.copy(row, ones)

    return kernel


# ---- The adapter dialect: the 910B, with spellings of its own ------------------------------------


def adapter_product(M, N, K, BM=128):
    """The same product in the adapter's spelling, in its developer mode (`threads=1`)."""

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((N, K), "float16"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(M, BM), threads=1) as bx:
            A_l1 = T.alloc_L1((BM, K), "float16")  # shared.l1
            B_l1 = T.alloc_L1((N, K), "float16")
            C_l0c = T.alloc_L0C((BM, N), "float32")  # wmma.accumulator
            T.copy(A[bx * BM, 0], A_l1)
            T.copy(B, B_l1)
            T.clear(C_l0c)
            T.gemm(A_l1, B_l1, C_l0c, transpose_B=True)
            T.copy(C_l0c, C[bx * BM, 0])

    return kernel


def adapter_launch(M, N):
    """The adapter's own launch, `is_npu=True`."""

    @T.prim_func
    def kernel(A: T.Tensor((M, N), "float16"), B: T.Tensor((M, N), "float16")):
        with T.Kernel(1, is_npu=True) as (_core, _half):
            A_ub = T.alloc_ub((M, N), "float16")  # shared.ub
            T.copy(A, A_ub)
            T.copy(A_ub, B)

    return kernel


# ---- The guide -----------------------------------------------------------------------------------

random = np.random.default_rng(0)


def stop(title):
    """Print a heading."""
    print(f"\n{title}\n{'-' * len(title)}")


def indented(text):
    """The text, four columns to the right."""
    return "\n".join(f"    {line}".rstrip() for line in str(text).splitlines())


def half(*shape):
    """Random fp16 numbers."""
    return random.standard_normal(shape).astype(np.float16)


def product(a, b):
    """The product that NumPy gives in fp32."""
    return a.astype(np.float32) @ b.astype(np.float32)


def same(name, got, want):
    """Compare with NumPy; wrong numbers end the tour."""
    np.testing.assert_allclose(got, want, rtol=1e-2, atol=1e-2)
    print(f"  {name} is what NumPy gives")


def refused(why, func, target):
    """Print the message with which `target` refuses a function; one that accepts ends the tour."""
    try:
        tilelang.compile(func, target=target)
    except TileError as exc:
        print(f"  {why}:")
        print(indented(exc))
    else:
        sys.exit(f"{target} accepts what it should refuse")


def findings(what, func, target=None):
    """Print what `tilelang.check` says."""
    found = tilelang.check(func, target)
    print(f"  {what}: {len(found) or 'no'} finding{'' if len(found) == 1 else 's'}")
    for each in found:
        print(indented(each.render()))


def tour_of_cuda():
    """shared, fragment, local, var, global."""
    stop("1. shared.dyn, local.fragment, local, local.var: C = alpha * A @ B")
    func = scaled_product(200, 129, 72)
    kernel = tilelang.compile(func, out_idx=-1, target="emulate:sm_90a")
    a, b = half(200, 72), half(72, 129)
    same("C", kernel(a, b), 0.25 * product(a, b))
    print(indented(kernel.memory().render()))

    stop("2. global: a workspace")
    x = np.arange(300, dtype=np.float32)
    same("Y", tilelang.compile(workspace(300), out_idx=-1)(x), x)
    findings("with one row for each block", workspace(300))
    findings("with one row for all blocks", workspace(300, shared_by_blocks=True))


def tour_of_blackwell():
    """Tensor Memory."""
    stop("3. shared.tmem: an accumulator in Tensor Memory")
    func = accumulate_in_tensor_memory(128, 96, 64)
    kernel = tilelang.compile(func, out_idx=-1, target="emulate:sm_100a")
    a, b = half(128, 64), half(64, 96)
    same("C", kernel(a, b), product(a, b))
    print(indented(kernel.memory().render()))
    refused("Hopper has no such memory", func, "emulate:sm_90a")
    refused(
        "600 columns are too many", accumulate_in_tensor_memory(128, 600, 64), "emulate:sm_100a"
    )
    refused(
        "it has no stores of single elements", store_into_tensor_memory(128, 96), "emulate:sm_100a"
    )


def tour_of_ascend():
    """UB, L1, L0C, in two spellings."""
    stop("4. shared.l1, shared.l0c, and shared.dyn as UB: the mainline Ascend dialect")
    func = cube_and_vector(300, 96, 128)
    kernel = tilelang.compile(func, out_idx=[2, 3], target="emulate:ascend950")
    a, b = half(300, 128), half(96, 128)
    c, ones = kernel(a, b)
    same("C", c, product(a, b.T))
    same("ones", ones, np.ones(96))
    seen = kernel.inspect(a, b, after="C_l0c", block=1)
    print("  block 1, seen right after its product:")
    print(indented(seen))
    print(indented(kernel.memory().render()))
    refused("a GPU has other memories", func, "emulate:sm_90a")
    refused("the 910B has another dialect", func, "emulate:ascend910b")

    stop("5. shared.l1 and wmma.accumulator: the adapter's spelling, for the 910B")
    func = adapter_product(300, 96, 128)
    findings("under the rules of the 910B", func, "emulate:ascend910b")
    refused("the 950 has another dialect", func, "emulate:ascend950")
    refused("the CPU has other memories", func, "cpu")
    try:
        adapter_launch(16, 64)
    except TileError as exc:
        print("  the adapter's own launch is not built yet:")
        print(indented(exc))


def main():
    """The whole tour."""
    print(__doc__.strip())
    tour_of_cuda()
    tour_of_blackwell()
    tour_of_ascend()
    print("\n`tilewright scopes` lists every allocation function, and what each chip has.")


if __name__ == "__main__":
    main()
