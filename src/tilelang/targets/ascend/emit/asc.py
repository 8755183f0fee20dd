"""C++ for the Ascend 950: the `asc_` calls of CANN's C API.

What enters: a program of the thread stage. What leaves: the text of one file, a kernel for each
launch. Each instruction is one call, or a call and the settings that it reads. Names, arguments and
their order are those of the source that tilelang 0.1.15 generates for the same operations; what has
no call there is refused by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from tilelang.ir.ascend import Core, CoreRegion, VectorFunction
from tilelang.ir.expr import Const, Expr, Var, int_value
from tilelang.ir.interval import interval
from tilelang.ir.thread import Array, Declare, Instr, Kernel, Program, Slot, Space, kernels_of
from tilelang.ir.tile import Stmt
from tilelang.scopes import Memory
from tilelang.targets.ascend.emit.functions import Functions
from tilelang.targets.ascend.emit.statements import (
    Printer,
    Statements,
    cut,
    parameter,
    pointer,
    quantiser,
)
from tilelang.targets.ascend.emit.text import (
    HELPERS,
    Text,
    type_of,
    unprintable,
    with_own_names,
)
from tilelang.targets.ascend.emit.tiles import TILES, fill
from tilelang.targets.ascend.machine import ASCEND950

HEADERS = (
    "c_api/asc_simd.h",
    "simt_api/asc_simt.h",
    "simt_api/asc_fp16.h",
    "simt_api/asc_bf16.h",
    "simt_api/asc_fp8.h",
)
_KEPT = 4
"""The cache policy of stores from UB (`asc_store_l2_cache_mode`, NOTALLOC_CI)."""

# Conversions of a float32 accumulator on its way out (tilelang 0.1.15, src/ascend/op/copy.cc).
_QUANT = {
    ("float32", "float32"): 0, ("int32", "int32"): 0, ("float32", "bfloat16"): 16,
    ("float32", "float16"): 1, ("float32", "float8_e4m3fn"): 13, ("float32", "int8"): 24,
    ("int32", "int8"): 9, ("int32", "float16"): 11,
}  # fmt: skip
# Those that multiply by the register that `asc_set_l0c_copy_prequant` sets.
_SCALED = frozenset({9, 11, 13, 24})


def emit_asc(program: Program) -> str:
    """The source of a program for the 950."""
    text = Text()
    for kernel in kernels_of(with_own_names(program)):
        _Kernel(kernel, text).emit()
    head = [f'#include "{name}"' for name in HEADERS]
    helpers = [line for name in text.helpers for line in ("", HELPERS[name].rstrip())]
    tiles = [line for function in text.tiles.values() for line in ("", function)]
    return "\n".join([*head, *helpers, *tiles, "", *text.lines]).rstrip() + "\n"


class _Kernel(Statements):
    """One launch."""

    def __init__(self, kernel: Kernel, text: Text) -> None:
        super().__init__(text, ROWS)
        self.kernel = kernel
        self.regions = {s.core for s in kernel.body if isinstance(s, CoreRegion)}
        self.mixed = len(self.regions) > 1 or (Core.VECTOR in self.regions and kernel.block != (1,))
        self.functions: dict[int, str] = {}

    def emit(self) -> None:
        """The functions, then the kernel."""
        k = self.kernel
        for var, extent in zip(k.vars, k.grid, strict=True):
            last = int_value(extent)
            self.text.ranges[var] = interval(0, None if last is None else last - 1)
        for var, count in zip(k.thread_vars, k.block, strict=False):
            self.text.ranges[var] = interval(0, count - 1)
        functions = Functions(k.name, self.text)
        for node in k.walk():
            if isinstance(node, VectorFunction):
                self.functions[id(node)] = functions.call(node)
        kind = "__mix__(1, 2)" if self.mixed else "__vector__"
        if self.regions == {Core.CUBE}:
            kind = "__cube__"
        params: Sequence[Array | Var] = [p for p in k.params if isinstance(p, (Array, Var))]
        listed = ", ".join(parameter(p, k) for p in params)
        with self.text.inside(f'extern "C" __global__ {kind} void {k.name}({listed})'):
            self.text.line("asc_init();")
            (block,) = k.vars
            if self._uses(block):
                self.text.line(f"int32_t {block.name} = (int32_t)block_idx;")
            self.block(k.body)
        self.text.line()
        if self.text.tiles:
            self._room()

    def _room(self) -> None:
        """Threads keep some of UB, also those of functions that only the source has."""
        room = ASCEND950.memories[Memory.UB][-1]
        for s in self.kernel.walk():
            if isinstance(s, Declare) and s.array.space is Space.UB and s.array.size is not None:
                end = (s.offset or 0) + (int_value(s.array.size) or 0) * s.array.type.bytes
                if end > room.amount:
                    raise unprintable(
                        s,
                        f"operations on tiles of UB outside vector functions, with {end} bytes of"
                        " UB in use,",
                        help=f"at most {room.amount} bytes beside threads ({room.source})",
                    )

    def _uses(self, var: Var) -> bool:
        return any(
            isinstance(n, Var) and n.name == var.name for s in self.kernel.body for n in s.walk()
        )

    def statement(self, stmt: Stmt) -> None:
        """One statement; regions and calls of functions are the kernel's own."""
        match stmt:
            case CoreRegion():
                self.region(stmt)
            case VectorFunction():
                self.text.line(self.functions[id(stmt)])
            case _:
                super().statement(stmt)

    def region(self, stmt: CoreRegion) -> None:
        """What one kind of core does."""
        if not self.mixed:
            self.numbered(stmt)
            self.block(stmt.body)
            return
        with self.text.inside(f"if {'ASC_IS_AIC' if stmt.core is Core.CUBE else 'ASC_IS_AIV'}"):
            self.numbered(stmt)
            if stmt.core is Core.VECTOR and (stmt.subs == 1 or self.kernel.block == (1,)):
                with self.text.inside("if (asc_get_sub_block_id() == 0)"):
                    self.block(stmt.body)
            else:
                self.block(stmt.body)

    def numbered(self, stmt: CoreRegion) -> None:
        """The number of the vector core, under the names by which the body knows it."""
        if stmt.core is Core.CUBE:
            return
        used = {n.name for s in stmt.body for n in s.walk() if isinstance(n, Var)}
        names = [stmt.sub] if stmt.sub is not None else list(self.kernel.thread_vars)
        for var in names:
            if var.name in used:
                number = "asc_get_sub_block_id()" if self.mixed else "0"
                self.text.line(f"int32_t {var.name} = {number};")
                self.text.ranges[var] = interval(0, 1)


