"""Warp specialisation: code for some warp groups only, and wishes about registers and schedules.

A warp group is 128 threads. Only `T.ws` changes what runs; everything else is kept as an annotation
and never changes a result.
"""

from __future__ import annotations

import enum
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

from tilelang.errors import TileValueError, error
from tilelang.ir import sync
from tilelang.ir.expr import Buffer
from tilelang.language.arguments import known, launched, refuse
from tilelang.language.buffers import BufferRef, here
from tilelang.language.launch import get_thread_extents
from tilelang.language.values import describe

GROUP = sync.GROUP


class WarpSpecializeFrame:
    """`with T.ws(0, 1):` - the body runs in these warp groups only."""

    def __init__(self, groups: tuple[int, ...]) -> None:
        self._builder = launched("T.ws")
        self._groups = groups
        self._loc = here()

    def __enter__(self) -> None:
        self._builder.loops.append("ws")
        self._builder.open()

    def __exit__(self, exc_type: object, *_: object) -> None:
        if exc_type is not None:
            return  # the trace is lost
        self._builder.loops.pop()
        body = self._builder.close()
        self._builder.emit(sync.WarpSpecialize(self._groups, body, loc=self._loc))


def WarpSpecialize(*warp_group_idx: Any) -> WarpSpecializeFrame:
    """Run the body in the warp groups listed, at the same time as the arms that follow directly.

    Group g is threads 128 g to 128 g + 127 of the block. ValueError without a group, for one that
    the block does not have, or where T.Kernel has no `threads=`.
    """
    launched("T.ws")
    x, y, z = get_thread_extents()
    count = -(-x * y * z // GROUP)
    groups = tuple(known(g, "a warp group of T.ws", 0, count - 1) for g in warp_group_idx)
    if not groups or len(set(groups)) != len(groups):
        raise refuse(
            "value",
            f"the warp groups of T.ws are {groups}",
            cls=TileValueError,
            expected="one or more different groups",
            got=str(groups),
        )
    return WarpSpecializeFrame(groups)


ws = WarpSpecialize


# -- registers -------------------------------------------------------------------------------------


def _registers(name: str, word: str, reg_count: Any = None) -> None:
    builder = launched(name)
    values: tuple[Any, ...] = (word,)
    if reg_count is not None:
        count = known(reg_count, f"the registers of {name}", 24, 256, multiple=8)
        values = (word, count)
    builder.annotate("registers", values=values)


def set_max_nreg(reg_count: Any, is_inc: Any) -> None:
    """Wish for `reg_count` registers per thread (24 to 256, a multiple of 8) from here on.

    More with `is_inc`, fewer without (PTX `setmaxnreg`).
    """
    _registers("T.set_max_nreg", "inc" if is_inc else "dec", reg_count)


def inc_max_nreg(reg_count: Any) -> None:
    """`set_max_nreg(reg_count, True)`."""
    _registers("T.inc_max_nreg", "inc", reg_count)


def dec_max_nreg(reg_count: Any) -> None:
    """`set_max_nreg(reg_count, False)`."""
    _registers("T.dec_max_nreg", "dec", reg_count)


def no_set_max_nreg() -> None:
    """Keep the compiler from moving registers between warp groups."""
    _registers("T.no_set_max_nreg", "keep")


def disable_warp_group_reg_alloc() -> None:
    """Keep the compiler from moving registers between warp groups."""
    _registers("T.disable_warp_group_reg_alloc", "keep")


def annotate_producer_reg_dealloc(reg_count: Any = 24) -> None:
    """The registers per thread that a producer warp group should keep."""
    _registers("T.annotate_producer_reg_dealloc", "producer", reg_count)


def annotate_consumer_reg_alloc(reg_count: Any = 240) -> None:
    """The registers per thread that a consumer warp group should get."""
    _registers("T.annotate_consumer_reg_alloc", "consumer", reg_count)


# -- schedules -------------------------------------------------------------------------------------


class WSSyncKind(enum.Enum):
    """What a role does at a pipeline."""

    PRODUCER_ACQUIRE = "producer_acquire"
    PRODUCER_COMMIT = "producer_commit"
    CONSUMER_WAIT = "consumer_wait"
    CONSUMER_RELEASE = "consumer_release"


@dataclass(frozen=True)
class WSRole:
    """Warps `warps_lo` to `warps_hi - 1` with one duty; `max_nreg` registers per thread, 0 for
    any.
    """

    name: str
    warps_lo: int = field(kw_only=True)
    warps_hi: int = field(kw_only=True)
    max_nreg: int = field(default=0, kw_only=True)


@dataclass(frozen=True)
class WSPipeline:
    """Buffers of which there are `depth` versions, handed from a producer to a consumer."""

    name: str
    buffers: Sequence[Any]
    depth: int


class WSInstr:
    """One step of a role."""


@dataclass(frozen=True)
class WSOpRef(WSInstr):
    """The operation or loop that `T.ws_op(id)` names."""

    id: str


@dataclass(frozen=True)
class WSSync(WSInstr):
    """A step at a pipeline, `stage` iterations later."""

    kind: WSSyncKind
    pipeline: str
    stage: int = 0

    @classmethod
    def producer_acquire(cls, pipeline: str, stage: int = 0) -> WSSync:
        """Wait until the buffers are free."""
        return cls(WSSyncKind.PRODUCER_ACQUIRE, pipeline, stage)

    @classmethod
    def producer_commit(cls, pipeline: str, stage: int = 0) -> WSSync:
        """Say that the buffers are filled."""
        return cls(WSSyncKind.PRODUCER_COMMIT, pipeline, stage)

    @classmethod
    def consumer_wait(cls, pipeline: str, stage: int = 0) -> WSSync:
        """Wait until the buffers are filled."""
        return cls(WSSyncKind.CONSUMER_WAIT, pipeline, stage)

    @classmethod
    def consumer_release(cls, pipeline: str, stage: int = 0) -> WSSync:
        """Say that the buffers are free."""
        return cls(WSSyncKind.CONSUMER_RELEASE, pipeline, stage)


@dataclass(frozen=True)
class WSScope:
    """The steps of each role in one loop (or, with `ROOT`, in the kernel); a string names an
    operation.
    """

    ROOT: ClassVar[str] = "tl.ws_scope_root"
    id: str
    bodies: Mapping[str, Sequence[WSInstr | str]]


@dataclass(frozen=True)
class WSSchedule:
    """Who does what in a warp-specialised kernel; `num_warps` is a positive multiple of 4."""

    num_warps: int
    roles: Sequence[WSRole]
    pipelines: Sequence[WSPipeline]
    scopes: Sequence[WSScope]

    def __post_init__(self) -> None:
        if self.num_warps < 1 or self.num_warps % 4:
            raise error(
                "value",
                f"num_warps of WSSchedule is {self.num_warps}",
                here(),
                expected="a positive multiple of 4, since registers move between whole warp groups",
                got=str(self.num_warps),
            )


def annotate_ws_schedule(schedule: Any) -> None:
    """Wish for a schedule of the kernel's warps; it changes no result."""
    builder = launched("T.annotate_ws_schedule")
    if not isinstance(schedule, WSSchedule):
        raise refuse(
            "option",
            f"T.annotate_ws_schedule of {describe(schedule)}",
            expected="a WSSchedule",
            got=describe(schedule),
        )
    builder.annotate("ws_schedule", values=(repr(schedule),))


def annotate_ws_pipeline_depth(depth_map: Any) -> None:
    """`{buffer: depth}`: how many versions of a buffer the warp specialiser may keep; 1 or more."""
    builder = launched("T.annotate_ws_pipeline_depth")
    if not isinstance(depth_map, Mapping):
        raise refuse(
            "option",
            "T.annotate_ws_pipeline_depth",
            expected="a dictionary from buffers",
            got=describe(depth_map),
        )
    buffers: list[Buffer] = []
    depths: list[int] = []
    for key, depth in cast("Mapping[Any, Any]", depth_map).items():
        if not isinstance(key, BufferRef):
            raise refuse("option", "a key of the depth map", expected="a buffer", got=repr(key))
        buffers.append(key.buffer)
        depths.append(known(depth, f"the depth of {key.name}", 1, 64))
    builder.annotate("ws_depth", buffers=tuple(buffers), values=tuple(depths))


@contextmanager
def _named(op_id: str) -> Generator[None]:
    builder = launched("T.ws_op")
    builder.annotate("ws_op", values=("begin", op_id))
    yield
    builder.annotate("ws_op", values=("end", op_id))


def ws_op(op_id: Any) -> Any:
    """`with T.ws_op("load"):` - gives the operations inside a name for `T.annotate_ws_schedule`."""
    if not isinstance(op_id, str):
        raise refuse(
            "option",
            f"the name of T.ws_op is {describe(op_id)}",
            expected="a string",
            got=describe(op_id),
        )
    return _named(str(op_id))
