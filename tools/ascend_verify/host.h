// The `asc_` calls that generated sources for the Ascend 950 use, on the host: own declarations,
// written from how the calls are used. Memories are arrays, every core is a thread that does its
// calls in order, and each call is noted in a trace. Numbers are right if the source is; what pipes
// do at the same time is not modelled here, but read from the trace.
#pragma once

#include <algorithm>
#include <assert.h>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <type_traits>
#include <ucontext.h>
#include <vector>

#define __gm__
#define __ubuf__
#define __cbuf__
#define __ca__
#define __cb__
#define __cc__
#define __global__
#define __aicore__
#define __cube__
#define __vector__
#define __mix__(a, b)
#define __simt_vf__
#define __simd_vf__
#define __simt_callee__
#define __simd_callee__
#define __SIMT_DEVICE_FUNCTIONS_DECL__
#define __launch_bounds__(n)
#define __NPU_ARCH__ 3510
#define ASC_LOCK_BLOCK 0
#define ACL_RT_THREAD_LEVEL 0

using std::isfinite;
using std::isinf;
using std::isnan;
using std::max;
using std::min;
// SIMT API, functions of integers.
inline int32_t __popc(uint32_t x) { return __builtin_popcount(x); }
inline int32_t __clz(int32_t x) { return x ? __builtin_clz(x) : 32; }
inline int32_t __ffs(int32_t x) { return __builtin_ffs(x); }

// Numbers ------------------------------------------------------------------------------------------

using half = _Float16;

inline uint32_t bits_of(float x) { uint32_t u; std::memcpy(&u, &x, 4); return u; }
inline float float_of(uint32_t u) { float x; std::memcpy(&x, &u, 4); return x; }

struct bfloat16_t {
  uint16_t word = 0;
  bfloat16_t() = default;
  bfloat16_t(float x) {
    uint32_t u = bits_of(x);
    if (std::isnan(x)) { word = (u >> 16) | 64; return; }
    word = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
  }
  operator float() const { return float_of((uint32_t)word << 16); }
};

// A float of 8 bits: `EXP` bits of exponent, to the nearest even, saturating.
template <int EXP, bool INF> struct float8 {
  static constexpr int MAN = 7 - EXP, BIAS = (1 << (EXP - 1)) - 1;
  uint8_t word = 0;
  float8() = default;
  static float decode(uint8_t w) {
    int e = (w >> MAN) & ((1 << EXP) - 1), m = w & ((1 << MAN) - 1);
    float v = e ? std::ldexp(1.0f + (float)m / (1 << MAN), e - BIAS)
                : std::ldexp((float)m / (1 << MAN), 1 - BIAS);
    if (INF ? e == (1 << EXP) - 1 && m : e == (1 << EXP) - 1 && m == (1 << MAN) - 1) v = NAN;
    return w & 128 ? -v : v;
  }
  static constexpr uint8_t LARGEST = INF ? (((1 << EXP) - 2) << MAN) | ((1 << MAN) - 1) : 0x7e;
  float8(float x) {
    uint8_t sign = std::signbit(x) ? 128 : 0;
    if (std::isnan(x)) { word = sign | 0x7f; return; }
    float a = std::fabs(x);
    if (a >= decode(LARGEST)) { word = sign | LARGEST; return; }
    uint8_t low = 0, high = LARGEST;  // codes grow with their values
    while (high - low > 1) {
      uint8_t middle = (low + high) / 2;
      (decode(middle) <= a ? low : high) = middle;
    }
    float down = a - decode(low), up = decode(high) - a;
    word = sign | (down < up || (down == up && low % 2 == 0) ? low : high);
  }
  operator float() const { return decode(word); }
};
using float8_e4m3_t = float8<4, false>;
using float8_e5m2_t = float8<5, true>;
struct float8_e8m0_t { uint8_t word; };
using fp8_e8m0_t = float8_e8m0_t;
struct float4_e2m1x2_t { uint8_t word; };
struct float4_e1m2x2_t { uint8_t word; };

template <typename T> struct pair2 { T x, y; };
template <typename T> pair2<T> operator+(pair2<T> a, pair2<T> b) { return {T(a.x + b.x), T(a.y + b.y)}; }
template <typename T> pair2<T> operator-(pair2<T> a, pair2<T> b) { return {T(a.x - b.x), T(a.y - b.y)}; }
template <typename T> pair2<T> operator*(pair2<T> a, pair2<T> b) { return {T(a.x * b.x), T(a.y * b.y)}; }
using float2 = pair2<float>;
using half2 = pair2<half>;
using bfloat16x2_t = pair2<bfloat16_t>;
using uint2 = pair2<uint32_t>;
struct uint1 { uint32_t x; };
struct float8_e4m3x2_t { uint16_t word; };
struct float8_e5m2x2_t { uint16_t word; };
using __asc_fp8x2_storage_t = uint16_t;
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float2 __half22float2(half2 a) { return {(float)a.x, (float)a.y}; }
inline half2 __float22half2_rn(float2 a) { return {(half)a.x, (half)a.y}; }
inline float2 __bfloat1622float2(bfloat16x2_t a) { return {a.x, a.y}; }
inline bfloat16x2_t __float22bfloat162_rn(float2 a) { return {a.x, a.y}; }
enum asc_fp8_saturation { __ASC_NOSAT, __ASC_SATFINITE };
enum asc_fp8_kind { __ASC_E4M3, __ASC_E5M2 };
inline uint16_t __asc_cvt_float2_to_fp8x2(float2 a, asc_fp8_saturation, asc_fp8_kind kind) {
  if (kind == __ASC_E4M3) return float8_e4m3_t(a.x).word | float8_e4m3_t(a.y).word << 8;
  return float8_e5m2_t(a.x).word | float8_e5m2_t(a.y).word << 8;
}
inline float2 __e4m3x22float2(float8_e4m3x2_t a) {
  return {float8_e4m3_t::decode(a.word & 255), float8_e4m3_t::decode(a.word >> 8)};
}
inline float2 __e5m2x22float2(float8_e5m2x2_t a) {
  return {float8_e5m2_t::decode(a.word & 255), float8_e5m2_t::decode(a.word >> 8)};
}
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }

