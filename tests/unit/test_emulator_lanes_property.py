"""Random programs give the same results one element after the other, by threads and by iterations.

One after the other is plain Python control flow, and so the reference for masks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as some

from emulator_build import TX, TY, add, buf, e, kernel, ld, mul, op, run, st, var
from tilelang.ir.expr import Expr, Load, Select
from tilelang.ir.tile import Alloc, Break, Continue, For, If, Let, Parallel, Stmt, While

N = 12
A, C, D = buf("A", "int32", N), buf("C", "int32", N), buf("D", "int32", N)
X, Y = (buf(n, "int32", 1, scope="local.var") for n in "xy")
T = buf("t", "int32", 4, scope="local")
I = var("i")


class Names:
    """Fresh names for the loops of one program."""

    def __init__(self) -> None:
        self.count = 0

    def loop(self) -> Any:
        self.count += 1
        return var(f"k{self.count}")


LEAVES = [e(0), e(1), e(3), e(-2), I, ld(X, 0), ld(Y, 0), ld(A, I), ld(T, op("%", I, 4))]

# A loop on global memory may wait for other blocks, which is another story.
OWN: list[Expr] = [x for x in LEAVES if not (isinstance(x, Load) and x.buffer is A)]


def numbers(loops: list[Any], depth: int = 2) -> some.SearchStrategy[Expr]:
    leaf = some.sampled_from([*LEAVES, *loops])
    if depth == 0:
        return leaf
    inner = numbers(loops, depth - 1)
    pair = some.builds(op, some.sampled_from(["+", "-", "*", "min", "max"]), inner, inner)
    chosen = some.builds(
        lambda c, t, f: Select(c, t, f, lazy=True), conditions(loops), inner, inner
    )
    return leaf | pair | chosen


def conditions(loops: list[Any], leaves: list[Expr] = LEAVES) -> some.SearchStrategy[Expr]:
    leaf = some.sampled_from([*leaves, *loops])
    compare = some.builds(op, some.sampled_from(["<", ">=", "==", "!="]), leaf, leaf)
    odd = some.builds(lambda a: op("==", op("%", a, 2), 1), leaf)
    return compare | odd


@some.composite
def blocks(draw: Any, names: Names, loops: list[Any], depth: int) -> tuple[Stmt, ...]:
    return tuple(draw(statement(names, loops, depth)) for _ in range(draw(some.integers(1, 3))))


def store(name: str, index: Expr, value: Expr) -> Stmt:
    match name:
        case "t":
            return st(T, op("%", index, 4), value)
        case "c":
            return st(C, I, add(mul(ld(C, I), 3), value))
        case _:
            return st(X if name == "x" else Y, 0, value)


@some.composite
def statement(draw: Any, names: Names, loops: list[Any], depth: int) -> Stmt:
    kinds = ["x", "y", "t", "c"] + (["if", "if", "for", "while"] if depth else [])
    kinds += ["break", "continue"] if loops else []
    match draw(some.sampled_from(kinds)):
        case "x" | "y" | "t" | "c" as name:
            return store(name, draw(numbers(loops, 0)), draw(numbers(loops)))
        case "if":
            then, orelse = (draw(blocks(names, loops, depth - 1)) for _ in range(2))
            return If(draw(conditions(loops)), then, orelse=orelse if draw(some.booleans()) else ())
        case "for":
            k = names.loop()
            stop = op("%", draw(numbers(loops, 1)), 5)
            return For(
                k, e(draw(some.integers(-1, 1))), stop, draw(blocks(names, [*loops, k], depth - 1))
            )
        case "while":
            return bounded_while(draw, names, loops, depth)
        case "break":
            return Break()
        case _:
            return Continue()


def bounded_while(draw: Any, names: Names, loops: list[Any], depth: int) -> Stmt:
    """A while loop that ends: it counts a variable of its own, inside a loop of one round."""
    k = names.loop()
    left = buf(f"left_{k.name}", "int32", 1, scope="local.var")
    more = op("and", op("<", ld(left, 0), 4), draw(conditions(loops, OWN)))
    count = st(left, 0, add(ld(left, 0), 1))
    inner = (count, *draw(blocks(names, loops, depth - 1)))
    return For(k, e(0), e(1), (Alloc(left), While(more, inner)))


@some.composite
def programs(draw: Any) -> tuple[Stmt, ...]:
    names = Names()
    start = (Alloc(X, init=ld(A, I)), Alloc(Y), Alloc(T), *(st(T, k, mul(I, k)) for k in range(4)))
    return (
        *start,
        *draw(blocks(names, [], 3)),
        st(D, I, add(ld(X, 0), mul(ld(Y, 0), 7), ld(T, 2))),
    )


def results(body: tuple[Stmt, ...], way: str) -> list[np.ndarray]:
    if way == "serial":
        fn = kernel([A, C, D], For(I, e(0), e(N), body))
    elif way == "parallel":
        fn = kernel([A, C, D], Parallel((I,), (e(N),), body))
    elif way == "threads":
        fn = kernel([A, C, D], Let(I, TX), *body, threads=(N,))
    else:
        fn = kernel([A, C, D], Let(I, add(mul(TY, 3), TX)), *body, threads=(3, 4))
    a = np.array([0, 1, 2, 3, -5, 7, 100, 4, 4, -1, 6, 11], np.int32)
    c, d = np.arange(N, dtype=np.int32), np.zeros(N, np.int32)
    run(fn, A=a, C=c, D=d)
    return [c, d]


@settings(max_examples=80)
@given(programs())
def test_masks_mean_what_control_flow_means(body):
    want = results(body, "serial")
    for way in ("parallel", "threads", "threads 2d"):
        for got, reference in zip(results(body, way), want, strict=True):
            np.testing.assert_array_equal(got, reference, err_msg=way)
