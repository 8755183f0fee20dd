"""The program that the project is built from, unchanged: every kernel, every scope it states."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import ml_dtypes
import numpy as np
import pytest

import tilelang
import tilelang.ascend.language as TA
import tilelang.language as T
from tilelang.cli import main
from tilelang.cli.port import ported
from tilelang.errors import Severity, TileError, errors_of
from tilelang.scopes import Memory

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT.parent / "shared" / "programs" / "alloc_scopes.py"

pytestmark = pytest.mark.skipif(
    not PROGRAM.exists(), reason="the seed program is not beside this checkout"
)


def module_from(path: Path) -> ModuleType:
    """A file as a module, named after it."""
    spec = importlib.util.spec_from_file_location(f"seed_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def seed() -> ModuleType:
    return module_from(PROGRAM)


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


def line_of(text: str) -> int:
    """The line of the program that contains `text`, which occurs once."""
    lines = PROGRAM.read_text().splitlines()
    (found,) = [n for n, line in enumerate(lines, 1) if text in line]
    return found


def refusal(func, target: str) -> str:
    """The text with which a function is refused for a target; `check` must say the same."""
    with pytest.raises(TileError) as caught:
        tilelang.compile(func, target=target)
    said = {d.message for d in errors_of(tilelang.check(func, target))}
    assert {d.message for d in caught.value.diagnostics} == said
    return str(caught.value)


# ---- scope_showcase ------------------------------------------------------------------------------

SIZES = [(256, 384, 128), (200, 129, 72)]


@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_scope_showcase_halves_the_product(seed, random, m, n, k):
    a = random.standard_normal((m, k)).astype(np.float16)
    b = random.standard_normal((k, n)).astype(np.float16)
    c = np.full((m, n), np.nan, np.float16)
    seed.scope_showcase(m, n, k)(a, b, c)
    want = 0.5 * (a.astype(np.float32) @ b.astype(np.float32))
    np.testing.assert_allclose(c, want, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("target", ["cpu", "emulate", "emulate:sm_80", "emulate:sm_90a"])
def test_scope_showcase_compiles_from_its_tir_for_every_target(seed, random, target):
    m, n, k = 200, 129, 72
    kernel = tilelang.compile(seed.scope_showcase.get_tir(m, n, k), out_idx=-1, target=target)
    a = random.standard_normal((m, k)).astype(np.float16)
    b = random.standard_normal((k, n)).astype(np.float16)
    want = 0.5 * (a.astype(np.float32) @ b.astype(np.float32))
    np.testing.assert_allclose(kernel(a, b), want, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("tiles", [(24, 48, 100), (48, 100, 24), (100, 24, 48), (128, 128, 32)])
def test_scope_showcase_is_right_for_any_tile(seed, random, tiles):
    m, n, k = 200, 129, 72
    a = random.standard_normal((m, k)).astype(np.float16)
    b = random.standard_normal((k, n)).astype(np.float16)
    c = np.full((m, n), np.nan, np.float16)
    seed.scope_showcase(m, n, k, *tiles)(a, b, c)
    want = 0.5 * (a.astype(np.float32) @ b.astype(np.float32))
    np.testing.assert_allclose(c, want, rtol=1e-2, atol=1e-2)


def test_scale_and_scale_0_both_read_the_variable():
    @T.prim_func
    def kernel(A: T.Tensor((40,), "float32"), B: T.Tensor((40,), "float32")):
        with T.Kernel(1, threads=40):
            scale = T.alloc_var("float32", init=0.5)
            none = T.alloc_var("float32")
            for i in T.Parallel(40):
                A[i] = scale[0] + none[0]
                B[i] = scale + none

    a, b = tilelang.compile(kernel, out_idx=[0, 1])()
    assert (np.asarray(a) == 0.5).all()
    assert (np.asarray(b) == 0.5).all()


def test_scope_showcase_is_clean_and_c_f_takes_128_registers_per_thread(seed):
    func = seed.scope_showcase.get_tir(256, 384, 128)
    assert tilelang.check(func, "emulate:sm_90a") == []
    report = tilelang.compile(func, target="emulate:sm_90a").memory()
    (launch,) = report.launches
    (c_f,) = [row for row in launch.rows if row.name == "C_f"]
    assert c_f.memory is Memory.FRAGMENT
    assert c_f.amount == 128
    assert "128 registers per thread" in report.render()


# ---- global_workspace ----------------------------------------------------------------------------


def workspace_of_each_block(n):
    """The seed's kernel with a workspace that is indexed by the block."""

    @T.prim_func
    def kernel(X: T.Tensor((n,), "float32"), Y: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, 128), threads=128) as bx:
            ws = T.alloc_global((T.ceildiv(n, 128), 128), "float32")
            for i in T.Parallel(128):
                ws[bx, i] = X[bx * 128 + i]
                Y[bx * 128 + i] = ws[bx, i]

    return kernel


