"""The dynamic check of what the threads of a block do to each other: on chip, and inside bytes."""

import numpy as np
import pytest

import tilelang.language as T
from tilelang.emulator import translate


def found(kernel, *arrays):
    """The messages of a checked run, and the examples."""
    names = [p.name for p in kernel.ir.params]
    findings = translate(kernel.ir, checked=True).run(dict(zip(names, arrays, strict=True)))
    return [(d.message, d.got) for d in findings]


def ints(n, dtype=np.int32):
    return np.arange(n, dtype=dtype) % 7


def on_chip(body, threads=96):
    """A kernel of threads with a tile `s` of shared memory that holds A."""

    @T.prim_func
    def kernel(A: T.Tensor((threads,), "int32"), B: T.Tensor((threads,), "int32")):
        with T.Kernel(1, threads=threads):
            s = T.alloc_shared((threads,), "int32")
            tx = T.get_thread_binding()
            s[tx] = A[tx]
            body(A, B, s, tx)

    return kernel


@T.macro
def reversed_in_one_statement(A, B, s, tx):
    s[tx] = s[95 - tx]


@T.macro
def neighbours_in_a_branch(A, B, s, tx):
    if A[tx] >= 0:
        s[tx] = A[tx] + 1
        B[tx] = s[(tx + 1) % 96]


@T.macro
def one_arm_stores_what_the_other_reads(A, B, s, tx):
    if tx < 32:
        s[0] = 1
    else:
        B[tx] = s[0]


@T.macro
def the_condition_reads_what_the_branch_stores(A, B, s, tx):
    if s[95 - tx] > 0:
        s[tx] = 5


@T.macro
def uneven_loops(A, B, s, tx):
    for k in T.serial(tx % 3):
        s[tx] = k
        B[tx] = s[(tx + 32) % 96]


@T.macro
def arms_that_store_different_values(A, B, s, tx):
    if tx == 5:
        s[1] = 1
    if tx % 2 == 0:
        if tx == 40:
            s[2] = 1
        if tx == 80:
            s[2] = 2


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (reversed_in_one_statement, "one warp stores what another reads"),
        (neighbours_in_a_branch, "one warp stores what another reads"),
        (one_arm_stores_what_the_other_reads, "one warp stores what another reads"),
        (the_condition_reads_what_the_branch_stores, "one warp stores what another reads"),
        (uneven_loops, "one warp stores what another reads"),
        (arms_that_store_different_values, "two warps store one element"),
    ],
)
def test_warps_that_no_barrier_can_part(body, what):
    messages = {m for m, _ in found(on_chip(body), ints(96), ints(96))}
    assert f"a race between warps on s: {what}" in messages


def test_the_example_names_the_warps():
    ((_, got),) = found(on_chip(one_arm_stores_what_the_other_reads), ints(96), ints(96))
    assert got.startswith("s[0] touched by warp 0 and by warp")


@T.macro
def statements_of_all_threads(A, B, s, tx):
    x = s[95 - tx]
    s[tx] = x + 1
    B[tx] = s[(tx + 40) % 96]
    if A[0] > 100:  # the same for all
        s[tx] = B[95 - tx]
        B[tx] = s[95 - tx]
    for k in T.serial(3):
        y = s[(tx + k) % 96]
        s[tx] = y


@T.macro
def lanes_of_one_warp(A, B, s, tx):
    if tx < 32:
        s[tx] = s[tx] + s[31 - tx]
        s[tx] = s[tx] + s[tx ^ 1]
    if tx % 2 == 0:
        s[tx] = s[tx + 1]


@T.macro
def a_tree(A, B, s, tx):
    for k in range(5):
        if tx < 48 >> k:
            s[tx] = s[tx] + s[tx + (48 >> k)]


@T.macro
def one_flag(A, B, s, tx):
    if A[tx] == 3:
        s[0] = 1
    B[tx] = s[0]


@T.macro
def a_thread_for_all(A, B, s, tx):
    if tx == 40:
        for k in T.serial(96):
            s[k] = s[95 - k]
    B[tx] = s[tx]


@T.macro
def a_rest_after_a_return(A, B, s, tx):
    if tx >= 64:
        T.thread_return()
    s[tx] = A[tx]
    B[tx] = s[63 - tx]


@pytest.mark.parametrize(
    "body",
    [statements_of_all_threads, lanes_of_one_warp, a_tree, one_flag, a_thread_for_all,
     a_rest_after_a_return],
)  # fmt: skip
def test_warps_that_barriers_of_the_compiler_part(body):
    assert found(on_chip(body), ints(96), ints(96)) == []


