"""Where Tensor Memory is given back: by blocks some of whose threads return early, and by pairs of
blocks before their end. Against NumPy, on the emulator and on the simulated chip.
"""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from blackwell_build import check_blackwell
from tilelang.dtypes import DType
from tilelang.ir.expr import Binary, BinaryOp, Const
from tilelang.ir.thread import Instr, Program, kernels_of
from tilelang.ir.tile import If
from tilelang.isa.target import parse_target
from tilelang.passes.build import map_kernels, map_statements
from tilelang.passes.pipeline import lower
from tilelang.simulator.gpu import SimulatedProgram
from tilelang.simulator.machine import Schedule
from tilelang.targets import CHIPS
from tilelang.targets.cuda.nvrtc import compile_source, is_installed
from tilelang.targets.cuda.program import emit
from tilelang.targets.cuda.rows import ROWS

RANDOM = np.random.default_rng(23)
BLACKWELL = parse_target("cuda -arch=sm_100a", CHIPS)


def numbers(shape, dtype="bfloat16"):
    return RANDOM.integers(-4, 5, shape).astype(DType(dtype).numpy)


def product(a, b):
    return a.astype(np.float32) @ b.astype(np.float32)


def run(kernel, want, *args, seeds=3):
    """`want` is the last argument after a run."""
    for target in ("emulate", "simulate:sm_100a"):
        got = np.zeros_like(want)
        tilelang.compile(kernel, target=target)(*args, got)
        np.testing.assert_array_equal(got, want, err_msg=target)
    names = [p.name for p in kernel.ir.params]
    return check_blackwell(
        kernel, seeds=seeds, **dict(zip(names, (*args, np.zeros_like(want)), strict=True))
    )


def rows(program: Program) -> list[str]:
    return [n.row for n in program.walk() if isinstance(n, Instr)]


# Threads that return early -----------------------------------------------------------------------


@T.macro
def at_first(bx, tx, N):
    """Blocks that have nothing to do."""
    if bx >= N[0]:
        T.thread_return()


@T.macro
def either_way(bx, tx, N):
    """Both ways return, but for one block."""
    if bx >= N[0]:
        T.thread_return()
    elif bx + 1 < N[0]:
        if N[1] > 5:
            T.thread_return()
    else:
        T.thread_return()


@T.macro
def in_loops(bx, tx, N):
    """A return from two loops."""
    for k in T.serial(N[0]):
        for j in T.serial(2):
            if bx * 2 == k * 2 + j:
                T.thread_return()


@T.macro
def never(bx, tx, N):
    """A return that nobody gets to."""
    if N[0] < 0:
        T.thread_return()


def returning(leave, place, blocks=4, threads=128):
    """C[bx] = A @ B + bx, by the blocks that do not leave before: at the start, after the product,
    or after the copy out of Tensor Memory.
    """

    @T.prim_func
    def kernel(
        A: T.Tensor((128, 48), "float16"),
        B: T.Tensor((48, 32), "float16"),
        N: T.Tensor((2,), "int32"),
        C: T.Tensor((blocks, 128, 32), "float32"),
    ):
        with T.Kernel(blocks, threads=threads) as bx:
            tx = T.get_thread_binding()
            a, b = T.alloc_shared((128, 48), "float16"), T.alloc_shared((48, 32), "float16")
            if place == "start":
                leave(bx, tx, N)
            acc = T.alloc_tmem((128, 32), "float32")
            out = T.alloc_fragment((128, 32), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, acc, clear_accum=True)
            if place == "product":
                leave(bx, tx, N)
            T.copy(acc, out)
            if place == "copy":
                leave(bx, tx, N)
            for i, j in T.Parallel(128, 32):
                out[i, j] += bx
            T.copy(out, C[bx, 0, 0])

    return kernel


STAYS = {
    at_first: lambda bx, n: bx < n,
    either_way: lambda bx, n: bx + 1 < n,
    in_loops: lambda bx, n: bx >= n,
    never: lambda bx, n: True,
}


@pytest.mark.parametrize(
    ("leave", "place"),
    [
        (at_first, "start"),
        (at_first, "copy"),
        (either_way, "start"),
        (either_way, "product"),
        (in_loops, "product"),
        (in_loops, "copy"),
        (never, "product"),
    ],
)
def test_blocks_that_return_early(leave, place):
    a, b = numbers((128, 48), "float16"), numbers((48, 32), "float16")
    for n in (0, 3):
        want = np.zeros((4, 128, 32), np.float32)
        for bx in range(4):
            if STAYS[leave](bx, n):
                want[bx] = product(a, b) + bx
        run(returning(leave, place), want, a, b, np.array([n, 1], np.int32), seeds=2)


