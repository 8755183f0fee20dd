"""Rows of the CUDA instructions that the hand-written programs of the thread stage use."""

from tilelang.ir.node import Effect
from tilelang.ir.thread import Space
from tilelang.isa.instr import Immediate, InstrRow, Is, OperandRow, table
from tilelang.isa.target import Capability

R, W, U = Effect.READ, Effect.WRITE, Effect.UPDATE
ATOMIC, ASYNC = Effect.ATOMIC, Effect.ASYNC
SHARED, REGISTER, GLOBAL = (Space.SHARED,), (Space.REGISTER,), (Space.GLOBAL,)
PTX = "PTX ISA 9.0, "


def slot(name: str, effect: Effect = R, spaces=SHARED, **facts) -> OperandRow:
    return OperandRow(name, effect, spaces=spaces, **facts)


def scalar(name: str, *dtypes: str) -> OperandRow:
    return OperandRow(name, kind=Is.VALUE, dtypes=dtypes)


def barrier(effect: Effect = U | ATOMIC) -> OperandRow:
    return slot("barrier", effect, dtypes=("uint64",), count=1)


def sync(name: str, section: str, **facts) -> InstrRow:
    return InstrRow(name, PTX + section, **facts)


MBARRIER = [
    sync(
        "mbarrier.init",
        "9.7.13.15.9",
        outs=(slot("barrier", W, dtypes=("uint64",), count=1),),
        ins=(scalar("count", "int32"),),
        capability=Capability.MBARRIER,
    ),
    sync("mbarrier.arrive", "9.7.13.15.13", outs=(barrier(),), capability=Capability.MBARRIER),
    sync(
        "mbarrier.arrive.expect_tx",
        "9.7.13.15.13",
        outs=(barrier(),),
        ins=(scalar("bytes", "int32"),),
        capability=Capability.MBARRIER,
    ),
    sync(
        "mbarrier.try_wait.parity",
        "9.7.13.15.16",
        ins=(barrier(R), scalar("parity", "int32")),
        capability=Capability.MBARRIER,
        waits=True,
    ),
    sync("fence.mbarrier_init", "9.7.13.4", orders="mbarrier_init", capability=Capability.CLUSTER),
]

TMA = [
    sync(
        "cp.async.bulk.tensor.2d.load",
        "9.7.9.25.5",
        outs=(
            slot("dst", W | ASYNC, dtypes=("float16", "bfloat16"), align=128),
            barrier(),
        ),
        ins=(
            OperandRow("map", R | ASYNC, kind=Is.MAP),
            scalar("x", "int32"),
            scalar("y", "int32"),
        ),
        until=("mbarrier.try_wait.parity",),
        capability=Capability.TMA,
    ),
]

WGMMA = [
    sync("wgmma.fence", "9.7.15.7.1", threads=128, orders="wgmma", capability=Capability.WGMMA),
    sync("wgmma.commit_group", "9.7.15.7.2", threads=128, capability=Capability.WGMMA),
    sync(
        "wgmma.wait_group",
        "9.7.15.7.3",
        threads=128,
        imm=(Immediate("count"),),
        waits=True,
        capability=Capability.WGMMA,
    ),
    sync(
        "wgmma.m64n128k16.f32.f16.f16",
        "9.7.15.5.2",
        threads=128,
        outs=(slot("d", U | ASYNC, REGISTER, dtypes=("float32",), count=64),),
        ins=(
            OperandRow("a", R | ASYNC, kind=Is.VALUE, dtypes=("uint64",)),
            OperandRow("b", R | ASYNC, kind=Is.VALUE, dtypes=("uint64",)),
            scalar("scale_d", "bool"),
        ),
        imm=(Immediate("trans_a", bool), Immediate("trans_b", bool)),
        until=("wgmma.wait_group",),
        capability=Capability.WGMMA,
    ),
    sync(
        "setmaxnreg",
        "9.7.19.5",
        threads=128,
        imm=(Immediate("step", str, ("inc", "dec")), Immediate("registers", int)),
        waits=True,
        capability=Capability.SETMAXNREG,
    ),
]

WARP = [
    sync(
        "barrier.sync",
        "9.7.13.1",
        threads=0,
        imm=(Immediate("id"), Immediate("threads")),
        waits=True,
        orders="generic",
    ),
    sync(
        "cp.async.cg.16",
        "9.7.9.25.3.1",
        outs=(slot("dst", W | ASYNC, align=16),),
        ins=(slot("src", R | ASYNC, GLOBAL, align=16),),
        until=("cp.async.wait_group",),
        capability=Capability.CP_ASYNC,
        template="cp.async.cg.shared.global [{dst}], [{src}], 16;",
    ),
    sync("cp.async.commit_group", "9.7.9.25.3.2", capability=Capability.CP_ASYNC),
    sync(
        "cp.async.wait_group",
        "9.7.9.25.3.3",
        imm=(Immediate("count"),),
        waits=True,
        capability=Capability.CP_ASYNC,
    ),
    sync(
        "ldmatrix.x4.b16",
        "9.7.14.5.15",
        threads=32,
        outs=(slot("regs", W, REGISTER, dtypes=("float16",), count=8),),
        ins=(slot("row", R, SHARED, dtypes=("float16",), count=8, align=16),),
        imm=(Immediate("trans", bool),),
        capability=Capability.MMA_SYNC,
    ),
    sync(
        "mma.m16n8k16.f32.f16.f16.f32",
        "9.7.14.5.8",
        threads=32,
        outs=(slot("d", U, REGISTER, dtypes=("float32",), count=4),),
        ins=(
            slot("a", R, REGISTER, dtypes=("float16",), count=8),
            slot("b", R, REGISTER, dtypes=("float16",), count=4),
        ),
        capability=Capability.MMA_SYNC,
    ),
]

ROWS = table([*MBARRIER, *TMA, *WGMMA, *WARP])
