"""The text of a checked program: every access goes through the dynamic check.

What enters: the accesses that `access` and `tiles` would write plainly. What leaves: calls of a
`Checker`, and a shadow beside each array. The values are those of the plain program.
"""

from __future__ import annotations

from collections.abc import Callable

from tilelang.emulator import arithmetic, scalars, tiles
from tilelang.emulator.access import Place, index_text
from tilelang.emulator.lanes import nodes_of
from tilelang.emulator.unit import Unit
from tilelang.emulator.values import Storage, Val, value
from tilelang.ir import sync
from tilelang.ir.expr import BinaryOp, Buffer, Expr, Region
from tilelang.ir.node import Effect
from tilelang.ir.special import GemmBlockScaled, GemmSparse
from tilelang.ir.tile import Copy, Function, Gemm, Reduce, Stmt, TileOp, View

DIVISIONS = frozenset(
    {BinaryOp.FLOORDIV, BinaryOp.FLOORMOD, BinaryOp.TRUNCDIV, BinaryOp.TRUNCMOD, BinaryOp.DIV}
)

PRODUCTS = (Gemm, GemmSparse, GemmBlockScaled)
"""The operations that may ignore the old contents of their accumulator."""


def shadow_of(s: Storage) -> str:
    """The name of the shadow beside an array."""
    return shadow_name(s.name)


def shadow_name(array: str) -> str:
    """The name of the shadow beside an array of this name."""
    return f"_of_{array}"


def units(fn: Function) -> dict[str, int]:
    """For each buffer the size in bytes of the smallest element of any view of its storage."""
    roots: dict[str, str] = {}
    sizes: dict[str, int] = {}
    for node in nodes_of(fn):
        if isinstance(node, View):
            root = roots.get(node.source.name, node.source.name)
            roots[node.buffer.name] = root
            sizes[root] = min(sizes.get(root, 8), node.buffer.dtype.numpy.itemsize)
    return sizes


