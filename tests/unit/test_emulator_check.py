"""The dynamic check: what it finds, where, with which example; and what it must not find."""

from __future__ import annotations

import numpy as np
import pytest

from emulator_build import BOOL, F32, TX, add, buf, e, kernel, ld, line_of, mul, op, reg, st, var
from tilelang.emulator import translate
from tilelang.errors import Diagnostic, Severity
from tilelang.ir.expr import Cast
from tilelang.ir.tile import (
    Alloc,
    Assert,
    Assume,
    Atomic,
    AtomicOp,
    Copy,
    Fill,
    For,
    Gemm,
    If,
    Let,
    Parallel,
    Reduce,
    ReduceOp,
    SyncThreads,
    View,
)

i, j, k, bx = (var(n) for n in ("i", "j", "k", "bx"))
A, C = buf("A", "float32", 64), buf("C", "float32", 64)


def shared(name, dtype, *shape):
    return buf(name, dtype, *shape, scope="shared.dyn")


def check(fn, **args) -> list[Diagnostic]:
    given = {"A": np.arange(64, dtype=np.float32), "C": np.zeros(64, np.float32), **args}
    return translate(fn, checked=True).run(given)


def one(findings: list[Diagnostic], kind: str) -> Diagnostic:
    assert [d.kind for d in findings] == [kind], "\n".join(d.render() for d in findings)
    return findings[0]


def line(stmt) -> int:
    return line_of(stmt)


def parallel(n, *body):
    return Parallel((i,), (e(n),), body)


def test_a_clean_program_has_no_findings():
    s, f, acc = (
        shared("s", "float32", 32),
        buf("f", "float32", 32, scope="local.fragment"),
        buf("acc", "float32", 1, scope="local.var"),
    )
    base = mul(bx, 32)
    fn = kernel(
        [A, C],
        Alloc(s),
        Alloc(f),
        Alloc(acc),
        Copy(reg(A, base, ext=(32,)), reg(s)),
        SyncThreads(),
        parallel(32, st(f, i, mul(ld(s, i), 2.0))),
        parallel(32, st(f, i, add(ld(f, i), ld(s, op("-", 31, i))))),
        For(k, e(0), e(32), (st(acc, 0, add(ld(acc, 0), ld(f, k))),)),
        Copy(reg(f), reg(C, base, ext=(32,))),
        grid=(2,),
        vars=(bx,),
        threads=(32,),
    )
    assert check(fn) == []


# -- uninitialised ---------------------------------------------------------------------------------


def test_reading_on_chip_memory_before_it_is_written():
    s = shared("s", "float32", 64)
    bad = st(C, i, ld(s, op("-", 63, i)))
    fn = kernel([A, C], Alloc(s), parallel(60, st(s, i, 1.0)), parallel(64, bad))
    d = one(check(fn), "uninitialised")
    assert (line_of(d), d.severity) == (line(bad), Severity.WARNING)
    assert "s is read before it is written" in d.message and "s[63]" in d.label
    assert "4 of 64" in d.got and "block (0)" in d.got and "i = 0" in d.got


def test_a_workspace_and_an_output_start_unwritten():
    W = buf("W", "float32", 4)
    fn = kernel([A, C], Alloc(W), st(C, 0, ld(W, 1)), threads=(1,))
    assert "W" in one(check(fn), "uninitialised").message
    fn = kernel([A, C], st(A, 0, ld(C, 3))).with_(outputs=(1,))
    assert "C is read" in one(check(fn), "uninitialised").message
    fn = kernel([A, C], st(C, 3, 1.0), st(A, 0, ld(C, 3))).with_(outputs=(1,))
    assert check(fn) == []


