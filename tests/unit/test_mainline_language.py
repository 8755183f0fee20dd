"""What the mainline Ascend dialect takes, what it refuses, and where it says so."""

import numpy as np
import pytest

import tilelang
import tilelang.ascend.language as T
from tilelang.errors import TileError

MODEL = "simulate:ascend950"


def refusal(body):
    """The text with which a kernel of one block with this body is refused."""
    with pytest.raises(TileError) as caught:

        @T.prim_func
        def kernel(A: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
            with T.Kernel(1):
                body(A, C)

        tilelang.compile(kernel, target=MODEL)
    assert "test_mainline_language.py" in str(caught.value)
    return str(caught.value)


def tiles():
    a0 = T.alloc_l0a((64, 64), "float16")
    b0 = T.alloc_l0b((64, 64), "float16")
    c0 = T.alloc_l0c((64, 64), "float32")
    return a0, b0, c0


def two_products(A, C):
    a1 = T.alloc_l1((64, 64), "float16")
    a0, b0, c0 = tiles()
    T.copy(A, a1)
    T.copy(a1, a0)
    T.copy(a1, b0)
    T.gemm(a0, b0, c0, transpose_B=True, clear_accum=True)
    T.gemm(a0, b0, c0, transpose_A=True, transpose_B=True)
    T.copy(c0, C)


def untransposed(A, C):
    a1 = T.alloc_l1((64, 64), "float16")
    c0 = T.alloc_l0c((64, 64), "float32")
    T.copy(A, a1)
    T.gemm(a1, a1, c0, clear_accum=True)


def from_l1_to_ub(A, C):
    a1 = T.alloc_l1((64, 64), "float16")
    u = T.alloc_shared((64, 64), "float16")
    T.copy(A, a1)
    T.copy(a1, u)


def too_large(A, C):
    T.clear(T.alloc_shared((512, 256), "float32"))


def too_many_events(A, C):
    T.ascend_set_flag("MTE2_V", 8)


def unknown_event(A, C):
    T.ascend_set_flag("MTE2_DMA", 0)


def leftover(A, C):
    T.ascend_cross_core_set_flag(3, "PIPE_FIX", 1)


def registers_outside(A, C):
    T.simd.pset(32)


def merging(A, C):
    u = T.alloc_shared((64,), "float32")
    with T.SimdVF():
        x = T.simd.vld(u[0])
        T.simd.vadd(x, x, mode="MODE_MERGING")


def scaled(A, C):
    a0, b0, c0 = tiles()
    T.gemm_blockscaled(a0, b0, c0, a0, b0)


def halves_that_do_not_match(A, C):
    c0 = T.alloc_l0c((64, 64), "float32")
    T.dual_copy(c0, T.alloc_shared((48, 64), "float32"))


def a_vector_function_in_another(A, C):
    with T.SimtVF(threads=32), T.SimdVF():
        pass


def atomics_of_an_unknown_kind(A, C):
    T.set_atomic("mul", "float32")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (two_products, "one product takes l0a transposed, and another as it is"),
        (untransposed, "transpose_B"),
        (from_l1_to_ub, "L1"),
        (too_large, "524288 bytes of Unified Buffer (UB) are asked for, 253952 are available"),
        (too_many_events, "0 to 7"),
        (unknown_event, "MTE2_DMA"),
        (leftover, "0, 1, 2"),
        (registers_outside, "outside T.SimdVF"),
        (merging, "MODE_MERGING"),
        (scaled, "gemm_blockscaled"),
        (halves_that_do_not_match, "dual_copy"),
        (a_vector_function_in_another, "SimdVF"),
        (atomics_of_an_unknown_kind, "mul"),
    ],
    ids=lambda x: getattr(x, "__name__", None),
)
def test_refusals_name_what_is_wrong(body, says):
    assert says in refusal(body)


