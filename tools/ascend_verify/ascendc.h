// The AscendC API that sources for the 910B use, on the host: own declarations and own bodies, by
// CANN's public pages of the API ("Ascend C API", docs/zh/api/SIMD-API of asc-devkit). A comment
// names the page that a unit, a limit or a number is from. Types are as narrow as there: arguments
// that the API doesn't take do not compile, and values that a page rules out stop the run.
#pragma once
#include "ascendc_cores.h"

// The pages of KERNEL_TASK_TYPE_DEFAULT and of ASCEND_IS_AIC.
#define KERNEL_TASK_TYPE_DEFAULT(kind) host::check(host::task == #kind, "launched as " + host::task + ", not as " #kind)
#define ASCEND_IS_AIC (host::me->cube())
#define ASCEND_IS_AIV (!host::me->cube())

namespace AscendC {
using host::Call;
using host::check;
using host::fail;
using host::me;

// Tensors ------------------------------------------------------------------------------------------

enum class TPosition : uint8_t { GM, A1, A2, B1, B2, C1, C2, CO1, CO2, VECIN, VECOUT, VECCALC };

// "General notes", table 1: which memory a position is in.
inline host::Memory &memory_of(TPosition p) {
  host::Core &c = *me;
  switch (p) {
    case TPosition::VECIN: case TPosition::VECOUT: case TPosition::VECCALC: check(!c.cube(), "the cube core has no UB"); return c.ub;
    default: check(c.cube(), "a vector core has UB only");
  }
  switch (p) {
    case TPosition::A1: case TPosition::B1: return c.l1;
    case TPosition::A2: return c.l0a;
    case TPosition::B2: return c.l0b;
    case TPosition::CO1: return c.l0c;
    default: fail("a local tensor at this position");
  }
}

template <typename T> class LocalTensor {
 public:
  LocalTensor() = default;
  // Page "LocalTensor constructors": a place in bytes, a size in elements.
  LocalTensor(TPosition pos, uint32_t addr, uint32_t tileSize) : position(pos), at(addr), size(tileSize) {}
  LocalTensor operator[](uint32_t offset) const {
    LocalTensor out = *this;
    out.at += offset * sizeof(T);
    out.size = size > offset ? size - offset : 0;
    return out;
  }
  template <typename U> LocalTensor<U> ReinterpretCast() const { return {position, at, (uint32_t)(size * sizeof(T) / sizeof(U))}; }
  T GetValue(uint32_t index) const {
    Call call("GetValue", PIPE_S);
    T x;
    std::memcpy(&x, call.read(memory(), at + index * sizeof(T), sizeof(T)), sizeof(T));
    return x;
  }
  template <typename S> void SetValue(uint32_t index, S value) const {
    T x = T(value);
    Call call("SetValue", PIPE_S);
    std::memcpy(call.write(memory(), at + index * sizeof(T), sizeof(T)), &x, sizeof(T));
  }
  uint32_t GetSize() const { return size; }
  uint64_t GetPhyAddr() const { return (uint64_t)(memory().data + at); }
  host::Memory &memory() const { return memory_of(position); }
  // The elements [first, first + count), as a call reads or writes them.
  T *read(Call &c, size_t first, size_t count) const { return (T *)c.read(memory(), at + first * sizeof(T), count * sizeof(T)); }
  T *write(Call &c, size_t first, size_t count) const { return (T *)c.write(memory(), at + first * sizeof(T), count * sizeof(T)); }
  TPosition position{};
  uint32_t at = 0, size = 0;
};

template <typename T> class GlobalTensor {
 public:
  void SetGlobalBuffer(T *buffer) {
    for (host::Memory &t : host::tensors)
      if ((uint8_t *)buffer >= t.data && (uint8_t *)buffer < t.data + std::max<size_t>(t.size, 1)) { memory = &t; at = (uint8_t *)buffer - t.data; return; }
    fail("a global tensor that is no argument");
  }
  GlobalTensor operator[](uint64_t offset) const {
    GlobalTensor out = *this;
    out.at += offset * sizeof(T);
    return out;
  }
  T GetValue(uint64_t index) const {
    Call call("GetValue", PIPE_S);
    T x;
    std::memcpy(&x, call.read(*memory, at + index * sizeof(T), sizeof(T)), sizeof(T));
    return x;
  }
  T *read(Call &c, size_t byte, size_t bytes) const { return (T *)c.read(*memory, at + byte, bytes); }
  T *write(Call &c, size_t byte, size_t bytes) const { return (T *)c.write(*memory, at + byte, bytes); }
  host::Memory *memory = nullptr;
  size_t at = 0;
};

template <typename T, typename... Of> constexpr bool one_of = (std::is_same_v<T, Of> || ...);
template <typename T> constexpr size_t per_block = 32 / sizeof(T);
template <typename T> constexpr size_t per_repeat = 256 / sizeof(T);
template <typename T> constexpr bool is_b16_b32 = one_of<T, int16_t, uint16_t, half, bfloat16_t, int32_t, uint32_t, float>;
template <typename T> constexpr bool is_arithmetic = one_of<T, int16_t, half, int32_t, float>;
template <typename T> constexpr bool is_half_float = one_of<T, half, float>;

inline size_t up(size_t n, size_t step) { return (n + step - 1) / step * step; }
template <typename T> void aligned(const LocalTensor<T> &t, size_t to) {
  check(t.at % to == 0, t.memory().name + "+" + std::to_string(t.at) + " is not aligned to " + std::to_string(to) + " bytes");
}
inline bool is_ub(TPosition p) { return p == TPosition::VECIN || p == TPosition::VECOUT || p == TPosition::VECCALC; }
// "General notes", table 2: addresses in UB are multiples of 32 bytes.
template <typename... T> void in_ub(const LocalTensor<T> &...t) {
  (check(is_ub(t.position), "an operand outside of UB"), ...);
  (aligned(t, 32), ...);
}

// System -------------------------------------------------------------------------------------------

// Page "InitSocState": a kernel without TPipe calls it first.
inline void InitSocState() { me->ready = true; me->atomic.clear(); me->dequant = 1; }
// Page "GetBlockIdx": with two vector cores for each cube core, vector cores count to twice as many.
inline int64_t GetBlockIdx() { return me->cube() ? me->block : (int64_t)me->block * host::cores_of_vector + me->index - 1; }
inline int64_t GetSubBlockNum() { return host::cores_of_vector; }
inline int64_t GetSubBlockIdx() { return me->cube() ? 0 : me->index - 1; }

// Order --------------------------------------------------------------------------------------------

enum class HardEvent : uint16_t {
#define PAIRS(a) a##_V = PIPE_##a * 16 + PIPE_V, a##_M = PIPE_##a * 16 + PIPE_M, a##_MTE1 = PIPE_##a * 16 + PIPE_MTE1, a##_MTE2 = PIPE_##a * 16 + PIPE_MTE2, \
                 a##_MTE3 = PIPE_##a * 16 + PIPE_MTE3, a##_FIX = PIPE_##a * 16 + PIPE_FIX, a##_S = PIPE_##a * 16 + PIPE_S
  PAIRS(S), PAIRS(V), PAIRS(M), PAIRS(MTE1), PAIRS(MTE2), PAIRS(MTE3), PAIRS(FIX)
#undef PAIRS
};
inline void event_fits(int a, int b, int32_t id) {
  check(me->ready, "a flag before InitSocState");
  check(a != b, "a flag from a pipe to itself");
  check(id >= 0 && id <= 7, "event ids are 0 to 7");
  auto has = [](int p) { return me->cube() ? p != PIPE_V && p != PIPE_MTE3 : p == PIPE_S || p == PIPE_V || p == PIPE_MTE2 || p == PIPE_MTE3; };
  check(has(a) && has(b), "a flag of a pipe that this core lacks");
}
// Page "SetFlag/WaitFlag": a flag that is raised is not raised again before its wait.
template <HardEvent event> void SetFlag(int32_t eventID) {
  constexpr int a = (int)event / 16, b = (int)event % 16;
  event_fits(a, b, eventID);
  ++host::calls["SetFlag"];
  bool fresh = me->flags.emplace(std::tuple(a, b, eventID), host::now(a)).second;
  check(fresh, "a flag is raised twice without a wait");
}
template <HardEvent event> void WaitFlag(int32_t eventID) {
  constexpr int a = (int)event / 16, b = (int)event % 16;
  event_fits(a, b, eventID);
  ++host::calls["WaitFlag"];
  auto flag = me->flags.find(std::tuple(a, b, eventID));
  check(flag != me->flags.end(), "waits for a flag that is not raised");
  host::learn(me->known[b], flag->second);
  me->flags.erase(flag);
}
// Page "PipeBarrier": not for the scalar unit alone.
template <pipe_t pipe> void PipeBarrier() {
  static_assert(pipe != PIPE_S);
  check(me->ready, "PipeBarrier before InitSocState");
  ++host::calls["PipeBarrier"];
  if constexpr (pipe == PIPE_ALL) host::barrier_all();
  else me->known[pipe][me->index * host::PIPES + pipe] = me->done[pipe];
}
// Pages "CrossCoreSetFlag", "CrossCoreWaitFlag": modes 0 to 2 on this chip, no PIPE_ALL or PIPE_S; a
// wait holds up all pipes.
template <uint8_t modeId, pipe_t pipe> void CrossCoreSetFlag(uint16_t flagId) {
  static_assert(modeId <= 2 && pipe != PIPE_ALL && pipe != PIPE_S);
  ++host::calls["CrossCoreSetFlag"];
  host::cross_set(modeId, pipe, flagId);
}
template <uint8_t modeId = 0, pipe_t pipe = PIPE_S> void CrossCoreWaitFlag(uint16_t flagId) {
  ++host::calls["CrossCoreWaitFlag"];
  host::cross_wait(flagId);
}
// Page "SyncAll": flags 11 to 14 are its own. Of all cores, or of all vector cores.
template <bool isAIVOnly = true> void SyncAll() {
  ++host::calls["SyncAll"];
  host::barrier_all();
  if constexpr (isAIVOnly) {
    check(!me->cube(), "SyncAll<true> on a cube core");
    host::cross_set(0, PIPE_MTE3, 14);
    host::cross_wait(14);
  } else if (me->cube()) {
    host::cross_wait(13);
    host::cross_set(0, PIPE_FIX, 11);
    host::cross_wait(11);
    host::cross_set(2, PIPE_FIX, 12);
  } else {
    host::cross_set(2, PIPE_MTE3, 13);
    host::cross_wait(12);
  }
}

// Stores to global memory --------------------------------------------------------------------------

#define ATOMIC(word, op) template <typename T> void SetAtomic##word() { \
    static_assert(one_of<T, float, half, int16_t, int32_t, int8_t, bfloat16_t>); me->atomic = #op; me->atomic_type = host::tag<T>(); ++host::calls["SetAtomic" #word]; }
ATOMIC(Add, add) ATOMIC(Max, max) ATOMIC(Min, min)
#undef ATOMIC
inline void SetAtomicNone() { me->atomic.clear(); ++host::calls["SetAtomicNone"]; }
template <typename T> void put(T *d, T x) {
  if (me->atomic.empty()) { *d = x; return; }
  check(me->atomic_type == host::tag<T>(), "an atomic store of another type than the mode's");
  if (me->atomic == "add") *d = is_real<T> ? T((float)*d + (float)x) : T(*d + x);
  else *d = (me->atomic == "max") == ((float)x > (float)*d) ? x : *d;
}

struct DataCopyExtParams {
  DataCopyExtParams(uint16_t count, uint32_t len, uint32_t src, uint32_t dst, uint32_t) : blockCount(count), blockLen(len), srcStride(src), dstStride(dst) {
    check(count <= 4095 && len <= 2097151, "DataCopyPad: a block count or length out of range");
  }
  uint16_t blockCount;
  uint32_t blockLen, srcStride, dstStride;
};
template <typename T> struct DataCopyPadExtParams {
  DataCopyPadExtParams(bool pad, uint8_t left, uint8_t right, T value) : isPad(pad), leftPadding(left), rightPadding(right), paddingValue(value) {
    check(left * sizeof(T) <= 32 && right * sizeof(T) <= 32, "DataCopyPad: more than 32 bytes of padding");
  }
  bool isPad;
  uint8_t leftPadding, rightPadding;
  T paddingValue;
};
template <typename T> constexpr bool is_copied = one_of<T, int8_t, uint8_t, int16_t, uint16_t, half, bfloat16_t, int32_t, uint32_t, float, int64_t, uint64_t, double>;

// Page "DataCopyPad, GM to UB": lengths and the source's gaps in bytes, the target's in blocks of 32
// bytes. A row ends at a whole block: with the padding value, else with the row's first element.
template <typename T>
void DataCopyPad(const LocalTensor<T> &dst, const GlobalTensor<T> &src, const DataCopyExtParams &p, const DataCopyPadExtParams<T> &pad) {
  static_assert(is_copied<T>);
  Call call("DataCopyPad", PIPE_MTE2);
  in_ub(dst);
  check(p.blockLen % sizeof(T) == 0, "DataCopyPad: a length that is no whole number of elements");
  if (p.blockCount == 0 || p.blockLen == 0) return;
  const size_t n = p.blockLen / sizeof(T), whole = up(pad.leftPadding + n + pad.rightPadding, per_block<T>);
  for (size_t r = 0; r < p.blockCount; ++r) {
    T *s = src.read(call, r * ((size_t)p.blockLen + p.srcStride), p.blockLen);
    T *d = dst.write(call, r * (whole + p.dstStride * per_block<T>), whole);
    T filler = pad.isPad ? pad.paddingValue : s[0];
    if (!pad.isPad && (pad.leftPadding || pad.rightPadding)) std::memset(&filler, 0xa5, sizeof(T));
    for (size_t k = 0; k < whole; ++k) d[k] = k >= pad.leftPadding && k - pad.leftPadding < n ? s[k - pad.leftPadding] : filler;
  }
}
// Page "DataCopyPad, UB to GM": the source's gaps in blocks behind its whole blocks.
template <typename T> void DataCopyPad(const GlobalTensor<T> &dst, const LocalTensor<T> &src, const DataCopyExtParams &p) {
  static_assert(is_copied<T>);
  Call call("DataCopyPad", PIPE_MTE3);
  in_ub(src);
  check(p.blockLen % sizeof(T) == 0, "DataCopyPad: a length that is no whole number of elements");
  if (p.blockCount == 0 || p.blockLen == 0) return;
  const size_t n = p.blockLen / sizeof(T);
  for (size_t r = 0; r < p.blockCount; ++r) {
    T *s = src.read(call, r * (up(n, per_block<T>) + p.srcStride * per_block<T>), n);
    T *d = dst.write(call, r * ((size_t)p.blockLen + p.dstStride), p.blockLen);
    for (size_t k = 0; k < n; ++k) put(d + k, s[k]);
  }
}
// Page "DataCopy, UB to UB": a count that is no whole number of blocks is rounded down.
template <typename T> void DataCopy(const LocalTensor<T> &dst, const LocalTensor<T> &src, uint32_t count) {
  static_assert(is_copied<T>);
  Call call("DataCopy", PIPE_V);
  in_ub(dst, src);
  const size_t n = count / per_block<T> * per_block<T>;
  std::memmove(dst.write(call, 0, n), src.read(call, 0, n), n * sizeof(T));
}

// Into L1, L0A and L0B -----------------------------------------------------------------------------

struct Nd2NzParams {
  Nd2NzParams(uint16_t nd, int64_t n, int64_t d, uint16_t nd_stride, int64_t src_d, int64_t c0_stride, uint16_t n_stride, uint16_t)
      : ndNum(nd), nValue(n), dValue(d), srcDValue(src_d), dstNzC0Stride(c0_stride), dstNzNStride(n_stride) {
    check(nd <= 1 && nd_stride == 0, "Nd2Nz: one matrix here");
    check(n >= 0 && n <= 16384 && d >= 0 && d <= 65535 && src_d >= 1 && src_d <= 65535 && c0_stride >= 1 && c0_stride <= 16384, "Nd2Nz: a parameter out of range");
  }
  size_t ndNum, nValue, dValue, srcDValue, dstNzC0Stride, dstNzNStride;
};
// Page "DataCopy, GM to L1, ND2NZ": strides of the target in rows of 32 bytes; the last one is filled
// up with zeros.
template <typename T> void DataCopy(const LocalTensor<T> &dst, const GlobalTensor<T> &src, const Nd2NzParams &p) {
  static_assert(one_of<T, int8_t, uint8_t> || is_b16_b32<T>);
  Call call("DataCopy(ND2NZ)", PIPE_MTE2);
  aligned(dst, 32);
  check(&dst.memory() == &me->l1, "ND2NZ into another memory than L1");
  if (p.ndNum == 0 || p.nValue == 0 || p.dValue == 0) return;
  const size_t c0 = per_block<T>;
  for (size_t r = 0; r < p.nValue; ++r)
    for (size_t b = 0; b < up(p.dValue, c0) / c0; ++b) {
      size_t n = std::min(c0, p.dValue - b * c0);
      T *s = src.read(call, (r * p.srcDValue + b * c0) * sizeof(T), n * sizeof(T));
      T *d = dst.write(call, (b * p.dstNzC0Stride + r * p.dstNzNStride) * c0, c0);
      for (size_t k = 0; k < c0; ++k) d[k] = k < n ? s[k] : T(0);
    }
}
template <typename T> struct InitConstValueParams {
  InitConstValueParams(uint16_t times, uint16_t blocks, uint16_t gap, T value) : repeatTimes(times), blockNum(blocks), dstGap(gap), initValue(value) {
    check(times <= 32767 && blocks <= 32767 && gap <= 32767, "Fill: a parameter out of range");
  }
  size_t repeatTimes, blockNum, dstGap;
  T initValue;
};
// Page "Fill": in L1 blocks and gaps of 32 bytes; no types of 8 bits.
template <typename T> void Fill(const LocalTensor<T> &dst, const InitConstValueParams<T> &p) {
  static_assert(is_b16_b32<T>);
  Call call("Fill", PIPE_MTE2);
  aligned(dst, 32);
  check(&dst.memory() == &me->l1, "Fill of another memory than L1");
  for (size_t r = 0; r < p.repeatTimes; ++r) {
    T *d = dst.write(call, r * (p.blockNum + p.dstGap) * per_block<T>, p.blockNum * per_block<T>);
    std::fill(d, d + p.blockNum * per_block<T>, p.initValue);
  }
}
struct LoadData2DParams {
  LoadData2DParams(uint16_t start, int64_t times, int64_t src, uint8_t, int64_t gap, bool turn, uint8_t mode)
      : startIndex(start), repeatTimes(times), srcStride(src), dstGap(gap), ifTranspose(turn) {
    check(times >= 0 && times <= 255 && src >= 0 && src <= 65535 && gap >= 0 && gap <= 65535 && mode == 0, "LoadData: a parameter out of range");
  }
  size_t startIndex, repeatTimes, srcStride, dstGap;
  bool ifTranspose;
};
template <typename T> void into_l0(const LocalTensor<T> &dst, const LocalTensor<T> &src) {
  check(&src.memory() == &me->l1 && (&dst.memory() == &me->l0a || &dst.memory() == &me->l0b), "a load of L0 that is none");
  aligned(dst, 512);
  aligned(src, 32);
}
// Page "LoadData (2D)": fractals of 512 bytes; turned only those of 16 bits.
template <typename T> void LoadData(const LocalTensor<T> &dst, const LocalTensor<T> &src, const LoadData2DParams &p) {
  static_assert(one_of<T, uint8_t, int8_t> || is_b16_b32<T>);
  Call call("LoadData", PIPE_MTE1);
  into_l0(dst, src);
  check(!p.ifTranspose || sizeof(T) == 2, "LoadData: turns fractals of 16 bits only");
  const size_t n = 512 / sizeof(T);
  for (size_t r = 0; r < p.repeatTimes; ++r) {
    T *s = src.read(call, (p.startIndex + r * p.srcStride) * n, n), *d = dst.write(call, r * (1 + p.dstGap) * n, n);
    for (size_t k = 0; k < n; ++k) d[p.ifTranspose ? k % 16 * 16 + k / 16 : k] = s[k];
  }
}
struct LoadData2dTransposeParams {
  LoadData2dTransposeParams(uint16_t start, int64_t times, int64_t src, int64_t gap, int64_t frac)
      : startIndex(start), repeatTimes(times), srcStride(src), dstGap(gap), dstFracGap(frac) {
    check(times >= 0 && times <= 255 && src >= 0 && src <= 65535 && gap >= 0 && gap <= 65535 && frac >= 0 && frac <= 65535, "LoadDataWithTranspose: a parameter out of range");
  }
  size_t startIndex, repeatTimes, srcStride, dstGap, dstFracGap;
};
// Page "LoadDataWithTranspose": two fractals of 8 bits behind each other are a square of 32, two of 32
// bits beside each other one of 16; the square is turned and split again.
template <typename T> void LoadDataWithTranspose(const LocalTensor<T> &dst, const LocalTensor<T> &src, const LoadData2dTransposeParams &p) {
  static_assert(one_of<T, int8_t, uint8_t, half, bfloat16_t, int32_t, uint32_t, float>);
  Call call("LoadDataWithTranspose", PIPE_MTE1);
  into_l0(dst, src);
  constexpr size_t c0 = per_block<T>, side = sizeof(T) == 1 ? 32 : 16, parts = side * side * sizeof(T) / 512, n = 512 / sizeof(T);
  for (size_t r = 0; r < p.repeatTimes; ++r) {
    T *s = src.read(call, (p.startIndex + r * p.srcStride) * side * side, side * side);
    for (size_t f = 0; f < parts; ++f) {
      T *d = dst.write(call, (r * (1 + p.dstGap) + f * (1 + p.dstFracGap)) * n, n);
      for (size_t i = 0; i < 16; ++i)
        for (size_t j = 0; j < c0; ++j) {
          // Of the turned square: row f * 16 + i for 8 bits, column f * c0 + j for 32 bits.
          size_t row = sizeof(T) == 4 ? i : f * 16 + i, column = sizeof(T) == 4 ? f * c0 + j : j;
          d[i * c0 + j] = s[sizeof(T) == 4 ? row / c0 * n + column * c0 + row % c0 : column * c0 + row];
        }
    }
  }
}

// Product and drain --------------------------------------------------------------------------------

struct MmadParams {
  MmadParams(int64_t m_, int64_t n_, int64_t k_, uint8_t unit, bool source, bool init) : m(m_), n(n_), k(k_), cmatrixInitVal(init) {
    check(m_ >= 0 && m_ <= 4095 && n_ >= 0 && n_ <= 4095 && k_ >= 0 && k_ <= 4095 && unit == 0 && !source, "Mmad: a parameter out of range");
  }
  size_t m, n, k;
  bool cmatrixInitVal;
};
// Page "Mmad": A in fractals along K, B along N, C in columns of 16 whose rows are those of m in whole
// fractals. m = 1 reads A as a row ("GEMV"). Two products into one C need a barrier if they are small.
template <typename C, typename A, typename B> void Mmad(const LocalTensor<C> &c, const LocalTensor<A> &a, const LocalTensor<B> &b, const MmadParams &p) {
  static_assert(std::is_same_v<A, B> && ((one_of<A, half, bfloat16_t, float> && std::is_same_v<C, float>) || (std::is_same_v<A, int8_t> && std::is_same_v<C, int32_t>)));
  Call call("Mmad", PIPE_M, p.m / 16 * (p.n / 16) >= 10);
  check(&c.memory() == &me->l0c && &a.memory() == &me->l0a && &b.memory() == &me->l0b, "Mmad of tensors elsewhere");
  aligned(a, 512);
  aligned(b, 512);
  aligned(c, 1024);
  if (p.m == 0 || p.n == 0 || p.k == 0) return;
  const size_t c0 = per_block<A>, mb = up(p.m, 16) / 16, nb = up(p.n, 16) / 16, kb = up(p.k, c0) / c0, f = 16 * c0;
  const A *x = a.read(call, 0, p.m == 1 ? up(p.k, c0) : mb * kb * f), *y = b.read(call, 0, kb * nb * f);
  C *z = c.write(call, 0, nb * mb * 256);
  // Rows of A and of B with their elements side by side.
  std::vector<C> left(p.m * p.k), right(p.n * p.k);
  for (size_t i = 0; i < p.m; ++i)
    for (size_t k = 0; k < p.k; ++k) left[i * p.k + k] = (C)(p.m == 1 ? x[k] : x[(i / 16 * kb + k / c0) * f + i % 16 * c0 + k % c0]);
  for (size_t j = 0; j < p.n; ++j)
    for (size_t k = 0; k < p.k; ++k) right[j * p.k + k] = (C)y[(k / c0 * nb + j / 16) * f + j % 16 * c0 + k % c0];
  for (size_t i = 0; i < p.m; ++i)
    for (size_t j = 0; j < p.n; ++j) {
      C *o = z + (j / 16 * mb * 16 + i) * 16 + j % 16, sum = 0;
      for (size_t k = 0; k < p.k; ++k) sum += left[i * p.k + k] * right[j * p.k + k];
      *o = p.cmatrixInitVal ? sum : *o + sum;
    }
}
enum class CO2Layout : uint8_t { NZ, ROW_MAJOR, COLUMN_MAJOR };
struct FixpipeConfig { CO2Layout format; };
constexpr FixpipeConfig CFG_NZ = {CO2Layout::NZ}, CFG_ROW_MAJOR = {CO2Layout::ROW_MAJOR};
enum QuantMode_t { NoQuant, F322F16, F322BF16, DEQF16, VDEQF16, QF322B8_PRE, VQF322B8_PRE, REQ8, VREQ8 };
// "Quantisation on the way", table 1: which types a mode converts. QUANT_PRE: the low word is a float of
// which 10 bits of mantissa count, bit 46 says that results have a sign.
template <typename D, typename S> bool converts(QuantMode_t m) {
  switch (m) {
    case NoQuant: return std::is_same_v<D, S>;
    case F322F16: return std::is_same_v<S, float> && std::is_same_v<D, half>;
    case F322BF16: return std::is_same_v<S, float> && std::is_same_v<D, bfloat16_t>;
    case DEQF16: return std::is_same_v<S, int32_t> && std::is_same_v<D, half>;
    case QF322B8_PRE: return std::is_same_v<S, float> && one_of<D, int8_t, uint8_t>;
    case REQ8: return std::is_same_v<S, int32_t> && one_of<D, int8_t, uint8_t>;
    default: return false;
  }
}
template <typename D, typename S> D drained(S x, QuantMode_t m, uint64_t scale) {
  if (m != DEQF16 && m != QF322B8_PRE && m != REQ8) return D(x);
  const uint32_t word = (uint32_t)scale & ~0x1fffu;
  float factor;
  std::memcpy(&factor, &word, 4);
  const float y = (float)x * factor;
  if constexpr (one_of<D, int8_t, uint8_t>) {
    check((scale >> 46 & 1) == std::is_same_v<D, int8_t>, "Fixpipe: the sign of QUANT_PRE is not that of the results");
    return std::isnan(y) ? D(0) : (D)std::clamp<float>(std::nearbyint(y), std::numeric_limits<D>::min(), std::numeric_limits<D>::max());
  } else return D(y);
}
struct FixpipeParamsV220 {
  FixpipeParamsV220(int64_t n, int64_t m, int64_t src, int64_t dst, bool relu) : nSize(n), mSize(m), srcStride(src), dstStride(dst), reluEn(relu) {
    check(n >= 0 && n <= 4095 && m >= 0 && m <= 8192 && src >= 0 && src <= 65535 && dst >= 1 && dst <= 4294967295, "Fixpipe: a parameter out of range");
  }
  size_t nSize, mSize, srcStride, dstStride;
  bool reluEn;
  QuantMode_t quantPre = NoQuant;
  uint64_t deqScalar = 0;
};
// Pages "Fixpipe, L0C to GM", "NZ2ND": the source's columns of 16 are srcStride rows apart, the
// target's rows dstStride elements.
template <typename D, typename S, const FixpipeConfig &config> void Fixpipe(const GlobalTensor<D> &dst, const LocalTensor<S> &src, const FixpipeParamsV220 &p) {
  static_assert(config.format == CO2Layout::ROW_MAJOR && one_of<S, float, int32_t>);
  Call call("Fixpipe", PIPE_FIX);
  check(&src.memory() == &me->l0c, "Fixpipe of another memory than L0C");
  aligned(src, 64);
  check(converts<D, S>(p.quantPre), "Fixpipe: a conversion that quantPre does not name");
  if (p.nSize == 0 || p.mSize == 0) return;
  for (size_t i = 0; i < p.mSize; ++i) {
    D *d = dst.write(call, i * p.dstStride * sizeof(D), p.nSize * sizeof(D));
    for (size_t b = 0; b < up(p.nSize, 16) / 16; ++b) {
      S *s = src.read(call, (b * p.srcStride + i) * 16, std::min<size_t>(16, p.nSize - b * 16));
      for (size_t j = 0; j < std::min<size_t>(16, p.nSize - b * 16); ++j) put(d + b * 16 + j, drained<D>(p.reluEn ? std::max(s[j], S(0)) : s[j], p.quantPre, p.deqScalar));
    }
  }
}
}  // namespace AscendC
#include "ascendc_vector.h"
