"""Faults planted into programs of Ascend core groups: one change to one flag, barrier or wait.

Every instruction that orders is dropped, given another number, and moved past the instruction that
it orders: a flag is raised before what it covers, a wait stands behind what it guards. (A move past
an instruction of another pipe changes nothing: the pipes get the same.) What leaves: each changed
program with the words for the change.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tilelang.ir.expr import const, int_value
from tilelang.ir.node import Kind
from tilelang.ir.thread import Instr, Program
from tilelang.ir.tile import Stmt
from tilelang.targets.ascend.rows import PipeRow, rows_of

ROWS = rows_of("ascend910b")
ORDERS = ("flag.set", "flag.wait", "barrier", "cross.set", "cross.wait")
Change = Callable[[tuple[Stmt, ...], int], tuple[Stmt, ...]]


@dataclass(frozen=True)
class Fault:
    """A program with one change; `at` is the instruction that was changed."""

    name: str
    program: Program
    at: Instr


def drop(body, k):
    return (*body[:k], *body[k + 1 :])


def moved(body, k):
    """Past the nearest instruction of its pipe: a set to the front, a wait to the back."""
    stmt = body[k]
    imm = dict(stmt.imm)
    raises = stmt.row.endswith("set")
    pipe = imm["src" if raises else "dst"] if stmt.row.startswith("flag") else imm["pipe"]
    step = -1 if raises else 1
    at = k + step
    while 0 <= at < len(body) and not works_on(body[at], pipe):
        at += step
    if not 0 <= at < len(body):
        return body
    rest = [*body[:k], *body[k + 1 :]]
    rest.insert(at, stmt)
    return tuple(rest)


def works_on(stmt, pipe):
    """Whether a statement is an instruction of a pipe ("ALL": of any)."""
    if not isinstance(stmt, Instr) or stmt.row in ORDERS:
        return False
    row = ROWS[stmt.row]
    return isinstance(row, PipeRow) and pipe in (row.pipe.value, "ALL")


def renumbered(body, k):
    stmt = body[k]
    return (*body[:k], stmt.with_(ins=(const(5), *stmt.ins[1:])), *body[k + 1 :])


CHANGES: dict[str, Change] = {
    "dropped": drop,
    "moved": moved,
    "renumbered": renumbered,
}


def places(program: Program) -> list[Instr]:
    """The instructions that order, in the order of the text."""
    return [n for n in program.walk() if isinstance(n, Instr) and n.row in ORDERS]


def changed(program: Program, number: int, change: Change) -> Program | None:
    """The program with one change at the `number`-th instruction that orders."""
    left = [number]

    def visit(node: Any) -> Any:
        changes: dict[str, Any] = {}
        for f in node.fields():
            if f.metadata["kind"] is not Kind.BODY:
                continue
            body = getattr(node, f.name)
            made = block(body)
            if made is not body:
                changes[f.name] = made
        return node.with_(**changes) if changes else node

    def block(body):
        for k, stmt in enumerate(body):
            if isinstance(stmt, Instr) and stmt.row in ORDERS:
                if left[0] == 0:
                    left[0] = -1
                    return change(body, k)
                left[0] -= 1
            made = visit(stmt)
            if made is not stmt:
                return (*body[:k], made, *body[k + 1 :])
        return body

    made = visit(program)
    return None if made is program or made == program else made


def faults(program: Program) -> Iterator[Fault]:
    """Every changed program."""
    for number, at in enumerate(places(program)):
        for name, change in CHANGES.items():
            if name == "renumbered" and not at.ins:
                continue
            made = changed(program, number, change)
            if made is not None:
                pipes = "-".join(str(v) for _, v in at.imm)
                yield Fault(f"{number}:{at.row}:{pipes} {name}", made, at)


PITCHES = ("src_pitch", "dst_pitch", "a_pitch", "b_pitch", "nz_rows", "c_rows")


def wrong_pitches(program: Program) -> Iterator[Fault]:
    """Every program in which one tile of several rows has its rows too far apart."""
    found = [n for n in program.walk() if isinstance(n, Instr) and n.row in ROWS]
    for number, at in enumerate(found):
        names = [o.name for o in ROWS[at.row].ins]
        given = dict(zip(names, at.ins, strict=True))
        if int_value(given.get("rows", const(2))) == 1:
            continue
        for k, name in enumerate(names):
            if name in PITCHES:
                wider = const((int_value(at.ins[k]) or 0) + 16, at.ins[k].dtype)
                changed_at = at.with_(ins=(*at.ins[:k], wider, *at.ins[k + 1 :]))
                yield Fault(
                    f"{number}:{at.row} {name}", _with(program, number, changed_at), changed_at
                )


def _with(program: Program, number: int, new: Instr) -> Program:
    """The program with its `number`-th instruction replaced."""
    left = [number]

    def one(node: Any) -> Any:
        if isinstance(node, Instr) and node.row in ROWS:
            left[0] -= 1
            if left[0] == -1:
                return new
        return None

    return program.rewrite(one)
