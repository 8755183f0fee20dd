"""Vector functions of A2 and A3 in AscendC: a printer for each row of the vector units.

What enters: an instruction, and the kernel's printer, which gives a place for temporaries. What
leaves: `VECTOR_ROWS`. Which types a function takes is from its page of the AscendC API; a tile
whose rows do not begin at a block of 32 bytes, or a type that no function takes, is refused by
name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from tilelang.dtypes import DType
from tilelang.ir.ascend import VECTOR_CASTS
from tilelang.ir.expr import Const, Expr, int_value
from tilelang.ir.thread import Instr, Slot
from tilelang.targets.ascend.emit.ascendc_helpers import SCRATCH
from tilelang.targets.ascend.emit.statements import Printer, Statements
from tilelang.targets.ascend.emit.text import type_of, unprintable

if TYPE_CHECKING:
    from tilelang.targets.ascend.emit.ascendc import AscendC

BLOCK = 32
_REPEAT = 256

_REAL = ("float16", "float32")
_ARITHMETIC = (*_REAL, "int16", "int32")
_SHIFTED = ("int16", "uint16", "int32", "uint32")
MOVED = ("int16", "uint16", "float16", "bfloat16", "int32", "uint32", "float32")
"""Types of 16 and 32 bits: those of functions that only move elements."""


def at(x: Statements, slot: Slot, more: str = "") -> str:
    """A tensor from the slot's first element on, or from `more` elements behind it."""
    index = x.of(slot.index)
    total = " + ".join(p for p in (index if index != "0" else "", more) if p)
    return f"{slot.array.name}[{total}]" if total else slot.array.name


def values_of(stmt: Instr) -> list[Expr]:
    """The operands that are scalars."""
    return [cast("Expr", e) for e in stmt.ins if not isinstance(e, Slot)]


def scalars(x: Statements, stmt: Instr) -> list[str]:
    """The text of the operands that are scalars."""
    return [x.of(e) for e in values_of(stmt)]


def slots(stmt: Instr) -> list[Slot]:
    """The operands that are read and are elements of arrays."""
    return [e for e in stmt.ins if isinstance(e, Slot)]


def needs(stmt: Instr, dtype: DType, allowed: Sequence[str], what: str) -> None:
    """Refuse a type that the function's page does not have."""
    if str(dtype) not in allowed:
        raise unprintable(stmt, f"{what} of {dtype}")


def need_rows(stmt: Instr, rows: Expr, pitches: Sequence[tuple[Expr, Slot]]) -> None:
    """Refuse rows that do not begin at a block."""
    if int_value(rows) == 1:
        return
    for pitch, slot in pitches:
        step = int_value(pitch)
        if step is not None and step * slot.array.type.bytes % BLOCK:
            raise unprintable(stmt, f"rows of {step} {slot.dtype}, which begin between blocks,")


def typed(x: Statements, stmt: Instr, value: Expr, dtype: DType) -> str:
    """A scalar of exactly the type that the API compares with the tensor's."""
    text = x.of(value)
    cast_to = f"({type_of(dtype, stmt)})"
    plain = str(dtype) in ("float32", "int32") and value.dtype == dtype
    return text if plain or text.startswith(cast_to) else cast_to + text


def by_row(x: Statements, rows: Expr, call: Sequence[str]) -> None:
    """Calls for each row; `row` counts them."""
    if int_value(rows) == 1:
        for line in call:
            x.text.line(line)
        return
    with x.text.inside(f"for (int32_t row = 0; row < {x.of(rows)}; ++row)"):
        for line in call:
            x.text.line(line)


def row_of(x: Statements, slot: Slot, rows: Expr, pitch: Expr) -> str:
    """The slot's row in `by_row`."""
    still = int_value(rows) == 1 or int_value(pitch) == 0
    return at(x, slot, "" if still else f"row * {x.of(pitch)}")


def _kernel(x: Statements) -> AscendC:
    return cast("AscendC", x)


def helper(x: Statements, stmt: Instr, name: str) -> tuple[str, str]:
    """A function of ours by name, and the argument that is its place for temporaries."""
    size = SCRATCH.get(name, 0)
    return x.text.helper(name), f"{_kernel(x).scratch(size, stmt)}, " if size else ""


# Elementwise --------------------------------------------------------------------------------------


