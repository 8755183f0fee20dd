"""Conditions, loops and exits, by lanes that agree and lanes that do not; variables of threads and
of iterations.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emulator_build import (
    F32,
    TX,
    TY,
    add,
    buf,
    e,
    kernel,
    ld,
    line_of,
    mul,
    op,
    reg,
    run,
    same,
    st,
    var,
)
from tilelang.emulator import Capture, at_line, translate
from tilelang.errors import TileError, TileIndexError, TileRuntimeError
from tilelang.ir.expr import Cast
from tilelang.ir.tile import (
    Alloc,
    Assert,
    Break,
    Continue,
    Fill,
    For,
    If,
    Let,
    LoopKind,
    Parallel,
    Print,
    SyncThreads,
    ThreadReturn,
    While,
)

i, j, k, bx = (var(n) for n in ("i", "j", "k", "bx"))


def local(name: str, dtype: str, *shape: int):
    return buf(name, dtype, *shape, scope="local")


def variable(name: str, dtype: str = "int32"):
    return buf(name, dtype, 1, scope="local.var")


def bump(v, by: Any = 1):
    return st(v, 0, add(ld(v, 0), by))


def halves(x, steps):
    """while x > 1: x //= 2; steps += 1."""
    return While(op(">", ld(x, 0), 1), (st(x, 0, op("//", ld(x, 0), 2)), bump(steps)))


def reference_halves(values):
    return np.array([int(v).bit_length() - 1 if v > 1 else 0 for v in values], np.int32)


A, C = buf("A", "int32", 24), buf("C", "int32", 24)
VALUES = np.array([0, 1, 2, 3, 5, 8, 100, 1023, -4, 7, 64, 9, *range(12)], np.int32)


def outer_loop(where: str, body):
    """The same code for each element: as threads, as iterations, or one after the other."""
    if where == "threads":
        return kernel([A, C], Let(i, TX), *body, threads=(24,))
    if where == "threads 2d":
        return kernel([A, C], Let(i, add(mul(TY, 6), TX)), *body, threads=(6, 4))
    if where == "parallel":
        return kernel([A, C], Parallel((i,), (e(24),), body))
    return kernel([A, C], For(i, e(0), e(24), body))


PLACES = ("serial", "threads", "threads 2d", "parallel")


def run_it(fn):
    c = np.full(24, -7, np.int32)
    run(fn, A=VALUES.copy(), C=c)
    return c


@pytest.mark.parametrize("where", PLACES)
def test_while_with_lane_dependent_rounds(where):
    x, steps = variable("x"), variable("steps")
    body = (Alloc(x, init=ld(A, i)), Alloc(steps), halves(x, steps), st(C, i, ld(steps, 0)))
    same(run_it(outer_loop(where, body)), reference_halves(VALUES))


@pytest.mark.parametrize("where", PLACES)
def test_break_continue_and_else(where):
    """for k in range(10): if a == k: break; if k % 2: continue; s += 100 if k == 4 else k."""
    s = variable("s")
    loop = For(
        k,
        e(0),
        e(10),
        (
            If(op("==", ld(A, i), k), (Break(),)),
            If(op("==", op("%", k, 2), 1), (Continue(),)),
            If(op("==", k, 4), (bump(s, 100),), orelse=(bump(s, k),)),
        ),
    )
    got = run_it(outer_loop(where, (Alloc(s), loop, st(C, i, ld(s, 0)))))
    want = []
    for a in VALUES:
        total = 0
        for n in range(10):
            if a == n:
                break
            if n % 2 == 1:
                continue
            total += 100 if n == 4 else n
        want.append(total)
    same(got, np.array(want, np.int32))


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("step", [1, 3, -1, -2])
def test_bounds_that_differ(where, step):
    s = variable("s")
    lo, hi = (e(0), ld(A, i)) if step > 0 else (ld(A, i), e(0))
    loop = For(k, lo, hi, (st(s, 0, add(mul(ld(s, 0), 3), k)),), step=e(step), kind=LoopKind.UNROLL)
    got = run_it(outer_loop(where, (Alloc(s, init=e(1)), loop, st(C, i, ld(s, 0)))))
    want = []
    for a in VALUES:
        total = 1
        for n in range(0, int(a), step) if step > 0 else range(int(a), 0, step):
            total = (total * 3 + n + 2**31) % 2**32 - 2**31
        want.append(total)
    same(got, np.array(want, np.int32))


