"""Rows of SIMD functions: what each operation of `ir/ascend_simd.py` does to registers and UB.

What leaves: `SIMD`, one row for each operation, called `simd.` and its name. A register is a NumPy
array of its elements, a predicate one of 256 bools; operands are called by letter and place (`v0`,
`m2`), results `x0` and `x1`. Arithmetic on floats of 16 bits rounds once, from float32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np

from tilelang.dtypes import DType
from tilelang.dtypes.convert import converter
from tilelang.ir.ascend import Core, Pipe
from tilelang.ir.ascend_simd import (
    MERGED,
    PREDICATE,
    REGISTER_BYTES,
    SIMD_OPS,
    SimdFn,
    lanes_of,
)
from tilelang.ir.node import Effect
from tilelang.ir.thread import Space
from tilelang.isa.instr import Immediate, Is, OperandRow
from tilelang.targets.ascend.rows.build import Array, PipeRow
from tilelang.targets.ascend.rows.numbers import of_numpy
from tilelang.targets.ascend.rows.simd_convert import given_by_vcvt, vcvt

_SOURCE = "CANN asc-devkit, c_api/asc_simd.h; tilelang 0.1.15, tl_templates/ascend/simd_inst.h"
_F32 = DType("float32")

Meaning = Callable[..., Any]


# Predicates --------------------------------------------------------------------------------------


def active(mask: Array, x: Array) -> Array:
    """Which elements of a register a predicate is set for."""
    return mask[:: x.itemsize]


def predicate(elements: Array, size: int) -> Array:
    """Truths of elements of `size` bytes as a predicate."""
    mask = np.zeros(PREDICATE.lanes, np.bool_)
    mask[::size] = elements
    return mask


def pattern(word: str, count: int) -> Array:
    """The elements out of `count` that a pattern names."""
    places = np.arange(count)
    if word.startswith("PAT_VL"):
        return places < int(word[6:])
    rules = {
        "PAT_ALL": places >= 0,
        "PAT_ALLF": places < 0,
        "PAT_H": places < count // 2,
        "PAT_Q": places < count // 4,
        "PAT_M3": places % 3 == 0,
        "PAT_M4": places % 4 == 0,
    }
    return rules[word]


def _pset(width: int, dist: str) -> Array:
    size = width // 8
    return predicate(pattern(dist, PREDICATE.lanes // size), size)


def _update_mask(count: Any, width: int) -> Array:
    size = width // 8
    return predicate(np.arange(PREDICATE.lanes // size) < int(count), size)


def _ppack(p: Array, part: int) -> Array:
    half = PREDICATE.lanes // 2
    made = np.zeros_like(p)
    made[part * half : part * half + half] = p[::2]
    return made


def _punpack(p: Array, part: int) -> Array:
    half = PREDICATE.lanes // 2
    return predicate(p[part * half : part * half + half], 2)


def _woven(a: Array, b: Array, size: int = 1) -> tuple[Array, Array]:
    """The elements of two registers alternating, as two registers."""
    x, y = a.reshape(-1, size), b.reshape(-1, size)
    both = np.stack([x, y], axis=1).reshape(2, -1)
    return both[0], both[1]


def _parted(a: Array, b: Array, size: int = 1) -> tuple[Array, Array]:
    """The even and the odd elements of two registers."""
    both = np.concatenate([a, b]).reshape(-1, 2, size)
    return both[:, 0].reshape(-1), both[:, 1].reshape(-1)


def _selected(a: Array, b: Array, m: Array) -> Array:
    return np.where(m, a, b)


def _pld(src: Array, dist: str) -> Array:
    size = {"US": 16, "DS": 64}.get(dist, 32)
    bits = np.unpackbits(src.view(np.uint8)[:size], bitorder="little") == 1
    if dist == "US":
        return np.repeat(bits, 2)
    return bits[::2].copy() if dist == "DS" else bits


_OF_THREE_PREDICATES: dict[str, Callable[[Array, Array, Array], Array]] = {
    "pand": lambda a, b, m: a & b & m,
    "por": lambda a, b, m: (a | b) & m,
    "pxor": lambda a, b, m: (a ^ b) & m,
    "psel": _selected,
}
_OF_TWO_PREDICATES: dict[str, Callable[[Array, Array], Array]] = {"pnot": lambda a, m: ~a & m}
_BY_WIDTH: dict[str, Callable[[Array, Array, int], tuple[Array, Array]]] = {
    "pintlv": lambda a, b, width: _woven(a, b, width // 8),
    "pdintlv": lambda a, b, width: _parted(a, b, width // 8),
}
_ON_PREDICATES: dict[str, Meaning] = {
    "pset": _pset,
    "pge": _pset,
    "update_mask": _update_mask,
    "ppack": _ppack,
    "punpack": _punpack,
    "pld": _pld,
    **_OF_THREE_PREDICATES,
    **_OF_TWO_PREDICATES,
    **_BY_WIDTH,
}


def _pst(dst: Array, p: Array, dist: str) -> None:
    bits = p[::2] if dist == "PK" else p
    packed = np.packbits(bits, bitorder="little")
    dst.view(np.uint8)[: packed.size] = packed


# Memory ------------------------------------------------------------------------------------------


def _vld(src: Array, dist: str) -> Array:
    lanes = REGISTER_BYTES // src.itemsize
    if dist.startswith("BRC_"):
        wide = int(dist[5:]) // 8
        one = src if wide == src.itemsize else src.view(f"u{wide}")
        return np.repeat(one[:1], REGISTER_BYTES // wide)
    if dist.startswith("US_"):
        return np.repeat(src[: lanes // 2], 2)
    if dist.startswith("DS_"):
        return src[: 2 * lanes : 2].copy()
    if dist.startswith("UNPK"):
        step = 4 if dist.startswith("UNPK4") else 2
        made = np.zeros(lanes, src.dtype)
        made[::step] = src[: lanes // step]
        return made
    per = 32 // src.itemsize
    if dist.startswith("E2B"):
        return np.repeat(src[: REGISTER_BYTES // 32], per)
    return np.tile(src[:per], REGISTER_BYTES // 32) if dist == "BLK" else src[:lanes].copy()


def _vld2(src: Array, dist: str) -> tuple[Array, Array]:
    lanes = REGISTER_BYTES // src.itemsize
    return src[: 2 * lanes : 2].copy(), src[1 : 2 * lanes : 2].copy()


def _vld_moving(src: Array, step: Any, dist: str) -> Array:
    del step
    return _vld(src, dist)


def _vsts(dst: Array, x: Array, m: Array, dist: str) -> None:
    if dist.startswith("ONEPT"):
        dst[:1] = x[:1].view(dst.dtype)
        return
    share = {"PK_": 2, "PK4": 4}.get(dist[:3], 1)
    chosen = active(m, x)
    parts = np.ascontiguousarray(x).view(f"u{x.itemsize // share}")[::share].view(dst.dtype)
    dst[: parts.size][chosen] = parts[chosen]


def _vsstb(dst: Array, x: Array, stride: Any, m: Array) -> None:
    per, step = 32 // x.itemsize, int(stride) >> 16
    chosen = active(m, x)
    for block in range(REGISTER_BYTES // 32):
        at, mine = block * step * per, slice(block * per, block * per + per)
        dst[at : at + per][chosen[mine]] = x[mine][chosen[mine]]


def _vgatherb(src: Array, index: Array, m: Array) -> Array:
    data = src.view(np.uint8)
    out = np.zeros(REGISTER_BYTES, np.uint8)
    for block, offset in enumerate(index[: REGISTER_BYTES // 32]):
        if m[block * 32]:
            out[block * 32 : block * 32 + 32] = data[int(offset) : int(offset) + 32]
    return out.view(src.dtype)


def _vgather2(src: Array, index: Array, m: Array) -> Array:
    wide = {"int8": np.int16, "uint8": np.uint16}.get(src.dtype.name, src.dtype)
    lanes = REGISTER_BYTES // np.dtype(wide).itemsize
    chosen = m[:: src.itemsize][:lanes]
    out = np.zeros(lanes, wide)
    out[chosen] = src[index[:lanes][chosen].astype(np.int64)]
    return out


def _vscatter(dst: Array, x: Array, index: Array, m: Array) -> None:
    chosen = active(m, x)
    dst[index[: x.size][chosen].astype(np.int64)] = x[chosen]


def _nothing(kind: str) -> None:
    """Accesses are in program order."""
    del kind


_ON_MEMORY: dict[str, Meaning] = {
    "pst": _pst,
    "vld": _vld,
    "vld2": _vld2,
    "vld_postupdate": _vld_moving,
    "vsts": _vsts,
    "vsstb": _vsstb,
    "vsstb_postupdate": _vsstb,
    "vgatherb": _vgatherb,
    "vgather2": _vgather2,
    "vscatter": _vscatter,
    "mem_bar": _nothing,
}


# Arithmetic --------------------------------------------------------------------------------------


def _narrow(x: Array) -> bool:
    dtype = of_numpy(x.dtype)
    return dtype.is_float and dtype.bits < 32


def computed(fn: Callable[..., Any], x: Array, *more: Any) -> Array:
    """`fn` of a register and registers and scalars of its type, in float32 where that is wider."""
    if not _narrow(x):
        with np.errstate(all="ignore"):
            return np.asarray(fn(x, *more)).astype(x.dtype)
    dtype = of_numpy(x.dtype)
    enter, leave = converter(dtype, _F32), converter(_F32, dtype)
    with np.errstate(all="ignore"):
        wide = [enter(np.asarray(g, x.dtype)) for g in (x, *more)]
        return leave(np.asarray(fn(*wide), np.float32))


def _zeroed(value: Array, m: Array) -> Array:
    return np.where(active(m, value), value, np.zeros((), value.dtype))


def _shifted(x: Array, by: Any, left: bool) -> Array:
    bits = x.itemsize * 8
    count = np.broadcast_to(np.asarray(by), x.shape).astype(np.int64)
    kept = np.clip(count, 0, bits - 1).astype(x.dtype)
    made = x << kept if left else x >> kept
    beyond = np.zeros_like(x) if left else np.where(x < 0, np.full_like(x, -1), 0).astype(x.dtype)
    return np.where(count >= bits, beyond, made).astype(x.dtype)


def _sum_of_product(d: Array, a: Array, b: Array) -> Array:
    return d + a * b


def _fused(d: Array, a: Array, b: Any) -> Array:
    if d.dtype != np.float32:
        return computed(_sum_of_product, d, a, b)
    wide = d.astype(np.float64) + a.astype(np.float64) * np.float64(b)
    return wide.astype(np.float32)


def _quotient(a: Array, b: Array) -> Array:
    return a / b if a.dtype.kind == "f" else np.where(b == 0, 0, a // b)


def _larger(a: Array, b: Array) -> Array:
    return np.fmax(a, b) if a.dtype.kind == "f" else np.maximum(a, b)


def _smaller(a: Array, b: Array) -> Array:
    return np.fmin(a, b) if a.dtype.kind == "f" else np.minimum(a, b)


_COMBINE: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _quotient,
    "max": _larger,
    "min": _smaller,
    "absdif": lambda a, b: np.abs(a - b),
    "expdif": lambda a, b: np.exp(a - b),
    "relu_by": lambda a, s: np.where(a >= 0, a, a * s),
}
_OF_ONE: dict[str, Callable[[Array], Array]] = {
    "vabs": np.abs,
    "vneg": np.negative,
    "vrelu": lambda a: np.maximum(a, np.zeros((), a.dtype)),
    "vexp": np.exp,
    "vln": np.log,
    "vsqrt": np.sqrt,
}
_OF_TWO = {
    "vadd": "add", "vsub": "sub", "vmul": "mul", "vdiv": "div", "vmax": "max", "vmin": "min",
    "vabsdif": "absdif", "vexpdif": "expdif", "vprelu": "relu_by", "vadds": "add", "vmuls": "mul",
    "vmaxs": "max", "vmins": "min", "vlrelu": "relu_by",
}  # fmt: skip


def _pair(name: str) -> Meaning:
    fn = _COMBINE[_OF_TWO[name]]

    def meaning(a: Array, b: Any, m: Array) -> Array:
        return _zeroed(computed(fn, a, b), m)

    return meaning


def _single(name: str) -> Meaning:
    fn = _OF_ONE[name]

    def meaning(a: Array, m: Array) -> Array:
        return _zeroed(computed(fn, a), m)

    return meaning


def _bits(fn: Callable[..., Array]) -> Meaning:
    def meaning(*given: Array) -> Array:
        *values, m = given
        words = [np.ascontiguousarray(v).view(f"u{v.itemsize}") for v in values]
        return _zeroed(fn(*words).view(values[0].dtype), m)

    return meaning


def _carried(a: Array, b: Array, m: Array, carry: Any = 0) -> tuple[Array, Array]:
    wide = a.view(np.uint32).astype(np.uint64) + b.view(np.uint32).astype(np.uint64) + carry
    over = active(m, a) & (wide >> np.uint64(32) != 0)
    return predicate(over, 4), _zeroed(wide.astype(np.uint32).view(a.dtype), m)


def _borrowed(a: Array, b: Array, m: Array, kept: Any = 1) -> tuple[Array, Array]:
    inverse = (~b.view(np.uint32)).view(b.dtype)
    return _carried(a, inverse, m, np.uint64(0) + np.asarray(kept).astype(np.uint64))


def _flags(p: Array, a: Array) -> Array:
    return active(p, a).astype(np.uint64)


def _product(a: Array, b: Array, m: Array) -> tuple[Array, Array]:
    wide = a.astype(np.int64) * b.astype(np.int64)
    if a.dtype == np.uint32:
        wide = (a.astype(np.uint64) * b.astype(np.uint64)).view(np.int64)
    words = wide.view(np.uint32).reshape(-1, 2).view(a.dtype)
    return _zeroed(words[:, 0].copy(), m), _zeroed(words[:, 1].copy(), m)


_SHIFTS: dict[str, Callable[[Array, Any, Array], Array]] = {
    "vshl": lambda a, b, m: _zeroed(_shifted(a, b, True), m),
    "vshr": lambda a, b, m: _zeroed(_shifted(a, b, False), m),
    "vshls": lambda a, s, m: _zeroed(_shifted(a, s, True), m),
    "vshrs": lambda a, s, m: _zeroed(_shifted(a, s, False), m),
}
_FUSED: dict[str, Callable[[Array, Array, Any, Array], Array]] = {
    "vmula": lambda d, a, b, m: _zeroed(_fused(d, a, b), m),
    "vmadd": lambda d, a, b, m: _zeroed(_fused(b, d, a), m),
    "vaxpy": lambda d, a, s, m: _zeroed(_fused(d, a, s), m),
}
_CARRIES: dict[str, Callable[[Array, Array, Array, Array], tuple[Array, Array]]] = {
    "vaddcs": lambda a, b, c, m: _carried(a, b, m, _flags(c, a)),
    "vsubcs": lambda a, b, c, m: _borrowed(a, b, m, _flags(c, a)),
}
_ARITHMETIC: dict[str, Meaning] = {
    **{name: _pair(name) for name in _OF_TWO},
    **{name: _single(name) for name in _OF_ONE},
    **_SHIFTS,
    **_FUSED,
    **_CARRIES,
    "vand": _bits(np.bitwise_and),
    "vor": _bits(np.bitwise_or),
    "vxor": _bits(np.bitwise_xor),
    "vnot": _bits(np.invert),
    "vaddc": _carried,
    "vsubc": _borrowed,
    "vmull": _product,
}


# Reductions and moves ----------------------------------------------------------------------------


def _total(x: Array, m: Array) -> Array:
    """The sum in element 0; of 16-bit integers in 32 bits."""
    wide = {"int16": np.int32, "uint16": np.uint32}.get(x.dtype.name, x.dtype)
    chosen = x[active(m, x)]
    out = np.zeros(REGISTER_BYTES // np.dtype(wide).itemsize, wide)
    if _narrow(x):
        dtype = of_numpy(x.dtype)
        total = converter(dtype, _F32)(chosen).sum(dtype=np.float32)
        out[0] = converter(_F32, dtype)(np.asarray(total, np.float32))
    else:
        out[0] = chosen.sum(dtype=wide)
    return out


def _extreme(largest: bool) -> Meaning:
    def meaning(x: Array, m: Array) -> Array:
        out = np.zeros_like(x)
        places = np.flatnonzero(active(m, x))
        if places.size:
            values = x[places].astype(np.float64) if _narrow(x) else x[places]
            best = places[np.argmax(values) if largest else np.argmin(values)]
            out[0] = x[best]
            out.view(f"u{x.itemsize}")[1] = best
        return out

    return meaning


def _blocks(fn: Callable[..., Array], empty: Callable[[Any], Any]) -> Meaning:
    """A reduction of each 32 bytes; without an active element it is the identity."""

    def meaning(x: Array, m: Array) -> Array:
        none = np.full_like(x, empty(x.dtype))
        rows = np.where(active(m, x), x, none).reshape(REGISTER_BYTES // 32, -1)
        out = np.zeros_like(x)
        out[: rows.shape[0]] = computed(partial(fn, axis=1), rows)
        return out

    return meaning


def _least(dtype: Any) -> Any:
    return -np.inf if of_numpy(dtype).is_float else np.iinfo(dtype).min


def _most(dtype: Any) -> Any:
    return np.inf if of_numpy(dtype).is_float else np.iinfo(dtype).max


def _neighbours(x: Array, m: Array) -> Array:
    pairs = np.where(active(m, x), x, np.zeros((), x.dtype)).reshape(-1, 2)
    out = np.zeros_like(x)
    out[: x.size // 2] = computed(np.add, pairs[:, 0].copy(), pairs[:, 1].copy())
    return out


def _squeezed(x: Array, m: Array) -> Array:
    out = np.zeros_like(x)
    chosen = x[active(m, x)]
    out[: chosen.size] = chosen
    return out


def _compared(op: str) -> Callable[..., Array]:
    return getattr(np, {"eq": "equal", "ne": "not_equal", "gt": "greater", "ge": "greater_equal",
                        "lt": "less", "le": "less_equal"}[op])  # fmt: skip


def _vcmp(a: Array, b: Any, m: Array, op: str) -> Array:
    if _narrow(a):
        enter = converter(of_numpy(a.dtype), _F32)
        return predicate(
            _compared(op)(enter(a), enter(np.asarray(b, a.dtype))) & active(m, a), a.itemsize
        )
    return predicate(_compared(op)(a, b) & active(m, a), a.itemsize)


def _packed(x: Array, part: int) -> Array:
    words = np.ascontiguousarray(x).view(f"u{x.itemsize // 2}")[::2]
    out = np.zeros(2 * words.size, words.dtype)
    out[part * words.size : (part + 1) * words.size] = words
    return out


def _unpacked(x: Array, part: int) -> Array:
    half = x.size // 2
    return x[part * half : part * half + half].astype(f"{x.dtype.kind}{x.itemsize * 2}")


def _vdupv(x: Array, m: Array, pos: str) -> Array:
    return _zeroed(np.full_like(x, x[0 if pos == "POS_LOWEST" else -1]), m)


def _vsel(a: Array, b: Array, m: Array) -> Array:
    return np.where(active(m, a), a, b)


def _vselr(x: Array, index: Array) -> Array:
    return x[index[: x.size].astype(np.int64) % x.size]


_MOVES: dict[str, Meaning] = {
    "vcadd": _total,
    "vcmax": _extreme(True),
    "vcmin": _extreme(False),
    "vcgadd": _blocks(np.sum, lambda dtype: 0),
    "vcgmax": _blocks(np.max, _least),
    "vcgmin": _blocks(np.min, _most),
    "vcpadd": _neighbours,
    "vsqz": _squeezed,
    "vdupv": _vdupv,
    "vcmp": _vcmp,
    "vcmps": _vcmp,
    "vsel": _vsel,
    "vselr": _vselr,
    "vintlv": _woven,
    "vdintlv": _parted,
    "vpack": _packed,
    "vunpack": _unpacked,
}


def _histogram(cumulative: bool) -> Meaning:
    def meaning(d: Array, x: Array, m: Array, half: int) -> Array:
        counts = np.bincount(x[active(m, x)], minlength=256)
        counts = np.cumsum(counts) if cumulative else counts
        return d + counts[half * 128 : half * 128 + 128].astype(np.uint16)

    return meaning


# What depends on the type of the result ----------------------------------------------------------


def _vdup(s: Any, m: Array, result: DType) -> Array:
    return _zeroed(np.full(result.lanes, s, result.base.numpy), m)


def _vci(s: Any, order: str, result: DType) -> Array:
    steps = np.arange(result.lanes)
    values = np.asarray(s, np.float64) + (steps if order == "INC_ORDER" else -steps)
    if result.is_integer:
        values = np.asarray(s, np.int64) + (steps if order == "INC_ORDER" else -steps)
    return values.astype(result.base.numpy)


def _vusqz(m: Array, result: DType) -> Array:
    set_ = m[:: result.base.bits // 8]
    return (np.cumsum(set_) - set_).astype(result.base.numpy)


_TYPED: dict[str, Meaning] = {"vdup": _vdup, "vci": _vci, "vusqz": _vusqz, "vcvt": vcvt}
_MEANINGS = {
    **_ON_PREDICATES,
    **_ON_MEMORY,
    **_ARITHMETIC,
    **_MOVES,
    "dhistv2": _histogram(False),
    "chistv2": _histogram(True),
}
OLD = "old"
"""The operand of a row that keeps elements."""

TYPED = frozenset(_TYPED)
"""Operations whose meaning also gets the type of the result, as `result`."""


# Rows --------------------------------------------------------------------------------------------

_IMM: dict[str, type] = {
    "width": int, "dist": str, "part": int, "kind": str, "pos": str, "order": str, "op": str,
    "rounding": str, "sat": bool, "half": int,
}  # fmt: skip


def operand_names(fn: SimdFn) -> tuple[str, ...]:
    """The names of the operands of a row, in the order of the operation's own."""
    return tuple(f"{letter}{place}" for place, letter in enumerate(fn.args))


