"""`tilewright show` and `tilewright cache`: the stages of a kernel, and the kernels on disk."""

import json

import pytest

from tilelang.cli import main
from tilelang.ir.read import read_function, read_program
from tilelang.ir.thread import kernels_of
from tilelang.runtime.cache import Entry, Store

KERNELS = """
import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=-1)
def scaled(n, factor=2.0):
    @T.prim_func
    def kernel(X: T.Tensor((n,), "float32"), Y: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, 128), threads=128) as bx:
            for i in T.Parallel(128):
                Y[bx * 128 + i] = X[bx * 128 + i] * factor

    return kernel


@tilelang.jit(target="emulate")
def emulated():
    @T.prim_func
    def kernel(X: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                X[i] = 0.0

    return kernel
"""
SCALED = "kernels.py::scaled(256)"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The working directory, with a file of kernels and an empty cache."""
    (tmp_path / "kernels.py").write_text(KERNELS)
    monkeypatch.chdir(tmp_path)
    for name in ("TILEWRIGHT_TRACE", "TILEWRIGHT_TRACE_DIR", "TILELANG_DISABLE_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TILELANG_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def command(capfd):
    """Carry out a command line: its exit code, output, and errors."""

    def carry_out(*words):
        code = main(words)
        seen = capfd.readouterr()
        assert "Traceback" not in seen.out + seen.err
        return code, seen.out, seen.err

    return carry_out


# ---- show ----------------------------------------------------------------------------------------


def test_the_tile_stage_is_the_program_as_traced(command):
    code, out, _ = command("show", SCALED)
    assert code == 0
    assert read_function(out).name == "kernel"
    assert command("show", SCALED, "--stage", "tile")[1] == out


def test_the_thread_stage_is_what_the_target_emits(command):
    code, out, _ = command("show", SCALED, "--stage", "thread", "--target", "cpu")
    assert code == 0
    program = read_program(out)
    assert [kernel.block for kernel in kernels_of(program)] == [(1,)]
    assert "parallel(" not in out


def test_the_source_is_llvm_ir_on_the_cpu(command):
    code, out, _ = command("show", SCALED, "--stage", "source", "--target", "cpu")
    assert code == 0
    assert "define i32 @run(" in out


def test_the_source_is_python_on_the_emulator(command):
    code, out, _ = command("show", SCALED, "--stage", "source", "--target", "emulate")
    assert code == 0
    assert "def kernel(machine, X, Y):" in out
    assert command("show", "kernels.py::emulated", "--stage", "source")[1].startswith(
        "# kernels.py"
    )


def test_the_instructions_of_the_processor(command):
    code, out, _ = command("show", SCALED, "--asm", "--target", "cpu")
    assert code == 0
    assert "run:" in out
    assert "define " not in out
    assert command("show", SCALED, "--asm", "--stage", "source", "--target", "cpu")[1] == out


@pytest.mark.parametrize("stage", ["tile", "thread"])
def test_other_stages_have_no_instructions_of_a_processor(command, stage):
    code, _, err = command("show", SCALED, "--asm", "--stage", stage)
    assert code == 2
    assert f"the {stage} stage has no instructions" in err


def test_the_emulator_has_neither_threads_nor_instructions(command):
    code, _, err = command("show", SCALED, "--stage", "thread", "--target", "emulate:sm_90a")
    assert code == 2
    assert "no thread stage on emulate:sm_90a" in err
    code, _, err = command("show", "kernels.py::emulated", "--asm")
    assert code == 1
    assert "there is no assembly of kernel for emulate" in err


def test_show_uses_the_cache(command, folder):
    first = command("show", SCALED, "--stage", "source", "--target", "cpu")
    assert len(Store(folder / "cache").entries()) == 1
    assert command("show", SCALED, "--stage", "source", "--target", "cpu") == first


# ---- cache ---------------------------------------------------------------------------------------


def test_an_empty_cache(command, folder):
    code, out, _ = command("cache")
    assert code == 0
    assert out.splitlines() == [str(folder / "cache" / "tilewright"), "no compiled kernels"]


def test_the_kernels_of_each_target_are_counted(command, folder):
    store = Store(folder / "cache")
    for n in range(3):
        store.put(f"{n + 1:064x}", Entry({"target": "cpu"}, {"code": bytes(1024)}))
    store.put(f"{9:064x}", Entry({"target": "cuda"}, {"cubin": bytes(4096)}))
    store.put(f"{10:064x}", Entry({"target": "cpu"}, {"code": b""}))
    store.path(f"{10:064x}").write_bytes(b"short")
    code, out, _ = command("cache")
    assert code == 0
    assert [line.split() for line in out.splitlines()[1:]] == [
        ["target", "kernels", "KiB"],
        ["cpu", "3", "3"],
        ["cuda", "1", "4"],
        ["damaged", "1", "0"],
    ]
    facts = json.loads(command("cache", "--json")[1])
    assert facts["targets"]["cpu"]["kernels"] == 3
    assert facts["targets"]["damaged"] == {"kernels": 1, "bytes": 5}
    assert facts["enabled"]
    assert facts["limit"] > 0


def test_the_cache_can_be_cleared(command, folder):
    Store(folder / "cache").put("1" * 64, Entry({"target": "cpu"}, {}))
    code, out, _ = command("cache", "--clear")
    assert code == 0
    assert out.splitlines()[1:] == ["1 kernels removed", "no compiled kernels"]
    assert json.loads(command("cache", "--clear", "--json")[1])["removed"] == 0


def test_a_cache_that_is_turned_off_says_so(command, monkeypatch):
    monkeypatch.setenv("TILELANG_DISABLE_CACHE", "1")
    assert "not in use" in command("cache")[1]
    assert not json.loads(command("cache", "--json")[1])["enabled"]


def test_a_folder_that_cannot_be_changed_is_said(command, monkeypatch):
    def refused(store):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Store, "clear", refused)
    code, _, err = command("cache", "--clear")
    assert code == 2
    assert "cannot be removed" in err
    assert "Permission denied" in err
