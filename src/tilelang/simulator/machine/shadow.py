"""What is known of each byte of a memory: who wrote it last, and who has read it since.

What enters: accesses, as addresses or slices of bytes, with the actors that make them. What leaves:
findings, for accesses that are not ordered with those before them, data that a path cannot see yet,
and reads of what nobody wrote.

Bytes are kept in cells of 16, which are divided for good when an access comes that needs it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilelang.simulator.machine.clocks import HOST, Actors, Mask, Stamps, Team
from tilelang.simulator.machine.report import Report

Index = npt.NDArray[np.int64] | slice

_ORDER = "put a barrier, a wait or a flag between the two"
_FENCE = "a fence between the two makes what was written visible to the other path to memory"


@dataclass(frozen=True)
class Who:
    """Who makes an access: `actors` of a team (one, or one for each address), by which path, at
    which site of the report. Atomic accesses are not in conflict with each other. `epoch` is that
    of an operation whose actors have begun others since. What `fenced` overwrites must have been
    read where its path sees it.
    """

    team: Team
    actors: Actors | int
    site: int
    path: int = 0
    atomic: bool = False
    epoch: int | None = None
    fenced: bool = False

    def stamps(self, actors: Actors | int) -> Any:
        """The stamps of this access."""
        return self.team.stamps(actors, self.epoch)


@dataclass(frozen=True)
class _Bad:
    """The cells of an access that are in conflict, and the accesses before it."""

    at: Index
    bad: Mask
    actors: Actors | int
    stamps: Stamps
    sites: npt.NDArray[np.int32]


class _Reads:
    """The last read of each cell by each group of a team's actors."""

    def __init__(self, cells: int, groups: int) -> None:
        self.stamps: Stamps = np.zeros((groups, cells), np.int64)
        self.sites: npt.NDArray[np.int32] = np.zeros((groups, cells), np.int32)
        self.atomic: Mask = np.zeros((groups, cells), np.bool_)
        self.used: Mask = np.zeros(groups, np.bool_)

    def grown(self, groups: int) -> _Reads:
        made = _Reads(self.stamps.shape[1], groups)
        made.stamps[: len(self.stamps)] = self.stamps
        made.sites[: len(self.sites)] = self.sites
        made.atomic[: len(self.atomic)] = self.atomic
        made.used[: len(self.used)] = self.used
        return made

    def divide(self, parts: int) -> None:
        self.stamps = np.repeat(self.stamps, parts, axis=1)
        self.sites = np.repeat(self.sites, parts, axis=1)
        self.atomic = np.repeat(self.atomic, parts, axis=1)


_LARGEST = 16
"""Bytes of a cell at first."""


