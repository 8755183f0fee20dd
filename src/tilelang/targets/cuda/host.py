"""The host level of a program as the text of a Python function.

What enters: the statements outside kernels. What leaves: `def run(host, <parameters>, <sizes>)`,
in which arrays are addresses (ints), and the tables that its numbers refer to. `host` is the launch
at hand (`runtime/cuda`): it makes workspaces and tensor maps, and reports; `launch<n>` launches
kernel n.

Integers of the program are Python's, wrapped where they may leave their type.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tilelang.dtypes import DType
from tilelang.errors import InternalError
from tilelang.ir.affine import Analysis, is_countable
from tilelang.ir.expr import (
    Binary,
    BinaryOp,
    Cast,
    Const,
    Expr,
    Select,
    Unary,
    UnaryOp,
    Var,
    int_value,
)
from tilelang.ir.interval import Interval
from tilelang.ir.thread import (
    Addr,
    Array,
    At,
    Declare,
    Kernel,
    MakeTensorMap,
    Program,
    TensorMap,
)
from tilelang.ir.tile import (
    Assert,
    Assume,
    Block,
    Break,
    Continue,
    For,
    If,
    Let,
    Print,
    Stmt,
    While,
)
from tilelang.targets.cuda.statements import Failure, Notes
from tilelang.targets.cuda.types import memory_bits

_PLAIN = {
    BinaryOp.ADD: "+",
    BinaryOp.SUB: "-",
    BinaryOp.MUL: "*",
    BinaryOp.BITAND: "&",
    BinaryOp.BITOR: "|",
    BinaryOp.BITXOR: "^",
    **{op: op.value for op in BinaryOp if op.is_compare or op.is_logical},
}
_FLOAT = frozenset(
    {BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, *(op for op in BinaryOp if op.is_compare)}
)
"""What Python does with floats as float64 does."""
_CALLS = {
    BinaryOp.MIN: "min",
    BinaryOp.MAX: "max",
    BinaryOp.FLOORDIV: "floordiv",
    BinaryOp.FLOORMOD: "floormod",
    BinaryOp.DIV: "truncdiv",
    BinaryOp.TRUNCDIV: "truncdiv",
    BinaryOp.TRUNCMOD: "truncmod",
}


F64 = DType("float64")


@dataclass(frozen=True)
class MapFacts:
    """What of a tensor map is known before the launch: see `ir.thread.TensorMap`."""

    array: str
    dtype: str
    box: tuple[int, ...]
    swizzle: int
    l2_promotion: int
    nan_fill: bool


@dataclass
class Host:
    """The text of the function, and what it refers to by number."""

    lines: list[str] = field(default_factory=list[str])
    maps: list[MapFacts] = field(default_factory=list["MapFacts"])
    exprs: list[Expr] = field(default_factory=list[Expr])

    @property
    def text(self) -> str:
        """The source of the function."""
        return "\n".join(self.lines) + "\n"


class HostWriter:
    """Writes the host level of one program. `kernel` emits a kernel and gives its number."""

    def __init__(self, program: Program, notes: Notes, kernel: Callable[[Kernel], int]) -> None:
        self.host = Host()
        self.notes = notes
        self.kernel = kernel
        self.names: dict[str, str] = {}
        self.ranges: dict[Var, Interval] = {v: Interval(0, None) for v in program.dynamic}
        self.known = Analysis(self.ranges, wraps=True)
        self.depth = 1
        names = [p.name for p in program.params]
        for p in program.params:
            thing = p.array or p.var
            self.names[thing.name if thing else p.name] = self._free(p.name)
        for v in program.dynamic:
            names.append(v.name)
            self.names[v.name] = self._free(v.name)
        args = [self._free(n) for n in names]
        self.host.lines.append(f"def run({', '.join(['host', *args])}):")
        self.body(program.body)

    def _free(self, name: str) -> str:
        taken = keyword.iskeyword(name) or name in _TAKEN
        return f"{name}_" if taken or not name.isascii() else name

    def add(self, text: str) -> None:
        """One line."""
        self.host.lines.append("    " * self.depth + text)

    def body(self, body: Block) -> None:
        """Statements; at least one line."""
        first = len(self.host.lines)
        for stmt in body:
            self.statement(stmt)
        if len(self.host.lines) == first:
            self.add("pass")

    def inner(self, head: str, body: Block) -> None:
        """An indented block."""
        self.add(head)
        self.depth += 1
        self.body(body)
        self.depth -= 1

    def statement(self, stmt: Stmt) -> None:  # noqa: C901, PLR0912 - one case for each statement
        """One statement."""
        match stmt:
            case Let():
                if is_countable(stmt.var.type):
                    self.ranges[stmt.var] = self.known.bounds(stmt.value)
                self.add(f"{self.bound(stmt.var.name)} = {self.of(stmt.value)}")
            case Declare():
                self._workspace(stmt)
            case At():
                self.add(f"{self.bound(stmt.array.name)} = {self.of(stmt.address)}")
            case MakeTensorMap():
                self._map(stmt.map)
            case Kernel():
                self._launch(stmt)
            case If():
                self.inner(f"if {self.of(stmt.cond)}:", stmt.then)
                if stmt.orelse:
                    self.inner("else:", stmt.orelse)
            case For():
                step = "1" if stmt.step is None else self.of(stmt.step)
                bounds = f"{self.of(stmt.start)}, {self.of(stmt.stop)}, {step}"
                self.inner(f"for {self.bound(stmt.var.name)} in range({bounds}):", stmt.body)
            case While():
                self.inner(f"while {self.of(stmt.cond)}:", stmt.body)
            case Break():
                self.add("break")
            case Continue():
                self.add("continue")
            case Assert():
                number = self.notes.failure(Failure(stmt.message, stmt.loc, stmt.kind))
                self.add(f"if not ({self.of(stmt.cond)}): host.fail({number})")
            case Assume():
                pass
            case Print(value=None):
                self.add(f"print({stmt.message!r})")
            case _:
                raise InternalError(f"{type(stmt).__name__} at host level")

    def bound(self, name: str) -> str:
        """The Python name of a name defined here."""
        self.names[name] = self._free(name)
        return self.names[name]

    def _workspace(self, stmt: Declare) -> None:
        array = stmt.array
        if array.size is None:
            raise InternalError(f"the workspace {array.name} has no size")
        size = f"{self.of(array.size)} * {memory_bits(array.type) // 8}"
        attrs = ", zero=True" if stmt.init is not None else ""
        self.add(f"{self.bound(array.name)} = host.workspace({size}{attrs})")

    def _map(self, m: TensorMap) -> None:
        number = len(self.host.maps)
        self.host.maps.append(
            MapFacts(m.array.name, m.array.type.name, m.box, m.swizzle, m.l2_promotion, m.nan_fill)
        )
        dims = "".join(f"{self.of(e)}, " for e in m.dims)
        strides = "".join(f"{self.of(e)}, " for e in m.strides)
        args = f"{number}, {self.names[m.array.name]}, ({dims}), ({strides})"
        self.add(f"{self.bound(m.name)} = host.tensor_map({args})")

    def _launch(self, k: Kernel) -> None:
        number = self.kernel(k)
        grid = [*(self.of(e) for e in k.grid), "1", "1"][:3]
        args = ", ".join(["host", *grid, *(self.names[p.name] for p in k.params)])
        self.add(f"launch{number}({args})")

    # Expressions ---------------------------------------------------------------------------------

    def of(self, e: Expr) -> str:  # noqa: PLR0911 - one case for each kind of expression
        """An expression on Python numbers."""
        match e:
            case Const():
                return (
                    repr(e.value)
                    if int_value(e) is not None or e.type.is_bool or e.type == F64
                    else self._other(e)
                )
            case Var():
                return self.names[e.name]
            case Addr(array=Array() as array) if e.type.is_handle:
                size = memory_bits(array.type) // 8
                return f"({self.names[array.name]} + {self.of(e.index)} * {size})"
            case Binary() if is_countable(e.a.dtype):
                return self._binary(e)
            case Binary(op=op) if e.a.dtype == F64 and op in _FLOAT:
                return f"({self.of(e.a)} {op.value} {self.of(e.b)})"
            case Unary(op=UnaryOp.NOT):
                return f"(not {self.of(e.a)})"
            case Unary() if is_countable(e.dtype) and not e.dtype.is_bool:
                sign = "-" if e.op is UnaryOp.NEG else "~"
                return self._wrapped(f"({sign}{self.of(e.a)})", e.dtype)
            case Select():
                return f"({self.of(e.t)} if {self.of(e.cond)} else {self.of(e.f)})"
            case Cast() if is_countable(e.a.dtype) or e.a.dtype.is_handle:
                return self._cast(e)
            case _:
                return self._other(e)

    def _binary(self, e: Binary) -> str:
        a, b = self.of(e.a), self.of(e.b)
        if e.op in _PLAIN:
            text = f"({a} {_PLAIN[e.op]} {b})"
        elif e.op in (BinaryOp.FLOORDIV, BinaryOp.FLOORMOD) and (int_value(e.b) or 0) > 0:
            return f"({a} {e.op.value} {b})"
        elif e.op in _CALLS:
            text = f"{_CALLS[e.op]}({a}, {b})"
        else:
            return self._other(e)
        exact = e.op.is_compare or e.op.is_logical or e.op in (BinaryOp.MIN, BinaryOp.MAX)
        return text if exact or e.dtype.is_bool else self._wrapped(text, e.dtype)

    def _cast(self, e: Cast) -> str:
        a = self.of(e.a)
        if e.type.is_bool:
            return f"({a} != 0)"
        if e.type == F64 and not e.a.dtype.is_handle:
            return f"float({a})"
        if not (is_countable(e.type) or e.type.is_handle):
            return self._other(e)
        src = e.a.dtype
        grows = not src.is_handle and e.type.bits > src.bits and (src.is_uint or e.type.is_int)
        return f"int({a})" if src.is_bool else a if grows else self._wrapped(a, e.type)

    def _wrapped(self, text: str, dtype: DType) -> str:
        if dtype.is_uint or dtype.is_handle:
            return f"({text} & {(1 << dtype.bits) - 1})"
        half = 1 << (dtype.bits - 1)
        return f"(({text} + {half}) % {2 * half} - {half})"

    def _other(self, e: Expr) -> str:
        """What is rare: evaluated from the tree."""
        number = len(self.host.exprs)
        self.host.exprs.append(e)
        names = dict.fromkeys(n.name for n in e.walk() if isinstance(n, Var))
        values = ", ".join(f"{n!r}: {self.names[n]}" for n in names)
        return f"host.evaluate({number}, {{{values}}})"


_TAKEN = frozenset(
    {"host", "run", "min", "max", "int", "float", "print", "range", *_CALLS.values()}
)


def truncdiv(a: int, b: int) -> int:
    """Quotient towards zero; 0 for a zero divisor."""
    if b == 0:
        return 0
    return a // b if (a < 0) == (b < 0) else -(-a // b)


def truncmod(a: int, b: int) -> int:
    """Remainder with the sign of the dividend; 0 for a zero divisor."""
    return a - b * truncdiv(a, b) if b else 0


def floordiv(a: int, b: int) -> int:
    """Floor quotient; 0 for a zero divisor."""
    return a // b if b else 0


def floormod(a: int, b: int) -> int:
    """Remainder with the sign of the divisor; 0 for a zero divisor."""
    return a % b if b else 0


HELPERS: dict[str, Any] = {f.__name__: f for f in (floordiv, floormod, truncdiv, truncmod)}
"""What the text calls, beside Python's own functions."""