# Instructions ------------------------------------------------------------------------------------


def _split(x: Statements, stmt: Instr) -> tuple[Slot, list[Slot], list[str], list[Expr]]:
    """What is written, what is read, and the scalars, as text and as they are."""
    slots = [n for n in stmt.ins if isinstance(n, Slot)]
    scalars = [cast("Expr", n) for n in stmt.ins if not isinstance(n, Slot)]
    return stmt.outs[0], slots, [x.of(e) for e in scalars], scalars


def _bytes(count: str, slot: Slot) -> str:
    size = slot.array.type.bytes
    return str(int(count) * size) if count.isdecimal() else f"{count} * {size}"


def _mode(kind: str, value: int = 0) -> str:
    return f"static_cast<asc_{kind}>({value})"


def _cache(kind: str, stmt: Instr, default: int = 0) -> str:
    return _mode(f"{kind}_l2_cache_mode", dict(stmt.imm).get("cache", default))


def _gm_ub(x: Statements, stmt: Instr) -> None:
    dst, (src,), (rows, columns, src_pitch, dst_pitch), _ = _split(x, stmt)
    x.text.line(
        f"asc_copy_gm2ub_align({pointer(x, dst, 'uint8_t')}, {pointer(x, src, 'uint8_t')}, {rows},"
        f" {_bytes(columns, dst)}, 0, 0, 0, {_cache('load', stmt)}, {_bytes(src_pitch, src)},"
        f" {_bytes(dst_pitch, dst)});"
    )


