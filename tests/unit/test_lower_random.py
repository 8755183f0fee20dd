"""Random numbers of threads after lowering to one thread per block, against the emulator's."""

import numpy as np
import pytest

from emulator_build import I32, TX, add, buf, e, kernel, op, st, var
from lower_build import check_native, lowered, native
from tilelang.dtypes import DType
from tilelang.errors import TileError
from tilelang.ir.expr import Cast, Const, Var
from tilelang.ir.special import RngInit, RngNext
from tilelang.ir.tile import For, If, Parallel, SyncThreads

U64 = DType("uint64")
KINDS = [
    ("bits", "uint32"),
    ("uniform", "float32"),
    ("uniform", "float64"),
    ("normal", "float32"),
    ("normal", "float64"),
]
i, j, k, bx = (var(x) for x in ("i", "j", "k", "bx"))
kinds = pytest.mark.parametrize(("kind", "dtype"), KINDS)


def slack(kind):
    """Normals go through a logarithm, a sine and a cosine."""
    return 1e-6 if kind == "normal" else 0.0


def stream(seed=7, sequence=TX, offset=0):
    return RngInit(e(seed, U64), Cast(sequence, U64), Const(offset, U64))


@kinds
def test_threads_that_draw_apart_and_keep_their_streams_across_barriers(kind, dtype):
    r, C = Var("r", DType(dtype)), buf("C", dtype, 3, 5, 48)
    draw = (RngNext(r, kind), st(C, bx, k, TX, r))
    some = If(op("!=", op("%", TX, 3), op("%", k, 3)), draw, orelse=())
    # The offset is three numbers before the counter's low half wraps.
    body = (stream(Cast(add(bx, 5), U64), TX, 2**64 - 3), For(k, e(0), e(5), (some, SyncThreads())))
    fn = kernel([C], *body, grid=(3,), vars=(bx,), threads=(48,))
    check_native(fn, C=np.zeros((3, 5, 48), DType(dtype).numpy), rtol=slack(kind))


@kinds
def test_iterations_of_a_nest_draw_from_the_threads_in_turn(kind, dtype):
    r, C = Var("r", DType(dtype)), buf("C", dtype, 10, 21)
    some = If(op("<", op("%", add(i, j), 7), 5), (RngNext(r, kind), st(C, i, j, r)), orelse=())
    nest = Parallel((i, j), (e(10), e(21)), (some,))
    fn = kernel([C], stream(offset=1), nest, threads=(32,))
    check_native(fn, C=np.zeros((10, 21), DType(dtype).numpy), rtol=slack(kind))


@kinds
def test_one_thread_draws_all_numbers_of_an_iteration_in_turn(kind, dtype):
    r, s, C = Var("r", DType(dtype)), Var("s", DType(dtype)), buf("C", dtype, 40)
    nest = Parallel((i,), (e(40),), (RngNext(r, kind), RngNext(s, kind), st(C, i, op("-", r, s))))
    fn = kernel([C], stream(sequence=e(3)), nest, threads=(1,))
    check_native(
        fn, C=np.zeros(40, DType(dtype).numpy), rtol=1e2 * slack(kind), atol=10 * slack(kind)
    )


def test_a_number_of_a_thread_without_a_stream_is_an_error():
    r, C = Var("r", DType("uint32")), buf("C", "uint32", 48)
    start = If(op("<", TX, 47), (stream(),), orelse=())
    fn = kernel([C], start, RngNext(r, "bits"), st(C, TX, r), threads=(48,))
    with pytest.raises(TileError, match="that has no generator") as caught:
        native(lowered(fn)).run({"C": np.zeros(48, np.uint32)})
    assert caught.value.diagnostics[0].kind == "uninitialised"


def test_several_draws_of_an_iteration_of_many_threads_are_refused():
    r, s, C = Var("r", DType("uint32")), Var("s", DType("uint32")), buf("C", "uint32", 40)
    nest = Parallel((i,), (e(40),), (RngNext(r, "bits"), RngNext(s, "bits"), st(C, i, s)))
    with pytest.raises(TileError, match="draws several numbers an iteration") as caught:
        lowered(kernel([C], stream(), nest, threads=(32,)))
    assert caught.value.diagnostics[0].kind == "target"


def test_a_stream_is_not_started_by_an_iteration():
    C = buf("C", I32, 4)
    nest = Parallel((i,), (e(4),), (stream(sequence=i), st(C, i, i)))
    with pytest.raises(TileError, match="rng_init inside"):
        lowered(kernel([C], nest, threads=(32,)))
