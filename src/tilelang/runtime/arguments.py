"""Arguments of a launch against the signature: all is checked, by name, before anything runs.

What enters: a function's parameters and the objects a call passes. What leaves: storage by
parameter name, the symbolic sizes, and the outputs that were allocated; or one error that names the
parameter, what was expected and what was got.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from tilelang import dtypes
from tilelang.dtypes import DType
from tilelang.errors import TileError, TileTypeError, TileValueError, error
from tilelang.ir.expr import Expr, Var, int_value
from tilelang.ir.node import Effect
from tilelang.ir.text import print_expr
from tilelang.ir.tile import Function, Param, View
from tilelang.runtime.arrays import (
    Array,
    Storage,
    adopt,
    allocate,
    default_framework,
    describe_object,
    overlapping,
    pack_rows,
    packed_shape,
    packed_type,
    row_bytes,
    unpack_rows,
)
from tilelang.runtime.parts import poison
from tilelang.runtime.sizes import Fact, Sizes
from tilelang.scopes import Dialect

MISSED: Final = object()
"""What a launch plan gives for arguments that it is not for: they are to be bound in full."""


@dataclass
class Bound:
    """The arguments of one launch.

    `values` is storage or a number by parameter name, `sizes` a number by symbol, `results` what
    the call returns, of `framework`; `finish` is what is left to do after the launch.
    """

    values: dict[str, Any] = field(default_factory=dict[str, Any])
    sizes: dict[Var, int] = field(default_factory=dict[Var, int])
    results: list[Any] = field(default_factory=list[Any])
    framework: str = "numpy"
    finish: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])


@dataclass(frozen=True)
class Given:
    """An array passed for a tensor parameter, with its shape in elements of the parameter."""

    param: Param
    array: Array
    shape: tuple[int, ...]


class Signature:
    """The parameters of a function, prepared for binding arguments.

    `poisoned` says that outputs are filled with what memory holds before the first write, so that
    an element the kernel forgets to write is noticed.
    """

    def __init__(self, fn: Function, outputs: Sequence[int], *, poisoned: bool = True) -> None:
        self.fn = fn
        self.poisoned = poisoned
        self.outputs = tuple(outputs)
        self.inputs = {p.name: p for n, p in enumerate(fn.params) if n not in self.outputs}
        self._used, self._written = touched(fn)
        self._needed = self._needed_sizes()

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Bound:
        """Check and bind the arguments of one call."""
        bound, sizes = Bound(), Sizes()
        arrays: list[Given] = []
        for name, value in self._by_name(args, kwargs).items():
            p = self.inputs[name]
            if p.buffer is None:
                pointer = p.pointer and not isinstance(value, (int, np.integer))
                bound.values[name] = self._address(p, value) if pointer else self.scalar(p, value)
                if p.var is not None and not p.var.dtype.is_float:
                    sizes.give(p.var, int(bound.values[name]), f"argument {name}")
            elif value is None:
                bound.values[name] = self._absent(p)
            else:
                array = self._folded(p, self._adopt(value, self._name(p)))
                arrays.append(Given(p, array, self._element_shape(p, array)))
        sizes.solve([fact for g in arrays for fact in _facts(g)])
        for g in arrays:
            self._check_shape(g, sizes)
            self._check_strides(g, sizes)
            bound.values[g.param.name] = self._storage(g, bound)
        bound.framework = self._framework(arrays)
        self._check_sizes(sizes)
        bound.sizes = sizes.values
        self._allocate(bound, sizes)
        return bound

    def symbols(self) -> set[Var]:
        """The symbols in the shapes and strides of all parameters."""
        return {v for p in self.fn.params for v in _symbols(p)}

    # -- what differs between memories -------------------------------------------------------------

    def _adopt(self, value: Any, where: str) -> Array:
        """An argument as an array in memory that the kernel can use."""
        return adopt(value, where)

    def _folded(self, p: Param, array: Array) -> Array:
        """For a kernel of the Ascend adapter, whose tree takes any tensor for its storage: an array
        without gaps, of as many elements in another shape, in the shape declared; of one with more
        rows than declared, the first rows; one with fewer rows as it is, and what is behind it is
        outside. With symbols, only axes of one element may be too many.
        """
        if self.fn.dialect != Dialect.ADAPTER.value or p.buffer is None:
            return array
        storage = array.storage
        declared = [int_value(e) for e in p.buffer.shape]
        rows, rest = declared[:1], tuple(declared[1:])
        longer = storage.shape[1:] == rest and storage.shape[:1] > tuple(n or 0 for n in rows)
        if None not in declared and storage.flags.c_contiguous and longer:
            return replace(array, storage=storage[: rows[0]])
        if None in declared:
            shapes = _squeezed(storage.shape, declared)
        else:
            shapes = {tuple(n for n in declared if n is not None)}
            shapes |= _fewer_rows(storage.shape, next(iter(shapes)))
        shapes = {shape for shape in shapes if math.prod(shape) == storage.size}
        if len(shapes) != 1 or not storage.flags.c_contiguous:
            return array
        (shape,) = shapes
        return replace(array, storage=storage.reshape(shape))

    def _framework(self, arrays: Sequence[Given]) -> str:
        """Whose arrays the outputs are: those of the first array given."""
        return arrays[0].array.framework if arrays else default_framework()

    # -- one parameter -----------------------------------------------------------------------------

    def _name(self, p: Param) -> str:
        return f"argument {p.name} of {self.fn.name}"

    def _bad(
        self,
        p: Param,
        what: str,
        *,
        expected: str,
        got: str,
        cls: type[TileError] = TileValueError,
        way_out: str = "",
    ) -> TileError:
        message = f"{self._name(p)}: {what}"
        return error("argument", message, cls=cls, expected=expected, got=got, help=way_out)

    def _by_name(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        names = list(self.inputs)
        count = len(args) + len(kwargs)
        for n, name in enumerate(kwargs):
            if name not in names or name in names[: len(args)]:
                what = "two arguments" if name in names else "an unexpected argument"
                raise error(
                    "argument",
                    f"{self.fn.name} got {what} {name}",
                    cls=TileTypeError,
                    expected=f"parameters {', '.join(names) or '(none)'}",
                    got=f"{', '.join(list(kwargs)[: n + 1])} by keyword, {len(args)} by position",
                )
        if self._brings_outputs(args, kwargs):
            args, count = args[: len(names)], len(names)
        if count != len(names):
            raise error(
                "argument",
                f"{self.fn.name}: Kernel expected {len(names)} inputs, but {count} are provided.",
                expected=f"parameters {', '.join(names) or '(none)'}",
                got=f"{count} argument{'s' if count != 1 else ''}",
                help="positions in `out_idx` are allocated by the call and not passed"
                if self.outputs
                else "",
            )
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        return {name: given[name] for name in names}

    def _brings_outputs(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Whether a call brings an array for each parameter, the last of which the call makes: the
        adapter tree looks at no more arguments than it needs. What is not used is a warning.
        """
        first = len(self.inputs)
        last = tuple(sorted(self.outputs)) == tuple(range(first, len(self.fn.params)))
        if kwargs or not last or not self.outputs or len(args) != len(self.fn.params):
            return False
        if self.fn.dialect != Dialect.ADAPTER.value:
            return False
        names = ", ".join(p.name for p in self.fn.params[first:])
        text = f"{self.fn.name}: what is given for {names} is not used: the call makes it (out_idx)"
        warnings.warn(text, RuntimeWarning, stacklevel=5)
        return True

    def scalar(self, p: Param, value: Any) -> int | float | bool:
        """An argument for a scalar parameter, as a number of its type."""
        dtype = DType("int32") if p.var is None else p.var.dtype
        known: Any = value
        if not isinstance(value, (bool, int, float)) and getattr(value, "ndim", 1) == 0:
            known = value.item()  # a scalar of NumPy, or an array without axes
        if isinstance(known, bool) and not dtype.is_bool and not dtype.is_float:
            known = int(known)
        wanted = (int, float) if dtype.is_float else (int,)
        if not isinstance(known, wanted):
            raise self._bad(
                p,
                f"a scalar of type {dtype} is needed",
                expected=str(dtype),
                got=describe_object(value),
                cls=TileTypeError,
            )
        if dtype.is_integer and not dtype.min <= known <= dtype.max:
            limits = f"{dtype.min} to {dtype.max}"
            raise self._bad(p, f"the value does not fit {dtype}", expected=limits, got=str(known))
        return dtypes.const_value(known, dtype)

    def _address(self, p: Param, value: Any) -> int:
        """Where the first element of an array lies; the caller keeps the array."""
        return address_of(self._adopt(value, self._name(p)).storage)

    def _absent(self, p: Param) -> None:
        if p.name in self._used:
            raise self._bad(
                p,
                "None for a tensor that the kernel uses",
                expected="an array",
                got="None",
                cls=TileTypeError,
                way_out="None is allowed only where the kernel never touches the tensor",
            )

    def _element_shape(self, p: Param, array: Array) -> tuple[int, ...]:
        """The shape in elements, after the dtype and rank are found right."""
        want, extents = declared(p)
        shape = tuple(array.storage.shape)
        packed = is_packed(want, array)
        if not packed and not _compatible(want.base, array.dtype):
            raise self._bad(
                p,
                "dtype mismatch",
                expected=f"dtype {want}",
                got=f"dtype {array.dtype}",
                cls=TileTypeError,
                way_out=_cast_hint(want),
            )
        lanes = want.lanes > 1 and not packed
        if lanes and len(shape) == len(extents) + 1 and shape[-1] == want.lanes:
            return shape[:-1]  # an axis for the lanes, as outputs have it
        if len(shape) != len(extents):
            raise self._bad(
                p,
                f"wrong number of dimensions (rank), shape {shape}",
                expected=f"{len(extents)} dimensions {_shape_text(extents)}",
                got=f"{len(shape)} dimensions",
            )
        if packed and shape:
            known = int_value(extents[-1])
            fits = known is not None and row_bytes(known, want) == shape[-1]
            shape = (
                *shape[:-1],
                known if fits and known is not None else shape[-1] * 8 // (want.bits * want.lanes),
            )
        elif lanes and shape:
            if shape[-1] % want.lanes:
                multiple = f"a last axis divisible by {want.lanes}"
                raise self._bad(p, "shape mismatch", expected=multiple, got=str(shape))
            shape = (*shape[:-1], shape[-1] // want.lanes)
        return shape

    def _check_shape(self, g: Given, sizes: Sizes) -> None:
        _, extents = declared(g.param)
        for axis, (e, got) in enumerate(zip(extents, g.shape, strict=True)):
            want = sizes.evaluate(e)
            if want == got or (want is not None and self._is_short(g, axis, got, want)):
                continue
            if want is None:
                expected = f"{print_expr(e)} at axis {axis}, for some sizes >= 0"
            elif int_value(e) is None:
                expected = f"{want} ({print_expr(e)}, {sizes.describe(e)}) at axis {axis}"
            else:
                expected = f"{want} at axis {axis}"
            raise self._bad(
                g.param,
                f"shape mismatch at axis {axis}, shape {g.shape}",
                expected=expected,
                got=str(got),
            )

    def _is_short(self, g: Given, axis: int, got: int, want: int) -> bool:
        """Whether an array of the Ascend adapter has fewer rows than are declared (`_folded`)."""
        adapter = self.fn.dialect == Dialect.ADAPTER.value and g.array.storage.flags.c_contiguous
        return adapter and 0 < got < want and all(n == 1 for n in g.shape[:axis])

    def _check_strides(self, g: Given, sizes: Sizes) -> None:
        """Declared strides must be those of the array; without them it may have any."""
        p, storage = g.param, g.array.storage
        if p.buffer is None or p.buffer.strides is None or storage.size == 0:
            return
        got = [s // storage.itemsize for s in storage.strides]
        want = [sizes.evaluate(e) for e in p.buffer.strides]
        for axis, (n, a, b) in enumerate(zip(storage.shape, want, got, strict=True)):
            if n > 1 and (a != b or storage.strides[axis] % storage.itemsize):
                raise self._bad(
                    p,
                    f"stride mismatch at axis {axis}",
                    expected=f"strides {tuple(want)} in elements",
                    got=str(tuple(got)),
                )

    def _needed_sizes(self) -> set[Var]:
        """The symbols that the code, a tensor it touches or an output depends on."""
        asked = {n for s in self.fn.body for n in s.walk() if isinstance(n, Var)}
        for n, p in enumerate(self.fn.params):
            if p.name in self._used or n in self.outputs:
                asked |= _symbols(p)
        return asked & set(self.fn.dynamic)

    def _check_sizes(self, sizes: Sizes) -> None:
        """Every size follows from the arguments, or nothing asks for it: it is 0 then."""
        for symbol in self.fn.dynamic:
            if symbol not in sizes.values and symbol not in self._needed:
                sizes.give(symbol, 0, "no argument")
            if symbol not in sizes.values:
                where = [p.name for p in self.fn.params if symbol in _symbols(p)]
                raise error(
                    "argument",
                    f"the size {symbol.name} of {self.fn.name} does not follow from the arguments",
                    expected=f"a shape that determines it, from {', '.join(where)}",
                    got="None, or no axis that is linear in it",
                )

    # -- storage -----------------------------------------------------------------------------------

    def _storage(self, g: Given, bound: Bound) -> Storage:
        p, storage = g.param, g.array.storage
        dtype, _ = declared(p)
        written = p.name in self._written
        if written and not storage.flags.writeable:
            raise self._bad(
                p,
                "the kernel writes to a read-only array",
                expected="a writeable array",
                got="a read-only array",
            )
        if p.buffer is not None and p.buffer.strides is None:
            storage = self._row_major(p, storage, bound, written=written)
        if is_packed(dtype, g.array):
            return _unpacked(storage, g.shape, dtype, bound, written=written)
        if dtype.lanes > 1:
            return storage.reshape(*g.shape, dtype.lanes)
        if dtype.is_bool and not g.array.dtype.is_bool and np.any(storage.view(np.uint8) > 1):
            raise self._bad(
                p,
                "a byte that is neither 0 nor 1 stands for a truth value",
                expected="0 or 1",
                got=f"up to {int(storage.view(np.uint8).max())}",
            )
        return storage if storage.dtype == dtype.numpy else storage.view(dtype.numpy)

    def _row_major(self, p: Param, storage: Storage, bound: Bound, *, written: bool) -> Storage:
        """The array as the kernel declares it: itself, or a copy that is copied back."""
        if storage.flags.c_contiguous:
            return storage
        if written and overlapping(storage):
            raise self._bad(
                p,
                "the kernel writes to an array whose elements share storage",
                expected="one place per element",
                got=f"strides {storage.strides} in bytes",
            )
        copy = np.ascontiguousarray(storage)
        if written:
            bound.finish.append(lambda: np.copyto(storage, copy))
        return copy

    def _allocate(self, bound: Bound, sizes: Sizes) -> None:
        for n in self.outputs:
            p = self.fn.params[n]
            dtype, wanted = declared(p)
            shape = [sizes.evaluate(e) for e in wanted]
            extents = [s for s in shape if s is not None and s >= 0]
            if len(extents) != len(shape):
                raise self._bad(
                    p,
                    "the output's shape is not known",
                    expected="sizes >= 0 that follow from the inputs",
                    got=_shape_text(wanted),
                )
            result, bound.values[p.name] = self._output(dtype, extents, bound)
            bound.results.append(result)

    def _output(self, dtype: DType, extents: Sequence[int], bound: Bound) -> tuple[Any, Storage]:
        """A new array for an output, and its storage."""
        if dtype.bits < 8 and extents and bound.framework != "numpy":
            kind = packed_type(dtype, bound.framework)
            width = packed_shape(extents, dtype)
            result, storage = allocate(width, kind, bound.framework, poisoned=False)
            raw = storage.view(np.uint8)
            if self.poisoned:
                raw[...] = poison(DType("uint8"))
            return result, _unpacked(raw, tuple(extents), dtype, bound, written=True)
        lanes = [dtype.lanes] if dtype.lanes > 1 else []
        shape = [*extents, *lanes]
        return allocate(shape, dtype.base, bound.framework, poisoned=self.poisoned)


def address_of(storage: Any) -> int:
    """Where an array begins."""
    return int(storage.ctypes.data) if isinstance(storage, np.ndarray) else int(storage.address)


def declared(p: Param) -> tuple[DType, tuple[Expr, ...]]:
    """The element type and extents of a tensor parameter."""
    return (DType("int32"), ()) if p.buffer is None else (DType(p.buffer.dtype), p.buffer.shape)


def _symbols(p: Param) -> set[Var]:
    if p.buffer is None:
        return set()
    exprs = (*p.buffer.shape, *(p.buffer.strides or ()))
    return {n for e in exprs for n in e.walk() if isinstance(n, Var)}


def _squeezed(shape: Sequence[int], declared: Sequence[int | None]) -> set[tuple[int, ...]]:
    """What `shape` may be without axes of one element, where sizes are declared as in `declared`
    (None: a symbol). Nothing where it fits as it is.
    """
    rank = len(declared)
    if len(shape) <= rank:
        return set()
    found = {tuple(kept) for kept in itertools.combinations(shape, rank)}
    return {s for s in found if all(m in (None, n) for n, m in zip(s, declared, strict=True))}


def _fewer_rows(shape: Sequence[int], declared: tuple[int, ...]) -> set[tuple[int, ...]]:
    """The shape of an array with fewer rows than declared, or of fewer elements where one axis
    alone is longer than one.
    """
    outer = next((axis for axis, n in enumerate(declared) if n != 1), 0)
    rest = declared[outer + 1 :]
    rows = math.prod(shape) // math.prod(rest) if all(rest) else 0
    fits = tuple(shape[len(shape) - len(rest) :]) == rest
    return {(*declared[:outer], rows, *rest)} if fits and 0 < rows < declared[outer] else set()


def _facts(g: Given) -> list[Fact]:
    """What the shape of an array, and its strides where they are declared, say about symbols."""
    buffer, storage = g.param.buffer, g.array.storage
    if buffer is None:
        return []
    name = g.param.name
    facts = [
        Fact(e, n, f"axis {axis} of {name}")
        for axis, (e, n) in enumerate(zip(buffer.shape, g.shape, strict=True))
    ]
    for axis, e in enumerate(buffer.strides or ()):
        if g.shape[axis] > 1:
            stride = storage.strides[axis] // storage.itemsize
            facts.append(Fact(e, stride, f"the stride of axis {axis} of {name}"))
    return facts


def _unpacked(
    raw: Storage, shape: tuple[int, ...], dtype: DType, bound: Bound, *, written: bool
) -> Storage:
    """One element per slot from packed bytes; what is written is packed after the launch."""
    storage = unpack_rows(raw, shape, dtype)
    if written:

        def back() -> None:
            raw[...] = pack_rows(storage, dtype).view(raw.dtype).reshape(raw.shape)

        bound.finish.insert(0, back)  # before the bytes are copied to where they came from
    return storage


def touched(fn: Function) -> tuple[set[str], set[str]]:
    """The names of buffers that the function uses, and of those it may write.

    A view counts for its source.
    """
    used: set[str] = set()
    written: set[str] = set()
    views: list[tuple[str, str]] = []
    for stmt in fn.body:
        for node in stmt.walk():
            if isinstance(node, View):
                views.append((node.buffer.name, node.source.name))
            for effect, target in node.effects():
                name = getattr(getattr(target, "buffer", target), "name", None)
                if isinstance(name, str):
                    used.add(name)
                    if effect & Effect.WRITE:
                        written.add(name)
    for view, source in reversed(views):
        if view in used:
            used.add(source)
        if view in written:
            written.add(source)
    return used, written


def is_packed(want: DType, array: Array) -> bool:
    """Whether the array holds bytes, each of several elements of a type smaller than a byte."""
    got = array.dtype
    if want.bits >= 8:
        return False
    pairs = got.lanes > 1 and got.row.encoding == want.row.encoding
    return pairs or (got.bits == 8 and got.kind in ("int", "uint"))


def _compatible(want: DType, got: DType) -> bool:
    """Whether an array of `got` may stand for `want`: the same code words in the same storage."""
    if got.lanes > 1:
        return False
    if want == got or (want.row.encoding == got.row.encoding and want.numpy == got.numpy):
        return True
    if {want.name, got.name} <= {"bool", "uint8", "int8"}:
        return "bool" in (want.name, got.name)
    # The storage that torch and NumPy have for a type of their own lack: fp32 for tf32, bytes.
    return want.row.torch == got.name and want.numpy.itemsize == got.numpy.itemsize


def _cast_hint(want: DType) -> str:
    name = want.torch_name
    return f"convert it: `x.to(torch.{name})` or `x.astype(...)`" if name else ""


def _shape_text(shape: Sequence[Expr]) -> str:
    return "(" + ", ".join(print_expr(e) for e in shape) + ("," if len(shape) == 1 else "") + ")"
