"""The command: exit codes, what is printed, and that a fault is never a traceback."""

import contextlib
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tilelang.cli import doctor, inputs, main, tables
from tilelang.cli.kernels import UsageError, parse_spec
from tilelang.cli.tables import aligned
from tilelang.ir.tile import Function
from tilelang.runtime import installation
from tilelang.targets import CHIPS

KERNELS = """
import tilelang
import tilelang.language as T

LIMIT = 3


@tilelang.jit(out_idx=-1)
def scaled(n, factor=2.0, dtype="float32"):
    @T.prim_func
    def kernel(X: T.Tensor((n,), dtype), Y: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, 128), threads=128) as bx:
            for i in T.Parallel(128):
                Y[bx * 128 + i] = X[bx * 128 + i] * factor

    return kernel


def workspace(n):
    @T.prim_func
    def kernel(X: T.Tensor((n,), "float32"), Y: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, 128), threads=128) as bx:
            ws = T.alloc_global((128,), "float32")
            for i in T.Parallel(128):
                ws[i] = X[bx * 128 + i]
                Y[bx * 128 + i] = ws[i]

    return kernel


def tensor_memory(columns):
    @T.prim_func
    def kernel(A: T.Tensor((16,), "float32")):
        with T.Kernel(1, threads=128):
            C_t = T.alloc_tmem((128, columns), "float32")

    return kernel


def dynamic():
    n = T.dynamic("n")

    @T.prim_func
    def kernel(X: T.Tensor((n, 4), "int8"), k: T.int32, Y: T.Tensor((n, 4), "int32")):
        with T.Kernel(n, threads=32) as bx:
            for j in T.Parallel(4):
                Y[bx, j] = X[bx, j] * k

    return kernel


def unread(n):
    @T.prim_func
    def kernel(Y: T.Tensor((n,), "float32")):
        with T.Kernel(1, threads=32):
            tile = T.alloc_shared((n,), "float32")
            T.copy(tile, Y)

    return kernel


def broken(n):
    return 1 // n


def wrong(n):
    @T.prim_func
    def kernel(Y: T.Tensor((n,), "float32")):
        with T.Kernel(1, threads=32):
            Y[0] = T.no_such_function(1)

    return kernel


def helper(x):
    return x


@T.prim_func
def ready(Y: T.Tensor((16,), "float32")):
    with T.Kernel(1, threads=16):
        T.fill(Y, 1.0)
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file of kernels in the working directory; its name."""
    (tmp_path / "kernels.py").write_text(KERNELS)
    monkeypatch.chdir(tmp_path)
    return "kernels.py"


def line(text: str) -> int:
    return KERNELS[: KERNELS.index(text)].count("\n") + 1


@pytest.fixture
def command(capsys):
    """Carry out a command line: its exit code, output, and errors."""

    def carry_out(*words: str) -> tuple[int, str, str]:
        code = main(words)
        seen = capsys.readouterr()
        assert "Traceback" not in seen.out + seen.err
        return code, seen.out, seen.err

    return carry_out


# ---- Names of kernels ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "args", "kwargs"),
    [
        ("f", (), {}),
        ("f()", (), {}),
        ("f(128, 64)", (128, 64), {}),
        ("f(-1, n=(1, 2), dtype='float16')", (-1,), {"n": (1, 2), "dtype": "float16"}),
        ("f(flag=True)", (), {"flag": True}),
        ("f('a::b')", ("a::b",), {}),
        (" f ( [1, None], {'a': 0.5} ) ", ([1, None], {"a": 0.5}), {}),
    ],
)
def test_arguments_are_read_as_literals(file, text, args, kwargs):
    spec = parse_spec(f"{file}::{text}")
    assert (spec.name, spec.args, dict(spec.kwargs)) == ("f", args, kwargs)


@pytest.mark.parametrize(
    "text", ["f(x)", "f(1+", "f(g(1))", "f.g(1)", "f(*[1])", "f(**{})", "1", "f(1 if 2 else 3)", ""]
)
def test_nothing_is_evaluated(file, text):
    with pytest.raises(UsageError):
        parse_spec(f"{file}::{text}")


