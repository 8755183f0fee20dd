"""Random scalar expressions as an author writes them, traced, run, compared with exact arithmetic.

The reference here knows nothing of the compiler: integers are Python's and wrap, floats are exact
fractions that round once to nearest even, conversions follow docs/language.md.
"""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilelang.language as T
from frontend_run import TARGETS, compiled, defined
from tilelang.dtypes import DType

N = 24
FORMATS = {  # mantissa bits, least exponent of a normal number, greatest exponent
    "float64": (52, -1022, 1023),
    "float32": (23, -126, 127),
    "float16": (10, -14, 15),
    "bfloat16": (7, -126, 127),
    "float8_e5m2": (2, -14, 15),
    "float8_e4m3fn": (3, -6, 8),
}
LARGEST = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}
FLOATS = ["float64", "float32", "float16", "bfloat16"]
INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
INPUTS = [*FLOATS, *INTS, "bool", *LARGEST]
UNKNOWN = object()  # the language leaves the value open: x // 0, a negative shift, max(0.0, -0.0)

# -- exact arithmetic ------------------------------------------------------------------------------


def bits(t: str) -> int:
    return int("".join(c for c in t.split("_")[0] if c.isdigit()))


def wrap(x: int, t: str) -> int:
    x %= 1 << bits(t)
    return x - (1 << bits(t)) if t.startswith("int") and x >> (bits(t) - 1) else x


def rounded(x: Fraction, t: str, *, negative_zero: bool = False) -> float:
    """The nearest number of a format, ties to even, also subnormal; too large is infinite."""
    mantissa, least, most = FORMATS[t]
    if x == 0:
        return -0.0 if negative_zero else 0.0
    sign, size = (-1, -x) if x < 0 else (1, x)
    exponent = max(size.numerator.bit_length() - size.denominator.bit_length(), least)
    while Fraction(2) ** exponent > size and exponent > least:
        exponent -= 1
    while Fraction(2) ** (exponent + 1) <= size:
        exponent += 1
    unit = Fraction(2) ** (exponent - mantissa)
    steps, rest = divmod(size, unit)
    if rest * 2 > unit or (rest * 2 == unit and steps % 2):
        steps += 1
    found = steps * unit
    top = (
        Fraction(LARGEST[t])
        if t == "float8_e4m3fn"
        else (2 - Fraction(1, 2**mantissa)) * Fraction(2) ** most
    )
    return sign * (math.inf if found > top else float(found))


def to_float(x: Any, t: str) -> float:
    """A number as a float format; narrow formats saturate, infinity too."""
    if isinstance(x, float) and math.isnan(x):
        return math.nan
    if isinstance(x, float) and math.isinf(x):
        out = x
    else:
        negative = isinstance(x, float) and math.copysign(1, x) < 0
        out = rounded(Fraction(x), t, negative_zero=negative)
    if t in LARGEST and math.isinf(out):
        return math.copysign(LARGEST[t], out)
    return out


def cast(x: Any, t: str) -> Any:
    if t == "bool":
        return x != 0
    if t in FORMATS:
        return to_float(x, t)
    if not isinstance(x, float):
        return wrap(int(x), t)
    if math.isnan(x):
        return 0
    low = -(1 << (bits(t) - 1)) if t.startswith("int") else 0
    high = low + (1 << bits(t)) - 1
    return high if x >= high + 1 else low if x <= low else int(x)


def common(a: str, b: str) -> str:
    if a == b:
        return a
    if (a in FORMATS) != (b in FORMATS):
        return a if a in FORMATS else b
    if a in FORMATS:
        return "float16" if {a, b} == {"float16", "bfloat16"} else max(a, b, key=bits)
    if "bool" in (a, b):
        return b if a == "bool" else a
    if bits(a) == bits(b):
        return a if a.startswith("u") else b
    return max(a, b, key=bits)


def float_op(op: str, x: float, y: float, t: str) -> float:
    if math.isfinite(x) and math.isfinite(y) and not (op == "/" and y == 0):
        exact = EXACT[op](Fraction(x), Fraction(y))
        return rounded(exact, t, negative_zero=bool(np.signbit(in_float64(op, x, y))))
    return in_float64(op, x, y)  # infinities and NaN have no rounding


