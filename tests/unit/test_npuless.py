"""The operators and graphs that `torch.npu` has where there is no NPU."""

import numpy as np
import pytest
import torch
from npuless import NpuIsCpu
from npuless_graph import NpuGraph, computes, graph
from npuless_operators import (
    npu_gelu_backward,
    npu_moe_token_permute,
    npu_moe_token_unpermute,
    npu_swiglu,
    npu_swiglu_backward,
)

import tilelang
import tilelang.language as T


@pytest.mark.parametrize("size", [0, 1, 24, 127])
def test_tokens_permuted_and_put_back_are_the_tokens_times_their_copies(size):
    tokens = torch.randn(size, 5)
    experts = torch.randint(0, 3, (size, 4), dtype=torch.int32)
    permuted, places = npu_moe_token_permute(tokens, experts)
    order = np.argsort(experts.numpy().ravel(), kind="stable")
    np.testing.assert_array_equal(permuted, tokens.numpy()[order // 4])
    back = npu_moe_token_unpermute(permuted, places, torch.ones(size, 4))
    torch.testing.assert_close(back, 4 * tokens)
    clipped, _ = npu_moe_token_permute(tokens, experts, num_out_tokens=3)
    np.testing.assert_array_equal(clipped, permuted[:3])


@pytest.mark.parametrize("dim", [0, -1])
def test_the_gradients_are_those_of_finite_differences(dim):
    x, dx = torch.randn(6, 8, dtype=torch.float64), torch.randn(6, 8, dtype=torch.float64)
    for function, backward in (
        (lambda v: npu_swiglu(v, dim), lambda g: npu_swiglu_backward(g, x, dim)),
        (torch.nn.functional.gelu, lambda g: npu_gelu_backward(g, x)),
    ):
        grad = torch.randn_like(function(x))
        found = (backward(grad) * dx).sum()
        step = 1e-3
        wanted = ((function(x + step * dx) - function(x - step * dx)) * grad).sum() / (2 * step)
        assert abs(found - wanted) < 1e-2 * (1 + abs(wanted))


def doubled(n):
    @T.prim_func
    def kernel(A: T.Tensor((n,), "float"), B: T.Tensor((n,), "float")):
        with T.Kernel(1, is_npu=True) as (_cid, _vid):
            a = T.alloc_ub((n,), "float")
            T.copy(A, a)
            T.barrier_all()
            T.tile.add(a, a, a)
            T.barrier_all()
            T.copy(a, B)

    return tilelang.compile(kernel, target="auto", pass_configs={"tl.ascend_auto_cv_combine": True})


def test_a_replay_launches_again_on_the_memory_of_the_capture():
    kernel = doubled(24)
    a, b = torch.arange(24.0), torch.zeros(24)
    made = NpuGraph()
    with graph(made):
        kernel(a, b)
    a += 1
    assert torch.equal(b, torch.arange(24.0) * 2)
    made.replay()
    assert torch.equal(b, torch.arange(24.0) * 2 + 2)


def test_a_graph_with_work_of_torch_is_not_replayed():
    x = torch.zeros(3)
    assert not computes(torch.Tensor.view, (x,), x.view(3, 1))
    assert computes(torch.add, (x, x), x + x)
    made = NpuGraph()
    with graph(made):
        NpuGraph.note(torch.add, (x, x), x + x)
    with pytest.raises(NotImplementedError, match="work of torch: add"):
        made.replay()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_products_of_halves_are_summed_in_float32_and_rounded_once(dtype):
    a, b = torch.randn(2, 40, 1000).to(dtype), torch.randn(1000, 24).to(dtype)
    wanted = (a.float() @ b.float()).to(dtype)
    with NpuIsCpu():
        found = [
            a @ b,
            torch.matmul(a, b),
            torch.einsum("bij,jk->bik", a, b),
            torch.nn.functional.linear(a, b.T),
        ]
        assert (a.float() @ b.float()).dtype == torch.float32
    for each in found:
        assert torch.equal(each, wanted)
