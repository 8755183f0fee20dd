"""What the threads of a warp or block do together, on arrays of one value per thread.

What enters: the statement `Collective` and its values. What leaves: one value per thread. Threads
are counted x fastest, 32 to a warp. A lane that does not take part, or does not exist, is not read:
who would get its value keeps its own, which the hardware leaves undefined.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import numpy.typing as npt

from tilelang.emulator import scalars
from tilelang.emulator.agents import Agent
from tilelang.emulator.barriers import Wait
from tilelang.emulator.storage import Array
from tilelang.emulator.unit import Unit
from tilelang.emulator.values import UNIFORM, Val
from tilelang.errors import Loc, error
from tilelang.ir.special import COLLECTIVES, Collective, Group
from tilelang.ir.sync import WARP

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


def collective(u: Unit, stmt: Collective) -> None:
    """One collective operation of the threads that are active here."""
    row = COLLECTIVES[stmt.fn]
    if not u.domain.threads:
        raise error(
            "divergence",
            f"T.{stmt.fn} inside T.Parallel: which thread runs an iteration is not defined",
            stmt.loc,
            help="write the code for one thread with T.get_thread_binding()",
        )
    u.begin(*stmt.args)
    args = [scalars.as_numpy(u, u.expr(e)) for e in stmt.args]
    values = f"({', '.join(args)}{',' if args else ''})"
    given = f"{values}, {stmt.params!r}, {u.mask_text}, {u.domain.shape}"
    if row.group is Group.BLOCK:
        place = u.constant("loc", stmt.loc, stmt.loc)
        if u.ways is not None:
            fn = u.constant("of_block", of_block, "of_block")
            lanes = f"{u.mask_text}, {u.domain.shape}, {place}"
            code = f"(yield from {fn}(agent, {u.ways.team!r}, {stmt.fn!r}, {args[0]}, {lanes}))"
        else:
            fn = u.constant("alone", alone, "alone")
            code = (
                f"{fn}(machine, {stmt.fn!r}, {args[0]}, {u.mask_text}, {u.domain.shape}, {place})"
            )
    else:
        fn = u.constant("of_warp", of_warp, "of_warp")
        first = ", agent.first" if u.agents else ""
        code = f"{fn}({stmt.fn!r}, {given}{first})"
    axes = u.domain.all if stmt.differs else UNIFORM
    v = scalars.from_numpy(code, stmt.result.dtype, Val("", stmt.result.dtype, axes))
    u.w.line(f"{u.w.name(stmt.result.name)} = {v.code}")
    u.define(stmt.result, v)


def _spread(x: Any, shape: tuple[int, ...]) -> Array:
    """One value per thread, in rows of a warp; threads that do not exist hold the last's value."""
    flat = np.broadcast_to(x, shape).reshape(-1)
    short = -len(flat) % WARP
    return np.concatenate([flat, np.repeat(flat[-1:], short)]).reshape(-1, WARP)


def _active(mask: Bools | None, shape: tuple[int, ...]) -> Bools:
    flat = np.ones(shape, np.bool_) if mask is None else np.broadcast_to(mask, shape)
    short = -flat.size % WARP
    return np.concatenate([flat.reshape(-1), np.zeros(short, np.bool_)]).reshape(-1, WARP)


def of_warp(
    fn: str,
    args: tuple[Any, ...],
    params: tuple[int, ...],
    mask: Bools | None,
    shape: tuple[int, ...],
    first: int = 0,
) -> Array:
    """The value of each thread, in the shape of the threads; `first` is the number of the first."""
    values = [_spread(a, shape) for a in args]
    here = _active(mask, shape)
    out = elect(first, params[0], here) if fn == "elect" else _FUNCTIONS[fn](values, params, here)
    return np.broadcast_to(out, here.shape).reshape(-1)[: int(np.prod(shape))].reshape(shape)


# -- shuffles -------------------------------------------------------------------------------------

_LANE: Ints = np.arange(WARP)


def _taken(values: Array, source: Ints, legal: Bools, here: Bools) -> Array:
    """`values` of the lanes `source`; where that is not legal or not active, the own value."""
    at = np.where(legal, source, _LANE)
    given = np.take_along_axis(here, at, axis=1)
    at = np.where(given, at, _LANE)
    return np.take_along_axis(values, at, axis=1)


def _shuffle(kind: str) -> Callable[[list[Array], tuple[int, ...], Bools], Array]:
    def fn(args: list[Array], params: tuple[int, ...], here: Bools) -> Array:
        values, width = args[0], params[0]
        other = args[1].astype(np.int64) % WARP  # the instruction takes five bits
        base = _LANE // width * width
        match kind:
            case "shfl_sync":
                source = base + other % width
                legal = np.ones_like(here)
            case "shfl_up":
                source = _LANE - other
                legal = source >= base
            case "shfl_down":
                source = _LANE + other
                legal = source < base + width
            case _:
                source = _LANE ^ other
                legal = source < base + width
        legal = legal & (source >= 0) & (source < WARP)
        return _taken(values, np.where(legal, source, 0), legal, here)

    return fn


# -- votes and matches -----------------------------------------------------------------------------


def _named(params: tuple[int, ...], here: Bools) -> Bools:
    """The active lanes that the mask (the last setting) names."""
    bits = params[-1] if params else 0xFFFFFFFF
    return here & ((bits >> _LANE & 1) != 0)


