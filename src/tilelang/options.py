"""Every setting: pass-config keys, environment variables, their types, defaults and effects.

What enters: the `pass_configs` mapping of `jit` or `compile`, and an environment. What leaves: one
frozen `Options`, or an error that says which setting is wrong. A setting of upstream that has no
meaning here stands in the same table with its reason; `ineffective` reports the ones a program
uses, so that nothing is accepted and ignored. Keys and variables are those of upstream 0.1.15.
"""

from __future__ import annotations

import difflib
import enum
import json
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from tilelang.errors import TileTypeError, error


class PassConfigKey(enum.StrEnum):
    """The keys of `pass_configs`; a member and its string are the same key."""

    TL_SIMPLIFY = "tl.Simplify"
    TL_SIMPLIFY_TRANSITIVELY_PROVE_INEQUALITIES = "transitively_prove_inequalities"
    TL_SIMPLIFY_CONVERT_BOOLEAN_TO_AND_OF_ORS = "convert_boolean_to_and_of_ors"
    TL_SIMPLIFY_APPLY_CONSTRAINTS_TO_BOOLEAN_BRANCHES = "apply_constraints_to_boolean_branches"
    TL_SIMPLIFY_PROPAGATE_KNOWNS_TO_PROVE_CONDITIONAL = "propagate_knowns_to_prove_conditional"
    TL_SIMPLIFY_PROPAGATE_KNOWNS_TO_SIMPLIFY_EXPRESSIONS = (
        "propagate_knowns_to_simplify_expressions"
    )
    TL_SIMPLIFY_ENABLE_LET_INLINE = "enable_simplify_let_inline"
    TL_DISABLE_BUFFER_INIT_CHECK = "tl.disable_buffer_init_check"
    TL_DISABLE_DATA_RACE_CHECK = "tl.disable_data_race_check"
    TL_DISABLE_PRELOWER_SEMANTIC_CHECK = "tl.disable_prelower_semantic_check"
    TL_DISABLE_WARP_SPECIALIZED = "tl.disable_warp_specialized"
    TL_ENABLE_AUTO_SCHEDULE = "tl.enable_auto_schedule"
    TL_ENABLE_AUTO_WARP_SPECIALIZATION = "tl.enable_auto_warp_specialization"
    TL_ENABLE_FAST_MATH = "tl.enable_fast_math"
    TL_PTXAS_REGISTER_USAGE_LEVEL = "tl.ptxas_register_usage_level"
    TL_DEVICE_COMPILE_FLAGS = "tl.device_compile_flags"
    TL_EMIT_LINE_DIRECTIVES = "tl.emit_line_directives"
    TL_ASCEND_AUTO_SYNC = "tl.ascend_auto_sync"
    TL_ASCEND_MEMORY_PLANNING = "tl.ascend_memory_planning"
    TL_ASCEND_AUTO_CV_COMBINE = "tl.ascend_auto_cv_combine"
    TL_ASCEND_AUTO_CV_SYNC = "tl.ascend_auto_cross_core_sync"
    TL_CONFIG_INDEX_BITWIDTH = "tl.config_index_bitwidth"
    TL_ENABLE_REDUCER_PLAN_VERBOSE = "tl.enable_reducer_plan_verbose"
    TL_LAYOUT_COST_MODEL = "tl.layout_cost_model"
    TL_REDUCER_FORCE_BASELINE = "tl.reducer_force_baseline"
    TL_DISABLE_TMA_LOWER = "tl.disable_tma_lower"
    TL_DISABLE_SAFE_MEMORY_ACCESS = "tl.disable_safe_memory_legalize"
    TL_DISABLE_VECTORIZE_256 = "tl.disable_vectorize_256"
    TL_ENABLE_FP32X2_REDUCTION = "tl.enable_fp32x2_reduction"
    TL_ENABLE_ASYNC_COPY = "tl.enable_async_copy"
    TL_ENABLE_LOWER_LDGSTG = "tl.enable_lower_ldgstg"
    TL_ENABLE_LOWER_LDGSTG_PREDICATED = "tl.enable_lower_ldgstg_predicated"
    TL_ENABLE_VECTORIZE_PLANNER_VERBOSE = "tl.enable_vectorize_planner_verbose"
    TL_DISABLE_WGMMA = "tl.disable_wgmma"
    TL_DEBUG_MERGE_SHARED_MEMORY_ALLOCATIONS = "tl.debug_merge_shared_memory_allocations"
    TL_ENABLE_AGGRESSIVE_SHARED_MEMORY_MERGE = "tl.enable_aggressive_shared_memory_merge"
    TL_DISABLE_SHARED_MEMORY_REUSE = "tl.disable_shared_memory_reuse"
    TL_DISABLE_SHUFFLE_ELECT = "tl.disable_shuffle_elect"
    TL_DISABLE_LOOP_UNSWITCHING = "tl.disable_loop_unswitching"
    TL_LOOP_UNSWITCHING_ALLOW_NON_TRIVIAL_ELSE = "tl.loop_unswitching_allow_non_trivial_else"
    TL_IF_STMT_BINDING_INLINE_REPLAYABLE_BINDS = "tl.if_stmt_binding_inline_replayable_binds"
    TL_DISABLE_THREAD_STORAGE_SYNC = "tl.disable_thread_storage_sync"
    TL_FORCE_LET_INLINE = "tl.force_let_inline"
    TL_AST_PRINT_ENABLE = "tl.ast_print_enable"
    TL_LAYOUT_VISUALIZATION_ENABLE = "tl.layout_visualization_enable"
    TL_LAYOUT_VISUALIZATION_FORMATS = "tl.layout_visualization_formats"
    TL_STORAGE_REWRITE_DETECT_INPLACE = "tl.storage_rewrite_detect_inplace"
    TIR_ENABLE_EQUIV_TERMS_IN_CSE = "tir.enable_equiv_terms_in_cse_tir"
    TIR_DISABLE_CSE = "tirx.disable_cse_tir"
    TIR_SIMPLIFY = "tirx.Simplify"
    TIR_DISABLE_STORAGE_REWRITE = "tirx.disable_storage_rewrite"
    TIR_DISABLE_VECTORIZE = "tirx.disable_vectorize"
    TIR_USE_ASYNC_COPY = "tirx.use_async_copy"
    TIR_ENABLE_DEBUG = "tirx.enable_debug"
    TIR_MERGE_STATIC_SMEM = "tirx.merge_static_smem"
    TIR_ADD_LOWER_PASS = "tirx.add_lower_pass"
    TIR_NOALIAS = "tirx.noalias"
    CUDA_KERNELS_OUTPUT_DIR = "cuda.kernels_output_dir"
    TL_DISABLE_OUT_OF_BOUND_WARNING = "tl.disable_out_of_bound_warning"
    TL_ENABLE_DUMP_IR = "tl.enable_dump_ir"
    TL_DUMP_IR_DIR = "tl.dump_ir_path"
    TL_PASS_PROFILE = "tl.pass_profile"
    TL_PASS_PROFILE_THRESHOLD_MS = "tl.pass_profile_threshold_ms"