def test_a_workspace_used_by_one_block_is_clean(seed, random):
    func = seed.global_workspace(128)
    assert tilelang.check(func) == []
    x = random.standard_normal(128).astype(np.float32)
    y = np.zeros_like(x)
    tilelang.compile(func)(x, y)
    np.testing.assert_array_equal(y, x)


@pytest.mark.parametrize("n", [256, 300])
def test_a_workspace_indexed_by_the_block_is_clean(random, n):
    func = workspace_of_each_block(n)
    # Where the last block hangs over the end, notes say that reads give 0 and writes do nothing.
    found = tilelang.check(func)
    assert [d for d in found if d.severity is not Severity.NOTE] == []
    assert bool(found) == (n % 128 != 0)
    x = random.standard_normal(n).astype(np.float32)
    y = np.zeros_like(x)
    tilelang.compile(func)(x, y)
    np.testing.assert_array_equal(y, x)


def test_a_workspace_shared_by_two_blocks_is_a_race_at_its_store_and_still_runs(seed, random):
    func = seed.global_workspace(256)
    (race,) = tilelang.check(func)
    assert race.kind == "race"
    assert race.severity is Severity.WARNING
    assert race.loc is not None
    assert race.loc.line == line_of("ws[i] = X[bx * 128 + i]")
    assert "block" in race.render()
    x = random.standard_normal(256).astype(np.float32)
    y = np.zeros_like(x)
    kernel = tilelang.compile(func)
    assert [d.kind for d in kernel.warnings] == ["race"]
    kernel(x, y)
    np.testing.assert_array_equal(y, x)  # blocks run in turn on the emulator


# ---- tmem_accumulator ----------------------------------------------------------------------------

COLUMNS = {16: 32, 32: 32, 96: 128, 200: 256, 256: 256, 512: 512}


@pytest.mark.parametrize(("asked", "taken"), COLUMNS.items())
def test_tensor_memory_columns_are_rounded_up_and_the_rounding_is_said(seed, asked, taken):
    func = seed.tmem_accumulator(BM=128, BN=asked)
    report = tilelang.compile(func, target="emulate:sm_100a").memory()
    total = report.launches[0].total(Memory.TMEM)
    assert total is not None
    assert (total.used, total.capacity.amount if total.capacity else None) == (taken, 512)
    notes = [d for d in tilelang.check(func, "emulate:sm_100a") if d.kind == "capacity"]
    assert all(d.severity is Severity.NOTE for d in notes)
    if asked == taken:
        assert notes == []
    else:
        (note,) = notes
        assert f"takes {taken} columns of Tensor Memory, rounded up from {asked}" in note.message
        assert f"{taken} columns (rounded up from {asked})" in report.render()


@pytest.mark.parametrize("columns", COLUMNS)
def test_an_accumulator_that_nothing_uses_is_given_back(seed, random, columns):
    func = seed.tmem_accumulator(BM=128, BN=columns)
    a, c = random.standard_normal((128, columns)).astype("f2"), np.ones((128, columns), "f4")
    assert not errors_of(tilelang.check(func, "simulate:sm_100a", run_with=[a, c]))
    np.testing.assert_array_equal(c, 1)
    source = tilelang.compile(func, target="cuda:sm_100a").get_kernel_source()
    assert source.count("tcgen05.alloc") == source.count("tcgen05.dealloc") == 1