// Cores --------------------------------------------------------------------------------------------

enum pipe_t { PIPE_S, PIPE_V, PIPE_M, PIPE_MTE1, PIPE_MTE2, PIPE_MTE3, PIPE_FIX, PIPE_ALL };
inline const char *PIPE_NAMES[] = {"S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX", "ALL"};
enum event_t : int {};
enum asc_load_l2_cache_mode {};
enum asc_store_l2_cache_mode {};
enum asc_unit_flag_mode {};
enum asc_quant_mode {};
enum asc_relu_pre_mode {};
enum asc_dual_dst_mode {};
enum class asc_hf32_round_mode { NEAREST_ZERO, NEAREST_EVEN };
enum Space { UB, L1, L0A, L0B, L0C, GM };
inline const char *SPACE_NAMES[] = {"UB", "L1", "L0A", "L0B", "L0C"};
inline constexpr size_t SIZES[] = {248 << 10, 512 << 10, 64 << 10, 64 << 10, 256 << 10};

struct Group {
  std::vector<uint8_t> cube[5], vector[2], scales[2];  // scales: of the tiles in L0A and L0B
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, int> flags;  // raised between the cores of the group
  Group() {
    for (int s = L1; s <= L0C; ++s) cube[s].assign(SIZES[s], 0xff);
    for (auto &slots : scales) slots.assign(SIZES[L0A] / 16, 0xff);
    for (auto &ub : vector) ub.assign(SIZES[UB], 0xff);
  }
};

struct Core {
  Group *group;
  int block, kind, sub;  // kind 0: the cube core
  std::string atomic;
  bool halves = false;
  uint64_t pad = 0;
  float scale = NAN;  // by which a drain of the modes 9, 11, 13 and 24 multiplies
  int nz_rows = 0;
  std::map<std::string, int> flags;
  std::vector<std::string> trace;
  bool quiet = false;
};
inline thread_local Core *me;
struct Tensor { std::string name; uint8_t *data; size_t size; };
inline std::vector<Tensor> tensors;

#define block_idx (me->block)
#define ASC_IS_AIC (me->kind == 0)
#define ASC_IS_AIV (me->kind == 1)
inline int32_t asc_get_sub_block_id() { return me->sub; }
inline void asc_init() {}

[[noreturn]] inline void fail(const std::string &why) {
  std::fprintf(stderr, "%s %d of block %d: %s\n", me->kind ? "vector core" : "cube core", me->sub,
               me->block, why.c_str());
  std::_Exit(3);
}

inline uint8_t *memory(Space s, int sub) {
  return s == UB ? me->group->vector[sub].data() : me->group->cube[s].data();
}
template <typename T> T *host_place(Space s, size_t offset) { return (T *)(memory(s, me->sub) + offset); }

// Where a pointer points: "UB+1024", "A+64"; sizes and ends are checked by whoever asks.
inline std::string place(const void *pointer) {
  auto *p = (const uint8_t *)pointer;
  for (int s = UB; s <= L0C; ++s) {
    const uint8_t *base = memory((Space)s, me->sub);
    if (p >= base && p <= base + SIZES[s]) return std::string(SPACE_NAMES[s]) + "+" + std::to_string(p - base);
  }
  for (auto &t : tensors)
    if (p >= t.data && p <= t.data + t.size) return t.name + "+" + std::to_string(p - t.data);
  fail("a pointer into no memory");
}
template <typename T> std::string shown(T x) {
  if constexpr (std::is_pointer_v<T>) return place((const void *)x);
  else if constexpr (std::is_enum_v<T>) return std::to_string((long long)x);
  else return std::to_string((long long)x);
}
template <typename... A> void note(const char *name, A... args) {
  if (me->quiet) return;
  std::string text = name;
  ((text += " " + shown(args)), ...);
  me->trace.push_back(text);
}
inline void inside(const void *p, long long bytes) {
  auto *q = (const uint8_t *)p;
  for (int s = UB; s <= L0C; ++s) {
    const uint8_t *base = memory((Space)s, me->sub);
    if (q >= base && q < base + SIZES[s]) {
      if (q + bytes > base + SIZES[s]) fail("an access behind the end of " + std::string(SPACE_NAMES[s]));
      return;
    }
  }
  for (auto &t : tensors)
    if (q >= t.data && q < t.data + t.size) {
      if (q + bytes > t.data + t.size) fail("an access behind the end of " + t.name);
      return;
    }
  if (bytes > 0) fail("an access outside of every memory");
}

// Order --------------------------------------------------------------------------------------------

inline std::string word(const char *what, pipe_t a, pipe_t b, int id) {
  return std::string(what) + " " + PIPE_NAMES[a] + " " + PIPE_NAMES[b] + " " + std::to_string(id);
}
inline void asc_sync_notify(pipe_t a, pipe_t b, event_t id) {
  me->trace.push_back(word("notify", a, b, id));
  ++me->flags[word("", a, b, id)];
}
inline void asc_sync_wait(pipe_t a, pipe_t b, event_t id) {
  me->trace.push_back(word("wait", a, b, id));
  if (--me->flags[word("", a, b, id)] < 0) fail("waits for a flag that is not raised");
}
inline void asc_sync() { me->trace.push_back("barrier ALL"); }
inline void asc_sync_pipe(pipe_t p) { me->trace.push_back(std::string("barrier ") + PIPE_NAMES[p]); }
inline void asc_lock(pipe_t p, int id, int) {
  me->trace.push_back(std::string("lock ") + PIPE_NAMES[p] + " " + std::to_string(id));
}
inline void asc_unlock(pipe_t p, int id, int) {
  me->trace.push_back(std::string("unlock ") + PIPE_NAMES[p] + " " + std::to_string(id));
}
inline void asc_threadfence() {}

