"""What compiling for a GPU says of a kernel, without one."""

import pytest

import tilelang
import tilelang.language as T
from tilelang.targets.cuda.nvrtc import is_installed

pytestmark = pytest.mark.skipif(not is_installed(), reason="NVRTC is not installed")


def product(rows, columns, threads):
    @T.prim_func
    def matmul(
        A: T.Tensor((256, 256), "float16"),
        B: T.Tensor((256, 256), "float16"),
        C: T.Tensor((256, 256), "float16"),
    ):
        with T.Kernel(256 // columns, 256 // rows, threads=threads) as (bx, by):
            a = T.alloc_shared((rows, 32), "float16")
            b = T.alloc_shared((32, columns), "float16")
            c = T.alloc_fragment((rows, columns), "float32")
            T.clear(c)
            for k in T.Pipelined(8, num_stages=3):
                T.copy(A[by * rows, k * 32], a)
                T.copy(B[k * 32, bx * columns], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * rows, bx * columns])

    return tilelang.compile(matmul, target="cuda:sm_90a")


def test_sums_that_the_registers_do_not_hold_are_slow_and_said_to_be():
    """128 threads for 128 x 256 sums: 256 registers each, one more than a thread can have."""
    kernel = product(128, 256, 128)
    asked, said = kernel.warnings
    assert "256 registers per thread are asked for" in asked.message
    assert "the products of matmul wait for each other" in said.message
    assert "use more threads" in said.help and said.loc.file == __file__
    assert "wait for each other" in kernel.report()
    assert product(128, 256, 256).warnings == ()
