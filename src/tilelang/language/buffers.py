"""Buffers, slices and variables as a kernel author holds them, and the annotations of parameters.

A `BufferRef` stands for one `ir.Buffer`; indexing it gives a `Value` (all indices scalar) or a
`RegionRef` (a slice among them). A `VarRef` is the scalar of an `alloc_var`: it reads as a value,
and assigning to its name stores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, cast

from tilelang.dtypes import DType
from tilelang.errors import (
    TileError,
    TileIndexError,
    TileRuntimeError,
    TileTypeError,
    TileValueError,
    error,
)
from tilelang.ir import build
from tilelang.ir.bounds import bounds
from tilelang.ir.expr import (
    INT32,
    Binary,
    BinaryOp,
    Buffer,
    Expr,
    Lane,
    Load,
    Pack,
    Region,
    Var,
    const,
    int_value,
)
from tilelang.ir.simplify import equal, simplify
from tilelang.ir.tile import Copy, Fill, Store, StoreVector, View
from tilelang.language.lanes import each_lane, same_width
from tilelang.language.shapes import (
    as_values,
    check_match,
    extent,
    here,
    plain,
    shape_of,
    shape_text,
)
from tilelang.language.values import DataType, Value, as_expr, describe, element_type, is_scalar


class Whole:
    """What a buffer and a slice have in common: many elements, while operators work on one."""

    _what = "something with many elements"
    __array_ufunc__ = None  # an operand of NumPy leaves the operation to this class

    def _refuse(self, *_: Any) -> NoReturn:
        raise _bad(
            TileTypeError,
            "syntax",
            f"arithmetic on {self._what}",
            expected="scalars",
            got=self._what,
            help="write the loop: `for i in T.Parallel(n): C[i] = A[i] + B[i]`",
        )

    def _refuse_update(self, *_: Any) -> NoReturn:
        raise _bad(
            TileRuntimeError,
            "syntax",
            f"an update of {self._what}",
            help="write the loop: `for i in T.Parallel(n): buffer[i] += ...`",
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _refuse
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = _refuse
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = __pow__ = __rpow__ = _refuse
    __matmul__ = __rmatmul__ = __neg__ = __pos__ = __invert__ = __abs__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __iadd__ = __isub__ = __imul__ = __itruediv__ = __ifloordiv__ = __imod__ = _refuse_update
    __iand__ = __ior__ = __ixor__ = __ilshift__ = __irshift__ = __ipow__ = _refuse_update
    __imatmul__ = _refuse_update

    def __iter__(self) -> NoReturn:
        raise _bad(
            TileTypeError,
            "syntax",
            f"{self._what} cannot be iterated over",
            help="loop over its indices: `for i in T.serial(n): ... buffer[i]`",
        )

    def __bool__(self) -> NoReturn:
        raise _bad(
            TileTypeError,
            "syntax",
            f"{self._what} is used as a condition",
            expected="a scalar",
            got=self._what,
            help="test one element (`buffer[i] != 0`), or `buffer is None` for an optional tensor",
        )


@dataclass(frozen=True)
class Storage:
    """The storage of a buffer."""

    buffer: Buffer


class BufferRef(Whole):
    """A buffer: index it for elements and slices; `shape`, `dtype`, `scope()`, ... describe it."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer

    @property
    def _what(self) -> str:
        return f"the whole buffer {self.name}"

    @property
    def name(self) -> str:
        """The name in the kernel."""
        return self.buffer.name

    @property
    def dtype(self) -> DataType:
        """The element type."""
        return DataType(self.buffer.dtype)

    @property
    def shape(self) -> tuple[int | Value, ...]:
        """The extents, as ints where they are known."""
        return tuple(plain(e) for e in self.buffer.shape)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.buffer.rank

    @property
    def data(self) -> Storage:
        """The storage, for a second name: `T.Tensor(shape, dtype, buffer.data)`."""
        return Storage(self.buffer)

    @property
    def strides(self) -> tuple[int | Value, ...]:
        """The strides in elements."""
        return tuple(plain(e) for e in strides_of(self.buffer))

    def scope(self) -> str:
        """The declared scope string, as the allocation function of the dialect declares it."""
        return self.buffer.scope

    def __len__(self) -> int:
        first = self.shape[0]
        if isinstance(first, int):
            return first
        raise _bad(
            TileTypeError,
            "syntax",
            f"the length of {self.name} is not known while the kernel is traced",
        )

    def __getitem__(self, index: Any) -> Any:
        return item(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        store(self, index, value)

    def __hash__(self) -> int:
        return hash(self.buffer)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BufferRef) and self.buffer == other.buffer

    def __repr__(self) -> str:
        extents = ", ".join(map(str, self.shape))
        return f"buffer {self.name}: {self.buffer.dtype}[{extents}] in {self.scope()}"


