"""The specification of the tile stage: a good function passes, each way to break it is named."""

import pytest

from tilelang.dtypes import DType
from tilelang.errors import InternalError
from tilelang.ir.expr import (
    BOOL,
    INT32,
    Binary,
    BinaryOp,
    Bitcast,
    Buffer,
    Call,
    Cast,
    Const,
    Load,
    Region,
    Select,
    Unary,
    UnaryOp,
    Var,
    const,
)
from tilelang.ir.read import read_function
from tilelang.ir.tile import Copy, Fill, Function, Launch, Let, Param, Store
from tilelang.ir.verify import RULES, verify, violations

HEAD = "A: Tensor((24, 40), float32), H: Tensor((24, 40), float16), s: int32, x: float32"
GOOD = """
@function(dialect="common", outputs=(1,))
def good(A: Tensor((24, 40), float32), H: Tensor((24, 40), float16), s: int32):
    with launch((s,), threads=(128,)) as ((bx,), (tx, ty, tz)):
        T = alloc((24, 40), float32, scope="shared.dyn")
        R = alloc((24,), float32, scope="local.fragment")
        V = view((960,), float32, T, scope="shared.dyn")
        for k in pipelined(0, s, num_stages=3, order=(0, 1)):
            copy(A[0 : +24, 0 : +40], T[0 : +24, 0 : +40])
            reduce("sum", T[0 : +24, 0 : +40], R[0 : +24], dim=1)
        for i in parallel(24):
            for j in parallel(40):
                for d in serial(0, 3):
                    if d == 2:
                        break
                atomic("add", A[i, j], value=R[i])
                H[i, j] = cast(T[i, j], float16)
        while A[0, 0] > 0.0:
            V[bx] = 0.0
            continue
""".replace("A[i, j], value", "A[i : +1, j : +1], value")


def block(body: str, head: str = HEAD) -> Function:
    lines = "".join(f"        {line}\n" for line in body.split("\n"))
    launch = "    with launch((1,), threads=(128,)) as ((bx,), (tx, ty, tz)):\n"
    return read_function(f"@function()\ndef f({head}):\n{launch}{lines}")


def test_a_good_function_passes():
    assert violations(read_function(GOOD)) == []
    verify(read_function(GOOD))