inline void raise(const std::string &flag) {
  std::lock_guard<std::mutex> held(me->group->mutex);
  ++me->group->flags[flag];
  me->group->changed.notify_all();
}
inline void take(const std::string &flag) {
  std::unique_lock<std::mutex> held(me->group->mutex);
  auto &count = me->group->flags[flag];
  if (!me->group->changed.wait_for(held, std::chrono::seconds(5), [&] { return count > 0; }))
    fail("waits for a cross-core flag that nobody raises: " + flag);
  --count;
}
inline void cross(const char *what, pipe_t p, int id) {
  me->trace.push_back(std::string(what) + " " + PIPE_NAMES[p] + " " + std::to_string(id));
}
// Between the cube core and one vector core: on the cube core id + 16 means vector core 1.
inline std::string intra(int id, bool to_vector) {
  int sub = me->kind ? me->sub : id / 16;
  return (to_vector ? "to vector " : "to cube ") + std::to_string(sub) + " " + std::to_string(id % 16);
}
inline void asc_sync_intra_arrive(pipe_t p, int id) { cross("arrive", p, id); raise(intra(id, !me->kind)); }
inline void asc_sync_intra_wait(pipe_t p, int id) { take(intra(id, me->kind)); cross("await", p, id); }
// Between the cube core and both vector cores.
inline void asc_sync_block_arrive(pipe_t p, int id) {
  cross("arrive2", p, id);
  if (me->kind) raise(intra(id, false));
  else for (int sub : {0, 1}) raise(intra(id + 16 * sub, true));
}
inline void asc_sync_block_wait(pipe_t p, int id) {
  if (me->kind) take(intra(id, true));
  else for (int sub : {0, 1}) take(intra(id + 16 * sub, false));
  cross("await2", p, id);
}

// Modes --------------------------------------------------------------------------------------------

#define ATOMIC(op, type) inline void asc_set_atomic_##op##_##type() { me->atomic = #op; me->halves = std::string(#type) == "float16"; note("set_atomic_" #op "_" #type); }
ATOMIC(add, float) ATOMIC(add, float16) ATOMIC(max, float) ATOMIC(max, float16) ATOMIC(min, float)
#undef ATOMIC
inline void asc_set_atomic_none() { me->atomic.clear(); note("set_atomic_none"); }
inline void asc_set_copy_pad_val(uint64_t bits) { me->pad = bits; note("set_pad", bits); }

// Copies -------------------------------------------------------------------------------------------

