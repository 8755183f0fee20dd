"""The `T` namespace: everything a kernel is written with, in the common (CUDA) dialect."""

from __future__ import annotations

import difflib
from typing import Any, NoReturn

from tilelang.errors import error
from tilelang.ir import build
from tilelang.language import annotate, ascend
from tilelang.language.alloc import (
    alloc_barrier,
    alloc_cluster_barrier,
    alloc_fragment,
    alloc_global,
    alloc_L0A,
    alloc_L0B,
    alloc_L0C,
    alloc_L1,
    alloc_local,
    alloc_shared,
    alloc_tmem,
    alloc_ub,
    alloc_var,
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
    use_swizzle,
)
from tilelang.language.atomics import (
    atomic_add,
    atomic_addx2,
    atomic_addx4,
    atomic_max,
    atomic_min,
    atomic_or,
)
from tilelang.language.buffers import (
    FragmentBuffer,
    LocalBuffer,
    SharedBuffer,
    StridedTensor,
    Tensor,
)
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
from tilelang.language.loops import Parallel, Pipelined, grid, serial, unroll, vectorized
from tilelang.language.maths import *  # noqa: F403 - the maths functions are listed there
from tilelang.language.maths import __all__ as _maths
from tilelang.language.names import DTYPE_NAMES
from tilelang.language.tileops import (
    GemmWarpPolicy,
    clear,
    copy,
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
    reduce_max,
    reduce_min,
    reduce_sum,
    reshape,
    transpose,
    view,
)
from tilelang.scopes import Dialect, counterpart, dialects_of

Serial, Unroll, Vectorized = serial, unroll, vectorized

# `prim_func` and `macro` belong to the frontend, which imports this package; tilelang/__init__.py adds them here.
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
    near = difflib.get_close_matches(name, [*globals(), *_ELEMENT_TYPES], n=2)
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
    if name.startswith("_"):
        raise AttributeError(name)
    missing(name, "tilelang.language", Dialect.COMMON)


def __dir__() -> list[str]:
    return sorted({*globals(), *_ELEMENT_TYPES})
