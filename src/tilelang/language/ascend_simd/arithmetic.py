"""`T.simd`: arithmetic, bit operations and reductions of registers."""

from __future__ import annotations

from typing import Any

from tilelang.dtypes import DType
from tilelang.errors import TileTypeError
from tilelang.ir.ascend_simd import PREDICATE, SIMD_OPS, register
from tilelang.language.arguments import choice, number, place, refuse
from tilelang.language.ascend_simd.common import (
    emit,
    mask_of,
    merging,
    of_one,
    operand,
    predicate,
    same,
    vector,
    width_of,
)
from tilelang.language.buffers import VarRef
from tilelang.language.values import Value, element_type


def _of_two(name: str, a: Any, b: Any, mask: Any, mode: str = "MODE_ZEROING") -> Any:
    merges = merging(mode, name)
    x, y = (vector(v, operand(name)) for v in (a, b))
    dtype = same(name, x, y)
    letters = SIMD_OPS[name].results
    results = [PREDICATE if letter == "m" else dtype for letter in letters]
    return emit(name, (x, y, mask_of(mask, width_of(dtype), name)), results, merges=merges)


def _with_scalar(name: str, a: Any, s: Any, mask: Any, mode: str = "MODE_ZEROING") -> Value:
    merges = merging(mode, name)
    x = vector(a, operand(name))
    scalar = number(s, f"the scalar of T.simd.{name}", x.dtype.base)
    args = (x, scalar, mask_of(mask, width_of(x.dtype), name))
    return emit(name, args, (x.dtype,), merges=merges)


def _fused(name: str, dst: Any, a: Any, b: Any, mask: Any, mode: str) -> None:
    """An update of a register of T.simd.alloc_var or alloc_local."""
    merges = merging(mode, name)
    old = vector(dst, f"the dst of T.simd.{name}")
    buffer, indices = place(dst, f"the dst of T.simd.{name}")
    x = vector(a, operand(name))
    scalar = SIMD_OPS[name].args[2] == "s"
    y = number(b, operand(name), x.dtype.base) if scalar else vector(b, operand(name))
    dtype = same(name, old, x, *(() if scalar else (y,)))
    args = (old, x, y, mask_of(mask, width_of(dtype), name))
    result = emit(name, args, (dtype,), merges=merges)
    VarRef(buffer, indices).set(result)


def vadd(src0: Any, src1: Any, mask: Any = None, mode: str = "MODE_ZEROING") -> Value:
    """`src0 + src1`."""
    return _of_two("vadd", src0, src1, mask, mode)


def vsub(src0: Any, src1: Any, mask: Any = None, mode: str = "MODE_ZEROING") -> Value:
    """`src0 - src1`."""
    return _of_two("vsub", src0, src1, mask, mode)


def vmul(src0: Any, src1: Any, mask: Any = None, mode: str = "MODE_ZEROING") -> Value:
    """`src0 * src1`."""
    return _of_two("vmul", src0, src1, mask, mode)


def _precision(value: Any, name: str, words: tuple[str, ...]) -> None:
    """Accuracy of a special function: here always the best that the words name."""
    if value is not None:
        choice(str(value).lower(), f"the precision of T.simd.{name}", words)


def vdiv(
    src0: Any, src1: Any, mask: Any = None, mode: str = "MODE_ZEROING", precision: Any = None
) -> Value:
    """`src0 / src1`, correctly rounded; `precision` may ask for less."""
    _precision(precision, "vdiv", ("ftz_true", "exact", "vdiv_0ulp_ftz_true"))
    return _of_two("vdiv", src0, src1, mask, mode)


def vmax(src0: Any, src1: Any, mask: Any = None, mode: str = "MODE_ZEROING") -> Value:
    """The larger."""
    return _of_two("vmax", src0, src1, mask, mode)


def vmin(src0: Any, src1: Any, mask: Any = None, mode: str = "MODE_ZEROING") -> Value:
    """The smaller."""
    return _of_two("vmin", src0, src1, mask, mode)


def vand(src0: Any, src1: Any, mask: Any = None, mode: str = "MODE_ZEROING") -> Value:
    """`src0 & src1`."""
    return _of_two("vand", src0, src1, mask, mode)


def vor(src0: Any, src1: Any, mask: Any = None, mode: str = "MODE_ZEROING") -> Value:
    """`src0 | src1`."""
    return _of_two("vor", src0, src1, mask, mode)


def vxor(src0: Any, src1: Any, mask: Any = None, mode: str = "MODE_ZEROING") -> Value:
    """`src0 ^ src1`."""
    return _of_two("vxor", src0, src1, mask, mode)