class Effect(enum.Enum):
    """What a setting can change."""

    RESULTS = "results"
    SPEED = "speed"
    REPORTS = "reports"
    NONE = "nothing"


class Part(enum.Enum):
    """The part of the compiler that reads a setting."""

    TARGET = "the choice of the target"
    RUNTIME = "compiling, caching and launching"
    TRACE = "the compile trace"
    CHECK = "the checks at compile time"
    THREAD = "the lowering to threads"
    DEVICE = "the device compiler"
    CORES = "the lowering to Ascend cores"
    TUNE = "the tuner"


# The parts of this version that read their settings. The commit that makes a part read them adds
# it here; tests/unit/test_options.py compares this with the source, in both directions.
BUILT: frozenset[Part] = frozenset(
    {Part.TARGET, Part.RUNTIME, Part.TRACE, Part.CHECK, Part.THREAD, Part.DEVICE, Part.CORES}
)


@dataclass(frozen=True)
class Kind:
    """A type of value. `expected` says it in words.

    `convert` turns a Python value of `types`, or the text of a variable, into what is stored. It
    raises ValueError where it cannot; `legal` judges the result.
    """

    expected: str
    types: tuple[type, ...]
    convert: Callable[[Any], Any]
    legal: Callable[[Any], bool] = lambda _: True

    def accept(self, value: object) -> Any:
        """The stored form of a Python value; TypeError or ValueError if it is not of this kind."""
        of_type = isinstance(value, self.types)
        if not of_type or (isinstance(value, bool) and bool not in self.types):
            raise TypeError
        return self.parse(value)

    def parse(self, given: Any) -> Any:
        """The stored form of a variable's text; ValueError if it is not of this kind."""
        stored = self.convert(given)
        if not self.legal(stored):
            raise ValueError
        return stored


