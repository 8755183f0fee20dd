"""Reducers are open where they are used: a check that changes nothing.

What enters: a function of the tile stage. What leaves: the same function; or a located error for a
contribution to a reducer, or its end, where it cannot be open, and for one at a wrong place.
"""

from __future__ import annotations

from tilelang.errors import TileError, error
from tilelang.ir.special import ReducerFinalize, ReducerInit, ReducerUpdate
from tilelang.ir.tile import Alloc, Block, Function, If, Launch, Parallel, Stmt
from tilelang.isa.target import Target
from tilelang.passes.lower_parallel import blocks, statements
from tilelang.scopes import Dialect, Memory, memory_of


def order_reducers(fn: Function, target: Target) -> Function:
    """Every reducer that is used may be open there."""
    del target
    for stmt in statements(fn.body):
        if isinstance(stmt, Launch):
            _Epochs(Dialect(fn.dialect)).block(stmt.body, nest=False)
    return fn


class _Epochs:
    """Whether reducers are open where they are used, as far as the order of statements tells:
    `opened` says so of each reducer, None where it depends on the way that a program takes.
    """

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.opened: dict[str, bool | None] = {}

    def block(self, body: Block, *, nest: bool) -> None:
        """Statements in order; `nest` says that they are iterations of a `T.Parallel`."""
        for stmt in body:
            self.statement(stmt, nest)

    def statement(self, stmt: Stmt, nest: bool) -> None:
        match stmt:
            case Alloc():
                if memory_of(self.dialect, stmt.buffer.scope) is Memory.REDUCER:
                    self.opened[stmt.buffer.name] = False
            case ReducerInit() | ReducerFinalize() if nest:
                done = "initialised" if isinstance(stmt, ReducerInit) else "finalized"
                raise _misplaced(stmt, f"a reducer is {done} inside T.Parallel")
            case ReducerUpdate() if not nest:
                where = f"the reducer {stmt.reducer.name} is updated outside T.Parallel"
                raise _misplaced(stmt, where)
            case ReducerInit():
                self.opened[stmt.reducer.name] = True
            case ReducerUpdate():
                self.needed(stmt)
            case ReducerFinalize():
                self.needed(stmt)
                self.opened[stmt.reducer.name] = False
            case _:
                self.inside(stmt, nest or isinstance(stmt, Parallel))

    def inside(self, stmt: Stmt, nest: bool) -> None:
        """The blocks of a statement, each of which may be left out."""
        before = dict(self.opened)
        after: list[dict[str, bool | None]] = []
        for body in blocks(stmt):
            self.opened = dict(before)
            self.block(body, nest=nest)
            after.append(self.opened)
        if not isinstance(stmt, If):
            after.append(before)
        self.opened = {
            name: state if all(other.get(name) is state for other in after) else None
            for name, state in (after[0] if after else before).items()
        }

    def needed(self, stmt: ReducerUpdate | ReducerFinalize) -> None:
        if self.opened.get(stmt.reducer.name) is False:
            raise error(
                "uninitialised",
                f"the reducer {stmt.reducer.name} is used when it is not open",
                stmt.loc,
                expected="T.reducer_init before, and T.finalize_reducer not yet",
            )


def _misplaced(stmt: Stmt, message: str) -> TileError:
    return error(
        "divergence",
        message,
        stmt.loc,
        expected="T.reducer_init and T.finalize_reducer by the block, updates by the iterations of"
        " T.Parallel",
    )
