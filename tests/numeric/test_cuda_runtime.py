"""Calls of kernels on a GPU: arrays of each framework, streams, graphs, devices, outputs."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.errors import TileError, TileRuntimeError

pytestmark = pytest.mark.gpu


def scale(dtype="float32", strided=False):
    """`B = 2 * A + 1` over (n, 40), n known at launch."""
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((n, 40), dtype), B: T.Tensor((n, 40), dtype)):
        with T.Kernel(T.ceildiv(n, 8), threads=64) as bx:
            for i, j in T.Parallel(8, 40):
                B[bx * 8 + i, j] = A[bx * 8 + i, j] * 2 + 1

    return main


def asserting():
    @T.prim_func
    def main(A: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            t = T.get_thread_binding()
            T.device_assert(A[t] >= 0, "no negative numbers")
            A[t] = A[t] + 1

    return main


@pytest.fixture(scope="module")
def kernel():
    return tilelang.compile(scale(), target="cuda")


@pytest.fixture(scope="module")
def returning():
    return tilelang.compile(scale(), out_idx=[1], target="cuda")


@pytest.fixture
def cuda(torch):
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    return torch


SIZES = [0, 1, 7, 8, 100]


@pytest.mark.parametrize("n", SIZES)
def test_torch_tensors(cuda, kernel, returning, n):
    a = cuda.randn(n, 40, device="cuda")
    b = cuda.full_like(a, float("nan"))
    for _ in range(2):  # bound in full, then by the plan
        b.fill_(float("nan"))
        kernel(a, b)
        assert cuda.equal(b, a * 2 + 1)
        out = returning(a)
        assert out.device == a.device and cuda.equal(out, a * 2 + 1)


@pytest.mark.parametrize("n", SIZES)
def test_numpy_arrays_are_copied_in_and_out(kernel, returning, n):
    a = np.random.default_rng(n).standard_normal((n, 40)).astype(np.float32)
    b = np.full_like(a, np.nan)
    kernel(a, b)
    np.testing.assert_array_equal(b, a * 2 + 1)
    wide = np.full((n, 80), np.nan, np.float32)
    kernel(a, wide[:, ::2])
    np.testing.assert_array_equal(wide[:, ::2], a * 2 + 1)
    assert np.isnan(wide[:, 1::2]).all()


def test_cupy_arrays(kernel, returning):
    cupy = pytest.importorskip("cupy")
    a = cupy.arange(400, dtype="float32").reshape(10, 40)
    b = cupy.zeros_like(a)
    with cupy.cuda.Stream(non_blocking=True):
        a += 1
        kernel(a, b)
        out = returning(a)
        b += 1
    cupy.cuda.Device().synchronize()
    assert isinstance(out, cupy.ndarray)
    np.testing.assert_array_equal(b.get(), a.get() * 2 + 2)
    np.testing.assert_array_equal(out.get(), a.get() * 2 + 1)


def test_jax_arrays(returning):
    jax = pytest.importorskip("jax")
    a = jax.numpy.arange(400, dtype="float32").reshape(10, 40) + 1
    out = returning(a)
    assert isinstance(out, jax.Array)
    np.testing.assert_array_equal(np.asarray(out), np.asarray(a) * 2 + 1)


def test_bfloat16_and_half(cuda):
    for name in ("float16", "bfloat16"):
        k = tilelang.compile(scale(name), target="cuda")
        a = cuda.randn(9, 40, device="cuda").to(getattr(cuda, name))
        b = cuda.zeros_like(a)
        k(a, b)
        assert cuda.equal(b, ((a * 2).float() + 1).to(a.dtype))


def test_views_with_gaps_and_unaligned_ones(cuda, kernel):
    a = cuda.randn(12, 40, device="cuda").t().contiguous().t()
    wide = cuda.full((12, 80), float("nan"), device="cuda")
    kernel(a, wide[:, ::2])
    assert cuda.equal(wide[:, ::2], a * 2 + 1)
    assert wide[:, 1::2].isnan().all()
    flat = cuda.randn(12 * 40 + 1, device="cuda")
    out = cuda.full((12 * 40 + 1,), float("nan"), device="cuda")
    kernel(flat[1:].view(12, 40), out[1:].view(12, 40))
    assert cuda.equal(out[1:], flat[1:] * 2 + 1) and out[0].isnan()


def test_the_callers_stream(cuda, kernel):
    a, b = cuda.zeros(2000, 40, device="cuda"), cuda.zeros(2000, 40, device="cuda")
    stream = cuda.cuda.Stream()
    stream.wait_stream(cuda.cuda.current_stream())
    with cuda.cuda.stream(stream):
        cuda.cuda._sleep(20_000_000)
        a.fill_(3)
        kernel(a, b)
        b.add_(1)
    stream.synchronize()
    assert (b == 8).all()


def test_a_graph_replays_it(cuda, kernel, returning):
    a, b = cuda.zeros(16, 40, device="cuda"), cuda.zeros(16, 40, device="cuda")
    kernel(a, b)
    returning(a)
    cuda.cuda.synchronize()
    graph = cuda.cuda.CUDAGraph()
    with cuda.cuda.graph(graph):
        kernel(a, b)
        out = returning(b)
    for x in (1.0, 5.0):
        a.fill_(x)
        graph.replay()
        cuda.cuda.synchronize()
        assert (b == 2 * x + 1).all() and (out == 4 * x + 3).all()


def test_several_devices(cuda, kernel):
    if cuda.cuda.device_count() < 2:
        pytest.skip("one device")
    for index in (1, 0, 1):
        a = cuda.randn(16, 40, device=f"cuda:{index}")
        b = cuda.zeros_like(a)
        kernel(a, b)
        assert cuda.equal(b, a * 2 + 1)
        assert cuda.cuda.current_device() == 0
    with pytest.raises(TileError, match="arrays on different devices"):
        kernel(a, cuda.zeros(16, 40, device="cuda:0"))


def test_what_is_refused(cuda, kernel):
    a = cuda.zeros(8, 40, device="cuda")
    with pytest.raises(TileError, match=r"a torch tensor on cpu(.|\n)*tensor.cuda\(\)"):
        kernel(a.cpu(), a)
    with pytest.raises(TileError, match="dtype float16"):
        kernel(a.half(), a)
    with pytest.raises(TileError, match="shape mismatch at axis 1"):
        kernel(a[:, :39].contiguous(), a)


def test_assertions_and_what_comes_after(cuda):
    k = tilelang.compile(asserting(), target="cuda")
    good = cuda.arange(64, dtype=cuda.int32, device="cuda")
    k(good)
    bad = good.clone()
    bad[5] = -3
    with pytest.raises(TileRuntimeError, match="no negative numbers"):
        k(bad)
    k(good)
    assert cuda.equal(good.cpu(), cuda.arange(64, dtype=cuda.int32) + 2)


def printing():
    @T.prim_func
    def main(A: T.Tensor((4,), "float16")):
        with T.Kernel(1, threads=4):
            t = T.get_thread_binding()
            if t == 2:
                T.print(A[t], msg="here: 100%")

    return main


def test_prints_are_lines_as_the_emulator_has_them(cuda, capfd):
    a = cuda.arange(4, device="cuda").half() / 4
    tilelang.compile(printing(), target="cuda")(a)
    said = "msg='here: 100%' BlockIdx=(0, 0, 0), ThreadIdx=(2, 0, 0): dtype=float16 value=0.5"
    assert said in capfd.readouterr().out


def test_threads_that_are_no_multiple_of_a_warp(cuda):
    @T.prim_func
    def main(A: T.Tensor((1, 100), "float32"), B: T.Tensor((1,), "float32")):
        with T.Kernel(1, threads=40):
            x, y = T.alloc_fragment((1, 100), "float32"), T.alloc_fragment((1,), "float32")
            T.copy(A, x)
            T.reduce_sum(x, y, dim=1)
            T.copy(y, B)

    a, b = cuda.arange(100, device="cuda").float().view(1, 100), cuda.zeros(1, device="cuda")
    tilelang.compile(main, target="cuda")(a, b)
    assert b.item() == 4950


def test_python_threads_call_one_kernel(cuda, returning):
    from concurrent.futures import ThreadPoolExecutor

    def one(n):
        with cuda.cuda.stream(cuda.cuda.Stream()):
            a = cuda.full((n % 7 + 1, 40), float(n), device="cuda")
            return (returning(a) == 2 * n + 1).all().item()

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(one, range(200)))


def test_the_profiler_makes_tensors_and_takes_times_on_the_device(cuda):
    @T.prim_func
    def double(A: T.Tensor((512, 512), "float32"), B: T.Tensor((512, 512), "float32")):
        with T.Kernel(512, threads=128) as b:
            for i in T.Parallel(512):
                B[b, i] = A[b, i] * 2.0

    profiler = tilelang.compile(double, out_idx=-1, target="cuda").get_profiler()
    assert profiler.make_inputs()[0].is_cuda
    profiler.assert_allclose(lambda a: a * 2)
    with pytest.raises(AssertionError, match="elements differ"):
        profiler.assert_allclose(lambda a: a * 3)
    times = {b: profiler.do_bench(backend=b, rep=5) for b in ("event", "cudagraph", "cupti")}
    assert all(1e-4 < t < 1.0 for t in times.values()), times
    wall = profiler.do_bench(backend="wall", rep=5, quantiles=[0.0, 1.0])
    assert times["cupti"] < wall[1]


def test_device_code_of_the_author(cuda):
    code = """
__device__ void swapped(half* from, half* to, int n) {
  for (int i = 0; i < n; i += 2) {
    *reinterpret_cast<half2*>(to + i) = __lowhigh2highlow(*reinterpret_cast<half2*>(from + i));
  }
}
__device__ float half_of(float x) { return x * 0.5f; }
"""

    @T.prim_func
    def main(A: T.Tensor((64, 8), "float16"), B: T.Tensor((64, 8), "float16")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            T.import_source(code)
            a, b = T.alloc_local((8,), "float16"), T.alloc_local((8,), "float16")
            for v in T.vectorized(8):
                a[v] = A[tx, v]
            T.call_extern("swapped", T.access_ptr(a, "r"), T.access_ptr(b, "w"), 8, dtype="handle")
            for v in T.vectorized(8):
                B[tx, v] = T.call_extern("float32", "half_of", b[v])

    a = cuda.randn(64, 8, device="cuda").half()
    b = cuda.zeros_like(a)
    tilelang.compile(main, target="cuda")(a, b)
    assert cuda.equal(b, (a.view(64, 4, 2).flip(2).reshape(64, 8).float() * 0.5).half())
