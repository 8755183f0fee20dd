"""How values, registers and memory of each dtype look in CUDA C++.

What enters: a `DType`. What leaves: the C++ type of a value and of an element in memory, and how
elements share 32-bit registers. Floats other than float32 and float64 are the integers that hold
their bits: the emitter knows what they are, and no header is needed.

- A value: `f16` and `bf16` are 16-bit integers, narrower floats, int4 and uint4 bytes (int4 with
  its sign), a handle is a 64-bit integer.
- Memory: an element takes the bytes of its NumPy storage, so one of fewer than 8 bits, or a bool,
  takes a byte.
- Registers (arrays in REGISTER space, vector values): elements of fewer than 32 bits are packed in
  32-bit words as memory has them, so that instructions take them as they are; bools are not packed.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilelang.dtypes import DType

ALIASES = {
    "i8": "signed char",
    "i16": "short",
    "i32": "int",
    "i64": "long long",
    "u8": "unsigned char",
    "u16": "unsigned short",
    "u32": "unsigned int",
    "u64": "unsigned long long",
    "f16": "unsigned short",
    "bf16": "unsigned short",
}
"""The names of types in the emitted source."""

_VALUES = {
    "float64": "double",
    "float32": "float",
    "tfloat32": "float",
    "float16": "f16",
    "bfloat16": "bf16",
    "bool": "bool",
    "handle": "u64",
    "int4": "i8",
    "int2": "i8",
    "uint4": "u8",
    "uint2": "u8",
}


def value_type(dtype: DType) -> str:
    """The C++ type of a scalar."""
    known = _VALUES.get(dtype.name)
    if known is not None:
        return known
    return "u8" if dtype.is_float else f"{'u' if dtype.is_uint else 'i'}{dtype.bits}"


def memory_type(dtype: DType) -> str:
    """The C++ type of an element in memory."""
    return "u8" if dtype.is_subbyte or dtype.is_bool else value_type(dtype)


def memory_bits(dtype: DType) -> int:
    """The bits that an element takes in memory."""
    return 8 * dtype.base.numpy.itemsize


def access_bytes(dtype: DType) -> int:
    """The bytes of an access of this scalar or vector type."""
    return dtype.lanes * memory_bits(dtype) // 8


def computes_in(dtype: DType) -> DType:
    """The type in which arithmetic on `dtype` is carried out: float32 for narrower floats."""
    return DType("float32") if dtype.is_float and dtype.bits <= 32 else dtype


@dataclass(frozen=True)
class Registers:
    """How elements lie in registers: `per` of `bits` each in a word of the C++ type `word`."""

    word: str
    per: int = 1
    bits: int = 32

    def words(self, count: int) -> int:
        """The words of `count` elements."""
        return -(-count // self.per)


def registers(dtype: DType) -> Registers:
    """How elements of a scalar dtype lie in registers."""
    if dtype.is_bool or dtype.bits >= 32:
        return Registers(value_type(dtype), 1, max(dtype.bits, 32))
    bits = memory_bits(dtype)
    return Registers("u32", 32 // bits, bits)


PTX_TYPES = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "int64": "s64",
    "int32": "s32",
    "int16": "s16",
    "uint64": "u64",
    "uint32": "u32",
    "uint16": "u16",
}
"""PTX's names of the types that it computes in."""

_CONSTRAINTS = {"float": "f", "double": "d", "i64": "l", "u64": "l", "i16": "h", "u16": "h"} | {
    "f16": "h",
    "bf16": "h",
}


def constraint(kind: str) -> str:
    """The letter of an `asm` operand of a C++ type; bytes and bools go as 32-bit registers."""
    return _CONSTRAINTS.get(kind, "r")
