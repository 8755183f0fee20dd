"""Rows of the tensor cores of sm_100: Tensor Memory, products into it, its loads and stores.

What leaves: `TCGEN05`. Tensor Memory is named by addresses, uint32 values: the lane in the upper 16
bits, the column of 32 bits in the lower ones. One warp allocates columns and frees them.
"""

from __future__ import annotations

import itertools
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

_NEEDS, _INT8 = Capability.TCGEN05, Capability.TCGEN05_INT8
_COLUMNS = (32, 64, 128, 256, 512)
_WAIT = ("mbarrier.try_wait.parity", "mbarrier.try_wait.parity.cluster")
_GROUPS = (("", "cta_group::1"), (".cta2", "cta_group::2"))
"""Rows of one block, and of a pair of blocks of a cluster, with the qualifier of PTX."""


def _memory() -> Iterator[InstrRow]:
    for suffix, group in _GROUPS:
        yield ptx(
            f"tcgen05.alloc{suffix}",
            "tcgen05.alloc",
            f"tcgen05.alloc.{group}.sync.aligned.shared::cta.b32 [{{address}}], {{columns}};",
            _NEEDS,
            threads=32,
            outs=(slot("address", W, dtypes=("uint32",), count=1),),
            imm=(choice("columns", *_COLUMNS),),
            waits=True,
        )
        yield ptx(
            f"tcgen05.relinquish_alloc_permit{suffix}",
            "tcgen05.relinquish_alloc_permit",
            f"tcgen05.relinquish_alloc_permit.{group}.sync.aligned;",
            _NEEDS,
            threads=32,
        )
        yield ptx(
            f"tcgen05.dealloc{suffix}",
            "tcgen05.dealloc",
            f"tcgen05.dealloc.{group}.sync.aligned.b32 {{address}}, {{columns}};",
            _NEEDS,
            threads=32,
            ins=(value("address", "uint32"),),
            imm=(choice("columns", *_COLUMNS),),
        )


def _order() -> Iterator[InstrRow]:
    for name in ("before_thread_sync", "after_thread_sync"):
        yield ptx(
            f"tcgen05.fence.{name}",
            "tcgen05.fence",
            f"tcgen05.fence::{name};",
            _NEEDS,
            orders="tcgen05",
        )
    for name in ("ld", "st"):
        yield ptx(
            f"tcgen05.wait.{name}",
            "tcgen05.wait",
            f"tcgen05.wait::{name}.sync.aligned;",
            _NEEDS,
            threads=32,
            waits=True,
        )
    for suffix, group in _GROUPS:
        done = f"tcgen05.commit.{group}.mbarrier::arrive::one.shared::cluster"
        yield ptx(
            f"tcgen05.commit{suffix}",
            "tcgen05.commit (the mbarrier is arrived at when all products before are complete)",
            f"{done}.b64 [{{barrier}}];",
            _NEEDS,
            outs=(barrier(),),
        )
        yield ptx(
            f"tcgen05.commit{suffix}.multicast",
            "tcgen05.commit (at the same place in each block of the cluster that the mask names)",
            f"{{{{ .reg .b16 m; cvt.u16.u32 m, {{blocks}}; {done}.multicast::cluster.b64"
            " [{barrier}], m; }}",
            _NEEDS,
            outs=(barrier(),),
            ins=(value("blocks", "uint32"),),
        )


_DENSE = ("f16", "bf16", "tf32", "e4m3", "e5m2", "e2m3", "e3m2", "e2m1", "u8", "s8")

WORDS = [
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
            choice("a", *_DENSE),
            choice("b", *_DENSE),
            choice("m", 32, 64, 128, 256),
            choice("n", *range(8, 257, 8)),
            Immediate("trans_a", bool),
            Immediate("trans_b", bool),
        ),
    ),
    ptx(
        "tcgen05.instruction.scaled",
        "tcgen05: Instruction descriptor of block-scaled kinds",
        None,
        _NEEDS,
        results=(result("instruction", "uint32"),),
        imm=(
            choice("kind", "mxf8f6f4", "mxf4", "mxf4nvf4"),
            choice("a", "e4m3", "e5m2", "e2m3", "e3m2", "e2m1"),
            choice("b", "e4m3", "e5m2", "e2m3", "e3m2", "e2m1"),
            choice("scale", "ue8m0", "ue4m3"),
            choice("m", 128, 256),
            choice("n", *range(8, 257, 8)),
            Immediate("trans_a", bool),
            Immediate("trans_b", bool),
            choice("scale_a_at", 0, 1, 2, 3),
            choice("scale_b_at", 0, 1, 2, 3),
        ),
    ),
    ptx(
        "tcgen05.instruction.scaled.at",
        "tcgen05: Instruction descriptor of block-scaled kinds",
        None,
        _NEEDS,
        ins=(
            value("word", "uint32"),
            value("scale_a_at", "uint32"),
            value("scale_b_at", "uint32"),
        ),
        results=(result("instruction", "uint32"),),
    ),
]
"""Words that products take. `scale_a_at` is the byte of its 32-bit cells at which the scales of A
begin; `.at` puts places that are known at run time into a word that has zeros there.
"""

