"""Operators of torch_npu that programs compare with, as functions of plain torch.

What enters: tensors on the CPU. What leaves: what the operator's public description says (CANN
operator library: aclnnGeluBackward, aclnnSwiGlu, aclnnSwiGluGrad, aclnnMoeTokenPermute,
aclnnMoeTokenUnpermute), computed in float32 and rounded once. They are references of a program's
own checks; no kernel runs here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def npu_gelu_backward(grad: Any, x: Any, *, approximate: str = "none") -> Any:
    """The gradient of GELU at `x`."""
    wide = torch.ops.aten.gelu_backward(grad.float(), x.float(), approximate=approximate)
    return wide.to(x.dtype)


def npu_swiglu(x: Any, dim: int = -1) -> Any:
    """SiLU of the first half of axis `dim`, times the second half."""
    gate, value = x.float().chunk(2, dim)
    return (torch.nn.functional.silu(gate) * value).to(x.dtype)


def npu_swiglu_backward(grad: Any, x: Any, dim: int = -1) -> Any:
    """The gradient of `npu_swiglu` at `x`."""
    at = x.detach().float().requires_grad_()
    with torch.enable_grad():
        out = npu_swiglu(at, dim)
    (found,) = torch.autograd.grad(out, at, grad.float())
    return found.to(x.dtype)


def npu_moe_token_permute(
    tokens: Any, indices: Any, num_out_tokens: int | None = None, padded_mode: bool = False
) -> tuple[Any, Any]:
    """Tokens in the order of their experts, and where each copy of a token went."""
    if padded_mode:
        raise NotImplementedError("npu_moe_token_permute with padded_mode")
    copies = indices.shape[1] if indices.dim() > 1 else 1
    order = torch.argsort(indices.reshape(-1), stable=True)
    places = torch.argsort(order, stable=True).to(torch.int32)
    kept = order if not num_out_tokens else order[:num_out_tokens]
    return tokens.index_select(0, kept // copies), places


def npu_moe_token_unpermute(
    permuted: Any,
    places: Any,
    probs: Any = None,
    padded_mode: bool = False,
    restore_shape: Any = None,
) -> Any:
    """The copies of each token, times `probs`, added up."""
    if padded_mode:
        raise NotImplementedError("npu_moe_token_unpermute with padded_mode")
    del restore_shape  # has a meaning in padded mode only
    copies = probs.shape[1] if probs is not None else 1
    found = permuted.float().index_select(0, places.long()).reshape(-1, copies, permuted.shape[-1])
    if probs is not None:
        found = found * probs.float().unsqueeze(-1)
    return found.sum(1).to(permuted.dtype)


OPERATORS: dict[str, Callable[..., Any]] = {
    fn.__name__: fn
    for fn in (
        npu_gelu_backward,
        npu_swiglu,
        npu_swiglu_backward,
        npu_moe_token_permute,
        npu_moe_token_unpermute,
    )
}
