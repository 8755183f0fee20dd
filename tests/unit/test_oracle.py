"""The comparison with upstream's IR sees every planted difference, and only differences."""

import copy
import json
import sys
from pathlib import Path

import pytest

import tilelang.language as T

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import oracle_form
import oracle_own
import sizes
from conformance import Row, read_output
from oracle_from_own import own as from_own
from oracle_from_upstream import upstream as from_upstream


@T.prim_func
def kernel(A: T.Tensor((64, 96), "float16"), B: T.Tensor((64,), "float32"), n: T.int32):
    with T.Kernel(4, threads=128) as bx:
        a = T.alloc_shared((16, 96), "float16")
        f = T.alloc_fragment((16, 96), "float32")
        s = T.alloc_fragment((16,), "float32")
        T.fill(s, 0)
        for k in T.Pipelined(3, num_stages=2):
            T.copy(A[bx * 16, k * 32], a)
        for i, j in T.Parallel(16, 96):
            f[i, j] = T.cast(a[i, j], "float32") * 2.0
        T.reduce_sum(f, s, dim=1)
        m = n * 2 + 1
        if m > 3:
            T.copy(s, B[bx * 16])


FORM = oracle_own.function(kernel)


def compared(a, b):
    """The differences of two programs in this package's neutral form."""
    own = [from_own(json.loads(json.dumps(x))) for x in (a, b)]
    return oracle_form.differences(*own)


def replaced(old, new, form=FORM):
    """The form with one text of it replaced, everywhere it stands."""
    text = json.dumps(form)
    assert json.dumps(old) in text, f"{old} is not in the form"
    return json.loads(text.replace(json.dumps(old), json.dumps(new)))


def without(kind, form=FORM):
    """The form without the statements of one kind."""
    form = copy.deepcopy(form)

    def walk(x):
        if isinstance(x, dict):
            for v in x.values():
                walk(v)
        if isinstance(x, list):
            x[:] = [v for v in x if not (isinstance(v, list) and v[: len(kind)] == kind)]
            for v in x:
                walk(v)

    walk(form)
    assert form != FORM, f"{kind} is not in the form"
    return form


def test_a_program_agrees_with_itself_under_other_names():
    other = json.loads(json.dumps(FORM).replace('"a"', '"a_1"').replace('"k"', '"ko"'))
    assert other != FORM
    assert compared(FORM, other) == []


def test_integer_sums_agree_however_they_are_written():
    x, y = ["var", "bx"], ["const", "int32", 16]
    product = ["bin", "*", x, y]
    doubled = ["bin", "-", ["bin", "*", ["const", "int32", 17], x], x]
    assert compared(FORM, replaced(product, doubled)) == []
    assert compared(FORM, replaced(product, ["bin", "*", x, ["const", "int32", 17]])) != []


PLANTED = {
    "extent": (["const", "int32", 3], ["const", "int32", 4]),
    "dtype of a buffer": (["alloc", "f", "float32"], ["alloc", "f", "float16"]),
    "scope": ("shared.dyn", "shared"),
    "shape": ([["const", "int32", 16]], [["const", "int32", 17]]),
    "kind of a loop": ("parallel", "unroll"),
    "hint of a loop": ({"num_stages": 2}, {"num_stages": 3}),
    "constant": (["const", "float32", "2.0"], ["const", "float32", "2.5"]),
    "cast": (["cast", "float32"], ["cast", "bfloat16"]),
    "reduction": ({"op": "sum"}, {"op": "max"}),
    "operator": (["bin", ">"], ["bin", ">="]),
    "threads": ([128], [256]),
    "kind of operation": ("Fill", "Copy"),
    "parameter": (["scalar", "n", "int32"], ["scalar", "n", "int64"]),
    "let": (["let", "m", "int32"], ["let", "m", "int64"]),
}


