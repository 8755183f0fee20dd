"""`tilewright port`: what is respelled, what is left byte for byte, what is listed."""

from pathlib import Path

import pytest

from tilelang.cli import main
from tilelang.cli.port import ported

MAINLINE = '''\
"""T.alloc_shared in a text stays."""
import tilelang.ascend.language as T  # the dialect
import tilelang.language as C


def f(M, K):
    vid = 3

    @T.prim_func
    def kernel(A: T.Tensor((M, K), "float16")):
        with T.Kernel(T.ceildiv(M, 16)) as bx:
            a = T.alloc_l1((16, K),   "float16")   # odd   spacing
            u = T.alloc_shared((16, K), "float16"); é = u
            acc, x, y = T.alloc_l0c((16, 16), "float32"), 1, 2
            with T.Cube():
                T.gemm(a, a, acc, transpose_B=True, clear_accum=k == 0)
            T.ascend_set_flag("MTE2_MTE1", x % 2)
            T.ascend_pipe_barrier("PIPE_ALL")
            T.ascend_pipe_barrier("PIPE_V")
            T.ascend_cross_core_set_flag(2, "PIPE_FIX", 1)
            T.ascend_cross_core_set_flag(0, "PIPE_MTE3", 2)
        C.alloc_shared((1,), "int8")

    return kernel
'''
ADAPTER = '''\
"""T.alloc_shared in a text stays."""
import tilelang.language as T  # the dialect
import tilelang.language as C


def f(M, K):
    vid = 3

    @T.prim_func
    def kernel(A: T.Tensor((M, K), "float16")):
        with T.Kernel(T.ceildiv(M, 16), is_npu=True) as (bx, vid_0):
            a = T.alloc_L1((16, K),   "float16")   # odd   spacing
            u = T.alloc_ub((16, K), "float16"); é = u
            acc, x, y = T.alloc_L0C((16, 16), "float32"), 1, 2
            with T.Scope("C"):
                T.gemm_v0(a, a, acc, transpose_B=True, init=k == 0)
            T.set_flag("mte2", "mte1", x % 2)
            T.barrier_all()
            T.pipe_barrier("v")
            T.set_cross_flag("fix", 1)
            T.set_cross_flag("mte3", 2, mode=0)
        C.alloc_shared((1,), "int8")

    return kernel
'''


def test_a_program_goes_over_and_comes_back_byte_for_byte() -> None:
    over = ported(MAINLINE, "adapter")
    assert (over.text, over.notes) == (ADAPTER, [])
    back = ported(over.text, "mainline")
    assert (back.text, back.notes) == (MAINLINE, [])


def _adapter(body: str, names: str = "(cid, vid)") -> str:
    lines = "\n    ".join(body.splitlines())
    return (
        f"import tilelang.language as T\nwith T.Kernel(4, is_npu=True) as {names}:\n    {lines}\n"
    )


def test_the_number_of_the_vector_core_decides_between_the_two_launches() -> None:
    assert "T.MixedKernel(4) as (cid, vid)" in ported(_adapter("f(vid)"), "mainline").text
    assert "T.Kernel(4) as cid:" in ported(_adapter("f(cid)"), "mainline").text
    mixed = "import tilelang.ascend.language as T\nwith T.MixedKernel(4) as (b, s):\n    f(s)\n"
    assert "T.Kernel(4, is_npu=True) as (b, s)" in ported(mixed, "adapter").text


