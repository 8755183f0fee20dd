"""Functions of the vector units of A2 and A3 that move elements, in AscendC: gathers, progressions,
transposes, sorting.

What leaves: `MOVES`, a printer for each row.
"""

from __future__ import annotations

from tilelang.dtypes import DType
from tilelang.ir.expr import int_value
from tilelang.ir.thread import Instr, Slot
from tilelang.targets.ascend.emit.ascendc_common import (
    BLOCK,
    BYTES,
    MOVED,
    REAL,
    at,
    helper,
    needs,
    scalars,
    slots,
    typed,
    values_of,
)
from tilelang.targets.ascend.emit.statements import Printer, Statements
from tilelang.targets.ascend.emit.text import type_of, unprintable

# Places -------------------------------------------------------------------------------------------


def _offset(x: Statements, slot: Slot) -> str:
    text = at(x, slot)
    return text if str(slot.dtype) == "uint32" else f"{text}.ReinterpretCast<uint32_t>()"


def _gather(x: Statements, stmt: Instr) -> None:
    (dst,), (src, offset) = stmt.outs, slots(stmt)
    base, count, _ = scalars(x, stmt)
    needs(stmt, dst.dtype, MOVED, "gathers")
    places = f"{at(x, dst)}, {at(x, src)}, {_offset(x, offset)}"
    x.text.line(f"Gather({places}, (uint32_t){base}, {count});")


def _gather_blocks(x: Statements, stmt: Instr) -> None:
    (dst,), (src, offset) = stmt.outs, slots(stmt)
    count, _ = values_of(stmt)
    known = int_value(count)
    if known is None or known % 8:
        raise unprintable(stmt, "gathers of no multiple of 8 blocks")
    needs(stmt, dst.dtype, MOVED, "gathers of blocks")
    word = f".ReinterpretCast<uint{8 * dst.array.type.bytes}_t>()"
    places = f"{at(x, dst)}{word}, {at(x, src)}{word}, {_offset(x, offset)}"
    x.text.line(f"Gatherb({places}, {known // 8}, GatherRepeatParams(1, 8));")


_PATTERNS = {"P0101": 1, "P1010": 2, "P0001": 3, "P0010": 4, "P0100": 5, "P1000": 6, "P1111": 7}


def _gather_mask(x: Statements, stmt: Instr) -> None:
    (dst,), (src,) = stmt.outs, slots(stmt)
    count, _ = scalars(x, stmt)
    needs(stmt, dst.dtype, MOVED, "gathers by a pattern")
    pattern = _PATTERNS[dict(stmt.imm)["pattern"]]
    with x.text.inside(""):
        x.text.line("uint64_t kept = 0;")
        x.text.line(
            f"GatherMask({at(x, dst)}, {at(x, src)}, {pattern}, true, {count},"
            " GatherMaskParams(1, 1, 8, 0), kept);"
        )


def _gather_bits(x: Statements, stmt: Instr) -> None:
    """By bits of a tensor, which one repeat uses up one after the other."""
    (dst,), (src, mask) = stmt.outs, slots(stmt)
    count, _, words = values_of(stmt)
    needs(stmt, dst.dtype, MOVED, "gathers by a mask")
    many, bits = int_value(count), (int_value(words) or 0) * mask.array.type.bits
    if many is None or bits < many:
        raise unprintable(stmt, f"gathers by {bits} bits, which repeat,")
    pattern = f"{at(x, mask)}.ReinterpretCast<uint{dst.array.type.bits}_t>()"
    with x.text.inside(""):
        x.text.line("uint64_t kept = 0;")
        x.text.line(
            f"GatherMask({at(x, dst)}, {at(x, src)}, {pattern}, true, {many},"
            " GatherMaskParams(1, 1, 8, 0), kept);"
        )