def test_a_file_alone_lists_the_ways_to_a_kernel_with_their_parameters(file, command):
    for word in ("check", "show"):
        code, out, _ = command(word, file)
        assert code == 0
        assert "scaled(n, factor=2.0, dtype='float32')  @tilelang.jit" in out
        assert "workspace(n)" in out
        assert "ready " in out
        assert "@T.prim_func" in out
        assert "helper" not in out
        assert "broken" not in out


def test_a_file_without_kernels_says_so(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("empty.py").write_text("x = 1\n")
    code, out, _ = command("check", "empty.py")
    assert code == 1
    assert "empty.py has no kernel" in out


# ---- Exit codes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("check", "missing.py"), "there is no file missing.py"),
        (("check", "kernels.py::nothing(1)"), "kernels.py has no nothing"),
        (("check", "kernels.py::workspce(1)"), "did you mean workspace?"),
        (("check", "kernels.py::scaled()"), "missing a required argument: 'n'"),
        (("check", "kernels.py::scaled(1, size=2)"), "unexpected keyword argument 'size'"),
        (("check", "kernels.py::scaled(n)"), "an argument is not a literal"),
        (("check", "kernels.py::ready(1)"), "takes no arguments"),
        (("check", "kernels.py::helper(1)"), "does not give a kernel"),
        (("check", "kernels.py::LIMIT"), "is no function"),
        (("check", "kernels.py::ready", "--target", "emulate:sm_91"), "unknown chip 'sm_91'"),
        (("run", "kernels.py::dynamic()"), "n needs a value"),
        (("run", "kernels.py::dynamic()", "--args", "n=2"), "k needs a value"),
        (("run", "kernels.py::dynamic()", "--args", "n=2", "k=x"), "k is a number"),
        (("run", "kernels.py::ready", "--args", "Z=zeros"), "ready has no parameter Z"),
        (("run", "kernels.py::ready", "--args", "Y"), "NAME=VALUE"),
        (("run", "kernels.py::ready", "--args", "Y=twos"), "the contents of Y"),
        (("run", "kernels.py::ready", "--args", "Y=none.npy"), "cannot be read from none.npy"),
        (("scopes", "--chip", "sm_91"), "unknown chip sm_91"),
    ],
)
def test_a_command_line_that_cannot_be_carried_out_is_2(file, command, words, says):
    code, out, err = command(*words)
    assert (code, out) == (2, "")
    assert says in err


@pytest.mark.parametrize("words", [[], ["fly"], ["check"], ["show", "x.py", "--stage", "ptx"]])
def test_unknown_words_are_2(words, capsys):
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    assert "usage: tilewright" in capsys.readouterr().err


def test_an_exception_of_the_authors_code_is_shown_at_its_line(file, command):
    code, out, err = command("run", f"{file}::broken(0)")
    assert (code, out) == (1, "")
    assert "ZeroDivisionError" in err
    assert f"kernels.py:{line('return 1 // n')}:12, in broken" in err
    assert "^^^^^^" in err


