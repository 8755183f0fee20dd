"""Names that the common dialect and the Ascend adapter share: the kernel decides which is meant.

What enters: two functions of one name. What leaves: one that has the signature of the common
dialect's and, in a kernel that `T.Kernel(..., is_npu=True)` launches, calls the adapter's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

from tilelang.ir import build
from tilelang.language import adapter_ops, annotate, loops, tileops
from tilelang.scopes import Dialect

P = ParamSpec("P")
R = TypeVar("R")


def by_dialect(common: Callable[P, R], adapter: Callable[..., Any]) -> Callable[P, R]:
    """`common`, and in a kernel of the adapter dialect `adapter`."""

    @functools.wraps(common)
    def chosen(*args: Any, **kwargs: Any) -> Any:
        builder = build.current_or_none()
        in_adapter = builder is not None and builder.dialect == Dialect.ADAPTER.value
        return (adapter if in_adapter else common)(*args, **kwargs)

    return cast("Callable[P, R]", chosen)


copy = by_dialect(tileops.copy, adapter_ops.copy)
reduce_sum = by_dialect(tileops.reduce_sum, adapter_ops.reduce_sum)
reduce_max = by_dialect(tileops.reduce_max, adapter_ops.reduce_max)
reduce_min = by_dialect(tileops.reduce_min, adapter_ops.reduce_min)
Pipelined = by_dialect(loops.Pipelined, adapter_ops.Pipelined)
use_swizzle = by_dialect(annotate.use_swizzle, adapter_ops.use_swizzle)