class _Row:
    """An elementwise instruction taken apart: its sources, its scalars, its strides."""

    def __init__(self, x: Statements, stmt: Instr, given: int) -> None:
        (self.dst,), self.srcs = stmt.outs, slots(stmt)
        values = values_of(stmt)
        self.given, (self.rows, self.columns, pitch, *steps) = values[:given], values[given:]
        for step in steps[1::2]:
            if int_value(step) != 1:
                raise unprintable(stmt, "vector operations on elements that are no neighbours")
        all_slots = [self.dst, *self.srcs]
        pitches = [pitch, *steps[::2]]
        need_rows(stmt, self.rows, list(zip(pitches, all_slots, strict=True)))
        self.places = [row_of(x, s, self.rows, p) for s, p in zip(all_slots, pitches, strict=True)]
        self.count = x.of(self.columns)
        self.dtype = self.dst.dtype


def _plain(name: str, allowed: Sequence[str], given: int = 0) -> Printer:
    """`name(dst, sources..., scalars..., count)`, a call for each row."""

    def printer(x: Statements, stmt: Instr) -> None:
        row = _Row(x, stmt, given)
        needs(stmt, row.dtype, allowed, name)
        texts = [typed(x, stmt, v, row.dtype) for v in row.given]
        by_row(x, row.rows, [f"{name}({', '.join([*row.places, *texts, row.count])});"])

    return printer


def _binary(name: str, allowed: Sequence[str]) -> Printer:
    """The same of two tiles, of which one may be a column: an element for each row."""
    plain = _plain(name, allowed)

    def printer(x: Statements, stmt: Instr) -> None:
        rows, columns, dst_pitch, *strides = values_of(stmt)
        steps = [int_value(s) for s in strides]
        columns_at = [k for k in (0, 1) if steps[2 * k : 2 * k + 2] == [1, 0]]
        if len(columns_at) != 1:
            plain(x, stmt)
            return
        (dst,), srcs = stmt.outs, slots(stmt)
        needs(stmt, dst.dtype, allowed, name)
        which = columns_at[0]
        tile, pitch = srcs[1 - which], strides[2 * (1 - which)]
        if steps[2 * (1 - which) + 1] != 1:
            raise unprintable(stmt, "vector operations on elements that are no neighbours")
        need_rows(stmt, rows, [(dst_pitch, dst), (pitch, tile)])
        called, scratch = helper(x, stmt, f"{name.lower()}_{'column' if which else 'of_column'}")
        places = ", ".join(at(x, s) for s in (dst, tile, srcs[which]))
        sizes = ", ".join(x.of(v) for v in (rows, columns, dst_pitch, pitch))
        x.text.line(f"{called}({places}, {scratch}{sizes});")

    return printer


def _ours(name: str, allowed: Sequence[str], given: int = 0) -> Printer:
    """The same of one of our functions: temporaries stand before the scalars."""

    def printer(x: Statements, stmt: Instr) -> None:
        row = _Row(x, stmt, given)
        needs(stmt, row.dtype, allowed, name)
        called, scratch = helper(x, stmt, name)
        texts = [typed(x, stmt, v, row.dtype) for v in row.given]
        tail = f"{scratch}{', '.join([*texts, row.count])}"
        by_row(x, row.rows, [f"{called}({', '.join(row.places)}, {tail});"])

    return printer


def _bits(name: str, *, ours: bool = False) -> Printer:
    """A function of bits: it knows elements of 16 bits, so others are taken as such."""

    def printer(x: Statements, stmt: Instr) -> None:
        row = _Row(x, stmt, 0)
        size = row.dtype.bytes
        columns = int_value(row.columns)
        if size == 1 and (columns is None or columns % 2):
            raise unprintable(stmt, f"{name} of an odd number of {row.dtype}")
        count = f"({row.count}) * {size} / 2" if size != 2 else row.count
        places = [f"{p}.ReinterpretCast<uint16_t>()" for p in row.places]
        called, scratch = helper(x, stmt, name) if ours else (name, "")
        by_row(x, row.rows, [f"{called}({', '.join(places)}, {scratch}{count});"])

    return printer


def _bits_by(name: str) -> Printer:
    """The same with a scalar of 16 or 32 bits: one whose halves differ has no form."""

    def printer(x: Statements, stmt: Instr) -> None:
        row = _Row(x, stmt, 1)
        needs(stmt, row.dtype, ("int16", "uint16"), f"{name} by a scalar")
        called, scratch = helper(x, stmt, name)
        value = typed(x, stmt, row.given[0], row.dtype)
        by_row(x, row.rows, [f"{called}({', '.join(row.places)}, {scratch}{value}, {row.count});"])

    return printer


