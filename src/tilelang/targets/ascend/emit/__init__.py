"""Source for Ascend NPUs, printed from the thread-stage program that the simulator runs."""

from __future__ import annotations

from tilelang.ir.thread import Program
from tilelang.targets.ascend.emit.asc import emit_asc
from tilelang.targets.ascend.emit.ascendc import emit_ascendc


def emit(program: Program, chip: str) -> str:
    """The source of a program for a chip. A `TileError` for what has no form there."""
    return emit_asc(program) if chip == "ascend950" else emit_ascendc(program, chip)


__all__ = ["emit", "emit_asc", "emit_ascendc"]
