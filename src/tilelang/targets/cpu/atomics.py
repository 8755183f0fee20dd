"""Updates of one element: the rows `atomic.*` and `update.*`.

What enters: where the element lies, and the operand. What leaves: the previous value. Memory on
chip belongs to one worker, so only updates of memory outside are atomic there.
"""

from __future__ import annotations

from tilelang.dtypes import DType
from tilelang.ir.expr import BinaryOp
from tilelang.targets.cpu.casts import convert
from tilelang.targets.cpu.operators import binary
from tilelang.targets.cpu.places import OUTSIDE, Memory, Place, from_memory, to_memory
from tilelang.targets.cpu.text import Code, Value
from tilelang.targets.cpu.types import element_type, value_type

_OPS = {
    "add": BinaryOp.ADD,
    "max": BinaryOp.MAX,
    "min": BinaryOp.MIN,
    "or": BinaryOp.BITOR,
}
_WHOLE = {
    ("add", False): "add",
    ("max", False): "max",
    ("min", False): "min",
    ("or", False): "or",
    ("add", True): "add",
    ("max", True): "umax",
    ("min", True): "umin",
    ("or", True): "or",
}
"""The operations of `atomicrmw` on integers, signed and unsigned."""

_ORDERS = {"relaxed": "monotonic", "consume": "acquire", "acq_rel": "acq_rel"}
_LOADS = {"release": "monotonic", "acq_rel": "acquire"}
_STORES = {"acquire": "monotonic", "consume": "monotonic", "acq_rel": "release"}


def update(memory: Memory, place: Place, index: Value, op: str, value: Value, order: str) -> Value:
    """The element becomes `old <op> value`; the result is `old`."""
    code, dtype = memory.code, place.dtype
    if place.scope != OUTSIDE and place.scope:
        old = memory.read(place, index, dtype)
        memory.write(place, index, combined(code, op, old, value, dtype), dtype)
        return old
    at = memory.address(place, index)
    ordering = _ORDERS.get(order, order)
    kind = element_type(dtype)
    if dtype.is_bool:
        # Bits are added and compared as bools are: `or` or `and` of the bytes.
        name = "and" if op == "min" else "or"
        raw = to_memory(code, value, dtype)
        old = code.value(kind, f"atomicrmw {name} ptr {at}, {raw.typed} {ordering}")
        return from_memory(code, old, dtype)
    if not dtype.is_float and not dtype.is_subbyte:
        name = _WHOLE[op, dtype.is_uint]
        return code.value(kind, f"atomicrmw {name} ptr {at}, {value.typed} {ordering}")
    if op == "add" and kind in ("float", "double") and dtype.name != "tfloat32":
        return code.value(kind, f"atomicrmw fadd ptr {at}, {value.typed} {ordering}")
    return _exchanged(code, at, op, value, dtype, ordering)


def _exchanged(code: Code, at: Value, op: str, value: Value, dtype: DType, ordering: str) -> Value:
    """A loop that tries until no other thread has been in between."""
    kind = element_type(dtype)
    word = f"i{8 * dtype.numpy.itemsize}"
    old = code.alloca(word)
    code.store(code.load(word, at), old)
    again, done = code.label("again"), code.label("done")
    code.place(again)
    seen = code.load(word, old)
    before = from_memory(code, code.cast("bitcast", seen, kind), dtype)
    after = combined(code, op, before, value, dtype)
    raw = code.cast("bitcast", to_memory(code, after, dtype), word)
    fail = "acquire" if ordering in ("acquire", "acq_rel", "seq_cst") else "monotonic"
    pair = code.value(
        f"{{ {word}, i1 }}", f"cmpxchg ptr {at}, {seen.typed}, {raw.typed} {ordering} {fail}"
    )
    code.store(code.value(word, f"extractvalue {pair.typed}, 0"), old)
    code.branch(code.value("i1", f"extractvalue {pair.typed}, 1"), done, again)
    code.place(done)
    last = code.cast("bitcast", code.load(word, old), kind)
    return from_memory(code, last, dtype)


def combined(code: Code, op: str, old: Value, value: Value, dtype: DType) -> Value:
    """`old <op> value` in the storage of `dtype`, rounded or wrapped once."""
    inner = dtype
    if dtype.is_float and value_type(dtype) not in ("float", "double"):
        inner = DType("float32")
    elif dtype.is_subbyte:
        inner = DType("int64")
    a = convert(code, old, dtype, inner)
    b = convert(code, value, dtype, inner)
    operator = _OPS[op]
    if dtype.is_bool:
        operator = BinaryOp.AND if op == "min" else BinaryOp.OR
    return convert(code, binary(code, operator, a, b, inner), inner, dtype)


def load(memory: Memory, place: Place, index: Value, order: str) -> Value:
    """The element, read in one piece."""
    code, dtype = memory.code, place.dtype
    at = memory.address(place, index)
    ordering = _LOADS.get(order, _ORDERS.get(order, order))
    size = dtype.numpy.itemsize
    word = code.value(f"i{8 * size}", f"load atomic i{8 * size}, ptr {at} {ordering}, align {size}")
    return from_memory(code, code.cast("bitcast", word, element_type(dtype)), dtype)


def store(memory: Memory, place: Place, index: Value, value: Value, order: str) -> None:
    """The element, written in one piece."""
    code, dtype = memory.code, place.dtype
    at = memory.address(place, index)
    ordering = _STORES.get(order, _ORDERS.get(order, order))
    size = dtype.numpy.itemsize
    word = code.cast("bitcast", to_memory(code, value, dtype), f"i{8 * size}")
    code.emit(f"store atomic {word.typed}, ptr {at} {ordering}, align {size}")
