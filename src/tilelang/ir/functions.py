"""The pure functions that `ir.Call` may name: one row each, with arity, what it accepts and what it
returns.

The row is the contract; each target implements the name, the emulator's implementation being its
meaning. Float functions compute in float32 (float64 for float64 operands) and round once to the
operand dtype (semantics rule 9).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from tilelang.dtypes import DType


class Accepts(enum.Enum):
    """What kind of operands a function takes; integers given to a FLOAT function are cast to
    float32 first.
    """

    FLOAT = "float"
    INT = "int"
    NUMBER = "int or float"


class Gives(enum.Enum):
    """The dtype of the result."""

    SAME = "the dtype of the operands"
    BOOL = "bool"
    INT32 = "int32"


@dataclass(frozen=True)
class Function:
    """One row: `name`, number of arguments, operand kind, result, and a sentence that says what it
    computes.
    """

    name: str
    arity: int
    accepts: Accepts
    gives: Gives
    doc: str


def _float(names: str, arity: int, doc: str) -> list[Function]:
    return [Function(n, arity, Accepts.FLOAT, Gives.SAME, doc.format(n)) for n in names.split()]


_ROWS: list[Function] = [
    *_float("exp exp2 exp10 log log2 log10 log1p sqrt sin cos tan sinh cosh tanh", 1, "{}(x)"),
    *_float("asin acos atan asinh acosh atanh erf", 1, "{}(x)"),
    *_float("rsqrt", 1, "1 / sqrt(x)"),
    *_float("sigmoid", 1, "1 / (1 + exp(-x))"),
    *_float("fast_rcp", 1, "1 / x, within the error of the device's approximate reciprocal"),
    *_float("floor ceil trunc", 1, "{} to an integral value"),
    *_float("round", 1, "to the nearest integral value, ties to even"),
    *_float("round_away", 1, "to the nearest integral value, ties away from zero"),
    *_float("fmod", 2, "C remainder, with the sign of x"),
    *_float("pow atan2 hypot copysign nextafter ldexp", 2, "{}(x, y)"),
    *_float("fmul", 2, "x * y, rounded once, never contracted"),
    *_float("fma", 3, "x * y + z, rounded once"),
    *_float("clamp", 3, "min(max(x, lo), hi); NaN in any operand gives NaN; lo > hi gives hi"),
    Function("abs", 1, Accepts.NUMBER, Gives.SAME, "absolute value; identity on unsigned"),
    Function("isnan", 1, Accepts.FLOAT, Gives.BOOL, "whether x is NaN"),
    Function("isinf", 1, Accepts.FLOAT, Gives.BOOL, "whether x is an infinity"),
    Function("isfinite", 1, Accepts.FLOAT, Gives.BOOL, "whether x is neither NaN nor an infinity"),
    Function("iclamp", 3, Accepts.INT, Gives.SAME, "min(max(x, lo), hi) on integers"),
    Function("popcount", 1, Accepts.INT, Gives.INT32, "number of one bits"),
    Function("clz", 1, Accepts.INT, Gives.INT32, "number of leading zero bits; the width for 0"),
    Function("ffs", 1, Accepts.INT, Gives.INT32, "1-based position of the lowest one bit, 0 for 0"),
    Function(
        "fns", 3, Accepts.INT, Gives.SAME, "position of the n-th set bit from a base (CUDA __fns)"
    ),
    *[
        Function(
            f"ieee_{n}",
            arity,
            Accepts.FLOAT,
            Gives.SAME,
            f"{n} with the rounding named by params (rn rz ru rd)",
        )
        for n, arity in [
            ("add", 2),
            ("sub", 2),
            ("mul", 2),
            ("fma", 3),
            ("rcp", 1),
            ("sqrt", 1),
            ("rsqrt", 1),
            ("div", 2),
        ]
    ],
]

FUNCTIONS: dict[str, Function] = {row.name: row for row in _ROWS}


def result_dtype(fn: str, operands: Sequence[DType]) -> DType:
    """The dtype of `Call(fn)` on operands of these dtypes."""
    gives = FUNCTIONS[fn].gives
    if gives is Gives.BOOL:
        return DType("bool")
    return DType("int32") if gives is Gives.INT32 else operands[0]
