"""A lowered program with Tensor Memory has no step too many: without one of its fences, waits and
barriers, the simulator finds something, or the result is wrong.
"""

import numpy as np
import pytest

import tilelang.language as T
from gpu_build import copies, gpu_program
from simulator_faults import faults
from tilelang.simulator.gpu import SimulatedProgram
from tilelang.simulator.machine import Schedule
from tilelang.targets.cuda.rows import ROWS

RANDOM = np.random.default_rng(3)
STEPS = (
    "barrier.sync",
    "mbarrier.try_wait.parity",
    "tcgen05.fence.before_thread_sync",
    "tcgen05.fence.after_thread_sync",
    "tcgen05.wait.ld",
    "tcgen05.wait.st",
    "tcgen05.commit",
    "tcgen05.dealloc",
    "tcgen05.alloc",
)


def product(rounds: int):
    @T.prim_func
    def kernel(
        A: T.Tensor((128, 32 * rounds), "float16"),
        B: T.Tensor((32, 32 * rounds), "float16"),
        C: T.Tensor((128, 32), "float32"),
    ):
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((128, 32), "float16"), T.alloc_shared((32, 32), "float16")
            c, out = T.alloc_tmem((128, 32), "float32"), T.alloc_fragment((128, 32), "float32")
            for k in T.serial(rounds):
                T.copy(A[0, k * 32], a)
                T.copy(B[0, k * 32], b)
                T.gemm(a, b, c, transpose_B=True, clear_accum=k == 0)
            T.copy(c, out)
            T.copy(out, C)

    return kernel


def left_operand():
    @T.prim_func
    def kernel(
        A: T.Tensor((128, 32), "float16"),
        B: T.Tensor((32, 32), "float16"),
        C: T.Tensor((128, 32), "float32"),
    ):
        with T.Kernel(1, threads=128):
            f, out = T.alloc_fragment((128, 32), "float16"), T.alloc_fragment((128, 32), "float32")
            b = T.alloc_shared((32, 32), "float16")
            a, c = T.alloc_tmem((128, 32), "float16"), T.alloc_tmem((128, 32), "float32")
            T.copy(B, b)
            T.copy(A, f)
            T.copy(f, a)
            T.gemm(a, b, c, transpose_B=True, clear_accum=True)
            T.copy(c, out)
            T.copy(out, C)

    return kernel


@pytest.mark.parametrize(
    ("fn", "deep"), [(product(2), 64), (left_operand(), 32)], ids=["tiles", "left operand"]
)
def test_every_step_that_is_left_out_is_noticed(fn, deep):
    program = gpu_program(fn.ir, "sm_100a")
    args = {
        "A": RANDOM.integers(-3, 4, (128, deep)).astype("f2"),
        "B": RANDOM.integers(-3, 4, (32, deep)).astype("f2"),
        "C": np.zeros((128, 32), "f4"),
    }
    want = args["A"].astype("f4") @ args["B"].astype("f4").T
    silent: list[str] = []
    planted = 0
    for group in faults(program):
        for fault in group:
            name = str(fault)
            if "dropped" not in name or not name.startswith(STEPS):
                continue
            planted += 1
            for schedule in Schedule.sweep(3):
                got = copies(args)
                found = SimulatedProgram(fault.program, ROWS).check(got, schedule)
                if found or not np.array_equal(got["C"], want):
                    break
            else:
                silent.append(name)
    assert planted > 5
    assert not silent
