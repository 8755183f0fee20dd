"""What a chip with Tensor Memory must run: products of every type by one block and by pairs,
attention and latent attention become machine code without spills or warnings, and give NumPy's
numbers under every schedule.
"""

from __future__ import annotations

from functools import partial

import pytest

from blackwell_programs import TOTALS, accumulator, attention_forward, mla_decode, product
from scaled_kernels import Case, Scaled, issued, waited
from simulator_kernels import Subject
from tilelang.isa.target import parse_target
from tilelang.simulator.machine import Schedule
from tilelang.targets import CHIPS
from tilelang.targets.cuda.nvrtc import compile_source, is_installed
from tilelang.targets.cuda.program import emit

ARCH = "sm_100a"
SCALES = {
    "mxfp8": {"dtype": "float8_e4m3fn"},
    "mxfp4": {"dtype": "float4_e2m1fn"},
    "nvfp4": {"dtype": "float4_e2m1fn", "grain": 16},
}


def scaled(kind: str, make, *, pair: bool):
    case = Case(256, 32, 128, (128, 32, 64), pair=pair, **SCALES[kind])
    return lambda arch: Scaled(case, make, arch)


PROGRAMS = {
    f"{dtype}, {who}": partial(product, dtype=dtype, blocks=blocks)
    for dtype in TOTALS
    for blocks, who in ((1, "one block"), (2, "a pair"))
}
PROGRAMS |= {
    f"{kind}, {who}, {how}": scaled(kind, make, pair=who == "a pair")
    for kind in SCALES
    for who in ("one block", "a pair")
    for how, make in (("issued", issued), ("waited for", waited))
}
PROGRAMS |= {
    f"an accumulator of {columns} columns": partial(accumulator, columns=columns)
    for columns in (16, 96, 176)
}
PROGRAMS |= {"attention": attention_forward, "latent attention": mla_decode}
# Products with scales have shorter tests of their own.
NAMES = [
    pytest.param(name, marks=pytest.mark.simulate if name.startswith(tuple(SCALES)) else ())
    for name in PROGRAMS
]


def runs_right(subject: Subject, seeds: int) -> None:
    program = subject.simulated()
    for schedule in Schedule.sweep(seeds):
        args = subject.fresh()
        found = program.check(args, schedule)
        assert not found, "\n".join(d.render() for d in found)
        assert subject.is_right(args), schedule


@pytest.mark.parametrize("name", NAMES)
def test_it_gives_what_numpy_gives_and_nothing_is_found(name):
    runs_right(PROGRAMS[name](ARCH), 3)


@pytest.mark.simulate
@pytest.mark.parametrize("name", PROGRAMS)
def test_it_does_so_under_fifty_schedules(name):
    runs_right(PROGRAMS[name](ARCH), 50)


@pytest.mark.skipif(not is_installed(), reason="NVRTC is not installed")
@pytest.mark.parametrize("name", NAMES)
def test_it_becomes_machine_code_without_spills_or_warnings(name):
    target = parse_target(f"cuda -arch={ARCH}", CHIPS)
    made = compile_source(emit(PROGRAMS[name](ARCH).program, target).text, ARCH)
    assert not made.warnings
    assert all(r.spill_stores == 0 for r in made.resources.values())
