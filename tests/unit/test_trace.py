"""The compile trace: what it writes and prints for each setting, and that it changes nothing."""

import gc
import logging
import re
import sys

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.errors import TileError, error
from tilelang.ir.read import read_function, read_program
from tilelang.ir.text import print_program
from tilelang.isa.target import parse_target
from tilelang.options import Options, options_from
from tilelang.passes import pipeline
from tilelang.runtime import trace as traces
from tilelang.runtime.trace import Declined, Trace, timings
from tilelang.targets import CHIPS

TARGETS = ["cpu", "emulate"]
PASSES = [p.__name__ for p in pipeline.ONE_THREAD]


@pytest.fixture(autouse=True)
def settings(monkeypatch, tmp_path):
    """No settings but those of the test, a cache of its own, and no kernel of an earlier one."""
    gc.collect()
    for name in ("TILEWRIGHT_TRACE", "TILEWRIGHT_TRACE_DIR", "TILELANG_VERBOSE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TILELANG_CACHE_DIR", str(tmp_path / "cache"))


def doubled(n=40):
    @T.prim_func
    def kernel(X: T.Tensor((n,), "float32"), Y: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, 16), threads=32) as bx:
            tile = T.alloc_shared((16,), "float32")
            T.copy(X[bx * 16], tile)
            for i in T.Parallel(16):
                tile[i] = tile[i] * 2.0
            T.copy(tile, Y[bx * 16])

    return kernel


def compiled(target="cpu", **configs):
    return tilelang.compile(
        doubled(), out_idx=-1, target=target, pass_configs={_key(k): v for k, v in configs.items()}
    )


def _key(name):
    return "cuda.kernels_output_dir" if name == "kernels_output_dir" else f"tl.{name}"


def runs(kernel):
    x = np.arange(40, dtype=np.float32)
    np.testing.assert_array_equal(kernel(x), 2 * x)


# ---- Folders -------------------------------------------------------------------------------------