class VarRef(Value):
    """The scalar of an `alloc_var`: reads as its value now; assigning to it or to `v[0]` stores.

    An element of another buffer that a macro takes by reference (`T.Ref`) is one too, with its
    `indices`.
    """

    __slots__ = ("buffer", "indices")

    def __init__(self, buffer: Buffer, indices: tuple[Expr, ...] = (const(0),)) -> None:
        self.buffer = buffer
        self.indices = indices

    @property
    def expr(self) -> Expr:
        """A read of the variable at the place where it is asked for."""
        return _reading(Load(self.buffer, self.indices, loc=here()))

    @property
    def name(self) -> str:
        """The name in the kernel."""
        return self.buffer.name

    @property
    def shape(self) -> tuple[int, ...]:
        """Always (1,)."""
        return (1,)

    def scope(self) -> str:
        """The declared scope string."""
        return self.buffer.scope

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice) and self.buffer.rank == 1:
            return item(BufferRef(self.buffer), index)
        self._only_zero(index)
        return Value(self.expr)

    def __setitem__(self, index: Any, value: Any) -> None:
        self._only_zero(index)
        self.set(value)

    def _only_zero(self, index: Any) -> None:
        known = int_value(as_expr(index)) if is_scalar(index) else None
        if known not in (0, -1) or isinstance(index, bool):
            raise _bad(
                TileIndexError,
                "bounds",
                f"{self.name} is one scalar and is indexed with {describe(index)}",
                expected=f"{self.name}, or {self.name}[0]",
                got=repr(index)[:60],
            )

    def set(self, value: Any) -> None:
        """Store a new value."""
        store(BufferRef(self.buffer), tuple(Value(e) for e in self.indices), value)


class RegionRef(Whole):
    """A box of a buffer, made by slicing it; tile operations read and write it."""

    def __init__(self, region: Region) -> None:
        self.region = region

    @property
    def _what(self) -> str:
        return f"a slice of {self.name}"

    @property
    def name(self) -> str:
        """The name of the buffer."""
        return self.region.buffer.name

    @property
    def buffer(self) -> BufferRef:
        """The buffer that is sliced."""
        return BufferRef(self.region.buffer)

    @property
    def dtype(self) -> DataType:
        """The element type."""
        return DataType(self.region.dtype)

    @property
    def shape(self) -> tuple[int | Value, ...]:
        """The extents, 1 for an axis with a scalar index."""
        return tuple(plain(e) for e in self.region.extents)

    def __getitem__(self, index: Any) -> NoReturn:
        raise _bad(
            TileTypeError,
            "syntax",
            f"a slice of {self.name} is indexed again",
            help="index the buffer itself",
        )

    def __setitem__(self, index: Any, value: Any) -> None:
        self[index]


def _bad(cls: type[TileError], kind: str, message: str, **facts: Any) -> TileError:
    return error(kind, message, here(), cls=cls, **facts)


def strides_of(buffer: Buffer) -> tuple[Expr, ...]:
    """The strides in elements: as declared, else row-major."""
    if buffer.strides is not None:
        return buffer.strides
    out: list[Expr] = [const(1)]
    for e in reversed(buffer.shape[1:]):
        out.append(simplify(Binary(BinaryOp.MUL, out[-1], e)))
    return tuple(reversed(out[: buffer.rank])) if buffer.rank else ()


# -- indexing --------------------------------------------------------------------------------------


def item(ref: BufferRef, index: Any) -> Any:
    """`buffer[index]`: an element as a `Value`; with a slice among the indices, a `RegionRef`; with
    a vector among them, the elements that its lanes name.
    """
    parts = _parts(index)
    each = each_lane(ref.buffer, parts)
    if each:
        loads = tuple(cast("Value", item(ref, p)).expr for p in each)
        return Value(Pack(loads, DType(ref.buffer.dtype).with_lanes(len(loads))))
    if any(isinstance(p, slice) for p in parts):
        return RegionRef(_region(ref.buffer, parts))
    return Value(_reading(Load(ref.buffer, _indices(ref.buffer, parts), loc=here())))


def _reading(load: Load) -> Load:
    builder = build.current_or_none()
    return builder.reading(load) if builder else load


def _parts(index: Any) -> tuple[Any, ...]:
    return cast("tuple[Any, ...]", index) if isinstance(index, tuple) else (index,)


