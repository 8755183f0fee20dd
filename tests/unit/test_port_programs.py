"""Whole programs of one Ascend dialect in the other: they run there with the same numbers, or what
stops them is at a line that has a note.
"""

import sys
import types
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import adapter_programs
import mainline_kernels
import tilelang
from tilelang.cli.port import ported
from tilelang.errors import TileError

CHIPS = {"mainline": "simulate:ascend950", "adapter": "simulate:ascend910b"}
FILES = {"mainline": adapter_programs, "adapter": mainline_kernels}


def guarded(function):
    """A function that gives what it raises."""

    def call(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except TileError as refused:
            return refused

    return call


@cache
def moved(to, folder):
    """The programs of a file in the other dialect, by name, and the lines that have notes."""
    source = Path(FILES[to].__file__)
    done = ported(source.read_text(), to, str(source))
    name = f"{source.stem}_for_{to}"
    path = Path(folder) / f"{name}.py"
    path.write_text(done.text)
    module = types.ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    exec(compile(done.text, str(path), "exec"), module.__dict__)
    for key, value in list(vars(module).items()):
        if isinstance(value, types.FunctionType) and value.__module__ == name:
            vars(module)[key] = guarded(value) if key != "programs" else value
    programs = {p.name: p for p in module.programs()}
    return programs, {note.line for note in done.notes}


def refused_at(problem):
    return problem.diagnostics[0].loc.line


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return str(tmp_path_factory.mktemp("ported"))


def compiled(program, to):
    if to == "mainline":
        return tilelang.compile(program.kernel, target=CHIPS[to])
    return tilelang.compile(program.kernel, target=CHIPS[to], pass_configs=adapter_programs.AUTO)


def names(module):
    """The programs that are written in the file itself: others are in the dialect of theirs."""
    return [p.name for p in module.programs() if p.kernel.ir.loc.file == module.__file__]


@pytest.mark.parametrize("name", names(mainline_kernels))
def test_a_program_of_the_950_runs_on_the_910b_or_has_a_note_where_it_stops(name, folder):
    programs, lines = moved("adapter", folder)
    program = programs[name]
    if isinstance(program.kernel, TileError):
        assert refused_at(program.kernel) in lines
        return
    (before,) = (p for p in mainline_kernels.programs() if p.name == name)
    wanted, made = before.arguments(), before.arguments()
    try:
        kernel = compiled(program, "adapter")
    except TileError as refused:
        # Products of 8-bit floats: the note is where their type is named.
        assert refused_at(refused) in lines or "8-bit floats" in str(refused)
        return
    kernel(*made.values())
    tilelang.compile(before.kernel, target=CHIPS["mainline"], pass_configs=before.configs)(
        *wanted.values()
    )
    for key, array in wanted.items():
        assert np.array_equal(array, made[key]), key


@pytest.mark.parametrize("name", names(adapter_programs))
def test_a_program_of_the_910b_has_a_note_where_it_stops_on_the_950(name, folder):
    programs, lines = moved("mainline", folder)
    problem = programs[name].kernel
    if not isinstance(problem, TileError):
        with pytest.raises(TileError) as caught:
            compiled(programs[name], "mainline")
        problem = caught.value
    assert refused_at(problem) in lines


def test_an_elementwise_program_of_the_910b_runs_on_the_950(folder):
    source = Path(folder) / "elementwise.py"
    source.write_text(
        """\
import tilelang.language as T


def add(M, N, rows):
    @T.prim_func
    def kernel(
        A: T.Tensor((M, N), "float32"),
        B: T.Tensor((M, N), "float32"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(M, 2 * rows), is_npu=True) as (cid, vid):
            a = T.alloc_ub((rows, N), "float32")
            b = T.alloc_ub((rows, N), "float32")
            row = (cid * 2 + vid) * rows
            with T.Scope("V"):
                T.copy(A[row, 0], a)
                T.copy(B[row, 0], b)
                T.barrier_all()
                for i, j in T.Parallel(rows, N):
                    a[i, j] = a[i, j] + b[i, j]
                T.barrier_all()
                T.copy(a, C[row, 0])

    return kernel
"""
    )
    made = {}
    for to in ("mainline", "adapter"):
        text = ported(source.read_text(), to).text if to == "mainline" else source.read_text()
        path = Path(folder) / f"elementwise_{to}.py"
        path.write_text(text)
        module = types.ModuleType(path.stem)
        exec(compile(text, str(path), "exec"), module.__dict__)
        rng = np.random.default_rng(1)
        a, b = (rng.standard_normal((40, 96)).astype(np.float32) for _ in range(2))
        made[to] = np.zeros((40, 96), np.float32)
        tilelang.compile(module.add(40, 96, 8), target=CHIPS[to])(a, b, made[to])
        assert np.array_equal(made[to], a + b)
    assert np.array_equal(made["mainline"], made["adapter"])
