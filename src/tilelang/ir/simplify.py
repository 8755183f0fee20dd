"""Simplification of scalar expressions: an expression goes in, a shorter one of the same value
comes out.

The rules are data: a table from operator to named functions, each of which returns a replacement or
None. Integers are rewritten as the wrapping numbers they are; what holds only without overflow (all
about division) needs bounds that exclude it, or `wraps=False`. Floats are left as the author wrote
them, but for operations on literals, which are rounded as at run time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from tilelang.dtypes import DType, wrap_int
from tilelang.ir.affine import NEGATED, Form, is_countable, is_stable
from tilelang.ir.bounds import Env, prove
from tilelang.ir.evaluate import ARITHMETIC, Number, evaluate
from tilelang.ir.expr import (
    Binary,
    BinaryOp,
    Bitcast,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Unary,
    UnaryOp,
    Var,
    int_value,
)
from tilelang.ir.interval import Interval, limits
from tilelang.ir.node import Kind, Node

N = TypeVar("N", bound=Node)


def simplify(
    e: Expr,
    env: Env | Mapping[Var, Interval] | None = None,
    *,
    wraps: bool = True,
    fired: list[str] | None = None,
) -> Expr:
    """An expression with the value of `e` for all values that `env` allows.

    With `wraps` false, signed arithmetic in `e` is taken not to overflow in whatever order its
    terms are added, which holds for sizes and indices. The names of the rules that were used are
    added to `fired`.
    """
    known = env if isinstance(env, Env) else Env(env or {}, wraps=wraps)
    return _Simplifier(known, fired).run(e)


def equal(a: Expr, b: Expr, env: Env | Mapping[Var, Interval] | None = None) -> bool:
    """Whether two sizes or indices are proved to be one number (their dtypes may differ).

    Signed arithmetic is taken not to overflow. False where a value depends on memory.
    """
    if not (is_stable(a) and is_stable(b)):
        return False
    if a == b:
        return True
    if not (is_countable(a.dtype) and is_countable(b.dtype)):
        return False
    known = env if isinstance(env, Env) else Env(env or {}, wraps=False)
    left, right = (known.linear(_Simplifier(known, None).run(side)) for side in (a, b))
    d = left.plus(right, -1)
    return not d.terms and d.const == 0


def ceildiv(a: Expr, b: Expr) -> Expr:
    """The least integer that is at least `a / b`, for b > 0; `a + b - 1` must not overflow."""
    one = Const(1, a.dtype)
    total = Binary(BinaryOp.ADD, a, Binary(BinaryOp.SUB, b, one))
    return simplify(Binary(BinaryOp.FLOORDIV, total, b), wraps=False)


def substitute(node: N, values: Mapping[Var, Expr]) -> N:
    """`node` with variables replaced, in the shapes of the buffers it names and defines as well.

    The variables themselves must not be defined inside `node`.
    """
    if not values:
        return node

    def replace(n: Node) -> Node | None:
        if isinstance(n, Var):
            return values.get(n)
        changes = {
            f.name: made
            for f in n.fields()
            if f.metadata["kind"] is Kind.BINDS
            and isinstance(old := getattr(n, f.name), Buffer)
            and (made := old.rewrite(replace)) is not old
        }
        return n.with_(**changes) if changes else None

    if isinstance(node, Var):
        return values.get(node, node)  # pyright: ignore[reportReturnType] - an Expr for an Expr
    inner = node.rewrite(replace)
    return replace(inner) or inner  # pyright: ignore[reportReturnType]


# The engine --------------------------------------------------------------------------------------


class _Simplifier:
    """One run: every subexpression is simplified once, operands first."""

    def __init__(self, env: Env, fired: list[str] | None) -> None:
        self.env = env
        self.fired = fired
        self.done: dict[Expr, Expr] = {}

    def run(self, e: Expr) -> Expr:
        found = self.done.get(e)
        if found is None:
            found = self.rewrite(self.with_simple_operands(e))
            self.done[e] = found
            self.done[found] = found
        return found

    def with_simple_operands(self, e: Expr) -> Expr:
        changes: dict[str, object] = {}
        for f in e.fields():
            if f.metadata["kind"] is not Kind.OPERAND:
                continue
            old = getattr(e, f.name)
            new: object = old
            if isinstance(old, Expr):
                new = self.run(old)
            elif isinstance(old, tuple):
                new = tuple(self.run(a) for a in old)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            if new != old:
                changes[f.name] = new
        return e.with_(**changes) if changes else e

    def rewrite(self, e: Expr) -> Expr:
        if isinstance(e, (Const, Var, Load)):
            return e
        for rule in (literal_operands, one_value, *RULES.get(_key(e), ())):
            new = rule(e, self.env)
            if new is not None and new != e:
                if self.fired is not None:
                    self.fired.append(rule.__name__)
                return self.run(new)
        return e


Rule = Callable[..., Expr | None]
"""A rule gets an expression (of the operator that the table says) and what is known; None
declines.
"""


def _key(e: Expr) -> BinaryOp | UnaryOp | type[Expr]:
    return e.op if isinstance(e, (Binary, Unary)) else type(e)


def literal(value: Number, dtype: DType) -> Const:
    """A literal of an expression's own dtype."""
    return Const(bool(value) if dtype.is_bool else value, dtype)


