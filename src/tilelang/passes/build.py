"""Small parts that passes make statements from: fresh names, sums of indices, loops, regions.

What enters: expressions and statements of the tile stage. What leaves: new ones, with constants
folded where that is plain to see, so that the text of a lowered program stays readable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, cast

from tilelang.dtypes import DType
from tilelang.errors import Loc, TileError, error
from tilelang.ir.expr import (
    BOOL,
    INT32,
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Const,
    Expr,
    Load,
    Region,
    Var,
    const,
    int_value,
)
from tilelang.ir.interval import limits
from tilelang.ir.node import Kind, Node
from tilelang.ir.thread import Array, Kernel, Program
from tilelang.ir.tile import Alloc, Block, For, Function, Launch, LoopKind, Parallel, Stmt, Store


class Names:
    """The names of a program, and new ones that differ from all of them."""

    def __init__(self, root: Node) -> None:
        self.taken = {n.name for n in named(root)}
        self._last: dict[str, int] = {}

    def name(self, hint: str) -> str:
        """`hint`, or `hint_1`, `hint_2`, ... where it is taken; from now on the name is taken."""
        found, n = hint, self._last.get(hint, 0)
        while found in self.taken:
            n += 1
            found = f"{hint}_{n}"
        self._last[hint] = n
        self.taken.add(found)
        return found

    def var(self, hint: str, dtype: DType = INT32) -> Var:
        """A variable with a new name."""
        return Var(self.name(hint), dtype)

    def buffer(
        self, hint: str, dtype: DType, shape: Sequence[int | Expr], scope: str = "local.fragment"
    ) -> Buffer:
        """A buffer with a new name."""
        sizes = tuple(n if isinstance(n, Expr) else const(n) for n in shape)
        return Buffer(self.name(hint), dtype, sizes, scope=scope)


def named(root: Node) -> Iterator[Any]:
    """Everything with a name that occurs in or is defined by `root`, possibly several times."""
    seen: set[int] = set()
    stack: list[Node] = [root]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if hasattr(node, "name") and not isinstance(node, Function):
            yield node
        stack.extend(node.children())
        stack.extend(node.defined())


def renamed(body: Block, names: Names) -> Block:
    """A copy of statements in which everything that they define has a new name."""
    return Renamer(names).block(body)


class Renamer:
    """Copies nodes, with a new name for everything that they define."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.map: dict[str, Node] = {}

    def block(self, body: Block) -> Block:
        """A copy of statements."""
        return tuple(cast("Stmt", self.of(s)) for s in body)

    def of(self, node: Node) -> Node:
        """A copy of a node; what was defined in nodes copied before has its new name."""
        if isinstance(node, (Var, Buffer, Array)):
            found = self.map.get(node.name)
            if found is not None:
                return found
        changes: dict[str, Any] = {}
        for f in self.order(node):
            old = getattr(node, f.name)
            if f.metadata["kind"] is Kind.BINDS:
                new = self.bind(old)
            elif f.metadata["kind"] in (Kind.OPERAND, Kind.BODY):
                new = self.value(old)
            else:
                continue
            if new is not old:
                changes[f.name] = new
        return node.with_(**changes) if changes else node

    def order(self, node: Node) -> list[Any]:
        """Operands, then what is defined, then bodies."""
        rank = {Kind.OPERAND: 0, Kind.BINDS: 1, Kind.BODY: 2}
        return sorted(
            (f for f in node.fields() if f.metadata["kind"] in rank),
            key=lambda f: rank[f.metadata["kind"]],
        )

    def value(self, old: Any) -> Any:
        """A copy of the value of a field."""
        if isinstance(old, tuple):
            items = cast("tuple[Any, ...]", old)
            new = tuple(self.value(x) for x in items)
            return new if any(a is not b for a, b in zip(items, new, strict=True)) else items
        return self.of(old) if isinstance(old, Node) else old

    def bind(self, old: Any) -> Any:
        """New names for what a field defines."""
        if isinstance(old, tuple):
            return tuple(self.bind(x) for x in cast("tuple[Any, ...]", old))
        if not isinstance(old, (Var, Buffer, Array)):
            return old
        inner = cast("Buffer", self.fresh_shape(old)) if isinstance(old, Buffer) else old
        new = inner.with_(name=self.names.name(old.name))
        self.map[old.name] = new
        return new

    def fresh_shape(self, buffer: Buffer) -> Node:
        """A buffer whose shape has the new names."""
        changes = {
            f: new
            for f in ("shape", "strides")
            if (new := self.value(getattr(buffer, f))) is not getattr(buffer, f)
        }
        return buffer.with_(**changes) if changes else buffer


