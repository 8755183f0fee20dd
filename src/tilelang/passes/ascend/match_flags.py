"""The mode of every wait for a cross-core flag: that in which the flag is raised.

What enters: a function of the adapter dialect, whose waits name no mode. What leaves: the same with
the mode of each wait. A flag that is raised in two modes, or a wait whose flag is known only when
the kernel runs where modes differ, is refused.
"""

from __future__ import annotations

from tilelang.errors import TileError, error
from tilelang.ir.ascend import CrossSet, CrossWait
from tilelang.ir.expr import int_value
from tilelang.ir.node import Node
from tilelang.ir.tile import Function
from tilelang.isa.target import Target
from tilelang.scopes import Dialect


def match_flags(fn: Function, target: Target) -> Function:
    """The function with the modes of its waits."""
    del target
    sets = [n for n in fn.walk() if isinstance(n, CrossSet)]
    modes = {s.mode for s in sets}
    if fn.dialect != Dialect.ADAPTER.value or modes <= {2}:
        return fn
    by_flag: dict[int, set[int]] = {}
    for s in sets:
        number = int_value(s.id)
        if number is not None:
            by_flag.setdefault(number, set()).add(s.mode)

    def matched(n: Node) -> Node | None:
        if not isinstance(n, CrossWait):
            return None
        number = int_value(n.id)
        found = modes if number is None else by_flag.get(number, modes)
        if len(found) > 1:
            raise _unclear(n, found)
        return n.with_(mode=next(iter(found)))

    return fn.rewrite(matched)


def _unclear(wait: CrossWait, modes: set[int]) -> TileError:
    return error(
        "value",
        "a cross-core flag is raised in several modes, and this waits for it",
        wait.loc,
        expected="one mode for each flag, and a flag that is known when the kernel is compiled",
        got=f"modes {', '.join(map(str, sorted(modes)))}",
        help="use another flag for each mode",
    )
