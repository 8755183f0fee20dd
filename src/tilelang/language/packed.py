"""Vector values: arithmetic on pairs, making and taking lanes apart, and loads and stores of 32 to
256 bits at once.

`T.float16x2(a, b)` makes a vector. The loads give uint32 vectors, bits as they are in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilelang.dtypes import LANES, DType
from tilelang.errors import TileTypeError, TileValueError
from tilelang.ir.expr import BinaryOp, Expr, Lane, Load, LoadVector, Pack, int_value
from tilelang.ir.tile import StoreVector
from tilelang.language.arguments import Place, in_memory, known, launched, number, place, refuse
from tilelang.language.buffers import BufferRef, here
from tilelang.language.values import Value, as_expr, binary, call, condition, describe
from tilelang.scopes import Memory

PAIRS = ("float32x2", "float16x2", "bfloat16x2")


def _pairs(name: str, *values: Any) -> tuple[Value, ...]:
    exprs = [number(v, f"an operand of {name}") for v in values]
    kinds = list(dict.fromkeys(str(e.dtype) for e in exprs))
    if len(kinds) != 1 or kinds[0] not in PAIRS:
        raise refuse(
            "dtype",
            f"the operands of {name} have type {' and '.join(kinds)}",
            cls=TileTypeError,
            expected="one type of " + ", ".join(PAIRS),
            got=", ".join(kinds),
            help="`T.float16x2(a, b)` makes a pair; T.view gives a buffer of pairs",
        )
    return tuple(Value(e) for e in exprs)


def add2(x: Any, y: Any) -> Value:
    """x + y on both lanes of float32x2, float16x2 or bfloat16x2, each rounded once."""
    return binary(BinaryOp.ADD, *_pairs("T.add2", x, y))


def sub2(x: Any, y: Any) -> Value:
    """x - y on both lanes; see `add2`."""
    return binary(BinaryOp.SUB, *_pairs("T.sub2", x, y))


def mul2(x: Any, y: Any) -> Value:
    """x * y on both lanes; see `add2`."""
    return binary(BinaryOp.MUL, *_pairs("T.mul2", x, y))


def max2(x: Any, y: Any) -> Value:
    """The greater of x and y on both lanes; a NaN is dropped. See `add2`."""
    return binary(BinaryOp.MAX, *_pairs("T.max2", x, y))


def min2(x: Any, y: Any) -> Value:
    """The lesser of x and y on both lanes; a NaN is dropped. See `add2`."""
    return binary(BinaryOp.MIN, *_pairs("T.min2", x, y))


def fma2(x: Any, y: Any, z: Any) -> Value:
    """x * y + z on both lanes, rounded once; see `add2`."""
    return call("fma", *_pairs("T.fma2", x, y, z))


def abs2(x: Any) -> Value:
    """The absolute value of both lanes; see `add2`."""
    return call("abs", *_pairs("T.abs2", x))


# -- lanes -----------------------------------------------------------------------------------------


def _lane(vector: Expr, lane: int) -> Expr:
    if vector.dtype.lanes == 1:
        return vector
    if isinstance(vector, Pack):
        return vector.lanes[lane if len(vector.lanes) > 1 else 0]
    return Lane(vector, lane)


def extract_lane(vector: Any, lane: Any, span: Any = None) -> Value:
    """One lane of a vector; `lane` is a known int from 0. Raises for a lane that it does
    not have.
    """
    e = number(vector, "the vector of T.extract_lane")
    return Value(_lane(e, known(lane, "the lane of T.extract_lane", 0, e.dtype.lanes - 1)))


def Shuffle(vectors: Any, indices: Any, span: Any = None) -> Value:
    """Lanes picked by known `indices` from all lanes of `vectors` (of one scalar type), in order.

    One index gives a scalar. Raises for indices that are not there or a number of them that makes
    no vector.
    """
    exprs = [number(v, "a vector of T.Shuffle") for v in _listed(vectors)]
    lanes = [_lane(e, n) for e in exprs for n in range(e.dtype.lanes)]
    if len({e.dtype.base for e in exprs}) != 1:
        got = ", ".join(str(e.dtype) for e in exprs)
        raise refuse("dtype", "the vectors of T.Shuffle", expected="one scalar type", got=got)
    last = len(lanes) - 1
    picked = [lanes[known(i, "an index of T.Shuffle", 0, last)] for i in _listed(indices)]
    return Value(picked[0]) if len(picked) == 1 else Value(_vector(picked, "T.Shuffle"))


def _listed(x: Any) -> list[Any]:
    return list(x) if type(x) in (list, tuple) else [x]


def _vector(lanes: Sequence[Expr], name: str) -> Pack:
    return Pack(tuple(lanes), DType(lanes[0].dtype.base).with_lanes(_lanes(len(lanes), name)))


def _lanes(count: Any, name: str) -> int:
    if count not in LANES:
        words = ", ".join(map(str, LANES))
        raise refuse("value", f"{count} lanes in {name}", expected=words, got=str(count))
    return int(count)


def Broadcast(value: Any, lanes: Any, span: Any = None) -> Value:
    """A vector of `lanes` (2, 4, 8, 16, 32 or 64) equal values."""
    e = number(value, "the value of T.Broadcast")
    return Value(Pack((e,), DType(e.dtype).with_lanes(_lanes(lanes, "T.Broadcast"))))


def Ramp(base: Any, stride: Any, lanes: Any, span: Any = None) -> Value:
    """The vector `base, base + stride, ...` of `lanes` values."""
    start, step = Value(number(base, "the base of T.Ramp")), number(stride, "the stride of T.Ramp")
    count = _lanes(lanes, "T.Ramp")
    return Value(_vector([(start + Value(step) * n).expr for n in range(count)], "T.Ramp"))


# -- loads and stores of words ---------------------------------------------------------------------


def _words(bits: int) -> DType:
    return DType("uint32") if bits == 32 else DType(f"uint32x{bits // 32}")


def _run(x: Any, bits: int, name: str, home: Memory) -> Place:
    buffer, indices = place(x, f"the address of {name}")
    in_memory(buffer, f"the address of {name}", home)
    size = buffer.dtype.bits * buffer.dtype.lanes
    if size > bits or bits % size:
        raise refuse(
            "dtype",
            f"{name} at an element of {buffer.dtype}",
            expected=f"elements that divide {bits} bits",
            got=f"{size} bits",
        )
    if buffer.strides is not None and int_value(buffer.strides[-1]) != 1:
        raise refuse("shape", f"{name} in {buffer.name}", expected="a last axis of stride 1")
    return buffer, indices


def _load(x: Any, bits: int, name: str, home: Memory, pred: Any = None) -> Value:
    launched(name)
    buffer, indices = _run(x, bits, name, home)
    guard = None if pred is None else condition(pred)
    return Value(LoadVector(buffer, indices, _words(bits), pred=guard, loc=here()))


def _store(x: Any, value: Any, bits: int, name: str, home: Memory, pred: Any = None) -> None:
    builder = launched(name)
    buffer, indices = _run(x, bits, name, home)
    plain = isinstance(value, int) and bits == 32
    e = as_expr(value, _words(32)) if plain else number(value, f"the value of {name}")
    if e.dtype.bits * e.dtype.lanes != bits:
        raise refuse(
            "dtype",
            f"the value of {name} has type {e.dtype}",
            cls=TileValueError,
            expected=f"{_words(bits)}, or another type of {bits} bits",
            got=str(e.dtype),
        )
    guard = None if pred is None else condition(pred)
    builder.emit(StoreVector(buffer, indices, e, pred=guard, loc=here()))


def ldg32(src: Any, pred: Any = None) -> Value:
    """32 bits (uint32) of global memory from `src` on, an element or pointer; 0 where `pred`
    fails.
    """
    return _load(src, 32, "T.ldg32", Memory.GLOBAL, pred)


def ldg64(src: Any, pred: Any = None) -> Value:
    """64 bits (uint32x2) of global memory from `src` on, at a multiple of 8 bytes; see `ldg32`."""
    return _load(src, 64, "T.ldg64", Memory.GLOBAL, pred)


def ldg128(src: Any, pred: Any = None) -> Value:
    """128 bits (uint32x4) of global memory from `src` on, at a multiple of 16 bytes; see
    `ldg32`.
    """
    return _load(src, 128, "T.ldg128", Memory.GLOBAL, pred)


def ldg256(src: Any, pred: Any = None) -> Value:
    """256 bits (uint32x8) of global memory from `src` on, at a multiple of 32 bytes; see
    `ldg32`.
    """
    return _load(src, 256, "T.ldg256", Memory.GLOBAL, pred)


def stg32(dst: Any, value: Any, pred: Any = None) -> None:
    """Store 32 bits to global memory from `dst` on, an element or pointer; nothing where `pred`
    fails.
    """
    _store(dst, value, 32, "T.stg32", Memory.GLOBAL, pred)


def stg64(dst: Any, value: Any, pred: Any = None) -> None:
    """Store 64 bits to global memory, at a multiple of 8 bytes; see `stg32`."""
    _store(dst, value, 64, "T.stg64", Memory.GLOBAL, pred)


def stg128(dst: Any, value: Any, pred: Any = None) -> None:
    """Store 128 bits to global memory, at a multiple of 16 bytes; see `stg32`."""
    _store(dst, value, 128, "T.stg128", Memory.GLOBAL, pred)


def stg256(dst: Any, value: Any, pred: Any = None) -> None:
    """Store 256 bits to global memory, at a multiple of 32 bytes; see `stg32`."""
    _store(dst, value, 256, "T.stg256", Memory.GLOBAL, pred)


def lds32(src: Any) -> Value:
    """32 bits (uint32) of shared memory from `src` on, an element or pointer."""
    return _load(src, 32, "T.lds32", Memory.SHARED)


def lds64(src: Any) -> Value:
    """64 bits (uint32x2) of shared memory from `src` on, at a multiple of 8 bytes."""
    return _load(src, 64, "T.lds64", Memory.SHARED)


def lds128(src: Any) -> Value:
    """128 bits (uint32x4) of shared memory from `src` on, at a multiple of 16 bytes."""
    return _load(src, 128, "T.lds128", Memory.SHARED)


def sts32(dst: Any, value: Any) -> None:
    """Store 32 bits to shared memory from `dst` on, an element or pointer."""
    _store(dst, value, 32, "T.sts32", Memory.SHARED)


def sts64(dst: Any, value: Any) -> None:
    """Store 64 bits to shared memory, at a multiple of 8 bytes."""
    _store(dst, value, 64, "T.sts64", Memory.SHARED)


def sts128(dst: Any, value: Any) -> None:
    """Store 128 bits to shared memory, at a multiple of 16 bytes."""
    _store(dst, value, 128, "T.sts128", Memory.SHARED)


def read_only_load(load_or_buf: Any, index: Any = None) -> Value:
    """`x[i]` read through the read-only cache: `T.__ldg(x[i])` or `T.__ldg(x, i)`.

    ValueError for a buffer without an index, TypeError for something else.
    """
    if isinstance(load_or_buf, BufferRef):
        if index is None:
            raise refuse("shape", "T.__ldg of a buffer", expected="T.__ldg(buffer, index)")
        found: Any = load_or_buf[index]
    else:
        found = load_or_buf
    if not isinstance(found, Value) or not isinstance(found.expr, Load):
        raise refuse(
            "dtype",
            f"T.__ldg of {describe(found)}",
            expected="an element of a buffer",
            got=describe(found),
        )
    in_memory(found.expr.buffer, "the operand of T.__ldg", Memory.GLOBAL)
    return found
