"""The typed face of llvmlite: this machine, IR text to machine code, and code that can be called.

What enters: a module of LLVM IR as text. What leaves: an object file (bytes) or assembly for the
host's features, and `Library`, loaded code whose functions have addresses. llvmlite has no type
information, so no other file imports it; it is loaded when something is first compiled.
"""

from __future__ import annotations

import ctypes
import functools
import os
from dataclasses import dataclass
from typing import Any

from tilelang.errors import InternalError
from tilelang.targets.cpu.symbols import undefined


@dataclass(frozen=True)
class Host:
    """The processor that code is made for: LLVM's names, and the facts that generators ask for.

    `vector_bits` is the width of the widest vector register that is worth using, `registers` how
    many of them there are. `l1` and `l2` are bytes of the data caches of one core.
    """

    triple: str
    cpu: str
    features: str
    vector_bits: int
    registers: int
    l1: int = 32 << 10
    l2: int = 512 << 10

    def has(self, feature: str) -> bool:
        """Whether the processor has a feature, by LLVM's name (`fma`, `f16c`, `avx512f`...)."""
        return f"+{feature}" in self.features.split(",")

    def lanes(self, bits: int) -> int:
        """How many elements of `bits` one vector register holds."""
        return max(1, self.vector_bits // bits)


@functools.cache
def _binding() -> Any:
    import llvmlite.binding as llvm  # pyright: ignore[reportMissingTypeStubs]  # 30 ms: only who compiles pays

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    # A fork while another thread is inside LLVM waits for it: the child would wait for ever.
    lock: Any = llvm.ffi.lib._lock  # pyright: ignore[reportPrivateUsage]  # no other name
    os.register_at_fork(
        before=lock.__enter__, after_in_parent=lock.__exit__, after_in_child=lock.__exit__
    )
    return llvm


@functools.cache
def host() -> Host:
    """This machine. Without a known vector extension, 128-bit vectors and 16 registers."""
    llvm = _binding()
    found = llvm.get_host_cpu_features()
    features = ",".join(("+" if on else "-") + name for name, on in sorted(found.items()))
    bits, registers = 128, 32 if found.get("neon") else 16
    if found.get("avx512f") and found.get("avx512vl"):
        bits, registers = 512, 32
    elif found.get("avx"):
        bits = 256
    return Host(
        triple=llvm.get_process_triple(),
        cpu=llvm.get_host_cpu_name(),
        features=features,
        vector_bits=bits,
        registers=registers,
    )


def version() -> str:
    """llvmlite and LLVM."""
    import llvmlite  # pyright: ignore[reportMissingTypeStubs]  # as above

    return (
        f"llvmlite {llvmlite.__version__}, LLVM {'.'.join(map(str, _binding().llvm_version_info))}"
    )


def machine() -> list[str]:
    """All that code depends on besides its module, for keys of caches."""
    at = host()
    return [at.triple, at.cpu, at.features, version()]


@dataclass(frozen=True)
class Machine:
    """A parsed and optimised module, ready to be turned into code."""

    _module: Any
    _machine: Any

    @property
    def text(self) -> str:
        """The optimised IR."""
        return str(self._module)

    def object(self) -> bytes:
        """An object file of the host's format."""
        return self._machine.emit_object(self._module)

    def assembly(self) -> str:
        """The host's assembly."""
        return self._machine.emit_assembly(self._module)


def optimise(text: str, *, vectorise: bool = False) -> Machine:
    """Parse, verify and optimise a module for the host; `vectorise` loops that are not yet.

    InternalError with LLVM's message and the line for a module that breaks its rules.
    """
    llvm = _binding()
    at = host()
    try:
        # A context of its own: the types and constants of a module stay in its context for ever.
        module = llvm.parse_assembly(text, llvm.create_context())
        module.triple = at.triple
        module.verify()
    except RuntimeError as e:
        raise InternalError(f"LLVM refuses the module: {e}") from None
    machine = llvm.Target.from_triple(at.triple).create_target_machine(
        cpu=at.cpu, features=at.features, opt=2, reloc="pic", codemodel="jitdefault"
    )
    module.data_layout = str(machine.target_data)
    tuning = llvm.create_pipeline_tuning_options(speed_level=2)
    tuning.loop_vectorization = tuning.slp_vectorization = vectorise
    tuning.loop_interleaving = tuning.loop_unrolling = vectorise
    builder = llvm.create_pass_builder(machine, tuning)
    passes = builder.getModulePassManager()
    passes.run(module, builder)
    # llvmlite 0.44 to 0.50 leave 70 KiB behind: their class that should free it inherits, first, a
    # method of the same name that does nothing. Detached, it is not freed again by one that does.
    llvm.newpassmanagers.NewPassManager._dispose(passes)
    passes.detach()
    return Machine(module, machine)


@functools.cache
def _process() -> ctypes.CDLL:
    """What this process has loaded: libc and libm among it."""
    return ctypes.CDLL(None)


class Library:
    """Code in memory. It stays until the object is gone, so whoever calls a function keeps it.

    An engine for each: LLJIT keeps something of every library for ever, MCJIT frees all of it.
    """

    def __init__(self, code: bytes) -> None:
        llvm = _binding()
        missing = [n for n in undefined(code) if not hasattr(_process(), n)]
        if missing:  # MCJIT would end the process
            raise InternalError(f"the code calls {', '.join(missing)}, which nothing defines")
        machine = llvm.Target.from_triple(host().triple).create_target_machine()
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        try:
            self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
            self._engine.finalize_object()
        except RuntimeError as e:
            raise InternalError(f"the code cannot be loaded: {e}") from None

    def address(self, name: str) -> int:
        """Where the function begins. InternalError for a name that the code does not have."""
        found = int(self._engine.get_function_address(name))
        if not found:
            raise InternalError(f"the code has no function {name}")
        return found
