"""Products of tcgen05 by two blocks of a cluster: each has its rows of A and of C, and half
of B; the first issues for both.
"""

import ml_dtypes
import numpy as np
import pytest

import tilelang.language as T
from blackwell_build import check_blackwell
from blackwell_programs import pair
from gpu_build import gpu_program
from tilelang.errors import TileError
from tilelang.ir.thread import Instr
from tilelang.isa.target import parse_target
from tilelang.targets import CHIPS
from tilelang.targets.cuda.nvrtc import compile_source, is_installed
from tilelang.targets.cuda.program import emit

RANDOM = np.random.default_rng(11)


def numbers(*shape, dtype):
    return RANDOM.integers(-3, 4, shape).astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))


@pytest.mark.parametrize(
    ("m", "n", "k", "tiles", "more"),
    [
        (256, 64, 96, (128, 64, 32), {}),
        (256, 64, 96, (128, 64, 32), {"turned": True}),
        (128, 128, 64, (64, 128, 32), {"turned": True}),
        (128, 64, 64, (64, 64, 32), {"dtype": "float16"}),
        (512, 32, 64, (128, 32, 32), {"cluster": 4}),
        (256, 64, 128, (128, 64, 64), {"dtype": "float8_e4m3fn", "turned": True}),
    ],
)
def test_two_blocks_multiply_as_a_pair(m, n, k, tiles, more):
    dtype, turned = more.get("dtype", "bfloat16"), more.get("turned", False)
    program = check_blackwell(
        pair(m, n, k, tiles, **more),
        seeds=2,
        A=numbers(m, k, dtype=dtype),
        B=numbers(*((n, k) if turned else (k, n)), dtype=dtype),
        C=np.zeros((m, n), "f4"),
    )
    rows = {x.row for x in program.walk() if isinstance(x, Instr)}
    ours = {r for r in rows if r.startswith(("tcgen05.mma", "tcgen05.alloc", "tcgen05.commit"))}
    assert all(".cta2" in r for r in ours)
    assert {"cp.async.bulk.tensor.2d.load.cta2", "tcgen05.commit.cta2.multicast"} <= rows


@pytest.mark.skipif(not is_installed(), reason="NVRTC is not installed")
@pytest.mark.parametrize("arch", ["sm_100a", "sm_103a"])
def test_machine_code_of_a_pair(arch):
    target = parse_target(f"cuda -arch={arch}", CHIPS)
    program = gpu_program(pair(512, 128, 512, (128, 128, 64), stages=3).ir, target=target)
    made = compile_source(emit(program, target).text, arch)
    assert not made.warnings
    assert all(r.spill_stores == 0 for r in made.resources.values())


def test_the_left_operands_of_a_pair_lie_in_tensor_memory():
    @T.prim_func
    def kernel(
        A: T.Tensor((256, 64), "float16"),
        B: T.Tensor((64, 64), "float16"),
        C: T.Tensor((256, 64), "float32"),
    ):
        with T.ClusterKernel(2, threads=128, cluster_dims=2) as bx:
            f, out = T.alloc_fragment((128, 64), "float16"), T.alloc_fragment((128, 64), "float32")
            b = T.alloc_shared((32, 64), "float16")
            a, c = T.alloc_tmem((128, 64), "float16"), T.alloc_tmem((128, 64), "float32")
            done = T.alloc_cluster_barrier([1])
            ready = T.alloc_cluster_barrier([256])
            T.copy(A[bx * 128, 0], f)
            T.copy(f, a)
            T.copy(B[bx * 32, 0], b)
            T.fence_proxy_async()
            T.mbarrier_arrive(ready, 0)
            if T.block_rank_in_cluster() == 0:
                T.mbarrier_wait_parity(ready, 0)
                T.tcgen05_gemm(
                    a, b, c, transpose_B=True, mbar=done, use_2cta=True, clear_accum=True
                )
            T.mbarrier_wait_parity(done, 0)
            T.copy(c, out)
            T.copy(out, C[bx * 128, 0])

    program = check_blackwell(
        kernel,
        seeds=2,
        A=numbers(256, 64, dtype="float16"),
        B=numbers(64, 64, dtype="float16"),
        C=np.zeros((256, 64), "f4"),
    )
    assert "tcgen05.mma.cta2.f16.ts" in {n.row for n in program.walk() if isinstance(n, Instr)}


