"""The builder: the state of one trace, which `language` functions write to and `frontend` drives.

What enters: calls that emit statements, open and close blocks, and ask for fresh names. What
leaves: the statements of one `Function`. The current builder is the only ambient state of the
compiler.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, cast

from tilelang.dtypes import DType
from tilelang.errors import Diagnostic, JITNoBuilderError, Loc, TileRuntimeError, error
from tilelang.ir.expr import INT32, Buffer, Const, Expr, Load, LoadVector, Region, Var
from tilelang.ir.interval import Interval
from tilelang.ir.node import Effect, Kind, Node, flat
from tilelang.ir.tile import (
    Annotate,
    For,
    If,
    Launch,
    Let,
    Parallel,
    Param,
    Pipelined,
    Stmt,
    View,
    While,
)

# What these read is read before what they enclose runs, and they are emitted after it.
_ENCLOSING = (For, If, Launch, Parallel, Pipelined, While)


@dataclass
class LaunchState:
    """What is known of the launch that is being traced; `threads` is None where the target
    chooses. `sub` is the number of the vector core in the region of an Ascend launch that is being
    traced, if it has a name.
    """

    grid: tuple[Expr, ...]
    vars: tuple[Var, ...]
    thread_vars: tuple[Var, ...]
    threads: tuple[int, ...] | None
    cluster: tuple[int, ...] = ()
    loc: Loc | None = None
    sub: Var | None = None

    @property
    def vector_core(self) -> Var:
        """The number of the vector core of an Ascend launch; see `ir/ascend.py`."""
        return self.thread_vars[0] if self.sub is None else self.sub


class TraceStopped(Exception):
    """Ends a probing trace at its first launch: what comes before is all that was asked for."""


@dataclass
class Eager:
    """What is particular to the trace of an eager kernel or of one that makes its own outputs.

    `consts` are the values of `T.const` names; a probing trace (`probing`) has none yet, collects
    the tensor declarations and stops at the first launch. `empties` are the outputs declared by
    `T.empty`, `returned` the ones given back, in order.
    """

    consts: dict[str, int] = field(default_factory=dict[str, int])
    probing: bool = False
    allowed: bool = False
    empties: list[str] = field(default_factory=list[str])
    returned: list[str] | None = None
    settings: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass
class Builder:
    """The state of one trace. `loc` is the place in the author's source that is being executed."""

    name: str
    dialect: str = "common"
    loc: Loc | None = None
    params: list[Param] = field(default_factory=list[Param])
    dynamic: dict[str, Var] = field(default_factory=dict[str, Var])
    launch: LaunchState | None = None
    warnings: list[Diagnostic] = field(default_factory=list[Diagnostic])
    defined_at: dict[str, Loc | None] = field(default_factory=dict["str", "Loc | None"])
    hints: list[str] = field(default_factory=list[str])
    loops: list[str] = field(default_factory=list[str])
    ranges: dict[Var, Interval] = field(default_factory=dict[Var, Interval])
    values: dict[Var, Expr] = field(default_factory=dict[Var, Expr])
    homes: dict[int, tuple[object, int]] = field(default_factory=dict[int, "tuple[object, int]"])
    eager: Eager = field(default_factory=Eager)
    _names: set[str] = field(default_factory=set[str])
    _blocks: list[list[Stmt]] = field(default_factory=lambda: [[]])
    _visible: list[set[str]] = field(default_factory=lambda: [set[str]()])
    _opened: list[int] = field(default_factory=lambda: [0])
    _roles: list[str] = field(default_factory=lambda: [""])
    _reads: dict[int, tuple[Load, int]] = field(default_factory=dict[int, tuple[Load, int]])
    _writes: dict[str, list[Loc | None]] = field(default_factory=dict[str, "list[Loc | None]"])
    _storage: dict[str, str] = field(default_factory=dict[str, str])

    # -- names -------------------------------------------------------------------------------------
    # ---------------

    def unique(self, hint: str) -> str:
        """`hint`, or `hint_1`, `hint_2`, ... where it is taken; from now on the name is taken."""
        base = "".join(c if f"a{c}".isidentifier() else "_" for c in hint) or "v"
        base = base if base.isidentifier() else f"v{base}"
        base = f"{base}_" if keyword.iskeyword(base) else base
        name, n = base, 0
        while name in self._names:
            n += 1
            name = f"{base}_{n}"
        self._names.add(name)
        return name

    def name_hint(self, default: str) -> str:
        """The name the author is about to bind the value to, else `default`."""
        return self.hints.pop(0) if self.hints else default

    def fresh_var(self, hint: str, dtype: DType = INT32) -> Var:
        """A variable whose name is not used yet. It is visible once a statement binds it (see
        `define`).
        """
        return Var(self.unique(hint), dtype)

    def define(self, *nodes: Var | Buffer) -> None:
        """Make names usable from here to the end of the current block."""
        for node in nodes:
            self._visible[-1].add(node.name)
            self.defined_at[node.name] = self.loc

    def is_visible(self, name: str) -> bool:
        """Whether a variable or buffer may be used here."""
        return any(name in scope for scope in self._visible)

    def declare_dynamic(self, var: Var) -> None:
        """Register a symbolic size; launch binds it. Its name is kept as the author wrote it."""
        if var.name not in self.dynamic:
            self.dynamic[var.name] = var
            self._names.add(var.name)
            self._visible[0].add(var.name)
            self.defined_at[var.name] = self.loc

    # -- statements --------------------------------------------------------------------------------
    # ---------------

    def emit(self, stmt: Stmt) -> None:
        """Append a statement to the current block, after checking that every name it uses is in
        scope and every element it reads has not been written since it was read.
        """
        self._check_names(stmt)
        self._blocks[-1].append(stmt)
        if isinstance(stmt, View):
            self._storage[stmt.buffer.name] = self._owner(stmt.source)
        for effect, target in stmt.effects():
            buffer = target.buffer if isinstance(target, Region) else target
            if effect & Effect.WRITE and isinstance(buffer, Buffer):
                self._writes.setdefault(self._owner(buffer), []).append(stmt.loc)

    def reading(self, load: Load) -> Load:
        """Note that the author reads an element here; a statement computes it, maybe later."""
        self._reads[id(load)] = (load, len(self._writes.get(self._owner(load.buffer), ())))
        return load

    def is_written(self, buffer: Buffer) -> bool:
        """Whether a statement so far writes to the storage of a buffer."""
        return self._owner(buffer) in self._writes

    def _owner(self, buffer: Buffer) -> str:
        """The name of the buffer that has the storage: a view's source."""
        return self._storage.get(buffer.name, buffer.name)

    @property
    def region(self) -> int:
        """A number for the branch or loop that is traced; 0 where each statement runs once."""
        once = 1 if self.launch is None else 2
        return self._opened[-1] if len(self._blocks) > once else 0

    @property
    def position(self) -> int:
        """How many statements the current block has so far."""
        return len(self._blocks[-1])

    def let(self, value: Expr, hint: str = "t") -> Var:
        """Bind `value` to a fresh name here."""
        var = self.fresh_var(hint, value.dtype)
        self.emit(Let(var, value, loc=self.loc))
        self.define(var)
        if not any(isinstance(n, (Load, LoadVector)) for n in value.walk()):
            self.values[var] = self.expanded(value)
        return var

    def expanded(self, value: Expr) -> Expr:
        """`value` with each name that is bound to pure arithmetic written out."""

        def written(n: Node) -> Node | None:
            return self.values.get(n) if isinstance(n, Var) else None

        found = written(value) or value.rewrite(written)
        return cast("Expr", found)

    def stable(self, value: Expr, hint: str = "t") -> Expr:
        """`value` as something that later stores cannot change: itself, or a name bound to it
        here.
        """
        if isinstance(value, (Var, Const)) or self.launch is None:
            return value
        return self.let(value, hint)

    def annotate(self, kind: str, **fields: tuple[object, ...]) -> None:
        """Emit an `Annotate` statement."""
        self.emit(Annotate(kind, loc=self.loc, **fields))

    @contextmanager
    def block(self) -> Generator[list[Stmt]]:
        """A nested block: statements emitted inside go to the list that is given, and names
        defined inside end.
        """
        self.open()
        inner = self._blocks[-1]
        try:
            yield inner
        finally:
            self.close()

    def open(self, role: str = "") -> None:
        """Begin a nested block. Its `role` is `arm` (of a branch), `loop`, `nest` (several loops),
        `parallel` or none of these.
        """
        self._blocks.append([])
        self._roles.append(role)
        self._visible.append(set())
        self._opened[0] += 1
        self._opened.append(self._opened[0])

    def close(self) -> tuple[Stmt, ...]:
        """End the nested block and give its statements."""
        self._visible.pop()
        self._opened.pop()
        self._roles.pop()
        return tuple(self._blocks.pop())

    def retract(self, wanted: Callable[[Stmt], bool]) -> tuple[Stmt, ...]:
        """Take the last statements of the current block back as long as they are wanted."""
        block, taken = self._blocks[-1], list[Stmt]()
        while block and wanted(block[-1]):
            taken.insert(0, block.pop())
        return tuple(taken)

    @property
    def statements(self) -> tuple[Stmt, ...]:
        """The statements of the current block so far."""
        return tuple(self._blocks[-1])

    def amend(self, old: Stmt, new: Stmt) -> None:
        """Put a statement in the place of an earlier one of the blocks that are open."""
        for block in self._blocks:
            block[:] = [new if s is old else s for s in block]

    def since(self, first: Stmt) -> tuple[Stmt, ...] | None:
        """The statements from an earlier one on, where it is in the current block or around it with
        only arms of branches between; else None.
        """
        found: list[Stmt] = []
        for block, role in zip(reversed(self._blocks), reversed(self._roles), strict=True):
            found[:0] = block
            if any(s is first for s in block):
                return tuple(found)
            if role != "arm":
                break
        return None

    @property
    def innermost(self) -> str:
        """The role of the innermost loop around, also around the call of a macro; empty without."""
        return next((r for r in reversed(self._roles) if r in ("loop", "nest", "parallel")), "")

    def newest(self, wanted: Callable[[Stmt], bool]) -> Stmt | None:
        """The last statement so far, of the current block and those around it, that is wanted."""
        found = (s for block in reversed(self._blocks) for s in reversed(block) if wanted(s))
        return next(found, None)

    def _check_names(self, stmt: Stmt) -> None:
        seen: set[int] = set()
        stack: list[Node] = [stmt]
        while stack:
            node = stack.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            if isinstance(node, (Var, Buffer)) and not self.is_visible(node.name):
                raise self._out_of_scope(node)
            if isinstance(node, Load) and not isinstance(stmt, _ENCLOSING):
                self._check_fresh(node)
            for f in node.fields():
                if f.metadata["kind"] is Kind.OPERAND:
                    value = getattr(node, f.name)
                    stack.extend(flat(value))

    def _check_fresh(self, load: Load) -> None:
        """Refuse a value that was read before a store, and is computed after it."""
        noted = self._reads.get(id(load))
        writes = self._writes.get(self._owner(load.buffer), [])
        if noted is None or len(writes) == noted[1]:
            return
        places = ((load.loc, "read here"), (writes[noted[1]], "written here"))
        raise TileRuntimeError(
            Diagnostic(
                "name",
                f"an element of {load.buffer.name} is used after {load.buffer.name} is written",
                self.loc,
                expected="the value from before, which nothing keeps",
                help="bind it to a name in the kernel or a macro: `x = A[i]`;"
                " mark a helper that stores with @T.macro",
                related=tuple((at, text) for at, text in places if at is not None),
            )
        )

    def _out_of_scope(self, node: Var | Buffer) -> TileRuntimeError:
        where = self.defined_at.get(node.name)
        what = "size" if node.name not in self.defined_at and isinstance(node, Var) else "name"
        if what == "size":
            message = f"the symbolic size {node.name} is not the extent of any tensor parameter"
            way_out = (
                f"use {node.name} as a plain axis of a tensor parameter,"
                " or pass it as a scalar parameter"
            )
        else:
            message = f"{node.name} is used outside the block that defines it"
            way_out = (
                "keep the value in `T.alloc_var(...)` allocated before the block, or use it inside"
            )
        return TileRuntimeError(
            Diagnostic(
                "name",
                message,
                self.loc,
                help=way_out,
                related=((where, f"{node.name} is defined here"),) if where is not None else (),
            )
        )


CURRENT: ContextVar[Builder | None] = ContextVar("tilewright_builder", default=None)


def current_or_none() -> Builder | None:
    """The builder of the trace that is running, if any."""
    return CURRENT.get()


def current(what: str = "this construct") -> Builder:
    """The builder of the trace that is running; `JITNoBuilderError` outside a trace."""
    builder = CURRENT.get()
    if builder is None:
        raise error(
            "syntax",
            f"{what} is used outside a kernel",
            cls=JITNoBuilderError,
            expected="a call from a function decorated with @T.prim_func, @T.macro or"
            " @tilelang.jit",
            help="move it into such a function",
        )
    return builder
