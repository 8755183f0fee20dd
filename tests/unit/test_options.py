"""Options: every setting of upstream is known, typed, and either read or reported."""

import dataclasses
import re
from pathlib import Path

import pytest

import tilelang
import tilelang.language as T
from tilelang import options as module
from tilelang.options import (
    BUILT,
    ROWS,
    Effect,
    Options,
    Part,
    PassConfigKey,
    ineffective,
    options_from,
)
from tilelang.targets.cuda.nvrtc import is_installed

SOURCE = Path(module.__file__).parent

# For each kind: a legal value in Python, one as a variable's text, an illegal value of a right
# type, and a value of a wrong type; None where there is no such.
EXAMPLES = {
    "SWITCH": (True, "on", 2, "yes"),
    "TEXT": ("role_based", "role_based", None, 3),
    "FOLDER": ("out", "out", "", 3),
    "FOLDER_OR_NONE": ("out", "out", None, 3),
    "TARGET": ('{"kind": "cuda"}', '{"kind": "cuda"}', "{kind", 3),
    "FLAGS": (["-DX=1"], "-DX=1", [1], 3),
    "FORMATS": ("png,svg", "png,svg", "gif", 3),
    "SIMPLIFY": ({"enable_simplify_let_inline": False}, None, {"x": True}, 3),
    "NOTHING": (None, None, [(1, str)], 3),
    "ANYTHING": ({"x": 1}, "x", None, None),
    "LEVEL": (2, "2", 3, "2"),
    "BITS": (64, "64", 16, "64"),
    "USAGE": (10, "10", 11, True),
    "PROCESSORS": (-1, "-1", 0, 1.5),
    "MILLISECONDS": (2, "2.5", -1.0, "2"),
    "SECONDS": (0.25, "0.25", 0.0, "1"),
    "NAMES": ("tma,wgmma", "tma,wgmma", None, 3),
    "SHARE": (0.5, "0.5", 1.5, "0.5"),
    "COST_MODEL": ("io-aware", "io-aware", "fast", 3),
    "BACKEND": ("nvrtc", "nvrtc", "nvcc", 3),
}


def examples(row: module.Row) -> tuple:
    return next(e for name, e in EXAMPLES.items() if getattr(module, name) is row.kind)


SETTABLE = [
    row for row in ROWS if row.key is not None and not row.key.name.startswith("TL_SIMPLIFY_")
]
VARIABLES = [row for row in ROWS if row.env is not None]


def title(row: module.Row) -> str:
    return row.title


def test_the_keys_are_those_of_upstream(shared):
    lines = (shared / "reference" / "api_passconfig.tsv").read_text().splitlines()
    wanted = dict(line.split("\t")[:2] for line in lines)
    adapter = {key for key in PassConfigKey if key.name.startswith("TL_ASCEND_")}
    assert {key.name: key.value for key in PassConfigKey if key not in adapter} == wanted
    assert sorted(key.value.removeprefix("tl.ascend_") for key in adapter) == [
        "auto_cross_core_sync",
        "auto_cv_combine",
        "auto_sync",
        "memory_planning",
    ]


def test_the_variables_of_upstream_are_known(shared):
    text = (shared / "reference" / "api.md").read_text()
    section = text.split("### 2.6")[1].split("### 2.7")[0]
    named = set(re.findall(r"\b(?:TILELANG|TL|TVM|SKIP_LOADING)_[A-Z_]*[A-Z]\b", section))
    prefix = "TILELANG_AUTO_TUNING"
    named |= {f"{prefix}_CPU_COUNTS", f"{prefix}_MAX_CPU_COUNT", "TILELANG_PASS_DIFF_OUTPUT"}
    assert len(named) > 20
    assert named <= {row.env for row in ROWS}


def test_each_key_and_variable_stands_in_the_table_once():
    keys = [row.key for row in ROWS if row.key is not None]
    variables = [row.env for row in ROWS if row.env is not None]
    assert sorted(keys) == sorted(PassConfigKey)
    assert len(set(variables)) == len(variables)


