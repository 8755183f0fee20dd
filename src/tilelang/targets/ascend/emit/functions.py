"""Vector functions of the 950 as C++: `__simt_vf__` and `__simd_vf__` functions.

What enters: a `VectorFunction` of the thread stage. What leaves: the lines of a function, and the
statement that calls it. Threads of a SIMT function are `threadIdx`; operations on vector registers
are the `asc_` functions of CANN's SIMD C API, each with its result as the first argument.
"""

from __future__ import annotations

import math
from typing import Any, cast

from tilelang.dtypes import DType
from tilelang.ir.ascend import VectorFunction, VectorKind
from tilelang.ir.ascend_simd import MERGED
from tilelang.ir.expr import Binary, BinaryOp, Expr, Var, const, int_value
from tilelang.ir.interval import interval
from tilelang.ir.node import Node
from tilelang.ir.simplify import simplify
from tilelang.ir.thread import Array, Declare, Instr, Slot, Space, Write
from tilelang.ir.tile import For
from tilelang.passes.ascend.lower_functions import used_from_outside
from tilelang.targets.ascend.emit.statements import Printer, Statements, parameter, pointer
from tilelang.targets.ascend.emit.text import QUALIFIERS, Text, type_of, unprintable

VECTORS = {
    "float32": "vector_f32", "float16": "vector_f16", "bfloat16": "vector_bf16",
    "int8": "vector_s8", "int16": "vector_s16", "int32": "vector_s32", "int64": "vector_s64",
    "uint8": "vector_u8", "uint16": "vector_u16", "uint32": "vector_u32", "uint64": "vector_u64",
    "float8_e4m3fn": "vector_f8e4m3", "float8_e5m2": "vector_f8e5m2", "bool": "vector_bool",
}  # fmt: skip
_AXES = ("x", "y", "z")


class Functions:
    """The functions of one kernel: their text goes in front of it."""

    def __init__(self, kernel: str, text: Text) -> None:
        self.kernel = kernel
        self.text = text
        self.count = 0

    def call(self, stmt: VectorFunction) -> str:
        """Print a function; the statement that calls it."""
        name = f"{self.kernel}_{stmt.kind.value}_vf_{self.count}"
        self.count += 1
        used = used_from_outside(stmt)
        parameters = ", ".join(parameter(n, stmt) for n in used)
        arguments = ", ".join(n.name for n in used)
        if stmt.kind is VectorKind.SIMD:
            with self.text.inside(f"__simd_vf__ inline void {name}({parameters})"):
                _Registers(self.text, SIMD_ROWS).block(stmt.body)
            self.text.line()
            return f"{name}({arguments});"
        count = math.prod(stmt.threads)
        head = f"__simt_vf__ __launch_bounds__({count}) inline void {name}({parameters})"
        with self.text.inside(head):
            self._threads(stmt)
            Statements(self.text, SIMT_ROWS).block(stmt.body)
        self.text.line()
        extents = list(stmt.threads)
        while len(extents) > 1 and extents[-1] == 1:
            extents.pop()
        shape = ", ".join(map(str, extents))
        return f"asc_vf_call<{name}>(cce::dim3({shape}){', ' if arguments else ''}{arguments});"

    def _threads(self, stmt: VectorFunction) -> None:
        used = {n.name for s in stmt.body for n in s.walk() if isinstance(n, Var)}
        for axis, var, extent in zip(_AXES, stmt.thread_vars, stmt.threads, strict=False):
            if var.name in used:
                self.text.line(f"int32_t {var.name} = (int32_t)threadIdx.{axis};")
                self.text.ranges[var] = interval(0, extent - 1)


# What threads do together ------------------------------------------------------------------------


def _shuffle(name: str) -> Printer:
    def printer(x: Statements, stmt: Instr) -> None:
        value, lane = stmt.ins
        (result,) = stmt.results
        width = dict(stmt.imm).get("width", 32)
        more = "" if width == 32 else f", {width}"
        x.text.line(
            f"{type_of(result.type, stmt)} {result.name} ="
            f" {name}({x.of(value)}, {x.of(lane)}{more});"
        )

    return printer


def _meet(x: Statements, stmt: Instr) -> None:
    del stmt
    x.text.line("asc_syncthreads();")


def _meet_warp(x: Statements, stmt: Instr) -> None:
    del stmt
    x.text.line("asc_syncwarp();")


def _update(name: str) -> Printer:
    def printer(x: Statements, stmt: Instr) -> None:
        (slot,) = stmt.outs
        x.text.line(f"{name}({x.text.place(slot.array, slot.index)}, {x.of(stmt.ins[0])});")

    return printer


