"""The CUDA target without a GPU: sources, cubins, what the compiler says, what is refused."""

import numpy as np
import pytest

import cuda_casts
import cuda_host
import cuda_programs
import cuda_rows
import cuda_wgmma
from tilelang.dtypes import DType
from tilelang.errors import InternalError, Loc
from tilelang.ir.expr import Binary, BinaryOp, Const, Pack, Select, Var
from tilelang.ir.read import read_program
from tilelang.ir.text import print_program
from tilelang.ir.thread import Argument, Array, Declare, Elem, Instr, Kernel, Program, Space, Write
from tilelang.ir.tile import Assert, If, Let
from tilelang.ir.verify_thread import verify_program
from tilelang.isa.instr import checker
from tilelang.isa.target import parse_target
from tilelang.targets import CHIPS
from tilelang.targets.cuda import descriptors
from tilelang.targets.cuda.nvrtc import Flags, compile_source, is_installed, read_log
from tilelang.targets.cuda.occupancy import occupancy
from tilelang.targets.cuda.program import emit
from tilelang.targets.cuda.rows import ROWS, missing

ARCHS = [c.name for c in CHIPS if c.backend == "cuda"]
I32, F32, F16 = DType("int32"), DType("float32"), DType("float16")

needs_nvrtc = pytest.mark.skipif(not is_installed(), reason="NVRTC is not installed")
needs_compiler = pytest.mark.skipif(cuda_host.COMPILER is None, reason="no C++ compiler")
every_arch = pytest.mark.parametrize(
    "arch", [pytest.param(a, marks=() if a == "sm_90a" else pytest.mark.slow) for a in ARCHS]
)


def chip(arch):
    return parse_target(f"cuda:{arch}", CHIPS)


def cubin(program, arch, **flags):
    return compile_source(emit(program, chip(arch)).text, arch, Flags(**flags))


def golden_program(request, name):
    path = request.config.rootpath / "tests" / "golden" / "thread" / f"{name}.txt"
    return read_program(path.read_text())


# Machine code ------------------------------------------------------------------------------------

# ptxas advises against multicast on chips without an engine for it.
ADVICE = "'.multicast::cluster' modifier"


@needs_nvrtc
@every_arch
def test_every_row_compiles_where_the_chip_has_it(arch):
    rows = [ROWS[n] for n in ROWS if not n.startswith("wgmma")]
    special = ("gemm.tile", "print.element", "grid.sync")
    here = [r for r in rows if r.name not in special and not missing(r.name, chip(arch))]
    program = cuda_rows.program([cuda_rows.one_case(r) for r in here])
    verify_program(program, checker(ROWS), planned=True)
    made = cubin(program, arch)
    assert len(made.resources) == len(here) > 60
    assert [w for w in made.warnings if ADVICE not in w] == []


@needs_nvrtc
@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow), 9])
def test_products_of_a_warpgroup_compile(step):
    found = list(cuda_wgmma.cases({16: 3, 8: 6, 32: 6}))[::step]
    for part in range(0, len(found), 40):
        program = cuda_wgmma.program(found[part : part + 40])
        verify_program(program, checker(ROWS), planned=True)
        made = cubin(program, "sm_90a")
        assert made.warnings == ()
        assert all(r.spill_stores == 0 for r in made.resources.values())


@needs_nvrtc
@every_arch
@pytest.mark.parametrize("name", ["wgmma_gemm", "mma_gemm"])
def test_hand_written_products_compile_or_are_refused_by_name(request, name, arch):
    program = golden_program(request, name)
    if name == "wgmma_gemm" and arch != "sm_90a":
        with pytest.raises(InternalError, match=r"cuda -arch=\w+ has not the capability"):
            emit(program, chip(arch))
        return
    made = cubin(program, arch)
    assert made.warnings == ()
    assert made.code[:4] == b"\x7fELF"
    (used,) = made.resources.values()
    assert (used.spill_stores, used.spill_loads, used.stack) == (0, 0, 0)
    assert 0 < used.registers <= 168


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_100a", "sm_103a"])
def test_a_product_in_tensor_memory_compiles(request, arch):
    program = golden_program(request, "tcgen05_gemm")
    assert read_program(print_program(program)) == program
    verify_program(program, checker(ROWS), planned=True)
    made = cubin(program, arch)
    (used,) = made.resources.values()
    assert made.warnings == () and (used.spill_stores, used.stack) == (0, 0)
    with pytest.raises(InternalError, match="sm_90a has not the capability TCGEN05"):
        emit(program, chip("sm_90a"))


@needs_nvrtc
def test_what_ptxas_gives_up_is_an_error():
    text = """
    extern "C" __global__ void f() {
      asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    }"""
    with pytest.raises(InternalError, match=r"ptxas does not do for sm_90a(.|\n)*C7508"):
        compile_source(text, "sm_90a")


@needs_nvrtc
def test_messages_lead_to_the_authors_line():
    with pytest.raises(InternalError, match=r"kernels\.py\(7\): error: identifier \"nonsense\""):
        compile_source('#line 7 "kernels.py"\nnonsense x;', "sm_80")


