"""Powers of two of a whole fragment, by one instruction each where none of them is subnormal.

What enters: a function of the tile stage in which every statement is what one thread does. What
leaves: the same function; a nest that stores `exp2` of something into registers computes the
exponents first, and then the powers in one of two ways. `ex2.approx.ftz` is within 2 units of the
last place (PTX ISA, `ex2`), but gives 0 for results below 2**-126. CUDA's `exp2f` has the same
error and gives those too, which costs a comparison and two products for every element (CUDA C++
Programming Guide, Mathematical Functions). Here the comparisons are one for all elements of a
thread: of negative numbers, the one furthest from 0 has the largest word of bits.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import cast

from tilelang.dtypes import DType
from tilelang.ir.expr import (
    Binary,
    BinaryOp,
    Bitcast,
    Call,
    Const,
    Expr,
    Load,
    const,
    int_value,
)
from tilelang.ir.tile import Alloc, Block, For, Function, If, LoopKind, Stmt, Store
from tilelang.isa.target import Target
from tilelang.passes.build import Names, Renamer, map_bodies, plus, times
from tilelang.passes.simt.switches import is_off

U32 = DType("uint32")
LEAST = 0xC2FC0000
"""The bits of -126: all powers of exponents with smaller words are normal, infinite or NaN."""

NORMAL = ("normal",)
"""The setting of an `exp2` whose result is not subnormal."""

FEW, MOST_WAYS = 16, 4
"""Elements of a thread from which on the comparison is worth it, and comparisons side by side."""


def split_exponentials(fn: Function, target: Target) -> Function:
    """Nests of `exp2` look once at all of their exponents."""
    del target
    if is_off(fn, "exp2"):
        return fn
    names = Names(fn)

    def block(body: Block) -> Block:
        return tuple(made for s in body for made in (_split(s, names) or (map_bodies(s, block),)))

    return fn.with_(body=block(fn.body))


def _split(stmt: Stmt, names: Names) -> Block | None:
    """A nest in two steps, if it is one of `exp2`."""
    loops = _loops(stmt)
    store = loops[-1].body[0] if loops else None
    if not isinstance(store, Store) or not _is_power(store, loops):
        return None
    loc, into = store.loc, store.buffer
    ways, at = _side_by_side(loops)
    low = names.buffer("least", U32, (ways,), "local")
    element = Load(into, store.indices, loc=loc)
    exponent = store.with_(value=cast("Call", store.value).args[0])
    word = Binary(BinaryOp.MAX, Load(low, (at,)), Bitcast(element, U32))
    first = (exponent, Store(low, (at,), word, loc=loc))
    power = Call("exp2", (element,), into.dtype)
    slow, fast = (
        _nest(loops, (store.with_(value=power.with_(params=p)),), names, lockstep=True)
        for p in ((), NORMAL)
    )
    words: list[Expr] = [Load(low, (const(k),)) for k in range(ways)]
    most = functools.reduce(lambda a, b: Binary(BinaryOp.MAX, a, b), words)
    rare = Binary(BinaryOp.GT, most, Const(LEAST, U32))
    return (
        Alloc(low, loc=loc),
        *(Store(low, (const(k),), Const(0, U32), loc=loc) for k in range(ways)),
        *_nest(loops, first, names, lockstep=False),
        If(rare, slow, orelse=fast, loc=loc),
    )


def _side_by_side(loops: Sequence[For]) -> tuple[int, Expr]:
    """How many comparisons need not wait for each other, and which one an element takes part in."""
    ways, at = 1, const(0)
    for loop in reversed(loops):
        count = int_value(loop.stop) or 0
        if ways * count > MOST_WAYS:
            break
        at = plus(times(loop.var, ways), at)
        ways *= count
    return ways, at


def _loops(stmt: Stmt) -> list[For]:
    """The loops of a nest around one statement, none of which is left in text."""
    loops: list[For] = []
    at: Stmt = stmt
    while isinstance(at, For) and at.kind in (LoopKind.UNROLL, LoopKind.VECTORIZED):
        loops.append(at)
        if len(at.body) != 1:
            return []
        at = at.body[0]
    return loops


def _is_power(store: Store, loops: Sequence[For]) -> bool:
    """Whether a nest stores enough powers into registers."""
    count = 1
    for loop in loops:
        known = int_value(loop.start) == 0 and loop.step is None
        count *= (int_value(loop.stop) or 0) if known else 0
    value = store.value
    registers = store.buffer.scope == "local.fragment" and store.buffer.dtype.name == "float32"
    power = isinstance(value, Call) and value.fn == "exp2" and value.dtype.name == "float32"
    return registers and power and count >= FEW


def _nest(loops: Sequence[For], body: Block, names: Names, *, lockstep: bool) -> Block:
    """The loops around other statements, with names of their own."""
    for loop in reversed(loops):
        kind = loop.kind if lockstep else LoopKind.UNROLL
        body = (loop.with_(body=body, kind=kind),)
    return Renamer(names).block(body)
