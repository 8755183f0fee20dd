"""The memory scopes: which memory an allocation function gives, and under which scope string.

What enters: a dialect, the name of an allocation function, an element type's name and an explicit
`scope=`. What leaves: the declared scope string (what `buffer.scope()` says) and the canonical
`Memory` (what every pass uses). `SCOPES` has one row per dialect and allocation function,
`MEMORIES` one per memory; the allocation functions, the checker, the capacity report and
`tilewright scopes` read these tables and nothing else.
"""

from __future__ import annotations

import difflib
import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tilelang.errors import TileError, error


class Memory(enum.Enum):
    """A canonical memory: where a buffer's elements are, whatever a dialect calls it.

    Static and dynamic shared memory are one memory (`SHARED`): they lie in the same storage, and
    only a limit of their own separates static allocations, which `Per.BLOCK_STATIC` of a chip's
    capacities states. `UB_OR_L1` and `L0_BY_USE` are what the adapter's `alloc_shared` and
    `alloc_fragment` give: the operations that touch the buffer decide, so a pass replaces them by
    one of `facts(memory).resolves_to` before it plans memory. `REGISTERS` is never declared by an
    allocation; fragments, locals and variables are drawn from it.
    """

    GLOBAL = "global"
    SHARED = "shared"
    REGISTERS = "registers"
    FRAGMENT = "fragment"
    LOCAL = "local"
    VAR = "var"
    REDUCER = "reducer"
    DESCRIPTOR = "descriptor"
    BARRIER = "barrier"
    CLUSTER_BARRIER = "cluster_barrier"
    TMEM = "tensor_memory"
    UB = "ub"
    L1 = "l1"
    L0A = "l0a"
    L0B = "l0b"
    L0C = "l0c"
    L0A_SCALE = "l0a_scale"
    L0B_SCALE = "l0b_scale"
    UB_OR_L1 = "ub_or_l1"
    L0_BY_USE = "l0_by_use"

    @property
    def title(self) -> str:
        """The memory's name in sentences."""
        return facts(self).title


class Visibility(enum.Enum):
    """Who sees one instance of a buffer."""

    GRID = "all blocks of a launch"
    BLOCK = "the threads of one block"
    THREAD = "one thread"


class Unit(enum.Enum):
    """What a memory is counted in."""

    BYTES = "bytes"
    REGISTERS = "32-bit registers"
    COLUMNS = "columns of 128 lanes x 32 bit"


@dataclass(frozen=True)
class MemoryFacts:
    """What is true of a memory on every chip that has it.

    `pool` is the memory whose capacity it draws on; `divided` says that a buffer is spread over the
    threads of its block, so that its footprint is its size divided by their number; `nearest` are
    the memories to suggest, best first, to a program that must do without this one.
    """

    title: str
    visible: Visibility
    unit: Unit
    pool: Memory
    on_chip: bool = True
    divided: bool = False
    resolves_to: tuple[Memory, ...] = ()
    nearest: tuple[Memory, ...] = ()


def _block(title: str, pool: Memory, nearest: tuple[Memory, ...] = ()) -> MemoryFacts:
    return MemoryFacts(title, Visibility.BLOCK, Unit.BYTES, pool, nearest=nearest)


def _thread(title: str, nearest: tuple[Memory, ...] = ()) -> MemoryFacts:
    return MemoryFacts(title, Visibility.THREAD, Unit.REGISTERS, Memory.REGISTERS, nearest=nearest)


def _spread(title: str, nearest: tuple[Memory, ...] = ()) -> MemoryFacts:
    return replace(_thread(title, nearest), visible=Visibility.BLOCK, divided=True)


