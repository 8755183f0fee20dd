"""Unusual uses of the native CPU target, through the public interface."""

import io
import os
import runpy
import signal
import subprocess
import sys
import threading
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.errors import TileError
from tilelang.runtime import native as runtime

n = T.dynamic("n")


def native(fn, **options):
    return tilelang.compile(fn, target="cpu", **options)


def alone(program: str) -> str:
    """What a program prints in a process of its own, which must end well. This file is `t`."""
    here = str(Path(__file__).parent)
    program = (
        f"import sys; sys.path.insert(0, {here!r})\nimport test_cpu_robustness as t\n{program}"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# -- numbers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "round", "abs"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e5m2"])
def test_infinity_is_a_whole_number(name, dtype):
    fn = getattr(T, name)

    @T.prim_func
    def whole(A: T.Tensor((6,), dtype), B: T.Tensor((6,), dtype)):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(6):
                B[i] = fn(A[i])

    numbers = [np.inf, -np.inf, 1.5, -1.5, 57344, -0.0]
    a = np.array(numbers).astype(getattr(ml_dtypes, dtype, np.float16))
    b, c = np.zeros_like(a), np.zeros_like(a)
    native(whole)(a, b)
    tilelang.compile(whole, target="emulate")(a, c)
    assert np.isinf(b[:2].astype(np.float32)).all()
    assert b.tobytes() == c.tobytes()


# -- arguments -------------------------------------------------------------------------------------


@T.prim_func
def add_one(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
    with T.Kernel(T.ceildiv(n, 64), threads=64) as bx:
        for i in T.Parallel(64):
            B[bx * 64 + i] = A[bx * 64 + i] + 1


def places(shape, strides):
    return np.lib.stride_tricks.as_strided(np.zeros(200, np.float32), shape, strides)


@T.prim_func
def count(A: T.Tensor((2, 3), "float32")):
    with T.Kernel(1, threads=32):
        for i, j in T.Parallel(2, 3):
            A[i, j] = 3 * i + j


def test_elements_that_share_places_are_not_written():
    kernel = native(count)
    for strides in [(0, 4), (4, 4), (8, 4), (6, 4), (-4, 4), (4, 2)]:
        with pytest.raises(TileError, match="share storage"):
            kernel(places((2, 3), strides))
    for strides in [(12, 4), (4, 8), (400, 100), (12, 8), (20, 8), (-12, 4)]:
        a = places((2, 3), strides) if min(strides) > 0 else np.zeros((2, 3), np.float32)[::-1]
        kernel(a)
        np.testing.assert_array_equal(a, np.arange(6).reshape(2, 3))


def test_an_output_of_vectors_is_an_argument_of_the_next_call():
    @T.prim_func
    def same(A: T.Tensor((3,), "float32x2"), B: T.Tensor((3,), "float32x2")):
        with T.Kernel(1, threads=32):
            T.copy(A, B)

    kernel = native(same, out_idx=-1)
    a = np.arange(6, dtype=np.float32)
    for _ in range(2):
        b = kernel(a)
        c = kernel(b)
        assert c.ravel().tolist() == b.ravel().tolist() == a.tolist()
    with pytest.raises(TileError, match="rank"):
        kernel(a.reshape(2, 3))


@T.prim_func
def iota(n: T.int32, A: T.Tensor((T.dynamic("n"),), "int32")):
    with T.Kernel(1, threads=32):
        for i in T.serial(n):
            A[i] = i


def test_outputs_without_inputs_follow_the_framework_that_is_loaded():
    pytest.importorskip("torch")
    said = alone(
        "kernel = t.native(t.iota, out_idx=-1)\n"
        "print(*(type(kernel(3)).__module__ for _ in range(3)))\n"
        "import torch\n"
        "print(*(type(kernel(3)).__module__ for _ in range(3)))\n"
    )
    assert said.split() == 3 * ["numpy"] + 3 * ["torch"]


def test_a_launch_imports_nothing():
    # Another thread may be importing while this one forks: the child would wait for its lock.
    said = alone(
        "import numpy as np\n"
        "kernel, a = t.native(t.add_one), np.zeros(9, np.float32)\n"
        "loaded = set(sys.modules)\n"
        "kernel(a, a), kernel(a, a)\n"
        "print(a[0], *sorted(set(sys.modules) - loaded))"
    )
    assert said == "2.0\n"


# -- launches --------------------------------------------------------------------------------------


@T.prim_func
def many_blocks(x: T.int64, y: T.int64, z: T.int64, A: T.Tensor((1,), "int32")):
    with T.Kernel(x, y, z, threads=1):
        A[0] = 1


@pytest.mark.parametrize(
    "grid", [(2**31, 1, 1), (1, 2**32, 1), (2**32, 2**32, 1), (2**22, 2**22, 2**22)]
)
def test_a_grid_of_more_blocks_than_can_be_counted_is_an_error(grid):
    kernel, a = native(many_blocks), np.zeros(1, np.int32)
    with pytest.raises(TileError, match="blocks") as caught:
        kernel(*grid, a)
    assert caught.value.diagnostics[0].loc.file == __file__
    kernel(2, 3, 4, a)
    assert a[0] == 1


@pytest.mark.parametrize("grid", [(2**40, 2**40, 0), (-5, 2**40, 1), (-(2**63), 1, 1)])
def test_a_grid_without_blocks_does_nothing(grid):
    a = np.zeros(1, np.int32)
    native(many_blocks)(*grid, a)
    assert a[0] == 0


@T.prim_func
def chatty(A: T.Tensor((1,), "int32")):
    with T.Kernel(400, threads=1) as bx:
        T.print(bx)
        A[0] = A[0] + 1


class Stream(io.StringIO):
    """A standard output on which something goes wrong at the 100th line."""

    def __init__(self, wrong):
        super().__init__()
        self.lines, self.wrong = 0, wrong

    def write(self, text):
        self.lines += text.endswith("\n")
        if self.lines == 100 and text == "\n":
            self.wrong()
        return super().write(text)


def broken_pipe():
    raise BrokenPipeError


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        (lambda: signal.raise_signal(signal.SIGINT), KeyboardInterrupt),
        (broken_pipe, BrokenPipeError),
    ],
)
def test_what_is_raised_while_a_kernel_prints_is_raised_when_it_returns(monkeypatch, wrong, kind):
    kernel, a, out = native(chatty), np.zeros(1, np.int32), Stream(wrong)
    with monkeypatch.context() as m:
        m.setattr(sys, "stdout", out)
        with pytest.raises(kind):
            kernel(a)
    assert a[0] == 400
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with monkeypatch.context() as m:
        m.setattr(sys, "stdout", io.StringIO())
        kernel(a)
        assert sys.stdout.getvalue().count("\n") == 400