# Rules for every operator ------------------------------------------------------------------------


def literal_operands(e: Expr, env: Env) -> Expr | None:
    """An operation on literals is a literal."""
    del env
    operands = [a for a in e.children() if isinstance(a, Expr)]
    if not operands or not all(isinstance(a, Const) for a in operands):
        return None
    value = evaluate(e)
    return None if value is None else literal(value, e.dtype)


def one_value(e: Expr, env: Env) -> Expr | None:
    """An integer that can have one value only is a literal."""
    if not is_countable(e.dtype):
        return None
    value = env.bounds(e).value
    return literal(value, e.dtype) if value is not None and is_stable(e) else None


# Sums of integers --------------------------------------------------------------------------------


def normal_sum(e: Binary | Unary, env: Env) -> Expr | None:
    """Terms collected, in order of appearance, the constant last. Exact although integers wrap."""
    del env
    if not (is_countable(e.dtype) and e.dtype.is_integer):
        return None
    form = _ring(e)
    if form is None:
        return None
    return _build(_divmod_pairs(form), e.dtype)


def _ring(e: Expr) -> Form | None:
    """`e` as a sum modulo 2**bits; None if that would drop or merge loads."""
    match e:
        case Const():
            found: Form | None = Form({}, int(e.value))
        case Binary(op=BinaryOp.ADD | BinaryOp.SUB):
            a, b = _ring(e.a), _ring(e.b)
            found = None
            if (
                a is not None
                and b is not None
                and all(is_stable(t) for t in a.terms if t in b.terms)
            ):
                found = _wrapped(a.plus(b, 1 if e.op is BinaryOp.ADD else -1), e.dtype)
        case Binary(op=BinaryOp.MUL):
            found = _ring_product(e)
        case Unary(op=UnaryOp.NEG):
            a = _ring(e.a)
            found = None if a is None else _wrapped(a.scaled(-1), e.dtype)
        case _:
            found = Form({e: 1})
    return found


def _ring_product(e: Binary) -> Form | None:
    a, b = _ring(e.a), _ring(e.b)
    if a is None or b is None:
        return None
    if a.terms and b.terms:
        return Form({e: 1})
    sum_, factor = (a, b.const) if not b.terms else (b, a.const)
    if factor == 0 and not all(is_stable(t) for t in sum_.terms):
        return None
    return _wrapped(sum_.scaled(factor), e.dtype)


def _wrapped(form: Form, dtype: DType) -> Form:
    """The same number of the dtype with all factors as near to zero as can be."""
    signed = DType(f"int{dtype.bits}") if dtype.bits >= 8 else dtype
    if signed.is_uint:
        return form
    terms = {t: wrap_int(f, signed) for t, f in form.terms.items()}
    return Form({t: f for t, f in terms.items() if f}, wrap_int(form.const, signed))