inline std::mutex atomics;
// Store an element, or what the atomic mode makes of it and the one that is there.
template <typename T> void put(T *d, T x) {
  if (me->atomic.empty()) *d = x;
  else if (me->atomic == "add") *d = T(*d + x);
  else *d = me->atomic == "max" ? max(*d, x) : min(*d, x);
}
template <typename T>
void asc_copy_gm2ub_align(T *dst, T *src, int rows, int bytes, int left, int right, int padded,
                          asc_load_l2_cache_mode cache, long long src_pitch, long long dst_pitch) {
  note("gm2ub", dst, src, rows, bytes, left, right, padded, cache, src_pitch, dst_pitch);
  for (int r = 0; r < rows; ++r) {
    auto *d = (uint8_t *)dst + r * dst_pitch, *s = (uint8_t *)src + r * src_pitch;
    inside(d, bytes + right * (int)sizeof(T)); inside(s, bytes);
    std::memcpy(d, s, bytes);
    if (padded) for (int k = 0; k < right; ++k) std::memcpy(d + bytes + k * sizeof(T), &me->pad, sizeof(T));
  }
}
inline void asc_copy_ub2gm_align(uint8_t *dst, uint8_t *src, int rows, int bytes,
                                 asc_store_l2_cache_mode cache, long long dst_pitch, long long src_pitch) {
  note("ub2gm", dst, src, rows, bytes, cache, dst_pitch, src_pitch);
  std::lock_guard<std::mutex> held(atomics);
  for (int r = 0; r < rows; ++r) {
    uint8_t *d = dst + r * dst_pitch, *s = src + r * src_pitch;
    inside(d, bytes); inside(s, bytes);
    if (me->atomic.empty()) { std::memcpy(d, s, bytes); continue; }
    // The call does not say the dtype; the mode does.
    if (me->halves) for (int k = 0; k < bytes / 2; ++k) put((half *)d + k, ((half *)s)[k]);
    else for (int k = 0; k < bytes / 4; ++k) put((float *)d + k, ((float *)s)[k]);
  }
}
inline void asc_set_gm2l1_nz_para(int, int, uint16_t nz_rows, int) { me->nz_rows = nz_rows; note("set_nz_rows", nz_rows); }
template <typename T> void to_nz(T *dst, T *src, long long pitch, int rows, int columns, bool turned) {
  const int c0 = 32 / sizeof(T);
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c) {
      T *s = turned ? (T *)((uint8_t *)src + c * pitch) + r : (T *)((uint8_t *)src + r * pitch) + c;
      T *d = dst + (c / c0) * me->nz_rows * c0 + r * c0 + c % c0;
      inside(s, sizeof(T)); inside(d, sizeof(T));
      *d = *s;
    }
}
template <typename T>
void asc_copy_gm2l1_nd2nz(T *dst, T *src, long long pitch, asc_load_l2_cache_mode cache, int rows, int columns, int, int) {
  note("nd2nz", dst, src, pitch, cache, rows, columns);
  to_nz(dst, src, pitch, rows, columns, false);
}
template <typename T>
void asc_copy_gm2l1_dn2nz(T *dst, T *src, long long pitch, asc_load_l2_cache_mode cache, int rows, int columns, int, int) {
  note("dn2nz", dst, src, pitch, cache, rows, columns);
  to_nz(dst, src, pitch, rows, columns, true);
}
struct asc_fill_l1_params { uint64_t repeat, blk_num, dst_gap; };
template <typename T> void asc_fill_l1(T *dst, uint32_t value, asc_fill_l1_params p) {
  static_assert(std::is_same_v<T, uint16_t> || std::is_same_v<T, uint32_t>);
  note("fill_l1", dst, value, p.repeat, p.blk_num, p.dst_gap);
  const uint64_t block = 32 / sizeof(T);
  for (uint64_t r = 0; r < p.repeat; ++r)
    for (uint64_t k = 0; k < p.blk_num * block; ++k) {
      T *d = dst + r * (p.blk_num + p.dst_gap) * block + k;
      inside(d, sizeof(T));
      *d = (T)value;
    }
}
inline void asc_copy_ub2l1(void *dst, void *src, int bursts, int blocks, int src_gap, int dst_gap) {
  note("ub2l1", dst, src, bursts, blocks, src_gap, dst_gap);
  for (int b = 0; b < bursts; ++b) {
    uint8_t *d = (uint8_t *)dst + (long long)b * (blocks + dst_gap) * 32;
    uint8_t *s = (uint8_t *)src + (long long)b * (blocks + src_gap) * 32;
    inside(d, blocks * 32); inside(s, blocks * 32);
    std::memcpy(d, s, blocks * 32);
  }
}
// Fractals of 16 rows of 32 bytes: `m` of them down, `k` across; those down follow each other.
template <typename T>
void load_l0(const char *name, T *dst, T *src, int m0, int k0, int m, int k, int src_rows, int dst_rows, bool turned) {
  const int c0 = 32 / sizeof(T), one = 16 * c0;
  note(name, dst, src + (m0 + k0 * src_rows) * one, m, k, src_rows, dst_rows);
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < k; ++j) {
      T *s = src + ((m0 + i) + (k0 + j) * src_rows) * one;
      T *d = dst + (turned ? j + i * dst_rows : i + j * dst_rows) * one;
      inside(s, 512); inside(d, 512);
      for (int r = 0; r < 16; ++r)
        for (int c = 0; c < c0; ++c) turned ? d[c * 16 + r] = s[r * c0 + c] : d[r * c0 + c] = s[r * c0 + c];
    }
}
#define LOAD(name, turned) template <typename T> void asc_copy_##name(T *dst, T *src, int m0, int k0, int m, int k, int rows, int to) { load_l0(#name, dst, src, m0, k0, m, k, rows, to, turned); }
LOAD(l12l0a, false) LOAD(l12l0b, false) LOAD(l12l0a_transpose, true) LOAD(l12l0b_transpose, true)
#undef LOAD
template <typename C, typename T>
void asc_mmad(C *c, T *a, T *b, int m, int k, int n, int unit, int gemv, int from_bias, bool init) {
  note("mmad", c, a, b, m, k, n, unit, gemv, from_bias, init);
  const int c0 = 32 / sizeof(T), mb = (m + 15) / 16, nb = (n + 15) / 16;
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      C *o = c + (j / 16) * mb * 256 + i * 16 + j % 16;
      inside(o, sizeof(C));
      C total = init ? C(0) : *o;
      for (int x = 0; x < k; ++x)
        total += (C)a[(x / c0) * mb * 16 * c0 + i * c0 + x % c0] * (C)b[(x / c0) * nb * 16 * c0 + j * c0 + x % c0];
      *o = total;
    }
}
// Products of MX tiles. The scales of a tile are at a sixteenth of its address: 16 rows of two.
inline uint8_t *slot_of(void *tile, Space s) {
  size_t at = (uint8_t *)tile - memory(s, 0);
  if (at >= SIZES[s]) fail("scales of a tile in another memory");
  return me->group->scales[s - L0A].data() + at / 16;
}
inline void load_scales(const char *name, Space s, uint64_t dst, fp8_e8m0_t *src, int m0, int k0, int m, int k, int from, int to) {
  auto *tile = (uint8_t *)(dst * 16);
  note(name, tile, src + (m0 * from + k0) * 32, m, k, from, to);
  uint8_t *slot = slot_of(tile, s);
  for (int i = 0; i < m; ++i) {
    inside(src + ((m0 + i) * from + k0) * 32, k * 32);
    std::memcpy(slot + i * to * 32, src + ((m0 + i) * from + k0) * 32, k * 32);
  }
}
inline void asc_copy_l12l0a_mx(uint64_t dst, fp8_e8m0_t *src, int m0, int k0, int m, int k, int from, int to) { load_scales("l12l0a_mx", L0A, dst, src, m0, k0, m, k, from, to); }
inline void asc_copy_l12l0b_mx(uint64_t dst, fp8_e8m0_t *src, int m0, int k0, int m, int k, int from, int to) { load_scales("l12l0b_mx", L0B, dst, src, m0, k0, m, k, from, to); }
template <typename T> double element_of(T *x, int k) { return (float)x[k]; }
inline double element_of(float4_e2m1x2_t *x, int k) {
  const double values[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  int code = x[k / 2].word >> (k % 2 * 4) & 15;
  return code & 8 ? -values[code & 7] : values[code];
}
template <typename T> double scaled(T *x, uint8_t *slot, int row, int k, int rows, int depth) {
  const int c0 = std::is_same_v<T, float4_e2m1x2_t> ? 64 : 32, mb = (rows + 15) / 16;
  uint8_t code = slot[row / 16 * (depth / 64) * 32 + k / 64 * 32 + row % 16 * 2 + k / 32 % 2];
  double factor = code == 255 ? NAN : std::ldexp(1.0, code - 127);
  return element_of(x, (k / c0) * mb * 16 * c0 + row * c0 + k % c0) * factor;
}
template <typename C, typename T>
void asc_mmad_mx(C *c, T *a, T *b, int m, int k, int n, int unit, int gemv, int from_bias, bool init) {
  note("mmad_mx", c, a, b, m, k, n, unit, gemv, from_bias, init);
  const int mb = (m + 15) / 16;
  uint8_t *sa = slot_of(a, L0A), *sb = slot_of(b, L0B);
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      C *o = c + (j / 16) * mb * 256 + i * 16 + j % 16;
      inside(o, sizeof(C));
      double total = 0;
      for (int x = 0; x < k; ++x) total += scaled(a, sa, i, x, m, k) * scaled(b, sb, j, x, n, k);
      *o = (init ? C(0) : *o) + (C)total;
    }
}
inline void asc_set_l0c_copy_prequant(uint64_t bits) { me->scale = float_of((uint32_t)bits); note("set_prequant", bits); }
inline void asc_set_l0c_copy_nz_para(int count, int, int) { note("set_l0c_nz", count); }
template <typename D, typename S>
void drain(D *dst, S *src, int columns, int rows, long long pitch, int src_rows, bool relu, bool scaled) {
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j) {
      S x = src[(j / 16) * src_rows * 16 + i * 16 + j % 16];
      D *d = dst + i * pitch + j;
      inside(d, sizeof(D));
      if (relu) x = max(x, S(0));
      if (!scaled) { put(d, (D)x); continue; }
      float y = (float)x * me->scale;
      if constexpr (std::is_integral_v<D>) put(d, (D)max(min(std::nearbyint(y), 127.0f), -128.0f));
      else put(d, (D)y);
    }
}
template <typename D, typename S>
void asc_copy_l0c2gm(D *dst, S *src, int columns, int rows, long long pitch, int src_rows, asc_store_l2_cache_mode cache,
                     asc_unit_flag_mode unit, asc_quant_mode quant, asc_relu_pre_mode relu, int, int, int, int) {
  note("l0c2gm", dst, src, columns, rows, pitch, src_rows, cache, unit, quant, relu);
  std::lock_guard<std::mutex> held(atomics);
  drain(dst, src, columns, rows, pitch, src_rows, (int)relu, quant == 9 || quant == 11 || quant == 13 || quant == 24);
}
// Into the UB of a vector core; with two destinations, half of the rows (1) or columns (2) to each.
template <typename T>
void asc_copy_l0c2ub(T *dst, T *src, int columns, int rows, long long pitch, int src_rows, int sub, asc_dual_dst_mode dual,
                     asc_unit_flag_mode unit, asc_quant_mode quant, asc_relu_pre_mode relu, int, int, int, int) {
  const size_t offset = (uint8_t *)dst - memory(UB, 0);
  const int down = dual == 1 ? rows / 2 : rows, across = dual == 2 ? columns / 2 : columns;
  for (int s = dual ? 0 : sub; s < (dual ? 2 : sub + 1); ++s) {
    T *from = src + (s && dual == 1 ? down * 16 : s && dual == 2 ? across / 16 * src_rows * 16 : 0);
    note("l0c2ub", dst, from, across, down, pitch, src_rows, s, unit, quant, relu);
    for (int i = 0; i < down; ++i)
      for (int j = 0; j < across; ++j) {
        T x = from[(j / 16) * src_rows * 16 + i * 16 + j % 16];
        ((T *)(me->group->vector[s].data() + offset))[i * pitch + j] = (int)relu ? max(x, T(0)) : x;
      }
  }
}

