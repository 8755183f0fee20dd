"""What buffers take of each memory, when that is refused, and what the report says."""

import json

import pytest

import tilelang.ascend.language as TA
import tilelang.language as T
from tilelang.errors import Severity
from tilelang.isa.target import Per
from tilelang.passes.check import check_function, memory_report
from tilelang.scopes import Memory
from tilelang.targets import target


def found(kernel, on, kind="capacity"):
    return [d for d in check_function(kernel.ir, target(on)) if d.kind == kind]


def severities(kernel, on):
    return [d.severity for d in found(kernel, on)]


def part(kernel, on):
    (only,) = memory_report(kernel.ir, target(on)).launches
    return only


def row(kernel, on, name):
    return next(r for r in part(kernel, on).rows if r.name == name)


# -- Tensor Memory ---------------------------------------------------------------------------------


def accumulator(columns, dtype="float32", rows=128):
    @T.prim_func
    def kernel():
        with T.Kernel(1, threads=128):
            T.alloc_tmem((rows, columns), dtype)

    return kernel


@pytest.mark.parametrize(
    ("asked", "taken"),
    [
        (1, 32),
        (16, 32),
        (32, 32),
        (33, 64),
        (96, 128),
        (100, 128),
        (127, 128),
        (200, 256),
        (256, 256),
        (512, 512),
    ],
)
def test_columns_are_rounded_up_and_the_rounding_is_reported(asked, taken):
    kernel = accumulator(asked)
    (only,) = part(kernel, "emulate:sm_100a").rows
    assert (only.asked, only.amount) == (asked, taken)
    notes = found(kernel, "emulate:sm_100a")
    assert [n.severity for n in notes] == ([] if asked == taken else [Severity.NOTE])
    assert all(f"takes {taken} columns" in n.message and str(asked) in n.got for n in notes)


@pytest.mark.parametrize("columns", [513, 600, 1024])
def test_more_than_all_columns_are_refused(columns):
    (only,) = found(accumulator(columns), "emulate:sm_100a")
    assert only.severity is Severity.ERROR
    assert "512 are available" in only.message and str(columns) in only.label


def test_columns_are_not_limited_where_there_is_no_chip():
    assert Severity.ERROR not in severities(accumulator(600), "emulate")


@pytest.mark.parametrize(
    ("rows", "legal"), [(1, True), (64, True), (128, True), (129, False), (192, False), (256, True)]
)
def test_rows_of_tensor_memory(rows, legal):
    refused = found(accumulator(64, rows=rows), "emulate:sm_100a", "shape")
    assert bool(refused) is not legal
    assert all("(2, 128, 64)" in d.help for d in refused)


def test_leading_axes_lie_along_the_columns():
    @T.prim_func
    def kernel():
        with T.Kernel(1, threads=128):
            T.alloc_tmem((2, 128, 96), "float32")

    assert row(kernel, "emulate:sm_100a", "tmem").asked == 192


@pytest.mark.parametrize(("dtype", "total"), [("float16", "float16"), ("int8", "int32")])
def test_an_accumulators_element_takes_a_whole_cell(dtype, total):
    @T.prim_func
    def kernel():
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((128, 64), dtype), T.alloc_shared((64, 96), dtype)
            c = T.alloc_tmem((128, 96), total)
            T.gemm(a, b, c)

    assert row(kernel, "emulate:sm_100a", "c").asked == 96


@pytest.mark.parametrize(
    ("dtype", "asked"), [("float16", 64), ("bfloat16", 64), ("int8", 32), ("float32", 128)]
)
def test_other_elements_share_cells(dtype, asked):
    assert part(accumulator(128, dtype), "emulate:sm_100a").rows[0].asked == asked


@pytest.mark.parametrize(("rows", "asked"), [(128, 48), (256, 96), (512, 192)])
def test_more_than_128_rows_lie_further_along_the_columns(rows, asked):
    assert part(accumulator(48, rows=rows), "emulate:sm_100a").rows[0].asked == asked


def test_operand_a_lies_packed():
    @T.prim_func
    def kernel():
        with T.Kernel(1, threads=128):
            p = T.alloc_tmem((128, 128), "float16")
            b = T.alloc_shared((128, 64), "float16")
            c = T.alloc_tmem((128, 64), "float32")
            T.gemm(p, b, c)

    assert row(kernel, "emulate:sm_100a", "p").asked == 64
    assert row(kernel, "emulate:sm_100a", "c").asked == 64


