"""Copies by the Tensor Memory Accelerator: boxes of tensors and runs of bytes, in both directions
and between blocks of a cluster, with reductions; and accesses to another block's shared memory.

PTX ISA 9.0: "cp.async.bulk", "cp.async.bulk.tensor", "cp.reduce.async.bulk". They use the async
proxy. A load ends by completing bytes at an mbarrier; a store is waited for in groups of the thread
that issued it, first its reads and then its writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tilelang.dtypes import DType
from tilelang.isa.rows import combined
from tilelang.simulator.gpu.arrays import Place, Values, Window
from tilelang.simulator.gpu.block import ASYNC, SHARED_SPAN, SHARED_WINDOW, Block
from tilelang.simulator.gpu.maps import TensorView, swizzled
from tilelang.simulator.gpu.rows.registry import Use, at_end, row
from tilelang.simulator.gpu.rows.sync import touched
from tilelang.simulator.machine import Agent, Groups, Wait, Who
from tilelang.simulator.machine.clocks import Clock
from tilelang.simulator.machine.schedule import Steps

Bytes = npt.NDArray[np.uint8]
Elements = tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]
"""Byte offsets of elements in a tensor, and which of them are inside."""


@dataclass
class _Store:
    """A store under way: what is known when it has read, and when it has written."""

    read: Clock | None = None
    written: Clock | None = None


@dataclass
class _Stores:
    """The stores of one thread, in groups."""

    groups: Groups = field(default_factory=Groups)
    of: dict[Agent, _Store] = field(default_factory=dict[Agent, _Store])


def _spawn(use: Use, what: str, steps: Steps) -> Agent:
    name = f"{what} ({use.loc})"
    return use.group.block.machine.scheduler.spawn(name, steps, asynchronous=True)


def byte_of(use: Use, place: Place, site: int, lane: int, align: int) -> int:
    """The byte offset of an operand for one lane."""
    found = use.offsets(place, site)
    at = int(found[np.searchsorted(use.lanes, lane)])
    if at % align:
        raise use.fault(
            "bounds",
            f"{use.facts.row} of an address that is not aligned",
            expected=f"a multiple of {align} bytes",
            got=f"byte {at}",
        )
    return at


def _issuer(use: Use, lane: int) -> npt.NDArray[np.int64]:
    return use.group.actors[[lane]]


# Loads -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """Where a load delivers: shared memory of one block, and an mbarrier of it or of `leader`."""

    block: Block
    to: npt.NDArray[np.int64]
    barrier: int
    leader: Block | None = None

    @property
    def told(self) -> Block:
        """The block that has the mbarrier."""
        return self.leader or self.block


def deliver(
    use: Use,
    lane: int,
    data: Callable[[Who], Bytes],
    targets: Sequence[Target],
    read: int,
    *,
    fenced: bool = False,
) -> None:
    """Issue a load: read at some time, later write, then complete the bytes."""
    team = use.group.team
    actor = team.fork(_issuer(use, lane), f"{use.facts.row} of thread {lane}", ASYNC)
    reads = Who(team, actor, read, ASYNC)
    writes = Who(team, actor, use.out_site(0), ASYNC, fenced=fenced)

    def steps() -> Steps:
        found = data(reads)
        yield None
        for t in targets:
            t.block.shared.write_places(t.to, found, writes, 16 if found.size % 16 == 0 else 1)
        for t in targets:
            touched(t.told, t.barrier, Who(team, actor, use.out_site(1), ASYNC))
        clock = team.end(actor)
        for t in targets:
            barrier = t.told.mbarrier(t.barrier, use.loc)
            barrier.phases.join(clock)
            barrier.step(0, -found.size)

    for t in targets:
        t.block.must_await(actor, use.site, "what is loaded into it is there")
    _spawn(use, use.facts.row, steps())


def _targets(
    use: Use, lane: int, to: npt.NDArray[np.int64], barrier: int, ranks: Sequence[int] | None
) -> list[Target]:
    block = use.group.block
    del lane
    if ranks is None:
        return [Target(block, to, barrier)]
    return [Target(block.cluster.block(r, use.loc), to, barrier) for r in ranks]


def _ranks(mask: int) -> list[int]:
    return [k for k in range(16) if mask >> k & 1]


_LOADS = ("", ".multicast", ".cta2")


@row(*(f"cp.async.bulk.tensor.{r}d.load{m}" for r in range(1, 6) for m in _LOADS))
def tensor_load(use: Use) -> Steps:
    """A box of a tensor; what is outside of it is zero, or NaN."""
    dst, bar, view = use.outs[0], use.outs[1], use.ins[0]
    rank = len(view.map.box)
    many = use.facts.row.endswith("multicast")
    for lane in use.lanes.tolist():
        start = byte_of(use, dst, use.out_site(0), lane, _box_align(view))
        barrier = byte_of(use, bar, use.out_site(1), lane, 8)
        at = [int(use.value(1 + k, np.int64)[lane]) for k in range(rank)]
        to = _box_places(view, start)
        if dst.count * dst.dtype.numpy.itemsize < view.box_bytes:
            raise use.fault("bounds", f"a box of {view.box_bytes} bytes does not fit its tile")
        ranks = _ranks(int(use.value(1 + rank)[lane])) if many else None
        targets = _targets(use, lane, to, barrier, ranks)
        if use.facts.row.endswith("cta2"):
            block = use.group.block
            leader = block.cluster.block(int(use.value(1 + rank)[lane]), use.loc)
            if leader.rank // 2 != block.rank // 2:
                raise use.fault("value", f"the mbarrier of block {leader.rank} is not of the pair")
            targets = [Target(block, to, barrier, leader)]
        deliver(use, lane, _reader(view, view.box(at)), targets, use.in_site(0))
    yield None


@row("cp.async.bulk.tensor.2d.gather4")
def gather_rows(use: Use) -> Steps:
    """Four rows of a matrix; what is outside of it is zero, or NaN."""
    dst, bar, view = use.outs[0], use.outs[1], use.ins[0]
    for lane in use.lanes.tolist():
        start = byte_of(use, dst, use.out_site(0), lane, _box_align(view))
        barrier = byte_of(use, bar, use.out_site(1), lane, 8)
        to = _box_places(view, start, boxes=4)
        if dst.count * dst.dtype.numpy.itemsize < to.size:
            raise use.fault("bounds", f"four rows of {view.box_bytes} bytes do not fit their tile")
        found = _four_rows(use, view, 1, lane)
        targets = _targets(use, lane, to, barrier, None)
        deliver(use, lane, _reader(view, found), targets, use.in_site(0))
    yield None


def _four_rows(use: Use, view: TensorView, first: int, lane: int) -> Elements:
    """The elements of four rows; the operands from `first` on are the column and the rows."""
    if len(view.map.box) != 2 or view.map.box[1] != 1:
        raise use.fault(
            "value",
            f"{use.facts.row} by a tensor map with boxes of {view.map.box}",
            expected="boxes of one row of a matrix",
        )
    column, *rows = (int(use.value(first + k, np.int64)[lane]) for k in range(5))
    return view.rows(column, rows)


def _box_align(view: TensorView) -> int:
    """The bytes at whose multiples a box begins in shared memory."""
    return 1024 if view.map.swizzle == 128 else 128


def _box_places(view: TensorView, start: int, boxes: int = 1) -> npt.NDArray[np.int64]:
    """Where the bytes lie of boxes, one after the other, that begin at a byte of shared memory."""
    end = start + boxes * view.box_bytes
    return swizzled(np.arange(start, end, dtype=np.int64), view.map.swizzle)


def _reader(view: TensorView, found: Elements) -> Callable[[Who], Bytes]:
    """What reads elements of a tensor; zero or NaN stands for those that are outside."""
    offset, inside = found
    item = view.window.item

    def read(who: Who) -> Bytes:
        data = np.empty((offset.size, item), np.uint8)
        data[:] = view.outside
        if inside.any():
            found = view.window.memory.read_places(_bytes(offset[inside], item), who, item)
            data[inside] = found.reshape(-1, item)
        return data.reshape(-1)

    return read


def _bytes(at: npt.NDArray[np.int64], item: int) -> npt.NDArray[np.int64]:
    return (at[:, None] + np.arange(item)).reshape(-1)


@row("cp.async.bulk.load", "cp.async.bulk.load.multicast", "cp.async.bulk.cluster")
def bulk_load(use: Use) -> Steps:
    """Neighbouring bytes, from global memory or to another block of the cluster."""
    dst, bar, src = use.outs[0], use.outs[1], use.ins[0]
    kind = use.facts.parts[-1]
    for lane in use.lanes.tolist():
        start = byte_of(use, dst, use.out_site(0), lane, 16)
        barrier = byte_of(use, bar, use.out_site(1), lane, 8)
        first = byte_of(use, src, use.in_site(0), lane, 16)
        size = _size(use, lane)
        ranks = None
        if kind == "multicast":
            ranks = _ranks(int(use.value(2)[lane]))
        elif kind == "cluster":
            ranks = [int(use.value(2)[lane])]
        memory = src.array.memory

        def data(who: Who, first: int = first, size: int = size, memory: Any = memory) -> Bytes:
            return memory.read_bytes(first, size, who)

        to = start + np.arange(size)
        deliver(use, lane, data, _targets(use, lane, to, barrier, ranks), use.in_site(0))
    yield None


def _size(use: Use, lane: int) -> int:
    size = int(use.value(1)[lane])
    if size % 16:
        raise use.fault("value", f"a bulk copy of {size} bytes", expected="a multiple of 16 bytes")
    return size


# Stores and reductions ---------------------------------------------------------------------------


def _stores(use: Use, lane: int) -> _Stores:
    return use.group.state.setdefault(("stores", lane), _Stores())


def _send(
    use: Use, lane: int, source: npt.NDArray[np.int64], write: Callable[[Bytes, Who], None]
) -> None:
    """Issue a store: read shared memory at some time, write the tensor later."""
    team, memory = use.group.team, use.group.block.shared
    label, issuer = f"{use.facts.row} of thread {lane}", _issuer(use, lane)
    reader, writer = (team.fork(issuer, label, ASYNC) for _ in range(2))
    src = next(k for k, o in enumerate(use.ins) if isinstance(o, Place))
    reads = Who(team, reader, use.in_site(src), ASYNC)
    writes = Who(team, writer, use.site, ASYNC, atomic="reduce" in use.facts.row)
    store, stores = _Store(), _stores(use, lane)

    def steps() -> Steps:
        data = memory.read_places(source, reads, 16 if source.size % 16 == 0 else 1)
        store.read = team.end(reader)
        yield None
        write(data, writes)
        store.written = team.end(writer)

    use.group.block.must_await(reader, use.site, "its stores have read its shared memory")
    operation = _spawn(use, use.facts.row, steps())
    stores.groups.add(operation)
    stores.of[operation] = store


@row(
    *(f"cp.async.bulk.tensor.{r}d.store" for r in range(1, 6)),
    *(f"cp.reduce.async.bulk.tensor.{r}d.*" for r in range(1, 6)),
)
def tensor_store(use: Use) -> Steps:
    """A box of a tensor; what is outside of it is not written. A reduction joins it with what is
    there.
    """
    view, src = use.ins[0], use.ins[1]
    rank = len(view.map.box)
    op = use.facts.parts[-1] if "reduce" in use.facts.row else ""
    for lane in use.lanes.tolist():
        start = byte_of(use, src, use.in_site(1), lane, _box_align(view))
        at = [int(use.value(2 + k, np.int64)[lane]) for k in range(rank)]
        source = _box_places(view, start)
        _send(use, lane, source, _writer(view, view.box(at), op))
    yield None


@row("cp.async.bulk.tensor.2d.scatter4")
def scatter_rows(use: Use) -> Steps:
    """Four rows of a matrix; what is outside of it is not written."""
    view, src = use.ins[0], use.ins[1]
    for lane in use.lanes.tolist():
        start = byte_of(use, src, use.in_site(1), lane, _box_align(view))
        found = _four_rows(use, view, 2, lane)
        _send(use, lane, _box_places(view, start, boxes=4), _writer(view, found, ""))
    yield None


def _writer(view: TensorView, found: Elements, op: str) -> Callable[[Bytes, Who], None]:
    """What writes elements of a tensor that are inside, or joins them with what is there."""
    offset, inside = found
    item, dtype = view.window.item, view.window.dtype

    def write(data: Bytes, who: Who) -> None:
        if inside.any():
            rows = data.reshape(-1, item)[inside]
            _write(view.window, offset[inside], rows.reshape(-1), (op, dtype), who)

    return write


def _write(
    window: Window, at: npt.NDArray[np.int64], data: Bytes, how: tuple[str, DType], who: Who
) -> None:
    """Write elements at byte offsets, or join them with what is there."""
    op, dtype = how
    places = _bytes(at, window.item)
    if op:
        new = np.ascontiguousarray(data).view(dtype.numpy)
        old = window.memory.peek(at, dtype.numpy, 1)[0]
        data = np.ascontiguousarray(reduced(op, dtype, old, new)).view(np.uint8)
    window.memory.write_places(places, data, who, window.item)


def reduced(op: str, dtype: DType, old: Values, new: Values) -> Values:
    """`old` joined by `new`, as a reduction of the async proxy does."""
    if op in ("add", "min", "max"):
        return np.asarray(combined(op, dtype, old, new), dtype.numpy)
    if op in ("and", "or", "xor"):
        function: Any = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[op]
        return function(old, new)
    if op == "inc":
        return np.where(old >= new, 0, old + 1).astype(dtype.numpy)
    return np.where((old == 0) | (old > new), new, old - 1).astype(dtype.numpy)


@row("cp.async.bulk.store", "cp.reduce.async.bulk.add", "cp.reduce.async.bulk.min")
@row("cp.reduce.async.bulk.max")
def bulk_store(use: Use) -> Steps:
    """Neighbouring bytes to global memory, or joined with what is there."""
    dst, src = use.outs[0], use.ins[0]
    op = use.facts.parts[-1] if "reduce" in use.facts.row else ""
    for lane in use.lanes.tolist():
        first = byte_of(use, dst, use.out_site(0), lane, 16)
        start = byte_of(use, src, use.in_site(0), lane, 16)
        size = _size(use, lane)
        window: Window = dst.array
        at = np.arange(first, first + size, window.item, dtype=np.int64)

        def write(data: Bytes, who: Who, at: Any = at, window: Any = window) -> None:
            _write(window, at, data, (op, window.dtype), who)

        _send(use, lane, start + np.arange(size), write)
    yield None


@row("cp.async.bulk.commit_group")
def commit(use: Use) -> Steps:
    """Ends a group of stores of each thread."""
    for lane in use.lanes.tolist():
        _stores(use, lane).groups.commit()
    yield None


@row("cp.async.bulk.wait_group", "cp.async.bulk.wait_group.read")
def wait(use: Use) -> Steps:
    """Waits until all but the youngest groups have read, or have written."""
    count, read = use.imm["count"], use.facts.row.endswith("read")
    mine = [(lane, _stores(use, lane)) for lane in use.lanes.tolist()]

    def is_over(stores: _Stores) -> Callable[[Agent], bool]:
        if read:
            return lambda a: stores.of[a].read is not None
        return lambda a: stores.of[a].written is not None

    yield Wait(
        lambda: not any(s.groups.pending(count, is_over(s)) for _, s in mine),
        "the reads of its stores" if read else "its stores",
        use.loc,
    )
    team = use.group.team
    for lane, stores in mine:
        issuer = _issuer(use, lane)
        over = stores.groups.closed[: len(stores.groups.closed) - count]
        for operation in (a for group in over for a in group):
            store = stores.of[operation]
            for clock in (store.read, None if read else store.written):
                if clock is not None:
                    team.acquire(issuer, clock, use.facts)


# Another block's shared memory -------------------------------------------------------------------


@row("ld.shared.cluster.*")
def load_remote(use: Use) -> tuple[Values]:
    """An element at the same place in another block of the cluster."""
    src = use.ins[0]
    out = np.zeros(use.group.count, src.dtype.numpy)
    for window, lanes in _remote(use, src, 1):
        mask = np.zeros(use.group.count, np.bool_)
        mask[lanes] = True
        found = use.group.load(window, src.index, 1, mask, use.in_site(0))
        out[lanes] = found[lanes]
    return (out,)


@row("st.shared.cluster.*")
def store_remote(use: Use) -> Steps:
    """Sets an element at the same place in another block of the cluster."""
    dst, value = use.outs[0], use.value(0)
    for window, lanes in _remote(use, dst, 1):
        mask = np.zeros(use.group.count, np.bool_)
        mask[lanes] = True
        use.group.store(window, dst.index, value, mask, use.out_site(0))
    yield None


@row("mapa")
def map_address(use: Use) -> tuple[Values]:
    """The generic address of an element at the same place in another block of the cluster."""
    src, ranks = use.ins[0], use.value(1, np.int64)
    for rank in np.unique(ranks[use.lanes]):
        use.group.block.cluster.block(int(rank), use.loc)
    own = np.asarray(src.array.start + np.asarray(src.index, np.int64) * src.array.item)
    return ((SHARED_WINDOW + ranks * SHARED_SPAN + own).astype(np.uint64),)


def _remote(use: Use, place: Place, k: int) -> list[tuple[Window, Values]]:
    """The window of an operand in each block that the lanes name."""
    array = place.array
    assert isinstance(array, Window)
    ranks, lanes = use.value(k, np.int64), use.lanes
    out: list[tuple[Window, Values]] = []
    for rank in np.unique(ranks[lanes]):
        block = use.group.block.cluster.block(int(rank), use.loc)
        window = Window(array.name, array.dtype, block.shared, array.start, array.size)
        out.append((window, lanes[ranks[lanes] == rank]))
    return out


@at_end
def left_over(block: Block) -> None:
    """Findings for what was not waited for when its block ended: shared memory is gone then."""
    for left in block.unawaited():
        place = block.report.sites[left.site]
        block.report.add(
            "leak",
            f"a block ends before {left.what}",
            place.loc,
            label=place.what,
            help="wait at the mbarrier, or for the group",
        )
