"""What models of machines are made of: order between accesses, schedules, memories."""

from __future__ import annotations

import numpy as np
import pytest

from tilelang.errors import DeadlockError, Loc, TileIndexError
from tilelang.simulator.machine import (
    Clocks,
    Edge,
    Groups,
    Memory,
    Mode,
    Queue,
    Report,
    Schedule,
    Scheduler,
    Shadow,
    Wait,
    Who,
)

HERE, THERE = Loc("kernel.py", 3), Loc("kernel.py", 7)


class Machine:
    """Two actors and a memory of 64 bytes."""

    def __init__(self, *, paths=1, written=True):
        self.report = Report()
        self.clocks = Clocks(paths)
        self.team = self.clocks.team()
        self.a, self.b = (self.team.add(1, lambda _, n=n: n) for n in ("a", "b"))
        shadow = Shadow("M", 64, self.report, written=written)
        self.memory = Memory("M", np.zeros(64, np.uint8), self.report, shadow=shadow)

    def who(self, actor, loc=HERE, **facts):
        return Who(self.team, actor, self.report.site(loc, "touches M"), **facts)

    def read(self, actor, start, size=4, **facts):
        return self.memory.read_bytes(start, size, self.who(int(actor[0]), **facts))

    def write(self, actor, start, size=4, value=1, **facts):
        data = np.full(size, value, np.uint8)
        self.memory.write_bytes(start, data, self.who(int(actor[0]), THERE, **facts))

    @property
    def kinds(self):
        return [d.kind for d in self.report.findings]


def test_accesses_of_two_actors_without_an_edge_are_a_race_in_either_order():
    for first in ("read", "write"):
        m = Machine()
        for what, actor in [("read", m.a), ("write", m.b)][:: 1 if first == "read" else -1]:
            getattr(m, what)(actor, 8)
        assert m.kinds == ["race"]


def test_an_edge_orders_what_was_before_it_and_nothing_after():
    m = Machine()
    edge = Edge(m.team)
    m.write(m.a, 0)
    edge.give(m.a)
    m.write(m.a, 8)
    edge.take(m.b)
    m.read(m.b, 0)
    assert not m.kinds
    m.read(m.b, 8)
    assert m.kinds == ["race"]
    assert m.report.findings[0].loc == HERE
    assert m.report.findings[0].related[0][0] == THERE


def test_neighbouring_bytes_are_no_conflict():
    m = Machine()
    m.write(m.a, 0)
    m.write(m.b, 4)
    m.read(m.a, 0)
    assert not m.kinds


def test_a_write_after_reads_of_several_actors_must_follow_all_of_them():
    m = Machine()
    edge = Edge(m.team)
    m.read(m.a, 0)
    m.read(m.b, 0)
    edge.give(m.a)
    c = m.team.add(1, lambda _: "c")
    edge.take(c)
    m.write(c, 0)
    assert m.kinds == ["race"]
    assert "what b has read" in m.report.findings[0].message


def test_what_nobody_wrote_is_uninitialised():
    m = Machine(written=False)
    m.write(m.a, 0)
    m.read(m.a, 0)
    assert not m.kinds
    m.read(m.a, 2)
    assert m.kinds == ["uninitialised"]


def test_an_operation_knows_its_issuer_up_to_the_issue_and_is_known_after_its_end():
    m = Machine()
    m.write(m.a, 0)
    op = m.team.fork(m.a, "an operation")
    m.write(m.a, 8)
    one = np.array([op])
    m.read(one, 0)
    assert not m.kinds
    m.write(one, 16)
    m.team.acquire(m.b, m.team.release(one))
    m.read(m.b, 16)
    assert not m.kinds
    m.read(one, 8)
    assert m.kinds == ["race"]


def test_an_actor_of_operations_is_used_again_only_where_its_end_is_known():
    m = Machine()
    op = m.team.fork(m.a, "an operation")
    clock = m.team.end(op)
    assert m.team.fork(m.b, "another") != op
    m.team.acquire(m.a, clock)
    assert m.team.fork(m.a, "a third") == op


@pytest.mark.parametrize("fenced", [True, False])
def test_another_path_sees_what_was_fenced(fenced):
    m = Machine(paths=2)
    m.write(m.a, 0)
    if fenced:
        m.team.fence(1, m.a)
    edge = Edge(m.team)
    edge.give(m.a)
    edge.take(m.b)
    op = m.team.fork(m.b, "an operation")
    m.read(np.array([op]), 0, path=1)
    assert m.kinds == ([] if fenced else ["proxy"])


