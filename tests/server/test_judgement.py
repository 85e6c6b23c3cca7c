"""`judge` returns the verdict that its table states, and permutations are drawn deterministically. No server is needed."""

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
    """Return an outcome with these contents.

    Results of steps are 'ok' unless given (``a1="two rows"``). `order`: the order in which the steps are answered, by default that of
    `sent`.
    """
    events: list[tuple[Step, bool]] = []
    waiting = list(order or sent)
    for step in sent:
        events.append((step, True))
        while waiting and (waiting[0], True) in events:
            events.append((waiting.pop(0), False))
    return Outcome({step: answers.get(f"{step.session}{step.number}", "ok") for step in sent}, contents, events)


def postgres(**runs: Outcome) -> Callable[[Arrangement], Outcome]:
    """Return a `rerun` for `judge`: the outcomes of PostgreSQL by the names of the steps (``a1a2b1b2``).

    A step that runs in a separate session has a ``_`` after it. Any other arrangement has different contents.
    """

    def rerun(arrangement: Arrangement) -> Outcome:
        name = "".join(f"{step.session}{step.number}{'_' * (step in arrangement.outside)}" for step in arrangement.order)
        return runs.get(name, Outcome({}, "something else"))

    return rerun


A_READS = frozenset({A1, A2})

TABLE: dict[str, tuple[Outcome, Outcome, Callable[[Arrangement], Outcome], Verdict]] = {
    "same results and contents": (outcome("x"), outcome("x"), postgres(), Verdict.EQUAL),
    "same results and contents after different waits": (outcome("x", A1, A2, B1, B2), outcome("x"), postgres(), Verdict.EQUAL),
    "different contents": (outcome("x"), outcome("y"), postgres(a1b1a2b2=outcome("y")), Verdict.FAILURE),
    "a different result": (outcome("x", a1="one"), outcome("x", a1="two"), postgres(a1b1a2b2=outcome("x", a1="two")), Verdict.FAILURE),
    "a different error": (outcome("x", a1=("23505",)), outcome("x", a1=("23503",)), postgres(), Verdict.FAILURE),
    "PostgreSQL's outcome for the order of the answers": (
        outcome("waited", A1, A2, B1, B2), outcome("did not"), postgres(a1a2b1b2=outcome("waited")), Verdict.WAITED,
    ),
    "an outcome that PostgreSQL has in no order": (
        outcome("waited", A1, A2, B1, B2), outcome("did not"), postgres(a1a2b1b2=outcome("other")), Verdict.FAILURE,
    ),
    "PostgreSQL's outcome for a serial order": (
        outcome("serial"), outcome("mixed"), postgres(b1b2a1a2=outcome("serial")), Verdict.SERIAL,
    ),
    "a serial order that contradicts the times at which transactions ended": (
        outcome("serial", sent=(A1, A2, B1, B2)), outcome("mixed"), postgres(b1b2a1a2=outcome("serial")), Verdict.FAILURE,
    ),
    "40001, and PostgreSQL's outcome without the transaction": (
        outcome("only a", b2=REFUSED), outcome("both"), postgres(a1a2=outcome("only a", sent=(A1, A2))), Verdict.REFUSED,
    ),
    "40P01, and PostgreSQL's outcome without the transaction": (
        outcome("only a", b1=("40P01",), b2=("25P02",)), outcome("both"), postgres(a1a2=outcome("only a", sent=(A1, A2))), Verdict.REFUSED,
    ),
    "40001, but a part of the transaction is visible": (
        outcome("a and half of b", b2=REFUSED), outcome("both"), postgres(a1a2=outcome("only a", sent=(A1, A2))), Verdict.FAILURE,
    ),
    "40001 of the same transaction at a different step": (
        outcome("only a", b2=REFUSED), outcome("only a", b1=REFUSED, b2=("25P02",)), postgres(), Verdict.EQUAL,
    ),
    "40001 of a different transaction than in PostgreSQL": (
        outcome("only a", b2=REFUSED), outcome("only b", a2=REFUSED), postgres(a1a2=outcome("only a", sent=(A1, A2))), Verdict.REFUSED,
    ),
    "40001 in PostgreSQL, a different error on the node": (
        outcome("only a", b2=("23503",)), outcome("only a", b2=REFUSED), postgres(a1a2=outcome("only a", sent=(A1, A2))), Verdict.REFUSED,
    ),
    "40001 in PostgreSQL, a different error on the node, but a part of the transaction is visible": (
        outcome("a and half of b", b2=("23503",)), outcome("only a", b2=REFUSED), postgres(a1a2=outcome("only a", sent=(A1, A2))), Verdict.FAILURE,
    ),
    "40001 in PostgreSQL only, and a serial order exists": (
        outcome("both"), outcome("only a", b2=REFUSED), postgres(b1b2a1a2=outcome("both")), Verdict.SERIAL,
    ),
    "40001 in PostgreSQL only, and no serial order exists": (outcome("both"), outcome("only a", b2=REFUSED), postgres(), Verdict.FAILURE),
    "unrepeatable reads that separate transactions explain": (
        outcome("x", a1="old", a2="new"), outcome("x", a1="old", a2="old"), postgres(a1_b1a2_b2=outcome("x", a1="old", a2="new")), Verdict.UNLOCKED,
    ),
    "SELECTs before and after a COMMIT for which the first one has not waited": (
        outcome("x", a1="old", a2="new", sent=(B1, A1, B2, A2)), outcome("x", a1="new", a2="new"),
        postgres(a1_b1b2a2_=outcome("x", a1="old", a2="new")), Verdict.UNLOCKED,
    ),
    "a second SELECT that sees a row that is already deleted": (
        outcome("x", a1="new", a2="old", sent=(B1, A1, B2, A2)), outcome("x", a1="new", a2="new"),
        postgres(a2_b1b2a1_=outcome("x", a1="new", a2="old")), Verdict.FAILURE,
    ),
    "a stuck session": (outcome("x", b1="stuck"), outcome("x"), postgres(a1b1a2b2=outcome("x")), Verdict.FAILURE),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLE)
def test_outcome_has_the_verdict_of_the_table(name: str) -> None:
    on_node, on_postgres, rerun, expected = TABLE[name]
    assert judge(on_node, on_postgres, GIVEN, TRANSACTIONS, rerun, A_READS) is expected


def test_unrepeatable_read_is_a_failure_unless_reads_take_no_locks() -> None:
    on_node, on_postgres, rerun, _ = TABLE["unrepeatable reads that separate transactions explain"]
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
    permutations = SPEC.permutations("seed")
    assert len(permutations) == len(set(permutations)) == 40
    assert permutations == SPEC.permutations("seed")
    assert permutations != SPEC.permutations("another")
    for order in permutations:
        assert [step.number for step in order if step.session == "a"] == [1, 2, 3]
        assert [step.session for step in order] not in ([*"aaabbc"], [*"bbaaac"], [*"cbbaaa"])
