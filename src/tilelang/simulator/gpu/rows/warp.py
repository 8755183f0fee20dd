"""What the lanes of a warp do together: shuffles, votes, matches, reductions.

PTX ISA 9.0: shfl.sync, vote.sync, match.sync, redux.sync, activemask. Values are (warps, 32).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilelang.simulator.gpu.arrays import Mask, Values
from tilelang.simulator.gpu.block import WARP
from tilelang.simulator.gpu.rows.registry import Use, row

_LANE = np.arange(WARP)


def _here(use: Use) -> Mask:
    """The lanes that take part, and that the mask of the instruction names."""
    named = use.imm.get("mask")
    here = use.group.lanes(use.mask).reshape(-1, WARP)
    if named is None:
        return here
    return here & np.array([named >> k & 1 for k in range(WARP)], np.bool_)


@row("shfl.sync.*")
def shuffle(use: Use) -> tuple[Values]:
    """The value of another lane; a lane outside the segment gives the thread its own."""
    value, by = use.group.warp_rows(use.ins[0]), use.group.warp_rows(use.ins[1]).astype(np.int64)
    width = use.imm.get("width") or WARP
    first, inside = _LANE // width * width, _LANE % width
    mode = use.facts.parts[-1]
    if mode == "idx":
        source, legal = first + by % width, np.ones_like(by, np.bool_)
    elif mode == "bfly":
        source, legal = _LANE ^ by, (inside ^ by) < width
    elif mode == "up":
        source, legal = _LANE - by, inside >= by
    else:
        source, legal = _LANE + by, inside + by < width
    at = np.where(legal, source, _LANE)
    here = use.group.lanes(use.mask).reshape(-1, WARP)
    if (here & ~np.take_along_axis(here, at, axis=1)).any():
        raise use.fault(
            "divergence",
            f"{use.facts.row} reads the value of a lane that does not take part",
            help="let all lanes of the warp reach it",
        )
    return (np.take_along_axis(value, at, axis=1).reshape(-1),)


@row("vote.sync.any", "vote.sync.all")
def vote(use: Use) -> tuple[Values]:
    """Whether a predicate holds for any lane, or for all."""
    here, p = _here(use), use.group.warp_rows(use.ins[0]).astype(np.bool_)
    some = use.facts.parts[-1] == "any"
    found = (p & here).any(axis=1) if some else (p | ~here).all(axis=1)
    return (np.repeat(found, WARP).astype(np.int32),)


def _bits(lanes: Mask) -> Values:
    """Lanes (..., 32) as a word."""
    weights = np.uint64(1) << _LANE.astype(np.uint64)
    return (lanes * weights).sum(axis=-1).astype(np.uint32)


@row("vote.sync.ballot")
def ballot(use: Use) -> tuple[Values]:
    """The lanes for which a predicate holds."""
    p = use.group.warp_rows(use.ins[0]).astype(np.bool_)
    return (np.repeat(_bits(p & _here(use)), WARP),)


@row("activemask")
def active(use: Use) -> tuple[Values]:
    """The lanes that are here."""
    return (np.repeat(_bits(use.group.lanes(use.mask).reshape(-1, WARP)), WARP),)


@row("match.any.sync", "match.all.sync")
def match(use: Use) -> tuple[Values]:
    """The lanes that have the same value; for `all`, none unless all have."""
    here, value = _here(use), use.group.warp_rows(use.ins[0])
    raw = np.ascontiguousarray(value).view(f"u{value.dtype.itemsize}")
    same = (raw[:, :, None] == raw[:, None, :]) & here[:, None, :]
    words = _bits(same)
    if use.facts.parts[1] == "all":
        words = np.where(words == _bits(here)[:, None], words, 0).astype(np.uint32)
    return (words.reshape(-1),)


_REDUCTIONS: dict[str, Any] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


@row("redux.sync.*")
def redux(use: Use) -> tuple[Values]:
    """The values of the lanes joined."""
    here, value = _here(use), use.group.warp_rows(use.ins[0])
    function = _REDUCTIONS[use.facts.parts[2]]
    found = np.zeros(value.shape, value.dtype)
    for w in np.flatnonzero(here.any(axis=1)):
        found[w] = function.reduce(value[w][here[w]])
    return (found.reshape(-1),)
