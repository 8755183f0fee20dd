"""`T.simd`: scalars into registers, comparisons, permutations, conversions, histograms."""

from __future__ import annotations

from typing import Any, cast

from tilelang.dtypes import DType
from tilelang.errors import TileTypeError
from tilelang.ir.ascend_simd import PREDICATE, register
from tilelang.language.arguments import choice, known, number, place, refuse
from tilelang.language.ascend_simd.common import (
    HALVES,
    bad,
    emit,
    indices_of,
    mask_of,
    merging,
    operand,
    part_of,
    predicate,
    same,
    vector,
    width_of,
)
from tilelang.language.buffers import VarRef
from tilelang.language.values import Value, element_type


def vdup(src: Any, dtype_str: Any, mask: Any = None, mode: str = "MODE_ZEROING") -> Value:
    """A scalar in every element of a register of `dtype_str`."""
    merges = merging(mode, "vdup")
    element = DType(element_type(dtype_str))
    scalar = number(src, "the scalar of T.simd.vdup", element)
    args = (scalar, mask_of(mask, width_of(element), "vdup"))
    return emit("vdup", args, (register(element),), merges=merges)


def vdupv(src: Any, mask: Any = None, pos: str = "POS_LOWEST", mode: str = "MODE_ZEROING") -> Value:
    """The first (`POS_LOWEST`) or last element in every element."""
    merges = merging(mode, "vdupv")
    x = vector(src, operand("vdupv"))
    word = choice(pos, "the pos of T.simd.vdupv", ("POS_LOWEST", "POS_HIGHEST"))
    args = (x, mask_of(mask, width_of(x.dtype), "vdupv"))
    return emit("vdupv", args, (x.dtype,), merges=merges, pos=word)


def vci(index: Any, dtype_str: Any, order: str = "INC_ORDER") -> Value:
    """`index, index + 1, ...`, or with DEC_ORDER `index, index - 1, ...`."""
    element = DType(element_type(dtype_str))
    word = choice(order, "the order of T.simd.vci", ("INC_ORDER", "DEC_ORDER"))
    first = number(index, "the index of T.simd.vci", element)
    return emit("vci", (first,), (register(element),), order=word)


_COMPARISONS = ("eq", "ne", "gt", "ge", "lt", "le")


def vcmp(src0: Any, src1: Any, mask: Any = None, op: str = "eq") -> Value:
    """Where `src0 op src1` holds; op is eq, ne, gt, ge, lt or le."""
    x, y = (vector(v, operand("vcmp")) for v in (src0, src1))
    width = width_of(same("vcmp", x, y))
    word = choice(op, "the op of T.simd.vcmp", _COMPARISONS)
    return emit("vcmp", (x, y, mask_of(mask, width, "vcmp")), (PREDICATE,), op=word)


def vcmps(src: Any, scalar: Any, mask: Any = None, op: str = "lt") -> Value:
    """Where `src op scalar` holds."""
    x = vector(src, operand("vcmps"))
    s = number(scalar, "the scalar of T.simd.vcmps", x.dtype.base)
    word = choice(op, "the op of T.simd.vcmps", _COMPARISONS)
    return emit("vcmps", (x, s, mask_of(mask, width_of(x.dtype), "vcmps")), (PREDICATE,), op=word)


def vsel(src0: Any, src1: Any, mask: Any) -> Value:
    """`src0` where the predicate is set, else `src1`."""
    x, y = (vector(v, operand("vsel")) for v in (src0, src1))
    chosen = predicate(mask, "the mask of T.simd.vsel")
    return emit("vsel", (x, y, chosen), (same("vsel", x, y),))


def vselr(src: Any, index: Any) -> Value:
    """The element of `src` at each index."""
    x = vector(src, operand("vselr"))
    return emit("vselr", (x, indices_of(index, "vselr")), (x.dtype,))


def vintlv(src0: Any, src1: Any) -> tuple[Value, Value]:
    """The elements of two registers, alternating: the first and the second half of them."""
    x, y = (vector(v, operand("vintlv")) for v in (src0, src1))
    return emit("vintlv", (x, y), (same("vintlv", x, y),) * 2)


def vdintlv(src0: Any, src1: Any) -> tuple[Value, Value]:
    """The even and the odd elements of two registers."""
    x, y = (vector(v, operand("vdintlv")) for v in (src0, src1))
    return emit("vdintlv", (x, y), (same("vdintlv", x, y),) * 2)


_PACKED = {
    "float32": "float16", "int32": "int16", "uint32": "uint16", "uint16": "uint8",
    "int16": "int8",
}  # fmt: skip
_UNPACKED = {"uint8": "uint16", "int8": "int16", "uint16": "uint32", "int16": "int32"}


def vpack(src: Any, part: Any = 0) -> Value:
    """The low half of the bits of each element, in the lower (0) or higher (1) half."""
    x = vector(src, operand("vpack"))
    element = _PACKED.get(str(x.dtype.base))
    if element is None:
        raise bad("dtype", f"T.simd.vpack of {x.dtype}", expected=" or ".join(_PACKED))
    half = part_of(part, "vpack", HALVES)
    return emit("vpack", (x,), (register(DType(element)),), part=half)


