"""From a `target=` argument to a target that can run something here.

What enters: what a program says. What leaves: a resolved `Target`, or an error that says what runs
here and why not more. `auto` is the GPU if one can be used, else the CPU.
"""

from __future__ import annotations

from dataclasses import replace

from tilelang.errors import error
from tilelang.isa.target import Target, TargetLike
from tilelang.scopes import Dialect
from tilelang.targets import CHIPS
from tilelang.targets import target as parse

SIMULATED = ("cuda", "ascend")
"""The kinds of machine that there is a model of."""


def resolve(spec: TargetLike | None, default: str = "auto") -> Target:
    """The target that `spec` (or the configured default) names, resolved for this machine."""
    wanted = parse(default if spec is None else spec)
    if wanted.mode == "emulate":
        return wanted
    if wanted.mode == "simulate":
        if wanted.backend in SIMULATED:
            return wanted
        raise _not_yet(wanted, "a simulator of this chip is not built yet", _emulated(wanted))
    if wanted.backend == "cpu":
        return parse("cpu")
    if wanted.backend == "auto":
        return parse(f"cuda:{device_arch()}") if why_no_gpu() is None else parse("cpu")
    if wanted.backend == "cuda":
        return wanted if wanted.chip is not None else parse(f"cuda:{device_arch()}")
    instead = _emulated(wanted)
    if wanted.backend in SIMULATED:  # the emulator does not know the vector functions of Ascend
        instead = instead.replace("emulate:", "simulate:")
    raise _not_yet(wanted, f"the native {wanted.backend} target is not built yet", instead)


ADAPTER_TARGETS = ("auto", "ascendc", "pto")
"""What the adapter tree calls its targets. The last two are code generators of one machine."""

_PLATFORMS = ("auto", "A2", "A3")
"""The platforms of the adapter tree that its kernels run on here; the table of chips knows them."""


def resolve_adapter(spec: TargetLike | None, platform: str | None, default: str = "auto") -> Target:
    """The target of a kernel of the Ascend adapter: a model of the chip of `platform`, where the
    target is the adapter tree's own; else what `resolve` gives.
    """
    wanted = default if spec is None else spec
    if platform is not None and platform not in _PLATFORMS:
        raise error(
            "option",
            f"platform={platform!r}",
            expected=", ".join(_PLATFORMS),
            got=repr(platform),
            help="for the 950 (A5) write the kernel with `tilelang.ascend.language`",
        )
    if wanted in ADAPTER_TARGETS:
        named = platform not in (None, "auto")
        return resolve(f"simulate:{platform}" if named else _model(Dialect.ADAPTER))
    return resolve(spec, default)


def resolve_for(dialect: str, spec: TargetLike | None, default: str = "auto") -> Target:
    """As `resolve`; a kernel of an Ascend dialect runs on a model of its chip where the choice is
    left to us.
    """
    if dialect == Dialect.ADAPTER.value:
        return resolve_adapter(spec, None, default)
    if dialect == Dialect.ASCEND.value and is_auto(spec, default):
        return resolve(_model(Dialect.ASCEND))
    return resolve(spec, default)


def _model(dialect: Dialect) -> Target:
    """The model of the first chip that runs kernels of `dialect`."""
    models = (Target("simulate", chip.backend, chip) for chip in CHIPS if chip.backend in SIMULATED)
    return next(model for model in models if model.runs(dialect))


def why_no_gpu() -> str | None:
    """Why no GPU can be used here; None if one can."""
    from tilelang.targets.cuda import driver, nvrtc  # nothing that a CPU needs

    why = driver.why_unusable()
    if why:
        return why
    return None if nvrtc.is_installed() else f"{nvrtc.PACKAGE} is not installed"


def device_arch() -> str:
    """The architecture of the current GPU; without one, the one that the table of chips assumes."""
    from tilelang.targets.cuda.driver import driver, why_unusable  # nothing that a CPU needs

    if why_unusable():
        return _assumed()
    return driver().device(driver().current()).arch


def _assumed() -> str:
    return next(chip.name for chip in CHIPS if chip.backend == "cuda" and chip.assumed)


def _emulated(wanted: Target) -> str:
    if wanted.chip is not None:
        return f"emulate:{wanted.chip.name}"
    return (
        str(replace(wanted, mode="emulate", backend="none"))
        if wanted.backend != "cuda"
        else f"emulate:{_assumed()}"
    )


def _not_yet(wanted: Target, why: str, instead: str) -> Exception:
    return error(
        "target",
        f"target '{wanted}' cannot run here: {why}",
        expected="cpu, emulate, emulate:<chip> or simulate:<chip>",
        got=str(wanted),
        help=f"use target='{instead}', which runs the kernel under that chip's rules",
    )


def is_auto(spec: TargetLike | None, default: str) -> bool:
    """Whether the choice of the target is left to us."""
    return parse(default if spec is None else spec).backend == "auto"


def description(target: Target, *, native: bool) -> str:
    """What carries a kernel out on `target`, for `kernel.target` and reports."""
    by_emulator = target.backend == "cpu" and not native
    return f"{target} (by the emulator)" if by_emulator else str(target)
