"""Byte addresses for every buffer of an Ascend core group.

What enters: a function whose buffers each have one memory; `address` annotations of the author are
kept. What leaves: the same with all allocations on chip at the beginning of their launch, and one
more annotation for the buffers that had none. Where the
function asks for it (`Automatic.MEMORY`), buffers whose lifetimes do not overlap share bytes, in
mainline kernels only if the memory does not hold them side by side: pipes wait for each other where
bytes are shared. What that means for their order is left to the insertion of flags, which looks at
bytes. A memory that does not hold everything is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tilelang.errors import TileError, error
from tilelang.ir.ascend import VectorFunction, VectorKind
from tilelang.ir.expr import Buffer, Var, int_value
from tilelang.ir.tile import (
    Alloc,
    Annotate,
    Block,
    For,
    Function,
    If,
    Pipelined,
    Stmt,
    While,
)
from tilelang.ir.walk import bodies
from tilelang.isa.target import Capacity, Target, When
from tilelang.passes.ascend.effects import Access, Effects
from tilelang.passes.ascend.settings import Automatic, is_automatic
from tilelang.passes.ascend.storage import bytes_of, ceil_to
from tilelang.passes.build import map_launches, map_statements
from tilelang.scopes import Dialect, Memory

ON_CHIP = (Memory.UB, Memory.L1, Memory.L0A, Memory.L0B, Memory.L0C)
BLOCK = 32
"""Bytes: the least alignment on chip, where the chip's table says no more."""


@dataclass
class Life:
    """A buffer to be placed: its size, and from which step to which it holds something."""

    alloc: Alloc
    memory: Memory
    size: int
    first: int = 0
    last: int = 0

    @property
    def buffer(self) -> Buffer:
        """The buffer."""
        return self.alloc.buffer

    @property
    def is_used(self) -> bool:
        """Whether anything touches it; what nothing touches takes no bytes."""
        return self.first <= self.last

    def overlaps(self, other: Life) -> bool:
        """Whether both hold something at one time."""
        return self.first <= other.last and other.first <= self.last


def plan_memory(fn: Function, target: Target) -> Function:
    """An address for every buffer on chip."""
    effects = Effects(fn)
    share = is_automatic(fn, Automatic.MEMORY)
    apart = fn.dialect == Dialect.ASCEND.value
    room = {m: _room(fn, m, target) for m in ON_CHIP}

    def planned(body: Block) -> Block:
        given = dict(given_addresses(body))
        lives = [
            Life(s, effects.memory(s.buffer), bytes_of(s.buffer, effects.memory(s.buffer), s))
            for s in _statements(body)
            if isinstance(s, Alloc) and effects.memory(s.buffer) in ON_CHIP
        ]
        Lifetimes(effects).of(body, {x.buffer.name: x for x in lives})
        placed: dict[str, int] = {}
        for memory in ON_CHIP:
            here = [x for x in lives if x.memory is memory]
            needed = share and not (apart and _fits(here, given, memory, target, room[memory]))
            placed |= _place(here, given, memory, target, room[memory], share=needed)
        return _with_addresses(body, lives, given, placed)

    return map_launches(fn, planned)


def _with_addresses(
    body: Block, lives: list[Life], given: dict[str, int], placed: dict[str, int]
) -> Block:
    """The body that begins with the allocations, wherever they stood, and their addresses."""
    moved = {id(x.alloc) for x in lives}
    rest = map_statements(body, lambda s: () if id(s) in moved else None)
    new = [x.buffer for x in lives if x.buffer.name not in given]
    note = Annotate("address", buffers=tuple(new), values=tuple(placed[b.name] for b in new))
    return (*(x.alloc for x in lives), *((note,) if new else ()), *rest)


def _statements(body: Block) -> Iterator[Stmt]:
    for stmt in body:
        yield from (n for n in stmt.walk() if isinstance(n, Stmt))


def given_addresses(body: Block) -> Iterator[tuple[str, int]]:
    """The author's addresses."""
    for stmt in _statements(body):
        if isinstance(stmt, Annotate) and stmt.kind == "address":
            yield from ((b.name, a) for b, a in zip(stmt.buffers, stmt.values, strict=True))


