// Vector functions of the AscendC API on the host; see `ascendc.h`, which includes this file.
//
// "First n elements" forms take neighbours; forms with a mask and repeats take 256 bytes at a time,
// of which the mask says how many elements count, with strides in blocks of 32 bytes.
#pragma once

namespace AscendC {

// Arithmetic on elements, in the element's type; half in float, rounded once.
template <typename T, typename F> T computed(F f, T a) {
  if constexpr (is_real<T>) return T(f((float)a));
  else return T(f(a));
}
template <typename T, typename F> T computed(F f, T a, T b) {
  if constexpr (is_real<T>) return T(f((float)a, (float)b));
  else return T(f(a, b));
}

#define UNARY(name, types, op) \
  template <typename T> void name(const LocalTensor<T> &dst, const LocalTensor<T> &src, const int32_t &count) { \
    static_assert(types); \
    Call call(#name, PIPE_V); \
    in_ub(dst, src); \
    const T *s = src.read(call, 0, count); \
    T *d = dst.write(call, 0, count); \
    for (int32_t k = 0; k < count; ++k) d[k] = computed([](auto x) { return op; }, s[k]); \
  }
// Pages "Exp", "Ln", "Abs", "Reciprocal", "Sqrt", "Rsqrt", "Relu", "Not".
UNARY(Exp, is_half_float<T>, std::exp(x))
UNARY(Ln, is_half_float<T>, std::log(x))
UNARY(Abs, is_half_float<T>, std::fabs(x))
UNARY(Reciprocal, is_half_float<T>, 1.0f / x)
UNARY(Sqrt, is_half_float<T>, std::sqrt(x))
UNARY(Rsqrt, is_half_float<T>, 1.0f / std::sqrt(x))
UNARY(Relu, (one_of<T, half, int32_t, float>), std::max(x, decltype(x)(0)))
#undef UNARY
template <typename T> void Not(const LocalTensor<T> &dst, const LocalTensor<T> &src, const int32_t &count) {
  static_assert(one_of<T, int16_t, uint16_t>);
  Call call("Not", PIPE_V);
  in_ub(dst, src);
  const T *s = src.read(call, 0, count);
  T *d = dst.write(call, 0, count);
  for (int32_t k = 0; k < count; ++k) d[k] = ~s[k];
}

struct BinaryRepeatParams {
  BinaryRepeatParams(uint8_t dst, uint8_t src0, uint8_t src1, uint8_t dst_repeat, uint8_t repeat0, uint8_t repeat1)
      : dstBlkStride(dst), src0BlkStride(src0), src1BlkStride(src1), dstRepStride(dst_repeat), src0RepStride(repeat0), src1RepStride(repeat1) {}
  size_t dstBlkStride, src0BlkStride, src1BlkStride, dstRepStride, src0RepStride, src1RepStride;
};
// With a mask of the first elements; each repeat takes 8 blocks of each operand.
template <typename T, typename F> void repeated(const char *name, const LocalTensor<T> &dst, const LocalTensor<T> &src0, const LocalTensor<T> &src1, uint64_t mask, uint8_t times, const BinaryRepeatParams &p, F f) {
  Call call(name, PIPE_V);
  in_ub(dst, src0, src1);
  check(mask >= 1 && mask <= per_repeat<T>, std::string(name) + ": a mask out of range");
  for (size_t r = 0; r < times; ++r)
    for (size_t b = 0; b < 8; ++b) {
      if (b * per_block<T> >= mask) break;
      const size_t n = std::min(per_block<T>, mask - b * per_block<T>);
      const T *a = src0.read(call, (r * p.src0RepStride + b * p.src0BlkStride) * per_block<T>, n), *c = src1.read(call, (r * p.src1RepStride + b * p.src1BlkStride) * per_block<T>, n);
      T *d = dst.write(call, (r * p.dstRepStride + b * p.dstBlkStride) * per_block<T>, n);
      for (size_t k = 0; k < n; ++k) d[k] = computed(f, a[k], c[k]);
    }
}
#define BINARY(name, types, op) \
  template <typename T> void name(const LocalTensor<T> &dst, const LocalTensor<T> &src0, const LocalTensor<T> &src1, uint64_t mask, const uint8_t repeatTime, const BinaryRepeatParams &p) { \
    static_assert(types); \
    repeated(#name, dst, src0, src1, mask, repeatTime, p, [](auto x, auto y) { return op; }); \
  } \
  template <typename T> void name(const LocalTensor<T> &dst, const LocalTensor<T> &src0, const LocalTensor<T> &src1, const int32_t &count) { \
    static_assert(types); \
    Call call(#name, PIPE_V); \
    in_ub(dst, src0, src1); \
    const T *a = src0.read(call, 0, count), *b = src1.read(call, 0, count); \
    T *d = dst.write(call, 0, count); \
    for (int32_t k = 0; k < count; ++k) d[k] = computed([](auto x, auto y) { return op; }, a[k], b[k]); \
  }
// Pages "Add", "Sub", "Mul", "Div", "Max", "Min", "And", "Or".
BINARY(Add, is_arithmetic<T>, x + y)
BINARY(Sub, is_arithmetic<T>, x - y)
BINARY(Mul, is_arithmetic<T>, x *y)
BINARY(Div, is_half_float<T>, x / y)
BINARY(Max, is_arithmetic<T>, std::isnan((float)x) ? x : std::isnan((float)y) ? y : std::max(x, y))
BINARY(Min, is_arithmetic<T>, std::isnan((float)x) ? x : std::isnan((float)y) ? y : std::min(x, y))
BINARY(And, (one_of<T, int16_t, uint16_t>), x & y)
BINARY(Or, (one_of<T, int16_t, uint16_t>), x | y)
#undef BINARY

// The scalar has the elements' type: the API compares both.
#define BY_SCALAR(name, types, op) \
  template <typename T, typename U> requires(std::is_same_v<T, U>) \
  void name(const LocalTensor<T> &dst, const LocalTensor<T> &src, const U &scalarValue, const int32_t &count) { \
    static_assert(types); \
    Call call(#name, PIPE_V); \
    in_ub(dst, src); \
    const T *a = src.read(call, 0, count); \
    T *d = dst.write(call, 0, count); \
    for (int32_t k = 0; k < count; ++k) d[k] = computed([](auto x, auto y) { return op; }, a[k], (T)scalarValue); \
  }
// Pages "Adds", "Muls", "Maxs", "Mins", "LeakyRelu", "ShiftLeft", "ShiftRight".
BY_SCALAR(Adds, is_arithmetic<T>, x + y)
BY_SCALAR(Muls, is_arithmetic<T>, x *y)
BY_SCALAR(Maxs, is_arithmetic<T>, std::max(x, y))
BY_SCALAR(Mins, is_arithmetic<T>, std::min(x, y))
BY_SCALAR(LeakyRelu, is_half_float<T>, x >= 0 ? x : x *y)
BY_SCALAR(ShiftLeft, (one_of<T, int16_t, uint16_t, int32_t, uint32_t>), x << y)
BY_SCALAR(ShiftRight, (one_of<T, int16_t, uint16_t, int32_t, uint32_t>), x >> y)
#undef BY_SCALAR

// Page "Axpy": dst + src * scalar. Page "MulAddDst": dst + src0 * src1.
template <typename T, typename U> requires(std::is_same_v<T, U>)
void Axpy(const LocalTensor<T> &dst, const LocalTensor<T> &src, const U &scalarValue, const int32_t &count) {
  static_assert(is_half_float<T>);
  Call call("Axpy", PIPE_V);
  in_ub(dst, src);
  const T *a = src.read(call, 0, count);
  T *d = dst.write(call, 0, count);
  for (int32_t k = 0; k < count; ++k) d[k] = T((float)d[k] + (float)a[k] * (float)scalarValue);
}
template <typename T> void MulAddDst(const LocalTensor<T> &dst, const LocalTensor<T> &src0, const LocalTensor<T> &src1, const int32_t &count) {
  static_assert(is_half_float<T>);
  Call call("MulAddDst", PIPE_V);
  in_ub(dst, src0, src1);
  const T *a = src0.read(call, 0, count), *b = src1.read(call, 0, count);
  T *d = dst.write(call, 0, count);
  for (int32_t k = 0; k < count; ++k) d[k] = T((float)d[k] + (float)a[k] * (float)b[k]);
}

// Filling and copying ------------------------------------------------------------------------------

// Page "Duplicate": no types of 8 or 64 bits.
template <typename T, typename U> requires(std::is_same_v<T, U>)
void Duplicate(const LocalTensor<T> &dst, const U &scalarValue, const int32_t &count) {
  static_assert(is_b16_b32<T>);
  Call call("Duplicate", PIPE_V);
  in_ub(dst);
  std::fill_n(dst.write(call, 0, count), count, scalarValue);
}
template <typename T, typename U> requires(std::is_same_v<T, U>)
void Duplicate(const LocalTensor<T> &dst, const U &scalarValue, uint64_t mask[], const uint8_t repeatTime, const uint16_t dstBlockStride, const uint8_t dstRepeatStride) {
  static_assert(is_b16_b32<T>);
  Call call("Duplicate", PIPE_V);
  in_ub(dst);
  check(mask[0] || (sizeof(T) == 2 && mask[1]), "Duplicate: an empty mask");
  for (size_t r = 0; r < repeatTime; ++r)
    for (size_t k = 0; k < per_repeat<T>; ++k)
      if (mask[k / 64] >> k % 64 & 1) *dst.write(call, (r * dstRepeatStride + k / per_block<T> * dstBlockStride) * per_block<T> + k % per_block<T>, 1) = scalarValue;
}
struct CopyRepeatParams {
  CopyRepeatParams(uint16_t dst, uint16_t src, uint16_t dst_repeat, uint16_t src_repeat) : dstStride(dst), srcStride(src), dstRepeatSize(dst_repeat), srcRepeatSize(src_repeat) {
    check(dst_repeat <= 4095 && src_repeat <= 4095, "Copy: a stride out of range");
  }
  size_t dstStride, srcStride, dstRepeatSize, srcRepeatSize;
};
template <typename T> bool counts(uint64_t mask, size_t k) { return k < mask; }
template <typename T> bool counts(const uint64_t *mask, size_t k) { return mask[k / 64] >> k % 64 & 1; }
template <typename T, typename Mask> void copied(const LocalTensor<T> &dst, const LocalTensor<T> &src, Mask mask, uint8_t repeatTime, const CopyRepeatParams &p) {
  static_assert(is_b16_b32<T>);
  Call call("Copy", PIPE_V);
  in_ub(dst, src);
  for (size_t r = 0; r < repeatTime; ++r)
    for (size_t b = 0; b < 8; ++b)
      for (size_t k = 0; k < per_block<T>; ++k)
        if (counts<T>(mask, b * per_block<T> + k)) {
          T x = *src.read(call, (r * p.srcRepeatSize + b * p.srcStride) * per_block<T> + k, 1);
          *dst.write(call, (r * p.dstRepeatSize + b * p.dstStride) * per_block<T> + k, 1) = x;
        }
}
// Page "Copy": with a mask; strides of blocks and of repeats may be 0.
template <typename T> void Copy(const LocalTensor<T> &dst, const LocalTensor<T> &src, uint64_t mask, uint8_t repeatTime, const CopyRepeatParams &p) {
  check(mask >= 1 && mask <= per_repeat<T>, "Copy: a mask of more than 256 bytes");
  copied(dst, src, mask, repeatTime, p);
}
template <typename T> void Copy(const LocalTensor<T> &dst, const LocalTensor<T> &src, const uint64_t mask[], uint8_t repeatTime, const CopyRepeatParams &p) {
  check(mask[0] || (sizeof(T) == 2 && mask[1]), "Copy: an empty mask");
  copied(dst, src, mask, repeatTime, p);
}
struct BrcbRepeatParams {
  BrcbRepeatParams(uint16_t block, uint16_t repeat) : dstBlkStride(block), dstRepStride(repeat) { check(block > 0, "Brcb: a block stride of 0"); }
  size_t dstBlkStride, dstRepStride;
};
// Page "Brcb": each repeat reads 8 elements and fills a block with each.
template <typename T> void Brcb(const LocalTensor<T> &dst, const LocalTensor<T> &src, uint8_t repeatTime, const BrcbRepeatParams &p) {
  static_assert(is_b16_b32<T>);
  Call call("Brcb", PIPE_V);
  in_ub(dst, src);
  for (size_t r = 0; r < repeatTime; ++r) {
    const T *s = src.read(call, r * 8, 8);
    for (size_t b = 0; b < 8; ++b) std::fill_n(dst.write(call, (r * p.dstRepStride + b * p.dstBlkStride) * per_block<T>, per_block<T>), per_block<T>, s[b]);
  }
}

// Conversion ---------------------------------------------------------------------------------------

enum class RoundMode { CAST_NONE, CAST_RINT, CAST_FLOOR, CAST_CEIL, CAST_ROUND, CAST_TRUNC, CAST_ODD };
inline double whole(double x, RoundMode m) {
  switch (m) {
    case RoundMode::CAST_FLOOR: return std::floor(x);
    case RoundMode::CAST_CEIL: return std::ceil(x);
    case RoundMode::CAST_ROUND: return std::round(x);
    case RoundMode::CAST_TRUNC: return std::trunc(x);
    default: return std::nearbyint(x);
  }
}
template <typename D> D saturated(double x) {
  if (std::isnan(x)) return 0;
  const double low = (double)std::numeric_limits<D>::min(), high = (double)std::numeric_limits<D>::max();
  return x <= low ? std::numeric_limits<D>::min() : x >= high ? std::numeric_limits<D>::max() : (D)x;
}
// A float in a narrower type: the neighbour that the mode names.
template <typename D> D narrowed(float x, RoundMode m) {
  D near = D(x);
  float y = (float)near;
  if (m == RoundMode::CAST_NONE || m == RoundMode::CAST_RINT || y == x || std::isnan(x)) return near;
  uint16_t w;
  std::memcpy(&w, &near, 2);
  uint16_t inner = std::fabs(y) > std::fabs(x) ? w - 1 : w, outer = inner + 1;  // around x, by size
  D a, b;
  std::memcpy(&a, &inner, 2);
  std::memcpy(&b, &outer, 2);
  switch (m) {
    case RoundMode::CAST_TRUNC: return a;
    case RoundMode::CAST_FLOOR: return x < 0 ? b : a;
    case RoundMode::CAST_CEIL: return x < 0 ? a : b;
    case RoundMode::CAST_ODD: return inner & 1 ? a : b;
    default: return std::fabs(x) - std::fabs((float)a) >= std::fabs((float)b) - std::fabs(x) ? b : a;
  }
}
// Page "Cast", table of the A2: which pairs there are, and which modes each takes.
template <typename D, typename S> constexpr bool casts =
    (std::is_same_v<D, half> && one_of<S, int8_t, uint8_t, int16_t, int32_t, float>) ||
    (std::is_same_v<S, half> && one_of<D, int8_t, uint8_t, int16_t, int32_t, float>) ||
    (std::is_same_v<S, float> && one_of<D, int16_t, bfloat16_t, int32_t, float, int64_t>) ||
    (std::is_same_v<D, float> && one_of<S, int16_t, bfloat16_t, int32_t, int64_t>) ||
    (std::is_same_v<S, bfloat16_t> && std::is_same_v<D, int32_t>) || (std::is_same_v<S, int32_t> && one_of<D, int16_t, int64_t>) ||
    (std::is_same_v<S, int64_t> && std::is_same_v<D, int32_t>);
template <typename D, typename S> bool takes(RoundMode m) {
  if (std::is_same_v<S, float> && std::is_same_v<D, half>) return true;
  if (m == RoundMode::CAST_ODD) return false;
  constexpr bool none_only = one_of<S, int8_t, uint8_t> || (std::is_same_v<D, float> && one_of<S, int16_t, half, bfloat16_t>) ||
                             (!is_real<S> && !is_real<D>);
  if (none_only) return m == RoundMode::CAST_NONE;
  constexpr bool with_none = (std::is_same_v<S, int16_t> && std::is_same_v<D, half>) || (std::is_same_v<S, half> && one_of<D, int8_t, uint8_t>) ||
                             (std::is_same_v<S, int32_t> && std::is_same_v<D, float>);
  return m != RoundMode::CAST_NONE || with_none;
}
inline void SetDeqScale(half scale) { me->dequant = (float)scale; ++host::calls["SetDeqScale"]; }
template <typename D, typename S> D converted(S x, RoundMode m) {
  if constexpr (std::is_same_v<S, int32_t> && std::is_same_v<D, half>) return half((float)x * me->dequant);
  else if constexpr (!is_real<S> && !is_real<D>) return saturated<D>((double)x);
  else if constexpr (!is_real<D>) return saturated<D>(whole((float)x, m));
  else if constexpr (std::is_same_v<D, float>) return std::is_same_v<S, float> ? (float)whole((float)x, m) : (float)x;
  else return narrowed<D>((float)x, m);
}
template <typename D, typename S> void Cast(const LocalTensor<D> &dst, const LocalTensor<S> &src, const RoundMode &roundMode, const uint32_t count) {
  static_assert(casts<D, S>);
  Call call("Cast", PIPE_V);
  in_ub(dst, src);
  check(takes<D, S>(roundMode), "Cast: a mode that these types don't take");
  const S *s = src.read(call, 0, count);
  D *d = dst.write(call, 0, count);
  if ((const void *)d > (const void *)s) for (size_t k = count; k-- > 0;) d[k] = converted<D>(s[k], roundMode);
  else for (size_t k = 0; k < count; ++k) d[k] = converted<D>(s[k], roundMode);
}

// Comparison ---------------------------------------------------------------------------------------

enum class CMPMODE : uint8_t { LT, GT, EQ, LE, GE, NE };
template <typename T> bool compared(T a, T b, CMPMODE m) {
  float x = (float)a, y = (float)b;
  switch (m) {
    case CMPMODE::LT: return x < y;
    case CMPMODE::GT: return x > y;
    case CMPMODE::EQ: return a == b;
    case CMPMODE::LE: return x <= y;
    case CMPMODE::GE: return x >= y;
    default: return a != b;
  }
}
template <typename T, typename U, typename F> void compared_all(Call &call, const LocalTensor<U> &dst, const LocalTensor<T> &src0, CMPMODE m, uint32_t count, F other) {
  static_assert(one_of<T, half, float, int32_t> && one_of<U, int8_t, uint8_t>);
  check(is_half_float<T> || m == CMPMODE::EQ, "Compare: int32 takes EQ only");
  check(count * sizeof(T) % 256 == 0, "Compare: what is behind the last 256 bytes is left out");
  const T *a = src0.read(call, 0, count);
  uint8_t *d = (uint8_t *)dst.write(call, 0, count / 8);
  for (size_t k = 0; k < count; ++k) {
    uint8_t bit = 1 << k % 8;
    d[k / 8] = compared(a[k], other(k), m) ? d[k / 8] | bit : d[k / 8] & ~bit;
  }
}
// Pages "Compare", "Compares": a bit for each element, whole repeats of 256 bytes only.
template <typename T, typename U> void Compare(const LocalTensor<U> &dst, const LocalTensor<T> &src0, const LocalTensor<T> &src1, CMPMODE cmpMode, uint32_t count) {
  Call call("Compare", PIPE_V);
  in_ub(dst, src0, src1);
  const T *b = src1.read(call, 0, count);
  compared_all(call, dst, src0, cmpMode, count, [=](size_t k) { return b[k]; });
}
template <typename T, typename U> void Compares(const LocalTensor<U> &dst, const LocalTensor<T> &src0, const T src1Scalar, CMPMODE cmpMode, uint32_t count) {
  Call call("Compares", PIPE_V);
  in_ub(dst, src0);
  compared_all(call, dst, src0, cmpMode, count, [=](size_t) { return src1Scalar; });
}

// Reduction ----------------------------------------------------------------------------------------

enum class ReduceOrder { ORDER_VALUE_INDEX, ORDER_INDEX_VALUE, ORDER_ONLY_VALUE, ORDER_ONLY_INDEX };
// Page "ReduceDataBlock": sums pair by pair, as a tree.
template <typename T> T tree_sum(std::vector<T> x) {
  while (x.size() > 1) {
    std::vector<T> y;
    for (size_t k = 0; k < x.size(); k += 2) y.push_back(k + 1 < x.size() ? T((float)x[k] + (float)x[k + 1]) : x[k]);
    x = y;
  }
  return x[0];
}
// Pages "WholeReduceSum/Max/Min" (ReduceRepeat): one result for each repeat, one element of the
// target apart for each of dstRepStride; sources in blocks.
template <typename T, typename F> void reduced(const char *name, const LocalTensor<T> &dst, const LocalTensor<T> &src, int32_t mask, int32_t repeatTime, int32_t dstRep, int32_t srcBlk, int32_t srcRep, F f) {
  static_assert(is_half_float<T>);
  Call call(name, PIPE_V);
  in_ub(src);
  check(is_ub(dst.position) && dst.at % sizeof(T) == 0, std::string(name) + ": a target outside of UB");
  check(mask >= 0 && (size_t)mask <= per_repeat<T> && repeatTime >= 0 && repeatTime <= 255, std::string(name) + ": a mask or repeats out of range");
  check(dstRep >= 0 && dstRep <= 65535 && srcBlk >= 0 && srcBlk <= 65535 && srcRep >= 0 && srcRep <= 65535, std::string(name) + ": a stride out of range");
  for (int32_t r = 0; mask && r < repeatTime; ++r) {
    std::vector<T> x;
    for (int32_t b = 0; b < 8; ++b)
      for (size_t k = 0; k < per_block<T> && b * per_block<T> + k < (size_t)mask; ++k) x.push_back(*src.read(call, ((size_t)r * srcRep + b * srcBlk) * per_block<T> + k, 1));
    *dst.write(call, (size_t)r * dstRep, 1) = f(x);
  }
}
template <typename T> void WholeReduceSum(const LocalTensor<T> &dst, const LocalTensor<T> &src, int32_t mask, int32_t repeatTime, int32_t dstRepStride, int32_t srcBlkStride, int32_t srcRepStride) {
  reduced("WholeReduceSum", dst, src, mask, repeatTime, dstRepStride, srcBlkStride, srcRepStride, [](const std::vector<T> &x) { return tree_sum(x); });
}
// With ORDER_VALUE_INDEX a pair: the value, and the bits of its place as an element; targets of half
// lie at words.
template <typename T, typename F> void reduced_with_place(const char *name, const LocalTensor<T> &dst, const LocalTensor<T> &src, int32_t mask, int32_t repeatTime, int32_t dstRep, int32_t srcBlk, int32_t srcRep, F better) {
  static_assert(is_half_float<T>);
  Call call(name, PIPE_V);
  in_ub(src);
  check(is_ub(dst.position) && dst.at % (2 * sizeof(T)) == 0, std::string(name) + ": a pair that is not aligned");
  check(mask >= 0 && (size_t)mask <= per_repeat<T> && repeatTime >= 0 && repeatTime <= 255, std::string(name) + ": a mask or repeats out of range");
  for (int32_t r = 0; mask && r < repeatTime; ++r) {
    size_t best = 0;
    T value = *src.read(call, (size_t)r * srcRep * per_block<T>, 1);
    for (size_t k = 1; k < (size_t)mask; ++k) {
      T x = *src.read(call, ((size_t)r * srcRep + k / per_block<T> * srcBlk) * per_block<T> + k % per_block<T>, 1);
      if (better(x, value)) { value = x; best = k; }
    }
    T *d = dst.write(call, (size_t)r * dstRep * 2, 2);
    d[0] = value;
    std::conditional_t<sizeof(T) == 2, uint16_t, uint32_t> place = best;
    std::memcpy(d + 1, &place, sizeof(T));
  }
}
#define WHOLE(name, better) \
  template <typename T> void name(const LocalTensor<T> &dst, const LocalTensor<T> &src, int32_t mask, int32_t repeatTime, int32_t dstRepStride, int32_t srcBlkStride, int32_t srcRepStride, ReduceOrder order) { \
    check(order == ReduceOrder::ORDER_ONLY_VALUE || order == ReduceOrder::ORDER_VALUE_INDEX, #name ": an order that no source here asks for"); \
    if (order == ReduceOrder::ORDER_VALUE_INDEX) { \
      reduced_with_place(#name, dst, src, mask, repeatTime, dstRepStride, srcBlkStride, srcRepStride, [](T x, T y) { return (float)x better (float)y; }); \
      return; \
    } \
    reduced(#name, dst, src, mask, repeatTime, dstRepStride, srcBlkStride, srcRepStride, [](const std::vector<T> &x) { \
      T best = x[0]; \
      for (T y : x) if ((float)y better (float)best || std::isnan((float)y)) best = y; \
      return best; }); \
  }
WHOLE(WholeReduceMax, >) WHOLE(WholeReduceMin, <)
#undef WHOLE
// Page "ReduceDataBlock" (BlockReduce..., whose repeats stand before the mask): one result for each
// block, 8 in a repeat, side by side; a block of which no element counts has none.
template <typename T, typename F> void reduced_blocks(const char *name, const LocalTensor<T> &dst, const LocalTensor<T> &src, int32_t repeatTime, int32_t mask, int32_t dstRep, int32_t srcBlk, int32_t srcRep, F f) {
  static_assert(is_half_float<T>);
  Call call(name, PIPE_V);
  in_ub(src);
  check(is_ub(dst.position) && dst.at % (8 * sizeof(T)) == 0, std::string(name) + ": a target that is not aligned");
  check(mask >= 0 && (size_t)mask <= per_repeat<T> && repeatTime >= 0 && repeatTime <= 255, std::string(name) + ": a mask or repeats out of range");
  for (int32_t r = 0; r < repeatTime; ++r)
    for (size_t b = 0; b < 8 && b * per_block<T> < (size_t)mask; ++b) {
      size_t n = std::min(per_block<T>, mask - b * per_block<T>);
      const T *s = src.read(call, ((size_t)r * srcRep + b * srcBlk) * per_block<T>, n);
      *dst.write(call, (size_t)r * dstRep * 8 + b, 1) = f(std::vector<T>(s, s + n));
    }
}
#define BLOCKS(name, best) \
  template <typename T> void name(const LocalTensor<T> &dst, const LocalTensor<T> &src, int32_t repeatTime, int32_t mask, int32_t dstRepStride, int32_t srcBlkStride, int32_t srcRepStride) { \
    reduced_blocks(#name, dst, src, repeatTime, mask, dstRepStride, srcBlkStride, srcRepStride, [](const std::vector<T> &x) { return best; }); \
  }
BLOCKS(BlockReduceSum, tree_sum(x)) BLOCKS(BlockReduceMax, *std::max_element(x.begin(), x.end())) BLOCKS(BlockReduceMin, *std::min_element(x.begin(), x.end()))
#undef BLOCKS

// Gathering ----------------------------------------------------------------------------------------

// Page "Gather": offsets in bytes from the source's beginning and srcBaseAddr.
template <typename T> void Gather(const LocalTensor<T> &dst, const LocalTensor<T> &src, const LocalTensor<uint32_t> &srcOffset, const uint32_t srcBaseAddr, const uint32_t count) {
  static_assert(is_b16_b32<T>);
  Call call("Gather", PIPE_V);
  in_ub(dst, src, srcOffset);
  const uint32_t *o = srcOffset.read(call, 0, count);
  T *d = dst.write(call, 0, count);
  for (size_t k = 0; k < count; ++k) {
    size_t byte = (size_t)o[k] + srcBaseAddr;
    check(byte % sizeof(T) == 0, "Gather: an offset between elements");
    d[k] = *src.read(call, byte / sizeof(T), 1);
  }
}
struct GatherRepeatParams {
  GatherRepeatParams(uint8_t block, uint8_t repeat) : dstBlkStride(block ? block : 1), dstRepStride(repeat) {}
  size_t dstBlkStride, dstRepStride;
};
// Page "Gatherb": whole blocks, 8 for each repeat.
template <typename T> void Gatherb(const LocalTensor<T> &dst, const LocalTensor<T> &src, const LocalTensor<uint32_t> &offset, uint8_t repeatTime, const GatherRepeatParams &p) {
  static_assert(one_of<T, uint16_t, uint32_t>);
  Call call("Gatherb", PIPE_V);
  in_ub(dst, src, offset);
  for (size_t r = 0; r < repeatTime; ++r)
    for (size_t b = 0; b < 8; ++b) {
      uint32_t byte = *offset.read(call, r * 8 + b, 1);
      check((src.at + byte) % 32 == 0, "Gatherb: an offset between blocks");
      std::memcpy(dst.write(call, (r * p.dstRepStride + b * p.dstBlkStride) * per_block<T>, per_block<T>), src.read(call, byte / sizeof(T), per_block<T>), 32);
    }
}
struct GatherMaskParams {
  GatherMaskParams(uint8_t block, uint16_t times, uint16_t repeat, uint8_t pattern) : src0BlockStride(block), repeatTimes(times), src0RepeatStride(repeat), src1RepeatStride(pattern) {}
  size_t src0BlockStride, repeatTimes, src0RepeatStride, src1RepeatStride;
};
// Page "GatherMask", counter mode with a built-in pattern: the elements of a set place in each 2 or 4.
template <typename T> void GatherMask(const LocalTensor<T> &dst, const LocalTensor<T> &src0, const uint8_t src1Pattern, const bool reduceMode, const uint32_t mask, const GatherMaskParams &p, uint64_t &rsvdCnt) {
  static_assert(is_b16_b32<T>);
  Call call("GatherMask", PIPE_V);
  in_ub(dst, src0);
  check(reduceMode && p.repeatTimes == 1 && p.src0BlockStride == 1 && src1Pattern >= 1 && src1Pattern <= 7, "GatherMask: a mode that no source here asks for");
  const int steps[] = {0, 2, 2, 4, 4, 4, 4, 1}, firsts[] = {0, 0, 1, 0, 1, 2, 3, 0};
  rsvdCnt = 0;
  for (size_t k = firsts[src1Pattern]; k < mask; k += steps[src1Pattern]) {
    T x = *src0.read(call, k, 1);
    *dst.write(call, rsvdCnt++, 1) = x;
  }
}
// With a tensor of bits, which one repeat uses up one after the other; words of the elements' width.
template <typename T, typename U> void GatherMask(const LocalTensor<T> &dst, const LocalTensor<T> &src0, const LocalTensor<U> &src1Pattern, const bool reduceMode, const uint32_t mask, const GatherMaskParams &p, uint64_t &rsvdCnt) {
  static_assert(is_b16_b32<T> && one_of<U, uint16_t, uint32_t> && sizeof(T) == sizeof(U));
  Call call("GatherMask", PIPE_V);
  in_ub(dst, src0, src1Pattern);
  check(reduceMode && p.repeatTimes == 1 && p.src0BlockStride == 1, "GatherMask: a mode that no source here asks for");
  rsvdCnt = 0;
  for (size_t k = 0; k < mask; ++k) {
    U word = *src1Pattern.read(call, k / (8 * sizeof(U)), 1);
    if (!(word >> k % (8 * sizeof(U)) & 1)) continue;
    T x = *src0.read(call, k, 1);
    *dst.write(call, rsvdCnt++, 1) = x;
  }
}

// Transposing --------------------------------------------------------------------------------------

struct TransDataTo5HDParams {
  bool dstHighHalf = false, srcHighHalf = false;
  uint8_t repeatTimes = 1;
  uint16_t dstRepStride = 0, srcRepStride = 0;
};
// Page "TransDataTo5HD": 16 blocks side by side. Of 16 bits each place gives a block; of 32 bits two,
// at neighbours of the list; of 8 bits half a block, of the half that is named.
template <typename T> void TransDataTo5HD(uint64_t (&dstList)[16], uint64_t (&srcList)[16], const TransDataTo5HDParams &p) {
  static_assert(one_of<T, int8_t, uint8_t, int16_t, uint16_t, half, int32_t, uint32_t, float>);
  Call call("TransDataTo5HD", PIPE_V);
  check(p.repeatTimes == 1 && p.dstRepStride == 0 && p.srcRepStride == 0, "TransDataTo5HD: repeats, which no source here has");
  constexpr size_t lanes = sizeof(T) == 4 ? 8 : 16;
  T from[16][lanes];
  auto place = [](uint64_t address) {
    size_t at = (uint8_t *)address - me->ub.data;
    check(at % 32 == 0, "TransDataTo5HD: an address between blocks");
    return at;
  };
  for (size_t k = 0; k < 16; ++k)
    std::memcpy(from[k], call.read(me->ub, place(srcList[k]) + (sizeof(T) == 1 && p.srcHighHalf ? 16 : 0), lanes * sizeof(T)), lanes * sizeof(T));
  for (size_t k = 0; k < 16; ++k) {
    T to[lanes];
    for (size_t j = 0; j < lanes; ++j) to[j] = sizeof(T) == 4 ? from[k % 2 * 8 + j][k / 2] : from[j][k];
    std::memcpy(call.write(me->ub, place(dstList[k]) + (sizeof(T) == 1 && p.dstHighHalf ? 16 : 0), sizeof(to)), to, sizeof(to));
  }
}

// Sorting ------------------------------------------------------------------------------------------

// A pair of 8 bytes: the score in its low bytes, the index in the high word.
template <typename T> T score_of(const uint8_t *pair) {
  T x;
  std::memcpy(&x, pair, sizeof(T));
  return x;
}
// Page "Sort32": 32 elements for each repeat, from the largest on; of equal ones the earlier comes first.
template <typename T> void Sort32(const LocalTensor<T> &dst, const LocalTensor<T> &src0, const LocalTensor<uint32_t> &src1, const int32_t repeatTime) {
  static_assert(is_half_float<T>);
  Call call("Sort32", PIPE_V);
  in_ub(dst, src0, src1);
  check(repeatTime >= 0 && repeatTime <= 255, "Sort32: repeats out of range");
  for (int32_t r = 0; r < repeatTime; ++r) {
    const T *s = src0.read(call, r * 32, 32);
    const uint32_t *index = src1.read(call, r * 32, 32);
    std::vector<size_t> order(32);
    for (size_t k = 0; k < 32; ++k) order[k] = k;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return (float)s[a] > (float)s[b]; });
    std::vector<uint8_t> made(256, 0);
    for (size_t k = 0; k < 32; ++k) {
      std::memcpy(&made[8 * k], &s[order[k]], sizeof(T));
      std::memcpy(&made[8 * k + 4], &index[order[k]], 4);
    }
    std::memcpy(dst.write(call, r * 256 / sizeof(T), 256 / sizeof(T)), made.data(), 256);
  }
}
struct MrgSort4Info {
  uint16_t elementLengths[4] = {0, 0, 0, 0};
  bool ifExhaustedSuspension = false;
  uint16_t validBit = 0, repeatTimes = 1;
};
template <typename T> struct MrgSortSrcList {
  MrgSortSrcList(const LocalTensor<T> &a, const LocalTensor<T> &b, const LocalTensor<T> &c, const LocalTensor<T> &d) : lists{a, b, c, d} {}
  LocalTensor<T> lists[4];
};
// Page "MrgSort": up to four sorted lists of pairs; of equal scores the earlier list comes first.
template <typename T> void MrgSort(const LocalTensor<T> &dst, const MrgSortSrcList<T> &src, const MrgSort4Info &p) {
  static_assert(is_half_float<T>);
  Call call("MrgSort", PIPE_V);
  in_ub(dst);
  check((p.validBit == 3 || p.validBit == 7 || p.validBit == 15) && p.repeatTimes == 1 && !p.ifExhaustedSuspension, "MrgSort: parameters that no source here has");
  constexpr size_t words = 8 / sizeof(T);
  std::vector<std::array<uint8_t, 8>> pairs;
  for (int k = 0; k < 4 && (p.validBit >> k & 1); ++k) {
    const LocalTensor<T> &list = src.lists[k];
    check(p.elementLengths[k] >= 1 && p.elementLengths[k] <= 4095, "MrgSort: a length out of range");
    check(list.at % 8 == 0, "MrgSort: a list that is not aligned");
    check(list.at + p.elementLengths[k] * 8 <= dst.at || dst.at + p.elementLengths[k] * 8 <= list.at, "MrgSort: a list under its target");
    const uint8_t *s = (const uint8_t *)list.read(call, 0, p.elementLengths[k] * words);
    for (size_t j = 0; j < p.elementLengths[k]; ++j) {
      std::memcpy(pairs.emplace_back().data(), s + 8 * j, 8);
      check(j == 0 || (float)score_of<T>(s + 8 * j) <= (float)score_of<T>(s + 8 * j - 8), "MrgSort: a list that is not sorted");
    }
  }
  std::stable_sort(pairs.begin(), pairs.end(), [](auto &a, auto &b) { return (float)score_of<T>(a.data()) > (float)score_of<T>(b.data()); });
  std::memcpy(dst.write(call, 0, pairs.size() * words), pairs.data(), pairs.size() * 8);
}
}  // namespace AscendC
