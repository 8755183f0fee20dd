"""Products that the author issues and waits for: `T.wgmma_gemm` and `T.wait_wgmma`.

What enters: the statements of a part with `IssuedGemm`s, and those of them that wgmma does. What
leaves: `Completed` in the place of each wait, which gives back the registers of the products that
are then over. Products are over in the order in which they were issued (PTX ISA, section 9.7.15.7),
so a wait that leaves some under way leaves the newest. Where it cannot be told which these are, it
leaves none: to wait for more than the author asks for is right, too.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tilelang.ir.expr import Buffer
from tilelang.ir.sync import WaitWgmma
from tilelang.ir.tile import Block, Stmt
from tilelang.passes.build import map_bodies, whole
from tilelang.passes.issue import Completed, IssuedGemm
from tilelang.passes.lower_parallel import statements
from tilelang.passes.simt.launch import Threads


def explicit_waits(body: Block, groups: Collection[Stmt], t: Threads) -> Block:
    """The statements of a part without `WaitWgmma`; `groups` are the products that wgmma does."""
    issued = [s for s in statements(body) if isinstance(s, IssuedGemm)]
    under_way = [s for s in issued if s in groups]
    return _Waits(under_way, len(under_way) == len(issued), t).block(body)


class _Waits:
    """One part: its products under way, and whether all of the author's are."""

    def __init__(self, products: Sequence[IssuedGemm], known: bool, t: Threads) -> None:
        self.products, self.known, self.t = products, known, t
        self.fragments = dict.fromkeys(b for s in products for b in self.registers(s))
        tiles = {r.buffer.name: r.buffer for s in products for r in (s.a, s.b)}
        self.tiles = tuple(whole(b) for b in tiles.values() if not t.is_fragment(b))

    def registers(self, stmt: IssuedGemm) -> tuple[Buffer, ...]:
        """The fragments that a product uses."""
        a = stmt.a.buffer
        return (stmt.c.buffer, a) if self.t.is_fragment(a) else (stmt.c.buffer,)

    def block(self, body: Block) -> Block:
        """Statements with waits for what they say."""
        out: list[Stmt] = []
        for k, stmt in enumerate(body):
            if not isinstance(stmt, WaitWgmma):
                out.append(map_bodies(stmt, self.block))
            elif self.products:
                out.append(self.wait(stmt, body[:k]))
        return tuple(out)

    def wait(self, stmt: WaitWgmma, before: Block) -> Stmt:
        """A wait; the products `before` it in its block are the newest ones."""
        newest: list[IssuedGemm] = []
        for s in reversed(before if self.known else ()):
            if len(newest) == stmt.count:
                break
            inside = [x for x in statements((s,)) if isinstance(x, IssuedGemm)]
            if inside and not isinstance(s, IssuedGemm):
                break
            newest += inside
        count = stmt.count if len(newest) == stmt.count else 0
        flying = {b.name for s in newest if count for b in self.registers(s)}
        over = tuple(b for b in self.fragments if b.name not in flying)
        return Completed(count, over, self.tiles, loc=stmt.loc)