MEMORIES: Mapping[Memory, MemoryFacts] = {
    Memory.GLOBAL: MemoryFacts(
        "global memory", Visibility.GRID, Unit.BYTES, Memory.GLOBAL, on_chip=False
    ),
    Memory.SHARED: _block("shared memory", Memory.SHARED, (Memory.UB, Memory.UB_OR_L1)),
    Memory.REGISTERS: _thread("registers"),
    Memory.FRAGMENT: _spread(
        "registers split over a block's threads", (Memory.L0_BY_USE, Memory.L0C)
    ),
    Memory.LOCAL: _thread("registers of one thread", (Memory.VAR,)),
    Memory.VAR: _thread("a scalar of one thread"),
    Memory.REDUCER: _spread("a reducer's partial results", (Memory.FRAGMENT,)),
    Memory.DESCRIPTOR: _thread("a descriptor register"),
    Memory.BARRIER: _block("mbarriers in shared memory", Memory.SHARED),
    Memory.CLUSTER_BARRIER: _block(
        "cluster mbarriers in shared memory", Memory.SHARED, (Memory.BARRIER,)
    ),
    Memory.TMEM: MemoryFacts(
        "Tensor Memory",
        Visibility.BLOCK,
        Unit.COLUMNS,
        Memory.TMEM,
        nearest=(Memory.L0C, Memory.FRAGMENT),
    ),
    Memory.UB: _block("Unified Buffer (UB)", Memory.UB, (Memory.UB_OR_L1, Memory.SHARED)),
    Memory.L1: _block("L1 buffer", Memory.L1, (Memory.UB_OR_L1, Memory.SHARED)),
    Memory.L0A: _block("L0A buffer", Memory.L0A, (Memory.L0_BY_USE, Memory.FRAGMENT)),
    Memory.L0B: _block("L0B buffer", Memory.L0B, (Memory.L0_BY_USE, Memory.FRAGMENT)),
    Memory.L0C: _block("L0C buffer", Memory.L0C, (Memory.L0_BY_USE, Memory.FRAGMENT)),
    # Scale factors lie in slots tied to the tile's own address and take no storage of their own.
    Memory.L0A_SCALE: _block("scale factors of an L0A tile", Memory.L0A_SCALE),
    Memory.L0B_SCALE: _block("scale factors of an L0B tile", Memory.L0B_SCALE),
    Memory.UB_OR_L1: replace(
        _block("Unified Buffer or L1, by use", Memory.UB_OR_L1, (Memory.UB, Memory.SHARED)),
        resolves_to=(Memory.UB, Memory.L1),
    ),
    Memory.L0_BY_USE: replace(
        _block("L0A, L0B or L0C, by use", Memory.L0_BY_USE, (Memory.FRAGMENT,)),
        resolves_to=(Memory.L0C, Memory.L0A, Memory.L0B),
    ),
}


def facts(memory: Memory) -> MemoryFacts:
    """The facts of `memory` that hold on every chip."""
    return MEMORIES[memory]


class Dialect(enum.Enum):
    """A family of allocation names. Import path and names used decide a kernel's dialect."""

    COMMON = "common"
    ASCEND = "ascend"
    ADAPTER = "adapter"

    @property
    def about(self) -> DialectFacts:
        """Where this dialect comes from, and the version whose strings it declares."""
        return DIALECTS[self]


@dataclass(frozen=True)
class DialectFacts:
    """A dialect's name in sentences, the tree and version it follows, and its import path.

    `allocate` is the file of that tree with the allocation functions.
    """

    title: str
    tree: str
    version: str
    module: str
    allocate: str

    @property
    def source(self) -> str:
        """Where this dialect's scopes are declared."""
        return f"{self.tree} {self.version}, {self.allocate}"


DIALECTS: Mapping[Dialect, DialectFacts] = {
    Dialect.COMMON: DialectFacts(
        title="common dialect",
        tree="tilelang",
        version="0.1.15",
        module="tilelang.language",
        allocate="tilelang/language/allocate.py",
    ),
    Dialect.ASCEND: DialectFacts(
        title="mainline Ascend dialect",
        tree="tilelang",
        version="0.1.15",
        module="tilelang.ascend.language",
        allocate="tilelang/ascend/language/allocate.py",
    ),
    Dialect.ADAPTER: DialectFacts(
        title="Ascend adapter dialect",
        tree="tilelang-ascend",
        version="0.1.2.000",
        module="tilelang.language",
        allocate="tilelang/language/allocate.py",
    ),
}


@dataclass(frozen=True)
class Newer:
    """What a later tree of the same dialect declares; taken as `scope=`, it means the row's own."""

    version: str
    scope: str
    bool_scope: str | None = None


@dataclass(frozen=True)
class ScopeRow:
    """One allocation function of one dialect.

    `scope` is declared by default. `bool_scope`, where set, is declared for dtype bool and
    overrides `scope=`. `explicit` are the strings that `scope=` takes and keeps; `synonyms` are
    further strings for the same memory that no function declares by default; `newer` are strings of
    later trees, taken as input and replaced by `scope`. `defined_by` is the dialect whose function
    this one re-exports, if it does.
    """

    dialect: Dialect
    function: str
    scope: str
    memory: Memory
    explicit: tuple[str, ...] = ()
    bool_scope: str | None = None
    synonyms: tuple[str, ...] = ()
    newer: tuple[Newer, ...] = ()
    note: str = ""
    defined_by: Dialect | None = None

    @property
    def version(self) -> str:
        """The version of the source tree that declares this scope."""
        return self.dialect.about.version

    @property
    def source(self) -> str:
        """Where the scope can be read in that tree."""
        return (self.defined_by or self.dialect).about.source


