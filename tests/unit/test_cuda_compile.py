"""Kernels that are compiled a second time: to fill an SM, or without what ptxas gives up."""

import pytest

import tilelang
import tilelang.language as T
from tilelang.runtime import cuda_cache
from tilelang.targets.cuda import nvrtc
from tilelang.targets.cuda.nvrtc import GivenUp, is_installed

pytestmark = pytest.mark.skipif(not is_installed(), reason="NVRTC is not installed")


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    """No kernel exists yet."""
    monkeypatch.setenv("TILELANG_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(cuda_cache, "PROGRAMS", type(cuda_cache.PROGRAMS)())


def rows(threads, width):
    """Rows times the sum of their squares."""

    @T.prim_func
    def kernel(A: T.Tensor((8, width), "float16"), B: T.Tensor((8, width), "float16")):
        with T.Kernel(8, threads=threads) as bx:
            row = T.alloc_fragment((1, width), "float32")
            square = T.alloc_fragment((1, width), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.copy(A[bx : bx + 1, :], row)
            for i, j in T.Parallel(1, width):
                square[i, j] = row[i, j] * row[i, j]
            T.reduce_sum(square, total, dim=1)
            for i, j in T.Parallel(1, width):
                row[i, j] *= total[i]
            T.copy(row, B[bx : bx + 1, :])

    return kernel


def test_a_kernel_that_moves_memory_fills_an_sm():
    kernel = tilelang.compile(rows(512, 8192), target="cuda:sm_90a")
    (used,) = kernel._program.cubin.resources.values()
    assert used.registers <= 32
    assert "__launch_bounds__(512, 4)" in kernel.get_kernel_source()


def test_a_kernel_of_few_threads_is_left_as_it_is():
    kernel = tilelang.compile(rows(32, 64), target="cuda:sm_90a")
    assert "__launch_bounds__(32, 1)" in kernel.get_kernel_source()


def attention():
    """Two products, the second of which overlaps."""

    @T.prim_func
    def kernel(
        Q: T.Tensor((64, 64), "float16"),
        K: T.Tensor((256, 64), "float16"),
        O: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            q = T.alloc_shared((64, 64), "float16")
            k = T.alloc_shared((64, 64), "float16")
            v = T.alloc_shared((64, 64), "float16")
            s = T.alloc_fragment((64, 64), "float32")
            p = T.alloc_fragment((64, 64), "float16")
            o = T.alloc_fragment((64, 64), "float32")
            T.copy(Q, q)
            T.clear(o)
            for step in T.Pipelined(4, num_stages=2):
                T.copy(K[step * 64, 0], k)
                T.gemm(q, k, s, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(64, 64):
                    s[i, j] = T.exp2(s[i, j])
                T.copy(s, p)
                T.copy(K[step * 64, 0], v)
                T.gemm(p, v, o)
            T.copy(o, O)

    return kernel


@pytest.mark.parametrize("how", ["given up", "starved"])
def test_products_that_ptxas_serialises_do_not_overlap(monkeypatch, how):
    real, texts = nvrtc.compile_source, []

    def compile_source(text, *more):
        made = real(text, *more)
        texts.append(text)
        if len(texts) > 1:
            return made
        if how == "given up":
            raise GivenUp("wgmma is serialized")
        said = "(C7512) wgmma serialized due to insufficient register resources"
        return nvrtc.Cubin(made.code, made.arch, made.resources, (said,))

    monkeypatch.setattr(cuda_cache, "compile_source", compile_source)
    tilelang.compile(attention(), target="cuda:sm_90a")
    first, second = (text.count("wgmma.mma_async") for text in texts)
    assert len(texts) == 2
    assert first > second


def test_what_ptxas_gives_up_without_overlap_is_an_error(monkeypatch):
    def compile_source(text, *more):
        raise GivenUp("wgmma is serialized")

    monkeypatch.setattr(cuda_cache, "compile_source", compile_source)
    with pytest.raises(GivenUp):
        tilelang.compile(attention(), target="cuda:sm_90a")
