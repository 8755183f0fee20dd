"""A program of the thread stage as one CUDA C++ source and a Python function for its host level.

What enters: a planned program and the chip. What leaves: `Built`: the texts, what each kernel needs
at launch, and what the numbers in them mean. Kernels are `extern "C"`; their parameters are those
of `ir.thread.Kernel` in order, and after them, where a kernel has assertions, the record in which
it tells the host what failed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilelang.dtypes import DType
from tilelang.errors import InternalError
from tilelang.ir.expr import Var
from tilelang.ir.interval import Interval
from tilelang.ir.thread import Array, Instr, Kernel, Program, TensorMap
from tilelang.ir.tile import DEVICE_SOURCE, ExternCall
from tilelang.isa.instr import Rows
from tilelang.isa.target import Target
from tilelang.targets.cuda.conversions import Conversions
from tilelang.targets.cuda.expressions import Expressions
from tilelang.targets.cuda.extern import device_code, headers
from tilelang.targets.cuda.host import Host, HostWriter
from tilelang.targets.cuda.places import Place
from tilelang.targets.cuda.prelude import prelude
from tilelang.targets.cuda.rows import ROWS, missing
from tilelang.targets.cuda.statements import (
    Failure,
    Names,
    Notes,
    Statements,
    arrays_written,
    facts_of,
    statements_of,
)
from tilelang.targets.cuda.text import Code, Line, identifier, rendered
from tilelang.targets.cuda.types import memory_type, value_type

_DIMS = "xyz"


@dataclass(frozen=True)
class KernelFacts:
    """One kernel as launch needs it.

    `params` are None for an address, a dtype for a scalar, "map" for a tensor map. `block` and
    `cluster` are threads and blocks per axis; `shared` the bytes of dynamic shared memory.
    `reports` says that the record's address follows the parameters; `waits` that a failure there is
    a trap. `cooperative` asks that all blocks be resident, `overlaps` that the kernel may begin
    before the one in front has ended (programmatic dependent launch).
    """

    name: str
    symbol: str
    params: tuple[DType | str | None, ...]
    block: tuple[int, ...]
    cluster: tuple[int, ...]
    shared: int
    reports: bool = False
    waits: bool = False
    cooperative: bool = False
    overlaps: bool = False


@dataclass(frozen=True)
class Built:
    """A program in CUDA C++.

    `text` has `#line` directives, `plain` none. `host` is the Python function of the host level.
    `failures[n - 1]` is what failure `n` says. `slots` are the parameters and sizes in the order of
    the host function's arguments, with the dtype of a scalar and None for an address.
    """

    name: str
    text: str
    plain: str
    host: Host
    kernels: tuple[KernelFacts, ...]
    failures: tuple[Failure, ...]
    slots: tuple[tuple[str, DType | None], ...]
    target: Target

    @property
    def prints(self) -> bool:
        """Whether a kernel prints."""
        return "  printf(" in self.plain

    @property
    def arch(self) -> str:
        """The architecture that its cubin is for."""
        if self.target.chip is None:
            raise InternalError("a CUDA program for no chip")
        return self.target.chip.name


def emit(program: Program, target: Target, rows: Rows = ROWS) -> Built:
    """The sources of a program for the chip of `target`.

    InternalError where the chip has not an instruction: a lowering for it would not choose that.
    """
    return _Emitter(program, target, rows).built()


class _Emitter:
    """One program."""

    def __init__(self, program: Program, target: Target, rows: Rows) -> None:
        self.program = program
        self.target = target
        self.rows = rows
        self.notes = Notes()
        self.used: set[str] = set()
        self.names = Names()
        self.kernels: list[KernelFacts] = []
        self.lines: list[Line] = []

    def built(self) -> Built:
        """All of it."""
        program = self.program
        host = HostWriter(program, self.notes, self.kernel).host
        sources = dict(program.attrs).get(DEVICE_SOURCE, ())
        head = headers(sources) + prelude(self.used) + device_code(sources)
        return Built(
            program.name,
            self._source(head, directives=True),
            self._source(head, directives=False),
            host,
            tuple(self.kernels),
            tuple(self.notes.failures),
            (
                *((p.name, p.var.type if p.var is not None else None) for p in program.params),
                *((v.name, v.type) for v in program.dynamic),
            ),
            self.target,
        )

    def _source(self, head: str, *, directives: bool) -> str:
        return head + "\n".join(rendered(self.lines, directives=directives)) + "\n"

    def name(self, name: str) -> str:
        """The C++ name of a name of the program."""
        return self.names.of(name, identifier(name))

    def kernel(self, kernel: Kernel) -> int:
        """Emit one kernel; its number."""
        for stmt in (s for s in statements_of(kernel.body) if isinstance(s, Instr)):
            reason = missing(stmt.row, self.target)
            if reason:
                raise InternalError(f"{kernel.name}: {reason}")
        for stmt in (s for s in statements_of(kernel.body) if isinstance(s, ExternCall)):
            self.names.of(f"extern {stmt.fn}", stmt.fn)  # no other thing may take its name
        code = Code(loc=kernel.loc)
        facts = facts_of(kernel.body, self.rows)
        x = Expressions(code, Conversions(self.target, self.used))
        symbol = self.names.of(f"kernel {len(self.kernels)}", identifier(kernel.name))
        head = self._parameters(kernel, x)
        self._indices(kernel, x, code)
        if kernel.shared:
            code.add("extern __shared__ __align__(1024) u8 tl_shared[];")
            self.used.add("smem")
            code.add("const u32 tl_pool = tl::smem(tl_shared);")
        before = "fail" in self.used
        self.used.discard("fail")
        Statements(x, self.name, self.notes, facts).body(kernel.body)
        reports = "fail" in self.used
        if before:
            self.used.add("fail")
        if reports:
            head.append("tl::Record* tl_record")
        self._function(kernel, symbol, head, code)
        attrs = dict(kernel.attrs)
        self.kernels.append(
            KernelFacts(
                kernel.name,
                symbol,
                tuple(_kind(p) for p in kernel.params),
                kernel.block,
                kernel.cluster,
                kernel.shared,
                reports=reports,
                waits=facts.waits,
                cooperative=bool(attrs.get("cooperative")),
                overlaps=bool(attrs.get("pdl")),
            )
        )
        return len(self.kernels) - 1

    def _parameters(self, kernel: Kernel, x: Expressions) -> list[str]:
        written = arrays_written(kernel.body)
        head: list[str] = []
        for p in kernel.params:
            name = self.name(p.name)
            match p:
                case Array():
                    const = "" if p.name in written else "const "
                    x.places[p.name] = Place(name, p)
                    head.append(f"{const}{memory_type(p.type)}* {name}")
                case Var():
                    x.vars[p.name] = name
                    head.append(f"{value_type(p.type)} {name}")
                case TensorMap():
                    self.used.add("TensorMap")
                    x.vars[p.name] = name
                    head.append(f"const __grid_constant__ tl::TensorMap {name}")
        return head

    def _indices(self, kernel: Kernel, x: Expressions, code: Code) -> None:
        for source, variables, extents in (
            ("blockIdx", kernel.vars, (None,) * 3),
            ("threadIdx", kernel.thread_vars, kernel.block),
        ):
            for axis, v in enumerate(variables):
                extent = extents[axis]
                x.ranges[v] = Interval(0, None if extent is None else extent - 1)
                name = x.vars[v.name] = self.name(v.name)
                kind = value_type(v.type)
                code.add(f"const {kind} {name} = {kind}({source}.{_DIMS[axis]});")

    def _function(self, kernel: Kernel, symbol: str, head: list[str], code: Code) -> None:
        threads = math.prod(kernel.block)
        bounds = f"{threads}, {kernel.min_blocks}" if kernel.min_blocks else f"{threads}, 1"
        cluster = ""
        if kernel.cluster and math.prod(kernel.cluster) > 1:
            sizes = (*kernel.cluster, 1, 1)[:3]
            cluster = f"__cluster_dims__({', '.join(map(str, sizes))}) "
        title = f'extern "C" __global__ void {cluster}__launch_bounds__({bounds}) {symbol}('
        self.lines.append(Line("", 0, None))
        self.lines.append(Line(f"{title}{', '.join(head)}) {{", 0, kernel.loc))
        self.lines += code.lines
        self.lines.append(Line("}", 0, None))


def _kind(p: Array | Var | TensorMap) -> DType | str | None:
    if isinstance(p, TensorMap):
        return "map"
    return p.type if isinstance(p, Var) else None
