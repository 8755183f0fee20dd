"""The instructions of Ascend cores: one row each, by file of one kind.

What leaves: `rows_of(chip)`, the rows of a chip by name. A row is what an emitter prints as one
call and what the simulator does in one piece. Chips differ in the order of fractals in L0A and L0B,
and in what they lack (`missing`).
"""

from __future__ import annotations

from functools import cache

from tilelang.isa.instr import Rows, table
from tilelang.isa.rows import GENERIC
from tilelang.isa.target import Capability
from tilelang.scopes import Memory
from tilelang.targets.ascend.machine import MACHINES, Format
from tilelang.targets.ascend.rows.build import PipeRow
from tilelang.targets.ascend.rows.copies import COPIES
from tilelang.targets.ascend.rows.cube import cube_rows, inner_first, outer_first
from tilelang.targets.ascend.rows.scaled import scaled_rows
from tilelang.targets.ascend.rows.simd import SIMD
from tilelang.targets.ascend.rows.simt import SIMT
from tilelang.targets.ascend.rows.sync import SYNC
from tilelang.targets.ascend.rows.vector import VECTOR

_ORDERS = {
    Format.ZZ: outer_first,  # of A (m, k): fractals along k follow each other
    Format.NZ: inner_first,  # of B (k, n): fractals along n
    Format.ZN: inner_first,  # of A (m, k): fractals along m, as in L1
}


@cache
def rows_of(chip: str) -> Rows:
    """The rows of the chip of that name, those of no machine in particular among them."""
    machine = MACHINES[chip]
    a, b = (_ORDERS[machine.formats[m][0]] for m in (Memory.L0A, Memory.L0B))
    lacking = (
        set[str]()
        if machine.chip.sync and machine.chip.sync.mutexes
        else {"mutex.lock", "mutex.unlock"}
    )
    has = machine.chip.capabilities
    functions = [*SIMT, *SIMD] if Capability.SIMT_FUNCTION in has else []
    scaled = scaled_rows(a, b) if Memory.L0A_SCALE in machine.chip.memories else []
    own = [*COPIES, *cube_rows(a, b), *scaled, *SYNC, *VECTOR, *functions]
    return table([*GENERIC.values(), *(row for row in own if row.name not in lacking)])


__all__ = ["PipeRow", "rows_of"]
