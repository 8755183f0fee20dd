"""Random programs, by Python on arrays and traced as a kernel: the same result, or a refusal."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import tilelang.language as T
from frontend_run import compiled, defined
from tilelang.errors import TileError

N = 8
VARS = ["v", "w"]  # variables of the kernel
NAMES = ["x", "y"]  # plain names
OUTCOMES: Counter[str] = Counter()


def indent(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


@st.composite
def expressions(draw: st.DrawFn, loops: tuple[str, ...], depth: int = 2) -> str:  # noqa: PLR0911
    kind = draw(st.integers(0, 7 if depth else 3))
    if kind == 0:
        return str(draw(st.integers(-3, 9)))
    if kind == 1:
        return draw(st.sampled_from([*VARS, *NAMES, *loops]))
    if kind == 2:
        return f"{draw(st.sampled_from('AB'))}[{draw(indices(loops))}]"
    if kind == 3:
        return draw(st.sampled_from([*VARS, "A[0]", "B[1]"]))
    a, b = draw(expressions(loops, depth - 1)), draw(expressions(loops, depth - 1))
    if kind == 4:
        return f"({a} {draw(st.sampled_from(['+', '-', '&', '|']))} {b})"
    if kind == 5:
        return f"({a} * {b} % 101)"
    test = draw(conditions(loops, depth - 1))
    return f"({a} if {test} else {b})" if kind == 6 else f"({a} if {test} else {a})"


@st.composite
def conditions(draw: st.DrawFn, loops: tuple[str, ...], depth: int = 1) -> str:
    a, b = draw(expressions(loops, depth)), draw(expressions(loops, depth))
    kind = draw(st.integers(0, 5))
    compare = f"{a} {draw(st.sampled_from(['<', '<=', '>', '==', '!=']))} {b}"
    if kind < 3 or depth == 0:
        return compare
    other = draw(conditions(loops, depth - 1))
    return [f"({compare} and {other})", f"({compare} or {other})", f"not ({compare})"][kind - 3]


@st.composite
def indices(draw: st.DrawFn, loops: tuple[str, ...]) -> str:
    return draw(st.sampled_from([*loops, "0", "1", "5", "-1", f"{N - 1}"]))


@st.composite
def simple(draw: st.DrawFn, loops: tuple[str, ...]) -> list[str]:
    value = draw(expressions(loops))
    target = draw(
        st.sampled_from([*VARS, *NAMES, f"A[{draw(indices(loops))}]", f"B[{draw(indices(loops))}]"])
    )
    match draw(st.integers(0, 4)):
        case 0:
            return [f"{target} {draw(st.sampled_from(['+=', '-=', '|=']))} {value}"]
        case 1:
            other = draw(st.sampled_from([*VARS, *NAMES, "A[2]", "B[3]"]))
            return [f"{target}, {other} = {other}, {value}"]
        case 2:
            return [f"{target} = B[4] = {value}"]
        case _:
            return [f"{target} = {value}"]


@st.composite
def statements(draw: st.DrawFn, loops: tuple[str, ...], depth: int, inside: bool) -> list[str]:
    if depth == 0:
        return draw(simple(loops))
    match draw(st.integers(0, 9)):
        case 0 | 1:
            lines = [
                f"if {draw(conditions(loops))}:",
                *indent(draw(blocks(loops, depth - 1, inside))),
            ]
            if draw(st.booleans()):
                lines += ["else:", *indent(draw(blocks(loops, depth - 1, inside)))]
            return lines
        case 2 | 3:
            name = f"i{len(loops)}"
            form = draw(
                st.sampled_from(
                    ["range(3)", "range(1, 6, 2)", "range(4, -1, -1)", "(1, 4)", "[2]", "range(0)"]
                )
            )
            return [
                f"for {name} in {form}:",
                *indent(draw(blocks((*loops, name), depth - 1, True))),
            ]
        case 4:
            head = [f"{VARS[0]} = {draw(st.integers(0, 4))}", f"while {VARS[0]} > 0:"]
            return [*head, *indent([f"{VARS[0]} -= 1", *draw(blocks(loops, depth - 1, True))])]
        case 5 if inside:
            return [draw(st.sampled_from(["break", "continue"]))]
        case _:
            return draw(simple(loops))


@st.composite
def blocks(draw: st.DrawFn, loops: tuple[str, ...], depth: int, inside: bool) -> list[str]:
    parts = [draw(statements(loops, depth, inside)) for _ in range(draw(st.integers(1, 3)))]
    return [line for part in parts for line in part]


@st.composite
def programs(draw: st.DrawFn) -> str:
    start = [
        f"v = var(init={draw(st.integers(-2, 5))})",
        f"w = var(init={draw(st.integers(-2, 5))})",
    ]
    if draw(st.booleans()):
        start.append("x = A[3]")
    if draw(st.booleans()):
        start.append("y = 2")
    end = ["B[6] = v", "B[7] = w"]
    return "\n".join(indent([*start, *draw(blocks((), 3, False)), *end]))


class TooLong(Exception):
    """Python takes too many steps."""


def by_python(body: str, a: np.ndarray, b: np.ndarray) -> tuple[list[int], list[int]] | None:
    """The arrays after Python ran the body; None where it fails or takes long."""
    steps = iter(range(20_000))
    lines = []
    for line in body.splitlines():
        lines.append(line)
        if line.lstrip().startswith("while "):
            lines.append(" " * (len(line) - len(line.lstrip()) + 4) + "step()")

    def step() -> None:
        if next(steps, None) is None:
            raise TooLong

    scope = {"var": lambda init: init, "step": step}
    exec("def fn(A, B):\n" + "\n".join(lines), scope)
    x, y = a.tolist(), b.tolist()
    try:
        scope["fn"](x, y)
    except (NameError, TooLong):
        return None
    big = any(abs(v) >= 2**31 for v in (*x, *y))
    return None if big else (x, y)


def by_kernel(body: str, a: np.ndarray, b: np.ndarray) -> tuple[list[int], list[int]] | None:
    """The arrays after the kernel ran; None where it is refused."""
    lines = "\n".join("    " + line for line in body.splitlines())
    source = f"""
def var(init):
    return T.alloc_var("int32", init=init)

def fn(A: T.Tensor(({N},), "int32"), B: T.Tensor(({N},), "int32")):
    with T.Kernel(1, threads=1):
{lines}
"""
    try:
        kernel = compiled(T.prim_func(defined(source)))
    except (TileError, NameError):
        return None
    x, y = a.copy(), b.copy()
    kernel(x, y)
    return x.tolist(), y.tolist()


@settings(max_examples=60, report_multiple_bugs=False)
@given(programs())
def test_random_programs(body):
    a = np.arange(N, dtype=np.int32) * 5 % 7 - 2
    b = np.arange(N, dtype=np.int32) - 3
    want = by_python(body, a, b)
    assume(want is not None)
    got = by_kernel(body, a, b)
    OUTCOMES["refused" if got is None else "same"] += 1
    assert got is None or got == want, body


def test_enough_programs_are_accepted():
    """The test above would pass if everything were refused."""
    assert not OUTCOMES or OUTCOMES["same"] > OUTCOMES["refused"] // 4, OUTCOMES
