"""Products of warpgroups that run under what follows them."""

import numpy as np
import pytest

import tilelang.language as T
from gpu_build import check_gpu, gpu_program, simulate
from tilelang.errors import TileError
from tilelang.ir.thread import Instr

RANDOM = np.random.default_rng(7)
ROWS, DEPTH = 64, 64


def attention(keys, columns, *, causal=False, threads=128, between=0):
    """Attention of 2 x `ROWS` queries over `keys` keys; `between` is what the round still does
    after its last product.
    """
    rows = ROWS * threads // 128
    queries = 2 * rows

    @T.prim_func
    def kernel(
        Q: T.Tensor((queries, DEPTH), "float16"),
        K: T.Tensor((keys, DEPTH), "float16"),
        V: T.Tensor((keys, DEPTH), "float16"),
        O: T.Tensor((queries, DEPTH), "float16"),
    ):
        with T.Kernel(2, threads=threads) as bx:
            q = T.alloc_shared((rows, DEPTH), "float16")
            k = T.alloc_shared((columns, DEPTH), "float16")
            v = T.alloc_shared((columns, DEPTH), "float16")
            s = T.alloc_fragment((rows, columns), "float32")
            p = T.alloc_fragment((rows, columns), "float16")
            o = T.alloc_fragment((rows, DEPTH), "float32")
            top = T.alloc_fragment((rows,), "float32")
            before = T.alloc_fragment((rows,), "float32")
            part = T.alloc_fragment((rows,), "float32")
            total = T.alloc_fragment((rows,), "float32")
            T.copy(Q[bx * rows, 0], q)
            T.clear(o)
            T.clear(total)
            T.fill(top, -T.infinity("float32"))
            last = T.ceildiv(bx * keys, columns) if causal else T.ceildiv(keys, columns)
            for step in T.Pipelined(last, num_stages=2):
                T.copy(K[step * columns, 0], k)
                for i, j in T.Parallel(rows, columns):
                    seen = step * columns + j < keys
                    s[i, j] = T.if_then_else(seen, 0, -T.infinity("float32"))
                T.gemm(q, k, s, transpose_B=True)
                T.copy(top, before)
                T.reduce_max(s, top, dim=1, clear=False)
                for i, j in T.Parallel(rows, columns):
                    s[i, j] = T.exp2((s[i, j] - top[i]) * 0.2)
                T.reduce_sum(s, part, dim=1)
                for i in T.Parallel(rows):
                    total[i] = total[i] * T.exp2((before[i] - top[i]) * 0.2) + part[i]
                for i, j in T.Parallel(rows, DEPTH):
                    o[i, j] *= T.exp2((before[i] - top[i]) * 0.2)
                T.copy(s, p)
                T.copy(V[step * columns, 0], v)
                T.gemm(p, v, o)
                if between:
                    for i in T.Parallel(rows):
                        total[i] += between
            for i, j in T.Parallel(rows, DEPTH):
                O[bx * rows + i, j] = o[i, j] / T.max(total[i], 1.0)

    return kernel, queries, keys


def arrays(queries, keys):
    """Arguments of `attention`."""
    q = RANDOM.normal(size=(queries, DEPTH)).astype(np.float16)
    k, v = (RANDOM.normal(size=(keys, DEPTH)).astype(np.float16) for _ in range(2))
    return {"Q": q, "K": k, "V": v, "O": np.zeros((queries, DEPTH), np.float16)}


def kinds(program) -> list[str]:
    """The kinds of notes."""
    return [note[0] for note in dict(program.attrs)["notes"]]


@pytest.mark.parametrize("keys", [1, 64, 100, 192, 320])
def test_any_number_of_rounds(keys):
    kernel, *sizes = attention(keys, 64)
    program = check_gpu(kernel, rtol=2e-2, atol=2e-3, **arrays(*sizes))
    assert "overlapped" in kinds(program)


@pytest.mark.parametrize(("keys", "threads"), [(64, 128), (160, 256)])
def test_a_number_of_rounds_that_blocks_differ_in_and_that_may_be_zero(keys, threads):
    kernel, *sizes = attention(keys, 32, causal=True, threads=threads)
    program = check_gpu(kernel, rtol=2e-2, atol=2e-3, **arrays(*sizes))
    assert "overlapped" in kinds(program)


def test_a_round_that_goes_on_after_its_last_product_keeps_it():
    kernel, *sizes = attention(128, 64, between=1)
    program = check_gpu(kernel, rtol=2e-2, atol=2e-3, **arrays(*sizes))
    assert "overlapped" not in kinds(program)
    assert any("goes on after its last product" in n[1] for n in dict(program.attrs)["notes"])


def test_products_that_need_too_many_registers_do_not_overlap():
    kernel, *_ = attention(256, 192, threads=384)
    assert "overlapped" not in kinds(gpu_program(kernel.ir))


@pytest.mark.parametrize("count", [0, 1])
def test_a_wait_that_is_missing_is_seen(count):
    kernel, *sizes = attention(192, 64)
    program = gpu_program(kernel.ir)

    def one(node):
        wait = isinstance(node, Instr) and node.row == "wgmma.wait_group"
        return () if wait and dict(node.imm)["count"] == count else None

    simulate(program, arrays(*sizes))
    with pytest.raises(TileError, match="while wgmma"):
        simulate(program.rewrite(one), arrays(*sizes))
