"""What a simulated run has found.

What enters: faults, with the sites of the accesses that make them. What leaves: one located
`Diagnostic` for each pair of places in the author's program, the first time it is met.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilelang.errors import Diagnostic, Loc, raise_if_any

MOST = 20
"""Findings that are kept; a program with one fault can have it in every round of a loop."""


@dataclass(frozen=True)
class Site:
    """A place in the program that touches memory: the author's line, and what is done there.

    `what` completes "the program ...": "reads S", "a tensor copy writes A_shared".
    """

    loc: Loc | None
    what: str


class Report:
    """Findings of one run, and the table of sites that accesses name by number."""

    def __init__(self) -> None:
        self.findings: list[Diagnostic] = []
        self.sites: list[Site] = [Site(None, "what the host has written")]
        self._numbers: dict[Site, int] = {self.sites[0]: 0}
        self._seen: set[tuple[Any, ...]] = set()
        self.orders: set[tuple[int, int, int, str]] = set()
        """Where clocks are traced: the sites of two accesses in conflict, the path of the second,
        and what orders them.
        """

    def begin(self, sites: Sequence[Site]) -> None:
        """A program starts whose accesses name these sites by number, from 0 on."""
        self.sites = list(sites)
        self._numbers = {site: k for k, site in enumerate(sites)}

    def site(self, loc: Loc | None, what: str) -> int:
        """The number of a site, the same for the same place and words."""
        made = Site(loc, what)
        found = self._numbers.get(made)
        if found is None:
            found = self._numbers[made] = len(self.sites)
            self.sites.append(made)
        return found

    def add(self, kind: str, message: str, loc: Loc | None, **facts: Any) -> None:
        """Keep a finding, unless this kind was found at these places before."""
        related = tuple(at for at, _ in facts.get("related", ()))
        key = (kind, loc, related, message if not related else "")
        if key in self._seen or len(self.findings) >= MOST:
            return
        self._seen.add(key)
        self.findings.append(Diagnostic(kind, message, loc, **facts))

    def conflict(self, kind: str, now: int, before: int, text: str, help: str) -> None:  # noqa: A002 - the diagnostic's field
        """A finding about two accesses, by their sites: this one, and the one before it."""
        here, there = self.sites[now], self.sites[before]
        related = () if there.loc is None else ((there.loc, there.what),)
        self.add(kind, text, here.loc, label=here.what, related=related, help=help)

    def raise_findings(self) -> None:
        """Raise what was found as one exception, if anything was."""
        raise_if_any(self.findings)
