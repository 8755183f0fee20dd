"""Random numbers of threads as integer arithmetic: Philox4x32-10, as cuRAND delivers it.

What enters: a launch in which threads start streams and draw from them. What leaves: one with an
array for each part of the threads' streams, one element a thread, and arithmetic; a target with
threads of its own has variables in their place (`passes/simt/lower_thread_random.py`). The numbers
are those that `emulator/philox.py` defines, bit for bit but for normals, whose logarithm, sine and
cosine are those of the target.

A draw in a `T.Parallel` nest belongs to the thread whose index is the iteration's number modulo the
number of threads; the nest runs in order then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from tilelang.dtypes import DType
from tilelang.errors import Loc, error
from tilelang.ir.expr import (
    INT32,
    Binary,
    BinaryOp,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Unary,
    UnaryOp,
    Var,
    const,
)
from tilelang.ir.special import RngInit, RngNext
from tilelang.ir.tile import (
    Alloc,
    Assert,
    Block,
    For,
    Function,
    If,
    Launch,
    Let,
    Parallel,
    Stmt,
    Store,
    While,
)
from tilelang.isa.target import Target
from tilelang.passes.build import (
    Names,
    as_type,
    map_bodies,
    map_statements,
    plus,
    serial,
    times,
    unsupported,
    variable,
)
from tilelang.passes.lower_parallel import IN_ORDER, blocks, statements
from tilelang.passes.threads import thread_axes, thread_index
from tilelang.scopes import Dialect

U64, F32, F64 = DType("uint64"), DType("float32"), DType("float64")
LOW = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10


def lower_random(fn: Function, target: Target) -> Function:
    """No streams of random numbers: arrays and arithmetic."""
    del target
    names = Names(fn)

    def one(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, Launch) or not uses_streams(stmt.body):
            return None
        axes = thread_axes(stmt, Dialect(fn.dialect))
        count = math.prod(n for _, n in axes)
        return (stmt.with_(body=Streams(stmt, names, count, thread_index(axes)).body()),)

    return fn.with_(body=map_statements(fn.body, one))


class Streams:
    """The streams of the threads of a block: buffers of `count` elements, that of the thread that
    draws at `thread`.

    A position counts numbers in a sequence: blocks of four in the 128 bits of `high` and `low`, and
    `place` of four. `spare` is the second number of a pair of normals, there while `pending`.
    """

    scope = "shared.dyn"
    wide = F64
    """The type in which logarithms and angles of normals of float32 are computed."""

    def __init__(self, launch: Launch, names: Names, count: int, thread: Expr) -> None:
        self.launch = launch
        self.names = names
        self.count = count
        self.thread = thread
        self.seed, self.low, self.high = (self.each(x, U64) for x in ("seed", "low", "high"))
        self.place, self.started = self.each("place", INT32), self.each("started", INT32)
        drawn = {
            s.result.dtype
            for s in statements(launch.body)
            if isinstance(s, RngNext) and s.distribution == "normal"
        }
        kinds = sorted(drawn, key=lambda d: d.bits)
        self.spare = {d: self.each("spare", d) for d in kinds}
        self.pending = {d: self.each("pending", INT32) for d in kinds}

    def each(self, hint: str, dtype: DType) -> Buffer:
        """A buffer with an element for each thread."""
        return self.names.buffer(f"stream_{hint}", dtype, (self.count,), self.scope)

    def body(self) -> Block:
        """The launch's statements, after the arrays, which say that no stream has started."""
        loc = self.launch.loc
        arrays = (self.seed, self.low, self.high, self.place, self.started)
        arrays += (*self.spare.values(), *self.pending.values())
        allocs = (Alloc(b, loc=loc) for b in arrays)
        return (*allocs, self.none_started(), *self.block(self.launch.body, self.thread))

    def none_started(self) -> Stmt:
        """No thread of the block has a stream."""
        t, loc = self.names.var("t"), self.launch.loc
        return serial(t, self.count, (Store(self.started, (t,), const(0), loc=loc),), loc)

    def block(self, body: Block, thread: Expr) -> Block:
        """Statements that `thread` carries out."""
        out: list[Stmt] = []
        for stmt in body:
            match stmt:
                case RngInit() if thread is not self.thread:
                    raise error(
                        "divergence",
                        "T.rng_init inside T.Parallel: which thread runs an iteration is not"
                        " defined",
                        stmt.loc,
                        help="start the generator before the loop",
                    )
                case RngInit():
                    out += self.start(stmt, thread)
                case RngNext():
                    out += _Draw(self, thread, stmt.loc).number(stmt)
                case Parallel() if uses_streams(stmt.body):
                    out += self.nest(stmt)
                case _:
                    out.append(map_bodies(stmt, lambda b: self.block(b, thread)))
        return tuple(out)

    def nest(self, stmt: Parallel) -> Block:
        """A parallel nest that draws: its iterations run in order."""
        if self.count > 1 and _draws_in_turn(stmt.body):
            raise unsupported(stmt, "a T.Parallel nest that draws several numbers an iteration")
        number = iteration(stmt)
        owner = Binary(BinaryOp.FLOORMOD, number, Const(self.count, number.dtype))
        body = self.block(stmt.body, as_type(owner, INT32))
        return (stmt.with_(body=body, hints=(*stmt.hints, IN_ORDER)),)

    def start(self, stmt: RngInit, thread: Expr) -> Block:
        """The stream of a thread begins."""
        given = self.names.var("offset", U64)
        place = as_type(_word(BinaryOp.BITAND, given, 3), INT32)
        first = {
            self.seed: stmt.seed,
            self.high: stmt.sequence,
            self.low: _word(BinaryOp.SHR, given, 2),
            self.place: place,
            self.started: const(1),
            **dict.fromkeys(self.pending.values(), const(0)),
        }
        stores = (Store(b, (thread,), as_type(v, b.dtype), loc=stmt.loc) for b, v in first.items())
        return (Let(given, as_type(stmt.offset, U64), loc=stmt.loc), *stores)


