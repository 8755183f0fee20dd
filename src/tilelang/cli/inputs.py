"""Arguments for a launch from the command line: numbers, files and made-up arrays.

What enters: the parameters of a function and texts such as `n=100`, `A=zeros`, `B=weights.npy`.
What leaves: one value for each parameter that a call passes. Arrays that are not named get random
numbers from a fixed seed, so that two runs of a command see the same data.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilelang import dtypes
from tilelang.cli.kernels import UsageError
from tilelang.dtypes import DType
from tilelang.ir.evaluate import evaluate
from tilelang.ir.expr import Expr, Var
from tilelang.ir.tile import Function, Param

SEED = 0
_SPREAD = 8  # random integers lie in -8..8 where the type has them: products stay exact

Array = npt.NDArray[Any]


def pairs(texts: Sequence[str]) -> dict[str, str]:
    """`NAME=VALUE` texts as a dictionary."""
    out: dict[str, str] = {}
    for text in texts:
        name, found, value = text.partition("=")
        if not found or not name:
            raise UsageError(
                "an argument of the launch is given as NAME=VALUE",
                expected="n=100, A=zeros or A=file.npy",
                got=text,
            )
        out[name] = value
    return out


def arguments(fn: Function, outputs: Sequence[int], given: Mapping[str, str]) -> dict[str, Any]:
    """A value for each parameter of `fn` that is not in `outputs`, by name.

    `given` says what the author chose: numbers for sizes and scalars, and for tensors one of the
    words of `FILLS` or the path of a .npy file. `UsageError` for a name that `fn` does not have,
    and for a size or scalar without a value.
    """
    inputs = [p for n, p in enumerate(fn.params) if n not in set(outputs)]
    sizes = {v.name: v for v in fn.dynamic}
    known = [p.name for p in inputs] + list(sizes)
    for name in given:
        if name not in known:
            raise UsageError(
                f"{fn.name} has no parameter {name}", expected=", ".join(known), got=name
            )
    env: dict[Var, Any] = {v: _number(name, v.dtype, given) for name, v in sizes.items()}
    values: dict[str, Any] = {}
    for p in inputs:
        if p.var is not None:
            values[p.name] = env[p.var] = _number(p.name, p.var.dtype, given)
    random = np.random.default_rng(SEED)
    for p in inputs:
        if p.buffer is not None:
            values[p.name] = _tensor(p, env, given.get(p.name, "random"), random)
    return {p.name: values[p.name] for p in inputs}


def _number(name: str, dtype: DType, given: Mapping[str, str]) -> Any:
    if name not in given:
        raise UsageError(
            f"{name} needs a value", expected=f"a number ({dtype})", help=f"add `--args {name}=...`"
        )
    try:
        value = ast.literal_eval(given[name].strip())
    except (ValueError, TypeError, SyntaxError):
        value = None
    if not isinstance(value, (int, float)):
        raise UsageError(f"{name} is a number", expected=str(dtype), got=given[name])
    return value


def _extent(p: Param, e: Expr, env: Mapping[Var, Any]) -> int:
    value = evaluate(e, env)
    if value is None or value < 0:
        raise UsageError(f"the shape of {p.name} does not follow from the sizes given")
    return int(value)


def _tensor(p: Param, env: Mapping[Var, Any], how: str, random: np.random.Generator) -> Array:
    assert p.buffer is not None
    dtype = DType(p.buffer.dtype)
    shape = [_extent(p, e, env) for e in p.buffer.shape]
    if how.endswith(".npy"):
        return _from_file(p, how, dtype)
    if how not in FILLS:
        raise UsageError(
            f"the contents of {p.name}",
            expected=f"{', '.join(FILLS)}, or a file that ends in .npy",
            got=how,
        )
    if dtype.lanes > 1:
        shape.append(dtype.lanes)
    array = _storage(FILLS[how](tuple(shape), dtype.base, random), dtype.base)
    if dtype.bits < 8:
        if not shape or shape[-1] * dtype.bits % 8:
            raise UsageError(f"the rows of {p.name} ({dtype}) do not fill whole bytes")
        return dtypes.pack(array.reshape(-1), dtype).reshape(*shape[:-1], -1)
    if dtype.lanes > 1:
        return array.reshape(*shape[:-2], shape[-2] * dtype.lanes)
    if p.buffer.strides is not None:
        return _strided(array, [_extent(p, e, env) for e in p.buffer.strides])
    return array


def _from_file(p: Param, path: str, dtype: DType) -> Array:
    try:
        array: Array = np.load(Path(path), allow_pickle=False)
    except (OSError, ValueError) as exc:
        raise UsageError(f"{p.name} cannot be read from {path}: {exc}") from None
    # NumPy writes the types it does not know itself as raw bytes of their size.
    raw = array.dtype.kind == "V" and array.dtype.itemsize == dtype.numpy.itemsize
    return array.view(dtype.numpy) if raw else array


def _strided(array: Array, strides: Sequence[int]) -> Array:
    """The same elements, laid out with these strides (in elements)."""
    last = sum(step * (n - 1) for step, n in zip(strides, array.shape, strict=True))
    room = np.zeros(max(last + 1, 0) if array.size else 0, array.dtype)
    steps = tuple(step * array.itemsize for step in strides)
    out = np.lib.stride_tricks.as_strided(room, array.shape, steps)
    out[...] = array
    return out


def _storage(values: Array, dtype: DType) -> Array:
    return dtypes.cast(values, DType(str(values.dtype)), dtype)


# ---- What can be in an array ---------------------------------------------------------------------

Fill = Callable[[tuple[int, ...], DType, np.random.Generator], Array]


def _random(shape: tuple[int, ...], dtype: DType, random: np.random.Generator) -> Array:
    if dtype.is_bool:
        return random.integers(0, 2, shape).astype(np.bool_)
    if dtype.is_integer:
        low, high = max(int(dtype.min), -_SPREAD), min(int(dtype.max), _SPREAD)
        return random.integers(low, high, shape, endpoint=True)
    return random.standard_normal(shape)


def _all(value: float) -> Fill:
    def fill(shape: tuple[int, ...], dtype: DType, _: np.random.Generator) -> Array:
        if math.isnan(value) and not dtype.has_nan:
            raise UsageError(f"{dtype} has no NaN", expected="an array of a float type with NaN")
        return np.full(shape, value)

    return fill


def _counting(shape: tuple[int, ...], dtype: DType, _: np.random.Generator) -> Array:
    """0, 1, 2, ..., beginning anew after the largest value of a narrow integer type."""
    count = np.arange(math.prod(shape), dtype=np.int64)
    if dtype.is_integer and dtype.bits < 64:
        count = count % (int(dtype.max) + 1)
    return count.reshape(shape)


FILLS: Mapping[str, Fill] = {
    "random": _random,
    "zeros": _all(0.0),
    "ones": _all(1.0),
    "nan": _all(math.nan),
    "arange": _counting,
}
"""The words for the contents of an array."""
