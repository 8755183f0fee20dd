"""Happens-before: which accesses are ordered, whatever the schedule was.

What enters: who synchronises with whom. What leaves: for an access and those before it, whether
they are ordered.

A `Team` keeps a row for each actor: the epochs of all actors of the team up to which it knows. The
epoch of an actor rises whenever it gives its knowledge away, so that what it does afterwards is not
covered. An access is a *stamp*, one int64: team (16 bits), actor (16 bits), epoch (32 bits). Stamp
0 is no access, `HOST` is what was there before the launch. Between teams order is coarse: a
published tick of a team covers all its epochs up to it.

For each path but the first there is a second row: what path 0 has done that is visible to this path
(see the package).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tilelang.errors import InternalError

Actors = npt.NDArray[np.int64]
Stamps = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Clock = npt.NDArray[np.int32]
"""The knowledge that is handed over: (paths, actors) epochs."""

HOST = 1
"""The stamp of what was in memory before the launch: every actor knows of it."""

_TEAM, _ACTOR, _LOW16, _LOW32 = 48, 32, 0xFFFF, 0xFFFFFFFF
_FIRST_ROWS = 64


class Clocks:
    """The teams of a launch. What an actor knows of the path `private` it never hands over.

    Where it is `traced`, teams remember by what each actor knows of each other one.
    """

    def __init__(self, paths: int = 1, private: int | None = None) -> None:
        self.paths = paths
        self.private = private
        self.traced = False
        self.teams: dict[int, Team] = {}
        self._next = 1

    def team(self, title: str = "") -> Team:
        """A new team, without actors; `title` is what other teams call it in reports."""
        if self._next > 0x7FFF:
            raise InternalError("a simulated launch of more than 32,767 teams")
        made = self.teams[self._next] = Team(self._next, self.paths, title)
        if self.traced:
            made.via = np.zeros(made.rows.shape, np.int32)
        made.private = self.private
        self._next += 1
        return made

    def drop(self, team: Team) -> None:
        """Forget a team that has ended. Its stamps stay unknown to teams it has told nothing."""
        del self.teams[team.number]
        team.end_all()


class Team:
    """Actors with an exact order between them. Actors are numbered from 0."""

    def __init__(self, number: int, paths: int, title: str = "") -> None:
        self.number = number
        self.title = title
        self.paths = paths
        self.private: int | None = None
        self.count = 0
        self.tick = 1
        self.rows: npt.NDArray[np.int32] = np.zeros((paths, _FIRST_ROWS, _FIRST_ROWS), np.int32)
        self.epochs: Actors = np.zeros(_FIRST_ROWS, np.int64)
        self.groups: Actors = np.zeros(_FIRST_ROWS, np.int64)
        self.group_count = 0
        self.far: dict[int, int] = {}
        self.via: npt.NDArray[np.int32] | None = None
        self.causes: list[str] = [""]
        self._labels: list[tuple[int, int, Callable[[int], str]]] = []
        self._ended: list[int] = []

    # Actors --------------------------------------------------------------------------------------

    def add(self, count: int, label: Callable[[int], str], *, per_group: int = 1) -> Actors:
        """`count` new actors, which know of nothing yet. `label(k)` is the name of the k-th.

        The shadow remembers one reader of a byte for each group of `per_group` neighbours, so a
        group should hold actors that mostly synchronise together.
        """
        first, self.count = self.count, self.count + count
        if self.count > self.epochs.size:
            self._grow(max(self.count, 2 * self.epochs.size))
        made = np.arange(first, self.count)
        self.groups[made] = self.group_count + (made - first) // per_group
        self.group_count += -(-count // per_group)
        self.tick += 1
        self.epochs[made] = self.tick
        self.rows[0, made, made] = self.tick
        self._labels.append((first, self.count, label))
        return made

    def end_all(self) -> None:
        """Nobody asks for the name of an actor again; what gives it may hold a block."""
        self._labels.clear()

    def _grow(self, size: int) -> None:
        if size > _LOW16:
            raise InternalError("a simulated team of more than 65,535 actors")
        old = self.epochs.size
        rows = np.zeros((self.paths, size, size), np.int32)
        rows[:, :old, :old] = self.rows
        self.rows = rows
        if self.via is not None:
            via = np.zeros(rows.shape, np.int32)
            via[:, :old, :old] = self.via
            self.via = via
        self.epochs = np.concatenate([self.epochs, np.zeros(size - old, np.int64)])
        self.groups = np.concatenate([self.groups, np.zeros(size - old, np.int64)])

    def name(self, actor: int) -> str:
        """What an actor is called in a report."""
        for first, last, label in reversed(self._labels):
            if first <= actor < last:
                return label(actor - first)
        raise InternalError(f"there is no actor {actor}")

    def stamps(self, actors: Actors | int, epoch: int | None = None) -> Any:
        """The stamps of accesses that actors make now, or made at an epoch of theirs."""
        at = np.asarray(actors)
        epochs = self.epochs[at] if epoch is None else epoch
        return (self.number << _TEAM) | (at << _ACTOR) | epochs

    # Order ---------------------------------------------------------------------------------------

    def release(self, actors: Actors) -> Clock:
        """All that these actors know and have done, to be handed over."""
        made = self._public(actors)
        self._advance(actors)
        return made

    def _public(self, actors: Actors) -> Clock:
        made = self.rows[:, actors, : self.count].max(axis=1)
        if self.private is not None:
            made[self.private] = 0
        return made

    def acquire(self, actors: Actors, clock: Clock, by: object = None) -> None:
        """These actors now know what was handed over. `by` names what tells them, for traces."""
        width = clock.shape[1]
        known = self.rows[:, actors, :width]
        told = clock[:, None, :]
        if self.via is not None:
            self.via[:, actors, :width] = np.where(
                told > known, self._cause(by), self.via[:, actors, :width]
            )
        self.rows[:, actors, :width] = np.maximum(known, told)

    def _cause(self, by: object) -> int:
        """The number of a cause."""
        text = str(by or "the machine")
        if text not in self.causes:
            self.causes.append(text)
        return self.causes.index(text)

    def _advance(self, actors: Actors) -> None:
        """What these actors do from now on is not covered by what they have handed over."""
        self.tick += 1
        self.epochs[actors] = self.tick
        self.rows[0, actors, actors] = self.tick

    def fence(self, path: int, actors: Actors, by: object = None) -> None:
        """What these actors know of path 0 is visible to `path`, for all who learn of this."""
        if self.via is not None:
            more = self.rows[0, actors] > self.rows[path, actors]
            self.via[path, actors] = np.where(more, self._cause(by), self.via[path, actors])
        self.rows[path, actors] = np.maximum(self.rows[path, actors], self.rows[0, actors])
        self._advance(actors)

    def learn(self, actors: Actors, others: Actors, epochs: Any, by: object = None) -> None:
        """These actors learn of what `others`, one for each of them, did up to their `epochs`."""
        if self.via is not None:
            more = self.rows[:, actors, others] < np.asarray(epochs)
            before = self.via[:, actors, others]
            self.via[:, actors, others] = np.where(more, self._cause(by), before)
        known = self.rows[:, actors, others]
        self.rows[:, actors, others] = np.maximum(known, np.asarray(epochs))

    def meet(self, actors: Actors, by: object = None) -> None:
        """Actors in rows: those of a row meet, and know what any of them knew."""
        known = self.rows[:, actors].max(axis=2)
        if self.via is not None:
            more = known[:, :, None] > self.rows[:, actors]
            self.via[:, actors] = np.where(more, self._cause(by), self.via[:, actors])
        own = None if self.private is None else self.rows[self.private, actors].copy()
        self.rows[:, actors] = known[:, :, None]
        if own is not None:
            self.rows[self.private, actors] = own
        self._advance(actors.reshape(-1))

    # Operations ----------------------------------------------------------------------------------

    def fork(self, issuers: Actors, label: str, path: int = 0) -> int:
        """An actor for an operation that these actors issue; it knows what they know. Issuers in
        rows issue it row by row, so that it is sure of what all rows know only.

        What they do afterwards is not ordered with it, until they acquire its end. What it writes
        by `path` needs no fence for this path once its end is known.
        """
        together = issuers.reshape(-1)
        actor = self._slot(together)
        if actor is None:
            actor = int(self.add(1, lambda _: label)[0])
        else:
            self._labels = [x for x in self._labels if x[0] != actor or x[1] != actor + 1]
            self._labels.append((actor, actor + 1, lambda _: label))
        if self.via is not None:
            self.via[:, actor] = self.via[:, together[0]]
        known = self.rows[:, issuers].max(axis=issuers.ndim)
        self.rows[:, actor] = known if issuers.ndim == 1 else known.min(axis=1)
        self._advance(together)
        self.start(np.array([actor]), path)
        return actor

    def start(self, actors: Actors, path: int = 0) -> int:
        """A new epoch of actors that stand for one operation after the other; it is given."""
        self._advance(actors)
        self.rows[path, actors, actors] = self.tick
        return self.tick

    def follow(self, actors: Actors, issuers: Actors, path: int = 0) -> int:
        """Actors, one for each issuer, that stand for all operations of this issuer begin one more;
        its epoch is given.
        """
        known = self.rows[:, actors]
        if self.via is not None:
            self.via[:, actors] = self.via[:, issuers]
        self.rows[:, actors] = np.maximum(known, self.rows[:, issuers])
        self._advance(issuers)
        return self.start(actors, path)

    def end(self, actor: int) -> Clock:
        """The operation is over: what its end hands over (`Edge.join`, `acquire`).

        Its actor may be used again by one that knows of the end.
        """
        self._ended.append(actor)
        return self._public(np.array([actor]))

    def _slot(self, issuers: Actors) -> int | None:
        """An actor whose operations all issuers know to be over."""
        for k, actor in enumerate(self._ended):
            if (self.rows[0, issuers, actor] >= self.epochs[actor]).all():
                return self._ended.pop(k)
        return None

    # Questions -----------------------------------------------------------------------------------

    def unordered(self, observers: Actors | int, stamps: Stamps, path: int = 0) -> Mask:
        """Which accesses an observer does not know of (by `path`, where that is another one).

        `observers` broadcast against `stamps`.
        """
        if stamps.size == 0:
            return np.zeros(stamps.shape, np.bool_)
        low = self.number << _TEAM
        if int(stamps.min()) >= low and int(stamps.max()) < low + (1 << _TEAM):
            actor, epoch = (stamps >> _ACTOR) & _LOW16, stamps & _LOW32
            return self.rows[path, observers, actor] < epoch
        return self._unordered_of_teams(observers, stamps, path)

    def _unordered_of_teams(self, observers: Actors | int, stamps: Stamps, path: int) -> Mask:
        team = stamps >> _TEAM
        here = team == self.number
        actor = np.where(here, (stamps >> _ACTOR) & _LOW16, 0)
        epoch = stamps & _LOW32
        missing = here & (self.rows[path, observers, actor] < epoch)
        foreign = ~here & (team > 0)
        if foreign.any():
            for number in np.unique(team[foreign]):
                missing |= (team == number) & (epoch > self.far.get(int(number), 0))
        return missing

    def causes_of(self, observers: Actors | int, stamps: Stamps, path: int) -> Actors:
        """By what observers know of accesses, as numbers of `causes`; 0 for their own, and for
        those of other teams.
        """
        if self.via is None:
            raise InternalError("the order of this team is not traced")
        actor = (stamps >> _ACTOR) & _LOW16
        found = self.via[path, observers, np.minimum(actor, self.count - 1)]
        other = (actor != np.asarray(observers)) & (stamps >> _TEAM == self.number)
        return np.where(other, found, 0).astype(np.int64)

    # Between teams -------------------------------------------------------------------------------

    def publish(self) -> dict[int, int]:
        """All that this team knows and has done, for others."""
        made = {**self.far, self.number: self.tick}
        self._advance(np.arange(self.count))
        return made

    def hear(self, told: dict[int, int]) -> None:
        """This team now knows what was published."""
        join_told(self.far, told)


def join_told(known: dict[int, int], told: dict[int, int]) -> None:
    """Adds what teams have published to what is known of them."""
    for number, tick in told.items():
        known[number] = max(known.get(number, 0), tick)


class Edge:
    """Order that is handed over at one place: what arrives gives, what has waited takes.

    What was given is never forgotten, so those that come late take what came since as well.
    """

    def __init__(self, team: Team) -> None:
        self.team = team
        self.clock: Clock = np.zeros((team.paths, 0), np.int32)

    def give(self, actors: Actors) -> None:
        """These actors arrive."""
        self.join(self.team.release(actors))

    def join(self, clock: Clock) -> None:
        """Something arrives that has this knowledge."""
        wide = max(clock.shape[1], self.clock.shape[1])
        self.clock = np.maximum(_padded(self.clock, wide), _padded(clock, wide))

    def take(self, actors: Actors, by: object = None) -> None:
        """The wait of these actors is over."""
        self.team.acquire(actors, self.clock, by)


def _padded(clock: Clock, width: int) -> Clock:
    gap = width - clock.shape[1]
    return clock if gap == 0 else np.pad(clock, ((0, 0), (0, gap)))
