"""The comparison of `make ascend-verify` finds what differs between two traces."""

import pytest
from ascend_verify.trace import differences

LOAD, STORE = "gm2ub UB+0 A+0 1 64", "ub2gm B+0 UB+0 1 64"
TRACE = ["core 0 V 0", LOAD, "notify MTE2 MTE3 0", "wait MTE2 MTE3 0", STORE]


def test_names_of_flags_and_places_do_not_matter():
    other = [line.replace("MTE3 0", "MTE3 5").replace("UB+0", "UB+4096") for line in TRACE]
    assert list(differences(TRACE, other)) == []


def test_kinds_of_order_do_not_matter():
    for order in (["barrier ALL"], ["lock MTE2 3", "unlock MTE2 3", "lock MTE3 3"]):
        at = 2 if order[0] == "barrier ALL" else 1
        made = (
            [TRACE[0], *order[:1], LOAD, *order[1:], STORE]
            if at == 1
            else [*TRACE[:2], *order, STORE]
        )
        assert list(differences(TRACE, made)) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({STORE: "ub2gm B+0 UB+32 1 64"}, "ours has ub2gm B+0 UB+0 1 64, theirs ub2gm B+0 UB+32"),
        ({STORE: "ub2gm B+64 UB+0 1 64"}, "theirs ub2gm B+64 UB+0 1 64"),
        ({LOAD: "gm2ub UB+0 A+0 2 64"}, "theirs gm2ub UB+0 A+0 2 64"),
        ({LOAD: "set_pad 0"}, "only ours has gm2ub"),
        (
            {"notify MTE2 MTE3 0": "notify V MTE3 0", "wait MTE2 MTE3 0": "wait V MTE3 0"},
            "a call of MTE3 waits for more calls of MTE2 in ours",
        ),
        ({TRACE[0]: "core 0 C 0"}, "the cores differ"),
    ],
)
def test_a_difference_is_found(changed, said):
    found = list(differences(TRACE, [changed.get(line, line) for line in TRACE]))
    assert said in "\n".join(found)


def test_order_between_cores_counts():
    cube = ["core 0 C 0", "l0c2ub UB+0 L0C+0", "arrive2 FIX 0"]
    vector = ["core 0 V 0", "await2 ALL 0", STORE]
    one_flag = [*cube[:2], "arrive FIX 3", "arrive FIX 19", vector[0], "await MTE3 3", STORE]
    none = [*cube[:2], vector[0], STORE]
    assert list(differences([*cube, *vector], one_flag)) == []
    assert list(differences([*cube, *vector], none)) == [
        "a call of MTE3 waits for more calls of C 0 FIX in ours"
    ]
