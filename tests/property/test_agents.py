"""A kernel means the same whether its block runs in lockstep or as warps that wait."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator_build import TX, add, buf, e, kernel, ld, mul, op, reg, var
from emulator_build import st as store
from hang_guard import hang_guard  # noqa: F401 - a fixture
from tilelang.emulator import translate
from tilelang.ir.sync import MbarArrive, MbarWait
from tilelang.ir.tile import (
    Alloc,
    Atomic,
    AtomicOp,
    Break,
    Copy,
    Fill,
    For,
    If,
    Parallel,
    Stmt,
    SyncThreads,
    While,
)

pytestmark = pytest.mark.usefixtures("hang_guard")

N = 96
A, B, C = (buf(n, "int32", N) for n in "ABC")
S, S2 = (buf(n, "int32", N, scope="shared.dyn") for n in ("s", "t"))
V, U = (buf(n, "int32", 1, scope="local.var") for n in ("v", "u"))
L = buf("l", "int32", 2, scope="local")
BARS = buf("bars", "uint64", 1, scope="shared.barrier")
small, place = st.integers(0, 4), st.integers(0, N - 1)


def shifted(k):
    return op("%", add(TX, k), N)


def shared(draw):
    return draw(st.sampled_from([S, S2]))


@st.composite
def simple(draw, depth, names):
    """One or more statements that have one meaning."""
    kinds = [_shared, _tiles, _private, *([_nested] if depth else [])]
    return draw(st.sampled_from(kinds))(draw, depth, names)


def _shared(draw, depth, names):
    """Code of threads on shared memory."""
    k, s = draw(place), shared(draw)
    v = ld(V, 0)
    guard = op("==", op("%", TX, draw(st.sampled_from([2, 3, 32, 40]))), 0)
    ways = [
        [store(s, shifted(k), add(mul(v, 3), draw(small)))],
        [store(V, 0, add(v, ld(s, shifted(k))))],
        [store(s, k, draw(small)), store(V, 0, add(v, ld(s, (k + 1) % N)))],
        [store(U, 0, ld(s, k)), store(V, 0, add(v, ld(U, 0)))],
        [If(guard, (store(s, TX, add(v, k)),))],
    ]
    return draw(st.sampled_from(ways))


def _tiles(draw, depth, names):
    """Operations of the whole block."""
    s = shared(draw)
    i, other = var(f"i{next(names)}"), S if s is S2 else S2
    ways = [
        [Fill(reg(s), e(draw(small)))],
        [Copy(reg(s), reg(other))],
        [Parallel((i,), (e(N),), (store(s, i, add(ld(s, i), mul(i, draw(small)))),))],
    ]
    return draw(st.sampled_from(ways))


def _private(draw, depth, names):
    """Operations whose result every thread has for itself, and updates by each."""
    at, s = draw(place) % (N - 1), shared(draw)
    return [
        Copy(reg(s, at, ext=(2,)), reg(L)),
        store(V, 0, add(ld(V, 0), ld(L, 1))),
        Atomic(AtomicOp.ADD, reg(B, draw(place), ext=(1,)), ld(L, 0)),
    ]


def _nested(draw, depth, names):
    """Conditions and loops that all threads take alike."""
    k, s = draw(place), shared(draw)
    first, second = (tuple(draw(programs(depth - 1, names))) for _ in range(2))
    i, rounds = (
        var(f"i{next(names)}"),
        buf(f"n{next(names)}", "int32", 1, scope="local.var"),
    )
    leave = If(op(">", ld(s, k), 50), (Break(),))
    step = store(rounds, 0, add(ld(rounds, 0), 1))
    more = op("<", ld(rounds, 0), op("%", ld(s, k), 3))
    ways = [
        [If(op("==", op("%", ld(s, k), 2), 0), first, orelse=second)],
        [For(i, e(0), e(draw(small)), (*first, leave, *second))],
        [Alloc(rounds, init=e(0)), While(more, (step, *first))],
    ]
    return draw(st.sampled_from(ways))


def programs(depth, names):
    parts = st.lists(simple(depth, names), min_size=1, max_size=4)
    return parts.map(lambda groups: [s for group in groups for s in group])


def block(body: list[Stmt], waits: bool) -> list[Stmt]:
    """The program between a start and an end that shows all; its warps part ways if they wait."""
    region = reg(BARS, 0, ext=(1,))
    wait = MbarWait(region, e(0))
    head: list[Stmt] = [
        Alloc(BARS, arrive_counts=(N,)),
        MbarArrive(region),
        If(op(">", ld(A, TX), 5), (wait,), orelse=(wait,)),
    ]
    return [
        *(head if waits else []),
        *(Alloc(b) for b in (S, S2)),
        Alloc(L),
        Alloc(V, init=ld(A, TX)),
        Alloc(U, init=e(0)),
        Fill(reg(S), e(1)),
        Copy(reg(A), reg(S2)),
        *body,
        SyncThreads(),
        store(C, TX, ld(V, 0)),
        Copy(reg(S), reg(A)),
    ]


def check_same(body):
    """The program in lockstep, and as warps that wait."""
    start = np.random.default_rng(0).integers(0, 11, N).astype(np.int32)
    results = []
    for waits in (False, True):
        arrays = {"A": start.copy(), "B": np.zeros(N, np.int32), "C": np.zeros(N, np.int32)}
        translate(kernel([A, B, C], *block(body, waits), threads=(N,))).run(arrays)
        results.append(arrays)
    again = {"A": start.copy(), "B": np.zeros(N, np.int32), "C": np.zeros(N, np.int32)}
    fn = kernel([A, B, C], *block(body, True), threads=(N,))
    assert [d.message for d in translate(fn, checked=True).run(again)] == []
    for name in "ABC":
        np.testing.assert_array_equal(results[0][name], results[1][name])
        np.testing.assert_array_equal(results[0][name], again[name])


@settings(max_examples=60)
@given(st.data())
def test_lockstep_and_agents_agree(data):
    check_same(data.draw(programs(2, iter(range(1000)))))


STEPS = {
    "write": lambda: store(S, shifted(37), add(ld(V, 0), 1)),
    "write own": lambda: store(S, TX, add(ld(V, 0), 2)),
    "read": lambda: store(V, 0, add(ld(V, 0), ld(S, shifted(5)))),
    "some write": lambda: If(op("==", op("%", TX, 40), 0), (store(S, TX, ld(V, 0)),)),
    "read one": lambda: store(U, 0, ld(S, 40)),
    "use it": lambda: store(V, 0, add(ld(V, 0), ld(U, 0))),
}
ROUNDS = buf("n", "int32", 1, scope="local.var")


@pytest.mark.parametrize("loop", ["for", "while", "while memory"])
def test_all_short_loops_over_shared_memory(loop):
    """What one round writes another warp reads in the next, or in the condition of the next."""
    for names in itertools.product(STEPS, repeat=2):
        steps = tuple(STEPS[n]() for n in names)
        count = store(ROUNDS, 0, add(ld(ROUNDS, 0), 1))
        memory = op("%", ld(S, 77), 4) if loop == "while memory" else e(3)
        whole = (
            For(var("i"), e(0), e(3), steps)
            if loop == "for"
            else While(op("<", ld(ROUNDS, 0), memory), (count, *steps))
        )
        check_same([Alloc(ROUNDS, init=e(0)), whole])
