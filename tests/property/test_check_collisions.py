"""Proofs that accesses are apart, and the search for ones that meet, against brute force."""

import itertools

from hypothesis import assume, given
from hypothesis import strategies as st

from tilelang.dtypes import DType
from tilelang.errors import Severity
from tilelang.ir.expr import Binary, BinaryOp, Buffer, Expr, Region, Var, const
from tilelang.ir.tile import Alloc, Fill, Function, If, Launch, Parallel, Param, Store
from tilelang.passes.check import check_function
from tilelang.passes.check.apart import apart
from tilelang.passes.check.program import Program
from tilelang.targets import target

F32 = DType("float32")
BX, BY, TX, VI, VJ = (Var(n, DType("int32")) for n in ("bx", "by", "tx", "i", "j"))


def op(kind: BinaryOp, a: Expr, b: Expr) -> Expr:
    return Binary(kind, a, b)


def linear(terms: list[tuple[Var, int]], start: int) -> Expr:
    total: Expr = const(start)
    for var, factor in terms:
        total = op(BinaryOp.ADD, total, op(BinaryOp.MUL, var, const(factor)))
    return total


small = st.integers(0, 6)


@st.composite
def indices(draw, variables):
    """A linear index, sometimes taken apart by a quotient and a remainder."""
    e = linear([(v, draw(small)) for v in variables], draw(st.integers(0, 3)))
    shape = draw(st.sampled_from(["plain", "plain", "div", "mod"]))
    if shape == "plain":
        return e
    kind = BinaryOp.FLOORDIV if shape == "div" else BinaryOp.FLOORMOD
    return op(kind, e, const(draw(st.integers(1, 5))))


@st.composite
def guards(draw, variables):
    kind = draw(st.sampled_from([BinaryOp.LT, BinaryOp.EQ, BinaryOp.GE]))
    return op(kind, draw(st.sampled_from(variables)), const(draw(st.integers(0, 3))))


def value(e: Expr, at: dict[Var, int]) -> int:
    match e:
        case Var():
            return at[e]
        case Binary():
            a, b = value(e.a, at), value(e.b, at)
            return int(
                {
                    BinaryOp.ADD: lambda: a + b,
                    BinaryOp.MUL: lambda: a * b,
                    BinaryOp.FLOORDIV: lambda: a // b,
                    BinaryOp.FLOORMOD: lambda: a % b,
                    BinaryOp.LT: lambda: a < b,
                    BinaryOp.EQ: lambda: a == b,
                    BinaryOp.GE: lambda: a >= b,
                }[e.op]()
            )
        case _:
            return int(e.value)  # pyright: ignore[reportAttributeAccessIssue]


def meets(points, telling, boxes):
    """Whether two points that differ in `telling` have an element in common, by brute force."""
    owner: dict[tuple[int, ...], tuple[int, ...]] = {}
    for at in points:
        who = tuple(at[v] for v in telling)
        for element in boxes(at):
            if owner.setdefault(element, who) != who:
                return True
    return False


sizes = st.tuples(*(st.integers(1, 4) for _ in range(2)))


@given(st.data())
def test_iterations(data):
    n, m = data.draw(sizes)
    index = [data.draw(indices([VI, VJ])) for _ in range(data.draw(st.integers(1, 2)))]
    guard = data.draw(st.none() | guards([VI, VJ]))
    buffer = Buffer("x", F32, tuple(const(64) for _ in index), scope="shared.dyn")
    store = Store(buffer, tuple(index), Binary(BinaryOp.ADD, VI, VJ))
    inner = (store,) if guard is None else (If(guard, (store,)),)
    loop = Parallel((VI, VJ), (const(n), const(m)), inner)
    launch = Launch((const(1),), (BX,), (TX,), (Alloc(buffer), loop), threads=(32,))
    fn = Function("f", (), (), (launch,))

    points = [
        {VI: i, VJ: j, BX: 0, TX: 0}
        for i, j in itertools.product(range(n), range(m))
        if guard is None or value(guard, {VI: i, VJ: j})
    ]
    expected = meets(points, (VI, VJ), lambda at: [tuple(value(e, at) for e in index)])
    found = [d for d in check_function(fn, target("emulate")) if d.kind == "race"]
    assert bool(found) is expected
    program = Program(fn, target("emulate"))
    (touch,) = [t for t in program.touches if t.writes]
    if apart([touch], [VI, VJ], [BX, TX]):
        assert not expected


@given(st.data())
def test_blocks(data):
    n, m = data.draw(sizes)
    rank = data.draw(st.integers(1, 2))
    index = [data.draw(indices([BX, BY])) for _ in range(rank)]
    extent = [data.draw(st.integers(1, 4)) for _ in range(rank)]
    shape = [data.draw(st.integers(1, 30)) for _ in range(rank)]
    guard = data.draw(st.none() | guards([BX, BY]))
    buffer = Buffer("x", F32, tuple(const(s) for s in shape))
    fill = Fill(Region(buffer, tuple(index), tuple(const(e) for e in extent)), const(0, F32))
    inner = (fill,) if guard is None else (If(guard, (fill,)),)
    launch = Launch((const(n), const(m)), (BX, BY), (TX,), inner, threads=(32,))
    fn = Function("f", (Param("x", buffer=buffer),), (), (launch,))

    def box(at):
        first = [value(e, at) for e in index]
        axes = [range(f, min(f + e, s)) for f, e, s in zip(first, extent, shape, strict=True)]
        return itertools.product(*axes)

    points = [
        {BX: x, BY: y}
        for x, y in itertools.product(range(n), range(m))
        if guard is None or value(guard, {BX: x, BY: y})
    ]
    expected = meets(points, (BX, BY), box)
    found = [d for d in check_function(fn, target("emulate")) if d.kind == "race"]
    assert bool(found) is expected
    assert all(d.severity is not Severity.ERROR for d in found)


@given(st.data())
def test_elements_of_blocks_that_become_boxes(data):
    """`widened` turns loops into boxes; what is found stays the same."""
    n = data.draw(st.integers(1, 4))
    width = data.draw(st.integers(1, 5))
    factor, size = data.draw(small), data.draw(st.integers(1, 30))
    limit = data.draw(st.none() | st.integers(0, 30))
    index = linear([(BX, factor), (VI, 1)], 0)
    buffer = Buffer("x", F32, (const(size),))
    store = Store(buffer, (index,), Binary(BinaryOp.ADD, BX, VI))
    body = (store,) if limit is None else (If(op(BinaryOp.LT, index, const(limit)), (store,)),)
    loop = Parallel((VI,), (const(width),), body)
    launch = Launch((const(n),), (BX,), (TX,), (loop,), threads=(32,))
    fn = Function("f", (Param("x", buffer=buffer),), (), (launch,))
    most = size if limit is None else min(size, limit)
    points = [{BX: b, VI: i} for b, i in itertools.product(range(n), range(width))]
    expected = meets(
        points,
        (BX,),
        lambda at: [(e,) for e in [value(index, at)] if e < most],
    )
    assume(width * n > 1)
    found = [d for d in check_function(fn, target("emulate")) if d.kind == "race"]
    assert bool(found) is expected