def some_return(threads, last):
    """Threads from `last` on return; the others store what they have read of shared memory, by
    themselves and after a barrier of those that are left.
    """

    @T.prim_func
    def kernel(
        A: T.Tensor((128, 32), "bfloat16"),
        B: T.Tensor((32, 16), "bfloat16"),
        C: T.Tensor((threads,), "float32"),
    ):
        with T.Kernel(1, threads=threads):
            tx = T.get_thread_binding()
            a, b = T.alloc_shared((128, 32), "bfloat16"), T.alloc_shared((32, 16), "bfloat16")
            acc = T.alloc_tmem((128, 16), "float32")
            out = T.alloc_fragment((128, 16), "float32")
            s, t = T.alloc_shared((128, 16), "float32"), T.alloc_shared((threads,), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, acc, clear_accum=True)
            T.copy(acc, out)
            T.copy(out, s)
            if tx >= last:
                T.thread_return()
            t[tx] = s[tx % 128, 3] * 2
            T.sync_threads()
            C[tx] = t[last - 1 - tx] + 1

    return kernel


@pytest.mark.parametrize(("threads", "last"), [(128, 64), (256, 96), (128, 128), (256, 32)])
def test_threads_that_return_before_others(threads, last):
    a, b = numbers((128, 32)), numbers((32, 16))
    want = np.zeros(threads, np.float32)
    want[:last] = (product(a, b)[np.arange(last) % 128, 3] * 2 + 1)[::-1]
    run(some_return(threads, last), want, a, b)


# Frees that some blocks get to ------------------------------------------------------------------


@T.macro
def in_one_arm(bx, N, given):
    """Blocks that free, and blocks that leave it to the end."""
    if bx < N[0]:
        for t in given:
            T.deallocate_tmem(t)


@T.macro
def in_both_arms(bx, N, given):
    """Either way, in another order."""
    if bx < N[0]:
        for t in given:
            T.deallocate_tmem(t)
    else:
        for t in given[::-1]:
            T.deallocate_tmem(t)


@T.macro
def before_a_return(bx, N, given):
    """Who returns has freed."""
    if bx >= N[0]:
        for t in given:
            T.deallocate_tmem(t)
        T.thread_return()


@T.macro
def after_a_return(bx, N, given):
    """Who returns has not freed."""
    if bx >= N[0]:
        T.thread_return()
    for t in given:
        T.deallocate_tmem(t)


@T.macro
def one_of_them(bx, N, given):
    """The other one is freed at the end, so the two have columns of their own."""
    if bx < N[0]:
        T.deallocate_tmem(given[1])


@T.macro
def by_a_later_warp(bx, N, given):
    """Threads of one warp free under a condition."""
    if T.get_thread_binding() >= 96 and bx < N[0]:
        for t in given:
            T.deallocate_tmem(t)


def some_free(free, stages):
    """C[bx] = A @ B + bx by way of two buffers that `free` gives back or does not."""

    @T.prim_func
    def kernel(
        A: T.Tensor((128, 64), "float16"),
        B: T.Tensor((64, 48), "float16"),
        N: T.Tensor((1,), "int32"),
        C: T.Tensor((3, 128, 48), "float32"),
    ):
        with T.Kernel(3, threads=128) as bx:
            a, b = T.alloc_shared((128, 32), "float16"), T.alloc_shared((32, 48), "float16")
            acc, more = T.alloc_tmem((128, 48), "float32"), T.alloc_tmem((128, 8), "float32")
            out, own = T.alloc_fragment((128, 48), "float32"), T.alloc_fragment((128, 8), "float32")
            T.fill(more, bx)
            for k in T.Pipelined(2, num_stages=stages):
                T.copy(A[0, k * 32], a)
                T.copy(B[k * 32, 0], b)
                T.gemm(a, b, acc, clear_accum=k == 0)
            T.copy(acc, out)
            T.copy(more, own)
            free(bx, N, [acc, more])
            for i, j in T.Parallel(128, 48):
                out[i, j] += own[i, j % 8]
            T.copy(out, C[bx, 0, 0])

    return kernel


@pytest.mark.parametrize(
    "free",
    [in_one_arm, in_both_arms, before_a_return, after_a_return, one_of_them, by_a_later_warp],
)
@pytest.mark.parametrize("seeds", [2, pytest.param(50, marks=pytest.mark.simulate)])
def test_columns_are_given_back_once(free, seeds):
    a, b = numbers((128, 64), "float16"), numbers((64, 48), "float16")
    stays = free in (before_a_return, after_a_return)
    for n in (0, 2):
        want = np.stack(
            [product(a, b) + bx if bx < n or not stays else 0 * product(a, b) for bx in range(3)]
        )
        program = run(some_free(free, stages=2), want, a, b, np.array([n], np.int32), seeds=seeds)
    assert rows(program).count("tcgen05.alloc") == (2 if free is one_of_them else 1)


