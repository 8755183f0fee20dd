"""Facts of NVIDIA architectures: sizes, limits and capabilities, each with its document.

What enters: nothing. What leaves: `CHIPS`. A number that differs between products of one
architecture is given only with the product it belongs to.
"""

from __future__ import annotations

from tilelang.isa.target import Capability, Capacity, Chip, Fact, Memories, Per, ThreadLimits
from tilelang.scopes import Memory, Unit

_KB = 1024

# The numbers were compared with NVIDIA's own machine-readable copy of this table, the function
# `arch_traits` of libcu++ (NVIDIA/cccl, libcudacxx/include/cuda/__device/arch_traits.h).
_TABLE = (
    "CUDA C++ Programming Guide, Compute Capabilities, table 'Technical Specifications per Compute "
    "Capability'"
)
_STATIC = (
    "CUDA C++ Programming Guide, Compute Capabilities: static shared memory allocations are "
    "limited to 48 KB; more needs dynamic shared memory and an explicit opt-in"
)
_RESERVED = "CUDA C++ Best Practices Guide: 1 KB of shared memory is reserved for each thread block"
_TMEM = (
    "PTX ISA, Tensor Memory: 512 columns x 128 lanes of 32-bit cells per CTA; tcgen05.alloc takes "
    "columns in powers of two, 32 at least; sm_100a and sm_103a (and sm_110a)"
)
_MBARRIER = "PTX ISA, mbarrier: an opaque 64-bit object, aligned to 8 bytes"

# Shared memory that the system keeps for itself in each block, in bytes (sm_80 and later).
RESERVED_PER_BLOCK = Fact(1 * _KB, _RESERVED)
MBARRIER_BYTES = Fact(8, _MBARRIER)

_AMPERE = frozenset(
    {
        Capability.COMMON_DIALECT,
        Capability.SIMT,
        Capability.CP_ASYNC,
        Capability.MMA_SYNC,
    }
)
_ADA = _AMPERE | {Capability.FP8}
_SINCE_HOPPER = _ADA | {
    Capability.MBARRIER,
    Capability.CLUSTER,
    Capability.TMA,
    Capability.SETMAXNREG,
}
_HOPPER = _SINCE_HOPPER | {Capability.WGMMA}
_BLACKWELL = _SINCE_HOPPER | {Capability.FP4, Capability.LAUNCH_CONTROL}
"""PTX ISA, clusterlaunchcontrol: sm_100 and later; `.multicast` on sm_100a, sm_120a, their kin."""
_BLACKWELL_DATACENTER = _BLACKWELL | {
    Capability.TCGEN05,
    Capability.TENSOR_MEMORY,
    Capability.TMA_ROWS,
}
"""PTX ISA, cp.async.bulk.tensor: `.tile::scatter4` is supported on sm_100a and its family."""
_BLACKWELL_100 = _BLACKWELL_DATACENTER | {Capability.TCGEN05_INT8}
"""PTX ISA, tcgen05.mma: `.kind::i8` is supported on sm_100a, sm_101a and sm_110a."""


def _memories(shared_per_sm_kb: int, *, tensor_memory: bool = False) -> Memories:
    """The memories of an architecture with this much shared memory per SM, in KB."""
    per_sm = shared_per_sm_kb * _KB
    memories: dict[Memory, tuple[Capacity, ...]] = {
        Memory.GLOBAL: (),
        Memory.SHARED: (
            Capacity(per_sm - RESERVED_PER_BLOCK.value, Unit.BYTES, Per.BLOCK, _TABLE),
            Capacity(48 * _KB, Unit.BYTES, Per.BLOCK_STATIC, _STATIC),
            Capacity(per_sm, Unit.BYTES, Per.CORE, _TABLE),
        ),
        Memory.REGISTERS: (
            Capacity(255, Unit.REGISTERS, Per.THREAD, _TABLE),
            Capacity(64 * _KB, Unit.REGISTERS, Per.BLOCK, _TABLE),
            Capacity(64 * _KB, Unit.REGISTERS, Per.CORE, _TABLE),
        ),
    }
    if tensor_memory:
        memories[Memory.TMEM] = tuple(
            Capacity(512, Unit.COLUMNS, per, _TMEM, granule=32, power_of_two=True)
            for per in (Per.BLOCK, Per.CORE)
        )
    return memories


