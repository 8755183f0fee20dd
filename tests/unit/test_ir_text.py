"""The text form: what a reader of a listing sees, and what is refused when text is read."""

import ast
import dataclasses
import enum

import pytest

from tilelang.dtypes import DType
from tilelang.errors import InternalError, TileError
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
from tilelang.ir.text import print_expr, print_function, print_stmt
from tilelang.ir.tile import (
    Alloc,
    Annotate,
    Copy,
    Function,
    Gemm,
    If,
    Launch,
    Let,
    Parallel,
    Param,
    Pipelined,
    Store,
    SyncThreads,
)

F16, F32 = DType("float16"), DType("float32")
a, b, i = (Var(name, INT32) for name in ("a", "b", "i"))
p, q = (Var(name, BOOL) for name in ("p", "q"))
x = Var("x", F32)


def op(symbol, left, right):
    return Binary(BinaryOp(symbol), left, right)


def whole(buffer):
    return Region(buffer, (const(0),) * buffer.rank, buffer.shape)


def matmul() -> Function:
    """A ragged product of (m, k) and (k, n) in tiles of 48 x 40 x 24."""
    m, n, k, bx, by, ko = (Var(name, INT32) for name in ("m", "n", "k", "bx", "by", "ko"))
    threads = tuple(Var(name, INT32) for name in ("tx", "ty", "tz"))
    A, B = Buffer("A", F16, (m, k)), Buffer("B", F16, (k, n))
    C = Buffer("C", F16, (m, n))
    A_s = Buffer("A_s", F16, (const(48), const(24)), scope="shared.dyn")
    B_s = Buffer("B_s", F16, (const(24), const(40)), scope="shared.dyn")
    C_l = Buffer("C_l", F32, (const(48), const(40)), scope="local.fragment")
    r, c = Var("r", INT32), Var("c", INT32)

    def tile(buffer, *corner, of):
        return Region(buffer, corner, of.shape)

    row, column, depth = op("*", by, const(48)), op("*", bx, const(40)), op("*", ko, const(24))
    inner = (
        Copy(tile(A, row, depth, of=A_s), whole(A_s), hints=(("coalesced_width", 8),)),
        Copy(tile(B, depth, column, of=B_s), whole(B_s)),
        Gemm(whole(A_s), whole(B_s), whole(C_l), op("==", ko, const(0))),
    )
    steps = op("//", op("+", k, const(23)), const(24))
    at = (op("+", row, r), op("+", column, c))
    value = Cast(Call("exp", (Load(C_l, (r, c)),), F32), F16)
    inside = op("and", op("<", at[0], m), op("<", at[1], n))
    body = (
        Alloc(A_s),
        Alloc(B_s),
        Alloc(C_l),
        Annotate("swizzle", buffers=(A_s,), values=(("xor", 3),)),
        Pipelined(ko, const(0), steps, inner, num_stages=3),
        Parallel((r, c), C_l.shape, (If(inside, (Store(C, at, value),)),)),
    )
    grid = (op("//", op("+", n, const(39)), const(40)), op("//", op("+", m, const(47)), const(48)))
    launch = Launch(grid, (bx, by), threads, body, threads=(128,))
    params = tuple(Param(t.name, buffer=t) for t in (A, B, C))
    return Function("matmul", params, (m, n, k), (launch,), outputs=(2,))


def test_listing_of_a_kernel(golden):
    fn = matmul()
    text = print_function(fn)
    golden(text, "ir/matmul")
    assert read_function(text) == fn


