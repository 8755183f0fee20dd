"""What the model of an Ascend core says of flags: located findings.

What enters: a flag, and where it was raised or waited for. What leaves: entries of a report.
"""

from __future__ import annotations

from tilelang.errors import Loc
from tilelang.simulator.machine import Report


def flag_name(src: str, dst: str, number: int) -> str:
    """An event of two pipes."""
    return f"event {number} from {src} to {dst}"


def leftover(report: Report, core: str, name: str, loc: Loc | None) -> None:
    """A flag is raised when the kernel ends."""
    report.add(
        "leak",
        f"{name} is raised and never waited for",
        loc,
        label=f"raised here by {core}",
        help="wait for it, or do not raise it: the next kernel would find it raised",
    )


def never_raised(report: Report, core: str, name: str, loc: Loc | None) -> None:
    """A wait has no flag to take."""
    report.add(
        "deadlock",
        f"{name} is waited for more often than it is raised",
        loc,
        label=f"waited for here by {core}",
        help="raise it before, with the same pipes and the same number",
    )
