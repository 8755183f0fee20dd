"""What a launch on the native CPU survives: nothing that a kernel or its arguments do ends the
process, and what goes wrong is an error at the author's line.
"""

import threading

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.errors import TileError, TileIndexError, TileRuntimeError

n = T.dynamic("n")


def native(fn, **options):
    kernel = tilelang.compile(fn, target="cpu", **options)
    assert kernel.target == "cpu"
    return kernel


def ints(*values):
    return np.array(values, np.int32)


def lines(caught):
    return caught.value.diagnostics[0].loc


@T.prim_func
def add_one(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
    with T.Kernel(T.ceildiv(n, 64), threads=64) as bx:
        for i in T.Parallel(64):
            B[bx * 64 + i] = A[bx * 64 + i] + 1


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65])
def test_sizes_from_zero_on(size):
    a, b = np.arange(size, dtype=np.float32), np.zeros(size, np.float32)
    native(add_one)(a, b)
    np.testing.assert_array_equal(b, a + 1)


@T.prim_func
def fewer_blocks(A: T.Tensor((n,), "int32")):
    with T.Kernel(n - 3, threads=1) as bx:
        A[bx] += 1


@pytest.mark.parametrize("size", [0, 1, 3, 5])
def test_a_grid_that_would_be_negative_is_empty(size):
    a = np.zeros(size, np.int32)
    native(fewer_blocks)(a)
    assert a.sum() == max(0, size - 3)


