"""Rows of what the threads of a warp do together: shuffles, votes, matches, reductions.

What leaves: `WARP`. In a meaning a scalar operand has the shape (32,), one value for each lane.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tilelang.isa.instr import Immediate, InstrRow, table
from tilelang.isa.target import Capability
from tilelang.targets.cuda.rows.build import COUNTS, choice, ptx, result, value

Values = npt.NDArray[Any]

_FULL = "0xffffffff"
_LANES = np.arange(32)


def _shuffled(
    value: Values, lane: Values, *, mode: str, width: int = 32, **_: Any
) -> tuple[Values]:
    """PTX ISA, shfl.sync: lanes outside the segment give the thread its own value."""
    first = _LANES // width * width
    inside = _LANES % width
    lane = np.asarray(lane, np.int64)
    at, ok = {
        "idx": (first + lane % width, np.ones(32, bool)),
        "bfly": (_LANES ^ lane, (inside ^ lane) < width),
        "up": (_LANES - lane, inside - lane >= 0),
        "down": (_LANES + lane, inside + lane < width),
    }[mode]
    return (np.where(ok, value[np.where(ok, at, 0)], value),)


SHUFFLES = [
    ptx(
        f"shfl.sync.{mode}",
        "shfl.sync",
        None,
        threads=32,
        ins=(value("value"), value("lane", *COUNTS)),
        results=(result("result", like="value"),),
        imm=(choice("width", 32, 16, 8, 4, 2, 1, optional=True), Immediate("mask", optional=True)),
        meaning=partial(_shuffled, mode=mode),
    )
    for mode in ("idx", "bfly", "up", "down")
]
"""`value` of the lane `lane` (idx), of the lanes whose numbers differ by it (bfly), or of the lane
that far below or above, within segments of `width` lanes. Any scalar type of at most 64 bits.
"""


def _all_lanes(predicate: Values, *, op: str, **_: Any) -> tuple[Values]:
    bits = int(np.sum(predicate.astype(np.uint64) << _LANES.astype(np.uint64)))
    found = {"any": bits != 0, "all": bits == 0xFFFFFFFF, "ballot": bits}[op]
    return (np.full(32, found, np.uint32 if op == "ballot" else np.int32),)


VOTES = [
    *(
        ptx(
            f"vote.sync.{op}",
            "vote.sync",
            f"{{{{ .reg .pred p, q; setp.ne.u32 p, {{predicate}}, 0; vote.sync.{op}.pred q, p,"
            f" {{mask:%|{_FULL}}}; selp.u32 {{result}}, 1, 0, q; }}}}",
            threads=32,
            ins=(value("predicate", "bool"),),
            results=(result("result", "int32"),),
            imm=(Immediate("mask", optional=True),),
            meaning=partial(_all_lanes, op=op),
        )
        for op in ("any", "all")
    ),
    ptx(
        "vote.sync.ballot",
        "vote.sync",
        "{{ .reg .pred p; setp.ne.u32 p, {predicate}, 0; vote.sync.ballot.b32 {result}, p,"
        f" {{mask:%|{_FULL}}}; }}}}",
        threads=32,
        ins=(value("predicate", "bool"),),
        results=(result("result", "uint32"),),
        imm=(Immediate("mask", optional=True),),
        meaning=partial(_all_lanes, op="ballot"),
    ),
    ptx(
        "activemask",
        "activemask",
        "activemask.b32 {result};",
        results=(result("result", "uint32"),),
    ),
]


def _matched(value: Values, *, op: str, **_: Any) -> tuple[Values]:
    raw = value.view(f"u{value.dtype.itemsize}")
    same = (raw[:, None] == raw[None, :]).astype(np.uint64)
    masks = np.sum(same << _LANES.astype(np.uint64), axis=1).astype(np.uint32)
    if op == "all":
        masks = np.where(masks == 0xFFFFFFFF, masks, 0).astype(np.uint32)
    return (masks,)


MATCHES = [
    ptx(
        f"match.{op}.sync",
        "match.sync",
        f"{{{{ {reg} match.{op}.sync.{{value.ptx_bits}} {dst}, {{value}}, {{mask:%|{_FULL}}}; }}}}",
        threads=32,
        ins=(value("value", "int32", "uint32", "float32", "int64", "uint64", "float64"),),
        results=(result("result", "uint32"),),
        imm=(Immediate("mask", optional=True),),
        meaning=partial(_matched, op=op),
    )
    for op, reg, dst in (("any", "", "{result}"), ("all", ".reg .pred p;", "{result}|p"))
]


def _reduced(value: Values, *, op: str, **_: Any) -> tuple[Values]:
    fn: Any = {
        "add": np.add,
        "min": np.minimum,
        "max": np.maximum,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
    }[op]
    return (np.full(32, fn.reduce(value), value.dtype),)


REDUX = [
    *(
        ptx(
            f"redux.sync.{op}.{kind}",
            "redux.sync",
            f"redux.sync.{op}.{kind} {{result}}, {{value}}, {{mask:%|{_FULL}}};",
            threads=32,
            ins=(value("value", *dtypes),),
            results=(result("result", like="value"),),
            imm=(Immediate("mask", optional=True),),
            meaning=partial(_reduced, op=op),
        )
        for kind, ops, dtypes in (
            ("s32", ("add", "min", "max"), ("int32",)),
            ("u32", ("add", "min", "max"), ("uint32",)),
            ("b32", ("and", "or", "xor"), COUNTS),
        )
        for op in ops
    ),
    *(
        ptx(
            f"redux.sync.{op}.f32",
            "redux.sync (sm_100a)",
            f"redux.sync.{op}.f32 {{result}}, {{value}}, {{mask:%|{_FULL}}};",
            Capability.TCGEN05,
            threads=32,
            ins=(value("value", "float32"),),
            results=(result("result", like="value"),),
            imm=(Immediate("mask", optional=True),),
            meaning=partial(_reduced, op=op),
        )
        for op in ("min", "max")
    ),
]

WARP: dict[str, InstrRow] = table([*SHUFFLES, *VOTES, *MATCHES, *REDUX])
