"""The workers that run the blocks of a kernel, in native code and without the interpreter's lock.

What enters: nothing but the number of threads. What leaves: `module_text`, the pool as a module of
LLVM IR, which is compiled once for a process; and `Workers`, the pool loaded and its threads
running. A compiled program launches through the address of

    void tw_launch(ptr kernel, ptr env, i64 blocks, i64 arena_bytes, i32 threads)

which runs `void kernel(ptr env, i64 first, i64 last, ptr arena)` over all blocks and returns when
they are done. The calling thread is one of the workers. `env` begins with a pointer to a record
whose first i32 is not 0 once the launch has failed; nobody takes blocks then.

How the threads meet. The state of the pool is one word: seats that are free (upper half) and
workers that hold one (lower half). A launch writes its job and then its seats; a worker takes a
seat, runs chunks of blocks, and gives it back; the launch ends when it has closed the free seats
and nobody holds one. So a worker that comes late finds no seat, and never a job that is gone. There
is one job at a time: a launch that finds the pool busy (another thread's, or a launch inside a
kernel) runs its blocks itself. Who finds nothing to do spins for some tens of microseconds and then
sleeps on a condition.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import threading
import time
import weakref
from collections.abc import Callable
from enum import IntEnum

from tilelang.targets.cpu import llvm
from tilelang.targets.cpu.text import Code, Module, Value, number

OUT_OF_MEMORY = -1
"""What a launch writes into the record if a worker gets no memory for its arena."""

SPINS = 1000  # looks at the pool before a thread sleeps; `pause` takes 40 to 140 cycles
SLOTS = 256  # arenas that may be in use at a time
SLOT = 64  # bytes: a line of the cache
PAGE = 4096
GRAIN = 64 << 10  # arenas grow by whole multiples of this many bytes

SEAT = 1 << 32  # one free seat in the state


class _Pool(IntEnum):
    """Where the fields of the pool are, in bytes. What different threads write has its own line.

    A mutex and a condition have 64 bytes, enough for those of Linux and macOS.
    """

    STATE = 0
    BUSY = 64
    JOB = 72
    WAITING = 80
    QUIT = 84
    START = 88
    ASKED = 96
    STARTED = 128
    SLEEPERS = 132
    MUTEX = 192
    WORK = 256
    DONE = 320
    SIZE = 384


class _Job(IntEnum):
    """Where the fields of a job are; a launch has it on its stack."""

    KERNEL = 0
    ENV = 8
    BLOCKS = 16
    ARENA_BYTES = 24
    SHARES = 32
    NEXT = 64
    SIZE = 128


class _Slot(IntEnum):
    """Where the fields of an arena's slot are."""

    BUSY = 0
    MEMORY = 8
    BYTES = 16


# The module ---------------------------------------------------------------------------------------


@functools.cache
def module_text(spins: int = SPINS) -> str:
    """The pool as LLVM IR; exports `tw_launch`, and what `Workers` needs to run it.

    `spins` is how often a thread looks for something to do before it sleeps.
    """
    module = Module()
    for name, kind in (("pool", f"[{_Pool.SIZE} x i8]"), ("arenas", f"[{SLOTS * SLOT} x i8]")):
        module.constants[name] = f"@{name} = internal global {kind} zeroinitializer, align 64"
    _chunks(module)
    _take_arena(module)
    _run_job(module)
    _wait(module, spins)
    _launch(module)
    _work(module, spins)
    _stop(module)
    _reset(module)
    return module.text


def _function(module: Module, name: str, result: str, types: list[str], linkage: str = "") -> Code:
    return Code(module, name, result, types, linkage=linkage, attributes="nounwind")


def _pool(field: _Pool) -> Value:
    return Value("ptr", f"getelementptr inbounds (i8, ptr @pool, i64 {int(field)})")


def _field(code: Code, base: Value, offset: int) -> Value:
    return code.gep(base, "i8", number("i64", offset))


def _i64(value: int) -> Value:
    return number("i64", value)


def _i32(value: int) -> Value:
    return number("i32", value)


def _read(code: Code, kind: str, at: Value, order: str) -> Value:
    """An atomic load."""
    return code.value(kind, f"load atomic {kind}, ptr {at} {order}, align {int(kind[1:]) // 8}")


