"""What the dynamic check says of races inside a block, in words.

What enters: the access at which a race was seen, and an example. What leaves: a finding.
"""

from __future__ import annotations

from tilelang.emulator.storage import Access
from tilelang.errors import Diagnostic, warning


def of_lanes(access: Access, what: str, got: str, *, threads: bool) -> Diagnostic:
    """Iterations of T.Parallel, or threads, that touch one element with no order between them."""
    who = "threads" if threads else "iterations of T.Parallel"
    return warning(
        "race",
        f"a race between {who} on {access.buffer.name}:"
        f" {what.replace('iteration', 'thread') if threads else what}",
        access.loc,
        expected="a barrier between the accesses, or an atomic operation"
        if threads
        else "elements that one iteration stores are touched by no other",
        got=got,
        help="write into another buffer, or split the loop in two",
    )


def of_warps(access: Access, what: str, got: str) -> Diagnostic:
    """Warps that touch one element on chip where no barrier can stand between them."""
    return warning(
        "race",
        f"a race between warps on {access.buffer.name}: {what.replace('iteration', 'warp')}",
        access.loc,
        expected="a barrier between the accesses",
        got=got,
        notes=("no barrier can stand inside of a statement, or of a branch of some threads",),
        help="read into a name first, in a statement that all threads reach",
    )


def of_bytes(access: Access, between: str, element: str) -> Diagnostic:
    """Threads or blocks that store different elements of one byte."""
    dtype = access.buffer.dtype
    return warning(
        "race",
        f"two {between} store into one byte of {access.buffer.name}",
        access.loc,
        expected="each byte stored by one of them",
        got=element,
        notes=(f"a byte holds {8 // dtype.bits} elements of {dtype}",),
        help="let one store whole bytes, or use T.Parallel, which sees to it",
    )


def of_copy(access: Access, where: str) -> Diagnostic:
    """A copy that reads elements which it writes."""
    return warning(
        "race",
        f"T.copy between slices of {access.buffer.name} that overlap",
        access.loc,
        expected="a source and a destination without a common element",
        got=f"common elements in {where}",
        help="copy through another buffer",
    )