def _progression(x: Statements, stmt: Instr) -> None:
    """The bits of an unsigned progression are those of the signed one."""
    (dst,) = stmt.outs
    first, step, count = values_of(stmt)
    name = str(dst.dtype)
    signed = DType(name.removeprefix("u"))
    half = name == "float16"
    needs(stmt, signed, ("int16", "int32", *REAL), "progressions")
    called, scratch = helper(x, stmt, "progression_half" if half else "progression")
    element = type_of(signed, stmt)
    place = at(x, dst) + (f".ReinterpretCast<{element}>()" if signed != dst.dtype else "")
    ends = ", ".join(
        typed(x, stmt, v, signed) if signed == dst.dtype else f"({element}){x.of(v)}"
        for v in (first, step)
    )
    x.text.line(f"{called}({place}, {scratch}{ends}, {x.of(count)});")


def _transpose(x: Statements, stmt: Instr) -> None:
    """By blocks where rows and columns are whole ones, else column by column; bytes that are no
    whole blocks, one by one.
    """
    (dst,), (src,) = stmt.outs, slots(stmt)
    values = values_of(stmt)
    rows, columns = (int_value(v) for v in values[:2])
    size = dst.dtype.bytes
    needs(stmt, dst.dtype, (*MOVED, *BYTES), "transposes")
    whole = rows is not None and columns is not None and columns * size % BLOCK == 0
    if whole and rows is not None and rows % (BLOCK if size == 1 else 16) == 0:
        name = "transpose_blocks"
    else:
        name = "transpose_columns" if size > 1 else "transpose_elements"
    called, scratch = helper(x, stmt, name)
    sizes = ", ".join(x.of(v) for v in values)
    word = f".ReinterpretCast<uint{8 * size}_t>()"
    x.text.line(f"{called}({at(x, dst)}{word}, {at(x, src)}{word}, {scratch}{sizes});")


# Sorting ------------------------------------------------------------------------------------------

_LONGEST = 4095
"""Pairs of one list that MrgSort merges (its page)."""


def _sort32(x: Statements, stmt: Instr) -> None:
    (dst,), (src, index) = stmt.outs, slots(stmt)
    count = int_value(values_of(stmt)[0])
    if count is None or count % 32:
        raise unprintable(stmt, "sorts of no multiple of 32 elements")
    x.text.line(f"Sort32({at(x, dst)}, {at(x, src)}, {at(x, index)}, {count // 32});")


def _sort(x: Statements, stmt: Instr) -> None:
    """All pairs of UB, in a temporary of twice as many on both sides of a merge."""
    (dst,), (src,) = stmt.outs, slots(stmt)
    n, count, made = values_of(stmt)
    known = int_value(count)
    padded = -(-(known or 0) // 32) * 32
    if known is None or padded > 2 * (_LONGEST + 1):
        raise unprintable(stmt, f"sorts of more than {2 * (_LONGEST + 1)} elements")
    called, scratch = helper(x, stmt, "sort_pairs", 16 * padded)
    sizes = ", ".join(x.of(v) for v in (n, count, made))
    x.text.line(f"{called}({at(x, dst)}, {at(x, src)}, {scratch}{sizes});")


def _merge(x: Statements, stmt: Instr) -> None:
    (dst,), lists = stmt.outs, slots(stmt)
    made, *counts = (int_value(v) for v in values_of(stmt))
    needs(stmt, dst.dtype, ("float32",), "merges")  # a pair of halves is no word of MrgSort
    whole = [n for n in counts if n is not None and n // 2 <= _LONGEST]
    if len(whole) != len(lists) or made is None or sum(whole) > made:
        raise unprintable(stmt, "merges of lists that are longer than their room")
    places = [at(x, s) for s in lists]
    places += places[:1] * (4 - len(places))
    lengths = [str(n // 2) for n in whole] + ["0"] * (4 - len(whole))
    arguments = ", ".join([at(x, dst), *places, *lengths])
    x.text.line(f"{x.text.helper('merge_pairs')}({arguments});")


MOVES: dict[str, Printer] = {
    "v.gather": _gather,
    "v.gatherb": _gather_blocks,
    "v.gather_mask": _gather_mask,
    "v.gather_mask.b": _gather_bits,
    "v.progression": _progression,
    "v.transpose": _transpose,
    "v.sort32": _sort32,
    "v.sort": _sort,
    **{f"v.merge_sort.{ways}": _merge for ways in (2, 3, 4)},
}
"""A printer for each row that moves elements."""
