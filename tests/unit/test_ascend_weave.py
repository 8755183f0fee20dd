"""Two loops of different cores that meet in every round become one, or are refused by name."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from adapter_programs import AUTO
from tilelang.errors import TileError
from tilelang.simulator.machine import Schedule

N, ROUNDS = 32, 3
HALF = "float16"


def by_cube(rounds=ROUNDS, second=ROUNDS, *, answers=True, region=False, shift=0, twice=False):
    """`B[i] = (A[i] @ A[i] + 1) @ A[i]`: products on one core, the sum on the other."""

    @T.prim_func
    def kernel(
        A: T.Tensor((ROUNDS, N, N), HALF),
        B: T.Tensor((ROUNDS, N, N), "float32"),
        there: T.Tensor((ROUNDS, N, N), "float32"),
        back: T.Tensor((N, N), HALF),
    ):
        with T.Kernel(1, is_npu=True) as (_cid, vid):
            a = T.alloc_L1((N, N), HALF)
            p = T.alloc_L1((N, N), HALF)
            c = T.alloc_L0C((N, N), "float32")
            x = T.alloc_ub((N // 2, N), "float32")
            y = T.alloc_ub((N // 2, N), HALF)
            low = vid * (N // 2)

            def product(i):
                T.copy(A[i, :, :], a)
                T.gemm_v0(a, a, c, init=True)
                if twice:
                    T.copy(c[: N // 2, :], there[i, : N // 2, :])
                    T.copy(c[N // 2 :, :], there[i, N // 2 :, :])
                else:
                    T.copy(c, there[i, :, :])
                if answers:
                    T.copy(back, p)
                    T.gemm_v0(p, a, c, init=True)
                    T.copy(c, B[i, :, :])

            def add(i):
                T.copy(there[i, low : low + N // 2, :], x)
                T.tile.add(x, x, 1.0)
                T.copy(x, y)
                if answers:
                    T.copy(y, back[low : low + N // 2, :])
                else:
                    T.copy(x, B[i, low : low + N // 2, :])

            if region:
                with T.Scope("C"):
                    for i in T.serial(rounds):
                        product(i)
                with T.Scope("V"):
                    for i in T.serial(second):
                        add(i)
            else:
                for i in T.serial(rounds):
                    product(i)
                for j in T.serial(second):
                    add((j + shift) % ROUNDS if shift else j)

    return kernel


def by_turns(parts, *, vector_first=False):
    """`B[i] = A[i] + 1`, then a product with it: `parts` of a workspace are used in turn."""

    @T.prim_func
    def kernel(
        A: T.Tensor((ROUNDS, N, N), HALF),
        B: T.Tensor((ROUNDS, N, N), "float32"),
        workspace: T.Tensor((parts, N, N), HALF),
    ):
        with T.Kernel(1, is_npu=True) as (_cid, vid):
            p = T.alloc_L1((N, N), HALF)
            c = T.alloc_L0C((N, N), "float32")
            y = T.alloc_ub((N // 2, N), HALF)
            low = vid * (N // 2)

            @T.macro
            def add():
                for j in T.serial(ROUNDS):
                    T.copy(A[j, low : low + N // 2, :], y)
                    T.tile.add(y, y, 1.0)
                    T.copy(y, workspace[j % parts, low : low + N // 2, :])

            if vector_first:
                add()
            for i in T.serial(ROUNDS):
                T.copy(workspace[i % parts, :, :], p)
                T.gemm_v0(p, p, c, init=True)
                T.copy(c, B[i, :, :])
            if not vector_first:
                add()

    return kernel


def matrices(seed=0):
    return np.random.default_rng(seed).integers(-2, 3, (ROUNDS, N, N)).astype(np.float16)


def answer(a, *, answers=True):
    a = a.astype(np.float32)
    first = a @ a + 1
    return first.astype(np.float16).astype(np.float32) @ a if answers else first


def compiled(**settings):
    return tilelang.compile(
        by_cube(**settings), out_idx=[1], workspace_idx=[2, 3], pass_configs=AUTO
    )


@pytest.mark.parametrize("answers", [True, False])
def test_rounds_meet_in_order_and_on_queues(answers):
    kernel = compiled(answers=answers)
    np.testing.assert_array_equal(kernel(matrices()), answer(matrices(), answers=answers))
    for seed, schedule in enumerate(Schedule.sweep(3)):
        bound = kernel._signature.bind([matrices(seed)], {})
        assert kernel._program.program.check(dict(bound.values), schedule) == []
        np.testing.assert_array_equal(bound.results[0], answer(matrices(seed), answers=answers))


@pytest.mark.parametrize("vector_first", [True, False])
@pytest.mark.parametrize("parts", [1, 2, ROUNDS])
def test_what_one_core_gives_the_other_comes_in_turn(parts, vector_first):
    kernel = tilelang.compile(
        by_turns(parts, vector_first=vector_first),
        out_idx=[1],
        workspace_idx=[2],
        pass_configs=AUTO,
    )
    p = matrices().astype(np.float32) + 1
    np.testing.assert_array_equal(kernel(matrices()), p @ p)
    assert tilelang.check(kernel, run_with=[matrices()]) == []


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"second": 2}, "their rounds are not the same"),
        ({"region": True}, r"each is in a T\.Scope of its own"),
        ({"shift": 1}, "uses the part of there of another round"),
        ({"twice": True}, "writes there in 2 places and reads it in 1"),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else "",
)
def test_loops_that_cannot_be_woven_are_refused_at_the_first(settings, why):
    with pytest.raises(TileError, match=why) as refused:
        compiled(**settings)
    assert "hand back to each other in every round" in str(refused.value)
    assert "T.set_cross_flag" in str(refused.value)
