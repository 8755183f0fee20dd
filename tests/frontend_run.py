"""One piece of Python, run by Python on NumPy arrays and traced as a kernel: both write the same.

A body takes two int32 arrays and `var`, which makes a variable: `i = var("int32", 0)` is a number
in Python and a `T.alloc_var` in the kernel.
"""

import linecache
from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np

import tilelang
import tilelang.language as T
from tilelang.errors import Loc

SIZE = 24
_FILES = count()


def kernel_of(body: Callable[..., Any], size: int = SIZE) -> Any:
    """The traced function that runs `body` in one thread."""
    inlined = T.macro(body)

    def var(dtype: str, init: Any = None) -> Any:
        return T.alloc_var(dtype, init=init)

    @T.prim_func
    def main(A: T.Tensor((size,), "int32"), B: T.Tensor((size,), "int32")):
        with T.Kernel(1, threads=1):
            inlined(A, B, var)

    return main


def run_python(body: Callable[..., Any], a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """What `body` leaves in its two arrays when Python runs it."""
    x, y = a.copy(), b.copy()
    body(x, y, lambda dtype, init=0: init)
    return np.stack([x, y])


TARGETS = ("emulate", "cpu")


def compiled(main: Any, target: str = "cpu") -> Any:
    """The kernel of a traced function."""
    return tilelang.compile(main, target=target)


def run_kernel(body: Callable[..., Any], a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """What `body` leaves in its two arrays as a kernel: the same on the emulator and as machine
    code.
    """
    main, found = kernel_of(body, len(a)), []
    for target in TARGETS:
        x, y = a.copy(), b.copy()
        compiled(main, target)(x, y)
        found.append(np.stack([x, y]))
    np.testing.assert_array_equal(found[1], found[0], err_msg="machine code, emulator")
    return found[0]


def check_same(body: Callable[..., Any], *values: int) -> None:
    """`body` means the same to Python and as a kernel, on arrays that begin with `values`."""
    a = np.arange(SIZE, dtype=np.int32) * 7 % 11 - 3
    a[: len(values)] = values
    b = np.full(SIZE, -99, np.int32)
    want = run_python(body, a, b)
    assert (want[1] != b).any(), "the body writes nothing: the test could not fail"
    np.testing.assert_array_equal(run_kernel(body, a, b), want)


def script(fn: Callable[..., Any]) -> str:
    """The tile stage of a function, as text."""
    return T.prim_func(fn).script()


def defined(source: str, file: str = "", **names: Any) -> Callable[..., Any]:
    """The function `fn` of a source text, which Python can find again as if it were in a file."""
    file = file or f"<kernel {next(_FILES)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    scope: dict[str, Any] = {"T": T, "__name__": "defined", **names}
    exec(compile(source, file, "exec", dont_inherit=True), scope)
    return scope["fn"]


def place(caught: Any) -> Loc:
    """Where the error that `pytest.raises` caught says it is."""
    loc = caught.value.diagnostics[0].loc
    assert loc is not None
    return loc
