"""Views of Tensor Memory: a row is a lane, so a view keeps the rows and the bytes of each. Against
NumPy, on the emulator and on the simulated chip.
"""

import re

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from blackwell_build import check_blackwell
from tilelang.dtypes import DType
from tilelang.errors import TileError
from tilelang.isa.target import parse_target
from tilelang.passes.pipeline import lower
from tilelang.targets import CHIPS
from tilelang.targets.cuda.nvrtc import compile_source, is_installed
from tilelang.targets.cuda.program import emit

RANDOM = np.random.default_rng(17)


def numbers(shape, dtype):
    return RANDOM.integers(-4, 5, shape).astype(DType(dtype).numpy)


def run(kernel, want, *args, seeds=3):
    """`want` is the last argument after a run."""
    for target in ("emulate", "simulate:sm_100a"):
        got = np.zeros_like(want)
        tilelang.compile(kernel, target=target)(*args, got)
        np.testing.assert_array_equal(got, want, err_msg=target)
    found = tilelang.check(kernel, run_with=(*args, np.zeros_like(want)))
    assert not [d for d in found if d.kind != "capacity"]  # columns are rounded up
    names = [p.name for p in kernel.ir.params]
    return check_blackwell(
        kernel, seeds=seeds, **dict(zip(names, (*args, np.zeros_like(want)), strict=True))
    )


@T.macro
def through(x, shape, dtype, out):
    """Tensor Memory by way of a fragment, which is the only way there is."""
    part = T.alloc_fragment(shape, dtype)
    T.copy(x, part)
    T.copy(part, out)


def attention_step(shape, threads=128, dtype="bfloat16"):
    """O = (Q @ K.T, halved and rounded) @ V: the rounded scores lie in the second half of the
    scores' own cells.
    """
    rows, keys, depth, wide = shape
    kind = "float16" if dtype == "float16" else "bfloat16"

    @T.prim_func
    def kernel(
        Q: T.Tensor((rows, depth), dtype),
        K: T.Tensor((keys, depth), dtype),
        V: T.Tensor((keys, wide), dtype),
        O: T.Tensor((rows, wide), "float32"),
    ):
        with T.Kernel(1, threads=threads):
            q, k = T.alloc_shared((rows, depth), dtype), T.alloc_shared((keys, depth), dtype)
            v = T.alloc_shared((keys, wide), dtype)
            scores = T.alloc_tmem((rows, keys), "float32")
            total = T.alloc_tmem((rows, wide), "float32")
            rounded = T.view(scores, (rows, 2 * keys), kind)
            s, p = T.alloc_fragment((rows, keys), "float32"), T.alloc_fragment((rows, keys), dtype)
            T.copy(Q, q)
            T.copy(K, k)
            T.copy(V, v)
            T.gemm(q, k, scores, transpose_B=True, clear_accum=True)
            T.copy(scores, s)
            for i, j in T.Parallel(rows, keys):
                p[i, j] = s[i, j] / 2
            T.copy(p, rounded[:, keys : 2 * keys])
            T.gemm(rounded[:, keys : 2 * keys], v, total, clear_accum=True)
            through(total, (rows, wide), "float32", O)

    return kernel


@pytest.mark.parametrize(
    ("shape", "threads", "dtype"),
    [
        ((128, 128, 64, 64), 128, "bfloat16"),
        ((128, 96, 48, 48), 256, "bfloat16"),
        ((128, 32, 16, 16), 128, "float16"),
        ((64, 64, 40, 24), 128, "bfloat16"),
        ((64, 128, 96, 40), 256, "float16"),
    ],
)
def test_rounded_scores_in_the_cells_of_the_scores(shape, threads, dtype):
    rows, keys, depth, wide = shape
    q, k, v = (numbers(s, dtype) for s in ((rows, depth), (keys, depth), (keys, wide)))
    scores = q.astype(np.float32) @ k.astype(np.float32).T
    want = (scores / 2).astype(q.dtype).astype(np.float32) @ v.astype(np.float32)
    program = run(attention_step(shape, threads, dtype), want, q, k, v)
    assert "tcgen05.mma.f16.ts" in {getattr(n, "row", "") for n in program.walk()}


