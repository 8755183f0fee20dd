"""Ascend NPUs: the machine table of each chip, from which everything that depends on one is chosen.

What enters: nothing. What leaves: `CHIPS`, one `Chip` for each generation, and `MACHINES`, what is
known of each beyond that.
"""

from __future__ import annotations

from tilelang.targets.ascend.machine import CHIPS, MACHINES

__all__ = ["CHIPS", "MACHINES"]
