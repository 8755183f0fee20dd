"""A reducer that is opened is finalized."""

import pytest

import tilelang
import tilelang.language as T
from tilelang.errors import TileError


def kernel(finalize: bool):
    @T.prim_func
    def sums(A: T.Tensor((40,), "float32"), B: T.Tensor((1,), "float32")):
        with T.Kernel(1, threads=64):
            src = T.alloc_fragment((40,), "float32")
            T.copy(A, src)
            acc = T.alloc_reducer((1,), "float32", op="sum")
            T.reducer_init(acc)
            for i in T.Parallel(40):
                T.reducer_update(acc[0], src[i])
            out = T.alloc_fragment((1,), "float32")
            T.clear(out)
            if finalize:
                T.finalize_reducer(acc, out)
            T.copy(out, B)

    return sums


@pytest.mark.parametrize("target", ["emulate", "cpu", "cuda:sm_90a", "simulate:sm_90a"])
def test_a_reducer_that_is_never_finalized_is_refused_on_every_target(target):
    with pytest.raises(TileError) as caught:
        tilelang.compile(kernel(finalize=False), target=target)
    said = str(caught.value)
    assert "error[syntax]: the reducer acc is never finalized" in said
    assert "T.reducer_init(acc)" in said
    assert "expected: T.finalize_reducer(acc, dst) after its updates" in said


def test_a_reducer_that_is_finalized_is_accepted():
    assert tilelang.check(kernel(finalize=True), "emulate") == []