@pytest.mark.parametrize("columns", [513, 600])
def test_more_than_512_columns_are_refused(seed, columns):
    text = refusal(seed.tmem_accumulator(BM=128, BN=columns), "emulate:sm_100a")
    assert "error[capacity]" in text
    assert "512" in text


def two_accumulators(first, second):
    @T.prim_func
    def kernel(A: T.Tensor((128, 128), "float16")):
        with T.Kernel(1, threads=128):
            one = T.alloc_tmem((128, first), "float32")  # noqa: F841 - its name is in the message
            two = T.alloc_tmem((128, second), "float32")  # noqa: F841

    return kernel


def test_two_live_buffers_share_the_512_columns():
    tilelang.compile(two_accumulators(256, 256), target="emulate:sm_100a")
    text = refusal(two_accumulators(256, 512), "emulate:sm_100a")
    assert "768 columns" in text
    assert "512" in text
    assert "one" in text
    assert "two" in text


def test_a_freed_buffer_leaves_its_columns_to_the_next():
    @T.prim_func
    def kernel(A: T.Tensor((128, 128), "float16")):
        with T.Kernel(1, threads=128):
            one = T.alloc_tmem((128, 512), "float32")
            T.deallocate_tmem(one)
            T.alloc_tmem((128, 256), "float32")

    tilelang.compile(kernel, target="emulate:sm_100a")


def test_fp16_accumulators_take_a_whole_cell_each_as_the_hardware_does():
    @T.prim_func
    def kernel(A: T.Tensor((128, 128), "float16")):
        with T.Kernel(1, threads=128):
            total = T.alloc_tmem((128, 256), "float16")
            a = T.alloc_shared((128, 64), "float16")
            b = T.alloc_shared((64, 256), "float16")
            T.copy(A[0, 0], a)
            T.fill(b, 1)
            T.gemm(a, b, total, clear_accum=True)

    report = tilelang.compile(kernel, target="emulate:sm_100a").memory()
    assert report.launches[0].rows[0].amount == 256


@pytest.mark.parametrize("target", ["emulate:sm_80", "emulate:sm_90a", "emulate:sm_120a"])
def test_a_chip_without_tensor_memory_refuses_it(seed, target):
    text = refusal(seed.tmem_accumulator(BM=128, BN=96), target)
    assert "has no Tensor Memory" in text
    assert f"alloc_scopes.py:{line_of('C_t = T.alloc_tmem')}:" in text


