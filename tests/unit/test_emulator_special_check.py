"""The dynamic check on vectors, reducers, special products, tests over elements and addresses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emulator_build import BOOL, F16, F32, I32, TX, buf, kernel, ld, mul, op, reg, st, var
from tilelang.dtypes import DType
from tilelang.emulator import translate
from tilelang.ir import special
from tilelang.ir.expr import AddressOf, Const, LoadVector, Pack
from tilelang.ir.special import (
    GemmBlockScaled,
    GemmSparse,
    Im2col,
    MakeTensor,
    Quantifier,
    ReducerFinalize,
    ReducerInit,
    ReducerUpdate,
)
from tilelang.ir.tile import Alloc, Copy, Fill, Parallel, ReduceOp, Stmt, StoreVector

i, bx = var("i"), var("bx")
F8 = DType("float8_e4m3fn")
V2 = DType("float16x2")


def c(n: int) -> Const:
    return Const(n, I32)


def findings(params: list, *body: Stmt, threads: int = 1, grid: int = 1) -> list[tuple[str, str]]:
    fn = kernel(params, *body, threads=(threads,), grid=(grid,), vars=(bx,))
    args: dict[str, Any] = {}
    for b in params:
        shape = tuple(n.value for n in b.shape)
        args[b.name] = np.zeros(shape, b.dtype.numpy)
    return [(d.kind, d.message) for d in translate(fn, checked=True).run(args)]


def shared(name: str, dtype, *shape: int):
    return buf(name, dtype, *shape, scope="shared.dyn")


def test_a_vector_load_of_what_nobody_wrote():
    C, s = buf("C", F16, 16), shared("s", F16, 16)
    load = StoreVector(C, (mul(TX, 2),), LoadVector(s, (mul(TX, 2),), V2))
    found = findings([C], Alloc(s), load, threads=8)
    assert [k for k, _ in found] == ["uninitialised"]
    assert "s is read" in found[0][1]
    one = Const(1.0, F16)
    write = StoreVector(s, (mul(TX, 2),), Pack((one, one), V2))
    assert findings([C], Alloc(s), write, load, threads=8) == []
    assert findings([C], Alloc(s), Fill(reg(s), one), load, threads=8) == []


def test_two_iterations_that_store_one_vector():
    C = buf("C", F16, 8)
    one, two = Const(1.0, F16), Const(2.0, F16)
    apart = Parallel((i,), (c(4),), (StoreVector(C, (mul(i, 2),), Pack((one, two), V2)),))
    over = Parallel((i,), (c(4),), (StoreVector(C, (i,), Pack((one, two), V2)),))
    assert findings([C], apart) == []
    assert "race" in {k for k, _ in findings([C], over)}


@pytest.mark.parametrize("clear", [True, False])
@pytest.mark.parametrize("kind", ["sparse", "scaled"])
def test_a_cleared_accumulator_need_not_be_written(clear, kind):
    acc = buf("acc", F32, 4, 4, scope="local.fragment")
    C, B = buf("C", F32, 4, 4), buf("B", F8, 32, 4)
    flag = Const(clear, BOOL)
    if kind == "sparse":
        A, E = buf("A", F8, 4, 16), buf("E", "uint8", 4, 4)
        params, node = [A, E, B], GemmSparse(reg(A), reg(E), reg(B), reg(acc), flag)
    else:
        A, S = buf("A", F8, 4, 32), buf("S", "uint32", 4)
        params = [A, S, B]
        node = GemmBlockScaled(reg(A), reg(B), reg(acc), reg(S), reg(S), flag, c(0), 32, 32)
    found = findings([*params, C], Alloc(acc), node, Copy(reg(acc), reg(C)))
    assert [k for k, _ in found] == ([] if clear else ["uninitialised"])


def test_a_reducer_writes_its_destination_and_a_test_reads():
    acc = buf("acc", F32, 4, scope="local.reducer")
    res = buf("res", F32, 4, scope="local.fragment")
    C, held = buf("C", F32, 4), var("held", BOOL)
    rounds = Parallel((i,), (c(4),), (ReducerUpdate(acc, (i,), ld(C, i), ReduceOp.SUM),))
    epoch = (ReducerInit(acc, ReduceOp.SUM), rounds, ReducerFinalize(acc, reg(res), ReduceOp.SUM))
    tested = special.TestElements(Quantifier.ANY, reg(res), held)
    assert findings([C], Alloc(acc), Alloc(res), *epoch, tested, Copy(reg(res), reg(C))) == []
    found = findings([C], Alloc(acc), Alloc(res), tested, *epoch)
    assert [k for k, _ in found] == ["uninitialised"]


def test_the_older_reducer_must_be_filled():
    acc = buf("acc", F32, 4, scope="local.fragment")
    C = buf("C", F32, 4)
    rounds = Parallel((i,), (c(4),), (ReducerUpdate(acc, (i,), ld(C, i), ReduceOp.SUM),))
    rest = (rounds, ReducerFinalize(acc, reg(acc), ReduceOp.SUM), Copy(reg(acc), reg(C)))
    assert findings([C], Alloc(acc), Fill(reg(acc), Const(0.0, F32)), *rest) == []
    assert "uninitialised" in {k for k, _ in findings([C], Alloc(acc), *rest)}


def test_each_thread_tests_a_place_of_its_own():
    A, C, held = buf("A", I32, 8, 2), buf("C", BOOL, 8), var("held", BOOL)
    tested = special.TestElements(Quantifier.ALL, reg(A, TX, 0, ext=(1, 2)), held)
    assert findings([A, C], tested, st(C, TX, held), threads=8) == []


def test_patches_fill_their_tile():
    image, col, C = buf("I", F16, 1, 4, 4, 2), shared("col", F16, 16, 18), buf("C", F16, 16, 18)
    node = Im2col(reg(image), reg(col), c(0), c(0), 3, 1, 1, 1)
    assert findings([image, C], Alloc(col), node, Copy(reg(col), reg(C))) == []


def test_a_tensor_at_an_address_holds_values():
    A, C, T = buf("A", F32, 8), buf("C", F32, 8), buf("T", F32, 8)
    body = (MakeTensor(T, AddressOf(A, (c(0),))), Copy(reg(T), reg(C)), st(T, 0, 1.0))
    assert findings([A, C], *body) == []
    outside = (MakeTensor(T, AddressOf(A, (c(0),))), st(C, 0, ld(T, op("+", bx, 8))))
    assert "bounds" in {k for k, _ in findings([A, C], *outside)}
