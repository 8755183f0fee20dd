"""Tile sizes that are recommended: they fit and divide, the best of them are no worse on the model,
and kernels of them are right.
"""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from adapter_programs import AUTO
from tilelang import carver
from tilelang.errors import TileError, TileTypeError, TileValueError
from tilelang.targets.ascend.machine import ASCEND910B

Ascend = carver.arch.ascend.Ascend


def hints(M, N, K, topk=10_000, dtype="float16", chip=None, **settings):
    arch = Ascend() if chip is None else Ascend(chip_name=chip)
    made = carver.MatmulTemplate(M=M, N=N, K=K, in_dtype=dtype, **settings)
    return made.with_arch(arch).recommend_hints(topk)


@pytest.mark.parametrize(("M", "N", "K"), [(1024, 1024, 1024), (48, 4096, 160), (16, 16, 16)])
@pytest.mark.parametrize(
    ("dtype", "size", "sums"), [("float16", 2, "float16"), ("int8", 1, "int32")]
)
@pytest.mark.parametrize("chip", ["Ascend910B", "Ascend950"])
def test_tiles_divide_the_product_and_fit(M, N, K, dtype, size, sums, chip):
    arch = Ascend(chip_name=chip)
    found = hints(M, N, K, dtype=dtype, chip=chip, accum_dtype=sums)
    assert bool(found) == (dtype == "float16" or K > 16)
    for h in found:
        (m, n), (k,) = h.block, h.rstep
        assert M % m == N % n == K % k == m % 16 == n % 16 == 0
        assert k * size % 32 == 0  # a fractal has rows of 32 bytes
        assert h.pipeline_stage * (m + n) * k * size <= arch.l1_cap == 512 * 1024
        assert 4 * m * n <= arch.l0c_cap
    assert [h.cycles for h in found] == sorted(h.cycles for h in found)
    assert hints(M, N, K, 3, dtype, chip, accum_dtype=sums) == found[:3]


def test_a_tile_that_leaves_cores_idle_or_loads_twice_as_often_ranks_lower():
    found = {(*h.block, *h.rstep): h.cycles for h in hints(4096, 4096, 4096)}
    best = min(found, key=lambda tile: found[tile])
    assert best[0] * best[1] >= 128 * 128
    assert found[64, 64, 64] > 1.5 * found[best]
    small = {(*h.block, *h.rstep): h.cycles for h in hints(256, 256, 1024)}
    assert small[64, 64, 64] < small[256, 128, 64]  # 16 cores rather than 2


def test_numbers_are_those_of_the_chip_s_table():
    arch = Ascend()
    assert (arch.platform, arch.chip_name, arch.compute_max_core) == ("ascend", "Ascend910B", 24)
    for memory, capacities in ASCEND910B.memories.items():
        name = f"{memory.name.lower()}_cap"
        assert not hasattr(arch, name) or getattr(arch, name) == capacities[0].amount
    assert (arch.ub_cap, arch.l0c_cap) == (192 * 1024, 128 * 1024)
    assert Ascend(chip_name="Ascend950").l0c_cap == 256 * 1024


def test_kernels_of_hints_are_right():
    M, N, K = 96, 64, 160
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, s).astype(np.float16) for s in ((M, K), (K, N)))

    def product(rows, columns, step):
        @T.prim_func
        def kernel(
            A: T.Tensor((M, K), "float16"),
            B: T.Tensor((K, N), "float16"),
            C: T.Tensor((M, N), "float"),
        ):
            with T.Kernel(M // rows * (N // columns), is_npu=True) as (cid, _):
                x, y = cid // (N // columns), cid % (N // columns)
                p, q = (
                    T.alloc_shared((rows, step), "float16"),
                    T.alloc_shared((step, columns), "float16"),
                )
                c = T.alloc_fragment((rows, columns), "float")
                for k in T.serial(K // step):
                    T.copy(A[x * rows, k * step], p)
                    T.copy(B[k * step, y * columns], q)
                    T.gemm_v0(p, q, c, init=k == 0)
                T.copy(c, C[x * rows, y * columns])

        return tilelang.compile(kernel, out_idx=[2], pass_configs=AUTO)

    found = hints(M, N, K)
    for h in (*found[:2], found[len(found) // 2], found[-1]):
        np.testing.assert_array_equal(product(*h.block, *h.rstep)(a, b), a.astype("f4") @ b)


@pytest.mark.parametrize(
    ("made", "cls", "words"),
    [
        (lambda: Ascend(chip_name="Ascend310P"), TileValueError, "no numbers of the chip"),
        (lambda: hints(0, 16, 16), TileValueError, "M is the size of an axis"),
        (lambda: hints(16, 16.0, 16), TileValueError, "N is the size of an axis"),
        (lambda: hints(16, 16, 16, dtype="float64"), TileTypeError, "no product of these types"),
        (lambda: hints(16, 16, 32, dtype="int8"), TileTypeError, "no product of these types"),
        (
            lambda: carver.MatmulTemplate(16, 16, 16).with_arch("cuda"),
            TileTypeError,
            "Ascend chips",
        ),
        (lambda: carver.MatmulTemplate(16, 16, 16).recommend_hints(), TileError, "has no chip"),
        (lambda: carver.arch.CUDA("cuda"), TileError, "CUDA is not built"),
    ],
)
def test_what_has_no_hints_is_refused(made, cls, words):
    with pytest.raises(cls, match=words):
        made()


def test_no_hint_where_no_tile_divides():
    assert hints(17, 64, 64) == []
