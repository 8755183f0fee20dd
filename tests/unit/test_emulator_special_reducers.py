"""Reducers: every iteration counts once; both forms, all operations and dtypes."""

from __future__ import annotations

import numpy as np
import pytest

from emulator_build import F16, F32, I32, TX, add, buf, kernel, ld, mul, op, reg, run, same, st, var
from tilelang.dtypes import DType, cast
from tilelang.emulator import translate
from tilelang.errors import TileError, TileIndexError
from tilelang.ir.expr import Buffer, Const
from tilelang.ir.special import ReducerFinalize, ReducerInit, ReducerUpdate
from tilelang.ir.sync import WarpSpecialize
from tilelang.ir.tile import Alloc, Fill, For, If, Let, Parallel, Pipelined, ReduceOp

i, j, k, bx = (var(n) for n in ("i", "j", "k", "bx"))
RNG = np.random.default_rng(5)
FOLDS = {
    ReduceOp.SUM: np.add,
    ReduceOp.MAX: np.fmax,
    ReduceOp.MIN: np.fmin,
    ReduceOp.BITAND: np.bitwise_and,
    ReduceOp.BITOR: np.bitwise_or,
    ReduceOp.BITXOR: np.bitwise_xor,
}
PLAIN = [ReduceOp.SUM, ReduceOp.MAX, ReduceOp.MIN]


def c(n: int) -> Const:
    return Const(n, I32)


def numbers(dtype: DType, *shape: int) -> np.ndarray:
    """Small integers in any dtype: sums are exact in whatever order."""
    low = 0 if dtype.is_uint or dtype.is_bool else -3
    whole = RNG.integers(low, 4, shape, dtype=np.int64)
    return cast(whole, DType("int64"), dtype)


def combined(op: ReduceOp, x: np.ndarray, dtype: DType, axis, init=None) -> np.ndarray:
    """The reduction in exact arithmetic, then in the dtype (integers wrap)."""
    wide = DType("float64") if dtype.is_float else DType("int64")
    exact = FOLDS[op].reduce(cast(x, dtype, wide), axis=axis)
    if init is not None:
        exact = FOLDS[op](exact, cast(np.asarray(init, dtype.numpy), dtype, wide))
    return cast(np.asarray(exact, wide.numpy), wide, dtype)


def equal(got: np.ndarray, want: np.ndarray) -> None:
    assert got.dtype == want.dtype
    assert got.tobytes() == want.tobytes()


def epoch(op: ReduceOp, dtype, shape, *middle, out: Buffer, init=None) -> list:
    """alloc, init, the statements given, finalize into a fragment, copy to `out`."""
    acc, res = (
        buf("acc", dtype, *shape, scope="local.reducer"),
        buf("res", dtype, *shape, scope="local.fragment"),
    )
    start = None if init is None else Const(init, DType(dtype))
    return [
        Alloc(acc),
        ReducerInit(acc, op, init=start),
        *middle,
        Alloc(res),
        ReducerFinalize(acc, reg(res), op),
        Parallel(
            tuple(var(f"o{n}") for n in range(len(shape))),
            tuple(c(n) for n in shape),
            (
                st(
                    out,
                    *(var(f"o{n}") for n in range(len(shape))),
                    ld(res, *(var(f"o{n}") for n in range(len(shape)))),
                ),
            ),
        ),
    ]


def up(op, dtype, shape, at, value) -> ReducerUpdate:
    return ReducerUpdate(buf("acc", dtype, *shape, scope="local.reducer"), at, value, op)


DTYPES = [
    (op, name)
    for op in FOLDS
    for name in (
        [
            "float32",
            "float64",
            "float16",
            "bfloat16",
            "float8_e4m3fn",
            "float8_e5m2",
            "int32",
            "int8",
            "uint8",
            "int64",
            "uint16",
        ]
        if op in PLAIN
        else ["int32", "uint8", "int64", "bool", "int4"]
    )
]


@pytest.mark.parametrize(("op", "name"), DTYPES)
def test_rows_of_a_tile(op, name):
    t, m, n = DType(name), 24, 5
    A, C = buf("A", t, m, n), buf("C", t, m)
    body = epoch(
        op, t, (m,), Parallel((i, j), (c(m), c(n)), (up(op, t, (m,), (i,), ld(A, i, j)),)), out=C
    )
    a, out = numbers(t, m, n), np.zeros(m, t.numpy)
    run(kernel([A, C], *body, threads=(128,)), A=a, C=out)
    equal(out, combined(op, a, t, 1))


