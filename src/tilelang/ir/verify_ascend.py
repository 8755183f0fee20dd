"""What the statements of `ir/ascend.py` must satisfy: a function goes in, its violations come out.

`ir/verify.py` lists `ascend` among its rules. What depends on a chip (paths, limits of ids) is an
author's matter and is checked with the target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tilelang.ir import ascend
from tilelang.ir.ascend_simd import MERGED, SIMD_OPS, SimdOp
from tilelang.ir.expr import Expr
from tilelang.ir.node import Node
from tilelang.ir.tile import AtomicOp, Stmt

Faults = Iterator[str]

CROSS_MODES = (0, 1, 2, 4)
_SPLITS = ("", "m", "n")


def broken_ascend(stmt: Stmt, around: tuple[Stmt, ...]) -> Faults:
    """What is wrong with a statement, given those around it, outermost first."""
    check = _CHECKS.get(type(stmt))
    if check is not None:
        yield from check(stmt)
    region = next((s for s in reversed(around) if isinstance(s, ascend.CoreRegion)), None)
    if isinstance(stmt, ascend.CoreRegion) and region is not None:
        yield "a core region inside a core region"
    if region is not None:
        for pipe in _pipes(stmt):
            if pipe is not ascend.Pipe.ALL and pipe not in ascend.PIPES_OF[region.core]:
                yield f"pipe {pipe.value} on a {region.core.name.lower()} core"


def _pipes(stmt: Stmt) -> Iterator[ascend.Pipe]:
    if isinstance(stmt, (ascend.SetFlag, ascend.WaitFlag)):
        yield from (stmt.src, stmt.dst)
    elif isinstance(
        stmt,
        (ascend.PipeBarrier, ascend.CrossSet, ascend.CrossWait, ascend.Lock, ascend.Unlock),
    ):
        yield stmt.pipe


def _region(s: ascend.CoreRegion) -> Faults:
    if s.subs not in (1, 2):
        yield f"{s.subs} vector cores"
    if s.core is ascend.Core.CUBE and s.sub is not None:
        yield "a number of the vector core in a region of the cube core"


def _flag(s: ascend.SetFlag | ascend.WaitFlag) -> Faults:
    yield from _integer(s.id)
    if s.src is s.dst:
        yield f"a flag from pipe {s.src.value} to itself"
    if ascend.Pipe.ALL in (s.src, s.dst):
        yield "a flag of all pipes"


def _integer(e: Expr) -> Faults:
    if not e.dtype.is_integer:
        yield f"an id is {e.dtype}, expected an integer"


def _cross(s: ascend.CrossSet | ascend.CrossWait) -> Faults:
    yield from _integer(s.id)
    if s.mode not in CROSS_MODES:
        yield f"cross-core mode {s.mode}, expected one of {CROSS_MODES}"


def _mutex(s: ascend.Lock | ascend.Unlock) -> Faults:
    yield from _integer(s.id)


def _atomic(s: ascend.AtomicMode) -> Faults:
    if s.op and s.op not in {op.value for op in AtomicOp}:
        yield f"no atomic operation is called {s.op!r}"
    if bool(s.op) != (s.dtype is not None):
        yield "an atomic mode has an element type, and the end of one has none"


def _mode(s: ascend.SetMode) -> Faults:
    if s.name not in ascend.MODES:
        yield f"no mode is called {s.name!r}"


def _transfer(s: ascend.Transfer) -> Faults:
    if s.rounding and s.rounding not in ascend.ROUNDINGS:
        yield f"no rounding is called {s.rounding!r}"
    if s.split not in _SPLITS:
        yield f"a split by {s.split!r}"
    if s.pad is not None and s.pad.dtype != s.dst.dtype:
        yield f"a pad value is {s.pad.dtype}, expected {s.dst.dtype}"


def _vector_op(s: ascend.VectorOp) -> Faults:
    row = ascend.VECTOR_OPS.get(s.op)
    if row is None:
        yield f"no vector operation is called {s.op!r}"
        return
    least, most = row.srcs
    if not least <= len(s.srcs) <= most:
        yield f"{s.op} of {len(s.srcs)} sources, expected {least} to {most}"
    given = [name for name, _ in s.imm]
    known = {name.rstrip("?") for name in row.imm}
    for name in given:
        if name not in known:
            yield f"{s.op} has no immediate {name!r}"
    for name in row.imm:
        if not name.endswith("?") and name not in given:
            yield f"{s.op} lacks the immediate {name!r}"


def _simd(s: SimdOp) -> Faults:
    row = SIMD_OPS.get(s.op)
    if row is None:
        yield f"no operation on vector registers is called {s.op!r}"
        return
    for what, wanted, given in (
        ("operands", row.args, s.args),
        ("results", row.results, s.results),
    ):
        if len(wanted) != len(given):
            yield f"{s.op} has {len(wanted)} {what}, got {len(given)}"
    if (s.merges or s.old is not None) and s.op not in MERGED:
        yield f"{s.op} keeps no elements"
    if {name for name, _ in s.imm} != set(row.imm):
        yield f"{s.op} has the immediates {row.imm}, got {tuple(name for name, _ in s.imm)}"


_CHECKS: dict[type[Node], Callable[..., Faults]] = {
    ascend.CoreRegion: _region,
    ascend.SetFlag: _flag,
    ascend.WaitFlag: _flag,
    ascend.CrossSet: _cross,
    ascend.CrossWait: _cross,
    ascend.Lock: _mutex,
    ascend.Unlock: _mutex,
    ascend.AtomicMode: _atomic,
    ascend.SetMode: _mode,
    ascend.Transfer: _transfer,
    ascend.VectorOp: _vector_op,
    SimdOp: _simd,
}
