"""The typed face of llvmlite: text to code, code that can be called, and nothing left behind."""

import ctypes
import gc
import os
from pathlib import Path

import pytest

from tilelang.errors import InternalError
from tilelang.targets.cpu import llvm

TWICE = """
define i32 @twice(i32 %x) {
  %y = add i32 %x, %x
  ret i32 %y
}
"""


def test_text_becomes_code_that_can_be_called():
    library = llvm.Library(llvm.optimise(TWICE).object())
    twice = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32)(library.address("twice"))
    assert [twice(n) for n in (0, 21, -4)] == [0, 42, -8]
    with pytest.raises(InternalError, match="no function thrice"):
        library.address("thrice")


def test_a_module_that_breaks_the_rules_is_an_error_with_its_line():
    with pytest.raises(InternalError, match=r"<string>:3"):
        llvm.optimise("define i32 @f() {\n  ret i32 0\n  oops\n}")


def test_assembly_is_of_the_same_function():
    assert "twice:" in llvm.optimise(TWICE).assembly()


def test_the_machine_is_known_by_its_features():
    host = llvm.host()
    assert host.lanes(32) * 32 == host.vector_bits >= 128
    assert host.lanes(10**6) == 1
    assert llvm.version().startswith("llvmlite ")


def resident() -> float:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**10


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_compiling_leaves_nothing_behind():
    """Modules differ, as those of different kernels do: constants and types pile up too."""
    before = 0.0
    for n in range(150):
        names = [f"%s{n}.{k} = type {{ i{k + 1}, [{n + 1} x i{k + 1}] }}" for k in range(20)]
        used = [f"@g{k} = global %s{n}.{k} zeroinitializer" for k in range(20)]
        text = "\n".join([*names, *used, TWICE.replace("%x, %x", f"%x, {n * 1000}")])
        llvm.Library(llvm.optimise(text).object()).address("twice")
        if n == 30:
            before = resident()
    assert (resident() - before) / 120 < 15  # KiB for each
