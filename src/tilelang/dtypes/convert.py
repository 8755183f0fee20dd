"""Conversion by value between any two element types, the only one in the project.

What enters: NumPy arrays in the storage of one `DType`. What leaves: arrays in the storage of
another, rounded once. NumPy and ml_dtypes are storage: their own conversions are used only where
the tests show that they follow the same rules.

- float to int goes towards zero and saturates; NaN becomes 0.
- int to int wraps, at 4 bits also.
- int to float and float to float round once, from the exact value, by the `rounding` asked for.
- A float of at most 8 bits takes what is too large, infinity too, as its largest finite value.
  With `saturate=False` that is infinity, or NaN in a format without infinity.
- Wider floats overflow to infinity whatever `saturate` is, unless the mode rounds towards zero.
- NaN stays NaN where the format has one; float6 and float4 have their largest value instead.
- Anything to bool is `x != 0`, so NaN is true. A handle is a uint64, and never a float.

`encode` has the source of the rules of narrow floats.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tilelang.dtypes.encode import MODES, Array, Exact, encode, exact_float64, exact_int
from tilelang.dtypes.halves import widened
from tilelang.dtypes.storage import check_storage, from_bits, to_bits
from tilelang.dtypes.types import DType

Converter = Callable[[Array], Array]


def cast(
    x: Array | np.generic,
    src: DType,
    dst: DType,
    rounding: str = "",
    saturate: bool = True,
    rbits: Array | np.generic | None = None,
) -> Array:
    """`x`, whose elements are of type `src`, as elements of type `dst`.

    `x` has the storage type `src.numpy`; the result has `dst.numpy` and the shape of `x`, and is
    `x` itself where the types are stored alike. The lanes of vectors are elements of the array.

    `rounding` says how a float destination rounds: `rn` (to nearest, ties to even), `rz`, `rp`,
    `rm` (towards zero, +infinity, -infinity), `rna` (to nearest, ties away from zero), `rs`
    (stochastic). Empty means the type's own mode: `rna` for tfloat32, `rp` for float8_e8m0fnu, else
    `rn`. For another destination `rn` and `rz` mean nothing, and the others are refused.

    `rs` needs `rbits`, uint32 of a shape that broadcasts to that of `x`: the magnitude is rounded
    up if `floor(f * 2**32) + rbits >= 2**32`, where `f` in [0, 1) is the fraction of the
    destination's last place that is cut off. With uniform rbits the mean is the value itself.

    ValueError for a rounding that does not exist or does not apply; TypeError for an array that is
    not stored as `src`, for unequal lanes, for a float and a handle, and for rbits without `rs` or
    `rs` without rbits.
    """
    array = np.asarray(x)
    check_storage(array, src)
    if rounding == "rs":
        return _stochastic(array, src, dst, saturate, rbits)
    if rbits is not None:
        raise TypeError(f"rbits belongs to rounding 'rs', got rounding {rounding!r}")
    return converter(src, dst, rounding, saturate)(array)


@cache
def converter(src: DType, dst: DType, rounding: str = "", saturate: bool = True) -> Converter:
    """The function that `cast` applies, for callers that convert many arrays: it checks nothing.

    Errors as of `cast`; there is none for `rs`.
    """
    _check(src, dst, rounding)
    if rounding == "rs":
        raise ValueError("rounding 'rs' takes random bits with each array: use cast")
    src, dst = src.base, dst.base
    if src.row.encoding == dst.row.encoding:
        return lambda x: x
    mode = rounding or dst.row.rounding
    # NumPy warns of overflow and of signaling NaN: values like others here.
    with np.errstate(all="ignore"):  # for tables
        convert = _route(src, dst, mode, saturate and dst.is_narrow_float)

    def quiet(x: Array) -> Array:
        with np.errstate(all="ignore"):
            # Of an array without axes NumPy makes a scalar; this gives the array again.
            return np.asarray(convert(x), dst.numpy)

    return quiet


def _check(src: DType, dst: DType, rounding: str) -> None:
    if src.lanes != dst.lanes:
        raise TypeError(f"cannot convert {src} to {dst}: the numbers of lanes differ")
    if (src.is_handle and dst.is_float) or (src.is_float and dst.is_handle):
        raise TypeError(f"cannot convert {src} to {dst}: a pointer is an integer, and no float")
    if rounding and rounding not in MODES:
        known = ", ".join(MODES)
        raise ValueError(f"unknown rounding {rounding!r}; expected one of {known}, or none")
    if not dst.is_float and rounding not in ("", "rn", "rz"):
        raise ValueError(
            f"rounding {rounding!r} does not apply to {src} -> {dst}: a float goes to an integer"
            " towards zero; round it first (T.round, T.floor, T.ceil)"
        )


def _route(src: DType, dst: DType, mode: str, saturate: bool) -> Converter:
    if src.is_narrow_float:
        return _by_table(src, dst, mode, saturate)
    if dst.is_bool:
        return lambda x: x != 0
    if dst.is_float:
        to_float = _float_to_float if src.is_float else _int_to_float
        return to_float(src, dst, mode, saturate)
    return _float_to_int(src, dst) if src.is_float else _wrapping(src, dst)


def _as(storage: npt.DTypeLike) -> Converter:
    """NumPy's conversion, where it is exact or rounds to nearest."""
    return lambda x: x.astype(storage)