# Lifetimes ---------------------------------------------------------------------------------------


class Lifetimes:
    """The steps of a launch at which each buffer holds something.

    A buffer that is used inside one round of a loop only, and whose first use there gives it all
    its contents, lives from that use to the last; any other that is used in a loop lives through
    all of it.
    """

    def __init__(self, effects: Effects) -> None:
        self.effects = effects
        self.step = 0
        self.uses: dict[str, list[Use]] = {}

    def of(self, body: Block, lives: dict[str, Life]) -> None:
        """Find out the lifetimes of buffers, by name."""
        self._walk(body, ())
        for name, life in lives.items():
            life.first, life.last = _span(self.uses.get(name, []))

    def _walk(self, body: Block, around: tuple[Inside, ...]) -> None:
        for stmt in body:
            self.step += 1
            for access in self.effects.of(stmt):
                if access.memory in ON_CHIP:
                    whole = gives_all(access)
                    self.uses.setdefault(access.root.name, []).append(Use(self.step, around, whole))
            blocks = [b for b in bodies(stmt) if b]
            if not blocks:
                continue
            for name in self._filled(stmt):
                self.uses.setdefault(name, []).append(Use(self.step, around, True))
            inside = Inside(self.step, self.step, isinstance(stmt, (For, Pipelined, While)))
            for block in blocks:
                self._walk(block, (*around, inside))
            self.step += 1
            inside.last = self.step

    def _filled(self, stmt: Stmt) -> set[str]:
        """The buffers of which a loop writes all rows, one after the other, and reads nothing."""
        if not isinstance(stmt, For) or int_value(stmt.start) != 0 or stmt.step is not None:
            return set()
        accesses = list(self.effects.inside(stmt))
        read = {a.root.name for a in accesses if a.reads}
        rows = {
            a.root.name
            for a in accesses
            if a.region is not None
            and a.region.buffer == a.root
            and int_value(a.root.shape[0]) == int_value(stmt.stop)
        }
        return {n for n in rows - read if self._on_all_paths(stmt.body, n, stmt.var)}

    def _on_all_paths(self, body: Block, name: str, row: Var) -> bool:
        """Whether a block certainly writes row `row` of a buffer."""
        for stmt in body:
            if any(a.root.name == name and _is_row(a, row) for a in self.effects.of(stmt)):
                return True
            inner = list(bodies(stmt))
            if isinstance(stmt, If) and all(self._on_all_paths(b, name, row) for b in inner):
                return True
        return False


def _is_row(access: Access, row: Var) -> bool:
    """Whether an access writes one whole row."""
    region = access.region
    if region is None or not access.writes or region.mins[0] != row:
        return False
    rest = zip(region.extents[1:], region.buffer.shape[1:], strict=True)
    return int_value(region.extents[0]) == 1 and all(a == b for a, b in rest)


@dataclass(eq=False)
class Inside:
    """A statement with a body: its first and last step, and whether the body may be repeated."""

    first: int
    last: int
    repeats: bool


@dataclass(frozen=True)
class Use:
    """One access: when, inside what, and whether it gives the buffer all its contents."""

    step: int
    around: tuple[Inside, ...]
    gives_all: bool


def _span(uses: list[Use]) -> tuple[int, int]:
    """From when to when a buffer with these uses holds something."""
    if not uses:
        return 0, -1
    depth = 0
    while all(len(u.around) > depth and u.around[depth] is uses[0].around[depth] for u in uses):
        depth += 1
    start = min(uses, key=lambda u: u.step)
    shared = uses[0].around[:depth]
    fresh = start.gives_all and len(start.around) == depth
    loops = [k for k, s in enumerate(shared) if s.repeats]
    if loops and not fresh:
        whole = shared[loops[0]]
        return whole.first, whole.last
    first = min(u.around[depth].first if len(u.around) > depth else u.step for u in uses)
    last = max(u.around[depth].last if len(u.around) > depth else u.step for u in uses)
    return first, last


