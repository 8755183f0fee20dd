"""Parts of a mainline Ascend kernel: which core runs them, functions of the vector core, and hints
to a scheduler.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, cast

from tilelang.errors import TileTypeError, TileValueError
from tilelang.ir import ascend
from tilelang.ir.ascend import Core, VectorKind
from tilelang.ir.build import LaunchState
from tilelang.ir.expr import Var
from tilelang.language.arguments import known, launch_of, launched, refuse
from tilelang.language.ascend import VECTOR_CORES
from tilelang.language.buffers import BufferRef, RegionRef, here
from tilelang.language.values import Value, describe

MOST_THREADS = 2048
"""Threads of a SIMT function (CANN SIMT programming guide, `__launch_bounds__`)."""


class CoreFrame:
    """`with T.Cube():` or `with T.Vector() as sid:` - the body runs on this kind of core only."""

    def __init__(self, core: Core, subs: int) -> None:
        self._builder = launched(f"T.{core.name.title()}")
        if "core" in self._builder.loops:
            raise refuse(
                "syntax",
                f"T.{core.name.title()} inside T.Cube or T.Vector",
                help="end the first region before the second",
            )
        self._core, self._subs, self._loc = core, subs, here()
        self._sub: Var | None = None
        self._before = launch_of(f"T.{core.name.title()}")

    def __enter__(self) -> Value | None:
        self._builder.loops.append("core")
        if self._core is Core.VECTOR:
            self._sub = self._builder.fresh_var(self._builder.name_hint("sid"))
        self._builder.open()
        if self._sub is None:
            return None
        self._builder.define(self._sub)
        self._builder.launch = replace(self._before, sub=self._sub)
        return Value(self._sub)

    def __exit__(self, exc_type: object, *_: object) -> None:
        if exc_type is not None:
            return  # the trace is lost
        self._builder.launch = self._before
        self._builder.loops.pop()
        body = self._builder.close()
        self._builder.emit(
            ascend.CoreRegion(self._core, body, sub=self._sub, subs=self._subs, loc=self._loc)
        )


def Cube() -> CoreFrame:
    """The body runs on the cube core (AIC)."""
    return CoreFrame(Core.CUBE, VECTOR_CORES)


def Vector(vector: int = VECTOR_CORES) -> CoreFrame:
    """The body runs on the vector cores (AIV); gives the number of the core in its group.

    With `vector=1` the second one passes by.
    """
    return CoreFrame(Core.VECTOR, known(vector, "the cores of T.Vector", 1, VECTOR_CORES))


class VectorFunctionFrame:
    """`with T.SimtVF(threads=128):` or `with T.SimdVF():` - the body is a function of the vector
    core.
    """

    def __init__(self, kind: VectorKind, threads: tuple[int, ...], latency: Any) -> None:
        self._name = f"T.{kind.value.title()}VF"
        self._builder = launched(self._name)
        if {"simt", "simd"} & set(self._builder.loops):
            raise refuse(
                "syntax",
                f"{self._name} inside a vector function",
                help="a vector function calls no other: put one after the other",
            )
        self._kind, self._threads, self._loc = kind, threads, here()
        self._latency = known(latency, f"the latency of {self._name}", 0, 1 << 31)
        self._before: LaunchState | None = None

    def __enter__(self) -> VectorFunctionFrame:
        b = self._builder
        self._before = launch_of(self._name)
        b.loops.append(self._kind.value)
        b.open()
        if self._kind is VectorKind.SIMT:
            axes = tuple(b.fresh_var(name) for name in ("tx", "ty", "tz"))
            b.define(*axes)
            # The threads that T.get_thread_binding means are those of the innermost function.
            core = self._before.vector_core
            b.launch = replace(self._before, thread_vars=axes, threads=self._threads, sub=core)
        return self

    def __exit__(self, exc_type: object, *_: object) -> None:
        if exc_type is not None:
            return  # the trace is lost
        b, inner = self._builder, self._builder.launch
        b.launch = self._before
        b.loops.pop()
        body = b.close()
        axes = inner.thread_vars if inner and self._kind is VectorKind.SIMT else ()
        b.emit(
            ascend.VectorFunction(
                self._kind,
                body,
                threads=self._threads,
                thread_vars=axes,
                latency=self._latency,
                loc=self._loc,
            )
        )


def SimtVF(threads: Any = 128, latency: int = 0) -> VectorFunctionFrame:
    """A function of `threads` threads (one to three extents): T.Parallel, fragments, reductions.

    `latency` (cycles) is a hint. TypeError or ValueError for other threads.
    """
    if isinstance(threads, bool) or not isinstance(threads, (int, list, tuple)):
        raise refuse(
            "value",
            f"the threads of T.SimtVF are {describe(threads)}",
            cls=TileTypeError,
            expected="an integer, or up to three of them",
        )
    items = [threads] if isinstance(threads, int) else list(cast("Sequence[Any]", threads))
    if not 1 <= len(items) <= 3:
        raise refuse(
            "value",
            f"T.SimtVF with {len(items)} thread extents",
            cls=TileValueError,
            expected="1 to 3",
        )
    counts = tuple(known(x, "a thread extent of T.SimtVF", 1, MOST_THREADS) for x in items)
    return VectorFunctionFrame(VectorKind.SIMT, (*counts, *[1] * (3 - len(counts))), latency)


def SimdVF(latency: int = 0) -> VectorFunctionFrame:
    """A function on vector registers: `T.simd`, and T.Parallel loops of plain arithmetic."""
    return VectorFunctionFrame(VectorKind.SIMD, (), latency)


# Hints: they say how a schedule may be made, and never change what is computed --------------------


def _cycles(value: Any, what: str, least: int) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise refuse(
            "value", what, cls=TileValueError, expected=f"an integer >= {least}", got=repr(value)
        )
    return value


def Task(latency: int | None = None, ii: int | None = None) -> AbstractContextManager[None]:
    """The statements inside are scheduled together; `latency` and `ii` are cycles. A hint."""
    launched("T.Task")
    whole = _cycles(latency, "the latency of T.Task", 0)
    interval = _cycles(ii, "the ii of T.Task", 1)
    if whole is not None and interval is not None and whole < interval:
        raise refuse(
            "value",
            "the latency of T.Task is less than its ii",
            cls=TileValueError,
            expected=f">= {interval}",
            got=str(whole),
        )
    return nullcontext()


def Stage(stage: Any) -> AbstractContextManager[None]:
    """The stage of a software pipeline that the statements inside belong to. A hint."""
    launched("T.Stage")
    if isinstance(stage, bool) or not isinstance(stage, int) or stage < 0:
        raise refuse(
            "value", "T.Stage", cls=TileValueError, expected="an integer >= 0", got=repr(stage)
        )
    return nullcontext()


def PerCoreTask() -> AbstractContextManager[None]:
    """One task of which each core runs one of several guarded parts. A hint."""
    launched("T.PerCoreTask")
    return nullcontext()


def _conflict(name: str, a: Any, b: Any, level: Any, cross: Any, group: Any) -> None:
    launched(name)
    for x in (a, a if b is None else b):
        if not isinstance(x, (BufferRef, RegionRef, Value)):
            raise refuse(
                "dtype", f"an operand of {name}", expected="a buffer or slice", got=describe(x)
            )
    if cross not in (None, True, False):
        raise refuse("value", f"cross of {name}", cls=TileValueError, expected="None or a bool")
    fits = isinstance(level, int) and not isinstance(level, bool) and level >= -1
    if level is not None and not fits:
        raise refuse("value", f"level of {name}", cls=TileValueError, expected="None, -1, 0, ...")
    if group is not None and b is not None:
        raise refuse(
            "value", f"{name} with `group` and `b`", cls=TileValueError, help="leave one out"
        )


def assume_no_conflict(
    a: Any, b: Any = None, *, level: Any = None, cross: Any = None, group: Any = None
) -> None:
    """Say that two regions do not overlap. A hint: order is kept wherever they might."""
    _conflict("T.assume_no_conflict", a, b, level, cross, group)


def assume_conflict(
    a: Any, b: Any = None, *, level: Any = None, cross: Any = None, group: Any = None
) -> None:
    """Say that two regions count as overlapping. A hint: program order is kept between all
    accesses of one storage.
    """
    _conflict("T.assume_conflict", a, b, level, cross, group)


_VERSION_MODES = ("auto", "iteration", "counter")


def annotate_buffer_versions(buffer_versions_map: Any) -> None:
    """`{buffer: n}`, `{buffer: (n, mode)}` or `{buffer: mode}`: how many versions of a buffer a
    pipelined loop keeps; `mode` is auto, iteration or counter, and never changes a result.
    """
    name = "T.annotate_buffer_versions"
    builder = launched(name)
    counts: dict[Any, int] = {}
    for buffer, given in _entries(buffer_versions_map, name):
        parts = cast("tuple[Any, ...]", given) if isinstance(given, tuple) else (given,)
        mode = parts[-1] if isinstance(parts[-1], str) else "auto"
        numbers = [p for p in parts if not isinstance(p, str)]
        if mode not in _VERSION_MODES or len(numbers) > 1 or not 1 <= len(parts) <= 2:
            raise refuse(
                "value",
                f"the versions of {buffer.name}",
                cls=TileValueError,
                expected=f"a count, one of {', '.join(_VERSION_MODES)}, or both",
                got=describe(given),
            )
        if numbers:
            counts[buffer.buffer] = known(numbers[0], f"the versions of {buffer.name}", 1, 64)
    if counts:
        builder.annotate("buffer_versions", buffers=tuple(counts), values=tuple(counts.values()))


def _entries(given: Any, name: str) -> list[tuple[BufferRef, Any]]:
    """The entries of a dictionary from buffers."""
    entries = cast("dict[Any, Any]", given) if isinstance(given, dict) else None
    if entries is None or not all(isinstance(key, BufferRef) for key in entries):
        raise refuse("option", name, expected="a dictionary from buffers", got=describe(given))
    return list(entries.items())


def annotate_manual_multi_buffer(*items: Any) -> None:
    """Say that the author indexes the versions of these buffers: `buffer`, or `{buffer: n}`.

    A hint: order is kept wherever two versions might be one.
    """
    name = "T.annotate_manual_multi_buffer"
    launched(name)
    for item in items:
        if isinstance(item, BufferRef):
            continue
        for buffer, count in _entries(item, name):
            known(count, f"the versions of {buffer.name}", 1, 64)


_POOLS = ("shared", "shared.l1", "shared.l0c", "shared.l0a", "shared.l0b")


def annotate_unlimit_memory(*scopes: str) -> None:
    """Let the scheduler plan versions as if these scopes had no end. A hint: what does not fit is
    refused all the same.
    """
    launched("T.annotate_unlimit_memory")
    for scope in scopes:
        if scope not in _POOLS:
            raise refuse(
                "value",
                "a scope of T.annotate_unlimit_memory",
                cls=TileValueError,
                expected=" or ".join(map(repr, _POOLS)),
                got=repr(scope),
            )
