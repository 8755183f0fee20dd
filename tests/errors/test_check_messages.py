"""The whole text of the messages of `check`: one kernel for each, as an author would write it."""

import pytest

import tilelang.ascend.language as TA
import tilelang.language as T
from tilelang.passes.check import check_function, memory_report
from tilelang.targets import CHIPS, target


@T.prim_func
def elementwise_tensor_memory(A: T.Tensor((128, 128), "float32")):
    with T.Kernel(1, threads=128):
        S = T.alloc_tmem((128, 128), "float32")
        T.clear(S)
        for i, j in T.Parallel(128, 128):
            S[i, j] = S[i, j] * 2.0


@T.prim_func
def tensor_memory_to_global(C: T.Tensor((128, 64), "float32")):
    with T.Kernel(1, threads=128):
        c = T.alloc_tmem((128, 64), "float32")
        T.clear(c)
        T.copy(c, C)


@T.prim_func
def two_accumulators():
    with T.Kernel(1, threads=128):
        first = T.alloc_tmem((128, 200), "float32")
        second = T.alloc_tmem((128, 512), "float32")
        T.clear(first)
        T.clear(second)


@T.prim_func
def used_after_free():
    with T.Kernel(1, threads=128):
        t = T.alloc_tmem((128, 64), "float32")
        f = T.alloc_fragment((128, 64), "float32")
        T.deallocate_tmem(t)
        T.copy(t, f)


@T.prim_func
def too_much_shared(A: T.Tensor((512, 512), "float32"), B: T.Tensor((512, 512), "float32")):
    with T.Kernel(1, threads=128):
        small = T.alloc_shared((64,), "float16")
        tile = T.alloc_shared((512, 512), "float32")
        T.clear(small)
        T.copy(A, tile)
        T.copy(tile, B)


@T.prim_func
def stages(A: T.Tensor((1024, 128), "float16"), B: T.Tensor((128, 128), "float16")):
    with T.Kernel(1, threads=128):
        s = T.alloc_shared((128, 128), "float16")
        for k in T.Pipelined(8, num_stages=8):
            T.copy(A[k * 128, 0], s)
            T.copy(s, B)


@T.prim_func
def spills(A: T.Tensor((128, 300), "float32")):
    with T.Kernel(1, threads=128):
        f = T.alloc_fragment((128, 300), "float32")
        T.copy(A, f)
        T.copy(f, A)


@T.prim_func
def mainline_ascend(A: T.Tensor((64, 64), "float16")):
    with TA.Kernel(1):
        tile = TA.alloc_l1((64, 64), "float16")
        TA.copy(A, tile)


@T.prim_func
def adapter_names(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=1):
        u = T.alloc_ub((64,), "float32")
        T.copy(A, u)


@T.prim_func
def no_path(A: T.Tensor((64, 64), "float16")):
    with TA.Kernel(1):
        a = TA.alloc_l0a((64, 64), "float16")
        TA.copy(A, a)


@T.prim_func
def local_in_parallel(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        mine = T.alloc_local((64,), "float32")
        for i in T.Parallel(64):
            mine[i] = A[i]


@T.prim_func
def out_of_bounds(A: T.Tensor((1024,), "float32")):
    with T.Kernel(8, threads=128) as bx:
        s = T.alloc_shared((128,), "float32")
        for i in T.Parallel(128):
            s[i + bx] = A[bx * 128 + i]


@T.prim_func
def ragged(A: T.Tensor((100,), "float32"), B: T.Tensor((100,), "float32")):
    with T.Kernel(2, threads=64) as bx:
        for i in T.Parallel(64):
            B[bx * 64 + i] = A[bx * 64 + i]


@T.prim_func
def shared_workspace(X: T.Tensor((256,), "float32"), Y: T.Tensor((256,), "float32")):
    with T.Kernel(2, threads=128) as bx:
        ws = T.alloc_global((128,), "float32")
        for i in T.Parallel(128):
            ws[i] = X[bx * 128 + i]
            Y[bx * 128 + i] = ws[i]


@T.prim_func
def read_of_another_block(A: T.Tensor((1024,), "float32")):
    with T.Kernel(8, threads=128) as bx:
        s = T.alloc_shared((128,), "float32")
        T.copy(A[bx * 128 + 1], s)
        T.copy(s, A[bx * 128])


@T.prim_func
def accumulation(A: T.Tensor((64, 32), "float32")):
    with T.Kernel(1, threads=128):
        x = T.alloc_fragment((32,), "float32")
        T.clear(x)
        for i, j in T.Parallel(64, 32):
            x[j] += A[i, j]


@T.prim_func
def neighbours():
    with T.Kernel(1, threads=128):
        x = T.alloc_shared((65,), "float32")
        T.clear(x)
        for i in T.Parallel(64):
            x[i] = x[i + 1]


@T.prim_func
def thread_stores():
    with T.Kernel(1, threads=128):
        s = T.alloc_shared((8,), "int32")
        tx = T.get_thread_binding()
        s[tx // 16] = tx


@T.prim_func
def divergent(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=128):
        s = T.alloc_shared((64,), "float32")
        tx = T.get_thread_binding()
        if A[tx % 64] > 0:
            T.copy(A, s)


@T.prim_func
def half_a_warp(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=128):
        s = T.alloc_shared((64,), "float32")
        tx = T.get_thread_binding()
        if tx < 48:
            T.copy(A, s)


CASES = {
    elementwise_tensor_memory: "emulate",
    tensor_memory_to_global: "emulate:sm_100a",
    two_accumulators: "emulate:sm_100a",
    used_after_free: "emulate:sm_100a",
    too_much_shared: "cuda -arch=sm_90a",
    stages: "emulate:sm_90a",
    spills: "emulate:sm_90a",
    mainline_ascend: "emulate:ascend910b",
    adapter_names: "cpu",
    no_path: "emulate:ascend950",
    local_in_parallel: "cpu",
    out_of_bounds: "cpu",
    ragged: "cpu",
    shared_workspace: "cpu",
    read_of_another_block: "cpu",
    accumulation: "cpu",
    neighbours: "cpu",
    thread_stores: "cpu",
    divergent: "cpu",
    half_a_warp: "cpu",
}


@pytest.mark.parametrize("kernel", list(CASES), ids=lambda k: k.ir.name)
def test_message(kernel, golden):
    found = check_function(kernel.ir, target(CASES[kernel]), chips=CHIPS)
    assert found
    golden("\n\n".join(d.render() for d in found), f"check/{kernel.ir.name}")


@pytest.mark.parametrize(
    ("kernel", "on"), [(stages, "emulate:sm_90a"), (two_accumulators, "emulate:sm_100a")]
)
def test_memory_report(kernel, on, golden):
    golden(memory_report(kernel.ir, target(on)).render(), f"check/memory_{kernel.ir.name}")