# Scalars -----------------------------------------------------------------------------------------


def as_type(e: Expr, dtype: DType) -> Expr:
    """`e` converted by value, if it has another dtype; an integer literal stays a literal."""
    if e.dtype == dtype:
        return e
    value = int_value(e)
    if value is not None and dtype.is_integer:
        low, high = limits(dtype)
        if low <= value <= high:
            return Const(value, dtype)
    return Cast(e, dtype)


def _common(a: Expr | int, b: Expr | int) -> tuple[Expr, Expr]:
    like = b.dtype if isinstance(b, Expr) else INT32
    x = Const(a, like) if isinstance(a, int) else a
    y = Const(b, x.dtype) if isinstance(b, int) else b
    if x.dtype == y.dtype:
        return x, y
    wide = x.dtype if x.dtype.bits >= y.dtype.bits else y.dtype
    return as_type(x, wide), as_type(y, wide)


def plus(a: Expr | int, b: Expr | int) -> Expr:
    """The sum of two indices; the wider dtype where they differ."""
    x, y = _common(a, b)
    m, n = int_value(x), int_value(y)
    if m is not None and n is not None:
        return Const(m + n, x.dtype)
    if m == 0 or n == 0:
        return y if m == 0 else x
    return Binary(BinaryOp.ADD, x, y)


def minus(a: Expr | int, b: Expr | int) -> Expr:
    """The difference of two indices."""
    x, y = _common(a, b)
    m, n = int_value(x), int_value(y)
    if m is not None and n is not None:
        return Const(m - n, x.dtype)
    return x if n == 0 else Binary(BinaryOp.SUB, x, y)


def times(a: Expr | int, b: Expr | int) -> Expr:
    """The product of two indices."""
    x, y = _common(a, b)
    m, n = int_value(x), int_value(y)
    if m is not None and n is not None:
        return Const(m * n, x.dtype)
    if 0 in (m, n):
        return Const(0, x.dtype)
    if m == 1 or n == 1:
        return y if m == 1 else x
    return Binary(BinaryOp.MUL, x, y)


def compare(op: BinaryOp, a: Expr | int, b: Expr | int) -> Expr:
    """A comparison of two indices."""
    return Binary(op, *_common(a, b))


def both(conditions: Iterable[Expr]) -> Expr:
    """All conditions; True without any."""
    out: Expr | None = None
    for c in dict.fromkeys(conditions):
        out = c if out is None else Binary(BinaryOp.AND, out, c)
    return Const(True, BOOL) if out is None else out


def literal(value: float, dtype: DType) -> Const:
    """A number as a literal of a dtype that holds it."""
    if dtype.is_bool:
        return Const(bool(value), dtype)
    return Const(float(value), dtype) if dtype.is_float else Const(int(value), dtype)


# Regions and loops -------------------------------------------------------------------------------


def element(region: Region, at: Sequence[Expr]) -> Load:
    """The element of a region at a place counted from its first one."""
    return Load(region.buffer, shifted(region, at), loc=region.loc)


def shifted(region: Region, at: Sequence[Expr]) -> tuple[Expr, ...]:
    """The indices in the buffer of a place counted from the first element of the region."""
    return tuple(plus(low, k) for low, k in zip(region.mins, at, strict=True))


def whole(buffer: Buffer, loc: Loc | None = None) -> Region:
    """All of a buffer."""
    zeros = tuple(Const(0, n.dtype) for n in buffer.shape)
    return Region(buffer, zeros, buffer.shape, loc=loc)


def static_extents(region: Region) -> tuple[int, ...] | None:
    """The extents as numbers; None unless all are known."""
    found = [int_value(e) for e in region.extents]
    return None if None in found else tuple(cast("list[int]", found))


def loops_over(extents: Sequence[Expr], names: Names, hint: str = "i") -> tuple[Var | None, ...]:
    """A new variable for each axis; None for one of extent 1."""
    letters = "ijklmn"
    start = letters.find(hint)
    out: list[Var | None] = []
    for axis, extent in enumerate(extents):
        letter = letters[start + axis] if 0 <= start + axis < len(letters) else f"i{axis}"
        out.append(None if int_value(extent) == 1 else names.var(letter, extent.dtype))
    return tuple(out)


