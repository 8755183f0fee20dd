"""`T.simd`: registers from and into UB, and registers that can be written again."""

from __future__ import annotations

from typing import Any

from tilelang.dtypes import DType
from tilelang.errors import TileTypeError
from tilelang.ir.ascend_simd import lanes_of, register
from tilelang.ir.expr import AddressOf, Binary, BinaryOp, Buffer, Cast, Expr, const
from tilelang.ir.simplify import simplify
from tilelang.language import alloc
from tilelang.language.arguments import choice, integer, known, launched, number, refuse
from tilelang.language.ascend_simd.common import (
    address,
    bad,
    emit,
    indices_of,
    inside,
    mask_of,
    operand,
    vector,
    width_of,
)
from tilelang.language.buffers import BufferRef, VarRef, here
from tilelang.language.values import Value, describe, element_type

INDEX = DType("int32")
_BLOCKS = ("BLK", "E2B_B16", "E2B_B32")
_BROADCAST = {"BRC_B8": 8, "BRC_B16": 16, "BRC_B32": 32}
# How many elements of the buffer a load reads, as a share of those that a register holds.
_SPREADS = {
    "NORM": (1, 1), "NORM_B8": (1, 1), "NORM_B16": (1, 1), "NORM_B32": (1, 1), "US_B8": (1, 2),
    "US_B16": (1, 2), "DS_B8": (2, 1), "DS_B16": (2, 1), "UNPK_B8": (1, 2), "UNPK_B16": (1, 2),
    "UNPK_B32": (1, 2), "UNPK4_B8": (1, 4),
}  # fmt: skip


def vld(addr: Any, dist: str = "NORM", *, post_inc: Any = None) -> Any:
    """A register from UB.

    NORM reads neighbours; BRC repeats one element; US repeats each element twice; DS takes every
    second one; UNPK and UNPK4 follow each element with zeros; BLK repeats 32 bytes; E2B fills 32
    bytes with each of eight elements. With `post_inc`, `addr` is a pointer of `make_ubuf_ptr`; the
    results are the register and the pointer moved on by so many elements.
    """
    pointer = None if post_inc is None else _pointer(addr, "vld(post_inc=...)")
    at = address(addr, "the address of T.simd.vld") if pointer is None else pointer.address()
    element = at.buffer.dtype
    result, count, word = _loaded(element, dist)
    if pointer is None:
        return emit("vld", (at,), (register(result),), footprint=count, dist=word)
    step = integer(post_inc, "the post_inc of T.simd.vld")
    value = emit("vld_postupdate", (at, step), (register(result),), footprint=count, dist=word)
    return value, pointer.moved(step)


def _loaded(element: DType, dist: str) -> tuple[DType, int, str]:
    """The elements of the register that a load gives, and how many of the buffer it reads."""
    lanes = lanes_of(element)
    word = choice(dist, "the dist of T.simd.vld", (*_SPREADS, *_BROADCAST, *_BLOCKS))
    if word in _BROADCAST:
        wide = _BROADCAST[word]
        if wide % element.bits:
            raise bad("dtype", f"T.simd.vld(dist={word!r}) of {element}", expected=f"{wide} bits")
        return element if wide == element.bits else DType(f"uint{wide}"), wide // element.bits, word
    if "_B" in word and not word.endswith(f"_B{element.bits}"):
        raise bad(
            "dtype",
            f"T.simd.vld(dist={word!r}) of {element}",
            expected=f"{word.split('_B')[0]}_B{element.bits}",
        )
    if word in _BLOCKS:
        return element, 8 if word != "BLK" else 32 * 8 // element.bits, word
    above, below = _SPREADS[word]
    return element, lanes * above // below, word


