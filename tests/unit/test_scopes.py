"""The scope table: what each allocation function declares, in each dialect, and what is refused."""

import ast
import json
import re
from pathlib import Path

import pytest

from tilelang.errors import TileNameError, TileValueError
from tilelang.scopes import (
    MEMORIES,
    SCOPES,
    Dialect,
    Memory,
    Unit,
    Visibility,
    counterpart,
    declare,
    dialects_of,
    facts,
    is_static,
    memory_of,
    row,
    rows,
)
from tilelang.targets.scopes_report import clash_table, compare_table, scope_table

COMMON, ASCEND, ADAPTER = Dialect.COMMON, Dialect.ASCEND, Dialect.ADAPTER
SEED = Path(__file__).parents[3] / "shared" / "programs" / "alloc_scopes.py"
SEED_ROWS = 11


def seed_spellings() -> dict[str, str]:
    """`ADAPTER_SPELLINGS` of the seed program, read without running the program."""
    for statement in ast.parse(SEED.read_text(encoding="utf-8")).body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="ADAPTER_SPELLINGS")], value=value):
                return ast.literal_eval(value)
    raise AssertionError("the seed program has no ADAPTER_SPELLINGS")


def read_spelling(spelling: str, says: str) -> tuple[Dialect, str, str, str]:
    """Dialect, function, scope and scope for bool, as one row of the seed states them."""
    function = re.findall(r"^T\.(\w+)\(", spelling)[0]
    mainline = "(ascend dialect)" in spelling or dialects_of(function) == (ASCEND,)
    scope = re.findall(r"^scope '([^']+)'", says)[0]
    for_bool = re.search(r"bool -> '([^']+)'", says)
    return (
        ASCEND if mainline else ADAPTER,
        function,
        scope,
        for_bool[1] if for_bool else scope,
    )


seed = pytest.mark.skipif(not SEED.exists(), reason="the seed program is not beside this checkout")


@seed
def test_all_rows_of_the_seed_program_are_declared_as_it_says():
    spellings = seed_spellings()
    assert len(spellings) == SEED_ROWS
    seen = set()
    for spelling, says in spellings.items():
        dialect, function, scope, for_bool = read_spelling(spelling, says)
        seen.add((dialect, function))
        assert declare(dialect, function, "float16") == scope
        assert declare(dialect, function, "bool") == for_bool
        if "= Unified Buffer" in says:
            assert memory_of(dialect, scope) is Memory.UB
    assert len(seen) == SEED_ROWS
    assert sum(dialect is ADAPTER for dialect, _ in seen) == 6


@seed
def test_the_report_states_all_rows_of_the_seed_program():
    table = json.loads(json.dumps(scope_table()))
    declared = {
        (entry["dialect"], entry["function"]): (entry["scope"], entry["bool_scope"])
        for entry in table
        if not entry["accepted_as_input_only"]
    }
    for spelling, says in seed_spellings().items():
        dialect, function, scope, for_bool = read_spelling(spelling, says)
        assert declared[dialect.value, function] == (scope, for_bool)