def _then(first: Converter, second: Converter) -> Converter:
    return lambda x: second(first(x))


# Integer destinations -----------------------------------------------------------------------------


def _wrapping(src: DType, dst: DType) -> Converter:
    if not dst.is_subbyte:
        return _as(dst.numpy)
    if src.is_subbyte:  # ml_dtypes converts its own types by value: -1 has no uint8
        return lambda x: from_bits(x.astype(np.int8), dst)
    return lambda x: from_bits(x, dst)


def _float_to_int(src: DType, dst: DType) -> Converter:
    if dst.bits == 64:
        return _float_to_int64(dst)
    # A float that has all integers of `dst`, and all values of `src` within their range.
    work = np.float32 if src.bits <= 32 and dst.bits <= 16 else np.float64
    first = np.dtype(np.int8) if dst.is_subbyte else dst.numpy
    wrap = _wrapping(DType("int8"), dst) if dst.is_subbyte else _as(first)

    def convert(x: Array) -> Array:
        value = np.asarray(np.clip(x.astype(work), dst.min, dst.max))
        np.copyto(value, 0, where=np.isnan(value))
        return wrap(value.astype(first))

    return convert


def _float_to_int64(dst: DType) -> Converter:
    low, high = np.array(dst.min, dst.numpy), np.array(dst.max, dst.numpy)
    zero = np.zeros((), dst.numpy)
    past = float(dst.max + 1)  # 2**63 or 2**64 is a float; the integer just below it is not

    def convert(x: Array) -> Array:
        value = np.trunc(x.astype(np.float64))
        fits = (value >= dst.min) & (value < past)
        limits = np.where(value >= past, high, np.where(np.isnan(value), zero, low))
        return np.where(fits, np.where(fits, value, 0.0).astype(dst.numpy), limits)

    return convert


# Float destinations -------------------------------------------------------------------------------


def _float_to_float(src: DType, dst: DType, mode: str, saturate: bool) -> Converter:
    if src.bits == 64:
        return _from_float64(dst, mode, saturate)
    if src.bits == 32:
        return _from_float32(dst, mode, saturate)
    if dst.is_narrow_float:
        return _by_table(src, dst, mode, saturate)
    wide = widened if src.name == "float16" else _as(np.float32)
    return wide if dst.name == "float32" else _then(wide, _from_float32(dst, mode, saturate))


def _int_to_float(src: DType, dst: DType, mode: str, saturate: bool) -> Converter:
    if src.bits <= 16:  # float32 has all of them
        return _then(_as(np.float32), _from_float32(dst, mode, saturate))
    if mode == "rn" and dst.name in ("float32", "float64"):
        return _as(dst.numpy)
    if src.bits == 32:
        return _then(_as(np.float64), _from_float64(dst, mode, saturate))
    return _generic(src, dst, mode, saturate)


def _from_float64(dst: DType, mode: str, saturate: bool) -> Converter:
    if dst.name == "float64":
        return lambda x: x
    if dst.name == "float32" and mode == "rn":
        return _as(dst.numpy)
    return _generic(DType("float64"), dst, mode, saturate)


