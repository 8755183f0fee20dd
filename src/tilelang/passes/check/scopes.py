"""How each memory may be used: which operations reach it, and along which paths data moves.

What enters: a `Program`. What leaves: errors for elementwise accesses, products and copies that the
hardware of a memory has no instruction for, whatever the target, and for copies that the chip
lacks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilelang.errors import Diagnostic
from tilelang.ir.expr import Buffer, Cast, Load, Region
from tilelang.ir.node import Effect
from tilelang.ir.scales import ScaleCopy
from tilelang.ir.special import GemmBlockScaled, GemmSparse
from tilelang.ir.sync import AsyncGemm
from tilelang.ir.tile import (
    Atomic,
    Fill,
    Free,
    Gemm,
    If,
    Launch,
    Stmt,
    Store,
    ThreadReturn,
    While,
)
from tilelang.passes.check.domain import names_in
from tilelang.passes.check.program import (
    COPIES,
    PRODUCTS,
    Program,
    listed,
    op_name,
    shape_text,
    who,
)
from tilelang.passes.check.walk import AxisKind, Site, Touch
from tilelang.scopes import Dialect, Memory

_M = Memory

_CUBE = frozenset({_M.L1, _M.L0A, _M.L0B, _M.L0C})
_ASCEND = _CUBE | {_M.UB, _M.GLOBAL, _M.L0A_SCALE, _M.L0B_SCALE}
_REGISTERS = frozenset({_M.FRAGMENT, _M.LOCAL, _M.VAR})

_MOVED = frozenset({(_M.GLOBAL, _M.L1), (_M.L0C, _M.GLOBAL)})

# What reaches each memory that has no loads and stores of single elements. Tensor Memory is filled
# through registers (tcgen05.st), as L0C is cleared by the product that writes it first.
_REACHED_BY = {
    _M.TMEM: "tcgen05 mma, ld, st or cp",
    _M.L1: "a copy, or T.gemm as A or B",
    _M.L0A: "a copy, or T.gemm as A",
    _M.L0B: "a copy, or T.gemm as B",
    _M.L0C: "T.gemm as C, T.clear, or a copy out of it",
}

# The memories that each operand of a product may lie in, where the accumulator is in a memory of
# its own. PTX ISA, tcgen05.mma: D in Tensor Memory, A there or in shared memory, B in the latter.
_OPERANDS: dict[Memory, dict[str, frozenset[Memory]]] = {
    _M.TMEM: {"a": frozenset({_M.SHARED, _M.TMEM}), "b": frozenset({_M.SHARED})},
    _M.L0C: {"a": frozenset({_M.L1, _M.L0A}), "b": frozenset({_M.L1, _M.L0B})},
}

# PTX ISA: tcgen05.ld and st move between Tensor Memory and registers, cp from shared memory.
_TMEM_COPIES = frozenset({(_M.TMEM, _M.FRAGMENT), (_M.FRAGMENT, _M.TMEM), (_M.SHARED, _M.TMEM)})


def elements_reachable(program: Program) -> Iterator[Diagnostic]:
    """Memories that only whole-tile instructions reach are not read or written by element."""
    for touch in program.touches:
        memory = program.memory(touch.buffer)
        if memory not in _REACHED_BY or _by_tile(touch, memory) or _is_copy(program, touch):
            continue
        what, got = _elementwise(touch)
        yield Diagnostic(
            "scope",
            f"{what} {memory.title}",
            touch.loc,
            label=program.allocated(touch.buffer),
            expected=_REACHED_BY[memory],
            got=got,
            help=_through(program, touch.buffer, memory),
        )


def _by_tile(touch: Touch, memory: Memory) -> bool:
    """Whether the access is that of a copy, fill or product, which have rules of their own."""
    if touch.element is not None:
        return False
    stmt = touch.site.stmt
    if isinstance(stmt, Atomic) and memory is _M.L0C and not touch.writes:
        return True  # a tile that is added to global memory on its way out
    if memory is _M.TMEM and isinstance(stmt, ScaleCopy):
        return True
    return not touch.effect or isinstance(stmt, (*COPIES, Fill, *PRODUCTS))


def _is_copy(program: Program, touch: Touch) -> bool:
    """Whether the element is one of a parallel nest of the Ascend adapter that moves a tile along a
    path of the cube core: it becomes a copy (`vectorize_parallel`, which refuses what is none).
    """
    store = touch.site.stmt
    nest = touch.place.parallel is not None and program.dialect is Dialect.ADAPTER
    if not nest or not isinstance(store, Store):
        return False
    value = store.value.a if isinstance(store.value, Cast) else store.value
    if not isinstance(value, Load):
        return False
    return (program.memory(value.buffer), program.memory(store.buffer)) in _MOVED


def _elementwise(touch: Touch) -> tuple[str, str]:
    """What is refused, as the start of the message, and what was got."""
    stmt = touch.site.stmt
    if touch.element is None:
        name = op_name(stmt)
        return (f"{name} into" if touch.writes else f"{name} of"), name
    if isinstance(touch.element, Store):
        return "elementwise store into", f"a store from {who(touch.place)}"
    return "elementwise load from", f"a load by {who(touch.place)}"


def _through(program: Program, buffer: Buffer, memory: Memory) -> str:
    """How to get at the elements: through a memory that has loads and stores."""
    function = "alloc_fragment"
    if memory is not _M.TMEM:
        function = program.substitute(_M.SHARED) or "alloc_ub"
        if memory in (_M.L0A, _M.L0B):
            return f"work on the elements before they are copied to {buffer.name}"
    name = "f" if buffer.name != "f" else "g"
    declared = f'`{name} = T.{function}({shape_text(buffer)}, "{buffer.dtype}")'
    kind = "a fragment" if function == "alloc_fragment" else "UB"
    return f"copy {buffer.name} into {kind} first: {declared}; T.copy({buffer.name}, {name})`"


# Products and copies -----------------------------------------------------------------------------


def operands_reachable(program: Program) -> Iterator[Diagnostic]:
    """Operands of products lie where the unit that multiplies finds them."""
    for site in program.sites:
        stmt = site.stmt
        if isinstance(stmt, PRODUCTS):
            yield from _product(program, stmt)


def _product(
    program: Program, stmt: Gemm | AsyncGemm | GemmSparse | GemmBlockScaled
) -> Iterator[Diagnostic]:
    into = program.memory(stmt.c.buffer)
    rules = _OPERANDS.get(into)
    cube = [r for r in "ab" if program.memory(getattr(stmt, r).buffer) in _CUBE | {_M.TMEM}]
    if rules is None:
        if cube:
            yield _bad_accumulator(program, stmt.c.buffer, getattr(stmt, cube[0]).buffer, stmt)
        return
    for role, allowed in rules.items():
        buffer: Buffer = getattr(stmt, role).buffer
        memory = program.memory(buffer)
        if memory in allowed:
            continue
        places = listed(sorted(m.title for m in allowed), "or")
        yield Diagnostic(
            "scope",
            f"operand {role.upper()} of a product into {into.title} is in {memory.title}",
            stmt.loc,
            label=program.allocated(buffer),
            expected=f"{role.upper()} in {places}",
            got=f"{buffer.name} in {memory.title} (scope {buffer.scope})",
            help=f"copy {buffer.name} there first",
        )


def _bad_accumulator(
    program: Program, accumulator: Buffer, operand: Buffer, stmt: Stmt
) -> Diagnostic:
    unit = "tcgen05" if program.memory(operand) is _M.TMEM else "the cube unit"
    right = _M.TMEM if unit == "tcgen05" else _M.L0C
    return Diagnostic(
        "scope",
        f"{unit} accumulates in {right.title}",
        stmt.loc,
        label=program.allocated(accumulator),
        expected=f"C in {right.title}, since {operand.name} is in {program.memory(operand).title}",
        got=f"{accumulator.name} in {program.memory(accumulator).title}",
    )


def copies_reachable(program: Program) -> Iterator[Diagnostic]:
    """The chip moves data from the source memory of every copy to its destination."""
    for site in program.sites:
        stmt = site.stmt
        if isinstance(stmt, COPIES):
            yield from _copy(program, site, stmt.src, stmt.dst)


def _copy(program: Program, site: Site, a: Region, b: Region) -> Iterator[Diagnostic]:
    src, dst = program.memory(a.buffer), program.memory(b.buffer)
    if _M.TMEM in (src, dst):
        if (src, dst) not in _TMEM_COPIES:
            yield _no_path(
                program,
                site,
                (a.buffer, b.buffer),
                "Tensor Memory to or from a fragment (tcgen05.ld, st), or from shared memory"
                " (tcgen05.cp)",
                _by_fragment(a.buffer, b.buffer),
            )
    elif {src, dst} <= _ASCEND and _CUBE & {src, dst} and not program.target.copies(src, dst):
        yield _no_path(
            program,
            site,
            (a.buffer, b.buffer),
            _ways(program, src, dst),
            _detour(program, src, dst),
        )


def _no_path(
    program: Program, site: Site, ends: tuple[Buffer, Buffer], expected: str, way_out: str
) -> Diagnostic:
    src, dst = (program.memory(b).title for b in ends)
    names = f"{ends[0].name} to {ends[1].name}"
    return Diagnostic(
        "scope",
        f"there is no path from {src} to {dst}",
        site.stmt.loc,
        label=", ".join(f"{b.name} has scope {b.scope}" for b in ends),
        expected=expected,
        got=f"a copy from {names}",
        help=way_out,
    )


def _by_fragment(a: Buffer, b: Buffer) -> str:
    name = "f" if "f" not in (a.name, b.name) else "g"
    shape = shape_text(a)
    return (
        f'go through a fragment: `{name} = T.alloc_fragment({shape}, "{a.dtype}"); '
        f"T.copy({a.name}, {name}); T.copy({name}, {b.name})`"
    )


def _ways(program: Program, src: Memory, dst: Memory) -> str:
    """Where `src` can be copied to, and what `dst` can be copied from."""
    out = [m.title for m in _ASCEND if program.target.copies(src, m)]
    into = [m.title for m in _ASCEND if program.target.copies(m, dst)]
    ways = [f"from {src.title} to {listed(sorted(out), 'or')}"] if out else []
    ways += [f"to {dst.title} from {listed(sorted(into), 'or')}"] if into else []
    chip = program.target.chip
    source = f" ({chip.copies_source})" if chip is not None and chip.copies_source else ""
    return ", or ".join(ways) + source


def _detour(program: Program, src: Memory, dst: Memory) -> str:
    """A memory through which the data can go."""
    copies = program.target.copies
    for via in (_M.UB, _M.L1, _M.GLOBAL):
        if copies(src, via) and copies(via, dst):
            return f"go through {via.title}: copy there, then on to {dst.title}"
    return ""


# Threads' own memory, and Tensor Memory's lifetime -----------------------------------------------


def local_not_spread(program: Program) -> Iterator[Diagnostic]:
    """A buffer of each thread's own is not indexed by an iteration that some thread carries out."""
    for touch in program.touches:
        if program.memory(touch.buffer) is not _M.LOCAL or touch.element is None:
            continue
        spread = {a.var for a in touch.place.of_kind(AxisKind.PARALLEL)}
        found = next((v for v in names_in(*touch.mins) if v in spread), None)
        if found is not None:
            yield Diagnostic(
                "scope",
                f"{touch.buffer.name} is each thread's own, and is indexed by"
                f" {program.shown(found)}",
                touch.loc,
                label=program.allocated(touch.buffer),
                expected="an index that does not depend on a T.Parallel variable",
                got=program.indexed(touch.buffer, touch.mins),
                help="T.Parallel spreads its iterations over the threads: use T.alloc_fragment for"
                " a tile of the block, or loop with T.serial",
            )