def store(ref: BufferRef, index: Any, value: Any) -> None:
    """`buffer[index] = value`: one element, or a whole slice from a buffer, slice or scalar."""
    builder = build.current("a store to a buffer")
    parts = _parts(index)
    for k, one in enumerate(each_lane(ref.buffer, parts)):
        wide = isinstance(value, Value) and value.expr.dtype.lanes > 1
        store(ref, one, Value(Lane(value.expr, k)) if wide else value)
    if each_lane(ref.buffer, parts):
        return
    if not any(isinstance(p, slice) for p in parts):
        indices = _indices(ref.buffer, parts)
        builder.emit(Store(ref.buffer, indices, _stored(ref, value), loc=here()))
        return
    dst = _region(ref.buffer, parts)
    if isinstance(value, (RegionRef, BufferRef)):
        src = value.region if isinstance(value, RegionRef) else whole(value.buffer)
        check_match(src, dst, "a store to a slice")
        builder.emit(Copy(src, dst, loc=here()))
    elif isinstance(value, Value) and value.expr.dtype.lanes > ref.buffer.dtype.lanes:
        builder.emit(StoreVector(ref.buffer, dst.mins, _lanes_for(dst, value.expr), loc=here()))
    else:
        builder.emit(Fill(dst, _stored(ref, value), loc=here()))


def _lanes_for(dst: Region, value: Expr) -> Expr:
    """A vector as the elements of a slice of one row: one lane to an element."""
    lanes = value.dtype.lanes
    if [int_value(e) for e in dst.extents] != [1] * (dst.buffer.rank - 1) + [lanes]:
        raise _bad(
            TileRuntimeError,
            "shape",
            f"a vector of {lanes} lanes is stored into a slice of {dst.buffer.name}",
            expected=f"a slice of {lanes} elements of the last axis",
            got="(" + ", ".join(str(plain(e)) for e in dst.extents) + ")",
        )
    return as_expr(value, DType(dst.buffer.dtype).with_lanes(lanes))


def _stored(ref: BufferRef, value: Any) -> Expr:
    if not is_scalar(value):
        raise _bad(
            TileTypeError,
            "dtype",
            f"{describe(value)} is stored into an element of {ref.name}",
            expected="a scalar",
            got=describe(value),
            help="index it, or use `T.copy` for whole tiles",
        )
    return as_expr(value, ref.buffer.dtype)


def whole(buffer: Buffer) -> Region:
    """The region of all elements."""
    return Region(buffer, tuple(const(0) for _ in buffer.shape), buffer.shape, loc=here())


def _indices(buffer: Buffer, parts: Sequence[Any]) -> tuple[Expr, ...]:
    if len(parts) != buffer.rank:
        raise _bad(
            TileIndexError,
            "bounds",
            f"{buffer.name} has {buffer.rank} axes and is indexed with {len(parts)}",
            expected=f"{buffer.rank} indices",
            got=str(len(parts)),
        )
    return tuple(_scalar_index(buffer, axis, p) for axis, p in enumerate(parts))


def _scalar_index(buffer: Buffer, axis: int, part: Any) -> Expr:
    if isinstance(part, bool) or not is_scalar(part):
        raise _bad(
            TileTypeError,
            "bounds",
            f"index {axis} of {buffer.name} is {describe(part)}",
            expected="an integer or a slice",
            got=describe(part),
            help="several extents give a list: name each, as in `as (bx, by)` or `for i, j in`"
            if isinstance(part, (list, tuple))
            else "",
        )
    e = simplify(as_expr(part))
    if e.dtype.kind == "bool":
        e = as_expr(e, INT32)
    if e.dtype.kind not in ("int", "uint") or e.dtype.lanes != 1:
        raise _bad(
            TileTypeError,
            "bounds",
            f"index {axis} of {buffer.name} has type {e.dtype}",
            expected="an integer",
            got=str(e.dtype),
            help="cast it: `T.cast(i, 'int32')`",
        )
    moved = _from_the_end(buffer, axis, e)
    known, size = int_value(moved), int_value(buffer.shape[axis])
    if known is not None and (known < 0 or (size is not None and known >= size)):
        raise _outside(buffer, axis, f"index {int_value(e)}", size)
    return moved


def _from_the_end(buffer: Buffer, axis: int, e: Expr) -> Expr:
    """An index that is certainly negative counts from the end, as in Python."""
    builder = build.current_or_none()
    high = bounds(e, builder.ranges if builder else {}, wraps=False).hi
    if high is None or high >= 0:
        return e
    return simplify(Binary(BinaryOp.ADD, *same_width(e, buffer.shape[axis])))


