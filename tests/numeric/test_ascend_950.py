"""What the 950 has beyond the 910B: drains into UB, mutexes, flags between the cube core and one
vector core; in order and on queues.
"""

import ml_dtypes
import numpy as np
import pytest

import tilelang
import tilelang.ascend.language as T
from tilelang.simulator.machine import Schedule

BY_HAND = {"tl.enable_auto_schedule": False}
RNG = np.random.default_rng(5)


def compiled(kernel):
    made = tilelang.compile(kernel, target="simulate:ascend950", pass_configs=BY_HAND)
    return made, made._program.program


def holds(kernel, args, answers, tolerance=1e-4):
    """Both modes give the answers, without a finding."""
    run, program = compiled(kernel)
    given = {k: v.copy() for k, v in args.items()}
    run(*given.values())
    for name, wanted in answers.items():
        np.testing.assert_allclose(given[name], wanted, rtol=tolerance, atol=tolerance)
    for schedule in Schedule.sweep(4):
        given = {k: v.copy() for k, v in args.items()}
        assert [d.render() for d in program.check(given, schedule)] == []
        for name, wanted in answers.items():
            np.testing.assert_allclose(given[name], wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("trans", [(False, False), (False, True), (True, False), (True, True)])
def test_products_by_l0_in_all_transposes(trans):
    m, n, k = 32, 48, 80
    ta, tb = trans
    a_shape, b_shape = ((k, m) if ta else (m, k)), ((n, k) if tb else (k, n))

    @T.prim_func
    def kernel(
        A: T.Tensor(a_shape, "bfloat16"),
        B: T.Tensor(b_shape, "bfloat16"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(1), T.Cube():
            a1, b1 = T.alloc_l1(a_shape, "bfloat16"), T.alloc_l1(b_shape, "bfloat16")
            a0, b0 = T.alloc_l0a(a_shape, "bfloat16"), T.alloc_l0b(b_shape, "bfloat16")
            c = T.alloc_l0c((m, n), "float32")
            T.copy(A, a1)
            T.copy(B, b1)
            T.ascend_set_flag("MTE2_MTE1", 0)
            T.ascend_wait_flag("MTE2_MTE1", 0)
            T.copy(a1, a0)
            T.copy(b1, b0)
            T.ascend_set_flag("MTE1_M", 1)
            T.ascend_wait_flag("MTE1_M", 1)
            T.gemm(a0, b0, c, transpose_A=ta, transpose_B=tb, clear_accum=True)
            T.ascend_set_flag("M_FIX", 2)
            T.ascend_wait_flag("M_FIX", 2)
            T.copy(c, C)

    a = RNG.standard_normal(a_shape).astype(ml_dtypes.bfloat16)
    b = RNG.standard_normal(b_shape).astype(ml_dtypes.bfloat16)
    wide = (x.astype(np.float32) for x in (a.T if ta else a, b.T if tb else b))
    left, right = wide
    holds(kernel, {"A": a, "B": b, "C": np.zeros((m, n), np.float32)}, {"C": left @ right}, 1e-3)


def test_half_a_product_to_each_vector_core():
    @T.prim_func
    def kernel(
        A: T.Tensor((64, 128), "float16"),
        B: T.Tensor((96, 128), "float16"),
        C: T.Tensor((64, 96), "float32"),
    ):
        with T.MixedKernel(1, sids=2) as (_, sid):
            a, b = T.alloc_l1((64, 128), "float16"), T.alloc_l1((96, 128), "float16")
            c, u = T.alloc_l0c((64, 96), "float32"), T.alloc_shared((32, 96), "float32")
            with T.Cube():
                T.copy(A, a)
                T.copy(B, b)
                T.ascend_set_flag("MTE2_MTE1", 0)
                T.ascend_wait_flag("MTE2_MTE1", 0)
                T.gemm(a, b, c, transpose_B=True, clear_accum=True)
                T.ascend_set_flag("M_FIX", 0)
                T.ascend_wait_flag("M_FIX", 0)
                T.dual_copy(c, u)
                T.ascend_cross_core_set_flag(2, "PIPE_FIX", 0)
            with T.Vector():
                T.ascend_cross_core_wait_flag(2, "PIPE_MTE3", 0)
                T.copy(u, C[sid * 32 : sid * 32 + 32, :])

    a = RNG.standard_normal((64, 128)).astype(np.float16)
    b = RNG.standard_normal((96, 128)).astype(np.float16)
    wanted = a.astype(np.float32) @ b.astype(np.float32).T
    holds(kernel, {"A": a, "B": b, "C": np.zeros((64, 96), np.float32)}, {"C": wanted}, 1e-3)


def test_mutexes_order_the_pipes_that_share_a_buffer():
    @T.prim_func
    def kernel(A: T.Tensor((64, 64), "float32"), C: T.Tensor((64, 64), "float32")):
        with T.MixedKernel(1) as (_, sid), T.Vector():
            u = T.alloc_shared((8, 64), "float32")
            for i in T.serial(4):
                row = sid * 32 + i * 8
                T.ascend_get_buf("PIPE_MTE2", 0, 0)
                T.copy(A[row : row + 8, :], u)
                T.ascend_rls_buf("PIPE_MTE2", 0, 0)
                T.ascend_get_buf("PIPE_MTE3", 0, 0)
                T.copy(u, C[row : row + 8, :])
                T.ascend_rls_buf("PIPE_MTE3", 0, 0)

    a = RNG.standard_normal((64, 64)).astype(np.float32)
    holds(kernel, {"A": a, "C": np.zeros_like(a)}, {"C": a})


def test_flags_of_one_vector_core_meet_in_the_cube_core():
    """Each vector core writes a row, waits for the cube core, which waits for both, and reads the
    row of the other: on the cube core a number means vector core 0, with 16 more vector core 1.
    """

    @T.prim_func
    def kernel(
        W: T.Tensor((2, 64), "float32"),
        A: T.Tensor((2, 64), "float32"),
        C: T.Tensor((2, 64), "float32"),
    ):
        with T.MixedKernel(1) as (_, sid):
            with T.Cube():
                T.ascend_cross_core_wait_flag(4, "PIPE_MTE2", 3)
                T.ascend_cross_core_wait_flag(4, "PIPE_MTE2", 3 + 16)
                T.ascend_cross_core_set_flag(4, "PIPE_MTE2", 5)
                T.ascend_cross_core_set_flag(4, "PIPE_MTE2", 5 + 16)
            with T.Vector():
                u = T.alloc_shared((1, 64), "float32")
                T.copy(A[sid : sid + 1, :], u)
                T.ascend_set_flag("MTE2_MTE3", 0)
                T.ascend_wait_flag("MTE2_MTE3", 0)
                T.copy(u, W[sid : sid + 1, :])
                T.ascend_cross_core_set_flag(4, "PIPE_MTE3", 3)
                T.ascend_cross_core_wait_flag(4, "PIPE_MTE2", 5)
                T.copy(W[1 - sid : 2 - sid, :], u)
                T.ascend_set_flag("MTE2_MTE3", 0)
                T.ascend_wait_flag("MTE2_MTE3", 0)
                T.copy(u, C[sid : sid + 1, :])

    a = RNG.standard_normal((2, 64)).astype(np.float32)
    zeros = np.zeros_like(a)
    holds(kernel, {"W": zeros, "A": a, "C": zeros}, {"C": a[::-1]})


def test_a_tile_of_ub_becomes_an_operand():
    """Both vector cores write their half of A into L1 of the cube core; B is turned on its way."""

    @T.prim_func
    def kernel(
        A: T.Tensor((32, 48), "float16"),
        B: T.Tensor((48, 64), "float16"),
        C: T.Tensor((32, 64), "float32"),
    ):
        with T.MixedKernel(1, sids=2) as (_, sid):
            u = T.alloc_shared((16, 48), "float16")
            a, b = T.alloc_l1((32, 48), "float16"), T.alloc_l1((64, 48), "float16")
            c = T.alloc_l0c((32, 64), "float32")
            with T.Vector():
                T.copy(A[sid * 16 : sid * 16 + 16, :], u)
                T.ascend_set_flag("MTE2_MTE3", 0)
                T.ascend_wait_flag("MTE2_MTE3", 0)
                T.copy(u, a[sid * 16 : sid * 16 + 16, :])
                T.ascend_cross_core_set_flag(2, "PIPE_MTE3", 0)
            with T.Cube():
                T.copy(B, b, transpose=True)
                T.ascend_set_flag("MTE2_MTE1", 0)
                T.ascend_wait_flag("MTE2_MTE1", 0)
                T.ascend_cross_core_wait_flag(2, "PIPE_MTE1", 0)
                T.gemm(a, b, c, transpose_B=True, clear_accum=True)
                T.ascend_set_flag("M_FIX", 0)
                T.ascend_wait_flag("M_FIX", 0)
                T.copy(c, C)

    a = RNG.standard_normal((32, 48)).astype(np.float16)
    b = RNG.standard_normal((48, 64)).astype(np.float16)
    wanted = a.astype(np.float32) @ b.astype(np.float32)
    holds(kernel, {"A": a, "B": b, "C": np.zeros((32, 64), np.float32)}, {"C": wanted}, 1e-3)


@pytest.mark.parametrize(("op", "fn"), [("add", np.add), ("max", np.maximum), ("min", np.minimum)])
def test_stores_combine_in_atomic_mode(op, fn):
    @T.prim_func
    def kernel(A: T.Tensor((2, 64), "float32"), C: T.Tensor((1, 64), "float32")):
        with T.MixedKernel(1, sids=2) as (_, sid), T.Vector():
            u = T.alloc_shared((1, 64), "float32")
            T.copy(A[sid : sid + 1, :], u)
            T.ascend_set_flag("MTE2_MTE3", 0)
            T.ascend_wait_flag("MTE2_MTE3", 0)
            T.set_atomic(op, "float32")
            T.copy(u, C)
            T.set_atomic_none()

    a = RNG.standard_normal((2, 64)).astype(np.float32)
    c = RNG.standard_normal((1, 64)).astype(np.float32)
    wanted = fn(fn(c, a[0]), a[1]) if op != "add" else c + a[0] + a[1]
    holds(kernel, {"A": a, "C": c}, {"C": wanted}, 1e-5)