def test_tile_operations_read_and_write():
    s, t, r = shared("s", "float32", 8, 8), shared("t", "float32", 8, 8), shared("r", "float32", 8)
    zero = e(False, BOOL)
    for clear, kinds in ((e(True, BOOL), []), (zero, ["uninitialised"])):
        fn = kernel(
            [A, C],
            Alloc(s),
            Alloc(t),
            Fill(reg(s), e(1.0, F32)),
            Gemm(reg(s), reg(s), reg(t), clear),
        )
        assert [d.kind for d in check(fn)] == kinds
    for clear, kinds in ((True, []), (False, ["uninitialised"])):
        fn = kernel(
            [A, C],
            Alloc(s),
            Alloc(r),
            Fill(reg(s), e(1.0, F32)),
            Reduce(ReduceOp.SUM, reg(s), reg(r), 1, clear=clear),
        )
        assert [d.kind for d in check(fn)] == kinds
    fn = kernel(
        [A, C],
        Alloc(s),
        Alloc(r),
        Fill(reg(s, 0, 0, ext=(8, 7)), e(1.0, F32)),
        Reduce(ReduceOp.SUM, reg(s), reg(r), 1),
    )
    assert "8 of 64" in one(check(fn), "uninitialised").got


def test_a_copy_on_chip_carries_what_is_undefined_and_one_into_global_memory_tells():
    s, t = shared("s", "float32", 64), shared("t", "float16", 64)
    out = Copy(reg(t, 0, ext=(64,)), reg(C, 40, ext=(64,)))
    fn = kernel(
        [A, C],
        Alloc(s),
        Alloc(t),
        parallel(30, st(s, i, 1.0)),
        Copy(reg(s), reg(t)),
        Copy(reg(t, 0, ext=(30,)), reg(C, ext=(30,))),
    )
    assert check(fn) == []
    fn = kernel([A, C], Alloc(s), Alloc(t), parallel(20, st(s, i, 1.0)), Copy(reg(s), reg(t)), out)
    d = one(check(fn), "uninitialised")
    assert "t is read" in d.message and "C[60]" in d.label and "4 of 24" in d.got


def test_views_share_what_is_known():
    s, v = shared("s", "float32", 8), shared("v", "uint8", 32)
    fn = kernel(
        [A, C],
        Alloc(s),
        View(v, s),
        parallel(28, st(v, i, Cast(i, DType_uint8))),
        parallel(7, st(C, i, ld(s, i))),
    )
    assert check(fn) == []
    fn = kernel(
        [A, C],
        Alloc(s),
        View(v, s),
        parallel(28, st(v, i, Cast(i, DType_uint8))),
        parallel(8, st(C, i, ld(s, i))),
    )
    assert "s[7]" in one(check(fn), "uninitialised").label


def test_a_variable_after_its_parallel_loop():
    v = buf("v", "float32", 1, scope="local.var")
    bad = st(C, 0, ld(v, 0))
    fn = kernel([A, C], Alloc(v), parallel(8, st(v, 0, ld(A, i)), st(C, i, ld(v, 0))), bad)
    assert line_of(one(check(fn), "uninitialised")) == line(bad)


def test_masks_matter():
    s = shared("s", "float32", 64)
    few = op("<", i, 10)
    fn = kernel(
        [A, C],
        Alloc(s),
        parallel(64, If(few, (st(s, i, 1.0),))),
        parallel(64, If(few, (st(C, i, ld(s, i)),))),
    )
    assert check(fn) == []


# -- bounds ----------------------------------------------------------------------------------------


def test_outside_of_global_memory():
    read, write = st(C, i, ld(A, add(i, 60))), st(C, add(i, 62), 0.0)
    assert check(kernel([A, C], parallel(4, read), parallel(2, write))) == []
    found = check(kernel([A, C], parallel(6, read), parallel(4, write)))
    assert [(d.kind, line_of(d), d.severity) for d in found] == [
        ("bounds", line(n), Severity.WARNING) for n in (read, write)
    ]
    assert "index 64" in found[0].got and "i = 4" in found[0].got and "< 64" in found[0].expected
    assert "index 64" in found[1].got and "i = 2" in found[1].got


def test_a_guarded_access_and_a_ragged_copy_are_no_findings():
    s = shared("s", "float32", 64)
    at = add(i, 40)
    fn = kernel(
        [A, C],
        Alloc(s),
        Copy(reg(A, 40, ext=(64,)), reg(s)),
        Copy(reg(s), reg(C, 40, ext=(64,))),
        parallel(64, If(op("<", at, 64), (st(C, at, ld(A, at)),))),
    )
    assert check(fn) == []