@pytest.mark.parametrize("where", PLACES)
def test_nested_loops_leave_the_right_one(where):
    s = variable("s")
    inner = For(j, e(0), e(5), (If(op(">", add(j, k), ld(A, i)), (Break(),)), bump(s)))
    outer = For(
        k, e(0), e(6), (inner, If(op("==", k, op("%", ld(A, i), 7)), (Break(),)), bump(s, 10))
    )
    got = run_it(outer_loop(where, (Alloc(s), outer, st(C, i, ld(s, 0)))))
    want = []
    for a in VALUES:
        total = 0
        for kk in range(6):
            for jj in range(5):
                if jj + kk > a:
                    break
                total += 1
            if kk == a % 7:
                break
            total += 10
        want.append(total)
    same(got, np.array(want, np.int32))


def test_continue_of_the_parallel_loop_itself():
    body = (If(op(">", ld(A, i), 5), (st(C, i, 1), Continue())), st(C, i, 2))
    same(run_it(outer_loop("parallel", body)), np.where(VALUES > 5, 1, 2).astype(np.int32))


def test_break_out_of_a_parallel_loop_is_refused():
    with pytest.raises(TileError, match=r"break leaves T\.Parallel"):
        translate(outer_loop("parallel", (If(op(">", ld(A, i), 5), (Break(),)), st(C, i, 2))))


def test_thread_return():
    body = (
        If(op("<", ld(A, TX), 3), (ThreadReturn(),)),
        For(k, e(0), e(4), (st(C, TX, k), If(op("==", ld(A, TX), add(k, 5)), (ThreadReturn(),)))),
        st(C, TX, 100),
    )
    got = run_it(kernel([A, C], *body, threads=(24,)))
    want = np.where(VALUES < 3, -7, np.where((VALUES >= 5) & (VALUES < 9), VALUES - 5, 100)).astype(
        np.int32
    )
    same(got, want)


def test_return_of_a_whole_block():
    n = var("n")
    A1 = buf("A", "int32", 8)
    fn = kernel(
        [A1],
        If(op(">=", bx, 5), (ThreadReturn(),)),
        st(A1, bx, 1),
        grid=(8,),
        vars=(bx,),
        threads=(32,),
    )
    a = np.zeros(8, np.int32)
    run(fn, A=a)
    same(a, np.array([1] * 5 + [0] * 3, np.int32))
    assert n.name == "n"


def test_a_local_array_is_each_threads_own():
    t = local("t", "int32", 4)
    fill = For(k, e(0), e(4), (st(t, k, add(mul(TX, 10), k)),))
    back = For(k, e(0), e(4), (st(t, k, add(ld(t, k), ld(t, op("%", add(k, 1), 4)))),))
    fn = kernel([C], Alloc(t), fill, back, st(C, TX, ld(t, op("%", TX, 4))), threads=(24,))
    c = np.zeros(24, np.int32)
    run(fn, C=c)
    want = []
    for tx in range(24):
        a = [tx * 10 + n for n in range(4)]
        for n in range(4):
            a[n] += a[(n + 1) % 4]
        want.append(a[tx % 4])
    same(c, np.array(want, np.int32))


def test_shared_memory_in_lockstep():
    s = buf("s", "int32", 24, scope="shared.dyn")
    fn = kernel(
        [A, C],
        Alloc(s),
        st(s, TX, ld(A, TX)),
        SyncThreads(),
        st(C, TX, ld(s, op("-", 23, TX))),
        threads=(24,),
    )
    same(run_it(fn), VALUES[::-1].copy())


def test_barrier_that_some_threads_miss():
    with pytest.raises(TileError, match="only some threads"):
        run_it(kernel([A, C], If(op("<", TX, 5), (SyncThreads(),)), threads=(24,)))
    run_it(kernel([A, C], If(op("<", TX, 24), (SyncThreads(),)), threads=(24,)))