@pytest.mark.parametrize(
    ("dialect", "function", "scope", "memory"),
    [
        (COMMON, "alloc_shared", "shared.dyn", Memory.SHARED),
        (COMMON, "alloc_fragment", "local.fragment", Memory.FRAGMENT),
        (COMMON, "alloc_local", "local", Memory.LOCAL),
        (COMMON, "alloc_var", "local.var", Memory.VAR),
        (COMMON, "alloc_global", "global", Memory.GLOBAL),
        (COMMON, "alloc_barrier", "shared.barrier", Memory.BARRIER),
        (COMMON, "alloc_cluster_barrier", "shared.cluster_barrier", Memory.CLUSTER_BARRIER),
        (COMMON, "alloc_tmem", "shared.tmem", Memory.TMEM),
        (COMMON, "alloc_reducer", "local.reducer", Memory.REDUCER),
        (COMMON, "alloc_descriptor", "local.descriptor.wgmma", Memory.DESCRIPTOR),
        (COMMON, "alloc_wgmma_desc", "local.descriptor.wgmma", Memory.DESCRIPTOR),
        (COMMON, "alloc_tcgen05_smem_desc", "local.descriptor.tcgen05_smem", Memory.DESCRIPTOR),
        (COMMON, "alloc_tcgen05_instr_desc", "local.descriptor.tcgen05_instr", Memory.DESCRIPTOR),
        (ASCEND, "alloc_shared", "shared.dyn", Memory.UB),
        (ASCEND, "alloc_l1", "shared.l1", Memory.L1),
        (ASCEND, "alloc_l0a", "shared.l0a", Memory.L0A),
        (ASCEND, "alloc_l0b", "shared.l0b", Memory.L0B),
        (ASCEND, "alloc_l0c", "shared.l0c", Memory.L0C),
        (ASCEND, "alloc_l0a_sf", "shared.l0a.sf", Memory.L0A_SCALE),
        (ASCEND, "alloc_l0b_sf", "shared.l0b.sf", Memory.L0B_SCALE),
        (ASCEND, "alloc_fragment", "local.fragment", Memory.FRAGMENT),
        (ASCEND, "alloc_var", "local.var", Memory.VAR),
        (ADAPTER, "alloc_shared", "shared", Memory.UB_OR_L1),
        (ADAPTER, "alloc_ub", "shared.ub", Memory.UB),
        (ADAPTER, "alloc_L1", "shared.l1", Memory.L1),
        (ADAPTER, "alloc_L0A", "wmma.matrix_a", Memory.L0A),
        (ADAPTER, "alloc_L0B", "wmma.matrix_b", Memory.L0B),
        (ADAPTER, "alloc_L0C", "wmma.accumulator", Memory.L0C),
        (ADAPTER, "alloc_fragment", "local.fragment", Memory.L0_BY_USE),
        (ADAPTER, "alloc_var", "local.var", Memory.VAR),
    ],
)
def test_each_function_declares_its_scope_and_memory(dialect, function, scope, memory):
    assert declare(dialect, function, "float32") == scope
    assert memory_of(dialect, scope) is memory
    assert row(dialect, function).memory is memory


def test_bool_in_shared_memory_is_static_in_the_common_dialect_whatever_the_scope_asked_for():
    assert declare(COMMON, "alloc_shared", "bool") == "shared"
    assert declare(COMMON, "alloc_shared", "bool", "shared.dyn") == "shared"
    assert declare(COMMON, "alloc_shared", "bool", "local") == "shared"
    assert declare(COMMON, "alloc_shared", "uint8") == "shared.dyn"
    assert declare(COMMON, "alloc_fragment", "bool") == "local.fragment"
    assert declare(COMMON, "alloc_local", "bool") == "local"


def test_bool_keeps_the_scope_given_in_the_ascend_dialect():
    assert declare(ASCEND, "alloc_shared", "bool") == "shared.dyn"
    assert declare(ASCEND, "alloc_shared", "bool", "shared") == "shared"
    assert memory_of(ASCEND, "shared") is Memory.UB


def test_bool_is_in_the_unified_buffer_in_the_adapter_dialect():
    assert declare(ADAPTER, "alloc_shared", "bool") == "shared.ub"
    assert declare(ADAPTER, "alloc_shared", "bool", "shared.l1") == "shared.ub"
    assert memory_of(ADAPTER, "shared.ub") is Memory.UB


def test_the_dtype_may_be_any_string_like_value():
    class Name(str):
        __slots__ = ()

    assert declare(COMMON, "alloc_shared", Name("bool")) == "shared"


