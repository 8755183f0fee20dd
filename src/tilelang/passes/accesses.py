"""Accesses to flat arrays, and the conditions under which they are inside.

What enters: loads and stores of buffers with one index for each axis, and what is known of the
ranges. What leaves: accesses at flat indices. What the ranges do not prove is guarded: in global
memory a read outside gives the safe value and a write outside does nothing; on chip an assertion is
made before the statement.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tilelang.dtypes import DType
from tilelang.errors import Loc
from tilelang.ir.affine import Form, is_stable, linear
from tilelang.ir.bounds import Env, prove
from tilelang.ir.expr import (
    INT32,
    AddressOf,
    AtomicLoad,
    Binary,
    BinaryOp,
    Bitcast,
    Buffer,
    Cast,
    Const,
    Expr,
    Lane,
    Load,
    LoadVector,
    Pack,
    Select,
    Unary,
    UnaryOp,
    Var,
    const,
    int_value,
)
from tilelang.ir.node import Kind
from tilelang.ir.simplify import simplify
from tilelang.ir.thread import Addr, Array, Declare, Elem, Instr, Slot, Space, Write
from tilelang.ir.tile import (
    Assert,
    Atomic,
    AtomicStore,
    Block,
    If,
    Let,
    Stmt,
    Store,
    StoreVector,
)
from tilelang.layout.placement import Placement
from tilelang.passes.build import (
    Names,
    as_type,
    both,
    compare,
    literal,
    minus,
    plus,
    times,
    unsupported,
)
from tilelang.passes.issue import ASYNC, AsyncStore

INT64 = DType("int64")


@dataclass
class Place:
    """Where a buffer lies: an array, and the first scalar in it. `safe` is what a read outside of
    global memory gives.
    """

    buffer: Buffer
    array: Array
    offset: Expr
    on_chip: bool
    safe: Const

    def strides(self) -> list[Expr]:
        """How many scalars lie between neighbours along each axis, in 64 bits where they are not
        constants.
        """
        b, lanes = self.buffer, self.buffer.dtype.lanes
        if b.strides is not None:
            return [times(wide_size(s), lanes) for s in b.strides]
        out: list[Expr] = []
        step: Expr = const(lanes)
        for extent in reversed(b.shape):
            out.insert(0, step)
            step = times(step, wide_size(extent))
        return out

    def wide(self) -> bool:
        """Whether a flat index may need 64 bits."""
        if self.array.size is None:
            return True
        size = int_value(self.array.size)
        return size is None or size >= 1 << 31


def wide_size(e: Expr) -> Expr:
    """A size with which products do not overflow."""
    return as_type(e, INT64)


@dataclass
class Record:
    """The conditions of one access that are not proved."""

    conditions: tuple[Expr, ...]
    on_chip: bool
    conditional: bool


@dataclass
class Accesses:
    """What all accesses share: where buffers lie, and what loops around have settled.

    `assumed` are conditions that hold here; of `outside` at least one does not. With `checked`,
    assertions check what is not proved of accesses on chip; without `guarded`, nothing is between
    an access and what lies outside of a global array. `placed` says how tiles lie in shared memory,
    by the name of the buffer.
    """

    places: dict[str, Place]
    names: Names
    assumed: frozenset[Expr] = frozenset()
    outside: frozenset[Expr] = frozenset()
    records: list[Record] = field(default_factory=list["Record"])
    depth: int = 0
    checked: bool = True
    guarded: bool = True
    placed: dict[str, Placement] = field(default_factory=dict[str, Placement])

    def begin(self, env: Env) -> Access:
        """The accesses of one statement."""
        return Access(self, env)

    @contextmanager
    def conditional(self) -> Generator[None]:
        """Inside, statements may not run although the body around them does."""
        self.depth += 1
        yield
        self.depth -= 1

    @contextmanager
    def recording(self) -> Generator[list[Record]]:
        """Collects the accesses of a loop's own body."""
        outer = self.records, self.depth
        self.records, self.depth = [], 0
        yield self.records
        self.records, self.depth = outer

    @contextmanager
    def settled(self, assumed: Iterable[Expr], outside: Iterable[Expr] = ()) -> Generator[None]:
        """Inside, more conditions are settled."""
        before = self.assumed, self.outside
        self.assumed, self.outside = self.assumed.union(assumed), frozenset(outside)
        yield
        self.assumed, self.outside = before


