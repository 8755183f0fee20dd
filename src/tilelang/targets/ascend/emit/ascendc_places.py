"""Functions in AscendC that move elements within UB: transposes, sorting, bytes, single elements.

What leaves: `PLACES`, texts by name, and `PLACES_SCRATCH`, the bytes of UB that each works in. What
no function of the vector units does is done by the scalar unit, between barriers of all pipes.
"""

from __future__ import annotations

PLACES: dict[str, str] = {
    # 16 blocks of 32 bytes are read side by side, and come out as columns; of 4 bytes, two blocks
    # for each; of one byte, half a block (page TransDataTo5HD).
    "transpose_blocks": """\
template <typename T>
__aicore__ inline void transpose_blocks(
    const LocalTensor<T>& dst, const LocalTensor<T>& src, int32_t rows, int32_t columns,
    int32_t dst_pitch, int32_t pitch) {
  constexpr int32_t block = 32 / sizeof(T), halves = sizeof(T) == 1 ? 2 : 1;
  TransDataTo5HDParams params;
  params.repeatTimes = 1;
  params.dstRepStride = 0;
  params.srcRepStride = 0;
  for (int32_t r = 0; r < rows; r += 16 * halves) {
    for (int32_t c = 0; c < columns; c += block) {
      for (int32_t part = 0; part < halves * halves; ++part) {
        int32_t down = part / 2, across = part % 2;
        params.dstHighHalf = down == 1;
        params.srcHighHalf = across == 1;
        uint64_t from[16], to[16];
        for (int32_t k = 0; k < 16; ++k) {
          int32_t column = sizeof(T) == 4 ? k / 2 : across * 16 + k;
          int32_t first = sizeof(T) == 4 ? k % 2 * 8 : 0;
          from[k] = (uint64_t)src[(r + down * 16 + k) * pitch + c].GetPhyAddr();
          to[k] = (uint64_t)dst[(c + column) * dst_pitch + r + first].GetPhyAddr();
        }
        TransDataTo5HD<T>(to, from, params);
      }
    }
  }
}
""",
    # Any number of rows: each column is gathered.
    "transpose_columns": """\
template <typename T>
__aicore__ inline void transpose_columns(
    const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint8_t>& scratch,
    int32_t rows, int32_t columns, int32_t dst_pitch, int32_t pitch) {
  constexpr int32_t wide = 512, size = sizeof(T);
  LocalTensor<int32_t> offsets = scratch.ReinterpretCast<int32_t>();
  for (int32_t at = 0; at < rows; at += wide) {
    int32_t n = rows - at < wide ? rows - at : wide;
    progression<int32_t>(offsets, 0, pitch * size, n);
    PipeBarrier<PIPE_V>();
    for (int32_t c = 0; c < columns; ++c) {
      Gather(dst[c * dst_pitch + at], src, offsets.ReinterpretCast<uint32_t>(),
             (uint32_t)((at * pitch + c) * size), (uint32_t)n);
    }
  }
}
""",
    "transpose_elements": """\
template <typename T>
__aicore__ inline void transpose_elements(
    const LocalTensor<T>& dst, const LocalTensor<T>& src, int32_t rows, int32_t columns,
    int32_t dst_pitch, int32_t pitch) {
  PipeBarrier<PIPE_ALL>();
  for (int32_t r = 0; r < rows; ++r) {
    for (int32_t c = 0; c < columns; ++c) {
      dst.SetValue(c * dst_pitch + r, src.GetValue(r * pitch + c));
    }
  }
  PipeBarrier<PIPE_ALL>();
}
""",
    # Pairs (value, place) from the largest value on. Runs of 32 are sorted, then merged by fours
    # from one half of the temporary to the other; what is behind n counts as the least number.
    "sort_pairs": """\
template <typename T>
__aicore__ inline void sort_pairs(
    const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint8_t>& scratch,
    int32_t n, int32_t count, int32_t dst_count) {
  int32_t all = (count + 31) / 32 * 32;
  LocalTensor<float> from = scratch.ReinterpretCast<float>();
  LocalTensor<float> to = from[2 * all], places = to, values = to[all];
  PipeBarrier<PIPE_V>();
  Duplicate(values, (float)-__builtin_huge_valf(), all);
  progression<float>(places, 0.0f, 1.0f, all);
  PipeBarrier<PIPE_V>();
  if constexpr (sizeof(T) == 2) {
    Cast(values, src, RoundMode::CAST_NONE, (uint32_t)n);
  } else {
    copy_part(values, src, n);
  }
  PipeBarrier<PIPE_V>();
  Sort32(from, values, places.ReinterpretCast<uint32_t>(), all / 32);
  for (int32_t run = 32; run < all; run *= 4) {
    PipeBarrier<PIPE_V>();
    for (int32_t at = 0; at < all; at += 4 * run) {
      MrgSort4Info params;
      LocalTensor<float> lists[4];
      int32_t many = 0;
      for (int32_t k = 0; k < 4; ++k) {
        int32_t left = all - at - k * run, length = left < 0 ? 0 : left < run ? left : run;
        params.elementLengths[k] = (uint16_t)length;
        lists[k] = from[length > 0 ? 2 * (at + k * run) : 2 * at];
        many += length > 0 ? 1 : 0;
      }
      if (many == 1) {
        DataCopy(to[2 * at], from[2 * at], (uint32_t)(2 * params.elementLengths[0]));
        continue;
      }
      params.ifExhaustedSuspension = false;
      params.validBit = (uint16_t)((1 << many) - 1);
      params.repeatTimes = 1;
      MrgSort(to[2 * at], MrgSortSrcList<float>(lists[0], lists[1], lists[2], lists[3]), params);
    }
    LocalTensor<float> made = to;
    to = from;
    from = made;
  }
  PipeBarrier<PIPE_V>();
  if constexpr (sizeof(T) == 2) {
    Cast(dst, from, RoundMode::CAST_RINT, (uint32_t)dst_count);
  } else {
    copy_part(dst, from, dst_count);
  }
}
""",
    # Lists of pairs of 8 bytes, of which unused ones are empty.
    "merge_pairs": """\
__aicore__ inline void merge_pairs(
    const LocalTensor<float>& dst, const LocalTensor<float>& a, const LocalTensor<float>& b,
    const LocalTensor<float>& c, const LocalTensor<float>& d, int32_t na, int32_t nb, int32_t nc,
    int32_t nd) {
  MrgSort4Info params;
  params.elementLengths[0] = (uint16_t)na;
  params.elementLengths[1] = (uint16_t)nb;
  params.elementLengths[2] = (uint16_t)nc;
  params.elementLengths[3] = (uint16_t)nd;
  params.ifExhaustedSuspension = false;
  params.validBit = nd > 0 ? 15 : nc > 0 ? 7 : 3;
  params.repeatTimes = 1;
  MrgSort(dst, MrgSortSrcList<float>(a, b, c, d), params);
}
""",
    # A row for each element of the source, which are `step` apart. Bytes are filled in pairs.
    "expand_elements": """\
template <typename T>
__aicore__ inline void expand_elements(
    const LocalTensor<T>& dst, const LocalTensor<T>& src, int32_t rows, int32_t columns,
    int32_t pitch, int32_t step) {
  for (int32_t row = 0; row < rows; ++row) {
    PipeBarrier<PIPE_ALL>();
    T value = src.GetValue(row * step);
    if constexpr (sizeof(T) == 1) {
      if (columns > 1) {
        Duplicate(dst[row * pitch].template ReinterpretCast<uint16_t>(),
                  (uint16_t)((uint8_t)value * 257), columns / 2);
      }
      if (columns % 2 == 1) {
        PipeBarrier<PIPE_ALL>();
        dst.SetValue(row * pitch + columns - 1, value);
      }
    } else {
      Duplicate(dst[row * pitch], value, columns);
    }
  }
  PipeBarrier<PIPE_ALL>();
}
""",
    # first + k step, in float and rounded once.
    "progression_half": """\
__aicore__ inline void progression_half(
    const LocalTensor<half>& dst, const LocalTensor<uint8_t>& scratch, half first, half step,
    int32_t count) {
  constexpr int32_t wide = 512;
  LocalTensor<float> x = scratch.ReinterpretCast<float>();
  for (int32_t at = 0; at < count; at += wide) {
    int32_t n = count - at < wide ? count - at : wide;
    progression<float>(x, (float)at, 1.0f, n);
    PipeBarrier<PIPE_V>();
    Muls(x, x, (float)step, n);
    PipeBarrier<PIPE_V>();
    Adds(x, x, (float)first, n);
    PipeBarrier<PIPE_V>();
    Cast(dst[at], x, RoundMode::CAST_RINT, (uint32_t)n);
  }
}
""",
    # One element of global memory, by way of UB: the cache of the scalar unit holds whole lines,
    # which other cores may write to.
    "store_element": """\
template <typename T>
__aicore__ inline void store_element(
    const GlobalTensor<T>& dst, T value, const LocalTensor<uint8_t>& scratch) {
  LocalTensor<T> x = scratch.ReinterpretCast<T>();
  PipeBarrier<PIPE_ALL>();
  x.SetValue(0, value);
  PipeBarrier<PIPE_ALL>();
  DataCopyPad(dst, x, DataCopyExtParams(1, (uint32_t)sizeof(T), 0, 0, 0));
  PipeBarrier<PIPE_ALL>();
}
""",
    "load_element": """\
template <typename T>
__aicore__ inline T load_element(
    const GlobalTensor<T>& src, const LocalTensor<uint8_t>& scratch) {
  LocalTensor<T> x = scratch.ReinterpretCast<T>();
  PipeBarrier<PIPE_ALL>();
  DataCopyPad(x, src, DataCopyExtParams(1, (uint32_t)sizeof(T), 0, 0, 0),
      DataCopyPadExtParams<T>(false, 0, 0, (T)0));
  PipeBarrier<PIPE_ALL>();
  return x.GetValue(0);
}
""",
    # A function of one number: the vector units do it in a temporary.
    **{
        f"one_{name}": f"""\
template <typename T>
__aicore__ inline T one_{name}(T value, const LocalTensor<uint8_t>& scratch) {{
  LocalTensor<T> x = scratch.ReinterpretCast<T>();
  PipeBarrier<PIPE_V>();
  Duplicate(x, value, 8);
  PipeBarrier<PIPE_V>();
  {call}
  PipeBarrier<PIPE_ALL>();
  return x.GetValue(0);
}}
"""
        for name, call in (
            ("exp", "Exp(x, x, 8);"),
            ("log", "Ln(x, x, 8);"),
            ("sqrt", "Sqrt(x, x, 8);"),
            ("rsqrt", "Rsqrt(x, x, 8);"),
            ("floor", "Cast(x, x, RoundMode::CAST_FLOOR, 8);"),
            ("ceil", "Cast(x, x, RoundMode::CAST_CEIL, 8);"),
            ("trunc", "Cast(x, x, RoundMode::CAST_TRUNC, 8);"),
            ("round", "Cast(x, x, RoundMode::CAST_RINT, 8);"),
            ("sigmoid", "sigmoid(x, x, scratch[32], 8);"),
            ("sin", "sine(x, x, scratch[32], 8);"),
            ("cos", "cosine(x, x, scratch[32], 8);"),
        )
    },
    "one_pow": """\
template <typename T>
__aicore__ inline T one_pow(T a, T b, const LocalTensor<uint8_t>& scratch) {
  LocalTensor<T> x = scratch.ReinterpretCast<T>();
  PipeBarrier<PIPE_V>();
  Duplicate(x, a, 8);
  PipeBarrier<PIPE_V>();
  power_by(x, x, scratch[32], b, 8);
  PipeBarrier<PIPE_ALL>();
  return x.GetValue(0);
}
""",
}
PLACES_SCRATCH = {
    "transpose_columns": 2048,
    "progression_half": 2048,
    "store_element": 32,
    "load_element": 32,
}
PLACES_CALLS = {
    "transpose_columns": ("progression",),
    "progression_half": ("progression",),
    "sort_pairs": ("progression", "copy_part"),
    "one_sigmoid": ("sigmoid",),
    "one_sin": ("sine",),
    "one_cos": ("cosine",),
    "one_pow": ("power_by",),
}

__all__ = ["PLACES", "PLACES_CALLS", "PLACES_SCRATCH"]
