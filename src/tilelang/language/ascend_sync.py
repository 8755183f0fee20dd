"""Order between pipes and cores, and modes of a core, as mainline Ascend kernels write them.

Flags, barriers and locks are needed only where the automatic schedule is off
(`tl.enable_auto_schedule`); with it, they order more, never less.
"""

from __future__ import annotations

from typing import Any

from tilelang.dtypes import DType
from tilelang.errors import TileTypeError, TileValueError
from tilelang.ir import ascend
from tilelang.ir.ascend import Pipe
from tilelang.ir.expr import const
from tilelang.ir.sync import Fence
from tilelang.language.arguments import choice, integer, known, launched, refuse
from tilelang.language.buffers import here

_PIPES = {f"PIPE_{pipe.value}": pipe for pipe in Pipe}
_MODES = (0, 1, 2, 4)


def _pipe(word: Any, what: str) -> Pipe:
    if not isinstance(word, str):
        raise refuse(
            "value",
            f"the pipe of {what}",
            cls=TileTypeError,
            expected="a string such as 'PIPE_MTE2'",
            got=repr(word),
        )
    return _PIPES[choice(word, f"the pipe of {what}", _PIPES)]


def _event(word: Any, what: str) -> tuple[Pipe, Pipe]:
    """`"MTE2_MTE1"` as its two pipes."""
    parts = word.split("_") if isinstance(word, str) else []
    names = {pipe.value for pipe in Pipe} - {"ALL"}
    if len(parts) != 2 or not names.issuperset(parts) or parts[0] == parts[1]:
        raise refuse(
            "value",
            f"the event of {what}",
            cls=TileValueError if isinstance(word, str) else TileTypeError,
            expected="two different pipes, such as 'MTE2_MTE1'",
            got=repr(word),
        )
    return Pipe(parts[0]), Pipe(parts[1])


def ascend_set_flag(hard_event: str, event_id: Any) -> None:
    """Raise an event when the first pipe of `hard_event` has done its work so far."""
    what = "T.ascend_set_flag"
    src, dst = _event(hard_event, what)
    event = integer(event_id, f"the id of {what}")
    launched(what).emit(ascend.SetFlag(src, dst, event, loc=here()))


def ascend_wait_flag(hard_event: str, event_id: Any) -> None:
    """Hold up the second pipe of `hard_event` until the event is raised; takes it down again."""
    what = "T.ascend_wait_flag"
    src, dst = _event(hard_event, what)
    event = integer(event_id, f"the id of {what}")
    launched(what).emit(ascend.WaitFlag(src, dst, event, loc=here()))


def ascend_pipe_barrier(pipe_t: str) -> None:
    """Order the later work of a pipe (`"PIPE_ALL"`: of all) after its work so far."""
    what = "T.ascend_pipe_barrier"
    launched(what).emit(ascend.PipeBarrier(_pipe(pipe_t, what), loc=here()))


def _mode(mode_id: Any, what: str) -> int:
    mode = known(mode_id, f"the mode of {what}", 0, 4)
    if mode not in _MODES:
        raise refuse(
            "value", f"the mode of {what}", cls=TileValueError, expected="0, 1, 2 or 4", got="3"
        )
    return mode


def ascend_cross_core_set_flag(mode_id: int, pipe: str, flag_id: Any) -> None:
    """Raise a flag for other cores when `pipe` has done its work so far.

    Mode 0: all cores of this kind; 1: the vector cores of the group; 2: the cube core and the
    vector cores of the group; 4: the cube core and one vector core.
    """
    what = "T.ascend_cross_core_set_flag"
    builder, flag = launched(what), integer(flag_id, f"the id of {what}")
    builder.emit(ascend.CrossSet(_mode(mode_id, what), _pipe(pipe, what), flag, loc=here()))


def ascend_cross_core_wait_flag(mode_id: int, pipe: str, flag_id: Any) -> None:
    """Hold up `pipe` until the flag is raised by the cores that the mode names."""
    what = "T.ascend_cross_core_wait_flag"
    builder, flag = launched(what), integer(flag_id, f"the id of {what}")
    mode, held = _mode(mode_id, what), _pipe(pipe, what)
    builder.emit(ascend.CrossWait(flag, mode=mode, pipe=held, loc=here()))


def ascend_sync_inter_arrive(pipe: str, flag_id: Any) -> None:
    """`ascend_cross_core_set_flag` among all cores of this kind."""
    ascend_cross_core_set_flag(0, pipe, flag_id)


def ascend_sync_inter_wait(pipe: str, flag_id: Any) -> None:
    """`ascend_cross_core_wait_flag` among all cores of this kind."""
    ascend_cross_core_wait_flag(0, pipe, flag_id)


def ascend_get_buf(pipe: str, buf_id: Any, mode: bool = False) -> None:
    """Take mutex `buf_id` of the core for `pipe`."""
    what = "T.ascend_get_buf"
    number = integer(buf_id, f"the id of {what}")
    launched(what).emit(ascend.Lock(_pipe(pipe, what), number, mode=int(bool(mode)), loc=here()))


def ascend_rls_buf(pipe: str, buf_id: Any, mode: bool = False) -> None:
    """Give mutex `buf_id` back when `pipe` has done its work so far."""
    what = "T.ascend_rls_buf"
    number = integer(buf_id, f"the id of {what}")
    launched(what).emit(ascend.Unlock(_pipe(pipe, what), number, mode=int(bool(mode)), loc=here()))


def ascend_threadfence() -> None:
    """Order this thread's accesses to global memory before its later ones."""
    launched("T.ascend_threadfence").emit(Fence("threadfence", loc=here()))


# Modes -------------------------------------------------------------------------------------------

_ATOMIC_OPS = ("add", "max", "min")
# CANN asc-devkit, kernel_operator_set_atomic_impl.h of the 950: the types of SetAtomic*.
_ATOMIC_DTYPES = ("float32", "float", "float16", "bfloat16", "int8", "int16", "int32")
_HF32 = {None: 0, "nearest_zero": 1, "nearest_even": 2}


def set_atomic(op: str = "add", dtype: str = "float32") -> None:
    """From here on stores to global memory combine with what is there, until `set_atomic_none`.

    `op` is add, max or min, `dtype` a float32, float16, bfloat16, int8, int16 or int32.
    """
    what = "T.set_atomic"
    word = choice(op, f"the op of {what}", _ATOMIC_OPS)
    element = DType(choice(str(dtype), f"the dtype of {what}", _ATOMIC_DTYPES))
    launched(what).emit(ascend.AtomicMode(word, dtype=element, loc=here()))


def set_atomic_none() -> None:
    """From here on stores to global memory replace what is there."""
    launched("T.set_atomic_none").emit(ascend.AtomicMode("", loc=here()))


def set_hf32_mode(mode: str | None = None) -> None:
    """Round the float32 operands of products to 11 bits of mantissa: `"nearest_zero"` or
    `"nearest_even"`; None keeps all bits.
    """
    what = "T.set_hf32_mode"
    if mode not in _HF32:
        raise refuse(
            "value",
            f"the mode of {what}",
            cls=TileValueError,
            expected="None, 'nearest_zero' or 'nearest_even'",
            got=repr(mode),
        )
    launched(what).emit(ascend.SetMode("hf32", const(_HF32[mode]), loc=here()))


def set_mmad_direction(direction: str) -> None:
    """Let a product walk its blocks along M ("m") or N ("n") first; changes no result."""
    what = "T.set_mmad_direction"
    word = choice(direction, f"the direction of {what}", ("m", "n"))
    launched(what).emit(ascend.SetMode("mmad_direction", const(int(word == "n")), loc=here()))
