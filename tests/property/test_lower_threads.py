"""Random code of threads with barriers gives the same on the emulator and in loops over threads."""

from dataclasses import dataclass, field

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as hs

from emulator_build import I32, TX, TY, buf, e, kernel, ld, op, reg, st, var
from lower_build import check_native
from tilelang.ir.expr import Buffer, Expr, Load, Select, Var
from tilelang.ir.special import Collective
from tilelang.ir.tile import (
    Alloc,
    Atomic,
    AtomicOp,
    Continue,
    For,
    If,
    Let,
    Parallel,
    Stmt,
    SyncThreads,
    ThreadReturn,
)

COUNT = 64


@dataclass
class Code:
    """Statements of a block of 64 threads; what one thread writes, others read after a barrier."""

    draw: hs.DrawFn
    tid: Expr
    total: Buffer
    returns: bool
    taken: int = 0
    names: list[Var] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.shared = buf("s", I32, COUNT, scope="shared.dyn")
        self.own = buf("v", I32, 1, scope="local.var")
        self.array = buf("w", I32, 3, scope="local")
        self.same = buf("u", I32, 1, scope="local.var")

    def name(self, hint: str) -> str:
        self.taken += 1
        return f"{hint}_{self.taken}"

    def value(self, depth: int = 2) -> Expr:
        kind = self.draw(hs.integers(0, 8 if depth else 5))
        if kind <= 5:
            leaves = [
                self.tid,
                e(self.draw(hs.integers(-5, 5))),
                ld(self.own, 0),
                ld(self.same, 0),
                ld(self.array, self.draw(hs.integers(0, 2))),
                self.draw(hs.sampled_from(self.names)) if self.names else self.tid,
            ]
            return leaves[kind]
        a, b = self.value(depth - 1), self.value(depth - 1)
        if kind == 8:
            return Select(op("<", a, b), a, op("-", b, 1))
        return op({6: "+", 7: "-"}[kind], a, b)

    def small(self) -> Expr:
        return op("%", self.value(), 97)

    # Statements ----------------------------------------------------------------------------------

    def own_step(self, loops: int = 0) -> list[Stmt]:
        """Something a thread does for itself."""
        kind = self.draw(hs.integers(0, 6))
        made: Stmt = st(self.own, 0, op("+", ld(self.own, 0), 1))
        if kind == 0:
            made = st(self.own, 0, self.small())
        elif kind == 1:
            made = st(self.array, self.draw(hs.integers(0, 2)), self.small())
        elif kind == 2 and not loops:
            x = Var(self.name("x"), I32)
            made = Let(x, self.small())
            self.names.append(x)
        elif kind == 3 and loops < 2:
            made = self.branch(loops)
        elif kind == 4 and loops < 2:
            made = self.rounds(loops)
        elif kind == 5:
            made = Atomic(AtomicOp.ADD, _one(self.total, op("%", self.small(), 7)), self.small())
        return [made]

    def branch(self, loops: int) -> Stmt:
        names = list(self.names)
        then = tuple(self.own_step(loops + 1))
        self.names = list(names)
        orelse = tuple(self.own_step(loops + 1))
        self.names = names
        return If(op("<", self.value(), self.value()), then, orelse=orelse)

    def rounds(self, loops: int) -> Stmt:
        k = var(self.name("k"))
        names = list(self.names)
        self.names.append(k)
        body = [*self.own_step(loops + 1)]
        if self.draw(hs.booleans()):
            body.append(If(op("<", self.small(), 40), (Continue(),), orelse=()))
            body += self.own_step(loops + 1)
        self.names = names
        stop = op("%", self.value(), 4)
        return For(k, e(0), stop, tuple(body))

    def exchange(self) -> list[Stmt]:
        """Every thread gives a value to another one."""
        kind = self.draw(hs.integers(0, 3))
        if kind == 0:
            fn = self.draw(hs.sampled_from(["shfl_xor", "shfl_up", "shfl_down", "shfl_sync"]))
            got = Var(self.name("got"), I32)
            other = e(self.draw(hs.integers(0, 31)))
            made = Collective(fn, (self.small(), other), got, params=(32, -1))
            self.names.append(got)
            return [made]
        there = op("%", op("+", self.tid, self.draw(hs.integers(0, COUNT - 1))), COUNT)
        read = st(self.own, 0, op("+", ld(self.own, 0), Load(self.shared, (there,))))
        if kind == 1:
            i = var(self.name("i"))
            twice = st(self.shared, i, op("*", ld(self.shared, i), 2))
            between: list[Stmt] = [Parallel((i,), (e(COUNT),), (twice,))]
        else:
            between = [SyncThreads()]
        return [st(self.shared, self.tid, self.small()), *between, read, SyncThreads()]

    def block_step(self) -> list[Stmt]:
        """Something that all threads reach together."""
        kind = self.draw(hs.integers(0, 4))
        if kind == 0:
            return [st(self.same, 0, op("+", ld(self.same, 0), 3))]
        if kind == 1:
            k = var(self.name("r"))
            names = list(self.names)
            self.names.append(k)
            body = (*self.own_step(), *self.exchange())
            self.names = names
            return [For(k, e(0), e(self.draw(hs.integers(0, 3))), body)]
        if kind == 2 and not self.returns:  # the emulator takes no variable for the same then
            names = list(self.names)
            then = (*self.exchange(), *self.own_step())
            self.names = names
            return [If(op("<", ld(self.same, 0), 5), then, orelse=())]
        return self.exchange()


def _one(buffer: Buffer, at: Expr):
    return reg(buffer, at, ext=(1,))


@hs.composite
def kernels(draw: hs.DrawFn):
    """A kernel of random steps, by threads in one axis or in two."""
    flat = draw(hs.booleans())
    tid = TX if flat else op("+", op("*", TY, 16), TX)
    C, H = buf("C", I32, COUNT), buf("H", I32, 7)
    code = Code(draw, tid, H, draw(hs.booleans()))
    body: list[Stmt] = [
        Alloc(code.shared),
        Alloc(code.own, init=draw(hs.sampled_from([None, tid]))),
        Alloc(code.array),
        Alloc(code.same),
        *(st(code.array, n, e(n)) for n in range(3)),
    ]
    for _ in range(draw(hs.integers(1, 5))):
        body += code.own_step() if draw(hs.booleans()) else code.block_step()
    if code.returns:
        body.append(If(op("<", code.small(), 30), (ThreadReturn(),), orelse=()))
    body.append(st(C, tid, op("+", ld(code.own, 0), ld(code.array, 1))))
    return kernel([C, H], *body, threads=(COUNT,) if flat else (16, 4))


@given(kernels())
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
def test_random_code_of_threads(fn):
    check_native(fn, C=np.full(COUNT, -1, np.int32), H=np.zeros(7, np.int32))