@pytest.mark.parametrize(
    ("statement", "new"),
    [
        ("a = T.alloc_L0A((1, 1), d)\nT.mma(a, b, c, init=k)", "T.gemm(a, b, c, clear_accum=k)"),
        ("T.mma(a, b, c, True)", "T.gemm(a, b, c, clear_accum=True)"),
        ("T.gemm_v0(a, b, c, False, True, k)", "T.gemm(a, b, c, False, True, clear_accum=k)"),
        ("T.wait_flag('v', 'mte3', i)", 'T.ascend_wait_flag("V_MTE3", i)'),
        ("T.wait_cross_flag(3)", 'T.ascend_cross_core_wait_flag(2, "PIPE_ALL", 3)'),
        ("T.tile.fill(x, 0)", "T.fill(x, 0)"),
    ],
)
def test_an_operation_takes_its_other_name(statement: str, new: str) -> None:
    done = ported(_adapter(statement), "mainline")
    assert new in done.text
    assert done.notes == []


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("T.tile.exp(x, x)", "T.tile.exp has no counterpart"),
        ("T.gemm_v0(a, b, c)", "reads B as (N, K)"),
        ("T.alloc_shared((4,), d)", "is UB or L1 by its use"),
        ("T.copy(a, b, enable_relu=True)", "enable_relu= of T.copy"),
        ("T.set_flag(p, q, 0)", "of pipes that the text does not show"),
        ("T.sync_all()", "T.sync_all has no counterpart"),
        ("T.copy(a, b, transpose=True)", "transpose= of T.copy is the product's there"),
        ("T.reduce_max(a, b, real_shape=[4, 4])", "real_shape= of T.reduce_max"),
        ("x = T.use_swizzle(cid, M, N, K, 16, 16, off=3)", "T.use_swizzle of a block"),
        ("for k in T.Pipelined(4, cross_interval=2): pass", "cross_interval= of T.Pipelined"),
    ],
)
def test_what_has_no_counterpart_is_listed_and_kept(statement: str, why: str) -> None:
    done = ported(_adapter(statement), "mainline")
    assert [note.line for note in done.notes] == [3]
    assert why in done.notes[0].text


def test_a_split_over_vector_cores_is_listed_and_left_out() -> None:
    launch = "with T.Kernel(4, threads=2, is_npu=True) as (cid):\n    f()\n"
    text = f"import tilelang.language as T\n{launch}"
    done = ported(text, "mainline")
    assert "with T.Kernel(4) as (cid):" in done.text
    assert [(n.line, n.text.split(" leaves")[0]) for n in done.notes] == [
        (2, "threads= of T.Kernel")
    ]


def test_a_launch_without_an_index_has_two_in_the_adapter() -> None:
    text = "import tilelang.ascend.language as T\nwith T.Kernel(1), T.Cube():\n    f(vid)\n"
    done = ported(text, "adapter")
    assert 'with T.Kernel(1, is_npu=True) as (cid, vid_0), T.Scope("C"):' in done.text
    assert done.notes == []


def test_settings_of_the_adapters_compiler_are_listed() -> None:
    text = (
        "import tilelang\nimport tilelang.language as T\n"
        "@tilelang.jit(\n    out_idx=[1],\n    workspace_idx=[2],\n    target='pto',\n"
        "    platform='A2',\n)\ndef f():\n"
        "    with T.Kernel(4, is_npu=True) as (cid, vid):\n        a = T.alloc_ub((4,), d)\n"
    )
    assert [note.line for note in ported(text, "mainline").notes] == [5, 6, 7]


def test_floats_that_only_the_950_multiplies_are_listed() -> None:
    text = 'import tilelang.ascend.language as T\nf("float8_e4m3fn")\ng("float16")\n'
    assert [note.line for note in ported(text, "adapter").notes] == [2]


def test_a_transpose_on_the_way_into_l1_is_listed() -> None:
    text = "import tilelang.ascend.language as T\nT.copy(a, b, transpose=True)\n"
    assert [note.line for note in ported(text, "adapter").notes] == [2]


