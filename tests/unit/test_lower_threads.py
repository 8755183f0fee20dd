"""Lowering of what threads do for themselves, where one thread runs a block."""

import numpy as np
import pytest

from emulator_build import (
    F32,
    I32,
    TX,
    TY,
    add,
    buf,
    e,
    kernel,
    ld,
    mul,
    op,
    reg,
    st,
    var,
)
from lower_build import check_lowered, check_native, lowered
from thread_interpreter import AssertionFailed, run
from tilelang.dtypes import DType
from tilelang.ir.expr import BOOL, AtomicLoad, Cast, Var, const
from tilelang.ir.special import Collective
from tilelang.ir.sync import (
    AsyncCopy,
    CommitGroup,
    MbarArrive,
    MbarWait,
    SyncGrid,
    TmaCopy,
    WaitGroup,
)
from tilelang.ir.text import print_program
from tilelang.ir.thread import kernels_of
from tilelang.ir.tile import (
    Alloc,
    Atomic,
    AtomicOp,
    AtomicStore,
    Copy,
    For,
    If,
    Let,
    LoopKind,
    Parallel,
    Reduce,
    ReduceOp,
    SyncThreads,
    ThreadReturn,
    View,
)

I64, U32 = DType("int64"), DType("uint32")
RNG = np.random.default_rng(0)
i, j, k, n, bx = (var(x) for x in ("i", "j", "k", "n", "bx"))


