"""The simplifier never changes a value, and bounds hold every value, whatever the expression."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ir_strategies import FLOATS, INTEGERS, expressions
from tilelang.dtypes import DType
from tilelang.ir.bounds import Env, counterexample, prove
from tilelang.ir.evaluate import evaluate
from tilelang.ir.expr import (
    BOOL,
    INT32,
    Binary,
    BinaryOp,
    Buffer,
    Const,
    Expr,
    Load,
    Select,
    Unary,
    UnaryOp,
    Var,
)
from tilelang.ir.interval import Interval, interval, span
from tilelang.ir.simplify import ceildiv, equal, rules, simplify, substitute


def same_value(a, b) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and repr(a) == repr(b))
    return type(a) is type(b) and a == b


@st.composite
def cases(draw, dtype: DType):
    """An expression, ranges for its variables, and values in the ranges."""
    types = [dtype, dtype, draw(st.sampled_from(INTEGERS)), BOOL]
    names = [Var(f"v{i}", t) for i, t in enumerate(types)]
    ranges, values = {}, {}
    for v in names:
        if v.type in FLOATS:
            values[v] = draw(st.floats(width=16))
            continue
        low, high = int(v.type.min), int(v.type.max)
        near = st.integers(max(low, -20), min(high, 140))
        picked = sorted(draw(st.tuples(*[near | st.integers(low, high)] * 2)))
        modulus = draw(st.sampled_from([1, 1, 1, 2, 3, 8, 16]))
        found = interval(picked[0], picked[1], modulus, draw(st.integers(0, modulus - 1)))
        lo, hi = span(found, v.type)
        if v.type.is_bool or hi > high or lo > high:
            found, lo, hi = Interval(low, high), low, high
        if draw(st.integers(0, 3)):
            ranges[v] = found
        else:
            found, lo, hi = Interval(low, high), low, high
        step = found.modulus or 1
        value = lo + draw(st.integers(0, (hi - lo) // step)) * step
        values[v] = bool(value) if v.type.is_bool else value
    return draw(expressions(dtype, names)), ranges, values


def check(case) -> None:
    e, ranges, values = case
    before = evaluate(e, values)
    short = simplify(e, ranges)
    assert short.dtype == e.dtype
    if before is None:
        return
    after = evaluate(short, values)
    assert same_value(before, after), (before, after)
    if not isinstance(before, float):
        assert Env(ranges).bounds(e).contains(int(before))


@given(st.sampled_from(INTEGERS).flatmap(cases))
@settings(max_examples=600)
def test_integers_keep_their_value(case):
    check(case)


@given(cases(BOOL))
@settings(max_examples=300)
def test_conditions_keep_their_value(case):
    check(case)


@given(st.sampled_from(FLOATS).flatmap(cases))
@settings(max_examples=200)
def test_floats_keep_every_bit(case):
    check(case)


def far_from_overflow(e: Expr, values) -> bool:
    """Whether no signed step of `e` overflows, in whatever order its terms are added."""
    found = [evaluate(n, values) for n in e.walk() if isinstance(n, Expr) and n.dtype.is_int]
    return all(v is not None and abs(v) < 2**13 for v in found) and all(
        n.dtype == INT32 or not n.dtype.is_int for n in e.walk() if isinstance(n, Expr)
    )


@given(cases(INT32))
@settings(max_examples=400)
def test_indices_keep_their_value_where_nothing_overflows(case):
    e, ranges, values = case
    before = evaluate(e, values)
    if before is None or not far_from_overflow(e, values):
        return
    assert evaluate(simplify(e, ranges, wraps=False), values) == before
    assert Env(ranges, wraps=False).bounds(e).contains(int(before))


@given(st.sampled_from(INTEGERS).flatmap(cases))
@settings(max_examples=200)
def test_simplifying_twice_changes_nothing(case):
    e, ranges, _ = case
    once = simplify(e, ranges)
    assert simplify(once, ranges) == once


@given(cases(BOOL))
@settings(max_examples=300)
def test_proofs_and_counterexamples_are_right(case):
    cond, ranges, values = case
    truth = evaluate(cond, values)
    verdict = prove(cond, ranges)
    assert truth is None or verdict in (None, truth)
    found = counterexample(cond, ranges)
    if found is not None:
        assert verdict is not True
        point = {v: t for v, t in ((v, found.get(v.name)) for v in values) if t is not None}
        point = {v: bool(t) if v.type.is_bool else t for v, t in point.items()}
        assert evaluate(cond, point) is False
        assert all(ranges[v].contains(int(t)) for v, t in point.items() if v in ranges)


@given(cases(BOOL), st.sampled_from([True, False]))
@settings(max_examples=300)
def test_what_a_condition_says_is_true_where_it_holds(case, holds):
    cond, ranges, values = case
    if evaluate(cond, values) is not holds:
        return
    env = Env(ranges).assume(cond, holds=holds)
    for var, value in values.items():
        if var in env:
            assert env[var].contains(int(value))
    for fact in env.facts:
        terms = [(evaluate(atom, values), f) for atom, f in fact.terms.items()]
        known = [int(v) * f for v, f in terms if v is not None]
        if len(known) == len(terms):
            assert sum(known) + fact.const <= 0


# Examples that the pipeline depends on -----------------------------------------------------------

n, m, i, bx = (Var(name, INT32) for name in ("n", "m", "i", "bx"))
ADD, SUB, MUL, DIV, MOD = (BinaryOp(s) for s in ("+", "-", "*", "//", "%"))
TILE = {i: interval(0, 127), bx: interval(0, None), n: interval(0, None)}


def c(v: int) -> Const:
    return Const(v, INT32)


def index() -> Expr:
    """`bx * 128 + i`."""
    return Binary(ADD, Binary(MUL, bx, c(128)), i)


def test_a_tile_index_splits_into_block_and_thread():
    assert simplify(Binary(DIV, index(), c(128)), TILE, wraps=False) == bx
    assert simplify(Binary(MOD, index(), c(128)), TILE, wraps=False) == i


def test_division_is_kept_where_the_sum_may_overflow():
    assert simplify(Binary(DIV, index(), c(128)), TILE) == Binary(DIV, index(), c(128))


def test_remainder_and_quotient_make_the_whole():
    whole = Binary(ADD, Binary(MUL, Binary(DIV, n, c(24)), c(24)), Binary(MOD, n, c(24)))
    assert simplify(whole) == n


def test_terms_keep_the_order_of_the_author():
    assert simplify(index()) == index()
    assert simplify(Binary(SUB, c(128), i)) == Binary(SUB, c(128), i)


def test_two_loads_are_two_events():
    a = Buffer("A", INT32, (n,))
    load = Load(a, (i,))
    for op in (SUB, MOD, BinaryOp.BITXOR, BinaryOp.EQ, BinaryOp.LT):
        e = Binary(op, load, load)
        assert simplify(e) == e
    dropped = Binary(MUL, load, c(0))
    assert simplify(dropped) == dropped


def test_indices_of_a_load_are_simplified():
    a = Buffer("A", INT32, (n,))
    assert simplify(Load(a, (Binary(ADD, i, c(0)),))) == Load(a, (i,))


def test_floats_are_left_alone():
    x = Var("x", DType("float32"))
    zero = Const(0.0, x.type)
    for e in (Binary(MUL, x, zero), Binary(SUB, x, x), Binary(ADD, x, zero)):
        assert simplify(e) is e
    tenth, fifth = (Const(float(np.float32(v)), x.type) for v in (0.1, 0.2))
    total = float(np.float32(0.1) + np.float32(0.2))
    assert simplify(Binary(ADD, tenth, fifth)) == Const(total, x.type)


def test_division_by_zero_is_not_folded():
    e = Binary(DIV, c(1), c(0))
    assert simplify(e) == e


def test_sizes_are_compared_as_numbers():
    assert equal(
        Binary(MUL, Binary(ADD, n, m), c(2)), Binary(ADD, Binary(MUL, m, c(2)), Binary(ADD, n, n))
    )
    assert equal(Binary(DIV, Binary(MUL, n, c(2)), c(2)), n)
    assert not equal(n, m)
    assert not equal(n, Binary(ADD, n, c(1)))
    assert equal(Var("n", DType("int64")), Var("n", DType("int64")))
    assert equal(c(3), Const(3, DType("int64")))


def test_ceildiv_of_literals_is_a_literal():
    assert ceildiv(c(100), c(24)) == c(5)
    assert ceildiv(c(96), c(24)) == c(4)
    assert ceildiv(c(0), c(24)) == c(0)
    assert ceildiv(n, c(1)) == n


def test_ragged_tail_has_a_counterexample_and_an_exact_grid_a_proof():
    inside = Binary(BinaryOp.LT, index(), n)
    env = Env(TILE, wraps=False)
    blocks = Binary(DIV, Binary(ADD, n, c(127)), c(128))
    ragged = env.assume(Binary(BinaryOp.LT, bx, blocks))
    assert prove(inside, ragged) is None
    found = counterexample(inside, ragged)
    assert found is not None
    assert found["bx"] * 128 + found["i"] >= found["n"] > found["bx"] * 128
    exact = ragged.assume(Binary(BinaryOp.EQ, Binary(MOD, n, c(128)), c(0)))
    assert prove(inside, exact) is True
    floor = env.assume(Binary(BinaryOp.LT, bx, Binary(DIV, n, c(128))))
    assert prove(inside, floor) is True


def test_counterexample_knows_what_it_cannot_know():
    a = Buffer("A", INT32, (n,))
    assert counterexample(Binary(BinaryOp.LT, Load(a, (i,)), n), TILE) is None
    assert counterexample(Binary(BinaryOp.GE, i, c(0)), TILE) is None


def test_substitute_reaches_the_shapes_of_buffers():
    a = Buffer("A", INT32, (n, Binary(MUL, n, c(2))))
    assert substitute(Load(a, (i, c(0))), {n: c(96), i: m}) == Load(
        Buffer("A", INT32, (c(96), Binary(MUL, c(96), c(2)))), (m, c(0))
    )
    assert substitute(n, {n: m}) is m
    assert substitute(m, {n: m}) is m


def test_selected_arm_sees_the_condition():
    e = Select(Binary(BinaryOp.LT, i, c(8)), i, c(8))
    assert Env(TILE).bounds(e) == interval(0, 8)


def test_every_rule_has_a_name_of_its_own():
    names = [rule.__name__ for rule in rules()]
    assert len(set(names)) == len(names)


def test_fired_rules_are_named():
    fired: list[str] = []
    simplify(Binary(ADD, Binary(ADD, n, c(1)), c(2)), fired=fired)
    assert fired == ["normal_sum"]


def test_not_of_a_float_comparison_stays():
    x = Var("x", DType("float32"))
    e = Unary(UnaryOp.NOT, Binary(BinaryOp.LT, x, Const(0.0, x.type)))
    assert simplify(e) == e