class Shadow:
    """The shadow of `size` bytes. `written` says that the host has filled them."""

    def __init__(self, name: str, size: int, report: Report, *, written: bool = False) -> None:
        self.name = name
        self.report = report
        self.grain = _LARGEST
        cells = -(-size // _LARGEST)
        self.writers: Stamps = np.full(cells, HOST if written else 0, np.int64)
        self.sites: npt.NDArray[np.int32] = np.zeros(cells, np.int32)
        self.atomic: Mask = np.zeros(cells, np.bool_)
        self._reads: dict[int, _Reads] = {}
        self._titles: dict[int, str] = {}

    # Cells ---------------------------------------------------------------------------------------

    def _cells(self, at: Index, size: int, actors: Actors | int) -> tuple[Index, Actors | int]:
        """The cells of `size` bytes from each address on, with an actor for each."""
        if isinstance(at, slice):
            start, stop = int(at.start or 0), int(at.stop)
            while start % self.grain or stop % self.grain:
                self._divide()
            return slice(start // self.grain, stop // self.grain), actors
        while size % self.grain or (at % self.grain).any():
            self._divide()
        per = size // self.grain
        first = at // self.grain
        if per == 1:
            return first, actors
        if isinstance(actors, np.ndarray) and actors.size > 1:
            actors = np.repeat(actors, per)
        return (first[:, None] + np.arange(per)).reshape(-1), actors

    def _divide(self) -> None:
        self.grain //= 2
        self.writers = np.repeat(self.writers, 2)
        self.sites = np.repeat(self.sites, 2)
        self.atomic = np.repeat(self.atomic, 2)
        for reads in self._reads.values():
            reads.divide(2)

    # Accesses ------------------------------------------------------------------------------------

    def read(self, at: Index, who: Who, actors: Actors | int, size: int = 1) -> None:
        """Note a read of `size` bytes from each address on (a slice names all its bytes).

        `actors` is one, or one for each address.
        """
        cells, actors = self._cells(at, size, actors)
        stamps = self.writers[cells]
        if not stamps.all():
            self._uninitialised(who)
        self._against_writes("reads", cells, who, actors, stamps)
        self._note_read(cells, who, actors)

    def write(
        self,
        at: Index,
        who: Who,
        actors: Actors | int,
        size: int = 1,
        same: Callable[[], Mask] | None = None,
    ) -> bool:
        """Note a write, as `read`. Whether two actors of this very access write one byte.

        `same()` says which bytes keep their values: to write them once more is no conflict.
        """
        cells, actors = self._cells(at, size, actors)
        self._against_writes("writes", cells, who, actors, self.writers[cells], same)
        self._against_reads(cells, who, actors)
        made = who.stamps(actors)
        self._titles[who.team.number] = who.team.title
        self.writers[cells] = made
        self.sites[cells] = who.site
        self.atomic[cells] = who.atomic
        return not who.atomic and bool((self.writers[cells] != made).any())

    def settle(self) -> None:
        """A launch is over: all that it did is known to the next one."""
        self.writers[self.writers != 0] = HOST
        self.atomic[:] = False
        self._reads.clear()

    def clear(self, at: Index, size: int = 1) -> None:
        """The contents of these bytes are undefined again."""
        cells, _ = self._cells(at, size, 0)
        self.writers[cells] = 0
        for reads in self._reads.values():
            reads.stamps[:, cells] = 0

    # Comparisons ---------------------------------------------------------------------------------

    def _against_writes(
        self,
        verb: str,
        at: Index,
        who: Who,
        actors: Actors | int,
        stamps: Stamps,
        same: Callable[[], Mask] | None = None,
    ) -> None:
        if who.team.via is not None:
            self._trace(who, actors, stamps, self.sites[at])
        bad = who.team.unordered(actors, stamps)
        unseen = who.team.unordered(actors, stamps, who.path) & ~bad if who.path else None
        if not bad.any() and (unseen is None or not unseen.any()):
            return
        if who.atomic:
            bad &= ~self.atomic[at]
        if same is not None:
            changes = ~same().reshape(-1, self.grain).all(axis=1)
            bad &= changes
            unseen = None if unseen is None else unseen & changes
        if bad.any():
            self._report("race", verb, who, _Bad(at, bad, actors, stamps, self.sites[at]))
        if unseen is not None and unseen.any():
            self._report("proxy", verb, who, _Bad(at, unseen, actors, stamps, self.sites[at]))

    def _note_read(self, at: Index, who: Who, actors: Actors | int) -> None:
        team = who.team
        self._titles[team.number] = team.title
        reads = self._reads.get(team.number)
        if reads is None or team.group_count > len(reads.stamps):
            groups = max(16, 2 * team.group_count)
            reads = reads.grown(groups) if reads else _Reads(self.writers.size, groups)
            self._reads[team.number] = reads
        groups = team.groups[actors]
        reads.used[groups] = True
        reads.stamps[groups, at] = who.stamps(actors)
        reads.sites[groups, at] = who.site
        reads.atomic[groups, at] = who.atomic

    def _against_reads(self, at: Index, who: Who, actors: Actors | int) -> None:
        for reads in self._reads.values():
            for group in np.flatnonzero(reads.used):
                stamps = reads.stamps[group, at]
                if not stamps.any():
                    continue
                if who.team.via is not None:
                    self._trace(who, actors, stamps, reads.sites[group, at])
                bad = who.team.unordered(actors, stamps)
                if who.atomic:
                    bad &= ~reads.atomic[group, at]
                if bad.any():
                    sites = reads.sites[group, at]
                    self._report("race", "overwrites", who, _Bad(at, bad, actors, stamps, sites))
                elif who.fenced and (bad := who.team.unordered(actors, stamps, who.path)).any():
                    sites = reads.sites[group, at]
                    self._report("proxy", "overwrites", who, _Bad(at, bad, actors, stamps, sites))
                reads.stamps[group, at] = 0

    def _trace(
        self, who: Who, actors: Actors | int, stamps: Stamps, sites: npt.NDArray[np.int32]
    ) -> None:
        """Note by what each pair of accesses is ordered."""
        causes = who.team.causes_of(actors, stamps, who.path)
        keys: list[int] = np.unique(causes << 32 | sites.astype(np.int64)).tolist()
        for key in keys:
            cause, site = who.team.causes[key >> 32], key & 0xFFFFFFFF
            if cause:
                self.report.orders.add((site, who.site, who.path, cause))

    # Findings ------------------------------------------------------------------------------------

    def _uninitialised(self, who: Who) -> None:
        site = self.report.sites[who.site]
        self.report.add(
            "uninitialised",
            f"{self.name} is read where nobody has written",
            site.loc,
            label=site.what,
            help="write it first, or wait for what writes it",
        )

    def _report(self, kind: str, verb: str, who: Who, found: _Bad) -> None:
        """One finding of an access, about its first bad byte."""
        k = int(np.argmax(found.bad))
        at = found.at
        byte = self.grain * ((at.start or 0) + k if isinstance(at, slice) else int(at[k]))
        me = int(np.broadcast_to(np.asarray(found.actors), found.bad.shape)[k])
        other = self._owner(int(found.stamps[k]), who.team)
        done = "has read" if verb == "overwrites" else "has written"
        text = f"{self.name}, byte {byte}: {who.team.name(me)} {verb} what {other} {done}"
        before = int(found.sites[k])
        if kind == "proxy":
            text = f"{text}, on another path to memory, with no fence between"
            self.report.conflict(kind, who.site, before, text, _FENCE)
        else:
            self.report.conflict(kind, who.site, before, f"{text}, with no order between", _ORDER)

    def _owner(self, stamp: int, team: Team) -> str:
        number, actor = stamp >> 48, stamp >> 32 & 0xFFFF
        if number == team.number:
            return team.name(actor)
        return self._titles.get(number) or "another part of the launch"