def test_whole_block_operations_under_a_thread_condition_are_refused():
    s = buf("s", "int32", 4, scope="shared.dyn")
    for stmt in (Fill(reg(s), e(0)), Parallel((i,), (e(4),), (st(s, i, 0),))):
        with pytest.raises(TileError, match="some threads") as info:
            translate(kernel([A, C], Alloc(s), If(op("<", TX, 5), (stmt,)), threads=(24,)))
        assert info.value.diagnostics[0].kind == "divergence"


def test_parallel_must_not_read_a_threads_own_value():
    t = var("t")
    fn = kernel([A, C], Let(t, mul(TX, 2)), Parallel((i,), (e(24),), (st(C, i, t),)), threads=(24,))
    with pytest.raises(TileError, match="thread") as info:
        translate(fn)
    assert info.value.diagnostics[0].kind == "divergence"


def test_a_variable_set_by_iterations_is_each_iterations_own():
    v = variable("v")
    fn = kernel(
        [A, C],
        Alloc(v, init=e(5)),
        Parallel((i,), (e(24),), (st(v, 0, mul(ld(A, i), 2)), st(C, i, add(ld(v, 0), 1)))),
    )
    same(run_it(fn), VALUES * 2 + 1)


def test_after_the_loop_such_a_variable_is_undefined():
    v, w = variable("v"), buf("w", "float32", 1, scope="local.var")
    F = buf("F", "float32", 1)
    loop = Parallel(
        (i,), (e(24),), (st(v, 0, ld(A, i)), st(w, 0, Cast(ld(A, i), F32)), st(C, i, ld(v, 0)))
    )
    fn = kernel([A, C, F], Alloc(v), Alloc(w), loop, st(C, 0, ld(v, 0)), st(F, 0, ld(w, 0)))
    c, f = np.zeros(24, np.int32), np.zeros(1, np.float32)
    run(fn, A=VALUES.copy(), C=c, F=f)
    assert c[0] == np.frombuffer(b"\xa5" * 4, np.int32)[0] and np.isnan(f[0])


@pytest.mark.parametrize("value", [ld(A, i), e(1)])
def test_a_sum_over_iterations_in_a_variable_is_refused(value):
    v = variable("v")
    fn = kernel(
        [A, C],
        Alloc(v),
        Parallel((i,), (e(24),), (st(v, 0, add(ld(v, 0), value)),)),
        st(C, 0, ld(v, 0)),
    )
    with pytest.raises(TileError, match="read v before they set it") as info:
        translate(fn)
    assert info.value.diagnostics[0].kind == "race"


def test_one_iteration_may_carry():
    v = variable("v")
    fn = kernel(
        [A, C], Alloc(v), Parallel((i,), (e(1),), (st(v, 0, add(ld(v, 0), 3)),)), st(C, 0, ld(v, 0))
    )
    assert run_it(fn)[0] == 3


def test_a_local_array_filled_by_each_iteration():
    t = local("t", "int32", 3)
    body = (
        For(k, e(0), e(3), (st(t, k, add(ld(A, i), k)),)),
        For(k, e(0), e(3), (st(t, k, mul(ld(t, k), 2)),)),
        st(C, i, add(ld(t, 0), ld(t, 2))),
    )
    same(run_it(kernel([A, C], Alloc(t), Parallel((i,), (e(24),), body))), VALUES * 4 + 4)


def test_allocations_inside_parallel_are_each_iterations_own():
    t, f = local("t", "int32", 2), buf("f", "int32", 2, scope="local.fragment")
    body = (
        Alloc(t),
        Alloc(f),
        Fill(reg(t), ld(A, i)),
        st(f, 1, add(ld(t, 1), 1)),
        st(C, i, add(ld(t, 0), ld(f, 1))),
    )
    same(run_it(kernel([A, C], Parallel((i,), (e(24),), body))), VALUES * 2 + 1)