@pytest.mark.parametrize(
    ("dialect", "function", "explicit"),
    [
        (COMMON, "alloc_shared", "shared"),
        (COMMON, "alloc_shared", "shared.dyn"),
        (COMMON, "alloc_fragment", "local"),
        (COMMON, "alloc_fragment", "shared"),
        (COMMON, "alloc_var", "local.var"),
        (COMMON, "alloc_descriptor", "local.descriptor.tcgen05_instr"),
        (ASCEND, "alloc_shared", "shared.l1"),
        (ASCEND, "alloc_l0a", "shared.l0b"),
        (ADAPTER, "alloc_shared", "shared.ub"),
        (ADAPTER, "alloc_fragment", "wmma.accumulator"),
    ],
)
def test_an_explicit_scope_is_declared_as_given(dialect, function, explicit):
    assert declare(dialect, function, "float16", explicit) == explicit


def test_strings_of_the_newer_adapter_tree_are_taken_and_mean_what_this_version_declares():
    assert declare(ADAPTER, "alloc_shared", "float16", "shared.dyn") == "shared"
    assert declare(ADAPTER, "alloc_ub", "float16", "shared") == "shared.ub"
    assert memory_of(ADAPTER, "shared.dyn") is Memory.UB_OR_L1
    assert memory_of(ADAPTER, "shared") is Memory.UB_OR_L1


def test_an_unknown_explicit_scope_is_refused_with_what_the_function_takes():
    with pytest.raises(TileValueError) as caught:
        declare(COMMON, "alloc_shared", "float16", "shared.dny")
    assert str(caught.value) == (
        "error[scope]: `T.alloc_shared` of the common dialect does not take scope='shared.dny'\n"
        " = expected: one of 'shared.dyn', 'shared', 'local.fragment', 'local', 'global'; "
        "got: 'shared.dny'\n"
        " = help: did you mean 'shared.dyn'?"
    )


def test_a_scope_with_rules_of_its_own_points_to_its_function():
    with pytest.raises(TileValueError, match=r"`T\.alloc_tmem` declares 'shared\.tmem'"):
        declare(COMMON, "alloc_shared", "float32", "shared.tmem")
    with pytest.raises(TileValueError, match=r"expected: 'local\.var', or no `scope=`"):
        declare(COMMON, "alloc_var", "float32", "shared")
    with pytest.raises(TileValueError, match=r"does not take scope='shared\.l1'"):
        declare(COMMON, "alloc_shared", "bool", "shared.l1")


def test_a_scope_string_of_another_dialect_is_unknown():
    with pytest.raises(TileValueError, match=r"unknown memory scope 'wmma\.matrix_a'"):
        memory_of(COMMON, "wmma.matrix_a")
    with pytest.raises(TileValueError, match=r"one of .*'shared\.ub', 'wmma\.accumulator', "):
        memory_of(ADAPTER, "shared.l0a")


def test_a_name_of_the_adapter_is_refused_elsewhere_with_the_spelling_used_there():
    with pytest.raises(TileNameError) as caught:
        row(ASCEND, "alloc_ub")
    assert str(caught.value) == (
        "error[name]: `T.alloc_ub` belongs to the Ascend adapter dialect, and this kernel is in "
        "the mainline Ascend dialect\n"
        " = expected: `T.alloc_shared` (scope 'shared.dyn'), the mainline Ascend dialect's "
        "spelling; got: `T.alloc_ub` of tilelang-ascend 0.1.2.000\n"
        " = help: write `T.alloc_shared(...)`; `T.alloc_ub` is in tilelang.language, for chips "
        "that run the Ascend adapter dialect"
    )


