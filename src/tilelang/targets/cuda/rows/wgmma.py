"""Rows of matrix products by a warpgroup: wgmma, what orders them, and shared-memory descriptors.

What leaves: `WGMMA`, pairs of a name and a function that makes the row (there are many shapes).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tilelang.dtypes import DType
from tilelang.isa.instr import Immediate, InstrRow, Is, OperandRow
from tilelang.isa.target import Capability
from tilelang.targets.cuda.rows.build import (
    ASYNC,
    REGISTER,
    Maker,
    R,
    U,
    choice,
    made,
    ptx,
    result,
    slot,
    value,
)
from tilelang.targets.cuda.rows.matrix import DTYPES

_NEEDS = Capability.WGMMA

ORDER = [
    ptx(
        "wgmma.fence",
        "wgmma.fence",
        "wgmma.fence.sync.aligned;",
        _NEEDS,
        threads=128,
        orders="wgmma",
    ),
    ptx(
        "wgmma.commit_group",
        "wgmma.commit_group",
        "wgmma.commit_group.sync.aligned;",
        _NEEDS,
        threads=128,
    ),
    ptx(
        "wgmma.wait_group",
        "wgmma.wait_group",
        "wgmma.wait_group.sync.aligned {count};",
        _NEEDS,
        threads=128,
        imm=(Immediate("count"),),
        waits=True,
    ),
    ptx(
        "wgmma.ready",
        "wgmma.wait_group (no instruction: registers of a product that is complete)",
        "",
        _NEEDS,
        threads=128,
        outs=(slot("d", U, REGISTER),),
    ),
]
"""`wgmma.ready` stands after a `wgmma.wait_group`, once for each array whose products are complete
then: its reads do not move above it. A wait for all without it has that for all arrays.
"""

DESCRIPTOR = ptx(
    "wgmma.descriptor",
    "Asynchronous Warpgroup Level Matrix Shared Memory Layout: Matrix Descriptor",
    None,
    _NEEDS,
    ins=(slot("matrix", R, align=16),),
    results=(result("descriptor", "uint64"),),
    imm=(choice("swizzle", 0, 32, 64, 128), Immediate("leading"), Immediate("stride")),
)
"""The descriptor of the matrix that begins at an element: `leading` and `stride` are the byte
offsets of the PTX ISA, multiples of 16, `swizzle` the span of the swizzle in bytes.
"""

_FLOAT_N = tuple(range(8, 257, 8))
_INT_N = (8, 16, 24, 32, *range(48, 257, 16))
_F8 = ("e4m3", "e5m2")

TYPES: tuple[tuple[tuple[str, str, str], int, tuple[int, ...]], ...] = (
    (("f32", "f16", "f16"), 16, _FLOAT_N),
    (("f16", "f16", "f16"), 16, _FLOAT_N),
    (("f32", "bf16", "bf16"), 16, _FLOAT_N),
    (("f32", "tf32", "tf32"), 8, _FLOAT_N),
    *(((d, a, b), 32, _FLOAT_N) for d in ("f32", "f16") for a in _F8 for b in _F8),
    *((("s32", a, b), 32, _INT_N) for a in ("s8", "u8") for b in ("s8", "u8")),
)
"""(types of d, a, b), the depth k, the legal n; m is 64."""


def _product(types: tuple[str, str, str], n: int, k: int, *, in_registers: bool) -> InstrRow:
    td, ta, tb = types
    shape = f"m64n{n}k{k}"
    major = DType(DTYPES[ta][0]).bits == 16  # other types have no transpose bits: K-major only
    if in_registers:
        a = slot("a", R | ASYNC, REGISTER, count=64 * k // 128, dtypes=DTYPES[ta])
        imm = (Immediate("trans_b", bool),) if major else ()
    else:
        a = OperandRow("a", R | ASYNC, kind=Is.VALUE, dtypes=("uint64",))
        imm = (Immediate("trans_a", bool), Immediate("trans_b", bool)) if major else ()
    scales = "" if td == "s32" else ", 1, 1"
    flags = "".join(f", {{{i.name}:1|0}}" for i in imm)
    return ptx(
        f"wgmma.{shape}.{td}.{ta}.{tb}{'.rs' if in_registers else ''}",
        "wgmma.mma_async",
        f"{{{{ .reg .pred p; setp.ne.b32 p, {{scale_d}}, 0; wgmma.mma_async.sync.aligned.{shape}"
        f".{td}.{ta}.{tb} {{d}}, {{a}}, {{b}}, p{scales}{flags}; }}}}",
        _NEEDS,
        threads=128,
        outs=(slot("d", U | ASYNC, REGISTER, count=64 * n // 128, dtypes=DTYPES[td]),),
        ins=(
            a,
            OperandRow("b", R | ASYNC, kind=Is.VALUE, dtypes=("uint64",)),
            value("scale_d", "bool"),
        ),
        imm=imm,
        until=("wgmma.wait_group",),
    )


def _products() -> Iterator[tuple[str, Maker]]:
    for types, k, widths in TYPES:
        td, ta, tb = types
        for n in widths:
            name = f"wgmma.m64n{n}k{k}.{td}.{ta}.{tb}"
            yield name, partial(_product, types, n, k, in_registers=False)
            yield f"{name}.rs", partial(_product, types, n, k, in_registers=True)


WGMMA: list[tuple[str, Maker]] = [*made([*ORDER, DESCRIPTOR]), *_products()]
"""`d = (d if scale_d else 0) + a @ b`: a (64, k), b (k, n), d (64, n), as `fragments` says with 128
threads. `a` and `b` are descriptors; with `.rs`, `a` is a fragment in registers.
"""
