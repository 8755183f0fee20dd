"""The passes of each kind of target, in order.

What enters: a function of the tile stage and a target. What leaves: a `Program` of the thread stage
for that target. Each entry says what holds after it; a pass relies on what those before it
guarantee and on nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import cast

from tilelang.errors import error
from tilelang.ir.node import Node
from tilelang.ir.thread import Program
from tilelang.ir.tile import Function
from tilelang.isa.target import BackendName, Target
from tilelang.passes.ascend.explicit import EXPLICIT
from tilelang.passes.ascend.lower import lower_ascend
from tilelang.passes.canonicalize import canonicalize, canonicalize_threads
from tilelang.passes.lower_copies import lower_copies
from tilelang.passes.lower_gemm import lower_gemm
from tilelang.passes.lower_mbarriers import lower_mbarriers
from tilelang.passes.lower_memory import lower_memory, lower_thread_memory
from tilelang.passes.lower_parallel import lower_parallel
from tilelang.passes.lower_products import lower_products
from tilelang.passes.lower_random import lower_random
from tilelang.passes.lower_reducers import lower_reducers, lower_tests
from tilelang.passes.lower_reductions import lower_reductions
from tilelang.passes.order_reducers import order_reducers
from tilelang.passes.order_threads import order_threads
from tilelang.passes.packed_views import packed_views
from tilelang.passes.plan_memory import plan_memory
from tilelang.passes.simt.arms import find_arms
from tilelang.passes.simt.author_layouts import author_layouts
from tilelang.passes.simt.demote_fragments import demote_fragments
from tilelang.passes.simt.end_together import end_together
from tilelang.passes.simt.first_values import first_values
from tilelang.passes.simt.fit_memory import fit_memory
from tilelang.passes.simt.lower_thread_random import lower_thread_random
from tilelang.passes.simt.order_blocks import order_blocks
from tilelang.passes.simt.persistent import persistent
from tilelang.passes.simt.plain_tiles import plain_tiles
from tilelang.passes.simt.rasterize import rasterize
from tilelang.passes.simt.software_pipeline import software_pipeline
from tilelang.passes.simt.split_exponentials import split_exponentials
from tilelang.passes.simt.spread_threads import spread_threads
from tilelang.passes.simt.switches import switched
from tilelang.passes.simt.synchronize import synchronize
from tilelang.passes.simt.tcgen05_fences import fence_tensor_memory
from tilelang.passes.simt.tensor_memory import tensor_memory
from tilelang.passes.simt.tma_store import tma_store
from tilelang.passes.simt.vectorize import vectorize
from tilelang.passes.simt.warp_specialize import warp_specialize
from tilelang.passes.split_grid import split_grid
from tilelang.passes.split_threads import split_threads
from tilelang.passes.widen_arithmetic import widen_arithmetic
from tilelang.scopes import Dialect

Pass = (
    Callable[[Function, Target], Function]
    | Callable[[Function, Target], Program]
    | Callable[[Program, Target], Program]
)
Watch = Callable[[str, Node], None]

ONE_THREAD: tuple[Pass, ...] = (
    packed_views,  # no view of small elements as bytes, or the reverse
    canonicalize,  # pipelines are loops; asynchronous work is done at once; no hints
    order_reducers,  # no reducer is used where it cannot be open
    order_threads,  # threads meet before they use what others have written
    lower_mbarriers,  # no mbarriers: counters, updated by threads and checked where they wait
    lower_tests,  # no tests over elements
    lower_random,  # no streams of random numbers: arithmetic on arrays
    split_threads,  # no statement names a thread; no barriers of a block
    split_grid,  # no barriers of the grid: more launches
    lower_products,  # sparse and scaled products and patches are plain products and loops
    lower_gemm,  # products have packed operands on chip, of one computing type
    lower_reducers,  # reducers are buffers; contributions are left
    lower_reductions,  # no reductions and scans: loops with explicit partial results
    lower_copies,  # no operations on tiles but packed products
    lower_parallel,  # no parallel nests: loops, the innermost in lockstep where it can be
    widen_arithmetic,  # operators work on float32, float64 and whole bytes
    lower_memory,  # the thread stage: flat arrays, guards, kernels
    plan_memory,  # every shared array has its place
)
"""For a machine on which one thread runs a block."""

MANY_THREADS: tuple[Pass, ...] = (
    packed_views,  # no view of small elements as bytes, or the reverse
    rasterize,  # blocks lie in panels where the author asks for it
    order_blocks,  # blocks with more rounds begin first
    author_layouts,  # shared buffers lie as the author says
    persistent,  # blocks of products stay and take tiles in turn
    canonicalize_threads,  # asynchronous work is done at once; no hints; pipelines are left
    lower_products,  # sparse and scaled products and patches are plain products and loops
    lower_reducers,  # reducers are buffers; contributions are left
    lower_thread_random,  # random numbers are arithmetic on each thread's own stream
    first_values,  # masks are computed for the tiles that they divide
    end_together,  # no thread ends before Tensor Memory is given back
    find_arms,  # parts of the block with statements of their own; mbarriers are set up
    warp_specialize,  # loops with tensor copies: one warp issues them, warpgroups compute
    software_pipeline,  # pipelines are loops; their copies are issued ahead
    tma_store,  # shared tiles go to global memory by tensor copies
    tensor_memory,  # Tensor Memory has its columns; products into it are issued and waited for
    demote_fragments,  # fragments are used as registers can be
    plain_tiles,  # of tiles, only parallel nests, reductions and products of whole fragments
    spread_threads,  # what one thread does; fragments are registers; no barriers but the author's
    split_exponentials,  # powers of two of a fragment look once whether one is subnormal
    widen_arithmetic,  # operators work on float32, float64 and whole bytes
    lower_thread_memory,  # the thread stage: flat arrays, guards, kernels
    vectorize,  # neighbouring elements are read and written as vectors; no loops in lockstep
    plan_memory,  # every shared array has its place
    fit_memory,  # and all of them fit
    synchronize,  # threads meet before they use what others have written
    fence_tensor_memory,  # and what they do in Tensor Memory is ordered where they meet
)
"""For a machine on which many threads run a block."""

CORE_GROUPS: tuple[Pass, ...] = (
    *EXPLICIT,  # memories, cores, addresses and the order between pipes are statements
    lower_ascend,  # the thread stage: instructions on arrays at their addresses
)
"""For a machine whose cores queue work on pipes."""

PIPELINES: Mapping[BackendName, tuple[Pass, ...]] = {
    "cpu": ONE_THREAD,
    "cuda": MANY_THREADS,
    "ascend": CORE_GROUPS,
}
"""The passes for the hardware of each kind of target."""


def lower(
    fn: Function, target: Target, watch: Watch | None = None, without: Iterable[str] = ()
) -> Program:
    """The program of the thread stage that does on `target` what `fn` means.

    `watch` is told the name of each pass and what it made; `without` names what is left out, as
    `passes/simt/switches.py` lists it. Raises a `TileError` of kind `target`
    for what the target cannot run.
    """
    passes = PIPELINES.get(target.backend) if target.mode == "native" else None
    if passes is None:
        raise error(
            "target",
            f"there is no lowering for the target {target}",
            fn.loc,
            expected=", ".join(PIPELINES),
        )
    if not target.runs(Dialect(fn.dialect)):
        raise error(
            "target",
            f"there is no lowering of the {fn.dialect} dialect for the target {target}",
            fn.loc,
        )
    at: Node = switched(fn, without)
    for one in passes:
        at = cast("Callable[[Node, Target], Node]", one)(at, target)
        if watch is not None:
            watch(one.__name__, at)
    return cast("Program", at)
