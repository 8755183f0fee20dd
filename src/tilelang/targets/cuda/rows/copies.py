"""Rows that copy: cp.async, bulk copies, tensor copies (TMA), and accesses to the shared memory of
another block of the cluster.

What leaves: `COPIES`. A meaning moves the elements at once; when they are there is said by `until`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilelang.isa.instr import Immediate, InstrRow, Is, OperandRow, table
from tilelang.isa.target import Capability
from tilelang.targets.cuda.rows.build import (
    ASYNC,
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

_TMA = (Capability.TMA,)

# cp.async -----------------------------------------------------------------------------------------


def _copy(dst: Any, src: Any, **_: Any) -> tuple[()]:
    dst[:] = src
    return ()


def _copy_some(dst: Any, src: Any, bytes: Any, **_: Any) -> tuple[()]:  # noqa: A002 - the operand's name
    raw = np.zeros(dst.nbytes, np.uint8)
    raw[: int(bytes)] = src.view(np.uint8)[: int(bytes)]
    dst[:] = raw.view(dst.dtype)
    return ()


def _cp_async(size: int, cache: str) -> Iterator[InstrRow]:
    outs = (slot("dst", W | ASYNC, align=size, bits=8 * size),)
    src = slot("src", R | ASYNC, GLOBAL, align=size, bits=8 * size)
    text = f"cp.async.{cache}.shared.global [{{dst}}], [{{src}}], {size}"
    until = ("cp.async.wait_group", "cp.async.wait_all", "cp.async.mbarrier.arrive.noinc")
    for name, ins, tail, meaning in (
        ("", (src,), ";", _copy),
        (".zfill", (src, value("bytes", *COUNTS)), ", {bytes};", _copy_some),
    ):
        yield ptx(
            f"cp.async.{cache}.{size}{name}",
            "cp.async",
            text + tail,
            Capability.CP_ASYNC,
            outs=outs,
            ins=ins,
            until=until,
            meaning=meaning,
        )


CP_ASYNC = [
    *_cp_async(4, "ca"),
    *_cp_async(8, "ca"),
    *_cp_async(16, "ca"),
    *_cp_async(16, "cg"),
    ptx(
        "cp.async.commit_group",
        "cp.async.commit_group",
        "cp.async.commit_group;",
        Capability.CP_ASYNC,
    ),
    ptx(
        "cp.async.wait_group",
        "cp.async.wait_group",
        "cp.async.wait_group {count};",
        Capability.CP_ASYNC,
        imm=(Immediate("count"),),
        waits=True,
    ),
    ptx(
        "cp.async.wait_all",
        "cp.async.wait_all",
        "cp.async.wait_all;",
        Capability.CP_ASYNC,
        waits=True,
    ),
]
"""`.zfill` copies the first `bytes` (0 to the size), and zeros for the rest; 0 reads nothing."""

# Bulk copies --------------------------------------------------------------------------------------

_HALVES = ("float16", "bfloat16")
_GROUP = ("cp.async.bulk.wait_group", "cp.async.bulk.wait_group.read")
_WAIT = ("mbarrier.try_wait.parity", "mbarrier.try_wait.parity.cluster")
CACHE = choice("cache", "evict_first", "evict_last", "evict_normal", optional=True)
"""How L2 keeps the lines; it never changes a value."""

# A policy must be in a register.
_POLICY = "{cache:.reg .b64 h; mov.b64 h, %;|} "
_HINT, _HINTED = "{cache:.L2::cache_hint|}", "{cache:, h|}"


def _in_scope(text: str) -> str:
    return "{{ " + _POLICY + text + " }}"


BULK = [
    ptx(
        "cp.async.bulk.load",
        "cp.async.bulk",
        _in_scope(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
            + f"{_HINT} [{{dst}}], [{{src}}], {{bytes}}, [{{barrier}}]{_HINTED};"
        ),
        Capability.TMA,
        outs=(slot("dst", W | ASYNC, align=16), barrier()),
        ins=(slot("src", R | ASYNC, GLOBAL, align=16), value("bytes", *COUNTS)),
        imm=(CACHE,),
        until=_WAIT,
    ),
    ptx(
        "cp.async.bulk.load.multicast",
        "cp.async.bulk",
        _in_scope(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
            + f"{_HINT} [{{dst}}], [{{src}}], {{bytes}}, [{{barrier}}], {{blocks}}{_HINTED};"
        ),
        Capability.TMA,
        outs=(slot("dst", W | ASYNC, align=16), barrier()),
        ins=(
            slot("src", R | ASYNC, GLOBAL, align=16),
            value("bytes", *COUNTS),
            value("blocks", "uint16"),
        ),
        imm=(CACHE,),
        until=_WAIT,
    ),
    ptx(
        "cp.async.bulk.store",
        "cp.async.bulk",
        _in_scope(
            f"cp.async.bulk.global.shared::cta.bulk_group{_HINT} [{{dst}}], [{{src}}],"
            + f" {{bytes}}{_HINTED};"
        ),
        Capability.TMA,
        outs=(slot("dst", W | ASYNC, GLOBAL, align=16),),
        ins=(slot("src", R | ASYNC, align=16), value("bytes", *COUNTS)),
        imm=(CACHE,),
        until=_GROUP,
    ),
    *(
        ptx(
            f"cp.reduce.async.bulk.{op}",
            "cp.reduce.async.bulk",
            f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{op}.{{dst.{kind}}}"
            " [{dst}], [{src}], {bytes};",
            Capability.TMA,
            outs=(slot("dst", U | ASYNC, GLOBAL, align=16, dtypes=dtypes),),
            ins=(
                OperandRow("src", R | ASYNC, spaces=slot("x").spaces, like="dst", align=16),
                value("bytes", *COUNTS),
            ),
            until=_GROUP,
        )
        for op, kind, dtypes in (
            ("add", "ptx_add", (*_HALVES, "float32", "float64", "int32", "uint32", "uint64")),
            ("min", "ptx", (*_HALVES, "int32", "uint32", "int64", "uint64")),
            ("max", "ptx", (*_HALVES, "int32", "uint32", "int64", "uint64")),
        )
    ),
    ptx(
        "cp.async.bulk.cluster",
        "cp.async.bulk; mapa",
        "{{ .reg .b32 d, m; mapa.shared::cluster.u32 d, {dst}, {cta};"
        " mapa.shared::cluster.u32 m, {barrier}, {cta};"
        " cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"
        " [d], [{src}], {bytes}, [m]; }}",
        Capability.TMA,
        outs=(slot("dst", W | ASYNC, align=16), barrier()),
        ins=(slot("src", R | ASYNC, align=16), value("bytes", *COUNTS), value("cta", *COUNTS)),
        until=_WAIT,
    ),
    ptx(
        "cp.async.bulk.commit_group",
        "cp.async.bulk.commit_group",
        "cp.async.bulk.commit_group;",
        Capability.TMA,
    ),
    ptx(
        "cp.async.bulk.wait_group",
        "cp.async.bulk.wait_group",
        "cp.async.bulk.wait_group {count};",
        Capability.TMA,
        imm=(Immediate("count"),),
        waits=True,
    ),
    ptx(
        "cp.async.bulk.wait_group.read",
        "cp.async.bulk.wait_group",
        "cp.async.bulk.wait_group.read {count};",
        Capability.TMA,
        imm=(Immediate("count"),),
        waits=True,
    ),
]

# Tensor copies ------------------------------------------------------------------------------------

AXES = ("x", "y", "z", "u", "v")
"""The coordinates of a box, innermost axis first."""

_REDUCTIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")
_BOX = slot("dst", W | ASYNC, align=128)
_MAP = OperandRow("map", R | ASYNC, kind=Is.MAP)


def _load_of_pair(base: str, at: str, ins: tuple[OperandRow, ...]) -> InstrRow:
    load = f"{base}.cta_group::2.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
    return ptx(
        f"{base}.load.cta2",
        "cp.async.bulk.tensor (completes at the mbarrier of another block of a pair)",
        _in_scope(
            "{{ .reg .b32 a; mapa.shared::cluster.u32 a, {barrier}, {cta}; "
            f"{load}{_HINT} [{{dst}}], {at}, [a]{_HINTED}; }}}}"
        ),
        Capability.TCGEN05,
        outs=(_BOX, barrier()),
        ins=(*ins, value("cta", *COUNTS)),
        imm=(CACHE,),
        until=_WAIT,
    )


@dataclass(frozen=True)
class _Tensor:
    """The parts that all rows of tensor copies with one number of axes share."""

    rank: int

    @property
    def base(self) -> str:
        return f"cp.async.bulk.tensor.{self.rank}d"

    @property
    def at(self) -> str:
        """The template of the tensor map and the coordinates."""
        return "[{map}, {{" + ", ".join(f"{{{x}}}" for x in AXES[: self.rank]) + "}}]"

    @property
    def coordinates(self) -> tuple[OperandRow, ...]:
        return tuple(value(x, "int32") for x in AXES[: self.rank])


def _tensor_loads(t: _Tensor) -> Iterator[InstrRow]:
    base, at = t.base, t.at
    ins = (_MAP, *t.coordinates)
    load = f"{base}.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
    yield ptx(
        f"{base}.load",
        "cp.async.bulk.tensor",
        _in_scope(f"{load}{_HINT} [{{dst}}], {at}, [{{barrier}}]{_HINTED};"),
        *_TMA,
        outs=(_BOX, barrier()),
        ins=ins,
        imm=(CACHE,),
        until=_WAIT,
    )
    yield ptx(
        f"{base}.load.multicast",
        "cp.async.bulk.tensor",
        _in_scope(
            f"{load}.multicast::cluster{_HINT} [{{dst}}], {at}, [{{barrier}}], {{blocks}}{_HINTED};"
        ),
        *_TMA,
        outs=(_BOX, barrier()),
        ins=(*ins, value("blocks", "uint16")),
        imm=(CACHE,),
        until=_WAIT,
    )
    yield _load_of_pair(base, at, ins)


def _tensor_stores(t: _Tensor) -> Iterator[InstrRow]:
    base, at = t.base, t.at
    src = slot("src", R | ASYNC, align=128)
    yield ptx(
        f"{base}.store",
        "cp.async.bulk.tensor",
        _in_scope(f"{base}.global.shared::cta.tile.bulk_group{_HINT} {at}, [{{src}}]{_HINTED};"),
        *_TMA,
        ins=(_MAP, src, *t.coordinates),
        imm=(CACHE,),
        until=_GROUP,
    )
    for op in _REDUCTIONS:
        text = f"cp.reduce.async.bulk.tensor.{t.rank}d.global.shared::cta.{op}.tile.bulk_group"
        yield ptx(
            f"cp.reduce.async.bulk.tensor.{t.rank}d.{op}",
            "cp.reduce.async.bulk.tensor",
            _in_scope(f"{text}{_HINT} {at}, [{{src}}]{_HINTED};"),
            *_TMA,
            ins=(_MAP, src, *t.coordinates),
            imm=(CACHE,),
            until=_GROUP,
        )
    yield ptx(
        f"cp.async.bulk.prefetch.tensor.{t.rank}d",
        "cp.async.bulk.prefetch.tensor",
        f"cp.async.bulk.prefetch.tensor.{t.rank}d.L2.global.tile {at};",
        *_TMA,
        ins=(OperandRow("map", kind=Is.MAP), *t.coordinates),
    )


_ROWS = ("x", "r0", "r1", "r2", "r3")
"""The coordinates of four rows: the first column of all, then the number of each.

