"""The table of element types: one row per scalar type, and what follows from a row alone.

What enters: nothing. What leaves: `ROWS`, the facts of each type (bits, float format, storage type,
names in torch, CUDA C and LLVM), and the meaning of a code word of a float format.

A *code word* is the integer made of a value's meaningful bits: sign, exponent, mantissa from the
top. It fills the stored element, except that `tfloat32` keeps its 19 bits at the top of 32, and a
type of fewer than 8 bits keeps its own at the bottom of a byte.

Sources of the formats: IEEE 754 (float16, float32, float64, float8_e5m2); the OCP 8-bit Floating
Point Specification 1.0 (e4m3, called e4m3fn here) and the OCP Microscaling Formats 1.0 (e2m3, e3m2,
e2m1, e8m0); ml_dtypes for the other float8 types.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, Final, Literal

import ml_dtypes as ml
import numpy as np

Kind = Literal["float", "int", "uint", "bool", "handle"]


class Special(Enum):
    """How a float format spends the code words that are not finite numbers."""

    IEEE = "the largest exponent holds infinity and NaN"
    FN = "no infinity; NaN is all ones below the sign"
    FNUZ = "no infinity and no negative zero; NaN takes its word"
    FINITE = "neither infinity nor NaN"
    SCALE = "no sign, no zero, no infinity: a power of two; NaN is all ones"


@dataclass(frozen=True)
class Row:
    """The facts of one scalar type. `rounding` is the mode of a conversion that names none."""

    name: str
    kind: Kind
    bits: int
    numpy: np.dtype[Any]
    torch: str | None
    c: str | None
    exponent_bits: int = 0
    mantissa_bits: int = 0
    bias: int = 0
    special: Special = Special.IEEE
    rounding: str = "rn"

    @cached_property
    def encoding(self) -> tuple[object, ...]:
        """Equal for two types whose code words mean the same."""
        if self.kind == "float":
            return (self.exponent_bits, self.mantissa_bits, self.bias, self.special)
        return ("uint" if self.kind == "handle" else self.kind, self.bits)

    @property
    def llvm(self) -> str:
        """LLVM's type of the storage; bfloat16 and narrower floats are handled as integers."""
        if self.kind == "handle":
            return "ptr"
        native = {"float64": "double", "float32": "float", "float16": "half"}
        return native.get(self.numpy.name, f"i{8 * self.numpy.itemsize}")

    @property
    def has_sign(self) -> bool:
        """Whether a code word has a sign bit."""
        return self.special is not Special.SCALE

    @property
    def code_bits(self) -> int:
        """The width of a code word of a float format."""
        return self.has_sign + self.exponent_bits + self.mantissa_bits

    @property
    def emin(self) -> int:
        """The exponent of the smallest normal number, and of every subnormal one."""
        return 1 - self.bias if self.has_sign else -self.bias

    @property
    def sign_word(self) -> int:
        """The code word of the sign bit alone; 0 if there is none."""
        return 1 << (self.code_bits - 1) if self.has_sign else 0

    @cached_property
    def max_word(self) -> int:
        """The code word of the largest finite number."""
        top = (1 << (self.exponent_bits + self.mantissa_bits)) - 1
        if self.special is Special.IEEE:
            return top - (1 << self.mantissa_bits)
        return top - (self.special in (Special.FN, Special.SCALE))

    @cached_property
    def inf_word(self) -> int | None:
        """The code word of +infinity, if the format has one."""
        return self.max_word + 1 if self.special is Special.IEEE else None

    @cached_property
    def nan_word(self) -> int | None:
        """The code word of the NaN that a conversion gives, if the format has one; no sign."""
        match self.special:
            case Special.IEEE:  # the quiet bit alone
                return self.max_word + 1 + (1 << (self.mantissa_bits - 1))
            case Special.FN | Special.SCALE:
                return self.max_word + 1
            case Special.FNUZ:
                return self.sign_word
            case Special.FINITE:
                return None

    def decode(self, word: int) -> float:
        """The value of a code word of a float format, exactly."""
        if self.special is Special.FNUZ and word == self.sign_word:
            return math.nan
        sign = -1.0 if word & self.sign_word else 1.0
        word &= ~self.sign_word
        if word > self.max_word:
            return math.copysign(math.inf if word == self.inf_word else math.nan, sign)
        exponent = word >> self.mantissa_bits
        fraction = word & ((1 << self.mantissa_bits) - 1)
        if not self.has_sign:
            return math.ldexp(1.0, exponent - self.bias)
        if exponent:
            fraction += 1 << self.mantissa_bits
        return sign * math.ldexp(fraction, max(exponent, 1) - self.bias - self.mantissa_bits)


_Form = tuple[int, int, int, Special]
_IEEE, _FN, _FNUZ, _FINITE = Special.IEEE, Special.FN, Special.FNUZ, Special.FINITE


def _float(
    name: str,
    bits: int,
    storage: type[Any],
    form: _Form,
    names: tuple[str | None, str | None],
    rounding: str = "rn",
) -> Row:
    return Row(name, "float", bits, np.dtype(storage), *names, *form, rounding)


def _other(
    name: str, kind: Kind, bits: int, storage: type[Any], names: tuple[str | None, str | None]
) -> Row:
    return Row(name, kind, bits, np.dtype(storage), *names)


