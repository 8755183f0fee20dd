"""The cases beside the checkout: small programs with a known outcome, run on the CPU, on a GPU
where there is one and, in `make simulate`, on models of GPUs.
"""

import importlib.util
import inspect
from pathlib import Path
from typing import Any

import pytest

CASES = Path(__file__).resolve().parents[3] / "shared" / "cases"

# Cases that need what later work brings, with what it is. `xfail` is strict: one that passes must
# leave this list.
LATER: dict[str, str] = {}


def files() -> list:
    found = sorted(CASES.glob("*.py")) if CASES.is_dir() else []
    return [
        pytest.param(
            file,
            id=file.stem,
            marks=[pytest.mark.xfail(reason=LATER[file.stem], strict=True)]
            if file.stem in LATER
            else [],
        )
        for file in found
    ]


def test_every_case_that_waits_for_later_work_exists():
    if not CASES.is_dir():
        pytest.skip("the cases are not beside this checkout")
    assert set(LATER) <= {file.stem for file in CASES.glob("*.py")}


@pytest.mark.parametrize("file", files())
def test_case(file, torch):
    module = loaded(file)
    torch.manual_seed(0)
    if "cpu" not in devices(module.__doc__ or ""):
        pytest.skip("the case says that it makes no sense on the CPU")
    module.run("cpu")


@pytest.mark.gpu
@pytest.mark.parametrize("file", files())
def test_case_on_a_gpu(file, torch):
    module = loaded(file)
    if not torch.cuda.is_available():
        pytest.skip("this torch has no GPU")
    if "cuda" not in devices(module.__doc__ or ""):
        pytest.skip("the case says that it makes no sense on a GPU")
    torch.manual_seed(0)
    module.run("cuda")


@pytest.mark.simulate
@pytest.mark.parametrize("target", ["simulate:sm_90a", "simulate:sm_100a"])
@pytest.mark.parametrize("file", files())
def test_case_on_a_model_of_a_gpu(file, target, torch):
    module = loaded(file)
    torch.manual_seed(0)
    if hasattr(module, "TARGET"):
        module.TARGET = {"cpu": target}
    module.run("cpu")


def loaded(file: Path) -> Any:
    """The module that a case is."""
    spec = importlib.util.spec_from_file_location(f"case_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def devices(text: str) -> str:
    """The `Devices:` line of a case. One that lists only cuda returns at once on the CPU.

    Some cases say in brackets what the CPU must do; those are run.
    """
    (line,) = [line for line in inspect.cleandoc(text).splitlines() if line.startswith("Devices:")]
    return line
