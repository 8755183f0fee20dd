"""Copies within one buffer: the elements read and the elements written.

What enters: a `Program`. What leaves: an error for a copy whose source and destination overlap
without being the same, whatever the inputs are: elements are copied in no order.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilelang.errors import Diagnostic
from tilelang.ir.expr import Region, int_value
from tilelang.ir.tile import Copy
from tilelang.passes.check.program import Program
from tilelang.passes.check.walk import Site


def copies_apart(program: Program) -> Iterator[Diagnostic]:
    """No copy reads elements that it writes, but for a copy onto itself."""
    for site in program.sites:
        if isinstance(site.stmt, Copy) and _overlaps(site, site.stmt.src, site.stmt.dst):
            name = site.stmt.dst.buffer.name
            yield Diagnostic(
                "race",
                f"T.copy between slices of {name} that overlap",
                site.stmt.loc,
                expected="a source and a destination without a common element",
                got="elements are copied in no order, so that some may be read after they are"
                " written",
                help="copy through another buffer",
            )


def _overlaps(site: Site, src: Region, dst: Region) -> bool:
    """Whether two regions certainly have common elements and are not the same."""
    if src.buffer != dst.buffer or not site.place.certain:
        return False
    env, moved = site.place.env, False
    for a, b, m, n in zip(src.mins, dst.mins, src.extents, dst.extents, strict=True):
        distance = env.linear(b).plus(env.linear(a), -1)
        before, after = int_value(m), int_value(n)
        if distance.terms or before is None or after is None:
            return False
        if not -after < distance.const < before:
            return False
        repeats = before == 1 and after > 1  # an element that it meets keeps its value
        moved = moved or (not repeats and (distance.const != 0 or before != after))
    return moved
