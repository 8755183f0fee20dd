"""What rows in UB end with, and tiles that go to L1 as fractals: against NumPy, in both modes."""

import ml_dtypes
import numpy as np
import pytest

import tilelang
import tilelang.ascend.language as T
from tilelang.errors import TileError
from tilelang.simulator.machine import Schedule

SEEDS = range(20)


def holds(kernel, draw, wanted):
    """Whether the last argument is `wanted` of the others, for each seed and in both modes."""
    made = tilelang.compile(kernel)
    for seed in SEEDS:
        args = draw(np.random.default_rng(seed))
        for schedule in (None, *Schedule.sweep(2)) if seed == 0 else (None,):
            given = {k: v.copy() for k, v in args.items()}
            if schedule is None:
                made(*given.values())
            else:
                assert made._program.program.check(given, schedule) == []
            *_, out = given.values()
            np.testing.assert_allclose(
                out.astype(np.float64), wanted(args).astype(np.float64), 1e-3, 1e-3
            )


def padded(rows, columns, wide, dtype, by_register):
    """Rows of `columns` elements into rows of `wide` in UB, and all of these out again."""

    @T.prim_func
    def kernel(A: T.Tensor((rows, columns), dtype), B: T.Tensor((rows, wide), dtype)):
        with T.Kernel(1):
            u = T.alloc_shared((rows, wide), dtype)
            T.fill(u, 5)
            if by_register:
                T.ascend_set_copy_pad_value(7, dtype)
                T.copy(A, u[0:rows, 0:columns], data_select=True)
            else:
                T.copy(A, u[0:rows, 0:columns], pad_value=7)
            T.copy(u, B)

    return kernel