@pytest.mark.parametrize("what", PLANTED)
def test_a_planted_difference_is_seen(what):
    old, new = [
        json.dumps(x)[:-1] if isinstance(x, (list, dict)) else json.dumps(x) for x in PLANTED[what]
    ]
    text = json.dumps(FORM)
    assert old in text, f"{old} is not in the form"
    planted = json.loads(text.replace(old, new))
    assert compared(FORM, planted) != []
    assert compared(planted, FORM) != []


@pytest.mark.parametrize(
    "kind", [["op", "Fill"], ["op", "Reduce"], ["store"], ["alloc"], ["let"], ["if"]]
)
def test_a_missing_statement_is_seen(kind):
    assert compared(FORM, without(kind)) != []
    assert compared(without(kind), FORM) != []


def test_a_missing_cast_is_seen():
    load = ["load", "a", [["var", "i"], ["var", "j"]]]
    assert compared(FORM, replaced(["cast", "float32", load], load)) != []


def test_statements_in_another_order_are_seen():
    form = copy.deepcopy(FORM)
    body = form[3][0][-1]
    body[-1], body[-3] = body[-3], body[-1]
    assert compared(FORM, form) != []


def region(name, mins, extents, access=1):
    """A region as upstream writes it."""
    numbers = [["const", "int32", n] if isinstance(n, int) else n for n in mins]
    sizes_ = [["const", "int32", n] for n in extents]
    return [
        "call",
        "tl.region",
        "handle",
        [["load", name, numbers], ["const", "int32", access], *sizes_],
        {},
    ]


def upstream_form(extent=3, value=0):
    """A kernel as upstream prints it: three copies into shared memory, and a fill."""
    zero, bx, k = ["const", "int32", 0], ["var", "bx@1"], ["var", "k@2"]

    def times(x, n):
        return ["bin", "*", x, ["const", "int32", n]]

    ends = [region("A@7", [times(bx, 16), times(k, 32)], [16, 32]), region("a@8", [0, 0], [16, 32])]
    copy_ = ["call", "tl.tileop.copy", "handle", ends, {}]
    fill = [
        "call",
        "tl.tileop.fill",
        "handle",
        [region("a@8", [0, 0], [16, 32]), ["const", "int32", value]],
        {},
    ]
    loop = ["for", "serial", "", "k@2", "int32", zero, ["const", "int32", extent], None,
            {"num_stages": 2}, [["eval", copy_]]]  # fmt: skip
    lets = [
        ["let", f"t{n}@{n + 3}", "int32", ["call", "tl.launch_thread_idx", "int32", [], {}]]
        for n in range(3)
    ]
    sizes_ = [["const", "int32", 16], ["const", "int32", 32]]
    body = [*lets, ["block attr", "tl.launch_threads", [128, 1, 1]],
            ["alloc", "a@8", "float16", sizes_, "shared.dyn", []], ["eval", fill],
            loop]  # fmt: skip
    launch = [
        "for",
        "thread",
        "blockIdx.x",
        "bx@1",
        "int32",
        zero,
        ["const", "int32", 4],
        None,
        {},
        body,
    ]
    shape = [["const", "int32", 64], ["const", "int32", 96]]
    tensor = [
        "buffer",
        "A@7",
        "float16",
        shape,
        "global",
        [["const", "int32", 96], ["const", "int32", 1]],
    ]
    return ["function", "main", [tensor], [launch], {}, {}]


@T.prim_func
def same(A: T.Tensor((64, 96), "float16")):
    with T.Kernel(4, threads=128) as bx:
        a = T.alloc_shared((16, 32), "float16")
        T.clear(a)
        for k in T.Pipelined(3, num_stages=2):
            T.copy(A[bx * 16, k * 32], a)


def test_upstreams_form_agrees_with_the_same_program_here():
    own = from_own(oracle_own.function(same))
    assert oracle_form.differences(from_upstream(upstream_form()), own) == []


@pytest.mark.parametrize("change", [{"extent": 4}, {"value": 1}])
def test_upstreams_form_differs_from_another_program(change):
    own = from_own(oracle_own.function(same))
    assert oracle_form.differences(from_upstream(upstream_form(**change)), own) != []