@pytest.mark.parametrize(
    ("dialect", "function", "spelling"),
    [
        (COMMON, "alloc_ub", "alloc_shared"),
        (COMMON, "alloc_L1", "alloc_shared"),
        (COMMON, "alloc_L0A", "alloc_fragment"),
        (COMMON, "alloc_L0C", "alloc_fragment"),
        (COMMON, "alloc_l0c", "alloc_fragment"),
        (ASCEND, "alloc_L1", "alloc_l1"),
        (ASCEND, "alloc_L0A", "alloc_l0a"),
        (ASCEND, "alloc_L0B", "alloc_l0b"),
        (ASCEND, "alloc_L0C", "alloc_l0c"),
        (ADAPTER, "alloc_l1", "alloc_L1"),
        (ADAPTER, "alloc_l0c", "alloc_L0C"),
        (ADAPTER, "alloc_local", "alloc_var"),
    ],
)
def test_a_name_of_another_dialect_has_a_counterpart_and_the_error_names_it(
    dialect, function, spelling
):
    assert counterpart(function, dialect) == spelling
    with pytest.raises(TileNameError, match=rf"expected: `T\.{spelling}`"):
        declare(dialect, function, "float16")


def test_counterparts_go_both_ways():
    assert counterpart("alloc_ub", ASCEND) == "alloc_shared"
    assert counterpart("alloc_shared", ADAPTER, source=ASCEND) == "alloc_ub"
    assert counterpart("alloc_shared", ADAPTER) == "alloc_shared"
    assert counterpart("alloc_shared", COMMON, source=ASCEND) == "alloc_shared"
    assert counterpart("alloc_l0a_sf", COMMON) is None
    assert counterpart("alloc_nothing", COMMON) is None
    assert counterpart("alloc_ub", COMMON, source=COMMON) is None


def test_a_name_without_counterpart_is_refused_with_the_whole_list():
    with pytest.raises(TileNameError, match=r"expected: one of alloc_shared, alloc_fragment"):
        row(COMMON, "alloc_l0a_sf")


def test_a_name_of_no_dialect_is_refused_with_the_nearest_one():
    with pytest.raises(TileNameError, match="not an allocation function of any dialect"):
        row(COMMON, "alloc_sharde")
    with pytest.raises(TileNameError, match=r"did you mean 'alloc_shared'\?"):
        row(COMMON, "alloc_sharde")


def test_each_dialect_has_each_function_once_and_every_string_has_a_memory():
    assert len({(entry.dialect, entry.function) for entry in SCOPES}) == len(SCOPES)
    for entry in SCOPES:
        strings = [entry.scope, *entry.explicit, *entry.synonyms]
        strings += [entry.bool_scope] if entry.bool_scope else []
        strings += [newer.scope for newer in entry.newer]
        for scope in strings:
            assert memory_of(entry.dialect, scope) in Memory
        assert memory_of(entry.dialect, entry.scope) is entry.memory
        assert entry.version in entry.source


def test_the_ascend_dialect_exports_every_common_function_and_says_where_it_is_defined():
    names = {entry.function for entry in rows(ASCEND)}
    assert names > {entry.function for entry in rows(COMMON)}
    assert row(ASCEND, "alloc_fragment").source == row(COMMON, "alloc_fragment").source
    assert row(ASCEND, "alloc_shared").source != row(COMMON, "alloc_shared").source


def test_every_memory_has_facts_and_its_pool_is_a_pool():
    assert set(MEMORIES) == set(Memory)
    for memory in Memory:
        about = facts(memory)
        assert facts(about.pool).pool is about.pool
        assert facts(about.pool).unit is about.unit
        assert all(not facts(choice).resolves_to for choice in about.resolves_to)


def test_who_sees_a_memory_and_what_it_is_counted_in():
    assert facts(Memory.GLOBAL).visible is Visibility.GRID
    assert not facts(Memory.GLOBAL).on_chip
    assert facts(Memory.SHARED).visible is Visibility.BLOCK
    assert facts(Memory.FRAGMENT).visible is Visibility.BLOCK
    assert facts(Memory.FRAGMENT).divided
    assert facts(Memory.LOCAL).visible is Visibility.THREAD
    assert not facts(Memory.LOCAL).divided
    assert facts(Memory.FRAGMENT).pool is Memory.REGISTERS
    assert facts(Memory.BARRIER).pool is Memory.SHARED
    assert facts(Memory.TMEM).unit is Unit.COLUMNS
    assert facts(Memory.L0C).unit is Unit.BYTES


