"""The project itself: versions, what an import loads, golden files, the generated pages."""

import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def python(code: str, **env: str) -> str:
    """What a fresh interpreter prints, with only this checkout's package in reach."""
    command = [sys.executable, "-c", code]
    clean = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **env}
    done = subprocess.run(command, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_version_names_upstream_and_us():
    version = python("import tilelang; print(tilelang.__version__)")
    assert re.fullmatch(r"0\.1\.15\+tilewright\.\d+\.\d+\.\d+", version)


def test_the_version_has_one_source():
    version = python("import tilelang._version as v; print(v.__version__)")
    assert PROJECT["project"]["dynamic"] == ["version"]
    try:
        installed = importlib.metadata.version("tilewright")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("tilewright is not installed here, only on the path")
    assert installed == version


@pytest.mark.parametrize("package", ["tilelang", "tilelang.language", "tilelang.ascend.language"])
def test_importing_loads_no_extra_and_nothing_heavy(package):
    heavy = ["torch", "z3", "cuda", "matplotlib", "optuna", "cupy", "llvmlite", "rich"]
    code = f"import {package}, sys; print([m for m in {heavy} if m in sys.modules])"
    assert python(code) == "[]"


def test_importing_reads_no_option_from_a_bad_environment():
    assert python("import tilelang; print('ok')", TILELANG_VERBOSE="maybe") == "ok"


def test_what_the_code_imports_is_declared():
    """Every distribution that src/ imports is a dependency or belongs to an extra."""
    declared = {"ml_dtypes", "numpy", "llvmlite", "rich"} | {"cuda", "z3", "torch"}
    declared |= {"matplotlib", "optuna", "ascendnpuir", "tilelang", *sys.stdlib_module_names}
    pattern = re.compile(r"^\s*(?:from|import)\s+([A-Za-z_]\w*)", re.MULTILINE)
    for file in (ROOT / "src").rglob("*.py"):
        code = re.sub(r'"""(?:.|\n)*?"""', "", file.read_text())
        assert set(pattern.findall(code)) <= declared, file


def test_development_tools_have_exact_versions():
    pins = PROJECT["project"]["optional-dependencies"]["dev"]
    assert all(re.fullmatch(r"[a-z-]+==[\d.]+", pin) for pin in pins)


def test_generated_pages_are_up_to_date():
    command = [sys.executable, str(ROOT / "tools" / "docs.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_layer_of_the_package_is_in_the_import_contract():
    (contract, *_) = PROJECT["tool"]["importlinter"]["contracts"]
    named = set(re.findall(r"\w+", " ".join(contract["layers"])))
    package = ROOT / "src" / "tilelang"
    present = {p.name for p in package.iterdir() if (p / "__init__.py").exists()}
    present |= {p.stem for p in package.glob("*.py")} - {"__init__"}
    assert present <= named


# ---- The golden-file fixture, which other tests lean on ------------------------------------------

GOLDEN_TEST = """
def test_it(golden, tmp_path):
    golden({text}, "sub/name")
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small project that uses this one's conftest."""
    tests = tmp_path / "inner" / "tests"
    tests.mkdir(parents=True)
    (tests / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (tests.parent / "pyproject.toml").write_text("[tool.pytest.ini_options]\nmarkers = ['gpu']\n")
    return tests.parent


def run(project: Path, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", *arguments]
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    done = subprocess.run(
        command, cwd=project, env=env, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_a_golden_file_is_written_compared_and_shown_as_a_diff(project):
    test = project / "tests" / "test_it.py"
    test.write_text(GOLDEN_TEST.format(text='"one\\ntwo  \\n"'))
    code, out = run(project)
    assert code == 1
    assert "no golden file name.txt yet; `make golden` writes it" in out
    assert run(project, "--update-golden")[0] == 0
    assert (project / "tests" / "golden" / "sub" / "name.txt").read_text() == "one\ntwo\n"
    assert run(project)[0] == 0
    test.write_text(GOLDEN_TEST.format(text='"one\\nthree\\n"'))
    code, out = run(project)
    assert code == 1
    assert "-two\n" in out
    assert "+three\n" in out


def test_golden_text_holds_no_absolute_path(project):
    test = project / "tests" / "test_it.py"
    test.write_text(GOLDEN_TEST.format(text='f"at {tmp_path}/a.py and {__file__}"'))
    assert run(project, "--update-golden")[0] == 0
    stored = (project / "tests" / "golden" / "sub" / "name.txt").read_text()
    assert stored == "at <tmp>/a.py and <root>/tests/test_it.py\n"
    test.write_text(GOLDEN_TEST.format(text='"at /home/someone/a.py"'))
    code, out = run(project, "--update-golden")
    assert code == 1
    assert "absolute path: /home/someone/a.py" in out


def test_gpu_tests_say_why_they_are_skipped(project):
    """Where there is a device they run, and then `--require-gpu` changes nothing."""
    test = project / "tests" / "test_it.py"
    test.write_text("import pytest\n\n@pytest.mark.gpu\ndef test_it():\n    pass\n")
    code, out = run(project, "-rs")
    assert code == 0
    strict, message = run(project, "--require-gpu")
    if "1 passed" in out:
        assert strict == 0
    else:
        assert "no CUDA device: the driver" in out
        assert strict != 0
        assert "no CUDA device" in message