def test_atomic_accesses_do_not_race_with_each_other():
    m = Machine()
    m.write(m.a, 0, atomic=True)
    m.write(m.b, 0, atomic=True)
    assert not m.kinds
    m.read(m.a, 0)
    assert m.kinds == ["race"]


def test_teams_know_of_each_other_what_was_published():
    m = Machine()
    other = m.clocks.team()
    x = other.add(1, lambda _: "x")
    m.write(m.a, 0)
    other.hear(m.team.publish())
    m.write(m.a, 8)
    site = m.report.site(HERE, "reads M")
    m.memory.read_bytes(0, 4, Who(other, int(x[0]), site))
    assert not m.kinds
    m.memory.read_bytes(8, 4, Who(other, int(x[0]), site))
    assert m.kinds == ["race"]


def test_many_addresses_at_once_and_two_actors_in_one_place():
    m = Machine()
    both = np.concatenate([m.a, m.b])
    at = np.array([4, 12])
    m.memory.store(at, np.array([[1, 2], [3, 4]], np.int16), m.who(both))
    assert m.memory.data[4:8].tolist() == [1, 0, 3, 0]
    assert m.memory.load(at, np.dtype(np.int16), 2, m.who(both)).tolist() == [[1, 2], [3, 4]]
    assert not m.kinds
    m.memory.store(np.array([20, 20]), np.array([[7, 7]], np.int16), m.who(both))
    assert not m.kinds
    m.memory.store(np.array([30, 30]), np.array([[7, 8]], np.int16), m.who(both))
    assert m.kinds == ["race"]


@pytest.mark.parametrize("at", [-1, 61, 64])
def test_an_access_outside_is_an_error(at):
    m = Machine()
    with pytest.raises(TileIndexError, match="outside of M"):
        m.read(m.a, at)


# Schedules ---------------------------------------------------------------------------------------


def traced(schedule):
    """The order in which two agents, each of which issues an operation, take their steps."""
    s, seen = Scheduler(schedule), []

    def operation(name):
        seen.append(f"{name} reads")
        yield None
        seen.append(f"{name} writes")

    def agent(name):
        seen.append(f"{name} begins")
        op = s.spawn(name.upper(), operation(name.upper()), asynchronous=True)
        yield None
        seen.append(f"{name} goes on")
        yield Wait(lambda: op.done, f"{name.upper()} to end")
        seen.append(f"{name} ends")

    for name in ("x", "y"):
        s.spawn(name, agent(name))
    s.run()
    return seen


def test_operations_are_early_or_late():
    early = traced(Schedule(Mode.IN_ORDER))
    assert early.index("X writes") < early.index("x goes on")
    late = traced(Schedule(Mode.LATE))
    assert late.index("y goes on") < late.index("X reads")
    assert traced(Schedule(Mode.EARLY))[0] == "y begins"


def test_a_seed_gives_one_order_and_seeds_differ():
    runs = [tuple(traced(Schedule(Mode.RANDOM, k))) for k in range(12)]
    assert len(set(runs)) > 4
    assert runs[3] == tuple(traced(Schedule(Mode.RANDOM, 3)))


def test_a_deadlock_says_who_waits_for_what():
    s = Scheduler()

    def stuck():
        yield Wait(lambda: False, "flag 3", HERE)

    s.spawn("the reader", stuck())
    with pytest.raises(DeadlockError, match=r"the reader waits for flag 3 \(kernel.py:3:1\)"):
        s.run()


def test_agents_that_only_spin_are_a_deadlock():
    s = Scheduler()

    def spinning():
        while True:
            yield s.spin(HERE)

    for _ in range(2):
        s.spawn("a loop", spinning())
    with pytest.raises(DeadlockError, match="memory to change"):
        s.run()


@pytest.mark.parametrize("ordered", [True, False])
def test_a_queue_keeps_its_order(ordered):
    s, seen = Scheduler(Schedule(Mode.LATE)), []
    queue, groups = Queue(s, "the queue", ordered=ordered), Groups()

    def operation(k):
        seen.append(k)
        yield None

    def agent():
        for k in range(4):
            groups.add(queue.put(f"operation {k}", operation(k)))
            groups.commit()
        yield Wait(lambda: not groups.pending(2), "two groups to end")
        seen.append("waited")
        yield Wait(lambda: not groups.pending(0), "all groups to end")

    s.spawn("an agent", agent())
    s.run()
    assert [k for k in seen if k != "waited"] == ([0, 1, 2, 3] if ordered else [3, 2, 1, 0])
    assert not groups.left()