def test_an_elementwise_store_into_tensor_memory_is_refused():
    @T.prim_func
    def kernel(A: T.Tensor((128, 96), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_tmem((128, 96), "float32")
            for i, j in T.Parallel(128, 96):
                S[i, j] = 0.0

    text = refusal(kernel, "emulate:sm_100a")
    assert "elementwise store into Tensor Memory" in text
    assert "copy S into a fragment first" in text


# ---- ascend_scope_showcase -----------------------------------------------------------------------

M, N, K, BM = 8192, 224, 128, 256
CORES = 32
AUTOMATIC = {
    f"tl.ascend_{name}": True
    for name in ("auto_sync", "memory_planning", "auto_cv_combine", "auto_cross_core_sync")
}


def ascend_arguments(random):
    a = random.standard_normal((M, K)).astype(ml_dtypes.bfloat16)
    b = random.standard_normal((N, K)).astype(ml_dtypes.bfloat16)
    return a, b, np.full((M, N), np.nan, np.float32)


@pytest.mark.parametrize("machine", ["emulate", "simulate"])
def test_exactly_the_stored_rows_become_zero(seed, random, machine):
    kernel = tilelang.compile(seed.ascend_scope_showcase(M, N, K), target=f"{machine}:ascend950")
    a, b, c = ascend_arguments(random)
    kernel(a, b, c)
    stored = np.zeros(M, np.bool_)
    for block in range(CORES):
        stored[block * BM : block * BM + BM // 2] = True
    assert (c[stored] == 0).all()
    assert np.isnan(c[~stored]).all()
    assert stored.sum() == M // 2


@pytest.mark.parametrize("block", [0, 5, CORES - 1])
def test_the_inspector_shows_the_accumulator_of_a_block(seed, random, block):
    kernel = tilelang.compile(seed.ascend_scope_showcase(M, N, K), target="emulate:ascend950")
    a, b, c = ascend_arguments(random)
    seen = kernel.inspect(a, b, c, after=line_of("TA.gemm(A_l1, B_l1, C_l0c"), block=block)
    rows = a[block * BM : (block + 1) * BM].astype(np.float32)
    np.testing.assert_array_equal(seen["A_l1"], a[block * BM : (block + 1) * BM])
    np.testing.assert_allclose(seen["C_l0c"], rows @ b.astype(np.float32).T, rtol=1e-4, atol=1e-4)
    before = kernel.inspect(a, b, c, after=line_of("TA.clear(C_l0c)"), block=block)
    assert (before["C_l0c"] == 0).all()


def test_check_counts_the_bytes_of_l0c(seed):
    func = seed.ascend_scope_showcase(M, N, K)
    assert tilelang.check(func, "emulate:ascend950") == []
    report = tilelang.compile(func, target="emulate:ascend950").memory()
    total = report.launches[0].total(Memory.L0C)
    assert total is not None
    assert total.capacity is not None
    assert (total.used, total.capacity.amount) == (229_376, 262_144)


def test_the_910b_refuses_the_dialect_and_says_that_l0c_would_not_fit(seed):
    text = refusal(seed.ascend_scope_showcase(M, N, K), "emulate:ascend910b")
    assert "the mainline Ascend dialect does not run on ascend910b" in text
    assert "ascend950" in text
    assert "131072" in text.replace(",", "")
    assert f"alloc_scopes.py:{line_of('C_l0c = TA.alloc_l0c')}:" in text


def test_ported_to_the_other_dialect_and_back_it_gives_the_same_numbers(seed, random, tmp_path):
    there = ported(PROGRAM.read_text(), "adapter").text
    assert ported(there, "mainline").text == PROGRAM.read_text()
    (tmp_path / "adapter_alloc_scopes.py").write_text(there)
    other = module_from(tmp_path / "adapter_alloc_scopes.py")
    # L0C of the 910B holds half of what that of the 950 does.
    tile = {"BM": 128, "BN": 112}
    mine = tilelang.compile(
        seed.ascend_scope_showcase(32 * 128, 112, K, **tile), target="simulate:ascend950"
    )
    its = tilelang.compile(
        other.ascend_scope_showcase(32 * 128, 112, K, **tile),
        target="simulate:ascend910b",
        pass_configs=AUTOMATIC,
    )
    a, b = (random.standard_normal((n, K)).astype(ml_dtypes.bfloat16) for n in (32 * 128, 112))
    c, d = (np.full((32 * 128, 112), np.nan, np.float32) for _ in range(2))
    mine(a, b, c)
    its(a, b, d)
    assert c.tobytes() == d.tobytes()
    assert (c[:64] == 0).all()
    # Both vector cores of a group store the same zeros.
    assert tilelang.check(mine, run_with=[a, b, c]) == []
    assert tilelang.check(its, run_with=[a, b, d]) == []
    assert "asc_mmad(" in mine.get_kernel_source()
    assert "Mmad(" in its.get_kernel_source()


# ---- ADAPTER_SPELLINGS ---------------------------------------------------------------------------


def spellings() -> dict[str, str]:
    text = PROGRAM.read_text()
    scope: dict[str, dict[str, str]] = {}
    exec(text[text.index("ADAPTER_SPELLINGS =") :], scope)
    return scope["ADAPTER_SPELLINGS"]


def read_row(spelling: str, says: str) -> tuple[str, str, str, str]:
    """Dialect, function, scope, and scope of dtype bool, as a row of the seed states them."""
    function = re.findall(r"^T\.(\w+)\(", spelling)[0]
    ascend = "(ascend dialect)" in spelling or re.fullmatch(r"alloc_l\d?\w", function)
    scope = re.findall(r"^scope '([^']+)'", says)[0]
    for_bool = re.search(r"bool -> '([^']+)'", says)
    return "ascend" if ascend else "adapter", function, scope, for_bool[1] if for_bool else scope


def declared_in_a_kernel(dialect: str, function: str, dtype: str, scope: str | None) -> str:
    """`.scope()` of a buffer that a kernel of the dialect allocates."""
    seen: list[str] = []
    module = TA if dialect == "ascend" else T
    explicit = {} if scope is None else {"scope": scope}

    if dialect == "ascend":

        @TA.prim_func
        def kernel(A: T.Tensor((16,), "float16")):
            with TA.Kernel(1):
                seen.append(getattr(module, function)((16, 16), dtype, **explicit).scope())

    else:

        @T.prim_func
        def kernel(A: T.Tensor((16,), "float16")):
            with T.Kernel(1, threads=2):
                T.alloc_ub((16,), "float16")  # a name of the adapter: its dialect is meant
                seen.append(getattr(module, function)((16, 16), dtype, **explicit).scope())

    (found,) = seen
    return found


def test_all_rows_of_adapter_spellings_hold_in_the_report_and_in_kernels(capsys):
    assert main(["scopes", "--json"]) == 0
    table = json.loads(capsys.readouterr().out)["scopes"]
    rows = spellings()
    assert len(rows) == 11
    for spelling, says in rows.items():
        dialect, function, scope, for_bool = read_row(spelling, says)
        (entry,) = [
            e
            for e in table
            if (e["dialect"], e["function"]) == (dialect, function)
            and not e["accepted_as_input_only"]
        ]
        assert (entry["scope"], entry["bool_scope"]) == (scope, for_bool), spelling
        assert declared_in_a_kernel(dialect, function, "float16", None) == scope, spelling
        assert declared_in_a_kernel(dialect, function, "bool", None) == for_bool, spelling
        if "= Unified Buffer" in says:
            assert entry["memory"] == "ub"


@pytest.mark.parametrize(
    ("dialect", "function", "dtype", "scope", "declared"),
    [
        ("ascend", "alloc_shared", "float16", "shared", "shared"),
        ("ascend", "alloc_shared", "bool", "shared.dyn", "shared.dyn"),
        ("ascend", "alloc_shared", "bool", "shared.l1", "shared.l1"),
        ("ascend", "alloc_l1", "float16", "shared.l0a", "shared.l0a"),
        ("adapter", "alloc_shared", "float16", "shared.l1", "shared.l1"),
        ("adapter", "alloc_shared", "bool", "shared.l1", "shared.ub"),
        ("adapter", "alloc_shared", "float16", "shared.dyn", "shared"),
    ],
)
def test_an_explicit_scope_is_kept_where_the_dialect_takes_it(
    dialect, function, dtype, scope, declared
):
    assert declared_in_a_kernel(dialect, function, dtype, scope) == declared


def test_the_scopes_of_the_common_dialect_bool_and_variables_included():
    seen: dict[str, str] = {}

    @T.prim_func
    def kernel(A: T.Tensor((16,), "float16")):
        with T.Kernel(1, threads=32):
            seen["shared"] = T.alloc_shared((16,), "float16").scope()
            seen["bool"] = T.alloc_shared((16,), "bool").scope()
            seen["bool, explicit"] = T.alloc_shared((16,), "bool", scope="shared.dyn").scope()
            seen["static"] = T.alloc_shared((16,), "float16", scope="shared").scope()
            seen["fragment"] = T.alloc_fragment((16,), "float16").scope()
            seen["local"] = T.alloc_local((16,), "float16").scope()
            seen["global"] = T.alloc_global((16,), "float16").scope()
            seen["tmem"] = T.alloc_tmem((16, 16), "float32").scope()
            with_init = T.alloc_var("float32", init=0.5)
            without = T.alloc_var("int32")
            seen["var, init"], seen["var"] = with_init.scope(), without.scope()
            assert with_init.shape == without.shape == (1,)

    assert seen == {
        "shared": "shared.dyn",
        "bool": "shared",
        "bool, explicit": "shared",
        "static": "shared",
        "fragment": "local.fragment",
        "local": "local",
        "global": "global",
        "tmem": "shared.tmem",
        "var, init": "local.var",
        "var": "local.var",
    }


# ---- The program as a file -----------------------------------------------------------------------


def test_it_runs_as_a_program():
    command = [sys.executable, "-c", "import sys; from tilelang.cli import main; sys.exit(main())"]
    done = subprocess.run(
        [*command, "run", str(PROGRAM)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