# Pairs that free before their end ----------------------------------------------------------------


def by_rounds(rounds, rows=128, threads=128):
    """Every round allocates, multiplies and frees."""

    @T.prim_func
    def kernel(
        A: T.Tensor((2 * rows, 32), "bfloat16"),
        B: T.Tensor((32, 64), "bfloat16"),
        C: T.Tensor((rounds, 2 * rows, 64), "float32"),
    ):
        with T.ClusterKernel(2, threads=threads, cluster_dims=2):
            rank = T.block_rank_in_cluster()
            a, b = T.alloc_shared((rows, 32), "bfloat16"), T.alloc_shared((32, 32), "bfloat16")
            out = T.alloc_fragment((rows, 64), "float32")
            done = T.alloc_cluster_barrier(1)
            T.copy(A[rank * rows, 0], a)
            T.copy(B[0, rank * 32], b)
            T.cluster_sync()
            for k in T.serial(rounds):
                acc = T.alloc_tmem((rows, 64), "float32")
                T.tcgen05_gemm(a, b, acc, mbar=done, clear_accum=True, use_2cta=True)
                T.mbarrier_wait_parity(done, k % 2)
                T.copy(acc, out)
                T.deallocate_tmem(acc)
                T.copy(out, C[k, rank * rows : (rank + 1) * rows, :])

    return kernel


@pytest.mark.parametrize(
    ("rounds", "count", "threads"), [(1, 128, 128), (3, 128, 128), (2, 64, 128), (4, 128, 256)]
)
def test_pairs_that_free_in_every_round(rounds, count, threads):
    a, b = numbers((2 * count, 32)), numbers((32, 64))
    want = np.broadcast_to(product(a, b), (rounds, 2 * count, 64))
    program = run(by_rounds(rounds, count, threads), np.array(want), a, b)
    assert rows(program).count("tcgen05.dealloc.cta2") == 1


def two_buffers(by_arm):
    """A wide buffer is freed before a narrow one is allocated, by all threads or by a part."""

    @T.prim_func
    def kernel(
        A: T.Tensor((256, 32), "bfloat16"),
        B: T.Tensor((32, 128), "bfloat16"),
        C: T.Tensor((256, 128), "float32"),
    ):
        with T.ClusterKernel(2, threads=256, cluster_dims=2):
            rank = T.block_rank_in_cluster()
            a, b = T.alloc_shared((128, 32), "bfloat16"), T.alloc_shared((32, 64), "bfloat16")
            wide = T.alloc_tmem((128, 128), "float32")
            out = T.alloc_fragment((128, 128), "float32")
            done = T.alloc_cluster_barrier(1)
            T.copy(A[rank * 128, 0], a)
            T.copy(B[0, rank * 64], b)
            T.cluster_sync()
            T.tcgen05_gemm(a, b, wide, mbar=done, clear_accum=True, use_2cta=True)
            if by_arm:
                with T.ws(1):
                    T.mbarrier_wait_parity(done, 0)
                    T.copy(wide, out)
                    T.deallocate_tmem(wide)
                    T.copy(out, C[rank * 128, 0])
            else:
                T.mbarrier_wait_parity(done, 0)
                T.copy(wide, out)
                T.deallocate_tmem(wide)
                again = T.alloc_tmem((128, 64), "float32")
                half = T.alloc_fragment((128, 64), "float32")
                for i, j in T.Parallel(128, 64):
                    half[i, j] = out[i, j + 64]
                T.copy(half, again)
                T.copy(again, half)
                T.copy(out, C[rank * 128, 0])
                T.copy(half, C[rank * 128, 64])

    return kernel


@pytest.mark.parametrize("by_arm", [False, True])
def test_pairs_that_free_before_their_end(by_arm):
    a, b = numbers((256, 32)), numbers((32, 128))
    run(two_buffers(by_arm), product(a, b), a, b)


def test_pairs_wait_for_each_other_before_they_free():
    a, b = numbers((256, 32)), numbers((32, 64))
    program = lower(by_rounds(2).ir, BLACKWELL)
    waits = "mbarrier.try_wait.parity.cluster"
    bare = program.rewrite(
        lambda n: (
            n.with_(row="nanosleep", ins=(Const(0, DType("int32")),))
            if isinstance(n, Instr) and n.row == waits
            else None
        )
    )
    assert rows(program).count(waits) == rows(bare).count("nanosleep") == 3
    args = {"A": a, "B": b, "C": np.zeros((2, 256, 64), np.float32)}
    found = [SimulatedProgram(bare, ROWS).check(args, s) for s in Schedule.sweep(6)]
    assert any(found)


