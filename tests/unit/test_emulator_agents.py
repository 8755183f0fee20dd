"""The parts of kernels that wait: barriers, groups of work under way, the division into agents."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from hang_guard import hang_guard  # noqa: F401 - a fixture
from tilelang.dtypes import DType
from tilelang.emulator import inflight, teams, translate
from tilelang.emulator.barriers import Mbarrier, Meeting
from tilelang.emulator.blocks import Crew, blocks_of, twin
from tilelang.emulator.inflight import Groups, LaneOp, Op, Share
from tilelang.emulator.lane_copies import LaneCopy
from tilelang.emulator.lanes import Lanes, statements
from tilelang.emulator.observe import Capture
from tilelang.emulator.storage import Access, Fault, Tile
from tilelang.errors import TileError
from tilelang.ir.expr import Buffer, const
from tilelang.ir.tile import Copy, If, Launch, Store, While
from tilelang.passes.check.threads import Threads

pytestmark = pytest.mark.usefixtures("hang_guard")


# -- mbarriers -------------------------------------------------------------------------------------


def test_phases_and_parities():
    bar = Mbarrier("bar", 3)
    assert not bar.passed(0), "the first phase is not complete"
    assert bar.passed(1), "the phase before the first counts as complete"
    bar.arrive(2)
    assert bar.phase == 0
    bar.arrive(1)
    assert bar.phase == 1
    assert bar.passed(0)
    assert not bar.passed(1)
    for _ in range(3):
        bar.arrive(1)
    assert bar.phase == 2
    assert not bar.passed(0)


def test_work_is_carried_out_when_the_phase_is_delivered():
    done = []
    bar = Mbarrier("bar", 1)
    bar.expect(24)
    bar.attach(Op(lambda: done.append("a")), 16)
    bar.arrive(1)
    assert not bar.due
    assert "8 bytes" in bar.missing()
    bar.attach(Op(lambda: done.append("b")), 8)
    assert bar.due
    assert done == []
    assert bar.phase == 0
    bar.deliver()
    assert done == ["a", "b"]
    assert bar.phase == 1
    bar.deliver()
    assert bar.phase == 1, "nothing has arrived in the new phase"


def test_a_phase_waits_for_arrivals_and_bytes_in_any_order():
    bar = Mbarrier("bar", 2)
    bar.attach(Op(lambda: None), 4)
    bar.arrive(2)
    assert bar.phase == 0
    assert "does not expect" in bar.missing()
    bar.expect(4)
    bar.deliver()
    assert bar.phase == 1


def test_more_arrivals_than_a_phase_expects():
    bar = Mbarrier("bar", 2)
    with pytest.raises(TileError, match="more arrivals at bar"):
        bar.arrive(3)
    bar = Mbarrier("bar", 2)
    bar.expect(8)
    bar.arrive(2)
    with pytest.raises(TileError, match="phase 0"):
        bar.arrive(1)


def test_the_next_arrival_finds_work_that_was_due_complete():
    done = []
    bar = Mbarrier("bar", 1)
    bar.attach(Op(lambda: done.append(1)))
    bar.arrive(1)
    assert done == []
    bar.arrive(1)
    assert done == [1]
    assert bar.phase == 2


# -- other barriers --------------------------------------------------------------------------------


def test_arrivals_that_are_left_over_wait_for_the_next_turn():
    meeting = Meeting("m")
    assert not meeting.arrive(64, 96)
    assert not meeting.arrive(64, 96), "32 of them wait for 64 more"
    assert (meeting.turn, meeting.here) == (1, 32)
    assert meeting.arrive(64, 96)
    assert meeting.turn == 2
    assert meeting.arrive(128, 64)
    assert meeting.turn == 4


def test_one_of_those_who_meet_is_chosen():
    meeting = Meeting("m")
    turn = meeting.turn
    meeting.arrive(32, 64)
    meeting.settle(32)
    assert meeting.turn == turn + 1
    assert meeting.claim(turn)
    assert not meeting.claim(turn)


# -- groups of work under way ----------------------------------------------------------------------


def some(count, *which):
    out = np.zeros(count, np.bool_)
    out[list(which)] = True
    return out


def test_groups_are_counted_by_each_thread():
    done = []
    groups = Groups(4)
    every = np.ones(4, np.bool_)
    groups.issue(Op(lambda: done.append("a")), every)
    groups.commit(every)
    groups.issue(Op(lambda: done.append("b")), some(4, 0, 1))
    groups.commit(some(4, 0, 1))
    groups.wait(some(4, 0, 1), 1)
    assert done == [], "threads 2 and 3 have not waited for a"
    groups.wait(some(4, 2, 3), 1)
    assert done == [], "theirs is the newest group"
    groups.wait(some(4, 2, 3), 0)
    assert done == ["a"]
    groups.wait(every, 0)
    assert done == ["a", "b"]


def test_an_open_group_is_not_waited_for():
    done = []
    groups = Groups(2)
    every = np.ones(2, np.bool_)
    groups.issue(Op(lambda: done.append("a")), every)
    groups.wait(every, 0)
    assert done == []
    groups.commit(every)
    groups.wait(every, 0)
    assert done == ["a"]


def test_a_part_for_each_thread():
    done = []
    every = np.ones(3, np.bool_)
    op = LaneOp(lambda t: done.append(t.tolist()), None, every)
    groups = Groups(3)
    groups.issue(op, every, Share.EACH)
    groups.commit(every)
    groups.wait(some(3, 1), 0)
    assert done == [[False, True, False]]
    groups.finish()
    assert done[1:] == [[True, False, True]]


def test_one_thread_waits_for_its_warp_group():
    done = []
    every = np.ones(256, np.bool_)
    groups = Groups(256)
    groups.issue(Op(lambda: done.append(1)), every, Share.GROUPS)
    groups.commit(every)
    groups.wait(some(256, 5), 0)
    assert done == []
    groups.wait(some(256, 200), 0)
    assert done == [1]


def test_what_is_left_at_the_end_is_carried_out_and_told():
    done = []
    groups = Groups(1)
    op = Op(lambda: done.append(1))
    groups.issue(op, np.ones(1, np.bool_))
    assert groups.finish() == [op]
    assert done == [1]
    assert inflight.Groups(1).finish() == []


def test_a_read_wait_only_reads():
    steps = []
    groups = Groups(1)
    me = np.ones(1, np.bool_)
    op = Op(lambda: steps.append("write"), fetch=lambda: steps.append("read"))
    groups.issue(op, me)
    groups.commit(me)
    groups.wait(me, 0, read=True)
    assert steps == ["read"]
    groups.wait(me, 0)
    assert steps == ["read", "write"]


# -- copies of each thread -------------------------------------------------------------------------


def access(name, dtype, *shape, scope="shared.dyn"):
    buffer = Buffer(name, DType(dtype), tuple(const(n) for n in shape), scope=scope)
    return Access(buffer, scope != "global", np.zeros((), DType(dtype).numpy)[()], None)


def test_lane_copies_at_odd_places():
    src = np.arange(40, dtype=np.float32).reshape(4, 10)
    dst = np.full((3, 8), -1, np.float32)
    rows = np.array([0, 2, 3], np.int32)
    a, b = access("a", "float32", 4, 10, scope="global"), access("b", "float32", 3, 8)
    made = LaneCopy(
        (src, (rows, np.array([8, 3, 1])), a),
        (dst, (np.arange(3), 2), b),
        4,
        np.array([True, True, False]),
        3,
    )
    rows[:] = 0  # the places are those of when it was issued
    made.forget(np.array([0, 1, 2]))
    assert np.isnan(dst[:, 2:6]).all()
    made.copy(np.array([0, 2]))
    np.testing.assert_array_equal(dst[0, 2:6], [8, 9, 0, 0])  # outside of the tensor: zero
    assert np.isnan(dst[1, 2:6]).all()
    np.testing.assert_array_equal(dst[2, 2:6], [0, 0, 0, 0])  # the predicate does not hold
    made.copy(np.array([1]))
    np.testing.assert_array_equal(dst[1, 2:6], [23, 24, 25, 26])
    assert (dst[:, [0, 1, 6, 7]] == -1).all()


def test_a_lane_copy_outside_of_shared_memory_is_a_fault():
    src, dst = np.zeros(8, np.float32), np.zeros(8, np.float32)
    a, b = access("a", "float32", 8, scope="global"), access("b", "float32", 8)
    made = LaneCopy((src, (0,), a), (dst, (np.array([4, 6]),), b), 4, None, 2)
    with pytest.raises(Fault):
        made.forget(np.array([0, 1]))


# -- blocks and clusters ---------------------------------------------------------------------------


@pytest.mark.parametrize(("grid", "cluster"), [((5,), ()), ((4, 3), (2,)), ((4, 4, 2), (2, 2, 1))])
def test_blocks_come_cluster_by_cluster(grid, cluster):
    crew = Crew((32, 1, 1), (32,), ("tx", "ty", "tz"), cluster)
    groups = list(blocks_of(grid, crew))
    every = [b.index for blocks in groups for b in blocks]
    assert len(every) == len(set(every)) == int(np.prod(grid))
    dims = (*cluster, 1, 1, 1)[:3]
    for blocks in groups:
        assert (
            len({tuple(i // d for i, d in zip(b.index, dims, strict=False)) for b in blocks}) == 1
        )
        for b in blocks:
            within = [i % d for i, d in zip((*b.index, 0, 0)[:3], dims, strict=True)]
            assert b.rank == within[0] + dims[0] * (within[1] + dims[1] * within[2])


def test_the_same_place_in_another_blocks_memory():
    own, other = np.arange(24, dtype=np.float32), np.zeros(24, np.float32)
    view = own[4:16].reshape(3, 4)[:, 1:3]
    tile = Tile(view, (1, 0), (2, 2), access("v", "float32", 3, 2))
    there = twin(tile, own, other)
    there.array[...] = 7
    assert np.flatnonzero(other).tolist() == [5, 6, 9, 10, 13, 14]


# -- division into agents --------------------------------------------------------------------------


def launch_of(kernel):
    return next(s for s in kernel.ir.body if isinstance(s, Launch))


def sizes_of(kernel):
    launch = launch_of(kernel)
    extents = (*launch.threads, 1, 1)[:3]
    threads = Threads(launch, extents, statements(launch.body))
    splits = teams.parted(launch.body, threads)
    seeds = [v.name for v, n in zip(launch.thread_vars, extents, strict=True) if n > 1]
    rests = {k: s.rest for k, s in splits.items()}
    lanes = Lanes(launch.body, seeds, lambda b: b.scope.startswith("local"), {}, rests)
    return teams.division(launch.body, threads, splits, lanes)


def wait_if(condition, threads=256):
    """A kernel in which the threads of a condition wait for an mbarrier."""

    @T.prim_func
    def kernel(A: T.Tensor((256,), "int32")):
        with T.Kernel(2, threads=threads) as bx:
            tx = T.get_thread_binding()
            bar = T.alloc_barrier(32)
            T.mbarrier_arrive(bar)
            if condition(tx, bx, A):
                T.mbarrier_wait_parity(bar, 0)

    return kernel


@pytest.mark.parametrize(
    ("condition", "want"),
    [
        (lambda tx, bx, A: tx < 32, [32, 224]),
        (lambda tx, bx, A: tx // 32 == 3, [96, 32, 128]),
        (lambda tx, bx, A: (tx >= 128) & (tx < 192), [128, 64, 64]),
        (lambda tx, bx, A: tx == 40, [32, 32, 192]),
        (lambda tx, bx, A: tx < 40, [32, 32, 192]),
        (lambda tx, bx, A: bx == 1, [256]),
        (lambda tx, bx, A: A[bx] > 0, [256]),
        (lambda tx, bx, A: A[tx] > 0, [32] * 8),
        (lambda tx, bx, A: T.shuffle_elect(128), [32, 96, 32, 96]),
    ],
)
def test_agents_are_as_large_as_the_conditions_allow(condition, want):
    assert sizes_of(wait_if(condition)) == want


def test_a_last_agent_may_be_smaller():
    assert sizes_of(wait_if(lambda tx, bx, A: tx < 64, 72)) == [64, 8]
    assert sizes_of(wait_if(lambda tx, bx, A: A[tx] > 0, 72)) == [32, 32, 8]


def test_threads_that_wait_for_different_barriers_run_apart():
    @T.prim_func
    def kernel():
        with T.Kernel(1, threads=128):
            tx = T.get_thread_binding()
            bars = T.alloc_barrier([32] * 4)
            T.mbarrier_wait_parity(bars[tx // 32], 1)

    assert sizes_of(kernel) == [32] * 4


def conditions(kernel):
    return [s for s in statements(launch_of(kernel).body) if isinstance(s, If)]


@pytest.mark.parametrize("shape", [(64,), (8, 12), (4, 6, 5)])
def test_conditions_are_evaluated_for_every_thread(shape):
    x_size, y_size = (*shape, 1)[:2]

    @T.prim_func
    def kernel(A: T.Tensor((4,), "int32")):
        with T.Kernel(4, threads=shape) as bx:
            x, y, z = (T.get_thread_binding(k) for k in range(3))
            t = x + x_size * (y + y_size * z)
            if t % 3 == 1:
                A[0] = 1
            if T.get_warp_idx() == 1 and bx > 2:
                A[0] = 2
            if T.min(x, 3) + T.if_then_else(y > 1, z, 5) != 4 or not (x < y):
                A[0] = 3
            if bx > 2:
                A[0] = 4
            if A[x % 4] > 2 and t < 32:
                A[0] = 5

    launch = launch_of(kernel)
    threads = Threads(launch, (*shape, 1, 1)[:3], statements(launch.body))
    everyone = threads.everyone()
    splits = [teams.split(threads, s.cond, everyone) for s in conditions(kernel)]
    z, y, x = np.indices((*shape, 1, 1)[:3][::-1]).reshape(3, -1)
    t = np.arange(len(x))
    np.testing.assert_array_equal(splits[0].threads, t % 3 == 1)
    assert splits[0].rest is None
    np.testing.assert_array_equal(splits[1].threads, t // 32 == 1)
    assert splits[1].rest is not None
    want = (np.minimum(x, 3) + np.where(y > 1, z, 5) != 4) | ~(x < y)
    np.testing.assert_array_equal(splits[2].threads, want)
    assert splits[3] is None
    np.testing.assert_array_equal(splits[4].threads, t < 32)


def test_which_loops_wait_for_memory():
    @T.prim_func
    def kernel(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=1):
            i = T.alloc_var("int32", init=0)
            while A[0] == 0:  # reads it
                i = i + 1
            while i < 20:  # does not
                B[0] = A[i]
                i = i + 1
            while i < A[1]:  # reads it
                i = i + 1
            j = T.alloc_var("int32", init=0)
            while j == 0:  # by a variable
                j = A[2]
            while i < 90:  # by a way out
                i = i + 1
                if A[i % 64] == 3:
                    break

    loops = [s for s in statements(launch_of(kernel).body) if isinstance(s, While)]
    assert [teams.watches(s) for s in loops] == [True, False, True, True, True]


# -- whole kernels ---------------------------------------------------------------------------------


def test_a_long_loop_over_memory_is_not_taken_for_a_deadlock():
    @T.prim_func
    def kernel(A: T.Tensor((20000,), "int32"), B: T.Tensor((1,), "int32")):
        with T.Kernel(1, threads=32):
            i = T.alloc_var("int32", init=0)
            while A[i] != 0:
                i = i + 1
            B[0] = i

    a, b = np.ones(20000, np.int32), np.zeros(1, np.int32)
    a[-1] = 0
    tilelang.compile(kernel, target="emulate:sm_90a")(a, b)
    assert b[0] == 19999


def test_memory_in_a_loop_is_new_each_time():
    """Nobody sees what the round before has left, however the warps run."""

    @T.prim_func
    def kernel(B: T.Tensor((3, 64), "float32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            bar = T.alloc_barrier(64)
            for k in T.serial(3):
                s = T.alloc_shared((64,), "float32")
                if k == 1:
                    s[tx] = tx
                T.mbarrier_arrive(bar)
                if tx < 32:
                    T.mbarrier_wait_parity(bar, k % 2)
                else:
                    T.mbarrier_wait_parity(bar, k % 2)
                B[k, tx] = s[63 - tx]

    b = np.zeros((3, 64), np.float32)
    tilelang.compile(kernel, target="emulate:sm_90a")(b)
    assert np.isnan(b[[0, 2]]).all()
    np.testing.assert_array_equal(b[1], np.arange(63, -1, -1))


def test_a_fragment_that_threads_use_for_themselves():
    """Elements at places that name no thread are registers of each thread."""

    @T.prim_func
    def kernel(A: T.Tensor((2, 48), "int32"), B: T.Tensor((2, 48), "int32")):
        with T.Kernel(1, threads=48):
            tx = T.get_thread_binding()
            mine = T.alloc_fragment((2, 2), "int32")
            for k in T.unroll(2):
                mine[k, 1] = A[k, tx]
            for k in T.unroll(2):
                B[k, tx] = mine[1 - k, 1]

    a = np.arange(96, dtype=np.int32).reshape(2, 48)
    b = np.zeros_like(a)
    tilelang.compile(kernel, target="emulate:sm_90a")(a, b)
    np.testing.assert_array_equal(b, a[::-1])


def test_a_phase_that_is_over_before_its_waiter_looks():
    """Two phases complete while one thread waits for the first: it has seen it."""

    @T.prim_func
    def kernel(B: T.Tensor((1,), "int32")):
        with T.Kernel(1, threads=96):
            tx = T.get_thread_binding()
            bar = T.alloc_barrier(32)
            if tx < 32:
                T.mbarrier_wait_parity(bar, 0)
                B[0] = 1
            elif tx < 64:
                T.mbarrier_arrive(bar)
            else:
                T.mbarrier_arrive(bar)

    b = np.zeros(1, np.int32)
    tilelang.compile(kernel, target="emulate:sm_90a")(b)
    assert b[0] == 1


def test_a_fragment_that_several_groups_use_is_in_the_registers_of_each():
    """It begins as the block has left it; then the groups do not see each other's."""

    @T.prim_func
    def kernel(A: T.Tensor((2, 64), "float32"), B: T.Tensor((2, 64), "float32")):
        with T.Kernel(1, threads=256):
            f = T.alloc_fragment((64,), "float32")
            here = T.alloc_barrier(128)
            there = T.alloc_barrier(128)
            T.fill(f, 1.0)
            with T.ws(0):
                for i in T.Parallel(64):
                    f[i] = f[i] + A[0, i]
                T.mbarrier_arrive(here)
                T.mbarrier_wait_parity(there, 0)
                T.copy(f, B[0, :])
            with T.ws(1):
                T.mbarrier_wait_parity(here, 0)
                for i in T.Parallel(64):
                    f[i] = f[i] * A[1, i]
                T.mbarrier_arrive(there)
                T.copy(f, B[1, :])

    a = np.random.default_rng(0).standard_normal((2, 64)).astype(np.float32)
    b = np.zeros_like(a)
    tilelang.compile(kernel, target="emulate:sm_90a")(a, b)
    np.testing.assert_array_equal(b, np.stack([a[0] + 1, a[1]]))
    assert translate(kernel.ir, checked=True).run({"A": a, "B": b}) == []