EXACT: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}


def in_float64(op: str, x: float, y: float) -> float:
    fn = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}[op]
    with np.errstate(all="ignore"):
        return float(fn(np.float64(x), np.float64(y)))


def int_op(op: str, x: int, y: int, t: str) -> Any:
    if op in ("//", "%", "T.truncdiv", "T.truncmod", "T.ceildiv") and y == 0:
        return UNKNOWN
    if op in ("<<", ">>") and y < 0:
        return UNKNOWN
    quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) if y else 0
    made = {
        "+": lambda: x + y, "-": lambda: x - y, "*": lambda: x * y, "//": lambda: x // y,
        "%": lambda: x % y, "T.truncdiv": lambda: quotient, "T.truncmod": lambda: x - y * quotient,
        "T.ceildiv": lambda: -(-x // y), "&": lambda: x & y, "|": lambda: x | y, "^": lambda: x ^ y,
        "<<": lambda: x << min(y, 70), ">>": lambda: x >> min(y, 70),
        "/": lambda: x // y if y else UNKNOWN,
    }[op]()  # fmt: skip
    return UNKNOWN if made is UNKNOWN else wrap(made, t)


def extreme(op: str, x: Any, y: Any) -> Any:
    if isinstance(x, float) and (math.isnan(x) or math.isnan(y)):
        return y if math.isnan(x) else x
    if isinstance(x, float) and x == y == 0 and math.copysign(1, x) != math.copysign(1, y):
        return UNKNOWN
    return max(x, y) if op == "T.max" else min(x, y)


COMPARES: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda x, y: x == y, "!=": lambda x, y: x != y, "<": lambda x, y: x < y,
    "<=": lambda x, y: x <= y, ">": lambda x, y: x > y, ">=": lambda x, y: x >= y,
}  # fmt: skip

# -- expressions -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Node:
    """An expression: its source text, its type, and its value where the inputs have values.

    `literal` is a plain number of Python. Two of them, or two constants, would be Python's to
    compute, so the first operand of everything reads an input.
    """

    text: str
    type: str
    value: Callable[[dict[str, Any]], Any]
    literal: bool = False


def strict(fn: Callable[..., Any], *nodes: Node) -> Callable[[dict[str, Any]], Any]:
    def value(env: dict[str, Any]) -> Any:
        args = [n.value(env) for n in nodes]
        return UNKNOWN if any(a is UNKNOWN for a in args) else fn(*args)

    return value


def binary(op: str, a: Node, b: Node) -> Node:
    t = common(a.type, b.type)
    text = f"{op}({a.text}, {b.text})" if op.startswith("T.") else f"({a.text} {op} {b.text})"
    if op in COMPARES:
        return Node(text, "bool", strict(lambda x, y: COMPARES[op](cast(x, t), cast(y, t)), a, b))
    if op in ("&", "|", "^") and t == "bool":
        fn = {"&": lambda x, y: x and y, "|": lambda x, y: x or y, "^": lambda x, y: x != y}[op]
        return Node(text, "bool", strict(fn, a, b))
    t = "int32" if t == "bool" else t
    if op in ("T.max", "T.min"):
        return Node(text, t, strict(lambda x, y: extreme(op, cast(x, t), cast(y, t)), a, b))
    if t in FORMATS:
        return Node(text, t, strict(lambda x, y: float_op(op, cast(x, t), cast(y, t), t), a, b))
    return Node(text, t, strict(lambda x, y: int_op(op, cast(x, t), cast(y, t), t), a, b))


def convert(a: Node, t: str) -> Node:
    return Node(f"T.cast({a.text}, '{t}')", t, strict(lambda x: cast(x, t), a))


def choose(c: Node, a: Node, b: Node, form: str) -> Node:
    t = common(a.type, b.type)

    def value(env: dict[str, Any]) -> Any:
        test = c.value(env)
        if test is UNKNOWN:
            return UNKNOWN
        x = (a if test != 0 else b).value(env)
        return UNKNOWN if x is UNKNOWN else cast(x, t)

    return Node(form.format(c=c.text, a=a.text, b=b.text), t, value)


