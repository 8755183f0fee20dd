"""What the compiler encodes is what the simulator decodes, and both agree with public bit tables.

The encoder (`targets/cuda/descriptors.py`) and the decoder (`simulator/gpu/decode*.py`) share no
table. The third table here is that of CUTLASS 4's unions GmmaDescriptor, SmemDescriptor and
InstrDescriptor (cute/arch/mma_sm90_desc.hpp, mma_sm100_desc.hpp): field, first bit, bits.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tilelang.simulator.gpu import decode, fragments
from tilelang.simulator.gpu.decode_tcgen05 import tcgen05_matrix
from tilelang.simulator.gpu.maps import swizzled
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
    """CuTe's Swizzle<B, 4, 3> with B = 1, 2, 3: B bits from bit 4 on are joined by exclusive or with
    those from bit 7 on, the number of the row of 128 bytes.
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