def place(loops: Sequence[Var | None], extents: Sequence[Expr]) -> list[Expr]:
    """The loop variables as indices, 0 where an axis has no loop."""
    return [Const(0, e.dtype) if v is None else v for v, e in zip(loops, extents, strict=True)]


def parallel(
    loops: Sequence[Var | None], extents: Sequence[Expr], body: Block, loc: Loc | None
) -> Block:
    """A parallel nest over the axes that have a loop."""
    real = [(v, e) for v, e in zip(loops, extents, strict=True) if v is not None]
    if not real:
        return body
    return (Parallel(tuple(v for v, _ in real), tuple(e for _, e in real), body, loc=loc),)


def serial(var: Var, stop: Expr | int, body: Block, loc: Loc | None, start: Expr | int = 0) -> For:
    """A sequential loop."""
    first, last = (x if isinstance(x, Expr) else Const(x, var.dtype) for x in (start, stop))
    return For(var, as_type(first, var.dtype), as_type(last, var.dtype), body, loc=loc)


def lanes(var: Var, count: int, body: Block, loc: Loc | None) -> For:
    """A loop in lockstep."""
    return For(
        var, Const(0, var.dtype), Const(count, var.dtype), body, kind=LoopKind.VECTORIZED, loc=loc
    )


def set_scalar(buffer: Buffer, value: Expr, loc: Loc | None) -> Store:
    """Gives a variable of one element a value."""
    return Store(buffer, (const(0),), value, loc=loc)


def get_scalar(buffer: Buffer) -> Load:
    """The value of a variable of one element."""
    return Load(buffer, (const(0),))


def variable(hint: str, dtype: DType, names: Names, loc: Loc | None) -> tuple[Buffer, Alloc]:
    """A variable of one element, without a first value, and its allocation."""
    buffer = names.buffer(hint, dtype, (1,), "local")
    return buffer, Alloc(buffer, loc=loc)


# Statements at any depth --------------------------------------------------------------------------


def blocks(stmt: Stmt) -> Iterator[Block]:
    """The blocks of a statement."""
    for name, is_body in stmt.parts():
        if is_body:
            yield stmt.__dict__[name]


def statements(body: Block) -> Iterator[Stmt]:
    """Every statement at any depth, in program order."""
    stack = list(reversed(body))
    while stack:
        stmt = stack.pop()
        yield stmt
        for inner in reversed(tuple(blocks(stmt))):
            stack.extend(reversed(inner))


# Rewriting statements ----------------------------------------------------------------------------

OnStmt = Callable[[Stmt], "Block | None"]


def map_statements(body: Block, on: OnStmt) -> Block:
    """`body` with each statement replaced by what `on` gives for it, children first; None keeps."""
    out: list[Stmt] = []
    for stmt in body:
        inner = map_bodies(stmt, lambda b: map_statements(b, on))
        new = on(inner)
        out.extend((inner,) if new is None else new)
    return tuple(out)


def map_bodies(stmt: Stmt, on: Callable[[Block], Block]) -> Stmt:
    """A statement with its blocks replaced."""
    changes: dict[str, Any] = {}
    for name, is_body in stmt.parts():
        if is_body:
            old = stmt.__dict__[name]
            new = on(old)
            if len(new) != len(old) or any(a is not b for a, b in zip(old, new, strict=True)):
                changes[name] = new
    return stmt.with_(**changes) if changes else stmt


def map_launches(fn: Function, on: Callable[[Block], Block]) -> Function:
    """A function with the bodies of its launches replaced; itself where none changes."""

    def one(stmt: Stmt) -> Block | None:
        return (map_bodies(stmt, on),) if isinstance(stmt, Launch) else None

    body = map_statements(fn.body, one)
    same = len(body) == len(fn.body) and all(a is b for a, b in zip(body, fn.body, strict=True))
    return fn if same else fn.with_(body=body)


def map_kernels(program: Program, on: Callable[[Kernel], Kernel]) -> Program:
    """A program with its kernels replaced; only the host level is looked through."""

    def block(body: Block) -> Block:
        return tuple(on(s) if isinstance(s, Kernel) else map_bodies(s, block) for s in body)

    return program.with_(body=block(program.body))


def unsupported(stmt: Node, what: str) -> TileError:
    """The error for a program that is right and that this target does not run."""
    return error(
        "target",
        f"{what} cannot run with one thread per block",
        stmt.loc,
        help='run it with target="emulate", which has every operation',
    )
