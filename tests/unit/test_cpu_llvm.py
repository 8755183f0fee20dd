"""Code that is loaded: what it calls is looked at first."""

import ctypes

import pytest

from tilelang.errors import InternalError
from tilelang.targets.cpu.llvm import Library, optimise
from tilelang.targets.cpu.symbols import undefined

CALLS = """
declare double @{name}(double)
define double @run(double %x) {{
  %y = call double @{name}(double %x)
  ret double %y
}}
"""


def made(name):
    return optimise(CALLS.format(name=name)).object()


def test_a_function_of_the_process_is_found():
    code = made("lgamma")
    assert "lgamma" in list(undefined(code))
    run = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(Library(code).address("run"))
    assert run  # the library is gone by now, so it is not called


def test_a_function_that_nothing_defines_is_an_error_and_not_the_end_of_the_process():
    with pytest.raises(InternalError, match="no_such_function, which nothing defines"):
        Library(made("no_such_function"))


@pytest.mark.parametrize("code", [b"", b"\x7fELF\x01", b"MZ and so on"])
def test_other_files_are_not_looked_into(code):
    assert list(undefined(code)) == []


def test_a_module_that_breaks_the_rules_is_named_with_its_line():
    with pytest.raises(InternalError, match="LLVM refuses the module"):
        optimise("define i32 @f() { ret i64 0 }")


def test_a_function_that_the_code_does_not_have():
    with pytest.raises(InternalError, match="no function walk"):
        Library(made("lgamma")).address("walk")
