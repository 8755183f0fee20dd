"""Native kernels from the cache: however a kernel comes about, it computes and says the same."""

import gc
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.errors import TileError
from tilelang.runtime import cache, identity, native_cache
from tilelang.runtime.cache import Entry, Store

SOURCE = Path(identity.__file__).parents[2]


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    """An empty cache, and no kernel held by an earlier test."""
    gc.collect()
    for name in ("TILEWRIGHT_TRACE", "TILEWRIGHT_TRACE_DIR", "TILELANG_DISABLE_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TILELANG_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(cache, "_warned", set())
    return tmp_path


@pytest.fixture
def made(monkeypatch):
    """The names of the kernels that the compiler has made code for."""
    names = []
    compiled = native_cache._compiled

    def counted(fn, target, trace):
        names.append(fn.name)
        return compiled(fn, target, trace)

    monkeypatch.setattr(native_cache, "_compiled", counted)
    return names


def times(factor, n=40):
    @T.prim_func
    def scaled(X: T.Tensor((n,), "float32"), Y: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, 16), threads=32) as bx:
            for i in T.Parallel(16):
                Y[bx * 16 + i] = X[bx * 16 + i] * factor

    return scaled


def asserting():
    @T.prim_func
    def strict(X: T.Tensor((8,), "int32"), k: T.int32):
        with T.Kernel(1, threads=32):
            T.print(X[0], msg="first")
            T.device_assert(X[3] > k, "too small")

    return strict


def compiled(fn, **settings):
    return tilelang.compile(fn, target="cpu", **settings)


def check(factor, n=40):
    x = np.arange(n, dtype=np.float32)
    np.testing.assert_array_equal(compiled(times(factor, n), out_idx=-1)(x), factor * x)


def kept(folder):
    """The entries of kernels; the workers, which all share, have one too."""
    store = Store(folder)
    found = ((each, store.get(each.path.stem)) for each in store.entries())
    return [each for each, entry in found if entry is None or entry.facts["kernel"] != "workers"]


def forgotten():
    """As in a process of its own: nothing is held."""
    gc.collect()
    assert len(native_cache.PROGRAMS) == 0


def test_a_kernel_is_compiled_once_for_all_processes(made, folder):
    check(2.0)
    forgotten()
    check(2.0)
    check(3.0)
    assert made == ["scaled", "scaled"]
    assert len(kept(folder)) == 2


def test_equal_kernels_share_code_while_one_is_held(made):
    first = compiled(times(2.0))
    second = compiled(times(2.0), out_idx=-1)
    assert first._program is second._program
    assert made == ["scaled"]
    del first, second
    forgotten()


def test_a_kernel_from_disk_is_the_same_kernel(made, capfd):
    first = compiled(asserting())
    built = first._program.built
    source = first.get_kernel_source()
    said = failure(first)
    printed = capfd.readouterr().out
    del first
    forgotten()
    second = compiled(asserting())
    assert made == ["strict"]
    assert second._program.built == built
    assert second._program.built is not built
    assert second.get_kernel_source() == source
    assert failure(second) == said
    assert capfd.readouterr().out == printed
    assert "test_native_cache.py" in said
    assert "too small" in said
    assert "msg='first'" in printed


def failure(kernel):
    with pytest.raises(TileError) as caught:
        kernel(np.arange(8, dtype=np.int32), 3)
    kernel(np.arange(8, dtype=np.int32), 2)
    return str(caught.value)


@pytest.mark.parametrize("size", [0, 8, 100, -1])
def test_a_truncated_entry_is_made_again(made, folder, size):
    check(2.0)
    (entry,) = kept(folder)
    whole = entry.path.read_bytes()
    entry.path.write_bytes(whole[:size])
    forgotten()
    check(2.0)
    assert made == ["scaled"] * 2
    assert len(entry.path.read_bytes()) == len(whole)
    forgotten()
    check(2.0)
    assert made == ["scaled"] * 2


def test_without_the_cache_nothing_is_kept_or_shared(made, folder, monkeypatch):
    monkeypatch.setenv("TILELANG_DISABLE_CACHE", "1")
    held = [compiled(times(2.0)) for _ in range(2)]
    assert made == ["scaled"] * 2
    assert list(folder.iterdir()) == []
    assert held[0]._program is not held[1]._program


def test_the_switches_of_upstream(made, folder, monkeypatch):
    monkeypatch.setenv("TILELANG_DISABLE_CACHE", "0")  # restored after the test
    tilelang.disable_cache()
    check(2.0)
    assert list(folder.iterdir()) == []
    tilelang.enable_cache()
    check(2.0)
    assert len(kept(folder)) == 1


@pytest.mark.parametrize("text", ["false", "no", "off", "0", ""])
def test_words_that_leave_the_cache_on(monkeypatch, text):
    monkeypatch.setenv("TILELANG_DISABLE_CACHE", text)
    assert tilelang.is_cache_enabled()