def test_a_native_compilation_leaves_every_stage(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_TRACE_DIR", str(tmp_path / "trace"))
    kernel = compiled()
    runs(kernel)
    (folder,) = (tmp_path / "trace").iterdir()
    assert folder.name == "0001-kernel"
    stages = [f"{n:02d}-{name}.py" for n, name in enumerate(["tile", *PASSES])]
    others = ["decisions.txt", "kernel.ll", "kernel.opt.ll", "kernel.s", "timings.txt"]
    assert sorted(f.name for f in folder.iterdir()) == sorted(stages + others)
    assert read_function((folder / stages[0]).read_text()) == kernel.ir
    program = pipeline.lower(kernel.ir, parse_target("cpu", CHIPS))
    assert read_program((folder / stages[-1]).read_text()) == program
    assert (folder / "kernel.ll").read_text() == kernel.get_kernel_source()
    assert (folder / "kernel.opt.ll").read_text() != kernel.get_kernel_source()
    assert re.search(r"^run:", (folder / "kernel.s").read_text(), re.MULTILINE)
    assert (folder / "decisions.txt").read_text() == "no optimisation was declined\n"


def test_the_timings_name_each_pass_and_step(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_TRACE_DIR", str(tmp_path))
    compiled()
    lines = (tmp_path / "0001-kernel" / "timings.txt").read_text().splitlines()
    names = [line.split()[0] for line in lines]
    times = [float(line.split()[1]) for line in lines]
    assert [name for name in names if name in PASSES] == PASSES
    assert {"check", "emit", "optimise", "object", "load"} <= set(names)
    assert names[-1] == "sum"
    assert sum(times[:-1]) == pytest.approx(times[-1], abs=0.01)


def test_an_emulated_compilation_leaves_the_tile_stage_and_the_source(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_TRACE_DIR", str(tmp_path))
    kernel = compiled("emulate")
    runs(kernel)
    (folder,) = [f for f in tmp_path.iterdir() if f.name != "cache"]
    names = sorted(f.name for f in folder.iterdir())
    assert names == ["00-tile.py", "decisions.txt", "kernel.py", "timings.txt"]
    assert (folder / "kernel.py").read_text() == kernel.get_kernel_source()


def test_each_compilation_has_a_folder_even_where_the_cache_has_the_kernel(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_TRACE_DIR", str(tmp_path / "trace"))
    held = [compiled() for _ in range(3)]
    names = sorted(f.name for f in (tmp_path / "trace").iterdir())
    assert names == ["0001-kernel", "0002-kernel", "0003-kernel"]
    texts = {(tmp_path / "trace" / name / "kernel.ll").read_text() for name in names}
    assert len(texts) == 1
    assert len(held) == 3


@pytest.mark.parametrize("target", TARGETS)
def test_the_ir_alone(tmp_path, target):
    runs(compiled(target, enable_dump_ir=True, dump_ir_path=str(tmp_path / "ir")))
    (folder,) = (tmp_path / "ir").iterdir()
    names = sorted(f.name for f in folder.iterdir())
    passes = PASSES if target == "cpu" else []
    assert names == [f"{n:02d}-{name}.py" for n, name in enumerate(["tile", *passes])]


@pytest.mark.parametrize(("target", "suffix"), [("cpu", ".ll"), ("emulate", ".py")])
def test_the_source_alone(tmp_path, target, suffix):
    out = tmp_path / "sources"
    kernels = [compiled(target, kernels_output_dir=str(out)) for _ in range(2)]
    (file,) = out.iterdir()
    assert re.fullmatch(r"kernel-[0-9a-f]{8}" + re.escape(suffix), file.name)
    assert file.read_text() == kernels[0].get_kernel_source() == kernels[1].get_kernel_source()


def test_the_folder_of_upstream_for_generated_sources(tmp_path):
    @tilelang.jit(out_idx=-1, target="cpu", debug_root_path=str(tmp_path / "sources"))
    def made(n):
        return doubled(n)

    kernel = made(40)
    (file,) = (tmp_path / "sources").iterdir()
    assert file.read_text() == kernel.get_kernel_source()


@pytest.mark.parametrize("target", TARGETS)
def test_a_folder_that_cannot_be_written_is_an_error(monkeypatch, tmp_path, target):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TILEWRIGHT_TRACE_DIR", str(tmp_path / "file"))
    with pytest.raises(TileError, match="TILEWRIGHT_TRACE_DIR"):
        compiled(target)


def test_a_failed_compilation_leaves_what_it_came_to(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_TRACE_DIR", str(tmp_path / "trace"))

    def breaks(node, target):
        raise RuntimeError("broken")

    broken = (*pipeline.ONE_THREAD[:3], breaks)
    monkeypatch.setattr(pipeline, "PIPELINES", {"cpu": broken})
    with pytest.raises(RuntimeError, match="broken"):
        compiled()
    names = sorted(f.name for f in (tmp_path / "trace" / "0001-kernel").iterdir())
    assert names == [f"{n:02d}-{name}.py" for n, name in enumerate(["tile", *PASSES[:3]])]


def test_what_falls_back_to_the_emulator_leaves_both_ways(monkeypatch, tmp_path, capfd):
    monkeypatch.setenv("TILEWRIGHT_TRACE_DIR", str(tmp_path / "trace"))
    monkeypatch.setenv("TILEWRIGHT_TRACE", "1")

    def refuses(node, target):
        raise error("target", "the CPU cannot run this", node.loc)

    monkeypatch.setattr(pipeline, "PIPELINES", {"cpu": (pipeline.ONE_THREAD[0], refuses)})
    # As on a machine without a GPU.
    driver = sys.modules["tilelang.runtime.compile"]
    monkeypatch.setattr(driver, "resolve_for", lambda *spec: parse_target("cpu", CHIPS))
    kernel = tilelang.compile(doubled(), out_idx=-1, target="auto")
    runs(kernel)
    names = sorted(f.name for f in (tmp_path / "trace" / "0001-kernel").iterdir())
    stages = ["00-tile.py", f"01-{PASSES[0]}.py"]
    assert names == [*stages, "decisions.txt", "kernel.py", "timings.txt"]
    assert capfd.readouterr().err.startswith("kernel for cpu (by the emulator): compiled in ")


# ---- Words ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_is_said_without_a_setting(capfd, tmp_path, monkeypatch, target):
    monkeypatch.chdir(tmp_path)
    runs(compiled(target))
    assert capfd.readouterr() == ("", "")
    assert [f.name for f in tmp_path.iterdir() if f.name != "cache"] == []


def test_level_1_prints_timings_and_what_was_declined(monkeypatch, capfd):
    monkeypatch.setenv("TILEWRIGHT_TRACE", "1")
    compiled()
    out, err = capfd.readouterr()
    assert out == ""
    assert re.match(r"kernel for cpu: compiled in [\d.]+ ms\n", err)
    assert "  no optimisation was declined\n" in err
    assert re.search(r"^  plan_memory +[\d.]+ ms$", err, re.MULTILINE)
    assert "def kernel(" not in err


def test_level_2_prints_the_ir_where_it_changed(monkeypatch, capfd):
    monkeypatch.setenv("TILEWRIGHT_TRACE", "2")
    kernel = compiled()
    err = capfd.readouterr().err
    assert f"---- kernel\n{kernel.prim_func.script()}" in err
    assert "---- kernel after lower_memory\n@program(" in err
    assert "---- kernel after split_grid\n" not in err  # it has no barrier of the grid
    program = pipeline.lower(kernel.ir, parse_target("cpu", CHIPS))
    assert print_program(program) in err


def test_the_profile_of_the_passes(capfd):
    compiled(pass_profile=True)
    err = capfd.readouterr().err
    assert err.startswith("passes of kernel:\n")
    assert [line.split()[0] for line in err.splitlines()[1:]] == [*PASSES, "sum"]
    compiled(pass_profile=True, pass_profile_threshold_ms=1e6)
    assert [line.split()[0] for line in capfd.readouterr().err.splitlines()[1:]] == ["sum"]


@pytest.mark.parametrize("target", TARGETS)
def test_verbose_says_how_a_kernel_came_about(capfd, target):
    kernel = tilelang.compile(doubled(), target=target, verbose=True)
    err = capfd.readouterr().err
    assert re.match(rf"kernel for {target}: compiled in [\d.]+ ms\n", err)
    tilelang.compile(doubled(), target=target, verbose=False)
    assert capfd.readouterr().err == ""
    assert kernel.options.verbose


def test_verbose_tells_what_came_from_the_cache(monkeypatch, capfd):
    monkeypatch.setenv("TILELANG_VERBOSE", "1")
    first, second = compiled(), compiled()
    words = capfd.readouterr().err
    assert "compiled in" in words
    assert "shared with an equal kernel in" in words
    del first, second
    gc.collect()
    third = compiled()
    runs(third)
    assert "loaded from the cache in" in capfd.readouterr().err


def test_the_logger_hears_of_each_compilation(caplog):
    with caplog.at_level(logging.INFO, "tilelang"):
        compiled()
    begun, ended = [record.getMessage() for record in caplog.records if record.name == "tilelang"]
    assert begun == "kernel: compilation begins"
    assert re.fullmatch(r"kernel for cpu: compiled in [\d.]+ ms", ended)


def test_the_logger_can_be_left_alone(caplog, monkeypatch):
    monkeypatch.setenv("TILELANG_PRINT_ON_COMPILATION", "0")
    with caplog.at_level(logging.INFO, "tilelang"):
        compiled()
    assert [record for record in caplog.records if record.name == "tilelang"] == []


# ---- What passes leave for the report ------------------------------------------------------------


def test_what_a_pass_declined_is_told_with_its_place(capfd, tmp_path):
    options = options_from(
        None, {"TILEWRIGHT_TRACE": "1", "TILEWRIGHT_TRACE_DIR": str(tmp_path / "trace")}
    )
    trace = Trace("kernel", options)
    program = pipeline.lower(doubled().ir, parse_target("cpu", CHIPS))
    notes = (
        ("declined", "the loop cannot be pipelined: it waits", "/elsewhere/kernel.py:7"),
        ("chosen", "ldmatrix for A_s", "/elsewhere/kernel.py:9"),
        ("declined", "no reason to say where", ""),
    )
    trace.stage("pipeline", program.with_(attrs=(*program.attrs, ("notes", notes))))
    trace.stage("later", program.with_(attrs=(*program.attrs, ("notes", notes))))
    trace.end("cuda")
    told = [
        "chosen: ldmatrix for A_s (/elsewhere/kernel.py:9)",
        "declined: /elsewhere/kernel.py:7: the loop cannot be pipelined: it waits",
        "declined: no reason to say where",
    ]
    assert (tmp_path / "trace/0001-kernel/decisions.txt").read_text().splitlines() == told
    err = capfd.readouterr().err
    assert "\n".join(f"  {line}" for line in told) in err
    assert trace.decisions.declined[0] == Declined(
        "the loop cannot be pipelined: it waits", "/elsewhere/kernel.py:7"
    )


def test_without_settings_a_trace_keeps_timings_and_makes_no_text(monkeypatch):
    monkeypatch.setattr(traces, "text_of", lambda node: pytest.fail("nobody reads it"))
    trace = Trace("kernel", Options())
    fn = doubled().ir
    trace.begin(fn)
    pipeline.lower(fn, parse_target("cpu", CHIPS), trace.stage)
    assert not trace.is_asked
    assert trace.folder is None
    assert [step.name for step in trace.steps] == PASSES
    assert len(timings(trace.steps)) == len(PASSES) + 1
