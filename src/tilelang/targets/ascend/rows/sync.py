"""Rows that order: flags between pipes, barriers, cross-core flags, mutexes, modes.

What leaves: `SYNC`. They have no meaning in NumPy: what they do to the queues of a core is said in
`ir/ascend.py`, statement by statement, and done by `simulator/ascend`.
"""

from __future__ import annotations

from typing import Any

from tilelang.ir.ascend import MODES, Pipe
from tilelang.ir.tile import AtomicOp
from tilelang.isa.instr import Immediate
from tilelang.targets.ascend.rows.build import PipeRow, choice, count, value

_FLAGS = "AscendC API, SetFlag, WaitFlag (HardEvent)"
_CROSS = "AscendC API, CrossCoreSetFlag, CrossCoreWaitFlag"
_ALL = "AscendC API, SyncAll"
_BARRIER = "AscendC API, PipeBarrier"
_MUTEX = "CANN asc-devkit, asc_lock, asc_unlock"
_ATOMIC = "AscendC API, SetAtomicAdd, SetAtomicMax, SetAtomicMin, SetAtomicNone"
_MODE = "AscendC API, SetHF32Mode, SetDeqScale"

_PIPES = tuple(p.value for p in Pipe)
_ONE = tuple(p.value for p in Pipe if p is not Pipe.ALL)


def _sync(name: str, source: str, *ins: Any, imm: tuple[Immediate, ...] = (), **f: Any) -> PipeRow:
    return PipeRow(name, source, ins=ins, imm=imm, **f)


_PAIR = (choice("src", *_ONE), choice("dst", *_ONE))
_ON = (choice("pipe", *_ONE),)

SYNC = [
    _sync("flag.set", _FLAGS, count("id"), imm=_PAIR, orders="what is queued on src before"),
    _sync("flag.wait", _FLAGS, count("id"), imm=_PAIR, waits=True),
    _sync("barrier", _BARRIER, imm=(choice("pipe", *_PIPES),), waits=True, orders="a pipe, or all"),
    _sync("cross.set", _CROSS, count("id"), imm=(choice("mode", 0, 1, 2, 4), *_ON)),
    _sync(
        "cross.wait",
        _CROSS,
        count("id"),
        imm=(choice("mode", 0, 1, 2, 4), choice("pipe", *_PIPES)),
        waits=True,
    ),
    _sync("sync.all", _ALL, waits=True, orders="all cores"),
    _sync("mutex.lock", _MUTEX, count("id"), imm=(*_ON, Immediate("mode")), waits=True),
    _sync("mutex.unlock", _MUTEX, count("id"), imm=(*_ON, Immediate("mode"))),
    _sync(
        "mode.atomic",
        _ATOMIC,
        imm=(
            choice("op", "", *(op.value for op in AtomicOp)),
            Immediate("dtype", str, optional=True),
        ),
    ),
    *(_sync(f"mode.{name}", _MODE, value("value")) for name in MODES),
]
"""The rows that order, and those that set a mode."""
