# What is imported here is what is exported.
# pyright: reportUnusedImport=false
"""The mainline Ascend dialect (chip 950): its own names, and the common ones unchanged."""

from __future__ import annotations

from typing import Any

from tilelang import language as _common
from tilelang.language import ascend_simd as simd
from tilelang.language.ascend import (
    Kernel,
    MixedKernel,
    alloc_l0a,
    alloc_l0a_sf,
    alloc_l0b,
    alloc_l0b_sf,
    alloc_l0c,
    alloc_l1,
    alloc_shared,
)
from tilelang.language.ascend_ops import (
    ascend_nd2nz_post_copy,
    ascend_set_copy_pad_value,
    copy,
    dual_copy,
    gemm,
)
from tilelang.language.ascend_regions import (
    Cube,
    PerCoreTask,
    SimdVF,
    SimtVF,
    Stage,
    Task,
    Vector,
    annotate_buffer_versions,
    annotate_manual_multi_buffer,
    annotate_unlimit_memory,
    assume_conflict,
    assume_no_conflict,
)
from tilelang.language.ascend_scaled import gemm_blockscaled
from tilelang.language.ascend_schedulers import (
    AscendBaseTileScheduler,
    AscendBatchedTileScheduler,
    AscendKGroupedTileScheduler,
    AscendMGroupedTileScheduler,
    AscendTileScheduler,
)
from tilelang.language.ascend_sync import (
    ascend_cross_core_set_flag,
    ascend_cross_core_wait_flag,
    ascend_get_buf,
    ascend_pipe_barrier,
    ascend_rls_buf,
    ascend_set_flag,
    ascend_sync_inter_arrive,
    ascend_sync_inter_wait,
    ascend_threadfence,
    ascend_wait_flag,
    set_atomic,
    set_atomic_none,
    set_hf32_mode,
    set_mmad_direction,
)
from tilelang.scopes import Dialect, dialects_of

_HELPERS = {"annotations", "Any", "Dialect", "dialects_of"}
# fmt: off
__all__ = [  # pyright: ignore[reportUnsupportedDunderAll] - the names of the common dialect too
    name for name in dict(globals()) if not name.startswith("_") and name not in _HELPERS
]
# fmt: on


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    if dialects_of(name) and Dialect.ASCEND not in dialects_of(name):
        _common.missing(name, "tilelang.ascend.language", Dialect.ASCEND)
    return getattr(_common, name)


def __dir__() -> list[str]:
    return sorted({*__all__, *dir(_common)})
