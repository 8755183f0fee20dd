"""Programs after upstream's own tests, which its fixes brought: forms that are valid there."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from report_run import refused

TARGETS = ("emulate", "cpu", "simulate:sm_90a")


@pytest.mark.parametrize("target", TARGETS)
def test_a_copy_from_an_element_to_an_element_is_a_store(target):
    @T.prim_func
    def main(A: T.Tensor((30, 35), "float32"), B: T.Tensor((32, 48), "float16")):
        with T.Kernel(2, 2, threads=32) as (bx, by):
            T.annotate_safe_value({A: -99})
            for i, j in T.Parallel(16, 24):
                T.copy(A[by * 16 + i, bx * 24 + j], B[by * 16 + i, bx * 24 + j])

    @T.prim_func
    def threads(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            t = T.get_thread_binding()
            s = T.alloc_shared((64,), "int32")
            T.copy(A[t], s[63 - t])
            if t < 5:
                T.copy(s[t], B[t])
            T.copy(A[3], B[50])

    a = np.arange(30 * 35, dtype=np.float32).reshape(30, 35)
    want = np.full((32, 48), -99, np.float16)
    want[:30, :35] = a
    found = np.zeros_like(want)
    tilelang.compile(main, target=target)(a, found)
    assert (found == want).all()
    a, found = np.arange(64, dtype=np.int32), np.zeros(64, np.int32)
    tilelang.compile(threads, target=target)(a, found)
    assert found[:5].tolist() == [63, 62, 61, 60, 59]
    assert found[50] == 3
    assert not np.delete(found, [0, 1, 2, 3, 4, 50]).any()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("op", ["sum", "max"])
def test_a_reducer_that_is_used_as_a_buffer_has_the_older_form(target, op):
    @T.prim_func
    def main(G: T.Tensor((40, 8), "float32"), O: T.Tensor((40, 8), "float32")):
        with T.Kernel(1, threads=96):
            acc = T.alloc_reducer((40,), "float32", op=op)
            for _ in T.serial(2):  # the buffer is there for all rounds
                T.fill(acc, 0 if op == "sum" else -T.infinity("float32"))
                for i, j in T.Parallel(40, 8):
                    acc[i] = acc[i] + G[i, j] if op == "sum" else T.max(acc[i], G[i, j])
                T.finalize_reducer(acc)
            for i, j in T.Parallel(40, 8):
                O[i, j] = G[i, j] - acc[i]

    g = np.arange(320, dtype=np.float32).reshape(40, 8) % 37
    found = np.zeros_like(g)
    tilelang.compile(main, target=target)(g, found)
    reduced = g.sum(1) if op == "sum" else g.max(1)
    assert (found == g - reduced[:, None]).all()


def test_a_reducer_has_one_form():
    def both(first, second):
        def make():
            @T.prim_func
            def main(O: T.Tensor((8,), "int32")):
                with T.Kernel(1, threads=32):
                    acc = T.alloc_reducer((8,), "int32", op="sum")
                    first(acc)
                    second(acc)

        return make

    refused(both(T.reducer_init, T.clear), "reducer", "T.reducer_update", located=False)
    refused(both(T.clear, T.reducer_init), "reducer", located=False)


@pytest.mark.parametrize("target", TARGETS)
def test_a_reducer_may_be_finalized_in_a_branch(target):
    @T.prim_func
    def main(
        A: T.Tensor((8,), "float32"), S: T.Tensor((2,), "int32"), B: T.Tensor((2,), "float32")
    ):
        with T.Kernel(2, threads=64) as b:
            src = T.alloc_fragment((8,), "float32")
            T.copy(A, src)
            acc = T.alloc_reducer((1,), "float32", op="sum")
            T.reducer_init(acc)
            if S[b] < 0:
                B[b] = 0.0
            else:
                for i in T.Parallel(8):
                    T.reducer_update(acc[0], src[i])
                total = T.alloc_fragment((1,), "float32")
                T.finalize_reducer(acc, total)
                B[b] = total[0]

    a, found = np.arange(8, dtype=np.float32), np.full(2, 7, np.float32)
    tilelang.compile(main, target=target)(a, np.array([-1, 1], np.int32), found)
    assert found.tolist() == [0, 28]


def test_a_reducer_is_not_finalized_in_a_loop_around_which_it_is_opened():
    def make():
        @T.prim_func
        def main(B: T.Tensor((8,), "float32")):
            with T.Kernel(1, threads=64):
                acc = T.alloc_reducer((1,), "float32", op="sum")
                T.reducer_init(acc)
                for k in T.serial(3):
                    for i in T.Parallel(8):
                        T.reducer_update(acc[0], B[i])
                    T.finalize_reducer(acc, B[k : k + 1])

    refused(make, "acc", "another block")


@pytest.mark.parametrize("target", TARGETS)
def test_atomics_take_the_elements_of_a_vector(target):
    @T.prim_func
    def main(
        D: T.Tensor((5,), "float32"), V: T.Tensor((2,), "float32"), P: T.Tensor((2,), "float32")
    ):
        with T.Kernel(1, threads=1):
            P[0:2] = T.atomic_addx2(D[T.Ramp(1, 3, 2)], V[T.Ramp(0, 1, 2)], return_prev=True)

    d, v = np.arange(5, dtype=np.float32), np.array([10, 20], np.float32)
    p = np.zeros(2, np.float32)
    tilelang.compile(main, target=target)(d, v, p)
    assert d.tolist() == [0, 11, 2, 3, 24]
    assert p.tolist() == [1, 4]
