"""The Ascend adapter's cores and order: `T.Scope`, flags, cross-core flags, barriers.

What enters: the author's calls in a kernel of the adapter dialect (tilelang-ascend 0.1.2, reference
`ascend.md` A2). What leaves: statements of `ir/ascend.py`. The limits of ids are facts of the chip,
so the checks of a target judge them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from tilelang.errors import TileError, TileValueError, error
from tilelang.ir import ascend, build
from tilelang.ir.ascend import Core, Pipe
from tilelang.ir.build import Builder
from tilelang.ir.expr import Expr
from tilelang.language.arguments import choice, integer, known, launched, number
from tilelang.language.buffers import BufferRef, here
from tilelang.language.launch import VECTORS
from tilelang.language.values import FLOAT32
from tilelang.scopes import Dialect

CROSS_MODES = (0, 1, 2)
"""Among all cores of a kind; among the vector cores of a group; between cube and vector cores."""


def _refuse(kind: str, message: str, **facts: Any) -> TileError:
    return error(kind, message, here(), cls=TileValueError, **facts)


def adapter_builder(what: str) -> Builder:
    """The builder of a kernel that `T.Kernel(..., is_npu=True)` launches."""
    builder = launched(what)
    if builder.dialect != Dialect.ADAPTER.value:
        raise _refuse(
            "scope",
            f"{what} belongs to the {Dialect.ADAPTER.about.title}, the kernel is in the"
            f" {Dialect(builder.dialect).about.title}",
            help="launch it with `T.Kernel(n, is_npu=True) as (cid, vid)`",
        )
    return builder


# Cores -------------------------------------------------------------------------------------------


class ScopeFrame:
    """`with T.Scope("C"):` - the body runs on the cube core only; "V": on the vector cores."""

    def __init__(self, core: Core) -> None:
        self._builder = adapter_builder("T.Scope")
        self._core = core
        self._loc = here()

    def __enter__(self) -> None:
        self._builder.open()

    def __exit__(self, exc_type: object, *_: object) -> None:
        if exc_type is not None:
            return  # the trace is lost
        body = self._builder.close()
        self._builder.emit(ascend.CoreRegion(self._core, body, subs=VECTORS, loc=self._loc))


def Scope(name: str) -> ScopeFrame:
    """Run the body on the cube core ("C") or the vector cores ("V"); ValueError for other names."""
    return ScopeFrame(Core(choice(name, "the core of T.Scope", [c.value for c in Core])))


# Order -------------------------------------------------------------------------------------------


def pipe_of(name: Any, what: str, *, every: bool = False) -> Pipe:
    """The pipe of a name in any case; `every` allows "all". ValueError for another name."""
    known_pipes = [p.value for p in Pipe if every or p is not Pipe.ALL]
    word = name.upper() if isinstance(name, str) else name
    return Pipe(choice(word, f"a pipe of {what}", known_pipes))


def _flag(src: Any, dst: Any, event: Any, what: str) -> tuple[Pipe, Pipe, Expr]:
    pair = pipe_of(src, what), pipe_of(dst, what)
    if pair[0] is pair[1]:
        raise _refuse(
            "value",
            f"{what} from pipe {pair[0].value} to itself",
            expected="two different pipes",
            got=f"{pair[0].value}, {pair[1].value}",
            help=f'work of one pipe is ordered by `T.pipe_barrier("{pair[0].value.lower()}")`',
        )
    return (*pair, integer(event, f"the event of {what}"))


def set_flag(src: Any, dst: Any, eventId: Any) -> None:
    """Raise event `eventId` (0 to 7) of the pipes `src` and `dst` when the work that `src` has is
    done. Pipes are "fix", "mte1", "mte2", "mte3", "m", "v", "s".
    """
    builder = adapter_builder("T.set_flag")
    builder.emit(ascend.SetFlag(*_flag(src, dst, eventId, "T.set_flag"), loc=here()))


def wait_flag(src: Any, dst: Any, eventId: Any) -> None:
    """Hold up pipe `dst` until event `eventId` of `src` and `dst` is raised, and take it down."""
    builder = adapter_builder("T.wait_flag")
    builder.emit(ascend.WaitFlag(*_flag(src, dst, eventId, "T.wait_flag"), loc=here()))


def _flags(fmap: Any, what: str) -> list[tuple[str, str, int]]:
    if not isinstance(fmap, Mapping):
        raise _refuse("option", f"the flags of {what}", expected="{src: {dst: [ids]}}")
    pairs = cast("Mapping[str, Mapping[str, Sequence[int]]]", fmap)
    return [(s, d, i) for s, inner in pairs.items() for d, ids in inner.items() for i in ids]


def init_flag(fmap: Any) -> None:
    """`set_flag` of each event of `{src: {dst: [ids]}}`."""
    for src, dst, event in _flags(fmap, "T.init_flag"):
        set_flag(src, dst, event)


def clear_flag(fmap: Any) -> None:
    """`wait_flag` of each event of `{src: {dst: [ids]}}`."""
    for src, dst, event in _flags(fmap, "T.clear_flag"):
        wait_flag(src, dst, event)


def barrier_all() -> None:
    """Work of any pipe of this core that comes later starts when all work so far is done."""
    adapter_builder("T.barrier_all").emit(ascend.PipeBarrier(Pipe.ALL, loc=here()))


def pipe_barrier(pipe: Any) -> None:
    """Later work of one pipe starts when its work so far is done."""
    builder = adapter_builder("T.pipe_barrier")
    builder.emit(ascend.PipeBarrier(pipe_of(pipe, "T.pipe_barrier", every=True), loc=here()))


def set_cross_flag(pipe: Any, flag: Any, mode: Any = 2) -> None:
    """Raise cross-core flag `flag` (0 to 15) when the work that `pipe` has is done.

    Mode 0 is among all cube or all vector cores, 1 among the vector cores of a group, 2 between the
    cube core and the vector cores of a group.
    """
    builder = adapter_builder("T.set_cross_flag")
    how = known(mode, "the mode of T.set_cross_flag", CROSS_MODES[0], CROSS_MODES[-1])
    at = pipe_of(pipe, "T.set_cross_flag")
    builder.emit(
        ascend.CrossSet(how, at, integer(flag, "the flag of T.set_cross_flag"), loc=here())
    )


def wait_cross_flag(flag: Any, pipe: Any = "") -> None:
    """Hold up this core until cross-core flag `flag` is raised, and take it down by one.

    `pipe`, the pipe to hold up alone, has a meaning on the 950 only; elsewhere the whole core
    waits, in the adapter tree as well.
    """
    builder = adapter_builder("T.wait_cross_flag")
    if pipe != "":
        pipe_of(pipe, "T.wait_cross_flag")
    number_ = integer(flag, "the flag of T.wait_cross_flag")
    builder.emit(ascend.CrossWait(number_, loc=here()))


def sync_all() -> None:
    """All cores of the launch, of the kind of the scope around, wait for each other."""
    adapter_builder("T.sync_all").emit(ascend.SyncAll(loc=here()))


# Memory ------------------------------------------------------------------------------------------


def annotate_address(address_map: Any) -> None:
    """`{buffer: byte address}`: where buffers lie in their memories. Addresses are integers that
    are known when the kernel is compiled.
    """
    builder = adapter_builder("T.annotate_address")
    if not isinstance(address_map, Mapping):
        raise _refuse("option", "T.annotate_address", expected="{buffer: byte address}")
    buffers: list[Any] = []
    values: list[int] = []
    for key, address in cast("Mapping[Any, Any]", address_map).items():
        if not isinstance(key, BufferRef) or key.buffer.scope == "global":
            raise _refuse("scope", "a key of T.annotate_address", expected="a buffer on chip")
        buffers.append(key.buffer)
        values.append(known(address, f"the address of {key.name}", 0, 1 << 30))
    builder.annotate("address", buffers=tuple(buffers), values=tuple(values))


def func_attr(attrs: Any) -> None:
    """`{"enable_auto_sync": True}`: the pass config tl.ascend_auto_sync, for this kernel."""
    builder = build.current("T.func_attr")
    given: dict[str, Any] = {}
    if isinstance(attrs, Mapping):
        given = {str(k): v for k, v in cast("Mapping[Any, Any]", attrs).items()}
    if set(given) != {"enable_auto_sync"} or not isinstance(given["enable_auto_sync"], bool):
        raise _refuse(
            "option",
            "T.func_attr",
            expected='{"enable_auto_sync": True}, or False',
            got=", ".join(given) or type(cast("object", attrs)).__name__,
            help="other settings are given as `pass_configs`",
        )
    known_configs = dict(builder.eager.settings.get("pass_configs", ()))
    known_configs["tl.ascend_auto_sync"] = given["enable_auto_sync"]
    builder.eager.settings["pass_configs"] = tuple(sorted(known_configs.items()))


def set_deq_scale(scale: Any) -> None:
    """The factor, rounded to float16, by which conversions of int32 to float16 in UB multiply."""
    builder = adapter_builder("T.set_deq_scale")
    value = number(scale, "the factor of T.set_deq_scale", FLOAT32)
    builder.emit(ascend.SetMode("deq_scale", value, loc=here()))
