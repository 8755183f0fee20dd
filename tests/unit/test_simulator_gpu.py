"""`target="simulate:<chip>"` for GPUs: calls, and what is found at the author's lines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from simulator_build import built
from tilelang.errors import DeadlockError, TileError, TileIndexError, TileRuntimeError
from tilelang.ir.read import read_program
from tilelang.ir.thread import Instr
from tilelang.simulator.gpu.partition import partition
from tilelang.simulator.gpu.rows.registry import meaning
from tilelang.simulator.machine import Mode, Schedule
from tilelang.targets.cuda.rows import ROWS

HOPPER = "simulate:sm_90a"


def doubled(n: int = 100):
    @T.prim_func
    def kernel(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, 64), threads=64) as bx:
            for i in T.Parallel(64):
                B[bx * 64 + i] = A[bx * 64 + i] * 2

    return kernel


def line_of(text: str) -> int:
    """The number of the only line of this file that has the text."""
    lines = Path(__file__).read_text().splitlines()
    (found,) = [n for n, line in enumerate(lines, 1) if text in line and "line_of" not in line]
    return found


# Calls -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a"])
def test_a_kernel_is_called_like_any_other(arch):
    kernel = tilelang.compile(doubled(), out_idx=-1, target=f"simulate:{arch}")
    a = np.arange(100, dtype=np.float32)
    np.testing.assert_array_equal(kernel(a), a * 2)
    assert kernel.target == f"simulate:{arch}"
    assert "def kernel(g, p, m0):" in kernel.get_kernel_source()


def test_arrays_of_torch_are_taken():
    torch = pytest.importorskip("torch")
    kernel = tilelang.compile(doubled(), target=HOPPER)
    a, b = torch.arange(100.0), torch.zeros(100)
    kernel(a, b)
    assert torch.equal(b, a * 2)


def test_the_report_says_what_the_lowering_decided():
    @T.prim_func
    def kernel(
        A: T.Tensor((64, 64), "float16"),
        B: T.Tensor((64, 64), "float16"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((64, 64), "float16"), T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.clear(c)
            T.gemm(a, b, c)
            T.copy(c, C)

    assert "wgmma.m64n64k16" in tilelang.compile(kernel, target=HOPPER).report()


def test_blocks_that_wait_for_each_other_run_at_once():
    @T.prim_func
    def kernel(F: T.Tensor((4,), "int32"), A: T.Tensor((4,), "int32")):
        with T.Kernel(4, threads=32) as bx:
            tx = T.get_thread_binding()
            if tx == 0:
                if bx < 3:
                    seen = T.alloc_var("int32", init=0)
                    while seen == 0:
                        seen = T.atomic_load(F[bx + 1], memory_order="acquire")
                    A[bx] = A[bx + 1] + 1
                T.atomic_store(F[bx], 1, memory_order="release")

    made = tilelang.compile(kernel, target=HOPPER)
    f, a = np.zeros(4, np.int32), np.array([0, 0, 0, 5], np.int32)
    made(f, a)
    assert a.tolist() == [8, 7, 6, 5]


def test_a_failed_assertion_names_its_thread():
    @T.prim_func
    def kernel(A: T.Tensor((64,), "int32")):
        with T.Kernel(2, threads=32) as bx:
            tx = T.get_thread_binding()
            T.device_assert(A[bx * 32 + tx] >= 0, "not negative")

    a = np.ones(64, np.int32)
    made = tilelang.compile(kernel, target=HOPPER)
    made(a)
    a[45] = -1
    with pytest.raises(
        TileRuntimeError, match=r"not negative(.|\n)*block \(1, 0, 0\), thread \(13"
    ):
        made(a)


def test_threads_print_lines(capsys):
    @T.prim_func
    def kernel(A: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            if tx == 3:
                T.print(A[tx] + 1, msg="here")

    tilelang.compile(kernel, target=HOPPER)(np.arange(32, dtype=np.int32))
    assert "msg='here' BlockIdx=(0, 0, 0), ThreadIdx=(3, 0, 0)" in capsys.readouterr().out


# Findings ----------------------------------------------------------------------------------------


def test_a_wait_for_what_never_arrives_is_a_deadlock_with_a_count():
    @T.prim_func
    def kernel(A: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=64):
            bar = T.alloc_barrier(2)
            tx = T.get_thread_binding()
            if tx == 0:
                T.barrier_arrive(bar)
            T.barrier_wait(bar, 0)  # nobody else arrives
            if tx < 32:
                A[tx] = 1

    with pytest.raises(DeadlockError, match="which lacks 1 of 2 arrivals") as found:
        tilelang.compile(kernel, target=HOPPER)(np.zeros(32, np.int32))
    assert found.value.diagnostics[0].loc.line == line_of("# nobody else arrives")


def test_an_index_that_data_decides_is_checked():
    @T.prim_func
    def kernel(I: T.Tensor((32,), "int32"), A: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((32,), "int32")
            tx = T.get_thread_binding()
            s[tx] = tx
            T.sync_threads()
            A[tx] = s[I[tx]]  # an index of the data

    index = np.arange(32, dtype=np.int32)
    made = tilelang.compile(kernel, target=HOPPER)
    made(index, np.zeros(32, np.int32))
    index[7] = 40
    with pytest.raises(TileIndexError, match="outside of s") as found:
        made(index, np.zeros(32, np.int32))
    assert found.value.diagnostics[0].loc.line == line_of("# an index of the data")


def test_what_nobody_wrote_is_found():
    @T.prim_func
    def kernel(A: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            s = T.alloc_shared((64,), "int32")
            tx = T.get_thread_binding()
            if tx < 60:
                s[tx] = tx
            T.sync_threads()
            A[tx] = s[tx]  # four are missing

    with pytest.raises(TileRuntimeError, match="read where nobody has written") as found:
        tilelang.compile(kernel, target=HOPPER)(np.zeros(64, np.int32))
    assert found.value.diagnostics[0].loc.line == line_of("# four are missing")


def test_blocks_that_write_one_place_are_a_race_unless_they_write_the_same():
    def kernel(same: bool):
        @T.prim_func
        def body(A: T.Tensor((32,), "int32")):
            with T.Kernel(2, threads=32) as bx:
                tx = T.get_thread_binding()
                A[tx] = 7 if same else bx

        return built(read(body))

    def read(body):
        from tilelang.isa.target import parse_target
        from tilelang.passes.pipeline import lower
        from tilelang.targets import CHIPS

        return lower(body.ir, parse_target("cuda -arch=sm_90a", CHIPS))

    assert not kernel(True).check({"A": np.zeros(32, np.int32)}, Schedule())
    (found,) = kernel(False).check({"A": np.zeros(32, np.int32)}, Schedule())
    assert found.kind == "race"
    assert "block (0,) has written" in found.message


PARTS = """
@program()
def parts(A: Global((64,), 64, int32, align=16)):
    with kernel("parts_kernel", (A,), (1,), (64,), shared=256) as ((bx,), (tx,)):
        s = declare(64, int32, space="shared", align=16, offset=0)
        {body}
        A[tx] = 1
