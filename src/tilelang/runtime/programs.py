"""Compiled programs that exist already, in this process or on disk, and keeping those made anew.

What enters: a function of the tile stage, what its code depends on, and how its target makes a
program and reads a kept one. What leaves: the program. Whether it was found or made shows in the
trace and in the time it took, and in nothing else.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from tilelang.errors import Loc
from tilelang.ir.tile import Function
from tilelang.isa.target import Target
from tilelang.runtime.cache import Entry, Store
from tilelang.runtime.identity import key
from tilelang.runtime.trace import Decisions, Declined, Trace

P = TypeVar("P")


class Programs(Generic[P]):
    """The programs of one kind in this process.

    Those that some kernel holds are shared. They are held weakly, so that a process that makes many
    kernels and drops them does not grow.
    """

    def __init__(self) -> None:
        self._held: weakref.WeakValueDictionary[str, P] = weakref.WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._held)

    def obtain(
        self,
        fn: Function,
        target: Target,
        trace: Trace,
        *,
        machine: Sequence[str],
        read: Callable[[Entry], P],
        make: Callable[[], tuple[P, Entry | None]],
    ) -> P:
        """The program of a function for `target`.

        `machine` is as of `identity.key`. `make` compiles, and gives beside the program what is to
        be kept of it, None for what cannot be; `read` is the way back. With the cache disabled, or
        where the trace is asked for what only the compiler can tell, `make` is called whatever
        exists.
        """
        options = trace.options
        if options.disable_cache:
            return make()[0]
        with trace.step("key"):
            name = key(fn, str(target), machine, options)
        store = Store(options.cache_dir)
        found = None if trace.is_asked else self._found(name, store, trace, read)
        if found is not None:
            return found
        made, entry = make()
        if entry is not None:
            with trace.step("keep"):
                facts = {"kernel": fn.name, "target": str(target), **_decided(trace)}
                store.put(name, Entry({**facts, **entry.facts}, entry.blobs))
        self._held[name] = made
        return made

    def _found(self, name: str, store: Store, trace: Trace, read: Callable[[Entry], P]) -> P | None:
        held = self._held.get(name)
        if held is not None:
            trace.outcome = "shared with an equal kernel"
            trace.decisions = None
            return held
        with trace.step("read"):
            entry = store.get(name)
        if entry is None:
            return None
        declined = [Declined(*each) for each in entry.facts["declined"]]
        trace.decisions = Decisions(declined, entry.facts["notes"])
        trace.outcome = "loaded from the cache"
        with trace.step("load"):
            return self._held.setdefault(name, read(entry))


def _decided(trace: Trace) -> dict[str, Any]:
    """What the passes decided, as facts of an entry."""
    found = trace.decisions or Decisions()
    return {"declined": [[d.reason, d.place] for d in found.declined], "notes": found.notes}


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
