"""Instructions as inline PTX, by the templates of their rows.

What enters: an `Instr` and its row. What leaves: one `asm` statement. The few rows without a
template have a function here, or in `atomics`.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilelang.errors import InternalError
from tilelang.ir.affine import bounds
from tilelang.ir.expr import Const, Expr, Var
from tilelang.ir.node import Effect
from tilelang.ir.thread import Instr, Operand, Slot, Space, TensorMap
from tilelang.isa.instr import InstrRow, OperandRow
from tilelang.targets.cuda import descriptors
from tilelang.targets.cuda.expressions import Expressions
from tilelang.targets.cuda.places import pointer, register_words, shared_address
from tilelang.targets.cuda.types import PTX_TYPES, constraint, registers, value_type

POLICIES = {
    "evict_normal": "0x1000000000000000",
    "evict_first": "0x12F0000000000000",
    "evict_last": "0x14F0000000000000",
}
"""L2 cache policies, as createpolicy.fractional makes them for all of an access."""

_MEMORY = (Space.GLOBAL, Space.SHARED, Space.LOCAL, Space.TENSOR)


Tie = tuple[str, str]
"""The constraint and the text of a register."""


@dataclass
class _Asm:
    """The operands of one asm statement: the constraint of each output by its C++ expression, and
    (constraint, expression) of the inputs, which are numbered after all outputs.
    """

    outs: dict[str, str] = field(default_factory=dict[str, str])
    ins: list[Tie] = field(default_factory=list[Tie])
    fields: dict[str, str] = field(default_factory=dict[str, str])
    memory: bool = False

    def out(self, constraint: str, text: str) -> str:
        """An output, or the one that this register is already."""
        known = self.outs.get(text)
        if known is None or constraint.startswith("+"):
            self.outs[text] = constraint
        return f"%{list(self.outs).index(text)}"

    def into(self, constraint: str, text: str) -> str:
        """An input; its number is known when all outputs are."""
        self.ins.append((constraint, text))
        return f"<{len(self.ins) - 1}>"


class Instructions:
    """The instructions of one kernel."""

    def __init__(self, x: Expressions) -> None:
        self.x = x

    def emit(self, stmt: Instr, row: InstrRow, ties: Sequence[Tie] = ()) -> None:
        """One instruction; `ties` are registers whose reads stay below it."""
        special = _SPECIAL.get(stmt.row)
        if special is not None:
            special(self, stmt)
        else:
            self.together([(stmt, row)], ties)

    def together(self, run: Sequence[tuple[Instr, InstrRow]], ties: Sequence[Tie] = ()) -> None:
        """Instructions one after the other in one asm statement, which has each register once.

        The compiler takes time for every operand of every statement.
        """
        asm, texts, after = _Asm(), list[str](), list[str]()
        for stmt, row in run:
            if row.template is None:
                raise InternalError(f"no CUDA code for the row {stmt.row}")
            asm.memory = asm.memory or row.waits or bool(row.orders) or bool(row.until)
            for o, var in zip(row.results, stmt.results, strict=True):
                after += self._result(asm, o, var)
            pairs = [*zip(row.outs, stmt.outs, strict=True), *zip(row.ins, stmt.ins, strict=True)]
            for o, operand in pairs:
                self._operand(asm, o, operand)
            dtypes = {o.name: p.dtype.name for o, p in pairs if not isinstance(p, TensorMap)}
            texts.append(_filled(row, asm, dict(stmt.imm), dtypes))
        for letter, text in ties:
            asm.out(f"+{letter}", text)
        self._write(_numbered(" ".join(t for t in texts if t), asm), asm)
        for line in after:
            self.x.code.add(line)

    def _write(self, text: str, asm: _Asm) -> None:
        outs = ", ".join(f'"{c}"({t})' for t, c in asm.outs.items())
        ins = ", ".join(f'"{c}"({t})' for c, t in asm.ins)
        clobber = ' : "memory"' if asm.memory else ""
        self.x.code.add(f'asm volatile("{text}" : {outs} : {ins}{clobber});')

    # Operands ------------------------------------------------------------------------------------

    def _result(self, asm: _Asm, o: OperandRow, var: Var) -> list[str]:
        """A scalar result; bools and bytes come in 32-bit registers."""
        code, kind = self.x.code, value_type(var.type)
        name = self.x.vars[var.name]
        if kind in ("bool", "i8", "u8"):
            raw = code.name()
            code.add(f"u32 {raw};")
            asm.fields[o.name] = asm.out("=r", raw)
            value = f"{raw} != 0" if kind == "bool" else f"{kind}({raw})"
            return [f"const {kind} {name} = {value};"]
        code.add(f"{kind} {name};")
        asm.fields[o.name] = asm.out(f"={constraint(kind)}", name)
        return []

    def _operand(self, asm: _Asm, o: OperandRow, operand: Operand) -> None:
        match operand:
            case TensorMap():
                name = self.x.vars[operand.name]
                asm.fields[o.name] = asm.into("l", f"reinterpret_cast<u64>(&{name})")
                asm.memory = True
            case Slot() if operand.array.space is Space.REGISTER:
                asm.fields[o.name] = self._registers(asm, o, operand)
            case Slot():
                asm.fields[o.name] = asm.into(*self.address(operand))
                asm.memory = True
            case Const(value=bool() as truth):
                asm.fields[o.name] = str(int(truth))
            case Expr():
                kind = value_type(operand.dtype)
                text = self.x.of(operand)
                wide = kind in ("bool", "i8", "u8")
                asm.fields[o.name] = asm.into(constraint(kind), f"u32({text})" if wide else text)

    def address(self, slot: Slot) -> Tie:
        """The constraint and text of the address of elements in memory."""
        place, index = self.x.place(slot.array.name), self.x.index(slot.index)
        if slot.array.space is Space.SHARED:
            return "r", shared_address(place, index, self.x.used)
        return "l", f"reinterpret_cast<u64>({pointer(place, index)})"

    def words(self, slot: Slot) -> list[str]:
        """The registers of elements, which must begin with a whole one."""
        form = registers(slot.dtype)
        if not bounds(slot.index, self.x.ranges).divisible_by(form.per):
            raise InternalError(
                f"{slot.array.name} as an operand does not begin with a whole register"
            )
        place = self.x.place(slot.array.name)
        return register_words(place, self.x.index(slot.index), slot.count)

    def _registers(self, asm: _Asm, o: OperandRow, slot: Slot) -> str:
        kind = registers(slot.dtype).word
        letter = "r" if kind == "bool" else constraint(kind)
        names: list[str] = []
        for text in self.words(slot):
            if o.effect & Effect.WRITE:
                names.append(asm.out(("+" if o.effect & Effect.READ else "=") + letter, text))
            elif "tfloat32" in o.dtypes:  # PTX takes tf32 as untyped bits
                names.append(asm.into("r", f"__float_as_uint({text})"))
            else:
                names.append(asm.into(letter, text))
        return "{" + ", ".join(names) + "}"


def _filled(row: InstrRow, asm: _Asm, imm: Mapping[str, Any], dtypes: Mapping[str, str]) -> str:
    """The template with operands and immediates in their places."""
    out: list[str] = []
    given = {i.name: imm.get(i.name) for i in row.imm}
    for literal, name, spec, _ in string.Formatter().parse(row.template or ""):
        out.append(literal)
        if name is None:
            continue
        base, _, attribute = name.partition(".")
        if base in given and attribute == "warps":  # a warp that is not full counts as one
            out.append(str(-(-int(given[base] or 0) // 32) * 32))
        elif base in given:
            out.append(_immediate(given[base], spec or ""))
        elif attribute:
            out.append(_type_name(attribute, dtypes[base]))
        else:
            out.append(asm.fields[base])
    return "".join(out)


def _numbered(text: str, asm: _Asm) -> str:
    """The text with the numbers of inputs, which follow the outputs."""
    return re.sub(r"<(\d+)>", lambda m: f"%{int(m.group(1)) + len(asm.outs)}", text)


def _immediate(value: Any, spec: str) -> str:
    chosen, _, other = spec.partition("|")
    if not spec:
        return str(value)
    if value is None or value is False:
        return other
    return chosen.replace("%", POLICIES.get(str(value), str(value)))


def _type_name(attribute: str, dtype: str) -> str:
    if attribute == "ptx_bits":
        return "b" + PTX_TYPES[dtype][1:]
    name = PTX_TYPES[dtype]
    return f"noftz.{name}" if attribute == "ptx_add" and name in ("f16", "bf16") else name


# Rows without a template -------------------------------------------------------------------------


_SHUFFLES = {"idx": "", "up": "_up", "down": "_down", "bfly": "_xor"}


def _shuffle(self: Instructions, stmt: Instr) -> None:
    """`shfl.sync` by CUDA's own function, which has it for types of 32 and 64 bits."""
    imm = dict(stmt.imm)
    width, mask = imm.get("width", 32), imm.get("mask", 0xFFFFFFFF) & 0xFFFFFFFF
    value, lane = (self.x.of(e) for e in stmt.ins if isinstance(e, Expr))
    result = stmt.results[0]
    kind = value_type(result.type)
    given = f"i32({value})" if result.type.bits < 32 else value
    name = f"__shfl{_SHUFFLES[stmt.row.rpartition('.')[2]]}_sync"
    text = f"{kind}({name}(0x{mask:X}u, {given}, {lane}, {width}))"
    self.x.code.add(f"const {kind} {self.x.vars[result.name]} = {text};")