"""


def parts(body: str):
    return read_program(PARTS.format(body=body))


def test_a_barrier_that_a_part_of_a_warp_reaches_is_divergence():
    program = parts(
        'if tx < 40:\n            instr("barrier.sync", (), (), imm={"id": 0, "threads": 64})'
    )
    with pytest.raises(TileError, match="reached by a part of warp 1"):
        built(program).run({"A": np.zeros(64, np.int32)})


def test_a_store_that_is_not_waited_for_is_left_over():
    program = parts(
        's[tx] = tx\n        instr("fence.proxy.async", (), ())\n        '
        'instr("barrier.sync", (), (), imm={"id": 0, "threads": 64})\n        '
        "if tx == 0:\n            "
        'instr("cp.async.bulk.store", (A[0 : +64],), (s[0 : +64], 256))\n            '
        'instr("cp.async.bulk.commit_group", (), ())'
    )
    found = built(program).check({"A": np.zeros(64, np.int32)}, Schedule(Mode.LATE))
    assert {d.kind for d in found} == {"leak", "race"}  # the threads write A as well


def test_the_dynamic_check_runs_the_lowered_program():
    kernel = doubled(64)
    found = tilelang.check(
        kernel, HOPPER, run_with=(np.zeros(64, np.float32), np.zeros(64, np.float32))
    )
    assert not found


def test_what_the_simulator_cannot_run_is_refused_by_name():
    program = parts('instr("no.such.row", (), ())')
    with pytest.raises(TileError, match=r"cannot run the instruction no\.such\.row"):
        built(program)


def test_every_row_of_the_table_has_a_meaning_here():
    missing = {name for name in ROWS if meaning(name) is None}
    # A product by one thread of a CPU, and what Tensor Memory is not modelled for yet.
    assert {name for name in missing if not name.startswith("tcgen05.")} == {"gemm.tile"}


# Groups ------------------------------------------------------------------------------------------


def groups(text: str) -> list[list[int]]:
    program = parts(text)
    (kernel,) = [s for s in program.body if type(s).__name__ == "Kernel"]
    assert any(isinstance(n, Instr) for n in program.walk())
    return partition(kernel, ROWS)


def test_warps_go_together_where_all_wait_alike():
    assert groups('instr("barrier.sync", (), (), imm={"id": 0, "threads": 64})') == [[0, 1]]


def test_warps_that_may_wait_for_each_other_go_apart():
    arrive = 'instr("barrier.arrive", (), (), imm={"id": 1, "threads": 64})'
    sync = 'instr("barrier.sync", (), (), imm={"id": 1, "threads": 64})'
    assert groups(f"if tx < 32:\n            {arrive}\n        else:\n            {sync}") == [
        [0],
        [1],
    ]


def test_an_index_of_a_threads_own_memory_is_checked():
    @T.prim_func
    def kernel(I: T.Tensor((32,), "int32"), A: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            x = T.alloc_local((4,), "int32")
            for k in T.serial(4):
                x[k] = k
            A[tx] = x[I[tx]]  # of its own

    index = np.arange(32, dtype=np.int32) % 4
    made, a = tilelang.compile(kernel, target=HOPPER), np.zeros(32, np.int32)
    made(index, a)
    np.testing.assert_array_equal(a, index)
    index[9] = -1
    with pytest.raises(TileIndexError, match=r"outside of x(.|\n)*got: -1") as found:
        made(index, a)
    assert found.value.diagnostics[0].loc.line == line_of("# of its own")


def test_the_command_checks_the_lowered_program(tmp_path, capsys):
    from tilelang.cli import main

    file = tmp_path / "unwritten.py"
    file.write_text(
        "import tilelang.language as T\n\n\n"
        "@T.prim_func\n"
        'def kernel(A: T.Tensor((64,), "int32")):\n'
        "    with T.Kernel(1, threads=64):\n"
        '        s = T.alloc_shared((64,), "int32")\n'
        "        tx = T.get_thread_binding()\n"
        "        if tx < 60:\n"
        "            s[tx] = tx\n"
        "        T.sync_threads()\n"
        "        A[tx] = s[tx]\n"
    )
    code = main(["check", f"{file}::kernel", "--dynamic", "--target", HOPPER])
    out = capsys.readouterr().out
    assert code == 1
    assert "error[uninitialised]: shared memory is read where nobody has written" in out
    assert "unwritten.py:12" in out