def test_uniform_scalars_of_a_block():
    v = variable("v")
    loop = For(k, e(0), e(24), (If(op("<", ld(A, k), 0), (Break(),)), bump(v, ld(A, k))))
    got = run_it(
        kernel([A, C], Alloc(v), loop, st(C, bx, ld(v, 0)), grid=(2,), vars=(bx,), threads=(128,))
    )
    assert got[:3].tolist() == [VALUES[:8].sum()] * 2 + [-7]


def test_asserts_name_block_and_lane():
    fn = kernel(
        [A, C],
        If(op("<", TX, 12), (Assert(op("<", ld(A, TX), 100), message="too big"),)),
        threads=(24,),
    )
    with pytest.raises(TileRuntimeError, match=r"too big(.|\n)*block \(0\), tx = 6"):
        run_it(fn)
    run_it(kernel([A, C], Assert(op("<", ld(A, 0), 100))))


def test_prints(capsys):
    s = buf("s", "int32", 2, scope="shared.dyn")
    fn = kernel(
        [A, C],
        Alloc(s),
        Fill(reg(s), e(3)),
        Print(value=s, message="tile"),
        Print(message="here"),
        If(op("==", TX, 4), (Print(value=ld(A, TX), message="v"),)),
        threads=(24,),
    )
    translate(fn).run({"A": VALUES.copy(), "C": np.zeros(24, np.int32)})
    lines = capsys.readouterr().out.splitlines()
    head = "BlockIdx=(0, 0, 0), ThreadIdx=(0, 0, 0)"
    assert lines == [
        f"msg='tile' {head}: buffer=s, index=0, dtype=int32 value=3",
        f"msg='tile' {head}: buffer=s, index=1, dtype=int32 value=3",
        f"msg='here' {head}",
        "msg='v' BlockIdx=(0, 0, 0), ThreadIdx=(4, 0, 0): dtype=int32 value=5",
    ]


def test_masked_loops_end_and_masked_loads_are_safe():
    """Lanes that left a loop do not read out of bounds, and the loop ends when none is left."""
    s, x = buf("s", "int32", 24, scope="shared.dyn"), variable("x")
    walk = While(op("<", ld(x, 0), 23), (st(x, 0, ld(s, add(ld(x, 0), 1))),))
    body = (Alloc(x, init=TX), walk, st(C, TX, ld(x, 0)))
    fn = kernel([A, C], Alloc(s), st(s, TX, op("min", add(TX, 2), 23)), *body, threads=(24,))
    assert run_it(fn).tolist() == [23] * 24
    with pytest.raises(TileIndexError):
        run_it(kernel([A, C], Alloc(s), st(s, TX, 0), st(C, TX, ld(s, add(TX, 1))), threads=(24,)))


def test_observer_sees_on_chip_buffers_of_one_block():
    s, v = buf("s", "int32", 3, scope="shared.dyn"), variable("v")
    stmts = (Alloc(s), Alloc(v, init=bx), Fill(reg(s), add(bx, 4)), bump(v), Fill(reg(s), e(0)))
    fn = kernel([C], *stmts, grid=(3,), vars=(bx,))
    program = translate(fn)
    shots = Capture(lambda stmt: stmt is stmts[2] or stmt is stmts[4], block=(2,), names=("s", "v"))
    program.run({"C": np.zeros(24, np.int32)}, observer=shots)
    assert [(x["s"].tolist(), x["v"].tolist()) for x in shots.shots] == [
        ([6] * 3, [2]),
        ([0] * 3, [3]),
    ]
    marked = st(C, 2, 7)
    end = Capture(lambda stmt: stmt is fn.body[0], block=(1,))
    program.run({"C": np.zeros(24, np.int32)}, observer=end)
    assert end.shots[0]["v"].tolist() == [2] and set(end.shots[0]) == {"C", "s", "v"}
    assert "seen" not in program.source
    line = Capture(at_line(line_of(marked)), block=(0,), names=("C",))
    translate(kernel([C], Fill(reg(C), e(9)), marked)).run(
        {"C": np.zeros(24, np.int32)}, observer=line
    )
    assert [x["C"].tolist()[:3] for x in line.shots] == [[9, 9, 7]]
