"""`tilelang.utils.tensor`: comparing tensors of torch, and making ones to run a kernel on.

torch is imported when a function is called.
"""

from __future__ import annotations

import enum
import importlib
from collections.abc import Callable
from typing import Any

from tilelang.dtypes import DType, cast, dtype
from tilelang.errors import TileValueError, error
from tilelang.runtime.arrays import pack_rows, packed_type


class TensorSupplyType(enum.Enum):
    """What a made tensor holds."""

    Integer = 1
    Uniform = 2
    Normal = 3
    Randn = 4
    Zero = 5
    One = 6
    Auto = 7


def map_torch_type(name: Any) -> Any:
    """The torch dtype of an element type. TypeError where torch has none."""
    return DType(dtype(name)).as_torch()


def _integers(torch: Any, element: DType, shape: list[int]) -> Any:
    """Small integers: what `Integer` means, of each kind of type."""
    if element.is_float8:
        return torch.randint(-128, 128, shape, dtype=torch.int8)
    if element.is_float4_e2m1_unpacked():
        return torch.randint(0, 16, shape)
    low, high = {"bool": (0, 2), "uint": (0, 3)}.get(element.kind, (-2, 3))
    return torch.randint(low, high, shape)


def _packed(torch: Any, element: DType, numbers: Any) -> Any:
    """Numbers as elements of fewer than 8 bits, in the bytes in which torch has these."""
    words = cast(numbers.to(torch.float32).numpy(), DType("float32"), element.base)
    raw = torch.from_numpy(pack_rows(words, element.base))
    return raw.view(packed_type(element, "torch").as_torch())


def _usual_device(torch: Any) -> str:
    """Where kernels of the default target take their tensors."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def get_tensor_supply(
    supply_type: TensorSupplyType = TensorSupplyType.Integer, device: Any = None
) -> Callable[[Any], Any]:
    """A function that makes a torch tensor for a parameter with `shape` and `dtype`, on a device:
    without one the GPU if torch has one, else the CPU.

    ValueError for a shape that is not all ints. `Auto` is uniform in (-1, 1) for float16, bfloat16
    and float32, and `Integer` for other types.
    """

    def supply(param: Any) -> Any:
        torch = importlib.import_module("torch")
        shape = list(param.shape)
        if not shape or not all(isinstance(n, int) for n in shape):
            raise error(
                "shape",
                f"a tensor of shape {tuple(shape)} cannot be made",
                cls=TileValueError,
                expected="one or more extents, all known",
                help="pass the tensors yourself",
            )
        element = DType(dtype(param.dtype))
        kind = supply_type
        place = _usual_device(torch) if device is None else device
        if kind is TensorSupplyType.Auto:
            wide = element in ("float16", "bfloat16", "float32", "tfloat32")
            kind = TensorSupplyType.Uniform if wide else TensorSupplyType.Integer
        small = element.bits < 8
        if small:
            shape = [*shape[:-1], shape[-1] * element.lanes]
        make: dict[TensorSupplyType, Callable[[], Any]] = {
            TensorSupplyType.Zero: lambda: torch.zeros(shape),
            TensorSupplyType.One: lambda: torch.ones(shape),
            TensorSupplyType.Randn: lambda: torch.randn(shape),
            TensorSupplyType.Normal: lambda: torch.empty(shape).normal_(-1.0, 1.0),
            TensorSupplyType.Uniform: lambda: torch.empty(shape).uniform_(-1.0, 1.0),
            TensorSupplyType.Integer: lambda: _integers(torch, element, shape),
        }
        drawn = (TensorSupplyType.Uniform, TensorSupplyType.Normal)
        if element == "int8" and kind in drawn:
            kind = TensorSupplyType.One
        made = make[kind]()
        return (_packed(torch, element, made) if small else made.to(element.as_torch())).to(place)

    return supply


def torch_assert_close(
    tensor_a: Any,
    tensor_b: Any,
    rtol: float = 1e-2,
    atol: float = 1e-3,
    max_mismatched_ratio: float = 0.001,
    verbose: bool = False,
    equal_nan: bool = True,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    base_name: str = "LHS",
    ref_name: str = "RHS",
) -> bool:
    """Whether two torch tensors are close in all but a share `max_mismatched_ratio` of elements.

    AssertionError otherwise, and where shapes, or the attributes that are to be checked, differ.
    """
    torch = importlib.import_module("torch")
    a, b = tensor_a, tensor_b
    for checked, what in (
        (True, "shape"),
        (check_device, "device"),
        (check_dtype, "dtype"),
        (check_layout, "layout"),
    ):
        if checked and getattr(a, what) != getattr(b, what):
            raise AssertionError(f"{what} differs: {getattr(a, what)} and {getattr(b, what)}")
    if check_stride and a.stride() != b.stride():
        raise AssertionError(f"strides differ: {a.stride()} and {b.stride()}")
    wide = torch.float64 if a.dtype.is_floating_point or b.dtype.is_floating_point else torch.int64
    x, y = a.detach().cpu().to(wide), b.detach().cpu().to(wide)
    wrong = ~torch.isclose(x, y, rtol=rtol, atol=atol, equal_nan=equal_nan)
    count, total = int(wrong.sum()), wrong.numel()
    if verbose:
        print(f"{count} of {total} elements differ; {int(total * max_mismatched_ratio)} may")
    if count > int(total * max_mismatched_ratio):
        at = tuple(int(i) for i in wrong.nonzero()[0])
        raise AssertionError(
            f"{count} of {total} elements differ ({max_mismatched_ratio:.2%} may); the first at"
            f" {list(at)}: {base_name} {x[at].item()}, {ref_name} {y[at].item()};"
            f" greatest difference {(x - y).abs().max().item()}"
        )
    return True
