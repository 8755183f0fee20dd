"""All targets that are built in: one folder each, gathered here and nowhere else.

What enters: the `CHIPS` of each target folder. What leaves: `CHIPS` with all of them, and
`target()`, which reads a `target=` argument with that list.
"""

from __future__ import annotations

from tilelang.isa.target import Chip, Target, TargetLike, parse_target
from tilelang.targets import ascend, cpu, cuda

CHIPS: tuple[Chip, ...] = (*cuda.CHIPS, *ascend.CHIPS, *cpu.CHIPS)


def target(spec: TargetLike = "auto") -> Target:
    """The target that `spec` names; see `parse_target` for the forms and the errors."""
    return parse_target(spec, CHIPS)
