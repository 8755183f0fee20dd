"""The native workers: every block runs once, whoever launches, and the process always ends."""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tilelang.targets.cpu import llvm, workers
from tilelang.targets.cpu.workers import Workers

SOURCE = Path(workers.__file__).parents[3]
LAUNCH = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int32
)

# env: the record, where to count how often each block ran, where to count wrong arenas, the bytes
# of an arena, the block that fails, where to count calls, the address of tw_launch, turns to spin.
KERNELS = """
define void @count(ptr %env, i64 %first, i64 %last, ptr %arena) {
entry:
  %record = load ptr, ptr %env
  %p1 = getelementptr i64, ptr %env, i64 1
  %counts = load ptr, ptr %p1
  %p2 = getelementptr i64, ptr %env, i64 2
  %wrong = load ptr, ptr %p2
  %p3 = getelementptr i64, ptr %env, i64 3
  %bytes = load i64, ptr %p3
  %p4 = getelementptr i64, ptr %env, i64 4
  %fails = load i64, ptr %p4
  %p5 = getelementptr i64, ptr %env, i64 5
  %calls = load ptr, ptr %p5
  %p7 = getelementptr i64, ptr %env, i64 7
  %turns = load i64, ptr %p7
  %old = atomicrmw add ptr %calls, i64 1 monotonic
  br label %block
block:
  %b = phi i64 [ %first, %entry ], [ %next, %done ]
  %c = getelementptr i64, ptr %counts, i64 %b
  %n = load i64, ptr %c
  %n1 = add i64 %n, 1
  store i64 %n1, ptr %c
  %small = icmp ult i64 %bytes, 8
  br i1 %small, label %fail, label %use
use:
  %back = sub i64 %bytes, 8
  %end = getelementptr i8, ptr %arena, i64 %back
  store volatile i64 %b, ptr %arena
  store volatile i64 %b, ptr %end, align 1
  br label %spin
spin:
  %t = phi i64 [ 0, %use ], [ %t1, %spin ]
  %t1 = add i64 %t, 1
  %x = load volatile i64, ptr %arena
  %more = icmp ult i64 %t1, %turns
  br i1 %more, label %spin, label %look
look:
  %y = load volatile i64, ptr %end, align 1
  %address = ptrtoint ptr %arena to i64
  %low = and i64 %address, 63
  %ok1 = icmp eq i64 %x, %b
  %ok2 = icmp eq i64 %y, %b
  %ok3 = icmp eq i64 %low, 0
  %ok12 = and i1 %ok1, %ok2
  %ok = and i1 %ok12, %ok3
  br i1 %ok, label %fail, label %bad
bad:
  %old2 = atomicrmw add ptr %wrong, i64 1 monotonic
  br label %fail
fail:
  %is = icmp eq i64 %b, %fails
  br i1 %is, label %set, label %done
set:
  store atomic i32 7, ptr %record monotonic, align 4
  br label %done
done:
  %next = add i64 %b, 1
  %again = icmp slt i64 %next, %last
  br i1 %again, label %block, label %out
out:
  ret void
}

define void @empty(ptr %env, i64 %first, i64 %last, ptr %arena) {
  ret void
}

define void @nested(ptr %env, i64 %first, i64 %last, ptr %arena) {
entry:
  %p3 = getelementptr i64, ptr %env, i64 3
  %bytes = load i64, ptr %p3
  %p6 = getelementptr i64, ptr %env, i64 6
  %launch = load ptr, ptr %p6
  br label %block
block:
  %b = phi i64 [ %first, %entry ], [ %next, %block ]
  %p1 = getelementptr i64, ptr %env, i64 1
  %counts = load ptr, ptr %p1
  %inner = alloca [8 x i64]
  call void @llvm.memcpy.p0.p0.i64(ptr %inner, ptr %env, i64 64, i1 false)
  %row = mul i64 %b, 10
  %mine = getelementptr i64, ptr %counts, i64 %row
  %i1 = getelementptr i64, ptr %inner, i64 1
  store ptr %mine, ptr %i1
  call void %launch(ptr @count, ptr %inner, i64 10, i64 %bytes, i32 4)
  %next = add i64 %b, 1
  %again = icmp slt i64 %next, %last
  br i1 %again, label %block, label %out
out:
  ret void
}
"""


