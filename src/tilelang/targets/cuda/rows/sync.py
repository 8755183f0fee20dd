"""Rows of synchronisation: mbarriers, barriers of a block and of a cluster, fences, launch control.

What leaves: `SYNC`. They have no NumPy meaning: what they do is between threads, and is stated by
`waits`, `orders` and `until`.
"""

from __future__ import annotations

from tilelang.isa.instr import Immediate, table
from tilelang.isa.target import Capability
from tilelang.targets.cuda.rows.build import (
    ASYNC,
    ATOMIC,
    COUNTS,
    GLOBAL,
    R,
    U,
    W,
    barrier,
    choice,
    ptx,
    result,
    slot,
    value,
)

_MBARRIER, _CLUSTER = Capability.MBARRIER, Capability.CLUSTER

# The address of the same barrier in another block of the cluster.
_REMOTE = "{{ .reg .b32 a; mapa.shared::cluster.u32 a, {barrier}, {cta}; %s }}"
_TRY = (
    "{{ .reg .pred p; W%%=: mbarrier.try_wait.parity%s.shared::cta.b64 p, [{barrier}], {parity};"
    " @!p bra W%%=; }}"
)

MBARRIERS = [
    ptx(
        "mbarrier.init",
        "mbarrier.init",
        "mbarrier.init.shared::cta.b64 [{barrier}], {count};",
        _MBARRIER,
        outs=(barrier(W),),
        ins=(value("count", *COUNTS),),
    ),
    ptx(
        "mbarrier.inval",
        "mbarrier.inval",
        "mbarrier.inval.shared::cta.b64 [{barrier}];",
        _MBARRIER,
        outs=(barrier(W),),
    ),
    ptx(
        "mbarrier.arrive",
        "mbarrier.arrive",
        "{{ .reg .b64 s; mbarrier.arrive.shared::cta.b64 s, [{barrier}]; }}",
        _MBARRIER,
        outs=(barrier(),),
    ),
    ptx(
        "mbarrier.arrive.count",
        "mbarrier.arrive",
        "{{ .reg .b64 s; mbarrier.arrive.shared::cta.b64 s, [{barrier}], {count}; }}",
        _MBARRIER,
        outs=(barrier(),),
        ins=(value("count", *COUNTS),),
    ),
    ptx(
        "mbarrier.arrive.expect_tx",
        "mbarrier.arrive",
        "{{ .reg .b64 s; mbarrier.arrive.expect_tx.shared::cta.b64 s, [{barrier}], {bytes}; }}",
        _MBARRIER,
        outs=(barrier(),),
        ins=(value("bytes", *COUNTS),),
    ),
    ptx(
        "mbarrier.expect_tx",
        "mbarrier.expect_tx",
        "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [{barrier}], {bytes};",
        _MBARRIER,
        outs=(barrier(),),
        ins=(value("bytes", *COUNTS),),
    ),
    ptx(
        "mbarrier.expect_tx.cluster",
        "mbarrier.expect_tx; mapa",
        _REMOTE % "mbarrier.expect_tx.relaxed.cluster.shared::cluster.b64 [a], {bytes};",
        _CLUSTER,
        outs=(barrier(),),
        ins=(value("bytes", *COUNTS), value("cta", *COUNTS)),
    ),
    ptx(
        "mbarrier.arrive.cluster",
        "mbarrier.arrive; mapa",
        _REMOTE % "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [a];",
        _CLUSTER,
        outs=(barrier(),),
        ins=(value("cta", *COUNTS),),
    ),
    ptx(
        "mbarrier.arrive.expect_tx.cluster",
        "mbarrier.arrive; mapa",
        _REMOTE % "mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [a], {bytes};",
        _CLUSTER,
        outs=(barrier(),),
        ins=(value("bytes", *COUNTS), value("cta", *COUNTS)),
    ),
    ptx(
        "mbarrier.try_wait.parity",
        "mbarrier.try_wait (in a loop until the phase is complete)",
        _TRY % "",
        _MBARRIER,
        ins=(barrier(R), value("parity", *COUNTS)),
        waits=True,
    ),
    ptx(
        "mbarrier.try_wait.parity.cluster",
        "mbarrier.try_wait (in a loop); acquires what blocks of the cluster released",
        _TRY % ".acquire.cluster",
        _CLUSTER,
        ins=(barrier(R), value("parity", *COUNTS)),
        waits=True,
    ),
    ptx(
        "mbarrier.test_wait.parity",
        "mbarrier.test_wait",
        "{{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [{barrier}], {parity};"
        " selp.u32 {done}, 1, 0, p; }}",
        _MBARRIER,
        ins=(barrier(R), value("parity", *COUNTS)),
        results=(result("done", "bool"),),
    ),
    ptx(
        "cp.async.mbarrier.arrive.noinc",
        "cp.async.mbarrier.arrive",
        "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [{barrier}];",
        _MBARRIER,
        outs=(barrier(),),
    ),
]

