"""Taking turns: agents run one after the other, each until it has to wait.

What enters: agents with their steps, in waves that need not be there from the start. What leaves: a
finished launch, or a report that names every group of threads that waits, at what, and what is
missing.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterator
from types import GeneratorType
from typing import Any, cast

import numpy as np

from tilelang.emulator.agents import LOOP, Agent, Steps
from tilelang.emulator.barriers import Mbarrier
from tilelang.emulator.blocks import BlockState
from tilelang.emulator.storage import Array, Mask
from tilelang.errors import DeadlockError, Diagnostic, Loc
from tilelang.ir.sync import WARP

Live = tuple[Agent, Steps]

# Rounds in which agents only turned in loops that wait for memory. A loop that counts its rounds
# may end some time, so whether anything changes is looked at; so many turns are taken for endless.
_ENDLESS_TURNS = 1_000_000
_FIRST_LOOK = 8
# How many places and groups of threads a report names.
_PLACES, _GROUPS = 16, 8
_TURNS = ("lanes of one warp take the branches of a condition one after the other",)


class Schedule:
    """One launch that runs. `enter` is told whose turn it is, `ended` when a block has ended."""

    def __init__(
        self,
        waves: Iterator[list[Live]],
        enter: Callable[[Agent], None],
        ended: Callable[[BlockState], None],
    ) -> None:
        self._waves = waves
        self._enter = enter
        self._ended = ended
        self._live: list[Live] = []
        self._idle = 0
        self._seen = b""

    def run(self) -> None:
        """Run all waves; the next one comes in when nobody can go on."""
        while True:
            moved = self._round()
            if self._deliver() or moved:
                self._idle = 0
                continue
            wave = next(self._waves, None)
            if wave is not None:
                self._live += wave
            elif not self._live:
                return
            else:
                self._look()

    def _round(self) -> bool:
        """Let every agent run that can. Whether any did more than turn in a loop."""
        moved = False
        for entry in list(self._live):
            agent, steps = entry
            if agent.wait is not None and not agent.wait.ready():
                continue
            spinning = agent.wait is not None and agent.wait.spins
            self._enter(agent)
            try:
                agent.wait = next(steps)
            except StopIteration:
                self._live.remove(entry)
                agent.leave()
                moved = True
                if agent.block.ended():
                    self._ended(agent.block)
                continue
            moved = moved or not (spinning and agent.wait.spins)
        return moved

    def _deliver(self) -> bool:
        """Carry out work that somebody waits for."""
        found = False
        for agent, _ in self._live:
            bar = agent.wait.at if agent.wait is not None else None
            if bar is not None and bar.due:
                bar.deliver()
                found = True
        return found

    def _look(self) -> None:
        """Nobody did anything new in a whole round: is there a way on?"""
        self._idle += 1
        agents = [agent for agent, _ in self._live]
        if not any(agent.wait is not None and agent.wait.spins for agent in agents):
            raise stuck(agents, "")
        if self._idle * len(agents) > _ENDLESS_TURNS:
            raise stuck(agents, f"{LOOP} has not ended after {self._idle} rounds of all threads")
        if self._idle < _FIRST_LOOK:
            return
        if self._idle.bit_count() == 1:
            self._seen = self._state()
        elif (self._idle - 1).bit_count() == 1 and self._state() == self._seen:
            raise stuck(agents, f"{LOOP}, and nobody changes it")

    def _state(self) -> bytes:
        """A digest of all that the agents can see or remember."""
        digest, known = hashlib.blake2b(digest_size=16), set[int]()
        for agent, steps in self._live:
            # Where it is counts too: another loop may be reached with nothing else changed.
            frame = cast("GeneratorType[Any, Any, Any]", steps).gi_frame
            at = -1 if frame is None else frame.f_lasti
            digest.update(at.to_bytes(4, "little", signed=True))
            for name, value in inspect.getgeneratorlocals(steps).items():
                _add(digest, known, name, value)
            for turns in agent.block.memory.values():
                for piece in turns.values():
                    _add(digest, known, "", piece.array)
        return digest.digest()


def _add(digest: Any, known: set[int], name: str, value: Any) -> None:
    if isinstance(value, np.ndarray):
        array = cast(Array, value)
        if id(array) not in known:
            known.add(id(array))
            digest.update(array.tobytes())
    elif isinstance(value, list):
        for bar in cast("list[Any]", value):
            if isinstance(bar, Mbarrier):
                digest.update(repr(bar.state()).encode())
    elif isinstance(value, (bool, int, float, np.generic)):
        digest.update(f"{name}={value!r}".encode())


def stuck(agents: list[Agent], spinning: str) -> DeadlockError:
    """The report of a deadlock: one finding for each place where agents wait. `spinning` says what
    is known of loops that wait for memory.
    """
    by_place: dict[tuple[Loc | None, str], list[Agent]] = {}
    for agent in agents:
        wait = agent.wait
        key = (wait.loc, wait.what()) if wait is not None else (None, "nothing")
        by_place.setdefault(key, []).append(agent)
    findings: list[Diagnostic] = []
    for (loc, what), who in by_place.items():
        waits = who[0].wait
        spins = waits is not None and waits.spins
        findings.append(
            Diagnostic(
                "deadlock",
                f"no thread can go on: {spinning if spins else what}",
                loc,
                got=f"waiting: {_who(who)}",
                help="the loop ends when another thread or block writes what it reads"
                if spins
                else "each wait needs its arrivals: compare counts, parities, and who reaches them",
                notes=_TURNS if any(map(_part_of_a_warp, who)) else (),
            )
        )
    more = len(findings) - _PLACES
    if more > 0:
        findings = findings[:_PLACES]
        findings.append(Diagnostic("deadlock", f"{more} more places where threads wait"))
    return DeadlockError(*findings)


def _part_of_a_warp(agent: Agent) -> bool:
    """Whether some lanes of a warp wait, and others do not."""
    lanes: Mask | None = None if agent.wait is None else agent.wait.lanes
    here = np.full(agent.count, True) if lanes is None else np.broadcast_to(lanes, agent.count)
    warps = np.split(here, range(WARP, agent.count, WARP))
    return any(w.any() and not w.all() for w in warps)


def _who(agents: list[Agent]) -> str:
    """Groups of threads in words; neighbours in one block are one group."""
    groups: list[tuple[BlockState, int, int]] = []
    for agent in agents:
        lanes = None if agent.wait is None else agent.wait.lanes
        for thread in np.flatnonzero(agent.threads(lanes)).tolist():
            if groups and groups[-1][0] is agent.block and groups[-1][2] == thread:
                groups[-1] = (agent.block, groups[-1][1], thread + 1)
            else:
                groups.append((agent.block, thread, thread + 1))
    words = [
        f"{b.name()}, thread {low}"
        if high == low + 1
        else f"{b.name()}, threads {low} to {high - 1}"
        for b, low, high in groups[:_GROUPS]
    ]
    more = len(groups) - _GROUPS
    return "; ".join(words) + (f"; and {more} more" if more > 0 else "")
