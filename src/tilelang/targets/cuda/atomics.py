"""Updates of one element in memory that other threads may update too, and accesses in one piece.

What enters: an `Instr` of the rows `atomic.*`, `update.*`, `gemm.tile`, `print.element`. What
leaves: CUDA's atomic functions where they have the type and the operation, compare and swap
elsewhere. An order stronger than relaxed is made by fences around (PTX ISA, Memory Consistency).
"""

from __future__ import annotations

from typing import Any

from tilelang.dtypes import DType
from tilelang.errors import InternalError
from tilelang.ir.expr import BinaryOp, Expr
from tilelang.ir.thread import Instr, Slot, Space
from tilelang.isa.target import Capability
from tilelang.targets.cuda.expressions import Expressions
from tilelang.targets.cuda.places import Place, of_raw_bits, pointer, raw_bits
from tilelang.targets.cuda.types import memory_bits, value_type

_OPERATORS = {"add": BinaryOp.ADD, "max": BinaryOp.MAX, "min": BinaryOp.MIN, "or": BinaryOp.BITOR}
_BEFORE = ("release", "acq_rel", "seq_cst")
_AFTER = ("acquire", "consume", "acq_rel", "seq_cst")
_FENCE = "__threadfence();"

_NATIVE = {
    "add": {"int32": "int", "uint32": "unsigned int", "int64": "u64", "uint64": "u64",
            "float32": "float", "float64": "double"},
    "max": {"int32": "int", "uint32": "unsigned int", "int64": "i64", "uint64": "u64"},
    "min": {"int32": "int", "uint32": "unsigned int", "int64": "i64", "uint64": "u64"},
    "or": {"int32": "u32", "uint32": "u32", "int64": "u64", "uint64": "u64"},
}  # fmt: skip
"""The C++ type under which CUDA has an atomic function of this name for a dtype."""


class Updates:
    """Updates and accesses in one piece of one kernel."""

    def __init__(self, x: Expressions) -> None:
        self.x = x
        self.code = x.code

    def emit(self, stmt: Instr) -> None:
        """One of the rows `atomic.*` and `update.*`."""
        family, _, op = stmt.row.partition(".")
        slot = (stmt.outs or stmt.ins)[0]
        if not isinstance(slot, Slot):
            raise InternalError(f"{stmt.row} of no element")
        order = dict(stmt.imm)["order"]
        fenced = family == "atomic" and slot.array.space is not Space.LOCAL
        place, index = self.x.place(slot.array.name), self.x.index(slot.index)
        value = self.x.of(stmt.ins[0]) if stmt.outs and isinstance(stmt.ins[0], Expr) else ""
        if fenced and order in _BEFORE:
            self.code.add(_FENCE)
        if op == "store":
            self._store(place, index, value)
        else:
            text = self._load(place, index) if op == "load" else ""
            text = text or self._updated(place, index, op, value, alone=not fenced)
            result = stmt.results[0]
            self.code.add(f"const {value_type(result.type)} {self.x.vars[result.name]} = {text};")
        if fenced and order in _AFTER:
            self.code.add(_FENCE)

    def _load(self, place: Place, index: str) -> str:
        if place.is_register:
            return self.x.memory.read(place, index, {})
        kind = f"u{memory_bits(place.dtype)}"
        at = f"*reinterpret_cast<const volatile {kind}*>({pointer(place, index)})"
        return self._value(place.dtype, at)

    def _store(self, place: Place, index: str, value: str) -> None:
        if place.is_register:
            self.x.memory.write(place, index, value, {})
            return
        kind = f"u{memory_bits(place.dtype)}"
        at = f"*reinterpret_cast<volatile {kind}*>({pointer(place, index)})"
        self.code.add(f"{at} = {raw_bits(place.dtype, value)};")

    def _value(self, dtype: DType, raw: str) -> str:
        """A name for the scalar of these bits."""
        name = self.code.name()
        self.code.add(f"const u{memory_bits(dtype)} {name} = {raw};")
        return of_raw_bits(dtype, name)

    def _updated(self, place: Place, index: str, op: str, value: str, *, alone: bool) -> str:
        """The element before; it is updated."""
        dtype = place.dtype
        if alone:
            name = self.code.name()
            self.code.add(
                f"const {value_type(dtype)} {name} = {self.x.memory.read(place, index, {})};"
            )
            self.x.memory.write(place, index, self._combined(op, name, value, dtype), {})
            return name
        native = _NATIVE[op].get(dtype.name)
        if native is not None:
            at = f"reinterpret_cast<{native}*>({pointer(place, index)})"
            return (
                f"{value_type(dtype)}(atomic{op.capitalize()}({at}, {native_cast(native, value)}))"
            )
        if op == "add" and self._adds_halves(dtype):
            name = f"atomic_add_{'f16' if dtype.name == 'float16' else 'bf16'}"
            return self.x.conversions.call(name, pointer(place, index), value)
        return self._swapped(place, index, op, value)

    def _adds_halves(self, dtype: DType) -> bool:
        """Whether an instruction adds this type: fp16 on all chips, bf16 since sm_90."""
        since_hopper = self.x.conversions.target.supports(Capability.CLUSTER)
        return dtype.name == "float16" or (dtype.name == "bfloat16" and since_hopper)

    def _swapped(self, place: Place, index: str, op: str, value: str) -> str:
        """By compare and swap of the element's bits."""
        dtype, kind = place.dtype, f"u{memory_bits(place.dtype)}"
        self.x.used |= {"updated", "cas"}
        given, old, before = (self.code.name() for _ in range(3))
        self.code.add(f"const {value_type(dtype)} {given} = {value};")
        new = self._combined(op, of_raw_bits(dtype, old), given, dtype)
        at = f"reinterpret_cast<{kind}*>({pointer(place, index)})"
        self.code.add(
            f"const {kind} {before} = tl::updated({at}, [&]({kind} {old}) -> {kind} "
            f"{{ return {raw_bits(dtype, new)}; }});"
        )
        return of_raw_bits(dtype, before)

    def _combined(self, op: str, old: str, value: str, dtype: DType) -> str:
        return self.x.binary(_OPERATORS[op], old, value, dtype)


