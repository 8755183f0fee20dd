"""Where the arrays of a kernel are, and the text of accesses to them.

What enters: declarations, and indices as text. What leaves: values, and lines that write. An access
of several elements goes in the largest pieces that its alignment allows, of at most 16 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilelang.dtypes import DType
from tilelang.errors import InternalError
from tilelang.ir.thread import Array, Space
from tilelang.targets.cuda.text import Code
from tilelang.targets.cuda.types import memory_bits, memory_type, registers, value_type
from tilelang.targets.cuda.vectors import (
    Vector,
    lane_bits,
    lane_of_bits,
    of_lanes,
    of_words,
    wide_bits,
    wide_of_bits,
)


@dataclass(frozen=True)
class Place:
    """An array: its C++ name, and for shared memory of the pool its address there as text."""

    name: str
    array: Array
    size: int | None = None
    pool: str = ""

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.array.type

    @property
    def is_register(self) -> bool:
        """Whether it has no address."""
        return self.array.space is Space.REGISTER

    @property
    def is_single(self) -> bool:
        """Whether it is one value in a register, a variable."""
        return self.is_register and self.size == 1


def literal(index: str) -> int | None:
    """The value of an index that is a number."""
    return int(index) if index.lstrip("-").isdigit() else None


def _scaled(index: str, factor: int) -> str:
    known = literal(index)
    if known is not None:
        return str(known * factor)
    return index if factor == 1 else f"({index}) * {factor}"


def pointer(place: Place, index: str) -> str:
    """The generic address of an element."""
    if place.is_register:
        raise InternalError(f"the address of the register {place.name}")
    return f"{place.name} + ({index})"


def shared_address(place: Place, index: str, used: set[str]) -> str:
    """The address of an element in the window of shared memory, a u32."""
    if place.pool:
        return f"{place.pool} + u32({_scaled(index, memory_bits(place.dtype) // 8)})"
    used.add("smem")
    return f"tl::smem({pointer(place, index)})"


# Registers ---------------------------------------------------------------------------------------


def _word_at(place: Place, index: str) -> tuple[str, str]:
    """The word that has an element, and the element's place in it."""
    per = registers(place.dtype).per
    known = literal(index)
    if known is not None:
        return f"{place.name}[{known // per}]", str(known % per)
    step = per.bit_length() - 1
    return f"{place.name}[({index}) >> {step}]", f"(({index}) & {per - 1})"


