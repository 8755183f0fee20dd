# What is imported here is what is exported.
# pyright: reportUnusedImport=false
"""The `T` namespace: everything a kernel is written with, in the common (CUDA) dialect."""

from __future__ import annotations

import difflib
from typing import Any, NoReturn

from tilelang.errors import error
from tilelang.ir import build
from tilelang.language import annotate, ascend, dtypes, fp8, intrinsics, packed
from tilelang.language.adapter import (
    Scope,
    annotate_address,
    barrier_all,
    clear_flag,
    func_attr,
    init_flag,
    pipe_barrier,
    set_cross_flag,
    set_deq_scale,
    set_flag,
    sync_all,
    wait_cross_flag,
    wait_flag,
)
from tilelang.language.adapter_branches import Else, If, Then
from tilelang.language.adapter_ops import dump_tensor, gemm_v0, mma, printf, reinterpretcast
from tilelang.language.adapter_repeats import namespace as tile
from tilelang.language.alloc import (
    alloc_barrier,
    alloc_cluster_barrier,
    alloc_descriptor,
    alloc_fragment,
    alloc_global,
    alloc_L0A,
    alloc_L0B,
    alloc_L0C,
    alloc_L1,
    alloc_local,
    alloc_shared,
    alloc_tcgen05_instr_desc,
    alloc_tcgen05_instruction_desc,
    alloc_tcgen05_smem_desc,
    alloc_tmem,
    alloc_ub,
    alloc_var,
    alloc_wgmma_desc,
)
from tilelang.language.annotate import (
    annotate_l2_hit_ratio,
    annotate_layout,
    annotate_min_blocks_per_sm,
    annotate_restrict_buffers,
    annotate_safe_value,
    assume,
    device_assert,
    loop_break,
    print,
    sync_threads,
    thread_return,
)
from tilelang.language.arguments import WSID
from tilelang.language.async_ops import (
    async_copy,
    copy_cluster,
    cp_async_barrier_noinc,
    ptx_commit_group,
    ptx_cp_async,
    ptx_wait_group,
    tcgen05_after_thread_sync,
    tcgen05_before_thread_sync,
    tcgen05_gemm,
    tcgen05_mma,
    tcgen05_mma_arrive,
    tma_copy,
    tma_gather4,
    tma_gather4_bytes,
    tma_scatter4,
    tma_store_arrive,
    tma_store_wait,
    wait_wgmma,
    warpgroup_arrive,
    warpgroup_fence_operand,
    warpgroup_wait,
    wgmma_gemm,
    wgmma_mma,
)
from tilelang.language.atomics import (
    atomic_add,
    atomic_addx2,
    atomic_addx4,
    atomic_max,
    atomic_min,
    atomic_or,
)
from tilelang.language.barriers import (
    barrier_arrive,
    barrier_wait,
    fence_proxy_async,
    mbarrier_arrive,
    mbarrier_arrive_expect_tx,
    mbarrier_expect_tx,
    mbarrier_wait_parity,
    pdl_sync,
    pdl_trigger,
    ptx_arrive_barrier,
    ptx_arrive_barrier_expect_tx,
    ptx_arrive_cluster_barrier,
    ptx_fence_barrier_init,
)
from tilelang.language.buffers import (
    FragmentBuffer,
    LocalBuffer,
    SharedBuffer,
    StridedTensor,
    Tensor,
)
from tilelang.language.clusters import (
    ClusterKernel,
    block_rank_in_cluster,
    clc_get_first_ctaid_x,
    clc_get_first_ctaid_y,
    clc_get_first_ctaid_z,
    clc_is_canceled,
    clc_try_cancel,
    clc_try_cancel_multicast,
    cluster_arrive,
    cluster_arrive_relaxed,
    cluster_sync,
    cluster_wait,
    get_cluster_dims,
    get_cluster_extent,
    get_cluster_extents,
    get_cluster_id,
    get_cluster_ids,
    get_cluster_size,
)
from tilelang.language.dialects import (
    Pipelined,
    copy,
    reduce_max,
    reduce_min,
    reduce_sum,
    use_swizzle,
)
from tilelang.language.gemms import (
    c2d_im2col,
    dp4a,
    gemm_blockscaled,
    gemm_sp,
    im2col,
    mma_gemm_blockscaled,
)
from tilelang.language.intrinsics import (
    all_of,
    any_of,
    fast_rcp,
    ieee_add,
    ieee_fdiv,
    ieee_fmaf,
    ieee_frcp,
    ieee_frsqrt,
    ieee_fsqrt,
    ieee_mul,
    ieee_sub,
    index_to_coordinates,
    likely,
)
from tilelang.language.intrinsics import fast_cos as __cos
from tilelang.language.intrinsics import fast_exp as __exp
from tilelang.language.intrinsics import fast_exp10 as __exp10
from tilelang.language.intrinsics import fast_log as __log
from tilelang.language.intrinsics import fast_log2 as __log2
from tilelang.language.intrinsics import fast_log10 as __log10
from tilelang.language.intrinsics import fast_sin as __sin
from tilelang.language.intrinsics import fast_tan as __tan
from tilelang.language.intrinsics import find_first_set as __ffs
from tilelang.language.intrinsics import find_nth_set as __fns
from tilelang.language.later import LATER, NAMESPACES
from tilelang.language.launch import (
    Kernel,
    KernelLaunchFrame,
    get_block_binding,
    get_block_bindings,
    get_block_extent,
    get_block_extents,
    get_thread_binding,
    get_thread_bindings,
    get_thread_extent,
    get_thread_extents,
)
from tilelang.language.loops import (
    Parallel,
    grid,
    serial,
    unroll,
    vectorized,
)
from tilelang.language.maths import *  # noqa: F403 - the maths functions are listed there
from tilelang.language.maths import __all__ as _maths
from tilelang.language.mma_emitter import TensorCoreIntrinEmitter, get_swizzle_layout
from tilelang.language.names import (
    DTYPE_NAMES,
    AnyDType,
    dtype,
    get_tvm_dtype,
    is_f8f6f4_family,
    is_float4,
    is_float4_e2m1_unpacked,
    is_float4_e2m1fn,
    validate_gemm_ab_dtypes,
)
from tilelang.language.packed import (
    Broadcast,
    Ramp,
    Shuffle,
    abs2,
    add2,
    extract_lane,
    fma2,
    ldg32,
    ldg64,
    ldg128,
    ldg256,
    lds32,
    lds64,
    lds128,
    max2,
    min2,
    mul2,
    stg32,
    stg64,
    stg128,
    stg256,
    sts32,
    sts64,
    sts128,
    sub2,
)
from tilelang.language.packed import read_only_load as __ldg
from tilelang.language.pointers import (
    access_ptr,
    address_of,
    atomic_load,
    atomic_store,
    make_tensor,
    make_tensor_from_addr,
    ptr,
)
from tilelang.language.random import (
    rng_init,
    rng_rand,
    rng_rand_float,
)
from tilelang.language.raw import (
    And,
    Cast,
    CommReducer,
    Not,
    Or,
    Var,
    alloc_buffer,
    allocate,
    attr,
    bind,
    break_loop,
    buffer_store,
    call_extern,
    comm_reducer,
    continue_loop,
    evaluate,
    import_source,
    match_buffer,
    parallel,
    thread_binding,
    tvm_storage_sync,
    tvm_thread_allreduce,
    tvm_warp_shuffle,
    tvm_warp_shuffle_down,
    tvm_warp_shuffle_up,
)
from tilelang.language.reducers import (
    alloc_reducer,
    finalize_reducer,
    reducer_init,
    reducer_update,
)
from tilelang.language.scales import (
    tcgen05_cp_warpx4,
    tcgen05_gemm_blockscaled,
    tcgen05_mma_blockscaled,
    tcgen05_sf_warp_transpose,
)
from tilelang.language.schedule import (
    BaseTileScheduler,
    Persistent,
    PersistentTileScheduler,
)
from tilelang.language.specialize import (
    WarpSpecialize,
    WarpSpecializeFrame,
    WSInstr,
    WSOpRef,
    WSPipeline,
    WSRole,
    WSSchedule,
    WSScope,
    WSSync,
    WSSyncKind,
    annotate_consumer_reg_alloc,
    annotate_producer_reg_dealloc,
    annotate_ws_pipeline_depth,
    annotate_ws_schedule,
    dec_max_nreg,
    disable_warp_group_reg_alloc,
    inc_max_nreg,
    no_set_max_nreg,
    set_max_nreg,
    ws,
    ws_op,
)
from tilelang.language.tcgen05_emitter import (
    TCGEN05DescriptorParams,
    TCGEN05TensorCoreIntrinEmitter,
    make_blockscaled_gemm_layout,
)
from tilelang.language.threads import (
    activemask,
    all_sync,
    any_sync,
    ballot,
    ballot_sync,
    get_lane_idx,
    get_warp_group_idx,
    get_warp_idx,
    get_warp_idx_sync,
    match_all_sync,
    match_any_sync,
    named_barrier_arrive,
    shfl_down,
    shfl_sync,
    shfl_up,
    shfl_xor,
    shuffle_elect,
    sync_grid,
    sync_warp,
    syncthreads_and,
    syncthreads_count,
    syncthreads_or,
    warp_reduce_bitand,
    warp_reduce_bitor,
    warp_reduce_max,
    warp_reduce_min,
    warp_reduce_sum,
)
from tilelang.language.tileops import (
    GemmWarpPolicy,
    clear,
    cummax,
    cumsum,
    deallocate_tmem,
    fill,
    gemm,
    reduce,
    reduce_absmax,
    reduce_abssum,
    reduce_bitand,
    reduce_bitor,
    reduce_bitxor,
    reshape,
    transpose,
    view,
)
from tilelang.language.values import Value as PrimExpr
from tilelang.layout import Fragment, Layout
from tilelang.scopes import Dialect, counterpart, dialects_of