def test_a_file_that_does_not_parse_is_shown_at_its_line(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("bad.py").write_text("x = 1\ny = (\n")
    code, _, err = command("check", "bad.py")
    assert code == 1
    assert "bad.py:2:" in err
    assert "error[syntax]" in err


def test_a_refused_program_is_1_with_its_message(file, command):
    code, out, err = command("run", f"{file}::tensor_memory(96)", "--target", "emulate:sm_90a")
    assert (code, out) == (1, "")
    assert err.startswith("error[scope]: sm_90a (Hopper) has no Tensor Memory")
    code, _, err = command("show", f"{file}::wrong(16)")
    assert code == 1
    assert f"kernels.py:{line('T.no_such_function')}:" in err


def test_a_target_that_cannot_run_here_is_1(file, command):
    code, _, err = command("run", f"{file}::ready", "--target", "ascend")
    assert code == 1
    assert "target 'ascend' cannot run here" in err
    assert "simulate:ascend950" in err.partition("help:")[2]


# ---- check ---------------------------------------------------------------------------------------


def test_check_prints_the_findings_and_then_the_memory(file, command):
    code, out, _ = command("check", f"{file}::workspace(256)")
    assert code == 1
    finding, memory = out.index("warning[race]"), out.index("memory of kernel")
    assert finding < out.index("1 warning") < memory
    assert f"kernels.py:{line('ws[i] = X')}:" in out
    code, out, _ = command("check", f"{file}::workspace(128)")
    assert code == 0
    assert "no findings" in out


def test_notes_are_no_findings(file, command):
    code, out, _ = command("check", f"{file}::tensor_memory(96)", "--target", "emulate:sm_100a")
    assert code == 0
    assert "note[capacity]: C_t takes 128 columns" in out
    assert "Tensor Memory: 128 of 512 columns" in out


def test_check_as_json(file, command):
    words = (f"{file}::tensor_memory(600)", "--target", "emulate:sm_100a", "--json")
    code, out, _ = command("check", *words)
    facts = json.loads(out)
    assert code == 1
    assert facts["kernel"] == f"{file}::tensor_memory(600)"
    assert facts["target"] == "emulate:sm_100a"
    (error,) = [f for f in facts["findings"] if f["severity"] == "error"]
    assert error["kind"] == "capacity"
    assert error["location"]["file"] == file
    assert error["location"]["line"] == line("C_t = T.alloc_tmem")
    (total,) = facts["memory"]["launches"][0]["totals"]
    assert (total["used"], total["capacity"], total["fits"]) == (1024, 512, False)


def test_check_as_json_of_a_program_that_cannot_be_traced(file, command):
    code, out, _ = command("check", f"{file}::wrong(16)", "--json")
    facts = json.loads(out)
    assert code == 1
    assert [f["kind"] for f in facts["findings"]] == ["name"]
    assert facts["memory"] is None


def test_check_uses_the_kernels_own_target_unless_told_otherwise(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = KERNELS.replace("@tilelang.jit(out_idx=-1)", "@tilelang.jit(target='emulate:sm_89')")
    Path("own.py").write_text(text)
    assert (
        json.loads(command("check", "own.py::scaled(16)", "--json")[1])["target"] == "emulate:sm_89"
    )
    chosen = command("check", "own.py::scaled(16)", "--json", "--target", "cpu")[1]
    assert json.loads(chosen)["target"] == "cpu"


@pytest.mark.parametrize(
    ("module", "launch", "allocate", "chip"),
    [
        ("language", "T.Kernel(1, is_npu=True) as (bx, vid)", "alloc_ub", "ascend910b"),
        ("ascend.language", "T.Kernel(1) as bx", "alloc_shared", "ascend950"),
    ],
)
@pytest.mark.parametrize("more", [[], ["--dynamic"]])
def test_a_kernel_of_an_ascend_dialect_is_checked_for_its_chip(
    command, tmp_path, module, launch, allocate, chip, more
):
    path = tmp_path / "twice.py"
    path.write_text(
        f"import tilelang.{module} as T\n\n\n"
        "@T.prim_func\ndef kernel(X: T.Tensor((64,), 'float32')):\n"
        f"    with {launch}:\n"
        f"        u = T.{allocate}((64,), 'float32')\n"
        "        T.copy(X, u)\n        T.copy(u, X)\n"
    )
    code, out, _ = command("check", f"{path}::kernel", *more)
    assert f"under the rules of {chip}" in out
    assert code == bool(more and chip == "ascend910b"), out  # flags are the author's there


@pytest.mark.parametrize("name", ["moved(64)", "kernel"])
@pytest.mark.parametrize("configs", ["{'tl.ascend_auto_sync': True}", "None"])
def test_check_takes_the_pass_configs_of_a_jit_kernel(command, tmp_path, configs, name):
    path = tmp_path / "moved.py"
    path.write_text(
        "import tilelang\nimport tilelang.language as T\n\n\n"
        f"@tilelang.jit(pass_configs={configs})\ndef moved(n):\n"
        "    @T.prim_func\n"
        "    def kernel(X: T.Tensor((2, n), 'float32'), Y: T.Tensor((2, n), 'float32')):\n"
        "        with T.Kernel(1, is_npu=True) as (bx, vid):\n"
        "            u = T.alloc_ub((1, n), 'float32')\n"
        "            T.copy(X[vid, 0], u)\n            T.copy(u, Y[vid, 0])\n"
        "    return kernel\n\n\n"
        "kernel = moved(64)\n"
    )
    code, out, _ = command("check", f"{path}::{name}", "--dynamic")
    assert ("race" in out, code) == ((False, 0) if configs != "None" else (True, 1)), out


def test_dynamic_checks_run_the_kernel(file, command):
    assert command("check", f"{file}::unread(16)", "--target", "cpu")[0] in (0, 1)
    code, out, _ = command("check", f"{file}::unread(16)", "--dynamic")
    assert code == 1
    assert "uninitialised" in out
    code, out, _ = command("check", f"{file}::dynamic()", "--args", "n=3", "k=2")
    assert code == 0, out


# ---- run -----------------------------------------------------------------------------------------


def test_run_takes_the_settings_of_a_kernel(command, tmp_path):
    path = tmp_path / "scaled.py"
    path.write_text(
        "import tilelang\nimport tilelang.language as T\n\n\n"
        "@T.prim_func\n"
        "def scaled(X: T.Tensor((64,), 'float32'), Y: T.Tensor((64,), 'float32')):\n"
        "    with T.Kernel(1, threads=64):\n"
        "        for i in T.Parallel(64):\n            Y[i] = X[i] * 2\n\n\n"
        "configs = {'tl.ptxas_register_usage_level': 5}\n"
        "kernel = tilelang.compile(scaled, out_idx=-1, target='cpu', pass_configs=configs)\n"
    )
    code, out, _ = command("run", f"{path}::kernel")
    assert code == 0
    assert "tl.ptxas_register_usage_level" in out  # has no effect on the CPU: so it was passed on
    assert "returned" in out


def test_run_says_what_each_parameter_holds(file, command):
    code, out, _ = command("run", f"{file}::scaled(100)", "--args", "X=arange")
    assert code == 0
    assert "scaled(100) on cpu: " in out
    x, y = (row.split() for row in out.splitlines()[2:4])
    assert x == ["X", "100", "float32", "read", "0", "99", "49.5", "0"]
    assert y == ["Y", "100", "float32", "returned", "0", "198", "99", "0"]


def test_run_says_what_was_written_and_counts_nan(file, command):
    code, out, _ = command("run", f"{file}::workspace(100)", "--args", "X=nan", "Y=ones")
    assert code == 0
    x, y = (row.split() for row in out.splitlines() if row[:1] in "XY" and "float32" in row)
    assert x[3:] == ["read", "-", "-", "-", "100"]
    assert y[3:] == ["written", "-", "-", "-", "100"]


def test_run_takes_sizes_and_scalars(file, command):
    words = ("--args", "n=5", "k=-3", "X=ones")
    code, out, _ = command("run", f"{file}::dynamic()", *words)
    assert code == 0
    rows = {row.split()[0]: row.split() for row in out.splitlines()}
    assert rows["k"] == ["k", "int32", "scalar", "-3"]
    assert rows["Y"][:7] == ["Y", "5x4", "int32", "written", "-3", "-3", "-3"]


def test_run_takes_an_array_from_a_file(file, command):
    np.save("x.npy", np.full(100, 4, np.float32))
    _, out, _ = command("run", f"{file}::scaled(100)", "--args", "X=x.npy")
    assert out.splitlines()[3].split()[3:7] == ["returned", "8", "8", "8"]


def test_two_runs_see_the_same_random_data(file, command):
    rows = [command("run", f"{file}::scaled(100)")[1].splitlines()[2:] for _ in range(2)]
    assert rows[0] == rows[1]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn", "int8", "uint8", "bool"])
def test_made_up_data_exists_for_each_kind_of_type(file, command, dtype):
    factor = 1 if dtype[0] in "iub" and dtype != "bfloat16" else 1.0
    spec = f"{file}::scaled(100, {factor}, dtype='{dtype}')"
    code, out, err = command("run", spec)
    if dtype == "bool":
        return  # whether bool times a number is allowed is the language's business
    assert code == 0, err
    assert f"100  {dtype}" in out


def test_a_file_runs_as_a_program(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("neighbour.py").write_text("NAME = 'next door'\n")
    Path("program.py").write_text(
        "import sys, neighbour, os\n"
        "print(__name__, neighbour.NAME, sys.argv[1:], os.environ.get('TILELANG_DEFAULT_TARGET'))\n"
        "sys.exit(int(sys.argv[1]))\n"
    )
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cpu")
    words = ("--target", "emulate", "--args", "3", "--flag")
    code, out, _ = command("run", "program.py", *words)
    assert code == 3
    assert out == "__main__ next door ['3', '--flag'] emulate\n"


# ---- scopes --------------------------------------------------------------------------------------


def test_scopes_as_json_has_every_function_of_every_dialect_and_version(command):
    code, out, _ = command("scopes", "--json")
    facts = json.loads(out)
    keys = [(e["dialect"], e["function"], e["version"]) for e in facts["scopes"]]
    assert code == 0
    assert len(set(keys)) == len(keys)
    assert ("adapter", "alloc_ub", "0.1.2.000") in keys
    assert ("adapter", "alloc_ub", "0.1.4") in keys


def test_scopes_of_one_chip_are_those_of_the_dialects_it_runs(command):
    facts = json.loads(command("scopes", "--json", "--chip", "ascend950")[1])
    assert {e["dialect"] for e in facts["scopes"]} == {"ascend"}
    (l0c,) = [e for e in facts["scopes"] if e["function"] == "alloc_l0c"]
    assert [c["amount"] for c in l0c["capacity"]["ascend950"]] == [262_144]
    assert all(c["source"] for c in l0c["capacity"]["ascend950"])
    out = command("scopes", "--chip", "ascend950")[1]
    assert "262,144" in out
    assert "source: " in out
    assert "sm_90a" not in out


def test_scopes_compared(command):
    facts = json.loads(command("scopes", "--compare", "--json")[1])
    (ub,) = [m for m in facts["memories"] if m["memory"] == "ub"]
    assert [s["function"] for s in ub["spellings"]["ascend"]] == ["alloc_shared"]
    (shared,) = [each["memories"] for each in facts["clashes"] if each["scope"] == "shared"]
    assert shared == {"common": "shared", "ascend": "ub", "adapter": "ub_or_l1"}
    out = command("scopes", "--compare")[1]
    assert "alloc_ub 'shared.ub'" in out


def test_static_shared_memory_has_its_own_line(command):
    out = command("scopes")[1]
    (static,) = [row for row in out.splitlines() if "static allocations only" in row]
    assert static.count("49,152") == sum(chip.backend == "cuda" for chip in CHIPS)


# ---- doctor --------------------------------------------------------------------------------------


def test_doctor_says_what_runs_and_why_not_more(command):
    code, out, _ = command("doctor")
    assert code == 0, out
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in out
    rows = {row.split()[0]: row for row in out.splitlines() if row.strip()}
    assert "runs" in rows["emulate:sm_100a"]
    assert all("runs" in rows[f"simulate:{chip}"] for chip in ("sm_80", "sm_90a", "ascend950"))
    assert "no problems found" in out
    facts = json.loads(command("doctor", "--json")[1])
    assert facts["problems"] == []
    assert facts["packages"]["numpy"] == np.__version__


def test_doctor_names_a_setting_that_is_wrong(command, monkeypatch):
    monkeypatch.setenv("TILELANG_VERBOSE", "maybe")
    code, out, _ = command("doctor")
    assert code == 1
    assert "TILELANG_VERBOSE" in out.partition("problem: ")[2]


def test_doctor_lists_settings_and_those_without_effect(command, monkeypatch):
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "emulate")
    monkeypatch.setenv("TILELANG_PASS_DIFF", "1")
    out = command("doctor")[1]
    assert "setting: TILELANG_DEFAULT_TARGET=emulate" in out
    assert "setting: TILELANG_PASS_DIFF has no effect" in out


def test_doctor_names_a_missing_package(monkeypatch):
    monkeypatch.setattr(doctor, "_version", lambda name: None if name == "rich" else "1")
    assert any(p.startswith("rich is not installed") for p in doctor.examine({}).problems)


def site_packages(folder: Path, *distributions: tuple[str, str, str]) -> Path:
    """A folder with the records of distributions: name, version, a file that it owns."""
    for name, version, owned in distributions:
        info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "RECORD").write_text(f"{owned},,\n")
    return folder


def test_other_owners_of_the_folder_are_found_by_name_and_by_file(tmp_path):
    path = site_packages(
        tmp_path,
        ("tilewright", "0.1", "tilelang/__init__.py"),
        ("tilelang", "0.1.15", "tilelang/__init__.py"),
        ("tilelang-ascend", "0.1.2", "tilelang/jit/__init__.py"),
        ("tilelang-notes", "1.0", "notes/tilelang/__init__.py"),
    )
    owners = installation.foreign_owners([str(path)])
    assert owners == ["tilelang 0.1.15", "tilelang-ascend 0.1.2"]


def test_doctor_says_to_use_a_fresh_environment_for_a_mixed_install(monkeypatch, command):
    monkeypatch.setattr(doctor, "foreign_owners", lambda: ["tilelang 0.1.15"])
    code, out, _ = command("doctor")
    assert code == 1
    assert "tilelang 0.1.15 is installed in this environment too" in out
    assert "fresh environment" in out


def test_an_import_warns_of_a_mixed_install_and_is_silent_otherwise(tmp_path, monkeypatch, recwarn):
    assert not installation.is_mixed()
    installation.warn_if_mixed()
    assert not recwarn.list
    (tmp_path / "_ffi_api.py").touch()
    assert installation.is_mixed(str(tmp_path))
    monkeypatch.setattr(installation, "is_mixed", lambda: True)
    with pytest.warns(RuntimeWarning, match="fresh environment"):
        installation.warn_if_mixed()


def test_an_import_looks_for_a_mixed_install():
    code = (
        "import os; exists = os.path.exists; seen = []\n"
        "os.path.exists = lambda p: seen.append(str(p)) or exists(p)\n"
        "import tilelang; print(any(p.endswith('_ffi_api.py') for p in seen))"
    )
    env = {"PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout == "True\n"


# ---- Tables and inputs ---------------------------------------------------------------------------


def test_columns_of_numbers_are_aligned_to_the_right():
    lines = aligned(("name", "n"), [("a", "1"), ("bcd", "1,000"), ("e", "-")])
    assert lines == ["name      n", "a         1", "bcd   1,000", "e         -"]


def test_a_terminal_gets_a_drawn_table_with_the_text_as_it_is(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", "60")
    screen = Terminal()
    with contextlib.redirect_stdout(screen):
        tables.show(("name", "text"), [("[bold]", "a [link] b")])
    assert "[bold]" in screen.getvalue()
    assert "a [link] b" in screen.getvalue()
    assert "│" in screen.getvalue()


def test_the_commands_without_a_terminal_do_not_load_rich():
    code = (
        "import sys, io, contextlib\n"
        "from tilelang.cli import main\n"
        "with contextlib.redirect_stdout(io.StringIO()): main(['scopes'])\n"
        "print('rich' in sys.modules)"
    )
    env = {"PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


def test_a_strided_parameter_gets_an_array_with_its_strides():
    import tilelang.language as T

    @T.prim_func
    def kernel(A: T.StridedTensor((3, 4), (8, 2), "float32")):
        with T.Kernel(1, threads=32):
            T.clear(A)

    fn: Function = kernel.ir
    made = inputs.arguments(fn, (), {"A": "arange"})["A"]
    assert made.tolist() == np.arange(12).reshape(3, 4).tolist()
    assert [s // 4 for s in made.strides] == [8, 2]


def test_what_the_machine_cannot_hold_is_said_in_words(tmp_path, capsys):
    file = tmp_path / "kernel.py"
    file.write_text(
        "import tilelang.language as T\n"
        "def huge(n):\n"
        "    @T.prim_func\n"
        "    def kernel(A: T.Tensor((n,), 'float32')):\n"
        "        with T.Kernel(1, threads=32):\n"
        "            A[0] = 1.0\n"
        "    return kernel\n"
    )
    assert main(["run", f"{file}::huge({10**15})"]) == 1
    err = capsys.readouterr().err
    assert "error[capacity]" in err and "Traceback" not in err
