"""Which values differ between lanes: a fixpoint over the statements of a domain.

What enters: statements, the names that differ from lane to lane to begin with (thread indices, or
the variables of a T.Parallel), and the buffers of which every lane may have its own. What leaves:
the names and buffers that a lane-dependent value reaches, and the loops that some lanes leave
before others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from tilelang.ir.expr import Buffer, Expr, Load, LoadVector, Region, Var
from tilelang.ir.node import Effect, Node
from tilelang.ir.special import Collective, RngNext, TestElements
from tilelang.ir.sync import ClcQuery, WarpSpecialize
from tilelang.ir.tile import (
    Alloc,
    Atomic,
    Block,
    Break,
    Continue,
    For,
    If,
    Let,
    Parallel,
    Pipelined,
    Stmt,
    Store,
    StoreVector,
    ThreadReturn,
    TileOp,
    View,
    While,
)

Loop = For | Pipelined | While


def nodes_of(*roots: Node) -> Iterator[Node]:
    """Every node at or below the roots, each once, however often it is shared."""
    seen: set[int] = set()
    stack: list[Node] = list(reversed(roots))
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        stack.extend(reversed(list(node.children())))


def bodies(stmt: Stmt) -> tuple[Block, ...]:
    """The statements inside a statement."""
    match stmt:
        case If():
            return (stmt.then, stmt.orelse)
        case For() | Pipelined() | While() | Parallel() | WarpSpecialize():
            return (stmt.body,)
        case _:
            return ()


def statements(body: Block) -> Iterator[Stmt]:
    """Every statement at any depth, in program order."""
    for stmt in body:
        yield stmt
        for inner in bodies(stmt):
            yield from statements(inner)


def own_nodes(stmt: Stmt) -> Iterator[Node]:
    """The nodes of a statement's own expressions and regions, without the statements inside it."""
    inner = {id(s) for block in bodies(stmt) for s in block}
    return nodes_of(*(n for n in stmt.children() if id(n) not in inner))


def written(stmt: Stmt) -> Iterator[Buffer]:
    """The buffers that a statement itself writes."""
    for effect, node in stmt.effects():
        if effect & Effect.WRITE:
            yield node.buffer if isinstance(node, Region) else node  # pyright: ignore[reportReturnType]


def roots_of(body: Block) -> dict[str, str]:
    """For every view, the buffer whose storage it shares."""
    roots: dict[str, str] = {}
    for stmt in statements(body):
        if isinstance(stmt, View):
            roots[stmt.buffer.name] = roots.get(stmt.source.name, stmt.source.name)
    return roots