class Access:
    """The accesses of one statement: lowered expressions, and assertions to be made before it."""

    def __init__(self, shared: Accesses, env: Env) -> None:
        self.shared = shared
        self.env = env
        self.needed: dict[tuple[Expr, str], None] = {}
        self.known: dict[tuple[Expr, Expr | None], Expr] = {}
        self.first: list[Stmt] = []

    # Expressions ---------------------------------------------------------------------------------

    def expr(self, e: Expr, path: Expr | None = None, env: Env | None = None) -> Expr:
        """An expression of the thread stage; it is evaluated where `path` holds (always: None)."""
        if isinstance(e, (Const, Var)):
            return e
        key = (e, path)
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = self.lowered(e, path, env or self.env)
        return found

    def lowered(self, e: Expr, path: Expr | None, env: Env) -> Expr:
        """`expr`, for what has not been lowered before."""
        match e:
            case AtomicLoad():
                return self.atomic_load(e, path, env)
            case Load():
                return self.load(e, path, env)
            case LoadVector():
                return self.load_vector(e, path, env)
            case AddressOf():
                at = self.place(e.buffer)
                return Addr(
                    at.array, self.index(at, self.indices(e.indices, path, env), env), loc=e.loc
                )
            case Select(lazy=True):
                return self.choice(e, path, env)
            case _:
                changes: dict[str, object] = {}
                for f in e.fields():
                    if f.metadata["kind"] is Kind.OPERAND:
                        old = getattr(e, f.name)
                        if isinstance(old, Expr):
                            changes[f.name] = self.expr(old, path, env)
                        elif isinstance(old, tuple):
                            changes[f.name] = self.all(old, path, env)  # pyright: ignore[reportUnknownArgumentType]
                return e.with_(**changes)

    def all(self, items: Sequence[Expr], path: Expr | None, env: Env) -> tuple[Expr, ...]:
        """Several expressions."""
        return tuple(self.expr(x, path, env) for x in items)

    def indices(self, items: Sequence[Expr], path: Expr | None, env: Env) -> tuple[Expr, ...]:
        """Index expressions, as sums that cannot overflow: the guard and the address are made from
        the same number, whatever the author's arithmetic would wrap to.
        """
        return tuple(_exact(x, env) for x in self.all(items, path, env))

    def choice(self, e: Select, path: Expr | None, env: Env) -> Expr:
        """Loads of the arm that is not taken do not happen."""
        cond = self.expr(e.cond, path, env)
        if isinstance(cond, Const):
            return self.expr(e.t if cond.value else e.f, path, env)
        yes = cond if path is None else both((path, cond))
        negated = Unary(UnaryOp.NOT, cond)
        no = negated if path is None else both((path, negated))
        t = self.expr(e.t, yes, env.assume(e.cond))
        f = self.expr(e.f, no, env.assume(e.cond, holds=False))
        return Select(cond, t, f, lazy=not (is_stable(t) and is_stable(f)))

    def converted(self, e: Expr, dtype: DType) -> Expr:
        """A value in another dtype."""
        value = self.expr(e)
        return value if value.dtype == dtype else Cast(value, dtype)

    def place(self, buffer: Buffer) -> Place:
        """Where a buffer lies."""
        return self.shared.places[buffer.name]

    def load(self, e: Load, path: Expr | None, env: Env) -> Expr:
        """One element, guarded."""
        at = self.place(e.buffer)
        indices = self.indices(e.indices, path, env)
        conditions = self.conditions(at, indices, env, path)
        if conditions is None:
            return self.safe(at, e.dtype)
        index = self.index(at, indices, env)
        align = _aligned(at, index, env) if e.dtype.is_vector else 0
        element = Elem(at.array, index, e.dtype, align=align, loc=e.loc)
        return self.guarded(at, element, conditions)

    def safe(self, at: Place, dtype: DType) -> Expr:
        """What a read outside gives."""
        return at.safe if dtype.is_scalar else _spread(at.safe, dtype)

    def guarded(self, at: Place, element: Expr, conditions: tuple[Expr, ...]) -> Expr:
        """An element of global memory that is read where the conditions hold."""
        if not conditions or at.on_chip:
            return element
        return Select(both(conditions), element, self.safe(at, element.dtype), lazy=True)

    def atomic_load(self, e: AtomicLoad, path: Expr | None, env: Env) -> Expr:
        """A load in one piece, made before the statement."""
        at, dtype = self.place(e.buffer), e.dtype
        if path is not None or dtype.is_vector:
            raise unsupported(e, "T.atomic_load in an arm of a choice, or of a vector,")
        indices = self.indices(e.indices, path, env)
        conditions = self.conditions(at, indices, env, None)
        if conditions is None:
            return at.safe
        names = self.shared.names
        slot = Slot(at.array, self.index(at, indices, env), 1)
        found = names.var("loaded", dtype)
        imm = (("order", e.memory_order),)
        load = Instr("atomic.load", (), (slot,), results=(found,), imm=imm, loc=e.loc)
        if at.on_chip or not conditions:
            self.first.append(load)
            return found
        kept = Array(names.name("loaded"), dtype, const(1), space=Space.REGISTER)
        keep = Write(kept, const(0), found, loc=e.loc)
        self.first += [
            Declare(kept, init=at.safe, loc=e.loc),
            If(both(conditions), (load, keep), loc=e.loc),
        ]
        return Elem(kept, const(0), dtype)

    def load_vector(self, e: LoadVector, path: Expr | None, env: Env) -> Expr:
        """Neighbouring elements; where some are outside, each for itself."""
        at = self.place(e.buffer)
        indices = self.indices(e.indices, path, env)
        pred = None if e.pred is None else self.expr(e.pred, path, env)
        count = _scalars(e.type, at.array.type)
        inner = path if pred is None else pred if path is None else both((path, pred))
        conditions = self.conditions(at, indices, env, inner, count)
        whole = at.array.type.with_lanes(count)
        element: Expr
        if conditions is None:
            element = self.apart(at, indices, env, whole)
        else:
            index = self.index(at, indices, env)
            align = _aligned(at, index, env)
            element = Elem(at.array, index, whole, align=align, loc=e.loc)
            if conditions and not at.on_chip:
                lanes = self.apart(at, indices, env, whole)
                element = Select(both(conditions), element, lanes, lazy=True)
        if pred is not None:
            zero = _spread(literal(0, at.array.type), whole)
            element = Select(pred, element, zero, lazy=True)
        return element if whole == e.type else Bitcast(element, e.type)

    def apart(self, at: Place, indices: tuple[Expr, ...], env: Env, whole: DType) -> Expr:
        """A vector whose lanes are read one by one, each with its own guard."""
        parts: list[Expr] = []
        for lane in range(whole.lanes):
            there = (*indices[:-1], plus(indices[-1], lane))
            conditions = self.unproved(at, there, env, [const(1)] * len(there))
            element = Elem(at.array, self.index(at, there, env), at.array.type)
            parts.append(self.guarded(at, element, conditions))
        return parts[0] if whole.is_scalar else Pack(tuple(parts), whole)

    # Statements ----------------------------------------------------------------------------------

    def store(self, stmt: Store) -> Block:
        """A store of one element."""
        at = self.place(stmt.buffer)
        value = self.converted(stmt.value, stmt.buffer.dtype)
        return self.written(stmt, at, stmt.indices, value)

    def store_vector(self, stmt: StoreVector) -> Block:
        """A store of neighbouring elements."""
        at = self.place(stmt.buffer)
        count = _scalars(stmt.value.dtype, at.array.type)
        value, whole = self.expr(stmt.value), at.array.type.with_lanes(count)
        if value.dtype != whole:
            value = Bitcast(value, whole)
        made = self.written(stmt, at, stmt.indices, value)
        if stmt.pred is None or not made:
            return made
        return (If(self.expr(stmt.pred), made, loc=stmt.loc),)

    def written(
        self, stmt: Store | StoreVector, at: Place, where: tuple[Expr, ...], value: Expr
    ) -> Block:
        """A write, guarded; of neighbours where some are outside, each for itself."""
        indices = self.indices(where, None, self.env)
        pred = self.expr(stmt.pred) if isinstance(stmt, StoreVector) and stmt.pred else None
        lanes = value.dtype.lanes if isinstance(stmt, StoreVector) else 1
        conditions = self.conditions(at, indices, self.env, pred, lanes)
        if conditions is None:
            return () if lanes == 1 else self.write_apart(stmt, at, indices, value)
        if isinstance(stmt, AtomicStore):
            return self.atomic_store(stmt, at, indices, value, conditions)
        index = self.index(at, indices, self.env)
        align = _aligned(at, index, self.env) if value.dtype.lanes > 1 else 0
        write = Write(at.array, index, value, align=align, loc=stmt.loc)
        if isinstance(stmt, AsyncStore):
            write = write.with_(hints=ASYNC)
        if not conditions or at.on_chip:
            return (write,)
        edge = () if lanes == 1 else self.write_apart(stmt, at, indices, value)
        return (If(both(conditions), (write,), orelse=edge, loc=stmt.loc),)

    def atomic_store(
        self,
        stmt: AtomicStore,
        at: Place,
        indices: tuple[Expr, ...],
        value: Expr,
        conditions: tuple[Expr, ...],
    ) -> Block:
        """A write in one piece."""
        slot = Slot(at.array, self.index(at, indices, self.env), 1)
        imm = (("order", stmt.memory_order),)
        store = Instr("atomic.store", (slot,), (value,), imm=imm, loc=stmt.loc)
        if not conditions or at.on_chip:
            return (store,)
        return (If(both(conditions), (store,), loc=stmt.loc),)

    def write_apart(
        self, stmt: Store | StoreVector, at: Place, indices: tuple[Expr, ...], value: Expr
    ) -> Block:
        """The lanes of a vector written one by one, each with its own guard."""
        name = self.shared.names.var("lanes", value.dtype)
        out: list[Stmt] = [Let(name, value, loc=stmt.loc)]
        for lane in range(value.dtype.lanes):
            there = (*indices[:-1], plus(indices[-1], lane))
            conditions = self.unproved(at, there, self.env, [const(1)] * len(there))
            index = self.index(at, there, self.env)
            write = Write(at.array, index, Lane(name, lane), loc=stmt.loc)
            out.append(If(both(conditions), (write,), loc=stmt.loc) if conditions else write)
        return tuple(out)

    def atomic(self, stmt: Atomic) -> Block:
        """An update of one element; on chip nobody else is there to see it."""
        at, dtype = self.place(stmt.dst.buffer), stmt.dst.buffer.dtype
        if not isinstance(stmt.value, Expr) or dtype.is_vector:
            raise unsupported(stmt, "an atomic update of a vector element")
        value = self.converted(stmt.value, dtype)
        indices = self.indices(stmt.dst.mins, None, self.env)
        conditions = self.conditions(at, indices, self.env, None)
        previous = stmt.previous
        if conditions is None:
            return () if previous is None else (Let(previous, at.safe, loc=stmt.loc),)
        slot = Slot(at.array, self.index(at, indices, self.env), 1)
        local = at.array.space is Space.REGISTER
        row = f"{'update' if local else 'atomic'}.{stmt.op.value}"
        imm = (("order", stmt.memory_order),)
        guard = both(conditions) if conditions and not at.on_chip else None
        found = (
            self.shared.names.var("old", dtype)
            if guard is not None or previous is None
            else previous
        )
        update = Instr(row, (slot,), (value,), results=(found,), imm=imm, loc=stmt.loc)
        if guard is None:
            return (update,)
        if previous is None:
            return (If(guard, (update,), loc=stmt.loc),)
        kept = Array(self.shared.names.name("before"), dtype, const(1), space=Space.REGISTER)
        keep = Write(kept, const(0), found, loc=stmt.loc)
        return (
            Declare(kept, init=at.safe, loc=stmt.loc),
            If(guard, (update, keep), loc=stmt.loc),
            Let(previous, Elem(kept, const(0), dtype), loc=stmt.loc),
        )

    # Indices and bounds --------------------------------------------------------------------------

    def region(self, at: Place, mins: Sequence[Expr], extents: Sequence[Expr]) -> Expr:
        """The flat index of the first element of a region, which must be inside."""
        lowered = self.indices(mins, None, self.env)
        self.require(at, self.unproved(at, lowered, self.env, extents), None)
        return self.index(at, lowered, self.env)

    def index(self, at: Place, indices: Sequence[Expr], env: Env) -> Expr:
        """The flat index, as a sum of its terms: in 64 bits where 32 may not hold it."""
        placement = self.shared.placed.get(at.buffer.name)
        if placement is not None:
            return self.placed(at, placement, indices, env)
        total = env.linear(at.offset)
        rest: list[Expr] = []
        wide = at.wide() or any(i.dtype.bits > INT32.bits for i in indices)
        dtype = INT64 if wide else INT32
        for i, step in zip(indices, at.strides(), strict=True):
            size = int_value(step)
            if size is not None:
                total = total.plus(env.linear(i).scaled(size))
            else:
                rest.append(times(as_type(i, dtype), as_type(step, dtype)))
        out = add_up(total, dtype) if total.terms or total.const or not rest else None
        for term in reversed(rest):
            out = term if out is None else plus(term, out)
        return const(0) if out is None else out

    def placed(self, at: Place, placement: Placement, indices: Sequence[Expr], env: Env) -> Expr:
        """The flat index in a tile whose groups of 16 bytes are exchanged (`layout.placement`)."""
        *lead, row, column = indices
        p = placement
        total = env.linear(at.offset)
        for i, step in zip(lead, at.strides(), strict=False):
            total = total.plus(env.linear(i).scaled(int_value(step) or 0))
        chunk, rest = _parted(column, p.group, env)
        if p.panel < p.columns:
            each = p.panel // p.group
            panel = _divided(BinaryOp.FLOORDIV, chunk, each, env)
            total = total.plus(env.linear(panel).scaled(p.rows * p.panel))
            chunk = _divided(BinaryOp.FLOORMOD, chunk, each, env)
        turned = _divided(
            BinaryOp.FLOORMOD, _divided(BinaryOp.FLOORDIV, row, p.turn, env), p.span, env
        )
        chunk = simplify(Binary(BinaryOp.BITXOR, *_same(chunk, turned)), env)
        total = total.plus(env.linear(row).scaled(p.panel)).plus(env.linear(chunk).scaled(p.group))
        return add_up(total.plus(env.linear(rest)), INT32)

    def conditions(
        self, at: Place, indices: Sequence[Expr], env: Env, path: Expr | None, lanes: int = 1
    ) -> tuple[Expr, ...] | None:
        """What must hold for an access to be inside, as far as it is not known; None if it is
        outside for certain.
        """
        extents = [const(1)] * len(indices)
        if lanes > 1 and at.buffer.dtype.is_scalar:
            extents[-1] = const(lanes)
        found = self.unproved(at, indices, env, extents)
        shared = self.shared
        if not at.on_chip and shared.outside and shared.outside <= set(found):
            return None
        if at.on_chip:
            self.require(at, found, path)
        elif found:
            shared.records.append(Record(found, False, shared.depth > 0 or path is not None))
        return found

    def unproved(
        self, at: Place, indices: Sequence[Expr], env: Env, extents: Sequence[Expr]
    ) -> tuple[Expr, ...]:
        """The conditions of being inside that are not known to hold."""
        if not self.shared.guarded and not at.on_chip:
            return ()
        out: list[Expr] = []
        for i, size, extent in zip(indices, at.buffer.shape, extents, strict=True):
            known, count, most = env.bounds(i), int_value(extent), int_value(size)
            if count is not None and most is not None and known.within(0, most - count):
                continue
            low = compare(BinaryOp.GE, i, 0)
            one = int_value(extent) == 1
            high = (
                compare(BinaryOp.LT, i, size)
                if one
                else compare(BinaryOp.LE, plus(i, extent), size)
            )
            out += [c for c in (low, high) if not self.holds(c, env)]
        return tuple(dict.fromkeys(out))

    def holds(self, cond: Expr, env: Env) -> bool:
        """Whether a condition is known to hold."""
        return cond in self.shared.assumed or prove(cond, env) is True

    def require(self, at: Place, conditions: tuple[Expr, ...], path: Expr | None) -> None:
        """Conditions that an assertion checks before the statement."""
        if not conditions or not self.shared.checked:
            return
        conditional = self.shared.depth > 0 or path is not None
        self.shared.records.append(Record(conditions, True, conditional))
        for c in conditions:
            checked = c if path is None else Binary(BinaryOp.OR, Unary(UnaryOp.NOT, path), c)
            self.needed[checked, at.buffer.name] = None

    def assertions(self, loc: Loc | None) -> Block:
        """What the accesses so far need to be done before them: checks, and atomic loads."""
        made = [
            Assert(c, message=outside_message(b), kind="bounds", loc=loc) for c, b in self.needed
        ]
        self.needed.clear()
        first, self.first = self.first, []
        return (*made, *first)