def vshl(src0: Any, src1: Any, mask: Any = None, mode: str = "MODE_ZEROING") -> Value:
    """`src0 << src1`."""
    return _of_two("vshl", src0, src1, mask, mode)


def vshr(src0: Any, src1: Any, mask: Any = None, mode: str = "MODE_ZEROING") -> Value:
    """`src0 >> src1`; the sign of signed integers is kept."""
    return _of_two("vshr", src0, src1, mask, mode)


def vabsdif(src0: Any, src1: Any, mask: Any = None, mode: str = "MODE_ZEROING") -> Value:
    """`abs(src0 - src1)`."""
    return _of_two("vabsdif", src0, src1, mask, mode)


def vexpdif(src0: Any, src1: Any, mask: Any = None) -> Value:
    """`exp(src0 - src1)` of float32."""
    x = vector(src0, operand("vexpdif"))
    if x.dtype != DType("float32x64"):
        raise refuse(
            "dtype", "T.simd.vexpdif", cls=TileTypeError, expected="float32", got=str(x.dtype)
        )
    return _of_two("vexpdif", src0, src1, mask)


def vprelu(src0: Any, src1: Any, mask: Any = None) -> Value:
    """`src0` where it is not negative, else `src0 * src1`."""
    return _of_two("vprelu", src0, src1, mask)


def vadds(src: Any, scalar: Any, mask: Any = None, mode: str = "MODE_ZEROING") -> Value:
    """`src + scalar`."""
    return _with_scalar("vadds", src, scalar, mask, mode)


def vmuls(src: Any, scalar: Any, mask: Any = None, mode: str = "MODE_ZEROING") -> Value:
    """`src * scalar`."""
    return _with_scalar("vmuls", src, scalar, mask, mode)


def vmaxs(src: Any, scalar: Any, mask: Any = None, mode: str = "MODE_ZEROING") -> Value:
    """The larger of `src` and `scalar`."""
    return _with_scalar("vmaxs", src, scalar, mask, mode)


def vmins(src: Any, scalar: Any, mask: Any = None, mode: str = "MODE_ZEROING") -> Value:
    """The smaller of `src` and `scalar`."""
    return _with_scalar("vmins", src, scalar, mask, mode)


def vshls(src: Any, scalar: Any, mask: Any = None, mode: str = "MODE_ZEROING") -> Value:
    """`src << scalar`."""
    return _with_scalar("vshls", src, scalar, mask, mode)


def vshrs(src: Any, scalar: Any, mask: Any = None, mode: str = "MODE_ZEROING") -> Value:
    """`src >> scalar`."""
    return _with_scalar("vshrs", src, scalar, mask, mode)


def vlrelu(src: Any, alpha: Any, mask: Any = None) -> Value:
    """`src` where it is not negative, else `src * alpha`."""
    return _with_scalar("vlrelu", src, alpha, mask)


def vmula(dst: Any, src0: Any, src1: Any, mask: Any = None, mode: str = "MODE_ZEROING") -> None:
    """`dst += src0 * src1`, rounded once."""
    _fused("vmula", dst, src0, src1, mask, mode)


def vmadd(dst: Any, src0: Any, src1: Any, mask: Any = None, mode: str = "MODE_ZEROING") -> None:
    """`dst = dst * src0 + src1`, rounded once."""
    _fused("vmadd", dst, src0, src1, mask, mode)


def vaxpy(dst: Any, src: Any, scalar: Any, mask: Any = None, mode: str = "MODE_ZEROING") -> None:
    """`dst += src * scalar`, rounded once."""
    _fused("vaxpy", dst, src, scalar, mask, mode)


def vaddc(src0: Any, src1: Any, mask: Any = None) -> tuple[Value, Value]:
    """The carry (a predicate) and the sum of 32-bit integers."""
    return _of_two("vaddc", src0, src1, mask)


def vsubc(src0: Any, src1: Any, mask: Any = None) -> tuple[Value, Value]:
    """Where there is no borrow, and the difference of 32-bit integers."""
    return _of_two("vsubc", src0, src1, mask)


def _carry(name: str, a: Any, b: Any, carry: Any, mask: Any) -> tuple[Value, Value]:
    x, y = (vector(v, operand(name)) for v in (a, b))
    dtype = same(name, x, y)
    into = predicate(carry, f"the carry of T.simd.{name}")
    return emit(name, (x, y, into, mask_of(mask, width_of(dtype), name)), (PREDICATE, dtype))


def vaddcs(src0: Any, src1: Any, carrysrcp: Any, mask: Any = None) -> tuple[Value, Value]:
    """`vaddc` with a carry in."""
    return _carry("vaddcs", src0, src1, carrysrcp, mask)


