"""NVIDIA GPUs: the facts of each architecture, from which everything that depends on one is chosen.

What enters: nothing. What leaves: `CHIPS`, one `Chip` for each architecture that is modelled.
"""

from __future__ import annotations

from tilelang.targets.cuda.facts import CHIPS

__all__ = ["CHIPS"]
