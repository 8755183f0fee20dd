"""Layouts that an author states, carried out on a GPU or told in the report."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang.language as T
from gpu_build import check_gpu
from tilelang.ir.thread import Declare, Instr, kernels_of
from tilelang.layout import (
    Fragment,
    Layout,
    make_half_bank_swizzled_layout,
    make_linear_layout,
    make_quarter_bank_swizzled_layout,
    make_swizzled_layout,
)
from tilelang.layout.stated import stated

RANDOM = np.random.default_rng(8)


def notes(program) -> list[str]:
    return [text for _, text, _ in dict(program.attrs).get("notes", ())]


@pytest.mark.parametrize(
    ("forward", "found"),
    [
        (lambda i, j: (i, j), ("rows", 0)),
        (lambda i, j: i * 72 + j, ("padded", 72)),
        (lambda i, j: (i, (j // 8 ^ i % 8) * 8 + j % 8), ("swizzle", 128)),
        (lambda i, j: (i, j ^ (i // 2 % 4 << 3)), ("swizzle", 64)),
        (lambda i, j: (j, i), ("other", 0)),
        (lambda i, j: [i // 8, i % 8, j], ("rows", 0)),
    ],
)
def test_a_function_of_indices_is_known_by_where_it_puts_elements(forward, found):
    columns = 32 if found == ("swizzle", 64) else 64
    assert stated(Layout((64, columns), forward), 16) == found


def kernel_of(layout, shape=(24, 64)):
    m, n = shape

    @T.prim_func
    def kernel(A: T.Tensor((m, n), "float16"), B: T.Tensor((m, n), "float16")):
        with T.Kernel(1, threads=64):
            s = T.alloc_shared((m, n), "float16")
            T.annotate_layout({s: layout(s)})
            T.copy(A, s)
            for i, j in T.Parallel(m, n):
                B[i, j] = s[m - 1 - i, j] * 2

    return kernel


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        (make_swizzled_layout, "s lies as Layout(24, 64, swizzled"),
        (make_half_bank_swizzled_layout, "s lies as Layout(24, 64, 64-byte"),
        (make_quarter_bank_swizzled_layout, "s lies as Layout(24, 64, 32-byte"),
        (make_linear_layout, "s lies as Layout(24, 64, linear)"),
        (lambda s: lambda i, j: i * 72 + j, "s lies as Layout(24, 64)"),
        (lambda s: lambda i, j: (j, i), "it is no order of rows"),
    ],
)
def test_a_shared_buffer_lies_as_the_author_says(layout, said):
    a = RANDOM.normal(size=(24, 64)).astype(np.float16)
    program = check_gpu(kernel_of(layout), A=a, B=np.zeros_like(a))
    assert any(said in n for n in notes(program))


def test_gaps_between_rows_take_memory():
    a = RANDOM.normal(size=(24, 64)).astype(np.float16)
    program = check_gpu(kernel_of(lambda s: lambda i, j: i * 72 + j), A=a, B=np.zeros_like(a))
    sizes = {n.array.name: n.array.size.value for n in program.walk() if isinstance(n, Declare)}
    assert sizes["s"] == 24 * 72


def test_a_swizzled_result_is_stored_by_tensor_copies():
    @T.prim_func
    def kernel(A: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float16")
            out = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.annotate_layout(
                {
                    a: make_linear_layout(a),
                    out: make_swizzled_layout(out),
                    c: Fragment((64, 64), lambda i, j: (i, j)),
                }
            )
            T.annotate_min_blocks_per_sm(2)
            T.copy(A, a)
            T.gemm(a, a, c, transpose_B=True, clear_accum=True)
            T.copy(c, out)
            T.copy(out, C)

    a = RANDOM.integers(-3, 4, (64, 64)).astype(np.float16)
    program = check_gpu(kernel, A=a, C=np.zeros_like(a))
    rows = {n.row for n in program.walk() if isinstance(n, Instr)}
    assert "cp.async.bulk.tensor.2d.store" in rows
    said = notes(program)
    assert any("out lies as" in n for n in said)
    assert any("products place their operands themselves" in n for n in said)
    assert any("registers are spread by inference" in n for n in said)
    assert [k.min_blocks for k in kernels_of(program)] == [2]


@pytest.mark.parametrize(
    ("shape", "forward", "both"),
    [
        ((128,), lambda i: i % 64, "[0] and [64] both map to physical coordinates [0]"),
        ((128,), lambda i: i * 0, "[0] and [1] both map to physical coordinates [0]"),
        ((128,), lambda i: i % 64 * 4, "[0] and [64]"),
        ((24, 40), lambda i, j: (i // 2, j), "[0, 0] and [1, 0]"),
        ((3, 40), lambda i, j: i * 39 + j, "[0, 39] and [1, 0] both map to physical coordinates"),
    ],
)
def test_a_layout_that_puts_two_elements_at_one_place_is_refused(shape, forward, both):
    with pytest.raises(ValueError, match="must be injective") as caught:
        kernel_of_shape(shape, forward)
    assert both in str(caught.value)
    assert "T.annotate_layout" in str(caught.value)


@pytest.mark.parametrize("forward", [lambda i: i ^ 1, lambda i: i * 2, lambda i: i + 10])
def test_a_layout_with_a_place_for_each_element_is_taken(forward):
    assert kernel_of_shape((127,), forward) is not None


def kernel_of_shape(shape, forward):
    @T.prim_func
    def kernel(A: T.Tensor(shape, "int32"), B: T.Tensor(shape, "int32")):
        with T.Kernel(1, threads=64):
            s = T.alloc_shared(shape, "int32")
            T.annotate_layout({s: Layout(shape, forward)})
            T.copy(A, s)
            T.copy(s, B)

    return kernel