def _gm_ub_pad(x: Statements, stmt: Instr) -> None:
    """A tile of which global memory may lack rows or columns: what it lacks is in front of the copy
    filled with the pad, or by the copy itself where that is certainly less than 32 bytes of a row.
    """
    dst, (src,), texts, values = _split(x, stmt)
    rows, columns, _, pitch, tile_rows, tile_columns = (int_value(e) for e in values[1:])
    size = dst.array.type.bytes
    bits, number = f"uint{8 * size}_t", type_of(dst.array.type, stmt)
    missing = (tile_columns or 0) - (columns or 0)
    by_copy = columns is not None and rows == tile_rows and missing * size < 32
    ragged = size > 4 or pitch is None or pitch * size % 32 != 0
    with x.text.inside(""):
        x.text.line(f"{number} pad_value = {texts[0]};")
        pad = f"*reinterpret_cast<{bits}*>(&pad_value)"
        if by_copy:
            x.text.line(f"asc_set_copy_pad_val({pad});")
        else:
            with x.text.inside(f"if ({cut((texts[1], texts[5]), (texts[2], texts[6]))})"):
                x.text.line("asc_sync();")
                if ragged:
                    fill(x, stmt, dst, "pad_value", (texts[5], texts[6], texts[4]))
                else:
                    name = x.text.helper(f"fill_b{8 * size}")
                    sizes = f"{texts[5]}, {texts[6]}, {texts[4]}"
                    x.text.line(f"{name}({pointer(x, dst, bits)}, {pad}, {sizes});")
                x.text.line("asc_sync();")
        x.text.line(
            f"asc_copy_gm2ub_align({pointer(x, dst, bits)}, {pointer(x, src, bits)}, {texts[1]},"
            f" {_bytes(texts[2], dst)}, 0, {missing if by_copy else 0}, {int(by_copy)},"
            f" {_cache('load', stmt)}, {_bytes(texts[3], src)}, {_bytes(texts[4], dst)});"
        )


def _gm_ub_end(x: Statements, stmt: Instr) -> None:
    """Rows that end with what the chip was told (`asc_set_copy_pad_val`)."""
    dst, (src,), texts, values = _split(x, stmt)
    rows, columns, src_pitch, dst_pitch, *_ = texts
    bits = f"uint{8 * dst.array.type.bytes}_t"
    missing = (int_value(values[5]) or 0) - (int_value(values[1]) or 0)
    x.text.line(
        f"asc_copy_gm2ub_align({pointer(x, dst, bits)}, {pointer(x, src, bits)}, {rows},"
        f" {_bytes(columns, dst)}, 0, {missing}, 1, {_cache('load', stmt)},"
        f" {_bytes(src_pitch, src)}, {_bytes(dst_pitch, dst)});"
    )


def _pad_value(x: Statements, stmt: Instr) -> None:
    x.text.line(f"asc_set_copy_pad_val({x.of(stmt.ins[0])});")


def _ub_l1_blocks(x: Statements, stmt: Instr) -> None:
    dst, (src,), (rows, columns, nz_rows), _ = _split(x, stmt)
    c0 = int(dict(stmt.imm)["c0"])
    gap = "0" if rows == nz_rows else _minus(nz_rows, rows)
    x.text.line(
        f"asc_copy_ub2l1((__cbuf__ void*){pointer(x, dst)}, (__ubuf__ void*){pointer(x, src)},"
        f" {_blocks(columns, c0)}, {rows}, 1, {gap});"
    )


def _minus(a: str, b: str) -> str:
    return str(int(a) - int(b)) if a.isdecimal() and b.isdecimal() else f"{a} - {b}"


def _dup(x: Statements, stmt: Instr) -> None:
    """A tile of UB set to a number: a loop over registers."""
    dst, _, (value, rows, columns, pitch), values = _split(x, stmt)
    size, step = dst.array.type.bytes, int_value(values[3])
    if size > 4 or (int_value(values[1]) != 1 and (step is None or step * size % 32)):
        fill(x, stmt, dst, value, (rows, columns, pitch))
        return
    bits, number = f"uint{8 * size}_t", type_of(dst.array.type, stmt)
    with x.text.inside(""):
        x.text.line(f"{number} fill_value = {value};")
        x.text.line(
            f"{x.text.helper(f'fill_b{8 * size}')}({pointer(x, dst, bits)},"
            f" *reinterpret_cast<{bits}*>(&fill_value), {rows}, {columns}, {pitch});"
        )


def _ub_gm(x: Statements, stmt: Instr) -> None:
    dst, (src,), (rows, columns, src_pitch, dst_pitch), _ = _split(x, stmt)
    x.text.line(
        f"asc_copy_ub2gm_align({pointer(x, dst, 'uint8_t')}, {pointer(x, src, 'uint8_t')}, {rows},"
        f" {_bytes(columns, dst)}, {_cache('store', stmt, _KEPT)}, {_bytes(dst_pitch, dst)},"
        f" {_bytes(src_pitch, src)});"
    )