BROKEN = [
    # names
    ("v: int32 = 1\nv: int32 = 2", "names: v is defined twice"),
    ("for i in serial(0, 3):\n    pass\nfor i in serial(0, 3):\n    pass", "i is defined twice"),
    ("s: int32 = 1", "s is defined twice"),
    # structure
    ("with launch((1,)) as ((b2,), (x2, y2, z2)):\n    pass", "a launch inside a launch"),
    ("break", "Break directly inside Launch"),
    ("for i in parallel(8):\n    break", "Break directly inside Parallel"),
    ("for k in serial(0, 2):\n    for i in parallel(8):\n        break", "inside Parallel"),
    ("continue", "Continue directly inside Launch"),
    ("for i in parallel(8):\n    sync_threads()", "SyncThreads inside a parallel loop"),
    (
        "for i in parallel(8):\n    for k in pipelined(0, 2):\n        pass",
        "Pipelined inside a parallel loop",
    ),
    (
        "for i in parallel(8):\n    fill(A[i : +1, 0 : +40], value=0.0)",
        "Fill inside a parallel loop",
    ),
    (
        "for i in parallel(8):\n    if s > 0:\n        copy(A[i : +1, 0 : +1], A[i : +1, 0 : +1])",
        "Copy inside a parallel loop",
    ),
    (
        "for i in parallel(8):\n    atomic('add', A[i : +1, 0 : +40], value=1.0)",
        "Atomic inside a parallel loop",
    ),
    (
        "for i in parallel(8):\n    v: int32 = i\n    for j in parallel(8):\n        pass",
        "beside other statements",
    ),
    (
        "for i in parallel(8):\n    if s > 0:\n        for j in parallel(8):\n            pass",
        "inside a statement of a parallel loop",
    ),
    ("for k in pipelined(0, 2, order=(0, 1)):\n    sync_threads()", "2 entries of order for 1"),
    ("annotate('colour')", "no annotation is called 'colour'"),
    # dtypes
    ("v: float32 = s", "the value of v is int32, expected float32"),
    ("A[0, 0] = 1", "what is stored to A is int32, expected float32"),
    ("H[0, 0] = x", "what is stored to H is float32, expected float16"),
    ("if s:\n    pass", "a condition is int32, expected bool"),
    ("for i in serial(0, int64(3)):\n    pass", "the stop of a loop is int64"),
    ("for i in serial(0, 3, step=0):\n    pass", "the step of a loop is 0"),
    ("for i in parallel(int64(3)):\n    pass", "the extent of i is int64"),
    ("T = alloc((8,), float16, init=1.0)", "the first value of T is float32"),
    ("T = alloc((2,), uint64, scope='shared.barrier', arrive_counts=(1,))", "1 arrival counts"),
    ("T = alloc((8,), float16)\nU = view((5,), float32, T)", "U reaches beyond T"),
    ("fill(A[0 : +1, 0 : +1], value=1)", "the value of A is int32"),
    ("old: int32 = atomic('add', A[0 : +1, 0 : +1], value=1.0)", "the previous value is int32"),
    ("old: float32 = atomic('add', A[0 : +2, 0 : +1], value=1.0)", "of more than one element"),
    ("v: int32 = collective('shfl_xor', (s,))", "shfl_xor of 1 operands, expected 2"),
    ("v: float32 = collective('any_sync', (True,))", "the result of any_sync is float32"),
    # expressions inside statements
    ("v: int32 = s + int64(1)", "operands of `+` are int32 and int64"),
    ("v: float32 = A[0]", "1 of index for the 2 axes of A"),
    ("v: float32 = A[0, x]", "an index of A is float32"),
    ("v: float32 = exp(s, type=float32)", "exp of int32, expected float"),
    ("v: int32 = popcount(s, type=int32) / 2", "`/` of int32, expected a float"),
    ("fill(A[0 : +-1, 0 : +1], value=1.0)", "a negative extent of A"),
    # shapes
    ("copy(A[0 : +24, 0 : +40], H[0 : +24, 0 : +39])", "A (24, 40) does not match H (24, 39)"),
    ("copy(A[0 : +24, 0 : +40], H[0 : +1, 0 : +40])", "does not match"),
    ("transpose(A[0 : +24, 0 : +40], H[0 : +24, 0 : +40])", "is not (24, 40) transposed"),
    (
        "gemm(A[0 : +24, 0 : +40], A[0 : +24, 0 : +40], A[0 : +24, 0 : +40], clear_accum=True)",
        "K is 40 and 24",
    ),
    (
        "gemm(A[0 : +24, 0 : +24], A[0 : +24, 0 : +40], A[0 : +24, 0 : +40], clear_accum=1)",
        "clear_accum is int32",
    ),
    (
        "gemm(A[0 : +24, 0 : +24], A[0 : +8, 0 : +24], A[0 : +24, 0 : +4], clear_accum=True,"
        " transpose_b=True)",
        "N is 8 and 4",
    ),
    ("reduce('sum', A[0 : +24, 0 : +40], H[0 : +24, 0 : +1], dim=2)", "axis 2 of 2"),
    ("reduce('sum', A[0 : +24, 0 : +40], H[0 : +24, 0 : +1], dim=0)", "without axis 0 is not"),
    ("scan('cumsum', A[0 : +24, 0 : +40], H[0 : +24, 0 : +39], dim=0)", "differ"),
]


@pytest.mark.parametrize(("body", "message"), BROKEN, ids=[body for body, _ in BROKEN])
def test_each_fault_is_named(body, message):
    found = violations(block(body))
    assert any(message in text for text in found), found
    assert len(found) == 1


ALLOWED = [
    "copy(A[0 : +1, 0 : +40], H[0 : +24, 0 : +40])",
    "copy(A[0 : +24, 0 : +1], H[0 : +1, 0 : +24])",
    "copy(A[0 : +s, 0 : +40], H[0 : +24, 0 : +40])",
    "reduce('max', A[0 : +24, 0 : +40], H[0 : +24, 0 : +1], dim=-1)",
    "for i in parallel(8):\n    v: float32 = exp(x)\n    A[i, 0] = v",
    "for i in parallel(8):\n    if i > s:\n        continue\n    A[i, 0] = x",
    "for k in pipelined(0, 2, order=(1, 0), stage=(0, 1)):\n    sync_threads()\n    sync_threads()",
    "gemm(A[0 : +24, 0 : +24], A[0 : +24, 0 : +40], A[0 : +24, 0 : +40], clear_accum=s == 0)",
]


@pytest.mark.parametrize("body", ALLOWED)
def test_what_is_allowed_passes(body):
    assert violations(block(body)) == []


def one(stmt, *params) -> list[str]:
    return violations(Function("f", params, (), (stmt,)))


n, m = Var("n", INT32), Var("m", INT32)
A = Buffer("A", DType("float32"), (n,))
WITH_A = (Param("n", var=n), Param("A", buffer=A))


def test_names_are_known_where_they_are_used():
    assert "n is used before it is defined" in one(Let(m, n))[0]
    assert "A is used before it is defined" in one(Let(Var("v", A.type), Load(A, (const(0),))))[0]
    loop = block("for i in serial(0, 3):\n    v: int32 = i")
    use = Let(Var("w", INT32), Var("v", INT32))
    outer = loop.body[0]
    assert isinstance(outer, Launch)
    launch = outer.with_(body=(*outer.body, use))
    found = violations(loop.with_(body=(launch,)))
    assert len(found) == 1
    assert "v is used outside its block" in found[0]