def logical(word: str, a: Node, b: Node) -> Node:
    def value(env: dict[str, Any]) -> Any:
        x = a.value(env)
        if x is UNKNOWN or (x != 0) is (word == "or"):
            return x if x is UNKNOWN else word == "or"
        y = b.value(env)
        return y if y is UNKNOWN else y != 0

    return Node(f"({a.text} {word} {b.text})", "bool", value)


def negated(a: Node) -> Node:
    if a.type in FORMATS:
        return Node(f"(-{a.text})", a.type, strict(lambda x: -x, a))
    return Node(f"(-{a.text})", a.type, strict(lambda x: wrap(-x, a.type), a))


def inverted(a: Node) -> Node:
    if a.type == "bool":
        return Node(f"(~{a.text})", "bool", strict(lambda x: not x, a))
    return Node(f"(~{a.text})", a.type, strict(lambda x: wrap(~x, a.type), a))


def absolute(a: Node) -> Node:
    def fn(x: Any) -> Any:
        return abs(x) if a.type in FORMATS else wrap(abs(x), a.type)

    return Node(f"T.abs({a.text})", a.type, strict(fn, a))


def counted(name: str, a: Node) -> Node:
    def fn(x: int) -> int:
        word = x % (1 << bits(a.type))
        return word.bit_count() if name == "popcount" else bits(a.type) - word.bit_length()

    return Node(f"T.{name}({a.text})", "int32", strict(fn, a))


# -- generation ------------------------------------------------------------------------------------


@st.composite
def leaves(draw: st.DrawFn, inputs: dict[str, str]) -> Node:
    kind = draw(st.sampled_from(["input", "input", "input", "int", "float", "typed"]))
    if kind == "input":
        name = draw(st.sampled_from(sorted(inputs)))
        return Node(f"{name}[i]", inputs[name], lambda env: env[name])
    if kind == "float":
        x = draw(st.sampled_from([0.0, 0.5, -1.25, 3.0, 1e3, 0.1]))
        return Node(repr(x), "float32", lambda env: rounded(Fraction(x), "float32"), literal=True)
    if kind == "int":
        k = draw(st.integers(-5, 40))
        return Node(repr(k), "int32", lambda env: k, literal=True)
    t = draw(st.sampled_from([*INTS, *FLOATS]))
    k = draw(st.integers(-3, 130))
    return Node(f"T.{t}({k})", t, lambda env: cast(k, t))


def arithmetic(a: Node) -> Node:
    """An operand of arithmetic: narrow floats, whose arithmetic no rule fixes, become float32."""
    return convert(a, "float32") if a.type in LARGEST else a


@st.composite
def nodes(draw: st.DrawFn, inputs: dict[str, str], depth: int) -> Node:  # noqa: PLR0911
    if depth == 0:
        return draw(leaves(inputs))
    below = nodes(inputs, depth - 1)
    kind = draw(
        st.sampled_from(["binary"] * 4 + ["cast", "unary", "choose", "logical", "compare", "leaf"])
    )
    if kind == "leaf":
        return draw(leaves(inputs))
    a = draw(below)
    if "[i]" not in a.text:
        name = draw(st.sampled_from(sorted(inputs)))
        a = Node(f"{name}[i]", inputs[name], lambda env: env[name])
    match kind:
        case "cast":
            return convert(a, draw(st.sampled_from(INPUTS)))
        case "unary":
            return unary(
                draw(st.sampled_from(["-", "~", "abs", "popcount", "clz", "not"])), arithmetic(a)
            )
        case "choose":
            form = draw(
                st.sampled_from(
                    [
                        "({a} if {c} else {b})",
                        "T.if_then_else({c}, {a}, {b})",
                        "T.Select({c}, {a}, {b})",
                    ]
                )
            )
            return choose(a, arithmetic(draw(below)), arithmetic(typed(draw(below))), form)
        case "logical":
            return logical(draw(st.sampled_from(["and", "or"])), a, typed(draw(below)))
    a, b = arithmetic(a), arithmetic(draw(below))
    if draw(st.booleans()):
        a, b = b, a
    if kind == "compare":
        return binary(draw(st.sampled_from(sorted(COMPARES))), a, b)
    t = common(a.type, b.type)
    ops = ["+", "-", "*", "T.max", "T.min"]
    if t in FORMATS:
        ops += ["/"]
    else:
        ops += ["&", "|", "^", "<<", ">>", "//", "%", "T.truncdiv", "T.truncmod"]
        ops += ["/"] if t.startswith("u") else []
        ops += ["T.ceildiv"] if bits_safe(t) else []
    return binary(draw(st.sampled_from(ops)), a, b)