# -- threads and forks -----------------------------------------------------------------------------


def test_threads_that_launch_first_share_one_pool(monkeypatch):
    together, found = threading.Barrier(4, timeout=60), []
    make = runtime.Workers

    def slowly(code):
        together.wait()  # all of them have found that there is none
        return make(code)

    monkeypatch.setattr(runtime, "_POOL", [])
    monkeypatch.setattr(runtime, "Workers", slowly)
    threads = [threading.Thread(target=lambda: found.append(runtime.workers())) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len({id(pool) for pool in found}) == 1
    assert runtime.workers() is found[0]


FORKS = """
import os, signal, threading, numpy as np
from tilelang.targets.cpu import llvm, workers

kernel, a = t.native(t.add_one), np.zeros(9, np.float32)
kernel(a, a)
text, stop = workers.module_text(), []

def compiling():
    while not stop:
        llvm.optimise(text).object()

other = threading.Thread(target=compiling)
other.start()
for k in range(5):
    child = os.fork()
    if not child:
        signal.alarm(30)
        llvm.Library(llvm.optimise(text).object())
        kernel(a, a)
        os._exit(int(a[0] != 2))
    print(os.waitpid(child, 0)[1])
stop.append(True)
other.join()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_while_another_thread_compiles():
    assert alone(FORKS).split() == 5 * ["0"]


# -- the text of a kernel --------------------------------------------------------------------------


def test_a_sum_of_a_thousand_terms_is_an_error_of_the_author(tmp_path):
    terms = " + ".join(1000 * ["A[0]"])
    (tmp_path / "long_sum.py").write_text(
        "import tilelang.language as T\n@T.prim_func\n"
        "def long_sum(A: T.Tensor((2,), 'float32')):\n"
        f"    with T.Kernel(1, threads=32):\n        A[1] = {terms}\n"
    )
    with pytest.raises(TileError, match="nested too deeply") as caught:
        runpy.run_path(str(tmp_path / "long_sum.py"))
    assert caught.value.diagnostics[0].loc.line == 5
