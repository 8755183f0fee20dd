"""Instruction rows: one row says all about one instruction of the thread stage.

What enters: the facts of an instruction, checked as a row is made. What leaves: rows that an
`ir.thread.Instr` names, and the check of a statement against its row. Selection, effects, the
simulator, emission and the generated tests read the row and nothing else.
"""

from __future__ import annotations

import enum
import string
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tilelang.dtypes import DType
from tilelang.errors import InternalError
from tilelang.ir.expr import Expr
from tilelang.ir.node import Effect
from tilelang.ir.thread import Instr, Operand, Slot, Space, TensorMap
from tilelang.ir.verify_thread import may_be_aligned
from tilelang.isa.target import Capability


class Is(enum.Enum):
    """What an operand is."""

    SLOT = "elements of an array"
    VALUE = "a scalar"
    MAP = "a tensor map"


@dataclass(frozen=True)
class OperandRow:
    """One operand: what it is, and what the instruction does to it.

    For a SLOT: `spaces` it may lie in, `count` elements of it (None for any number) or `bits` of
    elements of any size, alignment in bytes. `dtypes` are those allowed, empty for all; `like`
    names another operand whose dtype it has. ASYNC in `effect` says that the access may still be
    under way afterwards, until the wait that the row names in `until`.
    """

    name: str
    effect: Effect = Effect.READ
    kind: Is = Is.SLOT
    spaces: tuple[Space, ...] = ()
    dtypes: tuple[str, ...] = ()
    like: str = ""
    count: int | None = None
    bits: int | None = None
    align: int = 0


@dataclass(frozen=True)
class Immediate:
    """One immediate: a name, its type, and the values allowed (all of the type where empty)."""

    name: str
    type: type = int
    choices: tuple[Any, ...] = ()
    optional: bool = False


@dataclass(frozen=True)
class InstrRow:
    """One instruction.

    `outs`, `ins` and `results` are in the order of the statement's operands. `threads` is how many
    threads execute it together (1, a warp's 32, a warpgroup's 128; 0 for all of a block).
    `until` names the rows of which one must follow before an ASYNC operand is there. `waits` says
    that the instruction may block the thread; `orders` names what it orders (a fence or barrier).
    `template` is the emitted text with `{operand}` fields, None where an emitter has code for it.
    `meaning` gets the operands (arrays by reference) and immediates by name and gives the results.
    `source` is the document that defines it.
    """

    name: str
    source: str
    outs: tuple[OperandRow, ...] = ()
    ins: tuple[OperandRow, ...] = ()
    results: tuple[OperandRow, ...] = ()
    imm: tuple[Immediate, ...] = ()
    capability: Capability | None = None
    threads: int = 1
    until: tuple[str, ...] = ()
    waits: bool = False
    orders: str = ""
    template: str | None = None
    meaning: Callable[..., Any] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        faults = list(_broken_row(self))
        if faults:
            raise InternalError(f"the row {self.name!r}: {'; '.join(faults)}")

    @property
    def operands(self) -> tuple[OperandRow, ...]:
        """All operands: results, outs, ins."""
        return (*self.results, *self.outs, *self.ins)


Rows = Mapping[str, InstrRow]


def table(rows: Iterable[InstrRow]) -> dict[str, InstrRow]:
    """The rows by name; two of one name are refused."""
    found: dict[str, InstrRow] = {}
    for row in rows:
        if row.name in found:
            raise InternalError(f"two rows are called {row.name!r}")
        found[row.name] = row
    return found


def _broken_row(row: InstrRow) -> Iterator[str]:
    names = [o.name for o in row.operands] + [i.name for i in row.imm]
    if len(set(names)) != len(names):
        yield "two operands have one name"
    if not row.source:
        yield "no source is named"
    if row.threads not in (0, 1, 32, 128):
        yield f"{row.threads} threads execute no instruction together"
    yield from _broken_operands(row)
    if any(o.effect & Effect.ASYNC for o in row.operands) != bool(row.until):
        yield "an ASYNC operand needs `until`, and `until` an ASYNC operand"
    if row.template is not None:
        for _, name, _, _ in string.Formatter().parse(row.template):
            if name and name.split("[")[0].split(".")[0] not in names:
                yield f"the template names {name!r}, which is no operand"


