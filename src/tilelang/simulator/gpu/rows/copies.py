"""cp.async: copies of each thread from global to shared memory, in groups.

PTX ISA 9.0: "cp.async", "cp.async.wait_group", "cp.async.mbarrier.arrive". They go through the
generic proxy, read their source and write their destination at any time up to the wait for their
group, and are in no order with each other.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tilelang.simulator.gpu.arrays import Values, Window
from tilelang.simulator.gpu.block import GENERIC, WARP
from tilelang.simulator.gpu.group import Group
from tilelang.simulator.gpu.rows.registry import Use, row
from tilelang.simulator.gpu.rows.sync import mbarriers_of, touched
from tilelang.simulator.machine import Agent, Groups, Memory, Wait, Who
from tilelang.simulator.machine.clocks import Actors
from tilelang.simulator.machine.schedule import Steps


@dataclass
class _Unit:
    """The copies of a group of warps: an actor for those of each thread."""

    actors: Actors
    groups: Groups = field(default_factory=Groups)
    epochs: list[int] = field(default_factory=list[int])
    epoch: int = 0
    started: list[Agent] = field(default_factory=list[Agent])


def _unit(group: Group) -> _Unit:
    found = group.state.get("cp.async")
    if found is None:
        name = group.team.name
        actors = group.team.add(
            group.count, lambda k: f"cp.async of {name(int(group.actors[k]))}", per_group=WARP
        )
        found = group.state["cp.async"] = _Unit(actors)
    return found


@row("cp.async.ca.*", "cp.async.cg.*")
def cp_async(use: Use) -> Steps:
    """Issues a copy of 4, 8 or 16 bytes for each lane; those past `bytes` are zeros."""
    group, unit = use.group, _unit(use.group)
    dst, src = use.outs[0], use.ins[0]
    size = int(use.facts.parts[3])
    to, at = use.offsets(dst, use.out_site(0)), use.offsets(src, use.in_site(0))
    _aligned(use, size, to, at, src.array.memory)
    lanes = use.lanes
    some = use.value(1, np.int64)[lanes] if len(use.ins) > 1 else None
    actors = unit.actors[lanes]
    unit.epoch = group.team.follow(actors, group.actors[lanes], GENERIC)
    reads = Who(group.team, actors, use.in_site(0), epoch=unit.epoch)
    writes = Who(group.team, actors, use.out_site(0), epoch=unit.epoch)
    steps = _Copy(dst.array, src.array, to, at, size, some).steps(reads, writes)
    scheduler = group.block.machine.scheduler
    operation = scheduler.spawn(f"cp.async ({use.loc})", steps, asynchronous=True)
    unit.groups.add(operation)
    unit.started = [a for a in unit.started if not a.done] + [operation]
    yield None


def _aligned(use: Use, size: int, to: Values, at: Values, source: Memory) -> None:
    if (to % size).any() or ((at + source.base) % size).any():
        raise use.fault(
            "bounds", f"{use.facts.row} of an address that is not a multiple of {size} bytes"
        )


@dataclass(frozen=True)
class _Copy:
    """Copies of `size` bytes from `at` to `to`, of each lane; of `some` of them, where given."""

    target: Window
    source: Window
    to: Values
    at: Values
    size: int
    some: Values | None

    def steps(self, reads: Who, writes: Who) -> Steps:
        """Reads, later writes."""
        data = self._read(reads)
        yield None
        self.target.memory.store(self.to, data, writes)

    def _read(self, who: Who) -> Values:
        byte, memory = np.dtype(np.uint8), self.source.memory
        if self.some is None:
            return memory.load(self.at, byte, self.size, who)
        data = np.zeros((self.size, self.at.size), np.uint8)
        for n in np.unique(self.some[self.some > 0]):
            here = self.some == n
            mine = replace(who, actors=np.asarray(who.actors)[here])
            data[:n, here] = memory.load(self.at[here], byte, int(n), mine)
        return data


def _all_of(use: Use) -> _Unit:
    """The unit of a group that is here as a whole."""
    group = use.group
    here, there = group.lanes(use.mask), ~group.returned
    if not (here >= there).all():
        raise use.refused("is reached by a part of the threads that copy together")
    return _unit(group)


@row("cp.async.commit_group")
def commit(use: Use) -> Steps:
    """Ends a group."""
    unit = _all_of(use)
    unit.groups.commit()
    unit.epochs.append(unit.epoch)
    yield None


@row("cp.async.wait_group", "cp.async.wait_all")
def wait(use: Use) -> Steps:
    """Waits until all but the youngest groups are over."""
    unit, group = _all_of(use), use.group
    everything = use.facts.row.endswith("all")
    if everything:
        unit.groups.commit()
        unit.epochs.append(unit.epoch)
    count = 0 if everything else use.imm["count"]
    yield Wait(lambda: not unit.groups.pending(count), f"copies ({use.facts.row})", use.loc)
    over = len(unit.epochs) - count
    if over > 0:
        group.team.learn(group.actors, unit.actors, unit.epochs[over - 1], use.facts)


@row("cp.async.mbarrier.arrive.noinc")
def arrive(use: Use) -> Steps:
    """One arrival for each lane, when all its copies up to here are over."""
    unit, group = _unit(use.group), use.group
    place, site = use.outs[0], use.out_site(0)
    waiting = list(unit.started)
    for offset, lanes in mbarriers_of(use, place, site):
        barrier = group.block.mbarrier(offset, use.loc)
        touched(group.block, offset, Who(group.team, group.actors[lanes], site))
        clock = group.team.release(np.concatenate([group.actors[lanes], unit.actors[lanes]]))

        def steps(lanes: Values = lanes, barrier: Any = barrier, clock: Any = clock) -> Steps:
            yield Wait(lambda: all(a.done for a in waiting), "copies (cp.async)", use.loc)
            barrier.phases.join(clock)
            barrier.step(lanes.size, 0)

        group.block.machine.scheduler.spawn(
            f"the arrival of cp.async ({use.loc})", steps(), asynchronous=True
        )
    yield None