# The strings that `scope=` of a dialect's tile allocations takes. Scopes with rules of their own
# (barriers, Tensor Memory, reducers, descriptors, `local.var`) are reached by their own functions.
_COMMON_TILES = ("shared.dyn", "shared", "local.fragment", "local", "global")
_ASCEND_TILES = (
    "shared.dyn",
    "shared",
    "shared.l1",
    "shared.l0a",
    "shared.l0b",
    "shared.l0c",
    "local.fragment",
    "local",
    "global",
)
_DESCRIPTORS = (
    "local.descriptor.wgmma",
    "local.descriptor.tcgen05_smem",
    "local.descriptor.tcgen05_instr",
)

# Shared memory whose size the launch sets, and shared memory that the compiled kernel fixes.
DYNAMIC_SHARED, STATIC_SHARED = "shared.dyn", "shared"

_C, _A, _P = Dialect.COMMON, Dialect.ASCEND, Dialect.ADAPTER  # one letter each, to keep rows short

_COMMON_ROWS: tuple[ScopeRow, ...] = (
    ScopeRow(
        _C,
        "alloc_shared",
        DYNAMIC_SHARED,
        Memory.SHARED,
        explicit=_COMMON_TILES,
        bool_scope=STATIC_SHARED,
        note="dtype bool is declared static (`shared`), whatever `scope=` says",
    ),
    ScopeRow(_C, "alloc_fragment", "local.fragment", Memory.FRAGMENT, _COMMON_TILES),
    ScopeRow(_C, "alloc_local", "local", Memory.LOCAL, _COMMON_TILES),
    ScopeRow(_C, "alloc_var", "local.var", Memory.VAR, note="starts at `init=`, else at zero"),
    ScopeRow(_C, "alloc_global", "global", Memory.GLOBAL, note="a workspace for each launch"),
    ScopeRow(_C, "alloc_barrier", "shared.barrier", Memory.BARRIER),
    ScopeRow(_C, "alloc_cluster_barrier", "shared.cluster_barrier", Memory.CLUSTER_BARRIER),
    ScopeRow(
        _C,
        "alloc_tmem",
        "shared.tmem",
        Memory.TMEM,
        note="columns are rounded up to a power of two, 32 at least",
    ),
    ScopeRow(_C, "alloc_reducer", "local.reducer", Memory.REDUCER),
    ScopeRow(
        _C,
        "alloc_descriptor",
        _DESCRIPTORS[0],
        Memory.DESCRIPTOR,
        explicit=_DESCRIPTORS,
        note="`kind=` ends the scope",
    ),
    ScopeRow(_C, "alloc_wgmma_desc", _DESCRIPTORS[0], Memory.DESCRIPTOR),
    ScopeRow(_C, "alloc_tcgen05_smem_desc", _DESCRIPTORS[1], Memory.DESCRIPTOR),
    ScopeRow(_C, "alloc_tcgen05_instruction_desc", _DESCRIPTORS[2], Memory.DESCRIPTOR),
    ScopeRow(_C, "alloc_tcgen05_instr_desc", _DESCRIPTORS[2], Memory.DESCRIPTOR),
)

L1_SCALES = "shared.l1.sf"
"""What a buffer of L1 that holds the scales of a product is in: the compiler says so, by its
use.
"""

_BY_GEMM = "the consuming gemm decides the layout"
_HANDLE = "a handle on a tile's scale slots; takes no storage"

_ASCEND_OWN_ROWS: tuple[ScopeRow, ...] = (
    ScopeRow(
        _A,
        "alloc_shared",
        "shared.dyn",
        Memory.UB,
        explicit=_ASCEND_TILES,
        synonyms=("shared",),
        note="dtype bool keeps the scope given",
    ),
    ScopeRow(_A, "alloc_l1", "shared.l1", Memory.L1, _ASCEND_TILES),
    ScopeRow(_A, "alloc_l0a", "shared.l0a", Memory.L0A, _ASCEND_TILES, note=_BY_GEMM),
    ScopeRow(_A, "alloc_l0b", "shared.l0b", Memory.L0B, _ASCEND_TILES, note=_BY_GEMM),
    ScopeRow(_A, "alloc_l0c", "shared.l0c", Memory.L0C, _ASCEND_TILES),
    ScopeRow(_A, "alloc_l0a_sf", "shared.l0a.sf", Memory.L0A_SCALE, note=_HANDLE),
    ScopeRow(_A, "alloc_l0b_sf", "shared.l0b.sf", Memory.L0B_SCALE, note=_HANDLE),
)