def _write(code: Code, value: Value, at: Value, order: str) -> None:
    """An atomic store."""
    code.emit(f"store atomic {value.typed}, ptr {at} {order}, align {int(value.type[1:]) // 8}")


def _update(code: Code, op: str, at: Value, value: Value, order: str) -> Value:
    """An atomic read-modify-write; the old value."""
    return code.value(value.type, f"atomicrmw {op} ptr {at}, {value.typed} {order}")


def _exchange(
    code: Code, at: Value, old: Value, new: Value, orders: str = "acq_rel monotonic"
) -> tuple[Value, Value]:
    """Writes `new` where `old` is; what was there, and whether it was `old`."""
    pair = code.value(
        f"{{ {old.type}, i1 }}", f"cmpxchg ptr {at}, {old.typed}, {new.typed} {orders}"
    )
    return (
        code.value(old.type, f"extractvalue {pair.typed}, 0"),
        code.value("i1", f"extractvalue {pair.typed}, 1"),
    )


def _libc(code: Code, name: str, *args: Value) -> Value:
    """A call of the C library; all functions used here return an int."""
    return code.call(code.module.declare(name, "i32", [a.type for a in args]), "i32", args)


def _pause(code: Code) -> None:
    """Tell the processor that this thread spins."""
    triple = llvm.host().triple
    if triple.startswith(("x86_64", "i686")):
        code.call_void(code.module.declare("llvm.x86.sse2.pause", "void", []), [])
    elif triple.startswith(("aarch64", "arm64")):
        # `isb` takes about as long as `pause` of x86; `yield` takes no time on most processors.
        code.call_void(code.module.declare("llvm.aarch64.isb", "void", ["i32"]), [_i32(15)])


def _chunks(module: Module) -> None:
    """Take chunks of blocks and run them until there are none.

    A chunk is a share of the blocks that are left, so few are large and none is large at the end.
    """
    code = _function(module, "chunks", "void", ["ptr", "ptr"], "internal")
    job, arena = code.args
    kernel, env = (code.load("ptr", _field(code, job, f)) for f in (_Job.KERNEL, _Job.ENV))
    blocks, shares = (code.load("i64", _field(code, job, f)) for f in (_Job.BLOCKS, _Job.SHARES))
    following = _field(code, job, _Job.NEXT)
    again, take, run, retry, end = (code.label(x) for x in ("again", "take", "run", "retry", "end"))
    at = code.alloca("i64")
    code.place(again)
    status = _read(code, "i32", code.load("ptr", env), "monotonic")
    code.store(_read(code, "i64", following, "monotonic"), at)
    code.branch(code.compare("ne", status, _i32(0)), end, take)
    code.place(take)
    first = code.load("i64", at)
    left = code.op("sub", blocks, first)
    share = code.intrinsic("umax", code.op("udiv", left, shares), _i64(1))
    last = code.op("add", first, share)
    code.branch(code.compare("sle", left, _i64(0)), end, retry)
    code.place(retry)
    seen, taken = _exchange(code, following, first, last, "monotonic monotonic")
    code.store(seen, at)
    code.branch(taken, run, take)
    code.place(run)
    code.call_void(kernel.text, [env, first, last, arena])
    code.jump(again)
    code.place(end)
    code.ret()
    module.functions["chunks"] = code.text


