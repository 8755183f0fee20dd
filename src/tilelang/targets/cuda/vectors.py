"""Vector values as text: by lane, or by the 32-bit words that memory and instructions move.

What enters: texts of lanes or of words. What leaves: the other form. A lane is a scalar as
`types.value_type` has it; words hold the elements packed, low bits first, as memory does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tilelang.dtypes import DType
from tilelang.targets.cuda.types import memory_bits, value_type


def lane_bits(dtype: DType, x: str) -> str:
    """The bits of a lane of at most 32 bits, at the bottom of a u32."""
    kind = value_type(dtype)
    if kind == "float":
        return f"__float_as_uint({x})"
    if dtype.is_subbyte:
        return f"(u32({x}) & {(1 << dtype.bits) - 1}u)"
    if kind in ("i8", "i16"):
        return f"u32(u{kind[1:]}({x}))"
    return x if kind == "u32" else f"u32({x})"


def lane_of_bits(dtype: DType, x: str) -> str:
    """The lane whose bits are at the bottom of the u32 `x`; what is above does not count."""
    kind = value_type(dtype)
    if kind == "float":
        return f"__uint_as_float({x})"
    if dtype.is_bool:
        return f"(u8({x}) != 0)"
    used = dtype.row.code_bits if dtype.is_float else dtype.bits
    if used < 8:  # the caller's byte may have anything above them
        if dtype.is_int:
            return f"i8(i32(({x}) << {32 - used}) >> {32 - used})"
        return f"u8(({x}) & {(1 << used) - 1}u)"
    return x if kind == "u32" else f"{kind}({x})"


def wide_bits(dtype: DType, x: str) -> str:
    """The bits of a lane of 64 bits, as a u64."""
    if dtype.is_float:
        return f"u64(__double_as_longlong({x}))"
    return x if value_type(dtype) == "u64" else f"u64({x})"


def wide_of_bits(dtype: DType, x: str) -> str:
    """The lane of 64 bits whose bits are the u64 `x`."""
    if dtype.is_float:
        return f"__longlong_as_double(i64({x}))"
    return x if value_type(dtype) == "u64" else f"{value_type(dtype)}({x})"


def lane_of_words(dtype: DType, words: Sequence[str], k: int) -> str:
    """Lane `k` of packed words."""
    if dtype.bits == 64:
        return wide_of_bits(dtype, f"(u64({words[2 * k + 1]}) << 32 | {words[2 * k]})")
    at = k * memory_bits(dtype)
    word, shift = words[at // 32], at % 32
    return lane_of_bits(dtype, f"{word} >> {shift}" if shift else word)


def words_of_lanes(dtype: DType, lanes: Sequence[str]) -> list[str]:
    """Lanes as packed words; the last may have zeros at its top."""
    if dtype.bits == 64:
        wide = [wide_bits(dtype, x) for x in lanes]
        return [half for x in wide for half in (f"u32({x})", f"u32({x} >> 32)")]
    bits = memory_bits(dtype)
    parts: list[list[str]] = [[] for _ in range(-(-len(lanes) * bits // 32))]
    for k, x in enumerate(lanes):
        at = k * bits
        raw, shift = lane_bits(dtype, x), at % 32
        parts[at // 32].append(f"{raw} << {shift}" if shift else raw)
    return [p[0] if len(p) == 1 else f"({' | '.join(p)})" for p in parts]


@dataclass(frozen=True)
class Vector:
    """A value of `dtype` (a scalar type) in `count` lanes, given by lane or by word."""

    dtype: DType
    count: int
    by_lane: tuple[str, ...] | None = None
    by_word: tuple[str, ...] | None = None

    @cached_property
    def lanes(self) -> tuple[str, ...]:
        """The text of each lane."""
        if self.by_lane is not None:
            return self.by_lane
        words = self.by_word or ()
        return tuple(lane_of_words(self.dtype, words, k) for k in range(self.count))

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The text of each packed word."""
        if self.by_word is not None:
            return self.by_word
        return tuple(words_of_lanes(self.dtype, self.by_lane or ()))


def of_lanes(dtype: DType, lanes: Sequence[str]) -> Vector:
    """A vector by lane."""
    return Vector(dtype.base, len(lanes), by_lane=tuple(lanes))


def of_words(dtype: DType, count: int, words: Sequence[str]) -> Vector:
    """A vector by word."""
    return Vector(dtype.base, count, by_word=tuple(words))
