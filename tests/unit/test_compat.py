"""The modules and top-level names that programs import: what is real works, the rest says what it
is.
"""

import csv
import importlib
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang import testing
from tilelang.compat import devices
from tilelang.compat.modules import MODULES, REAL, REFUSED_NAMES, DeclaredModule
from tilelang.errors import TileError, TileNameError, TileNotImplementedError, TileValueError
from tilelang.profiler import do_bench
from tilelang.utils.tensor import TensorSupplyType, get_tensor_supply, torch_assert_close

HAS_TVM = "tvm" in REAL and not isinstance(importlib.import_module("tvm"), DeclaredModule)

# -- imports ---------------------------------------------------------------------------------------


def rows(folder: Path, name: str) -> list[dict[str, str]]:
    file = folder / "reference" / name
    if not file.is_file():
        pytest.skip(f"the reference table {name} is not beside this checkout")
    with file.open() as lines:
        return list(csv.DictReader(lines, delimiter="\t"))


def test_what_examples_and_libraries_import_is_there(shared: Path) -> None:
    missing = []
    for row in rows(shared, "api_imports.tsv"):
        module, name = row["module"], row["name"]
        if int(row["examples"]) + int(row["tilekernels"]) == 0 or module.startswith("tvm."):
            continue
        if module == "tvm" and name != "DataType":
            continue
        try:
            found = importlib.import_module(module)
            if name not in ("(module)", "*"):
                getattr(found, name)
        except (ImportError, AttributeError) as exc:
            missing.append(f"{module}.{name}: {exc}")
    assert missing == []


def test_top_level_names_in_use_are_there(shared: Path) -> None:
    names = [row["name"] for row in rows(shared, "api_counts_toplevel.tsv")]
    assert [n for n in names if not hasattr(tilelang, n)] == []
    assert set(names) - {"__file__"} <= set(dir(tilelang)) | set(names)


@pytest.mark.parametrize("module", sorted(MODULES))
def test_every_declared_module_can_be_imported(module: str) -> None:
    found = importlib.import_module(module)
    for name in REFUSED_NAMES.get(module, []):
        if f"{module}.{name}" in MODULES or name in REAL.get(module, {}):
            continue
        with pytest.raises(TileNotImplementedError, match=name):
            getattr(found, name)()


def test_a_module_of_tilelang_that_is_not_here_says_so() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"tilelang\.no_such .* docs/declared\.md"):
        importlib.import_module("tilelang.no_such")
    with pytest.raises(ImportError, match="not part of Tilewright"):
        exec("from tilelang.cuda import pipeline")


def test_a_real_module_comes_before_a_declared_one() -> None:
    assert importlib.import_module("tilelang.ir").__spec__.origin is not None
    assert importlib.import_module("tilelang.cuda.language") is T


@pytest.mark.skipif(HAS_TVM, reason="TVM itself is installed")
def test_of_tvm_there_is_the_dtype() -> None:
    space: dict[str, object] = {}
    exec("from tvm import DataType\nfrom tilelang import tvm", space)
    assert space["DataType"]("float16").bits == 16  # type: ignore[operator]
    with pytest.raises(ModuleNotFoundError, match="an object of TVM"):
        exec("from tvm import arith")
    with pytest.raises(TileNameError, match="an object of TVM"):
        _ = tilelang.tvm.target


def test_an_unknown_top_level_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such"):
        _ = tilelang.no_such


# -- sizes and devices -----------------------------------------------------------------------------


@pytest.mark.parametrize("x", [-3, 0, 1, 2, 3, 24, 40, 96, 100, 127, 128, 129])
def test_next_power_of_2(x: int) -> None:
    found = tilelang.math.next_power_of_2(x)
    assert found == next(p for p in (1 << n for n in range(40)) if p >= x)


@pytest.mark.parametrize("a", [-7, 0, 1, 24, 127])
@pytest.mark.parametrize("b", [-5, 1, 7, 24])
def test_cdiv_rounds_up(a: int, b: int) -> None:
    assert tilelang.math.cdiv(a, b) == int(np.ceil(a / b))


def test_a_compute_version_is_read_off_a_target() -> None:
    ampere = devices.determine_target("emulate:sm_80", return_object=True)
    assert devices.get_target_compute_version(ampere) == "8.0"
    assert devices.parse_compute_version("8.0") == (8, 0)
    assert isinstance(devices.determine_target("cpu"), str)
    for wrong in ("9", "9.x", "sm_90"):
        with pytest.raises(TileValueError, match="compute version"):
            devices.parse_compute_version(wrong)


def test_an_ascend_target_has_no_compute_version() -> None:
    ascend = devices.determine_target("emulate:ascend950", return_object=True)
    with pytest.raises(TileValueError, match="compute capability"):
        devices.get_target_compute_version(ascend)


