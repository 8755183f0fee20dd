"""Copies between registers and Tensor Memory, against NumPy, on the emulator and the simulator: all
shapes and types of matrices, parts of them, and what one load or store moves.
"""

import ml_dtypes
import numpy as np
import pytest

import tilelang
import tilelang.language as T
from blackwell_build import check_blackwell
from tilelang.ir.thread import Instr

RANDOM = np.random.default_rng(21)
TARGETS = ("emulate:sm_100a", "simulate:sm_100a")


def values(*shape, dtype="float32"):
    return RANDOM.standard_normal(shape).astype(getattr(ml_dtypes, dtype, dtype))


def moves(program, kind) -> list[str]:
    rows = [n.row for n in program.walk() if isinstance(n, Instr)]
    return [r.removeprefix(f"tcgen05.{kind}.") for r in rows if r.startswith(f"tcgen05.{kind}.")]


def through(shape, dtype="float32", threads=128, parts=(1, 1)):
    """B = A, stored to Tensor Memory in some parts along the columns and loaded in others."""
    stored, loaded = (shape[-1] // n for n in parts)

    def part(buffer, k, width):
        return buffer[(*(slice(None),) * (len(shape) - 1), slice(k * width, k * width + width))]

    @T.prim_func
    def kernel(A: T.Tensor(shape, dtype), B: T.Tensor(shape, dtype)):
        with T.Kernel(1, threads=threads):
            f, g = T.alloc_fragment(shape, dtype), T.alloc_fragment(shape, dtype)
            t = T.alloc_tmem(shape, dtype)
            T.copy(A, f)
            for k in range(parts[0]):
                T.copy(part(f, k, stored), part(t, k, stored))
            T.fill(f, -1)
            T.fill(g, -2)
            for k in range(parts[1]):
                T.copy(part(t, k, loaded), part(g, k, loaded))
            T.copy(g, B)

    return kernel


def comes_back(fn, shape, dtype="float32"):
    a = values(*shape, dtype=dtype)
    for target in TARGETS:
        b = np.zeros_like(a)
        tilelang.compile(fn, target=target)(a, b)
        assert np.array_equal(a, b), target
    return check_blackwell(fn, A=a, B=np.zeros_like(a))


@pytest.mark.parametrize(
    ("shape", "threads"),
    [
        ((128, 128), 128),
        ((128, 40), 128),
        ((128, 128), 256),
        ((3, 128, 48), 128),
        ((2, 2, 128, 24), 256),
        ((64, 128), 128),
        ((64, 96), 256),
        ((64, 8), 128),
    ],
)
def test_a_matrix_comes_back_as_it_was(shape, threads):
    comes_back(through(shape, threads=threads), shape)


@pytest.mark.parametrize(
    ("shape", "threads"),
    [((128, 96), 128), ((128, 128), 256), ((3, 128, 48), 128), ((64, 48), 128)],
)
@pytest.mark.parametrize("parts", [(2, 2), (2, 1), (1, 2)])
def test_parts_of_the_columns_lie_where_the_whole_has_them(shape, threads, parts):
    comes_back(through(shape, threads=threads, parts=parts), shape)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("parts", [(3, 1), (1, 3)])
def test_elements_of_16_bits_in_two_instructions(dtype, parts):
    """96 elements: a copy of all is an instruction of 32 registers and one of 16."""
    program = comes_back(through((128, 96), dtype, parts=parts), (128, 96), dtype)
    whole, split = ("ld", "st") if parts[1] == 1 else ("st", "ld")
    assert [m.split(".")[1] for m in moves(program, whole)] == ["x32", "x16"]
    assert [m.split(".")[1] for m in moves(program, split)] == ["x16"]  # in a loop


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "int8"])
@pytest.mark.parametrize("rows", [64, 128])
def test_elements_that_share_a_cell_need_no_packing(dtype, rows):
    program = comes_back(through((rows, 64), dtype), (rows, 64), dtype)
    assert not [m for m in moves(program, "ld") if m.endswith(".half")]


@pytest.mark.parametrize("shape", [(3, 128, 40), (3, 64, 16)])
def test_matrices_one_after_the_other_in_a_loop(shape):
    @T.prim_func
    def kernel(A: T.Tensor(shape, "float32"), B: T.Tensor(shape, "float32")):
        with T.Kernel(1, threads=128):
            f = T.alloc_fragment(shape[1:], "float32")
            t = T.alloc_tmem(shape, "float32")
            for i in T.serial(shape[0]):
                T.copy(A[i, :, :], f)
                T.copy(f, t[i, :, :])
            for i in T.serial(shape[0]):
                T.copy(t[shape[0] - 1 - i, :, :], f)
                T.copy(f, B[shape[0] - 1 - i, :, :])

    comes_back(kernel, shape)


def test_a_result_of_16_bits_has_a_cell_for_each_element():
    """Results of products lie in the lower halves of cells; a load packs two in a register."""

    @T.prim_func
    def kernel(
        A: T.Tensor((128, 64), "float8_e4m3fn"),
        B: T.Tensor((48, 64), "float8_e4m3fn"),
        C: T.Tensor((128, 48), "float16"),
    ):
        with T.Kernel(1, threads=128):
            a, b = (T.alloc_shared((n, 64), "float8_e4m3fn") for n in (128, 48))
            c, f = T.alloc_tmem((128, 48), "float16"), T.alloc_fragment((128, 48), "float16")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, transpose_B=True, clear_accum=True)
            T.copy(c, f)
            T.copy(f, C)

    a, b = (RANDOM.integers(-2, 3, (n, 64)).astype(ml_dtypes.float8_e4m3fn) for n in (128, 48))
    want = (a.astype("float32") @ b.astype("float32").T).astype("float16")
    for target in TARGETS:
        c = np.zeros((128, 48), "float16")
        tilelang.compile(kernel, target=target)(a, b, c)
        assert np.array_equal(c, want), target
    program = check_blackwell(kernel, A=a, B=b, C=np.zeros((128, 48), "float16"))
    loads = moves(program, "ld")
    assert loads and all(m.endswith(".half") for m in loads)