_BLOCK = (Immediate("id"), Immediate("threads"))
_BLOCK_VALUES = (value("id", *COUNTS), value("threads", *COUNTS))


def _voted(name: str, op: str, kind: str, given: str) -> str:
    """A barrier that combines one predicate of each thread."""
    move = "mov.u32 {result}, r;" if kind == "u32" else "selp.u32 {result}, 1, 0, r;"
    reg = ".reg .u32 r;" if kind == "u32" else ".reg .pred r;"
    test = f".reg .pred p; {reg} setp.ne.u32 p, {{{given}}}, 0;"
    return f"{{{{ {test} {name}.{op}.{kind} r, {{id}}, {{threads.warps}}, p; {move} }}}}"


BARRIERS = [
    ptx(
        "barrier.sync",
        "bar, barrier",
        "barrier.sync.aligned {id}, {threads.warps};",
        threads=0,
        imm=_BLOCK,
        waits=True,
        orders="generic",
    ),
    ptx(
        "barrier.sync.all",
        "bar, barrier",
        "barrier.sync {id};",
        threads=0,
        imm=(Immediate("id"),),
        waits=True,
        orders="generic",
    ),
    ptx(
        "barrier.arrive",
        "bar, barrier",
        "barrier.arrive.aligned {id}, {threads.warps};",
        threads=0,
        imm=_BLOCK,
        orders="generic",
    ),
    ptx(
        "barrier.sync.value",
        "bar, barrier",
        "barrier.sync {id}, {threads};",
        threads=0,
        ins=_BLOCK_VALUES,
        waits=True,
        orders="generic",
    ),
    ptx(
        "barrier.arrive.value",
        "bar, barrier",
        "barrier.arrive {id}, {threads};",
        threads=0,
        ins=_BLOCK_VALUES,
        orders="generic",
    ),
    *(
        ptx(
            f"barrier.red.{op}",
            "bar, barrier",
            _voted("barrier.red", op, kind, "predicate"),
            threads=0,
            imm=_BLOCK,
            ins=(value("predicate", "bool"),),
            results=(result("result", "int32"),),
            waits=True,
            orders="generic",
        )
        for op, kind in (("popc", "u32"), ("and", "pred"), ("or", "pred"))
    ),
    ptx(
        "bar.warp.sync",
        "bar.warp.sync",
        "bar.warp.sync {mask};",
        threads=32,
        imm=(Immediate("mask"),),
        waits=True,
        orders="generic",
    ),
    ptx(
        "barrier.cluster.arrive",
        "barrier.cluster",
        "barrier.cluster.arrive.release.aligned;",
        _CLUSTER,
        threads=0,
        orders="generic",
    ),
    ptx(
        "barrier.cluster.arrive.relaxed",
        "barrier.cluster",
        "barrier.cluster.arrive.relaxed.aligned;",
        _CLUSTER,
        threads=0,
    ),
    ptx(
        "barrier.cluster.wait",
        "barrier.cluster",
        "barrier.cluster.wait.acquire.aligned;",
        _CLUSTER,
        threads=0,
        waits=True,
        orders="generic",
    ),
    ptx(
        "grid.sync",
        "atom, ld (a counter that every block of a cooperative launch adds to)",
        None,
        threads=0,
        outs=(slot("counter", U | ATOMIC, GLOBAL, dtypes=("uint32",), count=1),),
        waits=True,
        orders="generic",
    ),
]
"""`grid.sync` leaves its counter, zero at first, such that it can be used again."""

# A barrier that counts threads waits for ever for those that have ended; one of all threads of the
# block, which counts none, does not (CUDA C++ Programming Guide, "Synchronization Functions").

