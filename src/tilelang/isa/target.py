"""Targets and chips: what a kernel is compiled for, and what that hardware offers.

What enters: the `target=` of a program (a string, a dict or a `Target`) and the chips that the
target folders describe. What leaves: one immutable `Target`, which answers what is supported and
how much there is of each memory. Shared code asks these questions and never compares names.
"""

from __future__ import annotations

import difflib
import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

from tilelang.errors import InternalError, TileError, error
from tilelang.scopes import Dialect, Memory, Unit, facts

Mode = Literal["emulate", "simulate", "native"]
BackendName = Literal["auto", "cuda", "cpu", "ascend", "none"]


class Capability(enum.Enum):
    """Something that a chip can do and shared code may ask about; the value says what it is."""

    COMMON_DIALECT = "kernels of the common dialect"
    ASCEND_DIALECT = "kernels of the mainline Ascend dialect"
    ADAPTER_DIALECT = "kernels of the Ascend adapter dialect"
    SIMT = "code that names the threads of a block"
    CP_ASYNC = "cp.async: asynchronous copies from global to shared memory"
    MMA_SYNC = "mma.sync: warp-level matrix products"
    MBARRIER = "mbarriers with transaction counts and try_wait"
    CLUSTER = "clusters of thread blocks"
    TMA = "cp.async.bulk.tensor: tensor copies by the Tensor Memory Accelerator"
    TMA_ROWS = "tile::gather4 and tile::scatter4: tensor copies of four rows that lie anywhere"
    LAUNCH_CONTROL = "clusterlaunchcontrol: blocks that take over clusters not yet launched"
    SETMAXNREG = "setmaxnreg: registers moved between warpgroups"
    WGMMA = "wgmma: warpgroup matrix products"
    TCGEN05 = "tcgen05: matrix products into Tensor Memory"
    TCGEN05_INT8 = "tcgen05: products of 8-bit integers"
    TENSOR_MEMORY = "Tensor Memory"
    FP8 = "matrix products of 8-bit floats"
    FP4 = "block-scaled matrix products of 4-bit floats"
    UB = "a Unified Buffer in each vector core"
    CUBE = "a cube core with L1, L0A, L0B and L0C buffers"
    FIXPIPE = "the fixpipe that drains L0C, with casts"
    CORE_COPIES = "copies from L0C to UB and from UB to L1, between the cores of a group"
    SIMT_FUNCTION = "SIMT functions on vector cores"
    SIMD_FUNCTION = "register-level SIMD functions on vector cores"


_DIALECTS: Mapping[Dialect, Capability] = {
    Dialect.COMMON: Capability.COMMON_DIALECT,
    Dialect.ASCEND: Capability.ASCEND_DIALECT,
    Dialect.ADAPTER: Capability.ADAPTER_DIALECT,
}

# Memories that need more than their pool: the storage of an mbarrier is there on every chip with
# shared memory, the instructions for it are not.
_NEEDS: Mapping[Memory, Capability] = {
    Memory.BARRIER: Capability.MBARRIER,
    Memory.CLUSTER_BARRIER: Capability.CLUSTER,
    Memory.TMEM: Capability.TENSOR_MEMORY,
    Memory.UB: Capability.UB,
    Memory.L1: Capability.CUBE,
}


@dataclass(frozen=True)
class Fact:
    """One number of a chip, with the document it comes from."""

    value: int
    source: str


class Per(enum.Enum):
    """What a capacity is counted over."""

    BLOCK = "block"
    BLOCK_STATIC = "block, static allocations only"
    CORE = "core (SM or AI core), shared by the blocks resident on it"
    THREAD = "thread"


class When(enum.Enum):
    """The condition under which a capacity holds instead of the usual one."""

    ALWAYS = "always"
    SIMT_FUNCTION = "the kernel has a SIMT function"


