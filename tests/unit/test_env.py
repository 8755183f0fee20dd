"""`tilelang.env`: variables of the environment as attributes."""

import os
import subprocess
import sys

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.env import env
from tilelang.options import ROWS


@pytest.fixture(autouse=True)
def as_found(monkeypatch):
    """The variables are what they were when the test ends."""
    for row in ROWS:
        if row.env is not None:
            monkeypatch.setenv(row.env, "")
            monkeypatch.delenv(row.env)


def test_the_package_has_the_object_and_not_the_module():
    program = "import tilelang, tilelang.env; print(type(tilelang.env).__name__)"
    said = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert said.stdout.strip() == "Environment"
    assert tilelang.env is env


def test_an_attribute_is_the_text_of_its_variable_or_of_the_default(monkeypatch):
    assert os.path.expanduser("~/.tilelang/cache") == env.TILELANG_CACHE_DIR
    assert env.TILELANG_PRINT_ON_COMPILATION == "1"
    assert env.TILELANG_AUTO_TUNING_CPU_UTILITIES == "0.9"
    assert env.TILELANG_DEFAULT_VERBOSE == "0"
    assert env.TILELANG_LAYOUT_COST_MODEL is None
    monkeypatch.setenv("TILELANG_CACHE_DIR", "/elsewhere")
    monkeypatch.setenv("TILELANG_VERBOSE", "1")
    assert env.TILELANG_CACHE_DIR == "/elsewhere"
    assert os.path.join("/elsewhere", "tmp") == env.TILELANG_TMP_DIR
    assert env.TILELANG_DEFAULT_VERBOSE == "1"
    assert env.get_default_verbose() is True


def test_every_variable_of_upstream_has_an_attribute():
    for row in ROWS:
        if row.env is not None and not row.env.startswith("TILEWRIGHT_"):
            assert row.env in dir(env)
            getattr(env, row.env)


def test_what_is_assigned_is_what_kernels_are_compiled_with(tmp_path):
    @T.prim_func
    def main(A: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=8):
            for i in T.Parallel(8):
                A[i] = 2

    env.TILELANG_DEFAULT_TARGET = "emulate:sm_80"
    env.TILELANG_CACHE_DIR = tmp_path
    kernel = tilelang.compile(main)
    assert "sm_80" in kernel.target
    assert kernel.options.cache_dir == tmp_path
    env.TILELANG_DEFAULT_TARGET = {"kind": "cuda", "arch": "sm_90a"}
    assert env.get_default_target() == {"kind": "cuda", "arch": "sm_90a"}
    del env.TILELANG_DEFAULT_TARGET
    assert env.get_default_target() == "auto"
    env.TILELANG_CACHE_DIR = None
    assert env.TILELANG_CACHE_DIR.endswith("cache")
    a = np.zeros(8, np.float32)
    kernel(a)
    assert (a == 2).all()


def test_the_cache_is_switched_by_either_way():
    env.disable_cache()
    assert env.TILELANG_DISABLE_CACHE == "1"
    assert env.is_cache_globally_disabled()
    assert not tilelang.is_cache_enabled()
    env.TILELANG_DISABLE_CACHE = "0"
    assert env.is_cache_enabled()
    assert not env.is_autotune_cache_disabled()


def test_wrong_names_and_values_are_refused():
    assert not hasattr(env, "TILELANG_NONE_SUCH")
    assert not hasattr(env, "TILEWRIGHT_TRACE")
    with pytest.raises(AttributeError, match=r"tilelang\.env has no TILELANG_NONE_SUCH"):
        env.TILELANG_NONE_SUCH = "1"
    with pytest.raises(ValueError, match=r"TILELANG_DISABLE_CACHE.*\n.*maybe"):
        env.TILELANG_DISABLE_CACHE = "maybe"
    assert env.TILELANG_DISABLE_CACHE == "0"
    env.TILELANG_PASS_PROFILE_THRESHOLD_MS = 2.5
    assert env.get_pass_profile_threshold_ms() == 2.5
    assert not env.is_pass_profile_enabled()
    assert env.is_print_on_compilation_enabled()
