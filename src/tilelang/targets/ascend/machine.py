"""The machine table of Ascend NPUs: memories, cores, data paths, formats and limits of each chip.

What enters: nothing. What leaves: `CHIPS` for the questions every target is asked and `MACHINES`
for those that only Ascend lowering asks. Sizes are bytes. None of this was checked on an NPU: each
number names the published tool, table or header it was read from.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from tilelang.isa.target import Capability, Capacity, Chip, Fact, Per, SyncLimits, When
from tilelang.scopes import Memory, Unit
from tilelang.targets.ascend.costs import COSTS_910B, COSTS_950

_KB = 1024

_SPEC = "ascendnpu-ir 1.2.0, bishengir-opt --hacc-append-device-spec"
_SPEC_950 = "ascendnpu-ir 1.2.0, bishengir-opt-a5 --hacc-append-device-spec"
_CATLASS = "ascend-catlass-dsl 2.1.0, include/catlass/arch/arch.hpp"
_PYPTO = "pypto 0.2.0, lib/configs/A2A3.ini"
_PATHS = "CANN platform configuration as shipped in pypto 0.2.0, platforminfo.ini"
_SCALE_PATHS = "tilelang 0.1.15, src/ascend/op/oob_padding.cc, GetDMAPath (to the scale slots)"
_UB_950 = "tilelang 0.1.15, src/ascend/transform/auto_schedule.cc, GetSharedMemoryLimit"
_LAYOUTS = "tilelang 0.1.15, src/ascend/layout/ascend_layouts.h"
_FORMATS = "tilelang-ascend, src/tl_templates/ascend/common.h"
_EVENTS = "HIVM dialect, EVENT_ID0 to EVENT_ID7; tilelang 0.1.15, insert_sync.cc"
_FLAGS = "CANN asc-devkit, asc_sync_inter_arrive"
_PAIR_FLAGS = "CANN asc-devkit, asc_sync_intra_arrive"
_MUTEX = "CANN asc-devkit, asc_lock"
_WRITTEN_910B = "tilelang-ascend, src/op/ascend.cc, AscendCopy::Lower"
_WRITTEN_950 = "tilelang 0.1.15, src/ascend/op/oob_padding.cc, GetDMAPath"
_RATIO = "tilelang 0.1.15, tilelang/ascend/language/kernel.py, __mix__(1, 2)"
_RATIO_910B = "tilelang-ascend programming guide, section 3.3"
_VECTOR_950 = "CANN asc-tools, dav-3510 configuration"


class Format(enum.Enum):
    """The order of a matrix tile's elements in a buffer; the value gives the axes, outermost first.

    `C0` is 32 bytes of elements and `pack` the scale factors in one element. A fractal is the
    16 x C0 block that the last two axes walk.
    """

    ND = "[row][column]"
    ZN = "[column/C0][row/16][row%16][column%C0]"
    NZ = "[row/C0][column/16][column%16][row%C0]"
    ZZ = "[row/16][column/C0][row%16][column%C0]"
    L0C = "[column/16][row/16][row%16][column%16]"
    SCALE = "[row/16][column/pack][row%16][column%pack]"


@dataclass(frozen=True)
class Path:
    """A data path of the hardware: a copy from `src` to `dst` is one instruction."""

    src: Memory
    dst: Memory

    def __str__(self) -> str:
        return f"{self.src.title} -> {self.dst.title}"


@dataclass(frozen=True)
class Part:
    """The core counts of some SoC versions of a chip."""

    names: str
    cube_cores: int
    vector_cores: int
    source: str


@dataclass(frozen=True)
class Machine:
    """What Ascend lowering knows of a chip beyond `Chip`. Sizes are bytes.

    `paths` are those of the hardware; what a program may write is `chip.copies`. `virtual_paths`
    are copies that it may write although the hardware lacks them: they go through a workspace in
    global memory.
    """

    chip: Chip
    bias_table: Fact
    fixpipe_buffer: Fact
    vectors_per_cube: Fact
    c0_bytes: Fact
    vector_bytes: Fact
    ub_banks: Fact
    ub_bank_bytes: Fact
    parts: tuple[Part, ...]
    paths: frozenset[Path]
    paths_source: str
    virtual_paths: frozenset[Path]
    formats: Mapping[Memory, tuple[Format, ...]]
    formats_source: str

    def has_path(self, src: Memory, dst: Memory) -> bool:
        """Whether the hardware copies from `src` to `dst` directly."""
        return Path(src, dst) in self.paths


# The same on both generations: 32 bytes in UB and L1, 512 bytes in L0C.
_ALIGNMENTS: Mapping[Memory, Fact] = {
    Memory.UB: Fact(32, _SPEC),
    Memory.L1: Fact(32, _SPEC),
    Memory.L0C: Fact(512, _SPEC),
}

_ANY_ASCEND = frozenset({Capability.UB, Capability.CUBE, Capability.FIXPIPE})


def _per_block(amount: int, source: str, when: When = When.ALWAYS) -> Capacity:
    """A buffer of one core; a block has a cube core and its vector cores to itself."""
    return Capacity(amount, Unit.BYTES, Per.BLOCK, source, when)


_PATHS_OF_BOTH = frozenset(
    {
        Path(Memory.GLOBAL, Memory.UB),
        Path(Memory.UB, Memory.GLOBAL),
        Path(Memory.GLOBAL, Memory.L1),
        Path(Memory.L1, Memory.L0A),
        Path(Memory.L1, Memory.L0B),
        Path(Memory.L0C, Memory.GLOBAL),
        Path(Memory.L0C, Memory.L1),
    }
)
_PATHS_910B = _PATHS_OF_BOTH | {Path(Memory.L1, Memory.GLOBAL)}
_VIRTUAL_910B = frozenset({Path(Memory.UB, Memory.L1), Path(Memory.L0C, Memory.UB)})
_PATHS_950 = _PATHS_OF_BOTH | {
    Path(Memory.L0C, Memory.UB),
    Path(Memory.UB, Memory.L1),
    Path(Memory.L1, Memory.UB),
    Path(Memory.L1, Memory.L0A_SCALE),
    Path(Memory.L1, Memory.L0B_SCALE),
}
# Paths of the hardware that neither dialect can write.
_NOT_WRITTEN = frozenset(
    {
        Path(Memory.L0C, Memory.L1),
        Path(Memory.L1, Memory.GLOBAL),
        Path(Memory.L1, Memory.UB),
    }
)

# What a drain of L0C converts: from the accumulator's dtype to that of the destination.
_FIXPIPE_BOTH = frozenset(
    {
        ("float32", "float32"),
        ("float32", "float16"),
        ("float32", "bfloat16"),
        ("float32", "int8"),
        ("int32", "int32"),
        ("int32", "float16"),
        ("int32", "int8"),
    }
)
_FIXPIPE_910B = "AscendC API, Fixpipe, QuantMode_t of dav-2201 (F322F16, F322BF16, DEQF16, REQ8)"
_FIXPIPE_950 = "tilelang 0.1.15, src/ascend/op/copy.cc, pre-quantisation codes"


def _copies(paths: frozenset[Path]) -> frozenset[tuple[Memory, Memory]]:
    """What a program may copy: along a path, or within the UB, by the vector units."""
    return frozenset((path.src, path.dst) for path in paths) | {(Memory.UB, Memory.UB)}


ASCEND910B = Chip(
    name="ascend910b",
    backend="ascend",
    vendor="Huawei",
    family="Ascend 910B and 910C (A2, A3)",
    arch=2201,
    capabilities=_ANY_ASCEND | {Capability.ADAPTER_DIALECT},
    memories={
        Memory.GLOBAL: (),
        Memory.REGISTERS: (),
        Memory.UB: (_per_block(192 * _KB, _SPEC),),
        Memory.L1: (_per_block(512 * _KB, _SPEC),),
        Memory.L0A: (_per_block(64 * _KB, _SPEC),),
        Memory.L0B: (_per_block(64 * _KB, _SPEC),),
        Memory.L0C: (_per_block(128 * _KB, _SPEC),),
    },
    aliases=("910b", "a2", "a3"),
    alignments=_ALIGNMENTS,
    copies=_copies((_PATHS_910B | _VIRTUAL_910B) - _NOT_WRITTEN),
    copies_source=_WRITTEN_910B,
    by_workspace=frozenset((path.src, path.dst) for path in _VIRTUAL_910B),
    sync=SyncLimits(Fact(8, _EVENTS), Fact(16, _FLAGS), Fact(15, _FLAGS)),
    drains=_FIXPIPE_BOTH,
    drains_source=_FIXPIPE_910B,
    costs=COSTS_910B,
)

ASCEND950 = Chip(
    name="ascend950",
    backend="ascend",
    vendor="Huawei",
    family="Ascend 950 (A5)",
    arch=3510,
    capabilities=_ANY_ASCEND
    | {
        Capability.ASCEND_DIALECT,
        Capability.CORE_COPIES,
        Capability.SIMT,
        Capability.SIMT_FUNCTION,
        Capability.SIMD_FUNCTION,
        Capability.FP8,
        Capability.FP4,
    },
    memories={
        Memory.GLOBAL: (),
        Memory.REGISTERS: (),
        Memory.UB: (
            _per_block(248 * _KB, _SPEC_950),
            # A SIMT function keeps the contexts of its threads in 32 KB of the UB.
            _per_block((248 - 32) * _KB, _UB_950, When.SIMT_FUNCTION),
        ),
        Memory.L1: (_per_block(512 * _KB, _SPEC_950),),
        Memory.L0A: (_per_block(64 * _KB, _SPEC_950),),
        Memory.L0B: (_per_block(64 * _KB, _SPEC_950),),
        Memory.L0C: (_per_block(256 * _KB, _SPEC_950),),
        Memory.L0A_SCALE: (),
        Memory.L0B_SCALE: (),
    },
    aliases=("950", "a5"),
    alignments=_ALIGNMENTS,
    copies=_copies(_PATHS_950 - _NOT_WRITTEN),
    copies_source=_WRITTEN_950,
    sync=SyncLimits(
        Fact(8, _EVENTS),
        Fact(16, _FLAGS),
        Fact(15, _FLAGS),
        pair_flags=Fact(32, _PAIR_FLAGS),
        mutexes=Fact(32, _MUTEX),
    ),
    drains=_FIXPIPE_BOTH | {("float32", "float8_e4m3fn"), ("float32", "int16")},
    drains_source=_FIXPIPE_950,
    costs=COSTS_950,
    default=True,
)

_MACHINE_910B = Machine(
    chip=ASCEND910B,
    bias_table=Fact(1 * _KB, _CATLASS),
    fixpipe_buffer=Fact(7 * _KB, _CATLASS),
    vectors_per_cube=Fact(2, _RATIO_910B),
    c0_bytes=Fact(32, _FORMATS),
    vector_bytes=Fact(256, _PYPTO),
    ub_banks=Fact(64, _PYPTO),
    ub_bank_bytes=Fact(4 * _KB, _PYPTO),
    parts=(
        Part("910B1, 910B2, 9381, 9382, 9391, 9392", 24, 48, _SPEC),
        Part("910B3, 910B4, 9362, 9372", 20, 40, _SPEC),
    ),
    paths=_PATHS_910B,
    paths_source=_PATHS,
    virtual_paths=_VIRTUAL_910B,
    formats={
        Memory.UB: (Format.ND,),
        Memory.L1: (Format.ZN, Format.NZ),
        Memory.L0A: (Format.ZZ,),
        Memory.L0B: (Format.NZ,),
        Memory.L0C: (Format.L0C,),
    },
    formats_source=_FORMATS,
)

_MACHINE_950 = Machine(
    chip=ASCEND950,
    bias_table=Fact(4 * _KB, _CATLASS),
    fixpipe_buffer=Fact(16 * _KB, _CATLASS),
    vectors_per_cube=Fact(2, _RATIO),
    c0_bytes=Fact(32, _LAYOUTS),
    vector_bytes=Fact(256, _VECTOR_950),
    ub_banks=Fact(64, _VECTOR_950),
    ub_bank_bytes=Fact(4 * _KB, _VECTOR_950),
    parts=(
        Part("9581 to 958d", 32, 64, _SPEC_950),
        Part("957x", 28, 56, _SPEC_950),
        Part("9599, 959a", 36, 72, _SPEC_950),
    ),
    paths=_PATHS_950,
    paths_source=f"{_PATHS}; {_SCALE_PATHS}",
    virtual_paths=frozenset[Path](),
    formats={
        Memory.UB: (Format.ND,),
        Memory.L1: (Format.ZN, Format.NZ),
        # The L0 buffers keep the fractal order of the L1 tile they are loaded from.
        Memory.L0A: (Format.ZN, Format.NZ),
        Memory.L0B: (Format.ZN, Format.NZ),
        Memory.L0C: (Format.L0C,),
        Memory.L0A_SCALE: (Format.SCALE,),
        Memory.L0B_SCALE: (Format.SCALE,),
    },
    formats_source=_LAYOUTS,
)

CHIPS: tuple[Chip, ...] = (ASCEND910B, ASCEND950)

MACHINES: Mapping[str, Machine] = {
    machine.chip.name: machine for machine in (_MACHINE_910B, _MACHINE_950)
}