@pytest.mark.parametrize("threads", [(1,), (128,), (4, 32)])
@pytest.mark.parametrize("n", [0, 1, 8, 100, 127])
@pytest.mark.parametrize("init", [None, 100.0])
def test_one_element_counts_every_iteration_once(threads, n, init):
    A, C = buf("A", F32, n), buf("C", F32, 1)
    body = epoch(
        ReduceOp.SUM,
        F32,
        (1,),
        Parallel((i,), (c(n),), (up(ReduceOp.SUM, F32, (1,), (c(0),), ld(A, i)),)),
        init=init,
        out=C,
    )
    a, out = np.arange(1, n + 1, dtype=np.float32), np.zeros(1, np.float32)
    run(kernel([A, C], *body, threads=threads), A=a, C=out)
    same(out, np.array([n * (n + 1) / 2 + (init or 0)], np.float32))


@pytest.mark.parametrize("op", list(FOLDS))
def test_the_initial_value_is_one_more_contribution(op):
    t, m, n, init = DType("int32"), 7, 40, 2
    A, C = buf("A", t, m, n), buf("C", t, m)
    body = epoch(
        op,
        t,
        (m,),
        Parallel((i, j), (c(m), c(n)), (up(op, t, (m,), (i,), ld(A, i, j)),)),
        init=init,
        out=C,
    )
    a, out = numbers(t, m, n), np.zeros(m, np.int32)
    run(kernel([A, C], *body), A=a, C=out)
    equal(out, combined(op, a, t, 1, init))


@pytest.mark.parametrize("op", PLAIN)
@pytest.mark.parametrize("name", ["float32", "int8", "float16"])
def test_an_empty_accumulation_gives_the_identity(op, name):
    t = DType(name)
    C = buf("C", t, 3)
    out = np.zeros(3, t.numpy)
    run(kernel([C], *epoch(op, t, (3,), out=C)), C=out)
    edge = {
        ReduceOp.SUM: 0,
        ReduceOp.MAX: -np.inf if t.is_float else t.min,
        ReduceOp.MIN: np.inf if t.is_float else t.max,
    }
    same(out, np.full(3, edge[op], t.numpy))


@pytest.mark.parametrize("loop", ["serial", "pipelined"])
def test_serial_loops_around_and_inside(loop):
    m, n, tiles = 5, 6, 4
    A, C = buf("A", F32, tiles, m, n), buf("C", F32, m)
    step = For if loop == "serial" else Pipelined
    inner = Parallel(
        (i,), (c(m),), (For(j, c(0), c(n), (up(ReduceOp.SUM, F32, (m,), (i,), ld(A, k, i, j)),)),)
    )
    twice = Parallel(
        (i, j), (c(m), c(n)), (up(ReduceOp.SUM, F32, (m,), (i,), mul(ld(A, k, i, j), 10.0)),)
    )
    body = epoch(ReduceOp.SUM, F32, (m,), step(k, c(0), c(tiles), (inner, twice)), out=C)
    a, out = numbers(F32, tiles, m, n), np.zeros(m, np.float32)
    run(kernel([A, C], *body), A=a, C=out)
    same(out, a.sum((0, 2)) * 11)


def test_an_epoch_in_a_loop_starts_anew_each_time():
    m, n, tiles = 5, 6, 3
    A, C = buf("A", F32, tiles, m, n), buf("C", F32, tiles, m)
    acc, res = buf("acc", F32, m, scope="local.reducer"), buf("res", F32, m, scope="local.fragment")
    inside = (
        ReducerInit(acc, ReduceOp.SUM, init=Const(1.0, F32)),
        Parallel((i, j), (c(m), c(n)), (up(ReduceOp.SUM, F32, (m,), (i,), ld(A, k, i, j)),)),
        ReducerFinalize(acc, reg(res), ReduceOp.SUM),
        Parallel((i,), (c(m),), (st(C, k, i, ld(res, i)),)),
    )
    a, out = numbers(F32, tiles, m, n), np.zeros((tiles, m), np.float32)
    run(kernel([A, C], Alloc(acc), Alloc(res), For(k, c(0), c(tiles), inside)), A=a, C=out)
    same(out, a.sum(2) + 1)


