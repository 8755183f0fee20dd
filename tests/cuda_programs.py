"""Programs of the thread stage, as text, that use what one warp cannot show: the Tensor Memory
Accelerator, clusters, barriers of blocks and of the grid, assertions.

What enters: sizes. What leaves: programs; `tests/numeric/test_cuda_device.py` says what they do.
"""

# ruff: noqa: E501 - a line of a program is a line

from __future__ import annotations

import math

from tilelang.ir.read import read_program
from tilelang.ir.thread import Program

DIMS = (20, 7, 5, 4, 3)
BOX = (16, 4, 2, 2, 2)
AT = (8, 4, 3, 1, 2)
"""A tensor, a box and a corner of which the box reaches outside; innermost axis first."""


def _read(text: str) -> Program:
    return read_program(text.strip() + "\n")


def _strides(dims: tuple[int, ...]) -> str:
    return "".join(f"int64({4 * math.prod(dims[: k + 1])}), " for k in range(len(dims) - 1))


def tma(rank: int) -> Program:
    """Loads a box of A, writes it to S, stores it into B and adds it there once more."""
    dims, box, at = DIMS[:rank], BOX[:rank], AT[:rank]
    size, shape = math.prod(box), tuple(reversed(dims))
    where = ", ".join(map(str, at))
    maps = "\n".join(
        f"    {x}_map = make_tensor_map({x}, {dims}, ({_strides(dims)}), {box})" for x in "AB"
    )
    return _read(f"""
@program()
def tma(A: Global({shape}, None, float32, align=16), B: Global({shape}, None, float32, align=16), S: Global(({size},), None, float32, align=16)):
{maps}
    with kernel("tma", (A_map, B_map, S), (1,), (32,), shared={4 * size + 8}) as ((bx,), (tx,)):
        box = declare({size}, float32, space="shared", align=128, offset=0)
        bar = declare(1, uint64, space="shared", align=8, offset={4 * size})
        if tx == 0:
            instr("prefetch.tensormap", (), (A_map,))
            instr("mbarrier.init", (bar[0 : +1],), (1,))
            instr("fence.mbarrier_init", (), ())
        instr("barrier.sync", (), (), imm={{"id": 0, "threads": 32}})
        if tx == 0:
            instr("mbarrier.arrive.expect_tx", (bar[0 : +1],), ({4 * size},))
            instr("cp.async.bulk.tensor.{rank}d.load", (box[0 : +{size}], bar[0 : +1]), (A_map, {where}), imm={{"cache": "evict_first"}})
        instr("mbarrier.try_wait.parity", (), (bar[0 : +1], 0))
        for i in serial(0, {-(-size // 32)}):
            if i * 32 + tx < {size}:
                S[i * 32 + tx] = box[i * 32 + tx]
        instr("fence.proxy.async", (), ())
        instr("barrier.sync", (), (), imm={{"id": 0, "threads": 32}})
        if tx == 0:
            instr("cp.async.bulk.tensor.{rank}d.store", (), (B_map, box[0 : +{size}], {where}))
            instr("cp.async.bulk.commit_group", (), ())
            instr("cp.async.bulk.wait_group", (), (), imm={{"count": 0}})
            instr("cp.reduce.async.bulk.tensor.{rank}d.add", (), (B_map, box[0 : +{size}], {where}))
            instr("cp.async.bulk.commit_group", (), ())
            instr("cp.async.bulk.wait_group", (), (), imm={{"count": 0}})
""")


def bulk() -> Program:
    """Copies 1024 floats in, out, and adds them to a third array, as runs of bytes."""
    return _read("""
@program()
def bulk(A: Global((1024,), None, float32, align=16), B: Global((1024,), None, float32, align=16), C: Global((1024,), None, float32, align=16)):
    with kernel("bulk", (A, B, C), (1,), (32,), shared=4104) as ((bx,), (tx,)):
        box = declare(1024, float32, space="shared", align=128, offset=0)
        bar = declare(1, uint64, space="shared", align=8, offset=4096)
        if tx == 0:
            instr("mbarrier.init", (bar[0 : +1],), (1,))
            instr("fence.mbarrier_init", (), ())
            instr("mbarrier.arrive.expect_tx", (bar[0 : +1],), (4096,))
            instr("cp.async.bulk.load", (box[0 : +1024], bar[0 : +1]), (A[0 : +1024], 4096))
            instr("mbarrier.try_wait.parity", (), (bar[0 : +1], 0))
            instr("cp.async.bulk.store", (B[0 : +1024],), (box[0 : +1024], 4096))
            instr("cp.reduce.async.bulk.add", (C[0 : +1024],), (box[0 : +1024], 4096))
            instr("cp.async.bulk.commit_group", (), ())
            instr("cp.async.bulk.wait_group", (), (), imm={"count": 0})
""")


