"""Runs the AscendC source of every launch that the simulator carries out, on the same bytes.

What enters: a call of a kernel on `simulate:ascend910b`, inside `checked(folder)`. What leaves: one
`Launched` for each launch: the source is compiled with `ascendc.h`, which shares nothing with what
printed it, run on what the tensors held before, and what it leaves in them is compared with what
the simulator left. The header also fails for a wrong unit, alignment, type, flag or barrier.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilelang.errors import TileError
from tilelang.simulator.ascend import program as simulator
from tilelang.targets.ascend.emit import emit

HERE = Path(__file__).parent
_COMPILER = ("g++", "-std=c++20", "-O1", "-w")
_SECONDS = 300
_NEAR = {"float32": 2e-6, "float16": 2.0**-10, "bfloat16": 2.0**-7}
"""How far numbers may be apart, relative to the largest: a few units in the last place of it."""


@dataclass
class Launched:
    """One launch: how far its tensors are from the simulator's, or why it has no numbers."""

    kernel: str
    fault: str = ""
    fine: bool = True
    """Whether every tensor is as near as its type allows: sums are added up in another order."""
    apart: float = 0.0
    """The largest difference, relative to the tensor's largest number; 0.0 if no bit differs."""
    calls: Counter[str] = field(default_factory=Counter[str])


def apart(made: npt.NDArray[Any], wanted: npt.NDArray[Any]) -> float:
    """How far two tensors are apart: infinitely, if only one has no number at a place."""
    if made.tobytes() == wanted.tobytes():
        return 0.0
    a, b = made.astype(np.float64), wanted.astype(np.float64)
    strange = ~(np.isfinite(a) & np.isfinite(b))
    if not np.array_equal(a[strange], b[strange], equal_nan=True):
        return float("inf")
    a, b = a[~strange], b[~strange]
    far, size = (float(np.max(np.abs(x), initial=0)) for x in (a - b, b))
    return far / size if size else float("inf" if far else 0.0)


def _main(
    source: str, kernel: str, blocks: int, given: Sequence[Any], changes: Sequence[bool]
) -> str:
    """The program around a kernel: it reads the tensors, launches, and writes them back."""
    head = re.search(
        rf"void {kernel}\(([^)]*)\) {{\n(?:.*\n)*?.*KERNEL_TASK_TYPE_DEFAULT\((\w+)\)", source
    )
    assert head is not None, "the source has no kernel of that name"
    passed: list[str] = []
    loads: list[str] = []
    for parameter, value in zip(filter(None, head[1].split(", ")), given, strict=True):
        type_, name = parameter.rsplit(" ", 1)
        if type_ == "GM_ADDR":
            k = len(loads)
            changed = "true" if changes[k] else "false"
            loads.append(f'  host::load("{name.removesuffix("_gm")}", argv[{k + 1}], {changed});')
            passed.append(f"host::tensors[{k}].data")
        else:
            passed.append(f"({type_}){value!r}")
    together = "true" if "meet_" in source or "CrossCoreSetFlag<0," in source else "false"
    launch = f'{blocks}, {head[2][-1]}, "{head[2]}", {together}'
    return "\n".join(
        [
            source,
            "int main(int, char **argv) {",
            *loads,
            f"  host::launch({launch}, [] {{ {kernel}({', '.join(passed)}); }});",
            "  host::save(argv + 1);",
            "}",
        ]
    )


def run(
    folder: Path, text: str, tensors: Sequence[npt.NDArray[np.uint8]]
) -> tuple[list[npt.NDArray[np.uint8]], Counter[str], str]:
    """What a program makes of the bytes of its tensors, its calls, and what stopped it."""
    headers = "".join(path.read_text() for path in sorted(HERE.glob("ascendc*.h")))
    program = folder / sha256((headers + text).encode()).hexdigest()[:16]
    if not program.exists():
        path = program.with_suffix(".cpp")
        path.write_text(text)
        include = folder / "kernel_operator.h"
        include.write_text('#pragma once\n#include "ascendc.h"\n')
        made = subprocess.run(
            [*_COMPILER, f"-I{folder}", f"-I{HERE}", str(path), "-o", str(program)],
            check=False, capture_output=True, text=True,
        )  # fmt: skip
        if made.returncode:
            errors = [line for line in made.stderr.splitlines() if "error:" in line]
            return [], Counter(), f"does not compile: {errors[0].split('error: ')[-1]}"
    files = [program.with_suffix(f".{k}") for k in range(len(tensors))]
    for file, tensor in zip(files, tensors, strict=True):
        file.write_bytes(tensor.tobytes())
    try:
        done = subprocess.run(
            [str(program), *map(str, files)],
            check=False, capture_output=True, text=True, timeout=_SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return [], Counter(), f"takes longer than {_SECONDS} seconds"
    if done.returncode:
        return [], Counter(), done.stderr.strip() or f"ends with {done.returncode}"
    after = [np.frombuffer(file.read_bytes(), np.uint8) for file in files]
    for file in files:
        file.unlink()
    pairs = (line.rsplit(" ", 1) for line in done.stdout.splitlines())
    return after, Counter({name: int(count) for name, count in pairs}), ""


def _compare(folder: Path, launch: Any, before: Sequence[npt.NDArray[np.uint8]]) -> Launched:
    name = launch.text.kernel.name
    try:
        source = emit(launch.of.program, launch.of.chip.name)
    except TileError as problem:
        return Launched(name, f"no source: {problem.diagnostics[0].message}", fine=False)
    windows = [w for w in launch.given if isinstance(w, simulator.Window)]
    after = [w.memory.data.copy() for w in windows]
    changes = [not np.array_equal(a, b) for a, b in zip(before, after, strict=True)]
    text = _main(source, name, int(np.prod(launch.grid)), launch.given, changes)
    made, calls, fault = run(folder, text, before)
    found = Launched(name, fault, not fault, calls=calls)
    # Sums of numbers that were rounded to 16 bits on the way are as far apart as those.
    near = max((_NEAR.get(w.dtype.name, 0.0) for w in windows), default=0.0)
    for window, mine, wanted in zip(windows, made, after, strict=False):
        a, b = mine.view(window.dtype), wanted.view(window.dtype)
        far = apart(a, b)
        found.apart = max(found.apart, far)
        found.fine &= far <= (near if window.dtype.name in _NEAR else 0.0)
    return found


@contextmanager
def checked(folder: Path, into: list[Launched] | None = None) -> Generator[list[Launched]]:
    """Every launch of the model of the 910B inside this is compared; the list grows with them."""
    folder.mkdir(parents=True, exist_ok=True)
    found: list[Launched] = [] if into is None else into
    in_order = simulator.run_in_order

    def compared(launch: Any, counts: Any) -> None:
        before = [w.memory.data.copy() for w in launch.given if isinstance(w, simulator.Window)]
        in_order(launch, counts)
        if launch.of.chip.name == "ascend910b":
            found.append(_compare(folder, launch, before))

    simulator.run_in_order = compared  # pyright: ignore[reportPrivateImportUsage]
    try:
        yield found
    finally:
        simulator.run_in_order = in_order  # pyright: ignore[reportPrivateImportUsage]
