"""Programs after public reports on what is around a kernel: arguments, caches, tuning."""

import re
import subprocess
import sys

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from report_run import refused
from tilelang.errors import TileError


def rows(width=16, dtype="float32"):
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((n, width), dtype), B: T.Tensor((n, width), dtype)):
        with T.Kernel(n, threads=width) as b:
            for j in T.Parallel(width):
                B[b, j] = A[b, j] + T.cast(1, dtype)

    return main


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        (np.zeros((1, 4, 16), np.float32), np.zeros((4, 16), np.float32), ("A", "dimensions", "3")),
        (np.zeros((4, 16), np.float16), np.zeros((4, 16), np.float32), ("A", "float16", "float32")),
        (np.zeros((4, 15), np.float32), np.zeros((4, 15), np.float32), ("A", "16", "15", "shape")),
        (np.zeros((4, 16), np.float32), np.zeros((5, 16), np.float32), ("B", "4", "5", "shape")),
        ([[0.0] * 16], np.zeros((1, 16), np.float32), ("A", "list")),
        (3.0, np.zeros((1, 16), np.float32), ("A", "float")),
        (None, np.zeros((1, 16), np.float32), ("A", "None")),
        ("x", np.zeros((1, 16), np.float32), ("A", "str")),
    ],
)  # fmt: skip
def test_arguments_that_do_not_fit_are_refused_by_name(a, b, words):  # 1011, 1107
    kernel = tilelang.compile(rows(), target="cpu")
    refused(lambda: kernel(a, b), *words, located=False)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_the_number_of_arguments_is_checked(count):  # 1107
    kernel = tilelang.compile(rows(), target="cpu")
    given = [np.zeros((4, 16), np.float32)] * count
    refused(lambda: kernel(*given), "2", str(count), "input", located=False)


def test_strided_arrays_are_read_with_their_strides():  # 1404
    kernel = tilelang.compile(rows(), target="cpu")
    base = np.arange(16 * 40, dtype=np.float32).reshape(16, 40)
    for a in (base.T, base.T[::2], base.T[::-1], base[::-1, ::-2][:, :16], base[:, 3:19]):
        assert a.shape[1] == 16
        out = np.zeros((2 * len(a), 32), np.float32)
        b = out[::-2, ::-2]
        kernel(a, b)
        assert (b == a + 1).all()
        assert (out[1::2, 1::2] == (a + 1)[::-1, ::-1]).all()
        assert (out[0::2] == 0).all()


def test_a_broadcast_array_is_read_and_not_written():  # 1404
    kernel = tilelang.compile(rows(), target="cpu")
    a = np.broadcast_to(np.arange(16, dtype=np.float32), (4, 16))
    b = np.zeros((4, 16), np.float32)
    kernel(a, b)
    assert (b == a + 1).all()
    refused(lambda: kernel(b, a), "B", located=False)


def test_a_launch_does_not_depend_on_launches_before():  # 2684
    kernel = tilelang.compile(rows(), target="cpu")
    for size in (3, 1, 5, 0, 3):
        a = np.full((size, 16), size, np.float32)
        b = np.zeros_like(a)
        kernel(a, b)
        assert (b == size + 1).all()


def test_captured_constants_make_kernels_of_their_own():  # pull 2358, 2662
    def build(width, scale):
        @tilelang.jit(target="cpu")
        def make():
            n = T.dynamic("n")

            @T.prim_func
            def main(X: T.Tensor((n, width), "float32"), Y: T.Tensor((n, width), "float32")):
                with T.Kernel(n, threads=64) as r:
                    for j in T.Parallel(width):
                        Y[r, j] = X[r, j] * scale

            return main

        return make()

    for width, scale in ((40, 2.0), (48, 2.0), (40, 3.0), (40, 2.0), (40, -0.0), (40, 0.0)):
        x = np.arange(2 * width, dtype=np.float32).reshape(2, width) + 1
        y = np.zeros_like(x)
        build(width, scale)(x, y)
        assert (y == x * scale).all()
        assert (np.signbit(y) == np.signbit(x * scale)).all()


def test_a_kernel_of_a_function_does_not_change_with_a_later_constant():  # pull 2358
    factor = 2

    @tilelang.jit(target="cpu")
    def make(width):
        @T.prim_func
        def main(X: T.Tensor((width,), "int32")):
            with T.Kernel(1, threads=32):
                for j in T.Parallel(width):
                    X[j] = X[j] * factor

        return main

    x = np.ones(8, np.int32)
    make(8)(x)
    factor = 5
    make(8)(x)
    assert (x == 10).all()


