"""The in-order mode of Ascend cores: what it keeps of an instruction changes nothing that can be
seen. Arrays of one launch are those of the queued mode in every bit.
"""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.simulator.ascend import abreast, inorder
from tilelang.simulator.machine import Schedule

TARGET = "simulate:ascend910b"


def launch(kernel, *args):
    """In order, then on queues: the same arrays."""
    made = tilelang.compile(kernel, target=TARGET, pass_configs={"tl.ascend_auto_sync": True})
    again = [a.copy() for a in args]
    made(*args)
    names = [p.name for p in kernel.ir.params]
    found = made._program.program.check(dict(zip(names, again, strict=True)), Schedule.sweep(1)[0])
    for a, b in zip(args, again, strict=True):
        assert a.tobytes() == b.tobytes()
    return [d.kind for d in found]


def test_a_block_knows_nothing_of_the_one_before():
    @T.prim_func
    def kernel(C: T.Tensor((5, 48), "float32")):
        with T.Kernel(5, is_npu=True) as (bx, vid), T.Scope("V"):
            u = T.alloc_ub((1, 48), "float32")
            if vid == 0:
                if bx == 0:
                    T.tile.fill(u, 1.0)
                T.copy(u[0, :], C[bx, :])

    c = np.zeros((5, 48), np.float32)
    assert "uninitialised" in launch(kernel, c)
    assert (c[0] == 1).all()
    assert np.isnan(c[1:]).all()


@pytest.mark.parametrize("kept", [1, 3, 4096])
def test_more_places_than_are_kept(monkeypatch, kept):
    monkeypatch.setattr(inorder, "KEPT", kept)
    monkeypatch.setattr(abreast, "KEPT", kept)

    @T.prim_func
    def kernel(A: T.Tensor((3, 7, 48), "float16"), C: T.Tensor((3, 7, 48), "float16")):
        with T.Kernel(3, is_npu=True) as (bx, vid), T.Scope("V"):
            u = T.alloc_ub((7, 48), "float16")
            if vid == 0:
                for k in T.serial(7):
                    T.copy(A[bx, k, :], u[k, :])
                for k in T.serial(14):
                    T.tile.add(u[k % 7, :], u[k % 7, :], u[(k + 3) % 7, :])
                for k in T.serial(7):
                    T.copy(u[k, :], C[bx, k, :])

    a = np.random.default_rng(kept).integers(-3, 4, (3, 7, 48)).astype(np.float16)
    c, wanted = np.zeros_like(a), a.copy()
    for k in range(14):
        wanted[:, k % 7] += wanted[:, (k + 3) % 7]
    assert launch(kernel, a, c) == []
    assert (c == wanted).all()


def test_products_of_counters_wrap_only_where_they_leave_int32():
    @T.prim_func
    def kernel(C: T.Tensor((2, 8), "int32")):
        with T.Kernel(2, is_npu=True) as (bx, vid), T.Scope("V"):
            if vid == 0:
                for k in T.serial(8):
                    C[bx, k] = k * 700000000 + bx * (k - 5) * 400000000 - 3

    c = np.zeros((2, 8), np.int32)
    assert launch(kernel, c) == []
    k = np.arange(8, dtype=np.int64)
    wanted = [k * 700000000 - 3, k * 700000000 + (k - 5) * 400000000 - 3]
    assert (c == np.array(wanted).astype(np.int32)).all()