def test_there_is_a_number_of_sms_without_a_device() -> None:
    driver = importlib.import_module("tilelang.carver.arch.driver")
    count = driver.get_num_sms()
    assert count >= 1
    if devices.device_version() is None:
        assert count == 132


# -- lower -----------------------------------------------------------------------------------------


def _copied() -> Any:
    @T.prim_func
    def kernel(A: T.Tensor((8, 32), "float"), B: T.Tensor((8, 32), "float")):
        with T.Kernel(1, threads=2, is_npu=True):
            a = T.alloc_ub((8, 32), "float")
            T.copy(A, a)
            T.copy(a, B)

    return kernel


def test_lower_gives_the_source_of_the_kernel() -> None:
    engine = importlib.import_module("tilelang.engine.lower")
    assert engine.lower is tilelang.lower is importlib.import_module("tilelang.engine").lower
    made, kernel = tilelang.lower(_copied()), tilelang.compile(_copied())
    assert "DataCopy" in made.kernel_source
    assert made.kernel_source == kernel.get_kernel_source()
    assert made.params == ["A", "B"] and str(made.target) == "simulate:ascend910b"


def test_what_lower_does_not_give_is_refused_by_name() -> None:
    with pytest.raises(TileNotImplementedError, match="rt_mod is a module of TVM"):
        _ = tilelang.lower(_copied()).rt_mod
    for name in ("runtime_only", "enable_host_codegen", "enable_device_compile"):
        with pytest.raises(TileNotImplementedError, match=f"lower: {name} has no meaning here"):
            tilelang.lower(_copied(), **{name: True})


# -- testing ---------------------------------------------------------------------------------------


def skip_mark(marked: Any) -> Any:
    """The mark that a `requires_*` put on a test last."""
    return marked.pytestmark[-1]


def test_requires_skips_with_the_reason() -> None:
    def test() -> None:
        return None

    mark = skip_mark(testing.requires_rocm(test))
    assert mark.args == (True,)
    assert "ROCm" in mark.kwargs["reason"]
    assert skip_mark(testing.requires_package("no_such_package_x")(test)).args == (True,)
    assert skip_mark(testing.requires_package("numpy")(test)).args == (False,)


@pytest.mark.parametrize(
    ("mode", "version", "fits"),
    [("ge", (9, 0), True), ("gt", (9, 0), False), ("lt", (10, 0), True), ("eq", (8, 9), False)],
)
def test_requires_compares_the_compute_version(
    monkeypatch: pytest.MonkeyPatch, mode: str, version: tuple[int, int], fits: bool
) -> None:
    monkeypatch.setattr(testing, "device_version", lambda: (9, 0))

    def test() -> None:
        return None

    requires = testing.requires_cuda_compute_version(*version, mode=mode)
    assert skip_mark(requires(test)).args == (not fits,)
    monkeypatch.setattr(testing, "device_version", lambda: None)
    requires = testing.requires_cuda_compute_version(*version, mode=mode)
    assert skip_mark(requires(test)).args == (True,)


def test_an_unknown_comparison_is_refused() -> None:
    with pytest.raises(TileError, match="mode"):
        testing.requires_cuda_compute_version(9, mode="near")


def test_a_seed_repeats_the_draws() -> None:
    draws = []
    for _ in range(2):
        testing.set_random_seed(7)
        draws.append((random.random(), float(np.random.rand())))
    assert draws[0] == draws[1]


# -- tensors ---------------------------------------------------------------------------------------


def test_close_tensors_may_differ_in_a_share_of_elements(torch) -> None:
    a = torch.ones(1000)
    b = a.clone()
    b[3] = 2.0
    assert torch_assert_close(a, b, max_mismatched_ratio=0.001)
    b[4] = 2.0
    with pytest.raises(AssertionError, match=r"2 of 1000 .* the first at \[3\]"):
        torch_assert_close(a, b, max_mismatched_ratio=0.001)


def test_shapes_and_dtypes_of_close_tensors_are_equal(torch) -> None:
    with pytest.raises(AssertionError, match="shape"):
        torch_assert_close(torch.ones(3), torch.ones(4))
    with pytest.raises(AssertionError, match="dtype"):
        torch_assert_close(torch.ones(3), torch.ones(3).half())
    assert torch_assert_close(torch.ones(3), torch.ones(3).half(), check_dtype=False)


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8", "uint8", "bool", "float8_e5m2"])
@pytest.mark.parametrize("kind", [TensorSupplyType.Auto, TensorSupplyType.Integer])
def test_tensors_are_supplied_for_each_dtype(torch, dtype: str, kind: TensorSupplyType) -> None:
    made = get_tensor_supply(kind)(SimpleNamespace(shape=(24, 40), dtype=dtype))
    assert made.shape == (24, 40)
    assert made.dtype == T.dtype(dtype).as_torch()
    if kind is TensorSupplyType.Integer:
        assert torch.equal(made.float(), made.float().round())


