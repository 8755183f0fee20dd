"""The text of loads, stores and atomics of single elements.

What enters: a buffer, index expressions and the lanes they are for. What leaves: a slice of the
array where every index is a constant plus a multiple of one lane axis and all lanes are in bounds
(decided here if the ranges allow, else by a comparison of integers in the text), and a gather or
scatter in all other cases.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tilelang.emulator import arithmetic
from tilelang.emulator.lanes import nodes_of
from tilelang.emulator.unit import Unit
from tilelang.emulator.values import UNIFORM, Axes, Storage, Val, integer, tuple_text, value
from tilelang.errors import error
from tilelang.ir.expr import INT32, AtomicLoad, Binary, BinaryOp, Expr, Load, int_value
from tilelang.ir.tile import Atomic, AtomicOp, AtomicStore, Store
from tilelang.scopes import Memory, memory_of


@dataclass(frozen=True)
class Affine:
    """An index `base + coefficient * axis`; `axis` is None where it is the same for all lanes."""

    base: Val
    coefficients: dict[int, int] = field(default_factory=dict[int, int])

    @property
    def axis(self) -> int | None:
        """The one axis, if there is just one."""
        return next(iter(self.coefficients), None)

    @property
    def step(self) -> int:
        """Its coefficient."""
        return next(iter(self.coefficients.values()), 0)


@dataclass
class Place:
    """An access taken apart. `parts` is None where some index is not affine; `exprs` are the
    author's indices.
    """

    storage: Storage
    exprs: tuple[Expr, ...]
    parts: list[Affine] | None
    axes: Axes

    @property
    def slices(self) -> bool:
        """Whether the lanes touch a regular box of the array."""
        if self.parts is None:
            return False
        used = [a for p in self.parts for a in p.coefficients]
        simple = all(len(p.coefficients) <= 1 and p.step >= 0 for p in self.parts)
        return simple and len(used) == len(set(used))

    def covers(self, axes: Axes) -> bool:
        """Whether any two lanes that differ in `axes` touch different elements, for certain."""
        return (
            self.slices
            and self.parts is not None
            and axes <= {a for p in self.parts for a in p.coefficients}
        )


def affine(u: Unit, e: Expr) -> Affine | None:
    """`e` as a sum of a value of the block and constant multiples of lane axes."""
    if id(e) not in u.affines:
        u.affines[id(e)] = _affine(u, e)
    return u.affines[id(e)]


def _affine(u: Unit, e: Expr) -> Affine | None:
    if not u.axes_of(e):
        return Affine(u.expr(e))
    known = u.axis_of(e)
    if known is not None:
        return Affine(integer(0, e.dtype), {known: 1})
    if isinstance(e, Binary) and e.op is BinaryOp.MUL:
        return _product(u, e)
    if isinstance(e, Binary) and e.op in (BinaryOp.ADD, BinaryOp.SUB):
        a, b = affine(u, e.a), affine(u, e.b)
        return _sum(u, a, b, e.op) if a is not None and b is not None else None
    return None


def _product(u: Unit, e: Binary) -> Affine | None:
    for constant, other in ((e.a, e.b), (e.b, e.a)):
        factor = int_value(constant)
        if factor is not None:
            a = affine(u, other)
            return _scaled(u, a, factor) if a is not None else None
    return None


def _scaled(u: Unit, a: Affine, factor: int) -> Affine:
    base = arithmetic.binary(u, BinaryOp.MUL, a.base, integer(factor, a.base.dtype))
    return Affine(base, {k: c * factor for k, c in a.coefficients.items() if c * factor})


def _sum(u: Unit, a: Affine, b: Affine, op: BinaryOp) -> Affine:
    sign = 1 if op is BinaryOp.ADD else -1
    merged = dict(a.coefficients)
    for k, c in b.coefficients.items():
        merged[k] = merged.get(k, 0) + sign * c
    return Affine(arithmetic.binary(u, op, a.base, b.base), {k: c for k, c in merged.items() if c})


def place(u: Unit, s: Storage, indices: tuple[Expr, ...]) -> Place:
    """Take an access apart, in the current lanes."""
    axes = UNIFORM.union(*(u.axes_of(i) for i in indices)) if indices else UNIFORM
    lead: list[Affine] = []
    if s.lanes:
        axes = u.domain.all
        lead = [Affine(integer(0, INT32), {k: 1}) for k in range(u.domain.rank)]
    parts: list[Affine] | None = lead
    for e in indices:
        part = affine(u, e)
        if part is None:
            parts = None
            break
        parts = [*(parts or []), part]
    if not indices and not s.lanes:
        parts = []
    return Place(s, indices, parts, axes)


# -- text ------------------------------------------------------------------------------------------


def _sizes(u: Unit, s: Storage) -> list[tuple[int | None, str]]:
    """The extent of every axis of the array: its value if known, and its text."""
    lead = [(e.constant, e.code) for e in u.domain.extents] if s.lanes else []
    own = u.extents_of(s.buffer)
    return lead + [
        (n, str(n) if n is not None else f"{s.name}.shape[{d}]") for d, n in enumerate(own)
    ]


def conditions(u: Unit, p: Place) -> list[str]:
    """What must hold for all lanes to be in bounds, as far as the ranges do not prove it."""
    assert p.parts is not None
    out: list[str] = []
    for d, (found, (size, text)) in enumerate(zip(p.parts, _sizes(u, p.storage), strict=True)):
        if p.storage.lanes and d < u.domain.rank:
            continue
        part = p.parts[d] = _bound(u, p, d, found)
        base, last = part.base, ""
        if part.axis is not None:
            extent = u.domain.extents[part.axis]
            count = extent.constant
            span = part.step * (count - 1) if count is not None else None
            last = str(span) if span is not None else f"{part.step} * ({extent.code} - 1)"
            proved = size is not None and span is not None and base.high + span < size
        else:
            proved = size is not None and base.high < size
        if base.low < 0:
            out.append(f"0 <= {base.code}")
        if not proved:
            end = (
                base.code
                if last in ("", "0")
                else last
                if base.constant == 0
                else f"{base.code} + {last}"
            )
            out.append(f"{end} < {text}")
    return out


def _bound(u: Unit, p: Place, d: int, part: Affine) -> Affine:
    """The same index with its base under a name."""
    if part.base.atom or part.base.constant is not None:
        return part
    part = replace(part, base=u.bind(part.base))
    u.affines[id(p.exprs[d - (u.domain.rank if p.storage.lanes else 0)])] = part
    return part


def _slice(u: Unit, part: Affine) -> str:
    if part.axis is None:
        return part.base.code
    extent = u.domain.extents[part.axis]
    start = part.base.code
    count = extent.constant
    if part.step == 1:
        stop = extent.code
    elif count is not None:
        stop = str(part.step * (count - 1) + 1)
    else:
        stop = f"{part.step} * ({extent.code} - 1) + 1"
    if part.base.constant is not None and stop.isdigit():
        end = str(part.base.constant + int(stop))
    elif part.base.constant == 0:
        end = stop
    else:
        end = f"{part.base.text} + {stop}"
    start = "" if part.base.constant == 0 else start
    return f"{start}:{end}" + (f":{part.step}" if part.step != 1 else "")


def box(u: Unit, p: Place) -> str:
    """The text of the elements that all lanes touch, with axes in the order of the domain and 1
    where they do not vary.
    """
    assert p.parts is not None
    order = [part.axis for part in p.parts if part.axis is not None]
    pieces = [_slice(u, part) for part in p.parts]
    ranked = sorted(order)
    missing = [k for k in range(ranked[0], u.domain.rank) if k not in order] if ranked else []
    if order == ranked:
        out: list[str] = []
        expected = ranked[0] if ranked else 0
        for part, piece in zip(p.parts, pieces, strict=True):
            if part.axis is not None:
                out += ["None"] * (part.axis - expected)
                expected = part.axis + 1
            out.append(piece)
        out += ["None"] * (u.domain.rank - expected if ranked else 0)
        return f"{p.storage.name}[{', '.join(out)}]"
    axes = ", ".join(str(order.index(k)) for k in ranked)
    turned = f"{p.storage.name}[{', '.join(pieces)}].transpose({axes})"
    if not missing:
        return turned
    keep = ", ".join("None" if k in missing else ":" for k in range(ranked[0], u.domain.rank))
    return f"{turned}[{keep}]"


def index_text(u: Unit, p: Place) -> str:
    """The indices of all lanes, as a tuple of ints and arrays."""
    before = u.inline
    u.inline = True
    try:
        lead = [u.axis_array(k) for k in range(u.domain.rank)] if p.storage.lanes else []
        return tuple_text(lead + [u.expr(e).code for e in p.exprs])
    finally:
        u.inline = before


# -- loads -----------------------------------------------------------------------------------------


def load(u: Unit, e: Load) -> Val:
    """The text of a load, by the lanes of the current mask."""
    s = u.storage(e.buffer)
    dtype = e.buffer.dtype
    if s.scalar:
        return value(s.name, dtype, atom=True)
    p = place(u, s, e.indices)
    name = u.access_name(e.buffer, e.loc)
    if u.checks is not None:
        return u.checks.load(u, p, name, atomic=isinstance(e, AtomicLoad))
    if not p.slices:
        code = f"gather({s.name}, {index_text(u, p)}, {name}{_masked(u)})"
        return value(code, dtype, p.axes, atom=True)
    conds = conditions(u, p)
    if not p.axes:
        assert p.parts is not None
        at = ", ".join(part.base.code for part in p.parts)
        code = (
            f"{s.name}[{at or '()'}]"
            if not conds
            else f"load({s.name}, {tuple_text(at.split(', '))}, {name})"
        )
        return _scalar(code, e, s)
    if not conds:
        return value(box(u, p), dtype, p.axes, alias=True, atom=True)
    slow = f"gather({s.name}, {index_text(u, p)}, {name}{_masked(u)})"
    return value(f"{box(u, p)} if {' and '.join(conds)} else {slow}", dtype, p.axes, alias=True)


def _masked(u: Unit) -> str:
    return "" if u.mask is None else f", {u.mask.code}"


def _scalar(code: str, e: Load, s: Storage) -> Val:
    dtype = e.buffer.dtype
    if dtype.is_float:
        return value(code, dtype, atom=True)
    return value(f"{'bool' if dtype.is_bool else 'int'}({code})", dtype, atom=True)


# -- stores ----------------------------------------------------------------------------------------


def store(u: Unit, stmt: Store, v: Val) -> None:
    """Write the text of a store of `v`."""
    s = u.storage(stmt.buffer)
    if s.scalar:
        u.w.line(f"{s.name} = {v.code}")
        return
    p = place(u, s, stmt.indices)
    name = u.access_name(stmt.buffer)
    _refuse_races(u, stmt, p, name)
    if u.checks is not None:
        u.checks.store(u, p, v, name, atomic=isinstance(stmt, AtomicStore))
        return
    masked = u.mask.axes if u.mask is not None else UNIFORM
    if not p.slices or not (v.axes | masked) <= p.axes:
        _scatter(u, p, v, index_text(u, p), name)
        return
    conds = conditions(u, p)
    if not p.axes:
        assert p.parts is not None
        at = ", ".join(part.base.code for part in p.parts)
        if conds:
            u.w.line(f"store({s.name}, {tuple_text(at.split(', '))}, {v.code}, {name})")
        else:
            u.w.line(f"{s.name}[{at or '()'}] = {v.code}")
        return
    if not conds:
        _set_box(u, p, v)
        return
    v = u.bind(v)
    slow = index_text(u, p)
    with u.w.block(f"if {' and '.join(conds)}:"):
        _set_box(u, p, v)
    with u.w.block("else:"):
        _scatter(u, p, v, slow, name)


def _scatter(u: Unit, p: Place, v: Val, at: str, name: str) -> None:
    lanes = f"{u.mask_text}, {u.domain.shape}"
    u.w.line(f"scatter({p.storage.name}, {at}, {v.code}, {lanes}, {name})")


def _set_box(u: Unit, p: Place, v: Val) -> None:
    text = box(u, p)
    if u.mask is not None:
        u.w.line(f"copyto({text}, {v.code}, where={u.mask.code})")
    elif text.endswith("]"):
        u.w.line(f"{text} = {v.code}")
    else:
        u.w.line(f"{text}[...] = {v.code}")


def _refuse_races(u: Unit, stmt: Store, p: Place, name: str) -> None:
    """An element that several iterations update from its old value has no defined result."""
    if p.covers(u.domain.all) or not u.domain.rank or (u.domain.threads and u.checks is None):
        return
    if p.storage.lanes or u.roots.get(stmt.buffer.name, stmt.buffer.name) in u.inside:
        return  # each iteration has its own
    if not any(_same_place(n, stmt) for n in nodes_of(stmt.value, *u.origins(stmt.value))):
        return
    if u.domain.threads:
        own = memory_of(u.dialect, stmt.buffer.scope) in (Memory.LOCAL, Memory.VAR)
        if u.checks is not None and not own:
            u.checks.by_threads(u, p, name)
    else:
        lanes = f"{u.mask_text}, {u.domain.shape}"
        u.w.line(f"exclusive({p.storage.name}, {index_text(u, p)}, {lanes}, {name})")


def _same_place(node: object, stmt: Store) -> bool:
    return (
        isinstance(node, Load)
        and node.buffer.name == stmt.buffer.name
        and node.indices == stmt.indices
    )


# -- atomics ---------------------------------------------------------------------------------------

_ATOMIC_NAMES = {AtomicOp.ADD: "add", AtomicOp.MAX: "max", AtomicOp.MIN: "min", AtomicOp.OR: "or"}


def _lanes(u: Unit) -> str:
    return f"({u.mask_text}, {u.domain.shape})"


def atomic(u: Unit, stmt: Atomic, v: Val) -> None:
    """An atomic update of one element by each lane, in lane order."""
    s = u.storage(stmt.dst.buffer)
    if s.scalar:
        raise error(
            "scope", f"an atomic operation on the variable {stmt.dst.buffer.name}", stmt.loc
        )
    p = place(u, s, stmt.dst.mins)
    name = u.access_name(stmt.dst.buffer)
    call = f"{s.name}, {index_text(u, p)}, {v.code}, {_lanes(u)}, {name}"
    if u.checks is not None:
        u.checks.atomic(u, p, name)
    if stmt.previous is None:
        u.w.line(f"atomic_lanes({_ATOMIC_NAMES[stmt.op]!r}, {call})")
        return
    result = u.w.name(stmt.previous.name)
    u.w.line(f"{result} = atomic_previous({_ATOMIC_NAMES[stmt.op]!r}, {call})")
    u.define(stmt.previous, value("", stmt.previous.dtype, u.domain.all))
