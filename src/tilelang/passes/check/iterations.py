"""Races inside a block: between iterations of one T.Parallel, and between threads.

What enters: a `Program`. What leaves: an error where two iterations of a T.Parallel store one
element, or one stores what another reads, since iterations have no order; a warning where both
store one value, or where threads store different values outside T.Parallel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from tilelang.errors import Diagnostic, Severity, warning
from tilelang.ir.expr import Binary, Bitcast, Buffer, Call, Cast, Const, Load, Select, Unary, Var
from tilelang.ir.tile import Let, Parallel, Store
from tilelang.passes.check.apart import apart
from tilelang.passes.check.collide import Boxes, Meeting, boxes, meeting
from tilelang.passes.check.domain import Sizes, Take, names_in, points, symbols
from tilelang.passes.check.program import Program
from tilelang.passes.check.races import (
    Found,
    element_text,
    groups,
    in_all,
    ordered,
    partners,
    plain_stores,
    sizes_note,
    used_by,
)
from tilelang.passes.check.walk import Axis, AxisKind, Place, Touch
from tilelang.scopes import Memory

# Memories in which each thread has its own elements, or that only waits and arrivals touch.
_PRIVATE = frozenset(
    {
        Memory.LOCAL,
        Memory.VAR,
        Memory.REDUCER,
        Memory.DESCRIPTOR,
        Memory.BARRIER,
        Memory.CLUSTER_BARRIER,
    }
)


def between_iterations(program: Program) -> Iterator[Diagnostic]:
    """No iteration of a T.Parallel stores an element that another iteration touches."""
    loops: dict[int, tuple[Parallel, list[Touch]]] = {}
    for touch in program.touches:
        loop = _outermost(touch.place)
        if loop is not None and program.memory(touch.buffer) not in _PRIVATE:
            loops.setdefault(id(loop), (loop, []))[1].append(touch)
    for loop, touches in loops.values():
        shared = [*symbols(program.fn), *_outside(program, loop)]
        for group in groups(program, touches):
            telling = _parallel_vars(group[0])
            alike = all(_parallel_vars(t) == telling for t in group)
            if alike and apart(group, telling, shared):
                continue
            done: set[int] = set()
            for store in plain_stores(group):
                found = _across_iterations(program, shared, store, (group, touches), done)
                if found is not None:
                    done.add(id(store))
                    yield _iteration_race(program, found)


def _parallel_vars(touch: Touch) -> list[Var]:
    return [a.var for a in touch.place.of_kind(AxisKind.PARALLEL)]


def _outermost(place: Place) -> Parallel | None:
    return next((s for s in place.path if isinstance(s, Parallel)), None)


def _across_iterations(
    program: Program,
    shared: Sequence[Var],
    store: Touch,
    around: tuple[Sequence[Touch], Sequence[Touch]],
    done: set[int],
) -> Found | None:
    group, inside = around
    telling = _parallel_vars(store)
    for other in partners(store, group):
        same = _parallel_vars(other) == telling
        if id(other) in done or not same or apart((store, other), telling, shared):
            continue
        for turn in (0, 1):
            ask = partial(_iterations_meet, store, other, telling, turn=turn)
            found = in_all(program, ask)
            if found is not None:
                met = ordered(found[0], other is store)
                uniform = other is store and _uniform(store, met, inside, shared)
                return Found(store, other, met, found[1], uniform)
    return None


def _outside(program: Program, loop: Parallel) -> Iterator[Var]:
    """The variables that have one value for all iterations of `loop`."""
    place = next(s.place for s in program.sites if s.stmt is loop)
    yield from (a.var for a in place.axes)
    for site in program.sites:
        if isinstance(site.stmt, Let) and site.place.path == place.path[: len(site.place.path)]:
            yield site.stmt.var


def _iterations_meet(
    store: Touch, other: Touch, telling: Sequence[Var], sizes: Sizes, *, turn: int
) -> Meeting | None:
    """A meeting in the first block and round of outer loops, or (`turn` 1) in the last taken."""
    sides: list[Boxes] = []
    for touch in (store, other):
        outer = set(_before_parallel(touch.place))

        def spread(axis: Axis, outer: set[Axis] = outer) -> Take:
            return Take(1 + turn) if axis in outer else Take()

        needed = [*touch.mins, *touch.extents, *telling]
        at = points(touch.place, touch.guards, needed, fixed=sizes, spread=spread)
        sides.append(boxes(touch, at.last([a.var for a in outer]), telling))
    return meeting(sides[0], sides[1], telling)


def _before_parallel(place: Place) -> Iterator[Axis]:
    for axis in place.axes:
        if axis.kind is AxisKind.PARALLEL:
            return
        yield axis


# Of these, a value is the same wherever its variables and the memory it reads are the same.
_PURE = (Const, Var, Binary, Unary, Cast, Bitcast, Select, Call, Load, Buffer)


def _uniform(store: Touch, met: Meeting, inside: Sequence[Touch], shared: Sequence[Var]) -> bool:
    """Whether iterations that meet store one value: it depends on nothing in which they differ."""
    if store.value is None or not all(isinstance(n, _PURE) for n in store.value.walk()):
        return False
    written = {t.buffer.name for t in inside if t.writes}
    if any(isinstance(n, Load) and n.buffer.name in written for n in store.value.walk()):
        return False
    telling = {a.var for a in store.place.of_kind(AxisKind.PARALLEL)}
    return names_in(store.value) <= {*shared, *telling} - met.differ


def _iteration_race(program: Program, found: Found) -> Diagnostic:
    store, other = found.store, found.other
    telling = _parallel_vars(store)
    texts = [_iteration(program, telling, m) for m in (found.meeting.first, found.meeting.second)]
    element = element_text(store.buffer, found.meeting)
    name = store.buffer.name
    index = program.indexed(store.buffer, store.mins)
    if found.uniform:
        return warning(
            "race",
            f"several iterations of T.Parallel store the same value to one element of {name}",
            store.loc,
            label=f"iterations {texts[0]} and {texts[1]} both store {element}",
            expected="each element stored by one iteration",
            got=f"{index}, which is the same for several iterations",
            help=_guard_help(program, found),
        )
    both = other is store
    if other.writes:
        what = f"store to one element of {name}"
        label = f"iterations {texts[0]} and {texts[1]} both store {element}"
    else:
        what = f"store elements of {name} that others read"
        label = f"iteration {texts[0]} stores {element}, which iteration {texts[1]} reads"
    at = other.loc
    return Diagnostic(
        "race",
        f"iterations of T.Parallel {what}",
        store.loc,
        label=label,
        expected="each element stored by one iteration, and read by no other"
        if not other.writes
        else "each element stored by one iteration: they have no order",
        got=index if both else f"{index} and {program.indexed(other.buffer, other.mins)}",
        notes=sizes_note(program, found),
        help=_race_help(program, found),
        related=() if both or at is None or at == store.loc else ((at, _what(other)),),
    )


def _what(other: Touch) -> str:
    return f"{other.buffer.name} is {'stored' if other.writes else 'read'} here"


def _iteration(program: Program, telling: Sequence[Var], values: Sizes) -> str:
    text = program.example(values, telling)
    return f"({text})" if len(telling) > 1 else text


def _race_help(program: Program, found: Found) -> str:
    store = found.store
    target = program.indexed(store.buffer, store.mins)
    if found.other is not store and not found.other.writes:
        return (
            "store to another buffer, or make two T.Parallel loops of it: reads first, into a"
            " buffer, then the stores"
        )
    if found.other is store and _accumulates(store):
        return (
            f"combine the values of a tile with T.reduce_sum and the like, collect them with"
            f" T.alloc_reducer, or use `T.atomic_add({target}, value)`"
        )
    return _guard_help(program, found)


def _accumulates(store: Touch) -> bool:
    """Whether the stored value is made from the element itself, as in `x[0] += v`."""
    if store.value is None:
        return False
    loads = [n for n in store.value.walk() if isinstance(n, Load)]
    return any(n.buffer == store.buffer and n.indices == store.mins for n in loads)


def _guard_help(program: Program, found: Found) -> str:
    telling = _parallel_vars(found.store)
    differ = [program.shown(v) for v in telling if v in found.meeting.differ]
    which = " and ".join(differ) or "the loop variables"
    guard = " and ".join(f"{name} == 0" for name in differ) or "..."
    return f"let the index depend on {which}, or let one iteration store: `if {guard}:`"


# Between threads ---------------------------------------------------------------------------------


def between_threads(program: Program) -> Iterator[Diagnostic]:
    """Outside T.Parallel, threads do not store different values to one element."""
    for store in program.touches:
        if not isinstance(store.element, Store) or not store.place.certain:
            continue
        if store.place.of_kind(AxisKind.PARALLEL) or program.memory(store.buffer) in _PRIVATE:
            continue
        telling = [a.var for a in store.place.of_kind(AxisKind.THREAD)]
        if store.value is None or not names_in(store.value) & set(telling):
            continue
        if apart((store,), telling, symbols(program.fn)):
            continue
        found = in_all(program, partial(_threads_meet, store, telling))
        if found is not None:
            yield _thread_race(program, Found(store, store, ordered(found[0], True), found[1]))


def _threads_meet(store: Touch, telling: Sequence[Var], sizes: Sizes) -> Meeting | None:
    def spread(axis: Axis) -> Take:
        return Take() if axis.kind is AxisKind.THREAD else Take(1)

    at = points(store.place, store.guards, [*store.mins, *telling], fixed=sizes, spread=spread)
    made = boxes(store, at, telling)
    return meeting(made, made, telling)


def _thread_race(program: Program, found: Found) -> Diagnostic:
    store = found.store
    telling = [v for v in found.meeting.differ if store.value and v in names_in(store.value)]
    used = sorted({*telling, *(used_by(store) & found.meeting.differ)}, key=lambda v: v.name)
    texts = [_iteration(program, used, m) for m in (found.meeting.first, found.meeting.second)]
    name, element = store.buffer.name, element_text(store.buffer, found.meeting)
    return Diagnostic(
        "race",
        f"threads store different values to one element of {name}",
        store.loc,
        label=f"threads {texts[0]} and {texts[1]} both store {element}",
        expected="each element stored by one thread",
        got=f"{program.indexed(store.buffer, store.mins)}, the same for several threads",
        help=f"let the index depend on {values_names(used)}, or let one thread store:"
        f" `if {values_names(used)} == 0:`",
        severity=Severity.WARNING,
    )


def values_names(names: Sequence[Var]) -> str:
    """The names, or the first thread index where there is none."""
    return names[0].name if names else "tx"
