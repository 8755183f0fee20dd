"""What a kernel author reads when a kernel is refused, or its arguments at the launch."""
# ruff: noqa: E501 - the cases are source text

import math

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from frontend_run import defined
from tilelang.errors import TileError

# Each case is the body of a kernel over A (8, 16) float32, B (16,) int32, and a scalar n; or the whole function.
GROUPS: dict[str, dict[str, str]] = {
    "control": {
        "while true": "i = 0\nwhile i < 4:\n    i += 1",
        "while without change": "x = B[0]\nwhile x < 4:\n    B[1] = x",
        "return in a branch": "if n > 0:\n    return",
        "raise in a branch": "if n > 0:\n    raise ValueError('n')",
        "break in T.Parallel": "for i in T.Parallel(4):\n    break",
        "break in T.grid": "for i, j in T.grid(4, 4):\n    break",
        "break of an expanded loop": "for i in [1, 2]:\n    if B[i] > 0:\n        break",
        "continue in T.Parallel": "for i in T.Parallel(4):\n    if B[i] > 0:\n        continue",
        "else of a loop": "for i in range(4):\n    B[i] = 0\nelse:\n    B[0] = 1",
        "loop variables": "for i, j in T.serial(4):\n    B[i] = j",
        "loop as a list": "B[0] = len(list(T.serial(4)))",
        "iterating a buffer": "for x in B:\n    B[0] = x",
        "filter": "B[0] = len([k for k in range(4) if B[k] > 0])",
        "truth in a helper": "B[0] = helper(n)",
    },
    "names": {
        "rebound in a loop": "count = 0\nfor i in range(4):\n    count += 1\nB[0] = count",
        "rebound under a condition": "low = B[0]\nif low > 20:\n    low = 20\nB[0] = low",
        "bound in a loop": "for i in range(4):\n    x = B[i]\nB[0] = x",
        "not bound": "if len([]) > 0:\n    x = 1\nB[0] = x",
        "buffer of a loop": "for i in range(4):\n    tile = T.alloc_shared((4,), 'int32')\nB[0] = kept[0][0]",
        "declaration": "x: T.int32\nB[0] = 1",
        "unpacking": "x, y = B[0], B[1], B[2]",
        "walrus": "if n > 0 and (x := B[0]) > 0:\n    B[1] = x",
        "whole buffer": "A += 1",
        "attribute": "B.scale = 2",
        "unknown name of T": "T.alloc_shard((4,), 'int32')",
        "name of another dialect": "T.alloc_l1((4,), 'int32')",
        "unknown keyword": "T.copy(A, A, foo=1)",
    },
    "syntax": {
        "try": "try:\n    B[0] = 1\nexcept ValueError:\n    pass",
        "del": "del B",
        "global": "global GLOBAL\nB[0] = 1",
        "class": "class C:\n    pass",
        "match": "match n:\n    case 1:\n        B[0] = 1",
        "yield": "yield B[0]",
        "starred": "x, *y = [1, 2, 3]",
        "and with an effect": "if n > 0 and twice(n) > 1:\n    B[0] = 1",
        "conditional expression with an effect": "B[0] = twice(n) if n > 0 else 2",
        "max": "B[0] = max(n, 3)",
        "list index": "B[0] = [1, 2, 3][n]",
    },
    "indexing": {
        "too few indices": "A[0] = 1",
        "outside": "B[1] = B[16]",
        "outside from the end": "B[-17] = 1",
        "float index": "B[A[0, 0]] = 1",
        "bool index": "B[True] = 1",
        "step": "T.fill(B[0:8:2], 1)",
        "slice on chip": "S = T.alloc_shared((8,), 'int32')\nT.fill(S[6:12], 7)",
        "slice backwards": "T.fill(B[5:3], 1)",
        "store of a slice": "B[0:4] = B[4:10]",
        "store of a buffer": "B[0] = A",
        "slice of a slice": "B[0] = B[0:4][1]",
    },
    "operators": {
        "true division": "B[0] = 1 + B[1] / n + 3",
        "power": "B[0] = n ** 2",
        "bits of a float": "B[0] = A[0, 0] & 1",
        "minus of unsigned": "B[0] = -T.uint32(3)",
        "whole buffers": "A[0, 0] = (A + 1)[0, 0]",
        "comparison of a slice": "if B[0:4] == B[4:8]:\n    B[0] = 1",
        "buffer as a condition": "if A:\n    B[0] = 1",
        "no common type": "B[0] = T.float8_e4m3fn(1) + T.cast(n, 'float8_e5m2')",
        "unknown type": "B[0] = T.cast(n, 'int23')",
        "no infinity": "B[0] = T.infinity('int32')",
        "not a scalar": "B[0] = n + [1]",
    },
    "tiles": {
        "copy shapes": "S = T.alloc_shared((4, 16), 'float32')\nT.copy(A, S)",
        "copy of a number": "T.copy(3, A)",
        "gemm shapes": "P = T.alloc_shared((16, 32), 'float16')\nQ = T.alloc_shared((16, 32), 'float16')\n"
        "C = T.alloc_fragment((16, 16), 'float32')\nT.gemm(P, Q, C)",
        "gemm types": "P = T.alloc_shared((16, 16), 'int8')\nC = T.alloc_fragment((16, 16), 'float32')\nT.gemm(P, P, C)",
        "reduce shape": "R = T.alloc_fragment((16,), 'float32')\nT.reduce_sum(A, R, dim=1)",
        "reduce bits of a float": "R = T.alloc_fragment((8,), 'float32')\nT.reduce_bitor(A, R)",
        "reduce axis": "T.reduce_sum(A, A, dim=2)",
        "view size": "V = T.view(A, (4, 31))",
        "symbolic allocation": "S = T.alloc_shared((n, 4), 'float32')",
        "type of an allocation": "S = T.alloc_shared((4, 4), 'floot32')",
        "two initial values": "v = T.alloc_var('int32', 1, init=2)",
        "range of a float": "for i in range(2.5):\n    B[0] = i",
        "step of zero": "for i in T.serial(0, 4, 0):\n    B[0] = i",
        "launch in a launch": "with T.Kernel(1):\n    B[0] = 1",
    },
    "python": {
        "name": "B[0] = lenght + 1",
        "name of the language": "B[0] = alloc_var('int32')",
        "name in a comprehension": "B[0] = len([no_such_name for k in range(4)])",
        "division": "B[0] = 1 // 0",
        "remainder": "B[0] = 5 % len([])",
        "index": "B[0] = [1, 2, 3][3]",
        "key": "B[0] = {'a': 1}['b']",
        "types": "B[0] = 1 + 'a'",
        "number of values": "x, y = [1, 2, 3]",
        "attribute": "B[0] = [1].size",
        "rounding up": "B[0] = T.ceildiv(5, 0)",
        "numpy": "A[0, 0] = np.exp(A[0, 0])",
        "numpy under another name": "A[0, 0] = np.maximum(A[0, 0], 0)",
        "math": "A[0, 0] = math.sqrt(A[0, 0])",
        "numpy on a buffer": "B[0] = np.sum(B)",
    },
}

