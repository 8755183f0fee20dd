"""The dynamic check where threads wait for each other: too early, never, or in no order."""

import numpy as np
import pytest

import tilelang.language as T
from hang_guard import hang_guard  # noqa: F401 - a fixture
from tilelang.emulator import translate

pytestmark = pytest.mark.usefixtures("hang_guard")


def check(kernel, *arrays):
    """What a checked run finds."""
    names = [p.name for p in kernel.ir.params]
    return translate(kernel.ir, checked=True).run(dict(zip(names, arrays, strict=True)))


def messages(kernel, *arrays):
    return [d.message for d in check(kernel, *arrays)]


def floats(*shape):
    return np.zeros(shape, np.float32)


# -- the wait of another ---------------------------------------------------------------------------


def handed_on(tells_after_its_wait):
    """Group 1 reads what group 0 has waited for, and hears from group 0 after (or before) that."""

    @T.prim_func
    def kernel(A: T.Tensor((64,), "float32"), B: T.Tensor((2, 64), "float32")):
        with T.Kernel(1, threads=256):
            s = T.alloc_shared((64,), "float32")
            full = T.alloc_barrier(128)
            told = T.alloc_barrier(128)
            with T.ws(0):
                T.tma_copy(A, s, barrier=full)
                T.mbarrier_arrive(full)
                if not tells_after_its_wait:
                    T.mbarrier_arrive(told)
                T.mbarrier_wait_parity(full, 0)
                T.copy(s, B[0, :])
                if tells_after_its_wait:
                    T.mbarrier_arrive(told)
            with T.ws(1):
                T.mbarrier_wait_parity(told, 0)
                T.sync_threads(1, 128)  # by now the load may or may not be there
                T.copy(s, B[1, :])

    return kernel


def test_what_another_group_has_waited_for_is_known_once_it_says_so():
    assert messages(handed_on(True), floats(64), floats(2, 64)) == []


def test_what_another_group_has_waited_for_is_not_known_otherwise():
    found = messages(handed_on(False), floats(64), floats(2, 64))
    assert found in (
        ["s is read while T.tma_copy writes it"],
        ["s is read without a wait for T.tma_copy, which writes it"],
    )


