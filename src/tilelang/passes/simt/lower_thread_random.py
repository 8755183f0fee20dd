"""Random numbers of threads as arithmetic: Philox4x32-10 (Salmon, Moraes, Dror and Shaw, SC11), as
cuRAND's `curandStatePhilox4_32_10_t` delivers them.

What enters: a function of the tile stage. What leaves: one without `RngInit` and `RngNext`. A
stream is three variables of each thread: the seed, the sequence and the position in it; a number is
computed from these alone. Bits and uniform numbers are cuRAND's; normal numbers agree to the last
places.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilelang.dtypes import DType
from tilelang.errors import Loc
from tilelang.ir.expr import (
    BOOL,
    Binary,
    BinaryOp,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    Select,
    const,
)
from tilelang.ir.special import RngInit, RngNext
from tilelang.ir.tile import Alloc, Block, Function, If, Launch, Let, Parallel, Stmt, Store
from tilelang.isa.target import Target
from tilelang.passes.build import Names, as_type, get_scalar, map_bodies, map_statements
from tilelang.passes.lower_parallel import statements
from tilelang.passes.simt.launch import refused

U32, U64, F32 = DType("uint32"), DType("uint64"), DType("float32")
LOW, HALF = Const(0xFFFFFFFF, U64), Const(32, U64)
MULTIPLIERS = (Const(0xD2511F53, U64), Const(0xCD9E8D57, U64))
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10


def lower_thread_random(fn: Function, target: Target) -> Function:
    """No random numbers but as arithmetic."""
    del target
    names = Names(fn)

    def one(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, Launch):
            return None
        if not any(isinstance(s, (RngInit, RngNext)) for s in statements(stmt.body)):
            return None
        return (stmt.with_(body=_Stream(names, stmt.loc).launch(stmt.body)),)

    return fn.with_(body=map_statements(fn.body, one))


@dataclass
class _Stream:
    """The streams of the threads of one launch."""

    names: Names
    loc: Loc | None

    def __post_init__(self) -> None:
        self.seed, self.sequence, self.position = (
            self.variable(hint, U64) for hint in ("seed", "sequence", "position")
        )
        self.spare = self.variable("spare", F32)
        self.pending = self.variable("pending", BOOL)

    def variable(self, hint: str, dtype: DType) -> Buffer:
        """A variable of each thread."""
        return self.names.buffer(f"random_{hint}", dtype, (1,), "local.var")

    def launch(self, body: Block) -> Block:
        """The body with its streams."""
        own = (self.seed, self.sequence, self.position, self.spare, self.pending)
        return (*(Alloc(b, loc=self.loc) for b in own), *self.block(body))

    def block(self, body: Block) -> Block:
        """Statements in order."""
        return tuple(x for s in body for x in self.statement(s))

    def statement(self, stmt: Stmt) -> Block:
        """One statement."""
        if isinstance(stmt, Parallel) and any(isinstance(s, RngNext) for s in statements((stmt,))):
            raise refused(stmt, "a random number in T.Parallel")
        if isinstance(stmt, RngInit):
            return self.start(stmt)
        if isinstance(stmt, RngNext):
            return self.draw(stmt)
        return (map_bodies(stmt, self.block),)

    def start(self, stmt: RngInit) -> Block:
        """The beginning of a stream."""
        pairs = (
            (self.seed, as_type(stmt.seed, U64)),
            (self.sequence, as_type(stmt.sequence, U64)),
            (self.position, as_type(stmt.offset, U64)),
            (self.pending, Const(False, BOOL)),
        )
        return tuple(self.set(b, value) for b, value in pairs)

    def set(self, buffer: Buffer, value: Expr) -> Stmt:
        """Gives a variable a value."""
        return Store(buffer, (const(0),), value, loc=self.loc)

    # Numbers -------------------------------------------------------------------------------------

    def draw(self, stmt: RngNext) -> Block:
        """The next number of the thread's stream."""
        dtype, out = stmt.result.type, list[Stmt]()
        if stmt.distribution == "normal":
            if dtype != F32:
                raise refused(stmt, f"a normal random number of type {dtype}")
            return self.normal(stmt)
        word = self.word(0, out)
        out.append(self.go_on(1))
        value = word if stmt.distribution == "bits" else uniform(word, dtype)
        return (*out, Let(stmt.result, as_type(value, dtype), loc=stmt.loc))

    def go_on(self, count: int) -> Stmt:
        """The position after so many numbers."""
        here = Binary(BinaryOp.ADD, get_scalar(self.position), Const(count, U64))
        return self.set(self.position, here)

    def word(self, ahead: int, out: list[Stmt]) -> Expr:
        """The 32 bits at a position, as a number of 64."""

        def let(hint: str, value: Expr) -> Expr:
            name = self.names.var(hint, value.dtype)
            out.append(Let(name, value, loc=self.loc))
            return name

        at = let("at", add(get_scalar(self.position), Const(ahead, U64)))
        low = let("low", shift(at, Const(2, U64)))
        high, seed = get_scalar(self.sequence), get_scalar(self.seed)
        x = [mask(low), shift(low, HALF), mask(high), shift(high, HALF)]
        keys = [let("key", mask(seed)), let("key", shift(seed, HALF))]
        for step in range(ROUNDS):
            a = let("a", Binary(BinaryOp.MUL, x[0], MULTIPLIERS[0]))
            b = let("b", Binary(BinaryOp.MUL, x[2], MULTIPLIERS[1]))
            k = [
                mask(add(key, Const(weyl * step, U64)))
                for key, weyl in zip(keys, WEYL, strict=True)
            ]
            x = [
                let("x", xor(xor(shift(b, HALF), x[1]), k[0])),
                let("x", mask(b)),
                let("x", xor(xor(shift(a, HALF), x[3]), k[1])),
                let("x", mask(a)),
            ]
        place = let("place", Binary(BinaryOp.BITAND, at, Const(3, U64)))
        chosen = x[3]
        for n in (2, 1, 0):
            chosen = Select(Binary(BinaryOp.EQ, place, Const(n, U64)), x[n], chosen)
        return let("word", Cast(chosen, U32))

    def normal(self, stmt: RngNext) -> Block:
        """A pair by Box and Muller's method; the second one waits for the next request."""
        out: list[Stmt] = []
        result = self.variable("normal", F32)
        first, second = self.word(0, out), self.word(1, out)
        step = Const(float(2.0**-32 * 6.2831854820251465), F32)
        half = Const(float(2.0**-33 * 6.2831854820251465), F32)
        angle = add(Binary(BinaryOp.MUL, Cast(second, F32), step), half)
        logs = Call("log", (uniform(first, F32),), F32)
        radius = Call("sqrt", (Binary(BinaryOp.MUL, Const(-2.0, F32), logs),), F32)
        a, r = self.names.var("angle", F32), self.names.var("radius", F32)
        sine, cosine = (Binary(BinaryOp.MUL, Call(f, (a,), F32), r) for f in ("sin", "cos"))
        fresh = (
            *out,
            Let(a, angle, loc=stmt.loc),
            Let(r, radius, loc=stmt.loc),
            self.set(result, sine),
            self.set(self.spare, cosine),
            self.set(self.pending, Const(True, BOOL)),
            self.go_on(2),
        )
        kept = (
            self.set(result, get_scalar(self.spare)),
            self.set(self.pending, Const(False, BOOL)),
        )
        return (
            Alloc(result, loc=stmt.loc),
            If(get_scalar(self.pending), kept, orelse=fresh, loc=stmt.loc),
            Let(stmt.result, get_scalar(result), loc=stmt.loc),
        )


def uniform(word: Expr, dtype: DType) -> Expr:
    """In (0, 1]: x * 2**-32 + 2**-33, as a double + 2**-32."""
    half = 2.0**-33 if dtype == F32 else 2.0**-32
    scaled = Binary(BinaryOp.MUL, Cast(word, dtype), Const(2.0**-32, dtype))
    return add(scaled, Const(half, dtype))


def add(a: Expr, b: Expr) -> Expr:
    """The sum."""
    return Binary(BinaryOp.ADD, a, b)


def xor(a: Expr, b: Expr) -> Expr:
    """The exclusive or."""
    return Binary(BinaryOp.BITXOR, a, b)


def shift(a: Expr, by: Expr) -> Expr:
    """The bits from `by` on."""
    return Binary(BinaryOp.SHR, a, by)


def mask(a: Expr) -> Expr:
    """The low 32 bits."""
    return Binary(BinaryOp.BITAND, a, LOW)
