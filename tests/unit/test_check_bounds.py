"""Accesses that leave their buffer."""

import pytest

import tilelang.language as T
from tilelang.errors import Severity
from tilelang.passes.check import check_function
from tilelang.targets import target

ERROR, NOTE = Severity.ERROR, Severity.NOTE


def findings(kernel, kind="bounds"):
    return [d for d in check_function(kernel.ir, target("emulate")) if d.kind == kind]


# -- on chip ---------------------------------------------------------------------------------------


def shifted(size, extent, shift, guard=None):
    @T.prim_func
    def kernel(A: T.Tensor((4096,), "float32")):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((size,), "float32")
            T.clear(s)
            for i in T.Parallel(extent):
                if guard is None or i < guard:
                    A[i] = s[i + shift]

    return kernel


@pytest.mark.parametrize(
    ("size", "extent", "shift"),
    [(128, 128, 0), (127, 100, 27), (1, 1, 0), (40, 24, 16), (48, 0, 100)],
)
def test_an_access_that_stays_inside(size, extent, shift):
    assert findings(shifted(size, extent, shift)) == []


@pytest.mark.parametrize(
    ("size", "extent", "shift", "i", "index"),
    [(128, 128, 1, 127, 128), (127, 100, 28, 99, 127), (40, 24, -1, 0, -1), (24, 40, 0, 24, 24)],
)
def test_an_access_that_leaves_its_buffer_is_an_error_with_values(size, extent, shift, i, index):
    (found,) = findings(shifted(size, extent, shift))
    assert found.severity is ERROR
    assert f"index {index} is outside axis 0 of s" in found.message
    assert found.label == f"i = {i} gives index {index}"
    assert found.expected == f"0 to {size - 1}"


@pytest.mark.parametrize(("guard", "inside"), [(64, True), (65, False)])
def test_a_guard_keeps_an_access_inside(guard, inside):
    assert (findings(shifted(64, 128, 0, guard)) == []) is inside


def test_values_of_several_loops_and_blocks():
    @T.prim_func
    def kernel():
        with T.Kernel(4, threads=32) as bx:
            s = T.alloc_shared((128,), "float32")
            for k in T.serial(3):
                for i in T.Parallel(32):
                    s[bx * 32 + k * 4 + i] = 0.0

    (found,) = findings(kernel)
    assert found.label == "bx = 3, k = 1, i = 28 gives index 128"


def test_names_for_values_are_looked_through():
    @T.prim_func
    def kernel():
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((128,), "float32")
            for i in T.Parallel(32):
                row = i * 4
                last = row + 4
                s[last] = 0.0

    (found,) = findings(kernel)
    assert found.label == "i = 31 gives index 128"


@pytest.mark.parametrize("op", ["div", "mod", "min", "select"])
def test_indices_that_are_not_linear(op):
    def index(i, size):
        return {
            "div": lambda: i // 2,
            "mod": lambda: i % size,
            "min": lambda: T.min(i, size - 1),
            "select": lambda: T.if_then_else(i < size, i, 0),
        }[op]()

    def make(size, claimed):
        @T.prim_func
        def kernel():
            with T.Kernel(1, threads=32):
                s = T.alloc_shared((size,), "float32")
                for i in T.Parallel(100):
                    T.atomic_add(s[index(i, claimed)], 1.0)

        return kernel

    fits = 50 if op == "div" else 33
    assert findings(make(fits, fits)) == []
    assert [d.severity for d in findings(make(fits - 1, fits))] == [ERROR]


def test_a_lazy_select_guards_its_loads():
    def make(lazy):
        @T.prim_func
        def kernel(A: T.Tensor((64,), "float32")):
            with T.Kernel(1, threads=32):
                s = T.alloc_shared((32,), "float32")
                T.clear(s)
                for i in T.Parallel(64):
                    A[i] = T.if_then_else(i < lazy, s[i], 0.0)

        return kernel

    assert findings(make(32)) == []
    assert len(findings(make(33))) == 1


def test_regions_of_tile_operations():
    def make(rows):
        @T.prim_func
        def kernel(A: T.Tensor((1024, 32), "float32")):
            with T.Kernel(1, threads=32):
                s = T.alloc_shared((64, 32), "float32")
                for k in T.serial(4):
                    T.copy(A[k * 16, 0], s[k * 16 : k * 16 + rows, :])

        return kernel

    assert findings(make(16)) == []
    (found,) = findings(make(17))
    assert found.label == "k = 3 gives elements 48 to 64"


