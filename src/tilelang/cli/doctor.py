"""`tilewright doctor`: what runs here, and why not more.

What enters: the running interpreter and its installed distributions; nothing heavy is imported.
What leaves: lines about the interpreter, the packages, the GPU driver, each target and the
settings, and the problems found, each with a way out.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import json
import os
import platform
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilelang._version import __version__
from tilelang.cli import tables
from tilelang.errors import TileError
from tilelang.options import ineffective, options_from
from tilelang.runtime.installation import foreign_owners
from tilelang.runtime.resolve import SIMULATED, description, resolve, why_no_gpu
from tilelang.targets import CHIPS
from tilelang.targets import target as parse_target

DISTRIBUTION = "tilewright"
OLDEST_PYTHON = (3, 11)

# Distributions that no extra of ours asks for, but that programs and reports lean on.
_USES = {
    "numpy": "arrays and the emulator",
    "ml_dtypes": "bfloat16 and the 8- and 4-bit floats",
    "llvmlite": "the native CPU target",
    "rich": "tables on a terminal",
    "torch": "tensors as arguments and results",
    "nvidia-cuda-nvrtc": "compiling for NVIDIA GPUs",
    "nvidia-cuda-runtime": "NVIDIA's headers, for device code of an author's own",
    "z3-solver": "proofs of `check`, which does without in this version",
    "ascendnpu-ir": "checks of Ascend code, not used in this version",
}
_REQUIRED = ("numpy", "ml_dtypes", "llvmlite", "rich")


@dataclass
class Report:
    """What was found. `problems` are what keeps something that should run here from running."""

    python: dict[str, str] = field(default_factory=dict[str, str])
    packages: dict[str, str | None] = field(default_factory=dict[str, "str | None"])
    gpu: str = ""
    targets: dict[str, str] = field(default_factory=dict[str, str])
    settings: list[str] = field(default_factory=list[str])
    problems: list[str] = field(default_factory=list[str])

    def to_json(self) -> dict[str, Any]:
        """The report as plain data."""
        return {
            "version": __version__,
            "python": self.python,
            "packages": self.packages,
            "gpu": self.gpu,
            "targets": self.targets,
            "settings": self.settings,
            "problems": self.problems,
        }


def examine(env: Mapping[str, str] = os.environ) -> Report:
    """Look at this machine."""
    report = Report(python=_python(), packages={name: _version(name) for name in _USES})
    report.gpu = gpu()
    report.targets = {name: _verdict(name) for name in _families()}
    report.settings, wrong = _settings(env)
    report.problems = [*_install_problems(report.packages), *wrong]
    return report


def _python() -> dict[str, str]:
    return {
        "version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "package": str(Path(__file__).resolve().parents[1]),
    }


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def gpu() -> str:
    """What the CUDA driver says of its devices, in words; asks the driver library and no other."""
    try:
        driver = ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
    except OSError:
        return "no NVIDIA driver is installed"
    version, count = ctypes.c_int(0), ctypes.c_int(0)
    code = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if code:
        return f"an NVIDIA driver is installed, and answers with error {code}"
    driver.cuDriverGetVersion(ctypes.byref(version))
    names = [_device_name(driver, n) for n in range(count.value)]
    cuda = f"CUDA {version.value // 1000}.{version.value % 1000 // 10}"
    return f"driver for {cuda}: {', '.join(names) or 'no device'}"


def _device_name(driver: ctypes.CDLL, n: int) -> str:
    text = ctypes.create_string_buffer(128)
    code = driver.cuDeviceGetName(text, len(text), n)
    return f"device {n} gives error {code}" if code else text.value.decode(errors="replace")


# ---- Targets -------------------------------------------------------------------------------------


def _families() -> list[str]:
    chips = [chip for chip in CHIPS if chip.backend != "cpu"]
    native = list(dict.fromkeys(chip.backend for chip in chips))
    modelled = [f"emulate:{chip.name}" for chip in chips]
    simulated = [f"simulate:{chip.name}" for chip in chips if chip.backend in SIMULATED]
    return ["auto", "cpu", "emulate", *modelled, *native, *simulated]


def _verdict(name: str) -> str:
    """`runs`, with what carries it out, or the reason why not, as a compilation would give it."""
    try:
        target = resolve(parse_target(name))
    except TileError as exc:
        return exc.diagnostics[0].message.partition("cannot run here: ")[2] or str(exc)
    if target.mode != "native":
        return f"runs: {target.describe()}"
    if target.backend == "cuda" and (why := why_no_gpu()) is not None:
        return f"compiles for {target.chip.name if target.chip else 'no chip'}; {why}"
    return f"runs: {description(target, native=True)}"


def _settings(env: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """What the environment sets, and what is wrong with it."""
    try:
        options_from(None, env)
    except TileError as exc:
        return [], [exc.diagnostics[0].render()]
    given = [f"{name}={env[name]}" for name in sorted(env) if re.match("TILE(LANG|WRIGHT)_", name)]
    return [*given, *ineffective(None, env)], []


# ---- Installation --------------------------------------------------------------------------------


def _install_problems(packages: Mapping[str, str | None]) -> list[str]:
    problems: list[str] = []
    if sys.version_info < OLDEST_PYTHON:
        problems.append("Python 3.11 or newer is needed: make an environment with one")
    problems += [
        f"{name} is not installed: `pip install {name}`"
        for name in _REQUIRED
        if packages.get(name) is None
    ]
    problems += [
        f"{owner} is installed in this environment too, and both own the folder `tilelang`: files "
        "of one replace files of the other. Use a fresh environment with tilewright alone: "
        "`python -m venv fresh && fresh/bin/pip install tilewright`"
        for owner in foreign_owners()
    ]
    return problems


def doctor(*, as_json: bool) -> int:
    """Print the report; 1 if there is a problem, else 0."""
    report = examine()
    if as_json:
        print(json.dumps(report.to_json(), indent=2))
        return 1 if report.problems else 0
    print(f"tilewright {__version__} in {report.python['package']}")
    python = report.python
    print(f"{python['implementation']} {python['version']} ({python['executable']})")
    print(python["platform"])
    print(f"GPU: {report.gpu}\n")
    rows = [(name, version or "-", _USES[name]) for name, version in report.packages.items()]
    tables.show(("package", "version", "used for"), rows)
    print()
    tables.show(("target", "here"), list(report.targets.items()))
    for line in report.settings:
        print(f"setting: {line}")
    for problem in report.problems:
        print(f"\nproblem: {problem}")
    if not report.problems:
        print("\nno problems found")
    return 1 if report.problems else 0
