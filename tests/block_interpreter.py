"""Runs programs of the thread stage with many threads per block: NumPy over threads, slow, simple.

The threads of a block run in lockstep under masks; where the arms of a condition wait for each
other they run by turns. Shared arrays lie in one pool of bytes at their planned places. Accesses of
two threads to one byte with no barrier of the block between them, one of them a write, are an
error, so a missing barrier is found although threads run in lockstep. Copies with `cp.async` arrive
only where they are waited for.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from block_rows import ROW_MEANINGS
from tilelang.dtypes import DType
from tilelang.dtypes.convert import cast as cast_values
from tilelang.dtypes.convert import converter
from tilelang.dtypes.storage import from_bits, to_bits
from tilelang.emulator import numerics
from tilelang.ir.expr import BinaryOp, UnaryOp
from tilelang.ir.thread import Slot, Space
from tilelang.ir.tile import If, LoopKind

MANY = 1 << 16


class Race(AssertionError):
    """Two threads use one byte, with no barrier between."""


class AssertionFailed(Exception):
    """An `Assert` that does not hold."""


def run_blocks(program: Any, args: dict[str, Any], *, races: bool = True) -> list[str]:
    """Run a program on NumPy arrays in place; the result is what it printed."""
    env: dict[str, Any] = {}
    host = _Host(races)
    for p in program.params:
        if p.var is not None:
            env[p.var.name] = np.asarray(args[p.name], p.var.type.numpy)
        elif p.array is not None and args[p.name] is not None:
            env[p.array.name] = Memory(_flat(args[p.name]), p.array.type, None)
    for v in program.dynamic:
        env[v.name] = np.asarray(args[v.name], v.type.numpy)
    with np.errstate(all="ignore"):
        host.block(program.body, env)
    return host.printed


def _flat(array: np.ndarray) -> np.ndarray:
    if array.flags.c_contiguous:
        return array.reshape(-1)
    span = (
        1
        + sum(s * (n - 1) for s, n in zip(array.strides, array.shape, strict=True))
        // array.itemsize
    )
    return np.lib.stride_tricks.as_strided(array, (span,), (array.itemsize,))


class Memory:
    """An array that several threads see: elements, and a shadow of who touched each byte."""

    def __init__(
        self, values: np.ndarray, dtype: DType, shadow: Shadow | None, start: int = 0
    ) -> None:
        self.values, self.dtype = values, dtype
        self.shadow, self.start = shadow, start


class Own:
    """An array that each thread has: (threads, size)."""

    def __init__(self, values: np.ndarray, dtype: DType) -> None:
        self.values, self.dtype = values, dtype


class Shadow:
    """Who wrote and read each byte since the last barrier of the block."""

    def __init__(self, size: int) -> None:
        self.wrote = np.full(size, -1)
        self.read = np.full(size, -1)

    def clear(self) -> None:
        self.wrote[:] = -1
        self.read[:] = -1

    def on_read(self, at: np.ndarray, who: np.ndarray, name: str) -> None:
        w = self.wrote[at]
        bad = (w != -1) & (w != who)
        if bad.any():
            k = np.argmax(bad)
            raise Race(f"{name}: thread {who[k]} reads byte {at[k]} that thread {w[k]} wrote")
        r = self.read[at]
        self.read[at] = np.where((r == -1) | (r == who), who, -2)
        # Several threads reading one byte in this statement.
        _, inverse = np.unique(at, return_inverse=True)
        low = np.full(inverse.max() + 1, np.iinfo(np.int64).max)
        high = np.full(inverse.max() + 1, -1)
        np.minimum.at(low, inverse, who)
        np.maximum.at(high, inverse, who)
        self.read[at[(low != high)[inverse]]] = -2

    def on_write(self, at: np.ndarray, who: np.ndarray, name: str, atomic: bool = False) -> None:
        w, r = self.wrote[at], self.read[at]
        mark = np.full(len(who), -3) if atomic else who
        bad = ((w != -1) & (w != mark) & (w != who)) | ((r != -1) & (r != who))
        if bad.any():
            k = np.argmax(bad)
            raise Race(
                f"{name}: thread {who[k]} writes byte {at[k]}; written by {w[k]}, read by {r[k]}"
            )
        self.wrote[at] = mark
        if not atomic and (self.wrote[at] != who).any():
            raise Race(f"{name}: two threads write one byte in one statement")


class _Host:
    def __init__(self, races: bool) -> None:
        self.races = races
        self.printed: list[str] = []

    def block(self, body: Any, env: dict[str, Any]) -> None:
        for stmt in body:
            self.statement(stmt, env)

    def statement(self, stmt: Any, env: dict[str, Any]) -> None:
        kind = type(stmt).__name__
        machine = Block(self, 1, env, {})
        if kind == "Kernel":
            self.kernel(stmt, env)
        elif kind == "For":
            for i in range(int(machine.one(stmt.start)), int(machine.one(stmt.stop))):
                env[stmt.var.name] = np.asarray(i, stmt.var.type.numpy)
                self.block(stmt.body, env)
        elif kind == "If":
            self.block(stmt.then if machine.one(stmt.cond) else stmt.orelse, env)
        elif kind == "Let":
            env[stmt.var.name] = machine.one(stmt.value)
        elif kind == "Declare":
            size = int(machine.one(stmt.array.size))
            storage = stmt.array.type.numpy
            raw = np.full(size * storage.itemsize, 0xFF, np.uint8)
            if stmt.array.type.is_bool or stmt.array.type.is_subbyte:
                raw[:] = 0
            env[stmt.array.name] = Memory(raw.view(storage), stmt.array.type, None)
        elif kind == "Assert":
            if not machine.one(stmt.cond):
                raise AssertionFailed(stmt.message)
        elif kind == "MakeTensorMap":
            m = stmt.map
            env[m.name] = (
                m,
                [int(machine.one(d)) for d in m.dims],
                [int(machine.one(s)) for s in m.strides],
                env[m.array.name],
            )
        elif kind == "Print":
            self.printed.append(stmt.message)
        else:
            assert kind == "Assume", kind

    def kernel(self, stmt: Any, env: dict[str, Any]) -> None:
        machine = Block(self, 1, env, {})
        grid = [range(int(machine.one(e))) for e in stmt.grid]
        cluster = (*stmt.cluster, 1, 1, 1)
        together = dict(stmt.attrs).get("cooperative", False)
        groups: dict[Any, list[Block]] = {}
        clusters: dict[Any, list[Block]] = {}
        for at in itertools.product(*reversed(grid)):
            where = tuple(i // n for i, n in zip(reversed(at), cluster, strict=False))
            block = self.made(stmt, env, at)
            block.peers = clusters.setdefault(where, [])
            block.rank = len(block.peers)
            block.peers.append(block)
            groups.setdefault(None if together else where, []).append(block)
        for blocks in groups.values():
            for block in blocks:
                block.launch = blocks
            _run_together(blocks, stmt.body)

    def made(self, stmt: Any, env: dict[str, Any], at: tuple[int, ...]) -> Block:
        """One block, before it runs."""
        count = math.prod(stmt.block)
        outside = {p.name: env[p.name] for p in stmt.params if p.name in env}
        inside = dict(outside)
        for v, i in zip(stmt.vars, reversed(at), strict=True):
            inside[v.name] = np.asarray(i, v.type.numpy)
        flat = np.arange(count)
        for v, n in zip(stmt.thread_vars, stmt.block, strict=False):
            inside[v.name] = (flat % n).astype(v.type.numpy)
            flat = flat // n
        block = Block(self, count, inside, {})
        block.pool = np.full(stmt.shared, 0xFF, np.uint8)
        block.pool_shadow = Shadow(stmt.shared)
        block.unfenced = np.zeros(stmt.shared, bool)
        block.wrote = np.full(stmt.shared, -1)
        for name, m in outside.items():
            if isinstance(m, Memory):
                inside[name] = Memory(m.values, m.dtype, Shadow(m.values.nbytes))
        block.shadows = [m.shadow for m in inside.values() if isinstance(m, Memory)]
        block.shadows.append(block.pool_shadow)
        return block


def _run_together(blocks: list[Block], body: Any) -> None:
    """Blocks that may wait for each other, by turns."""
    running = [(b, b.exec(body, np.ones(b.count, bool))) for b in blocks]
    while running:
        before, left = sum(b.progress for b in blocks), []
        for block, steps in running:
            if next(steps, steps) is steps:
                block.finish()
            else:
                left.append((block, steps))
        stuck = len(left) == len(running) and sum(b.progress for b in blocks) == before
        assert not stuck, "a block waits for what nobody does"
        running = left


class Frame:
    """A loop: the threads that have left its round, and the loop."""

    def __init__(self, count: int) -> None:
        self.broken = np.zeros(count, bool)
        self.continued = np.zeros(count, bool)


class Block:
    """One block of threads."""

    def __init__(
        self, host: _Host, count: int, env: dict[str, Any], unused: dict[str, Any]
    ) -> None:
        self.host, self.count, self.env = host, count, env
        self.returned = np.zeros(count, bool)
        self.frames: list[Frame] = []
        self.pool = np.zeros(0, np.uint8)
        self.pool_shadow = Shadow(0)
        # Bytes that threads wrote and no fence has ordered for the units of the chip; by whom.
        self.unfenced = np.zeros(0, bool)
        self.wrote = np.zeros(0, np.int64)
        self.shadows: list[Any] = []
        self.threads = np.arange(count)
        self.groups: list[list[Any]] = [[] for _ in range(count)]
        self.waiting: dict[int, np.ndarray] = {}
        self.state: dict[str, Any] = {}
        self.progress = 0
        # The blocks of the cluster by rank, the place in it, and the blocks that run meanwhile.
        self.peers: list[Block] = [self]
        self.rank = 0
        self.launch: list[Block] = [self]

    def one(self, e: Any) -> Any:
        """The value of an expression at host level."""
        found = np.asarray(self.eval(e, np.ones(self.count, bool)))
        return found.reshape(-1)[0]

    def finish(self) -> None:
        """What must hold when the block has ended."""
        left = [k for k in self.state if isinstance(k, tuple) and k[0] == "bulk" and self.state[k]]
        assert not left, "a store is in no group"
        for key in [k for k in self.state if isinstance(k, tuple) and k[0] == "bulk groups"]:
            assert not self.state[key], "a block ends before its tiles have been read"

    # Statements ----------------------------------------------------------------------------------

    def exec(self, body: Any, mask: np.ndarray) -> Iterator[None]:
        """Runs statements by the threads of the mask; yields where they wait. The threads that go
        on afterwards are left in `self.last`.
        """
        for stmt in body:
            if not mask.any():
                break
            handler = getattr(self, "do_" + type(stmt).__name__)
            result = handler(stmt, mask)
            if result is not None and hasattr(result, "__next__"):
                yield from result
                mask = self.last
            elif result is not None:
                mask = result
        self.last = mask

    def set(self, name: str, value: Any, mask: np.ndarray, dtype: DType) -> None:
        value = self.spread(value, dtype)
        old = self.env.get(name)
        if isinstance(old, np.ndarray) and old.shape == value.shape and not mask.all():
            value = np.where(mask if value.ndim == 1 else mask[:, None], value, old)
        self.env[name] = value

    def spread(self, value: Any, dtype: DType) -> np.ndarray:
        value = np.asarray(value)
        if dtype.lanes > 1:
            return np.broadcast_to(value, (self.count, dtype.lanes))
        return np.broadcast_to(value, (self.count,))

    def do_Let(self, stmt: Any, mask: np.ndarray) -> None:
        self.set(stmt.var.name, self.eval(stmt.value, mask), mask, stmt.var.type)

    def do_If(self, stmt: Any, mask: np.ndarray) -> Iterator[None]:
        cond = self.spread(self.eval(stmt.cond, mask), DType("bool")).astype(bool)
        yes, no = mask & cond, mask & ~cond
        if yes.any() and no.any() and stmt.orelse and _waits(stmt):
            yield from self.by_turns([(stmt.then, yes), (stmt.orelse, no)])
            return
        out = np.zeros(self.count, bool)
        if yes.any():
            yield from self.exec(stmt.then, yes)
            out |= self.last
        if no.any():
            yield from self.exec(stmt.orelse, no)
            out |= self.last
        self.last = out

    def by_turns(self, arms: list[tuple[Any, np.ndarray]]) -> Iterator[None]:
        """Arms that run at the same time."""
        running = [[self.exec(body, mask), None, list(self.frames)] for body, mask in arms]
        out = np.zeros(self.count, bool)
        frames = self.frames
        while running:
            before = sum(b.progress for b in self.launch)
            moved = False
            for arm in list(running):
                self.frames = arm[2]
                try:
                    next(arm[0])
                except StopIteration:
                    out |= self.last
                    running.remove(arm)
                    moved = True
                arm[2] = self.frames
            if running and not moved and sum(b.progress for b in self.launch) == before:
                self.frames = frames
                yield
        self.frames = frames
        self.last = out

    def do_For(self, stmt: Any, mask: np.ndarray) -> Iterator[None]:
        dtype = stmt.var.type.numpy
        start = self.spread(self.eval(stmt.start, mask), stmt.var.type)
        stop = self.spread(self.eval(stmt.stop, mask), stmt.var.type)
        step = 1 if stmt.step is None else self.spread(self.eval(stmt.step, mask), stmt.var.type)
        frame, at = Frame(self.count), start.astype(np.int64)
        going = mask.copy()
        while True:
            going = going & np.where(np.asarray(step) > 0, at < stop, at > stop)
            if not going.any():
                break
            self.frames = [*self.frames, frame]
            frame.continued[:] = False
            self.set(stmt.var.name, at.astype(dtype), going, stmt.var.type)
            yield from self.exec(stmt.body, going)
            self.frames = self.frames[:-1]
            going = self.last | frame.continued
            at = at + step
        self.last = mask & ~self.returned

    def do_While(self, stmt: Any, mask: np.ndarray) -> Iterator[None]:
        frame, going = Frame(self.count), mask.copy()
        rounds = 0
        while True:
            going = going & self.spread(self.eval(stmt.cond, going), DType("bool"))
            if not going.any():
                break
            rounds += 1
            assert rounds < 100_000, "a loop without end"
            self.frames = [*self.frames, frame]
            frame.continued[:] = False
            yield from self.exec(stmt.body, going)
            self.frames = self.frames[:-1]
            going = self.last | frame.continued
        self.last = mask & ~self.returned

    def do_Break(self, stmt: Any, mask: np.ndarray) -> np.ndarray:
        return mask & False

    def do_Continue(self, stmt: Any, mask: np.ndarray) -> np.ndarray:
        self.frames[-1].continued |= mask
        return mask & False

    def do_ThreadReturn(self, stmt: Any, mask: np.ndarray) -> np.ndarray:
        self.returned |= mask
        return mask & False

    def do_Assert(self, stmt: Any, mask: np.ndarray) -> None:
        if not self.spread(self.eval(stmt.cond, mask), DType("bool"))[mask].all():
            raise AssertionFailed(stmt.message)

    def do_Assume(self, stmt: Any, mask: np.ndarray) -> None:
        assert self.spread(self.eval(stmt.cond, mask), DType("bool"))[mask].all(), (
            "a false assumption"
        )

    def do_Print(self, stmt: Any, mask: np.ndarray) -> None:
        value = None if stmt.value is None else self.eval(stmt.value, mask)
        for t in self.threads[mask]:
            shown = None if value is None else np.broadcast_to(value, (self.count,))[t]
            self.host.printed.append(f"{stmt.message}: {shown}")

    def do_Declare(self, stmt: Any, mask: np.ndarray) -> None:
        array = stmt.array
        size = int(self.one(array.size))
        storage = array.type.numpy
        if array.space is Space.SHARED:
            start = stmt.offset
            raw = self.pool[start : start + size * storage.itemsize]
            self.env[array.name] = Memory(raw.view(storage), array.type, self.pool_shadow, start)
            return
        raw = np.full(self.count * size * storage.itemsize, 0xFF, np.uint8)
        if array.type.is_bool or array.type.is_subbyte:
            raw[:] = 0
        values = raw.view(storage).reshape(self.count, size)
        old = self.env.get(array.name)
        if isinstance(old, Own) and not mask.all():
            values[~mask] = old.values[~mask]
        self.env[array.name] = Own(values, array.type)
        if stmt.init is not None:
            value = self.spread(self.eval(stmt.init, mask), array.type)
            self.env[array.name].values[mask, 0] = value[mask]

    def do_Write(self, stmt: Any, mask: np.ndarray) -> None:
        dtype = stmt.value.dtype
        value = self.spread(self.eval(stmt.value, mask), dtype)
        index = self.spread(self.eval(stmt.index, mask), DType("int64")).astype(np.int64)
        self.write(stmt.array.name, index, value.reshape(self.count, dtype.lanes), mask)

    def write(
        self,
        name: str,
        index: np.ndarray,
        value: np.ndarray,
        mask: np.ndarray,
        atomic: bool = False,
    ) -> None:
        """Each thread of the mask writes neighbouring elements."""
        if not mask.any():
            return
        memory = self.env[name]
        at = index[mask][:, None] + np.arange(value.shape[1])
        size = memory.values.shape[-1]
        assert (at >= 0).all() and (at < size).all(), f"{name}[{at.min()}..{at.max()}] of {size}"
        if isinstance(memory, Own):
            memory.values[self.threads[mask][:, None], at] = value[mask]
            return
        self.touch(memory, at, mask, name, True, atomic)
        memory.values[at] = value[mask]
        if memory.shadow is self.pool_shadow:
            item = memory.values.itemsize
            places = memory.start + at.reshape(-1)[:, None] * item + np.arange(item)
            self.unfenced[places] = True
            self.wrote[places] = np.repeat(self.threads[mask], at.shape[1])[:, None]

    def read(self, name: str, index: np.ndarray, lanes: int, mask: np.ndarray) -> np.ndarray:
        """Neighbouring elements for each thread; those outside the mask get anything."""
        memory = self.env[name]
        size = memory.values.shape[-1]
        at = np.broadcast_to(index, (self.count,)).astype(np.int64)[:, None] + np.arange(lanes)
        inside = at[mask]
        assert (inside >= 0).all() and (inside < size).all(), (
            f"{name}[{inside.min()}..{inside.max()}] of {size}"
        )
        if size == 0:
            return np.zeros((self.count, lanes), memory.values.dtype)
        safe = np.clip(at, 0, size - 1)
        if isinstance(memory, Own):
            return memory.values[self.threads[:, None], safe]
        self.touch(memory, inside, mask, name, False, False)
        return memory.values[safe]

    def touch(
        self,
        memory: Memory,
        at: np.ndarray,
        mask: np.ndarray,
        name: str,
        writes: bool,
        atomic: bool,
    ) -> None:
        """Note who touches which bytes."""
        if memory.shadow is None or not self.host.races or not mask.any():
            return
        item = memory.values.itemsize
        who = np.repeat(self.threads[mask], at.shape[1] * item)
        places = (memory.start + at.reshape(-1)[:, None] * item + np.arange(item)).reshape(-1)
        if writes:
            memory.shadow.on_write(places, who, name, atomic)
        else:
            memory.shadow.on_read(places, who, name)

    def barrier(self) -> None:
        """Everything before is known to everything after."""
        for s in self.shadows:
            if s is not None:
                s.clear()

    def do_Instr(self, stmt: Any, mask: np.ndarray) -> Any:
        meaning = ROW_MEANINGS.get(stmt.row)
        if meaning is None:
            stem = next(
                (k for k in ROW_MEANINGS if k.endswith("*") and stmt.row.startswith(k[:-1])), None
            )
            assert stem is not None, f"no meaning for {stmt.row}"
            meaning = ROW_MEANINGS[stem]
        return meaning(self, stmt, mask)

    def do_At(self, stmt: Any, mask: np.ndarray) -> None:
        target, index = self.address(stmt.address, mask)
        memory = self.env[target]
        first = int(np.broadcast_to(index, (self.count,))[mask][0])
        storage = stmt.array.type.numpy
        raw = memory.values.reshape(-1).view(np.uint8)[first * memory.values.itemsize :]
        size = None if stmt.array.size is None else int(self.one(stmt.array.size))
        count = raw.size // storage.itemsize if size is None else size
        view = raw[: count * storage.itemsize].view(storage)
        start = memory.start + first * memory.values.itemsize
        self.env[stmt.array.name] = Memory(view, stmt.array.type, memory.shadow, start)

    def address(self, e: Any, mask: np.ndarray) -> tuple[str, Any]:
        """The array and index that an address names; a number names a place in a block of the
        cluster.
        """
        if type(e).__name__ != "Addr":
            number = int(np.broadcast_to(self.eval(e, mask), (self.count,))[mask][0])
            peer = self.peers[(number >> 32) - 1]
            self.env["a peer"] = Memory(peer.pool, DType("uint8"), None)
            return "a peer", np.asarray(number & 0xFFFFFFFF)
        return e.array.name, self.eval(e.index, mask)

    # Expressions ---------------------------------------------------------------------------------

    def eval(self, e: Any, mask: np.ndarray) -> Any:
        return getattr(self, "of_" + type(e).__name__)(e, mask)

    def of_Const(self, e: Any, mask: np.ndarray) -> Any:
        return np.asarray(e.value).astype(e.type.base.numpy)

    def of_Var(self, e: Any, mask: np.ndarray) -> Any:
        return self.env[e.name]

    def of_Binary(self, e: Any, mask: np.ndarray) -> Any:
        return binary(e.op, self.eval(e.a, mask), self.eval(e.b, mask), e.a.dtype)

    def of_Unary(self, e: Any, mask: np.ndarray) -> Any:
        a = self.eval(e.a, mask)
        if e.op is UnaryOp.NOT or e.a.dtype.is_bool:
            return np.logical_not(a)
        return (-a if e.op is UnaryOp.NEG else ~a).astype(e.a.dtype.base.numpy)

    def of_Cast(self, e: Any, mask: np.ndarray) -> Any:
        values = np.asarray(self.eval(e.a, mask), e.a.dtype.base.numpy)
        if e.rounding == "rs":
            bits = np.asarray(self.eval(e.rbits, mask), np.uint32)
            return cast_values(values, e.a.dtype.base, e.type.base, "rs", e.saturate, bits)
        return converter(e.a.dtype.base, e.type.base, e.rounding, e.saturate)(values)

    def of_Bitcast(self, e: Any, mask: np.ndarray) -> Any:
        src, dst = e.a.dtype, e.type
        a = np.asarray(self.eval(e.a, mask), src.base.numpy)
        if src.lanes == 1 and dst.lanes == 1:
            width = next(w for w in (8, 16, 32, 64) if w >= dst.bits)
            return from_bits(to_bits(a, src).astype(f"u{width // 8}"), dst)
        a = np.ascontiguousarray(self.spread(a, src).reshape(self.count, src.lanes))
        out = a.view(dst.base.numpy)
        return out if dst.lanes > 1 else out[:, 0]

    def of_Pack(self, e: Any, mask: np.ndarray) -> Any:
        parts = [self.spread(self.eval(x, mask), x.dtype) for x in e.lanes]
        parts = parts * (e.type.lanes // len(parts))
        return np.stack(parts, axis=1)

    def of_Lane(self, e: Any, mask: np.ndarray) -> Any:
        return self.spread(self.eval(e.a, mask), e.a.dtype)[:, e.lane]

    def of_Addr(self, e: Any, mask: np.ndarray) -> Any:
        memory = self.env[e.array.name]
        index = np.asarray(self.eval(e.index, mask)).astype(np.int64)
        start = memory.start if isinstance(memory, Memory) else 0
        return (start + index * memory.values.itemsize).astype(
            np.uint32 if e.type.name == "uint32" else np.uint64
        )

    def of_Elem(self, e: Any, mask: np.ndarray) -> Any:
        index = self.spread(self.eval(e.index, mask), DType("int64"))
        found = self.read(e.array.name, index, e.type.lanes, mask)
        return found if e.type.lanes > 1 else found[:, 0]

    def of_Select(self, e: Any, mask: np.ndarray) -> Any:
        cond = self.spread(self.eval(e.cond, mask), DType("bool")).astype(bool)
        yes, no = (mask & cond, mask & ~cond) if e.lazy else (mask, mask)
        t, f = (
            self.spread(self.eval(e.t, yes), e.type if hasattr(e, "type") else e.dtype),
            self.spread(self.eval(e.f, no), e.dtype),
        )
        return np.where(cond if e.dtype.lanes == 1 else cond[:, None], t, f)

    def of_Call(self, e: Any, mask: np.ndarray) -> Any:
        source = (e.args[0].dtype if e.args else e.type).base
        args = [np.asarray(self.eval(a, mask), a.dtype.base.numpy) for a in e.args]
        assert source.name not in ("float16", "bfloat16"), "narrow arithmetic"
        fn = numerics.function(e.fn, source, e.params)
        return np.asarray(fn(*args)).astype(e.type.base.numpy)

    def slot(self, s: Slot, mask: np.ndarray) -> np.ndarray:
        """The first index of an operand, for each thread."""
        return np.array(self.spread(self.eval(s.index, mask), DType("int64")), np.int64)


def _waits(stmt: If) -> bool:
    return any(
        type(n).__name__ == "Instr" and n.row.startswith(("barrier", "mbarrier.try", "setmaxnreg"))
        for n in stmt.walk()
    )


def _truncated(a: Any, b: Any) -> Any:
    q = np.abs(a) // np.where(b == 0, 1, np.abs(b))
    return np.where(b == 0, 0, np.where((a < 0) == (b < 0), q, -q))


_SIMPLE = {
    BinaryOp.ADD: np.add,
    BinaryOp.SUB: np.subtract,
    BinaryOp.MUL: np.multiply,
    BinaryOp.DIV: np.divide,
    BinaryOp.FLOORDIV: lambda a, b: np.where(b == 0, 0, np.floor_divide(a, np.where(b == 0, 1, b))),
    BinaryOp.FLOORMOD: lambda a, b: np.where(b == 0, 0, np.mod(a, np.where(b == 0, 1, b))),
    BinaryOp.TRUNCDIV: _truncated,
    BinaryOp.TRUNCMOD: lambda a, b: a - b * _truncated(a, b),
    BinaryOp.MIN: np.minimum,
    BinaryOp.MAX: np.maximum,
    BinaryOp.BITAND: np.bitwise_and,
    BinaryOp.BITOR: np.bitwise_or,
    BinaryOp.BITXOR: np.bitwise_xor,
    BinaryOp.EQ: np.equal,
    BinaryOp.NE: np.not_equal,
    BinaryOp.LT: np.less,
    BinaryOp.LE: np.less_equal,
    BinaryOp.GT: np.greater,
    BinaryOp.GE: np.greater_equal,
    BinaryOp.AND: np.logical_and,
    BinaryOp.OR: np.logical_or,
}
_FLOAT = {
    BinaryOp.FLOORDIV: np.floor_divide,
    BinaryOp.FLOORMOD: np.remainder,
    BinaryOp.TRUNCDIV: numerics.TEXT_NAMES["float_truncdiv"],
    BinaryOp.TRUNCMOD: np.fmod,
    BinaryOp.MIN: np.fmin,
    BinaryOp.MAX: np.fmax,
}


def binary(op: BinaryOp, a: Any, b: Any, dtype: DType) -> Any:
    """An operator on values of one type, one for each thread."""
    if op.is_compare or op.is_logical:
        return _SIMPLE[op](a, b)
    if dtype.is_bool:
        table = {BinaryOp.MIN: np.logical_and, BinaryOp.MAX: np.logical_or}
        return table.get(op, _SIMPLE[op])(a, b)
    storage = dtype.base.numpy
    if dtype.is_float:
        assert dtype.base.name in ("float32", "float64"), f"arithmetic on {dtype}"
        return np.asarray(_FLOAT.get(op, _SIMPLE.get(op))(a, b)).astype(storage)  # type: ignore[misc]
    if op in (BinaryOp.SHL, BinaryOp.SHR):
        bits = dtype.base.bits
        inside = (np.asarray(b) >= 0) & (np.asarray(b) < bits)
        by = np.where(inside, b, 0).astype(storage)
        shifted = np.left_shift(a, by) if op is BinaryOp.SHL else np.right_shift(a, by)
        sign = np.where(np.asarray(a) < 0, -1, 0) if op is BinaryOp.SHR and not dtype.is_uint else 0
        return np.where(inside, shifted, sign).astype(storage)
    return np.asarray(_SIMPLE[op](a, b)).astype(storage)


__all__ = ["Block", "LoopKind", "Memory", "Own", "Race", "Space", "run_blocks"]