def _negated(x: Statements, stmt: Instr) -> None:
    row = _Row(x, stmt, 0)
    needs(stmt, row.dtype, _ARITHMETIC, "neg")
    minus = "-1.0f" if str(row.dtype) == "float32" else f"({type_of(row.dtype, stmt)})-1"
    by_row(x, row.rows, [f"Muls({', '.join(row.places)}, {minus}, {row.count});"])


def _less_scalar(x: Statements, stmt: Instr) -> None:
    """a - b is a + (-b) of floats and of integers that wrap."""
    row = _Row(x, stmt, 1)
    needs(stmt, row.dtype, _ARITHMETIC, "sub by a scalar")
    value = f"({type_of(row.dtype, stmt)})(-{typed(x, stmt, row.given[0], row.dtype)})"
    by_row(x, row.rows, [f"Adds({', '.join(row.places)}, {value}, {row.count});"])


def _clamp(x: Statements, stmt: Instr) -> None:
    row = _Row(x, stmt, 2)
    needs(stmt, row.dtype, _ARITHMETIC, "clamp")
    low, high = (typed(x, stmt, v, row.dtype) for v in row.given)
    dst, src = row.places
    by_row(
        x,
        row.rows,
        [
            f"Maxs({dst}, {src}, {low}, {row.count});",
            "PipeBarrier<PIPE_V>();",
            f"Mins({dst}, {dst}, {high}, {row.count});",
        ],
    )


def _rounded(x: Statements, stmt: Instr) -> None:
    row = _Row(x, stmt, 0)
    needs(stmt, row.dtype, ("float32",), "round")
    call = f"Cast({', '.join(row.places)}, RoundMode::CAST_RINT, {row.count});"
    by_row(x, row.rows, [call])


# Copies within UB ---------------------------------------------------------------------------------


def _part(x: Statements, stmt: Instr, dst: str, src: str, count: Expr, dtype: DType) -> str:
    """The call that copies some neighbours, whole blocks or not."""
    known = int_value(count)
    if known is not None and known * dtype.bytes % BLOCK == 0:
        return f"DataCopy({dst}, {src}, {known});"
    needs(stmt, dtype, MOVED, "copies of parts of blocks")
    return f"{x.text.helper('copy_part')}({dst}, {src}, {x.of(count)});"


def _within_ub(x: Statements, stmt: Instr) -> None:
    (dst,), (src,) = stmt.outs, slots(stmt)
    rows, columns, src_pitch, dst_pitch = values_of(stmt)
    need_rows(stmt, rows, [(src_pitch, src), (dst_pitch, dst)])
    a, b = row_of(x, dst, rows, dst_pitch), row_of(x, src, rows, src_pitch)
    by_row(x, rows, [_part(x, stmt, a, b, columns, dst.dtype)])


def _duplicate(x: Statements, stmt: Instr) -> None:
    (dst,) = stmt.outs
    value, rows, columns, pitch = values_of(stmt)
    need_rows(stmt, rows, [(pitch, dst)])
    by_row(x, rows, [filled(x, stmt, dst, row_of(x, dst, rows, pitch), value, columns)])


def filled(x: Statements, stmt: Instr, dst: Slot, place: str, value: Expr, columns: Expr) -> str:
    """The call that fills neighbours; bytes are filled in pairs, which only equal ones can be."""
    dtype = dst.dtype
    if dtype.bytes == 1:
        known, count = value.value if isinstance(value, Const) else None, int_value(columns)
        if known is None or count is None or count % 2:
            raise unprintable(stmt, f"fills of {dtype} that are no constant in pairs of bytes")
        byte = int(known) & 0xFF
        place = f"{place}.ReinterpretCast<uint16_t>()"
        return f"Duplicate({place}, (uint16_t){byte * 257}, {count // 2});"
    needs(stmt, dtype, MOVED, "fills")
    return f"Duplicate({place}, {typed(x, stmt, value, dtype)}, {x.of(columns)});"


