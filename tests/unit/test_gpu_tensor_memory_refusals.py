"""What the language forbids on Tensor Memory, and what no instruction does: refused where it is
written, before anything is built.
"""

from __future__ import annotations

import pytest

import tilelang.language as T
from tilelang.errors import TileError
from tilelang.ir.thread import Instr
from tilelang.isa.target import parse_target
from tilelang.passes.check import refuse
from tilelang.passes.pipeline import lower
from tilelang.targets import CHIPS

CHIP = parse_target("cuda -arch=sm_100a", CHIPS)


def program(kernel, chip=CHIP):
    """The checks of a compilation, and the lowering."""
    refuse(kernel.ir, chip, chips=CHIPS)
    return lower(kernel.ir, chip)


def refusal(kernel, chip=CHIP) -> str:
    with pytest.raises(TileError) as caught:
        program(kernel, chip)
    text = str(caught.value)
    assert f"{__file__.rsplit('/', 1)[1]}:" in text, "no place in the author's file"
    return text


def in_tensor_memory(body, shape=(128, 64), dtype="float32", threads=128):
    """A kernel whose body gets a buffer in Tensor Memory, a fragment and a shared tile."""

    @T.prim_func
    def kernel(A: T.Tensor(shape, dtype), C: T.Tensor(shape, dtype)):
        with T.Kernel(1, threads=threads):
            t = T.alloc_tmem(shape, dtype)
            f = T.alloc_fragment(shape, dtype)
            T.copy(A, f)
            body(t, f)
            T.copy(f, C)

    return kernel


@T.macro
def store_of_an_element(t, f):
    t[0, 0] = 1.0


@T.macro
def load_in_a_loop(t, f):
    for i, j in T.Parallel(128, 64):
        f[i, j] = t[i, j]


def some_rows(t, f):
    T.copy(t[0:64, :], f[0:64, :])


def freed_twice(t, f):
    T.deallocate_tmem(t)
    T.deallocate_tmem(t)


def used_after_free(t, f):
    T.deallocate_tmem(t)
    T.copy(t, f)


@T.macro
def freed_in_a_loop(t, f):
    for _ in T.serial(2):
        T.deallocate_tmem(t)


@T.macro
def freed_by_two_parts(t, f):
    u = T.alloc_tmem((128, 32), "float32")
    with T.ws(0):
        T.deallocate_tmem(t)
    with T.ws(1):
        T.deallocate_tmem(u)


FORBIDDEN = {
    store_of_an_element: "elementwise store into Tensor Memory",
    load_in_a_loop: "elementwise load",
    some_rows: "64 of its 128 rows are copied",
    freed_twice: "freed twice",
    used_after_free: "is used after it was freed",
    freed_in_a_loop: "is freed in every round of a loop",
    freed_by_two_parts: "T.deallocate_tmem by several parts of the block",
}


@pytest.mark.parametrize("body", list(FORBIDDEN), ids=lambda f: f.__name__)
def test_uses_that_are_forbidden(body):
    threads = 256 if body is freed_by_two_parts else 128
    assert FORBIDDEN[body] in refusal(in_tensor_memory(body, threads=threads))


def load(t, f):
    T.copy(t, f)


@pytest.mark.parametrize(
    ("threads", "why"),
    [(64, "64 threads reach only the lanes of 2 warps"), (100, "a block of 100 threads")],
)
def test_lanes_that_no_warp_reaches(threads, why):
    assert why in refusal(in_tensor_memory(load, threads=threads))


def test_copies_by_warps_in_the_middle_of_a_warpgroup():
    @T.macro
    def body(t, f):
        if T.get_thread_binding() >= 64:
            T.copy(t, f)

    assert "in the middle of a warpgroup" in refusal(in_tensor_memory(body, threads=192))


@pytest.mark.parametrize("rows", [32, 96])
def test_rows_that_lie_in_no_lanes(rows):
    assert "rows do not lie in all lanes" in refusal(in_tensor_memory(load, shape=(rows, 64)))