@dataclass(frozen=True)
class Row:
    """One setting. `name` is the field of `Options`, None for a setting that has no effect here."""

    name: str | None
    key: PassConfigKey | None
    env: str | None
    kind: Kind
    default: Any
    part: Part | None
    effect: Effect
    doc: str

    @property
    def title(self) -> str:
        """The name an author knows the setting by: its key, else its variable."""
        return self.key.value if self.key is not None else str(self.env)

    @property
    def changes_results(self) -> bool:
        """Whether the numbers that a kernel computes can depend on it."""
        return self.effect is Effect.RESULTS


# ---- Kinds of value ------------------------------------------------------------------------------

_ON, _OFF = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
_FORMATS = ("txt", "pdf", "png", "svg", "all")
_SIMPLIFY_KEYS = tuple(key for key in PassConfigKey if key.name.startswith("TL_SIMPLIFY_"))


def _same(value: Any) -> Any:
    return value


def _switch(value: Any) -> bool:
    text = str(value).lower()
    if text not in _ON + _OFF:
        raise ValueError
    return text in _ON


def _folder(value: Any) -> Path:
    if not str(value):
        raise ValueError
    return Path(value).expanduser()


def _flags(value: Any) -> tuple[Any, ...]:
    return tuple(shlex.split(value) if isinstance(value, str) else value)


def _target(text: str) -> str:
    if text.lstrip().startswith("{"):
        json.loads(text)
    return text


def _simplify(value: Any) -> dict[str, bool]:
    return {PassConfigKey(key).value: SWITCH.accept(item) for key, item in dict(value).items()}


def _one_of(*words: str) -> Kind:
    return Kind("one of " + ", ".join(words), (str,), str, lambda word: word in words)


SWITCH = Kind("True or False (in a variable: 1 or 0)", (bool, int), _switch)
TEXT = Kind("a string", (str,), str)
FOLDER = Kind("the path of a folder", (str, Path), _folder)
FOLDER_OR_NONE = Kind(
    "the path of a folder, or an empty string for none",
    (str, Path),
    lambda value: _folder(value) if str(value) else None,
)
TARGET = Kind("a target, or a JSON object with its fields", (str,), _target)
FLAGS = Kind(
    "a string, or a list of strings",
    (str, list, tuple),
    _flags,
    lambda items: all(isinstance(item, str) for item in items),
)
FORMATS = Kind(
    f"some of {', '.join(_FORMATS)}, parted by commas",
    (str,),
    lambda text: tuple(item.strip() for item in text.split(",")),
    lambda items: set(items) <= set(_FORMATS),
)
SIMPLIFY = Kind(
    "a dict of switches, with keys among " + ", ".join(_SIMPLIFY_KEYS),
    (Mapping,),
    _simplify,
    lambda switches: set(switches) <= set(_SIMPLIFY_KEYS),
)
NOTHING = Kind("None or an empty list", (list, tuple, type(None)), _same, lambda value: not value)
ANYTHING = Kind("any value", (object, bool), _same)
LEVEL = Kind("an integer from 0 to 2", (int,), int, lambda n: 0 <= n <= 2)
BITS = Kind("32 or 64", (int,), int, lambda n: n in (32, 64))
USAGE = Kind("an integer from 0 to 10", (int,), int, lambda n: 0 <= n <= 10)
PROCESSORS = Kind("a number of processors, or -1", (int,), int, lambda n: n == -1 or n > 0)
MILLISECONDS = Kind("a number of ms, 0 or more", (int, float), float, lambda x: x >= 0)
SECONDS = Kind("a number of seconds above 0", (int, float), float, lambda x: x > 0)
NAMES = Kind(
    "names, parted by commas",
    (str,),
    lambda text: tuple(item.strip() for item in text.split(",") if item.strip()),
)
SHARE = Kind("a number above 0, at most 1", (int, float), float, lambda x: 0 < x <= 1)
COST_MODEL = _one_of("io-aware", "register-count")
BACKEND = _one_of("auto", "tvm_ffi", "cython", "nvrtc", "torch", "cutedsl")


