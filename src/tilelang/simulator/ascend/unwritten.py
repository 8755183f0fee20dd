"""Numbers that nobody has written, in what a call gives.

What enters: a call in order, which does not look at accesses. What leaves: the same call, and what
it read that nobody had written. Memory is NaN in every float format before the first write, so such
a number mostly shows as NaN in the results; where there is one that the arguments had not, the call
is repeated with every access looked at, once for each program. Results that the call has made are
NaN before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tilelang.errors import Diagnostic
from tilelang.simulator.machine import Schedule
from tilelang.simulator.machine.schedule import Mode

KIND = "uninitialised"


class Unwritten:
    """Watches the calls of one program; `check` runs it with every access looked at."""

    def __init__(self, check: Callable[[Mapping[str, Any], Schedule], list[Diagnostic]]) -> None:
        self._check = check
        self._over = False

    def run(self, call: Callable[[], None], args: Mapping[str, Any]) -> list[Diagnostic]:
        """A call; what it read that nobody had written, if its results show that."""
        arrays: dict[str, npt.NDArray[Any]] = {
            k: v for k, v in args.items() if isinstance(v, np.ndarray)
        }
        if self._over or not any(map(_has_nan, arrays.values())):
            call()
            return []
        before = {k: v.copy() for k, v in arrays.items()}
        call()
        if not any(_more(v, before[k]) for k, v in arrays.items()):
            return []
        self._over = True
        again = self._check({**args, **before}, Schedule(Mode.IN_ORDER, 0))
        return [d for d in again if d.kind == KIND]


def _has_nan(x: npt.NDArray[Any]) -> bool:
    """Whether values of its type may be no number."""
    return x.dtype.kind in "fV"


def _more(after: npt.NDArray[Any], before: npt.NDArray[Any]) -> bool:
    """Whether there are NaNs that were not there; mostly there are none at all."""
    count = _nans(after)
    return count > 0 and count > _given(before)


def _given(x: npt.NDArray[Any]) -> int:
    """The NaNs that an argument had; all of them are those of a new result."""
    count = _nans(x)
    return 0 if count == x.size else count


def _nans(x: npt.NDArray[Any]) -> int:
    return int(np.count_nonzero(np.isnan(x))) if _has_nan(x) else 0