def gives_all(access: Access) -> bool:
    """Whether an access overwrites all of its buffer without a look at the old contents."""
    if not access.writes or access.reads or access.region is None:
        return False
    sizes = [int_value(e) for e in access.region.buffer.shape]
    extents = [int_value(e) for e in access.region.extents]
    return sizes == extents and access.region.buffer == access.root


# Places ------------------------------------------------------------------------------------------


def _room(fn: Function, memory: Memory, target: Target) -> Capacity | None:
    """What the buffers of a memory may take; threads of SIMT functions keep some of UB."""
    simt = any(isinstance(s, VectorFunction) and s.kind is VectorKind.SIMT for s in fn.walk())
    return target.capacity(memory, when=When.SIMT_FUNCTION if simt else When.ALWAYS)


def _fits(
    lives: list[Life],
    given: dict[str, int],
    memory: Memory,
    target: Target,
    room: Capacity | None,
) -> bool:
    """Whether a memory holds all buffers side by side."""
    try:
        _place(lives, given, memory, target, room, share=False)
    except TileError:
        return False
    return True


def _place(
    lives: list[Life],
    given: dict[str, int],
    memory: Memory,
    target: Target,
    room: Capacity | None,
    *,
    share: bool,
) -> dict[str, int]:
    """Addresses in one memory: of a few orders in which to place buffers, the one that ends
    first.
    """
    chip = target.chip
    fact = chip.alignments.get(memory) if chip is not None else None
    align = fact.value if fact is not None else BLOCK
    fixed = [(given[x.buffer.name], x) for x in lives if x.buffer.name in given]
    free = [x for x in lives if x.buffer.name not in given and x.is_used]
    orders = [sorted(free, key=key) for key in _KEYS] if share else [free]
    tried = [_packed(order, fixed, align, share=share) for order in orders]
    best = min(tried, key=_end)
    _check_room(best, memory, room, share=share)
    unused = {x.buffer.name: 0 for x in lives if not x.is_used}
    return unused | {x.buffer.name: at for at, x in best}


_KEYS: tuple[Callable[[Life], tuple[int, ...]], ...] = (
    lambda x: (-x.size, x.first),
    lambda x: (x.first, -x.size),
    lambda x: (x.first - x.last, -x.size),
    lambda x: (-x.size * (x.last - x.first + 1), x.first),
)
"""The largest first; the earliest; the longest-lived; the largest times its life."""


def _packed(
    order: list[Life], fixed: list[tuple[int, Life]], align: int, *, share: bool
) -> list[tuple[int, Life]]:
    """Each buffer in turn as low as it goes beside those before it."""
    taken = list(fixed)
    for life in order:
        busy = sorted(
            (at, at + x.size)
            for k, (at, x) in enumerate(taken)
            if k < len(fixed) or not share or x.overlaps(life)
        )
        address = 0
        for low, high in busy:
            if address + life.size <= low:
                break
            address = max(address, ceil_to(high, align))
        taken.append((address, life))
    return taken


def _end(placed: list[tuple[int, Life]]) -> int:
    return max((at + x.size for at, x in placed), default=0)


def _check_room(
    taken: list[tuple[int, Life]], memory: Memory, capacity: Capacity | None, *, share: bool
) -> None:
    """Refuse what ends beyond the memory."""
    if capacity is None or not taken:
        return
    address, life = max(taken, key=lambda p: p[0] + p[1].size)
    end = address + life.size
    if end <= capacity.amount:
        return
    total = sum(x.size for _, x in taken)
    raise error(
        "capacity",
        f"the buffers in the {memory.title} need {end} bytes",
        life.alloc.loc,
        label=f"{life.buffer.name} lies at {address}, with {life.size} bytes",
        expected=f"at most {capacity.amount} bytes ({capacity.source})",
        got=f"{end} bytes, of {len(taken)} buffers with {total} bytes",
        help="make tiles smaller"
        if share
        else "make tiles smaller, or let them share bytes: pass config tl.ascend_memory_planning",
    )
