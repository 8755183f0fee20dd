"""Rows of the tensor cores of sm_100: Tensor Memory, products into it, its loads and stores.

What leaves: `TCGEN05`. Tensor Memory is named by addresses, uint32 values: the lane in the upper 16
bits, the column of 32 bits in the lower ones. One warp allocates columns and frees them.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilelang.isa.instr import Immediate, InstrRow, Is, OperandRow
from tilelang.isa.target import Capability
from tilelang.targets.cuda.rows.build import (
    ASYNC,
    REGISTER,
    Maker,
    R,
    W,
    barrier,
    choice,
    made,
    ptx,
    result,
    slot,
    value,
)

_NEEDS = Capability.TCGEN05
_COLUMNS = (32, 64, 128, 256, 512)
_WAIT = ("mbarrier.try_wait.parity", "mbarrier.try_wait.parity.cluster")

MEMORY = [
    ptx(
        "tcgen05.alloc",
        "tcgen05.alloc",
        "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [{address}], {columns};",
        _NEEDS,
        threads=32,
        outs=(slot("address", W, dtypes=("uint32",), count=1),),
        imm=(choice("columns", *_COLUMNS),),
        waits=True,
    ),
    ptx(
        "tcgen05.relinquish_alloc_permit",
        "tcgen05.relinquish_alloc_permit",
        "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;",
        _NEEDS,
        threads=32,
    ),
    ptx(
        "tcgen05.dealloc",
        "tcgen05.dealloc",
        "tcgen05.dealloc.cta_group::1.sync.aligned.b32 {address}, {columns};",
        _NEEDS,
        threads=32,
        ins=(value("address", "uint32"),),
        imm=(choice("columns", *_COLUMNS),),
    ),
    *(
        ptx(
            f"tcgen05.fence.{name}",
            "tcgen05.fence",
            f"tcgen05.fence::{name};",
            _NEEDS,
            orders="tcgen05",
        )
        for name in ("before_thread_sync", "after_thread_sync")
    ),
    *(
        ptx(
            f"tcgen05.wait.{name}",
            "tcgen05.wait",
            f"tcgen05.wait::{name}.sync.aligned;",
            _NEEDS,
            threads=32,
            waits=True,
        )
        for name in ("ld", "st")
    ),
    ptx(
        "tcgen05.commit",
        "tcgen05.commit (the mbarrier is arrived at when all products before are complete)",
        "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [{barrier}];",
        _NEEDS,
        outs=(barrier(),),
    ),
    ptx(
        "tcgen05.descriptor",
        "tcgen05: Shared memory descriptor",
        None,
        _NEEDS,
        ins=(slot("matrix", R, align=16),),
        results=(result("descriptor", "uint64"),),
        imm=(choice("swizzle", 0, 32, 64, 128), Immediate("leading"), Immediate("stride")),
    ),
    ptx(
        "tcgen05.instruction",
        "tcgen05: Instruction descriptor",
        None,
        _NEEDS,
        results=(result("instruction", "uint32"),),
        imm=(
            choice("d", "f16", "f32", "s32"),
            choice("a", "f16", "bf16", "tf32", "e4m3", "e5m2", "u8", "s8"),
            choice("b", "f16", "bf16", "tf32", "e4m3", "e5m2", "u8", "s8"),
            choice("m", 64, 128),
            choice("n", *range(8, 257, 8)),
            Immediate("trans_a", bool),
            Immediate("trans_b", bool),
        ),
    ),
]


def _products() -> Iterator[InstrRow]:
    for kind in ("f16", "tf32", "f8f6f4", "i8"):
        for suffix, a in (("", "{a}"), (".ts", "[{a}]")):
            left = "uint32" if suffix else "uint64"
            yield ptx(
                f"tcgen05.mma.{kind}{suffix}",
                "tcgen05.mma",
                "{{ .reg .pred p; setp.ne.b32 p, {scale_d}, 0; tcgen05.mma.cta_group::1"
                f".kind::{kind} [{{d}}], {a}, {{b}}, {{instruction}}, p; }}}}",
                _NEEDS,
                ins=(
                    OperandRow("d", R | ASYNC, kind=Is.VALUE, dtypes=("uint32",)),
                    OperandRow("a", R | ASYNC, kind=Is.VALUE, dtypes=(left,)),
                    OperandRow("b", R | ASYNC, kind=Is.VALUE, dtypes=("uint64",)),
                    value("instruction", "uint32"),
                    value("scale_d", "bool"),
                ),
                until=_WAIT,
            )


def _moves() -> Iterator[InstrRow]:
    for count in (1, 2, 4, 8, 16, 32, 64, 128):
        shape = f"32x32b.x{count}.b32"
        words = ("float32", "int32", "uint32")
        given = slot("regs", R | ASYNC, REGISTER, count=count, dtypes=words)
        yield ptx(
            f"tcgen05.ld.32x32b.x{count}",
            "tcgen05.ld",
            f"tcgen05.ld.sync.aligned.{shape} {{regs}}, [{{address}}];",
            _NEEDS,
            threads=32,
            outs=(slot("regs", W | ASYNC, REGISTER, count=count, dtypes=words),),
            ins=(value("address", "uint32"),),
            until=("tcgen05.wait.ld",),
        )
        yield ptx(
            f"tcgen05.st.32x32b.x{count}",
            "tcgen05.st",
            f"tcgen05.st.sync.aligned.{shape} [{{address}}], {{regs}};",
            _NEEDS,
            threads=32,
            ins=(value("address", "uint32"), given),
            until=("tcgen05.wait.st",),
        )


TCGEN05: list[tuple[str, Maker]] = list(made([*MEMORY, *_products(), *_moves()]))
"""`tcgen05.mma.<kind>`: one thread issues it for the block: `d = (d if scale_d else 0) + a @ b`.
`a` is a descriptor, or with `.ts` an address in Tensor Memory. `tcgen05.ld` gives lane n of the 32
lanes that a warp of its number may touch to thread n, `count` columns of 32 bits.
"""