@pytest.mark.parametrize("dtype", ["int4", "uint2", "float4_e2m1fn", "float4_e2m1fnx2"])
@pytest.mark.parametrize("kind", TensorSupplyType)
def test_tensors_of_packed_elements_are_supplied_as_kernels_take_them(torch, dtype, kind) -> None:
    @T.prim_func
    def same(A: T.Tensor((4, 24), dtype), B: T.Tensor((4, 24), dtype)):
        with T.Kernel(1, threads=1):
            T.copy(A, B)

    made = get_tensor_supply(kind, "cpu")(SimpleNamespace(shape=(4, 24), dtype=dtype))
    assert made.dtype == T.dtype(dtype).as_torch()
    got = tilelang.compile(same, out_idx=1, target="emulate")(made)
    assert torch.equal(got.view(torch.uint8), made.view(torch.uint8))
    if kind is TensorSupplyType.One and not dtype.endswith("x2"):
        assert (
            tilelang.compile(same, out_idx=1, target="emulate")(made.view(torch.uint8).numpy()) == 1
        ).all()


def test_constant_supplies(torch) -> None:
    param = SimpleNamespace(shape=(7,), dtype="float32")
    assert get_tensor_supply(TensorSupplyType.Zero)(param).sum() == 0
    assert get_tensor_supply(TensorSupplyType.One)(param).sum() == 7
    with pytest.raises(TileValueError, match="extents"):
        get_tensor_supply()(SimpleNamespace(shape=("n",), dtype="float32"))


# -- timing ----------------------------------------------------------------------------------------
def test_do_bench_times_the_calls_asked_for() -> None:
    calls: list[int] = []
    taken = do_bench(lambda: calls.append(1), warmup=0, _n_warmup=2, _n_repeat=5)
    assert len(calls) == 1 + 2 + 5
    assert isinstance(taken, float)
    assert taken >= 0
    spread = do_bench(lambda: None, warmup=0, _n_repeat=9, quantiles=[0.0, 0.5, 1.0])
    assert isinstance(spread, list)
    assert spread == sorted(spread)


@pytest.mark.parametrize(
    "wrong", [{"return_mode": "mode"}, {"backend": "sundial"}, {"device": 0}, {"rep": -1}]
)
def test_do_bench_refuses_what_it_cannot_do(wrong: dict[str, Any]) -> None:
    with pytest.raises(TileError):
        do_bench(lambda: None, **wrong)


# -- settings and compilation ----------------------------------------------------------------------


def test_the_cache_switch_is_a_flag_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILELANG_DISABLE_CACHE", "0")
    assert tilelang.is_cache_enabled()
    tilelang.disable_cache()
    assert not tilelang.is_cache_enabled()
    tilelang.enable_cache()
    assert tilelang.is_cache_enabled()


def test_par_compile_keeps_the_order_and_the_gaps() -> None:
    assert tilelang.par_compile([]) == []
    with pytest.raises(TileError):
        tilelang.par_compile([None])
    assert tilelang.par_compile([None, None], ignore_error=True) == [None, None]


@pytest.mark.skipif(HAS_TVM, reason="TVM is installed, and its own module is found")
def test_expressions_of_tvm_compute_with_scalars() -> None:
    """Four bits of a byte become a float16: what programs with packed weights do."""
    tirx = importlib.import_module("tvm.tirx")

    def half(byte: Any, at: Any) -> Any:
        mask = tirx.const(15, T.uint16)
        four = (byte >> (at.astype(T.uint16) * tirx.const(4, T.uint16))) & mask
        sign, exponent = four >> tirx.const(3, T.uint16), (four >> 1) & 3
        bits = (sign << tirx.const(15, T.uint16)) | (exponent + 14 << 10) | ((four & 1) << 9)
        zero = tirx.const(0, T.float16)
        value = tirx.reinterpret(T.float16, tirx.Cast("uint16", bits))
        return tirx.Select(exponent == tirx.const(0, "uint16"), zero, tirx.Min(value, value))

    @T.prim_func
    def unpack(A: T.Tensor((8,), "uint8"), B: T.Tensor((16,), "float16")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(16):
                B[i] = half(A[i // 2], i % 2)

    a, b = np.arange(0, 256, 33, dtype=np.uint8), np.zeros(16, np.float16)
    tilelang.compile(unpack, target="emulate")(a, b)
    values = np.array([0, 0, 1, 1.5, 2, 3, 4, 6] * 2, np.float16)
    values[8:] *= -1
    want = values[np.stack((a & 15, a >> 4), axis=1).reshape(-1)]
    np.testing.assert_array_equal(b, want)
    assert tirx.const(1).dtype == "int32" and tirx.const(0.5).dtype == "float32"
