"""Loops in lockstep as vector code.

What enters: a loop and its `lockstep.Plan`. What leaves: the loop over strips of neighbouring
iterations, whose values are vectors with a lane for each, and a loop for what is left. A value that
is the same in all iterations stays a scalar. Neighbouring elements are read and written as one
vector, others lane by lane.
"""

from __future__ import annotations

from collections.abc import Callable

from tilelang.ir.expr import Expr, Select
from tilelang.ir.thread import Declare, Elem, Write
from tilelang.ir.tile import Assume, Block, If, Let, Stmt
from tilelang.targets.cpu.expressions import Expressions, Marks
from tilelang.targets.cpu.lockstep import Plan, Strides
from tilelang.targets.cpu.places import Place
from tilelang.targets.cpu.text import Code, Value, lanes_of, number, vector
from tilelang.targets.cpu.types import element_type, value_type

STRAIGHT = 4
"""A strip is repeated as straight-line code up to this often, in a loop beyond."""


def strips(
    code: Code, start: Value, stop: Value, plan: Plan, one: Callable[[Value, int], None]
) -> None:
    """All iterations from `start` up to `stop`: `one(first, n)` does `n` of them at once."""
    first, last = _known(start), _known(stop)
    if first is not None and last is not None:
        _known_strips(code, start.type, (first, last), plan, one)
        return
    counter = code.alloca(start.type)
    code.store(start, counter)
    for lanes in dict.fromkeys((plan.strip, plan.lanes, 1)):
        _loop(code, counter, stop, lanes, one)


def _known(value: Value) -> int | None:
    return None if value.text.startswith(("%", "@")) else int(value.text)


def _known_strips(
    code: Code, kind: str, span: tuple[int, int], plan: Plan, one: Callable[[Value, int], None]
) -> None:
    """Iterations whose number is known: no more than one strip of each length below the first."""
    now, last = span
    whole = max(last - now, 0) // plan.strip
    if whole > STRAIGHT:
        counter = code.alloca(kind)
        code.store(number(kind, now), counter)
        _loop(code, counter, number(kind, now + whole * plan.strip), plan.strip, one)
        now += whole * plan.strip
    lanes = plan.strip
    while now < last:
        while lanes > last - now:
            lanes //= 2
        one(number(kind, now), lanes)
        now += lanes


def _loop(
    code: Code, counter: Value, stop: Value, lanes: int, one: Callable[[Value, int], None]
) -> None:
    """Strips of `lanes` iterations as long as there are so many."""
    kind = stop.type
    head, inside, after = (code.label(n) for n in ("strips", "strip", "rest"))
    end = stop if lanes == 1 else code.op("sub", stop, number(kind, lanes - 1))
    code.place(head)
    now = code.load(kind, counter)
    code.branch(code.compare("slt", now, end), inside, after)
    code.place(inside)
    one(now, lanes)
    code.store(code.op("add nsw", now, number(kind, lanes)), counter)
    plain = code.module.node('!{!"llvm.loop.unroll.disable"}')
    width = code.module.node('!{!"llvm.loop.vectorize.width", i32 1}')
    loop = code.module.node(f"!{{{{self}}, {plain}, {width}}}", distinct=True)
    code.jump(head, f", !llvm.loop {loop}")
    code.place(after)