def test_static_shared_memory():
    assert is_static(COMMON, "shared")
    assert is_static(COMMON, "shared.barrier")
    assert not is_static(COMMON, "shared.dyn")
    assert not is_static(COMMON, "shared.tmem")
    assert not is_static(ASCEND, "shared")
    assert not is_static(ADAPTER, "shared")


def entry_of(dialect: str, function: str, version: str):
    return next(
        entry
        for entry in scope_table()
        if (entry["dialect"], entry["function"], entry["version"]) == (dialect, function, version)
    )


def amounts(entry, chip):
    return [(limit["amount"], limit["per"], limit["scope"]) for limit in entry["capacity"][chip]]


def test_the_report_gives_the_capacity_on_each_chip_and_the_limit_of_static_memory():
    shared = entry_of("common", "alloc_shared", "0.1.15")
    assert amounts(shared, "sm_90a")[:2] == [
        (232448, "block", None),
        (49152, "block, static allocations only", "shared"),
    ]
    assert amounts(entry_of("common", "alloc_tmem", "0.1.15"), "sm_100a")[0][0] == 512
    assert entry_of("common", "alloc_tmem", "0.1.15")["capacity"]["sm_90a"] is None
    assert amounts(entry_of("common", "alloc_fragment", "0.1.15"), "sm_80")[0] == (
        255,
        "thread",
        None,
    )
    assert amounts(entry_of("adapter", "alloc_L0C", "0.1.2.000"), "ascend910b")[0][0] == 131072
    assert amounts(entry_of("ascend", "alloc_l0c", "0.1.15"), "ascend950")[0][0] == 262144


def test_the_report_lists_only_chips_that_run_the_dialect():
    assert set(entry_of("ascend", "alloc_l1", "0.1.15")["capacity"]) == {"ascend950"}
    assert set(entry_of("adapter", "alloc_ub", "0.1.2.000")["capacity"]) == {"ascend910b"}
    assert "ascend950" not in entry_of("common", "alloc_shared", "0.1.15")["capacity"]


def test_the_report_lists_both_versions_of_the_adapters_strings():
    newer = entry_of("adapter", "alloc_ub", "0.1.4")
    assert (newer["scope"], newer["accepted_as_input_only"]) == ("shared", True)
    newer = entry_of("adapter", "alloc_shared", "0.1.4")
    assert (newer["scope"], newer["bool_scope"]) == ("shared.dyn", "shared")
    assert entry_of("adapter", "alloc_ub", "0.1.2.000")["scope"] == "shared.ub"


def test_the_comparison_lines_up_the_spellings_of_a_memory():
    by_memory = {entry["memory"]: entry["spellings"] for entry in compare_table()}
    assert by_memory["ub"] == {
        "common": [],
        "ascend": [{"function": "alloc_shared", "scope": "shared.dyn", "by_use": False}],
        "adapter": [
            {"function": "alloc_shared", "scope": "shared", "by_use": True},
            {"function": "alloc_ub", "scope": "shared.ub", "by_use": False},
        ],
    }
    assert by_memory["l0a"]["ascend"][0]["function"] == "alloc_l0a"
    assert by_memory["l0a"]["adapter"][0]["function"] == "alloc_L0A"
    assert "registers" not in by_memory
    assert "ub_or_l1" not in by_memory
    json.dumps(compare_table())


def test_the_strings_that_mean_different_memories_are_listed():
    meant = {entry["scope"]: entry["memories"] for entry in clash_table()}
    assert meant["shared.dyn"] == {"common": "shared", "ascend": "ub", "adapter": "ub_or_l1"}
    assert "shared.l1" not in meant
    json.dumps(clash_table())
