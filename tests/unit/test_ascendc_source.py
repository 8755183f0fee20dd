"""The AscendC C++ for A2 and A3 keeps to what the pages of the API say. Each rule here was broken
before `tools/ascend_verify` compiled and ran the text.
"""

import re

import pytest

import tilelang
import tilelang.language as T
from adapter_programs import AUTO, programs
from tilelang.errors import TileError
from tilelang.targets.ascend.emit import emit


def source(kernel, **configs):
    """The text; what has none is an error."""
    made = tilelang.compile(kernel, target="simulate:ascend910b", pass_configs={**AUTO, **configs})
    return emit(made._program.program.program, "ascend910b")


def lines_of(text, word):
    return [line.strip() for line in text.splitlines() if word in line]


def elementwise(dtype, op, columns=64, rows=8):
    """`op(tile, tile, tile)` on tiles of UB."""

    @T.prim_func
    def kernel(
        A: T.Tensor((rows, columns), dtype),
        B: T.Tensor((rows, columns), dtype),
        C: T.Tensor((rows, columns), dtype),
    ):
        with T.Kernel(1, is_npu=True) as (_, _):
            a = T.alloc_ub((rows, columns), dtype)
            b = T.alloc_ub((rows, columns), dtype)
            c = T.alloc_ub((rows, columns), dtype)
            T.copy(A, a)
            T.copy(B, b)
            op(c, a, b)
            T.copy(c, C)

    return kernel


@pytest.mark.parametrize("program", programs(), ids=lambda p: p.name)
def test_every_program_of_the_adapter_has_a_source(program):
    made = tilelang.compile(program.kernel, target="simulate:ascend910b", **program.settings)
    text = emit(made._program.program.program, "ascend910b")
    assert text.startswith('#include "kernel_operator.h"')
    body = text[text.index("__global__") :]
    # A kernel without TPipe sets up the core itself, and ends when all pipes have.
    assert body.index("InitSocState();") < body.index("GetBlockIdx()")
    assert body.rstrip().endswith("PipeBarrier<PIPE_ALL>();\n}")


def test_dependent_calls_of_the_vector_unit_have_a_barrier_between():
    def op(c, a, b):
        T.tile.add(c, a, b)
        T.tile.mul(c, c, a)
        T.tile.exp(b, a)

    found = [
        line.split("(")[0]
        for line in source(
            elementwise("float32", op), **{"tl.ascend_memory_planning": False}
        ).splitlines()
        if re.match(r" +(Add|Mul|Exp|PipeBarrier<PIPE_V>)\(", line)
    ]
    # exp writes what add reads, and neither reads nor writes what mul does.
    names = [name.strip() for name in found]
    assert names == ["Add", "PipeBarrier<PIPE_V>", "Mul", "Exp"]


def test_a_row_that_memory_lacks_is_filled_to_its_last_block():
    (program,) = (p for p in programs() if p.name == "softmax")
    made = tilelang.compile(program.kernel, target="simulate:ascend910b", **program.settings)
    (load,) = lines_of(emit(made._program.program.program, "ascend910b"), "DataCopyPadExtParams")
    assert "<float>(true, 0, (uint8_t)((8 - 100 % 8) % 8), (float)-__builtin_huge_valf())" in load


def test_a_load_leaves_what_is_behind_its_rows():
    @T.prim_func
    def kernel(A: T.Tensor((4, 20), "float32"), B: T.Tensor((4, 24), "float32")):
        with T.Kernel(1, is_npu=True) as (_, _):
            a = T.alloc_ub((4, 24), "float32")
            T.tile.fill(a, -1.0)
            T.copy(A, a[:, 0:20])
            T.copy(a, B)

    # The load itself would fill each row up to a whole block, over what the fill has put there.
    text = source(kernel)
    assert text.index("Duplicate(a, -1.0f, 96)") < text.index("load_rows(a, A, scratch, 4, 20, 20,")


def test_neighbours_that_are_no_whole_blocks_are_copied_with_a_mask():
    def op(c, a, b):
        T.copy(a, c)

    text = source(elementwise("float16", op, columns=20, rows=1))
    assert "copy_part(c, a, 20);" in text
    assert not lines_of(text, " DataCopy(c")
    assert "DataCopy(c, a, 32);" in source(elementwise("float16", op, columns=32, rows=1))


