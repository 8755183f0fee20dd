"""Matrices of more than 128 rows in Tensor Memory: each 128 rows lie further along the columns, and
copies, products and views take all of them or some. Against NumPy, on the emulator and on the
simulated chip.
"""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from blackwell_build import check_blackwell
from tilelang.dtypes import DType
from tilelang.errors import TileError
from tilelang.ir.thread import Instr, Program
from tilelang.isa.target import parse_target
from tilelang.passes.check import refuse
from tilelang.passes.pipeline import lower
from tilelang.targets import CHIPS
from tilelang.targets.cuda.nvrtc import compile_source, is_installed
from tilelang.targets.cuda.program import emit

RANDOM = np.random.default_rng(31)
BLACKWELL = parse_target("cuda -arch=sm_100a", CHIPS)
SWEEP = [3, pytest.param(50, marks=pytest.mark.simulate)]


def numbers(shape, dtype="bfloat16"):
    return RANDOM.integers(-4, 5, shape).astype(DType(dtype).numpy)


def product(a, b, dtype="float32"):
    return (a.astype(np.float32) @ b.astype(np.float32)).astype(dtype)


def run(kernel, want, *args, seeds=3) -> Program:
    """`want` is the last argument after a run."""
    for target in ("emulate:sm_100a", "simulate:sm_100a"):
        got = np.zeros_like(want)
        tilelang.compile(kernel, target=target)(*args, got)
        np.testing.assert_array_equal(got, want, err_msg=target)
    names = [p.name for p in kernel.ir.params]
    given = dict(zip(names, (*args, np.zeros_like(want)), strict=True))
    return check_blackwell(kernel, seeds=seeds, **given)


def rows(program: Program, row: str) -> list[Instr]:
    found = (n for n in program.walk() if isinstance(n, Instr))
    return [n for n in found if n.row.startswith(f"tcgen05.{row}")]


def refusal(kernel) -> str:
    with pytest.raises(TileError) as caught:
        refuse(kernel.ir, BLACKWELL, chips=CHIPS)
        lower(kernel.ir, BLACKWELL)
    text = str(caught.value)
    assert "test_gpu_tensor_memory_bands.py:" in text, "no place in the author's file"
    return text


# Copies ------------------------------------------------------------------------------------------


def marked(shape, where, dtype="float32", threads=128):
    """A comes back with a part set to 9, all by way of Tensor Memory."""

    @T.prim_func
    def kernel(A: T.Tensor(shape, dtype), B: T.Tensor(shape, dtype)):
        with T.Kernel(1, threads=threads):
            t, f = T.alloc_tmem(shape, dtype), T.alloc_fragment(shape, dtype)
            T.copy(A, f)
            T.copy(f, t)
            T.fill(f, -1)
            T.fill(t[where], 9)
            T.copy(t, f)
            T.copy(f, B)

    return kernel


def part(*bounds):
    return tuple(slice(low, high) for low, high in bounds)


@pytest.mark.parametrize(
    ("shape", "where", "dtype", "threads", "columns"),
    [
        ((256, 64), part((128, 256), (0, 64)), "float32", 128, 128),
        ((384, 24), part((128, 384), (8, 16)), "float32", 256, 128),
        ((512, 16), part((0, 512), (4, 8)), "float8_e4m3fn", 256, 32),
        ((2, 256, 16), part((0, 2), (128, 256), (8, 16)), "float32", 128, 64),
        ((2, 3, 128, 8), part((0, 2), (1, 2), (0, 128), (0, 8)), "float32", 128, 64),
        ((2, 3, 64, 16), part((0, 2), (1, 3), (0, 64), (8, 16)), "float32", 128, 128),
    ],
)
@pytest.mark.parametrize("seeds", SWEEP)
def test_all_rows_and_some(shape, where, dtype, threads, columns, seeds):
    """Also parts of further axes, which lie apart from each other."""
    a = numbers(shape, dtype)
    want = a.copy()
    want[where] = 9
    program = run(marked(shape, where, dtype, threads), want, a, seeds=seeds)
    (alloc,) = rows(program, "alloc")
    assert dict(alloc.imm)["columns"] == columns


