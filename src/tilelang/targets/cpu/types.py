"""How values and memory of each dtype look to LLVM.

What enters: a `DType`. What leaves: the LLVM type of a value in a register and of an element in
memory. Floats other than float32 and float64 are the integers that hold their bits, so that LLVM
neither computes in them nor changes a NaN that is only moved. An element of fewer than 8 bits takes
a byte, its bits at the bottom and zeros above, as NumPy's storage of the project has it.
"""

from __future__ import annotations

from tilelang.dtypes import DType
from tilelang.targets.cpu.text import vector

_NATIVE = {"float32": "float", "tfloat32": "float", "float64": "double"}


def element_type(dtype: DType) -> str:
    """One element in memory: a bool is a byte, a handle 64 bits."""
    scalar = dtype.base
    return _NATIVE.get(scalar.name, f"i{8 * scalar.numpy.itemsize}")


def value_type(dtype: DType) -> str:
    """A value, of `dtype.lanes` lanes; bools are single bits."""
    scalar = "i1" if dtype.base.is_bool else element_type(dtype)
    return vector(scalar, dtype.lanes)
