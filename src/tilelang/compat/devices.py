"""Questions that programs ask about the machine before they build a kernel: target, compute
capability, number of SMs.

Where there is no CUDA device, the answers are those of the chip that `target="cuda"` is emulated
as.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from tilelang.errors import TileValueError, error
from tilelang.isa.target import Chip, Target
from tilelang.runtime.resolve import resolve
from tilelang.targets import target as parse

MODEL = "emulate:sm_90a"
# CUDA driver API, CUdevice_attribute.
_SM_COUNT, _MAJOR, _MINOR = 16, 75, 76


@functools.cache
def _attribute(which: int, device: int) -> int | None:
    """An attribute of a CUDA device; None where there is no such device."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    value, handle = ctypes.c_int(0), ctypes.c_int(0)
    failed = (
        driver.cuInit(0)
        or driver.cuDeviceGet(ctypes.byref(handle), device)
        or driver.cuDeviceGetAttribute(ctypes.byref(value), which, handle)
    )
    return None if failed else value.value


def device_version(device: int = 0) -> tuple[int, int] | None:
    """The compute capability of a CUDA device; None where there is none."""
    major, minor = _attribute(_MAJOR, device), _attribute(_MINOR, device)
    return None if major is None or minor is None else (major, minor)


def _model() -> Chip:
    chip = parse(MODEL).chip
    if chip is None:
        raise error("target", f"{MODEL} names no chip")
    return chip


def get_num_sms(device_id: int = 0) -> int:
    """The SMs of a CUDA device; without one, those of the chip that stands for it."""
    found, cores = _attribute(_SM_COUNT, device_id), _model().cores
    return found if found is not None else (cores.value if cores is not None else 1)


def determine_target(target: Any = "auto", return_object: bool = False) -> Any:
    """The target that a name means on this machine, as text, or as a `Target`."""
    found = resolve(target)
    return found if return_object else str(found)


def get_target_compute_version(target: Any = None) -> str:
    """The compute capability of a target, of the device, or of the chip that stands for
    it: '9.0'.
    """
    chip = target.chip if isinstance(target, Target) else None
    version = device_version()
    if chip is None and version is not None:
        return f"{version[0]}.{version[1]}"
    digits = (chip or _model()).name.removeprefix("sm_").rstrip("af")
    if not digits.isdigit():
        raise error(
            "target",
            f"{target} has no compute capability",
            cls=TileValueError,
            expected="a CUDA target",
            got=str(target),
        )
    return f"{digits[:-1]}.{digits[-1]}"


def parse_compute_version(compute_version: str) -> tuple[int, int]:
    """'9.0' as (9, 0). ValueError for other text."""
    major, _, minor = compute_version.partition(".")
    if not (major.isdigit() and minor.isdigit()):
        raise error("value", "a compute version", expected="'9.0'", got=repr(compute_version))
    return int(major), int(minor)
