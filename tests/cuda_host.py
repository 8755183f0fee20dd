"""Emitted CUDA C++ compiled for the host by the system's C++ compiler, one thread per block.

What enters: a program without instructions of the hardware. What leaves: the program run on NumPy
arrays, so that expressions, conversions and control flow of the emitter are checked where there is
no GPU. Functions of the prelude that are one PTX instruction are written in C++ here.
"""

from __future__ import annotations

import ctypes
import functools
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tilelang.dtypes import DType
from tilelang.ir.evaluate import evaluate
from tilelang.ir.expr import Var
from tilelang.ir.thread import Program
from tilelang.isa.target import Target
from tilelang.targets.cuda.host import HELPERS
from tilelang.targets.cuda.prelude import PIECES
from tilelang.targets.cuda.program import Built, emit

COMPILER = shutil.which("g++") or shutil.which("clang++")

HEAD = r"""
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <cstdlib>
#define __device__
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __restrict__
#define __builtin_assume(x) ((void)0)
typedef unsigned u32;
struct Dim { u32 x, y, z; };
static thread_local Dim blockIdx, threadIdx, gridDim;
static inline float __uint_as_float(unsigned x) { float y; memcpy(&y, &x, 4); return y; }
static inline unsigned __float_as_uint(float x) { unsigned y; memcpy(&y, &x, 4); return y; }
static inline float __int_as_float(int x) { float y; memcpy(&y, &x, 4); return y; }
static inline double __longlong_as_double(long long x) { double y; memcpy(&y, &x, 8); return y; }
static inline long long __double_as_longlong(double x) { long long y; memcpy(&y, &x, 8); return y; }
static inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
static inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline float __double2float_rn(double x) { return (float)x; }
static inline float __double2float_rz(double x) {
  float y = (float)x;
  return fabs(y) > fabs(x) ? nextafterf(y, 0.0f) : y;
}
static inline float __double2float_ru(double x) {
  float y = (float)x;
  return y < x ? nextafterf(y, INFINITY) : y;
}
static inline float __double2float_rd(double x) {
  float y = (float)x;
  return y > x ? nextafterf(y, -INFINITY) : y;
}
static inline float __fmul_rn(float a, float b) { volatile float r = a * b; return r; }
static inline double __dmul_rn(double a, double b) { volatile double r = a * b; return r; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
template <class T> static inline T min(T a, T b) { return b < a ? b : a; }
template <class T> static inline T max(T a, T b) { return a < b ? b : a; }
struct uint4 { unsigned x, y, z, w; };
struct uint2 { unsigned x, y; };
inline uint4 make_uint4(u32 a, u32 b, u32 c, u32 d) { return {a, b, c, d}; }
static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static inline void __threadfence() {}
static inline void __threadfence_system() {}
static inline void __trap() { abort(); }
template <class T> T atomicAdd(T* p, T x) { T old = *p; *p = T(old + x); return old; }
inline int atomicAdd(int* p, int x) { int old = *p; *p = int(u32(old) + u32(x)); return old; }
template <class T> T atomicMax(T* p, T x) { T old = *p; if (x > old) *p = x; return old; }
template <class T> T atomicMin(T* p, T x) { T old = *p; if (x < old) *p = x; return old; }
template <class T> T atomicOr(T* p, T x) { T old = *p; *p = T(old | x); return old; }
template <class T> T atomicCAS(T* p, T a, T b) { T old = *p; if (old == a) *p = b; return old; }
template <class T> T atomicCAS_system(T* p, T a, T b) { return atomicCAS(p, a, b); }
"""

# What is one PTX instruction. Halves go through the general rounding, which the emitter has itself.
_F16 = "tl::Format<10, -14, 31743, 31744, 32256, 32768u, 0>"
_BF16 = "tl::Format<7, -126, 32639, 32640, 32704, 32768u, 0>"
_TF32 = "tl::Format<10, -126, 261119, 261120, 261632, 262144u, 0>"
_E4M3 = "tl::Format<3, -6, 126, -1, 127, 128u, 1>"
_E5M2 = "tl::Format<2, -14, 123, 124, 126, 128u, 0>"


