"""benchmarks/cuda.py beside a package that stops half-way."""

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("torch")
PAGE = Path(__file__).resolve().parents[2] / "benchmarks" / "cuda.py"


@pytest.fixture
def benchmark():
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("benchmark_cuda", PAGE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_rows_done_before_the_limit_are_kept(benchmark, tmp_path, capsys):
    slow = tmp_path / "slow.py"
    slow.write_text(
        "import time\n"
        "print('a remark', flush=True)\n"
        'print(\'{"add": {"unit": "GB/s", "ours": 2.0}}\', flush=True)\n'
        "time.sleep(60)\n"
    )
    benchmark.__file__ = str(slow)
    found = benchmark.upstream(tmp_path, [], 3)
    assert found == {"add": {"unit": "GB/s", "ours": 2.0}}
    assert "stopped after 3 s" in capsys.readouterr().err


def test_a_row_that_upstream_did_not_reach_is_blank(benchmark):
    row = {"unit": "GB/s", "ours": 4.0, "low": 3.0, "high": 5.0, "torch": 8.0}
    row |= {"compile": 1.0, "device compiler": 0.5}
    text = benchmark.table({"add": row, "softmax": row}, {"add": {"unit": "GB/s", "ours": 2.0}})
    add, softmax = text.splitlines()[2:]
    assert "| 2 | 2.00 |" in add
    assert "| 8 | 0.50 |  |  |" in softmax