def vld2(addr: Any, dist: str = "DINTLV_B16", off: Any = None) -> tuple[Value, Value]:
    """The even and the odd of the elements of two registers, from UB; `off` moves the address on by
    elements.
    """
    at = address(addr, "the address of T.simd.vld2")
    if off is not None:
        *lead, last = at.indices
        step = integer(off, "the off of T.simd.vld2")
        at = AddressOf(at.buffer, (*lead, simplify(_plus(last, step))), loc=at.loc)
    element = at.buffer.dtype
    word = choice(dist, "the dist of T.simd.vld2", ("DINTLV_B8", "DINTLV_B16", "DINTLV_B32"))
    if not word.endswith(f"_B{element.bits}"):
        raise bad("dtype", f"T.simd.vld2(dist={word!r}) of {element}", expected="its own width")
    types = (register(element),) * 2
    return emit("vld2", (at,), types, footprint=2 * lanes_of(element), dist=word)


_STORES = {
    "NORM": 1, "NORM_B8": 1, "NORM_B16": 1, "NORM_B32": 1, "ONEPT_B8": 0, "ONEPT_B16": 0,
    "ONEPT_B32": 0, "PK_B16": 2, "PK_B32": 2, "PK4_B32": 4,
}  # fmt: skip


def vsts(addr: Any, src: Any, mask: Any = None, dist: str = "NORM_B32", extent: Any = None) -> None:
    """A register into UB, where the predicate is set.

    ONEPT writes element 0; PK and PK4 the low half or quarter of each element, packed. `extent` is
    how many elements are touched at most, a fact for the compiler.
    """
    at, value = address(addr, "the address of T.simd.vsts"), vector(src, operand("vsts"))
    word = choice(dist, "the dist of T.simd.vsts", _STORES)
    element = at.buffer.dtype
    if word.startswith("NORM"):
        word = f"NORM_B{width_of(value.dtype)}"  # the width is that of the register
    if word not in _STORES:
        raise bad("dtype", f"T.simd.vsts of {value.dtype}", expected="elements of 8 to 32 bits")
    share = _STORES[word]
    expected = width_of(value.dtype) // max(share, 1)
    if max(element.bits, 8) != expected:
        raise bad(
            "dtype",
            f"T.simd.vsts(dist={dist!r}) of {value.dtype} into {element}",
            expected=f"elements of {expected} bits",
        )
    count = 1 if share == 0 else value.dtype.lanes
    if extent is not None:
        count = known(extent, "the extent of T.simd.vsts", 1, 1 << 16)
    chosen = mask_of(mask, width_of(value.dtype), "vsts")
    emit("vsts", (at, value, chosen), footprint=count, dist=word)