def f32(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def zeros(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


# -- the grid --------------------------------------------------------------------------------------


def grid_kernel():
    """Blocks give their sums to each other twice; a tile and a name live on across the waits."""
    A, W, C = buf("A", F32, 5, 8), buf("W", F32, 5), buf("C", F32, 5, 8)
    s, t = buf("s", F32, 8, scope="shared.dyn"), buf("t", F32, 1, scope="local.fragment")
    neighbour = Var("neighbour", I32)
    body = (
        Alloc(s),
        Alloc(t),
        Let(neighbour, op("%", add(bx, 1), 5)),
        Copy(reg(A, bx, 0, ext=(1, 8)), reg(s)),
        Reduce(ReduceOp.MAX, reg(s), reg(t), dim=0),
        Copy(reg(t), reg(W, bx, ext=(1,))),
        SyncGrid(),
        Parallel((i,), (e(8),), (st(s, i, op("+", ld(s, i), ld(W, neighbour))),)),
        SyncGrid(),
        Parallel((j,), (e(8),), (st(C, bx, j, op("-", ld(s, j), ld(W, neighbour))),)),
    )
    return kernel([A, W, C], *body, grid=(5,), vars=(bx,))


def test_a_barrier_of_the_grid_makes_launches_of_its_parts():
    program = check_lowered(grid_kernel(), A=f32(5, 8), W=zeros(5), C=zeros(5, 8))
    assert len(kernels_of(program)) == 3


def test_views_are_made_again_after_a_barrier_of_the_grid():
    A, C = buf("A", F32, 3, 8), buf("C", F32, 3, 8)
    s, turned = buf("s", F32, 8, scope="shared.dyn"), buf("v", F32, 4, 2, scope="shared.dyn")
    row, start = buf("row", F32, 8), Var("start", I32)
    body = (
        Alloc(s),
        View(turned, s),
        Let(start, mul(bx, 8)),
        View(row, C, offset=start),
        Copy(reg(A, bx, 0, ext=(1, 8)), reg(s)),
        SyncGrid(),
        Parallel((i, j), (e(4), e(2)), (st(turned, i, j, op("+", ld(turned, i, j), 1.0)),)),
        SyncGrid(),
        Parallel((k,), (e(8),), (st(row, k, ld(s, k)),)),
    )
    check_lowered(kernel([A, C], *body, grid=(3,), vars=(bx,)), A=f32(3, 8), C=zeros(3, 8))


# -- threads ---------------------------------------------------------------------------------------

T48 = (48,)


def test_a_barrier_splits_the_loop_over_threads(golden):
    A, C = buf("A", F32, 48), buf("C", F32, 48)
    s = buf("s", F32, 48, scope="shared.dyn")
    x, y = Var("x", F32), Var("y", F32)
    body = (
        Alloc(s),
        Let(x, ld(A, TX)),
        st(s, TX, op("*", x, 2.0)),
        SyncThreads(),
        Let(y, ld(s, op("-", 47, TX))),
        st(C, TX, op("+", x, y)),
    )
    fn = kernel([A, C], *body, threads=T48)
    golden(print_program(check_lowered(fn, A=f32(48), C=zeros(48))), "lower/barrier")


def test_variables_of_a_thread_are_kept_across_barriers_in_loops():
    A, C = buf("A", F32, 4, 48), buf("C", F32, 48)
    s = buf("s", F32, 48, scope="shared.dyn")
    v = buf("v", F32, 1, scope="local.var")
    body = (
        Alloc(s),
        Alloc(v, init=Cast(TX, F32)),
        For(
            k,
            e(0),
            e(4),
            (
                st(s, TX, ld(A, k, TX)),
                SyncThreads(),
                st(v, 0, op("+", ld(v, 0), ld(s, op("%", op("+", TX, 1), 48)))),
                SyncThreads(),
            ),
        ),
        st(C, TX, ld(v, 0)),
    )
    check_lowered(kernel([A, C], *body, threads=T48), A=f32(4, 48), C=zeros(48), rtol=1e-6)


def test_threads_in_two_axes():
    C = buf("C", I32, 8, 6)
    fn = kernel([C], st(C, TY, TX, add(mul(TY, 10), TX)), threads=(6, 8))
    check_lowered(fn, C=zeros(8, 6, dtype=np.int32))


def test_threads_that_return_early_do_nothing_more():
    C = buf("C", I32, 48)
    body = (
        If(op(">", TX, 40), (ThreadReturn(),), orelse=()),
        For(k, e(0), e(9), (If(op("==", add(TX, k), 30), (ThreadReturn(),), orelse=()),)),
        st(C, TX, TX),
    )
    check_lowered(kernel([C], *body, threads=T48), C=zeros(48, dtype=np.int32))


def test_an_atomic_outside_of_a_parallel_loop_is_done_by_every_thread():
    C = buf("C", I32, 1)
    fn = kernel([C], Atomic(AtomicOp.ADD, reg(C), e(1)), threads=T48)
    check_lowered(fn, C=zeros(1, dtype=np.int32))


def test_tile_operations_between_regions():
    A, C = buf("A", F32, 48), buf("C", F32, 48)
    s, total = buf("s", F32, 48, scope="shared.dyn"), buf("t", F32, 1, scope="shared.dyn")
    body = (
        Alloc(s),
        Alloc(total),
        st(s, TX, ld(A, TX)),
        SyncThreads(),
        Reduce(ReduceOp.MAX, reg(s), reg(total), dim=0),
        st(C, TX, op("-", ld(s, TX), ld(total, 0))),
    )
    check_lowered(kernel([A, C], *body, threads=T48), A=f32(48), C=zeros(48))


COLLECTIVE = [
    ("shfl_sync", (Cast(TX, F32), op("%", TX, 5)), (32, -1), F32),
    ("shfl_xor", (Cast(TX, F32), const(3)), (32, -1), F32),
    ("shfl_up", (Cast(TX, F32), const(2)), (16, -1), F32),
    ("shfl_down", (Cast(TX, F32), const(7)), (32, -1), F32),
    ("any_sync", (op("==", TX, 40),), (0xFFFFFFFF,), I32),
    ("all_sync", (op("<", TX, 40),), (0xFFFFFFFF,), I32),
    ("ballot_sync", (op("<", op("%", TX, 7), 3),), (0xFFFFFFFF,), DType("uint64")),
    ("warp_reduce_sum", (Cast(TX, F32),), (), F32),
    ("warp_reduce_max", (op("%", mul(TX, 7), 13),), (), I32),
    ("syncthreads_count", (op("<", TX, 40),), (), I32),
    ("syncthreads_or", (op("<", TX, 0),), (), I32),
    ("syncthreads_and", (op("<", TX, 64),), (), I32),
    ("elect", (), (64,), BOOL),
    ("shfl_up", (Cast(TX, F32), const(33)), (32, -1), F32),
    ("shfl_sync", (Cast(TX, F32), op("-", 3, TX)), (8, -1), F32),
    ("warp_reduce_bitor", (op("%", mul(TX, 7), 32),), (), I32),
    ("match_any_sync", (op("//", op("%", mul(TX, 7), 13), 4),), (0xFFFFFFFF,), U32),
    ("match_any_sync", (Cast(op("%", TX, 3), F32),), (0x0FF0,), U32),
    ("match_all_sync", (op("//", TX, 32),), (0xFFFFFFFF,), U32),
    ("match_all_sync", (op("//", TX, 40),), (0xFFFFFFFF,), U32),
    ("match_all_sync", (op("//", op("%", TX, 32), 8),), (0xFF00,), U32),
    ("match_all_sync", (op("//", op("%", TX, 32), 8),), (0xFF000F00,), U32),
]


@pytest.mark.parametrize("count", [64, 45])
@pytest.mark.parametrize(
    ("fn", "args", "params", "dtype"), COLLECTIVE, ids=[c[0] for c in COLLECTIVE]
)
def test_what_threads_of_a_warp_do_together(fn, args, params, dtype, count):
    C = buf("C", dtype, count)
    got = Var("got", dtype)
    body = (Collective(fn, args, got, params=params), st(C, TX, got))
    check_native(kernel([C], *body, threads=(count,)), C=np.zeros(count, dtype.numpy))


BARRIER = buf("m", "uint64", 2, scope="shared.barrier")


def phases(count, waits):
    """Threads load tiles through a barrier that each of them arrives at `count` times a phase."""
    A, C = buf("A", F32, 4, 48), buf("C", F32, 4, 48)
    s = buf("s", F32, 48, scope="shared.dyn")
    barrier = reg(BARRIER, op("%", k, 2), ext=(1,))
    body = (
        Alloc(BARRIER, arrive_counts=(48 * count, 48 * count)),
        Alloc(s),
        For(
            k,
            e(0),
            e(4),
            (
                TmaCopy(reg(A, k, 0, ext=(1, 48)), reg(s), barrier=barrier),
                *(MbarArrive(barrier) for _ in range(count)),
                MbarWait(barrier, waits(op("%", op("//", k, 2), 2))),
                st(C, k, TX, op("*", ld(s, TX), 2.0)),
                SyncThreads(),
            ),
        ),
    )
    return kernel([A, C], *body, threads=T48)


@pytest.mark.parametrize("count", [1, 3])
def test_mbarriers_complete_when_all_threads_have_arrived(count):
    check_lowered(phases(count, lambda parity: parity), A=f32(4, 48), C=zeros(4, 48))


def test_a_wait_for_a_phase_that_nobody_completes_is_reported():
    program = lowered(phases(1, lambda parity: op("-", 1, parity)))
    with pytest.raises(AssertionFailed, match="can no longer be completed"):
        run(program, {"A": f32(4, 48), "C": zeros(4, 48)})


def test_copies_that_threads_issue_for_themselves():
    A, C = buf("A", F32, 48, 4), buf("C", F32, 48, 4)
    s = buf("s", F32, 48, 4, scope="shared.dyn")
    pick = reg(A, op("-", 47, TX), 0, ext=(1, 4))
    body = (
        Alloc(s),
        AsyncCopy(pick, reg(s, TX, 0, ext=(1, 4)), commit=False, pred=op("<", TX, 40)),
        CommitGroup(),
        WaitGroup(e(0)),
        SyncThreads(),
        Copy(reg(s), reg(C)),
    )
    check_lowered(kernel([A, C], *body, threads=T48), A=f32(48, 4), C=zeros(48, 4))


def test_atomic_accesses_outside_of_global_memory_too():
    A, C = buf("A", I32, 4), buf("C", I32, 6)
    read = AtomicLoad(A, (op("-", i, 1),), memory_order="acquire")
    body = AtomicStore(C, (op("+", i, 1),), read, memory_order="release")
    args = {"A": np.arange(4, dtype=np.int32) + 5, "C": zeros(6, dtype=np.int32)}
    check_lowered(kernel([A, C], For(i, e(0), e(6), (body,))), **args)


def test_a_vectorized_loop_of_the_author_may_carry():
    A = buf("A", I32, 16)
    body = (st(A, i, op("+", ld(A, i), ld(A, op("-", i, 1)))),)
    fn = kernel([A], For(i, e(1), e(16), body, kind=LoopKind.VECTORIZED))
    check_lowered(fn, A=np.ones(16, np.int32))
