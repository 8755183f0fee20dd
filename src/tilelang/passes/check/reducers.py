"""Whether what threads contribute to a reducer comes out.

What enters: a `Program`. What leaves: an error for a reducer that is opened and never finalized,
since its contributions are lost.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilelang.errors import Diagnostic
from tilelang.ir.special import ReducerFinalize, ReducerInit
from tilelang.passes.check.program import Program


def reducers_finalized(program: Program) -> Iterator[Diagnostic]:
    """Every T.reducer_init has its T.finalize_reducer."""
    stmts = [site.stmt for site in program.sites]
    closed = {s.reducer for s in stmts if isinstance(s, ReducerFinalize)}
    for stmt in stmts:
        if isinstance(stmt, ReducerInit) and stmt.reducer not in closed:
            yield Diagnostic(
                "syntax",
                f"the reducer {stmt.reducer.name} is never finalized",
                stmt.loc,
                expected=f"T.finalize_reducer({stmt.reducer.name}, dst) after its updates",
                got="contributions that nothing reads",
                help="take the reducer out if its result is not needed",
            )
