"""Rows that belong to no machine in particular: atomic updates, block-wide products, printing.

What leaves: `GENERIC`, the rows by name. A target adds its own. Each row's meaning is a NumPy
function of its operands, arrays of elements by reference; it is the oracle of the tests.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilelang.dtypes import DType
from tilelang.dtypes.convert import converter
from tilelang.ir.node import Effect
from tilelang.ir.thread import Space
from tilelang.isa.instr import Immediate, InstrRow, Is, OperandRow, table

Values = npt.NDArray[Any]

_HERE = "docs/decisions/thread-stage.md"
_ATOMIC = Effect.UPDATE | Effect.ATOMIC
_ORDERS = ("relaxed", "consume", "acquire", "release", "acq_rel", "seq_cst")
_MEMORY = (Space.GLOBAL, Space.SHARED, Space.LOCAL)
_COMPUTED = ("float32", "float64", "int32", "int64")


# Updates of one element --------------------------------------------------------------------------


def combined(op: str, dtype: DType, old: Any, new: Any) -> Any:
    """`old` joined by `new` in the storage of `dtype`: rounded or wrapped once; max and min drop
    NaN.
    """
    inner = dtype
    if dtype.is_float and dtype.name not in ("float32", "float64"):
        inner = DType("float32")
    elif dtype.is_subbyte:
        inner = DType("int64")
    fn: Any = {
        "add": np.add,
        "max": np.fmax if dtype.is_float else np.maximum,
        "min": np.fmin if dtype.is_float else np.minimum,
        "or": np.bitwise_or,
    }[op]
    a, b = (np.asarray(x, dtype.numpy) for x in (old, new))
    if inner == dtype:
        return np.asarray(fn(a, b), dtype.numpy)[()]
    enter, leave = converter(dtype, inner), converter(inner, dtype)
    return leave(np.asarray(fn(enter(a), enter(b)), inner.numpy))[()]


def _update(name: str, op: str, spaces: tuple[Space, ...], effect: Effect) -> InstrRow:
    def meaning(dst: Values, value: Any, *, dtype: DType, order: str) -> tuple[Any, ...]:
        del order
        old = dst[0]
        dst[0] = combined(op, dtype, old, value)
        return (old,)

    return InstrRow(
        name,
        _HERE,
        outs=(OperandRow("dst", effect, spaces=spaces, count=1),),
        ins=(OperandRow("value", kind=Is.VALUE, like="dst"),),
        results=(OperandRow("old", Effect.WRITE, kind=Is.VALUE, like="dst"),),
        imm=(Immediate("order", str, _ORDERS),),
        meaning=meaning,
    )


_OPS = ("add", "max", "min", "or")
UPDATES = [
    *(_update(f"atomic.{op}", op, _MEMORY, _ATOMIC) for op in _OPS),
    *(_update(f"update.{op}", op, (Space.REGISTER,), Effect.UPDATE) for op in _OPS),
]
"""`old` is what was there before; the update is atomic for all threads, or of one thread alone."""


def _load(src: Values, *, dtype: DType, order: str) -> tuple[Any, ...]:
    del dtype, order
    return (src[0],)


def _store(dst: Values, value: Any, *, dtype: DType, order: str) -> tuple[()]:
    del dtype, order
    dst[0] = value
    return ()


ACCESSES = [
    InstrRow(
        "atomic.load",
        _HERE,
        ins=(OperandRow("src", Effect.READ | Effect.ATOMIC, spaces=_MEMORY, count=1),),
        results=(OperandRow("value", Effect.WRITE, kind=Is.VALUE, like="src"),),
        imm=(Immediate("order", str, _ORDERS),),
        meaning=_load,
    ),
    InstrRow(
        "atomic.store",
        _HERE,
        outs=(OperandRow("dst", Effect.WRITE | Effect.ATOMIC, spaces=_MEMORY, count=1),),
        ins=(OperandRow("value", kind=Is.VALUE, like="dst"),),
        imm=(Immediate("order", str, _ORDERS),),
        meaning=_store,
    ),
]
"""Accesses in one piece, ordered as `order` says against those of other threads."""


# Products ----------------------------------------------------------------------------------------


def _strided(x: Values, rows: int, columns: int, row: int, column: int) -> Values:
    steps = (row * x.itemsize, column * x.itemsize)
    return np.lib.stride_tricks.as_strided(x, (rows, columns), steps)


def _gemm(c: Values, a: Values, b: Values, clear: bool, *, dtype: DType, **imm: int) -> tuple[()]:
    m, n, k = imm["m"], imm["n"], imm["k"]
    out = _strided(c, m, n, imm["c_row"], 1)
    left = _strided(a, m, k, imm["a_row"], imm["a_col"])
    right = _strided(b, k, n, imm["b_row"], 1)
    product = left @ right if k else np.zeros((m, n), dtype.numpy)
    out[...] = product if clear else out + product
    return ()


GEMM = InstrRow(
    "gemm.tile",
    _HERE,
    outs=(OperandRow("c", Effect.UPDATE, dtypes=_COMPUTED),),
    ins=(
        OperandRow("a", like="c"),
        OperandRow("b", like="c"),
        OperandRow("clear", kind=Is.VALUE, dtypes=("bool",)),
    ),
    imm=tuple(Immediate(x) for x in ("m", "n", "k", "a_row", "a_col", "b_row", "c_row")),
    meaning=_gemm,
)
"""`c = (0 if clear else c) + a @ b` by one thread; a (m, k), b (k, n), c (m, n).

The strides are in elements; elements of a row of b and of c are neighbours. The operands do not
overlap. Products of floats may be contracted and added in any order; integers wrap.
"""

PRINT = InstrRow(
    "print.element",
    _HERE,
    ins=(OperandRow("element", count=1), OperandRow("index", kind=Is.VALUE)),
    imm=(Immediate("message", str), Immediate("buffer", str)),
)
"""Prints one element of a buffer, `index` being its place in row-major order."""

GENERIC = table([*UPDATES, *ACCESSES, GEMM, PRINT])
