"""Tensor Memory on a chip that has it: products into it, copies out of it and into it."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilelang.language as T
from blackwell_build import check_blackwell
from blackwell_programs import attention
from gpu_build import gpu_program
from tilelang.ir.thread import Instr, kernels_of

RANDOM = np.random.default_rng(7)


def numbers(*shape, dtype):
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    return RANDOM.integers(0 if dtype == "uint8" else -3, 4, shape).astype(kind)


def rows_of(program) -> list[str]:
    return [n.row for n in program.walk() if isinstance(n, Instr)]


def notes(program) -> list[str]:
    return [text for _, text, _ in dict(program.attrs).get("notes", ())]


def gemm(m, n, k, tiles, *, dtype="float16", total="float32", turn=(False, True), **how):
    """C = op(A) @ op(B) by tiles, accumulated in Tensor Memory."""
    bm, bn, bk = tiles
    ta, tb = turn
    threads, stages = how.get("threads", 128), how.get("stages", 0)

    @T.prim_func
    def kernel(
        A: T.Tensor((k, m) if ta else (m, k), dtype),
        B: T.Tensor((n, k) if tb else (k, n), dtype),
        C: T.Tensor((m, n), total),
    ):
        with T.Kernel(T.ceildiv(n, bn), T.ceildiv(m, bm), threads=threads) as (bx, by):
            a = T.alloc_shared((bk, bm) if ta else (bm, bk), dtype)
            b = T.alloc_shared((bn, bk) if tb else (bk, bn), dtype)
            c = T.alloc_tmem((bm, bn), total)
            out = T.alloc_fragment((bm, bn), total)
            for ko in T.Pipelined(T.ceildiv(k, bk), num_stages=stages):
                if ta:
                    T.copy(A[ko * bk, by * bm], a)
                else:
                    T.copy(A[by * bm, ko * bk], a)
                if tb:
                    T.copy(B[bx * bn, ko * bk], b)
                else:
                    T.copy(B[ko * bk, bx * bn], b)
                T.gemm(a, b, c, transpose_A=ta, transpose_B=tb, clear_accum=ko == 0)
            T.copy(c, out)
            T.copy(out, C[by * bm, bx * bn])

    return kernel


def check(m, n, k, tiles, **how):
    """Runs a product against the emulator; small integers make every sum exact."""
    dtype, (ta, tb) = how.get("dtype", "float16"), how.get("turn", (False, True))
    a = numbers(*((k, m) if ta else (m, k)), dtype=dtype)
    b = numbers(*((n, k) if tb else (k, n)), dtype=dtype)
    c = np.zeros((m, n), how.get("total", "float32"))
    seeds = how.pop("seeds", 1)
    return check_blackwell(gemm(m, n, k, tiles, **how), seeds=seeds, A=a, B=b, C=c)


KINDS = [
    ("float16", "float32", "f16"),
    ("float16", "float16", "f16"),
    ("bfloat16", "float32", "f16"),
    ("float32", "float32", "tf32"),
    ("float8_e4m3fn", "float32", "f8f6f4"),
    ("float8_e5m2", "float16", "f8f6f4"),
    ("int8", "int32", "i8"),
    ("uint8", "int32", "i8"),
]


@pytest.mark.parametrize(("dtype", "total", "kind"), KINDS)
def test_products_of_every_kind(dtype, total, kind):
    program = check(128, 64, 128, (128, 64, 64), dtype=dtype, total=total)
    assert f"tcgen05.mma.{kind}" in rows_of(program)


@pytest.mark.parametrize("turn", [(True, True), (False, False), (True, False)])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_operands_whose_rows_lie_along_the_other_axis(turn, dtype):
    program = check(128, 64, 128, (128, 64, 64), dtype=dtype, turn=turn)
    copied = [n for n in notes(program) if "32-bit elements" in n]
    assert bool(copied) == (dtype == "float32")


@pytest.mark.parametrize(("rows", "columns"), [(64, 8), (64, 96), (128, 48), (128, 272)])
def test_accumulators_of_many_widths(rows, columns):
    check(rows, columns, 32, (rows, columns, 32))


@pytest.mark.parametrize(("m", "n", "k"), [(127, 100, 40), (1, 24, 100), (200, 8, 64)])
def test_ragged_edges(m, n, k):
    check(m, n, k, (128, 48, 32))


@pytest.mark.parametrize("depth", [24, 48, 100])
def test_a_depth_that_no_instruction_divides_is_filled_with_zeros(depth):
    program = check(128, 32, depth, (128, 32, depth))
    assert any("is copied" in n for n in notes(program)) == (depth % 16 != 0)


@pytest.mark.parametrize(("threads", "rows"), [(192, 64), (192, 128), (256, 64), (384, 128)])
def test_any_number_of_warps_copies(threads, rows):
    check(rows, 64, 32, (rows, 64, 32), threads=threads)


@pytest.mark.parametrize(("stages", "depth"), [(0, 96), (2, 32), (2, 160), (3, 160)])
def test_stages_never_change_a_result(stages, depth):
    program = check(128, 64, depth, (128, 32, 32), stages=stages, seeds=3)
    loads = "cp.async.bulk.tensor.2d.load" in rows_of(program)
    assert loads == (stages > 1)


# Products that the author waits for ---------------------------------------------------------------


def issued(how):
    """C = A @ B.T, waited for on the author's mbarrier."""

    @T.prim_func
    def kernel(
        A: T.Tensor((128, 128), "bfloat16"),
        B: T.Tensor((64, 128), "bfloat16"),
        C: T.Tensor((128, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((128, 128), "bfloat16")
            b = T.alloc_shared((64, 128), "bfloat16")
            c = T.alloc_tmem((128, 64), "float32")
            out = T.alloc_fragment((128, 64), "float32")
            bar = T.alloc_barrier(1)
            T.copy(A, a)
            T.copy(B, b)
            how(a, b, c, bar)
            T.copy(c, out)
            T.copy(out, C)

    return kernel


def once(a, b, c, bar):
    T.tcgen05_gemm(a, b, c, transpose_B=True, clear_accum=True, mbar=bar)
    T.mbarrier_wait_parity(bar, 0)


@T.macro
def by_one_thread(a, b, c, bar):
    if T.get_thread_binding() == 0:
        T.tcgen05_gemm(a, b, c, transpose_B=True, clear_accum=True, mbar=bar)
    T.mbarrier_wait_parity(bar, 0)


@T.macro
def arrival_by_a_warp(a, b, c, bar):
    for k in T.serial(2):
        T.tcgen05_gemm(a, b, c, transpose_B=True, clear_accum=k == 0, mbar=None)
    if T.get_thread_binding() < 32:
        T.tcgen05_mma_arrive(bar)
    T.mbarrier_wait_parity(bar, 0)


@T.macro
def parts_along_k(a, b, c, bar):
    for k in T.serial(2):
        left, right = a[:, k * 64 : k * 64 + 64], b[:, k * 64 : k * 64 + 64]
        T.tcgen05_gemm(left, right, c, transpose_B=True, clear_accum=k == 0, mbar=bar)
        T.mbarrier_wait_parity(bar, k % 2)


def unequal_parts(a, b, c, bar):
    T.gemm(a[:, 0:32], b[:, 0:32], c, transpose_B=True, clear_accum=True)
    T.gemm(a[:, 32:128], b[:, 32:128], c, transpose_B=True, mbar=bar)
    T.mbarrier_wait_parity(bar, 0)


@T.macro
def two_parts_of_the_block(a, b, c, bar):
    with T.ws(0):
        T.tcgen05_gemm(a, b, c, transpose_B=True, clear_accum=True, mbar=bar)
    T.mbarrier_wait_parity(bar, 0)


WAYS = [once, by_one_thread, arrival_by_a_warp, parts_along_k, unequal_parts]


@pytest.mark.parametrize("how", [*WAYS, two_parts_of_the_block])
def test_products_complete_on_the_authors_barrier(how):
    a, b = numbers(128, 128, dtype="bfloat16"), numbers(64, 128, dtype="bfloat16")
    program = check_blackwell(issued(how), A=a, B=b, C=np.zeros((128, 64), "float32"))
    assert rows_of(program).count("tcgen05.commit") >= 1


def test_matrices_along_a_further_axis():
    @T.prim_func
    def kernel(
        A: T.Tensor((3, 128, 64), "bfloat16"),
        B: T.Tensor((3, 32, 64), "bfloat16"),
        C: T.Tensor((3, 128, 32), "float32"),
        D: T.Tensor((3, 128, 32), "float32"),
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((3, 128, 64), "bfloat16")
            b = T.alloc_shared((3, 32, 64), "bfloat16")
            c = T.alloc_tmem((3, 128, 32), "float32")
            one, all3 = (T.alloc_fragment(s, "float32") for s in ((128, 32), (3, 128, 32)))
            T.copy(A, a)
            T.copy(B, b)
            for i in T.serial(3):
                T.gemm(a[i, :, :], b[i, :, :], c[i, :, :], transpose_B=True, clear_accum=True)
            for i in T.serial(3):
                T.copy(c[i, :, :], one)
                T.copy(one, C[i, :, :])
            T.copy(c, all3)
            T.copy(all3, D)

    a, b = numbers(3, 128, 64, dtype="bfloat16"), numbers(3, 32, 64, dtype="bfloat16")
    zero = np.zeros((3, 128, 32), "float32")
    check_blackwell(kernel, A=a, B=b, C=zero, D=zero)


@pytest.mark.parametrize("rows", [64, 128])
@pytest.mark.parametrize("depth", [32, 96])
def test_the_left_operand_in_tensor_memory(rows, depth):
    @T.prim_func
    def kernel(
        A: T.Tensor((rows, depth), "bfloat16"),
        B: T.Tensor((depth, 48), "bfloat16"),
        C: T.Tensor((rows, 48), "float32"),
    ):
        with T.Kernel(1, threads=128):
            f = T.alloc_fragment((rows, depth), "bfloat16")
            b = T.alloc_shared((depth, 48), "bfloat16")
            a = T.alloc_tmem((rows, depth), "bfloat16")
            c = T.alloc_tmem((rows, 48), "float32")
            out = T.alloc_fragment((rows, 48), "float32")
            T.copy(A, f)
            T.copy(f, a)
            T.copy(B, b)
            T.gemm(a[:, 0:32], b[0:32, :], c, clear_accum=True)
            if depth > 32:
                T.gemm(a[:, 32:depth], b[32:depth, :], c)
            T.copy(c, out)
            T.copy(out, C)

    a, b = numbers(rows, depth, dtype="bfloat16"), numbers(depth, 48, dtype="bfloat16")
    program = check_blackwell(kernel, A=a, B=b, C=np.zeros((rows, 48), "float32"))
    assert "tcgen05.mma.f16.ts" in rows_of(program)


# Copies -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "dtype", "parts"),
    [
        ((128, 96), "float32", 2),
        ((128, 40), "float16", 1),
        ((64, 64), "float16", 2),
        ((64, 64), "int8", 1),
        ((2, 128, 40), "float32", 2),
    ],
)
def test_what_is_stored_in_parts_is_loaded_as_a_whole(shape, dtype, parts):
    step = shape[-1] // parts

    @T.prim_func
    def kernel(A: T.Tensor(shape, dtype), B: T.Tensor(shape, dtype)):
        with T.Kernel(1, threads=256):
            f, g = T.alloc_fragment(shape, dtype), T.alloc_fragment(shape, dtype)
            s, t = T.alloc_shared(shape, dtype), T.alloc_tmem(shape, dtype)
            T.copy(A, s)
            for k in range(parts):
                if len(shape) == 2:
                    T.copy(s[:, k * step : k * step + step], t[:, k * step : k * step + step])
                else:
                    T.copy(s[:, :, k * step : k * step + step], t[:, :, k * step : k * step + step])
            T.fill(f, 1)
            T.copy(t, g)
            T.copy(g, B)

    a = numbers(*shape, dtype=dtype)
    program = check_blackwell(kernel, A=a, B=np.zeros_like(a))
    loads = [r for r in rows_of(program) if r.startswith("tcgen05.ld.")]
    assert all(("16x256b" in r) == (shape[-2] == 64) for r in loads)


def test_a_fill_goes_through_registers():
    @T.prim_func
    def kernel(C: T.Tensor((128, 64), "float32")):
        with T.Kernel(1, threads=128):
            t, f = T.alloc_tmem((128, 64), "float32"), T.alloc_fragment((128, 64), "float32")
            T.fill(t, 3)
            T.copy(t, f)
            T.copy(f, C)

    check_blackwell(kernel, C=np.zeros((128, 64), "float32"))


# Block-scaled products ----------------------------------------------------------------------------


def scaled(k, tiles, types, grain, *, turned=False):
    """C = A @ B.T, each block of `grain` elements along K multiplied by its scale."""
    bm, bn, bk = tiles
    dtype, scale = types

    @T.prim_func
    def kernel(
        A: T.Tensor((bm, k), dtype),
        B: T.Tensor((k, bn) if turned else (bn, k), dtype),
        SA: T.Tensor((bm, k // grain), scale),
        SB: T.Tensor((bn, k // grain), scale),
        C: T.Tensor((bm, bn), "float32"),
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((bm, bk), dtype)
            b = T.alloc_shared((bk, bn) if turned else (bn, bk), dtype)
            sa = T.alloc_shared((bm, k // grain), scale)
            sb = T.alloc_shared((bn, k // grain), scale)
            c, out = T.alloc_tmem((bm, bn), "float32"), T.alloc_fragment((bm, bn), "float32")
            T.copy(SA, sa)
            T.copy(SB, sb)
            for ko in T.serial(k // bk):
                T.copy(A[0, ko * bk], a)
                if turned:
                    T.copy(B[ko * bk, 0], b)
                else:
                    T.copy(B[0, ko * bk], b)
                T.gemm_blockscaled(
                    a,
                    b,
                    c,
                    sa,
                    sb,
                    transpose_B=not turned,
                    clear_accum=ko == 0,
                    k_start=ko * bk,
                    sf_a_granularity_k=grain,
                    sf_b_granularity_k=grain,
                )
            T.copy(c, out)
            T.copy(out, C)

    return kernel


def scales(n, count, dtype):
    values = np.array([0.5, 1, 2, 4], "float32")[RANDOM.integers(0, 4, (n, count))]
    if dtype == "uint8":
        return values.astype(ml_dtypes.float8_e8m0fnu).view(np.uint8)
    return values.astype(getattr(ml_dtypes, dtype))


E8M0 = "float8_e8m0fnu"


@pytest.mark.parametrize(
    ("k", "tiles", "types", "grain", "row"),
    [
        (128, (128, 32, 128), ("float8_e4m3fn", E8M0), 32, "mxf8f6f4.scale_1X"),
        (192, (128, 144, 64), ("float8_e5m2", "uint8"), 64, "mxf8f6f4.scale_1X"),
        (64, (128, 48, 64), ("float4_e2m1fn", E8M0), 32, "mxf4.scale_2X"),
        (128, (128, 32, 64), ("float4_e2m1fn", "float8_e4m3fn"), 16, "mxf4nvf4.scale_4X"),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_block_scaled_products(k, tiles, types, grain, row, turned):
    bm, bn, _ = tiles
    program = check_blackwell(
        scaled(k, tiles, types, grain, turned=turned),
        A=numbers(bm, k, dtype=types[0]),
        B=numbers(*((k, bn) if turned else (bn, k)), dtype=types[0]),
        SA=scales(bm, k // grain, types[1]),
        SB=scales(bn, k // grain, types[1]),
        C=np.zeros((bm, bn), "float32"),
    )
    assert f"tcgen05.mma.{row}" in rows_of(program)


# Pipelines ----------------------------------------------------------------------------------------


def test_one_warp_copies_and_one_multiplies():
    program = check(128, 64, 256, (128, 64, 64), stages=3)
    (kernel,) = kernels_of(program)
    assert kernel.block == (256,)
    waits = [n for n in kernel.walk() if isinstance(n, Instr) and "try_wait" in n.row]
    assert len(waits) == 4  # of the copies, of the products (2), and of those who use the result


def test_products_of_loops_that_are_reached_again():
    @T.prim_func
    def kernel(
        A: T.Tensor((512, 96), "float16"),
        B: T.Tensor((48, 96), "float16"),
        C: T.Tensor((512, 48), "float32"),
    ):
        with T.Kernel(2, threads=128) as bx:
            a, b = T.alloc_shared((128, 32), "float16"), T.alloc_shared((48, 32), "float16")
            c, out = T.alloc_tmem((128, 48), "float32"), T.alloc_fragment((128, 48), "float32")
            for tile in T.serial(2):
                for k in T.Pipelined(3, num_stages=2):
                    T.copy(A[(tile * 2 + bx) * 128, k * 32], a)
                    T.copy(B[0, k * 32], b)
                    T.gemm(a, b, c, transpose_B=True, clear_accum=k == 0)
                T.copy(c, out)
                T.copy(out, C[(tile * 2 + bx) * 128, 0])

    a, b = numbers(512, 96, dtype="float16"), numbers(48, 96, dtype="float16")
    program = check_blackwell(kernel, A=a, B=b, C=np.zeros((512, 48), "float32"))
    assert any("stages of tensor copies" in n for n in notes(program))


@pytest.mark.parametrize("stages", [0, 2])
@pytest.mark.parametrize("late", [False, True])
def test_a_tile_is_given_back_after_the_wait_of_the_author(stages, late):
    @T.prim_func
    def kernel(
        A: T.Tensor((128, 256), "float16"),
        B: T.Tensor((32, 256), "float16"),
        C: T.Tensor((128, 32), "float32"),
    ):
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((128, 64), "float16"), T.alloc_shared((32, 64), "float16")
            c, out = T.alloc_tmem((128, 32), "float32"), T.alloc_fragment((128, 32), "float32")
            bar = T.alloc_barrier(1)
            for k in T.Pipelined(4, num_stages=stages):
                if late and k > 0:
                    T.mbarrier_wait_parity(bar, (k - 1) % 2)
                T.copy(A[0, k * 64], a)
                T.copy(B[0, k * 64], b)
                T.tcgen05_gemm(a, b, c, transpose_B=True, clear_accum=k == 0, mbar=bar)
                if not late:
                    T.mbarrier_wait_parity(bar, k % 2)
            if late:
                T.mbarrier_wait_parity(bar, 1)
            T.copy(c, out)
            T.copy(out, C)

    a, b = numbers(128, 256, dtype="float16"), numbers(32, 256, dtype="float16")
    program = check_blackwell(kernel, A=a, B=b, C=np.zeros((128, 32), "float32"))
    if stages:
        declined = [n for n in notes(program) if "is not waited for in its round" in n]
        assert bool(declined) == late


@pytest.mark.parametrize(("deep", "each"), [(64, 16), (128, 32)])
def test_slices_within_a_swizzled_row_at_the_place_of_a_loop(deep, each):
    @T.prim_func
    def kernel(
        A: T.Tensor((128, deep), "bfloat16"),
        B: T.Tensor((64, deep), "bfloat16"),
        C: T.Tensor((128, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((128, deep), "bfloat16"), T.alloc_shared((64, deep), "bfloat16")
            c, out = T.alloc_tmem((128, 64), "float32"), T.alloc_fragment((128, 64), "float32")
            done = T.alloc_barrier(1)
            T.copy(A, a)
            T.copy(B, b)
            for k in T.serial(0, deep, each):
                left, right = a[:, k : k + each], b[:, k : k + each]
                T.tcgen05_gemm(left, right, c, transpose_B=True, mbar=done, clear_accum=k == 0)
                T.mbarrier_wait_parity(done, k // each % 2)
            T.copy(c, out)
            T.copy(out, C)

    a, b = numbers(128, deep, dtype="bfloat16"), numbers(64, deep, dtype="bfloat16")
    check_blackwell(kernel, A=a, B=b, C=np.zeros((128, 64), "f4"))


def test_attention_multiplies_from_tensor_memory():
    program = gpu_program(attention(128, 64).ir, "sm_100a")
    assert {"tcgen05.mma.f16", "tcgen05.mma.f16.ts"} <= set(rows_of(program))
