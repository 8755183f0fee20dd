"""Races: elements that two blocks, iterations of T.Parallel or threads touch with no order.

What enters: a `Program`. What leaves: findings that were proved by an example, with its values;
where nothing can be proved there is no finding. Races between blocks and between threads are
warnings; a race between iterations of one T.Parallel is an error (docs/language.md).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tilelang.errors import Diagnostic, Loc, Severity, warning
from tilelang.ir.affine import is_stable
from tilelang.ir.expr import Buffer, Var, int_value
from tilelang.ir.sync import ClusterBarrier, SyncGrid
from tilelang.ir.text import print_expr
from tilelang.ir.tile import Launch, While
from tilelang.passes.check.apart import apart
from tilelang.passes.check.collide import Boxes, Meeting, boxes, meeting, widened
from tilelang.passes.check.domain import (
    Sizes,
    Take,
    UnknownValueError,
    names_in,
    points,
    samples,
    symbols,
)
from tilelang.passes.check.program import Program, listed
from tilelang.passes.check.walk import Axis, AxisKind, Touch
from tilelang.scopes import Memory


@dataclass(frozen=True)
class Found:
    """Two accesses that meet. `uniform` says that both store one value, so that neither is lost."""

    store: Touch
    other: Touch
    meeting: Meeting
    sizes: Sizes
    uniform: bool = False


def groups(program: Program, touches: Iterable[Touch]) -> list[list[Touch]]:
    """The accesses of each buffer, where all use one name, and nothing else may lead to it.

    A buffer that is bound to an address (`T.make_tensor`) may be another one in each iteration.
    """
    found: dict[str, list[Touch]] = {}
    for touch in touches:
        found.setdefault(program.root(touch.buffer).name, []).append(touch)
    return [
        group
        for name, group in found.items()
        if len({t.buffer.name for t in group}) == 1
        and program.is_own(name)
        and not program.addressed & {name, group[0].buffer.name}
        and group[0].buffer.rank
    ]


# How many pairs of accesses of one buffer are looked at, beside each store with itself.
_PARTNERS = 1024


def partners(store: Touch, group: Sequence[Touch]) -> list[Touch]:
    """What a store can race with: itself first, then other stores, atomics, and reads."""
    others = [t for t in group if t is not store and t.effect and t.place.certain]
    others.sort(key=lambda t: not t.writes)
    return [store, *others[: _PARTNERS // len(group)]]


def plain_stores(group: Sequence[Touch]) -> list[Touch]:
    """The accesses that write without being atomic, and that surely happen."""
    return [t for t in group if t.writes and not t.atomic and t.place.certain]


# Between blocks ----------------------------------------------------------------------------------


def between_blocks(program: Program) -> Iterator[Diagnostic]:
    """No block stores an element of global memory that another block touches."""
    for launch in program.launches:
        own = [t for t in program.touches if t.place.launch is launch]
        telling = _block_vars(launch)
        if _blocks_wait(program, own, launch):
            continue
        shared = [t for t in own if program.memory(t.buffer) is Memory.GLOBAL]
        for group in groups(program, shared):
            if not telling or apart(group, telling, symbols(program.fn)):
                continue
            done: set[int] = set()
            for store in plain_stores(group):
                found = _across_blocks(program, launch, store, group, done)
                if found is not None:
                    done.add(id(store))
                    yield _block_race(program, launch, found)


def _block_vars(launch: Launch) -> list[Var]:
    """The block indices that have several values."""
    return [v for v, e in zip(launch.vars, launch.grid, strict=True) if int_value(e) != 1]


# Memory orders with which a thread may learn that what another one stored is there.
_ACQUIRE = frozenset({"consume", "acquire", "acq_rel", "seq_cst"})


def _blocks_wait(program: Program, own: Sequence[Touch], launch: Launch) -> bool:
    """Whether blocks of the launch wait for each other, so that their accesses may be ordered."""
    for site in program.sites:
        if site.place.launch is launch and isinstance(site.stmt, (SyncGrid, ClusterBarrier)):
            return True
    return any(_may_wait(t) for t in own if program.memory(t.buffer) is Memory.GLOBAL)


def _may_wait(touch: Touch) -> bool:
    order = getattr(touch.element or touch.site.stmt, "memory_order", "relaxed")
    return isinstance(touch.site.stmt, While) or (touch.atomic and order in _ACQUIRE)


def _across_blocks(
    program: Program, launch: Launch, store: Touch, group: Sequence[Touch], done: set[int]
) -> Found | None:
    telling = _block_vars(launch)
    shared = symbols(program.fn)
    for other in partners(store, group):
        if id(other) in done or apart((store, other), telling, shared):
            continue
        found = in_all(program, partial(_blocks_meet, store, other, telling))
        if found is not None:
            uniform = other is store and same_value(store, set(telling), found[1])
            return Found(store, other, ordered(found[0], other is store), found[1], uniform)
    return None


def in_all(
    program: Program, ask: Callable[[Sizes], Meeting | None]
) -> tuple[Meeting, Sizes] | None:
    """The answer for the first sample of sizes, if there is one for every sample."""
    found: list[tuple[Meeting, Sizes]] = []
    for sizes in samples(program.fn):
        try:
            answer = ask(sizes)
        except UnknownValueError:
            return None
        if answer is None:
            return None
        found.append((answer, sizes))
    return found[0]


def ordered(found: Meeting, both: bool) -> Meeting:
    """The same meeting, the iteration with the lower numbers first where both do the same."""
    if not both or list(found.first.values()) <= list(found.second.values()):
        return found
    return Meeting(found.element, found.second, found.first, found.differ)


# Which block indices to look at, by the number of axes: some of many; then the first two, and the
# first and last, of each axis, with all that is inside a block.
_BLOCKS: tuple[dict[int, Take], ...] = (
    {1: Take(64), 2: Take(8), 3: Take(4)},
    dict.fromkeys((1, 2, 3), Take(2)),
    dict.fromkeys((1, 2, 3), Take(2, ends=True)),
)
_ROUNDS = Take(8)


def _blocks_meet(
    store: Touch, other: Touch, telling: Sequence[Var], sizes: Sizes
) -> Meeting | None:
    wide = [widened(t) for t in (store, other)]
    for choice in _BLOCKS:
        blocks = choice[len(telling)]

        def spread(axis: Axis, blocks: Take = blocks) -> Take:
            if axis.kind is AxisKind.BLOCK:
                return blocks
            return _ROUNDS if axis.kind is AxisKind.SERIAL else Take()

        sides: list[Boxes] = []
        for w in wide:
            needed = [*w.touch.mins, *w.touch.extents, *telling]
            at = points(w.touch.place, w.touch.guards, needed, fixed=sizes, spread=spread)
            sides.append(boxes(w.touch, at, telling))
        found = meeting(sides[0], sides[1], telling)
        if found is not None:
            first = wide[0].values(found.first, found.element)
            second = wide[1].values(found.second, found.element)
            return Meeting(found.element, first, second, found.differ)
    return None


def same_value(store: Touch, telling: set[Var], sizes: Sizes) -> bool:
    """Whether the store writes one value in all iterations that differ in `telling`."""
    value = store.value
    if value is None or not is_stable(value):
        return False
    parallel = {a.var for a in store.place.of_kind(AxisKind.PARALLEL)}
    return names_in(value) <= {*sizes, *parallel} - telling


def _block_race(program: Program, launch: Launch, found: Found) -> Diagnostic:
    store, other = found.store, found.other
    name = store.buffer.name
    blocks = [_block_text(launch, m) for m in (found.meeting.first, found.meeting.second)]
    element = element_text(store.buffer, found.meeting)
    verb = "updates" if other.atomic else "stores" if other.writes else "reads"
    both = other is store
    label = (
        f"blocks {blocks[0]} and {blocks[1]} both store {element}"
        if both
        else f"block {blocks[0]} stores {element}, block {blocks[1]} {verb} it"
    )
    label += _example(program, found, launch.vars)
    if found.uniform:
        return Diagnostic(
            "race",
            f"several blocks store the same value to one element of {name}",
            store.loc,
            label=label,
            notes=sizes_note(program, found),
            severity=Severity.NOTE,
        )
    return warning(
        "race",
        f"a race between blocks on {name}: {_race_kind(other, both)}",
        store.loc,
        label=label,
        expected="each element stored by one block, and touched by no other",
        got=f"a grid of {_grid_text(launch)} blocks that share {name}",
        notes=sizes_note(program, found),
        related=_related(program, found),
        help=_block_help(program, launch, found),
    )


def _race_kind(other: Touch, both: bool) -> str:
    if both or (other.writes and not other.atomic):
        return "two blocks store one element"
    if other.atomic:
        return "one block stores what another updates atomically"
    return "one block stores what another reads"


def _block_text(launch: Launch, values: Mapping[Var, int]) -> str:
    parts = [f"{v.name} = {values[v]}" for v in launch.vars if v in values]
    return f"({', '.join(parts)})" if len(parts) > 1 else "".join(parts)


def element_text(buffer: Buffer, found: Meeting) -> str:
    """The element of a meeting, as it is written in a program."""
    return f"{buffer.name}[{', '.join(map(str, found.element))}]"


def _example(program: Program, found: Found, blocks: Sequence[Var]) -> str:
    """The values of the other variables that the accesses depend on."""
    texts: list[str] = []
    for touch, values in ((found.store, found.meeting.first), (found.other, found.meeting.second)):
        names = [v for v in values if v in used_by(touch) and v not in (*blocks, *found.sizes)]
        texts.append(program.example(values, names))
    if not any(texts):
        return ""
    return f" ({texts[0] if texts[0] == texts[1] else ' and '.join(t for t in texts if t)})"


def used_by(touch: Touch) -> set[Var]:
    """The variables that decide where and whether the access is."""
    return names_in(*touch.mins, *touch.extents, *(g.cond for g in touch.guards))


def sizes_note(program: Program, found: Found) -> tuple[str, ...]:
    """The symbolic sizes of the example, as a note."""
    used = used_by(found.store) | used_by(found.other) | names_in(*found.store.buffer.shape)
    for axis in (*found.store.place.axes, *found.other.place.axes):
        used |= names_in(axis.start, *(() if axis.stop is None else (axis.stop,)))
    return sizes_text(program, found.sizes, used)


def sizes_text(program: Program, sizes: Sizes, used: Collection[Var]) -> tuple[str, ...]:
    """The symbolic sizes of an example that are used in it, as a note."""
    text = program.example(sizes, [v for v in sizes if v in used])
    return (f"the example is for {text}",) if text else ()


def _grid_text(launch: Launch) -> str:
    return " x ".join(print_expr(e) for e in launch.grid)


def _related(program: Program, found: Found) -> tuple[tuple[Loc, str], ...]:
    out: list[tuple[Loc, str]] = []
    if found.other is not found.store and found.other.loc is not None:
        other = found.other
        what = "updated" if other.atomic else "stored" if other.writes else "read"
        out.append((found.other.loc, f"{found.other.buffer.name} is {what} here"))
    at = program.defined_at(found.store.buffer)
    if at is not None and found.store.buffer.name in program.allocs:
        out.append((at, f"{program.allocated(found.store.buffer)}, one for all blocks"))
    return tuple(out)


def _block_help(program: Program, launch: Launch, found: Found) -> str:
    store = found.store
    name = store.buffer.name
    index = ", ".join(v.name for v in launch.vars)
    if name in program.allocs:
        grid = ", ".join(print_expr(e) for e in launch.grid)
        shape = ", ".join(print_expr(e) for e in store.buffer.shape)
        at = ", ".join(program.shown(e) for e in store.mins)
        return (
            f"give each block a part of its own: `{name} = T.alloc_global(({grid}, {shape}), "
            f'"{store.buffer.dtype}")`, indexed by `{name}[{index}, {at}]`'
        )
    if not found.other.writes:
        return "read from another tensor than the one that is stored to, or use two launches"
    if found.other.atomic:
        return "do the plain stores in a launch of their own, before this one"
    return f"let the index depend on {listed([v.name for v in launch.vars])}, or use T.atomic_add"