def _threads(per_sm: int, blocks_per_sm: int) -> ThreadLimits:
    """Thread limits of an architecture; a warp is 32 threads and a block at most 1,024 on all."""
    return ThreadLimits(
        warp_size=Fact(32, _TABLE),
        per_block=Fact(1024, _TABLE),
        per_core=Fact(per_sm, _TABLE),
        warps_per_core=Fact(per_sm // 32, _TABLE),
        blocks_per_core=Fact(blocks_per_sm, _TABLE),
    )


# developer.nvidia.com/cuda-gpus, "CUDA GPU Compute Capability"; some of each, for messages.
_PRODUCTS = {
    "sm_80": ("a100", "a30"),
    "sm_86": ("a10", "a40", "rtx3090", "rtx3080", "rtxa6000"),
    "sm_87": ("orin",),
    "sm_89": ("l4", "l40", "l40s", "rtx4090"),
    "sm_90a": ("h100", "h200", "gh200"),
    "sm_100a": ("b200", "gb200"),
    "sm_103a": ("b300", "gb300"),
    "sm_120a": ("rtx5090", "rtx5080"),
    "sm_121a": ("gb10",),
}


_ASSUMED = "sm_90a"
"""What `cuda` means where there is no device: an H100 or H200."""


def _chip(
    name: str,
    family: str,
    capabilities: frozenset[Capability],
    *,
    shared_per_sm_kb: int,
    threads: ThreadLimits,
    cores: Fact | None = None,
) -> Chip:
    """One architecture. `sm_90` and the like name the same chip as `sm_90a`."""
    plain = name.rstrip("a")
    tensor_memory = Capability.TENSOR_MEMORY in capabilities
    return Chip(
        name=name,
        backend="cuda",
        vendor="NVIDIA",
        family=family,
        arch=int(plain.removeprefix("sm_")),
        capabilities=capabilities,
        memories=_memories(shared_per_sm_kb, tensor_memory=tensor_memory),
        aliases=() if plain == name else (plain,),
        products=_PRODUCTS.get(name, ()),
        threads=threads,
        cores=cores,
        alignments={Memory.BARRIER: MBARRIER_BYTES, Memory.CLUSTER_BARRIER: MBARRIER_BYTES},
        fp32_gemm="tf32",
        assumed=name == _ASSUMED,
    )


CHIPS: tuple[Chip, ...] = (
    _chip(
        "sm_80",
        "Ampere",
        _AMPERE,
        shared_per_sm_kb=164,
        threads=_threads(2048, 32),
        cores=Fact(108, "A100: NVIDIA A100 Tensor Core GPU Architecture whitepaper"),
    ),
    _chip(
        "sm_86",
        "Ampere, GeForce and RTX",
        _AMPERE,
        shared_per_sm_kb=100,
        threads=_threads(1536, 16),
    ),
    _chip("sm_87", "Ampere, Jetson", _AMPERE, shared_per_sm_kb=164, threads=_threads(1536, 16)),
    _chip("sm_89", "Ada", _ADA, shared_per_sm_kb=100, threads=_threads(1536, 24)),
    _chip(
        "sm_90a",
        "Hopper",
        _HOPPER,
        shared_per_sm_kb=228,
        threads=_threads(2048, 32),
        cores=Fact(132, "H100 SXM5, H200: NVIDIA H100 Tensor Core GPU Architecture whitepaper"),
    ),
    _chip(
        "sm_100a",
        "Blackwell",
        _BLACKWELL_100,
        shared_per_sm_kb=228,
        threads=_threads(2048, 32),
    ),
    _chip(
        "sm_103a",
        "Blackwell Ultra",
        _BLACKWELL_DATACENTER,
        shared_per_sm_kb=228,
        threads=_threads(2048, 32),
    ),
    _chip(
        "sm_120a",
        "Blackwell, GeForce and RTX PRO",
        _BLACKWELL,
        shared_per_sm_kb=100,
        threads=_threads(1536, 24),
    ),
    _chip(
        "sm_121a",
        "Blackwell, GB10",
        _BLACKWELL,
        shared_per_sm_kb=100,
        threads=_threads(1536, 24),
    ),
)