@pytest.mark.simulate
@pytest.mark.parametrize("kernel", [by_rounds(3), by_rounds(2, 64)])
def test_pairs_that_free_under_many_orders(kernel):
    shapes = [[e.value for e in p.buffer.shape] for p in kernel.ir.params]
    a, b = numbers(shapes[0]), numbers(shapes[1])
    check_blackwell(kernel, seeds=50, A=a, B=b, C=np.zeros(shapes[2], np.float32))


# A in Tensor Memory, 64 rows for each block ------------------------------------------------------


def few_rows(n, k, dtype, threads, turned):
    """C = A @ B by a pair with 64 rows each, of which A lies in Tensor Memory."""

    @T.prim_func
    def kernel(
        A: T.Tensor((128, k), dtype),
        B: T.Tensor((n, k) if turned else (k, n), dtype),
        C: T.Tensor((128, n), "float32"),
    ):
        with T.ClusterKernel(2, threads=threads, cluster_dims=2):
            rank = T.block_rank_in_cluster()
            part, out = T.alloc_fragment((64, k), dtype), T.alloc_fragment((64, n), "float32")
            b = T.alloc_shared((n // 2, k) if turned else (k, n // 2), dtype)
            a, acc = T.alloc_tmem((64, k), dtype), T.alloc_tmem((64, n), "float32")
            done = T.alloc_cluster_barrier(1)
            T.copy(A[rank * 64, 0], part)
            T.copy(part, a)
            if turned:
                T.copy(B[rank * (n // 2), 0], b)
            else:
                T.copy(B[0, rank * (n // 2)], b)
            T.tcgen05_before_thread_sync()
            T.cluster_sync()
            T.tcgen05_after_thread_sync()
            T.tcgen05_gemm(
                a, b, acc, transpose_B=turned, mbar=done, clear_accum=True, use_2cta=True
            )
            T.mbarrier_wait_parity(done, 0)
            T.copy(acc, out)
            T.copy(out, C[rank * 64, 0])

    return kernel


@pytest.mark.parametrize(
    ("n", "k", "dtype", "threads", "turned"),
    [
        (64, 32, "bfloat16", 128, False),
        (128, 64, "float16", 256, False),
        (64, 48, "float16", 128, False),
        (256, 64, "float8_e4m3fn", 128, False),
        (32, 32, "bfloat16", 128, True),
        (64, 24, "float32", 128, True),
        (96, 96, "float8_e5m2", 256, True),
    ],
)
def test_a_pair_of_64_rows_each_with_a_in_tensor_memory(n, k, dtype, threads, turned):
    a, b = numbers((128, k), dtype), numbers((n, k) if turned else (k, n), dtype)
    want = product(a, b.T if turned else b)
    program = run(few_rows(n, k, dtype, threads, turned), want, a, b)
    assert any(r.endswith(".ts") for r in rows(program))


def test_a_row_of_a_lies_in_two_lanes():
    """Where only the lower lanes are written, the upper ones are read before anything is there."""
    a, b = numbers((128, 32)), numbers((32, 64))
    program = lower(few_rows(64, 32, "bfloat16", 128, turned=False).ir, BLACKWELL)
    (kernel,) = kernels_of(program)
    (thread, *_) = kernel.thread_vars

    def lower_half(n):
        if isinstance(n, Instr) and n.row.startswith("tcgen05.st."):
            return (If(Binary(BinaryOp.LT, thread, Const(64, thread.type)), (n,)),)
        return None

    bare = map_kernels(program, lambda k: k.with_(body=map_statements(k.body, lower_half)))
    args = {"A": a, "B": b, "C": np.zeros((128, 64), np.float32)}
    assert not SimulatedProgram(program, ROWS).check(args, Schedule())
    found = SimulatedProgram(bare, ROWS).check(args, Schedule())
    assert {d.kind for d in found} == {"uninitialised"}


@pytest.mark.skipif(not is_installed(), reason="NVRTC is not installed")
@pytest.mark.parametrize("arch", ["sm_100a", "sm_103a"])
def test_they_become_machine_code(arch):
    target = parse_target(f"cuda -arch={arch}", CHIPS)
    for kernel in (
        returning(either_way, "product"),
        some_return(256, 96),
        by_rounds(3),
        two_buffers(by_arm=True),
        some_free(in_one_arm, 2),
        few_rows(64, 48, "float16", 128, turned=False),
    ):
        assert not compile_source(emit(lower(kernel.ir, target), target).text, arch).warnings