def bits_safe(t: str) -> bool:
    return t in ("int32", "int64", "uint32", "uint64")


def typed(a: Node) -> Node:
    """A plain number of Python, made a value of the kernel."""
    return Node(f"T.{a.type}({a.text})", a.type, a.value) if a.literal else a


def unary(op: str, a: Node) -> Node:
    integer = a.type not in FORMATS and a.type != "bool"
    match op:
        case "-" if a.type in FORMATS or a.type.startswith("int"):
            return negated(a)
        case "~" if a.type not in FORMATS:
            return inverted(a)
        case "abs" if a.type != "bool":
            return absolute(a)
        case "popcount" | "clz" if integer:
            return counted(op, a)
        case _:
            return Node(f"(not {a.text})", "bool", strict(lambda x: x == 0, a))


def elements(t: str, rng: random.Random) -> Any:
    """One value of a type: an end, a special value, a small one or any."""
    if t == "bool":
        return rng.random() < 0.5
    kind = rng.randrange(4)
    if t in FORMATS:
        special = [0.0, -0.0, 1.0, -1.0, 0.5, 65504.0, 1e-7, 3e38, math.inf, -math.inf, math.nan]
        small = float(rng.randint(-20, 20))
        wide = math.ldexp(rng.uniform(-2, 2), rng.choice([0, 3, 10, -20, 120, -140, 1000, -1060]))
        return to_float([rng.choice(special), small, rng.uniform(-100, 100), wide][kind], t)
    low = -(1 << (bits(t) - 1)) if t.startswith("int") else 0
    high = low + (1 << bits(t)) - 1
    end = rng.choice([low, low + 1, high - 1, high])
    return [end, rng.randint(max(low, -20), 40), rng.randint(0, 3), rng.randint(low, high)][kind]


@st.composite
def programs(draw: st.DrawFn) -> tuple[Node, dict[str, str], dict[str, list[Any]]]:
    inputs = {f"X{k}": draw(st.sampled_from(INPUTS)) for k in range(3)}
    node = typed(draw(nodes(inputs, draw(st.integers(1, 4)))))
    rng = random.Random(draw(st.integers(0, 1000)))
    return node, inputs, {n: [elements(t, rng) for _ in range(N)] for n, t in inputs.items()}


def stored(values: list[Any], t: str) -> np.ndarray:
    if t in FORMATS:
        return np.array(values, np.float64).astype(DType(t).numpy)
    return np.array(values, DType(t).numpy)


def run(
    node: Node, inputs: dict[str, str], values: dict[str, list[Any]], loop: str, target: str
) -> np.ndarray:
    parameters = ", ".join(f'{name}: T.Tensor(({N},), "{t}")' for name, t in inputs.items())
    source = f"""
def fn({parameters}, Y: T.Tensor(({N},), "{node.type}")):
    with T.Kernel(1, threads=32):
        for i in {loop}({N}):
            Y[i] = {node.text}
"""
    y = np.zeros(N, DType(node.type).numpy)
    kernel = compiled(T.prim_func(defined(source)), target)
    with np.errstate(all="ignore"):
        kernel(*(stored(values[name], t) for name, t in inputs.items()), y)
    return y


def check(
    node: Node, inputs: dict[str, str], values: dict[str, list[Any]], targets: Sequence[str]
) -> None:
    for loop, target in zip(("T.serial", "T.Parallel"), targets, strict=True):
        got = run(node, inputs, values, loop, target)
        assert str(DType(got.dtype)) == node.type
        for k in range(N):
            want = node.value({name: column[k] for name, column in values.items()})
            if want is UNKNOWN:
                continue
            found = float(got[k]) if node.type in FORMATS else got[k].item()
            same = found == want and repr(found) == repr(want)
            if not same and not (found != found and want != want):
                at = {name: column[k] for name, column in values.items()}
                pytest.fail(
                    f"{node.text} ({loop}, {target}) at {at} of {inputs}:"
                    f" got {found!r}, want {want!r}"
                )


