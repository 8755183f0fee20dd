"""`TCGEN05TensorCoreIntrinEmitter`: what programs use that write products into Tensor Memory by
hand, instruction by instruction.

What enters: element types and the tile of a block. What leaves: statements of the kernel that is
traced, an asynchronous product for each instruction and the arrival when they are done. What a
descriptor names is kept here, so each part is a `T.tcgen05_gemm` of it: that runs on every target
that has Tensor Memory, and the words of the hardware are the compiler's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from tilelang.dtypes import DType, dtype
from tilelang.errors import TileError, TileNotImplementedError, TileTypeError, TileValueError, error
from tilelang.ir.build import current
from tilelang.ir.expr import BinaryOp, Region, const, int_value
from tilelang.language.async_ops import tcgen05_gemm, tcgen05_mma_arrive
from tilelang.language.buffers import BufferRef, RegionRef, here
from tilelang.language.scales import tcgen05_gemm_blockscaled
from tilelang.language.tileops import matrix
from tilelang.language.values import Value, as_expr, logical
from tilelang.layout import Layout

_DEEP = 256
"""Bits along K of each row that one instruction multiplies."""

_LANES, _WIDEST = 128, 256
"""Lanes of Tensor Memory; columns of the result of one instruction."""


def _refused(kind: str, message: str, cls: type[TileError] = TileValueError, **facts: Any) -> Any:
    return error(kind, message, here(), cls=cls, **facts)


class TCGEN05Meta(NamedTuple):
    """One instruction: rows and columns of its result, depth, and whether two blocks carry it out.

    `enable_ws` is False: `tcgen05.mma.ws` is not used here.
    """

    atom_m: int
    atom_n: int
    atom_k: int
    enable_ws: bool
    enable_2cta: bool

    @property
    def blocks(self) -> int:
        """The blocks that carry it out."""
        return 2 if self.enable_2cta else 1

    @property
    def atom_m_per_cta(self) -> int:
        """Rows of the result in each block."""
        return self.atom_m // self.blocks


@dataclass(frozen=True)
class TCGEN05DescriptorParams:
    """A matrix of a product: its part of a buffer, and whether rows lie along K."""

    region: Region
    is_k_major: bool = True


@dataclass(frozen=True)
class TCGEN05InstructionDescriptor:
    """What the instruction word says: types of A, B and the result, shape, and turned operands."""

    types: tuple[str, str, str]
    meta: TCGEN05Meta
    turned: tuple[bool, bool]


class TCGEN05TensorCoreIntrinEmitter:
    """Writes the parts of a product into Tensor Memory.

    The tile of the block is `block_row_warps * warp_row_tiles` rows (of both blocks of a pair) by
    `block_col_warps * warp_col_tiles` columns; `chunk` is its depth. `get_tcgen5_mma_meta` comes
    first. TileValueError for tiles that no instruction divides.
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
        thread_var: Any = None,
    ) -> None:
        if reduce_k != 1 or num_elems_per_byte != 1:
            raise _refused(
                "option",
                "reduce_k or num_elems_per_byte of a tcgen05 emitter",
                TileNotImplementedError,
                expected="1",
                got=f"{reduce_k} and {num_elems_per_byte}",
            )
        del is_m_first, thread_var  # which thread issues is the compiler's
        self.a_dtype, self.b_dtype, self.accum_dtype = (
            DType(dtype(x)) for x in (a_dtype, b_dtype, accum_dtype)
        )
        self.a_transposed, self.b_transposed = bool(a_transposed), bool(b_transposed)
        self.block_row_warps, self.block_col_warps = block_row_warps, block_col_warps
        self.warp_row_tiles, self.warp_col_tiles = warp_row_tiles, warp_col_tiles
        self.chunk = chunk
        self.micro_size_k = _DEEP // self.a_dtype.bits
        self.meta: tuple[Any, ...] = ()
        self._given: dict[str, tuple[TCGEN05DescriptorParams, str]] = {}

    # The instruction -----------------------------------------------------------------------------

    def get_tcgen5_mma_meta(
        self, m: int, n: int, k: int, disable_2cta: bool, disable_ws: bool = False
    ) -> None:
        """Choose the instruction for a tile of m x n x k in each block; `meta` is it."""
        del disable_ws
        rows = next((r for r in (_LANES, _LANES // 2) if m % r == 0), 0)
        step = 32 if not disable_2cta else 16 if rows == _LANES else 8
        width = next((w for w in range(_WIDEST, 0, -step) if n % w == 0), 0)
        if not rows or not width or k % self.micro_size_k or not m * n * k:
            raise _refused(
                "shape",
                "a tile that no instruction of tcgen05 divides",
                expected=f"M a multiple of 64, N of {step}, K of {self.micro_size_k}",
                got=f"{m} x {n} x {k}",
            )
        rows *= 1 if disable_2cta else 2
        self.meta = TCGEN05Meta(rows, width, self.micro_size_k, False, not disable_2cta)

    @property
    def tcgen05_meta(self) -> TCGEN05Meta:
        """The instruction that was chosen."""
        if not self.meta:
            raise _refused(
                "name",
                "no instruction of the tcgen05 emitter is chosen",
                help="call get_tcgen5_mma_meta(M, N, K, disable_2cta) first",
            )
        return TCGEN05Meta(*self.meta)

    @property
    def tcgen05_num_inst_m(self) -> int:
        """Instructions along M."""
        return self.block_row_warps * self.warp_row_tiles // self.tcgen05_meta.atom_m_per_cta

    @property
    def tcgen05_num_inst_n(self) -> int:
        """Instructions along N."""
        return self.block_col_warps * self.warp_col_tiles // self.tcgen05_meta.atom_n

    @property
    def tcgen05_num_k_atoms(self) -> int:
        """Instructions along K."""
        return self.chunk // self.micro_size_k

    def compute_tcgen05_instr_desc(self) -> TCGEN05InstructionDescriptor:
        """What the instruction word says."""
        types = (self.a_dtype.name, self.b_dtype.name, self.accum_dtype.name)
        turned = (self.a_transposed, not self.b_transposed)
        return TCGEN05InstructionDescriptor(types, self.tcgen05_meta, turned)

    # Layouts -------------------------------------------------------------------------------------

    def _assign(self, layout: Any) -> TCGEN05TensorCoreIntrinEmitter:
        """Nothing: operands lie as products read them, whatever their layouts are said to be."""
        del layout
        return self

    _assign_a_shared_layout = _assign_b_shared_layout = _assign
    _assign_a_tmem_layout = _assign_c_tmem_layout = _assign

    def make_mma_store_layout(
        self, tmem_buf: Any, *, operand: str = "C", is_ts: bool = False
    ) -> Layout:
        """(lane, column) of each element of a matrix in Tensor Memory, for `T.annotate_layout`."""
        del is_ts
        if operand not in ("A", "C"):
            raise _refused("value", f"operand {operand!r} in Tensor Memory", expected="'A' or 'C'")
        return accumulator_layout(tmem_buf, self.tcgen05_meta.atom_m_per_cta)

    # Operands ------------------------------------------------------------------------------------

    def compute_tcgen05_a_desc_params(self, A_buf: Any) -> TCGEN05DescriptorParams:
        """The left operand in shared memory, a buffer or a part of one."""
        return self._operand(A_buf, "A", not self.a_transposed)

    def compute_tcgen05_b_desc_params(self, B_buf: Any) -> TCGEN05DescriptorParams:
        """The right operand."""
        return self._operand(B_buf, "B", self.b_transposed)

    def compute_tcgen05_c_tmem_params(self, region: Any) -> TCGEN05DescriptorParams:
        """The result, or the left operand, in Tensor Memory."""
        return self._operand(region, "C", True)

    compute_tcgen05_a_tmem_params = compute_tcgen05_c_tmem_params

    def _operand(self, x: Any, letter: str, k_major: bool) -> TCGEN05DescriptorParams:
        region = matrix(x, letter, "a tcgen05 emitter")
        builder = current("a tcgen05 emitter")
        mins = tuple(builder.stable(e) for e in region.mins)
        return TCGEN05DescriptorParams(region.with_(mins=mins), k_major)

    def init_tcgen05_a_desc(
        self, desc_a: BufferRef, A_buf: Any, a_params: TCGEN05DescriptorParams
    ) -> None:
        """Let a descriptor name the left operand."""
        self._init(desc_a, A_buf, a_params, "A")

    def init_tcgen05_b_desc(
        self, desc_b: BufferRef, B_buf: Any, b_params: TCGEN05DescriptorParams
    ) -> None:
        """Let a descriptor name the right operand."""
        self._init(desc_b, B_buf, b_params, "B")

    def _init(self, desc: BufferRef, x: Any, params: TCGEN05DescriptorParams, letter: str) -> None:
        builder = current("a tcgen05 emitter")
        name = desc.buffer.name
        if name in self._given:
            raise _refused(
                "value",
                f"the descriptor {name} is given a second matrix",
                expected="one matrix for each descriptor",
                help="allocate another one: T.alloc_tcgen05_smem_desc()",
            )
        if matrix(x, letter, "a tcgen05 emitter").buffer != params.region.buffer:
            raise _refused("value", f"the parameters for {name} are those of another buffer")
        mark = builder.fresh_var(f"{name}_is_given")
        builder.define(mark)  # visible wherever the descriptor is sure to have been given
        self._given[name] = (params, mark.name)

    def _named(self, desc: BufferRef, params: TCGEN05DescriptorParams) -> Region:
        """What a descriptor names here."""
        given = self._given.get(desc.buffer.name)
        if given is None or not current("a tcgen05 emitter").is_visible(given[1]):
            raise _refused(
                "name",
                f"the descriptor {desc.buffer.name} may not have been given a matrix here",
                expected="init_tcgen05_a_desc or init_tcgen05_b_desc before, in this block or one"
                " around it",
            )
        if given[0] != params:
            raise _refused(
                "value",
                f"the descriptor {desc.buffer.name} with parameters of another matrix",
                expected="those that it was given",
            )
        return params.region

    # Products ------------------------------------------------------------------------------------

    def tcgen05_ss_atom(
        self,
        desc_a: BufferRef,
        desc_b: BufferRef,
        inst_m_idx: Any,
        inst_n_idx: Any,
        ki: Any,
        a_params: TCGEN05DescriptorParams,
        b_params: TCGEN05DescriptorParams,
        c_params: TCGEN05DescriptorParams,
        instr_desc: TCGEN05InstructionDescriptor,
        clear_accum: Any = False,
    ) -> None:
        """The instruction (`inst_m_idx`, `inst_n_idx`, `ki`), with both operands in shared memory.

        The first one along K clears the result where `clear_accum` holds.
        """
        a = self._named(desc_a, a_params)
        self._atom(
            a, desc_b, (inst_m_idx, inst_n_idx, ki), b_params, c_params, instr_desc, clear_accum
        )

    def tcgen05_ts_atom(
        self,
        desc_b: BufferRef,
        inst_m_idx: Any,
        inst_n_idx: Any,
        ki: Any,
        a_params: TCGEN05DescriptorParams,
        b_params: TCGEN05DescriptorParams,
        c_params: TCGEN05DescriptorParams,
        instr_desc: TCGEN05InstructionDescriptor,
        clear_accum: Any = False,
    ) -> None:
        """The same with the left operand in Tensor Memory."""
        at = (inst_m_idx, inst_n_idx, ki)
        self._atom(a_params.region, desc_b, at, b_params, c_params, instr_desc, clear_accum)

    def _atom(
        self,
        a: Region,
        desc_b: BufferRef,
        at: tuple[Any, Any, Any],
        b_params: TCGEN05DescriptorParams,
        c_params: TCGEN05DescriptorParams,
        instr_desc: TCGEN05InstructionDescriptor,
        clear_accum: Any,
    ) -> None:
        if instr_desc != self.compute_tcgen05_instr_desc():
            raise _refused(
                "value",
                "an instruction descriptor that is not of this emitter",
                TileTypeError,
                expected="compute_tcgen05_instr_desc() of the emitter",
            )
        meta = self.tcgen05_meta
        b, (i, j, step) = self._named(desc_b, b_params), at
        rows, columns, deep = meta.atom_m_per_cta, meta.atom_n, meta.atom_k
        each = columns // meta.blocks
        left = _part(a, (i, rows), (step, deep), turned=self.a_transposed)
        right = _part(b, (j, each), (step, deep), turned=not self.b_transposed)
        total = _part(c_params.region, (i, rows), (j, columns), turned=False)
        first = step == 0 if isinstance(step, int) else Value(as_expr(step)) == 0
        tcgen05_gemm(
            left,
            right,
            total,
            self.a_transposed,
            self.b_transposed,
            clear_accum=logical(BinaryOp.AND, first, clear_accum),
            mbar=None,
            use_2cta=meta.enable_2cta,
        )

    def tcgen05_atom_arrive(self, mbar: Any) -> None:
        """Make an mbarrier complete when the instructions so far are done."""
        tcgen05_mma_arrive(mbar, arrive_2cta=self.tcgen05_meta.enable_2cta)

    def tcgen05mma(
        self, A_region: Any, B_region: Any, C_region: Any, mbar: Any, clear_accum: Any = False
    ) -> None:
        """All instructions of a tile; `mbar` completes when they are done (None: no arrival)."""
        tcgen05_gemm(
            A_region,
            B_region,
            C_region,
            self.a_transposed,
            self.b_transposed,
            clear_accum=clear_accum,
            mbar=mbar,
            use_2cta=self.tcgen05_meta.enable_2cta,
        )

    tcgen05mma_ss = tcgen05mma_ts = tcgen05mma

    def tcgen05mma_blockscaled(
        self,
        A_region: Any,
        B_region: Any,
        C_region: Any,
        SFA_tmem: Any,
        SFB_tmem: Any,
        mbar: Any,
        sf_k_start: Any,
        sf_a_granularity_k: int,
        sf_b_granularity_k: int,
        clear_accum: Any = False,
    ) -> None:
        """`tcgen05mma` with scales in Tensor Memory: `T.tcgen05_gemm_blockscaled`."""
        tcgen05_gemm_blockscaled(
            A_region,
            B_region,
            C_region,
            SFA_tmem,
            SFB_tmem,
            self.a_transposed,
            self.b_transposed,
            clear_accum=clear_accum,
            mbar=mbar,
            k_start=sf_k_start,
            sf_a_granularity_k=sf_a_granularity_k,
            sf_b_granularity_k=sf_b_granularity_k,
            use_2cta=self.tcgen05_meta.enable_2cta,
        )

    def tcgen05_blockscaled_atom(self, *args: Any, **kwargs: Any) -> None:
        """Refused: the bytes of the scales are in the instruction word, which is the compiler's."""
        raise _refused(
            "name",
            "tcgen05_blockscaled_atom is not built",
            TileNotImplementedError,
            help="tcgen05mma_blockscaled(...) or T.tcgen05_gemm_blockscaled issue whole tiles",
        )


def _part(
    region: Region, outer: tuple[Any, int], inner: tuple[Any, int], *, turned: bool
) -> RegionRef:
    """Part (number, size) along both matrix axes; `turned` exchanges them."""
    pair = (inner, outer) if turned else (outer, inner)
    mins, extents = list(region.mins), list(region.extents)
    for axis, (number, size) in zip((-2, -1), pair, strict=True):
        if int_value(extents[axis]) == size:
            continue  # the only part
        mins[axis] = (Value(mins[axis]) + Value(as_expr(number)) * size).expr
        extents[axis] = const(size)
    return RegionRef(Region(region.buffer, tuple(mins), tuple(extents), loc=here()))


def accumulator_layout(x: Any, rows: int) -> Layout:
    """(lane, column) of each element of a matrix whose instructions have `rows` rows of a block.

    128 rows fill the lanes, 64 lie in 16 lanes of each warp; further rows, and further matrices of
    leading axes, follow along the columns.
    """
    region = matrix(x, "C", "a tcgen05 emitter")
    shape = [int_value(e) or 0 for e in region.buffer.shape]
    high, wide = shape[-2:]

    def place(*index: Any) -> tuple[Any, Any]:
        batch: Any = 0
        for n, extent in zip(index[:-2], shape[:-2], strict=True):
            batch = batch * extent + n
        row, column = index[-2] % rows, index[-1]
        band = batch * -(-high // rows) + index[-2] // rows
        lane = row if rows == _LANES else row // 16 * 32 + row % 16
        return lane, band * wide + column

    return Layout(shape, place)


def make_blockscaled_gemm_layout(C: Any, A: Any, transpose_A: bool = False) -> Layout:
    """(lane, column) of the result of a block-scaled product by one block, for `T.annotate_layout`.

    A is the left operand. The compiler places the result so in any case. TileValueError for another
    number of rows than 128: such products have no other (PTX ISA, tcgen05.mma, Matrix Shape).
    """
    total, left = matrix(C, "C", "a scaled product"), matrix(A, "A", "a scaled product")
    rows = int_value(total.extents[-2]) or 0
    m = int_value(left.extents[-1 if transpose_A else -2]) or 0
    if rows % _LANES or not rows or m != rows:
        raise _refused(
            "shape",
            "make_blockscaled_gemm_layout",
            expected=f"a multiple of {_LANES} rows of C, as of A",
            got=f"{rows} rows of C, {m} of A",
        )
    return accumulator_layout(C, _LANES)
