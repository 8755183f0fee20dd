"""Python threads that trace, compile and call kernels at the same time."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tilelang

# In a process of its own: the first use of many parts happens once in a process.
THREADS = """
import sys, threading, traceback
import numpy as np
import tilelang
import tilelang.language as T


def times(factor):
    @T.prim_func
    def scaled(X: T.Tensor((40,), "float32"), Y: T.Tensor((40,), "float32")):
        with T.Kernel(3, threads=32) as bx:
            tile = T.alloc_shared((16,), "float32")
            T.copy(X[bx * 16], tile)
            for i in T.Parallel(16):
                Y[bx * 16 + i] = tile[i] * factor

    return scaled


def work(me):
    x = np.arange(40, dtype=np.float32)
    try:
        for n in range(6):
            factor = float((n + me) % 5 + 2)
            kernel = tilelang.compile(times(factor), out_idx=-1, target=sys.argv[1])
            for _ in range(20):
                assert (kernel(x) == factor * x).all()
            for _ in range(20):
                assert (shared(x) == 2.0 * x).all()
    except BaseException:
        failures.append(traceback.format_exc())


failures, shared = [], lambda x: 2.0 * x
if sys.argv[2] == "shared":
    shared = tilelang.compile(times(2.0), out_idx=-1, target=sys.argv[1])
sys.setswitchinterval(1e-5)
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("".join(failures), file=sys.stderr)
sys.exit(len(failures))
"""


@pytest.mark.parametrize("shared", ["own", "shared"])
@pytest.mark.parametrize("target", ["cpu", "emulate"])
def test_threads_compile_and_call_at_the_same_time(tmp_path, target, shared):
    """Kernels of their own, from the first use of the package on, and one that all call."""
    script = tmp_path / "threads.py"
    script.write_text(THREADS)
    source = str(Path(tilelang.__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": source, "TILELANG_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, script, target, shared]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
