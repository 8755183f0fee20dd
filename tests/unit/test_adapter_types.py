"""The element types that the vector units of the 910B compute with."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.dtypes import DType
from tilelang.errors import TileError
from tilelang.ir.ascend import VECTOR_OPS, Transfer, VectorOp, vector_types
from tilelang.ir.tile import Copy
from tilelang.passes.ascend.explicit import explicit
from tilelang.passes.ascend.settings import Automatic, with_automatic
from tilelang.targets import target

AUTO = {
    "tl.ascend_auto_sync": True,
    "tl.ascend_auto_cv_combine": True,
    "tl.ascend_memory_planning": True,
}


def of_tiles(n, dtype, body):
    @T.prim_func
    def kernel(A: T.Tensor((n,), dtype), B: T.Tensor((n,), dtype), C: T.Tensor((n,), dtype)):
        with T.Kernel(1, is_npu=True) as (_cid, _vid):
            a = T.alloc_ub((n,), dtype)
            b = T.alloc_ub((n,), dtype)
            c = T.alloc_ub((n,), dtype)
            T.copy(A, a)
            T.copy(B, b)
            body(c, a, b)
            T.copy(c, C)

    return kernel


def run(n, dtype, body, a, b):
    out = np.zeros(n, a.dtype)
    tilelang.compile(of_tiles(n, dtype, body), target="auto", pass_configs=AUTO)(a, b, out)
    return out


@T.macro
def exponential(c, a, b):
    T.tile.exp(c, a)


@T.macro
def quotient(c, a, b):
    T.tile.div(c, a, b)


@T.macro
def total(c, a, b):
    T.tile.add(c, a, b)


@T.macro
def least(c, a, b):
    m = T.alloc_ub((64,), "uint8")
    T.tile.compare(m, a, b, "LT")


@T.macro
def same(c, a, b):
    m = T.alloc_ub((64,), "uint8")
    T.tile.compare(m, a, b, "EQ")
    T.copy(a, c)


@pytest.mark.parametrize(
    ("body", "dtype", "words"),
    [
        (exponential, "int32", r"T\.tile\.exp of int32"),
        (quotient, "int16", r"T\.tile\.div of int16"),
        (total, "int8", r"T\.tile\.add of int8"),
        (total, "bfloat16", r"T\.tile\.add of bfloat16"),
        (least, "int32", r"T\.tile\.compare of int32 by LT"),
    ],
)
def test_a_type_that_the_units_do_not_have_is_refused_with_those_they_have(body, dtype, words):
    with pytest.raises(TileError, match=words) as found:
        tilelang.compile(of_tiles(128, dtype, body), target="auto", pass_configs=AUTO)
    text = str(found.value)
    assert "test_adapter_types.py" in text
    assert "float32" in text
    assert "on A2 and A3" in text


def test_integers_are_compared_for_equality():
    a = np.arange(128, dtype="i4")
    np.testing.assert_array_equal(run(128, "int32", same, a, a), a)


def test_every_operation_names_types_and_a_function():
    for row in VECTOR_OPS.values():
        assert row.source
        assert all(DType(t).name == t for t in row.dtypes)
        assert len(set(row.dtypes)) == len(row.dtypes) > 1
    assert "int32" not in vector_types("compare", "GT")


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32"])
@pytest.mark.parametrize("name", ["and", "or", "xor", "not"])
def test_bits_of_any_integers_are_combined(dtype, name):
    n = 96
    r = np.random.default_rng(0)
    a, b = (r.integers(0, 1 << 32, n, dtype="u4").astype(dtype) for _ in range(2))

    def body(c, x, y):
        op = getattr(T.tile, f"bitwise_{name}")
        op(c, x) if name == "not" else op(c, x, y)

    wanted = np.invert(a) if name == "not" else getattr(np, f"bitwise_{name}")(a, b)
    np.testing.assert_array_equal(run(n, dtype, body, a, b), wanted)


def nest(n, dtype, value):
    @T.prim_func
    def kernel(A: T.Tensor((n,), dtype), B: T.Tensor((n,), dtype), C: T.Tensor((n,), dtype)):
        with T.Kernel(1, is_npu=True) as (_cid, _vid):
            a = T.alloc_ub((n,), dtype)
            b = T.alloc_ub((n,), dtype)
            c = T.alloc_ub((n,), dtype)
            T.copy(A, a)
            T.copy(B, b)
            for i in T.Parallel(n):
                c[i] = value(a[i], b[i])
            T.copy(c, C)

    return kernel


def vector_operations(kernel):
    ready = with_automatic(kernel.ir, set(Automatic))
    out = explicit(ready, target("simulate:ascend910b"))
    return {n.op for s in out.body for n in s.walk() if isinstance(n, VectorOp)}


@pytest.mark.parametrize("n", [24, 40, 127])
def test_nests_of_bfloat16_are_computed_in_float32_and_rounded(n):
    import torch

    def value(x, y):
        return T.if_then_else(x > y, x * y, x - y)

    kernel = nest(n, "bfloat16", value)
    assert {"mul", "sub", "compare", "select"} <= vector_operations(kernel)
    a, b = torch.randn(2, n).to(torch.bfloat16)
    c = torch.zeros(n, dtype=torch.bfloat16)
    tilelang.compile(kernel, target="auto", pass_configs=AUTO)(a, b, c)
    assert torch.equal(c, torch.where(a > b, a * b, a - b))


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint32"])
def test_nests_of_types_without_vector_form_are_loops(dtype):
    kernel = nest(40, dtype, lambda x, y: x + y)
    assert not vector_operations(kernel)
    a, b = np.arange(40).astype(dtype), np.full(40, 3, dtype)
    c = np.zeros(40, dtype)
    tilelang.compile(kernel, target="auto", pass_configs=AUTO)(a, b, c)
    np.testing.assert_array_equal(c, a + b)


def converted(src, dst, mode=None):
    """`n` elements of one type as another, by T.tile.cast or, without a mode, by T.copy."""

    @T.prim_func
    def kernel(A: T.Tensor((40,), src), B: T.Tensor((40,), dst)):
        with T.Kernel(1, is_npu=True) as (_cid, _vid):
            a = T.alloc_ub((40,), src)
            b = T.alloc_ub((40,), dst)
            T.copy(A, a)
            if mode is None:
                T.copy(a, b)
            else:
                T.tile.cast(b, a, mode, 40)
            T.copy(b, B)

    return kernel


@pytest.mark.parametrize(
    ("src", "dst", "mode", "words"),
    [
        ("float32", "int8", None, r"T\.copy of float32 to int8"),
        ("int32", "bfloat16", "CAST_RINT", r"T\.tile\.cast of int32 to bfloat16"),
        ("float16", "int32", "CAST_NONE", r"T\.tile\.cast of float16 to int32 by CAST_NONE"),
    ],
)
def test_a_conversion_that_the_units_do_not_have_is_refused(src, dst, mode, words):
    with pytest.raises(TileError, match=words) as found:
        converted(src, dst, mode)
    assert "test_adapter_types.py" in str(found.value)
    assert "AscendC Cast, on A2 and A3" in str(found.value)


def nest_of_cast(n, src, dst):
    @T.prim_func
    def kernel(A: T.Tensor((n,), src), C: T.Tensor((n,), dst)):
        with T.Kernel(1, is_npu=True) as (_cid, _vid):
            a = T.alloc_ub((n,), src)
            c = T.alloc_ub((n,), dst)
            T.copy(A, a)
            for i in T.Parallel(n):
                c[i] = T.cast(a[i], dst)
            T.copy(c, C)

    return kernel


@pytest.mark.parametrize("n", [24, 127])
@pytest.mark.parametrize(
    ("src", "dst", "steps"),
    [
        ("float16", "float32", 1),
        ("int8", "float16", 1),
        ("int8", "float32", 2),
        ("uint8", "int32", 2),
        ("int16", "int32", 2),
        ("float32", "int8", 0),
        ("uint32", "float32", 0),
    ],
)
def test_nests_convert_in_steps_that_lose_nothing(src, dst, steps, n):
    kernel = nest_of_cast(n, src, dst)
    ready = with_automatic(kernel.ir, set(Automatic))
    out = explicit(ready, target("simulate:ascend910b"))
    nodes = [m for s in out.body for m in s.walk()]
    between = [m for m in nodes if isinstance(m, (Copy, Transfer)) and m.src.dtype != m.dst.dtype]
    assert len(between) == steps
    a = np.random.default_rng(0).integers(0, 100, n).astype(src)
    c = np.zeros(n, dst)
    tilelang.compile(kernel, target="auto", pass_configs=AUTO)(a, c)
    np.testing.assert_array_equal(c, a.astype(dst))


@pytest.mark.parametrize("reduce", [T.reduce_sum, T.reduce_max, T.reduce_min])
@pytest.mark.parametrize("dtype", ["int32", "int16", "bfloat16", "int8", "uint32"])
def test_reductions_of_types_that_the_vector_units_do_not_reduce_are_refused(reduce, dtype):
    with pytest.raises(TileError, match=rf"T.reduce_\w+ of {dtype}") as refused:
        of_tiles(64, dtype, lambda c, a, b: reduce(a, c[:1], dim=-1))
    assert "float16, float32 (AscendC Reduce" in refused.value.diagnostics[0].expected