@pytest.mark.parametrize("row", ROWS, ids=title)
def test_a_row_is_complete(row):
    assert row.key is not None or row.env is not None
    assert row.doc
    assert (row.name is None) == (row.effect is Effect.NONE) == (row.part is None)
    assert row.changes_results == (row.effect is Effect.RESULTS)


def test_without_settings_every_field_has_its_default():
    expected = {f.name: getattr(Options(), f.name) for f in dataclasses.fields(Options)}
    assert dataclasses.asdict(options_from()) == expected
    assert options_from(None, {}) == options_from({}, {}) == Options()
    assert hash(Options()) == hash(options_from())


def test_home_is_expanded():
    assert Options().cache_dir == Path.home() / ".tilelang" / "cache"
    env = {"TILELANG_CACHE_DIR": "~/x"}
    assert options_from(None, env).cache_dir == Path.home() / "x"


@pytest.mark.parametrize("row", SETTABLE, ids=title)
def test_a_key_and_its_string_set_the_same_field(row):
    value = examples(row)[0]
    by_member, by_text = options_from({row.key: value}), options_from({row.key.value: value})
    assert by_member == by_text
    if row.name is not None:
        assert getattr(by_member, row.name) == row.kind.accept(value)


@pytest.mark.parametrize("row", [r for r in VARIABLES if r.name], ids=title)
def test_a_variable_sets_its_field(row):
    text = examples(row)[1]
    assert getattr(options_from(None, {row.env: text}), row.name) == row.kind.parse(text)


@pytest.mark.parametrize("row", SETTABLE, ids=title)
def test_an_illegal_value_is_refused_and_named(row):
    _, _, illegal, wrong_type = examples(row)
    if illegal is not None:
        with pytest.raises(ValueError, match=re.escape(row.key.value)) as caught:
            options_from({row.key: illegal})
        assert row.kind.expected in str(caught.value)
        assert repr(illegal) in str(caught.value)
    if wrong_type is not None:
        with pytest.raises(TypeError, match=re.escape(row.key.value)) as caught:
            options_from({row.key: wrong_type})
        assert f"({type(wrong_type).__name__})" in str(caught.value)


@pytest.mark.parametrize("text", ["1", "true", "YES", "On"])
def test_words_that_mean_on(text):
    assert options_from(None, {"TILELANG_VERBOSE": text}).verbose is True


@pytest.mark.parametrize("text", ["0", "false", "NO", "Off"])
def test_words_that_mean_off(text):
    env = {"TILELANG_PRINT_ON_COMPILATION": text}
    assert options_from(None, env).print_on_compilation is False


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("TILELANG_VERBOSE", "maybe"),
        ("TILEWRIGHT_TRACE", "3"),
        ("TILEWRIGHT_TRACE", "two"),
        ("TILELANG_AUTO_TUNING_CPU_UTILITIES", "0"),
        ("TILELANG_AUTO_TUNING_CPU_UTILITIES", "nan"),
        ("TILELANG_AUTO_TUNING_CPU_COUNTS", "-2"),
        ("TILELANG_PASS_PROFILE_THRESHOLD_MS", "-0.5"),
        ("TILELANG_DEFAULT_TARGET", '{"kind": '),
        ("TILELANG_COMPILE_TIMEOUT_SECONDS", "soon"),
        ("TILELANG_EXECUTION_BACKEND", "nvcc"),
    ],
)
def test_an_illegal_variable_is_refused(variable, text):
    with pytest.raises(ValueError) as caught:
        options_from(None, {variable: text})
    message = str(caught.value)
    assert variable in message
    assert "expected: " in message
    assert f"got: {text!r}" in message


def test_an_empty_variable_counts_as_not_set():
    env = {str(row.env): "" for row in VARIABLES}
    assert options_from(None, env) == Options()
    assert ineffective(None, env) == []


def test_a_key_wins_over_its_variable():
    env = {"TILELANG_PASS_PROFILE": "1", "TILELANG_PASS_PROFILE_THRESHOLD_MS": "7"}
    options = options_from({"tl.pass_profile": False}, env)
    assert (options.pass_profile, options.pass_profile_threshold_ms) == (False, 7.0)