def renamed(shape, dtype, seen, kind, threads=128):
    """What is stored under one name is loaded under another."""

    @T.prim_func
    def kernel(A: T.Tensor(shape, dtype), B: T.Tensor(seen, kind)):
        with T.Kernel(1, threads=threads):
            cells = T.alloc_tmem(shape, dtype)
            other = T.view(cells, seen, kind)
            through(A, shape, dtype, cells)
            through(other, seen, kind, B)

    return kernel


@pytest.mark.parametrize(
    ("shape", "dtype", "seen", "kind"),
    [
        ((128, 40), "float32", (128, 40), "int32"),
        ((128, 48), "bfloat16", (128, 24), "float32"),
        ((128, 24), "int32", (128, 48), "float16"),
        ((128, 96), "uint8", (128, 24), "uint32"),
        ((2, 3, 128, 32), "float32", (6, 128, 32), "float32"),
        ((2, 128, 24), "float32", (2, 1, 128, 48), "int16"),
        ((64, 32), "float32", (64, 64), "float16"),
        ((1, 128, 100), "float32", (128, 100), "uint32"),
    ],
)
def test_what_is_stored_under_one_name_is_loaded_under_another(shape, dtype, seen, kind):
    a = RANDOM.integers(0, 120, shape).astype(DType(dtype).numpy)
    want = a.view(DType(kind).numpy).reshape(seen)
    run(renamed(shape, dtype, seen, kind), want, a)


