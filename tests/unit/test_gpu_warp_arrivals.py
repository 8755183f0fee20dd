"""One thread of a warp arrives at an mbarrier for all of it: what the others did comes before."""

# ruff: noqa: SIM102 - the conditions are written to be traced

import numpy as np
import pytest

import tilelang.language as T
from blackwell_build import check_blackwell
from tilelang.dtypes import DType
from tilelang.ir.expr import Const
from tilelang.ir.thread import Instr
from tilelang.simulator.gpu import SimulatedProgram
from tilelang.simulator.machine import Schedule
from tilelang.targets.cuda.rows import ROWS


def handed_on(rounds, who=lambda tx: tx % 32 == 0, threads=128, nested=False):
    """Warp 0 publishes a number in shared memory; one thread of each other warp says that its warp
    has read it.
    """
    readers = threads // 32 - 1

    @T.prim_func
    def kernel(A: T.Tensor((rounds,), "int32"), B: T.Tensor((rounds, threads), "int32")):
        with T.Kernel(1, threads=threads):
            word = T.alloc_shared((1,), "int32")
            full, empty = T.alloc_barrier(1), T.alloc_barrier(readers)
            tx = T.get_thread_binding()
            if tx < 32:
                for k in T.serial(rounds):
                    if tx == 0:
                        if k > 0:
                            T.mbarrier_wait_parity(empty, (k - 1) % 2)
                        word[0] = A[k]
                        T.mbarrier_arrive(full)
            else:
                for k in T.serial(rounds):
                    T.mbarrier_wait_parity(full, k % 2)
                    B[k, tx] = word[0]
                    if nested:
                        if tx % 2 == 0:
                            if who(tx):
                                T.mbarrier_arrive(empty)
                    elif who(tx):
                        T.mbarrier_arrive(empty)

    return kernel


def arrays(rounds, threads):
    a = np.arange(rounds, dtype=np.int32) + 7
    want = np.zeros((rounds, threads), np.int32)
    want[:, 32:] = a[:, None]
    return a, want


@pytest.mark.parametrize(
    ("rounds", "threads", "who", "nested"),
    [
        (1, 64, lambda tx: tx % 32 == 0, False),
        (5, 128, lambda tx: tx % 32 == 0, False),
        (4, 96, lambda tx: tx % 32 == 31, False),
        (3, 128, lambda tx: T.shuffle_elect(32), False),
        (4, 128, lambda tx: tx % 32 == 4, True),
    ],
)
def test_what_a_warp_read_is_ordered_before_the_arrival_of_one_thread(rounds, threads, who, nested):
    a, want = arrays(rounds, threads)
    kernel = handed_on(rounds, who, threads, nested)
    b = np.zeros_like(want)
    program = check_blackwell(kernel, seeds=3, A=a, B=b)
    got = {"A": a, "B": b.copy()}
    SimulatedProgram(program, ROWS).run(got)
    np.testing.assert_array_equal(got["B"], want)
    rows = [n.row for n in program.walk() if isinstance(n, Instr)]
    assert rows.count("bar.warp.sync") >= 1


def test_without_it_there_is_a_race():
    a, want = arrays(5, 128)
    program = check_blackwell(handed_on(5), A=a, B=np.zeros_like(want))
    bare = program.rewrite(
        lambda n: (
            n.with_(row="nanosleep", imm=(), ins=(Const(0, DType("int32")),))
            if isinstance(n, Instr) and n.row == "bar.warp.sync"
            else None
        )
    )
    found = SimulatedProgram(bare, ROWS).check({"A": a, "B": np.zeros_like(want)}, Schedule())
    assert {d.kind for d in found} == {"race"}


def test_warps_that_part_before_do_not_meet():
    """Only some lanes get to the arrival: nobody may wait for the others there."""

    @T.prim_func
    def kernel(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            s = T.alloc_shared((64,), "int32")
            bar = T.alloc_barrier(1)
            tx = T.get_thread_binding()
            s[tx] = A[tx]
            for k in T.serial(tx % 3):
                if tx % 32 == 2:
                    if k == 1:
                        T.mbarrier_arrive(bar)
            T.mbarrier_wait_parity(bar, 0)
            B[tx] = s[tx]

    a = np.arange(64, dtype=np.int32)
    program = check_blackwell(kernel, seeds=3, A=a, B=np.zeros_like(a))
    assert "bar.warp.sync" not in [n.row for n in program.walk() if isinstance(n, Instr)]
