"""What the rules ask about: a function, its target, and what every rule would work out again.

What enters: a `Function` and a `Target`. What leaves: a `Program` with the statements and accesses
of the function, the canonical memory of each buffer, where it was allocated and by which function
of the dialect; and the words that several messages share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tilelang.errors import Diagnostic, Loc, TileError
from tilelang.ir.ascend import Transfer
from tilelang.ir.expr import AddressOf, Buffer, Expr, Var, int_value
from tilelang.ir.scales import AsyncScaledGemm, ScaleCopy, ScaleTranspose
from tilelang.ir.special import (
    Collective,
    GemmBlockScaled,
    GemmSparse,
    ReducerFinalize,
    ReducerInit,
    RngInit,
    RngNext,
    TestElements,
)
from tilelang.ir.sync import (
    AsyncCopy,
    AsyncGemm,
    ClcQuery,
    ClcTryCancel,
    ClusterBarrier,
    CopyCluster,
    CpAsyncArrive,
    MbarArrive,
    MbarExpectTx,
    MbarWait,
    MmaArrive,
    NamedArrive,
    TmaCopy,
    WarpSpecialize,
)
from tilelang.ir.text import print_expr, snake
from tilelang.ir.tile import (
    Alloc,
    Atomic,
    Copy,
    Function,
    Gemm,
    Launch,
    Parallel,
    Reduce,
    Scan,
    Stmt,
    View,
)
from tilelang.isa.target import Chip, Target
from tilelang.passes.check.walk import Place, Site, Touch, sites, touches
from tilelang.scopes import Dialect, Memory, ScopeRow, facts, memory_of, rows

PRODUCTS = (Gemm, AsyncGemm, GemmSparse, GemmBlockScaled)
"""The statements that multiply regions `a` and `b` into `c`."""

COPIES = (Copy, AsyncCopy, TmaCopy, CopyCluster, Transfer)
"""The statements that copy region `src` to `dst`."""


@dataclass(frozen=True)
class Program:
    """A function under check. `chips` are those that messages may name as alternatives."""

    fn: Function
    target: Target
    chips: tuple[Chip, ...] = ()

    @property
    def dialect(self) -> Dialect:
        """The dialect that the function's names belong to."""
        return Dialect(self.fn.dialect)

    @cached_property
    def sites(self) -> list[Site]:
        """Every statement, in the order in which they are written."""
        return sites(self.fn)

    @cached_property
    def _by_site(self) -> list[list[Touch]]:
        return [list(touches(site)) for site in self.sites]

    @cached_property
    def touches(self) -> list[Touch]:
        """Every access, in the order of the statements."""
        return [touch for found in self._by_site for touch in found]

    def touches_of(self, site: Site) -> list[Touch]:
        """The accesses of one statement."""
        return self._by_site[site.order]

    @cached_property
    def launches(self) -> list[Launch]:
        """The launches of the function."""
        return [s.stmt for s in self.sites if isinstance(s.stmt, Launch)]

    @cached_property
    def allocs(self) -> dict[str, Alloc]:
        """The allocation of each buffer that is not a parameter, by name."""
        return {s.stmt.buffer.name: s.stmt for s in self.sites if isinstance(s.stmt, Alloc)}

    @cached_property
    def sources(self) -> dict[str, Buffer]:
        """What each view is a view of, by the name of the view."""
        found = [s.stmt for s in self.sites if isinstance(s.stmt, View)]
        return {view.buffer.name: view.source for view in found}

    @cached_property
    def addressed(self) -> frozenset[str]:
        """The buffers whose address is taken somewhere, under every name."""
        found = [n.buffer for s in self.fn.body for n in s.walk() if isinstance(n, AddressOf)]
        return frozenset(b.name for b in (*found, *(self.root(b) for b in found)))

    def root(self, buffer: Buffer) -> Buffer:
        """The buffer whose storage `buffer` names."""
        while buffer.name in self.sources:
            buffer = self.sources[buffer.name]
        return buffer

    @cached_property
    def _defined(self) -> dict[str, Loc | None]:
        params = {p.buffer.name: p.loc for p in self.fn.params if p.buffer is not None}
        allocs = {name: alloc.loc for name, alloc in self.allocs.items()}
        views = {s.stmt.buffer.name: s.stmt.loc for s in self.sites if isinstance(s.stmt, View)}
        return {**params, **allocs, **views}

    def is_own(self, name: str) -> bool:
        """Whether a buffer of this name is a parameter or was allocated by the function."""
        return name in self.allocs or any(p.name == name for p in self._params)

    @cached_property
    def _params(self) -> list[Buffer]:
        return [p.buffer for p in self.fn.params if p.buffer is not None]

    def defined_at(self, buffer: Buffer) -> Loc | None:
        """Where the buffer was allocated or declared."""
        return self._defined.get(buffer.name)

    # -- memories ----------------------------------------------------------------------------------

    def memory(self, buffer: Buffer) -> Memory:
        """The canonical memory; where the uses of the buffer decide, what they decide."""
        declared = self.declared(buffer)
        if not facts(declared).resolves_to:
            return declared
        return self._by_use(self.root(buffer), declared)

    def declared(self, buffer: Buffer) -> Memory:
        """The memory that the declared scope means in this dialect."""
        if buffer.scope == "global":  # a parameter, whatever the dialect
            return Memory.GLOBAL
        for dialect in (self.dialect, Dialect.COMMON):
            try:
                return memory_of(dialect, buffer.scope)
            except TileError:
                continue
        return memory_of(self.dialect, buffer.scope)

    def _by_use(self, buffer: Buffer, declared: Memory) -> Memory:
        roles = self._gemm_roles.get(buffer.name, "")
        if declared is Memory.UB_OR_L1:
            in_l1 = roles.strip("c") or buffer.name in self._feed_l0
            return Memory.L1 if in_l1 else Memory.UB
        return Memory.L0A if "a" in roles else Memory.L0B if "b" in roles else Memory.L0C

    @cached_property
    def _gemm_roles(self) -> dict[str, str]:
        """The operands of products that each buffer is, as letters of a, b and c."""
        found: dict[str, str] = {}
        for site in self.sites:
            if isinstance(site.stmt, PRODUCTS):
                for role in "abc":
                    name = self.root(getattr(site.stmt, role).buffer).name
                    found[name] = found.get(name, "") + role
        return found

    @cached_property
    def _feed_l0(self) -> set[str]:
        """The buffers that are copied to L0A or L0B, which only L1 can be."""
        copies = [s.stmt for s in self.sites if isinstance(s.stmt, (Copy, Transfer))]
        l0 = (Memory.L0A, Memory.L0B)
        return {self.root(c.src.buffer).name for c in copies if self._is_in(c.dst.buffer, l0)}

    def _is_in(self, buffer: Buffer, memories: tuple[Memory, ...]) -> bool:
        declared = self.declared(buffer)
        open_ = declared is Memory.L0_BY_USE
        return (self._by_use(self.root(buffer), declared) if open_ else declared) in memories

    def gemm_roles(self, buffer: Buffer) -> str:
        """The operands of products that `buffer` is: letters of a, b and c, with repeats."""
        return self._gemm_roles.get(self.root(buffer).name, "")

    @cached_property
    def _names(self) -> dict[Var, Var]:
        """Loop variables under the author's name: without the number that made it unique."""
        taken = {a.var.name: a.var for site in self.sites for a in site.place.axes}
        found: dict[Var, Var] = {}
        for name, var in taken.items():
            base, _, number = name.rpartition("_")
            if number.isdigit() and base in taken:
                found[var] = Var(base, var.type)
        return found

    def shown(self, e: Expr) -> str:
        """An expression as the author would write it."""
        names = self._names
        if names and any(isinstance(n, Var) and n in names for n in e.walk()):
            whole = names.get(e) if isinstance(e, Var) else None
            e = whole or e.rewrite(lambda n: names.get(n) if isinstance(n, Var) else None)
        return print_expr(e)

    def indexed(self, buffer: Buffer, index: Iterable[Expr]) -> str:
        """`A[by * 128 + i, j]`."""
        return f"{buffer.name}[{', '.join(self.shown(e) for e in index)}]"

    def example(self, values: Mapping[Var, int], names: Iterable[Var]) -> str:
        """`i = 3, j = 0`."""
        return ", ".join(f"{self.shown(v)} = {values[v]}" for v in names if v in values)

    # -- words -------------------------------------------------------------------------------------

    def row(self, buffer: Buffer) -> ScopeRow | None:
        """The allocation function that declares the buffer's scope."""
        found = rows(self.dialect)
        declaring = [r for r in found if buffer.scope in (r.scope, r.bool_scope)]
        return next((r for r in declaring if r.memory is self.declared(buffer)), None)

    def allocated(self, buffer: Buffer) -> str:
        """`S is allocated by T.alloc_tmem (scope shared.tmem) at line 22`."""
        at = self.defined_at(buffer)
        line = f" at line {at.line}" if at is not None else ""
        if buffer.name not in self.allocs:
            return f"{buffer.name} is declared{line} (scope {buffer.scope})"
        row = self.row(buffer)
        how = f" by T.{row.function}" if row is not None else ""
        return f"{buffer.name} is allocated{how} (scope {buffer.scope}){line}"

    def chips_with(self, able: Callable[[Target], bool]) -> str:
        """The chips for which `able` holds, listed; empty where no chips are known."""
        return ", ".join(
            c.name
            for c in self.chips
            if c.backend != "cpu" and able(Target("emulate", c.backend, c))
        )

    def substitute(self, memory: Memory) -> str | None:
        """The function of this dialect that allocates the nearest memory that the target has."""
        for near in facts(memory).nearest:
            for row in rows(self.dialect):
                if row.memory is near and self.target.has_memory(near):
                    return row.function
        return None


