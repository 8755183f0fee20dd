"""Short forms for writing rows: operands, sources, and a table whose rows are made when asked for.

What enters: names and facts. What leaves: `OperandRow`s, `InstrRow`s and `LazyRows`.

A template is PTX. `{x}` stands for an operand: elements in registers are a brace list of 32-bit
(or 64-bit) registers, memory is its address (a 32-bit one for shared memory), a bool is 0 or 1.
`{x}` of an immediate is its text; `{x:a|b}` is `a`, with `%` replaced by the value, or `b` where
the immediate is false or absent. `{x.ptx}` is the PTX type of an element, `{x.ptx_add}` that of an
addition (`noftz.f16`), `{x.ptx_bits}` that of its bits (`b32`). `{x.warps}` of a number of threads
is that of all in their warps. `%=` makes a label unique, `%%` is a percent sign.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tilelang.errors import InternalError
from tilelang.ir.node import Effect
from tilelang.ir.thread import Space
from tilelang.isa.instr import Immediate, InstrRow, Is, OperandRow
from tilelang.isa.target import Capability

R, W, U = Effect.READ, Effect.WRITE, Effect.UPDATE
ATOMIC, ASYNC = Effect.ATOMIC, Effect.ASYNC
SHARED, GLOBAL, REGISTER = (Space.SHARED,), (Space.GLOBAL,), (Space.REGISTER,)
COUNTS = ("int32", "uint32")
"""The dtypes of a scalar that PTX takes as .u32."""


def slot(
    name: str, effect: Effect = R, spaces: tuple[Space, ...] = SHARED, **facts: Any
) -> OperandRow:
    """Elements of an array."""
    return OperandRow(name, effect, spaces=spaces, **facts)


def registers(name: str, effect: Effect, count: int, *dtypes: str) -> OperandRow:
    """`count` elements in registers of each thread."""
    return OperandRow(name, effect, spaces=REGISTER, count=count, dtypes=dtypes)


def value(name: str, *dtypes: str, like: str = "") -> OperandRow:
    """A scalar that is read."""
    return OperandRow(name, kind=Is.VALUE, dtypes=dtypes, like=like)


def result(name: str, *dtypes: str, like: str = "") -> OperandRow:
    """A scalar that is computed."""
    return OperandRow(name, W, kind=Is.VALUE, dtypes=dtypes, like=like)


def barrier(effect: Effect = U | ATOMIC) -> OperandRow:
    """One mbarrier."""
    return slot("barrier", effect, dtypes=("uint64",), count=1)


def ptx(
    name: str, title: str, template: str | None, needs: Capability | None = None, **facts: Any
) -> InstrRow:
    """A row of an instruction that the PTX ISA describes under `title`."""
    return InstrRow(name, f"PTX ISA 9.0, {title}", capability=needs, template=template, **facts)


def choice(name: str, *choices: int | str, optional: bool = False) -> Immediate:
    """An immediate that is one of `choices`, which are of one type."""
    kind = str if isinstance(choices[0], str) else int
    return Immediate(name, kind, choices, optional)


Maker = Callable[[], InstrRow]


def made(rows: Iterable[InstrRow]) -> Iterator[tuple[str, Maker]]:
    """Rows that exist, as parts of a `LazyRows`."""

    def giver(row: InstrRow) -> Maker:
        return lambda: row

    return ((row.name, giver(row)) for row in rows)


class LazyRows(Mapping[str, InstrRow]):
    """Rows by name; each is made when it is first asked for, since a family has hundreds."""

    def __init__(self, *parts: Iterable[tuple[str, Maker]]) -> None:
        self._makers: dict[str, Maker] = {}
        self._rows: dict[str, InstrRow] = {}
        for part in parts:
            for name, make in part:
                if name in self._makers:
                    raise InternalError(f"two rows are called {name!r}")
                self._makers[name] = make

    def __getitem__(self, name: str) -> InstrRow:
        row = self._rows.get(name)
        if row is None:
            row = self._rows[name] = self._makers[name]()
            if row.name != name:
                raise InternalError(f"the row {row.name!r} is listed as {name!r}")
        return row

    def __contains__(self, name: object) -> bool:
        return name in self._makers

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)