def _take_arena(module: Module) -> None:
    """The slot of a free arena of at least so many bytes, from slot `start` on; null: no memory.

    With all slots in use the thread waits for one.
    """
    code = _function(module, "take_arena", "ptr", ["i64", "i64"], "internal")
    start, size = code.args
    at = code.alloca("i64")
    code.store(start, at)
    look, following, found, grow, fail, good = (
        code.label(x) for x in ("look", "next", "found", "grow", "fail", "good")
    )
    code.place(look)
    index = code.op("and", code.load("i64", at), _i64(SLOTS - 1))
    slot = code.gep(Value("ptr", "@arenas"), f"[{SLOT} x i8]", index)
    busy = _field(code, slot, _Slot.BUSY)
    memory, extent = _field(code, slot, _Slot.MEMORY), _field(code, slot, _Slot.BYTES)
    _, taken = _exchange(code, busy, _i32(0), _i32(1), "acquire monotonic")
    code.branch(taken, found, following)
    code.place(following)
    code.store(code.op("add", code.load("i64", at), _i64(1)), at)
    turn = code.label("turn")
    code.branch(code.compare("eq", index, _i64(SLOTS - 1)), turn, look)
    code.place(turn)
    _libc(code, "sched_yield")
    code.jump(look)
    code.place(found)
    code.branch(code.compare("ult", code.load("i64", extent), size), grow, good)
    code.place(grow)
    code.call_void(module.declare("free", "void", ["ptr"]), [code.load("ptr", memory)])
    whole = code.op("and", code.op("add", size, _i64(GRAIN - 1)), _i64(-GRAIN))
    error = _libc(code, "posix_memalign", memory, _i64(PAGE), whole)
    failed = code.compare("ne", error, _i32(0))
    code.store(code.select(failed, _i64(0), whole), extent)
    code.branch(failed, fail, good)
    code.place(fail)
    code.store(Value("ptr", "null"), memory)
    _write(code, _i32(0), busy, "release")
    code.ret(Value("ptr", "null"))
    code.place(good)
    code.ret(slot)
    module.functions["take_arena"] = code.text


def _run_job(module: Module) -> None:
    """The part of one worker in a job; `start` is the slot whose arena it would like."""
    code = _function(module, "run_job", "void", ["ptr", "i64"], "internal")
    job, start = code.args
    size = code.load("i64", _field(code, job, _Job.ARENA_BYTES))
    plain, some, good, fail, end = (code.label(x) for x in ("plain", "some", "good", "fail", "end"))
    code.branch(code.compare("eq", size, _i64(0)), plain, some)
    code.place(plain)
    code.call_void("@chunks", [job, Value("ptr", "null")])
    code.jump(end)
    code.place(some)
    slot = code.call("@take_arena", "ptr", [start, size])
    code.branch(code.compare("eq", slot, Value("ptr", "null")), fail, good)
    code.place(good)
    code.call_void("@chunks", [job, code.load("ptr", _field(code, slot, _Slot.MEMORY))])
    _write(code, _i32(0), _field(code, slot, _Slot.BUSY), "release")
    code.jump(end)
    code.place(fail)
    record = code.load("ptr", code.load("ptr", _field(code, job, _Job.ENV)))
    _exchange(code, record, _i32(0), _i32(OUT_OF_MEMORY))
    code.place(end)
    code.ret()
    module.functions["run_job"] = code.text


def _spin(code: Code, times: int, wanted: Callable[[], Value], found: str) -> None:
    """Look so many times whether `wanted` holds and go to `found` if so; else go on."""
    count = code.alloca("i32")
    code.store(_i32(times), count)
    look, rest, tired = code.label("look"), code.label("rest"), code.label("tired")
    code.place(look)
    code.branch(wanted(), found, rest)
    code.place(rest)
    _pause(code)
    left = code.op("sub", code.load("i32", count), _i32(1))
    code.store(left, count)
    code.branch(code.compare("eq", left, _i32(0)), tired, look)
    code.place(tired)


def _sleep(code: Code, condition: _Pool, wanted: Callable[[], Value]) -> None:
    """Sleep until `wanted` holds; the mutex is held before, during each look, and after."""
    look, doze, awake = code.label("look"), code.label("doze"), code.label("awake")
    code.place(look)
    code.branch(wanted(), awake, doze)
    code.place(doze)
    _libc(code, "pthread_cond_wait", _pool(condition), _pool(_Pool.MUTEX))
    code.jump(look)
    code.place(awake)


def _wait(module: Module, spins: int) -> None:
    """Until nobody holds a seat. The caller has closed the free ones."""
    code = _function(module, "wait", "void", [], "internal")
    end = code.label("end")

    def idle(order: str) -> Value:
        return code.compare("eq", _read(code, "i64", _pool(_Pool.STATE), order), _i64(0))

    _spin(code, spins, lambda: idle("acquire"), end)
    _libc(code, "pthread_mutex_lock", _pool(_Pool.MUTEX))
    # This write and the look after it, and a worker's leaving and its look at WAITING after that,
    # are in one order for all: one of the two sees the other.
    _write(code, _i32(1), _pool(_Pool.WAITING), "seq_cst")
    _sleep(code, _Pool.DONE, lambda: idle("seq_cst"))
    _write(code, _i32(0), _pool(_Pool.WAITING), "monotonic")
    _libc(code, "pthread_mutex_unlock", _pool(_Pool.MUTEX))
    code.place(end)
    code.ret()
    module.functions["wait"] = code.text


