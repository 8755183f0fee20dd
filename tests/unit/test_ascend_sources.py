"""The C++ that Ascend targets print: forms, names, and what has none."""

import re

import pytest

import tilelang
import tilelang.ascend.language as T
from ascend_kernels import cases
from tilelang.errors import TileError


def source(kernel, chip="ascend950", **configs):
    return tilelang.compile(
        kernel, target=f"simulate:{chip}", pass_configs=configs
    ).get_kernel_source()


# The transposing loads of A2 and A3 take elements of 16 bits, and squares of 8 bits.
WITHOUT = ("gemm_float32",)
PRINTED = [c for c in cases() if c.name not in WITHOUT]


@pytest.mark.parametrize("case", PRINTED, ids=lambda c: c.name)
def test_the_adapters_kernels_have_a_source_for_a2_and_a3(case):
    text = source(case.kernel, "ascend910b")
    assert text.startswith('#include "kernel_operator.h"')
    assert text.count("{") == text.count("}")
    raised = re.findall(r"SetFlag<HardEvent::(\w+)>\((.*)\);", text)
    awaited = re.findall(r"WaitFlag<HardEvent::(\w+)>\((.*)\);", text)
    assert {pair for pair, _ in raised} == {pair for pair, _ in awaited}
    # What is used on the core has been given a place there.
    tensors = set(re.findall(r"LocalTensor<\w+> (\w+)\(TPosition", text))
    used = {name for line in text.splitlines() for name in re.findall(r"^ +Mmad\((\w+)", line)}
    assert used <= tensors
    assert ("Mmad(" in text) == ("gemm" in case.name or "split" in case.name)


def test_names_that_mean_something_in_cpp_are_replaced():
    @T.prim_func
    def kernel(new: T.Tensor((40,), "float32"), this: T.Tensor((40,), "float32")):
        with T.Kernel(2) as block:
            row = T.alloc_shared((32,), "float32")
            T.copy(new[block * 32], row)
            with T.SimtVF(threads=32):
                for cce in T.Parallel(32):
                    row[cce] = row[cce] + 1.0
            T.copy(row, this[block * 32])

    text = source(kernel)
    assert "__gm__ float* own_new, __gm__ float* own_this" in text
    assert "int32_t own_block = (int32_t)block_idx;" in text
    assert "__ubuf__ float* own_row = (__ubuf__ float*)0;" in text
    assert not re.search(r"\bnew\b", text)


def test_a_cut_tile_is_filled_before_it_is_loaded():
    @T.prim_func
    def kernel(A: T.Tensor((100,), "float16"), B: T.Tensor((100,), "float16")):
        with T.Kernel(2) as bx:
            a = T.alloc_shared((64,), "float16")
            T.copy(A[bx * 64], a)
            T.copy(a, B[bx * 64])

    text = source(kernel)
    order = [text.index(s) for s in ("if (min(", "asc_sync();", "fill_b16((", "asc_copy_gm2ub")]
    assert order == sorted(order)


def test_operations_on_tiles_are_functions_of_threads():
    @T.prim_func
    def kernel(A: T.Tensor((4, 64), "float32"), B: T.Tensor((4, 64), "float32")):
        with T.Kernel(1):
            a = T.alloc_shared((4, 64), "float32")
            T.copy(A, a)
            for i, j in T.Parallel(4, 64):
                a[i, j] = a[i, j] * 2.0
            T.copy(a, B)

    text = source(kernel)
    assert "__simt_vf__ __launch_bounds__(256) inline void tile_mul_s_float32(" in text
    assert "asc_vf_call<tile_mul_s_float32>(cce::dim3(256), a, a, 2.0f, 1, 256" in text


def test_functions_that_only_the_source_has_need_room_too():
    @T.prim_func
    def kernel(A: T.Tensor((60, 1024), "float32")):
        with T.Kernel(1):
            a = T.alloc_shared((60, 1024), "float32")
            T.copy(A, a)
            for i, j in T.Parallel(60, 1024):
                a[i, j] = a[i, j] * 2.0
            T.copy(a, A)

    with pytest.raises(TileError, match="with 245760 bytes of UB in use"):
        source(kernel)


def filled(dtype, value):
    """A product of a tile of L1 that is full of one number."""

    @T.prim_func
    def kernel(A: T.Tensor((16, 32), dtype), n: T.float32, C: T.Tensor((16, 16), "float32")):
        with T.Kernel(1):
            a, b = T.alloc_l1((16, 32), dtype), T.alloc_l1((16, 32), dtype)
            c = T.alloc_l0c((16, 16), "float32")
            T.copy(A, a)
            T.fill(b, n if value is None else value)
            T.gemm(a, b, c, transpose_B=True, clear_accum=True)
            T.copy(c, C)

    return kernel


@pytest.mark.parametrize(
    ("dtype", "word"),
    [("float16", "uint16_t*)b, (uint32_t)15872"), ("float32", "uint32_t*)b, (uint32_t)1069547520"),
     ("float8_e4m3fn", "uint16_t*)b, (uint32_t)15420")],
)  # fmt: skip
def test_a_tile_of_l1_is_filled_with_the_bits_of_a_number(dtype, word):
    assert f"asc_fill_l1((__cbuf__ {word}" in source(filled(dtype, 1.5))


def test_what_has_no_form_is_refused_by_name():
    with pytest.raises(TileError) as caught:
        source(filled("float32", None))
    assert "have no form in the source for this chip" in str(caught.value)
    assert "test_ascend_sources.py" in str(caught.value)


@pytest.mark.parametrize(("hint", "mode"), [(None, 4), (0, 0), ("NOTALLOC_RED", 7)])
def test_a_store_has_the_policy_of_the_cache_that_the_author_asks_for(hint, mode):
    @T.prim_func
    def kernel(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1):
            a = T.alloc_shared((64,), "float32")
            T.copy(A, a)
            T.copy(a, B, l2_cache_ctrl=hint)

    assert f"static_cast<asc_store_l2_cache_mode>({mode})" in source(kernel)