# ---- Settings with an effect ---------------------------------------------------------------------


def _option(default: Any, kind: Kind, read: tuple[Part, Effect], *names: str, doc: str) -> Any:
    """A field of `Options` with its row; `names` are its key, its environment variable, or both."""
    metadata = {"row": (*_split(names), kind, default, *read, doc)}
    if isinstance(default, Path):
        return field(default_factory=default.expanduser, metadata=metadata)
    return field(default=default, metadata=metadata)


def _split(names: Iterable[str]) -> tuple[PassConfigKey | None, str | None]:
    keys = [name for name in names if isinstance(name, PassConfigKey)]
    variables = [name for name in names if not isinstance(name, PassConfigKey)]
    return keys[0] if keys else None, variables[0] if variables else None


_K = PassConfigKey
_CHOICE = (Part.TARGET, Effect.RESULTS)
_RUN_SPEED = (Part.RUNTIME, Effect.SPEED)
_RUN_REPORTS = (Part.RUNTIME, Effect.REPORTS)
_TRACE = (Part.TRACE, Effect.REPORTS)
_CHECK = (Part.CHECK, Effect.REPORTS)
_THREAD_RESULTS = (Part.THREAD, Effect.RESULTS)
_THREAD_SPEED = (Part.THREAD, Effect.SPEED)
_DEVICE_RESULTS = (Part.DEVICE, Effect.RESULTS)
_DEVICE_SPEED = (Part.DEVICE, Effect.SPEED)
_CORES_RESULTS = (Part.CORES, Effect.RESULTS)
_CORES_SPEED = (Part.CORES, Effect.SPEED)
_TUNE = (Part.TUNE, Effect.SPEED)


