"""Products: one `mad` for operands in L0A and L0B, a loop over tiles of K for operands in L1.

What enters: `Gemm` statements. What leaves: rows `l1.l0a`, `l1.l0b`, `mad`, and the flags that
order them. A product from L1 uses two halves of what the author leaves of L0A and L0B by turns, and
event ids that nothing else uses. In the adapter dialect it also waits for the copies into L1 and
for the drain of L0C before it, and lets those after it wait for it; in the mainline dialect that is
the author's, or the scheduler's.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilelang.errors import error
from tilelang.ir.ascend import Pipe
from tilelang.ir.expr import (
    INT32,
    Binary,
    BinaryOp,
    Const,
    Expr,
    Region,
    const,
    int_value,
)
from tilelang.ir.simplify import ceildiv, simplify
from tilelang.ir.special import GemmBlockScaled
from tilelang.ir.thread import Array, Declare, Instr, Slot, Space
from tilelang.ir.tile import Block, For, Function, Gemm, Stmt, While
from tilelang.passes.ascend.effects import PRODUCTS
from tilelang.passes.ascend.step import Matrix, Step
from tilelang.passes.ascend.storage import C0_BYTES, FRACTAL, ceil_to
from tilelang.passes.build import as_type, compare, minus, plus, serial, times
from tilelang.scopes import Dialect, Memory, memory_of

_L0_K = 128
"""The part of K that is loaded at once, as tilelang-ascend's gemm_v0 has it (`common.h`)."""

Product = Gemm | GemmBlockScaled

_INTO_L0 = frozenset({Memory.L0A, Memory.L0B})


def orientations(fn: Function) -> dict[str, bool]:
    """The buffers of L0A and L0B whose product takes them transposed, and those whose does not.

    The order of fractals depends on which axis is summed over, so the products of one buffer must
    agree.
    """
    dialect = Dialect(fn.dialect)
    found: dict[str, bool] = {}
    for stmt in fn.walk():
        if not isinstance(stmt, (Gemm, GemmBlockScaled)):
            continue
        for r, turned in ((stmt.a, stmt.transpose_a), (stmt.b, stmt.transpose_b)):
            if memory_of(dialect, r.buffer.scope) not in _INTO_L0:
                continue
            if found.setdefault(r.buffer.name, turned) != turned:
                raise error(
                    "layout",
                    f"one product takes {r.buffer.name} transposed, and another as it is",
                    stmt.loc,
                    expected="products that agree: the tile's fractals lie in one order",
                    help="load the tile into a second buffer for one of them",
                )
    return found


def is_alone(fn: Function) -> bool:
    """Whether no product of a function can run before another: there is one, and no loop has it."""
    products = [n for n in fn.walk() if isinstance(n, PRODUCTS)]
    loops = (n for n in fn.walk() if isinstance(n, (For, While)))
    return len(products) == 1 and not any(m is products[0] for n in loops for m in n.walk())


def gemm(step: Step, stmt: Gemm) -> Block:
    """A product."""
    memories = tuple(step.memory(r) for r in (stmt.a, stmt.b, stmt.c))
    if memories[2] is not Memory.L0C:
        raise _wrong(step, memories, "an accumulator in L0C")
    _accumulates(step, stmt)
    if memories[:2] == (Memory.L0A, Memory.L0B):
        return _from_l0(step, stmt)
    if memories[:2] == (Memory.L1, Memory.L1):
        return FromL1(step, stmt).block()
    raise _wrong(step, memories, "operands in L1 and L1, or in L0A and L0B")


def _wrong(step: Step, memories: tuple[Memory, ...], expected: str) -> Exception:
    got = ", ".join(m.title for m in memories)
    return step.fault("scope", "a product of these memories", expected=expected, got=got)


def _accumulates(step: Step, stmt: Gemm) -> None:
    a, b, c = stmt.a.dtype, stmt.b.dtype, stmt.c.dtype
    wanted = "int32" if a.is_integer else "float32"
    if a.name != b.name and not (a.bits == 8 and b.bits == 8):
        raise step.fault("dtype", f"a product of {a} and {b}", expected="one element type")
    if c.name != wanted:
        raise step.fault(
            "dtype", f"a product of {a} accumulated in {c}", expected=wanted, got=str(c)
        )


@dataclass(frozen=True)
class Sizes:
    """The extents of a product, and whether its operands lie along K last (A) or first (B)."""

    m: Expr
    n: Expr
    k: Expr


def sizes_of(step: Step, stmt: Product, a: Matrix, b: Matrix, c: Matrix) -> Sizes:
    """The extents of a product, which must agree."""
    m, k = (a.columns, a.rows) if stmt.transpose_a else (a.rows, a.columns)
    other, n = (b.columns, b.rows) if stmt.transpose_b else (b.rows, b.columns)
    for what, x, y in (("K of A and B", k, other), ("M of A and C", m, c.rows)):
        if int_value(x) is not None and int_value(y) is not None and int_value(x) != int_value(y):
            raise step.fault("shape", f"{what} differ", got=f"{int_value(x)} and {int_value(y)}")
    if int_value(n) != int_value(c.columns):
        raise step.fault(
            "shape", "N of B and C differ", got=f"{int_value(n)} and {int_value(c.columns)}"
        )
    return Sizes(m, n, k)