def _bits(lanes: Bools) -> npt.NDArray[np.uint64]:
    weights = np.uint64(1) << _LANE.astype(np.uint64)
    return np.where(lanes, weights, np.uint64(0)).sum(axis=-1, dtype=np.uint64)


def _any(args: list[Array], params: tuple[int, ...], here: Bools) -> Array:
    found = (args[0].astype(np.bool_) & _named(params, here)).any(axis=1, keepdims=True)
    return np.broadcast_to(found, here.shape).astype(np.int32)


def _all(args: list[Array], params: tuple[int, ...], here: Bools) -> Array:
    found = (args[0].astype(np.bool_) | ~_named(params, here)).all(axis=1, keepdims=True)
    return np.broadcast_to(found, here.shape).astype(np.int32)


def _ballot(args: list[Array], params: tuple[int, ...], here: Bools) -> Array:
    found = _bits(args[0].astype(np.bool_) & _named(params, here))
    return np.broadcast_to(found[:, None], here.shape)


def _activemask(args: list[Array], params: tuple[int, ...], here: Bools) -> Array:
    return np.broadcast_to(_bits(here)[:, None], here.shape)


def _same(values: Array) -> Bools:
    """For each lane, the lanes that hold the same bits."""
    raw = np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")
    return raw[:, :, None] == raw[:, None, :]


def _match_any(args: list[Array], params: tuple[int, ...], here: Bools) -> Array:
    lanes = _same(args[0]) & _named(params, here)[:, None, :]
    return _bits(lanes).astype(np.uint32)


def _match_all(args: list[Array], params: tuple[int, ...], here: Bools) -> Array:
    named = _named(params, here)
    equal = (_same(args[0]) | ~named[:, None, :]).all(axis=2)
    agreed = (equal | ~named).all(axis=1, keepdims=True)
    return np.where(agreed, _bits(named)[:, None], np.uint64(0)).astype(np.uint32)


# -- reductions ------------------------------------------------------------------------------------


def _reduction(
    combine: Callable[[Array, Array], Array],
) -> Callable[[list[Array], tuple[int, ...], Bools], Array]:
    """A butterfly over the warp: partners 16, 8, 4, 2, 1 lanes away; missing lanes are left out."""

    def fn(args: list[Array], params: tuple[int, ...], here: Bools) -> Array:
        values, there = args[0].copy(), here.copy()
        for step in (16, 8, 4, 2, 1):
            other = values[:, _LANE ^ step]
            partner = there[:, _LANE ^ step]
            both = combine(values, other).astype(values.dtype)
            values = np.where(there & partner, both, np.where(there, values, other))
            there = there | partner
        return values

    return fn


def elect(first: int, size: int, here: Bools) -> Array:
    """The first active thread in the first warp of each group of `size` threads (of the block with
    0).
    """
    warp = first // WARP + np.arange(len(here))
    leads = warp == 0 if size == 0 else warp % (size // WARP) == 0
    return leads[:, None] & here & (here.cumsum(axis=1) == 1)


_FUNCTIONS: dict[str, Callable[[list[Array], tuple[int, ...], Bools], Array]] = {
    **{name: _shuffle(name) for name in ("shfl_sync", "shfl_xor", "shfl_up", "shfl_down")},
    "any_sync": _any,
    "all_sync": _all,
    "ballot_sync": _ballot,
    "activemask": _activemask,
    "match_any_sync": _match_any,
    "match_all_sync": _match_all,
    "warp_reduce_sum": _reduction(np.add),
    "warp_reduce_max": _reduction(np.fmax),
    "warp_reduce_min": _reduction(np.fmin),
    "warp_reduce_bitand": _reduction(np.bitwise_and),
    "warp_reduce_bitor": _reduction(np.bitwise_or),
}


# -- the whole block -------------------------------------------------------------------------------


def _result(fn: str, holds: int, threads: int) -> int:
    return {"syncthreads_count": holds, "syncthreads_and": int(holds == threads)}.get(
        fn, int(holds > 0)
    )


def _held(x: Any, mask: Bools | None, shape: tuple[int, ...]) -> int:
    active = np.ones(shape, np.bool_) if mask is None else np.broadcast_to(mask, shape)
    return int((np.broadcast_to(x, shape).astype(np.bool_) & active).sum())


def alone(
    machine: Any,
    fn: str,
    holds: Any,
    mask: Bools | None,
    shape: tuple[int, ...],
    loc: Loc | None,
) -> int:
    """A counting barrier of a block that runs in lockstep."""
    threads = int(np.prod(shape))
    if mask is not None:
        machine.sync(mask, shape, loc, None)
        threads = int(np.broadcast_to(mask, shape).sum())
    return _result(fn, _held(holds, mask, shape), threads)


def of_block(
    agent: Agent, team: tuple[int, ...], fn: str, holds: Any, *lanes: Any
) -> Generator[Wait, None, int]:
    """A counting barrier of a block whose threads run in several agents; `lanes` are the mask of
    active threads, their shape, and the place in the program.
    """
    shape: tuple[int, ...]
    mask, shape, loc = lanes
    total = yield from agent.count_threads(team, _held(holds, mask, shape), mask, loc)
    return _result(fn, *total)
