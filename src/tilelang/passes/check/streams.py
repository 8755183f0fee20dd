"""Whether the random numbers of a thread have a beginning.

What enters: a `Program`. What leaves: an error for a draw that no T.rng_init of its launch comes
before, since a stream belongs to the threads of one launch.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilelang.errors import Diagnostic
from tilelang.ir.special import RngInit, RngNext
from tilelang.ir.tile import Launch
from tilelang.passes.check.program import Program


def streams_started(program: Program) -> Iterator[Diagnostic]:
    """Every draw is written after a T.rng_init in the same launch."""
    started = False
    for site in program.sites:
        if isinstance(site.stmt, Launch):
            started = False
        elif isinstance(site.stmt, RngInit):
            started = True
        elif isinstance(site.stmt, RngNext) and not started:
            yield Diagnostic(
                "uninitialised",
                "a random number is drawn from a stream that has no beginning",
                site.stmt.loc,
                expected="T.rng_init(seed) before it, in the same launch",
                got="no T.rng_init",
                help="call T.rng_init(seed) at the start of the kernel",
            )