class Lanes:
    """The result for one domain; `private` says of which buffers every lane may have its own.

    `parted` are the conditions that lanes do not decide differently once agents have parted ways:
    by the identity of the `If`, what is left to decide (None: nothing).
    """

    def __init__(
        self,
        body: Block,
        seeds: Iterable[str],
        private: Callable[[Buffer], bool],
        roots: dict[str, str],
        parted: Mapping[int, Expr | None] | None = None,
    ) -> None:
        self.names: set[str] = set(seeds)
        self.buffers: set[str] = set()
        self._private = private
        self._roots = roots
        self._parted = parted or {}
        self._many = bool(self.names)
        if not self._many:
            return
        while True:
            before = len(self.names), len(self.buffers)
            self._block(body, self.leaves_early(body)[1])
            if before == (len(self.names), len(self.buffers)):
                return

    def root(self, name: str) -> str:
        """The buffer whose storage the buffer of this name shares."""
        return self._roots.get(name, name)

    def per_lane(self, buffer: Buffer) -> bool:
        """Whether every lane has a buffer of its own."""
        return self.root(buffer.name) in self.buffers

    def varies(self, *nodes: Node | None) -> bool:
        """Whether a value, or the place of a region, differs between lanes."""
        for node in nodes_of(*(n for n in nodes if n is not None)):
            if isinstance(node, Var) and node.name in self.names:
                return True
            if isinstance(node, (Load, LoadVector, Region)) and self.per_lane(node.buffer):
                return True
        return False

    def splits(self, stmt: If) -> bool:
        """Whether lanes that run together may decide a condition differently."""
        cond = self._parted.get(id(stmt), stmt.cond)
        return cond is not None and self.varies(cond)

    def leaves_early(self, body: Block, apart: bool = False) -> tuple[bool, bool]:
        """Whether some lanes may leave a round of the loop with this body (or return) while others
        go on.

        The first answer is about break, continue and return; the second only about return.
        """
        own = returns = False
        for stmt in body:
            match stmt:
                case Break() | Continue():
                    own = own or apart
                case ThreadReturn():
                    returns = returns or apart
                case If():
                    split = apart or self.splits(stmt)
                    for inner in (stmt.then, stmt.orelse):
                        a, b = self.leaves_early(inner, split)
                        own, returns = own or a, returns or b
                case For() | Pipelined() | While():
                    returns = (
                        returns or self.leaves_early(stmt.body, apart or self.divides(stmt))[1]
                    )
                case WarpSpecialize():
                    returns = returns or self.leaves_early(stmt.body, apart)[1]
                case _:
                    pass
        return own or returns, returns

    def divides(self, loop: Loop) -> bool:
        """Whether the lanes may make different numbers of rounds, by the head of the loop alone."""
        if isinstance(loop, While):
            return self.varies(loop.cond)
        step = loop.step if isinstance(loop, For) else None
        return self.varies(loop.start, loop.stop, step)

    def _block(self, body: Block, apart: bool) -> None:
        for stmt in body:
            self._stmt(stmt, apart)

    def _stmt(self, stmt: Stmt, apart: bool) -> None:
        match stmt:
            case If():
                split = apart or self.splits(stmt)
                self._block(stmt.then, split)
                self._block(stmt.orelse, split)
            case For() | Pipelined() | While():
                if not isinstance(stmt, While) and self.varies(stmt.start):
                    self.names.add(stmt.var.name)
                split = apart or self.divides(stmt) or self.leaves_early(stmt.body)[0]
                self._block(stmt.body, split)
            case Parallel() | WarpSpecialize():
                self._block(stmt.body, apart)
            case Let():
                if self.varies(stmt.value):
                    self.names.add(stmt.var.name)
            case Alloc():
                if stmt.init is not None and self.varies(stmt.init):
                    self._mark(stmt.buffer)
            case Store() | StoreVector() | TileOp():
                self._write(stmt, apart)
            case RngNext() | Collective() | ClcQuery() if self._differs(stmt):
                self.names.add(stmt.result.name)
            case _:
                pass

    def _differs(self, stmt: RngNext | Collective | ClcQuery) -> bool:
        """Whether threads get different results."""
        if isinstance(stmt, ClcQuery):
            return self.varies(stmt.response)
        return not isinstance(stmt, Collective) or stmt.differs

    def _write(self, stmt: Stmt, apart: bool) -> None:
        if isinstance(stmt, Atomic) and stmt.previous is not None and isinstance(stmt.value, Expr):
            self.names.add(stmt.previous.name)
        if isinstance(stmt, TestElements) and self.varies(stmt.src):
            self.names.add(stmt.result.name)
        if apart or any(self.varies(node) for node in stmt.children()):
            for buffer in written(stmt):
                self._mark(buffer)

    def _mark(self, buffer: Buffer) -> None:
        if self._private(buffer):
            self.buffers.add(self.root(buffer.name))


def exposed(body: Block, name: str, *, scalar: bool) -> Node | None:
    """A load that may see what the buffer `name` held before an iteration with this body; None if
    there is none.

    Of a `scalar` every path to the load must store it first; of an array any earlier store counts.
    """
    found: list[Node] = []

    def block(stmts: Block, known: bool) -> bool:
        for stmt in stmts:
            known = one(stmt, known)
        return known

    def one(stmt: Stmt, known: bool) -> bool:
        if not known:
            found.extend(
                n
                for n in own_nodes(stmt)
                if isinstance(n, (Load, LoadVector, Region)) and _reads(stmt, n, name)
            )
        if isinstance(stmt, Alloc) and stmt.buffer.name == name:
            return True
        if any(b.name == name for b in written(stmt)):
            return True
        after = [block(inner, known) for inner in bodies(stmt)]
        if not after:
            return known
        if isinstance(stmt, If):
            return all(after) if scalar else any(after)
        return known or (not scalar and any(after))

    block(body, False)
    return found[0] if found else None


def _reads(stmt: Stmt, node: Load | LoadVector | Region, name: str) -> bool:
    if node.buffer.name != name:
        return False
    if isinstance(node, (Load, LoadVector)):
        return True
    return any(other is node and effect & Effect.READ for effect, other in stmt.effects())