def vsstb(src: Any, base: Any, stride: Any, mask: Any = None, update: bool = False) -> Any:
    """The blocks of 32 bytes of a register into UB, `stride >> 16` blocks apart.

    With `update`, `base` is a pointer of `make_ubuf_ptr`; the result is the pointer moved on by
    `stride & 0xffff` blocks.
    """
    pointer = _pointer(base, "vsstb(update=True)") if update else None
    at = address(base, "the base of T.simd.vsstb") if pointer is None else pointer.address()
    value = vector(src, operand("vsstb"))
    _same_element(at, value, "vsstb")
    step = number(stride, "the stride of T.simd.vsstb", DType("int32"))
    chosen = mask_of(mask, width_of(value.dtype), "vsstb")
    if pointer is None:
        return emit("vsstb", (at, value, step, chosen), footprint=value.dtype.lanes)
    emit("vsstb_postupdate", (at, value, step, chosen), footprint=value.dtype.lanes)
    blocks = Binary(BinaryOp.BITAND, step, const(0xFFFF, step.dtype))
    return pointer.moved(simplify(_times(blocks, 32 * 8 // at.buffer.dtype.bits)))


class Pointer(VarRef):
    """A place in UB that moves on: a variable that holds the number of an element of a buffer."""

    __slots__ = ("array",)

    def __init__(self, array: Buffer, variable: VarRef) -> None:
        super().__init__(variable.buffer, variable.indices)
        self.array = array

    def address(self) -> AddressOf:
        """Where it points now."""
        zeros = (const(0) for _ in self.array.shape[:-1])
        return AddressOf(self.array, (*zeros, self.expr), loc=here())

    def moved(self, step: Expr) -> Value:
        """What it is to be assigned."""
        return Value(simplify(_plus(self.expr, step)))


def make_ubuf_ptr(buf_access: Any, dtype: Any) -> Pointer:
    """A pointer into UB for `vld(post_inc=)` and `vsstb(update=True)`, to which their result is
    assigned: `x, p = T.simd.vld(p, post_inc=64)`. `dtype` is that of the buffer.
    """
    inside("make_ubuf_ptr")
    at = address(buf_access, "the place of T.simd.make_ubuf_ptr")
    element = DType(element_type(dtype))
    if element != at.buffer.dtype:
        raise bad(
            "dtype",
            f"T.simd.make_ubuf_ptr of {element} into {at.buffer.name}",
            expected=f"{at.buffer.dtype}, its own elements",
            got=str(element),
        )
    flat: Expr = const(0)
    for index, size in zip(at.indices, at.buffer.shape, strict=True):
        flat = _plus(_times(flat, size), index)
    return Pointer(at.buffer, alloc.alloc_var("int32", Value(simplify(flat))))


def _pointer(x: Any, what: str) -> Pointer:
    if isinstance(x, Pointer):
        return x
    raise refuse(
        "dtype",
        f"the address of T.simd.{what} is {describe(x)}",
        cls=TileTypeError,
        expected="a pointer of T.simd.make_ubuf_ptr, to which results are assigned",
        help="p = T.simd.make_ubuf_ptr(u[0], dtype), then x, p = T.simd.vld(p, post_inc=64)",
    )


def _same_element(at: AddressOf, value: Expr, name: str) -> None:
    if at.buffer.dtype != value.dtype.base:
        raise bad(
            "dtype",
            f"T.simd.{name} of {value.dtype} into {at.buffer.dtype}",
            expected=str(value.dtype.base),
        )


def vgatherb(base: Any, index: Any, mask: Any = None) -> Value:
    """The block of 32 bytes at each byte offset of a uint32 register."""
    at = address(base, "the base of T.simd.vgatherb")
    chosen = mask_of(mask, 32, "vgatherb")
    args = (at, indices_of(index, "vgatherb"), chosen)
    return emit("vgatherb", args, (register(at.buffer.dtype),), footprint=0)


def vgather2(base: Any, index: Any, mask: Any = None) -> Value:
    """The element at each index; 8-bit elements are widened to 16 bits."""
    at = address(base, "the base of T.simd.vgather2")
    element = at.buffer.dtype
    result = DType({"int8": "int16", "uint8": "uint16"}.get(str(element), str(element)))
    chosen = mask_of(mask, width_of(element), "vgather2")
    args = (at, indices_of(index, "vgather2"), chosen)
    return emit("vgather2", args, (register(result),), footprint=0)


def vscatter(src: Any, base: Any, index: Any, mask: Any = None) -> None:
    """Each element to its index; of two to one index, either."""
    at, value = address(base, "the base of T.simd.vscatter"), vector(src, operand("vscatter"))
    _same_element(at, value, "vscatter")
    chosen = mask_of(mask, width_of(value.dtype), "vscatter")
    emit("vscatter", (at, value, indices_of(index, "vscatter"), chosen))


def mem_bar(mem_type: Any) -> None:
    """Order accesses to UB inside the function; they are in program order here anyway."""
    emit("mem_bar", (), kind=str(mem_type))


def alloc_var(dtype: Any) -> VarRef:
    """A register that can be written again: read it by name, or as `v[0]`."""
    launched("T.simd.alloc_var")
    return alloc.alloc_var(str(register(DType(element_type(dtype)))))


def alloc_local(shape: Any, dtype: Any) -> BufferRef:
    """An array of registers that can be written again."""
    launched("T.simd.alloc_local")
    return alloc.alloc_local(shape, str(register(DType(element_type(dtype)))))


def _plus(a: Expr, b: Expr) -> Expr:
    """Their sum as an index."""
    return Binary(BinaryOp.ADD, _as_index(a), _as_index(b))


def _times(a: Expr, b: Expr | int) -> Expr:
    """Their product as an index."""
    return Binary(BinaryOp.MUL, _as_index(a), _as_index(const(b) if isinstance(b, int) else b))


def _as_index(e: Expr) -> Expr:
    """A number as int32."""
    return e if e.dtype == INDEX else Cast(e, INDEX)
