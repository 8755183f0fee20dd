"""`T.If`, `T.Then` and `T.Else`: a branch of the kernel as frames, which programs write where the
bodies come from functions.

What enters: a condition, and the statements of one or two bodies. What leaves: one `If`. A
condition that is known keeps its one body.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from tilelang.errors import Loc, TileError, TileRuntimeError, error
from tilelang.ir import build
from tilelang.ir.expr import Const
from tilelang.ir.tile import If as IfStmt
from tilelang.ir.tile import Stmt
from tilelang.language.arguments import launched
from tilelang.language.buffers import here
from tilelang.language.values import condition as as_condition


def _bad(message: str, help: str, loc: Loc | None = None) -> TileError:
    return error("syntax", message, loc or here(), cls=TileRuntimeError, help=help)


class If:
    """`with T.If(condition):` - around `with T.Then():` and, where it is needed, `with T.Else():`,
    and nothing else.
    """

    def __init__(self, condition: Any) -> None:
        self._builder = launched("T.If")
        self._cond = as_condition(condition)
        self._loc = here()
        self.arms: dict[str, tuple[Stmt, ...]] = {}
        self.inside = False

    def __enter__(self) -> None:
        self._token = _AROUND.set((*_AROUND.get(), self))
        self._builder.open()

    def __exit__(self, exc_type: object, *_: object) -> None:
        _AROUND.reset(self._token)
        if exc_type is not None:
            return  # the trace is lost
        if self._builder.close():
            raise _bad("a statement inside T.If that is in no arm", WAY_OUT, self._loc)
        if "T.Then" not in self.arms:
            raise _bad("T.If without T.Then", WAY_OUT, self._loc)
        then, orelse = self.arms["T.Then"], self.arms.get("T.Else", ())
        if isinstance(self._cond, Const):
            for stmt in then if self._cond.value else orelse:
                self._builder.emit(stmt)
            return
        self._builder.emit(IfStmt(self._cond, then, orelse=orelse, loc=self._loc))


WAY_OUT = "write `with T.If(condition): with T.Then(): ...`, or Python's own `if`"
_AROUND: ContextVar[tuple[If, ...]] = ContextVar("branches", default=())


class _Arm:
    name = ""

    def __init__(self) -> None:
        self._builder = build.current(self.name)
        around = _AROUND.get()
        if not around or around[-1].inside:
            raise _bad(f"{self.name} outside T.If", WAY_OUT)
        self._of = around[-1]
        if self.name in self._of.arms:
            raise _bad(f"a second {self.name} of one T.If", WAY_OUT)
        if self.name == "T.Else" and not self._of.arms:
            raise _bad("T.Else before T.Then", WAY_OUT)

    def __enter__(self) -> None:
        self._of.inside = True
        self._builder.loops.append("if")
        self._builder.open()

    def __exit__(self, exc_type: object, *_: object) -> None:
        if exc_type is not None:
            return  # the trace is lost
        self._builder.loops.pop()
        self._of.inside = False
        self._of.arms[self.name] = self._builder.close()


class Then(_Arm):
    """The body of `T.If` where the condition holds."""

    name = "T.Then"


class Else(_Arm):
    """The body of `T.If` where the condition does not hold."""

    name = "T.Else"
