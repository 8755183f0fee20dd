"""Lowering to the thread stage for a machine on which one thread runs a block."""

import numpy as np
import pytest

from emulator_build import (
    F16,
    F32,
    I32,
    TX,
    add,
    buf,
    call,
    e,
    kernel,
    ld,
    mul,
    op,
    reg,
    st,
    var,
)
from lower_build import check_lowered, check_native, lowered
from thread_interpreter import AssertionFailed, run
from tilelang.dtypes import DType
from tilelang.errors import TileError
from tilelang.ir.expr import BOOL, AtomicLoad, Bitcast, Const, LoadVector, Select
from tilelang.ir.special import ReducerFinalize, ReducerInit, ReducerUpdate
from tilelang.ir.sync import (
    AsyncCopy,
    CommitGroup,
    Fence,
    NamedArrive,
    SyncGrid,
    WaitGroup,
)
from tilelang.ir.text import print_program
from tilelang.ir.thread import Declare, Elem, Instr, Space, Write, kernels_of
from tilelang.ir.tile import (
    Alloc,
    Annotate,
    Assert,
    Assume,
    Atomic,
    AtomicOp,
    Break,
    Copy,
    Fill,
    For,
    Function,
    Gemm,
    If,
    Launch,
    LoopKind,
    Parallel,
    Param,
    Pipelined,
    Print,
    Reduce,
    ReduceOp,
    Store,
    StoreVector,
    SyncThreads,
    ThreadReturn,
    View,
    While,
)
from tilelang.isa.target import Target, parse_target
from tilelang.passes.pipeline import lower
from tilelang.targets import CHIPS

I64 = DType("int64")
RNG = np.random.default_rng(0)
i, j, k, n, bx = (var(x) for x in ("i", "j", "k", "n", "bx"))