def accumulator(step: Step, r: Region, sizes: Sizes) -> Matrix:
    """The tile of L0C. Its fractals follow each other for the rows of the product."""
    c = step.matrix(r, wide=FRACTAL)
    m, n = int_value(sizes.m), int_value(sizes.n)
    if m is not None and ceil_to(m, FRACTAL) != c.tile.padded_rows and (n is None or n > FRACTAL):
        raise step.fault(
            "layout",
            f"a product of {m} rows in a tile of L0C of {c.tile.rows} rows",
            expected=f"{c.tile.padded_rows} rows when whole fractals are counted: a product writes"
            " them one after the other",
            help="let the product cover all rows of the tile, or use a smaller tile",
        )
    return c


def _mad(step: Step, c: Matrix, operands: tuple[Slot, Slot], init: Expr, sizes: Sizes) -> Instr:
    counts = (sizes.m, sizes.n, sizes.k, const(c.tile.padded_rows))
    c0 = C0_BYTES // operands[0].dtype.bytes
    return step.instr("mad", c.slot, *operands, init, *counts, c0=c0)


def _from_l0(step: Step, stmt: Gemm) -> Block:
    """Operands in L0A and L0B."""
    a, b = step.matrix(stmt.a), step.matrix(stmt.b)
    for operand in (a, b):
        step.from_origin(operand)
    plain = step.matrix(stmt.c, wide=FRACTAL)
    sizes = sizes_of(step, stmt, a, b, plain)
    c = accumulator(step, stmt.c, sizes)
    return (_mad(step, c, (a.slot, b.slot), step.expr(stmt.clear_accum), sizes),)


# From L1 ------------------------------------------------------------------------------------------


