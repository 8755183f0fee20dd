"""Loads and stores of single elements: slices, gathers, bounds, masks, races."""

from __future__ import annotations

import numpy as np
import pytest

from emulator_build import F32, add, buf, e, kernel, ld, line_of, mul, op, run, same, st, var
from tilelang.emulator import translate
from tilelang.errors import TileError, TileIndexError
from tilelang.ir.expr import Select
from tilelang.ir.tile import Alloc, Annotate, If, Let, Parallel

i, j, k, bx = (var(n) for n in ("i", "j", "k", "bx"))


def rand(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape).astype("float32")


@pytest.mark.parametrize("n", [0, 1, 24, 100, 127, 128, 129, 1000])
def test_ragged_add(n):
    A, B, C = (buf(x, "float32", var("n")) for x in "ABC")
    at = add(mul(bx, 128), i)
    fn = kernel(
        [A, B, C],
        Parallel((i,), (e(128),), (st(C, at, add(ld(A, at), ld(B, at))),)),
        grid=((n + 127) // 128,),
        vars=(bx,),
        dynamic=(var("n"),),
    )
    a, b, c = rand(n), rand(n) + 1, np.full(n, 7, np.float32)
    run(fn, A=a, B=b, C=c, n=n)
    same(c, a + b)


@pytest.mark.parametrize("shape", [(1, 1), (5, 1), (1, 7), (24, 40)])
def test_axes_in_any_order(shape):
    m, n = shape
    A, B, C = buf("A", "float32", n, m), buf("B", "float32", m), buf("C", "float32", m, n)
    D = buf("D", "float32", n, 3, m)
    body = (
        st(C, i, j, add(ld(A, j, i), ld(B, i))),
        st(D, j, 1, i, mul(ld(C, i, j), 2.0)),
    )
    fn = kernel([A, B, C, D], Parallel((i, j), (e(m), e(n)), body))
    a, b, c, d = rand(n, m), rand(m), np.zeros((m, n), np.float32), np.zeros((n, 3, m), np.float32)
    run(fn, A=a, B=b, C=c, D=d)
    same(c, a.T + b[:, None])
    same(d[:, 1], c.T * 2)
    assert not d[:, [0, 2]].any()


def test_three_axes_with_a_gap():
    A, C = buf("A", "float32", 3, 5), buf("C", "float32", 5, 4, 3)
    fn = kernel([A, C], Parallel((i, j, k), (e(3), e(4), e(5)), (st(C, k, j, i, ld(A, i, k)),)))
    a, c = rand(3, 5), np.zeros((5, 4, 3), np.float32)
    run(fn, A=a, C=c)
    same(c, np.broadcast_to(a.T[:, None, :], (5, 4, 3)).copy())


def test_strides_and_reversal():
    A, B, C = buf("A", "int32", 64), buf("B", "int32", 20), buf("C", "int32", 20)
    fn = kernel(
        [A, B, C],
        Parallel(
            (i,), (e(20),), (st(B, i, ld(A, add(mul(i, 3), 2))), st(C, op("-", 19, i), ld(A, i)))
        ),
    )
    a, b, c = np.arange(64, dtype=np.int32), np.zeros(20, np.int32), np.zeros(20, np.int32)
    run(fn, A=a, B=b, C=c)
    same(b, a[2:62:3])
    same(c, a[:20][::-1].copy())


def test_gather_scatter_and_flat_index():
    A, X, B = buf("A", "float32", 60), buf("X", "int32", 6), buf("B", "float32", 6, 10)
    body = (st(B, ld(X, i), j, ld(A, add(mul(i, 10), j))),)
    fn = kernel([A, X, B], Parallel((i, j), (e(6), e(10)), body))
    a, x, b = rand(60), np.array([3, 1, 0, 5, 4, 2], np.int32), np.zeros((6, 10), np.float32)
    run(fn, A=a, X=x, B=b)
    want = np.zeros_like(b)
    want[x] = a.reshape(6, 10)
    same(b, want)


def test_global_reads_outside_give_the_safe_value_and_writes_do_nothing():
    A, B = buf("A", "int32", 5), buf("B", "int32", 5)
    X = buf("X", "int32", 10)
    fn = kernel(
        [A, B, X],
        Annotate("safe_value", buffers=(A,), values=(-99,)),
        Parallel((i,), (e(10),), (st(X, i, ld(A, op("-", i, 3))), st(B, op("-", i, 7), i))),
        st(B, 17, 5),
        st(X, -4, ld(A, -1)),
    )
    a, b, x = np.arange(5, dtype=np.int32), np.full(5, 8, np.int32), np.zeros(10, np.int32)
    run(fn, A=a, B=b, X=x)
    same(x, np.array([-99, -99, -99, 0, 1, 2, 3, 4, -99, -99], np.int32))
    same(b, np.array([7, 8, 9, 8, 8], np.int32))


@pytest.mark.parametrize("at", [-1, 16, 1000])
def test_outside_on_chip_is_a_located_fault(at):
    A, s = buf("A", "int32", 4), buf("s", "int32", 16, scope="shared.dyn")
    fn = kernel([A], Alloc(s), st(A, 0, ld(s, ld(A, 1))), grid=(3,), vars=(bx,))
    with pytest.raises(TileIndexError) as info:
        run(fn, A=np.array([0, at, 0, 0], np.int32))
    d = info.value.diagnostics[0]
    assert (d.kind, line_of(d)) == (
        "bounds",
        test_outside_on_chip_is_a_located_fault.__code__.co_firstlineno + 3,
    )
    assert str(at) in d.got and "block (0)" in d.got and "< 16" in d.expected and "s" in d.message


def test_outside_on_chip_by_one_lane_names_it():
    A, s = buf("A", "int32", 20), buf("s", "int32", 16, scope="shared.dyn")
    fn = kernel([A], Alloc(s), Parallel((i,), (e(20),), (st(s, op("-", i, 2), ld(A, i)),)))
    with pytest.raises(TileIndexError, match=r"-2 in block \(0\), i = 0"):
        run(fn, A=np.zeros(20, np.int32))


def test_masked_lanes_do_not_fault():
    A, C, s = (
        buf("A", "int32", 20),
        buf("C", "int32", 20),
        buf("s", "int32", 16, scope="shared.dyn"),
    )
    inside = op("<", i, 16)
    fn = kernel(
        [A, C],
        Alloc(s),
        Parallel((i,), (e(20),), (If(inside, (st(s, i, ld(A, i)),)),)),
        Parallel((i,), (e(20),), (st(C, i, Select(inside, ld(s, i), e(-1), lazy=True)),)),
    )
    a, c = np.arange(20, dtype=np.int32), np.zeros(20, np.int32)
    run(fn, A=a, C=c)
    same(c, np.where(a < 16, a, -1).astype(np.int32))


def test_a_let_keeps_the_value_of_its_time():
    A, B = buf("A", "float32", 33), buf("B", "float32", 33)
    x = var("x", F32)
    body = (Let(x, ld(A, i)), st(A, i, 0.0), st(B, i, x))
    a, b = rand(33), np.zeros(33, np.float32)
    want = a.copy()
    run(kernel([A, B], Parallel((i,), (e(33),), body)), A=a, B=b)
    same(b, want)
    assert not a.any()


def test_last_iteration_wins():
    A, C = buf("A", "int32", 7), buf("C", "int32", 2)
    fn = kernel(
        [A, C], Parallel((i,), (e(7),), (st(C, 1, ld(A, i)), st(C, op("//", i, 9), ld(A, i))))
    )
    a, c = np.arange(7, dtype=np.int32) + 10, np.zeros(2, np.int32)
    run(fn, A=a, C=c)
    same(c, np.array([16, 16], np.int32))


@pytest.mark.parametrize("index", ["constant", "loaded"])
def test_updates_of_one_element_by_several_iterations_are_refused(index):
    A, X, C = buf("A", "float32", 8), buf("X", "int32", 8), buf("C", "float32", 8)
    at = e(0) if index == "constant" else ld(X, i)
    fn = kernel([A, X, C], Parallel((i,), (e(8),), (st(C, at, add(ld(C, at), ld(A, i))),)))
    program = translate(fn)
    args = {"A": rand(8), "C": np.zeros(8, np.float32)}
    with pytest.raises(TileError, match="update C"):
        program.run({**args, "X": np.array([0, 1, 2, 2, 3, 4, 5, 6], np.int32)})
    if index == "loaded":
        program.run({**args, "X": np.arange(8, dtype=np.int32)[::-1].copy()})
        same(args["C"], args["A"][::-1].copy())


def test_dynamic_extents():
    n = var("n")
    A, C = buf("A", "int64", n, n), buf("C", "int64", n, n)
    fn = kernel(
        [A, C], Parallel((i, j), (n, n), (st(C, i, j, op("*", ld(A, j, i), 3)),)), dynamic=(n,)
    )
    program = translate(fn)
    for size in (0, 1, 5, 40):
        a = np.arange(size * size, dtype=np.int64).reshape(size, size)
        c = np.zeros_like(a)
        program.run({"A": a, "C": c, "n": size})
        same(c, a.T * 3)


def test_strided_arguments():
    A, C = buf("A", "float32", 6, 5), buf("C", "float32", 6, 5)
    fn = kernel([A, C], Parallel((i, j), (e(6), e(5)), (st(C, i, j, ld(A, i, j)),)))
    a, c = rand(12, 10)[::2, ::-2], np.zeros((5, 6), np.float32).T
    run(fn, A=a, C=c)
    same(c, a)