def register_words(place: Place, index: str, count: int) -> list[str]:
    """The registers of `count` elements from `index` on, which begin with a whole one."""
    if place.is_single:
        return [place.name]
    form = registers(place.dtype)
    if count % form.per:
        raise InternalError(f"{count} elements of {place.name} are no whole registers")
    known, step = literal(index), form.per.bit_length() - 1
    if known is not None:
        if known % form.per:
            raise InternalError(f"{place.name}[{known}] does not begin with a whole register")
        return [f"{place.name}[{known // form.per + k}]" for k in range(count // form.per)]
    first = f"(({index}) >> {step})" if step else f"({index})"
    return [f"{place.name}[{first} + {k}]" for k in range(count // form.per)]


def _read_register(place: Place, index: str) -> str:
    if place.is_single:
        return place.name
    form = registers(place.dtype)
    if form.per == 1:
        return f"{place.name}[{index}]"
    word, at = _word_at(place, index)
    shift = str(int(at) * form.bits) if at.isdigit() else f"{at} * {form.bits}"
    return lane_of_bits(place.dtype, word if shift == "0" else f"({word} >> {shift})")


def _write_register(place: Place, index: str, value: str, used: set[str]) -> str:
    if place.is_single:
        return f"{place.name} = {value};"
    form = registers(place.dtype)
    if form.per == 1:
        return f"{place.name}[{index}] = {value};"
    word, at = _word_at(place, index)
    used.add("word_set")
    raw = lane_bits(place.dtype, value)
    return f"{word} = tl::word_set<{form.bits}>({word}, {at}, {raw});"


def _has_spare_bits(dtype: DType) -> bool:
    """Whether a byte in memory has bits that the type does not use."""
    return dtype.is_float and dtype.row.code_bits < 8


# Memory ------------------------------------------------------------------------------------------

_PIECES = {16: ("uint4", "xyzw"), 8: ("uint2", "xy"), 4: ("u32", ""), 2: ("u16", ""), 1: ("u8", "")}


def _pieces(size: int, align: int) -> list[tuple[int, int]]:
    """(offset, bytes) of the accesses that make up one of `size` bytes."""
    out: list[tuple[int, int]] = []
    at = 0
    while at < size:
        step = min(align, 16, 1 << ((size - at).bit_length() - 1))
        out.append((at, step))
        at += step
    return out


Hints = Mapping[str, Any]

_LOADS = {"ca", "cg", "cs", "lu", "cv", "nc"}
_STORES = {"wb", "cg", "cs", "wt"}
_LEVEL1 = {"no_allocate", "evict_first", "evict_last", "evict_normal"}
_LEVEL2 = {"evict_first", "evict_last", "evict_normal"}


def _operator(hints: Hints, what: str, space: Space) -> str:
    """The qualifiers of a PTX ld or st; empty for a plain access."""
    if not hints:
        return ""
    left = dict(hints)
    cache, level1, level2 = left.pop("cache", ""), left.pop("l1", ""), left.pop("l2", "")
    known = _LOADS if what == "ld" else _STORES
    good = (not cache or cache in known) and (not level1 or level1 in _LEVEL1)
    if left or not good or (level2 and level2 not in _LEVEL2) or (cache in _STORES and level1):
        raise InternalError(f"hints of an access that CUDA does not know: {dict(hints)}")
    if space is not Space.GLOBAL:
        return ""
    text = f"{what}.global"
    text += f".{cache}" if cache else ""
    text += f".L1::{level1}" if level1 else ""
    return text + (f".L2::{level2}" if level2 else "")


@dataclass
class Memory:
    """The accesses of one function."""

    code: Code
    used: set[str]

    # One element -----------------------------------------------------------------------------

    def read(self, place: Place, index: str, hints: Hints) -> str:
        """An element."""
        dtype = place.dtype
        if place.is_register:
            return _read_register(place, index)
        if hints and _operator(hints, "ld", place.array.space):
            size = memory_bits(dtype) // 8
            return self.read_vector(place, index, 1, size, hints).lanes[0]
        element = f"{place.name}[{index}]"
        plain = memory_type(dtype) == value_type(dtype) and not _has_spare_bits(dtype)
        return element if plain else lane_of_bits(dtype, f"u32({element})")

    def write(self, place: Place, index: str, value: str, hints: Hints) -> None:
        """An element."""
        dtype = place.dtype
        if place.is_register:
            self.code.add(_write_register(place, index, value, self.used))
        elif hints and _operator(hints, "st", place.array.space):
            size = memory_bits(dtype) // 8
            self.write_vector(place, index, of_lanes(dtype, [value]), size, hints)
        else:
            raw = f"u8({lane_bits(dtype, value)})" if dtype.is_subbyte else value
            self.code.add(f"{place.name}[{index}] = {raw};")

    # Several elements ------------------------------------------------------------------------

    def read_vector(self, place: Place, index: str, count: int, align: int, hints: Hints) -> Vector:
        """Neighbouring elements; the loads come before the current statement."""
        dtype = place.dtype
        if place.is_register:
            return self._from_registers(place, index, count)
        size = count * memory_bits(dtype) // 8
        operator = _operator(hints, "ld", place.array.space)
        at = self._start(place, index, "const ")
        words = [""] * (-(-size // 4))
        for offset, step in _pieces(size, align):
            name = self._load(at, offset, step, operator)
            parts = _PIECES[step][1]
            if step >= 4:
                for k in range(step // 4):
                    words[offset // 4 + k] = f"{name}.{parts[k]}" if parts else name
            else:
                shift = offset % 4 * 8
                part = f"u32({name}) << {shift}" if shift else f"u32({name})"
                before = words[offset // 4]
                words[offset // 4] = f"{before} | {part}" if before else part
        return of_words(dtype, count, [f"({w})" if "|" in w else w for w in words])

    def write_vector(
        self, place: Place, index: str, value: Vector, align: int, hints: Hints
    ) -> None:
        """Neighbouring elements."""
        dtype = place.dtype
        if place.is_register:
            self._to_registers(place, index, value)
            return
        size = value.count * memory_bits(dtype) // 8
        operator = _operator(hints, "st", place.array.space)
        at = self._start(place, index, "")
        words = value.words
        for offset, step in _pieces(size, align):
            if step >= 4:
                parts = words[offset // 4 : (offset + step) // 4]
            else:
                shift = offset % 4 * 8
                word = words[offset // 4]
                parts = [f"({word}) >> {shift}" if shift else word]
            self._store(at, offset, step, parts, operator)

    def _start(self, place: Place, index: str, const: str) -> str:
        name, at = self.code.name(), pointer(place, index)
        self.code.add(f"{const}u8* const {name} = reinterpret_cast<{const}u8*>({at});")
        return name

    def _load(self, at: str, offset: int, step: int, operator: str) -> str:
        kind, parts = _PIECES[step]
        name = self.code.name()
        address = f"{at} + {offset}" if offset else at
        if not operator:
            self.code.add(f"const {kind} {name} = *reinterpret_cast<const {kind}*>({address});")
            return name
        self.code.add(f"{kind} {name};")
        outs = [f"{name}.{p}" for p in parts] or [name]
        if step == 1:
            raise InternalError("a hint on an access of one byte")
        regs, width = _asm_list(len(outs)), step * 8 // len(outs)
        letter = "h" if width == 16 else "r"
        vector = f".v{len(outs)}" if len(outs) > 1 else ""
        self.code.add(
            f'asm volatile("{operator}{vector}.b{width} {regs}, [%{len(outs)}];" : '
            + ", ".join(f'"={letter}"({x})' for x in outs)
            + f' : "l"({address}) : "memory");'
        )
        return name

    def _store(self, at: str, offset: int, step: int, parts: Sequence[str], operator: str) -> None:
        kind, fields = _PIECES[step]
        address = f"{at} + {offset}" if offset else at
        if operator:
            width = step * 8 // len(parts)
            letter = "h" if width == 16 else "r"
            vector = f".v{len(parts)}" if len(parts) > 1 else ""
            given = [f"u16({p})" if width == 16 else p for p in parts]
            self.code.add(
                f'asm volatile("{operator}{vector}.b{width} [%{len(parts)}], '
                f'{_asm_list(len(parts))};" :: '
                + ", ".join(f'"{letter}"({x})' for x in given)
                + f', "l"({address}) : "memory");'
            )
            return
        made = f"make_{kind}({', '.join(parts)})" if fields else f"{kind}({parts[0]})"
        self.code.add(f"*reinterpret_cast<{kind}*>({address}) = {made};")

    def _from_registers(self, place: Place, index: str, count: int) -> Vector:
        form, known = registers(place.dtype), literal(index)
        whole = form.per > 1 and count % form.per == 0
        if whole and known is not None and known % form.per == 0:
            return of_words(place.dtype, count, register_words(place, index, count))
        lanes = [_read_register(place, added(index, k)) for k in range(count)]
        return of_lanes(place.dtype, lanes)

    def _to_registers(self, place: Place, index: str, value: Vector) -> None:
        form, known = registers(place.dtype), literal(index)
        whole = form.per > 1 and value.count % form.per == 0
        if whole and known is not None and known % form.per == 0:
            names = register_words(place, index, value.count)
            for name, word in zip(names, value.words, strict=True):
                self.code.add(f"{name} = {word};")
            return
        for k, lane in enumerate(value.lanes):
            self.code.add(_write_register(place, added(index, k), lane, self.used))


def added(index: str, k: int) -> str:
    """An index and a number."""
    known = literal(index)
    return str(known + k) if known is not None else f"({index}) + {k}" if k else index


def _asm_list(count: int) -> str:
    names = ", ".join(f"%{k}" for k in range(count))
    return f"{{{names}}}" if count > 1 else names


def raw_bits(dtype: DType, x: str) -> str:
    """The bits of a scalar as an unsigned integer of its size."""
    if dtype.bits == 64:
        return wide_bits(dtype, x)
    bits = lane_bits(dtype, x)
    return bits if dtype.bits == 32 else f"u{memory_bits(dtype)}({bits})"


def of_raw_bits(dtype: DType, x: str) -> str:
    """The scalar of these bits."""
    return wide_of_bits(dtype, x) if dtype.bits == 64 else lane_of_bits(dtype, f"u32({x})")


def declaration(place: Place, size: int, align: int) -> str:
    """The line that gives a register or local array storage."""
    dtype = place.dtype
    if place.is_single:
        return f"{value_type(dtype)} {place.name};"
    if place.is_register:
        form = registers(dtype)
        # Elements that share a word are written one by one, which keeps the rest of the word.
        start = " = {}" if form.per > 1 else ""
        return f"{form.word} {place.name}[{max(1, form.words(size))}]{start};"
    head = f"alignas({align}) " if align else ""
    return f"{head}{memory_type(dtype)} {place.name}[{max(1, size)}];"