# fmt: off
@dataclass(frozen=True, kw_only=True)
class Options:
    """The settings that one compilation, launch or tuning runs under."""

    cache_dir: Path = _option(  # noqa: RUF009 - a field, as dataclasses.field is
        Path("~/.tilelang/cache"), FOLDER, _RUN_SPEED, "TILELANG_CACHE_DIR",
        doc="Folder of compiled kernels; beyond 512 MiB the least recently used are removed."
    )
    disable_cache: bool = _option(
        False, SWITCH, _RUN_SPEED, "TILELANG_DISABLE_CACHE",
        doc="Compile each kernel anew: neither look for compiled kernels nor keep them."
    )
    default_target: str = _option(
        "auto", TARGET, _CHOICE, "TILELANG_DEFAULT_TARGET",
        doc="The target where none is given; a JSON object names its fields."
    )
    print_on_compilation: bool = _option(
        True, SWITCH, _RUN_REPORTS, "TILELANG_PRINT_ON_COMPILATION",
        doc="Log the name of each kernel when its compilation starts and ends (INFO, `tilelang`)."
    )
    verbose: bool = _option(
        False, SWITCH, _RUN_REPORTS, "TILELANG_VERBOSE",
        doc="Print to standard error what was chosen and what was declined."
    )
    trace: int = _option(
        0, LEVEL, _TRACE, "TILEWRIGHT_TRACE",
        doc="Print to standard error, 1: timings and what was declined; 2: IR that changed too."
    )
    trace_dir: Path | None = _option(  # noqa: RUF009 - a field, as dataclasses.field is
        None, FOLDER_OR_NONE, _TRACE, "TILEWRIGHT_TRACE_DIR",
        doc="Write one folder for each compilation here: IR after each pass, code, timings."
    )
    enable_dump_ir: bool = _option(
        False, SWITCH, _TRACE, _K.TL_ENABLE_DUMP_IR,
        doc="Write the IR after each pass to `tl.dump_ir_path`."
    )
    dump_ir_path: Path = _option(  # noqa: RUF009 - a field, as dataclasses.field is
        Path("dump_ir"), FOLDER, _TRACE, _K.TL_DUMP_IR_DIR,
        doc="Where `tl.enable_dump_ir` writes, one folder for each compilation."
    )
    pass_profile: bool = _option(
        False, SWITCH, _TRACE, _K.TL_PASS_PROFILE, "TILELANG_PASS_PROFILE",
        doc="Print to standard error the time that each pass takes."
    )
    pass_profile_threshold_ms: float = _option(
        0.0, MILLISECONDS, _TRACE,
        _K.TL_PASS_PROFILE_THRESHOLD_MS, "TILELANG_PASS_PROFILE_THRESHOLD_MS",
        doc="Leave passes faster than this (in ms) out of the profile."
    )
    kernels_output_dir: Path | None = _option(  # noqa: RUF009 - a field, as dataclasses.field is
        None, FOLDER_OR_NONE, _TRACE, _K.CUDA_KERNELS_OUTPUT_DIR,
        doc="Write the source that is generated for each kernel here."
    )

    disable_buffer_init_check: bool = _option(
        False, SWITCH, _CHECK, _K.TL_DISABLE_BUFFER_INIT_CHECK,
        doc="No warning at compile time for a proved read before the first write."
    )
    disable_data_race_check: bool = _option(
        False, SWITCH, _CHECK, _K.TL_DISABLE_DATA_RACE_CHECK,
        doc="No warning at compile time for a proved race."
    )
    disable_out_of_bound_warning: bool = _option(
        False, SWITCH, _CHECK, _K.TL_DISABLE_OUT_OF_BOUND_WARNING,
        doc="No warning at compile time for a proved out-of-bounds access of global memory."
    )

    disable_thread_storage_sync: bool = _option(
        False, SWITCH, _THREAD_RESULTS, _K.TL_DISABLE_THREAD_STORAGE_SYNC,
        doc="Insert no barriers for shared memory: the kernel's own are all there is."
    )
    disable_safe_memory_access: bool = _option(
        False, SWITCH, _THREAD_RESULTS, _K.TL_DISABLE_SAFE_MEMORY_ACCESS,
        doc="No guards on global memory: an out-of-bounds access is then undefined."
    )
    disable_warp_specialized: bool = _option(
        False, SWITCH, _THREAD_SPEED, _K.TL_DISABLE_WARP_SPECIALIZED,
        doc="Do not split producers and consumers over warps."
    )
    disable_tma_lower: bool = _option(
        False, SWITCH, _THREAD_SPEED, _K.TL_DISABLE_TMA_LOWER,
        doc="Copy without the Tensor Memory Accelerator; upstream prefers `disable_tma=` of a copy."
    )
    disable_wgmma: bool = _option(
        False, SWITCH, _THREAD_SPEED, _K.TL_DISABLE_WGMMA,
        doc="Multiply with mma where wgmma would serve."
    )
    enable_async_copy: bool = _option(
        True, SWITCH, _THREAD_SPEED, _K.TL_ENABLE_ASYNC_COPY,
        doc="Use cp.async for copies into shared memory inside pipelined loops."
    )
    disable_shared_memory_reuse: bool = _option(
        False, SWITCH, _THREAD_SPEED, _K.TL_DISABLE_SHARED_MEMORY_REUSE,
        doc="Give each shared buffer bytes of its own, even when lifetimes do not overlap."
    )
    without: tuple[str, ...] = _option(
        (), NAMES, _THREAD_SPEED, "TILEWRIGHT_WITHOUT",
        doc="Leave these optimisations out (docs/cuda.md has those for GPUs, docs/ascend.md one)."
    )

    enable_fast_math: bool = _option(
        False, SWITCH, _DEVICE_RESULTS, _K.TL_ENABLE_FAST_MATH,
        doc="Approximate division, square root and transcendentals; subnormals become zero."
    )
    device_compile_flags: tuple[str, ...] = _option(
        (), FLAGS, _DEVICE_RESULTS, _K.TL_DEVICE_COMPILE_FLAGS,
        doc="Further arguments of the device compiler."
    )
    ptxas_register_usage_level: int | None = _option(
        None, USAGE, _DEVICE_SPEED, _K.TL_PTXAS_REGISTER_USAGE_LEVEL,
        doc="How far the assembler goes for fewer registers."
    )

    enable_auto_schedule: bool = _option(
        True, SWITCH, _CORES_RESULTS, _K.TL_ENABLE_AUTO_SCHEDULE,
        doc="Split a mainline Ascend kernel over the cores, and order its pipes and cores."
    )
    ascend_auto_sync: bool = _option(
        False, SWITCH, _CORES_RESULTS, _K.TL_ASCEND_AUTO_SYNC,
        doc="Order the pipes of an Ascend core by flags; without it the kernel's own are all."
    )
    ascend_memory_planning: bool = _option(
        False, SWITCH, _CORES_SPEED, _K.TL_ASCEND_MEMORY_PLANNING,
        doc="Let buffers on an Ascend core share bytes when their lifetimes do not overlap."
    )
    ascend_auto_cv_combine: bool = _option(
        False, SWITCH, _CORES_RESULTS, _K.TL_ASCEND_AUTO_CV_COMBINE,
        doc="Split statements outside T.Scope over cube and vector cores; without it, refuse both."
    )
    ascend_auto_cross_core_sync: bool = _option(
        False, SWITCH, _CORES_RESULTS, _K.TL_ASCEND_AUTO_CV_SYNC,
        doc="Order cube and vector cores by flags; without it the kernel's own are all."
    )

    auto_tuning_disable_cache: bool = _option(
        False, SWITCH, _TUNE, "TILELANG_AUTO_TUNING_DISABLE_CACHE",
        doc="Neither read nor write tuning results on disk."
    )
    auto_tuning_cpu_utilities: float = _option(
        0.9, SHARE, _TUNE, "TILELANG_AUTO_TUNING_CPU_UTILITIES",
        doc="The share of the processors that compile candidates."
    )
    auto_tuning_cpu_counts: int = _option(
        -1, PROCESSORS, _TUNE, "TILELANG_AUTO_TUNING_CPU_COUNTS",
        doc="How many processors compile candidates; -1 for the share above."
    )
    auto_tuning_max_cpu_count: int = _option(
        -1, PROCESSORS, _TUNE, "TILELANG_AUTO_TUNING_MAX_CPU_COUNT",
        doc="At most so many processors compile candidates; -1 for no limit."
    )