def test_a_fault_on_chip_is_the_last_finding():
    s = shared("s", "float32", 8)
    bad = st(s, add(i, 1), 0.0)
    d = one(check(kernel([A, C], Alloc(s), parallel(8, bad))), "bounds")
    assert (line_of(d), d.severity) == (line(bad), Severity.ERROR) and "index 8" in d.message
    assert (
        "assertion" in one(check(kernel([A, C], Assert(op("<", ld(A, 1), 0.5)))), "value").message
    )


# -- races -----------------------------------------------------------------------------------------


def workspace(index_by_block: bool, blocks: int):
    W = buf("W", "float32", blocks if index_by_block else 1, 16)
    row = bx if index_by_block else e(0)
    at = add(mul(bx, 16), i)
    store = st(W, row, i, ld(A, at))
    return kernel(
        [A, C], Alloc(W), parallel(16, store, st(C, at, ld(W, row, i))), grid=(blocks,), vars=(bx,)
    ), store


@pytest.mark.parametrize(
    ("index_by_block", "blocks", "clean"), [(True, 4, True), (False, 1, True), (False, 4, False)]
)
def test_a_workspace_shared_by_blocks(index_by_block, blocks, clean):
    fn, store = workspace(index_by_block, blocks)
    found = check(fn)
    if clean:
        assert found == []
        return
    assert found[0].kind == "race" and line_of(found[0]) == line(store)
    assert "two blocks store one element" in found[0].message and "W[0, 0]" in found[0].got
    assert "block (0)" in found[0].got and "block (1)" in found[0].got


def test_one_block_reads_what_another_writes():
    read, write = st(C, bx, ld(A, add(bx, 1))), st(A, bx, 5.0)
    for body in ((read, write), (write, read)):
        found = check(kernel([A, C], *body, grid=(3,), vars=(bx,)))
        assert {d.kind for d in found} == {
            "race"
        } and "one block stores what another reads" in found[0].message
    assert check(kernel([A, C], st(A, bx, 5.0), st(C, bx, ld(A, bx)), grid=(3,), vars=(bx,))) == []


def test_launches_are_ordered():
    one_, two = (
        kernel([A, C], st(C, bx, 1.0), grid=(3,), vars=(bx,)),
        kernel([A, C], st(A, bx, ld(C, op("-", 2, bx))), grid=(3,), vars=(bx,)),
    )
    assert check(one_.with_(body=(*one_.body, *two.body))) == []


def test_atomics_do_not_race_with_each_other():
    update = Atomic(AtomicOp.ADD, reg(C, 0, ext=(1,)), e(1.0, F32), loc=A.loc)
    assert check(kernel([A, C], update, grid=(4,), vars=(bx,), threads=(32,))) == []
    found = check(kernel([A, C], update, st(A, bx, ld(C, 0)), grid=(4,), vars=(bx,)))
    assert (
        "updates what another reads" in found[0].message or "updates atomically" in found[0].message
    )


def test_blocks_that_store_the_same_value_are_only_noted():
    d = one(check(kernel([A, C], st(C, 0, 7.0), grid=(4,), vars=(bx,))), "race")
    assert d.severity is Severity.NOTE and "same value" in d.message


def test_iterations_that_store_one_element():
    bad = st(C, op("//", i, 2), ld(A, i))
    d = one(check(kernel([A, C], parallel(64, bad))), "race")
    assert "C[0]" in d.got and "i = 0" in d.got and "i = 1" in d.got and line_of(d) == line(bad)
    assert check(kernel([A, C], parallel(64, st(C, op("//", i, 2), 3.0)))) == []


def test_an_iteration_that_reads_what_another_stores():
    bad = st(A, i, ld(A, add(i, 1)))
    d = one(check(kernel([A, C], parallel(63, bad))), "race")
    assert (
        "iterations of T.Parallel" in d.message
        and "one iteration stores what another reads" in d.message
    )
    assert (
        check(kernel([A, C], parallel(64, st(A, i, add(ld(A, i), 1.0)), st(C, i, ld(A, i))))) == []
    )