// SIMT functions: threads as coroutines, which take turns where they meet ---------------------------

namespace cce {
struct dim3 { int x, y, z; dim3(int x = 1, int y = 1, int z = 1) : x(x), y(y), z(z) {} };
}  // namespace cce
struct Threads {
  std::vector<ucontext_t> contexts;
  std::vector<std::vector<char>> stacks;
  std::vector<int> met;  // 0 runs, 1 at the barrier of all, 2 at that of the warp, 3 has ended
  std::vector<uint64_t> value;
  ucontext_t main;
  int now = 0;
  cce::dim3 shape;
  std::function<void()> body;
};
inline thread_local Threads *threads;
inline thread_local cce::dim3 threadIdx;
inline void meet(int how) {
  int mine = threads->now;
  threads->met[mine] = how;
  swapcontext(&threads->contexts[mine], &threads->main);
}
inline void asc_syncthreads() { meet(1); }
inline void asc_syncwarp() { meet(2); }
inline void thread_main() { threads->body(); meet(3); }
inline void run_threads(cce::dim3 shape, std::function<void()> body) {
  const int count = shape.x * shape.y * shape.z;
  Threads t;
  t.contexts.resize(count); t.met.assign(count, 0); t.value.assign(count, 0);
  t.shape = shape; t.body = body;
  threads = &t;
  for (int k = 0; k < count; ++k) {
    t.stacks.emplace_back(64 << 10);
    getcontext(&t.contexts[k]);
    t.contexts[k].uc_stack.ss_sp = t.stacks[k].data();
    t.contexts[k].uc_stack.ss_size = t.stacks[k].size();
    t.contexts[k].uc_link = &t.main;
    makecontext(&t.contexts[k], thread_main, 0);
  }
  for (bool left = true; left;) {
    bool ran = false;
    left = false;
    for (int k = 0; k < count; ++k) {
      if (t.met[k]) continue;
      ran = true;
      t.now = k;
      threadIdx = cce::dim3(k % shape.x, k / shape.x % shape.y, k / shape.x / shape.y);
      swapcontext(&t.main, &t.contexts[k]);
    }
    auto open = [&](int first, int last, int how) {
      bool all = true, some = false;
      for (int k = first; k < last; ++k) { all &= t.met[k] == how || t.met[k] == 3; some |= t.met[k] == how; }
      if (all && some) for (int k = first; k < last; ++k) if (t.met[k] == how) { t.met[k] = 0; ran = true; }
    };
    for (int w = 0; w < count; w += 32) open(w, min(w + 32, count), 2);
    open(0, count, 1);
    for (int k = 0; k < count; ++k) left |= t.met[k] != 3;
    if (left && !ran) fail("threads wait for each other at different places");
  }
}
template <typename T> T exchange(T x, int lane) {
  int mine = threads->now, first = mine / 32 * 32;
  std::memcpy(&threads->value[mine], &x, sizeof(T));
  meet(2);
  T out;
  int other = first + lane;
  std::memcpy(&out, &threads->value[lane < 0 || lane >= 32 || other >= (int)threads->value.size() ? mine : other], sizeof(T));
  meet(2);
  return out;
}
template <typename T> T asc_shfl_xor(T x, int by) { return exchange(x, (threads->now % 32) ^ by); }
template <typename T> T asc_shfl_up(T x, int by) { return exchange(x, threads->now % 32 - by); }
template <typename T> T asc_shfl_down(T x, int by) { return exchange(x, threads->now % 32 + by); }
template <typename T> T asc_shfl(T x, int lane) { return exchange(x, lane); }
template <typename T, typename F> T over_warp(T x, F f) {
  for (int by = 1; by < 32; by *= 2) x = f(x, asc_shfl_xor(x, by));
  return x;
}
template <typename T> T asc_reduce_add(T x) { return over_warp(x, [](T a, T b) { return a + b; }); }
template <typename T> T asc_reduce_max(T x) { return over_warp(x, [](T a, T b) { return max(a, b); }); }
template <typename T> T asc_reduce_min(T x) { return over_warp(x, [](T a, T b) { return min(a, b); }); }
template <auto F, typename... A> void asc_vf_call(cce::dim3 shape, A... args) {
  note("simt", shape.x, shape.y, shape.z);
  run_threads(shape, [=] { F(args...); });
}

