"""The inspector: any buffer of a block, after any statement; errors list what there is."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.errors import TileError, TileIndexError, TileNameError, TileValueError


def tiles(m, n, bm=16, bn=24):
    @T.prim_func
    def kernel(A: T.Tensor((m, n), "float32"), B: T.Tensor((m, n), "float32")):
        with T.Kernel(T.ceildiv(n, bn), T.ceildiv(m, bm), threads=64) as (bx, by):
            tile = T.alloc_shared((bm, bn), "float32")
            twice = T.alloc_fragment((bm, bn), "float32")
            total = T.alloc_var("float32")
            T.copy(A[by * bm, bx * bn], tile)
            for i, j in T.Parallel(bm, bn):
                twice[i, j] = tile[i, j] * 2.0
            for _ in T.serial(3):
                total = total + 1.0
            T.clear(tile)
            T.copy(twice, B[by * bm, bx * bn])

    return kernel


LINES = tiles.__code__.co_firstlineno
COPY_IN = LINES + 7
TWICE = LINES + 9
ADD = LINES + 11
CLEAR = LINES + 12
OUT = LINES + 13

A = np.arange(40 * 48, dtype=np.float32).reshape(40, 48)


@pytest.fixture
def kernel():
    return tilelang.compile(tiles(40, 48), out_idx=-1)


def test_a_line_shows_on_chip_buffers_as_they_are_right_after_it(kernel):
    seen = kernel.inspect(A, after=COPY_IN)
    np.testing.assert_array_equal(seen["tile"], A[:16, :24])
    assert np.isnan(seen["twice"]).all()  # nothing has written it yet
    later = kernel.inspect(A, after=CLEAR)
    assert (later["tile"] == 0).all()
    np.testing.assert_array_equal(later["twice"], 2 * A[:16, :24])


def test_a_buffers_name_means_after_its_last_write(kernel):
    assert (kernel.inspect(A, after="tile")["tile"] == 0).all()
    seen = kernel.inspect(A, after="twice")
    assert seen.loc.line == TWICE
    np.testing.assert_array_equal(seen["twice"], 2 * A[:16, :24])


def test_without_a_place_it_is_the_end_of_the_block(kernel):
    seen = kernel.inspect(A)
    assert seen.at_end
    np.testing.assert_array_equal(seen["B"][:16, :24], 2 * A[:16, :24])
    assert set(seen) == {"A", "B", "tile", "twice", "total"}


@pytest.mark.parametrize(
    ("block", "index"), [(0, (0, 0)), (1, (1, 0)), (2, (0, 1)), (5, (1, 2)), ((1, 2), (1, 2))]
)
def test_blocks_are_numbered_with_x_fastest(kernel, block, index):
    seen = kernel.inspect(A, after=COPY_IN, block=block)
    x, y = index
    want = np.zeros((16, 24), np.float32)  # the last row of blocks hangs over the edge
    inside = A[y * 16 : y * 16 + 16, x * 24 : x * 24 + 24]
    want[: len(inside)] = inside
    assert seen.block == index
    np.testing.assert_array_equal(seen["tile"], want)


def test_of_a_loop_it_is_the_last_round(kernel):
    seen = kernel.inspect(A, after=ADD)
    assert seen.rounds == 3
    assert seen["total"].tolist() == [3.0]


def test_one_buffer_only(kernel):
    assert list(kernel.inspect(A, buffer="tile", after=COPY_IN)) == ["tile"]


def test_a_snapshot_is_a_copy(kernel):
    seen = kernel.inspect(A, after=COPY_IN)
    seen["A"][:] = 7
    assert A[0, 1] == 1.0


def test_sizes_that_launch_binds():
    n = T.dynamic("n")
    kernel = tilelang.compile(tiles(40, n), out_idx=-1)
    seen = kernel.inspect(A, after=COPY_IN, block=(1, 0))
    np.testing.assert_array_equal(seen["tile"], A[:16, 24:48])
    with pytest.raises(TileIndexError):
        kernel.inspect(A[:, :24], block=(1, 0))


def test_threads_own_arrays_have_the_threads_in_front():
    @T.prim_func
    def kernel(B: T.Tensor((40, 2), "int32")):
        with T.Kernel(1, threads=40):
            own = T.alloc_local((2,), "int32")
            t = T.get_thread_binding()
            own[0] = t
            own[1] = -t
            B[t, 0] = own[0]
            B[t, 1] = own[1]

    seen = tilelang.compile(kernel, out_idx=-1).inspect()
    want = np.stack([np.arange(40), -np.arange(40)], axis=1)
    np.testing.assert_array_equal(seen["own"], want)
    np.testing.assert_array_equal(seen["B"], want)


def test_narrow_types():
    @T.prim_func
    def kernel(A: T.Tensor((16, 16), "bfloat16"), B: T.Tensor((16, 16), "float32")):
        with T.Kernel(1, threads=32):
            flags = T.alloc_shared((16, 16), "bool")
            tile = T.alloc_fragment((16, 16), "bfloat16")
            T.copy(A, tile)
            for i, j in T.Parallel(16, 16):
                flags[i, j] = i == j
            T.copy(tile, B)

    import ml_dtypes

    ones = np.ones((16, 16), ml_dtypes.bfloat16)
    seen = tilelang.compile(kernel, out_idx=-1).inspect(ones)
    assert seen["tile"].dtype == ml_dtypes.bfloat16
    assert (seen["flags"] == np.eye(16, dtype=np.bool_)).all()
    assert "16 of 256 true" in repr(seen)
    assert "1 .. 1" in repr(seen)


def test_code_inside_a_macro_is_reached_by_its_line_and_by_that_of_the_call():
    @T.macro
    def fill(buffer):
        T.fill(buffer, 2.0)
        T.fill(buffer, 3.0)

    @T.prim_func
    def kernel(B: T.Tensor((16,), "float32")):
        with T.Kernel(1, threads=16):
            tile = T.alloc_shared((16,), "float32")
            fill(tile)
            T.copy(tile, B)

    here = test_code_inside_a_macro_is_reached_by_its_line_and_by_that_of_the_call
    first = here.__code__.co_firstlineno
    compiled = tilelang.compile(kernel, out_idx=-1)
    assert (compiled.inspect(after=first + 3)["tile"] == 2).all()
    assert (compiled.inspect(after=first + 10)["tile"] == 3).all()


# ---- What does not exist -------------------------------------------------------------------------


def refused(kernel, cls: type[TileError], *args, **choice) -> str:
    with pytest.raises(cls) as caught:
        kernel.inspect(A if not args else args[0], **choice)
    return str(caught.value)


def test_a_buffer_that_does_not_exist(kernel):
    text = refused(kernel, TileNameError, buffer="tlie")
    assert "expected: A, B, tile, twice, total; got: tlie" in text
    assert "did you mean tile?" in text
    with pytest.raises(TileNameError):
        kernel.inspect(A)["tlie"]
    assert "got: other" in refused(kernel, TileNameError, after="other")


def test_a_buffer_that_is_not_there_yet(kernel):
    text = refused(kernel, TileNameError, buffer="twice", after=LINES + 4)
    assert "kernel has no buffer twice here" in text
    assert "expected: A, B, tile" in text


def test_a_buffer_that_nothing_writes(kernel):
    assert "kernel does not write A" in refused(kernel, TileValueError, after="A")


def test_a_line_without_a_statement(kernel):
    text = refused(kernel, TileValueError, after=1)
    assert f"expected: one of the lines {LINES + 3}, {LINES + 4}," in text
    assert f"the nearest are {LINES + 3} and {LINES + 4}" in text


@pytest.mark.parametrize("block", [6, -1, (2, 0), (0,), (0, 0, 0)])
def test_a_block_that_does_not_exist(kernel, block):
    text = refused(kernel, TileIndexError, block=block)
    assert "expected: a block of the grid (2, 3)" in text


def test_a_statement_that_the_block_does_not_reach():
    @T.prim_func
    def kernel(B: T.Tensor((4, 16), "float32")):
        with T.Kernel(4, threads=16) as bx:
            tile = T.alloc_shared((16,), "float32")
            T.clear(tile)
            if bx == 3:
                T.fill(tile, 1.0)
            T.copy(tile, B[bx, 0])

    compiled = tilelang.compile(kernel, out_idx=-1)
    assert (compiled.inspect(after="tile", block=3)["tile"] == 1).all()
    with pytest.raises(TileValueError, match=r"block \(2,\) of kernel does not come by"):
        compiled.inspect(after="tile", block=2)


def test_arguments_are_checked_as_by_a_call(kernel):
    with pytest.raises(TileError, match="argument A of kernel"):
        kernel.inspect(A[:, :40])