def iteration(stmt: Parallel) -> Expr:
    """The number of an iteration, of which thread `number % threads` draws what it asks for."""
    number: Expr = const(0)
    for var, extent in zip(stmt.vars, stmt.extents, strict=True):
        number = plus(times(number, extent), var)
    return number


def uses_streams(body: Block) -> bool:
    """Whether statements start or draw."""
    return any(isinstance(s, (RngInit, RngNext)) for s in statements(body))


def _draws_in_turn(body: Block) -> bool:
    """Whether an iteration may draw several numbers."""
    draws = sum(isinstance(s, RngNext) for s in statements(body))
    loops = (b for s in statements(body) if isinstance(s, (For, While)) for b in blocks(s))
    return draws > 1 or any(isinstance(s, RngNext) for b in loops for s in statements(b))


def _word(op: BinaryOp, a: Expr, b: Expr | int) -> Expr:
    return Binary(op, a, b if isinstance(b, Expr) else Const(b, a.dtype))


def _low(x: Expr) -> Expr:
    return _word(BinaryOp.BITAND, x, LOW)


def _high(x: Expr) -> Expr:
    return _word(BinaryOp.SHR, x, 32)


def _number(x: float, dtype: DType) -> Const:
    return Const(x, dtype)


def _product(a: Expr, b: Expr) -> Expr:
    """Rounded once: not joined with an addition."""
    return Call("fmul", (a, b), a.dtype)


def _sum(a: Expr, b: Expr) -> Expr:
    return Binary(BinaryOp.ADD, a, b)


def _fn(name: str, x: Expr) -> Expr:
    return Call(name, (x,), x.dtype)