def begun(rows, columns, block):
    """Tiles, dealt out to pairs of blocks."""
    tiles = T.PersistentTileScheduler(rows, columns, cluster_size=2)
    tiles.init(block // 2)
    return tiles


def test_pairs_that_stay_and_take_tiles_in_turn():
    m, n, k, bm, bn, bk, stages = 512, 64, 64, 128, 32, 32, 2

    @T.prim_func
    def kernel(
        A: T.Tensor((m, k), "bfloat16"),
        B: T.Tensor((n, k), "bfloat16"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.ClusterKernel(2, threads=256, cluster_dims=2) as block:
            a = T.alloc_shared((stages, bm, bk), "bfloat16")
            b = T.alloc_shared((stages, bn // 2, bk), "bfloat16")
            c = T.alloc_tmem((2, bm, bn), "float32")
            out = T.alloc_fragment((bm, bn), "float32")
            loaded = T.alloc_cluster_barrier([32 * 2] * stages)
            consumed = T.alloc_cluster_barrier([1] * stages)
            full = T.alloc_cluster_barrier([1] * 2)
            empty = T.alloc_cluster_barrier([128 * 2] * 2)
            tx = T.get_thread_binding()
            cta = T.block_rank_in_cluster()
            if tx < 32:
                tiles = begun(m // bm, n // bn, block)
                while tiles.valid():
                    for ko in T.serial(k // bk):
                        now = tiles.current_iter * (k // bk) + ko
                        s = now % stages
                        T.mbarrier_wait_parity(consumed[s], now // stages % 2 ^ 1)
                        row, column = (
                            (tiles.m_idx * 2 + cta) * bm,
                            (tiles.n_idx * 2 + cta) * bn // 2,
                        )
                        T.tma_copy(A[row, ko * bk], a[s, :, :], barrier=loaded[s])
                        T.tma_copy(B[column, ko * bk], b[s, :, :], barrier=loaded[s])
                        T.mbarrier_arrive(loaded[s], 0)
                    tiles.next_tile()
            elif tx < 64 and cta == 0:
                tiles = begun(m // bm, n // bn, block)
                while tiles.valid():
                    turn = tiles.current_iter % 2
                    T.mbarrier_wait_parity(empty[turn], tiles.current_iter // 2 % 2 ^ 1)
                    for ko in T.serial(k // bk):
                        now = tiles.current_iter * (k // bk) + ko
                        s = now % stages
                        T.mbarrier_wait_parity(loaded[s], now // stages % 2)
                        T.tcgen05_gemm(
                            a[s, :, :],
                            b[s, :, :],
                            c[turn, :, :],
                            transpose_B=True,
                            mbar=consumed[s],
                            clear_accum=ko == 0,
                            use_2cta=True,
                        )
                    T.tcgen05_mma_arrive(full[turn], arrive_2cta=True)
                    tiles.next_tile()
            elif tx >= 128:
                tiles = begun(m // bm, n // bn, block)
                while tiles.valid():
                    turn = tiles.current_iter % 2
                    T.mbarrier_wait_parity(full[turn], tiles.current_iter // 2 % 2)
                    T.copy(c[turn, :, :], out)
                    T.copy(out, C[(tiles.m_idx * 2 + cta) * bm, tiles.n_idx * bn])
                    T.mbarrier_arrive(empty[turn], 0)
                    tiles.next_tile()

    check_blackwell(
        kernel,
        seeds=2,
        A=numbers(m, k, dtype="bfloat16"),
        B=numbers(n, k, dtype="bfloat16"),
        C=np.zeros((m, n), "f4"),
    )


def refusal(fn) -> str:
    with pytest.raises(TileError) as caught:
        gpu_program(fn.ir, "sm_100a")
    return str(caught.value)


def test_a_pair_needs_a_cluster_of_two():
    text = refusal(pair(256, 64, 96, (128, 64, 32), cluster=1))
    assert "a product of two blocks, in a cluster of 1" in text
    assert "cluster_dims=2" in text


@pytest.mark.parametrize("columns", [48, 288])
def test_the_columns_of_a_pair(columns):
    text = refusal(pair(256, columns, 96, (128, columns, 32), turned=True))
    assert f"N = {columns}" in text and "a multiple of 32, of at most 256 columns" in text


def test_products_of_one_block_beside_those_of_two():
    @T.prim_func
    def kernel(A: T.Tensor((128, 64), "float16"), B: T.Tensor((32, 64), "float16")):
        with T.ClusterKernel(2, threads=128, cluster_dims=2):
            a, b = T.alloc_shared((128, 64), "float16"), T.alloc_shared((32, 64), "float16")
            c, d = T.alloc_tmem((128, 64), "float32"), T.alloc_tmem((128, 32), "float32")
            bar = T.alloc_cluster_barrier([1])
            T.copy(A, a)
            T.copy(B, b)
            T.cluster_sync()
            T.tcgen05_gemm(a, b, c, transpose_B=True, mbar=bar, use_2cta=True, clear_accum=True)
            T.mbarrier_wait_parity(bar, 0)
            T.gemm(a, b, d, transpose_B=True, clear_accum=True)

    assert "a product of one block in a kernel that has products of two" in refusal(kernel)
