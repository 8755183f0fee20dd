"""Kernels whose warps have roles that the thread index names: `if tx < 128: ... else: ...`."""

import numpy as np
import pytest

import tilelang.language as T
from hang_guard import hang_guard  # noqa: F401 - a fixture
from thread_level_run import run

pytestmark = pytest.mark.usefixtures("hang_guard")


def ints(*shape, seed=0):
    return np.random.default_rng(seed).integers(-99, 99, shape).astype(np.int32)


@pytest.mark.parametrize("n", [1, 24, 40, 127])
def test_a_fragment_is_in_the_registers_of_each_role(n):
    @T.prim_func
    def main(A: T.Tensor((3, n), "int32"), B: T.Tensor((3, n), "int32")):
        with T.Kernel(1, threads=192):
            tx = T.get_thread_binding()
            f = T.alloc_fragment((n,), "int32")
            s = T.alloc_shared((3, n), "int32")
            T.copy(A, s)
            if tx < 64:
                T.copy(s[0, :], f)
                for j in T.Parallel(n):
                    f[j] = f[j] * 2
                T.copy(f, B[0, :])
            elif tx < 128:
                T.copy(s[1, :], f)
                for j in T.Parallel(n):
                    f[j] = f[j] * 3
                T.copy(f, B[1, :])
            else:
                T.copy(s[2, :], f)
                T.sync_threads()  # of these warps
                for j in T.Parallel(n):
                    f[j] = f[j] * 4
                T.copy(f, B[2, :])

    a, b = ints(3, n), np.zeros((3, n), np.int32)
    run(main, a, b)
    np.testing.assert_array_equal(b, a * np.array([[2], [3], [4]]))


def test_roles_that_change_in_every_round():
    @T.prim_func
    def main(A: T.Tensor((5, 100), "int32"), B: T.Tensor((100,), "int32")):
        with T.Kernel(1, threads=128):
            tx = T.get_thread_binding()
            s = T.alloc_shared((100,), "int32")
            total = T.alloc_shared((100,), "int32")
            T.clear(total)
            for r in T.serial(5):
                if tx < 32:
                    T.copy(A[r, :], s)
                T.sync_threads()
                if tx >= 64:
                    for j in T.Parallel(100):
                        total[j] += s[j]
                T.sync_threads()
            T.copy(total, B)

    a, b = ints(5, 100), np.zeros(100, np.int32)
    run(main, a, b)
    np.testing.assert_array_equal(b, a.sum(0))


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_producer_warp_and_two_consumer_warps(depth):
    """A ring of tiles with mbarriers, each role in an arm of its own."""
    rounds, n = 7, 40

    @T.prim_func
    def main(A: T.Tensor((rounds, n), "int32"), B: T.Tensor((rounds, n), "int32")):
        with T.Kernel(1, threads=96):
            tx = T.get_thread_binding()
            s = T.alloc_shared((depth, n), "int32")
            full = T.alloc_barrier([32] * depth)
            free = T.alloc_barrier([64] * depth)
            f = T.alloc_fragment((n,), "int32")
            if tx < 32:
                for r in T.serial(rounds):
                    T.mbarrier_wait_parity(free[r % depth], (r // depth) % 2 ^ 1)
                    T.copy(A[r, :], s[r % depth, :])
                    T.mbarrier_arrive(full[r % depth])
            else:
                for r in T.serial(rounds):
                    T.mbarrier_wait_parity(full[r % depth], (r // depth) % 2)
                    T.copy(s[r % depth, :], f)
                    T.mbarrier_arrive(free[r % depth])
                    for j in T.Parallel(n):
                        f[j] = f[j] + r
                    T.copy(f, B[r, :])

    a, b = ints(rounds, n), np.zeros((rounds, n), np.int32)
    run(main, a, b)
    np.testing.assert_array_equal(b, a + np.arange(rounds)[:, None])


def test_a_named_barrier_between_two_roles():
    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=128):
            tx = T.get_thread_binding()
            s = T.alloc_shared((64,), "int32")
            if tx < 64:
                T.copy(A, s)
                T.sync_threads(1, 128)
            else:
                T.sync_threads(1, 128)
                T.copy(s, B)

    a, b = ints(64), np.zeros(64, np.int32)
    run(main, a, b)
    np.testing.assert_array_equal(b, a)


def test_rows_of_threads():
    """A block of two axes: threads are counted x fastest."""

    @T.prim_func
    def main(A: T.Tensor((2, 40), "int32")):
        with T.Kernel(1, threads=(32, 4)):
            y = T.get_thread_binding(1)
            s = T.alloc_shared((40,), "int32")
            if y < 2:
                T.fill(s, 5)
                T.copy(s, A[0, :])
            if y == 3:
                for j in T.Parallel(40):
                    A[1, j] = j

    a = np.zeros((2, 40), np.int32)
    run(main, a)
    np.testing.assert_array_equal(a, [[5] * 40, range(40)])


def test_a_product_by_the_second_warp_group():
    @T.prim_func
    def main(A: T.Tensor((32, 32), "float16"), D: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=256):
            tx = T.get_thread_binding()
            a = T.alloc_shared((32, 32), "float16")
            c = T.alloc_fragment((32, 32), "float32")
            o = T.alloc_fragment((32,), "float32")
            T.copy(A, a)
            if tx // 128 == 1:
                T.clear(c)
                T.gemm(a, a, c)
                T.reduce_sum(c, o, dim=1)
                T.copy(o, D)

    a, d = (ints(32, 32) % 5).astype(np.float16), np.zeros(32, np.float32)
    run(main, a, d)
    np.testing.assert_array_equal(d, (a.astype(np.float32) @ a.astype(np.float32)).sum(1))


def test_what_agrees_in_an_arm_may_be_an_operand():
    """The number of the warp group in regions and loop ranges, where only that group is."""

    @T.prim_func
    def main(A: T.Tensor((6, 40), "int32"), B: T.Tensor((6, 40), "int32")):
        with T.Kernel(1, threads=256):
            group = T.get_warp_group_idx()
            mine = T.alloc_var("int32", init=0)
            s = T.alloc_shared((2, 40), "int32")
            for g in [0, 1]:
                if group == g:
                    mine = group * 3
                    for r in T.serial(group * 3, group * 3 + 3):
                        T.copy(A[r, :], s[group, :])
                        if mine + group >= 0:
                            T.copy(s[group, :], B[r, :])
                            T.copy(B[mine, 0:4], s[group, 0:4])

    a, b = ints(6, 40), np.zeros((6, 40), np.int32)
    run(main, a, b)
    np.testing.assert_array_equal(b, a)


def test_what_agrees_in_a_warp_group_may_be_an_operand():
    @T.prim_func
    def main(A: T.Tensor((2, 40), "int32"), B: T.Tensor((2, 40), "int32")):
        with T.Kernel(1, threads=256):
            group = T.get_thread_binding() // 128
            s = T.alloc_shared((2, 40), "int32")
            with T.ws(1):
                T.copy(A[group, :], s[group, :])
                for j in T.Parallel(40):
                    B[group, j] = s[group, j] * group

    a, b = ints(2, 40), np.zeros((2, 40), np.int32)
    run(main, a, b)
    np.testing.assert_array_equal(b, a * [[0], [1]])
