"""Branches and loops while they are traced: what runs, what is emitted, what names mean afterwards.

A branch or loop that Python decides runs as Python. One of the kernel is traced once per arm (once
for a loop), and a name bound inside it has no value after it, unless it is the same either way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilelang.errors import Loc, TileRuntimeError, TileValueError, error
from tilelang.frontend.unusable import Unusable
from tilelang.ir.build import Builder
from tilelang.ir.expr import Expr, Load
from tilelang.ir.tile import Break, For, If, Pipelined, Stmt, ThreadReturn, While
from tilelang.language.loops import LoopFrame
from tilelang.language.values import Value, describe
from tilelang.scopes import Dialect


@dataclass
class IfHandle:
    """One `if` while it is traced.

    `static` is the known truth; where it is None, `cond` is the condition in the kernel.
    """

    builder: Builder
    loc: Loc
    static: bool | None
    cond: Expr | None
    names: Sequence[str]
    before: dict[str, Any]
    now: dict[str, Any] = field(default_factory=dict[str, Any])
    arms: list[tuple[Stmt, ...]] = field(default_factory=list["tuple[Stmt, ...]"])
    after: list[dict[str, Any]] = field(default_factory=list["dict[str, Any]"])

    def arm(self, taken: bool, known: Mapping[str, Any]) -> bool:
        """Whether to trace this arm: in the kernel both, each from the names before the `if`."""
        if self.static is not None:
            self.now = self.before if taken else pick(self.names, known)
            return self.static is taken
        if taken:
            self.builder.loops.append("if")
        else:
            self._finish(known)
        self.builder.open("arm")
        self.now = self.before
        return True

    def _finish(self, known: Mapping[str, Any]) -> None:
        self.arms.append(self.builder.close())
        self.after.append(pick(self.names, known))

    def end(self, known: Mapping[str, Any]) -> None:
        """Both arms are traced: emit the statement and join the names."""
        if self.static is not None or self.cond is None:
            self.now = pick(self.names, known)
            return
        self._finish(known)
        self.builder.loops.pop()
        self.builder.loc = self.loc
        self.builder.emit(If(self.cond, self.arms[0], orelse=self.arms[1], loc=self.loc))
        self.now = {n: self._joined(n) for n in self.names}

    def _joined(self, name: str) -> Any:
        a, b = self.after[0].get(name, _MISSING), self.after[1].get(name, _MISSING)
        if a is b or same_constant(a, b):
            return a
        why = "is bound under a condition of the kernel, so it has no one value after the `if`"
        return Unusable(name, why, self.loc, self.builder)

    def value(self, name: str) -> Any:
        """What `name` means from here on."""
        return _present(name, self.now, self.loc, self.builder)


@dataclass
class LoopHandle:
    """One loop while it is traced: a `LoopFrame` or condition of the kernel, or a Python iterable.

    `carried` are the names that a round reads from the round before; `targets` is the number of
    loop variables where they are written as a tuple, else 0.
    """

    builder: Builder
    loc: Loc
    iterable: Any
    names: Sequence[str]
    carried: Sequence[str]
    before: dict[str, Any]
    cond: Expr | None = None
    targets: int = 0
    hints: list[str] = field(default_factory=list[str])
    last: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def _of_kernel(self) -> bool:
        return self.cond is not None or isinstance(self.iterable, LoopFrame)

    @property
    def _shadows(self) -> bool:
        """Whether a name bound in the body hides one from outside for the rest of the round, as in
        the adapter tree, whose scripts have a scope for each loop.
        """
        return self.builder.dialect == Dialect.ADAPTER.value

    def rounds(self) -> Iterator[Any]:
        """What the rewritten `for` runs over: one round for a loop of the kernel."""
        builder = self.builder
        if isinstance(self.iterable, LoopFrame):
            yield self._enter(self.iterable)
            builder.loc = self.loc
            self.iterable.leave(builder)
        elif self.cond is not None:
            builder.loops.append("sequential")
            builder.open("loop")
            yield None
            builder.loops.pop()
            body = builder.close()
            builder.loc = self.loc
            _check_progress(self.cond, body, self.loc)
            builder.emit(While(self.cond, body, loc=self.loc))
        else:
            builder.loops.append("python")
            try:
                yield from self.iterable
            finally:
                builder.loops.pop()

    def _enter(self, frame: LoopFrame) -> Any:
        axes = len(frame.dtypes)
        if self.targets not in (0, axes):
            raise error(
                "syntax",
                f"{frame.what} has {axes} loop variable{'s' if axes != 1 else ''}",
                self.loc,
                cls=TileValueError,
                expected=f"{axes} name{'s' if axes != 1 else ''} before `in`",
                got=str(self.targets),
            )
        variables = frame.enter(self.builder, self.hints)
        if axes > 1 and self.builder.loops[-1] == "sequential":
            self.builder.loops[-1] = "nest"  # several loops of the kernel in one `for`
        return [variables] if self.targets == 1 and isinstance(variables, Value) else variables

    def round(self, known: Mapping[str, Any]) -> None:
        """A round ends: a name carried from round to round must be a variable of the kernel."""
        if not self._of_kernel:
            return
        self.last = pick(self.names, known)
        for name in self.carried:
            old, new = self.before.get(name, _MISSING), self.last.get(name, _MISSING)
            if old is new or old is _MISSING or same_constant(old, new) or self._shadows:
                continue
            raise error(
                "syntax",
                f"{name} is rebound in a loop of the kernel, and read in the next round",
                self.loc,
                cls=TileRuntimeError,
                expected="an immutable name, or a variable",
                got=f"{_shown(old)} before the loop, {_shown(new)} after one round",
                help=f"make it a variable: `{name} = T.alloc_var(dtype, init=...)`; "
                "assigning to it then stores",
            )

    def end(self, known: Mapping[str, Any]) -> None:
        """The loop is traced."""
        if not self._of_kernel:
            self.last = pick(self.names, known)

    def value(self, name: str) -> Any:
        """What `name` means after the loop."""
        if not self._of_kernel:
            return _present(name, self.last, self.loc, self.builder)
        old, new = self.before.get(name, _MISSING), self.last.get(name, _MISSING)
        kept = old is not _MISSING and (self._shadows or same_constant(old, new))
        if old is new or kept:
            return _present(name, self.before, self.loc, self.builder)
        why = "is bound inside a loop of the kernel, so it has no value after the loop"
        return Unusable(name, why, self.loc, self.builder)


CHANGING = "a name that the loop changes must be a variable: `i = T.alloc_var('int32', init=...)`"

_MISSING = object()


def pick(names: Sequence[str], known: Mapping[str, Any]) -> dict[str, Any]:
    """Those of `names` that are bound in `known`, with their values."""
    return {n: known[n] for n in names if n in known}


def _shown(value: Any) -> str:
    if value is _MISSING:
        return "nothing"
    plain = isinstance(value, (int, float, str, bool, type(None)))
    return repr(value)[:40] if plain else describe(value)


def _present(name: str, known: Mapping[str, Any], loc: Loc, builder: Builder) -> Any:
    found = known.get(name, _MISSING)
    return Unusable(name, "is not bound on this path", loc, builder) if found is _MISSING else found


def same_constant(a: Any, b: Any) -> bool:
    """Whether both are one number, text, truth value or None."""
    plain = (int, float, str, bool, type(None))
    return type(a) is type(b) and isinstance(a, plain) and repr(a) == repr(b)


def _check_progress(cond: Expr, body: Sequence[Stmt], loc: Loc) -> None:
    """A loop whose condition reads nothing, and that is never left, would not end."""
    if any(isinstance(n, Load) for n in cond.walk()) or _leaves(body):
        return
    raise error(
        "syntax",
        "the condition of `while` never changes",
        loc,
        cls=TileRuntimeError,
        help=CHANGING,
    )


def _leaves(body: Sequence[Stmt], *, inner: bool = False) -> bool:
    """Whether a statement of a loop's body may leave the loop (`inner`: of a loop inside it)."""
    for stmt in body:
        if isinstance(stmt, ThreadReturn) or (isinstance(stmt, Break) and not inner):
            return True
        below = [s for s in stmt.children() if isinstance(s, Stmt)]
        if _leaves(below, inner=inner or isinstance(stmt, (For, Pipelined, While))):
            return True
    return False