def _launch(module: Module) -> None:
    """`tw_launch`, as the top of this file describes it."""
    code = _function(module, "tw_launch", "void", ["ptr", "ptr", "i64", "i64", "i32"])
    kernel, env, blocks, size, threads = code.args
    job = code.alloca("i8", _Job.SIZE, 64)
    for value, field in (
        (kernel, _Job.KERNEL),
        (env, _Job.ENV),
        (blocks, _Job.BLOCKS),
        (size, _Job.ARENA_BYTES),
        (_i64(1), _Job.SHARES),
        (_i64(0), _Job.NEXT),
    ):
        code.store(value, _field(code, job, field))
    enough = code.op("sub", code.cast("sext", threads, "i64"), _i64(1))
    wanted = code.intrinsic("smin", enough, code.op("sub", blocks, _i64(1)))
    helpers = _helpers(code, wanted)
    ask, alone, shared, wake, begin, wait, end, out = (
        code.label(x) for x in ("ask", "alone", "shared", "wake", "begin", "wait", "end", "out")
    )
    code.branch(code.compare("sgt", helpers, _i64(0)), ask, alone)
    code.place(ask)
    _, free = _exchange(code, _pool(_Pool.BUSY), _i32(0), _i32(1), "acquire monotonic")
    code.branch(free, shared, alone)
    code.place(alone)
    code.call_void("@run_job", [job, _i64(0)])
    code.jump(out)
    code.place(shared)
    shares = code.op("add", code.op("shl", helpers, _i64(1)), _i64(2))
    code.store(shares, _field(code, job, _Job.SHARES))
    code.store(job, _pool(_Pool.JOB))
    # Open the seats, then look for sleepers; a worker counts itself among them and then looks for
    # seats. All of it is in one order, so one of the two sees the other.
    seats = code.op("shl", helpers, _i64(32))
    _write(code, seats, _pool(_Pool.STATE), "seq_cst")
    sleepers = _read(code, "i32", _pool(_Pool.SLEEPERS), "seq_cst")
    code.branch(code.compare("ne", sleepers, _i32(0)), wake, begin)
    code.place(wake)
    _wake(code, helpers)
    code.place(begin)
    code.call_void("@run_job", [job, _i64(0)])
    state = _update(code, "and", _pool(_Pool.STATE), _i64(SEAT - 1), "acq_rel")
    held = code.op("and", state, _i64(SEAT - 1))
    code.branch(code.compare("ne", held, _i64(0)), wait, end)
    code.place(wait)
    code.call_void("@wait", [])
    code.place(end)
    _write(code, _i32(0), _pool(_Pool.BUSY), "release")
    code.place(out)
    code.ret()
    module.functions["tw_launch"] = code.text


def _helpers(code: Code, wanted: Value) -> Value:
    """How many workers may help; asks once for the threads if there are fewer than `wanted`."""
    few, start, known = code.label("few"), code.label("start"), code.label("known")

    def started() -> Value:
        return code.cast("zext", _read(code, "i32", _pool(_Pool.STARTED), "monotonic"), "i64")

    code.branch(code.compare("slt", started(), wanted), few, known)
    code.place(few)
    asked = _read(code, "i32", _pool(_Pool.ASKED), "monotonic")
    code.branch(code.compare("eq", asked, _i32(0)), start, known)
    code.place(start)
    first = _update(code, "xchg", _pool(_Pool.ASKED), _i32(1), "monotonic")
    call = code.label("call")
    code.branch(code.compare("eq", first, _i32(0)), call, known)
    code.place(call)
    code.call_void(code.load("ptr", _pool(_Pool.START)).text, [])
    code.place(known)
    return code.intrinsic("smin", wanted, started())


