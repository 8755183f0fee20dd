"""Where the elements of matrices lie in registers: the tables of PTX ISA 9.0 for mma, wgmma and
ldmatrix, written down for the simulator alone.

What enters: a shape and the bits of an element. What leaves: rows and columns of shape
(elements of a thread, threads).
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

Index = npt.NDArray[np.intp]
Pair = tuple[Index, Index]


def _grid(elements: int, threads: int) -> tuple[Index, Index]:
    e, t = np.indices((elements, threads))
    return e, t


@cache
def operand_a(m: int, k: int, bits: int) -> Pair:
    """A of mma.sync, (m, k) row by row: groupID = lane / 4 names the row of 8, threadID_in_group =
    lane % 4 the place in it. A register of 32 bits has neighbours along k; of the registers, those
    of the lower 8 rows follow those of the upper, then the next columns.
    """
    per = max(1, 32 // bits)
    e, t = _grid(m * k // 32, 32)
    group, inside = t // 4, t % 4
    register, part = e // per, e % per
    halves = m // 8
    return group + 8 * (register % halves), inside * per + part + 4 * per * (register // halves)


@cache
def operand_b(k: int, n: int, bits: int) -> Pair:
    """B of mma.sync, (k, n) column by column, n = 8: groupID names the column."""
    per = max(1, 32 // bits)
    e, t = _grid(k * n // 32, 32)
    return (t % 4) * per + e % per + 4 * per * (e // per), t // 4


@cache
def result(m: int, n: int) -> Pair:
    """C and D of mma.sync, (m, n): two neighbours of a row in each pair of elements."""
    e, t = _grid(m * n // 32, 32)
    group, inside = t // 4, t % 4
    pair, halves = e // 2, m // 8
    return group + 8 * (pair % halves), inside * 2 + e % 2 + 8 * (pair // halves)


@cache
def wgmma_result(n: int) -> Pair:
    """D of wgmma, (64, n): each warp of the four has 16 rows, as two groups of 8."""
    e, t = _grid(n // 2, 128)
    row = t // 32 * 16 + t % 32 // 4 + 8 * (e // 2 % 2)
    return row, e // 4 * 8 + t % 4 * 2 + e % 2


@cache
def wgmma_operand(k: int, bits: int) -> Pair:
    """A of wgmma in registers, (64, k): each warp of the four has 16 rows, as A of mma.sync."""
    row, column = operand_a(16, k, bits)
    warps = [(row + 16 * w, column) for w in range(4)]
    return (
        np.concatenate([r for r, _ in warps], axis=1),
        np.concatenate([c for _, c in warps], axis=1),
    )
