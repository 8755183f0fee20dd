"""Every name of TileLang 0.1.15 that programs use exists here, with TileLang's signature."""

import csv
import inspect
from pathlib import Path
from typing import Any

import pytest

import tilelang.language as T
from tilelang.language.later import LATER

# Names whose signature differs, and why.
DEVIATIONS = {
    "Kernel": "is_npu=True is the Ascend adapter's launch, which shares this import path",
    "call_extern": "dtype= may come after the function's name, as TVM's wrapper allows",
    "handle": "an element type: `T.handle` annotates a pointer parameter; T.ptr is its constructor",
    "tvm_thread_allreduce": "dtype= is accepted, as TVM's wrapper does",
}
# Names that are used and do not exist, and why.
ABSENT = {"__tilelang_dialect__": "not public in TileLang either"}
# What the table spells by a name of TileLang's source.
NAMES = {
    "_DEFAULT_SHFL_WIDTH": 32,
    "_FULL_WARP_MASK": 0xFFFFFFFF,
    "GemmWarpPolicy": T.GemmWarpPolicy,
    "_dtypes": T.dtypes,
}


def table(folder: Path, name: str) -> list[dict[str, str]]:
    file = folder / "reference" / name
    if not file.is_file():
        pytest.skip(f"the reference table {name} is not beside this checkout")
    with file.open() as lines:
        return list(csv.DictReader(lines, delimiter="\t"))


def used(folder: Path) -> set[str]:
    columns = ("examples_files", "tests_files", "tilekernels_files")
    rows = table(folder, "api_counts.tsv")
    return {r["name"] for r in rows if any(int(r[c]) for c in columns)}


def shape(signature: inspect.Signature) -> list[tuple[Any, ...]]:
    """Names, kinds and defaults; True and 1, and a dtype and its name, are one default."""
    return [
        (p.name, p.kind, p.default is p.empty or getattr(p.default, "value", p.default))
        for p in signature.parameters.values()
    ]


def test_every_name_in_use_exists(shared: Path) -> None:
    missing = [name for name in used(shared) - set(ABSENT) if not hasattr(T, name)]
    assert missing == []


def test_names_absent_on_purpose_are_absent(shared: Path) -> None:
    assert [name for name in ABSENT if hasattr(T, name)] == []


def test_signatures_and_defaults_are_those_of_tilelang(shared: Path) -> None:
    differ = {}
    compared = 0
    for row in table(shared, "api_signatures.tsv"):
        name, text = row["name"], row["signature"]
        free = name in LATER and LATER[name].parameters == "*args, **kwargs"
        if not text.startswith("(") or name in DEVIATIONS or free:
            continue
        wanted = inspect.signature(eval(f"lambda {text[1:-1]}: None", dict(NAMES)))
        ours = inspect.signature(getattr(T, name))
        compared += 1
        if shape(ours) != shape(wanted):
            differ[name] = f"{ours} is not {text}"
    assert differ == {}
    assert compared > 300


def test_deviations_really_deviate(shared: Path) -> None:
    """A line of `DEVIATIONS` that no longer holds is removed."""
    rows = {r["name"]: r["signature"] for r in table(shared, "api_signatures.tsv")}
    for name in DEVIATIONS:
        wanted = inspect.signature(eval(f"lambda {rows[name][1:-1]}: None", dict(NAMES)))
        assert shape(inspect.signature(getattr(T, name))) != shape(wanted), name


def test_every_keyword_in_use_is_a_parameter(shared: Path) -> None:
    refused = []
    for row in table(shared, "api_kwargs.tsv"):
        name, keyword = row["func"], row["kwarg"]
        if row["accepted_by_0.1.15"] != "yes" or name.startswith("WS"):
            continue
        parameters = inspect.signature(getattr(T, name)).parameters
        if keyword not in parameters:
            refused.append(f"{name}({keyword}=)")
    assert refused == []


def test_names_that_wait_have_the_signature_where_they_are_used(shared: Path) -> None:
    rows = {r["name"]: r["signature"] for r in table(shared, "api_signatures.tsv")}
    for name in used(shared) & set(LATER):
        if rows.get(name, "-").startswith("("):
            assert LATER[name].parameters != "*args, **kwargs", name
