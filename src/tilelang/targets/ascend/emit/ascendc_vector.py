"""Vector functions of A2 and A3 in AscendC: a printer for each row of the vector units.

What enters: an instruction, and the kernel's printer, which gives a place for temporaries. What
leaves: `VECTOR_ROWS`. Which types a function takes is from its page of the AscendC API; a tile
whose rows do not begin at a block of 32 bytes, or a type that no function takes, is refused by
name.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilelang.dtypes import DType
from tilelang.ir.ascend import VECTOR_CASTS, Core
from tilelang.ir.expr import Const, Expr, int_value
from tilelang.ir.thread import Instr, Slot
from tilelang.targets.ascend.emit.ascendc_common import (
    ARITHMETIC,
    BLOCK,
    BYTES,
    MOVED,
    REAL,
    REPEAT,
    SHIFTED,
    at,
    by_row,
    helper,
    kernel_of,
    need_rows,
    needs,
    row_of,
    slots,
    typed,
    values_of,
)
from tilelang.targets.ascend.emit.ascendc_maths import PIECE
from tilelang.targets.ascend.emit.ascendc_moves import MOVES
from tilelang.targets.ascend.emit.statements import Printer, Statements
from tilelang.targets.ascend.emit.text import type_of, unprintable

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
        places, count = _pairs_of_bytes(stmt, row, name)
        called, scratch = helper(x, stmt, name) if ours else (name, "")
        by_row(x, row.rows, [f"{called}({', '.join(places)}, {scratch}{count});"])

    return printer


def _bits_by(name: str) -> Printer:
    """The same with a number, of which a temporary is full; bytes are pairs of equal ones."""

    def printer(x: Statements, stmt: Instr) -> None:
        row = _Row(x, stmt, 1)
        columns, count = _pairs_of_bytes(stmt, row, name)
        called, scratch = helper(x, stmt, name)
        value = typed(x, stmt, row.given[0], row.dtype)
        element = type_of(row.dtype, stmt)
        if row.dtype.bytes == 1:
            element, value = "uint16_t", f"(uint16_t)((uint8_t){value} * 257)"
        words = f"scratch.ReinterpretCast<{element}>()"
        x.text.line("PipeBarrier<PIPE_V>();")
        x.text.line(f"Duplicate({words}, {value}, {PIECE} / sizeof({element}));")
        by_row(x, row.rows, [f"{called}({', '.join(columns)}, {scratch}{count});"])

    return printer


def _pairs_of_bytes(stmt: Instr, row: _Row, name: str) -> tuple[list[str], str]:
    """The operands of a row as words of 16 bits, and how many they are."""
    size = row.dtype.bytes
    columns = int_value(row.columns)
    if size == 1 and (columns is None or columns % 2):
        raise unprintable(stmt, f"{name} of an odd number of {row.dtype}")
    count = f"({row.count}) * {size} / 2" if size != 2 else row.count
    return [f"{p}.ReinterpretCast<uint16_t>()" for p in row.places], count


def _negated(x: Statements, stmt: Instr) -> None:
    row = _Row(x, stmt, 0)
    needs(stmt, row.dtype, ARITHMETIC, "neg")
    minus = "-1.0f" if str(row.dtype) == "float32" else f"({type_of(row.dtype, stmt)})-1"
    by_row(x, row.rows, [f"Muls({', '.join(row.places)}, {minus}, {row.count});"])


def _less_scalar(x: Statements, stmt: Instr) -> None:
    """a - b is a + (-b) of floats and of integers that wrap."""
    row = _Row(x, stmt, 1)
    needs(stmt, row.dtype, ARITHMETIC, "sub by a scalar")
    value = f"({type_of(row.dtype, stmt)})(-{typed(x, stmt, row.given[0], row.dtype)})"
    by_row(x, row.rows, [f"Adds({', '.join(row.places)}, {value}, {row.count});"])


def _clamp(x: Statements, stmt: Instr) -> None:
    row = _Row(x, stmt, 2)
    needs(stmt, row.dtype, ARITHMETIC, "clamp")
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


def _in_float(name: str, given: int = 0) -> Printer:
    """One of our functions of float, which half goes through."""
    in_float, in_half = _ours(name, ("float32",), given), _ours(f"{name}_half", REAL, given)

    def printer(x: Statements, stmt: Instr) -> None:
        (in_half if str(stmt.outs[0].dtype) == "float16" else in_float)(x, stmt)

    return printer


def _power(*, by_number: bool) -> Printer:
    tail = "_by" if by_number else ""
    real = _in_float(f"power{tail}", int(by_number))
    whole = _ours(f"power_whole{tail}", ("int32",), int(by_number))

    def printer(x: Statements, stmt: Instr) -> None:
        (whole if str(stmt.outs[0].dtype) == "int32" else real)(x, stmt)

    return printer


# Copies within UB ---------------------------------------------------------------------------------


def _part(x: Statements, stmt: Instr, dst: str, src: str, count: Expr, dtype: DType) -> str:
    """The call that copies some neighbours, whole blocks or not."""
    known = int_value(count)
    if known is not None and known * dtype.bytes % BLOCK == 0:
        return f"DataCopy({dst}, {src}, {known});"
    needs(stmt, dtype, (*MOVED, *BYTES), "copies of parts of blocks")
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
    needs(stmt, dst.dtype, (*MOVED, *BYTES), "broadcasts")
    if int_value(step) == 1:
        need_rows(stmt, rows, [(pitch, src)])
        a, b = row_of(x, dst, rows, dst_pitch), row_of(x, src, rows, pitch)
        by_row(x, rows, [_part(x, stmt, a, b, columns, dst.dtype)])
        return
    if int_value(step) != 0:
        raise unprintable(stmt, "broadcasts of elements that are no neighbours")
    if int_value(pitch) != 1 or dst.dtype.bytes == 1:
        sizes = ", ".join(x.of(v) for v in (rows, columns, dst_pitch, pitch))
        x.text.line(f"{x.text.helper('expand_elements')}({at(x, dst)}, {at(x, src)}, {sizes});")
        return
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
    if not (str(a.dtype) in REAL or (str(a.dtype) == "int32" and mode == "EQ")):
        raise unprintable(stmt, f"comparisons {mode} of {a.dtype}")
    places = ", ".join(at(x, s) for s in (dst, a, *more))
    scalar = f", {typed(x, stmt, given[0], a.dtype)}" if given else ""
    name = "Compares" if given else "Compare"
    known = int_value(count)
    if known is not None and known * a.array.type.bytes % REPEAT == 0:
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


# Reductions ---------------------------------------------------------------------------------------


def _reduce(op: str, *, goes_on: bool) -> Printer:
    more = "true" if goes_on else "false"

    def printer(x: Statements, stmt: Instr) -> None:
        (dst,), (src,) = stmt.outs, slots(stmt)
        outer, n, inner, src_pitch, src_step, dst_pitch = values_of(stmt)
        needs(stmt, dst.dtype, REAL, f"reduce_{op}")
        if int_value(inner) == 1 and int_value(src_step) == 1:
            need_rows(stmt, outer, [(src_pitch, src)])
            if int_value(dst_pitch) != 1 and int_value(outer) != 1:
                raise unprintable(stmt, "results of a reduction that are no neighbours")
            name, scratch = helper(x, stmt, f"reduce_rows_{op}")
            sizes = ", ".join(x.of(v) for v in (outer, n, src_pitch))
            x.text.line(f"{name}({at(x, dst)}, {at(x, src)}, {scratch}{sizes}, {more});")
            return
        need_rows(stmt, n, [(src_step, src)])
        need_rows(stmt, outer, [(src_pitch, src), (dst_pitch, dst)])
        name = x.text.helper(f"reduce_columns_{op}")
        a, b = row_of(x, dst, outer, dst_pitch), row_of(x, src, outer, src_pitch)
        sizes = ", ".join(x.of(v) for v in (n, inner, src_step))
        by_row(x, outer, [f"{name}({a}, {b}, {sizes}, {more});"])

    return printer


def _block_reduce(op: str) -> Printer:
    """A result for each block, eight in a repeat; the last repeat may have fewer."""

    def printer(x: Statements, stmt: Instr) -> None:
        (dst,), (src,) = stmt.outs, slots(stmt)
        count = int_value(values_of(stmt)[0])
        lanes = BLOCK // dst.dtype.bytes
        needs(stmt, dst.dtype, REAL, f"block_reduce_{op}")
        if count is None or count // 8 > _MOST_REPEATS:
            raise unprintable(stmt, "reductions of more blocks than a call has repeats for")
        for first, repeats, blocks in ((0, count // 8, 8), (count // 8 * 8, 1, count % 8)):
            if repeats and blocks:
                a, b = at(x, dst, str(first)), at(x, src, str(first * lanes))
                x.text.line(
                    f"BlockReduce{op.title()}({a}, {b}, {repeats}, {blocks * lanes}, 1, 1, 8);"
                )

    return printer


def _whole_reduce(op: str) -> Printer:
    """The largest or least of each repeat, and its place."""

    def printer(x: Statements, stmt: Instr) -> None:
        (dst,), (src,) = stmt.outs, slots(stmt)
        rows, n = (int_value(v) for v in values_of(stmt))
        size = dst.dtype.bytes
        if rows is None or n is None or rows > _MOST_REPEATS or n * size % BLOCK or n * size > 256:
            raise unprintable(stmt, "reductions of rows that are no repeats of whole blocks")
        x.text.line(
            f"WholeReduce{op.title()}({at(x, dst)}, {at(x, src)}, {n}, {rows}, 1, 1,"
            f" {n * size // BLOCK}, ReduceOrder::ORDER_VALUE_INDEX);"
        )

    return printer


def _deq_scale(x: Statements, stmt: Instr) -> None:
    """The factor of conversions of int32 to half, which cube cores have none of."""
    if kernel_of(x).core is Core.CUBE:
        return
    x.text.line(f"SetDeqScale((half){x.of(stmt.ins[0])});")


_MOST_REPEATS = 255


VECTOR_ROWS: dict[str, Printer] = {
    **MOVES,
    "ub.ub": _within_ub,
    "v.cast": _cast,
    "v.dup": _duplicate,
    "v.broadcast": _broadcast,
    **{
        f"v.{op}": _plain(name, REAL)
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
        f"v.{op}": _binary(name, ARITHMETIC)
        for op, name in (
            ("add", "Add"), ("sub", "Sub"), ("mul", "Mul"), ("max", "Max"), ("min", "Min"),
        )
    },
    **{
        f"v.{op}.s": _plain(name, ARITHMETIC, 1)
        for op, name in (("add", "Adds"), ("mul", "Muls"), ("max", "Maxs"), ("min", "Mins"))
    },
    "v.div": _binary("Div", REAL),
    "v.relu": _plain("Relu", (*REAL, "int32")),
    "v.neg": _negated,
    "v.sub.s": _less_scalar,
    "v.div.s": _ours("divide_by", REAL, 1),
    "v.clamp.s": _clamp,
    "v.leaky_relu.s": _plain("LeakyRelu", REAL, 1),
    "v.axpy.s": _plain("Axpy", REAL, 1),
    "v.mul_add_dst.s": _plain("Axpy", REAL, 1),
    "v.bitwise_lshift.s": _plain("ShiftLeft", SHIFTED, 1),
    "v.bitwise_rshift.s": _plain("ShiftRight", SHIFTED, 1),
    "v.bitwise_not": _bits("Not"),
    "v.bitwise_and": _bits("And"),
    "v.bitwise_or": _bits("Or"),
    "v.bitwise_xor": _bits("exclusive_or", ours=True),
    "v.bitwise_and.s": _bits_by("and_by"),
    "v.bitwise_or.s": _bits_by("or_by"),
    "v.sigmoid": _ours("sigmoid", REAL),
    "v.silu": _ours("silu", REAL),
    "v.round": _in_float("rounded"),
    "v.sin": _in_float("sine"),
    "v.cos": _in_float("cosine"),
    "v.pow": _power(by_number=False),
    "v.pow.s": _power(by_number=True),
    "v.bitwise_xor.s": _bits_by("exclusive_or_by"),
    "v.brcb": _broadcast,
    **{f"v.block_reduce_{op}": _block_reduce(op) for op in ("max", "min", "sum")},
    **{f"v.whole_reduce_{op}": _whole_reduce(op) for op in ("max", "min")},
    "mode.deq_scale": _deq_scale,
    "v.compare": _compare,
    "v.compare.s": _compare,
    "v.select": _select,
    "v.select.s": _select,
    **{
        f"v.reduce_{op}{tail}": _reduce(op, goes_on=bool(tail))
        for op in ("sum", "max", "min")
        for tail in ("", ".acc")
    },
}  # fmt: skip
"""A printer for each row of the vector units that basic functions of the API carry out."""

__all__ = ["VECTOR_ROWS", "filled"]