class FromL1:
    """Operands in L1: tiles of K by turns through two halves of L0A and L0B."""

    def __init__(self, step: Step, stmt: Product) -> None:
        self.step = step
        self.stmt = stmt
        self.a, self.b = step.matrix(stmt.a), step.matrix(stmt.b)
        for operand in (self.a, self.b):
            step.whole_rows(operand)
        plain = step.matrix(stmt.c, wide=FRACTAL)
        self.sizes = sizes_of(step, stmt, self.a, self.b, plain)
        self.c = accumulator(step, stmt.c, self.sizes)
        self.loc = stmt.loc
        self.chunk = self._chunk()

    @property
    def grain(self) -> int:
        """The elements of K that are not parted."""
        return self.a.c0

    def _chunk(self) -> int:
        """The part of K whose tiles fit half of what is left of L0A and of L0B."""
        chunk, c0 = _L0_K, self.a.c0
        known = int_value(self.sizes.k)
        if known is not None:
            chunk = min(chunk, ceil_to(max(known, 1), max(c0, FRACTAL)))
        item = self.stmt.a.dtype.bytes
        for extent, memory in ((self.sizes.m, Memory.L0A), (self.sizes.n, Memory.L0B)):
            outer = int_value(extent)
            if outer is None:
                r = self.stmt.a if memory is Memory.L0A else self.stmt.b
                outer = max(int_value(e) or 0 for e in r.buffer.shape[-2:])
            row = ceil_to(outer, max(FRACTAL, c0)) * item
            _, room = self._room(memory)
            while chunk > self.grain and 2 * row * chunk > room:
                chunk //= 2
            if 2 * row * chunk > room:
                raise self.step.fault(
                    "capacity",
                    f"two tiles of {outer} x {chunk} elements do not fit the {memory.title}",
                    expected=f"at most {room} bytes",
                    got=f"{2 * row * chunk} bytes",
                    help="use a smaller tile",
                )
        return chunk

    def _room(self, memory: Memory) -> tuple[int, int]:
        """Where the author's buffers in L0A or L0B end, and what is left after."""
        shared = self.step.shared
        space = Space.L0A if memory is Memory.L0A else Space.L0B
        end = 0
        for name, address in shared.addresses.items():
            at = shared.acc.places.get(name)
            if at is not None and at.array.space is space:
                end = max(
                    end, address + (int_value(at.array.size or const(0)) or 0) * at.array.type.bytes
                )
        end = ceil_to(end, 512)
        capacity = shared.target.capacity(memory)
        return end, (capacity.amount if capacity is not None else 1 << 16) - end

    def block(self) -> Block:
        """The whole product."""
        step = self.step
        own = step.shared.own_order
        before: list[Stmt] = []
        after: list[Stmt] = []
        if own:
            before += [*self._pair(Pipe.MTE2, Pipe.MTE1), *self._pair(Pipe.FIX, Pipe.M)]
            after += [*self._pair(Pipe.MTE1, Pipe.MTE2), *self._pair(Pipe.M, Pipe.FIX)]
        halves, declared = self.halves()
        ids = step.shared.ids.two(Pipe.M, Pipe.MTE1), step.shared.ids.two(Pipe.MTE1, Pipe.M)
        count = ceildiv(self.sizes.k, Const(self.chunk, self.sizes.k.dtype))
        count = simplify(count, step.env)
        if int_value(count) == 1:  # nothing to wait for but the product before
            free = () if step.shared.alone else self._pair(Pipe.M, Pipe.MTE1)
            body = self._tile(const(0), halves, ids, step)[1:-1]
            return (*declared, *before, *free, *body, *after)
        before += [self._flag("flag.set", Pipe.M, Pipe.MTE1, const(e)) for e in ids[0]]
        after = [*(self._flag("flag.wait", Pipe.M, Pipe.MTE1, const(e)) for e in ids[0]), *after]
        var = step.shared.names.var("kk", INT32)
        body = self._tile(var, halves, ids, step)
        loop = serial(var, as_type(count, INT32), body, self.loc)
        return (*declared, *before, loop, *after)

    def halves(self) -> tuple[tuple[Array, Array], Block]:
        """Two arrays of two tiles each, behind what the author has in L0A and L0B."""
        names, dtype = self.step.shared.names, self.stmt.a.dtype.base
        made: list[Array] = []
        declared: list[Stmt] = []
        for memory, space in ((Memory.L0A, Space.L0A), (Memory.L0B, Space.L0B)):
            start, room = self._room(memory)
            size = const(room // dtype.bytes)
            array = Array(names.name(f"{space.value}_tiles"), dtype, size, space=space, align=512)
            made.append(array)
            declared.append(Declare(array, offset=start, loc=self.loc))
        return (made[0], made[1]), tuple(declared)

    def _tile(
        self,
        kk: Expr,
        halves: tuple[Array, Array],
        ids: tuple[tuple[int, int], tuple[int, int]],
        step: Step,
    ) -> Block:
        """One part of K: two loads and a product."""
        turn = simplify(Binary(BinaryOp.FLOORMOD, kk, const(2)), step.env)
        free, ready = (_chosen(turn, pair) for pair in ids)
        done = times(kk, self.chunk)
        k = simplify(
            Binary(BinaryOp.MIN, const(self.chunk), as_type(minus(self.sizes.k, done), INT32)),
            step.env,
        )
        slots: list[Slot] = []
        loads: list[Stmt] = []
        for row, m, along, array, outer in (
            ("l1.l0a", self.a, self.stmt.transpose_a, halves[0], self.sizes.m),
            ("l1.l0b", self.b, not self.stmt.transpose_b, halves[1], self.sizes.n),
        ):  # `along`: the rows of the tile in L1 run along K
            half = (int_value(array.size or const(0)) or 0) // 2
            half -= half % (FRACTAL * m.c0)
            slot = Slot(array, times(turn, half), 1)
            src = m.moved(rows=done) if along else m.moved(blocks=times(kk, self.chunk // m.c0))
            plain = (row == "l1.l0b") == along
            name = row if plain else f"{row}.t"
            loads.append(step.instr(name, slot, src, outer, k, m.tile.padded_rows, c0=m.c0))
            slots.append(slot)
        first = compare(BinaryOp.EQ, kk, 0)
        clear = step.expr(self.stmt.clear_accum)
        init = simplify(Binary(BinaryOp.AND, clear, first), step.env)
        sizes = Sizes(self.sizes.m, self.sizes.n, k)
        return (
            self._flag("flag.wait", Pipe.M, Pipe.MTE1, free),
            *loads,
            *self.more_loads(kk, k, (slots[0], slots[1])),
            self._flag("flag.set", Pipe.MTE1, Pipe.M, ready),
            self._flag("flag.wait", Pipe.MTE1, Pipe.M, ready),
            self.product((slots[0], slots[1]), init, sizes),
            self._flag("flag.set", Pipe.M, Pipe.MTE1, free),
        )

    def more_loads(self, kk: Expr, k: Expr, tiles: tuple[Slot, Slot]) -> list[Stmt]:
        """What else a part of K needs in L0."""
        del kk, k, tiles
        return []

    def product(self, tiles: tuple[Slot, Slot], init: Expr, sizes: Sizes) -> Instr:
        """The product of one part of K."""
        return _mad(self.step, self.c, tiles, init, sizes)

    def _pair(self, src: Pipe, dst: Pipe) -> Block:
        """What follows on `dst` waits for what came before on `src`."""
        e = const(self.step.shared.ids.two(src, dst)[0])
        return (self._flag("flag.set", src, dst, e), self._flag("flag.wait", src, dst, e))

    def _flag(self, row: str, src: Pipe, dst: Pipe, e: Expr) -> Instr:
        imm = (("src", src.value), ("dst", dst.value))
        return Instr(row, (), (e,), imm=imm, loc=self.loc)


def _chosen(turn: Expr, pair: tuple[int, int]) -> Expr:
    """The first of two ids in even turns, the second in odd ones."""
    known = int_value(turn)
    if known is not None:
        return const(pair[known])
    return plus(times(turn, pair[1] - pair[0]), pair[0])
