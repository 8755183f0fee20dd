"""Rows of SIMT functions: what their threads do together.

What leaves: `SIMT`. The rows have the names that `passes/simt` gives them, of PTX; a warp has 32
threads here as well (CANN SIMT API, `asc_shfl_xor`). What they mean is what threads in lockstep do,
in `simulator/ascend/functions.py`.
"""

from __future__ import annotations

from tilelang.ir.ascend import Core, Pipe
from tilelang.ir.node import Effect
from tilelang.isa.instr import Immediate, Is, OperandRow
from tilelang.targets.ascend.rows.build import PipeRow

_SOURCE = "CANN asc-devkit, simt_api/asc_simt.h: asc_syncthreads, asc_shfl*"
_COUNTS = ("int32", "uint32")


def _shuffle(kind: str) -> PipeRow:
    return PipeRow(
        f"shfl.sync.{kind}",
        _SOURCE,
        ins=(
            OperandRow("value", kind=Is.VALUE),
            OperandRow("lane", kind=Is.VALUE, dtypes=_COUNTS),
        ),
        results=(OperandRow("result", Effect.WRITE, kind=Is.VALUE, like="value"),),
        imm=(Immediate("width", int, (32, 16, 8, 4, 2, 1), True), Immediate("mask", optional=True)),
        threads=32,
        pipe=Pipe.V,
        core=Core.VECTOR,
    )


SIMT = [
    *(_shuffle(kind) for kind in ("idx", "bfly", "up", "down")),
    PipeRow(
        "barrier.sync",
        _SOURCE,
        imm=(Immediate("id"), Immediate("threads")),
        threads=0,
        waits=True,
        orders="accesses of the threads of a function",
        pipe=Pipe.V,
        core=Core.VECTOR,
    ),
    PipeRow(
        "bar.warp.sync",
        _SOURCE,
        imm=(Immediate("mask"),),
        threads=32,
        waits=True,
        orders="accesses of the threads of a warp",
        pipe=Pipe.V,
        core=Core.VECTOR,
    ),
]
"""Shuffles and barriers."""