_E4M3: Final = ("float8_e4m3fn", "__nv_fp8_e4m3")
_E8M0: Final = ("float8_e8m0fnu", "__nv_fp8_e8m0")
_E2M1: Final = ("float4_e2m1fn_x2", "__nv_fp4_e2m1")
_E2M1_UNPACKED: Final = ("uint8", "__nv_fp4_e2m1")

# A float: name, bits, storage, (exponent bits, mantissa bits, bias, special words), names in torch
# and CUDA C, default rounding. Of rows with one storage, the first is the dtype of a NumPy array.
# - float8_e4m3 is TileLang's older name of e4m3fn: `as_torch()` is torch.float8_e4m3fn and CUDA's
#   type __nv_fp8_e4m3, for both. ml_dtypes.float8_e4m3 is another: it has infinities, ends at 240.
# - tfloat32 rounds half away from zero (PTX ISA, cvt.rna.tf32.f32), float8_e8m0fnu up (CUDA's own
#   conversion to __nv_fp8_e8m0).
# - float4_e2m1_unpacked is one fp4 value to a byte, as mma of kind f8f6f4 reads shared memory.
# - torch names are of the storage: float4 in pairs, int4 and smaller and float6 in plain bytes.
_TABLE: Final = (
    _float("float64", 64, np.float64, (11, 52, 1023, _IEEE), ("float64", "double")),
    _float("float32", 32, np.float32, (8, 23, 127, _IEEE), ("float32", "float")),
    _float("tfloat32", 32, np.float32, (8, 10, 127, _IEEE), ("float32", "float"), "rna"),
    _float("float16", 16, np.float16, (5, 10, 15, _IEEE), ("float16", "half")),
    _float("bfloat16", 16, ml.bfloat16, (8, 7, 127, _IEEE), ("bfloat16", "__nv_bfloat16")),
    _float("float8_e3m4", 8, ml.float8_e3m4, (3, 4, 3, _IEEE), (None, None)),
    _float("float8_e4m3fn", 8, ml.float8_e4m3fn, (4, 3, 7, _FN), _E4M3),
    _float("float8_e4m3", 8, ml.float8_e4m3fn, (4, 3, 7, _FN), _E4M3),
    _float("float8_e4m3b11fnuz", 8, ml.float8_e4m3b11fnuz, (4, 3, 11, _FNUZ), (None, None)),
    _float("float8_e4m3fnuz", 8, ml.float8_e4m3fnuz, (4, 3, 8, _FNUZ), ("float8_e4m3fnuz", None)),
    _float("float8_e5m2", 8, ml.float8_e5m2, (5, 2, 15, _IEEE), ("float8_e5m2", "__nv_fp8_e5m2")),
    _float("float8_e5m2fnuz", 8, ml.float8_e5m2fnuz, (5, 2, 16, _FNUZ), ("float8_e5m2fnuz", None)),
    _float("float8_e8m0fnu", 8, ml.float8_e8m0fnu, (8, 0, 127, Special.SCALE), _E8M0, "rp"),
    _float("float6_e2m3fn", 6, ml.float6_e2m3fn, (2, 3, 1, _FINITE), ("uint8", "__nv_fp6_e2m3")),
    _float("float6_e3m2fn", 6, ml.float6_e3m2fn, (3, 2, 3, _FINITE), ("uint8", "__nv_fp6_e3m2")),
    _float("float4_e2m1fn", 4, ml.float4_e2m1fn, (2, 1, 1, _FINITE), _E2M1),
    _float("float4_e2m1_unpacked", 8, ml.float4_e2m1fn, (2, 1, 1, _FINITE), _E2M1_UNPACKED),
    _other("int64", "int", 64, np.int64, ("int64", "long long")),
    _other("int32", "int", 32, np.int32, ("int32", "int")),
    _other("int16", "int", 16, np.int16, ("int16", "short")),
    _other("int8", "int", 8, np.int8, ("int8", "signed char")),
    _other("int4", "int", 4, ml.int4, ("int8", None)),
    _other("int2", "int", 2, ml.int2, ("int8", None)),
    _other("uint64", "uint", 64, np.uint64, ("uint64", "unsigned long long")),
    _other("uint32", "uint", 32, np.uint32, ("uint32", "unsigned int")),
    _other("uint16", "uint", 16, np.uint16, ("uint16", "unsigned short")),
    _other("uint8", "uint", 8, np.uint8, ("uint8", "unsigned char")),
    _other("uint4", "uint", 4, ml.uint4, ("uint8", None)),
    _other("uint2", "uint", 2, ml.uint2, ("uint8", None)),
    _other("bool", "bool", 8, np.bool_, ("bool", "bool")),
    _other("handle", "handle", 64, np.uint64, (None, "void*")),
)

ROWS: Final = {row.name: row for row in _TABLE}
LANES: Final = (2, 4, 8, 16, 32, 64)
"""The lane counts of vector types, `<scalar>x<lanes>`."""
REGISTER_LANES: Final = (128, 256, 512)
"""Further lane counts, of the 256-byte vector registers of Ascend; `T` has no names for them."""
ALIASES: Final = {
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "short": "int16",
    "int": "int32",
    "long": "int64",
    "uint": "uint32",
    "ulong": "uint64",
    "uint1": "bool",
    "custom[float4_e2m1_unpacked]8": "float4_e2m1_unpacked",
}
"""Other spellings of a dtype that TileLang accepts."""