def test_a_stage_that_is_filled_again_without_asking():
    @T.prim_func
    def kernel(A: T.Tensor((4, 64), "float32"), B: T.Tensor((4, 64), "float32")):
        with T.Kernel(1, threads=256):
            s = T.alloc_shared((2, 64), "float32")
            full = T.alloc_barrier([128] * 2)
            with T.ws(1):
                for k in T.serial(4):
                    T.tma_copy(A[k, :], s[k % 2, :], barrier=full[k % 2])
                    T.mbarrier_arrive(full[k % 2])
                    T.mbarrier_wait_parity(full[k % 2], k // 2 % 2)
            with T.ws(0):
                for k in T.serial(4):
                    T.mbarrier_wait_parity(full[k % 2], k // 2 % 2)
                    T.copy(s[k % 2, :], B[k, :])

    found = messages(kernel, floats(4, 64), floats(4, 64))
    assert any(m == "a race between warps on s: one reads what another stores" for m in found)


def test_a_product_of_a_tile_that_is_not_there():
    @T.prim_func
    def kernel(A: T.Tensor((64, 32), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 32), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            full = T.alloc_barrier(128)
            T.tma_copy(A, a, barrier=full)
            T.mbarrier_arrive(full)
            T.wgmma_gemm(a, a, c, transpose_B=True, clear_accum=True)
            T.mbarrier_wait_parity(full, 0)
            T.wait_wgmma(0)
            T.copy(c, C)

    found = check(kernel, np.zeros((64, 32), np.float16), floats(64, 64))
    assert [d.message for d in found] == ["a is read while T.tma_copy writes it"]
    assert found[0].kind == "async"
    assert found[0].related[0][1] == "it begins here"


def test_an_accumulator_that_is_cleared_before_the_wait():
    @T.prim_func
    def kernel(A: T.Tensor((64, 32), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 32), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.clear(c)
            T.wgmma_gemm(a, a, c, transpose_B=True)
            T.wgmma_gemm(a, a, c, transpose_B=True)  # products of one accumulator may follow
            T.clear(c)
            T.wait_wgmma(0)
            T.copy(c, C)

    found = messages(kernel, np.zeros((64, 32), np.float16), floats(64, 64))
    assert found == ["c is changed while T.wgmma_gemm writes it"]


@pytest.mark.parametrize("early", [True, False])
def test_a_tile_that_is_given_back_before_the_product_has_read_it(early):
    """The group that multiplies tells the loader at once, or lets the product tell it."""

    @T.prim_func
    def kernel(A: T.Tensor((3, 128, 32), "bfloat16"), C: T.Tensor((128, 128), "float32")):
        with T.Kernel(1, threads=256):
            a = T.alloc_shared((128, 32), "bfloat16")
            acc = T.alloc_tmem((128, 128), "float32")
            c = T.alloc_fragment((128, 128), "float32")
            full = T.alloc_barrier(128)
            free = T.alloc_barrier(1)
            done = T.alloc_barrier(1)
            with T.ws(1):
                for k in T.serial(3):
                    T.mbarrier_wait_parity(free, k % 2 ^ 1)
                    T.tma_copy(A[k, :, :], a, barrier=full)
                    T.mbarrier_arrive(full)
            with T.ws(0):
                for k in T.serial(3):
                    T.mbarrier_wait_parity(full, k % 2)
                    if early:
                        T.tcgen05_gemm(a, a, acc, transpose_B=True, clear_accum=k == 0, mbar=None)
                        if T.shuffle_elect(128):
                            T.mbarrier_arrive(free)
                    else:
                        T.tcgen05_gemm(a, a, acc, transpose_B=True, clear_accum=k == 0, mbar=free)
                T.tcgen05_mma_arrive(done)
                T.mbarrier_wait_parity(done, 0)
                T.copy(acc, c)
                T.copy(c, C)

    array = np.zeros((3, 128, 32), T.dtype("bfloat16").numpy)
    found = messages(kernel, array, floats(128, 128))
    if early:
        assert found
        assert all(m.startswith("a is changed") and "T.tcgen05_gemm" in m for m in found)
    else:
        assert found == []


# -- warps -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("barrier", ["none", "named", "mbarrier"])
def test_warps_that_exchange_data_on_their_own_ways(barrier):
    @T.prim_func
    def kernel(A: T.Tensor((32,), "int32"), B: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            s = T.alloc_shared((32,), "int32")
            bar = T.alloc_barrier(32)
            if tx < 32:
                s[tx] = A[tx]
                if barrier == "named":
                    T.named_barrier_arrive(1, 64)
                T.mbarrier_arrive(bar)
            else:
                if barrier == "named":
                    T.sync_threads(1, 64)
                elif barrier == "mbarrier":
                    T.mbarrier_wait_parity(bar, 0)
                B[tx - 32] = s[63 - tx]

    found = messages(kernel, np.zeros(32, np.int32), np.zeros(32, np.int32))
    if barrier == "none":
        assert found == ["a race between warps on s: one stores what another reads"] or found == [
            "s is read before it is written"
        ]
    else:
        assert found == []


@pytest.mark.parametrize("synced", [True, False])
def test_warps_that_exchange_data_in_global_memory(synced):
    """There the compiler puts no barrier of its own."""

    @T.prim_func
    def kernel(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            if tx < 32:
                A[tx] = tx
                if synced:
                    T.named_barrier_arrive(1, 64)
            else:
                if synced:
                    T.sync_threads(1, 64)
                else:
                    T.sync_threads(2, 32)
                B[tx] = A[tx - 32]

    found = messages(kernel, np.zeros(64, np.int32), np.zeros(64, np.int32))
    assert found == ([] if synced else ["a race between warps on A: one stores what another reads"])


def test_a_variable_of_shared_memory_that_nobody_wrote():
    @T.prim_func
    def kernel(B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=256):
            tx = T.get_thread_binding()
            s = T.alloc_shared((64,), "int32")
            bar = T.alloc_barrier(128)
            with T.ws(0):
                if tx < 32:
                    s[tx] = tx
                T.mbarrier_arrive(bar)
            with T.ws(1):
                T.mbarrier_wait_parity(bar, 0)
                T.copy(s, B)

    found = messages(kernel, np.zeros(64, np.int32))
    assert found == ["s is read before it is written"]


# -- blocks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("flag", [True, False])
def test_blocks_that_exchange_data_by_a_flag(flag):
    @T.prim_func
    def kernel(
        A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int32"), F: T.Tensor((2,), "int32")
    ):
        with T.Kernel(2, threads=64) as bx:
            tx = T.get_thread_binding()
            if bx == 0:
                A[tx] = tx + 1
                T.sync_threads()
                if tx == 0:
                    T.atomic_store(F[0], 1, "release")
            else:
                if tx == 0:
                    while T.atomic_load(F[0 if flag else 1], "acquire") == 0:
                        pass
                T.sync_threads()
                B[tx] = A[63 - tx]

    flags = np.zeros(2, np.int32)
    flags[1] = 1
    found = messages(kernel, np.zeros(64, np.int32), np.zeros(64, np.int32), flags)
    if flag:
        assert found == []
    else:
        assert found == ["a race between blocks on A: one block stores what another reads"]


@pytest.mark.parametrize("synced", [True, False])
def test_blocks_around_a_grid_barrier(synced):
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(8, threads=32) as bx:
            T.sync_grid()
            A[bx] = bx
            if synced:
                T.sync_grid()
            B[bx] = A[(bx + 1) % 8]

    found = messages(kernel, np.zeros(8, np.int32), np.zeros(8, np.int32))
    assert bool(found) is not synced
    assert all("race between blocks on A" in m for m in found)


@pytest.mark.parametrize("synced", [True, False])
def test_blocks_of_a_cluster(synced):
    @T.prim_func
    def kernel(A: T.Tensor((2, 64), "float32"), B: T.Tensor((2, 64), "float32")):
        with T.ClusterKernel(2, threads=64, cluster_dims=2) as bx:
            mine = T.alloc_shared((64,), "float32")
            theirs = T.alloc_shared((64,), "float32")
            T.copy(A[bx, :], mine)
            T.cluster_sync()
            T.copy_cluster(mine, theirs, dst_block=1 - bx)
            if synced:
                T.cluster_sync()
            else:
                T.cluster_arrive()
            T.copy(theirs, B[bx, :])
            if not synced:
                T.cluster_wait()

    found = messages(kernel, floats(2, 64), floats(2, 64))
    if synced:
        assert found == []
    else:
        assert found
        assert any("theirs" in m for m in found)


# -- what nobody waits for -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["load", "store", "cp.async", "wgmma", "tcgen05"])
@pytest.mark.parametrize("waited", [True, False])
def test_work_that_is_left_at_the_end(kind, waited):
    @T.prim_func
    def kernel(A: T.Tensor((128, 32), "bfloat16"), B: T.Tensor((128, 32), "bfloat16")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((128, 32), "bfloat16")
            c = T.alloc_fragment((128, 128), "float32")
            t = T.alloc_tmem((128, 128), "float32")
            bar = T.alloc_barrier(128)
            one = T.alloc_barrier(1)
            if kind == "load":
                T.tma_copy(A, a, barrier=bar)
                T.mbarrier_arrive(bar)
                if waited:
                    T.mbarrier_wait_parity(bar, 0)
            elif kind == "cp.async":
                T.async_copy(A, a)
                if waited:
                    T.ptx_wait_group(0)
            else:
                T.copy(A, a)
                if kind == "store":
                    T.tma_copy(a, B)
                    if waited:
                        T.tma_store_wait()
                elif kind == "wgmma":
                    T.wgmma_gemm(a, a, c, transpose_B=True, clear_accum=True)
                    if waited:
                        T.wait_wgmma(0)
                else:
                    T.tcgen05_gemm(a, a, t, transpose_B=True, clear_accum=True, mbar=one)
                    if waited:
                        T.mbarrier_wait_parity(one, 0)

    arrays = [np.zeros((128, 32), T.dtype("bfloat16").numpy) for _ in range(2)]
    found = check(kernel, *arrays)
    if waited:
        assert found == []
    else:
        assert [d.message.endswith("is never waited for") for d in found] == [True]
        assert found[0].loc is not None
        assert found[0].kind == "async"


def test_messages_of_the_check(golden):
    @T.prim_func
    def kernel(A: T.Tensor((2, 64), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=256):
            tx = T.get_thread_binding()
            s = T.alloc_shared((64,), "float32")
            t = T.alloc_shared((64,), "float32")
            full = T.alloc_barrier(128)
            with T.ws(0):
                T.async_copy(A[0, :], s)
                T.tma_copy(A[1, :], t, barrier=full)
                T.mbarrier_arrive(full)
                T.copy(s, B)
            with T.ws(1):
                T.mbarrier_wait_parity(full, 0)
                T.tma_copy(t, B)
                if tx < 160:
                    t[tx - 128] = 1.0
                if tx < 160:
                    s[tx - 128] = 2.0

    found = check(kernel, floats(2, 64), floats(64))
    golden("\n\n".join(d.render() for d in found), "errors/waits_found_by_the_check")