@T.prim_func
def quotients(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32"), C: T.Tensor((8,), "int32")):
    with T.Kernel(1, threads=32):
        for i in T.Parallel(8):
            C[i] = A[i] // B[i] + A[i] % B[i] + T.truncdiv(A[i], B[i]) + T.truncmod(A[i], B[i])


def test_divisions_without_a_result_do_not_trap():
    low, c = -(2**31), np.zeros(8, np.int32)
    native(quotients)(ints(1, low, 5, 0, -1, 7, low, 9), ints(0, -1, 0, 0, 0, 2, 1, -2), c)
    assert c[5] == 3 + 1 + 3 + 1 and c[7] == -5 - 1 - 4 + 1


@T.prim_func
def gather(A: T.Tensor((8,), "int32"), C: T.Tensor((8,), "int32")):
    with T.Kernel(4, threads=32):
        s = T.alloc_shared((8,), "int32")
        T.copy(A, s)
        for i in T.Parallel(8):
            C[i] = s[A[i]]


@pytest.mark.parametrize("index", [8, -1, 2**31 - 1, -(2**31)])
def test_an_index_on_chip_that_is_outside_is_an_error_and_the_next_call_works(index):
    kernel = native(gather)
    a, c = np.arange(8, dtype=np.int32), np.zeros(8, np.int32)
    with pytest.raises(TileIndexError, match="an index of s is outside") as caught:
        kernel(ints(0, 1, 2, 3, 4, 5, 6, index), c)
    assert lines(caught).file.endswith("test_cpu_launches.py")
    kernel(a, c)
    np.testing.assert_array_equal(c, a)


@T.prim_func
def positive(A: T.Tensor((8,), "int32"), C: T.Tensor((8,), "int32")):
    with T.Kernel(8, threads=32) as bx:
        T.device_assert(A[bx] > 0, "positive")
        C[bx] = A[bx]


def test_an_assertion_that_fails_ends_the_launch_only():
    kernel, c = native(positive), np.zeros(8, np.int32)
    for _ in range(20):
        with pytest.raises(TileRuntimeError, match="device assertion failed: positive"):
            kernel(ints(1, 1, 1, 1, 1, 0, 1, 1), c)
    kernel(ints(*range(1, 9)), c)
    np.testing.assert_array_equal(c, np.arange(1, 9))


@T.prim_func
def too_much_on_chip(C: T.Tensor((8,), "int8")):
    with T.Kernel(1, threads=32):
        s = T.alloc_shared((1 << 50,), "int8")
        s[5] = 3
        C[0] = s[5]


def test_buffers_on_chip_for_which_there_is_no_memory_are_an_error():
    with pytest.raises(TileError, match="no memory for the buffers on chip"):
        native(too_much_on_chip)(np.zeros(8, np.int8))


@T.prim_func
def too_large_a_workspace(A: T.Tensor((n,), "int8"), C: T.Tensor((8,), "int8")):
    with T.Kernel(1, threads=32):
        w = T.alloc_global((n, 1 << 30, 1 << 30), "float64")
        w[0, 0, 5] = 3
        C[0] = T.cast(w[0, 0, 5], "int8")


@pytest.mark.parametrize("size", [1, 16, 64])  # with 16 the number of bytes is 0 in 64 bits
def test_a_workspace_for_which_there_is_no_memory_is_an_error(size):
    with pytest.raises(TileError, match="no memory for the workspace w") as caught:
        native(too_large_a_workspace)(np.zeros(size, np.int8), np.zeros(8, np.int8))
    assert caught.value.diagnostics[0].kind == "capacity"


def test_a_workspace_that_no_machine_has_is_refused():
    @T.prim_func
    def main(C: T.Tensor((8,), "int8")):
        with T.Kernel(1, threads=32):
            w = T.alloc_global((1 << 40, 1 << 40), "float64")
            C[0] = T.cast(w[0, 5], "int8")

    with pytest.raises(TileError, match="no memory for the workspace w"):
        native(main)


def test_an_expression_that_is_too_deep_is_an_error_of_the_author():
    def chain(x):
        for _ in range(300):
            x = x * 3 + 1
        return x

    @T.prim_func
    def main(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                A[i] = chain(A[i])

    with pytest.raises(TileError, match="nested too deeply") as caught:
        native(main)
    assert lines(caught).file.endswith("test_cpu_launches.py")


def test_calls_from_several_threads_at_once():
    kernel, wrong = native(add_one), []

    def work(size):
        a = np.arange(size, dtype=np.float32)
        for _ in range(50):
            b = np.zeros_like(a)
            kernel(a, b)
            if not np.array_equal(b, a + 1):
                wrong.append(size)

    threads = [threading.Thread(target=work, args=(1000 + k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


@T.prim_func
def prints(A: T.Tensor((8,), "float32")):
    with T.Kernel(2, 2, threads=(4, 2)) as (bx, by):
        tx, ty = T.get_thread_binding(0), T.get_thread_binding(1)
        s = T.alloc_shared((2,), "float16")
        T.fill(s, 0.1)
        T.print(msg="begin")
        T.print(bx * 10 + by, msg="block")
        T.print(s, msg="tile")
        if tx < 2:
            T.print(A[tx] + ty, msg="some")
        T.sync_threads()
        for i, j in T.Parallel(4, 2):
            if A[i] > j + 1:
                T.print(T.cast(A[i], "bfloat16"), msg="nest")


def test_prints_are_those_of_the_emulator(capsys):
    lines = {}
    for target in ("emulate", "cpu"):
        tilelang.compile(prints, target=target)(np.arange(8, dtype=np.float32))
        lines[target] = capsys.readouterr().out.splitlines()
    assert "msg='some' BlockIdx=(1, 0, 0), ThreadIdx=(1, 1, 0)" in "\n".join(lines["cpu"])
    assert lines["cpu"] == lines["emulate"]


@T.prim_func
def print_all(A: T.StridedTensor((3, n), (12, 2), "float32")):
    with T.Kernel(1, threads=32):
        T.print(A, msg="all")


def test_a_tensor_with_strides_is_printed_element_by_element(capsys):
    a = np.arange(36, dtype=np.float32).reshape(3, 12)[:, :8:2]
    lines = {}
    for target in ("emulate", "cpu"):
        tilelang.compile(print_all, target=target)(a)
        lines[target] = capsys.readouterr().out.splitlines()
    assert len(lines["cpu"]) == 12
    assert "index=5, dtype=float32 value=14.0" in lines["cpu"][5]
    assert lines["cpu"] == lines["emulate"]


@T.prim_func
def cluster_of_one(A: T.Tensor((64,), "float32"), B: T.Tensor((2, 64), "float32")):
    with T.Kernel(2, threads=64, cluster_dims=1) as bx:
        t, s = T.get_thread_binding(), T.alloc_shared((64,), "float32")
        bar = T.alloc_cluster_barrier([64])
        T.tma_copy(A, s, barrier=bar, cluster_mask=1)
        T.mbarrier_arrive(bar, 0)
        T.mbarrier_wait_parity(bar, 0)
        s[t] = s[t] + bx
        T.cluster_arrive()
        T.cluster_wait()
        B[bx, t] = s[63 - t]
        T.cluster_sync()


def test_a_cluster_of_one_block_is_a_block():
    a, b = np.arange(64, dtype=np.float32), np.zeros((2, 64), np.float32)
    native(cluster_of_one)(a, b)
    np.testing.assert_array_equal(b, np.stack([a[::-1], a[::-1] + 1]))


@T.prim_func
def first_of(C: T.Tensor((1,), "float32"), p: T.ptr):
    with T.Kernel(1, threads=1):
        A = T.make_tensor(p, (1000,), "float32")
        C[0] = A[0]


@pytest.mark.parametrize("address", [0, 64, 0x7F00_0000_0000_0000, "after"])
def test_an_address_of_nothing_is_an_error(address):
    kernel, x, c = native(first_of), np.full(1000, 5, np.float32), np.zeros(1, np.float32)
    with pytest.raises(TileError, match="the address of A is not in the memory") as caught:
        kernel(c, x.ctypes.data + (1 << 40) if address == "after" else address)
    assert lines(caught).file.endswith("test_cpu_launches.py")
    kernel(c, x.ctypes.data)
    assert c[0] == 5
