"""The thread stage: its text form, its specification, instruction rows."""

from typing import Any

import pytest

from thread_build import (
    F16,
    F32,
    I32,
    U64,
    add,
    at,
    do,
    e,
    get,
    loop,
    mma_gemm,
    mul,
    op,
    var,
    variable,
    wgmma_gemm,
)
from tilelang.dtypes import DType
from tilelang.errors import InternalError
from tilelang.ir.expr import Buffer, Cast, Const, Load, Var
from tilelang.ir.node import Effect
from tilelang.ir.read import read_program
from tilelang.ir.text import print_program
from tilelang.ir.thread import (
    Addr,
    Argument,
    Array,
    At,
    Declare,
    Elem,
    Instr,
    Kernel,
    MakeTensorMap,
    Program,
    Slot,
    Space,
    TensorMap,
    Write,
)
from tilelang.ir.tile import Break, For, If, Let, LoopKind, SyncThreads, While
from tilelang.ir.verify_thread import verify_program, violations
from tilelang.isa.instr import Immediate, InstrRow, Is, OperandRow, checker, table
from tilelang.targets.cuda.rows import ROWS


@pytest.mark.parametrize("build", [wgmma_gemm, mma_gemm])
def test_hand_written_programs_print_read_back_and_keep_the_rules(build, golden):
    program = build()
    text = print_program(program)
    golden(text, f"thread/{build.__name__}")
    assert read_program(text) == program
    assert print_program(read_program(text)) == text
    verify_program(program, checker(ROWS), planned=True)


A = Array("A", F32, None, align=16)
n = Var("n", I32)


def program(*body, shared=0, host=(), block=(1,)) -> Program:
    bx, tx = var("bx"), var("tx")
    kernel = Kernel("main", (A, n), (n,), block, (bx,), (tx,), body, shared=shared)
    args = (Argument("A", array=A, shape=(n,)), Argument("n_", var=None))
    return Program("f", args, (n,), (*host, kernel))


def shared(name="S", size=64, dtype=F32, align=0):
    return Array(name, dtype, e(size), space=Space.SHARED, align=align)


def test_every_form_of_access_reads_back():
    S, x, y = shared(align=64), Array("x", F32, e(8), space=Space.REGISTER), var("y", F32)
    i = var("i")
    body = (
        Declare(S, offset=0),
        Declare(x),
        loop(i, 8, Write(x, i, get(A, i)), unroll=True),
        Write(S, e(0), Elem(A, mul(n, 4), DType("float32x4"), hints=(("cache", "cs"),))),
        Write(S, e(4), Elem(A, n, DType("float32x4"), align=4), align=16, hints=(("l2", 1),)),
        Instr("shuffle", (), (get(x), at(S, n, 3)), results=(y,), imm=(("lane", 3), ("all", True))),
        At(Array("V", F16, e(4), space=Space.SHARED), Addr(S, n)),
        For(var("j"), e(0), n, (), step=e(2), kind=LoopKind.VECTORIZED),
    )
    p = program(*body, shared=256)
    text = print_program(p)
    assert read_program(text) == p
    assert "S[n : +3]" in text
    assert 'elem(A, n * 4, float32x4, cache="cs")' in text
    assert violations(p) == []


def test_arguments_keep_their_shape_strides_and_names():
    m = var("m")
    a = Array("a", F16, mul(n, m), align=16)
    args = (
        Argument("X", array=a, shape=(n, m), strides=(m, e(1)), pointer=True),
        Argument("s", var=Var("scale", F32)),
        Argument("k", var=Var("k", I32), pointer=True),
        Argument("nothing"),
    )
    p = Program("f", args, (n, m), (), outputs=(0,), attrs=(("opt", 3),))
    text = print_program(p)
    assert read_program(text) == p
    head = (
        '@program(dynamic={n: int32, m: int32}, outputs=(0,), attrs={"opt": 3})\n'
        "def f(X: Global((n, m), n * m, float16, align=16, pointer=True, strides=(m, 1), "
        'name="a"), s: Scalar(float32, name="scale"), k: Scalar(int32, pointer=True), nothing):'
    )
    assert text.startswith(head)