EXPRESSIONS = [
    (op("*", op("+", a, b), i), "(a + b) * i"),
    (op("+", a, op("*", b, i)), "a + b * i"),
    (op("-", a, op("-", b, i)), "a - (b - i)"),
    (op("-", op("-", a, b), i), "a - b - i"),
    (op("//", a, op("%", b, i)), "a // (b % i)"),
    (op("<", op("+", a, b), i), "a + b < i"),
    (op("==", op("<", a, b), p), "(a < b) == p"),
    (op("==", p, op("<", a, b)), "p == (a < b)"),
    (op("and", p, op("and", q, p)), "p and (q and p)"),
    (op("and", op("and", p, q), p), "p and q and p"),
    (op("or", p, op("and", q, p)), "p or q and p"),
    (op("and", op("or", p, q), p), "(p or q) and p"),
    (Unary(UnaryOp.NOT, op("==", a, b)), "not a == b"),
    (op("==", Unary(UnaryOp.NOT, p), q), "(not p) == q"),
    (op("|", op("^", a, b), op("&", a, op("<<", b, i))), "a ^ b | a & b << i"),
    (op("&", op("|", a, b), i), "(a | b) & i"),
    (op("+", op("<<", a, b), i), "(a << b) + i"),
    (op("*", Unary(UnaryOp.NEG, a), b), "-a * b"),
    (Unary(UnaryOp.NEG, op("*", a, b)), "-(a * b)"),
    (op("-", a, Unary(UnaryOp.NEG, b)), "a - -b"),
    (Unary(UnaryOp.NEG, const(1)), "neg(1)"),
    (Unary(UnaryOp.NEG, const(-1)), "neg(-1)"),
    (op("-", a, const(-1)), "a - -1"),
    (op("min", a, op("max", b, i)), "min(a, max(b, i))"),
    (op("truncdiv", a, b), "truncdiv(a, b)"),
    (const(-2147483648), "-2147483648"),
    (const(True, BOOL), "True"),
    (Const(3, DType("int64")), "int64(3)"),
    (Const(0.5, F32), "0.5"),
    (Const(-0.0, F32), "-0.0"),
    (Const(0.10000000149011612, F32), "0.1"),
    (Const(0.0999755859375, F16), "float16(0.1)"),
    (Const(0.1, DType("float64")), "float64(0.1)"),
    (Const(float("inf"), F32), 'float32("inf")'),
    (Const(float("-inf"), F16), 'float16("-inf")'),
    (Const(float("nan"), F32), 'float32("nan")'),
    (Cast(a, F16), "cast(a, float16)"),
    (
        Cast(x, F16, rounding="rz", saturate=False),
        'cast(x, float16, rounding="rz", saturate=False)',
    ),
    (Bitcast(a, F32), "bitcast(a, float32)"),
    (Select(p, a, b), "where(p, a, b)"),
    (Select(p, a, b, lazy=True), "if_then_else(p, a, b)"),
    (Call("fma", (x, x, x), F32), "fma(x, x, x)"),
    (Call("isnan", (x,), BOOL), "isnan(x)"),
    (Call("ieee_add", (x, x), F32, params=("rz",)), 'ieee_add(x, x, params=("rz",))'),
]


@pytest.mark.parametrize(("e", "text"), EXPRESSIONS, ids=[text for _, text in EXPRESSIONS])
def test_expressions_have_the_fewest_parentheses(e, text):
    assert print_expr(e) == text
    params = tuple(Param(v.name, var=v) for v in (a, b, i, p, q, x))
    fn = Function("f", params, (), (Let(Var("r", e.dtype), e),))
    assert read_function(print_function(fn)) == fn


def test_empty_blocks_and_chains_of_branches():
    inner = If(q, (), orelse=(SyncThreads(),))
    assert print_stmt(If(p, (), orelse=(inner,))) == (
        "if p:\n    pass\nelif q:\n    pass\nelse:\n    sync_threads()"
    )


def test_regions_without_axes_are_spelled_out():
    scalar = Buffer("s", F32, ())
    assert print_expr(whole(scalar)) == "region(s, (), ())"
    assert print_expr(Load(scalar, ())) == "s[()]"


def test_extents_keep_their_grouping():
    A = Buffer("A", F32, (a,))
    r = Region(A, (op("*", i, const(8)),), (op("//", a, const(2)),))
    assert print_expr(r) == "A[i * 8 : +(a // 2)]"


def read(body: str, head: str = "A: Tensor((24, 40), float32), s: int32", **facts):
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    return read_function(f"@function()\ndef f({head}):\n{lines}", **facts)


def test_reading_gives_places():
    fn = read("v: int32 = s\nA[0, 1] = 2.0")
    places = [s.loc for s in fn.body if s.loc is not None]
    assert [(at.file, at.line, at.col) for at in places] == [
        ("<ir>", 3, 5),
        ("<ir>", 4, 5),
    ]