def test_a_comparison_loses_nothing_behind_its_last_repeat():
    def op(c, a, b):
        mask = T.alloc_ub((32,), "uint8")
        T.tile.compare(mask, a, b, "LT")
        T.tile.select(c, mask, a, b, "VSEL_TENSOR_TENSOR_MODE")

    text = source(elementwise("float32", op, columns=104, rows=1))
    assert "(ub, a, b, scratch, CMPMODE::LT, 104);" in text
    assert "Compare(ub, a, b, CMPMODE::LT, 128);" in source(
        elementwise("float32", op, columns=128, rows=1)
    )


def test_a_product_of_one_row_is_read_in_fractals():
    @T.prim_func
    def kernel(
        A: T.Tensor((1, 32), "float16"),
        B: T.Tensor((32, 16), "float16"),
        C: T.Tensor((1, 16), "float"),
    ):
        with T.Kernel(1, is_npu=True) as (_, _):
            a = T.alloc_L1((1, 32), "float16")
            b = T.alloc_L1((32, 16), "float16")
            c = T.alloc_L0C((1, 16), "float")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm_v0(a, b, c, init=True)
            T.copy(c, C)

    (product,) = lines_of(source(kernel), "Mmad(")
    assert "MmadParams(16, 16, 32, 0, false, true)" in product


def test_products_into_one_tile_have_a_barrier_between_if_they_are_small():
    def made(rows, columns):
        @T.prim_func
        def kernel(
            A: T.Tensor((rows, 128), "float16"),
            B: T.Tensor((128, columns), "float16"),
            C: T.Tensor((rows, columns), "float"),
        ):
            with T.Kernel(1, is_npu=True) as (_, _):
                a = T.alloc_L1((rows, 32), "float16")
                b = T.alloc_L1((32, columns), "float16")
                c = T.alloc_L0C((rows, columns), "float")
                for k in T.serial(4):
                    T.copy(A[0, k * 32], a)
                    T.copy(B[k * 32, 0], b)
                    T.gemm_v0(a, b, c, init=(k == 0))
                T.copy(c, C)

        return source(kernel)

    assert lines_of(made(32, 48), "PipeBarrier<PIPE_M>")
    assert not lines_of(made(64, 64), "PipeBarrier<PIPE_M>")


def test_a_matrix_wider_than_a_parameter_goes_row_by_row():
    @T.prim_func
    def kernel(
        A: T.Tensor((16, 70000), "float16"),
        B: T.Tensor((32, 16), "float16"),
        C: T.Tensor((16, 16), "float"),
    ):
        with T.Kernel(1, is_npu=True) as (_, _):
            a = T.alloc_L1((16, 32), "float16")
            b = T.alloc_L1((32, 16), "float16")
            c = T.alloc_L0C((16, 16), "float")
            T.copy(A[0, 0], a)
            T.copy(B, b)
            T.gemm_v0(a, b, c, init=True)
            T.copy(c, C)

    loads = lines_of(source(kernel), "Nd2NzParams")
    assert loads[0].startswith("DataCopy(a[row * 16], A[row * 70000], Nd2NzParams(1, 1, 32, 0, 32,")
    assert "Nd2NzParams(1, 32, 16, 0, 16, 32, 1, 0)" in loads[1]


def test_bytes_of_a_matrix_are_turned_in_squares():
    program = next(p for p in programs() if p.name == "gemm_int8")
    made = tilelang.compile(program.kernel, target="simulate:ascend910b", **program.settings)
    text = emit(made._program.program.program, "ascend910b")
    assert "LoadData2dTransposeParams(0, 1, 1, 1, 0)" in text
    # Whole numbers leave L0C as they are.
    assert "Fixpipe<int32_t, int32_t, CFG_ROW_MAJOR>" in text


def test_names_of_the_api_are_the_apis():
    @T.prim_func
    def kernel(Add: T.Tensor((64,), "float32"), scratch: T.Tensor((64,), "float32")):
        with T.Kernel(1, is_npu=True) as (_, _):
            Exp = T.alloc_ub((64,), "float32")
            T.copy(Add, Exp)
            T.tile.exp(Exp, Exp)
            T.copy(Exp, scratch)

    text = source(kernel)
    assert "Exp(own_Exp, own_Exp, 64);" in text
    assert "GlobalTensor<float> own_scratch;" in text


