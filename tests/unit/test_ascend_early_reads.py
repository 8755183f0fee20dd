"""Tiles of one kind of core that are read, in the order of the program, before the other kind of
core has filled them: right in order and on queues, or refused at the author's line.
"""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from adapter_programs import AUTO
from tilelang.errors import TileError
from tilelang.simulator.machine import Schedule

N, ROUNDS, SOURCES = 16, 3, 40
HALF = "float16"


def gathered(program):
    """A kernel that runs `program(gather, product, store)`.

    `gather(k)` has the vector cores fill a tile in L1 with 16 rows of A, by the indices `I[k]`;
    `product()` multiplies Q by it; `store(k)` adds one and stores tile k.
    """

    @T.prim_func
    def kernel(
        A: T.Tensor((SOURCES, N), HALF),
        Q: T.Tensor((N, N), HALF),
        I: T.Tensor((ROUNDS, N), "int32"),
        C: T.Tensor((ROUNDS, N, N), "float32"),
    ):
        with T.Kernel(1, threads=2, is_npu=True):
            q_l1 = T.alloc_shared((N, N), HALF)
            p_l1 = T.alloc_shared((N, N), HALF)
            c = T.alloc_fragment((N, N), "float32")
            index = T.alloc_shared((N,), "int32")
            row = T.alloc_shared((N,), HALF)
            x = T.alloc_shared((N, N), "float32")
            T.copy(Q, q_l1)

            @T.macro
            def gather(k, low=0, high=N):
                T.copy(I[k, 0:N], index)
                for r in T.serial(high - low):
                    T.copy(A[index[low + r], :], row)
                    T.copy(row, p_l1[low + r, :])

            def product():
                T.gemm_v0(q_l1, p_l1, c, init=True)

            def store(k):
                T.copy(c, x)
                T.tile.add(x, x, 1.0)
                T.copy(x, C[k, :, :])

            program(gather, product, store)

    return kernel


@T.macro
def product_first(gather, product, store):
    for k in T.serial(ROUNDS):
        product()
        gather(k)
        store(k)


@T.macro
def in_a_circle(gather, product, store):
    for k in T.serial(ROUNDS):
        product()
        store(k)
        gather(k)


@T.macro
def without_a_loop(gather, product, store):
    product()
    gather(1)
    store(0)


@T.macro
def filled_before_the_loop(gather, product, store):
    gather(0)
    for k in T.serial(ROUNDS):
        product()
        store(k)
        if k + 1 < ROUNDS:
            gather(k + 1)


@T.macro
def read_from_the_second_round_on(gather, product, store):
    for k in T.serial(ROUNDS):
        if k > 0:
            product()
            store(k - 1)
        gather(k)