R = Array("R", F32, e(4), space=Space.REGISTER)
T = Array("T", F32, e(4), space=Space.TENSOR)
k = var("k")
BROKEN = [
    ((Write(A, e(0), Const(1.0, F16)),), "the access is of float16"),
    ((Write(A, Const(1.0, F32), Const(1.0, F32)),), "an index of A is float32"),
    ((Write(A, n, get(shared())),), "S is used before it is defined"),
    ((Declare(shared("A")),), "A is defined twice"),
    ((Declare(shared(), offset=8),), "bytes 8 to 264 of a shared pool of 256"),
    ((Declare(shared(align=16), offset=-8),), "not aligned"),
    ((Declare(Array("S", F32, n, space=Space.SHARED)),), "the size is not a constant"),
    ((Declare(Array("S", F32, e(3))),), "global memory declared in a kernel"),
    ((Declare(R, offset=0),), "no pool"),
    ((Declare(R, init=Const(0.0, F32)),), "a first value"),
    ((Declare(R), loop(k, 4, Write(R, k, get(A)))), "R is indexed by"),
    ((Declare(R), Let(var("p", DType("handle")), Addr(R, e(0)))), "the address of the register"),
    ((At(R, Addr(A, n)),), "registers have no address"),
    ((Break(),), "Break outside a loop"),
    ((SyncThreads(),), "SyncThreads inside a kernel"),
    ((For(k, e(0), n, (While(op(">", n, 0), ()),), kind=LoopKind.VECTORIZED),), "vectorized loop"),
    ((Let(k, Load(Buffer("B", I32, (n,)), (n,))),), "Load belongs to the tile stage"),
    ((If(n, ()),), "a condition is int32"),
    ((Write(A, e(1), Elem(A, e(0), DType("float32x4"))),), "A is not aligned to 16 bytes"),
    (
        (For(k, e(2), n, (Write(A, k, Elem(A, e(0), DType("float32x4"))),), step=e(4)),),
        "A is not aligned to 16 bytes",
    ),
    ((Instr("nop", (), (at(A, 0, -1),)),), "-1 elements of A"),
]


@pytest.mark.parametrize(("body", "message"), BROKEN, ids=[m for _, m in BROKEN])
def test_a_broken_program_is_named(body, message):
    found = violations(program(*body, shared=256))
    assert any(message in text for text in found), found
    with pytest.raises(InternalError, match="rule"):
        verify_program(program(*body, shared=256))


def test_a_kernel_sees_its_parameters_only():
    m = var("m")
    p = program(Write(A, m, get(A, m)), host=(Let(m, add(n, 1)),))
    assert any("m is used outside its block" in text for text in violations(p))
    assert violations(program(host=(Write(A, e(0), get(A)),)))


def test_aligned_accesses_are_not_refused():
    S = shared(align=16)
    wide = DType("float32x4")
    body = (
        Declare(S, offset=0),
        For(k, e(0), n, (Write(S, mul(k, 4), Elem(A, k, wide)),)),
        For(var("j"), e(4), n, (Write(S, var("j"), Elem(A, var("j"), wide)),), step=e(4)),
    )
    assert violations(program(*body, shared=256)) == []


def test_planned_memory_has_places():
    p = program(Declare(shared()), shared=256)
    assert violations(p) == []
    assert any("without a place" in text for text in violations(p, planned=True))


WIDE = (e(128),)


def test_tensor_maps_keep_the_limits_of_the_hardware():
    def check(box, strides=WIDE, **facts):
        m = TensorMap("map", A, (n, n), strides, box, **facts)
        return violations(
            Program("f", (Argument("A", array=A, shape=(n,)),), (n,), (MakeTensorMap(m),))
        )

    assert check((32, 64), swizzle=128) == []
    assert any("wider than the swizzle" in text for text in check((64, 64), swizzle=128))
    assert any("1 to 256" in text for text in check((32, 300)))
    assert any("not a multiple of 16" in text for text in check((3, 8)))
    assert any("a stride of 100" in text for text in check((32, 8), (e(100),)))
    assert any("strides" in text for text in check((32, 8), ()))


