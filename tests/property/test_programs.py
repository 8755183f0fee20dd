"""Random small programs against their meaning on NumPy arrays; read back from their text, they are
the same; and `tilelang.check` finds nothing in them.
"""

import numpy as np
import pytest

import tilelang
from program_drawn import Program, drawn
from tilelang.frontend import PrimFunc
from tilelang.ir.read import read_function
from tilelang.layout import Fragment, Layout

SEEDS = range(40)


def again(program: Program) -> PrimFunc:
    """The function as its text says."""
    func = program.func
    read = read_function(func.script(), records=(Layout, Fragment))
    assert read == func.ir
    return PrimFunc(read, None, func.loc, ())


def compare(program: Program, outs: list, want: list, what: str) -> None:
    """Every output equals what NumPy says."""
    for name, got, wanted in zip([*program.draw.shapes, "s"], outs, want, strict=True):
        np.testing.assert_array_equal(got, wanted, err_msg=f"{what}, {name}\n{program.func}")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_drawn_program(seed):
    program = drawn(seed)
    kernel = tilelang.compile(program.func, target="cpu")
    assert not kernel.warnings
    for blocks in (2, 0, 3):
        given, outs = program.arguments(blocks, seed + blocks)
        want = program.expected(given, blocks)
        kernel(*given, *outs)
        compare(program, outs, want, f"{blocks} blocks")
    given, outs = program.arguments(2, seed)
    want = program.expected(given, 2)
    found = tilelang.check(again(program), target="cpu", run_with=[*given, *outs])
    assert not found, found[0].render()
    compare(program, outs, want, "read back and checked")