def _fill(x: Statements, dst: str, counts: tuple[str, str, str], c0: int, word: int = 0) -> None:
    """Set blocks of L1: `counts` are rows, columns, and the rows of the whole matrix. A word has 32
    bits where an element has, else 16.
    """
    rows, columns, pitch = counts
    repeat = f"({columns} + {c0 - 1}) / {c0}"
    gap = "0" if rows == pitch else f"{pitch} - {rows}"
    element = "uint32_t" if word and c0 == _WORDS else "uint16_t"
    x.text.line(
        f"asc_fill_l1((__cbuf__ {element}*){dst}, (uint32_t){word},"
        f" {{.repeat = static_cast<uint64_t>({repeat}), .blk_num = static_cast<uint64_t>({rows}),"
        f" .dst_gap = static_cast<uint64_t>({gap})}});"
    )


_WORDS = 8
"""Elements of 32 bits in a block."""


def _to_l1(name: str) -> Printer:
    def printer(x: Statements, stmt: Instr) -> None:
        dst, (src,), texts, _ = _split(x, stmt)
        rows, columns, pitch, tile_rows, tile_columns, nz_rows = texts
        c0 = int(dict(stmt.imm)["c0"])
        at = pointer(x, dst)
        if (rows, columns) != (tile_rows, tile_columns):
            with x.text.inside(f"if ({cut((rows, tile_rows), (columns, tile_columns))})"):
                _fill(x, at, (tile_rows, tile_columns, nz_rows), c0)
                x.text.line("asc_sync_pipe(PIPE_MTE2);")
        x.text.line(f"asc_set_gm2l1_nz_para(1, 1, static_cast<uint16_t>({nz_rows}), 0);")
        x.text.line(
            f"{name}({at}, {pointer(x, src)}, {_bytes(pitch, src)}, {_cache('load', stmt)}, {rows},"
            f" {columns}, 0, 0);"
        )

    return printer


def _l1_fill(x: Statements, stmt: Instr) -> None:
    dst, _, (_, rows, columns, nz_rows), values = _split(x, stmt)
    number, dtype = values[0], dst.array.type
    if not isinstance(number, Const) or dtype.bits > 32:
        raise unprintable(stmt, f"fills of L1 with {dtype} that are no constants of 32 bits")
    bits = int(np.array(number.value, dtype.numpy).view(f"u{dtype.bytes}"))
    word = bits * 257 if dtype.bytes == 1 else bits
    _fill(x, pointer(x, dst), (rows, columns, nz_rows), int(dict(stmt.imm)["c0"]), word)