def test_masks_gathers_and_permuted_indices():
    m, n = 9, 10
    A, X, C = buf("A", I32, m, n), buf("X", I32, m), buf("C", I32, n, 4)
    v = var("v", I32)
    op = ReduceOp.SUM
    some = If(_odd(add(i, j)), (Let(v, mul(ld(A, i, j), 2)), up(op, I32, (n, 4), (j, ld(X, i)), v)))
    body = epoch(op, I32, (n, 4), Parallel((i, j), (c(m), c(n)), (some,)), out=C)
    a, x, out = (
        numbers(I32, m, n),
        RNG.integers(0, 4, m).astype(np.int32),
        np.zeros((n, 4), np.int32),
    )
    run(kernel([A, X, C], *body), A=a, X=x, C=out)
    want = np.zeros_like(out)
    for row in range(m):
        for column in range(n):
            if (row + column) % 2:
                want[column, x[row]] += 2 * a[row, column]
    same(out, want)


def _odd(x):
    return op("==", op("%", x, 2), 1)


def test_halves_are_combined_in_float32_and_rounded_once():
    n = 4096
    A, C = buf("A", F16, n), buf("C", F16, 1)
    body = epoch(
        ReduceOp.SUM,
        F16,
        (1,),
        Parallel((i,), (c(n),), (up(ReduceOp.SUM, F16, (1,), (c(0),), ld(A, i)),)),
        out=C,
    )
    out = np.zeros(1, np.float16)
    run(kernel([A, C], *body), A=np.ones(n, np.float16), C=out)
    same(out, np.array([4096], np.float16))


def test_nan_is_dropped_by_max_and_kept_by_sum():
    A, C = buf("A", F32, 4), buf("C", F32, 1)
    a = np.array([1, np.nan, 7, 3], np.float32)
    for o, want in ((ReduceOp.MAX, 7), (ReduceOp.MIN, 1), (ReduceOp.SUM, np.nan)):
        out = np.zeros(1, np.float32)
        loop = Parallel((i,), (c(4),), (up(o, F32, (1,), (c(0),), ld(A, i)),))
        run(kernel([A, C], *epoch(o, F32, (1,), loop, out=C)), A=a, C=out)
        same(out, np.array([want], np.float32))


def test_the_destination_may_have_another_dtype_and_be_a_part_of_a_buffer():
    A, C = buf("A", F32, 3, 4), buf("C", F16, 2, 5)
    acc = buf("acc", F32, 3, scope="local.reducer")
    body = (
        Alloc(acc),
        ReducerInit(acc, ReduceOp.SUM),
        Parallel((i, j), (c(3), c(4)), (up(ReduceOp.SUM, F32, (3,), (i,), ld(A, i, j)),)),
        ReducerFinalize(acc, reg(C, 1, 2, ext=(1, 3)), ReduceOp.SUM),
    )
    a, out = numbers(F32, 3, 4), np.full((2, 5), 9, np.float16)
    run(kernel([A, C], *body), A=a, C=out)
    want = np.full((2, 5), 9, np.float16)
    want[1, 2:] = a.sum(1)
    same(out, want)


# -- the older form --------------------------------------------------------------------------------


@pytest.mark.parametrize("op", PLAIN)
@pytest.mark.parametrize("name", ["float32", "float16", "int32", "uint8"])
@pytest.mark.parametrize("threads", [1, 128])
def test_a_fragment_is_accumulated_in_place(op, name, threads):
    t, m, n = DType(name), 24, 10
    A, C = buf("A", t, 2, m, n), buf("C", t, m)
    acc = buf("acc", t, m, scope="local.fragment")
    start = 1 if op is ReduceOp.SUM else 2
    body = (
        Alloc(acc),
        Fill(reg(acc), Const(start, t)),
        For(
            k,
            c(0),
            c(2),
            (Parallel((i, j), (c(m), c(n)), (ReducerUpdate(acc, (i,), ld(A, k, i, j), op),)),),
        ),
        ReducerFinalize(acc, reg(acc), op),
        Parallel((i,), (c(m),), (st(C, i, ld(acc, i)),)),
    )
    a, out = numbers(t, 2, m, n), np.zeros(m, t.numpy)
    run(kernel([A, C], *body, threads=(threads,)), A=a, C=out)
    equal(out, combined(op, a, t, (0, 2), start))