# fmt: on


# ---- Settings without an effect here, and why ----------------------------------------------------

_HINT = "a tuning hint of upstream's code generator"
_LOG = "a log of upstream's passes; TILEWRIGHT_TRACE shows ours"
_TVM = "a switch of TVM's passes, which are not used"
_SUBKEY = "it belongs inside the dict of `tl.Simplify`"
_SOURCES = "generated code includes no library that a path could point to"
_NATIVE = "there is no native library and no TVM to find"
_DRAWN = "layouts are not drawn in this version"
_NO_FILES = "compiling leaves no temporary files"
_OUR_TRACE = "use TILEWRIGHT_TRACE and TILEWRIGHT_TRACE_DIR"

_UNUSED: dict[str, tuple[Kind, str]] = {
    _K.TL_SIMPLIFY: (SIMPLIFY, "the simplifier has no such switches"),
    **dict.fromkeys(_SIMPLIFY_KEYS, (SWITCH, _SUBKEY)),
    _K.TL_DISABLE_PRELOWER_SEMANTIC_CHECK: (SWITCH, "what is wrong for every input is refused"),
    _K.TL_ENABLE_AUTO_WARP_SPECIALIZATION: (TEXT, _HINT),
    _K.TL_EMIT_LINE_DIRECTIVES: (SWITCH, "generated code always names the author's lines"),
    _K.TL_CONFIG_INDEX_BITWIDTH: (BITS, "an index has 64 bits where its tensor needs them"),
    _K.TL_DISABLE_VECTORIZE_256: (SWITCH, "no access of a thread is wider than 128 bits"),
    _K.TL_LAYOUT_VISUALIZATION_ENABLE: (SWITCH, _DRAWN),
    _K.TL_LAYOUT_VISUALIZATION_FORMATS: (FORMATS, _DRAWN),
    _K.TL_ENABLE_REDUCER_PLAN_VERBOSE: (SWITCH, _LOG),
    _K.TL_LAYOUT_COST_MODEL: (COST_MODEL, _HINT),
    _K.TL_REDUCER_FORCE_BASELINE: (SWITCH, _HINT),
    _K.TL_ENABLE_FP32X2_REDUCTION: (SWITCH, _HINT),
    _K.TL_ENABLE_LOWER_LDGSTG: (SWITCH, _HINT),
    _K.TL_ENABLE_LOWER_LDGSTG_PREDICATED: (SWITCH, _HINT),
    _K.TL_ENABLE_VECTORIZE_PLANNER_VERBOSE: (SWITCH, _LOG),
    _K.TL_DEBUG_MERGE_SHARED_MEMORY_ALLOCATIONS: (SWITCH, _LOG),
    _K.TL_ENABLE_AGGRESSIVE_SHARED_MEMORY_MERGE: (SWITCH, "every pair that can share bytes does"),
    _K.TL_DISABLE_SHUFFLE_ELECT: (SWITCH, _HINT),
    _K.TL_DISABLE_LOOP_UNSWITCHING: (SWITCH, _HINT),
    _K.TL_LOOP_UNSWITCHING_ALLOW_NON_TRIVIAL_ELSE: (SWITCH, _HINT),
    _K.TL_IF_STMT_BINDING_INLINE_REPLAYABLE_BINDS: (SWITCH, _HINT),
    _K.TL_FORCE_LET_INLINE: (SWITCH, _HINT),
    _K.TL_AST_PRINT_ENABLE: (SWITCH, _LOG),
    _K.TL_STORAGE_REWRITE_DETECT_INPLACE: (SWITCH, _HINT),
    _K.TIR_ENABLE_EQUIV_TERMS_IN_CSE: (SWITCH, _TVM),
    _K.TIR_DISABLE_CSE: (SWITCH, _TVM),
    _K.TIR_SIMPLIFY: (ANYTHING, _TVM),
    _K.TIR_DISABLE_STORAGE_REWRITE: (SWITCH, _TVM),
    _K.TIR_DISABLE_VECTORIZE: (SWITCH, _TVM),
    _K.TIR_USE_ASYNC_COPY: (SWITCH, _TVM),
    _K.TIR_ENABLE_DEBUG: (SWITCH, _TVM),
    _K.TIR_MERGE_STATIC_SMEM: (SWITCH, _TVM),
    _K.TIR_ADD_LOWER_PASS: (NOTHING, "passes over TVM's IR cannot run on this one"),
    _K.TIR_NOALIAS: (SWITCH, "distinct storage is checked at launch and used when proved"),
    "TILELANG_EXECUTION_BACKEND": (BACKEND, "each target has one launcher"),
    "TILELANG_COMPILE_TIMEOUT_SECONDS": (SECONDS, "no compiler runs that could be stopped"),
    "TILELANG_CLEANUP_TEMP_FILES": (SWITCH, _NO_FILES),
    "TILELANG_TMP_DIR": (ANYTHING, _NO_FILES),
    "TILELANG_ENABLE_IR_SPAN": (SWITCH, "every node keeps its place in the source"),
    "TILELANG_ENABLE_DATA_RACE_CHECK": (SWITCH, "a proved race is always reported"),
    "TILELANG_KERNEL_CACHE_USE_LIB_STAMP": (SWITCH, "the cache's key holds the version"),
    "TILELANG_LAYOUT_COST_MODEL": (COST_MODEL, _HINT),
    "TILELANG_JIT_DIAGNOSTICS": (ANYTHING, _OUR_TRACE),
    "TILELANG_PASS_DIFF": (ANYTHING, _OUR_TRACE),
    "TILELANG_PASS_DIFF_OUTPUT": (ANYTHING, _OUR_TRACE),
    "TL_LOWER_TRACE": (ANYTHING, _OUR_TRACE),
    "TL_LOWER_TRACE_DIR": (ANYTHING, _OUR_TRACE),
    "TILELANG_HIP_SAVE_TEMP_FILES": (ANYTHING, "there is no HIP target"),
    "TL_CUTLASS_PATH": (ANYTHING, _SOURCES),
    "TL_TEMPLATE_PATH": (ANYTHING, _SOURCES),
    "TVM_IMPORT_PYTHON_PATH": (ANYTHING, _NATIVE),
    "TVM_LIBRARY_PATH": (ANYTHING, _NATIVE),
    "SKIP_LOADING_TILELANG_SO": (ANYTHING, _NATIVE),
}