def _wake(code: Code, count: Value) -> None:
    """Wake up to `count` >= 1 sleepers."""
    left = code.alloca("i64")
    code.store(count, left)
    one, done = code.label("one"), code.label("done")
    _libc(code, "pthread_mutex_lock", _pool(_Pool.MUTEX))
    code.place(one)
    _libc(code, "pthread_cond_signal", _pool(_Pool.WORK))
    rest = code.op("sub", code.load("i64", left), _i64(1))
    code.store(rest, left)
    code.branch(code.compare("eq", rest, _i64(0)), done, one)
    code.place(done)
    _libc(code, "pthread_mutex_unlock", _pool(_Pool.MUTEX))


def _work(module: Module, spins: int) -> None:
    """`void tw_work(i64 index)`: the life of a worker, until the pool is stopped."""
    code = _function(module, "tw_work", "void", ["i64"])
    state = code.alloca("i64")
    idle, join, sit, signal, end = (code.label(x) for x in ("idle", "join", "sit", "signal", "end"))

    def wanted(order: str) -> Value:
        """Whether there is a seat, or the pool stops."""
        now = _read(code, "i64", _pool(_Pool.STATE), order)
        code.store(now, state)
        seat = code.compare("uge", now, _i64(SEAT))
        stop = _read(code, "i32", _pool(_Pool.QUIT), order)
        return code.op("or", seat, code.compare("ne", stop, _i32(0)))

    _update(code, "add", _pool(_Pool.STARTED), _i32(1), "monotonic")
    code.place(idle)
    _spin(code, spins, lambda: wanted("monotonic"), join)
    _libc(code, "pthread_mutex_lock", _pool(_Pool.MUTEX))
    _update(code, "add", _pool(_Pool.SLEEPERS), _i32(1), "seq_cst")
    _sleep(code, _Pool.WORK, lambda: wanted("seq_cst"))
    _update(code, "sub", _pool(_Pool.SLEEPERS), _i32(1), "monotonic")
    _libc(code, "pthread_mutex_unlock", _pool(_Pool.MUTEX))
    code.place(join)
    now = code.load("i64", state)
    take = code.label("take")
    code.branch(code.compare("uge", now, _i64(SEAT)), take, end)
    code.place(take)
    _, seated = _exchange(
        code, _pool(_Pool.STATE), now, code.op("sub", now, _i64(SEAT - 1)), "acquire monotonic"
    )
    code.branch(seated, sit, idle)
    code.place(sit)
    code.call_void("@run_job", [code.load("ptr", _pool(_Pool.JOB)), code.args[0]])
    before = _update(code, "sub", _pool(_Pool.STATE), _i64(1), "seq_cst")
    waiting = _read(code, "i32", _pool(_Pool.WAITING), "seq_cst")
    last = code.compare("eq", before, _i64(1))
    code.branch(code.op("and", last, code.compare("ne", waiting, _i32(0))), signal, idle)
    code.place(signal)
    _libc(code, "pthread_mutex_lock", _pool(_Pool.MUTEX))
    _libc(code, "pthread_cond_signal", _pool(_Pool.DONE))
    _libc(code, "pthread_mutex_unlock", _pool(_Pool.MUTEX))
    code.jump(idle)
    code.place(end)
    _update(code, "sub", _pool(_Pool.STARTED), _i32(1), "monotonic")
    code.ret()
    module.functions["tw_work"] = code.text


def _stop(module: Module) -> None:
    """`void tw_stop()`: workers leave when they have nothing to do."""
    code = _function(module, "tw_stop", "void", [])
    _libc(code, "pthread_mutex_lock", _pool(_Pool.MUTEX))
    _write(code, _i32(1), _pool(_Pool.QUIT), "seq_cst")
    _libc(code, "pthread_cond_broadcast", _pool(_Pool.WORK))
    _libc(code, "pthread_mutex_unlock", _pool(_Pool.MUTEX))
    code.ret()
    module.functions["tw_stop"] = code.text


