"""What the cube core does and what the vector cores do, as two programs.

What enters: a function whose launches are one sequential program each, with some statements in
`CoreRegion`s. What leaves: launches of allocations and, at most, one region for each kind of core.
A statement goes to the core whose pipes carry it out; loops, branches and scalars go to each core
that has a statement inside or uses them. Scalars of one core are not known to the other.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilelang.errors import TileError, error
from tilelang.ir.ascend import (
    AtomicMode,
    Core,
    CoreRegion,
    CrossSet,
    CrossWait,
    Lock,
    PipeBarrier,
    SetFlag,
    SetMode,
    SyncAll,
    Unlock,
    VectorFunction,
    WaitFlag,
)
from tilelang.ir.expr import Binary, BinaryOp, Buffer, Load, Var, const
from tilelang.ir.node import Kind, flat
from tilelang.ir.simplify import substitute
from tilelang.ir.tile import (
    Alloc,
    Annotate,
    Assert,
    Assume,
    Block,
    Break,
    Continue,
    For,
    Function,
    If,
    Launch,
    Let,
    Pipelined,
    Print,
    Stmt,
    Store,
    TileOp,
    View,
    While,
)
from tilelang.ir.walk import bodies
from tilelang.isa.target import Target
from tilelang.passes.ascend.effects import Effects, core_of_flag
from tilelang.passes.ascend.settings import Automatic, is_automatic
from tilelang.passes.build import Names, map_bodies, renamed
from tilelang.scopes import Memory

_ORDER = (SetFlag, WaitFlag, PipeBarrier, CrossSet, CrossWait, Lock, Unlock)
_CROSS = (CrossSet, CrossWait)
_MODES = (AtomicMode, SetMode)
_BOTH = (Break, Continue, Assert, Assume, SyncAll)
_IDLE = (Break, Continue, Assume)
_LOOPS = (For, Pipelined, While)
_SCALAR = (Memory.VAR, Memory.LOCAL)


def split_cores(fn: Function, target: Target) -> Function:
    """One region for each kind of core that has work."""
    del target
    names = Names(fn)

    def split(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Launch):
            return map_bodies(stmt, lambda body: tuple(map(split, body)))
        return Split(fn, names, stmt).result()

    return fn.with_(body=tuple(map(split, fn.body)))


class Split:
    """One launch."""

    def __init__(self, fn: Function, names: Names, launch: Launch) -> None:
        self.fn = fn
        self.names = names
        self.launch = launch
        self.effects = Effects(fn)
        self.cores = {id(s): self._cores(s) for s in _leaves(launch.body)}
        self.working = set(self._working(launch.body))
        self._check_asked()

    def _working(self, body: Block) -> Iterator[Core]:
        """The kinds of core that have work of their own; the order of their own pipes is none."""
        for stmt in body:
            if isinstance(stmt, CoreRegion):
                if any(not isinstance(s, _ORDER) or isinstance(s, _CROSS) for s in stmt.body):
                    yield stmt.core
                continue
            if isinstance(stmt, (TileOp, Store, Print, VectorFunction)):
                yield from self.cores[id(stmt)]
            for block in _bodies(stmt):
                yield from self._working(block)

    def result(self) -> Launch:
        """The launch with its regions."""
        storage = tuple(s for s in self.launch.body if self.is_storage(s))
        regions: list[Stmt] = []
        for core in Core:
            if core not in self.working:
                continue
            body = Kept(self, core).block(self.launch.body)
            if not body:
                continue
            if core is Core.CUBE:
                body = tuple(_without_sub(s, self.launch.thread_vars[0]) for s in body)
            if regions:
                body = renamed(body, self.names)
            subs = self.launch.threads[0] if self.launch.threads else 2
            regions.append(CoreRegion(core, body, subs=subs, loc=self.launch.loc))
        return self.launch.with_(body=(*storage, *regions))

    def is_storage(self, stmt: Stmt) -> bool:
        """Whether a statement of the launch belongs to no core: it gives storage or facts."""
        if isinstance(stmt, Alloc):
            return self.effects.memory(stmt.buffer) not in _SCALAR
        return isinstance(stmt, Annotate)

    # Which core ----------------------------------------------------------------------------------

    def _cores(self, stmt: Stmt) -> frozenset[Core]:
        """The cores that carry out a statement without a body."""
        if isinstance(stmt, _ORDER):
            return self._of_order(stmt)
        if isinstance(stmt, (*_MODES, *_BOTH)):
            return frozenset(Core)
        found = {a.core for a in self.effects.agents(stmt)}
        return frozenset(found or ({Core.VECTOR} if isinstance(stmt, Print) else ()))

    def _of_order(self, stmt: Stmt) -> frozenset[Core]:
        core = core_of_flag(stmt)
        if core is not None:
            return frozenset({core})
        if isinstance(stmt, PipeBarrier):
            return frozenset(Core)
        raise error(
            "scope",
            f"which core this belongs to is not clear: {type(stmt).__name__}",
            stmt.loc,
            expected="a pipe that only one kind of core has, or a place in T.Scope",
            help='write it inside `with T.Scope("C"):` or `with T.Scope("V"):`',
        )

    def _check_asked(self) -> None:
        """Without the setting for it, what stands outside T.Scope belongs to one kind of core."""
        if is_automatic(self.fn, Automatic.CORES):
            return
        first: dict[Core, Stmt] = {}
        for stmt in _leaves(self.launch.body):
            for core in self.cores[id(stmt)] if isinstance(stmt, TileOp) else ():
                first.setdefault(core, stmt)
        if len(first) < len(Core):
            return
        last = max(first.values(), key=lambda s: s.loc.line if s.loc is not None else 0)
        raise error(
            "scope",
            "statements of cube and vector cores stand beside each other",
            last.loc,
            expected="each in `with T.Scope(...)`, or the pass config tl.ascend_auto_cv_combine",
            help='pass_configs={"tl.ascend_auto_cv_combine": True} splits them over the cores',
        )


def _leaves(body: Block) -> Iterator[Stmt]:
    """The statements without a body that stand outside of core regions."""
    for stmt in body:
        inner = _bodies(stmt)
        if isinstance(stmt, CoreRegion):
            continue
        if not inner:
            yield stmt
        for block in inner:
            yield from _leaves(block)


def _bodies(stmt: Stmt) -> list[Block]:
    """The statements inside a statement; a vector function is one operation."""
    return [] if isinstance(stmt, VectorFunction) else list(bodies(stmt))


def _without_sub(stmt: Stmt, sub: Var) -> Stmt:
    """A statement of the cube core, for which the number of the vector core is 0."""
    return substitute(stmt, {sub: const(0, sub.dtype)})


class Kept:
    """The part of a launch that one kind of core carries out."""

    def __init__(self, split: Split, core: Core) -> None:
        self.split = split
        self.core = core
        self.effects = split.effects

    def block(self, body: Block) -> Block:
        """The statements of this core, last first: a scalar is kept where something uses it."""
        kept, _ = self._kept(body, set())
        return kept

    def _kept(self, body: Block, used: set[str]) -> tuple[Block, set[str]]:
        """The statements of a block, and the names that they and what comes after use."""
        out: list[Stmt] = []
        used = set(used)
        for stmt in reversed(body):
            kept = self._one(stmt, used)
            for each in reversed(kept):
                out.insert(0, each)
                used |= _used(each)
        return tuple(out), used

    def _one(self, stmt: Stmt, used: set[str]) -> tuple[Stmt, ...]:
        if isinstance(stmt, CoreRegion):
            return self._region(stmt)
        if _bodies(stmt):
            return self._compound(stmt, used)
        if self.split.is_storage(stmt):
            return ()
        if isinstance(stmt, (Alloc, View, Let)):
            name = stmt.var.name if isinstance(stmt, Let) else stmt.buffer.name
            mine = name in used
        elif isinstance(stmt, Store) and self.effects.memory(stmt.buffer) in _SCALAR:
            mine = stmt.buffer.name in used
        else:
            mine = self.core in self.split.cores.get(id(stmt), frozenset[Core]())
        return (self._known(stmt),) if mine else ()

    def _region(self, stmt: CoreRegion) -> tuple[Stmt, ...]:
        """What the author, or a pass, gave to one kind of core."""
        if stmt.core is not self.core:
            return ()
        for each in _leaves(stmt.body):
            foreign = [a for a in self.effects.agents(each) if a.core is not self.core]
            if foreign and isinstance(each, TileOp):
                raise self._misplaced(each, foreign[0].core)
        number = self.split.launch.thread_vars[0]
        body = stmt.body
        if stmt.sub is not None:
            body = tuple(substitute(s, {stmt.sub: number}) for s in body)
        if stmt.core is Core.VECTOR and stmt.subs == 1:
            first = Binary(BinaryOp.EQ, number, const(0))
            return (If(first, body, loc=stmt.loc),)
        return body

    def _misplaced(self, stmt: Stmt, core: Core) -> TileError:
        return error(
            "scope",
            f"this is work of the {_NAMES[core]}, in T.Scope of the {_NAMES[self.core]}",
            stmt.loc,
            expected=f'T.Scope("{core.value}")',
            got=f'T.Scope("{self.core.value}")',
        )

    def _compound(self, stmt: Stmt, used: set[str]) -> tuple[Stmt, ...]:
        """A loop or branch with what this core does in it; none of it where that is nothing."""
        loop = isinstance(stmt, _LOOPS)
        again: set[str] = set()  # what a round uses, the round before may have to compute
        while True:
            wanted = used | again
            kept = map_bodies(stmt, lambda body, w=wanted: self._kept(body, w)[0])
            more = _used(kept) if loop else set[str]()
            if more <= again:
                break
            again |= more
        works = any(not isinstance(s, _IDLE) for s in _leaves(tuple(_inside(kept))))
        jumps = any(isinstance(n, (Break, Continue)) for n in kept.walk())
        if not works and (loop or not jumps):
            return ()
        return (self._known(kept),)

    def _known(self, stmt: Stmt) -> Stmt:
        """A statement whose scalars this core can compute."""
        if self.core is Core.VECTOR:
            return stmt
        for f in stmt.fields():
            if f.metadata["kind"] is not Kind.OPERAND or isinstance(stmt, TileOp):
                continue
            for node in flat(getattr(stmt, f.name)):
                for n in node.walk():
                    if isinstance(n, Load) and self.effects.memory(n.buffer) is Memory.UB:
                        raise self._unknown(stmt, n)
        return stmt

    def _unknown(self, stmt: Stmt, load: Load) -> TileError:
        return error(
            "scope",
            f"the cube core needs an element of {load.buffer.name}, which is in the UB",
            load.loc or stmt.loc,
            expected="a value that both kinds of core can compute",
            help="store it to global memory, and read it from there",
        )


_NAMES = {Core.CUBE: "cube core", Core.VECTOR: "vector cores"}


def _inside(stmt: Stmt) -> Iterator[Stmt]:
    for block in bodies(stmt):
        yield from block


def _used(stmt: Stmt) -> set[str]:
    """The names of the variables and buffers that occur in a statement, inside it too."""
    return {n.name for n in stmt.walk() if isinstance(n, (Var, Buffer))}