// SIMD functions: registers of 256 bytes -------------------------------------------------------------

template <typename T> struct reg { T v[256 / sizeof(T)]; };
struct vector_bool { bool b[256]; };
using vector_f32 = reg<float>; using vector_f16 = reg<half>; using vector_bf16 = reg<bfloat16_t>;
using vector_s8 = reg<int8_t>; using vector_s16 = reg<int16_t>; using vector_s32 = reg<int32_t>;
using vector_s64 = reg<int64_t>; using vector_u8 = reg<uint8_t>; using vector_u16 = reg<uint16_t>;
using vector_u32 = reg<uint32_t>; using vector_u64 = reg<uint64_t>;
using vector_uint16_t = vector_u16; using vector_uint32_t = vector_u32;
using vector_f8e4m3 = reg<float8_e4m3_t>; using vector_f8e5m2 = reg<float8_e5m2_t>;
using vector_f8e8m0 = reg<float8_e8m0_t>;
using vector_f4e2m1x2 = reg<float4_e2m1x2_t>; using vector_f4e1m2x2 = reg<float4_e1m2x2_t>;
enum pattern_t { PAT_ALL, PAT_ALLF, PAT_H, PAT_Q, PAT_M3, PAT_M4, PAT_VL1, PAT_VL2, PAT_VL3, PAT_VL4, PAT_VL8, PAT_VL16, PAT_VL32, PAT_VL64, PAT_VL128 };
struct zeroing_t {}; inline constexpr zeroing_t MODE_ZEROING{};
inline bool operator==(zeroing_t, zeroing_t) { return true; }
enum half_t { LOWER, HIGHER }; enum pos_t { POS_LOWEST, POS_HIGHEST }; enum order_t { INC_ORDER, DEC_ORDER };
enum bin_t { Bin_N0, Bin_N1 };
template <typename T> constexpr int lanes = 256 / sizeof(T);

inline vector_bool masked(int size, pattern_t p) {
  const int counts[] = {256, 0, 128 / size, 64 / size, 0, 0, 1, 2, 3, 4, 8, 16, 32, 64, 128};
  vector_bool m{};
  for (int k = 0; k < 256 / size; ++k)
    m.b[k * size] = p == PAT_M3 ? k % 3 == 0 : p == PAT_M4 ? k % 4 == 0 : k < counts[p];
  return m;
}
inline vector_bool first(int size, uint32_t n) {
  vector_bool m{};
  for (uint32_t k = 0; k < 256u / size; ++k) m.b[k * size] = k < n;
  return m;
}
inline vector_bool asc_create_mask_b8(pattern_t p) { note("mask8", p); return masked(1, p); }
inline vector_bool asc_create_mask_b16(pattern_t p) { note("mask16", p); return masked(2, p); }
inline vector_bool asc_create_mask_b32(pattern_t p) { note("mask32", p); return masked(4, p); }
inline vector_bool asc_update_mask_b8(uint32_t n) { note("update8", n); return first(1, n); }
inline vector_bool asc_update_mask_b16(uint32_t n) { note("update16", n); return first(2, n); }
inline vector_bool asc_update_mask_b32(uint32_t n) { note("update32", n); return first(4, n); }

template <typename T> void asc_loadalign(reg<T> &d, T *src, int offset) {
  note("loadalign", src + offset);
  inside(src + offset, 256);
  std::memcpy(d.v, src + offset, 256);
}
template <typename T> void asc_loadalign_brc_elem(reg<T> &d, T *src, int offset) {
  note("loadalign_brc", src + offset);
  for (auto &x : d.v) x = src[offset];
}
template <typename T> void asc_storealign(T *dst, reg<T> x, int offset, vector_bool m) {
  note("storealign", dst + offset);
  for (int k = 0; k < lanes<T>; ++k)
    if (m.b[k * sizeof(T)]) { inside(dst + offset + k, sizeof(T)); dst[offset + k] = x.v[k]; }
}
template <typename T> void asc_storealign_1st(T *dst, reg<T> x, int offset) {
  note("storealign_1st", dst + offset);
  dst[offset] = x.v[0];
}
// Addresses that move on: by elements; a store of blocks, by the low half of its stride in blocks.
template <typename T> void asc_loadalign_postupdate(reg<T> &d, T *&src, int step) {
  note("loadalign_postupdate", src, step);
  inside(src, 256);
  std::memcpy(d.v, src, 256);
  src += step;
}
template <typename T> void blocks_apart(T *dst, reg<T> x, uint16_t apart, vector_bool m) {
  for (int k = 0; k < lanes<T>; ++k) {
    T *d = dst + k / (32 / sizeof(T)) * apart * (32 / sizeof(T)) + k % (32 / sizeof(T));
    if (m.b[k * sizeof(T)]) { inside(d, sizeof(T)); *d = x.v[k]; }
  }
}
template <typename T> void asc_storealign(T *dst, reg<T> x, uint16_t apart, uint16_t next, vector_bool m) {
  note("storealign_blocks", dst, apart, next);
  blocks_apart(dst, x, apart, m);
}
template <typename T> void asc_storealign_postupdate(T *&dst, reg<T> x, uint16_t apart, uint16_t next, vector_bool m) {
  note("storealign_blocks_postupdate", dst, apart, next);
  blocks_apart(dst, x, apart, m);
  dst += next * (32 / sizeof(T));
}
struct address_t { int elements; };
inline address_t asc_update_addr_reg_b8(int n) { return {n}; }
inline address_t asc_update_addr_reg_b16(int n) { return {n}; }
inline address_t asc_update_addr_reg_b32(int n) { return {n}; }
template <typename T> void asc_loadalign_deintlv(reg<T> &a, reg<T> &b, T *src, address_t by = {0}) {
  src += by.elements;
  note("loadalign_deintlv", src);
  inside(src, 512);
  for (int k = 0; k < lanes<T>; ++k) a.v[k] = src[2 * k], b.v[k] = src[2 * k + 1];
}
enum dual_t { DINTLV_B8, DINTLV_B16, DINTLV_B32 };
enum post_t { POST_UPDATE };
// Predicates in UB: 256 bits; 128 that count twice; every second of 512; every second of 256.
inline void load_bits(const char *name, vector_bool &d, uint32_t *src, int bytes, int twice, int step) {
  note(name, src);
  inside(src, bytes);
  for (int k = 0; k < 256; ++k) { int bit = k / twice * step; d.b[k] = ((uint8_t *)src)[bit / 8] >> bit % 8 & 1; }
}
inline void asc_loadalign(vector_bool &d, uint32_t *src, int) { load_bits("loadalign_bits", d, src, 32, 1, 1); }
inline void asc_loadalign_upsample(vector_bool &d, uint32_t *src, int) { load_bits("loadalign_upsample", d, src, 16, 2, 1); }
inline void asc_loadalign_downsample(vector_bool &d, uint32_t *src, int) { load_bits("loadalign_downsample", d, src, 64, 1, 2); }
inline void store_bits(const char *name, uint32_t *dst, vector_bool x, int step) {
  note(name, dst);
  inside(dst, 32 / step);
  for (int k = 0; k < 32 / step; ++k) ((uint8_t *)dst)[k] = 0;
  for (int k = 0; k < 256; k += step) ((uint8_t *)dst)[k / step / 8] |= x.b[k] << k / step % 8;
}
inline void asc_storealign(uint32_t *dst, vector_bool x, int) { store_bits("storealign_bits", dst, x, 1); }
inline void asc_storealign_pack(uint32_t *dst, vector_bool x, int) { store_bits("storealign_pack", dst, x, 2); }