def test_an_unknown_key_is_refused_with_near_names(golden):
    with pytest.raises(ValueError) as caught:
        options_from({"tl.enable_fast_mth": True})
    golden(str(caught.value), "options/unknown_key")


def test_an_unknown_variable_of_ours_is_refused_with_near_names(golden):
    with pytest.raises(ValueError) as caught:
        options_from(None, {"TILEWRIGHT_TRCE": "1"})
    golden(str(caught.value), "options/unknown_variable")


def test_a_wrong_value_is_refused(golden):
    with pytest.raises(ValueError) as caught:
        options_from({PassConfigKey.TL_CONFIG_INDEX_BITWIDTH: 16})
    golden(str(caught.value), "options/wrong_value")


def test_a_key_of_another_type_is_refused():
    with pytest.raises(TypeError, match="PassConfigKey"):
        options_from({3: True})


def test_a_simplify_key_beside_its_dict_is_refused(golden):
    with pytest.raises(ValueError) as caught:
        options_from({PassConfigKey.TL_SIMPLIFY_ENABLE_LET_INLINE: True})
    golden(str(caught.value), "options/simplify_key_outside")


def test_passes_of_upstream_are_refused_not_ignored():
    with pytest.raises(ValueError, match="TVM's IR"):
        options_from({"tirx.add_lower_pass": [(1, lambda f, m, c: f)]})


@pytest.mark.parametrize("row", SETTABLE, ids=title)
def test_a_key_is_read_or_reported(row):
    lines = ineffective({row.key: examples(row)[0]}, parts=tuple(Part))
    if row.part in BUILT:
        assert lines == []
    else:
        assert len(lines) == 1
        assert lines[0].startswith(row.key.value)


@pytest.mark.parametrize("row", VARIABLES, ids=title)
def test_a_variable_is_read_or_reported(row):
    assert len(ineffective(None, {row.env: "1"}, tuple(Part))) == (row.part not in BUILT)


def test_a_part_that_the_target_skips_is_the_reason(monkeypatch):
    monkeypatch.setattr(module, "BUILT", frozenset(Part))
    given = {"tl.enable_fast_math": True, "tl.disable_wgmma": True, "tirx.noalias": False}
    assert ineffective(given, parts=[Part.THREAD]) == [
        "tl.enable_fast_math has no effect: this target does not go through the device compiler",
        "tirx.noalias has no effect: distinct storage is checked at launch and used when proved",
    ]


@pytest.mark.parametrize("target", ["cpu", "emulate", "cuda -arch=sm_90a"])
def test_a_kernel_says_which_settings_its_target_does_not_use(target):
    if target.startswith("cuda") and not is_installed():
        pytest.skip("NVRTC is not installed")
    given = {"tl.enable_fast_math": True, "tl.disable_data_race_check": True}
    kernel = tilelang.compile(filled(), target=target, pass_configs=given, compile_flags="-DMINE=1")
    device = "this target does not go through the device compiler"
    flags = "compile_flags have no effect: this target runs no device compiler"
    on_device = target.startswith("cuda")
    assert kernel.unused == (
        () if on_device else (f"tl.enable_fast_math has no effect: {device}", flags)
    )
    assert kernel.options.device_compile_flags == (("-DMINE=1",) if on_device else ())


def filled():
    @T.prim_func
    def kernel(X: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(32):
                X[i] = 1.0

    return kernel


def test_an_unknown_variable_of_upstream_is_reported():
    assert ineffective(None, {"TILELANG_USE_GEMM_V1": "1"}) == [
        "TILELANG_USE_GEMM_V1 has no effect: no such variable is known"
    ]


def test_what_is_said_to_be_read_is_read_in_the_source():
    """`BUILT` and the source agree: `options.<field>` is read for fields of those parts only."""
    names = {row.name: row.part for row in ROWS if row.name is not None}
    files = [f for f in SOURCE.rglob("*.py") if f.name != "options.py"]
    text = "\n".join(f.read_text() for f in files)
    read = set(re.findall(r"\boptions\.([a-z]\w*)", text)) & set(names)
    assert read == {name for name, part in names.items() if part in BUILT}
