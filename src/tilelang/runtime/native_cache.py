"""Native programs of the CPU: found in the cache, or compiled and kept there.

What enters: a function of the tile stage, the target and the settings. What leaves: its
`NativeProgram`.
"""

from __future__ import annotations

import zlib
from typing import Any, cast

from tilelang.dtypes import DType
from tilelang.ir.tile import Function
from tilelang.isa.target import Target
from tilelang.runtime.cache import Entry
from tilelang.runtime.native import NativeProgram, assembly
from tilelang.runtime.programs import Programs, loc_facts, loc_of
from tilelang.runtime.trace import Trace
from tilelang.targets.cpu.built import Built, Failure, Printed
from tilelang.targets.cpu.llvm import host, machine, optimise

PROGRAMS: Programs[NativeProgram] = Programs()


def native_program(fn: Function, target: Target, trace: Trace) -> NativeProgram:
    """The function as machine code of the CPU. A `TileError` for what the target cannot run."""
    return PROGRAMS.obtain(
        fn,
        target,
        trace,
        machine=machine(),
        read=_read,
        make=lambda: _compiled(fn, target, trace),
    )


def _compiled(fn: Function, target: Target, trace: Trace) -> tuple[NativeProgram, Entry]:
    with trace.step("imports"):
        # On demand: a process that finds all its kernels starts without the compiler.
        from tilelang.passes.pipeline import lower
        from tilelang.targets.cpu.program import emit
    program = lower(fn, target, trace.stage)
    with trace.step("emit"):
        built = emit(program, host())
    trace.text("kernel.ll", built.text)
    with trace.step("optimise"):
        optimised = optimise(built.text, vectorise=built.vectorise)
    if trace.folder is not None:
        trace.text("kernel.opt.ll", optimised.text)
    with trace.step("object"):
        code = optimised.object()
    if trace.folder is not None:
        trace.text("kernel.s", assembly(built))
    with trace.step("load"):
        return NativeProgram(built, code), _entry(built, code)


# ---- What is kept --------------------------------------------------------------------------------


def _entry(built: Built, code: bytes) -> Entry:
    facts = {
        "vectorise": built.vectorise,
        "failures": [[f.message, f.kind, loc_facts(f.loc)] for f in built.failures],
        "prints": [[p.message, p.dtype, p.buffer] for p in built.prints],
        "slots": [[name, None if dtype is None else str(dtype)] for name, dtype in built.slots],
    }
    return Entry(facts, {"code": code, "text": zlib.compress(built.text.encode(), 1)})


def _read(entry: Entry) -> NativeProgram:
    """What `_entry` was made of; the key holds the compiler's version, so the form is known."""
    facts = cast("dict[str, Any]", entry.facts)
    built = Built(
        zlib.decompress(entry.blobs["text"]).decode(),
        tuple(Failure(text, loc_of(at), kind) for text, kind, at in facts["failures"]),
        tuple(Printed(*each) for each in facts["prints"]),
        tuple((name, None if dtype is None else DType(dtype)) for name, dtype in facts["slots"]),
        facts["vectorise"],
    )
    return NativeProgram(built, entry.blobs["code"])
