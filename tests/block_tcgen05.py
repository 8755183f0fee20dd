"""What rows of tcgen05 mean to the interpreter of blocks: Tensor Memory, and a queue of products.

Products wait in their queue until a thread waits for an mbarrier, loads and stores until their
wait, so that what is used too early or overwritten too early gives other numbers. Descriptors and
instruction words are built and read here from the PTX ISA's tables, not from the compiler's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from block_rows import ROW_MEANINGS, WARP, Mbarrier, _swizzled, nothing
from block_rows import mbarrier as plain_mbarrier
from tilelang.dtypes import DType
from tilelang.dtypes.convert import converter

LANES, COLUMNS = 128, 512
UNKNOWN = 0x7FC0_DEAD


class TensorMemory:
    """128 lanes of 512 cells, who holds which columns, and what is still to be done."""

    def __init__(self) -> None:
        self.cells = np.full((LANES, COLUMNS), UNKNOWN, np.uint32)
        self.held: dict[int, int] = {}
        self.widest = COLUMNS
        self.queue: list[Any] = []
        self.waiting: dict[str, list[Any]] = {"ld": [], "st": []}

    def run(self) -> None:
        queue, self.queue = self.queue, []
        for step in queue:
            step()

    def columns(self, address: int, count: int) -> slice:
        """Columns that a buffer of the block holds."""
        first = address & 0xFFFF
        inside = [s for s, n in self.held.items() if s <= first and first + count <= s + n]
        assert inside, f"columns {first} to {first + count} are not allocated"
        return slice(first, first + count)


def memory(m: Any) -> TensorMemory:
    return m.state.setdefault("tensor memory", TensorMemory())


def _uniform(m: Any, e: Any, mask: np.ndarray) -> int:
    found = np.unique(m.spread(m.eval(e, mask), e.dtype)[mask])
    assert len(found) == 1, "an operand that differs between threads"
    return int(found[0])


def _warps(m: Any, mask: np.ndarray) -> Iterator[tuple[int, slice]]:
    for start in range(0, m.count, WARP):
        lanes = slice(start, start + WARP)
        if mask[lanes].any():
            assert mask[lanes].all(), "tcgen05 by a part of a warp"
            yield start // WARP, lanes


def alloc(m: Any, stmt: Any, mask: np.ndarray) -> None:
    tensor, count = memory(m), dict(stmt.imm)["columns"]
    assert len(list(_warps(m, mask))) == 1, "an allocation by several warps"
    assert count <= tensor.widest, "an allocation wider than one before"
    taken = np.zeros(COLUMNS, bool)
    for start, n in tensor.held.items():
        taken[start : start + n] = True
    first = next(s for s in range(0, COLUMNS, 32) if not taken[s : s + count].any())
    assert first + count <= COLUMNS
    tensor.held[first] = tensor.widest = count
    slot = stmt.outs[0]
    m.write(
        slot.array.name, m.slot(slot, mask), np.full((m.count, 1), first, np.uint32), _one(mask)
    )


def _one(mask: np.ndarray) -> np.ndarray:
    out = np.zeros_like(mask)
    out[np.argmax(mask)] = True
    return out


def dealloc(m: Any, stmt: Any, mask: np.ndarray) -> None:
    tensor = memory(m)
    assert not tensor.queue, "freed while products are under way"
    address = _uniform(m, stmt.ins[0], mask)
    assert tensor.held.pop(address) == dict(stmt.imm)["columns"]
    tensor.cells[:, address : address + dict(stmt.imm)["columns"]] = UNKNOWN


# Loads and stores ---------------------------------------------------------------------------------


def _shape(row: str) -> tuple[str, int, bool]:
    parts = row.split(".")
    return parts[2], int(parts[3][1:]), parts[-1] == "half"


def _places(shape: str, count: int, warp: int) -> tuple[np.ndarray, np.ndarray]:
    """(lane of Tensor Memory, word along the columns) of each register of each thread of a warp."""
    lane = np.arange(WARP)[:, None]
    if shape == "32x32b":
        register = np.arange(count)[None, :]
        return warp % 4 * WARP + lane + 0 * register, register + 0 * lane
    register = np.arange(4 * count)[None, :]
    row = lane // 4 + 8 * (register // 2 % 2)
    return warp % 4 * WARP + row, register // 4 * 8 + lane % 4 * 2 + register % 2


def load(m: Any, stmt: Any, mask: np.ndarray) -> None:
    tensor = memory(m)
    slot = stmt.outs[0]
    shape, count, half = _shape(stmt.row)
    addresses = m.spread(m.eval(stmt.ins[0], mask), DType("uint32")).copy()

    def done() -> None:
        item = slot.array.type.numpy
        per = 4 // np.dtype(item).itemsize
        words = slot.count // per
        out = np.zeros((m.count, words), np.uint32)
        for warp, lanes in _warps(m, mask):
            (address,) = np.unique(addresses[lanes])
            rows, word = _places(shape, count, warp)
            assert address >> 16 == warp % 4 * WARP, "lanes that the warp does not reach"
            first = int(address) & 0xFFFF
            tensor.columns(first, (int(word.max()) + 1) * (2 if half else 1))
            if half:
                low = tensor.cells[rows, first + 2 * word] & 0xFFFF
                out[lanes] = low | (tensor.cells[rows, first + 2 * word + 1] & 0xFFFF) << 16
            else:
                out[lanes] = tensor.cells[rows, first + word]
        values = np.ascontiguousarray(out).view(item).reshape(m.count, slot.count)
        m.write(slot.array.name, m.slot(slot, mask), values, mask)

    tensor.waiting["ld"].append(done)


def store(m: Any, stmt: Any, mask: np.ndarray) -> None:
    tensor = memory(m)
    slot = stmt.ins[1]
    shape, count, half = _shape(stmt.row)
    addresses = m.spread(m.eval(stmt.ins[0], mask), DType("uint32")).copy()
    values = m.read(slot.array.name, m.slot(slot, mask), slot.count, mask).copy()

    def done() -> None:
        words = np.ascontiguousarray(values).view(np.uint32).reshape(m.count, -1)
        for warp, lanes in _warps(m, mask):
            (address,) = np.unique(addresses[lanes])
            rows, word = _places(shape, count, warp)
            assert address >> 16 == warp % 4 * WARP, "lanes that the warp does not reach"
            first = int(address) & 0xFFFF
            tensor.columns(first, (int(word.max()) + 1) * (2 if half else 1))
            if half:
                tensor.cells[rows, first + 2 * word] = words[lanes] & 0xFFFF
                tensor.cells[rows, first + 2 * word + 1] = words[lanes] >> 16
            else:
                tensor.cells[rows, first + word] = words[lanes]

    tensor.waiting["st"].append(done)


def wait(m: Any, stmt: Any, mask: np.ndarray) -> None:
    list(_warps(m, mask))
    steps = memory(m).waiting[stmt.row.rsplit(".", 1)[1]]
    while steps:
        steps.pop(0)()


# Products -----------------------------------------------------------------------------------------

_CODES = {0: 0, 2: 128, 4: 64, 6: 32}
_FORMATS = {
    "f16": {0: "float16", 1: "bfloat16"},
    "tf32": {2: "float32"},
    "f8f6f4": {0: "float8_e4m3fn", 1: "float8_e5m2"},
    "i8": {0: "uint8", 1: "int8"},
    "mxf8f6f4": {0: "float8_e4m3fn", 1: "float8_e5m2"},
    "mxf4": {1: "float4_e2m1fn"},
    "mxf4nvf4": {1: "float4_e2m1fn"},
}
_SCALES = {0: "float8_e4m3fn", 1: "float8_e8m0fnu"}
_RESULTS = {0: "float16", 1: "float32", 2: "int32"}


def descriptor(m: Any, stmt: Any, mask: np.ndarray) -> None:
    """PTX ISA, tcgen05: Shared memory descriptor."""
    imm, slot = dict(stmt.imm), stmt.ins[0]
    source = m.env[slot.array.name]
    start = source.start + m.slot(slot, mask) * source.values.itemsize
    assert (start[mask] % 16 == 0).all()
    code = {v: k for k, v in _CODES.items()}[imm["swizzle"]]
    fixed = imm["leading"] // 16 << 16 | imm["stride"] // 16 << 32 | 1 << 46 | code << 61
    value = (start >> 4).astype(np.uint64) | np.uint64(fixed)
    m.set(stmt.results[0].name, value, mask, stmt.results[0].type)


def instruction(m: Any, stmt: Any, mask: np.ndarray) -> None:
    """PTX ISA, tcgen05: Instruction descriptor."""
    imm = dict(stmt.imm)
    kind = imm.get("kind")
    formats = {"f16": 0, "bf16": 1, "tf32": 2, "e4m3": 0, "e5m2": 1, "u8": 0, "s8": 1}
    if kind is None:
        word = {"f16": 0, "f32": 1, "s32": 2}[imm["d"]] << 4
    else:
        formats["e2m1"] = 1 if kind.startswith("mxf4") else 5
        word = imm["scale_b_at"] << 4 | imm["scale_a_at"] << 29 | (imm["scale"] == "ue8m0") << 23
    word |= formats[imm["a"]] << 7 | formats[imm["b"]] << 10
    word |= imm["trans_a"] << 15 | imm["trans_b"] << 16 | imm["n"] // 8 << 17 | imm["m"] // 16 << 24
    m.set(stmt.results[0].name, np.uint32(word), mask, stmt.results[0].type)


def _matrix(m: Any, desc: int, rows: int, deep: int, dtype: DType, turned: bool) -> np.ndarray:
    """The (rows, deep) matrix that a descriptor names (PTX ISA, tcgen05: Canonical layouts)."""
    start = (desc & 0x3FFF) * 16
    leading, stride = (desc >> 16 & 0x3FFF) * 16, (desc >> 32 & 0x3FFF) * 16
    span, item = _CODES[desc >> 61], dtype.bytes
    assert desc >> 46 & 7 == 1
    r, c = np.meshgrid(np.arange(rows), np.arange(deep), indexing="ij")
    if turned:
        per = span // item
        address = start + r // per * leading + c // 8 * stride + c % 8 * span + r % per * item
    else:
        assert deep * item <= span
        address = start + r // 8 * stride + r % 8 * span + c * item
    data = m.pool[_swizzled(address, span)[..., None] + np.arange(item)]
    return np.ascontiguousarray(data).view(dtype.numpy)[..., 0]


def _lanes_of(rows: int) -> np.ndarray:
    r = np.arange(rows)
    return r if rows == 128 else r // 16 * 32 + r % 16


def _wide(x: np.ndarray, dtype: DType, kind: str) -> np.ndarray:
    if kind == "tf32":
        x = (np.ascontiguousarray(x).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
        return x.astype(np.float64)
    inner = DType("int64") if kind == "i8" else DType("float64")
    return converter(dtype, inner)(np.ascontiguousarray(x))


def product(m: Any, stmt: Any, mask: np.ndarray) -> None:
    assert mask.sum() == 1, "a product is issued by one thread"
    parts = stmt.row.split(".")
    kind = parts[2]
    d, a, b, word = (_uniform(m, e, mask) for e in stmt.ins[:4])
    scales = [_uniform(m, e, mask) for e in stmt.ins[4:-1]]
    keep = bool(_uniform(m, stmt.ins[-1], mask))
    tensor = memory(m)
    rows, n = (word >> 24 & 31) * 16, (word >> 17 & 63) * 8
    ta, tb = (DType(_FORMATS[kind][word >> low & 7]) for low in (7, 10))
    total = DType("float32" if scales else _RESULTS[word >> 4 & 3])
    inner = DType("int64") if kind == "i8" else DType("float64")

    def done() -> None:
        lanes = _lanes_of(rows)[:, None]
        if parts[-1] == "ts":
            words = np.ascontiguousarray(tensor.cells[lanes[:, 0], tensor.columns(a, 8)])
            x = words.view(ta.numpy).reshape(rows, 256 // ta.bits)
        else:
            x = _operand(m, a, rows, ta, bool(word >> 15 & 1))
        y = _operand(m, b, n, tb, bool(word >> 16 & 1))
        left, right = _wide(x, ta, kind), _wide(y, tb, kind)
        if scales:
            many = int(parts[3][-2])
            dtype = DType(_SCALES[word >> 23 & 1])
            left = left * _scale(tensor, scales[0], word >> 29 & 3, left.shape, many, dtype)
            right = right * _scale(tensor, scales[1], word >> 4 & 3, right.shape, many, dtype)
        made = left @ right.T
        first = tensor.columns(d, n).start
        at = np.arange(first, first + n)[None, :]
        if keep:
            cells = np.ascontiguousarray(tensor.cells[lanes, at])
            old = cells.view(total.numpy) if total.bits == 32 else cells.astype(np.uint16)
            made = made + converter(total, inner)(old.view(total.numpy))
        result = np.ascontiguousarray(converter(inner, total)(made))
        tensor.cells[lanes, at] = result.view(f"u{total.bytes}").astype(np.uint32)

    tensor.queue.append(done)


def _operand(m: Any, desc: int, rows: int, dtype: DType, turned: bool) -> np.ndarray:
    if dtype.bits != 4:
        return _matrix(m, desc, rows, 256 // dtype.bits, dtype, turned)
    pairs = _matrix(m, desc, rows, 32, DType("uint8"), turned)
    return np.stack([pairs & 15, pairs >> 4], axis=-1).reshape(rows, 64).view(dtype.numpy)


def _scale(
    tensor: TensorMemory, at: int, byte: int, shape: Any, many: int, dtype: DType
) -> np.ndarray:
    """The scales of a matrix (PTX ISA, tcgen05: Layout of the scale factors): those of row r are
    in lane r % 32 and cell r // 32, from byte on.
    """
    rows, deep = shape
    r = np.arange(rows)
    tensor.columns(at, int(r.max()) // 32 + 1)
    cells = tensor.cells[r % 32, at + r // 32]
    for warp in range(1, 4):
        assert (tensor.cells[r % 32 + 32 * warp, at + r // 32] == cells).all()
    assert byte + many <= 4
    codes = np.stack([cells >> 8 * (byte + k) & 0xFF for k in range(many)], axis=1).astype(np.uint8)
    values = converter(dtype, DType("float64"))(np.ascontiguousarray(codes).view(dtype.numpy))
    return np.repeat(values, deep // many, axis=1)


def copy(m: Any, stmt: Any, mask: np.ndarray) -> None:
    """`tcgen05.cp.32x128b.warpx4`: 32 rows of 16 bytes into the lanes of each warp."""
    assert mask.sum() == 1, "a copy is issued by one thread"
    to, source = (_uniform(m, e, mask) for e in stmt.ins)
    tensor = memory(m)

    def done() -> None:
        assert source >> 61 == 0
        start, stride = (source & 0x3FFF) * 16, (source >> 32 & 0x3FFF) * 16
        r = np.arange(32)
        at = (start + r // 8 * stride + r % 8 * 16)[:, None] + np.arange(16)
        words = np.ascontiguousarray(m.pool[at]).view(np.uint32)
        tensor.cells[:, tensor.columns(to, 4)] = np.tile(words, (4, 1))

    tensor.queue.append(done)


def commit(m: Any, stmt: Any, mask: np.ndarray) -> None:
    assert mask.sum() == 1, "each thread arrives once"
    slot = stmt.outs[0]
    key = slot.array.name, int(m.slot(slot, mask)[np.argmax(mask)])
    table: dict[Any, Mbarrier] = m.state.setdefault("mbarriers", {})
    memory(m).queue.append(lambda: table[key].step(m, 1, 0))


def mbarrier(m: Any, stmt: Any, mask: np.ndarray) -> Any:
    if not stmt.row.startswith("mbarrier.try_wait"):
        return plain_mbarrier(m, stmt, mask)
    return _waited(m, stmt, mask)


def _waited(m: Any, stmt: Any, mask: np.ndarray) -> Iterator[None]:
    memory(m).run()
    for _ in plain_mbarrier(m, stmt, mask):
        yield
        memory(m).run()


ROW_MEANINGS.update(
    {
        "mbarrier.*": mbarrier,
        "tcgen05.alloc": alloc,
        "tcgen05.dealloc": dealloc,
        "tcgen05.relinquish_alloc_permit": nothing,
        "tcgen05.fence.*": nothing,
        "tcgen05.ld.*": load,
        "tcgen05.st.*": store,
        "tcgen05.wait.*": wait,
        "tcgen05.descriptor": descriptor,
        "tcgen05.instruction": instruction,
        "tcgen05.instruction.scaled": instruction,
        "tcgen05.cp.32x128b.warpx4": copy,
        "tcgen05.mma.*": product,
        "tcgen05.commit": commit,
    }
)