def _broadcast(x: Statements, stmt: Instr) -> None:
    (dst,), (src,) = stmt.outs, slots(stmt)
    rows, columns, dst_pitch, pitch, step = values_of(stmt)
    need_rows(stmt, rows, [(dst_pitch, dst)])
    needs(stmt, dst.dtype, MOVED, "broadcasts")
    if int_value(step) == 1:
        need_rows(stmt, rows, [(pitch, src)])
        a, b = row_of(x, dst, rows, dst_pitch), row_of(x, src, rows, pitch)
        by_row(x, rows, [_part(x, stmt, a, b, columns, dst.dtype)])
        return
    if int_value(step) != 0 or int_value(pitch) != 1:
        raise unprintable(stmt, "broadcasts of elements that are no neighbours")
    called, scratch = helper(x, stmt, "expand_column")
    sizes = ", ".join(x.of(v) for v in (rows, columns, dst_pitch))
    x.text.line(f"{called}({at(x, dst)}, {at(x, src)}, {scratch}{sizes});")


def _cast(x: Statements, stmt: Instr) -> None:
    (dst,), (src,) = stmt.outs, slots(stmt)
    rows, columns, src_pitch, dst_pitch = values_of(stmt)
    need_rows(stmt, rows, [(src_pitch, src), (dst_pitch, dst)])
    mode = dict(stmt.imm).get("rounding") or "CAST_NONE"
    modes = VECTOR_CASTS.get(str(src.dtype), {}).get(str(dst.dtype))
    if modes is None:
        raise unprintable(stmt, f"conversions of {src.dtype} into {dst.dtype}")
    if mode not in modes:
        # What is exact has no mode; what must be rounded is, to the nearest even, without one.
        exact = modes == ("CAST_NONE",)
        if not exact and mode != "CAST_NONE":
            raise unprintable(stmt, f"conversions of {src.dtype} into {dst.dtype} by {mode}")
        mode = "CAST_NONE" if exact else "CAST_RINT"
    a, b = row_of(x, dst, rows, dst_pitch), row_of(x, src, rows, src_pitch)
    by_row(x, rows, [f"Cast({a}, {b}, RoundMode::{mode}, {x.of(columns)});"])


# Choices ------------------------------------------------------------------------------------------


def _compare(x: Statements, stmt: Instr) -> None:
    (dst,), (a, *more) = stmt.outs, slots(stmt)
    mode = dict(stmt.imm)["mode"]
    *given, count = values_of(stmt)
    if not (str(a.dtype) in _REAL or (str(a.dtype) == "int32" and mode == "EQ")):
        raise unprintable(stmt, f"comparisons {mode} of {a.dtype}")
    places = ", ".join(at(x, s) for s in (dst, a, *more))
    scalar = f", {typed(x, stmt, given[0], a.dtype)}" if given else ""
    name = "Compares" if given else "Compare"
    known = int_value(count)
    if known is not None and known * a.array.type.bytes % _REPEAT == 0:
        x.text.line(f"{name}({places}{scalar}, CMPMODE::{mode}, {known});")
        return
    # What is behind the last 256 bytes would be left out.
    called, scratch = helper(x, stmt, f"{name.lower()}_part")
    x.text.line(f"{called}({places}{scalar}, {scratch}CMPMODE::{mode}, {x.of(count)});")


def _select(x: Statements, stmt: Instr) -> None:
    """By bits; a mask of the first mode has those of one repeat, which all repeats use."""
    (dst,), (mask, a, *more) = stmt.outs, slots(stmt)
    *given, count = values_of(stmt)
    needs(stmt, dst.dtype, MOVED, "choices")
    repeated = "true" if dict(stmt.imm)["mode"] == "VSEL_CMPMASK_SPR" else "false"
    bits = at(x, mask)
    if str(mask.dtype) != "uint8":
        bits += ".ReinterpretCast<uint8_t>()"
    name = x.text.helper("choose_scalar" if given else "choose")
    b = typed(x, stmt, given[0], dst.dtype) if given else at(x, more[0])
    x.text.line(f"{name}({at(x, dst)}, {bits}, {at(x, a)}, {b}, {x.of(count)}, {repeated});")


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


def _progression(x: Statements, stmt: Instr) -> None:
    (dst,) = stmt.outs
    first, step, count = values_of(stmt)
    needs(stmt, dst.dtype, ("int16", "int32", "float32"), "progressions")
    name = x.text.helper("progression")
    ends = ", ".join(typed(x, stmt, v, dst.dtype) for v in (first, step))
    x.text.line(f"{name}({at(x, dst)}, {ends}, {x.of(count)});")


# Reductions ---------------------------------------------------------------------------------------


