"""NVIDIA GPUs: the facts of each architecture, from which everything that depends on one is chosen.

What enters: nothing. What leaves: `CHIPS`, one `Chip` for each architecture that is modelled. The
rest is imported where it is used: `rows` (the instructions), `program.emit` (a program as CUDA
C++), `nvrtc.compile_source` (machine code), `driver` (modules and launches on a device).
"""

from __future__ import annotations

from tilelang.targets.cuda.facts import CHIPS

__all__ = ["CHIPS"]