def test_outputs_that_a_call_allocates():  # 1107
    @T.prim_func
    def main(A: T.Tensor((4, 8), "int32"), S: T.Tensor((4,), "int32"), X: T.Tensor((8,), "int64")):
        with T.Kernel(1, threads=32):
            tile = T.alloc_fragment((4, 8), "int32")
            s = T.alloc_fragment((4,), "int32")
            x = T.alloc_fragment((8,), "int64")
            T.copy(A, tile)
            T.reduce_sum(tile, s, dim=1)
            T.reduce_max(tile, x, dim=0)
            T.copy(s, S)
            T.copy(x, X)

    a = np.arange(32, dtype=np.int32).reshape(4, 8)
    s, x = tilelang.compile(main, out_idx=[1, -1], target="cpu")(a)
    assert (s == a.sum(1)).all()
    assert (x == a.max(0)).all()
    assert (s.dtype, x.dtype) == (np.int32, np.int64)
    for wrong in ([3], [-4], [1, 1], ["x"], 1.5):
        refused(
            lambda w=wrong: tilelang.compile(main, out_idx=w, target="cpu"),
            "out_idx",
            located=False,
        )


def test_import_needs_no_library_of_a_gpu():  # 974, 1586, 2314
    code = (
        "import sys, tilelang, tilelang.language as T\n"
        "heavy = ('torch', 'cuda', 'llvmlite', 'tvm')\n"
        "bad = [m for m in sys.modules if m.split('.')[0] in heavy]\n"
        "print(bad)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_scalar_arguments_are_checked():
    @T.prim_func
    def main(A: T.Tensor((4,), "int64"), i: T.int32, u: T.uint8, f: T.float32, b: T.bool):
        with T.Kernel(1, threads=1):
            A[0] = i
            A[1] = u
            A[2] = T.cast(f * 2.0, "int64")
            A[3] = T.cast(b, "int64")

    kernel = tilelang.compile(main, target="cpu")
    a = np.zeros(4, np.int64)
    kernel(a, -5, 250, 1.5, True)
    assert a.tolist() == [-5, 250, 3, 1]
    kernel(a, np.int64(7), np.uint8(1), np.float64(2), np.bool_(False))
    assert a.tolist() == [7, 1, 4, 0]
    good = (0, 0, 0.0, True)
    for at, wrong in ((0, 2**31), (1, 256), (1, -1), (0, 0.5), (2, "x"), (3, None)):
        given = [*good[:at], wrong, *good[at + 1 :]]
        refused(lambda w=given: kernel(a, *w), "argument", located=False)


def test_messages_hold_no_inside_of_the_compiler():  # 1712
    def build():
        @T.prim_func
        def main(A: T.Tensor((8,), "float32")):
            with T.Kernel(1, threads=32):
                T.copy(A, T.alloc_shared((9,), "float32"))

    found = refused(build, "shape")
    text = found.render()
    assert "T.copy(A, T.alloc_shared" in text
    assert not re.search(r"0x[0-9a-f]{6,}|tilelang/ir|tilelang/passes", text)


@pytest.mark.parametrize("target", ["emulate", "cpu", "simulate:sm_90a"])
def test_a_table_of_addresses_leads_to_arrays_of_the_process(target):  # 1114, grouped products
    @T.prim_func
    def main(P: T.Tensor((3,), T.ptr), N: T.Tensor((3,), "int32"), O: T.Tensor((3,), "float32")):
        with T.Kernel(3, threads=32) as b:
            A = T.make_tensor(P[b], (N[b], 4), "float32")
            rows = N[b]
            N[b] = 0  # A keeps the size that it was made with
            total = T.alloc_var("float32", init=0)
            for i in T.serial(rows):
                total += A[i, 3]
            O[b] = total
            A[0, 0] = b + 1

    kernel = tilelang.compile(main, target=target)
    arrays = [np.arange(4 * k, dtype=np.float32).reshape(k, 4) for k in (1, 3, 5)]
    want = [a[:, 3].sum() for a in arrays]
    addresses = np.array([a.ctypes.data for a in arrays], np.int64)
    found = np.zeros(3, np.float32)
    kernel(addresses, np.array([1, 3, 5], np.int32), found)
    assert found.tolist() == want
    assert [a[0, 0] for a in arrays] == [1, 2, 3]


@pytest.mark.parametrize("target", ["emulate", "cpu", "simulate:sm_90a"])
def test_a_pointer_takes_an_array_or_its_address(target):  # 1114
    @T.prim_func
    def main(p: T.ptr, O: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32):
            first = T.make_tensor(p, (4,), "float32")
            whole = T.make_tensor(p, (2, 4), "float32")
            tile = T.alloc_shared((2, 4), "float32")
            T.copy(whole, tile)
            for i in T.Parallel(8):
                O[i] = tile[i // 4, i % 4] + first[1]

    kernel = tilelang.compile(main, target=target)
    data = np.arange(8, dtype=np.float32)
    for given in (data, data.ctypes.data):
        found = np.zeros(8, np.float32)
        kernel(given, found)
        assert found.tolist() == (data + 1).tolist()
    for bad in (0, 64):
        with pytest.raises(TileError, match=r"memory"):
            kernel(bad, found)