def _reduce(op: str, *, goes_on: bool) -> Printer:
    more = "true" if goes_on else "false"

    def printer(x: Statements, stmt: Instr) -> None:
        (dst,), (src,) = stmt.outs, slots(stmt)
        outer, n, inner, src_pitch, src_step, dst_pitch = values_of(stmt)
        if int_value(inner) == 1 and int_value(src_step) == 1:
            needs(stmt, dst.dtype, _REAL, f"reduce_{op}")
            need_rows(stmt, outer, [(src_pitch, src)])
            if int_value(dst_pitch) != 1 and int_value(outer) != 1:
                raise unprintable(stmt, "results of a reduction that are no neighbours")
            name, scratch = helper(x, stmt, f"reduce_rows_{op}")
            sizes = ", ".join(x.of(v) for v in (outer, n, src_pitch))
            x.text.line(f"{name}({at(x, dst)}, {at(x, src)}, {scratch}{sizes}, {more});")
            return
        needs(stmt, dst.dtype, _ARITHMETIC, f"reduce_{op}")
        need_rows(stmt, n, [(src_step, src)])
        need_rows(stmt, outer, [(src_pitch, src), (dst_pitch, dst)])
        name = x.text.helper(f"reduce_columns_{op}")
        a, b = row_of(x, dst, outer, dst_pitch), row_of(x, src, outer, src_pitch)
        sizes = ", ".join(x.of(v) for v in (n, inner, src_step))
        by_row(x, outer, [f"{name}({a}, {b}, {sizes}, {more});"])

    return printer


VECTOR_ROWS: dict[str, Printer] = {
    "ub.ub": _within_ub,
    "v.cast": _cast,
    "v.dup": _duplicate,
    "v.broadcast": _broadcast,
    **{
        f"v.{op}": _plain(name, _REAL)
        for op, name in (
            ("exp", "Exp"),
            ("ln", "Ln"),
            ("abs", "Abs"),
            ("reciprocal", "Reciprocal"),
            ("sqrt", "Sqrt"),
            ("rsqrt", "Rsqrt"),
            ("mul_add_dst", "MulAddDst"),
            ("axpy", "MulAddDst"),
        )
    },
    **{
        f"v.{op}": _binary(name, _ARITHMETIC)
        for op, name in (
            ("add", "Add"), ("sub", "Sub"), ("mul", "Mul"), ("max", "Max"), ("min", "Min"),
        )
    },
    **{
        f"v.{op}.s": _plain(name, _ARITHMETIC, 1)
        for op, name in (("add", "Adds"), ("mul", "Muls"), ("max", "Maxs"), ("min", "Mins"))
    },
    "v.div": _binary("Div", _REAL),
    "v.relu": _plain("Relu", (*_REAL, "int32")),
    "v.neg": _negated,
    "v.sub.s": _less_scalar,
    "v.div.s": _ours("divide_by", _REAL, 1),
    "v.clamp.s": _clamp,
    "v.leaky_relu.s": _plain("LeakyRelu", _REAL, 1),
    "v.axpy.s": _plain("Axpy", _REAL, 1),
    "v.mul_add_dst.s": _plain("Axpy", _REAL, 1),
    "v.bitwise_lshift.s": _plain("ShiftLeft", _SHIFTED, 1),
    "v.bitwise_rshift.s": _plain("ShiftRight", _SHIFTED, 1),
    "v.bitwise_not": _bits("Not"),
    "v.bitwise_and": _bits("And"),
    "v.bitwise_or": _bits("Or"),
    "v.bitwise_xor": _bits("exclusive_or", ours=True),
    "v.bitwise_and.s": _bits_by("and_by"),
    "v.bitwise_or.s": _bits_by("or_by"),
    "v.sigmoid": _ours("sigmoid", _REAL),
    "v.silu": _ours("silu", _REAL),
    "v.round": _rounded,
    "v.compare": _compare,
    "v.compare.s": _compare,
    "v.select": _select,
    "v.select.s": _select,
    "v.gather": _gather,
    "v.gatherb": _gather_blocks,
    "v.gather_mask": _gather_mask,
    "v.progression": _progression,
    **{
        f"v.reduce_{op}{tail}": _reduce(op, goes_on=bool(tail))
        for op in ("sum", "max", "min")
        for tail in ("", ".acc")
    },
}  # fmt: skip
"""A printer for each row of the vector units that basic functions of the API carry out."""

__all__ = [
    "BLOCK",
    "MOVED",
    "VECTOR_ROWS",
    "at",
    "filled",
    "helper",
    "need_rows",
    "needs",
    "scalars",
    "slots",
    "values_of",
]
