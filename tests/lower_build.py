"""Compares a lowered program, run by the interpreter of tests, with the emulator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from thread_interpreter import run
from tilelang.emulator import translate
from tilelang.ir.read import read_program
from tilelang.ir.text import print_program
from tilelang.ir.thread import Program
from tilelang.ir.tile import Function
from tilelang.ir.verify_thread import verify_program
from tilelang.isa.instr import checker
from tilelang.isa.rows import GENERIC
from tilelang.isa.target import parse_target
from tilelang.passes.pipeline import lower
from tilelang.targets import CHIPS

CPU = parse_target("cpu", CHIPS)
CHECK = checker(GENERIC)


def lowered(fn: Function) -> Program:
    """The program for one thread per block, which keeps the rules and reads back."""
    program = lower(fn, CPU)
    verify_program(program, CHECK, planned=True)
    assert read_program(print_program(program)) == program
    return program


def check_lowered(fn: Function, *, rtol: float = 0.0, atol: float = 0.0, **args: Any) -> Program:
    """Fails unless the lowered program gives what the emulator gives, from the arrays as they are.

    The program runs twice, loops in lockstep from their end the second time. Returns the program.
    """
    program = lowered(fn)
    want = copies(args)
    translate(fn).run(want)
    for backwards in (False, True):
        got = copies(args)
        run(program, got, backwards=backwards)
        for name, x in want.items():
            if isinstance(x, np.ndarray):
                same(got[name], x, rtol, atol, name)
    return program


def same(got: np.ndarray, want: np.ndarray, rtol: float, atol: float, name: str) -> None:
    """Equal, or close for floats; NaN equals NaN."""
    exact = want.dtype.kind in "biu" or (rtol == 0 and atol == 0)
    if exact:
        np.testing.assert_array_equal(got, want, err_msg=name)
    else:
        a, b = got.astype(np.float64), want.astype(np.float64)
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, err_msg=name)


def copies(args: Mapping[str, Any]) -> dict[str, Any]:
    """The same arguments, arrays copied with their strides."""
    return {k: _copy(v) if isinstance(v, np.ndarray) else v for k, v in args.items()}


def _copy(x: np.ndarray) -> np.ndarray:
    if x.flags.c_contiguous or x.base is None:
        return x.copy()
    span = 1 + sum(s * (n - 1) for s, n in zip(x.strides, x.shape, strict=True)) // x.itemsize
    memory = np.lib.stride_tricks.as_strided(x, (span,), (x.itemsize,)).copy()
    return np.lib.stride_tricks.as_strided(memory, x.shape, x.strides)
