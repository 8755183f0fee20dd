"""The modules of TileLang that programs import and that have no folder here: one table.

A module of the table holds what exists, and refuses the rest by name when it is used. The finder
gives these modules to Python's import, after every real one; `tvm` is among them where TVM is not
installed, with DataType and the expressions of `tirx`.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tilelang.compat import adapter, devices, lowering, sparse, tirx
from tilelang.dtypes import DType
from tilelang.errors import TileNameError, error
from tilelang.language import adapter_ops, mma_emitter, tcgen05_emitter
from tilelang.language.buffers import RegionRef
from tilelang.language.later import Later
from tilelang.language.tileops import GemmWarpPolicy, region_of
from tilelang.options import PassConfigKey
from tilelang.tune import Ascend, MatmulTemplate

if TYPE_CHECKING:
    from importlib.abc import Loader
else:  # importlib.abc brings importlib.resources, a tenth of the cost of `import tilelang`
    Loader = object


def to_buffer_region(x: Any) -> RegionRef:
    """A buffer, a slice or an element as a slice."""
    return RegionRef(region_of(x, "the operand of to_buffer_region"))


def simplify_prim_func(func: Any) -> Any:
    """The function itself: every kernel is simplified when it is compiled."""
    return func


_NVCC = {
    "get_target_compute_version": devices.get_target_compute_version,
    "parse_compute_version": devices.parse_compute_version,
}

# What is real in a module; names given as text are modules.
REAL: dict[str, dict[str, Any]] = {
    "tilelang.backend.target": {"determine_target": devices.determine_target},
    "tilelang.cache": {"clear_cache": adapter.clear_cache},
    "tilelang.carver": {"MatmulTemplate": MatmulTemplate},
    "tilelang.carver.arch": {"Ascend": Ascend},
    "tilelang.carver.arch.ascend": {"Ascend": Ascend},
    "tilelang.carver.template": {"MatmulTemplate": MatmulTemplate},
    "tilelang.carver.arch.driver": {"get_num_sms": devices.get_num_sms},
    "tilelang.contrib.nvcc": _NVCC,
    "tilelang.cuda": {"language": "tilelang.language"},
    "tilelang.cuda.intrinsics": {"get_swizzle_layout": mma_emitter.get_swizzle_layout},
    "tilelang.cuda.intrinsics.layout.mma_layout": {
        "get_swizzle_layout": mma_emitter.get_swizzle_layout,
    },
    "tilelang.cuda.intrinsics.macro.mma_macro_generator": {
        "TensorCoreIntrinEmitter": mma_emitter.TensorCoreIntrinEmitter,
    },
    "tilelang.cuda.intrinsics.macro.tcgen05_macro_generator": {
        "TCGEN05DescriptorParams": tcgen05_emitter.TCGEN05DescriptorParams,
        "TensorCoreIntrinEmitter": tcgen05_emitter.TCGEN05TensorCoreIntrinEmitter,
    },
    "tilelang.cuda.intrinsics.sparse_layout": {
        "GROUP_CONFIG": sparse.GROUP_CONFIG,
        "get_e_factor": sparse.get_e_factor,
        "get_e_replicate_factor": sparse.get_e_replicate_factor,
    },
    "tilelang.engine": {"lower": lowering.lower},
    "tilelang.engine.lower": {"lower": lowering.lower},
    "tilelang.intrinsics": {
        "make_col_major_layout": adapter.make_col_major_layout,
        "make_nz_layout": adapter.make_nz_layout,
        "make_zn_layout": adapter.make_zn_layout,
    },
    "tilelang.language.reduce_ascend": {
        name: getattr(adapter_ops, name) for name in ("reduce_max", "reduce_min", "reduce_sum")
    },
    "tilelang.tileop.base": {"GemmWarpPolicy": GemmWarpPolicy},
    "tilelang.transform": {
        "PassConfigKey": PassConfigKey,
        "simplify_prim_func": simplify_prim_func,
    },
    "tilelang.utils.language": {"to_buffer_region": to_buffer_region},
    "tvm": {"DataType": DType},
    "tvm.tir": {name: getattr(tirx, name) for name in tirx.__all__},
    "tvm.tirx": {name: getattr(tirx, name) for name in tirx.__all__},
}

# What is declared and refused when it is used: a module, its names.
REFUSED = """
tilelang.carver: ElementwiseTemplate FlashAttentionTemplate GEMVTemplate
    GeneralReductionTemplate matmul_analysis
tilelang.carver.arch: CDNA CPU CUDA METAL RDNA auto_infer_current_arch get_arch
tilelang.carver.arch.driver: get_cuda_device_properties get_device_attribute get_device_name
    get_max_dynamic_shared_size_bytes get_persisting_l2_cache_max_size get_registers_per_block
    get_shared_memory_per_block
