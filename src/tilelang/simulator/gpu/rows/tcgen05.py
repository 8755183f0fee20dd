"""tcgen05: Tensor Memory, its loads and stores, and products that one thread issues.

PTX ISA 9.0, "tcgen05 Instructions". Loads and stores of a warp work on their registers at any time
up to the wait; products and copies of a thread are done in order, at any time up to the arrival of
their commit. Operands in shared memory are read through the async proxy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilelang.simulator.gpu.arrays import Place, Registers, Values
from tilelang.simulator.gpu.arrays import Use as InUse
from tilelang.simulator.gpu.block import ASYNC, WARP, Block
from tilelang.simulator.gpu.decode import places
from tilelang.simulator.gpu.decode_tcgen05 import (
    Instruction,
    instruction,
    move_places,
    result_places,
    scale_places,
    tcgen05_matrix,
)
from tilelang.simulator.gpu.numbers import dtype_of, narrowed, widened
from tilelang.simulator.gpu.rows.registry import Use, at_end, row
from tilelang.simulator.gpu.rows.sync import mbarriers_of, touched
from tilelang.simulator.gpu.tensor_memory import (
    LANES,
    USABLE,
    Operation,
    TensorMemory,
    Unit,
    admit,
    finish,
    follow,
    learn,
    publish,
    tensor_memory,
)
from tilelang.simulator.machine import Queue, Wait, Who
from tilelang.simulator.machine.schedule import Steps

COLUMN_BITS = 0xFFFF
DEPTH_BYTES = 32
"""Bytes of a row of an operand that one product multiplies."""


# Allocation --------------------------------------------------------------------------------------


@row("tcgen05.alloc", "tcgen05.alloc.cta2")
def alloc(use: Use) -> Steps:
    """One warp gets columns; their address is written to shared memory."""
    tensor, count = tensor_memory(use.group.block), use.imm["columns"]
    (warp,) = _one_warp(use)
    yield from _meet(use)
    if tensor.given_up or count > tensor.widest:
        raise use.fault(
            "value",
            f"tcgen05.alloc of {count} columns",
            expected="no more columns than the allocation before, and no permit given up",
            got=f"{tensor.widest} columns before" if not tensor.given_up else "no permit",
        )
    yield Wait(
        lambda: tensor.free_place(count) is not None,
        f"{count} free columns of Tensor Memory",
        use.loc,
    )
    first = tensor.free_place(count)
    assert first is not None
    tensor.held[first] = tensor.widest = count
    tensor.forget(first, count)
    only = np.zeros(use.group.count, np.bool_)
    only[warp * WARP] = True
    address = np.full((1, use.group.count), first, np.uint32)
    use.group.put(use.outs[0], address, only, use.out_site(0))


def _one_warp(use: Use) -> list[int]:
    warps = use.whole_warps()
    if len(warps) != 1:
        raise use.fault(
            "divergence",
            f"{use.facts.row} by {len(warps)} warps",
            expected="one warp, which allocates and frees",
        )
    return warps


def _pair(use: Use) -> list[Block]:
    """The blocks that a row is of: the block itself, or the two of its pair, in order."""
    block = use.group.block
    first = block.rank & ~1
    wide = "cta2" in use.facts.parts
    used = block.unit("tcgen05 blocks", lambda: [wide])
    if used != [wide]:
        raise use.fault(
            "value",
            f"{use.facts.row} after rows of {'one block' if wide else 'two blocks'}",
            expected="one cta_group for all of a kernel",
        )
    return [block.cluster.block(first + k, use.loc) for k in (0, 1)] if wide else [block]


def _meet(use: Use) -> Steps:
    """Both blocks of a pair allocate, or free, together."""
    blocks = _pair(use)
    if len(blocks) == 1:
        return
    counts = [b.unit("tcgen05 meetings", lambda: [0]) for b in blocks]
    mine = use.group.block.unit("tcgen05 meetings", lambda: [0])
    mine[0] += 1
    now = mine[0]
    yield Wait(lambda: all(c[0] >= now for c in counts), f"{use.facts.row} of the pair", use.loc)


@row("tcgen05.relinquish_alloc_permit", "tcgen05.relinquish_alloc_permit.cta2")
def relinquish(use: Use) -> None:
    """The block allocates no more."""
    _one_warp(use)
    tensor_memory(use.group.block).given_up = True


@row("tcgen05.dealloc", "tcgen05.dealloc.cta2")
def dealloc(use: Use) -> Steps:
    """One warp gives columns back, which nobody uses any more."""
    tensor, count = tensor_memory(use.group.block), use.imm["columns"]
    (warp,) = _one_warp(use)
    yield from _meet(use)
    first = int(use.value(0, np.int64)[warp * WARP])
    if tensor.held.get(first) != count:
        raise use.fault(
            "value",
            "tcgen05.dealloc of columns that the block does not hold like this",
            expected=", ".join(f"{n} from {s}" for s, n in tensor.held.items()) or "none",
            got=f"{count} from {first}",
        )
    if tensor.shadow is not None:
        lanes, columns = np.indices((LANES, count)).astype(np.int64)
        at = tensor.places(lanes, columns + first, use.loc)[..., None] + np.arange(4)
        actor = int(use.group.actors[warp * WARP])
        # That all others have passed a barrier is enough, as in CUTLASS: no fence is asked for.
        tensor.shadow.write(at.reshape(-1), Who(use.group.team, actor, use.site), actor)
    del tensor.held[first]
    tensor.stale = True
    yield None


@at_end
def left_over(block: Block) -> None:
    """Columns that a block has not given back are lost to all that come after it."""
    found = block.kept("tensor memory")
    held: dict[int, int] = {} if found is None else found.held
    for first, count in held.items():
        block.report.add(
            "leak",
            f"a block ends while it holds {count} columns of Tensor Memory, from {first} on",
            None,
            help="tcgen05.dealloc them",
        )


@row("tcgen05.fence.before_thread_sync")
def fence_before(use: Use) -> None:
    """What these threads have done in Tensor Memory may be handed over."""
    publish(use.group.team, use.group.actors_of(use.mask))


@row("tcgen05.fence.after_thread_sync")
def fence_after(use: Use) -> None:
    """What was handed over may be used in Tensor Memory."""
    admit(use.group.team, use.group.actors_of(use.mask))


# Loads and stores --------------------------------------------------------------------------------


@row("tcgen05.ld.*")
def load(use: Use) -> Steps:
    """Cells of the lanes that a warp reaches, into registers."""
    _moves(use, use.outs[0], use.value(0, np.int64), loads=True)
    yield None


@row("tcgen05.st.*")
def store(use: Use) -> Steps:
    """Registers into cells of the lanes that a warp reaches."""
    _moves(use, use.ins[1], use.value(0, np.int64), loads=False)
    yield None


def _moves(use: Use, place: Place, addresses: Values, *, loads: bool) -> None:
    group, name = use.group, "ld" if loads else "st"
    registers = place.array
    assert isinstance(registers, Registers)
    tensor = tensor_memory(group.block)
    for warp in use.whole_warps():
        lanes = slice(warp * WARP, warp * WARP + WARP)
        number = group.warps[warp]
        label = f"tcgen05.{name} of warp {number}"
        actor = group.team.fork(group.actors[lanes], label, USABLE)
        move = _Move(use, tensor, place, lanes, actor)
        steps = move.steps(number, addresses[lanes], loads=loads)
        spawn = group.block.machine.scheduler.spawn
        agent = spawn(f"{use.facts.row} ({use.loc})", steps, asynchronous=True)
        made = Operation(agent, actor, int(group.team.epochs[actor]))
        tensor.moves.setdefault((number, name), []).append(made)
        first = int(place.index)
        registers.uses.append(InUse(agent, first, first + place.count, loads, use.site))


@dataclass(frozen=True)
class _Move:
    """A load or store of one warp."""

    use: Use
    tensor: TensorMemory
    place: Place
    lanes: slice
    actor: int

    def steps(self, number: int, addresses: Values, *, loads: bool) -> Steps:
        """Moves words, in two steps."""
        use, team = self.use, self.use.group.team
        who = Who(team, self.actor, use.site, USABLE, fenced=True)
        at, size = self._cells(number, addresses)
        registers = self.place.array
        assert isinstance(registers, Registers)
        first = int(self.place.index)
        mine = registers.data[first : first + self.place.count, self.lanes]
        storage = mine.dtype
        if loads:
            words = _joined(self.tensor.read(at, who, size), size)
            yield None
            mine[...] = np.ascontiguousarray(words.T).view(storage).T
        else:
            words = np.ascontiguousarray(mine.T).view(np.uint32).T
            yield None
            self.tensor.write(at, _parted(words, size), who, size)
        team.end(self.actor)

    def _cells(self, number: int, addresses: Values) -> tuple[Values, int]:
        """Byte addresses, (cells of a thread, threads), and the bytes of each that count."""
        use = self.use
        shape, count = use.facts.parts[2], int(use.facts.parts[3][1:])
        half = use.facts.row.endswith(".half")
        first = int(addresses[0])
        if (addresses != first).any() or first >> 16 != number % 4 * WARP:
            raise use.fault(
                "bounds",
                f"{use.facts.row} by warp {number} at lane {first >> 16}",
                expected=f"one address, at lane {number % 4 * WARP}: a warp reaches 32 lanes",
            )
        lane, word = move_places(shape, count)
        if half:
            lane, word = np.repeat(lane, 2, axis=0), np.repeat(word * 2, 2, axis=0)
            word[1::2] += 1
        column = word + (first & COLUMN_BITS)
        return self.tensor.places(lane + (first >> 16), column, use.loc), 2 if half else 4


def _joined(words: Values, size: int) -> Values:
    """Registers, of cells that give 2 bytes each or whole ones."""
    return words if size == 4 else words[0::2] | words[1::2] << np.uint32(16)


def _parted(words: Values, size: int) -> Values:
    if size == 4:
        return words
    out = np.repeat(words, 2, axis=0)
    out[1::2] >>= np.uint32(16)
    return out


@row("tcgen05.wait.*")
def wait(use: Use) -> Steps:
    """Waits for the loads, or stores, of each warp."""
    group, name = use.group, use.facts.parts[-1]
    tensor = tensor_memory(group.block)
    warps = use.whole_warps()
    pending = {w: tensor.moves.pop((group.warps[w], name), []) for w in warps}
    yield Wait(
        lambda: all(x.agent.done for found in pending.values() for x in found),
        f"its {name} of Tensor Memory",
        use.loc,
    )
    over = {x.agent for found in pending.values() for x in found}
    for warp, found in pending.items():
        for operation in found:
            learn(group.team, group.actors[warp * WARP : warp * WARP + WARP], operation)
    for registers in group.watched:
        registers.uses = [u for u in registers.uses if u.operation not in over]


# Words -------------------------------------------------------------------------------------------


@row("tcgen05.descriptor")
def descriptor(use: Use) -> tuple[Values]:
    """The 64 bits that the emitted code computes: the address is joined with constant fields."""
    from tilelang.targets.cuda import descriptors  # the encoder: these are the bits it prints

    imm = use.imm
    fixed = descriptors.matrix(
        "tcgen05", swizzle=imm["swizzle"], leading=imm["leading"], stride=imm["stride"]
    )
    array, index = use.ins[0].array, use.ins[0].index
    address = np.asarray(array.start + np.asarray(index, np.int64) * array.item)
    return ((np.uint64(fixed) | ((address & 0x3FFFF) >> 4).astype(np.uint64)),)


@row("tcgen05.instruction", "tcgen05.instruction.scaled")
def instruction_word(use: Use) -> tuple[Any]:
    """The 32 bits that the emitted code has."""
    from tilelang.targets.cuda import descriptors  # the encoder: these are the bits it prints

    return (np.uint32(descriptors.tcgen05_instruction(use.imm)),)


@row("tcgen05.instruction.scaled.at")
def placed_word(use: Use) -> tuple[Any]:
    """The 32 bits that the emitted code computes."""
    from tilelang.targets.cuda import descriptors  # the encoder: these are the bits it prints

    word, *places = (use.value(k, np.uint32) for k in range(3))
    for at, low in zip(places, descriptors.scale_places(), strict=True):
        word = word | at << np.uint32(low)
    return (word,)


# Products and copies -----------------------------------------------------------------------------


def _unit(use: Use) -> tuple[int, Unit]:
    """The lane that issues, and the queue of its thread."""
    if use.lanes.size != 1:
        raise use.fault(
            "divergence",
            f"{use.facts.row} by {use.lanes.size} threads",
            expected="one thread: each thread that gets there issues it",
        )
    lane = int(use.lanes[0])
    block, thread = use.group.block, int(use.group.threads[lane])

    def make() -> Unit:
        name = f"the products of thread {thread}"
        return Unit(Queue(block.machine.scheduler, name, ordered=True))

    return lane, block.unit(("tcgen05", thread), make)


def _issue(use: Use, work: _Work) -> None:
    """An operation joins the queue of the thread that issues it."""
    lane, unit = work.lane, work.unit
    team = use.group.team
    label = f"{use.facts.row} of thread {int(use.group.threads[lane])}"
    actor = team.fork(use.group.actors[[lane]], label, USABLE)
    use.group.block.must_await(actor, use.site, "what it multiplies or copies is done")

    def steps() -> Steps:
        follow(team, actor, unit)
        yield from work.steps(actor)
        finish(team, actor, unit)

    unit.queue.put(f"{use.facts.row} ({use.loc})", steps(), use.loc)


@dataclass(frozen=True)
class _Work:
    """What one thread issues: operands as bits. `blocks` are those that it works on."""

    use: Use
    lane: int
    unit: Unit
    tensor: TensorMemory
    blocks: list[Block] = field(default_factory=list[Block])

    def word(self, k: int) -> int:
        """An operand."""
        return int(self.use.value(k, np.uint64)[self.lane])

    def who(self, actor: int, path: int) -> Who:
        """The operation, by a path to memory."""
        return Who(self.use.group.team, actor, self.use.site, path, fenced=path == USABLE)

    def steps(self, actor: int) -> Steps:
        """Reads, later writes."""
        raise NotImplementedError


@dataclass(frozen=True)
class _Product(_Work):
    """One product."""

    def steps(self, actor: int) -> Steps:
        """d = (d if scale_d else 0) + a @ b."""
        use, kind, parts = self.use, self.kind, self.use.facts.parts
        in_tensor_memory = "ts" in parts
        if len(self.blocks) == 2:
            yield from self.both(actor)
            return
        told = instruction(self.word(3), kind, 1)
        scaled = kind.startswith("mx")
        keep = bool(use.value(len(use.ins) - 1)[self.lane])
        if in_tensor_memory:
            left = self._tensor_operand(told, actor)
        else:
            left = self._operand(1, told.m, told.a, told.across[0], actor)
        right = self._operand(2, told.n, told.b, told.across[1], actor)
        if scaled:
            left = left * self._scales(4, told, 0, left.shape, actor)
            right = right * self._scales(5, told, 1, right.shape, actor)
        lane, column = result_places(told.m, told.n, 1)
        at = self.tensor.places(lane, column + (self.word(0) & COLUMN_BITS), use.loc)
        total = left @ right.T
        who, size = self.who(actor, USABLE), dtype_of(told.d).bits // 8
        if keep:
            before = self.tensor.read(at, who, size)
            total = total + widened(_elements(before, told.d), told.d)
        yield None
        made = np.ascontiguousarray(narrowed(total, told.d))
        words = made.view(f"u{size}").astype(np.uint32)
        self.tensor.write(at, words, who, size)

    @property
    def kind(self) -> str:
        """The kind of the product."""
        parts = self.use.facts.parts
        return parts[3] if parts[2] == "cta2" else parts[2]

    def both(self, actor: int) -> Steps:
        """A product of a pair: each block has its rows of a and d, and half of b."""
        use, blocks, kind = self.use, self.blocks, self.kind
        told = instruction(self.word(3), kind, 2)
        rows, n = told.m // 2, told.n // 2
        keep = bool(use.value(len(use.ins) - 1)[self.lane])
        if "ts" in use.facts.parts:
            a = [self._halves(told, actor, x) for x in blocks]
        else:
            a = [[self._operand(1, rows, told.a, told.across[0], actor, x)] for x in blocks]
        b = [self._operand(2, n, told.b, told.across[1], actor, x) for x in blocks]
        whole = np.concatenate(b)
        right = [whole, whole]
        if kind.startswith("mx"):  # each block has the scales of its rows, and those of all columns
            tensors = [tensor_memory(x) for x in blocks]
            a = [
                [x * self._scales(4, told, 0, x.shape, actor, t) for x in halves]
                for halves, t in zip(a, tensors, strict=True)
            ]
            right = [whole * self._scales(5, told, 1, whole.shape, actor, t) for t in tensors]
        lane, column = result_places(told.m, told.n, 2)
        who, size = self.who(actor, USABLE), dtype_of(told.d).bits // 8
        made: list[tuple[TensorMemory, Values, Values]] = []
        for block, x, y in zip(blocks, a, right, strict=True):
            tensor = tensor_memory(block)
            at = tensor.places(lane, column + (self.word(0) & COLUMN_BITS), use.loc)
            each = n * 2 // len(x)
            total = np.hstack([p @ y[k * each : (k + 1) * each].T for k, p in enumerate(x)])
            if keep:
                total = total + widened(_elements(tensor.read(at, who, size), told.d), told.d)
            made.append((tensor, at, total))
        yield None
        for tensor, at, total in made:
            words = np.ascontiguousarray(narrowed(total, told.d)).view(f"u{size}")
            tensor.write(at, words.astype(np.uint32), who, size)

    def _operand(
        self,
        k: int,
        rows: int,
        name: str,
        across: bool,
        actor: int,
        block: Block | None = None,
    ) -> Values:
        """A matrix (rows, k) in shared memory, of this block or another."""
        word, kind = self.word(k), self.kind
        memory = (block or self.use.group.block).shared
        packed = kind.startswith("mxf4")
        dtype = dtype_of(name)
        size = 1 if packed else dtype.numpy.itemsize
        padded = not packed and dtype.bits < 8
        if padded and dtype.bits != 4:
            raise self.use.refused("reads padded elements of 6 bits")
        at = places(tcgen05_matrix(word), rows, DEPTH_BYTES // size, size, across=across)
        if padded:  # 16 elements in the first half of 16 bytes
            at = at[:, np.arange(DEPTH_BYTES) % 16 < 8]
        raw = memory.read_places(at, self.who(actor, ASYNC))
        if packed or padded:
            nibbles = np.stack([raw[..., 0] & 15, raw[..., 0] >> 4], axis=-1)
            raw = nibbles.reshape(rows, -1, 1)
        return widened(np.ascontiguousarray(raw).view(dtype.numpy)[..., 0], name)

    def _halves(self, told: Instruction, actor: int, block: Block) -> list[Values]:
        """A of one block of a pair: with 64 rows each the lower lanes have it for the first half of
        the columns of the result, the upper ones for the second.
        """
        rows = told.m // 2
        firsts = [0] if rows == LANES else [0, rows]
        return [self._tensor_operand(told, actor, block, first) for first in firsts]

    def _tensor_operand(
        self, told: Instruction, actor: int, block: Block | None = None, first: int = 0
    ) -> Values:
        """A in Tensor Memory: rows as those of the result, elements packed along the columns. Of a
        pair, a row in each lane from the `first` one on.
        """
        dtype, cells = dtype_of(told.a), DEPTH_BYTES // 4
        tensor = self.tensor if block is None else tensor_memory(block)
        if block is None:
            lane, column = result_places(told.m, cells, 1)
        else:
            lane, column = np.indices((told.m // 2, cells))
            lane = lane + first
        at = tensor.places(lane, column + (self.word(1) & COLUMN_BITS), self.use.loc)
        words = np.ascontiguousarray(tensor.read(at, self.who(actor, USABLE)))
        return widened(words.view(dtype.numpy), told.a)

    def _scales(
        self,
        k: int,
        told: Instruction,
        which: int,
        shape: Any,
        actor: int,
        tensor: TensorMemory | None = None,
    ) -> Values:
        """The scales of each element of an operand (rows, k), in the memory of a block."""
        rows, deep = shape
        tensor, many = tensor or self.tensor, int(self.use.facts.parts[-1][-2])
        lane, column = scale_places(rows)
        first = self.word(k) & COLUMN_BITS
        who, quarters = self.who(actor, USABLE), range(4)
        found = [
            tensor.read(tensor.places(lane + WARP * q, column + first, self.use.loc), who)
            for q in quarters
        ]
        if any((x != found[0]).any() for x in found):
            raise self.use.fault(
                "value", "the scales differ between the quarters of the lanes of Tensor Memory"
            )
        byte = told.at[which]
        codes = np.stack([found[0] >> np.uint32(8 * (byte + n)) for n in range(many)], axis=1)
        name = "e8m0" if told.scale == "ue8m0" else "e4m3"
        values = widened((codes & 0xFF).astype(np.uint8).view(dtype_of(name).numpy), name)
        return np.repeat(values, deep // many, axis=1)


def _elements(words: Values, name: str) -> Values:
    dtype = dtype_of(name)
    return words.astype(f"u{dtype.bits // 8}").view(dtype.numpy)


@row("tcgen05.mma.*")
def product(use: Use) -> Steps:
    """Issues a product."""
    lane, unit = _unit(use)
    _issue(use, _Product(use, lane, unit, tensor_memory(use.group.block), _leading(use)))
    yield None


@dataclass(frozen=True)
class _Copy(_Work):
    """A copy of 32 rows of 16 bytes into the lanes of every warp, in each block by itself."""

    def steps(self, actor: int) -> Steps:
        """Reads, later writes."""
        at = places(tcgen05_matrix(self.word(1)), 32, 16, 1, across=False)
        raw = [x.shared.read_places(at, self.who(actor, ASYNC)) for x in self.blocks]
        yield None
        lane, column = np.indices((LANES, 4)).astype(np.int64)
        first = self.word(0) & COLUMN_BITS
        for block, found in zip(self.blocks, raw, strict=True):
            words = np.tile(np.ascontiguousarray(found[..., 0]).view(np.uint32), (4, 1))
            tensor = tensor_memory(block)
            cells = tensor.places(lane, column + first, self.use.loc)
            tensor.write(cells, words, self.who(actor, USABLE))


@row("tcgen05.cp.32x128b.warpx4", "tcgen05.cp.cta2.32x128b.warpx4")
def copy(use: Use) -> Steps:
    """Issues a copy from shared to Tensor Memory."""
    lane, unit = _unit(use)
    _issue(use, _Copy(use, lane, unit, tensor_memory(use.group.block), _leading(use)))
    yield None


def _leading(use: Use) -> list[Block]:
    """The blocks that a row is of, which the first of them issues."""
    blocks = _pair(use)
    if blocks[0] is not use.group.block:
        raise use.fault(
            "value",
            f"{use.facts.row} by block {use.group.block.rank} of the cluster",
            expected="the first block of the pair, whose memory its operands name",
        )
    return blocks


@row("tcgen05.commit", "tcgen05.commit.cta2", "tcgen05.commit.cta2.multicast")
def commit(use: Use) -> Steps:
    """Mbarriers are arrived at when all that the thread has issued is done: that of the block, or
    those at the same place in all that a mask names.
    """
    lane, unit = _unit(use)
    _pair(use)
    block, team = use.group.block, use.group.team
    told = [block]
    if use.facts.row.endswith("multicast"):
        mask = int(use.value(0, np.int64)[lane])
        told = [block.cluster.block(k, use.loc) for k in range(16) if mask >> k & 1]
    ((offset, _),) = mbarriers_of(use, use.outs[0], use.out_site(0))
    for there in told:
        touched(there, offset, Who(team, use.group.actors[[lane]], use.out_site(0), ASYNC))
    actor = team.fork(use.group.actors[[lane]], f"{use.facts.row} of thread {lane}", USABLE)

    def steps() -> Steps:
        follow(team, actor, unit)
        clock = finish(team, actor, unit)
        for there in told:
            barrier = there.mbarrier(offset, use.loc)
            barrier.phases.join(clock)
            barrier.step(1, 0)
        yield None

    unit.queue.put(f"{use.facts.row} ({use.loc})", steps(), use.loc)
    yield None
