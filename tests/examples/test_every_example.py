"""Every example checks itself, prints one line, has no findings, and stands in the table."""

import ast
import re
import sys

import pytest

from example_run import EXAMPLES, load

# These are longer, and have tests of their own.
LONGER = {"quickstart", "alloc_scopes"}
NAMES = sorted(p.stem for p in EXAMPLES.glob("*.py"))
SHORT = [name for name in NAMES if name not in LONGER]

# Examples about which `tilelang.check` has something to say, and the kinds of what it says; each of
# them says why.
KNOWN = {}


@pytest.mark.parametrize("name", SHORT)
def test_it_checks_itself_and_says_so_in_one_line(findings, capsys, name):
    load(name).main()
    out = capsys.readouterr().out
    assert out.startswith(f"{name}: ") and out.count("\n") == 1, out
    kinds = {d.kind for d in findings}
    assert kinds == KNOWN.get(name, set()), "\n".join(d.render() for d in findings[:4])


# Lowered for sm_90a and run on the model of it; the others take longer (`make simulate`).
QUICK = {
    "attention_forward",
    "cumulative_scan",
    "gemm_wgmma_async",
    "histogram",
    "norms",
    "quantize_fp8_per_token",
    "softmax",
}
NOT_ON_HOPPER = {"gemm_blockscaled"}
SIMULATED = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.simulate)
    for name in NAMES
    if name not in NOT_ON_HOPPER | {"alloc_scopes"}
]


@pytest.mark.parametrize("name", SIMULATED)
def test_it_gives_the_same_on_the_simulator(monkeypatch, capsys, name):
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "simulate:sm_90a")
    load(name).main()
    assert name == "quickstart" or capsys.readouterr().out.startswith(f"{name}: ")


@pytest.mark.parametrize("name", NAMES)
def test_it_needs_nothing_but_numpy_and_ml_dtypes(name):
    tree = ast.parse((EXAMPLES / f"{name}.py").read_text())
    imports = [n for n in ast.walk(tree) if isinstance(n, (ast.Import, ast.ImportFrom))]
    roots = {
        (n.module or "" if isinstance(n, ast.ImportFrom) else alias.name).partition(".")[0]
        for n in imports
        for alias in n.names
    }
    assert roots <= {"tilelang", "numpy", "ml_dtypes", *NAMES, *sys.stdlib_module_names}


def test_the_table_lists_every_example():
    listed = re.findall(r"^\| \[(\w+)\.py\]\((\w+)\.py\) \|", README.read_text(), re.MULTILINE)
    assert sorted(text for text, _ in listed) == NAMES
    assert all(text == link for text, link in listed)


README = EXAMPLES / "README.md"
