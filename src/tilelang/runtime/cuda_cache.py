"""CUDA programs that exist already, in this process or on disk, and making those that do not.

What enters: a function of the tile stage, the target and the settings. What leaves: its
`CudaProgram`. No device is needed.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import Any, cast

from tilelang.dtypes import DType
from tilelang.ir.thread import Kernel, Program
from tilelang.ir.tile import Function
from tilelang.isa.target import Target
from tilelang.options import Options
from tilelang.passes.build import map_kernels
from tilelang.passes.pipeline import lower
from tilelang.passes.simt.switches import left_out
from tilelang.runtime.cache import Entry
from tilelang.runtime.cuda import CudaProgram
from tilelang.runtime.programs import Programs, loc_facts, loc_of
from tilelang.runtime.trace import Trace
from tilelang.targets.cuda.host import Host, MapFacts
from tilelang.targets.cuda.nvrtc import (
    Cubin,
    Flags,
    GivenUp,
    Resources,
    compile_source,
    version,
)
from tilelang.targets.cuda.occupancy import occupancy
from tilelang.targets.cuda.program import Built, KernelFacts, emit
from tilelang.targets.cuda.statements import Failure

PROGRAMS: Programs[CudaProgram] = Programs()

OVERLAP = "overlap"
"""What is left out where ptxas serialises products."""

FEW_REGISTERS, MOST_SPILLED = 40, 16
"""Registers of a thread of kernels that are compiled again for a full SM, those that move memory
rather than multiply; and bytes that this may make a thread spill.
"""


def cuda_program(fn: Function, target: Target, trace: Trace) -> CudaProgram:
    """The function as machine code of a GPU. A `TileError` for what the target cannot run."""
    found = PROGRAMS.obtain(
        fn,
        target,
        trace,
        machine=[f"NVRTC {version()}"],
        read=lambda entry: _program(entry, target),
        make=lambda: _made(fn, target, trace),
    )
    if trace.decisions is not None:  # else it is shared, and has them
        found.decided = trace.decisions.lines()
    return found


def _made(fn: Function, target: Target, trace: Trace) -> tuple[CudaProgram, Entry | None]:
    made = _compiled(fn, target, trace)
    return made, None if made.built.host.exprs else _entry(made)


def flags_of(options: Options) -> Flags:
    """What the settings say to the device compiler."""
    level = options.ptxas_register_usage_level
    more = [] if level is None else [f"--ptxas-options=--register-usage-level={level}"]
    return Flags(fast_math=options.enable_fast_math, more=(*more, *options.device_compile_flags))


def _compiled(fn: Function, target: Target, trace: Trace) -> CudaProgram:
    """The program; without products that overlap if the compiler does not follow there."""
    without = left_out(trace.options)
    try:
        made, overlaps = _lowered(fn, target, trace, without)
    except GivenUp:
        if OVERLAP in without:
            raise
    else:
        if OVERLAP in without or not (overlaps and made.cubin.starved):
            return made
    return _lowered(fn, target, trace, (*without, OVERLAP))[0]


def _lowered(
    fn: Function, target: Target, trace: Trace, without: Sequence[str]
) -> tuple[CudaProgram, bool]:
    """The program, and whether products of it overlap with what follows them."""
    program = lower(fn, target, trace.stage, without)
    with trace.step("emit"):
        built = emit(program, target)
    flags = flags_of(trace.options)
    with trace.step("nvrtc"):
        cubin = compile_source(built.text, built.arch, flags, fn.loc)
        built, cubin = _filled(program, (built, cubin), flags)
    trace.text("kernel.cu", built.plain)
    kinds = [note[0] for note in dict(program.attrs).get("notes", ())]
    return CudaProgram(built, cubin), "overlapped" in kinds


def _filled(program: Program, made: tuple[Built, Cubin], flags: Flags) -> tuple[Built, Cubin]:
    """The same with fewer registers, where a few less let an SM hold as many threads as it can and
    cost next to no spills.
    """
    built, cubin = made
    most: dict[str, int] = {}
    for k in built.kernels:
        used, chip, threads = cubin.resources.get(k.symbol), built.target.chip, math.prod(k.block)
        limits = None if chip is None else chip.threads
        if used is None or chip is None or limits is None or used.registers > FEW_REGISTERS:
            continue
        shared = k.shared + used.shared
        found = occupancy(chip, registers=used.registers, threads=threads, shared=shared)
        if found.limit == "registers":
            warps = -(-threads // limits.warp_size.value)
            most[k.name] = limits.warps_per_core.value // warps
    if not most:
        return made

    def wish(kernel: Kernel) -> Kernel:
        return kernel.with_(min_blocks=kernel.min_blocks or most.get(kernel.name, 0))

    fuller = emit(map_kernels(program, wish), built.target)
    again = compile_source(fuller.text, built.arch, flags)
    spilled = max((r.spill_stores for r in again.resources.values()), default=0)
    return made if spilled > MOST_SPILLED else (fuller, again)


# ---- What is kept --------------------------------------------------------------------------------


def _entry(made: CudaProgram) -> Entry:
    built, cubin = made.built, made.cubin
    facts = {
        "name": built.name,
        "arch": cubin.arch,
        "failures": [[f.message, f.kind, loc_facts(f.loc)] for f in built.failures],
        "slots": [[name, None if dtype is None else str(dtype)] for name, dtype in built.slots],
        "host": built.host.lines,
        "maps": [list(vars(m).values()) for m in built.host.maps],
        "kernels": [list(vars(k).values()) for k in built.kernels],
        "resources": {n: list(vars(r).values()) for n, r in cubin.resources.items()},
        "warnings": cubin.warnings,
    }
    blobs = {"code": cubin.code, "text": zlib.compress(built.plain.encode(), 1)}
    return Entry(facts, blobs)


def _program(entry: Entry, target: Target) -> CudaProgram:
    """What `_entry` was made of; the key holds the compiler's version, so the form is known."""
    facts = cast("dict[str, Any]", entry.facts)
    text = zlib.decompress(entry.blobs["text"]).decode()
    maps = [MapFacts(a, d, tuple(box), *rest) for a, d, box, *rest in facts["maps"]]
    built = Built(
        facts["name"],
        text,
        text,
        Host(facts["host"], maps),
        tuple(_kernel(k) for k in facts["kernels"]),
        tuple(Failure(said, loc_of(at), kind) for said, kind, at in facts["failures"]),
        tuple((name, None if dtype is None else DType(dtype)) for name, dtype in facts["slots"]),
        target,
    )
    resources = {n: Resources(*numbers) for n, numbers in facts["resources"].items()}
    cubin = Cubin(entry.blobs["code"], facts["arch"], resources, tuple(facts["warnings"]))
    return CudaProgram(built, cubin)


def _kernel(facts: list[Any]) -> KernelFacts:
    name, symbol, params, block, cluster, *rest = facts
    kinds = tuple(p if p in (None, "map") else DType(p) for p in params)
    return KernelFacts(name, symbol, kinds, tuple(block), tuple(cluster), *rest)