template <typename T, typename F> void each(const char *name, reg<T> &d, vector_bool m, F f) {
  note(name);
  for (int k = 0; k < lanes<T>; ++k) d.v[k] = m.b[k * sizeof(T)] ? T(f(k)) : T();
}
#define TWO(name, op) \
  template <typename T> void asc_##name(reg<T> &d, reg<T> a, reg<T> b, vector_bool m) { each(#name, d, m, [&](int k) { T x = a.v[k], y = b.v[k]; return op; }); } \
  template <typename T, typename S> void asc_##name##_scalar(reg<T> &d, reg<T> a, S s, vector_bool m) { each(#name "_scalar", d, m, [&](int k) { T x = a.v[k], y = T(s); return op; }); }
TWO(add, x + y) TWO(sub, x - y) TWO(mul, x * y) TWO(div, x / y) TWO(max, max(x, y)) TWO(min, min(x, y))
#undef TWO
#define ONE(name, op) template <typename T> void asc_##name(reg<T> &d, reg<T> a, vector_bool m) { each(#name, d, m, [&](int k) { float x = a.v[k]; return op; }); }
ONE(exp, std::exp(x)) ONE(ln, std::log(x)) ONE(sqrt, std::sqrt(x)) ONE(abs, std::fabs(x)) ONE(neg, -x) ONE(relu, max(x, 0.0f))
#undef ONE
#define LOGIC(name, op) inline void asc_##name(vector_bool &d, vector_bool x, vector_bool y, vector_bool m) { note(#name); for (int k = 0; k < 256; ++k) d.b[k] = op; }
LOGIC(and, x.b[k] && y.b[k] && m.b[k]) LOGIC(or, (x.b[k] || y.b[k]) && m.b[k]) LOGIC(xor, (x.b[k] ^ y.b[k]) && m.b[k])
LOGIC(select, m.b[k] ? x.b[k] : y.b[k])
#undef LOGIC
inline void asc_not(vector_bool &d, vector_bool x, vector_bool m) { note("not"); for (int k = 0; k < 256; ++k) d.b[k] = !x.b[k] && m.b[k]; }
#define BITS(name, op) template <typename T> void asc_##name(reg<T> &d, reg<T> a, reg<T> b, vector_bool m) { each(#name, d, m, [&](int k) { return T(a.v[k] op b.v[k]); }); }
BITS(and, &) BITS(or, |) BITS(xor, ^)
#undef BITS
template <typename T> void asc_select(reg<T> &d, reg<T> a, reg<T> b, vector_bool m) {
  note("select");
  for (int k = 0; k < lanes<T>; ++k) d.v[k] = m.b[k * sizeof(T)] ? a.v[k] : b.v[k];
}
#define COMPARE(name, op) \
  template <typename T> void asc_##name(vector_bool &d, reg<T> a, reg<T> b, vector_bool m) { note(#name); for (int k = 0; k < lanes<T>; ++k) { T x = a.v[k], y = b.v[k]; d.b[k * sizeof(T)] = m.b[k * sizeof(T)] && (op); } } \
  template <typename T, typename S> void asc_##name##_scalar(vector_bool &d, reg<T> a, S s, vector_bool m) { note(#name "_scalar"); for (int k = 0; k < lanes<T>; ++k) { T x = a.v[k], y = T(s); d.b[k * sizeof(T)] = m.b[k * sizeof(T)] && (op); } }
