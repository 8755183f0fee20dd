"""Statements of Ascend cores: their text reads back to equal ones, and what they must keep."""

import pytest

from tilelang.dtypes import DType
from tilelang.ir.ascend import (
    VECTOR_OPS,
    AtomicMode,
    Core,
    CoreRegion,
    CrossSet,
    CrossWait,
    Lock,
    Pipe,
    PipeBarrier,
    SetFlag,
    SetMode,
    SyncAll,
    Transfer,
    Unlock,
    VectorFunction,
    VectorKind,
    VectorOp,
    WaitFlag,
)
from tilelang.ir.expr import INT32, Buffer, Region, Var, const
from tilelang.ir.node import Effect
from tilelang.ir.read import read_function
from tilelang.ir.text import print_function
from tilelang.ir.tile import Alloc, Annotate, Function, Launch, Param, Store
from tilelang.ir.verify import violations

F16, U8 = DType("float16"), DType("uint8")
CID, VID, Y, Z, SID = (Var(n, INT32) for n in ("cid", "vid", "ty", "tz", "sid"))
A = Buffer("A", F16, (const(64),))
UB = Buffer("u", F16, (const(64),), scope="shared.ub")
MASK = Buffer("m", U8, (const(8),), scope="shared.ub")
ZERO, ONE = const(0), const(1.0, F16)


def region(b, n=64):
    return Region(b, (ZERO,), (const(n),))


def function(*body, core=Core.VECTOR, sub=SID):
    inside = CoreRegion(core, body, sub=sub if core is Core.VECTOR else None)
    launch = Launch(
        (const(4),),
        (CID,),
        (VID, Y, Z),
        (Alloc(UB), Alloc(MASK), Annotate("address", buffers=(UB, MASK), values=(0, 128)), inside),
        threads=(2,),
    )
    return Function("f", (Param("A", buffer=A),), (), (launch,), dialect="adapter")


EVERY = (
    Transfer(region(A), region(UB), pad=ONE, hints=(("l2", 1),)),
    Transfer(region(UB), region(UB), rounding="CAST_RINT"),
    SetFlag(Pipe.MTE2, Pipe.V, ZERO),
    WaitFlag(Pipe.MTE2, Pipe.V, VID),
    VectorOp("add", region(UB), (region(UB), ONE)),
    VectorOp("compare", region(MASK, 8), (region(UB), ONE), imm=(("mode", "EQ"),)),
    PipeBarrier(Pipe.V),
    PipeBarrier(Pipe.ALL),
    CrossSet(2, Pipe.MTE3, const(3)),
    CrossWait(const(1)),
    CrossWait(const(1), mode=4, pipe=Pipe.MTE2),
    SyncAll(),
    Lock(Pipe.V, ZERO),
    Unlock(Pipe.V, ZERO, mode=1),
    AtomicMode("add", dtype=F16),
    AtomicMode(""),
    SetMode("hf32", const(1)),
    VectorFunction(VectorKind.SIMT, (Store(UB, (ZERO,), ONE),), threads=(128,), thread_vars=(Y,)),
)


@pytest.mark.parametrize("stmt", EVERY[:-1], ids=lambda s: type(s).__name__)
def test_text_reads_back(stmt):
    fn = function(stmt)
    assert read_function(print_function(fn)) == fn
    assert violations(fn) == []


def test_functions_of_vector_cores_read_back():
    made = EVERY[-1].with_(thread_vars=(Var("tx", INT32),))
    fn = function(made)
    assert read_function(print_function(fn)) == fn
    assert violations(fn) == []


@pytest.mark.parametrize(
    ("stmt", "words"),
    [
        (VectorOp("plus", region(UB), (region(UB),)), "no vector operation is called 'plus'"),
        (VectorOp("add", region(UB), (region(UB),)), "add of 1 sources, expected 2 to 2"),
        (VectorOp("compare", region(MASK, 8), (region(UB), ONE)), "lacks the immediate 'mode'"),
        (
            VectorOp("exp", region(UB), (region(UB),), imm=(("mode", 1),)),
            "has no immediate 'mode'",
        ),
        (SetFlag(Pipe.V, Pipe.V, ZERO), "a flag from pipe V to itself"),
        (SetFlag(Pipe.ALL, Pipe.V, ZERO), "a flag of all pipes"),
        (SetFlag(Pipe.MTE1, Pipe.V, ZERO), "pipe MTE1 on a vector core"),
        (SetFlag(Pipe.MTE2, Pipe.V, const(1.0, F16)), "an id is float16"),
        (PipeBarrier(Pipe.FIX), "pipe FIX on a vector core"),
        (CrossSet(3, Pipe.V, ZERO), "cross-core mode 3"),
        (AtomicMode("xor", dtype=F16), "no atomic operation is called 'xor'"),
        (AtomicMode("add"), "an atomic mode has an element type"),
        (SetMode("speed", ZERO), "no mode is called 'speed'"),
        (Transfer(region(A), region(UB), rounding="CAST_UP"), "no rounding is called 'CAST_UP'"),
        (Transfer(region(A), region(UB), pad=const(1)), "a pad value is int32"),
        (Transfer(region(A), region(UB), split="k"), "a split by 'k'"),
        (CoreRegion(Core.CUBE, ()), "a core region inside a core region"),
    ],
    ids=lambda x: type(x).__name__ if not isinstance(x, str) else None,
)
def test_what_is_wrong_is_said(stmt, words):
    assert any(words in v for v in violations(function(stmt)))


def test_cube_regions_number_no_vector_core():
    fn = function()
    launch = fn.body[0]
    bad = launch.with_(body=(CoreRegion(Core.CUBE, (), sub=SID),))
    assert any("number of the vector core" in v for v in violations(fn.with_(body=(bad,))))


@pytest.mark.parametrize("op", sorted(VECTOR_OPS))
def test_effects_are_those_of_the_row(op):
    row = VECTOR_OPS[op]
    stmt = VectorOp(op, region(UB), tuple(region(UB) for _ in range(row.srcs[0])))
    effects = [e for e, _ in stmt.effects()]
    assert effects[0] is (Effect.UPDATE if row.updates else Effect.WRITE)
    assert effects[1:] == [Effect.READ] * row.srcs[0]
