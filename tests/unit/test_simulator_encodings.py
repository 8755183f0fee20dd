"""What the compiler encodes is what the simulator decodes, and both agree with public bit tables.

The encoder (`targets/cuda/descriptors.py`) and the decoder (`simulator/gpu/decode*.py`) share no
table. The third table here is that of CUTLASS 4's unions GmmaDescriptor, SmemDescriptor and
InstrDescriptor (cute/arch/mma_sm90_desc.hpp, mma_sm100_desc.hpp): field, first bit, bits.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tilelang.language as T
from tilelang.ir.thread import Instr
from tilelang.isa.target import parse_target
from tilelang.passes.pipeline import lower
from tilelang.simulator.gpu import decode, fragments
from tilelang.simulator.gpu.decode_tcgen05 import tcgen05_matrix
from tilelang.simulator.gpu.maps import swizzled
from tilelang.targets import CHIPS
from tilelang.targets.cuda import descriptors
from tilelang.targets.cuda.rows import fragments as rows_of_fragments

GMMA = {
    "address": (0, 14),
    "leading": (16, 14),
    "stride": (32, 14),
    "base_offset": (49, 3),
    "swizzle": (62, 2),
}
UMMA = {
    "address": (0, 14),
    "leading": (16, 14),
    "stride": (32, 14),
    "base_offset": (49, 3),
    "swizzle": (61, 3),
}
UMMA_VERSION = (46, 2)
INSTRUCTION = {
    "d": (4, 2),
    "a": (7, 3),
    "b": (10, 3),
    "negate_a": (13, 1),
    "negate_b": (14, 1),
    "transpose_a": (15, 1),
    "transpose_b": (16, 1),
    "n": (17, 6),
    "m": (24, 5),
}
SPANS = {"wgmma": {0: 0, 128: 1, 64: 2, 32: 3}, "tcgen05": {0: 0, 128: 2, 64: 4, 32: 6}}


@pytest.mark.parametrize(
    ("fields", "table"),
    [
        (descriptors.WGMMA_MATRIX, GMMA),
        (descriptors.TCGEN05_MATRIX, UMMA),
        (descriptors.TCGEN05_INSTRUCTION, INSTRUCTION),
    ],
)
def test_fields_lie_where_the_public_tables_have_them(fields, table):
    found = {f.name: (f.low, f.width) for f in fields if f.name in table}
    assert found == table
    known = {low + k for low, width in table.values() for k in range(width)}
    others = [f for f in fields if f.name not in table]
    assert all(not known & set(range(f.low, f.low + f.width)) for f in others)


def test_the_version_of_a_descriptor_of_tcgen05_is_one():
    word = descriptors.matrix("tcgen05", swizzle=128, leading=16, stride=1024)
    low, width = UMMA_VERSION
    assert word >> low & (1 << width) - 1 == 1


DECODERS = {"wgmma": decode.wgmma_matrix, "tcgen05": tcgen05_matrix}


@pytest.mark.parametrize("unit", DECODERS)
@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
def test_what_is_encoded_is_decoded(unit, swizzle):
    offsets = (0, 16, 128, 1024, 16 * 0x3FFF)
    for leading, stride in itertools.product(offsets, offsets):
        word = descriptors.matrix(unit, swizzle=swizzle, leading=leading, stride=stride)
        found = DECODERS[unit](word | 0x3A50 >> 4)
        assert found == decode.Matrix(0x3A50, leading, stride, 0, swizzle)


@pytest.mark.parametrize(
    ("unit", "given", "word"),
    [
        # Rows of 128 bytes in groups of 8, K-major, as hand-written kernels put them together:
        # 1 << 62 | 64 << 32 | 1 << 16 for Hopper, 2 << 61 | 1 << 46 | 64 << 32 for Blackwell.
        ("wgmma", {"swizzle": 128, "leading": 16, "stride": 1024}, 0x4000004000010000),
        ("tcgen05", {"swizzle": 128, "leading": 0, "stride": 1024}, 0x4000404000000000),
    ],
)
def test_descriptors_of_public_kernels(unit, given, word):
    assert descriptors.matrix(unit, **given) == word


def test_the_instruction_word_of_a_public_kernel():
    """fp16 with sums in fp32, 128 x 256: c_format 1, n / 8 at bit 17, m / 16 at bit 24."""
    word = descriptors.word(descriptors.TCGEN05_INSTRUCTION, d=1, a=0, b=0, n=256, m=128)
    assert word == 1 << 4 | (256 >> 3) << 17 | (128 >> 4) << 24


@pytest.mark.parametrize("span", [32, 64, 128])
def test_a_swizzle_exchanges_groups_of_sixteen_bytes_by_the_row(span):
    """CuTe's Swizzle<B, 4, 3> with B = 1, 2, 3: B bits from bit 4 on are joined by exclusive or
    with those from bit 7 on, the number of the row of 128 bytes.
    """
    for row, column in itertools.product(range(16), range(8)):
        found = int(swizzled(np.array([row * 128 + column * 16 + 5]), span)[0])
        assert found == row * 128 + (column ^ row % (span // 16)) * 16 + 5


@pytest.mark.parametrize("bits", [8, 16, 32])
def test_registers_hold_the_elements_that_the_rows_say(bits):
    for k in (8, 16, 32):
        if 16 * k * bits < 32 * 32 or k * bits // 8 < 16:
            continue
        mine = fragments.operand_a(16, k, bits)
        theirs = rows_of_fragments.fragment_a(16, k, bits)
        assert all(np.array_equal(a.T, b) for a, b in zip(mine, theirs, strict=True))
    mine, theirs = fragments.wgmma_result(64), rows_of_fragments.fragment_d(64, 64, 128)
    assert all(np.array_equal(a.T, b) for a, b in zip(mine, theirs, strict=True))


# What upstream encodes ----------------------------------------------------------------------------

KEYS = list(itertools.product((False, True), (False, True), (32, 64)))
"""A transposed in memory, B transposed in memory, depth of the tiles."""
ALONG, ACROSS = {32: (64, 1, 32), 64: (128, 1, 64)}, {32: (128, 256, 64), 64: (128, 512, 64)}
"""The span of the swizzle, and the offsets in units of 16 bytes, of tiles of 128 rows that upstream
0.1.15 writes into its source for a product of 128 x 128 in fp16, by the depth: tiles that lie along
the depth, and across it. The same for sm_90a (`initialize_wgmma_descriptor`) and sm_100a
(`initialize_tcgen05_descriptor`).
"""
WORDS = {
    (False, False): 136380432,
    (False, True): 136314896,
    (True, False): 136413200,
    (True, True): 136347664,
}
"""The instruction words of upstream's products for sm_100a; the last follows from the others."""


