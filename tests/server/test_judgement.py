"""Outcomes are classified by the table of `judgement`, and permutations are drawn deterministically. No server is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.server.judgement import Arrangement, Outcome, Step, Verdict, judge
from tests.server.permutation import SERIALIZABLE, Spec

A1, A2, B1, B2 = Step("a", 1), Step("a", 2), Step("b", 1), Step("b", 2)
TRANSACTIONS = (frozenset({A1, A2}), frozenset({B1, B2}))
GIVEN = (A1, B1, A2, B2)
REFUSED = ("40001",)


def outcome(contents: str, *order: Step, sent: tuple[Step, ...] = GIVEN, **answers: Any) -> Outcome:
    """What is there at the end; answers are 'ok' where nothing else is said: ``a1="two rows"``; steps are answered in the order given."""
    events: list[tuple[Step, bool]] = []
    waiting = list(order or sent)
    for step in sent:
        events.append((step, True))
        while waiting and (waiting[0], True) in events:
            events.append((waiting.pop(0), False))
    return Outcome({step: answers.get(f"{step.session}{step.number}", "ok") for step in sent}, contents, events)


def postgres(**runs: Outcome) -> Callable[[Arrangement], Outcome]:
    """What PostgreSQL makes of other arrangements, named by their steps: ``a1a2b1b2``, those outside with a ``_``; all others end otherwise."""

    def rerun(arrangement: Arrangement) -> Outcome:
        name = "".join(f"{step.session}{step.number}{'_' * (step in arrangement.outside)}" for step in arrangement.order)
        return runs.get(name, Outcome({}, "something else"))

    return rerun


A_READS = frozenset({A1, A2})

TABLE: dict[str, tuple[Outcome, Outcome, Callable[[Arrangement], Outcome], Verdict]] = {
    "the same answers and contents": (outcome("x"), outcome("x"), postgres(), Verdict.EQUAL),
    "the same, whoever has waited": (outcome("x", A1, A2, B1, B2), outcome("x"), postgres(), Verdict.EQUAL),
    "other contents": (outcome("x"), outcome("y"), postgres(a1b1a2b2=outcome("y")), Verdict.FAILURE),
    "another answer": (outcome("x", a1="one"), outcome("x", a1="two"), postgres(a1b1a2b2=outcome("x", a1="two")), Verdict.FAILURE),
    "another error": (outcome("x", a1=("23505",)), outcome("x", a1=("23503",)), postgres(), Verdict.FAILURE),
    "a wait, and PostgreSQL's outcome of the order of the answers": (
        outcome("waited", A1, A2, B1, B2), outcome("did not"), postgres(a1a2b1b2=outcome("waited")), Verdict.WAITED,
    ),
    "a wait, and an outcome that PostgreSQL has in no order": (
        outcome("waited", A1, A2, B1, B2), outcome("did not"), postgres(a1a2b1b2=outcome("other")), Verdict.FAILURE,
    ),
    "one transaction after the other, where PostgreSQL mixes them": (
        outcome("serial"), outcome("mixed"), postgres(b1b2a1a2=outcome("serial")), Verdict.SERIAL,
    ),
    "one after the other, but who was over comes behind": (
        outcome("serial", sent=(A1, A2, B1, B2)), outcome("mixed"), postgres(b1b2a1a2=outcome("serial")), Verdict.FAILURE,
    ),
    "40001, and the rest is PostgreSQL's without the transaction": (
        outcome("only a", b2=REFUSED), outcome("both"), postgres(a1a2=outcome("only a", sent=(A1, A2))), Verdict.REFUSED,
    ),
    "40P01 too": (
        outcome("only a", b1=("40P01",), b2=("25P02",)), outcome("both"), postgres(a1a2=outcome("only a", sent=(A1, A2))), Verdict.REFUSED,
    ),
    "40001, but something of the transaction is there": (
        outcome("a and half of b", b2=REFUSED), outcome("both"), postgres(a1a2=outcome("only a", sent=(A1, A2))), Verdict.FAILURE,
    ),
    "40001 of the same transaction at another step": (
        outcome("only a", b2=REFUSED), outcome("only a", b1=REFUSED, b2=("25P02",)), postgres(), Verdict.EQUAL,
    ),
    "40001 of the other transaction than in PostgreSQL": (
        outcome("only a", b2=REFUSED), outcome("only b", a2=REFUSED), postgres(a1a2=outcome("only a", sent=(A1, A2))), Verdict.REFUSED,
    ),
    "PostgreSQL's 40001 is another error of the node": (
        outcome("only a", b2=("23503",)), outcome("only a", b2=REFUSED), postgres(a1a2=outcome("only a", sent=(A1, A2))), Verdict.REFUSED,
    ),
    "PostgreSQL's 40001 is another error of the node, which has left something": (
        outcome("a and half of b", b2=("23503",)), outcome("only a", b2=REFUSED), postgres(a1a2=outcome("only a", sent=(A1, A2))), Verdict.FAILURE,
    ),
    "PostgreSQL's 40001 is not the node's, and there is a serial order": (
        outcome("both"), outcome("only a", b2=REFUSED), postgres(b1b2a1a2=outcome("both")), Verdict.SERIAL,
    ),
    "PostgreSQL's 40001 is not the node's, and there is none": (outcome("both"), outcome("only a", b2=REFUSED), postgres(), Verdict.FAILURE),
    "SELECTs that are not repeated, as if each were alone": (
        outcome("x", a1="old", a2="new"), outcome("x", a1="old", a2="old"), postgres(a1_b1a2_b2=outcome("x", a1="old", a2="new")), Verdict.UNLOCKED,
    ),
    "SELECTs on both sides of a COMMIT for which the first has not waited": (
        outcome("x", a1="old", a2="new", sent=(B1, A1, B2, A2)), outcome("x", a1="new", a2="new"),
        postgres(a1_b1b2a2_=outcome("x", a1="old", a2="new")), Verdict.UNLOCKED,
    ),
    "the same, and the second has seen what is no more": (
        outcome("x", a1="new", a2="old", sent=(B1, A1, B2, A2)), outcome("x", a1="new", a2="new"),
        postgres(a2_b1b2a1_=outcome("x", a1="new", a2="old")), Verdict.FAILURE,
    ),
    "a session that is stuck": (outcome("x", b1="stuck"), outcome("x"), postgres(a1b1a2b2=outcome("x")), Verdict.FAILURE),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLE)
def test_outcome_has_the_verdict_of_the_table(name: str) -> None:
    on_node, on_postgres, rerun, expected = TABLE[name]
    assert judge(on_node, on_postgres, GIVEN, TRANSACTIONS, rerun, A_READS) is expected


def test_unrepeatable_read_is_a_failure_unless_reads_take_no_locks() -> None:
    on_node, on_postgres, rerun, _ = TABLE["SELECTs that are not repeated, as if each were alone"]
    assert judge(on_node, on_postgres, GIVEN, TRANSACTIONS, rerun) is Verdict.FAILURE


SPEC = Spec(
    "CREATE TABLE t (a int)", "SELECT 1",
    {"a": ("BEGIN", "SELECT 1", "COMMIT", "SELECT 2"), "b": ("BEGIN", "SELECT 3", "PREPARE TRANSACTION 'g'"), "c": ("COMMIT PREPARED 'g'",)},
    take=40, level=SERIALIZABLE,
)  # fmt: skip


def test_steps_are_grouped_into_transactions() -> None:
    prepared = {Step("b", 1), Step("b", 2), Step("c", 0)}
    assert SPEC.transactions() == [{Step("a", 1), Step("a", 2)}, {Step("a", 3)}, prepared]
    assert SPEC.text(Step("a", 1)) == ("BEGIN ISOLATION LEVEL SERIALIZABLE", "SELECT 1")
    assert SPEC.text(Step("a", 2)) == ("COMMIT",)
    assert not SPEC.reads()


def test_permutations_are_distinct_keep_the_order_of_sessions_and_are_reproducible() -> None:
    drawn = SPEC.permutations("seed")
    assert len(drawn) == len(set(drawn)) == 40
    assert drawn == SPEC.permutations("seed")
    assert drawn != SPEC.permutations("another")
    for order in drawn:
        assert [step.number for step in order if step.session == "a"] == [1, 2, 3]
        assert [step.session for step in order] not in ([*"aaabbc"], [*"bbaaac"], [*"cbbaaa"])