def _operand(name: str) -> OperandRow:
    letter = name[0]
    if letter in "rw":
        effect = Effect.READ if letter == "r" else Effect.UPDATE
        return OperandRow(name, effect, spaces=(Space.UB,))
    return OperandRow(name, kind=Is.VALUE, dtypes=(str(PREDICATE),) if letter == "m" else ())


def _meaning(fn: SimdFn) -> Meaning:
    does = _TYPED.get(fn.name) or _MEANINGS[fn.name]

    def meaning(**given: Any) -> tuple[Any, ...]:
        values = [given.pop(name) for name in operand_names(fn)]
        made = does(*values, **given)
        if made is None:
            return ()
        return cast("tuple[Any, ...]", made) if isinstance(made, tuple) else (made,)

    return meaning


_FIRST = {"vcadd": 1, "vcmax": 2, "vcmin": 2}
"""How many elements a reduction gives."""


def _given(name: str, made: Array, values: list[Any], given: dict[str, Any]) -> Array:
    """The elements of its result that an operation gives."""
    if name in _FIRST:
        return np.arange(made.size) < _FIRST[name]
    if name == "vcvt":
        return given_by_vcvt(values[0], values[1], given["part"], given["result"])
    return active(values[-1], made)


def _merging(fn: SimdFn) -> PipeRow:
    """The row that keeps, of an old register, the elements that it does not give."""
    does = _TYPED.get(fn.name) or _MEANINGS[fn.name]

    def meaning(old: Array, **given: Any) -> tuple[Any, ...]:
        values = [given.pop(name) for name in operand_names(fn)]
        made = does(*values, **given)
        return (np.where(_given(fn.name, made, values, given), made, old),)

    row = _row(fn)
    old = OperandRow(OLD, kind=Is.VALUE)
    return replace(row, name=f"{row.name}.merge", ins=(*row.ins, old), meaning=meaning)


def _row(fn: SimdFn) -> PipeRow:
    operands = [_operand(name) for name in operand_names(fn)]
    return PipeRow(
        f"simd.{fn.name}",
        _SOURCE,
        outs=tuple(o for o in operands if o.name[0] == "w"),
        ins=tuple(o for o in operands if o.name[0] != "w"),
        results=tuple(
            OperandRow(f"x{n}", Effect.WRITE, kind=Is.VALUE) for n in range(len(fn.results))
        ),
        imm=tuple(Immediate(name, _IMM[name]) for name in fn.imm),
        pipe=Pipe.V,
        core=Core.VECTOR,
        meaning=_meaning(fn),
    )


SIMD = [
    *(_row(fn) for fn in SIMD_OPS.values()),
    *(_merging(fn) for fn in SIMD_OPS.values() if fn.name in MERGED),
]
"""The rows of SIMD functions; an operand `w` comes first in a statement, with the outs. Those that
end in `.merge` also take the register whose elements stay (`MODE_MERGING`), last.
"""

__all__ = ["OLD", "SIMD", "TYPED", "lanes_of", "operand_names"]
