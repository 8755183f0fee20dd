"""What the rows of GPU instructions mean to the interpreter of blocks: NumPy over threads."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from tilelang.dtypes import DType
from tilelang.ir.thread import Slot
from tilelang.isa.rows import GENERIC

WARP = 32


def _arrived(m: Any, stmt: Any, mask: np.ndarray) -> list[tuple[int, int]]:
    """Threads arrive at the barriers that they name; these, and the phases that they are in."""
    imm = dict(stmt.imm)
    given = [imm[k] for k in ("id", "threads")] if imm else [m.eval(x, mask) for x in stmt.ins]
    ids, wants = (m.spread(x, DType("int32")) for x in given)
    found: list[tuple[int, int]] = []
    m.progress += 1
    for number in np.unique(ids[mask]):
        who = mask & (ids == number)
        want = wants[who][0]
        assert want % WARP == 0 or want == m.count, "a barrier of threads that are no whole warps"
        arrived = m.state.setdefault(("barrier", number), np.zeros(m.count, bool))
        arrived |= who
        here = m.state.setdefault(("phase", number), 0)
        found.append((number, here))
        whole = want == m.count
        if arrived.sum() == want or (whole and (arrived | m.returned).all()):
            arrived[:] = False
            m.state[("phase", number)] = here + 1
            m.barrier()
    return found


def barrier_sync(m: Any, stmt: Any, mask: np.ndarray) -> Iterator[None]:
    """Waits until the threads that the barrier counts have come. Warpgroups that take turns, each
    at a barrier of its own, go in lockstep here and do not wait for each other.
    """
    found = _arrived(m, stmt, mask)
    while len(found) == 1 and any(m.state[("phase", number)] == here for number, here in found):
        yield
    m.last = mask


def barrier_arrive(m: Any, stmt: Any, mask: np.ndarray) -> None:
    _arrived(m, stmt, mask)


def warp_sync(m: Any, stmt: Any, mask: np.ndarray) -> None:
    """Orders accesses of the lanes of a warp; the check of races does not know of it."""


def _lanes(m: Any) -> tuple[np.ndarray, np.ndarray]:
    return m.threads % WARP, m.threads - m.threads % WARP


def shuffle(m: Any, stmt: Any, mask: np.ndarray) -> None:
    value = m.spread(m.eval(stmt.ins[0], mask), stmt.ins[0].dtype)
    by = m.spread(m.eval(stmt.ins[1], mask), DType("int32")).astype(np.int64)
    width = dict(stmt.imm)["width"]
    lane, warp = _lanes(m)
    base = lane // width * width
    kind = stmt.row.rsplit(".", 1)[1]
    if kind == "idx":
        source, legal = base + by % width, np.ones(m.count, bool)
    elif kind == "up":
        source = lane - by
        legal = source >= base
    elif kind == "down":
        source = lane + by
        legal = source < base + width
    else:
        source = lane ^ by
        legal = source < base + width
    there = warp + source
    legal &= (there < m.count) & (there >= 0)
    there = np.where(legal, there, m.threads)
    active = mask[there]
    assert active[mask & legal].all(), f"{stmt.row} reads a lane that is not there"
    m.set(stmt.results[0].name, value[there], mask, stmt.results[0].type)


def _by_warp(m: Any, mask: np.ndarray, fn: Any) -> np.ndarray:
    out = None
    for start in range(0, m.count, WARP):
        lanes = slice(start, min(start + WARP, m.count))
        found = fn(lanes, mask[lanes])
        if out is None:
            out = np.zeros(m.count, np.asarray(found).dtype)
        out[lanes] = found
    assert out is not None
    return out


def vote(m: Any, stmt: Any, mask: np.ndarray) -> None:
    kind = stmt.row.rsplit(".", 1)[1]
    named = dict(stmt.imm).get("mask", 0xFFFFFFFF)
    truth = m.spread(m.eval(stmt.ins[0], mask), DType("bool")).astype(bool) if stmt.ins else mask
    bits = np.array([named >> k & 1 for k in range(WARP)], bool)

    def one(lanes: slice, active: np.ndarray) -> Any:
        here = bits[: active.size] & active
        p = truth[lanes]
        if kind == "any":
            return np.int32((p & here).any())
        if kind == "all":
            return np.int32((p | ~here).all())
        return np.uint32(sum(1 << k for k in range(active.size) if here[k] and p[k]))

    m.set(stmt.results[0].name, _by_warp(m, mask, one), mask, stmt.results[0].type)


def match(m: Any, stmt: Any, mask: np.ndarray) -> None:
    value = m.spread(m.eval(stmt.ins[0], mask), stmt.ins[0].dtype)
    named = dict(stmt.imm)["mask"]
    bits = np.array([named >> k & 1 for k in range(WARP)], bool)

    def one(lanes: slice, active: np.ndarray) -> Any:
        here = bits[: active.size] & active
        v = value[lanes]
        if stmt.row == "match.all.sync":
            same = np.unique(v[here]).size <= 1
            return np.uint32(sum(1 << k for k in range(active.size) if here[k]) if same else 0)
        return np.array(
            [sum(1 << k for k in range(active.size) if here[k] and v[k] == x) for x in v], np.uint32
        )

    m.set(stmt.results[0].name, _by_warp(m, mask, one), mask, stmt.results[0].type)


def block_vote(m: Any, stmt: Any, mask: np.ndarray) -> None:
    truth = m.spread(m.eval(stmt.ins[0], mask), DType("bool")).astype(bool)
    assert (mask | m.returned).all(), "not all threads of the block are here"
    kind = stmt.row.rsplit(".", 1)[1]
    p = truth[mask]
    value = {"popc": p.sum(), "and": p.all(), "or": p.any()}[kind]
    m.barrier()
    m.set(stmt.results[0].name, np.int32(value), mask, stmt.results[0].type)


def atomic(m: Any, stmt: Any, mask: np.ndarray) -> None:
    """One thread after the other."""
    row = GENERIC[stmt.row]
    assert row.meaning is not None
    slot = (stmt.outs or stmt.ins)[0]
    memory = m.env[slot.array.name]
    index = m.slot(slot, mask)
    dtype = slot.array.type
    given = None  # what an atomic.load has no operand for
    if stmt.row != "atomic.load":
        given = m.spread(m.eval(stmt.ins[0], mask), stmt.ins[0].dtype)
    olds = np.zeros(m.count, dtype.numpy)
    order = dict(stmt.imm)["order"]
    for t in m.threads[mask]:
        at = int(index[t])
        assert 0 <= at < memory.values.shape[-1], f"{slot.array.name}[{at}]"
        own = memory.values if memory.values.ndim == 1 else memory.values[t]
        place = own[at : at + 1]
        if given is None:
            found = row.meaning(place, dtype=dtype, order=order)
        else:
            found = row.meaning(place, given[t], dtype=dtype, order=order)
        if found:
            olds[t] = found[0]
    if memory.values.ndim == 1 and mask.any():
        m.touch(memory, index[mask][:, None], mask, slot.array.name, True, True)
    for r in stmt.results:
        m.set(r.name, olds, mask, r.type)


def print_element(m: Any, stmt: Any, mask: np.ndarray) -> None:
    imm = dict(stmt.imm)
    slot, place = stmt.ins
    found = m.read(slot.array.name, m.slot(slot, mask), 1, mask)
    at = m.spread(m.eval(place, mask), DType("int32"))
    for t in m.threads[mask]:
        m.host.printed.append(f"{imm['message']}: {imm['buffer']}[{at[t]}] = {found[t, 0]}")


def _registers(m: Any, slot: Any, mask: np.ndarray) -> np.ndarray:
    """The elements of a register operand of each thread."""
    return m.read(slot.array.name, m.slot(slot, mask), slot.count, mask)


def ldmatrix(m: Any, stmt: Any, mask: np.ndarray) -> None:
    """PTX ISA 9.7.14.5.15: matrices of 8 rows of 16 bytes, the rows addressed by the lanes."""
    count = int(stmt.row.split(".")[1][1:])
    trans = dict(stmt.imm)["trans"]
    src, out = stmt.ins[0], stmt.outs[0]
    dtype = src.array.type
    group = 128 // dtype.bits
    per = 32 // dtype.bits
    lane, _ = _lanes(m)
    rows = m.read(src.array.name, m.slot(src, mask), group, mask & (lane < 8 * count))
    assert (m.slot(src, mask)[mask & (lane < 8 * count)] % group == 0).all(), "ldmatrix: alignment"
    out_values = np.zeros((m.count, count * per), rows.dtype)
    for start in range(0, m.count, WARP):
        if not mask[start]:
            continue
        for q in range(count):
            tile = rows[start + 8 * q : start + 8 * q + 8]  # (8, group)
            if trans:
                tile = tile.T
            out_values[start : start + WARP, q * per : (q + 1) * per] = tile.reshape(WARP, per)
    m.write(out.array.name, m.slot(out, mask), out_values, mask)


def mma(m: Any, stmt: Any, mask: np.ndarray) -> None:
    """PTX ISA 9.7.14.5: fragments of A, B and the result."""
    from tilelang.dtypes.convert import converter

    _, shape, *_ = stmt.row.split(".")
    rows, rest = shape[1:].split("n")
    cols, deep = (int(x) for x in rest.split("k"))
    rows = int(rows)
    out, (a, b) = stmt.outs[0], stmt.ins
    inner = DType("float64") if out.array.type.is_float else DType("int64")
    values = [_registers(m, x, mask) for x in (a, b, out)]
    regs = [
        converter(x.array.type, inner)(np.ascontiguousarray(v))
        for x, v in zip((a, b, out), values, strict=True)
    ]
    if "tf32" in stmt.row:
        for k in (0, 1):
            cut = np.ascontiguousarray(values[k]).view(np.uint32) & np.uint32(0xFFFFE000)
            regs[k] = cut.view(np.float32).astype(np.float64)
    lane = np.arange(WARP)
    g, t = lane // 4, lane % 4
    bits = a.array.type.bits
    packed = 1 if bits == 64 else 32 // bits
    tall = rows // 8
    result = np.zeros((m.count, 2 * tall), inner.numpy)
    for start in range(0, m.count, WARP):
        if not mask[start]:
            continue
        w = slice(start, start + WARP)
        left, right = np.zeros((rows, deep), inner.numpy), np.zeros((deep, cols), inner.numpy)
        for n in range(a.count):
            v, r = n % packed, n // packed
            left[g + 8 * (r % tall), t * packed + v + 4 * packed * (r // tall)] = regs[0][w, n]
        for n in range(b.count):
            v, r = n % packed, n // packed
            right[t * packed + v + 4 * packed * r, g] = regs[1][w, n]
        product = left @ right
        for n in range(2 * tall):
            result[w, n] = regs[2][w, n] + product[g + 8 * (n // 2), 2 * t + n % 2]
    m.write(out.array.name, m.slot(out, mask), converter(inner, out.array.type)(result), mask)


def cp_async(m: Any, stmt: Any, mask: np.ndarray) -> None:
    """Issued now; the data is read and written where its group is waited for."""
    dst, src = stmt.outs[0], stmt.ins[0]
    at, where = m.slot(dst, mask), m.slot(src, mask)
    size = dst.count * dst.array.type.bytes
    assert size == int(stmt.row.split(".")[3]), f"{stmt.row} of {size} bytes"
    for slot, index in ((dst, at), (src, where)):
        first = getattr(m.env[slot.array.name], "start", 0) + index[mask] * slot.array.type.bytes
        assert (first % size == 0).all(), f"{stmt.row}: {slot.array.name} is not aligned"
    values = m.read(src.array.name, where, src.count, mask)
    memory = m.env[dst.array.name]
    m.touch(memory, at[mask][:, None] + np.arange(dst.count), mask, dst.array.name, True, False)
    closed = m.state.setdefault("closed", np.zeros(m.count, np.int64))
    copy = _Copy(dst, at, values.copy(), mask.copy(), closed.copy())
    m.state.setdefault("flying", []).append(copy)


class _Copy:
    """A `cp.async` of some threads: those whose part is still under way, and their groups."""

    def __init__(self, dst: Any, at: Any, values: Any, left: Any, group: Any) -> None:
        self.dst, self.at, self.values, self.left, self.group = dst, at, values, left, group

    def land(self, m: Any, who: np.ndarray) -> None:
        now = self.left & who
        if now.any():
            self.left = self.left & ~now
            m.write(self.dst.array.name, self.at, self.values, now)


def cp_async_commit(m: Any, stmt: Any, mask: np.ndarray) -> None:
    m.state.setdefault("closed", np.zeros(m.count, np.int64))[mask] += 1


def cp_async_wait(m: Any, stmt: Any, mask: np.ndarray) -> None:
    closed = m.state.setdefault("closed", np.zeros(m.count, np.int64))
    for copy in m.state.get("flying", []):
        copy.land(m, mask & (copy.group < closed - dict(stmt.imm)["count"]))
    m.state["flying"] = [c for c in m.state.get("flying", []) if c.left.any()]


def cp_async_arrive(m: Any, stmt: Any, mask: np.ndarray) -> None:
    """An arrival of each thread; its copies land when somebody waits."""
    for t in m.threads[mask]:
        bar = m.state["mbarriers"][_mbarrier(m, stmt.outs[0], t, mask)]
        who = np.zeros(m.count, bool)
        who[t] = True
        for copy in m.state.get("flying", []):
            bar.work.append((copy, who))
        bar.step(m, 1, 0)


# mbarriers and tensor copies ----------------------------------------------------------------------


class Mbarrier:
    """One mbarrier: its phase, the arrivals and bytes that the phase still waits for."""

    def __init__(self, count: int) -> None:
        self.count, self.phase, self.left, self.bytes = count, 0, count, 0
        self.work: list[Any] = []

    def step(self, m: Any, arrivals: int, size: int) -> None:
        self.left -= arrivals
        self.bytes += size
        assert self.left >= 0, "more arrivals than the barrier counts"
        m.progress += 1
        if self.left == 0 and self.bytes == 0:
            self.phase += 1
            self.left = self.count


def _mbarrier(m: Any, slot: Any, thread: int, mask: np.ndarray) -> tuple[str, int]:
    return slot.array.name, int(m.slot(slot, mask)[thread])


def mbarrier(m: Any, stmt: Any, mask: np.ndarray) -> Any:
    slot = (stmt.outs or stmt.ins)[0]
    table = m.state.setdefault("mbarriers", {})
    if stmt.row.startswith("mbarrier.try_wait"):
        return _mbarrier_wait(m, stmt, mask)
    for t in m.threads[mask]:
        key = _mbarrier(m, slot, t, mask)
        value = m.spread(m.eval(stmt.ins[0], mask), DType("int32"))[t] if stmt.ins else 0
        if stmt.row == "mbarrier.init":
            table[key] = Mbarrier(int(value))
        elif stmt.row == "mbarrier.arrive":
            table[key].step(m, 1, 0)
        elif stmt.row == "mbarrier.arrive.expect_tx":
            table[key].step(m, 1, int(value))
        else:
            assert stmt.row == "mbarrier.expect_tx", stmt.row
            table[key].step(m, 0, int(value))
    return None


def _mbarrier_wait(m: Any, stmt: Any, mask: np.ndarray) -> Iterator[None]:
    slot, parity = stmt.ins
    values = m.spread(m.eval(parity, mask), DType("int32"))
    keys = {(_mbarrier(m, slot, t, mask), int(values[t])) for t in m.threads[mask]}
    table = m.state.setdefault("mbarriers", {})
    while any(table[key].phase & 1 == p for key, p in keys):
        yield
    for key, _ in keys:
        for copy, who in table[key].work:
            copy.land(m, who)
        table[key].work = []
    m.barrier()  # more than the wait orders: races across mbarriers are not looked for
    m.last = mask


def _swizzled(address: np.ndarray, span: int) -> np.ndarray:
    """The hardware's permutation of byte addresses."""
    if span == 0:
        return address
    return address ^ (((address >> 7) & (span // 16 - 1)) << 4)


def _box(m: Any, stmt: Any, tile: Any, at: list[Any], mask: np.ndarray) -> Iterator[Any]:
    """For each thread: the bytes of a box in the global array and whether they are inside, and its
    bytes in shared memory, through the swizzle of its map.
    """
    tensor, dims, strides, memory = m.env[stmt.ins[0].name]
    coordinates = [m.spread(m.eval(x, mask), DType("int32")) for x in at]
    item = memory.values.itemsize
    for t in m.threads[mask]:
        grids = np.meshgrid(*[np.arange(n) for n in reversed(tensor.box)], indexing="ij")
        places = [g + int(c[t]) for g, c in zip(reversed(grids), coordinates, strict=True)]
        inside = np.ones(places[0].shape, bool)
        for p, n in zip(places, dims, strict=True):
            inside &= (p >= 0) & (p < n)
        offset = places[0] * item
        for p, s in zip(places[1:], strides, strict=True):
            offset = offset + p * s
        there = (offset[..., None] + np.arange(item)).reshape(-1)
        start = m.env[tile.array.name].start + int(m.slot(tile, mask)[t]) * item
        aligned = start % 128 == 0 and (tensor.swizzle < 128 or start % 1024 == 0)
        assert aligned, "TMA: alignment"
        assert there.size == tile.count * item, "the box is not the tile"
        here = _swizzled(start + np.arange(there.size), tensor.swizzle)
        yield t, there, np.repeat(inside.reshape(-1), item), here, memory.values.view(np.uint8)


def tensor_copy(m: Any, stmt: Any, mask: np.ndarray) -> None:
    if stmt.row.endswith(".store"):
        tensor_store(m, stmt, mask)
        return
    dst, bar = stmt.outs
    at, to = list(stmt.ins[1:]), [m]
    if stmt.row.endswith(".multicast"):
        blocks = int(np.asarray(m.eval(at.pop(), mask)).reshape(-1)[0])
        to = [p for k, p in enumerate(m.peers) if blocks >> k & 1]
    for t, there, inside, here, raw in _box(m, stmt, dst, at, mask):
        key = _mbarrier(m, bar, t, mask)
        for peer in to:
            peer.pool[here] = np.where(inside, raw[np.where(inside, there, 0)], 0)
            peer.state["mbarriers"][key].step(peer, 0, -here.size)


def tensor_store(m: Any, stmt: Any, mask: np.ndarray) -> None:
    """The tile is read, and the array written, where the group is waited for. What is read has been
    ordered by a fence of the thread that wrote it.
    """
    src = stmt.ins[1]
    for t, there, inside, here, raw in _box(m, stmt, src, list(stmt.ins[2:]), mask):

        def run(
            t: int = t,
            there: Any = there,
            inside: Any = inside,
            here: Any = here,
            raw: Any = raw,
        ) -> None:
            assert not m.unfenced[here].any(), "a tile is stored that no fence has ordered"
            if m.host.races:
                m.pool_shadow.on_read(here, np.full(here.size, t), src.array.name)
            raw[there[inside]] = m.pool[here[inside]]

        if m.host.races:
            m.pool_shadow.on_read(here, np.full(here.size, t), src.array.name)
        m.state.setdefault(("bulk", int(t)), []).append(run)


def bulk_commit(m: Any, stmt: Any, mask: np.ndarray) -> None:
    for t in m.threads[mask]:
        group = m.state.pop(("bulk", int(t)), [])
        m.state.setdefault(("bulk groups", int(t)), []).append(group)


def bulk_wait(m: Any, stmt: Any, mask: np.ndarray) -> None:
    for t in m.threads[mask]:
        groups = m.state.setdefault(("bulk groups", int(t)), [])
        while len(groups) > dict(stmt.imm)["count"]:
            for run in groups.pop(0):
                run()


def fence(m: Any, stmt: Any, mask: np.ndarray) -> None:
    """What these threads have written is ordered before what the units of the chip read."""
    m.unfenced[np.isin(m.wrote, m.threads[mask])] = False


def nothing(m: Any, stmt: Any, mask: np.ndarray) -> None:
    """Fences, and moves of registers."""


# Clusters and grids -------------------------------------------------------------------------------


def _cta(m: Any, e: Any, mask: np.ndarray, t: int) -> Any:
    return m.peers[int(m.spread(m.eval(e, mask), DType("int32"))[t])]


def remote_arrive(m: Any, stmt: Any, mask: np.ndarray) -> None:
    """Arrivals at the same barrier of another block, with the bytes that it is to expect."""
    *size, cta = stmt.ins
    for t in m.threads[mask]:
        peer = _cta(m, cta, mask, t)
        count = int(m.spread(m.eval(size[0], mask), DType("int32"))[t]) if size else 0
        peer.state["mbarriers"][_mbarrier(m, stmt.outs[0], t, mask)].step(peer, 1, count)
        m.progress += 1


def bulk_cluster(m: Any, stmt: Any, mask: np.ndarray) -> None:
    """Bytes into the same place of another block, which complete on its barrier."""
    (dst, bar), (src, size, cta) = stmt.outs, stmt.ins
    for t in m.threads[mask]:
        peer = _cta(m, cta, mask, t)
        count = int(m.spread(m.eval(size, mask), DType("int32"))[t])
        item = src.array.type.bytes
        first, last = (
            m.env[x.array.name].start + int(m.slot(x, mask)[t]) * item for x in (src, dst)
        )
        assert not (first % 16 or last % 16 or count % 16), "a bulk copy is not aligned"
        here = first + np.arange(count)
        assert not m.unfenced[here].any(), "a tile is copied that no fence has ordered"
        if m.host.races:
            m.pool_shadow.on_read(here, np.full(count, t), src.array.name)
        peer.pool[last : last + count] = m.pool[here]
        peer.state["mbarriers"][_mbarrier(m, bar, t, mask)].step(peer, 0, -count)
        m.progress += 1


def mapa(m: Any, stmt: Any, mask: np.ndarray) -> None:
    src, cta = stmt.ins
    first = m.env[src.array.name].start + m.slot(src, mask) * src.array.type.bytes
    rank = m.spread(m.eval(cta, mask), DType("int32")).astype(np.int64)
    assert (rank[mask] < len(m.peers)).all(), "no such block in the cluster"
    value = ((rank + 1) << 32 | first).astype(np.uint64)
    m.set(stmt.results[0].name, value, mask, stmt.results[0].type)


def cluster_arrive(m: Any, stmt: Any, mask: np.ndarray) -> None:
    """Threads arrive at the barrier of the cluster; it is complete when all have."""
    here = m.state.setdefault("cluster arrived", np.zeros(m.count, bool))
    assert not (here & mask).any(), "a thread arrives twice at the barrier of the cluster"
    here |= mask
    m.state["cluster waits for"] = m.state.get("cluster phase", 0)
    m.progress += 1
    arrived = [p.state.get("cluster arrived", np.zeros(p.count, bool)) for p in m.peers]
    if all((a | p.returned).all() for a, p in zip(arrived, m.peers, strict=True)):
        for a, p in zip(arrived, m.peers, strict=True):
            a[:] = False
            p.state["cluster phase"] = p.state.get("cluster phase", 0) + 1
            p.barrier()


def cluster_wait(m: Any, stmt: Any, mask: np.ndarray) -> Iterator[None]:
    phase = m.state["cluster waits for"]
    while m.state.get("cluster phase", 0) == phase:
        yield
    m.last = mask


def grid_sync(m: Any, stmt: Any, mask: np.ndarray) -> Iterator[None]:
    """All blocks of the launch, each with all of its threads."""
    assert mask.all(), "not all threads of the block are here"
    phase = m.state["grid"] = m.state.get("grid", 0) + 1
    m.progress += 1
    m.barrier()
    while any(p.state.get("grid", 0) < phase for p in m.launch):
        yield
    m.last = mask


# wgmma --------------------------------------------------------------------------------------------

_SPANS = {0: 0, 128: 1, 64: 2, 32: 3}
_INPUTS = {
    "f16": "float16",
    "bf16": "bfloat16",
    "tf32": "float32",
    "s8": "int8",
    "u8": "uint8",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
}


def descriptor(m: Any, stmt: Any, mask: np.ndarray) -> None:
    """PTX ISA 9.7.15.5.1: the bit fields of a matrix descriptor."""
    imm = dict(stmt.imm)
    slot = stmt.ins[0]
    memory = m.env[slot.array.name]
    start = memory.start + m.slot(slot, mask) * memory.values.itemsize
    assert (start[mask] % 16 == 0).all()
    value = (start >> 4).astype(np.uint64)
    fixed = imm["leading"] // 16 << 16 | imm["stride"] // 16 << 32 | _SPANS[imm["swizzle"]] << 62
    m.set(stmt.results[0].name, value | np.uint64(fixed), mask, stmt.results[0].type)


def _matrix(m: Any, desc: int, rows: int, deep: int, dtype: DType, turned: bool) -> np.ndarray:
    """The (rows, deep) matrix that a descriptor names."""
    start = (desc & 0x3FFF) * 16
    leading, stride = (desc >> 16 & 0x3FFF) * 16, (desc >> 32 & 0x3FFF) * 16
    span = {v: k for k, v in _SPANS.items()}[desc >> 62]
    item = dtype.bytes
    r, c = np.meshgrid(np.arange(rows), np.arange(deep), indexing="ij")
    if turned:
        per = span // item
        address = start + r // per * leading + c // 8 * stride + c % 8 * span + r % per * item
    else:
        address = start + r // 8 * stride + r % 8 * span + c * item
    at = _swizzled(address, span)
    data = m.pool[at[..., None] + np.arange(item)]
    return np.ascontiguousarray(data).view(dtype.numpy)[..., 0]


def wgmma(m: Any, stmt: Any, mask: np.ndarray) -> None:
    """One product of a warpgroup, as late as may be: what it reads in registers and in shared
    memory is looked at where its group is waited for.
    """
    keep = m.spread(m.eval(stmt.ins[2], mask), DType("bool"))
    right = m.spread(m.eval(stmt.ins[1], mask), DType("uint64"))
    own = stmt.row.endswith(".rs")
    left = right if own else m.spread(m.eval(stmt.ins[0], mask), DType("uint64"))
    operands = [(x, m.slot(x, mask)) for x in (stmt.outs[0], stmt.ins[0]) if isinstance(x, Slot)]
    for start in range(0, m.count, 128):
        if not mask[start]:
            continue
        w = slice(start, start + 128)
        assert mask[w].all(), "wgmma by a part of a warpgroup"
        sides = (int(left[start]), int(right[start]), bool(keep[start]))
        spans = [_Words(m, w, *x) for x in operands]
        run = partial(_multiplied, m, stmt, sides, spans)
        m.state.setdefault(("wgmma", start), []).append(run)


class _Words:
    """The registers of an operand, of the threads of one warpgroup."""

    def __init__(self, m: Any, w: slice, slot: Any, index: np.ndarray) -> None:
        self.values = m.env[slot.array.name].values
        self.at = (np.arange(m.count)[w, None], index[w, None] + np.arange(slot.count))
        self.dtype = slot.array.type


def _multiplied(m: Any, stmt: Any, sides: tuple[int, int, bool], spans: list[_Words]) -> None:
    from tilelang.dtypes.convert import converter

    parts, imm = stmt.row.split("."), dict(stmt.imm)
    n, deep = (int(x) for x in parts[1][len("m64n") :].split("k"))
    ta, tb = DType(_INPUTS[parts[3]]), DType(_INPUTS[parts[4]])
    out = spans[0]
    inner = DType("float64") if out.dtype.is_float else DType("int64")

    def entered(x: np.ndarray, dtype: DType) -> np.ndarray:
        if parts[3] == "tf32":
            x = (np.ascontiguousarray(x).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
            return x.astype(np.float64)
        return converter(dtype, inner)(np.ascontiguousarray(x))

    lane = np.arange(128)
    row = lane // 32 * 16 + lane % 32 // 4
    packed = 32 // ta.bits
    y = _matrix(m, sides[1], n, deep, tb, imm.get("trans_b", False))
    if len(spans) == 1:
        x = _matrix(m, sides[0], 64, deep, ta, imm.get("trans_a", False))
    else:
        regs = spans[1].values[spans[1].at]
        x = np.zeros((64, deep), ta.numpy)
        for k in range(regs.shape[1]):
            v, rest = k % packed, k // packed
            x[row + 8 * (rest % 2), lane % 4 * packed + v + 4 * packed * (rest // 2)] = regs[:, k]
    product = entered(x, ta) @ entered(y, tb).T
    total = np.zeros((128, n // 2), inner.numpy)
    for k in range(n // 2):
        total[:, k] = product[row + 8 * (k // 2 % 2), k // 4 * 8 + lane % 4 * 2 + k % 2]
    if sides[2]:
        total += converter(out.dtype, inner)(np.ascontiguousarray(out.values[out.at]))
    out.values[out.at] = converter(inner, out.dtype)(total)


def wgmma_commit(m: Any, stmt: Any, mask: np.ndarray) -> None:
    """What each warpgroup has begun is a group."""
    for start in range(0, m.count, 128):
        if mask[start]:
            group = m.state.pop(("wgmma", start), [])
            m.state.setdefault(("wgmma groups", start), []).append(group)


def wgmma_wait(m: Any, stmt: Any, mask: np.ndarray) -> None:
    """The oldest groups are done now."""
    for start in range(0, m.count, 128):
        groups = m.state.get(("wgmma groups", start), []) if mask[start] else []
        while len(groups) > dict(stmt.imm)["count"]:
            for run in groups.pop(0):
                run()


ROW_MEANINGS: dict[str, Any] = {
    "mbarrier.arrive.cluster": remote_arrive,
    "mbarrier.arrive.expect_tx.cluster": remote_arrive,
    "cp.async.bulk.cluster": bulk_cluster,
    "mapa": mapa,
    "barrier.cluster.arrive": cluster_arrive,
    "barrier.cluster.arrive.relaxed": cluster_arrive,
    "barrier.cluster.wait": cluster_wait,
    "grid.sync": grid_sync,
    "mbarrier.*": mbarrier,
    "cp.async.bulk.tensor.*": tensor_copy,
    "cp.async.bulk.commit_group": bulk_commit,
    "cp.async.bulk.wait_group": bulk_wait,
    "cp.async.bulk.wait_group.read": bulk_wait,
    "cp.async.mbarrier.arrive.noinc": cp_async_arrive,
    "griddepcontrol.*": nothing,
    "fence.proxy.async": fence,
    "fence.*": nothing,
    "prefetch.*": nothing,
    "setmaxnreg": nothing,
    "wgmma.fence": nothing,
    "wgmma.commit_group": wgmma_commit,
    "wgmma.wait_group": wgmma_wait,
    "wgmma.ready": nothing,
    "wgmma.descriptor": descriptor,
    "wgmma.m64*": wgmma,
    "cp.async.cg.*": cp_async,
    "cp.async.ca.*": cp_async,
    "cp.async.commit_group": cp_async_commit,
    "cp.async.wait_group": cp_async_wait,
    "ldmatrix.*": ldmatrix,
    "mma.*": mma,
    "barrier.sync": barrier_sync,
    "barrier.sync.value": barrier_sync,
    "barrier.arrive": barrier_arrive,
    "barrier.arrive.value": barrier_arrive,
    "bar.warp.sync": warp_sync,
    "shfl.sync.*": shuffle,
    "vote.sync.*": vote,
    "activemask": vote,
    "match.*": match,
    "barrier.red.*": block_vote,
    "atomic.*": atomic,
    "update.*": atomic,
    "print.element": print_element,
}