def parts(count, columns):
    """Columns that are stored one part after the other through one view and loaded through a view
    of that.
    """

    @T.prim_func
    def kernel(
        A: T.Tensor((count, 128, columns), "float16"),
        B: T.Tensor((128, count * columns // 2), "uint32"),
    ):
        with T.Kernel(1, threads=128):
            cells = T.alloc_tmem((128, count * columns // 2), "float32")
            halves = T.view(cells, (128, count * columns), "float16")
            words = T.view(halves, (128, count * columns // 2), "uint32")
            for k in T.serial(count):
                through(
                    A[k, :, :],
                    (128, columns),
                    "float16",
                    halves[:, k * columns : (k + 1) * columns],
                )
            through(words, (128, count * columns // 2), "uint32", B)

    return kernel


@pytest.mark.parametrize(("count", "columns"), [(1, 24), (3, 40), (4, 96)])
def test_parts_of_a_view_of_a_view(count, columns):
    a = numbers((count, 128, columns), "float16")
    want = np.ascontiguousarray(a.transpose(1, 0, 2).reshape(128, -1)).view(np.uint32)
    run(parts(count, columns), want, a)


def piped(k, stages=2):
    """The bits of a result that a pipelined loop adds up, through a view."""

    @T.prim_func
    def kernel(
        A: T.Tensor((128, k), "float16"),
        B: T.Tensor((k, 64), "float16"),
        C: T.Tensor((128, 64), "int32"),
    ):
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((128, 32), "float16"), T.alloc_shared((32, 64), "float16")
            acc = T.alloc_tmem((128, 64), "float32")
            bits = T.view(acc, (128, 64), "int32")
            for step in T.Pipelined(-(-k // 32), num_stages=stages):
                T.copy(A[0, step * 32], a)
                T.copy(B[step * 32, 0], b)
                T.gemm(a, b, acc, clear_accum=step == 0)
            through(bits, (128, 64), "int32", C)

    return kernel


@pytest.mark.parametrize("k", [32, 96, 128])
def test_a_view_of_what_a_pipelined_loop_adds_up(k):
    a, b = numbers((128, k), "float16"), numbers((k, 64), "float16")
    want = (a.astype(np.float32) @ b.astype(np.float32)).view(np.int32)
    run(piped(k), want, a, b)


def by_pairs(n):
    """A product of a pair whose A lies in a view, and whose result is read through one."""

    @T.prim_func
    def kernel(
        A: T.Tensor((256, 32), "bfloat16"),
        B: T.Tensor((32, n), "bfloat16"),
        C: T.Tensor((256, n), "uint32"),
    ):
        with T.ClusterKernel(2, threads=128, cluster_dims=2):
            rank = T.block_rank_in_cluster()
            part = T.alloc_fragment((128, 32), "bfloat16")
            b = T.alloc_shared((32, n // 2), "bfloat16")
            words, acc = T.alloc_tmem((128, 32), "uint32"), T.alloc_tmem((128, n), "float32")
            a, bits = T.view(words, (128, 64), "bfloat16"), T.view(acc, (128, n), "uint32")
            done = T.alloc_cluster_barrier(1)
            T.copy(A[rank * 128, 0], part)
            T.copy(part, a[:, 32:64])
            T.copy(B[0, rank * (n // 2)], b)
            T.tcgen05_before_thread_sync()
            T.cluster_sync()
            T.tcgen05_after_thread_sync()
            T.tcgen05_gemm(a[:, 32:64], b, acc, mbar=done, clear_accum=True, use_2cta=True)
            T.mbarrier_wait_parity(done, 0)
            through(bits, (128, n), "uint32", C[rank * 128 : rank * 128 + 128, :])

    return kernel


@pytest.mark.parametrize("n", [64, 128])
def test_views_in_the_blocks_of_a_pair(n):
    a, b = numbers((256, 32), "bfloat16"), numbers((32, n), "bfloat16")
    want = (a.astype(np.float32) @ b.astype(np.float32)).view(np.uint32)
    run(by_pairs(n), want, a, b)


@pytest.mark.simulate
@pytest.mark.parametrize(
    ("kernel", "shapes"),
    [
        (attention_step((128, 96, 48, 48), 256), [(128, 48), (96, 48), (96, 48)]),
        (piped(96), [(128, 96), (96, 64)]),
        (by_pairs(64), [(256, 32), (32, 64)]),
    ],
)
def test_views_under_many_orders(kernel, shapes):
    *given, last = kernel.ir.params
    args = {p.name: numbers(s, p.buffer.dtype.name) for p, s in zip(given, shapes, strict=True)}
    out = np.zeros([e.value for e in last.buffer.shape], last.buffer.dtype.numpy)
    check_blackwell(kernel, seeds=50, **args, **{last.name: out})


@pytest.mark.skipif(not is_installed(), reason="NVRTC is not installed")
def test_views_become_machine_code():
    target = parse_target("cuda -arch=sm_100a", CHIPS)
    for kernel in (attention_step((128, 96, 48, 48), 256), by_pairs(64), piped(96)):
        assert not compile_source(emit(lower(kernel.ir, target), target).text, "sm_100a").warnings


def other_rows():
    @T.prim_func
    def kernel(A: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            cells = T.alloc_tmem((128, 32), "float32")
            T.clear(cells)
            through(T.view(cells, (64, 64)), (64, 64), "float32", A)

    return kernel, "the view cells_view has other rows than cells in .* 128 rows of 128 bytes"


def result_in_halves():
    @T.prim_func
    def kernel(A: T.Tensor((128, 16), "float16"), B: T.Tensor((128, 16), "float32")):
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((128, 16), "float16"), T.alloc_shared((16, 32), "float16")
            acc = T.alloc_tmem((128, 32), "float16")
            T.copy(A, a)
            T.clear(b)
            T.gemm(a, b, acc, clear_accum=True)
            through(T.view(acc, (128, 16), "float32"), (128, 16), "float32", B)

    return kernel, "acc is the result of a product, and a view of elements of another size"


@pytest.mark.parametrize("make", [other_rows, result_in_halves])
def test_views_that_tensor_memory_has_not_are_errors(make):
    kernel, why = make()
    with pytest.raises(TileError) as caught:
        tilelang.compile(kernel, target="simulate:sm_100a")
    assert re.search(why, str(caught.value), re.DOTALL)
    assert "test_gpu_tensor_memory_views.py" in str(caught.value)
    tilelang.compile(kernel, target="emulate:sm_100a")