@T.macro
def filled_in_halves(gather, product, store):
    for k in T.serial(ROUNDS):
        product()
        gather(k, 0, N // 2)
        gather(k, N // 2, N)
        store(k)


def two_products(rounds=ROUNDS):
    """The vector cores make the operand of the second product from the first; both products stand
    before what they read, and each gives the vector cores a tile.
    """

    @T.prim_func
    def kernel(A: T.Tensor((rounds, N, N), HALF), C: T.Tensor((rounds, N, N), "float32")):
        with T.Kernel(1, threads=2, is_npu=True):
            a_l1 = T.alloc_shared((N, N), HALF)
            s_l1 = T.alloc_shared((N, N), HALF)
            s, o = T.alloc_fragment((N, N), "float32"), T.alloc_fragment((N, N), "float32")
            x, y = T.alloc_shared((N, N), "float32"), T.alloc_shared((N, N), "float32")
            half = T.alloc_shared((N, N), HALF)
            for k in T.serial(rounds):
                T.copy(A[k, :, :], a_l1)
                T.gemm_v0(a_l1, a_l1, s, init=True)
                T.copy(s, x)
                T.gemm_v0(s_l1, a_l1, o, init=True)
                T.copy(o, y)
                T.tile.min(x, x, 9.0)
                T.copy(x, half)
                T.copy(half, s_l1)
                T.tile.add(y, y, x)
                T.copy(y, C[k, :, :])

    return kernel


def place_by_a_variable(rounds=2):
    """As `product_first`, with a tile whose place is a variable that changes behind the copy."""

    @T.prim_func
    def kernel(A: T.Tensor((rounds, N, N), HALF), C: T.Tensor((rounds, N, N), "float32")):
        with T.Kernel(1, is_npu=True) as (_cid, vid):
            a_l1 = T.alloc_L1((N, N), HALF)
            c = T.alloc_L0C((N, N), "float32")
            half = T.alloc_ub((N, N), HALF)
            x = T.alloc_ub((2, N, N), "float32")
            place = T.alloc_var("int32")
            for k in T.serial(rounds):
                T.gemm_v0(a_l1, a_l1, c, init=True)
                T.copy(A[k, :, :], half)
                T.copy(half, a_l1)
                T.tile.fill(x, 0.0)
                place = k
                T.copy(c, x[place, :, :])
                place = 1 - k
                if vid == 0:
                    T.copy(x[k, :, :], C[k, :, :])

    return kernel


def arguments(seed=0):
    rng = np.random.default_rng(seed)
    a = rng.integers(-2, 3, (SOURCES, N)).astype(np.float16)
    q = rng.integers(-2, 3, (N, N)).astype(np.float16)
    return [a, q, rng.integers(0, SOURCES, (ROUNDS, N)).astype(np.int32)]


def tile(k):
    a, q, index = arguments()
    return q.astype(np.float32) @ a[index[k]].astype(np.float32) + 1


def check(kernel, args, wanted):
    """The tiles that `wanted` has are right in order and on queues, with no finding."""
    got = kernel(*args)
    for schedule in (None, *Schedule.sweep(3)):
        if schedule is not None:
            bound = kernel._signature.bind(args, {})
            found = kernel._program.program.check(dict(bound.values), schedule)
            assert [d.render() for d in found] == []
            got = bound.results[0]
        for k, values in wanted.items():
            np.testing.assert_array_equal(got[k], values)


@pytest.mark.parametrize(
    ("program", "wanted"),
    [
        (product_first, {k: tile(k) for k in range(ROUNDS)}),
        (without_a_loop, {0: tile(1)}),
        (filled_before_the_loop, {k: tile(k) for k in range(ROUNDS)}),
        (read_from_the_second_round_on, {k: tile(k) for k in range(ROUNDS - 1)}),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_a_read_is_for_the_fill_behind_it_unless_it_has_one_before_it(program, wanted):
    kernel = tilelang.compile(gathered(program), out_idx=[3], pass_configs=AUTO)
    check(kernel, arguments(), wanted)


def test_cores_hand_tiles_to_each_other_twice_in_a_round():
    kernel = tilelang.compile(two_products(), out_idx=[1], pass_configs=AUTO)
    a = np.random.default_rng(1).integers(-2, 3, (ROUNDS, N, N)).astype(np.float16)
    x = np.minimum(a.astype(np.float32) @ a.astype(np.float32), 9)
    check(kernel, [a], dict(enumerate(x.astype(np.float16).astype(np.float32) @ a + x)))


def test_a_place_that_changes_behind_a_copy_is_that_of_the_copy():
    kernel = tilelang.compile(place_by_a_variable(), out_idx=[1], pass_configs=AUTO)
    a = np.random.default_rng(3).integers(-2, 3, (2, N, N)).astype(np.float16)
    np.testing.assert_array_equal(kernel(a), a.astype(np.float32) @ a)


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (filled_in_halves, "does not answer the n-th by the other"),
        (in_a_circle, "each waits for what the other gives later"),
    ],
)
def test_a_read_for_which_there_is_no_fill_is_refused_at_its_line(program, why):
    with pytest.raises(TileError, match=why) as refused:
        tilelang.compile(gathered(program), out_idx=[3], pass_configs=AUTO)
    (said,) = refused.value.diagnostics
    assert "p_l1_workspace before the other kind of core writes it" in said.message
    assert said.loc is not None and said.loc.file.endswith("test_ascend_early_reads.py")


def test_without_automatic_order_of_the_cores_the_order_is_the_program_s():
    kernel = tilelang.compile(
        gathered(product_first),
        out_idx=[3],
        pass_configs=AUTO | {"tl.ascend_auto_cross_core_sync": False},
    )
    with pytest.warns(RuntimeWarning, match="is read where nobody has written"):
        got = kernel(*arguments())
    assert np.isnan(got[0]).all()
