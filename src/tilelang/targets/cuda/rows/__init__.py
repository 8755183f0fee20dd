"""The instructions of NVIDIA GPUs: one row each, by file of one kind.

What leaves: `ROWS`, the rows by name, those of no machine in particular (`isa/rows.py`) among them.
docs/instructions.md lists them; a template's form is described in `build`.
"""

from __future__ import annotations

from tilelang.isa.instr import Rows
from tilelang.isa.rows import GENERIC
from tilelang.isa.target import Target
from tilelang.targets.cuda.rows.build import LazyRows, made
from tilelang.targets.cuda.rows.copies import COPIES
from tilelang.targets.cuda.rows.matrix import FRAGMENTS, MMA
from tilelang.targets.cuda.rows.sync import SYNC
from tilelang.targets.cuda.rows.tcgen05 import TCGEN05
from tilelang.targets.cuda.rows.warp import WARP
from tilelang.targets.cuda.rows.wgmma import WGMMA

ROWS: Rows = LazyRows(
    made([*GENERIC.values(), *SYNC.values(), *COPIES.values(), *WARP.values(), *MMA, *FRAGMENTS]),
    WGMMA,
    TCGEN05,
)


def missing(name: str, target: Target) -> str:
    """Why `target` has not the instruction `name`; empty if it has it."""
    row = ROWS.get(name)
    if row is None:
        return f"no instruction is called {name!r}"
    if row.capability is None or target.supports(row.capability):
        return ""
    return f"{target} has not the capability {row.capability.name} ({row.capability.value})"