def test_an_index_into_each_threads_own_memory():
    @T.prim_func
    def kernel():
        with T.Kernel(1, threads=32):
            mine = T.alloc_local((8,), "float32")
            for k in T.serial(9):
                mine[k] = 0.0

    (found,) = findings(kernel)
    assert found.label == "k = 8 gives index 8"


def test_what_depends_on_data_or_may_not_run_is_not_judged():
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((8,), "int32")
            T.clear(s)
            for i in T.serial(64):
                s[A[0]] = 1
                if A[1] > i:
                    s[i] = 1
                if i == A[2]:
                    break
                s[i] = 2
            j = T.alloc_var("int32", init=0)
            while A[3] > j:
                for k in T.serial(9):
                    s[k] = 1
                j += 1

    assert [d for d in findings(kernel) if d.severity is ERROR] == []


def test_an_early_end_of_the_thread_guards_what_follows():
    @T.prim_func
    def kernel():
        with T.Kernel(1, threads=64):
            s = T.alloc_shared((32,), "int32")
            tx = T.get_thread_binding()
            if tx >= 32:
                T.thread_return()
            s[tx] = tx

    assert findings(kernel) == []


def test_a_loop_over_a_symbolic_size_is_not_judged():
    n = T.dynamic("n")

    @T.prim_func
    def kernel(A: T.Tensor((n,), "float32")):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((64,), "float32")
            for i in T.Parallel(n):
                s[i] = A[i]

    assert findings(kernel) == []


def test_an_access_outside_whatever_the_symbolic_size_is():
    n = T.dynamic("n")

    @T.prim_func
    def kernel(A: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, 64), threads=32) as bx:
            s = T.alloc_shared((64,), "float32")
            for i in T.Parallel(65):
                s[i] = A[bx * 64 + i]

    (found,) = [d for d in findings(kernel) if d.severity is ERROR]
    assert found.label == "i = 64 gives index 64"


# -- in global memory ------------------------------------------------------------------------------


def test_a_constant_index_outside_a_tensor_is_an_error():
    @T.macro
    def store(A, k):
        A[k] = 1.0

    @T.prim_func
    def kernel(A: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32) as bx:
            if bx == 0:
                store(A, T.min(bx * 0 + 7, 9))
                store(A, T.max(bx * 0 + 7, 9))

    found = findings(kernel)
    assert [d.severity for d in found] == [ERROR] and "index 9 is outside" in found[0].message


def test_an_iteration_outside_a_tensor_is_a_note():
    @T.prim_func
    def kernel(A: T.Tensor((100,), "float32"), B: T.Tensor((100,), "float32")):
        with T.Kernel(2, threads=64) as bx:
            for i in T.Parallel(64):
                B[bx * 64 + i] = A[bx * 64 + i]

    found = findings(kernel)
    assert [d.severity for d in found] == [NOTE, NOTE]
    assert "bx = 1, i = 36 gives index 100" in found[0].label
    assert "does nothing" in found[0].notes[0] and "gives 0" in found[1].notes[0]


def test_copies_and_guarded_accesses_of_a_tensor_are_silent():
    @T.prim_func
    def kernel(A: T.Tensor((100,), "float32"), B: T.Tensor((100,), "float32")):
        with T.Kernel(2, threads=64) as bx:
            s = T.alloc_shared((64,), "float32")
            T.copy(A[bx * 64], s)
            T.copy(s, B[bx * 64])
            for i in T.Parallel(64):
                if bx * 64 + i < 100:
                    B[bx * 64 + i] = A[bx * 64 + i]

    assert findings(kernel) == []


# -- slices of global memory -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "legal"),
    [(0, 64, True), (10, 30, True), (15, 99, True), (16, 17, False), (20, 30, False)],
)
def test_a_slice_that_has_no_element_is_refused(low, high, legal):
    """One that sticks out of a tensor is cut, as at the ragged edge of a matrix."""

    @T.prim_func
    def kernel(B: T.Tensor((4, 16), "int32")):
        with T.Kernel(1, threads=32):
            T.fill(B[1, low:high], 1)

    found = findings(kernel)
    assert [d.severity for d in found] == ([] if legal else [ERROR])
    if not legal:
        assert "outside axis 1 of B, which has 16 elements" in found[0].message


def test_a_slice_of_unknown_place_may_lie_outside():
    @T.prim_func
    def kernel(B: T.Tensor((16,), "int32"), n: T.int32):
        with T.Kernel(4, threads=32) as bx:
            T.fill(B[n : n + 4], 1)
            T.fill(B[bx * 16 : bx * 16 + 16], 1)

    assert findings(kernel) == []
