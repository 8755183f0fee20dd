"""Parts of a fragment are used where they lie, if threads hold every part alike."""

import numpy as np
import pytest

import tilelang.language as T
from gpu_build import check_gpu

RANDOM = np.random.default_rng(5)


def notes(program) -> str:
    return " ".join(str(n) for n in dict(program.attrs).get("notes", ()))


def parts(rows: int, columns: int, wide: int, *, unrolled: bool = True):
    loop = T.unroll if unrolled else T.serial

    @T.prim_func
    def kernel(A: T.Tensor((rows, columns), "float32"), B: T.Tensor((rows, columns), "float16")):
        with T.Kernel(1, threads=128):
            f = T.alloc_fragment((rows, columns), "float32")
            s = T.alloc_shared((rows, wide), "float16")
            for r in T.Parallel(rows):
                for c in T.unroll(columns):
                    f[r, c] = A[r, c] * 2.0
            for i in loop(columns // wide):
                T.copy(f[:, i * wide : (i + 1) * wide], s)
                T.copy(s, B[0, i * wide])

    return kernel


def check(fn, rows, columns):
    a = RANDOM.integers(-9, 9, (rows, columns)).astype("f4")
    program = check_gpu(fn, A=a, B=np.zeros((rows, columns), "f2"))
    return notes(program)


@pytest.mark.parametrize(("rows", "columns", "wide"), [(128, 96, 24), (64, 40, 8), (127, 48, 16)])
@pytest.mark.parametrize("unrolled", [True, False])
def test_parts_of_columns(rows, columns, wide, unrolled):
    check(parts(rows, columns, wide, unrolled=unrolled), rows, columns)


def whole_rows(unrolled: bool):
    loop = T.unroll if unrolled else T.serial

    @T.prim_func
    def kernel(A: T.Tensor((128, 64), "float16"), B: T.Tensor((128, 64), "float32")):
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((128, 64), "float16"), T.alloc_shared((64, 64), "float16")
            f, s = T.alloc_fragment((128, 64), "float32"), T.alloc_shared((128, 16), "float32")
            T.copy(A, a)
            T.copy(A[0:64, :], b)
            T.clear(f)
            T.gemm(a, b, f, transpose_B=True)
            for i in loop(4):
                T.copy(f[:, i * 16 : (i + 1) * 16], s)
                T.copy(s, B[0, i * 16])

    return kernel


@pytest.mark.parametrize("unrolled", [True, False])
def test_parts_of_a_product_stay_in_registers_where_a_loop_is_written_out(unrolled):
    a = RANDOM.integers(-3, 3, (128, 64)).astype("f2")
    program = check_gpu(whole_rows(unrolled), A=a, B=np.zeros((128, 64), "f4"))
    assert ("f goes through shared memory" in notes(program)) != unrolled


def test_parts_that_lie_in_other_threads():
    @T.prim_func
    def kernel(A: T.Tensor((64, 128), "float32"), B: T.Tensor((64, 128), "float32")):
        with T.Kernel(1, threads=128):
            f, s = T.alloc_fragment((64, 128), "float32"), T.alloc_shared((16, 128), "float32")
            T.copy(A, f)
            for i in T.unroll(4):
                T.copy(f[i * 16 : (i + 1) * 16, :], s)
                T.copy(s, B[i * 16, 0])

    a = RANDOM.integers(-9, 9, (64, 128)).astype("f4")
    check_gpu(kernel, A=a, B=np.zeros((64, 128), "f4"))


def test_parts_are_written():
    @T.prim_func
    def kernel(A: T.Tensor((128, 64), "float16"), B: T.Tensor((128, 64), "float32")):
        with T.Kernel(1, threads=128):
            f, g = T.alloc_fragment((128, 64), "float32"), T.alloc_fragment((128, 16), "float32")
            T.copy(A, f)
            for i in T.unroll(4):
                T.copy(f[:, i * 16 : (i + 1) * 16], g)
                for r, c in T.Parallel(128, 16):
                    f[r, i * 16 + c] = g[r, c] + i
            T.copy(f, B)

    a = RANDOM.integers(-9, 9, (128, 64)).astype("f2")
    check_gpu(kernel, A=a, B=np.zeros((128, 64), "f4"))