def _exact(e: Expr, env: Env) -> Expr:
    """An index in 64 bits, if its own arithmetic may overflow."""
    loose = linear(e, env.ranges, wraps=False)
    return e if env.linear(e) == loose else add_up(loose, INT64)


def _divided(op: BinaryOp, e: Expr, by: int, env: Env) -> Expr:
    """A quotient or remainder by a constant, simplified."""
    return simplify(Binary(op, e, Const(by, e.dtype)), env, wraps=False)


def _parted(e: Expr, by: int, env: Env) -> tuple[Expr, Expr]:
    """The quotient and the remainder by a constant. Terms that are multiples of it stand apart from
    those that are less, so that what walks less than `by` elements does not occur in the quotient.
    """
    form = env.linear(e)
    whole: dict[Expr, int] = {}
    near: dict[Expr, int] = {}
    for atom, factor in form.terms.items():
        known = env.bounds(atom)
        multiple = factor * known.modulus % by == 0 and factor * known.residue % by == 0
        (whole if multiple else near)[atom] = factor
    base = form.const // by * by
    low = Form(near, form.const - base)
    first, last = env.analysis.form_span(low)
    if first < 0 or last >= by:
        return _divided(BinaryOp.FLOORDIV, e, by, env), _divided(BinaryOp.FLOORMOD, e, by, env)
    high = add_up(Form(whole, base), e.dtype)
    return _divided(BinaryOp.FLOORDIV, high, by, env), add_up(low, e.dtype)


