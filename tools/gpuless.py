"""Lets a program that asks for a GPU run where there is none.

What enters: nothing. What leaves: `torch` that answers as on a machine with one GPU of a given
compute capability, and a mode in which every device named `cuda` is the CPU. It knows no kernel
language, so that programs of either package can run under it.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import types
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

# What a program may ask of the device: name and streaming multiprocessors by compute capability.
_DEVICES = {
    (8, 0): ("NVIDIA A100", 108),
    (9, 0): ("NVIDIA H100", 132),
    (10, 0): ("NVIDIA B200", 148),
    (12, 0): ("NVIDIA GeForce RTX 5090", 170),
}


def capability(chip: str) -> tuple[int, int]:
    """The compute capability of a chip: (9, 0) for sm_90a."""
    return divmod(int("".join(c for c in chip if c.isdigit())), 10)


def processors(chip: str) -> int:
    """The streaming multiprocessors of the device that stands for a chip."""
    return _DEVICES[capability(chip)][1]


def _on_cpu(x: Any) -> Any:
    """`x` with every CUDA device in it replaced by the CPU."""
    if isinstance(x, torch.device):
        return torch.device("cpu") if x.type == "cuda" else x
    if isinstance(x, str) and (x == "cuda" or x.startswith("cuda:")):
        return "cpu"
    if isinstance(x, (tuple, list)) and not isinstance(x, torch.Size):
        return type(x)(_on_cpu(v) for v in x) if type(x) in (tuple, list) else x
    return x


class CudaIsCpu(TorchFunctionMode):
    """Carries out every torch call that names a CUDA device on the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.cuda:
            return args[0]
        if func is torch.Tensor.is_cuda.__get__:  # pyright: ignore[reportAttributeAccessIssue]
            return True
        if func is torch.device and args and isinstance(args[0], int):  # the number of a GPU
            return torch.device("cpu")
        moved = {k: _on_cpu(v) for k, v in (kwargs or {}).items()}
        return func(*_on_cpu(tuple(args)), **moved)


class _Event:
    def __init__(self, *_: Any, **__: Any) -> None: ...

    def record(self, *_: Any) -> None: ...

    def synchronize(self) -> None: ...

    def elapsed_time(self, _: Any) -> float:
        return 1.0


class _Stream:
    cuda_stream = 0

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def synchronize(self) -> None: ...

    def wait_stream(self, *_: Any) -> None: ...


class _Generator(torch.Generator):
    def __new__(cls, *_: Any, **__: Any) -> Any:
        """A generator on the CPU, whatever device is asked for."""
        return super().__new__(cls)


class _Context(contextlib.nullcontext[None]):
    def __init__(self, *_: Any) -> None:
        super().__init__(None)


def pretend_gpu(version: tuple[int, int] = (9, 0)) -> None:
    """Make `torch.cuda` answer as on a machine with one GPU of this compute capability."""
    name, count = _DEVICES[version]
    major, minor = version
    properties = types.SimpleNamespace(
        name=name,
        major=major,
        minor=minor,
        multi_processor_count=count,
        total_memory=80 << 30,
        L2_cache_size=50 << 20,
        shared_memory_per_block_optin=232448,
    )
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda *_: None,
        "synchronize": lambda *_: None,
        "empty_cache": lambda: None,
        "manual_seed": lambda *_: None,
        "manual_seed_all": lambda *_: None,
        "get_device_capability": lambda *_: version,
        "get_device_properties": lambda *_: properties,
        "get_device_name": lambda *_: name,
        "is_bf16_supported": lambda *_: True,
        "Event": _Event,
        "init": lambda: None,
        "current_stream": lambda *_: _Stream(),
        "Stream": _Stream,
        "stream": _Context,
        "device": _Context,
        "_exchange_device": lambda _: 0,
        "_maybe_exchange_device": lambda _: 0,
    }
    for key, answer in answers.items():
        setattr(torch.cuda, key, answer)
    torch.Generator = _Generator  # pyright: ignore[reportAttributeAccessIssue]


def silence_triton() -> None:
    """Let kernels of Triton, which references use, do nothing: there is nothing to run them on."""
    try:
        runtime = importlib.import_module("triton.runtime.jit")
    except ImportError:
        return
    tuner = importlib.import_module("triton.runtime.autotuner")
    for owner in (runtime.JITFunction, tuner.Autotuner, tuner.Heuristics):
        owner.run = lambda *_, **__: None


def accept_all() -> None:
    """Let every comparison of tensors by torch hold."""
    torch.testing.assert_close = lambda *_, **__: None
    torch.allclose = lambda *_, **__: True  # pyright: ignore[reportAttributeAccessIssue]


class NoAsserts(ast.NodeTransformer):
    """Drops the assertions of a program."""

    def visit_Assert(self, node: ast.Assert) -> Any:
        """`assert x` becomes `pass`."""
        return ast.copy_location(ast.Pass(), node)
