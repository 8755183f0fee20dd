"""The pattern of 2:4 sparse operands, and TileLang's names for it."""

from __future__ import annotations

import importlib

import pytest

from tilelang.dtypes import DType
from tilelang.isa.sparsity import elements_per_word, pattern


@pytest.mark.parametrize(
    ("name", "meta", "elements"),
    [
        ("float16", "int16", 16),
        ("bfloat16", "int8", 8),
        ("int8", "int32", 32),
        ("float8_e5m2", "uint8", 8),
        ("float32", "int16", 8),
        ("float32", "int8", 4),
    ],
)
def test_elements_for_each_word_of_metadata(name, meta, elements):
    assert elements_per_word(DType(name), DType(meta)) == elements
    module = importlib.import_module("tilelang.cuda.intrinsics.sparse_layout")
    assert module.get_e_factor(name, meta) == elements


def test_patterns():
    half, single = pattern(DType("float16")), pattern(DType("float32"))
    assert (half.kept, half.group, half.bits) == (2, 4, 2)
    assert (single.kept, single.group, single.bits) == (1, 2, 4)
    module = importlib.import_module("tilelang.cuda.intrinsics.sparse_layout")
    assert module.GROUP_CONFIG[DType("int8")] == (2, 4)
    assert module.GROUP_CONFIG["float32"] == (1, 2)
    assert [module.get_e_replicate_factor(n) for n in ("int8", "float16", "float32")] == [1, 2, 2]


@pytest.mark.parametrize("name", ["float64", "int64", "float16x2"])
def test_what_has_no_pattern(name):
    with pytest.raises(ValueError, match=name):
        pattern(DType(name))
