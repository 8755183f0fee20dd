"""What an exception says about a program of another checkout: an outcome and one line of reason.

What enters: an exception that ended a program or a test. What leaves: one of the words that the
tables of docs/conformance.md count, and why.
"""

from __future__ import annotations

# What torch and Triton say where they find no GPU.
GPU_ONLY = ("libcuda.so", "compiled without CUDA", "not compiled with CUDA", "ATen_cuda")


def one_line(text: str, most: int = 200) -> str:
    """`text` without line breaks and tabs, and not too long for a table."""
    return " ".join(text.split())[:most]


def outcome_of(exc: BaseException) -> tuple[str, str]:
    """The outcome that an exception means, and its reason."""
    from tilelang.errors import InternalError, TileError

    reason = f"{type(exc).__name__}: {exc}"
    if isinstance(exc, ModuleNotFoundError) and not str(exc.name).startswith("tilelang"):
        return "needs a package", str(exc.name)
    if isinstance(exc, MemoryError) or "can't allocate memory" in reason:
        return "too large", reason
    if any(words in reason for words in GPU_ONLY):
        return "needs a GPU", reason
    if isinstance(exc, TileError):
        return "refused", exc.diagnostics[0].message if exc.diagnostics else reason
    if isinstance(exc, AssertionError) and not isinstance(exc, InternalError):
        return "wrong", reason
    return "failed", reason
