"""Targets: how `target=` is read, what it answers, and every number of every chip."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilelang.errors import InternalError, TileValueError
from tilelang.isa.target import (
    Capability,
    Capacity,
    Chip,
    Per,
    Target,
    When,
    parse_target,
    target_names,
)
from tilelang.runtime.resolve import device_arch, resolve, why_no_gpu
from tilelang.scopes import Dialect, Memory, Unit
from tilelang.targets import CHIPS, target
from tilelang.targets.ascend.machine import MACHINES, Format, Path

KB = 1024
BY_NAME = {chip.name: chip for chip in CHIPS}
CUDA = (
    *("sm_80", "sm_86", "sm_87", "sm_89", "sm_90a"),
    *("sm_100a", "sm_103a", "sm_120a", "sm_121a"),
)

# Written from NVIDIA's published table, independently of the facts: shared memory per SM, per
# block, static per block; registers per thread, block, SM; threads per block, SM; warps, blocks.
CUDA_NUMBERS = {
    "sm_80": (167936, 166912, 49152, 255, 65536, 65536, 1024, 2048, 64, 32),
    "sm_86": (102400, 101376, 49152, 255, 65536, 65536, 1024, 1536, 48, 16),
    "sm_87": (167936, 166912, 49152, 255, 65536, 65536, 1024, 1536, 48, 16),
    "sm_89": (102400, 101376, 49152, 255, 65536, 65536, 1024, 1536, 48, 24),
    "sm_90a": (233472, 232448, 49152, 255, 65536, 65536, 1024, 2048, 64, 32),
    "sm_100a": (233472, 232448, 49152, 255, 65536, 65536, 1024, 2048, 64, 32),
    "sm_103a": (233472, 232448, 49152, 255, 65536, 65536, 1024, 2048, 64, 32),
    "sm_120a": (102400, 101376, 49152, 255, 65536, 65536, 1024, 1536, 48, 24),
    "sm_121a": (102400, 101376, 49152, 255, 65536, 65536, 1024, 1536, 48, 24),
}

# UB, UB beside a SIMT function, L1, L0A, L0B, L0C; bias table, fixpipe buffer; alignment of UB, L1
# and L0C; event ids, cross-core flags, largest count of a flag, mutexes.
ASCEND_NUMBERS = {
    "ascend910b": (
        *(196608, 196608, 524288, 65536, 65536, 131072),
        *(1024, 7168, 32, 32, 512, 8, 16, 15, None),
    ),
    "ascend950": (
        *(253952, 221184, 524288, 65536, 65536, 262144),
        *(4096, 16384, 32, 32, 512, 8, 16, 15, 32),
    ),
}


def amount(chip: Chip, memory: Memory, per: Per = Per.BLOCK, when: When = When.ALWAYS):
    capacity = Target("emulate", chip.backend, chip).capacity(memory, per, when)
    return None if capacity is None else capacity.amount


def limit(spec: str, memory: Memory, per: Per = Per.BLOCK) -> Capacity:
    capacity = target(spec).capacity(memory, per)
    assert capacity is not None
    return capacity


def test_the_table_says_which_gpu_is_meant_where_there_is_none():
    assumed = [chip.name for chip in CHIPS if chip.assumed]
    assert assumed == ["sm_90a"]
    if why_no_gpu() is not None:
        assert device_arch() == assumed[0]
        assert resolve("cuda").chip == BY_NAME[assumed[0]]


def test_the_chips_are_these():
    assert set(BY_NAME) == {*CUDA_NUMBERS, *ASCEND_NUMBERS, "cpu"}
    assert len(BY_NAME) == len(CHIPS)
    names = [name for chip in CHIPS for name in (chip.name, *chip.aliases)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", CUDA)
def test_every_number_of_a_cuda_chip(name):
    chip = BY_NAME[name]
    threads = chip.threads
    assert threads is not None
    assert (
        amount(chip, Memory.SHARED, Per.CORE),
        amount(chip, Memory.SHARED),
        amount(chip, Memory.SHARED, Per.BLOCK_STATIC),
        amount(chip, Memory.FRAGMENT, Per.THREAD),
        amount(chip, Memory.FRAGMENT, Per.BLOCK),
        amount(chip, Memory.FRAGMENT, Per.CORE),
        threads.per_block.value,
        threads.per_core.value,
        threads.warps_per_core.value,
        threads.blocks_per_core.value,
    ) == CUDA_NUMBERS[name]
    assert threads.warp_size.value == 32
    assert amount(chip, Memory.GLOBAL) is None
    assert chip.fp32_gemm == "tf32"
    assert f"sm_{chip.arch}" == name.rstrip("a")


@pytest.mark.parametrize("name", CUDA)
def test_only_data_centre_blackwell_has_tensor_memory(name):
    chip = BY_NAME[name]
    assert chip.has_memory(Memory.TMEM) == (name in ("sm_100a", "sm_103a"))
    if chip.has_memory(Memory.TMEM):
        assert amount(chip, Memory.TMEM, Per.BLOCK) == 512
        assert amount(chip, Memory.TMEM, Per.CORE) == 512


@pytest.mark.parametrize("name", ASCEND_NUMBERS)
def test_every_number_of_an_ascend_chip(name):
    chip, machine = BY_NAME[name], MACHINES[name]
    assert machine.chip is chip
    assert (
        amount(chip, Memory.UB),
        amount(chip, Memory.UB, when=When.SIMT_FUNCTION),
        amount(chip, Memory.L1),
        amount(chip, Memory.L0A),
        amount(chip, Memory.L0B),
        amount(chip, Memory.L0C),
        machine.bias_table.value,
        machine.fixpipe_buffer.value,
        *(chip.alignments[memory].value for memory in (Memory.UB, Memory.L1, Memory.L0C)),
        chip.sync.event_ids.value,
        chip.sync.flags.value,
        chip.sync.flag_count.value,
        None if chip.sync.mutexes is None else chip.sync.mutexes.value,
    ) == ASCEND_NUMBERS[name]
    assert machine.vectors_per_cube.value == 2
    assert machine.c0_bytes.value == 32
    assert machine.vector_bytes.value == 256
    assert machine.ub_banks.value * machine.ub_bank_bytes.value == 256 * KB
    assert chip.fp32_gemm == "fp32"


def test_core_counts():
    counts = {
        name: [(part.cube_cores, part.vector_cores) for part in machine.parts]
        for name, machine in MACHINES.items()
    }
    assert counts == {
        "ascend910b": [(24, 48), (20, 40)],
        "ascend950": [(32, 64), (28, 56), (36, 72)],
    }
    known = {chip.name: chip.cores.value for chip in CHIPS if chip.cores is not None}
    assert known == {"sm_80": 108, "sm_90a": 132}


def test_data_paths():
    g, ub, l1, l0a, l0b, l0c = (
        Memory.GLOBAL,
        Memory.UB,
        Memory.L1,
        Memory.L0A,
        Memory.L0B,
        Memory.L0C,
    )
    both = {(g, ub), (ub, g), (g, l1), (l1, l0a), (l1, l0b), (l0c, g), (l0c, l1)}
    scales = {(l1, Memory.L0A_SCALE), (l1, Memory.L0B_SCALE)}
    paths = {
        name: {(path.src, path.dst) for path in machine.paths} for name, machine in MACHINES.items()
    }
    assert paths["ascend910b"] == both | {(l1, g)}
    assert paths["ascend950"] == both | {(l0c, ub), (ub, l1), (l1, ub)} | scales
    old, new = MACHINES["ascend910b"], MACHINES["ascend950"]
    assert not old.has_path(l0c, ub)
    assert new.has_path(l0c, ub)
    assert old.virtual_paths == {Path(ub, l1), Path(l0c, ub)}
    assert not new.virtual_paths
    for machine in (old, new):  # what a program may write is not all that the hardware has
        assert not {(l1, ub), (l0c, l1), (l1, g)} & machine.chip.copies
        assert machine.chip.by_workspace == {(p.src, p.dst) for p in machine.virtual_paths}


def test_formats():
    old, new = MACHINES["ascend910b"].formats, MACHINES["ascend950"].formats
    assert old[Memory.L0A] == (Format.ZZ,)
    assert old[Memory.L0B] == (Format.NZ,)
    assert new[Memory.L0A] == new[Memory.L1] == (Format.ZN, Format.NZ)
    assert old[Memory.L0C] == new[Memory.L0C] == (Format.L0C,)


def test_every_fact_names_its_source():
    for chip in CHIPS:
        for capacities in chip.memories.values():
            assert all(len(capacity.source) > 10 for capacity in capacities)
        for fact in (*chip.alignments.values(), *([chip.cores] if chip.cores else [])):
            assert len(fact.source) > 10
    for machine in MACHINES.values():
        assert all(len(part.source) > 10 for part in machine.parts)


def test_what_each_chip_can_do():
    can = {
        capability: {chip.name for chip in CHIPS if capability in chip.capabilities}
        for capability in Capability
    }
    since_hopper = {"sm_90a", "sm_100a", "sm_103a", "sm_120a", "sm_121a"}
    assert can[Capability.COMMON_DIALECT] == {*CUDA, "cpu"}
    assert can[Capability.ASCEND_DIALECT] == {"ascend950"}
    assert can[Capability.ADAPTER_DIALECT] == {"ascend910b"}
    assert can[Capability.CP_ASYNC] == can[Capability.MMA_SYNC] == set(CUDA)
    assert can[Capability.TMA] == can[Capability.SETMAXNREG] == since_hopper
    assert can[Capability.MBARRIER] == can[Capability.CLUSTER] == since_hopper | {"cpu"}
    assert can[Capability.WGMMA] == {"sm_90a"}
    assert can[Capability.TCGEN05] == {"sm_100a", "sm_103a"}
    assert can[Capability.TENSOR_MEMORY] == {"sm_100a", "sm_103a", "cpu"}
    assert can[Capability.FP8] == {*CUDA, "ascend950"} - {"sm_80", "sm_86", "sm_87"}
    assert can[Capability.FP4] == {"sm_100a", "sm_103a", "sm_120a", "sm_121a", "ascend950"}
    assert can[Capability.UB] == can[Capability.FIXPIPE] == {"ascend910b", "ascend950"}
    assert can[Capability.SIMT_FUNCTION] == {"ascend950"}


@pytest.mark.parametrize(
    ("spec", "canonical"),
    [
        ("auto", "auto"),
        ("cpu", "cpu"),
        ("c", "cpu"),
        ("llvm", "cpu"),
        ("cuda", "cuda"),
        (" CUDA ", "cuda"),
        ("ascend", "ascend"),
        ("asc", "ascend"),
        ("cuda -arch=sm_120", "cuda -arch=sm_120a"),
        ("cuda --arch=sm_80", "cuda -arch=sm_80"),
        ("cuda:sm_90a", "cuda -arch=sm_90a"),
        ({"kind": "cuda"}, "cuda"),
        ({"kind": "cuda", "arch": "sm_90a"}, "cuda -arch=sm_90a"),
        ({"kind": "ascend", "arch": "ascend910b"}, "ascend -arch=ascend910b"),
        ({"kind": "ascend"}, "ascend"),
        ({"kind": "llvm"}, "cpu"),
        ("ascend -arch=A3", "ascend -arch=ascend910b"),
        ("emulate", "emulate"),
        ("emulate:sm_90", "emulate:sm_90a"),
        ("emulate:sm_100a", "emulate:sm_100a"),
        ("emulate: Ascend950", "emulate:ascend950"),
        ("simulate:sm_90a", "simulate:sm_90a"),
    ],
)
def test_a_target_is_read_and_its_name_reads_back(spec, canonical):
    read = target(spec)
    assert str(read) == canonical
    assert target(canonical) == read
    assert target(read) is read
    assert hash(target(canonical)) == hash(read)
    assert pickle.loads(pickle.dumps(read)) == read


def test_every_canonical_name_is_a_target():
    for name in target_names(CHIPS):
        assert str(target(name)) == name


def test_mode_backend_and_chip():
    assert target("emulate:sm_90a") == Target("emulate", "cuda", BY_NAME["sm_90a"])
    assert target("emulate") == Target("emulate", "none")
    assert target("cuda") == Target("native", "cuda")
    assert target("ascend") == Target("native", "ascend", BY_NAME["ascend950"])
    assert target("cpu") == Target("native", "cpu", BY_NAME["cpu"])
    assert target("emulate:sm_90a") != target("simulate:sm_90a")
    assert target("emulate:sm_90a") != target("emulate:sm_100a")
    assert target() == target("auto")


@pytest.mark.parametrize("spec", ["auto", "cuda"])
def test_an_open_target_answers_nothing_until_it_is_resolved(spec):
    read = target(spec)
    assert not read.resolved
    with pytest.raises(InternalError, match="must be resolved"):
        read.supports(Capability.TMA)
    with pytest.raises(InternalError, match="must be resolved"):
        read.capacity(Memory.SHARED)
    with pytest.raises(InternalError, match="must be resolved"):
        read.has_memory(Memory.SHARED)


def test_emulate_on_no_chip_has_everything_and_no_limits_and_says_so():
    read = target("emulate")
    assert read.resolved
    assert not read.limited
    assert "no capacity limits" in read.describe()
    assert all(read.supports(capability) for capability in Capability)
    assert all(read.runs(dialect) for dialect in Dialect)
    assert all(read.has_memory(memory) for memory in Memory)
    assert read.capacity(Memory.TMEM) is None
    assert read.fp32_gemm == "fp32"


def test_the_cpu_has_no_limits_and_says_so():
    read = target("cpu")
    assert not read.limited
    assert "no capacity limits" in read.describe()
    assert read.capacity(Memory.SHARED) is None
    assert read.runs(Dialect.COMMON)
    assert not read.runs(Dialect.ADAPTER)
    assert not read.supports(Capability.WGMMA)


def test_a_chip_that_is_emulated_keeps_its_rules():
    read = target("emulate:sm_90a")
    assert read.limited
    assert "sm_90a" in read.describe()
    assert read.supports(Capability.WGMMA)
    assert not read.supports(Capability.TCGEN05)
    assert not read.has_memory(Memory.TMEM)
    assert not read.has_memory(Memory.UB)
    assert read.has_memory(Memory.BARRIER)
    assert not target("emulate:sm_80").has_memory(Memory.BARRIER)
    assert target("emulate:ascend910b").has_memory(Memory.UB_OR_L1)
    assert target("emulate:ascend910b").has_memory(Memory.L0_BY_USE)
    assert not read.has_memory(Memory.UB_OR_L1)


def test_memories_that_draw_on_a_pool_have_the_limits_of_the_pool():
    for memory in (Memory.FRAGMENT, Memory.LOCAL, Memory.VAR, Memory.REDUCER):
        assert limit("emulate:sm_90a", memory, Per.THREAD).amount == 255
    assert limit("emulate:sm_90a", Memory.BARRIER, Per.BLOCK_STATIC).amount == 48 * KB
    assert target("emulate:sm_90a").capacity(Memory.SHARED, Per.THREAD) is None


def test_the_capacity_of_a_memory_that_is_not_there_is_an_error():
    with pytest.raises(TileValueError) as caught:
        target("emulate:sm_90a").capacity(Memory.TMEM)
    assert str(caught.value) == (
        "error[scope]: sm_90a (Hopper) has no Tensor Memory\n"
        " = expected: a memory of sm_90a: global memory, shared memory, registers; "
        "got: Tensor Memory\n"
        " = help: compile for a chip that has it, or `emulate` for no particular chip"
    )
    with pytest.raises(InternalError, match="must be resolved"):
        target("emulate:ascend910b").capacity(Memory.UB_OR_L1)


@pytest.mark.parametrize(
    ("asked", "columns"),
    [(1, 32), (16, 32), (32, 32), (33, 64), (96, 128), (200, 256), (256, 256), (512, 512)],
)
def test_tensor_memory_columns_are_rounded(asked, columns):
    capacity = limit("emulate:sm_100a", Memory.TMEM)
    assert capacity.rounded(asked) == columns
    assert capacity.unit is Unit.COLUMNS


@pytest.mark.parametrize("asked", [513, 600])
def test_tensor_memory_requests_past_the_limit_round_past_it(asked):
    capacity = limit("emulate:sm_100a", Memory.TMEM)
    assert capacity.rounded(asked) > capacity.amount


@given(
    st.integers(0, 5000),
    st.sampled_from([1, 2, 8, 32, 256]),
    st.booleans(),
)
def test_rounding_gives_the_least_legal_size(asked, granule, power_of_two):
    capacity = Capacity(
        1 << 20, Unit.BYTES, Per.BLOCK, "test", granule=granule, power_of_two=power_of_two
    )
    legal = (
        (granule << step for step in range(20))
        if power_of_two
        else range(granule, 8000 + granule, granule)
    )
    assert capacity.rounded(asked) == (min(n for n in legal if n >= asked) if asked else 0)


KNOWN = (
    "auto, cuda, cpu, ascend, emulate, emulate:<chip>, simulate:<chip>; the chips are "
    f"{', '.join(CUDA)}, ascend910b, ascend950"
)


def refusal(spec) -> str:
    with pytest.raises(TileValueError) as caught:
        target(spec)
    return str(caught.value)


def test_an_unknown_target_is_refused_with_the_nearest_name_and_the_list():
    assert refusal("cudda") == (
        "error[target]: unknown target 'cudda'\n"
        f" = expected: {KNOWN}; got: 'cudda'\n"
        " = help: did you mean 'cuda'?"
    )


def test_an_unknown_chip_is_refused_with_the_nearest_names_of_its_kind():
    assert refusal("cuda -arch=sm_10a") == (
        "error[target]: unknown chip 'sm_10a' in target 'cuda -arch=sm_10a'\n"
        f" = expected: one of {', '.join(CUDA)}; got: 'sm_10a'\n"
        " = help: did you mean 'sm_120a' or 'sm_103a' or 'sm_100a'?"
    )
    assert "expected: one of sm_80" in refusal("cuda:ascend950")
    assert "expected: one of ascend910b, ascend950" in refusal({"kind": "ascend", "arch": "sm_80"})


def test_a_product_is_refused_with_its_architecture():
    for name, chip in (("h100", "sm_90a"), ("H200", "sm_90a"), ("b200", "sm_100a")):
        assert f"write {chip}, which is the architecture of {name}" in refusal(f"emulate:{name}")
    assert "write sm_90a" in refusal("cuda -arch=hopper")


@pytest.mark.parametrize("name", ["hip", "rocm", "metal", "webgpu", "cutedsl", "pto", "ascendc"])
def test_a_target_of_another_tree_is_refused_by_name_with_what_to_use(name):
    text = refusal(name)
    assert f"target '{name}' is not built here" in text
    ours = name in ("pto", "ascendc")
    assert (" = help: a kernel of the adapter tree runs on `simulate:" in text) == ours
    assert (" = help: use `" in text) != ours


def test_a_bare_chip_is_refused_with_the_ways_to_name_it():
    assert "use 'emulate:sm_90a', 'simulate:sm_90a' or 'cuda -arch=sm_90a'" in refusal("sm_90")


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("", "unknown target ''"),
        ("simulate", "`simulate` needs a chip"),
        ("emulate:", "unknown chip ''"),
        ("emulate:cpu", "unknown chip 'cpu'"),
        ("emulate -max_threads=4", "-max_threads=4"),
        ("cuda -arch=sm_80 -arch=sm_89", "got: -arch=sm_89"),
        ("cuda -arch", "got: -arch"),
        ("cuda arch=sm_80", "got: arch=sm_80"),
        ("llvm -mcpu=native", "got: -mcpu=native"),
        ("cpu -arch=sm_80", "got: arch=sm_80"),
        ("auto:sm_80", "got: arch=sm_80"),
        ({"kind": "cuda", "host": "llvm"}, "got: host"),
        ({"kind": "cuda", "arch": 90}, "both strings"),
        ({"arch": "sm_80"}, "both strings"),
        (3, "a target is a string, a dict or a Target"),
        (None, "a target is a string, a dict or a Target"),
    ],
)
def test_what_means_nothing_is_refused_and_not_ignored(spec, says):
    assert says in refusal(spec)


def test_targets_are_read_among_the_chips_given():
    only = (BY_NAME["sm_80"],)
    assert parse_target("emulate:sm_80", only).chip is only[0]
    with pytest.raises(TileValueError, match="expected: one of sm_80; got: 'sm_90a'"):
        parse_target("emulate:sm_90a", only)
    assert parse_target("ascend", only) == Target("native", "ascend")


def test_a_chip_with_contradictory_facts_cannot_be_built():
    def chip(capabilities, memories):
        return Chip("x", "cuda", "v", "f", 1, frozenset(capabilities), memories)

    with pytest.raises(InternalError, match="TENSOR_MEMORY and TMEM disagree"):
        chip({Capability.TENSOR_MEMORY}, {Memory.SHARED: ()})
    with pytest.raises(InternalError, match="has no capacity of its own"):
        chip(set(), {Memory.FRAGMENT: ()})
    with pytest.raises(InternalError, match="is counted in bytes"):
        chip(set(), {Memory.SHARED: (Capacity(1, Unit.COLUMNS, Per.BLOCK, "s"),)})