def vunpack(src: Any, part: Any = 0) -> Value:
    """The integers of the lower (0) or higher (1) half, widened."""
    x = vector(src, operand("vunpack"))
    element = _UNPACKED.get(str(x.dtype.base))
    if element is None:
        raise bad("dtype", f"T.simd.vunpack of {x.dtype}", expected=" or ".join(_UNPACKED))
    half = part_of(part, "vunpack", HALVES)
    return emit("vunpack", (x,), (register(DType(element)),), part=half)


# Which bits a conversion knows (tilelang 0.1.15, simd.py, vcvt).
CONVERSIONS: dict[str, tuple[str, ...]] = {
    "float32": ("int64", "int32", "int16", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"),
    "float16": ("int32", "int16", "int8", "uint8", "float8_e4m3fn", "float8_e5m2", "bfloat16",
                "float32"),
    "bfloat16": ("int32", "float8_e4m3fn", "float8_e5m2", "float16", "float32"),
    "float8_e4m3fn": ("float32",),
    "float8_e5m2": ("float32",),
    "int8": ("float16", "int16", "int32"),
    "uint8": ("float16", "uint16", "uint32"),
    "int16": ("float16", "float32", "int32", "uint32", "uint8"),
    "uint16": ("uint32", "uint8"),
    "int32": ("float32", "int64", "int16", "uint16", "uint8"),
    "uint32": ("int16", "uint16", "uint8"),
    "int64": ("float32", "int32"),
}  # fmt: skip
_ROUNDINGS = ("ROUND_R", "ROUND_A", "ROUND_F", "ROUND_C", "ROUND_Z", "ROUND_O", "ROUND_H")


def vcvt(
    src: Any,
    target_dtype: Any,
    mask: Any = None,
    round: str = "ROUND_R",
    sat: bool = True,
    part: Any = 0,
    mode: str = "MODE_ZEROING",
) -> Value:
    """Conversion by value.

    From n bits to 2n or 4n, every second or fourth element is converted, from element `part` on;
    to fewer bits, the results lie that far apart, from element `part` on, and the rest is zero, or
    with MODE_MERGING as it was.
    """
    merges = merging(mode, "vcvt")
    x = vector(src, operand("vcvt"))
    target = DType(element_type(target_dtype))
    source = x.dtype.base
    if str(target) not in CONVERSIONS.get(str(source), ()):
        raise bad(
            "dtype",
            f"T.simd.vcvt of {source} to {target}",
            expected=", ".join(CONVERSIONS.get(str(source), ("another source",))),
        )
    word = choice(round, "the round of T.simd.vcvt", _ROUNDINGS)
    ratio = max(source.bits, target.bits) // min(source.bits, target.bits)
    known(part, "the part of T.simd.vcvt", 0, max(ratio - 1, 1))
    chosen = mask_of(mask, min(width_of(source), width_of(target)), "vcvt")
    return emit(
        "vcvt",
        (x, chosen),
        (register(target),),
        merges=merges,
        rounding=word,
        sat=bool(sat),
        part=known(part, "the part of T.simd.vcvt", 0, 3),
    )


def _histogram(name: str, dst: Any, src: Any, mask: Any, bin: Any) -> None:
    old, x = vector(dst, f"the dst of T.simd.{name}"), vector(src, operand(name))
    if (str(old.dtype), str(x.dtype)) != ("uint16x128", "uint8x256"):
        raise refuse(
            "dtype",
            f"T.simd.{name} of {x.dtype} into {old.dtype}",
            cls=TileTypeError,
            expected="uint8x256 into uint16x128",
        )
    buffer, indices = place(dst, f"the dst of T.simd.{name}")
    half = known(bin, f"the bin of T.simd.{name}", 0, 1)
    args = (old, x, mask_of(mask, 8, name))
    VarRef(buffer, indices).set(emit(name, args, (old.dtype,), half=half))


def dhistv2(dst: Any, src: Any, mask: Any = None, bin: int = 0) -> None:
    """Add to `dst` how often each value below 128 (`bin=1`: from 128 on) occurs."""
    _histogram("dhistv2", dst, src, mask, bin)


def chistv2(dst: Any, src: Any, mask: Any = None, bin: int = 0) -> None:
    """Add to `dst` how often values up to each one below 128 (`bin=1`: from 128 on) occur."""
    _histogram("chistv2", dst, src, mask, bin)


def pair_get(pair: Any, index: Any) -> Value:
    """One of the two results of an operation that gives two."""
    if not isinstance(pair, tuple):
        raise refuse("dtype", "T.simd.pair_get", cls=TileTypeError, expected="a pair")
    return cast("tuple[Value, ...]", pair)[known(index, "the index of T.simd.pair_get", 0, 1)]