def _reset(module: Module) -> None:
    """`void tw_reset(ptr start)`: a pool without workers: at first, and in the child of a fork.

    `void start()` is called by the first launch that could use workers.

    An arena that another thread was using at the fork is given up: its slot may be half written.
    """
    code = _function(module, "tw_reset", "void", ["ptr"])
    null = Value("ptr", "null")
    code.emit(f"store [{_Pool.SIZE} x i8] zeroinitializer, ptr @pool, align 64")
    code.store(code.args[0], _pool(_Pool.START))
    _libc(code, "pthread_mutex_init", _pool(_Pool.MUTEX), null)
    _libc(code, "pthread_cond_init", _pool(_Pool.WORK), null)
    _libc(code, "pthread_cond_init", _pool(_Pool.DONE), null)
    at = code.alloca("i64")
    code.store(_i64(0), at)
    look, drop, following, end = (code.label(x) for x in ("look", "drop", "next", "end"))
    code.place(look)
    index = code.load("i64", at)
    slot = code.gep(Value("ptr", "@arenas"), f"[{SLOT} x i8]", index)
    busy = _read(code, "i32", _field(code, slot, _Slot.BUSY), "acquire")
    code.branch(code.compare("ne", busy, _i32(0)), drop, following)
    code.place(drop)
    code.store(null, _field(code, slot, _Slot.MEMORY))
    code.store(_i64(0), _field(code, slot, _Slot.BYTES))
    _write(code, _i32(0), _field(code, slot, _Slot.BUSY), "release")
    code.place(following)
    after = code.op("add", index, _i64(1))
    code.store(after, at)
    code.branch(code.compare("eq", after, _i64(SLOTS)), end, look)
    code.place(end)
    code.ret()
    module.functions["tw_reset"] = code.text


# The pool in a process ----------------------------------------------------------------------------


def default_threads() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Workers:
    """The pool, loaded, with threads that start when a launch first has work for them.

    `code` is the object file of `module_text`; `threads` counts the caller of a launch, so there
    is one worker less; the default is one for each processor that the process may use. Keep the
    object as long as code that knows the address may run. The child of a fork has no workers, until
    a launch there has work for them.
    """

    def __init__(self, code: bytes, threads: int | None = None) -> None:
        self._count = default_threads() if threads is None else max(1, threads)
        self._library = llvm.Library(code)
        self._end = ctypes.CFUNCTYPE(None)(self._library.address("tw_stop"))
        self._reset = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._library.address("tw_reset"))
        itself = weakref.ref(self)  # so that the pool does not keep itself alive
        self._start = ctypes.CFUNCTYPE(None)(lambda: _start(itself()))
        self.after_fork()
        _POOLS.add(self)

    def threads(self) -> int:
        """How many threads may take part in a launch, the caller being one."""
        return self._count

    def launch_address(self) -> int:
        """The address of `tw_launch`."""
        return self._library.address("tw_launch")

    def start(self) -> None:
        """Start the workers that are missing; after `stop`, none."""
        with self._lock:
            if self._stopped:
                return
            for index in range(len(self._running) + 1, self._count):
                thread = threading.Thread(
                    target=_live,
                    args=(self._library, index),
                    name=f"tilelang-worker-{index}",
                    daemon=True,
                )
                try:
                    thread.start()
                except RuntimeError:  # the process may have no more: launches do with fewer
                    return
                self._running.append(thread)

    def stop(self) -> None:
        """End the workers; launches then run on their callers alone. A worker that does not end
        within a second, because its kernel does not, is left behind.
        """
        with self._lock:
            self._stopped = True
            self._end()
            end = time.monotonic() + 1
            for thread in self._running:
                thread.join(timeout=max(0, end - time.monotonic()))

    def after_fork(self) -> None:
        """A pool without workers: for a new one, and for the child of a fork."""
        self._running: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._stopped = False
        self._reset(ctypes.cast(self._start, ctypes.c_void_p))


def _start(pool: Workers | None) -> None:
    if pool is not None:
        pool.start()


def _live(library: llvm.Library, index: int) -> None:
    """What a worker's thread runs. It holds the library, whose code it is in."""
    ctypes.CFUNCTYPE(None, ctypes.c_int64)(library.address("tw_work"))(index)


_POOLS: weakref.WeakSet[Workers] = weakref.WeakSet()


def _fork() -> None:
    for pool in _POOLS:
        pool.after_fork()


@atexit.register
def _exit() -> None:
    """Workers leave native code before the interpreter is taken down."""
    for pool in _POOLS:
        pool.stop()


os.register_at_fork(after_in_child=_fork)


def compiled() -> bytes:
    """The object file of the pool."""
    return llvm.optimise(module_text()).object()