@pytest.mark.parametrize(
    ("value", "dtype", "want"),
    [
        (0.1, "float32", "0.10000000149011612"),
        (0.1, "float16", "0.0999755859375"),
        (1 + 2**-8, "bfloat16", "1.0"),
        (70000.0, "float16", "inf"),
        (300, "uint8", 44),
        (200, "int8", -56),
    ],
)
def test_constants_are_rounded_as_their_dtype_has_them(value, dtype, want):
    assert oracle_form.rounded(value, dtype) == want


@pytest.mark.parametrize("a", range(-9, 10))
@pytest.mark.parametrize("d", [1, 3, 4])
def test_divisions_of_constants_are_floor_divisions(a, d):
    side = oracle_form.Side()
    for op, want in (("//", a // d), ("%", a % d)):
        e = ["bin", op, ["const", "int32", a], ["const", "int32", d]]
        assert side.canonical(e) == ["const", "int32", want]


X, Y = ["var", "n"], ["load", "B", [["const", "int32", 0]]]
ZERO, TWO, THREE = (["const", "int32", n] for n in (0, 2, 3))
FALSE, TRUE = ["const", "bool", 0], ["const", "bool", 1]
REMAINS = ["cast", "int32", ["bin", "!=", ["bin", "%", X, THREE], ZERO]]


def below(n):
    return ["bin", "<", X, ["const", "int32", n]]


def of_float(op, value):
    return ["bin", op, Y, ["const", "float32", value]]


@pytest.fixture
def side():
    known = oracle_form.Side()
    known.bind("n", "n", "int32")
    known.bind("B", "B", "float32")
    return known


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (
            ["bin", "+", ["bin", "//", X, THREE], REMAINS],
            ["bin", "//", ["bin", "+", X, TWO], THREE],
        ),
        (["select", below(1), below(5), FALSE], ["bin", "and", below(1), below(5)]),
        (["select", below(1), TRUE, below(5)], ["bin", "or", below(1), below(5)]),
        (["bin", ">=", X, THREE], ["bin", "<", TWO, X]),
        (of_float("*", "1.0"), Y),
        (["un", "-", Y], of_float("*", "-1.0")),
    ],
)
def test_two_ways_to_write_one_value_agree(side, a, b):
    assert side.canonical(a) == side.canonical(b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (["bin", "//", X, THREE], ["bin", "truncdiv", X, THREE]),
        (["bin", "<", X, THREE], ["bin", "<=", X, THREE]),
        (["bin", "+", ["bin", "//", X, TWO], REMAINS], ["bin", "//", ["bin", "+", X, TWO], THREE]),
        (of_float("*", "0.0"), ["const", "float32", "0.0"]),
        (["bin", "max", X, THREE], ["bin", "min", X, THREE]),
        (["select", below(1), X, THREE], ["select", below(1), THREE, X]),
    ],
)
def test_two_values_that_differ_are_told_apart(side, a, b):
    assert side.canonical(a) != side.canonical(b)


# -- the runner of programs
# -------------------------------------------------------------------------------------


def test_only_sizes_with_a_ceiling_are_lowered_and_never_raised():
    assert sizes.smaller("seq_len", 4096) == 256
    assert sizes.smaller("seq_len", 100) == 100
    assert sizes.smaller("block_M", 4096) == 4096
    assert sizes.smaller("batch", True) is True


@pytest.mark.parametrize(
    ("output", "ended", "want"),
    [
        ("CHECK\nOUTCOME\tpassed\t\n", "exit 0", "passed"),
        ("OUTCOME\tpassed\t\n", "exit 0", "ran"),
        ("OUTCOME\trefused\tno\n", "exit 0", "refused"),
        ("CHECK\n", "", "too long"),
        ("", "exit 1: boom", "failed"),
    ],
)
def test_what_the_output_of_a_program_means(output, ended, want):
    [row] = read_output(Row("a.py", "", "", 1.0), output, ended, 60)
    assert row.outcome == want
