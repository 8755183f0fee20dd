"""What an Ascend chip cannot do is refused at the author's line, with the row of its table."""

import pytest

import tilelang
import tilelang.ascend.language as TA
import tilelang.language as T
from tilelang.errors import TileError

OLD, NEW = "simulate:ascend910b", "simulate:ascend950"


def refused(kernel, target=OLD):
    with pytest.raises(TileError) as found:
        tilelang.compile(kernel, target=target)
    (first, *_) = found.value.diagnostics
    assert first.loc is not None and first.loc.file.endswith("test_ascend_refusals.py")
    return first


def kernel_of(body, core="V", shape=(64, 64), dtype="float16"):
    """A kernel of one block whose cores of a kind run `body(A)`."""

    @T.prim_func
    def kernel(A: T.Tensor(shape, dtype)):
        with T.Kernel(1, is_npu=True) as (_, _vid), T.Scope(core):
            body(A)

    return kernel


# ---- Paths -------------------------------------------------------------------------------------


@T.macro
def _l1_to_ub(A):
    a = T.alloc_L1((64, 64), "float16")
    u = T.alloc_ub((64, 64), "float16")
    T.copy(A, a)
    T.copy(a, u)


@T.macro
def _gm_to_l0(A):
    a = T.alloc_L0A((64, 64), "float16")
    T.copy(A, a)


@pytest.mark.parametrize("body", [_l1_to_ub, _gm_to_l0], ids=["l1-ub", "gm-l0a"])
def test_illegal_paths_name_the_table(body):
    found = refused(kernel_of(body, "C"))
    assert found.kind == "scope" and "there is no path from" in found.message
    assert "src/op/ascend.cc" in found.expected


def test_l1_to_ub_on_the_950():
    @T.prim_func
    def kernel(A: T.Tensor((64, 64), "float16")):
        with TA.Kernel(1):
            a = TA.alloc_l1((64, 64), "float16")
            u = TA.alloc_shared((64, 64), "float16")
            TA.copy(A, a)
            TA.copy(a, u)

    found = refused(kernel, NEW)
    assert "no path from L1 buffer to Unified Buffer" in found.message
    assert "GetDMAPath" in found.expected


# ---- Numbers of flags --------------------------------------------------------------------------


@T.macro
def _event_8(A):
    T.set_flag("mte2", "v", 8)
    T.wait_flag("mte2", "v", 8)


@T.macro
def _cross_16(A):
    T.set_cross_flag("MTE3", 16)


@T.macro
def _counted_up(A):
    for k in T.serial(12):
        T.set_flag("mte2", "v", k)
        T.wait_flag("mte2", "v", k)


@pytest.mark.parametrize(
    ("body", "message", "limit"),
    [
        (_event_8, "there is no event 8", "0 to 7 on simulate:ascend910b (HIVM dialect"),
        (_cross_16, "there is no cross-core flag 16", "0 to 15 on simulate:ascend910b (CANN"),
    ],
    ids=["event", "cross"],
)
def test_flags_beyond_the_table(body, message, limit):
    found = refused(kernel_of(body))
    assert found.message == message and found.expected.startswith(limit)


def test_flags_beyond_the_table_that_show_when_it_runs():
    import numpy as np

    made = tilelang.compile(kernel_of(_counted_up), target=OLD)
    with pytest.raises(TileError, match="event 8"):
        made(np.zeros((64, 64), np.float16))


def test_mutexes_are_of_the_950():
    @T.prim_func
    def kernel(A: T.Tensor((64, 64), "float16")):
        with TA.Kernel(1), TA.Vector():
            TA.ascend_get_buf("PIPE_MTE2", 32, 0)
            TA.ascend_rls_buf("PIPE_MTE2", 32, 0)

    assert refused(kernel, NEW).message == "there is no mutex 32"


# ---- Memories ----------------------------------------------------------------------------------


@T.macro
def _too_large(A):
    a = T.alloc_ub((256, 256), "float32")
    T.tile.fill(a, 0.0)


@T.macro
def _address_beyond(A):
    a = T.alloc_ub((64, 64), "float16")
    T.annotate_address({a: 192 * 1024 - 4096})
    T.copy(A, a)


@T.macro
def _address_odd(A):
    a = T.alloc_ub((64, 64), "float16")
    T.annotate_address({a: 40})
    T.copy(A, a)


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        (_too_large, "capacity", "196608"),
        (_address_beyond, "capacity", "at most 196608 bytes (ascendnpu-ir"),
        (_address_odd, "layout", "a multiple of 32 bytes (ascendnpu-ir"),
    ],
    ids=["overflow", "beyond", "misaligned"],
)
def test_memories_are_not_left(body, kind, words):
    found = refused(kernel_of(body))
    assert found.kind == kind
    assert words in found.render()


@T.macro
def _rows_between_blocks(A):
    a = T.alloc_ub((8, 10), "float16")
    T.copy(A[0:8, 0:10], a)