def frees_once(program: Program) -> Iterator[Diagnostic]:
    """`T.deallocate_tmem` frees Tensor Memory, once, after its last use."""
    freed: dict[str, list[Site]] = {}
    for site in program.sites:
        if isinstance(site.stmt, Free):
            before = freed.setdefault(program.root(site.stmt.buffer).name, [])
            yield from _free(program, site, site.stmt.buffer, before)
            before.append(site)
    reported: set[str] = set()
    for touch in program.touches:
        name = program.root(touch.buffer).name
        found = _before(touch.site, freed.get(name, ()))
        if found is not None and name not in reported:
            reported.add(name)
            yield _after_free(touch, name, found)


def _before(site: Site, freed: Sequence[Site]) -> Site | None:
    """The first of these after which a statement may be run."""
    return next((f for f in freed if f.order < site.order and not _apart(f, site)), None)


def _apart(free: Site, later: Site) -> bool:
    """Whether two statements are in different arms of a condition, or the first one in an arm that
    ends with a return.
    """
    path, other = (*free.place.path, free.stmt), (*later.place.path, later.stmt)
    same = next((k for k, (a, b) in enumerate(zip(path, other, strict=False)) if a is not b), 0)
    for k in range(max(same - 1, 0), len(path) - 1):
        around = path[k]
        if not isinstance(around, If):
            continue
        arm = around.then if any(s is path[k + 1] for s in around.then) else around.orelse
        across = k == same - 1 and not any(s is other[same] for s in arm)
        if across or (k >= same and any(isinstance(s, ThreadReturn) for s in arm)):
            return True
    return False


