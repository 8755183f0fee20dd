"""Races between blocks, iterations and threads: found where they are, and only there."""

import pytest

import tilelang.language as T
from tilelang.errors import Severity
from tilelang.passes.check import check_function
from tilelang.targets import target

ERROR, WARNING, NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE


def races(kernel, *wanted):
    found = check_function(kernel.ir, target("emulate"))
    assert all(d.loc is not None for d in found)
    return [d for d in found if d.kind == "race" and (not wanted or d.severity in wanted)]


# -- between blocks --------------------------------------------------------------------------------


def workspace(size, *, own=False):
    @T.prim_func
    def kernel(X: T.Tensor((size,), "float32"), Y: T.Tensor((size,), "float32")):
        with T.Kernel(T.ceildiv(size, 128), threads=128) as bx:
            ws = T.alloc_global((T.ceildiv(size, 128), 128), "float32")
            for i in T.Parallel(128):
                if own:
                    ws[bx, i] = X[bx * 128 + i]
                    Y[bx * 128 + i] = ws[bx, i]
                else:
                    ws[0, i] = X[bx * 128 + i]
                    Y[bx * 128 + i] = ws[0, i]

    return kernel


@pytest.mark.parametrize("size", [1, 100, 128])
def test_a_workspace_of_one_block_is_clean(size):
    assert races(workspace(size)) == []


@pytest.mark.parametrize("size", [129, 256, 1000])
def test_a_workspace_that_blocks_share_is_a_race_at_its_store(size):
    (found,) = races(workspace(size))
    assert found.severity is WARNING
    assert "ws[0, i] = X" in found.render()
    assert "blocks bx = 0 and bx = 1 both store ws[0, 0] (i = 0)" in found.label
    assert "ws[bx, 0, i]" in found.help


@pytest.mark.parametrize("size", [129, 256, 1000])
def test_a_workspace_indexed_by_the_block_is_clean(size):
    assert races(workspace(size, own=True)) == []


def test_a_workspace_of_symbolic_size():
    assert len(races(workspace(T.dynamic("n")))) == 1
    assert races(workspace(T.dynamic("n"), own=True)) == []


def tiles(step, tile, size=1000):
    @T.prim_func
    def kernel(A: T.Tensor((size, size), "float32"), B: T.Tensor((size, size), "float32")):
        with T.Kernel(T.ceildiv(size, step), threads=128) as bx:
            s = T.alloc_shared((tile, 40), "float32")
            T.copy(A[bx * step, 0], s)
            T.copy(s, B[bx * step, 0])

    return kernel


@pytest.mark.parametrize(("step", "tile"), [(64, 64), (64, 63), (64, 1), (100, 96)])
def test_tiles_that_do_not_overlap(step, tile):
    assert races(tiles(step, tile)) == []


@pytest.mark.parametrize(("step", "tile"), [(64, 65), (64, 128), (96, 100), (1, 2)])
def test_tiles_that_overlap(step, tile):
    (found,) = races(tiles(step, tile))
    assert f"blocks bx = 0 and bx = 1 both store B[{step}, 0]" in found.label


def test_tiles_that_overlap_outside_the_tensor_only():
    assert races(tiles(64, 65, size=64)) == []
    assert races(tiles(64, 200, size=65)) != []


@pytest.mark.parametrize("axis", ["bx", "by"])
def test_a_block_index_that_is_left_out(axis):
    @T.prim_func
    def kernel(B: T.Tensor((256, 256), "float32")):
        with T.Kernel(4, 4, threads=128) as (bx, by):
            for i, j in T.Parallel(64, 64):
                if axis == "bx":
                    B[by * 64 + i, j] = bx * 1.0
                else:
                    B[i, bx * 64 + j] = by * 1.0

    (found,) = races(kernel)
    assert f"{axis} = 0" in found.label and f"{axis} = 1" in found.label


def test_a_matrix_addressed_as_one_axis_whose_rows_overlap():
    @T.prim_func
    def kernel(B: T.Tensor((7700,), "float32")):
        with T.Kernel(T.ceildiv(77, 32), 10, threads=128) as (bx, by):
            for i, j in T.Parallel(10, 32):
                B[(by * 10 + i) * 77 + bx * 32 + j] = bx * 1.0

    (found,) = races(kernel)
    assert "both store B[77]" in found.label