def test_a_function_without_facts_is_of_the_common_dialect():
    assert read("pass").dialect == "common"


REFUSED = [
    ("A = 3", "not a statement"),
    ("copi(A[0 : +1, 0 : +1], A[0 : +1, 0 : +1])", "no operation 'copi'"),
    ("A[0, 0] = B", "'B' is not defined here"),
    ("copy(A, A)", "the wrong kind of 'src'"),
    ("copy(A[0 : +1, 0 : +1])", "'copy' lacks 'dst'"),
    ("fill(A[0 : +1, 0 : +1], 1.0, 2.0)", "too many"),
    ("fill(A[0 : 1, 0 : 1], value=1.0)", "not an axis of a region"),
    ("fill(A[0 : +1, 0 : +1], value=1.0, worth=2)", "'fill' has no 'worth'"),
    ("reduce('mean', A[0 : +1, 0 : +1], A[0 : +1, 0 : +1], dim=0)", "no such 'op'"),
    ("t: int32 = 3000000000", "outside the range of int32"),
    ("t: int32 = int8(1.5)", "a fraction for the integer type"),
    ("t: int32 = int8(s)", "not plain data|not a literal|not a dtype"),
    ("t: half = 1", "not a dtype"),
    ("t: int32 = A", "is a buffer, not a scalar"),
    ("t: bool = 1 < s < 3", "a chain of comparisons"),
    ("t: int32 = s if s else s", "not an expression"),
    ("t: int32 = foo(s)", "no operation 'foo'"),
    ("t: float32 = exp(s, worth=1)", "'exp' has no 'worth'"),
    ("t: int32 = s[0]", "not a buffer"),
    ("t: int32 = 'x'", "not a scalar"),
    ("for j in range(0, 3):\n    pass", "no operation 'range'"),
    ("for j, k in serial(0, 3):\n    pass", "do not fit the operation"),
    ("for j in serial(0, 3):\n    v: int32 = j\nA[0, 0] = v", "'v' is not defined here"),
    ("with open() as f:\n    pass", "not an operation with a body"),
    ("launch((1,))", "has a body"),
    ("import os", "no Import"),
    ("while s:\n    pass\nelse:\n    pass", "no While"),
    ("b = alloc((1,))", "'b' needs .*shape and a dtype"),
    ("alloc((1,), float32)", "defines a name"),
    ("annotate('x', values=(f(1),))", "not plain data"),
    ("copy(*A, **A)", "repeated keyword|not an expression"),
]


@pytest.mark.parametrize(("body", "message"), REFUSED, ids=[body for body, _ in REFUSED])
def test_wrong_text_is_refused_at_its_place(body, message):
    with pytest.raises(TileError, match=message) as caught:
        read(body)
    loc = caught.value.diagnostics[0].loc
    assert loc is not None
    assert loc.line >= 3


@pytest.mark.parametrize("text", ["", "x", "@function(", "def f(): pass", "\0", "(" * 300])
def test_text_that_is_no_function_is_refused(text):
    with pytest.raises(TileError) as caught:
        read_function(text)
    assert caught.value.diagnostics[0].loc is not None


def test_close_names_are_offered():
    with pytest.raises(TileError, match="did you mean 'copy'"):
        read("cpy(A[0 : +1, 0 : +1], A[0 : +1, 0 : +1])")


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass(frozen=True)
class Layout:
    shape: tuple[int, ...]
    colour: Colour


def test_records_are_read_back_by_the_classes_that_are_named():
    fn = Function("f", (), (), (Annotate("layout", values=(Layout((8, 3), Colour.RED),)),))
    text = print_function(fn)
    assert "Layout(shape=(8, 3), colour=Colour.RED)" in text
    assert read_function(text, records=(Layout, Colour)) == fn
    with pytest.raises(TileError, match="not plain data"):
        read_function(text)


def test_a_node_among_plain_data_is_a_fault_of_the_compiler():
    with pytest.raises(InternalError, match="holds a node"):
        print_stmt(
            Copy(whole(Buffer("A", F32, (a,))), whole(Buffer("A", F32, (a,))), hints=(("n", a),))
        )


def test_text_is_python():
    ast.parse(print_function(matmul()))
