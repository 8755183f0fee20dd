"""Operations on tiles of UB outside of a vector function, as C++ for the 950.

What enters: a `v.` instruction, or a copy within UB. What leaves: the call of a SIMT function of
256 threads, which go over the elements by turns, and the function, once for each operation and
types. The chip has no such instructions: its vector unit knows functions alone. A tile that is read
at other places than it is written is refused, since threads have no order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from tilelang.dtypes import DType
from tilelang.ir.thread import Instr, Slot
from tilelang.targets.ascend.emit.statements import Printer, Statements
from tilelang.targets.ascend.emit.text import NARROW, QUALIFIERS, type_of, unprintable

THREADS = 256

# What an operation makes of its operands; floats narrower than 32 bits are float there.
_VALUES = {
    "exp": "expf(a)", "ln": "logf(a)", "abs": "a < 0 ? -a : a", "neg": "-a",
    "reciprocal": "1.0f / a", "sqrt": "sqrtf(a)", "rsqrt": "1.0f / sqrtf(a)",
    "relu": "a > 0 ? a : 0", "bitwise_not": "~a", "sigmoid": "1.0f / (1.0f + expf(-a))",
    "silu": "a / (1.0f + expf(-a))", "sin": "sinf(a)", "cos": "cosf(a)", "round": "rintf(a)",
    "add": "a + b", "sub": "a - b", "mul": "a * b", "div": "a / b", "max": "a > b ? a : b",
    "min": "a < b ? a : b", "bitwise_and": "a & b", "bitwise_or": "a | b",
    "bitwise_xor": "a ^ b", "bitwise_lshift": "a << b", "bitwise_rshift": "a >> b",
    "leaky_relu": "a >= 0 ? a : a * b", "pow": "powf(a, b)", "broadcast": "a",
}  # fmt: skip
_FLOATS_ALONE = frozenset(
    {
        *("exp", "ln", "reciprocal", "sqrt", "rsqrt", "sigmoid", "silu", "sin", "cos", "round"),
        *("div", "pow"),
    }
)
_JOINS = {
    "sum": "total + x", "max": "x > total ? x : total", "min": "x < total ? x : total",
    "abssum": "total + (x < 0 ? -x : x)", "bitand": "total & x", "bitor": "total | x",
    "bitxor": "total ^ x",
}  # fmt: skip
_FIRSTS = {"abssum": "x < 0 ? -x : x"}
_COMPARISONS = {"EQ": "==", "NE": "!=", "GT": ">", "GE": ">=", "LT": "<", "LE": "<="}
_ROUNDED = {
    "CAST_NONE": "rintf", "CAST_RINT": "rintf", "CAST_FLOOR": "floorf", "CAST_CEIL": "ceilf",
    "CAST_ROUND": "roundf", "CAST_TRUNC": "truncf",
}  # fmt: skip


def _wide(dtype: DType, at: Instr) -> str:
    """The type in which an operation computes."""
    return "float" if dtype.is_float else type_of(dtype, at)


class _Function:
    """A function on its way: its parameters by type, and the statements of one thread."""

    def __init__(self, x: Statements, stmt: Instr, name: str, element: DType) -> None:
        self.x, self.stmt, self.name = x, stmt, f"tile_{name}_{element}"
        self.parameters: list[str] = []
        self.arguments: list[str] = []
        out = stmt.outs[0]
        for n in stmt.ins:
            if isinstance(n, Slot) and n.array.name == out.array.name and n.index != out.index:
                raise unprintable(stmt, "operations on a tile that is read at other places")

    def slot(self, name: str, slot: Slot) -> None:
        """A tile."""
        element = type_of(slot.array.type, self.stmt)
        self.parameters.append(f"{QUALIFIERS[slot.array.space]}{element}* {name}")
        self.arguments.append(self.x.text.place(slot.array, slot.index))

    def value(self, name: str, e: object, type_: str = "int32_t") -> None:
        """A number."""
        self.parameters.append(f"{type_} {name}")
        self.arguments.append(self.x.of(e))

    def call(self, count: str, body: list[str]) -> None:
        """Print the function, if it is new, and its call."""
        text = [
            f"__simt_vf__ __launch_bounds__({THREADS}) inline void {self.name}(",
            f"    {', '.join(self.parameters)}) {{",
            f"  for (int32_t i = (int32_t)threadIdx.x; i < {count}; i += {THREADS}) {{",
            *(f"    {line}" for line in body),
            "  }",
            "}",
        ]
        self.x.text.tiles.setdefault(self.name, "\n".join(text))
        arguments = ", ".join([f"cce::dim3({THREADS})", *self.arguments])
        self.x.text.line(f"asc_vf_call<{self.name}>({arguments});")


def _read(x: Statements, at: Instr, dtype: DType, place: str) -> str:
    """An element as the type in which it is computed with."""
    narrow = NARROW.get(str(dtype))
    if narrow is not None:
        return f"{x.text.helper(f'from_{narrow}')}({place})"
    return f"({_wide(dtype, at)}){place}"


def _written(x: Statements, at: Instr, dtype: DType, value: str) -> str:
    """A value as an element."""
    narrow = NARROW.get(str(dtype))
    if narrow is not None:
        return f"{x.text.helper(f'to_{narrow}')}({value})"
    return f"({type_of(dtype, at)})({value})"


def _elementwise(op: str, *, scalar: bool) -> Printer:
    updates = op in ("axpy", "mul_add_dst")

    def printer(x: Statements, stmt: Instr) -> None:
        dtype = stmt.outs[0].array.type
        if op in _FLOATS_ALONE and not dtype.is_float:
            raise unprintable(stmt, f"{op} of {dtype}")
        slots = [n for n in stmt.ins if isinstance(n, Slot)]
        rest = [n for n in stmt.ins if not isinstance(n, Slot)]
        f = _Function(x, stmt, f"{op}{'_s' if scalar else ''}", dtype)
        f.slot("dst", stmt.outs[0])
        for letter, slot in zip("ab", slots, strict=False):
            f.slot(letter + "s", slot)
        body = ["int32_t row = i / columns, column = i % columns;"]
        if scalar:
            f.value("number", rest.pop(0), type_of(dtype, stmt))
        names = ["rows", "columns", "dst_pitch", "a_pitch", "a_step", "b_pitch", "b_step"]
        for name, e in zip(names, rest, strict=False):
            f.value(name, e)
        wide = _wide(dtype, stmt)
        for letter in "ab"[: len(slots)]:
            place = f"{letter}s[row * {letter}_pitch + column * {letter}_step]"
            body.append(f"{wide} {letter} = {_read(x, stmt, dtype, place)};")
        if scalar:
            body.append(f"{wide} b = {_read(x, stmt, dtype, 'number')};")
        at = "dst[row * dst_pitch + column]"
        made = f"{_read(x, stmt, dtype, at)} + a * b" if updates else _VALUES[op]
        f.call("rows * columns", [*body, f"{at} = {_written(x, stmt, dtype, made)};"])

    return printer


def _limits(dtype: DType) -> tuple[float, float]:
    """The least and the largest float that an integer type holds."""
    most = 2 ** (dtype.bits - (not dtype.is_uint))
    return float(0 if dtype.is_uint else -most), float(most - max(1, most >> 24))


def _cast(x: Statements, stmt: Instr) -> None:
    src = cast("Slot", stmt.ins[0])
    a, b = src.array.type, stmt.outs[0].array.type
    rounding = str(dict(stmt.imm)["rounding"])
    value = _read(x, stmt, a, "src[row * src_pitch + column]")
    if a.is_float and b.is_integer:
        if rounding not in _ROUNDED or b.bits == 64:
            raise unprintable(stmt, f"conversions of {a} to {b} with {rounding}")
        low, high = _limits(b)
        value = f"fminf(fmaxf({_ROUNDED[rounding]}({value}), {low}f), {high}f)"
    elif b.is_float and rounding not in ("CAST_NONE", "CAST_RINT"):
        raise unprintable(stmt, f"conversions of {a} to {b} with {rounding}")
    elif b.is_float:
        value = f"(float)({value})"
    f = _Function(x, stmt, f"cast_{rounding.lower()}_{a}", b)
    f.slot("dst", stmt.outs[0])
    f.slot("src", src)
    for name, e in zip(("rows", "columns", "src_pitch", "dst_pitch"), stmt.ins[1:], strict=True):
        f.value(name, e)
    body = ["int32_t row = i / columns, column = i % columns;"]
    body.append(f"dst[row * dst_pitch + column] = {_written(x, stmt, b, value)};")
    f.call("rows * columns", body)


_MOVED = "dst[i / columns * dst_pitch + i % columns] = src[{}];"
_TURNED = "i % columns * src_pitch + i / columns"
_STRAIGHT = "i / columns * src_pitch + i % columns"


def _copy(x: Statements, stmt: Instr) -> None:
    _move(x, stmt, "copy", ("src_pitch", "dst_pitch"), _STRAIGHT)


def _transpose(x: Statements, stmt: Instr) -> None:
    if cast("Slot", stmt.ins[0]).array.name == stmt.outs[0].array.name:
        raise unprintable(stmt, "transposes of a tile in its own place")
    _move(x, stmt, "transpose", ("dst_pitch", "src_pitch"), _TURNED)


def _move(x: Statements, stmt: Instr, name: str, pitches: tuple[str, str], at: str) -> None:
    """Each element of the target from a place of the source."""
    src = cast("Slot", stmt.ins[0])
    f = _Function(x, stmt, name, src.array.type)
    f.slot("dst", stmt.outs[0])
    f.slot("src", src)
    for parameter, e in zip(("rows", "columns", *pitches), stmt.ins[1:], strict=True):
        f.value(parameter, e)
    f.call("rows * columns", [_MOVED.format(at)])


def fill(x: Statements, stmt: Instr, slot: Slot, number: str, sizes: tuple[str, str, str]) -> None:
    """A tile set to a number: `sizes` are rows, columns, and the distance of two rows."""
    dtype = slot.array.type
    f = _Function(x, stmt, "fill", dtype)
    f.slot("dst", slot)
    f.parameters += [f"{type_of(dtype, stmt)} number", *(f"int32_t {n}" for n in _SIZES)]
    f.arguments += [number, *sizes]
    f.call("rows * columns", ["dst[i / columns * pitch + i % columns] = number;"])


_SIZES = ("rows", "columns", "pitch")


def _reduce(op: str, *, clear: bool) -> Printer:
    join = _JOINS.get(op) or "(x < 0 ? -x : x) > total ? (x < 0 ? -x : x) : total"
    first = _FIRSTS.get(op) or ("x < 0 ? -x : x" if op == "absmax" else "x")

    def printer(x: Statements, stmt: Instr) -> None:
        src = cast("Slot", stmt.ins[0])
        dtype = src.array.type
        f = _Function(x, stmt, f"reduce_{op}{'' if clear else '_acc'}", dtype)
        f.slot("dst", stmt.outs[0])
        f.slot("src", src)
        names = ("outer", "n", "inner", "src_pitch", "src_step", "dst_pitch")
        for name, e in zip(names, stmt.ins[1:], strict=True):
            f.value(name, e)
        wide = _wide(dtype, stmt)
        element = _read(x, stmt, dtype, "src[row * src_pitch + k * src_step + column]")
        at = "dst[row * dst_pitch + column]"
        joined = (
            [] if clear else [f"x = total; total = {_read(x, stmt, dtype, at)}; total = {join};"]
        )
        body = [
            "int32_t row = i / inner, column = i % inner, k = 0;",
            f"{wide} x = {element};",
            f"{wide} total = {first};",
            f"for (k = 1; k < n; ++k) {{ x = {element}; total = {join}; }}",
            *joined,
            f"{at} = {_written(x, stmt, dtype, 'total')};",
        ]
        f.call("outer * inner", body)

    return printer


def _compare(*, scalar: bool) -> Printer:
    def printer(x: Statements, stmt: Instr) -> None:
        a = cast("Slot", stmt.ins[0])
        dtype = a.array.type
        sign = _COMPARISONS[str(dict(stmt.imm)["mode"])]
        word = str(dict(stmt.imm)["mode"]).lower()
        f = _Function(x, stmt, f"compare_{word}{'_s' if scalar else ''}", dtype)
        f.slot("dst", stmt.outs[0])
        f.slot("as", a)
        if scalar:
            f.value("number", stmt.ins[1], type_of(dtype, stmt))
        else:
            f.slot("bs", cast("Slot", stmt.ins[1]))
        f.value("count", stmt.ins[2])
        left = _read(x, stmt, dtype, "as[i * 8 + k]")
        right = _read(x, stmt, dtype, "number" if scalar else "bs[i * 8 + k]")
        body = [
            "uint8_t bits = 0;",
            "for (int32_t k = 0; k < 8 && i * 8 + k < count; ++k) {",
            f"  if ({left} {sign} {right}) bits |= 1 << k;",
            "}",
            "((__ubuf__ uint8_t*)dst)[i] = bits;",
        ]
        f.call("(count + 7) / 8", body)

    return printer


def _select(*, scalar: bool) -> Printer:
    def printer(x: Statements, stmt: Instr) -> None:
        mask, a, b, count = stmt.ins
        dtype = stmt.outs[0].array.type
        f = _Function(x, stmt, f"select{'_s' if scalar else ''}", dtype)
        f.slot("dst", stmt.outs[0])
        f.slot("mask", cast("Slot", mask))
        f.slot("as", cast("Slot", a))
        if scalar:
            f.value("number", b, type_of(dtype, stmt))
        else:
            f.slot("bs", cast("Slot", b))
        f.value("count", count)
        bit = "((__ubuf__ uint8_t*)mask)[i / 8] >> (i % 8) & 1"
        f.call("count", [f"dst[i] = {bit} ? as[i] : {'number' if scalar else 'bs[i]'};"])

    return printer


def _progression(x: Statements, stmt: Instr) -> None:
    dtype = stmt.outs[0].array.type
    f = _Function(x, stmt, "progression", dtype)
    f.slot("dst", stmt.outs[0])
    first, step, count = stmt.ins
    f.value("first", first, type_of(dtype, stmt))
    f.value("step", step, type_of(dtype, stmt))
    f.value("count", count)
    wide = _wide(dtype, stmt)
    made = f"{_read(x, stmt, dtype, 'first')} + ({wide})i * {_read(x, stmt, dtype, 'step')}"
    f.call("count", [f"dst[i] = {_written(x, stmt, dtype, made)};"])


_UNARY = (
    *("exp", "ln", "abs", "neg", "reciprocal", "sqrt", "rsqrt", "relu", "bitwise_not", "sigmoid"),
    *("silu", "sin", "cos", "round", "broadcast"),
)
_BINARY = (
    *("add", "sub", "mul", "div", "max", "min", "bitwise_and", "bitwise_or", "bitwise_xor", "pow"),
    *("bitwise_lshift", "bitwise_rshift", "leaky_relu", "axpy", "mul_add_dst"),
)
_REDUCED = ("sum", "max", "min", "abssum", "absmax", "bitand", "bitor", "bitxor")

TILES: dict[str, Callable[[Statements, Instr], None]] = {
    **{f"v.{op}": _elementwise(op, scalar=False) for op in (*_UNARY, *_BINARY)},
    **{f"v.{op}.s": _elementwise(op, scalar=True) for op in _BINARY},
    **{f"v.reduce_{op}": _reduce(op, clear=True) for op in _REDUCED},
    **{f"v.reduce_{op}.acc": _reduce(op, clear=False) for op in _REDUCED},
    "v.cast": _cast,
    "ub.ub": _copy,
    "v.transpose": _transpose,
    "v.compare": _compare(scalar=False),
    "v.compare.s": _compare(scalar=True),
    "v.select": _select(scalar=False),
    "v.select.s": _select(scalar=True),
    "v.progression": _progression,
}
"""A printer for each operation on tiles of UB that mainline kernels are lowered to."""
