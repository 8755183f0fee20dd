"""Addresses of elements, tensors over addresses, and tests over elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emulator_build import (
    BOOL,
    F32,
    I32,
    I64,
    TX,
    TY,
    TZ,
    add,
    buf,
    kernel,
    ld,
    mul,
    op,
    reg,
    run,
    same,
    st,
    var,
)
from tilelang.dtypes import DType
from tilelang.emulator import translate
from tilelang.errors import TileError
from tilelang.ir import special
from tilelang.ir.expr import AddressOf, Cast, Const
from tilelang.ir.special import MakeTensor, Quantifier
from tilelang.ir.tile import Alloc, Copy, Fill, Function, Gemm, If, Launch, Parallel, Param

i, j, bx = (var(n) for n in ("i", "j", "bx"))
HANDLE = DType("handle")
RNG = np.random.default_rng(8)


def c(n: int) -> Const:
    return Const(n, I32)


def pointer(name: str):
    return var(name, HANDLE)


# -- addresses -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["float32", "int8", "float64", "float8_e4m3fn", "float16x2"])
def test_the_address_of_an_element_is_where_it_lies(name):
    t = DType(name)
    A, C = buf("A", t, 5, 7), buf("C", "uint64", 5, 7)
    at = Cast(AddressOf(A, (i, j)), DType("uint64"))
    fn = kernel([A, C], Parallel((i, j), (c(5), c(7)), (st(C, i, j, at),)))
    lanes = (t.lanes,) if t.lanes > 1 else ()
    whole = np.zeros((10, 9, *lanes), t.numpy)
    out = np.zeros((5, 7), np.uint64)
    a = whole[::2, 1:8] if not lanes else whole[:5, 1:8]
    translate(fn).run({"A": a, "C": out})
    start, steps = a.__array_interface__["data"][0], a.strides
    want = start + np.arange(5)[:, None] * steps[0] + np.arange(7) * steps[1]
    same(out, want.astype(np.uint64))


def test_an_address_does_not_look_like_a_small_number():
    # An index that is cast from an address must not be taken for one that is in bounds.
    A, C = buf("A", "int32", 4), buf("C", "int32", 4)
    at = Cast(AddressOf(A, (c(0),)), I64)
    fn = kernel([A, C], st(C, 0, ld(A, Cast(at, I32))), st(C, 1, 5))
    out = np.full(4, 7, np.int32)
    run(fn, A=np.arange(1, 5, dtype=np.int32), C=out)
    same(out, np.array([0, 5, 7, 7], np.int32))


# -- tensors over addresses ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["float32", "bfloat16", "int64", "float8_e5m2", "bool", "int32x4"])
@pytest.mark.parametrize("n", [0, 1, 100, 127])
def test_a_tensor_over_an_address(name, n):
    t = DType(name)
    p, q, size = pointer("p"), pointer("q"), var("n")
    A, C = buf("A", t, size), buf("C", t, size)
    at = add(mul(bx, 32), i)
    body = (MakeTensor(A, p), MakeTensor(C, q), Parallel((i,), (c(32),), (st(C, at, ld(A, at)),)))
    fn = kernel([], *body, grid=((n + 31) // 32,), vars=(bx,), scalars=(p, q, size))
    shape = (n, t.lanes) if t.lanes > 1 else (n,)
    a = RNG.integers(0, 2, shape).astype(t.numpy)
    out = np.zeros_like(a)
    translate(fn).run({"p": a, "q": out.ctypes.data, "n": n})
    assert out.tobytes() == a.tobytes()


def test_a_tensor_made_outside_of_the_launch_with_strides():
    p, q = pointer("p"), pointer("q")
    A = buf("A", "float32", 4, 5, strides=(c(1), c(4)))
    C = buf("C", "float32", 4, 5)
    launch = Launch((c(1),), (bx,), (TX, TY, TZ), (Copy(reg(A), reg(C)),), threads=(32,))
    fn = Function(
        "f",
        (Param("p", var=p, pointer=True), Param("q", var=q, pointer=True)),
        (),
        (MakeTensor(A, p), MakeTensor(C, q), launch),
    )
    a, out = RNG.standard_normal((5, 4)).astype(np.float32), np.zeros((4, 5), np.float32)
    translate(fn).run({"p": a, "q": out})
    same(out, a.T.copy())


def test_a_table_of_addresses():
    # A grouped product: each group's operands lie elsewhere.
    groups, m, n, k = 3, 5, 4, 6
    tables = [buf(f"{x}p", "int64", groups) for x in "ABC"]
    A, B, C = buf("A", F32, m, k), buf("B", F32, k, n), buf("C", F32, m, n)
    acc = buf("acc", F32, m, n, scope="local.fragment")
    body = (
        *(MakeTensor(b, ld(table, bx)) for b, table in zip((A, B, C), tables, strict=True)),
        Alloc(acc),
        Gemm(reg(A), reg(B), reg(acc), Const(True, BOOL)),
        Copy(reg(acc), reg(C)),
    )
    a = [RNG.integers(-3, 4, (m, k)).astype(np.float32) for _ in range(groups)]
    b = [RNG.integers(-3, 4, (k, n)).astype(np.float32) for _ in range(groups)]
    out = [np.zeros((m, n), np.float32) for _ in range(groups)]
    args: dict[str, Any] = {
        t.name: np.array([x.ctypes.data for x in xs], np.int64)
        for t, xs in zip(tables, (a, b, out), strict=True)
    }
    run(kernel(tables, *body, grid=(groups,), vars=(bx,), threads=(32,)), **args)
    for x, y, z in zip(a, b, out, strict=True):
        same(z, x @ y)


def test_a_part_of_a_parameter_by_its_address():
    A, C = buf("A", "float32", 6, 8), buf("C", "float32", 8)
    row = buf("row", "float32", 8)
    body = (MakeTensor(row, AddressOf(A, (c(4), c(0)))), Copy(reg(row), reg(C)), st(row, 2, 99.0))
    a = RNG.standard_normal((6, 8)).astype(np.float32)
    want, out = a[4].copy(), np.zeros(8, np.float32)
    run(kernel([A, C], *body), A=a, C=out)
    same(out, want)
    assert a[4, 2] == 99


@pytest.mark.parametrize("address", [0, 64, 0x7F00_0000_0000_0000])
def test_an_address_of_nothing_is_an_error_and_no_crash(address):
    p = pointer("p")
    A, C = buf("A", "float32", 1000), buf("C", "float32", 1)
    fn = kernel([C], MakeTensor(A, p), st(C, 0, ld(A, 0)), scalars=(p,))
    with pytest.raises(TileError, match="address of A"):
        translate(fn).run({"C": np.zeros(1, np.float32), "p": address})


def test_what_has_no_address_is_refused():
    p = pointer("p")
    with pytest.raises(TileError, match="int4"):
        translate(kernel([], MakeTensor(buf("A", "int4", 8), p), scalars=(p,)))
    A = buf("A", "int4", 8)
    C = buf("C", "uint64", 1)
    with pytest.raises(TileError, match="address"):
        translate(kernel([A, C], st(C, 0, Cast(AddressOf(A, (c(0),)), DType("uint64")))))
    with pytest.raises(TileError, match="thread"):
        address = op("+", Cast(p, I64), Cast(TX, I64))
        translate(kernel([], MakeTensor(buf("B", "int8", 8), address), threads=(32,), scalars=(p,)))


# -- tests over elements ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["float32", "float16", "float8_e4m3fn", "int8", "uint64", "bool", "int4"]
)
@pytest.mark.parametrize("kind", list(Quantifier))
def test_any_and_all(name, kind):
    t = DType(name)
    A, C = buf("A", t, 6, 5), buf("C", "bool", 6)
    s = buf("s", t, 5, scope="shared.dyn")
    held = var("held", BOOL)
    body = (
        Alloc(s),
        Copy(reg(A, bx, 0, ext=(1, 5)), reg(s)),
        special.TestElements(kind, reg(s), held),
        st(C, bx, held),
    )
    a = np.zeros((6, 5), np.float32)
    a[1, 4], a[2], a[3, :4], a[4, 0] = 1, 1, 1, -1 if not t.is_uint and not t.is_bool else 1
    values = a.astype(t.numpy)
    if t.is_float:
        values[5] = np.array(-0.0, np.float32).astype(t.numpy)
    out = np.zeros(6, bool)
    run(kernel([A, C], *body, grid=(6,), vars=(bx,)), A=values, C=out)
    same(out, (a != 0).any(1) if kind is Quantifier.ANY else (a != 0).all(1))


@pytest.mark.parametrize("kind", list(Quantifier))
def test_a_part_of_a_buffer_nan_and_nothing_at_all(kind):
    A, C = buf("A", "float32", 4, 6), buf("C", "bool", 3)
    x, y, z = (var(n, BOOL) for n in "xyz")
    body = (
        special.TestElements(kind, reg(A, 1, 2, ext=(2, 3)), x),
        st(C, 0, x),
        special.TestElements(kind, reg(A, 3, 0, ext=(1, 1)), y),
        st(C, 1, y),
        special.TestElements(kind, reg(A, 0, 0, ext=(0, 6)), z),
        st(C, 2, z),
    )
    a = np.zeros((4, 6), np.float32)
    a[1:3, 2:5] = 1
    a[3, 0] = np.nan
    out = np.zeros(3, bool)
    run(kernel([A, C], *body), A=a, C=out)
    same(out, np.array([True, True, kind is Quantifier.ALL]))


@pytest.mark.parametrize("kind", list(Quantifier))
def test_each_thread_tests_its_own(kind):
    A, C, D = buf("A", "int32", 24, 3), buf("C", "bool", 24), buf("D", "bool", 24)
    own = buf("own", "int32", 3, scope="local")
    x, y = var("x", BOOL), var("y", BOOL)
    body = (
        Alloc(own),
        *(st(own, n, ld(A, TX, n)) for n in range(3)),
        special.TestElements(kind, reg(own), x),
        st(C, TX, x),
        If(
            op("<", TX, 20),
            (special.TestElements(kind, reg(A, TX, 0, ext=(2, 3)), y), st(D, TX, y)),
        ),
    )
    a = RNG.integers(0, 2, (24, 3)).astype(np.int32)
    out, other = np.zeros(24, bool), np.zeros(24, bool)
    run(kernel([A, C, D], *body, threads=(24,)), A=a, C=out, D=other)
    fold = np.any if kind is Quantifier.ANY else np.all
    same(out, fold(a != 0, 1))
    same(other[:20], np.array([fold(a[r : r + 2] != 0) for r in range(20)]))
    assert not other[20:].any()


def test_a_test_decides_for_the_whole_block():
    A, C = buf("A", "int32", 3, 8), buf("C", "int32", 3)
    s = buf("s", "int32", 8, scope="shared.dyn")
    held = var("held", BOOL)
    body = (
        Alloc(s),
        Copy(reg(A, bx, 0, ext=(1, 8)), reg(s)),
        special.TestElements(Quantifier.ANY, reg(s), held),
        If(held, (Fill(reg(s), Const(4, I32)),)),
        st(C, bx, ld(s, 7)),
    )
    a, out = np.zeros((3, 8), np.int32), np.zeros(3, np.int32)
    a[1, 2] = 5
    run(kernel([A, C], *body, grid=(3,), vars=(bx,), threads=(64,)), A=a, C=out)
    same(out, np.array([0, 4, 0], np.int32))
