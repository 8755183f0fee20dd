"""From a kernel as an author writes it to an explicit one: the passes of Ascend cores, in order.

What enters: a function of an Ascend dialect with the attribute of `settings.py`. What leaves: an
explicit function (`ir/ascend.py`). Each entry says what holds after it.
"""

from __future__ import annotations

from collections.abc import Callable

from tilelang.ir.tile import Function
from tilelang.isa.target import Target
from tilelang.passes.ascend.clear_tiles import clear_tiles
from tilelang.passes.ascend.cores import choose_cores, clear_accumulators
from tilelang.passes.ascend.infer_scopes import infer_scopes
from tilelang.passes.ascend.insert_sync import insert_sync
from tilelang.passes.ascend.mark_scales import mark_scales
from tilelang.passes.ascend.match_flags import match_flags
from tilelang.passes.ascend.plan_memory import plan_memory
from tilelang.passes.ascend.route_copies import route_copies
from tilelang.passes.ascend.schedule import note_times, schedule
from tilelang.passes.ascend.split_cores import split_cores
from tilelang.passes.ascend.split_rows import split_rows
from tilelang.passes.ascend.spread_functions import spread_functions
from tilelang.passes.ascend.unroll_pipelines import unroll_pipelines
from tilelang.passes.ascend.vectorize_functions import vectorize_functions
from tilelang.passes.ascend.vectorize_parallel import vectorize_parallel
from tilelang.passes.ascend.weave_loops import weave_loops
from tilelang.passes.ascend.whole_writes import whole_writes

Pass = Callable[[Function, Target], Function]

EXPLICIT: tuple[Pass, ...] = (
    mark_scales,  # scales in L1 are known by their scope; no fp4, bytes of two elements
    choose_cores,  # launches say how many vector cores of a group take part
    clear_accumulators,  # nothing fills L0C: products begin at zero
    whole_writes,  # vector functions say what they overwrite as a whole
    spread_functions,  # SIMT functions say what one thread does
    vectorize_functions,  # SIMD functions work on registers alone
    match_flags,  # waits for cross-core flags know their mode
    infer_scopes,  # every buffer has one memory
    vectorize_parallel,  # no parallel nests: operations on tiles, loops over elements
    clear_tiles,  # a tile of L1 that a copy begins and does not fill is zero elsewhere
    route_copies,  # no copy but what the hardware does
    weave_loops,  # the order of statements serves both kinds of core in every round
    split_rows,  # rows are spread over the vector cores where the author leaves that open
    unroll_pipelines,  # pipelined loops are plain ones, with several sets of buffers
    schedule,  # independent statements are in the order that the pipes do sooner
    plan_memory,  # every buffer on chip has its bytes
    insert_sync,  # pipes and cores wait for each other where the settings ask for it
    split_cores,  # a region for each kind of core
    note_times,  # the compile report has the modelled time
)


def explicit(fn: Function, target: Target) -> Function:
    """The explicit function that does what `fn` says."""
    for one in EXPLICIT:
        fn = one(fn, target)
    return fn