@pytest.mark.parametrize(
    ("dtype", "call", "printed"),
    [
        ("int16", lambda c, a, b: T.tile.add(c, a, 5), "Adds(c, a, (int16_t)5, 512);"),
        ("float32", lambda c, a, b: T.tile.sub(c, a, 2.0), "Adds(c, a, (float)(-2.0f), 512);"),
        ("float32", lambda c, a, b: T.tile.div(c, a, 3.0), "divide_by(c, a, scratch, 3.0f, 512);"),
        (
            "int32",
            T.tile.bitwise_and,
            "And(c.ReinterpretCast<uint16_t>(), a.ReinterpretCast<uint16_t>(),"
            " b.ReinterpretCast<uint16_t>(), (512) * 4 / 2);",
        ),
    ],
)
def test_a_scalar_and_an_operand_have_the_type_that_the_function_takes(dtype, call, printed):
    assert printed in source(elementwise(dtype, call))


def test_what_no_function_does_is_refused_by_name():
    @T.macro
    def shifted(c, a, b):
        for i, j in T.Parallel(8, 64):
            c[i, j] = a[i, j] << b[i, j]

    with pytest.raises(TileError, match=r"instructions v\.bitwise_lshift have no form"):
        source(elementwise("int32", shifted))


def test_half_is_computed_in_float_where_the_function_is_ours():
    text = source(elementwise("float16", T.tile.pow))
    assert "power_half(c, a, b, scratch, 512);" in text
    assert text.index("inline void power(") < text.index("inline void power_half(")


def test_an_element_of_global_memory_goes_by_way_of_the_unified_buffer():
    @T.prim_func
    def kernel(A: T.Tensor((64,), "float32"), C: T.Tensor((64,), "float32")):
        with T.Kernel(1, is_npu=True) as (_, _vid), T.Scope("V"):
            C[3] = A[5]
            C[4] = C[3]

    text = source(kernel)
    assert "store_element(C[3], (float)A.GetValue(5), scratch);" in text
    # What the kernel stores itself may not be in the scalar unit's cache.
    assert "store_element(C[4], (float)load_element(C[3], scratch), scratch);" in text


def test_stores_to_one_tensor_have_a_barrier_between():
    @T.prim_func
    def kernel(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, is_npu=True) as (_, _):
            a = T.alloc_ub((64,), "float32")
            b = T.alloc_ub((64,), "float32")
            T.copy(A, a)
            T.tile.exp(b, a)
            T.copy(a, B)
            T.copy(b, B)

    found = [
        line.strip().split("(")[0]
        for line in source(kernel).splitlines()
        if "PIPE_MTE3>" in line or "DataCopyPad(B" in line
    ]
    assert found == ["DataCopyPad", "PipeBarrier<PIPE_MTE3>", "DataCopyPad"]


def test_a_core_is_asked_for_once():
    @T.prim_func
    def kernel(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, is_npu=True) as (_, _):
            a = T.alloc_ub((64,), "float32")
            with T.Scope("V"):
                T.copy(A, a)
                T.tile.sigmoid(a, a)
                T.copy(a, B)

    # The flags of the compiler stand in regions of their own, within the author's.
    text = source(kernel)
    assert text.count("if ASCEND_IS_AIV") == 1
    assert text.index("LocalTensor<uint8_t> scratch(") < text.index("sigmoid(a, a, scratch, 64)")


def test_what_the_scalar_unit_stores_is_there_before_other_pipes_take_it():
    @T.prim_func
    def kernel(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, is_npu=True) as (_, _):
            a = T.alloc_ub((64,), "float32")
            with T.Scope("V"):
                T.copy(A, a)
                T.barrier_all()
                for k in T.serial(1, 64):
                    a[k] = a[k - 1] + a[k]
                T.copy(a, B)

    # The author has no flag between: the statements' order is the program's.
    text = source(kernel, **{"tl.ascend_auto_sync": False})
    stored, store = text.index("SetValue("), text.index("DataCopyPad(B")
    assert "PipeBarrier<PIPE_ALL>();" in text[stored:store]