@functools.cache
def kernels() -> llvm.Library:
    return llvm.Library(llvm.optimise(KERNELS).object())


@functools.cache
def code(spins: int = workers.SPINS) -> bytes:
    return llvm.optimise(workers.module_text(spins)).object()


class Run:
    """One thread's launches of a kernel, and what they left."""

    def __init__(self, pool: Workers, kernel: str = "count", blocks: int = 64, **env: int) -> None:
        self.pool = pool
        self.blocks = blocks
        self.bytes = env.get("bytes", 0)
        self.record = np.zeros(4, np.int32)
        self.counts = np.zeros(max(1, blocks) * env.get("inner", 1), np.int64)
        self.wrong = np.zeros(1, np.int64)
        self.calls = np.zeros(1, np.int64)
        held = [x.ctypes.data for x in (self.record, self.counts, self.wrong)]
        held += [self.bytes, env.get("fails", -1), self.calls.ctypes.data]
        held += [pool.launch_address(), env.get("turns", 1)]
        self.env = np.array(held, np.int64)
        self.kernel = kernels().address(kernel)
        self._launch = LAUNCH(pool.launch_address())

    def __call__(self, threads: int = 4) -> None:
        self._launch(self.kernel, self.env.ctypes.data, self.blocks, self.bytes, threads)


@pytest.fixture(params=((1, None), (2, None), (4, None), (3, 1)), ids=("1", "2", "4", "drowsy"))
def pool(request: pytest.FixtureRequest) -> Iterator[Workers]:
    """Workers, also such that sleep at once whenever there is nothing to do."""
    threads, spins = request.param
    made = Workers(code() if spins is None else code(spins), threads)
    made.start()
    yield made
    made.stop()


@pytest.mark.parametrize("blocks", (0, 1, 2, 3, 7, 64, 1000))
@pytest.mark.parametrize("size", (0, 64, 100_000))
def test_every_block_runs_once(pool: Workers, blocks: int, size: int):
    run = Run(pool, blocks=blocks, bytes=size)
    for _ in range(10):
        run()
    np.testing.assert_array_equal(run.counts, [10] * blocks if blocks else [0])
    assert run.wrong[0] == 0


@pytest.mark.parametrize("callers", (1, 3))
def test_many_small_launches(pool: Workers, callers: int):
    runs = [Run(pool, blocks=2 + 3 * n, bytes=64 + 5000 * n, turns=300) for n in range(callers)]
    times = 10_000 // callers

    def launch(run: Run) -> None:
        for n in range(times):
            run(1 + n % 5)

    threads = [threading.Thread(target=launch, args=(run,)) for run in runs]
    for t in threads:
        t.start()
    for t in threads:
        t.join(timeout=120)
    for run in runs:
        np.testing.assert_array_equal(run.counts, [times] * run.blocks)
        assert run.wrong[0] == 0


def test_workers_that_sleep_are_woken():
    pool = Workers(code(), 3)
    run = Run(pool, blocks=8, bytes=64, turns=200_000)
    time.sleep(0.05)
    best = 0
    for _ in range(20):
        run.calls[0] = 0
        run()
        best = max(best, int(run.calls[0]))
        time.sleep(0.005)
    np.testing.assert_array_equal(run.counts, [20] * 8)
    pool.stop()
    assert best > 1  # one thread alone would take all blocks in one call


def test_a_launch_inside_a_kernel(pool: Workers):
    run = Run(pool, "nested", blocks=12, bytes=64, inner=10)
    for _ in range(50):
        run()
    np.testing.assert_array_equal(run.counts, [50] * 120)
    assert run.wrong[0] == 0


