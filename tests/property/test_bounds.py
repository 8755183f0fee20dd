"""What is known at a place of a program holds whenever the program gets there."""

from hypothesis import given, settings
from hypothesis import strategies as st

from ir_strategies import COMPARES, expressions
from tilelang.ir.bounds import Env, prove, walk
from tilelang.ir.evaluate import evaluate
from tilelang.ir.expr import BOOL, INT32, Binary, BinaryOp, Buffer, Expr, Load, Var, const
from tilelang.ir.interval import Interval
from tilelang.ir.tile import (
    Assume,
    Break,
    Continue,
    For,
    Function,
    If,
    Launch,
    Let,
    Parallel,
    Pipelined,
    SyncThreads,
    While,
)

SMALL = list(range(-3, 6))


class Maker:
    """Draws nests of loops over small numbers; expressions see the variables that are defined."""

    def __init__(self, draw, wraps):
        self.draw = draw
        self.wraps = wraps
        self.known = [Var("n", INT32)]
        self.count = 0

    def new(self) -> Var:
        self.count += 1
        return Var(f"v{self.count}", INT32)

    def number(self) -> Expr:
        kind = self.draw(st.integers(0, 3))
        if kind == 0:
            return self.draw(st.sampled_from(self.known))
        if kind == 1:
            op = self.draw(st.sampled_from([BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MIN]))
            return Binary(op, self.draw(st.sampled_from(self.known)), const(self.draw(small)))
        return const(self.draw(small))

    def cond(self) -> Expr:
        if self.wraps:
            return self.draw(expressions(BOOL, self.known, 3))
        op = self.draw(st.sampled_from(COMPARES))  # nothing here can overflow
        return Binary(op, self.number(), self.number())

    def block(self, depth: int, loop: bool = False):
        before = list(self.known)
        count = self.draw(st.integers(1, 3))
        body = tuple(self.stmt(depth, loop) for _ in range(count))
        self.known = before
        return body

    def stmt(self, depth: int, loop: bool):
        kind = self.draw(st.sampled_from(["let", "mark", "if", "for", "pipelined", "parallel"]))
        if kind == "let":
            made = Let(self.new(), self.number())
            self.known.append(made.var)
            return made
        if depth == 0 or kind == "mark":
            return SyncThreads()
        if kind == "if":
            cond = self.cond()
            if loop and self.draw(st.booleans()):
                return If(cond, (self.draw(st.sampled_from([Break(), Continue()])),))
            return If(cond, self.block(depth - 1, loop), orelse=self.block(depth - 1, loop))
        return self.loop(kind, depth)

    def loop(self, kind: str, depth: int):
        var, start, stop = self.new(), self.number(), self.number()
        before = list(self.known)
        self.known.append(var)
        body = self.block(depth - 1, loop=kind != "parallel")
        self.known = before
        if kind == "parallel":
            return Parallel((var,), (stop,), body)
        if kind == "pipelined":
            return Pipelined(var, start, stop, body)
        step = self.draw(st.sampled_from([None, *(const(v) for v in (-2, -1, 1, 2, 3))]))
        return For(var, start, stop, body, step=step)


small = st.sampled_from(SMALL)


def value(e, values) -> int:
    found = evaluate(e, values)
    assert found is not None
    return int(found)


class Leave(Exception):
    pass


class Skip(Exception):
    pass


def execute(body, values, visit):
    """Run a block, calling `visit` before each statement with the values that are known there."""
    values = dict(values)
    for s in body:
        visit(s, values)
        match s:
            case Let():
                values[s.var] = evaluate(s.value, values)
            case If():
                taken = evaluate(s.cond, values)
                if taken is not None:
                    execute(s.then if taken else s.orelse, values, visit)
            case Break():
                raise Leave
            case Continue():
                raise Skip
            case For() | Pipelined() | Parallel():
                rounds(s, values, visit)
            case _:
                pass


def rounds(loop, values, visit):
    if isinstance(loop, Parallel):
        var, counts = loop.vars[0], range(value(loop.extents[0], values))
    else:
        step = value(loop.step, values) if isinstance(loop, For) and loop.step else 1
        start, stop = value(loop.start, values), value(loop.stop, values)
        var, counts = loop.var, range(start, stop, step)
    for v in counts:
        try:
            execute(loop.body, {**values, var: v}, visit)
        except Skip:
            continue
        except Leave:
            break