def test_bands_that_a_loop_names():
    @T.prim_func
    def kernel(A: T.Tensor((384, 16), "float32"), B: T.Tensor((384, 16), "float32")):
        with T.Kernel(1, threads=128):
            t, f = T.alloc_tmem((384, 16), "float32"), T.alloc_fragment((128, 16), "float32")
            for k in T.serial(3):
                T.copy(A[k * 128, 0], f)
                T.copy(f, t[k * 128 : k * 128 + 128, :])
            for k in T.serial(3):
                T.copy(t[(2 - k) * 128 : (3 - k) * 128, :], f)
                T.copy(f, B[(2 - k) * 128, 0])

    a = numbers((384, 16), "float32")
    run(kernel, a, a)


@pytest.mark.parametrize(
    ("rows", "begin", "end", "why"),
    [
        (256, 64, 192, "rows from 64 on begin in the middle of the lanes"),
        (256, 0, 192, "192 of its 256 rows are copied"),
        (200, 0, 128, "200 rows, Tensor Memory has 128"),
    ],
)
def test_rows_that_are_no_whole_bands(rows, begin, end, why):
    assert why in refusal(marked((rows, 32), part((begin, end), (0, 32))))


def test_a_band_that_begins_anywhere():
    @T.prim_func
    def kernel(N: T.Tensor((1,), "int32"), B: T.Tensor((128, 16), "float32")):
        with T.Kernel(1, threads=128):
            t, f = T.alloc_tmem((256, 16), "float32"), T.alloc_fragment((128, 16), "float32")
            T.fill(t, 1)
            low = N[0]
            T.copy(t[low : low + 128, :], f)
            T.copy(f, B)

    assert "begin in the middle of the lanes" in refusal(kernel)


# Views -------------------------------------------------------------------------------------------


def test_each_128_rows_are_a_matrix_of_their_own():
    """(256, n) is (2, 128, n) under another name, and has the same bytes in other elements."""

    @T.prim_func
    def kernel(A: T.Tensor((256, 32), "float32"), B: T.Tensor((256, 64), "bfloat16")):
        with T.Kernel(1, threads=128):
            t, f = T.alloc_tmem((256, 32), "float32"), T.alloc_fragment((128, 32), "float32")
            halves, small = T.reshape(t, (2, 128, 32)), T.view(t, (256, 64), "bfloat16")
            out = T.alloc_fragment((256, 64), "bfloat16")
            for k in T.serial(2):
                T.copy(A[k * 128, 0], f)
                T.copy(f, halves[k, :, :])
            T.copy(small, out)
            T.copy(out, B)

    want = numbers((256, 64))
    run(kernel, want, want.view(np.float32))


