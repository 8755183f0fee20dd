"""Each function of the language emits the node that is meant, or refuses its arguments where they
are written. The expected nodes and messages are golden files.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import tilelang.language as T
from language_trace import HERE, emitted, text
from tilelang.errors import JITNoBuilderError, TileError, TileNotImplementedError
from tilelang.ir.tile import For, If
from tilelang.language.later import LATER, NAMESPACES

# Calls, in a launch of 8 blocks of 256 threads in clusters of 2; `k` is what language_trace gives.
CALLS = """
T.shfl_sync(k.x, 3)
T.shfl_xor(k.h, k.i, width=8)
T.shfl_up(k.i, 1, 16, 0xFFFF)
T.shfl_down(1.5, 2)
T.any_sync(k.x > 0)
T.all_sync(k.i)
T.ballot_sync(k.i > 3, 0xFF)
T.ballot(k.i)
T.activemask()
T.match_any_sync(k.i)
T.match_all_sync(k.x, 3)
T.warp_reduce_sum(k.x)
T.warp_reduce_max(k.i)
T.warp_reduce_min(k.h)
T.warp_reduce_bitand(k.u)
T.warp_reduce_bitor(k.i)
T.shuffle_elect(128)
T.shuffle_elect(0)
T.syncthreads_count(k.x > 0)
T.syncthreads_and(k.i)
T.syncthreads_or(k.i)
T.sync_warp()
T.sync_warp(0xFF)
T.sync_grid()
T.named_barrier_arrive(3, 64)
T.bind(T.get_lane_idx())
T.bind(T.get_warp_idx())
T.bind(T.get_warp_idx_sync(16))
T.bind(T.get_warp_group_idx())
T.mbarrier_wait_parity(k.bar[1], k.i % 2)
T.barrier_wait(k.bar, 0)
T.mbarrier_arrive(k.bar[k.i])
T.mbarrier_arrive(k.cbar, 1)
T.barrier_arrive(k.bar)
T.mbarrier_expect_tx(k.bar[0], 4096)
T.mbarrier_arrive_expect_tx(k.bar[0], k.i)
T.ptx_arrive_barrier(k.bar[0])
T.ptx_arrive_barrier_expect_tx(k.bar[0], 8)
T.ptx_arrive_cluster_barrier(k.cbar[0], 0)
T.ptx_fence_barrier_init()
T.fence_proxy_async()
T.pdl_trigger()
T.pdl_sync()
T.cluster_sync()
T.cluster_arrive()
T.cluster_arrive_relaxed()
T.cluster_wait()
T.bind(T.block_rank_in_cluster())
T.bind(T.get_cluster_id())
T.async_copy(k.A, k.s)
T.async_copy(k.A[0, 0], k.s[0:8, :], coalesced_width=8)
T.ptx_cp_async(T.access_ptr(k.s[1, 0], "w"), T.access_ptr(k.A[k.i, 8], "r"), 8)
T.ptx_cp_async(T.address_of(k.s[0, 0]), T.address_of(k.A[0, 0]), 2, k.i > 0)
T.ptx_commit_group()
T.ptx_wait_group(1)
T.cp_async_barrier_noinc(k.bar[0])
T.tma_copy(k.A[0:64, 0:64], k.s, barrier=k.bar[0], leader_scope_threads=32)
T.tma_copy(k.A, k.s, barrier=k.bar, cluster_mask=3, eviction_policy="evict_first")
T.tma_copy(k.s, k.A)
T.tma_store_arrive()
T.tma_store_wait()
T.tma_store_wait(1, read=False)
T.copy_cluster(k.s, k.s2, dst_block=1)
T.copy_cluster(k.s, k.s2, dst_block=k.i, remote_barrier=k.cbar)
T.copy_cluster(k.A, k.s, cluster_mask=3)
T.wgmma_gemm(k.s, k.s2, k.c, transpose_B=True, clear_accum=k.i == 0)
T.wait_wgmma(1)
T.warpgroup_wait(0)
T.warpgroup_arrive()
T.warpgroup_fence_operand(k.c, num_regs=16)
T.tcgen05_gemm(k.s, k.s2, k.t, mbar=k.bar[0], clear_accum=True)
T.tcgen05_gemm(k.s, k.s2[:, 0:32], k.t, mbar=None, use_2cta=True)
T.Tensor((32, 128), "float16", k.s.data)
T.tcgen05_mma_arrive(k.bar[1])
T.tcgen05_before_thread_sync()
T.tcgen05_after_thread_sync()
T.gemm(k.s, k.s2, k.t, mbar=k.bar[0])
T.gemm(k.s, k.s2, k.c, annotations={T.WSID: "mma"})
T.gemm_sp(k.s[:, 0:32], T.view(k.A, (64, 128), "int8")[:, 0:8], k.s2, k.c)
T.im2col(k.img, k.s[0:49, 0:32], k.i, 0, 3, 1, 1, 0)
T.dp4a(k.I8[k.i], k.I8, k.F[1])
T.set_max_nreg(240, 1)
T.dec_max_nreg(24)
T.no_set_max_nreg()
T.annotate_producer_reg_dealloc()
T.bind(T.float16x2(k.h, 1.0))
T.bind(T.float32x4(k.x))
T.bind(T.add2(k.pair, k.pair))
T.bind(T.fma2(k.pair, k.pair, k.pair))
T.bind(T.abs2(k.pair))
T.bind(T.max2(k.pair, k.pair))
T.bind(T.extract_lane(k.pair, 1))
T.bind(T.Shuffle([k.pair, k.pair], [3, 0]))
T.bind(T.Broadcast(k.x, 4))
T.bind(T.Ramp(k.i, 2, 4))
T.bind(T.ldg32(k.B[0, 0]))
T.bind(T.ldg128(k.A[0, 8], k.i > 0))
T.bind(T.lds64(k.s[0, 4]))
T.stg64(k.B[0, 0], T.float32x2(k.x, k.y), k.i > 0)
T.stg32(k.F[0], 7)
T.sts128(k.s[0, 0], T.lds128(k.s2[0, 0]))
T.bind(T.__ldg(k.F, 3))
k.B.__setitem__((0, slice(0, 2)), T.float16x2(k.h, k.h))
T.make_tensor(k.p, (8, k.i), "float16")
T.make_tensor_from_addr(T.int64(4096), 8, strides=(2,))
T.bind(T.address_of(k.B[1, 2]))
T.bind(T.access_ptr(k.F, "rw", offset=4))
T.bind(T.access_ptr(k.B[2, 3], 1, ignore_last_ndim=1))
T.bind(T.atomic_load(k.F[k.i], memory_order="acquire"))
T.atomic_store(k.F, 2.0, memory_order="release")
T.atomic_addx2(k.B[0, 2], T.float32x2(k.x, k.y))
T.atomic_addx2(k.B[0, 2], k.B[1, 0], return_prev=True)
T.atomic_add(T.address_of(k.F[0]), 1)
T.rng_init(5)
T.rng_init(k.i, seq=2, off=k.i)
T.rng_rand()
T.rng_rand_float(64, "normal")
T.bind(T.ieee_add(k.x, k.y, "rz"))
T.bind(T.ieee_frsqrt(k.x))
T.bind(T.__exp(k.x))
T.bind(T.__ffs(k.u))
T.bind(T.__fns(k.u, 0, 2))
T.bind(T.fast_rcp(k.x))
T.any_of(k.s[0, :])
T.all_of(k.r)
T.evaluate(T.sync_warp())
T.tvm_storage_sync("shared")
T.tvm_warp_shuffle(0xFFFFFFFF, k.x, k.i, 32, 32)
T.bind(T.thread_binding(0, 256, "threadIdx.x"))
T.call_extern(T.uint32, "__match_any_sync", 0xFF, k.i)
T.bind(T.call_extern("float16", "__float2half_rz", k.x))
T.buffer_store(k.F, k.i, [2])
T.bind(T.Cast("int8", k.x))
T.import_source(None)
T.alloc_buffer((4,), "float32", scope="local")
T.alloc_wgmma_desc()
T.alloc_descriptor("tcgen05_smem")
T.annotate_ws_pipeline_depth({k.s: 2})
T.annotate_layout({k.s: lambda i, j: (j, i)})
T.clear(k.c, annotations={T.WSID: "zero"})
"""

# Calls that are refused, each with a message at the author's place.
REFUSED = """
T.shfl_sync(k.x, 3, width=12)
T.shfl_sync(k.x, 3, mask=0)
T.shfl_sync(k.A, 3)
T.shfl_xor(k.x, 1.5)
T.shfl_xor(k.x, 1, k.i)
T.any_sync(k.x)
T.match_any_sync(k.h)
T.warp_reduce_bitor(k.x)
T.shuffle_elect(48)
T.get_lane_idx(0)
T.sync_warp(0)
T.named_barrier_arrive(16, 64)
T.named_barrier_arrive(1, 40)
T.mbarrier_wait_parity(k.s, 0)
T.mbarrier_wait_parity(k.bar, 2)
T.mbarrier_wait_parity(3, 0)
T.mbarrier_arrive(k.bar[0], cta_id=1)
T.mbarrier_expect_tx(k.bar, -1)
T.async_copy(k.s, k.s2)
T.async_copy(k.A, k.c)
T.async_copy(k.B, k.s)
T.async_copy(k.A[0:32, :], k.s)
T.ptx_cp_async(k.s[0, 0], k.A[0, 0], 3)
T.ptx_cp_async(k.A[0, 0], k.s[0, 0], 8)
T.tma_copy(k.A, k.s)
T.tma_copy(k.s, k.A, barrier=k.bar)
T.tma_copy(k.A, k.s, barrier=k.bar, cluster_mask=0)
T.tma_copy(k.A, k.s, barrier=k.bar, leader_scope_threads=48)
T.tma_copy(k.A, k.s, barrier=k.bar, eviction_policy="never")
T.tma_copy(k.c, k.s)
T.copy_cluster(k.s, k.s2)
T.copy_cluster(k.A, k.s, dst_block=1)
T.copy(k.A, k.s, eviction_policy="never")
T.wgmma_gemm(k.s, k.c, k.c)
T.wgmma_gemm(k.s, k.s2, k.t)
T.wgmma_gemm(k.s[0:32, :], k.s2, k.c)
T.wait_wgmma(k.i)
T.warpgroup_fence_operand(k.c, dtype="float16")
T.tcgen05_gemm(k.s, k.s2, k.c, mbar=None)
T.tcgen05_gemm(k.s, k.s2, k.t, mbar=k.s)
T.gemm_sp(k.s, k.s2, k.s2, k.c)
T.gemm_sp(k.s[:, 0:32], k.I8, k.s2, k.c)
T.gemm_sp(k.s[:, 0:32], T.view(k.A, (64, 128), "int8"), k.s2, k.c)
T.mma_gemm_blockscaled(k.s, k.s, k.c, 0, 0, k_start=0, sf_a_granularity_k=8, sf_b_granularity_k=8)
T.im2col(k.A, k.s, 0, 0, 3, 1, 1, 0)
T.im2col(k.img, k.s, 0, 0, 3, 0, 1, 0)
T.dp4a(k.A, k.I8, k.F[0])
T.dp4a(k.I8, k.I8, k.B[0, 0])
T.ws()
T.ws(2)
T.ws(0, 0)
T.set_max_nreg(25, 1)
T.WSSchedule(6, [], [], [])
T.annotate_ws_schedule({})
T.ws_op(3)
T.alloc_reducer((4,), "float32", op="mean")
T.alloc_reducer((4,), "float32", op="bitor")
T.alloc_reducer((4,), "float32", replication="some")
T.reducer_init(k.c)
T.reducer_update(k.c[0, 0], 1)
T.finalize_reducer(T.alloc_reducer((4,), "float32"), k.r)
T.finalize_reducer(k.c, batch=0)
T.alloc_reducer((4,), "float32")[0:2]
T.copy(T.alloc_reducer((4,), "int32", op="bitor"), k.r)
T.float16x2(1, 2, 3)
T.float16(1, 2)
T.add2(k.x, k.y)
T.add2(k.pair, T.float32x2(k.x))
T.extract_lane(k.pair, 2)
T.extract_lane(k.pair, k.i)
T.Shuffle([k.pair], [4])
T.Broadcast(k.x, 3)
T.ldg32(k.s[0, 0])
T.lds32(k.A[0, 0])
T.stg64(k.B[0, 0], k.x)
T.stg32(k.p, 1)
T.__ldg(k.F)
T.__ldg(3)
k.B.__setitem__((0, slice(0, 4)), k.pair)
T.make_tensor(k.x, 8)
T.Tensor((32, 64), "float16", k.s.data)
T.Tensor((8,), "float16", k.s)
T.tcgen05_gemm(k.s, k.s2, k.t, mbar=None, use_2cta=True)
T.make_tensor(k.p, (8, 8), strides=(1,))
T.ptr("float32", "shared")
T.access_ptr(k.F, "x")
T.access_ptr(k.A, offset=3)
T.access_ptr(3)
T.address_of(k.x)
T.atomic_load(k.F[0], memory_order="release")
T.atomic_store(k.F[0], 1, memory_order="acquire")
T.atomic_addx2(k.B[0, 0], k.x)
T.rng_init(1, generator="curandStateXORWOW_t")
T.rng_init(1, generator="mt19937")
T.rng_rand_float(16)
T.rng_rand_float(dist="poisson")
T.ieee_add(k.h, k.h, "rz")
T.ieee_add(k.x, k.y, "up")
T.__exp(k.i)
T.any_of(k.x)
T.evaluate(k.s)
T.attr(None, "pragma", 1)
T.tvm_thread_allreduce(1, k.x, True, k.v[0], T.get_thread_binding())
T.comm_reducer(max, [0, 1])
T.thread_binding(0, 128, "threadIdx.x")
T.thread_binding(0, 8, "blockIdx.x")
T.tvm_storage_sync("global")
T.call_extern("float32", "my_function", k.x)
T.alloc_buffer((4,), "float32", scope="texture")
T.match_buffer(k.p, (8,), align=1, offset_factor=2)
T.annotate_layout({k.s: 3})
T.gemm(k.s, k.s2, k.c, annotations={"speed": 11})
T.Persistent([], 4, 0)
T.PersistentTileScheduler(2, 2, stateful=False).m_idx
T.PersistentTileScheduler(2, 2, swizzle_size=0)
T.BaseTileScheduler().init(0)
T.validate_gemm_ab_dtypes("float16", "bfloat16")
T.ptx_mma()
T.While(True)
T.Scope("C")
T.tile.add(k.r, k.r, k.r)
T.tile.no_such_op
T.shfl_syncs(1)
"""


def call(source: str) -> Callable[[Any], Any]:
    return eval(f"lambda k: {source}", {"T": T})


def lines(block: str) -> list[str]:
    return block.strip().splitlines()


def test_each_call_emits_the_node_that_is_meant(golden: Any) -> None:
    shown = (f"{source}\n{text(call(source))}" for source in lines(CALLS))
    golden("\n\n".join(shown), "language/surface")


def refusal(source: str) -> str:
    with pytest.raises(TileError) as caught:
        emitted(call(source))
    (finding,) = caught.value.diagnostics
    assert finding.loc == HERE, source
    assert finding.expected or finding.help, f"{source}: neither a way out nor what is expected"
    facts = [f"{type(caught.value).__name__}: {finding.message}"]
    facts += [f"  expected: {finding.expected}"] * bool(finding.expected)
    facts += [f"  got: {finding.got}"] * bool(finding.got)
    facts += [f"  help: {finding.help}"] * bool(finding.help)
    return "\n".join(facts)


def test_wrong_arguments_are_refused_where_they_are_written(golden: Any) -> None:
    shown = (f"{source}\n{refusal(source)}" for source in lines(REFUSED))
    golden("\n\n".join(shown), "language/refused")


def test_a_call_outside_a_kernel_says_so() -> None:
    for fn in (T.sync_grid, T.rng_rand, T.cluster_sync, T.activemask):
        with pytest.raises(JITNoBuilderError, match="outside"):
            fn()


def test_every_name_that_waits_is_refused_by_name() -> None:
    spaces = [(n, getattr(space, n)) for space in NAMESPACES.values() for n in dir(space)]
    for name, fn in [*((n, getattr(T, n)) for n in LATER), *spaces]:
        with pytest.raises(TileNotImplementedError, match=name):
            fn()


def test_names_that_wait_shadow_nothing_that_exists() -> None:
    assert [n for n in LATER if n in vars(T)] == []


# -- clusters and thread indices -------------------------------------------------------------------


def test_thread_indices_count_x_first() -> None:
    assert text(lambda k: T.bind(T.get_warp_idx()), threads=(16, 4)) == (
        "t_1: int32 = (tx + ty * 16) // 32"
    )
    shown = text(lambda k: T.bind(T.get_lane_idx()), threads=(8, 4, 2))
    assert shown == "t_1: int32 = (tx + ty * 8 + tz * 32) % 32"


def test_a_cluster_is_asked_about_along_each_axis() -> None:
    def ask(k: SimpleNamespace) -> None:
        assert T.get_cluster_dims() == [2, 2, 1]
        assert T.get_cluster_size() == 4
        assert T.get_cluster_extents() == [4, 3, 1]
        assert len(T.get_cluster_ids()) == 2
        assert T.get_cluster_id(2) == 0
        T.bind(T.block_rank_in_cluster())

    shown = text(ask, grid=(7, 5), cluster=(2, 2))
    assert shown == "t_1: int32 = bx % 2 + by % 2 * 2"


def test_without_a_cluster_a_block_is_alone() -> None:
    def ask(k: SimpleNamespace) -> None:
        assert T.get_cluster_dims() == [1, 1, 1]
        assert T.block_rank_in_cluster() == 0

    assert emitted(ask, cluster=None) == []


def test_the_extent_of_a_slice_may_go_through_names() -> None:
    def kernel(k: SimpleNamespace) -> None:
        low = T.bind(k.i * 8)
        T.fill(k.A[0, low + 1 : k.i * 8 + 5], 0)

    assert text(kernel).endswith("fill(A[0 : +1, t_1 + 1 : +4], value=float16(0.0))")


# -- reducers --------------------------------------------------------------------------------------


def parallel(count: int, body: Callable[[Any], None]) -> None:
    from tilelang.ir import build

    builder = build.current()
    frame = T.Parallel(count)
    body(frame.enter(builder, ["n"]))
    frame.leave(builder)


@pytest.mark.parametrize("count", [1, 40, 64])
def test_an_older_reducer_takes_what_is_added_to_it(count: int) -> None:
    def kernel(k: SimpleNamespace) -> None:
        with pytest.warns(DeprecationWarning):
            acc = T.alloc_reducer((64,), "float32", "sum", replication="all")
        T.clear(acc)

        def body(n: Any) -> None:
            acc[n] = acc[n] + k.h
            acc[n] = k.x + acc[n] + k.y
            acc[0] = acc[0] - k.x
            acc[0] = k.x

        parallel(count, body)
        T.finalize_reducer(acc)

    shown = text(kernel)
    assert 'reducer_update(fragment, (n,), cast(h, float32), "sum")' in shown
    assert 'reducer_update(fragment, (n,), x + y, "sum")' in shown
    assert 'reducer_update(fragment, (0,), -x, "sum")' in shown
    assert "fragment[0] = x" in shown
    assert 'reducer_finalize(fragment, fragment[0 : +64], op="sum")' in shown


def test_what_reads_an_older_reducer_is_no_contribution_to_it() -> None:
    def kernel(k: SimpleNamespace) -> None:
        with pytest.warns(DeprecationWarning):
            acc = T.alloc_reducer((4,), "float32", "max", replication="none")
        acc[0] = T.max(acc[0], acc[1])
        acc[0] = acc[0] + k.x

    assert "reducer_update" not in text(kernel)


def epoch(order: str) -> Callable[[Any], None]:
    """A kernel that does i(nit), u(pdate), p(arallel update), f(inalize) in this order."""

    def kernel(k: SimpleNamespace) -> None:
        acc = T.alloc_reducer((64,), "float32")
        for step in order:
            if step == "i":
                T.reducer_init(acc, 2)
            elif step == "u":
                T.reducer_update(acc[0], k.x)
            elif step == "p":
                parallel(64, lambda n: T.reducer_update(acc[n], k.x))
            else:
                T.finalize_reducer(acc, k.r)

    return kernel


def test_a_reducer_is_opened_updated_and_closed() -> None:
    shown = text(epoch("ippf"))
    assert 'reducer_init(reducer, "sum", init=2.0)' in shown
    assert shown.count("reducer_update") == 2
    assert shown.endswith('reducer_finalize(reducer, r[0 : +64], op="sum")')


@pytest.mark.parametrize(
    ("order", "why"),
    [
        ("pf", "before it is initialised"),
        ("f", "before it is initialised"),
        ("iif", "initialised twice"),
        ("iuf", "outside T.Parallel"),
        ("iff", "finalized twice"),
        ("ifp", "after it is finalized"),
    ],
)
def test_a_reducer_out_of_order_is_refused(order: str, why: str) -> None:
    with pytest.raises(TileError, match=why):
        emitted(epoch(order))


# -- specialisation, threads reductions, schedules -------------------------------------------------


def test_arms_hold_what_is_written_in_them() -> None:
    def kernel(k: SimpleNamespace) -> None:
        with T.ws(0):
            T.barrier_arrive(k.bar)
        with T.ws(1):
            T.barrier_wait(k.bar, 0)

    assert text(kernel) == (
        "with warp_specialize((0,)):\n    mbar_arrive(bar[0 : +1])\n"
        "with warp_specialize((1,)):\n    mbar_wait(bar[0 : +1], parity=0)"
    )


def test_a_reduction_over_threads_goes_over_its_axis_alone() -> None:
    def kernel(k: SimpleNamespace) -> None:
        ty = T.get_thread_binding(1)
        with T.attr(T.comm_reducer(lambda a, b: a + b, [0]), "reduce_scope", None):
            T.tvm_thread_allreduce(1, k.x, True, k.v[1], ty, dtype="handle")

    shown = text(kernel, threads=(8, 24))
    assert "shared[tx + ty * 8] = x" in shown
    assert "for r_1 in serial(0, 24)" in shown
    assert "shared[tx + r_1 * 8]" in shown
    assert shown.endswith("sync_threads()\nv[1] = var[0]")


def waves(domain: list[int], workers: int, group: int) -> list[list[tuple[int, ...]]]:
    """The tiles of each worker, from the statements that T.Persistent emits."""
    from tilelang.ir import build
    from tilelang.ir.evaluate import evaluate
    from tilelang.ir.expr import Const, Var

    def kernel(k: SimpleNamespace) -> None:
        builder = build.current()
        frame = T.Persistent(domain, workers, k.i, group_size=group)
        frame.enter(builder, [])
        T.sync_warp()
        frame.leave(builder)

    (loop,) = emitted(kernel)
    assert isinstance(loop, For)
    *lets, guard = loop.body
    assert isinstance(guard, If)

    def value(e: Any, known: dict[str, int]) -> Any:
        def known_name(n: Any) -> Any:
            return Const(known[n.name], n.type) if isinstance(n, Var) else folded(n)

        def folded(n: Any) -> Any:
            if all(isinstance(c, Const) for c in n.children()) and not isinstance(n, Const):
                return Const(evaluate(n), n.dtype)
            return None

        top = e.rewrite(known_name)
        done = known_name(top) or top
        return done.value

    rounds = value(loop.stop, {})
    tiles: list[list[tuple[int, ...]]] = []
    for worker in range(workers):
        mine: list[tuple[int, ...]] = []
        for w in range(rounds):
            known = {"i": worker, loop.var.name: w}
            for let in lets:
                known[let.var.name] = value(let.value, known)
            if value(guard.cond, known):
                mine.append(tuple(known[let.var.name] for let in lets[1:]))
        tiles.append(mine)
    return tiles


@pytest.mark.parametrize("domain", [[1], [7], [5, 7], [3, 2, 9], [4, 0]])
@pytest.mark.parametrize("workers", [1, 3, 40])
@pytest.mark.parametrize("group", [1, 4, 8])
def test_persistent_workers_share_all_tiles_out(
    domain: list[int], workers: int, group: int
) -> None:
    tiles = [t for mine in waves(domain, workers, group) for t in mine]
    count = 1
    for size in domain:
        count *= size
    assert len(tiles) == len(set(tiles)) == count
    assert all(0 <= x < size for t in tiles for x, size in zip(t, domain, strict=True))


def test_persistent_numbers_go_along_a_group_of_the_last_axis_first() -> None:
    assert waves([2, 5], 1, 2)[0] == [
        (0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (0, 3), (1, 2), (1, 3), (0, 4), (1, 4),
    ]  # fmt: skip


@pytest.mark.parametrize(("m", "n"), [(1, 1), (5, 7), (8, 3), (3, 1)])
@pytest.mark.parametrize("swizzle", [1, 2, 5])
@pytest.mark.parametrize("column_major", [True, False])
def test_a_scheduler_visits_every_tile_once(
    m: int, n: int, swizzle: int, column_major: bool
) -> None:
    def kernel(k: SimpleNamespace) -> None:
        deal = T.PersistentTileScheduler(
            m, n, swizzle_size=swizzle, column_major=column_major, stateful=False
        )
        tiles = [tuple(int(x) for x in deal.coord(t)) for t in range(m * n)]
        assert sorted(tiles) == [(i, j) for i in range(m) for j in range(n)]
        if swizzle == 1 and m * n > 1:
            assert tiles[1] == ((1 % m, 1 // m) if column_major else (1 // n, 1 % n))

    emitted(kernel)


def test_a_symbolic_size_is_a_variable() -> None:
    assert isinstance(T.dynamic("m"), T.Var) and isinstance(T.Var("n", "int64"), T.Var)
    assert not isinstance(T.dynamic("m") + 1, T.Var) and not isinstance(3, T.Var)