def test_iterations_race_on_chip_too_and_loops_are_ordered():
    s = shared("s", "float32", 64)
    fill = parallel(64, st(s, i, 1.0))
    assert (
        "race"
        in one(
            check(kernel([A, C], Alloc(s), fill, parallel(64, st(s, op("-", 63, i), ld(s, i))))),
            "race",
        ).message
    )
    assert (
        check(kernel([A, C], Alloc(s), fill, parallel(64, st(C, i, ld(s, op("-", 63, i)))), fill))
        == []
    )


def test_threads():
    lane = Let(k, TX)
    same, differ = st(C, 0, 1.0), st(C, 0, Cast(k, F32))
    assert check(kernel([A, C], lane, same, threads=(32,))) == []
    d = one(check(kernel([A, C], lane, differ, threads=(32,))), "race")
    assert "several threads store different values" in d.message and "tx = 0" in d.got
    update = st(C, 0, add(ld(C, 0), 1.0))
    assert "32 threads update" in one(check(kernel([A, C], update, threads=(32,))), "race").message
    guarded = If(op("==", TX, 0), (update,))
    assert check(kernel([A, C], guarded, threads=(32,))) == []


def test_threads_and_global_memory_without_a_barrier():
    pair = st(C, TX, 1.0), st(A, TX, ld(C, op("-", 31, TX)))
    assert "threads" in one(check(kernel([A, C], *pair, threads=(32,))), "race").message
    assert check(kernel([A, C], pair[0], SyncThreads(), pair[1], threads=(32,))) == []
    s = shared("s", "float32", 32)  # on chip the compiler puts the barriers
    assert (
        check(
            kernel(
                [A, C], Alloc(s), st(s, TX, 1.0), st(A, TX, ld(s, op("-", 31, TX))), threads=(32,)
            )
        )
        == []
    )


def test_one_array_for_two_parameters():
    x = np.arange(128, dtype=np.float32)
    fn = kernel([A, C], parallel(64, st(C, i, mul(ld(A, i), 2.0))), grid=(1,))
    assert check(fn, A=x[:64], C=x[:64]) == []
    assert check(fn, A=x[:64], C=x[64:]) == []
    assert [d.kind for d in check(fn, A=x[:64], C=x[1:65])] == ["race"]


# -- values ----------------------------------------------------------------------------------------


def test_division_by_zero_and_of_the_lowest_value():
    X, Y, Z = (buf(n, "int32", 4) for n in "XYZ")
    y = np.array([1, 2, 0, 3], np.int32)
    x = np.array([1, -(2**31), 5, 6], np.int32)
    for symbol in ("//", "%", "truncdiv", "truncmod"):
        lanes = kernel([X, Y, Z], parallel(4, st(Z, i, op(symbol, ld(X, i), ld(Y, i)))))
        d = one(translate(lanes, checked=True).run({"X": x, "Y": y, "Z": x.copy()}), "value")
        assert d.message == "division by zero" and "i = 2" in d.got
        alone = kernel([X, Y, Z], st(Z, 0, op(symbol, ld(X, 1), ld(Y, 0))))
        assert translate(alone, checked=True).run({"X": x, "Y": y, "Z": x.copy()}) == []
        d = one(translate(alone, checked=True).run({"X": x, "Y": -y, "Z": x.copy()}), "value")
        assert d.message == "the lowest value divided by -1"
    fine = kernel(
        [X, Y, Z], parallel(4, If(op("!=", ld(Y, i), 0), (st(Z, i, op("//", ld(X, i), ld(Y, i))),)))
    )
    assert translate(fine, checked=True).run({"X": x, "Y": y, "Z": x.copy()}) == []


def test_assumptions():
    fn = kernel([A, C], parallel(8, Assume(op("<", ld(A, i), 5.0), loc=A.loc), st(C, i, 1.0)))
    d = one(check(fn), "value")
    assert "assumption" in d.message and "i = 5" in d.got


def test_each_finding_is_reported_once():
    s = shared("s", "float32", 4)
    fn = kernel(
        [A, C],
        Alloc(s),
        For(k, e(0), e(5), (st(C, k, ld(s, op("%", k, 4))),)),
        grid=(3,),
        vars=(bx,),
    )
    assert [d.kind for d in check(fn)].count("uninitialised") == 1


DType_uint8 = buf("q", "uint8", 1).dtype
