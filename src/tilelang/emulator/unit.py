"""The state of one translation: names, buffers, lanes and masks at the current statement.

What enters: facts about the function being translated. What leaves: names and text for the modules
that translate expressions, accesses and statements, all of which write through one `Unit`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn

from tilelang.emulator import storage
from tilelang.emulator.lanes import Lanes, nodes_of
from tilelang.emulator.values import UNIFORM, Axes, Domain, Storage, Val
from tilelang.emulator.writer import Writer
from tilelang.errors import Loc, error
from tilelang.ir.expr import Buffer, Expr, Load, LoadVector, Var, int_value
from tilelang.ir.node import Node
from tilelang.ir.tile import Block, While
from tilelang.scopes import Dialect, Memory, memory_of

if TYPE_CHECKING:
    from tilelang.emulator.access import Affine
    from tilelang.emulator.observe import Observer
    from tilelang.emulator.waits import Ways
    from tilelang.emulator.watched import Watched


@dataclass
class Frame:
    """A loop, or the whole launch, that lanes may leave at different times.

    `gone` names the array of lanes that are done with this round, `broke` of those that make no
    further one. A frame that all lanes leave together has neither, and Python's own break and
    continue serve.
    """

    gone: str = ""
    broke: str = ""
    loop: bool = True

    @property
    def masked(self) -> bool:
        """Whether lanes leave one by one."""
        return bool(self.gone)


@dataclass
class Unit:
    """Everything that is known at the current statement."""

    w: Writer
    dialect: Dialect
    tf32: bool = False
    env: dict[str, Val] = field(default_factory=dict[str, Val])
    stores: dict[str, Storage] = field(default_factory=dict[str, Storage])
    safe: dict[str, Any] = field(default_factory=dict[str, Any])
    domain: Domain = field(default_factory=Domain)
    mask: Val | None = None
    branched: bool = False
    lanes: Lanes = field(default_factory=lambda: Lanes((), (), lambda _: False, {}))
    frames: list[Frame] = field(default_factory=list[Frame])
    memo: dict[int, Val] = field(default_factory=dict[int, Val])
    affines: dict[int, Affine | None] = field(default_factory=dict[int, "Affine | None"])
    shared: dict[int, int] = field(default_factory=dict[int, int])
    inline: bool = False
    emit: Callable[[Expr], Val] | None = None
    run: Callable[[Block], None] | None = None
    lets: dict[str, Expr] = field(default_factory=dict[str, Expr])
    roots: dict[str, str] = field(default_factory=dict[str, str])
    arrays: set[str] = field(default_factory=set[str])
    inside: set[str] = field(default_factory=set[str])
    checks: Watched | None = None
    observer: Observer | None = None
    at_end: Callable[[], None] | None = None
    ways: Ways | None = None
    before_round: Callable[[While], None] | None = None

    @property
    def agents(self) -> bool:
        """Whether the current kernel runs as agents that wait for each other."""
        return self.ways is not None

    # -- values ------------------------------------------------------------------------------------

    def begin(self, *nodes: Node | None) -> None:
        """Start a statement whose expressions are `nodes`: values computed for the one before are
        not known now.
        """
        self.memo = {}
        self.affines = {}
        self.shared = {}
        for node in nodes_of(*(n for n in nodes if n is not None)):
            for child in node.children():
                self.shared[id(child)] = self.shared.get(id(child), 0) + 1

    def expr(self, e: Expr) -> Val:
        """The text of an expression; what is used twice in a statement is bound to a name."""
        known = self.memo.get(id(e))
        if known is None:
            assert self.emit is not None
            known = self.emit(e)
            if self.shared.get(id(e), 0) > 1 and not known.atom and not self.inline:
                known = self.bind(known)
            self.memo[id(e)] = known
        return known

    def bind(self, v: Val, prefix: str = "t") -> Val:
        """`v` under a name, so that it is evaluated once."""
        if v.atom:
            return v
        name = self.w.fresh(prefix)
        self.w.line(f"{name} = {v.code}")
        return v.named(name)

    def keep(self, v: Val, prefix: str = "t") -> Val:
        """`v` under a name, as it is now whatever later stores do."""
        return self.bind(
            replace(v, code=f"{v.text}.copy()", alias=False) if v.alias and v.axes else v, prefix
        )

    def constant(self, prefix: str, obj: Any, key: Any = None) -> str:
        """A name for an object that the text refers to."""
        return self.w.constant(prefix, obj, key)

    def axes_of(self, e: Expr) -> Axes:
        """The lane axes that an expression may vary over, without emitting it."""
        axes = UNIFORM
        for node in nodes_of(e):
            if isinstance(node, Var):
                axes |= self.var(node).axes
            elif isinstance(node, (Load, LoadVector)) and self.storage(node.buffer).lanes:
                axes |= self.domain.all
        return axes

    # -- names -------------------------------------------------------------------------------------

    def var(self, var: Var) -> Val:
        """The value bound to a variable."""
        known = self.env.get(var.name)
        if known is None:
            raise KeyError(f"variable {var.name} is not bound")
        if known.axes and self.foreign(known):
            self.refuse_threads(f"{var.name} differs from thread to thread")
        return known

    def foreign(self, v: Val) -> bool:
        """Whether a value belongs to the lanes of another domain."""
        return v.owner is not None and v.owner is not self.domain

    def refuse_threads(self, what: str) -> NoReturn:
        """A T.Parallel, or an operation of the whole block, that would depend on the thread."""
        raise error(
            "divergence",
            f"{what}, so the block as a whole cannot use it here",
            self.w.loc,
            expected="a value that is the same for all threads of the block",
            help="write code for one thread (T.get_thread_binding), or use shared memory",
        )

    def storage(self, buffer: Buffer) -> Storage:
        """Where a buffer lives."""
        found = self.stores.get(buffer.name)
        if found is None:
            raise KeyError(f"buffer {buffer.name} has no storage")
        if found.lanes and found.owner is not self.domain:
            self.refuse_threads(f"every thread has a {buffer.name} of its own")
        return found

    def private(self, buffer: Buffer) -> bool:
        """Whether a buffer is each thread's own."""
        return memory_of(self.dialect, buffer.scope) in (Memory.LOCAL, Memory.VAR)

    def on_chip(self, buffer: Buffer) -> bool:
        """Whether a buffer lies in a memory of the chip, where an index outside is a fault."""
        return memory_of(self.dialect, buffer.scope) is not Memory.GLOBAL

    def access(self, buffer: Buffer, loc: Loc | None = None) -> storage.Access:
        """The facts of an access to `buffer` at `loc` (default: the current statement)."""
        safe = self.safe.get(buffer.name)
        if safe is None:
            safe = buffer.dtype.numpy.type(0)
        return storage.Access(
            buffer, self.on_chip(buffer), safe, loc or self.w.loc, self.domain.names
        )

    def access_name(self, buffer: Buffer, loc: Loc | None = None) -> str:
        """The facts of an access, by name."""
        place = loc or self.w.loc
        return self.constant(
            "a", self.access(buffer, place), (buffer.name, place, self.domain.names)
        )

    def extents_of(self, buffer: Buffer) -> tuple[int | None, ...]:
        """The static extents of a buffer, None where launch decides."""
        return tuple(int_value(e) for e in buffer.shape)

    def define(self, var: Var, v: Val) -> None:
        """Bind a variable to a value that now has the variable's name."""
        owner = self.domain if v.axes else None
        self.env[var.name] = replace(v.named(self.w.name(var.name)), owner=owner)

    def axis_of(self, e: Expr) -> int | None:
        """The lane axis whose index `e` is."""
        if isinstance(e, Var) and e.name in self.domain.names:
            return self.domain.names.index(e.name)
        return None

    def axis_array(self, axis: int) -> str:
        """The text of the indices of a lane axis."""
        return self.env[self.domain.names[axis]].code

    def origins(self, e: Expr) -> list[Expr]:
        """The expressions that the variables in `e` were bound to, and those in them, and so on."""
        found: dict[str, Expr] = {}
        todo = [e]
        while todo:
            for node in nodes_of(todo.pop()):
                if isinstance(node, Var) and node.name in self.lets and node.name not in found:
                    found[node.name] = self.lets[node.name]
                    todo.append(found[node.name])
        return list(found.values())

    def statements(self, body: Block, finally_: Callable[[], None] | None = None) -> None:
        """Translate statements at the current place, and what is due before their buffers end."""
        assert self.run is not None
        outer = set(self.stores)
        self.run(body)
        if finally_ is not None:
            finally_()
        for name in set(self.stores) - outer:
            del self.stores[name]

    # -- masks -------------------------------------------------------------------------------------

    def both(self, a: Val | None, b: Val | None) -> Val | None:
        """The lanes that are in both masks; None stands for all lanes."""
        if a is None or b is None:
            return a or b
        return Val(f"{a.text} & {b.text}", b.dtype, a.axes | b.axes)

    @contextmanager
    def under(self, mask: Val | None, *, rest: bool = False) -> Generator[None]:
        """Statements written inside are for the lanes of `mask` only: those that take a branch or
        a round, or with `rest` those that are left.
        """
        before = self.mask, self.branched
        self.branched = self.branched or not (rest or mask is self.mask)
        self.mask = mask
        try:
            yield
        finally:
            self.mask, self.branched = before

    @property
    def mask_text(self) -> str:
        """The current mask as an argument."""
        return "None" if self.mask is None else self.mask.code