def test_an_element_wider_than_a_cell_is_refused():
    assert len(found(accumulator(64, "float64"), "emulate:sm_100a", "dtype")) == 1
    assert found(accumulator(64, "float32"), "emulate:sm_100a", "dtype") == []


def two(first, second, *, nested=False, freed=False):
    @T.prim_func
    def kernel():
        with T.Kernel(1, threads=128):
            for _ in T.serial(1):
                a = T.alloc_tmem((128, first), "float32")
                if freed:
                    T.deallocate_tmem(a)
                if not nested:
                    T.alloc_tmem((128, second), "float32")
            if nested:
                T.alloc_tmem((128, second), "float32")

    return kernel


@pytest.mark.parametrize(("first", "second"), [(256, 512), (512, 32), (257, 230), (510, 1)])
def test_two_live_buffers_over_the_limit(first, second):
    assert Severity.ERROR in severities(two(first, second), "emulate:sm_100a")


@pytest.mark.parametrize(("first", "second"), [(256, 256), (200, 129), (257, 200), (300, 1)])
def test_two_live_buffers_within_the_limit(first, second):
    assert Severity.ERROR not in severities(two(first, second), "emulate:sm_100a")


def test_buffers_of_blocks_that_follow_each_other_do_not_add_up():
    assert Severity.ERROR not in severities(two(512, 256, nested=True), "emulate:sm_100a")


def test_a_freed_buffer_does_not_add_up():
    assert Severity.ERROR not in severities(two(512, 256, freed=True), "emulate:sm_100a")


@pytest.mark.parametrize(
    ("sizes", "loops", "legal"),
    [
        ((256, 512), False, False),  # the second is wider than what was allocated before
        ((512, 256), False, True),
        ((64, 64), True, True),
        ((64, 32), True, False),  # the next round begins with 64 after 32
    ],
)
def test_no_allocation_is_wider_than_one_before(sizes, loops, legal):
    @T.prim_func
    def kernel():
        with T.Kernel(1, threads=128):
            for _ in T.serial(2 if loops else 1):
                first = T.alloc_tmem((128, sizes[0]), "float32")
                T.deallocate_tmem(first)
                second = T.alloc_tmem((128, sizes[1]), "float32")
                T.deallocate_tmem(second)

    wrong = [d for d in found(kernel, "emulate:sm_100a") if d.severity is Severity.ERROR]
    assert [d.loc is not None and "more than an allocation" in d.message for d in wrong] == (
        [] if legal else [True]
    )


# -- shared memory ---------------------------------------------------------------------------------


def shared(rows, columns, dtype="float32", scope="shared.dyn"):
    @T.prim_func
    def kernel(A: T.Tensor((rows, columns), dtype), B: T.Tensor((rows, columns), dtype)):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((rows, columns), dtype, scope=scope)
            T.copy(A, s)
            T.copy(s, B)

    return kernel


def test_the_size_asked_for_and_the_limit_are_in_the_message():
    (only,) = found(shared(512, 512), "cuda -arch=sm_90a")
    text = only.render()
    assert "1048576 bytes of shared memory" in text and "232448" in text
    assert "s       shared.dyn  shared memory  (512, 512)" in text


@pytest.mark.parametrize(
    ("on", "most"),
    [
        ("sm_80", 166912),
        ("sm_89", 101376),
        ("sm_90a", 232448),
        ("sm_100a", 232448),
        ("sm_120a", 101376),
    ],
)
def test_shared_memory_is_limited_to_the_byte(on, most):
    assert found(shared(1, most, "uint8"), f"emulate:{on}") == []
    assert severities(shared(1, most + 1, "uint8"), f"emulate:{on}") == [Severity.ERROR]
    assert found(shared(1, most + 1, "uint8"), "cpu") == []


def test_static_shared_memory_has_a_limit_of_its_own():
    most = 48 * 1024
    assert found(shared(1, most, "uint8", "shared"), "emulate:sm_90a") == []
    (only,) = found(shared(1, most + 1, "uint8", "shared"), "emulate:sm_90a")
    assert "static shared memory" in only.message and "shared.dyn" in only.help
    assert found(shared(1, most + 1, "uint8"), "emulate:sm_90a") == []


def test_a_bool_buffer_is_static():
    (only,) = found(shared(1, 48 * 1024 + 1, "bool"), "emulate:sm_90a")
    assert "static" in only.message


def test_sub_byte_elements_are_packed():
    assert row(shared(4, 10, "int4"), "cpu", "s").bytes == 20