SIMT_ROWS: dict[str, Printer] = {
    "shfl.sync.bfly": _shuffle("asc_shfl_xor"),
    "shfl.sync.up": _shuffle("asc_shfl_up"),
    "shfl.sync.down": _shuffle("asc_shfl_down"),
    "shfl.sync.idx": _shuffle("asc_shfl"),
    "barrier.sync": _meet,
    "bar.warp.sync": _meet_warp,
    "atomic.add": _update("asc_atomic_add"),
    "atomic.max": _update("asc_atomic_max"),
    "atomic.min": _update("asc_atomic_min"),
}


# Vector registers --------------------------------------------------------------------------------


def vector_type(dtype: DType, at: Node) -> str:
    """The C++ type of a register or predicate."""
    name = VECTORS.get(str(dtype.base))
    if name is None:
        raise unprintable(at, f"registers of {dtype}")
    return name


def _in_registers(array: Array) -> bool:
    """Whether an array is one of whole vector registers."""
    size = int_value(array.size) if array.size is not None else None
    local = array.space in (Space.REGISTER, Space.LOCAL)
    return local and size is not None and size > 0 and size % (256 // array.type.bytes) == 0


class _Registers(Statements):
    """Statements of a SIMD function: a variable of vector type is a register, not an array."""

    def of(self, e: Any) -> str:
        """A register by name, an element of a register array, or a scalar."""
        array = getattr(e, "array", None)
        if isinstance(array, Array) and e.dtype.lanes > 1:
            return f"{array.name}[{self.text.of(self.number(e.index, e.dtype.lanes))}]"
        return super().of(e)

    def number(self, index: Expr, lanes: int) -> Expr:
        """Which register of an array an element index means."""
        return simplify(Binary(BinaryOp.FLOORDIV, index, const(lanes)))

    def declare(self, stmt: Declare) -> None:
        """An array of registers: its elements are those of vector variables."""
        array = stmt.array
        lanes = 256 // array.type.bytes
        if not _in_registers(array):
            super().declare(stmt)
            return
        size = int_value(array.size) if array.size is not None else None
        self.text.line(f"{vector_type(array.type, stmt)} {array.name}[{(size or 0) // lanes}];")

    def loop(self, stmt: For) -> None:
        """A loop; one that sets all elements of an array of registers sets registers."""
        inner = stmt.body[0]
        if not isinstance(inner, Write) or not _in_registers(inner.array) or len(stmt.body) > 1:
            super().loop(stmt)
            return
        size, count = inner.array.type.bytes, int_value(stmt.stop)
        if inner.index != stmt.var or int_value(stmt.start) != 0 or inner.array.size != stmt.stop:
            raise unprintable(stmt, "loops over some elements of registers")
        for k in range((count or 0) // (256 // size)):
            at, mask = f"{inner.array.name}[{k}]", f"asc_create_mask_b{8 * size}(PAT_ALL)"
            self.text.line(f"asc_duplicate_scalar({at}, {self.of(inner.value)}, {mask});")

    def write(self, stmt: Write) -> None:
        """A register into an array of them."""
        lanes = stmt.value.dtype.lanes
        if lanes == 1:
            if _in_registers(stmt.array):
                raise unprintable(stmt, "stores to one element of a register")
            super().write(stmt)
            return
        index = self.text.of(self.number(stmt.index, lanes))
        self.text.line(f"{stmt.array.name}[{index}] = {self.of(stmt.value)};")


def _result(x: Statements, stmt: Instr, n: int = 0) -> str:
    """Declare a result, and give its name."""
    var = stmt.results[n]
    x.text.line(f"{vector_type(var.type, stmt)} {var.name};")
    return var.name


def _args(x: Statements, stmt: Instr) -> list[str]:
    return [pointer(x, n) if isinstance(n, Slot) else x.of(n) for n in stmt.ins]


def _plain(name: str) -> Printer:
    """`name(result, operands...)`, or with two results both first."""

    def printer(x: Statements, stmt: Instr) -> None:
        made = [_result(x, stmt, n) for n in range(len(stmt.results))]
        x.text.line(f"{name}({', '.join([*made, *_args(x, stmt)])});")

    return printer


def _zeroing(name: str) -> Printer:
    """A fused operation that updates its first operand."""

    def printer(x: Statements, stmt: Instr) -> None:
        old, *rest = _args(x, stmt)
        made = _result(x, stmt)
        x.text.line(f"{made} = {old};")
        x.text.line(f"{name}({', '.join([made, *rest])}, MODE_ZEROING);")

    return printer


def _histogram(name: str) -> Printer:
    def printer(x: Statements, stmt: Instr) -> None:
        old, *rest = _args(x, stmt)
        made = _result(x, stmt)
        x.text.line(f"{made} = {old};")
        x.text.line(f"{name}{dict(stmt.imm)['half']}({', '.join([made, *rest])});")

    return printer


def _pset(x: Statements, stmt: Instr) -> None:
    imm = dict(stmt.imm)
    (var,) = stmt.results
    x.text.line(f"vector_bool {var.name} = asc_create_mask_b{imm['width']}({imm['dist']});")


def _update_mask(x: Statements, stmt: Instr) -> None:
    (var,) = stmt.results
    width = dict(stmt.imm)["width"]
    x.text.line(f"vector_bool {var.name} = asc_update_mask_b{width}({x.of(stmt.ins[0])});")


_LOADS = {
    "NORM": "", "BRC": "_brc_elem", "US": "_upsample", "DS": "_downsample", "UNPK": "_unpack",
    "UNPK4": "_unpack4", "BLK": "_brc_datablock", "E2B": "_brc_elem2datablock",
}  # fmt: skip


def _vld(x: Statements, stmt: Instr) -> None:
    word = str(dict(stmt.imm)["dist"]).split("_", maxsplit=1)[0]
    slot = cast("Slot", stmt.ins[0])
    (var,) = stmt.results
    element = type_of(var.type.base, stmt) if var.type.base != slot.array.type else ""
    made = _result(x, stmt)
    at = pointer(x, slot, element)
    if len(stmt.ins) == 1:
        x.text.line(f"asc_loadalign{_LOADS[word]}({made}, {at}, 0);")
        return
    with x.text.inside(""):
        x.text.line(
            f"{QUALIFIERS[slot.array.space]}{element or type_of(var.type.base, stmt)}* at = {at};"
        )
        x.text.line(f"asc_loadalign{_LOADS[word]}_postupdate({made}, at, {x.of(stmt.ins[1])});")


def _vld2(x: Statements, stmt: Instr) -> None:
    made = [_result(x, stmt, n) for n in (0, 1)]
    slot = cast("Slot", stmt.ins[0])
    x.text.line(f"asc_loadalign_deintlv({made[0]}, {made[1]}, {pointer(x, slot)});")


def _vsts(x: Statements, stmt: Instr) -> None:
    word = str(dict(stmt.imm)["dist"])
    (slot,) = stmt.outs
    value, mask = (x.of(n) for n in stmt.ins)
    if word.startswith("ONEPT"):
        x.text.line(f"asc_storealign_1st({pointer(x, slot)}, {value}, 0);")
        return
    kind, width = word.split("_B")
    name = {"NORM": "", "PK": "_pack", "PK4": "_pack_quarter"}[kind]
    if kind == "NORM":
        x.text.line(f"asc_storealign({pointer(x, slot)}, {value}, 0, {mask});")
        return
    at = pointer(x, slot, f"uint{width}_t")
    x.text.line(f"asc_storealign{name}({at}, (vector_u{width}&){value}, 0, {mask});")


def _vsstb(x: Statements, stmt: Instr) -> None:
    (slot,) = stmt.outs
    value, step, mask = (x.of(n) for n in stmt.ins)
    rest = f"{value}, (uint16_t)({step} >> 16), (uint16_t){step}, {mask}"
    if stmt.row == "simd.vsstb":
        x.text.line(f"asc_storealign({pointer(x, slot)}, {rest});")
        return
    with x.text.inside(""):
        element = type_of(slot.array.type, stmt)
        x.text.line(f"{QUALIFIERS[slot.array.space]}{element}* at = {pointer(x, slot)};")
        x.text.line(f"asc_storealign_postupdate(at, {rest});")


def _vscatter(x: Statements, stmt: Instr) -> None:
    (slot,) = stmt.outs
    value, index, mask = (x.of(n) for n in stmt.ins)
    x.text.line(f"asc_scatter({pointer(x, slot)}, {value}, {index}, {mask});")


def _predicate_at(x: Statements, stmt: Instr) -> None:
    slot = stmt.outs[0] if stmt.outs else cast("Slot", stmt.ins[0])
    at = pointer(x, slot, "uint32_t")
    kind = {"NORM": "", "US": "_upsample", "DS": "_downsample", "PK": "_pack"}[
        dict(stmt.imm)["dist"]
    ]
    if stmt.outs:
        x.text.line(f"asc_storealign{kind}({at}, {x.of(stmt.ins[0])}, 0);")
    else:
        x.text.line(f"asc_loadalign{kind}({_result(x, stmt)}, {at}, 0);")


def _by_imm(key: str, names: dict[Any, str]) -> Printer:
    """One of several functions, by an immediate."""

    def printer(x: Statements, stmt: Instr) -> None:
        _plain(names[dict(stmt.imm)[key]])(x, stmt)

    return printer


def _vusqz(x: Statements, stmt: Instr) -> None:
    mask = x.of(stmt.ins[0])
    made = _result(x, stmt)
    x.text.line(f"asc_duplicate_scalar({made}, 0, {mask});")
    x.text.line(f"asc_unsqueeze({made}, {mask});")


def _carry(name: str) -> Printer:
    def printer(x: Statements, stmt: Instr) -> None:
        over, made = (_result(x, stmt, n) for n in (0, 1))
        a, b, *rest = _args(x, stmt)
        words = ", ".join(f"(vector_u32&){v}" for v in (made, a, b))
        x.text.line(f"{name}({over}, {words}, {', '.join(rest)});")

    return printer


def _vcvt(x: Statements, stmt: Instr) -> None:
    value, mask = _args(x, stmt)
    made = _result(x, stmt)
    words = ", ".join([made, value, mask, *_conversion(stmt), "MODE_ZEROING"])
    x.text.line(f"vcvt({words});")


def _conversion(stmt: Instr) -> list[str]:
    """What a conversion is told: how to round, whether to saturate, which part."""
    imm = dict(stmt.imm)
    source = cast("Expr", stmt.ins[0]).dtype.base
    target = stmt.results[0].type.base
    controls: list[str] = []
    narrows, floats = target.bits < source.bits, source.is_float or target.is_float
    if floats and (narrows or target.is_integer or source.bits == target.bits):
        controls.append(str(imm["rounding"]))
    if narrows or (source.is_float and target.is_integer):
        controls.append("RS_ENABLE" if imm["sat"] else "RS_DISABLE")
    ratio = max(source.bits, target.bits) // min(source.bits, target.bits)
    if ratio > 1:
        words = ("EVEN", "ODD") if ratio == 2 else ("P0", "P1", "P2", "P3")
        controls.append(f"PART_{words[int(imm['part'])]}")
    return controls


# Elements that stay -------------------------------------------------------------------------------

_INTRINSICS = {"vdupv": "vdup"}
_FLOATS = frozenset({"vabsdif", "vexp", "vln", "vsqrt", "vaxpy"})
_REDUCTIONS = frozenset({"vcadd", "vcmax", "vcmin"})


def _merges(name: str, dtype: DType) -> bool:
    """Whether the chip has an operation that keeps elements for this type (tilelang 0.1.15,
    src/ascend/codegen/codegen_ascend.cc, SupportsNativeSimdMerging).
    """
    whole = dtype.is_integer and dtype.bits in (8, 16, 32)
    floats = dtype.is_float and dtype.bits in (16, 32) and dtype != "bfloat16"
    if not whole and not floats and dtype != "bfloat16":
        return False
    signed = whole and not dtype.is_uint
    rules = {
        "vdup": dtype != "bfloat16",
        **dict.fromkeys(("vabs", "vneg"), signed or floats),
        **dict.fromkeys(_FLOATS, floats),
        "vrelu": floats or (signed and dtype.bits == 32),
        **dict.fromkeys(("vshl", "vshr", "vshls", "vshrs"), whole),
        **dict.fromkeys(("vdiv", *_REDUCTIONS), (whole and dtype.bits >= 16) or floats),
        **dict.fromkeys(("vmul", "vmuls"), not whole or dtype.bits >= 16),
    }
    return rules.get(name, True)


def _merging(name: str) -> Printer:
    def printer(x: Statements, stmt: Instr) -> None:
        *args, old = _args(x, stmt)
        if name in _FUSED:
            del args[0]  # the register that it adds to is the one whose elements stay
        first = cast("Expr", stmt.ins[0])
        element = stmt.results[0].type.base if name == "vdup" else first.dtype.base
        made = _result(x, stmt)
        if not _merges(name, element):
            if name not in _NAMES or name in _REDUCTIONS:
                raise unprintable(stmt, f"T.simd.{name} of {element} that keeps elements")
            x.text.line(f"{_NAMES[name]}({', '.join([made, *args])});")
            x.text.line(f"asc_select({made}, {made}, {old}, {args[-1]});")
            return
        x.text.line(f"{made} = {old};")
        more = _conversion(stmt) if name == "vcvt" else []
        more += [str(dict(stmt.imm)["pos"])] if name == "vdupv" else []
        words = ", ".join([made, *args, *more, "MODE_MERGING"])
        x.text.line(f"{_INTRINSICS.get(name, name)}({words});")

    return printer


def _mem_bar(x: Statements, stmt: Instr) -> None:
    x.text.line(f"asc_mem_bar({dict(stmt.imm)['kind']});")


_NAMES = {
    "pand": "asc_and", "por": "asc_or", "pxor": "asc_xor", "pnot": "asc_not",
    "psel": "asc_select", "vadd": "asc_add", "vsub": "asc_sub", "vmul": "asc_mul",
    "vdiv": "asc_div", "vmax": "asc_max", "vmin": "asc_min", "vand": "asc_and", "vor": "asc_or",
    "vxor": "asc_xor", "vshl": "asc_shiftleft", "vshr": "asc_shiftright", "vabsdif": "asc_abs_sub",
    "vexpdif": "asc_exp_sub", "vprelu": "asc_prelu", "vadds": "asc_add_scalar",
    "vmuls": "asc_mul_scalar", "vmaxs": "asc_max_scalar", "vmins": "asc_min_scalar",
    "vshls": "asc_shiftleft_scalar", "vshrs": "asc_shiftright_scalar", "vlrelu": "asc_leakyrelu",
    "vabs": "asc_abs", "vneg": "asc_neg", "vrelu": "asc_relu", "vexp": "asc_exp", "vln": "asc_ln",
    "vsqrt": "asc_sqrt", "vnot": "asc_not", "vcadd": "asc_reduce_sum", "vcmax": "asc_reduce_max",
    "vcmin": "asc_reduce_min", "vcgadd": "asc_reduce_sum_datablock",
    "vcgmax": "asc_reduce_max_datablock", "vcgmin": "asc_reduce_min_datablock",
    "vcpadd": "asc_pair_reduce_sum", "vsqz": "asc_squeeze", "vmull": "asc_mull",
    "vdup": "asc_duplicate_scalar", "vsel": "asc_select", "vselr": "asc_gather",
    "vintlv": "asc_intlv", "vdintlv": "asc_deintlv", "vgatherb": "asc_gather_datablock",
    "vgather2": "asc_gather",
}  # fmt: skip
_FUSED = ("vmula", "vmadd", "vaxpy")
_COMPARISONS = ("eq", "ne", "gt", "ge", "lt", "le")
SIMD_ROWS: dict[str, Printer] = {
    f"simd.{name}": printer
    for name, printer in {
        **{name: _plain(call) for name, call in _NAMES.items()},
        "pset": _pset,
        "pge": _pset,
        "update_mask": _update_mask,
        "ppack": _by_imm("part", {0: "asc_pack_to_low", 1: "asc_pack_to_high"}),
        "punpack": _by_imm("part", {0: "asc_unpack_lower", 1: "asc_unpack_upper"}),
        "pintlv": _by_imm("width", {w: f"asc_intlv_b{w}" for w in (8, 16, 32)}),
        "pdintlv": _by_imm("width", {w: f"asc_deintlv_b{w}" for w in (8, 16, 32)}),
        "pld": _predicate_at,
        "pst": _predicate_at,
        "vld": _vld,
        "vld_postupdate": _vld,
        "vld2": _vld2,
        "vsts": _vsts,
        "vsstb": _vsstb,
        "vsstb_postupdate": _vsstb,
        "vscatter": _vscatter,
        "mem_bar": _mem_bar,
        **{name: _zeroing(name) for name in _FUSED},
        **{f"{name}.merge": _merging(name) for name in MERGED},
        "vaddc": _carry("asc_add"),
        "vsubc": _carry("asc_sub"),
        "vaddcs": _carry("asc_addc"),
        "vsubcs": _carry("asc_subc"),
        "vdupv": _by_imm(
            "pos", {"POS_LOWEST": "asc_duplicate", "POS_HIGHEST": "asc_duplicate_highest"}
        ),
        "vci": _by_imm("order", {"INC_ORDER": "asc_arange", "DEC_ORDER": "asc_arange_descend"}),
        "vcmp": _by_imm("op", {op: f"asc_{op}" for op in _COMPARISONS}),
        "vcmps": _by_imm("op", {op: f"asc_{op}_scalar" for op in _COMPARISONS}),
        "vpack": _by_imm("part", {0: "asc_pack_to_low", 1: "asc_pack_to_high"}),
        "vunpack": _by_imm("part", {0: "asc_unpack_lower", 1: "asc_unpack_upper"}),
        "vusqz": _vusqz,
        "vcvt": _vcvt,
        "dhistv2": _histogram("asc_frequency_histogram_bin"),
        "chistv2": _histogram("asc_cumulative_histogram_bin"),
    }.items()
}