def _same(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    return as_type(a, INT32), as_type(b, INT32)


def outside_message(name: str) -> str:
    """What is said of an index outside a buffer on chip."""
    return f"an index of {name} is outside its extent"


def _scalars(dtype: DType, base: DType) -> int:
    return max(1, dtype.bits * dtype.lanes // base.bits)


def _aligned(at: Place, index: Expr, env: Env) -> int:
    """The bytes of which the address of an element is a multiple, as far as the array says."""
    step, known = at.array.type.bytes, env.bounds(index)
    align = at.array.align or step
    while align > step and not known.divisible_by(align // step):
        align //= 2
    return align


def _spread(value: Const, dtype: DType) -> Expr:
    return value if dtype.is_scalar else Pack((value,), dtype)


def add_up(form: Form, dtype: DType) -> Expr:
    """The expression of a form: a positive term first if there is one, the constant last."""
    terms = sorted(form.terms.items(), key=lambda item: item[1] < 0)
    const_first = form.const > 0 and all(factor < 0 for _, factor in terms)
    out: Expr | None = Const(form.const, dtype) if const_first or not terms else None
    for atom, factor in terms:
        term = times(as_type(atom, dtype), Const(abs(factor), dtype))
        if out is None:
            out = term if factor > 0 else minus(Const(0, dtype), term)
        else:
            out = plus(out, term) if factor > 0 else minus(out, term)
    if const_first or out is None or not terms:
        return Const(form.const, dtype) if out is None else out
    if form.const < 0:
        return minus(out, Const(-form.const, dtype))
    return plus(out, Const(form.const, dtype))