def _from_float32(dst: DType, mode: str, saturate: bool) -> Converter:
    if dst.name in ("float32", "float64"):
        return _as(dst.numpy)
    if dst.is_narrow_float:
        return _by_odd_table(dst, mode, saturate)
    if dst.name in ("float16", "bfloat16") and mode == "rn":
        return _as(dst.numpy)
    if dst.name == "tfloat32" and mode == "rna":
        return _to_tfloat32
    return _generic(DType("float32"), dst, mode, saturate)


def _to_tfloat32(x: Array) -> Array:
    """Adds half of a last place and cuts: this leaves infinity as it is, and NaN is set apart."""
    bits = x.view(np.uint32)
    rounded = (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    quiet = (bits & np.uint32(0x80000000)) | np.uint32(0x7FC00000)
    return np.asarray(np.where(np.isnan(x), quiet, rounded)).view(np.float32)


def _generic(src: DType, dst: DType, mode: str, saturate: bool) -> Converter:
    return lambda x: _from_words(encode(_exact(x, src), dst.row, mode, saturate), dst)


def _exact(x: Array, src: DType) -> Exact:
    if src.bits == 64 and not src.is_float:
        return exact_int(x)
    return exact_float64(_decoded(x, src).astype(np.float64))


def _from_words(words: npt.NDArray[np.uint64], dst: DType) -> Array:
    """The elements of these code words, which stand at the top of a larger element."""
    spare = dst.numpy.itemsize * 8 - dst.row.code_bits if dst.row.code_bits > 8 else 0
    return from_bits(words << np.uint64(spare), dst)


def _stochastic(
    x: Array, src: DType, dst: DType, saturate: bool, rbits: Array | np.generic | None
) -> Array:
    _check(src, dst, "rs")
    if rbits is None or rbits.dtype != np.uint32:
        got = "none" if rbits is None else f"an array of {rbits.dtype}"
        raise TypeError(f"rounding 'rs' needs rbits, one uint32 for each element; got {got}")
    random = np.broadcast_to(rbits, x.shape)
    with np.errstate(all="ignore"):
        exact = _exact(x, src)
    return _from_words(encode(exact, dst.row, "rs", saturate and dst.is_narrow_float, random), dst)


# Tables over all code words -----------------------------------------------------------------------


@cache
def _decode_table(src: DType) -> npt.NDArray[np.float32]:
    """The value of each byte of a narrow float; bits that the type does not use do not count."""
    count = 1 << src.row.code_bits
    values = [src.row.decode(word) for word in range(count)]
    return np.array(values * (256 // count), np.float32)


def _decoded(x: Array, src: DType) -> Array:
    """`x` in a type that NumPy knows, of the same values."""
    if src.is_narrow_float:
        return np.asarray(_decode_table(src).take(x.view(np.uint8)))
    return x.astype(np.float32) if src.bits == 16 and src.is_float else x


def _by_table(src: DType, dst: DType, mode: str, saturate: bool) -> Converter:
    """From a float of at most 16 bits: all its words are converted here, and looked up later."""
    index = np.dtype(f"u{src.numpy.itemsize}")
    words = np.arange(1 << (8 * index.itemsize), dtype=index)
    values = _decoded(words.view(src.numpy), src)
    return _lookup(_route(DType("float32"), dst, mode, saturate)(values), dst, index)


def _lookup(table: Array, dst: DType, index: np.dtype[Any]) -> Converter:
    slots = table.view(f"u{dst.numpy.itemsize}")
    return lambda x: slots.take(x.view(index)).view(dst.numpy)


@cache
def _odd_table(dst: DType, mode: str, saturate: bool) -> Array:
    words = np.arange(1 << 16, dtype=np.uint32) << np.uint32(16)
    values = words.view(np.float32)
    return to_bits(_generic(DType("float32"), dst, mode, saturate)(values), dst)


def _by_odd_table(dst: DType, mode: str, saturate: bool) -> Converter:
    """From float32 to a float of at most 8 bits, by the upper half of the float32.

    The lowest bit of that half is set if the lower half is not zero (rounding to odd). Its 8 bits
    of significand, at least three more than any of these formats has, keep apart what rounds
    apart, in every mode but rs, which counts the fraction.
    """
    table = _odd_table(dst, mode, saturate)

    def convert(x: Array) -> Array:
        bits = x.view(np.uint32)
        upper = bits >> np.uint32(16)
        upper |= (bits & np.uint32(0xFFFF)) != 0
        return np.asarray(table.take(upper)).view(dst.numpy)

    return convert