Rule = Callable[[Program], Iterable[Diagnostic]]


def shape_text(buffer: Buffer) -> str:
    """The shape as the author would write it."""
    parts = [print_expr(e) for e in buffer.shape]
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def element_count(buffer: Buffer) -> int | None:
    """The number of elements, None where it depends on a size that launch binds."""
    total = 1
    for e in buffer.shape:
        known = int_value(e)
        if known is None:
            return None
        total *= known
    return total


def byte_count(buffer: Buffer) -> int | None:
    """The bytes that the elements take, sub-byte elements packed; None where not known."""
    count = element_count(buffer)
    return None if count is None else -(-count * buffer.dtype.lanes * buffer.dtype.bits // 8)


_NAMES: dict[type[Stmt], str] = {
    Parallel: "Parallel",
    ReducerFinalize: "finalize_reducer",
    ReducerInit: "reducer_init",
    WarpSpecialize: "ws",
    MbarArrive: "mbarrier_arrive",
    NamedArrive: "named_barrier_arrive",
    MbarWait: "mbarrier_wait_parity",
    MbarExpectTx: "mbarrier_expect_tx",
    MmaArrive: "tcgen05_mma_arrive",
    ScaleCopy: "tcgen05_cp_warpx4",
    ScaleTranspose: "tcgen05_sf_warp_transpose",
    CpAsyncArrive: "cp_async_barrier_noinc",
    RngInit: "rng_init",
    RngNext: "rng_rand",
}


def op_name(stmt: Stmt) -> str:
    """The function of the language that a statement comes from."""
    match stmt:
        case Atomic():
            name = f"atomic_{stmt.op.value}"
        case Reduce():
            name = f"reduce_{stmt.op.value}"
        case Scan():
            name = stmt.op.value
        case Collective():
            name = stmt.fn
        case AsyncGemm():
            name = f"{stmt.unit.value}_gemm" + "_blockscaled" * isinstance(stmt, AsyncScaledGemm)
        case TestElements():
            name = f"{stmt.quantifier.value}_of"
        case ClcTryCancel(multicast=True):
            name = "clc_try_cancel_multicast"
        case ClcQuery():
            name = f"clc_{'get_' * (stmt.part != 'is_canceled')}{stmt.part}"
        case ClusterBarrier():
            name = f"cluster_{stmt.step.value.replace('.', '_')}"
        case _:
            name = _NAMES.get(type(stmt)) or snake(type(stmt).__name__)
    return f"T.{name}"


def listed(names: Sequence[str], word: str = "and") -> str:
    """`a, b and c`."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} {word} {names[-1]}"


def who(place: Place) -> str:
    """Who carries out a scalar statement here."""
    return "T.Parallel" if place.parallel is not None else "the threads of the block"