# -- rows ------------------------------------------------------------------------------------------

ADD = InstrRow(
    "add",
    "here",
    outs=(OperandRow("dst", Effect.UPDATE, spaces=(Space.SHARED,), count=2, align=8),),
    ins=(
        OperandRow("value", kind=Is.VALUE, like="dst"),
        OperandRow("width", kind=Is.VALUE, dtypes=("int32",)),
    ),
    results=(OperandRow("old", Effect.WRITE, kind=Is.VALUE, like="dst"),),
    imm=(Immediate("order", str, ("relaxed", "acquire")), Immediate("scope", optional=True)),
)


ONE, THREE = Const(1.0, F32), e(3)


def use(dst=None, value=ONE, width: Any = THREE, old="float32", row="add", **imm):
    dst = Slot(shared(align=8), e(4), 2) if dst is None else dst
    return Instr(
        row, (dst,), (value, width), results=(Var("old", DType(old)),), imm=tuple(imm.items())
    )


def faults(stmt):
    return list(checker(table([ADD]))(stmt))


def test_a_statement_that_fits_its_row_is_accepted():
    assert faults(use(order="relaxed")) == []
    assert faults(use(order="acquire", scope=3)) == []


@pytest.mark.parametrize(
    ("stmt", "message"),
    [
        (use(row="sub", order="relaxed"), "no instruction is called 'sub'"),
        (use(), "lacks the immediate 'order'"),
        (use(order="seq"), "order of add is 'seq', expected 'relaxed', 'acquire'"),
        (use(order="relaxed", scope=True), "scope of add is True, expected int"),
        (use(order="relaxed", size=3), "no immediate 'size'"),
        (use(at(A, 0, 2), order="relaxed"), "in global memory, expected shared"),
        (use(Slot(shared(align=8), e(0), 1), order="relaxed"), "1 elements, expected 2"),
        (use(Slot(shared(), e(0), 2), order="relaxed"), "not aligned to 8 bytes"),
        (use(Slot(shared(align=8), e(3), 2), order="relaxed"), "not aligned to 8 bytes"),
        (use(value=Const(1, U64), order="relaxed"), "value of add is uint64, dst is float32"),
        (use(width=Cast(n, U64), order="relaxed"), "width of add is uint64, expected int32"),
        (use(width=at(A, 0), order="relaxed"), "is elements of an array, expected a scalar"),
        (use(old="float16", order="relaxed"), "old of add is float16"),
        (do("add"), "add has 1 results, got 0"),
    ],
)
def test_a_statement_that_breaks_its_row_is_named(stmt, message):
    assert any(message in text for text in faults(stmt)), faults(stmt)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"source": ""}, "no source"),
        ({"threads": 7}, "7 threads"),
        ({"ins": (OperandRow("a"), OperandRow("a"))}, "one name"),
        ({"ins": (OperandRow("a", Effect.WRITE),)}, "must be an out"),
        ({"outs": (OperandRow("a"),)}, "must be elements that are written"),
        ({"ins": (OperandRow("a", kind=Is.VALUE, count=2),)}, "no slot"),
        ({"ins": (OperandRow("a", like="b"),)}, "like 'b'"),
        ({"ins": (OperandRow("a", dtypes=("float17",)),)}, "float17"),
        ({"ins": (OperandRow("a", Effect.READ | Effect.ASYNC),)}, "until"),
        ({"template": "add {x};"}, "names 'x'"),
    ],
)
def test_a_row_that_contradicts_itself_is_refused(facts, message):
    with pytest.raises(InternalError, match=message):
        InstrRow("row", **{"source": "here", **facts})


def test_two_rows_of_one_name_are_refused():
    with pytest.raises(InternalError, match="two rows"):
        table([ADD, ADD])
    assert variable("v", 1)[1].init == e(1)