def native_cast(native: str, value: str) -> str:
    """A value as the type of an atomic function."""
    return f"({native})({value})"


def gemm_tile(x: Expressions, stmt: Instr) -> None:
    """`gemm.tile` by one thread: three loops."""
    imm: dict[str, Any] = dict(stmt.imm)
    c, a, b = (
        pointer(x.place(s.array.name), x.index(s.index))
        for s in (stmt.outs[0], *stmt.ins[:2])
        if isinstance(s, Slot)
    )
    clear = stmt.ins[2]
    if not isinstance(clear, Expr):
        raise InternalError("gemm.tile without a value for clear")
    dtype = stmt.outs[0].dtype
    kind, code = value_type(dtype), x.code
    names = [code.name() for _ in range(8)]
    pc, pa, pb, keep, i, j, k, total = names
    for name, text, const in ((pc, c, ""), (pa, a, "const "), (pb, b, "const ")):
        code.add(f"{const}{kind}* const {name} = {text};")
    code.add(f"const bool {keep} = !{x.of(clear)};")
    with (
        code.braces(f"for (i32 {i} = 0; {i} < {imm['m']}; ++{i})"),
        code.braces(f"for (i32 {j} = 0; {j} < {imm['n']}; ++{j})"),
    ):
        place = f"{pc}[{i} * {imm['c_row']} + {j}]"
        code.add(f"{kind} {total} = {keep} ? {place} : {kind}(0);")
        with code.braces(f"for (i32 {k} = 0; {k} < {imm['k']}; ++{k})"):
            left = f"{pa}[{i} * {imm['a_row']} + {k} * {imm['a_col']}]"
            right = f"{pb}[{k} * {imm['b_row']} + {j}]"
            product = x.binary(BinaryOp.MUL, left, right, dtype)
            code.add(f"{total} = {x.binary(BinaryOp.ADD, total, product, dtype)};")
        code.add(f"{place} = {total};")
