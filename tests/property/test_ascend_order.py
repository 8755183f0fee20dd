"""Random programs of vector cores: whatever the order of loads, operations, stores, loops and
branches, flags are inserted such that every schedule of the pipes gives the answer of the program's
order, with and without bytes shared between buffers, in that order and in that of the list
scheduler.
"""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tilelang.dtypes import DType
from tilelang.ir.ascend import VectorOp
from tilelang.ir.expr import Binary, BinaryOp, Buffer, Load, Region, Var, const
from tilelang.ir.tile import Alloc, Copy, For, Function, If, Launch, Param
from tilelang.ir.verify import verify
from tilelang.passes.ascend.explicit import EXPLICIT
from tilelang.passes.ascend.lower import lower_ascend
from tilelang.passes.ascend.schedule import listed, schedule
from tilelang.passes.ascend.settings import Automatic, with_automatic
from tilelang.simulator.ascend import AscendProgram
from tilelang.simulator.machine import Schedule
from tilelang.targets import target

CHIP = target("simulate:ascend910b")
FLOAT = DType("float32")
SLOTS, WIDTH, BUFFERS = 3, 16, 4
OPS = {"add": np.add, "max": np.maximum, "mul": np.multiply}

buffers = st.integers(0, BUFFERS - 1)
slots = st.integers(0, SLOTS - 1)
leaf = st.one_of(
    st.tuples(st.just("load"), buffers, slots),
    st.tuples(st.just("store"), buffers, slots),
    st.tuples(st.sampled_from(sorted(OPS)), buffers, buffers, buffers),
    st.tuples(st.just("scalar"), buffers, buffers),
)
programs = st.recursive(
    st.lists(leaf, min_size=1, max_size=5),
    lambda inner: st.lists(
        st.one_of(
            leaf,
            st.tuples(st.just("for"), st.integers(0, 3), inner),
            st.tuples(st.just("if"), st.booleans(), inner),
        ),
        min_size=1,
        max_size=4,
    ),
    max_leaves=6,
)


class Built:
    """The function of a drawn program."""

    def __init__(self, program):
        shape = (const(SLOTS), const(WIDTH))
        self.x, self.y = (Buffer(n, FLOAT, shape) for n in "XY")
        self.tiles = [
            Buffer(f"b{k}", FLOAT, (const(WIDTH),), scope="shared.ub") for k in range(BUFFERS)
        ]
        self.cid, self.vid = Var("cid", DType("int32")), Var("vid", DType("int32"))
        self.count = 0
        start = [Copy(self.slot(self.x, k % SLOTS), self.whole(k)) for k in range(BUFFERS)]
        end = [Copy(self.whole(k), self.slot(self.y, k)) for k in range(SLOTS)]
        first = Binary(BinaryOp.EQ, self.vid, const(0))
        body = If(first, (*start, *self.block(program), *end))
        others = tuple(Var(n, DType("int32")) for n in ("ty", "tz"))
        launch = Launch(
            (const(1),),
            (self.cid,),
            (self.vid, *others),
            (*map(Alloc, self.tiles), body),
            threads=(2,),
        )
        params = (Param("X", buffer=self.x), Param("Y", buffer=self.y))
        self.fn = Function("drawn", params, (), (launch,), dialect="adapter")
        verify(self.fn)

    def whole(self, k):
        return Region(self.tiles[k], (const(0),), (const(WIDTH),))

    def slot(self, buffer, k):
        return Region(buffer, (const(k), const(0)), (const(1), const(WIDTH)))

    def block(self, program):
        return tuple(self.statement(*s) for s in program)

    def statement(self, what, *rest):
        if what == "load":
            return Copy(self.slot(self.x, rest[1]), self.whole(rest[0]))
        if what == "store":
            return Copy(self.whole(rest[0]), self.slot(self.y, rest[1]))
        if what == "scalar":
            value = Load(self.tiles[rest[1]], (const(1),))
            return VectorOp("max", self.whole(rest[0]), (self.whole(rest[0]), value))
        if what in OPS:
            srcs = tuple(self.whole(k) for k in rest[1:])
            return VectorOp(what, self.whole(rest[0]), srcs)
        self.count += 1
        if what == "if":
            cond = Binary(BinaryOp.EQ, self.cid, const(0 if rest[0] else 1))
            return If(cond, self.block(rest[1]))
        var = Var(f"i{self.count}", DType("int32"))
        return For(var, const(0), const(rest[0]), self.block(rest[1]))


def answer(program, x):
    """What a program stores, in its own order."""
    tiles = [x[k % SLOTS].copy() for k in range(BUFFERS)]
    y = np.zeros_like(x)

    def run(block):
        for what, *rest in block:
            if what == "load":
                tiles[rest[0]] = x[rest[1]].copy()
            elif what == "store":
                y[rest[1]] = tiles[rest[0]]
            elif what == "scalar":
                tiles[rest[0]] = np.maximum(tiles[rest[0]], tiles[rest[1]][1])
            elif what in OPS:
                tiles[rest[0]] = OPS[what](tiles[rest[1]], tiles[rest[2]])
            else:
                for _ in range(rest[0]):
                    run(rest[1])

    run(program)
    for k in range(SLOTS):
        y[k] = tiles[k]
    return y


def explicit_and(fn, reordered):
    """The explicit function; `reordered` if each stretch is in the order of the list scheduler,
    whether or not that is sooner done.
    """
    for one in EXPLICIT:
        fn = (listed(fn, CHIP) if reordered else fn) if one is schedule else one(fn, CHIP)
    return fn


@settings(max_examples=30)
@given(programs, st.booleans(), st.booleans())
def test_every_schedule_gives_the_answer_of_the_programs_order(program, share, reordered):
    settings_ = [Automatic.SYNC, *([Automatic.MEMORY] if share else [])]
    made = explicit_and(with_automatic(Built(program).fn, settings_), reordered)
    verify(made)
    model = AscendProgram(lower_ascend(made, CHIP), CHIP.chip)
    x = np.random.default_rng(0).uniform(0.5, 1.5, (SLOTS, WIDTH)).astype(np.float32)
    wanted = answer(program, x)
    y = np.zeros_like(x)
    model.run({"X": x.copy(), "Y": y})
    np.testing.assert_array_equal(y, wanted)
    for turn in Schedule.sweep(3):
        y = np.zeros_like(x)
        found = model.check({"X": x.copy(), "Y": y}, turn)
        assert [d.render() for d in found] == []
        np.testing.assert_array_equal(y, wanted)