def _half(form: str, x: str, mode: str = "RN", saturate: str = "false") -> str:
    return f"encode<{form}>(exact_f64(double({x})), {mode}, {saturate}, 0u)"


def _pair(form: str, bits: int) -> str:
    low, high = (_half(form, c, saturate="true" if bits == 8 else "false") for c in "xy")
    return f"return {low} | {high} << {bits};"


def _to_int(kind: str, low: str, high: str) -> str:
    return (
        f"if (x != x) return 0; if (x <= {low}) return {kind}({low}); if (x >= {high})"
        f" return {kind}({kind}(0) - 1 > 0 ? ~{kind}(0) : ~({kind}(1) << sizeof({kind}) * 8 - 1));"
        f" return {kind}(x);"
    )


BODIES = {
    "f32_of_f16": f"return decode<{_F16}>(x);",
    "f16_of_f32": f"return f16({_half(_F16, 'x')});",
    "bf16_of_f32": f"return bf16({_half(_BF16, 'x')});",
    "f16x2_of_f32": _pair(_F16, 16),
    "bf16x2_of_f32": _pair(_BF16, 16),
    "f16_of_f64": f"return f16({_half(_F16, 'x')});",
    "f16_of_i32": f"return f16(encode<{_F16}>(exact_i64(x), RN, false, 0u));",
    "f16_of_u32": f"return f16(encode<{_F16}>(exact_u64(x, false), RN, false, 0u));",
    "f16_of_i64": f"return f16(encode<{_F16}>(exact_i64(x), RN, false, 0u));",
    "f16_of_u64": f"return f16(encode<{_F16}>(exact_u64(x, false), RN, false, 0u));",
    "tf32_of_f32": f"return __uint_as_float({_half(_TF32, 'x', 'RNA')} << 13);",
    "e4m3x2_of_f32": _pair(_E4M3, 8),
    "e5m2x2_of_f32": _pair(_E5M2, 8),
    "f16x2_of_e4m3": f"return {_half(_F16, f'decode<{_E4M3}>(x & 0xFF)')};",
    "f16x2_of_e5m2": f"return {_half(_F16, f'decode<{_E5M2}>(x & 0xFF)')};",
    "frcp_approx": "return 1.0f / x;",
    **{
        f"{kind}_of_{src}": _to_int(kind, low, high)
        for src in ("f32", "f64")
        for kind, low, high in (
            ("i32", "-2147483648.0", "2147483647.0"),
            ("u32", "0.0", "4294967295.0"),
            ("i64", "-9223372036854775808.0", "9223372036854775808.0"),
            ("u64", "0.0", "18446744073709551616.0"),
        )
    },
}


_ROUNDING = ("Exact", "exact_f64", "exact_u64", "exact_i64", "Format", "Mode", "encode", "decode")


def _ported(text: str) -> str:
    """The source with the bodies of functions that are PTX replaced, and all that these need."""
    needed = "".join(PIECES[n].text + "\n" for n in _ROUNDING)
    for n in _ROUNDING:
        text = text.replace(PIECES[n].text + "\n", "")
    text = text.replace("namespace tl {\n", f"namespace tl {{\n{needed}", 1)
    for name, body in BODIES.items():
        pattern = rf"(__device__ __forceinline__ \w+ {name}\([^)]*\)) \{{.*?\n\}}"
        text = re.sub(pattern, lambda m, body=body: f"{m.group(1)} {{ {body} }}", text, flags=re.S)
    text = text.replace(
        "extern __shared__ __align__(1024) u8 tl_shared[];",
        "alignas(1024) static thread_local u8 tl_shared[1 << 20];",
    ).replace("const u32 tl_pool = tl::smem(tl_shared);", "")
    text = re.sub(r"__device__ __forceinline__ u32 smem.*\n", "", text)
    assert "asm" not in text, text[text.index("asm") - 200 :][:400]
    return text


