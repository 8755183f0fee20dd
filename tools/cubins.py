"""Compile every kernel of the examples to machine code of every NVIDIA chip, without a GPU.

What enters: `python tools/cubins.py [NAME ...] [--arch ARCH,...]`, names of examples (all by
default). What leaves: a line for each example and chip: how many kernels compiled, registers,
spills, or why a kernel is refused there; lines of the compiler's log that are no facts. The exit
code is 1 where the log is not empty, or a kernel fails in another way than by a refusal.

An example runs on the CPU, with its own checks, while the kernels that it calls are recorded.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
sys.path[:0] = [str(ROOT / "src"), str(EXAMPLES)]

from tilelang.errors import TileError, raise_if_any  # noqa: E402 - the package of this checkout
from tilelang.ir.tile import Function  # noqa: E402
from tilelang.isa.target import parse_target  # noqa: E402
from tilelang.passes.check import check_function  # noqa: E402
from tilelang.passes.pipeline import lower  # noqa: E402
from tilelang.runtime.kernel import JITKernel  # noqa: E402
from tilelang.targets import CHIPS  # noqa: E402
from tilelang.targets.cuda.nvrtc import compile_source  # noqa: E402
from tilelang.targets.cuda.program import emit  # noqa: E402

ARCHS = tuple(c.name for c in CHIPS if c.backend == "cuda")
# ptxas advises against multicast on chips without an engine for it; that is the author's choice.
ALLOWED = ("'.multicast::cluster' modifier",)


@dataclass(frozen=True)
class Made:
    """What became of a kernel on a chip: registers and spilled bytes, or a refusal, or a fault."""

    registers: int = 0
    spilled: int = 0
    refused: str = ""
    fault: str = ""


def kernels(name: str) -> list[Function]:
    """The kernels that an example calls, each once; it runs on the CPU."""
    found: dict[str, Function] = {}
    call = JITKernel.__call__

    def recorded(self: JITKernel, *args: Any, **kwargs: Any) -> Any:
        found.setdefault(str(self.ir), self.ir)
        return call(self, *args, **kwargs)

    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    JITKernel.__call__ = recorded
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            spec.loader.exec_module(module)
            module.main()
    finally:
        JITKernel.__call__ = call
    return list(found.values())


def compiled(fn: Function, arch: str) -> Made:
    """A kernel as machine code of a chip."""
    target = parse_target(f"cuda -arch={arch}", CHIPS)
    try:
        raise_if_any(check_function(fn, target, chips=CHIPS))
        made = compile_source(emit(lower(fn, target), target).text, arch)
    except TileError as exc:
        return Made(refused=exc.diagnostics[0].message)
    except Exception as exc:  # a fault of ours, which the table shows
        return Made(fault=f"{type(exc).__name__}: {' '.join(str(exc).split())[:160]}")
    said = [w for w in made.warnings if not any(a in w for a in ALLOWED)]
    used = made.resources.values()
    registers = max((r.registers for r in used), default=0)
    return Made(registers, sum(r.spill_stores for r in used), fault="; ".join(said))


def lines(name: str, fns: list[Function], archs: list[str]) -> Iterator[tuple[bool, str]]:
    """A line for each chip, and whether all is well."""
    for arch in archs:
        made = [compiled(fn, arch) for fn in fns]
        good = [m for m in made if not m.refused and not m.fault]
        facts = f"{len(good)} of {len(made)} kernels"
        if good:
            facts += f", at most {max(m.registers for m in good)} registers"
            facts += f", {sum(m.spilled for m in good)} bytes spilled"
        refused = dict.fromkeys(m.refused for m in made if m.refused)
        faults = dict.fromkeys(m.fault for m in made if m.fault)
        more = [*(f"refused: {r}" for r in refused), *(f"FAULT: {f}" for f in faults)]
        yield not faults, f"{name:24} {arch:8} {'; '.join([facts, *more])}"


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--arch", default=",".join(ARCHS))
    given = parser.parse_args()
    names = given.names or sorted(p.stem for p in EXAMPLES.glob("*.py"))
    good = True
    for name in names:
        for fine, line in lines(name, kernels(name), given.arch.split(",")):
            good &= fine
            print(line, flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
