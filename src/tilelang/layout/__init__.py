"""Layouts as an author states them: where an element of a tile or buffer is placed.

What enters: a shape and a function of indices. What leaves: an object for `T.annotate_layout` and
`loop_layout=`, which never changes a result, and the placement of single elements by number.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any

from tilelang.errors import TileNotImplementedError, TileValueError, error


def _later(what: str) -> Exception:
    return error(
        "layout",
        f"{what} needs layout inference, which is not built",
        cls=TileNotImplementedError,
        help="docs/declared.md lists what is declared and not built",
    )


class Layout:
    """A map from the indices of an array of `shape` to the indices where elements are placed."""

    def __init__(self, shape: Any, forward_fn: Callable[..., Any] | None, label: str = "") -> None:
        self.shape: tuple[Any, ...] = tuple(shape)
        self._forward = forward_fn
        self._label = label

    @property
    def label(self) -> str:
        """What the layout is called; empty for one that a function gives."""
        return self._label

    def get_input_shape(self) -> list[Any]:
        """The extents of the indices."""
        return list(self.shape)

    def map_forward_index(self, indices: Sequence[Any]) -> tuple[Any, ...]:
        """Where the element of these indices is placed. ValueError for a wrong number of them."""
        if self._forward is None:
            raise _later(f"the placement of {self!r}")
        if len(indices) != len(self.shape):
            raise error(
                "layout",
                f"{self!r} of {len(indices)} indices",
                cls=TileValueError,
                expected=f"{len(self.shape)} indices",
                got=str(len(indices)),
            )
        placed = self._forward(*indices)
        return tuple(placed) if isinstance(placed, (list, tuple)) else (placed,)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]

    def __call__(self, *indices: Any) -> tuple[Any, ...]:
        """`map_forward_index`."""
        return self.map_forward_index(indices)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in _UNBUILT:
            raise AttributeError(name)
        raise _later(f"{type(self).__name__}.{name}")

    def __repr__(self) -> str:
        inside = ", ".join([*map(str, self.shape), *([self._label] if self._label else [])])
        return f"{type(self).__name__}({inside})"


class Fragment(Layout):
    """A map from the indices of a tile to a thread and a place among its registers.

    `forward_fn(*indices[, replica])` gives (thread, index), or `forward_thread_fn` and
    `forward_index_fn` give one each. `replicate` threads hold each element.
    """

    def __init__(
        self,
        shape: Any,
        forward_fn: Callable[..., Any] | None = None,
        forward_thread_fn: Callable[..., Any] | None = None,
        replicate: int = 1,
        forward_index_fn: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__(shape, forward_fn)
        if (forward_fn is None) == (forward_thread_fn is None):
            raise error(
                "layout",
                "Fragment needs forward_fn or forward_thread_fn",
                cls=TileValueError,
                expected="one of the two",
            )
        self.replicate_count = replicate
        self._thread_fn, self._index_fn = forward_thread_fn, forward_index_fn

    def map_forward_index(self, indices: Sequence[Any]) -> tuple[Any, ...]:
        """The thread and the place of an element."""
        if self._thread_fn is None:
            return super().map_forward_index(indices)
        index = self._index_fn(*indices) if self._index_fn is not None else 0
        return self._thread_fn(*indices), index


_UNBUILT = frozenset(
    {
        "index",
        "get_output_shape",
        "get_forward_vars",
        "get_forward_index",
        "get_linearized_forward_index",
        "repeat",
        "expand",
        "inverse",
        "reshape",
        "is_equal",
        "map_region_bounds",
        "thread",
        "get_thread_size",
        "replicate",
        "condense_rep_var",
        "map_forward_thread",
    }
)


class SwizzleMode(enum.Enum):
    """How addresses of shared memory are permuted, by the bytes that are permuted together."""

    NONE = 0
    SWIZZLE_32B = 32
    SWIZZLE_64B = 64
    SWIZZLE_128B = 128


def _of_buffer(buffer: Any, label: str) -> Layout:
    return Layout(getattr(buffer, "shape", ()), None, label)


def make_swizzled_layout(buffer: Any, k_major: bool = True, allow_pad: bool = True) -> Layout:
    """The permutation of a shared buffer that serves its products without bank conflicts."""
    return _of_buffer(buffer, f"swizzled, k_major={k_major}, allow_pad={allow_pad}")


def make_volta_swizzled_layout(buffer: Any, is_a: bool = True, k_inner: bool = True) -> Layout:
    """The permutation for products of Volta."""
    return _of_buffer(buffer, f"volta, is_a={is_a}, k_inner={k_inner}")


def make_wgmma_swizzled_layout(
    buffer: Any, continuity: int | None = None, k_major: bool = True
) -> Layout:
    """The permutation for wgmma."""
    return _of_buffer(buffer, f"wgmma, continuity={continuity}, k_major={k_major}")


def make_tcgen05mma_swizzled_layout(
    buffer: Any, continuity: int | None = None, k_major: bool = True
) -> Layout:
    """The permutation for tcgen05."""
    return _of_buffer(buffer, f"tcgen05, continuity={continuity}, k_major={k_major}")


def make_full_bank_swizzled_layout(buffer: Any) -> Layout:
    """Permuted in spans of 128 bytes."""
    return _of_buffer(buffer, "128-byte swizzle")


def make_half_bank_swizzled_layout(buffer: Any) -> Layout:
    """Permuted in spans of 64 bytes."""
    return _of_buffer(buffer, "64-byte swizzle")


def make_quarter_bank_swizzled_layout(buffer: Any) -> Layout:
    """Permuted in spans of 32 bytes."""
    return _of_buffer(buffer, "32-byte swizzle")


def make_linear_layout(buffer: Any) -> Layout:
    """Row-major, as declared."""

    def same(*indices: Any) -> tuple[Any, ...]:
        return indices

    return Layout(getattr(buffer, "shape", ()), same, "linear")


def make_cutlass_metadata_layout(
    buffer: Any, mma_dtype: Any = "float16", arch: str | None = None, **extra_args: Any
) -> Layout:
    """Refused: it reorders the metadata of a sparse product in global memory, which changes it."""
    raise _later("make_cutlass_metadata_layout")


def make_fully_replicated_layout_fragment(buffer: Any, threads: int) -> Fragment:
    """Every thread holds all elements."""
    return Fragment(getattr(buffer, "shape", ()), forward_thread_fn=lambda *_: 0, replicate=threads)


def make_gemm_fragment_8x8() -> Fragment:
    """An 8 by 8 tile over a warp, two neighbours of a row to a thread."""

    def place(i: Any, j: Any) -> tuple[Any, Any]:
        return i * 4 + j // 2, j % 2

    return Fragment((8, 8), place)


def make_gemm_fragment_8x8_transposed() -> Fragment:
    """An 8 by 8 tile over a warp, two neighbours of a column to a thread."""

    def place(i: Any, j: Any) -> tuple[Any, Any]:
        return j * 4 + i // 2, i % 2

    return Fragment((8, 8), place)
