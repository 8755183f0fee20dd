"""The scalar units of Ascend cores: variables, loops, conditions, single elements, assertions,
printing; by hand and with the automatic order of pipes.
"""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.errors import TileError
from tilelang.simulator.machine import Schedule

TARGET = "simulate:ascend910b"


def run(kernel, *args, automatic=False):
    """In order, then on queues under some schedules: the same arrays, and nothing to report."""
    configs = {"tl.ascend_auto_sync": True} if automatic else {}
    made = tilelang.compile(kernel, target=TARGET, pass_configs=configs)
    before = [a.copy() for a in args]
    made(*args)
    names = [p.name for p in kernel.ir.params]
    for schedule in Schedule.sweep(3):
        again = [a.copy() for a in before]
        found = made._program.program.check(dict(zip(names, again, strict=True)), schedule)
        assert [d.render() for d in found] == []
        assert all(np.array_equal(a, b) for a, b in zip(args, again, strict=True))


def test_elements_of_global_memory_decide():
    """A loop over a table of row numbers that ends at a negative one."""

    @T.prim_func
    def kernel(
        I: T.Tensor((9,), "int32"),
        A: T.Tensor((16, 32), "float32"),
        C: T.Tensor((16, 32), "float32"),
    ):
        with T.Kernel(1, is_npu=True) as (_, vid), T.Scope("V"):
            u = T.alloc_ub((1, 32), "float32")
            if vid == 0:
                for k in T.serial(9):
                    if I[k] < 0:
                        break
                    T.copy(A[I[k], 0:32], u[0, :])
                    T.barrier_all()
                    if I[k] % 2 == 0:
                        T.tile.mul(u, u, 2.0)
                    else:
                        T.tile.add(u, u, 1.0)
                    T.barrier_all()
                    T.copy(u[0, :], C[I[k], 0:32])
                    T.barrier_all()

    rng = np.random.default_rng(0)
    index = np.array([3, 8, 1, 14, 5, -1, 2, 2, 2], np.int32)
    a, c = rng.standard_normal((16, 32)).astype(np.float32), np.zeros((16, 32), np.float32)
    run(kernel, index, a, c)
    wanted = np.zeros_like(c)
    for i in index[:5]:
        wanted[i] = a[i] * 2 if i % 2 == 0 else a[i] + np.float32(1)
    assert (c == wanted).all()


@pytest.mark.parametrize("automatic", [False, True])
def test_single_elements_of_ub(automatic):
    """A running sum, element by element, in a variable and in UB."""

    @T.prim_func
    def kernel(A: T.Tensor((40,), "float32"), C: T.Tensor((40,), "float32")):
        with T.Kernel(1, is_npu=True) as (_, vid), T.Scope("V"):
            u = T.alloc_ub((40,), "float32")
            total = T.alloc_var("float32")
            if vid == 1:
                T.copy(A, u)
                if not automatic:
                    T.barrier_all()
                total = 0.0
                for k in T.serial(40):
                    total = total + u[k]
                    u[k] = total
                if not automatic:
                    T.barrier_all()
                T.copy(u, C)

    a = np.arange(40, dtype=np.float32)
    c = np.zeros(40, np.float32)
    run(kernel, a, c, automatic=automatic)
    assert (c == np.cumsum(a)).all()


def test_integers_wrap_as_in_int32():
    @T.prim_func
    def kernel(A: T.Tensor((4,), "int32"), C: T.Tensor((4,), "int32")):
        with T.Kernel(1, is_npu=True) as (_, vid), T.Scope("V"):
            if vid == 0:
                C[0] = A[0] * A[1]
                C[1] = A[0] + A[0]
                C[2] = A[2] // A[3]
                C[3] = A[2] % A[3]

    a = np.array([2**30, 3, -7, 2], np.int32)
    c = np.zeros(4, np.int32)
    run(kernel, a, c)
    assert c.tolist() == [-(2**30), -(2**31), -4, 1]


def test_while_and_a_scalar_argument():
    @T.prim_func
    def kernel(C: T.Tensor((8,), "int32"), n: T.int32):
        with T.Kernel(1, is_npu=True) as (_, vid), T.Scope("V"):
            k = T.alloc_var("int32")
            if vid == 0:
                k = n
                while k < 8:
                    C[k] = k * n
                    k = k + 3

    made = tilelang.compile(kernel, target=TARGET)
    c = np.zeros(8, np.int32)
    made(c, 2)
    assert c.tolist() == [0, 0, 4, 0, 0, 10, 0, 0]


def test_an_index_outside_of_ub_is_an_error():
    @T.prim_func
    def kernel(I: T.Tensor((1,), "int32"), C: T.Tensor((8,), "float32")):
        with T.Kernel(1, is_npu=True) as (_, vid), T.Scope("V"):
            u = T.alloc_ub((8,), "float32")
            if vid == 0:
                T.tile.fill(u, 1.0)
                T.barrier_all()
                C[0] = u[I[0]]

    made = tilelang.compile(kernel, target=TARGET)
    c = np.zeros(8, np.float32)
    made(np.array([3], np.int32), c)
    assert c[0] == 1
    with pytest.raises(TileError, match="an index of u is outside its extent"):
        made(np.array([8], np.int32), c)


def test_printing(capsys):
    @T.prim_func
    def kernel(A: T.Tensor((8,), "float32")):
        with T.Kernel(1, is_npu=True) as (cid, vid), T.Scope("V"):
            if vid == 0:
                T.print(cid + 7, msg="block")

    tilelang.compile(kernel, target=TARGET)(np.zeros(8, np.float32))
    assert "block" in capsys.readouterr().out
