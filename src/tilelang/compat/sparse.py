"""What programs ask about 2:4 sparse operands, by TileLang's names.

What enters: element types, as any spelling. What leaves: facts of `isa.sparsity`.
"""

from __future__ import annotations

from typing import Any, Final

from tilelang.dtypes import DType
from tilelang.isa.sparsity import elements_per_word, pattern

_TYPES = (
    "float32",
    "float16",
    "bfloat16",
    "int8",
    "uint8",
    "float8_e4m3",
    "float8_e4m3fn",
    "float8_e5m2",
)

GROUP_CONFIG: Final = {
    DType(name): (pattern(DType(name)).kept, pattern(DType(name)).group) for name in _TYPES
}
"""For each type of a sparse operand, how many of how many neighbours are kept."""


def get_e_factor(a_dtype: Any, meta_dtype: Any) -> int:
    """How many elements of the dense operand one element of metadata describes.

    ValueError for an element type that no sparse product takes.
    """
    return elements_per_word(DType(a_dtype), DType(meta_dtype))


def get_e_replicate_factor(a_dtype: Any) -> int:
    """How many neighbouring threads of a warp hold the same metadata (PTX ISA, mma.sp)."""
    return 1 if DType(a_dtype).bits <= 8 else 2
