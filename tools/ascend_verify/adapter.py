"""The AscendC sources of the tests' programs in the adapter's dialect, against the simulator.

`python -m ascend_verify.adapter FOLDER`, with tools and tests on the path; `make ascend-verify`
runs it too. It needs g++ and nothing else. What leaves: a line for each launch, and the exit code 1
if one has a fault or numbers that are too far away.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from ascend_verify.launches import Launched, checked

import adapter_functions
import adapter_programs
import tilelang
from ascend_kernels import cases


def against_simulator(name: str, call: Callable[[], object], folder: Path) -> bool:
    """Whether the AscendC source of each launch of a call gives what the simulator gives."""
    with checked(folder) as found:
        call()
    fine = all(launch.fine for launch in found)
    for launch in found:
        print(f"{'ok' if launch.fine else 'NO':3} {name:26} {_said(launch)}")
    return fine


def _said(launch: Launched) -> str:
    if launch.fault:
        return launch.fault
    numbers = "equal" if launch.apart == 0 else f"within {launch.apart:.1e}"
    return f"numbers {numbers:15} {sum(launch.calls.values())} calls"


def adapter(folder: Path) -> list[bool]:
    """The tests' programs in the adapter's dialect; one of them has no source."""
    fine: list[bool] = []
    for program in (*adapter_programs.programs(), *adapter_functions.programs()):
        settings = {"target": "simulate:ascend910b", **program.settings}
        kernel = tilelang.compile(program.kernel, **settings)
        arguments = program.arguments()
        fine.append(against_simulator(program.name, lambda k=kernel, a=arguments: k(*a), folder))
    for case in cases():
        if case.name == "gemm_float32":  # transposed loads of float32
            continue
        kernel = tilelang.compile(case.kernel, target="simulate:ascend910b")
        by_name = case.arguments()
        call = lambda k=kernel, a=by_name: k(**a)  # noqa: E731
        fine.append(against_simulator(f"{case.name}, by hand", call, folder))
    return fine


def main() -> int:
    """Run all of them."""
    fine = adapter(Path(sys.argv[1]))
    print(f"{sum(fine)} of {len(fine)} AscendC sources give the numbers of the simulator")
    return 0 if all(fine) else 1


if __name__ == "__main__":
    sys.exit(main())
