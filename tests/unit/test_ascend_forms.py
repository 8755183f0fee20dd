"""What the Ascend simulators run has a form in the C++ for the chip, but for what is listed here.

The kernels of `ascend_forms` and `ascend_forms_mainline` hold every row of the tables of the two
chips in every form. What a source refuses must be in the list of its chip, with the reason, and
what is in the list must be refused.
"""

import re
from collections.abc import Iterable

import pytest

import tilelang
from ascend_forms import adapter
from ascend_forms_mainline import mainline
from tilelang.errors import TileError
from tilelang.ir.thread import Instr
from tilelang.targets.ascend.emit import emit
from tilelang.targets.ascend.emit.statements import Statements
from tilelang.targets.ascend.rows import rows_of

pytestmark = pytest.mark.slow
MARK = " have no form in the source for this chip"

REFUSED = {
    "ascend910b": {
        r"instructions v\.bitwise_[lr]shift": "the vector units shift a tile by one number only",
        r"merges of float16": "MrgSort takes pairs of 8 bytes, a pair of halves has 4",
        r"transposed loads of float32 that are no squares of 32": "two fractals that make a square"
        " of 16 would have to lie side by side in L1, where they lie on top of each other",
        r"(instructions print\.element|statements of the kind Print)": "printing isn't among what"
        " a kernel without TPipe may call",
    },
    "ascend950": {
        r"T\.simd\.\w+ of \w+ that keeps elements": "upstream has no operation for these types",
        r"drains of float32 into int16 with this scale": "CANN's page of Fixpipe has no such mode",
        r"fills of L1 with float32 that are no constants of 32 bits": "one call has one word",
        r"calls of T\.ieee_fma on float32": "sums that are rounded down and up: fma of halves",
    },
}
# Rows that no program of a dialect is lowered to: of other machines, of the other dialect, or of
# operands that the language refuses.
UNREACHED = {
    "ascend910b": r"(atomic|update)\.|gemm\.tile|gm\.l1\.dn|gm\.ub\.end|l0c\.ub|l1\.fill|ub\.l1\."
    r"|mode\.(copy_pad_value|hf32|mmad_direction)|v\.(axpy|leaky_relu)$|v\.mul_add_dst\.s"
    r"|v\.reduce_(abs|bit)|v\.bitwise_xor\.s$",
    "ascend950": r"(atomic|update)\.|gemm\.tile|print\.|sync\.all|mode\.deq_scale"
    r"|v\.(block_reduce|brcb|clamp|gather|merge_sort|sort|whole_reduce|reduce_abs\w+\.acc)"
    r"|v\.(axpy|leaky_relu|mul_add_dst|pow|progression|reciprocal|relu|round|silu|transpose)"
    r"|v\.(broadcast|bitwise_not|compare|select)",
}


@pytest.fixture
def refusals(monkeypatch):
    """What a source refuses, statement by statement: the first one doesn't end it."""
    found: list[str] = []

    def block(self: Statements, body: Iterable[object]) -> None:
        for stmt in body:
            try:
                self.statement(stmt)
            except TileError as problem:
                message = problem.diagnostics[0].message
                assert message.endswith(MARK), message
                found.append(message.removesuffix(MARK))

    monkeypatch.setattr(Statements, "block", block)
    return found


@pytest.mark.parametrize(
    ("chip", "kernels"), [("ascend910b", adapter), ("ascend950", mainline)], ids=["910b", "950"]
)
def test_what_the_simulator_runs_is_printed_or_listed(chip, kernels, refusals):
    reached: set[str] = set()
    unlisted: list[str] = []
    listed = REFUSED[chip]
    used: set[str] = set()
    for name, kernel, configs in kernels():
        refusals.clear()
        made = tilelang.compile(kernel, target=f"simulate:{chip}", pass_configs=configs)
        program = made._program.program.program
        assert emit(program, chip)
        reached |= {n.row for n in program.walk() if isinstance(n, Instr)}
        for message in refusals:
            rules = [rule for rule in listed if re.fullmatch(rule, message)]
            used.update(rules)
            unlisted += [] if rules else [f"{name}: {message}"]
    assert unlisted == []
    assert set(listed) == used, "what is listed and is not refused"
    left = {row for row in rows_of(chip) if row not in reached}
    assert [row for row in sorted(left) if not re.match(UNREACHED[chip], row)] == []