The PTX ISA does not say which comes first; CUTLASS does (SM100_TMA_LOAD_2D_GATHER4: the innermost
coordinate, then those of the gathered axis).
"""


def _four_rows() -> Iterator[InstrRow]:
    """Four rows of a matrix that lie anywhere; the box of its map has one row."""
    at = "[{map}, {{" + ", ".join(f"{{{x}}}" for x in _ROWS) + "}}]"
    ins = tuple(value(x, "int32") for x in _ROWS)
    base = "cp.async.bulk.tensor.2d"
    load = f"{base}.shared::cluster.global.tile::gather4.mbarrier::complete_tx::bytes"
    store = f"{base}.global.shared::cta.tile::scatter4.bulk_group"
    yield ptx(
        f"{base}.gather4",
        "cp.async.bulk.tensor",
        _in_scope(f"{load}{_HINT} [{{dst}}], {at}, [{{barrier}}]{_HINTED};"),
        Capability.TMA_ROWS,
        outs=(_BOX, barrier()),
        ins=(_MAP, *ins),
        imm=(CACHE,),
        until=_WAIT,
    )
    yield ptx(
        f"{base}.scatter4",
        "cp.async.bulk.tensor",
        _in_scope(f"{store}{_HINT} {at}, [{{src}}]{_HINTED};"),
        Capability.TMA_ROWS,
        ins=(_MAP, slot("src", R | ASYNC, align=128), *ins),
        imm=(CACHE,),
        until=_GROUP,
    )


TMA = [
    *(
        row
        for t in (_Tensor(rank) for rank in range(1, 6))
        for row in (*_tensor_loads(t), *_tensor_stores(t))
    ),
    *_four_rows(),
    ptx(
        "prefetch.tensormap",
        "prefetch",
        "prefetch.tensormap [{map}];",
        *_TMA,
        ins=(OperandRow("map", kind=Is.MAP),),
    ),
]
"""A load delivers the whole box, zeros (or NaN) where it is outside; a store skips what is outside.