@settings(max_examples=70, report_multiple_bugs=False)
@given(programs(), st.permutations(TARGETS))
def test_random_expressions(program, targets):
    """One target runs it in a loop, the other as iterations."""
    check(*program, targets)


OPERATORS = [
    "+", "-", "*", "//", "%", "/", "&", "|", "^", "<<", ">>", "T.max", "T.min", "T.truncdiv",
    "T.truncmod", *sorted(COMPARES),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("b", INPUTS)
@pytest.mark.parametrize("a", INPUTS)
def test_every_pair_of_types(a, b):
    """Every operator that the two types have, on the ends of both."""
    x, y = (Node(f"X{k}[i]", t, lambda env, k=k: env[f"X{k}"]) for k, t in enumerate((a, b)))
    x, y = arithmetic(x), arithmetic(y)
    t = common(x.type, y.type)
    made = []
    for op in OPERATORS:
        floats = t in FORMATS
        if floats and op in ("//", "%", "&", "|", "^", "<<", ">>", "T.truncdiv", "T.truncmod"):
            continue
        if op == "/" and not floats and not t.startswith("u"):
            continue
        made.append(binary(op, x, y))
    ends = {"X0": [], "X1": []}
    for name, t in (("X0", a), ("X1", b)):
        if t == "bool":
            some = [False, True]
        elif t in FORMATS:
            some = [to_float(v, t) for v in (0.0, 1.5, -2.0, 1e4, math.inf, math.nan)]
        else:
            low = -(1 << (bits(t) - 1)) if t.startswith("int") else 0
            some = [low, low + 1, 0, 1, 5, low + (1 << bits(t)) - 1]
        ends[name] = (some * N)[:N] if name == "X0" else [v for v in some for _ in range(4)]
        ends[name] = (ends[name] * N)[:N]
    # Of two types, one order goes to each target.
    first, second = INPUTS.index(a), INPUTS.index(b)
    for target, here in zip(TARGETS, (first <= second, first >= second), strict=True):
        if here:
            check_all(made, {"X0": a, "X1": b}, ends, target)


def check_all(
    made: list[Node], inputs: dict[str, str], values: dict[str, list[Any]], target: str
) -> None:
    """As `check`, all expressions in one kernel."""
    parameters = ", ".join(f'{name}: T.Tensor(({N},), "{t}")' for name, t in inputs.items())
    outputs = ", ".join(f'Y{k}: T.Tensor(({N},), "{n.type}")' for k, n in enumerate(made))
    stores = "\n".join(f"            Y{k}[i] = {n.text}" for k, n in enumerate(made))
    source = f"""
def fn({parameters}, {outputs}):
    with T.Kernel(1, threads=32):
        for i in T.Parallel({N}):
{stores}
"""
    ys = [np.zeros(N, DType(n.type).numpy) for n in made]
    kernel = compiled(T.prim_func(defined(source)), target)
    with np.errstate(all="ignore"):
        kernel(*(stored(values[name], t) for name, t in inputs.items()), *ys)
    for n, y in zip(made, ys, strict=True):
        for k in range(N):
            at = {name: column[k] for name, column in values.items()}
            want = n.value(at)
            found = float(y[k]) if n.type in FORMATS else y[k].item()
            same = want is UNKNOWN or (found == want and repr(found) == repr(want))
            assert same or (found != found and want != want), (n.text, at, found, want)


def test_the_reference_rounds_as_numpy_does():
    """The exact rounding above against NumPy's, where NumPy has the format."""
    rng = np.random.default_rng(5)
    for t, wide in (("float16", np.float32), ("float32", np.float64)):
        words = rng.integers(0, 1 << 62, 3000).astype(np.uint64)
        x = (
            words.view(np.float64)
            if wide is np.float64
            else words.astype(np.uint32).view(np.float32)
        )
        for v in x[np.isfinite(x)][:2000]:
            with np.errstate(all="ignore"):
                want = float(v.astype(t))
            assert repr(to_float(float(v), t)) == repr(want)