FUNCTIONS = {
    "parameter without annotation": "def kernel(A, B: T.int32):\n    with T.Kernel(1):\n        A[0] = B\n",
    "variable parameters": "def kernel(*A: T.int32):\n    pass\n",
    "parameter of another type": "def kernel(A: 3.5):\n    pass\n",
    "unknown annotation": 'def kernel(\n    A: "T.Tensor((missing,))",\n):\n    pass\n',
    "threads": "def kernel(n: T.int32):\n    with T.Kernel(1, threads=n):\n        pass\n",
    "names of a grid": "def kernel():\n    with T.Kernel(4) as (bx, by):\n        pass\n",
    "names of two axes": "def kernel():\n    with T.Kernel(4, 4) as (bx, by, bz):\n        pass\n",
    "one name of two axes": "def kernel(A: T.Tensor((4,), 'int32')):\n    with T.Kernel(4, 4) as bx:\n        A[bx] = 1\n",
    "grid": "def kernel():\n    with T.Kernel(1, 2, 3, 4, threads=32):\n        pass\n",
    "allocation outside a launch": "def kernel():\n    S = T.alloc_shared((4,), 'int32')\n",
    "size that nothing gives": "def kernel(A: T.Tensor((m * 2,), 'int32')):\n    with T.Kernel(1):\n        A[0] = k\n",
    "returned value": "def kernel(A: T.Tensor((4,), 'int32')):\n    with T.Kernel(1):\n        A[0] = 1\n    return A\n",
    "text before the error": "def kernel(A: T.Tensor((4,), 'int32')):\n    with T.Kernel(1):\n        größe = 'ß'; A[4] = 1\n",
    "two meanings": "def kernel(A: T.Tensor((m,), 'int32'), m: T.int64):\n    pass\n",
}

