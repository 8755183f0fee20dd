"""What instructions do, by kind of instruction; importing this registers all of them."""

from __future__ import annotations

from tilelang.simulator.gpu.rows import (
    copies,
    launch_control,
    matrix,
    sync,
    tcgen05,
    tensor,
    updates,
    warp,
    wgmma,
)

__all__ = [
    "copies",
    "launch_control",
    "matrix",
    "sync",
    "tcgen05",
    "tensor",
    "updates",
    "warp",
    "wgmma",
]