def test_hints_change_nothing():
    def made(hinted):
        @T.prim_func
        def kernel(A: T.Tensor((4, 64), "float32"), C: T.Tensor((4, 64), "float32")):
            with T.Kernel(1):
                a = T.alloc_shared((64,), "float32")
                if hinted:
                    T.annotate_buffer_versions({a: (3, "counter")})
                for k in T.Pipelined(4, num_stages=3 if hinted else 1):
                    if hinted:
                        T.assume_no_conflict(a, a)
                    T.copy(A[k, 0], a)
                    with T.SimtVF(threads=32, latency=7 if hinted else 0):
                        for i in T.Parallel(64):
                            a[i] = a[i] * 2.0
                    T.copy(a, C[k, 0])

        return tilelang.compile(kernel, target=MODEL)

    a = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    for hinted in (False, True):
        c = np.zeros_like(a)
        made(hinted)(a, c)
        np.testing.assert_array_equal(c, 2 * a)


@pytest.mark.parametrize(("versions", "buffers"), [(1, 1), (2, 2)])
def test_versions_of_a_buffer_in_a_pipelined_loop(versions, buffers):
    @T.prim_func
    def kernel(A: T.Tensor((4, 64), "float32"), C: T.Tensor((4, 64), "float32")):
        with T.Kernel(1):
            a = T.alloc_shared((64,), "float32")
            T.annotate_buffer_versions({a: versions})
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[k, 0], a)
                T.copy(a, C[k, 0])

    text = tilelang.compile(kernel, target=MODEL).get_kernel_source()
    assert text.count("__ubuf__ float* a") == buffers


def test_what_a_vector_function_writes_in_part_keeps_the_rest():
    @T.prim_func
    def kernel(A: T.Tensor((4, 64), "float32"), C: T.Tensor((4, 64), "float32")):
        with T.Kernel(1):
            a = T.alloc_shared((64,), "float32")
            s = T.alloc_shared((64,), "float32")
            T.clear(s)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[k, 0], a)
                with T.SimtVF(threads=32):
                    for i in T.Parallel(16):
                        s[k * 16 + i] = a[i]
                T.copy(s, C[k, 0])

    a = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    c = np.zeros_like(a)
    tilelang.compile(kernel, target=MODEL)(a, c)
    wanted, row = np.zeros_like(a), np.zeros(64, np.float32)
    for k in range(4):
        row[16 * k : 16 * k + 16] = a[k, :16]
        wanted[k] = row
    np.testing.assert_array_equal(c, wanted)


@pytest.mark.parametrize("cores", [1, 2])
def test_the_number_of_a_vector_core_and_how_many_take_part(cores):
    @T.prim_func
    def kernel(A: T.Tensor((2, 64), "float32"), C: T.Tensor((2, 64), "float32")):
        with T.Kernel(1), T.Vector(vector=cores) as sid:
            a = T.alloc_shared((64,), "float32")
            T.copy(A[sid, 0], a)
            T.copy(a, C[sid, 0])

    a = np.random.default_rng(0).standard_normal((2, 64)).astype(np.float32)
    c = np.zeros_like(a)
    assert tilelang.check(kernel, MODEL, [a, c]) == []
    np.testing.assert_array_equal(c[:cores], a[:cores])
    assert (c[cores:] == 0).all()


@pytest.mark.parametrize("differs", [False, True])
def test_vector_cores_that_store_one_place_race_unless_they_store_the_same(differs):
    @T.prim_func
    def kernel(A: T.Tensor((2, 64), "float32"), C: T.Tensor((64,), "float32")):
        with T.Kernel(1), T.Vector() as sid:
            a = T.alloc_shared((64,), "float32")
            T.copy(A[sid if differs else 0, 0], a)
            T.copy(a, C)

    a = np.random.default_rng(0).standard_normal((2, 64)).astype(np.float32)
    found = tilelang.check(kernel, MODEL, [a, np.zeros(64, np.float32)])
    assert {d.kind for d in found} == ({"race"} if differs else set())