def _divmod_pairs(form: Form) -> Form:
    """`x // c * c + x % c` is x."""
    for atom, factor in list(form.terms.items()):
        if isinstance(atom, Binary) and atom.op is BinaryOp.FLOORMOD and is_stable(atom):
            c = int_value(atom.b)
            quotient = Binary(BinaryOp.FLOORDIV, atom.a, atom.b)
            if c and form.terms.get(quotient) == factor * c:
                whole = _ring(atom.a)
                if whole is not None:
                    pair = Form({atom: factor, quotient: factor * c})
                    return _wrapped(form.plus(pair, -1).plus(whole, factor), atom.dtype)
    return form


def _build(form: Form, dtype: DType) -> Expr:
    """The expression of a form: a term with a positive factor first, if there is one."""
    high = limits(dtype)[1]
    terms = list(form.terms.items())
    first = next((i for i, (_, f) in enumerate(terms) if f > 0), None)
    out: Expr
    if first is not None:
        atom, factor = terms.pop(first)
        out = _times(atom, factor, dtype)
    elif 0 < form.const <= high or not terms:
        out = Const(wrap_int(form.const, dtype), dtype)
    else:
        atom, factor = terms.pop(0)
        out = Unary(UnaryOp.NEG, atom) if factor == -1 else _times(atom, factor, dtype)
    const = 0 if isinstance(out, Const) else form.const
    for atom, factor in terms:
        if factor < 0 and -factor <= high:
            out = Binary(BinaryOp.SUB, out, _times(atom, -factor, dtype))
        else:
            out = Binary(BinaryOp.ADD, out, _times(atom, factor, dtype))
    if const < 0 and -const <= high:
        return Binary(BinaryOp.SUB, out, Const(-const, dtype))
    return Binary(BinaryOp.ADD, out, Const(wrap_int(const, dtype), dtype)) if const else out


def _times(atom: Expr, factor: int, dtype: DType) -> Expr:
    if factor == 1:
        return atom
    return Binary(BinaryOp.MUL, atom, Const(wrap_int(factor, dtype), dtype))


# Division ----------------------------------------------------------------------------------------


