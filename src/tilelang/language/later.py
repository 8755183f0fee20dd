"""Names that are declared here and not built: what each needs, and its signature.

One table. A name of it exists, and calling it is an error at the author's place that says what it
waits for; nothing is accepted and ignored.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tilelang.errors import TileNameError, TileNotImplementedError, error
from tilelang.language.buffers import here
from tilelang.language.tileops import GemmWarpPolicy

_CUDA = "needs the native CUDA target"
_WORDS = "takes words of the hardware, which the compiler makes itself"
_TVM = "is a raw name of TVM's script, which has no meaning here"
_ASCEND = "needs the Ascend target"
_MAINLINE = "is a name of the mainline Ascend dialect"
_LAYOUT = "needs layout inference, which is not built"
_ROCM = "needs the ROCm target, which is not built"


@dataclass(frozen=True)
class Later:
    """One row: the name, its parameters as Python writes them, why it is refused, and a way out."""

    name: str
    parameters: str
    reason: str
    help: str = ""

    def function(self, prefix: str = "T") -> Callable[..., Any]:
        """The function of this name: it has the signature, and a call raises."""

        def refused(*args: Any, **kwargs: Any) -> Any:
            raise error(
                "target" if "target" in self.reason else "name",
                f"{prefix}.{self.name} {self.reason}",
                here(),
                cls=TileNotImplementedError,
                help=self.help or "docs/declared.md lists what is declared and not built",
            )

        refused.__name__ = refused.__qualname__ = self.name
        refused.__doc__ = f"Refused when called: {prefix}.{self.name} {self.reason}."
        return _signed(refused, self.parameters)


def _signed(fn: Callable[..., Any], parameters: str) -> Callable[..., Any]:
    """`fn` with the signature that `parameters` spells."""
    names = {"GemmWarpPolicy": GemmWarpPolicy}
    template = eval(f"lambda {parameters}: None", names)  # the table is the only input
    vars(fn)["__signature__"] = inspect.signature(template)
    return fn


def _rows(reason: str, text: str, way_out: str = "") -> list[Later]:
    """A row for each name of `text`: `name` alone, or `name(parameters)`."""
    rows: list[Later] = []
    for found in re.finditer(r"(\w+)(?:\(([^()]*)\))?", text):
        name, listed = found.group(1), found.group(2)
        parameters = "*args, **kwargs" if listed is None else " ".join(listed.split())
        rows.append(Later(name, parameters, reason, way_out))
    return rows


LATER: dict[str, Later] = {
    row.name: row
    for row in (
        *_rows(
            _CUDA,
            """
            CUDASourceCodeKernel(*blocks, threads=None, source_code_or_path,
                entry_name='main_kernel', cluster_dims=None, prelude=None)
            call_intrin(dtype, func_name, *args, annotations=None, span=None)
            call_pure_extern(dtype, func_name, *args, span=None)
            create_tma_descriptor(*args)
            ptx_ldmatrix(trans, num, src_access_ptr, dst_access_ptr)
            tcgen05_gemm_sp(A_sparse, E, B, C, transpose_A=False, transpose_E=False,
                transpose_B=False, policy=GemmWarpPolicy.Square, clear_accum=False,
                annotations=None)
            tma_load(*args) tma_load_2sm(*args) warpgroup_commit_batch()
            wgmma_gemm_sp(A_sparse, E, B, C, transpose_A=False, transpose_E=False,
                transpose_B=False, policy=GemmWarpPolicy.Square, clear_accum=False,
                annotations=None)
            ptx_init_barrier_thread_count(barrier_id, thread_count) ptx_wait_barrier(barrier_id)
            ptx_cp_async_barrier(barrier_id) create_barriers(barrier_count)
            call_llvm_intrin call_llvm_pure_intrin mma_fill mma_store mma_store_index_map
            get_ldmatrix_offset get_mma_micro_size
            make_mma_swizzle_layout ptx_cp_async_bulk ptx_mma ptx_mma_block_scale
            ptx_mma_sm70 ptx_mma_sp
            SparseTensorCoreIntrinEmitter TensorCoreIntrinEmitterSM120
            TensorCoreIntrinEmitterWithLadderTransform WGSparseTensorCoreIntrinEmitter
            """,
        ),
        *_rows(
            _WORDS,
            """
            initialize_tcgen05_descriptor(descriptor, start_address, leading_byte_offset,
                stride_byte_offset, base_offset=0, leading_is_absolute=False, swizzle_mode=0)
            increase_descriptor_offset(descriptor, offset) compute_umma_descriptor
            ptx_tcgen05_mma_blockscaled_ss ptx_tcgen05_mma_ss ptx_tcgen05_mma_ts
            """,
            "use T.tcgen05_gemm, or T.TCGEN05TensorCoreIntrinEmitter for each instruction",
        ),
        *_rows(
            _WORDS,
            """
            initialize_wgmma_descriptor(descriptor, start_address, layout_type_=0,
                leading_byte_offset=0, stride_byte_offset=0)
            ptx_wgmma_ss(dtype, wgmma_prefix, a_is_k_major, b_is_k_major, a_dtype_abbrv,
                b_dtype_abbrv, accum_dtype_abbrv, A_desc, A_offset, B_desc, B_offset, C_data,
                C_offset, scale_out, scale_in_a, scale_in_b)
            compute_gmma_descriptor ptx_wgmma_rs ptx_wgmma_sp_rs ptx_wgmma_sp_ss
            WGMMADescriptorParams WGMMATensorCoreIntrinEmitter
            """,
            "use T.wgmma_gemm and T.wait_wgmma",
        ),
        *_rows(_LAYOUT, "PartialFragment make_fully_replicated_partial_fragment"),
        *_rows(_ROCM, "mfma mfma_store tvm_mfma tvm_mfma_store"),
        *_rows(
            _TVM,
            """
            sblock(name='', no_realize=False) sblock_attr(attrs)
            reads(*buffer_slices) writes(*buffer_slices) launch_thread(thread, extent)
            env_thread(thread_tag, dtype='int32') While(condition)
            decl_buffer(shape, dtype='float32', data=None, strides=None, elem_offset=None,
                scope='global', align=0, offset_factor=0, buffer_type='', axis_separators=None)
            sblock_alloc_buffer(shape, dtype='float32', data=None, strides=None, elem_offset=None,
                scope='global', align=-1, offset_factor=0, buffer_type='default',
                axis_separators=None)
            let(v, value, body=None) type_annotation(dtype) target(target_config, host=None)
            tvm_access_ptr(ptype, data, offset, extent, rw_mask)
            has_let_value(var) get_let_value(var) ret(val, span=None) tir
            Add anylist_getitem anylist_resetitem anylist_setitem_call_cpacked
            anylist_setitem_call_packed arg Assert axis block_name_suffix_context boolean
            broadcast buffer buffer_decl buffer_var BufferLoad Call call_cpacked
            call_cpacked_lowered call_kernel call_packed call_packed_lowered CallEffectKind
            Div end_profile_intrinsic EQ FloatImm FloorDiv FloorMod func_name func_ret GE
            get_active_lane_mask GT handle_add_byte_offset ignore_loop_partition index_map init
            IntImm isnullptr iter_var IterVar JITFunc LE Let llvm_lookup_intrinsic_id lookup_param
            LT Max meta_var Min Mod Mul NE ProducerLoad Ptr q_multiply_shift
            q_multiply_shift_per_axis ramp Range Reduce SizeVar start_profile_intrinsic StringImm
            Sub tvm_bmma_sync tvm_call_cpacked tvm_call_cpacked_lowered tvm_call_packed
            tvm_call_packed_lowered tvm_fill_fragment tvm_load_matrix_sync tvm_mma_sync
            tvm_stack_alloca tvm_stack_make_array tvm_stack_make_shape tvm_store_matrix_sync
            tvm_struct_get tvm_struct_set tvm_thread_invariant tvm_throw_last_error tvm_tuple
            TVMBackendAllocWorkspace TVMBackendFreeWorkspace undef var vectorcombine vectorhigh
            vectorlow void vscale where
            """,
            "write it with Python's own `if`, `for` and `while`, and the functions of T",
        ),
        *_rows(
            _ASCEND,
            """
            shmem_put_nbi shmem_get_nbi shmem_ub_put_nbi shmem_ub_get_nbi
            """,
        ),
        *_rows(
            _MAINLINE,
            """
            MixedKernel Cube Vector SimtVF SimdVF alloc_l0a_sf alloc_l0b_sf dual_copy
            ascend_set_flag ascend_wait_flag ascend_pipe_barrier ascend_cross_core_set_flag
            ascend_cross_core_wait_flag ascend_sync_inter_arrive ascend_sync_inter_wait
            ascend_get_buf ascend_rls_buf ascend_threadfence set_atomic set_atomic_none
            set_hf32_mode set_mmad_direction Task Stage PerCoreTask assume_conflict
            assume_no_conflict annotate_buffer_versions annotate_manual_multi_buffer
            annotate_unlimit_memory ascend_set_copy_pad_value ascend_nd2nz_post_copy
            AscendBaseTileScheduler AscendTileScheduler
            AscendBatchedTileScheduler AscendMGroupedTileScheduler AscendKGroupedTileScheduler
            """,
            "import tilelang.ascend.language as T",
        ),
    )
}


class Namespace:
    """A namespace of the Ascend dialects (`T.tile`, `T.simd`): the functions of `real`, and names
    that are refused.
    """

    def __init__(
        self, prefix: str, refused: str, real: Mapping[str, Callable[..., Any]] | None = None
    ) -> None:
        self._prefix = prefix
        self._rows = {row.name: row for row in _rows(_ASCEND, refused)}
        self._real = dict(real or {})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self._real:
            return self._real[name]
        if name in self._rows:
            return self._rows[name].function(self._prefix)
        near = difflib.get_close_matches(name, dir(self), n=2)
        raise error(
            "name",
            f"{self._prefix} has no name {name}",
            here(),
            cls=TileNameError,
            got=name,
            help=f"did you mean {' or '.join(near)}?" if near else "dir() lists its names",
        )

    def refused(self) -> list[str]:
        """The names that are refused."""
        return sorted(self._rows)

    def __dir__(self) -> list[str]:
        return sorted({*self._rows, *self._real})


simd = Namespace(
    "T.simd",
    """
    pset pge update_mask pand por pxor pnot psel ppack punpack pintlv pdintlv pld pst vld vld2 vsts
    vsstb make_ubuf_ptr vgatherb vgather2 vscatter mem_bar vadd vsub vmul vdiv vmax vmin vmula vmadd
    vaxpy vaddc vsubc vaddcs vsubcs vmull vabs vneg vrelu vlrelu vprelu vexp vln vsqrt vexpdif
    vabsdif vadds vmuls vmaxs vmins vand vor vxor vnot vshl vshr vshls vshrs vcadd vcmax vcmin
    vcgadd vcgmax vcgmin vcpadd vdup vdupv vci vcmp vcmps vsel vselr vintlv vdintlv vpack vunpack
    vsqz vusqz vcvt dhistv2 chistv2 alloc_var alloc_local
    """,
)
NAMESPACES: dict[str, Namespace] = {"simd": simd}
