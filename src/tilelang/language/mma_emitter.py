"""`TensorCoreIntrinEmitter`: what programs use that write products of warps by hand.

What enters: element types and the tiles of a block and a warp. What leaves: statements of the
kernel that is traced: loads of fragments by each thread, `mma.sync` as device code, stores. The
fragments are those of the PTX ISA, section 9.7.14.5. Such a kernel runs on CUDA alone.
"""

from __future__ import annotations

from typing import Any

from tilelang.dtypes import DType, dtype
from tilelang.errors import TileNotImplementedError, TileValueError, error
from tilelang.language.buffers import BufferRef, here, store
from tilelang.language.launch import get_thread_bindings, get_thread_extents
from tilelang.language.pointers import address_of
from tilelang.language.raw import call_extern, import_source
from tilelang.language.values import Value

WARP, ROWS, COLUMNS = 32, 16, 16
"""Threads of a warp; rows and columns of the tiles that the fragments are counted in."""

# (operands, sums) -> the types in the instruction.
_KINDS = {
    ("float16", "float32"): ("f32", "f16"),
    ("float16", "float16"): ("f16", "f16"),
    ("bfloat16", "float32"): ("f32", "bf16"),
    ("int8", "int32"): ("s32", "s8"),
    ("uint8", "int32"): ("s32", "u8"),
    ("float8_e4m3fn", "float32"): ("f32", "e4m3"),
    ("float8_e5m2", "float32"): ("f32", "e5m2"),
}


def device_code(sums: str, operands: str, depth: int) -> tuple[str, str]:
    """The name and the text of the function that multiplies 16 x depth by depth x 8."""
    name = f"mma_m16n8k{depth}_{sums}_{operands}"
    words = 2 if sums == "f16" else 4
    word, letter = ("float", "f") if sums == "f32" else ("unsigned", "r")
    c = ", ".join(f"%{k}" for k in range(words))
    a = ", ".join(f"%{words + k}" for k in range(4))
    b = ", ".join(f"%{words + 4 + k}" for k in range(2))
    outs = ", ".join(f'"+{letter}"(c[{k}])' for k in range(words))
    ins = ", ".join([*(f'"r"(a[{k}])' for k in range(4)), *(f'"r"(b[{k}])' for k in range(2))])
    row = f"mma.sync.aligned.m16n8k{depth}.row.col.{sums}.{operands}.{operands}.{sums}"
    text = f"""
template <typename C, typename T> __device__ __forceinline__ void {name}(C* sums, T* left, T* right) {{
  {word}* c = reinterpret_cast<{word}*>(sums);
  unsigned* a = reinterpret_cast<unsigned*>(left);
  unsigned* b = reinterpret_cast<unsigned*>(right);
  asm volatile("{row} {{{c}}}, {{{a}}}, {{{b}}}, {{{c}}};" : {outs} : {ins});
}}
"""  # noqa: E501 - a line of the device's code
    return name, text


