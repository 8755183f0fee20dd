"""Every function prints as Python and reads back equal, and the random ones keep the rules."""

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ir_strategies import FLOATS, INTEGERS, expressions, functions
from tilelang.errors import TileError
from tilelang.ir.expr import BOOL, Var
from tilelang.ir.read import read_function
from tilelang.ir.text import print_function
from tilelang.ir.tile import Function, Let, Param
from tilelang.ir.verify import violations

TYPES = [*INTEGERS, *FLOATS, BOOL]
NAMES = [Var(f"v{i}", t) for i, t in enumerate(TYPES)]


@given(functions())
@settings(max_examples=200)
def test_functions_read_back_equal(fn: Function):
    text = print_function(fn)
    ast.parse(text)
    back = read_function(text)
    assert back == fn
    assert hash(back) == hash(fn)
    assert print_function(back) == text


@given(functions())
@settings(max_examples=100)
def test_random_functions_keep_every_rule(fn: Function):
    assert violations(fn) == []


@given(st.sampled_from(TYPES).flatmap(lambda t: expressions(t, NAMES, 4)))
@settings(max_examples=200)
def test_expressions_read_back_equal(e):
    params = tuple(Param(v.name, var=v) for v in NAMES)
    fn = Function("f", params, (), (Let(Var("r", e.dtype), e),))
    assert read_function(print_function(fn)) == fn


@pytest.mark.filterwarnings("ignore:.*invalid")  # Python's, of escapes in the broken text
@given(functions(), st.data())
@settings(max_examples=100)
def test_broken_text_is_refused_with_a_place(fn: Function, data):
    text = print_function(fn)
    at = data.draw(st.integers(0, len(text) - 1))
    cut = data.draw(st.sampled_from(["", "?", "(", " ", "x", "1", ":", ",", "\n"]))
    try:
        read_function(text[:at] + cut + text[at + 1 :])
    except TileError as e:
        assert all(d.loc is not None and d.loc.file == "<ir>" for d in e.diagnostics)
