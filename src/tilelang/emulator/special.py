"""The text of statements of `ir.special` that are not plain operations on tiles.

What enters: statements about reducers, random numbers, tests over elements, vectors and pointers.
What leaves: lines of the program. `STATEMENTS` is the table that the dispatcher looks in first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilelang.dtypes import DType
from tilelang.dtypes.convert import converter
from tilelang.emulator import elements, pointers, reducers, scalars, vectors
from tilelang.emulator.lanes import statements
from tilelang.emulator.philox import Distribution, Streams
from tilelang.emulator.storage import Access, Array, Index, Mask
from tilelang.emulator.unit import Unit
from tilelang.emulator.values import Val, tuple_text
from tilelang.errors import error
from tilelang.ir.special import (
    MakeTensor,
    Quantifier,
    ReducerFinalize,
    ReducerInit,
    ReducerUpdate,
    RngInit,
    RngNext,
    TestElements,
)
from tilelang.ir.tile import Block, Stmt, StoreVector

BOOL = DType("bool")

# -- random numbers --------------------------------------------------------------------------------

STREAMS = "_streams"
"""The name of the generators of the threads of the block."""


def begin_block(u: Unit, body: Block) -> None:
    """What a block needs before its first statement; `u.domain` are its threads."""
    if any(isinstance(s, (RngInit, RngNext)) for s in statements(body)):
        u.w.line(f"{STREAMS} = {u.constant('streams', Streams, 'class')}({u.domain.shape})")


def _rng_init(u: Unit, stmt: RngInit) -> None:
    if not u.domain.threads:
        raise error(
            "divergence",
            "T.rng_init inside T.Parallel: which thread runs an iteration is not defined",
            stmt.loc,
            help="start the generator before the loop",
        )
    parts = (stmt.seed, stmt.sequence, stmt.offset)
    u.begin(*parts)
    given = ", ".join(u.expr(e).code for e in parts)
    u.w.line(f"{STREAMS}.start({u.mask_text}, {given})")


_DISTRIBUTIONS = {
    "bits": ("uint32",),
    "uniform": ("float32", "float64"),
    "normal": ("float32", "float64"),
}


def _rng_next(u: Unit, stmt: RngNext) -> None:
    dtype = stmt.result.dtype
    if dtype.name not in _DISTRIBUTIONS.get(stmt.distribution, ()):
        raise error(
            "dtype",
            f"random numbers of distribution {stmt.distribution!r} as {dtype}",
            stmt.loc,
            expected="; ".join(f"{k}: {', '.join(v)}" for k, v in _DISTRIBUTIONS.items()),
        )
    request = Distribution(stmt.distribution, dtype.name)
    loc = u.constant("loc", stmt.loc, stmt.loc)
    what = u.constant("request", request, request)
    code = f"{STREAMS}.draw({what}, {u.domain.shape}, {u.mask_text}, {loc})"
    v = scalars.from_numpy(code, dtype, Val("", dtype, u.domain.all))
    u.w.line(f"{u.w.name(stmt.result.name)} = {v.code}")
    u.define(stmt.result, v)


# -- tests over elements ---------------------------------------------------------------------------


def _test(u: Unit, stmt: TestElements) -> None:
    """Whether any (all) elements are not zero; for each lane, where they look at different ones."""
    u.begin(stmt.src)
    s = u.storage(stmt.src.buffer)
    if s.scalar:
        code, axes = f"bool({s.name} != 0)", frozenset[int]()
    else:
        mins = [u.expr(e) for e in stmt.src.mins]
        extents = [u.expr(e) for e in stmt.src.extents]
        if any(e.axes for e in extents):
            u.refuse_threads(f"the extents of a test of {stmt.src.buffer.name} differ")
        axes = u.domain.all if s.lanes else frozenset[int]().union(*(m.axes for m in mins))
        fn = u.constant("test_elements", test_elements, "fn")
        lead = tuple_text(u.axis_array(k) for k in range(u.domain.rank)) if s.lanes else "()"
        box = f"({tuple_text(m.code for m in mins)}, {tuple_text(n.code for n in extents)})"
        place = u.access_name(stmt.src.buffer, stmt.src.loc)
        mask = u.mask_text if axes else "None"
        quantifier = u.constant("quantifier", stmt.quantifier, stmt.quantifier)
        code = f"{fn}({quantifier}, {s.name}, {lead}, {box}, {place}, {mask})"
    v = scalars.from_numpy(code, BOOL, Val("", BOOL, axes))
    u.w.line(f"{u.w.name(stmt.result.name)} = {v.code}")
    u.define(stmt.result, v)


Indices = tuple[Index, ...]


def test_elements(
    quantifier: Quantifier,
    array: Array,
    lead: Indices,
    box: tuple[Indices, tuple[int, ...]],
    access: Access,
    mask: Mask | None,
) -> Any:
    """Any (all) over a box of each lane; `lead` are the indices of the lanes' own instances."""
    mins, extents = box
    rank = len(extents)
    at: list[Any] = [_spread(i, rank) for i in lead]
    for d, (low, n) in enumerate(zip(mins, extents, strict=True)):
        at.append(_spread(low, rank) + np.arange(n).reshape((n,) + (1,) * (rank - 1 - d)))
    values = elements.gather(
        array, tuple(at), access, None if mask is None else _spread(mask, rank)
    )
    truth = converter(access.dtype, BOOL)(values)
    fold = np.any if quantifier is Quantifier.ANY else np.all
    return fold(truth, axis=tuple(range(-rank, 0)))


def _spread(x: Any, rank: int) -> Any:
    """A value of each lane with more axes behind those of the lanes."""
    return np.asarray(x).reshape(*np.shape(x), *(1,) * rank)


STATEMENTS: dict[type[Stmt], Callable[[Unit, Any], None]] = {
    MakeTensor: pointers.make_tensor,
    ReducerInit: reducers.open_,
    ReducerUpdate: reducers.update,
    ReducerFinalize: reducers.close,
    RngInit: _rng_init,
    RngNext: _rng_next,
    StoreVector: vectors.store,
    TestElements: _test,
}
"""How each of these statements is translated."""