class TensorCoreIntrinEmitter:
    """Writes the parts of a product of warps: `ldmatrix_a`, `ldmatrix_b`, `mma`, `stmatrix`.

    A warp computes `warp_row_tiles` x `warp_col_tiles` sums, `chunk` is the depth of a shared tile.
    TileValueError for tiles that are no multiples of 16, and types that no `mma.sync` here has.
    """

    def __init__(
        self,
        a_dtype: Any = "float16",
        b_dtype: Any = "float16",
        accum_dtype: Any = "float16",
        a_transposed: bool = False,
        b_transposed: bool = False,
        block_row_warps: int = 2,
        block_col_warps: int = 2,
        warp_row_tiles: int = 8,
        warp_col_tiles: int = 8,
        chunk: int = 16,
        reduce_k: int = 1,
        num_elems_per_byte: int = 1,
        is_m_first: bool = False,
    ) -> None:
        a, b, total = (DType(dtype(x)) for x in (a_dtype, b_dtype, accum_dtype))
        kind = _KINDS.get((a.name, total.name))
        if kind is None or a != b or reduce_k != 1 or num_elems_per_byte != 1:
            raise error(
                "dtype",
                f"an mma emitter of {a} and {b} with sums of {total}",
                here(),
                cls=TileNotImplementedError,
                expected="; ".join(f"{x} with {y}" for x, y in _KINDS),
                help="use T.gemm",
            )
        if warp_row_tiles % ROWS or warp_col_tiles % COLUMNS:
            raise error(
                "shape",
                "the tile of a warp",
                here(),
                cls=TileValueError,
                expected=f"multiples of {ROWS} x {COLUMNS}",
                got=f"{warp_row_tiles} x {warp_col_tiles}",
            )
        self.a_transposed, self.b_transposed = a_transposed, b_transposed
        self.block_row_warps, self.block_col_warps = block_row_warps, block_col_warps
        self.is_m_first = is_m_first
        self.chunk = chunk
        self.micro_size_x, self.micro_size_y = ROWS, COLUMNS
        self.micro_size_k = 256 // a.bits
        self.warp_rows, self.warp_cols = warp_row_tiles // ROWS, warp_col_tiles // COLUMNS
        self.local_size_a = self.local_size_b = ROWS * self.micro_size_k // WARP
        self.local_size_out = ROWS * COLUMNS // WARP
        self._per_word = 32 // a.bits
        self._name, self._code = device_code(*kind, self.micro_size_k)

    def _place(self) -> tuple[Value, Value, Value]:
        """The row and the column of the warp, and the thread in it."""
        thread: Any = 0
        axes = list(zip(get_thread_bindings(), get_thread_extents(), strict=True))
        for index, extent in reversed(axes):
            thread = thread * extent + index
        warp = thread // WARP
        count = self.block_col_warps if self.is_m_first else self.block_row_warps
        fast, slow = warp % count, warp // count
        row, column = (slow, fast) if self.is_m_first else (fast, slow)
        return row, column, thread % WARP

    def ldmatrix_a(self, A_local_buf: BufferRef, A_buf: BufferRef, ki: Any, rk: Any = 0) -> None:
        """The left fragments of the warp, of the step `ki` of a shared tile."""
        row, _, lane = self._place()
        for i in range(self.warp_rows):
            for n in range(self.local_size_a):
                word, part = divmod(n, self._per_word)
                r = (row * self.warp_rows + i) * ROWS + lane // 4 + 8 * (word % 2)
                k = self._deep(lane, word // 2, part, ki, rk)
                at = (k, r) if self.a_transposed else (r, k)
                store(A_local_buf, i * self.local_size_a + n, A_buf[at])

    def ldmatrix_b(self, B_local_buf: BufferRef, B_buf: BufferRef, ki: Any, rk: Any = 0) -> None:
        """The right fragments of the warp, of the step `ki` of a shared tile."""
        _, column, lane = self._place()
        half = self.local_size_b // 2
        for j in range(self.warp_cols):
            for n in range(self.local_size_b):
                word, part = divmod(n % half, self._per_word)
                c = (column * self.warp_cols + j) * COLUMNS + n // half * 8 + lane // 4
                k = self._deep(lane, word, part, ki, rk)
                at = (c, k) if self.b_transposed else (k, c)
                store(B_local_buf, j * self.local_size_b + n, B_buf[at])

    def _deep(self, lane: Any, word: int, part: int, ki: Any, rk: Any) -> Any:
        """Where an element of a fragment lies along the depth."""
        inside = lane % 4 * self._per_word + word * 4 * self._per_word + part
        return rk * self.chunk + ki * self.micro_size_k + inside

    def mma(
        self,
        A_local_buf: BufferRef,
        B_local_buf: BufferRef,
        C_local_buf: BufferRef,
        k_inner: Any = 0,
    ) -> None:
        """All products of the warp's fragments, added to its sums."""
        import_source(self._code)
        half_b, half_c = self.local_size_b // 2, self.local_size_out // 2
        left = k_inner * self.warp_rows * self.local_size_a
        right = k_inner * self.warp_cols * self.local_size_b
        for i in range(self.warp_rows):
            for j in range(2 * self.warp_cols):
                sums = (i * self.warp_cols * 2 + j) * half_c
                call_extern(
                    self._name,
                    address_of(C_local_buf[sums]),
                    address_of(A_local_buf[left + i * self.local_size_a]),
                    address_of(B_local_buf[right + j * half_b]),
                    dtype="handle",
                )

    def stmatrix(
        self, C_local_buf: BufferRef, C_buf: BufferRef, pid_m: Any = None, pid_n: Any = None
    ) -> None:
        """The warp's sums into a shared tile of 16 x 16 tiles, or at block (`pid_m`, `pid_n`) of a
        matrix.
        """
        row, column, lane = self._place()
        for i in range(self.warp_rows):
            for j in range(self.warp_cols):
                for n in range(self.local_size_out):
                    r = lane // 4 + n % 4 // 2 * 8
                    c = lane % 4 * 2 + n % 2 + n // 4 * 8
                    a, b = row * self.warp_rows + i, column * self.warp_cols + j
                    at: Any = (a, b, r, c)
                    if pid_m is not None and pid_n is not None:
                        a = pid_m * self.block_row_warps * self.warp_rows + a
                        b = pid_n * self.block_col_warps * self.warp_cols + b
                        at = (a * ROWS + r, b * COLUMNS + c)
                    k = (i * self.warp_cols + j) * self.local_size_out + n
                    store(C_buf, at, C_local_buf[k])


def get_swizzle_layout(
    row_idx: Any, col_idx: Any, row_size: int, dtype: Any, swizzle_bytes: int | None = None
) -> tuple[Any, Any]:
    """Where an element of a shared tile lies, groups of 16 bytes exchanged by the row, so that the
    rows of an 8 x 8 matrix meet no bank twice.
    """
    bits = DType(dtype).bits
    span = min(128, row_size * bits // 8) if swizzle_bytes is None else swizzle_bytes
    per, groups = 128 // bits, span // 16
    group, inside = col_idx // per, col_idx % per
    moved = group ^ (row_idx // (128 // span) % groups)
    return row_idx, moved * per + inside
