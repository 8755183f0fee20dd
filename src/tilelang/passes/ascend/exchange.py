"""Reads of a workspace that stand before the write that they are for: they come behind it.

What enters: the body of a launch of the adapter's dialect whose cores are ordered automatically.
What leaves: the same, in which what a core reads of a workspace that the other kind of core writes
later stands behind that write. As in the adapter tree, a workspace is a buffer in global memory
whose name says so, and its n-th use on one kind of core in a block is for the n-th on the other.
The order of each core's own statements stays. Where nothing was written before, or only by the
reader, and the uses do not answer each other so, the program is refused: no flags would give it a
meaning. All else has the order of the program.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tilelang.errors import TileError, error
from tilelang.ir.ascend import Core
from tilelang.ir.tile import Block, Stmt
from tilelang.passes.ascend.effects import Access, Effects, conflict
from tilelang.passes.ascend.schedule import gives, is_fence, uses
from tilelang.passes.build import map_bodies
from tilelang.scopes import Memory

WORKSPACE = "workspace"
"""What the name of a buffer contains that the adapter tree orders the cores for."""

Writers = Mapping[str, Core]
"""Which kind of core wrote each workspace last."""


@dataclass(frozen=True)
class _Use:
    """What a statement does to a workspace first, or all that it does if it is `plain`: one kind of
    core reads it, or writes it.
    """

    at: int
    core: Core
    writes: bool
    plain: bool


class Exchange:
    """The exchanges of one launch; `made` are the buffers of passes, which have flags of their
    own.
    """

    def __init__(self, effects: Effects, made: frozenset[str]) -> None:
        self.effects = effects
        self.made = made

    def block(self, body: Block, last: Writers) -> Block:
        """A block, and those inside it, with reads behind the writes that they are for."""
        now = dict(last)
        out: list[Stmt] = []
        early: dict[str, int] = {}
        touched = [list(self.effects.inside(s)) for s in body]
        for k, stmt in enumerate(body):
            before = dict(now)
            out.append(map_bodies(stmt, lambda inner, w=before: self.block(inner, w)))
            for use in self._uses(touched, k):
                name, first = use
                if self._is_early(name, first, before, touched):
                    early.setdefault(name, k)
            now |= {a.root.name: a.by.core for a in touched[k] if a.writes}
        return self._ordered(out, touched, early) if early else tuple(out)

    def _uses(self, touched: Sequence[Sequence[Access]], k: int) -> list[tuple[str, _Use]]:
        """The workspaces that a statement touches."""
        found: dict[str, list[Access]] = {}
        for a in touched[k]:
            name = a.root.name
            if a.memory is Memory.GLOBAL and WORKSPACE in name and name not in self.made:
                found.setdefault(name, []).append(a)
        return [
            (
                name,
                _Use(
                    k,
                    each[0].by.core,
                    each[0].writes,
                    len({(a.by.core, a.writes) for a in each}) == 1,
                ),
            )
            for name, each in found.items()
        ]

    @staticmethod
    def _is_early(name: str, use: _Use, last: Writers, touched: Sequence[Sequence[Access]]) -> bool:
        """Whether a read has nothing of the other kind of core to read, which writes later."""
        if use.writes or last.get(name, use.core) is not use.core:
            return False
        later = (a for each in touched[use.at + 1 :] for a in each)
        return any(a.writes and a.root.name == name and a.by.core is not use.core for a in later)

    # Another order -------------------------------------------------------------------------------

    def _ordered(
        self, body: list[Stmt], touched: Sequence[Sequence[Access]], early: Mapping[str, int]
    ) -> Block:
        """The block with the early reads of workspaces behind what they are for."""
        names = dict.fromkeys(n for k in range(len(body)) for n, _ in self._uses(touched, k))
        found = {n: self._pairs(n, touched) for n in names}
        for name, at in early.items():
            if found[name] is None:
                raise _refused(
                    body[at], name, "the n-th use by the one does not answer the n-th by the other"
                )
        paired = {n: pairs for n, pairs in found.items() if pairs is not None}
        after = self._kept(body, touched, paired)
        for name, pairs in paired.items():
            for n, (write, read) in enumerate(pairs):
                after[read].add(write)
                for later, _ in pairs[n + 1 :]:
                    if _meet(touched[read], touched[later], name):
                        after[later].add(read)
        order: list[int] = []
        while len(order) < len(body):
            left = (k for k in range(len(body)) if k not in order and after[k] <= set(order))
            found = next(left, None)
            if found is None:
                name, at = next(iter(early.items()))
                raise _refused(body[at], name, "each waits for what the other gives later")
            order.append(found)
        return tuple(body[k] for k in order)

    def _pairs(
        self, name: str, touched: Sequence[Sequence[Access]]
    ) -> list[tuple[int, int]] | None:
        """The n-th use of a workspace by one kind of core with the n-th by the other: write, then
        read. None where they do not answer each other.
        """
        found = (u for k in range(len(touched)) for n, u in self._uses(touched, k) if n == name)
        lists: dict[Core, list[_Use]] = {core: [] for core in Core}
        for use in found:
            if not use.plain:
                return None
            lists[use.core].append(use)
        cube, vector = lists.values()
        if [u.writes for u in cube] != [not u.writes for u in vector]:
            return None
        each = zip(cube, vector, strict=True)
        return [(a.at, b.at) if a.writes else (b.at, a.at) for a, b in each]

    def _kept(
        self, body: Sequence[Stmt], touched: Sequence[Sequence[Access]], paired: Collection[str]
    ) -> list[set[int]]:
        """For each statement those before it that stay so, but for the uses of `paired`."""
        cores = [{a.by.core for a in each} for each in touched]
        kept: list[set[int]] = []
        for j, stmt in enumerate(body):
            kept.append(set())
            for i, other in enumerate(body[:j]):
                names = gives(other) & uses(stmt) or gives(stmt) & uses(other)
                fenced = is_fence(stmt) or is_fence(other)
                clash = any(
                    p.root.name not in paired and conflict(p, q)
                    for p in touched[i]
                    for q in touched[j]
                )
                if cores[i] & cores[j] or names or fenced or clash:
                    kept[j].add(i)
        return kept


def _meet(some: Sequence[Access], others: Sequence[Access], name: str) -> bool:
    mine = [a for a in some if a.root.name == name]
    return any(conflict(p, q) for p in mine for q in others)


def _refused(stmt: Stmt, name: str, why: str) -> TileError:
    return error(
        "scope",
        f"this reads {name} before the other kind of core writes it, and no order of the statements"
        f" gives it what it is for: {why}",
        stmt.loc,
        expected="a read behind the write that it is for, or as many uses on both kinds of core,"
        " each read for one write",
        help="write the statement that fills the workspace first, or order the cores with"
        " T.set_cross_flag and T.wait_cross_flag",
    )
