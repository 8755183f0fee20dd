"""The checked mode: pipes are queues, and every access is looked at.

What enters: a launch and a schedule, which says when queues go on. What leaves: changed memory and
findings. The scalar unit of a core issues instructions into queues; each queue keeps its order.
Order between queues and cores comes from flags, barriers and mutexes alone, and from the issue
itself: an instruction comes after what the scalar unit knew when it issued it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tilelang.errors import Loc
from tilelang.ir.ascend import PIPES_OF, Pipe, VectorFunction
from tilelang.ir.node import Effect
from tilelang.simulator.ascend.core import CoreBase, Member, Places
from tilelang.simulator.ascend.crossing import Crossing
from tilelang.simulator.ascend.instruction import Instruction, Layout, bytes_of
from tilelang.simulator.ascend.launch import Launch
from tilelang.simulator.ascend.memories import GroupMemories, Window
from tilelang.simulator.ascend.report import flag_name, leftover
from tilelang.simulator.ascend.trail import NOWHERE, Trail
from tilelang.simulator.machine import Clocks, Edge, Schedule, Scheduler, Team, Wait, Who
from tilelang.simulator.machine.clocks import Actors, Clock

Steps = Iterator[Wait | None]


@dataclass
class Given:
    """What is handed over with a flag: what is known in the group, and what was told to others."""

    team: Team
    clock: Clock
    told: dict[int, int]
    node: int


@dataclass
class Task:
    """Something in a queue: what it knows from its issue, what it waits for, what it does, given
    its node of the trail.
    """

    clock: Clock
    do: Callable[[int], None]
    node: int
    ready: Callable[[], bool] | None = None
    what: str = ""
    loc: Loc | None = None


class Queue:
    """The queue of one pipe of a core."""

    def __init__(self, core: QueuedCore, pipe: Pipe, actor: Actors) -> None:
        self.core = core
        self.pipe = pipe
        self.actor = actor
        self.tasks: deque[Task] = deque()
        self.running = False
        self.last = NOWHERE

    def put(self, task: Task) -> None:
        """Issue something."""
        self.tasks.append(task)
        if not self.running:
            self.running = True
            name = f"{self.pipe.value} of {self.core.name}"
            self.core.scheduler.spawn(name, self.steps(), asynchronous=True)

    def steps(self) -> Steps:
        """Do what is there, in order."""
        while self.tasks:
            task = self.tasks[0]
            while task.ready is not None and not task.ready():
                yield Wait(task.ready, task.what, task.loc)
            self.core.team.acquire(self.actor, task.clock)
            task.do(task.node)
            self.tasks.popleft()
            self.core.scheduler.happened()
            yield None
        self.running = False


@dataclass
class Event:
    """An event of two pipes: what those who raised it hand over, oldest first.

    It counts: a pipe may raise it again before it was waited for, as the products of
    tilelang-ascend do (`common.h`, gemm_v0 called twice).
    """

    raised: deque[tuple[Clock, Loc | None, int]] = field(
        default_factory=deque[tuple[Clock, Loc | None, int]]
    )


@dataclass
class Mutex:
    """Who comes next, and what the last holder hands over. `tickets` counts the locks issued."""

    edge: Edge
    tickets: int = 0
    served: int = 0
    held_at: Loc | None = None
    node: int = NOWHERE


class QueuedCore(CoreBase):
    """One core with its queues."""

    def __init__(
        self,
        member: Member,
        memories: GroupMemories,
        machine: Machine,
        team: Team,
    ) -> None:
        super().__init__(member, memories, machine.limits)
        self.machine = machine
        self.team = team
        self.scheduler = machine.scheduler
        pipes = PIPES_OF[member.kind]
        actors = team.add(len(pipes), lambda k: f"{pipes[k].value} of {self.name}")
        self.scalar: Actors = actors[:1]
        self.queues = {
            pipe: Queue(self, pipe, actors[k : k + 1]) for k, pipe in enumerate(pipes) if k
        }
        self.events: dict[tuple[str, str, int], Event] = {}
        self.mutexes: dict[int, Mutex] = {}
        self.here = NOWHERE

    # The trail -----------------------------------------------------------------------------------

    def step(self, what: str, loc: Loc | None, *before: tuple[int, str]) -> None:
        """The scalar unit goes on after others."""
        trail = self.machine.trail
        if trail is not None:
            issued = (self.here, "then the scalar unit goes on")
            self.here = trail.add(f"S of {self.name}", what, loc, issued, *before)

    def follow(self, node: int, before: int, why: str) -> None:
        """A node comes after another one."""
        if self.machine.trail is not None:
            self.machine.trail.after(node, before, why)

    # Instructions --------------------------------------------------------------------------------

    def issue(
        self,
        i: Instruction,
        at: tuple[Any, ...],
        data: dict[str, Any] | None = None,
        far: int = 0,
    ) -> None:
        """Put an instruction into its queue."""
        layout = i.layout(at, data)
        places = self.places(i, layout, at, far)
        state = self.state(i)

        def do(node: int) -> None:
            self.carry_out(i, layout, places, state, node)

        self.put(i, i.pipe, do)

    def put(
        self, i: Instruction | VectorFunction, pipe: Pipe, do: Callable[[int], None], **facts: Any
    ) -> None:
        """Put something into a queue; it knows what the scalar unit knows."""
        name = str(i) if isinstance(i, Instruction) else f"a {i.kind.value} function"
        queue, node, trail = self.queues[pipe], NOWHERE, self.machine.trail
        if trail is not None:
            order = (queue.last, "then, in the same queue")
            issue = (self.here, "then the scalar unit issues")
            node = trail.add(f"{pipe.value} of {self.name}", name, i.loc, order, issue)
            queue.last = node
        queue.put(Task(self.team.release(self.scalar), do, node, loc=i.loc, **facts))

    def carry_out(
        self, i: Instruction, layout: Layout, places: Places, state: dict[str, Any], node: int
    ) -> None:
        """Do an instruction: note its reads, then its writes."""
        arrays = i.arrays(layout, places)
        atomic = bool(state.get("atomic"))
        for effect in (Effect.READ, Effect.WRITE):
            for k, slot in enumerate(i.slots):
                wanted = slot.effect
                if k == 0 and i.row.name in ("mad", "mad.scaled") and layout.params["init"]:
                    wanted = Effect.WRITE  # what was there does not count
                if not wanted & effect or layout.views[k].empty:
                    continue
                if atomic and effect is Effect.READ and slot.effect & Effect.WRITE:
                    continue
                if effect is Effect.WRITE and i.stores_outside:
                    continue
                self.note(i, k, layout, places[k], (effect, atomic and k == 0, node))
        if not i.stores_outside or layout.views[0].empty:
            i.run(arrays, {**layout.params, **state})
            return
        # Two cores that store the same numbers do not race: what was there is compared.
        memory, at = places[0][0].memory, self.bytes_at(i, 0, layout, places[0])
        before = memory.data[at].copy()
        i.run(arrays, {**layout.params, **state})
        access = (Effect.WRITE, atomic, node)
        self.note(i, 0, layout, places[0], access, lambda: memory.data[at] == before)

    def bytes_at(
        self, i: Instruction, k: int, layout: Layout, place: tuple[Window, int]
    ) -> npt.NDArray[np.int64] | slice:
        """The bytes of an operand in its memory."""
        size = i.slots[k].dtype.itemsize
        return bytes_of(layout.views[k], place[0].start + place[1] * size, size)

    def note(
        self,
        i: Instruction,
        k: int,
        layout: Layout,
        place: tuple[Window, int],
        access: tuple[Effect, bool, int],
        same: Callable[[], Any] | None = None,
    ) -> None:
        """Tell the shadow of an access; `same` says which bytes it leaves as they were."""
        window = place[0]
        shadow = window.memory.shadow
        if shadow is None:
            return
        effect, atomic, node = access
        actor = self.queues[i.pipe].actor
        at = self.bytes_at(i, k, layout, place)
        verb = "writes" if effect is Effect.WRITE else "reads"
        site = self.machine.report.site(i.loc, f"{i.row.name} {verb} {window.name}")
        who = Who(self.team, int(actor[0]), site, atomic=atomic)
        if self.machine.trail is not None:
            self.machine.trail.touch(node, window.memory, at, writes=effect is Effect.WRITE)
        if effect is Effect.WRITE:
            shadow.write(at, who, who.actors, same=same)
        else:
            shadow.read(at, who, who.actors)

    def call(self, function: VectorFunction, given: dict[str, Any]) -> None:
        """Put a vector function into the queue of V, as one operation."""
        actor = self.queues[Pipe.V].actor

        def do(node: int) -> None:
            del node  # what a function touches is not followed
            self.carried_out(function, given, lambda site: Who(self.team, int(actor[0]), site))

        self.put(function, Pipe.V, do)

    # Elements ------------------------------------------------------------------------------------

    def load(self, window: Window, index: int, loc: Loc | None) -> Any:
        """An element, by the scalar unit."""
        self.touch(window, self.element(window, index, loc), loc, writes=False)
        return window.scalar(index)

    def store(self, window: Window, index: int, value: Any, loc: Loc | None) -> None:
        """Write an element."""
        self.touch(window, self.element(window, index, loc), loc, writes=True)
        window.elements[index] = value

    def touch(self, window: Window, start: int, loc: Loc | None, *, writes: bool) -> None:
        """Tell the shadow of an access by the scalar unit."""
        shadow = window.memory.shadow
        if shadow is None:
            return
        what = f"the scalar unit {'writes' if writes else 'reads'} {window.name}"
        who = Who(self.team, int(self.scalar[0]), self.machine.report.site(loc, what))
        at = slice(start, start + window.dtype.itemsize)
        self.step(what, loc)
        if self.machine.trail is not None:
            self.machine.trail.touch(self.here, window.memory, at, writes=writes)
        if writes:
            shadow.write(at, who, who.actors)
        else:
            shadow.read(at, who, who.actors)

    # Flags of the core ---------------------------------------------------------------------------

    def event(self, i: Instruction, number: int) -> Event:
        """An event, by its pipes and number."""
        i.check_id(number, self.limits.event_ids, "event")
        return self.events.setdefault((i.imm["src"], i.imm["dst"], number), Event())

    def set_flag(self, i: Instruction, number: int) -> None:
        """Raise an event when the pipe comes to it."""
        event, src = self.event(i, number), Pipe(i.imm["src"])

        def do(node: int) -> None:
            event.raised.append((self.team.release(self.actor(src)), i.loc, node))

        if src is Pipe.S:
            do(self.here)
            self.scheduler.happened()
        else:
            self.put(i, src, do)

    def wait_flag(self, i: Instruction, number: int) -> Steps:
        """Hold up a pipe until an event is raised."""
        event, dst = self.event(i, number), Pipe(i.imm["dst"])
        what = flag_name(i.imm["src"], i.imm["dst"], number)

        def ready() -> bool:
            return bool(event.raised)

        def do(node: int) -> None:
            clock, _, before = event.raised.popleft()
            self.team.acquire(self.actor(dst), clock)
            self.follow(node, before, f"by {what}")

        if dst is not Pipe.S:
            self.put(i, dst, do, ready=ready, what=what)
            return
        while not ready():
            yield Wait(ready, what, i.loc)
        self.step(str(i), i.loc)
        do(self.here)

    def actor(self, pipe: Pipe) -> Actors:
        """The actor of a pipe."""
        return self.scalar if pipe is Pipe.S else self.queues[pipe].actor

    def barrier(self, i: Instruction) -> Steps:
        """Of one pipe: it keeps its order anyhow. Of all: the scalar unit waits for every queue."""
        if i.imm["pipe"] != Pipe.ALL.value:
            return
        yield from self.drained("all its pipes to be done")

    def drained(self, what: str) -> Steps:
        """Go on when all queues are empty, knowing what they have done.

        The wait has no place: where it never ends, the instruction at the head of a queue has one.
        """

        def ready() -> bool:
            return not any(q.tasks for q in self.queues.values())

        while not ready():
            yield Wait(ready, what)
        for q in self.queues.values():
            self.team.acquire(self.scalar, self.team.release(q.actor))
        self.step(what, None, *((q.last, "then all pipes are done") for q in self.queues.values()))

    # Mutexes -------------------------------------------------------------------------------------

    def mutex(self, i: Instruction, number: int) -> Mutex:
        """A mutex of the core."""
        i.check_id(number, self.limits.mutexes, "mutex")
        return self.mutexes.setdefault(number, Mutex(Edge(self.team)))

    def lock(self, i: Instruction, number: int) -> Steps:
        """Hold up a pipe until those who asked before have given the mutex back."""
        mutex, pipe = self.mutex(i, number), Pipe(i.imm["pipe"])
        mine = mutex.tickets
        mutex.tickets += 1

        def do(node: int) -> None:
            mutex.edge.take(self.actor(pipe))
            mutex.held_at = i.loc
            self.follow(node, mutex.node, f"by mutex {number}")

        self.put(i, pipe, do, ready=lambda: mutex.served == mine, what=f"mutex {number}")
        return iter(())

    def unlock(self, i: Instruction, number: int) -> None:
        """Give a mutex back when the pipe comes to it."""
        mutex, pipe = self.mutex(i, number), Pipe(i.imm["pipe"])

        def do(node: int) -> None:
            mutex.edge.give(self.actor(pipe))
            mutex.served += 1
            mutex.held_at = None
            mutex.node = node

        self.put(i, pipe, do)

    # Between cores -------------------------------------------------------------------------------

    def given(self, pipe: Pipe, node: int) -> Given:
        """What a pipe hands over to other cores."""
        clock = self.team.release(self.actor(pipe))
        return Given(self.team, clock, self.team.publish(), node)

    def received(self, actors: Actors, parts: list[Given], node: int, why: str) -> None:
        """What others have handed over."""
        for part in parts:
            self.follow(node, part.node, f"by {why}")
            if part.team is self.team:
                self.team.acquire(actors, part.clock)
            else:
                self.team.hear(part.told)

    def cross_set(self, i: Instruction, number: int) -> Iterable[Wait]:
        """Raise a flag for other cores when the pipe comes to it."""
        pipe = Pipe(i.imm["pipe"])

        def do(node: int) -> None:
            self.machine.crossing.raise_(self, i, number, self.given(pipe, node))

        if pipe is Pipe.S:
            do(self.here)
            self.scheduler.happened()
        else:
            self.put(i, pipe, do)
        return ()

    def cross_wait(self, i: Instruction, number: int) -> Steps:
        """Hold up the core, or one pipe, until a flag of other cores holds."""
        crossing, pipe = self.machine.crossing, Pipe(i.imm["pipe"])
        ready, what = crossing.ready(self, i, number), crossing.what(i, number)
        whole = pipe in (Pipe.ALL, Pipe.S)

        def do(node: int) -> None:
            actors = self.scalar if whole else self.actor(pipe)
            self.received(actors, crossing.take(self, i, number), node, what)

        if not whole:
            self.put(i, pipe, do, ready=ready, what=what)
            return
        while not ready():
            yield Wait(ready, what, i.loc)
        self.step(str(i), i.loc)
        do(self.here)

    def sync_all(self, i: Instruction, kind: str) -> Steps:
        """Go on when all cores are here and done."""
        yield from self.drained("its pipes to be done before T.sync_all()")
        crossing = self.machine.crossing
        arrived = crossing.arrive(self, i, kind, self.given(Pipe.S, self.here))
        self.scheduler.happened()
        while not arrived():
            yield Wait(arrived, "all cores to come to T.sync_all()", i.loc)
        self.step(str(i), i.loc)
        self.received(self.scalar, crossing.met(self, kind), self.here, "T.sync_all()")

    # The end -------------------------------------------------------------------------------------

    def whole(self, steps: Steps) -> Steps:
        """The program of the core, and its end: nothing may be left in the queues or raised."""
        yield from steps
        yield from self.drained("its pipes to be done")
        report = self.machine.report
        for (src, dst, number), event in self.events.items():
            if event.raised:
                leftover(report, self.name, flag_name(src, dst, number), event.raised[-1][1])
        for number, mutex in self.mutexes.items():
            if mutex.served != mutex.tickets:
                leftover(report, self.name, f"mutex {number}", mutex.held_at)


class Machine:
    """One launch in this mode. With a `trail` the order is noted, to be asked for afterwards."""

    def __init__(self, launch: Launch, schedule: Schedule, trail: Trail | None) -> None:
        self.trail = trail
        self.report = launch.report
        self.scheduler = Scheduler(schedule)
        self.clocks = Clocks()
        limits = launch.of.chip.sync
        assert limits is not None
        self.limits = limits
        blocks = launch.blocks()
        self.crossing = Crossing[Given](launch.size(), limits)
        for number, block in enumerate(blocks):
            label = f" of block {number}"
            memories = GroupMemories(launch.text.memories, launch.report, label, checked=True)
            team = self.clocks.team()
            for kind, sub in launch.kinds():
                core = QueuedCore(Member(number, kind, sub), memories, self, team)
                self.scheduler.spawn(core.name, core.whole(launch.steps(core, block)))


def run_queued(launch: Launch, schedule: Schedule, trail: Trail | None = None) -> None:
    """Run all blocks."""
    machine = Machine(launch, schedule, trail)
    machine.scheduler.run()
    machine.crossing.finish(launch.report)