tilelang.carver.roller.rasterization: NoRasterization
tilelang.carver.template: ElementwiseTemplate FlashAttentionTemplate GEMVTemplate
    GeneralReductionTemplate
tilelang.contrib.nvcc: find_cuda_path get_cuda_version get_target_code_list have_fp8
tilelang.cuda.intrinsics: make_mma_swizzle_layout
tilelang.cuda.intrinsics.layout.mma_layout: make_mma_swizzle_layout
    shared_16x16_to_mma_32x8_layout_sr_a shared_16x16_to_mma_32x8_layout_sr_b
    shared_16x32_to_mma_32x16_layout_sr_a shared_16x32_to_mma_32x16_layout_sr_b
    shared_16x8_to_mma_32x4_layout_sr_a shared_16x8_to_mma_32x4_layout_sr_b
tilelang.cuda.intrinsics.layout.utils: get_mma_micro_size
tilelang.cuda.intrinsics.macro.mma_macro_generator: INT4TensorCoreIntrinEmitter
    TensorCoreIntrinEmitterWithLadderTransform
tilelang.engine.callback: register_c_postproc_callback register_cuda_postproc_callback
    register_hip_postproc_callback
tilelang.rocm.intrinsics.mfma_layout: shared_16x16_to_local_64x4_layout_A
    shared_16x32_to_local_64x8_layout_A shared_16x4_to_local_64x1_layout_A
    shared_16x64_to_local_64x16_layout_A
tilelang.rocm.intrinsics.utils: get_mma_micro_size
tilelang.rocm.target: target_is_gfx950
tilelang.rocm.intrinsics.mfma_macro_generator: MatrixCoreIntrinEmitter
    MatrixCorePreshuffleIntrinEmitter
tilelang.tools: Analyzer plot_layout
tilelang.tools.cuda.iket: event_table mark output_dir output_path payload range
    runtime_payloads_enabled session trace_files
tilelang.transform: PassContext
"""


def _refused() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for part in REFUSED.replace("\n    ", " ").split("\n"):
        module, _, names = part.partition(":")
        if module:
            found[module] = [str(n) for n in names.split()]
    return found


def _with_parents(names: Sequence[str]) -> set[str]:
    return {".".join(n.split(".")[:k]) for n in names for k in range(2 if "." in n else 1, 9)}


REFUSED_NAMES = _refused()
MODULES = _with_parents([*REAL, *REFUSED_NAMES])
_REASON = "is not built"


class DeclaredModule(ModuleType):
    """A module of the table; its other names are an error that says what it is."""

    def __getattr__(self, name: str) -> Any:
        if name in REFUSED_NAMES.get(self.__name__, ()):
            row = Later(name, "*args, **kwargs", _REASON)
            return row.function(self.__name__)
        if name.startswith("__"):
            raise AttributeError(name)
        if f"{self.__name__}.{name}" in MODULES:
            return importlib.import_module(f"{self.__name__}.{name}")
        raise error(
            "name",
            f"{self.__name__}.{name} {_why(self.__name__)}",
            cls=TileNameError,
            help="docs/declared.md lists what is here",
        )


def _why(module: str) -> str:
    if module.split(".")[0] == "tvm":
        return "is an object of TVM; of TVM only the DataType and some expressions are here"
    return "is a name of TileLang's own compiler, which is not part of Tilewright"


class Finder(Loader):
    """Gives the modules of the table to Python's import, where no other finder has them."""

    def find_spec(
        self, fullname: str, path: Any, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of a module of the table; ModuleNotFoundError for others of TileLang and TVM."""
        if fullname in MODULES:
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        root = fullname.split(".")[0]
        ours = root == "tilelang" or isinstance(sys.modules.get(root), DeclaredModule)
        if ours and "." in fullname and not fullname.rpartition(".")[2].startswith("_"):
            # Without `name=`: `from tvm import tirx` would swallow the message otherwise.
            raise ModuleNotFoundError(
                f"{fullname} {_why(fullname)}; docs/declared.md lists what is here"
            )
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """An empty module of the table."""
        return DeclaredModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Put what is real into the module."""
        for name, value in REAL.get(module.__name__, {}).items():
            found = importlib.import_module(value) if isinstance(value, str) else value
            if f"{module.__name__}.{name}" in MODULES and not isinstance(value, str):
                # The module of the same name, first: once imported it no longer takes the place.
                importlib.import_module(f"{module.__name__}.{name}")
            setattr(module, name, found)
            if isinstance(value, str):
                sys.modules[f"{module.__name__}.{name}"] = found


def install() -> None:
    """Add the finder to Python's import, last and once."""
    if not any(isinstance(f, Finder) for f in sys.meta_path):
        sys.meta_path.append(Finder())
