"""Source for Ascend NPUs, printed from the thread-stage program that the simulator runs."""

from __future__ import annotations

from tilelang.targets.ascend.emit.asc import emit_asc

__all__ = ["emit_asc"]