def _descriptor(unit: str) -> Callable[[Instructions, Instr], None]:
    def emit(self: Instructions, stmt: Instr) -> None:
        imm = dict(stmt.imm)
        fixed = descriptors.matrix(
            unit, swizzle=imm["swizzle"], leading=imm["leading"], stride=imm["stride"]
        )
        slot = stmt.ins[0]
        if not isinstance(slot, Slot):
            raise InternalError(f"{stmt.row} of no elements")
        address = self.address(slot)[1]
        name = self.x.vars[stmt.results[0].name]
        self.x.code.add(f"const u64 {name} = 0x{fixed:X}ull | u64((({address}) & 0x3FFFFu) >> 4);")

    return emit


def _grid_sync(self: Instructions, stmt: Instr) -> None:
    slot = stmt.outs[0]
    self.x.used.add("grid_sync")
    place = self.x.place(slot.array.name)
    self.x.code.add(f"tl::grid_sync({pointer(place, self.x.index(slot.index))});")


def _instruction(self: Instructions, stmt: Instr) -> None:
    """`tcgen05.instruction`: a constant."""
    word = descriptors.tcgen05_instruction(dict(stmt.imm))
    self.x.code.add(f"const u32 {self.x.vars[stmt.results[0].name]} = 0x{word:X}u;")


def _places_of_scales(self: Instructions, stmt: Instr) -> None:
    """`tcgen05.instruction.scaled.at`: places of scales join a word that has zeros there."""
    word, *places = (self.x.of(e) for e in stmt.ins if isinstance(e, Expr))
    fields = zip(places, descriptors.scale_places(), strict=True)
    text = " | ".join([word, *(f"({at} << {low})" for at, low in fields)])
    self.x.code.add(f"const u32 {self.x.vars[stmt.results[0].name]} = {text};")


_SPECIAL: dict[str, Callable[[Instructions, Instr], None]] = {
    **{f"shfl.sync.{mode}": _shuffle for mode in _SHUFFLES},
    "wgmma.descriptor": _descriptor("wgmma"),
    "tcgen05.descriptor": _descriptor("tcgen05"),
    "tcgen05.instruction": _instruction,
    "tcgen05.instruction.scaled": _instruction,
    "tcgen05.instruction.scaled.at": _places_of_scales,
    "grid.sync": _grid_sync,
}