@pytest.mark.parametrize("race", [False, True])
def test_warps_inside_an_agent(race):
    """A kernel that waits divides its threads; those of one part are looked at as well."""

    @T.prim_func
    def kernel(A: T.Tensor((256,), "int32"), B: T.Tensor((256,), "int32")):
        with T.Kernel(1, threads=256):
            s = T.alloc_shared((256,), "int32")
            done = T.alloc_barrier(128)
            tx = T.get_thread_binding()
            with T.ws(0):
                T.mbarrier_arrive(done)
            with T.ws(1):
                T.mbarrier_wait_parity(done, 0)
                s[tx] = A[tx]
                if race:
                    s[tx] = s[383 - tx]
                else:
                    x = s[383 - tx]
                    s[tx] = x
                B[tx] = s[tx]

    messages = found(kernel, ints(256), ints(256))
    assert len(messages) == race
    if race:
        assert messages[0][0] == "a race between warps on s: one warp stores what another reads"
        assert "by warp 4" in messages[0][1] or "by warp 7" in messages[0][1]


def test_views_of_other_types_and_shapes_share_their_elements():
    @T.prim_func
    def kernel(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            s = T.alloc_shared((64,), "int32")
            T.copy(A, s)
            halves = T.view(s, (128,), "int16")
            rows = T.view(A, (8, 8))
            for i in T.Parallel(64):
                halves[i * 2] = T.cast(s[63 - i], "int16")
            for i in T.Parallel(8):
                A[i] = rows[0, 7 - i]
            T.copy(s, B)

    messages = [m.partition(":")[0] for m, _ in found(kernel, ints(64), ints(64))]
    assert messages == [
        "a race between iterations of T.Parallel on halves",
        "a race between iterations of T.Parallel on A",
    ]


@pytest.mark.parametrize(("n", "overlap"), [(0, False), (3, True), (8, False)])
def test_a_copy_onto_part_of_its_source(n, overlap):
    @T.prim_func
    def kernel(A: T.Tensor((16,), "int32"), k: T.int32):
        with T.Kernel(1, threads=32):
            T.copy(A[0:8], A[k : k + 8])

    messages = [m for m, _ in found(kernel, ints(16), n)]
    assert messages == (["T.copy between slices of A that overlap"] if overlap else [])


# -- bytes that elements share ---------------------------------------------------------------------


def nibbles(index, blocks=1, threads=64, size=64, dtype="int4"):
    @T.prim_func
    def kernel(A: T.Tensor((size,), dtype), B: T.Tensor((size,), "int8")):
        with T.Kernel(blocks, threads=threads) as bx:
            tx = T.get_thread_binding()
            at = index(bx, tx)
            A[at] = T.cast(B[at], dtype)

    return kernel


@pytest.mark.parametrize(
    ("kernel", "who"),
    [
        (nibbles(lambda b, t: t), "threads"),
        (nibbles(lambda b, t: t, dtype="uint2"), "threads"),
        (nibbles(lambda b, t: b, blocks=64, threads=1), "blocks"),
        (nibbles(lambda b, t: b * 32 + t * 2 + 1, blocks=2, threads=16), ""),
        (nibbles(lambda b, t: t * 2, threads=32), ""),
        (nibbles(lambda b, t: b * 2, blocks=32, threads=1), ""),
        (nibbles(lambda b, t: t, dtype="int8"), ""),
    ],
)
def test_a_byte_has_one_owner(kernel, who):
    messages = found(kernel, ints(64, np.int8) % 2, ints(64, np.int8) % 2)
    want = [f"two {who} store into one byte of A"] if who else []
    assert [m for m, _ in messages] == want


def test_operations_of_the_block_own_their_bytes():
    @T.prim_func
    def kernel(A: T.Tensor((3, 63), "int4"), B: T.Tensor((3, 63), "int4")):
        with T.Kernel(3, threads=64) as bx:
            s = T.alloc_shared((63,), "int4")
            T.copy(A[bx, :], s)
            for i in T.Parallel(63):
                s[i] = s[i] + T.cast(1, "int4")
            T.copy(s, B[bx, :])  # a row begins at a whole byte

    a = np.ones((3, 63), np.int8)
    assert found(kernel, a, a.copy()) == []


def test_bytes_on_chip():
    @T.prim_func
    def kernel(A: T.Tensor((64,), "int8")):
        with T.Kernel(1, threads=64):
            s = T.alloc_shared((64,), "int4")
            tx = T.get_thread_binding()
            if tx < 32:  # a barrier of the compiler stands between the two
                s[tx * 2] = T.cast(tx, "int4")
            if tx < 32:
                s[tx * 2 + 1] = T.cast(tx, "int4")
            s[tx] = T.cast(A[tx], "int4")

    messages = [m for m, _ in found(kernel, ints(64, np.int8))]
    assert messages == ["two threads store into one byte of s"]
