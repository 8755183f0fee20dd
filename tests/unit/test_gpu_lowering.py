"""Kernels lowered for many threads, run by the simulator, against the emulator."""

from __future__ import annotations

from itertools import takewhile

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from gpu_build import TARGETS, check_gpu, gpu_program, simulate
from tilelang.errors import TileError
from tilelang.ir.thread import Elem, Instr, Write, kernels_of
from tilelang.passes import pipeline

RANDOM = np.random.default_rng(0)


def normal(*shape, dtype=np.float32):
    return RANDOM.normal(size=shape).astype(dtype)


def integers(*shape, dtype=np.int32, low=-9, high=10):
    return RANDOM.integers(low, high, shape).astype(dtype)


def rows_of(program) -> list[str]:
    return [n.row for n in program.walk() if isinstance(n, Instr)]


def notes(program) -> dict[str, str]:
    return {kind: text for kind, text, _ in dict(program.attrs).get("notes", ())}


# Nests, copies and guards ------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [32, 48, 96, 128, 384])
@pytest.mark.parametrize("shape", [(24, 40), (7, 127), (48, 100), (1, 1)])
def test_elementwise_through_shared_memory_and_a_fragment(shape, threads):
    m, n = shape

    @T.prim_func
    def kernel(A: T.Tensor((m, n), "float32"), B: T.Tensor((m, n), "float32")):
        with T.Kernel(1, threads=threads):
            s = T.alloc_shared((m, n), "float32")
            f = T.alloc_fragment((m, n), "float32")
            T.copy(A, s)
            T.copy(s, f)
            for i, j in T.Parallel(m, n):
                f[i, j] = f[i, j] * 2 + s[m - 1 - i, j]
            T.copy(f, B)

    check_gpu(kernel, A=normal(m, n), B=np.zeros((m, n), np.float32))


@pytest.mark.parametrize(("m", "n"), [(100, 96), (70, 44), (33, 127)])
def test_tiles_that_reach_past_the_end(m, n):
    @T.prim_func
    def kernel(A: T.Tensor((m, n), "float16"), B: T.Tensor((m, n), "float16")):
        with T.Kernel(T.ceildiv(n, 32), T.ceildiv(m, 32), threads=64) as (bx, by):
            s = T.alloc_shared((32, 32), "float16")
            T.copy(A[by * 32, bx * 32], s)
            T.copy(s, B[by * 32, bx * 32])

    check_gpu(kernel, A=normal(m, n, dtype=np.float16), B=np.zeros((m, n), np.float16))


def test_copies_are_sixteen_bytes_wide_where_alignment_is_proved():
    @T.prim_func
    def kernel(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 63), "float16")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((64, 64), "float16")
            T.copy(A, s)
            T.copy(s[0:64, 0:63], B)

    program = check_gpu(
        kernel, A=normal(64, 64, dtype=np.float16), B=np.zeros((64, 63), np.float16)
    )
    lanes = {(n.array.name, n.type.lanes) for n in program.walk() if isinstance(n, Elem)}
    stored = {(n.array.name, n.value.dtype.lanes) for n in program.walk() if isinstance(n, Write)}
    assert ("A", 8) in lanes
    assert ("s", 8) in stored
    assert {k for name, k in stored if name == "B"} == {1}


@pytest.mark.parametrize(("n", "lanes"), [(104, 8), (100, 4), (102, 2), (101, 1)])
def test_vectors_end_where_an_array_does(n, lanes):
    @T.prim_func
    def kernel(A: T.Tensor((50, n), "float16"), B: T.Tensor((50, n), "float16")):
        with T.Kernel(T.ceildiv(n, 64), threads=128) as bx:
            s = T.alloc_shared((64, 64), "float16")
            T.copy(A[0, bx * 64], s)
            T.copy(s, B[0, bx * 64])

    a, b = normal(50, n, dtype=np.float16), np.zeros((50, n), np.float16)
    nodes = list(check_gpu(kernel, arch="sm_80", A=a, B=b).walk())
    read = {x.type.lanes for x in nodes if isinstance(x, Elem) and x.array.name == "A"}
    stored = {x.value.dtype.lanes for x in nodes if isinstance(x, Write) and x.array.name == "B"}
    assert read == stored == {lanes}


