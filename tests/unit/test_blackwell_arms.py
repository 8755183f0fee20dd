"""Parts of a block, one after the other: of the same threads, of some of them, with fragments."""

import numpy as np
import pytest

import tilelang.language as T
from blackwell_build import check_blackwell
from gpu_build import check_gpu

RANDOM = np.random.default_rng(12)


def numbers(*shape, dtype="float32"):
    return RANDOM.integers(-3, 4, shape).astype(dtype)


@pytest.mark.parametrize("second", [128, 64, 96])
def test_a_part_follows_another_one_of_the_same_threads(second):
    """The second part was left out where nothing stood between the two."""

    @T.prim_func
    def kernel(A: T.Tensor((96, 40), "float32"), B: T.Tensor((96, 40), "float32")):
        with T.Kernel(1, threads=256):
            tx = T.get_thread_binding()
            s, t = (T.alloc_shared((96, 40), "float32") for _ in range(2))
            if tx < 128:
                T.copy(A, s)
            if tx < second:
                for i, j in T.Parallel(96, 40):
                    t[i, j] = s[i, j] + 1
            T.sync_threads()
            if tx >= 128:
                T.copy(t, B)

    check_gpu(kernel, A=numbers(96, 40), B=np.zeros((96, 40), "float32"))


def test_parts_that_hand_over_by_mbarriers_stay_beside_each_other():
    @T.prim_func
    def kernel(A: T.Tensor((128, 40), "float32"), B: T.Tensor((128, 40), "float32")):
        with T.Kernel(1, threads=256):
            tx = T.get_thread_binding()
            s, bar = T.alloc_shared((128, 40), "float32"), T.alloc_barrier(128)
            back = T.alloc_barrier(128)
            if tx < 128:
                T.copy(A, s)
                T.mbarrier_arrive(bar)
            if tx >= 128:
                T.mbarrier_wait_parity(bar, 0)
                for i, j in T.Parallel(128, 40):
                    s[i, j] = s[i, j] * 2
                T.mbarrier_arrive(back)
            if tx < 128:
                T.mbarrier_wait_parity(back, 0)
                T.copy(s, B)

    check_gpu(kernel, A=numbers(128, 40), B=np.zeros((128, 40), "float32"))


@pytest.mark.parametrize("rounds", [1, 3])
def test_a_fragment_stays_in_registers_from_one_part_of_its_threads_to_the_next(rounds):
    """Sums in Tensor Memory that a first part clears, and rows that a later one scales."""

    @T.prim_func
    def kernel(
        A: T.Tensor((rounds, 128, 48), "float32"),
        B: T.Tensor((128, 48), "float32"),
        C: T.Tensor((128,), "float32"),
    ):
        with T.Kernel(1, threads=256):
            tx = T.get_thread_binding()
            total, part = (T.alloc_fragment((128, 48), "float32") for _ in range(2))
            top, own = (T.alloc_fragment((128,), "float32") for _ in range(2))
            kept = T.alloc_tmem((128, 48), "float32")
            s, full, empty = (
                T.alloc_shared((128, 48), "float32"),
                T.alloc_barrier(128),
                T.alloc_barrier(128),
            )
            if tx < 128:
                T.fill(total, 0)
                T.fill(top, -1)
                T.copy(total, kept)
            for k in T.serial(rounds):
                if tx >= 128:
                    T.mbarrier_wait_parity(empty, (k & 1) ^ 1)
                    T.copy(A[k, :, :], s)
                    T.mbarrier_arrive(full)
                elif tx < 128:
                    T.mbarrier_wait_parity(full, k & 1)
                    T.copy(kept, total)
                    T.copy(s, part)
                    T.mbarrier_arrive(empty)
                    T.reduce_max(part, own, dim=1)
                    for i in T.Parallel(128):
                        top[i] = T.max(top[i], own[i])
                    for i, j in T.Parallel(128, 48):
                        total[i, j] += part[i, j]
                    T.copy(total, kept)
                    if k == rounds - 1:
                        T.copy(kept, total)
                        T.copy(total, B)
                        T.copy(top, C)

    program = check_blackwell(
        kernel,
        seeds=3,
        A=numbers(rounds, 128, 48),
        B=np.zeros((128, 48), "float32"),
        C=np.zeros((128,), "float32"),
    )
    notes = dict(program.attrs).get("notes", ())
    assert not [n for n in notes if n[0] == "demoted"]


def test_parts_count_rounds_in_one_variable_of_each_thread():
    """Each part goes on by itself in a variable that was set before them, and one only gives up
    registers: the threads of a part agree on its rounds, and meet between them.
    """

    @T.prim_func
    def kernel(A: T.Tensor((384, 40), "float32"), B: T.Tensor((384, 40), "float32")):
        with T.Kernel(1, threads=256):
            tx = T.get_thread_binding()
            i = T.alloc_var("int32", init=0)
            s, out = (T.alloc_shared((128, 40), "float32") for _ in range(2))
            f = T.alloc_fragment((128, 40), "float32")
            full, empty = T.alloc_barrier(32), T.alloc_barrier(128)
            if tx < 32:
                T.set_max_nreg(40, 0)
                while i < 3:
                    T.mbarrier_wait_parity(empty, (i & 1) ^ 1)
                    T.tma_copy(A[i * 128 : (i + 1) * 128, :], s, barrier=full)
                    T.mbarrier_arrive(full)
                    i += 1
            elif tx < 128:
                T.set_max_nreg(40, 0)
            elif 128 <= tx < 256:
                T.set_max_nreg(224, 1)
                while i < 3:
                    T.mbarrier_wait_parity(full, i & 1)
                    T.copy(s, f)
                    T.mbarrier_arrive(empty)
                    T.copy(f, out)
                    T.copy(out, B[i * 128, 0])
                    i += 1

    check_blackwell(kernel, seeds=3, A=numbers(384, 40), B=np.zeros((384, 40), "float32"))