def _free(
    program: Program, site: Site, buffer: Buffer, before: Sequence[Site]
) -> Iterator[Diagnostic]:
    name = program.root(buffer).name
    memory = program.memory(buffer)
    if memory is not _M.TMEM:
        yield Diagnostic(
            "scope",
            f"T.deallocate_tmem of {buffer.name}, which is in {memory.title}",
            site.stmt.loc,
            label=program.allocated(buffer),
            expected="a buffer of T.alloc_tmem",
            got=f"scope {buffer.scope}",
            help="leave it out: other memories are given back at the end of the block",
        )
        return
    owner = program.allocs.get(name)
    home = next((s.place.path for s in program.sites if s.stmt is owner), ())
    around = site.place.path[len(home) :]
    first = _before(site, before)
    if first is not None:
        at = first.stmt.loc
        yield Diagnostic(
            "scope",
            f"{name} is freed twice",
            site.stmt.loc,
            expected="one T.deallocate_tmem",
            got="a second one",
            related=((at, "it is freed here already"),) if at is not None else (),
        )
    elif any(not isinstance(s, Launch) and _is_loop(s) for s in around):
        yield Diagnostic(
            "scope",
            f"{name} is freed in every round of a loop",
            site.stmt.loc,
            label=program.allocated(buffer),
            expected="one T.deallocate_tmem, after the loop",
            got="one in each round",
        )


def _is_loop(stmt: Stmt) -> bool:
    counts = any(hasattr(stmt, name) for name in ("var", "vars"))
    return isinstance(stmt, While) or (counts and hasattr(stmt, "body"))


def _after_free(touch: Touch, name: str, free: Site) -> Diagnostic:
    at = free.stmt.loc
    return Diagnostic(
        "scope",
        f"{name} is used after it was freed",
        touch.loc,
        expected="uses before T.deallocate_tmem",
        got=f"a {'write' if touch.effect & Effect.WRITE else 'read'} after it",
        help=f"free {name} after its last use, or leave the end of the block to do it",
        related=((at, "it is freed here"),) if at is not None else (),
    )