def multicast() -> Program:
    """The first block of a cluster of two loads one row for both; each adds the other's rank."""
    return _read("""
@program()
def multicast(A: Global((4, 32), None, float32, align=16), B: Global((4, 32), None, float32, align=16)):
    A_map = make_tensor_map(A, (32, 4), (int64(128),), (32, 1))
    with kernel("multicast", (A_map, B), (4,), (32,), shared=272, cluster=(2,)) as ((bx,), (tx,)):
        row = declare(32, float32, space="shared", align=128, offset=0)
        own = declare(32, float32, space="shared", align=128, offset=128)
        bar = declare(1, uint64, space="shared", align=8, offset=256)
        gate = declare(1, uint64, space="shared", align=8, offset=264)
        (rank,) = instr("cluster.ctarank", (), ())
        (ranks,) = instr("cluster.nctarank", (), ())
        own[tx] = cast(rank + ranks, float32)
        if tx == 0:
            instr("mbarrier.init", (bar[0 : +1],), (1,))
            instr("mbarrier.init", (gate[0 : +1],), (1,))
            instr("fence.mbarrier_init", (), ())
            instr("mbarrier.arrive.expect_tx", (bar[0 : +1],), (128,))
        instr("barrier.cluster.arrive", (), ())
        instr("barrier.cluster.wait", (), ())
        if tx == 0:
            if rank == 0:
                instr("cp.async.bulk.tensor.2d.load.multicast", (row[0 : +32], bar[0 : +1]), (A_map, 0, bx, uint16(3)))
        instr("mbarrier.try_wait.parity", (), (bar[0 : +1], 0))
        (far,) = instr("ld.shared.cluster.b32", (), (own[tx : +1], 1 - rank), var_dtypes=(float32,))
        B[bx * 32 + tx] = row[tx] + far
        if tx == 0:
            instr("mbarrier.arrive.cluster", (gate[0 : +1],), (1 - rank,))
        instr("mbarrier.try_wait.parity.cluster", (), (gate[0 : +1], 0))
        instr("barrier.cluster.arrive", (), ())
        instr("barrier.cluster.wait", (), ())
""")


def grid_sync(blocks: int) -> Program:
    """Each block adds to the total of the one before the barrier, three times over."""
    return _read(f"""
@program()
def grid_sync(A: Global(({blocks},), None, int32, align=16), counter: Global((1,), None, uint32, align=16)):
    with kernel("grid_sync", (A, counter), ({blocks},), (64,), attrs={{"cooperative": True}}) as ((bx,), (tx,)):
        for round in serial(0, 3):
            left: int32 = A[(bx + 1) % {blocks}]
            instr("grid.sync", (counter[0 : +1],), ())
            if tx == 0:
                A[bx] = A[bx] + left
            instr("grid.sync", (counter[0 : +1],), ())
""")


def block_votes() -> Program:
    """Counts and tests a predicate over 96 threads, by named barriers and by one elected lane."""
    return _read("""
@program()
def votes(A: Global((96,), None, int32, align=16), B: Global((96, 4), None, int32, align=16)):
    with kernel("votes", (A, B), (1,), (96,)) as ((bx,), (tx,)):
        (count,) = instr("barrier.red.popc", (), (A[tx] > 0,), imm={"id": 0, "threads": 96})
        (every,) = instr("barrier.red.and", (), (A[tx] > 0,), imm={"id": 1, "threads": 96})
        (some,) = instr("barrier.red.or", (), (A[tx] > 0,), imm={"id": 2, "threads": 96})
        (one,) = instr("elect.sync", (), (), var_dtypes=(bool,))
        instr("bar.warp.sync", (), (), imm={"mask": 4294967295})
        instr("barrier.sync.value", (), (3, 96))
        B[tx * 4] = count
        B[tx * 4 + 1] = every
        B[tx * 4 + 2] = some
        B[tx * 4 + 3] = cast(one, int32)
        instr("fence.acq_rel.gpu", (), ())
        instr("griddepcontrol.launch_dependents", (), ())
        instr("griddepcontrol.wait", (), ())
""")


def contended(dtype: str) -> Program:
    """64 blocks of 128 threads update the same elements: a sum, a maximum and a minimum."""
    return _read(f"""
@program()
def contended(A: Global((8192,), None, {dtype}, align=16), B: Global((3,), None, {dtype}, align=16)):
    with kernel("contended", (A, B), (64,), (128,)) as ((bx,), (tx,)):
        x: {dtype} = A[bx * 128 + tx]
        (o1,) = instr("atomic.add", (B[0 : +1],), (x,), imm={{"order": "relaxed"}}, var_dtypes=({dtype},))
        (o2,) = instr("atomic.max", (B[1 : +1],), (x,), imm={{"order": "acq_rel"}}, var_dtypes=({dtype},))
        (o3,) = instr("atomic.min", (B[2 : +1],), (x,), imm={{"order": "relaxed"}}, var_dtypes=({dtype},))
""")


def asserting() -> Program:
    """Doubles n elements; the assertion holds for elements that are not negative."""
    return _read("""
@program(dynamic={n: int32})
def asserting(A: Global((n,), None, float32, align=16)):
    with kernel("asserting", (A, n), ((n + 63) // 64,), (64,)) as ((bx,), (tx,)):
        i: int32 = bx * 64 + tx
        if i < n:
            assert A[i] >= 0.0, "not negative"
            A[i] = A[i] * 2.0
""")
