"""What is done automatically for a kernel of Ascend cores.

What enters: the settings of a compilation. What leaves: their names in the attribute `automatic` of
a function, where the passes look.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

from tilelang.ir.tile import Function
from tilelang.options import Options
from tilelang.scopes import Dialect

ATTRIBUTE = "automatic"


class Automatic(enum.Enum):
    """What the compiler may add to an author's kernel."""

    SYNC = "order the pipes of a core"
    MEMORY = "let buffers share bytes"
    CORES = "split statements over the two kinds of core"
    CROSS_SYNC = "order cube and vector cores"


def configured(fn: Function, options: Options) -> Function:
    """A function for which all is done that the settings ask for, in its dialect."""
    if fn.dialect == Dialect.ASCEND.value:
        return with_automatic(fn, Automatic if options.enable_auto_schedule else ())
    return with_automatic(fn, asked(options))


def asked(options: Options) -> tuple[Automatic, ...]:
    """What the settings of the adapter tree switch on."""
    switches = {
        Automatic.SYNC: options.ascend_auto_sync,
        Automatic.MEMORY: options.ascend_memory_planning,
        Automatic.CORES: options.ascend_auto_cv_combine,
        Automatic.CROSS_SYNC: options.ascend_auto_cross_core_sync,
    }
    return tuple(what for what, on in switches.items() if on)


def with_automatic(fn: Function, what: Iterable[Automatic]) -> Function:
    """A function for which all of this is done."""
    rest = tuple((k, v) for k, v in fn.attrs if k != ATTRIBUTE)
    return fn.with_(attrs=(*rest, (ATTRIBUTE, tuple(w.name.lower() for w in what))))


def orders_products(fn: Function) -> bool:
    """Whether a product from L1 itself waits for the copies into L1 and the drain of L0C before it,
    and holds up those after it, as `gemm_v0` does for a kernel with the author's flags.
    """
    return fn.dialect == Dialect.ADAPTER.value and not is_automatic(fn, Automatic.SYNC)


def is_automatic(fn: Function, what: Automatic) -> bool:
    """Whether something is done for a function."""
    return what.name.lower() in dict(fn.attrs).get(ATTRIBUTE, ())