def test_a_view_with_other_rows():
    @T.prim_func
    def kernel(B: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            t, f = T.alloc_tmem((256, 16), "float32"), T.alloc_fragment((64, 64), "float32")
            T.copy(T.reshape(t, (64, 64)), f)
            T.copy(f, B)

    assert "has other rows" in refusal(kernel)


# Products ----------------------------------------------------------------------------------------


def gemm(m, n, k, each, types, turned, threads, stages):
    """C = A @ B, `each` of K at a time; `turned` says which operands lie the other way round."""
    ta, tb = ("a" in turned), ("b" in turned)
    dtype, total = types

    @T.prim_func
    def kernel(
        A: T.Tensor((k, m) if ta else (m, k), dtype),
        B: T.Tensor((n, k) if tb else (k, n), dtype),
        C: T.Tensor((m, n), total),
    ):
        with T.Kernel(1, threads=threads):
            a = T.alloc_shared((each, m) if ta else (m, each), dtype)
            b = T.alloc_shared((n, each) if tb else (each, n), dtype)
            c, out = T.alloc_tmem((m, n), total), T.alloc_fragment((m, n), total)
            for i in T.Pipelined(k // each, num_stages=stages):
                if ta:
                    T.copy(A[i * each, 0], a)
                else:
                    T.copy(A[0, i * each], a)
                if tb:
                    T.copy(B[0, i * each], b)
                else:
                    T.copy(B[i * each, 0], b)
                T.gemm(a, b, c, transpose_A=ta, transpose_B=tb, clear_accum=i == 0)
            T.copy(c, out)
            T.copy(out, C)

    return kernel


@pytest.mark.parametrize(
    ("size", "types", "turned", "threads", "stages"),
    [
        ((256, 64, 64, 32), ("float16", "float32"), "", 256, 2),
        ((384, 48, 32, 16), ("float32", "float32"), "b", 128, 1),
        ((256, 32, 64, 32), ("bfloat16", "float32"), "a", 128, 1),
        ((256, 32, 64, 32), ("float8_e4m3fn", "float16"), "b", 128, 2),
        ((256, 16, 40, 20), ("float16", "float32"), "", 128, 1),
    ],
)
@pytest.mark.parametrize("seeds", SWEEP)
def test_products_into_all_rows(size, types, turned, threads, stages, seeds):
    m, n, k, _ = size
    a, b = numbers((m, k), types[0]), numbers((k, n), types[0])
    want = product(a, b, types[1])
    given = (a.T.copy() if "a" in turned else a, b.T.copy() if "b" in turned else b)
    run(gemm(*size, types, turned, threads, stages), want, *given, seeds=seeds)


@pytest.mark.parametrize("loop", [True, False])
def test_products_into_some_rows_and_columns(loop):
    """The second half of the columns, a band at a time; the rest stays."""

    @T.prim_func
    def kernel(
        A: T.Tensor((256, 32), "float16"),
        B: T.Tensor((32, 128), "float16"),
        C: T.Tensor((256, 128), "float32"),
    ):
        with T.Kernel(1, threads=256):
            a, b = T.alloc_shared((256, 32), "float16"), T.alloc_shared((32, 128), "float16")
            c, out = T.alloc_tmem((256, 128), "float32"), T.alloc_fragment((256, 128), "float32")
            bar = T.alloc_barrier(1)
            T.copy(A, a)
            T.copy(B, b)
            T.fill(c, 1)
            for i in T.serial(2) if loop else (0, 1):
                rows = slice(i * 128, i * 128 + 128)
                T.tcgen05_gemm(
                    a[rows, :], b[:, 64:128], c[rows, 64:128], mbar=bar, clear_accum=True
                )
                T.mbarrier_wait_parity(bar, i)
            T.copy(c, out)
            T.copy(out, C)

    a, b = numbers((256, 32), "float16"), numbers((32, 128), "float16")
    want = np.ones((256, 128), np.float32)
    want[:, 64:] = product(a, b[:, 64:])
    run(kernel, want, a, b)


def left(low, high, dtype="bfloat16"):
    """C = A[low:high] @ B, with A in Tensor Memory."""

    @T.prim_func
    def kernel(
        A: T.Tensor((256, 32), dtype),
        B: T.Tensor((32, 64), dtype),
        C: T.Tensor((high - low, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            part, a = T.alloc_fragment((256, 32), dtype), T.alloc_tmem((256, 32), dtype)
            b, c = T.alloc_shared((32, 64), dtype), T.alloc_tmem((high - low, 64), "float32")
            out, bar = T.alloc_fragment((high - low, 64), "float32"), T.alloc_barrier(1)
            T.copy(A, part)
            T.copy(part, a)
            T.copy(B, b)
            T.tcgen05_gemm(a[low:high, :], b, c, mbar=bar, clear_accum=True)
            T.mbarrier_wait_parity(bar, 0)
            T.copy(c, out)
            T.copy(out, C)

    return kernel


@pytest.mark.parametrize(("low", "high"), [(128, 256), (0, 256)])
@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
def test_products_of_rows_in_tensor_memory(low, high, dtype):
    a, b = numbers((256, 32), dtype), numbers((32, 64), dtype)
    program = run(left(low, high, dtype), product(a, b)[low:high], a, b)
    assert all(n.row.endswith(".ts") for n in rows(program, "mma"))


def test_products_of_rows_that_begin_inside_of_the_lanes():
    text = refusal(left(64, 192))
    assert "begin in the middle of the lanes" in text and "rows from 64 on" in text


def of_a_pair(rows, n, by_left):
    """Each block of a pair has `rows` rows; A lies in shared memory, or in Tensor Memory."""

    @T.prim_func
    def kernel(
        A: T.Tensor((2 * rows, 32), "bfloat16"),
        B: T.Tensor((32, n), "bfloat16"),
        C: T.Tensor((2 * rows, n), "float32"),
    ):
        with T.ClusterKernel(2, threads=128, cluster_dims=2):
            rank = T.block_rank_in_cluster()
            b = T.alloc_shared((32, n // 2), "bfloat16")
            out, acc = T.alloc_fragment((rows, n), "float32"), T.alloc_tmem((rows, n), "float32")
            done = T.alloc_cluster_barrier(1)
            T.copy(B[0, rank * (n // 2)], b)
            if by_left:
                part = T.alloc_fragment((rows, 32), "bfloat16")
                a = T.alloc_tmem((rows, 32), "bfloat16")
                T.copy(A[rank * rows, 0], part)
                T.copy(part, a)
            else:
                a = T.alloc_shared((rows, 32), "bfloat16")
                T.copy(A[rank * rows, 0], a)
            T.tcgen05_before_thread_sync()
            T.cluster_sync()
            T.tcgen05_after_thread_sync()
            T.tcgen05_gemm(a, b, acc, mbar=done, clear_accum=True, use_2cta=True)
            T.mbarrier_wait_parity(done, 0)
            T.copy(acc, out)
            T.copy(out, C[rank * rows, 0])

    return kernel


@pytest.mark.parametrize("by_left", [False, True])
@pytest.mark.parametrize("seeds", SWEEP)
def test_pairs_of_blocks_with_more_rows_each(by_left, seeds):
    a, b = numbers((512, 32)), numbers((32, 64))
    run(of_a_pair(256, 64, by_left), product(a, b), a, b, seeds=seeds)


def test_scaled_products_have_128_rows():
    @T.prim_func
    def kernel(
        A: T.Tensor((256, 64), "float8_e4m3fn"),
        B: T.Tensor((64, 64), "float8_e4m3fn"),
        SA: T.Tensor((256, 2), "float8_e8m0fnu"),
        SB: T.Tensor((64, 2), "float8_e8m0fnu"),
    ):
        with T.Kernel(1, threads=128):
            a, b = (T.alloc_shared((n, 64), "float8_e4m3fn") for n in (256, 64))
            sa, sb = (T.alloc_shared((n, 2), "float8_e8m0fnu") for n in (256, 64))
            c = T.alloc_tmem((256, 64), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.copy(SA, sa)
            T.copy(SB, sb)
            T.gemm_blockscaled(
                a,
                b,
                c,
                sa,
                sb,
                transpose_B=True,
                clear_accum=True,
                k_start=0,
                sf_a_granularity_k=32,
                sf_b_granularity_k=32,
            )

    assert "M = 256" in refusal(kernel)


@pytest.mark.skipif(not is_installed(), reason="NVRTC is not installed")
@pytest.mark.parametrize("arch", ["sm_100a", "sm_103a"])
def test_they_become_machine_code(arch):
    target = parse_target(f"cuda -arch={arch}", CHIPS)
    for kernel in (
        marked((384, 24), part((128, 384), (8, 16)), threads=256),
        gemm(256, 64, 64, 32, ("float16", "float32"), "", 256, 2),
        left(128, 256),
        of_a_pair(256, 64, True),
    ):
        assert not compile_source(emit(lower(kernel.ir, target), target).text, arch).warnings
