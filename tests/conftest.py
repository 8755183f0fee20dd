"""What every test can ask for: golden files, torch, a GPU, the programs beside the checkout."""

import ctypes
import difflib
import functools
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

# One thread for each worker of pytest-xdist: more only fight over the cores. NumPy reads it once.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import hypothesis
import pytest

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "golden"

# No deadline: a test is never judged by its time. Where CI is set, examples are the same each time.
hypothesis.settings.register_profile(
    "tilewright",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("tilewright")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tilewright")
    group.addoption("--update-golden", action="store_true", help="rewrite the golden files")
    group.addoption("--simulate", action="store_true", help="run the long sweeps of schedules too")
    group.addoption("--require-gpu", action="store_true", help="fail where there is no CUDA device")


@pytest.fixture(scope="session", autouse=True)
def kernel_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Compiled kernels of a test run are kept in a folder of its own, and not in the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILELANG_CACHE_DIR", str(tmp_path_factory.mktemp("kernels")))
        yield


# ---- GPU -----------------------------------------------------------------------------------------


@functools.cache
def no_gpu_reason() -> str | None:
    """Why no CUDA device can be used, None if one can. Asks the driver and nothing else."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no CUDA device: the driver library libcuda.so.1 is not installed"
    count = ctypes.c_int(0)
    code = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if code:
        return f"no CUDA device: the driver answers with error {code}"
    return None if count.value else "no CUDA device: the driver sees none"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items if not config.getoption("--simulate") else ():
        if item.get_closest_marker("simulate"):
            item.add_marker(pytest.mark.skip(reason="a long sweep: `make simulate`"))
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    reason = no_gpu_reason() if on_gpu or config.getoption("--require-gpu") else None
    if reason is None:
        return
    if config.getoption("--require-gpu"):
        raise pytest.UsageError(reason)
    for item in on_gpu:
        item.add_marker(pytest.mark.skip(reason=reason))


# ---- What may be missing -------------------------------------------------------------------------


@pytest.fixture(scope="session")
def torch() -> ModuleType:
    """The torch module; the test is skipped where it is not installed."""
    return pytest.importorskip("torch", reason="torch is not installed, and this compares with it")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with the programs and cases that this project was given, beside the checkout."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("the shared programs and cases are not beside this checkout")
    return folder


# ---- Golden files --------------------------------------------------------------------------------

# An absolute path that is left over: it would differ on the next machine.
_ABSOLUTE = re.compile(r"(?<![\w.<>~/-])/(?:home|mnt|opt|private|root|tmp|usr|var|work|Users)/\S*")


def normalised(text: str, places: dict[str, Path]) -> str:
    """`text` with each of `places` written as its name, and no space at the end of a line."""
    for name, place in sorted(places.items(), key=lambda item: -len(str(item[1]))):
        text = text.replace(str(place), f"<{name}>")
    left = _ABSOLUTE.search(text)
    if left:
        pytest.fail(f"golden text holds an absolute path: {left.group()}", pytrace=False)
    return "\n".join(line.rstrip() for line in text.rstrip().splitlines()) + "\n"


def compare_golden(file: Path, text: str, update: bool) -> None:
    """Fail with a diff unless `file` holds `text`; with `update`, write it instead."""
    shown = file.name
    if update:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return
    if not file.exists():
        pytest.fail(f"there is no golden file {shown} yet; `make golden` writes it", pytrace=False)
    stored = file.read_text()
    if stored != text:
        sides = (stored.splitlines(), text.splitlines())
        diff = "\n".join(difflib.unified_diff(*sides, f"{shown} (stored)", "this run", lineterm=""))
        pytest.fail(f"{diff}\nIf this is meant, `make golden` rewrites it.", pytrace=False)


@pytest.fixture
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str, str], None]:
    """`golden(text, "folder/name")` compares `text` with tests/golden/folder/name.txt.

    Paths of the checkout, its neighbour `shared`, the test's own folder and Python are written as
    <root>, <shared>, <tmp> and <python>. `make golden` rewrites the files.
    """
    update = bool(request.config.getoption("--update-golden"))
    places = {
        "root": ROOT,
        "shared": ROOT.parent / "shared",
        "tmp": tmp_path,
        "python": Path(sys.prefix),
    }
    seen: set[str] = set()

    def check(text: str, name: str) -> None:
        assert name not in seen, f"two golden texts of one test are named {name}"
        seen.add(name)
        compare_golden(GOLDEN / f"{name}.txt", normalised(text, places), update)

    return check