class HostProgram:
    """A program as a shared library of the host."""

    def __init__(self, program: Program, target: Target, folder: Path) -> None:
        assert COMPILER is not None
        self.built: Built = emit(program, target)
        source, library = folder / "program.cpp", folder / "program.so"
        text = HEAD + "namespace tl {}\n" + _ported(self.built.plain)
        for k, facts in enumerate(self.built.kernels):
            text += _entry(k, facts)
        source.write_text(text)
        command = [COMPILER, "-std=c++17", "-O1", "-ffp-contract=off", "-w", "-fPIC", "-shared"]
        done = subprocess.run(
            [*command, str(source), "-o", str(library)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[:3000]
        self.library = ctypes.CDLL(str(library))
        names: dict[str, Any] = dict(HELPERS)
        for k in range(len(self.built.kernels)):
            names[f"launch{k}"] = functools.partial(self.launch, k)
        exec(self.built.host.text, names)
        self._run = names["run"]
        self._keep: list[Any] = []

    def run(self, args: Mapping[str, Any]) -> None:
        """Run it on NumPy arrays in place."""
        values = [
            x.ctypes.data if isinstance(x, np.ndarray) else 0 if x is None else x
            for x in (args[name] for name, _ in self.built.slots)
        ]
        self._run(self, *values)

    # What the host level calls -------------------------------------------------------------------

    def workspace(self, size: int, zero: bool = False) -> int:
        self._keep.append(np.full(max(1, size) + 64, 0 if zero else 0xA5, np.uint8))
        return (self._keep[-1].ctypes.data + 63) & ~63

    def evaluate(self, number: int, values: Mapping[str, Any]) -> Any:
        e = self.built.host.exprs[number]
        return evaluate(e, {v: values[v.name] for v in e.walk() if isinstance(v, Var)})

    def fail(self, number: int) -> None:
        raise AssertionError(self.built.failures[number - 1].message)

    def launch(self, number: int, _: Any, x: int, y: int, z: int, *args: Any) -> None:
        facts, extents = self.built.kernels[number], (x, y, z)
        record = (ctypes.c_uint * 7)()
        given = [*args, *([ctypes.addressof(record)] if facts.reports else [])]
        kinds = [*facts.params, *([None] if facts.reports else [])]
        packed = [_bits(x, kind) for x, kind in zip(given, kinds, strict=True)]
        words = (ctypes.c_uint64 * max(1, len(packed)))(*packed)
        self.library[f"enter{number}"](words, *(ctypes.c_uint(max(0, x)) for x in extents))
        if record[0]:
            raise AssertionError(self.built.failures[record[0] - 1].message)


def _bits(x: Any, kind: DType | str | None) -> int:
    if isinstance(kind, DType) and kind.is_float:
        return int(np.asarray(x, kind.numpy).view(f"u{kind.numpy.itemsize}"))
    return int(x) & ((1 << 64) - 1)


def _entry(k: int, facts: Any) -> str:
    """A C function that runs all blocks of a kernel, with arguments in words of 8 bytes."""
    count = len(facts.params) + facts.reports
    reads = ", ".join(f"read(words[{n}])" for n in range(count))
    return f"""
struct Word{k} {{
  unsigned long long bits;
  template <class T> operator T() const {{ T x; memcpy(&x, &bits, sizeof(T)); return x; }}
}};
extern "C" void enter{k}(const unsigned long long* words, unsigned x, unsigned y, unsigned z) {{
  auto read = [](unsigned long long bits) {{ return Word{k}{{bits}}; }};
  (void)read;
  gridDim = {{x, y, z}};
  for (blockIdx.z = 0; blockIdx.z < z; ++blockIdx.z)
    for (blockIdx.y = 0; blockIdx.y < y; ++blockIdx.y)
      for (blockIdx.x = 0; blockIdx.x < x; ++blockIdx.x) {facts.symbol}({reads});
}}
"""