The address of a box in shared memory is a multiple of 128 bytes, of 1024 where the map swizzles by
128 bytes. A store and a reduction write the tensor of their map.
"""

# The cluster's shared memory ----------------------------------------------------------------------


def _remote(bits: int) -> Iterator[InstrRow]:
    dtypes = {
        32: ("int32", "uint32", "float32"),
        64: ("int64", "uint64", "float64"),
    }[bits]
    at = "{{ .reg .b32 a; mapa.shared::cluster.u32 a, {%s}, {cta}; %s }}"
    yield ptx(
        f"ld.shared.cluster.b{bits}",
        "ld; mapa",
        at % ("src", f"ld.shared::cluster.b{bits} {{value}}, [a];"),
        Capability.CLUSTER,
        ins=(slot("src", dtypes=dtypes, count=1), value("cta", *COUNTS)),
        results=(result("value", like="src"),),
    )
    yield ptx(
        f"st.shared.cluster.b{bits}",
        "st; mapa",
        at % ("dst", f"st.shared::cluster.b{bits} [a], {{value}};"),
        Capability.CLUSTER,
        outs=(slot("dst", W, dtypes=dtypes, count=1),),
        ins=(value("value", like="dst"), value("cta", *COUNTS)),
    )


REMOTE = [
    *_remote(32),
    *_remote(64),
    ptx(
        "mapa",
        "mapa; cvta",
        "{{ .reg .b32 a; .reg .b64 b; mapa.shared::cluster.u32 a, {src}, {cta};"
        " cvt.u64.u32 b, a; cvta.shared::cluster.u64 {address}, b; }}",
        Capability.CLUSTER,
        ins=(slot("src", count=1), value("cta", *COUNTS)),
        results=(result("address", "uint64"),),
    ),
]
"""The element at the same place in the shared memory of block `cta` of the cluster."""

COPIES: dict[str, InstrRow] = table([*CP_ASYNC, *BULK, *TMA, *REMOTE])