@dataclass(frozen=True)
class Capacity:
    """How much of a memory there is: `amount` in `unit`, over `per`, if `when` holds.

    Space is handed out in multiples of `granule` units, or, with `power_of_two`, in powers of two
    from `granule` on.
    """

    amount: int
    unit: Unit
    per: Per
    source: str
    when: When = When.ALWAYS
    granule: int = 1
    power_of_two: bool = False

    def rounded(self, asked: int) -> int:
        """The units that a request for `asked` takes; the result may exceed `amount`."""
        if asked <= 0:
            return 0
        if self.power_of_two:
            return max(self.granule, 1 << (asked - 1).bit_length())
        return -(-asked // self.granule) * self.granule


@dataclass(frozen=True)
class ThreadLimits:
    """How many threads, warps and blocks fit; counts, not sizes."""

    warp_size: Fact
    per_block: Fact
    per_core: Fact
    warps_per_core: Fact
    blocks_per_core: Fact


@dataclass(frozen=True)
class SyncLimits:
    """What orders the pipes of a core and the cores of a launch, where a chip has both.

    `event_ids` are for each pair of pipes; `flags` are cross-core flags, and `flag_count` how often
    one may be raised before it is waited for; `pair_flags` are those between a cube core and one
    vector core; `mutexes` is None where the chip has none.
    """

    event_ids: Fact
    flags: Fact
    flag_count: Fact
    pair_flags: Fact | None = None
    mutexes: Fact | None = None

    def flags_of(self, mode: int) -> Fact | None:
        """The cross-core flags of a mode (4: between a cube core and one vector core)."""
        return self.pair_flags if mode == 4 else self.flags


@dataclass(frozen=True)
class Rate:
    """Cycles of an operation: it keeps its pipe for one in `per_cycle` units, `least` at any rate;
    `latency` more pass until it is done.
    """

    latency: int
    per_cycle: int
    least: int = 1

    def busy(self, units: int) -> int:
        """How long the pipe is kept."""
        return max(self.least, -(-units // self.per_cycle))


@dataclass(frozen=True)
class Costs:
    """Cycles of the operations of a core group: an estimate to choose an order by, no measurement.

    `moves` count bytes by source and destination. `vector` counts bytes by the kind of operation
    ("plain", "divide", "special"), `cube` arithmetic operations by the element type, "" for any
    other. `scalar` is for one element that the scalar unit touches, `issue` for any instruction.
    """

    moves: Mapping[tuple[Memory, Memory], Rate]
    vector: Mapping[str, Rate]
    cube: Mapping[str, Rate]
    scalar: int
    issue: int
    source: str


Memories = Mapping[Memory, tuple[Capacity, ...]]


@dataclass(frozen=True)
class Chip:
    """One architecture. Chips are equal if their names are; all other fields are facts about them.

    `arch` is the vendor's architecture number (90 for sm_90a, 3510 for dav-3510). A key of
    `memories` says that the memory exists, an empty tuple that it has no published limit.
    `products` are what chips of it are sold as, in small letters; they are for messages only.
    `cores` is the number of SMs of the product that `cores.source` names, where there is one.
    `fp32_gemm` is the precision in which products of fp32 tiles are computed.
    `copies` are the pairs (source, destination) of memories between which a program may copy, None
    where it may between any two; `copies_source` says where that is written. Those of
    `by_workspace` the hardware lacks: they go through a workspace in global memory. `drains` are
    the conversions (from, to) of accumulators on their way out of a cube core. `costs` estimate the
    time of operations that are queued on pipes. `default` marks the chip that its backend's bare
    name means, `assumed` the one that it means where no device says which.
    """

    name: str
    backend: BackendName = field(compare=False)
    vendor: str = field(compare=False)
    family: str = field(compare=False)
    arch: int = field(compare=False)
    capabilities: frozenset[Capability] = field(compare=False, repr=False)
    memories: Memories = field(compare=False, repr=False)
    aliases: tuple[str, ...] = field(compare=False, default=())
    products: tuple[str, ...] = field(compare=False, default=(), repr=False)
    threads: ThreadLimits | None = field(compare=False, default=None, repr=False)
    cores: Fact | None = field(compare=False, default=None, repr=False)
    alignments: Mapping[Memory, Fact] = field(
        compare=False, default_factory=dict[Memory, Fact], repr=False
    )
    fp32_gemm: Literal["fp32", "tf32"] = field(compare=False, default="fp32")
    copies: frozenset[tuple[Memory, Memory]] | None = field(compare=False, default=None, repr=False)
    copies_source: str = field(compare=False, default="", repr=False)
    by_workspace: frozenset[tuple[Memory, Memory]] = field(
        compare=False, default=frozenset(), repr=False
    )
    sync: SyncLimits | None = field(compare=False, default=None, repr=False)
    drains: frozenset[tuple[str, str]] | None = field(compare=False, default=None, repr=False)
    drains_source: str = field(compare=False, default="", repr=False)
    costs: Costs | None = field(compare=False, default=None, repr=False)
    default: bool = field(compare=False, default=False)
    assumed: bool = field(compare=False, default=False)

    def __post_init__(self) -> None:
        for memory, capacities in self.memories.items():
            about = facts(memory)
            if about.pool is not memory or about.resolves_to:
                raise InternalError(f"{self.name}: {memory.name} has no capacity of its own")
            if any(capacity.unit is not about.unit for capacity in capacities):
                raise InternalError(f"{self.name}: {memory.name} is counted in {about.unit.value}")
        for memory, needed in _NEEDS.items():
            own = facts(memory).pool is memory
            if own and (memory in self.memories) != (needed in self.capabilities):
                raise InternalError(f"{self.name}: {needed.name} and {memory.name} disagree")

    def has_memory(self, memory: Memory) -> bool:
        """Whether buffers can be placed in `memory`."""
        choices = facts(memory).resolves_to
        if choices:
            return any(self.has_memory(choice) for choice in choices)
        needed = _NEEDS.get(memory)
        present = facts(memory).pool in self.memories
        return present and (needed is None or needed in self.capabilities)

    def capacities(self, memory: Memory) -> tuple[Capacity, ...]:
        """All limits of the pool that `memory` draws on; empty if none is published."""
        return self.memories.get(facts(memory).pool, ())


@dataclass(frozen=True)
class Target:
    """What a kernel is compiled for, or run on.

    `mode` is `native` (the hardware itself), `emulate` (the meaning of the tile program, under the
    rules of `chip`) or `simulate` (the lowered program on a model of `chip`). Without a chip,
    `emulate` has every capability and no limits.
    """

    mode: Mode
    backend: BackendName
    chip: Chip | None = None

    def __str__(self) -> str:
        """The canonical name, which `parse_target` reads back to an equal target."""
        if self.mode != "native":
            return self.mode if self.chip is None else f"{self.mode}:{self.chip.name}"
        if self.chip is None or self.chip.default:
            return self.backend
        return f"{self.backend} -arch={self.chip.name}"

    @property
    def resolved(self) -> bool:
        """Whether it is known what this target can do: `auto` and a bare `cuda` are not."""
        return self.chip is not None or self.mode == "emulate"

    @property
    def limited(self) -> bool:
        """Whether capacities are checked; if not, `describe` says so."""
        return self.chip is not None and any(self.chip.memories.values())

    def describe(self) -> str:
        """The target in a sentence's words, for reports."""
        if self.backend == "auto":
            return "the GPU if one can be used, else the CPU"
        if self.mode == "native":
            unlimited = self.chip is not None and not self.limited
            return f"{self}, with no capacity limits" if unlimited else str(self)
        if self.chip is None:
            return f"{self.mode}, on no particular chip: every memory, and no capacity limits"
        return f"{self.mode}, under the rules of {self.chip.name} ({self.chip.family})"

    def supports(self, capability: Capability) -> bool:
        """Whether the target has `capability`. The target must be resolved."""
        self._check_resolved()
        return self.chip is None or capability in self.chip.capabilities

    def runs(self, dialect: Dialect) -> bool:
        """Whether kernels of `dialect` run here."""
        return self.supports(_DIALECTS[dialect])

    def has_memory(self, memory: Memory) -> bool:
        """Whether buffers can be placed in `memory` here."""
        self._check_resolved()
        return self.chip is None or self.chip.has_memory(memory)

    def copies(self, src: Memory, dst: Memory) -> bool:
        """Whether a program may copy from `src` to `dst` here, by one instruction or several."""
        self._check_resolved()
        if self.chip is None or self.chip.copies is None:
            return True
        return (src, dst) in self.chip.copies

    def capacity(
        self, memory: Memory, per: Per = Per.BLOCK, when: When = When.ALWAYS
    ) -> Capacity | None:
        """The limit of the pool that `memory` draws on, over `per`; None if there is no limit.

        If the chip states another limit for `when`, that one holds. Raises `TileValueError` if the
        chip lacks the memory.
        """
        self._check_resolved()
        if self.chip is None:
            return None
        if facts(memory).resolves_to:
            raise InternalError(f"{memory.name} must be resolved before its capacity is asked for")
        if not self.chip.has_memory(memory):
            raise error(
                "scope",
                f"{self.chip.name} ({self.chip.family}) has no {memory.title}",
                expected=f"a memory of {self.chip.name}: {_memory_names(self.chip)}",
                got=memory.title,
                help="compile for a chip that has it, or `emulate` for no particular chip",
            )
        over = [capacity for capacity in self.chip.capacities(memory) if capacity.per is per]
        special = [capacity for capacity in over if capacity.when is when]
        usual = [capacity for capacity in over if capacity.when is When.ALWAYS]
        return next(iter(special + usual), None)

    @property
    def fp32_gemm(self) -> Literal["fp32", "tf32"]:
        """The precision in which this target multiplies fp32 tiles."""
        self._check_resolved()
        return "fp32" if self.chip is None else self.chip.fp32_gemm

    def _check_resolved(self) -> None:
        if not self.resolved:
            raise InternalError(f"target '{self}' must be resolved to a device before it is asked")


TargetLike = str | Mapping[str, object] | Target

# Upstream's names for targets that are the same thing here.
_KINDS: Mapping[str, BackendName] = {
    "auto": "auto",
    "cuda": "cuda",
    "cpu": "cpu",
    "c": "cpu",
    "llvm": "cpu",
    "ascend": "ascend",
    "asc": "ascend",
}

# What other trees have and this one does not, with what to use instead.
_NO_SUCH_GPU = "use `cpu`, or `emulate:<chip>` to check the kernel against a chip's rules"
_REFUSED: Mapping[str, str] = {
    "hip": _NO_SUCH_GPU,
    "rocm": _NO_SUCH_GPU,
    "metal": _NO_SUCH_GPU,
    "webgpu": _NO_SUCH_GPU,
    "cutedsl": "use `cuda`: the same kernels compile without CuTe",
    "ascendc": "a kernel of the adapter tree runs on {adapter}",
    "pto": "a kernel of the adapter tree runs on {adapter}",
}


def parse_target(spec: TargetLike, chips: Sequence[Chip]) -> Target:
    """The target that `spec` names, among `chips`.

    Accepted: a `Target` (unchanged); `"auto"`; `"cpu"`, `"c"`, `"llvm"` (all the same here);
    `"cuda"`; `"ascend"` or `"asc"`; a kind with a chip as `"cuda -arch=sm_90a"`, `"cuda:sm_90a"` or
    `{"kind": "cuda", "arch": "sm_90a"}`; `"emulate"`; `"emulate:<chip>"`, `"simulate:<chip>"`.
    `"auto"` and `"cuda"` stay open: the runtime resolves them to a device.
    Raises `TileValueError` with the nearest names and the whole list otherwise.
    """
    if isinstance(spec, Target):
        return spec
    if isinstance(spec, str):
        return _parse_text(spec, chips)
    if isinstance(spec, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        return _parse_mapping(spec, chips)
    raise error(
        "target",
        "a target is a string, a dict or a Target",
        expected=_known(chips),
        got=f"{spec!r} ({type(spec).__name__})",
    )


def target_names(chips: Sequence[Chip]) -> list[str]:
    """Every canonical target name, for lists in messages and reports."""
    modelled = [chip.name for chip in chips if chip.backend != "cpu"]
    native = list(dict.fromkeys(_KINDS.values()))
    return [
        *native,
        "emulate",
        *(f"emulate:{name}" for name in modelled),
        *(f"simulate:{name}" for name in modelled),
    ]


def _parse_text(spec: str, chips: Sequence[Chip]) -> Target:
    text = spec.strip()
    if ":" in text:
        kind, _, arch = (part.strip() for part in text.partition(":"))
        return _build(kind, arch, chips, spec)
    kind, *options = text.split() or [""]
    arch: str | None = None
    for option in options:
        name, _, value = option.partition("=")
        if name.lstrip("-") != "arch" or not name.startswith("-") or not value or arch is not None:
            raise _bad_option(spec, option)
        arch = value
    return _build(kind, arch, chips, spec)


def _parse_mapping(spec: Mapping[str, object], chips: Sequence[Chip]) -> Target:
    unknown = sorted(str(key) for key in spec if key not in ("kind", "arch"))
    if unknown:
        raise _bad_option(str(dict(spec)), unknown[0])
    kind, arch = spec.get("kind"), spec.get("arch")
    if not isinstance(kind, str) or not (arch is None or isinstance(arch, str)):
        raise error(
            "target",
            "a target dict has a `kind`, and may have an `arch`, both strings",
            expected='for example {"kind": "cuda", "arch": "sm_90a"}',
            got=str(dict(spec)),
        )
    return _build(kind, arch, chips, str(dict(spec)))


def _build(kind: str, arch: str | None, chips: Sequence[Chip], spec: str) -> Target:
    """The target of `kind` with the chip named `arch`; `spec` is what the author wrote."""
    word = kind.lower()
    if word in _REFUSED:
        raise error(
            "target",
            f"target '{kind}' is not built here",
            expected=_known(chips),
            got=f"'{spec}'",
            help=_REFUSED[word].format(adapter=_adapter_targets(chips)),
        )
    if word in ("emulate", "simulate"):
        modelled = [chip for chip in chips if chip.backend != "cpu"]
        return _modelled(cast("Mode", word), arch, modelled, spec)
    if word not in _KINDS:
        raise _unknown_target(spec, chips)
    backend = _KINDS[word]
    own = [chip for chip in chips if chip.backend == backend]
    if arch is not None:
        if backend in ("auto", "cpu"):
            raise _bad_option(spec, f"arch={arch}")
        return Target("native", backend, _find_chip(arch, own, spec))
    return Target("native", backend, next((chip for chip in own if chip.default), None))


def _modelled(mode: Mode, arch: str | None, chips: Sequence[Chip], spec: str) -> Target:
    """The emulated or simulated target, of a chip named `arch` if one is."""
    if arch is not None:
        chip = _find_chip(arch, chips, spec)
        return Target(mode, chip.backend, chip)
    if mode == "simulate":
        raise error(
            "target",
            "`simulate` needs a chip: it models one machine",
            expected=", ".join(f"simulate:{chip.name}" for chip in chips),
            got=f"'{spec}'",
            help="`emulate` alone runs the tile program under no particular chip's rules",
        )
    return Target(mode, "none")


def _find_chip(name: str, chips: Sequence[Chip], spec: str) -> Chip:
    word = name.lower()
    for chip in chips:
        if word == chip.name or word in chip.aliases:
            return chip
    names = [chip.name for chip in chips]
    sold = next((c for c in chips if word in (*c.products, c.family.lower())), None)
    if sold is not None:
        near = f"write {sold.name}, which is the architecture of {name}"
    else:
        near = _near(word, [*names, *(alias for chip in chips for alias in chip.aliases)])
    raise error(
        "target",
        f"unknown chip '{name}' in target '{spec}'",
        expected=f"one of {', '.join(names)}",
        got=f"'{name}'",
        help=near,
    )


def _unknown_target(spec: str, chips: Sequence[Chip]) -> TileError:
    names = target_names(chips)
    chip = next((chip for chip in chips if spec.lower() in (chip.name, *chip.aliases)), None)
    if chip is not None:
        hint = (
            f"'{spec}' is a chip: use 'emulate:{chip.name}', 'simulate:{chip.name}' or "
            f"'{chip.backend} -arch={chip.name}'"
        )
    else:
        hint = _near(spec.lower(), [*names, *_KINDS])
    return error(
        "target",
        f"unknown target '{spec}'",
        expected=_known(chips),
        got=f"'{spec}'",
        help=hint,
    )


def _bad_option(spec: str, option: str) -> TileError:
    return error(
        "target",
        f"target {spec} has an option that means nothing here",
        expected='a kind, and for a kind with several chips `-arch=<chip>` or "arch": "<chip>"',
        got=option,
        help="leave it out; options of the compiler are passed as `pass_configs`",
    )


def _adapter_targets(chips: Sequence[Chip]) -> str:
    able = [chip for chip in chips if Capability.ADAPTER_DIALECT in chip.capabilities]
    return " or ".join(f"`simulate:{chip.name}`" for chip in able) or "`simulate`"


def _near(word: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(dict.fromkeys(names)), n=3, cutoff=0.6)
    return f"did you mean {' or '.join(repr(name) for name in near)}?" if near else ""


def _known(chips: Sequence[Chip]) -> str:
    """The target names, with the chips named once."""
    modelled = ", ".join(chip.name for chip in chips if chip.backend != "cpu")
    kinds = ", ".join(dict.fromkeys(_KINDS.values()))
    return f"{kinds}, emulate, emulate:<chip>, simulate:<chip>; the chips are {modelled}"


def _memory_names(chip: Chip) -> str:
    return ", ".join(memory.title for memory in chip.memories)