def f32(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def zeros(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


def loops(program, kind=LoopKind.VECTORIZED):
    return [s for s in program.walk() if isinstance(s, For) and s.kind is kind]


# -- goldens ---------------------------------------------------------------------------------------


def matmul(m, n_, k_, bm, bn, bk):
    A, B, C = buf("A", F32, m, k_), buf("B", F32, k_, n_), buf("C", F32, m, n_)
    As, Bs = buf("As", F32, bm, bk, scope="shared.dyn"), buf("Bs", F32, bk, bn, scope="shared.dyn")
    acc = buf("acc", F32, bm, bn, scope="local.fragment")
    x, y, ko = var("bx"), var("by"), var("ko")
    loop = Pipelined(
        ko,
        e(0),
        e(-(-k_ // bk)),
        (
            Copy(reg(A, mul(y, bm), mul(ko, bk), ext=(bm, bk)), reg(As)),
            Copy(reg(B, mul(ko, bk), mul(x, bn), ext=(bk, bn)), reg(Bs)),
            Gemm(reg(As), reg(Bs), reg(acc), Const(False, BOOL)),
        ),
        num_stages=2,
    )
    body = (
        Alloc(As),
        Alloc(Bs),
        Alloc(acc),
        Fill(reg(acc), Const(0.0, F32)),
        loop,
        Copy(reg(acc), reg(C, mul(y, bm), mul(x, bn), ext=(bm, bn))),
    )
    return kernel([A, B, C], *body, grid=(-(-n_ // bn), -(-m // bm)), vars=(x, y))


def test_a_matmul_without_guards_where_tiles_divide_the_shape(golden):
    program = lowered(matmul(64, 64, 64, 32, 32, 16))
    golden(print_program(program), "lower/matmul_whole")
    assert not any(isinstance(s, (If, Assert)) for s in program.walk())


def test_a_matmul_of_ragged_tiles_splits_its_copies(golden):
    fn = matmul(50, 40, 24, 32, 32, 16)
    golden(print_program(lowered(fn)), "lower/matmul_ragged")
    check_lowered(fn, A=f32(50, 24), B=f32(24, 40), C=zeros(50, 40), rtol=1e-5, atol=1e-5)


def row_sums(size):
    A, S = buf("A", F16, 3, size), buf("S", F32, 3)
    row, total = (
        buf("row", F16, size, scope="local.fragment"),
        buf("t", F32, 1, scope="local.fragment"),
    )
    body = (
        Alloc(row),
        Alloc(total),
        Copy(reg(A, bx, 0, ext=(1, size)), reg(row)),
        Reduce(ReduceOp.SUM, reg(row), reg(total), dim=0),
        Copy(reg(total), reg(S, bx, ext=(1,))),
    )
    return kernel([A, S], *body, grid=(3,), vars=(bx,))


def test_a_sum_keeps_partial_results_side_by_side(golden):
    golden(print_program(lowered(row_sums(100))), "lower/row_sum")


@pytest.mark.parametrize("size", [1, 15, 16, 17, 63, 64, 65, 100, 127, 200])
def test_sums_of_any_length(size):
    a = RNG.integers(-4, 5, (3, size)).astype(np.float16)
    check_lowered(row_sums(size), A=a, S=zeros(3))


def vector_add():
    A, B, C = (buf(x, F32, n) for x in "ABC")
    at = add(mul(bx, 256), i)
    loop = Parallel((i,), (e(256),), (st(C, at, op("+", ld(A, at), ld(B, at))),))
    return kernel([A, B, C], loop, grid=(op("//", add(n, 255), 256),), vars=(bx,), dynamic=(n,))


def test_a_runtime_size_costs_one_comparison_for_each_block(golden):
    golden(print_program(lowered(vector_add())), "lower/vector_add")


@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 600])
def test_one_program_serves_all_sizes(size):
    check_lowered(vector_add(), A=f32(size), B=f32(size), C=zeros(size), n=size)


# -- bounds ----------------------------------------------------------------------------------------


def test_what_is_outside_of_global_memory_reads_as_the_safe_value():
    A, C = buf("A", F32, 5), buf("C", F32, 9)
    safe = Annotate("safe_value", buffers=(A,), values=(7.0,))
    body = (safe, Parallel((i,), (e(9),), (st(C, i, ld(A, op("-", i, 2))),)))
    program = check_lowered(kernel([A, C], *body), A=f32(5), C=zeros(9))
    assert len(loops(program)) == 3  # before, inside, behind


def test_a_guard_that_depends_on_memory_stays_at_its_access():
    A, X, C = buf("A", F32, 5), buf("X", I32, 9), buf("C", F32, 9)
    body = Parallel((i,), (e(9),), (st(C, i, ld(A, ld(X, i))),))
    args = {"A": f32(5), "X": np.arange(-2, 7, dtype=np.int32), "C": zeros(9)}
    program = check_lowered(kernel([A, X, C], body), **args)
    assert len(loops(program)) == 1


def test_an_index_outside_on_chip_is_reported():
    A, C = buf("A", I32, 4), buf("C", F32, 4)
    s = buf("s", F32, 4, scope="shared.dyn")
    body = (
        Alloc(s),
        Fill(reg(s), Const(1.0, F32)),
        Parallel((i,), (e(4),), (st(C, i, ld(s, ld(A, i))),)),
    )
    fn = kernel([A, C], *body)
    check_lowered(fn, A=np.array([0, 3, 1, 2], np.int32), C=zeros(4))
    with pytest.raises(AssertionFailed, match="an index of s is outside its extent"):
        run(lowered(fn), {"A": np.array([0, 4, 1, 2], np.int32), "C": zeros(4)})


def test_a_check_on_chip_is_made_once_before_a_loop():
    A = buf("A", F32, 64)
    s = buf("s", F32, 16, scope="shared.dyn")
    body = (Alloc(s), Parallel((i,), (n,), (st(s, i, ld(A, i)),)))
    program = lowered(kernel([A], *body, scalars=(n,)))
    (loop,) = (x for x in loops(program) if any(isinstance(y, Elem) for y in x.walk()))
    assert not any(isinstance(x, Assert) for x in loop.walk())
    run(program, {"A": f32(64), "n": 16})
    run(program, {"A": f32(64), "n": -3})
    with pytest.raises(AssertionFailed):
        run(program, {"A": f32(64), "n": 17})


def test_an_arm_that_is_not_taken_is_not_checked():
    C = buf("C", F32, 9)
    s = buf("s", F32, 4, scope="shared.dyn")
    value = Select(op("<", i, 4), ld(s, i), Const(2.0, F32), lazy=True)
    fn = kernel(
        [C], Alloc(s), Fill(reg(s), Const(1.0, F32)), Parallel((i,), (e(9),), (st(C, i, value),))
    )
    program = check_lowered(fn, C=zeros(9))
    assert not any(isinstance(x, Assert) for x in program.walk())


def test_neighbours_of_which_some_are_outside():
    A, C = buf("A", F32, 7), buf("C", F32, 7)
    wide = DType("float32x4")
    at = op("-", mul(i, 4), 2)
    body = (StoreVector(C, (at,), LoadVector(A, (at,), wide)),)
    check_lowered(kernel([A, C], Parallel((i,), (e(3),), body)), A=f32(7), C=zeros(7))


@pytest.mark.parametrize("offset", [0, 3, -1, 2**31 - 1, -(2**31)])
def test_an_index_that_overflows_is_outside(offset):
    A, C = buf("A", F32, 8), buf("C", F32, 8)
    body = Parallel((i,), (e(8),), (st(C, i, ld(A, add(n, i))),))
    fn = kernel([A, C], body, scalars=(n,))
    program = check_lowered(fn, A=f32(8), C=zeros(8), n=offset)
    assert any(not any(isinstance(x, (If, Select)) for x in loop.walk()) for loop in loops(program))


def test_a_false_assumption_does_not_lead_outside():
    A, C = buf("A", F32, 8), buf("C", F32, 8)
    body = (Assume(op("<", n, 8)), Assume(op(">=", n, 0)), st(C, 0, ld(A, n)))
    run_it = lowered(kernel([A, C], *body, scalars=(n,)))
    kept = [s for s in run_it.walk() if isinstance(s, Assume)]
    program = run_it.rewrite(lambda s: () if s in kept else None)
    out = zeros(8) + 1
    run(program, {"A": f32(8), "C": out, "n": 100})
    assert out[0] == 0


def test_indices_have_64_bits_where_32_may_not_hold_them():
    A, B = buf("A", F32, 1 << 17, 1 << 15), buf("B", F32, 1 << 10)
    body = Parallel((i,), (e(1024),), (st(A, i, i, ld(B, i)),))
    program = lowered(kernel([A, B], body))
    (write,) = (x for x in program.walk() if isinstance(x, Write))
    (read,) = (x for x in program.walk() if isinstance(x, Elem))
    assert (write.index.dtype, read.index.dtype) == (I64, I32)


def test_the_rounds_of_a_loop_are_counted_once():
    """The body changes what the end was read from, and the loop is cut where C ends."""
    C, v = buf("C", I32, 12), buf("v", I32, 1, scope="local.var")
    grow = st(v, 0, add(ld(v, 0), 1))
    loop = For(i, ld(v, 0), mul(ld(v, 0), 3), (grow, st(C, add(i, 4), ld(v, 0))))
    last = st(C, 0, ld(v, 0))
    check_lowered(kernel([C], Alloc(v, init=e(3)), loop, last), C=zeros(12, dtype=np.int32))


# -- memory ----------------------------------------------------------------------------------------


def offsets(program):
    return {
        s.array.name: s.offset
        for s in program.walk()
        if isinstance(s, Declare) and s.offset is not None
    }


def test_buffers_that_are_not_needed_together_share_a_place():
    A, C = buf("A", F32, 64), buf("C", F32, 64)
    s, t, u = (buf(x, F32, 64, scope="shared.dyn") for x in "stu")
    body = (
        *(Alloc(x) for x in (s, t, u)),
        Copy(reg(A), reg(s)),
        Copy(reg(s), reg(t)),
        Copy(reg(t), reg(u)),
        Copy(reg(u), reg(C)),
    )
    program = check_lowered(kernel([A, C], *body), A=f32(64), C=zeros(64))
    at = offsets(program)
    assert at["s"] == at["u"] != at["t"]
    assert kernels_of(program)[0].shared == 512


def test_what_a_loop_carries_keeps_its_place_all_round():
    A, C = buf("A", F32, 3, 8), buf("C", F32, 8)
    s, t = (buf(x, F32, 8, scope="shared.dyn") for x in "st")
    first = If(op("==", k, 0), (Fill(reg(s), Const(1.0, F32)),), orelse=())
    grow = Parallel((i,), (e(8),), (st(s, i, op("+", ld(s, i), ld(t, i))),))
    use = Copy(reg(t), reg(C))
    body = (
        Alloc(s),
        Alloc(t),
        For(k, e(0), e(3), (first, Copy(reg(A, k, 0, ext=(1, 8)), reg(t)), grow, use)),
        Copy(reg(s), reg(C)),
    )
    program = check_lowered(kernel([A, C], *body), A=f32(3, 8), C=zeros(8))
    assert len(set(offsets(program).values())) == 2


def test_a_buffer_of_one_round_may_share_with_the_next_ones():
    A, C = buf("A", F32, 2, 8), buf("C", F32, 2, 8)
    t, u = (buf(x, F32, 8, scope="shared.dyn") for x in "tu")
    rounds = (
        Alloc(t),
        Copy(reg(A, k, 0, ext=(1, 8)), reg(t)),
        Copy(reg(t), reg(C, k, 0, ext=(1, 8))),
        Alloc(u),
        Fill(reg(u), Const(1.0, F32)),
    )
    program = check_lowered(kernel([A, C], For(k, e(0), e(2), rounds)), A=f32(2, 8), C=zeros(2, 8))
    assert offsets(program) == {"t": 0, "u": 0}


def test_views_share_storage_across_types():
    A, C = buf("A", F32, 8), buf("C", "uint8", 32)
    s, half, raw = (
        buf("s", F32, 8, scope="shared.dyn"),
        buf("half", F32, 2, 2, scope="shared.dyn"),
        buf("raw", "uint8", 32, scope="shared.dyn"),
    )
    body = (
        Alloc(s),
        View(half, s, offset=e(4)),
        View(raw, s),
        Copy(reg(A), reg(s)),
        Parallel((i, j), (e(2), e(2)), (st(half, i, j, op("*", ld(half, i, j), 2.0)),)),
        Copy(reg(raw), reg(C)),
    )
    check_lowered(kernel([A, C], *body), A=f32(8), C=zeros(32, dtype=np.uint8))


@pytest.mark.parametrize("shift", [(1, 0), (0, 1), (1, 1), (2, 3)])
@pytest.mark.parametrize("down", [True, False])
def test_a_copy_between_overlapping_slices_reads_before_it_writes(shift, down):
    A = buf("A", F32, 8, 8)
    s = buf("s", F32, 8, 8, scope="shared.dyn")
    ext = (8 - shift[0], 8 - shift[1])
    here, there = reg(s, 0, 0, ext=ext), reg(s, *shift, ext=ext)
    move = Copy(here, there) if down else Copy(there, here)
    check_lowered(
        kernel([A], Alloc(s), Copy(reg(A), reg(s)), move, Copy(reg(s), reg(A))), A=f32(8, 8)
    )


def test_strides_are_honoured():
    step = var("step")
    A, C = buf("A", F32, 4, 5, strides=(step, e(2))), buf("C", F32, 4, 5)
    fn = kernel([A, C], Copy(reg(A), reg(C)), dynamic=(step,))
    base = f32(4, 20)
    check_lowered(fn, A=base[:, :10:2], C=zeros(4, 5), step=20)


def test_variables_are_registers_and_start_at_zero():
    C = buf("C", I32, 3)
    v, w = buf("v", I32, 1, scope="local.var"), buf("w", I32, 1, scope="local.var")
    body = (
        Alloc(v),
        Alloc(w, init=op("+", bx, 5)),
        st(v, 0, op("+", ld(v, 0), ld(w, 0))),
        st(C, bx, ld(v, 0)),
    )
    program = check_lowered(kernel([C], *body, grid=(3,), vars=(bx,)), C=zeros(3, dtype=np.int32))
    spaces = {s.array.space for s in program.walk() if isinstance(s, Declare)}
    assert spaces == {Space.REGISTER}


def test_launches_run_in_order_with_a_workspace_between():
    A, C, W = buf("A", F32, n), buf("C", F32, n), buf("W", F32, n)
    blocks, b2 = var("b1"), var("b2")
    t1, t2 = (tuple(var(f"t{x}{a}") for a in "xyz") for x in (1, 2))
    first = Launch((n,), (blocks,), t1, (st(W, blocks, op("*", ld(A, blocks), 2.0)),), threads=(1,))
    back = op("-", op("-", n, 1), b2)
    second = Launch((n,), (b2,), t2, (st(C, b2, op("+", ld(W, back), ld(A, b2))),), threads=(1,))
    params = tuple(Param(x.name, buffer=x) for x in (A, C))
    fn = Function("two", params, (n,), (Alloc(W), first, second))
    program = check_lowered(fn, A=f32(7), C=zeros(7), n=7)
    assert len(kernels_of(program)) == 2


def test_only_so_many_arrays_of_a_thread_lie_on_its_stack():
    C, body = buf("C", F32, 1000), []
    for n_th in range(80):
        own, a, b = buf(f"own_{n_th}", F32, 1000, scope="local"), var(f"a_{n_th}"), var(f"b_{n_th}")
        back = ld(own, op("-", 999, b))
        body.append(Alloc(own))
        body.append(For(a, e(0), e(1000), (st(own, a, op("+", ld(C, a), 1.0)),)))
        body.append(For(b, e(0), e(1000), (st(C, b, back),)))
    program = check_native(kernel([C], *body), C=f32(1000))
    spaces = [s.array.space for s in program.walk() if isinstance(s, Declare)]
    assert spaces.count(Space.LOCAL) == (256 << 10) // 4000
    assert spaces.count(Space.SHARED) == 80 - (256 << 10) // 4000


# -- arithmetic ------------------------------------------------------------------------------------


def test_narrow_floats_round_after_each_operation():
    A, C = buf("A", F16, 40), buf("C", F16, 40)
    x = ld(A, i)
    value = op("+", op("*", call("exp", x), x), x)
    a = f32(40).astype(np.float16)
    check_lowered(
        kernel([A, C], Parallel((i,), (e(40),), (st(C, i, value),))),
        A=a,
        C=zeros(40, dtype=np.float16),
    )


@pytest.mark.parametrize("dtype", ["int4", "uint4", "int8", "uint8", "int16"])
def test_small_integers_wrap(dtype):
    t = DType(dtype)
    A, C = buf("A", t, 24), buf("C", t, 24)
    a = RNG.integers(int(t.min), int(t.max) + 1, 24).astype(t.numpy)
    value = op("-", op("*", ld(A, i), 3), ld(A, i))
    check_lowered(
        kernel([A, C], Parallel((i,), (e(24),), (st(C, i, value),))), A=a, C=np.zeros(24, t.numpy)
    )


@pytest.mark.parametrize(
    ("source", "target"),
    [("float32", "int32"), ("int32", "float32"), ("float8_e4m3fn", "int8"), ("bfloat16", "uint16")],
)
def test_the_bits_of_a_value_as_another_type_in_every_lane(source, target):
    A, C = buf("A", source, 40), buf("C", target, 40)
    bits = Bitcast(ld(A, i), DType(target))
    fn = kernel([A, C], Parallel((i,), (e(40),), (st(C, i, bits),)))
    a = RNG.integers(-9, 9, 40).astype(DType(source).numpy)
    check_lowered(fn, A=a, C=zeros(40, dtype=DType(target).numpy))


# -- parallel loops and variables ------------------------------------------------------------------


def test_a_variable_that_iterations_set_is_one_for_each():
    A, C = buf("A", F32, 24), buf("C", F32, 24)
    v = buf("v", F32, 1, scope="local.var")
    body = (st(v, 0, op("*", ld(A, i), 2.0)), st(C, i, op("+", ld(v, 0), ld(v, 0))))
    program = check_lowered(
        kernel([A, C], Alloc(v), Parallel((i,), (e(24),), body)), A=f32(24), C=zeros(24)
    )
    (loop,) = loops(program)
    assert any(isinstance(s, Declare) for s in loop.body)


def test_a_variable_that_iterations_carry_is_refused():
    A = buf("A", F32, 24)
    v = buf("v", F32, 1, scope="local.var")
    body = (st(v, 0, op("+", ld(v, 0), ld(A, i))),)
    with pytest.raises(TileError, match="read v before they set it"):
        lowered(kernel([A], Alloc(v), Parallel((i,), (e(24),), body)))


def test_atomics_and_loops_that_leave_run_one_by_one():
    A, C = buf("A", I32, 24), buf("C", I32, 24)
    count = Atomic(AtomicOp.ADD, reg(C, op("%", ld(A, i), 5), ext=(1,)), e(1))
    a = RNG.integers(0, 50, 24).astype(np.int32)
    program = check_lowered(
        kernel([A, C], Parallel((i,), (e(24),), (count,))), A=a, C=zeros(24, dtype=np.int32)
    )
    assert not loops(program)


def test_an_atomic_gives_what_was_there_before():
    X, C, P = buf("X", I32, 9), buf("C", I32, 5), buf("P", I32, 9)
    old = var("old")
    update = Atomic(AtomicOp.MAX, reg(C, ld(X, i), ext=(1,)), mul(i, 2), previous=old)
    fn = kernel([X, C, P], Parallel((i,), (e(9),), (update, st(P, i, old))))
    args = {"X": np.array([0, 1, 2, 3, 4, 5, -1, 2, 1], np.int32), "C": np.full(5, 3, np.int32)}
    check_lowered(fn, **args, P=zeros(9, dtype=np.int32))


def test_prints_in_order():
    A = buf("A", I32, 2, 2)
    fn = kernel([A], Print(value=ld(A, 0, 1), message="one"), Print(value=A, message="all"))
    printed = run(lowered(fn), {"A": np.arange(4, dtype=np.int32).reshape(2, 2)})
    assert printed == ["one: 1", "all: A[0] = 0", "all: A[1] = 1", "all: A[2] = 2", "all: A[3] = 3"]


def test_asynchronous_copies_are_done_where_they_stand():
    A, C = buf("A", F32, 16), buf("C", F32, 16)
    s = buf("s", F32, 16, scope="shared.dyn")
    body = (
        Alloc(s),
        AsyncCopy(reg(A), reg(s), commit=False),
        CommitGroup(),
        WaitGroup(e(0)),
        Fence("proxy.async"),
        SyncThreads(),
        Copy(reg(s), reg(C)),
    )
    check_lowered(kernel([A, C], *body, threads=(128,)), A=f32(16), C=zeros(16))


# -- refusals --------------------------------------------------------------------------------------


def refused(*body, threads=(48,), **facts):
    with pytest.raises(TileError) as caught:
        lowered(kernel([buf("A", F32, 48)], *body, threads=threads, **facts))
    return caught.value.diagnostics[0]


def test_a_barrier_that_only_some_threads_reach_is_refused():
    found = refused(If(op("<", TX, 5), (SyncThreads(),), orelse=()))
    assert found.kind == "target" and "T.sync_threads or" in found.message
    assert 'target="emulate"' in found.help


def test_a_loop_that_threads_leave_one_by_one_around_a_barrier_is_refused():
    body = (If(op("==", k, TX), (Break(),), orelse=()), SyncThreads())
    assert "leave the loop" in refused(For(k, e(0), e(4), body)).message


def test_a_barrier_after_a_return_of_some_threads_is_refused():
    body = (If(op("<", TX, 5), (ThreadReturn(),), orelse=()), SyncThreads())
    assert "may have returned" in refused(*body).message


def test_a_tile_operation_with_operands_that_differ_is_refused():
    s = buf("s", F32, 48, 4, scope="shared.dyn")
    fill = Fill(reg(s, TX, 0, ext=(1, 4)), Const(0.0, F32))
    found = refused(Alloc(s), fill)
    assert found.kind == "divergence" and "T.fill" in found.message


@pytest.mark.parametrize(
    ("stmt", "name"),
    [
        (For(k, e(0), e(2), (SyncGrid(),)), "sync_grid"),
        (NamedArrive(e(1), e(32)), "named_barrier_arrive"),
    ],
)
def test_what_one_thread_cannot_do_is_refused_by_name(stmt, name):
    found = refused(stmt)
    assert found.kind == "target" and f"T.{name}" in found.message
    assert 'target="emulate"' in found.help


def test_a_buffer_on_chip_of_runtime_size_is_refused():
    s = buf("s", F32, n, scope="shared.dyn")
    assert "constant extents" in refused(Alloc(s), dynamic=(n,)).expected


def test_a_reducer_that_cannot_be_open_is_an_error():
    acc, C = buf("acc", F32, 2, scope="local.reducer"), buf("C", F32, 2)
    first, last = ReducerInit(acc, ReduceOp.SUM), ReducerFinalize(acc, reg(C), op=ReduceOp.SUM)
    update = ReducerUpdate(acc, (i,), Const(1.0, F32), op=ReduceOp.SUM)
    nest = Parallel((i,), (e(2),), (update,))
    some = For(k, e(0), e(3), (first, nest, last))
    lowered(kernel([C], Alloc(acc), first, some, threads=(32,)))  # opened again in each round
    wrong = [
        ((nest, first, last), "not open"),
        ((first, last, nest), "not open"),
        ((some, For(j, e(0), e(3), (nest, last))), "not open"),
        ((first, For(i, e(0), e(2), (update,)), last), "outside T.Parallel"),
        ((Parallel((i,), (e(2),), (first,)),), "inside T.Parallel"),
    ]
    for body, message in wrong:
        assert message in refused(Alloc(acc), *body).message


def test_a_target_without_lowering_is_named():
    ascend = parse_target("ascend", CHIPS)
    with pytest.raises(TileError, match="no lowering of the common dialect for the target ascend"):
        lower(vector_add(), ascend)
    with pytest.raises(TileError, match="no lowering for the target emulate"):
        lower(vector_add(), Target("emulate", "none"))


def test_the_passes_can_be_watched():
    seen: list[str] = []
    lower(vector_add(), parse_target("cpu", CHIPS), lambda name, _: seen.append(name))
    assert seen[:2] == ["packed_views", "canonicalize"] and seen[-1] == "plan_memory"


def test_every_statement_keeps_its_place_in_the_source():
    A, C = buf("A", F32, n), buf("C", F32, n)
    loop = Parallel((i,), (e(8),), (st(C, i, ld(A, i)),))
    program = lowered(kernel([A, C], loop, dynamic=(n,)))
    for s in program.walk():
        if isinstance(s, (Write, Instr)):
            assert s.loc is not None and s.loc.file.endswith("test_lower.py")


def test_while_loops_check_their_condition_each_round():
    C = buf("C", I32, 4)
    s, v = buf("s", I32, 4, scope="shared.dyn"), buf("v", I32, 1, scope="local.var")
    body = (
        Alloc(s),
        Parallel((i,), (e(4),), (Store(s, (i,), add(i, 1)),)),
        Alloc(v),
        While(op("<", ld(s, ld(v, 0)), 3), (st(v, 0, ld(s, ld(v, 0))),)),
        st(C, 0, ld(v, 0)),
    )
    check_lowered(kernel([C], *body), C=zeros(4, dtype=np.int32))


def test_a_loop_that_waits_for_another_block_is_refused():
    A = buf("A", I32, 4)
    found = refused(While(op("==", AtomicLoad(A, (e(0),)), 0), ()))
    assert "waits for another block" in found.message