def _outside(buffer: Buffer, axis: int, what: str, size: int | None) -> TileError:
    allowed = "no index: the axis is empty" if size == 0 else ">= 0"
    if size:
        allowed = f"-{size} to {size - 1}" if what.startswith("index -") else f"0 to {size - 1}"
    return _bad(
        TileIndexError,
        "bounds",
        f"{what} is out of bounds for axis {axis} of {buffer.name}",
        expected=allowed,
        got=what.split()[-1],
    )


def _region(buffer: Buffer, parts: Sequence[Any]) -> Region:
    if len(parts) > buffer.rank:
        raise _bad(
            TileIndexError,
            "bounds",
            f"{buffer.name} has {buffer.rank} axes and is sliced with {len(parts)} indices",
            expected=f"at most {buffer.rank} indices",
            got=str(len(parts)),
        )
    full = [*parts, *([slice(None)] * (buffer.rank - len(parts)))]
    mins: list[Expr] = []
    extents: list[Expr] = []
    for axis, part in enumerate(full):
        low, size = (
            _axis_range(buffer, axis, cast("slice[Any, Any, Any]", part))
            if isinstance(part, slice)
            else (_scalar_index(buffer, axis, part), const(1))
        )
        mins.append(low)
        extents.append(size)
    return Region(buffer, tuple(mins), tuple(extents), loc=here())


def _axis_range(buffer: Buffer, axis: int, part: slice[Any, Any, Any]) -> tuple[Expr, Expr]:
    if part.step is not None and part.step != 1:
        raise _bad(
            TileRuntimeError,
            "syntax",
            f"a slice of {buffer.name} with step {part.step}",
            expected="a slice without a step",
            got=f"step {part.step}",
            help="loop over the elements: `for i in T.Parallel(n): dst[i] = src[i * step]`",
        )
    size = buffer.shape[axis]
    low = const(0) if part.start is None else _bound(buffer, axis, part.start)
    high = size if part.stop is None else _bound(buffer, axis, part.stop)
    extent_ = _difference(high, low)
    known = int_value(extent_)
    if known is not None and known < 0:
        raise _bad(
            TileIndexError,
            "bounds",
            f"a slice of {buffer.name} ends before it starts",
            got=f"extent {known}",
        )
    check_on_chip(buffer, axis, low, extent_)
    return low, extent_


def _difference(high: Expr, low: Expr) -> Expr:
    """`high - low`. Both are computed here, so an element that is read in both is one value."""
    a, b = same_width(high, low)
    hidden = as_values(a, b)
    found = simplify(Binary(BinaryOp.SUB, hidden[0], hidden[1]))
    builder = build.current_or_none()
    if int_value(found) is None and builder is not None:
        written = simplify(builder.expanded(found))  # `low = i * 8` before `A[low : i * 8 + 8]`
        found = written if int_value(written) is not None else found
    return simplify(Binary(BinaryOp.SUB, a, b)) if _names(found) else found


def _names(e: Expr) -> bool:
    """Whether an element that `as_values` replaced is left."""
    return any(isinstance(n, Var) and n.name.startswith("?") for n in e.walk())


def _bound(buffer: Buffer, axis: int, x: Any) -> Expr:
    e = simplify(extent(x, f"a slice bound of {buffer.name}"))
    moved = _from_the_end(buffer, axis, e)
    low = int_value(moved)
    if low is not None and low < 0:
        raise _outside(buffer, axis, f"slice bound {int_value(e)}", int_value(buffer.shape[axis]))
    return moved


def check_on_chip(buffer: Buffer, axis: int, low: Expr, size: Expr) -> None:
    """Refuse a constant range that leaves an on-chip buffer; a global tensor is clipped instead."""
    start, count, limit = int_value(low), int_value(size), int_value(buffer.shape[axis])
    if buffer.scope == "global" or start is None or count is None or limit is None or count == 0:
        return
    if start < 0 or start + count > limit:
        raise _outside(buffer, axis, f"slice {start}:{start + count}", limit)


# -- second names ----------------------------------------------------------------------------------