def test_one_block_stores_what_another_reads():
    def make(shift):
        @T.prim_func
        def kernel(A: T.Tensor((1024,), "float32"), B: T.Tensor((1024,), "float32")):
            with T.Kernel(8, threads=128) as bx:
                for i in T.Parallel(128):
                    B[bx * 128 + i] = A[(bx * 128 + i + shift) % 1024]
                for i in T.Parallel(128):
                    A[bx * 128 + i] = B[bx * 128 + i]

        return kernel

    assert races(make(0)) == []
    (found,) = races(make(1))
    assert found.label == "block bx = 1 stores A[128], block bx = 0 reads it (i = 0 and i = 127)"
    assert "A is read here" in found.render()


def test_a_copy_that_another_block_reads():
    @T.prim_func
    def kernel(A: T.Tensor((256, 64), "float32")):
        with T.Kernel(4, threads=128) as bx:
            s = T.alloc_shared((64, 64), "float32")
            for k in T.serial(4):
                T.copy(A[k * 64, 0], s)
            T.copy(s, A[bx * 64, 0])

    assert "what another reads" in races(kernel)[0].message


def test_atomics_race_with_plain_stores_only():
    def make(clears):
        @T.prim_func
        def kernel(C: T.Tensor((64,), "float32")):
            with T.Kernel(4, threads=64) as bx:
                if clears and bx == 0:
                    T.clear(C)
                for i in T.Parallel(64):
                    T.atomic_add(C[i], 1.0)

        return kernel

    assert races(make(False)) == []
    (found,) = races(make(True))
    assert "updates atomically" in found.message and "bx = 0 stores C[0]" in found.label


def test_a_guard_that_lets_one_block_store():
    def make(first):
        @T.prim_func
        def kernel(C: T.Tensor((64,), "float32"), D: T.Tensor((64,), "float32")):
            with T.Kernel(4, threads=64) as bx:
                for i in T.Parallel(64):
                    if bx >= first:
                        C[i] = D[i]

        return kernel

    assert races(make(3)) == []
    assert "bx = 2 and bx = 3" in races(make(2))[0].label


def test_one_value_from_several_blocks_is_a_note():
    @T.prim_func
    def kernel(C: T.Tensor((64,), "float32")):
        with T.Kernel(4, threads=64):
            for i in T.Parallel(64):
                C[i] = i * 2.0

    assert [d.severity for d in races(kernel)] == [NOTE]


def test_an_assumption_about_a_size_is_believed():
    n = T.dynamic("n")

    def make(assumed):
        @T.prim_func
        def kernel(A: T.Tensor((n,), "float32")):
            with T.Kernel(T.ceildiv(n, 64), threads=64) as bx:
                ws = T.alloc_global((64,), "float32")
                if assumed:
                    T.assume(n <= 64)
                for i in T.Parallel(64):
                    ws[i] = A[bx * 64 + i]

        return kernel

    assert len(races(make(False))) == 1
    assert races(make(True)) == []


# -- between iterations ----------------------------------------------------------------------------


def loop(body):
    """A kernel with one T.Parallel over (i, j) of (40, 24) and a few buffers."""

    @T.prim_func
    def kernel(
        A: T.Tensor((40, 24), "float32"), B: T.Tensor((40,), "float32"), N: T.Tensor((2,), "int32")
    ):
        with T.Kernel(1, threads=64):
            x = T.alloc_fragment((40,), "float32")
            y = T.alloc_fragment((40, 24), "float32")
            z = T.alloc_shared((2000,), "float32")
            T.clear(x)
            T.clear(y)
            T.clear(z)
            for i, j in T.Parallel(40, 24):
                body(i, j, A, B, x, y, z)

    return kernel


@T.macro
def accumulate(i, j, A, B, x, y, z):
    x[i] += A[i, j]


@T.macro
def into_one(i, j, A, B, x, y, z):
    z[0] = i * 1.0


