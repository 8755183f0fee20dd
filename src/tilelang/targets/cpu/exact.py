"""`ieee_*`: operations whose result is the exact one, rounded once by a mode that is named.

What enters: float32 or float64 values and a mode, by CUDA's names. What leaves: the value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilelang.errors import InternalError
from tilelang.targets.cpu.arithmetic import Ops
from tilelang.targets.cpu.text import Value


def ieee(ops: Ops, op: str, args: Sequence[Value], mode: str) -> Value:
    """add, sub, mul, div, fma, rcp, sqrt or rsqrt of one float type, rounded by `mode`."""
    if mode != "rn" or op not in _NEAREST:
        raise InternalError(f"ieee_{op} with rounding {mode}")
    return _NEAREST[op](ops, *args)


_NEAREST: dict[str, Callable[..., Value]] = {
    "add": Ops.add,
    "sub": Ops.sub,
    "mul": Ops.mul,
    "div": Ops.div,
    "rcp": lambda ops, x: ops.div(1.0, x),
    "sqrt": Ops.sqrt,
    "fma": lambda ops, x, y, z: ops.code.intrinsic("fma", x, y, z),
}
