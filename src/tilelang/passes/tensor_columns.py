"""The columns of Tensor Memory that buffers take, and how a block allocates them.

What enters: the body of a launch. What leaves: its allocations: which are made when the block
begins, the widest first, which where they stand, and one that the hardware does not allow: none may
be wider than one before it (PTX ISA, tcgen05.alloc). Columns come in powers of two, so what
rounding up leaves of a wide buffer holds narrower ones that come and go with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tilelang.ir.expr import int_value
from tilelang.ir.tile import Alloc, Block, For, Free, If, Parallel, Pipelined, Stmt, While
from tilelang.layout.cells import CELL_BITS, ROWS
from tilelang.passes.lower_parallel import blocks

BEGINS = (4, 32)
"""A buffer begins at a multiple of the power of two that holds it, within these bounds: copies of
scales write four columns at once, and 32 are what an allocation of its own begins at.
"""


def columns_asked(elements: int, rows: int, bits: int, *, packed: bool) -> int:
    """The columns for `elements` of `bits` bits in `rows` rows, of which bands of 128 lie one after
    the other. Elements that are not `packed` take a whole 32-bit cell each.
    """
    cell = bits if packed else max(bits, CELL_BITS)
    return -(-(elements // min(rows, ROWS)) * cell // CELL_BITS) if rows else 0


def is_packed(roles: str, *, mixed: bool) -> bool:
    """Whether elements of less than 32 bits share cells. Those of a result of products do not (PTX
    ISA: tcgen05.ld and st pack and unpack them with .pack::16b and .unpack::16b), unless it has a
    view of elements of another size. `roles` are the letters of the operands of products that a
    buffer is.
    """
    return mixed or "c" not in roles


@dataclass(frozen=True)
class Allocation:
    """Columns that are allocated at once: `members` are the buffers in them, each with the column
    that it begins at, the widest first, which begins at 0; `columns` are what they need together,
    `taken` what that is rounded up to. The author gives them back at each of `freed`, of which at
    most one is got to, one of them for `sure`; else they are given back at the end of the block in
    which they are allocated. What stands one after the other is allocated where `earliest` stands.
    """

    members: tuple[tuple[Alloc, int], ...]
    columns: int
    taken: int
    freed: tuple[Free, ...]
    sure: bool
    earliest: Alloc

    @property
    def widest(self) -> Alloc:
        """The allocation of the widest member."""
        return self.members[0][0]


@dataclass(frozen=True)
class Order:
    """`first` are allocated when the block begins, `later` where they stand; `wider` is an
    allocation after a narrower one, if there is one.
    """

    first: tuple[Allocation, ...]
    later: tuple[Allocation, ...]
    wider: Allocation | None

    def of(self, name: str) -> Allocation | None:
        """The allocation that has a buffer."""
        every = (*self.first, *self.later)
        return next((x for x in every if any(a.buffer.name == name for a, _ in x.members)), None)


@dataclass(frozen=True)
class Columns:
    """What is known of buffers: the columns that an allocation in Tensor Memory asks for, None for
    other memory; what so many are rounded up to; how many there are; the buffers of views.
    """

    asked: Callable[[Alloc], int | None]
    rounded: Callable[[int], int]
    most: int
    roots: Mapping[str, str]


@dataclass(frozen=True)
class _Event:
    """An allocation or a free: the statements it is one of, the bodies of loops and conditions
    around it, and the outermost loop.
    """

    stmt: Alloc | Free
    home: Block
    around: tuple[int, ...]
    loop: Stmt | None


def order_of(body: Block, given: Columns) -> Order:
    """The allocations of a launch."""
    events = [
        e
        for e in _events(body, (), None)
        if isinstance(e.stmt, Free) or given.asked(e.stmt) is not None
    ]
    allocs = [e for e in events if isinstance(e.stmt, Alloc)]
    if len(allocs) == len(events):
        first = _shared([(e, 0) for e in allocs], {}, given)
        if sum(x.taken for x in first) <= given.most:
            return Order(tuple(first), (), None)
    early: list[_Keyed] = []
    late: list[_Keyed] = []
    run, before = 0, None
    for e in events:
        if isinstance(e.stmt, Free):
            run, before = run + 1, None
        elif run or e.around:
            run += e.home is not before
            before = e.home
            late.append((e, run))
        else:
            early.append((e, 0))
    ends = _ends(events, given)
    first, later = _shared(early, ends, given), _shared(late, ends, given)
    place = {id(e.stmt): k for k, e in enumerate(allocs)}
    later.sort(key=lambda x: (place[id(x.earliest)], -x.taken))
    loops = {id(e.stmt): e.loop for e in allocs}
    return Order(tuple(first), tuple(later), _wider(first, later, loops))


def columns_held(body: Block, order: Order) -> int:
    """The most columns that a launch holds at once."""
    return _held(body, order, sum(x.taken for x in order.first))[0]


def _held(body: Block, order: Order, live: int) -> tuple[int, int]:
    """The most columns that are held in these statements, and how many after them."""
    most, mine = live, 0
    for stmt in body:
        if isinstance(stmt, Alloc):
            made = [x for x in order.later if x.earliest is stmt]
            live += sum(x.taken for x in made)
            mine += sum(x.taken for x in made if not x.sure)
        elif isinstance(stmt, Free):
            every = (*order.first, *order.later)
            live -= sum(x.taken for x in every for f in x.freed if f is stmt)
        most = max(most, live)
        for inner in blocks(stmt):
            found, left = _held(inner, order, live)
            most = max(most, found)
            live = live if isinstance(stmt, If) else left  # an arm may not be run
    return most, live - mine


_Keyed = tuple[_Event, int]
"""An allocation, and the number of those that stand one after the other in the same statements."""


@dataclass(frozen=True)
class _End:
    """Where the author frees a buffer: `place` is the same for all that may as well be freed by the
    last of them, by `number`: those in the same statements without an allocation in between.
    """

    place: tuple[int, int]
    number: int
    event: _Event


_Ends = Mapping[str, Sequence[_End]]


def _ends(events: Sequence[_Event], given: Columns) -> _Ends:
    """Where the author frees buffers."""
    found: dict[str, list[_End]] = {}
    allocs = 0
    for k, e in enumerate(events):
        if isinstance(e.stmt, Alloc):
            allocs += 1
        else:
            name = given.roots.get(e.stmt.buffer.name, e.stmt.buffer.name)
            found.setdefault(name, []).append(_End((id(e.home), allocs), k, e))
    return found


@dataclass
class _Room:
    """An allocation in the making: what its members have in common, and what they take."""

    run: int
    ends: tuple[tuple[int, int], ...]
    taken: int
    used: int = 0
    members: list[tuple[_Event, int]] = field(default_factory=list[tuple[_Event, int]])


def _shared(found: Sequence[_Keyed], ends: _Ends, given: Columns) -> list[Allocation]:
    """Allocations for buffers, the widest first. A buffer goes into the first allocation that has
    room and begins and ends with it: then it costs nothing. To double an allocation costs at least
    as much as another one would.
    """
    rooms: list[_Room] = []
    for event, run in sorted(found, key=lambda x: -_asked(x[0], given)):
        asked, name = _asked(event, given), event.stmt.buffer.name
        end = tuple(e.place for e in ends.get(name, ()))
        unit = min(max(BEGINS[0], 1 << max(asked - 1, 0).bit_length()), BEGINS[1])
        for room in rooms:
            at = -(-room.used // unit) * unit
            if (room.run, room.ends) == (run, end) and at + asked <= room.taken:
                break
        else:
            room, at = _Room(run, end, given.rounded(asked)), 0
            rooms.append(room)
        room.members.append((event, at))
        room.used = at + asked
    stands = {run: e.stmt for e, run in reversed(found) if isinstance(e.stmt, Alloc)}
    return [_allocation(room, ends, stands[room.run]) for room in _of_rounds(rooms, given)]


def _of_rounds(rooms: Sequence[_Room], given: Columns) -> list[_Room]:
    """A loop allocates in each round again, so it may not allocate several widths: what begins and
    ends together there is one allocation.
    """
    out: list[_Room] = []
    for run, ends in dict.fromkeys((x.run, x.ends) for x in rooms):
        found = [x for x in rooms if (x.run, x.ends) == (run, ends)]
        looped = run and found[0].members[0][0].loop is not None
        if not looped or len({x.taken for x in found}) == 1:
            out += found
            continue
        one = _Room(run, ends, 0)
        for x in found:
            one.members += [(event, one.taken + at) for event, at in x.members]
            one.used = one.taken + x.used
            one.taken += x.taken
        one.taken = given.rounded(one.used)
        out.append(one)
    return sorted(out, key=lambda x: -x.taken)


def _allocation(room: _Room, ends: _Ends, earliest: Alloc) -> Allocation:
    members = tuple((e.stmt, at) for e, at in room.members if isinstance(e.stmt, Alloc))
    every = [ends.get(a.buffer.name, ()) for a, _ in members]
    last = [max(each, key=lambda e: e.number).event for each in zip(*every, strict=True)]
    freed = tuple(e.stmt for e in last if isinstance(e.stmt, Free))
    sure = any(e.around == room.members[0][0].around for e in last)
    return Allocation(members, room.used, room.taken, freed, sure, earliest)


def _asked(event: _Event, given: Columns) -> int:
    assert isinstance(event.stmt, Alloc)
    return given.asked(event.stmt) or 0


def _wider(
    first: Sequence[Allocation], later: Sequence[Allocation], loops: Mapping[int, Stmt | None]
) -> Allocation | None:
    """An allocation that is wider than one before it, also in the round before."""
    least = min((x.taken for x in first), default=None)
    for k, x in enumerate(later):
        loop = loops[id(x.widest)]
        again = [y for y in later[k + 1 :] if loop is not None and loops[id(y.widest)] is loop]
        if (least is not None and x.taken > least) or any(y.taken < x.taken for y in again):
            return x
        least = x.taken if least is None else min(least, x.taken)
    return None


def _events(body: Block, around: tuple[int, ...], loop: Stmt | None) -> Iterator[_Event]:
    for stmt in body:
        if isinstance(stmt, (Alloc, Free)):
            yield _Event(stmt, body, around, loop)
        outer = loop or (stmt if _repeats(stmt) else None)
        for inner in blocks(stmt):
            deeper = isinstance(stmt, (For, Pipelined, Parallel, While, If))
            yield from _events(inner, (*around, id(inner)) if deeper else around, outer)


def _repeats(stmt: Stmt) -> bool:
    """Whether a statement may do what is inside more than once."""
    if isinstance(stmt, (For, Pipelined)):
        start, stop = int_value(stmt.start), int_value(stmt.stop)
        return start is None or stop is None or stop > start + 1
    return isinstance(stmt, (Parallel, While))