COMPARE(eq, x == y) COMPARE(ne, x != y) COMPARE(lt, x < y) COMPARE(le, x <= y) COMPARE(gt, x > y) COMPARE(ge, x >= y)
#undef COMPARE
template <typename T, typename S> void asc_duplicate_scalar(reg<T> &d, S s, vector_bool m) {
  each("duplicate_scalar", d, m, [&](int) { return T(s); });
}
template <typename T, typename F> void folded(const char *name, reg<T> &d, reg<T> a, vector_bool m, F f) {
  note(name);
  d = reg<T>{};
  bool any = false;
  for (int k = 0; k < lanes<T>; ++k)
    if (m.b[k * sizeof(T)]) { d.v[0] = any ? T(f(d.v[0], a.v[k])) : a.v[k]; any = true; }
}
template <typename T> void asc_reduce_sum(reg<T> &d, reg<T> a, vector_bool m) { folded("reduce_sum", d, a, m, [](T x, T y) { return x + y; }); }
template <typename T> void asc_reduce_max(reg<T> &d, reg<T> a, vector_bool m) { folded("reduce_max", d, a, m, [](T x, T y) { return max(x, y); }); }
template <typename T> void asc_reduce_min(reg<T> &d, reg<T> a, vector_bool m) { folded("reduce_min", d, a, m, [](T x, T y) { return min(x, y); }); }
// What keeps the elements of its first operand that it does not give.
struct merging_t {}; inline constexpr merging_t MODE_MERGING{};
template <typename T, typename F> void merged(const char *name, reg<T> &d, int count, vector_bool m, F f) {
  note((std::string(name) + "_merging").c_str());
  reg<T> made{};
  me->quiet = true; f(made); me->quiet = false;
  for (int k = 0; k < lanes<T>; ++k) if (count ? k < count : m.b[k * sizeof(T)]) d.v[k] = made.v[k];
}
#define MERGED_TWO(op, call) template <typename T, typename S> void op(reg<T> &d, reg<T> a, S b, vector_bool m, merging_t) { merged(#op, d, 0, m, [&](reg<T> &x) { call(x, a, b, m); }); }
#define MERGED_ONE(op, call, count) template <typename T> void op(reg<T> &d, reg<T> a, vector_bool m, merging_t) { merged(#op, d, count, m, [&](reg<T> &x) { call(x, a, m); }); }
MERGED_TWO(vadd, asc_add) MERGED_TWO(vsub, asc_sub) MERGED_TWO(vmul, asc_mul) MERGED_TWO(vmax, asc_max) MERGED_TWO(vmin, asc_min)
MERGED_TWO(vadds, asc_add_scalar) MERGED_TWO(vmuls, asc_mul_scalar) MERGED_TWO(vmaxs, asc_max_scalar) MERGED_TWO(vmins, asc_min_scalar)
MERGED_ONE(vabs, asc_abs, 0) MERGED_ONE(vneg, asc_neg, 0) MERGED_ONE(vrelu, asc_relu, 0) MERGED_ONE(vexp, asc_exp, 0)
MERGED_ONE(vcadd, asc_reduce_sum, 1)
#undef MERGED_TWO
#undef MERGED_ONE
template <typename T, typename S> void vdup(reg<T> &d, S s, vector_bool m, merging_t) { merged("vdup", d, 0, m, [&](reg<T> &x) { asc_duplicate_scalar(x, s, m); }); }
template <typename T> void vmula(reg<T> &d, reg<T> a, reg<T> b, vector_bool m, merging_t) {
  note("vmula_merging");
  for (int k = 0; k < lanes<T>; ++k) if (m.b[k * sizeof(T)]) d.v[k] = T(std::fma((double)a.v[k], (double)b.v[k], (double)d.v[k]));
}
// Names that the templates of the other side mention, and no kernel here reaches.
#define MISSING(name) template <typename... A> void name(A &&...) { fail(#name " is not modelled"); }
template <typename T, typename... A> void vmula(reg<T> &, reg<T>, reg<T>, vector_bool, zeroing_t) { fail("vmula is not modelled"); }
MISSING(vcvt) MISSING(vmadd) MISSING(asc_mem_bar)
MISSING(asc_cumulative_histogram_bin0) MISSING(asc_cumulative_histogram_bin1)
MISSING(asc_frequency_histogram_bin0) MISSING(asc_frequency_histogram_bin1)
template <typename T, typename... A> void asc_storealign_pack(T *, A...) { fail("asc_storealign_pack is not modelled"); }
MISSING(asc_storealign_pack_quarter)
template <typename T, typename... A> void asc_loadalign_upsample(reg<T> &, A...) { fail("asc_loadalign_upsample is not modelled"); }
template <typename T, typename... A> void asc_loadalign_downsample(reg<T> &, A...) { fail("asc_loadalign_downsample is not modelled"); }
MISSING(asc_pack_to_high) MISSING(asc_pack_to_low) MISSING(asc_unpack_upper) MISSING(asc_unpack_lower)
MISSING(asc_intlv_b8) MISSING(asc_intlv_b16) MISSING(asc_intlv_b32)
MISSING(asc_deintlv_b8) MISSING(asc_deintlv_b16) MISSING(asc_deintlv_b32)
#undef MISSING

// Launch -------------------------------------------------------------------------------------------

enum Kinds { CUBE = 1, VECTOR = 2, MIXED = 3 };
inline void launch(int blocks, Kinds kinds, std::function<void()> kernel) {
  for (int block = 0; block < blocks; ++block) {
    Group group;
    std::vector<Core> cores;
    if (kinds & CUBE) cores.push_back({&group, block, 0, 0});
    for (int sub = 0; kinds & VECTOR && sub < (kinds == MIXED ? 2 : 1); ++sub) cores.push_back({&group, block, 1, sub});
    std::vector<std::thread> running;
    for (auto &core : cores) running.emplace_back([&] { me = &core; kernel(); });
    for (auto &t : running) t.join();
    for (auto &core : cores) {
      me = &core;
      for (auto &[flag, count] : core.flags) if (count) fail("leaves a flag raised:" + flag);
      std::printf("core %d %s %d\n", block, core.kind ? "V" : "C", core.sub);
      for (auto &line : core.trace) std::printf("  %s\n", line.c_str());
    }
    for (auto &[flag, count] : group.flags) if (count) { me = &cores[0]; fail("leaves a cross-core flag raised: " + flag); }
  }
}

inline void load(const char *name, const char *path) {
  std::FILE *file = std::fopen(path, "rb");
  std::fseek(file, 0, SEEK_END);
  size_t size = std::ftell(file);
  std::rewind(file);
  auto *data = (uint8_t *)std::aligned_alloc(512, (size + 511) / 512 * 512);
  if (std::fread(data, 1, size, file) != size) std::_Exit(4);
  std::fclose(file);
  tensors.push_back({name, data, size});
}
inline void save(char **paths) {
  for (size_t k = 0; k < tensors.size(); ++k) {
    std::FILE *file = std::fopen(paths[k], "wb");
    std::fwrite(tensors[k].data, 1, tensors[k].size, file);
    std::fclose(file);
  }
}