def test_a_scalar_result_of_the_older_form():
    A, C = buf("A", F32, 100), buf("C", F32, 1)
    acc = buf("acc", F32, 1, scope="local.fragment")
    inside = op("<", ld(A, i), 50.0)
    body = (
        Alloc(acc),
        Fill(reg(acc), Const(0.0, F32)),
        Parallel(
            (i,), (c(100),), (If(inside, (ReducerUpdate(acc, (c(0),), ld(A, i), ReduceOp.SUM),)),)
        ),
        ReducerFinalize(acc, reg(acc), ReduceOp.SUM),
        st(C, 0, ld(acc, 0)),
    )
    out = np.zeros(1, np.float32)
    run(kernel([A, C], *body), A=np.arange(100, dtype=np.float32), C=out)
    same(out, np.array([49 * 50 / 2], np.float32))


# -- what is refused -------------------------------------------------------------------------------


def test_misuse_is_located():
    acc = buf("acc", F32, 2, scope="local.reducer")
    C = buf("C", F32, 2)
    first, last = ReducerInit(acc, ReduceOp.SUM), ReducerFinalize(acc, reg(C), ReduceOp.SUM)
    one = Parallel((i,), (c(2),), (up(ReduceOp.SUM, F32, (2,), (i,), Const(1.0, F32)),))
    cases = [
        ((Alloc(acc), one, first, last), "not open"),
        ((Alloc(acc), first, last, one), "not open"),
        ((Alloc(acc), last), "not open"),
        (
            (Alloc(acc), first, up(ReduceOp.SUM, F32, (2,), (c(0),), Const(1.0, F32)), last),
            "outside T.Parallel",
        ),
        ((Alloc(acc), If(op("<", TX, 3), (first,))), "only some threads"),
        ((Alloc(acc), first, If(op("<", TX, 3), (last,))), "only some threads"),
        ((Alloc(acc), Parallel((i,), (c(2),), (first,))), "inside T.Parallel"),
    ]
    for body, message in cases:
        with pytest.raises(TileError, match=message):
            run(kernel([C], *body, threads=(32,)), C=np.zeros(2, np.float32))


def test_an_index_outside_is_a_fault():
    acc = buf("acc", F32, 2, scope="local.reducer")
    body = (
        Alloc(acc),
        ReducerInit(acc, ReduceOp.SUM),
        Parallel((i,), (c(3),), (up(ReduceOp.SUM, F32, (2,), (i,), Const(1.0, F32)),)),
    )
    with pytest.raises(TileIndexError, match="outside of acc"):
        run(kernel([], *body))


def test_the_text_of_a_reducer_is_readable():
    C = buf("C", F32, 1)
    source = translate(kernel([C], *epoch(ReduceOp.SUM, F32, (1,), out=C))).source
    assert "_epoch_of_acc" in source


@pytest.mark.parametrize("threads", [256, 384])
def test_a_reducer_in_a_kernel_whose_warp_groups_run_apart(threads):
    A, C, D = buf("A", F32, 100), buf("C", F32, 1), buf("D", F32, 2)
    loop = Parallel((i,), (c(100),), (up(ReduceOp.SUM, F32, (1,), (c(0),), ld(A, i)),))
    arms = (
        WarpSpecialize((0,), (If(op("==", TX, 0), (st(D, 0, 3.0),)),)),
        WarpSpecialize((1,), (If(op("==", TX, 128), (st(D, 1, 4.0),)),)),
    )
    body = epoch(ReduceOp.SUM, F32, (1,), loop, init=1.0, out=C)
    a, out, d = np.arange(100, dtype=np.float32), np.zeros(1, np.float32), np.zeros(2, np.float32)
    translate(kernel([A, C, D], *arms, *body, *arms, threads=(threads,))).run(
        {"A": a, "C": out, "D": d}
    )
    same(out, np.array([4951], np.float32))
    same(d, np.array([3, 4], np.float32))