@dataclass
class _Draw:
    """One draw of one thread."""

    streams: Streams
    thread: Expr
    loc: Loc | None
    out: list[Stmt] = field(default_factory=list[Stmt])

    def number(self, stmt: RngNext) -> Block:
        """The next number of a distribution."""
        s, dtype = self.streams, stmt.result.dtype
        started = Binary(BinaryOp.NE, self.part(s.started), const(0))
        message = "a random number of a thread that has no generator"
        self.out.append(Assert(started, message=message, kind="uninitialised", loc=self.loc))
        if stmt.distribution == "normal":
            value = self.normal(dtype)
        else:
            (word,) = self.words(1)
            value = as_type(word, dtype) if stmt.distribution == "bits" else _uniform(word, dtype)
        self.out.append(Let(stmt.result, value, loc=self.loc))
        return tuple(self.out)

    def part(self, buffer: Buffer) -> Expr:
        """What the thread's stream has there now."""
        return Load(buffer, (self.thread,))

    def set(self, buffer: Buffer, value: Expr) -> None:
        self.out.append(Store(buffer, (self.thread,), value, loc=self.loc))

    def let(self, hint: str, value: Expr) -> Var:
        """A name for a value here."""
        var = self.streams.names.var(hint, value.dtype)
        self.out.append(Let(var, value, loc=self.loc))
        return var

    # The generator -------------------------------------------------------------------------------

    def words(self, count: int) -> list[Expr]:
        """The next numbers of the generator, 32 bits in 64; the stream goes on behind them."""
        s = self.streams
        place = self.let("at", self.part(s.place))
        low, high = self.let("low", self.part(s.low)), self.let("high", self.part(s.high))
        found: list[Expr] = []
        for n in range(count):
            here = self.let("here", plus(place, n))
            found.append(self.one(*self.moved(low, high, here), here))
        after = self.let("after", plus(place, count))
        for buffer, value in zip((s.low, s.high), self.moved(low, high, after), strict=True):
            self.set(buffer, value)
        self.set(s.place, Binary(BinaryOp.BITAND, after, const(3)))
        return found

    def moved(self, low: Expr, high: Expr, place: Expr) -> tuple[Expr, Expr]:
        """The counter of the block of four in which a place is."""
        steps = as_type(Binary(BinaryOp.SHR, place, const(2)), U64)
        moved = self.let("low", _sum(low, steps))
        carry = Select(Binary(BinaryOp.LT, moved, low), Const(1, U64), Const(0, U64))
        return moved, self.let("high", _sum(high, carry))

    def one(self, low: Expr, high: Expr, place: Expr) -> Expr:
        """The number at `place` modulo 4 of a block."""
        seed = self.let("seed", self.part(self.streams.seed))
        state = [_low(low), _high(low), _low(high), _high(high), _low(seed), _high(seed)]
        held = [self.held(x) for x in state]
        body = _Draw(self.streams, self.thread, self.loc)
        x0, x1, x2, x3, k0, k1 = (body.let("x", Load(b, (const(0),))) for b in held)
        a = body.let("a", _word(BinaryOp.MUL, x0, MULTIPLIERS[0]))
        b = body.let("b", _word(BinaryOp.MUL, x2, MULTIPLIERS[1]))
        after = [
            _word(BinaryOp.BITXOR, _word(BinaryOp.BITXOR, _high(b), x1), k0),
            _low(b),
            _word(BinaryOp.BITXOR, _word(BinaryOp.BITXOR, _high(a), x3), k1),
            _low(a),
            _low(_word(BinaryOp.ADD, k0, WEYL[0])),
            _low(_word(BinaryOp.ADD, k1, WEYL[1])),
        ]
        stores = (Store(b, (const(0),), v, loc=self.loc) for b, v in zip(held, after, strict=True))
        rounds = self.streams.names.var("round")
        self.out.append(serial(rounds, ROUNDS, (*body.out, *stores), self.loc))
        found: Expr = Load(held[3], (const(0),))
        for n in (2, 1, 0):
            chosen = Binary(BinaryOp.EQ, Binary(BinaryOp.BITAND, place, const(3)), const(n))
            found = Select(chosen, Load(held[n], (const(0),)), found)
        return self.let("word", found)

    def held(self, value: Expr) -> Buffer:
        """A variable of the thread."""
        buffer, alloc = variable("held", value.dtype, self.streams.names, self.loc)
        self.out += [alloc, Store(buffer, (const(0),), value, loc=self.loc)]
        return buffer

    # Distributions -------------------------------------------------------------------------------

    def normal(self, dtype: DType) -> Expr:
        """Box and Muller's method gives two; the second waits for the next draw."""
        s, out = self.streams, self.held(_number(0.0, dtype))
        spare, pending = s.spare[dtype], s.pending[dtype]
        there = Binary(BinaryOp.NE, self.part(pending), const(0))
        old = _Draw(s, self.thread, self.loc)
        old.out.append(Store(out, (const(0),), old.part(spare), loc=self.loc))
        old.set(pending, const(0))
        new = _Draw(s, self.thread, self.loc)
        first, second = new.pair(dtype)
        new.out.append(Store(out, (const(0),), first, loc=self.loc))
        new.set(spare, second)
        new.set(pending, const(1))
        self.out.append(If(there, tuple(old.out), orelse=tuple(new.out), loc=self.loc))
        return Load(out, (const(0),))

    def pair(self, dtype: DType) -> tuple[Expr, Expr]:
        """Two normals; the float32 form rounds where cuRAND's does."""
        if dtype == F32:
            x, y = self.words(2)
            angle = _sum(_product(as_type(y, F32), _number(STEP, F32)), _number(STEP / 2, F32))
            logs = as_type(_fn("log", as_type(_uniform(x, F32), self.streams.wide)), F32)
            radius = self.let("radius", _fn("sqrt", _product(_number(-2.0, F32), logs)))
            turn = self.let("angle", as_type(angle, self.streams.wide))
            return (
                _product(as_type(_fn("sin", turn), F32), radius),
                _product(as_type(_fn("cos", turn), F32), radius),
            )
        a, b, c, d = self.words(4)
        x, y = _fifty_three(a, b), _fifty_three(c, d)
        logs = _fn("log", _sum(_product(x, _number(2.0**-53, F64)), _number(2.0**-54, F64)))
        radius = self.let("radius", _fn("sqrt", _product(_number(-2.0, F64), logs)))
        half = _sum(_product(y, _number(2.0**-52, F64)), _number(2.0**-53, F64))
        sine, cosine = self.half_turns(self.let("half", half))
        return _product(sine, radius), _product(cosine, radius)

    def half_turns(self, x: Expr) -> tuple[Expr, Expr]:
        """sin(pi * x) and cos(pi * x) to the last places, near their zeros too."""
        quarter = self.let("quarter", _fn("round", _product(_number(2.0, F64), x)))
        far = _product(quarter, _number(0.5, F64))
        rest = self.let("rest", _product(_number(math.pi, F64), Binary(BinaryOp.SUB, x, far)))
        sine, cosine = self.let("sine", _fn("sin", rest)), self.let("cosine", _fn("cos", rest))
        turn = Binary(BinaryOp.BITAND, Cast(quarter, INT32), const(3))
        less = [Unary(UnaryOp.NEG, v) for v in (sine, cosine)]
        which = self.let("turn", turn)
        return (
            _chosen(which, (sine, cosine, less[0], less[1])),
            _chosen(which, (cosine, less[0], less[1], sine)),
        )


STEP = float.fromhex("0x1.921fb6p+2") * 2.0**-32
"""2 * pi as a float32, in units of a word."""


def _chosen(which: Expr, values: Sequence[Expr]) -> Expr:
    out = values[-1]
    for n in reversed(range(len(values) - 1)):
        out = Select(Binary(BinaryOp.EQ, which, const(n)), values[n], out)
    return out


def _uniform(word: Expr, dtype: DType) -> Expr:
    """In (0, 1]."""
    half = 2.0**-33 if dtype == F32 else 2.0**-32
    narrow = Cast(word, DType("uint32"))
    return _sum(_product(Cast(narrow, dtype), _number(2.0**-32, dtype)), _number(half, dtype))


def _fifty_three(low: Expr, high: Expr) -> Expr:
    """53 bits of two words as a float64 integer."""
    bits = _word(BinaryOp.BITXOR, low, _word(BinaryOp.SHL, high, 21))
    return Cast(bits, F64)
