"""Structured sparsity: which elements of a group a sparse matrix unit keeps, and its metadata.

What enters: an element type. What leaves: the pattern of its groups along K. Source: the PTX ISA,
mma.sp, "Sparse matrix storage": the metadata of each group are two positions of two bits, lowest
bits first. Of 32 bit types the positions are those of the two halves of the one element kept.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilelang.dtypes import DType

GROUP_BITS = 4
"""The metadata bits of a group, of any type."""


@dataclass(frozen=True)
class Pattern:
    """`kept` of every `group` neighbouring elements are stored."""

    kept: int
    group: int

    @property
    def bits(self) -> int:
        """The metadata bits of one stored element."""
        return GROUP_BITS // self.kept


def pattern(dtype: DType) -> Pattern:
    """The pattern of a type. ValueError for types that no sparse unit takes."""
    if dtype.bits > 32 or dtype.lanes > 1:
        raise ValueError(f"no sparse product takes {dtype}")
    return Pattern(1, 2) if dtype.bits == 32 else Pattern(2, 4)


def elements_per_word(dtype: DType, meta: DType) -> int:
    """How many elements of the dense operand one element of metadata describes."""
    return meta.bits // GROUP_BITS * pattern(dtype).group
