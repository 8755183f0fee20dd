"""Products of a warp (mma.sync), and the loads and stores of their operands.

PTX ISA 9.0: "mma", "ldmatrix", "stmatrix". How a product is added is the machine's (`sums`).
"""

from __future__ import annotations

import re

import numpy as np

from tilelang.simulator.gpu import fragments
from tilelang.simulator.gpu.arrays import Mask, Place, Values, Window
from tilelang.simulator.gpu.block import WARP
from tilelang.simulator.gpu.numbers import dtype_of, widened
from tilelang.simulator.gpu.rows.registry import Use, row

_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")


@row("mma.*")
def mma(use: Use) -> None:
    """d = d + a @ b, by each warp."""
    use.whole_warps()
    _, shape, td, ta, tb, _ = use.facts.parts
    found = _SHAPE.fullmatch(shape)
    if found is None:
        raise use.refused("has a shape that is not known")
    m, n, k = (int(x) for x in found.groups())
    bits = dtype_of(ta).bits
    d, a, b = use.read_out(0), use.read(0), use.read(1)
    left = _matrix(a, fragments.operand_a(m, k, bits), (m, k), ta)
    right = _matrix(b, fragments.operand_b(k, n, bits), (k, n), tb).swapaxes(1, 2)
    place = fragments.result(m, n)
    before = _matrix(d, place, (m, n), td)
    total = use.group.block.machine.sums(before, left, right, (td, ta, tb), "mma")
    # (warps, elements, lanes) -> (elements, lanes of the group)
    use.write(0, total[:, place[0], place[1]].transpose(1, 0, 2).reshape(len(d), -1))


def _matrix(regs: Values, place: fragments.Pair, shape: tuple[int, int], name: str) -> Values:
    """Registers (elements, lanes) of all warps as matrices (warps, rows, columns)."""
    parts = widened(regs, name).reshape(len(regs), -1, WARP).transpose(1, 0, 2)
    out = np.zeros((parts.shape[0], *shape), parts.dtype)
    out[:, place[0], place[1]] = parts
    return out


def _count(use: Use) -> int:
    return int(use.facts.parts[1].removeprefix("x"))


@row("ldmatrix.*")
def ldmatrix(use: Use) -> None:
    """Matrices of 8 rows of 16 bytes: lane 8 q + r gives the address of row r of matrix q."""
    use.whole_warps()
    count, group = _count(use), use.group
    source = use.ins[0]
    asked = group.lanes(use.mask) & (np.arange(group.count) % WARP < 8 * count)
    rows = group.load(source.array, source.index, source.count, asked, use.in_site(0))
    _aligned(use, source, asked)
    raw = np.ascontiguousarray(rows.reshape(source.count, group.count).T).view(np.uint16)
    parts = raw.reshape(-1, WARP, 8)[:, : 8 * count].reshape(-1, count, 8, 8)
    if use.imm["trans"]:
        parts = parts.swapaxes(2, 3)
    # Of each matrix, lane t has parts 2 (t % 4) and the next of row t / 4.
    words = np.ascontiguousarray(parts).view(np.uint32).reshape(-1, count, WARP)
    regs = np.ascontiguousarray(words.transpose(0, 2, 1)).reshape(group.count, count)
    dtype = use.outs[0].dtype.numpy
    use.write(0, np.ascontiguousarray(regs).view(dtype).T)


@row("stmatrix.*")
def stmatrix(use: Use) -> None:
    """As `ldmatrix`, the other way."""
    use.whole_warps()
    count, group = _count(use), use.group
    target = use.outs[0]
    regs = np.ascontiguousarray(use.read(0).T).view(np.uint32).reshape(-1, WARP, count)
    words = np.ascontiguousarray(regs.transpose(0, 2, 1))
    parts = words.view(np.uint16).reshape(-1, count, 8, 8)
    if use.imm["trans"]:
        parts = parts.swapaxes(2, 3)
    rows = np.zeros((len(parts), WARP, 8), np.uint16)
    rows[:, : 8 * count] = np.ascontiguousarray(parts).reshape(-1, 8 * count, 8)
    dtype = target.dtype.numpy
    values = np.ascontiguousarray(rows.reshape(group.count, 8)).view(dtype).T
    asked = group.lanes(use.mask) & (np.arange(group.count) % WARP < 8 * count)
    _aligned(use, target, asked)
    group.store(target.array, target.index, values, asked, use.out_site(0))


def _aligned(use: Use, place: Place, asked: Mask) -> None:
    """An error if a row does not begin at a multiple of 16 bytes."""
    assert isinstance(place.array, Window)
    at = use.group.where(place.array, place.index, 1, asked, use.site)
    if (at % 16).any():
        raise use.fault("bounds", f"{use.facts.row} of a row that is not aligned to 16 bytes")