DENSE_KINDS = ("f16", "tf32", "f8f6f4", "i8")
SCALED_KINDS = {"mxf8f6f4": ("1X",), "mxf4": ("2X",), "mxf4nvf4": ("2X", "4X")}
"""Block-scaled kinds, with the scales of a row that one instruction takes."""


def _product(name: str, head: str, kind: str, *, in_tensor_memory: bool, scaled: bool) -> InstrRow:
    left = "uint32" if in_tensor_memory else "uint64"
    a = "[{a}]" if in_tensor_memory else "{a}"
    scales = ", [{scale_a}], [{scale_b}]" if scaled else ""
    more = (value("scale_a", "uint32"), value("scale_b", "uint32")) if scaled else ()
    return ptx(
        name,
        "tcgen05.mma",
        "{{ .reg .pred p; setp.ne.b32 p, {scale_d}, 0;"
        f" {head}.kind::{kind} [{{d}}], {a}, {{b}}, {{instruction}}{scales}, p; }}}}",
        _INT8 if kind == "i8" else _NEEDS,
        ins=(
            OperandRow("d", R | ASYNC, kind=Is.VALUE, dtypes=("uint32",)),
            OperandRow("a", R | ASYNC, kind=Is.VALUE, dtypes=(left,)),
            OperandRow("b", R | ASYNC, kind=Is.VALUE, dtypes=("uint64",)),
            value("instruction", "uint32"),
            *more,
            value("scale_d", "bool"),
        ),
        until=_WAIT,
    )


def _products() -> Iterator[InstrRow]:
    for suffix, group in _GROUPS:
        for source, in_tensor_memory in (("", False), (".ts", True)):
            for kind in DENSE_KINDS:
                yield _product(
                    f"tcgen05.mma{suffix}.{kind}{source}",
                    f"tcgen05.mma.{group}",
                    kind,
                    in_tensor_memory=in_tensor_memory,
                    scaled=False,
                )
        for kind, sizes in SCALED_KINDS.items():
            for size, source in itertools.product(sizes, ("", ".ts")):
                if source and kind != "mxf8f6f4":
                    continue  # elements of 4 bits are not put into Tensor Memory here
                yield _product(
                    f"tcgen05.mma{suffix}.{kind}{source}.scale_{size}",
                    f"tcgen05.mma.{group}",
                    f"{kind}.block_scale.scale_vec::{size}",
                    in_tensor_memory=bool(source),
                    scaled=True,
                )


SHAPES: dict[str, tuple[int, int]] = {"32x32b": (1, 128), "16x256b": (4, 32)}
"""The shapes of ld and st: 32-bit registers of each thread per repetition, and most of these."""


def _moves() -> Iterator[InstrRow]:
    for shape, (each, most) in SHAPES.items():
        for count in (1, 2, 4, 8, 16, 32, 64, 128):
            if count > most:
                continue
            for half in (False, True):
                yield from _move(f"{shape}.x{count}", each * count, half=half)


def _move(shape: str, count: int, *, half: bool) -> Iterator[InstrRow]:
    """A load and a store; with `half`, of the lower 16 bits of each cell, two in a register."""
    for name, into, packing in (("ld", True, ".pack::16b"), ("st", False, ".unpack::16b")):
        regs = slot("regs", (W if into else R) | ASYNC, REGISTER, bits=32 * count)
        address = value("address", "uint32")
        operands = "{regs}, [{address}]" if into else "[{address}], {regs}"
        yield ptx(
            f"tcgen05.{name}.{shape}{'.half' if half else ''}",
            f"tcgen05.{name}",
            f"tcgen05.{name}.sync.aligned.{shape}{packing if half else ''}.b32 {operands};",
            _NEEDS,
            threads=32,
            outs=(regs,) if into else (),
            ins=(address,) if into else (address, regs),
            until=(f"tcgen05.wait.{name}",),
        )


def _copies() -> Iterator[InstrRow]:
    shapes = (
        "128x256b",
        "4x256b",
        "128x128b",
        "64x128b.warpx2::02_13",
        "64x128b.warpx2::01_23",
        "32x128b.warpx4",
    )
    for suffix, group in _GROUPS:
        for shape in shapes:
            yield ptx(
                f"tcgen05.cp{suffix}.{shape.replace('::', '_')}",
                "tcgen05.cp",
                f"tcgen05.cp.{group}.{shape} [{{address}}], {{source}};",
                _NEEDS,
                ins=(
                    OperandRow("address", R | ASYNC, kind=Is.VALUE, dtypes=("uint32",)),
                    OperandRow("source", R | ASYNC, kind=Is.VALUE, dtypes=("uint64",)),
                ),
                until=_WAIT,
            )


TCGEN05: list[tuple[str, Maker]] = list(
    made([*_memory(), *_order(), *WORDS, *_products(), *_moves(), *_copies()])
)
"""`tcgen05.mma.<kind>`: one thread issues it for the block: `d = (d if scale_d else 0) + a @ b`.
`a` is a descriptor, or with `.ts` an address in Tensor Memory; of a block-scaled kind, rows of `a`
and columns of `b` are multiplied by scales in Tensor Memory. `tcgen05.ld.32x32b` gives lane n of
the 32 lanes that a warp of its number may touch to thread n, `16x256b` the first 16 of them in the
order of the accumulators of `mma`; `tcgen05.cp` copies what a descriptor names.
"""
