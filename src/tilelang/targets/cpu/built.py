"""What the code generator gives for a program: plain data, so that who only loads code that was
made before needs nothing else of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilelang.dtypes import DType
from tilelang.errors import Loc


@dataclass(frozen=True)
class Failure:
    """What an assertion says when it does not hold; the kind is that of `Assert`."""

    message: str
    loc: Loc | None
    kind: str = ""


@dataclass(frozen=True)
class Printed:
    """What one print statement prints: `buffer` is empty for a value, `dtype` for a message."""

    message: str
    dtype: str = ""
    buffer: str = ""


@dataclass(frozen=True)
class Built:
    """The text of a module, and what its numbers mean.

    `failures[n - 1]` is what status `n` says, `prints[n]` what print `n` prints. `slots` are the
    parameters and sizes in the order of `run`'s arguments, with the dtype of a scalar and None for
    an address. `vectorise` says that loops are left to LLVM's vectoriser.
    """

    text: str
    failures: tuple[Failure, ...]
    prints: tuple[Printed, ...]
    slots: tuple[tuple[str, DType | None], ...]
    vectorise: bool = False
