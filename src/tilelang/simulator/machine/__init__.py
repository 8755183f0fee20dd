"""What models of machines are made of: memories, agents, asynchronous operations, and the order
between their accesses. It names no vendor.

    model of a machine (one folder each)
      |  spawns agents, issues operations      |  loads and stores bytes
      v                                        v
    schedule.Scheduler, queues.Queue         memory.Memory
      |  who goes on next                      |  every access, with who makes it
      v                                        v
    report.Report  <--- findings ---         shadow.Shadow  --- asks --->  clocks.Team

**Two things are kept apart.** The *schedule* decides what happens when: it is seeded, and completes
asynchronous work as late or as early as the machine may, so that a program that does not wait
computes with old data. The *clocks* decide what is ordered, whatever the schedule was: each access
is compared with those before it by happens-before, so that most faults are reported under any
schedule, the friendliest too.

**Agents** (`schedule.Agent`) are generators. An agent runs until it yields: a `Wait` says what it
waits for (a function that is asked again, and words for a report), `None` only lets others go
first. An asynchronous operation is an agent too, with `asynchronous=True`: the schedule decides
when it makes its next step, so it yields between reading its operands and writing its results.
`queues.Queue` keeps operations in order and counts groups of them.

**Actors** are what clocks tell apart: each thread of a block, each operation under way, each pipe.
One agent may carry out many actors in lockstep; actors that are ordered with each other by the
machine itself may be one actor. A `Team` holds actors that synchronise with each other, with one
exact vector clock each (blocks of a cluster, the cores of a group). Between teams the order is
coarse: what a team publishes covers all that it did before, so nothing is reported wrongly.

**Edges** carry order: `edge.give(actors)` when something arrives, is set or completes,
`edge.take(actors)` when a wait for it returns. Models build their barriers, flags and counters from
an edge for the order, and a number for the state.

**Paths** are the ways to memory that do not see each other's data without a fence. Path 0 is that
of ordinary loads and stores. A write by path 0 is seen by path p where the writer, or one that is
ordered after it, has made it visible: `team.fence(p, actors)`. A machine with one path needs none.

**Memories** (`memory.Memory`) are runs of bytes. All accesses take byte addresses, one for each
actor, and a `Who`: actors, path and site (`report.site`: the author's line and what is done there).
The shadow keeps, for each byte, the last writer and the last reader of each group of actors.

**Findings** (`report.Report`) are located diagnostics: `race`, `uninitialised`, `bounds`,
`deadlock`, `proxy` (a fence between two paths is missing), `leak` (something is left over at the
end). Accesses outside of a memory and deadlocks end the run; the others are collected.
"""

from __future__ import annotations

from tilelang.simulator.machine.clocks import Clocks, Edge, Team
from tilelang.simulator.machine.memory import Memory, Who
from tilelang.simulator.machine.queues import Groups, Queue
from tilelang.simulator.machine.report import Report
from tilelang.simulator.machine.schedule import Agent, Mode, Schedule, Scheduler, Wait
from tilelang.simulator.machine.shadow import Shadow

__all__ = [
    "Agent",
    "Clocks",
    "Edge",
    "Groups",
    "Memory",
    "Mode",
    "Queue",
    "Report",
    "Schedule",
    "Scheduler",
    "Shadow",
    "Team",
    "Wait",
    "Who",
]