def divide_terms(e: Binary, env: Env) -> Expr | None:
    """`(c * q + r) // c` is `q + r // c`, where the sum cannot overflow."""
    c, form = _divided(e, env)
    if form is None:
        return None
    quotient, rest = _split(form, c, env)
    if quotient.terms or quotient.const:
        tail = Binary(BinaryOp.FLOORDIV, _build(rest, e.dtype), e.b)
        if _fits(rest, env, e.dtype):
            return Binary(BinaryOp.ADD, _build(quotient, e.dtype), tail)
    g = math.gcd(c, *form.terms.values())
    if g > 1 and form.terms:
        less = Form({t: f // g for t, f in form.terms.items()}, form.const // g)
        return Binary(BinaryOp.FLOORDIV, _build(less, e.dtype), Const(c // g, e.dtype))
    return None


def remainder_terms(e: Binary, env: Env) -> Expr | None:
    """`(c * q + r) % c` is `r % c`, and r itself where `0 <= r < c`; the sum cannot overflow."""
    c, form = _divided(e, env)
    if form is None:
        return None
    quotient, rest = _split(form, c, env)
    lo, hi = env.analysis.form_span(rest)
    if lo >= 0 and hi < c:
        return _build(rest, e.dtype)
    if (quotient.terms or quotient.const) and _fits(rest, env, e.dtype):
        return Binary(BinaryOp.FLOORMOD, _build(rest, e.dtype), e.b)
    return None


def _divided(e: Binary, env: Env) -> tuple[int, Form | None]:
    """The positive literal divisor, and the dividend as an exact sum of terms of its dtype."""
    c = int_value(e.b)
    if c is None or c <= 0 or not is_stable(e.a):
        return 0, None
    form = env.linear(e.a)
    return c, (form if all(t.dtype == e.dtype for t in form.terms) else None)


def _split(form: Form, c: int, env: Env) -> tuple[Form, Form]:
    """(q, r) with `form == c * q + r`."""
    whole: dict[Expr, int] = {}
    rest: dict[Expr, int] = {}
    const = form.const
    for t, f in form.terms.items():
        known = env.bounds(t)
        if f % c == 0:
            whole[t] = f // c
        elif f == 1 and len(form.terms) > 1 - bool(form.const) and known.modulus % c == 0:
            # All values of t leave one remainder, so t is c * (t // c) plus that.
            whole[Binary(BinaryOp.FLOORDIV, t, Const(c, t.dtype))] = 1
            const += known.residue % c
        else:
            rest[t] = f
    return Form(whole, const // c), Form(rest, const % c)


def _fits(form: Form, env: Env, dtype: DType) -> bool:
    """Whether the sum can be computed in the dtype."""
    lo, hi = env.analysis.form_span(form)
    low, high = limits(dtype)
    return (low <= lo and hi <= high) or (not env.wraps and dtype.is_int)


def divide_twice(e: Binary, env: Env) -> Expr | None:
    """`x // a // b` is `x // (a * b)`."""
    del env
    match e:
        case Binary(
            a=Binary(op=BinaryOp.FLOORDIV, a=x, b=Const(value=int(a))), b=Const(value=int(b))
        ) if a > 0 and b > 0 and a * b <= e.dtype.max:
            return Binary(BinaryOp.FLOORDIV, x, Const(a * b, e.dtype))
        case _:
            return None


def remainder_twice(e: Binary, env: Env) -> Expr | None:
    """`x % a % b` is `x % b` where b divides a."""
    del env
    match e:
        case Binary(
            a=Binary(op=BinaryOp.FLOORMOD, a=x, b=Const(value=int(a))), b=Const(value=int(b))
        ) if a > 0 and b > 0 and a % b == 0:
            return Binary(BinaryOp.FLOORMOD, x, e.b)
        case _:
            return None


def divide_by_one(e: Binary, env: Env) -> Expr | None:
    """`x // 1` is x."""
    del env
    return e.a if int_value(e.b) == 1 and e.dtype.is_integer else None


def truncate_as_floor(e: Binary, env: Env) -> Expr | None:
    """Division rounds the same way both ways where nothing is negative."""
    if not is_countable(e.dtype):
        return None
    a, b = env.bounds(e.a), env.bounds(e.b)
    if a.lo is None or a.lo < 0 or b.lo is None or b.lo < 1:
        return None
    op = BinaryOp.FLOORDIV if e.op is BinaryOp.TRUNCDIV else BinaryOp.FLOORMOD
    return Binary(op, e.a, e.b)


# Minimum, maximum and bits -----------------------------------------------------------------------


def decided_extreme(e: Binary, env: Env) -> Expr | None:
    """`min(a, b)` is a where a <= b."""
    if not is_countable(e.dtype) or not (is_stable(e.a) and is_stable(e.b)):
        return None
    smaller = prove(Binary(BinaryOp.LE, e.a, e.b), env)
    if smaller is None:
        smaller = True if prove(Binary(BinaryOp.GE, e.a, e.b), env) is False else None
        if smaller is None and prove(Binary(BinaryOp.GE, e.a, e.b), env):
            smaller = False
    if smaller is None:
        return None
    return e.a if smaller == (e.op is BinaryOp.MIN) else e.b


def literal_last(e: Binary, env: Env) -> Expr | None:
    """A literal stands on the right of an operator that commutes."""
    del env
    if isinstance(e.a, Const) and not isinstance(e.b, Const) and not e.dtype.is_float:
        return Binary(e.op, e.b, e.a)
    return None


def nested_literal(e: Binary, env: Env) -> Expr | None:
    """`min(min(x, 3), 5)` is `min(x, 3)`; likewise for the other associative operators."""
    del env
    match e:
        case Binary(a=Binary(a=x, b=Const() as first) as inner, b=Const() as second) if (
            inner.op is e.op and not e.dtype.is_float
        ):
            both = literal_operands(Binary(e.op, first, second), Env())
            return None if both is None else Binary(e.op, x, both)
        case _:
            return None


def same_twice(e: Binary, env: Env) -> Expr | None:
    """`x & x` is x; likewise for `|`, min, max, and, or."""
    del env
    return e.a if e.a == e.b and not e.dtype.is_float and is_stable(e.a) else None


def bit_identity(e: Binary, env: Env) -> Expr | None:
    """A mask or shift that changes nothing, or leaves nothing."""
    del env
    value = int_value(e.b)
    if value is None or not e.dtype.is_integer:
        return None
    ones = wrap_int(-1, e.dtype)
    if value == (ones if e.op is BinaryOp.BITAND else 0):
        return e.a
    if value == 0 and e.op is BinaryOp.BITAND and is_stable(e.a):
        return e.b
    return None


def double_complement(e: Unary, env: Env) -> Expr | None:
    """`~~x` is x."""
    del env
    return e.a.a if isinstance(e.a, Unary) and e.a.op is UnaryOp.BITNOT else None


# Conditions --------------------------------------------------------------------------------------


_SWAPPED = {
    BinaryOp.EQ: BinaryOp.EQ,
    BinaryOp.NE: BinaryOp.NE,
    BinaryOp.LT: BinaryOp.GT,
    BinaryOp.GT: BinaryOp.LT,
    BinaryOp.LE: BinaryOp.GE,
    BinaryOp.GE: BinaryOp.LE,
}


def compare_with_literal(e: Binary, env: Env) -> Expr | None:
    """`5 < x` is `x > 5`."""
    del env
    if isinstance(e.a, Const) and not isinstance(e.b, Const):
        return Binary(_SWAPPED[e.op], e.b, e.a)
    return None


def decided(e: Expr, env: Env) -> Expr | None:
    """A condition that is proved, or refuted."""
    found = prove(e, env) if is_stable(e) else None
    return None if found is None else Const(found, e.dtype)


def negated(e: Unary, env: Env) -> Expr | None:
    """`not (a < b)` is `a >= b` for integers (a NaN compares false both ways); `not not x` is x."""
    del env
    match e.a:
        case Unary(op=UnaryOp.NOT, a=x):
            return x
        case Binary() as c if c.op.is_compare:
            both = c.op in (BinaryOp.EQ, BinaryOp.NE)
            if both or is_countable(c.a.dtype):
                return Binary(NEGATED[c.op], c.a, c.b)
        case _:
            pass
    return None


def known_side(e: Binary, env: Env) -> Expr | None:
    """`True and x` is x, `False and x` is False."""
    del env
    neutral = e.op is BinaryOp.AND
    for side, other in ((e.a, e.b), (e.b, e.a)):
        if isinstance(side, Const):
            if bool(side.value) == neutral:
                return other
            return side if is_stable(other) else None
    return None


def chosen_arm(e: Select, env: Env) -> Expr | None:
    """A choice whose condition is known, or that makes no difference."""
    del env
    if isinstance(e.cond, Const):
        taken, dropped = (e.t, e.f) if e.cond.value else (e.f, e.t)
        return taken if e.lazy or is_stable(dropped) else None
    if e.t == e.f and is_stable(e.cond) and is_stable(e.t):
        return e.t
    if isinstance(e.cond, Unary) and e.cond.op is UnaryOp.NOT:
        return Select(e.cond.a, e.f, e.t, lazy=e.lazy)
    if (
        e.dtype.is_bool
        and isinstance(e.t, Const)
        and isinstance(e.f, Const)
        and e.t.value
        and not e.f.value
    ):
        return e.cond
    return None


# Conversions -------------------------------------------------------------------------------------


def same_dtype(e: Cast | Bitcast, env: Env) -> Expr | None:
    """A conversion to the dtype that the value has."""
    del env
    return e.a if e.a.dtype == e.type else None


def cast_twice(e: Cast, env: Env) -> Expr | None:
    """A conversion after another that lost nothing, or nothing that is still there."""
    inner = e.a
    if not isinstance(inner, Cast) or _special(e) or _special(inner):
        return None
    first, middle, last = inner.a.dtype, inner.type, e.type
    if first in ARITHMETIC and middle in ARITHMETIC and last == first:
        wider = (
            middle.mantissa_bits >= first.mantissa_bits
            and middle.exponent_bits >= first.exponent_bits
        )
        return inner.a if wider else None
    if not (is_countable(first) and is_countable(middle) and is_countable(last)):
        return None
    if middle.is_bool or last.is_bool:
        return None
    kept = env.bounds(inner.a)
    low, high = limits(middle)
    lossless = _known_inside(kept, first, low, high)
    return Cast(inner.a, last) if lossless or last.bits <= middle.bits else None


def _special(e: Cast) -> bool:
    return e.rounding == "rs" or e.rbits is not None


def _known_inside(a: Interval, dtype: DType, low: int, high: int) -> bool:
    least, most = limits(dtype)
    lo = least if a.lo is None else a.lo
    hi = most if a.hi is None else a.hi
    return low <= lo and hi <= high


def bitcast_twice(e: Bitcast, env: Env) -> Expr | None:
    """The bits of the bits."""
    del env
    return Bitcast(e.a.a, e.type) if isinstance(e.a, Bitcast) else None


def absolute(e: Call, env: Env) -> Expr | None:
    """`abs(x)` is x where x >= 0."""
    if e.fn != "abs" or not is_countable(e.dtype):
        return None
    least = env.bounds(e.args[0]).lo
    return e.args[0] if least is not None and least >= 0 else None


_COMMUTING = (literal_last, nested_literal)

RULES: dict[BinaryOp | UnaryOp | type[Expr], tuple[Rule, ...]] = {
    BinaryOp.ADD: (normal_sum,),
    BinaryOp.SUB: (normal_sum,),
    BinaryOp.MUL: (normal_sum,),
    UnaryOp.NEG: (normal_sum,),
    BinaryOp.FLOORDIV: (divide_by_one, divide_twice, divide_terms),
    BinaryOp.FLOORMOD: (remainder_twice, remainder_terms),
    BinaryOp.TRUNCDIV: (divide_by_one, truncate_as_floor),
    BinaryOp.TRUNCMOD: (truncate_as_floor,),
    BinaryOp.MIN: (same_twice, *_COMMUTING, decided_extreme),
    BinaryOp.MAX: (same_twice, *_COMMUTING, decided_extreme),
    BinaryOp.BITAND: (same_twice, *_COMMUTING, bit_identity),
    BinaryOp.BITOR: (same_twice, *_COMMUTING, bit_identity),
    BinaryOp.BITXOR: (*_COMMUTING, bit_identity),
    BinaryOp.SHL: (bit_identity,),
    BinaryOp.SHR: (bit_identity,),
    **dict.fromkeys(_SWAPPED, (compare_with_literal, decided)),
    BinaryOp.AND: (known_side, same_twice, decided),
    BinaryOp.OR: (known_side, same_twice, decided),
    UnaryOp.NOT: (negated, decided),
    UnaryOp.BITNOT: (double_complement,),
    Select: (chosen_arm,),
    Cast: (same_dtype, cast_twice),
    Bitcast: (same_dtype, bitcast_twice),
    Call: (absolute,),
}
"""The rules of each operator, tried in order after those of every operator."""


def rules() -> Iterator[Rule]:
    """Every rule once, for tests and documentation."""
    seen: dict[Rule, None] = dict.fromkeys((literal_operands, one_value))
    for group in RULES.values():
        seen.update(dict.fromkeys(group))
    yield from seen