class Strip:
    """The statements of `lanes` neighbouring iterations.

    `first` has the scalars of the first one, which give the addresses; `all` the values of all.
    """

    def __init__(self, outer: Expressions, var: str, at: Value, lanes: int) -> None:
        self.code = outer.code
        self.lanes = lanes
        self.strides = Strides({var: 1})
        self.first = Expressions(outer.code, outer.memory)
        self.first.vars = {**outer.vars, var: at}
        self.first.places = outer.places
        self.all = _Lanes(self)
        self.all.vars = {**outer.vars, var: self.counted(at)}
        self.all.places = outer.places

    def counted(self, at: Value) -> Value:
        """`at`, `at + 1`, ... in the lanes."""
        kind = vector(at.type, self.lanes)
        steps = ", ".join(f"{at.type} {k}" for k in range(self.lanes))
        return self.code.op("add", self.code.splat(at, self.lanes), Value(kind, f"<{steps}>"))

    def body(self, body: Block) -> None:
        """Statements in order."""
        for stmt in body:
            self.first.begin()
            self.all.begin()
            self.statement(stmt)

    def statement(self, stmt: Stmt) -> None:
        """One statement; `lockstep.plan` lets no other kind through."""
        match stmt:
            case Let():
                self.let(stmt)
            case Write():
                self.write(stmt)
            case Declare():
                self.declare(stmt)
            case If():
                self.branch(stmt)
            case _:
                assert isinstance(stmt, Assume)

    def let(self, stmt: Let) -> None:
        """A name; of an integer with a stride the first lane is known by itself."""
        name = stmt.var.name
        stride = self.strides.of_name[name] = self.strides.of(stmt.value)
        if stride is not None:
            self.first.vars[name] = self.first.of(stmt.value)
        self.all.vars[name] = self.first.vars[name] if stride == 0 else self.all.of(stmt.value)

    def declare(self, stmt: Declare) -> None:
        """A variable of each iteration: a vector with a place for each."""
        array = stmt.array
        self.strides.private.add(array.name)
        kind = vector(element_type(array.type), self.lanes)
        place = Place(self.code.alloca(kind), array.type, array.name)
        self.all.places[array.name] = place
        if stmt.init is not None:
            self.store(place, number("i64", 0), self.all.of(stmt.init))

    def store(self, place: Place, index: Value, value: Value) -> None:
        """Neighbouring elements, from all lanes."""
        self.all.memory.write(
            place, index, self.code.splat(value, self.lanes // lanes_of(value.type)), place.dtype
        )

    def write(self, stmt: Write) -> None:
        """An element of each iteration."""
        place = self.all.place(stmt.array.name)
        value = self.all.of(stmt.value)
        if stmt.array.name in self.strides.private:
            self.store(place, number("i64", 0), value)
        elif self.strides.of(stmt.index) == 1:
            self.store(place, self.first.index(stmt.index), value)
        else:
            index = self.all.index(stmt.index)
            for k in range(self.lanes):
                at, one = self.lane(index, k), self.lane(value, k)
                self.all.memory.write(place, at, one, place.dtype)

    def lane(self, value: Value, k: int) -> Value:
        """The value of one iteration."""
        return self.code.extract(value, k)

    def branch(self, stmt: If) -> None:
        """A condition that is the same in all iterations."""
        code = self.code
        then, orelse, after = (code.label(n) for n in ("then", "else", "end"))
        code.branch(self.first.of(stmt.cond), then, orelse, "")
        for label, body in ((then, stmt.then), (orelse, stmt.orelse)):
            code.place(label)
            self.body(body)
            code.jump(after)
        code.place(after)


class _Lanes(Expressions):
    """Values of all iterations of a strip: vectors, or scalars that are the same in all."""

    def __init__(self, strip: Strip) -> None:
        super().__init__(strip.code, strip.first.memory)
        self.strip = strip

    def mark(self) -> Marks:
        """As for scalars, which are made on the way."""
        return [*super().mark(), *self.strip.first.mark()]

    def back(self, marks: Marks) -> None:
        """As for scalars."""
        super().back(marks[:1])
        self.strip.first.back(marks[1:])

    def _elem(self, e: Elem) -> Value:
        strip, place = self.strip, self.place(e.array.name)
        if e.array.name in strip.strides.private:
            return self.memory.read(place, number("i64", 0), e.type, strip.lanes)
        stride = strip.strides.of(e.index)
        if stride == 0:
            return strip.first.of(e)
        if stride == 1:
            return self.memory.read(place, strip.first.index(e.index), e.type, strip.lanes)
        index = self.index(e.index)
        out = Value(vector(value_type(e.type), strip.lanes), "poison")
        for k in range(strip.lanes):
            out = self.code.insert(out, self.memory.read(place, strip.lane(index, k), e.type), k)
        return out

    def _select(self, e: Select) -> Value:
        if self.strip.strides.of(e.cond) == 0 and e.lazy:
            return self._branches(self.strip.first.of(e.cond), e)
        cond, t, f = self.of(e.cond), *self.together(self.of(e.t), self.of(e.f))
        if lanes_of(cond.type) > lanes_of(t.type):
            t, f = (self.code.splat(v, self.strip.lanes) for v in (t, f))
        return self.code.select(cond, t, f)

    def _arm(self, e: Expr) -> Value:
        value = self.of(e)
        return self.code.splat(value, self.strip.lanes // lanes_of(value.type))

    def _arm_type(self, e: Select) -> str:
        return vector(value_type(e.dtype), self.strip.lanes)
