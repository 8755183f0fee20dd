"""Device code of an author's own (`T.import_source`): how it stands in the emitted source, and how
values pass to and from its functions.

What enters: sources, dtypes and texts of values. What leaves: text. The author's functions see
CUDA's types, whose headers come with the wheel nvidia-cuda-runtime; the emitted code has the bits
of narrow floats in integers.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilelang.dtypes import DType
from tilelang.targets.cuda.types import memory_type

HEADERS = ("cuda_fp16.h", "cuda_bf16.h", "cuda_fp8.h")

ORIGIN = "import_source"
"""The file that the compiler's messages name, with a number after it."""

# What a host compiler's headers bring, which NVRTC does without.
_USUAL = {
    "uint": "unsigned int",
    "ushort": "unsigned short",
    "int8_t": "signed char",
    "int16_t": "short",
    "int32_t": "int",
    "int64_t": "long long",
    "uint8_t": "unsigned char",
    "uint16_t": "unsigned short",
    "uint32_t": "unsigned int",
    "uint64_t": "unsigned long long",
}

_TYPES = {
    "float16": "__half",
    "bfloat16": "__nv_bfloat16",
    "float8_e4m3fn": "__nv_fp8_e4m3",
    "float8_e5m2": "__nv_fp8_e5m2",
    "bool": "bool",
}
_INTO = {"float16": "__ushort_as_half", "bfloat16": "__ushort_as_bfloat16"}
_OUT_OF = {"float16": "__half_as_ushort", "bfloat16": "__bfloat16_as_ushort"}


def source_type(dtype: DType) -> str:
    """The type of an element that the author's functions see behind a pointer."""
    return _TYPES.get(dtype.name, memory_type(dtype))


def into_source(text: str, dtype: DType) -> str:
    """A value as an argument of the author's function."""
    found = _INTO.get(dtype.name)
    return f"{found}({text})" if found else text


def out_of_source(text: str, dtype: DType) -> str:
    """What the author's function returns, as a value of the emitted code."""
    found = _OUT_OF.get(dtype.name)
    return f"{found}({text})" if found else text


def headers(sources: Sequence[str]) -> str:
    """What stands before everything else."""
    if not sources:
        return ""
    included = [f"#include <{name}>\n" for name in HEADERS]
    return "".join([*included, *(f"typedef {old} {new};\n" for new, old in _USUAL.items())])


def device_code(sources: Sequence[str]) -> str:
    """The author's sources, each once, with lines of their own in the compiler's messages."""
    parts = [f'#line 1 "{ORIGIN} {n}"\n{text}\n' for n, text in enumerate(dict.fromkeys(sources))]
    return "\n".join(parts)
