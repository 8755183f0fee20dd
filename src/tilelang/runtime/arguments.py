"""Arguments of a launch against the signature: everything is checked, by name, before anything runs.

What enters: a function's parameters and the objects a call passes. What leaves: storage by parameter name, the
symbolic sizes, and the outputs that were allocated; or one error that names the parameter, what was expected and
what was got.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilelang import dtypes
from tilelang.dtypes import DType
from tilelang.errors import TileError, TileTypeError, TileValueError, error
from tilelang.ir.evaluate import evaluate
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
    packed_shape,
    unpacked,
)


@dataclass
class Bound:
    """The arguments of one launch: storage or number by parameter name, sizes by symbol, results to return."""

    values: dict[str, Any] = field(default_factory=dict[str, Any])
    sizes: dict[Var, int] = field(default_factory=dict[Var, int])
    results: list[Any] = field(default_factory=list[Any])
    finish: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])


class Signature:
    """The parameters of a function, prepared for binding arguments."""

    def __init__(self, fn: Function, outputs: Sequence[int]) -> None:
        self.fn = fn
        self.outputs = tuple(outputs)
        self.inputs = [p for n, p in enumerate(fn.params) if n not in self.outputs]
        self._used, self._written = _touched(fn)

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Bound:
        """Check and bind the arguments of one call."""
        given = self._by_name(args, kwargs)
        bound = Bound()
        framework: str | None = None
        shapes: list[tuple[Param, Array, tuple[int, ...]]] = []
        for p in self.inputs:
            value = given[p.name]
            if p.buffer is None:
                bound.values[p.name] = self._scalar(p, value)
                if p.var is not None and not p.var.dtype.is_float:
                    bound.sizes[p.var] = int(bound.values[p.name])
                continue
            if value is None:
                bound.values[p.name] = self._absent(p)
                continue
            array = adopt(value, self._name(p))
            framework = framework or array.framework
            shapes.append((p, array, self._element_shape(p, array)))
        self._sizes(shapes, bound)
        for p, array, shape in shapes:
            self._check_shape(p, shape, bound.sizes)
            self._check_strides(p, array, shape, bound.sizes)
            bound.values[p.name] = self._storage(p, array, shape, bound)
        self._allocate(bound, framework or default_framework())
        return bound

    # -- one parameter ----------------------------------------------------------------------------------------------

    def _name(self, p: Param) -> str:
        return f"argument {p.name} of {self.fn.name}"

    def _bad(
        self,
        p: Param,
        what: str,
        expected: str,
        got: str,
        cls: type[TileError] = TileValueError,
        help: str = "",
    ) -> TileError:  # noqa: A002
        return error(
            "argument", f"{self._name(p)}: {what}", cls=cls, expected=expected, got=got, help=help
        )

    def _by_name(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        names = [p.name for p in self.inputs]
        if len(args) + len(kwargs) != len(names):
            raise error(
                "argument",
                f"{self.fn.name}: Kernel expected {len(names)} inputs, but {len(args) + len(kwargs)} are provided.",
                expected=f"parameters {', '.join(names) or '(none)'}",
                got=f"{len(args) + len(kwargs)} arguments",
                help="positions in `out_idx` are allocated by the call and not passed"
                if self.outputs
                else "",
            )
        given = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name not in names or name in given:
                raise error(
                    "argument",
                    f"{self.fn.name} got an unexpected argument {name}",
                    expected=", ".join(names),
                    got=name,
                )
            given[name] = value
        return given

    def _scalar(self, p: Param, value: Any) -> int | float | bool:
        assert p.var is not None
        dtype = p.var.dtype
        if isinstance(value, (np.generic, np.ndarray)) and value.ndim == 0:
            value = value.item()
        elif hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
            value = value.item()
        if isinstance(value, bool) and not dtype.is_bool and not dtype.is_float:
            value = int(value)
        wanted = (int, float) if dtype.is_float else (int,)
        if not isinstance(value, wanted):
            raise self._bad(
                p, f"a {dtype} scalar is needed", str(dtype), describe_object(value), TileTypeError
            )
        if isinstance(value, int) and dtype.is_integer and not dtype.min <= value <= dtype.max:
            raise self._bad(
                p, f"the value does not fit {dtype}", f"{dtype.min} to {dtype.max}", str(value)
            )
        return dtypes.const_value(value, dtype)

    def _absent(self, p: Param) -> None:
        if p.name in self._used:
            raise self._bad(
                p, "None for a tensor that the kernel uses", "an array", "None", TileTypeError,
                "None is allowed only where the kernel never reads or writes the tensor",
            )  # fmt: skip

    def _element_shape(self, p: Param, array: Array) -> tuple[int, ...]:
        """The shape in elements, after the dtype and rank are found right."""
        assert p.buffer is not None
        want, got = DType(p.buffer.dtype), array.dtype
        shape = array.storage.shape
        if want.bits < 8 and got.bits == 8 and got.kind in ("int", "uint"):
            shape = (*shape[:-1], shape[-1] * (8 // want.bits)) if shape else shape
        elif not _compatible(want.base, got):
            raise self._bad(
                p,
                "dtype mismatch",
                f"dtype {want}",
                f"dtype {got}",
                TileTypeError,
                _cast_hint(want),
            )
        if want.lanes > 1 and shape:
            if shape[-1] % want.lanes:
                raise self._bad(
                    p, "shape mismatch", f"a last axis divisible by {want.lanes}", str(shape)
                )
            shape = (*shape[:-1], shape[-1] // want.lanes)
        if len(shape) != p.buffer.rank:
            raise self._bad(
                p, f"wrong number of dimensions (rank), shape {tuple(shape)}",
                f"expected {p.buffer.rank} dimensions {_shape_text(p.buffer.shape)}", f"{len(shape)} dimensions",
            )  # fmt: skip
        return tuple(shape)

    def _sizes(self, shapes: Sequence[tuple[Param, Array, tuple[int, ...]]], bound: Bound) -> None:
        """Give each symbol a value: from plain axes first, then by solving what is left."""
        pending: list[tuple[Expr, int]] = []
        for p, array, shape in shapes:
            assert p.buffer is not None
            pending += zip(p.buffer.shape, shape, strict=True)
            if p.buffer.strides is not None:
                pending += [
                    (s, v)
                    for s, v, n in zip(p.buffer.strides, _strides(array), shape, strict=True)
                    if n > 1
                ]
        for e, size in pending:
            if isinstance(e, Var):
                bound.sizes.setdefault(e, size)
        for e, size in pending:
            _solve(e, size, bound.sizes)

    def _check_shape(self, p: Param, shape: tuple[int, ...], sizes: Mapping[Var, int]) -> None:
        assert p.buffer is not None
        for axis, (e, got) in enumerate(zip(p.buffer.shape, shape, strict=True)):
            known = int_value(e)
            want = known if known is not None else evaluate(e, sizes)
            if want == got:
                continue
            symbol = "" if known is not None else f" ({print_expr(e)}, from another argument)"
            raise self._bad(
                p,
                f"shape mismatch at axis {axis}, shape {shape}",
                f"expected {want}{symbol} at axis {axis}",
                f"{got}",
            )

    def _check_strides(
        self, p: Param, array: Array, shape: tuple[int, ...], sizes: Mapping[Var, int]
    ) -> None:
        assert p.buffer is not None
        if p.buffer.strides is None:
            return
        for axis, (e, got) in enumerate(zip(p.buffer.strides, _strides(array), strict=True)):
            want = evaluate(e, sizes)
            if shape[axis] > 1 and want != got:
                raise self._bad(
                    p, f"stride mismatch at axis {axis}", f"stride {want} elements", f"{got}"
                )

    def _storage(self, p: Param, array: Array, shape: tuple[int, ...], bound: Bound) -> Storage:
        assert p.buffer is not None
        dtype = DType(p.buffer.dtype)
        written = p.name in self._written
        if written and not array.storage.flags.writeable:
            raise self._bad(
                p,
                "the kernel writes to a read-only array",
                "a writeable array",
                "a read-only array",
            )
        if dtype.bits < 8 and array.dtype.bits == 8:
            return self._packed(array, shape, dtype, bound, written=written)
        storage = array.storage
        if dtype.lanes > 1:
            return (
                storage.reshape(*shape, dtype.lanes)
                if storage.flags.c_contiguous
                else self._strided_lanes(p)
            )
        return storage if storage.dtype == dtype.numpy else storage.view(dtype.numpy)

    def _strided_lanes(self, p: Param) -> Storage:
        raise self._bad(
            p,
            "a vector element type needs a contiguous array",
            "row-major strides",
            "other strides",
        )

    def _packed(
        self, array: Array, shape: tuple[int, ...], dtype: DType, bound: Bound, *, written: bool
    ) -> Storage:
        storage = unpacked(array, shape, dtype)
        if written:

            def back() -> None:
                raw = dtypes.pack(storage.reshape(-1), dtype)
                array.storage[...] = raw.view(array.storage.dtype).reshape(array.storage.shape)

            bound.finish.append(back)
        return storage

    def _allocate(self, bound: Bound, framework: str) -> None:
        for n in self.outputs:
            p = self.fn.params[n]
            assert p.buffer is not None
            shape = [evaluate(e, bound.sizes) for e in p.buffer.shape]
            if None in shape:
                raise self._bad(
                    p,
                    "the output's shape is not known",
                    "sizes that follow from the inputs",
                    _shape_text(p.buffer.shape),
                )
            extents = [int(s) for s in shape if s is not None]
            dtype = DType(p.buffer.dtype)
            if dtype.bits < 8:
                result, raw = allocate(packed_shape(extents, dtype), DType("int8"), framework)
                storage = self._packed(
                    Array(raw, DType("int8"), framework), tuple(extents), dtype, bound, written=True
                )
            else:
                lanes = [dtype.lanes] if dtype.lanes > 1 else []
                result, storage = allocate([*extents, *lanes], dtype.base, framework)
            bound.values[p.name] = storage
            bound.results.append(result)


def _touched(fn: Function) -> tuple[set[str], set[str]]:
    """The names of buffers that the function uses at all, and of those it may write (views count for their source)."""
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


def _compatible(want: DType, got: DType) -> bool:
    """Whether an array of `got` may stand for `want`: the same code words, or a truth value in a byte."""
    if want == got or want.row.encoding == got.row.encoding and want.bits == got.bits:
        return True
    return {want.name, got.name} <= {"bool", "uint8", "int8"} and "bool" in (want.name, got.name)


def _cast_hint(want: DType) -> str:
    name = want.torch_name
    return f"convert it: `x.to(torch.{name})` or `x.astype(...)`" if name else ""


def _strides(array: Array) -> list[int]:
    return [s // array.storage.itemsize for s in array.storage.strides]


def _shape_text(shape: Sequence[Expr]) -> str:
    return "(" + ", ".join(print_expr(e) for e in shape) + ")"


def _solve(e: Expr, size: int, sizes: dict[Var, int]) -> None:
    """Where `e` is linear in its one unknown symbol, find the value that makes it `size`."""
    unknown = {n for n in e.walk() if isinstance(n, Var) and n not in sizes}
    if len(unknown) != 1:
        return
    symbol = unknown.pop()
    at = [evaluate(e, {**sizes, symbol: x}) for x in (0, 1, 2)]
    if any(v is None for v in at):
        return
    zero, one, two = (int(v) for v in at if v is not None)
    slope = one - zero
    if slope == 0 or two - one != slope or (size - zero) % slope:
        return
    sizes[symbol] = (size - zero) // slope