@T.macro
def _begins_between_blocks(A):
    a = T.alloc_ub((64,), "float16")
    b = T.alloc_ub((32,), "float16")
    T.tile.fill(a, 1.0)
    T.tile.exp(b, a[8:40])


@pytest.mark.parametrize("body", [_rows_between_blocks, _begins_between_blocks])
def test_operands_are_aligned(body):
    found = refused(kernel_of(body))
    assert found.kind == "layout" and "is not aligned" in found.message
    assert "a multiple of 32 bytes in the Unified Buffer (UB)" in found.expected


@T.macro
def _inside_a_fractal(A):
    a = T.alloc_L1((64, 64), "float16")
    b = T.alloc_L0A((16, 16), "float16")
    T.copy(A, a)
    T.copy(a[0:16, 8:24], b)


@T.macro
def _rows_of_a_fractal(A):
    a = T.alloc_L1((64, 64), "float16")
    b = T.alloc_L0A((16, 16), "float16")
    T.copy(A, a)
    T.copy(a[8:24, 0:16], b)


@pytest.mark.parametrize("body", [_inside_a_fractal, _rows_of_a_fractal])
def test_loads_of_l0_begin_with_a_fractal(body):
    assert "begins inside a fractal" in refused(kernel_of(body, "C")).message


@T.macro
def _converts_on_the_way(A):
    a = T.alloc_ub((64, 64), "float32")
    T.copy(A, a)


def test_only_some_paths_convert():
    found = refused(kernel_of(_converts_on_the_way))
    assert found.kind == "dtype"


@T.macro
def _drained_as_half(A):
    a = T.alloc_L1((64, 64), "float16")
    c = T.alloc_L0C((64, 64), "float32")
    T.copy(A, a)
    T.gemm_v0(a, a, c, transpose_B=True, init=True)
    T.barrier_all()
    T.copy(c, A)


def test_drains_convert_what_the_table_says():
    compiled = tilelang.compile(kernel_of(_drained_as_half, "C"), target=OLD)
    assert compiled is not None

    @T.prim_func
    def kernel(A: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "int32")):
        with T.Kernel(1, is_npu=True) as (_, _vid), T.Scope("C"):
            a = T.alloc_L1((64, 64), "float16")
            c = T.alloc_L0C((64, 64), "float32")
            T.copy(A, a)
            T.gemm_v0(a, a, c, transpose_B=True, init=True)
            T.barrier_all()
            T.copy(c, C)

    found = refused(kernel)
    assert found.message == "a tile of float32 in L0C is not converted to int32 on its way out"
    assert "QuantMode_t" in found.expected


@T.macro
def _vector_on_the_cube(A):
    a = T.alloc_ub((64, 64), "float16")
    T.copy(A, a)


def test_statements_stand_with_their_core():
    found = refused(kernel_of(_vector_on_the_cube, "C"))
    assert found.kind == "scope" and "in the region of the cube core" in found.message


@T.macro
def _half_accumulator(A):
    a = T.alloc_L1((64, 64), "float16")
    b = T.alloc_L1((64, 64), "float16")
    c = T.alloc_L0C((64, 64), "float16")
    T.copy(A, a)
    T.copy(A, b)
    T.gemm_v0(a, b, c, init=True)


def test_accumulators_are_wide():
    assert refused(kernel_of(_half_accumulator, "C")).kind == "dtype"


def test_one_tile_has_one_order_of_fractals():
    @T.prim_func
    def kernel(A: T.Tensor((64, 64), "float16")):
        with TA.Kernel(1), TA.Cube():
            l1 = TA.alloc_l1((64, 64), "float16")
            a, b = TA.alloc_l0a((64, 64), "float16"), TA.alloc_l0b((64, 64), "float16")
            c = TA.alloc_l0c((64, 64), "float32")
            TA.copy(A, l1)
            TA.copy(l1, a)
            TA.copy(l1, b)
            TA.gemm(a, b, c, transpose_B=True, clear_accum=True)
            TA.gemm(a, b, c, transpose_B=False)

    assert "one product takes b transposed" in refused(kernel, NEW).message


def test_the_emulator_names_the_model_that_has_pipes():
    made = refused(kernel_of(_event_8), "emulate:ascend950")
    assert made.kind in ("target", "scope", "value")
    with pytest.raises(TileError, match="simulate:ascend910b"):
        tilelang.compile(kernel_of(_address_odd), target="emulate")


def test_threads_of_a_function_keep_some_of_ub():
    def kernel(simt):
        @T.prim_func
        def kernel(A: T.Tensor((56, 1024), "float32")):
            with TA.Kernel(1):
                u = TA.alloc_shared((56, 1024), "float32")
                TA.copy(A, u)
                with TA.SimtVF(threads=64) if simt else TA.SimdVF():
                    for i, j in T.Parallel(56, 1024):
                        u[i, j] = u[i, j] + 1.0
                TA.copy(u, A)

        return kernel

    tilelang.compile(kernel(False), target=NEW)
    found = refused(kernel(True), NEW)
    assert found.kind == "capacity" and found.expected.startswith("at most 221184 bytes")
    assert "GetSharedMemoryLimit" in found.expected
