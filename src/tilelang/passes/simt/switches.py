"""Which optimisations of the lowering are left out.

What enters: the settings of a compilation, or names. What leaves: the names in the attribute
`without` of a function or program, where passes look. Results do not depend on them, but for
`guards` and `barriers`, whose absence is the author's risk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tilelang.errors import error
from tilelang.ir.thread import Program
from tilelang.ir.tile import Alloc, Function
from tilelang.options import Options
from tilelang.scopes import Dialect, Memory, memory_of

SWITCHES = {
    "warp-specialize": "a warp of its own issues the copies of pipelined loops",
    "tma": "tensor copies move tiles",
    "tma-store": "tensor copies store results",
    "persistent": "blocks of a product stay, and take tiles in turn",
    "wgmma": "warpgroups multiply asynchronously",
    "overlap": "warpgroups compute while they multiply",
    "cp-async": "pipelined loops copy ahead with cp.async",
    "exp2": "powers of two of a fragment look once whether one is subnormal",
    "memory-reuse": "shared arrays that are not needed at the same time share a place",
    "list-schedule": "independent operations of an Ascend core group change places",
    "guards": "accesses outside of global arrays are kept away",
    "barriers": "threads meet where one uses what another one wrote to the author's shared arrays",
}
"""What may be left out, and what it does."""

WITHOUT, UNORDERED = "without", "unordered"


def left_out(options: Options) -> tuple[str, ...]:
    """What the settings leave out."""
    found = dict.fromkeys(options.without)
    unknown = [name for name in found if name not in SWITCHES]
    if unknown:
        raise error(
            "option",
            f"TILEWRIGHT_WITHOUT names {unknown[0]!r}",
            expected=", ".join(SWITCHES),
            got=repr(unknown[0]),
        )
    found |= dict.fromkeys(_by_key(options))
    return tuple(sorted(found))


def _by_key(options: Options) -> Iterator[str]:
    """What upstream's keys leave out."""
    yield from ("exp2",) if options.enable_fast_math else ()  # the compiler flushes these
    yield from ("warp-specialize",) if options.disable_warp_specialized else ()
    yield from ("tma", "tma-store") if options.disable_tma_lower else ()
    yield from ("wgmma",) if options.disable_wgmma else ()
    yield from () if options.enable_async_copy else ("cp-async",)
    yield from ("memory-reuse",) if options.disable_shared_memory_reuse else ()
    yield from ("guards",) if options.disable_safe_memory_access else ()
    yield from ("barriers",) if options.disable_thread_storage_sync else ()


def switched(fn: Function, without: Iterable[str]) -> Function:
    """A function that is lowered without some optimisations."""
    names = tuple(without)
    if not names:
        return fn
    dialect = Dialect(fn.dialect)
    more: tuple[tuple[str, tuple[str, ...]], ...] = ((WITHOUT, names),)
    if "barriers" in names:
        memories = ((s.buffer.name, memory_of(dialect, s.buffer.scope)) for s in _allocs(fn))
        more += ((UNORDERED, tuple(n for n, m in memories if m is Memory.SHARED)),)
    return fn.with_(attrs=(*fn.attrs, *more))


def _allocs(fn: Function) -> Iterator[Alloc]:
    return (n for n in fn.walk() if isinstance(n, Alloc))


def is_off(root: Function | Program, name: str) -> bool:
    """Whether something is left out of the lowering of a function or program."""
    return name in dict(root.attrs).get(WITHOUT, ())


def unordered(program: Program) -> frozenset[str]:
    """The author's shared arrays that no barrier is put around. What passes exchange through arrays
    of their own is always ordered.
    """
    return frozenset(dict(program.attrs).get(UNORDERED, ()))