def test_more_columns_than_there_are():
    assert "513" in refusal(in_tensor_memory(load, shape=(128, 513)))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([(128, 64)], "missing a required argument: 'dtype'"),
        ([(128, 64), None], "None is no element type"),
        ([(128, 64), "handle"], "handle does not fit a cell"),
        ([(128, 0), "float32"], "has no elements"),
        ([(2, 0, 8), "float16"], "has no elements"),
        ([128, "float32"], "at least two axes"),
    ],
)
def test_buffers_without_a_type_or_a_size(given, why):
    with pytest.raises(TileError) as caught:

        @T.prim_func
        def kernel():
            with T.Kernel(1, threads=128):
                T.alloc_tmem(*given)

        program(kernel)
    assert why in str(caught.value)
    assert "test_gpu_tensor_memory_refusals.py:" in str(caught.value)


@pytest.mark.parametrize("chip", ["sm_80", "sm_90a", "sm_120a"])
def test_chips_without_it(chip):
    text = refusal(in_tensor_memory(load), parse_target(f"cuda -arch={chip}", CHIPS))
    assert "has no Tensor Memory" in text and "alloc_tmem" in text


# Products -----------------------------------------------------------------------------------------


def product(a, b, c, types=("float16", "float16", "float32"), **how):
    """One product of shared tiles of these shapes, only issued."""

    @T.prim_func
    def kernel(A: T.Tensor(a, types[0]), B: T.Tensor(b, types[1])):
        with T.Kernel(1, threads=128):
            x, y = T.alloc_shared(a, types[0]), T.alloc_shared(b, types[1])
            t, bar = T.alloc_tmem(c, types[2]), T.alloc_barrier(1)
            T.copy(A, x)
            T.copy(B, y)
            T.tcgen05_gemm(x, y, t, transpose_B=True, clear_accum=True, mbar=bar, **how)
            T.mbarrier_wait_parity(bar, 0)

    return kernel


@pytest.mark.parametrize(
    ("a", "b", "c", "why"),
    [
        ((128, 64), (40, 64), (128, 40), "N = 40"),
        ((32, 64), (64, 64), (32, 64), "has other rows"),
        ((128, 40), (32, 40), (128, 32), "128 x 32 x 40"),
        ((128, 64), (4, 64), (128, 4), "N = 4"),
    ],
)
def test_shapes_without_an_instruction(a, b, c, why):
    text = refusal(product(a, b, c))
    assert why in text and "no instruction of tcgen05" in text


@pytest.mark.parametrize(
    "types",
    [
        ("float16", "bfloat16", "float32"),
        ("bfloat16", "bfloat16", "float16"),
        ("float64", "float64", "float32"),
    ],
)
def test_types_without_an_instruction(types):
    text = refusal(product((128, 64), (64, 64), (128, 64), types))
    assert f"{types[0]} by {types[1]} into {types[2]}" in text


def test_parts_that_begin_inside_a_swizzled_group():
    @T.prim_func
    def kernel(A: T.Tensor((128, 64), "float16"), B: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((128, 64), "float16"), T.alloc_shared((64, 64), "float16")
            c, bar = T.alloc_tmem((128, 64), "float32"), T.alloc_barrier(1)
            T.copy(A, a)
            T.copy(B, b)
            T.tcgen05_gemm(a[:, 8:40], b[:, 8:40], c, transpose_B=True, mbar=bar)
            T.mbarrier_wait_parity(bar, 0)

    assert "is no multiple of 16" in refusal(kernel)


def test_a_buffer_that_is_a_result_and_the_left_operand_of_16_bits():
    @T.prim_func
    def kernel(A: T.Tensor((128, 64), "float16"), B: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((128, 64), "float16"), T.alloc_shared((64, 64), "float16")
            c, d = T.alloc_tmem((128, 64), "float16"), T.alloc_tmem((128, 64), "float16")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, clear_accum=True)
            T.gemm(c, b, d, clear_accum=True)

    assert "is operand A of one product and the result of another" in refusal(kernel)


def test_what_is_allowed_after_all():
    made = program(product((128, 64), (64, 64), (128, 64)))
    assert "tcgen05.mma.f16" in {n.row for n in made.walk() if isinstance(n, Instr)}