# ---- The table, and reading from it --------------------------------------------------------------


# The whole table: the fields of `Options` in order, then the settings without an effect.
ROWS: tuple[Row, ...] = (
    *(Row(f.name, *f.metadata["row"]) for f in fields(Options)),
    *(
        Row(None, *_split([name]), kind, None, None, Effect.NONE, reason)
        for name, (kind, reason) in _UNUSED.items()
    ),
)
_BY_KEY = {row.key.value: row for row in ROWS if row.key is not None}
_BY_VARIABLE = {row.env: row for row in ROWS if row.env is not None}


def _near(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    return "did you mean " + " or ".join(close) + "?" if close else "see docs/options.md"


def _key_row(key: object) -> Row:
    name = key.value if isinstance(key, PassConfigKey) else key
    if not isinstance(name, str):
        raise error(
            "option",
            "a key of pass_configs is neither a PassConfigKey nor a string",
            cls=TileTypeError,
            expected="PassConfigKey or str",
            got=f"{key!r} ({type(key).__name__})",
        )
    if name not in _BY_KEY:
        raise error(
            "option",
            f"unknown key {name!r} in pass_configs",
            expected="a member of PassConfigKey, or its string",
            got=repr(name),
            help=_near(name, _BY_KEY),
        )
    row = _BY_KEY[name]
    if row.key in _SIMPLIFY_KEYS:
        raise error(
            "option",
            f"{name!r} is not a key of pass_configs itself",
            expected="a key of the dict under `tl.Simplify`",
            got="a key beside it",
            help=f'write {{"tl.Simplify": {{"{name}": ...}}}}',
        )
    return row


def _from_value(row: Row, value: object) -> Any:
    try:
        return row.kind.accept(value)
    except (TypeError, ValueError) as fault:
        raise error(
            "option",
            f"{row.title} in pass_configs has a value that it cannot take",
            cls=TileTypeError if isinstance(fault, TypeError) else None,
            expected=row.kind.expected,
            got=f"{value!r} ({type(value).__name__})",
            help=row.doc if row.effect is Effect.NONE else "",
        ) from None


def _from_text(row: Row, text: str) -> Any:
    try:
        return row.kind.parse(text)
    except (TypeError, ValueError):
        raise error(
            "option",
            f"the environment variable {row.env} has a value that it cannot take",
            expected=row.kind.expected,
            got=repr(text),
            help=f"correct it, or unset {row.env}",
        ) from None


def _given(env: Mapping[str, str]) -> list[tuple[Row, str]]:
    """The rows whose variable is set; an empty text counts as not set."""
    return [(row, env[name]) for name, row in _BY_VARIABLE.items() if env.get(name)]


def _unknown_variables(env: Mapping[str, str], prefix: str) -> list[str]:
    return sorted(name for name in env if name.startswith(prefix) and name not in _BY_VARIABLE)


def options_from(
    pass_configs: Mapping[Any, Any] | None = None, env: Mapping[str, str] | None = None
) -> Options:
    """The options that `pass_configs` and an environment (such as `os.environ`) ask for.

    A key wins over its variable, and a variable over the default. Raises TileValueError (a
    ValueError) for an unknown key, an unknown variable that starts with TILEWRIGHT_, or an illegal
    value, and TileTypeError (a TypeError) for a key or value of the wrong type.
    """
    for name in _unknown_variables(env or {}, "TILEWRIGHT_"):
        raise error(
            "option",
            f"unknown environment variable {name}",
            expected="a variable of docs/options.md",
            got=name,
            help=_near(name, _BY_VARIABLE),
        )
    values: dict[str, Any] = {}
    for row, text in _given(env or {}):
        value = _from_text(row, text)
        if row.name is not None:
            values[row.name] = value
    for key, given in (pass_configs or {}).items():
        row = _key_row(key)
        value = _from_value(row, given)
        if row.name is not None:
            values[row.name] = value
    return Options(**values)


def ineffective(
    pass_configs: Mapping[Any, Any] | None = None,
    env: Mapping[str, str] | None = None,
    parts: Collection[Part] = BUILT,
) -> list[str]:
    """One line for each setting given that changes nothing, with the reason.

    `parts` are the parts of the compiler that the target at hand goes through. Raises as
    `options_from` does for a key that is unknown.
    """
    given = [_key_row(key) for key in pass_configs or {}]
    given += [row for row, _ in _given(env or {})]
    lines = [
        f"{row.title} has no effect: {reason}"
        for row in given
        if (reason := _why_ineffective(row, parts)) is not None
    ]
    unknown = _unknown_variables(env or {}, "TILELANG_")
    return lines + [f"{name} has no effect: no such variable is known" for name in unknown]


def _why_ineffective(row: Row, parts: Collection[Part]) -> str | None:
    if row.part is None:
        return row.doc
    if row.part not in BUILT:
        return f"{row.part.value} does not read it in this version"
    if row.part not in parts:
        return f"this target does not go through {row.part.value}"
    return None
