"""Lets a program that asks for an Ascend NPU run where there is none.

What enters: nothing. What leaves: `torch` with a `torch.npu` that answers as on a machine with one
910B, tensors with `.npu()`, and a mode in which every device named `npu` is the CPU. Operators of
torch_npu are those of npuless_operators.py: a program that asks for another says which.
"""

from __future__ import annotations

import importlib.machinery
import sys
import types
from typing import Any

import torch
from npuless_graph import NpuGraph, graph
from npuless_operators import OPERATORS
from torch.overrides import TorchFunctionMode

CUBE_CORES, VECTOR_CORES = 24, 48


def _on_cpu(x: Any) -> Any:
    """`x` with every NPU in it replaced by the CPU."""
    if isinstance(x, torch.device):
        return torch.device("cpu") if x.type == "npu" else x
    if isinstance(x, str) and (x == "npu" or x.startswith("npu:")):
        return "cpu"
    if type(x) in (tuple, list):
        return type(x)(_on_cpu(v) for v in x)
    return x


_ELEMENTS = frozenset({torch.Tensor.__getitem__, torch.Tensor.__setitem__, torch.Tensor.item})


def _apart(args: Any) -> Any:
    """Arguments of an assignment whose value may be a part of what is assigned to: an NPU copies
    it all the same, a CPU refuses.
    """
    if len(args) == 3 and isinstance(args[2], torch.Tensor):
        to, value = args[0].untyped_storage(), args[2].untyped_storage()
        if to.data_ptr() == value.data_ptr():
            return (*args[:2], args[2].clone())
    return args


_PRODUCTS = frozenset({"matmul", "__matmul__", "mm", "bmm", "einsum", "linear"})
_HALVES = frozenset({torch.float16, torch.bfloat16})


def _summed_wide(func: Any, args: Any, given: Any) -> Any:
    """A product of halves, summed in float32 and rounded once, as an NPU does it (and 80 times
    faster than a CPU that sums halves); None for another call.
    """
    if getattr(func, "__name__", "") not in _PRODUCTS:
        return None
    flat = [x for a in args for x in (a if isinstance(a, (list, tuple)) else [a])]
    dtypes = {x.dtype for x in flat if isinstance(x, torch.Tensor)}
    if len(dtypes) != 1 or not dtypes <= _HALVES or "out" in given:
        return None

    def wide(x: Any) -> Any:
        if isinstance(x, (list, tuple)):
            return type(x)(map(wide, x))
        return x.float() if isinstance(x, torch.Tensor) else x

    return func(*wide(tuple(args)), **given).to(*dtypes)


class NpuIsCpu(TorchFunctionMode):
    """Carries out every torch call that names an NPU on the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _ELEMENTS and NpuGraph.capturing is None:
            return func(*_apart(args))  # in loops over elements, of references
        moved = {k: _on_cpu(v) for k, v in (kwargs or {}).items()}
        args = _on_cpu(tuple(args))
        if func is torch.nn.functional.cross_entropy and args[1].dtype == torch.int32:
            args = (args[0], args[1].long(), *args[2:])  # an NPU takes either for a class
        made = _summed_wide(func, args, moved)
        made = func(*args, **moved) if made is None else made
        NpuGraph.note(func, args, made)
        return made


class _Event:
    def __init__(self, *_: Any, **__: Any) -> None: ...

    def record(self, *_: Any) -> None: ...

    def synchronize(self) -> None: ...

    def elapsed_time(self, _: Any) -> float:
        return 1.0


class _Stream:
    npu_stream = 0

    def synchronize(self) -> None: ...


class NpuModule(types.ModuleType):
    """`torch.npu` and `torch_npu`: what a machine answers; an operator is an error that names it.

    The error is that of a package which is not installed, for that is what the program lacks.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("npu_"):
            raise ModuleNotFoundError(f"torch_npu has the operator {name}", name="torch_npu")
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


def pretend_npu() -> None:
    """Make torch answer as on a machine with one NPU."""
    properties = types.SimpleNamespace(
        name="Ascend910B1",
        cube_core_num=CUBE_CORES,
        vector_core_num=VECTOR_CORES,
        total_memory=64 << 30,
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
        "get_device_name": lambda *_: properties.name,
        "get_device_properties": lambda *_: properties,
        "Event": _Event,
        "current_stream": lambda *_: _Stream(),
        "config": types.SimpleNamespace(allow_internal_format=True),
        "NPUGraph": NpuGraph,
        "graph": graph,
    }
    module, package = NpuModule("torch.npu"), NpuModule("torch_npu")
    for each in (module, package):
        each.__dict__.update(answers)
        each.__spec__ = importlib.machinery.ModuleSpec(each.__name__, None)
        each.__file__ = "torch_npu (npuless)"
        each.__dict__.update(OPERATORS)
    package.__dict__["npu"] = module
    sys.modules["torch.npu"], sys.modules["torch_npu"] = module, package
    torch.npu = module  # pyright: ignore[reportAttributeAccessIssue]
    torch.Tensor.npu = lambda self, *_, **__: self  # pyright: ignore[reportAttributeAccessIssue]
    torch.Tensor.is_npu = True  # pyright: ignore[reportAttributeAccessIssue]
    torch.nn.Module.npu = lambda self, *_, **__: self  # pyright: ignore[reportAttributeAccessIssue]
    for name, operator in OPERATORS.items():
        setattr(torch.ops.npu, name, operator)
    _rename_device()


def _rename_device() -> None:
    """Let torch know a device named `npu`, so that `torch.device("npu")` can be written; tensors
    on it never exist.
    """
    torch.utils.rename_privateuse1_backend("npu")  # pyright: ignore[reportPrivateImportUsage]
    set_default = torch.set_default_device
    torch.set_default_device = lambda device: set_default(_on_cpu(device))