MACRO = """
@T.macro
def inner(A, i):
    A[i] = A[i] / 2

@T.macro
def outer(A):
    for i in range(2):
        inner(A, i)

def fn(A: T.Tensor((4,), "int32")):
    with T.Kernel(1):
        A[0] = 1
        outer(A)
"""


def helper(x):
    return 1 if x > 3 else 2


@T.macro
def twice(x):
    y = T.alloc_var("int32", init=x)
    y += x
    return y


def message(source):
    names = {
        "helper": helper, "twice": twice, "GLOBAL": 1, "kept": [], "m": T.dynamic("m"), "k": T.dynamic("k"),
        "np": np, "math": math,
    }  # fmt: skip
    with pytest.raises(TileError) as caught:
        T.prim_func(defined(source, "kernel.py", **names))
    return f"{type(caught.value).__name__}\n{caught.value}"


def written(messages):
    return "\n\n".join(f"--- {name}\n{text}" for name, text in messages.items())


@pytest.mark.parametrize("group", GROUPS)
def test_refused_statements(group, golden):
    messages = {}
    for name, body in GROUPS[group].items():
        lines = "\n".join("        " + line for line in body.splitlines())
        head = 'def fn(A: T.Tensor((8, 16), "float32"), B: T.Tensor((16,), "int32"), n: T.int32):\n'
        if name == "buffer of a loop":
            lines = lines.replace("'int32')", "'int32')\n            kept.append(tile)")
        messages[name] = message(f"{head}    with T.Kernel(1, threads=32) as index:\n{lines}\n")
    golden(written(messages), f"errors/frontend_{group}")


def test_refused_functions(golden):
    messages = {
        name: message(text.replace("def kernel", "def fn")) for name, text in FUNCTIONS.items()
    }
    golden(written(messages), "errors/frontend_functions")


def test_the_calls_that_lead_to_an_error(golden):
    golden(message(MACRO), "errors/frontend_macros")


def test_outside_a_kernel(golden):
    messages = {}
    calls = {
        "T.serial": lambda: T.serial(4),
        "macro": lambda: twice(3),
        "T.Kernel": lambda: T.Kernel(1),
    }
    for name, call in calls.items():
        with pytest.raises(TileError) as caught:
            call()
        messages[name] = str(caught.value)
    golden(written(messages), "errors/frontend_outside")


def test_refused_arguments(golden):
    n = T.dynamic("n")
    source = """
def add(A: T.Tensor((n, 16), "float32"), B: T.Tensor((n, 16), "float32"), s: T.StridedTensor((n,), (2,), "int8"),
        k: T.int8):
    with T.Kernel(1):
        B[0, 0] = A[0, 0] + s[0] + k
fn = add
"""
    kernel = tilelang.compile(T.prim_func(defined(source, "kernel.py", n=n)), target="cpu")
    a, b, s = (
        np.zeros((4, 16), np.float32),
        np.zeros((4, 16), np.float32),
        np.zeros(8, np.int8)[::2],
    )
    frozen = b.copy()
    frozen.flags.writeable = False
    calls = {
        "count": (a, b),
        "rank": (a[None], b, s, 1),
        "dtype": (a.astype(np.float16), b, s, 1),
        "extent": (np.zeros((4, 15), np.float32), b, s, 1),
        "sizes that disagree": (a, b[:3], s, 1),
        "strides": (a, b, np.zeros(4, np.int8), 1),
        "read only": (a, frozen, s, 1),
        "none": (None, b, s, 1),
        "no array": ([1.0], b, s, 1),
        "scalar": (a, b, s, 128),
        "scalar of another type": (a, b, s, 1.5),
    }
    messages = {}
    for name, args in calls.items():
        with pytest.raises(TileError) as caught:
            kernel(*args)
        messages[name] = f"{type(caught.value).__name__}\n{caught.value}"
    with pytest.raises(TileError) as caught:
        kernel(a, b, s, c=3)
    messages["unknown keyword"] = f"{type(caught.value).__name__}\n{caught.value}"
    golden(written(messages), "errors/frontend_arguments")