class Watched:
    """The checks of one translation; see `unit.Checks`."""

    def __init__(self, fn: Function) -> None:
        self._units = units(fn)

    def _unit(self, buffer: Buffer) -> int:
        size = buffer.dtype.numpy.itemsize
        return min(self._units.get(buffer.name, size), size)

    # -- buffers and lanes -------------------------------------------------------------------------

    def parameters(self, u: Unit, fn: Function) -> None:
        """Shadows of the arguments."""
        names = [p.buffer for p in fn.params if p.buffer is not None]
        arrays = ", ".join(f"{b.name!r}: {u.w.name(b.name)}" for b in names)
        outputs = {p.buffer.name for k in fn.outputs if (p := fn.params[k]).buffer is not None}
        sizes = {b.name: self._unit(b) for b in names}
        u.w.line(f"_shadows = machine.arguments({{{arrays}}}, {sizes!r}, {sorted(outputs)!r})")
        for b in names:
            u.w.line(f"{shadow_of(u.stores[b.name])} = _shadows.get({b.name!r})")

    def born(self, u: Unit, s: Storage, *, written: bool) -> None:
        """A shadow for new memory."""
        facts = f"{self._unit(s.buffer)}, {written}, {not s.on_chip}"
        u.w.line(f"{shadow_of(s)} = machine.checker.born({s.name}, {facts})")

    def viewed(self, u: Unit, s: Storage, source: Storage) -> None:
        """The shadow of a view."""
        u.w.line(f"{shadow_of(s)} = machine.checker.viewed({s.name}, {shadow_of(source)})")

    def forget(self, u: Unit, s: Storage) -> None:
        """A buffer whose contents are undefined from here on."""
        u.w.line(f"{shadow_of(s)}.forget()")

    def enter(self, u: Unit) -> str:
        """The current domain begins; the result is a name for the one before."""
        name = u.w.fresh("before")
        d = u.domain
        u.w.line(f"{name} = machine.checker.enter({d.shape}, {d.names!r}, {d.threads})")
        return name

    def leave(self, u: Unit, before: str) -> None:
        """The lanes of before."""
        u.w.line(f"machine.checker.leave({before})")

    # -- elements ----------------------------------------------------------------------------------

    def load(self, u: Unit, p: Place, access: str, *, atomic: bool) -> Val:
        """A load that looks at the bounds, at what has been written, and at who wrote it."""
        dtype = p.storage.buffer.dtype
        call = self._call(u, "load", p, f"{access}, {u.mask_text}, {atomic}")
        if p.axes:
            return u.bind(value(call, dtype, p.axes))
        # One element for the block; under a mask it comes as an array without axes.
        return u.bind(scalars.from_numpy(f"asarray({call})", dtype, value("", dtype)))

    def store(self, u: Unit, p: Place, v: Val, access: str, *, atomic: bool) -> None:
        """A store that records who wrote."""
        rest = f"{v.code}, {access}, {u.mask_text}, {atomic}"
        u.w.line(self._call(u, "store", p, rest))

    def atomic(self, u: Unit, p: Place, access: str) -> None:
        """Records an atomic update."""
        u.w.line(self._call(u, "atomic", p, f"{access}, {u.mask_text}"))

    def by_threads(self, u: Unit, p: Place, access: str) -> None:
        """A store by threads of what they computed from the old value."""
        team = ""
        if u.ways is not None and u.mask is None:
            team = f", {sum(u.ways.crew.sizes[k] for k in u.ways.team)}"
        u.w.line(self._call(u, "by_threads", p, f"{access}, {u.mask_text}{team}"))

    def reach(self, u: Unit, p: Place, access: str, count: int, *, write: bool) -> None:
        """A vector access."""
        u.w.line(self._call(u, "reach", p, f"{access}, {u.mask_text}, {count}, {write}"))

    def _call(self, u: Unit, method: str, p: Place, rest: str) -> str:
        return f"machine.checker.{method}({shadow_of(p.storage)}, {index_text(u, p)}, {rest})"

    def step(self, u: Unit) -> None:
        """A statement that all threads reach: the compiler may put a barrier before it."""
        if u.domain.threads and u.domain.rank and not u.branched:
            u.w.line("machine.checker.step()")

    def barrier(self, u: Unit) -> None:
        """All threads have met."""
        u.w.line("machine.checker.barrier()")

    # -- tiles -------------------------------------------------------------------------------------

    def tile_op(self, u: Unit, stmt: TileOp, tiles: dict[int, str], call: str) -> None:
        """The call of a tile operation, between what it reads and what it writes; `tiles` has the
        regions' texts.
        """
        pairs = {k: f"{t}, {shadow_of(u.storage(self._buffer(stmt, k)))}" for k, t in tiles.items()}
        if isinstance(stmt, Copy):
            u.w.line(call)
            u.w.line(f"machine.checker.tile_copy(({pairs[id(stmt.src)]}), ({pairs[id(stmt.dst)]}))")
            return
        for effect, node in stmt.effects():
            if id(node) not in tiles:
                continue
            if effect & Effect.ATOMIC:
                u.w.line(f"machine.checker.tile_update({pairs[id(node)]})")
            elif effect & Effect.READ:
                self._read(u, stmt, node is _overwritten(stmt), pairs[id(node)])
        u.w.line(call)
        for effect, node in stmt.effects():
            if id(node) in tiles and effect & Effect.WRITE and not effect & Effect.ATOMIC:
                u.w.line(f"machine.checker.tile_write({pairs[id(node)]})")

    def _read(self, u: Unit, stmt: TileOp, old: bool, pair: str) -> None:
        """What an operation reads; the `old` contents of its result it may ignore."""
        if old and isinstance(stmt, Reduce) and stmt.clear:
            return
        if old and isinstance(stmt, PRODUCTS):
            with u.w.block(f"if not {u.expr(stmt.clear_accum).text}:"):
                u.w.line(f"machine.checker.tile_read({pair})")
            return
        u.w.line(f"machine.checker.tile_read({pair})")

    def _buffer(self, stmt: TileOp, key: int) -> Buffer:
        for node in stmt.children():
            if id(node) == key:
                return node.buffer if isinstance(node, Region) else node  # pyright: ignore[reportReturnType]
        raise KeyError(key)

    def special(self, u: Unit, stmt: Stmt, translate: Callable[[], None]) -> None:
        """A statement with a translation of its own: the regions it reads and writes. What is
        asynchronous tells the check itself when it runs.
        """
        if type(stmt).__module__ == sync.__name__:
            translate()
            return
        self._regions(u, stmt, Effect.READ, "tile_read")
        translate()
        self._regions(u, stmt, Effect.WRITE, "tile_write")

    def _regions(self, u: Unit, stmt: Stmt, effect: Effect, method: str) -> None:
        for found, node in stmt.effects():
            if not isinstance(node, Region) or not found & effect:
                continue
            if not u.storage(node.buffer).lanes and not u.lanes.varies(node):
                u.begin(node)
                tile = tiles.operand(u, node)
                u.w.line(f"machine.checker.{method}({tile}, {shadow_of(u.storage(node.buffer))})")

    # -- values ------------------------------------------------------------------------------------

    def divisor(self, u: Unit, op: BinaryOp, a: Val, b: Val) -> None:
        """Look at `b` before it divides `a`."""
        lowest = int(a.dtype.min) if a.dtype.is_int else 0
        zero, minus = b.low <= 0 <= b.high, lowest < 0 and b.low <= -1 <= b.high and a.low == lowest
        if op not in DIVISIONS or not a.dtype.is_integer or not (zero or minus):
            return
        place = u.constant("loc", u.w.loc, u.w.loc)
        x, y = (arithmetic.wide(u, v) for v in (a, b))
        u.w.line(f"machine.checker.divisor({x.code}, {y.code}, {lowest}, {u.mask_text}, {place})")

    def assume(self, u: Unit, cond: Expr) -> None:
        """A fact that the author stated."""
        u.begin(cond)
        v = u.expr(cond)
        place = u.constant("loc", u.w.loc, u.w.loc)
        u.w.line(f"machine.checker.assume({v.code}, {u.mask_text}, {place})")


def _overwritten(stmt: TileOp) -> Region | None:
    """The region whose old contents an operation may ignore."""
    if isinstance(stmt, PRODUCTS):
        return stmt.c
    return stmt.dst if isinstance(stmt, Reduce) else None