def _blocks(count: str, size: int) -> str:
    """`count` divided by a block, rounded up."""
    return str(-(-int(count) // size)) if count.isdecimal() else f"({count} + {size - 1}) / {size}"


def _load(name: str, *, turned: bool) -> Printer:
    def printer(x: Statements, stmt: Instr) -> None:
        dst, (src,), (outer, inner, nz_rows), _ = _split(x, stmt)
        c0 = int(dict(stmt.imm)["c0"])
        rows, columns = (inner, outer) if turned else (outer, inner)
        x.text.line(
            f"{name}({pointer(x, dst)}, {pointer(x, src)}, 0, 0, {_blocks(rows, 16)},"
            f" {_blocks(columns, c0)}, {_blocks(nz_rows, 16)}, {_blocks(outer, 16)});"
        )

    return printer


def _mad(x: Statements, stmt: Instr) -> None:
    c, (a, b), (init, m, n, k, _), _ = _split(x, stmt)
    x.text.line(
        f"asc_mmad({pointer(x, c)}, {pointer(x, a)}, {pointer(x, b)}, {m}, {k}, {n}, 0, 1, 0,"
        f" (bool)({init}));"
    )


# MX products ------------------------------------------------------------------------------------


def _scales_to_l1(x: Statements, stmt: Instr) -> None:
    dst, (src,), texts, _ = _split(x, stmt)
    rows, units, src_pitch, tile_rows, pitch = texts
    at = pointer(x, dst, "uint16_t")
    if rows != tile_rows:
        with x.text.inside(f"if ({cut((rows, tile_rows))})"):
            _fill(x, at, (units, tile_rows, pitch), 16)
            x.text.line("asc_sync_pipe(PIPE_MTE2);")
    x.text.line(f"asc_set_gm2l1_nz_para(1, 1, static_cast<uint16_t>({pitch}), 0);")
    x.text.line(
        f"asc_copy_gm2l1_dn2nz({at}, {pointer(x, src, 'uint16_t')}, {_bytes(src_pitch, src)},"
        f" {_cache('load', stmt)}, {units}, {rows}, 0, 0);"
    )


def _slot_of(x: Statements, slot: Slot) -> str:
    """The number of the first scale of a tile."""
    index = x.of(slot.index)
    return slot.array.name if index == "0" else f"({slot.array.name} + {_bytes(index, slot)})"


def _scales(name: str) -> Printer:
    def printer(x: Statements, stmt: Instr) -> None:
        dst, (src,), (rows, units, pitch), _ = _split(x, stmt)
        x.text.line(
            f"{name}({_slot_of(x, dst)}, {pointer(x, src, 'fp8_e8m0_t')}, 0, 0,"
            f" {_blocks(rows, 16)}, {units}, {pitch}, {units});"
        )

    return printer


def _mad_scaled(x: Statements, stmt: Instr) -> None:
    c, (a, b, *_), (init, m, n, k, _), _ = _split(x, stmt)
    element = ""
    if dict(stmt.imm)["packed"]:
        element, k = "float4_e2m1x2_t", str(2 * int(k)) if k.isdecimal() else f"{k} * 2"
    operands = f"{pointer(x, c)}, {pointer(x, a, element)}, {pointer(x, b, element)}"
    x.text.line(f"asc_mmad_mx({operands}, {m}, {k}, {n}, 0, 1, 0, (bool)({init}));")


def _is_one(e: Expr) -> bool:
    return isinstance(e, Const) and e.value == 1


def _quant(x: Statements, stmt: Instr, dst: Slot, src: Slot, scale: Expr) -> str:
    """The mode of a conversion; its factor is set before."""
    made = dst.array.type
    code = _QUANT.get((str(src.array.type), str(made)))
    config = quantiser(scale, signed=str(made) == "int8")
    scaled = code in _SCALED
    if code is None or config is None or not (scaled or _is_one(scale)):
        raise unprintable(stmt, f"drains of {src.array.type} into {made} with this scale")
    if scaled:
        x.text.line(f"asc_set_l0c_copy_prequant({config}ull);")
    return _mode("quant_mode", code)


def _drain(x: Statements, stmt: Instr) -> None:
    dst, (src,), texts, values = _split(x, stmt)
    rows, columns, c_rows, pitch, _, *sub = texts
    relu = int(bool(dict(stmt.imm)["relu"]))
    x.text.line("asc_set_l0c_copy_nz_para(1, 0, 0);")
    quant = _quant(x, stmt, dst, src, values[4])
    tail = f"{_mode('unit_flag_mode')}, {quant}, {_mode('relu_pre_mode', relu)}, 0, 1, 0, 0);"
    sizes = f"{pointer(x, dst)}, {pointer(x, src)}, {columns}, {rows}, {pitch}, {c_rows}"
    if sub:
        x.text.line(f"asc_copy_l0c2ub({sizes}, {sub[0]}, {_mode('dual_dst_mode')}, {tail}")
    else:
        x.text.line(f"asc_copy_l0c2gm({sizes}, {_cache('store', stmt)}, {tail}")


def _ub_l1(x: Statements, stmt: Instr) -> None:
    """Column blocks of a row-major tile of UB into an NZ matrix of L1, 32 bytes of a row each."""
    dst, (src,), texts, values = _split(x, stmt)
    rows, columns, _, tile_rows, tile_columns, nz_rows = texts
    c0 = int(dict(stmt.imm)["c0"])
    known = [int_value(e) for e in values]
    if (rows, columns) != (tile_rows, tile_columns) or known[2] is None or known[2] % c0:
        raise unprintable(stmt, "copies from UB to L1 of part of a tile, or of ragged rows")
    with x.text.inside(f"for (int32_t block = 0; block < {_blocks(columns, c0)}; ++block)"):
        x.text.line(
            f"asc_copy_ub2l1((__cbuf__ void*)({pointer(x, dst)} + block * {nz_rows} * {c0}),"
            f" (__ubuf__ void*)({pointer(x, src)} + block * {c0}), {rows}, 1,"
            f" {known[2] // c0 - 1}, 0);"
        )


def _pipe(stmt: Instr, key: str = "pipe") -> str:
    return f"PIPE_{dict(stmt.imm)[key]}"


def _flag(name: str) -> Printer:
    def printer(x: Statements, stmt: Instr) -> None:
        event = f"static_cast<event_t>({x.of(stmt.ins[0])})"
        x.text.line(f"{name}({_pipe(stmt, 'src')}, {_pipe(stmt, 'dst')}, {event});")

    return printer


def _barrier(x: Statements, stmt: Instr) -> None:
    pipe = _pipe(stmt)
    x.text.line("asc_sync();" if pipe == "PIPE_ALL" else f"asc_sync_pipe({pipe});")


_CROSS = {0: "inter", 1: "subblock", 2: "block", 4: "intra"}


def _cross(verb: str) -> Printer:
    def printer(x: Statements, stmt: Instr) -> None:
        among = _CROSS[dict(stmt.imm)["mode"]]
        x.text.line(f"asc_sync_{among}_{verb}({_pipe(stmt)}, {x.of(stmt.ins[0])});")

    return printer


def _mutex(name: str) -> Printer:
    def printer(x: Statements, stmt: Instr) -> None:
        x.text.line(f"{name}({_pipe(stmt)}, {x.of(stmt.ins[0])}, ASC_LOCK_BLOCK);")

    return printer


_ATOMIC = {
    "float32": "float", "float16": "float16", "bfloat16": "bfloat16", "int8": "int8",
    "int16": "int16", "int32": "int",
}  # fmt: skip


def _atomic(x: Statements, stmt: Instr) -> None:
    imm = dict(stmt.imm)
    if not imm["op"]:
        x.text.line("asc_set_atomic_none();")
        return
    word = _ATOMIC.get(str(imm.get("dtype", "")))
    if word is None or imm["op"] not in ("add", "max", "min"):
        raise unprintable(stmt, f"atomic stores by {imm['op']}")
    x.text.line(f"asc_set_atomic_{imm['op']}_{word}();")


def _hf32(x: Statements, stmt: Instr) -> None:
    mode = int_value(cast("Expr", stmt.ins[0]))
    if mode is None:
        raise unprintable(stmt, "modes known when the kernel runs")
    x.text.line("asc_disable_hf32();" if mode == 0 else "asc_enable_hf32();")
    if mode:
        word = "NEAREST_ZERO" if mode == 1 else "NEAREST_EVEN"
        x.text.line(f"asc_set_hf32_round_mode(asc_hf32_round_mode::{word});")


def _direction(x: Statements, stmt: Instr) -> None:
    along = "n" if int_value(cast("Expr", stmt.ins[0])) else "m"
    x.text.line(f"asc_set_mmad_direction_{along}();")


ROWS: dict[str, Printer] = {
    **TILES,
    "gm.ub": _gm_ub,
    "gm.ub.pad": _gm_ub_pad,
    "gm.ub.end": _gm_ub_end,
    "mode.copy_pad_value": _pad_value,
    "ub.l1.blocks": _ub_l1_blocks,
    "v.dup": _dup,
    "ub.gm": _ub_gm,
    "gm.l1.nz": _to_l1("asc_copy_gm2l1_nd2nz"),
    "gm.l1.dn": _to_l1("asc_copy_gm2l1_dn2nz"),
    "ub.l1.nz": _ub_l1,
    "l1.fill": _l1_fill,
    "l1.l0a": _load("asc_copy_l12l0a", turned=False),
    "l1.l0a.t": _load("asc_copy_l12l0a_transpose", turned=True),
    "l1.l0b.t": _load("asc_copy_l12l0b", turned=False),
    "l1.l0b": _load("asc_copy_l12l0b_transpose", turned=True),
    "mad": _mad,
    "gm.l1.scales": _scales_to_l1,
    "l1.l0a.scales": _scales("asc_copy_l12l0a_mx"),
    "l1.l0b.scales": _scales("asc_copy_l12l0b_mx"),
    "mad.scaled": _mad_scaled,
    "l0c.gm": _drain,
    "l0c.ub": _drain,
    "flag.set": _flag("asc_sync_notify"),
    "flag.wait": _flag("asc_sync_wait"),
    "barrier": _barrier,
    "cross.set": _cross("arrive"),
    "cross.wait": _cross("wait"),
    "mutex.lock": _mutex("asc_lock"),
    "mutex.unlock": _mutex("asc_unlock"),
    "mode.atomic": _atomic,
    "mode.hf32": _hf32,
    "mode.mmad_direction": _direction,
}
"""A printer for each row of the 950 that has a call."""