def alias(source: Buffer, extents: tuple[Expr, ...], element: DType) -> BufferRef:
    """A second name for a storage, row-major, of as many bits."""
    builder = build.current("a view of a buffer")
    if source.strides is not None:
        raise _bad(
            TileValueError,
            "shape",
            f"a view of the strided buffer {source.name}",
            help="copy it to a row-major buffer first",
        )
    old, new = _bits(source.shape, source.dtype), _bits(extents, element)
    if not equal(old, new):
        raise _bad(
            TileValueError,
            "shape",
            f"a view of {source.name} with another size",
            expected=f"the bits of {source.dtype}{shape_text(source.shape)}: {plain(old)}",
            got=f"{element}{shape_text(extents)}: {plain(new)}",
        )
    name = builder.unique(builder.name_hint(f"{source.name}_view"))
    buffer = Buffer(name, DType(element), extents, scope=source.scope, loc=here())
    builder.define(buffer)
    builder.emit(View(buffer, source, loc=here()))
    return BufferRef(buffer)


def _bits(shape: tuple[Expr, ...], dtype: DType) -> Expr:
    total: Any = Value(const(dtype.bits * dtype.lanes, DType("int64")))
    for e in shape:
        total = total * Value(e)
    return simplify(total.expr)


# -- annotations of parameters ---------------------------------------------------------------------


class TensorSpec:
    """The annotation of a tensor parameter: shape, dtype, strides (elements) and scope."""

    def __init__(
        self, shape: Any, dtype: Any = "float32", strides: Any = None, scope: str = "global"
    ) -> None:
        self.shape = shape_of(shape, "a tensor")
        self.dtype = DataType(element_type(dtype))
        self.strides = None if strides is None else shape_of(strides, "strides")
        self.scope = scope
        if self.strides is not None and len(self.strides) != len(self.shape):
            raise error(
                "shape",
                "shape and strides of a tensor differ in length",
                here(),
                expected=f"{len(self.shape)} strides",
                got=str(len(self.strides)),
            )

    def named(self, name: str) -> Buffer:
        """The buffer of a parameter with this annotation."""
        return Buffer(name, DType(self.dtype), self.shape, scope=self.scope, strides=self.strides)


class _Tensor:
    """`T.Tensor(shape, dtype="float32")` or `T.Tensor[shape, dtype]`: a row-major tensor."""

    def __init__(self, scope: str) -> None:
        self._scope = scope

    def __call__(
        self, shape: Any, dtype: Any = "float32", data: Any = None, scope: str | None = None
    ) -> Any:
        """`shape` is an int or a sequence; its entries may be symbolic.

        With `data=buffer.data`, in a kernel: a second name for that storage, of as many bits.
        """
        if data is None:
            return TensorSpec(shape, dtype, scope=scope or self._scope)
        if not isinstance(data, Storage):
            raise _bad(
                TileTypeError,
                "dtype",
                f"the data of T.Tensor is {describe(data)}",
                expected="`buffer.data`",
                got=describe(data),
            )
        return alias(data.buffer, shape_of(shape, "T.Tensor"), element_type(dtype))

    def __getitem__(self, key: Any) -> TensorSpec:
        """`[shape, dtype]`, or `[extent, extent, ...]` of float32."""
        if not isinstance(key, tuple):
            raise error(
                "shape",
                "T.Tensor[...] needs a shape and a dtype",
                here(),
                expected="T.Tensor[(8,), T.float16]",
                got=f"T.Tensor[{key!r}]",
            )
        *shape, last = cast("tuple[Any, ...]", key)
        if isinstance(last, str) or not is_scalar(last):
            extents = shape[0] if len(shape) == 1 else tuple(shape)
            return TensorSpec(extents, last, scope=self._scope)
        return TensorSpec(key, scope=self._scope)


class _StridedTensor:
    """`T.StridedTensor(shape, strides, dtype="float32")`: strides are in elements."""

    def __call__(self, shape: Any, strides: Any, dtype: Any = "float32") -> TensorSpec:
        """`shape` and `strides` have one entry per axis; entries may be symbolic."""
        return TensorSpec(shape, dtype, strides)

    def __getitem__(self, key: Any) -> TensorSpec:
        """`[shape, strides]` or `[shape, strides, dtype]`."""
        if not isinstance(key, tuple) or len(cast("tuple[Any, ...]", key)) not in (2, 3):
            raise error(
                "shape",
                "T.StridedTensor[...] needs a shape, strides and a dtype",
                here(),
                expected="T.StridedTensor[(8, 4), (s, 1), T.float16]",
                got=f"T.StridedTensor[{key!r}]",
            )
        return self(*cast("tuple[Any, ...]", key))


Tensor = _Tensor("global")
StridedTensor = _StridedTensor()
FragmentBuffer = _Tensor("local.fragment")
SharedBuffer = _Tensor("shared.dyn")
LocalBuffer = _Tensor("local")
