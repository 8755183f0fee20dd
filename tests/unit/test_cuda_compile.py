"""What compiling for a GPU says of a kernel, without one."""

import sys
from pathlib import Path

import pytest

import tilelang
import tilelang.language as T
from gpu_build import TARGETS
from tilelang.errors import TileError
from tilelang.passes.pipeline import lower
from tilelang.targets.cuda.nvrtc import compile_source, include_folder, is_installed
from tilelang.targets.cuda.program import emit

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


CODE = """
template <typename A, typename B> __device__ void twice(A* from, B* to, int n) {
  for (int i = 0; i < n; ++i) to[i] = from[i] + from[i];
}
__device__ half next(half x) { return __hadd(x, __float2half(1.0f)); }
"""


def with_code(scope="alloc_local"):
    @T.prim_func
    def main(A: T.Tensor((64, 8), "float16"), B: T.Tensor((64, 8), "float16")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            T.import_source(CODE)
            a = getattr(T, scope)((8,), "float16")
            b = T.alloc_local((8,), "float16")
            for v in T.vectorized(8):
                a[v] = A[tx, v]
            T.call_extern("twice", T.access_ptr(a, "r"), T.access_ptr(b, "w"), 8, dtype="float16")
            b[0] = T.call_extern("float16", "next", b[0])
            for v in T.vectorized(8):
                B[tx, v] = b[v]

    return main


def test_device_code_of_the_author_stands_in_the_source_and_is_called():
    text = emit(lower(with_code().ir, TARGETS["sm_90a"]), TARGETS["sm_90a"]).plain
    assert text.startswith("#include <cuda_fp16.h>") and CODE in text
    assert (
        "twice(reinterpret_cast<__half*>(a + (0)), reinterpret_cast<__half*>(b + (0)), 8);" in text
    )
    assert "= __half_as_ushort(next(__ushort_as_half(b[0])));" in text
    if include_folder():
        made = compile_source(text, "sm_90a")
        assert made.warnings == ()


def test_device_code_of_the_author_runs_on_cuda_alone_and_on_a_threads_own_arrays():
    for target in ("cpu", "emulate"):
        with pytest.raises(TileError, match=r"device code of its own \(T\.import_source\)"):
            tilelang.compile(with_code(), target=target)
    with pytest.raises(TileError, match="the address of a, which is in shared"):
        with_code("alloc_shared")


@pytest.mark.skipif(not include_folder(), reason="CUDA's headers are not installed")
def test_device_code_that_does_not_compile_is_the_authors_fault():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            T.import_source("__device__ void broken() { nonsense; }")
            T.call_extern("handle", "broken")
            A[T.get_thread_binding()] = 1.0

    with pytest.raises(TileError, match="does not compile for sm_90a") as found:
        tilelang.compile(main, target="cuda:sm_90a")
    assert 'import_source 0(1): error: identifier "nonsense"' in found.value.diagnostics[0].got


@pytest.mark.parametrize(("name", "arch"), [("softmax", "sm_80"), ("gemm_splitk", "sm_100a")])
def test_kernels_of_examples_compile_with_an_empty_log(name, arch):
    """A part of `make cubins`."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
    import cubins

    made = [cubins.compiled(fn, arch) for fn in cubins.kernels(name)]
    assert made
    assert all(not m.refused and not m.fault and not m.spilled for m in made)
