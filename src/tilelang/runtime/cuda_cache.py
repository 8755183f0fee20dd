"""CUDA programs that exist already, in this process or on disk, and making those that do not.

What enters: a function of the tile stage, the target and the settings. What leaves: its
`CudaProgram`. No device is needed.
"""

from __future__ import annotations

import weakref
import zlib
from typing import Any, cast

from tilelang.dtypes import DType
from tilelang.ir.tile import Function
from tilelang.isa.target import Target
from tilelang.options import Options
from tilelang.passes.pipeline import lower
from tilelang.runtime.cache import Entry, Store
from tilelang.runtime.cuda import CudaProgram
from tilelang.runtime.identity import key
from tilelang.runtime.native_cache import decided, loc_facts, loc_of
from tilelang.runtime.trace import Decisions, Declined, Trace
from tilelang.targets.cuda.host import Host, MapFacts
from tilelang.targets.cuda.nvrtc import Cubin, Flags, Resources, compile_source, version
from tilelang.targets.cuda.program import Built, KernelFacts, emit
from tilelang.targets.cuda.statements import Failure

_loaded: weakref.WeakValueDictionary[str, CudaProgram] = weakref.WeakValueDictionary()


def cuda_program(fn: Function, target: Target, trace: Trace) -> CudaProgram:
    """The function as machine code of a GPU. A `TileError` for what the target cannot run.

    With the cache disabled, or where the trace is asked for what only the compiler can tell, it is
    compiled whatever exists.
    """
    options = trace.options
    with trace.step("key"):
        name = key(fn, str(target), [f"NVRTC {version()}"], options)
    store = None if options.disable_cache else Store(options.cache_dir)
    if store is not None and not trace.is_asked:
        found = _loaded.get(name)
        if found is not None:
            trace.outcome = "shared with an equal kernel"
            trace.decisions = None
            return found
        made = _stored(store, name, target, trace)
        if made is not None:
            trace.outcome = "loaded from the cache"
            return _loaded.setdefault(name, made)
    made = _compiled(fn, target, trace)
    if store is not None:
        if not made.built.host.exprs:
            with trace.step("keep"):
                facts = {"kernel": fn.name, "target": str(target), **decided(trace)}
                store.put(name, _entry(facts, made))
        _loaded[name] = made
    return made


def flags_of(options: Options) -> Flags:
    """What the settings say to the device compiler."""
    level = options.ptxas_register_usage_level
    more = [] if level is None else [f"--ptxas-options=--register-usage-level={level}"]
    return Flags(fast_math=options.enable_fast_math, more=(*more, *options.device_compile_flags))


def _compiled(fn: Function, target: Target, trace: Trace) -> CudaProgram:
    program = lower(fn, target, trace.stage)
    with trace.step("emit"):
        built = emit(program, target)
    trace.text("kernel.cu", built.plain)
    arch = built.arch
    with trace.step("nvrtc"):
        cubin = compile_source(built.text, arch, flags_of(trace.options))
    return CudaProgram(built, cubin)


def _stored(store: Store, name: str, target: Target, trace: Trace) -> CudaProgram | None:
    with trace.step("read"):
        entry = store.get(name)
        if entry is None:
            return None
        declined = [Declined(*each) for each in entry.facts["declined"]]
        trace.decisions = Decisions(declined, entry.facts["notes"])
        return _program(entry, target)


# ---- What is kept --------------------------------------------------------------------------------


def _entry(facts: dict[str, Any], made: CudaProgram) -> Entry:
    built, cubin = made.built, made.cubin
    mine = {
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
    return Entry({**facts, **mine}, blobs)


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
