"""Parts of a block with threads of their own, lowered for a GPU, against the emulator."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang.language as T
from gpu_build import check_gpu, gpu_program
from tilelang.errors import TileError
from tilelang.ir.expr import int_value
from tilelang.ir.thread import Declare, Instr

RANDOM = np.random.default_rng(2)


def barriers(program) -> set[tuple[int, int]]:
    return {
        (dict(n.imm)["id"], dict(n.imm)["threads"])
        for n in program.walk()
        if isinstance(n, Instr) and n.row == "barrier.sync"
    }


def notes(program):
    return dict(program.attrs).get("notes", ())


@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("trips", [1, 2, 5])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_a_producer_and_a_consumer_hand_tiles_over(stages, trips, arch):
    @T.prim_func
    def kernel(
        A: T.Tensor((64, trips * 32), "float16"),
        B: T.Tensor((trips * 32, 64), "float16"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=256):
            a = T.alloc_shared((stages, 64, 32), "float16")
            b = T.alloc_shared((stages, 32, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            full = T.alloc_barrier([128] * stages)
            empty = T.alloc_barrier([128] * stages)
            with T.ws(0):
                for k in T.serial(trips):
                    T.barrier_wait(empty[k % stages], (k // stages + 1) % 2)
                    depth = slice(k * 32, k * 32 + 32)
                    T.copy(A[0:64, depth], a[k % stages, :, :])
                    T.copy(B[depth, 0:64], b[k % stages, :, :])
                    T.sync_threads()
                    T.barrier_arrive(full[k % stages])
            with T.ws(1):
                T.clear(c)
                for k in T.serial(trips):
                    T.barrier_wait(full[k % stages], k // stages % 2)
                    T.gemm(a[k % stages, :, :], b[k % stages, :, :], c)
                    T.barrier_arrive(empty[k % stages])
                T.copy(c, C)

    a = RANDOM.integers(-4, 5, (64, trips * 32)).astype(np.float16)
    b = RANDOM.integers(-4, 5, (trips * 32, 64)).astype(np.float16)
    program = check_gpu(kernel, arch=arch, A=a, B=b, C=np.zeros((64, 64), np.float32))
    assert (15, 128) in barriers(program) or (14, 128) in barriers(program)


def test_a_condition_on_the_thread_index_names_its_warps():
    @T.prim_func
    def kernel(
        A: T.Tensor((96,), "float32"), B: T.Tensor((96,), "float32"), S: T.Tensor((2,), "float32")
    ):
        with T.Kernel(1, threads=96):
            tx = T.get_thread_binding()
            s = T.alloc_shared((96,), "float32")
            r = T.alloc_shared((96,), "float32")
            f = T.alloc_fragment((96,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.copy(A, s)
            if tx < 32:
                for i in T.Parallel(96):
                    r[i] = s[95 - i]
            elif tx < 96:
                T.copy(s, f)
                T.reduce_sum(f, total, dim=0)
                for i in T.Parallel(1):
                    S[i] = total[i]
            T.copy(r, B)

    a = RANDOM.integers(-9, 10, 96).astype(np.float32)
    program = check_gpu(kernel, A=a, B=np.zeros(96, np.float32), S=np.zeros(2, np.float32))
    assert (0, 96) in barriers(program)


def test_what_parts_use_at_the_same_time_has_places_of_its_own():
    """The second part must not write its tile where the first still reads what all have written."""

    @T.prim_func
    def kernel(A: T.Tensor((96,), "float32"), B: T.Tensor((96,), "float32")):
        with T.Kernel(1, threads=96):
            tx = T.get_thread_binding()
            before = T.alloc_shared((96,), "float32")
            T.copy(A, before)
            if tx < 32:
                for i in T.Parallel(32):
                    B[i] = before[31 - i]
            else:
                mine = T.alloc_shared((64,), "float32")
                for i in T.Parallel(64):
                    mine[i] = i
                for i in T.Parallel(64):
                    B[32 + i] = mine[63 - i]

    a = RANDOM.integers(-9, 10, 96).astype(np.float32)
    program = check_gpu(kernel, A=a, B=np.zeros(96, np.float32))
    arrays = [n for n in program.walk() if isinstance(n, Declare) and n.offset is not None]
    (first, second) = sorted((n.offset, n.offset + 4 * int_value(n.array.size)) for n in arrays)
    assert first[1] <= second[0]


@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_threads_that_feed_a_part_through_mbarriers_are_a_part_too(rounds):
    """They have no operation of a block: what they store is read while they go on."""

    @T.prim_func
    def kernel(A: T.Tensor((rounds, 32), "int32"), B: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=96):
            tx = T.get_thread_binding()
            s = T.alloc_shared((32,), "int32")
            total = T.alloc_fragment((32,), "int32")
            full, empty = T.alloc_barrier(32), T.alloc_barrier(64)
            if tx < 64:
                T.clear(total)
                for k in T.serial(rounds):
                    T.barrier_wait(full, k & 1)
                    for i in T.Parallel(32):
                        total[i] += s[31 - i]
                    T.barrier_arrive(empty)
                T.copy(total, B)
            elif tx >= 64:
                for k in T.serial(rounds):
                    T.barrier_wait(empty, (k & 1) ^ 1)
                    s[tx - 64] = A[k, tx - 64]
                    T.barrier_arrive(full)

    a = RANDOM.integers(-9, 10, (rounds, 32)).astype(np.int32)
    check_gpu(kernel, A=a, B=np.zeros(32, np.int32))


def test_an_operation_by_a_part_of_a_warp_is_refused():
    @T.prim_func
    def kernel(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            if tx < 7:
                T.copy(A, B)

    with pytest.raises(TileError, match="no range of warps"):
        gpu_program(kernel.ir)


def test_a_loop_of_one_part_whose_rounds_a_variable_counts_has_its_barriers():
    @T.prim_func
    def kernel(A: T.Tensor((5, 128), "float32"), B: T.Tensor((5, 128), "float32")):
        with T.Kernel(1, threads=256):
            s = T.alloc_shared((128,), "float32")
            with T.ws(1):
                n = T.alloc_var("int32")
                while n < 5:
                    T.copy(A[n, 0:128], s)
                    for i in T.Parallel(128):
                        B[n, i] = s[127 - i]
                    n = n + 1

    a = RANDOM.integers(-4, 5, (5, 128)).astype(np.float32)
    check_gpu(kernel, A=a, B=np.zeros_like(a))


def test_a_fragment_that_two_parts_use_is_in_the_registers_of_each():
    @T.prim_func
    def kernel(A: T.Tensor((2, 100), "float32"), B: T.Tensor((2, 100), "float32")):
        with T.Kernel(1, threads=128):
            tx = T.get_thread_binding()
            f = T.alloc_fragment((100,), "float32")
            if tx < 64:
                T.copy(A[0, :], f)
                for j in T.Parallel(100):
                    f[j] = f[j] * 2
                T.copy(f, B[0, :])
            else:
                T.copy(A[1, :], f)
                for j in T.Parallel(100):
                    f[j] = f[j] * 3
                T.copy(f, B[1, :])

    a = RANDOM.integers(-9, 10, (2, 100)).astype(np.float32)
    program = check_gpu(kernel, A=a, B=np.zeros_like(a))
    assert not any("lies in shared memory" in text for _, text, _ in notes(program))


def test_what_a_part_keeps_in_registers_outlives_the_round_of_a_loop_around_it():
    @T.prim_func
    def kernel(A: T.Tensor((5, 64), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=128):
            tx = T.get_thread_binding()
            s = T.alloc_shared((64,), "float32")
            total = T.alloc_fragment((64,), "float32")
            for r in T.serial(5):
                if tx < 64:
                    T.copy(A[r, :], s)
                T.sync_threads()
                if tx >= 64:
                    if r == 0:
                        T.clear(total)
                    for j in T.Parallel(64):
                        total[j] = total[j] + s[63 - j]
                    if r == 4:
                        T.copy(total, B)
                T.sync_threads()

    a = RANDOM.integers(-9, 10, (5, 64)).astype(np.float32)
    check_gpu(kernel, A=a, B=np.zeros(64, np.float32))


@pytest.mark.parametrize("columns", [48, 40, 64])
def test_tiles_lie_as_tensor_copies_bring_them_whoever_multiplies(columns):
    @T.prim_func
    def kernel(
        A: T.Tensor((64, 32), "float16"),
        B: T.Tensor((32, columns), "float16"),
        C: T.Tensor((64, columns), "float32"),
    ):
        with T.Kernel(1, threads=256):
            a = T.alloc_shared((64, 32), "float16")
            b = T.alloc_shared((32, columns), "float16")
            c = T.alloc_fragment((64, columns), "float32")
            bar = T.alloc_barrier(128)
            with T.ws(1):
                T.tma_copy(A, a, barrier=bar)
                T.tma_copy(B, b, barrier=bar)
                T.barrier_arrive(bar)
            with T.ws(0):
                T.barrier_wait(bar, 0)
                T.gemm(a, b, c, clear_accum=True)
                T.copy(c, C)

    args = {
        "A": RANDOM.integers(-4, 5, (64, 32)).astype(np.float16),
        "B": RANDOM.integers(-4, 5, (32, columns)).astype(np.float16),
    }
    check_gpu(kernel, C=np.zeros((64, columns), np.float32), **args)


def test_parts_meet_at_barriers_that_the_author_does_not_name():
    @T.prim_func
    def kernel(A: T.Tensor((2, 64), "float32"), B: T.Tensor((2, 64), "float32")):
        with T.Kernel(1, threads=256):
            s = T.alloc_shared((2, 64), "float32")
            for group in (0, 1):
                with T.ws(group):
                    T.copy(A[group, :], s[group, :])
                    T.sync_threads(15 - group, 128)
                    for i in T.Parallel(64):
                        s[group, i] = s[group, i] + 1
                    for i in T.Parallel(64):
                        B[group, i] = s[group, 63 - i]

    a = RANDOM.integers(-9, 10, (2, 64)).astype(np.float32)
    used = barriers(check_gpu(kernel, A=a, B=np.zeros_like(a)))
    assert used >= {(15, 128), (14, 128), (13, 128), (12, 128)}


def test_a_name_for_a_number_stands_beside_parts_of_a_block():
    @T.prim_func
    def kernel(A: T.Tensor((100,), "float32"), B: T.Tensor((100,), "float32")):
        with T.Kernel(1, threads=128):
            s, bar = T.alloc_shared((100,), "float32"), T.alloc_barrier(64)
            twice = T.bind(2)
            warp = T.get_thread_binding() // 32
            if warp < twice:
                T.copy(A, s)
                T.mbarrier_arrive(bar)
            elif warp >= twice:
                T.mbarrier_wait_parity(bar, 0)
                T.copy(s, B)

    check_gpu(kernel, A=np.arange(100, dtype="f4"), B=np.zeros(100, "f4"))
