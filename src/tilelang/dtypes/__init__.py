"""Element types: their facts, promotion, conversion by value, storage of sub-byte types.

What enters: names of types, and NumPy arrays of their storage. What leaves: `DType`s, and arrays
converted by the rules of `tilelang.dtypes.cast`, the only conversion in the project.
"""

from tilelang.dtypes.convert import cast, converter
from tilelang.dtypes.encode import MODES
from tilelang.dtypes.promote import literal_dtype, promote
from tilelang.dtypes.storage import from_bits, pack, to_bits, unpack
from tilelang.dtypes.table import LANES, ROWS
from tilelang.dtypes.types import DType, dtype
from tilelang.dtypes.values import const_value, infinity, max_value, min_value, wrap_int

__all__ = [
    "LANES",
    "MODES",
    "ROWS",
    "DType",
    "cast",
    "const_value",
    "converter",
    "dtype",
    "from_bits",
    "infinity",
    "literal_dtype",
    "max_value",
    "min_value",
    "pack",
    "promote",
    "to_bits",
    "unpack",
    "wrap_int",
]