@pytest.mark.parametrize("by_register", [False, True], ids=["value", "register"])
@pytest.mark.parametrize(
    ("size", "dtype"),
    [
        ((4, 100, 112), "float32"),
        ((3, 1, 32), "float16"),
        ((5, 127, 128), "int8"),
        ((1, 40, 48), "int32"),
        ((2, 24, 48), "bfloat16"),
        ((6, 96, 96), "float32"),
    ],
    ids=str,
)
def test_rows_end_with_the_value(size, dtype, by_register):
    rows, columns, wide = size
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    end = -(-columns * kind.itemsize // 32) * 32 // kind.itemsize

    def draw(rng):
        a = rng.integers(-9, 9, (rows, columns)).astype(kind)
        return {"A": a, "B": np.zeros((rows, wide), kind)}

    def wanted(args):
        out = np.full((rows, wide), 5, kind)
        out[:, columns:end] = 7
        out[:, :columns] = args["A"]
        return out

    holds(padded(rows, columns, wide, dtype, by_register), draw, wanted)


def test_the_register_keeps_its_bits():
    """A value of another type is its bits, the low ones first."""

    @T.prim_func
    def kernel(x: T.float32, A: T.Tensor((1, 8), "int16"), B: T.Tensor((1, 16), "int16")):
        with T.Kernel(1):
            u = T.alloc_shared((1, 16), "int16")
            T.ascend_set_copy_pad_value(x)
            T.copy(A, u[0:1, 0:8], data_select=True)
            T.copy(u, B)

    out = np.zeros((1, 16), np.int16)
    tilelang.compile(kernel)(1.0 + 2**-20, np.ones((1, 8), np.int16), out)
    low = np.array([1.0 + 2**-20], np.float32).view(np.int16)[0]
    assert (out[0, :8] == 1).all() and (out[0, 8:] == low).all()


def test_tiles_go_to_l1_as_fractals():
    m, n, k = 96, 32, 80
    half = m // 2

    @T.prim_func
    def kernel(
        A: T.Tensor((m, k), "float16"),
        B: T.Tensor((n, k), "float16"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.MixedKernel(1) as (_, sid):
            a = T.alloc_shared((half, k), "float16")
            packed = T.alloc_shared((k // 16 * (half + 1) * 16,), "float16")
            a1, b1 = T.alloc_l1((m, k), "float16"), T.alloc_l1((n, k), "float16")
            c = T.alloc_l0c((m, n), "float32")
            T.copy(A[sid * half, 0], a)
            with T.SimtVF(threads=128):
                for i, j in T.Parallel(half, k):
                    packed[j // 16 * ((half + 1) * 16) + i * 16 + j % 16] = a[i, j]
            T.ascend_nd2nz_post_copy(a1[sid * half, 0], packed[0], half, k, m, "float16")
            T.copy(B, b1)
            T.gemm(a1, b1, c, transpose_B=True, clear_accum=True)
            T.copy(c, C)

    def draw(rng):
        a, b = (rng.standard_normal((x, k)).astype(np.float16) for x in (m, n))
        return {"A": a, "B": b, "C": np.zeros((m, n), np.float32)}

    holds(kernel, draw, lambda args: args["A"].astype(np.float32) @ args["B"].astype(np.float32).T)
    source = tilelang.compile(kernel).get_kernel_source()
    assert "(__ubuf__ void*)packed, 5, 48, 1, 48);" in source


# Refusals -----------------------------------------------------------------------------------------


def refusal(body):
    with pytest.raises(TileError) as found:

        @T.prim_func
        def kernel(A: T.Tensor((4, 100), "float32")):
            with T.Kernel(1):
                body(A)

        tilelang.compile(kernel)
    (first, *_) = found.value.diagnostics
    assert first.loc is not None and first.loc.file.endswith("test_mainline_pads.py")
    return f"{first.message} | {first.expected}"


def both(A):
    u = T.alloc_shared((4, 104), "float32")
    T.copy(A, u[0:4, 0:100], pad_value=1, data_select=True)


def beyond_the_tensor(A):
    u = T.alloc_shared((4, 104), "float32")
    T.ascend_set_copy_pad_value(0, "float32")
    T.copy(A[2, 0], u[0:4, 0:100], data_select=True)


def into_l1(A):
    T.copy(A, T.alloc_l1((4, 100), "float32"), data_select=True)


def no_dtype(A):
    T.ascend_set_copy_pad_value(3)


def wide(A):
    T.ascend_set_copy_pad_value(3, "int64")


def no_free_row(A):
    u, a1 = T.alloc_shared((1024,), "float32"), T.alloc_l1((32, 32), "float32")
    T.ascend_nd2nz_post_copy(a1[0, 0], u[0], 32, 32, 16, "float32")


SAID = {
    both: "T.copy with pad_value and data_select, which both say what a row ends with | one of"
    " them",
    beyond_the_tensor: "a copy(data_select=True) that may leave its tensor | a tile that is"
    " certainly inside",
    into_l1: "T.copy(data_select=True) from global memory to L1 buffer | global memory to Unified"
    " Buffer (UB)",
    no_dtype: "T.ascend_set_copy_pad_value of a number without dtype | dtype, one of int8, uint8,"
    " int16, uint16, float16, bfloat16, int32, uint32, float32",
    wide: "the dtype of T.ascend_set_copy_pad_value is 'int64' | 'int8' or 'uint8' or 'int16' or"
    " 'uint16' or 'float16' or 'bfloat16' or 'int32' or 'uint32' or 'float32'",
    no_free_row: "T.ascend_nd2nz_post_copy of 32 x 32 elements | columns in a multiple of 8,"
    " full_rows = 32, those of l1, and 1056 elements of shared: one free row for each 8 columns",
}


@pytest.mark.parametrize("body", SAID, ids=lambda f: f.__name__)
def test_refusals(body):
    assert refusal(body) == SAID[body]


def test_a_register_that_nothing_has_set():
    @T.prim_func
    def kernel(A: T.Tensor((4, 100), "float32")):
        with T.Kernel(1):
            u = T.alloc_shared((4, 104), "float32")
            T.copy(A, u[0:4, 0:100], data_select=True)

    with pytest.raises(TileError, match="of which nothing has set what rows end with"):
        tilelang.compile(kernel)(np.zeros((4, 100), np.float32))
