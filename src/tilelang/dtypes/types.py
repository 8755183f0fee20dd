"""`DType`, the element type of every buffer and expression.

What enters: any spelling of a type (a name, a Python, NumPy, ml_dtypes or torch type). What leaves:
one interned, immutable `DType`, a string equal to its canonical name, with the facts of its row.
"""

from __future__ import annotations

import difflib
import importlib
from functools import cache
from typing import Any, Final, NoReturn, Self, cast

import ml_dtypes
import numpy as np

from tilelang.dtypes.table import ALIASES, LANES, REGISTER_LANES, ROWS, Kind, Row


class DType(str):
    """An element type: a `str` equal to its canonical name, `"float16"` or `"float16x2"`.

    `DType(x)` takes a name or alias, a Python type (`float` is float32, `int` is int32), a NumPy or
    ml_dtypes type, or a torch dtype. Two types of one name are one object. A vector type
    (`<scalar>x<lanes>`) has the facts of its scalar type; only `bytes` counts its lanes.

    Raises ValueError for an unknown name, TypeError for anything that names no element type.
    """

    __slots__ = ("_row", "lanes")

    _row: Row
    lanes: int
    """How many scalars one element holds."""

    def __new__(cls, value: object) -> Self:
        """The one object of the type that `value` names."""
        return cast(Self, _intern(cls, canonical_name(value)))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a dtype is immutable: cannot set {name!r} of {self}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a dtype is immutable: cannot delete {name!r} of {self}")

    def __repr__(self) -> str:
        return f"dtype({self.name!r})"

    def __reduce__(self) -> tuple[type[DType], tuple[str]]:
        return type(self), (self.name,)

    @property
    def name(self) -> str:
        """The canonical name, as a plain string."""
        return str.__str__(self)

    @property
    def base(self) -> Self:
        """The scalar type of a vector; a scalar type is its own."""
        return self if self.lanes == 1 else type(self)(self._row.name)

    def with_lanes(self, lanes: int) -> Self:
        """The vector of `lanes` such scalars; 1 gives the scalar type. ValueError for others."""
        return type(self)(self._row.name if lanes == 1 else f"{self._row.name}x{lanes}")

    @property
    def kind(self) -> Kind:
        """One of float, int (signed), uint, bool, handle (a 64-bit pointer)."""
        return self._row.kind

    @property
    def bits(self) -> int:
        """The bits of one lane in memory."""
        return self._row.bits

    @property
    def bytes(self) -> int:
        """The bytes of one element (all lanes) in memory, rounded up."""
        return (self.lanes * self.bits + 7) // 8

    @property
    def itemsize(self) -> int:
        """`bytes`, by NumPy's name."""
        return self.bytes

    @property
    def row(self) -> Row:
        """The facts of the scalar type, with those of its code words."""
        return self._row

    @property
    def exponent_bits(self) -> int:
        """Exponent bits of a float; 0 for other kinds."""
        return self._row.exponent_bits

    @property
    def mantissa_bits(self) -> int:
        """Mantissa bits of a float, without the hidden one; 0 for other kinds."""
        return self._row.mantissa_bits

    @property
    def bias(self) -> int:
        """The exponent bias of a float; 0 for other kinds."""
        return self._row.bias

    @property
    def has_inf(self) -> bool:
        """Whether the type has infinities."""
        return self.is_float and self._row.inf_word is not None

    @property
    def has_nan(self) -> bool:
        """Whether the type has a NaN."""
        return self.is_float and self._row.nan_word is not None

    @property
    def max(self) -> int | float:
        """The largest finite value. TypeError for a handle."""
        return self._extreme(largest=True)

    @property
    def min(self) -> int | float:
        """The lowest finite value; of float8_e8m0fnu, which has no sign, 2**-127."""
        return self._extreme(largest=False)

    def _extreme(self, largest: bool) -> int | float:
        match self.kind:
            case "float":
                return self._row.decode(self._row.max_word if largest else self._lowest_word)
            case "int":
                return (1 << (self.bits - 1)) - 1 if largest else -(1 << (self.bits - 1))
            case "uint":
                return (1 << self.bits) - 1 if largest else 0
            case "bool":
                return int(largest)
            case "handle":
                raise TypeError("a handle has no largest or lowest value")

    @property
    def _lowest_word(self) -> int:
        return self._row.max_word | self._row.sign_word if self._row.has_sign else 0

    @property
    def smallest_normal(self) -> float:
        """The smallest positive normal number of a float type."""
        return self._positive(1 << self.mantissa_bits if self._row.has_sign else 0)

    @property
    def smallest_subnormal(self) -> float:
        """The smallest positive number of a float type."""
        return self._positive(1 if self._row.has_sign else 0)

    @property
    def eps(self) -> float:
        """The distance from 1 to the next larger number of a float type."""
        one = self.bias << self.mantissa_bits
        return self._positive(one + 1) - self._positive(one)

    def _positive(self, word: int) -> float:
        if not self.is_float:
            raise TypeError(f"{self} is not a float type")
        return self._row.decode(word)

    @property
    def is_float(self) -> bool:
        """A float of any format."""
        return self.kind == "float"

    @property
    def is_int(self) -> bool:
        """A signed integer."""
        return self.kind == "int"

    @property
    def is_uint(self) -> bool:
        """An unsigned integer; bool is not one."""
        return self.kind == "uint"

    @property
    def is_integer(self) -> bool:
        """A signed or unsigned integer; bool is not one."""
        return self.kind in ("int", "uint")

    @property
    def is_bool(self) -> bool:
        """Truth values."""
        return self.kind == "bool"

    @property
    def is_handle(self) -> bool:
        """A pointer."""
        return self.kind == "handle"

    @property
    def is_signed(self) -> bool:
        """Whether the type has negative values."""
        return self.is_int or (self.is_float and self._row.has_sign)

    @property
    def is_scalar(self) -> bool:
        """One lane."""
        return self.lanes == 1

    @property
    def is_vector(self) -> bool:
        """More than one lane."""
        return self.lanes > 1

    @property
    def is_subbyte(self) -> bool:
        """Whether a lane is smaller than a byte, so that a store is a read-modify-write."""
        return self.bits < 8

    @property
    def is_narrow_float(self) -> bool:
        """A float of at most 8 bits: a conversion to it saturates unless told not to."""
        return self.is_float and self.bits <= 8

    @property
    def is_float8(self) -> bool:
        """One of the 8-bit floats, float8_e8m0fnu among them."""
        return self._row.name.startswith("float8_")

    @property
    def is_float6(self) -> bool:
        """One of the 6-bit floats."""
        return self._row.name.startswith("float6_")

    def is_float4(self) -> bool:
        """fp4, packed or one to a byte. A method, as in TileLang."""
        return self._row.name.startswith("float4_")

    def is_float4_e2m1fn(self) -> bool:
        """fp4 packed two to a byte. A method, as in TileLang."""
        return self._row.name == "float4_e2m1fn"

    def is_float4_e2m1_unpacked(self) -> bool:
        """fp4 one to a byte. A method, as in TileLang."""
        return self._row.name == "float4_e2m1_unpacked"

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy type of one lane of an array: one element to a slot, of sub-byte types also."""
        return self._row.numpy

    @property
    def torch_name(self) -> str | None:
        """The attribute of `torch` that names the storage; None if torch has none.

        float4 is stored in pairs, other types of fewer than 8 bits packed in plain bytes.
        """
        if self.is_vector and not (self.is_float4_e2m1fn() and self.lanes == 2):
            return None
        return self._row.torch

    def as_torch(self) -> Any:
        """The torch dtype of the storage. TypeError if torch, or the one installed, has none."""
        torch = importlib.import_module("torch")
        found = getattr(torch, self.torch_name, None) if self.torch_name else None
        if found is None:
            raise TypeError(f"torch {torch.__version__} has no dtype for {self}")
        return found

    @property
    def c_name(self) -> str | None:
        """The CUDA C type of a scalar; None if CUDA has none, or for a vector."""
        return None if self.is_vector else self._row.c

    @property
    def llvm_name(self) -> str:
        """The LLVM type of the storage; sub-byte vectors are vectors of bytes."""
        if self.is_scalar:
            return self._row.llvm
        count = self.bytes if self.is_subbyte else self.lanes
        return f"<{count} x {self._row.llvm}>"


@cache
def _intern(cls: type[DType], name: str) -> DType:
    base, lanes = _split(name)
    self = str.__new__(cls, name)
    object.__setattr__(self, "_row", ROWS[base])
    object.__setattr__(self, "lanes", lanes)
    return self


def _split(name: str) -> tuple[str, int]:
    """A canonical name as (scalar name, lanes)."""
    base, _, lanes = name.rpartition("x")
    return (base, int(lanes)) if lanes.isdecimal() and base in ROWS else (name, 1)


_PYTHON: Final[dict[object, str]] = {float: "float32", int: "int32", bool: "bool"}


def _numpy_names() -> dict[object, str]:
    names: dict[object, str] = {}
    for code in "bhilqBHILQ":  # C's integer types: two of them may be one NumPy dtype
        names[np.dtype(code).type] = np.dtype(code).name
    for row in ROWS.values():
        if row.kind != "handle":
            names.setdefault(row.numpy, row.name)
            names.setdefault(row.numpy.type, row.name)
    return names


_NUMPY: Final = _numpy_names()


def canonical_name(value: object) -> str:
    """The canonical name of the element type that `value` names. Errors as of `DType`."""
    if isinstance(value, DType):
        return value.name
    if isinstance(value, str):
        return _name_of_text(value)
    if type(value).__module__ == "torch":
        text = str(value).removeprefix("torch.").replace("_x2", "x2")
        if text in ROWS or _split(text)[1] == 2:
            return text
    else:
        try:
            found = _PYTHON.get(value) or _NUMPY.get(value)
        except TypeError:  # not hashable
            found = None
        if found is not None:
            return found
    raise TypeError(_refusal(value))


def _name_of_text(text: str) -> str:
    name = ALIASES.get(text, text)
    base, lanes = _split(name)
    vector = lanes in LANES or lanes in REGISTER_LANES
    if name in ROWS or (vector and name == f"{base}x{lanes}" and base != "handle"):
        return name
    if base in ROWS:
        counts = ", ".join(map(str, LANES))
        raise ValueError(f"unknown dtype {text!r}; the lanes of a vector are one of {counts}")
    near = difflib.get_close_matches(text, [*ROWS, *ALIASES], n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"expected one of {', '.join(ROWS)}"
    raise ValueError(f"unknown dtype {text!r}; {hint}")


def _refusal(value: object) -> str:
    if value in (ml_dtypes.float8_e4m3, np.dtype(ml_dtypes.float8_e4m3)):
        return (
            "ml_dtypes.float8_e4m3 is the IEEE-like format that ends at 240, which no target has;"
            " TileLang's float8_e4m3 is e4m3fn: store it as ml_dtypes.float8_e4m3fn"
        )
    return (
        f"{value!r} is no element type; expected a name such as 'float16', a Python type (float,"
        " int, bool), or a dtype of NumPy, ml_dtypes or torch"
    )


def dtype(value: object) -> DType:
    """The `DType` that `value` names (see `DType`); a `DType` passes as it is."""
    return value if isinstance(value, DType) else DType(value)