def vsubcs(src0: Any, src1: Any, carrysrcp: Any, mask: Any = None) -> tuple[Value, Value]:
    """`vsubc` where `carrysrcp` says that there was no borrow."""
    return _carry("vsubcs", src0, src1, carrysrcp, mask)


def vmull(src0: Any, src1: Any, mask: Any = None) -> tuple[Value, Value]:
    """The low and the high 32 bits of the product of 32-bit integers."""
    return _of_two("vmull", src0, src1, mask)


def vabs(src: Any, mask: Any = None, mode: str = "MODE_ZEROING") -> Value:
    """The absolute value."""
    return of_one("vabs", src, mask, mode)


def vneg(src: Any, mask: Any = None, mode: str = "MODE_ZEROING") -> Value:
    """`-src`."""
    return of_one("vneg", src, mask, mode)


def vrelu(src: Any, mask: Any = None, mode: str = "MODE_ZEROING") -> Value:
    """`max(src, 0)`."""
    return of_one("vrelu", src, mask, mode)


def vnot(src: Any, mask: Any = None, mode: str = "MODE_ZEROING") -> Value:
    """The complement."""
    return of_one("vnot", src, mask, mode)


def vexp(src: Any, mask: Any = None, mode: str = "MODE_ZEROING", precision: Any = None) -> Value:
    """e to the power `src`."""
    _precision(precision, "vexp", ("ftz_true", "ftz_false", "vexp_1ulp_ftz_false"))
    return of_one("vexp", src, mask, mode)


def vln(src: Any, mask: Any = None, mode: str = "MODE_ZEROING", precision: Any = None) -> Value:
    """The natural logarithm."""
    _precision(precision, "vln", ("ftz_true", "ftz_false", "vln_1ulp_ftz_false"))
    return of_one("vln", src, mask, mode)


def vsqrt(src: Any, mask: Any = None, mode: str = "MODE_ZEROING", precision: Any = None) -> Value:
    """The square root."""
    _precision(precision, "vsqrt", ("ftz_true", "ftz_false", "vsqrt_0ulp_ftz_false"))
    return of_one("vsqrt", src, mask, mode)


# Reductions --------------------------------------------------------------------------------------

_WIDENED = {"int16": "int32", "uint16": "uint32"}


def vcadd(src: Any, mask: Any = None, mode: str = "MODE_ZEROING") -> Value:
    """The sum of all elements, in element 0; sums of 16-bit integers have 32 bits."""
    merges = merging(mode, "vcadd")
    x = vector(src, operand("vcadd"))
    result = DType(_WIDENED.get(str(x.dtype.base), str(x.dtype.base)))
    args = (x, mask_of(mask, width_of(x.dtype), "vcadd"))
    return emit("vcadd", args, (register(result),), merges=merges)


def vcmax(src: Any, mask: Any = None, mode: str = "MODE_ZEROING") -> Value:
    """The largest element, in element 0."""
    return of_one("vcmax", src, mask, mode)


def vcmin(src: Any, mask: Any = None, mode: str = "MODE_ZEROING") -> Value:
    """The smallest element, in element 0."""
    return of_one("vcmin", src, mask, mode)


def vcgadd(src: Any, mask: Any = None, mode: str = "MODE_ZEROING") -> Value:
    """The sum of each 32 bytes, packed at the beginning."""
    return of_one("vcgadd", src, mask, mode)


def vcgmax(src: Any, mask: Any = None, mode: str = "MODE_ZEROING") -> Value:
    """The largest of each 32 bytes, packed at the beginning."""
    return of_one("vcgmax", src, mask, mode)


def vcgmin(src: Any, mask: Any = None, mode: str = "MODE_ZEROING") -> Value:
    """The smallest of each 32 bytes, packed at the beginning."""
    return of_one("vcgmin", src, mask, mode)


def vcpadd(src: Any, mask: Any = None, mode: str = "MODE_ZEROING") -> Value:
    """The sums of neighbours, packed into the lower half."""
    return of_one("vcpadd", src, mask, mode)


def vsqz(src: Any, mask: Any = None, mode: str = "MODE_STORED") -> Value:
    """The elements whose predicate is set, packed at the beginning."""
    return of_one("vsqz", src, mask, mode)


def vusqz(mask: Any, dtype: Any = "int32") -> Value:
    """For each element, how many before it have their predicate set."""
    chosen = predicate(mask, "the mask of T.simd.vusqz")
    return emit("vusqz", (chosen,), (register(DType(element_type(dtype))),))
