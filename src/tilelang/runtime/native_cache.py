"""Native programs that exist already, in this process or on disk, and making those that do not.

What enters: a function of the tile stage, the target and the settings. What leaves: its
`NativeProgram`. Whether it was found or made shows in the trace and in the time it took, and in
nothing else.
"""

from __future__ import annotations

import weakref
import zlib
from typing import Any, cast

from tilelang.dtypes import DType
from tilelang.errors import Loc
from tilelang.ir.tile import Function
from tilelang.isa.target import Target
from tilelang.runtime.cache import Entry, Store
from tilelang.runtime.identity import key
from tilelang.runtime.native import NativeProgram, assembly
from tilelang.runtime.trace import Decisions, Declined, Trace
from tilelang.targets.cpu.built import Built, Failure, Printed
from tilelang.targets.cpu.llvm import host, machine, optimise

# Programs that some kernel holds. Weak, so that a process that makes many kernels and drops them
# does not grow.
_loaded: weakref.WeakValueDictionary[str, NativeProgram] = weakref.WeakValueDictionary()


def native_program(fn: Function, target: Target, trace: Trace) -> NativeProgram:
    """The function as machine code of the CPU. A `TileError` for what the target cannot run.

    With the cache disabled, or where the trace is asked for what only the compiler can tell, it is
    compiled whatever exists.
    """
    options = trace.options
    with trace.step("key"):
        name = key(fn, str(target), machine(), options)
    store = None if options.disable_cache else Store(options.cache_dir)
    if store is not None and not trace.is_asked:
        found = _loaded.get(name)
        if found is not None:
            trace.outcome = "shared with an equal kernel"
            trace.decisions = None
            return found
        made = _stored(store, name, trace)
        if made is not None:
            trace.outcome = "loaded from the cache"
            return _loaded.setdefault(name, made)
    built, code = _compiled(fn, target, trace)
    if store is not None:
        with trace.step("keep"):
            facts = {"kernel": fn.name, "target": str(target), **decided(trace)}
            store.put(name, _entry(facts, built, code))
    with trace.step("load"):
        made = NativeProgram(built, code)
    if store is not None:
        _loaded[name] = made
    return made


def _stored(store: Store, name: str, trace: Trace) -> NativeProgram | None:
    with trace.step("read"):
        entry = store.get(name)
        built = None if entry is None else _built(entry)
    if entry is None or built is None:
        return None
    declined = [Declined(*each) for each in entry.facts["declined"]]
    trace.decisions = Decisions(declined, entry.facts["notes"])
    with trace.step("load"):
        return NativeProgram(built, entry.blobs["code"])


def _compiled(fn: Function, target: Target, trace: Trace) -> tuple[Built, bytes]:
    """The module of the function and its object file."""
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
    return built, code


# ---- What is kept --------------------------------------------------------------------------------


def _entry(facts: dict[str, Any], built: Built, code: bytes) -> Entry:
    mine = {
        "vectorise": built.vectorise,
        "failures": [[f.message, f.kind, loc_facts(f.loc)] for f in built.failures],
        "prints": [[p.message, p.dtype, p.buffer] for p in built.prints],
        "slots": [[name, None if dtype is None else str(dtype)] for name, dtype in built.slots],
    }
    return Entry({**facts, **mine}, {"code": code, "text": zlib.compress(built.text.encode(), 1)})


def decided(trace: Trace) -> dict[str, Any]:
    """What the passes decided, as facts of an entry."""
    found = trace.decisions or Decisions()
    return {"declined": [[d.reason, d.place] for d in found.declined], "notes": found.notes}


def _built(entry: Entry) -> Built:
    """What `_entry` was made of; the key holds the compiler's version, so the form is known."""
    facts = cast("dict[str, Any]", entry.facts)
    return Built(
        zlib.decompress(entry.blobs["text"]).decode(),
        tuple(Failure(text, loc_of(at), kind) for text, kind, at in facts["failures"]),
        tuple(Printed(*each) for each in facts["prints"]),
        tuple((name, None if dtype is None else DType(dtype)) for name, dtype in facts["slots"]),
        facts["vectorise"],
    )


def loc_facts(loc: Loc | None) -> list[Any] | None:
    """A place as facts of an entry."""
    if loc is None:
        return None
    return [loc.file, loc.line, loc.col, loc.end_col, loc.function, loc_facts(loc.caller)]


def loc_of(facts: list[Any] | None) -> Loc | None:
    """The place that `loc_facts` wrote down."""
    if facts is None:
        return None
    *own, caller = facts
    return Loc(*own, caller=loc_of(caller))