def _reexported() -> tuple[ScopeRow, ...]:
    """The common functions that the Ascend dialect exports unchanged: all it does not redefine."""
    own = {entry.function for entry in _ASCEND_OWN_ROWS}
    return tuple(
        replace(
            entry,
            dialect=_A,
            defined_by=entry.dialect,
            explicit=_ASCEND_TILES if entry.explicit == _COMMON_TILES else entry.explicit,
        )
        for entry in _COMMON_ROWS
        if entry.function not in own
    )


_LATER = "0.1.4"  # the public branch `ascendc_pto`; between it and 0.1.2.000 these strings moved

_ADAPTER_ROWS: tuple[ScopeRow, ...] = (
    ScopeRow(
        _P,
        "alloc_shared",
        "shared",
        Memory.UB_OR_L1,
        explicit=("shared", "shared.ub", "shared.l1"),
        bool_scope="shared.ub",
        newer=(Newer(_LATER, "shared.dyn", bool_scope="shared"),),
        note="the operations on it decide between UB and L1; dtype bool is always in UB",
    ),
    ScopeRow(_P, "alloc_ub", "shared.ub", Memory.UB, newer=(Newer(_LATER, "shared"),)),
    ScopeRow(_P, "alloc_L1", "shared.l1", Memory.L1),
    ScopeRow(_P, "alloc_L0A", "wmma.matrix_a", Memory.L0A),
    ScopeRow(_P, "alloc_L0B", "wmma.matrix_b", Memory.L0B),
    ScopeRow(_P, "alloc_L0C", "wmma.accumulator", Memory.L0C),
    ScopeRow(
        _P,
        "alloc_fragment",
        "local.fragment",
        Memory.L0_BY_USE,
        explicit=("local.fragment", "wmma.matrix_a", "wmma.matrix_b", "wmma.accumulator"),
        note="its place in a gemm decides between L0A, L0B and L0C; L0C if none does",
    ),
    ScopeRow(_P, "alloc_var", "local.var", Memory.VAR),
)

SCOPES: tuple[ScopeRow, ...] = (*_COMMON_ROWS, *_ASCEND_OWN_ROWS, *_reexported(), *_ADAPTER_ROWS)

_ROWS: Mapping[tuple[Dialect, str], ScopeRow] = {
    (entry.dialect, entry.function): entry for entry in SCOPES
}


def _index_memories() -> dict[tuple[Dialect, str], Memory]:
    """Scope string to memory, per dialect; what a row declares wins over other uses of a string."""
    # Parameters are in global memory in every dialect, whether or not it allocates there.
    index = {(dialect, "global"): Memory.GLOBAL for dialect in Dialect}
    index |= {(entry.dialect, entry.scope): entry.memory for entry in SCOPES}
    index[Dialect.ASCEND, L1_SCALES] = Memory.L1
    for entry in SCOPES:
        for scope in (entry.bool_scope, *entry.synonyms, *(newer.scope for newer in entry.newer)):
            if scope is not None:
                index.setdefault((entry.dialect, scope), entry.memory)
    return index


_MEMORY_OF: Mapping[tuple[Dialect, str], Memory] = _index_memories()


def rows(dialect: Dialect) -> tuple[ScopeRow, ...]:
    """All allocation functions of `dialect`, in table order."""
    return tuple(entry for entry in SCOPES if entry.dialect is dialect)


def dialects_of(function: str) -> tuple[Dialect, ...]:
    """The dialects that have an allocation function of this name; empty if none has."""
    return tuple(dialect for dialect in Dialect if (dialect, function) in _ROWS)


def row(dialect: Dialect, function: str) -> ScopeRow:
    """The row of `function` in `dialect`.

    Raises `TileNameError` for a name that the dialect lacks; if another dialect has it, the message
    names that dialect and the spelling to use here.
    """
    found = _ROWS.get((dialect, function))
    if found is None:
        raise _missing(dialect, function)
    return found