def test_a_safe_value_fills_what_lies_outside():
    @T.prim_func
    def kernel(A: T.Tensor((40,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            T.annotate_safe_value({A: -3.0})
            s = T.alloc_shared((64,), "float32")
            T.copy(A[0:64], s)
            T.copy(s, B)

    check_gpu(kernel, A=normal(40), B=np.zeros(64, np.float32))


@pytest.mark.parametrize("n", [0, 1, 100, 257])
def test_sizes_that_launch_binds(n):
    size = T.dynamic("size")

    @T.prim_func
    def kernel(A: T.Tensor((size,), "float32"), B: T.Tensor((size,), "float32")):
        with T.Kernel(T.ceildiv(size, 128), threads=128) as bx:
            for i in T.Parallel(128):
                B[bx * 128 + i] = A[bx * 128 + i] + 1

    check_gpu(kernel, A=normal(n), B=np.zeros(n, np.float32), size=n)


def test_a_nest_of_a_size_known_at_run_time():
    size = T.dynamic("size")

    @T.prim_func
    def kernel(A: T.Tensor((size, 5), "float32"), B: T.Tensor((size, 5), "float32")):
        with T.Kernel(1, threads=64):
            for i, j in T.Parallel(size, 5):
                B[i, j] = A[i, j] * 3

    check_gpu(kernel, A=normal(77, 5), B=np.zeros((77, 5), np.float32), size=77)


def test_launches_follow_each_other():
    @T.prim_func
    def kernel(A: T.Tensor((96,), "int32"), B: T.Tensor((96,), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(96):
                B[i] = A[95 - i]
        with T.Kernel(1, threads=96):
            for i in T.Parallel(96):
                A[i] = B[i] + 1

    check_gpu(kernel, A=integers(96), B=np.zeros(96, np.int32))


# Layouts -----------------------------------------------------------------------------------------


def test_a_transposed_read_takes_the_transposed_layout():
    @T.prim_func
    def kernel(A: T.Tensor((40, 24), "float32"), B: T.Tensor((24, 40), "float32")):
        with T.Kernel(1, threads=96):
            f = T.alloc_fragment((40, 24), "float32")
            g = T.alloc_fragment((24, 40), "float32")
            T.copy(A, f)
            for i, j in T.Parallel(24, 40):
                g[i, j] = f[j, i]
            T.copy(g, B)

    program = check_gpu(kernel, A=normal(40, 24), B=np.zeros((24, 40), np.float32))
    assert "conversion" not in notes(program)


def test_a_fragment_that_does_not_go_with_a_nest_goes_through_shared_memory():
    @T.prim_func
    def kernel(A: T.Tensor((40, 40), "float32"), B: T.Tensor((40, 40), "float32")):
        with T.Kernel(1, threads=96):
            f = T.alloc_fragment((40, 40), "float32")
            g = T.alloc_fragment((40, 40), "float32")
            T.copy(A, f)
            for i, j in T.Parallel(40, 40):
                g[i, j] = f[j, i] - f[i, j]
            T.copy(g, B)

    program = check_gpu(kernel, A=normal(40, 40), B=np.zeros((40, 40), np.float32))
    assert "goes through shared memory" in notes(program)["conversion"]


def test_a_fragment_with_a_view_lies_in_shared_memory():
    @T.prim_func
    def kernel(A: T.Tensor((96,), "float32"), B: T.Tensor((4, 24), "float32")):
        with T.Kernel(1, threads=64):
            f = T.alloc_fragment((96,), "float32")
            T.copy(A, f)
            v = T.reshape(f, (4, 24))
            T.copy(v, B)

    program = check_gpu(kernel, A=normal(96), B=np.zeros((4, 24), np.float32))
    assert "another view of it exists" in notes(program)["demoted"]


def test_single_elements_outside_of_nests():
    @T.prim_func
    def kernel(A: T.Tensor((4,), "float32"), B: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=64):
            f = T.alloc_fragment((4,), "float32")
            big = T.alloc_fragment((128,), "float32")
            s = T.alloc_shared((4,), "float32")
            T.fill(f, 2)
            T.fill(big, 5)
            f[1] = A[2]
            s[3] = f[1] + 1
            for k in T.serial(4):
                big[k * 3] = A[k]
            for i in T.Parallel(4):
                B[i] = f[i] + big[i * 3]
            B[0] = s[3]

    check_gpu(kernel, A=normal(4), B=np.zeros(4, np.float32))


# Reductions, scans, reducers ---------------------------------------------------------------------


@pytest.mark.parametrize("threads", [32, 48, 96, 128, 160])
@pytest.mark.parametrize(("m", "n"), [(24, 40), (3, 127), (48, 1), (1, 100)])
@pytest.mark.parametrize("dim", [0, 1])
def test_sums_along_either_axis(m, n, dim, threads):
    out = n if dim == 0 else m

    @T.prim_func
    def kernel(A: T.Tensor((m, n), "int32"), B: T.Tensor((out,), "int32")):
        with T.Kernel(1, threads=threads):
            f = T.alloc_fragment((m, n), "int32")
            r = T.alloc_fragment((out,), "int32")
            T.copy(A, f)
            T.reduce_sum(f, r, dim=dim)
            T.copy(r, B)

    check_gpu(kernel, A=integers(m, n), B=np.zeros(out, np.int32))


@pytest.mark.parametrize("op", ["max", "min", "abssum", "absmax", "bitand", "bitor", "bitxor"])
def test_every_reduction_and_what_was_there_before(op):
    @T.prim_func
    def kernel(A: T.Tensor((40, 24), "int32"), B: T.Tensor((40,), "int32")):
        with T.Kernel(1, threads=128):
            f = T.alloc_fragment((40, 24), "int32")
            r = T.alloc_fragment((40,), "int32")
            T.copy(A, f)
            T.copy(B, r)
            if op.startswith("abs"):
                getattr(T, f"reduce_{op}")(f, r, dim=1)
            else:
                getattr(T, f"reduce_{op}")(f, r, dim=1, clear=False)
            T.copy(r, B)

    check_gpu(kernel, A=integers(40, 24), B=integers(40))


@pytest.mark.parametrize("keep", [False, True])
def test_nan_in_a_maximum(keep):
    @T.prim_func
    def kernel(A: T.Tensor((8, 64), "float32"), B: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=64):
            f = T.alloc_fragment((8, 64), "float32")
            r = T.alloc_fragment((8,), "float32")
            T.copy(A, f)
            T.reduce_max(f, r, dim=1, nan_propagate=keep)
            T.copy(r, B)

    a = normal(8, 64)
    a[2, 5] = a[3, :] = np.nan
    check_gpu(kernel, A=a, B=np.zeros(8, np.float32))


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("reverse", [False, True])
def test_running_sums(dim, reverse):
    @T.prim_func
    def kernel(A: T.Tensor((24, 40), "int32"), B: T.Tensor((24, 40), "int32")):
        with T.Kernel(1, threads=96):
            s = T.alloc_shared((24, 40), "int32")
            T.copy(A, s)
            T.cumsum(s, dim=dim, reverse=reverse)
            T.copy(s, B)

    check_gpu(kernel, A=integers(24, 40), B=np.zeros((24, 40), np.int32))


@pytest.mark.parametrize("shape", [(100,), (1, 40), (40, 1)])
@pytest.mark.parametrize("scope", ["alloc_shared", "alloc_fragment"])
def test_running_sums_of_one_row(shape, scope):
    dim = shape.index(max(shape))

    @T.prim_func
    def kernel(A: T.Tensor(shape, "int32"), B: T.Tensor(shape, "int32")):
        with T.Kernel(1, threads=96):
            s = getattr(T, scope)(shape, "int32")
            T.copy(A, s)
            T.cumsum(s, dim=dim)
            T.copy(s, B)

    check_gpu(kernel, A=integers(*shape), B=np.zeros(shape, np.int32))


@pytest.mark.parametrize("threads", [64, 128])
def test_any_and_all_of_a_tile(threads):
    @T.prim_func
    def kernel(A: T.Tensor((100,), "int32"), B: T.Tensor((2,), "int32")):
        with T.Kernel(1, threads=threads):
            s = T.alloc_shared((100,), "int32")
            T.copy(A, s)
            some, every = T.any_of(s), T.all_of(s)
            B[0] = T.if_then_else(some, 1, 0)
            B[1] = T.if_then_else(every, 1, 0)

    for a in (np.zeros(100, np.int32), np.ones(100, np.int32), np.arange(100, dtype=np.int32)):
        check_gpu(kernel, A=a, B=np.zeros(2, np.int32))


# Threads -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("looped", [True, False])
def test_contributions_that_one_thread_makes_read_no_registers(looped):
    """In a loop of a nest, and at places that are not given by the nest."""

    @T.prim_func
    def kernel(A: T.Tensor((8, 40), "int32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=96):
            a = T.alloc_fragment((8, 40), "int32")
            T.copy(A, a)
            sums = T.alloc_reducer((8,), "int32", op="sum")
            T.reducer_init(sums)
            if looped:
                for i in T.Parallel(8):
                    for k in T.serial(40):
                        T.reducer_update(sums[i], a[i, k])
            else:
                for i in T.serial(8):
                    for k in T.Parallel(40):
                        T.reducer_update(sums[i], a[i, k])
            b = T.alloc_fragment((8,), "int32")
            T.finalize_reducer(sums, b)
            T.copy(b, B)

    check_gpu(kernel, A=integers(8, 40), B=np.zeros(8, np.int32))


def test_code_that_names_threads_with_shuffles_and_barriers():
    @T.prim_func
    def kernel(A: T.Tensor((128,), "int32"), B: T.Tensor((128,), "int32")):
        with T.Kernel(1, threads=128):
            tx = T.get_thread_binding()
            s = T.alloc_shared((128,), "int32")
            x = A[tx] + T.shfl_xor(A[tx], 5)
            s[tx] = x
            T.sync_threads()
            if tx < 64:
                B[tx] = s[127 - tx]
            else:
                B[tx] = T.shfl_down(x, 2)

    check_gpu(kernel, A=integers(128), B=np.zeros(128, np.int32))


def test_an_array_of_one_element_may_have_a_computed_index():
    @T.prim_func
    def kernel(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            own = T.alloc_local((1,), "int32")
            for k in T.serial(1):
                own[k] = A[tx + k]
            for k in T.serial(1):
                B[tx] = own[k]

    check_gpu(kernel, A=integers(64), B=np.zeros(64, np.int32))


def test_a_shared_array_that_is_indexed_by_constants_is_shared():
    @T.prim_func
    def kernel(A: T.Tensor((96,), "int32"), B: T.Tensor((96,), "int32")):
        with T.Kernel(1, threads=96):
            tx = T.get_thread_binding()
            found = T.alloc_shared((2,), "int32")
            if A[tx] > 90:
                found[0] = tx
                found[1] = A[tx]
            T.sync_threads()
            B[tx] = found[0] - found[1]

    check_gpu(kernel, A=np.arange(96, dtype=np.int32)[::-1].copy() - 4, B=np.zeros(96, np.int32))


@pytest.mark.parametrize("n", [0, 32, 40])
@pytest.mark.parametrize("threads", [64, 96])
def test_threads_that_have_ended_are_not_waited_for(n, threads):
    @T.prim_func
    def kernel(A: T.Tensor((threads,), "int32"), B: T.Tensor((threads,), "int32"), N: T.int32):
        with T.Kernel(1, threads=threads):
            tx = T.get_thread_binding()
            s = T.alloc_shared((threads,), "int32")
            r = T.alloc_shared((threads,), "int32")
            s[tx] = A[tx]
            T.sync_threads()
            if tx < N:
                T.thread_return()
            r[tx] = s[threads - 1 - tx]
            T.sync_threads()
            B[tx] = r[tx]

    program = check_gpu(kernel, A=integers(threads), B=np.zeros(threads, np.int32), N=n)
    assert "barrier.sync.all" in rows_of(program)
    assert "barrier.sync" not in rows_of(program)


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("in the part", "a barrier of a part of the block some of which has ended"),
        ("before the parts", r"T\.ws is reached by some threads of a block only"),
    ],
)
def test_a_barrier_of_a_part_does_not_wait_for_threads_that_have_ended(where, said):
    @T.prim_func
    def kernel(A: T.Tensor((256,), "int32"), B: T.Tensor((256,), "int32")):
        with T.Kernel(1, threads=256):
            s = T.alloc_shared((256,), "int32")
            tx = T.get_thread_binding()
            if where == "before the parts" and (tx >= 64) & (tx < 128):
                T.thread_return()
            with T.ws(0):
                if where == "in the part" and tx >= 64:
                    T.thread_return()
                s[tx] = A[tx]
                T.sync_threads()
                B[tx] = s[63 - tx]
            with T.ws(1):
                B[tx] = A[tx] * 2

    for target in ("cuda:sm_90a", "simulate:sm_90a"):
        with pytest.raises(TileError, match=said) as caught:
            tilelang.compile(kernel, target=target)
        assert "test_gpu_lowering.py" in str(caught.value)


def test_threads_of_a_part_may_end_after_its_last_barrier():
    @T.prim_func
    def kernel(A: T.Tensor((256,), "int32"), B: T.Tensor((256,), "int32")):
        with T.Kernel(1, threads=256):
            s = T.alloc_shared((128,), "int32")
            tx = T.get_thread_binding()
            with T.ws(1):
                B[tx] = A[tx] * 2
            with T.ws(0):
                s[tx] = A[tx]
                T.sync_threads()
                B[tx] = s[127 - tx]
                if tx >= 64:
                    T.thread_return()
                B[tx] = B[tx] * 3

    check_gpu(kernel, A=integers(256), B=np.zeros(256, np.int32))


def test_atomics_of_nests_and_of_threads():
    @T.prim_func
    def kernel(
        A: T.Tensor((1000,), "int32"), H: T.Tensor((10,), "int32"), N: T.Tensor((1,), "int32")
    ):
        with T.Kernel(1, threads=96):
            counts = T.alloc_shared((10,), "int32")
            T.clear(counts)
            for i in T.Parallel(1000):
                T.atomic_add(counts[A[i]], 1)
            T.atomic_add(N[0], 1)
            T.copy(counts, H)

    a = integers(1000, low=0, high=10)
    check_gpu(kernel, A=a, H=np.zeros(10, np.int32), N=np.zeros(1, np.int32))


def test_a_tile_of_one_element_is_updated_once():
    """By the block; a single element by each thread that gets there."""

    @T.prim_func
    def kernel(A: T.Tensor((1,), "float32"), B: T.Tensor((3,), "float32")):
        with T.Kernel(1, threads=96):
            a = T.alloc_local([1], "float32")
            T.copy(A, a)
            T.clear(B[0:1])
            T.atomic_add(B[0:1], a)
            T.atomic_add(B[1:2], 1)
            T.atomic_add(B[2], 1)

    check_gpu(kernel, A=normal(1), B=np.zeros(3, np.float32))
    a, b = np.ones(1, np.float32), np.zeros(3, np.float32)
    tilelang.compile(kernel, target="cpu")(a, b)
    np.testing.assert_array_equal(b, [1, 1, 96])


def test_a_missing_barrier_is_found():
    @T.prim_func
    def kernel(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            s = T.alloc_shared((64,), "int32")
            T.copy(A, s)
            for i in T.Parallel(64):
                B[i] = s[63 - i]

    at = kernel.ir
    for one in takewhile(lambda p: p is not pipeline.synchronize, pipeline.MANY_THREADS):
        at = one(at, TARGETS["sm_90a"])
    with pytest.raises(TileError, match="thread 0 reads what thread 63 has written"):
        simulate(at, {"A": integers(64), "B": np.zeros(64, np.int32)})
    check_gpu(kernel, A=integers(64), B=np.zeros(64, np.int32))


def test_what_one_thread_wrote_and_reads_needs_no_barrier():
    @T.prim_func
    def kernel(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            s = T.alloc_shared((64,), "int32")
            T.copy(A, s)
            for i in T.Parallel(64):
                s[i] += 1
            T.copy(s, B)

    program = check_gpu(kernel, A=integers(64), B=np.zeros(64, np.int32))
    assert "barrier.sync" not in rows_of(program)


@pytest.mark.parametrize("wide", [True, False])
def test_rows_and_elements_that_a_table_names(wide):
    """A name that all lanes of a vector share, and one that differs between them."""

    @T.prim_func
    def kernel(
        A: T.Tensor((50, 64), "float16"), I: T.Tensor((16, 64), "int32"),
        B: T.Tensor((16, 64), "float16"),
    ):  # fmt: skip
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((16, 64), "float16")
            for i, j in T.Parallel(16, 64):
                if wide:
                    row = I[i, 0]
                    s[i, j] = A[row, j]
                else:
                    column = I[i, j]
                    s[i, j] = A[i, column]
            T.copy(s, B)

    table = RANDOM.integers(-2, 50 if wide else 64, (16, 64)).astype(np.int32)
    check_gpu(kernel, A=normal(50, 64, dtype=np.float16), I=table, B=np.zeros((16, 64), np.float16))


def test_normal_random_numbers_of_float64_and_a_late_place_in_the_sequence():
    @T.prim_func
    def kernel(D: T.Tensor((5, 48), "float64"), B: T.Tensor((6, 48), "uint32")):
        with T.Kernel(1, threads=48):
            tx = T.get_thread_binding()
            T.rng_init(11, tx, 2**62 - 3)
            for k in T.serial(6):
                B[k, tx] = T.rng_rand()
            for k in T.serial(5):
                D[k, tx] = T.rng_rand_float(64, dist="normal")

    check_gpu(kernel, rtol=1e-14, atol=1e-14, D=np.zeros((5, 48)), B=np.zeros((6, 48), np.uint32))


@pytest.mark.parametrize("seed", [0, 1, -7, 2**40 + 5])
def test_random_numbers_of_threads_are_those_of_the_emulator(seed):
    @T.prim_func
    def kernel(
        B: T.Tensor((7, 64), "uint32"),
        U: T.Tensor((3, 64), "float32"),
        D: T.Tensor((64,), "float64"),
        N: T.Tensor((5, 64), "float32"),
    ):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            T.rng_init(seed, tx, 3)
            for k in T.serial(7):
                B[k, tx] = T.rng_rand()
            for k in T.serial(3):
                U[k, tx] = T.rng_rand_float()
            D[tx] = T.rng_rand_float(64)
            for k in T.serial(5):
                N[k, tx] = T.rng_rand_float(dist="normal")

    check_gpu(
        kernel,
        rtol=2e-6,
        atol=1e-6,
        B=np.zeros((7, 64), np.uint32),
        U=np.zeros((3, 64), np.float32),
        D=np.zeros(64, np.float64),
        N=np.zeros((5, 64), np.float32),
    )


@pytest.mark.parametrize("threads", [(64,), (32, 2)])
@pytest.mark.parametrize("rows", [3, 5])
def test_random_numbers_in_nests_are_those_of_the_emulator(rows, threads):
    """Iteration n draws from the stream of thread n modulo the number of threads."""

    @T.prim_func
    def kernel(
        B: T.Tensor((2, rows, 40), "uint32"),
        U: T.Tensor((2, rows, 40), "float32"),
        N: T.Tensor((64,), "float32"),
    ):
        with T.Kernel(1, threads=threads):
            f = T.alloc_fragment((rows, 40), "uint32")
            tx = T.get_thread_binding(0) + 32 * (len(threads) > 1) * T.get_thread_binding(1)
            T.rng_init(3, tx, 1)
            for k in T.serial(2):
                for i, j in T.Parallel(rows, 40):
                    f[i, j] = T.rng_rand()
                    U[k, i, j] = T.rng_rand_float() + T.cast(f[i, j] % 2, "float32")
                T.copy(f, B[k, 0, 0])
            N[tx] = T.rng_rand_float(dist="normal")

    shapes = {"B": (2, rows, 40), "U": (2, rows, 40), "N": (64,)}
    args = {n: np.zeros(s, "uint32" if n == "B" else "float32") for n, s in shapes.items()}
    check_gpu(kernel, rtol=2e-6, atol=1e-6, **args)


def test_random_numbers_of_some_iterations_are_refused_by_name():
    @T.prim_func
    def kernel(B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            T.rng_init(1, 2)
            for i in T.Parallel(64):
                if i % 3 == 0:
                    B[i] = T.rng_rand_float()

    with pytest.raises(TileError, match="a random number under a condition"):
        gpu_program(kernel.ir)


def test_every_kernel_has_a_block_of_the_threads_asked_for():
    @T.prim_func
    def kernel(B: T.Tensor((4, 8), "int32")):
        with T.Kernel(1, threads=(8, 4)):
            tx, ty = T.get_thread_binding(0), T.get_thread_binding(1)
            B[ty, tx] = ty * 100 + tx

    program = check_gpu(kernel, B=np.zeros((4, 8), np.int32))
    assert [k.block for k in kernels_of(program)] == [(8, 4)]


def test_a_kernel_that_needs_too_much_shared_memory_is_refused_with_its_largest_arrays():
    @T.prim_func
    def kernel(A: T.Tensor((256, 256), "float32"), B: T.Tensor((256, 256), "float32")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((256, 256), "float32")
            T.copy(A, s)
            T.copy(s, B)

    with pytest.raises(TileError, match="needs more shared memory than a block") as found:
        gpu_program(kernel.ir)
    assert "s 262,144" in str(found.value)


@pytest.mark.parametrize("at", [0, 1, 3])
def test_one_element_of_a_fragment_at_a_computed_place(at):
    @T.prim_func
    def kernel(A: T.Tensor((5, 8), "int32"), B: T.Tensor((4, 5, 8), "int32")):
        with T.Kernel(4, threads=64) as b:
            f = T.alloc_fragment((5, 8), "int32")
            g = T.alloc_fragment((5, 8), "int32")
            T.copy(A, f)
            T.fill(g, 3)
            T.copy(f[b : b + 1, b * 2 : b * 2 + 1], g[1:2, (b + at) % 8 : (b + at) % 8 + 1])
            T.fill(g[b : b + 1, 7:8], -1)
            T.transpose(f[b : b + 1, 3:4], g[4:5, b : b + 1])
            T.copy(g, B[b, :, :])

    check_gpu(kernel, A=integers(5, 8), B=np.zeros((4, 5, 8), np.int32))


def test_a_thread_without_a_generator_is_an_error_and_not_a_number():
    @T.prim_func
    def kernel(B: T.Tensor((32,), "uint32")):
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            if tx < 16:
                T.rng_init(1, tx, 0)
            B[tx] = T.rng_rand()

    compiled = tilelang.compile(kernel, target="simulate:sm_90a")
    with pytest.raises(TileError, match="a thread that has no generator"):
        compiled(np.zeros(32, np.uint32))