def product(turn_a: bool, turn_b: bool, depth: int, arch: str):
    @T.prim_func
    def kernel(
        A: T.Tensor((256, 256), "float16"),
        B: T.Tensor((256, 256), "float16"),
        C: T.Tensor((256, 256), "float32"),
    ):
        with T.Kernel(2, 2, threads=128) as (bx, by):
            a = T.alloc_shared((depth, 128) if turn_a else (128, depth), "float16")
            b = T.alloc_shared((128, depth) if turn_b else (depth, 128), "float16")
            if arch == "sm_100a":
                c = T.alloc_tmem((128, 128), "float32")
            else:
                c = T.alloc_fragment((128, 128), "float32")
            T.clear(c)
            for k in T.Pipelined(256 // depth, num_stages=2):
                if turn_a:
                    T.copy(A[k * depth, by * 128], a)
                else:
                    T.copy(A[by * 128, k * depth], a)
                if turn_b:
                    T.copy(B[bx * 128, k * depth], b)
                else:
                    T.copy(B[k * depth, bx * 128], b)
                T.gemm(a, b, c, transpose_A=turn_a, transpose_B=turn_b)
            f = T.alloc_fragment((128, 128), "float32")
            T.copy(c, f)
            T.copy(f, C[by * 128, bx * 128])

    program = lower(kernel.ir, parse_target(f"cuda -arch={arch}", CHIPS))
    return [n for n in program.walk() if isinstance(n, Instr)]


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize(("turn_a", "turn_b", "depth"), KEYS)
def test_tiles_are_described_as_upstream_does(arch, turn_a, turn_b, depth):
    found = {}
    made = product(turn_a, turn_b, depth, arch)
    for n in (n for n in made if n.row in ("wgmma.descriptor", "tcgen05.descriptor")):
        imm = dict(n.imm)
        facts = imm["swizzle"], imm["leading"] // 16, imm["stride"] // 16
        found.setdefault(n.ins[0].array.name, set()).add(facts)
    a = (ACROSS if turn_a else ALONG)[depth]
    b = (ALONG if turn_b else ACROSS)[depth]
    assert found == {"a": {a}, "b": {b}}
    if arch == "sm_100a":
        imm = next(dict(n.imm) for n in made if n.row == "tcgen05.instruction")
        codes = {"d": 1, "a": 0, "b": 0, "m": imm["m"], "n": imm["n"]}
        turns = {f"transpose_{x}": int(imm[f"trans_{x}"]) for x in "ab"}
        word = descriptors.word(descriptors.TCGEN05_INSTRUCTION, **codes, **turns)
        assert word == WORDS[turn_a, turn_b]