FENCES = [
    ptx(
        "fence.mbarrier_init",
        "membar, fence",
        "fence.mbarrier_init.release.cluster;",
        _CLUSTER,
        orders="mbarrier_init",
    ),
    *(
        ptx(f"fence.proxy.async{name}", "membar, fence", text, Capability.TMA, orders="proxy.async")
        for name, text in (
            ("", "fence.proxy.async.shared::cta;"),
            (".global", "fence.proxy.async.global;"),
            (".all", "fence.proxy.async;"),
        )
    ),
    *(
        ptx(
            f"fence.{sem}.{scope}",
            "membar, fence",
            f"fence.{sem}.{scope};",
            _CLUSTER if scope == "cluster" else None,
            orders="generic",
        )
        for sem in ("acq_rel", "sc")
        for scope in ("cta", "cluster", "gpu", "sys")
    ),
]

CONTROL = [
    ptx(
        "setmaxnreg",
        "setmaxnreg",
        "setmaxnreg.{step}.sync.aligned.u32 {registers};",
        Capability.SETMAXNREG,
        threads=128,
        imm=(choice("step", "inc", "dec"), choice("registers", *range(24, 257, 8))),
        waits=True,
    ),
    ptx(
        "griddepcontrol.launch_dependents",
        "griddepcontrol",
        "griddepcontrol.launch_dependents;",
        _CLUSTER,
    ),
    ptx(
        "griddepcontrol.wait",
        "griddepcontrol",
        "griddepcontrol.wait;",
        _CLUSTER,
        waits=True,
        orders="generic",
    ),
    ptx("nanosleep", "nanosleep", "nanosleep.u32 {time};", ins=(value("time", *COUNTS),)),
    ptx(
        "elect.sync",
        "elect.sync",
        "{{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 {elected}, 1, 0, p; }}",
        _CLUSTER,
        threads=32,
        results=(result("elected", "bool"),),
    ),
    *(
        ptx(
            f"cluster.{name}",
            f"Special Registers: {register}",
            f"mov.u32 {{{name}}}, %%{register};",
            _CLUSTER,
            results=(result(name, "int32"),),
        )
        for name, register in (("ctarank", "cluster_ctarank"), ("nctarank", "cluster_nctarank"))
    ),
]

_QUERY = "clusterlaunchcontrol.query_cancel"
_ANSWER = (
    "{{ .reg .b128 w; .reg .pred p; ld.shared.b128 w, [{response}];"
    f" {_QUERY}.is_canceled.pred.b128 p, w; %s }}}}"
)
_WORDS = ("uint32", "int32")

LAUNCH_CONTROL = [
    *(
        ptx(
            f"clusterlaunchcontrol.try_cancel{name}",
            "clusterlaunchcontrol.try_cancel",
            "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes"
            f"{all_blocks}.b128 [{{response}}], [{{barrier}}];",
            Capability.LAUNCH_CONTROL,
            outs=(slot("response", W | ASYNC, dtypes=_WORDS, count=4, align=16), barrier()),
            until=("mbarrier.try_wait.parity", "mbarrier.try_wait.parity.cluster"),
        )
        for name, all_blocks in (("", ""), (".multicast", ".multicast::cluster::all"))
    ),
    ptx(
        f"{_QUERY}.is_canceled",
        "clusterlaunchcontrol.query_cancel",
        _ANSWER % "selp.u32 {found}, 1, 0, p;",
        Capability.LAUNCH_CONTROL,
        ins=(slot("response", R, dtypes=_WORDS, count=4, align=16),),
        results=(result("found", "int32"),),
    ),
    *(
        ptx(
            f"{_QUERY}.first_ctaid_{x}",
            "clusterlaunchcontrol.query_cancel",
            _ANSWER
            % f"mov.u32 {{index}}, 0; @p {_QUERY}.get_first_ctaid::{x}.b32.b128 {{index}}, w;",
            Capability.LAUNCH_CONTROL,
            ins=(slot("response", R, dtypes=_WORDS, count=4, align=16),),
            results=(result("index", "uint32"),),
        )
        for x in "xyz"
    ),
]
"""An index of an answer that names no cluster is undefined; here it is 0."""

SYNC = table([*MBARRIERS, *BARRIERS, *FENCES, *CONTROL, *LAUNCH_CONTROL])
