"""Functions in AscendC that a source for A2 and A3 may need, printed in front of its kernel.

What leaves: `HELPERS`, by name. Each says something that the API has no function for, or none that
a kernel without `TPipe` may call (CANN's guide, programming with static tensors): they call basic
functions only, and order their own calls by barriers of V. `scratch` lies in UB behind all buffers.
"""

from __future__ import annotations

from tilelang.targets.ascend.emit.ascendc_maths import MATHS, MATHS_CALLS, MATHS_SCRATCH
from tilelang.targets.ascend.emit.ascendc_places import PLACES, PLACES_CALLS, PLACES_SCRATCH

HELPERS: dict[str, str] = {
    **MATHS,
    **PLACES,
    "lesser": """\
template <typename T> __aicore__ inline T lesser(T a, T b) { return a != a || a < b ? a : b; }
""",
    "greater": """\
template <typename T> __aicore__ inline T greater(T a, T b) { return a != a || a > b ? a : b; }
""",
    "magnitude": """\
template <typename T> __aicore__ inline T magnitude(T x) { return x < 0 ? (T)-x : x; }
""",
    # Elements that are no whole number of blocks: a mask says how many. Bytes go in pairs, a last
    # one by the scalar unit.
    "copy_part": """\
template <typename T>
__aicore__ inline void copy_part(
    const LocalTensor<T>& dst, const LocalTensor<T>& src, int32_t count) {
  if constexpr (sizeof(T) == 1) {
    if (count > 1) {
      copy_part(dst.template ReinterpretCast<uint16_t>(), src.template ReinterpretCast<uint16_t>(),
                count / 2);
    }
    if (count % 2 == 1) {
      PipeBarrier<PIPE_ALL>();
      dst.SetValue(count - 1, src.GetValue(count - 1));
      PipeBarrier<PIPE_ALL>();
    }
  } else {
    constexpr int32_t wide = 256 / sizeof(T);
    for (int32_t at = 0; at < count; at += wide) {
      uint64_t mask = count - at < wide ? count - at : wide;
      Copy(dst[at], src[at], mask, 1, CopyRepeatParams(1, 1, 8, 8));
    }
  }
}
""",
    # A load ends at a whole block. Where the target has elements behind it, the last block of each
    # row goes to the temporary, and what counts of it from there.
    "load_rows": """\
template <typename T>
__aicore__ inline void load_rows(
    const LocalTensor<T>& dst, const GlobalTensor<T>& src, const LocalTensor<uint8_t>& scratch,
    int32_t rows, int32_t columns, int32_t src_pitch, int32_t dst_pitch) {
  constexpr int32_t block = 32 / sizeof(T), size = sizeof(T), most = 128;
  int32_t tail = columns % block, whole = columns - tail;
  DataCopyPadExtParams<T> nothing(false, 0, 0, (T)0);
  if (whole > 0) {
    DataCopyExtParams blocks((uint16_t)rows, (uint32_t)(whole * size),
        (uint32_t)((src_pitch - whole) * size), (uint32_t)((dst_pitch - whole) / block), 0);
    DataCopyPad(dst, src, blocks, nothing);
  }
  LocalTensor<T> ends = scratch.ReinterpretCast<T>();
  for (int32_t row = 0; tail > 0 && row < rows; row += most) {
    int32_t count = rows - row < most ? rows - row : most;
    PipeBarrier<PIPE_ALL>();
    DataCopyExtParams parts((uint16_t)count, (uint32_t)(tail * size),
        (uint32_t)((src_pitch - tail) * size), 0, 0);
    DataCopyPad(ends, src[row * src_pitch + whole], parts, nothing);
    PipeBarrier<PIPE_ALL>();
    for (int32_t k = 0; k < count; ++k) {
      copy_part(dst[(row + k) * dst_pitch + whole], ends[k * block], tail);
    }
    PipeBarrier<PIPE_ALL>();
  }
}
""",
    # Row r of the target is full of element r of the source.
    "expand_column": """\
template <typename T>
__aicore__ inline void expand_column(
    const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint8_t>& scratch,
    int32_t rows, int32_t columns, int32_t pitch) {
  constexpr int32_t block = 32 / sizeof(T), wide = 256 / sizeof(T);
  LocalTensor<T> blocks = scratch.ReinterpretCast<T>();
  for (int32_t row = 0; row < rows; row += 64) {
    int32_t count = rows - row < 64 ? rows - row : 64;
    PipeBarrier<PIPE_V>();
    Brcb(blocks, src[row], (uint8_t)((count + 7) / 8), BrcbRepeatParams(1, 8));
    PipeBarrier<PIPE_V>();
    for (int32_t at = 0; at < columns; at += wide) {
      uint64_t mask = columns - at < wide ? columns - at : wide;
      Copy(dst[row * pitch + at], blocks, mask, (uint8_t)count,
           CopyRepeatParams(1, 0, (uint16_t)(pitch / block), 1));
    }
  }
}
""",
    # One operand has an element for each row: a block of it, which all blocks of the row use.
    **{
        f"{op.lower()}_{side}": f"""\
template <typename T>
__aicore__ inline void {op.lower()}_{side}(
    const LocalTensor<T>& dst, const LocalTensor<T>& tile, const LocalTensor<T>& column,
    const LocalTensor<uint8_t>& scratch, int32_t rows, int32_t columns, int32_t dst_pitch,
    int32_t pitch) {{
  constexpr int32_t block = 32 / sizeof(T), wide = 256 / sizeof(T);
  LocalTensor<T> blocks = scratch.ReinterpretCast<T>();
  int32_t far = dst_pitch / block, step = pitch / block;
  int32_t most = far > 255 || step > 255 ? 1 : 64;  // strides of repeats are bytes
  for (int32_t first = 0; first < rows; first += 64) {{
    int32_t left = rows - first < 64 ? rows - first : 64;
    PipeBarrier<PIPE_V>();
    Brcb(blocks, column[first], (uint8_t)((left + 7) / 8), BrcbRepeatParams(1, 8));
    PipeBarrier<PIPE_V>();
    for (int32_t row = 0; row < left; row += most) {{
      int32_t count = left - row < most ? left - row : most;
      for (int32_t at = 0; at < columns; at += wide) {{
        uint64_t mask = columns - at < wide ? columns - at : wide;
        {op}(dst[(first + row) * dst_pitch + at], {operands},
            mask, (uint8_t)count, BinaryRepeatParams(1, {blocks}, (uint8_t)far, {steps}));
      }}
    }}
  }}
}}
"""
        for op in ("Add", "Sub", "Mul", "Div", "Max", "Min")
        for side, operands, blocks, steps in (
            (
                "column",
                "tile[(first + row) * pitch + at], blocks[row * block]",
                "1, 0",
                "(uint8_t)step, 1",
            ),
            (
                "of_column",
                "blocks[row * block], tile[(first + row) * pitch + at]",
                "0, 1",
                "1, (uint8_t)step",
            ),
        )
    },
    "progression": """\
template <typename T>
__aicore__ inline void progression(const LocalTensor<T>& dst, T first, T step, int32_t count) {
  constexpr int32_t block = 32 / sizeof(T);
  PipeBarrier<PIPE_ALL>();
  for (int32_t k = 0; k < (count < block ? count : block); ++k) {
    dst.SetValue(k, (T)(first + (T)k * step));
  }
  PipeBarrier<PIPE_ALL>();
  for (int32_t made = block; made < count; made += made) {
    Adds(dst[made], dst, (T)((T)made * step), count - made < made ? count - made : made);
    PipeBarrier<PIPE_V>();
  }
}
""",
    # A comparison takes whole repeats: what is behind them is compared in the temporary, and its
    # bits are stored by the scalar unit.
    **{
        f"{call.lower()}_part": f"""\
template <typename T>
__aicore__ inline void {call.lower()}_part(
    const LocalTensor<uint8_t>& dst, const LocalTensor<T>& a, {parameter},
    const LocalTensor<uint8_t>& scratch, CMPMODE mode, int32_t count) {{
  constexpr int32_t wide = 256 / sizeof(T);
  int32_t left = count % wide, whole = count - left;
  LocalTensor<T> x = scratch.ReinterpretCast<T>();
  LocalTensor<uint8_t> made = scratch[512];
  if (whole > 0) {{
    {call}(dst, a, b, mode, (uint32_t)whole);
  }}
  if (left > 0) {{
    PipeBarrier<PIPE_V>();
    Copy(x, a[whole], (uint64_t)left, 1, CopyRepeatParams(1, 1, 8, 8));{more}
    PipeBarrier<PIPE_V>();
    {call}(made, x, {other}, mode, (uint32_t)wide);
    PipeBarrier<PIPE_ALL>();
    for (int32_t k = 0; 8 * k < left; ++k) {{
      int32_t there = left - 8 * k < 8 ? (1 << (left - 8 * k)) - 1 : 255;
      dst.SetValue(whole / 8 + k, (uint8_t)(made.GetValue(k) & there));
    }}
    PipeBarrier<PIPE_ALL>();
  }}
}}
"""
        for call, parameter, more, other in (
            (
                "Compare",
                "const LocalTensor<T>& b",
                "\n    Copy(x[wide], b[whole], (uint64_t)left, 1, CopyRepeatParams(1, 1, 8, 8));",
                "x[wide]",
            ),
            ("Compares", "T b", "", "b"),
        )
    },
    # Bits of the mask choose between two tensors; the bits themselves are read by the scalar unit.
    **{
        name: f"""\
template <typename T>
__aicore__ inline void {name}(
    const LocalTensor<T>& dst, const LocalTensor<uint8_t>& mask, const LocalTensor<T>& a,
    {parameter}, int32_t count, bool repeated) {{
  constexpr int32_t wide = 256 / sizeof(T), bytes = wide / 8;
  PipeBarrier<PIPE_ALL>();
  for (int32_t at = 0; at < count; at += wide) {{
    uint64_t chosen[2] = {{0, 0}}, others[2] = {{0, 0}};
    for (int32_t k = 0; k < bytes && at + 8 * k < count; ++k) {{
      int32_t left = count - at - 8 * k;
      uint64_t there = left < 8 ? (1 << left) - 1 : 255;
      uint64_t bits = mask.GetValue((repeated ? 0 : at / 8) + k);
      chosen[k / 8] |= (bits & there) << (k % 8 * 8);
      others[k / 8] |= (~bits & there) << (k % 8 * 8);
    }}
    if (chosen[0] || chosen[1]) {{
      Copy(dst[at], a[at], chosen, 1, CopyRepeatParams(1, 1, 8, 8));
    }}
    if (others[0] || others[1]) {{
      {other}
    }}
  }}
}}
"""
        for name, parameter, other in (
            (
                "choose",
                "const LocalTensor<T>& b",
                "Copy(dst[at], b[at], others, 1, CopyRepeatParams(1, 1, 8, 8));",
            ),
            ("choose_scalar", "T b", "Duplicate(dst[at], b, others, 1, 1, 8);"),
        )
    },
    **{
        f"reduce_rows_{op}": f"""\
template <typename T>
__aicore__ inline void reduce_rows_{op}(
    const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint8_t>& scratch,
    int32_t rows, int32_t columns, int32_t pitch, bool goes_on) {{
  constexpr int32_t block = 32 / sizeof(T), wide = 256 / sizeof(T), most = 240;
  LocalTensor<T> part = scratch.ReinterpretCast<T>();
  for (int32_t row = 0; row < rows; row += most) {{
    int32_t count = rows - row < most ? rows - row : most;
    for (int32_t at = 0; at < columns; at += wide) {{
      LocalTensor<T> made = at == 0 && !goes_on ? dst[row] : part;
      PipeBarrier<PIPE_V>();
      int32_t mask = columns - at < wide ? columns - at : wide;
      WholeReduce{op.title()}(made, src[row * pitch + at], mask, count, 1, 1,
          pitch / block{order});
      if (at > 0 || goes_on) {{
        PipeBarrier<PIPE_V>();
        {join}(dst[row], dst[row], part, count);
      }}
    }}
  }}
}}
"""
        for op, join, order in (
            ("sum", "Add", ""),
            ("max", "Max", ", ReduceOrder::ORDER_ONLY_VALUE"),
            ("min", "Min", ", ReduceOrder::ORDER_ONLY_VALUE"),
        )
    },
    **{
        f"reduce_columns_{op}": f"""\
template <typename T>
__aicore__ inline void reduce_columns_{op}(
    const LocalTensor<T>& dst, const LocalTensor<T>& src, int32_t rows, int32_t columns,
    int32_t step, bool goes_on) {{
  if (!goes_on) {{
    Muls(dst, src, (T)1, columns);
  }}
  for (int32_t row = goes_on ? 0 : 1; row < rows; ++row) {{
    PipeBarrier<PIPE_V>();
    {join}(dst, dst, src[row * step], columns);
  }}
}}
"""
        for op, join in (("sum", "Add"), ("max", "Max"), ("min", "Min"))
    },
    # All cores of a kind, the cube cores between the two meetings of the vector cores; flags 11 to
    # 14 are those that SyncAll of the API takes.
    "meet_vector": """\
__aicore__ inline void meet_vector() {
  PipeBarrier<PIPE_ALL>();
  CrossCoreSetFlag<0, PIPE_MTE3>(14);
  CrossCoreWaitFlag(14);
}
""",
    "meet_all": """\
__aicore__ inline void meet_all() {
  PipeBarrier<PIPE_ALL>();
  if ASCEND_IS_AIC {
    CrossCoreWaitFlag(13);
    CrossCoreSetFlag<0, PIPE_FIX>(11);
    CrossCoreWaitFlag(11);
    CrossCoreSetFlag<2, PIPE_FIX>(12);
  }
  if ASCEND_IS_AIV {
    CrossCoreSetFlag<2, PIPE_MTE3>(13);
    CrossCoreWaitFlag(12);
  }
}
""",
}

SCRATCH = {
    **MATHS_SCRATCH,
    **PLACES_SCRATCH,
    "load_rows": 4096,
    "expand_column": 2048,
    **{
        f"{op}_{side}": 2048
        for op in ("add", "sub", "mul", "div", "max", "min")
        for side in ("column", "of_column")
    },
    "compare_part": 1024,
    "compares_part": 1024,
    **{f"reduce_rows_{op}": 1024 for op in ("sum", "max", "min")},
}
"""Bytes of UB behind the buffers that a function works in."""

CALLS = {**MATHS_CALLS, **PLACES_CALLS, "load_rows": ("copy_part",)}
"""The functions that a function calls, which stand in front of it."""

__all__ = ["CALLS", "HELPERS", "SCRATCH"]
