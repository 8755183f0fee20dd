"""Checks of a program before it runs, under the rules of its target.

What enters: a `Function` and a `Target`. What leaves: findings, the program staying as it is.
`RULES` is the whole list; each rule is a function of a `Program` (the function, its target, and
what all rules would work out again) that gives its findings.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilelang.errors import Diagnostic, Findings, Severity, raise_if_any
from tilelang.ir.tile import Function
from tilelang.isa.target import Chip, Target
from tilelang.passes.check import (
    accesses,
    capacity,
    cores,
    divergence,
    instructions,
    iterations,
    overlap,
    products,
    races,
    reducers,
    scopes,
    streams,
    targets,
)
from tilelang.passes.check.program import Program, Rule
from tilelang.passes.check.report import MemoryReport, report_of

__all__ = ["RULES", "MemoryReport", "check_function", "memory_report", "refuse"]

RULES: tuple[Rule, ...] = (
    targets.dialect_runs,
    targets.memories_exist,
    targets.launches_fit,
    instructions.instructions_exist,
    scopes.elements_reachable,
    scopes.operands_reachable,
    products.types_multiply,
    scopes.copies_reachable,
    scopes.local_not_spread,
    cores.flags_exist,
    cores.statements_have_cores,
    cores.addresses_fit,
    scopes.frees_once,
    capacity.memories_fit,
    capacity.tensor_memory_shapes,
    capacity.allocations_never_grow,
    divergence.all_threads_take_part,
    streams.streams_started,
    reducers.reducers_finalized,
    accesses.accesses_inside,
    overlap.copies_apart,
    iterations.between_iterations,
    iterations.between_threads,
    races.between_blocks,
)

_ORDER = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}


def check_function(fn: Function, target: Target, *, chips: Sequence[Chip] = ()) -> list[Diagnostic]:
    """All findings of `fn` under the rules of `target`, errors first, then by line.

    `chips` are named as alternatives in messages. The target must be resolved.
    """
    program = Program(fn, target, tuple(chips))
    found = Findings()
    for rule in RULES:
        for diagnostic in rule(program):
            found.add(diagnostic)
    return sorted(found.items, key=_rank)


def _rank(d: Diagnostic) -> tuple[int, int, int]:
    return _ORDER[d.severity], d.loc.line if d.loc else 0, d.loc.col if d.loc else 0


def refuse(fn: Function, target: Target, *, chips: Sequence[Chip] = ()) -> None:
    """Raise what makes the program wrong for all inputs, as one located error."""
    raise_if_any(check_function(fn, target, chips=chips))


def memory_report(fn: Function, target: Target) -> MemoryReport:
    """What each buffer takes of which memory of a target, which must be resolved."""
    return report_of(Program(fn, target))
