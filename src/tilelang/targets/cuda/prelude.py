"""Device functions that the emitted source may call, each written once and put in when it is used.

What enters: the names that were used. What leaves: their C++ text, after that of what they need.
All are in the namespace `tl`; none needs a header. Types are those of `types.ALIASES`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tilelang.targets.cuda.types import ALIASES


@dataclass(frozen=True)
class Piece:
    """One definition and the names of those it calls."""

    text: str
    needs: tuple[str, ...]


def _pieces(source: str) -> Iterator[tuple[str, Piece]]:
    """Definitions that begin with a line `//- name`; what they need is what they mention."""
    parts = re.split(r"(?m)^//- (\w+)\n", source)[1:]
    names = parts[::2]
    for name, text in zip(names, parts[1::2], strict=True):
        words = set(re.findall(r"\w+", text))
        yield name, Piece(text.strip(), tuple(n for n in names if n in words and n != name))


_INTEGERS = r"""
//- floordiv
template <class T> __device__ T floordiv(T a, T b) {
  T q = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? T(q - 1) : q;
}
//- floormod
template <class T> __device__ T floormod(T a, T b) {
  T r = a % b;
  return (r != 0 && (r < 0) != (b < 0)) ? T(r + b) : r;
}
//- shl
template <class T, class U> __device__ T shl(T a, T n) {
  return U(n) < U(sizeof(T) * 8) ? T(U(a) << n) : T(0);
}
//- shr
template <class T, class U> __device__ T shr(T a, T n) {
  return U(n) < U(sizeof(T) * 8) ? T(a >> n) : T(T(-1) < T(1) ? a >> (sizeof(T) * 8 - 1) : 0);
}
//- iclamp
template <class T> __device__ T iclamp(T x, T lo, T hi) {
  T y = x < lo ? lo : x;
  return y > hi ? hi : y;
}
//- iabs
template <class T, class U> __device__ T iabs(T x) { return x < 0 ? T(U(0) - U(x)) : x; }
//- fns
template <int BITS> __device__ u64 fns(u64 word, i64 base, i32 nth) {
  word &= ~u64(0) >> (64 - BITS);
  const u64 none = ~u64(0) >> (64 - BITS);
  if (nth == 0) return base >= 0 && base < BITS && (word >> base & 1) ? u64(base) : none;
  const i32 step = nth < 0 ? -1 : 1;
  u32 left = nth < 0 ? u32(0) - u32(nth) : u32(nth);
  for (i64 at = base; at >= 0 && at < BITS; at += step)
    if ((word >> at & 1) && --left == 0) return u64(at);
  return none;
}
"""

# Sources: PTX ISA 9.0, cvt. The general routes follow `tilelang/dtypes/encode.py` word for word.
_CONVERSIONS = r"""
//- f32_of_f16
__device__ __forceinline__ float f32_of_f16(f16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
  return y;
}
//- f32_of_bf16
__device__ __forceinline__ float f32_of_bf16(bf16 x) { return __uint_as_float(u32(x) << 16); }
//- f16_of_f32
__device__ __forceinline__ f16 f16_of_f32(float x) {
  f16 y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
}
//- bf16_of_f32
__device__ __forceinline__ bf16 bf16_of_f32(float x) {
  bf16 y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
}
//- f16x2_of_f32
__device__ __forceinline__ u32 f16x2_of_f32(float x, float y) {
  u32 z;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(z) : "f"(y), "f"(x));
  return z;
}
//- bf16x2_of_f32
__device__ __forceinline__ u32 bf16x2_of_f32(float x, float y) {
  u32 z;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(z) : "f"(y), "f"(x));
  return z;
}
//- f16_of_f64
__device__ __forceinline__ f16 f16_of_f64(double x) {
  f16 y;
  asm("cvt.rn.f16.f64 %0, %1;" : "=h"(y) : "d"(x));
  return y;
}
//- f16_of_i32
__device__ __forceinline__ f16 f16_of_i32(i32 x) {
  f16 y;
  asm("cvt.rn.f16.s32 %0, %1;" : "=h"(y) : "r"(x));
  return y;
}
//- f16_of_u32
__device__ __forceinline__ f16 f16_of_u32(u32 x) {
  f16 y;
  asm("cvt.rn.f16.u32 %0, %1;" : "=h"(y) : "r"(x));
  return y;
}
//- f16_of_i64
__device__ __forceinline__ f16 f16_of_i64(i64 x) {
  f16 y;
  asm("cvt.rn.f16.s64 %0, %1;" : "=h"(y) : "l"(x));
  return y;
}
//- f16_of_u64
__device__ __forceinline__ f16 f16_of_u64(u64 x) {
  f16 y;
  asm("cvt.rn.f16.u64 %0, %1;" : "=h"(y) : "l"(x));
  return y;
}
//- tf32_of_f32
__device__ __forceinline__ float tf32_of_f32(float x) {
  u32 y;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
  return __uint_as_float(y);
}
//- e4m3x2_of_f32
__device__ __forceinline__ u16 e4m3x2_of_f32(float x, float y) {
  u16 z;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(z) : "f"(y), "f"(x));
  return z;
}
//- e5m2x2_of_f32
__device__ __forceinline__ u16 e5m2x2_of_f32(float x, float y) {
  u16 z;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(z) : "f"(y), "f"(x));
  return z;
}
//- f16x2_of_e4m3
__device__ __forceinline__ u32 f16x2_of_e4m3(u16 x) {
  u32 y;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(y) : "h"(x));
  return y;
}
//- f16x2_of_e5m2
__device__ __forceinline__ u32 f16x2_of_e5m2(u16 x) {
  u32 y;
  asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(y) : "h"(x));
  return y;
}
//- i32_of_f32
__device__ __forceinline__ i32 i32_of_f32(float x) {
  i32 y;
  asm("cvt.rzi.s32.f32 %0, %1;" : "=r"(y) : "f"(x));
  return y;
}
//- u32_of_f32
__device__ __forceinline__ u32 u32_of_f32(float x) {
  u32 y;
  asm("cvt.rzi.u32.f32 %0, %1;" : "=r"(y) : "f"(x));
  return y;
}
//- i64_of_f32
__device__ __forceinline__ i64 i64_of_f32(float x) {
  i64 y;
  asm("cvt.rzi.s64.f32 %0, %1;" : "=l"(y) : "f"(x));
  return x == x ? y : 0;
}
//- u64_of_f32
__device__ __forceinline__ u64 u64_of_f32(float x) {
  u64 y;
  asm("cvt.rzi.u64.f32 %0, %1;" : "=l"(y) : "f"(x));
  return x == x ? y : 0;
}
//- i32_of_f64
__device__ __forceinline__ i32 i32_of_f64(double x) {
  i32 y;
  asm("cvt.rzi.s32.f64 %0, %1;" : "=r"(y) : "d"(x));
  return x == x ? y : 0;
}
//- u32_of_f64
__device__ __forceinline__ u32 u32_of_f64(double x) {
  u32 y;
  asm("cvt.rzi.u32.f64 %0, %1;" : "=r"(y) : "d"(x));
  return x == x ? y : 0;
}
//- i64_of_f64
__device__ __forceinline__ i64 i64_of_f64(double x) {
  i64 y;
  asm("cvt.rzi.s64.f64 %0, %1;" : "=l"(y) : "d"(x));
  return x == x ? y : 0;
}
//- u64_of_f64
__device__ __forceinline__ u64 u64_of_f64(double x) {
  u64 y;
  asm("cvt.rzi.u64.f64 %0, %1;" : "=l"(y) : "d"(x));
  return x == x ? y : 0;
}
//- Exact
// (-1)^negative * significand * 2^(exponent - 63), or NaN, or infinity.
struct Exact {
  u64 significand;
  i32 exponent;
  bool negative, nan, inf;
};
//- exact_f64
__device__ inline Exact exact_f64(double x) {
  const u64 bits = u64(__double_as_longlong(x));
  const i32 field = i32(bits >> 52 & 0x7FF);
  const u64 fraction = bits & ((u64(1) << 52) - 1);
  const bool special = field == 0x7FF;
  return {fraction << 11 | u64(field > 0) << 63, (field > 1 ? field : 1) - 1023, bits >> 63 != 0,
          special && fraction != 0, special && fraction == 0};
}
//- exact_u64
__device__ inline Exact exact_u64(u64 x, bool negative) {
  if (x == 0) return {0, -1074, negative, false, false};
  const i32 zeros = __clzll(i64(x));
  return {x << zeros, 63 - zeros, negative, false, false};
}
//- exact_i64
__device__ inline Exact exact_i64(i64 x) {
  return exact_u64(x < 0 ? u64(0) - u64(x) : u64(x), x < 0);
}
//- Format
// A float format: `special` says what words are no finite numbers: 0 IEEE, 1 FN, 2 FNUZ, 3 none,
// 4 a scale without a sign. Words that the format has not are -1.
template <i32 MANTISSA, i32 EMIN, i64 MAX, i64 INF, i64 NAN_WORD, u32 SIGN, i32 SPECIAL>
struct Format {
  static constexpr i32 mantissa = MANTISSA, emin = EMIN, special = SPECIAL;
  static constexpr i64 max = MAX, inf = INF, nan = NAN_WORD;
  static constexpr u32 sign = SIGN;
};
//- Mode
enum Mode { RN, RNA, RZ, RP, RM, RS };
//- encode
template <class F> __device__ u32 encode(Exact x, Mode mode, bool saturate, u32 rbits) {
  const bool negative = x.negative && F::sign != 0;
  const u32 sign = negative ? F::sign : 0;
  if (x.nan) return F::nan < 0 ? u32(F::max) : F::special == 2 ? u32(F::nan) : u32(F::nan) | sign;
  const i32 below = F::emin > x.exponent ? F::emin - x.exponent : 0;
  const i32 shift = 63 - F::mantissa + below;
  const u64 kept = shift < 64 ? x.significand >> shift : 0;
  u64 rest;
  if (shift < 64) {
    rest = x.significand << (64 - shift);
  } else {
    const i32 wide = shift - 64 < 63 ? shift - 64 : 63;
    rest = x.significand >> wide | u64(wide > 0 && x.significand << (63 - wide) << 1 != 0);
  }
  const u64 half = u64(1) << 63;
  bool up = false;
  switch (mode) {
    case RN: up = rest > half || (rest == half && (kept & 1)); break;
    case RNA: up = rest >= half; break;
    case RP: up = rest != 0 && !negative; break;
    case RM: up = rest != 0 && negative; break;
    case RS: up = (rest >> 32) + rbits >= u64(1) << 32; break;
    case RZ: break;
  }
  u64 word = kept + up;
  word += u64((x.exponent > F::emin ? x.exponent : F::emin) - F::emin) << F::mantissa;
  if (F::special == 4) word = (word > 1 ? word : 1) - 1;
  if (word > u64(F::max) || x.inf) {
    const bool cut = mode == RZ || (mode == RP && negative) || (mode == RM && !negative);
    const bool finite = saturate || F::nan < 0 || (cut && !x.inf);
    word = finite ? u64(F::max) : u64(F::inf < 0 ? F::nan : F::inf);
  }
  return F::special == 2 && word == 0 ? 0 : u32(word) | sign;
}
//- f64_encode
// A float64 from an integer, rounded by `mode`.
__device__ inline double f64_encode(Exact x, Mode mode, bool, u32) {
  if (x.significand == 0) return 0.0;
  const u64 kept = x.significand >> 11, rest = x.significand << 53;
  const bool up = rest != 0 && ((mode == RP && !x.negative) || (mode == RM && x.negative) ||
                                (mode == RNA && rest >> 63));
  const double y = scalbn(double(kept + up), x.exponent - 52);
  return x.negative ? -y : y;
}
//- decode
template <class F> __device__ float decode(u32 word) {
  if (F::special == 2 && word == F::sign) return __uint_as_float(0x7FC00000u);
  const u32 sign = word & F::sign ? 0x80000000u : 0;
  const u32 code = word & (F::special == 4 ? 0xFFu : F::sign - 1);
  if (code > u32(F::max))
    return __uint_as_float(sign | (code == u32(F::inf) ? 0x7F800000u : 0x7FC00000u));
  if (F::special == 4) return __uint_as_float(code == 0 ? 0x00400000u : code << 23);
  const u32 exponent = code >> F::mantissa, fraction = code & ((1u << F::mantissa) - 1);
  const i32 scale = i32(exponent > 1 ? exponent : 1) - 1 + F::emin - F::mantissa;
  const float whole = float(fraction + (exponent ? 1u << F::mantissa : 0));
  const float value = whole * __uint_as_float(u32(scale + 127) << 23);
  return __uint_as_float(__float_as_uint(value) | sign);
}
"""

_FLOATS = r"""
//- ffloordiv
template <class T> __device__ T ffloordiv(T a, T b) {
  T r = fmod(a, b);
  T q = (a - r) / b;
  if (r != 0 && (r < 0) != (b < 0)) q -= 1;
  if (b == 0) return a / b;
  if (q == 0) return copysign(T(0), a / b);
  T whole = floor(q);
  return q - whole > T(0.5) ? whole + 1 : whole;
}
//- ffloormod
template <class T> __device__ T ffloormod(T a, T b) {
  T r = fmod(a, b);
  if (r == 0) return b != 0 ? copysign(T(0), b) : r;
  return (r < 0) != (b < 0) ? r + b : r;
}
//- fclamp
template <class T> __device__ T fclamp(T x, T lo, T hi) {
  if (x != x || lo != lo || hi != hi) return x + lo + hi;
  const T y = x < lo ? lo : x;
  return y > hi ? hi : y;
}
//- fldexp
template <class T> __device__ T fldexp(T x, T y) {
  const T n = y != y ? T(0) : y < T(-5000) ? T(-5000) : y > T(5000) ? T(5000) : y;
  return ldexp(x, i32(n));
}
//- ex2
// The result is no subnormal number.
__device__ __forceinline__ float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
//- frcp_approx
__device__ __forceinline__ float frcp_approx(float x) {
  float y;
  asm("rcp.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
//- rsqrt_rounded
// Double precision first; what is left is far below a last place of float32.
__device__ inline float rsqrt_rounded(float x, i32 mode) {
  const double y = 1.0 / sqrt(double(x));
  return mode == 1 ? __double2float_rz(y) : mode == 2 ? __double2float_ru(y) : __double2float_rd(y);
}
"""

_MEMORY = r"""
//- smem
__device__ __forceinline__ u32 smem(const void* p) { return u32(__cvta_generic_to_shared(p)); }
//- word_set
// Element `at` of `BITS` bits in a word of registers.
template <i32 BITS> __device__ __forceinline__ u32 word_set(u32 word, i32 at, u32 value) {
  const u32 mask = u32((u64(1) << BITS) - 1) << (at * BITS);
  return (word & ~mask) | (value << (at * BITS) & mask);
}
//- cas
// Compare and swap of 1, 2, 4 or 8 bytes; a byte goes through the two bytes around it.
__device__ inline u32 cas(u32* p, u32 seen, u32 wanted) { return atomicCAS(p, seen, wanted); }
__device__ inline u64 cas(u64* p, u64 seen, u64 wanted) { return atomicCAS(p, seen, wanted); }
__device__ __forceinline__ u16 cas(u16* p, u16 seen, u16 wanted) {
  u16 was;
  asm volatile("atom.cas.b16 %0, [%1], %2, %3;"
               : "=h"(was) : "l"(p), "h"(seen), "h"(wanted) : "memory");
  return was;
}
__device__ inline u8 cas(u8* p, u8 expected, u8 wanted) {
  u16* const pair = reinterpret_cast<u16*>(reinterpret_cast<u64>(p) & ~u64(1));
  const u32 shift = u32(reinterpret_cast<u64>(p) & 1) * 8;
  u16 seen = *reinterpret_cast<volatile u16*>(pair);
  while (u8(seen >> shift) == expected) {
    const u16 next = u16((seen & ~(0xFFu << shift)) | u32(wanted) << shift);
    const u16 was = cas(pair, seen, next);
    if (was == seen) return expected;
    seen = was;
  }
  return u8(seen >> shift);
}
//- atomic_add_f16
__device__ __forceinline__ f16 atomic_add_f16(f16* p, f16 x) {
  f16 was;
  asm volatile("atom.add.noftz.f16 %0, [%1], %2;" : "=h"(was) : "l"(p), "h"(x) : "memory");
  return was;
}
//- atomic_add_bf16
__device__ __forceinline__ bf16 atomic_add_bf16(bf16* p, bf16 x) {
  bf16 was;
  asm volatile("atom.add.noftz.bf16 %0, [%1], %2;" : "=h"(was) : "l"(p), "h"(x) : "memory");
  return was;
}
//- updated
// An atomic update by compare and swap; `f` gives the new element from the old one.
template <class T, class F> __device__ T updated(T* p, F f) {
  T seen = *reinterpret_cast<volatile T*>(p);
  while (true) {
    const T was = cas(p, seen, f(seen));
    if (was == seen) return was;
    seen = was;
  }
}
//- grid_sync
// Every block adds one; the block that is first in the grid adds what flips the top bit.
__device__ inline void grid_sync(u32* counter) {
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) {
    const bool first = blockIdx.x == 0 && blockIdx.y == 0 && blockIdx.z == 0;
    const u32 blocks = gridDim.x * gridDim.y * gridDim.z;
    const u32 part = first ? 0x80000000u - (blocks - 1) : 1u;
    __threadfence();
    const u32 before = atomicAdd(counter, part);
    while (((before ^ *reinterpret_cast<volatile u32*>(counter)) & 0x80000000u) == 0) {
    }
    __threadfence();
  }
  __syncthreads();
}
//- Record
// What a launch that is stopped tells the host: the number of the failure, the block, the thread.
struct Record {
  u32 status;
  u32 where[6];
};
//- fail
__device__ __noinline__ void fail(Record* record, u32 failure) {
  if (atomicCAS_system(&record->status, 0u, failure) == 0u) {
    const u32 where[6] = {blockIdx.x,  blockIdx.y,  blockIdx.z,
                          threadIdx.x, threadIdx.y, threadIdx.z};
    for (i32 k = 0; k < 6; ++k) record->where[k] = where[k];
  }
  __threadfence_system();
}
//- TensorMap
struct alignas(64) TensorMap { u64 words[16]; };
"""

PIECES: dict[str, Piece] = {
    name: piece
    for source in (_INTEGERS, _CONVERSIONS, _FLOATS, _MEMORY)
    for name, piece in _pieces(source)
}


def prelude(used: Iterable[str]) -> str:
    """The source of the pieces `used` and of all that they need, in the order of this file."""
    wanted: set[str] = set()
    left = list(used)
    while left:
        name = left.pop()
        if name not in wanted:
            wanted.add(name)
            left += PIECES[name].needs
    aliases = "".join(f"using {name} = {kind};\n" for name, kind in ALIASES.items())
    texts = [piece.text for name, piece in PIECES.items() if name in wanted]
    if not texts:
        return aliases
    return f"{aliases}namespace tl {{\n" + "\n".join(texts) + "\n}  // namespace tl\n"
