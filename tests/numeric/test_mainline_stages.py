"""Pipelined loops with more than two sets of buffers: the numbers of one, in both modes."""

import re

import numpy as np
import pytest

import tilelang
import tilelang.ascend.language as T
from tilelang.simulator.machine import Schedule

SEEDS = range(20)


def doubled(rounds, stages, versions=None, rows=8, wide=96):
    """Rows of A, doubled by the vector core a few at a time."""

    @T.prim_func
    def kernel(
        A: T.Tensor((rounds * rows, wide), "float32"), B: T.Tensor((rounds * rows, wide), "float32")
    ):
        with T.Kernel(1):
            a = T.alloc_shared((rows, wide), "float32")
            b = T.alloc_shared((rows, wide), "float32")
            if versions is not None:
                T.annotate_buffer_versions({b: versions})
            for k in T.Pipelined(rounds, num_stages=stages):
                T.copy(A[k * rows, 0], a)
                with T.SimtVF(threads=64):
                    for i, j in T.Parallel(rows, wide):
                        b[i, j] = a[i, j] * 2.0
                T.copy(b, B[k * rows, 0])

    return kernel


def product(m, n, k, part, stages):
    """A product whose K comes in parts."""

    @T.prim_func
    def kernel(
        A: T.Tensor((m, k), "float16"),
        B: T.Tensor((n, k), "float16"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(1):
            a, b = T.alloc_l1((m, part), "float16"), T.alloc_l1((n, part), "float16")
            c = T.alloc_l0c((m, n), "float32")
            for at in T.Pipelined(k // part, num_stages=stages):
                T.copy(A[0, at * part], a)
                T.copy(B[0, at * part], b)
                T.gemm(a, b, c, transpose_B=True, clear_accum=at == 0)
            T.copy(c, C)

    return kernel


def crossing(rounds, stages, m=32, n=48, k=32):
    """Products of the cube core, each of which the vector cores square."""

    @T.prim_func
    def kernel(
        A: T.Tensor((rounds * m, k), "float16"),
        B: T.Tensor((n, k), "float16"),
        C: T.Tensor((rounds * m, n), "float32"),
    ):
        with T.Kernel(1):
            a, b = T.alloc_l1((m, k), "float16"), T.alloc_l1((n, k), "float16")
            c = T.alloc_l0c((m, n), "float32")
            u = T.alloc_shared((m // 2, n), "float32")
            T.copy(B, b)
            for r in T.Pipelined(rounds, num_stages=stages):
                T.copy(A[r * m, 0], a)
                T.gemm(a, b, c, transpose_B=True, clear_accum=True)
                T.dual_copy(c, u)
                with T.SimtVF(threads=64):
                    for i, j in T.Parallel(m // 2, n):
                        u[i, j] = u[i, j] * u[i, j]
                T.dual_copy(u, C[r * m : r * m + m, 0:n])

    return kernel


def holds(made, args, wanted, schedules=()):
    for schedule in (None, *schedules):
        given = {k: v.copy() for k, v in args.items()}
        if schedule is None:
            made(*given.values())
        else:
            sizes = {"rounds": len(given["A"])}  # of a kernel that takes them from its arguments
            found = made._program.program.check({**given, **sizes}, schedule)
            assert [d.render() for d in found] == []
        *_, out = given.values()
        np.testing.assert_allclose(out, wanted, 1e-3, 1e-3)


def sets(made, name):
    """How many places a buffer has in the source."""
    found = re.findall(rf"__\w+__ \w+\* {name}(?:_b(?:_\d+)?)? = ", made.get_kernel_source())
    return len(found)


@pytest.mark.parametrize(("stages", "rounds"), [(3, 1), (3, 4), (3, 6), (5, 2), (5, 12)])
def test_vector_loops(stages, rounds):
    made = tilelang.compile(doubled(rounds, stages))
    assert sets(made, "a") == stages and sets(made, "b") == stages
    for seed in SEEDS:
        a = np.random.default_rng(seed).standard_normal((rounds * 8, 96)).astype(np.float32)
        args = {"A": a, "B": np.zeros_like(a)}
        holds(made, args, 2 * a, Schedule.sweep(3) if seed == 0 else ())


@pytest.mark.parametrize(("versions", "made_of"), [(1, 1), (2, 2), (3, 2), (4, 4), (9, 4)])
def test_the_author_says_how_many(versions, made_of):
    made = tilelang.compile(doubled(9, 4, versions))
    assert (sets(made, "a"), sets(made, "b")) == (4, made_of)
    a = np.random.default_rng(0).standard_normal((72, 96)).astype(np.float32)
    holds(made, {"A": a, "B": np.zeros_like(a)}, 2 * a, Schedule.sweep(3))


@pytest.mark.parametrize(("stages", "parts"), [(3, 5), (4, 8)])
def test_products(stages, parts):
    made = tilelang.compile(product(48, 96, 64 * parts, 64, stages))
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        a, b = (rng.standard_normal((r, 64 * parts)).astype(np.float16) for r in (48, 96))
        args = {"A": a, "B": b, "C": np.zeros((48, 96), np.float32)}
        wanted = a.astype(np.float32) @ b.astype(np.float32).T
        holds(made, args, wanted, Schedule.sweep(3) if seed == 0 else ())


@pytest.mark.parametrize(("stages", "rounds"), [(3, 4)])
def test_loops_of_both_kinds_of_core(stages, rounds):
    made = tilelang.compile(crossing(rounds, stages))
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        a = rng.standard_normal((rounds * 32, 32)).astype(np.float16)
        b = rng.standard_normal((48, 32)).astype(np.float16)
        args = {"A": a, "B": b, "C": np.zeros((rounds * 32, 48), np.float32)}
        wanted = (a.astype(np.float32) @ b.astype(np.float32).T) ** 2
        holds(made, args, wanted, Schedule.sweep(3) if seed == 0 else ())


@pytest.mark.simulate
@pytest.mark.parametrize(("stages", "rounds"), [(3, 7), (5, 8)])
def test_under_many_schedules(stages, rounds):
    rng = np.random.default_rng(rounds)
    a = rng.standard_normal((rounds * 8, 96)).astype(np.float32)
    made = tilelang.compile(doubled(rounds, stages))
    holds(made, {"A": a, "B": np.zeros_like(a)}, 2 * a, Schedule.sweep(20))
    x = rng.standard_normal((rounds * 32, 32)).astype(np.float16)
    b = rng.standard_normal((48, 32)).astype(np.float16)
    made = tilelang.compile(crossing(rounds, stages))
    wanted = (x.astype(np.float32) @ b.astype(np.float32).T) ** 2
    args = {"A": x, "B": b, "C": np.zeros((rounds * 32, 48), np.float32)}
    holds(made, args, wanted, Schedule.sweep(20))


def test_as_many_as_the_memory_holds():
    """Two buffers of 40 KB in a memory of 216 KB: two sets, though five are asked for."""
    made = tilelang.compile(doubled(6, 5, rows=8, wide=1280))
    assert sets(made, "a") == sets(made, "b") == 2
    a = np.random.default_rng(0).standard_normal((48, 1280)).astype(np.float32)
    holds(made, {"A": a, "B": np.zeros_like(a)}, 2 * a)


def test_rounds_known_when_the_kernel_runs():
    rounds = T.dynamic("rounds")

    @T.prim_func
    def kernel(A: T.Tensor((rounds, 96), "float32"), B: T.Tensor((rounds, 96), "float32")):
        with T.Kernel(1):
            a = T.alloc_shared((96,), "float32")
            for k in T.Pipelined(rounds, num_stages=3):
                T.copy(A[k, 0:96], a)
                T.copy(a, B[k, 0:96])

    made = tilelang.compile(kernel)
    for count in (1, 2, 3, 4, 5, 11):
        a = np.random.default_rng(count).standard_normal((count, 96)).astype(np.float32)
        holds(made, {"A": a, "B": np.zeros_like(a)}, a, Schedule.sweep(2))
