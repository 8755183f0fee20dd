"""Compares a lowered program, interpreted and as machine code, with the emulator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from thread_interpreter import run
from tilelang.emulator import translate
from tilelang.ir.expr import Call
from tilelang.ir.read import read_program
from tilelang.ir.text import print_program
from tilelang.ir.thread import Program
from tilelang.ir.tile import Function
from tilelang.ir.verify_thread import verify_program
from tilelang.isa.instr import checker
from tilelang.isa.rows import GENERIC
from tilelang.isa.target import parse_target
from tilelang.passes.pipeline import lower
from tilelang.runtime.native import NativeProgram
from tilelang.targets import CHIPS
from tilelang.targets.cpu.llvm import host, optimise
from tilelang.targets.cpu.program import emit

CPU = parse_target("cpu", CHIPS)
CHECK = checker(GENERIC)


def lowered(fn: Function) -> Program:
    """The program for one thread per block, which keeps the rules and reads back."""
    program = lower(fn, CPU)
    verify_program(program, CHECK, planned=True)
    assert read_program(print_program(program)) == program
    return program


def check_lowered(fn: Function, *, rtol: float = 0.0, atol: float = 0.0, **args: Any) -> Program:
    """`check_interpreted` and `check_native`."""
    program = lowered(fn)
    want = emulated(fn, args)
    _interpreted(program, args, want, rtol, atol)
    _as_machine_code(fn, program, args, want, rtol, atol)
    return program


def check_interpreted(
    fn: Function, *, rtol: float = 0.0, atol: float = 0.0, **args: Any
) -> Program:
    """Fails unless the lowered program gives what the emulator gives, from the arrays as they are.

    The interpreter runs it twice, loops in lockstep from their end the second time. It takes
    seconds for long loops. Returns the program.
    """
    program = lowered(fn)
    _interpreted(program, args, emulated(fn, args), rtol, atol)
    return program


def check_native(fn: Function, *, rtol: float = 0.0, atol: float = 0.0, **args: Any) -> Program:
    """The same as machine code, whose maths functions may differ in the last places."""
    program = lowered(fn)
    _as_machine_code(fn, program, args, emulated(fn, args), rtol, atol)
    return program


def emulated(fn: Function, args: Mapping[str, Any]) -> dict[str, Any]:
    """What the arguments hold after a run on the emulator."""
    want = copies(args)
    translate(fn).run(want)
    return want


def _interpreted(
    program: Program, args: Mapping[str, Any], want: Mapping[str, Any], rtol: float, atol: float
) -> None:
    for backwards in (False, True):
        got = copies(args)
        run(program, got, backwards=backwards)
        _all_same(got, want, rtol, atol)


def _as_machine_code(
    fn: Function,
    program: Program,
    args: Mapping[str, Any],
    want: Mapping[str, Any],
    rtol: float,
    atol: float,
) -> None:
    got = copies(args)
    native(program).run(got)
    _all_same(got, want, rtol or _slack(fn), atol)


def native(program: Program) -> NativeProgram:
    """The program as machine code."""
    built = emit(program, host())
    return NativeProgram(built, optimise(built.text, vectorise=built.vectorise).object())


def _slack(fn: Function) -> float:
    """How far maths functions may be from the emulator's: a few places of float32."""
    return 1e-6 if any(isinstance(n, Call) for n in fn.walk()) else 0.0


def _all_same(got: Mapping[str, Any], want: Mapping[str, Any], rtol: float, atol: float) -> None:
    for name, x in want.items():
        if isinstance(x, np.ndarray):
            same(got[name], x, rtol, atol, name)


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