def declare(dialect: Dialect, function: str, dtype_name: str, explicit: str | None = None) -> str:
    """The scope that a buffer declares, as `buffer.scope()` shows it.

    `dtype_name` is the element type's name (`"bool"` triggers the bool rule of the row); `explicit`
    is the author's `scope=`. Raises `TileNameError` for a function of another dialect,
    `TileValueError` for a scope that the function does not take.
    """
    found = row(dialect, function)
    scope = found.scope if explicit is None else _explicit_scope(found, explicit)
    if str(dtype_name) == "bool" and found.bool_scope is not None:
        return found.bool_scope
    return scope


def memory_of(dialect: Dialect, scope: str) -> Memory:
    """The canonical memory behind `scope` in `dialect`; `TileValueError` for an unknown string."""
    found = _MEMORY_OF.get((dialect, scope))
    if found is None:
        known = sorted({name for of, name in _MEMORY_OF if of is dialect})
        raise error(
            "scope",
            f"unknown memory scope '{scope}' in the {dialect.about.title}",
            expected=f"one of {_listed(known)}",
            got=f"'{scope}'",
            help=_did_you_mean(scope, known) or "see `tilewright scopes`",
        )
    return found


def is_static(dialect: Dialect, scope: str) -> bool:
    """Whether `scope` is a static allocation of shared memory, to which `Per.BLOCK_STATIC` applies.

    Everything in shared memory is, mbarriers included, but the one dynamic allocation of a block.
    """
    return facts(memory_of(dialect, scope)).pool is Memory.SHARED and scope != DYNAMIC_SHARED


def counterpart(function: str, dialect: Dialect, source: Dialect | None = None) -> str | None:
    """The allocation function of `dialect` that serves as `function` of `source` does.

    Without `source`, a name that `dialect` has itself is its own counterpart; otherwise the first
    dialect that has the name is meant. The same memory is preferred, then the memories nearest to
    it. None if there is no such function. For example `alloc_ub` is `alloc_shared` in the mainline
    Ascend dialect, and back with `source` given.
    """
    if source is None:
        if (dialect, function) in _ROWS:
            return function
        source = next(iter(dialects_of(function)), None)
    if source is None or (source, function) not in _ROWS:
        return None
    memory = _ROWS[source, function].memory
    for wanted in (memory, *facts(memory).nearest):
        for candidate in rows(dialect):
            if candidate.memory is wanted:
                return candidate.function
    return None


def _explicit_scope(found: ScopeRow, explicit: str) -> str:
    """The scope to declare for the author's `scope=`; the error lists what the function takes."""
    if explicit == found.scope or explicit in found.explicit or explicit in found.synonyms:
        return explicit
    if any(newer.scope == explicit for newer in found.newer):
        return found.scope
    taken = list(dict.fromkeys((found.scope, *found.explicit, *found.synonyms)))
    declaring = [other.function for other in rows(found.dialect) if other.scope == explicit]
    if declaring:
        hint = f"`T.{declaring[0]}` declares '{explicit}' in the {found.dialect.about.title}"
    else:
        hint = _did_you_mean(explicit, taken) or f"leave `scope=` out to get '{found.scope}'"
    raise error(
        "scope",
        f"`T.{found.function}` of the {found.dialect.about.title} does not take scope='{explicit}'",
        expected=f"one of {_listed(taken)}" if len(taken) > 1 else f"'{taken[0]}', or no `scope=`",
        got=f"'{explicit}'",
        help=hint,
    )


def _missing(dialect: Dialect, function: str) -> TileError:
    """The error for a function that `dialect` lacks."""
    about = dialect.about
    owners = dialects_of(function)
    known = [found.function for found in rows(dialect)]
    if not owners:
        return error(
            "name",
            f"`T.{function}` is not an allocation function of any dialect",
            expected=f"one of {', '.join(known)} in the {about.title}",
            got=f"`{function}`",
            help=_did_you_mean(function, known) or "see `tilewright scopes`",
        )
    owner = owners[0].about
    spelling = counterpart(function, dialect)
    home = f"`T.{function}` is in {owner.module}, for chips that run the {owner.title}"
    if spelling is None:
        expected, hint = f"one of {', '.join(known)}", home
    else:
        scope = _ROWS[dialect, spelling].scope
        expected = f"`T.{spelling}` (scope '{scope}'), the {about.title}'s spelling"
        hint = f"write `T.{spelling}(...)`; {home}"
    return error(
        "name",
        f"`T.{function}` belongs to the {owner.title}, and this kernel is in the {about.title}",
        expected=expected,
        got=f"`T.{function}` of {owner.tree} {owner.version}",
        help=hint,
    )


def _did_you_mean(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    return f"did you mean '{near[0]}'?" if near else ""


def _listed(names: list[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
