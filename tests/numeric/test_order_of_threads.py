"""Threads that use what others have written, without a barrier of the author's: statement by
statement on every target. Where each thread stays with its own elements no barrier is made.
"""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.ir.tile import SyncThreads
from tilelang.isa.target import parse_target
from tilelang.passes.canonicalize import canonicalize
from tilelang.passes.order_threads import order_threads
from tilelang.targets import CHIPS

N = 96
A = np.arange(N, dtype=np.int32)
TARGETS = ["emulate", "cpu", "simulate:sm_90a", pytest.param("cuda", marks=pytest.mark.gpu)]


def program(body, shared=N, threads=(N,)):
    """A kernel of one block in which `body(A, B, s, *indices)` is what each thread does."""

    @T.prim_func
    def kernel(X: T.Tensor((N,), "int32"), Y: T.Tensor((N,), "int32")):
        with T.Kernel(1, threads=threads):
            s = T.alloc_shared((shared,), "int32")
            body(X, Y, s, *[T.get_thread_binding(k) for k in range(len(threads))])

    return kernel


@T.macro
def mirrored(X, Y, s, tx):
    s[tx] = X[tx]
    Y[tx] = s[N - 1 - tx]


@T.macro
def through_global_memory(X, Y, s, tx):
    Y[tx] = X[tx]
    s[tx] = Y[(tx + 1) % N]
    Y[tx] = s[tx]


@T.macro
def from_one_thread(X, Y, s, tx):
    if tx == N - 3:
        s[0] = X[5]
    Y[tx] = s[0]


@T.macro
def counted(X, Y, s, tx):
    s[tx] = 0
    T.atomic_add(s[X[tx] % 8], 1)
    Y[tx] = s[tx % 8]


@T.macro
def largest_of_each_warp(X, Y, s, tx):
    if tx < 3:
        s[tx] = -1
    T.atomic_max(s[tx // 32], X[tx])
    if tx < 3:
        Y[tx] = s[tx]


@T.macro
def rounds(X, Y, s, tx):
    s[tx] = X[tx]
    for _ in T.serial(4):
        Y[tx] = s[(tx + 1) % N]
        s[tx] = Y[tx] + 1
    Y[tx] = s[tx]


@T.macro
def halves(X, Y, s, tx):
    s[tx] = X[tx]
    for k in T.serial(5):
        d = 48 >> k
        if tx < d:
            s[tx] = s[tx] + s[tx + d]
    Y[tx] = s[0]


@T.macro
def under_a_common_condition(X, Y, s, tx):
    s[tx] = X[tx]
    if X[3] == 3:
        Y[tx] = s[N - 1 - tx]
        s[tx] = Y[tx] * 2
    Y[tx] = Y[tx] + s[(tx + 7) % N]


@T.macro
def in_two_dimensions(X, Y, s, tx, ty):
    s[ty * 8 + tx] = X[ty * 8 + tx]
    Y[tx * 12 + ty] = s[ty * 8 + 7 - tx]


def want_rounds():
    s = A.copy()
    for _ in range(4):
        s = np.roll(s, -1) + 1
    return s


def want_halves():
    s = A.copy()
    for k in range(5):
        d = 48 >> k
        s[:d] += s[d : 2 * d]
    return np.full(N, s[0])


WANT = {
    "mirrored": (mirrored, A[::-1]),
    "through_global_memory": (through_global_memory, np.roll(A, -1)),
    "from_one_thread": (from_one_thread, np.full(N, 5)),
    "counted": (counted, np.full(N, N // 8)),
    "largest_of_each_warp": (largest_of_each_warp, np.r_[31, 63, 95, np.zeros(N - 3)]),
    "rounds": (rounds, want_rounds()),
    "halves": (halves, want_halves()),
    "under_a_common_condition": (
        under_a_common_condition,
        A[::-1] + np.roll(A[::-1] * 2, -7),
    ),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", WANT)
def test_a_thread_sees_what_others_did_in_earlier_statements(name, target):
    body, want = WANT[name]
    found = np.zeros(N, np.int32)
    tilelang.compile(program(body), target=target)(A, found)
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("target", TARGETS)
def test_threads_of_two_dimensions(target):
    found = np.zeros(N, np.int32)
    tilelang.compile(program(in_two_dimensions, threads=(8, 12)), target=target)(A, found)
    np.testing.assert_array_equal(found, A.reshape(12, 8)[:, ::-1].T.reshape(-1))


@T.macro
def own_elements(X, Y, s, tx):
    s[tx] = X[tx]
    s[tx] = s[tx] + 1
    Y[tx] = s[tx]


@T.macro
def own_stretches(X, Y, s, tx):
    for k in T.serial(4):
        s[tx * 4 + k] = X[tx] + k
    for k in T.serial(4):
        Y[tx] = Y[tx] + s[tx * 4 + 3 - k]


@T.macro
def only_atomics(X, Y, s, tx):
    for k in T.serial(3):
        T.atomic_add(Y[(X[tx] + k) % 7], 1)


def meetings(kernel) -> int:
    target = parse_target("cpu", CHIPS)
    fn = order_threads(canonicalize(kernel.ir, target), target)
    return sum(isinstance(n, SyncThreads) for n in fn.walk())


@pytest.mark.parametrize("body", [own_elements, own_stretches, only_atomics])
def test_no_barrier_where_no_thread_needs_another(body):
    assert meetings(program(body, shared=4 * N)) == 0


def test_no_barrier_between_rows_of_a_tensor_whose_size_is_known_at_launch():
    m, n = T.dynamic("m"), T.dynamic("n")

    @T.prim_func
    def kernel(X: T.Tensor((m, n), "int32"), Y: T.Tensor((m, n), "int32")):
        with T.Kernel(T.ceildiv(m, 32), threads=32) as bx:
            row = bx * 32 + T.get_thread_binding()
            if row < m:
                for j in T.serial(n):
                    Y[row, j] = X[row, j] + 1
                for j in T.serial(n):
                    Y[row, j] = Y[row, n - 1 - j] * 2

    assert meetings(kernel) == 0


def test_one_barrier_for_each_need():
    assert meetings(program(mirrored)) == 1
    assert meetings(program(from_one_thread)) == 1
