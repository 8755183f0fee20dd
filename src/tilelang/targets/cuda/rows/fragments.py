"""Where the elements of a matrix lie in the registers of a warp or warpgroup.

What enters: a shape and an element size. What leaves: index arrays of shape (threads, elements of a
thread): `rows[t, e]` and `columns[t, e]` are the place in the matrix of element `e` of thread `t`.
Sources: PTX ISA 9.0, "Matrix Fragments for mma.m16n8k..." and "Register Fragments ... wgmma".
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Index = npt.NDArray[np.intp]


def _threads_elements(threads: int, count: int) -> tuple[Index, Index]:
    t, e = np.meshgrid(np.arange(threads), np.arange(count), indexing="ij")
    return t, e


def fragment_a(m: int, k: int, bits: int, threads: int = 32) -> tuple[Index, Index]:
    """A (m, k), row-major in pairs: 8 rows by 4 registers make a block; blocks go down, then right.

    Of `threads` 128, each warp has 16 rows of the 64.
    """
    each = max(1, 32 // bits)
    warps = threads // 32
    t, e = _threads_elements(threads, m * k // threads)
    lane, warp = t % 32, t // 32
    register, inside = e // each, e % each
    tall = min(2, m // warps // 8)
    row = warp * 16 + lane // 4 + 8 * (register % tall)
    column = lane % 4 * each + inside + 4 * each * (register // tall)
    return row, column


def fragment_b(n: int, k: int, bits: int) -> tuple[Index, Index]:
    """B (k, n), n = 8: one column for 4 lanes; the result is (rows, columns) of B."""
    each = max(1, 32 // bits)
    t, e = _threads_elements(32, n * k // 32)
    row = t % 4 * each + e % each + 4 * each * (e // each)
    return row, t // 4


def fragment_d(m: int, n: int, threads: int = 32) -> tuple[Index, Index]:
    """C and D (m, n): neighbours in pairs, 8 rows by 8 columns make a block; down, then right.

    Of `threads` 128, each warp has 16 rows of the 64.
    """
    warps = threads // 32
    t, e = _threads_elements(threads, m * n // threads)
    lane, warp = t % 32, t // 32
    tall = min(2, m // warps // 8)
    row = warp * 16 + lane // 4 + 8 * (e // 2 % tall)
    column = lane % 4 * 2 + e % 2 + 8 * (e // (2 * tall))
    return row, column


def matrix_8x8(bits: int) -> tuple[Index, Index]:
    """An 8x8 matrix of 16-bit parts as ldmatrix hands it out: (row, element of the row).

    The elements have `bits` bits, so a row of 16 bytes has 128 / bits of them.
    """
    each = 32 // bits
    t, e = _threads_elements(32, each)
    return t // 4, t % 4 * each + e
