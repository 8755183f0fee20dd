"""Products, pipelines and roles for many threads, against the emulator: neither the instruction nor
the schedule changes a result.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilelang.language as T
from gpu_build import check_gpu
from tilelang.ir.thread import Instr, kernels_of
from tilelang.ir.tile import For

RANDOM = np.random.default_rng(1)
SUMS = {"int8": "int32", "uint8": "int32", "float64": "float64"}


def numbers(*shape, dtype):
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    low = 0 if dtype == "uint8" else -3
    return RANDOM.integers(low, 4, shape).astype(kind)


def rows_of(program) -> set[str]:
    return {n.row for n in program.walk() if isinstance(n, Instr)}


def notes(program) -> list[str]:
    return [text for _, text, _ in dict(program.attrs).get("notes", ())]


def gemm(m, n, k, tiles, *, dtype="float16", turn=(False, True), stages=2, threads=128, more=None):
    """C = op(A) @ op(B) by tiles; `turn` says which operand lies transposed."""
    bm, bn, bk = tiles
    total = SUMS.get(dtype, "float32")
    ta, tb = turn

    @T.prim_func
    def kernel(
        A: T.Tensor((k, m) if ta else (m, k), dtype),
        B: T.Tensor((n, k) if tb else (k, n), dtype),
        C: T.Tensor((m, n), total),
    ):
        with T.Kernel(T.ceildiv(n, bn), T.ceildiv(m, bm), threads=threads) as (bx, by):
            if more is not None:
                more()
            a = T.alloc_shared((bk, bm) if ta else (bm, bk), dtype)
            b = T.alloc_shared((bn, bk) if tb else (bk, bn), dtype)
            c = T.alloc_fragment((bm, bn), total)
            T.clear(c)
            for ko in T.Pipelined(T.ceildiv(k, bk), num_stages=stages):
                if ta:
                    T.copy(A[ko * bk, by * bm], a)
                else:
                    T.copy(A[by * bm, ko * bk], a)
                if tb:
                    T.copy(B[bx * bn, ko * bk], b)
                else:
                    T.copy(B[ko * bk, bx * bn], b)
                T.gemm(a, b, c, transpose_A=ta, transpose_B=tb)
            T.copy(c, C[by * bm, bx * bn])

    return kernel


def check(m, n, k, tiles, *, arch="sm_90a", **how):
    """Runs a product against the emulator; small integers make every sum exact."""
    dtype, (ta, tb) = how.get("dtype", "float16"), how.get("turn", (False, True))
    fn = gemm(m, n, k, tiles, **how)
    a = numbers(*((k, m) if ta else (m, k)), dtype=dtype)
    b = numbers(*((n, k) if tb else (k, n)), dtype=dtype)
    c = np.zeros((m, n), SUMS.get(dtype, "float32"))
    return check_gpu(fn, arch=arch, A=a, B=b, C=c)


TYPES = {
    "float16": "mma.m16n8k16.f32.f16.f16.f32",
    "bfloat16": "mma.m16n8k16.f32.bf16.bf16.f32",
    "float32": "mma.m16n8k8.f32.tf32.tf32.f32",
    "float64": "mma.m8n8k4.f64.f64.f64.f64",
    "int8": "mma.m16n8k32.s32.s8.s8.s32",
    "uint8": "mma.m16n8k32.s32.u8.u8.s32",
}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("turn", [(False, True), (True, False)])
def test_products_of_warps_of_every_type_and_layout(dtype, turn):
    program = check(48, 40, 64, (32, 32, 32), dtype=dtype, turn=turn, arch="sm_80")
    assert TYPES[dtype] in rows_of(program)
    assert "wgmma.fence" not in rows_of(program)


@pytest.mark.parametrize(
    ("tiles", "threads"),
    [((24, 40, 20), 128), ((32, 24, 16), 96), ((16, 8, 8), 32), ((48, 96, 16), 384)],
)
def test_products_of_odd_tiles(tiles, threads):
    check(70, 52, 36, tiles, threads=threads, arch="sm_80")


def test_eight_bit_floats_need_a_chip_that_multiplies_them():
    fast = check(32, 32, 64, (32, 32, 32), dtype="float8_e4m3fn", arch="sm_90a")
    slow = check(32, 32, 64, (32, 32, 32), dtype="float8_e4m3fn", arch="sm_80")
    assert "mma.m16n8k32.f32.e4m3.e4m3.f32" in rows_of(fast)
    assert any("no products of 8-bit floats" in n for n in notes(slow))


@pytest.mark.parametrize("turn", [(a, b) for a in (False, True) for b in (False, True)])
def test_products_of_warpgroups(turn):
    program = check(128, 136, 136, (128, 64, 64), turn=turn, threads=256)
    assert "wgmma.m64n64k16.f32.f16.f16" in rows_of(program)
    assert "cp.async.bulk.tensor.2d.load" in rows_of(program)
    assert [k.block for k in kernels_of(program)] == [(384,)]


@pytest.mark.parametrize(
    ("dtype", "row"),
    [
        ("bfloat16", "wgmma.m64n64k16.f32.bf16.bf16"),
        ("float32", "wgmma.m64n64k8.f32.tf32.tf32"),
        ("int8", "wgmma.m64n64k32.s32.s8.s8"),
        ("float8_e4m3fn", "wgmma.m64n64k32.f32.e4m3.e4m3"),
    ],
)
def test_products_of_warpgroups_of_every_type(dtype, row):
    assert row in rows_of(check(64, 64, 128, (64, 64, 64), dtype=dtype))


@pytest.mark.parametrize("stages", [0, 2, 3, 4])
@pytest.mark.parametrize("trips", [0, 1, 5])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_stages_never_change_a_result(stages, trips, arch):
    depth = T.dynamic("depth")

    @T.prim_func
    def kernel(
        A: T.Tensor((depth, 64, 64), "float16"),
        B: T.Tensor((depth, 64, 64), "float16"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for k in T.Pipelined(depth, num_stages=stages):
                T.copy(A[k, 0:64, 0:64], a)
                T.copy(B[k, 0:64, 0:64], b)
                T.gemm(a, b, c, transpose_B=True)
            T.copy(c, C)

    a, b = (numbers(trips, 64, 64, dtype="float16") for _ in range(2))
    c = np.zeros((64, 64), np.float32)
    program = check_gpu(kernel, arch=arch, A=a, B=b, C=c, depth=trips)
    bulk = "cp.async.bulk.tensor.3d.load" in rows_of(program)
    assert bulk == (arch == "sm_90a" and stages > 1)
    assert ("cp.async.cg.16" in rows_of(program)) == (arch == "sm_80" and stages > 1)


@pytest.mark.parametrize("stages", [2, 3])
def test_a_round_of_a_pipeline_has_one_barrier(stages):
    program = check(64, 64, 160, (32, 32, 32), stages=stages, arch="sm_80")
    loops = [n for n in program.walk() if isinstance(n, For) and len(n.body) > 4]
    inside = [n for n in loops[-1].walk() if isinstance(n, Instr) and n.row == "barrier.sync"]
    assert len(inside) == 1


def test_a_tile_that_is_changed_after_it_was_copied_is_pipelined_without_tensor_copies():
    @T.prim_func
    def kernel(A: T.Tensor((4, 64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for k in T.Pipelined(4, num_stages=3):
                T.copy(A[k, 0:64, 0:64], a)
                for i, j in T.Parallel(64, 64):
                    a[i, j] = T.if_then_else(j > i, T.float16(0), a[i, j])
                T.gemm(a, a, c, transpose_B=True)
            T.copy(c, C)

    a = numbers(4, 64, 64, dtype="float16")
    program = check_gpu(kernel, A=a, C=np.zeros((64, 64), np.float32))
    assert any("is written after it is copied" in n for n in notes(program))
    assert any("stages with cp.async" in n for n in notes(program))


def test_what_the_loop_writes_is_not_copied_ahead():
    @T.prim_func
    def kernel(A: T.Tensor((5, 64), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            s = T.alloc_shared((64,), "float32")
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[k, 0:64], s)
                for i in T.Parallel(64):
                    A[k + 1, i] = s[i] * 2 + 1
            T.copy(A[4, 0:64], B)

    a = RANDOM.normal(size=(5, 64)).astype(np.float32)
    program = check_gpu(kernel, arch="sm_80", A=a, B=np.zeros(64, np.float32))
    assert any("A is written in the loop" in n for n in notes(program))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("rows", "threads", "arch"), [(64, 128, "sm_90a"), (32, 64, "sm_80")])
def test_attention_keeps_its_scores_in_registers(causal, rows, threads, arch):
    size, depth, columns = 128, 64, 64
    scale = 0.18

    @T.prim_func
    def kernel(
        Q: T.Tensor((size, depth), "float16"),
        K: T.Tensor((size, depth), "float16"),
        V: T.Tensor((size, depth), "float16"),
        O: T.Tensor((size, depth), "float16"),
    ):
        with T.Kernel(T.ceildiv(size, rows), threads=threads) as bx:
            q = T.alloc_shared((rows, depth), "float16")
            k = T.alloc_shared((columns, depth), "float16")
            v = T.alloc_shared((columns, depth), "float16")
            s = T.alloc_fragment((rows, columns), "float32")
            p = T.alloc_fragment((rows, columns), "float16")
            o = T.alloc_fragment((rows, depth), "float32")
            m = T.alloc_fragment((rows,), "float32")
            before = T.alloc_fragment((rows,), "float32")
            part = T.alloc_fragment((rows,), "float32")
            total = T.alloc_fragment((rows,), "float32")
            T.copy(Q[bx * rows, 0], q)
            T.clear(o)
            T.clear(total)
            T.fill(m, -T.infinity("float32"))
            last = T.ceildiv((bx + 1) * rows, columns) if causal else size // columns
            for step in T.Pipelined(last, num_stages=2):
                T.copy(K[step * columns, 0], k)
                for i, j in T.Parallel(rows, columns):
                    seen = step * columns + j <= bx * rows + i if causal else True
                    s[i, j] = T.if_then_else(seen, 0, -T.infinity("float32"))
                T.gemm(q, k, s, transpose_B=True)
                T.copy(m, before)
                T.reduce_max(s, m, dim=1, clear=False)
                for i, j in T.Parallel(rows, columns):
                    s[i, j] = T.exp2((s[i, j] - m[i]) * scale)
                T.reduce_sum(s, part, dim=1)
                for i in T.Parallel(rows):
                    total[i] = total[i] * T.exp2((before[i] - m[i]) * scale) + part[i]
                for i, j in T.Parallel(rows, depth):
                    o[i, j] *= T.exp2((before[i] - m[i]) * scale)
                T.copy(s, p)
                T.copy(V[step * columns, 0], v)
                T.gemm(p, v, o)
            for i, j in T.Parallel(rows, depth):
                O[bx * rows + i, j] = o[i, j] / total[i]

    q, k, v = (RANDOM.normal(size=(size, depth)).astype(np.float16) for _ in range(3))
    out = np.zeros((size, depth), np.float16)
    program = check_gpu(kernel, arch=arch, rtol=2e-2, atol=2e-3, Q=q, K=k, V=v, O=out)
    assert not any("goes through shared memory" in n for n in notes(program))
    rows_found = rows_of(program)
    assert ("wgmma.m64n64k16.f32.f16.f16.rs" in rows_found) == (arch == "sm_90a")


@pytest.mark.parametrize("threads", [256, 384, 512, 768])
def test_warpgroups_ask_for_no_more_registers_than_their_block_has(threads):
    """`setmaxnreg.inc` waits until the block has them, which may be for ever."""
    program = check(threads, 64, 64, (threads, 64, 32), threads=threads)
    (kernel,) = kernels_of(program)
    asked = [dict(n.imm) for n in kernel.walk() if isinstance(n, Instr) and n.row == "setmaxnreg"]
    wanted = {x["step"]: x["registers"] for x in asked}
    every = threads + 128
    assert wanted["inc"] * threads + wanted["dec"] * 128 <= 65536 // every // 8 * 8 * every


@pytest.mark.parametrize("grid", [(3, 4), (5, 2), (1, 1)])
@pytest.mark.parametrize("order", ["row", "column"])
def test_a_swizzled_grid_visits_every_tile(grid, order):
    m, n = grid[1] * 32 - 7, grid[0] * 32 - 3
    program = check(
        m, n, 32, (32, 32, 32), arch="sm_80", more=lambda: T.use_swizzle(2, order=order)
    )
    assert f"in panels of 2 {order}s" in notes(program)


def test_results_are_stored_in_groups_of_sixteen_bytes():
    program = check(128, 128, 64, (128, 128, 64), threads=256)
    assert "C is stored through shared memory" in notes(program)
    (kernel,) = kernels_of(program)
    assert kernel.shared <= 128 * 128 * 4 + 4096  # where the tiles of the loop were