@T.macro
def folded(i, j, A, B, x, y, z):
    z[(i * 24 + j) // 2] = A[i, j]


@T.macro
def wrapped(i, j, A, B, x, y, z):
    z[(i * 24 + j) % 959] = A[i, j]


@T.macro
def too_narrow(i, j, A, B, x, y, z):
    z[i * 23 + j] = A[i, j]


@T.macro
def shifted_read(i, j, A, B, x, y, z):
    y[i, j] = y[(i + 1) % 40, j]


@T.macro
def fixed_read(i, j, A, B, x, y, z):
    y[i, j] = y[i, j] / y[0, 0]


@T.macro
def two_stores(i, j, A, B, x, y, z):
    z[i * 24 + j] = 1.0
    z[i * 24 + j + 1] = A[i, j]


@T.macro
def other_guard(i, j, A, B, x, y, z):
    if i == 0:
        x[i] = A[i, j]


RACES = [
    accumulate, into_one, folded, wrapped, too_narrow, shifted_read, fixed_read, two_stores,
    other_guard,
]  # fmt: skip


@pytest.mark.parametrize("body", RACES, ids=lambda f: f.__name__)
def test_iterations_that_meet_are_refused(body):
    found = races(loop(body))
    assert [d.severity for d in found] == [ERROR]
    assert "i = " in found[0].label and found[0].help


@T.macro
def in_place(i, j, A, B, x, y, z):
    y[i, j] = y[i, j] * 2.0 + B[i]


@T.macro
def turned(i, j, A, B, x, y, z):
    z[j * 40 + i] = A[i, j]


@T.macro
def spaced(i, j, A, B, x, y, z):
    z[i * 50 + j * 2] = A[i, j]
    z[i * 50 + j * 2 + 1] = A[i, j]


@T.macro
def folded_both(i, j, A, B, x, y, z):
    y[(i * 24 + j) // 24, (i * 24 + j) % 24] = A[i, j]


@T.macro
def reversed_(i, j, A, B, x, y, z):
    y[39 - i, 23 - j] = A[i, j]


@T.macro
def one_column(i, j, A, B, x, y, z):
    if j == 3:
        x[i] = A[i, j]


@T.macro
def last_of_each(i, j, A, B, x, y, z):
    if j >= 23:
        x[i] = x[i] + A[i, j]


@T.macro
def by_atomics(i, j, A, B, x, y, z):
    T.atomic_add(z[i], A[i, j])


@T.macro
def from_data(i, j, A, B, x, y, z):
    if A[i, j] > 0.0:
        x[i] = A[i, j]


@T.macro
def inner_loop(i, j, A, B, x, y, z):
    for k in T.serial(4):
        y[i, j] = y[i, j] + A[i, (j + k) % 24]


@T.macro
def own_variable(i, j, A, B, x, y, z):
    v = T.alloc_var("float32")
    v = A[i, j]
    y[i, j] = v * 2.0


CLEAN = [
    in_place, turned, spaced, folded_both, reversed_, one_column, last_of_each, by_atomics,
    from_data, inner_loop, own_variable,
]  # fmt: skip


@pytest.mark.parametrize("body", CLEAN, ids=lambda f: f.__name__)
def test_iterations_that_do_not_meet_are_clean(body):
    assert races(loop(body)) == []


@T.macro
def constant(i, j, A, B, x, y, z):
    x[i] = 0.0


@T.macro
def same_element(i, j, A, B, x, y, z):
    x[i] = B[i] + 1.0


@pytest.mark.parametrize("body", [constant, same_element], ids=lambda f: f.__name__)
def test_one_value_from_several_iterations_is_a_warning(body):
    (found,) = races(loop(body))
    assert found.severity is WARNING and "same value" in found.message
    assert "(i = 0, j = 0) and (i = 0, j = 1)" in found.label and "`if j == 0:`" in found.help


def test_help_of_an_accumulation_names_reductions_and_atomics():
    (found,) = races(loop(accumulate))
    for way in ("T.reduce_sum", "T.alloc_reducer", "`T.atomic_add(x[i], value)`"):
        assert way in found.help


def test_the_loop_variables_of_a_second_loop_have_the_authors_names():
    @T.prim_func
    def kernel():
        with T.Kernel(1, threads=64):
            x = T.alloc_shared((64,), "float32")
            for i in T.Parallel(64):
                x[i] = 0.0
            for i in T.Parallel(64):
                x[i // 2] = i * 1.0

    (found,) = races(kernel)
    assert found.label == "iterations i = 0 and i = 1 both store x[0]"
    assert "x[i // 2]" in found.got


def test_iterations_meet_in_a_later_round_only():
    @T.prim_func
    def kernel():
        with T.Kernel(1, threads=64):
            x = T.alloc_shared((64,), "float32")
            for k in T.serial(2):
                for i in T.Parallel(32):
                    x[i * (1 - k)] = i * 1.0

    assert [d.severity for d in races(kernel)] == [ERROR]


def test_symbolic_extents():
    n = T.dynamic("n")

    def make(shift):
        @T.prim_func
        def kernel(A: T.Tensor((n,), "float32")):
            with T.Kernel(1, threads=64):
                for i in T.Parallel(n - 1):
                    A[i] = A[i + shift]

        return kernel

    assert races(make(0)) == []
    (found,) = races(make(1))
    assert found.notes == ("the example is for n = 1024",)


# -- between threads -------------------------------------------------------------------------------


def threads(body):
    @T.prim_func
    def kernel(A: T.Tensor((256,), "int32")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((256,), "int32")
            mine = T.alloc_local((4,), "int32")
            T.clear(s)
            tx = T.get_thread_binding()
            body(tx, s, mine)
            T.copy(s, A)

    return kernel


@T.macro
def to_one(tx, s, mine):
    s[0] = tx


@T.macro
def to_quarter(tx, s, mine):
    s[tx // 4] = tx * 2


@T.macro
def to_own(tx, s, mine):
    s[tx] = tx
    s[255 - tx] = tx


@T.macro
def guarded(tx, s, mine):
    if tx == 5:
        s[0] = tx


@T.macro
def one_for_all(tx, s, mine):
    s[0] = 7


@T.macro
def private(tx, s, mine):
    mine[0] = tx


@pytest.mark.parametrize("body", [to_one, to_quarter], ids=lambda f: f.__name__)
def test_threads_that_store_different_values_to_one_element(body):
    (found,) = races(threads(body))
    assert found.severity is WARNING and "tx = 0 and tx = 1 both store s[0]" in found.label


@pytest.mark.parametrize("body", [to_own, guarded, one_for_all, private], ids=lambda f: f.__name__)
def test_threads_that_do_not_disagree(body):
    assert races(threads(body)) == []


# -- copies within one buffer ----------------------------------------------------------------------


def copied(src, dst, scope):
    """A copy between two boxes (first row, rows, first column, columns) of one (8, 40) buffer."""

    @T.prim_func
    def kernel(A: T.Tensor((8, 40), "int32")):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((8, 40), "int32") if scope == "shared" else A
            if scope == "shared":
                T.copy(A, s)
            a, m, b, n = src
            c, o, d, p = dst
            T.copy(s[a : a + m, b : b + n], s[c : c + o, d : d + p])

    return kernel


@pytest.mark.parametrize("scope", ["shared", "global"])
@pytest.mark.parametrize(
    ("src", "dst", "clean"),
    [
        ((0, 4, 0, 40), (2, 4, 0, 40), False),
        ((0, 4, 0, 8), (0, 4, 7, 8), False),
        ((1, 3, 5, 8), (0, 3, 4, 8), False),
        ((0, 4, 0, 8), (0, 4, 8, 8), True),
        ((0, 4, 0, 40), (4, 4, 0, 40), True),
        ((0, 4, 0, 8), (0, 4, 0, 8), True),
        ((2, 1, 0, 40), (0, 8, 0, 40), True),  # the row repeats, and keeps its value
        ((2, 1, 0, 8), (0, 8, 1, 8), False),
        ((0, 0, 0, 8), (0, 0, 4, 8), True),
    ],
)
def test_a_copy_onto_part_of_its_source_is_refused(src, dst, clean, scope):
    found = races(copied(src, dst, scope))
    assert [d.severity for d in found] == ([] if clean else [ERROR])


def test_a_copy_by_an_unknown_distance_is_for_the_dynamic_check():
    @T.prim_func
    def kernel(A: T.Tensor((64,), "int32"), n: T.int32):
        with T.Kernel(1, threads=32):
            T.copy(A[0:8], A[n : n + 8])

    assert races(kernel) == []