def _broken_operands(row: InstrRow) -> Iterator[str]:
    for o in row.operands:
        yield from _broken_operand(row, o)
    for o in row.outs:
        if o.kind is not Is.SLOT or not o.effect & Effect.WRITE:
            yield f"{o.name} is an out, so it must be elements that are written"
    for o in row.ins:
        if o.effect & Effect.WRITE:
            yield f"{o.name} is written, so it must be an out"


def _broken_operand(row: InstrRow, o: OperandRow) -> Iterator[str]:
    if o.kind is not Is.SLOT and (o.spaces or o.count is not None or o.bits or o.align):
        yield f"{o.name} is no slot, so it has no space, count or alignment"
    if o.like and (o.dtypes or o.like not in {p.name for p in row.operands if p is not o}):
        yield f"{o.name} is like {o.like!r}"
    for name in o.dtypes:
        try:
            DType(name)
        except ValueError as e:
            yield f"{o.name}: {e}"


# Statements against rows -------------------------------------------------------------------------


def checker(rows: Rows) -> Callable[[Instr], Iterator[str]]:
    """A function that says what is wrong with an `Instr` statement, for `verify_program`."""

    def check(stmt: Instr) -> Iterator[str]:
        row = rows.get(stmt.row)
        if row is None:
            yield f"no instruction is called {stmt.row!r}"
        else:
            yield from broken_instr(row, stmt)

    return check


def broken_instr(row: InstrRow, stmt: Instr) -> Iterator[str]:
    """What is wrong with a statement, by its row."""
    dtypes: dict[str, DType] = {}
    for what, wanted, given in (
        ("results", row.results, stmt.results),
        ("outs", row.outs, stmt.outs),
        ("ins", row.ins, stmt.ins),
    ):
        if len(wanted) != len(given):
            yield f"{row.name} has {len(wanted)} {what}, got {len(given)}"
            return
        for o, node in zip(wanted, given, strict=True):
            yield from _broken_use(row, o, node)
            if not isinstance(node, TensorMap):
                dtypes[o.name] = node.dtype
    for o in row.operands:
        if o.like and o.name in dtypes and dtypes.get(o.like) != dtypes[o.name]:
            yield f"{o.name} of {row.name} is {dtypes[o.name]}, {o.like} is {dtypes.get(o.like)}"
    yield from _broken_imm(row, dict(stmt.imm))


def _broken_use(row: InstrRow, o: OperandRow, node: Operand) -> Iterator[str]:
    where = f"{o.name} of {row.name}"
    given = Is.SLOT if isinstance(node, Slot) else Is.VALUE if isinstance(node, Expr) else Is.MAP
    if given is not o.kind:
        yield f"{where} is {given.value}, expected {o.kind.value}"
        return
    if isinstance(node, TensorMap):
        return
    if o.dtypes and node.dtype not in o.dtypes:
        yield f"{where} is {node.dtype}, expected {' or '.join(o.dtypes)}"
    if isinstance(node, Slot):
        if o.spaces and node.array.space not in o.spaces:
            expected = " or ".join(s.value for s in o.spaces)
            yield f"{where} is in {node.array.space.value} memory, expected {expected}"
        if o.count is not None and node.count != o.count:
            yield f"{where} has {node.count} elements, expected {o.count}"
        if o.bits is not None and node.count * node.dtype.bits != o.bits:
            yield f"{where} has {node.count * node.dtype.bits} bits, expected {o.bits}"
        if o.align and not may_be_aligned(node.array, node.index, o.align, {}):
            yield f"{where} is not aligned to {o.align} bytes"


def _broken_imm(row: InstrRow, given: dict[str, Any]) -> Iterator[str]:
    for i in row.imm:
        if i.name not in given:
            if not i.optional:
                yield f"{row.name} lacks the immediate {i.name!r}"
            continue
        value = given.pop(i.name)
        if type(value) is not i.type or (i.choices and value not in i.choices):
            expected = ", ".join(map(repr, i.choices)) or i.type.__name__
            yield f"{i.name} of {row.name} is {value!r}, expected {expected}"
    for name in given:
        yield f"{row.name} has no immediate {name!r}"