@st.composite
def programs(draw):
    wraps = draw(st.booleans())
    body = Maker(draw, wraps).block(3)
    return body, draw(st.lists(st.integers(0, 6), min_size=1, max_size=3)), wraps


@given(programs())
@settings(max_examples=300)
def test_ranges_and_facts_hold_wherever_the_program_gets(program):
    body, sizes, wraps = program
    n = Var("n", INT32)
    start = Env.of_function(Function("f", (), (n,), ()), wraps=wraps)
    known = {id(s): env for s, env in walk(body, start)}

    def visit(stmt, values):
        env = known[id(stmt)]
        for var, value in values.items():
            if var in env:
                assert env[var].contains(int(value))
        for fact in env.facts:
            terms = [(evaluate(atom, values), f) for atom, f in fact.terms.items()]
            if all(v is not None for v, _ in terms):
                assert sum(int(v or 0) * f for v, f in terms) + fact.const <= 0
        if isinstance(stmt, If):
            truth = evaluate(stmt.cond, values)
            assert truth is None or prove(stmt.cond, env) in (None, truth)

    for size in sizes:
        execute(body, {n: size}, visit)


# Examples ----------------------------------------------------------------------------------------

n, i = Var("n", INT32), Var("i", INT32)
A = Buffer("A", INT32, (n,))


def inside(stmt, env=None):
    """What is known in the body of a statement."""
    return (env or Env({n: Interval(0, None)}, wraps=False)).enter(stmt)


def test_loops_bound_their_variables():
    assert inside(For(i, const(0), const(10), ()))[i] == Interval(0, 9)
    assert inside(For(i, const(1), const(10), (), step=const(4)))[i] == Interval(1, 9, 4, 1)
    assert inside(For(i, const(10), const(0), (), step=const(-3)))[i] == Interval(1, 10, 3, 1)
    assert inside(Parallel((i,), (const(24),), ()))[i] == Interval(0, 23)
    assert inside(Pipelined(i, const(0), n, ()))[i] == Interval(0, 2**31 - 2)


def test_symbolic_extents_are_facts():
    below = Binary(BinaryOp.LT, i, n)
    assert prove(below, inside(Parallel((i,), (n,), ()))) is True
    assert prove(below, inside(For(i, const(0), n, ()))) is True
    assert prove(below, inside(For(i, const(0), Load(A, (const(0),)), ()))) is None


def test_launches_bound_their_indices():
    names = tuple(Var(name, INT32) for name in ("tx", "ty", "tz"))
    env = inside(Launch((n,), (i,), names, (), threads=(96, 2)))
    assert [env[v] for v in names] == [Interval(0, 95), Interval(0, 1), Interval(0, 0, 0, 0)]
    assert prove(Binary(BinaryOp.LT, i, n), env) is True
    unknown = inside(Launch((n,), (i,), names, ()))
    assert unknown[names[0]] == Interval(0, None)


def test_what_memory_says_is_forgotten_but_narrows():
    first = Load(A, (const(0),))
    env = inside(While(Binary(BinaryOp.LT, n, first), ()))
    assert env.facts == ()
    assert env[n] == Interval(0, 2**31 - 2)


def test_an_early_exit_says_what_holds_after_it():
    stop = If(Binary(BinaryOp.GE, i, const(5)), (Break(),))
    loop = For(i, const(0), const(10), (stop, SyncThreads()))
    known = {type(s): env for s, env in walk((loop,), Env())}
    assert known[SyncThreads][i] == Interval(0, 4)


def test_an_assumption_holds_for_what_follows():
    body = (
        Assume(Binary(BinaryOp.EQ, Binary(BinaryOp.FLOORMOD, n, const(8)), const(0))),
        SyncThreads(),
    )
    known = {type(s): env for s, env in walk(body, Env({n: Interval(0, None)}))}
    assert known[SyncThreads][n].divisible_by(8)
    assert not known[Assume][n].divisible_by(8)