@pytest.mark.parametrize("text", ["1", "true", "YES", "on"])
def test_words_that_turn_the_cache_off(monkeypatch, text):
    monkeypatch.setenv("TILELANG_DISABLE_CACHE", text)
    assert not tilelang.is_cache_enabled()


def test_a_folder_that_cannot_be_written_costs_time_and_is_said(made, folder, monkeypatch):
    (folder / "file").write_text("")
    monkeypatch.setenv("TILELANG_CACHE_DIR", str(folder / "file"))
    with pytest.warns(RuntimeWarning, match="cannot be kept"):
        check(2.0)
    forgotten()
    check(2.0)
    assert made == ["scaled"] * 2


def test_a_changed_compiler_makes_kernels_anew(made, monkeypatch):
    check(2.0)
    forgotten()
    monkeypatch.setattr(identity, "compiler", lambda: "another")
    check(2.0)
    assert made == ["scaled"] * 2


def test_code_that_another_target_keeps_does_not_disturb(made, folder):
    """Entries of any target lie side by side."""
    other = Entry({"kernel": "k", "target": "cuda"}, {"cubin": b"\0" * 100})
    Store(folder).put("ff" * 32, other)
    check(2.0)
    assert len(kept(folder)) == 2
    assert Store(folder).get("ff" * 32) == other


# ---- Many kernels in one process -----------------------------------------------------------------

GROWTH = """
import gc, os, sys
import numpy as np
import tilelang
import tilelang.language as T


def kernel(n):
    @T.prim_func
    def shifted(X: T.Tensor((16,), "float32")):
        with T.Kernel(1, threads=1):
            X[0] = X[0] + float(n)

    return tilelang.compile(shifted, target="cpu")


def resident():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


x, count = np.zeros(16, np.float32), int(sys.argv[1])
for n in range(count):
    kernel(n)(x)
    if n == count // 3:
        before = resident()
assert x[0] == sum(range(count))
print(resident() - before)
"""


def grown(count, folder):
    """MiB that a process grows by over the last two thirds of `count` kernels."""
    if not Path("/proc/self/statm").exists():
        pytest.skip("there is no /proc here that says what a process takes")
    script = folder / "growth.py"
    script.write_text(GROWTH)
    env = {**os.environ, "PYTHONPATH": str(SOURCE), "TILELANG_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, script, str(count)], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


def test_many_kernels_do_not_make_a_process_grow(folder):
    """Of 90 kernels the last 60 add little; `benchmarks/cpu.py` counts a thousand."""
    assert grown(90, folder) < 60 * 0.1


# ---- Several processes ---------------------------------------------------------------------------

WORKERS = """
import contextlib, multiprocessing, random, sys
from pathlib import Path
import numpy as np
import tilelang
import tilelang.language as T
from tilelang.runtime import identity, native_cache
from tilelang.runtime.cache import Store
from tilelang.targets.cpu import llvm

identity.compiler(), llvm.machine()  # once, before the processes part


def times(factor):
    @T.prim_func
    def scaled(X: T.Tensor((40,), "float32"), Y: T.Tensor((40,), "float32")):
        with T.Kernel(3, threads=32) as bx:
            for i in T.Parallel(16):
                Y[bx * 16 + i] = X[bx * 16 + i] * factor

    return scaled


def work(me):
    draw = random.Random(me)
    x = np.arange(40, dtype=np.float32)
    for turn in range(4):
        factor = 2.0 if turn == 0 else float(draw.randrange(3, 6))
        kernel = tilelang.compile(times(factor), out_idx=-1, target="cpu")
        assert (kernel(x) == factor * x).all()
        del kernel
        if sys.argv[1] == "damage":
            for each in Store(Path(sys.argv[2])).entries():
                with contextlib.suppress(FileNotFoundError), each.path.open("r+b") as file:
                    file.seek(draw.randrange(each.size))
                    file.write(b"damage")


processes = [multiprocessing.get_context("fork").Process(target=work, args=[n]) for n in range(8)]
for process in processes:
    process.start()
for process in processes:
    process.join()
sys.exit(sum(process.exitcode != 0 for process in processes))
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["share", "damage"])
def test_eight_processes_compile_into_one_folder(folder, mode):
    """The same kernel at once, then different ones, with entries being damaged meanwhile."""
    script = folder / "workers.py"
    script.write_text(WORKERS)
    env = {**os.environ, "PYTHONPATH": str(SOURCE), "TILELANG_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, script, mode, folder / "cache"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert 1 < len(kept(folder / "cache")) <= 5  # a workers' entry that is damaged is counted
    store = Store(folder / "cache")
    assert not list(store.folder.glob("*.tmp"))
    if mode == "share":
        assert all(store.get(each.path.stem) for each in store.entries())
