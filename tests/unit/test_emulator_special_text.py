"""Every node of vectors, reducers, random numbers and the special products prints and reads back,
is what the specification of the stage allows, and runs as before.
"""

from __future__ import annotations

import numpy as np
import pytest

from emulator_build import BOOL, F16, F32, TX, buf, kernel, ld, op, reg, st, var
from tilelang.dtypes import DType
from tilelang.emulator import translate
from tilelang.ir import special
from tilelang.ir.expr import (
    AddressOf,
    Binary,
    BinaryOp,
    Bitcast,
    Cast,
    Const,
    Lane,
    LoadVector,
    Pack,
)
from tilelang.ir.read import read_function
from tilelang.ir.special import (
    GemmBlockScaled,
    GemmSparse,
    Im2col,
    MakeTensor,
    Quantifier,
    ReducerFinalize,
    ReducerInit,
    ReducerUpdate,
    RngInit,
    RngNext,
)
from tilelang.ir.text import print_function
from tilelang.ir.tile import Alloc, Let, Parallel, ReduceOp, StoreVector
from tilelang.ir.verify import verify

I32, U32, F8 = DType("int32"), DType("uint32"), DType("float8_e4m3fn")
V2 = DType("float16x2")
i = var("i")
A, C = buf("A", F16, 8), buf("C", F16, 8)
S = buf("S", "uint64", 8)
X, Y, Z = buf("X", F8, 4, 32), buf("Y", F8, 32, 4), buf("Z", F32, 4, 4)
SX, SY = buf("SX", "uint32", 4, 1), buf("SY", "uint32", 4, 1)
D, E = buf("D", F8, 4, 16), buf("E", "uint8", 4, 4)
IMAGE, COL = buf("IMAGE", F16, 1, 4, 4, 2), buf("COL", F16, 16, 18)
TENSOR = buf("TENSOR", F16, 8)
ACC, RES = buf("acc", F32, 2, scope="local.reducer"), buf("res", F32, 2, scope="local.fragment")


def c(n: int) -> Const:
    return Const(n, I32)


TWO = LoadVector(A, (c(2),), V2)
v = var("v", V2)
r, held = var("r", F32), var("held", BOOL)
PROGRAMS = {
    "load_vector": ([A, C], StoreVector(C, (c(0),), TWO)),
    "predicate": (
        [A, C],
        StoreVector(
            C,
            (c(0),),
            LoadVector(A, (c(2),), V2, pred=op("<", TX, 3)),
            pred=op("==", TX, 0),
        ),
    ),
    "pack": ([A, C], StoreVector(C, (c(4),), Pack((ld(A, 1), ld(A, 0)), V2))),
    "lane": ([A, C], Let(v, TWO), st(C, 0, Lane(v, 1)), st(C, 1, Lane(v, 0))),
    "vector arithmetic": ([A, C], StoreVector(C, (c(0),), Binary(BinaryOp.MAX, TWO, TWO))),
    "bitcast": ([A, C], StoreVector(C, (c(6),), Bitcast(Bitcast(TWO, U32), V2))),
    "address_of": ([A, S], st(S, 3, Cast(AddressOf(A, (c(5),)), DType("uint64")))),
    "make_tensor": (
        [A, C],
        MakeTensor(TENSOR, AddressOf(A, (c(0),))),
        st(C, 2, ld(TENSOR, 3)),
    ),
    "reducer": (
        [Z],
        Alloc(ACC),
        Alloc(RES),
        ReducerInit(ACC, ReduceOp.MAX, init=Const(-2.0, F32)),
        Parallel((i,), (c(2),), (ReducerUpdate(ACC, (i,), ld(Z, 1, i), ReduceOp.MAX),)),
        ReducerFinalize(ACC, reg(RES), ReduceOp.MAX),
        st(Z, 0, 0, ld(RES, 1)),
    ),
    "im2col": ([IMAGE, COL], Im2col(reg(IMAGE), reg(COL), c(0), c(0), 3, 1, 1, 1)),
    "gemm_sparse": (
        [D, E, Y, Z],
        GemmSparse(reg(D), reg(E), reg(Y), reg(Z), Const(True, BOOL)),
    ),
    "gemm_block_scaled": (
        [X, Y, Z, SX, SY],
        GemmBlockScaled(
            reg(X), reg(Y), reg(Z), reg(SX), reg(SY), Const(True, BOOL), c(32), 32, 32, policy=1
        ),
    ),
    "test_elements": (
        [A, C],
        special.TestElements(Quantifier.ALL, reg(A, 1, ext=(3,)), held),
        st(C, 0, Cast(held, F16)),
    ),
    "random": (
        [Z],
        RngInit(c(42), c(1), c(2)),
        RngNext(r, "normal"),
        st(Z, 3, 3, r),
    ),
}


def arguments(names) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    out: dict[str, np.ndarray] = {}
    for b in names:
        shape = tuple(n.value for n in b.shape)
        out[b.name] = rng.integers(0, 100, shape).astype(b.dtype.numpy)
    return out


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_prints_reads_back_and_runs(name):
    params, *body = PROGRAMS[name]
    fn = kernel(params, *body, threads=(4,) if name == "predicate" else (1,))
    text = print_function(fn)
    again = read_function(text)
    assert again == fn
    assert print_function(again) == text
    verify(fn)
    first, second = arguments(params), arguments(params)
    translate(fn).run(first)
    translate(again).run(second)
    for key, x in first.items():
        if name != "address_of" or key != "S":
            assert x.tobytes() == second[key].tobytes()