Serial, Unroll, Vectorized = serial, unroll, vectorized
Buffer = Tensor
tvm_warp_activemask = activemask

# `prim_func`, `macro` and what else belongs to the frontend, which imports this package, is put
# here by tilelang/__init__.py.
_ELEMENT_TYPES = DTYPE_NAMES


def missing(name: str, module: str, dialect: Dialect) -> NoReturn:
    """Raise the error for a name that `module` does not have: the right spelling, or near names."""
    builder = build.current_or_none()
    loc = builder.loc if builder else None
    owners = dialects_of(name)
    if owners and dialect not in owners:
        about = owners[0].about
        here = counterpart(name, dialect)
        raise error(
            "name",
            f"T.{name} belongs to the {about.title}",
            loc,
            expected=f"T.{here}, the {dialect.about.title}'s spelling"
            if here
            else f"a name of {module}",
            got=f"T.{name}",
            help=f"write T.{here}(...)" if here else f"import {about.module} for the {about.title}",
        )
    near = difflib.get_close_matches(name, [*globals(), *_ELEMENT_TYPES, *LATER], n=2)
    raise error(
        "name",
        f"{module} has no name {name}",
        loc,
        got=f"T.{name}",
        help=f"did you mean {' or '.join('T.' + n for n in near)}?"
        if near
        else "see docs/language.md",
    )


def __getattr__(name: str) -> Any:
    if name in _ELEMENT_TYPES:
        return _ELEMENT_TYPES[name]
    if name == "__all__":
        return [n for n in __dir__() if not n.startswith("_")]
    if name in NAMESPACES:
        return NAMESPACES[name]
    if name in LATER:
        return LATER[name].function()
    if name.startswith("_"):
        raise AttributeError(name)
    missing(name, "tilelang.language", Dialect.COMMON)


def __dir__() -> list[str]:
    return sorted({*globals(), *_ELEMENT_TYPES, *LATER, *NAMESPACES})
