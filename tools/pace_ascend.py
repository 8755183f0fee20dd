"""How long the in-order model of an Ascend chip takes: processor time per instruction.

What enters: nothing. What leaves: one line for each of five kernels, the least of several calls:
rows that are gathered one by one, a running sum by the scalar unit, a softmax of tiles, products of
tiles, and rows that 64 blocks scale, with the blocks at once and one after the other.

    python tools/pace_ascend.py
"""
# pyright: reportInvalidTypeForm=false

from __future__ import annotations

import time
from typing import Any

import numpy as np

import tilelang
import tilelang.language as T

CALLS = 25
TARGET = "simulate:ascend910b"


@T.prim_func
def gather(
    Rows: T.Tensor((64,), "int32"),
    A: T.Tensor((64, 512), "float16"),
    C: T.Tensor((64, 512), "float16"),
) -> None:
    """A copy in and a copy out for each row, with flags by hand."""
    with T.Kernel(1, is_npu=True) as (_, vid), T.Scope("V"):
        u, v = T.alloc_ub((1, 512), "float16"), T.alloc_ub((64,), "int32")
        if vid == 0:
            T.copy(Rows, v)
            T.barrier_all()
            for _r in T.serial(10):
                for k in T.serial(64):
                    T.set_flag("MTE3", "MTE2", 0)
                    T.wait_flag("MTE3", "MTE2", 0)
                    T.copy(A[v[k], :], u[0, :])
                    T.set_flag("MTE2", "MTE3", 0)
                    T.wait_flag("MTE2", "MTE3", 0)
                    T.copy(u[0, :], C[k, :])


@T.prim_func
def running_sum(A: T.Tensor((2048,), "float32"), C: T.Tensor((2048,), "float32")) -> None:
    """Single elements of UB."""
    with T.Kernel(1, is_npu=True) as (_, vid), T.Scope("V"):
        u = T.alloc_ub((2048,), "float32")
        if vid == 0:
            T.copy(A, u)
            T.barrier_all()
            for k in T.serial(2047):
                u[k + 1] = u[k + 1] + u[k]
            T.barrier_all()
            T.copy(u, C)


@T.prim_func
def softmax(A: T.Tensor((20, 64, 128), "float16"), C: T.Tensor((20, 64, 128), "float16")) -> None:
    """Vector operations on tiles of 64 x 128."""
    with T.Kernel(1, is_npu=True) as (_, vid), T.Scope("V"):
        half = T.alloc_ub((64, 128), "float16")
        x, wide = T.alloc_ub((64, 128), "float32"), T.alloc_ub((64, 128), "float32")
        top = T.alloc_ub((64, 1), "float32")
        if vid == 0:
            for k in T.serial(20):
                T.copy(A[k, :, :], half)
                T.copy(half, x)
                T.reduce_max(x, top, dim=-1)
                T.tile.broadcast(wide, top)
                T.tile.sub(x, x, wide)
                T.tile.exp(x, x)
                T.reduce_sum(x, top, dim=-1)
                T.tile.broadcast(wide, top)
                T.tile.div(x, x, wide)
                T.copy(x, half)
                T.copy(half, C[k, :, :])


@T.prim_func
def products(
    A: T.Tensor((128, 1024), "float16"),
    B: T.Tensor((1024, 128), "float16"),
    C: T.Tensor((128, 128), "float32"),
) -> None:
    """Products of 128 x 128 x 128."""
    with T.Kernel(1, is_npu=True) as (_, _vid), T.Scope("C"):
        a, b = T.alloc_L1((128, 128), "float16"), T.alloc_L1((128, 128), "float16")
        c = T.alloc_L0C((128, 128), "float32")
        for k in T.serial(8):
            T.copy(A[:, k * 128 : k * 128 + 128], a)
            T.copy(B[k * 128 : k * 128 + 128, :], b)
            T.gemm_v0(a, b, c, init=(k == 0))
        T.copy(c, C)


@T.prim_func
def scaled(
    A: T.Tensor((64, 32, 512), "float32"),
    S: T.Tensor((64, 32), "float32"),
    C: T.Tensor((64, 32, 512), "float32"),
) -> None:
    """Rows of 64 blocks, each by a scalar of its own."""
    with T.Kernel(64, is_npu=True) as (bx, vid), T.Scope("V"):
        u, s = T.alloc_ub((32, 512), "float32"), T.alloc_ub((32, 1), "float32")
        if vid == 0:
            T.copy(A[bx, :, :], u)
            T.copy(S[bx, :], s[:, 0])
            for k in T.serial(32):
                T.tile.mul(u[k, :], u[k, :], s[k, 0])
            T.copy(u, C[bx, :, :])


def seconds(kernel: Any, given: list[Any], lanes: int | None) -> tuple[float, int]:
    """The least time of a call, with so many blocks at once, and the instructions of one."""
    configs = {"tl.ascend_auto_sync": True}
    made: Any = tilelang.compile(kernel, target=TARGET, pass_configs=configs)
    program = made._program.program
    for text in program.module.kernels:
        text.lanes = text.lanes if lanes is None else lanes
    names = [p.name for p in kernel.ir.params]
    args = dict(zip(names, given, strict=True))
    program.run(args)
    issued, best = sum(program.counts.by_pipe.values()), float("inf")
    for _ in range(CALLS):
        began = time.process_time()
        program.run(args)
        best = min(best, time.process_time() - began)
    return best, issued


def main() -> None:
    """Time each kernel."""
    rng = np.random.default_rng(0)

    def floats(*shape: int, dtype: str = "float16") -> Any:
        return rng.standard_normal(shape).astype(dtype)

    rows = rng.permutation(64).astype(np.int32)
    cases = [
        (gather, [rows, floats(64, 512), floats(64, 512)], "row", 640),
        (running_sum, [floats(2048, dtype="float32") for _ in range(2)], "element", 2047),
        (softmax, [floats(20, 64, 128), floats(20, 64, 128)], "tile", 20),
        (
            products,
            [floats(128, 1024), floats(1024, 128), floats(128, 128, dtype="float32")],
            "product",
            8,
        ),
    ]
    rows_of_blocks = [floats(64, 32, n, dtype="float32") for n in (512, 1, 512)]
    rows_of_blocks[1] = rows_of_blocks[1][:, :, 0].copy()
    blocks = [(scaled, rows_of_blocks, "row", 2048, lanes) for lanes in (0, None)]
    for kernel, given, what, count, lanes in [*((*c, None) for c in cases), *blocks]:
        took, issued = seconds(kernel, given, lanes)
        print(f"{kernel.__name__:12} {took / count * 1e6:8.1f} us a {what}, {issued} instructions")


if __name__ == "__main__":
    main()