@pytest.mark.parametrize(
    ("line", "new"),
    [
        ("from tilelang import language as T", "from tilelang.ascend import language as T"),
        (
            "from tilelang import DataType, language as T",
            "from tilelang import DataType; from tilelang.ascend import language as T",
        ),
    ],
)
def test_a_module_out_of_the_package_is_ported(line: str, new: str) -> None:
    body = "\nwith T.Kernel(4, is_npu=True) as (cid, vid):\n    a = T.alloc_ub((4,), d)\n"
    done = ported(line + body, "mainline")
    assert done.text == new + "\nwith T.Kernel(4) as cid:\n    a = T.alloc_shared((4,), d)\n"
    assert done.notes == []


def test_operations_of_the_950_alone_are_listed() -> None:
    body = "with T.SimdVF():\n    T.simd.vld(x[0])\nT.dual_copy(a, b)"
    lines = "\n    ".join(body.splitlines())
    text = f"import tilelang.ascend.language as T\nwith T.Kernel(1) as b:\n    {lines}\n"
    assert [note.line for note in ported(text, "adapter").notes] == [3, 4, 5]


def test_the_command_writes_the_file_and_says_what_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "in.py", tmp_path / "out.py"
    file.write_text(_adapter("T.tile.exp(x, x)"))
    assert main(["port", str(file), "--to", "mainline", "--out", str(out)]) == 1
    assert out.read_text() == ported(file.read_text(), "mainline").text
    assert f"note: {file}:3: T.tile.exp has no counterpart" in capsys.readouterr().err
    file.write_text(MAINLINE)
    assert main(["port", str(file), "--to", "adapter"]) == 0
    assert capsys.readouterr().out == ADAPTER
    file.write_text("def f(:\n")
    assert main(["port", str(file), "--to", "adapter"]) == 2


def test_a_program_of_neither_dialect_is_left_as_it_is() -> None:
    text = "import tilelang.language as T\nT.alloc_shared((1,), 'int8')\n"
    done = ported(text, "mainline")
    assert done.text == text
    assert "no kernel of the Ascend adapter dialect" in done.notes[0].text


@pytest.mark.parametrize(
    "spoken",
    [
        b"\xef\xbb\xbfimport tilelang.ascend.language as T\n",
        b"import tilelang.ascend.language as T\r\nx = 1\r\n",
        b"# -*- coding: latin-1 -*-\n# \xe9\nimport tilelang.ascend.language as T\n",
    ],
)
@pytest.mark.parametrize("to_file", [True, False])
def test_bytes_around_the_program_stay(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], spoken: bytes, to_file: bool
) -> None:
    file, out = tmp_path / "in.py", tmp_path / "out.py"
    file.write_bytes(spoken)
    assert main(["port", str(file), "--to", "adapter", *["--out", str(out)][: 2 * to_file]]) == 0
    written = out.read_bytes() if to_file else capfdbinary.readouterr().out
    assert written == spoken.replace(b".ascend", b"")


@pytest.mark.parametrize("text", [b"\xff\xfe", b"x = 1\x00\n", b"# coding: latin-0\n", b"# \xe9\n"])
def test_a_file_that_is_no_text_of_python_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: bytes
) -> None:
    file = tmp_path / "in.py"
    file.write_bytes(text)
    assert main(["port", str(file), "--to", "adapter"]) == 2
    err = capsys.readouterr().err
    assert str(file) in err
    assert "None" not in err


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("ub = T.alloc_ub", "T.alloc_ub is not called here"),
        ("add = T.tile.add", "T.tile.add is not called here"),
        ("import tilelang as tl; tl.language.alloc_ub((8,), 'int8')", "as T"),
        ("import tilelang.language; tilelang.language.alloc_ub((8,), 'int8')", "as T"),
        ("from tilelang import (\n    language as U)\nU.alloc_ub((8,), 'int8')", "as T"),
        ("from tilelang.language import *", "as T"),
    ],
)
def test_a_name_that_is_reached_otherwise_is_listed(line: str, why: str) -> None:
    text = _adapter(line)
    done = ported(text, "mainline")
    assert [note.line for note in done.notes] == [3]
    assert why in done.notes[0].text
    assert done.text.splitlines()[2] == text.splitlines()[2]