def test_a_barrier_after_some_threads_have_returned():
    """In lockstep, where nobody else waits for anything."""

    @T.prim_func
    def kernel(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            s = T.alloc_shared((64,), "int32")
            s[tx] = A[tx]
            if A[tx] < 20:
                T.thread_return()
            T.sync_threads()
            B[tx] = s[63 - tx]

    a, b = np.arange(64, dtype=np.int32), np.full(64, -1, np.int32)
    tilelang.compile(kernel, target="emulate:sm_90a")(a, b)
    np.testing.assert_array_equal(b, np.where(a < 20, -1, a[::-1]))


def test_a_loop_whose_condition_the_team_changes():
    """The warps meet before each round looks at what the last one has written."""

    @T.prim_func
    def kernel(B: T.Tensor((96,), "int32")):
        with T.Kernel(1, threads=96):
            tx = T.get_thread_binding()
            s = T.alloc_shared((1,), "int32")
            bar = T.alloc_barrier(96)
            T.mbarrier_arrive(bar)
            if tx < 32:
                T.mbarrier_wait_parity(bar, 0)
            else:
                T.mbarrier_wait_parity(bar, 0)
            if tx == 40:
                s[0] = 0
            n = T.alloc_var("int32", init=0)
            while s[0] < 5:
                T.sync_threads()
                if tx == 40:
                    s[0] = s[0] + 1
                n = n + 1
            B[tx] = n

    b = np.zeros(96, np.int32)
    tilelang.compile(kernel, target="emulate:sm_90a")(b)
    assert (b == 5).all()


def test_launches_that_wait_and_launches_that_do_not():
    @T.prim_func
    def kernel(A: T.Tensor((4, 64), "int32"), B: T.Tensor((4, 64), "int32")):
        W = T.alloc_global((4, 64), "int32")
        with T.Kernel(4, threads=64) as bx:
            tx = T.get_thread_binding()
            W[bx, tx] = A[bx, tx] + 1
        with T.Kernel(4, threads=64) as bx:
            tx = T.get_thread_binding()
            s = T.alloc_shared((64,), "int32")
            bar = T.alloc_barrier(64)
            T.tma_copy(W[3 - bx, :], s, barrier=bar)
            T.mbarrier_arrive(bar)
            T.mbarrier_wait_parity(bar, 0)
            W[3 - bx, tx] = s[63 - tx]
        with T.Kernel(4, threads=64) as bx:
            T.copy(W[bx, :], B[bx, :])

    a = np.arange(256, dtype=np.int32).reshape(4, 64)
    b = np.zeros_like(a)
    tilelang.compile(kernel, target="emulate:sm_90a")(a, b)
    np.testing.assert_array_equal(b, a[:, ::-1] + 1)
    assert translate(kernel.ir, checked=True).run({"A": a, "B": b}) == []


def test_an_observer_looks_once():
    """After an operation of a team, after code of threads, and at the end of a block."""

    @T.prim_func
    def kernel(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int32")):
        with T.Kernel(2, threads=128) as bx:
            tx = T.get_thread_binding()
            s = T.alloc_shared((64,), "int32")
            bar = T.alloc_barrier(128)
            T.mbarrier_arrive(bar)
            if tx < 32:
                T.mbarrier_wait_parity(bar, 0)
            T.copy(A, s)
            n = T.alloc_var("int32", init=0)
            n = bx + 7
            T.device_assert(n > 6)
            if bx == 1:
                T.copy(s, B)

    launch = launch_of(kernel)
    wanted = [s for s in launch.body if isinstance(s, (Copy, Store))]
    shots = [Capture(lambda s, w=w: s is w, block=(1,)) for w in (*wanted, launch)]
    a, b = np.arange(64, dtype=np.int32), np.zeros(64, np.int32)
    for shot in shots:
        translate(kernel.ir).run({"A": a, "B": b}, observer=shot)
        assert len(shot.shots) == 1
    np.testing.assert_array_equal(shots[0].shots[0]["s"], a)
    assert shots[1].shots[0]["n"] == 8
    np.testing.assert_array_equal(shots[2].shots[0]["B"], a)