def test_the_log_is_read_by_kernel():
    log = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'f' for 'sm_90a'
ptxas info    : Function properties for f
ptxas         .     16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 40 registers, used 2 barriers, 16 bytes stack frame, 1024 bytes smem
ptxas info    : Compile time = 2.0 ms
something else
"""
    found, others = read_log(log)
    assert others == ["something else"]
    assert vars(found["f"]) == {
        "registers": 40, "stack": 16, "spill_stores": 8, "spill_loads": 12, "shared": 1024,
        "barriers": 2,
    }  # fmt: skip


@needs_nvrtc
@pytest.mark.parametrize("rank", [1, 5])
def test_programs_with_tensor_maps_compile(rank):
    built = emit(cuda_programs.tma(rank), chip("sm_90a"))
    assert [m.box for m in built.host.maps] == [cuda_programs.BOX[:rank]] * 2
    assert "host.tensor_map(0, A, (20, " in built.host.text
    assert compile_source(built.text, "sm_90a").warnings == ()


# Meaning, by the host's compiler -----------------------------------------------------------------

FEW = ["float32", "float8_e4m3fn"]


def mostly_slow(names, fast):
    return [pytest.param(n, marks=() if n in fast else pytest.mark.slow) for n in names]


@needs_compiler
@pytest.mark.parametrize("src", mostly_slow(cuda_casts.TYPES, FEW))
def test_conversions_are_those_of_the_project(src, tmp_path):
    run_table(cuda_casts.casts(src), tmp_path)


@needs_compiler
@pytest.mark.parametrize("name", mostly_slow(cuda_casts.COMPUTED, ["int32", "float32"]))
def test_operators(name, tmp_path):
    run_table(cuda_casts.operators(name), tmp_path)


@needs_compiler
@pytest.mark.parametrize("src", ["float8_e4m3fn", "float8_e5m2", "float32"])
@pytest.mark.slow
def test_conversions_on_a_chip_without_8_bit_floats(src, tmp_path):
    run_table(cuda_casts.casts(src), tmp_path, "sm_80")


def run_table(table, folder, arch="sm_90a"):
    cuda_host.HostProgram(table.program(), chip(arch), folder).run(table.args)
    found = table.faults(table.args)
    assert not found, "\n".join(found[:20])


# Occupancy ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "registers, threads, shared, blocks, limit",
    [
        (168, 384, 197632, 1, "registers"),
        (32, 1024, 0, 2, "registers"),
        (255, 128, 0, 2, "registers"),
        (40, 128, 0, 12, "registers"),
        (32, 64, 65536, 3, "shared memory"),
        (16, 32, 0, 32, "blocks"),
        (24, 512, 1024, 4, "threads"),
    ],
)
def test_blocks_on_an_sm(registers, threads, shared, blocks, limit):
    found = occupancy(chip("sm_90a").chip, registers=registers, threads=threads, shared=shared)
    assert (found.blocks, found.limit) == (blocks, limit)


# Text --------------------------------------------------------------------------------------------

A = Array("A", F32, None, align=16)
B = Array("B", F16, None, align=16)
tx = Var("tx", I32)


def source(*body, params=(A, B), arch="sm_90a", plain=True):
    kernel = Kernel("k", params, (Const(1, I32),), (64,), (Var("bx", I32),), (tx,), body)
    args = tuple(Argument(p.name, array=p, shape=()) for p in params)
    built = emit(Program("f", args, (), (kernel,)), chip(arch))
    return built.plain if plain else built.text


def get(array, index, lanes=1, **facts):
    return Elem(array, index, array.type.with_lanes(lanes), **facts)


def times(a, n):
    return Binary(BinaryOp.MUL, a, Const(n, I32))


def test_accesses_are_as_wide_as_their_alignment():
    v = Var("v", DType("float32x4"))
    wide = source(Let(v, get(A, times(tx, 4), 4)), Write(A, times(tx, 4), v))
    assert "const uint4 tl_2 = *reinterpret_cast<const uint4*>" in wide
    assert "make_uint4(" in wide
    narrow = source(Let(v, get(A, times(tx, 4), 4, align=4)), Write(A, times(tx, 4), v, align=4))
    assert narrow.count("const u32*>") == 4 and "uint4" not in narrow


def test_hints_are_instructions_and_unknown_ones_refused():
    hints = (("cache", "nc"), ("l1", "no_allocate"))
    text = source(Write(B, tx, Const(0.0, F16)), Let(Var("x", F32), get(A, tx, hints=hints)))
    assert "ld.global.nc.L1::no_allocate.b32" in text
    with pytest.raises(InternalError, match="hints of an access"):
        source(Let(Var("x", F32), get(A, tx, hints=(("cache", "never"),))))


def test_pairs_are_rounded_together():
    x, y = get(A, times(tx, 2)), get(A, Binary(BinaryOp.ADD, times(tx, 2), Const(1, I32)))
    from tilelang.ir.expr import Cast

    text = source(Write(B, times(tx, 2), Pack((Cast(x, F16), Cast(y, F16)), DType("float16x2"))))
    assert "tl::f16x2_of_f32(A[" in text


def test_only_the_arm_taken_is_loaded():
    v = DType("float32x2")
    zero = Const(0.0, v)
    cond = Binary(BinaryOp.LT, tx, Const(5, I32))
    text = source(Write(A, times(tx, 2), Select(cond, get(A, times(tx, 2), 2), zero, lazy=True)))
    load, branch = text.index("const uint2*>"), text.index("if ((tx < 5))")
    assert branch < load < text.index("} else {")


def test_names_that_cpp_or_cuda_have():
    names = ["int", "register", "float4", "tl", "blockIdx", "f16", "__x", "half"]
    body = [Let(Var(n, I32), Const(k, I32)) for k, n in enumerate(names)]
    text = source(*body)
    assert [f"const i32 {n}_ = {k};" in text for k, n in enumerate(names)] == [True] * len(names)


def test_lines_lead_to_the_authors_file():
    at = Loc('/x/my "kernels".py', 12, 5)
    text = source(Write(A, tx, Const(1.0, F32), loc=at), plain=False)
    assert '#line 12 "/x/my \\"kernels\\".py"\n  A[tx] = 1.0f;' in text
    assert "#line" not in source(Write(A, tx, Const(1.0, F32), loc=at))


def test_a_failed_assertion_ends_its_thread_or_traps_where_others_would_wait():
    check = Assert(Binary(BinaryOp.LT, tx, Const(3, I32)), message="three")
    meet = Instr("barrier.sync", (), (), imm=(("id", 0), ("threads", 64)))
    alone, together = source(check), source(check, meet)
    assert "tl::fail(tl_record, 1u);\n    return;" in alone and "__trap" not in alone
    assert "tl::fail(tl_record, 1u);\n    __trap();" in together
    assert "tl_record" not in source(If(Binary(BinaryOp.LT, tx, Const(3, I32)), ()))


def test_a_warp_that_is_not_full_counts_as_one_at_a_barrier():
    meet = Instr("barrier.sync", (), (), imm=(("id", 0), ("threads", 40)))
    assert "barrier.sync.aligned 0, 64;" in source(meet)


def test_registers_hold_packed_elements():
    r = Array("r", F16, Const(8, I32), space=Space.REGISTER)
    text = source(
        Declare(r), Write(r, Const(3, I32), Const(1.0, F16)), Write(B, tx, get(r, Const(3, I32)))
    )
    assert "u32 r[4] = {};" in text
    assert "r[1] = tl::word_set<16>(r[1], 1, u32(f16(0x3C00)));" in text
    assert "B[tx] = f16((r[1] >> 16));" in text


# Bit fields --------------------------------------------------------------------------------------


def test_matrix_descriptors():
    swizzled = descriptors.matrix("wgmma", swizzle=128, leading=16, stride=1024)
    assert swizzled == 1 << 16 | 64 << 32 | 1 << 62
    plain = descriptors.matrix("wgmma", swizzle=0, leading=128, stride=256)
    assert plain == 8 << 16 | 16 << 32
    with pytest.raises(InternalError, match="leading = 24: expected a multiple of 16"):
        descriptors.matrix("wgmma", swizzle=0, leading=24, stride=256)


def test_fields_do_not_overlap():
    for name in (n for n in dir(descriptors) if n.endswith(("_MATRIX", "INSTRUCTION"))):
        bits = [b for f in getattr(descriptors, name) for b in range(f.low, f.low + f.width)]
        assert len(bits) == len(set(bits)), name
        assert max(bits) < (32 if name.endswith("INSTRUCTION") else 64)


# Rows --------------------------------------------------------------------------------------------


def test_rows_are_made_once_and_named_as_they_are_listed():
    assert all(ROWS[name].name == name for name in ROWS)
    assert ROWS["wgmma.m64n256k16.f32.bf16.bf16"] is ROWS["wgmma.m64n256k16.f32.bf16.bf16"]
    assert "wgmma.m64n40k32.s32.s8.s8" not in ROWS and "wgmma.m64n40k32.f32.e4m3.e4m3" in ROWS
    assert missing("wgmma.fence", chip("sm_80")).startswith("cuda -arch=sm_80 has not")
    assert missing("no.such", chip("sm_80")) == "no instruction is called 'no.such'"


def test_fragments_cover_their_matrix_once():
    from tilelang.targets.cuda.rows.fragments import fragment_a, fragment_b, fragment_d

    for place, shape in (
        (fragment_a(16, 16, 16), (16, 16)),
        (fragment_a(16, 32, 8), (16, 32)),
        (fragment_a(8, 4, 64), (8, 4)),
        (fragment_a(64, 16, 16, 128), (64, 16)),
        (fragment_b(8, 16, 16), (16, 8)),
        (fragment_d(16, 8), (16, 8)),
        (fragment_d(8, 8), (8, 8)),
        (fragment_d(64, 256, 128), (64, 256)),
    ):
        counts = np.zeros(shape, int)
        np.add.at(counts, place, 1)
        assert (counts == 1).all(), shape