def test_a_use_is_of_the_thing_that_was_defined():
    other = Buffer("A", DType("float32"), (const(8),))
    found = one(Let(Var("v", A.type), Load(other, (n,))), *WITH_A)
    assert "A is used as" in found[0]
    assert "n is used as" in one(Let(Var("v", BOOL), Var("n", BOOL)), *WITH_A)[0]


def test_shapes_may_name_scalar_parameters_of_any_position():
    assert one(Let(m, n), Param("A", buffer=A), Param("n", var=n)) == []
    found = one(Let(m, const(1)), Param("A", buffer=A))
    assert "n is used before it is defined" in found[0]


def test_blocks_stay_inside_launches():
    assert "Store outside a launch" in one(Store(A, (n,), Const(0.0, A.type)), *WITH_A)[0]
    r = Region(A, (const(0),), (n,))
    assert "Fill outside a launch" in one(Fill(r, Const(0.0, A.type)), *WITH_A)[0]


def test_parameters_are_one_of_two_kinds_and_outputs_are_tensors():
    assert "not exactly one of" in violations(Function("f", (Param("p"),), (), ()))[0]
    fn = Function("f", WITH_A, (), (), outputs=(0, 2, 1, 1))
    found = "\n".join(violations(fn))
    assert "output 0 is not" in found
    assert "output 2 is not" in found
    assert "output 1 is not" not in found
    assert "named twice" in found


def test_buffers_have_an_element_type():
    fn = block('t = alloc((128, 64), float32, scope="shared.tmem")')
    (launch,) = fn.body
    (alloc,) = launch.body
    bare = alloc.with_(buffer=alloc.buffer.with_(type=None))
    (found,) = violations(fn.with_(body=(launch.with_(body=(bare,)),)))
    assert "t has no element type" in found
    assert "at <ir>:4:9" in found


def test_names_can_be_printed():
    assert "'a b' is not a name" in one(Let(Var("a b", INT32), const(1)))[0]
    assert "'if' is not a name" in one(Let(Var("if", INT32), const(1)))[0]


def test_attributes_hold_no_nodes():
    r = Region(A, (const(0),), (n,))
    found = one(Copy(r, r, hints=(("barrier", n),)), *WITH_A)
    assert any("Copy.hints holds a node" in text for text in found)


F16, F32, U32 = DType("float16"), DType("float32"), DType("uint32")
x = Var("n", F32)
EXPRESSIONS = [
    (Const(1, F32), "1 as a literal of float32"),
    (Const(True, INT32), "True as a literal of int32"),
    (Const(0.1, F16), "0.1 is not a value of float16"),
    (Const(300, DType("int8")), "300 is not a value of int8"),
    (Binary(BinaryOp.AND, n, n), "`and` of int32, expected bool"),
    (Binary(BinaryOp.SHL, x, x), "`<<` of float32, expected an integer"),
    (Unary(UnaryOp.NOT, n), "`not` of int32"),
    (Unary(UnaryOp.BITNOT, x), "`~` of float32"),
    (Cast(n, F16, rounding="up"), "no rounding is called 'up'"),
    (Cast(n, F16, rounding="rs"), "rs needs them"),
    (Cast(n, DType("float16x2")), "numbers of lanes differ"),
    (Bitcast(n, F16), "the sizes differ"),
    (Select(n, n, n), "the condition of a choice is int32"),
    (Select(Const(True, BOOL), n, Const(0, U32)), "the arms of a choice are int32 and uint32"),
    (Call("sine", (x,), F32), "no function is called 'sine'"),
    (Call("exp", (x, x), F32), "exp of 2 operands, expected 1"),
    (Call("exp", (x,), F16), "exp of float32 gives float32, not float16"),
    (Call("fma", (x, x, Cast(x, F16)), F32), "operands of fma are"),
]


@pytest.mark.parametrize(("e", "message"), EXPRESSIONS, ids=[m for _, m in EXPRESSIONS])
def test_each_fault_of_an_expression_is_named(e, message):
    name = Var("n", F32 if any(v == x for v in e.walk()) else INT32)
    found = one(Let(Var("v", e.dtype), e), Param("n", var=name))
    assert len(found) == 1
    assert message in found[0]


def test_the_statement_is_shown_with_its_place():
    with pytest.raises(InternalError) as caught:
        verify(block("v: float32 = s"))
    text = str(caught.value)
    assert "f breaks 1 rule(s)" in text
    assert "    v: float32 = s" in text
    assert "at <ir>:4:9" in text


def test_every_rule_says_what_it_wants():
    assert all(rule.__doc__ for rule in RULES)