def chain(size, *, together):
    @T.prim_func
    def kernel(A: T.Tensor((size,), "uint8"), B: T.Tensor((size,), "uint8")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((size,), "uint8")
            b = T.alloc_shared((size,), "uint8")
            T.copy(A, a)
            if not together:
                T.copy(a, B)
            T.copy(A, b)
            T.copy(b, B)
            if together:
                T.copy(a, B)

    return kernel


def test_buffers_that_are_not_live_together_share_storage():
    one = part(chain(150_000, together=False), "emulate:sm_90a").total(Memory.SHARED)
    assert (one.used, one.declared) == (150_000, 300_000)
    assert severities(chain(150_000, together=False), "emulate:sm_90a") == [Severity.NOTE]
    assert severities(chain(150_000, together=True), "emulate:sm_90a") == [Severity.ERROR]


def test_a_buffer_used_in_a_loop_is_live_in_all_of_it():
    @T.prim_func
    def kernel(A: T.Tensor((150_000,), "uint8"), B: T.Tensor((150_000,), "uint8")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((150_000,), "uint8")
            b = T.alloc_shared((150_000,), "uint8")
            for _ in T.serial(4):
                T.copy(A, a)
                T.copy(a, B)
                T.copy(A, b)
                T.copy(b, B)

    assert severities(kernel, "emulate:sm_90a") == [Severity.ERROR]


def test_a_buffer_that_nothing_uses_counts_for_its_block():
    @T.prim_func
    def kernel():
        with T.Kernel(1, threads=128):
            T.alloc_shared((300_000,), "uint8")

    assert severities(kernel, "emulate:sm_90a") == [Severity.ERROR]


def pipelined(stages, tile=(128, 128)):
    @T.prim_func
    def kernel(A: T.Tensor((1024, 128), "float16"), B: T.Tensor((128, 128), "float32")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared(tile, "float16")
            other = T.alloc_shared((128, 128), "float16")
            f = T.alloc_fragment((128, 128), "float32")
            T.clear(f)
            for k in T.Pipelined(8, num_stages=stages):
                T.copy(A[k * 128, 0], s)
                T.copy(s, other)
                T.gemm(s, other, f, transpose_B=True)
            T.copy(f, B)

    return kernel


@pytest.mark.parametrize("stages", [0, 1, 2, 3, 4])
def test_stages_multiply_what_copies_from_global_memory_fill(stages):
    total = part(pipelined(stages), "emulate:sm_90a").total(Memory.SHARED)
    assert total.used == 2 * 32768
    assert total.staged == (max(1, stages) + 1) * 32768
    assert row(pipelined(stages), "emulate:sm_90a", "other").stages == 1


def test_stages_that_do_not_fit_are_a_note():
    assert found(pipelined(4), "emulate:sm_90a") == []
    (only,) = found(pipelined(8), "emulate:sm_90a")
    assert only.severity is Severity.NOTE and "8 x s" in only.label and "num_stages" in only.help


# -- registers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "dtype", "threads", "registers"),
    [
        ((128, 128), "float32", 128, 128),
        ((128, 128), "float16", 128, 64),
        ((64, 64), "float32", 256, 16),
        ((100,), "float32", 128, 1),
        ((127, 24), "float32", 96, 32),
        ((8,), "float64", 1, 16),
    ],
)
def test_a_fragments_share_per_thread(shape, dtype, threads, registers):
    @T.prim_func
    def kernel():
        with T.Kernel(1, threads=threads):
            T.alloc_fragment(shape, dtype)

    assert row(kernel, "cpu", "fragment").amount == registers


def test_local_buffers_and_variables_are_each_threads_own():
    @T.prim_func
    def kernel():
        with T.Kernel(1, threads=256):
            a = T.alloc_local((10,), "float32")
            b = T.alloc_local((3,), "float16")
            v = T.alloc_var("float64")
            a[0] = v + b[0]

    got = {r.name: r.amount for r in part(kernel, "cpu").rows}
    assert got == {"a": 10, "b": 2, "v": 2}


def test_registers_over_the_limit_spill_and_are_a_warning():
    def make(columns, threads):
        @T.prim_func
        def kernel():
            with T.Kernel(1, threads=threads):
                T.alloc_fragment((128, columns), "float32")

        return kernel

    assert severities(make(256, 128), "emulate:sm_90a") == [Severity.WARNING]
    assert severities(make(128, 128), "emulate:sm_90a") == []
    assert severities(make(1000, 1024), "emulate:sm_90a") == [Severity.WARNING]  # of the block
    assert severities(make(256, 128), "cpu") == []


def test_the_number_of_threads_that_the_target_chooses_is_said():
    @T.prim_func
    def kernel():
        with T.Kernel(1):
            T.alloc_fragment((256,), "float32")

    report = memory_report(kernel.ir, target("emulate:sm_90a"))
    assert report.launches[0].rows[0].amount == 2
    assert "128 threads per block (chosen by the target)" in report.render()


# -- Ascend ----------------------------------------------------------------------------------------


def l0c(rows, columns):
    @T.prim_func
    def kernel():
        with TA.Kernel(1):
            c = TA.alloc_l0c((rows, columns), "float32")
            TA.clear(c)

    return kernel


def test_l0c_of_the_950_and_of_the_910b():
    total = part(l0c(256, 224), "emulate:ascend950").total(Memory.L0C)
    assert (total.used, total.capacity.amount) == (229_376, 262_144)
    assert (
        "L0C buffer: 229376 of 262144 bytes"
        in memory_report(l0c(256, 224).ir, target("emulate:ascend950")).render()
    )
    assert found(l0c(256, 256), "emulate:ascend950") == []
    assert severities(l0c(256, 257), "emulate:ascend950") == [Severity.ERROR]
    (old,) = found(l0c(256, 224), "emulate:ascend910b")
    assert "131072" in old.message


@pytest.mark.parametrize(
    ("function", "most"),
    [
        ("alloc_shared", 253_952),
        ("alloc_l1", 524_288),
        ("alloc_l0a", 65_536),
        ("alloc_l0b", 65_536),
    ],
)
def test_each_ascend_buffer_is_limited_to_the_byte(function, most):
    def make(size):
        @T.prim_func
        def kernel():
            with TA.Kernel(1):
                getattr(TA, function)((size,), "uint8")

        return kernel

    assert found(make(most), "emulate:ascend950") == []
    assert severities(make(most + 1), "emulate:ascend950") == [Severity.ERROR]


def test_what_the_adapter_leaves_to_the_uses_is_counted_where_they_put_it():
    @T.prim_func
    def kernel(A: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=1):
            T.alloc_ub((8,), "float16")
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            u = T.alloc_shared((64, 64), "float32")
            c = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.copy(A, b)
            T.gemm(a, b, c)
            T.copy(C, u)
            T.copy(c, C)

    rows = {r.name: r.memory for r in part(kernel, "emulate:ascend910b").rows}
    assert rows["a"] is rows["b"] is Memory.L1
    assert rows["u"] is Memory.UB and rows["c"] is Memory.L0C


# -- the report ------------------------------------------------------------------------------------


def test_the_report_is_plain_data():
    report = memory_report(pipelined(3).ir, target("emulate:sm_90a"))
    data = json.loads(json.dumps(report.to_json()))
    (launch,) = data["launches"]
    assert launch["threads"] == 128
    assert {b["buffer"]: b["amount"] for b in launch["buffers"]} == {
        "s": 32768,
        "other": 32768,
        "f": 128,
    }
    totals = {t["memory"]: t for t in launch["totals"]}
    assert totals["shared"]["used"] == 65536 and totals["shared"]["capacity"] == 232448
    assert totals["shared"]["fits"] is True


def test_an_unlimited_target_reports_without_limits():
    total = part(shared(512, 512), "cpu").total(Memory.SHARED)
    assert total.capacity is None and total.fits and total.used == 1048576


def test_each_launch_has_a_part_of_its_own():
    @T.prim_func
    def kernel():
        with T.Kernel(1, threads=32):
            T.alloc_shared((10,), "uint8")
        with T.Kernel(1, threads=64):
            T.alloc_shared((20,), "uint8")

    first, second = memory_report(kernel.ir, target("emulate:sm_90a")).launches
    assert (first.threads, second.threads) == (32, 64)
    assert first.total(Memory.SHARED).used == 10 and second.total(Memory.SHARED).used == 20
    assert first.total(Memory.SHARED, Per.BLOCK_STATIC) is None


def test_a_workspace_of_a_size_that_launch_binds_is_listed():
    n = T.dynamic("n")

    @T.prim_func
    def kernel(A: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, 128), threads=128) as bx:
            ws = T.alloc_global((n,), "float32")
            for i in T.Parallel(128):
                ws[bx * 128 + i] = A[bx * 128 + i]

    (only,) = part(kernel, "cpu").rows
    assert only.bytes is None and only.shape == "(n,)"