def test_no_chunk_is_taken_after_a_failure():
    pool = Workers(code(), 2)
    run = Run(pool, blocks=1000, bytes=64)
    while not run.calls[0] > 1:  # until there is a worker, so that the blocks are cut into chunks
        run.calls[0] = 0
        run()
    run.counts[:] = run.calls[0] = 0
    run.env[4] = 0  # the block that fails
    run()
    assert run.record[0] == 7
    assert 1 <= run.calls[0] <= 2  # one each
    assert run.counts[0] == 1
    assert run.counts[-1] == 0
    before = run.counts.sum()
    run()
    assert run.counts.sum() == before
    pool.stop()


def test_no_memory_for_an_arena_is_a_failure(pool: Workers):
    run = Run(pool, blocks=8, bytes=1 << 60)
    run()
    assert run.record[0] == workers.OUT_OF_MEMORY
    assert not run.counts.any()
    after = Run(pool, blocks=8, bytes=64)
    after()
    assert after.counts.all()


def test_threads_start_when_there_is_work_for_them():
    def workers_now() -> int:
        return sum(t.name.startswith("tilelang-worker") for t in threading.enumerate())

    before = workers_now()
    pool = Workers(code(), 3)
    Run(pool, blocks=1, bytes=64)()
    Run(pool, blocks=8, bytes=64)(1)
    assert workers_now() == before
    Run(pool, blocks=8, bytes=64)()
    assert workers_now() == before + 2
    pool.stop()
    assert workers_now() == before


def test_a_stopped_pool_runs_blocks_on_the_caller():
    pool = Workers(code(), 3)
    pool.start()
    pool.stop()
    run = Run(pool, blocks=20, bytes=64)
    run()
    np.testing.assert_array_equal(run.counts, [1] * 20)
    assert run.calls[0] == 1


def test_the_number_of_threads():
    assert Workers(code()).threads() == workers.default_threads() >= 1
    assert Workers(code(), 5).threads() == 5


def python(text: str) -> None:
    """Run a program in a process of its own; it must end by itself, and well."""
    head = f"import sys; sys.path[:0] = [{str(SOURCE)!r}, {str(Path(__file__).parent)!r}]\n"
    found = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", head + text],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert found.returncode == 0, found.stdout + found.stderr


PROGRAM = """
import test_cpu_workers as t
pool = t.Workers(t.code(), 3)
run = t.Run(pool, blocks=50, bytes=64, turns=1000)
for _ in range(100):
    run()
"""


@pytest.mark.parametrize(
    "end",
    [
        "",
        "import time; time.sleep(0.01)",
        "sys.exit(0)",
        "del pool, run; import gc; gc.collect()",
        "import atexit; atexit.register(run)",
    ],
)
def test_the_process_ends(end: str):
    python(PROGRAM + end)


def test_the_process_ends_while_others_launch():
    python(
        PROGRAM
        + """
import threading
def forever():
    own = t.Run(pool, blocks=50, bytes=64, turns=1000)
    while True:
        own()
for _ in range(2):
    threading.Thread(target=forever, daemon=True).start()
import time
time.sleep(0.2)
"""
    )


def test_the_process_ends_while_a_kernel_does_not():
    python(
        PROGRAM
        + """
import threading, time
endless = t.Run(pool, blocks=50, bytes=64, turns=1 << 60)
threading.Thread(target=endless, daemon=True).start()
time.sleep(0.2)
"""
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_of_a_fork_starts_afresh():
    python(
        PROGRAM
        + """
import os, threading, warnings
warnings.simplefilter("ignore")
stop = False
def others():
    own = t.Run(pool, blocks=50, bytes=64, turns=1000)
    while not stop:
        own()
thread = threading.Thread(target=others)
thread.start()
for _ in range(20):
    child = os.fork()
    if not child:
        before = run.counts.copy()
        alone = threading.active_count() == 1
        for _ in range(100):
            run()
        ok = (run.counts == before + 100).all() and not run.wrong[0]
        os._exit(0 if alone and ok and threading.active_count() == 3 else 1)
    _, status = os.waitpid(child, 0)
    assert status == 0, status
stop = True
thread.join()
run()
assert (run.counts == 101).all()
"""
    )
