"""Programs of the thread stage on a GPU, with NumPy arrays copied in and out.

What enters: a program and arguments by name. What leaves: the arrays as the program left them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilelang.ir.thread import Program
from tilelang.isa.target import Target, parse_target
from tilelang.runtime.cuda import CudaProgram
from tilelang.targets import CHIPS
from tilelang.targets.cuda.driver import driver
from tilelang.targets.cuda.nvrtc import Flags, compile_source
from tilelang.targets.cuda.program import emit

ARCHS = tuple(c.name for c in CHIPS if c.backend == "cuda")


WGMMA_WIDTHS = {16: 3, 8: 6, 32: 6}
"""Of the widths of wgmma each so-manieth is tried."""
LARGEST = 1 << 31
"""Multiplications of the largest product that is tried."""


def chip(arch: str) -> Target:
    """The target of an architecture."""
    return parse_target(f"cuda:{arch}", CHIPS)


def device_arch() -> str:
    """The architecture of the first device."""
    return driver().device(0).arch


def built(program: Program, *, fmad: bool = False) -> CudaProgram:
    """The program in machine code of the first device; products and sums are not contracted."""
    arch = device_arch()
    made = emit(program, chip(arch))
    return CudaProgram(made, compile_source(made.text, arch, Flags(fmad=fmad)))


def run(program: CudaProgram, args: Mapping[str, Any]) -> None:
    """Run it; arrays are written back in place."""
    api = driver()
    api.use(0)
    addresses: dict[str, int] = {}
    values: dict[str, Any] = {}
    for name, x in args.items():
        if isinstance(x, np.ndarray):
            assert x.flags.c_contiguous
            values[name] = addresses[name] = api.allocate(x.nbytes, 0)
            api.copy_in(addresses[name], x.ctypes.data, x.nbytes, 0)
        else:
            values[name] = 0 if x is None else x
    try:
        program.call([values[name] for name, _ in program.built.slots], 0, 0)
        for name, address in addresses.items():
            api.copy_out(args[name].ctypes.data, address, args[name].nbytes, 0)
    finally:
        for address in addresses.values():
            api.free(address, 0)
